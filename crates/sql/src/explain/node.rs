//! A plan as EXPLAIN shows it.

use super::deparse::{Names, aggregate_text, expr_text, keys_text};
use super::options::ExplainOptions;
use crate::catalog::descriptor::{IndexId, TableDescriptor};
use crate::optimize::origin::Columns;
use crate::plan::{Expr, IndexAccess, JoinKind, JoinMethod, Plan, PlanColumn, PlanKind, SetOpKind, SubPlan};
use crate::table::key_names;
use sql_types::Type;
use std::sync::Arc;

/// What an operator did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Actual {
    /// Rows it returned in all.
    pub rows: u64,
    /// How often it was started.
    pub loops: u64,
    /// Time in it and below it, in milliseconds.
    pub time_ms: f64,
    /// Rows its filter removed.
    pub removed: u64,
    /// Bytes it kept at its peak.
    pub memory: u64,
}

/// An operator.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name, as in the first line.
    pub title: String,
    /// PostgreSQL's node type.
    pub kind: &'static str,
    /// `Filter: …` and the like.
    pub details: Vec<(&'static str, String)>,
    /// Estimated cost until the first row.
    pub startup: f64,
    /// Estimated cost of all rows.
    pub cost: f64,
    /// Estimated rows.
    pub rows: f64,
    /// Estimated bytes of a row.
    pub width: usize,
    /// What it did.
    pub actual: Option<Actual>,
    /// Inputs.
    pub children: Vec<Node>,
    /// Sub-plans with their labels.
    pub subplans: Vec<(String, Node)>,
}

/// Describes a plan; `actual` says what its operators did, `partial` whether KV nodes aggregate for them.
pub fn describe(
    plan: &Plan,
    options: &ExplainOptions,
    actual: &dyn Fn(&Plan) -> Option<Actual>,
    partial: &dyn Fn(&Plan) -> bool,
) -> Node {
    Describer { options, actual, partial, subplans: 0, outer: Vec::new() }.node(plan)
}

impl Node {
    /// What is shown with the operator below it is estimated together with it.
    fn estimated_as(&mut self, plan: &Plan) {
        (self.startup, self.cost, self.rows, self.width) = (plan.startup, plan.cost, plan.rows, width(plan));
    }
}

struct Describer<'a> {
    options: &'a ExplainOptions,
    actual: &'a dyn Fn(&Plan) -> Option<Actual>,
    partial: &'a dyn Fn(&Plan) -> bool,
    subplans: usize,
    /// Columns of the rows around the plan described, outermost first.
    outer: Vec<Vec<PlanColumn>>,
}

