//! What clients ask of nodes, what nodes answer, and what the world must know of.

use crate::layout::Register;
use crate::planted::Planted;
use kv_api::Timestamp;
use rand::rngs::SmallRng;
use replication::{Millis, NodeId, RangeId, Store};
use storage::MemoryEngine;

/// The range that is there at first.
pub const FIRST_RANGE: RangeId = 1;

/// Names an operation: its place in the history.
pub type OpId = usize;
/// Names a client.
pub type ClientId = usize;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads the register at the leaseholder.
    Read,
    /// Sets it.
    Write(u64),
    /// Reads it at any replica, as it is now: the replica asks the leaseholder for a promise.
    Follow,
    /// Reads it at any replica, as it was at a closed timestamp.
    Past,
}

/// What a client asks of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub op: OpId,
    /// Whose it is.
    pub client: ClientId,
    /// The range that the client takes for the one with the register.
    pub range: RangeId,
    /// Which register.
    pub register: Register,
    /// What to do.
    pub action: Action,
}

/// What a node answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The value that was read, and at which timestamp.
    Read(Timestamp, u64),
    /// The write is durable.
    Written,
    /// Ask elsewhere; nothing happened and nothing will.
    NotLeaseholder(Option<NodeId>),
    /// There is no such range here, or the register is not in it; nothing happened and nothing will.
    NotHere,
    /// Nothing happened and nothing will.
    Failed,
    /// Perhaps.
    Unknown,
}

/// A write that took effect, or may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Which register.
    pub register: Register,
    /// Which version of it.
    pub number: u64,
    /// When.
    pub timestamp: Timestamp,
    /// What it holds.
    pub value: u64,
    /// What the version before holds.
    pub over: u64,
}

/// What the world must know of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// An answer to a client.
    Reply(Request, Answer),
    /// A timestamp was served.
    Served {
        /// In this range.
        range: RangeId,
        /// As its descriptor was.
        generation: u64,
        /// Under this lease.
        sequence: u64,
        /// The timestamp.
        timestamp: Timestamp,
        /// For this register; none if it holds for all of the range.
        register: Option<Register>,
    },
    /// A write was evaluated.
    Evaluated(Version),
    /// A write took effect.
    Applied(OpId, Version),
    /// A write certainly has no effect.
    Void(OpId),
    /// A proposal was rejected when it was to be applied.
    Rejected,
    /// The store did not take a proposal.
    Refused,
    /// A lease began.
    Leased(RangeId, u64),
    /// Call [`crate::service::Service::submit`] for this proposal of the range after this many microseconds.
    SubmitLater(RangeId, u64, u64),
    /// A follower had to wait until it had applied what was promised.
    Waited,
    /// A replica that had left memory was loaded.
    Woken,
    /// Something is wrong.
    Wrong(&'static str, String),
}

/// What a call of the service has to work with.
pub struct Turn<'a> {
    /// The node's store.
    pub store: &'a mut Store<Planted>,
    /// The node's engine.
    pub engine: &'a MemoryEngine,
    /// The node's monotonic clock.
    pub now: Millis,
    /// The node's wall clock.
    pub wall_ns: u64,
    /// How long a command may take from evaluation to proposal, in microseconds.
    pub slow_evaluation: u64,
    /// What is left out.
    pub planted: Planted,
    /// Chance.
    pub rng: &'a mut SmallRng,
    /// What came of it.
    pub effects: &'a mut Vec<Effect>,
}

impl Turn<'_> {
    /// Answers a client.
    pub fn reply(&mut self, request: Request, answer: Answer) {
        self.effects.push(Effect::Reply(request, answer));
    }
}
