//! The service on top: registers, read and written at the leaseholder.
//!
//! It stands for a KV node's evaluation and keeps to its rules: latches order what concerns one key; a
//! command is evaluated against the engine under a lease and proposed with the lease's sequence number;
//! timestamps lie between the floor and the ceiling of the lease. It has no other protection: whether
//! the engine may be read is for `lease` alone to say.

use crate::layout;
use crate::network::happens;
use crate::planted::Planted;
use kv_api::Timestamp;
use kv_api::timestamp::HybridClock;
use rand::Rng;
use rand::rngs::SmallRng;
use replication::{Event, LeaseView, Millis, NodeId, Proposal, RangeId, Store};
use std::collections::{BTreeMap, VecDeque};
use storage::{MemoryEngine, StorageError};

/// The range of the registers.
pub const RANGE: RangeId = 1;
/// How far ahead of the clock a ceiling is asked for, in nanoseconds.
const CEILING_AHEAD_NS: u64 = 3_000_000_000;
/// How near the ceiling a higher one is asked for.
const CEILING_NEAR_NS: u64 = 1_000_000_000;
/// After how long it is asked for again.
const CEILING_PATIENCE_MS: Millis = 1_000;

/// Names an operation: its place in the history.
pub type OpId = usize;
/// Names a client.
pub type ClientId = usize;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads the register.
    Read,
    /// Sets it.
    Write(u64),
}

/// What a client asks of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub op: OpId,
    /// Whose it is.
    pub client: ClientId,
    /// Which register.
    pub register: u8,
    /// What to do.
    pub action: Action,
}

/// What a node answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The value read.
    Read(u64),
    /// The write is durable.
    Written,
    /// Ask elsewhere; nothing happened and nothing will.
    NotLeaseholder(Option<NodeId>),
    /// Nothing happened and nothing will.
    Failed,
    /// Perhaps.
    Unknown,
}

/// What the world must know of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// An answer to a client.
    Reply(Request, Answer),
    /// A timestamp was served.
    Served {
        /// Under this lease.
        sequence: u64,
        /// The timestamp.
        timestamp: Timestamp,
    },
    /// A write took effect, as this version of its register.
    Applied(OpId, u8, u64),
    /// A write certainly has no effect.
    Void(OpId),
    /// A proposal was rejected when it was to be applied.
    Rejected,
    /// The store did not take a proposal.
    Refused,
    /// A lease began.
    Leased(u64),
    /// Call [`Registers::submit`] for this proposal after this many microseconds.
    SubmitLater(u64, u64),
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
    /// Chance.
    pub rng: &'a mut SmallRng,
    /// What came of it.
    pub effects: &'a mut Vec<Effect>,
}

/// A lease as its holder learnt of it.
#[derive(Clone, Copy, Debug)]
struct Held {
    sequence: u64,
    floor: Timestamp,
}

/// A write that was evaluated.
#[derive(Debug)]
struct Write {
    request: Request,
    version: u64,
    /// Not proposed yet.
    unsubmitted: Option<Proposal>,
    /// Whether the client was told already.
    answered: bool,
}

/// The registers of one node's process.
#[derive(Default)]
pub struct Registers {
    clock: HybridClock,
    held: Option<Held>,
    /// By key, who waits for the write in flight.
    latches: BTreeMap<u8, VecDeque<Request>>,
    /// By proposal, writes whose fate is not known.
    writes: BTreeMap<u64, Write>,
    /// Who waits for a higher ceiling.
    parked: Vec<Request>,
    /// When a higher ceiling was asked for.
    asked_at: Option<Millis>,
    proposals: u64,
}

impl Registers {
    /// A client asks for something.
    pub fn request(&mut self, turn: &mut Turn<'_>, request: Request) {
        let (sequence, ceiling) = match turn.store.lease(RANGE, turn.now) {
            LeaseView::Held { sequence, ceiling, .. } => (sequence, ceiling),
            LeaseView::Elsewhere { leader } => return reply(turn, request, Answer::NotLeaseholder(leader)),
        };
        let floor = match self.held {
            Some(held) if held.sequence == sequence => held.floor,
            _ => turn.store.status(RANGE).map_or(Timestamp::MIN, |status| status.lease.floor),
        };
        if let Some(waiting) = self.latches.get_mut(&request.register) {
            return waiting.push_back(request);
        }
        let Some(timestamp) = self.timestamp(turn, floor, ceiling) else { return self.parked.push(request) };
        let stored = match layout::read(turn.engine, request.register) {
            Ok(stored) => stored,
            Err(StorageError::Corruption(message)) => {
                return turn.effects.push(Effect::Wrong("contents", message));
            }
            Err(_) => return reply(turn, request, Answer::Failed),
        };
        if stored.timestamp >= timestamp {
            let message = format!("{request:?} at {timestamp} found {stored:?}");
            turn.effects.push(Effect::Wrong("timestamps of versions", message));
        }
        turn.effects.push(Effect::Served { sequence, timestamp });
        match request.action {
            Action::Read => reply(turn, request, Answer::Read(stored.value)),
            Action::Write(value) => {
                let batch = layout::write(request.register, &stored, timestamp, value);
                self.evaluated(turn, request, sequence, stored.version + 1, batch);
            }
        }
    }

