//! The service on top: registers, read and written at the leaseholder of their range, and read at followers.
//!
//! It stands for a KV node's evaluation and keeps to its rules: latches order what concerns one key; a
//! command is evaluated against the engine under a lease and proposed with the lease's sequence number;
//! timestamps lie between the floor and the ceiling of the lease; keys are given up only when nothing
//! concerning them is under way, and not served until that has happened or failed. It has no other
//! protection: whether the engine may be read is for `lease`, `closed` and `applied` alone to say.
//!
//! * here: what the leaseholder serves.
//! * `change`: splits, merges, and ranges that come to be.
//! * `promise`: what the leaseholder promises to followers.
//! * `follow`: what followers serve.

mod change;
mod follow;
mod promise;

pub use change::Wish;

use crate::layout::{self, Register};
use crate::network::happens;
use crate::planted::ServiceBug;
use crate::register::{Action, Answer, Effect, Request, Turn, Version};
use bytes::Bytes;
use change::Change;
use follow::Follower;
use kv_api::Timestamp;
use kv_api::timestamp::HybridClock;
use promise::{Promise, Word};
use rand::Rng;
use replication::{Event, LeaseView, Millis, NodeId, Proposal, RangeId};
use std::collections::{BTreeMap, VecDeque};
use storage::StorageError;

/// How far ahead of the clock a ceiling is asked for, in nanoseconds.
const CEILING_AHEAD_NS: u64 = 3_000_000_000;
/// How near the ceiling a higher one is asked for.
const CEILING_NEAR_NS: u64 = 1_000_000_000;
/// After how long it is asked for again.
const CEILING_PATIENCE_MS: Millis = 1_000;
/// How far behind the oldest write under way timestamps are closed, at most.
const CLOSED_LAG_NS: u64 = 1_000_000_000;

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
    version: Version,
    /// Not proposed yet.
    unsubmitted: Option<Proposal>,
    /// Whether the client was told already, because the lease was lost.
    answered: bool,
}

/// A range, as its leaseholder serves it.
#[derive(Default)]
struct Ranged {
    held: Option<Held>,
    /// By register, who waits for the write in flight.
    latches: BTreeMap<Register, VecDeque<Request>>,
    /// By proposal, writes whose fate is not known.
    writes: BTreeMap<u64, Write>,
    /// Who waits for a higher ceiling.
    parked: Vec<Request>,
    /// When a higher ceiling was asked for.
    asked_at: Option<Millis>,
    /// The change of the range that is wanted or under way.
    change: Option<Change>,
    /// Who waits for its end.
    behind_change: VecDeque<Request>,
    /// By node that asked, promises that wait for writes.
    promises: BTreeMap<NodeId, Promise>,
}

impl Ranged {
    /// The writes under way under the present lease.
    fn under_way(&self) -> impl Iterator<Item = (u64, &Write)> {
        self.writes.iter().filter(|(_, write)| !write.answered).map(|(id, write)| (*id, write))
    }
}

/// What one node's process serves.
#[derive(Default)]
pub struct Service {
    clock: HybridClock,
    ranges: BTreeMap<RangeId, Ranged>,
    follower: Follower,
    proposals: u64,
}

/// The lease under which something is served.
#[derive(Clone, Copy)]
struct Under {
    sequence: u64,
    floor: Timestamp,
    ceiling: Timestamp,
}

impl Service {
    /// A client asks for something.
    pub fn request(&mut self, turn: &mut Turn<'_>, request: Request) {
        let range = request.range;
        if !turn.wake(range) || !turn.covers(range, request.register) {
            return turn.reply(request, Answer::NotHere);
        }
        let under = match request.action {
            Action::Past => return follow::past(turn, request),
            _ => self.under(turn, range),
        };
        match (under, request.action) {
            (Ok(under), _) => self.serve(turn, request, under),
            (Err(Some(leader)), Action::Follow) => self.follower.ask(turn, leader, request),
            (Err(leader), _) => turn.reply(request, Answer::NotLeaseholder(leader)),
        }
    }

    /// The lease of a range, or who leads it.
    fn under(&mut self, turn: &Turn<'_>, range: RangeId) -> Result<Under, Option<NodeId>> {
        let (sequence, ceiling) = match turn.store.lease(range, turn.now) {
            LeaseView::Held { sequence, ceiling, .. } => (sequence, ceiling),
            LeaseView::Elsewhere { leader } => return Err(leader),
        };
        let floor = match self.ranges.get(&range).and_then(|ranged| ranged.held) {
            Some(held) if held.sequence == sequence => held.floor,
            _ => turn.store.status(range).map_or(Timestamp::MIN, |status| status.lease.floor),
        };
        Ok(Under { sequence, floor, ceiling })
    }

