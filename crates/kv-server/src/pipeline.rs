//! The pipeline: the clock, the order of commits, and the way of commands through the Raft log.
//!
//! # What it promises
//!
//! * It takes commands for a range only while this node holds its lease, and only those that were
//!   evaluated under that very lease.
//! * A command takes its timestamp and its place in the queue in one step, and commands are applied in
//!   queue order. So the engine always holds a prefix of the commit order, and a timestamp is *closed*,
//!   with everything at or below it applied, as soon as it is below the oldest command in flight.
//! * [`Pipeline::read_timestamp`] hands out closed timestamps only. Reading there waits for nothing and
//!   can never be changed by a later commit; and because a commit is acknowledged only after it has
//!   become closed, every read that starts afterwards sees it.
//! * A wall clock that jumps is not followed at once ([`crate::steady`]), and a node whose wall clock most others
//!   contradict stops itself ([`crate::clock_check`]).
//! * Timestamps stay below the ceiling of the lease and above its floor ([`replication`]): time never goes
//!   back from one leaseholder to the next or across a restart, whatever the wall clocks do. An idle
//!   pipeline writes nothing.
//!
//! One thread, [`driver`], owns the replicas of the node: it proposes all commands it finds, persists them
//! with one sync, applies what is committed, and answers. While it syncs the next group gathers.
//!
//! # Ranges
//!
//! Every range that is awake here has a clock, a lease and commands in flight of its own; the queue, the
//! driver and its one sync are for all of them. A range that sleeps takes no memory here:
//! [`Pipeline::ready`] wakes it.

mod ahead;
mod driver;
mod landings;
mod recovery;
mod standing;
mod stepped;

pub use ahead::Promised;
pub use driver::{
    Absorption, Change, FreezeFor, NodesStatus, Overview, SplitAt, Status, Surveyed, Transport,
};
pub use stepped::{Due, Stepped};

use crate::clock_check::{ClockCheck, Moment, TooFar};
use crate::command::{Command, CommandError, Order};
use crate::environment::Environment;
use crate::faults::Bug;
use crate::steady::SteadyClock;
use bytes::Bytes;
use driver::Driver;
use hashbrown::HashMap;
use kv_api::timestamp::{HybridClock, MAX_CLOCK_OFFSET_NS};
use kv_api::{KvError, KvErrorKind, Span, Timestamp};
use landings::{Landing, Landings};
use parking_lot::{Condvar, Mutex};
use replication::command::Freeze;
use replication::{Envelope, MemberChange, Millis, NodeId, RangeDescriptor, RangeId, Sound, Store};
use standing::{Decided, Watched};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use storage::txn_record::TxnRecord;
use storage::{Engine, StorageError, StorageResult, WriteBatch};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};

/// The range of the cluster's own keys.
pub const ROOT: RangeId = 1;

/// Bits of a lease's name that are its sequence number; those above count splits and merges.
const SEQUENCE_BITS: u32 = 48;
/// How far the ceiling of a lease is raised above the wall clock. The next lease begins there, so the clock of a
/// range may be that far ahead of the wall clock.
const CEILING_AHEAD_NS: u64 = 5_000_000_000;
/// How far it is at least above the clock of the range, where that is ahead of the wall clock already.
const CEILING_SLACK_NS: u64 = 200_000_000;
/// How far ahead of the wall clock a timestamp may be that comes from elsewhere.
const MAX_AHEAD_NS: u64 = CEILING_AHEAD_NS + MAX_CLOCK_OFFSET_NS + 2 * CEILING_SLACK_NS;
/// When the ceiling of the lease is this near it is raised.
const CEILING_NEAR_NS: u64 = 2_000_000_000;
/// Pause before it is looked again whether a lease that was just won can be used.
const SETTLE_PAUSE: Duration = Duration::from_millis(5);
/// Bytes one permit of the queue stands for.
const PERMIT_BYTES: usize = 1024;
/// Most messages from other nodes that wait to be taken in; more are dropped, which Raft puts up with.
const MAX_INBOX: usize = 1 << 14;

/// Who serves a range, as this node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// This node, under the lease with this sequence number.
    Leaseholder(u64),
    /// Not this node, but this one if it is known.
    Follower(Option<NodeId>),
}

/// The sequence number of the lease that [`Pipeline::lease`] names: what of it stays the same when the range is
/// split or merged.
pub fn sequence_of(lease: u64) -> u64 {
    lease & ((1 << SEQUENCE_BITS) - 1)
}

/// Work that was done in a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Batches that were carried out, or begun.
    pub batches: u64,
    /// Bytes of versions that were written.
    pub written: u64,
}

struct Queued {
    command: Command,
    timestamp: Timestamp,
    /// Size of the versions that it writes, once it is proposed.
    bytes: usize,
}

