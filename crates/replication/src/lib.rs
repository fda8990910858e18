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
//! # Ranges that come to be
//!
//! A range is made by a command in the log of another ([`RangeChange`]): of keys that the other gives up, which
//! is a split, or of keys that no range has, which is how a tenant comes to be. Every member of the other
//! range writes the first replica when it applies the entry, in the same batch; the new group has the same
//! members, and its first lease begins where the ceiling of the other's lease is, because the other may have
//! served its keys up to there. Whether a change fits is judged again when it is applied, from the state of the
//! range alone ([`change`]).
//!
//! Messages of the new group may come before the entry is applied here. They make an empty replica, which has a
//! term, votes and may be bound to a leader; the first replica takes over all of that. Some members may never
//! apply the entry: a snapshot of the other range takes them beyond it. Perhaps only one replica of the new
//! group is made, and it is elected by empty ones and brings them up with snapshots. They have acknowledged
//! nothing, so any candidate will do. Where a replica with contents was removed before, or is, no first replica
//! is made, and what an empty one there would have to remember it does not know: it does not vote.
//!
//! No two replicas of a node have a key in common ([`index`]). A snapshot with keys of another replica is
//! refused: that other has not heard that it gave them up, and would one day clear them. It is woken to hear
//! it, and the snapshot is sent again later.
//!
//! # Ranges that are merged
//!
//! A range absorbs its right neighbour in two commands, one in each log ([`RangeChange`]). The first freezes the
//! neighbour: nothing is evaluated or served in it any more, and no command but one that ends that has an effect. It
//! carries the largest timestamp served. The second, in the log of the range that absorbs, carries all that the
//! neighbour holds; who proposes it has read that from a replica that had applied the freeze, once all members had. So
//! members of the two need not be the same ones, and no replica has to wait for another group. Where there is a replica
//! of the neighbour it is destroyed with the same batch; others are for the directory to see to. The ceiling of the
//! lease is above what the neighbour served from then on.
//!
//! The second command fits one generation of the descriptor. Whoever wants to be sure that a merge does not come about,
//! because nobody goes on with it, has the range that was to absorb take another generation first, and only then ends
//! the freeze.
//!
//! [`Store::destroy`] removes a range that the directory has forgotten, without its log; a mark stays, so that
//! nothing that is still under way brings it back.
//!
//! # Sleep
//!
//! Most ranges are used by nobody most of the time. A group that has not been used for
//! [`StoreConfig::sleep_after_ms`] leaves memory; of a replica that sleeps its descriptor remains, in less
//! than 270 bytes, and no time is spent on it. [`Store::open`] loads no group. A group comes back when somebody
//! asks for it ([`Store::wake`]), and then campaigns at once, or when a message comes for it ([`idle`]).
//!
//! A leader sleeps first. It gives up its lease, and the driver hears [`Event::LeaseLost`]; a tick later it
//! tells the members and goes. It never leads again in this term, so they are bound to it no longer, and go
//! too. A follower that has not heard it stays and asks ([`message::LeaderQuery`]), for a leader without
//! work is silent too: being bound to a leader is a promise on which that leader's lease rests, and is kept in
//! memory only. So no replica sleeps while it is bound.
//!
//! # Reading at followers
//!
//! A command can carry a *closed* timestamp: no later command writes at or below it. A replica that has applied
//! the command serves what is below as the leaseholder would ([`Store::closed`]). To read at the present time
//! it asks the leaseholder which timestamp and which entry that is, and waits until it has applied the entry
//! ([`Store::applied`]); that is the driver's business, and [`Store::send_app`] carries it.
//!
//! # What it promises
//!
//! * An event that says a command was applied is given after the command is durable on a majority.
//! * A proposal ends in exactly one event: applied, or rejected, which means that it never takes effect.
//!   As long as neither is known there is no event; whoever waits decides for how long.
//! * Bytes from a peer or from the disk never panic it. A message that makes no sense is dropped; damage
//!   on disk stops the store with an error.

pub mod apply;
pub mod change;
pub mod command;
pub mod config;
pub mod error;
pub mod faults;
pub mod group;
pub mod idle;
pub mod index;
pub mod lease;
pub mod liveness;
pub mod log;
mod logger;
pub mod message;
pub mod snapshot;
pub mod state;
pub mod store;

pub use command::{Lease, RangeChange};
pub use config::StoreConfig;
pub use error::{ReplicationError, ReplicationResult};
pub use faults::{Bug, Faults, Sound};
pub use lease::LeaseView;
pub use message::{Envelope, NodeId, RangeId};
pub use state::{RangeDescriptor, RangeState};
pub use store::{Event, GroupStatus, MemberChange, Proposal, Store};

/// Milliseconds of a clock that only goes forward, from an arbitrary beginning.
pub type Millis = u64;
