//! How a node's process is driven: as the KV node's replication thread does.
//!
//! What has arrived is given to the store, then the store persists and applies, and only when the disk is
//! done are messages sent and clients answered. What arrives meanwhile waits.

use super::{Happening, World};
use crate::clock::{MILLI, Micros};
use crate::coverage::Kind;
use crate::network::Fate;
use crate::node::{Input, Process};
use crate::register::{Answer, Effect, Request, Turn};
use crate::watch::{Server, Violation};
use bytes::Bytes;
use prost::Message;
use rand::Rng;
use replication::config::TICK_MS;
use replication::message::Payload;
use replication::{Envelope, Event, GroupStatus, NodeId, RangeId, Store, StoreConfig};
use std::sync::Arc;

/// How long a process takes for what needs no disk.
const THINKING: Micros = 20;
/// One in so many messages is encoded and decoded, which takes longer than all the rest.
const ENCODED: u64 = 8;
/// After how long a node whose store does not open tries again.
const START_AGAIN: Micros = 200 * MILLI;

impl World {
    /// Starts a node's process, unless one runs.
    pub(super) fn start(&mut self, id: NodeId) -> Result<(), Violation> {
        let (now, planted) = (self.now, self.planted);
        let (origin, seed) = (self.rng.random_range(0..1 << 40), self.rng.random());
        let (log_keep, chunk_bytes) = (self.plan.log_keep, self.plan.chunk_bytes);
        let sleep_after_ms = self.plan.sleep_after_ms;
        let Some(node) = self.node(id).filter(|node| node.process.is_none()) else { return Ok(()) };
        node.clock.restart(now, origin);
        node.epoch += 1;
        let epoch = node.epoch;
        let config =
            StoreConfig { log_keep, chunk_bytes, sleep_after_ms, ..StoreConfig::new(id, epoch, seed) };
        let engine = Arc::clone(&node.engine);
        let ranges = match Store::open(engine, config, planted, node.clock.millis(now)) {
            Ok(mut store) => {
                store.set_note(note(id, epoch));
                let ranges: Vec<RangeId> = store.local().map(|(range, _)| range).collect();
                node.process = Some(Process::new(store));
                ranges
            }
            Err(error) if now < node.full_until || node.fused.is_some() => {
                self.trace.note(now, || format!("n{id} does not start: {error}"));
                self.after(START_AGAIN, Happening::Start(id));
                return Ok(());
            }
            Err(error) => return Err(Violation::new("opens again", format!("node {id}: {error}"))),
        };
        ranges.into_iter().for_each(|range| self.range_seen(range));
        self.trace.note(now, || format!("n{id} starts, epoch {epoch}"));
        self.schedule_tick(id, epoch);
        self.wake(id)
    }

    fn schedule_tick(&mut self, id: NodeId, epoch: u64) {
        let tick = TICK_MS * MILLI;
        let delay = self.rng.random_range(tick * 9 / 10..tick * 11 / 10);
        self.after(delay, Happening::Tick(id, epoch));
    }

    /// The process of a node, if it is still that one.
    fn process(&mut self, id: NodeId, epoch: u64) -> Option<&mut Process> {
        let node = self.node(id)?;
        if node.epoch == epoch { node.process.as_mut() } else { None }
    }

    pub(super) fn tick(&mut self, id: NodeId, epoch: u64) -> Result<(), Violation> {
        let Some(process) = self.process(id, epoch) else { return Ok(()) };
        // A process that was held up ticks once, not once for every tick it missed.
        if !process.inbox.iter().any(|input| matches!(input, Input::Tick)) {
            process.inbox.push_back(Input::Tick);
        }
        self.schedule_tick(id, epoch);
        self.wake(id)
    }

    pub(super) fn deliver(&mut self, envelope: Envelope) -> Result<(), Violation> {
        let id = envelope.to;
        let now = self.now;
        self.trace.note(now, || format!("n{id} <- n{} {}", envelope.from, describe(&envelope)));
        self.input(id, Input::Envelope(Box::new(envelope)))
    }

    pub(super) fn request(&mut self, id: NodeId, request: Request) -> Result<(), Violation> {
        self.input(id, Input::Request(request))
    }

