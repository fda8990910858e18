//! Changing a range whose lease is held here: it is split, or merged with a neighbour.
//!
//! ```text
//!  begin ─► nothing is let in ─► nothing is under way ─► the command is on its way ─► applied, or not
//!               │                     │                                                    │
//!               └── too long ─────────┴── transactions are open ───────────────────────────┴─► let in again
//! ```
//!
//! From before the command is proposed until its fate is known nothing is served in the range, so that nothing
//! that rests on the keys as they were comes after it: another node may serve the new range before this one has
//! heard that it exists. What was evaluated before and comes to the pipeline afterwards is refused, because a
//! lease has another name after its range has other keys ([`super::super::Pipeline::lease`]). A range that is frozen is
//! not let in again.

use super::merge::{Absorption, FreezeFor};
use super::split::{SplitAt, parts};
use super::{Driver, busy};
use crate::pipeline::not_leaseholder;
use kv_api::{KvError, KvErrorKind, Timestamp};
use replication::command::{Freeze, RangeChange};
use replication::{Millis, Proposal, RangeId, ReplicationError};
use storage::WriteBatch;
use tokio::sync::oneshot;

/// How long what is under way may take before a range is not changed after all.
const DRAINING_MS: Millis = 2000;
/// How long what is being evaluated may take before it counts as an open transaction, which keeps a range from being
/// frozen.
const EVALUATION_MS: Millis = 100;

/// How a range is to change.
#[derive(Debug)]
pub enum Change {
    /// It is split.
    Split(SplitAt),
    /// It is frozen, because its left neighbour is about to absorb it.
    Freeze(FreezeFor),
    /// It is frozen no more.
    Thaw(Freeze),
    /// It absorbs its right neighbour.
    Absorb(Box<Absorption>),
}

/// What a command has: effects, and what becomes of the range.
pub(super) type Proposed = (WriteBatch, RangeChange);

/// A change under way.
pub(super) struct Changing {
    change: Change,
    since: Millis,
    /// The proposal, once there is one.
    proposed: Option<u64>,
    answer: oneshot::Sender<Result<(), KvError>>,
}

impl Changing {
    /// Tells who asked what came of it.
    fn end(self, result: Result<(), KvError>) {
        // Who asked may be gone.
        let _ = self.answer.send(result);
    }
}

impl Driver {
    /// Lets nothing more in, so that the range can be changed when nothing is under way.
    pub(super) fn begin_change(
        &mut self,
        now: Millis,
        range: RangeId,
        change: Change,
        answer: oneshot::Sender<Result<(), KvError>>,
    ) {
        let changing = Changing { change, since: now, proposed: None, answer };
        if let Err(error) = self.fits(range, &changing.change) {
            return changing.end(Err(error));
        }
        let Some(awake) = self.awake.get_mut(&range).filter(|awake| awake.acquired.is_some()) else {
            return changing.end(Err(not_leaseholder()));
        };
        if awake.leaving.is_some() || awake.changing.is_some() || !awake.recovery.is_complete() {
            return changing.end(Err(busy("another change of it is under way")));
        }
        awake.changing = Some(changing);
        self.changing.insert(range);
        if let Some(found) = self.shared.state.lock().ranges.get_mut(&range) {
            found.held = None;
        }
    }

    fn fits(&self, range: RangeId, change: &Change) -> Result<(), KvError> {
        let own = self.store.descriptor(range).ok_or_else(|| KvError::range_not_found(range))?;
        match change {
            Change::Split(at) => parts(own, at).map(|_| ()),
            Change::Freeze(wanted) => wanted.check(own),
            Change::Absorb(absorption) => absorption.check(own),
            Change::Thaw(_) => Ok(()),
        }
    }

