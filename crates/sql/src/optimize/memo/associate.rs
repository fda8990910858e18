//! Exploration rule: which two sets of inputs a set of them may be joined from.
//!
//! Up to [`MOST_EXHAUSTIVE`] inputs these are all, bushy ones included (as in Moerkotte and Neumann, "Analysis of two
//! existing and one new dynamic programming algorithm", 2006, algorithm DPsub). More are joined greedily, each time the
//! two that give the fewest rows (Fegaras, "A new heuristic for optimizing large queries", 1998).

use super::block::{Block, Set};
use std::collections::HashMap;

/// More inputs than this are joined greedily.
pub const MOST_EXHAUSTIVE: usize = 9;

/// How the inputs of a block may be joined.
#[derive(Debug)]
pub enum Splits {
    /// Any set of them from any two parts.
    All,
    /// A set of them, if it is here, from this part and the rest.
    Only(HashMap<Set, Set>),
}

impl Splits {
    /// Those of a block. Without this rule only those as written.
    pub fn of(block: &Block<'_>, on: bool) -> Self {
        match (on, block.inputs.len() <= MOST_EXHAUSTIVE) {
            (true, true) => Splits::All,
            (true, false) => Splits::Only(greedy(block.inputs.len(), block)),
            (false, _) => Splits::Only(as_written(block.inputs.len())),
        }
    }

    /// The left parts of a set of at least two inputs; the others are the right ones.
    pub fn lefts(&self, set: Set) -> impl Iterator<Item = Set> {
        let (mut subset, only) = match self {
            Splits::All => (set, None),
            Splits::Only(known) => (0, known.get(&set).copied()),
        };
        let all = std::iter::from_fn(move || {
            subset = subset.checked_sub(1)? & set;
            (subset != 0).then_some(subset)
        });
        all.chain(only.into_iter().flat_map(move |left| [left, set & !left]))
    }
}

fn as_written(count: usize) -> HashMap<Set, Set> {
    (1..count).map(|last| ((1 << (last + 1)) - 1, (1 << last) - 1)).collect()
}

/// What the greedy algorithm asks of a block.
pub trait Joined {
    /// Rows of a set of inputs.
    fn rows(&self, set: Set) -> f64;
    /// Whether something must be equal between two sets.
    fn connects(&self, left: Set, right: Set) -> bool;
}

impl Joined for Block<'_> {
    fn rows(&self, set: Set) -> f64 {
        Block::rows(self, set)
    }

    fn connects(&self, left: Set, right: Set) -> bool {
        Block::connects(self, left, right)
    }
}

fn greedy(count: usize, block: &impl Joined) -> HashMap<Set, Set> {
    let mut parts: Vec<Set> = (0..count).map(|number| 1 << number).collect();
    let mut splits = HashMap::new();
    while parts.len() > 1 {
        let mut best: Option<(bool, f64, usize, usize)> = None;
        for (a, left) in parts.iter().enumerate() {
            for (b, right) in parts.iter().enumerate().skip(a + 1) {
                let found = (!block.connects(*left, *right), block.rows(left | right), a, b);
                if best.is_none_or(|best| (found.0, found.1) < (best.0, best.1)) {
                    best = Some(found);
                }
            }
        }
        let Some((.., a, b)) = best else { break };
        let right = parts.remove(b);
        let left = parts.remove(a);
        splits.insert(left | right, left);
        parts.push(left | right);
    }
    splits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_tried_once() {
        let mut lefts: Vec<Set> = Splits::All.lefts(0b1101).collect();
        lefts.sort_unstable();
        assert_eq!(lefts, [0b1, 0b100, 0b101, 0b1000, 0b1001, 0b1100]);
    }

    #[test]
    fn without_the_rule_they_are_joined_as_written() {
        let splits = Splits::Only(as_written(3));
        assert_eq!(splits.lefts(0b111).collect::<Vec<_>>(), [0b11, 0b100]);
        assert_eq!(splits.lefts(0b11).collect::<Vec<_>>(), [0b1, 0b10]);
        assert_eq!(splits.lefts(0b110).count(), 0);
    }

    /// A chain: input `n` is connected with the next one, and the more rows the higher the number.
    struct Chain;

    impl Joined for Chain {
        fn rows(&self, set: Set) -> f64 {
            set as f64
        }

        fn connects(&self, left: Set, right: Set) -> bool {
            (left << 1 | left >> 1) & right != 0
        }
    }

    #[test]
    fn greedily_what_is_connected_and_gives_few_rows_is_joined_first() {
        let splits = Splits::Only(greedy(4, &Chain));
        assert_eq!(splits.lefts(0b11).next(), Some(0b1));
        assert_eq!(splits.lefts(0b111).next(), Some(0b100));
        assert_eq!(splits.lefts(0b1111).count(), 2);
        assert_eq!(splits.lefts(0b1100).count(), 0);
    }
}
