//! Scans of stored tables.
//!
//! A large scan that takes no locks and goes forward lets KV nodes filter and decode ([`ColumnRows`]); others read entries.

use super::ExecContext;
use super::eval::is_true;
use super::inverted::{self, InvertedScan};
use super::kv;
use super::operator::{BATCH_ROWS, Batch, Operator};
use super::project::row_count;
use super::scan_keys::{self, Keys};
use super::scope::Scope;
use super::sought::Sought;
use crate::analytic::{ColumnRows, Next};
use crate::catalog::descriptor::{ColumnId, IndexId, PRIMARY_INDEX, TableDescriptor};
use crate::inverted::condition::Wanted;
use crate::plan::{Expr, IndexAccess, Plan, PlanKind, RowLock};
use crate::table::{Projection, TableCodec};
use async_trait::async_trait;
use bytes::Bytes;
use kv_api::Span;
use kv_api::batch::WaitPolicy;
use sql_types::{Row, SqlError, SqlResult};
use std::collections::VecDeque;
use std::sync::Arc;

/// Rows of one page at most.
const LARGEST_PAGE: usize = 8 * BATCH_ROWS;
/// Rows of the first page where a filter hides how many will be needed.
const FIRST_FILTERED_PAGE: usize = 128;

/// The parts of a scan node.
#[derive(Clone, Copy)]
pub(crate) struct Node<'p> {
    plan: &'p Plan,
    table: &'p Arc<TableDescriptor>,
    pub index: IndexId,
    pub access: &'p IndexAccess,
    columns: &'p [ColumnId],
    pub filter: Option<&'p Expr>,
    pub reverse: bool,
    pub lock: Option<RowLock>,
    limit: Option<&'p Expr>,
}

impl<'p> Node<'p> {
    pub fn of(plan: &'p Plan) -> Option<Self> {
        match &plan.kind {
            PlanKind::Scan { table, index, access, columns, filter, reverse, lock, limit, .. } => {
                Some(Node {
                    plan,
                    table,
                    index: *index,
                    access,
                    columns,
                    filter: filter.as_ref(),
                    reverse: *reverse,
                    lock: *lock,
                    limit: limit.as_ref(),
                })
            }
            _ => None,
        }
    }

    /// The plan it is of.
    pub fn plan(&self) -> &'p Plan {
        self.plan
    }

    /// The table.
    pub fn table(&self) -> &'p Arc<TableDescriptor> {
        self.table
    }

    /// The columns wanted.
    pub fn columns(&self) -> &'p [ColumnId] {
        self.columns
    }

    /// Whether a number of rows is known that will do.
    pub fn has_limit(&self) -> bool {
        self.limit.is_some()
    }

    /// The lock to take while reading the scanned index itself.
    pub fn index_lock(&self) -> Option<RowLock> {
        self.lock.filter(|_| self.index == PRIMARY_INDEX)
    }

    /// The context to read in: rows that are locked are the present ones, and so are their entries.
    pub fn context<'a>(&self, scope: &Scope<'_>, cx: &ExecContext<'a>) -> ExecContext<'a> {
        if self.lock.is_some() { *cx } else { scope.reading(cx) }
    }

    /// Whether it reads an inverted index.
    pub fn is_inverted(&self) -> bool {
        !self.access.inverted.is_empty()
    }

    /// The same rows and more, from all of the table.
    fn of_whole_table(self) -> Self {
        static ALL: IndexAccess = IndexAccess {
            prefix: Vec::new(),
            in_list: Vec::new(),
            lower: None,
            upper: None,
            inverted: Vec::new(),
        };
        Node { index: PRIMARY_INDEX, access: &ALL, ..self }
    }
}

/// How the rows of one scan are decoded.
pub(super) struct Reader {
    pub codec: Arc<TableCodec>,
    /// Decodes rows.
    rows: Arc<Projection>,
    /// Decodes entries of the secondary index scanned, if they hold every wanted column.
    entries: Option<Arc<Projection>>,
}

