//! Scans of stored tables.

use super::eval::is_true;
use super::kv;
use super::operator::{BATCH_ROWS, Batch, Operator};
use super::project::row_count;
use super::scan_keys::{self, Keys};
use super::scope::Scope;
use super::ExecContext;
use crate::catalog::descriptor::{ColumnId, IndexId, PRIMARY_INDEX, TableDescriptor};
use crate::plan::{Expr, IndexAccess, Plan, PlanKind, RowLock};
use crate::table::{Projection, TableCodec};
use async_trait::async_trait;
use bytes::Bytes;
use kv_api::Span;
use sql_types::{Row, SqlError, SqlResult};
use std::collections::VecDeque;
use std::sync::Arc;

/// Rows of one page at most.
const LARGEST_PAGE: usize = 8 * BATCH_ROWS;
/// Rows of the first page where a filter hides how many will be needed.
const FIRST_FILTERED_PAGE: usize = 128;

/// The parts of a scan node.
#[derive(Clone, Copy)]
struct Node<'p> {
    plan: &'p Plan,
    table: &'p Arc<TableDescriptor>,
    index: IndexId,
    access: &'p IndexAccess,
    columns: &'p [ColumnId],
    filter: Option<&'p Expr>,
    reverse: bool,
    lock: Option<RowLock>,
    limit: Option<&'p Expr>,
}

impl<'p> Node<'p> {
    fn of(plan: &'p Plan) -> Option<Self> {
        match &plan.kind {
            PlanKind::Scan { table, index, access, columns, filter, reverse, lock, limit } => Some(Node {
                plan,
                table,
                index: *index,
                access,
                columns,
                filter: filter.as_ref(),
                reverse: *reverse,
                lock: *lock,
                limit: limit.as_ref(),
            }),
            _ => None,
        }
    }
}

/// How the rows of one scan are decoded.
struct Reader {
    codec: Arc<TableCodec>,
    /// Decodes rows.
    rows: Projection,
    /// Decodes entries of the secondary index scanned, if they hold every wanted column.
    entries: Option<Projection>,
}

impl Reader {
    fn new(node: Node<'_>, cx: &ExecContext<'_>) -> SqlResult<Self> {
        let codec = cx.codecs.get(node.table)?;
        let rows = Projection::new(&codec, PRIMARY_INDEX, node.columns)?;
        let entries = match node.index {
            PRIMARY_INDEX => None,
            index => Some(Projection::new(&codec, index, node.columns)?)
                .filter(|entries| entries.covering() && node.lock.is_none()),
        };
        Ok(Reader { codec, rows, entries })
    }

    /// The key of the row that an entry of a secondary index leads to.
    fn row_key(&self, index: IndexId, key: &[u8], value: &[u8]) -> SqlResult<Bytes> {
        let index = self.codec.index(index)?;
        Ok(self.codec.row_key_of(&self.codec.entry_primary_bytes(index, key, value)?))
    }
}

/// A key and its value.
type Entry = (Bytes, Bytes);

/// What is left to read.
enum Rest {
    NotStarted,
    Points(std::vec::IntoIter<Bytes>),
    Spans(VecDeque<Span>),
}

pub(crate) struct Scan<'p> {
    node: Node<'p>,
    scope: Scope<'p>,
    reader: Option<Reader>,
    rest: Rest,
    page: usize,
    /// The limit hint, where no filter stands between it and what is read.
    limit: Option<usize>,
}

impl<'p> Scan<'p> {
    pub fn new(plan: &'p Plan, scope: &Scope<'p>) -> SqlResult<Self> {
        let node = Node::of(plan).ok_or_else(|| SqlError::internal("a scan of something else"))?;
        Ok(Scan { node, scope: scope.clone(), reader: None, rest: Rest::NotStarted, page: 0, limit: None })
    }

