//! Columns nobody reads are not read.
//!
//! Each operator is asked for the columns its reader needs and says where they are now; it may keep
//! more, never fewer. Sets of rows are never changed: group expressions, set-returning calls and the
//! columns of DISTINCT stay.

use crate::plan::{
    Expr, JoinKind, JoinMethod, Plan, PlanColumn, PlanKind, ProjectSetItem, SetOpKind, SubPlan,
};

/// New positions of old columns; `None` for those that are gone.
type Map = Vec<Option<usize>>;

/// Prunes a whole plan, whose own columns all stay.
pub fn prune(plan: Plan) -> Plan {
    all_columns(plan)
}

fn all_columns(plan: Plan) -> Plan {
    let needed = vec![true; plan.columns.len()];
    exact(plan, &needed)
}

/// Prunes a plan to exactly the needed columns.
fn exact(plan: Plan, needed: &[bool]) -> Plan {
    let columns: Vec<PlanColumn> = plan
        .columns
        .iter()
        .zip(needed)
        .filter(|(_, needed)| **needed)
        .map(|(column, _)| column.clone())
        .collect();
    let (mut plan, map) = narrow(plan, needed.to_vec());
    let wanted: Vec<usize> =
        needed.iter().zip(&map).filter(|(needed, _)| **needed).filter_map(|(_, place)| *place).collect();
    if wanted.len() == plan.columns.len() && wanted.iter().copied().eq(0..wanted.len()) {
        plan.columns = columns;
        return plan;
    }
    let exprs =
        wanted.iter().zip(&columns).map(|(place, column)| Expr::Column(*place, column.ty.ty)).collect();
    Plan::new(PlanKind::Project { input: Box::new(plan), exprs }, columns)
}

fn mark(needed: &mut [bool], expr: &Expr) {
    expr.columns(&mut |index| {
        if let Some(slot) = needed.get_mut(index) {
            *slot = true;
        }
    });
}

fn remap(expr: &mut Expr, map: &Map) {
    expr.replace(&mut |part| match part {
        Expr::Column(index, ty) => map.get(*index).copied().flatten().map(|place| Expr::Column(place, *ty)),
        _ => None,
    });
}

/// Remaps references from inside a plan to the row outside.
fn remap_outer(plan: &mut Plan, map: &Map) {
    plan.rewrite_outer(&mut |depth, index, ty, level| {
        let place = (depth == 0).then(|| map.get(index).copied().flatten()).flatten()?;
        Some(Expr::Outer { depth: level, index: place, ty })
    });
}

fn mark_outer(needed: &mut [bool], plan: &mut Plan) {
    plan.reads_outer(&mut |depth, index| {
        if depth == 0
            && let Some(slot) = needed.get_mut(index)
        {
            *slot = true;
        }
        false
    });
}

fn identity(count: usize) -> Map {
    (0..count).map(Some).collect()
}

/// The map that keeps the marked columns.
fn keeping(kept: &[bool]) -> Map {
    let mut next = 0;
    kept.iter()
        .map(|kept| {
            kept.then(|| {
                next += 1;
                next - 1
            })
        })
        .collect()
}

fn kept_columns(columns: Vec<PlanColumn>, map: &Map) -> Vec<PlanColumn> {
    let mut placed: Vec<(usize, PlanColumn)> = columns
        .into_iter()
        .zip(map)
        .filter_map(|(column, place)| place.map(|place| (place, column)))
        .collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, column)| column).collect()
}