    pub(super) fn submit(
        &mut self,
        id: NodeId,
        epoch: u64,
        range: RangeId,
        proposal: u64,
    ) -> Result<(), Violation> {
        if self.process(id, epoch).is_none() {
            return Ok(());
        }
        self.input(id, Input::Submit(range, proposal))
    }

    /// Gives a node's process, if there is one, something to do.
    pub(super) fn input(&mut self, id: NodeId, input: Input) -> Result<(), Violation> {
        let Some(process) = self.node(id).and_then(|node| node.process.as_mut()) else { return Ok(()) };
        process.inbox.push_back(input);
        self.wake(id)
    }

    pub(super) fn resume(&mut self, id: NodeId, epoch: u64) -> Result<(), Violation> {
        if self.process(id, epoch).is_none() { Ok(()) } else { self.wake(id) }
    }

    /// The disk is done: what waited for it goes out.
    pub(super) fn disk_done(&mut self, id: NodeId, epoch: u64) -> Result<(), Violation> {
        let now = self.now;
        let Some(process) = self.process(id, epoch) else { return Ok(()) };
        if now < process.paused_until {
            let rest = process.paused_until - now;
            self.after(rest, Happening::DiskDone(id, epoch));
            return Ok(());
        }
        process.busy = false;
        let (outbox, replies) = (std::mem::take(&mut process.outbox), std::mem::take(&mut process.replies));
        let destroyed = std::mem::take(&mut process.destroyed);
        if let Some(node) = self.node(id) {
            node.destroyed.extend(destroyed);
        }
        for envelope in outbox {
            self.transmit(envelope)?;
        }
        for (request, answer) in replies {
            self.send_answer(id, request, answer);
        }
        self.wake(id)
    }

    /// Lets a process work, if it can.
    pub(super) fn wake(&mut self, id: NodeId) -> Result<(), Violation> {
        self.touched.insert(id);
        let (now, planted) = (self.now, self.planted);
        let slow_evaluation = if now < self.slow_evaluation.0 { self.slow_evaluation.1 } else { 0 };
        let Some(place) = usize::try_from(id).ok().and_then(|id| id.checked_sub(1)) else { return Ok(()) };
        let Some(node) = self.nodes.get_mut(place) else { return Ok(()) };
        let (clock_ms, wall_ns) = (node.clock.millis(now), node.clock.wall_ns(now));
        let Some(process) = &mut node.process else { return Ok(()) };
        if process.busy || now < process.paused_until || (process.inbox.is_empty() && !process.again) {
            return Ok(());
        }
        let syncs = node.engine.syncs();
        let ticks = process.inbox.iter().any(|input| matches!(input, Input::Tick));
        let mut effects = Vec::new();
        let mut turn = Turn {
            store: &mut process.store,
            engine: &node.engine,
            now: clock_ms,
            wall_ns,
            slow_evaluation,
            planted,
            rng: &mut self.rng,
            effects: &mut effects,
        };
        while let Some(input) = process.inbox.pop_front() {
            match input {
                Input::Envelope(envelope) => match &envelope.payload {
                    Some(Payload::App(app)) => process.service.heard(&mut turn, envelope.from, &app.bytes),
                    _ => turn.store.step(clock_ms, *envelope),
                },
                Input::Tick => {
                    turn.store.tick(clock_ms);
                    process.service.tick(&mut turn);
                }
                Input::Request(request) => process.service.request(&mut turn, request),
                Input::Submit(range, proposal) => process.service.submit(&mut turn, range, proposal),
                // An operator tries again when it is refused.
                Input::Transfer(range, to) => drop(turn.store.transfer_leader(clock_ms, range, to)),
                Input::Members(range, change) => drop(turn.store.change_members(clock_ms, range, change)),
                Input::Change(range, wish) => process.service.change(&mut turn, range, wish),
                // It is told again if its disk is full.
                Input::Destroy(range) => {
                    process.destroyed.extend(turn.store.destroy(range).is_ok().then_some(range));
                }
                Input::Wake(range) => drop(turn.store.wake(clock_ms, range)),
            }
        }
        let processed = turn.store.process(clock_ms);
        let events = match processed {
            Ok(events) => events,
            Err(error) => {
                // What was proposed may be on its disk.
                effects.retain(|effect| matches!(effect, Effect::Evaluated(_) | Effect::Served { .. }));
                let epoch = node.epoch;
                self.effects(id, epoch, effects)?;
                return self.store_failed(id, &error.to_string());
            }
        };
        for event in &events {
            process.service.event(&mut turn, event);
        }
        process.service.applied(&mut turn);
        process.again = process.store.has_work();
        process.outbox = process.store.take_messages();
        let synced = node.engine.syncs() > syncs;
        let ranges = if ticks || !events.is_empty() { process.store.ranges() } else { Vec::new() };
        let status = |range: RangeId| Some((range, process.store.status(range)?));
        let statuses: Vec<_> = ranges.into_iter().filter_map(status).collect();
        let epoch = node.epoch;
        self.note_events(id, &events);
        for (range, status) in statuses {
            self.note_status(id, range, &status)?;
        }
        self.effects(id, epoch, effects)?;
        self.wait_for_disk(id, synced)
    }

