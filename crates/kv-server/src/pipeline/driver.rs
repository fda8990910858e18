//! The thread that owns the node's replicas.

mod change;
mod merge;
mod split;

pub use change::Change;
pub use merge::{Absorption, FreezeFor};
pub use split::SplitAt;

use super::recovery::Recovery;
use super::{
    Asked, CEILING_AHEAD_NS, CEILING_SLACK_NS, Held, Hook, Queued, ROOT, RangeState, Shared, Standing, State,
    Woken,
};
use crate::clock_check::ClockCheck;
use crate::command::CommandError;
use crate::environment::Environment;
use crate::faults::Bug;
use crate::metrics::metrics;
use crate::span_config;
use bytes::Bytes;
use change::Changing;
use hashbrown::HashSet;
use kv_api::{KvError, KvErrorKind, Span, Timestamp};
use parking_lot::Mutex;
use replication::command::Freeze;
use replication::config::TICK_MS;
use replication::liveness::SUPPORT_MS;
use replication::message::{HeartbeatAck, Members, Payload};
use replication::{
    Envelope, Event, GroupStatus, LeaseView, Millis, NodeId, Proposal, RangeDescriptor, RangeId,
    ReplicationError, Sound, Store,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use storage::{Engine, Space, StorageError, WriteBatch};
use tokio::sync::oneshot;

/// Most commands in one group.
const MAX_GROUP_LEN: usize = 1024;
/// Most bytes of effects in one group.
const MAX_GROUP_BYTES: usize = 4 << 20;
/// Time between ticks of a node that is alone and has nobody to hear from.
const LONE_TICK_MS: Millis = 1000;
/// Most turns before the thread takes over; to settle what a large transaction left may take longer.
const MAX_FIRST_TURNS: usize = 1000;
/// How often a full disk is tried again.
const DISK_FULL_TICK_MS: Millis = 200;

/// Carries messages to other nodes. They may get lost.
pub trait Transport: Send + Sync {
    /// Sends a message; does not wait.
    fn send(&self, envelope: Envelope);
}

/// How a range is doing, as this node sees it.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its number.
    pub range: RangeId,
    /// Whether it is frozen, and for which merge.
    pub frozen: Option<Freeze>,
    /// Its replica here.
    pub group: GroupStatus,
    /// Its keys and configuration, once they have arrived.
    pub descriptor: Option<RangeDescriptor>,
}

/// How the other nodes are doing, as this one sees them.
#[derive(Clone, Debug, Default)]
pub struct NodesStatus {
    /// For each other node that was ever heard, how long ago that was, in milliseconds.
    pub silent: BTreeMap<NodeId, Millis>,
    /// What they said of themselves last.
    pub notes: BTreeMap<NodeId, Bytes>,
    /// Replicas here, those of them that are awake, and leases held.
    pub counts: (usize, usize, usize),
}

/// What a node looks at regularly, as of one moment.
#[derive(Debug)]
pub struct Overview {
    /// The voters of the range that was to be kept awake; none if there is no replica of it here.
    pub voters: Vec<NodeId>,
    /// The nodes.
    pub nodes: NodesStatus,
    /// The ranges whose leases this node holds.
    pub held: Vec<RangeId>,
    /// Those of them that are frozen, and for which merges.
    pub frozen: Vec<(RangeDescriptor, Freeze)>,
}

/// A replica here, perhaps asleep.
#[derive(Clone, Debug)]
pub struct Surveyed {
    /// Its range.
    pub range: RangeId,
    /// Whether it is frozen.
    pub frozen: bool,
    /// Keys and configuration, once they have arrived.
    pub descriptor: Option<RangeDescriptor>,
    /// Who belongs to the range, as far as is applied here.
    pub members: Members,
}

/// What is known of a range that is awake.
#[derive(Default)]
struct Awake {
    /// The lease that was acquired.
    acquired: Option<u64>,
    /// What is still to be done before it is used.
    recovery: Recovery,
    ceiling_asked: bool,
    /// Since when the lease cannot be used for want of a majority's support.
    lapsed: Option<Millis>,
    /// To whom the lease goes as soon as nothing is under way.
    leaving: Option<Leaving>,
    /// How it is being changed.
    changing: Option<Changing>,
}

/// A lease that is about to be handed over.
struct Leaving {
    to: NodeId,
    since: Millis,
    answer: oneshot::Sender<Result<(), KvError>>,
}

/// How long what is under way may take when the pipeline is closed.
const CLOSING_MS: Millis = 5000;
/// How long what is under way may take before a lease is not handed over after all.
const LEAVING_MS: Millis = 2000;
/// How long commands wait for a majority before whoever sent them is told.
const LATE_MS: Millis = 3000;
/// Most who wait for an entry to be applied; further ones are told that there is no replica.
const MAX_REACHING: usize = 1 << 14;

fn storage_error(error: ReplicationError) -> StorageError {
    match error {
        ReplicationError::Storage(error) => error,
        other => StorageError::Io(other.to_string()),
    }
}

