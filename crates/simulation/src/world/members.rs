//! Changes of members, as an operator or a rebalancing queue would make them.

use super::World;
use crate::coverage::Kind;
use crate::node::Input;
use crate::plan::NODES;
use crate::watch::Violation;
use rand::Rng;
use rand::seq::IndexedRandom;
use replication::{GroupStatus, MemberChange, NodeId};

impl World {
    /// The leader is asked for some change that makes sense.
    pub(super) fn change_members(&mut self) -> Result<(), Violation> {
        let Some(leader) = self.leader() else { return Ok(()) };
        let Some(status) = self.status_of(leader).filter(|status| !status.members.is_joint()) else {
            return Ok(());
        };
        match self.draw_change(leader, &status) {
            Some(change) => self.propose_change(leader, change),
            None => Ok(()),
        }
    }

    /// The leader is asked for a learner.
    pub(super) fn add_learner(&mut self, id: NodeId) -> Result<(), Violation> {
        match self.leader() {
            Some(leader) => self.propose_change(leader, MemberChange::AddLearner(id)),
            None => Ok(()),
        }
    }

    /// The leader is asked to make these the voters.
    pub(super) fn set_voters(&mut self, voters: &[NodeId]) -> Result<(), Violation> {
        let Some(leader) = self.leader() else { return Ok(()) };
        let Some(members) = self.status_of(leader).map(|status| status.members) else { return Ok(()) };
        let add: Vec<NodeId> = voters.iter().copied().filter(|id| !members.voters.contains(id)).collect();
        let remove: Vec<NodeId> = members.all().into_iter().filter(|id| !voters.contains(id)).collect();
        self.propose_change(leader, MemberChange::Replace { add, remove })
    }

    fn propose_change(&mut self, leader: NodeId, change: MemberChange) -> Result<(), Violation> {
        self.coverage.count(Kind::MemberChanges);
        let (now, range) = (self.now, self.concern);
        self.trace.note(now, || format!("n{leader} is asked for {change:?} of range {range}"));
        self.input(leader, Input::Members(self.concern, change))
    }

    fn draw_change(&mut self, leader: NodeId, status: &GroupStatus) -> Option<MemberChange> {
        let members = &status.members;
        let voters = members.voters.len();
        let others: Vec<NodeId> = members.voters.iter().copied().filter(|id| *id != leader).collect();
        let replace = |add: Option<NodeId>, remove: Option<NodeId>| {
            let (add, remove): (Vec<_>, Vec<_>) = (add.into_iter().collect(), remove.into_iter().collect());
            (add.len() + remove.len() > 0).then_some(MemberChange::Replace { add, remove })
        };
        if let Some(learner) = members.learners.choose(&mut self.rng).copied() {
            // One that has nothing yet must not be needed for a majority.
            let caught_up = status.behind.iter().any(|(id, matched)| *id == learner && *matched > 0);
            if !caught_up || self.rng.random_bool(0.2) {
                return replace(None, Some(learner).filter(|_| self.rng.random_bool(0.3)));
            }
            // Grows to three, then moves or grows by chance.
            let grow = voters < 3 || (voters < 5 && self.rng.random_bool(0.3));
            return replace(Some(learner), others.choose(&mut self.rng).copied().filter(|_| !grow));
        }
        let outside: Vec<NodeId> = (1..=NODES).filter(|id| !members.contains(*id)).collect();
        match outside.choose(&mut self.rng) {
            Some(id) if voters <= 3 || self.rng.random_bool(0.5) => {
                // Usually a learner first, which is caught up before it counts.
                if voters < 2 || self.rng.random_bool(0.8) {
                    return Some(MemberChange::AddLearner(*id));
                }
                replace(Some(*id), others.choose(&mut self.rng).copied().filter(|_| voters >= 3))
            }
            _ if voters > 3 => replace(None, others.choose(&mut self.rng).copied()),
            _ => None,
        }
    }
}
