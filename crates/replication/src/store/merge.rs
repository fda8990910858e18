//! Ranges that absorb their right neighbours.
//!
//! ```text
//!  right:  freeze ──────────────► nothing is served ─────────────────► destroyed, on each of its members
//!  left:            contents are read ──► absorb: keys, contents, clock
//! ```
//!
//! The command with which a range absorbs another carries all that the other holds, so its members need not be those
//! of the other. Where there is a replica of the other, it is destroyed with it. What the other served lies at or
//! below the ceiling of the lease from then on, so that no later holder goes below it.
//!
//! A replica may hear of what came after a merge before it hears of the merge: a snapshot of a range that was split
//! off what was merged. It is refused for as long as there is a replica of the absorber here that has not got so far
//! ([`Store::is_before_merge`]). A replica of a range that was absorbed, on a node that was not told, gives way to
//! whatever supersedes it.

use super::{Event, Store};
use crate::change::supersedes;
use crate::command::{Freeze, RangeChange};
use crate::error::ReplicationResult;
use crate::faults::{Bug, Faults};
use crate::message::RangeId;
use crate::snapshot::clear;
use crate::state::{self, RangeDescriptor};
use storage::WriteBatch;

impl<F: Faults> Store<F> {
    /// Whether a range that is awake here is frozen, and for which merge.
    pub fn frozen(&self, range: RangeId) -> Option<Freeze> {
        self.groups.get(&range)?.state.frozen
    }

    /// Whether a range could absorb another here.
    pub(super) fn check_room(&self, range: RangeId, change: &RangeChange) -> Result<(), &'static str> {
        let Some((new, right)) = change.descriptor.as_ref().zip(change.absorbed.as_ref()) else {
            return Ok(());
        };
        let others = self.index.all_overlapping(range, &right.start, &right.end);
        let free = others.into_iter().all(|other| supersedes(new, other));
        if free { Ok(()) } else { Err("there is a replica here that has these keys") }
    }

    /// Makes room for what a range absorbs, but for its contents. False if that cannot be, because there is a replica
    /// of what came after; then this one goes. It is of a node that is no member any more.
    pub(super) fn absorb(
        &mut self,
        range: RangeId,
        change: &RangeChange,
        batch: &mut WriteBatch,
        events: &mut Vec<Event>,
    ) -> ReplicationResult<bool> {
        let Some((new, right)) = change.descriptor.as_ref().zip(change.absorbed.as_ref()) else {
            return Ok(true);
        };
        if self.check_room(range, change).is_err() {
            tracing::error!(range, "a replica cannot absorb what is here in another form, and goes");
            if let Some(group) = self.groups.get_mut(&range) {
                group.removed = true;
            }
            return Ok(false);
        }
        let others = self.index.all_overlapping(range, &right.start, &right.end);
        let mut gone: Vec<RangeId> = others.into_iter().map(|other| other.range_id).collect();
        gone.retain(|other| *other != right.range_id);
        // Also if there is nothing of it here: nothing that is still under way is to bring it back.
        gone.push(right.range_id);
        for other in gone {
            self.put_destroyed(other, batch)?;
            self.forget_destroyed(other, events);
        }
        clear(batch, &right.start, &right.end);
        let served = change.served.unwrap_or_default();
        if let Some(group) = self.groups.get_mut(&range)
            && !self.faults.planted(Bug::AbsorbedBelowClock)
        {
            let lease = &mut group.state.lease;
            lease.ceiling = lease.ceiling.max(served.next());
        }
        tracing::info!(
            range,
            right = right.range_id,
            generation = new.generation,
            "a range absorbed another"
        );
        events.push(Event::Absorbed { range, right: right.range_id, served });
        Ok(true)
    }

    /// Whether a range has keys that another was to absorb first, of which there is a replica here that has not.
    pub(super) fn is_before_merge(&self, descriptor: &RangeDescriptor) -> Option<RangeId> {
        let absorber = self.index.descriptor(descriptor.absorber)?;
        let behind = absorber.merges < descriptor.merges && absorber.family() == descriptor.family();
        (behind && absorber.range_id != descriptor.range_id).then_some(absorber.range_id)
    }

    /// Removes replicas of ranges that are no more, because a range with this descriptor has come after them.
    pub(super) fn destroy_superseded(&mut self, descriptor: &RangeDescriptor) -> ReplicationResult<()> {
        let others = self.index.all_overlapping(descriptor.range_id, &descriptor.start, &descriptor.end);
        let gone = others.into_iter().filter(|other| supersedes(descriptor, other));
        for range in gone.map(|other| other.range_id).collect::<Vec<_>>() {
            self.destroy(range)?;
        }
        Ok(())
    }

    /// Whether a range was destroyed here; when in doubt, it was not.
    pub(super) fn knows_destroyed(&self, range: RangeId) -> bool {
        !self.groups.contains_key(&range)
            && !self.index.contains(range)
            && state::is_destroyed(&*self.engine, range).unwrap_or(false)
    }
}
