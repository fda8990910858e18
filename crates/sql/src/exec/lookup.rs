//! The right side of a lateral join that is an index scan by values of the left row: read for many left
//! rows at once.

use super::eval::is_true;
use super::relation::batch_bytes;
use super::scan::{Entry, Node, Reader, decode_each};
use super::scan_keys::{self, Keys};
use super::scope::Scope;
use super::{ExecContext, Reservation, kv};
use crate::plan::Plan;
use kv_api::Span;
use sql_types::{Row, SqlResult};
use std::time::Instant;

/// Left rows looked up at once, at first.
const FIRST_ROWS: usize = 128;
/// Left rows looked up at once, at most.
const MOST_ROWS: usize = 1024;
/// Found rows that are enough for a batch: more of them and fewer left rows are looked up at once.
const ENOUGH_BYTES: usize = 1 << 20;

/// Entries read of each span at first if one match is enough. As a rule it is among them; others are read when it is not.
const FIRST_ENTRIES: usize = 8;

/// An index scan run for a batch of left rows.
pub(super) struct Lookup<'p> {
    node: Node<'p>,
    /// Whether one match per left row is enough.
    first_only: bool,
    reader: Option<Reader>,
    at_once: usize,
    memory: Reservation,
    /// What is held of the rows that were not among the first.
    more: Reservation,
}

/// The right rows of a left row.
#[derive(Clone, Default)]
pub(super) struct Found {
    /// Those that were read.
    pub rows: Vec<Row>,
    /// Where there may be more; only if one match is enough.
    pub rest: Vec<Span>,
}

impl<'p> Lookup<'p> {
    /// The look-up a plan is, if it is one. With `first_only`, no more than one match per left row will
    /// be used: then few entries are read at first, and [`Lookup::more`] reads on.
    pub fn of(plan: &'p Plan, first_only: bool) -> Option<Self> {
        let node = Node::of(plan).filter(|node| !node.is_inverted())?;
        let (memory, more) = (Reservation::default(), Reservation::default());
        Some(Lookup { node, first_only, reader: None, at_once: FIRST_ROWS, memory, more })
    }

    /// Left rows that should be looked up together now. The larger a batch the less each row's share of what a batch costs,
    /// so batches grow while what they find stays small.
    pub fn at_once(&self) -> usize {
        self.at_once
    }

    fn adjust(&mut self, found: usize) {
        if found > ENOUGH_BYTES {
            self.at_once = (self.at_once / 2).max(1);
        } else if found < ENOUGH_BYTES / 2 {
            self.at_once = (self.at_once * 2).min(MOST_ROWS);
        }
    }

