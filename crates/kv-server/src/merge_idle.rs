//! Which ranges have been idle for so long that they may absorb their right neighbours: pure.
//!
//! A range is split when it holds too much or is too busy. It is merged when it holds less than a quarter of what it may
//! hold, its neighbour as well, and both are far from busy for long: so that what was merged must grow, or become busy,
//! by a multiple before it is split again.

use replication::RangeId;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The part of the load at which a range is split that each of two ranges may have that are merged.
pub const LOAD_SHARE: u64 = 8;
/// The part of what a range may hold that each of two ranges may hold that are merged.
pub const SIZE_SHARE: u64 = 4;
/// After how many times the time for which a range must be idle it is tried again if it could not be merged.
const AGAIN: u32 = 6;

/// What is known of a range that may absorb its neighbour.
#[derive(Clone, Copy, Debug)]
struct Idle {
    since: Instant,
    /// When it was tried in vain.
    tried: Option<Instant>,
}

/// Ranges that may absorb their neighbours.
#[derive(Debug, Default)]
pub struct IdleRanges(BTreeMap<RangeId, Idle>);

/// What is to be done about them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// It has been idle for long enough.
    pub due: Option<RangeId>,
    /// These may be soon, and must not fall asleep before.
    pub waiting: Vec<RangeId>,
}

impl IdleRanges {
    /// Takes in all ranges that have a right neighbour, and their loads. `most` is the load up to which one is idle.
    pub fn look(
        &mut self,
        ranges: &BTreeMap<RangeId, u64>,
        most: u64,
        patience: Duration,
        now: Instant,
    ) -> Looked {
        self.0.retain(|range, _| ranges.contains_key(range));
        let mut looked = Looked::default();
        for (range, load) in ranges {
            let idle = self.0.entry(*range).or_insert(Idle { since: now, tried: None });
            if *load > most {
                idle.since = now;
            }
            let rests = idle.tried.is_some_and(|tried| now.duration_since(tried) < patience * AGAIN);
            if rests || *load > most {
                continue;
            }
            if looked.due.is_none() && now.duration_since(idle.since) >= patience {
                looked.due = Some(*range);
            } else {
                looked.waiting.push(*range);
            }
        }
        looked
    }

    /// Notes that a range could not be merged.
    pub fn tried(&mut self, range: RangeId, now: Instant) {
        if let Some(idle) = self.0.get_mut(&range) {
            idle.tried = Some(now);
        }
    }

    /// Begins to look at a range anew: it has another neighbour.
    pub fn forget(&mut self, range: RangeId) {
        self.0.remove(&range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(300);

    #[test]
    fn a_range_is_merged_when_it_was_idle_for_long() {
        let mut idle = IdleRanges::default();
        let start = Instant::now();
        let mut look = |at: u32, ranges: &[(RangeId, u64)]| {
            let ranges = ranges.iter().copied().collect();
            idle.look(&ranges, 100, PATIENCE, start + PATIENCE * at / 10)
        };
        let looked = |due, waiting: &[RangeId]| Looked { due, waiting: waiting.to_vec() };
        assert_eq!(look(0, &[(3, 0), (5, 100), (7, 101)]), looked(None, &[3, 5]));
        assert_eq!(look(5, &[(3, 0), (5, 101), (7, 0)]), looked(None, &[3, 7]));
        assert_eq!(look(10, &[(3, 0), (5, 0), (7, 0)]), looked(Some(3), &[5, 7]));
        assert_eq!(look(10, &[(5, 0), (7, 0)]), looked(Some(7), &[5]), "since it was busy no more");
        assert_eq!(look(15, &[(3, 0), (5, 0)]), looked(Some(5), &[3]), "it begins anew");
    }

    #[test]
    fn what_could_not_be_merged_rests() {
        let mut idle = IdleRanges::default();
        let start = Instant::now();
        let ranges = BTreeMap::from([(3, 0)]);
        assert_eq!(idle.look(&ranges, 1, PATIENCE, start).waiting, [3]);
        let due = start + PATIENCE;
        assert_eq!(idle.look(&ranges, 1, PATIENCE, due).due, Some(3));
        idle.tried(3, due);
        assert_eq!(idle.look(&ranges, 1, PATIENCE, due + PATIENCE * 5), Looked::default(), "it may sleep");
        assert_eq!(idle.look(&ranges, 1, PATIENCE, due + PATIENCE * 6).due, Some(3));
        idle.forget(3);
        assert_eq!(idle.look(&ranges, 1, PATIENCE, due + PATIENCE * 7).waiting, [3]);
    }
}
