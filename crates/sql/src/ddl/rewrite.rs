//! Writing whole tables and indexes: rewrites, backfills.

use super::DdlContext;
use crate::catalog::descriptor::{IndexId, TableDescriptor};
use crate::exec::kv_error;
use crate::table::TableCodec;
use bytes::Bytes;
use kv_api::{KvError, KvErrorKind, Span};
use kv_client::{ScanOptions, Txn, TxnOptions};
use sql_types::{Row, SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// Rows read at a time. A table of no more is written by the transaction itself.
const PAGE_ROWS: u64 = 2000;

/// What to make of each row.
pub(super) type MapRow<'f> = &'f mut (dyn FnMut(Row) -> SqlResult<Row> + Send);

/// Which entries are written.
enum Target<'t> {
    /// Rows and all indexes of a table with a new storage number.
    Table(&'t TableCodec),
    /// One new index of a table.
    Index(&'t TableCodec, IndexId),
}

impl Target<'_> {
    fn codec(&self) -> &TableCodec {
        match self {
            Target::Table(codec) | Target::Index(codec, _) => codec,
        }
    }

    /// Key, value and whether the key must be new.
    fn entries(&self, row: &Row) -> SqlResult<Vec<(Bytes, Bytes, bool)>> {
        let codec = self.codec();
        let row_key = codec.row_key(row)?;
        let mut entries = Vec::new();
        let wanted = |id: IndexId| match self {
            Target::Table(_) => true,
            Target::Index(_, index) => *index == id,
        };
        if let Target::Table(_) = self {
            entries.push((row_key.clone(), codec.row_value(row)?, true));
        }
        for index in codec.secondary().iter().filter(|index| wanted(index.id)) {
            let all = codec.index_entries(index, row, &row_key)?;
            entries.extend(all.map(|entry| (entry.key, entry.value, entry.unique)));
        }
        Ok(entries)
    }
}

impl DdlContext<'_> {
    /// A page of rows of a table, as the transaction sees them.
    async fn page(&self, codec: &TableCodec, span: &Span) -> SqlResult<(Vec<Row>, Option<Span>)> {
        let options = ScanOptions { limit: PAGE_ROWS, ..ScanOptions::default() };
        let page = self.open.txn.scan(span, options).await.map_err(kv_error)?;
        let rows = page.rows.iter().map(|(key, value)| codec.decode_row(key, value));
        Ok((rows.collect::<SqlResult<_>>()?, page.resume))
    }

    /// Whether a table has a row.
    pub(super) async fn has_rows(&self, table: &Arc<TableDescriptor>) -> SqlResult<bool> {
        let codec = TableCodec::new(table.clone())?;
        let options = ScanOptions { limit: 1, ..ScanOptions::default() };
        let page = self.open.txn.scan(&codec.primary().span(), options).await.map_err(kv_error)?;
        Ok(!page.rows.is_empty())
    }

    /// How many rows a table has, as the transaction sees it.
    pub(super) async fn count_rows(&self, table: &Arc<TableDescriptor>) -> SqlResult<u64> {
        count(&self.open.txn, table).await
    }

    /// Writes an index that `table` (already with the index) lacks.
    pub(super) async fn backfill(&mut self, table: &TableDescriptor, index: IndexId) -> SqlResult<()> {
        let codec = TableCodec::new(Arc::new(table.clone()))?;
        self.open.schema.clear_on_abort.push((table.storage, u64::from(index)));
        self.write_all(&codec, Target::Index(&codec, index), &mut Ok).await
    }

    /// Writes the rows of `old` anew as `new`, which has another storage number.
    pub(super) async fn rewrite(
        &mut self,
        old: &Arc<TableDescriptor>,
        new: &TableDescriptor,
        map: MapRow<'_>,
    ) -> SqlResult<()> {
        let from = TableCodec::new(old.clone())?;
        let to = TableCodec::new(Arc::new(new.clone()))?;
        self.open.schema.clear_on_abort.push((new.storage, 0));
        self.write_all(&from, Target::Table(&to), map).await?;
        self.garbage(old.storage, 0)
    }

    async fn write_all(&mut self, from: &TableCodec, target: Target<'_>, map: MapRow<'_>) -> SqlResult<()> {
        let mut span = Some(from.primary().span());
        let mut first = true;
        let mut apart = false;
        while let Some(rest) = span.take() {
            let (rows, resume) = self.page(from, &rest).await?;
            apart |= first && resume.is_some();
            first = false;
            let mut entries = Vec::with_capacity(rows.len());
            for row in rows {
                let mut row = map(row)?;
                if let Target::Table(codec) = target {
                    codec.generate(&mut row)?;
                }
                entries.extend(target.entries(&row)?);
            }
            if apart {
                let txn = self.engine().kv.begin(TxnOptions::default());
                put(&txn, &target, entries).await?;
                txn.commit().await.map_err(|error| duplicate(error, &target))?;
            } else {
                put(&self.open.txn, &target, entries).await?;
            }
            self.view.shared.cancel.0.flag.check()?;
            span = resume;
        }
        if apart {
            // What was written apart lies after the transaction's snapshot.
            self.open.txn.refresh().await.map_err(kv_error)?;
        }
        Ok(())
    }
}

