//! Which values cannot be NULL.

use crate::plan::{Expr, JoinKind, Plan, PlanKind, SetOpKind};
use sql_types::Type;

/// Whether an expression over the rows of a plan that satisfy some conditions is never NULL.
pub fn is_never_null(expr: &Expr, plan: &Plan, given: &[Expr]) -> bool {
    match expr {
        Expr::Const(value, _) => !value.is_null(),
        Expr::Column(index, _) => {
            given.iter().any(|condition| rejects_null(condition, *index)) || column(plan, *index)
        }
        Expr::Cast { expr, to, .. } => {
            let widens = matches!(
                (expr.ty(), to.ty),
                (Type::VARCHAR, Type::TEXT)
                    | (Type::INT2, Type::INT4 | Type::INT8)
                    | (Type::INT4, Type::INT8)
            );
            widens && is_never_null(expr, plan, given)
        }
        Expr::IsNull(..) | Expr::IsDistinct(..) => true,
        Expr::Coalesce(args, _) => args.iter().any(|arg| is_never_null(arg, plan, given)),
        _ => false,
    }
}

fn column(plan: &Plan, index: usize) -> bool {
    let conjuncts = |on: &Option<Expr>| on.as_ref().is_some_and(|on| rejects_null(on, index));
    match &plan.kind {
        PlanKind::Scan { table, columns, filter, .. } => {
            let own = columns.get(index).and_then(|id| table.column(*id));
            own.is_some_and(|column| !column.nullable) || conjuncts(filter)
        }
        PlanKind::Filter { input, predicate } => rejects_null(predicate, index) || column(input, index),
        PlanKind::Project { input, exprs } => {
            exprs.get(index).is_some_and(|expr| is_never_null(expr, input, &[]))
        }
        PlanKind::Sort { input, .. }
        | PlanKind::Limit { input, .. }
        | PlanKind::Distinct { input, .. }
        | PlanKind::Fence { input } => column(input, index),
        PlanKind::Apply { input, .. } | PlanKind::Window { input, .. } => {
            index < input.columns.len() && column(input, index)
        }
        PlanKind::Aggregate { input, groups, sets, aggregates } => match index.checked_sub(groups.len()) {
            None => sets.len() == 1 && is_never_null(&groups[index], input, &[]),
            Some(at) => aggregates.get(at).is_some_and(|call| call.function.name == "count"),
        },
        PlanKind::Join { kind, left, right, on, .. } => {
            let of_side = || match index.checked_sub(left.columns.len()) {
                None => !matches!(kind, JoinKind::Right | JoinKind::Full) && column(left, index),
                Some(index) => !matches!(kind, JoinKind::Left | JoinKind::Full) && column(right, index),
            };
            matches!(kind, JoinKind::Inner | JoinKind::Semi) && conjuncts(on) || of_side()
        }
        PlanKind::SetOp { kind: SetOpKind::Union, left, right, .. } => {
            column(left, index) && column(right, index)
        }
        PlanKind::SetOp { left, .. } => column(left, index),
        PlanKind::Values(rows) => {
            rows.iter().all(|row| row.get(index).is_some_and(|expr| is_never_null(expr, plan, &[])))
        }
        PlanKind::With { body, .. } => column(body, index),
        _ => false,
    }
}

/// Whether a condition is never true where a column is NULL.
fn rejects_null(condition: &Expr, index: usize) -> bool {
    let is = |expr: &Expr| matches!(expr, Expr::Column(own, _) if *own == index);
    match condition {
        Expr::Call { function, args, .. } => function.strict && args.iter().any(is),
        Expr::IsNull(value, true) => is(value),
        Expr::InList(value, _, false) => is(value),
        Expr::And(parts) => parts.iter().any(|part| rejects_null(part, index)),
        Expr::Or(parts) => parts.iter().all(|part| rejects_null(part, index)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::tests::bind;

    #[test]
    fn columns_that_are_never_null_are_known() {
        let cases = [
            ("SELECT id, a, b FROM t", [true, false, false]),
            ("SELECT id, a, b FROM t WHERE a > 5 AND b IS NOT NULL", [true, true, true]),
            ("SELECT id, a, b FROM t WHERE a > 5 OR b = 'x'", [true, false, false]),
            ("SELECT t.id, u.id, u.t_id FROM t JOIN u ON u.t_id = t.id", [true, true, true]),
            ("SELECT t.id, u.id, u.t_id FROM t LEFT JOIN u ON u.t_id = t.id", [true, false, false]),
            ("SELECT t.id, u.id, t.a FROM t RIGHT JOIN u ON u.t_id = t.id", [false, true, false]),
            ("SELECT t.id, u.id, 1 FROM t FULL JOIN u ON u.t_id = t.id", [false, false, true]),
            ("SELECT id, count(a), sum(a) FROM t GROUP BY id", [true, true, false]),
            ("SELECT id, NULL::int, id::bigint FROM t ORDER BY a LIMIT 5", [true, false, true]),
            ("SELECT id, a, 7 FROM t UNION ALL SELECT id, id, NULL FROM t", [true, false, false]),
            ("SELECT id, coalesce(a, 0), a IS NULL FROM t", [true, true, true]),
            ("SELECT DISTINCT id, a + 1, (SELECT 1) FROM t", [true, false, false]),
        ];
        for (sql, expected) in cases {
            let plan = bind(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}")).plan;
            let found = [0, 1, 2]
                .map(|index| is_never_null(&Expr::Column(index, plan.columns[index].ty.ty), &plan, &[]));
            assert_eq!(found, expected, "{sql}");
        }
    }

    #[test]
    fn what_is_asked_of_rows_counts() {
        let plan = bind("SELECT a, c FROM t").unwrap().plan;
        let a = Expr::Column(0, Type::INT4);
        let given = [Expr::IsNull(Box::new(a.clone()), true)];
        assert!(is_never_null(&a, &plan, &given) && !is_never_null(&a, &plan, &[]));
        assert!(!is_never_null(&Expr::Column(1, Type::INT8), &plan, &given));
    }
}
