//! Who becomes a node of the cluster.

use super::{Cluster, NodeRecord, counter_key, internal, put_record, records};
use crate::node::Node;
use crate::peers::{JoinHandler, JoinRequest, JoinResponse, PeerNode};
use crate::pipeline::{ROOT, Standing};
use async_trait::async_trait;
use kv_api::KvError;
use kv_api::batch::{Increment, RequestKind};
use replication::NodeId;
use std::sync::Arc;

impl Cluster {
    async fn take_in(&self, request: JoinRequest) -> Result<JoinResponse, KvError> {
        let node = self.node()?;
        if let Standing::Follower(leader) = node.pipeline.standing(ROOT) {
            return Ok(match leader.and_then(|id| self.address_of(id)) {
                Some(address) => JoinResponse::redirect(address),
                None => JoinResponse::try_again("the cluster has no leaseholder at the moment"),
            });
        }
        let _one_at_a_time = self.joining.lock().await;
        // Not what was known at the last look: somebody may have joined since.
        let records = records(&*node.engine)?;
        let known = records.iter().find(|record| match request.node_id {
            0 => record.store_id == request.store_id,
            id => record.id == id,
        });
        if let Some(known) = known {
            if known.store_id != request.store_id {
                return Ok(JoinResponse::refused(format!(
                    "node {} is known with another store. If its disk was lost, drain the node and let a new \
                     one join with an empty data directory.",
                    known.id
                )));
            }
            let nodes = node.pipeline.nodes().await?;
            if known.address != request.address && known.id != self.myself.id && self.view(known, &nodes).live
            {
                return Ok(JoinResponse::refused(format!(
                    "node {} is alive at {}. Two nodes cannot use one store or a copy of it; start this one \
                     with an empty data directory.",
                    known.id, known.address
                )));
            }
        } else if request.node_id != 0 {
            return Ok(JoinResponse::refused(format!(
                "this cluster has no node {}. The data directory is of another cluster or of a node that was \
                 removed; start with an empty one to join as a new node.",
                request.node_id
            )));
        }
        let id = match known {
            Some(known) => known.id,
            None => self.new_id(&node, &records).await?,
        };
        let record = NodeRecord {
            id,
            address: request.address,
            locality: request.locality,
            store_id: request.store_id,
            draining: known.is_some_and(|known| known.draining),
            pid: request.pid,
        };
        if known != Some(&record) {
            put_record(&node, &record).await?;
        }
        if let Some(peers) = &self.peers {
            peers.set_address(id, record.address.clone());
        }
        self.known.lock().nodes.insert(id, record.clone());
        let nodes = records
            .into_iter()
            .filter(|other| other.id != id)
            .chain([record])
            .map(|record| PeerNode { id: record.id, address: record.address, locality: record.locality });
        Ok(JoinResponse {
            cluster_id: node.cluster_id().to_owned(),
            node_id: id,
            nodes: nodes.collect(),
            ..JoinResponse::default()
        })
    }

    async fn new_id(&self, node: &Arc<Node>, records: &[NodeRecord]) -> Result<NodeId, KvError> {
        let most = records.iter().map(|record| record.id).max().unwrap_or(0).max(self.myself.id);
        loop {
            let increment = Increment { key: counter_key(), by: 1 };
            let response = internal(node, RequestKind::Increment(increment)).await?;
            let counter = response.responses.first().map_or(0, |response| response.counter);
            if let Ok(id) = NodeId::try_from(counter)
                && id > most
            {
                return Ok(id);
            }
        }
    }
}

#[async_trait]
impl JoinHandler for Cluster {
    async fn join(&self, request: JoinRequest) -> JoinResponse {
        match self.take_in(request).await {
            Ok(response) => response,
            Err(error) => JoinResponse::try_again(error.message),
        }
    }
}
