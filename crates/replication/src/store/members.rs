//! Changes of members and of leaders.

use super::Store;
use crate::Millis;
use crate::error::{ReplicationError, ReplicationResult};
use crate::faults::Faults;
use crate::group::Pending;
use crate::message::{NodeId, RangeId};
use bytes::Bytes;
use prost::Message;
use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2};

/// Most members one change may name.
const MAX_CHANGES: usize = 32;

/// A change of the members of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// A node gets a replica that does not vote, so that it can catch up first.
    AddLearner(NodeId),
    /// Voters come and go at once, by joint consensus; learners become voters by being added.
    Replace {
        /// Who is to vote from now on.
        add: Vec<NodeId>,
        /// Whose replica is to go.
        remove: Vec<NodeId>,
    },
}

/// A change as it lies in the log: raft-rs' own encoding is never read back.
#[derive(Clone, PartialEq, prost::Message)]
struct WireChange {
    #[prost(uint64, repeated, tag = "1")]
    learners: Vec<NodeId>,
    #[prost(uint64, repeated, tag = "2")]
    voters: Vec<NodeId>,
    #[prost(uint64, repeated, tag = "3")]
    removed: Vec<NodeId>,
}

/// The change in an entry's context; an empty one leaves a joint configuration.
pub(super) fn decode_change(context: &Bytes) -> Option<ConfChangeV2> {
    let wire = WireChange::decode(context.clone()).ok()?;
    (wire.learners.len() + wire.voters.len() + wire.removed.len() <= MAX_CHANGES).then(|| wire.to_raft())
}

impl WireChange {
    fn to_raft(&self) -> ConfChangeV2 {
        let mut change = ConfChangeV2::default();
        let kinds = [
            (ConfChangeType::AddLearnerNode, &self.learners),
            (ConfChangeType::AddNode, &self.voters),
            (ConfChangeType::RemoveNode, &self.removed),
        ];
        for (kind, nodes) in kinds {
            for node in nodes {
                let single =
                    ConfChangeSingle { change_type: kind, node_id: *node, ..ConfChangeSingle::default() };
                change.mut_changes().push(single);
            }
        }
        if self.voters.len() + self.removed.len() > 0 {
            change.transition = ConfChangeTransition::Implicit;
        }
        change
    }
}

impl<F: Faults> Store<F> {
    /// Changes the members of a range that this node leads. [`crate::Event::MembersChanged`] tells when.
    ///
    /// # Errors
    /// If this node does not hold the lease, a change is under way, or the change makes no sense.
    pub fn change_members(
        &mut self,
        now: Millis,
        range: RangeId,
        change: MemberChange,
    ) -> ReplicationResult<()> {
        self.held_sequence(range, now)?;
        let refuse = |reason: &str| ReplicationError::Members { range, reason: reason.to_owned() };
        let group = self.groups.get_mut(&range).ok_or(ReplicationError::NoReplica(range))?;
        let members = &group.state.members;
        if members.is_joint() || group.raft.raft.has_pending_conf() {
            return Err(refuse("another change is under way"));
        }
        let freezes =
            |pending: &Pending| pending.change.as_ref().is_some_and(|change| change.freeze.is_some());
        if group.state.frozen.is_some() || group.pending.values().any(freezes) {
            return Err(refuse("the range is about to be absorbed"));
        }
        let wire = match change {
            MemberChange::AddLearner(node) if members.contains(node) => {
                return Err(refuse(&format!("node {node} is a member already")));
            }
            MemberChange::AddLearner(node) => WireChange { learners: vec![node], ..WireChange::default() },
            MemberChange::Replace { add, remove } => {
                WireChange { learners: vec![], voters: add, removed: remove }
            }
        };
        if wire.voters.contains(&0) || wire.learners.contains(&0) {
            return Err(refuse("0 names no node"));
        }
        if wire.removed.contains(&self.config.node) {
            return Err(refuse("the leaseholder hands over before it goes"));
        }
        if wire.voters.iter().any(|node| wire.removed.contains(node)) {
            return Err(refuse("a node cannot come and go at once"));
        }
        // A voter without the contents of the range cannot vote (`Store::step`).
        let needed = group.state.truncated;
        let progress =
            |node: &NodeId| group.raft.raft.prs().get(*node).map_or(0, |progress| progress.matched);
        if let Some(node) =
            wire.voters.iter().find(|node| **node != self.config.node && progress(node) < needed)
        {
            return Err(refuse(&format!("node {node} is no learner that has the contents of the range")));
        }
        let count = wire.learners.len() + wire.voters.len() + wire.removed.len();
        if count == 0 || count > MAX_CHANGES {
            return Err(refuse("it names too few or too many nodes"));
        }
        let raw = wire.to_raft();
        match group.raft.propose_conf_change(wire.encode_to_vec(), raw) {
            Ok(()) => {
                group.idle_ticks = 0;
                self.dirty.insert(range);
                Ok(())
            }
            Err(raft::Error::ProposalDropped) => Err(ReplicationError::Overloaded(range)),
            Err(error) => Err(error.into()),
        }
    }

    /// Hands a range that this node leads to another voter. From now on this node serves nothing in it.
    ///
    /// # Errors
    /// If this node does not hold the lease, or the other is not a voter that is up to date and alive.
    pub fn transfer_leader(&mut self, now: Millis, range: RangeId, to: NodeId) -> ReplicationResult<()> {
        self.held_sequence(range, now)?;
        let refuse = |reason: &str| ReplicationError::Members { range, reason: reason.to_owned() };
        let live = self.liveness.is_live(now, to);
        let group = self.groups.get_mut(&range).ok_or(ReplicationError::NoReplica(range))?;
        if to == self.config.node
            || !group.state.members.voters.contains(&to)
            || group.state.members.is_joint()
        {
            return Err(refuse("the new leader must be another voter"));
        }
        let last = group.raft.raft.raft_log.last_index();
        let near = group.raft.raft.prs().get(to).is_some_and(|progress| progress.matched + 1024 >= last);
        if !live || !near {
            return Err(refuse("the new leader is not up to date"));
        }
        // Before the message that lets the other campaign can leave.
        group.revoked = Some(group.term());
        group.revoked_ticks = 0;
        group.drowsy = false;
        group.idle_ticks = 0;
        group.raft.transfer_leader(to);
        self.dirty.insert(range);
        Ok(())
    }
}