fn narrow(plan: Plan, mut needed: Vec<bool>) -> (Plan, Map) {
    let Plan { kind, columns, .. } = plan;
    let rebuilt = |kind: PlanKind, map: Map| {
        let columns = kept_columns(columns.clone(), &map);
        (Plan::new(kind, columns), map)
    };
    match kind {
        PlanKind::Values(values) => {
            let map = keeping(&needed);
            let values = values
                .into_iter()
                .map(|row| {
                    row.into_iter()
                        .zip(&needed)
                        .filter(|(_, needed)| **needed)
                        .map(|(expr, _)| expr)
                        .collect()
                })
                .collect();
            rebuilt(PlanKind::Values(values), map)
        }
        PlanKind::Scan { table, index, access, columns: ids, mut filter, reverse, lock, limit, fence } => {
            if let Some(filter) = &filter {
                mark(&mut needed, filter);
            }
            let map = keeping(&needed);
            if let Some(filter) = &mut filter {
                remap(filter, &map);
            }
            let ids = ids.into_iter().zip(&needed).filter(|(_, needed)| **needed).map(|(id, _)| id).collect();
            let columns = ids;
            let kind = PlanKind::Scan { table, index, access, columns, filter, reverse, lock, limit, fence };
            rebuilt(kind, map)
        }
        kind @ (PlanKind::SystemScan { .. } | PlanKind::CteScan { .. } | PlanKind::FunctionScan { .. }) => {
            let map = identity(needed.len());
            rebuilt(kind, map)
        }
        PlanKind::Filter { input, mut predicate } => {
            mark(&mut needed, &predicate);
            let (input, map) = narrow(*input, needed);
            remap(&mut predicate, &map);
            rebuilt(PlanKind::Filter { input: Box::new(input), predicate }, map)
        }
        PlanKind::Project { input, exprs } => {
            let mut below = vec![false; input.columns.len()];
            let kept: Vec<Expr> =
                exprs.into_iter().zip(&needed).filter(|(_, needed)| **needed).map(|(expr, _)| expr).collect();
            kept.iter().for_each(|expr| mark(&mut below, expr));
            let (mut input, below) = narrow(*input, below);
            let map = keeping(&needed);
            let mut exprs = kept;
            exprs.iter_mut().for_each(|expr| remap(expr, &below));
            let same = exprs.len() == input.columns.len()
                && exprs
                    .iter()
                    .enumerate()
                    .all(|(place, expr)| matches!(expr, Expr::Column(own, _) if *own == place));
            if same {
                input.columns = kept_columns(columns, &map);
                return (input, map);
            }
            rebuilt(PlanKind::Project { input: Box::new(input), exprs }, map)
        }
        PlanKind::ProjectSet { input, exprs } => {
            let mut below = vec![false; input.columns.len()];
            let kept: Vec<bool> = exprs
                .iter()
                .zip(&needed)
                .map(|(item, needed)| *needed || matches!(item, ProjectSetItem::Set(_)))
                .collect();
            let mut exprs: Vec<ProjectSetItem> =
                exprs.into_iter().zip(&kept).filter(|(_, kept)| **kept).map(|(item, _)| item).collect();
            for item in &exprs {
                match item {
                    ProjectSetItem::Scalar(expr) => mark(&mut below, expr),
                    ProjectSetItem::Set(call) => call.args.iter().for_each(|arg| mark(&mut below, arg)),
                }
            }
            let (input, below) = narrow(*input, below);
            for item in &mut exprs {
                match item {
                    ProjectSetItem::Scalar(expr) => remap(expr, &below),
                    ProjectSetItem::Set(call) => call.args.iter_mut().for_each(|arg| remap(arg, &below)),
                }
            }
            rebuilt(PlanKind::ProjectSet { input: Box::new(input), exprs }, keeping(&kept))
        }
        PlanKind::Apply { input, subplans } => narrow_apply(*input, subplans, columns, needed),
        PlanKind::Join { kind, method, left, right, on } => {
            narrow_join(JoinParts { kind, method, left: *left, right: *right, on }, columns, needed)
        }
        PlanKind::Aggregate { input, mut groups, sets, aggregates } => {
            let count = groups.len();
            let kept: Vec<bool> = needed
                .iter()
                .enumerate()
                .map(|(index, needed)| *needed || index < count || index >= count + aggregates.len())
                .collect();
            let mut aggregates: Vec<_> = aggregates
                .into_iter()
                .zip(kept.iter().skip(count))
                .filter(|(_, kept)| **kept)
                .map(|(call, _)| call)
                .collect();
            let mut below = vec![false; input.columns.len()];
            groups.iter().for_each(|group| mark(&mut below, group));
            for call in &mut aggregates {
                call.for_each_expr_mut(&mut |expr| mark(&mut below, expr));
            }
            let (input, below) = narrow(*input, below);
            groups.iter_mut().for_each(|group| remap(group, &below));
            for call in &mut aggregates {
                call.for_each_expr_mut(&mut |expr| remap(expr, &below));
            }
            rebuilt(PlanKind::Aggregate { input: Box::new(input), groups, sets, aggregates }, keeping(&kept))
        }
        PlanKind::Window { input, calls } => {
            let width = input.columns.len();
            let mut below: Vec<bool> = needed[..width].to_vec();
            let kept: Vec<bool> = needed[width..].to_vec();
            let mut calls: Vec<_> =
                calls.into_iter().zip(&kept).filter(|(_, kept)| **kept).map(|(call, _)| call).collect();
            for call in &mut calls {
                call.for_each_expr_mut(&mut |expr| mark(&mut below, expr));
            }
            let (input, mut map) = narrow(*input, below);
            for call in &mut calls {
                call.for_each_expr_mut(&mut |expr| remap(expr, &map));
            }
            let base = input.columns.len();
            map.extend(keeping(&kept).into_iter().map(|place| place.map(|place| base + place)));
            if calls.is_empty() {
                return (input, map);
            }
            rebuilt(PlanKind::Window { input: Box::new(input), calls }, map)
        }
        PlanKind::Sort { input, mut keys, limit } => {
            keys.iter().for_each(|key| mark(&mut needed, &key.expr));
            let (input, map) = narrow(*input, needed);
            keys.iter_mut().for_each(|key| remap(&mut key.expr, &map));
            rebuilt(PlanKind::Sort { input: Box::new(input), keys, limit }, map)
        }
        PlanKind::Limit { input, limit, offset } => {
            let (input, map) = narrow(*input, needed);
            rebuilt(PlanKind::Limit { input: Box::new(input), limit, offset }, map)
        }
        PlanKind::Distinct { input, mut on } => {
            if on.is_empty() {
                let map = identity(needed.len());
                return rebuilt(PlanKind::Distinct { input: Box::new(all_columns(*input)), on }, map);
            }
            on.iter().for_each(|expr| mark(&mut needed, expr));
            let (input, map) = narrow(*input, needed);
            on.iter_mut().for_each(|expr| remap(expr, &map));
            rebuilt(PlanKind::Distinct { input: Box::new(input), on }, map)
        }
        PlanKind::SetOp { kind: SetOpKind::Union, all: true, left, right } => {
            let map = keeping(&needed);
            let left = Box::new(exact(*left, &needed));
            let right = Box::new(exact(*right, &needed));
            rebuilt(PlanKind::SetOp { kind: SetOpKind::Union, all: true, left, right }, map)
        }
        PlanKind::With { ctes, body } => {
            let ctes = ctes.into_iter().map(|(number, plan)| (number, all_columns(plan))).collect();
            let (body, map) = narrow(*body, needed);
            rebuilt(PlanKind::With { ctes, body: Box::new(body) }, map)
        }
        kind => {
            let map = identity(needed.len());
            let (mut plan, map) = rebuilt(kind, map);
            plan.for_each_child_mut(&mut |child, _| {
                let taken = std::mem::replace(child, Plan::one_row());
                *child = all_columns(taken);
            });
            (plan, map)
        }
    }
}

