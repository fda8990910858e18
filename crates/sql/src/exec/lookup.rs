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

/// Left rows looked up at once.
pub(super) const LOOKUP_ROWS: usize = 128;

/// An index scan run for a batch of left rows.
pub(super) struct Lookup<'p> {
    node: Node<'p>,
    reader: Option<Reader>,
    memory: Reservation,
}

impl<'p> Lookup<'p> {
    /// The look-up a plan is, if it is one. With `first_only`, no more than one row per left row will
    /// be used: then only accesses that find at most one are taken.
    pub fn of(plan: &'p Plan, first_only: bool) -> Option<Self> {
        let node = Node::of(plan).filter(|node| !node.is_inverted() && (!first_only || node.is_point()))?;
        Some(Lookup { node, reader: None, memory: Reservation::default() })
    }

    /// The right rows of each left row.
    pub async fn fetch(
        &mut self,
        left: &[Row],
        scope: &Scope<'p>,
        cx: &ExecContext<'_>,
    ) -> SqlResult<Vec<Vec<Row>>> {
        let cx = &self.node.context(scope, cx);
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => Reader::new(self.node, cx)?,
        };
        self.memory.release();
        let start = cx.stats.map(|_| Instant::now());
        let scopes: Vec<Scope<'p>> = left.iter().map(|row| scope.with_row(row.clone())).collect();
        let entries = self.entries(&reader, &scopes, cx).await?;
        let (owners, entries): (Vec<usize>, Vec<Entry>) = entries.into_iter().unzip();
        let found = decode_each(self.node, &reader, &entries, cx).await?;
        let mut rows: Vec<Vec<Row>> = vec![Vec::new(); left.len()];
        let (mut kept, mut removed) = (0, 0);
        for (owner, row) in owners.into_iter().zip(found) {
            let Some(row) = row else { continue };
            let keep = match self.node.filter {
                Some(filter) => is_true(filter, &row, &scopes[owner].env(cx))?,
                None => true,
            };
            if keep {
                rows[owner].push(row);
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
        self.memory.grow(cx.memory, rows.iter().map(|rows| batch_bytes(rows)).sum())?;
        self.reader = Some(reader);
        Ok(rows)
    }

    /// The entries of the index for each left row, with the position of the left row.
    async fn entries(
        &self,
        reader: &Reader,
        scopes: &[Scope<'p>],
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
        self.scan(spans, span_owners, &mut entries, cx).await?;
        Ok(entries)
    }

    /// Reads spans, many at once; the rest of those that did not fit a page one by one.
    async fn scan(
        &self,
        spans: Vec<Span>,
        owners: Vec<usize>,
        entries: &mut Vec<(usize, Entry)>,
        cx: &ExecContext<'_>,
    ) -> SqlResult<()> {
        if spans.is_empty() {
            return Ok(());
        }
        let lock = self.node.index_lock();
        let pages = kv::scan_many(cx, &spans, self.node.reverse, 0, lock).await?;
        for (owner, mut page) in owners.into_iter().zip(pages) {
            loop {
                entries.extend(page.rows.into_iter().map(|entry| (owner, entry)));
                let Some(rest) = page.resume else { break };
                cx.cancel.check()?;
                page = kv::scan_page(cx, &rest, self.node.reverse, 0, lock).await?;
            }
        }
        Ok(())
    }
}
