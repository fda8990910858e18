//! The nodes as this one sees them; draining, and handing over.

use super::message::Note;
use super::{Cluster, NodeRecord, put_record};
use crate::directory;
use crate::node::Node;
use crate::pipeline::{NodesStatus, ROOT, Status};
use crate::placement::NodeView;
use kv_api::batch::NodeInfo;
use kv_api::{KvError, KvErrorKind};
use prost::Message;
use replication::{NodeId, RangeId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A node that was heard of in this time is alive, in milliseconds.
const LIVE_MS: u64 = 3000;
/// Entries a replica may lack and still count as caught up.
const NEAR: u64 = 256;
/// How long a node that ends waits for others to take its leases.
const HAND_OVER: Duration = Duration::from_secs(2);
/// Pause between looks whether they have.
const HAND_OVER_PAUSE: Duration = Duration::from_millis(10);

fn note_of(nodes: &NodesStatus, id: NodeId) -> Note {
    nodes.notes.get(&id).and_then(|note| Note::decode(note.clone()).ok()).unwrap_or_default()
}

/// The views with what is known of each node's replica of one range.
pub(super) fn for_range(nodes: &[NodeView], status: &Status) -> Vec<NodeView> {
    let group = &status.group;
    let matched = |id: NodeId| group.behind.iter().find(|(node, _)| *node == id).map(|(_, matched)| *matched);
    let caught_up = |id| matched(id).is_some_and(|matched| matched + NEAR >= group.last);
    nodes.iter().map(|node| NodeView { caught_up: caught_up(node.id), ..node.clone() }).collect()
}

impl Cluster {
    /// A node, as far as it does not depend on a range.
    pub(super) fn view(&self, record: &NodeRecord, nodes: &NodesStatus) -> NodeView {
        let own = record.id == self.myself.id;
        let silent = if own { Some(0) } else { nodes.silent.get(&record.id).copied() };
        let dead_after = u64::try_from(self.myself.dead_after.as_millis()).unwrap_or(u64::MAX);
        let note = if own { self.placing.lock().note(nodes) } else { note_of(nodes, record.id) };
        NodeView {
            id: record.id,
            locality: record.locality.clone(),
            dead: silent.is_some_and(|silent| silent > dead_after),
            live: silent.is_some_and(|silent| silent < LIVE_MS),
            draining: record.draining,
            caught_up: false,
            replicas: note.replicas,
            leases: note.leases,
            load: note.load,
        }
    }

    /// All nodes that are known.
    pub(super) fn views(&self, records: &[NodeRecord], nodes: &NodesStatus) -> Vec<NodeView> {
        records.iter().map(|record| self.view(record, nodes)).collect()
    }

    /// Who leads the root range, as far as the nodes say.
    pub(super) fn root_leader(&self, nodes: &NodesStatus) -> Option<NodeId> {
        nodes.notes.keys().copied().find(|id| note_of(nodes, *id).leads_root)
    }

    /// The nodes, for the control plane.
    ///
    /// # Errors
    /// If this node cannot say now.
    pub async fn nodes(&self) -> Result<Vec<NodeInfo>, KvError> {
        let node = self.node()?;
        let nodes = node.pipeline.nodes().await?;
        let records = self.records();
        let views = self.views(&records, &nodes);
        // What a node that is gone had is known by the directory alone.
        let missing = views.iter().any(|view| !view.live);
        let counted = if missing { count_replicas(&node)? } else { BTreeMap::new() };
        let info = records.into_iter().zip(views).map(|(record, view)| NodeInfo {
            id: record.id,
            live: view.live,
            leaseholder: view.live && view.leases > 0,
            replicas: if view.live { view.replicas } else { counted.get(&record.id).copied().unwrap_or(0) },
            leases: if view.live { view.leases } else { 0 },
            draining: record.draining,
            pid: record.pid,
            address: record.address,
            locality: record.locality,
        });
        Ok(info.collect())
    }

    /// Begins to empty a node, or stops.
    ///
    /// # Errors
    /// If there is no such node, or nobody could take over from it.
    pub async fn drain(&self, id: NodeId, undo: bool) -> Result<(), KvError> {
        let node = self.node()?;
        let records = self.records();
        let invalid = |message: String| KvError::new(KvErrorKind::InvalidRequest, message);
        let Some(record) = records.iter().find(|record| record.id == id) else {
            return Err(invalid(format!("there is no node {id}")));
        };
        let nodes = node.pipeline.nodes().await?;
        let others = records.iter().filter(|other| other.id != id && !other.draining);
        if !undo && !others.map(|other| self.view(other, &nodes)).any(|view| view.live) {
            return Err(invalid(format!("node {id} is the only node; nobody could take over from it")));
        }
        put_record(&node, &NodeRecord { draining: !undo, ..record.clone() }).await
    }

    /// Hands the leases to others, where somebody can take them; waits a moment until they are gone.
    pub async fn hand_over(&self) {
        let Ok(node) = self.node() else { return };
        if let Ok(Err(error)) = tokio::time::timeout(HAND_OVER, self.hand_over_all(&node)).await {
            tracing::info!("the leases were not handed over: {error}");
        }
    }

    async fn hand_over_all(&self, node: &Arc<Node>) -> Result<(), KvError> {
        let nodes = node.pipeline.nodes().await?;
        let views = self.views(&self.records(), &nodes);
        let statuses = node.pipeline.statuses(node.pipeline.held_ranges().await?).await?;
        let transfers = statuses.iter().map(|status| async {
            let voters = &status.group.members.voters;
            let other = for_range(&views, status)
                .into_iter()
                .filter(|view| view.id != self.myself.id && voters.contains(&view.id))
                .filter(|view| view.live && view.caught_up && !view.draining)
                .min_by_key(|view| (view.load, view.id))?;
            node.pipeline.transfer_lease(status.range, other.id).await.ok().map(|()| status.range)
        });
        let transfers = futures::future::join_all(transfers).await;
        let mut waiting: Vec<RangeId> = transfers.into_iter().flatten().collect();
        loop {
            let held = node.pipeline.held_ranges().await?;
            waiting.retain(|range| held.contains(range));
            if waiting.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(HAND_OVER_PAUSE).await;
        }
    }
}

/// How many replicas each node has, by the directory.
fn count_replicas(node: &Node) -> Result<BTreeMap<NodeId, u64>, KvError> {
    let mut counts = BTreeMap::new();
    if node.pipeline.span(ROOT).is_none() {
        return Ok(counts);
    }
    for record in directory::list(&*node.engine, &[], usize::MAX)? {
        for member in record.voters.iter().chain(&record.learners) {
            *counts.entry(*member).or_default() += 1;
        }
    }
    Ok(counts)
}
