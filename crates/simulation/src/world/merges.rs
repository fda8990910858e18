//! Merges, as whoever looks after ranges would carry them through: asked a step at a time, by somebody who may lose
//! patience at any of them.
//!
//! Whether a merge came about is for the left range to say, and for its leaseholder alone: it has absorbed another
//! since the merge began, or its descriptor has another generation, and then it never will. Until one of these is true
//! the right range is not thawed, and the left one neither split nor merged with anything else.

use super::{Happening, World};
use crate::clock::{MILLI, Micros, SECOND};
use crate::coverage::Kind;
use crate::layout;
use crate::node::Input;
use crate::plan::NODES;
use crate::planted::ServiceBug;
use crate::service::Wish;
use crate::watch::Violation;
use bytes::Bytes;
use rand::Rng;
use rand::seq::SliceRandom;
use replication::command::Freeze;
use replication::{NodeId, RangeDescriptor, RangeId};
use std::collections::BTreeMap;
use storage::WriteBatch;

/// How long it takes until the next step.
const STEP: (Micros, Micros) = (2 * MILLI, 80 * MILLI);
/// Steps after which a merge is called off, at most.
const PATIENCE: u32 = 40;
/// After how long a node has heard that the right range is no more, at most.
const TOLD: Micros = 2 * SECOND;

/// A merge that has begun.
#[derive(Clone, Copy, Debug)]
struct Merge {
    left: RangeId,
    /// Of the left range's descriptor, when the merge began.
    generation: u64,
    /// The same.
    merges: u64,
    patience: u32,
}

/// The merges under way, by their right ranges.
#[derive(Debug, Default)]
pub(super) struct Merges(BTreeMap<RangeId, Merge>);

impl Merges {
    /// Whether a range is part of one.
    pub(super) fn concern(&self, range: RangeId) -> bool {
        self.0.iter().any(|(right, merge)| *right == range || merge.left == range)
    }

    /// One of them, in words.
    pub(super) fn under_way(&self) -> Option<String> {
        self.0.first_key_value().map(|(right, merge)| format!("range {right} is to be absorbed: {merge:?}"))
    }
}

impl World {
    /// The range that faults concern is to absorb its right neighbour; or another, if it has none.
    pub(super) fn begin_merge(&mut self) {
        let mut ranges: Vec<RangeId> = self.ranges.live().iter().copied().collect();
        ranges.shuffle(&mut self.rng);
        ranges.insert(0, self.concern);
        let neighbours = ranges.into_iter().filter_map(|left| {
            let (_, descriptor) = self.served_as(left)?;
            let right = self.beginning_with(&descriptor.end)?;
            let free = !self.merges.concern(left) && !self.merges.concern(right);
            free.then_some((left, descriptor, right))
        });
        let Some((left, descriptor, right)) = neighbours.into_iter().next() else { return };
        let now = self.now;
        self.trace.note(now, || format!("range {left} is to absorb range {right}"));
        let RangeDescriptor { generation, merges, .. } = descriptor;
        let patience = self.rng.random_range(1..=PATIENCE);
        self.merges.0.insert(right, Merge { left, generation, merges, patience });
        self.after(0, Happening::Merge(right));
    }