    fn start(&mut self, cx: &ExecContext<'_>) -> SqlResult<Reader> {
        let reader = Reader::new(self.node, cx)?;
        if self.node.filter.is_none() {
            let limit = row_count(self.node.limit, &self.scope, cx)?;
            self.limit = limit.and_then(|limit| usize::try_from(limit).ok());
        }
        let index = reader.codec.index(self.node.index)?;
        self.rest = match scan_keys::keys(index, self.node.access, &self.scope.env(cx))? {
            Keys::Points(mut keys) => {
                if self.node.reverse {
                    keys.reverse();
                }
                Rest::Points(keys.into_iter())
            }
            Keys::Spans(mut spans) => {
                if self.node.reverse {
                    spans.reverse();
                }
                Rest::Spans(spans.into())
            }
        };
        Ok(reader)
    }

    /// The lock to take while reading the scanned index itself.
    fn index_lock(&self) -> Option<RowLock> {
        self.node.lock.filter(|_| self.node.index == PRIMARY_INDEX)
    }

    /// Further entries of the index; empty at the end.
    async fn entries(&mut self, cx: &ExecContext<'_>, limit: usize) -> SqlResult<Vec<Entry>> {
        let lock = self.index_lock();
        loop {
            match &mut self.rest {
                Rest::NotStarted => return Ok(Vec::new()),
                Rest::Points(keys) => {
                    let keys: Vec<Bytes> = keys.by_ref().take(limit).collect();
                    if keys.is_empty() {
                        return Ok(Vec::new());
                    }
                    let found = kv::get_many(cx, &keys, lock).await?;
                    let entries: Vec<Entry> =
                        keys.into_iter().zip(found).filter_map(|(key, value)| Some((key, value?))).collect();
                    if !entries.is_empty() {
                        return Ok(entries);
                    }
                }
                Rest::Spans(spans) => {
                    let Some(span) = spans.pop_front() else { return Ok(Vec::new()) };
                    let page = kv::scan_page(cx, &span, self.node.reverse, limit, lock).await?;
                    spans.extend_front_one(page.resume);
                    if !page.rows.is_empty() {
                        return Ok(page.rows);
                    }
                }
            }
            cx.cancel.check()?;
        }
    }

    /// Keeps the rows the filter accepts.
    fn filter(&self, batch: &mut Batch, cx: &ExecContext<'_>) -> SqlResult<()> {
        let Some(filter) = self.node.filter else { return Ok(()) };
        let before = batch.len();
        super::project::retain(batch, filter, &self.scope, cx)?;
        if let Some(stats) = cx.stats {
            stats.update(self.node.plan, |stats| stats.removed += (before - batch.len()) as u64);
        }
        Ok(())
    }

    fn page_limit(&mut self, want: usize) -> usize {
        let first = if self.node.filter.is_some() { want.max(FIRST_FILTERED_PAGE) } else { want.max(1) };
        let steady = self.node.filter.is_none() && want < BATCH_ROWS;
        let next = if self.page == 0 || steady { first } else { self.page * 4 };
        self.page = next.min(LARGEST_PAGE);
        // One more than asked for would be read for nothing.
        self.limit.map_or(self.page, |limit| self.page.min(limit.max(1)))
    }
}

/// Rows of entries of the scanned index.
async fn decode(node: Node<'_>, reader: &Reader, entries: &[Entry], cx: &ExecContext<'_>) -> SqlResult<Batch> {
    let codec = &reader.codec;
    if node.index == PRIMARY_INDEX {
        return entries.iter().map(|(key, value)| reader.rows.decode(codec, key, value)).collect();
    }
    if let Some(projection) = &reader.entries {
        return entries.iter().map(|(key, value)| projection.decode(codec, key, value)).collect();
    }
    let keys = entries
        .iter()
        .map(|(key, value)| reader.row_key(node.index, key, value))
        .collect::<SqlResult<Vec<_>>>()?;
    let rows = kv::get_many(cx, &keys, node.lock).await?;
    keys.iter()
        .zip(rows)
        .filter_map(|(key, value)| value.map(|value| reader.rows.decode(codec, key, &value)))
        .collect()
}

trait FrontOne {
    fn extend_front_one(&mut self, span: Option<Span>);
}

impl FrontOne for VecDeque<Span> {
    fn extend_front_one(&mut self, span: Option<Span>) {
        if let Some(span) = span {
            self.push_front(span);
        }
    }
}

