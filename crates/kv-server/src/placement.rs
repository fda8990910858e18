//! Who should have replicas of a range: pure.
//!
//! One decision at a time, from what the leaseholder sees now; when it has taken effect the next is made.
//! A new replica begins as a learner and becomes a voter when it has caught up, in the same step in which
//! the voter it replaces goes: the number of voters never falls (`cockroachdb-2020`, section 2.2.3).

use replication::{MemberChange, NodeId};

/// How many voters a range has when there are enough nodes.
pub const REPLICAS: usize = 3;

/// A node, as the leaseholder sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Its number.
    pub id: NodeId,
    /// Where it stands.
    pub locality: String,
    /// Whether it was silent for so long that it is taken for lost.
    pub dead: bool,
    /// Whether it was heard of just now.
    pub live: bool,
    /// Whether it is to be emptied.
    pub draining: bool,
    /// Whether its replica, if it has one, has nearly the whole log.
    pub caught_up: bool,
}

/// Who belongs to the range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Who votes.
    pub voters: Vec<NodeId>,
    /// Who listens.
    pub learners: Vec<NodeId>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Change the members.
    Change(MemberChange),
    /// Hand the lease over.
    Transfer(NodeId),
}

/// The next step for a range that `leaseholder` serves; `None` if all is well or nothing can be done.
pub fn next_step(leaseholder: NodeId, placed: &Placed, nodes: &[NodeView]) -> Option<Step> {
    let view = |id: NodeId| nodes.iter().find(|node| node.id == id);
    let fit = |id: &NodeId| view(*id).is_some_and(|node| !node.dead && !node.draining);
    let fit_nodes = nodes.iter().filter(|node| fit(&node.id)).count();
    // Two voters are less available than one.
    let wanted = if fit_nodes >= REPLICAS { REPLICAS } else { 1 };
    let good: Vec<NodeId> = placed.voters.iter().copied().filter(|id| fit(id)).collect();
    let bad: Vec<NodeId> = placed.voters.iter().copied().filter(|id| !fit(id)).collect();
    let lost_learners: Vec<NodeId> = placed.learners.iter().copied().filter(|id| !fit(id)).collect();
    if !lost_learners.is_empty() {
        return Some(Step::Change(MemberChange::Replace { add: vec![], remove: lost_learners }));
    }
    if bad.contains(&leaseholder) {
        // Draining, since it answers. Its replica goes when somebody else leads.
        let other = good.iter().copied().find(|id| view(*id).is_some_and(|node| node.live && node.caught_up));
        return other.map(Step::Transfer);
    }
    let missing = wanted.saturating_sub(good.len());
    let ready: Vec<NodeId> = placed
        .learners
        .iter()
        .copied()
        .filter(|id| view(*id).is_some_and(|node| node.live && node.caught_up))
        .take(missing)
        .collect();
    if missing > 0 && ready.len() == missing {
        return Some(Step::Change(MemberChange::Replace { add: ready, remove: bad }));
    }
    if placed.learners.len() < missing {
        let taken: Vec<&str> = good
            .iter()
            .chain(&placed.learners)
            .filter_map(|id| view(*id))
            .map(|node| &node.locality[..])
            .collect();
        let new = nodes
            .iter()
            .filter(|node| fit(&node.id) && node.live)
            .filter(|node| !placed.voters.contains(&node.id) && !placed.learners.contains(&node.id))
            // The fewer have its locality, the better; then the oldest.
            .min_by_key(|node| {
                (taken.iter().filter(|locality| **locality == node.locality).count(), node.id)
            });
        return new.map(|node| Step::Change(MemberChange::AddLearner(node.id)));
    }
    if missing == 0 && !bad.is_empty() {
        return Some(Step::Change(MemberChange::Replace { add: vec![], remove: bad }));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: NodeId) -> NodeView {
        NodeView { id, locality: String::new(), dead: false, live: true, draining: false, caught_up: true }
    }

    fn placed(voters: &[NodeId], learners: &[NodeId]) -> Placed {
        Placed { voters: voters.to_vec(), learners: learners.to_vec() }
    }

    fn replace(add: &[NodeId], remove: &[NodeId]) -> Option<Step> {
        Some(Step::Change(MemberChange::Replace { add: add.to_vec(), remove: remove.to_vec() }))
    }

    fn learner(id: NodeId) -> Option<Step> {
        Some(Step::Change(MemberChange::AddLearner(id)))
    }

    #[test]
    fn a_range_grows_to_three_at_once() {
        let mut nodes = vec![node(1), node(2)];
        assert_eq!(next_step(1, &placed(&[1], &[]), &nodes), None, "two are not better than one");
        nodes.push(node(3));
        assert_eq!(next_step(1, &placed(&[1], &[]), &nodes), learner(2));
        assert_eq!(next_step(1, &placed(&[1], &[2]), &nodes), learner(3));
        nodes[2].caught_up = false;
        assert_eq!(next_step(1, &placed(&[1], &[2, 3]), &nodes), None, "not yet");
        nodes[2].caught_up = true;
        assert_eq!(next_step(1, &placed(&[1], &[2, 3]), &nodes), replace(&[2, 3], &[]));
        assert_eq!(next_step(1, &placed(&[1, 2, 3], &[]), &nodes), None);
    }

    #[test]
    fn a_dead_voter_is_replaced_when_somebody_can() {
        let mut nodes = vec![node(1), node(2), node(3)];
        nodes[2].live = false;
        assert_eq!(next_step(1, &placed(&[1, 2, 3], &[]), &nodes), None, "it may come back");
        nodes[2].dead = true;
        assert_eq!(
            next_step(1, &placed(&[1, 2, 3], &[]), &nodes[..2]),
            replace(&[], &[3]),
            "one is left to vote"
        );
        nodes.push(node(4));
        assert_eq!(next_step(1, &placed(&[1, 2, 3], &[]), &nodes), learner(4));
        assert_eq!(next_step(1, &placed(&[1, 2, 3], &[4]), &nodes), replace(&[4], &[3]));
    }

    #[test]
    fn a_draining_leaseholder_hands_over_first() {
        let mut nodes = vec![node(1), node(2), node(3), node(4)];
        nodes[0].draining = true;
        assert_eq!(next_step(1, &placed(&[1, 2, 3], &[]), &nodes), Some(Step::Transfer(2)));
        assert_eq!(next_step(2, &placed(&[1, 2, 3], &[]), &nodes), learner(4));
        assert_eq!(next_step(2, &placed(&[1, 2, 3], &[4]), &nodes), replace(&[4], &[1]));
        assert_eq!(next_step(2, &placed(&[2, 3, 4], &[]), &nodes), None);
    }

    #[test]
    fn replicas_are_spread_over_localities() {
        let mut nodes = vec![node(1), node(2), node(3), node(4)];
        for (node, zone) in nodes.iter_mut().zip(["a", "a", "b", "c"]) {
            node.locality = format!("zone={zone}");
        }
        assert_eq!(next_step(1, &placed(&[1], &[]), &nodes), learner(3));
        assert_eq!(next_step(1, &placed(&[1], &[3]), &nodes), learner(4));
    }
}
