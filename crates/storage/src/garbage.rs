//! What nobody reads any more.

use crate::engine::Space;
use crate::key::is_garbage;
use crate::span::range_spans;
use bytes::Bytes;
use kv_api::Timestamp;

/// Below which timestamps nobody reads: one for all keys, and others for some spans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GarbageFloors {
    rest: Timestamp,
    /// By space and first key; they do not overlap.
    exceptions: Vec<Exception>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Exception {
    space: Space,
    start: Bytes,
    end: Bytes,
    floor: Timestamp,
}

impl GarbageFloors {
    /// One floor for all keys.
    pub fn everywhere(floor: Timestamp) -> Self {
        GarbageFloors { rest: floor, exceptions: Vec::new() }
    }

    /// The floors with another for the keys from `start` to before `end`, for which there is none yet.
    pub fn except(mut self, start: &[u8], end: &[u8], floor: Timestamp) -> Self {
        for (space, start, end) in range_spans(start, end) {
            let place = self
                .exceptions
                .partition_point(|known| (known.space as u8, &known.start) < (space as u8, &start));
            self.exceptions.insert(place, Exception { space, start, end, floor });
        }
        self
    }

    /// The floors, but for all keys without one of their own not below that of others.
    pub(crate) fn not_below(mut self, others: &GarbageFloors) -> Self {
        self.rest = self.rest.max(others.rest);
        self
    }

    /// The floor of a key.
    pub fn of(&self, space: Space, key: &[u8]) -> Timestamp {
        let after = self
            .exceptions
            .partition_point(|known| (known.space as u8, &known.start[..]) <= (space as u8, key));
        match after.checked_sub(1).and_then(|place| self.exceptions.get(place)) {
            Some(exception) if exception.space == space && key < &exception.end[..] => exception.floor,
            _ => self.rest,
        }
    }

    /// Whether nobody who reads at or above the floors needs an entry.
    pub(crate) fn drops(&self, space: Space, key: &[u8], value: &[u8]) -> bool {
        is_garbage(space, value, self.of(space, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::history_prefix;
    use kv_api::TenantId;

    #[test]
    fn spans_have_floors_of_their_own_in_every_space() {
        let at = |wall| Timestamp::new(wall, 0);
        let (seven, nine) = (TenantId(7).span(), TenantId(9).span());
        let floors = GarbageFloors::everywhere(at(50)).except(&nine.start, &nine.end, at(90)).except(
            &seven.start,
            &seven.end,
            at(7),
        );
        for (tenant, floor) in [(6, 50), (7, 7), (8, 50), (9, 90), (10, 50)] {
            for rest in [&b""[..], b"k", b"\x00\xff", b"\xff\xff"] {
                let key = TenantId(tenant).prefixed(rest);
                assert_eq!(floors.of(Space::Data, &key), at(floor), "tenant {tenant}");
                assert_eq!(floors.of(Space::History, &history_prefix(&key)), at(floor), "tenant {tenant}");
            }
        }
        assert_eq!(GarbageFloors::everywhere(at(3)).not_below(&floors).of(Space::Data, b"k"), at(50));
    }
}