fn narrow_apply(
    input: Plan,
    subplans: Vec<(SubPlan, bool)>,
    columns: Vec<PlanColumn>,
    needed: Vec<bool>,
) -> (Plan, Map) {
    let width = input.columns.len();
    let mut below: Vec<bool> = needed[..width].to_vec();
    let mut kept = Vec::with_capacity(subplans.len());
    let mut remaining = Vec::with_capacity(subplans.len());
    for (position, (mut subplan, cached)) in subplans.into_iter().enumerate() {
        let pure = subplan.plan_mut().is_some_and(|plan| !plan.is_volatile());
        let keep = needed[width + position] || !pure;
        kept.push(keep);
        if !keep {
            continue;
        }
        prune_subplan(&mut subplan);
        if let Some(plan) = subplan.plan_mut() {
            mark_outer(&mut below, plan);
        }
        subplan.for_each_expr_mut(&mut |expr| mark(&mut below, expr));
        remaining.push((subplan, cached));
    }
    let (input, mut map) = narrow(input, below);
    let new_width = input.columns.len();
    for (subplan, _) in &mut remaining {
        if let Some(plan) = subplan.plan_mut() {
            remap_outer(plan, &map);
        }
        // Beyond the input row, the test of a quantified sub-plan reads the sub-plan's row.
        subplan.for_each_expr_mut(&mut |expr| {
            expr.replace(&mut |part| match part {
                Expr::Column(index, ty) if *index >= width => {
                    Some(Expr::Column(index - width + new_width, *ty))
                }
                Expr::Column(index, ty) => map[*index].map(|place| Expr::Column(place, *ty)),
                _ => None,
            });
        });
    }
    map.extend(keeping(&kept).into_iter().map(|place| place.map(|place| new_width + place)));
    if remaining.is_empty() {
        return (input, map);
    }
    let columns = kept_columns(columns, &map);
    (Plan::new(PlanKind::Apply { input: Box::new(input), subplans: remaining }, columns), map)
}

