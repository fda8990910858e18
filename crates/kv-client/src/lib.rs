//! How a SQL node reaches the key-value layer: one connection, and the transaction coordinator.
//!
//! # What it is for
//!
//! [`KvClient`] keeps one mutual-TLS connection to the KV node that serves clients, the leaseholder, and
//! runs any number of requests on it at once. [`Txn`] is a transaction's coordinator (`cockroachdb-2020`, section 3.1; the protocol is written
//! down in `kv-api`): it buffers writes, lays them over what it reads, tracks what must stay unchanged,
//! and commits in one batch. Both speak of keys *within the tenant*: the tenant's prefix is added on the
//! way out and stripped on the way in, here and nowhere else.
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
//!     └── connection lost while it held locks or intents ──► failed: Aborted
//! ```
//!
//! A transaction becomes *known to the node* with its first locking read or flush; from then on all its
//! batches go on that one connection, and whatever ends it is told to the node. A commit without writes
//! costs no round trip; if it held locks, their release is sent and not waited for.
//!
//! Any future of this crate may be dropped half way. A read that was given up changes nothing but may
//! leave a lock. A flush that was given up leaves the transaction able to read and roll back only. A
//! commit that was given up is rolled back if it is not decided yet.
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
//! All clients must be on the KV node that holds the lease. Every other node refuses them and names it, if
//! it knows it; a node that loses the lease closes its connections. The client goes where it is sent, or
//! around the nodes it knows, until one serves it ([`route`]). It is given some addresses at the start and
//! learns others from what nodes say. A request that waits notices nothing of this.
//!
//! # Losing the connection
//!
//! The connection is made again in the background. A request that was not written to the socket yet
//! waits for it, up to [`Config::connect_timeout`]. One that was written and not answered is sent again
//! if that is harmless: a read of a transaction unknown to the node until then, an increment, a range
//! clear. A commit that was sent and not answered is
//! [`KvErrorKind::Ambiguous`].
//!
//! # Bounds
//!
//! | what | bound | at the bound |
//! |---|---|---|
//! | buffered writes of a transaction | [`TxnOptions::buffer_bytes`] | [`Txn::flush_if_large`] sends them as intents |
//! | the same, if nobody flushes | 16 times that, at least 64 MiB | [`KvErrorKind::Overloaded`] |
//! | refresh spans | 512 spans, 256 KiB | neighbours are merged into wider ones |
//! | requests under way that may wait | [`Config::max_in_flight`] | further ones queue |
//! | reconnection | [`Config::connect_timeout`] | [`KvErrorKind::Unavailable`] |
//! | addresses remembered | 64 | further ones are not |
//! | a frame | [`MAX_FRAME_LEN`](kv_api::wire::MAX_FRAME_LEN) | [`KvErrorKind::InvalidRequest`] |
//!
//! # Missing
//!
//! Several ranges with leaseholders of their own; detection of a peer that is silent without closing once it
//! has said hello; snapshots of their own for cursors under READ COMMITTED.
//!
//! Values and keys returned are slices of the frame they came in: whoever keeps one for long copies it.

mod client;
mod config;
mod connection;
mod metrics;
mod pending;
mod refresh;
mod route;
mod txn;
mod write_buffer;

pub use client::KvClient;
pub use config::Config;
pub use kv_api::batch::WaitPolicy;
pub use kv_api::{KvError, KvErrorKind, KvResult, LockStrength, Span, TenantId, Timestamp};
pub use txn::{CommitInfo, Isolation, ReadOptions, Savepoint, ScanOptions, ScanPage, Txn, TxnOptions};

/// Whether running a whole transaction again will probably succeed where it failed with this error.
pub fn is_retryable(error: &KvError) -> bool {
    matches!(error.kind(), KvErrorKind::Retry | KvErrorKind::Aborted | KvErrorKind::Deadlock)
}
