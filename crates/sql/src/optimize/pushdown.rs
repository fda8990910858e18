//! Moves conditions towards the tables.
//!
//! A condition never moves below what it depends on, below a limit, or to a side of an outer join
//! where it would change which rows are padded. Volatile conditions do not move. Those that could tell of a row stay above
//! the fence of a table with policies ([`crate::plan::policy`]), which is taken away here.

use super::leakproof::is_leakproof;
use crate::plan::{Expr, JoinKind, JoinMethod, Plan, PlanKind, ProjectSetItem, SetOpKind};
use sql_types::functions::Volatility;

/// Moves conditions down in a whole plan.
pub fn push_down(plan: Plan) -> Plan {
    push(plan, Vec::new())
}

/// Pushes conjuncts over the plan's columns into the plan.
fn push(mut plan: Plan, mut conjuncts: Vec<Expr>) -> Plan {
    let columns = std::mem::take(&mut plan.columns);
    match plan.kind {
        PlanKind::Filter { input, predicate } => {
            let parts: Vec<Expr> =
                predicate.into_conjuncts().into_iter().filter(|part| !is_true(part)).collect();
            let (pinned, free): (Vec<Expr>, Vec<Expr>) = parts.into_iter().partition(is_volatile);
            conjuncts.extend(free);
            let mut below = push(*input, conjuncts);
            below.columns = columns;
            filtered(below, pinned)
        }
        PlanKind::Project { input, exprs } => {
            let (movable, kept) = split(conjuncts, |conjunct| {
                let mut fits = true;
                conjunct
                    .columns(&mut |index| fits &= exprs.get(index).is_some_and(|expr| !is_volatile(expr)));
                fits
            });
            let movable = movable.into_iter().map(|conjunct| substitute(conjunct, &exprs)).collect();
            let input = Box::new(push(*input, movable));
            filtered(Plan { kind: PlanKind::Project { input, exprs }, columns, ..plan }, kept)
        }
        PlanKind::ProjectSet { input, exprs } => {
            let scalars: Vec<Option<Expr>> = exprs
                .iter()
                .map(|item| match item {
                    ProjectSetItem::Scalar(expr) if !is_volatile(expr) => Some(expr.clone()),
                    _ => None,
                })
                .collect();
            let (movable, kept) = split(conjuncts, |conjunct| {
                let mut fits = true;
                conjunct.columns(&mut |index| fits &= scalars.get(index).is_some_and(Option::is_some));
                fits
            });
            let known: Vec<Expr> = scalars
                .into_iter()
                .enumerate()
                .map(|(index, expr)| expr.unwrap_or(Expr::Column(index, sql_types::Type::BOOL)))
                .collect();
            let movable = movable.into_iter().map(|conjunct| substitute(conjunct, &known)).collect();
            let input = Box::new(push(*input, movable));
            filtered(Plan { kind: PlanKind::ProjectSet { input, exprs }, columns, ..plan }, kept)
        }
        PlanKind::Apply { input, mut subplans } => {
            let width = input.columns.len();
            let (movable, kept) = split(conjuncts, |conjunct| below(conjunct, width));
            let input = Box::new(push(*input, movable));
            for (subplan, _) in &mut subplans {
                if let Some(inner) = subplan.plan_mut() {
                    let taken = std::mem::replace(inner, Plan::one_row());
                    *inner = push(taken, Vec::new());
                }
            }
            filtered(Plan { kind: PlanKind::Apply { input, subplans }, columns, ..plan }, kept)
        }
        PlanKind::Window { input, calls } => {
            let (movable, kept) = split(conjuncts, |conjunct| {
                let mut fits = true;
                conjunct.columns(&mut |index| {
                    fits &= calls.iter().all(|call| {
                        call.partition.iter().any(|key| matches!(key, Expr::Column(own, _) if *own == index))
                    });
                });
                fits
            });
            let input = Box::new(push(*input, movable));
            filtered(Plan { kind: PlanKind::Window { input, calls }, columns, ..plan }, kept)
        }
        PlanKind::Aggregate { input, groups, sets, aggregates } => {
            let single = sets.len() == 1 && !groups.is_empty();
            let (movable, kept) = split(conjuncts, |conjunct| {
                let mut fits = single && !conjunct.is_column_free();
                conjunct.columns(&mut |index| fits &= index < groups.len());
                fits
            });
            let movable = movable.into_iter().map(|conjunct| substitute(conjunct, &groups)).collect();
            let input = Box::new(push(*input, movable));
            filtered(
                Plan { kind: PlanKind::Aggregate { input, groups, sets, aggregates }, columns, ..plan },
                kept,
            )
        }
        PlanKind::Sort { input, keys, limit: None } => {
            let input = Box::new(push(*input, conjuncts));
            Plan { kind: PlanKind::Sort { input, keys, limit: None }, columns, ..plan }
        }
        PlanKind::Distinct { input, on } if on.is_empty() => {
            let input = Box::new(push(*input, conjuncts));
            Plan { kind: PlanKind::Distinct { input, on }, columns, ..plan }
        }
        PlanKind::SetOp { kind, all, left, right } => {
            // A condition on EXCEPT holds for all its rows if it holds for the left ones.
            let right_conjuncts = if kind == SetOpKind::Except { Vec::new() } else { conjuncts.clone() };
            let left = Box::new(push(*left, conjuncts));
            let right = Box::new(push(*right, right_conjuncts));
            Plan { kind: PlanKind::SetOp { kind, all, left, right }, columns, ..plan }
        }
        PlanKind::With { ctes, body } => {
            let ctes = ctes.into_iter().map(|(number, plan)| (number, push(plan, Vec::new()))).collect();
            let body = Box::new(push(*body, conjuncts));
            Plan { kind: PlanKind::With { ctes, body }, columns, ..plan }
        }
        PlanKind::Join { kind, method, left, right, on } => {
            push_join(kind, method, *left, *right, on, conjuncts, columns)
        }
        PlanKind::Fence { input } => {
            let (movable, kept) = split(conjuncts, is_leakproof);
            let mut below = push(*input, movable);
            below.columns = columns;
            filtered(below, kept)
        }
        PlanKind::Scan { table, index, access, columns: ids, filter, reverse, lock, limit, fence } => {
            let mut all: Vec<Expr> = filter.map_or_else(Vec::new, Expr::into_conjuncts);
            all.extend(conjuncts);
            let filter = Expr::conjunction(all);
            let kind =
                PlanKind::Scan { table, index, access, columns: ids, filter, reverse, lock, limit, fence };
            Plan { kind, columns, ..plan }
        }
        kind => {
            let mut plan = Plan { kind, columns, ..plan };
            plan.for_each_child_mut(&mut |child, _| {
                let taken = std::mem::replace(child, Plan::one_row());
                *child = push(taken, Vec::new());
            });
            filtered(plan, conjuncts)
        }
    }
}

