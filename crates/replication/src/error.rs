//! Why something was not done.

use crate::message::{NodeId, RangeId};
use storage::StorageError;

/// Result of this crate.
pub type ReplicationResult<T> = Result<T, ReplicationError>;

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReplicationError {
    /// The engine failed. Unless the disk is full, the store must be opened anew.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// This node has no replica of the range.
    #[error("range {0} has no replica here")]
    NoReplica(RangeId),
    /// Another node leads the range, if any does.
    #[error("range {range} is led by another node")]
    NotLeader {
        /// The range.
        range: RangeId,
        /// Who leads it, if that is known.
        leader: Option<NodeId>,
    },
    /// Another lease is in force than the one the proposal was evaluated under.
    #[error("the lease under which the command was evaluated is no longer in force")]
    LeaseChanged,
    /// Too much is under way.
    #[error("too many commands of range {0} are under way")]
    Overloaded(RangeId),
    /// A change of members that cannot be made now.
    #[error("the members of range {range} cannot be changed: {reason}")]
    Members {
        /// The range.
        range: RangeId,
        /// Why not.
        reason: String,
    },
    /// A change of ranges that cannot be made, or not now.
    #[error("range {range} cannot be changed: {reason}")]
    Change {
        /// The range.
        range: RangeId,
        /// Why not.
        reason: String,
    },
    /// Something that cannot be, unless there is a defect or damage.
    #[error("replication: {0}")]
    Internal(String),
}

impl From<raft::Error> for ReplicationError {
    fn from(error: raft::Error) -> Self {
        ReplicationError::Internal(error.to_string())
    }
}

impl From<ReplicationError> for raft::Error {
    fn from(error: ReplicationError) -> Self {
        raft::Error::Store(raft::StorageError::Other(Box::new(error)))
    }
}
