//! Estimates: how many rows an operator returns, and what that costs ([`cost`]).
//!
//! Rows come from the conditions and not from how they are carried out: whichever index or join method is chosen,
//! the result is estimated to have the same rows. An operator is taken to return one row at least, so
//! that nothing above it seems to be free.

use super::origin::{Columns, Origin};
use super::selectivity::{UNKNOWN_ALTERNATIVES, between, equality, of_all, of_joined, selectivity};
use super::{access, cardinality, cost, join_method, pushdown};
use crate::analytic::may_be_said;
use crate::catalog::descriptor::{ColumnId, IndexDescriptor, IndexId, TableDescriptor};
use crate::plan::{
    Expr, IndexAccess, JoinKind, JoinMethod, Plan, PlanKind, SetInvocation, SetOpKind, SubPlan,
};
use sql_types::{Datum, encoding};
use std::sync::Arc;

/// Rows of a table that was never analyzed.
pub const UNKNOWN_ROWS: f64 = 1000.0;
/// Share of rows with a given value of a further column of a key of which nothing is known.
const FURTHER_EQUALITY: f64 = 0.1;
/// Bytes of a value of which nothing is known.
const UNKNOWN_WIDTH: f64 = 8.0;
/// Bytes of an index entry beside its values.
const ENTRY_HEADER_BYTES: f64 = 10.0;
/// Rows of a computed catalog table.
const SYSTEM_ROWS: f64 = 200.0;
/// Rows of a set-returning function.
const FUNCTION_ROWS: f64 = 100.0;
/// How often the step of a recursive query runs.
const ROUNDS: f64 = 10.0;

/// Fills in rows and costs of every operator. `chosen`: scans say how they read; before, the cheapest way is
/// assumed.
pub fn estimate(plan: &mut Plan, chosen: bool) {
    estimate_within(plan, chosen, Vec::new());
}

/// The same within a plan whose common table expressions have so many rows.
pub fn estimate_within(plan: &mut Plan, chosen: bool, ctes: Vec<(usize, f64)>) {
    Estimator { chosen, ctes }.visit(plan);
}

/// The rows of the common table expressions of an estimated plan, by number.
pub fn cte_rows(plan: &Plan) -> Vec<(usize, f64)> {
    fn collect(plan: &Plan, found: &mut Vec<(usize, f64)>) {
        match &plan.kind {
            PlanKind::With { ctes, .. } => found.extend(ctes.iter().map(|(number, cte)| (*number, cte.rows))),
            PlanKind::Recursive { cte, base, .. } => found.push((*cte, base.rows)),
            _ => {}
        }
        plan.for_each_child(&mut |child, _| collect(child, found));
    }
    let mut found = Vec::new();
    collect(plan, &mut found);
    found
}

/// Rows of a table.
pub fn table_rows(table: &TableDescriptor) -> f64 {
    table.statistics.rows().unwrap_or(UNKNOWN_ROWS).max(1.0)
}

/// Bytes of a row of a table where it is stored.
pub(super) fn row_bytes(table: &TableDescriptor) -> f64 {
    match table.statistics.get() {
        Some(known) if known.bytes > 0.0 && known.rows > 0.0 => known.bytes / known.rows,
        _ => cost::unknown_row_bytes(table.columns.len()),
    }
}

/// Bytes of an entry of an index.
fn entry_bytes(table: &Arc<TableDescriptor>, index: &IndexDescriptor) -> f64 {
    let primary = table.primary();
    if index.id == primary.id {
        return row_bytes(table);
    }
    let known = table.statistics.get();
    let width = |id: ColumnId| {
        let column = known.as_ref().and_then(|known| known.column(table, id));
        column.map_or(UNKNOWN_WIDTH, |column| column.width * (1.0 - column.null_fraction))
    };
    let values = index.columns.iter().chain(&primary.columns).map(|(id, _)| width(*id));
    ENTRY_HEADER_BYTES + values.sum::<f64>()
}

/// What is estimated of an operator.
#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    rows: f64,
    /// Cost until the first row.
    startup: f64,
    cost: f64,
    /// Of a scan, the entries of the index that it reads.
    entries: f64,
}

