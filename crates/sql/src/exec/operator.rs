//! The operator interface, and which operator runs which plan node.

use super::scope::Scope;
use super::sought::Sought;
use super::{COPY_INPUT, ExecContext, Reservation};
use super::{
    aggregate, apply, distinct, hash_join, join, merge_join, project, recursive, relation, scan, setop, sort,
    source, window,
};
use crate::dml;
use crate::plan::{JoinMethod, Plan, PlanKind, SetOpKind};
use async_trait::async_trait;
use sql_types::{Row, SqlResult};
use std::time::Instant;

/// Some rows; never empty when an operator returns it.
pub type Batch = Vec<Row>;

/// Rows an operator returns at once at most, roughly.
pub(crate) const BATCH_ROWS: usize = 1024;

/// A running plan node.
#[async_trait]
pub(crate) trait Operator: Send {
    /// The next rows, `None` when there are no more. About `want` rows will be used: an operator that
    /// can cheaply return fewer than a full batch should.
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>>;

    /// Rows whose value in a column is none of these will not be used: they may be left out. Told before rows are asked for.
    fn narrow(&mut self, column: usize, sought: &Sought) {
        let _ = (column, sought);
    }

    /// Rows changed by INSERT, UPDATE or DELETE so far.
    fn affected(&self) -> Option<u64> {
        None
    }
}

/// A running plan.
pub(crate) type BoxOperator<'p> = Box<dyn Operator + 'p>;

/// The operator for a plan.
pub(crate) fn build<'p>(plan: &'p Plan, scope: &Scope<'p>) -> SqlResult<BoxOperator<'p>> {
    let operator = match crate::analytic::wrap(plan, scope) {
        Some(operator) => operator,
        None => build_plain(plan, scope)?,
    };
    if !scope.instrument {
        return Ok(operator);
    }
    Ok(Box::new(Instrumented { plan, operator, started: false }))
}

/// The row engine's operator for a plan.
pub(crate) fn build_plain<'p>(plan: &'p Plan, scope: &Scope<'p>) -> SqlResult<BoxOperator<'p>> {
    Ok(match &plan.kind {
        PlanKind::Values(rows) => Box::new(source::Values::new(rows, scope)),
        PlanKind::Scan { .. } => Box::new(scan::Scan::new(plan, scope)?),
        PlanKind::SystemScan { name } => Box::new(source::SystemScan::new(name)),
        PlanKind::FunctionScan { functions, ordinality } => {
            Box::new(source::FunctionScan::new(functions, *ordinality, scope))
        }
        PlanKind::CteScan { cte: COPY_INPUT } => Box::new(source::GivenRows::new(scope)),
        PlanKind::CteScan { cte } => Box::new(source::CteScan::new(*cte, scope)?),
        PlanKind::Fence { input } => return build_plain(input, scope),
        PlanKind::Filter { input, predicate } => {
            Box::new(project::Filter::new(build(input, scope)?, predicate, scope))
        }
        PlanKind::Project { input, exprs } => {
            Box::new(project::Project::new(build(input, scope)?, exprs, scope))
        }
        PlanKind::ProjectSet { input, exprs } => {
            Box::new(project::ProjectSet::new(build(input, scope)?, exprs, scope))
        }
        PlanKind::Apply { input, subplans } => {
            Box::new(apply::Apply::new(build(input, scope)?, subplans, scope))
        }
        PlanKind::Join { kind, method, left, right, on } => match method {
            JoinMethod::NestedLoop | JoinMethod::Lateral => {
                let lateral = matches!(method, JoinMethod::Lateral);
                Box::new(join::NestedLoop::new(*kind, lateral, left, right, on.as_ref(), scope)?)
            }
            JoinMethod::Hash(keys) => {
                Box::new(hash_join::HashJoin::new(*kind, keys, left, right, on.as_ref(), scope)?)
            }
            JoinMethod::Merge(keys) => {
                Box::new(merge_join::MergeJoin::new(*kind, keys, left, right, on.as_ref(), scope)?)
            }
        },
        PlanKind::Aggregate { input, groups, sets, aggregates } => {
            let columns = &input.columns;
            Box::new(aggregate::Aggregate::new(
                build(input, scope)?,
                columns,
                groups,
                sets,
                aggregates,
                scope,
            ))
        }
        PlanKind::Window { input, calls } => {
            Box::new(window::Window::new(build(input, scope)?, calls, scope))
        }
        PlanKind::Sort { input, keys, limit } => {
            let columns = &input.columns;
            Box::new(sort::Sort::new(build(input, scope)?, columns, keys, limit.as_ref(), scope))
        }
        PlanKind::Limit { input, limit, offset } => {
            Box::new(project::Limit::new(build(input, scope)?, limit.as_ref(), offset.as_ref(), scope))
        }
        PlanKind::Distinct { input, on } => {
            Box::new(distinct::Distinct::new(build(input, scope)?, &input.columns, on, scope))
        }
        PlanKind::SetOp { kind: SetOpKind::Union, all, left, right } => {
            let union = Box::new(setop::Union::new(build(left, scope)?, build(right, scope)?));
            if *all {
                return Ok(union);
            }
            Box::new(distinct::Distinct::new(union, &plan.columns, &[], scope))
        }
        PlanKind::SetOp { kind, all, left, right } => {
            let except = *kind == SetOpKind::Except;
            Box::new(setop::SetOp::new(except, *all, build(left, scope)?, build(right, scope)?))
        }
        PlanKind::With { ctes, body } => Box::new(source::With::new(ctes, body, scope)?),
        PlanKind::Recursive { cte, base, step, all } => {
            Box::new(recursive::Recursive::new(*cte, base, step, *all, scope)?)
        }
        PlanKind::Insert { .. } => Box::new(dml::Insert::new(plan, scope)?),
        PlanKind::Update { .. } => Box::new(dml::Update::new(plan, scope)?),
        PlanKind::Delete { .. } => Box::new(dml::Delete::new(plan, scope)?),
        PlanKind::Merge { .. } => Box::new(dml::Merge::new(plan, scope)?),
    })
}

/// Everything an operator returns, kept in memory.
pub(crate) async fn drain(
    operator: &mut BoxOperator<'_>,
    cx: &ExecContext<'_>,
    memory: &mut Reservation,
) -> SqlResult<Vec<Row>> {
    let mut rows = Vec::new();
    while let Some(batch) = operator.next(cx, BATCH_ROWS).await? {
        memory.grow(cx.memory, relation::batch_bytes(&batch))?;
        if rows.is_empty() {
            rows = batch;
        } else {
            rows.extend(batch);
            cx.pause().await?;
        }
    }
    Ok(rows)
}

struct Instrumented<'p> {
    plan: &'p Plan,
    operator: BoxOperator<'p>,
    started: bool,
}

#[async_trait]
impl Operator for Instrumented<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        let start = Instant::now();
        let result = self.operator.next(cx, want).await;
        if let Some(stats) = cx.stats {
            let first = !std::mem::replace(&mut self.started, true);
            let rows = result.as_ref().ok().and_then(Option::as_ref).map_or(0, Vec::len);
            stats.update(self.plan, |stats| {
                stats.loops += u64::from(first);
                stats.rows += rows as u64;
                stats.time += start.elapsed();
            });
        }
        result
    }

    fn narrow(&mut self, column: usize, sought: &Sought) {
        self.operator.narrow(column, sought);
    }

    fn affected(&self) -> Option<u64> {
        self.operator.affected()
    }
}