    /// The right rows of each left row.
    pub async fn fetch(
        &mut self,
        left: &[Row],
        scope: &Scope<'p>,
        cx: &ExecContext<'_>,
    ) -> SqlResult<Vec<Found>> {
        let cx = &self.node.context(scope, cx);
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => Reader::new(self.node, cx)?,
        };
        self.memory.release();
        self.more.release();
        let start = cx.stats.map(|_| Instant::now());
        let scopes: Vec<Scope<'p>> = left.iter().map(|row| scope.with_row(row.clone())).collect();
        let mut results = vec![Found::default(); left.len()];
        let entries = self.entries(&reader, &scopes, &mut results, cx).await?;
        let (owners, entries): (Vec<usize>, Vec<Entry>) = entries.into_iter().unzip();
        let found = decode_each(self.node, &reader, &entries, cx).await?;
        let (mut kept, mut removed) = (0, 0);
        for (owner, row) in owners.into_iter().zip(found) {
            let Some(row) = row else { continue };
            if self.keeps(&row, &scopes[owner], cx)? {
                results[owner].rows.push(row);
                kept += 1;
            } else {
                removed += 1;
            }
        }
        if let (Some(stats), Some(start)) = (cx.stats, start) {
            stats.update(self.node.plan(), |stats| {
                stats.loops += left.len() as u64;
                stats.rows += kept;
                stats.removed += removed;
                stats.time += start.elapsed();
            });
        }
        let bytes = results.iter().map(|found| batch_bytes(&found.rows)).sum();
        self.memory.grow(cx.memory, bytes)?;
        self.adjust(bytes);
        self.reader = Some(reader);
        Ok(results)
    }

    /// The next right rows of one left row; none if there are no more.
    pub async fn more(
        &mut self,
        left: &Row,
        rest: &mut Vec<Span>,
        scope: &Scope<'p>,
        cx: &ExecContext<'_>,
    ) -> SqlResult<Vec<Row>> {
        let cx = &self.node.context(scope, cx);
        let Some(reader) = &self.reader else { return Ok(Vec::new()) };
        self.more.release();
        let start = cx.stats.map(|_| Instant::now());
        let scope = scope.with_row(left.clone());
        let mut rows = Vec::new();
        let mut removed = 0;
        while rows.is_empty()
            && let Some(span) = rest.pop()
        {
            cx.cancel.check()?;
            let page = kv::scan_page(cx, &span, self.node.reverse, 0, self.node.index_lock()).await?;
            rest.extend(page.resume);
            for row in decode_each(self.node, reader, &page.rows, cx).await?.into_iter().flatten() {
                if self.keeps(&row, &scope, cx)? { rows.push(row) } else { removed += 1 }
            }
        }
        if let (Some(stats), Some(start)) = (cx.stats, start) {
            stats.update(self.node.plan(), |stats| {
                stats.rows += rows.len() as u64;
                stats.removed += removed;
                stats.time += start.elapsed();
            });
        }
        self.more.grow(cx.memory, batch_bytes(&rows))?;
        Ok(rows)
    }

    fn keeps(&self, row: &Row, scope: &Scope<'p>, cx: &ExecContext<'_>) -> SqlResult<bool> {
        self.node.filter.map_or(Ok(true), |filter| is_true(filter, row, &scope.env(cx)))
    }

    /// The entries of the index for each left row, with the position of the left row. Notes in `results` what was not
    /// read.
    async fn entries(
        &self,
        reader: &Reader,
        scopes: &[Scope<'p>],
        results: &mut [Found],
        cx: &ExecContext<'_>,
    ) -> SqlResult<Vec<(usize, Entry)>> {
        let (mut keys, mut key_owners) = (Vec::new(), Vec::new());
        let (mut spans, mut span_owners) = (Vec::new(), Vec::new());
        let index = reader.codec.index(self.node.index)?;
        for (owner, scope) in scopes.iter().enumerate() {
            match scan_keys::keys(index, self.node.access, &scope.env(cx))? {
                Keys::Points(mut points) => {
                    if self.node.reverse {
                        points.reverse();
                    }
                    key_owners.extend(std::iter::repeat_n(owner, points.len()));
                    keys.extend(points);
                }
                Keys::Spans(mut parts) => {
                    if self.node.reverse {
                        parts.reverse();
                    }
                    span_owners.extend(std::iter::repeat_n(owner, parts.len()));
                    spans.extend(parts);
                }
            }
        }
        let values = kv::get_many(cx, &keys, self.node.index_lock()).await?;
        let points = key_owners.into_iter().zip(keys.into_iter().zip(values));
        let mut entries: Vec<(usize, Entry)> =
            points.filter_map(|(owner, (key, value))| Some((owner, (key, value?)))).collect();
        self.scan(spans, span_owners, &mut entries, results, cx).await?;
        Ok(entries)
    }

    /// Reads spans, many at once; the rest of those that did not fit a page one by one, or not at all if one match is
    /// enough.
    async fn scan(
        &self,
        spans: Vec<Span>,
        owners: Vec<usize>,
        entries: &mut Vec<(usize, Entry)>,
        results: &mut [Found],
        cx: &ExecContext<'_>,
    ) -> SqlResult<()> {
        if spans.is_empty() {
            return Ok(());
        }
        let lock = self.node.index_lock();
        let limit = if self.first_only { FIRST_ENTRIES } else { 0 };
        let pages = kv::scan_many(cx, &spans, self.node.reverse, limit, lock).await?;
        for (owner, mut page) in owners.into_iter().zip(pages) {
            loop {
                entries.extend(page.rows.into_iter().map(|entry| (owner, entry)));
                let Some(rest) = page.resume else { break };
                if self.first_only {
                    results[owner].rest.push(rest);
                    break;
                }
                cx.cancel.check()?;
                page = kv::scan_page(cx, &rest, self.node.reverse, 0, lock).await?;
            }
        }
        Ok(())
    }
}