struct Estimator {
    chosen: bool,
    /// Rows of common table expressions, by number.
    ctes: Vec<(usize, f64)>,
}

impl Estimator {
    fn visit(&mut self, plan: &mut Plan) {
        match &mut plan.kind {
            PlanKind::With { ctes, body } => {
                for (number, cte) in ctes {
                    self.visit(cte);
                    self.ctes.push((*number, cte.rows));
                }
                self.visit(body);
            }
            PlanKind::Recursive { cte, base, step, .. } => {
                self.visit(base);
                self.ctes.push((*cte, base.rows));
                self.visit(step);
            }
            _ => plan.for_each_child_mut(&mut |child, _| self.visit(child)),
        }
        let found = self.of(plan);
        plan.rows = found.rows;
        plan.startup = found.startup;
        plan.cost = found.cost.max(found.startup);
        plan.entries = found.entries;
    }

    fn of(&self, plan: &Plan) -> Estimate {
        match &plan.kind {
            PlanKind::Values(rows) => constant(rows.len() as f64, cost::EXPRESSION),
            PlanKind::Scan { .. } if !self.chosen => undecided_scan(plan),
            PlanKind::Scan { .. } => scan(plan),
            PlanKind::SystemScan { .. } => constant(SYSTEM_ROWS, cost::ROW),
            PlanKind::FunctionScan { functions, .. } => {
                constant(functions.iter().map(function_rows).fold(1.0, f64::max), cost::ROW)
            }
            PlanKind::CteScan { cte } => {
                let known = self.ctes.iter().rev().find(|(number, _)| number == cte);
                constant(known.map_or(FUNCTION_ROWS, |(_, rows)| *rows), cost::ROW)
            }
            PlanKind::Filter { input, predicate } => {
                let rows = input.rows * selectivity(predicate, Columns::Plan(input));
                above(input, rows.max(input.rows.min(1.0)), operations(predicate) * input.rows)
            }
            PlanKind::Fence { input } => above(input, input.rows, 0.0),
            PlanKind::Project { input, exprs } => {
                let computed = exprs.iter().filter(|expr| !matches!(expr, Expr::Column(..))).count();
                above(input, input.rows, input.rows * (cost::ROW + computed as f64 * cost::EXPRESSION))
            }
            PlanKind::ProjectSet { input, .. } => {
                let rows = input.rows * ROUNDS;
                above(input, rows, rows * cost::ROW)
            }
            PlanKind::Apply { input, subplans } => {
                let once = |subplan: &SubPlan| subplan.plan().map_or(cost::REQUEST, |plan| plan.cost);
                let inner =
                    subplans.iter().map(
                        |(subplan, cached)| {
                            if *cached { once(subplan) } else { once(subplan) * input.rows }
                        },
                    );
                above(input, input.rows, inner.sum())
            }
            PlanKind::Join { kind, method, left, right, on } => {
                join(*kind, method, left, right, on.as_ref(), self.chosen)
            }
            PlanKind::Aggregate { input, groups, sets, aggregates } => {
                let of_set = |set: &Vec<usize>| {
                    let exprs = set.iter().filter_map(|at| groups.get(*at));
                    cardinality::distinct(exprs, Columns::Plan(input), input.rows)
                };
                let rows: f64 = sets.iter().map(of_set).sum();
                let work = cost::group(input.rows, rows, groups.len() + aggregates.len());
                blocking(input, rows.max(1.0), work * sets.len().max(1) as f64, rows * cost::ROW)
            }
            PlanKind::Window { input, calls } => {
                let work = input.rows * calls.len() as f64 * cost::EXPRESSION;
                blocking(input, input.rows, cost::sort(input.rows, input.rows), work)
            }
            PlanKind::Sort { input, limit, .. } => {
                let wanted = limit.as_ref().map_or(input.rows, |limit| expected_limit(limit, input.rows));
                blocking(input, input.rows, cost::sort(input.rows, wanted), input.rows * cost::ROW)
            }
            PlanKind::Limit { input, limit, offset } => {
                let skipped = offset.as_ref().map_or(0.0, |offset| expected_limit(offset, input.rows));
                let wanted = limit.as_ref().map_or(input.rows, |limit| expected_limit(limit, input.rows));
                let read = (skipped + wanted).min(input.rows);
                let share = if input.rows > 0.0 { read / input.rows } else { 1.0 };
                let cost = input.startup + (input.cost - input.startup) * share;
                Estimate {
                    rows: (read - skipped).max(input.rows.min(1.0)),
                    startup: input.startup,
                    cost,
                    entries: 0.0,
                }
            }
            PlanKind::Distinct { input, on } => {
                let all: Vec<Expr> = match on.is_empty() {
                    true => (0..).zip(&input.columns).map(|(at, c)| Expr::Column(at, c.ty.ty)).collect(),
                    false => on.clone(),
                };
                let rows = cardinality::distinct(&all, Columns::Plan(input), input.rows);
                above(input, rows, cost::group(input.rows, rows, all.len()))
            }
            PlanKind::SetOp { kind, all, left, right } => set_op(*kind, *all, left, right),
            PlanKind::With { ctes, body } => {
                let inner: f64 = ctes.iter().map(|(_, plan)| plan.cost).sum();
                Estimate { rows: body.rows, startup: body.startup, cost: body.cost + inner, entries: 0.0 }
            }
            PlanKind::Recursive { base, step, .. } => Estimate {
                rows: base.rows + ROUNDS * step.rows,
                startup: base.startup,
                cost: base.cost + ROUNDS * step.cost,
                entries: 0.0,
            },
            PlanKind::Insert { input, .. }
            | PlanKind::Update { input, .. }
            | PlanKind::Merge { input, .. }
            | PlanKind::Delete { input, .. } => above(input, input.rows, input.rows * cost::CHANGE),
        }
    }
}