    /// The process waits for its disk before anything goes out.
    fn wait_for_disk(&mut self, id: NodeId, synced: bool) -> Result<(), Violation> {
        let (now, (from, to)) = (self.now, self.plan.sync);
        let usual = self.rng.random_range(from..=to);
        let share = self.rng.random_range(25..=100);
        let Some(node) = self.node(id) else { return Ok(()) };
        let slow = if now < node.slow.0 { node.slow.1 * share / 100 } else { 0 };
        let epoch = node.epoch;
        if synced && let Some((loss, down)) = node.doomed.take() {
            self.coverage.count(Kind::CrashesAfterPersist);
            self.crash(id, loss, down);
            return Ok(());
        }
        let Some(process) = &mut node.process else { return Ok(()) };
        if !synced && process.outbox.is_empty() && process.replies.is_empty() && !process.again {
            return Ok(());
        }
        process.busy = true;
        let delay = if synced { usual.max(slow) } else { THINKING };
        self.after(delay, Happening::DiskDone(id, epoch));
        Ok(())
    }

    /// The store stopped, as it does when its engine fails. A full disk is no reason.
    fn store_failed(&mut self, id: NodeId, error: &str) -> Result<(), Violation> {
        let now = self.now;
        self.trace.note(now, || format!("n{id} fails: {error}"));
        match self.node(id).and_then(|node| node.fused) {
            Some((loss, down)) => {
                self.coverage.count(Kind::CrashesBetweenWrites);
                self.crash(id, loss, down);
                Ok(())
            }
            None => Err(Violation::new("store works", format!("node {id}: {error}"))),
        }
    }

    fn note_status(&mut self, id: NodeId, range: RangeId, status: &GroupStatus) -> Result<(), Violation> {
        if status.is_leader && self.watch.leads(id, range, status.term)? {
            self.coverage.count(Kind::Terms);
        }
        let Some(node) = self.node(id) else { return Ok(()) };
        if status.incomplete {
            node.incomplete.insert(range);
        } else if node.incomplete.remove(&range) {
            self.coverage.count(Kind::SnapshotsReceived);
        }
        Ok(())
    }

    fn note_events(&mut self, id: NodeId, events: &[Event]) {
        let now = self.now;
        for event in events {
            self.trace.note(now, || format!("n{id} event {event:?}"));
            match event {
                Event::CeilingRaised { .. } => self.coverage.count(Kind::CeilingsRaised),
                Event::MembersChanged { .. } => self.coverage.count(Kind::MembersChanged),
                Event::Removed { .. } => self.coverage.count(Kind::Removed),
                Event::Created { range, .. } => self.range_seen(*range),
                Event::DescriptorChanged { .. } => self.coverage.count(Kind::Configured),
                Event::Frozen { .. } => self.coverage.count(Kind::Frozen),
                Event::Thawed { .. } => self.coverage.count(Kind::Thawed),
                Event::Absorbed { .. } => self.coverage.count(Kind::Absorbed),
                Event::Slept { .. } => self.coverage.count(Kind::Slept),
                _ => {}
            }
        }
    }

