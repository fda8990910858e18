//! IN and EXISTS in WHERE become semi-joins; NOT EXISTS becomes an anti-join, and so does NOT IN where nothing that it
//! compares can be NULL ([`nullable`](super::nullable)).
//!
//! Other NOT IN stay as they are: with a NULL among the values it is never true, which an anti-join does not say.

use super::join_method::equal_values;
use super::nullable::is_never_null;
use super::pushdown::sides;
use crate::plan::{Expr, JoinKind, JoinMethod, Plan, PlanColumn, PlanKind, SubPlan};
use sql_types::{Datum, Type};
use std::sync::Arc;

/// Unnests what can be unnested.
pub fn unnest(plan: &mut Plan) {
    plan.for_each_child_mut(&mut |child, _| unnest(child));
    let PlanKind::Filter { input, predicate } = &mut plan.kind else { return };
    let mut conjuncts = std::mem::replace(predicate, truth()).into_conjuncts();
    unnest_below(input, &mut conjuncts);
    *predicate = Expr::conjunction(conjuncts).unwrap_or_else(truth);
}

/// Looks at the `Apply`s directly below the filter.
fn unnest_below(plan: &mut Plan, conjuncts: &mut Vec<Expr>) {
    let PlanKind::Apply { input, subplans } = &mut plan.kind else { return };
    unnest_below(input, conjuncts);
    let width = input.columns.len();
    let [(subplan, _)] = &mut subplans[..] else { return };
    let Some((position, negated)) = only_use(conjuncts, width) else { return };
    let given: Vec<Expr> =
        (0..).zip(&*conjuncts).filter(|(at, _)| *at != position).map(|(_, one)| one.clone()).collect();
    let Some((kind, right, on)) = as_join(subplan, negated, input, &given) else { return };
    conjuncts.remove(position);
    let left = std::mem::replace(input.as_mut(), Plan::one_row());
    let columns = left.columns.clone();
    let join = Plan::new(
        PlanKind::Join {
            kind,
            method: JoinMethod::NestedLoop,
            left: Box::new(left),
            right: Box::new(right),
            on,
        },
        columns.clone(),
    );
    // The column of the sub-plan stays, so that nothing above moves.
    let mut exprs: Vec<Expr> =
        columns.iter().enumerate().map(|(index, column)| Expr::Column(index, column.ty.ty)).collect();
    exprs.push(Expr::Const(Datum::Bool(!negated), Type::BOOL));
    let columns: Vec<PlanColumn> = plan.columns.clone();
    *plan = Plan::new(PlanKind::Project { input: Box::new(join), exprs }, columns);
}

/// The conjunct that is the sub-plan's column, or its negation, if nothing else reads the column.
fn only_use(conjuncts: &[Expr], column: usize) -> Option<(usize, bool)> {
    let mut found = None;
    for (position, conjunct) in conjuncts.iter().enumerate() {
        let mut uses = 0;
        conjunct.columns(&mut |index| uses += usize::from(index == column));
        if uses == 0 {
            continue;
        }
        let negated = match conjunct {
            Expr::Column(_, _) => false,
            Expr::Not(inner) if matches!(inner.as_ref(), Expr::Column(..)) => true,
            _ => return None,
        };
        if found.replace((position, negated)).is_some() {
            return None;
        }
    }
    found
}

/// The join that a sub-plan amounts to: its kind, right side and condition. `given`: what else is asked of the rows.
fn as_join(
    subplan: &mut SubPlan,
    negated: bool,
    left: &Plan,
    given: &[Expr],
) -> Option<(JoinKind, Plan, Option<Expr>)> {
    let width = left.columns.len();
    let (plan, test) = match (&*subplan, negated) {
        (SubPlan::Exists(plan), _) => (plan, None),
        (SubPlan::Quantified { plan, test, any: true }, false) => (plan, Some(test.clone())),
        (SubPlan::Quantified { plan, test, any: true }, true) if is_decided(test, left, given, plan) => {
            (plan, Some(test.clone()))
        }
        _ => return None,
    };
    let exists = test.is_none();
    let mut right = Plan::clone(Arc::as_ref(plan));
    if exists {
        strip(&mut right);
    }
    let mut conjuncts = match test {
        Some(test) => test.into_conjuncts(),
        None => Vec::new(),
    };
    conjuncts.extend(pull_conditions(&mut right, width, exists)?);
    if right.reads_outer(&mut |depth, _| depth == 0) || right.is_volatile() {
        return None;
    }
    // An uncorrelated EXISTS is computed once; that is better than a join.
    if conjuncts.is_empty() {
        return None;
    }
    right.shift_outer(1, -1);
    let kind = if negated { JoinKind::Anti } else { JoinKind::Semi };
    Some((kind, right, Expr::conjunction(conjuncts)))
}

