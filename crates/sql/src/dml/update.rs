//! UPDATE.

use super::began::Began;
use super::deferred::check_statement;
use super::foreign_key::ReferencedKeys;
use super::policy::{self, Checked};
use super::referential::Referential;
use super::trigger::Triggers;
use super::write::{self, Change};
use super::{Changing, Outcome, Source, check, meets_functions, reads};
use crate::catalog::descriptor::{ColumnId, TableDescriptor};
use crate::catalog::routine::TriggerEvent;
use crate::exec::eval::eval;
use crate::exec::operator::{Batch, build};
use crate::exec::scope::Scope;
use crate::exec::{ExecContext, Reservation};
use crate::plan::{Expr, Plan, PlanKind, RowCheck, RowPolicies};
use crate::table::TableCodec;
use bytes::Bytes;
use hashbrown::HashSet;
use sql_types::{Datum, Row, SqlError, SqlResult};
use std::sync::Arc;

/// A running UPDATE.
pub(crate) struct Update<'p> {
    table: &'p Arc<TableDescriptor>,
    input: &'p Plan,
    assignments: &'p [(ColumnId, Expr)],
    checks: &'p [RowCheck],
    returning: Option<&'p [Expr]>,
    policies: Option<&'p RowPolicies>,
    scope: Scope<'p>,
    outcome: Outcome,
}

/// How the statement runs.
struct Method<'p> {
    /// Position in the full row, and the value over the input row.
    values: Vec<(usize, &'p Expr)>,
    /// Positions of the columns that change: those assigned, and those generated from them.
    columns: Vec<usize>,
    /// Positions of the secondary indexes with an assigned column.
    touched: Vec<usize>,
    /// Whether a column of the primary key or of a unique index is assigned: then rows are written
    /// when all are known.
    moves: bool,
    /// Whether FROM may give a row several times.
    joined: bool,
}

impl<'p> Update<'p> {
    pub fn new(plan: &'p Plan, scope: &Scope<'p>) -> SqlResult<Self> {
        let PlanKind::Update { table, input, assignments, checks, returning, policies } = &plan.kind else {
            return Err(SqlError::internal("an update of something else"));
        };
        Ok(Update {
            table,
            input,
            assignments,
            checks,
            returning: returning.as_deref(),
            policies: policies.as_deref(),
            scope: scope.clone(),
            outcome: Outcome::default(),
        })
    }

    fn method(&self, codec: &TableCodec, triggers: &Triggers) -> SqlResult<Method<'p>> {
        let position = |id: ColumnId| {
            self.table.position(id).ok_or_else(|| SqlError::internal("an update names a missing column"))
        };
        let values = self
            .assignments
            .iter()
            .map(|(id, expr)| Ok((position(*id)?, expr)))
            .collect::<SqlResult<Vec<_>>>()?;
        let mut columns: Vec<usize> = values.iter().map(|(position, _)| *position).collect();
        codec.add_generated(&mut columns);
        if triggers.changes_rows() {
            columns = (0..self.table.columns.len()).collect();
        }
        let touched = write::touched_indexes(codec, &columns);
        let moves = codec.primary().columns.iter().any(|column| columns.contains(&column.position))
            || touched.iter().any(|position| codec.secondary()[*position].unique);
        let joined = self.input.columns.len() > self.table.columns.len();
        Ok(Method { values, columns, touched, moves, joined })
    }

    /// Whether the scan below can run ahead of the writes: it reads the table once, through an index
    /// whose keys stay.
    fn streams(&self, method: &Method<'_>, codec: &TableCodec) -> bool {
        let Some(index) = single_scan(self.input, self.table.oid) else { return false };
        let kept = codec.secondary().iter().position(|candidate| candidate.id == index);
        !method.moves && kept.is_none_or(|position| !method.touched.contains(&position))
    }

    async fn changes(
        &self,
        batch: Batch,
        method: &Method<'_>,
        triggers: &Triggers,
        codec: &TableCodec,
        seen: &mut HashSet<Bytes>,
        cx: &ExecContext<'_>,
    ) -> SqlResult<Vec<(Change, Row)>> {
        let width = self.table.columns.len();
        let mut changes = Vec::with_capacity(batch.len());
        for mut row in batch {
            let mut new: Row = row.iter().take(width).cloned().collect();
            for (position, expr) in &method.values {
                new[*position] = eval(expr, &row, &self.scope.env(cx))?;
            }
            let added = row.split_off(width.min(row.len()));
            if triggers.changes_rows() {
                if method.joined && !seen.insert(codec.row_key(&row)?) {
                    continue;
                }
                match triggers.before(Some(&row), new, cx).await? {
                    Some(changed) => new = changed,
                    None => continue,
                }
            }
            codec.generate(&mut new)?;
            let change = Change::new(codec, row, new)?;
            if method.joined && !triggers.changes_rows() && !seen.insert(change.old_key.clone()) {
                continue;
            }
            if let Some(policies) = self.policies {
                let checks = &policies.updated;
                policy::check_row(cx, &self.scope, checks, self.table, &change.new, Checked::New).await?;
            }
            check::check_row(cx, codec, self.checks, &change.new, &self.scope.env(cx))?;
            changes.push((change, added));
        }
        Ok(changes)
    }
}