impl Describer<'_> {
    fn node(&mut self, plan: &Plan) -> Node {
        let mut node = match &plan.kind {
            PlanKind::Project { input, .. } if !is_one_row(input) => {
                let mut node = self.node(input);
                node.estimated_as(plan);
                node
            }
            PlanKind::Filter { input, predicate } => {
                let mut node = self.node(input);
                node.details.push(("Filter", expr_text(predicate, self.names(&input.columns))));
                node.estimated_as(plan);
                node
            }
            PlanKind::Apply { input, subplans } => {
                let mut node = self.node(input);
                self.outer.push(input.columns.clone());
                for (subplan, cached) in subplans {
                    self.subplan(subplan, *cached, &mut node);
                }
                self.outer.pop();
                node.estimated_as(plan);
                node
            }
            _ => self.operator(plan),
        };
        if let Some(actual) = (self.actual)(plan) {
            node.actual = Some(Actual {
                removed: node.actual.map_or(0, |inner| inner.removed).max(actual.removed),
                ..actual
            });
        }
        if self.options.verbose && !plan.columns.is_empty() {
            let names: Vec<&str> = plan.columns.iter().map(|column| &*column.name).collect();
            node.details.retain(|(key, _)| *key != "Output");
            node.details.insert(0, ("Output", names.join(", ")));
        }
        node
    }

    fn subplan(&mut self, subplan: &SubPlan, cached: bool, node: &mut Node) {
        match subplan.plan() {
            Some(plan) => {
                self.subplans += 1;
                let number = self.subplans;
                let label = if cached { format!("InitPlan {number}") } else { format!("SubPlan {number}") };
                let inner = self.node(plan);
                node.subplans.push((label, inner));
            }
            None => {
                let call = match subplan {
                    SubPlan::NextVal(_) => "nextval".to_string(),
                    SubPlan::SetVal(..) => "setval".to_string(),
                    SubPlan::Call(function, _) => function.name.to_string(),
                    SubPlan::Routine(routine, _) => routine.name.clone(),
                    _ => return,
                };
                node.details.push(("Calls", call));
            }
        }
    }

    fn names<'a>(&'a self, columns: &'a [PlanColumn]) -> Names<'a> {
        Names { columns, outer: &self.outer }
    }

    fn operator(&mut self, plan: &Plan) -> Node {
        let mut details = Vec::new();
        let (kind, title) = title(plan, &self.outer, &mut details);
        if (self.partial)(plan) {
            details.push(("Partial Aggregate", "in KV nodes".to_string()));
        }
        let mut children = Vec::new();
        let mut subplans = Vec::new();
        match &plan.kind {
            PlanKind::Project { .. } => {}
            PlanKind::With { ctes, body } => {
                for (number, cte) in ctes {
                    let node = self.node(cte);
                    subplans.push((format!("CTE {number}"), node));
                }
                let mut node = self.node(body);
                subplans.append(&mut node.subplans);
                node.subplans = subplans;
                return node;
            }
            PlanKind::Join { method: JoinMethod::Lateral, left, right, .. } => {
                children.push(self.node(left));
                self.outer.push(left.columns.clone());
                children.push(self.node(right));
                self.outer.pop();
            }
            _ => plan.for_each_child(&mut |child, _| {
                let node = self.node(child);
                children.push(node);
            }),
        }
        Node {
            title,
            kind,
            details,
            startup: plan.startup,
            cost: plan.cost,
            rows: plan.rows,
            width: width(plan),
            actual: None,
            children,
            subplans,
        }
    }
}

fn is_one_row(plan: &Plan) -> bool {
    matches!(&plan.kind, PlanKind::Values(rows) if rows.len() == 1 && plan.columns.is_empty())
}

