//! The order of inner joins: greedily from the smallest input, following equalities.

use super::pushdown::sides;
use crate::plan::{Expr, JoinKind, JoinMethod, Plan, PlanColumn, PlanKind};

/// More inputs than this stay as written.
const MAX_INPUTS: usize = 12;

/// Reorders the inner joins of a plan.
pub fn reorder(plan: &mut Plan) {
    semi_as_inner(plan);
    if is_inner(plan) {
        let joined = std::mem::replace(plan, Plan::one_row());
        *plan = reorder_joins(joined);
        return;
    }
    plan.for_each_child_mut(&mut |child, _| reorder(child));
}

/// A semi-join of a large table with few values becomes an inner join with the distinct values, so
/// that the table can be looked up by them.
fn semi_as_inner(plan: &mut Plan) {
    let PlanKind::Join {
        kind: kind @ JoinKind::Semi,
        method: JoinMethod::NestedLoop,
        left,
        right,
        on: Some(on),
    } = &mut plan.kind
    else {
        return;
    };
    if right.rows * 10.0 > left.rows || !matches!(left.kind, PlanKind::Scan { .. }) {
        return;
    }
    let width = left.columns.len();
    let mut keys = Vec::new();
    for conjunct in conjuncts(on) {
        match value_of(conjunct, width) {
            Some(column) => keys.push(column),
            None => return,
        }
    }
    let columns: Vec<PlanColumn> = keys.iter().map(|key| right.columns[*key - width].clone()).collect();
    let exprs =
        keys.iter().zip(&columns).map(|(key, column)| Expr::Column(key - width, column.ty.ty)).collect();
    let (rows, cost) = (right.rows, right.cost);
    let input = Box::new(std::mem::replace(right.as_mut(), Plan::one_row()));
    let input =
        Box::new(Plan { kind: PlanKind::Project { input, exprs }, columns: columns.clone(), rows, cost });
    **right = Plan { kind: PlanKind::Distinct { input, on: Vec::new() }, columns, rows, cost };
    on.replace(&mut |part| match part {
        Expr::Column(index, ty) => {
            keys.iter().position(|key| key == index).map(|place| Expr::Column(width + place, *ty))
        }
        _ => None,
    });
    *kind = JoinKind::Inner;
    let columns = plan.columns.clone();
    plan.columns.extend(right.columns.iter().cloned());
    let exprs = columns.iter().enumerate().map(|(index, column)| Expr::Column(index, column.ty.ty)).collect();
    let (rows, cost) = (plan.rows, plan.cost);
    let mut join = std::mem::replace(plan, Plan::one_row());
    reorder(&mut join);
    *plan = Plan { kind: PlanKind::Project { input: Box::new(join), exprs }, columns, rows, cost };
}

