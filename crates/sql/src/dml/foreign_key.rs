//! The referring side of foreign keys: what a new row refers to must exist.

use super::deferred::{puts_off, values_key};
use super::referential::Search;
use super::violation;
use super::write::SHARED;
use crate::catalog::descriptor::{ColumnId, ForeignKeyDescriptor};
use crate::exec::operator::BATCH_ROWS;
use crate::exec::relation::row_bytes;
use crate::exec::{ExecContext, Reservation, kv};
use crate::table::{IndexCodec, TableCodec};
use bytes::{Bytes, BytesMut};
use indexmap::IndexMap;
use sql_types::{ColumnType, Datum, Oid, Row, SqlError, SqlResult, cast, encoding};
use std::sync::Arc;

/// Keys kept before they are looked up, unless the table refers to itself.
const PENDING_KEYS: usize = 8 * BATCH_ROWS;

/// One foreign key of a table.
pub(super) struct Reference {
    key: ForeignKeyDescriptor,
    /// Positions of the referring columns in the full row.
    columns: Vec<usize>,
    parent: Arc<TableCodec>,
    /// Position of the unique index over the columns referred to: 0 is the primary one.
    index: usize,
    /// By column of that index: which of the referring columns, its type, and the type there.
    order: Vec<(usize, ColumnType, ColumnType)>,
    /// Keys to be found and the values they stand for.
    pending: IndexMap<Bytes, Row>,
    memory: Reservation,
}

/// The keys that rows written by a statement refer to.
pub(super) struct ReferencedKeys {
    table: Arc<TableCodec>,
    references: Vec<Reference>,
}

/// The unique index of a table over exactly these columns.
fn index_over<'c>(codec: &'c TableCodec, columns: &[ColumnId]) -> Option<(usize, &'c IndexCodec)> {
    std::iter::once(codec.primary()).chain(codec.secondary()).enumerate().find(|(_, index)| {
        index.is_key
            && index.columns.len() == columns.len()
            && index.columns.iter().all(|column| columns.contains(&column.id))
    })
}

impl Reference {
    pub fn new(table: &TableCodec, key: &ForeignKeyDescriptor, cx: &ExecContext<'_>) -> SqlResult<Self> {
        let broken = || SqlError::internal(format!("foreign key \"{}\" refers to nothing", key.name));
        let parent = cx.host.table(key.referenced_table).ok_or_else(broken)?;
        let parent = cx.codecs.get(&parent)?;
        let position = |id: &ColumnId| table.table().position(*id).ok_or_else(broken);
        let columns = key.columns.iter().map(position).collect::<SqlResult<Vec<_>>>()?;
        let (index, layout) = index_over(&parent, &key.referenced_columns).ok_or_else(broken)?;
        let order = layout
            .columns
            .iter()
            .map(|column| {
                let which =
                    key.referenced_columns.iter().position(|id| *id == column.id).ok_or_else(broken)?;
                let from =
                    columns.get(which).map(|position| table.column_type(*position)).ok_or_else(broken)?;
                Ok((which, from, parent.column_type(column.position)))
            })
            .collect::<SqlResult<Vec<_>>>()?;
        Ok(Reference {
            key: key.clone(),
            columns,
            index,
            order,
            pending: IndexMap::new(),
            memory: Reservation::default(),
            parent,
        })
    }

    fn layout(&self) -> &IndexCodec {
        match self.index.checked_sub(1) {
            None => self.parent.primary(),
            Some(position) => &self.parent.secondary()[position],
        }
    }

    /// Notes what a row refers to; nothing if a column is NULL.
    fn add(&mut self, table: Oid, row: &[Datum], cx: &ExecContext<'_>) -> SqlResult<()> {
        let values: Row = self.columns.iter().map(|position| row[*position].clone()).collect();
        if values.iter().any(Datum::is_null) {
            return Ok(());
        }
        if let Some(deferred) = puts_off(cx, &self.key) {
            deferred.add(table, self.key.oid, values_key(&values)?, values, table);
            return Ok(());
        }
        self.add_values(values, cx)
    }

    fn add_values(&mut self, values: Row, cx: &ExecContext<'_>) -> SqlResult<()> {
        let key = self.parent_key(&values, cx)?;
        if !self.pending.contains_key(&key) {
            self.memory.grow(cx.memory, key.len() + row_bytes(&values) + 64)?;
            self.pending.insert(key, values);
        }
        Ok(())
    }

    /// The key of the row that values of the referring columns refer to.
    fn parent_key(&self, values: &[Datum], cx: &ExecContext<'_>) -> SqlResult<Bytes> {
        let layout = self.layout();
        let mut key = BytesMut::from(&layout.prefix[..]);
        for ((which, from, to), column) in self.order.iter().zip(&layout.columns) {
            let value = cast::cast(&values[*which], from.ty, *to, false, cx.eval)?;
            encoding::encode_key(&value, column.descending, &mut key)?;
        }
        Ok(key.freeze())
    }

