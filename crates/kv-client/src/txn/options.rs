//! What callers hand to a transaction and get from it.

use bytes::Bytes;
use kv_api::batch::WaitPolicy;
use kv_api::columns::ColumnBatch;
use kv_api::{LockStrength, Priority, Span, Timestamp};
use std::time::Duration;

/// How old the snapshot of [`TxnOptions::as_of`] is at least if any replica is asked for it: as a rule a replica was
/// told since that nothing is written any more below it, and then it asks nobody (`cockroachdb-2020`, section 3.5).
pub const FOLLOWER_READ_AGE: Duration = Duration::from_secs(5);

/// Buffered writes of a transaction before it flushes them, in bytes, unless told otherwise.
const DEFAULT_BUFFER_BYTES: usize = 4 << 20;

/// Isolation levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// As if transactions ran one after the other.
    #[default]
    Serializable,
    /// A new snapshot for each statement; nothing read is validated at commit.
    ReadCommitted,
}

/// How a transaction runs.
#[derive(Debug, Clone, Copy)]
pub struct TxnOptions {
    /// Isolation level.
    pub isolation: Isolation,
    /// Refuses writes and locks, and remembers nothing of what is read.
    pub read_only: bool,
    /// Reads come from the replica at [`crate::Config::near`], or from all of them in turn, instead of the
    /// leaseholder's. They see what was acknowledged before the first of them was sent all the same. Has no effect unless the transaction is read-only.
    pub follower_reads: bool,
    /// Reads at this snapshot from the beginning, in whichever range: nothing is uncertain, and nothing moves it. The
    /// transaction is read-only then, whatever the other options say, and its reads may come from any replica if it
    /// is [`FOLLOWER_READ_AGE`] old. A snapshot older than history is kept fails with
    /// [`kv_api::KvErrorKind::Retry`], one in the future with [`kv_api::KvErrorKind::InvalidRequest`].
    pub as_of: Option<Timestamp>,
    /// How important it is among those it contends with for locks.
    pub priority: Priority,
    /// Longest wait for a lock in milliseconds; 0 for no limit.
    pub lock_timeout_ms: u32,
    /// Buffered writes before they are flushed, in bytes.
    pub buffer_bytes: usize,
    /// Whether writes in several ranges commit in one round of consensus (`cockroachdb-2020`, section 3.1). Without,
    /// for measurement, they take the two of a two-phase commit: the commit is written into the record at the anchor
    /// when all parts are prepared, and acknowledged after that.
    pub parallel_commits: bool,
}

impl Default for TxnOptions {
    fn default() -> Self {
        TxnOptions {
            isolation: Isolation::default(),
            read_only: false,
            follower_reads: false,
            as_of: None,
            priority: Priority::Normal,
            lock_timeout_ms: 0,
            buffer_bytes: DEFAULT_BUFFER_BYTES,
            parallel_commits: true,
        }
    }
}

impl TxnOptions {
    /// The same, with what follows from [`TxnOptions::as_of`] at a present of `now_ns`.
    pub(crate) fn settled(mut self, now_ns: u64) -> Self {
        let Some(as_of) = self.as_of else { return self };
        // One snapshot serves all statements, so it is read like that of a serializable transaction.
        (self.isolation, self.read_only) = (Isolation::Serializable, true);
        let age = Duration::from_nanos(now_ns.saturating_sub(as_of.wall_ns));
        self.follower_reads |= age >= FOLLOWER_READ_AGE;
        self
    }
}

/// How keys are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOptions {
    /// Lock to take.
    pub lock: LockStrength,
    /// What to do when another holds it. With `Skip`, a key that is locked reads as absent.
    pub wait: WaitPolicy,
    /// Of the transaction's own writes, only those made before this point are seen. Not together with a lock.
    pub before: Option<Savepoint>,
}

impl ReadOptions {
    /// Whether a lock is taken.
    pub(crate) fn locks(self) -> bool {
        self.lock != LockStrength::None
    }

    /// The first sequence number of the transaction that is not seen.
    pub(crate) fn unseen(self) -> u32 {
        self.before.map_or(u32::MAX, |point| point.sequence)
    }
}

impl Default for ReadOptions {
    fn default() -> Self {
        LockStrength::None.into()
    }
}

impl From<LockStrength> for ReadOptions {
    fn from(lock: LockStrength) -> Self {
        ReadOptions { lock, wait: WaitPolicy::Block, before: None }
    }
}

/// How a span is read.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScanOptions {
    /// Descending.
    pub reverse: bool,
    /// Most keys wanted; 0 for no limit.
    pub limit: u64,
    /// Bytes after which a page ends; 0 for the KV node's limit.
    pub target_bytes: u64,
    /// Locks.
    pub read: ReadOptions,
}

/// A page of a scan. It may hold fewer rows than wanted, or none, and still not be the last.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ScanPage {
    /// Keys and values in the order asked.
    pub rows: Vec<(Bytes, Bytes)>,
    /// Where to go on; `None` at the end of the span.
    pub resume: Option<Span>,
}

/// A page of a scan that returns columns.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ColumnPage {
    /// What was found.
    pub columns: ColumnBatch,
    /// Where to go on; `None` at the end of the span.
    pub resume: Option<Span>,
}

/// A point in a transaction that can be returned to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint {
    /// The first sequence number that writes made after it can have.
    pub(super) sequence: u32,
}

impl Savepoint {
    /// A number from which [`Savepoint::of_number`] makes the savepoint again, for the same transaction only.
    pub fn number(self) -> u32 {
        self.sequence
    }

    /// The savepoint with this number, in a transaction that was exported and imported since it was marked.
    pub fn of_number(number: u32) -> Self {
        Savepoint { sequence: number }
    }
}

/// What a commit returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitInfo {
    /// Where the transaction's writes are; `None` if it wrote nothing.
    pub timestamp: Option<Timestamp>,
}
