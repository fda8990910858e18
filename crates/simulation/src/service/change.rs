//! Splits, ranges that come to be elsewhere, and what users want of a range.

use super::{Ranged, Service, closed};
use crate::layout::{self, Register, Tenant};
use crate::planted::ServiceBug;
use crate::register::{Effect, Turn};
use bytes::Bytes;
use kv_api::Timestamp;
use replication::command::RangeChange;
use replication::{Proposal, RangeDescriptor, RangeId};
use storage::WriteBatch;

/// A change of ranges that a leaseholder is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The range is cut in two or three pieces, of which it keeps one.
    Split {
        /// Before which registers.
        at: [Register; 2],
        /// The new ranges.
        new: [RangeId; 2],
        /// Which piece it keeps, counted from the first one round and round.
        keeps: usize,
    },
    /// The users of the range want something else of it.
    Configure {
        /// What.
        config: u64,
    },
    /// A tenant gets a range.
    Create {
        /// Whose.
        tenant: Tenant,
        /// The new range.
        new: RangeId,
    },
}

/// A change that is wanted or under way.
#[derive(Debug)]
pub(super) struct Change {
    wish: Wish,
    sequence: u64,
    /// The proposal, once it is one.
    id: Option<u64>,
}

impl Ranged {
    /// Whether keys are being given up.
    pub(super) fn gives_up_keys(&self) -> bool {
        self.change.as_ref().is_some_and(|change| matches!(change.wish, Wish::Split { .. }))
    }
}

impl Service {
    /// An operator wants ranges to be others.
    pub fn change(&mut self, turn: &mut Turn<'_>, range: RangeId, wish: Wish) {
        if !turn.wake(range) {
            return;
        }
        let under = self.under(turn, range);
        let ranged = self.ranges.entry(range).or_default();
        match under {
            Ok(under) if ranged.change.is_none() => {
                ranged.change = Some(Change { wish, sequence: under.sequence, id: None });
                self.change_now(turn, range);
            }
            _ => turn.effects.push(Effect::Refused),
        }
    }

    /// Proposes the change that is wanted, if nothing is in its way any more.
    pub(super) fn change_now(&mut self, turn: &mut Turn<'_>, range: RangeId) {
        let ceiling = self.under(turn, range).map_or(Timestamp::MIN, |under| under.ceiling);
        let Some(ranged) = self.ranges.get_mut(&range) else { return };
        let careless = turn.planted.in_service(ServiceBug::SplitWhileServing);
        let in_the_way = ranged.gives_up_keys() && ranged.under_way().next().is_some() && !careless;
        let latest = self.clock.latest();
        let mut closed = closed(turn, ranged, latest);
        // The clock may have been ahead for another range.
        if closed >= ceiling && !turn.planted.in_service(ServiceBug::ClosedAboveCeiling) {
            closed = Timestamp::MIN;
        }
        let Some(change) = ranged.change.as_mut().filter(|change| change.id.is_none() && !in_the_way) else {
            return;
        };
        self.proposals += 1;
        change.id = Some(self.proposals);
        let proposal = turn.store.descriptor(range).and_then(|own| described(own, change.wish)).map(|made| {
            let (id, lease_sequence) = (self.proposals, change.sequence);
            Proposal { id, range, lease_sequence, batch: WriteBatch::new(), change: Some(made), closed }
        });
        if proposal.is_none_or(|proposal| turn.store.propose(turn.now, proposal).is_err()) {
            turn.effects.push(Effect::Refused);
            self.change_settled(turn, range, self.proposals);
        }
    }

    /// The fate of a change is known: whoever waited goes on, here or elsewhere.
    pub(super) fn change_settled(&mut self, turn: &mut Turn<'_>, range: RangeId, id: u64) {
        let Some(ranged) = self.ranges.get_mut(&range) else { return };
        if ranged.change.as_ref().is_none_or(|change| change.id != Some(id)) {
            return;
        }
        ranged.change = None;
        for request in std::mem::take(&mut ranged.behind_change) {
            self.request(turn, request);
        }
    }
}

/// A wish in terms of descriptors, if it makes sense.
fn described(own: &RangeDescriptor, wish: Wish) -> Option<RangeChange> {
    match wish {
        Wish::Split { at, new, keeps } => {
            let mut cuts: Vec<Bytes> = at.into_iter().map(|at| layout::key(at).into()).collect();
            cuts.retain(|cut| own.start < *cut && *cut < own.end);
            cuts.sort_unstable();
            cuts.dedup();
            cuts.push(own.end.clone());
            let mut start = own.start.clone();
            let generation = own.generation + 1;
            let piece = |end: Bytes| {
                let start = std::mem::replace(&mut start, end.clone());
                RangeDescriptor { start, end, generation, ..own.clone() }
            };
            let mut created: Vec<RangeDescriptor> = cuts.into_iter().map(piece).collect();
            let kept = created.remove(keeps % created.len());
            created.iter_mut().zip(new).for_each(|(piece, new)| piece.range_id = new);
            (!created.is_empty()).then_some(RangeChange {
                descriptor: Some(kept),
                created,
                ..RangeChange::default()
            })
        }
        Wish::Configure { config } => {
            let (config, generation) = (config.to_be_bytes().to_vec().into(), own.generation + 1);
            let descriptor = RangeDescriptor { config, generation, ..own.clone() };
            Some(RangeChange { descriptor: Some(descriptor), created: Vec::new(), ..RangeChange::default() })
        }
        Wish::Create { tenant, new } => {
            let (start, end) = layout::span_of(tenant);
            let made = RangeDescriptor { range_id: new, start, end, generation: 1, ..own.clone() };
            Some(RangeChange { descriptor: None, created: vec![made], ..RangeChange::default() })
        }
    }
}