/// The driver of a [`Store`].
pub(super) struct Driver {
    shared: Arc<Shared>,
    hook: Arc<Mutex<Option<Arc<dyn Hook>>>>,
    engine: Arc<dyn Engine>,
    store: Store<Sound>,
    transport: Arc<dyn Transport>,
    next_tick: Millis,
    next_id: u64,
    pending: BTreeMap<u64, Queued>,
    awake: BTreeMap<RangeId, Awake>,
    /// Ranges whose standing may have changed.
    changed: BTreeSet<RangeId>,
    /// Since when the pipeline is being closed.
    closing: Option<Millis>,
    /// Ranges whose leases are to be handed over.
    leaving: BTreeSet<RangeId>,
    /// Ranges that are being split or merged.
    changing: BTreeSet<RangeId>,
    /// Who waits for entries to be applied.
    reaching: Vec<(RangeId, u64, oneshot::Sender<bool>)>,
    disk_was_full: bool,
    clocks: ClockCheck,
}

/// What there is to do.
struct Work {
    queue: Vec<Queued>,
    inbox: Vec<Envelope>,
    asked: Vec<Asked>,
    ceilings: Vec<RangeId>,
    closing: bool,
}

fn busy(reason: &str) -> KvError {
    KvError::new(KvErrorKind::Unavailable, format!("the range stays as it is: {reason}"))
}

/// An envelope as it leaves: an answer to a heartbeat says what the wall clock shows.
fn stamped(mut envelope: Envelope, environment: &Environment) -> Envelope {
    if let Some(Payload::HeartbeatAck(ack)) = &mut envelope.payload {
        ack.wall_ns = environment.physical_ns();
    }
    envelope
}

fn span_of(descriptor: &RangeDescriptor) -> Span {
    Span::new(descriptor.start.clone(), descriptor.end.clone())
}

impl Driver {
    pub fn new(
        shared: Arc<Shared>,
        hook: Arc<Mutex<Option<Arc<dyn Hook>>>>,
        engine: Arc<dyn Engine>,
        store: Store<Sound>,
        transport: Arc<dyn Transport>,
        clocks: ClockCheck,
    ) -> Self {
        Driver {
            shared,
            hook,
            engine,
            store,
            transport,
            next_tick: 0,
            next_id: 1,
            pending: BTreeMap::new(),
            awake: BTreeMap::new(),
            changed: BTreeSet::new(),
            closing: None,
            leaving: BTreeSet::new(),
            changing: BTreeSet::new(),
            reaching: Vec::new(),
            disk_was_full: false,
            clocks,
        }
    }

    /// What it shares with whoever asks.
    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// The first turns, on the caller's thread: a node that decides alone serves when this returns.
    ///
    /// # Errors
    /// If the engine fails.
    pub fn begin(&mut self) -> Result<(), StorageError> {
        let now = self.shared.millis();
        self.wake(now, ROOT).map_err(storage_error)?;
        for _ in 0..MAX_FIRST_TURNS {
            let work = self.take();
            self.turn(work).map_err(storage_error)?;
            if !self.store.has_work() {
                break;
            }
        }
        Ok(())
    }

    /// Runs until the pipeline is closed or the engine fails.
    pub fn run(mut self) {
        loop {
            self.wait();
            if !self.step() {
                return;
            }
        }
    }

    /// Does what there is to do; false if that was the last turn, because the pipeline is closed or the engine
    /// failed.
    pub fn step(&mut self) -> bool {
        let work = self.take();
        let closing = work.closing;
        if let Err(error) = self.turn(work) {
            tracing::error!("replication failed, the node must restart: {error}");
            self.fail(&storage_error(error));
            return false;
        }
        if let Some(too_far) = self.shared.too_far.get() {
            let stopped = format!("the node stops: {too_far}");
            tracing::error!("{stopped}");
            self.fail(&StorageError::Io(stopped));
            return false;
        }
        let settled = self.pending.is_empty() && self.shared.state.lock().queue.is_empty();
        let holds = self.awake.values().any(|awake| awake.acquired.is_some());
        let now = self.shared.millis();
        let late = closing && now.saturating_sub(*self.closing.get_or_insert(now)) >= CLOSING_MS;
        if closing && (settled || self.store.is_stalled() || !holds || late) {
            for range in self.awake.keys().copied().collect::<Vec<_>>() {
                self.lease_lost(range, None);
            }
            return false;
        }
        true
    }

    fn tick_interval(&self) -> Millis {
        if self.store.is_stalled() {
            return DISK_FULL_TICK_MS;
        }
        // Without peers nothing happens by itself but falling asleep.
        let alone = self.store.is_alone() && self.store.is_quiet();
        if alone { LONE_TICK_MS } else { TICK_MS }
    }