    /// Proposes the changes of ranges in which nothing is under way any more.
    pub(super) fn propose_changes(&mut self, now: Millis) {
        for range in self.changing.iter().copied().collect::<Vec<_>>() {
            let Some(changing) = self.awake.get(&range).and_then(|awake| awake.changing.as_ref()) else {
                self.changing.remove(&range);
                continue;
            };
            if changing.proposed.is_some() {
                continue;
            }
            let elapsed = now.saturating_sub(changing.since);
            let late = elapsed >= DRAINING_MS;
            if matches!(changing.change, Change::Freeze(_)) && elapsed < EVALUATION_MS && self.is_used(range)
            {
                // Whoever evaluates finds the range closed and goes.
                continue;
            }
            let proposed = if self.is_under_way(range) {
                if !late {
                    continue;
                }
                Err(busy("commands take too long"))
            } else {
                let command = match &changing.change {
                    Change::Split(at) => self.split_command(range, at),
                    Change::Freeze(wanted) => self.freeze_command(range, wanted),
                    Change::Thaw(freeze) => {
                        let thaw = RangeChange { thaw: Some(*freeze), ..RangeChange::default() };
                        Ok((WriteBatch::new(), thaw))
                    }
                    Change::Absorb(absorption) => self.absorb_command(range, absorption),
                };
                command.and_then(|command| self.propose_change(now, range, command))
            };
            match proposed {
                Ok(id) => {
                    if let Some(changing) =
                        self.awake.get_mut(&range).and_then(|awake| awake.changing.as_mut())
                    {
                        changing.proposed = Some(id);
                    }
                }
                Err(error) => self.end_change(range, Err(error)),
            }
        }
    }

    fn propose_change(
        &mut self,
        now: Millis,
        range: RangeId,
        (batch, change): Proposed,
    ) -> Result<u64, KvError> {
        let sequence = self.awake.get(&range).and_then(|awake| awake.acquired).ok_or_else(not_leaseholder)?;
        let id = self.next_id;
        self.next_id += 1;
        let (change, closed) = (Some(change), Timestamp::MIN);
        let proposal = Proposal { id, range, lease_sequence: sequence, batch, change, closed };
        let refused = |error: ReplicationError| KvError::new(KvErrorKind::Unavailable, error.to_string());
        self.store.propose(now, proposal).map_err(refused)?;
        Ok(id)
    }

    /// The largest timestamp that was served in a range that is being changed: nothing has been handed out since.
    pub(super) fn served(&self, range: RangeId) -> Option<Timestamp> {
        self.shared.state.lock().ranges.get(&range).map(|found| found.clock.latest())
    }

    /// Whether a proposal is the change of a range.
    pub(super) fn is_change(&self, range: RangeId, id: u64) -> bool {
        let changing = self.awake.get(&range).and_then(|awake| awake.changing.as_ref());
        changing.is_some_and(|changing| changing.proposed == Some(id))
    }

    /// The range that is being changed in this way.
    pub(super) fn changing_by(&self, is: impl Fn(&Change) -> bool) -> Option<RangeId> {
        let changing = |range: &&RangeId| {
            let changing = self.awake.get(*range).and_then(|awake| awake.changing.as_ref());
            changing.is_some_and(|changing| is(&changing.change))
        };
        self.changing.iter().find(changing).copied()
    }

    /// Lets requests in again, unless the range is frozen.
    pub(super) fn end_change(&mut self, range: RangeId, result: Result<(), KvError>) {
        self.changing.remove(&range);
        let changing = self.awake.get_mut(&range).and_then(|awake| awake.changing.take());
        if let Some(changing) = changing {
            match (&result, &changing.change) {
                (Ok(()), Change::Split(at)) => tracing::info!(range, new = at.new, "a range was split"),
                (Ok(()), Change::Absorb(absorption)) => {
                    tracing::info!(
                        range,
                        right = absorption.right.range_id,
                        "a range absorbed its neighbour"
                    );
                }
                (Ok(()), Change::Freeze(_) | Change::Thaw(_)) => {}
                (Err(error), _) => tracing::debug!(range, "a range was not changed: {}", error.message),
            }
            changing.end(result);
        }
        self.changed.insert(range);
    }

    /// Whether commands of a range wait or are on their way.
    pub(super) fn is_under_way(&self, range: RangeId) -> bool {
        self.pending.values().any(|queued| queued.command.range == range)
            || self.shared.state.lock().queue.iter().any(|queued| queued.command.range == range)
    }
}
