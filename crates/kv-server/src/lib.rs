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
//! * [`follower`]: reads from replicas without the lease.
//! * [`history`]: for how long replaced versions are kept.
//! * [`admin`]: requests about the cluster, for the control plane.
//! * [`connection`], [`server`]: frames and sockets of clients; [`peers`]: those of other KV nodes.
//! * [`found`], [`cluster`], [`directory`], [`placement`]: founding, joining, which ranges there are, and who
//!   has replicas.
//! * [`check`]: comparing replicas.
//! * [`environment`]: time and chance, which a simulation gives.
//!
//! # Why it is serializable
//!
//! Commit timestamps are handed out in the order commands are applied, and reads happen only at
//! timestamps below which nothing is in flight, so a snapshot never changes. A commit holds read
//! latches on everything its transaction read and write latches on all it writes while it checks that
//! nothing it read changed since its snapshot and takes its timestamp; so its reads and its writes
//! happen at that timestamp. Locks only make it likely that the check succeeds.
//!
//! # Ranges
//!
//! Every tenant has a range of its own, and the cluster's own keys have one, the root. Each is a Raft group
//! over up to three nodes by default ([`replication`], [`placement`]) with a lease, a clock and commits in
//! flight of its own ([`pipeline`]). A batch names its range; a node that does not hold the lease says who
//! does, and one without a replica says so: nothing was carried out then, and the client goes where the
//! range is ([`directory`]). When a lease is lost the transactions that were open under it are forgotten:
//! those with intents have ended, others go on at the next leaseholder and are checked at their commit as
//! always.
//!
//! A range that nobody uses falls asleep and takes no memory but for its name and keys; the first batch or
//! message wakes it. So a suspended tenant costs next to nothing, and an idle cluster sends only one sign of
//! life per pair of nodes.
//!
//! # What is missing
//!
//! A tenant's range is not split, however large it is: a transaction rests on one leaseholder's clock, latches
//! and locks, and one over several ranges needs the protocol of `cockroachdb-2020`, section 3. The log and
//! the directory know splits already ([`replication::command::RangeChange`]). Ranges are not merged; there is
//! nothing to merge before that.

pub mod admin;
pub mod authorize;
pub mod bounds;
pub mod check;
pub mod cluster;
pub mod command;
pub mod config;
pub mod connection;
pub mod directory;
pub mod environment;
pub mod evaluate;
pub mod follower;
pub mod distributed;
pub mod found;
pub mod guards;
pub mod history;
pub mod intent_set;
pub mod latch;
pub mod lock_table;
pub mod metrics;
pub mod node;
pub mod peers;
pub mod pipeline;
pub mod placement;
pub mod read;
pub mod recover;
pub mod resolve;
pub mod server;
pub mod shard;
pub mod validate;

pub use config::Limits;
pub use environment::Environment;
pub use node::Node;
pub use server::{Config, Running, ServerError, run};