type Details = Vec<(&'static str, String)>;

fn title(plan: &Plan, outer: &[Vec<PlanColumn>], details: &mut Details) -> (&'static str, String) {
    let names = |columns| Names { columns, outer };
    let kind = match &plan.kind {
        PlanKind::Values(rows) if rows.len() <= 1 => "Result",
        PlanKind::Values(_) => "Values Scan",
        PlanKind::Scan { table, index, access, columns, filter, reverse, lock, .. } => {
            let scan = ScanParts {
                table,
                index: *index,
                access,
                columns,
                filter: filter.as_ref(),
                reverse: *reverse,
            };
            if lock.is_some() {
                details.push(("Lock", "row".to_string()));
            }
            return scan_title(&scan, names(&plan.columns), details);
        }
        PlanKind::SystemScan { name } => {
            let name = name.split_once('.').map_or(*name, |(_, name)| name);
            return ("Seq Scan", format!("Seq Scan on {name}"));
        }
        PlanKind::FunctionScan { functions, .. } => {
            let names: Vec<&str> = functions.iter().map(|call| call.function.name).collect();
            return ("Function Scan", format!("Function Scan on {}", names.join(", ")));
        }
        PlanKind::CteScan { cte } => return ("CTE Scan", format!("CTE Scan on cte {cte}")),
        PlanKind::Project { .. }
        | PlanKind::Filter { .. }
        | PlanKind::Fence { .. }
        | PlanKind::Apply { .. }
        | PlanKind::With { .. } => "Result",
        PlanKind::ProjectSet { .. } => "ProjectSet",
        PlanKind::Join { kind, method, left, right, on } => {
            return join_title(*kind, method, (left, right), on.as_ref(), outer, details);
        }
        PlanKind::Aggregate { input, groups, sets, aggregates } => {
            if !groups.is_empty() {
                let keys: Vec<String> =
                    groups.iter().map(|group| expr_text(group, names(&input.columns))).collect();
                details.push(("Group Key", keys.join(", ")));
            }
            if sets.len() > 1 {
                details.push(("Grouping Sets", sets.len().to_string()));
            }
            if !aggregates.is_empty() {
                let calls: Vec<String> =
                    aggregates.iter().map(|call| aggregate_text(call, names(&input.columns))).collect();
                details.push(("Aggregates", calls.join(", ")));
            }
            if groups.is_empty() { "Aggregate" } else { "HashAggregate" }
        }
        PlanKind::Window { .. } => "WindowAgg",
        PlanKind::Sort { input, keys, .. } => {
            details.push(("Sort Key", keys_text(keys, names(&input.columns))));
            "Sort"
        }
        PlanKind::Limit { .. } => "Limit",
        PlanKind::Distinct { on, .. } => {
            if on.is_empty() {
                "HashAggregate"
            } else {
                "Unique"
            }
        }
        PlanKind::SetOp { kind: SetOpKind::Union, all: true, .. } => "Append",
        PlanKind::SetOp { kind, all, .. } => {
            let name = match kind {
                SetOpKind::Union => "HashSetOp Union",
                SetOpKind::Intersect => "HashSetOp Intersect",
                SetOpKind::Except => "HashSetOp Except",
            };
            return ("SetOp", if *all { format!("{name} All") } else { name.to_string() });
        }
        PlanKind::Recursive { .. } => "Recursive Union",
        PlanKind::Insert { table, on_conflict, .. } => {
            if let Some(conflict) = on_conflict {
                let what = if conflict.update.is_some() { "UPDATE" } else { "NOTHING" };
                details.push(("Conflict Resolution", what.to_string()));
            }
            return ("ModifyTable", format!("Insert on {}", table.name));
        }
        PlanKind::Update { table, .. } => return ("ModifyTable", format!("Update on {}", table.name)),
        PlanKind::Merge { table, .. } => return ("ModifyTable", format!("Merge on {}", table.name)),
        PlanKind::Delete { table, .. } => return ("ModifyTable", format!("Delete on {}", table.name)),
    };
    (kind, kind.to_string())
}

struct ScanParts<'a> {
    table: &'a Arc<TableDescriptor>,
    index: IndexId,
    access: &'a IndexAccess,
    columns: &'a [u32],
    filter: Option<&'a Expr>,
    reverse: bool,
}

fn scan_title(scan: &ScanParts<'_>, names: Names<'_>, details: &mut Details) -> (&'static str, String) {
    let table = &scan.table.name;
    let index = scan.table.index(scan.index);
    let primary = scan.index == scan.table.primary().id;
    if let Some(filter) = scan.filter {
        details.push(("Filter", expr_text(filter, names)));
    }
    if primary && scan.access.is_full() && !scan.reverse {
        return ("Seq Scan", format!("Seq Scan on {table}"));
    }
    let name = index.map_or("?", |index| index.name.as_str());
    if let Some(index) = index {
        let condition = access_text(scan.table, index, scan.access, names);
        if !condition.is_empty() {
            details.insert(0, ("Index Cond", condition));
        }
    }
    let covered = super::super::optimize::estimate::covers(scan.table, scan.index, scan.columns);
    let kind = if covered && !primary { "Index Only Scan" } else { "Index Scan" };
    let direction = if scan.reverse { " Backward" } else { "" };
    (kind, format!("{kind}{direction} using {name} on {table}"))
}

