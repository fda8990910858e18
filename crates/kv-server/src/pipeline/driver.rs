//! The thread that owns the node's replicas.

use super::recovery::Recovery;
use super::{Asked, Held, LeaseHook, Queued, RANGE, Shared, Standing, physical_ns};
use crate::command::CommandError;
use crate::metrics::metrics;
use kv_api::{KvError, KvErrorKind, Timestamp};
use parking_lot::Mutex;
use replication::config::TICK_MS;
use replication::{
    Envelope, Event, GroupStatus, LeaseView, Millis, NodeId, Proposal, ReplicationError, Sound, Store,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use storage::{Engine, StorageError, WriteBatch};

/// How far the ceiling of the lease is raised above the clock.
const CEILING_AHEAD_NS: u64 = 5_000_000_000;
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

/// How the range and the other nodes are doing, as this one sees it.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The replica here, if there is one.
    pub group: Option<GroupStatus>,
    /// For each other node that was ever heard, how long ago that was, in milliseconds.
    pub silent: BTreeMap<NodeId, Millis>,
}

fn storage_error(error: ReplicationError) -> StorageError {
    match error {
        ReplicationError::Storage(error) => error,
        other => StorageError::Io(other.to_string()),
    }
}

/// The driver of a [`Store`].
pub(super) struct Driver {
    shared: Arc<Shared>,
    hook: Arc<Mutex<Option<Arc<dyn LeaseHook>>>>,
    engine: Arc<dyn Engine>,
    store: Store<Sound>,
    transport: Arc<dyn Transport>,
    next_tick: Millis,
    next_id: u64,
    pending: BTreeMap<u64, Queued>,
    /// The lease that was acquired, and what is still to be done before it is used.
    acquired: Option<u64>,
    recovery: Recovery,
    ceiling_asked: bool,
    disk_was_full: bool,
}

/// What there is to do.
struct Work {
    queue: Vec<Queued>,
    inbox: Vec<Envelope>,
    asked: Vec<Asked>,
    wants_ceiling: bool,
    closing: bool,
}