fn constant(rows: f64, each: f64) -> Estimate {
    Estimate { rows, startup: 0.0, cost: rows * each, entries: 0.0 }
}

/// An operator that works as rows come.
fn above(input: &Plan, rows: f64, work: f64) -> Estimate {
    Estimate { rows, startup: input.startup, cost: input.cost + work, entries: 0.0 }
}

/// An operator that reads all its input first.
fn blocking(input: &Plan, rows: f64, before: f64, after: f64) -> Estimate {
    let startup = input.cost + before;
    Estimate { rows, startup, cost: startup + after, entries: 0.0 }
}

/// How many rows a LIMIT or OFFSET means.
pub fn expected_limit(limit: &Expr, rows: f64) -> f64 {
    match limit {
        Expr::Const(Datum::Int8(count), _) => (*count as f64).max(0.0),
        Expr::Const(..) => rows,
        // PostgreSQL's guess too.
        _ => (rows * 0.1).max(1.0),
    }
}

fn function_rows(call: &SetInvocation) -> f64 {
    let number = |expr: &Expr| match expr {
        Expr::Const(Datum::Int4(number), _) => Some(f64::from(*number)),
        Expr::Const(Datum::Int8(number), _) => Some(*number as f64),
        _ => None,
    };
    let known = match (call.function.name, &call.args[..]) {
        ("generate_series", [from, to]) => {
            number(from).zip(number(to)).map(|(from, to)| (to - from + 1.0).max(0.0))
        }
        ("unnest", [Expr::Const(Datum::Array(array), _)]) => Some(array.values.len() as f64),
        _ => None,
    };
    known.unwrap_or(FUNCTION_ROWS)
}

/// Cost of evaluating an expression once: its operators and functions.
pub fn operations(expr: &Expr) -> f64 {
    let mut count = 0;
    expr.visit(&mut |part| {
        count += usize::from(!matches!(part, Expr::Column(..) | Expr::Const(..) | Expr::Param(..)));
    });
    count as f64 * cost::EXPRESSION
}