fn prune_subplan(subplan: &mut SubPlan) {
    let needs_columns = !matches!(subplan, SubPlan::Exists(_));
    if let Some(plan) = subplan.plan_mut() {
        let taken = std::mem::replace(plan, Plan::one_row());
        let needed = vec![needs_columns; taken.columns.len()];
        *plan = exact(taken, &needed);
    }
}

struct JoinParts {
    kind: JoinKind,
    method: JoinMethod,
    left: Plan,
    right: Plan,
    on: Option<Expr>,
}

fn narrow_join(parts: JoinParts, columns: Vec<PlanColumn>, needed: Vec<bool>) -> (Plan, Map) {
    let JoinParts { kind, mut method, left, mut right, mut on } = parts;
    let width = left.columns.len();
    let one_sided = matches!(kind, JoinKind::Semi | JoinKind::Anti);
    let mut both = needed;
    both.resize(width + right.columns.len(), false);
    if let Some(on) = &on {
        mark(&mut both, on);
    }
    let mut right_needed = both.split_off(width);
    let mut left_needed = both;
    for (left, right) in method.keys() {
        mark(&mut left_needed, left);
        mark(&mut right_needed, right);
    }
    if matches!(method, JoinMethod::Lateral) {
        mark_outer(&mut left_needed, &mut right);
    }
    let (left, left_map) = narrow(left, left_needed);
    let (mut right, right_map) = narrow(right, right_needed);
    if matches!(method, JoinMethod::Lateral) {
        remap_outer(&mut right, &left_map);
    }
    method.for_each_key_mut(&mut |left, right| {
        remap(left, &left_map);
        remap(right, &right_map);
    });
    let base = left.columns.len();
    let mut map = left_map;
    map.extend(right_map.into_iter().map(|place| place.map(|place| base + place)));
    if let Some(on) = &mut on {
        remap(on, &map);
    }
    if one_sided {
        map.truncate(width);
    }
    let columns = if one_sided { left.columns.clone() } else { kept_columns(columns, &map) };
    let kind = PlanKind::Join { kind, method, left: Box::new(left), right: Box::new(right), on };
    (Plan::new(kind, columns), map)
}
