//! The KV node: serves the keyspace to SQL nodes and the control plane.
//!
//! # What it is for
//!
//! It takes batches ([`kv_api::batch`]) over mutually authenticated connections, evaluates them with
//! serializable isolation and keeps what it acknowledges durable in a [`storage::Engine`].
//!
//! # How a batch flows
//!
//! ```text
//!  connection ─► authorize ─► validate ─┬─► read (closed timestamp; nothing to wait for) ─► answer
//!                                       └─► latches ─► evaluate ─┬─► wait for a lock, start over
//!                                                                └─► command ─► pipeline ─► answer
//! ```
//!
//! * [`authorize`]: whose keys a request may touch; before anything else.
//! * [`latch`], [`lock_table`], [`shard`]: who may evaluate, who waits for whom, which transactions are
//!   open. Pure, in memory, bounded by what is going on.
//! * [`evaluate`], [`read`]: from requests to effects.
//! * [`pipeline`]: the lease, the clock, the order of commits, and the way of commands through the Raft log.
//! * [`resolve`]: moves intents of finished transactions to the versions.
//! * [`nodes`]: which nodes the cluster has, for the control plane.
//! * [`connection`], [`server`]: frames and sockets of clients; [`peers`]: those of other KV nodes.
//! * [`found`], [`cluster`], [`placement`]: founding, joining, and who has replicas.
//!
//! # Why it is serializable
//!
//! Commit timestamps are handed out in the order commands are applied, and reads happen only at
//! timestamps below which nothing is in flight, so a snapshot never changes. A commit holds read
//! latches on everything its transaction read and write latches on all it writes while it checks that
//! nothing it read changed since its snapshot and takes its timestamp; so its reads and its writes
//! happen at that timestamp. Locks only make it likely that the check succeeds.
//!
//! # One range, several replicas
//!
//! One range holds all keys; it is a Raft group over up to three nodes ([`replication`], [`placement`]).
//! Its leaseholder serves all clients; the other nodes send them there ([`connection`]). When the lease is
//! lost so are the transactions that were open under it, and their connections are closed: to a client it
//! is what a restart of the node would be. [`cluster`] knows the nodes and looks after the replicas,
//! [`peers`] carries the messages.
//!
//! Several ranges are not here. Each will have what a [`shard::Shard`] has, and a lease and a clock of its
//! own; transactions over several need the protocol of `cockroachdb-2020`, section 3.

pub mod authorize;
pub mod cluster;
pub mod command;
pub mod config;
pub mod connection;
pub mod evaluate;
pub mod found;
pub mod latch;
pub mod lock_table;
pub mod metrics;
pub mod node;
pub mod nodes;
pub mod peers;
pub mod pipeline;
pub mod placement;
pub mod read;
pub mod resolve;
pub mod server;
pub mod shard;
pub mod validate;

pub use config::Limits;
pub use node::Node;
pub use server::{Config, Running, ServerError, run};
