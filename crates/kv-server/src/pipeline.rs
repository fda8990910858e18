//! The pipeline: the one clock, the order of commits, and group commit.
//!
//! # What it promises
//!
//! * A command takes its timestamp and its place in the queue in one step, and commands are applied in
//!   queue order. So the engine always holds a prefix of the commit order, and a timestamp is *closed*,
//!   with everything at or below it applied, as soon as it is below the oldest command in flight.
//! * [`Pipeline::read_timestamp`] hands out closed timestamps only. Reading there waits for nothing and
//!   can never be changed by a later commit; and because a commit is acknowledged only after it has
//!   become closed, every read that starts afterwards sees it.
//! * One thread drains the queue, makes one engine batch of all it finds, and syncs once if any of them
//!   asks for it. While it syncs the next group gathers.
//! * Timestamps stay below a durable floor, and the next run of the store starts above it: time never
//!   goes back, whatever the wall clock does. An idle pipeline writes nothing.
//!
//! # Missing
//!
//! With several ranges each has a queue of its own, and one sync serves the groups of all of them.

use crate::command::{Command, Done};
use crate::metrics::metrics;
use kv_api::timestamp::HybridClock;
use kv_api::{KvError, KvErrorKind, Timestamp};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};
use storage::{Engine, StorageError, StorageResult, WriteBatch, ident};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// How far the durable floor is moved ahead of the clock.
const FLOOR_AHEAD_NS: u64 = 20_000_000_000;
/// Most bytes of effects in one group.
const MAX_GROUP_BYTES: usize = 4 << 20;
/// Most commands in one group.
const MAX_GROUP_LEN: usize = 1024;
/// Bytes one permit of the queue stands for.
const PERMIT_BYTES: usize = 1024;

struct Queued {
    command: Command,
    timestamp: Timestamp,
}

struct State {
    clock: HybridClock,
    /// No timestamp at or above this has been handed out; durable.
    floor: Timestamp,
    queue: VecDeque<Queued>,
    /// Timestamps of ordered commands that are not applied yet, ascending.
    in_flight: VecDeque<Timestamp>,
    closing: bool,
}

struct Shared {
    engine: Arc<dyn Engine>,
    state: Mutex<State>,
    ready: Condvar,
    space: Arc<Semaphore>,
    max_permits: usize,
    /// Whether the last write failed for want of space; said once when it begins and when it ends.
    disk_full: AtomicBool,
    /// Told once, when the engine failed in a way only a restart mends.
    broken: Notify,
}

/// The clock and queue in front of an engine.
pub struct Pipeline {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

fn physical_ns() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

/// The largest timestamp below another.
fn before(timestamp: Timestamp) -> Timestamp {
    match timestamp.logical.checked_sub(1) {
        Some(logical) => Timestamp::new(timestamp.wall_ns, logical),
        None => Timestamp::new(timestamp.wall_ns.saturating_sub(1), u32::MAX),
    }
}

impl Pipeline {
    /// Starts the apply thread of an engine. At most `max_queued_bytes` of effects wait at a time.
    ///
    /// # Errors
    /// If the durable floor of the clock cannot be read or written, or no thread can be started.
    pub fn start(engine: Arc<dyn Engine>, max_queued_bytes: usize) -> StorageResult<Self> {
        let floor = ident::clock_floor(&*engine)?;
        let max_permits = (max_queued_bytes / PERMIT_BYTES).max(1);
        let state = State {
            clock: HybridClock::starting_after(floor),
            floor,
            queue: VecDeque::new(),
            in_flight: VecDeque::new(),
            closing: false,
        };
        let shared = Arc::new(Shared {
            engine,
            state: Mutex::new(state),
            ready: Condvar::new(),
            space: Arc::new(Semaphore::new(max_permits)),
            max_permits,
            disk_full: AtomicBool::new(false),
            broken: Notify::new(),
        });
        shared.extend_floor(&mut shared.state.lock())?;
        let applier = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("kv-apply".to_owned())
            .spawn(move || applier.run())
            .map_err(|error| StorageError::Io(error.to_string()))?;
        Ok(Pipeline { shared, thread: Mutex::new(Some(thread)) })
    }

    /// A closed timestamp at or above every commit acknowledged so far.
    pub fn read_timestamp(&self) -> Timestamp {
        let mut state = self.shared.state.lock();
        match state.in_flight.front() {
            Some(oldest) => before(*oldest),
            None => self.shared.now(&mut state),
        }
    }

    /// The largest closed timestamp that may have been handed out.
    pub fn closed(&self) -> Timestamp {
        let state = self.shared.state.lock();
        state.in_flight.front().map_or(state.clock.latest(), |oldest| before(*oldest))
    }

    /// Waits until the queue has room for a command of about `bytes` bytes, which the permit then
    /// stands for until it is dropped.
    ///
    /// # Errors
    /// When the node shuts down.
    pub async fn reserve(&self, bytes: usize) -> Result<OwnedSemaphorePermit, KvError> {
        // A command larger than the whole queue takes all of it.
        let permits = (bytes / PERMIT_BYTES + 1).min(self.shared.max_permits);
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        Arc::clone(&self.shared.space).acquire_many_owned(permits).await.map_err(|_| shutting_down())
    }