impl Reader {
    pub fn new(node: Node<'_>, cx: &ExecContext<'_>) -> SqlResult<Self> {
        let codec = cx.codecs.get(node.table)?;
        let rows = codec.projection(PRIMARY_INDEX, node.columns)?;
        let entries = match node.index {
            PRIMARY_INDEX => None,
            index => Some(codec.projection(index, node.columns)?)
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
pub(super) type Entry = (Bytes, Bytes);

/// What is left to read.
enum Rest {
    NotStarted,
    Points(std::vec::IntoIter<Bytes>),
    Spans(VecDeque<Span>),
    Columns(Box<ColumnRows>),
    Inverted(Box<InvertedScan>),
}

pub(crate) struct Scan<'p> {
    node: Node<'p>,
    scope: Scope<'p>,
    reader: Option<Reader>,
    rest: Rest,
    page: usize,
    /// Keys of rows that satisfied the filter and are to be locked.
    candidates: VecDeque<Bytes>,
    /// What joins look for in columns.
    sought: Vec<(usize, Sought)>,
    /// The limit hint, where no filter stands between it and what is read.
    limit: Option<usize>,
}

impl<'p> Scan<'p> {
    pub fn new(plan: &'p Plan, scope: &Scope<'p>) -> SqlResult<Self> {
        let node = Node::of(plan).ok_or_else(|| SqlError::internal("a scan of something else"))?;
        Ok(Scan {
            node,
            scope: scope.clone(),
            reader: None,
            rest: Rest::NotStarted,
            page: 0,
            candidates: VecDeque::new(),
            sought: Vec::new(),
            limit: None,
        })
    }

    /// The scan without its filter, which somebody else applies.
    pub fn without_filter(mut self) -> Self {
        self.node.filter = None;
        self.node.limit = None;
        self
    }

    fn start(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Reader> {
        let inverted = match self.node.is_inverted() {
            true => Some(inverted::wanted(self.node, cx, &self.scope.env(cx))?),
            false => None,
        };
        if let Some(Wanted::Anything) = inverted {
            self.node = self.node.of_whole_table();
        }
        let reader = Reader::new(self.node, cx)?;
        match inverted {
            Some(Wanted::Nothing) => {
                self.rest = Rest::Points(Vec::new().into_iter());
                return Ok(reader);
            }
            Some(Wanted::Clauses(clauses)) => {
                let index = reader.codec.index(self.node.index)?;
                self.rest = Rest::Inverted(Box::new(InvertedScan::new(index, &clauses)?));
                return Ok(reader);
            }
            Some(Wanted::Anything) | None => {}
        }
        if want >= BATCH_ROWS
            && cx.before.is_none()
            && let Some(mut columns) = ColumnRows::of(self.node.plan, cx, &self.scope.env(cx))?
        {
            self.sought.iter().for_each(|(column, sought)| columns.narrow(*column, sought));
            self.rest = Rest::Columns(Box::new(columns));
            return Ok(reader);
        }
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

    /// Further entries of the index; empty at the end.
    async fn entries(
        &mut self,
        cx: &ExecContext<'_>,
        limit: usize,
        lock: Option<RowLock>,
    ) -> SqlResult<Vec<Entry>> {
        loop {
            match &mut self.rest {
                Rest::NotStarted | Rest::Columns(_) => return Ok(Vec::new()),
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
                Rest::Inverted(scan) => return scan.next(cx, limit).await,
            }
            cx.cancel.check()?;
        }
    }

    /// Rows that come as columns; none once there are no more, or the rest has to be read as entries.
    async fn next_columns(&mut self, cx: &ExecContext<'_>) -> SqlResult<Option<Batch>> {
        while let Rest::Columns(columns) = &mut self.rest {
            match columns.next(cx, self.node.plan).await? {
                Next::Rows(mut batch) => {
                    let filter = columns.filter();
                    self.keep(&mut batch, filter.as_deref(), cx)?;
                    if !batch.is_empty() {
                        return Ok(Some(batch));
                    }
                }
                Next::Rest(spans) => self.rest = Rest::Spans(spans.into()),
                Next::End => self.rest = Rest::Spans(VecDeque::new()),
            }
        }
        Ok(None)
    }

    /// Keeps the rows the filter accepts.
    fn filter(&self, batch: &mut Batch, cx: &ExecContext<'_>) -> SqlResult<()> {
        self.keep(batch, self.node.filter, cx)
    }

    fn keep(&self, batch: &mut Batch, filter: Option<&Expr>, cx: &ExecContext<'_>) -> SqlResult<()> {
        let Some(filter) = filter else { return Ok(()) };
        let before = batch.len();
        super::project::retain(batch, filter, &self.scope, cx)?;
        if let Some(stats) = cx.stats {
            stats.update(self.node.plan, |stats| stats.removed += (before - batch.len()) as u64);
        }
        Ok(())
    }

    /// The rows for NOWAIT and SKIP LOCKED with a filter: rows that do not satisfy it must not be
    /// locked, since others would then fail or miss them. So rows are read, filtered, locked as far as
    /// they are wanted, and filtered again as they are by then.
    async fn next_locked(
        &mut self,
        reader: &Reader,
        cx: &ExecContext<'_>,
        want: usize,
    ) -> SqlResult<Option<Batch>> {
        loop {
            if !self.candidates.is_empty() {
                let count = self.candidates.len().min(want.max(1));
                let keys: Vec<Bytes> = self.candidates.drain(..count).collect();
                let values = kv::get_many(cx, &keys, self.node.lock).await?;
                let found = keys.iter().zip(values).filter_map(|(key, value)| Some((key, value?)));
                let rows = found.map(|(key, value)| reader.rows.decode(&reader.codec, key, &value));
                let mut batch = rows.collect::<SqlResult<Batch>>()?;
                self.filter(&mut batch, cx)?;
                if !batch.is_empty() {
                    return Ok(Some(batch));
                }
                continue;
            }
            let limit = self.page_limit(want);
            let entries = self.entries(cx, limit, None).await?;
            if entries.is_empty() {
                return Ok(None);
            }
            let unlocked = Node { lock: None, ..self.node };
            let rows = decode_each(unlocked, reader, &entries, cx).await?;
            for ((key, value), row) in entries.iter().zip(rows) {
                let Some(row) = row else { continue };
                let keep = match self.node.filter {
                    Some(filter) => is_true(filter, &row, &self.scope.env(cx))?,
                    None => true,
                };
                if keep {
                    self.candidates.push_back(match self.node.index {
                        PRIMARY_INDEX => key.clone(),
                        index => reader.row_key(index, key, value)?,
                    });
                }
            }
            cx.pause().await?;
        }
    }

    /// Whether rows are to be filtered before they are locked.
    fn filters_first(&self) -> bool {
        self.node.filter.is_some() && self.node.lock.is_some_and(|lock| lock.wait != WaitPolicy::Block)
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

/// Rows of entries of the scanned index, in their order. An entry whose row is skipped for its lock is
/// left out.
async fn decode(
    node: Node<'_>,
    reader: &Reader,
    entries: &[Entry],
    cx: &ExecContext<'_>,
) -> SqlResult<Batch> {
    let direct = if node.index == PRIMARY_INDEX { Some(&reader.rows) } else { reader.entries.as_ref() };
    if let Some(projection) = direct {
        return entries.iter().map(|(key, value)| projection.decode(&reader.codec, key, value)).collect();
    }
    Ok(decode_each(node, reader, entries, cx).await?.into_iter().flatten().collect())
}

/// The row of each entry of the scanned index.
pub(super) async fn decode_each(
    node: Node<'_>,
    reader: &Reader,
    entries: &[Entry],
    cx: &ExecContext<'_>,
) -> SqlResult<Vec<Option<Row>>> {
    let codec = &reader.codec;
    if node.index == PRIMARY_INDEX {
        return entries.iter().map(|(key, value)| reader.rows.decode(codec, key, value).map(Some)).collect();
    }
    if let Some(projection) = &reader.entries {
        return entries.iter().map(|(key, value)| projection.decode(codec, key, value).map(Some)).collect();
    }
    let keys = entries
        .iter()
        .map(|(key, value)| reader.row_key(node.index, key, value))
        .collect::<SqlResult<Vec<_>>>()?;
    let rows = kv::get_many(cx, &keys, node.lock).await?;
    keys.iter()
        .zip(rows)
        .map(|(key, value)| value.map(|value| reader.rows.decode(codec, key, &value)).transpose())
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
        let cx = &self.node.context(&self.scope, cx);
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None if matches!(self.rest, Rest::NotStarted) => self.start(cx, want)?,
            None => return Ok(None),
        };
        if let Some(batch) = self.next_columns(cx).await? {
            self.reader = Some(reader);
            return Ok(Some(batch));
        }
        if self.filters_first() {
            let batch = self.next_locked(&reader, cx, want).await?;
            self.reader = batch.is_some().then_some(reader);
            return Ok(batch);
        }
        loop {
            let limit = self.page_limit(want);
            let entries = self.entries(cx, limit, self.node.index_lock()).await?;
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

    fn narrow(&mut self, column: usize, sought: &Sought) {
        self.sought.push((column, sought.clone()));
    }
}
