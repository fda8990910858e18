//! Exploration rule: a join with its sides turned. Of inner joins it is one of the parts that [`super::associate`] has; the
//! others become joins of the kind turned, below a projection that puts the columns in order.

use crate::optimize::cost;
use crate::plan::JoinKind;

/// The kind of a join whose sides are turned; `None` if that is none of ours.
pub fn turned(kind: JoinKind) -> Option<JoinKind> {
    match kind {
        JoinKind::Inner | JoinKind::Full => Some(kind),
        JoinKind::Left => Some(JoinKind::Right),
        JoinKind::Right => Some(JoinKind::Left),
        JoinKind::Semi | JoinKind::Anti => None,
    }
}

/// What the projection costs.
pub fn projection(rows: f64) -> f64 {
    rows * cost::ROW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outer_joins_keep_the_rows_that_they_kept() {
        assert_eq!(turned(JoinKind::Left), Some(JoinKind::Right));
        assert_eq!(turned(JoinKind::Right), Some(JoinKind::Left));
        assert_eq!(turned(JoinKind::Full), Some(JoinKind::Full));
        assert_eq!(turned(JoinKind::Semi), None);
        assert_eq!(turned(JoinKind::Anti), None);
    }
}
