//! Scalar subqueries that aggregate rows which are equal to the outer row in something are computed for all outer rows at
//! once: as groups, which the outer rows are joined with.
//!
//! `(SELECT sum(b) FROM u WHERE u.k = t.k)` is a column of `t LEFT JOIN (SELECT k, sum(b) FROM u GROUP BY k) ON u.k = t.k`
//! (W. Kim, "On optimizing an SQL-like nested query", 1982, with the left join of R. A. Ganski and H. K. T. Wong,
//! "Optimization of nested SQL queries revisited", 1987, by which rows without a partner are not lost, and 0 for a count of
//! nothing).
//!
//! Groups that no outer row asks for are computed, too. So only that is unnested which cannot fail for them. Whether it
//! pays is a matter of costs, and for whoever calls this to see.

use super::join_method::equal_values;
use super::leakproof::is_leakproof;
use crate::plan::{AggregateCall, Expr, JoinKind, JoinMethod, Plan, PlanColumn, PlanKind, SubPlan};
use sql_types::{Datum, Type};
use std::sync::Arc;

/// Unnests what can be; whether that was anything.
pub fn unnest(plan: &mut Plan) -> bool {
    let mut found = false;
    plan.for_each_child_mut(&mut |child, _| found |= unnest(child));
    let PlanKind::Apply { input, subplans } = &mut plan.kind else { return found };
    let [(SubPlan::Scalar(subplan), false)] = &subplans[..] else { return found };
    let width = input.columns.len();
    let Some((groups, on, value)) = as_groups(subplan, width) else { return found };
    let left = std::mem::replace(input.as_mut(), Plan::one_row());
    let joined: Vec<PlanColumn> = left.columns.iter().chain(&groups.columns).cloned().collect();
    let mut exprs: Vec<Expr> =
        (0..).zip(&left.columns).map(|(index, column)| Expr::Column(index, column.ty.ty)).collect();
    exprs.push(value);
    let kind = PlanKind::Join {
        kind: JoinKind::Left,
        method: JoinMethod::NestedLoop,
        left: Box::new(left),
        right: Box::new(groups),
        on: Some(on),
    };
    let columns = std::mem::take(&mut plan.columns);
    *plan = Plan::new(PlanKind::Project { input: Box::new(Plan::new(kind, joined)), exprs }, columns);
    true
}

/// The groups of a subquery, the condition under which an outer row of some width has one of them, and the value of the
/// subquery over both.
fn as_groups(subplan: &Arc<Plan>, width: usize) -> Option<(Plan, Expr, Expr)> {
    let mut plan = Plan::clone(subplan);
    if plan.is_volatile() || !reads_outer_row(&mut plan) {
        return None;
    }
    let mut value = match plan.kind {
        PlanKind::Project { input, mut exprs } if exprs.len() == 1 => {
            plan = *input;
            exprs.pop()?
        }
        kind => {
            plan.kind = kind;
            Expr::Column(0, plan.columns.first()?.ty.ty)
        }
    };
    let PlanKind::Aggregate { input, groups, sets, aggregates } = plan.kind else { return None };
    let reads_outer = |expr: &Expr| expr.any(&mut |part| matches!(part, Expr::Outer { .. }));
    if !groups.is_empty() || sets.len() != 1 || reads_outer(&value) || !aggregates.iter().all(is_plain) {
        return None;
    }
    let mut input = *input;
    let pairs = pull_equalities(&mut input)?;
    if pairs.is_empty() || reads_outer_row(&mut input) || !all_cannot_fail(&mut input) {
        return None;
    }
    let keys: Vec<Expr> = pairs.iter().map(|(_, own, _)| own.clone()).collect();
    let count = keys.len();
    let condition = |(at, (outer, own, equal)): (usize, (Expr, Expr, Expr))| {
        let Expr::Call { function, args, ty } = equal else { return None };
        let key = Expr::Column(width + at, own.ty());
        let first = args.first().is_some_and(|arg| arg.same(&own));
        let args = if first { vec![key, outer] } else { vec![outer, key] };
        Some(Expr::Call { function, args, ty })
    };
    let on = pairs.into_iter().enumerate().map(condition).collect::<Option<Vec<_>>>()?;
    value.replace(&mut |part| match part {
        Expr::Column(index, ty) => {
            let own = Expr::Column(width + count + index, *ty);
            let counts = aggregates.get(*index).is_some_and(|call| call.function.name == "count");
            let nothing = || Expr::Const(Datum::Int8(0), Type::INT8);
            Some(if counts { Expr::Coalesce(vec![own, nothing()], *ty) } else { own })
        }
        _ => None,
    });
    let column = |key: &Expr| match key {
        Expr::Column(index, _) => input.columns.get(*index).cloned(),
        _ => None,
    };
    let named = keys.iter().map(|key| column(key).unwrap_or_else(|| PlanColumn::new("?column?", key.ty())));
    let mut columns: Vec<PlanColumn> = named.collect();
    columns.extend(plan.columns);
    let sets = vec![(0..count).collect()];
    let kind = PlanKind::Aggregate { input: Box::new(input), groups: keys, sets, aggregates };
    let mut groups = Plan::new(kind, columns);
    groups.shift_outer(1, -1);
    Some((groups, Expr::conjunction(on)?, value))
}

