//! Replication: ranges as Raft groups over several KV nodes.
//!
//! # What it is for
//!
//! A [`Store`] is one KV node's share of all Raft groups: it appends commands to their logs, exchanges
//! messages with its peers, applies what is committed to the [`storage::Engine`], elects leaders, grants
//! leases and moves snapshots. It is the consensus layer of `cockroachdb-2020`, sections 2.2 and 4.2, on
//! raft-rs.
//!
//! It is synchronous and single-threaded, and takes time and randomness as arguments; it reads and
//! writes the engine and does no other I/O. Whoever drives it, the KV node's replication thread or the
//! simulation, calls [`Store::step`] with what arrives, [`Store::propose`] with what is to be replicated,
//! [`Store::tick`] now and then, and [`Store::process`] to have all of that persisted and applied; and
//! carries away [`Store::take_messages`].
//!
//! # Batching
//!
//! [`Store::process`] collects what every group with something to do wants to persist into one write
//! batch with one sync, whatever the number of groups. What is committed is applied with the next batch
//! and not synced on its own: the log can be applied again.
//!
//! # Liveness is per node
//!
//! Nodes that share a group exchange one heartbeat per pair and interval ([`liveness`]), whatever the
//! number of groups. A node that answers a heartbeat *supports* the sender for a while: it promises not
//! to help elect another leader in any group it knows the sender to lead. So groups in which nothing
//! happens send nothing and are not ticked.
//!
//! # Leases
//!
//! The leader of a group is its leaseholder. A lease is a command in the log, with a sequence number one
//! higher than the last, proposed by each new leader in its term; it is in force while a majority of the
//! voters support the leader's node and know, in this very term, that it leads. The next leader needs a
//! vote of that majority, which it cannot get before the support has run out. So leases are disjoint in
//! time, and only the *rates* of the nodes' clocks matter for that, not what they show
//! ([`liveness::RATE_MARGIN`]).
//!
//! A command carries the sequence number of the lease it was evaluated under and has no effect if another
//! is in force when it is applied ([`apply`]). A lease also carries a *ceiling*: its holder serves no
//! timestamp at or above it, and the next holder none below. So timestamps never run backwards from
//! leaseholder to leaseholder, whatever their clocks show.
//!
//! # Snapshots
//!
//! A replica that has fallen behind the truncated log is sent the contents of the range in chunks, each
//! acknowledged before the next is sent ([`snapshot`]). While they arrive the replica is *incomplete*: a
//! durable mark that keeps it from campaigning and from serving. The scan is not of one instant:
//! commands hold effects, so that applying those the scan overlapped with once more, in order, comes to
//! the same state; and a replica that has not applied them is not elected.
//!
//! # What it promises
//!
//! * An event that says a command was applied is given after the command is durable on a majority.
//! * A proposal ends in exactly one event: applied, or rejected, which means that it never takes effect.
//!   As long as neither is known there is no event; whoever waits decides for how long.
//! * Bytes from a peer or from the disk never panic it. A message that makes no sense is dropped; damage
//!   on disk stops the store with an error.

pub mod apply;
pub mod command;
pub mod config;
pub mod error;
pub mod faults;
pub mod group;
pub mod lease;
pub mod liveness;
pub mod log;
mod logger;
pub mod message;
pub mod snapshot;
pub mod state;
pub mod store;

pub use command::Lease;
pub use config::StoreConfig;
pub use error::{ReplicationError, ReplicationResult};
pub use faults::{Bug, Faults, Sound};
pub use lease::LeaseView;
pub use message::{Envelope, NodeId, RangeId};
pub use state::RangeDescriptor;
pub use store::{Event, GroupStatus, MemberChange, Proposal, Store};

/// Milliseconds of a clock that only goes forward, from an arbitrary beginning.
pub type Millis = u64;
