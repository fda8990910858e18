//! Implementation rule: every left row with every right row. Left rows keep their order.
//!
//! Where something must be equal this is proposed only to keep an order: estimates that are too low would make it very
//! slow otherwise.

use super::join::{Method, Proposal, Proposals, Sides};
use super::order::{ANY, Required};
use crate::optimize::cost;

/// Proposes it.
pub fn propose(sides: &Sides, required: Required, proposals: &mut Proposals) {
    let Some(order) = sides.left_order else { return };
    if order == ANY && !sides.pairs.is_empty() {
        return;
    }
    proposals.push(Proposal {
        method: Method::NestedLoop,
        left: required.ordered(order),
        right: Some(Required::ALL),
        cost: cost::nested_loop(
            sides.left_rows * required.share,
            sides.right_rows,
            sides.rows * required.share,
        ),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposed(sides: &Sides) -> Proposals {
        let mut proposals = Proposals::new();
        propose(sides, Required { share: 0.5, ..Required::ALL }, &mut proposals);
        proposals
    }

    #[test]
    fn it_is_there_where_nothing_is_equal_or_an_order_is_kept() {
        let mut sides = Sides::plain(100.0, 10.0);
        let [proposal] = proposed(&sides)[..] else { panic!("one proposal") };
        assert_eq!(proposal.cost, cost::nested_loop(50.0, 10.0, 50.0));
        assert_eq!((proposal.left.share, proposal.right), (0.5, Some(Required::ALL)));
        sides.pairs.push((1, 2));
        assert!(proposed(&sides).is_empty());
        sides.left_order = Some(1);
        assert_eq!(proposed(&sides)[0].left.order, 1);
        sides.left_order = None;
        assert!(proposed(&sides).is_empty());
    }
}
