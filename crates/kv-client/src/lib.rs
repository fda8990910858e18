//! How a SQL node reaches the key-value layer: one connection, and the transaction coordinator.
//!
//! # What it is for
//!
//! [`KvClient`] keeps one mutual-TLS connection to the KV node and runs any number of requests on it at
//! once. [`Txn`] is a transaction's coordinator (`cockroachdb-2020`, section 3.1; the protocol is written
//! down in `kv-api`): it buffers writes, lays them over what it reads, tracks what must stay unchanged,
//! and commits in one batch. Both speak of keys *within the tenant*: the tenant's prefix is added on the
//! way out and stripped on the way in, here and nowhere else.
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
//! # Losing the connection
//!
//! The connection is made again in the background. A request that was not sent yet waits for it, up to
//! [`Config::connect_timeout`]. One that was sent and not answered is sent again if that is harmless: a
//! read of a transaction without locks and intents, an increment, a range clear. A commit that was sent
//! and not answered is [`KvErrorKind::Ambiguous`](kv_api::KvErrorKind::Ambiguous).
//!
//! # Bounds
//!
//! | what | bound | at the bound |
//! |---|---|---|
//! | buffered writes of a transaction | [`TxnOptions::buffer_bytes`] | flushed as intents |
//! | refresh spans | 512 spans, 256 KiB | neighbours are merged into wider ones |
//! | requests under way | [`Config::max_in_flight`] | further ones wait |
//! | reconnection | [`Config::connect_timeout`] | [`KvErrorKind::Unavailable`](kv_api::KvErrorKind::Unavailable) |

mod client;
mod config;
mod connection;
mod pending;
mod refresh;
mod txn;
mod write_buffer;

pub use client::KvClient;
pub use config::Config;
pub use txn::{CommitInfo, Isolation, ReadOptions, Savepoint, ScanOptions, ScanPage, Txn, TxnOptions};