async fn count(txn: &Txn, table: &Arc<TableDescriptor>) -> SqlResult<u64> {
    let mut span = Some(TableCodec::new(table.clone())?.primary().span());
    let mut count = 0;
    while let Some(rest) = span.take() {
        let options = ScanOptions { target_bytes: 1 << 20, ..ScanOptions::default() };
        let page = txn.scan(&rest, options).await.map_err(kv_error)?;
        count += page.rows.len() as u64;
        span = page.resume;
    }
    Ok(count)
}

/// Writes entries. Those of an inverted index are many more than rows, so they are sent on the way.
async fn put(txn: &Txn, target: &Target<'_>, entries: Vec<(Bytes, Bytes, bool)>) -> SqlResult<()> {
    for (key, value, is_new) in entries {
        let written = if is_new { txn.put_if_absent(&key, value) } else { txn.put(&key, value) };
        written.map_err(|error| duplicate(error, target))?;
        txn.flush_if_large().await.map_err(|error| duplicate(error, target))?;
    }
    Ok(())
}

/// `23505` with the values that occur twice.
fn duplicate(error: KvError, target: &Target<'_>) -> SqlError {
    if error.kind() != KvErrorKind::ConditionFailed {
        return kv_error(error);
    }
    match error.key.as_ref().and_then(|key| duplicated(target.codec(), key)) {
        Some(duplicate) => duplicate,
        None => kv_error(error),
    }
}

/// `23505` for a key that two rows have.
pub(super) fn duplicate_key(codec: &TableCodec, key: &[u8]) -> SqlError {
    duplicated(codec, key)
        .unwrap_or_else(|| SqlError::new(SqlState::UNIQUE_VIOLATION, "could not create unique index"))
}

fn duplicated(codec: &TableCodec, key: &[u8]) -> Option<SqlError> {
    let table = codec.table();
    let (_, id, _) = crate::table::codec::split_key(key)?;
    let index = table.index(id)?;
    let (values, _) = codec.index(id).ok()?.decode_columns(key).ok()?;
    let columns = crate::table::key_names(table, index);
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let context = sql_types::context::TextContext::plain();
    let shown = columns.iter().zip(&values).map(|((_, ty), value)| {
        let mut text = String::new();
        sql_types::text::format(value, *ty, &context, &mut text);
        text
    });
    let shown: Vec<String> = shown.collect();
    let message = format!("could not create unique index \"{}\"", index.name);
    let detail = format!("Key ({})=({}) is duplicated.", names.join(", "), shown.join(", "));
    let mut error = SqlError::new(SqlState::UNIQUE_VIOLATION, message).with_detail(detail);
    error.extra_mut().table = Some(table.name.clone());
    error.extra_mut().constraint = Some(index.name.clone());
    Some(error)
}
