//! INSERT.

use super::conflict::Conflict;
use super::deferred::check_statement;
use super::foreign_key::ReferencedKeys;
use super::policy::{self, Checked};
use super::trigger::Triggers;
use super::write::{self, Uniqueness};
use super::{Changing, Outcome, Source, check, meets_functions, reads, violation};
use crate::catalog::descriptor::{ColumnId, TableDescriptor};
use crate::catalog::routine::TriggerEvent;
use crate::exec::eval::eval;
use crate::exec::operator::{Batch, build};
use crate::exec::scope::Scope;
use crate::exec::{ExecContext, Reservation, kv};
use crate::plan::{Expr, OnConflict, Plan, PlanKind, RowCheck, RowPolicies};
use crate::table::{TableCodec, unique_rowid};
use sql_types::{Datum, Row, SqlError, SqlResult};
use std::sync::Arc;

/// From this many rows at once on, keys are not locked one by one.
const BULK_ROWS: usize = 64;

/// A running INSERT.
pub(crate) struct Insert<'p> {
    table: &'p Arc<TableDescriptor>,
    source: Source<'p>,
    targets: &'p [ColumnId],
    defaults: &'p [(ColumnId, Expr)],
    checks: &'p [RowCheck],
    on_conflict: Option<&'p OnConflict>,
    returning: Option<&'p [Expr]>,
    triggers: Triggers,
    policies: Option<&'p RowPolicies>,
    scope: Scope<'p>,
    outcome: Outcome,
}

/// Where the values of a full row come from.
struct Layout<'p> {
    /// By column of the input: position in the full row.
    targets: Vec<usize>,
    defaults: Vec<(usize, &'p Expr)>,
    /// The hidden key, if the statement must make it up.
    rowid: Option<usize>,
    width: usize,
    /// Whether a row of the input is a full row as it is.
    is_input: bool,
}

impl<'p> Insert<'p> {
    pub fn new(plan: &'p Plan, scope: &Scope<'p>) -> SqlResult<Self> {
        let PlanKind::Insert { table, input, targets, defaults, checks, on_conflict, returning, policies } =
            &plan.kind
        else {
            return Err(SqlError::internal("an insert of something else"));
        };
        let operator = build(input, scope)?;
        let triggers = Triggers::new(table, TriggerEvent::Insert, &[]);
        let source = if reads(input, table.oid) || meets_functions(input, &triggers) {
            Source::Whole(operator)
        } else {
            Source::Streaming(operator)
        };
        Ok(Insert {
            table,
            source,
            targets,
            defaults,
            checks,
            on_conflict: on_conflict.as_ref(),
            returning: returning.as_deref(),
            triggers,
            policies: policies.as_deref(),
            scope: scope.clone(),
            outcome: Outcome::default(),
        })
    }

    fn layout(&self) -> SqlResult<Layout<'p>> {
        let position = |id: &ColumnId| {
            self.table.position(*id).ok_or_else(|| SqlError::internal("an insert names a missing column"))
        };
        let targets = self.targets.iter().map(position).collect::<SqlResult<Vec<_>>>()?;
        let defaults = self
            .defaults
            .iter()
            .map(|(id, expr)| Ok((position(id)?, expr)))
            .collect::<SqlResult<Vec<_>>>()?;
        let given = |wanted: usize| {
            targets.contains(&wanted) || defaults.iter().any(|(position, _)| *position == wanted)
        };
        let rowid = (0..)
            .zip(&self.table.columns)
            .find(|(position, column)| column.hidden && column.name == "rowid" && !given(*position))
            .map(|(position, _)| position);
        let width = self.table.columns.len();
        let is_input = defaults.is_empty() && rowid.is_none() && targets.iter().copied().eq(0..width);
        Ok(Layout { targets, defaults, rowid, width, is_input })
    }

    /// Full rows as they are proposed: without generated columns, and not checked.
    fn full_rows(&self, batch: Batch, layout: &Layout<'_>, cx: &ExecContext<'_>) -> SqlResult<Vec<Row>> {
        let env = self.scope.env(cx);
        let mut rows = Vec::with_capacity(batch.len());
        for values in batch {
            if layout.is_input && values.len() == layout.width {
                rows.push(values);
                continue;
            }
            let mut row = vec![Datum::Null; layout.width];
            for (position, value) in layout.targets.iter().zip(values) {
                row[*position] = value;
            }
            for (position, default) in &layout.defaults {
                row[*position] = eval(default, &[], &env)?;
            }
            if let Some(position) = layout.rowid {
                row[position] = Datum::Int8(unique_rowid((cx.eval.clock)()));
            }
            rows.push(row);
        }
        Ok(rows)
    }

    /// Writes some of the rows of the input.
    async fn write(
        &mut self,
        given: Batch,
        running: &mut Running<'p>,
        cx: &ExecContext<'_>,
    ) -> SqlResult<()> {
        let codec = &running.codec;
        let mut rows = self.full_rows(given, &running.layout, cx)?;
        if self.triggers.changes_rows() {
            let proposed = std::mem::take(&mut rows);
            for row in proposed {
                rows.extend(self.triggers.before(None, row, cx).await?);
            }
        }
        for row in &mut rows {
            codec.generate(row)?;
            if let Some(policies) = self.policies {
                let checks = &policies.inserted;
                policy::check_row(cx, &self.scope, checks, self.table, row, Checked::New).await?;
            }
            check::check_row(cx, codec, self.checks, row, &self.scope.env(cx))?;
        }
        let written = match &mut running.conflict {
            Some(conflict) => conflict.insert(rows, &mut self.triggers, cx).await?,
            None => {
                running.bulk |= insert_new(codec, &rows, cx).await?;
                for row in &rows {
                    self.triggers.note(None, Some(row), cx)?;
                }
                rows
            }
        };
        running.references.add(&written, cx).await?;
        self.outcome.affected += written.len() as u64;
        if let Some(returning) = self.returning {
            let rows = project(&written, returning, &self.scope, cx)?;
            self.outcome.keep(rows, cx)?;
        }
        Ok(())
    }
}

