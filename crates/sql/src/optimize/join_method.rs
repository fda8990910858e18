//! How a join is computed: by look-ups in an index of the right side, by a hash table of one side, or by a nested loop.

use super::access::{Choice, Wanted, best, choose_ordered, is_unique};
use super::estimate::covers;
use super::leakproof::is_leakproof;
use super::{cost, pushdown};
use crate::plan::{Expr, IndexAccess, JoinKind, JoinMethod, Plan, PlanKind, ScanFence};
use sql_types::Type;
use sql_types::cast::common_type;
use sql_types::functions::Volatility;

/// Chooses the method of a join, and how its inputs are read. Returns whether the rows come in the order wanted.
pub fn choose(plan: &mut Plan, wanted: Option<Wanted>) -> bool {
    let PlanKind::Join { kind, method, left, right, on } = &mut plan.kind else { return false };
    let width = left.columns.len();
    if matches!(method, JoinMethod::NestedLoop)
        && matches!(kind, JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti)
        && let Some(condition) = on.as_ref()
        && let Some(looked_up) = cheaper_look_up(*kind, left, right, condition)
    {
        **right = looked_up;
        *on = None;
        *method = JoinMethod::Lateral;
    }
    let ordered = match (&*method, wanted) {
        (JoinMethod::Lateral, Some(wanted)) if reads_left(&wanted, width) => {
            choose_ordered(left, Some(wanted), None)
        }
        _ => {
            choose_ordered(left, None, None);
            false
        }
    };
    choose_ordered(right, None, None);
    if matches!(method, JoinMethod::NestedLoop) {
        use_hash(plan);
    }
    ordered
}

/// Whether an order is one of the left rows of a join.
fn reads_left(wanted: &Wanted, width: usize) -> bool {
    let mut left = true;
    for (expr, ..) in &wanted.keys {
        expr.columns(&mut |index| left &= index < width);
    }
    left
}

/// The right side as an index look-up for each left row, if that is cheaper than reading it once.
fn cheaper_look_up(kind: JoinKind, left: &Plan, right: &Plan, on: &Expr) -> Option<Plan> {
    let PlanKind::Scan { table, index, columns, filter, reverse, lock, fence, .. } = &right.kind else {
        return None;
    };
    if *fence != ScanFence::None && !is_leakproof(on) {
        return None;
    }
    let width = left.columns.len();
    let own = filter.clone().map_or_else(Vec::new, Expr::into_conjuncts);
    let once = best(table, columns, own.clone(), None);
    let mut conjuncts: Vec<Expr> = own.into_iter().map(|conjunct| inward(conjunct, 0)).collect();
    conjuncts.extend(on.clone().into_conjuncts().into_iter().map(|conjunct| inward(conjunct, width)));
    let each = look_up(right, conjuncts.clone())?;
    let (keys, _) = split_equalities(Some(on.clone()), width);
    let (left_rows, right_rows) = (left.rows, once.rows.max(1.0));
    let joined = match keys.is_empty() {
        true => cost::nested_loop(left_rows, right_rows, 0.0),
        false if turned(kind).is_some() => {
            cost::hash_join(left_rows, right_rows, 0.0).min(cost::hash_join(right_rows, left_rows, 0.0))
        }
        false => cost::hash_join(left_rows, right_rows, 0.0),
    };
    if look_ups_cost(right, &each, left_rows)? >= once.cost + joined {
        return None;
    }
    let scan = PlanKind::Scan {
        table: table.clone(),
        index: *index,
        access: IndexAccess::default(),
        columns: columns.clone(),
        filter: Expr::conjunction(conjuncts),
        reverse: *reverse,
        lock: *lock,
        limit: None,
        fence: *fence,
    };
    let mut plan = Plan::new(scan, right.columns.clone());
    (plan.rows, plan.cost) = (each.rows, each.cost);
    Some(plan)
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

/// The kind of a join whose sides are turned; `None` if that is none of ours.
fn turned(kind: JoinKind) -> Option<JoinKind> {
    match kind {
        JoinKind::Inner | JoinKind::Full => Some(kind),
        JoinKind::Left => Some(JoinKind::Right),
        JoinKind::Right => Some(JoinKind::Left),
        JoinKind::Semi | JoinKind::Anti => None,
    }
}

/// Equalities between the sides become hash keys. That side is kept for which it costs less.
fn use_hash(plan: &mut Plan) {
    let PlanKind::Join { kind, method, left, right, on } = &mut plan.kind else { return };
    let width = left.columns.len();
    let (keys, rest) = split_equalities(on.take(), width);
    *on = Expr::conjunction(rest);
    if keys.is_empty() {
        return;
    }
    let cost_as_is = cost::hash_join(left.rows, right.rows, 0.0);
    let cost_turned = cost::hash_join(right.rows, left.rows, 0.0);
    match turned(*kind) {
        Some(turned) if cost_turned * TURNING < cost_as_is => *kind = turned,
        _ => {
            *method = JoinMethod::Hash(keys);
            return;
        }
    }
    let right_width = right.columns.len();
    if let Some(on) = on {
        on.replace(&mut |part| match part {
            Expr::Column(index, ty) if *index < width => Some(Expr::Column(index + right_width, *ty)),
            Expr::Column(index, ty) => Some(Expr::Column(index - width, *ty)),
            _ => None,
        });
    }
    std::mem::swap(left, right);
    *method = JoinMethod::Hash(keys.into_iter().map(|(left, right)| (right, left)).collect());
    let columns = std::mem::take(&mut plan.columns);
    plan.columns = columns[width..].iter().chain(&columns[..width]).cloned().collect();
    let exprs = columns
        .iter()
        .enumerate()
        .map(|(index, column)| {
            let position = if index < width { index + right_width } else { index - width };
            Expr::Column(position, column.ty.ty)
        })
        .collect();
    let join = std::mem::replace(plan, Plan::one_row());
    *plan = join.projected(exprs, columns);
}

/// How much cheaper a join must be with its sides turned to be worth the projection that puts the columns in order.
const TURNING: f64 = 1.2;

/// An equality of an expression over the left row with one over the right row, of one type.
fn hash_key(conjunct: &Expr, width: usize) -> Option<(Expr, Expr)> {
    let Expr::Call { function, args, .. } = conjunct else { return None };
    let [a, b] = &args[..] else { return None };
    if function.name != "=" || conjunct.volatility() == Volatility::Volatile {
        return None;
    }
    let (a_left, a_right) = pushdown::sides(a, width);
    let (b_left, b_right) = pushdown::sides(b, width);
    let (left, right) = match (a_left, a_right, b_left, b_right) {
        (true, false, false, true) => (a.clone(), b.clone()),
        (false, true, true, false) => (b.clone(), a.clone()),
        _ => return None,
    };
    let ty = match (left.ty(), right.ty()) {
        (a, b) if a == b => a,
        (a, b) => common_type(&[a, b])?,
    };
    if matches!(ty, Type::BPCHAR | Type::RECORD | Type::JSON) {
        return None;
    }
    let as_type = |expr: Expr| {
        if expr.ty() == ty {
            expr
        } else {
            Expr::Cast { expr: Box::new(expr), to: ty.into(), explicit: false }
        }
    };
    let mut right = as_type(right);
    right.shift_columns(-(width as isize));
    Some((as_type(left), right))
}
