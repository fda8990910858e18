//! What the methods of joining need: how a scan is looked up for a left row, and what joins can be by.

use super::access::{Choice, best, is_unique};
use super::estimate::covers;
use super::leakproof::is_leakproof;
use super::{cost, pushdown};
use crate::plan::{Expr, Plan, PlanKind, ScanFence};
use sql_types::Type;
use sql_types::cast::common_type;
use sql_types::functions::Volatility;

/// Whether a scan may be looked up by some conditions: only those that can tell nothing of rows that policies hide pass
/// the fence around them.
pub fn may_look_up(right: &Plan, conditions: &[Expr]) -> bool {
    let PlanKind::Scan { access, fence, .. } = &right.kind else { return false };
    access.is_full() && (*fence == ScanFence::None || conditions.iter().all(is_leakproof))
}

/// How a scan is read for one left row, whose values conditions have as [`Expr::Outer`]; `None` if they choose no key.
pub fn look_up(right: &Plan, conjuncts: Vec<Expr>) -> Option<Choice> {
    let PlanKind::Scan { table, access, columns, .. } = &right.kind else { return None };
    if !access.is_full() {
        return None;
    }
    let each = best(table, columns, conjuncts, None);
    let reads_left = |expr: &Expr| expr.any(&mut |part| matches!(part, Expr::Outer { depth: 0, .. }));
    let looks_up = each.access.keys().any(reads_left);
    looks_up.then_some(each)
}

/// What such look-ups cost for so many left rows.
pub fn look_ups_cost(right: &Plan, each: &Choice, left_rows: f64) -> Option<f64> {
    let PlanKind::Scan { table, columns, .. } = &right.kind else { return None };
    let requests = if covers(table, each.index, columns) { 1.0 } else { 2.0 };
    Some(cost::look_up(left_rows, each.cost, requests, is_unique(table, each.index, &each.access)))
}

/// A condition over the joined row (or, with `width` 0, over the right row) as one inside the right
/// side of a lateral join.
pub fn inward(mut expr: Expr, width: usize) -> Expr {
    expr.replace(&mut |part| match part {
        Expr::Column(index, ty) if *index < width => Some(Expr::Outer { depth: 0, index: *index, ty: *ty }),
        Expr::Column(index, ty) => Some(Expr::Column(index - width, *ty)),
        Expr::Outer { depth, index, ty } => Some(Expr::Outer { depth: depth + 1, index: *index, ty: *ty }),
        _ => None,
    });
    expr
}

/// The equalities of a condition between an expression over the left row and one over the right row, as those, and the
/// other conditions. `width`: of the left row.
pub fn split_equalities(on: Option<Expr>, width: usize) -> (Vec<(Expr, Expr)>, Vec<Expr>) {
    let (mut keys, mut rest) = (Vec::new(), Vec::new());
    for conjunct in on.map_or_else(Vec::new, Expr::into_conjuncts) {
        match hash_key(&conjunct, width) {
            Some(key) => keys.push(key),
            None => rest.push(conjunct),
        }
    }
    (keys, rest)
}

/// An equality of an expression over the left row with one over the right row, of one type.
fn hash_key(conjunct: &Expr, width: usize) -> Option<(Expr, Expr)> {
    let (a, b) = equal_values(conjunct)?;
    let (a_left, a_right) = pushdown::sides(&a, width);
    let (b_left, b_right) = pushdown::sides(&b, width);
    let (left, mut right) = match (a_left, a_right, b_left, b_right) {
        (true, false, false, true) => (a, b),
        (false, true, true, false) => (b, a),
        _ => return None,
    };
    right.shift_columns(-(width as isize));
    Some((left, right))
}

/// What a condition says is equal, as values of one type that can be hashed and ordered.
pub fn equal_values(conjunct: &Expr) -> Option<(Expr, Expr)> {
    let Expr::Call { function, args, .. } = conjunct else { return None };
    let [a, b] = &args[..] else { return None };
    if function.name != "=" || conjunct.volatility() == Volatility::Volatile {
        return None;
    }
    let ty = match (a.ty(), b.ty()) {
        (a, b) if a == b => a,
        (a, b) => common_type(&[a, b])?,
    };
    if matches!(ty, Type::BPCHAR | Type::RECORD | Type::JSON) {
        return None;
    }
    let as_type = |expr: &Expr| {
        if expr.ty() == ty {
            expr.clone()
        } else {
            Expr::Cast { expr: Box::new(expr.clone()), to: ty.into(), explicit: false }
        }
    };
    Some((as_type(a), as_type(b)))
}