impl Changing for Update<'_> {
    fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    fn outcome_mut(&mut self) -> &mut Outcome {
        &mut self.outcome
    }

    async fn run(&mut self, cx: &ExecContext<'_>) -> SqlResult<()> {
        let codec = cx.codecs.get(self.table)?;
        let assigned: Vec<ColumnId> = self.assignments.iter().map(|(id, _)| *id).collect();
        let mut triggers = Triggers::new(self.table, TriggerEvent::Update, &assigned);
        let method = self.method(&codec, &triggers)?;
        let operator = build(self.input, &self.scope)?;
        let mut source = if !meets_functions(self.input, &triggers) && self.streams(&method, &codec) {
            Source::Streaming(operator)
        } else {
            Source::Whole(operator)
        };
        let mut references = ReferencedKeys::new(&codec, Some(&method.columns), cx)?;
        let mut referential = Referential::new(&codec, cx);
        let start = cx.deferred.mark();
        let mut memory = Reservation::default();
        let mut seen = HashSet::new();
        let mut held: Vec<Change> = Vec::new();
        triggers.before_statement(cx).await?;
        let began = Began::now(cx);
        while let Some(batch) = source.next(cx, &mut memory).await? {
            let rows = batch.len();
            let (changes, added): (Vec<Change>, Vec<Row>) =
                self.changes(batch, &method, &triggers, &codec, &mut seen, cx).await?.into_iter().unzip();
            if method.joined {
                memory.grow(cx.memory, changes.len() * 64)?;
            }
            self.outcome.affected += changes.len() as u64;
            if let Some(returning) = self.returning {
                let rows = project(&changes, added, returning, &self.scope, cx)?;
                self.outcome.keep(rows, cx)?;
            }
            for change in &changes {
                references.add_row(&change.new, cx)?;
                referential.add(&change.old, Some(&change.new), cx)?;
                triggers.note(Some(&change.old), Some(&change.new), cx)?;
            }
            if method.moves {
                held.extend(changes);
            } else {
                write_changes(cx, &codec, &method, &changes, began).await?;
            }
            if rows > 64 {
                cx.pause().await?;
            }
        }
        if !held.is_empty() {
            write_changes(cx, &codec, &method, &held, began).await?;
        }
        check_statement(cx, self.table, &start).await?;
        referential.enforce(cx).await?;
        references.check(cx).await?;
        triggers.finish(cx).await
    }
}

async fn write_changes(
    cx: &ExecContext<'_>,
    codec: &TableCodec,
    method: &Method<'_>,
    changes: &[Change],
    began: Began,
) -> SqlResult<()> {
    let before: Vec<_> = changes.iter().map(Change::before).collect();
    began.check("updated", codec, &before, cx).await?;
    write::update_rows(cx, codec, &method.touched, changes).await
}

/// RETURNING over the new rows, each followed by what FROM added.
fn project(
    changes: &[Change],
    added: Vec<Row>,
    exprs: &[Expr],
    scope: &Scope<'_>,
    cx: &ExecContext<'_>,
) -> SqlResult<Vec<Row>> {
    let env = scope.env(cx);
    let mut rows = Vec::with_capacity(changes.len());
    for (change, added) in changes.iter().zip(added) {
        let mut row: Row = change.new.clone();
        row.extend(added);
        rows.push(exprs.iter().map(|expr| eval(expr, &row, &env)).collect::<SqlResult<Vec<Datum>>>()?);
    }
    Ok(rows)
}

/// The index through which a plan reads a table, if it does so exactly once and nothing else stands in
/// the way of reading ahead of writes.
fn single_scan(plan: &Plan, table: u32) -> Option<u32> {
    match &plan.kind {
        PlanKind::Scan { table: scanned, index, .. } if scanned.oid == table => Some(*index),
        PlanKind::Filter { input, .. } | PlanKind::Project { input, .. } => single_scan(input, table),
        PlanKind::Apply { input, subplans } => {
            let others = subplans.iter().filter_map(|(subplan, _)| subplan.plan());
            if others.into_iter().any(|plan| reads(plan, table)) { None } else { single_scan(input, table) }
        }
        _ => None,
    }
}
