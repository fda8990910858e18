//! Reads and writes of the statement's transaction, as operators use them.

use super::{ExecContext, kv_error};
use crate::plan::RowLock;
use bytes::Bytes;
use kv_api::columns::Program;
use kv_api::{KvError, Span};
use kv_client::{ColumnPage, ReadOptions, ScanOptions};
use sql_types::SqlResult;

/// Entries of an index, and where to go on.
pub(crate) struct Page {
    pub rows: Vec<(Bytes, Bytes)>,
    pub resume: Option<Span>,
}

fn read(cx: &ExecContext<'_>, lock: Option<RowLock>) -> ReadOptions {
    match lock {
        Some(lock) => ReadOptions { lock: lock.strength, wait: lock.wait, before: None },
        None => ReadOptions { before: cx.before, ..ReadOptions::default() },
    }
}

/// The value of a key.
pub(crate) async fn get(
    cx: &ExecContext<'_>,
    key: &Bytes,
    lock: Option<RowLock>,
) -> SqlResult<Option<Bytes>> {
    let value = cx.txn.get(key, read(cx, lock)).await.map_err(kv_error)?;
    if let Some(stats) = cx.stats {
        stats.note_read(value.as_ref().map_or(0, |value| key.len() + value.len()));
    }
    Ok(value)
}

/// The values of keys, in their order.
pub(crate) async fn get_many(
    cx: &ExecContext<'_>,
    keys: &[Bytes],
    lock: Option<RowLock>,
) -> SqlResult<Vec<Option<Bytes>>> {
    match keys {
        [] => Ok(Vec::new()),
        [key] => Ok(vec![get(cx, key, lock).await?]),
        _ => {
            let values = cx.txn.get_many(keys, read(cx, lock)).await.map_err(kv_error)?;
            if let Some(stats) = cx.stats {
                let found = keys.iter().zip(&values).filter_map(|(key, value)| Some((key, value.as_ref()?)));
                stats.note_read(found.map(|(key, value)| key.len() + value.len()).sum());
            }
            Ok(values)
        }
    }
}

/// The first entries of a span, about `limit` of them.
pub(crate) async fn scan_page(
    cx: &ExecContext<'_>,
    span: &Span,
    reverse: bool,
    limit: usize,
    lock: Option<RowLock>,
) -> SqlResult<Page> {
    let options =
        ScanOptions { reverse, limit: limit as u64, target_bytes: PAGE_BYTES, read: read(cx, lock) };
    let page = cx.txn.scan(span, options).await.map_err(kv_error)?;
    if let Some(stats) = cx.stats {
        stats.note_read(bytes(&page.rows));
    }
    Ok(Page { rows: page.rows, resume: page.resume })
}

/// The parts of a span that can be read side by side.
pub(crate) async fn parts_by_range(cx: &ExecContext<'_>, span: &Span) -> SqlResult<Vec<Span>> {
    cx.txn.parts_by_range(span).await.map_err(kv_error)
}

/// The first rows of a span, as columns.
pub(crate) async fn scan_columns(
    cx: &ExecContext<'_>,
    span: &Span,
    program: &Program,
) -> SqlResult<ColumnPage> {
    let page = cx.txn.scan_columns(span, program).await.map_err(kv_error)?;
    if let Some(stats) = cx.stats {
        stats.note_read(page.columns.bytes());
    }
    Ok(page)
}

/// The first entries of each span, of each about `limit` of them; 0 is for no limit.
pub(crate) async fn scan_many(
    cx: &ExecContext<'_>,
    spans: &[Span],
    reverse: bool,
    limit: usize,
    lock: Option<RowLock>,
) -> SqlResult<Vec<Page>> {
    let options =
        ScanOptions { reverse, limit: limit as u64, target_bytes: PAGE_BYTES, read: read(cx, lock) };
    let pages = cx.txn.scan_many(spans, options).await.map_err(kv_error)?;
    if let Some(stats) = cx.stats {
        stats.note_read(pages.iter().map(|page| bytes(&page.rows)).sum());
    }
    Ok(pages.into_iter().map(|page| Page { rows: page.rows, resume: page.resume }).collect())
}

fn bytes(entries: &[(Bytes, Bytes)]) -> usize {
    entries.iter().map(|(key, value)| key.len() + value.len()).sum()
}

/// Bytes after which a page ends.
const PAGE_BYTES: u64 = 1 << 20;

/// Writes a value.
pub(crate) async fn put(cx: &ExecContext<'_>, key: &[u8], value: Bytes) -> Result<(), KvError> {
    cx.txn.put(key, value)?;
    make_room(cx).await
}

/// Writes a value to a key that must not exist; the flush or commit that writes it finds out.
pub(crate) async fn put_if_absent(cx: &ExecContext<'_>, key: &[u8], value: Bytes) -> Result<(), KvError> {
    cx.txn.put_if_absent(key, value)?;
    make_room(cx).await
}

/// Removes a key.
pub(crate) async fn delete(cx: &ExecContext<'_>, key: &[u8]) -> Result<(), KvError> {
    cx.txn.delete(key)?;
    make_room(cx).await
}

/// Sends the buffered writes, so that conditions among them are checked.
pub(crate) async fn flush(cx: &ExecContext<'_>) -> Result<(), KvError> {
    cx.txn.flush().await
}

async fn make_room(cx: &ExecContext<'_>) -> Result<(), KvError> {
    cx.txn.flush_if_large().await
}