/// A range that is awake here.
struct RangeState {
    /// Its keys.
    span: Span,
    clock: HybridClock,
    held: Option<Held>,
    /// How often its keys have become others since it woke.
    changes: u64,
    /// Timestamps of ordered commands that are not applied yet.
    in_flight: BTreeSet<Timestamp>,
    /// Told whenever one of them no longer is in flight.
    landed: Landings,
    wants_ceiling: bool,
    /// A timestamp that the ceiling is to be above.
    wanted: Timestamp,
    /// Whether it is read everywhere, and its clock kept ahead for that.
    ahead: Option<ahead::Ahead>,
    /// The largest timestamp at which something was, or may have been, written in it.
    written: Timestamp,
    /// Whether anything was asked of it since the driver looked.
    used: bool,
    /// Work since it was counted last.
    load: Load,
    /// The last entry known to be applied whose effects can be read here; absent while what is here is not
    /// the state as of any entry.
    applied: Option<u64>,
    /// Why it is not served although the lease is here: what the last leaseholder left cannot be read.
    damaged: Option<StorageError>,
    standing: Decided,
}

impl RangeState {
    fn new(span: Span) -> Self {
        RangeState {
            span,
            applied: None,
            damaged: None,
            clock: HybridClock::default(),
            held: None,
            changes: 0,
            in_flight: BTreeSet::new(),
            landed: Landings::default(),
            wants_ceiling: false,
            wanted: Timestamp::MIN,
            ahead: None,
            written: Timestamp::MAX,
            used: true,
            load: Load::default(),
            standing: Decided::new(Standing::Follower(None)),
        }
    }

    /// The name of its lease, which is another after a split or merge.
    fn lease(&self, held: Held) -> u64 {
        (self.changes << SEQUENCE_BITS) | sequence_of(held.sequence)
    }

    fn stand(&self, standing: Standing) {
        self.standing.set(standing);
    }
}

/// Why a range is not served here.
#[derive(Clone, Debug, PartialEq)]
pub enum Absent {
    /// There is no replica of it here.
    NoReplica,
    /// Another node holds its lease, if anybody does.
    Elsewhere(Option<NodeId>),
    /// What is here cannot be read.
    Damaged(StorageError),
    /// The node shuts down.
    Closing,
}

/// The lease while it can be used.
#[derive(Clone, Copy)]
struct Held {
    sequence: u64,
    ceiling: Timestamp,
    until: Millis,
}

/// What came of waking a range: who serves it from now on, unless there is no replica.
type Woken = Result<Option<Watched>, StorageError>;

/// Something asked of the driver besides commands.
enum Asked {
    Covering(Bytes, oneshot::Sender<Option<RangeId>>),
    Wake(RangeId, oneshot::Sender<Woken>),
    ChangeMembers(RangeId, MemberChange, oneshot::Sender<Result<(), KvError>>),
    TransferLease(RangeId, NodeId, oneshot::Sender<Result<(), KvError>>),
    Change(RangeId, Change, oneshot::Sender<Result<(), KvError>>),
    Frozen(oneshot::Sender<Vec<(RangeDescriptor, Freeze)>>),
    Overview(RangeId, oneshot::Sender<Result<(Option<Watched>, Overview), StorageError>>),
    Statuses(Vec<RangeId>, oneshot::Sender<Vec<Status>>),
    Nodes(oneshot::Sender<NodesStatus>),
    Held(oneshot::Sender<Vec<RangeId>>),
    Configured(oneshot::Sender<Vec<RangeDescriptor>>),
    Survey(RangeId, usize, oneshot::Sender<Vec<Surveyed>>),
    /// To be told when an entry of a range is applied here.
    Reached(RangeId, u64, oneshot::Sender<bool>),
    Destroy(RangeId, oneshot::Sender<Result<(), KvError>>),
    Note(Bytes),
    Watch(Vec<NodeId>),
    /// What is remembered of transactions in these ranges is to be forgotten, where their leases are not held here.
    Forget(Vec<RangeId>),
}

struct State {
    steady: SteadyClock,
    ranges: HashMap<RangeId, RangeState>,
    queue: VecDeque<Queued>,
    inbox: Vec<Envelope>,
    asked: Vec<Asked>,
    /// Ranges whose leases need a higher ceiling.
    ceilings: Vec<RangeId>,
    closing: bool,
}

struct Shared {
    state: Mutex<State>,
    ready: Signal,
    space: Arc<Semaphore>,
    max_permits: usize,
    environment: Environment,
    /// Whether writes wait for space on the disk.
    disk_full: watch::Sender<bool>,
    /// Told once, when the node cannot go on in this process.
    broken: Notify,
    /// Why, if that is because of its clock.
    too_far: OnceLock<TooFar>,
}

