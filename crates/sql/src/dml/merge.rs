//! MERGE.

use super::began::Began;
use super::deferred::check_statement;
use super::foreign_key::ReferencedKeys;
use super::policy::{self, Checked};
use super::referential::Referential;
use super::trigger::Triggers;
use super::write::{self, Change, Uniqueness};
use super::{Changing, Outcome, Source, check};
use crate::catalog::descriptor::{ColumnId, TableDescriptor};
use crate::catalog::routine::TriggerEvent;
use crate::exec::eval::{eval, is_true};
use crate::exec::operator::build;
use crate::exec::relation::row_bytes;
use crate::exec::scope::Scope;
use crate::exec::{ExecContext, Reservation};
use crate::plan::{Expr, MergeAction, MergeClause, Plan, PlanKind, PolicyCheck, RowCheck, RowPolicies};
use crate::table::{TableCodec, unique_rowid};
use bytes::Bytes;
use hashbrown::HashSet;
use sql_types::{Datum, Row, SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// A running MERGE.
pub(crate) struct Merge<'p> {
    table: &'p Arc<TableDescriptor>,
    input: &'p Plan,
    clauses: &'p [MergeClause],
    checks: &'p [RowCheck],
    policies: Option<&'p RowPolicies>,
    scope: Scope<'p>,
    outcome: Outcome,
}

/// The triggers of a MERGE, by what it does.
struct AllTriggers {
    insert: Triggers,
    update: Triggers,
    delete: Triggers,
}

impl AllTriggers {
    /// Those of the actions that the clauses have.
    fn new(table: &Arc<TableDescriptor>, clauses: &[MergeClause]) -> AllTriggers {
        let (mut assigned, mut inserts, mut updates, mut deletes) = (Vec::new(), false, false, false);
        for clause in clauses {
            match &clause.action {
                MergeAction::Nothing => {}
                MergeAction::Delete => deletes = true,
                MergeAction::Insert { .. } => inserts = true,
                MergeAction::Update(list) => {
                    updates = true;
                    assigned.extend(list.iter().map(|(id, _)| *id));
                }
            }
        }
        let of = |event, wanted: bool| {
            let all = Triggers::new(table, event, &assigned);
            if wanted { all } else { all.none() }
        };
        AllTriggers {
            insert: of(TriggerEvent::Insert, inserts),
            update: of(TriggerEvent::Update, updates),
            delete: of(TriggerEvent::Delete, deletes),
        }
    }
}

/// What the statement will write, once all of its input is known.
#[derive(Default)]
struct Pending {
    changes: Vec<Change>,
    deleted: Vec<(Bytes, Row)>,
    inserted: Vec<Row>,
    /// Keys of the rows changed and deleted.
    seen: HashSet<Bytes>,
    memory: Reservation,
}

impl Pending {
    /// Takes note of a row of the target that an action is for.
    fn touch(&mut self, key: &Bytes) -> SqlResult<()> {
        if self.seen.insert(key.clone()) {
            return Ok(());
        }
        let message = "MERGE command cannot affect row a second time";
        Err(SqlError::new(SqlState::CARDINALITY_VIOLATION, message)
            .with_hint("Ensure that not more than one source row matches any one target row."))
    }
}

impl<'p> Merge<'p> {
    pub fn new(plan: &'p Plan, scope: &Scope<'p>) -> SqlResult<Self> {
        let PlanKind::Merge { table, input, clauses, checks, policies } = &plan.kind else {
            return Err(SqlError::internal("a merge of something else"));
        };
        Ok(Merge {
            table,
            input,
            clauses,
            checks,
            policies: policies.as_deref(),
            scope: scope.clone(),
            outcome: Outcome::default(),
        })
    }

    fn position(&self, id: ColumnId) -> SqlResult<usize> {
        self.table.position(id).ok_or_else(|| SqlError::internal("a merge names a missing column"))
    }