fn undecided_scan(plan: &Plan) -> Estimate {
    let PlanKind::Scan { table, columns, filter, .. } = &plan.kind else { return Estimate::default() };
    let choice = access::cheapest(table, columns, filter.as_ref());
    Estimate { rows: choice.rows.max(1.0), startup: 0.0, cost: choice.cost, entries: choice.entries }
}

fn scan(plan: &Plan) -> Estimate {
    let PlanKind::Scan { table, index, access, columns, filter, .. } = &plan.kind else {
        return Estimate::default();
    };
    let Some(descriptor) = table.index(*index) else { return Estimate::default() };
    if let Some(class) = descriptor.inverted
        && let Some(choice) = access::by_inverted(table, descriptor, class, columns, filter.as_ref())
    {
        let rows = if access.reads_outer() { choice.rows } else { choice.rows.max(1.0) };
        return Estimate { rows, startup: 0.0, cost: choice.cost, entries: choice.entries };
    }
    let seen = Columns::Table(table, columns);
    let indexed = table_rows(table) * access::indexed_share(table, descriptor);
    let keyed = indexed * keyed_share(table, descriptor, access);
    let entries = keyed * range_share(table, descriptor, access);
    let conditions: Vec<Expr> = filter.clone().map_or_else(Vec::new, Expr::into_conjuncts);
    let mut rows = keyed * of_all(&conditions, seen);
    if !access.reads_outer() {
        rows = rows.max(1.0);
    }
    let entries = entries.max(rows);
    let cost = reading(table, descriptor, access, columns, (entries, rows), filter.as_ref());
    Estimate { rows, startup: 0.0, cost, entries }
}

/// Cost of reading so many entries of an index, of which so many rows satisfy the filter.
pub fn reading(
    table: &Arc<TableDescriptor>,
    index: &IndexDescriptor,
    access: &IndexAccess,
    columns: &[ColumnId],
    (entries, rows): (f64, f64),
    filter: Option<&Expr>,
) -> f64 {
    let bytes = entry_bytes(table, index);
    let spans = (alternatives(access) - 1.0).max(0.0);
    let covered = covers(table, index.id, columns);
    let (mut said, mut left) = (0.0, 0.0);
    for part in filter.into_iter().flat_map(Expr::conjuncts) {
        *(if may_be_said(part) { &mut said } else { &mut left }) += operations(part);
    }
    let each = entries * (cost::ROW + said + left);
    if access::is_unique(table, index.id, access) {
        let fetched = if covered { 0.0 } else { cost::fetch(entries, row_bytes(table)) };
        return cost::REQUEST + entries * (cost::KEY + bytes * cost::BYTE) + fetched + each;
    }
    let spans = spans * cost::SPAN;
    if !covered {
        return cost::scan(entries, bytes) + spans + cost::fetch(entries, row_bytes(table)) + each;
    }
    let by_row = cost::scan(entries, bytes) + each;
    // Of a table that may be much larger than is assumed of it, reading all is not made to look cheap.
    let known = table.statistics.get().is_some_and(|statistics| !statistics.columns.is_empty());
    let here = if left > 0.0 { entries * (cost::ROW + left) } else { 0.0 };
    let written = table.statistics.is_written_to();
    let as_columns = cost::column_scan(entries, rows.min(entries), columns.len(), said, written) + here;
    spans + if known { by_row.min(as_columns) } else { by_row }
}

/// How many alternatives of the column after the prefix an access reads.
fn alternatives(access: &IndexAccess) -> f64 {
    let one = |expr: &Expr| if expr.ty().element().is_some() { UNKNOWN_ALTERNATIVES } else { 1.0 };
    access.in_list.iter().map(one).sum::<f64>().max(1.0)
}