    fn serve(&mut self, turn: &mut Turn<'_>, request: Request, under: Under) {
        let range = request.range;
        if turn.is_frozen(range) {
            return turn.reply(request, Answer::NotLeaseholder(None));
        }
        let ranged = self.ranges.entry(range).or_default();
        if ranged.gives_up_keys(turn.planted) {
            return ranged.behind_change.push_back(request);
        }
        if let Some(waiting) = ranged.latches.get_mut(&request.register) {
            return waiting.push_back(request);
        }
        let Some(timestamp) = self.timestamp(turn, range, under) else {
            return self.ranges.entry(range).or_default().parked.push(request);
        };
        let stored = match layout::read(turn.engine, request.register) {
            Ok(stored) => stored,
            Err(StorageError::Corruption(message)) => {
                return turn.effects.push(Effect::Wrong("contents", message));
            }
            Err(_) => return turn.reply(request, Answer::Failed),
        };
        if stored.timestamp >= timestamp {
            let message = format!("{request:?} at {timestamp} found {stored:?}");
            turn.effects.push(Effect::Wrong("timestamps of versions", message));
        }
        let sequence = under.sequence;
        turn.served(range, sequence, timestamp, Some(request.register));
        let Action::Write(value) = request.action else {
            return turn.reply(request, Answer::Read(timestamp, stored.value));
        };
        let version = Version {
            register: request.register,
            number: stored.version + 1,
            timestamp,
            value,
            over: stored.value,
        };
        let batch = layout::write(request.register, &stored, timestamp, value);
        self.evaluated(turn, request, sequence, version, batch);
    }

    /// A timestamp under a lease, if there is one below the ceiling.
    fn timestamp(&mut self, turn: &mut Turn<'_>, range: RangeId, under: Under) -> Option<Timestamp> {
        self.clock.observe(under.floor);
        let latest = self.clock.latest();
        let ranged = self.ranges.entry(range).or_default();
        let near = under.ceiling.wall_ns.saturating_sub(CEILING_NEAR_NS) <= turn.wall_ns.max(latest.wall_ns);
        let asked = ranged.asked_at.is_some_and(|at| turn.now.saturating_sub(at) < CEILING_PATIENCE_MS);
        if near && !asked {
            let higher = Timestamp::new(turn.wall_ns.max(latest.wall_ns).saturating_add(CEILING_AHEAD_NS), 0);
            if turn.store.extend_ceiling(turn.now, range, higher).is_ok() {
                ranged.asked_at = Some(turn.now);
            }
        }
        let next =
            if turn.wall_ns > latest.wall_ns { Timestamp::new(turn.wall_ns, 0) } else { latest.next() };
        (next < under.ceiling).then(|| self.clock.now(turn.wall_ns))
    }

    fn evaluated(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request,
        sequence: u64,
        version: Version,
        batch: storage::WriteBatch,
    ) {
        turn.effects.push(Effect::Evaluated(version));
        self.proposals += 1;
        let (id, range) = (self.proposals, request.range);
        let ranged = self.ranges.entry(range).or_default();
        let closed = closed(turn, ranged, version.timestamp);
        let proposal = Proposal { id, range, lease_sequence: sequence, batch, change: None, closed };
        ranged.latches.insert(request.register, VecDeque::new());
        ranged.writes.insert(id, Write { request, version, unsubmitted: Some(proposal), answered: false });
        if turn.slow_evaluation > 0 && happens(turn.rng, 300) {
            let delay = turn.rng.random_range(0..turn.slow_evaluation);
            turn.effects.push(Effect::SubmitLater(range, id, delay));
        } else {
            self.submit(turn, range, id);
        }
    }

    /// Proposes a write that was evaluated.
    pub fn submit(&mut self, turn: &mut Turn<'_>, range: RangeId, id: u64) {
        let write = self.ranges.get_mut(&range).and_then(|ranged| ranged.writes.get_mut(&id));
        let Some(proposal) = write.and_then(|write| write.unsubmitted.take()) else { return };
        if turn.store.propose(turn.now, proposal).is_err() {
            turn.effects.push(Effect::Refused);
            self.settle(turn, range, id, Answer::Failed);
        }
    }

    /// The fate of a proposal is known.
    fn settle(&mut self, turn: &mut Turn<'_>, range: RangeId, id: u64, answer: Answer) {
        let Some(ranged) = self.ranges.get_mut(&range) else { return };
        let Some(write) = ranged.writes.remove(&id) else { return self.change_settled(turn, range, id) };
        let request = write.request;
        turn.effects.push(match answer {
            Answer::Written => Effect::Applied(request.op, write.version),
            _ => Effect::Void(request.op),
        });
        if write.answered {
            return;
        }
        turn.reply(request, answer);
        promise::keep(turn, range, &mut ranged.promises, id);
        for waiting in ranged.latches.remove(&request.register).unwrap_or_default() {
            self.request(turn, waiting);
        }
        self.change_now(turn, range);
    }

    /// A message of the service arrived.
    pub fn heard(&mut self, turn: &mut Turn<'_>, from: NodeId, bytes: &Bytes) {
        match promise::decode(bytes) {
            Some(Word { range, nonce, promised: None }) => self.promise(turn, from, range, nonce),
            Some(Word { range, nonce, promised: Some(promised) }) => {
                self.follower.promised(turn, range, nonce, promised);
            }
            None => turn.effects.push(Effect::Wrong("messages decode", format!("{bytes:?} from {from}"))),
        }
    }