fn conjuncts(on: &Expr) -> Vec<&Expr> {
    match on {
        Expr::And(parts) => parts.iter().collect(),
        other => vec![other],
    }
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

fn is_inner(plan: &Plan) -> bool {
    matches!(plan.kind, PlanKind::Join { kind: JoinKind::Inner, method: JoinMethod::NestedLoop, .. })
}

/// One input of the joins, and where its columns are in the row as written.
struct Input {
    plan: Plan,
    start: usize,
    width: usize,
}

fn reorder_joins(plan: Plan) -> Plan {
    let columns = plan.columns.clone();
    let (mut inputs, mut conjuncts) = (Vec::new(), Vec::new());
    flatten(plan, 0, &mut inputs, &mut conjuncts);
    for input in &mut inputs {
        reorder(&mut input.plan);
    }
    let order =
        if inputs.len() <= MAX_INPUTS { greedy(&inputs, &conjuncts) } else { (0..inputs.len()).collect() };
    let mut slots: Vec<Option<Input>> = inputs.into_iter().map(Some).collect();
    // Position, in the row as written, of each column of the row as joined.
    let mut layout: Vec<usize> = Vec::with_capacity(columns.len());
    let mut joined: Option<Plan> = None;
    for number in order {
        let Some(input) = slots[number].take() else { continue };
        layout.extend(input.start..input.start + input.width);
        joined = Some(match joined {
            None => input.plan,
            Some(left) => {
                let (ready, later): (Vec<Expr>, Vec<Expr>) =
                    conjuncts.into_iter().partition(|conjunct| covered(conjunct, &layout));
                conjuncts = later;
                let on =
                    Expr::conjunction(ready.into_iter().map(|conjunct| moved(conjunct, &layout)).collect());
                join(left, input.plan, on)
            }
        });
    }
    let mut plan = joined.unwrap_or_else(Plan::one_row);
    if let Some(predicate) =
        Expr::conjunction(conjuncts.into_iter().map(|conjunct| moved(conjunct, &layout)).collect())
    {
        let columns = plan.columns.clone();
        let (rows, cost) = (plan.rows, plan.cost);
        plan = Plan { kind: PlanKind::Filter { input: Box::new(plan), predicate }, columns, rows, cost };
    }
    if layout.iter().copied().eq(0..columns.len()) {
        plan.columns = columns;
        return plan;
    }
    let exprs = columns
        .iter()
        .enumerate()
        .map(|(index, column)| {
            let position = layout.iter().position(|written| *written == index).unwrap_or(index);
            Expr::Column(position, column.ty.ty)
        })
        .collect();
    let (rows, cost) = (plan.rows, plan.cost);
    Plan { kind: PlanKind::Project { input: Box::new(plan), exprs }, columns, rows, cost }
}

fn flatten(plan: Plan, start: usize, inputs: &mut Vec<Input>, conjuncts: &mut Vec<Expr>) {
    if !is_inner(&plan) {
        let width = plan.columns.len();
        inputs.push(Input { plan, start, width });
        return;
    }
    let PlanKind::Join { left, right, on, .. } = plan.kind else { return };
    let width = left.columns.len();
    flatten(*left, start, inputs, conjuncts);
    flatten(*right, start + width, inputs, conjuncts);
    for mut conjunct in on.map_or_else(Vec::new, Expr::into_conjuncts) {
        conjunct.shift_columns(start as isize);
        conjuncts.push(conjunct);
    }
}

/// Starts with the smallest input; goes on with the smallest that an equality connects, if there is
/// one.
fn greedy(inputs: &[Input], conjuncts: &[Expr]) -> Vec<usize> {
    let mut rest: Vec<usize> = (0..inputs.len()).collect();
    let mut order = Vec::with_capacity(inputs.len());
    while !rest.is_empty() {
        let connected: Vec<usize> =
            rest.iter().copied().filter(|number| is_connected(*number, &order, inputs, conjuncts)).collect();
        let candidates = if connected.is_empty() { &rest } else { &connected };
        let Some(next) =
            candidates.iter().copied().min_by(|a, b| inputs[*a].plan.rows.total_cmp(&inputs[*b].plan.rows))
        else {
            break;
        };
        rest.retain(|number| *number != next);
        order.push(next);
    }
    // Nothing is won by turning two inputs around: the method of the join minds their sizes.
    if order.len() == 2 && inputs[0].plan.rows <= inputs[1].plan.rows * 2.0 { vec![0, 1] } else { order }
}

fn is_connected(number: usize, order: &[usize], inputs: &[Input], conjuncts: &[Expr]) -> bool {
    let inside = |index: usize, number: usize| {
        let input = &inputs[number];
        (input.start..input.start + input.width).contains(&index)
    };
    conjuncts.iter().any(|conjunct| {
        let Expr::Call { function, .. } = conjunct else { return false };
        let (mut own, mut known, mut foreign) = (false, false, false);
        conjunct.columns(&mut |index| {
            if inside(index, number) {
                own = true;
            } else if order.iter().any(|number| inside(index, *number)) {
                known = true;
            } else {
                foreign = true;
            }
        });
        function.name == "=" && own && known && !foreign
    })
}

fn covered(conjunct: &Expr, layout: &[usize]) -> bool {
    let mut all = true;
    conjunct.columns(&mut |index| all &= layout.contains(&index));
    all
}

fn moved(mut conjunct: Expr, layout: &[usize]) -> Expr {
    conjunct.replace(&mut |part| match part {
        Expr::Column(index, ty) => {
            layout.iter().position(|written| written == index).map(|position| Expr::Column(position, *ty))
        }
        _ => None,
    });
    conjunct
}

fn join(left: Plan, right: Plan, on: Option<Expr>) -> Plan {
    let mut columns = left.columns.clone();
    columns.extend(right.columns.iter().cloned());
    let width = left.columns.len();
    let equal = on.as_ref().is_some_and(|on| sides(on, width) == (true, true));
    let pairs = left.rows * right.rows;
    let rows = if equal { pairs / left.rows.max(right.rows).max(1.0) } else { pairs };
    let cost = left.cost + right.cost + rows;
    let kind = PlanKind::Join {
        kind: JoinKind::Inner,
        method: JoinMethod::NestedLoop,
        left: Box::new(left),
        right: Box::new(right),
        on,
    };
    Plan { kind, columns, rows, cost }
}