/// What an INSERT needs while it runs.
struct Running<'p> {
    codec: Arc<TableCodec>,
    layout: Layout<'p>,
    conflict: Option<Conflict<'p>>,
    references: ReferencedKeys,
    /// Whether what it wrote must be flushed to find out whether it is new.
    bulk: bool,
}

impl Changing for Insert<'_> {
    fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    fn outcome_mut(&mut self) -> &mut Outcome {
        &mut self.outcome
    }

    async fn run(&mut self, cx: &ExecContext<'_>) -> SqlResult<()> {
        let codec = cx.codecs.get(self.table)?;
        let start = cx.deferred.mark();
        let mut memory = Reservation::default();
        let mut running = Running {
            conflict: match self.on_conflict {
                Some(clause) => {
                    Some(Conflict::new(clause, &codec, self.checks, self.policies, &self.scope, cx)?)
                }
                None => None,
            },
            layout: self.layout()?,
            references: ReferencedKeys::new(&codec, None, cx)?,
            codec: codec.clone(),
            bulk: false,
        };
        self.triggers.before_statement(cx).await?;
        if let Some(conflict) = &running.conflict {
            conflict.before_statement(cx).await?;
        }
        while let Some(batch) = self.source.next(cx, &mut memory).await? {
            let count = batch.len();
            if self.triggers.changes_rows() {
                // A trigger sees the rows before its own.
                for row in batch {
                    self.write(vec![row], &mut running, cx).await?;
                }
            } else {
                self.write(batch, &mut running, cx).await?;
            }
            if count >= BULK_ROWS {
                cx.pause().await?;
            }
        }
        let Running { conflict, mut references, bulk, .. } = running;
        if bulk {
            violation::write_error(cx, &codec, kv::flush(cx).await)?;
        }
        let mut updates = None;
        if let Some(conflict) = conflict {
            updates = Some(conflict.finish(cx).await?);
        }
        check_statement(cx, self.table, &start).await?;
        references.check(cx).await?;
        if let Some(updates) = &mut updates {
            updates.after_rows(cx).await?;
        }
        self.triggers.after_rows(cx).await?;
        if let Some(updates) = &updates {
            updates.after_statement(cx).await?;
        }
        self.triggers.after_statement(cx).await
    }
}

/// RETURNING over full rows.
fn project(rows: &[Row], exprs: &[Expr], scope: &Scope<'_>, cx: &ExecContext<'_>) -> SqlResult<Vec<Row>> {
    let env = scope.env(cx);
    rows.iter().map(|row| exprs.iter().map(|expr| eval(expr, row, &env)).collect()).collect()
}

/// Writes rows that must be new; true if what the statement wrote must be flushed to find out.
async fn insert_new(codec: &TableCodec, rows: &[Row], cx: &ExecContext<'_>) -> SqlResult<bool> {
    let bulk = !cx.implicit_commit && rows.len() >= BULK_ROWS;
    let uniqueness = if cx.implicit_commit || bulk { Uniqueness::Conditional } else { Uniqueness::Checked };
    let keys = rows.iter().map(|row| codec.row_key(row)).collect::<SqlResult<Vec<_>>>()?;
    if uniqueness == Uniqueness::Checked {
        let mut unique = Vec::with_capacity(rows.len());
        for (row, key) in rows.iter().zip(&keys) {
            unique.extend(write::unique_keys(codec, row, key)?);
        }
        if !unique.is_empty() {
            write::require_absent(cx, codec, &unique).await?;
        }
    }
    for (row, key) in rows.iter().zip(keys) {
        write::insert_row(cx, codec, row, key, uniqueness).await?;
    }
    let has_unique = !write::has_hidden_key(codec) || codec.secondary().iter().any(|index| index.unique);
    Ok(bulk && has_unique)
}
