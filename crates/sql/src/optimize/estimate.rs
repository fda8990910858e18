//! Estimates: how many rows an operator returns and what that costs.
//!
//! Without statistics beyond the number of rows, conditions are taken to keep the shares PostgreSQL
//! assumes in that case. The unit of cost is one row processed by the row engine.

use crate::catalog::descriptor::{IndexId, TableDescriptor};
use crate::plan::{Expr, IndexAccess, JoinKind, JoinMethod, Plan, PlanKind};
use sql_types::Datum;

/// Rows of a table nobody has counted.
pub const UNKNOWN_ROWS: f64 = 1000.0;
/// Share of rows with a given value, for columns that are not unique.
pub const EQUALITY: f64 = 0.005;
/// Share of rows within an open range.
pub const RANGE: f64 = 1.0 / 3.0;
/// Share of rows for any other condition.
pub const OTHER: f64 = 0.25;
/// Cost of a request to the key-value store.
pub const REQUEST: f64 = 20.0;
/// Cost of one look-up of a join: the requests of many left rows travel together.
pub const PROBE: f64 = 4.0;
/// Cost of fetching one primary row from a secondary index.
pub const LOOKUP: f64 = 4.0;

/// Fills in `rows` and `cost` of every operator.
pub fn estimate(plan: &mut Plan) {
    plan.for_each_child_mut(&mut |child, _| estimate(child));
    let (rows, cost) = of(plan);
    plan.rows = rows.max(0.0);
    plan.cost = cost.max(0.0);
}

/// Rows of a table.
pub fn table_rows(table: &TableDescriptor) -> f64 {
    table.statistics.rows().unwrap_or(UNKNOWN_ROWS).max(1.0)
}

fn of(plan: &Plan) -> (f64, f64) {
    match &plan.kind {
        PlanKind::Values(rows) => (rows.len() as f64, rows.len() as f64 * 0.1),
        PlanKind::Scan { table, access, filter, columns, .. } if access.is_full() => {
            let choice = super::access::cheapest(table, columns, filter.as_ref());
            let kept = choice.read * choice.rest.iter().map(selectivity).product::<f64>();
            (kept.max(1.0), choice.cost)
        }
        PlanKind::Scan { table, index, access, filter, columns, .. } => {
            let read = access_rows(table, *index, access);
            let kept = read * filter.as_ref().map_or(1.0, selectivity);
            let covered = covers(table, *index, columns);
            let per_row = if covered { 1.0 } else { 1.0 + LOOKUP };
            (kept.max(1.0), REQUEST + read * per_row)
        }
        PlanKind::SystemScan { .. } => (200.0, 200.0),
        PlanKind::FunctionScan { .. } => (100.0, 100.0),
        PlanKind::CteScan { .. } => (100.0, 100.0),
        PlanKind::Filter { input, predicate } => {
            ((input.rows * selectivity(predicate)).max(1.0), input.cost + input.rows * 0.5)
        }
        PlanKind::Project { input, exprs } => {
            (input.rows, input.cost + input.rows * 0.1 * exprs.len() as f64)
        }
        PlanKind::ProjectSet { input, .. } => (input.rows * 10.0, input.cost + input.rows * 10.0),
        PlanKind::Apply { input, subplans } => {
            let inner: f64 = subplans
                .iter()
                .map(|(subplan, cached)| {
                    let cost = subplan.plan().map_or(REQUEST, |plan| plan.cost);
                    if *cached { cost } else { cost * input.rows }
                })
                .sum();
            (input.rows, input.cost + inner)
        }
        PlanKind::Join { kind, method, left, right, on } => join(*kind, method, left, right, on.as_ref()),
        PlanKind::Aggregate { input, groups, sets, .. } => {
            let rows = if groups.is_empty() { 1.0 } else { (input.rows * 0.1).max(1.0) * sets.len() as f64 };
            (rows, input.cost + input.rows)
        }
        PlanKind::Window { input, .. } => (input.rows, input.cost + sort_cost(input.rows)),
        PlanKind::Sort { input, .. } => (input.rows, input.cost + sort_cost(input.rows)),
        PlanKind::Limit { input, limit, .. } => {
            let wanted = match limit {
                Some(Expr::Const(Datum::Int8(count), _)) => *count as f64,
                Some(Expr::Const(..)) | None => input.rows,
                Some(_) => (input.rows * 0.1).max(1.0),
            };
            let rows = wanted.min(input.rows);
            (rows, input.cost)
        }
        PlanKind::Distinct { input, .. } => ((input.rows * 0.5).max(1.0), input.cost + input.rows),
        PlanKind::SetOp { left, right, .. } => {
            (left.rows + right.rows, left.cost + right.cost + left.rows + right.rows)
        }
        PlanKind::With { ctes, body } => {
            (body.rows, body.cost + ctes.iter().map(|(_, plan)| plan.cost).sum::<f64>())
        }
        PlanKind::Recursive { base, step, .. } => {
            (base.rows + 10.0 * step.rows, base.cost + 10.0 * step.cost)
        }
        PlanKind::Insert { input, .. } | PlanKind::Update { input, .. } | PlanKind::Delete { input, .. } => {
            (input.rows, input.cost + input.rows * LOOKUP)
        }
    }
}

