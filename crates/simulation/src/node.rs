//! A node: what survives a crash, and the process that does not.

use crate::clock::{Micros, NodeClock};
use crate::fault::Loss;
use crate::planted::Planted;
use crate::register::{Answer, Request};
use crate::service::{Service, Wish};
use replication::{Envelope, LeaseView, MemberChange, NodeId, RangeId, Store};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use storage::MemoryEngine;

/// Something for a process to do.
#[derive(Debug)]
pub enum Input {
    /// A message from a peer.
    Envelope(Box<Envelope>),
    /// Time has passed.
    Tick,
    /// A client asks for something.
    Request(Request),
    /// A command of a range that was evaluated a while ago is to be proposed.
    Submit(RangeId, u64),
    /// Hand over to another leader.
    Transfer(RangeId, NodeId),
    /// Change the members.
    Members(RangeId, MemberChange),
    /// Change the ranges.
    Change(RangeId, Wish),
    /// The directory says that a range is gone for good.
    Destroy(RangeId),
    /// Somebody looks after a range.
    Wake(RangeId),
}

/// A running process of a node.
pub struct Process {
    /// The store.
    pub store: Store<Planted>,
    /// The service on it.
    pub service: Service,
    /// What is still to be done.
    pub inbox: VecDeque<Input>,
    /// Whether it waits for its disk.
    pub busy: bool,
    /// Whether there may be more for the store to do.
    pub again: bool,
    /// Before this it does nothing.
    pub paused_until: Micros,
    /// What is sent once the disk is done.
    pub outbox: Vec<Envelope>,
    /// What is answered then.
    pub replies: Vec<(Request, Answer)>,
    /// What is destroyed for good then.
    pub destroyed: Vec<RangeId>,
}

impl Process {
    /// A process that has just opened its store.
    pub fn new(store: Store<Planted>) -> Self {
        Process {
            store,
            service: Service::default(),
            inbox: VecDeque::new(),
            busy: false,
            again: true,
            paused_until: 0,
            outbox: Vec::new(),
            replies: Vec::new(),
            destroyed: Vec::new(),
        }
    }
}

/// A node.
pub struct Node {
    /// Its name.
    pub id: NodeId,
    /// Its disk.
    pub engine: Arc<MemoryEngine>,
    /// Its clocks.
    pub clock: NodeClock,
    /// How many processes it had.
    pub epoch: u64,
    /// The process, unless it is down.
    pub process: Option<Process>,
    /// Until when its disk is slow, and how long a sync takes then.
    pub slow: (Micros, Micros),
    /// Until when its disk is full.
    pub full_until: Micros,
    /// The ranges of which a snapshot had begun to arrive and not ended when last seen.
    pub incomplete: BTreeSet<RangeId>,
    /// The ranges that it was told are gone, and will never have again.
    pub destroyed: BTreeSet<RangeId>,
    /// It crashes after it has next persisted something.
    pub doomed: Option<(Loss, Micros)>,
    /// It crashes when a write fails.
    pub fused: Option<(Loss, Micros)>,
}

impl Node {
    /// A node that is down and has nothing.
    pub fn new(id: NodeId, clock: NodeClock) -> Self {
        Node {
            id,
            engine: Arc::new(MemoryEngine::new()),
            clock,
            epoch: 0,
            process: None,
            slow: (0, 0),
            full_until: 0,
            incomplete: BTreeSet::new(),
            destroyed: BTreeSet::new(),
            doomed: None,
            fused: None,
        }
    }

    /// The lease under which the node would serve a range at this moment.
    pub fn holds_lease(&self, range: RangeId, now: Micros) -> Option<u64> {
        let process = self.process.as_ref()?;
        match process.store.lease(range, self.clock.millis(now)) {
            LeaseView::Held { sequence, .. } => Some(sequence),
            LeaseView::Elsewhere { .. } => None,
        }
    }

    /// The term in which the node leads a range, if it does.
    pub fn leads(&self, range: RangeId) -> Option<u64> {
        let status = self.process.as_ref()?.store.status(range)?;
        status.is_leader.then_some(status.term)
    }
}
