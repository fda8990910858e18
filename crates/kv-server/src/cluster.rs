//! The cluster's nodes: their records, who joins, and who has replicas.
//!
//! Every node has a record among the cluster's own keys, which are part of the range and so known to every
//! replica. A node announces itself when it starts: the first one writes its record itself, the others ask
//! the leaseholder to ([`JoinHandler`]). Each node passes the addresses on to its [`Peers`]; the
//! leaseholder also decides, with [`next_step`], who should have replicas, and sees to it one step at a time.

use crate::node::{Asker, Node};
use crate::peers::{JoinHandler, JoinRequest, JoinResponse, PeerNode, Peers};
use crate::pipeline::{Standing, Status};
use crate::placement::{NodeView, Placed, Step, next_step};
use async_trait::async_trait;
use bytes::Bytes;
use kv_api::batch::{Increment, NodeInfo, Put, RequestKind};
use kv_api::key::{CLUSTER_REGION, prefix_end};
use kv_api::{BatchRequest, Header, KvError, KvErrorKind};
use parking_lot::Mutex;
use prost::Message;
use replication::NodeId;
use std::sync::{Arc, Weak};
use std::time::Duration;
use storage::key::decode_data_value;
use storage::{Bounds, Engine, Space, StorageError, StorageResult};

/// How often addresses are passed on and replicas looked after.
const LOOK: Duration = Duration::from_millis(500);
/// A node that was heard of in this time is alive, in milliseconds.
const LIVE_MS: u64 = 3000;
/// Entries a replica may lack and still count as caught up.
const NEAR: u64 = 256;
/// How long a node that ends waits for another to take the lease.
const HAND_OVER: Duration = Duration::from_millis(500);
/// How long a node waits for the cluster to take its announcement.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(5);

/// Tenant under which the node works on the cluster's own keys; no tenant has this id.
const CLUSTER: u64 = 0;

/// What is known of a node.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeRecord {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub id: NodeId,
    /// `host:port` where others reach it.
    #[prost(string, tag = "2")]
    pub address: String,
    /// `key=value` pairs separated by commas.
    #[prost(string, tag = "3")]
    pub locality: String,
    /// Its store.
    #[prost(string, tag = "4")]
    pub store_id: String,
    /// Whether it is to be emptied.
    #[prost(bool, tag = "5")]
    pub draining: bool,
    /// Its process on its machine.
    #[prost(uint64, tag = "6")]
    pub pid: u64,
}

fn records_prefix() -> Vec<u8> {
    [&[CLUSTER_REGION], &b"node/"[..]].concat()
}

fn record_key(id: NodeId) -> Bytes {
    Bytes::from([&records_prefix()[..], &id.to_be_bytes()].concat())
}

fn counter_key() -> Bytes {
    Bytes::from([&[CLUSTER_REGION], &b"last-node"[..]].concat())
}

/// The records as this node's replica has them, by id.
///
/// # Errors
/// I/O errors and damage.
pub fn records(engine: &dyn Engine) -> StorageResult<Vec<NodeRecord>> {
    let prefix = records_prefix();
    let end = prefix_end(&prefix).unwrap_or_default();
    let mut cursor = engine.cursor(Space::Data, Bounds::new(&prefix, &end));
    cursor.seek_to_first();
    let mut records = Vec::new();
    while let Some((_, stored)) = cursor.item() {
        if let Some(value) = decode_data_value(stored)?.value {
            let record = NodeRecord::decode(value)
                .map_err(|_| StorageError::corruption("the record of a node is unreadable"))?;
            records.push(record);
        }
        cursor.next();
    }
    cursor.status()?;
    Ok(records)
}

/// This node, as it announces itself.
#[derive(Clone, Debug)]
pub struct Myself {
    /// Its number.
    pub id: NodeId,
    /// `host:port` where others reach it.
    pub address: String,
    /// Where it stands.
    pub locality: String,
    /// Its store.
    pub store_id: String,
    /// Where to find others, if it does not know by itself.
    pub join: Vec<String>,
    /// After how long a silent node is taken for lost.
    pub dead_after: Duration,
}

/// This node's part in the cluster.
pub struct Cluster {
    node: Weak<Node>,
    peers: Option<Arc<Peers>>,
    tls: Option<Arc<rustls::ClientConfig>>,
    myself: Myself,
    /// Joins come one at a time, so that a store gets one id.
    joining: tokio::sync::Mutex<()>,
    last_problem: Mutex<String>,
}

impl Cluster {
    /// The part of a node that reaches others through `peers`.
    pub fn new(
        node: &Arc<Node>,
        peers: Option<Arc<Peers>>,
        tls: Option<Arc<rustls::ClientConfig>>,
        myself: Myself,
    ) -> Arc<Self> {
        Arc::new(Cluster {
            node: Arc::downgrade(node),
            peers,
            tls,
            myself,
            joining: tokio::sync::Mutex::new(()),
            last_problem: Mutex::new(String::new()),
        })
    }

