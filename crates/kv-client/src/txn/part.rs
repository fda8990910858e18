//! What a transaction has to do with each range: pure.

use crate::located::Located;
use crate::router::Place;
use bytes::Bytes;
use kv_api::Timestamp;
use smallvec::{SmallVec, smallvec};

/// Most places of a part in which something may have come of a batch.
const MAX_TRIED: usize = 8;

/// A transaction's part in one range.
#[derive(Default)]
pub struct Part {
    /// The range, and the keys it held when it was looked up.
    pub at: Located,
    /// A key that it holds whatever is split: its first.
    pub key: Bytes,
    /// Where the transaction is known.
    pub place: Option<Place>,
    /// Where it may be known, for batches were sent there of which nothing came.
    pub tried: SmallVec<[Place; 1]>,
    /// Whether a batch was sent by which the node may know the transaction: it may hold locks or intents, and must
    /// be told how the transaction ends.
    pub known: bool,
    /// The lease under which the node came to know the transaction; 0 until it has said so.
    pub lease: u64,
    /// A key the node said it has an intent of.
    pub intent: Option<Bytes>,
    /// Whether the node said that it has intents of the transaction.
    pub has_intents: bool,
    /// Batches under way by which the node knows the transaction.
    pub bound_in_flight: u32,
    /// What the clock of the range showed when it was asked for the first time since there is a snapshot.
    pub observed: Option<Timestamp>,
    /// How often it was found to have come to hold more keys.
    pub grown: u32,
}

impl Part {
    /// Where the next batch must go, if that matters.
    pub fn required_place(&self) -> Option<Place> {
        self.place.clone().filter(|_| self.known)
    }

    /// Where the nodes are that must be told how the transaction ends; `None` for whoever leads the range.
    pub fn farewell_places(&self) -> SmallVec<[Option<Place>; 1]> {
        match &self.place {
            None if !self.tried.is_empty() => self.tried.iter().cloned().map(Some).collect(),
            place => smallvec![place.clone()],
        }
    }

    /// Something may have come of a batch in places; of more than [`MAX_TRIED`] those that were tried first are forgotten,
    /// whose leases have moved since.
    pub fn note_tried(&mut self, places: impl IntoIterator<Item = Place>) {
        for place in places {
            let number = place.connection.number;
            self.tried.retain(|known| known.connection.number != number);
            if self.tried.len() == MAX_TRIED {
                self.tried.remove(0);
            }
            self.tried.push(place);
        }
    }

    /// The node forgot it.
    pub fn become_unknown(&mut self) {
        (self.known, self.lease, self.place) = (false, 0, None);
        self.tried.clear();
    }
}

/// The parts of a transaction. There are as many as ranges it has used.
#[derive(Default)]
pub struct Parts(SmallVec<[Part; 1]>);

impl Parts {
    /// These, which are of different ranges.
    pub fn of(parts: impl IntoIterator<Item = Part>) -> Self {
        Parts(parts.into_iter().collect())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Part> {
        self.0.iter()
    }

    /// All of them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        self.0.iter_mut()
    }

    /// That in a range.
    pub fn get(&self, range_id: u64) -> Option<&Part> {
        self.0.iter().find(|part| part.at.range_id == range_id)
    }

    /// That in a range.
    pub fn get_mut(&mut self, range_id: u64) -> Option<&mut Part> {
        self.0.iter_mut().find(|part| part.at.range_id == range_id)
    }

    /// The range that holds `key` or, if `before`, the keys right below it.
    pub fn locate(&self, key: &[u8], before: bool) -> Option<u64> {
        let holds = |part: &&Part| if before { part.at.holds_before(key) } else { part.at.holds(key) };
        self.0.iter().find(holds).map(|part| part.at.range_id)
    }

    /// Takes in where a range lies. It takes from the others what they were thought to hold.
    pub fn learn(&mut self, at: Located) {
        let mut found = false;
        for part in &mut self.0 {
            if part.at.range_id == at.range_id {
                if !part.at.has_all_of(&at) {
                    // It has absorbed another, whose clock was not seen.
                    part.observed = None;
                    part.grown = part.grown.wrapping_add(1);
                }
                part.at = at.clone();
                found = true;
            } else {
                part.at.yield_to(&at);
            }
        }
        if !found {
            self.0.push(Part { key: at.start.clone(), at, ..Part::default() });
        }
    }

    /// Where a range lies is not known any more.
    pub fn mislay(&mut self, range_id: u64) {
        if let Some(part) = self.get_mut(range_id) {
            part.at.vanish();
        }
    }

    /// There is no snapshot any more that clocks were read for.
    pub fn forget_clocks(&mut self) {
        self.0.iter_mut().for_each(|part| part.observed = None);
    }

    /// Takes note of what the clock of a range showed. The first such clock says most.
    pub fn note_clock(&mut self, range_id: u64, clock: Option<Timestamp>) {
        if clock.is_some()
            && let Some(part) = self.get_mut(range_id)
        {
            part.observed = part.observed.or(clock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn located(range_id: u64, start: &'static str, end: &'static str) -> Located {
        Located { range_id, start: start.into(), end: end.into(), global: false }
    }

    #[test]
    fn a_key_lies_in_the_range_heard_of_last() {
        let mut parts = Parts::default();
        parts.learn(located(1, "a", "z"));
        assert_eq!((parts.locate(b"m", false), parts.locate(b"z", true)), (Some(1), Some(1)));
        parts.learn(located(2, "m", "z"));
        assert_eq!((parts.locate(b"m", false), parts.locate(b"m", true)), (Some(2), Some(1)));
        parts.learn(located(1, "a", "f"));
        assert_eq!((parts.locate(b"g", false), parts.locate(b"e", false)), (None, Some(1)));
        parts.mislay(1);
        assert_eq!(parts.locate(b"e", false), None);
        assert!(parts.get(1).is_some(), "its locks are still to be released");
    }

    #[test]
    fn the_clock_of_a_range_says_nothing_of_what_it_has_absorbed_since() {
        let mut parts = Parts::default();
        parts.learn(located(1, "a", "m"));
        parts.note_clock(1, Some(Timestamp::new(5, 0)));
        parts.learn(located(1, "a", "f"));
        assert!(parts.get(1).unwrap().observed.is_some(), "it has fewer keys");
        parts.learn(located(1, "a", "m"));
        assert!(parts.get(1).unwrap().observed.is_none());
    }

    #[test]
    fn the_first_clock_seen_counts() {
        let mut parts = Parts::default();
        parts.learn(located(1, "a", "z"));
        let at = |wall_ns| Some(Timestamp::new(wall_ns, 0));
        parts.note_clock(1, None);
        parts.note_clock(1, at(5));
        parts.note_clock(1, at(7));
        parts.note_clock(2, at(7));
        assert_eq!(parts.get(1).unwrap().observed, at(5));
        parts.forget_clocks();
        assert_eq!(parts.get(1).unwrap().observed, None);
    }
}
