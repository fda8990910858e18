//! ON CONFLICT.

use super::began::Began;
use super::policy::{self, Checked};
use super::referential::Referential;
use super::trigger::Triggers;
use super::write::{self, Change, EXCLUSIVE, Uniqueness};
use super::{check, violation};
use crate::catalog::descriptor::{IndexId, PRIMARY_INDEX};
use crate::catalog::routine::TriggerEvent;
use crate::exec::eval::{eval, is_true};
use crate::exec::operator::build;
use crate::exec::scope::Scope;
use crate::exec::{ExecContext, Reservation, kv};
use crate::plan::{ConflictUpdate, Expr, OnConflict, Plan, RowCheck, RowPolicies};
use crate::table::{TableCodec, codec};
use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use sql_types::{Datum, Oid, Row, SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// The `xmax` of a row that was there before: any that is not 0, for there are no numbers of transactions.
const WAS_THERE: Oid = 1;

/// An INSERT with ON CONFLICT while it runs.
pub(super) struct Conflict<'p> {
    codec: Arc<TableCodec>,
    arbiter: Option<IndexId>,
    update: Option<Assignments<'p>>,
    checks: &'p [RowCheck],
    policies: Option<&'p RowPolicies>,
    scope: Scope<'p>,
    /// Keys of rows the statement wrote: none may be updated by it.
    written: HashSet<Bytes>,
    memory: Reservation,
    referential: Referential,
    /// Those of DO UPDATE.
    triggers: Triggers,
}

/// DO UPDATE.
struct Assignments<'p> {
    /// Positions in the full row.
    positions: Vec<usize>,
    values: Values<'p>,
    touched: Vec<usize>,
}

/// Where the values come from that DO UPDATE assigns.
enum Values<'p> {
    /// Over the existing and the excluded row.
    Row(Vec<&'p Expr>, Option<&'p Expr>),
    /// The row that a plan gives.
    Query(&'p Plan),
}

impl<'p> Values<'p> {
    fn of(update: &'p ConflictUpdate) -> Self {
        match update {
            ConflictUpdate::Row { assignments, condition } => {
                Values::Row(assignments.iter().map(|(_, expr)| expr).collect(), condition.as_ref())
            }
            ConflictUpdate::Query { row, .. } => Values::Query(row),
        }
    }

    /// The values, over the existing and the excluded row; none where the condition is not true.
    async fn compute(
        &self,
        both: Row,
        scope: &Scope<'p>,
        cx: &ExecContext<'_>,
    ) -> SqlResult<Option<Vec<Datum>>> {
        match self {
            Values::Row(exprs, condition) => {
                let env = scope.env(cx);
                if let Some(condition) = condition
                    && !is_true(condition, &both, &env)?
                {
                    return Ok(None);
                }
                exprs.iter().map(|expr| eval(expr, &both, &env)).collect::<SqlResult<_>>().map(Some)
            }
            Values::Query(plan) => {
                let rows = build(plan, &scope.with_row(both))?.next(cx, 1).await?;
                Ok(rows.and_then(|rows| rows.into_iter().next()))
            }
        }
    }
}

/// What the keys of a batch hold at the moment.
type Known = HashMap<Bytes, Option<Bytes>>;

