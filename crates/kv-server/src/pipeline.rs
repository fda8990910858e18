//! The pipeline: the clock, the order of commits, and the way of commands through the Raft log.
//!
//! # What it promises
//!
//! * It takes commands only while this node holds the lease of the range, and only those that were
//!   evaluated under that very lease.
//! * A command takes its timestamp and its place in the queue in one step, and commands are applied in
//!   queue order. So the engine always holds a prefix of the commit order, and a timestamp is *closed*,
//!   with everything at or below it applied, as soon as it is below the oldest command in flight.
//! * [`Pipeline::read_timestamp`] hands out closed timestamps only. Reading there waits for nothing and
//!   can never be changed by a later commit; and because a commit is acknowledged only after it has
//!   become closed, every read that starts afterwards sees it.
//! * Timestamps stay below the ceiling of the lease and above its floor ([`replication`]): time never goes
//!   back from one leaseholder to the next or across a restart, whatever the wall clocks do. An idle
//!   pipeline writes nothing.
//!
//! One thread, [`driver`], owns the replicas of the node: it proposes all commands it finds, persists them
//! with one sync, applies what is committed, and answers. While it syncs the next group gathers.
//!
//! # Missing
//!
//! There is one range, [`RANGE`], that holds all keys. With several, each has a lease, a queue and commands
//! in flight of its own; the driver and its one sync are for all of them already.

mod driver;
mod recovery;

pub use driver::{Status, Transport};

use crate::command::{Command, CommandError};
use driver::Driver;
use kv_api::timestamp::HybridClock;
use kv_api::{KvError, KvErrorKind, Timestamp};
use parking_lot::{Condvar, Mutex};
use replication::{Envelope, MemberChange, Millis, NodeId, RangeId, Sound, Store};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use storage::{Engine, StorageError};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};

/// The range that holds all keys.
pub const RANGE: RangeId = 1;

/// When the ceiling of the lease is this near it is raised.
const CEILING_NEAR_NS: u64 = 2_000_000_000;
/// Bytes one permit of the queue stands for.
const PERMIT_BYTES: usize = 1024;
/// Most messages from other nodes that wait to be taken in; more are dropped, which Raft puts up with.
const MAX_INBOX: usize = 1 << 14;

/// Who serves the range, as this node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// This node, under the lease with this sequence number.
    Leaseholder(u64),
    /// Not this node, but this one if it is known.
    Follower(Option<NodeId>),
}

struct Queued {
    command: Command,
    timestamp: Timestamp,
}

/// The lease while it can be used.
#[derive(Clone, Copy)]
struct Held {
    sequence: u64,
    ceiling: Timestamp,
    until: Millis,
}

/// Something asked of the driver besides commands.
enum Asked {
    ChangeMembers(MemberChange, oneshot::Sender<Result<(), KvError>>),
    TransferLease(NodeId, oneshot::Sender<Result<(), KvError>>),
    Status(oneshot::Sender<Status>),
    Watch(Vec<NodeId>),
}

struct State {
    clock: HybridClock,
    held: Option<Held>,
    queue: VecDeque<Queued>,
    /// Timestamps of ordered commands that are not applied yet.
    in_flight: BTreeSet<Timestamp>,
    inbox: Vec<Envelope>,
    asked: Vec<Asked>,
    wants_ceiling: bool,
    closing: bool,
}

struct Shared {
    state: Mutex<State>,
    ready: Condvar,
    space: Arc<Semaphore>,
    max_permits: usize,
    started: Instant,
    standing: watch::Sender<Standing>,
    /// Whether writes wait for space on the disk.
    disk_full: watch::Sender<bool>,
    /// Told once, when the engine failed in a way only a restart mends.
    broken: Notify,
}

/// What the node does before it serves under a new lease.
pub trait LeaseHook: Send + Sync {
    /// Forgets what was in memory under an earlier one.
    fn lease_acquired(&self);
}