    /// Positions of the columns that the clauses change: those assigned, and those generated from them.
    fn assigned(&self, codec: &TableCodec) -> SqlResult<Vec<usize>> {
        let mut columns = Vec::new();
        for clause in self.clauses {
            if let MergeAction::Update(assignments) = &clause.action {
                for (id, _) in assignments {
                    columns.push(self.position(*id)?);
                }
            }
        }
        codec.add_generated(&mut columns);
        Ok(columns)
    }

    /// Checks a row as policies ask for.
    async fn check_policies(
        &self,
        which: impl Fn(&RowPolicies) -> &[PolicyCheck],
        row: &Row,
        checked: Checked,
        cx: &ExecContext<'_>,
    ) -> SqlResult<()> {
        let Some(policies) = self.policies else { return Ok(()) };
        policy::check_row(cx, &self.scope, which(policies), self.table, row, checked).await
    }

    /// Does what the first clause says that applies to a row of the input.
    async fn act(
        &self,
        row: Row,
        pending: &mut Pending,
        triggers: &mut AllTriggers,
        codec: &TableCodec,
        cx: &ExecContext<'_>,
    ) -> SqlResult<bool> {
        let width = self.table.columns.len();
        // A column of the primary key is NULL only where there is no row.
        let matched = codec.primary().columns.first().is_some_and(|key| !row[key.position].is_null());
        let mut found = None;
        for clause in self.clauses.iter().filter(|clause| clause.matched == matched) {
            let applies = match &clause.condition {
                Some(condition) => is_true(condition, &row, &self.scope.env(cx))?,
                None => true,
            };
            if applies {
                found = Some(&clause.action);
                break;
            }
        }
        match found {
            None | Some(MergeAction::Nothing) => return Ok(false),
            Some(MergeAction::Delete) => {
                let old: Row = row.into_iter().take(width).collect();
                self.check_policies(|policies| &policies.deleted, &old, Checked::Target, cx).await?;
                let key = codec.row_key(&old)?;
                pending.touch(&key)?;
                if !triggers.delete.before_delete(&old, cx).await? {
                    return Ok(false);
                }
                triggers.delete.note(Some(&old), None, cx)?;
                pending.memory.grow(cx.memory, row_bytes(&old) + key.len())?;
                pending.deleted.push((key, old));
            }
            Some(MergeAction::Update(assignments)) => {
                if self.policies.is_some() {
                    let old: Row = row.iter().take(width).cloned().collect();
                    self.check_policies(|policies| &policies.replaced, &old, Checked::Target, cx).await?;
                }
                let Some(change) = self.change(row, assignments, &triggers.update, codec, cx).await? else {
                    return Ok(false);
                };
                self.check_policies(|policies| &policies.updated, &change.new, Checked::New, cx).await?;
                check::check_row(cx, codec, self.checks, &change.new, &self.scope.env(cx))?;
                pending.touch(&change.old_key)?;
                triggers.update.note(Some(&change.old), Some(&change.new), cx)?;
                pending.memory.grow(cx.memory, row_bytes(&change.old) + row_bytes(&change.new))?;
                pending.changes.push(change);
            }
            Some(MergeAction::Insert { targets, row: values }) => {
                let inserted = self.insertion(row, targets, values, &triggers.insert, codec, cx).await?;
                let Some(new) = inserted else { return Ok(false) };
                triggers.insert.note(None, Some(&new), cx)?;
                pending.memory.grow(cx.memory, row_bytes(&new))?;
                pending.inserted.push(new);
            }
        }
        Ok(true)
    }

    async fn change(
        &self,
        row: Row,
        assignments: &[(ColumnId, Expr)],
        triggers: &Triggers,
        codec: &TableCodec,
        cx: &ExecContext<'_>,
    ) -> SqlResult<Option<Change>> {
        let old: Row = row.iter().take(self.table.columns.len()).cloned().collect();
        let mut new = old.clone();
        for (id, expr) in assignments {
            new[self.position(*id)?] = eval(expr, &row, &self.scope.env(cx))?;
        }
        match triggers.before(Some(&old), new, cx).await? {
            Some(changed) => new = changed,
            None => return Ok(None),
        }
        codec.generate(&mut new)?;
        Change::new(codec, old, new).map(Some)
    }

