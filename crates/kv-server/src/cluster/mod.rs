//! The cluster's nodes and ranges: who is there, who joins, who has replicas, and what the directory says.
//!
//! Every node has a record among the cluster's own keys, which the root range holds. A node announces itself
//! when it starts: the first one writes its record itself, the others ask the root range's leaseholder to
//! ([`crate::peers::JoinHandler`]). A node that has a replica of the root range reads the records there, others
//! ask for them; each passes the addresses on to its [`Links`].
//!
//! A node decides, with [`crate::placement`], about the members of the ranges whose leases it holds, one step
//! at a time ([`placing`]); ranges that sleep are woken when something is to be done about them. It reports
//! who they are to the root range's leaseholder, which keeps the directory ([`ranges`], [`reported`]). It also
//! splits them when they have grown too large or are too busy ([`splitting`]), and merges them when they are small and
//! idle ([`merging`]).
//!
//! What nodes ask each other besides travels as [`message`]s.

mod asking;
mod configuring;
mod joining;
mod merging;
pub mod message;
mod nodes;
mod placing;
mod ranges;
mod reported;
mod splits;
mod splitting;

use crate::node::{Asker, Node};
use crate::peers::{JoinRequest, Links};
use crate::pipeline::{ROOT, Standing};
use asking::Asking;
use bytes::Bytes;
use kv_api::batch::{Put, RequestKind};
use kv_api::key::{CLUSTER_REGION, prefix_end};
use kv_api::{BatchRequest, Header, KvError, KvErrorKind};
pub use merging::MergeLimits;
use message::{Book, Empty, Kind, Message};
use parking_lot::Mutex;
use prost::Message as _;
use replication::message::{App, Payload};
use replication::{Envelope, NodeId, RangeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::time::Duration;
use storage::key::decode_data_value;
use storage::{Bounds, Engine, Space, StorageError, StorageResult};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How often addresses are passed on and replicas looked after.
const LOOK: Duration = Duration::from_millis(500);
/// How long a node waits for the cluster to take its announcement.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(5);
/// How old what a node without the root range knows of the others may become.
const BOOK_AGE: Duration = Duration::from_secs(2);
/// How long another node may take to answer a question.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it may take to read a whole replica.
const LONG_PATIENCE: Duration = Duration::from_secs(120);
/// Messages of other nodes that wait to be looked at; more are dropped.
const MAX_MESSAGES: usize = 4096;

/// Tenant under which the node works on the cluster's own keys; no tenant has this id.
pub(crate) const CLUSTER: u64 = 0;

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

impl Myself {
    /// A node that nobody else reaches.
    pub fn alone(id: NodeId) -> Self {
        Myself {
            id,
            address: String::new(),
            locality: String::new(),
            store_id: String::new(),
            join: Vec::new(),
            dead_after: Duration::MAX,
        }
    }
}

/// What a node knows of the others.
#[derive(Default)]
struct Known {
    nodes: BTreeMap<NodeId, NodeRecord>,
    /// Who has replicas of the root range, whoever leads it first.
    root: Vec<NodeId>,
    /// When it was told last; absent while it has a replica of the root range itself.
    told: Option<Instant>,
}

/// This node's part in the cluster.
pub struct Cluster {
    node: Weak<Node>,
    peers: Option<Arc<dyn Links>>,
    myself: Myself,
    known: Mutex<Known>,
    asking: Asking,
    messages: mpsc::Sender<(NodeId, Message)>,
    /// Taken by the task that looks at them.
    incoming: Mutex<Option<mpsc::Receiver<(NodeId, Message)>>>,
    /// Joins come one at a time, so that a store gets one id.
    joining: tokio::sync::Mutex<()>,
    /// Changes of the directory come one at a time.
    directory: tokio::sync::Mutex<()>,
    /// So do splits of ranges whose leases are held here, and merges.
    splitting: tokio::sync::Mutex<()>,
    /// How many wait for that to find out what became of a merge.
    settling: AtomicUsize,
    /// The last range whose remaining replicas were seen to.
    gone_after: Mutex<RangeId>,
    configuring: Mutex<configuring::Configuring>,
    /// Ranges to be reported to the directory.
    to_report: Mutex<BTreeSet<RangeId>>,
    placing: Mutex<placing::Progress>,
    splits: splits::Splits,
    last_problem: Mutex<String>,
}

impl Cluster {
    /// The part of a node that reaches others through `peers`.
    pub fn new(node: &Arc<Node>, peers: Option<Arc<dyn Links>>, myself: Myself) -> Arc<Self> {
        let (messages, incoming) = mpsc::channel(MAX_MESSAGES);
        Arc::new(Cluster {
            node: Arc::downgrade(node),
            peers,
            myself,
            known: Mutex::default(),
            asking: Asking::new(node.pipeline.environment().random_pair().0),
            messages,
            incoming: Mutex::new(Some(incoming)),
            joining: tokio::sync::Mutex::new(()),
            directory: tokio::sync::Mutex::new(()),
            splitting: tokio::sync::Mutex::new(()),
            settling: AtomicUsize::new(0),
            gone_after: Mutex::default(),
            configuring: Mutex::default(),
            to_report: Mutex::default(),
            placing: Mutex::default(),
            splits: splits::Splits::default(),
            last_problem: Mutex::default(),
        })
    }

    /// Begins to answer other nodes, and takes the first look before the node serves: the leaseholder of the
    /// root range then has its record.
    pub async fn begin(self: &Arc<Self>) -> bool {
        if let Some(incoming) = self.incoming.lock().take() {
            tokio::spawn(Arc::clone(self).listen(incoming));
        }
        let mut announced = false;
        if let Some(node) = self.node.upgrade()
            && matches!(node.pipeline.standing(ROOT), Standing::Leaseholder(_))
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

    async fn look(self: &Arc<Self>, node: &Arc<Node>, announced: &mut bool) -> Result<(), KvError> {
        // The root range never sleeps: whoever has a replica of it uses it all the time.
        let (root, here) = node.pipeline.overview(ROOT).await?;
        match root {
            Some(standing) => self.read_book(node, standing, here.voters)?,
            None => self.ask_for_book().await,
        }
        let leads = matches!(root, Some(Standing::Leaseholder(_)));
        let records = self.records();
        if !*announced {
            *announced =
                if leads { self.write_own(node, &records).await? } else { self.announce(&records).await };
        }
        if leads {
            self.remove_gone(node).await?;
            self.pass_on_configs(node).await?;
        } else {
            self.leave_configs();
        }
        self.report(node, leads).await?;
        self.place(node, &records, &here.nodes, &here.held).await?;
        self.settle_merges(node, here.frozen);
        self.split_where_needed(node, records.len() > 1);
        self.merge_where_possible(node, here.held);
        Ok(())
    }

    // Who is there.

    /// What is known of the nodes, by their numbers.
    /// The other nodes of the cluster, as far as they are known.
    pub(crate) fn others(&self) -> Vec<NodeId> {
        self.known.lock().nodes.keys().copied().filter(|id| *id != self.myself.id).collect()
    }

    fn records(&self) -> Vec<NodeRecord> {
        self.known.lock().nodes.values().cloned().collect()
    }

    /// Notes where this node is, if nobody looks after the records.
    pub fn is_at(&self, address: String) {
        let record = NodeRecord { id: self.myself.id, address, ..NodeRecord::default() };
        self.known.lock().nodes.insert(record.id, record);
    }

    /// Where a node can be reached.
    pub fn address_of(&self, id: NodeId) -> Option<String> {
        self.known.lock().nodes.get(&id).map(|record| record.address.clone())
    }

    /// Where the nodes can be reached.
    pub fn addresses(&self) -> Vec<String> {
        self.known.lock().nodes.values().map(|record| record.address.clone()).collect()
    }

    /// Who to ask about the directory, the likeliest first.
    fn root_members(&self) -> Vec<NodeId> {
        self.known.lock().root.clone()
    }

    /// Where to ask about the directory; not here.
    pub fn root_address(&self) -> Option<String> {
        let other = self.root_members().into_iter().find(|id| *id != self.myself.id)?;
        self.address_of(other)
    }

    fn learn(&self, nodes: Vec<NodeRecord>, root: Vec<NodeId>, told: Option<Instant>) {
        if let Some(peers) = &self.peers {
            for record in &nodes {
                peers.set_address(record.id, record.address.clone());
            }
        }
        let mut known = self.known.lock();
        known.nodes.extend(nodes.into_iter().map(|record| (record.id, record)));
        known.root = root;
        known.told = told;
    }

    /// Reads what the replica of the root range here says.
    fn read_book(&self, node: &Node, standing: Standing, voters: Vec<NodeId>) -> Result<(), KvError> {
        let mut root = voters;
        let leader = match standing {
            Standing::Leaseholder(_) => Some(self.myself.id),
            Standing::Follower(leader) => leader,
        };
        root.sort_by_key(|id| (Some(*id) != leader, *id));
        self.learn(records(&*node.engine)?, root, None);
        Ok(())
    }

    /// Asks a node that has a replica of the root range what it says.
    async fn ask_for_book(&self) {
        let (due, mut candidates) = {
            let known = self.known.lock();
            let due = known.told.is_none_or(|told| told.elapsed() >= BOOK_AGE);
            (due, known.root.iter().chain(known.nodes.keys()).copied().collect::<Vec<_>>())
        };
        candidates.retain(|id| *id != self.myself.id);
        candidates.dedup();
        if !due {
            return;
        }
        for id in candidates {
            if let Some(Kind::Book(Book { nodes, root })) = self.ask(id, Kind::GetBook(Empty {})).await {
                self.learn(nodes, root, Some(Instant::now()));
                return;
            }
        }
    }

    async fn write_own(&self, node: &Arc<Node>, records: &[NodeRecord]) -> Result<bool, KvError> {
        let known = records.iter().find(|record| record.id == self.myself.id);
        let record = NodeRecord {
            id: self.myself.id,
            address: self.myself.address.clone(),
            locality: self.myself.locality.clone(),
            store_id: self.myself.store_id.clone(),
            draining: known.is_some_and(|record| record.draining),
            pid: node.pipeline.environment().process_id(),
        };
        if known != Some(&record) {
            put_record(node, &record).await?;
            self.known.lock().nodes.insert(record.id, record);
        }
        Ok(true)
    }

    /// Tells the leaseholder of the root range where this node is now.
    async fn announce(&self, records: &[NodeRecord]) -> bool {
        let Some(peers) = &self.peers else { return true };
        let others = records.iter().filter(|record| record.id != self.myself.id);
        let mut addresses: Vec<String> = others.map(|record| record.address.clone()).collect();
        addresses.extend(self.myself.join.iter().cloned());
        if addresses.is_empty() {
            return false;
        }
        let deadline = Instant::now() + ANNOUNCE_TIMEOUT;
        match peers.join(&addresses, self.request(self.myself.id), deadline).await {
            Ok(response) => {
                // Until there is a replica of the root range here, this is all that is known of the others.
                let nodes = response.nodes.into_iter().map(|node| NodeRecord {
                    id: node.id,
                    address: node.address,
                    locality: node.locality,
                    ..NodeRecord::default()
                });
                let mut known = self.known.lock();
                for record in nodes {
                    peers.set_address(record.id, record.address.clone());
                    known.nodes.entry(record.id).or_insert(record);
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
            pid: self.node.upgrade().map_or(0, |node| node.pipeline.environment().process_id()),
        }
    }

    fn node(&self) -> Result<Arc<Node>, KvError> {
        let gone = || KvError::new(KvErrorKind::Unavailable, "the KV node is shutting down");
        self.node.upgrade().ok_or_else(gone)
    }

    // Messages.

    /// Takes in a message of another node. Does not wait.
    pub fn message(&self, from: NodeId, bytes: &Bytes) {
        let Ok(Message { id, kind: Some(kind) }) = Message::decode(bytes.clone()) else {
            tracing::warn!(from, "a malformed message of a node was dropped");
            return;
        };
        let Some(kind) = self.asking.answered(from, id, kind) else { return };
        if let Kind::GetPromise(asked) = kind {
            // At once: reads wait for it.
            let Some(node) = self.node.upgrade() else { return };
            let answer = match node.promise_ahead(asked.range_id) {
                Ok(promise) => Kind::Promise(promise),
                Err(error) => refusal(error),
            };
            return self.send(from, asking::encode(id, answer));
        }
        if self.messages.try_send((from, Message { id, kind: Some(kind) })).is_err() {
            tracing::debug!(from, "a question was dropped, there are too many");
        }
    }

    /// Sends a message, which may get lost.
    fn send(&self, to: NodeId, bytes: Bytes) {
        if let Some(peers) = &self.peers {
            let payload = Some(Payload::App(App { bytes }));
            peers.send(Envelope { from: self.myself.id, to, payload, ..Envelope::default() });
        }
    }

    /// Asks another node; `None` if it does not answer.
    pub(crate) async fn ask(&self, to: NodeId, question: Kind) -> Option<Kind> {
        self.asking.ask(to, question, PATIENCE, |to, bytes| self.send(to, bytes)).await
    }

    /// The same, of what takes long.
    pub(crate) async fn ask_patiently(&self, to: NodeId, question: Kind) -> Option<Kind> {
        self.asking.ask(to, question, LONG_PATIENCE, |to, bytes| self.send(to, bytes)).await
    }

    /// The same, for as long as is said.
    pub(crate) async fn ask_for(&self, to: NodeId, question: Kind, patience: Duration) -> Option<Kind> {
        self.asking.ask(to, question, patience, |to, bytes| self.send(to, bytes)).await
    }

    /// Answers the questions of others, until the node is gone.
    async fn listen(self: Arc<Self>, mut incoming: mpsc::Receiver<(NodeId, Message)>) {
        while let Some((from, Message { id, kind })) = incoming.recv().await {
            let Some(kind) = kind else { continue };
            let cluster = Arc::clone(&self);
            // Some wait for entries to be applied; nobody waits for those.
            tokio::spawn(async move {
                let Some(node) = cluster.node.upgrade() else { return };
                let answer = cluster.reply(&node, kind).await;
                cluster.send(from, asking::encode(id, answer));
            });
        }
    }

    async fn reply(&self, node: &Arc<Node>, question: Kind) -> Kind {
        let done = |result: Result<(), KvError>| match result {
            Ok(()) => Kind::Done(Empty {}),
            Err(error) => refusal(error),
        };
        match question {
            Kind::GetBook(_) if self.known.lock().told.is_some() => {
                refusal(KvError::new(KvErrorKind::Unavailable, "this node has no replica of the root range"))
            }
            Kind::GetBook(_) => Kind::Book(Book { nodes: self.records(), root: self.root_members() }),
            Kind::Report(report) => done(self.take_report(node, report.records).await),
            Kind::Configure(asked) => {
                done(self.configure_range(node, asked.range_id, |_| Ok(asked.config.clone())).await)
            }
            Kind::Cut(asked) => done(self.split(node, asked.range_id, asked.key).await.map(|_| ())),
            Kind::GetRangeId(asked) => match self.give_range_id(node, asked).await {
                Ok(named) => Kind::RangeId(named),
                Err(error) => refusal(error),
            },
            Kind::GetNeighbour(asked) => answered(self.neighbour(node, asked).await, Kind::Neighbour),
            Kind::FreezeRange(asked) => answered(self.freeze(node, asked).await, Kind::Frozen),
            Kind::GetContents(asked) => answered(self.contents(node, asked).await, Kind::Contents),
            Kind::Reached(asked) => done(self.reached(node, asked).await),
            Kind::SettleMerge(asked) => answered(self.settle(node, asked).await, Kind::MergeSettled),
            Kind::GetListed(asked) => answered(self.listed(node, asked).await, Kind::Listed),
            Kind::MergeGivenUp(gone) => {
                self.splits.given_up(gone.range_id);
                Kind::Done(Empty {})
            }
            Kind::Gone(gone) => done(node.pipeline.destroy(gone.range_id).await),
            Kind::GetDigest(asked) => match crate::check::digest(node, asked).await {
                Ok(digest) => Kind::Digest(digest),
                Err(error) => refusal(error),
            },
            Kind::Distrust(gone) => {
                tracing::error!(
                    range = gone.range_id,
                    "the replica here differs from the others: it serves no more and will be replaced"
                );
                node.distrust(gone.range_id);
                Kind::Done(Empty {})
            }
            Kind::AskOutcome(asked) => match crate::recover::answer(node, asked).await {
                Ok(outcome) => Kind::TxnOutcome(outcome),
                Err(error) => refusal(error),
            },
            Kind::AskWaits(asked) => Kind::Waits(crate::recover::waits(node, asked)),
            // Promises are given before this; the others are answers.
            _ => refusal(KvError::new(KvErrorKind::Internal, "this is no question")),
        }
    }
}

fn answered<T>(result: Result<T, KvError>, kind: impl FnOnce(T) -> Kind) -> Kind {
    result.map_or_else(refusal, kind)
}

fn refusal(error: KvError) -> Kind {
    Kind::Refused(message::Refusal { reason: error.message })
}

async fn put_record(node: &Arc<Node>, record: &NodeRecord) -> Result<(), KvError> {
    let put = Put { key: record_key(record.id), value: record.encode_to_vec().into(), sequence: 1 };
    internal(node, RequestKind::Put(put)).await.map(|_| ())
}

/// Carries out a request on the cluster's own keys.
async fn internal(node: &Arc<Node>, request: RequestKind) -> Result<kv_api::BatchResponse, KvError> {
    let batch = BatchRequest { header: Header::default(), requests: vec![request.into()] };
    node.internal(Asker { tenant: CLUSTER, connection: 0, range: ROOT }, batch).await
}
