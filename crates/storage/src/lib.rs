//! Storage: an ordered key-value engine and the multi-version layer on it.
//!
//! # What it is for
//!
//! The KV node keeps everything durable through the [`Engine`] trait. Two implementations exist:
//! [`RocksEngine`], and [`MemoryEngine`], which loses unsynced writes when told to crash. On the trait
//! sit versions ([`mvcc`]), intents ([`intent`]), transaction records ([`txn_record`]) and the identity
//! of a store ([`ident`]). Nothing here knows of sockets, latches, locks or clocks.
//!
//! # Layout
//!
//! Keys compare bytewise; there is no comparator callback.
//!
//! | space | key | value |
//! |---|---|---|
//! | [`Space::Data`] | user key | header, timestamp (12 bytes), payload: the newest version of the key |
//! | [`Space::History`] | escaped user key, inverted timestamp (12 bytes) | header, when it was replaced (12 bytes), payload: an older version |
//! | [`Space::Locks`] | user key | an [`intent::Intent`] |
//! | [`Space::Meta`] | `ident`, `clock`, `txn/…` | store identity, clock floor, transaction records |
//! | [`Space::Raft`] | range id, kind, index | Raft logs and the state of replicas (crate `replication`) |
//!
//! The newest version of a key lives apart from the older ones because that is the one nearly every
//! request wants: a point read, a conflict check or a refresh of one key is one bloom-filtered `get`
//! instead of an iterator, and a scan meets each key once however often it was overwritten. A write
//! moves the version it replaces into the history, where versions sort newest first after their key,
//! so that a read below the newest version is one seek. Batches look keys up together ([`Reader::get_many`]) and
//! have short scans share cursors ([`Lending`]).
//!
//! # What it promises
//!
//! * A write batch takes effect whole or not at all, also across a crash; with `sync` it is durable
//!   when the call returns.
//! * Damaged bytes yield [`StorageError::Corruption`], a full disk [`StorageError::DiskFull`]; nothing
//!   panics on what a disk returns.
//! * A store of an older format version is read and upgraded, one of a newer version is refused ([`ident`]).

pub mod engine;
pub mod error;
pub mod garbage;
pub mod ident;
pub mod intent;
pub mod key;
pub mod lent;
pub mod memory;
pub mod mvcc;
pub mod rocks;
pub mod span;
pub mod txn_record;

pub use engine::{Bounds, Cursor, Engine, FirstKey, Op, Pinned, Reader, Space, Stats, WriteBatch};
pub use error::{StorageError, StorageResult};
pub use garbage::GarbageFloors;
pub use lent::Lending;
pub use memory::MemoryEngine;
pub use rocks::{RocksConfig, RocksEngine};
pub use span::range_spans;