    /// Gives a command its place in the order and returns its timestamp; its `done` is called once it
    /// is applied or failed.
    ///
    /// # Errors
    /// If the node shuts down; then `done` is never called.
    pub fn submit(&self, command: Command) -> Result<Timestamp, KvError> {
        let mut state = self.shared.state.lock();
        if state.closing {
            return Err(shutting_down());
        }
        let timestamp = if command.ordered { self.shared.now(&mut state) } else { Timestamp::MIN };
        if command.ordered {
            state.in_flight.push_back(timestamp);
        }
        state.queue.push_back(Queued { command, timestamp });
        if state.queue.len() == 1 {
            self.shared.ready.notify_one();
        }
        Ok(timestamp)
    }

    /// Returns when the engine has failed in a way only a restart mends.
    pub async fn broken(&self) {
        self.shared.broken.notified().await;
    }

    /// Applies what is queued, refuses more, and ends the thread. Blocks.
    pub fn close(&self) {
        self.shared.space.close();
        self.shared.state.lock().closing = true;
        self.shared.ready.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the apply thread ended abnormally");
        }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.close();
    }
}

fn shutting_down() -> KvError {
    KvError::new(KvErrorKind::Unavailable, "the KV node is shutting down")
}

impl Shared {
    fn now(&self, state: &mut State) -> Timestamp {
        let physical = physical_ns();
        if physical >= state.floor.wall_ns
            && let Err(error) = self.extend_floor(state)
        {
            // The clock then stands still but for its logical part, which keeps it below the floor;
            // a full disk must not stop reads.
            tracing::debug!("the clock's floor cannot be moved: {error}");
            return state.clock.now(0);
        }
        state.clock.now(physical)
    }

    fn extend_floor(&self, state: &mut State) -> StorageResult<()> {
        let wall_ns = state.clock.latest().wall_ns.max(physical_ns()).saturating_add(FLOOR_AHEAD_NS);
        let floor = Timestamp::new(wall_ns, 0);
        let mut batch = WriteBatch::new();
        ident::put_clock_floor(&mut batch, floor);
        self.engine.write(&batch, true)?;
        state.floor = floor;
        Ok(())
    }

    fn run(&self) {
        let mut batch = WriteBatch::new();
        let mut group: Vec<Queued> = Vec::new();
        while self.next_group(&mut group) {
            self.apply(&mut group, &mut batch);
        }
    }

    /// Waits for commands and takes as many as fit into a group; false when there will be none.
    fn next_group(&self, group: &mut Vec<Queued>) -> bool {
        let mut state = self.state.lock();
        while state.queue.is_empty() {
            if state.closing {
                return false;
            }
            self.ready.wait(&mut state);
        }
        let mut bytes = 0;
        while group.len() < MAX_GROUP_LEN && bytes < MAX_GROUP_BYTES {
            let Some(queued) = state.queue.pop_front() else { break };
            bytes += queued.command.effects.byte_len();
            group.push(queued);
        }
        true
    }

    fn apply(&self, group: &mut Vec<Queued>, batch: &mut WriteBatch) {
        let ordered = group.iter().filter(|queued| queued.command.ordered).count();
        let sync = group.iter().any(|queued| queued.command.sync);
        let written = self.write(group, batch, sync);
        metrics().group_commands.observe(group.len() as f64);
        let mut finished: Vec<(Timestamp, Done)> = Vec::with_capacity(group.len());
        for Queued { command, timestamp } in group.drain(..) {
            if let (Ok(()), Some(before_visible)) = (&written, command.before_visible) {
                before_visible(timestamp);
            }
            finished.push((timestamp, command.done));
        }
        {
            let mut state = self.state.lock();
            state.in_flight.drain(..ordered);
        }
        for (timestamp, done) in finished {
            done(written.clone().map(|()| timestamp));
        }
    }

    fn write(&self, group: &[Queued], batch: &mut WriteBatch, sync: bool) -> StorageResult<()> {
        batch.clear(MAX_GROUP_BYTES);
        let result = group
            .iter()
            .try_for_each(|queued| queued.command.effects.encode(queued.timestamp, batch))
            .and_then(|()| self.engine.write(batch, sync));
        match &result {
            Ok(()) => {
                if self.disk_full.load(Ordering::Relaxed) {
                    self.disk_full.store(false, Ordering::Relaxed);
                    tracing::info!("there is space on the disk again");
                }
            }
            Err(StorageError::DiskFull(message)) => {
                if !self.disk_full.swap(true, Ordering::Relaxed) {
                    tracing::error!("the disk is full, writes are refused: {message}");
                }
            }
            Err(error) => {
                tracing::error!(commands = group.len(), "the engine failed, the node must restart: {error}");
                self.broken.notify_one();
            }
        }
        result
    }
}

#[cfg(test)]
mod tests;
