//! Which ranges have a replica on this node, awake or not: what is left in memory of those that sleep.
//!
//! For each there is a descriptor on the heap (136 bytes, and its keys), a pointer by id in a tree that is at
//! least half full, and the id in the order of keys: less than 270 bytes with keys of nine bytes, by the sizes of the types.

use crate::message::RangeId;
use crate::state::{RangeDescriptor, RangeState};
use bytes::Bytes;
use std::collections::BTreeMap;

/// The replicas of a node by id and by key.
#[derive(Debug, Default)]
pub struct Index {
    /// Replicas that have, or had, the contents of their range.
    known: BTreeMap<RangeId, Box<RangeDescriptor>>,
    /// Their ids in the order of their first keys, which is that of their spans: they do not overlap.
    order: Vec<RangeId>,
    /// Incomplete replicas and the keys that are arriving, if anything is.
    unfinished: BTreeMap<RangeId, Option<Box<RangeDescriptor>>>,
}

/// A descriptor that holds on to nothing but its own bytes.
fn compact(descriptor: &RangeDescriptor) -> Box<RangeDescriptor> {
    let copy = |bytes: &Bytes| if bytes.is_empty() { Bytes::new() } else { Bytes::copy_from_slice(bytes) };
    Box::new(RangeDescriptor {
        range_id: descriptor.range_id,
        start: copy(&descriptor.start),
        end: copy(&descriptor.end),
        generation: descriptor.generation,
        config: copy(&descriptor.config),
        ..*descriptor
    })
}

fn meet(descriptor: &RangeDescriptor, start: &[u8], end: &[u8]) -> bool {
    descriptor.start < end && descriptor.end > start
}

impl Index {
    /// Notes a replica as it is on disk.
    pub fn set(&mut self, range: RangeId, state: &RangeState) {
        if self.known.get(&range).map(|known| &**known) != state.descriptor.as_ref() {
            self.forget_order(range);
            if let Some(descriptor) = &state.descriptor {
                let place = self.place(&descriptor.start);
                self.order.insert(place.min(self.order.len()), range);
                self.known.insert(range, compact(descriptor));
            }
        }
        if state.incomplete {
            self.unfinished.insert(range, state.arriving.as_ref().map(compact));
        } else {
            self.unfinished.remove(&range);
        }
    }

    /// Forgets a replica.
    pub fn remove(&mut self, range: RangeId) {
        self.forget_order(range);
        self.unfinished.remove(&range);
    }

    fn forget_order(&mut self, range: RangeId) {
        let Some(descriptor) = self.known.remove(&range) else { return };
        let end = self.place_after(&descriptor.start);
        // Found at once, unless spans overlap that must not.
        if let Some(place) = self.order.get(..end).and_then(|ids| ids.iter().rposition(|id| *id == range)) {
            self.order.remove(place);
        } else {
            self.order.retain(|id| *id != range);
        }
    }

    /// How many replicas begin before a key.
    fn place(&self, key: &[u8]) -> usize {
        self.order.partition_point(|id| self.known.get(id).is_some_and(|known| known.start < key))
    }

    /// How many replicas begin at or before a key.
    fn place_after(&self, key: &[u8]) -> usize {
        self.order.partition_point(|id| self.known.get(id).is_none_or(|known| known.start <= key))
    }

    /// Whether there is a replica, whole or not.
    pub fn contains(&self, range: RangeId) -> bool {
        self.known.contains_key(&range) || self.unfinished.contains_key(&range)
    }

    /// The descriptor of a replica.
    pub fn descriptor(&self, range: RangeId) -> Option<&RangeDescriptor> {
        self.known.get(&range).map(|known| &**known)
    }

    /// Every replica with a descriptor, by id.
    pub fn iter(&self) -> impl Iterator<Item = (RangeId, &RangeDescriptor)> {
        self.known.iter().map(|(id, known)| (*id, &**known))
    }

    /// The first `limit` replicas after an id, whole or not.
    pub fn after(&self, range: RangeId, limit: usize) -> Vec<RangeId> {
        let Some(next) = range.checked_add(1) else { return Vec::new() };
        let known = self.known.range(next..).map(|(id, _)| *id).take(limit);
        let unfinished = self.unfinished.range(next..).map(|(id, _)| *id).take(limit);
        let mut ids: Vec<RangeId> = known.chain(unfinished).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.truncate(limit);
        ids
    }