/// The clock, the lease and the queue in front of the Raft log.
pub struct Pipeline {
    shared: Arc<Shared>,
    hook: Arc<Mutex<Option<Arc<dyn LeaseHook>>>>,
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
    /// Starts the driver of a node's replicas. At most `max_queued_bytes` of effects wait at a time.
    /// `store` opens the replicas at a time of the driver's clock.
    ///
    /// # Errors
    /// If the replicas cannot be opened or no thread can be started.
    pub fn start(
        engine: Arc<dyn Engine>,
        max_queued_bytes: usize,
        transport: Arc<dyn Transport>,
        store: impl FnOnce(Millis) -> Result<Store<Sound>, StorageError>,
    ) -> Result<Self, StorageError> {
        let max_permits = (max_queued_bytes / PERMIT_BYTES).max(1);
        let state = State {
            clock: HybridClock::default(),
            held: None,
            queue: VecDeque::new(),
            in_flight: BTreeSet::new(),
            inbox: Vec::new(),
            asked: Vec::new(),
            wants_ceiling: false,
            closing: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            ready: Condvar::new(),
            space: Arc::new(Semaphore::new(max_permits)),
            max_permits,
            started: Instant::now(),
            standing: watch::Sender::new(Standing::Follower(None)),
            disk_full: watch::Sender::new(false),
            broken: Notify::new(),
        });
        let hook = Arc::new(Mutex::new(None));
        let store = store(shared.millis())?;
        let mut driver = Driver::new(Arc::clone(&shared), Arc::clone(&hook), engine, store, transport);
        driver.begin()?;
        let thread = std::thread::Builder::new()
            .name("kv-raft".to_owned())
            .spawn(move || {
                let _ended = Ended(driver.shared());
                driver.run();
            })
            .map_err(|error| StorageError::Io(error.to_string()))?;
        Ok(Pipeline { shared, hook, thread: Mutex::new(Some(thread)) })
    }

    /// Sets what is done before the node serves under a new lease.
    pub fn set_hook(&self, hook: Arc<dyn LeaseHook>) {
        *self.hook.lock() = Some(hook);
    }

    /// Who serves the range, now and from now on.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.shared.standing.subscribe()
    }

    /// The sequence number of the lease, for as long as it is this node's.
    ///
    /// # Errors
    /// [`KvErrorKind::NotLeaseholder`] if it is not.
    pub fn lease(&self) -> Result<u64, KvError> {
        let state = self.shared.state.lock();
        self.shared.held(&state).map(|held| held.sequence)
    }

    /// A closed timestamp at or above every commit acknowledged so far.
    ///
    /// # Errors
    /// As for [`Pipeline::lease`].
    pub fn read_timestamp(&self) -> Result<Timestamp, KvError> {
        let mut state = self.shared.state.lock();
        self.shared.held(&state)?;
        match state.in_flight.first() {
            Some(oldest) => Ok(before(*oldest)),
            None => self.shared.now(&mut state),
        }
    }

    /// The largest closed timestamp that may have been handed out.
    ///
    /// # Errors
    /// As for [`Pipeline::lease`].
    pub fn closed(&self) -> Result<Timestamp, KvError> {
        let state = self.shared.state.lock();
        self.shared.held(&state)?;
        Ok(state.in_flight.first().map_or(state.clock.latest(), |oldest| before(*oldest)))
    }

    /// The time by which history is kept. A leaseholder's is that of the timestamps it has handed out, which
    /// stands still while nobody asks; elsewhere it is the wall clock's.
    pub fn history_clock(&self) -> Timestamp {
        match *self.shared.standing.borrow() {
            Standing::Leaseholder(_) => self.shared.state.lock().clock.latest(),
            Standing::Follower(_) => Timestamp::new(physical_ns(), 0),
        }
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
    /// If the node shuts down, its disk is full, or it no longer holds the lease under which the command
    /// was evaluated; then nothing happens and `done` is never called.
    pub fn submit(&self, command: Command) -> Result<Timestamp, KvError> {
        let mut state = self.shared.state.lock();
        if state.closing {
            return Err(shutting_down());
        }
        if self.shared.held(&state)?.sequence != command.lease {
            return Err(not_leaseholder());
        }
        if *self.shared.disk_full.borrow() {
            return Err(no_space());
        }
        let timestamp = if command.ordered { self.shared.now(&mut state)? } else { Timestamp::MIN };
        if command.ordered {
            state.in_flight.insert(timestamp);
        }
        state.queue.push_back(Queued { command, timestamp });
        if state.queue.len() == 1 {
            self.shared.ready.notify_one();
        }
        Ok(timestamp)
    }

    /// Takes in messages from other nodes.
    pub fn receive(&self, mut envelopes: Vec<Envelope>) {
        let mut state = self.shared.state.lock();
        let room = MAX_INBOX.saturating_sub(state.inbox.len());
        envelopes.truncate(room);
        state.inbox.append(&mut envelopes);
        self.shared.ready.notify_one();
    }

    /// Changes the members of the range.
    ///
    /// # Errors
    /// If this node does not hold the lease, or another change is under way.
    pub async fn change_members(&self, change: MemberChange) -> Result<(), KvError> {
        self.ask(|answer| Asked::ChangeMembers(change, answer)).await?
    }

    /// Hands the lease to another node. The new leaseholder may not be there yet when this returns.
    ///
    /// # Errors
    /// If this node does not hold it, or the other cannot take it.
    pub async fn transfer_lease(&self, to: NodeId) -> Result<(), KvError> {
        self.ask(|answer| Asked::TransferLease(to, answer)).await?
    }

    /// How the range and the other nodes are doing.
    ///
    /// # Errors
    /// When the node shuts down.
    pub async fn status(&self) -> Result<Status, KvError> {
        self.ask(Asked::Status).await
    }

    /// Asks the nodes of the cluster for signs of life, so that [`Status::silent`] tells of them.
    pub fn watch_nodes(&self, nodes: Vec<NodeId>) {
        let mut state = self.shared.state.lock();
        state.asked.push(Asked::Watch(nodes));
        self.shared.ready.notify_one();
    }

    async fn ask<T>(&self, asked: impl FnOnce(oneshot::Sender<T>) -> Asked) -> Result<T, KvError> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.shared.state.lock();
            if state.closing {
                return Err(shutting_down());
            }
            state.asked.push(asked(sender));
            self.shared.ready.notify_one();
        }
        receiver.await.map_err(|_| shutting_down())
    }

    /// Returns when writes have waited for space on the disk for so long that whoever waits for one should
    /// be told.
    pub async fn disk_full_for(&self, patience: Duration) {
        let mut disk_full = self.shared.disk_full.subscribe();
        loop {
            // The sender lives as long as `self`.
            let _ = disk_full.wait_for(|full| *full).await;
            if tokio::time::timeout(patience, disk_full.wait_for(|full| !*full)).await.is_err() {
                return;
            }
        }
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
            tracing::error!("the replication thread ended abnormally");
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

fn no_space() -> KvError {
    StorageError::DiskFull("writes wait for space".to_owned()).into()
}

/// For what was certainly not carried out: clients send it again, elsewhere.
fn not_leaseholder() -> KvError {
    KvError::not_leaseholder(None)
}

impl Shared {
    fn millis(&self) -> Millis {
        Millis::try_from(self.started.elapsed().as_millis()).unwrap_or(Millis::MAX)
    }

    fn held(&self, state: &State) -> Result<Held, KvError> {
        match state.held {
            Some(held) if self.millis() < held.until => Ok(held),
            _ => Err(not_leaseholder()),
        }
    }

    fn now(&self, state: &mut State) -> Result<Timestamp, KvError> {
        let ceiling = self.held(state)?.ceiling;
        let physical = physical_ns();
        if physical.saturating_add(CEILING_NEAR_NS) >= ceiling.wall_ns && !state.wants_ceiling {
            state.wants_ceiling = true;
            self.ready.notify_one();
        }
        // At the ceiling the clock stands still but for its logical part; a full disk, on which the ceiling
        // cannot be raised, must not stop reads.
        let now = state.clock.now(physical.min(ceiling.wall_ns.saturating_sub(1)));
        if now < ceiling { Ok(now) } else { Err(not_leaseholder()) }
    }
}

/// Whatever ends the driver, nobody goes on as if it ran: the node fails, and is started again.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        let asked_to = {
            let mut state = self.0.state.lock();
            state.held = None;
            std::mem::replace(&mut state.closing, true)
        };
        self.0.standing.send_replace(Standing::Follower(None));
        if !asked_to {
            self.0.broken.notify_one();
        }
    }
}

/// What the answer to a command's failure is.
impl From<CommandError> for KvError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Storage(error) => error.into(),
            CommandError::Rejected => not_leaseholder(),
            CommandError::NoSpace => no_space(),
            CommandError::Unknown => {
                KvError::new(KvErrorKind::Ambiguous, "the lease was lost while the transaction was committed")
            }
        }
    }
}

#[cfg(test)]
mod tests;