/// Tells the driver that there is something to do.
struct Signal {
    /// For a driver with a thread of its own.
    condvar: Condvar,
    /// For one that somebody else drives.
    stepped: Option<Notify>,
}

impl Signal {
    fn notify_one(&self) {
        match &self.stepped {
            Some(stepped) => stepped.notify_one(),
            None => {
                self.condvar.notify_one();
            }
        }
    }
}

/// What the node does when leases and replicas come and go.
pub trait Hook: Send + Sync {
    /// Called before the node serves under a new lease and after it lost one: what was in memory about the
    /// transactions of the range is forgotten.
    fn forget(&self, range: RangeId, span: &Span);
    /// Called before the node serves under a new lease, once what earlier leaseholders have left is settled: takes
    /// note of transactions that are prepared there.
    ///
    /// # Errors
    /// If what is there cannot be read.
    fn adopt(&self, range: RangeId, span: &Span) -> StorageResult<()>;
    /// Whether transactions are open in a range: it must not fall asleep.
    fn is_used(&self, range: RangeId, span: &Span) -> bool;
    /// There is no replica of a range here any more.
    fn removed(&self, range: RangeId);
    /// The members of a range whose lease is held here are others, or its descriptor is.
    fn described(&self, range: RangeId);
    /// Whether a range whose lease is held here, with these keys, can be split now, where nothing is let in and
    /// no command is under way: no transaction has intents or prepared records in it.
    fn can_split(&self, range: RangeId, span: &Span) -> bool;
    /// Adds to the command that splits a range with the keys `span` at `key` what the new range must have besides
    /// its keys.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn add_to_split(&self, span: &Span, key: &Bytes, batch: &mut WriteBatch) -> StorageResult<()>;
    /// Adds to the command with which a range that begins with a key absorbs another the records of transactions that
    /// that one has.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn add_to_absorbed(
        &self,
        start: &Bytes,
        records: &[TxnRecord],
        batch: &mut WriteBatch,
    ) -> StorageResult<()>;
    /// The keys of `right` are no longer those of the range `left`, whose lease is held here: what is in memory
    /// of transactions there is forgotten. Called before either part is served.
    fn split(&self, left: RangeId, right: &Span);
}

/// What a pipeline is bounded by.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most bytes of effects that wait at a time.
    pub max_queued_bytes: usize,
    /// How far the wall clocks of nodes may be apart.
    pub max_clock_offset: Duration,
}

/// The clock, the lease and the queue in front of the Raft log.
pub struct Pipeline {
    shared: Arc<Shared>,
    hook: Arc<Mutex<Option<Arc<dyn Hook>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The largest timestamp below another.
fn before(timestamp: Timestamp) -> Timestamp {
    match timestamp.logical.checked_sub(1) {
        Some(logical) => Timestamp::new(timestamp.wall_ns, logical),
        None => Timestamp::new(timestamp.wall_ns.saturating_sub(1), u32::MAX),
    }
}

impl Pipeline {
    /// Starts the driver of a node's replicas, on a thread of its own. `store` opens the replicas at a time of the
    /// driver's clock.
    ///
    /// # Errors
    /// If the replicas cannot be opened or no thread can be started.
    pub fn start(
        engine: Arc<dyn Engine>,
        bounds: Bounds,
        transport: Arc<dyn Transport>,
        store: impl FnOnce(Millis) -> Result<Store<Sound>, StorageError>,
    ) -> Result<Self, StorageError> {
        let environment = Environment::of_machine();
        let (pipeline, driver) = Self::prepare(engine, bounds, transport, environment, None, store)?;
        let thread = std::thread::Builder::new()
            .name("kv-raft".to_owned())
            .spawn(move || {
                let _ended = Ended(driver.shared());
                driver.run();
            })
            .map_err(|error| StorageError::Io(error.to_string()))?;
        *pipeline.thread.lock() = Some(thread);
        Ok(pipeline)
    }

    /// The same without a thread: nothing happens but in the turns of what is returned.
    ///
    /// # Errors
    /// If the replicas cannot be opened.
    pub fn start_stepped(
        engine: Arc<dyn Engine>,
        bounds: Bounds,
        transport: Arc<dyn Transport>,
        environment: Environment,
        store: impl FnOnce(Millis) -> Result<Store<Sound>, StorageError>,
    ) -> Result<(Self, Stepped), StorageError> {
        let stepped = Some(Notify::new());
        let (pipeline, driver) = Self::prepare(engine, bounds, transport, environment, stepped, store)?;
        Ok((pipeline, Stepped::new(driver)))
    }