    /// How many replicas there are.
    pub fn len(&self) -> usize {
        self.known.len() + self.unfinished.keys().filter(|id| !self.known.contains_key(id)).count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The replica whose range has a key.
    pub fn covering(&self, key: &[u8]) -> Option<RangeId> {
        let id = self.order.get(..self.place_after(key))?.last()?;
        self.descriptor(*id).filter(|known| key < &known.end[..]).map(|_| *id)
    }

    /// Every replica other than `range` that has, or is being sent, some of the keys from `start` to before `end`, with
    /// the keys and merges it has then.
    pub fn all_overlapping(&self, range: RangeId, start: &[u8], end: &[u8]) -> Vec<&RangeDescriptor> {
        let (first, after) = (self.place_after(start).saturating_sub(1), self.place(end));
        let ids = self.order.get(first..after).unwrap_or_default();
        let known = ids.iter().filter_map(|id| self.descriptor(*id));
        let arriving = self.unfinished.values().filter_map(|arriving| arriving.as_deref());
        let meets = |found: &&RangeDescriptor| found.range_id != range && meet(found, start, end);
        known.chain(arriving).filter(meets).collect()
    }

    /// A replica other than `range` that has, or is being sent, some of the keys from `start` to before `end`.
    pub fn overlapping(&self, range: RangeId, start: &[u8], end: &[u8]) -> Option<RangeId> {
        let before_end = self.order.get(..self.place(end)).unwrap_or_default();
        let last = before_end.iter().rev().find(|id| **id != range);
        let known = last.filter(|id| self.descriptor(**id).is_some_and(|known| meet(known, start, end)));
        let arriving = || {
            self.unfinished.iter().find_map(|(id, arriving)| {
                let meets = *id != range && arriving.as_ref().is_some_and(|keys| meet(keys, start, end));
                meets.then_some(*id)
            })
        };
        known.copied().or_else(arriving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(range_id: RangeId, start: &'static str, end: &'static str) -> RangeDescriptor {
        let (start, end) = (Bytes::from_static(start.as_bytes()), Bytes::from_static(end.as_bytes()));
        RangeDescriptor { range_id, start, end, ..RangeDescriptor::default() }
    }

    fn whole(range_id: RangeId, start: &'static str, end: &'static str) -> RangeState {
        RangeState { descriptor: Some(descriptor(range_id, start, end)), ..RangeState::default() }
    }

    fn index() -> Index {
        let mut index = Index::default();
        index.set(7, &whole(7, "m", "t"));
        index.set(3, &whole(3, "b", "g"));
        index.set(9, &whole(9, "g", "m"));
        index
    }

    #[test]
    fn keys_lead_to_the_range_that_has_them() {
        let index = index();
        let found = |key: &str| index.covering(key.as_bytes());
        assert_eq!((found("a"), found("b"), found("fz")), (None, Some(3), Some(3)));
        assert_eq!((found("g"), found("m"), found("t")), (Some(9), Some(7), None));
    }

    #[test]
    fn a_range_that_shrinks_leaves_room() {
        let mut index = index();
        assert_eq!(index.overlapping(12, b"o", b"p"), Some(7));
        assert_eq!(index.overlapping(7, b"o", b"p"), None, "its own");
        index.set(7, &whole(7, "m", "o"));
        assert_eq!(index.overlapping(12, b"o", b"t"), None);
        index.set(12, &whole(12, "o", "t"));
        assert_eq!((index.covering(b"p"), index.len()), (Some(12), 4));
        index.remove(9);
        assert_eq!((index.covering(b"h"), index.overlapping(1, b"g", b"m")), (None, None));
        assert_eq!(index.overlapping(1, b"a", b"z"), Some(12));
    }

    #[test]
    fn all_that_overlap_are_found() {
        let mut index = index();
        let arriving = Some(descriptor(20, "t", "z"));
        index.set(20, &RangeState { incomplete: true, arriving, ..RangeState::default() });
        let found = |range, start: &str, end: &str| {
            let found = index.all_overlapping(range, start.as_bytes(), end.as_bytes());
            found.into_iter().map(|found| found.range_id).collect::<Vec<_>>()
        };
        assert_eq!(found(1, "a", "zz"), [3, 9, 7, 20]);
        assert_eq!((found(9, "f", "n"), found(1, "h", "i")), (vec![3, 7], vec![9]));
        assert_eq!((found(1, "g", "m"), found(1, "a", "b"), found(1, "y", "z")), (vec![9], vec![], vec![20]));
    }

    #[test]
    fn keys_that_are_arriving_are_taken() {
        let mut index = index();
        let arriving = Some(descriptor(20, "t", "z"));
        index.set(20, &RangeState { incomplete: true, arriving, ..RangeState::default() });
        assert!(index.contains(20) && index.descriptor(20).is_none() && index.covering(b"u").is_none());
        assert_eq!(index.overlapping(1, b"u", b"v"), Some(20));
        assert_eq!((index.after(3, 2), index.after(9, 5), index.len()), (vec![7, 9], vec![20], 4));
        index.set(20, &whole(20, "t", "z"));
        assert_eq!((index.covering(b"u"), index.len()), (Some(20), 4));
    }
}