fn sort_cost(rows: f64) -> f64 {
    rows * rows.max(2.0).log2() * 0.2
}

fn join(kind: JoinKind, method: &JoinMethod, left: &Plan, right: &Plan, on: Option<&Expr>) -> (f64, f64) {
    let pairs = left.rows * right.rows;
    let equal = match method {
        JoinMethod::Hash(keys) if !keys.is_empty() => pairs / left.rows.max(right.rows).max(1.0),
        _ => pairs,
    };
    let matching = equal
        * on.map_or(1.0, |on| match method {
            JoinMethod::NestedLoop => join_selectivity(on, left, right),
            _ => selectivity(on),
        });
    let rows = match kind {
        JoinKind::Inner => matching,
        JoinKind::Left => matching.max(left.rows),
        JoinKind::Right => matching.max(right.rows),
        JoinKind::Full => matching.max(left.rows).max(right.rows),
        JoinKind::Semi => (left.rows * 0.5).min(matching).max(1.0),
        JoinKind::Anti => (left.rows * 0.5).max(1.0),
    };
    let cost = match method {
        JoinMethod::NestedLoop => left.cost + right.cost + pairs * 0.5,
        JoinMethod::Lateral => left.cost + REQUEST + left.rows * (right.cost - REQUEST + PROBE).max(PROBE),
        JoinMethod::Hash(_) => left.cost + right.cost + left.rows + right.rows * 1.5,
    };
    (rows.max(1.0), cost + rows * 0.1)
}

/// Equalities between the sides keep about one match per row of the larger side.
fn join_selectivity(on: &Expr, left: &Plan, right: &Plan) -> f64 {
    let width = left.columns.len();
    let conjuncts: Vec<&Expr> = match on {
        Expr::And(parts) => parts.iter().collect(),
        other => vec![other],
    };
    conjuncts
        .into_iter()
        .map(|conjunct| match super::pushdown::sides(conjunct, width) {
            (true, true) if is_equality(conjunct) => 1.0 / left.rows.max(right.rows).max(1.0),
            _ => selectivity(conjunct),
        })
        .product()
}

fn is_equality(expr: &Expr) -> bool {
    matches!(expr, Expr::Call { function, args, .. } if function.name == "=" && args.len() == 2)
}

/// The share of rows that satisfy a condition.
pub fn selectivity(expr: &Expr) -> f64 {
    match expr {
        Expr::And(parts) => parts.iter().map(selectivity).product(),
        Expr::Or(parts) => 1.0 - parts.iter().map(|part| 1.0 - selectivity(part)).product::<f64>(),
        Expr::Not(inner) => 1.0 - selectivity(inner),
        Expr::Const(Datum::Bool(true), _) => 1.0,
        Expr::Const(..) => 0.0,
        Expr::IsNull(_, negated) => {
            if *negated {
                0.995
            } else {
                EQUALITY
            }
        }
        Expr::InList(_, list, negated) => {
            let share = (EQUALITY * list.len() as f64).min(0.5);
            if *negated { 1.0 - share } else { share }
        }
        Expr::AnyArray { any: true, .. } => EQUALITY * 10.0,
        Expr::Call { function, args, .. } if args.len() == 2 => match function.name {
            "=" => EQUALITY,
            "<>" => 1.0 - EQUALITY,
            "<" | "<=" | ">" | ">=" => RANGE,
            "~~" | "~~*" | "~" | "~*" => 0.05,
            _ => OTHER,
        },
        _ => OTHER,
    }
}

/// How many entries of an index an access reads.
pub fn access_rows(table: &TableDescriptor, index: IndexId, access: &IndexAccess) -> f64 {
    let rows = table_rows(table);
    let Some(index) = table.index(index) else { return rows };
    let fixed = access.prefix.len();
    let alternatives = match access.in_list.len() {
        0 => 1.0,
        count => {
            if access.in_list.iter().any(|expr| expr.ty().element().is_some()) {
                10.0
            } else {
                count as f64
            }
        }
    };
    let keyed = fixed + usize::from(!access.in_list.is_empty());
    if index.unique && !index.timing.deferrable && keyed >= index.columns.len() {
        return alternatives.min(rows);
    }
    let mut share = 1.0;
    for position in 0..keyed {
        // Later columns of a key are less selective than the first.
        share *= if position == 0 { EQUALITY } else { 0.1 };
    }
    if !access.in_list.is_empty() {
        share *= alternatives;
    }
    share *= match (&access.lower, &access.upper) {
        (Some(_), Some(_)) => 0.1,
        (None, None) => 1.0,
        _ => RANGE,
    };
    (rows * share.min(1.0)).max(1.0)
}

/// Whether an index holds all the columns, so that no primary row is fetched.
pub fn covers(table: &TableDescriptor, index: IndexId, columns: &[u32]) -> bool {
    if index == table.primary().id {
        return true;
    }
    let Some(index) = table.index(index) else { return true };
    columns.iter().all(|id| {
        index.columns.iter().any(|(own, _)| own == id)
            || table.primary().columns.iter().any(|(own, _)| own == id)
    })
}
