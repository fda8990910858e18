//! The side referred to by foreign keys: what happens to referring rows when a key goes or changes.

use super::began::Began;
use super::deferred::{check_statement, puts_off, values_key};
use super::foreign_key::ReferencedKeys;
use super::trigger::Triggers;
use super::write::{self, Change, EXCLUSIVE};
use super::{check, violation};
use crate::catalog::descriptor::{ColumnId, ForeignKeyDescriptor, PRIMARY_INDEX};
use crate::catalog::routine::TriggerEvent;
use crate::exec::eval::{EvalEnv, eval};
use crate::exec::operator::BATCH_ROWS;
use crate::exec::relation::row_bytes;
use crate::exec::{ExecContext, Reservation, kv};
use crate::plan::RowLock;
use crate::table::{IndexCodec, TableCodec};
use bytes::{Bytes, BytesMut};
use kv_api::Span;
use kv_api::key::prefix_end;
use sql_types::{Datum, Row, SqlError, SqlResult, cast, compare, encoding};
use std::collections::VecDeque;
use std::sync::Arc;

/// A foreign key that refers to a table.
#[derive(Clone)]
struct Incoming {
    /// The referring table.
    child: Arc<crate::catalog::descriptor::TableDescriptor>,
    /// Which of its foreign keys.
    key: usize,
}

impl Incoming {
    fn descriptor(&self) -> SqlResult<&ForeignKeyDescriptor> {
        self.child
            .foreign_keys
            .get(self.key)
            .ok_or_else(|| SqlError::internal("a foreign key that is not there"))
    }
}

/// A row that went (`new` is `None`) or changed.
struct Event {
    table: Arc<TableCodec>,
    incoming: Arc<[Incoming]>,
    old: Row,
    new: Option<Row>,
}

/// Rows of a table that other rows may refer to, gone or changed by a statement.
pub(super) struct Referential {
    table: Arc<TableCodec>,
    incoming: Arc<[Incoming]>,
    events: VecDeque<Event>,
    memory: Reservation,
}

impl Referential {
    /// Nothing yet.
    pub fn new(table: &Arc<TableCodec>, cx: &ExecContext<'_>) -> Self {
        Referential {
            incoming: incoming(table, cx),
            table: table.clone(),
            events: VecDeque::new(),
            memory: Reservation::default(),
        }
    }

    /// Notes that a full row went or changed.
    pub fn add(&mut self, old: &[Datum], new: Option<&[Datum]>, cx: &ExecContext<'_>) -> SqlResult<()> {
        if self.incoming.is_empty() || !self.concerns(old, new)? {
            return Ok(());
        }
        self.memory.grow(cx.memory, row_bytes(old) + new.map_or(0, row_bytes))?;
        let (table, incoming) = (self.table.clone(), self.incoming.clone());
        self.events.push_back(Event { table, incoming, old: old.to_vec(), new: new.map(<[Datum]>::to_vec) });
        Ok(())
    }

