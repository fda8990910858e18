//! Splitting a range whose lease is held here: see [`super::change`].

use super::change::{Change, Proposed};
use super::{Driver, busy, span_of};
use crate::span_config;
use bytes::Bytes;
use kv_api::{KvError, KvErrorKind};
use replication::command::RangeChange;
use replication::{Millis, RangeDescriptor, RangeId, ReplicationError};
use storage::WriteBatch;

/// Where a range is to be split.
#[derive(Clone, Debug)]
pub struct SplitAt {
    /// First key of the new range.
    pub key: Bytes,
    /// The new range.
    pub new: RangeId,
}

/// The descriptors of a range and of the one that is split off it.
///
/// # Errors
/// If the key does not divide the range.
pub(super) fn parts(
    own: &RangeDescriptor,
    at: &SplitAt,
) -> Result<(RangeDescriptor, RangeDescriptor), KvError> {
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
        ..own.clone()
    };
    Ok((left, right))
}

impl Driver {
    /// The command that splits a range in which nothing is under way.
    pub(super) fn split_command(&self, range: RangeId, at: &SplitAt) -> Result<Proposed, KvError> {
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
        let served = self.served(range);
        Ok((
            batch,
            RangeChange { descriptor: Some(left), created: vec![right], served, ..RangeChange::default() },
        ))
    }

    /// A range came to be. If it was split off one whose lease is held here, this node is the first to campaign.
    pub(super) fn created(&mut self, now: Millis, new: RangeId) -> Result<(), ReplicationError> {
        let splits_off = |change: &Change| matches!(change, Change::Split(at) if at.new == new);
        let Some(left) = self.changing_by(splits_off) else { return Ok(()) };
        let span = self.store.descriptor(new).map(span_of);
        if let (Some(hook), Some(span)) = (self.hook.lock().clone(), span) {
            hook.split(left, &span);
        }
        // Damage is found again, and told, when it is used.
        let _ = self.wake_sound(now, new)?;
        Ok(())
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
            merges: 4,
            absorber: 5,
            ..RangeDescriptor::default()
        };
        let at = |key| SplitAt { key: bytes(key), new: 9 };
        let (left, right) = parts(&own, &at("m")).expect("divided");
        assert_eq!(left, RangeDescriptor { end: bytes("m"), generation: 4, ..own.clone() });
        assert_eq!((right.range_id, right.generation, right.origin), (9, 1, 5));
        assert_eq!((right.merges, right.absorber), (4, 5), "what was merged before they were divided");
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