/// The share of the entries of an index that have the values an access names.
pub fn keyed_share(table: &Arc<TableDescriptor>, index: &IndexDescriptor, access: &IndexAccess) -> f64 {
    if access::is_unique(table, index.id, access) {
        return (alternatives(access) / table_rows(table)).min(1.0);
    }
    let origin = |at: usize| index.columns.get(at).map(|(column, _)| Origin { table, column: *column });
    let known = table.statistics.get().filter(|known| !known.columns.is_empty());
    let average = |at: usize| match origin(at) {
        Some(origin) if at == 0 || known.is_some() => equality(origin, None),
        _ => FURTHER_EQUALITY,
    };
    let given = |at: usize, expr: &Expr| match (origin(at), expr) {
        (Some(origin), Expr::Const(value, _)) if at == 0 || known.is_some() => equality(origin, Some(value)),
        _ => average(at),
    };
    let shares: Vec<f64> = access.prefix.iter().enumerate().map(|(at, expr)| given(at, expr)).collect();
    let mut share: f64 = shares.iter().product();
    let ids: Vec<ColumnId> = index.columns.iter().take(shares.len()).map(|(id, _)| *id).collect();
    if let Some(distinct) = known.as_ref().and_then(|known| known.group(&ids)) {
        // Values that go together are more common than if they did not.
        let apart: f64 = (0..shares.len()).map(average).product();
        let together = (1.0 / distinct.max(1.0) / apart.max(f64::MIN_POSITIVE)).max(1.0);
        share = shares.iter().copied().fold(share * together, f64::min);
    }
    if !access.in_list.is_empty() {
        let at = access.prefix.len();
        let of = |expr: &Expr| match expr.ty().element() {
            Some(_) => UNKNOWN_ALTERNATIVES * average(at),
            None => given(at, expr),
        };
        share *= access.in_list.iter().map(of).sum::<f64>();
    }
    share.min(1.0)
}

/// The share of the entries with those values that lie between the bounds of an access.
pub fn range_share(table: &Arc<TableDescriptor>, index: &IndexDescriptor, access: &IndexAccess) -> f64 {
    let at = access.prefix.len() + usize::from(!access.in_list.is_empty());
    let Some((column, descending)) = index.columns.get(at) else { return 1.0 };
    let bound = |bound: &Option<crate::plan::ScanBound>| {
        bound.as_ref().map(|bound| (bound.value.clone(), bound.inclusive))
    };
    let (mut low, mut high) = (bound(&access.lower), bound(&access.upper));
    if *descending {
        std::mem::swap(&mut low, &mut high);
    }
    if low.is_none() && high.is_none() {
        return 1.0;
    }
    between(Origin { table, column: *column }, low, high)
}

/// Whether an index holds all the columns, so that no primary row is fetched.
pub fn covers(table: &TableDescriptor, index: IndexId, columns: &[ColumnId]) -> bool {
    if index == table.primary().id {
        return true;
    }
    let Some(index) = table.index(index) else { return true };
    if index.inverted.is_some() {
        return false;
    }
    columns.iter().all(|id| {
        let exact = table.column(*id).is_some_and(|column| encoding::key_is_exact(column.ty.ty));
        exact && index.columns.iter().chain(&table.primary().columns).any(|(own, _)| own == id)
    })
}