fn push_join(
    mut kind: JoinKind,
    method: JoinMethod,
    left: Plan,
    right: Plan,
    on: Option<Expr>,
    conjuncts: Vec<Expr>,
    columns: Vec<crate::plan::PlanColumn>,
) -> Plan {
    let width = left.columns.len();
    if kind == JoinKind::Left && conjuncts.iter().any(|conjunct| rejects_nulls(conjunct, width)) {
        kind = JoinKind::Inner;
    }
    let on: Vec<Expr> = on.map_or_else(Vec::new, Expr::into_conjuncts);
    let (mut to_left, mut to_right, mut kept_on, mut above) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for conjunct in conjuncts {
        let (reads_left, reads_right) = sides(&conjunct, width);
        match kind {
            JoinKind::Inner if !reads_right => to_left.push(conjunct),
            JoinKind::Inner if !reads_left => to_right.push(conjunct),
            JoinKind::Inner => kept_on.push(conjunct),
            JoinKind::Left | JoinKind::Semi | JoinKind::Anti if !reads_right => to_left.push(conjunct),
            JoinKind::Right if !reads_left => to_right.push(conjunct),
            _ => above.push(conjunct),
        }
    }
    for conjunct in on {
        let (reads_left, reads_right) = sides(&conjunct, width);
        let movable = !is_volatile(&conjunct);
        match kind {
            JoinKind::Inner | JoinKind::Semi if movable && !reads_right => to_left.push(conjunct),
            JoinKind::Inner | JoinKind::Semi | JoinKind::Left | JoinKind::Anti if movable && !reads_left => {
                to_right.push(conjunct);
            }
            JoinKind::Right if movable && !reads_right => to_left.push(conjunct),
            _ => kept_on.push(conjunct),
        }
    }
    let lateral = matches!(method, JoinMethod::Lateral);
    if matches!(kind, JoinKind::Inner | JoinKind::Semi) {
        // What each alternative asks of one side holds for that side alone already.
        for conjunct in &kept_on {
            to_left.extend(asked_of(conjunct, |expr| sides(expr, width) == (true, false)));
            to_right.extend(asked_of(conjunct, |expr| sides(expr, width) == (false, true)));
        }
    }
    for conjunct in &mut to_right {
        if lateral {
            deepen(conjunct);
        }
        conjunct.shift_columns(-(width as isize));
    }
    let left = Box::new(push(left, to_left));
    let right = Box::new(push(right, to_right));
    let on = Expr::conjunction(kept_on);
    filtered(Plan::new(PlanKind::Join { kind, method, left, right, on }, columns), above)
}

