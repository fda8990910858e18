//! How a SQL node reaches the key-value layer: the way to the nodes, and the transaction coordinator.
//!
//! # What it is for
//!
//! [`KvClient`] finds the KV node that leads a range and keeps a mutual-TLS connection to it, with any
//! number of requests on it at once. [`Txn`] is a transaction's coordinator (`cockroachdb-2020`, section
//! 3.1; the protocol is written down in `kv-api`): it buffers writes, lays them over what it reads, tracks
//! what must stay unchanged, and commits, as a rule in one batch. Both speak of keys *within the tenant*:
//! the tenant's prefix is added on the way out and stripped on the way in, here and nowhere else.
//!
//! ```no_run
//! # async fn example(client: kv_client::KvClient) -> kv_api::KvResult<()> {
//! use kv_api::LockStrength;
//! use kv_client::TxnOptions;
//! let txn = client.begin(TxnOptions::default());
//! let old = txn.get(b"balance", LockStrength::Exclusive).await?;
//! txn.put(b"balance", old.unwrap_or_default())?;
//! txn.commit().await?;
//! # Ok(()) }
//! ```
//!
//! # A transaction's life
//!
//! ```text
//!   open ── commit ──► committing ──► committed
//!     │                    └────────► failed      (the error says whether to try again)
//!     ├── rollback, drop ──► rolled back
//!     ├── export ──► of another process
//!     ├── connection lost while it held locks or intents ──► failed: Aborted
//!     └── lease moved: goes on without its locks, or ─────► failed: Aborted
//! ```
//!
//! A transaction has a *part* in each range it uses. A part becomes *known to the node* with the first
//! locking read or flush there; from then on all its batches go on that one connection, and whatever ends
//! the transaction is told to the node. A commit without writes costs no round trip; if it held locks, their
//! release is sent and not waited for.
//!
//! Any future of this crate may be dropped half way. A read that was given up changes nothing but may leave
//! a lock. A flush that was given up leaves the transaction able to read and roll back only. A commit within
//! one range that was given up is rolled back if it is not decided yet; one over several goes on.
//!
//! # Several ranges
//!
//! Most transactions stay in one range and know nothing of this. In several, reads are grouped by range and
//! a page of a scan ends where a range ends. The first range gives the snapshot. What was committed above it
//! in further ranges may still have been acknowledged before the transaction began (`cockroachdb-2020`,
//! section 4.2): a read that meets such a thing moves the snapshot, if nothing read so far has changed. How
//! far that reaches is bounded by what the range's clock showed when the transaction first asked there. The
//! commit depends on where was written and read (`txn::commit`): with writes in several ranges it takes one
//! round of consensus if all clocks allow the timestamp that was chosen (`lead`), else two, and it is told
//! to the ranges in the background.
//!
//! A range that was split is looked up again, and what it no longer holds goes to the new one. The locks on
//! that are gone: a READ COMMITTED transaction that finds out is aborted. A range that was absorbed by its neighbour is
//! looked up again as well; a transaction that has just then asked both to prepare their parts is aborted.
//!
//! # Another process goes on
//!
//! [`Txn::export`] ends a transaction here and turns it into bytes, with which [`KvClient::import`] goes on where it
//! stopped, as a rule in another process (`txn::transfer`). The nodes see to it that one coordinator goes on with it
//! and no other; the bytes are signed, so that whoever carries them cannot change them.
//!
//! # Reads that overlap
//!
//! Several reads of one transaction may be under way at once. They must come from one snapshot and see
//! all own writes, although a locking read may move the snapshot and a flush moves writes to the node.
//! So every read remembers what it was sent with; if that changed while it was under way, in a way that
//! makes its answer stale, it is sent again.
//!
//! # READ COMMITTED
//!
//! Every statement reads a snapshot of its own and nothing is validated at commit: exclusive locks keep
//! updates from being lost. The KV node keeps a bounded number of locks for a transaction; one that locks
//! more than 32,000 keys keeps its snapshot from then on and has the reads that
//! locked the rest validated, as if it were serializable.
//!
//! # Finding the leaseholder
//!
//! Every range has a leaseholder of its own. The client remembers the ranges it uses (`ranges`) and who led
//! them last, so that a batch goes straight to its node. What it does not know it asks any node
//! ([`RangeLookup`](kv_api::batch::RangeLookup)). A node that does not lead the range carries nothing out
//! and names the one that does, if it knows it: the batch goes there, or around the replicas (`walk`), and
//! when they do not help, the range is looked up again after a pause. A request that waits notices nothing
//! of this, up to [`Config::connect_timeout`]. Requests about the cluster go to the leaseholder of the
//! cluster's own range in the same way.
//!
//! A connection (`connections`) is made when a batch wants it and stays until it ends. One that served only
//! to look a range up is closed again: an idle client has no timer, and one connection to each node that
//! served it. The client is given some addresses at the start and learns others from what nodes say
//! (`addresses`).
//!
//! # When the lease moves
//!
//! The locks of a transaction go with the lease, the connection stands. A SERIALIZABLE transaction that holds
//! locks only goes on at the new leaseholder as one unknown there: what it read is validated by the commit in
//! any case. One that has flushed writes, and every READ COMMITTED one, whose locks are all that keeps its
//! updates from being lost, fails with [`KvErrorKind::Aborted`].
//!
//! # Reads from any replica
//!
//! Reads of a read-only transaction with [`TxnOptions::follower_reads`] go to the replica at
//! [`Config::near`], or around those that are nearest. How far away a node is shows when a connection is made: by
//! the time that the TLS handshake takes, or until the node has said hello, whichever is less. They see what was acknowledged before all the same, and all those
//! of a snapshot are at the timestamp that the first one returned. What a replica does not answer the
//! leaseholder does, and in further ranges than the first one what may be uncertain.
//!
//! # Reads of the past
//!
//! A transaction with [`TxnOptions::as_of`] has its snapshot from the beginning. Nothing that it reads is remembered,
//! for nothing is ever checked.
//!
//! # Leases of the process
//!
//! A process that may use what it caches for as long as it holds a lease gives its client [`CommitDeadlines`]: none of
//! its transactions commits after the end of the lease under which it began, whatever clocks and networks do.
//!
//! # Losing the connection
//!
//! A request that was not written to the socket yet goes to another node, or waits for one. One that was
//! written and not answered is sent again if that is harmless: a read of a transaction unknown to the node
//! until then, an increment, a range clear. A commit that was sent and not answered is
//! [`KvErrorKind::Ambiguous`]; one over several ranges only if it cannot be found out either, by asking
//! again, within [`Config::connect_timeout`]. A node that sends nothing for [`Config::silence_timeout`]
//! while requests are under way, not even the answer to an easy question, counts as lost (`silence`).
//!
//! # Bounds
//!
//! | what | bound | at the bound |
//! |---|---|---|
//! | buffered writes of a transaction | [`TxnOptions::buffer_bytes`] | [`Txn::flush_if_large`] sends them as intents |
//! | the same, if nobody flushes | 16 times that, at least 64 MiB | [`KvErrorKind::Overloaded`] |
//! | refresh spans | 512 spans, 256 KiB | neighbours are merged into wider ones |
//! | an exported transaction | 20 MiB, of which 16 MiB of buffered writes | those are flushed first; [`KvErrorKind::Overloaded`] |
//! | parts of a transaction | one for each range it uses | |
//! | batches of one call under way | 64 | further ranges wait for their turn |
//! | moves of the snapshot for one read | 32 | [`KvErrorKind::Retry`] |
//! | timestamps tried by a commit in one range that read elsewhere | 8 | [`KvErrorKind::Retry`] |
//! | keys that the record of a commit names | 256, 64 KiB | it takes two rounds |
//! | how far ahead a commit's timestamp is chosen | [`MAX_CLOCK_OFFSET_NS`](kv_api::timestamp::MAX_CLOCK_OFFSET_NS), 500 ms | it may take two rounds |
//! | ranges with writes of one transaction | 256 | [`KvErrorKind::Overloaded`] at the commit |
//! | a commit over several ranges that gets no answer | 5 minutes | it is left to the ranges to find out |
//! | commits being told to ranges at a time | 512 | further ones wait their turn |
//! | clocks of ranges remembered | 1,024 | all are learned again |
//! | requests under way that may wait | [`Config::max_in_flight`] | further ones queue |
//! | way to a node that serves | [`Config::connect_timeout`] | [`KvErrorKind::Unavailable`] |
//! | addresses remembered | 64 | further ones are not |
//! | ranges remembered | 1,024 | one is forgotten and looked up when it is wanted |
//! | a listing of contention | what is asked for, and 10,000 entries of each kind for a range | it says that there is more |
//! | connections | 64 | one without use is closed; if all are in use, [`KvErrorKind::Unavailable`] |
//! | a frame | [`MAX_FRAME_LEN`](kv_api::wire::MAX_FRAME_LEN) | [`KvErrorKind::InvalidRequest`] |
//!
//! # Missing
//!
//! Reads from any replica in further ranges than the first one, once something there may be uncertain.
//! Snapshots of their own for cursors under READ COMMITTED.
//!
//! Values and keys returned are slices of the frame they came in: whoever keeps one for long copies it.

