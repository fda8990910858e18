//! Who should have replicas of a range, and who its lease: pure.
//!
//! One decision at a time, from what the leaseholder sees now; when it has taken effect the next is made.
//! A new replica begins as a learner and becomes a voter when it has caught up, in the same step in which
//! the voter it replaces goes: the number of voters never falls (`cockroachdb-2020`, section 2.2.3).
//!
//! Repair comes first, then balance. A replica moves for balance only from a node that has clearly more to
//! one that has clearly fewer ([`slack`]), so that what one leaseholder does is no reason for the next to
//! undo it. Leases go where they are preferred; otherwise they follow load.

use kv_api::batch::RangeConfig;
use replication::{MemberChange, NodeId, RangeId};

/// How many voters a range has by default when there are enough nodes.
pub const REPLICAS: usize = 3;
/// Load, in batches per second, below which a node is not worth relieving.
const MIN_LOAD: u64 = 200;

/// A node, as the leaseholder sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Replicas it has.
    pub replicas: u64,
    /// Leases it holds.
    pub leases: u64,
    /// Batches it carries out, per second.
    pub load: u64,
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
    /// Change the members, because something is missing or to go.
    Change(MemberChange),
    /// Hand the lease over, because it must not stay.
    Transfer(NodeId),
    /// Change the members for balance.
    Balance(MemberChange),
    /// Hand the lease over for balance.
    BalanceLease(NodeId),
}

/// Whether a locality has a `key=value` pair.
pub fn has_pair(locality: &str, pair: &str) -> bool {
    locality.split(',').any(|own| own.trim() == pair.trim())
}

/// How many more replicas, or leases, a node must have than another before one moves between them.
pub fn slack(total: u64, nodes: usize) -> u64 {
    let mean = total / u64::try_from(nodes.max(1)).unwrap_or(1);
    2 + mean / 20
}

/// The next step for a range that `leaseholder` serves and that carries out `range_load` batches per second;
/// `None` if all is well or nothing can be done.
pub fn next_step(
    leaseholder: NodeId,
    placed: &Placed,
    nodes: &[NodeView],
    config: &RangeConfig,
    range_load: u64,
) -> Option<Step> {
    let range = Range { leaseholder, placed, nodes, config };
    range.repair().or_else(|| range.balance()).or_else(|| range.lease(range_load))
}

/// Whether replicas should move for balance.
pub fn is_uneven(nodes: &[NodeView]) -> bool {
    let fit = || nodes.iter().filter(|node| node.live && !node.draining).map(|node| node.replicas);
    let (most, least) = (fit().max().unwrap_or(0), fit().min().unwrap_or(0));
    most > least + slack(fit().sum(), fit().count())
}

/// Who is to wake a range that sleeps, if something is to be done about it: whoever wakes it leads it. Ranges are
/// spread over their members, but where replicas are uneven the fullest member leads none: a leaseholder's own
/// replica does not move.
pub fn waker(range: RangeId, placed: &Placed, nodes: &[NodeView]) -> Option<NodeId> {
    let views = placed.voters.iter().filter_map(|id| nodes.iter().find(|node| node.id == *id));
    let live: Vec<&NodeView> = views.filter(|node| node.live).collect();
    let mut able: Vec<&NodeView> = live.iter().filter(|node| !node.draining).copied().collect();
    if able.is_empty() {
        able = live;
    }
    if able.len() > 1 && is_uneven(nodes) {
        able.sort_by_key(|node| (node.replicas, node.id));
        able.pop();
    }
    able.sort_by_key(|node| node.id);
    let turn = usize::try_from(range).unwrap_or(0) % able.len().max(1);
    able.get(turn).map(|node| node.id)
}

/// Whether the members of a range that sleeps should be looked at by a leaseholder, which its waker would be. Nobody
/// knows how far the replicas are that sleep; a leaseholder finds out.
pub fn needs_care(waker: NodeId, placed: &Placed, nodes: &[NodeView], config: &RangeConfig) -> bool {
    let awake = |node: &NodeView| NodeView { caught_up: true, ..node.clone() };
    let nodes: Vec<NodeView> = nodes.iter().map(awake).collect();
    let range = Range { leaseholder: waker, placed, nodes: &nodes, config };
    range.repair().or_else(|| range.balance()).is_some()
}

struct Range<'a> {
    leaseholder: NodeId,
    placed: &'a Placed,
    nodes: &'a [NodeView],
    config: &'a RangeConfig,
}

