//! Splitting a range whose lease is held here.
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
//! lease has another name after a split ([`super::super::Pipeline::lease`]).

use super::{Driver, busy, span_of};
use crate::pipeline::not_leaseholder;
use crate::span_config;
use bytes::Bytes;
use kv_api::{KvError, KvErrorKind};
use replication::command::RangeChange;
use replication::{Millis, Proposal, RangeDescriptor, RangeId, ReplicationError};
use storage::WriteBatch;
use tokio::sync::oneshot;

/// How long what is under way may take before a range is not split after all.
const DRAINING_MS: Millis = 2000;

/// Where a range is to be split.
#[derive(Clone, Debug)]
pub struct SplitAt {
    /// First key of the new range.
    pub key: Bytes,
    /// The new range.
    pub new: RangeId,
}

/// A split under way.
pub(super) struct Splitting {
    at: SplitAt,
    since: Millis,
    /// The proposal, once there is one.
    proposed: Option<u64>,
    answer: oneshot::Sender<Result<(), KvError>>,
}

impl Splitting {
    /// Tells who asked what came of it.
    pub fn end(self, result: Result<(), KvError>) {
        // Who asked may be gone.
        let _ = self.answer.send(result);
    }
}

/// The descriptors of a range and of the one that is split off it.
///
/// # Errors
/// If the key does not divide the range.
fn parts(own: &RangeDescriptor, at: &SplitAt) -> Result<(RangeDescriptor, RangeDescriptor), KvError> {
    if at.key < own.start || at.key >= own.end {
        return Err(KvError::range_not_found(own.range_id));
    }
    if at.key == own.start {
        return Err(KvError::new(KvErrorKind::InvalidRequest, "a range already begins with this key"));
    }
    let left = RangeDescriptor { end: at.key.clone(), generation: own.generation + 1, ..own.clone() };
    let right = RangeDescriptor {
        range_id: at.new,
        start: at.key.clone(),
        end: own.end.clone(),
        generation: 1,
        config: span_config::inherited(&own.config, &own.start),
        origin: own.family(),
    };
    Ok((left, right))
}

impl Driver {
    /// Lets nothing more in, so that the range can be split when nothing is under way.
    pub(super) fn begin_split(
        &mut self,
        now: Millis,
        range: RangeId,
        at: SplitAt,
        answer: oneshot::Sender<Result<(), KvError>>,
    ) {
        let splitting = Splitting { at, since: now, proposed: None, answer };
        let fits = match self.store.descriptor(range) {
            Some(own) => parts(own, &splitting.at).map(|_| ()),
            None => Err(KvError::range_not_found(range)),
        };
        if let Err(error) = fits {
            return splitting.end(Err(error));
        }
        let Some(awake) = self.awake.get_mut(&range).filter(|awake| awake.acquired.is_some()) else {
            return splitting.end(Err(not_leaseholder()));
        };
        if awake.leaving.is_some() || awake.splitting.is_some() || !awake.recovery.is_complete() {
            return splitting.end(Err(busy("another change of it is under way")));
        }
        awake.splitting = Some(splitting);
        self.splitting.insert(range);
        if let Some(found) = self.shared.state.lock().ranges.get_mut(&range) {
            found.held = None;
        }
    }

    /// Proposes the splits of ranges in which nothing is under way any more.
    pub(super) fn propose_splits(&mut self, now: Millis) {
        for range in self.splitting.iter().copied().collect::<Vec<_>>() {
            let Some(splitting) = self.awake.get(&range).and_then(|awake| awake.splitting.as_ref()) else {
                self.splitting.remove(&range);
                continue;
            };
            if splitting.proposed.is_some() {
                continue;
            }
            let late = now.saturating_sub(splitting.since) >= DRAINING_MS;
            let proposed = if self.is_under_way(range) {
                if !late {
                    continue;
                }
                Err(busy("commands take too long"))
            } else {
                let at = splitting.at.clone();
                self.propose_split(now, range, &at)
            };
            match proposed {
                Ok(id) => {
                    if let Some(splitting) =
                        self.awake.get_mut(&range).and_then(|awake| awake.splitting.as_mut())
                    {
                        splitting.proposed = Some(id);
                    }
                }
                Err(error) => self.end_split(range, Err(error)),
            }
        }
    }

