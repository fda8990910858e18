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
//! * [`authorize`]: whose keys a request may touch; before anything else. `classify`: which way a batch takes.
//! * [`latch`], [`lock_table`], [`shard`]: who may evaluate, who waits for whom, which transactions are
//!   open. Pure, in memory, bounded by what is going on.
//! * [`evaluate`], [`read`]: from requests to effects; `key_states`, `vacancy`: what a batch knows of the keys that it
//!   writes, and where nothing lies, so that many new ones need no look-up each; `column_page`: scans that return columns, and `column_cache`: those that are
//!   kept for the next one.
//! * [`pipeline`]: the lease, the clock, the order of commits, and the way of commands through the Raft log.
//! * [`contention`]: who waited for whom, kept for a while and listed with who does.
//! * [`resolve`]: moves intents of finished transactions to the versions.
//! * [`distributed`]: a range's part in transactions over several; [`recover`]: what becomes of those whose
//!   coordinators are gone, and of cycles of waiting transactions over several nodes.
//! * `transfer`: a range's part in transactions that change their coordinator.
//! * [`follower`]: reads from replicas without the lease.
//! * [`history`]: for how long replaced versions are kept; `idle_flush`: when what is in memtables is written out.
//! * [`admin`]: requests about the cluster, for the control plane.
//! * [`connection`], [`server`]: frames and sockets of clients; [`peers`]: those of other KV nodes.
//! * [`found`], [`cluster`], [`directory`], [`placement`]: founding, joining, which ranges there are, and who
//!   has replicas.
//! * [`split_size`], [`split_load`]: when and where ranges are cut in two; [`merge_idle`]: when two become one, and
//!   [`contents`]: what then goes from one to the other.
//! * [`check`]: comparing replicas.
//! * [`clock_check`], [`steady`]: whether the wall clock is right, and what is done with one that jumps.
//! * [`environment`], [`faults`]: time and chance, and bugs, as a simulation gives them.
//!
//! # Why it is serializable
//!
//! Commit timestamps are handed out in the order commands are applied, and reads happen only at
//! timestamps below which nothing is in flight, so a snapshot never changes. A commit holds read
//! latches on everything its transaction read and write latches on all it writes while it checks that
//! nothing it read changed since its snapshot and takes its timestamp; so its reads and its writes
//! happen at that timestamp. Locks only make it likely that the check succeeds.
//!
//! Over several ranges the same holds at one timestamp that all of them agree on: each range validates what was
//! read there up to the commit timestamp and moves its clock there, so that nothing is written below it any
//! more; and whoever reads at or above the timestamp at which a part is prepared waits until it is decided. The
//! clock of a range takes the place of a timestamp cache (`cockroachdb-2020`, section 3.3): it is above
//! everything that was read in the range, under this lease and under all before. That is coarse, and costs a
//! second round where a range is read between the moment a coordinator chooses a timestamp and the moment it gets
//! there; so coordinators choose one that is a little ahead.
//!
//! # Ranges
//!
//! A tenant begins with one range, which is split when it is too large or too busy, and the cluster's own keys
//! have one, the root. Each is a Raft group over up to three nodes by default ([`replication`], [`placement`])
//! with a lease, a clock and commits in flight of its own ([`pipeline`]). A batch names its range; a node that
//! does not hold the lease says who does, and one without a replica, or one that does not hold all its keys, says
//! so: nothing was carried out then, and the client goes where the range is ([`directory`]). When a lease is lost
//! what is in memory of the transactions that were open under it is forgotten: those with intents have ended,
//! unless they are prepared, which is on record; others go on at the next leaseholder and are checked at their
//! commit as always.
//!
//! A range that nobody uses falls asleep and takes no memory but for its name and keys; the first batch or
//! message wakes it. What is left of it in the engine's memory is written out when the node has gone quiet. So a suspended tenant costs next to nothing, and an idle cluster sends only one sign of
//! life per pair of nodes.
//!
//! A range is split when it is too large or too busy, by one command of its own log ([`cluster`]). While that is
//! under way nothing is let in; afterwards its keys are fewer and its lease has another name, so that what was
//! evaluated before is refused. The directory hears of it after the fact, and a client that asks the wrong range
//! is told so and looks again.
//!
//! Two neighbours are merged when somebody asks for it, or both have been small and idle for [`Limits::merge_after`] where
//! that is set: the right one is frozen, and the left one absorbs what it holds with one command of its own log. Its clock is from then on above everything that was served in the other. If
//! whoever merges is gone half way, the leaseholder of the frozen range finds out what came of it ([`cluster`]).
//!
//! # What is missing
//!
//! A range in which transactions have intents is split only when they have ended, and merged only when its
//! transactions have no locks either. What is merged holds at most 8 MiB, for it travels with one command; ranges whose
//! replicas all serve the present are not merged. Locks go
//! with keys that are split off. Priorities ([`kv_api::Priority`]) count for
//! locks and deadlocks alone. Load is counted in batches, not in the time of the processor.

pub mod admin;
pub mod authorize;
pub mod bounds;
pub mod check;
mod classify;
pub mod clock_check;
pub mod cluster;
mod column_cache;
mod column_page;
pub mod command;
pub mod config;
pub mod connection;
pub mod contention;
pub mod contents;
mod cycles;
pub mod directory;
pub mod distributed;
mod elsewhere;
pub mod environment;
pub mod evaluate;
pub mod faults;
pub mod follower;
pub mod found;
pub mod global;
pub mod guards;
pub mod history;
mod idle_flush;
pub mod intent_set;
mod key_states;
pub mod latch;
mod list_contention;
pub mod lock_table;
pub mod merge_idle;
pub mod metrics;
pub mod node;
mod patience;
pub mod peers;
pub mod pipeline;
pub mod placement;
pub mod read;
pub mod recover;
pub mod resolve;
pub mod server;
pub mod settle;
pub mod shard;
pub mod span_config;
pub mod split_load;
pub mod split_size;
pub mod steady;
mod transfer;
mod vacancy;
pub mod validate;

pub use config::{ColumnCacheConfig, Limits};
pub use environment::Environment;
pub use node::Node;
pub use server::{Config, Failed, Running, ServerError, run};
pub use storage::RocksConfig as EngineConfig;