/// Whether an aggregate is one of those whose value is NULL of nothing, or 0 for a count, and that cannot fail.
fn is_plain(call: &AggregateCall) -> bool {
    let known = matches!(call.function.name, "count" | "sum" | "avg" | "min" | "max");
    // A sum of floats may overflow; for one of integers it would take more rows than there are.
    let fits = call.args.iter().all(|arg| {
        matches!(call.function.name, "count" | "min" | "max")
            || matches!(arg.ty(), Type::NUMERIC | Type::INT8 | Type::INT4 | Type::INT2)
    });
    known && fits && call.order.is_empty() && call.args.iter().chain(&call.filter).all(is_leakproof)
}

/// Takes the equalities of something of the outer row with something of a plan's rows out of the plan: the former, the
/// latter, and the equality. `None` if the plan depends on the outer row in other ways.
fn pull_equalities(plan: &mut Plan) -> Option<Vec<(Expr, Expr, Expr)>> {
    if !reads_outer_row(plan) {
        return Some(Vec::new());
    }
    let PlanKind::Filter { input, predicate } = &mut plan.kind else { return None };
    if reads_outer_row(input) {
        return None;
    }
    let reads = |expr: &Expr| expr.any(&mut |part| matches!(part, Expr::Outer { depth: 0, .. }));
    let all = std::mem::replace(predicate, Expr::Const(Datum::Bool(true), Type::BOOL)).into_conjuncts();
    let (outer, own): (Vec<Expr>, Vec<Expr>) = all.into_iter().partition(reads);
    if let Some(own) = Expr::conjunction(own) {
        *predicate = own;
    }
    outer
        .into_iter()
        .map(|equal| {
            equal_values(&equal)?;
            let Expr::Call { args, .. } = &equal else { return None };
            let [a, b] = &args[..] else { return None };
            let (outer, own) = match (reads(a), reads(b)) {
                (true, false) => (a, b),
                (false, true) => (b, a),
                _ => return None,
            };
            let has_columns = |expr: &Expr| expr.any(&mut |part| matches!(part, Expr::Column(..)));
            if has_columns(outer) || !has_columns(own) || !is_leakproof(own) {
                return None;
            }
            Some((as_column(outer.clone()), own.clone(), equal))
        })
        .collect()
}

/// Whether nothing that a plan does for its rows can fail.
fn all_cannot_fail(plan: &mut Plan) -> bool {
    let plain = matches!(
        plan.kind,
        PlanKind::Scan { .. }
            | PlanKind::Join { .. }
            | PlanKind::Filter { .. }
            | PlanKind::Project { .. }
            | PlanKind::Fence { .. }
    );
    let mut all = plain;
    plan.for_each_expr_mut(&mut |expr| all &= cannot_fail(expr));
    plan.for_each_child_mut(&mut |child, _| all = all && all_cannot_fail(child));
    all
}

