//! Implementation rule: a hash table of the right side, probed by the left rows; of semi- and anti-joins a table of the side with
//! fewer rows. What does not fit into memory is divided
//! by hash, so that nothing can be said of the order.

use super::join::{Method, Proposal, Proposals, Sides};
use super::order::{ANY, Required};
use crate::optimize::cost;

/// Proposes it.
pub fn propose(sides: &Sides, required: Required, proposals: &mut Proposals) {
    if sides.pairs.is_empty() || required.order != ANY {
        return;
    }
    if sides.hashes_left {
        proposals.push(Proposal {
            method: Method::Hash,
            left: Required::ALL,
            right: Some(Required::ALL),
            cost: cost::hash_join(
                sides.right_rows,
                sides.found,
                sides.left_rows,
                sides.rows * required.share,
            ),
        });
        return;
    }
    proposals.push(Proposal {
        method: Method::Hash,
        left: required.unordered(),
        right: Some(Required::ALL),
        cost: cost::hash_join(
            sides.left_rows * required.share,
            sides.found * required.share,
            sides.right_rows,
            sides.rows * required.share,
        ),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_needs_something_equal_and_keeps_no_order() {
        let mut sides = Sides::plain(100.0, 10.0);
        let proposed = |sides: &Sides, required| {
            let mut proposals = Proposals::new();
            propose(sides, required, &mut proposals);
            proposals
        };
        assert!(proposed(&sides, Required::ALL).is_empty());
        sides.pairs.push((1, 2));
        assert_eq!(proposed(&sides, Required::ALL)[0].cost, cost::hash_join(100.0, 100.0, 10.0, 100.0));
        assert!(proposed(&sides, Required::ALL.ordered(1)).is_empty());
        let turned = Sides {
            hashes_left: true,
            pairs: sides.pairs.clone(),
            found: 100.0,
            ..Sides::plain(10.0, 100.0)
        };
        assert_eq!(proposed(&turned, Required::ALL)[0].cost, cost::hash_join(100.0, 100.0, 10.0, 10.0));
        // Below a limit the table is made of all rows, and probed by some.
        let few = proposed(&sides, Required { share: 0.1, ..Required::ALL })[0];
        assert_eq!((few.left.share, few.right), (0.1, Some(Required::ALL)));
        assert_eq!(few.cost, cost::hash_join(10.0, 10.0, 10.0, 10.0));
    }
}