    fn effects(&mut self, id: NodeId, epoch: u64, effects: Vec<Effect>) -> Result<(), Violation> {
        for effect in effects {
            match effect {
                Effect::Reply(request, answer) => {
                    if let Answer::Read(timestamp, value) = answer {
                        self.watch.read(request.op, request.register, timestamp, value);
                    }
                    if let Some(process) = self.process(id, epoch) {
                        process.replies.push((request, answer));
                    }
                }
                Effect::Served { range, generation, sequence, timestamp, register } => {
                    self.watch.leased(id, epoch, range, sequence)?;
                    self.watch.served(range, sequence, timestamp)?;
                    if let Some(register) = register {
                        let server = Server { range, generation, lease: sequence };
                        self.watch.served_register(register, server, timestamp)?;
                    }
                }
                Effect::Evaluated(version) => self.watch.evaluated(version),
                Effect::Applied(op, version) => {
                    self.watch.applied(op, version)?;
                    self.record.applied(op).map_err(|detail| Violation::new("answers", detail))?;
                }
                Effect::Void(op) => {
                    self.record.void(op).map_err(|detail| Violation::new("answers", detail))?
                }
                Effect::Rejected => self.coverage.count(Kind::Rejected),
                Effect::Refused => self.coverage.count(Kind::Refused),
                Effect::Leased(range, sequence) => {
                    self.coverage.count(Kind::Leases);
                    self.watch.leased(id, epoch, range, sequence)?;
                }
                Effect::SubmitLater(range, proposal, delay) => {
                    self.coverage.count(Kind::SlowEvaluations);
                    self.after(delay, Happening::Submit(id, epoch, range, proposal));
                }
                Effect::Waited => self.coverage.count(Kind::Waits),
                Effect::Woken => self.coverage.count(Kind::Woken),
                Effect::Wrong(check, detail) => {
                    return Err(Violation::new(check, format!("node {id}: {detail}")));
                }
            }
        }
        Ok(())
    }

    /// Puts a message on the network.
    fn transmit(&mut self, envelope: Envelope) -> Result<(), Violation> {
        self.ending.sent(&envelope);
        if let Some(Payload::SnapshotChunk(chunk)) = &envelope.payload {
            if chunk.sequence == 0 {
                self.coverage.count(Kind::SnapshotsBegun);
            }
            if chunk.last {
                self.coverage.count(Kind::SnapshotsEnded);
            }
        }
        let now = self.now;
        match self.network.send((envelope.from, envelope.to), &mut self.rng) {
            Fate::Cut => {
                self.trace
                    .note(now, || format!("n{} -/ n{} {}", envelope.from, envelope.to, describe(&envelope)));
            }
            Fate::Lost => {
                self.coverage.count(Kind::Lost);
                self.trace
                    .note(now, || format!("n{} -? n{} {}", envelope.from, envelope.to, describe(&envelope)));
            }
            Fate::Arrives { delay, late, again } => {
                if late {
                    self.coverage.count(Kind::Delayed);
                }
                self.ending.arrives(now + again.unwrap_or(delay));
                if let Some(again) = again {
                    self.coverage.count(Kind::Duplicated);
                    self.after(again, Happening::Deliver(Box::new(envelope.clone())));
                }
                let arrives = if self.events.is_multiple_of(ENCODED) { travel(&envelope)? } else { envelope };
                self.after(delay, Happening::Deliver(Box::new(arrives)));
            }
        }
        Ok(())
    }
}

/// What a process wants its peers to know.
pub(super) fn note(id: NodeId, epoch: u64) -> Bytes {
    Bytes::from(format!("process {epoch} of node {id}"))
}

/// A message as it is when it has been encoded and decoded.
fn travel(envelope: &Envelope) -> Result<Envelope, Violation> {
    let decoded = Envelope::decode(&*envelope.encode_to_vec());
    decoded.map_err(|error| Violation::new("messages decode", error.to_string()))
}

/// A message in a few words.
fn describe(envelope: &Envelope) -> String {
    match &envelope.payload {
        Some(Payload::Raft(raft)) => {
            let kind = raft.message_type().map_or_else(|| raft.kind.to_string(), |kind| format!("{kind:?}"));
            format!(
                "{kind} term {} index {} (of term {}) entries {} commit {} reject {} support {}",
                raft.term,
                raft.index,
                raft.log_term,
                raft.entries.len(),
                raft.commit,
                raft.reject,
                envelope.support
            )
        }
        Some(Payload::SnapshotChunk(chunk)) => {
            format!("SnapshotChunk {} of transfer {}, last {}", chunk.sequence, chunk.transfer, chunk.last)
        }
        Some(payload) => format!("{payload:?} support {}", envelope.support),
        None => "nothing".to_owned(),
    }
}