/// Conditions that are evaluated for the rows of all groups, and not of some, must not fail for any of them. What is
/// compared with columns may if it fails for all of them.
fn cannot_fail(expr: &Expr) -> bool {
    let compared = |args: &[Expr]| {
        args.iter().all(|arg| {
            (matches!(arg, Expr::Column(..)) || arg.is_run_constant())
                && matches!(arg.ty(), Type::BPCHAR | Type::DATE | Type::TIMESTAMP | Type::TIMESTAMPTZ)
        })
    };
    match expr {
        Expr::Call { function, args, .. } => {
            is_leakproof(expr)
                || matches!(function.name, "=" | "<>" | "<" | "<=" | ">" | ">=") && compared(args)
        }
        Expr::And(parts) | Expr::Or(parts) => parts.iter().all(cannot_fail),
        _ => is_leakproof(expr),
    }
}

/// An expression over the outer row as one over its columns.
fn as_column(mut expr: Expr) -> Expr {
    expr.replace(&mut |part| match part {
        Expr::Outer { depth: 0, index, ty } => Some(Expr::Column(*index, *ty)),
        Expr::Outer { depth, index, ty } => Some(Expr::Outer { depth: depth - 1, index: *index, ty: *ty }),
        _ => None,
    });
    expr
}

fn reads_outer_row(plan: &mut Plan) -> bool {
    plan.reads_outer(&mut |depth, _| depth == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::tests::bind;

    #[test]
    fn what_cannot_fail_and_asks_for_equal_values_is_unnested() {
        let cases = [
            ("SELECT (SELECT count(*) FROM u WHERE u.t_id = t.id) FROM t", true),
            (
                "SELECT id FROM t WHERE c > (SELECT 2 * avg(u.id) FROM u WHERE u.t_id = t.id AND note = 'x')",
                true,
            ),
            ("SELECT (SELECT max(u.id) FROM u, s WHERE u.t_id = t.id AND s.id = u.id) FROM t", true),
            ("SELECT (SELECT sum(x.c) FROM t x WHERE x.a = t.a AND x.b = t.b) FROM t", true),
            ("SELECT (SELECT sum(x.c) FROM t x WHERE x.a = t.a AND x.d < '2020-01-01') FROM t", true),
            // Computed once.
            ("SELECT (SELECT count(*) FROM u) FROM t", false),
            // Not by equality, or by something that may fail.
            ("SELECT (SELECT count(*) FROM u WHERE u.t_id > t.id) FROM t", false),
            ("SELECT (SELECT count(*) FROM u WHERE 1 / u.t_id = t.id) FROM t", false),
            ("SELECT (SELECT sum(1 / u.t_id) FROM u WHERE u.t_id = t.id) FROM t", false),
            ("SELECT (SELECT count(*) FROM u WHERE u.t_id = t.id AND 1 / u.id > 0) FROM t", false),
            ("SELECT (SELECT count(*) FROM (SELECT 1 / id AS k FROM u) v WHERE v.k = t.id) FROM t", false),
            // Other values of nothing, or no aggregate.
            ("SELECT (SELECT array_agg(u.id) FROM u WHERE u.t_id = t.id) FROM t", false),
            ("SELECT (SELECT u.id FROM u WHERE u.t_id = t.id) FROM t", false),
            ("SELECT (SELECT count(*) FROM u WHERE u.t_id = t.id GROUP BY note) FROM t", false),
            ("SELECT (SELECT count(*) + t.id FROM u WHERE u.t_id = t.id) FROM t", false),
        ];
        for (sql, unnested) in cases {
            let mut plan = bind(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}")).plan;
            assert_eq!(unnest(&mut plan), unnested, "{sql}");
        }
    }
}