impl<'a> Range<'a> {
    fn view(&self, id: NodeId) -> Option<&'a NodeView> {
        self.nodes.iter().find(|node| node.id == id)
    }

    fn allows(&self, node: &NodeView) -> bool {
        self.config.constraints.iter().all(|pair| has_pair(&node.locality, pair))
    }

    fn is_fit(&self, node: &NodeView) -> bool {
        !node.dead && !node.draining && self.allows(node)
    }

    fn fit(&self, id: NodeId) -> bool {
        self.view(id).is_some_and(|node| self.is_fit(node))
    }

    fn ready(&self, id: NodeId) -> bool {
        self.view(id).is_some_and(|node| node.live && node.caught_up)
    }

    /// How many voters there should be: as many as configured, or as many as there are nodes for; an odd
    /// number, for two voters are less available than one.
    fn wanted(&self) -> usize {
        let fit = self.nodes.iter().filter(|node| self.is_fit(node)).count();
        let configured = match self.config.replicas {
            0 => REPLICAS,
            replicas => replicas as usize,
        };
        let possible = configured.min(fit);
        if possible == 0 { 0 } else { possible - (possible + 1) % 2 }
    }

    /// How many of `others` stand where a node stands.
    fn company(&self, node: &NodeView, others: &[NodeId]) -> usize {
        let there = |id: &&NodeId| self.view(**id).is_some_and(|other| other.locality == node.locality);
        others.iter().filter(there).count()
    }

    fn repair(&self) -> Option<Step> {
        let placed = self.placed;
        let wanted = self.wanted();
        if wanted == 0 {
            return None;
        }
        let good: Vec<NodeId> = placed.voters.iter().copied().filter(|id| self.fit(*id)).collect();
        let bad: Vec<NodeId> = placed.voters.iter().copied().filter(|id| !self.fit(*id)).collect();
        let lost: Vec<NodeId> = placed.learners.iter().copied().filter(|id| !self.fit(*id)).collect();
        if !lost.is_empty() {
            return Some(Step::Change(MemberChange::Replace { add: vec![], remove: lost }));
        }
        let missing = wanted.saturating_sub(good.len());
        if bad.contains(&self.leaseholder) {
            // Draining or where it may not be, since it answers. Its replica goes when somebody else leads.
            if let Some(other) = good.iter().copied().find(|id| self.ready(*id)) {
                return Some(Step::Transfer(other));
            }
        }
        let ready: Vec<NodeId> =
            placed.learners.iter().copied().filter(|id| self.ready(*id)).take(missing).collect();
        if missing > 0 && ready.len() == missing {
            // The leaseholder goes last.
            let remove = bad.into_iter().filter(|id| *id != self.leaseholder).collect();
            return Some(Step::Change(MemberChange::Replace { add: ready, remove }));
        }
        if placed.learners.len() < missing {
            let taken: Vec<NodeId> = good.iter().chain(&placed.learners).copied().collect();
            return self.newcomer(&taken).map(|node| Step::Change(MemberChange::AddLearner(node.id)));
        }
        if missing > 0 {
            return None;
        }
        let remove: Vec<NodeId> = bad.into_iter().filter(|id| *id != self.leaseholder).collect();
        if !remove.is_empty() {
            return Some(Step::Change(MemberChange::Replace { add: vec![], remove }));
        }
        if good.len() > wanted {
            let worst = self.fullest(&good)?;
            return Some(Step::Change(MemberChange::Replace { add: vec![], remove: vec![worst.id] }));
        }
        None
    }

    /// Where a new replica goes: where the fewest of `taken` stand, then where the fewest replicas are.
    fn newcomer(&self, taken: &[NodeId]) -> Option<&'a NodeView> {
        let placed = self.placed;
        self.nodes
            .iter()
            .filter(|node| self.is_fit(node) && node.live)
            .filter(|node| !placed.voters.contains(&node.id) && !placed.learners.contains(&node.id))
            .min_by_key(|node| (self.company(node, taken), node.replicas, node.id))
    }

    /// The voter to go, if one has to: where the most others stand, then the one with the most replicas; never
    /// the leaseholder.
    fn fullest(&self, voters: &[NodeId]) -> Option<&'a NodeView> {
        voters
            .iter()
            .filter(|id| **id != self.leaseholder)
            .filter_map(|id| self.view(*id))
            .max_by_key(|node| (self.company(node, voters), node.replicas, node.id))
    }

    fn slack(&self) -> u64 {
        let nodes = || self.nodes.iter().filter(|node| self.is_fit(node));
        slack(nodes().map(|node| node.replicas).sum(), nodes().count())
    }

    /// A replica moves from where many are to where few are. The range lacks nothing.
    fn balance(&self) -> Option<Step> {
        let placed = self.placed;
        let full = self.fullest(&placed.voters)?;
        if let Some(new) = placed.learners.first() {
            // It was added to move a replica here, and does so unless that became pointless meanwhile.
            let node = self.view(*new)?;
            if node.replicas > full.replicas + self.slack() {
                let remove = vec![*new];
                return Some(Step::Balance(MemberChange::Replace { add: vec![], remove }));
            }
            let moves = MemberChange::Replace { add: vec![*new], remove: vec![full.id] };
            return self.ready(*new).then_some(Step::Balance(moves));
        }
        let stays: Vec<NodeId> = placed.voters.iter().copied().filter(|id| *id != full.id).collect();
        let new = self.newcomer(&stays)?;
        let no_worse = self.company(new, &stays) <= self.company(full, &stays);
        if no_worse && full.replicas > new.replicas + self.slack() {
            return Some(Step::Balance(MemberChange::AddLearner(new.id)));
        }
        // The leaseholder's own replica moves once somebody else leads.
        let own = self.view(self.leaseholder)?;
        let others: Vec<NodeId> =
            placed.voters.iter().copied().filter(|id| *id != self.leaseholder).collect();
        let new = self.newcomer(&others)?;
        let no_worse = self.company(new, &others) <= self.company(own, &others);
        let other = others.into_iter().find(|id| self.ready(*id) && self.fit(*id))?;
        let far = own.replicas > new.replicas + self.slack() && own.replicas > full.replicas;
        (no_worse && far).then_some(Step::BalanceLease(other))
    }

    fn lease(&self, range_load: u64) -> Option<Step> {
        let voters = || {
            let ready = self
                .placed
                .voters
                .iter()
                .filter(|id| **id == self.leaseholder || (self.ready(**id) && self.fit(**id)));
            ready.filter_map(|id| self.view(*id))
        };
        let rank = |node: &NodeView| {
            let preferences = &self.config.lease_preferences;
            preferences.iter().position(|pair| has_pair(&node.locality, pair)).unwrap_or(preferences.len())
        };
        let own = self.view(self.leaseholder)?;
        let best = voters().map(rank).min()?;
        let least = voters()
            .filter(|node| node.id != own.id && rank(node) == best)
            .min_by_key(|node| (node.load, node.leases, node.id))?;
        if rank(own) > best {
            return Some(Step::Transfer(least.id));
        }
        // The move must make the larger load of the two clearly smaller: loads are a moment old and uneven.
        let after = least.load.saturating_add(range_load.saturating_mul(5) / 4);
        let relieves = own.load > MIN_LOAD && range_load > 0 && after < own.load / 4 * 3;
        let many =
            own.leases > least.leases + slack(own.leases + least.leases, 2) + 2 && own.load <= MIN_LOAD;
        (relieves || many).then_some(Step::BalanceLease(least.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: NodeId) -> NodeView {
        NodeView { id, live: true, caught_up: true, ..NodeView::default() }
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

    fn step(leaseholder: NodeId, placed: &Placed, nodes: &[NodeView]) -> Option<Step> {
        next_step(leaseholder, placed, nodes, &RangeConfig::default(), 0)
    }

    #[test]
    fn a_range_grows_to_three_at_once() {
        let mut nodes = vec![node(1), node(2)];
        assert_eq!(step(1, &placed(&[1], &[]), &nodes), None, "two are not better than one");
        nodes.push(node(3));
        assert_eq!(step(1, &placed(&[1], &[]), &nodes), learner(2));
        assert_eq!(step(1, &placed(&[1], &[2]), &nodes), learner(3));
        nodes[2].caught_up = false;
        assert_eq!(step(1, &placed(&[1], &[2, 3]), &nodes), None, "not yet");
        nodes[2].caught_up = true;
        assert_eq!(step(1, &placed(&[1], &[2, 3]), &nodes), replace(&[2, 3], &[]));
        assert_eq!(step(1, &placed(&[1, 2, 3], &[]), &nodes), None);
    }

    #[test]
    fn a_dead_voter_is_replaced_when_somebody_can() {
        let mut nodes = vec![node(1), node(2), node(3)];
        nodes[2].live = false;
        assert_eq!(step(1, &placed(&[1, 2, 3], &[]), &nodes), None, "it may come back");
        nodes[2].dead = true;
        assert_eq!(step(1, &placed(&[1, 2, 3], &[]), &nodes[..2]), replace(&[], &[3]), "one is left to vote");
        nodes.push(node(4));
        assert_eq!(step(1, &placed(&[1, 2, 3], &[]), &nodes), learner(4));
        assert_eq!(step(1, &placed(&[1, 2, 3], &[4]), &nodes), replace(&[4], &[3]));
        assert!(needs_care(1, &placed(&[1, 2, 3], &[]), &nodes, &RangeConfig::default()));
    }

    #[test]
    fn a_range_that_fell_asleep_on_its_way_is_woken() {
        let nodes = vec![node(1), node(2), node(3)];
        let cares = |placed: &Placed| needs_care(1, placed, &nodes, &RangeConfig::default());
        assert!(cares(&placed(&[1], &[])));
        assert!(cares(&placed(&[1], &[2])));
        assert!(cares(&placed(&[1], &[2, 3])), "only a leaseholder makes voters of them");
        assert!(cares(&placed(&[1, 2, 3], &[4])));
        assert!(!cares(&placed(&[1, 2, 3], &[])));
    }

    #[test]
    fn ranges_are_woken_by_members_that_need_not_give_theirs_away() {
        let mut nodes = vec![node(1), node(2), node(3), node(4)];
        let all = placed(&[1, 2, 3], &[]);
        let wakers = |nodes: &[NodeView]| -> Vec<Option<NodeId>> {
            (3..=5).map(|range| waker(range, &all, nodes)).collect()
        };
        assert_eq!(wakers(&nodes), [Some(1), Some(2), Some(3)]);
        (nodes[0].replicas, nodes[1].replicas, nodes[2].replicas) = (60, 60, 50);
        assert_eq!(wakers(&nodes), [Some(3), Some(1), Some(3)]);
        // Whoever it is finds something to do, whoever stands first among the voters.
        for range in 3..=5 {
            let waker = waker(range, &all, &nodes).expect("one");
            assert!(needs_care(waker, &all, &nodes, &RangeConfig::default()));
        }
        nodes[0].live = false;
        nodes[2].draining = true;
        assert_eq!(wakers(&nodes), [Some(2); 3]);
        nodes[1].live = false;
        assert_eq!(wakers(&nodes), [Some(3); 3], "better than nobody");
        nodes[2].live = false;
        assert_eq!(wakers(&nodes), [None; 3]);
    }

    #[test]
    fn a_draining_leaseholder_hands_over_first() {
        let mut nodes = vec![node(1), node(2), node(3), node(4)];
        nodes[0].draining = true;
        assert_eq!(step(1, &placed(&[1, 2, 3], &[]), &nodes), Some(Step::Transfer(2)));
        assert_eq!(step(2, &placed(&[1, 2, 3], &[]), &nodes), learner(4));
        assert_eq!(step(2, &placed(&[1, 2, 3], &[4]), &nodes), replace(&[4], &[1]));
        assert_eq!(step(2, &placed(&[2, 3, 4], &[]), &nodes), None);
    }

    #[test]
    fn a_lone_leaseholder_that_must_go_gets_company_first() {
        let mut nodes = vec![node(1), node(2)];
        nodes[0].draining = true;
        assert_eq!(step(1, &placed(&[1], &[]), &nodes), learner(2));
        assert_eq!(step(1, &placed(&[1], &[2]), &nodes), replace(&[2], &[]));
        assert_eq!(step(1, &placed(&[1, 2], &[]), &nodes), Some(Step::Transfer(2)));
        assert_eq!(step(2, &placed(&[1, 2], &[]), &nodes), replace(&[], &[1]));
    }

    #[test]
    fn replicas_are_spread_over_localities() {
        let mut nodes = vec![node(1), node(2), node(3), node(4)];
        for (node, zone) in nodes.iter_mut().zip(["a", "a", "b", "c"]) {
            node.locality = format!("zone={zone}");
        }
        assert_eq!(step(1, &placed(&[1], &[]), &nodes), learner(3));
        assert_eq!(step(1, &placed(&[1], &[3]), &nodes), learner(4));
    }

    #[test]
    fn replicas_stay_where_they_may_be() {
        let mut nodes = vec![node(1), node(2), node(3), node(4), node(5)];
        for (node, region) in nodes.iter_mut().zip(["eu", "us", "us", "eu", "eu"]) {
            node.locality = format!("region={region},zone=a");
        }
        let eu = RangeConfig { constraints: vec!["region=eu".into()], ..RangeConfig::default() };
        let step = |leaseholder, placed: &Placed| next_step(leaseholder, placed, &nodes, &eu, 0);
        assert_eq!(step(2, &placed(&[1, 2, 3], &[])), Some(Step::Transfer(1)));
        assert_eq!(step(1, &placed(&[1, 2, 3], &[])), learner(4));
        assert_eq!(step(1, &placed(&[1, 2, 3], &[4, 5])), replace(&[4, 5], &[2, 3]));
        assert_eq!(step(1, &placed(&[1, 4, 5], &[])), None);
        let nowhere = RangeConfig { constraints: vec!["region=mars".into()], ..RangeConfig::default() };
        assert_eq!(next_step(2, &placed(&[1, 2, 3], &[]), &nodes, &nowhere, 0), None, "nobody could");
        let five = RangeConfig { replicas: 5, ..RangeConfig::default() };
        assert_eq!(next_step(1, &placed(&[1, 2, 3], &[]), &nodes, &five, 0), learner(4));
        let one = RangeConfig { replicas: 1, ..RangeConfig::default() };
        assert_eq!(next_step(1, &placed(&[1, 2, 3], &[]), &nodes, &one, 0), replace(&[], &[3]));
    }

    #[test]
    fn replicas_move_to_nodes_with_clearly_fewer_and_not_back() {
        let mut nodes = vec![node(1), node(2), node(3), node(4)];
        for node in &mut nodes[..3] {
            node.replicas = 40;
        }
        let balance = |change| Some(Step::Balance(change));
        assert_eq!(step(1, &placed(&[1, 2, 3], &[]), &nodes), balance(MemberChange::AddLearner(4)));
        let moves = MemberChange::Replace { add: vec![4], remove: vec![3] };
        assert_eq!(step(1, &placed(&[1, 2, 3], &[4]), &nodes), balance(moves));
        for replicas in [37, 38, 40, 43] {
            nodes[3].replicas = replicas;
            assert_eq!(step(1, &placed(&[1, 2, 3], &[]), &nodes), None);
            assert_eq!(step(1, &placed(&[1, 2, 4], &[]), &nodes), None);
        }
        nodes[3].replicas = 41;
        let moves = MemberChange::Replace { add: vec![4], remove: vec![3] };
        assert_eq!(step(1, &placed(&[1, 2, 3], &[4]), &nodes), balance(moves), "what was begun is finished");
        nodes[3].replicas = 50;
        let undone = MemberChange::Replace { add: vec![], remove: vec![4] };
        assert_eq!(step(1, &placed(&[1, 2, 3], &[4]), &nodes), balance(undone), "pointless by now");
        nodes[3].replicas = 30;
        (nodes[1].replicas, nodes[2].replicas) = (30, 30);
        assert_eq!(step(1, &placed(&[1, 2, 3], &[]), &nodes), Some(Step::BalanceLease(2)), "then its own");
    }

    #[test]
    fn leases_go_where_they_are_preferred_and_follow_load() {
        let mut nodes = vec![node(1), node(2), node(3)];
        for (node, zone) in nodes.iter_mut().zip(["a", "b", "c"]) {
            node.locality = format!("zone={zone}");
        }
        let all = placed(&[1, 2, 3], &[]);
        let prefer = |pairs: &[&str]| RangeConfig {
            lease_preferences: pairs.iter().map(|pair| (*pair).to_owned()).collect(),
            ..RangeConfig::default()
        };
        let at_c = prefer(&["zone=x", "zone=c"]);
        assert_eq!(next_step(1, &all, &nodes, &at_c, 0), Some(Step::Transfer(3)));
        assert_eq!(next_step(3, &all, &nodes, &at_c, 9000), None);
        nodes[2].live = false;
        assert_eq!(next_step(1, &all, &nodes, &at_c, 0), None, "it is not there");
        nodes[2].live = true;
        (nodes[0].load, nodes[1].load, nodes[2].load) = (1000, 500, 100);
        let busy = |range_load| next_step(1, &all, &nodes, &RangeConfig::default(), range_load);
        assert_eq!(busy(300), Some(Step::BalanceLease(3)));
        assert_eq!(busy(900), None, "it would only move the load");
        assert_eq!(busy(0), None, "it would relieve nobody");
        let after = vec![
            NodeView { load: 700, ..nodes[0].clone() },
            nodes[1].clone(),
            NodeView { load: 400, ..nodes[2].clone() },
        ];
        assert_eq!(next_step(3, &all, &after, &RangeConfig::default(), 300), None, "and not back");
    }
}