    /// Waits for something to do.
    fn wait(&self) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.lock();
        while let Some(pause) = self.idle_for(&state) {
            shared.ready.condvar.wait_for(&mut state, Duration::from_millis(pause));
        }
    }

    /// For how long there is nothing to do, in milliseconds, unless something is asked; `None` if there is
    /// something now.
    fn idle_for(&self, state: &State) -> Option<Millis> {
        let idle = state.queue.is_empty()
            && state.inbox.is_empty()
            && state.asked.is_empty()
            && state.ceilings.is_empty()
            && (!state.closing || self.closing.is_some());
        if !idle || self.store.has_work() {
            return None;
        }
        self.next_tick.checked_sub(self.shared.millis()).filter(|pause| *pause > 0)
    }

    /// The same, for who drives it.
    pub fn due(&self) -> Option<Millis> {
        self.idle_for(&self.shared.state.lock())
    }

    /// Takes as many commands as fit into a group, and all else.
    fn take(&self) -> Work {
        let mut state = self.shared.state.lock();
        let mut queue = Vec::new();
        let mut bytes = 0;
        while queue.len() < MAX_GROUP_LEN && bytes < MAX_GROUP_BYTES {
            let Some(queued) = state.queue.pop_front() else { break };
            bytes += queued.command.effects.byte_len();
            queue.push(queued);
        }
        Work {
            queue,
            inbox: std::mem::take(&mut state.inbox),
            asked: std::mem::take(&mut state.asked),
            ceilings: std::mem::take(&mut state.ceilings),
            closing: state.closing,
        }
    }

    fn turn(&mut self, work: Work) -> Result<(), ReplicationError> {
        let now = self.shared.millis();
        for envelope in work.inbox {
            self.receive(now, envelope);
        }
        if now >= self.next_tick {
            self.note_use(now);
            self.store.tick(now);
            self.check_clocks(now);
            self.next_tick = now + self.tick_interval();
            self.tell_late(now);
            self.catch_up(now)?;
            self.changed.extend(self.awake.keys());
        }
        if !work.queue.is_empty() {
            metrics().group_commands.observe(work.queue.len() as f64);
        }
        for queued in work.queue {
            self.propose(now, queued);
        }
        for range in work.ceilings {
            self.raise_ceiling(now, range);
        }
        for asked in work.asked {
            self.answer(now, asked)?;
        }
        let (transport, environment) = (&self.transport, &self.shared.environment);
        let send = |messages: &mut Vec<Envelope>| {
            messages.drain(..).for_each(|message| transport.send(stamped(message, environment)));
        };
        let events = self.store.process_with(now, send)?;
        for event in events {
            self.happened(now, event)?;
        }
        for envelope in self.store.take_messages() {
            self.transport.send(stamped(envelope, &self.shared.environment));
        }
        self.hand_over(now);
        self.propose_changes(now);
        self.publish();
        self.tell_reached();
        Ok(())
    }

    fn receive(&mut self, now: Millis, envelope: Envelope) {
        let range = match &envelope.payload {
            Some(Payload::Raft(message)) => Some(message.range_id),
            Some(Payload::SnapshotChunk(chunk)) => Some(chunk.range_id),
            _ => None,
        };
        if let Some(Payload::HeartbeatAck(ack)) = envelope.payload {
            self.measure_clock(envelope.from, ack);
        }
        self.store.step(now, envelope);
        if let Some(range) = range {
            self.note_awake(range);
        }
    }

    /// An answer to a heartbeat says what the wall clock of another node shows.
    fn measure_clock(&mut self, node: NodeId, ack: HeartbeatAck) {
        if ack.wall_ns == 0 || ack.epoch != self.store.epoch() {
            return;
        }
        // Not the time of the turn: the answer may have come after it began.
        let now = self.shared.moment();
        self.clocks.measure(node, ack.sent_at, ack.wall_ns, now);
        let Some(offset) = self.clocks.offset(node, now) else { return };
        let gauge = metrics().clock_offsets.with_label_values(&[&node.to_string()]);
        gauge.set(offset.middle() as f64 / 1e9);
        if self.clocks.is_news(node, offset) {
            let (least_ms, most_ms) = (offset.least / 1_000_000, offset.most / 1_000_000);
            tracing::warn!(
                node,
                "the wall clock of another node is {least_ms} to {most_ms} ms ahead of this one's, which is nearly \
                 too much or too much: run NTP on all nodes"
            );
        }
    }

    /// Compares the wall clock with those of the others that are live.
    fn check_clocks(&mut self, now: Millis) {
        let live = self.store.liveness().silences(now).filter(|(_, silent)| *silent <= SUPPORT_MS);
        let live: Vec<NodeId> = live.map(|(node, _)| node).collect();
        let moment = self.shared.moment();
        {
            let mut state = self.shared.state.lock();
            let alone = self.store.liveness().is_alone();
            state.steady.set_disputed(self.clocks.is_disputed(alone, &live, moment));
            // Read at least at every tick, so that it notices jumps.
            self.shared.wall_ns(&mut state);
        }
        if let Some(too_far) = self.clocks.check(&live, moment) {
            let _ = self.shared.too_far.set(too_far);
        }
    }

    /// Notes that a range may be awake that was not before.
    fn note_awake(&mut self, range: RangeId) {
        if !self.awake.contains_key(&range) && self.store.is_awake(range) {
            self.awake.insert(range, Awake::default());
        }
        self.changed.insert(range);
    }

    /// Passes on which ranges are in use, so that they do not fall asleep, and tries again to raise ceilings
    /// that could not be raised.
    fn note_use(&mut self, now: Millis) {
        let hook = self.hook.lock().clone();
        let mut waiting = Vec::new();
        let mut idle = Vec::new();
        {
            let mut state = self.shared.state.lock();
            for (range, found) in &mut state.ranges {
                if std::mem::take(&mut found.used) || !found.in_flight.is_empty() {
                    self.store.touch(*range);
                } else if found.held.is_some() {
                    idle.push((*range, found.span.clone()));
                }
                if found.wants_ceiling {
                    waiting.push(*range);
                }
            }
        }
        for (range, span) in idle {
            if hook.as_ref().is_some_and(|hook| hook.is_used(range, &span)) {
                self.store.touch(range);
            }
        }
        waiting.sort_unstable();
        waiting.into_iter().for_each(|range| self.raise_ceiling(now, range));
    }

    fn wake(&mut self, now: Millis, range: RangeId) -> Result<bool, ReplicationError> {
        let there = self.store.wake(now, range)?;
        if there {
            self.note_awake(range);
            self.enter(range);
        }
        Ok(there)
    }

    /// Wakes a range. Damage in one range is nothing to the others.
    fn wake_sound(
        &mut self,
        now: Millis,
        range: RangeId,
    ) -> Result<Result<bool, StorageError>, ReplicationError> {
        match self.wake(now, range) {
            Ok(there) => Ok(Ok(there)),
            Err(ReplicationError::Storage(error @ StorageError::Corruption(_))) => {
                tracing::error!(range, "the replica of a range cannot be read: {error}");
                Ok(Err(error))
            }
            Err(error) => Err(error),
        }
    }

    /// Wakes a range for who is to know who serves it; nobody does where there is no replica.
    fn woken(&mut self, now: Millis, range: RangeId) -> Result<Woken, ReplicationError> {
        Ok(self.wake_sound(now, range)?.and_then(|there| {
            let state = self.shared.state.lock();
            let found = state.ranges.get(&range).filter(|_| there);
            match found.and_then(|found| found.damaged.clone()) {
                Some(error) => Err(error),
                None => Ok(found.map(|found| found.standing.watch())),
            }
        }))
    }

    fn nodes(&self, now: Millis) -> NodesStatus {
        NodesStatus {
            silent: self.store.liveness().silences(now).collect(),
            notes: self.store.notes().map(|(node, note)| (node, note.clone())).collect(),
            counts: self.store.counts(),
        }
    }

    fn held(&self) -> Vec<RangeId> {
        let held = self.awake.iter().filter(|(_, awake)| awake.acquired.is_some());
        held.map(|(range, _)| *range).collect()
    }

    fn overview(&self, now: Millis, range: RangeId) -> Overview {
        let voters = self.store.status(range).map(|status| status.members.voters);
        Overview {
            voters: voters.unwrap_or_default(),
            nodes: self.nodes(now),
            held: self.held(),
            frozen: self.frozen(),
        }
    }

    /// Makes the range known to those who ask for it.
    fn enter(&self, range: RangeId) {
        let Some(descriptor) = self.store.descriptor(range) else { return };
        let mut state = self.shared.state.lock();
        let found = state.ranges.entry(range).or_insert_with(|| RangeState::new(span_of(descriptor)));
        if found.span.start != descriptor.start || found.span.end != descriptor.end {
            found.span = span_of(descriptor);
            found.changes += 1;
        }
    }

    fn propose(&mut self, now: Millis, mut queued: Queued) {
        let id = self.next_id;
        self.next_id += 1;
        let mut batch = WriteBatch::new();
        let encoded = queued.command.effects.encode(queued.timestamp, &mut batch);
        queued.bytes = batch.bytes_put(&[Space::Data, Space::History]);
        let proposal = Proposal {
            id,
            range: queued.command.range,
            lease_sequence: super::sequence_of(queued.command.lease),
            batch,
            change: queued.command.change.take(),
            // Commands are proposed in the order of their timestamps.
            closed: queued.timestamp,
        };
        let proposed = encoded.map_err(CommandError::Storage).and_then(|()| {
            self.store.propose(now, proposal).map_err(|error| {
                tracing::debug!("a command was not proposed: {error}");
                match error {
                    ReplicationError::Storage(StorageError::DiskFull(_)) => CommandError::NoSpace,
                    _ => CommandError::Rejected,
                }
            })
        });
        match proposed {
            Ok(()) => {
                self.pending.insert(id, queued);
            }
            Err(error) => self.finish(queued, Err(error)),
        }
    }

    /// Ends a command: it was applied with an entry of the log, or failed.
    fn finish(&self, queued: Queued, result: Result<u64, CommandError>) {
        let Queued { command, timestamp, bytes } = queued;
        if let (Ok(_), Some(before_visible)) = (&result, command.before_visible) {
            before_visible(timestamp);
        }
        if let Some(found) = self.shared.state.lock().ranges.get_mut(&command.range) {
            // In one step: whoever finds the timestamp closed finds the entry applied.
            if let Ok(index) = result {
                found.applied = found.applied.max(Some(index));
                found.load.written += u64::try_from(bytes).unwrap_or(u64::MAX);
            }
            if found.in_flight.remove(&timestamp) {
                found.landed.notify();
            }
        }
        (command.done)(result.map(|_| timestamp));
    }

    fn raise_ceiling(&mut self, now: Millis, range: RangeId) {
        let Some(awake) = self.awake.get_mut(&range) else { return };
        if awake.ceiling_asked || awake.acquired.is_none() {
            return;
        }
        let (wanted, wall_ns) = {
            let mut state = self.shared.state.lock();
            let wall_ns = self.shared.wall_ns(&mut state);
            let wanted = state.ranges.get(&range);
            (wanted.map_or(0, |found| found.clock.latest().max(found.wanted).wall_ns), wall_ns)
        };
        let ahead = wall_ns.saturating_add(CEILING_AHEAD_NS);
        let ceiling = Timestamp::new(ahead.max(wanted.saturating_add(CEILING_SLACK_NS)), 0);
        awake.ceiling_asked = self.store.extend_ceiling(now, range, ceiling).is_ok();
    }

    fn answer(&mut self, now: Millis, asked: Asked) -> Result<(), ReplicationError> {
        let refused = |error: ReplicationError| KvError::new(KvErrorKind::Unavailable, error.to_string());
        // Who asked may be gone.
        match asked {
            Asked::Covering(key, answer) => {
                let _ = answer.send(self.store.covering(&key));
            }
            Asked::Wake(range, answer) => {
                let _ = answer.send(self.woken(now, range)?);
            }
            Asked::Frozen(answer) => {
                let _ = answer.send(self.frozen());
            }
            Asked::Overview(range, answer) => {
                let woken = self.woken(now, range)?;
                let _ = answer.send(woken.map(|standing| (standing, self.overview(now, range))));
            }
            Asked::ChangeMembers(range, change, answer) => {
                let _ = answer.send(self.store.change_members(now, range, change).map_err(refused));
            }
            Asked::TransferLease(range, to, answer) => self.begin_leaving(now, range, to, answer),
            Asked::Change(range, change, answer) => self.begin_change(now, range, change, answer),
            Asked::Statuses(ranges, answer) => {
                let status = |range| {
                    let group = self.store.status(range)?;
                    let descriptor = self.store.descriptor(range).cloned();
                    Some(Status { range, group, descriptor, frozen: self.store.frozen(range) })
                };
                let _ = answer.send(ranges.into_iter().filter_map(status).collect());
            }
            Asked::Nodes(answer) => {
                let _ = answer.send(self.nodes(now));
            }
            Asked::Held(answer) => {
                let _ = answer.send(self.held());
            }
            Asked::Configured(answer) => {
                let configured = self.store.local().filter(|(_, descriptor)| !descriptor.config.is_empty());
                let _ = answer.send(configured.map(|(_, descriptor)| descriptor.clone()).collect());
            }
            Asked::Survey(after, limit, answer) => {
                let found = match self.store.survey(after, limit) {
                    Ok(found) => found,
                    Err(ReplicationError::Storage(error @ StorageError::Corruption(_))) => {
                        tracing::error!("replicas that sleep cannot be gone over: {error}");
                        Vec::new()
                    }
                    Err(error) => return Err(error),
                };
                let surveyed = found.into_iter().map(|(range, state)| Surveyed {
                    range,
                    frozen: state.frozen.is_some(),
                    descriptor: state.descriptor,
                    members: state.members,
                });
                let _ = answer.send(surveyed.collect());
            }
            Asked::Reached(range, index, answer) => {
                let there = self.wake_sound(now, range)?.unwrap_or(false);
                if there && self.reaching.len() < MAX_REACHING {
                    self.reaching.push((range, index, answer));
                } else {
                    let _ = answer.send(false);
                }
            }
            Asked::Destroy(range, answer) => {
                match self.store.destroy(range) {
                    Ok(()) => {
                        let _ = answer.send(Ok(()));
                    }
                    // It is tried again.
                    Err(error @ ReplicationError::Storage(StorageError::DiskFull(_))) => {
                        let _ = answer.send(Err(refused(error)));
                    }
                    Err(error) => return Err(error),
                }
            }
            Asked::Note(note) => self.store.set_note(note),
            Asked::Watch(nodes) => self.store.watch_nodes(nodes.into_iter()),
            Asked::Forget(ranges) => {
                let is_acquired =
                    |range| self.awake.get(&range).is_some_and(|awake| awake.acquired.is_some());
                ranges.into_iter().filter(|range| !is_acquired(*range)).for_each(|range| self.forget(range));
            }
        }
        Ok(())
    }

    /// Lets nothing more in, so that the lease can go without anything being lost on the way.
    fn begin_leaving(
        &mut self,
        now: Millis,
        range: RangeId,
        to: NodeId,
        answer: oneshot::Sender<Result<(), KvError>>,
    ) {
        let awake = self.awake.get_mut(&range).filter(|awake| awake.acquired.is_some());
        match awake {
            Some(awake) if awake.leaving.is_none() && awake.changing.is_none() => {
                awake.leaving = Some(Leaving { to, since: now, answer });
                if let Some(found) = self.shared.state.lock().ranges.get_mut(&range) {
                    found.held = None;
                }
                self.leaving.insert(range);
            }
            // Who asked may be gone.
            Some(_) => {
                let _ = answer.send(Err(busy("another change of it is under way")));
            }
            None => {
                let _ = answer.send(Err(super::not_leaseholder()));
            }
        }
    }

    /// Hands over the leases of ranges in which nothing is under way any more.
    fn hand_over(&mut self, now: Millis) {
        for range in std::mem::take(&mut self.leaving) {
            let under_way = self.is_under_way(range);
            let Some(awake) = self.awake.get_mut(&range) else { continue };
            let Some(leaving) = awake.leaving.take() else { continue };
            if !under_way {
                let result = self.store.transfer_leader(now, range, leaving.to);
                let refused =
                    |error: ReplicationError| KvError::new(KvErrorKind::Unavailable, error.to_string());
                let _ = leaving.answer.send(result.map_err(refused));
            } else if now.saturating_sub(leaving.since) >= LEAVING_MS {
                let _ = leaving.answer.send(Err(busy("commands take too long")));
            } else {
                awake.leaving = Some(leaving);
                self.leaving.insert(range);
                continue;
            }
            self.changed.insert(range);
        }
    }

    /// Goes on with what must be done before a lease is used, where a proposal was refused for the moment.
    fn catch_up(&mut self, now: Millis) -> Result<(), ReplicationError> {
        let acquired = |awake: &Awake| awake.acquired.is_some();
        let unsettled = self.awake.iter().filter(|(_, awake)| acquired(awake) && awake.recovery.is_idle());
        for range in unsettled.map(|(range, _)| *range).collect::<Vec<_>>() {
            let damaged = {
                let state = self.shared.state.lock();
                state.ranges.get(&range).is_none_or(|found| found.damaged.is_some())
            };
            if !damaged {
                self.recover(now, range)?;
            }
        }
        let unused: Vec<RangeId> = {
            let state = self.shared.state.lock();
            let held = |range: &RangeId| {
                let served = state.ranges.get(range).is_some_and(|found| {
                    // Where the clock is at the ceiling what is held ends, and is not held again.
                    found.held.is_some_and(|held| found.clock.latest() < held.ceiling)
                });
                served || self.store.frozen(*range).is_some()
            };
            let unused = self
                .awake
                .iter()
                .filter(|(range, awake)| acquired(awake) && awake.leaving.is_none() && !held(range));
            unused.map(|(range, _)| *range).collect()
        };
        unused.into_iter().for_each(|range| self.raise_ceiling(now, range));
        Ok(())
    }

    /// Tells those who have waited for a majority for long.
    fn tell_late(&mut self, now: Millis) {
        let mut late = HashSet::new();
        for (range, awake) in &mut self.awake {
            let held = matches!(self.store.lease(*range, now), LeaseView::Held { .. });
            if held || awake.acquired.is_none() {
                awake.lapsed = None;
            } else if now.saturating_sub(*awake.lapsed.get_or_insert(now)) >= LATE_MS {
                late.insert(*range);
            }
        }
        if late.is_empty() {
            return;
        }
        for queued in self.pending.values_mut().filter(|queued| late.contains(&queued.command.range)) {
            if let Some(waiter) = queued.command.late.take() {
                // Who waited may be gone.
                let _ = waiter.send(());
            }
        }
    }

    fn tell_reached(&mut self) {
        if self.reaching.is_empty() {
            return;
        }
        for (range, index, answer) in std::mem::take(&mut self.reaching) {
            match self.store.applied(range) {
                Some(applied) if applied >= index => {
                    let _ = answer.send(true);
                }
                None => {
                    let _ = answer.send(false);
                }
                Some(_) if answer.is_closed() => {}
                Some(_) => {
                    self.store.touch(range);
                    self.reaching.push((range, index, answer));
                }
            }
        }
    }

    fn happened(&mut self, now: Millis, event: Event) -> Result<(), ReplicationError> {
        match event {
            Event::Applied { range, id, index } => {
                if let Some(queued) = self.pending.remove(&id) {
                    self.finish(queued, Ok(index));
                } else if self.is_change(range, id) {
                    self.end_change(range, Ok(()));
                } else if self.awake.get(&range).is_some_and(|awake| awake.recovery.is(id)) {
                    self.recover(now, range)?;
                }
            }
            Event::Rejected { range, id } => {
                if let Some(queued) = self.pending.remove(&id) {
                    self.finish(queued, Err(CommandError::Rejected));
                } else if self.is_change(range, id) {
                    self.end_change(range, Err(super::not_leaseholder()));
                }
            }
            Event::LeaseAcquired { range, sequence, floor, .. } => {
                tracing::info!(range, sequence, "this node holds the lease of the range");
                self.enter(range);
                if let Some(found) = self.shared.state.lock().ranges.get_mut(&range) {
                    found.clock.observe(floor);
                    found.written = found.clock.latest();
                    found.ahead = None;
                }
                let acquired = Awake { acquired: Some(sequence), ..Awake::default() };
                self.awake.insert(range, acquired);
                self.keep_ahead(range);
                self.forget(range);
                self.changed.insert(range);
                self.raise_ceiling(now, range);
                self.recover(now, range)?;
            }
            Event::LeaseLost { range } => {
                tracing::info!(range, "this node no longer holds the lease of the range");
                let leader = match self.store.lease(range, now) {
                    LeaseView::Elsewhere { leader } => leader,
                    LeaseView::Held { .. } => None,
                };
                self.lease_lost(range, leader);
                self.forget(range);
            }
            Event::CeilingRaised { range, .. } => {
                self.changed.insert(range);
                if let Some(awake) = self.awake.get_mut(&range) {
                    awake.ceiling_asked = false;
                }
                if let Some(found) = self.shared.state.lock().ranges.get_mut(&range) {
                    found.wants_ceiling = false;
                }
            }
            Event::MembersChanged { range, members, .. } => {
                tracing::info!(range, voters = ?members.voters, learners = ?members.learners, "the members of a range changed");
                self.described(range);
            }
            Event::DescriptorChanged { range, .. } => {
                self.enter(range);
                self.keep_ahead(range);
                self.described(range);
            }
            Event::Created { range, .. } => self.created(now, range)?,
            Event::Frozen { range } | Event::Thawed { range } => {
                self.changed.insert(range);
            }
            Event::Absorbed { range, served, .. } => self.absorbed(now, range, served),
            Event::Slept { range } => {
                tracing::debug!(range, "a range fell asleep");
                self.leave(range);
            }
            Event::Removed { range } => {
                tracing::info!(range, "this node no longer has a replica");
                // Also what came to be known of a transaction after the lease was lost.
                self.forget(range);
                self.leave(range);
                if let Some(hook) = self.hook.lock().clone() {
                    hook.removed(range);
                }
            }
        }
        Ok(())
    }

    /// Takes note of whether a range whose lease is held here is read everywhere.
    fn keep_ahead(&self, range: RangeId) {
        let holds = self.awake.get(&range).is_some_and(|awake| awake.acquired.is_some());
        let Some(descriptor) = self.store.descriptor(range).filter(|_| holds) else { return };
        let global = span_config::kept(&descriptor.config, &descriptor.start).global_reads;
        if let Some(found) = self.shared.state.lock().ranges.get_mut(&range) {
            found.keep_ahead(global);
        }
    }

    /// Whoever is told of leases is told of this one.
    fn forget(&self, range: RangeId) {
        let awake = self.shared.state.lock().ranges.get(&range).map(|found| found.span.clone());
        let span = awake.or_else(|| self.store.descriptor(range).map(span_of));
        if let (Some(hook), Some(span)) = (self.hook.lock().clone(), span) {
            hook.forget(range, &span);
        }
    }

    fn described(&mut self, range: RangeId) {
        self.changed.insert(range);
        self.tell(range);
    }

    /// Whoever looks after the directory is told of a range whose lease is held here.
    fn tell(&self, range: RangeId) {
        let holds = self.awake.get(&range).is_some_and(|awake| awake.acquired.is_some());
        if let (true, Some(hook)) = (holds, self.hook.lock().clone()) {
            hook.described(range);
        }
    }

    /// The range is no longer in memory.
    fn leave(&mut self, range: RangeId) {
        self.lease_lost(range, None);
        self.awake.remove(&range);
        self.shared.state.lock().ranges.remove(&range);
    }

    /// Settles what transactions of the last leaseholder have left, a piece at a time.
    fn recover(&mut self, now: Millis, range: RangeId) -> Result<(), ReplicationError> {
        let Some(awake) = self.awake.get_mut(&range) else { return Ok(()) };
        let Some(sequence) = awake.acquired else { return Ok(()) };
        let Some(span) = self.store.descriptor(range).map(span_of) else { return Ok(()) };
        self.changed.insert(range);
        let hook = self.hook.lock().clone();
        let left = awake.recovery.next(&*self.engine, &span, &self.shared.environment);
        let next = left.and_then(|next| match (&next, hook) {
            (None, Some(hook)) => hook.adopt(range, &span).map(|()| None),
            _ => Ok(next),
        });
        let next = match next {
            Ok(next) => next,
            Err(error @ StorageError::Corruption(_)) => {
                tracing::error!(range, "what transactions have left cannot be read: {error}");
                if let Some(found) = self.shared.state.lock().ranges.get_mut(&range) {
                    found.damaged = Some(error);
                    // Who waits asks again, and is told.
                    found.stand(Standing::Leaseholder(sequence));
                }
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(batch) = next {
            let id = self.next_id;
            self.next_id += 1;
            let proposal =
                Proposal { id, range, lease_sequence: sequence, batch, change: None, closed: Timestamp::MIN };
            // If it is refused the lease is gone, and the next holder begins again.
            if self.store.propose(now, proposal).is_ok() {
                awake.recovery.proposed(id);
            }
        }
        Ok(())
    }

    /// Lets requests in, or not, as the leases now stand.
    fn publish(&mut self) {
        let disk_full = self.store.is_stalled();
        if disk_full != self.disk_was_full {
            self.disk_was_full = disk_full;
            if disk_full {
                tracing::error!("the disk is full, writes wait");
            } else {
                tracing::info!("there is space on the disk again");
            }
            self.shared.disk_full.send_if_modified(|known| std::mem::replace(known, disk_full) != disk_full);
        }
        let now = self.shared.millis();
        let changed = std::mem::take(&mut self.changed);
        if changed.is_empty() {
            return;
        }
        let mut begun = Vec::new();
        let mut state = self.shared.state.lock();
        for range in changed {
            let Some(awake) = self.awake.get(&range) else { continue };
            let Some(found) = state.ranges.get_mut(&range) else { continue };
            found.applied = self.store.applied(range);
            match (self.store.lease(range, now), awake.acquired) {
                (LeaseView::Held { sequence, ceiling, until }, Some(acquired))
                    if sequence == acquired
                        && awake.leaving.is_none()
                        && awake.changing.is_none()
                        && (self.store.frozen(range).is_none()
                            || self.shared.environment.planted(Bug::FrozenServes))
                        && awake.recovery.is_complete()
                        && ceiling > found.clock.latest() =>
                {
                    if found.held.is_none_or(|held| held.ceiling != ceiling) {
                        found.landed.notify();
                    }
                    if found.held.is_none() {
                        begun.push(range);
                    }
                    found.held = Some(Held { sequence, ceiling, until });
                    found.stand(Standing::Leaseholder(sequence));
                }
                // Without a majority's support for the moment; what was held ends by itself.
                (_, Some(_)) => {}
                (LeaseView::Elsewhere { leader }, None) => found.stand(Standing::Follower(leader)),
                (LeaseView::Held { .. }, None) => {}
            }
        }
        drop(state);
        // Only who serves a range says what is known of it; so nothing is said before that.
        begun.into_iter().for_each(|range| self.tell(range));
    }

    fn lease_lost(&mut self, range: RangeId, leader: Option<NodeId>) {
        // It may be applied yet.
        self.end_change(range, Err(CommandError::Unknown.into()));
        if let Some(awake) = self.awake.get_mut(&range) {
            *awake = Awake::default();
        }
        let refused: VecDeque<Queued> = {
            let mut state = self.shared.state.lock();
            if let Some(found) = state.ranges.get_mut(&range) {
                found.held = None;
                found.landed.notify();
                found.wanted = Timestamp::MIN;
                found.wants_ceiling = false;
                found.ahead = None;
                found.damaged = None;
            }
            let (refused, kept) = std::mem::take(&mut state.queue)
                .into_iter()
                .partition(|queued| queued.command.range == range);
            state.queue = kept;
            refused
        };
        for queued in refused {
            self.finish(queued, Err(CommandError::Rejected));
        }
        // They may be applied yet, or not.
        let open = self.pending.iter().filter(|(_, queued)| queued.command.range == range);
        for id in open.map(|(id, _)| *id).collect::<Vec<_>>() {
            if let Some(queued) = self.pending.remove(&id) {
                self.finish(queued, Err(CommandError::Unknown));
            }
        }
        if let Some(found) = self.shared.state.lock().ranges.get_mut(&range) {
            found.stand(Standing::Follower(leader));
        }
    }

    fn fail(&mut self, error: &StorageError) {
        let queue = {
            let mut state = self.shared.state.lock();
            state.closing = true;
            std::mem::take(&mut state.queue)
        };
        for queued in queue {
            self.finish(queued, Err(CommandError::Rejected));
        }
        for (_, queued) in std::mem::take(&mut self.pending) {
            self.finish(queued, Err(CommandError::Storage(error.clone())));
        }
        self.shared.state.lock().ranges.clear();
        self.shared.broken.notify_one();
    }
}