    /// Something happened in the store.
    pub fn event(&mut self, turn: &mut Turn<'_>, event: &Event) {
        match event {
            Event::Applied { range, id, .. } => self.settle(turn, *range, *id, Answer::Written),
            Event::Rejected { range, id } => {
                turn.effects.push(Effect::Rejected);
                self.settle(turn, *range, *id, Answer::Failed);
            }
            Event::LeaseAcquired { range, sequence, floor, .. } => {
                self.lose(turn, *range);
                self.ranges.entry(*range).or_default().held =
                    Some(Held { sequence: *sequence, floor: *floor });
                turn.effects.push(Effect::Leased(*range, *sequence));
            }
            Event::LeaseLost { range } => self.lose(turn, *range),
            Event::Removed { range } | Event::Slept { range } => {
                self.lose(turn, *range);
                self.follower.forget(turn, *range);
            }
            Event::CeilingRaised { range, .. } => {
                if let Some(ranged) = self.ranges.get_mut(range) {
                    ranged.asked_at = None;
                }
                self.retry_parked(turn, *range);
            }
            Event::Absorbed { served, .. } => self.clock.observe(*served),
            Event::MembersChanged { .. }
            | Event::Created { .. }
            | Event::DescriptorChanged { .. }
            | Event::Frozen { .. }
            | Event::Thawed { .. } => {}
        }
    }

    /// The store has applied what there was.
    pub fn applied(&mut self, turn: &mut Turn<'_>) {
        self.follower.look(turn);
    }

    /// Time has passed.
    pub fn tick(&mut self, turn: &mut Turn<'_>) {
        self.follower.tick(turn);
        for range in self.ranges.keys().copied().collect::<Vec<_>>() {
            self.retry_parked(turn, range);
        }
    }

    fn retry_parked(&mut self, turn: &mut Turn<'_>, range: RangeId) {
        let parked = self.ranges.get_mut(&range).map(|ranged| std::mem::take(&mut ranged.parked));
        for request in parked.unwrap_or_default() {
            self.request(turn, request);
        }
    }

    /// The lease is gone: nobody is kept waiting for what may take long. Writes may still have an effect.
    fn lose(&mut self, turn: &mut Turn<'_>, range: RangeId) {
        let Some(ranged) = self.ranges.get_mut(&range) else { return };
        ranged.held = None;
        ranged.asked_at = None;
        ranged.change = None;
        ranged.promises.clear();
        for write in ranged.writes.values_mut().filter(|write| !write.answered) {
            write.answered = true;
            turn.effects.push(Effect::Reply(write.request, Answer::Unknown));
        }
        let waiting = std::mem::take(&mut ranged.latches).into_values().flatten();
        let waiting = waiting.chain(std::mem::take(&mut ranged.parked));
        for request in waiting.chain(std::mem::take(&mut ranged.behind_change)) {
            turn.effects.push(Effect::Reply(request, Answer::NotLeaseholder(None)));
        }
    }
}

/// A timestamp that no command writes at or below after the one that writes at `own`: one below all writes
/// under way.
fn closed(turn: &mut Turn<'_>, ranged: &Ranged, own: Timestamp) -> Timestamp {
    let mut oldest = ranged.under_way().map(|(_, write)| write.version.timestamp).fold(own, Timestamp::min);
    if turn.planted.in_service(ServiceBug::ClosedOverWrites) {
        oldest = own;
    }
    let lag = if happens(turn.rng, 500) { 0 } else { turn.rng.random_range(0..CLOSED_LAG_NS) };
    match oldest.logical.checked_sub(1) {
        Some(logical) if lag == 0 => Timestamp::new(oldest.wall_ns, logical),
        _ => Timestamp::new(oldest.wall_ns.saturating_sub(1 + lag), u32::MAX),
    }
}

impl Turn<'_> {
    /// Loads the replica of a range if it is not in memory. False if there is none.
    fn wake(&mut self, range: RangeId) -> bool {
        let asleep = !self.store.is_awake(range);
        let there = match self.store.wake(self.now, range) {
            Ok(there) => there,
            Err(error) => {
                let message = format!("range {range} does not wake: {error}");
                self.effects.push(Effect::Wrong("store works", message));
                false
            }
        };
        if there && asleep {
            self.effects.push(Effect::Woken);
        }
        there
    }

    /// Whether a range must not be served, because it is about to be absorbed.
    fn is_frozen(&self, range: RangeId) -> bool {
        self.store.frozen(range).is_some() && !self.planted.in_service(ServiceBug::FrozenServes)
    }

    /// Notes that a timestamp was served under a lease; for no register in particular, it holds for all.
    fn served(&mut self, range: RangeId, sequence: u64, timestamp: Timestamp, register: Option<Register>) {
        let generation = self.store.descriptor(range).map_or(0, |descriptor| descriptor.generation);
        self.effects.push(Effect::Served { range, generation, sequence, timestamp, register });
    }

    /// Whether a register lies in a range, as far as this node knows.
    fn covers(&self, range: RangeId, register: Register) -> bool {
        let key = layout::key(register);
        let descriptor = self.store.descriptor(range);
        descriptor.is_some_and(|descriptor| descriptor.start <= key && key < descriptor.end)
    }
}
