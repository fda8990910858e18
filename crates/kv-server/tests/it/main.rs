//! The KV node as its clients see it, on an engine in memory that can crash and on RocksDB.

mod connection;
mod contention;
mod crash;
mod distributed;
mod histories;
mod merge;
mod nodes;
mod peers;
mod protocol;
mod spans;
mod split;
mod support;
mod transfer;