    fn propose_split(&mut self, now: Millis, range: RangeId, at: &SplitAt) -> Result<u64, KvError> {
        let own = self.store.descriptor(range).ok_or_else(|| KvError::range_not_found(range))?;
        let (left, right) = parts(own, at)?;
        let whole = span_of(own);
        let hook = self.hook.lock().clone();
        let mut batch = WriteBatch::new();
        if let Some(hook) = hook {
            if !hook.can_split(range, &whole) {
                return Err(busy("transactions are open in it"));
            }
            hook.add_to_split(&whole, &at.key, &mut batch)?;
        }
        let sequence = self.awake.get(&range).and_then(|awake| awake.acquired).ok_or_else(not_leaseholder)?;
        // Nothing has been handed out since the range was closed.
        let served = self.shared.state.lock().ranges.get(&range).map(|found| found.clock.latest());
        let change = RangeChange { descriptor: Some(left), created: vec![right], served };
        let id = self.next_id;
        self.next_id += 1;
        let proposal = Proposal {
            id,
            range,
            lease_sequence: sequence,
            batch,
            change: Some(change),
            closed: kv_api::Timestamp::MIN,
        };
        let refused = |error: ReplicationError| KvError::new(KvErrorKind::Unavailable, error.to_string());
        self.store.propose(now, proposal).map_err(refused)?;
        Ok(id)
    }

    /// Whether a proposal is the split of a range.
    pub(super) fn is_split(&self, range: RangeId, id: u64) -> bool {
        let splitting = self.awake.get(&range).and_then(|awake| awake.splitting.as_ref());
        splitting.is_some_and(|splitting| splitting.proposed == Some(id))
    }

    /// Lets requests in again.
    pub(super) fn end_split(&mut self, range: RangeId, result: Result<(), KvError>) {
        self.splitting.remove(&range);
        let splitting = self.awake.get_mut(&range).and_then(|awake| awake.splitting.take());
        if let Some(splitting) = splitting {
            match &result {
                Ok(()) => tracing::info!(range, new = splitting.at.new, "a range was split"),
                Err(error) => tracing::debug!(range, "a range was not split: {}", error.message),
            }
            splitting.end(result);
        }
        self.changed.insert(range);
    }

    /// A range came to be. If it was split off one whose lease is held here, this node is the first to campaign.
    pub(super) fn created(&mut self, now: Millis, new: RangeId) -> Result<(), ReplicationError> {
        let splits_off = |range: &RangeId| {
            let splitting = self.awake.get(range).and_then(|awake| awake.splitting.as_ref());
            splitting.is_some_and(|splitting| splitting.at.new == new)
        };
        let Some(left) = self.splitting.iter().copied().find(splits_off) else { return Ok(()) };
        let span = self.store.descriptor(new).map(span_of);
        if let (Some(hook), Some(span)) = (self.hook.lock().clone(), span) {
            hook.split(left, &span);
        }
        // Damage is found again, and told, when it is used.
        let _ = self.wake_sound(now, new)?;
        Ok(())
    }

    /// Whether commands of a range wait or are on their way.
    pub(super) fn is_under_way(&self, range: RangeId) -> bool {
        self.pending.values().any(|queued| queued.command.range == range)
            || self.shared.state.lock().queue.iter().any(|queued| queued.command.range == range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_within_the_range_divides_it() {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        let own = RangeDescriptor {
            range_id: 5,
            start: bytes("b"),
            end: bytes("y"),
            generation: 3,
            config: bytes("how"),
            origin: 0,
        };
        let at = |key| SplitAt { key: bytes(key), new: 9 };
        let (left, right) = parts(&own, &at("m")).expect("divided");
        assert_eq!(left, RangeDescriptor { end: bytes("m"), generation: 4, ..own.clone() });
        assert_eq!((right.range_id, right.generation, right.origin), (9, 1, 5));
        assert_eq!(
            (&right.start[..], &right.end[..], &right.config[..]),
            (&b"m"[..], &b"y"[..], &b"how"[..])
        );
        let (_, of_right) = parts(&right, &SplitAt { key: bytes("p"), new: 11 }).expect("divided again");
        assert_eq!(of_right.origin, 5, "where the first one came from");
        let kind = |key| parts(&own, &at(key)).expect_err("refused").kind();
        assert_eq!(kind("b"), KvErrorKind::InvalidRequest);
        assert_eq!([kind("a"), kind("y")], [KvErrorKind::RangeNotFound; 2]);
    }
}
