//! Commands: what the entries of a log hold.

use crate::message::{NodeId, RangeId};
use crate::state::RangeDescriptor;
use bytes::Bytes;
use kv_api::Timestamp;
use prost::Message;

/// Version of the encoding; the first byte of every command.
const FORMAT: u8 = 1;

/// The right of one node to serve a range.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Lease {
    /// One more with every lease of the range.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    /// Whose it is; 0 before the first.
    #[prost(uint64, tag = "2")]
    pub holder: NodeId,
    /// The Raft term in which it was proposed; outside it, it is not in force.
    #[prost(uint64, tag = "3")]
    pub term: u64,
    /// The holder serves no timestamp at or above this.
    #[prost(message, required, tag = "4")]
    pub ceiling: Timestamp,
    /// The holder serves no timestamp below this: the ceiling of the lease before.
    #[prost(message, required, tag = "5")]
    pub floor: Timestamp,
}

/// Who proposed a command, so that its fate can be reported there.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Origin {
    /// The node.
    #[prost(uint64, tag = "1")]
    pub node: NodeId,
    /// Its process.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// The proposal's number there.
    #[prost(uint64, tag = "3")]
    pub id: u64,
}

/// Ranges come to be, or the keys of this one change.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RangeChange {
    /// The range's own descriptor from now on, if it changes. Its generation is higher than before, and its
    /// keys are among those before.
    #[prost(message, optional, tag = "1")]
    pub descriptor: Option<RangeDescriptor>,
    /// Ranges that come to be on every member of this one: of the keys that it gives up, or of keys that
    /// belong to no range yet.
    #[prost(message, repeated, tag = "2")]
    pub created: Vec<RangeDescriptor>,
    /// The largest timestamp that was served in the keys that are given up, or are of no range yet: the first
    /// leases of the new ranges begin there. Absent: where the ceiling of this range's lease is.
    #[prost(message, optional, tag = "3")]
    pub served: Option<Timestamp>,
    /// The right neighbour, which is frozen and comes to be a part of this range: with the command, this range's
    /// descriptor has its keys and the batch its contents. `served` is what its [`Freeze`] says.
    #[prost(message, optional, tag = "4")]
    pub absorbed: Option<RangeDescriptor>,
    /// The range is frozen.
    #[prost(message, optional, tag = "5")]
    pub freeze: Option<Freeze>,
    /// The range is no longer frozen: it was for this merge, which certainly does not come about.
    #[prost(message, optional, tag = "6")]
    pub thaw: Option<Freeze>,
}

/// A range serves and evaluates nothing any more, because its left neighbour is about to absorb it.
///
/// The first two fields name the attempt: a range that absorbs another does so with the next generation of its
/// descriptor after the one named here, so once it has another, it never will ([`crate::change`]).
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Freeze {
    /// The left neighbour.
    #[prost(uint64, tag = "1")]
    pub absorber: RangeId,
    /// The generation of its descriptor.
    #[prost(uint64, tag = "2")]
    pub generation: u64,
    /// The largest timestamp that was served in the range that is frozen.
    #[prost(message, required, tag = "3")]
    pub served: Timestamp,
}

/// A command.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Command {
    /// Who proposed it.
    #[prost(message, optional, tag = "1")]
    pub origin: Option<Origin>,
    /// The lease under which it was evaluated.
    #[prost(uint64, tag = "2")]
    pub lease_sequence: u64,
    /// Effects: an encoded [`storage::WriteBatch`].
    #[prost(bytes = "bytes", tag = "3")]
    pub batch: Bytes,
    /// A new lease, or a higher ceiling for the one in force.
    #[prost(message, optional, tag = "4")]
    pub lease: Option<Lease>,
    /// Ranges that come to be, and what becomes of this one.
    #[prost(message, optional, tag = "5")]
    pub change: Option<RangeChange>,
    /// Who has applied this entry and reads at or below this timestamp sees everything: no later command of
    /// the range writes there.
    #[prost(message, optional, tag = "6")]
    pub closed: Option<Timestamp>,
}

impl Command {
    /// As the data of a log entry.
    pub fn to_entry(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + self.encoded_len());
        bytes.push(FORMAT);
        // A vector grows as it needs to.
        let _ = self.encode(&mut bytes);
        bytes
    }

    /// From the data of a log entry; `None` if it is damaged.
    pub fn from_entry(data: &Bytes) -> Option<Self> {
        (data.first() == Some(&FORMAT)).then(|| Command::decode(data.slice(1..)).ok()).flatten()
    }
}
