//! Splits, merges, ranges that come to be elsewhere, and what users want of a range.

use super::{Ranged, Service, closed};
use crate::layout::{self, Register, Tenant};
use crate::planted::{Planted, ServiceBug};
use crate::register::{Effect, Turn};
use bytes::Bytes;
use kv_api::Timestamp;
use replication::change::merged;
use replication::command::{Freeze, RangeChange};
use replication::{Proposal, RangeDescriptor, RangeId};
use storage::WriteBatch;

/// A change of ranges that a leaseholder is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The range is cut in two or three pieces, of which it keeps the first.
    Split {
        /// Before which registers.
        at: [Register; 2],
        /// The new ranges.
        new: [RangeId; 2],
    },
    /// The range is to be absorbed: nothing is served from then on.
    Freeze {
        /// By its left neighbour.
        absorber: RangeId,
        /// As long as its descriptor has this generation.
        generation: u64,
    },
    /// The range absorbs its right neighbour.
    Absorb {
        /// The neighbour.
        right: RangeDescriptor,
        /// The generation that the range's own descriptor has.
        generation: u64,
        /// What the neighbour served.
        served: Timestamp,
        /// What it holds: an encoded batch.
        contents: Bytes,
    },
    /// The range no longer absorbs anything as of this generation of its descriptor.
    Fence {
        /// The generation.
        generation: u64,
    },
    /// The range serves again: it certainly is not absorbed.
    Thaw,
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
    /// Whether keys are being given up, and nothing may be served because of that.
    pub(super) fn gives_up_keys(&self, planted: Planted) -> bool {
        let bug = match self.change.as_ref().map(|change| &change.wish) {
            Some(Wish::Split { .. }) => ServiceBug::SplitWhileServing,
            Some(Wish::Freeze { .. }) => ServiceBug::FrozenWhileServing,
            _ => return false,
        };
        !planted.in_service(bug)
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

    /// Whether a change of a range is wanted or under way here.
    pub fn is_changing(&self, range: RangeId) -> bool {
        self.ranges.get(&range).is_some_and(|ranged| ranged.change.is_some())
    }

    /// Proposes the change that is wanted, if nothing is in its way any more.
    pub(super) fn change_now(&mut self, turn: &mut Turn<'_>, range: RangeId) {
        let ceiling = self.under(turn, range).map_or(Timestamp::MIN, |under| under.ceiling);
        let Some(ranged) = self.ranges.get_mut(&range) else { return };
        let in_the_way = ranged.gives_up_keys(turn.planted) && ranged.under_way().next().is_some();
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
        let batch = match &change.wish {
            Wish::Absorb { contents, .. } => WriteBatch::decode(contents).unwrap_or_default(),
            _ => WriteBatch::new(),
        };
        let frozen = turn.store.frozen(range);
        let own = turn.store.descriptor(range);
        let made = own.and_then(|own| described(own, frozen, latest, &change.wish));
        let proposal = made.map(|made| {
            let (id, lease_sequence) = (self.proposals, change.sequence);
            Proposal { id, range, lease_sequence, batch, change: Some(made), closed }
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

/// A wish in terms of descriptors, if it makes sense. `latest` is the largest timestamp served.
fn described(
    own: &RangeDescriptor,
    frozen: Option<Freeze>,
    latest: Timestamp,
    wish: &Wish,
) -> Option<RangeChange> {
    match wish {
        Wish::Freeze { absorber, generation } => {
            let freeze = Freeze { absorber: *absorber, generation: *generation, served: latest };
            Some(RangeChange { freeze: Some(freeze), ..RangeChange::default() })
        }
        Wish::Thaw => Some(RangeChange { thaw: Some(frozen?), ..RangeChange::default() }),
        Wish::Absorb { right, generation, served, .. } => {
            (own.generation == *generation).then(|| RangeChange {
                descriptor: Some(merged(own, right)),
                absorbed: Some(right.clone()),
                served: Some(*served),
                ..RangeChange::default()
            })
        }
        Wish::Fence { generation } => (own.generation == *generation).then(|| {
            let descriptor = RangeDescriptor { generation: generation + 1, ..own.clone() };
            RangeChange { descriptor: Some(descriptor), ..RangeChange::default() }
        }),
        Wish::Split { at, new } => {
            let mut cuts: Vec<Bytes> = at.iter().map(|at| layout::key(*at).into()).collect();
            cuts.retain(|cut| own.start < *cut && *cut < own.end);
            cuts.sort_unstable();
            cuts.dedup();
            cuts.push(own.end.clone());
            let mut start = own.start.clone();
            let (generation, origin) = (own.generation + 1, own.family());
            let piece = |end: Bytes| {
                let start = std::mem::replace(&mut start, end.clone());
                RangeDescriptor { start, end, generation, origin, ..own.clone() }
            };
            let mut created: Vec<RangeDescriptor> = cuts.into_iter().map(piece).collect();
            let kept = created.remove(0);
            created.iter_mut().zip(new).for_each(|(piece, new)| piece.range_id = *new);
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
            let (start, end) = layout::span_of(*tenant);
            let made =
                RangeDescriptor { range_id: *new, start, end, generation: 1, ..RangeDescriptor::default() };
            Some(RangeChange { descriptor: None, created: vec![made], ..RangeChange::default() })
        }
    }
}
