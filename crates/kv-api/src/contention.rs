//! Contention: who holds what, who waits for whom, and who did.
//!
//! [`ListContention`] asks the leaseholder of a range what it has in memory, and takes no part in what it lists: it
//! waits for no lock, latch or decision. What comes back is of one moment for each range. Keys are whole ones, times
//! those of the leaseholder's clock in nanoseconds since the Unix epoch.
//!
//! Everything is bounded: of each list at most [`ListContention::limit`] entries are returned, and
//! [`Contention::truncated`] says whether there were more. What is contended comes before what is not. Of the waits
//! that have ended a node remembers the last ones of each tenant, until it restarts.

use crate::LockStrength;
use bytes::Bytes;

/// Most entries of each list that a range returns.
pub const MAX_LISTED: u64 = 10_000;

/// Asks what is locked in a span, who waits, and what was waited for lately. Stands alone in its batch and in no
/// transaction.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListContention {
    /// First key.
    #[prost(bytes = "bytes", tag = "1")]
    pub start: Bytes,
    /// First key after the span.
    #[prost(bytes = "bytes", tag = "2")]
    pub end: Bytes,
    /// Most entries of each list; 0 and everything above is [`MAX_LISTED`].
    #[prost(uint64, tag = "3")]
    pub limit: u64,
}

/// What is known of contention.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Contention {
    /// Locks that are held, by key.
    #[prost(message, repeated, tag = "1")]
    pub locks: Vec<LockInfo>,
    /// Requests that wait, by key and in the order in which they are served.
    #[prost(message, repeated, tag = "2")]
    pub waits: Vec<WaitInfo>,
    /// Parts of transactions that are not over, by the id of the transaction.
    #[prost(message, repeated, tag = "3")]
    pub txns: Vec<TxnInfo>,
    /// Waits that have ended, the latest last.
    #[prost(message, repeated, tag = "4")]
    pub events: Vec<ContentionEvent>,
    /// Whether there was more of anything.
    #[prost(bool, tag = "5")]
    pub truncated: bool,
    /// Events that were forgotten to make room for later ones since the node started.
    #[prost(uint64, tag = "6")]
    pub events_dropped: u64,
}

/// A lock that is held.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LockInfo {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// How it is held.
    #[prost(enumeration = "LockStrength", tag = "2")]
    pub strength: i32,
    /// The transaction that holds it.
    #[prost(bytes = "bytes", tag = "3")]
    pub txn: Bytes,
    /// Since when; for an intent, since when its transaction is known in the range.
    #[prost(uint64, tag = "4")]
    pub since_ns: u64,
    /// Whether an intent holds the key: what was written, and is neither committed nor aborted yet.
    #[prost(bool, tag = "5")]
    pub intent: bool,
}

/// A request that waits.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WaitInfo {
    /// The key; empty if it waits for what becomes of a prepared transaction.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// What it wants.
    #[prost(enumeration = "LockStrength", tag = "2")]
    pub strength: i32,
    /// The transaction; empty if the request is part of none.
    #[prost(bytes = "bytes", tag = "3")]
    pub txn: Bytes,
    /// Since when it waits.
    #[prost(uint64, tag = "4")]
    pub since_ns: u64,
    /// Whom it waits for: who holds the lock, then who is to get it first. Some of them if they are many.
    #[prost(bytes = "bytes", repeated, tag = "5")]
    pub blockers: Vec<Bytes>,
}

/// Where a part of a transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum TxnPhase {
    /// Open.
    Pending = 0,
    /// Its commit is on the way to the log.
    Committing = 1,
    /// What makes sure that it can commit is on the way to the log.
    Preparing = 2,
    /// It can commit; what becomes of it is decided elsewhere.
    Prepared = 3,
}

/// A part of a transaction in a range.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TxnInfo {
    /// The transaction.
    #[prost(bytes = "bytes", tag = "1")]
    pub txn: Bytes,
    /// The range.
    #[prost(uint64, tag = "2")]
    pub range_id: u64,
    /// Where it stands.
    #[prost(enumeration = "TxnPhase", tag = "3")]
    pub phase: i32,
    /// Since when it is known there.
    #[prost(uint64, tag = "4")]
    pub since_ns: u64,
    /// Keys that it has locked in the memory of the node, in all ranges that the node leads.
    #[prost(uint64, tag = "5")]
    pub locks: u64,
    /// Intents that it has written there, counting a key as often as it was written.
    #[prost(uint64, tag = "6")]
    pub intents: u64,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum WaitEnd {
    /// The lock was granted, or it is known what became of the prepared transaction.
    Granted = 0,
    /// The transaction was ended, its client left, or the lease moved.
    Cancelled = 1,
    /// It took longer than the transaction wanted to wait.
    TimedOut = 2,
    /// It was part of a cycle, or would have closed one.
    Deadlock = 3,
}

/// A wait that has ended.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContentionEvent {
    /// The key; empty if what became of a prepared transaction was waited for.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// What was wanted.
    #[prost(enumeration = "LockStrength", tag = "2")]
    pub strength: i32,
    /// The transaction that waited; empty if the request was part of none.
    #[prost(bytes = "bytes", tag = "3")]
    pub waiter: Bytes,
    /// The first of those whom it waited for when it began to.
    #[prost(bytes = "bytes", tag = "4")]
    pub holder: Bytes,
    /// When the wait ended.
    #[prost(uint64, tag = "5")]
    pub ended_ns: u64,
    /// How long it took, in microseconds.
    #[prost(uint64, tag = "6")]
    pub duration_us: u64,
    /// How it ended.
    #[prost(enumeration = "WaitEnd", tag = "7")]
    pub end: i32,
}