impl Driver {
    pub fn new(
        shared: Arc<Shared>,
        hook: Arc<Mutex<Option<Arc<dyn LeaseHook>>>>,
        engine: Arc<dyn Engine>,
        store: Store<Sound>,
        transport: Arc<dyn Transport>,
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
            acquired: None,
            recovery: Recovery::default(),
            ceiling_asked: false,
            disk_was_full: false,
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
            let work = self.wait();
            let closing = work.closing;
            if let Err(error) = self.turn(work) {
                tracing::error!("replication failed, the node must restart: {error}");
                self.fail(&storage_error(error));
                return;
            }
            let settled = self.pending.is_empty() && self.shared.state.lock().queue.is_empty();
            if closing && (settled || self.store.is_stalled() || self.acquired.is_none()) {
                self.lease_lost(None);
                return;
            }
        }
    }

    fn tick_interval(&self) -> Millis {
        if self.store.is_stalled() {
            return DISK_FULL_TICK_MS;
        }
        let alone = self
            .store
            .status(RANGE)
            .is_some_and(|group| group.members.all() == [self.store.node()] && group.quiet);
        if alone { LONE_TICK_MS } else { TICK_MS }
    }

    /// Waits for something to do and takes as many commands as fit into a group.
    fn wait(&mut self) -> Work {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.lock();
        loop {
            let now = self.shared.millis();
            let idle = state.queue.is_empty()
                && state.inbox.is_empty()
                && state.asked.is_empty()
                && (self.ceiling_asked || !state.wants_ceiling)
                && !state.closing;
            if !idle || self.store.has_work() || now >= self.next_tick {
                break;
            }
            shared.ready.wait_for(&mut state, Duration::from_millis(self.next_tick - now));
        }
        drop(state);
        self.take()
    }

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
            wants_ceiling: state.wants_ceiling,
            closing: state.closing,
        }
    }

    fn turn(&mut self, work: Work) -> Result<(), ReplicationError> {
        let now = self.shared.millis();
        for envelope in work.inbox {
            self.store.step(now, envelope);
        }
        if now >= self.next_tick {
            self.store.tick(now);
            self.next_tick = now + self.tick_interval();
        }
        if !work.queue.is_empty() {
            metrics().group_commands.observe(work.queue.len() as f64);
        }
        for queued in work.queue {
            self.propose(now, queued);
        }
        if work.wants_ceiling {
            self.raise_ceiling(now);
        }
        for asked in work.asked {
            self.answer(now, asked);
        }
        let transport = &self.transport;
        let send =
            |messages: &mut Vec<Envelope>| messages.drain(..).for_each(|message| transport.send(message));
        let events = self.store.process_with(now, send)?;
        for event in events {
            self.happened(now, event)?;
        }
        for envelope in self.store.take_messages() {
            self.transport.send(envelope);
        }
        self.publish();
        Ok(())
    }

    fn propose(&mut self, now: Millis, queued: Queued) {
        let id = self.next_id;
        self.next_id += 1;
        let mut batch = WriteBatch::new();
        let encoded = queued.command.effects.encode(queued.timestamp, &mut batch);
        let proposal = Proposal { id, range: RANGE, lease_sequence: queued.command.lease, batch };
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

    fn finish(&self, queued: Queued, result: Result<(), CommandError>) {
        let Queued { command, timestamp } = queued;
        if let (Ok(()), Some(before_visible)) = (&result, command.before_visible) {
            before_visible(timestamp);
        }
        if command.ordered {
            self.shared.state.lock().in_flight.remove(&timestamp);
        }
        (command.done)(result.map(|()| timestamp));
    }

    fn raise_ceiling(&mut self, now: Millis) {
        if self.ceiling_asked || self.acquired.is_none() {
            return;
        }
        let latest = self.shared.state.lock().clock.latest().wall_ns.max(physical_ns());
        let ceiling = Timestamp::new(latest.saturating_add(CEILING_AHEAD_NS), 0);
        self.ceiling_asked = self.store.extend_ceiling(now, RANGE, ceiling).is_ok();
    }

    fn answer(&mut self, now: Millis, asked: Asked) {
        let refused = |error: ReplicationError| KvError::new(KvErrorKind::Unavailable, error.to_string());
        // Who asked may be gone.
        match asked {
            Asked::ChangeMembers(change, answer) => {
                let _ = answer.send(self.store.change_members(now, RANGE, change).map_err(refused));
            }
            Asked::TransferLease(to, answer) => {
                let _ = answer.send(self.store.transfer_leader(now, RANGE, to).map_err(refused));
            }
            Asked::Status(answer) => {
                let group = self.store.status(RANGE);
                let silent = self.store.liveness().silences(now).collect();
                let _ = answer.send(Status { group, silent });
            }
            Asked::Watch(nodes) => self.store.watch_nodes(nodes.into_iter()),
        }
    }

    fn happened(&mut self, now: Millis, event: Event) -> Result<(), ReplicationError> {
        match event {
            Event::Applied { id, .. } => {
                if let Some(queued) = self.pending.remove(&id) {
                    self.finish(queued, Ok(()));
                } else if self.recovery.is(id) {
                    self.recover(now)?;
                }
            }
            Event::Rejected { id, .. } => {
                if let Some(queued) = self.pending.remove(&id) {
                    self.finish(queued, Err(CommandError::Rejected));
                }
            }
            Event::LeaseAcquired { sequence, floor, .. } => {
                tracing::info!(sequence, "this node holds the lease of the range");
                self.shared.state.lock().clock.observe(floor);
                self.acquired = Some(sequence);
                self.ceiling_asked = false;
                self.recovery = Recovery::default();
                let hook = self.hook.lock().clone();
                if let Some(hook) = hook {
                    hook.lease_acquired();
                }
                self.raise_ceiling(now);
                self.recover(now)?;
            }
            Event::LeaseLost { .. } => {
                tracing::info!("this node no longer holds the lease of the range");
                let leader = match self.store.lease(RANGE, now) {
                    LeaseView::Elsewhere { leader } => leader,
                    LeaseView::Held { .. } => None,
                };
                self.lease_lost(leader);
            }
            Event::CeilingRaised { .. } => {
                self.ceiling_asked = false;
                self.shared.state.lock().wants_ceiling = false;
            }
            Event::MembersChanged { members, .. } => {
                tracing::info!(voters = ?members.voters, learners = ?members.learners, "the members of the range changed");
            }
            Event::Removed { .. } => tracing::info!("this node no longer has a replica"),
        }
        Ok(())
    }

    /// Settles what transactions of the last leaseholder have left, a piece at a time.
    fn recover(&mut self, now: Millis) -> Result<(), ReplicationError> {
        let Some(sequence) = self.acquired else { return Ok(()) };
        if let Some(batch) = self.recovery.next(&*self.engine)? {
            let id = self.next_id;
            self.next_id += 1;
            let proposal = Proposal { id, range: RANGE, lease_sequence: sequence, batch };
            // If it is refused the lease is gone, and the next holder begins again.
            if self.store.propose(now, proposal).is_ok() {
                self.recovery.proposed(id);
            }
        }
        Ok(())
    }

    /// Lets requests in, or not, as the lease now stands.
    fn publish(&mut self) {
        let now = self.shared.millis();
        let view = self.store.lease(RANGE, now);
        let disk_full = self.store.is_stalled();
        if disk_full != self.disk_was_full {
            self.disk_was_full = disk_full;
            if disk_full {
                tracing::error!("the disk is full, writes wait");
            } else {
                tracing::info!("there is space on the disk again");
            }
        }
        self.shared.disk_full.send_if_modified(|known| std::mem::replace(known, disk_full) != disk_full);
        let mut state = self.shared.state.lock();
        match (view, self.acquired) {
            (LeaseView::Held { sequence, ceiling, until }, Some(acquired))
                if sequence == acquired && self.recovery.is_complete() && ceiling > state.clock.latest() =>
            {
                state.held = Some(Held { sequence, ceiling, until });
                drop(state);
                self.stand(Standing::Leaseholder(sequence));
            }
            // Without a majority's support for the moment; what was held ends by itself.
            (_, Some(_)) => {}
            (LeaseView::Elsewhere { leader }, None) => {
                drop(state);
                self.stand(Standing::Follower(leader));
            }
            (LeaseView::Held { .. }, None) => {}
        }
    }

    fn stand(&self, standing: Standing) {
        self.shared.standing.send_if_modified(|known| {
            let changed = *known != standing;
            *known = standing;
            changed
        });
    }

    fn lease_lost(&mut self, leader: Option<NodeId>) {
        self.acquired = None;
        self.recovery = Recovery::default();
        let queue = {
            let mut state = self.shared.state.lock();
            state.held = None;
            state.wants_ceiling = false;
            std::mem::take(&mut state.queue)
        };
        self.ceiling_asked = false;
        for queued in queue {
            self.finish(queued, Err(CommandError::Rejected));
        }
        // They may be applied yet, or not.
        for (_, queued) in std::mem::take(&mut self.pending) {
            self.finish(queued, Err(CommandError::Unknown));
        }
        self.stand(Standing::Follower(leader));
    }

    fn fail(&mut self, error: &StorageError) {
        let queue = {
            let mut state = self.shared.state.lock();
            state.held = None;
            state.closing = true;
            std::mem::take(&mut state.queue)
        };
        for queued in queue {
            self.finish(queued, Err(CommandError::Rejected));
        }
        for (_, queued) in std::mem::take(&mut self.pending) {
            self.finish(queued, Err(CommandError::Storage(error.clone())));
        }
        self.stand(Standing::Follower(None));
        self.shared.broken.notify_one();
    }
}
