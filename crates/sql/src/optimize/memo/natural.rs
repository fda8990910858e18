//! Orders that come by themselves.

use crate::catalog::descriptor::{ColumnId, IndexDescriptor};
use crate::plan::{Expr, JoinKind, Plan, PlanKind, SortKey};

/// Orders that a plan may have its rows in without a sort for it: those of indexes, and of sorts that are there. Over a row
/// in which its columns begin at `start`.
pub fn natural_orders(plan: &Plan, start: usize) -> Vec<Vec<(Expr, bool)>> {
    match &plan.kind {
        PlanKind::Scan { table, columns, .. } => {
            let key = |(id, descending): &(ColumnId, bool)| {
                let at = columns.iter().position(|own| own == id)?;
                Some((Expr::Column(start + at, table.column(*id)?.ty.ty), *descending))
            };
            let of = |index: &IndexDescriptor| index.columns.iter().map_while(key).collect();
            table.indexes.iter().filter(|index| index.is_plain()).map(of).collect()
        }
        PlanKind::Filter { input, .. } | PlanKind::Limit { input, .. } | PlanKind::Apply { input, .. } => {
            natural_orders(input, start)
        }
        PlanKind::Sort { keys, .. } => {
            let key = |key: &SortKey| {
                let mut expr = key.expr.clone();
                expr.shift_columns(start as isize);
                (expr, key.descending)
            };
            vec![keys.iter().map(key).collect()]
        }
        PlanKind::Project { input, exprs } => {
            let shown = |(key, descending): (Expr, bool)| {
                let at = exprs.iter().position(|expr| expr.same(&key))?;
                Some((Expr::Column(start + at, key.ty()), descending))
            };
            let below = natural_orders(input, 0).into_iter();
            below.map(|keys| keys.into_iter().map_while(shown).collect()).collect()
        }
        PlanKind::Join { kind, left, right, .. } => {
            let mut found = match kind {
                JoinKind::Right | JoinKind::Full => Vec::new(),
                _ => natural_orders(left, start),
            };
            if matches!(kind, JoinKind::Inner | JoinKind::Right) {
                found.extend(natural_orders(right, start + left.columns.len()));
            }
            found
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::tests::bind;

    #[test]
    fn orders_of_indexes_come_through_joins_and_projections() {
        let shown = |sql: &str| {
            let plan = bind(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}")).plan;
            let key = |(expr, descending): (Expr, bool)| {
                let Expr::Column(index, _) = expr else { panic!("a column") };
                format!("{index}{}", if descending { "-" } else { "" })
            };
            let one = |keys: Vec<(Expr, bool)>| keys.into_iter().map(key).collect::<Vec<_>>().join(",");
            let mut all: Vec<String> = natural_orders(&plan, 10).into_iter().map(one).collect();
            all.retain(|keys| !keys.is_empty());
            all
        };
        assert_eq!(shown("SELECT id, a, b, c FROM t"), ["10", "11,13", "12"]);
        assert_eq!(shown("SELECT c, id FROM t WHERE b = 'x'"), ["11"]);
        assert_eq!(shown("SELECT a, c FROM t ORDER BY c DESC, a"), ["11-,10"]);
        assert_eq!(shown("SELECT s.id, u.id FROM s JOIN u ON true"), ["10", "11"]);
        assert_eq!(shown("SELECT s.id, u.id FROM s LEFT JOIN u ON true"), ["10"]);
        assert_eq!(shown("SELECT s.id, u.id FROM s RIGHT JOIN u ON true"), ["11"]);
        assert!(shown("SELECT s.id, u.id FROM s FULL JOIN u ON true").is_empty());
        assert!(shown("SELECT a FROM t GROUP BY a").is_empty());
    }
}