    fn prepare(
        engine: Arc<dyn Engine>,
        bounds: Bounds,
        transport: Arc<dyn Transport>,
        environment: Environment,
        stepped: Option<Notify>,
        store: impl FnOnce(Millis) -> Result<Store<Sound>, StorageError>,
    ) -> Result<(Self, Driver), StorageError> {
        let max_permits = (bounds.max_queued_bytes / PERMIT_BYTES).max(1);
        let state = State {
            steady: SteadyClock::new(bounds.max_clock_offset),
            ranges: HashMap::new(),
            queue: VecDeque::new(),
            inbox: Vec::new(),
            asked: Vec::new(),
            ceilings: Vec::new(),
            closing: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            ready: Signal { condvar: Condvar::new(), stepped },
            space: Arc::new(Semaphore::new(max_permits)),
            max_permits,
            environment,
            disk_full: watch::Sender::new(false),
            broken: Notify::new(),
            too_far: OnceLock::new(),
        });
        let hook = Arc::new(Mutex::new(None));
        let store = store(shared.millis())?;
        let clocks = ClockCheck::new(bounds.max_clock_offset);
        let mut driver =
            Driver::new(Arc::clone(&shared), Arc::clone(&hook), engine, store, transport, clocks);
        driver.begin()?;
        Ok((Pipeline { shared, hook, thread: Mutex::new(None) }, driver))
    }

    /// Where the node has time and chance from.
    pub fn environment(&self) -> &Environment {
        &self.shared.environment
    }

    /// Sets who is told of leases.
    pub fn set_hook(&self, hook: Arc<dyn Hook>) {
        *self.hook.lock() = Some(hook);
    }

    /// Who serves a range, as far as it is known without asking anybody.
    pub fn standing(&self, range: RangeId) -> Standing {
        let state = self.shared.state.lock();
        state.ranges.get(&range).map_or(Standing::Follower(None), |range| range.standing.get())
    }

    /// The keys of a range that is awake here.
    pub fn span(&self, range: RangeId) -> Option<Span> {
        self.shared.state.lock().ranges.get(&range).map(|range| range.span.clone())
    }

