//! A few nodes in one thread, with a clock of their own.

use bytes::Bytes;
use kv_api::Timestamp;
use replication::config::TICK_MS;
use replication::message::{Payload, RaftMessage};
use replication::{
    Bug, Envelope, Event, Faults, LeaseView, Millis, NodeId, Proposal, RangeChange, RangeDescriptor, RangeId,
    Store, StoreConfig,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::{MemoryEngine, Reader, Space, WriteBatch};

pub const SLEEP_AFTER_MS: Millis = 5_000;
pub const FIRST: RangeId = 1;

/// No bug, or one.
#[derive(Clone, Copy)]
pub struct Planted(pub Option<Bug>);

impl Faults for Planted {
    fn planted(&self, bug: Bug) -> bool {
        self.0 == Some(bug)
    }
}

pub fn span(range_id: RangeId, start: &str, end: &str, generation: u64) -> RangeDescriptor {
    let bytes = |key: &str| Bytes::copy_from_slice(key.as_bytes());
    RangeDescriptor {
        range_id,
        start: bytes(start),
        end: bytes(end),
        generation,
        ..RangeDescriptor::default()
    }
}

pub struct Node {
    pub engine: Arc<MemoryEngine>,
    pub store: Option<Store<Planted>>,
    pub events: Vec<Event>,
    epoch: u64,
}

type Filter = Box<dyn Fn(&Envelope) -> bool>;

pub struct Cluster {
    pub nodes: BTreeMap<NodeId, Node>,
    pub now: Millis,
    /// Which messages arrive.
    pub arrives: Filter,
    /// The messages that did not.
    pub lost: Vec<Envelope>,
    planted: Planted,
    next_id: u64,
}

/// The Raft message of a range in an envelope.
pub fn raft_of(envelope: &Envelope, range: RangeId) -> Option<&RaftMessage> {
    match &envelope.payload {
        Some(Payload::Raft(message)) if message.range_id == range => Some(message),
        _ => None,
    }
}

impl Cluster {
    /// Founded with one range from "b" to "y" on the nodes up to `count`.
    pub fn new(count: NodeId, planted: Option<Bug>) -> Self {
        let voters: Vec<NodeId> = (1..=count).collect();
        let mut cluster = Cluster {
            nodes: BTreeMap::new(),
            now: 1_000,
            arrives: Box::new(|_| true),
            lost: Vec::new(),
            planted: Planted(planted),
            next_id: 1,
        };
        for id in &voters {
            let engine = Arc::new(MemoryEngine::new());
            replication::store::bootstrap(&*engine, &span(FIRST, "b", "y", 0), &voters).expect("found");
            cluster.nodes.insert(*id, Node { engine, store: None, events: Vec::new(), epoch: 0 });
            cluster.start(*id);
        }
        cluster
    }

    pub fn start(&mut self, id: NodeId) {
        let (now, planted, others) = (self.now, self.planted, self.nodes.keys().copied().collect::<Vec<_>>());
        let node = self.nodes.get_mut(&id).expect("node");
        node.epoch += 1;
        let config = StoreConfig {
            sleep_after_ms: SLEEP_AFTER_MS,
            ..StoreConfig::new(id, node.epoch, 7 * id + node.epoch)
        };
        let mut store = Store::open(node.engine.clone(), config, planted, now).expect("open");
        store.watch_nodes(others.into_iter());
        node.store = Some(store);
    }

    pub fn stop(&mut self, id: NodeId) {
        self.nodes.get_mut(&id).expect("node").store = None;
    }

    pub fn store(&mut self, id: NodeId) -> &mut Store<Planted> {
        self.nodes.get_mut(&id).and_then(|node| node.store.as_mut()).expect("a running node")
    }

    /// Processes and delivers until nothing is left to do.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            let mut busy = false;
            let mut envelopes = Vec::new();
            for node in self.nodes.values_mut() {
                let Some(store) = &mut node.store else { continue };
                busy |= store.has_work();
                node.events.extend(store.process(self.now).expect("process"));
                envelopes.extend(store.take_messages());
            }
            for envelope in envelopes {
                busy = true;
                if !(self.arrives)(&envelope) {
                    self.lost.push(envelope);
                } else if let Some(node) = self.nodes.get_mut(&envelope.to)
                    && let Some(store) = &mut node.store
                {
                    store.step(self.now, envelope);
                }
            }
            if !busy {
                return;
            }
        }
        panic!("the nodes do not come to rest");
    }

    pub fn run(&mut self, span: Millis) {
        let end = self.now + span;
        while self.now < end {
            self.now += TICK_MS;
            for node in self.nodes.values_mut() {
                if let Some(store) = &mut node.store {
                    store.tick(self.now);
                }
            }
            self.settle();
        }
    }

    /// Who holds the lease of a range; no two may.
    pub fn holder(&self, range: RangeId) -> Option<NodeId> {
        let holds = |node: &Node| {
            let store = node.store.as_ref();
            store.is_some_and(|store| matches!(store.lease(range, self.now), LeaseView::Held { .. }))
        };
        let holders: Vec<NodeId> =
            self.nodes.iter().filter(|(_, node)| holds(node)).map(|(id, _)| *id).collect();
        assert!(holders.len() < 2, "nodes {holders:?} hold the lease of range {range}");
        holders.first().copied()
    }

    /// Uses a range at a node until somebody holds its lease.
    pub fn lead(&mut self, id: NodeId, range: RangeId) -> NodeId {
        for _ in 0..100 {
            if let Some(holder) = self.holder(range) {
                return holder;
            }
            let now = self.now;
            assert!(self.store(id).wake(now, range).expect("wake"), "no replica");
            self.run(TICK_MS);
        }
        panic!("nobody leads range {range}");
    }

    /// Proposes at the leaseholder a put, a change of ranges, or both.
    pub fn propose(
        &mut self,
        range: RangeId,
        put: Option<&str>,
        change: Option<RangeChange>,
    ) -> replication::ReplicationResult<u64> {
        let mut batch = WriteBatch::new();
        if let Some(key) = put {
            batch.put(Space::Data, key.as_bytes(), key.as_bytes());
        }
        self.propose_batch(range, batch, change)
    }

    /// Proposes effects at the leaseholder.
    pub fn propose_batch(
        &mut self,
        range: RangeId,
        batch: WriteBatch,
        change: Option<RangeChange>,
    ) -> replication::ReplicationResult<u64> {
        let holder = self.holder(range).expect("a leaseholder");
        let (now, id) = (self.now, self.next_id);
        self.next_id += 1;
        let LeaseView::Held { sequence, .. } = self.store(holder).lease(range, now) else {
            panic!("no lease")
        };
        let closed = Timestamp::new(id, 0);
        self.store(holder)
            .propose(now, Proposal { id, range, lease_sequence: sequence, batch, change, closed })?;
        Ok(id)
    }

    pub fn raise_ceiling(&mut self, range: RangeId, ceiling: Timestamp) {
        let holder = self.holder(range).expect("a leaseholder");
        let now = self.now;
        self.store(holder).extend_ceiling(now, range, ceiling).expect("raise");
        self.settle();
    }

    pub fn has_key(&self, id: NodeId, key: &str) -> bool {
        self.nodes[&id].engine.get(Space::Data, key.as_bytes()).expect("get").is_some()
    }

    pub fn events(&self, id: NodeId, range: RangeId) -> Vec<String> {
        let events = self.nodes[&id].events.iter();
        let texts = events.map(|event| format!("{event:?}"));
        let of_range = texts.filter(|text| {
            text.contains(&format!("range: {range},")) || text.contains(&format!("range: {range} "))
        });
        of_range.map(|text| text.split(' ').next().unwrap_or_default().to_owned()).collect()
    }

    pub fn is_awake(&mut self, id: NodeId, range: RangeId) -> bool {
        self.store(id).is_awake(range)
    }
}