/// What a condition of alternatives implies of one side, if each asks something of it: one of what they ask.
pub(super) fn asked_of(expr: &Expr, of_side: impl Fn(&Expr) -> bool) -> Option<Expr> {
    let Expr::Or(alternatives) = expr else { return None };
    let asked = |alternative: &Expr| {
        let parts = alternative.conjuncts().into_iter().filter(|part| of_side(part) && !is_volatile(part));
        Expr::conjunction(parts.cloned().collect())
    };
    alternatives.iter().map(asked).collect::<Option<Vec<_>>>().map(Expr::Or)
}

/// Moves an expression one row inwards.
fn deepen(expr: &mut Expr) {
    expr.replace(&mut |part| match part {
        Expr::Outer { depth, index, ty } => Some(Expr::Outer { depth: depth + 1, index: *index, ty: *ty }),
        _ => None,
    });
}

/// Whether a condition over a joined row reads columns of the left and of the right side.
pub(super) fn sides(expr: &Expr, width: usize) -> (bool, bool) {
    let (mut left, mut right) = (false, false);
    expr.columns(&mut |index| {
        if index < width {
            left = true;
        } else {
            right = true;
        }
    });
    (left, right)
}

/// Whether a condition is never true for a row whose columns from `width` on are all NULL.
fn rejects_nulls(expr: &Expr, width: usize) -> bool {
    match expr {
        Expr::Call { function, args, .. } => {
            function.strict && args.iter().any(|arg| null_if_padded(arg, width))
        }
        Expr::IsNull(inner, true) => null_if_padded(inner, width),
        Expr::InList(value, _, false) => null_if_padded(value, width),
        Expr::AnyArray { expr, any: true, function, .. } => function.strict && null_if_padded(expr, width),
        Expr::And(parts) => parts.iter().any(|part| rejects_nulls(part, width)),
        Expr::Or(parts) => parts.iter().all(|part| rejects_nulls(part, width)),
        Expr::Column(index, _) => *index >= width,
        _ => false,
    }
}

/// Whether an expression is NULL if the columns from `width` on are.
fn null_if_padded(expr: &Expr, width: usize) -> bool {
    match expr {
        Expr::Column(index, _) => *index >= width,
        Expr::Cast { expr, .. } => null_if_padded(expr, width),
        Expr::Call { function, args, .. } => {
            function.strict && args.iter().any(|arg| null_if_padded(arg, width))
        }
        _ => false,
    }
}

fn split(conjuncts: Vec<Expr>, fits: impl Fn(&Expr) -> bool) -> (Vec<Expr>, Vec<Expr>) {
    conjuncts.into_iter().partition(|conjunct| fits(conjunct))
}

fn below(expr: &Expr, width: usize) -> bool {
    let mut fits = true;
    expr.columns(&mut |index| fits &= index < width);
    fits
}

fn is_true(expr: &Expr) -> bool {
    matches!(expr, Expr::Const(sql_types::Datum::Bool(true), _))
}

fn is_volatile(expr: &Expr) -> bool {
    expr.volatility() == Volatility::Volatile
}

/// Replaces columns by what they are computed from.
fn substitute(mut expr: Expr, exprs: &[Expr]) -> Expr {
    expr.replace(&mut |part| match part {
        Expr::Column(index, _) => exprs.get(*index).cloned(),
        _ => None,
    });
    expr
}

fn filtered(plan: Plan, conjuncts: Vec<Expr>) -> Plan {
    match Expr::conjunction(conjuncts) {
        None => plan,
        Some(predicate) => {
            let columns = plan.columns.clone();
            Plan::new(PlanKind::Filter { input: Box::new(plan), predicate }, columns)
        }
    }
}
