//! Enforcer: a sort puts the rows of a group in the order that is asked for. It reads them all, and keeps those that will be
//! read if a limit cuts just these.

use super::order::{ANY, Required};
use crate::optimize::cost;

/// What is asked of the rows below a sort, and what it costs beyond them; `None` where no order is asked for.
pub fn enforce(required: Required, rows: f64) -> Option<(Required, f64)> {
    if required.order == ANY {
        return None;
    }
    let wanted = if required.cut { rows * required.share } else { rows };
    Some((Required::ALL, cost::sort(rows, wanted) + rows * required.share * cost::ROW))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sort_below_a_limit_costs_less() {
        assert_eq!(enforce(Required::ALL, 100.0), None);
        let (below, all) = enforce(Required::ALL.ordered(1), 1000.0).unwrap();
        assert_eq!(below, Required::ALL);
        let cut = |cut| enforce(Required { order: 1, share: 0.01, cut }, 1000.0).unwrap().1;
        assert!(cut(true) < cut(false) && cut(false) < all);
    }
}
