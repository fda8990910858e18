//! The order of transactions in time.
//!
//! "One was acknowledged before the other began" is an interval order: it has far too many pairs, but follows
//! from those between which nothing lies, of which there are about as many as transactions times processes.

use crate::graph::{Edge, Graph, Kind};
use crate::index::Index;

/// Something that began and ended, [`u64::MAX`] if it did not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    /// What happened.
    pub(crate) of: usize,
    /// The time before which others must have ended to come before it.
    pub(crate) began: u64,
    /// The time after which others must have begun to come after it.
    pub(crate) ended: u64,
}

/// Calls `precedes(a, b)` for pairs from which the whole order follows. An interval may have ended "before it
/// began"; it does not precede itself.
pub(crate) fn immediate(intervals: &[Interval], mut precedes: impl FnMut(usize, usize)) {
    let mut by_end: Vec<&Interval> = intervals.iter().filter(|interval| interval.ended < u64::MAX).collect();
    by_end.sort_by_key(|interval| interval.ended);
    let latest = LatestBegins::new(&by_end);
    for after in intervals {
        let count = by_end.partition_point(|before| before.ended < after.began);
        let Some(latest) = latest.but_for(count, after.of) else { continue };
        precedes(latest.of, after.of);
        let others = by_end.iter().take(count).rev().take_while(|before| before.ended >= latest.began);
        for before in others.filter(|before| before.of != after.of && before.of != latest.of) {
            precedes(before.of, after.of);
        }
    }
}

/// The two intervals that began last among the first few.
struct LatestBegins(Vec<[Option<Interval>; 2]>);

impl LatestBegins {
    fn new(intervals: &[&Interval]) -> Self {
        let (mut all, mut latest) = (vec![[None; 2]], [None::<Interval>; 2]);
        for interval in intervals {
            if latest[0].is_none_or(|first| first.began < interval.began) {
                latest = [Some(**interval), latest[0]];
            } else if latest[1].is_none_or(|second| second.began < interval.began) {
                latest[1] = Some(**interval);
            }
            all.push(latest);
        }
        LatestBegins(all)
    }

    /// The one among the first `count` that began last, leaving one out.
    fn but_for(&self, count: usize, out: usize) -> Option<Interval> {
        let [first, second] = *self.0.get(count)?;
        if first.is_some_and(|first| first.of == out) { second } else { first }
    }
}

/// Adds the order in time of serializable transactions.
pub(crate) fn add_edges(index: &Index<'_>, graph: &mut Graph) {
    let intervals: Vec<Interval> = index
        .committed()
        .filter(|(position, _)| index.is_serializable(*position))
        .map(|(position, txn)| {
            let ended = index.acknowledged(position).unwrap_or(u64::MAX);
            Interval { of: position, began: txn.invoked, ended }
        })
        .collect();
    immediate(&intervals, |from, to| {
        graph.add(Edge { from, to, kind: Kind::Time, object: None, before: None, after: None });
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn precedes(a: &Interval, b: &Interval) -> bool {
        a.of != b.of && a.ended < b.began
    }

    /// All pairs that follow from some.
    fn closure(mut pairs: BTreeSet<(usize, usize)>, of: usize) -> BTreeSet<(usize, usize)> {
        for middle in 0..of {
            for from in 0..of {
                for to in 0..of {
                    if pairs.contains(&(from, middle)) && pairs.contains(&(middle, to)) {
                        pairs.insert((from, to));
                    }
                }
            }
        }
        pairs
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_order_follows_from_its_immediate_pairs(times in prop::collection::vec((0u64..40, 1u64..12), 1..12)) {
            let interval = |(of, (began, length)): (usize, &(u64, u64))| {
                Interval { of, began: *began, ended: if length % 7 == 0 { u64::MAX } else { began + length } }
            };
            let intervals: Vec<Interval> = times.iter().enumerate().map(interval).collect();
            let all = intervals.iter().flat_map(|a| intervals.iter().map(move |b| (a, b)));
            let all: BTreeSet<_> = all.filter(|(a, b)| precedes(a, b)).map(|(a, b)| (a.of, b.of)).collect();
            let mut some = BTreeSet::new();
            immediate(&intervals, |from, to| { some.insert((from, to)); });
            prop_assert!(some.is_subset(&all));
            prop_assert_eq!(closure(some, intervals.len()), all);
        }
    }
}
