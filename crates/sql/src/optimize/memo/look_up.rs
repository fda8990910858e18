//! Implementation rule: an index of the right side is looked up for each left row. Left rows keep their order.

use super::join::{Method, Proposal, Proposals, Sides};
use super::order::Required;
use crate::optimize::cost;

/// Proposes it.
pub fn propose(sides: &Sides, required: Required, proposals: &mut Proposals) {
    let (Some(look_up), Some(order)) = (sides.look_up, sides.left_order) else { return };
    proposals.push(Proposal {
        method: Method::LookUp,
        left: required.ordered(order),
        right: None,
        cost: look_up + sides.rows * required.share * cost::ROW,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_needs_an_index_and_keeps_the_order_of_the_left_side() {
        let mut sides = Sides::plain(100.0, 10.0);
        let proposed = |sides: &Sides| {
            let mut proposals = Proposals::new();
            propose(sides, Required::ALL.ordered(7), &mut proposals);
            proposals
        };
        assert!(proposed(&sides).is_empty());
        sides.look_up = Some(40.0);
        sides.left_order = Some(3);
        let [proposal] = proposed(&sides)[..] else { panic!("one proposal") };
        assert_eq!((proposal.left.order, proposal.right), (3, None));
        assert_eq!(proposal.cost, 40.0 + 100.0 * cost::ROW);
        sides.left_order = None;
        assert!(proposed(&sides).is_empty());
    }
}