mod addresses;
mod client;
mod config;
mod connection;
mod connections;
mod deadline;
pub mod environment;
pub mod faults;
mod join;
mod lead;
mod listing;
mod located;
mod metrics;
mod pending;
mod ranges;
mod refresh;
mod router;
mod silence;
mod txn;
mod walk;
mod write_buffer;

pub use client::KvClient;
pub use config::Config;
pub use deadline::{CommitDeadline, CommitDeadlines};
pub use environment::Environment;
pub use kv_api::batch::{RangeConfig, RangeInfo, ReplicaCheck, WaitPolicy};
pub use kv_api::contention;
pub use kv_api::{KvError, KvErrorKind, KvResult, LockStrength, Priority, Span, TenantId, Timestamp};
pub use txn::{
    ColumnPage, CommitInfo, FOLLOWER_READ_AGE, Isolation, ReadOptions, Savepoint, ScanOptions, ScanPage,
    TransferKey, Txn, TxnName, TxnOptions,
};

/// Whether running a whole transaction again will probably succeed where it failed with this error.
pub fn is_retryable(error: &KvError) -> bool {
    matches!(
        error.kind(),
        KvErrorKind::Retry | KvErrorKind::Aborted | KvErrorKind::Deadlock | KvErrorKind::SnapshotBehind
    )
}
