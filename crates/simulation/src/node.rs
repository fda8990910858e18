//! A node: what survives a crash, and the process that does not.

use crate::clock::{Micros, NodeClock};
use crate::fault::Loss;
use crate::planted::Planted;
use crate::register::{Answer, RANGE, Registers, Request};
use replication::{Envelope, LeaseView, MemberChange, NodeId, Store};
use std::collections::VecDeque;
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
    /// A command that was evaluated a while ago is to be proposed.
    Submit(u64),
    /// Hand over to another leader.
    Transfer(NodeId),
    /// Change the members.
    Change(MemberChange),
}

/// A running process of a node.
pub struct Process {
    /// The store.
    pub store: Store<Planted>,
    /// The service on it.
    pub registers: Registers,
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
}

impl Process {
    /// A process that has just opened its store.
    pub fn new(store: Store<Planted>) -> Self {
        Process {
            store,
            registers: Registers::default(),
            inbox: VecDeque::new(),
            busy: false,
            again: true,
            paused_until: 0,
            outbox: Vec::new(),
            replies: Vec::new(),
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
    /// Whether a snapshot had begun to arrive and not ended when last seen.
    pub incomplete: bool,
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
            incomplete: false,
            doomed: None,
            fused: None,
        }
    }

    /// Whether the node would serve at this moment, and until when by its own clock.
    pub fn holds_lease(&self, now: Micros) -> Option<(u64, u64)> {
        let process = self.process.as_ref()?;
        match process.store.lease(RANGE, self.clock.millis(now)) {
            LeaseView::Held { sequence, until, .. } => Some((sequence, until)),
            LeaseView::Elsewhere { .. } => None,
        }
    }

    /// The term in which the node leads, if it does.
    pub fn leads(&self) -> Option<u64> {
        let status = self.process.as_ref()?.store.status(RANGE)?;
        status.is_leader.then_some(status.term)
    }
}