/// Whether a test of rows of both plans is never NULL: it is comparisons of what is not.
fn is_decided(test: &Expr, left: &Plan, given: &[Expr], right: &Plan) -> bool {
    let width = left.columns.len();
    let decided = |side: &Expr| match sides(side, width) {
        (true, false) => is_never_null(side, left, given),
        (false, _) => {
            let mut own = side.clone();
            own.shift_columns(-(width as isize));
            is_never_null(&own, right, &[])
        }
        (true, true) => false,
    };
    test.conjuncts().into_iter().all(|one| match one {
        Expr::Call { args, .. } => equal_values(one).is_some() && args.iter().all(decided),
        _ => false,
    })
}

/// EXISTS does not care for the columns, the order, or duplicates.
fn strip(plan: &mut Plan) {
    while let PlanKind::Project { input, .. } | PlanKind::Sort { input, limit: None, .. } = &mut plan.kind {
        let input = std::mem::replace(input.as_mut(), Plan::one_row());
        *plan = input;
    }
}

/// Takes the conditions on the outer row out of a plan, as conditions over the outer row followed by
/// the plan's row. `None` if the plan depends on the outer row in other ways.
fn pull_conditions(plan: &mut Plan, width: usize, exists: bool) -> Option<Vec<Expr>> {
    if !plan.reads_outer(&mut |depth, _| depth == 0) {
        return Some(Vec::new());
    }
    match &mut plan.kind {
        PlanKind::Filter { input, predicate } => {
            if input.reads_outer(&mut |depth, _| depth == 0) {
                return None;
            }
            let (outer, own): (Vec<Expr>, Vec<Expr>) =
                std::mem::replace(predicate, truth()).into_conjuncts().into_iter().partition(reads_outer_row);
            *predicate = Expr::conjunction(own).unwrap_or_else(truth);
            Some(outer.into_iter().map(|expr| joined(expr, width)).collect())
        }
        // The columns of IN's subquery must stay reachable: the conditions' columns are added behind.
        PlanKind::Project { input, exprs } if !exists => {
            if exprs.iter().any(reads_outer_row) {
                return None;
            }
            let mut conditions = pull_conditions(input, 0, exists)?;
            let kept = exprs.len();
            for condition in &mut conditions {
                let outer_kept = &mut *exprs;
                condition.replace(&mut |part| match part {
                    Expr::Column(index, ty) if *index >= PULLED => {
                        let own = Expr::Column(index - PULLED, *ty);
                        let position =
                            outer_kept.iter().position(|known| known.same(&own)).unwrap_or_else(|| {
                                outer_kept.push(own);
                                outer_kept.len() - 1
                            });
                        Some(Expr::Column(width + position, *ty))
                    }
                    _ => None,
                });
            }
            for expr in &exprs[kept..] {
                plan.columns.push(PlanColumn::new("?column?", expr.ty()));
            }
            Some(conditions)
        }
        _ => None,
    }
}

/// Marks columns of the subquery's row while a projection is still to be passed.
const PULLED: usize = 1 << 32;

/// A condition inside the subquery as one over the outer row followed by the subquery's row; with
/// `width` 0 the subquery's columns are only marked.
fn joined(mut expr: Expr, width: usize) -> Expr {
    let base = if width == 0 { PULLED } else { width };
    expr.replace(&mut |part| match part {
        Expr::Column(index, ty) => Some(Expr::Column(base + index, *ty)),
        Expr::Outer { depth: 0, index, ty } => Some(Expr::Column(*index, *ty)),
        Expr::Outer { depth, index, ty } => Some(Expr::Outer { depth: depth - 1, index: *index, ty: *ty }),
        _ => None,
    });
    expr
}

fn reads_outer_row(expr: &Expr) -> bool {
    expr.any(&mut |part| matches!(part, Expr::Outer { depth: 0, .. }))
}

fn truth() -> Expr {
    Expr::Const(Datum::Bool(true), Type::BOOL)
}