impl<'p> Conflict<'p> {
    pub fn new(
        clause: &'p OnConflict,
        codec: &Arc<TableCodec>,
        checks: &'p [RowCheck],
        policies: Option<&'p RowPolicies>,
        scope: &Scope<'p>,
        cx: &ExecContext<'_>,
    ) -> SqlResult<Self> {
        let assigned: Vec<u32> = clause.update.iter().flat_map(ConflictUpdate::targets).collect();
        let mut triggers = Triggers::new(codec.table(), TriggerEvent::Update, &assigned);
        if clause.update.is_none() {
            triggers = triggers.none();
        }
        let assignments = |update: &'p ConflictUpdate| {
            let position = |id: u32| {
                let missing = || SqlError::internal("ON CONFLICT names a missing column");
                codec.table().position(id).ok_or_else(missing)
            };
            let positions = assigned.iter().map(|id| position(*id)).collect::<SqlResult<Vec<_>>>()?;
            let mut columns = positions.clone();
            codec.add_generated(&mut columns);
            if triggers.changes_rows() {
                columns = (0..codec.table().columns.len()).collect();
            }
            let touched = write::touched_indexes(codec, &columns);
            Ok::<_, SqlError>(Assignments { positions, values: Values::of(update), touched })
        };
        Ok(Conflict {
            codec: codec.clone(),
            arbiter: clause.arbiter,
            update: clause.update.as_ref().map(assignments).transpose()?,
            triggers,
            checks,
            policies,
            scope: scope.clone(),
            written: HashSet::new(),
            memory: Reservation::default(),
            referential: Referential::new(codec, cx),
        })
    }

    /// Inserts or updates; returns the full rows written, with DO UPDATE each with its `xmax` behind it.
    pub async fn insert(
        &mut self,
        rows: Vec<Row>,
        inserts: &mut Triggers,
        cx: &ExecContext<'_>,
    ) -> SqlResult<Vec<Row>> {
        let codec = self.codec.clone();
        let mut keyed = Vec::with_capacity(rows.len());
        let mut all: Vec<Bytes> = Vec::new();
        for row in rows {
            let row_key = codec.row_key(&row)?;
            let unique = write::unique_keys(&codec, &row, &row_key)?;
            all.extend_from_slice(&unique);
            keyed.push((row, row_key, unique));
        }
        all.sort_unstable();
        all.dedup();
        let mut began = Began::now(cx);
        let mut known = known(&all, cx).await?;
        let mut written = Vec::with_capacity(keyed.len());
        for (row, row_key, unique) in keyed {
            if !began.is_fresh(cx) {
                began = Began::now(cx);
                known = self::known(&all, cx).await?;
            }
            let existing = unique.iter().find(|key| self.arbitrates(key) && holds(&known, key));
            match existing {
                Some(_) if self.update.is_none() => {}
                Some(key) => {
                    let updated = self.update(key, row, &mut known, began, cx).await?;
                    written.extend(updated.map(|row| self.with_xmax(row, WAS_THERE)));
                }
                None => {
                    if let Some(key) = unique.iter().find(|key| holds(&known, key)) {
                        let (table, text) = (codec.table(), &cx.eval.text);
                        return Err(violation::duplicate(cx.host, text, table, &codec, key));
                    }
                    write::insert_row(cx, &codec, &row, row_key.clone(), Uniqueness::Checked).await?;
                    note(&codec, &row, &row_key, true, &mut known)?;
                    inserts.note(None, Some(&row), cx)?;
                    self.remember(row_key, cx)?;
                    written.push(self.with_xmax(row, 0));
                }
            }
        }
        Ok(written)
    }

    fn with_xmax(&self, mut row: Row, xmax: Oid) -> Row {
        if self.update.is_some() {
            row.push(Datum::Oid(xmax));
        }
        row
    }

    fn remember(&mut self, key: Bytes, cx: &ExecContext<'_>) -> SqlResult<()> {
        self.memory.grow(cx.memory, key.len() + 64)?;
        self.written.insert(key);
        Ok(())
    }

    fn arbitrates(&self, key: &[u8]) -> bool {
        match self.arbiter {
            None => true,
            Some(arbiter) => codec::split_key(key).is_some_and(|(_, index, _)| index == arbiter),
        }
    }

    /// Updates the row that stands in the way, unless the condition says no.
    async fn update(
        &mut self,
        key: &Bytes,
        excluded: Row,
        known: &mut Known,
        began: Began,
        cx: &ExecContext<'_>,
    ) -> SqlResult<Option<Row>> {
        let Some(update) = &self.update else { return Ok(None) };
        let codec = &self.codec;
        let Some((old_key, old)) = existing_row(codec, key, known, cx).await? else { return Ok(None) };
        if self.written.contains(&old_key) {
            let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
            return Err(SqlError::new(SqlState::CARDINALITY_VIOLATION, message).with_hint(
                "Ensure that no rows proposed for insertion within the same command have duplicate \
                 constrained values.",
            ));
        }
        // Before the condition, which could tell of the row by failing.
        if let Some(policies) = self.policies {
            let (scope, table) = (&self.scope, codec.table());
            policy::check_row(cx, scope, &policies.replaced, table, &old, Checked::Existing).await?;
        }
        let mut both = old.clone();
        both.extend(excluded);
        let Some(values) = update.values.compute(both, &self.scope, cx).await? else { return Ok(None) };
        let mut new = old.clone();
        for (position, value) in update.positions.iter().zip(values) {
            new[*position] = value;
        }
        if self.triggers.changes_rows() {
            match self.triggers.before(Some(&old), new, cx).await? {
                Some(changed) => new = changed,
                None => return Ok(None),
            }
        }
        codec.generate(&mut new)?;
        if let Some(policies) = self.policies {
            policy::check_row(cx, &self.scope, &policies.updated, codec.table(), &new, Checked::New).await?;
        }
        check::check_row(cx, codec, self.checks, &new, &self.scope.env(cx))?;
        let change = Change::new(codec, old, new)?;
        began.check("updated", codec, &[change.before()], cx).await?;
        write::update_rows(cx, codec, &update.touched, std::slice::from_ref(&change)).await?;
        note(codec, &change.old, &change.old_key, false, known)?;
        note(codec, &change.new, &change.new_key, true, known)?;
        self.remember(change.new_key.clone(), cx)?;
        self.referential.add(&change.old, Some(&change.new), cx)?;
        self.triggers.note(Some(&change.old), Some(&change.new), cx)?;
        Ok(Some(change.new))
    }

    /// Applies what foreign keys of other tables want done about the updates.
    /// Returns the triggers that are still to run.
    pub async fn finish(self, cx: &ExecContext<'_>) -> SqlResult<Triggers> {
        self.referential.enforce(cx).await?;
        Ok(self.triggers)
    }

    /// Runs the triggers before the first row.
    pub async fn before_statement(&self, cx: &ExecContext<'_>) -> SqlResult<()> {
        self.triggers.before_statement(cx).await
    }
}