    async fn insertion(
        &self,
        row: Row,
        targets: &[ColumnId],
        values: &Plan,
        triggers: &Triggers,
        codec: &TableCodec,
        cx: &ExecContext<'_>,
    ) -> SqlResult<Option<Row>> {
        let mut new = vec![Datum::Null; self.table.columns.len()];
        let given = {
            let scope = self.scope.with_row(row);
            build(values, &scope)?.next(cx, 1).await?
        };
        let given = given.and_then(|rows| rows.into_iter().next()).unwrap_or_default();
        for (id, value) in targets.iter().zip(given) {
            new[self.position(*id)?] = value;
        }
        if write::has_hidden_key(codec) {
            let key = codec.primary().columns.first().map_or(0, |key| key.position);
            new[key] = Datum::Int8(unique_rowid((cx.eval.clock)()));
        }
        match triggers.before(None, new, cx).await? {
            Some(changed) => new = changed,
            None => return Ok(None),
        }
        codec.generate(&mut new)?;
        self.check_policies(|policies| &policies.inserted, &new, Checked::New, cx).await?;
        check::check_row(cx, codec, self.checks, &new, &self.scope.env(cx))?;
        Ok(Some(new))
    }
}

impl Changing for Merge<'_> {
    fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    fn outcome_mut(&mut self) -> &mut Outcome {
        &mut self.outcome
    }

    async fn run(&mut self, cx: &ExecContext<'_>) -> SqlResult<()> {
        let codec = cx.codecs.get(self.table)?;
        let mut triggers = AllTriggers::new(self.table, self.clauses);
        let touched = match triggers.update.changes_rows() {
            true => write::touched_indexes(&codec, &(0..self.table.columns.len()).collect::<Vec<_>>()),
            false => write::touched_indexes(&codec, &self.assigned(&codec)?),
        };
        let mut references = ReferencedKeys::new(&codec, None, cx)?;
        let mut referential = Referential::new(&codec, cx);
        let start = cx.deferred.mark();
        let mut memory = Reservation::default();
        let mut source = Source::Whole(build(self.input, &self.scope)?);
        let mut pending = Pending::default();
        for of in [&triggers.insert, &triggers.update, &triggers.delete] {
            of.before_statement(cx).await?;
        }
        let began = Began::now(cx);
        while let Some(batch) = source.next(cx, &mut memory).await? {
            for row in batch {
                self.outcome.affected +=
                    u64::from(self.act(row, &mut pending, &mut triggers, &codec, cx).await?);
            }
            cx.pause().await?;
        }
        let deleted: Vec<_> = pending.deleted.iter().map(|(key, old)| (key, old.as_slice())).collect();
        began.check("deleted", &codec, &deleted, cx).await?;
        let updated: Vec<_> = pending.changes.iter().map(Change::before).collect();
        began.check("updated", &codec, &updated, cx).await?;
        for (key, old) in &pending.deleted {
            write::delete_row(cx, &codec, old, key.clone()).await?;
            referential.add(old, None, cx)?;
        }
        for change in &pending.changes {
            references.add_row(&change.new, cx)?;
            referential.add(&change.old, Some(&change.new), cx)?;
        }
        write::update_rows(cx, &codec, &touched, &pending.changes).await?;
        let mut keys = Vec::new();
        for row in &pending.inserted {
            keys.extend(write::unique_keys(&codec, row, &codec.row_key(row)?)?);
        }
        write::require_absent(cx, &codec, &keys).await?;
        for row in &pending.inserted {
            write::insert_row(cx, &codec, row, codec.row_key(row)?, Uniqueness::Checked).await?;
        }
        references.add(&pending.inserted, cx).await?;
        check_statement(cx, self.table, &start).await?;
        referential.enforce(cx).await?;
        references.check(cx).await?;
        for of in [&mut triggers.update, &mut triggers.delete, &mut triggers.insert] {
            of.after_rows(cx).await?;
        }
        for of in [&triggers.delete, &triggers.update, &triggers.insert] {
            of.after_statement(cx).await?;
        }
        Ok(())
    }
}
