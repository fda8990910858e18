//! Which ranges there are; splits, and tenants that come and go.

use super::{Happening, World};
use crate::clock::{MILLI, Micros};
use crate::coverage::Kind;
use crate::fault::Which;
use crate::layout::{self, Register, Tenant};
use crate::node::Input;
use crate::plan::NODES;
use crate::register::FIRST_RANGE;
use crate::service::Wish;
use crate::watch::Violation;
use rand::Rng;
use rand::seq::IndexedRandom;
use replication::{NodeId, RangeId};
use std::collections::{BTreeMap, BTreeSet};

/// How long it takes until a node is told once more that a range is gone.
const TOLD_AGAIN: (Micros, Micros) = (100 * MILLI, 1_000 * MILLI);

/// The ranges of a run, as far as somebody has seen them.
#[derive(Debug)]
pub(super) struct Ranges {
    /// Those that are.
    live: BTreeSet<RangeId>,
    /// Those that were dropped.
    gone: BTreeSet<RangeId>,
    /// By range, the tenant it was or is to be made for.
    tenants: BTreeMap<RangeId, Tenant>,
    /// What was asked for: ranges, and ranges for tenants.
    asked: (RangeId, Tenant),
}

impl Default for Ranges {
    fn default() -> Self {
        Ranges {
            live: BTreeSet::from([FIRST_RANGE]),
            gone: BTreeSet::new(),
            tenants: BTreeMap::new(),
            asked: (FIRST_RANGE, 0),
        }
    }
}

impl Ranges {
    /// All that ever were, in order.
    pub(super) fn all(&self) -> Vec<RangeId> {
        self.live.union(&self.gone).copied().collect()
    }

    /// Those that are.
    pub(super) fn live(&self) -> &BTreeSet<RangeId> {
        &self.live
    }

    /// Those that were dropped.
    pub(super) fn gone(&self) -> &BTreeSet<RangeId> {
        &self.gone
    }

    /// Whose a range is or was.
    pub(super) fn tenant(&self, range: RangeId) -> Option<Tenant> {
        self.tenants.get(&range).copied()
    }

    fn next(&mut self) -> RangeId {
        self.asked.0 += 1;
        self.asked.0
    }
}

impl World {
    /// A range is on some disk.
    pub(super) fn range_seen(&mut self, range: RangeId) {
        if self.ranges.gone.contains(&range) || !self.ranges.live.insert(range) {
            return;
        }
        let tenant = self.ranges.tenant(range);
        self.coverage.count(if tenant.is_some() { Kind::Created } else { Kind::Splits });
    }

    /// The registers that clients may use.
    pub(super) fn registers(&self) -> Vec<Register> {
        let live = self.ranges.live.iter().filter_map(|range| self.ranges.tenant(*range));
        (0..self.plan.keys).chain(live.flat_map(layout::registers_of)).collect()
    }

    /// The range with a register, as a node knows it.
    pub(super) fn covering(&mut self, id: NodeId, register: Register) -> Option<RangeId> {
        self.node(id)?.process.as_ref()?.store.covering(&layout::key(register))
    }

    pub(super) fn resolve_range(&mut self, which: Which) -> RangeId {
        let live: Vec<RangeId> = self.ranges.live.iter().copied().collect();
        let range = match which {
            Which::First => None,
            Which::Newest => live.last(),
            Which::Any => live.choose(&mut self.rng),
        };
        range.copied().unwrap_or(FIRST_RANGE)
    }

    /// The leader is asked to split the range.
    pub(super) fn split(&mut self, at: Option<Register>) -> Result<(), Violation> {
        let any = self.rng.random_range(0..self.plan.keys);
        let at = at.unwrap_or(any);
        let other = if self.rng.random_bool(0.2) { self.rng.random_range(0..self.plan.keys) } else { at };
        // Whoever wants a key to be the first of a range asks the range with the key.
        let Some(range) = self.leading_with(at) else { return Ok(()) };
        if self.merges.concern(range) {
            return Ok(());
        }
        let new = [self.ranges.next(), self.ranges.next()];
        self.wish(range, Wish::Split { at: [at, other], new })
    }

    /// The leader is asked to note what users want of the range.
    pub(super) fn configure(&mut self) -> Result<(), Violation> {
        let config = self.rng.random();
        self.wish(self.concern, Wish::Configure { config })
    }

    /// The range that begins with a key, as some node knows it.
    pub(super) fn beginning_with(&self, key: &[u8]) -> Option<RangeId> {
        let stores = self.nodes.iter().filter_map(|node| Some(&node.process.as_ref()?.store));
        let mut ranges = stores.filter_map(|store| {
            let range = store.covering(key)?;
            let begins = store.descriptor(range).is_some_and(|descriptor| descriptor.start == key);
            (begins && self.ranges.live.contains(&range)).then_some(range)
        });
        ranges.next()
    }

    /// The range with a register, as the one that leads it knows it.
    fn leading_with(&mut self, register: Register) -> Option<RangeId> {
        let ranges: Vec<RangeId> = self.ranges.live.iter().copied().collect();
        ranges.into_iter().find(|range| {
            let leader = self.leader_of(*range);
            leader.and_then(|id| self.covering(id, register)) == Some(*range)
        })
    }

    /// The leader of the first range is asked to create one for a tenant.
    pub(super) fn create_tenant(&mut self) -> Result<(), Violation> {
        let tenant = self.ranges.asked.1;
        if tenant >= layout::TENANTS {
            return Ok(());
        }
        // Whether it comes to be may not be known for long, so another attempt is for another tenant.
        self.ranges.asked.1 += 1;
        let new = self.ranges.next();
        self.ranges.tenants.insert(new, tenant);
        self.wish(FIRST_RANGE, Wish::Create { tenant, new })
    }

    pub(super) fn wish(&mut self, range: RangeId, wish: Wish) -> Result<(), Violation> {
        let Some(leader) = self.leader_of(range) else { return Ok(()) };
        let now = self.now;
        self.trace.note(now, || format!("n{leader} is asked for {wish:?} of range {range}"));
        self.input(leader, Input::Change(range, wish))
    }

    /// Some tenant's range is gone for good. One that takes part in a merge is not: nobody could say any more what
    /// became of that.
    pub(super) fn drop_tenant(&mut self, within: Micros) {
        let may_go = |range: &RangeId| self.ranges.tenant(*range).is_some() && !self.merges.concern(*range);
        let ranges: Vec<RangeId> = self.ranges.live.iter().copied().filter(may_go).collect();
        let Some(range) = ranges.choose(&mut self.rng).copied() else { return };
        let now = self.now;
        self.trace.note(now, || format!("range {range} is dropped"));
        self.forget_range(range, within);
    }

    /// A range is gone for good, and the nodes hear of it.
    pub(super) fn forget_range(&mut self, range: RangeId, within: Micros) {
        self.ranges.live.remove(&range);
        self.ranges.gone.insert(range);
        for id in 1..=NODES {
            let delay = self.rng.random_range(0..=within);
            self.after(delay, Happening::Destroy(id, range));
        }
    }

    /// A node hears that a range is gone, until it has destroyed what it had.
    pub(super) fn destroy(&mut self, id: NodeId, range: RangeId) -> Result<(), Violation> {
        if self.node(id).is_none_or(|node| node.destroyed.contains(&range)) {
            self.coverage.count(Kind::Destroyed);
            return Ok(());
        }
        let again = self.rng.random_range(TOLD_AGAIN.0..TOLD_AGAIN.1);
        self.after(again, Happening::Destroy(id, range));
        self.input(id, Input::Destroy(range))
    }
}