fn join(
    kind: JoinKind,
    method: &JoinMethod,
    left: &Plan,
    right: &Plan,
    on: Option<&Expr>,
    chosen: bool,
) -> Estimate {
    let pair = Columns::Pair(left, right);
    let width = left.columns.len();
    let of_left = |expr: &Expr| pushdown::sides(expr, width) == (true, false);
    let of_right = |expr: &Expr| pushdown::sides(expr, width) == (false, true);
    let share = |conjuncts: &[Expr]| match kind {
        JoinKind::Inner | JoinKind::Semi => of_joined(conjuncts, pair, &[&of_left, &of_right]),
        _ => of_all(conjuncts, pair),
    };
    let conjuncts = || on.map_or_else(Vec::new, |on| on.clone().into_conjuncts());
    let (keys, rest): (Vec<(Expr, Expr)>, f64) = match method {
        JoinMethod::Hash(_) | JoinMethod::Merge(_) => {
            let keys = method.keys().into_iter().map(|(left, right)| (left.clone(), right.clone()));
            (keys.collect(), share(&conjuncts()))
        }
        JoinMethod::NestedLoop => {
            let (keys, rest) = join_method::split_equalities(on.cloned(), width);
            (keys, share(&rest))
        }
        JoinMethod::Lateral => (Vec::new(), share(&conjuncts())),
    };
    let equal = match method {
        JoinMethod::Lateral => found_share(left, right),
        _ => cardinality::equal_share(&keys, left, right),
    };
    let matching = left.rows * right.rows * equal * rest;
    let matched = || match (method, keys.is_empty()) {
        (JoinMethod::Lateral, _) => (right.rows * rest).min(1.0) * found_share(left, right),
        (_, true) => (right.rows * rest).min(1.0) * 0.5,
        _ => {
            let matched = cardinality::matched_share(&keys, left, right);
            matched * cardinality::some_satisfies(rest, right.rows * equal / matched)
        }
    };
    let rows = match kind {
        JoinKind::Inner => matching,
        JoinKind::Left => matching.max(left.rows),
        JoinKind::Right => matching.max(right.rows),
        JoinKind::Full => matching.max(left.rows).max(right.rows),
        JoinKind::Semi => left.rows * matched(),
        JoinKind::Anti => left.rows * (1.0 - matched()),
    };
    let rows = rows.max(left.rows.min(1.0));
    let (probe, build) = if kind.hashes_left(left.rows, right.rows) { (right, left) } else { (left, right) };
    let by_hash = || {
        let found = kind.found(left.rows, right.rows, left.rows * right.rows * equal);
        left.cost + right.cost + cost::hash_join(probe.rows, found, build.rows, rows)
    };
    let cost = match method {
        JoinMethod::Lateral => left.cost + look_up_cost(left.rows, right) + rows * cost::ROW,
        JoinMethod::Merge(_) => left.cost + right.cost + cost::merge_join(left.rows, right.rows, rows),
        JoinMethod::Hash(_) => by_hash(),
        JoinMethod::NestedLoop if !chosen && !keys.is_empty() => by_hash(),
        JoinMethod::NestedLoop => left.cost + right.cost + cost::nested_loop(left.rows, right.rows, rows),
    };
    let startup = match method {
        JoinMethod::Lateral => left.startup,
        JoinMethod::Merge(_) => left.startup + right.startup,
        _ => probe.startup + build.cost + build.rows * cost::HASH_BUILD,
    };
    Estimate { rows, startup, cost, entries: 0.0 }
}

/// The share of left rows whose values an index look-up finds at all: those of the side with more of them are not all
/// among those of the other.
fn found_share(left: &Plan, right: &Plan) -> f64 {
    let PlanKind::Scan { table, index, access, .. } = &right.kind else { return 1.0 };
    let Some(index) = table.index(*index) else { return 1.0 };
    let share = |(expr, (column, _)): (&Expr, &(ColumnId, bool))| match expr {
        Expr::Outer { depth: 0, index, .. } => {
            let wanted = Columns::Plan(left).origin(*index)?.distinct();
            Some(Origin { table, column: *column }.distinct() / wanted)
        }
        _ => None,
    };
    access.prefix.iter().zip(&index.columns).filter_map(share).fold(1.0, f64::min)
}

/// Cost of running the right side of a join for each left row: at once where it is a look-up by an index.
pub fn look_up_cost(left_rows: f64, right: &Plan) -> f64 {
    match &right.kind {
        PlanKind::Scan { table, index, access, columns, .. } => {
            let requests = if covers(table, *index, columns) { 1.0 } else { 2.0 };
            let by_key = access::is_unique(table, *index, access);
            cost::look_up(left_rows, right.cost, requests, by_key)
        }
        _ => left_rows * right.cost,
    }
}

fn set_op(kind: SetOpKind, all: bool, left: &Plan, right: &Plan) -> Estimate {
    let rows = match kind {
        SetOpKind::Union => left.rows + right.rows,
        SetOpKind::Intersect => left.rows.min(right.rows),
        SetOpKind::Except => left.rows,
    };
    let inputs = left.cost + right.cost;
    let both = left.rows + right.rows;
    let work = if kind == SetOpKind::Union && all { both * cost::ROW } else { cost::group(both, both, 1) };
    Estimate { rows, startup: left.startup, cost: inputs + work, entries: 0.0 }
}
