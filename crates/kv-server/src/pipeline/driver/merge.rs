//! Merging a range whose lease is held here with a neighbour: see [`super::change`], and [`crate::cluster`] for how the
//! two come together.

use super::change::Proposed;
use super::{Driver, busy, span_of};
use crate::faults::Bug;
use crate::pipeline::MAX_AHEAD_NS;
use kv_api::{KvError, Timestamp};
use replication::change::merged;
use replication::command::{Freeze, RangeChange};
use replication::{Millis, RangeDescriptor, RangeId};
use storage::WriteBatch;

/// For which merge a range is to be frozen.
#[derive(Clone, Debug)]
pub struct FreezeFor {
    /// The range as whoever merges knows it.
    pub expected: RangeDescriptor,
    /// Its left neighbour.
    pub absorber: RangeId,
    /// The generation of that one's descriptor.
    pub generation: u64,
}

impl FreezeFor {
    pub(super) fn check(&self, own: &RangeDescriptor) -> Result<(), KvError> {
        if *own == self.expected { Ok(()) } else { Err(busy("it has changed meanwhile")) }
    }
}

/// What a range absorbs.
#[derive(Clone, Debug)]
pub struct Absorption {
    /// Its right neighbour, which is frozen.
    pub right: RangeDescriptor,
    /// For which merge.
    pub freeze: Freeze,
    /// What it holds but for the records of transactions.
    pub contents: WriteBatch,
    /// These.
    pub records: Vec<storage::txn_record::TxnRecord>,
}

impl Absorption {
    pub(super) fn check(&self, own: &RangeDescriptor) -> Result<(), KvError> {
        let same = own.range_id == self.freeze.absorber && own.generation == self.freeze.generation;
        if same { Ok(()) } else { Err(busy("it has changed meanwhile")) }
    }
}

impl Driver {
    /// The command that freezes a range in which nothing is under way.
    pub(super) fn freeze_command(&self, range: RangeId, wanted: &FreezeFor) -> Result<Proposed, KvError> {
        let own = self.store.descriptor(range).ok_or_else(|| KvError::range_not_found(range))?;
        wanted.check(own)?;
        if self.is_used(range) {
            return Err(busy("transactions are open in it"));
        }
        self.check_not_ahead(range)?;
        let served = self.served(range).ok_or_else(|| KvError::range_not_found(range))?;
        let freeze = Freeze { absorber: wanted.absorber, generation: wanted.generation, served };
        Ok((WriteBatch::new(), RangeChange { freeze: Some(freeze), ..RangeChange::default() }))
    }

    /// What was promised ahead of the present does not hold where commits are not waited out, and the other way round.
    fn check_not_ahead(&self, range: RangeId) -> Result<(), KvError> {
        let is_ahead = self.shared.state.lock().ranges.get(&range).is_some_and(|found| found.ahead.is_some());
        if is_ahead { Err(busy("all its replicas serve the present")) } else { Ok(()) }
    }

    /// Whether transactions have anything in a range.
    pub(super) fn is_used(&self, range: RangeId) -> bool {
        let Some(span) = self.store.descriptor(range).map(span_of) else { return false };
        let hook = self.hook.lock().clone();
        hook.is_some_and(|hook| hook.is_used(range, &span))
    }

    /// The command with which a range in which nothing is under way absorbs another.
    pub(super) fn absorb_command(
        &self,
        range: RangeId,
        absorption: &Absorption,
    ) -> Result<Proposed, KvError> {
        let own = self.store.descriptor(range).ok_or_else(|| KvError::range_not_found(range))?;
        absorption.check(own)?;
        self.check_not_ahead(range)?;
        let wall_ns = self.shared.wall_ns(&mut self.shared.state.lock());
        if absorption.freeze.served.wall_ns > wall_ns.saturating_add(MAX_AHEAD_NS) {
            return Err(busy("the clock of its neighbour is further ahead than clocks can be"));
        }
        let mut batch = absorption.contents.clone();
        if let Some(hook) = self.hook.lock().clone() {
            let careless = self.shared.environment.planted(Bug::MergedWhilePrepared);
            if !hook.can_split(range, &span_of(own)) && !careless {
                return Err(busy("transactions are open in it"));
            }
            hook.add_to_absorbed(&own.start, &absorption.records, &mut batch)?;
        }
        let change = RangeChange {
            descriptor: Some(merged(own, &absorption.right)),
            absorbed: Some(absorption.right.clone()),
            served: Some(absorption.freeze.served),
            ..RangeChange::default()
        };
        Ok((batch, change))
    }

    /// A range has absorbed another, which has served timestamps up to this one.
    pub(super) fn absorbed(&mut self, now: Millis, range: RangeId, served: Timestamp) {
        if self.awake.get(&range).is_none_or(|awake| awake.acquired.is_none()) {
            // Whoever holds the lease next begins above it.
            return;
        }
        if !self.shared.environment.planted(Bug::MergeForgetsClock)
            && let Some(found) = self.shared.state.lock().ranges.get_mut(&range)
        {
            found.clock.observe(served);
            found.written = found.written.max(served);
        }
        self.raise_ceiling(now, range);
        let span = self.store.descriptor(range).map(span_of);
        if let (Some(hook), Some(span)) = (self.hook.lock().clone(), span)
            && let Err(error) = hook.adopt(range, &span)
        {
            tracing::error!(range, "records of transactions cannot be read: {error}");
        }
    }

    /// Ranges whose leases are held here and which are frozen, and for which merges.
    pub(super) fn frozen(&self) -> Vec<(RangeDescriptor, Freeze)> {
        let held =
            self.awake.iter().filter(|(_, awake)| awake.acquired.is_some() && awake.changing.is_none());
        let frozen = held.filter_map(|(range, _)| {
            Some((self.store.descriptor(*range)?.clone(), self.store.frozen(*range)?))
        });
        frozen.collect()
    }
}