    /// Whether a key that something refers to went or changed.
    fn concerns(&self, old: &[Datum], new: Option<&[Datum]>) -> SqlResult<bool> {
        let Some(new) = new else { return Ok(true) };
        for incoming in &*self.incoming {
            let columns = positions(&self.table, &incoming.descriptor()?.referenced_columns)?;
            if columns.iter().any(|position| !compare::equal(&old[*position], &new[*position])) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Does what the foreign keys ask for, and what follows from that.
    pub async fn enforce(mut self, cx: &ExecContext<'_>) -> SqlResult<()> {
        while let Some(event) = self.events.pop_front() {
            for incoming in &*event.incoming.clone() {
                self.enforce_one(&event, incoming, cx).await?;
            }
            cx.cancel.check()?;
        }
        Ok(())
    }

    async fn enforce_one(
        &mut self,
        event: &Event,
        incoming: &Incoming,
        cx: &ExecContext<'_>,
    ) -> SqlResult<()> {
        let key = incoming.descriptor()?;
        let columns = positions(&event.table, &key.referenced_columns)?;
        let before: Row = columns.iter().map(|position| event.old[*position].clone()).collect();
        let after: Option<Row> =
            event.new.as_ref().map(|new| columns.iter().map(|position| new[*position].clone()).collect());
        let same = after.as_ref().is_some_and(|after| {
            before.iter().zip(after).all(|(before, after)| compare::equal(before, after))
        });
        if same || before.iter().any(Datum::is_null) {
            return Ok(());
        }
        let child = cx.codecs.get(&incoming.child)?;
        let action = if event.new.is_some() { key.on_update } else { key.on_delete };
        let referring = positions(&child, &key.columns)?;
        let values = convert(&before, &columns, &event.table, &referring, &child, cx)?;
        if action == 'a'
            && let Some(deferred) = puts_off(cx, key)
        {
            let (table, parent) = (child.table().oid, event.table.table().oid);
            deferred.add(table, key.oid, values_key(&values)?, values, parent);
            return Ok(());
        }
        let search = Search::new(&child, &key.columns, &referring, values)?;
        if !matches!(action, 'c' | 'n' | 'd') {
            let found = !search.rows(&child, 1, None, cx).await?.is_empty();
            if found && !still_there(event, &columns, key, cx).await? {
                let (parent, child) = (event.table.table(), child.table());
                return Err(violation::still_referenced(cx, parent, &before, child, key));
            }
            return Ok(());
        }
        let began = Began::now(cx);
        let rows = search.rows(&child, usize::MAX, Some(EXCLUSIVE), cx).await?;
        if rows.is_empty() {
            return Ok(());
        }
        let next = incoming_of(&child, cx);
        if action == 'c' && event.new.is_none() {
            let mut triggers = Triggers::new(child.table(), TriggerEvent::Delete, &[]);
            triggers.before_statement(cx).await?;
            for row in rows {
                if !triggers.before_delete(&row, cx).await? {
                    continue;
                }
                let row_key = child.row_key(&row)?;
                began.check("deleted", &child, &[(&row_key, row.as_slice())], cx).await?;
                write::delete_row(cx, &child, &row, row_key).await?;
                triggers.note(Some(&row), None, cx)?;
                self.follow(&child, &next, row, None, cx)?;
            }
            return triggers.finish(cx).await;
        }
        let values = self.replacement(action, after, &columns, &event.table, &referring, &child, cx)?;
        let mut changes = Vec::with_capacity(rows.len());
        let mut changed = referring.clone();
        child.add_generated(&mut changed);
        let mut triggers = Triggers::new(child.table(), TriggerEvent::Update, &key.columns);
        if triggers.changes_rows() {
            changed = (0..child.table().columns.len()).collect();
        }
        triggers.before_statement(cx).await?;
        let mut references = ReferencedKeys::new(&child, Some(&changed), cx)?;
        let checks = cx.host.checks(child.table())?;
        for old in rows {
            let mut new = old.clone();
            for (position, value) in referring.iter().zip(&values) {
                new[*position] = value.clone();
            }
            match triggers.before(Some(&old), new, cx).await? {
                Some(changed) => new = changed,
                None => continue,
            }
            let env = EvalEnv { eval: cx.eval, params: &[], outer: None };
            child.generate(&mut new)?;
            check::check_row(cx, &child, &checks, &new, &env)?;
            if action == 'd' || changed.len() > referring.len() {
                references.add_row(&new, cx)?;
            }
            changes.push(Change::new(&child, old, new)?);
        }
        let before: Vec<_> = changes.iter().map(Change::before).collect();
        began.check("updated", &child, &before, cx).await?;
        let start = cx.deferred.mark();
        write::update_rows(cx, &child, &write::touched_indexes(&child, &changed), &changes).await?;
        check_statement(cx, child.table(), &start).await?;
        references.check(cx).await?;
        for change in changes {
            triggers.note(Some(&change.old), Some(&change.new), cx)?;
            self.follow(&child, &next, change.old, Some(change.new), cx)?;
        }
        triggers.finish(cx).await
    }

    /// What referring columns are set to.
    #[allow(clippy::too_many_arguments, reason = "both sides of the key, and what is done about it")]
    fn replacement(
        &self,
        action: char,
        after: Option<Row>,
        columns: &[usize],
        parent: &TableCodec,
        referring: &[usize],
        child: &TableCodec,
        cx: &ExecContext<'_>,
    ) -> SqlResult<Row> {
        match (action, after) {
            ('c', Some(after)) => convert(&after, columns, parent, referring, child, cx),
            ('d', _) => {
                let env = EvalEnv { eval: cx.eval, params: &[], outer: None };
                let default = |position: &usize| {
                    let id = child.table().columns[*position].id;
                    eval(&cx.host.column_default(child.table(), id)?, &[], &env)
                };
                referring.iter().map(default).collect()
            }
            _ => Ok(vec![Datum::Null; referring.len()]),
        }
    }

    fn follow(
        &mut self,
        table: &Arc<TableCodec>,
        incoming: &Arc<[Incoming]>,
        old: Row,
        new: Option<Row>,
        cx: &ExecContext<'_>,
    ) -> SqlResult<()> {
        if incoming.is_empty() {
            return Ok(());
        }
        self.memory.grow(cx.memory, row_bytes(&old) + new.as_deref().map_or(0, row_bytes))?;
        self.events.push_back(Event { table: table.clone(), incoming: incoming.clone(), old, new });
        Ok(())
    }
}

fn incoming(table: &TableCodec, cx: &ExecContext<'_>) -> Arc<[Incoming]> {
    let referencing = cx.host.referencing(table.table().oid);
    referencing.into_iter().map(|(child, key)| Incoming { child, key }).collect()
}

fn incoming_of(table: &Arc<TableCodec>, cx: &ExecContext<'_>) -> Arc<[Incoming]> {
    incoming(table, cx)
}

fn positions(table: &TableCodec, columns: &[ColumnId]) -> SqlResult<Vec<usize>> {
    let missing = || SqlError::internal("a foreign key names a missing column");
    columns.iter().map(|id| table.table().position(*id).ok_or_else(missing)).collect()
}

/// Values of the key referred to, as values of the referring columns.
fn convert(
    values: &[Datum],
    columns: &[usize],
    parent: &TableCodec,
    referring: &[usize],
    child: &TableCodec,
    cx: &ExecContext<'_>,
) -> SqlResult<Row> {
    values
        .iter()
        .zip(columns.iter().zip(referring))
        .map(|(value, (from, to))| {
            cast::cast(value, parent.column_type(*from).ty, child.column_type(*to), false, cx.eval)
        })
        .collect()
}

/// Whether another row now has the key that went: then nothing refers to nothing.
async fn still_there(
    event: &Event,
    columns: &[usize],
    key: &ForeignKeyDescriptor,
    cx: &ExecContext<'_>,
) -> SqlResult<bool> {
    let table = &event.table;
    let values: Row = columns.iter().map(|position| event.old[*position].clone()).collect();
    let search = Search::new(table, &key.referenced_columns, columns, values)?;
    Ok(!search.rows(table, 1, None, cx).await?.is_empty())
}

/// A search for the rows of a table with given values in some columns.
pub(super) struct Search {
    index: u32,
    span: Span,
    positions: Vec<usize>,
    values: Row,
}

impl Search {
    pub fn new(
        table: &TableCodec,
        columns: &[ColumnId],
        positions: &[usize],
        values: Row,
    ) -> SqlResult<Self> {
        let leads = |index: &&IndexCodec| {
            index.predicate.is_none()
                && index.state.is_public()
                && index.columns.len() >= columns.len()
                && index.columns[..columns.len()].iter().all(|column| columns.contains(&column.id))
        };
        let all = || std::iter::once(table.primary()).chain(table.secondary());
        let (index, span) = match all().find(leads) {
            None => (PRIMARY_INDEX, table.primary().span()),
            Some(index) => {
                let mut prefix = BytesMut::from(&index.prefix[..]);
                for column in &index.columns[..columns.len()] {
                    let value = columns.iter().position(|id| *id == column.id).and_then(|at| values.get(at));
                    encoding::encode_key(value.unwrap_or(&Datum::Null), column.descending, &mut prefix)?;
                }
                let end = prefix_end(&prefix).unwrap_or_default();
                (index.id, Span::new(prefix.freeze(), end))
            }
        };
        Ok(Search { index, span, positions: positions.to_vec(), values })
    }

    fn matches(&self, row: &[Datum]) -> bool {
        self.positions
            .iter()
            .zip(&self.values)
            .all(|(position, value)| !row[*position].is_null() && compare::equal(&row[*position], value))
    }

    /// Full rows that match, at most `limit`.
    pub async fn rows(
        &self,
        table: &TableCodec,
        limit: usize,
        lock: Option<RowLock>,
        cx: &ExecContext<'_>,
    ) -> SqlResult<Vec<Row>> {
        let mut found = Vec::new();
        let mut memory = Reservation::default();
        let mut rest = Some(self.span.clone());
        while let Some(span) = rest {
            let page = kv::scan_page(cx, &span, false, BATCH_ROWS, None).await?;
            rest = page.resume;
            let mut keys: Vec<Bytes> = Vec::new();
            for (key, value) in &page.rows {
                if self.index == PRIMARY_INDEX {
                    if self.matches(&table.decode_row(key, value)?) {
                        keys.push(key.clone());
                    }
                } else {
                    let index = table.index(self.index)?;
                    keys.push(table.row_key_of(&table.entry_primary_bytes(index, key, value)?));
                }
            }
            for (key, value) in keys.iter().zip(kv::get_many(cx, &keys, lock).await?) {
                let Some(value) = value else { continue };
                let row = table.decode_row(key, &value)?;
                if self.matches(&row) {
                    memory.grow(cx.memory, row_bytes(&row))?;
                    found.push(row);
                    if found.len() >= limit {
                        return Ok(found);
                    }
                }
            }
            cx.cancel.check()?;
        }
        Ok(found)
    }
}