    /// Checks values of the referring columns, each with the table whose change brought it up: the row
    /// referred to is there, or no row refers to it.
    pub async fn verify(
        &self,
        table: &TableCodec,
        noted: Vec<(Row, Oid)>,
        cx: &ExecContext<'_>,
    ) -> SqlResult<()> {
        for noted in noted.chunks(BATCH_ROWS) {
            let keys = noted.iter().map(|(values, _)| self.parent_key(values, cx));
            let found = kv::get_many(cx, &keys.collect::<SqlResult<Vec<_>>>()?, Some(SHARED)).await?;
            let missing = noted.iter().zip(found).filter(|(_, value)| value.is_none());
            for ((values, changed), _) in missing {
                let search = Search::new(table, &self.key.columns, &self.columns, values.clone())?;
                if search.rows(table, 1, None, cx).await?.is_empty() {
                    continue;
                }
                let (child, parent) = (table.table(), self.parent.table());
                if *changed == child.oid {
                    return Err(violation::not_present(cx, child, &self.key, values, parent));
                }
                return Err(violation::still_referenced(cx, parent, values, child, &self.key));
            }
            cx.cancel.check()?;
        }
        Ok(())
    }

    /// Checks all rows of the referring table.
    pub async fn check_table(&mut self, table: &TableCodec, cx: &ExecContext<'_>) -> SqlResult<()> {
        let mut rest = Some(table.primary().span());
        while let Some(span) = rest {
            let page = kv::scan_page(cx, &span, false, BATCH_ROWS, None).await?;
            rest = page.resume;
            for (key, value) in &page.rows {
                let row = table.decode_row(key, value)?;
                let values: Row = self.columns.iter().map(|position| row[*position].clone()).collect();
                if !values.iter().any(Datum::is_null) {
                    self.add_values(values, cx)?;
                }
            }
            self.check(table, cx).await?;
        }
        Ok(())
    }

    async fn check(&mut self, table: &TableCodec, cx: &ExecContext<'_>) -> SqlResult<()> {
        let pending = std::mem::take(&mut self.pending);
        self.memory.release();
        let (keys, values): (Vec<Bytes>, Vec<Row>) = pending.into_iter().unzip();
        for (keys, values) in keys.chunks(BATCH_ROWS).zip(values.chunks(BATCH_ROWS)) {
            let found = kv::get_many(cx, keys, Some(SHARED)).await?;
            if let Some((values, _)) = values.iter().zip(found).find(|(_, value)| value.is_none()) {
                let (table, parent) = (table.table(), self.parent.table());
                return Err(violation::not_present(cx, table, &self.key, values, parent));
            }
        }
        Ok(())
    }
}

impl ReferencedKeys {
    /// The foreign keys of a table; only those with one of the `assigned` columns, if given.
    pub fn new(table: &Arc<TableCodec>, assigned: Option<&[usize]>, cx: &ExecContext<'_>) -> SqlResult<Self> {
        let mut references = Vec::new();
        for key in &table.table().foreign_keys {
            let concerned = assigned.is_none_or(|assigned| {
                key.columns.iter().filter_map(|id| table.table().position(*id)).any(|p| assigned.contains(&p))
            });
            if concerned {
                references.push(Reference::new(table, key, cx)?);
            }
        }
        Ok(ReferencedKeys { table: table.clone(), references })
    }

    /// Notes what a full row refers to.
    pub fn add_row(&mut self, row: &[Datum], cx: &ExecContext<'_>) -> SqlResult<()> {
        let table = self.table.table().oid;
        self.references.iter_mut().try_for_each(|reference| reference.add(table, row, cx))
    }

    /// Notes what full rows refer to, and looks up what has gathered where that can be done early.
    pub async fn add(&mut self, rows: &[Row], cx: &ExecContext<'_>) -> SqlResult<()> {
        if self.references.is_empty() {
            return Ok(());
        }
        for row in rows {
            self.add_row(row, cx)?;
        }
        let own = self.table.table().oid;
        for reference in &mut self.references {
            if reference.pending.len() >= PENDING_KEYS && reference.key.referenced_table != own {
                reference.check(&self.table, cx).await?;
            }
        }
        Ok(())
    }

    /// Fails if anything referred to does not exist.
    pub async fn check(&mut self, cx: &ExecContext<'_>) -> SqlResult<()> {
        for reference in &mut self.references {
            if !reference.pending.is_empty() {
                reference.check(&self.table, cx).await?;
            }
        }
        Ok(())
    }
}