#[async_trait]
impl Operator for Scan<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None if matches!(self.rest, Rest::NotStarted) => self.start(cx)?,
            None => return Ok(None),
        };
        loop {
            let limit = self.page_limit(want);
            let entries = self.entries(cx, limit).await?;
            if entries.is_empty() {
                return Ok(None);
            }
            let large = entries.len() >= BATCH_ROWS;
            let mut batch = decode(self.node, &reader, &entries, cx).await?;
            self.filter(&mut batch, cx)?;
            if !batch.is_empty() {
                self.reader = Some(reader);
                return Ok(Some(batch));
            }
            if large {
                cx.pause().await?;
            }
        }
    }
}

/// The right side of a nested loop that finds at most one row by a key made from the left row.
pub(crate) struct PointLookup<'p> {
    node: Node<'p>,
    reader: Option<Reader>,
}

impl<'p> PointLookup<'p> {
    /// The look-up a plan is, if it is one.
    pub fn of(plan: &'p Plan, scope: &Scope<'p>) -> Option<Self> {
        let node = Node::of(plan).filter(|_| !scope.instrument)?;
        let index = node.table.index(node.index)?;
        let access = node.access;
        let whole = access.prefix.len() == index.columns.len() && access.in_list.is_empty();
        (index.unique && whole).then_some(PointLookup { node, reader: None })
    }

    /// The right row of each left row.
    pub async fn fetch(
        &mut self,
        left: &[Row],
        scope: &Scope<'p>,
        cx: &ExecContext<'_>,
    ) -> SqlResult<Vec<Option<Row>>> {
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => Reader::new(self.node, cx)?,
        };
        let scopes: Vec<Scope<'p>> = left.iter().map(|row| scope.with_row(row.clone())).collect();
        let mut keys = Vec::with_capacity(left.len());
        let mut wanting = Vec::with_capacity(left.len());
        {
            let index = reader.codec.index(self.node.index)?;
            for (position, scope) in scopes.iter().enumerate() {
                if let Some(key) = scan_keys::point(index, self.node.access, &scope.env(cx))? {
                    keys.push(key);
                    wanting.push(position);
                }
            }
        }
        let mut rows: Vec<Option<Row>> = vec![None; left.len()];
        let primary = self.node.index == PRIMARY_INDEX;
        let lock = self.node.lock.filter(|_| primary);
        let mut values = kv::get_many(cx, &keys, lock).await?;
        if !primary && reader.entries.is_none() {
            (keys, values, wanting) = self.follow(&reader, keys, values, wanting, cx).await?;
        }
        let projection = reader.entries.as_ref().unwrap_or(&reader.rows);
        for ((position, key), value) in wanting.into_iter().zip(&keys).zip(values) {
            let Some(value) = value else { continue };
            let row = projection.decode(&reader.codec, key, &value)?;
            let keep = match self.node.filter {
                Some(filter) => is_true(filter, &row, &scopes[position].env(cx))?,
                None => true,
            };
            if keep {
                rows[position] = Some(row);
            }
        }
        self.reader = Some(reader);
        Ok(rows)
    }

    /// From index entries to rows.
    #[allow(clippy::type_complexity, reason = "three parallel lists")]
    async fn follow(
        &self,
        reader: &Reader,
        keys: Vec<Bytes>,
        values: Vec<Option<Bytes>>,
        wanting: Vec<usize>,
        cx: &ExecContext<'_>,
    ) -> SqlResult<(Vec<Bytes>, Vec<Option<Bytes>>, Vec<usize>)> {
        let mut row_keys = Vec::with_capacity(keys.len());
        let mut positions = Vec::with_capacity(keys.len());
        for ((key, value), position) in keys.iter().zip(values).zip(wanting) {
            if let Some(value) = value {
                row_keys.push(reader.row_key(self.node.index, key, &value)?);
                positions.push(position);
            }
        }
        let rows = kv::get_many(cx, &row_keys, self.node.lock).await?;
        Ok((row_keys, rows, positions))
    }
}