fn access_text(
    table: &Arc<TableDescriptor>,
    index: &crate::catalog::descriptor::IndexDescriptor,
    access: &IndexAccess,
    names: Names<'_>,
) -> String {
    let text = |expr| expr_text(expr, names);
    let columns = key_names(table, index);
    let name = |position: usize| columns.get(position).map_or("?", |(name, _)| name.as_str());
    let mut parts: Vec<String> = access
        .prefix
        .iter()
        .enumerate()
        .map(|(position, value)| format!("({} = {})", name(position), text(value)))
        .collect();
    let mut next = access.prefix.len();
    if !access.in_list.is_empty() {
        let values: Vec<String> = access.in_list.iter().map(text).collect();
        parts.push(format!("({} = ANY ({}))", name(next), values.join(", ")));
        next += 1;
    }
    let descending = index.columns.get(next).is_some_and(|(_, descending)| *descending);
    let bounds = [
        (&access.lower, if descending { "<" } else { ">" }),
        (&access.upper, if descending { ">" } else { "<" }),
    ];
    for (bound, symbol) in bounds {
        if let Some(bound) = bound {
            let equal = if bound.inclusive { "=" } else { "" };
            parts.push(format!("({} {symbol}{equal} {})", name(next), text(&bound.value)));
        }
    }
    let inverted = access.inverted.iter();
    parts.extend(inverted.map(|condition| condition.strategy.text(name(0), &text(&condition.value))));
    match parts.len() {
        0 | 1 => parts.concat(),
        _ => format!("({})", parts.join(" AND ")),
    }
}

fn join_title(
    kind: JoinKind,
    method: &JoinMethod,
    (left, right): (&Plan, &Plan),
    on: Option<&Expr>,
    outer: &[Vec<PlanColumn>],
    details: &mut Details,
) -> (&'static str, String) {
    let (name, plain) = match method {
        JoinMethod::Hash(_) => ("Hash Join", "Hash"),
        JoinMethod::Merge(_) => ("Merge Join", "Merge"),
        JoinMethod::NestedLoop | JoinMethod::Lateral => ("Nested Loop", "Nested Loop"),
    };
    let names = |columns| Names { columns, outer };
    let mut columns = left.columns.clone();
    columns.extend(right.columns.iter().cloned());
    let equal = |(l, r)| {
        format!("({} = {})", expr_text(l, names(&left.columns)), expr_text(r, names(&right.columns)))
    };
    let keys: Vec<String> = method.keys().into_iter().map(equal).collect();
    if !keys.is_empty() {
        let label = if plain == "Merge" { "Merge Cond" } else { "Hash Cond" };
        details.push((label, keys.join(" AND ")));
    }
    if let Some(on) = on {
        details.push(("Join Filter", expr_text(on, names(&columns))));
    }
    let hashes_left = plain == "Hash" && kind.hashes_left(left.rows, right.rows);
    let side = match kind {
        JoinKind::Inner => return (name, name.to_string()),
        JoinKind::Left => "Left",
        JoinKind::Right => "Right",
        JoinKind::Full => "Full",
        JoinKind::Semi if hashes_left => "Right Semi",
        JoinKind::Anti if hashes_left => "Right Anti",
        JoinKind::Semi => "Semi",
        JoinKind::Anti => "Anti",
    };
    (name, format!("{plain} {side} Join"))
}

/// Estimated bytes of a row: what the statistics say of columns that come from tables, what is usual for the type of
/// others.
fn width(plan: &Plan) -> usize {
    let usual = |ty: Type| match ty.info().map_or(if ty.is_enum() { 8 } else { -1 }, |info| info.len) {
        len if len > 0 => f64::from(len),
        _ => 32.0,
    };
    let one = |(index, column): (usize, &PlanColumn)| {
        let origin = Columns::Plan(plan).origin(index);
        let known = origin.and_then(|origin| Some(origin.column(&*origin.statistics()?)?.width));
        known.filter(|width| *width > 0.0).unwrap_or_else(|| usual(column.ty.ty))
    };
    plan.columns.iter().enumerate().map(one).sum::<f64>().round() as usize
}