/// What keys hold now; they are locked.
async fn known(keys: &[Bytes], cx: &ExecContext<'_>) -> SqlResult<Known> {
    let found = kv::get_many(cx, keys, Some(EXCLUSIVE)).await?;
    Ok(keys.iter().cloned().zip(found).collect())
}

fn holds(known: &Known, key: &Bytes) -> bool {
    known.get(key).is_some_and(Option::is_some)
}

/// Notes that a row is there, or is no more.
fn note(codec: &TableCodec, row: &Row, row_key: &Bytes, there: bool, known: &mut Known) -> SqlResult<()> {
    known.insert(row_key.clone(), if there { Some(codec.row_value(row)?) } else { None });
    for index in codec.secondary().iter().filter(|index| index.unique && index.is_written()) {
        if let Some(entry) = codec.index_entry(index, row, row_key)?.filter(|entry| entry.unique) {
            let others = !there
                && index.is_disputed()
                && known.get(&entry.key).is_some_and(|found| found.as_ref() != Some(&entry.value));
            if !others {
                known.insert(entry.key, there.then_some(entry.value));
            }
        }
    }
    Ok(())
}

/// The row that a key of a unique index belongs to.
async fn existing_row(
    codec: &TableCodec,
    key: &Bytes,
    known: &Known,
    cx: &ExecContext<'_>,
) -> SqlResult<Option<(Bytes, Row)>> {
    let Some(value) = known.get(key).cloned().flatten() else { return Ok(None) };
    let index = codec::split_key(key).map_or(PRIMARY_INDEX, |(_, index, _)| index);
    if index == PRIMARY_INDEX {
        let row = codec.decode_row(key, &value)?;
        return Ok(Some((key.clone(), row)));
    }
    let row_key = codec.row_key_of(&codec.entry_primary_bytes(codec.index(index)?, key, &value)?);
    let row = match known.get(&row_key) {
        Some(row) => row.clone(),
        None => kv::get(cx, &row_key, Some(EXCLUSIVE)).await?,
    };
    row.map(|value| Ok((row_key.clone(), codec.decode_row(&row_key, &value)?))).transpose()
}