    /// A timestamp under a lease, if there is one below the ceiling.
    fn timestamp(&mut self, turn: &mut Turn<'_>, floor: Timestamp, ceiling: Timestamp) -> Option<Timestamp> {
        self.clock.observe(floor);
        let latest = self.clock.latest();
        let near = ceiling.wall_ns.saturating_sub(CEILING_NEAR_NS) <= turn.wall_ns.max(latest.wall_ns);
        let asked = self.asked_at.is_some_and(|at| turn.now.saturating_sub(at) < CEILING_PATIENCE_MS);
        if near && !asked {
            let higher = Timestamp::new(turn.wall_ns.max(latest.wall_ns).saturating_add(CEILING_AHEAD_NS), 0);
            if turn.store.extend_ceiling(turn.now, RANGE, higher).is_ok() {
                self.asked_at = Some(turn.now);
            }
        }
        let next =
            if turn.wall_ns > latest.wall_ns { Timestamp::new(turn.wall_ns, 0) } else { latest.next() };
        (next < ceiling).then(|| self.clock.now(turn.wall_ns))
    }

    fn evaluated(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request,
        sequence: u64,
        version: u64,
        batch: storage::WriteBatch,
    ) {
        self.proposals += 1;
        let id = self.proposals;
        let proposal = Proposal { id, range: RANGE, lease_sequence: sequence, batch };
        self.latches.insert(request.register, VecDeque::new());
        let write = Write { request, version, unsubmitted: Some(proposal), answered: false };
        self.writes.insert(id, write);
        if turn.slow_evaluation > 0 && happens(turn.rng, 300) {
            let delay = turn.rng.random_range(0..turn.slow_evaluation);
            turn.effects.push(Effect::SubmitLater(id, delay));
        } else {
            self.submit(turn, id);
        }
    }

    /// Proposes a write that was evaluated.
    pub fn submit(&mut self, turn: &mut Turn<'_>, id: u64) {
        let Some(proposal) = self.writes.get_mut(&id).and_then(|write| write.unsubmitted.take()) else {
            return;
        };
        if turn.store.propose(turn.now, proposal).is_err() {
            turn.effects.push(Effect::Refused);
            self.settle(turn, id, Answer::Failed);
        }
    }

    /// The fate of a write is known.
    fn settle(&mut self, turn: &mut Turn<'_>, id: u64, answer: Answer) {
        let Some(write) = self.writes.remove(&id) else { return };
        let request = write.request;
        turn.effects.push(match answer {
            Answer::Written => Effect::Applied(request.op, request.register, write.version),
            _ => Effect::Void(request.op),
        });
        if write.answered {
            return;
        }
        reply(turn, request, answer);
        for waiting in self.latches.remove(&request.register).unwrap_or_default() {
            self.request(turn, waiting);
        }
    }

    /// Something happened in the store.
    pub fn event(&mut self, turn: &mut Turn<'_>, event: &Event) {
        match event {
            Event::Applied { id, .. } => self.settle(turn, *id, Answer::Written),
            Event::Rejected { id, .. } => {
                turn.effects.push(Effect::Rejected);
                self.settle(turn, *id, Answer::Failed);
            }
            Event::LeaseAcquired { sequence, floor, .. } => {
                self.lose(turn);
                self.held = Some(Held { sequence: *sequence, floor: *floor });
                turn.effects.push(Effect::Leased(*sequence));
            }
            Event::LeaseLost { .. } | Event::Removed { .. } => self.lose(turn),
            Event::CeilingRaised { .. } => {
                self.asked_at = None;
                self.retry_parked(turn);
            }
            Event::MembersChanged { .. } => {}
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, turn: &mut Turn<'_>) {
        self.retry_parked(turn);
    }

    fn retry_parked(&mut self, turn: &mut Turn<'_>) {
        for request in std::mem::take(&mut self.parked) {
            self.request(turn, request);
        }
    }

    /// The lease is gone: nobody is kept waiting for what may take long. Writes may still have an effect.
    fn lose(&mut self, turn: &mut Turn<'_>) {
        self.held = None;
        self.asked_at = None;
        for write in self.writes.values_mut().filter(|write| !write.answered) {
            write.answered = true;
            reply(turn, write.request, Answer::Unknown);
        }
        let waiting = std::mem::take(&mut self.latches).into_values().flatten();
        for request in waiting.chain(std::mem::take(&mut self.parked)) {
            reply(turn, request, Answer::NotLeaseholder(None));
        }
    }
}

fn reply(turn: &mut Turn<'_>, request: Request, answer: Answer) {
    turn.effects.push(Effect::Reply(request, answer));
}