    /// The next step of a merge.
    pub(super) fn go_on_merging(&mut self, right: RangeId) -> Result<(), Violation> {
        let Some(merge) = self.merges.0.get_mut(&right) else { return Ok(()) };
        merge.patience = merge.patience.saturating_sub(1);
        let merge = *merge;
        let step = self.rng.random_range(STEP.0..=STEP.1);
        self.after(step, Happening::Merge(right));
        for range in [merge.left, right] {
            if self.leader_of(range).is_none() {
                let id = self.rng.random_range(1..=NODES);
                self.input(id, Input::Wake(range))?;
            }
        }
        let Some((_, left)) = self.served_as(merge.left) else { return Ok(()) };
        if left.merges > merge.merges {
            self.merges.0.remove(&right);
            self.coverage.count(Kind::Merges);
            self.forget_range(right, TOLD);
            return Ok(());
        }
        let generation = merge.generation;
        if left.generation > generation {
            return self.call_off(right);
        }
        if merge.patience == 0 && self.planted.in_service(ServiceBug::ThawedUnsettled) {
            return self.call_off(right);
        }
        if merge.patience == 0 {
            return self.wish(merge.left, Wish::Fence { generation });
        }
        let Some((holder, descriptor)) = self.served_as(right) else { return Ok(()) };
        match self.frozen_at(holder, right) {
            None => self.wish(right, Wish::Freeze { absorber: merge.left, generation }),
            Some(freeze) if self.is_frozen_everywhere(holder, right, freeze) => {
                let Some(contents) = self.contents_at(holder, &descriptor)? else { return Ok(()) };
                let served = freeze.served;
                self.wish(merge.left, Wish::Absorb { right: descriptor, generation, served, contents })
            }
            Some(_) => Ok(()),
        }
    }

    /// A merge certainly does not come about: the right range serves again. It may have been asked to freeze and not
    /// have done so yet.
    fn call_off(&mut self, right: RangeId) -> Result<(), Violation> {
        let Some((holder, _)) = self.served_as(right) else { return Ok(()) };
        if self.frozen_at(holder, right).is_some() {
            return self.wish(right, Wish::Thaw);
        }
        let asked = |input: &Input| matches!(input, Input::Change(range, _) if *range == right);
        let processes = self.nodes.iter().filter_map(|node| Some((node.id, node.process.as_ref()?)));
        let pending = processes.into_iter().any(|(id, process)| {
            process.inbox.iter().any(asked) || (id == holder && process.service.is_changing(right))
        });
        let still = self.status_in(right, holder).is_some_and(|status| status.applied == status.last);
        if still && !pending {
            self.merges.0.remove(&right);
        }
        Ok(())
    }

    /// The node that holds the lease of a range, and the descriptor of the range there.
    fn served_as(&self, range: RangeId) -> Option<(NodeId, RangeDescriptor)> {
        let holder = self.nodes.iter().find(|node| node.holds_lease(range, self.now).is_some())?;
        Some((holder.id, holder.process.as_ref()?.store.descriptor(range)?.clone()))
    }

    fn frozen_at(&mut self, id: NodeId, range: RangeId) -> Option<Freeze> {
        self.node(id)?.process.as_ref()?.store.frozen(range)
    }

    /// Whether every member of a range has it on its disk that the range is frozen.
    fn is_frozen_everywhere(&mut self, holder: NodeId, range: RangeId, freeze: Freeze) -> bool {
        let Some(status) = self.status_in(range, holder) else { return false };
        status.members.all().into_iter().all(|member| {
            let process = self.node(member).and_then(|node| node.process.as_ref());
            process.filter(|process| !process.store.is_stalled()).is_some_and(|process| {
                let replica = process.store.survey(range - 1, 1).ok().and_then(|mut found| found.pop());
                replica.is_some_and(|(found, state)| found == range && state.frozen == Some(freeze))
            })
        })
    }

    /// What a node holds of a frozen range, as an encoded batch; none if it cannot be read now.
    fn contents_at(&mut self, id: NodeId, descriptor: &RangeDescriptor) -> Result<Option<Bytes>, Violation> {
        let Some(node) = self.node(id) else { return Ok(None) };
        let readable = |process: &crate::node::Process| process.store.applied(descriptor.range_id).is_some();
        if !node.process.as_ref().is_some_and(readable) {
            return Ok(None);
        }
        let contents = layout::contents(&*node.engine, &descriptor.start, &descriptor.end)
            .map_err(|error| Violation::new("contents", error.to_string()))?;
        let mut batch = WriteBatch::new();
        contents.iter().for_each(|(space, key, value)| batch.put(*space, key, value));
        Ok(Some(batch.encode()))
    }
}