    /// The first look, before the node serves: a leaseholder then has its record.
    pub async fn begin(&self) -> bool {
        let mut announced = false;
        if let Some(node) = self.node.upgrade()
            && matches!(*node.pipeline.standing().borrow(), Standing::Leaseholder(_))
            && let Err(error) = self.look(&node, &mut announced).await
        {
            self.note(&error.to_string());
        }
        announced
    }

    /// Looks after addresses and replicas until the node is gone. `announced`: whether the cluster has been
    /// told where the node is.
    pub async fn run(self: Arc<Self>, mut announced: bool) {
        loop {
            let Some(node) = self.node.upgrade() else { return };
            if let Err(error) = self.look(&node, &mut announced).await {
                self.note(&error.to_string());
            }
            drop(node);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Logs a problem once, not at every look.
    fn note(&self, problem: &str) {
        let mut last = self.last_problem.lock();
        if *last != problem {
            tracing::warn!("the cluster cannot be looked after: {problem}");
            problem.clone_into(&mut last);
        }
    }

    async fn look(&self, node: &Arc<Node>, announced: &mut bool) -> Result<(), KvError> {
        let records = records(&*node.engine)?;
        if let Some(peers) = &self.peers {
            for record in &records {
                peers.set_address(record.id, record.address.clone());
            }
        }
        let leads = matches!(*node.pipeline.standing().borrow(), Standing::Leaseholder(_));
        if !*announced {
            *announced =
                if leads { self.write_own(node, &records).await? } else { self.announce(&records).await };
        }
        let alone = records.iter().all(|record| record.id == self.myself.id);
        if alone {
            return Ok(());
        }
        node.pipeline.watch_nodes(records.iter().map(|record| record.id).collect());
        if leads { self.place(node, &records).await } else { Ok(()) }
    }

    async fn write_own(&self, node: &Arc<Node>, records: &[NodeRecord]) -> Result<bool, KvError> {
        let known = records.iter().find(|record| record.id == self.myself.id);
        let record = NodeRecord {
            id: self.myself.id,
            address: self.myself.address.clone(),
            locality: self.myself.locality.clone(),
            store_id: self.myself.store_id.clone(),
            draining: known.is_some_and(|record| record.draining),
            pid: u64::from(std::process::id()),
        };
        if known != Some(&record) {
            put_record(node, &record).await?;
        }
        Ok(true)
    }

    /// Tells the leaseholder where this node is now.
    async fn announce(&self, records: &[NodeRecord]) -> bool {
        let Some(tls) = &self.tls else { return true };
        let others = records.iter().filter(|record| record.id != self.myself.id);
        let mut addresses: Vec<String> = others.map(|record| record.address.clone()).collect();
        addresses.extend(self.myself.join.iter().cloned());
        if addresses.is_empty() {
            return false;
        }
        let deadline = tokio::time::Instant::now() + ANNOUNCE_TIMEOUT;
        match crate::peers::join(&addresses, tls, self.request(self.myself.id), deadline).await {
            Ok(response) => {
                // Until there is a replica here, this is all that is known of the others.
                if let Some(peers) = &self.peers {
                    response.nodes.into_iter().for_each(|node| peers.set_address(node.id, node.address));
                }
                true
            }
            Err(error) => {
                self.note(&error.to_string());
                false
            }
        }
    }

    fn request(&self, node_id: NodeId) -> JoinRequest {
        JoinRequest {
            version: 0,
            cluster_id: String::new(),
            address: self.myself.address.clone(),
            locality: self.myself.locality.clone(),
            node_id,
            store_id: self.myself.store_id.clone(),
            pid: u64::from(std::process::id()),
        }
    }

    /// Makes the next step towards where the replicas should be.
    async fn place(&self, node: &Arc<Node>, records: &[NodeRecord]) -> Result<(), KvError> {
        let status = node.pipeline.status().await?;
        let Some(group) = &status.group else { return Ok(()) };
        if group.members.is_joint() {
            return Ok(());
        }
        let views: Vec<NodeView> = records.iter().map(|record| self.view(record, &status)).collect();
        let placed =
            Placed { voters: group.members.voters.clone(), learners: group.members.learners.clone() };
        match next_step(self.myself.id, &placed, &views) {
            Some(Step::Change(change)) => {
                tracing::info!(?change, "changing the members of the range");
                node.pipeline.change_members(change).await
            }
            Some(Step::Transfer(to)) => {
                tracing::info!(to, "handing the lease over");
                node.pipeline.transfer_lease(to).await
            }
            None => Ok(()),
        }
    }

    fn view(&self, record: &NodeRecord, status: &Status) -> NodeView {
        let silent =
            if record.id == self.myself.id { Some(0) } else { status.silent.get(&record.id).copied() };
        let last = status.group.as_ref().map_or(0, |group| group.last);
        let matched =
            status.group.iter().flat_map(|group| &group.behind).find(|(node, _)| *node == record.id);
        let dead_after = u64::try_from(self.myself.dead_after.as_millis()).unwrap_or(u64::MAX);
        NodeView {
            id: record.id,
            locality: record.locality.clone(),
            dead: silent.is_some_and(|silent| silent > dead_after),
            live: silent.is_some_and(|silent| silent < LIVE_MS),
            draining: record.draining,
            caught_up: matched.is_some_and(|(_, matched)| matched + NEAR >= last),
        }
    }

    /// Hands the lease to somebody, if this node holds it and somebody can take it; waits a moment until it
    /// is gone.
    pub async fn hand_over(&self) {
        let Ok(node) = self.node() else { return };
        let handing = async {
            let status = node.pipeline.status().await?;
            let records = records(&*node.engine)?;
            let voters = status.group.as_ref().map(|group| group.members.voters.clone()).unwrap_or_default();
            let views = records.iter().map(|record| self.view(record, &status));
            let other = views
                .filter(|view| view.id != self.myself.id && voters.contains(&view.id))
                .find(|view| view.live && view.caught_up && !view.draining);
            let Some(other) = other else { return Ok(()) };
            node.pipeline.transfer_lease(other.id).await?;
            let mut standing = node.pipeline.standing();
            let _ = standing.wait_for(|standing| matches!(standing, Standing::Follower(Some(_)))).await;
            Ok::<(), KvError>(())
        };
        match tokio::time::timeout(HAND_OVER, handing).await {
            Ok(Ok(())) | Err(_) => {}
            Ok(Err(error)) => tracing::info!("the lease was not handed over: {error}"),
        }
    }

    /// The nodes, for the control plane.
    ///
    /// # Errors
    /// If this node cannot say now.
    pub async fn nodes(&self) -> Result<Vec<NodeInfo>, KvError> {
        let node = self.node()?;
        let status = node.pipeline.status().await?;
        let records = records(&*node.engine)?;
        let members = status.group.as_ref().map(|group| group.members.all()).unwrap_or_default();
        let info = records.into_iter().map(|record| {
            let view = self.view(&record, &status);
            NodeInfo {
                id: record.id,
                live: view.live,
                leaseholder: record.id == self.myself.id,
                replicas: u64::from(members.contains(&record.id)),
                draining: record.draining,
                pid: record.pid,
                address: record.address,
                locality: record.locality,
            }
        });
        Ok(info.collect())
    }

    /// Begins to empty a node, or stops.
    ///
    /// # Errors
    /// If there is no such node, or nobody could take over from it.
    pub async fn drain(&self, id: NodeId, undo: bool) -> Result<(), KvError> {
        let node = self.node()?;
        let records = records(&*node.engine)?;
        let invalid = |message: String| KvError::new(KvErrorKind::InvalidRequest, message);
        let Some(record) = records.iter().find(|record| record.id == id) else {
            return Err(invalid(format!("there is no node {id}")));
        };
        let status = node.pipeline.status().await?;
        let others = records.iter().filter(|other| other.id != id && !other.draining);
        if !undo && !others.map(|other| self.view(other, &status)).any(|view| view.live) {
            return Err(invalid(format!("node {id} is the only node; nobody could take over from it")));
        }
        put_record(&node, &NodeRecord { draining: !undo, ..record.clone() }).await
    }

    fn node(&self) -> Result<Arc<Node>, KvError> {
        let gone = || KvError::new(KvErrorKind::Unavailable, "the KV node is shutting down");
        self.node.upgrade().ok_or_else(gone)
    }

    async fn take_in(&self, request: JoinRequest) -> Result<JoinResponse, KvError> {
        let node = self.node()?;
        let records = records(&*node.engine)?;
        let standing = *node.pipeline.standing().borrow();
        match standing {
            Standing::Leaseholder(_) => {}
            Standing::Follower(leader) => {
                let address = leader.and_then(|id| records.iter().find(|record| record.id == id));
                return Ok(match address {
                    Some(record) => JoinResponse::redirect(record.address.clone()),
                    None => JoinResponse::try_again("the cluster has no leaseholder at the moment"),
                });
            }
        }
        let _one_at_a_time = self.joining.lock().await;
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
            let status = node.pipeline.status().await?;
            if known.address != request.address
                && known.id != self.myself.id
                && self.view(known, &status).live
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

async fn put_record(node: &Arc<Node>, record: &NodeRecord) -> Result<(), KvError> {
    let put = Put { key: record_key(record.id), value: record.encode_to_vec().into(), sequence: 1 };
    internal(node, RequestKind::Put(put)).await.map(|_| ())
}

/// Carries out a request on the cluster's own keys.
async fn internal(node: &Arc<Node>, request: RequestKind) -> Result<kv_api::BatchResponse, KvError> {
    let batch = BatchRequest { header: Header::default(), requests: vec![request.into()] };
    node.internal(Asker { tenant: CLUSTER, connection: 0 }, batch).await
}
