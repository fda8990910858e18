//! What callers hand to a transaction and get from it.

use bytes::Bytes;
use kv_api::batch::WaitPolicy;
use kv_api::{LockStrength, Span, Timestamp};

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
    /// Longest wait for a lock in milliseconds; 0 for no limit.
    pub lock_timeout_ms: u32,
    /// Buffered writes before they are flushed, in bytes.
    pub buffer_bytes: usize,
}

impl Default for TxnOptions {
    fn default() -> Self {
        TxnOptions {
            isolation: Isolation::default(),
            read_only: false,
            follower_reads: false,
            lock_timeout_ms: 0,
            buffer_bytes: DEFAULT_BUFFER_BYTES,
        }
    }
}

/// How keys are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOptions {
    /// Lock to take.
    pub lock: LockStrength,
    /// What to do when another holds it. With `Skip`, a key that is locked reads as absent.
    pub wait: WaitPolicy,
}

impl ReadOptions {
    /// Whether a lock is taken.
    pub(crate) fn locks(self) -> bool {
        self.lock != LockStrength::None
    }
}

impl Default for ReadOptions {
    fn default() -> Self {
        LockStrength::None.into()
    }
}

impl From<LockStrength> for ReadOptions {
    fn from(lock: LockStrength) -> Self {
        ReadOptions { lock, wait: WaitPolicy::Block }
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

/// A point in a transaction that can be returned to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint {
    /// The first sequence number that writes made after it can have.
    pub(super) sequence: u32,
}

/// What a commit returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitInfo {
    /// Where the transaction's writes are; `None` if it wrote nothing.
    pub timestamp: Option<Timestamp>,
}
