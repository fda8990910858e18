//! Exploration rule: a semi-join of a table as an inner join with the distinct values of the right side, so that the table
//! can be looked up by them.

use crate::optimize::pushdown::sides;
use crate::plan::{Expr, JoinKind, JoinMethod, Plan, PlanColumn, PlanKind};

/// What a semi-join is as well, if all it asks is that columns of the right side are equal to something of the left.
pub fn alternative(plan: &Plan) -> Option<Plan> {
    let PlanKind::Join { kind: JoinKind::Semi, method: JoinMethod::NestedLoop, left, right, on: Some(on) } =
        &plan.kind
    else {
        return None;
    };
    if !matches!(left.kind, PlanKind::Scan { .. }) {
        return None;
    }
    let width = left.columns.len();
    let keys = on.conjuncts().into_iter().map(|one| value_of(one, width)).collect::<Option<Vec<usize>>>()?;
    let columns: Vec<PlanColumn> =
        keys.iter().map(|key| right.columns.get(key - width).cloned()).collect::<Option<_>>()?;
    let exprs =
        keys.iter().zip(&columns).map(|(key, column)| Expr::Column(key - width, column.ty.ty)).collect();
    let values = Plan::clone(right).projected(exprs, columns.clone());
    let values = Plan::new(PlanKind::Distinct { input: Box::new(values), on: Vec::new() }, columns);
    let mut on = on.clone();
    on.replace(&mut |part| match part {
        Expr::Column(index, ty) => {
            keys.iter().position(|key| key == index).map(|place| Expr::Column(width + place, *ty))
        }
        _ => None,
    });
    let joined = left.columns.iter().chain(&values.columns).cloned().collect();
    let kind = PlanKind::Join {
        kind: JoinKind::Inner,
        method: JoinMethod::NestedLoop,
        left: left.clone(),
        right: Box::new(values),
        on: Some(on),
    };
    let exprs = (0..).zip(&plan.columns).map(|(index, column)| Expr::Column(index, column.ty.ty)).collect();
    Some(Plan::new(kind, joined).projected(exprs, plan.columns.clone()))
}

/// The column of the right side that an equality with something of the left side determines.
fn value_of(conjunct: &Expr, width: usize) -> Option<usize> {
    let Expr::Call { function, args, .. } = conjunct else { return None };
    let [a, b] = &args[..] else { return None };
    if function.name != "=" || a.ty() != b.ty() {
        return None;
    }
    match (a, b) {
        (other, Expr::Column(index, _)) | (Expr::Column(index, _), other)
            if *index >= width && sides(other, width) == (true, false) =>
        {
            Some(*index)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::tests::bind;
    use crate::optimize::{pushdown, semi};

    /// The alternative of the first semi-join of a query.
    fn of(sql: &str) -> Option<Plan> {
        fn first(plan: &Plan, found: &mut Option<Plan>) {
            if matches!(plan.kind, PlanKind::Join { .. }) {
                *found = found.take().or_else(|| alternative(plan));
            }
            plan.for_each_child(&mut |child, _| first(child, found));
        }
        let mut plan = bind(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}")).plan;
        semi::unnest(&mut plan);
        let mut found = None;
        first(&pushdown::push_down(plan), &mut found);
        found
    }

    #[test]
    fn what_asks_for_equal_values_is_a_join_with_the_distinct_ones() {
        let found = of("SELECT b FROM t WHERE EXISTS (SELECT FROM u WHERE u.t_id = t.id AND note = 'x')");
        let Some(PlanKind::Project { input, exprs }) = found.map(|plan| plan.kind) else {
            panic!("a projection")
        };
        let PlanKind::Join { kind: JoinKind::Inner, left, right, .. } = &input.kind else {
            panic!("an inner join")
        };
        let PlanKind::Distinct { .. } = &right.kind else { panic!("distinct values") };
        assert_eq!((exprs.len(), right.columns.len()), (left.columns.len(), 1));
    }

    #[test]
    fn other_semi_joins_have_none() {
        for sql in [
            "SELECT b FROM t WHERE EXISTS (SELECT FROM u WHERE u.t_id = t.id AND u.id > t.a)",
            "SELECT b FROM t WHERE EXISTS (SELECT FROM u WHERE u.t_id + u.id = t.id)",
            "SELECT b FROM t WHERE NOT EXISTS (SELECT FROM u WHERE u.t_id = t.id)",
            "SELECT t.b FROM t JOIN u ON u.t_id = t.id",
        ] {
            assert!(of(sql).is_none(), "{sql}");
        }
    }
}