    /// Wakes a range and waits until this node serves it, at most for `patience`.
    ///
    /// # Errors
    /// If it does not come to that.
    pub async fn ready(&self, range: RangeId, patience: Duration) -> Result<(), Absent> {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            if self.lease(range).is_ok() {
                return Ok(());
            }
            let woken = self.ask(|answer| Asked::Wake(range, answer)).await.map_err(|_| Absent::Closing)?;
            let standing = woken.map_err(Absent::Damaged)?.ok_or(Absent::NoReplica)?;
            match tokio::time::timeout_at(deadline, standing.settled()).await {
                Ok(Some(Standing::Follower(leader))) => return Err(Absent::Elsewhere(leader)),
                Ok(Some(Standing::Leaseholder(_))) => {}
                // It fell asleep again.
                Ok(None) => {}
                Err(_) => return Err(Absent::Elsewhere(None)),
            }
            if self.lease(range).is_err() {
                // Without a majority's support for the moment.
                if tokio::time::Instant::now() >= deadline {
                    return Err(Absent::Elsewhere(None));
                }
                tokio::time::sleep(SETTLE_PAUSE).await;
            }
        }
    }

    /// Whether this node holds the lease of a range whose keys are as `fits` wants them.
    pub fn serves(&self, range: RangeId, fits: impl FnOnce(&Span) -> bool) -> bool {
        let mut state = self.shared.state.lock();
        // Looked at first: what is none of the caller's business is not kept awake by it.
        if !state.ranges.get(&range).is_some_and(|found| fits(&found.span)) {
            return false;
        }
        match self.shared.held(&mut state, range) {
            Ok((found, _)) => {
                found.load.batches += 1;
                true
            }
            Err(_) => false,
        }
    }

    /// The range that is awake here and holds a whole span.
    pub fn awake_for(&self, span: &Span) -> Option<RangeId> {
        let state = self.shared.state.lock();
        let holds = |range: &RangeState| range.span.start <= span.start && span.end <= range.span.end;
        state.ranges.iter().find(|(_, range)| holds(range)).map(|(range, _)| *range)
    }

    /// The range with a replica here that holds a key.
    ///
    /// # Errors
    /// When the node shuts down.
    pub async fn covering(&self, key: Bytes) -> Result<Option<RangeId>, KvError> {
        self.ask(|answer| Asked::Covering(key, answer)).await
    }

    /// The name of a range's lease, for as long as it is this node's: its sequence number ([`sequence_of`]), and
    /// how often the range was split or merged under it. Who asks for it and then looks at the keys of the range
    /// ([`Pipeline::holds`]) has them as they are for as long as the name stays.
    ///
    /// # Errors
    /// [`KvErrorKind::NotLeaseholder`] if it is not.
    pub fn lease(&self, range: RangeId) -> Result<u64, KvError> {
        let mut state = self.shared.state.lock();
        self.shared.held(&mut state, range).map(|(found, held)| found.lease(held))
    }

    /// Whether the keys of a range that is awake here are as `fits` wants them. After a timestamp of the range was
    /// asked for this says whether it is one for these keys.
    pub fn holds(&self, range: RangeId, fits: impl FnOnce(&Span) -> bool) -> bool {
        let state = self.shared.state.lock();
        state.ranges.get(&range).is_some_and(|found| fits(&found.span))
    }

    /// A closed timestamp at or above every commit in the range acknowledged so far.
    ///
    /// # Errors
    /// As for [`Pipeline::lease`].
    pub fn read_timestamp(&self, range: RangeId) -> Result<Timestamp, KvError> {
        let mut state = self.shared.state.lock();
        let (found, _) = self.shared.held(&mut state, range)?;
        match found.in_flight.first() {
            Some(oldest) => Ok(before(*oldest)),
            None => self.shared.now(&mut state, range),
        }
    }

    /// The largest closed timestamp that may have been handed out.
    ///
    /// # Errors
    /// As for [`Pipeline::lease`].
    pub fn closed(&self, range: RangeId) -> Result<Timestamp, KvError> {
        let mut state = self.shared.state.lock();
        let (found, _) = self.shared.held(&mut state, range)?;
        Ok(found.in_flight.first().map_or(found.clock.latest(), |oldest| before(*oldest)))
    }

    /// The time by which history is kept: the wall clock's, or that of a range whose clock cannot follow it,
    /// because there is no space on the disk to raise the ceiling of its lease.
    pub fn history_clock(&self) -> Timestamp {
        let mut state = self.shared.state.lock();
        let wall = Timestamp::new(self.shared.wall_ns(&mut state), 0);
        let behind = state.ranges.values().filter(|range| range.wants_ceiling);
        behind.map(|range| range.clock.latest()).fold(wall, Timestamp::min)
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
        let range = command.range;
        let (found, held) = self.shared.held(&mut state, range)?;
        if found.lease(held) != command.lease {
            return Err(not_leaseholder());
        }
        if *self.shared.disk_full.borrow() {
            return Err(no_space());
        }
        let timestamp = match command.order {
            Order::None => Timestamp::MIN,
            Order::Present => self.shared.now(&mut state, range)?,
            Order::By(deadline) => {
                let now = self.shared.now(&mut state, range)?;
                if now > deadline {
                    return Err(past_deadline());
                }
                now
            }
            Order::From(at) | Order::Exactly(at) => {
                if self.shared.advance(&mut state, range, at)? {
                    at
                } else if let Order::From(_) = command.order {
                    self.shared.now(&mut state, range)?
                } else {
                    return Err(KvError::snapshot_behind(self.shared.now(&mut state, range)?));
                }
            }
        };
        if command.order.is_some()
            && let Some(found) = state.ranges.get_mut(&range)
        {
            found.in_flight.insert(timestamp);
            found.written = found.written.max(timestamp);
        }
        state.queue.push_back(Queued { command, timestamp, bytes: 0 });
        if state.queue.len() == 1 {
            self.shared.ready.notify_one();
        }
        Ok(timestamp)
    }

    /// Moves the clock of a range up to a timestamp and waits until nothing at or below it is in flight: what
    /// is read there from then on never changes.
    ///
    /// # Errors
    /// [`KvErrorKind::InvalidRequest`] for a timestamp further ahead than clocks may be apart, and as for
    /// [`Pipeline::lease`].
    pub async fn close_up_to(&self, range: RangeId, timestamp: Timestamp) -> Result<(), KvError> {
        loop {
            let closed = {
                let mut state = self.shared.state.lock();
                let below = self.shared.is_below_ceiling(&mut state, range, timestamp)?;
                if below {
                    self.shared.advance(&mut state, range, timestamp)?;
                }
                let Some(found) = state.ranges.get_mut(&range) else { return Err(not_leaseholder()) };
                if below && found.in_flight.first().is_none_or(|oldest| *oldest > timestamp) {
                    return Ok(());
                }
                found.landed.next()
            };
            wait_for_change(closed).await?;
        }
    }

    /// Moves the clock of a range up to a timestamp at which something is written, if its lease reaches so far.
    pub fn observe(&self, range: RangeId, timestamp: Timestamp) {
        let mut state = self.shared.state.lock();
        if let Err(error) = self.shared.advance(&mut state, range, timestamp) {
            tracing::debug!(range, "the clock of a range stays: {}", error.message);
        }
        if let Some(found) = state.ranges.get_mut(&range) {
            found.written = found.written.max(timestamp);
        }
    }

    /// Waits until the ceiling of a range's lease is above a timestamp.
    ///
    /// # Errors
    /// As for [`Pipeline::close_up_to`].
    pub async fn raise_above(&self, range: RangeId, timestamp: Timestamp) -> Result<(), KvError> {
        loop {
            let landed = {
                let mut state = self.shared.state.lock();
                if self.shared.is_below_ceiling(&mut state, range, timestamp)? {
                    return Ok(());
                }
                let Some(found) = state.ranges.get_mut(&range) else { return Err(not_leaseholder()) };
                found.landed.next()
            };
            wait_for_change(landed).await?;
        }
    }

    /// What the clock of a range shows.
    ///
    /// # Errors
    /// As for [`Pipeline::lease`].
    pub fn clock(&self, range: RangeId) -> Result<Timestamp, KvError> {
        let mut state = self.shared.state.lock();
        self.shared.now(&mut state, range)
    }

    /// Milliseconds since the pipeline was started.
    pub fn millis(&self) -> Millis {
        self.shared.millis()
    }

    /// What the wall clock shows, in nanoseconds since the Unix epoch, as the clocks of ranges follow it: without jumps
    /// ([`crate::steady`]).
    pub fn wall_ns(&self) -> u64 {
        self.shared.wall_ns(&mut self.shared.state.lock())
    }

    /// Takes in messages from other nodes.
    pub fn receive(&self, mut envelopes: Vec<Envelope>) {
        let mut state = self.shared.state.lock();
        let room = MAX_INBOX.saturating_sub(state.inbox.len());
        envelopes.truncate(room);
        state.inbox.append(&mut envelopes);
        self.shared.ready.notify_one();
    }

    /// Changes the members of a range.
    ///
    /// # Errors
    /// If this node does not hold the lease, or another change is under way.
    pub async fn change_members(&self, range: RangeId, change: MemberChange) -> Result<(), KvError> {
        self.ask(|answer| Asked::ChangeMembers(range, change, answer)).await?
    }

    /// Hands the lease of a range to another node. The new leaseholder may not be there yet when this
    /// returns.
    ///
    /// # Errors
    /// If this node does not hold it, or the other cannot take it.
    pub async fn transfer_lease(&self, range: RangeId, to: NodeId) -> Result<(), KvError> {
        self.ask(|answer| Asked::TransferLease(range, to, answer)).await?
    }

    /// Splits a range or has it take part in a merge. A new range is one that this node serves a moment after this
    /// returns.
    ///
    /// # Errors
    /// [`KvErrorKind::NotLeaseholder`] if this node does not hold the lease, [`KvErrorKind::RangeNotFound`] if the
    /// key is not in the range, [`KvErrorKind::InvalidRequest`] if it is its first, [`KvErrorKind::Unavailable`] if
    /// it cannot be changed now; the range is as it was then. [`KvErrorKind::Ambiguous`] if the lease was lost.
    pub async fn change(&self, range: RangeId, change: Change) -> Result<(), KvError> {
        self.ask(|answer| Asked::Change(range, change, answer)).await?
    }

    /// The ranges whose leases this node holds and which are frozen, and for which merges.
    ///
    /// # Errors
    /// When the node shuts down.
    pub async fn frozen(&self) -> Result<Vec<(RangeDescriptor, Freeze)>, KvError> {
        self.ask(Asked::Frozen).await
    }

    /// Descriptors of the replicas here, awake or not, that say how their ranges are kept.
    ///
    /// # Errors
    /// When the node shuts down.
    pub async fn configured(&self) -> Result<Vec<RangeDescriptor>, KvError> {
        self.ask(Asked::Configured).await
    }

    /// How ranges are doing; those that are asleep or not here are left out.
    ///
    /// # Errors
    /// When the node shuts down.
    pub async fn statuses(&self, ranges: Vec<RangeId>) -> Result<Vec<Status>, KvError> {
        self.ask(|answer| Asked::Statuses(ranges, answer)).await
    }

    /// How a range is doing; `None` if it is asleep or not here.
    ///
    /// # Errors
    /// When the node shuts down.
    pub async fn status(&self, range: RangeId) -> Result<Option<Status>, KvError> {
        Ok(self.statuses(vec![range]).await?.pop())
    }

    /// How the other nodes are doing, and what there is here.
    ///
    /// # Errors
    /// When the node shuts down.
    pub async fn nodes(&self) -> Result<NodesStatus, KvError> {
        self.ask(Asked::Nodes).await
    }

    /// Keeps a range from falling asleep, and says who serves it; `None` if there is no replica here.
    ///
    /// # Errors
    /// When the node shuts down.
    pub async fn keep_awake(&self, range: RangeId) -> Result<Option<Standing>, KvError> {
        let standing = self.ask(|answer| Asked::Wake(range, answer)).await??;
        Ok(standing.map(|standing| standing.or_nobody()))
    }

    /// What this node has and knows, and who serves a range, which is kept from falling asleep as by
    /// [`Pipeline::keep_awake`]. All in one question: a node that does nothing else asks it all the time.
    ///
    /// # Errors
    /// When the node shuts down, or the range cannot be read.
    pub async fn overview(&self, awake: RangeId) -> Result<(Option<Standing>, Overview), KvError> {
        let (standing, overview) = self.ask(|answer| Asked::Overview(awake, answer)).await??;
        Ok((standing.map(|standing| standing.or_nobody()), overview))
    }

    /// Keeps ranges that are awake here from falling asleep.
    pub fn touch(&self, ranges: &[RangeId]) {
        let mut state = self.shared.state.lock();
        for range in ranges {
            if let Some(found) = state.ranges.get_mut(range) {
                found.used = true;
            }
        }
    }

    /// How much was done in each range since this was asked last; those without anything are left out.
    pub fn take_loads(&self) -> HashMap<RangeId, Load> {
        let mut state = self.shared.state.lock();
        let loads = state.ranges.iter_mut().map(|(range, found)| (*range, std::mem::take(&mut found.load)));
        loads.filter(|(_, load)| *load != Load::default()).collect()
    }

    /// The ranges whose leases this node holds.
    ///
    /// # Errors
    /// When the node shuts down.
    pub async fn held_ranges(&self) -> Result<Vec<RangeId>, KvError> {
        self.ask(Asked::Held).await
    }

    /// The replicas of this node after one in the order of their ranges, awake or not, at most `limit`.
    ///
    /// # Errors
    /// When the node shuts down.
    pub async fn survey(&self, after: RangeId, limit: usize) -> Result<Vec<Surveyed>, KvError> {
        self.ask(|answer| Asked::Survey(after, limit, answer)).await
    }

    /// A closed timestamp of a range whose lease is held here, and the entry of its log with which all that
    /// was committed at or below it is applied.
    ///
    /// # Errors
    /// As for [`Pipeline::lease`].
    pub fn promise(&self, range: RangeId) -> Result<(Timestamp, u64), KvError> {
        let mut state = self.shared.state.lock();
        let (found, _) = self.shared.held(&mut state, range)?;
        let applied = found.applied.ok_or_else(not_leaseholder)?;
        let timestamp = match found.in_flight.first() {
            Some(oldest) => before(*oldest),
            None => self.shared.now(&mut state, range)?,
        };
        Ok((timestamp, applied))
    }

    /// Whether an entry of a range that is awake is known to be applied here. Says nothing of what the engine
    /// shows a moment later.
    pub fn has_reached(&self, range: RangeId, index: u64) -> bool {
        let mut state = self.shared.state.lock();
        let Some(found) = state.ranges.get_mut(&range) else { return false };
        found.used = true;
        found.applied.is_some_and(|applied| applied >= index)
    }

    /// Waits until an entry of a range is applied here; false if there is no replica.
    ///
    /// # Errors
    /// When the node shuts down.
    pub async fn reached(&self, range: RangeId, index: u64) -> Result<bool, KvError> {
        self.ask(|answer| Asked::Reached(range, index, answer)).await
    }

    /// Removes the replica of a range that is no more.
    ///
    /// # Errors
    /// If the disk is full, and when the node shuts down.
    pub async fn destroy(&self, range: RangeId) -> Result<(), KvError> {
        self.ask(|answer| Asked::Destroy(range, answer)).await?
    }

    /// What the other nodes are told with every sign of life. False if nobody takes note, because too much is asked.
    #[must_use]
    pub fn set_note(&self, note: Bytes) -> bool {
        self.tell(Asked::Note(note))
    }

    /// Asks the nodes of the cluster for signs of life, so that [`NodesStatus::silent`] tells of them.
    /// False as for [`Pipeline::set_note`].
    #[must_use]
    pub fn watch_nodes(&self, nodes: Vec<NodeId>) -> bool {
        self.tell(Asked::Watch(nodes))
    }

    /// Has what is remembered of transactions in ranges forgotten, as when their leases were lost, if they are not held
    /// here. False as for [`Pipeline::set_note`].
    #[must_use]
    pub fn forget_unheld(&self, ranges: Vec<RangeId>) -> bool {
        self.tell(Asked::Forget(ranges))
    }

    /// Whether the lease of a range was acquired here and not lost since, whether or not it can be used for the moment.
    pub fn has_lease(&self, range: RangeId) -> bool {
        self.shared.state.lock().ranges.get(&range).is_some_and(|range| range.held.is_some())
    }

    fn tell(&self, asked: Asked) -> bool {
        let mut state = self.shared.state.lock();
        let room = state.asked.len() < MAX_INBOX;
        if room {
            state.asked.push(asked);
            self.shared.ready.notify_one();
        }
        room
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

    /// Returns when the node cannot go on in this process: the engine has failed in a way only a restart mends, or
    /// its wall clock is wrong ([`Pipeline::too_far`]).
    pub async fn broken(&self) {
        self.shared.broken.notified().await;
    }

    /// Why the node has stopped itself, if that is because of its wall clock.
    pub fn too_far(&self) -> Option<TooFar> {
        self.shared.too_far.get().copied()
    }

    /// Applies what is queued, refuses more, and ends the thread, for which it blocks. A stepped driver ends
    /// with one of its next turns.
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

async fn wait_for_change(landing: Landing) -> Result<(), KvError> {
    // The range went to sleep or away.
    if landing.wait().await { Ok(()) } else { Err(not_leaseholder()) }
}

fn shutting_down() -> KvError {
    KvError::new(KvErrorKind::Unavailable, "the KV node is shutting down")
}

fn past_deadline() -> KvError {
    KvError::new(KvErrorKind::Retry, "the lease that the transaction rests on has ended")
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
        self.environment.millis()
    }

    /// Both clocks.
    fn moment(&self) -> Moment {
        Moment { millis: self.environment.millis(), wall_ns: self.environment.physical_ns() }
    }

    /// The wall clock as ranges follow it.
    fn wall_ns(&self, state: &mut State) -> u64 {
        state.steady.read(self.moment())
    }

    fn held<'a>(&self, state: &'a mut State, range: RangeId) -> Result<(&'a mut RangeState, Held), KvError> {
        let found = state.ranges.get_mut(&range).ok_or_else(not_leaseholder)?;
        found.used = true;
        match found.held {
            Some(held) if self.millis() < held.until => Ok((found, held)),
            _ => Err(not_leaseholder()),
        }
    }

    /// Whether a timestamp is below the ceiling of a range's lease; if it is not, the ceiling is about to be raised.
    fn is_below_ceiling(&self, state: &mut State, range: RangeId, to: Timestamp) -> Result<bool, KvError> {
        if to.wall_ns > self.wall_ns(state).saturating_add(MAX_AHEAD_NS) {
            let message = "the timestamp is further ahead than clocks can be";
            return Err(KvError::new(KvErrorKind::InvalidRequest, message));
        }
        let (found, Held { ceiling, .. }) = self.held(state, range)?;
        if to < ceiling {
            return Ok(true);
        }
        found.wanted = found.wanted.max(to);
        if !found.wants_ceiling {
            found.wants_ceiling = true;
            state.ceilings.push(range);
            self.ready.notify_one();
        }
        Ok(false)
    }

    /// Moves the clock of a range up to a timestamp; false if it is there already or past it.
    fn advance(&self, state: &mut State, range: RangeId, to: Timestamp) -> Result<bool, KvError> {
        if !self.is_below_ceiling(state, range, to)? {
            return Err(KvError::new(
                KvErrorKind::Retry,
                "the clock of the range cannot be moved at the moment",
            ));
        }
        let (found, _) = self.held(state, range)?;
        if to <= found.clock.latest() {
            return Ok(false);
        }
        if !self.environment.planted(Bug::ClockNotMoved) {
            found.clock.observe(to);
        }
        Ok(true)
    }

    fn now(&self, state: &mut State, range: RangeId) -> Result<Timestamp, KvError> {
        let physical = self.wall_ns(state);
        let (found, Held { ceiling, .. }) = self.held(state, range)?;
        // At the ceiling the clock stands still but for its logical part; a full disk, on which the ceiling
        // cannot be raised, must not stop reads.
        let now = found.clock.now(physical.min(ceiling.wall_ns.saturating_sub(1)));
        // The clock may be there before the wall clock is near, as after a merge with a range whose clock was ahead.
        let near = physical.saturating_add(CEILING_NEAR_NS) >= ceiling.wall_ns || now >= ceiling;
        if near && !found.wants_ceiling {
            found.wants_ceiling = true;
            state.ceilings.push(range);
            self.ready.notify_one();
        }
        if now < ceiling { Ok(now) } else { Err(not_leaseholder()) }
    }
}

/// Whatever ends the driver, nobody goes on as if it ran: the node fails, and is started again.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        let asked_to = {
            let mut state = self.0.state.lock();
            // Who waits for a standing sees that there is none to come.
            state.ranges.clear();
            std::mem::replace(&mut state.closing, true)
        };
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
