//! Sets of row numbers.

use std::collections::BTreeMap;
use std::fmt;

/// Row numbers as ranges that neither overlap nor touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds the rows from `first` to `last`, both included.
    pub fn insert(&mut self, first: u64, last: u64) {
        let (mut first, mut last) = (first, last.max(first));
        let touching = |(start, end): (&u64, &u64)| (*start, *end);
        while let Some((start, end)) = self.0.range(..=last.saturating_add(1)).next_back().map(touching) {
            if end.saturating_add(1) < first {
                break;
            }
            self.0.remove(&start);
            first = first.min(start);
            last = last.max(end);
        }
        self.0.insert(first, last);
    }

    /// Whether a row is among them.
    pub fn contains(&self, row: u64) -> bool {
        self.0.range(..=row).next_back().is_some_and(|(_, last)| *last >= row)
    }

    /// How many rows.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// The ranges in order: first and last row.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(first, last)| (*first, *last))
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<String> = self.iter().map(|(first, last)| format!("{first}-{last}")).collect();
        f.write_str(&ranges.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn neighbours_become_one() {
        let mut ranges = Ranges::default();
        for (first, last) in [(5, 9), (1, 2), (20, 20), (3, 4), (19, 19)] {
            ranges.insert(first, last);
        }
        assert_eq!((ranges.to_string().as_str(), ranges.count()), ("1-9, 19-20", 11));
    }

    proptest! {
        #[test]
        fn they_are_sets(parts in prop::collection::vec((0u64..40, 0u64..10), 0..12)) {
            let mut ranges = Ranges::default();
            let mut model = BTreeSet::new();
            for (first, more) in parts {
                ranges.insert(first, first + more);
                model.extend(first..=first + more);
            }
            prop_assert_eq!(ranges.count(), model.len() as u64);
            prop_assert!((0..60).all(|row| ranges.contains(row) == model.contains(&row)));
            let ends: Vec<_> = ranges.iter().collect();
            prop_assert!(ends.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
        }
    }
}
