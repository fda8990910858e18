//! Many reads of one call: shared out among the ranges that hold what they read.
//!
//! In one range, which is the rule, they go in one batch (or few, if they are many). In several, the first batch of
//! a transaction without a snapshot goes alone, for it brings the snapshot; the others go together. What was split
//! meanwhile is shared out anew.

use super::options::{ReadOptions, ScanOptions, ScanPage};
use super::read::{MAX_SPLITS, get_request, scan_begin, scan_request};
use super::state::State;
use super::{Txn, aborted_if_lost, split_without_end};
use crate::join::try_all;
use crate::located::Located;
use crate::router::SendError;
use bytes::Bytes;
use kv_api::batch::Response;
use kv_api::{KvResult, Request, Span};

/// Most reads of one batch.
const MAX_READS: usize = 10_000;

/// One of many reads.
trait Read: Send {
    /// The key that says which range it is for, and whether that is the range right below the key.
    fn begin(&self) -> (&Bytes, bool);

    /// What is asked of a range that holds where it begins.
    fn request(&mut self, range: &Located) -> Request;

    /// Takes the answer.
    fn finish(&mut self, txn: &Txn, state: &mut State, range_id: u64, response: Response);
}

/// The reads for one range.
struct Group<R> {
    range_id: u64,
    reads: Vec<R>,
}

/// A key to read and where the value goes.
struct ReadKey<'a> {
    key: Bytes,
    value: &'a mut Option<Bytes>,
    options: ReadOptions,
}

impl Read for ReadKey<'_> {
    fn begin(&self) -> (&Bytes, bool) {
        (&self.key, false)
    }

    fn request(&mut self, _: &Located) -> Request {
        get_request(&self.key, self.options)
    }

    fn finish(&mut self, txn: &Txn, state: &mut State, range_id: u64, response: Response) {
        txn.note_read(state, range_id, &Span::point(self.key.clone()), self.options, 1);
        *self.value = state.buffer.get_before(&self.key, self.options.unseen()).unwrap_or(response.value);
    }
}

/// A span to read a page of.
struct ReadSpan<'a> {
    span: Span,
    /// What lies in the range.
    here: Span,
    page: &'a mut ScanPage,
    options: &'a ScanOptions,
}

impl Read for ReadSpan<'_> {
    fn begin(&self) -> (&Bytes, bool) {
        (scan_begin(&self.span, self.options), self.options.reverse)
    }

    fn request(&mut self, range: &Located) -> Request {
        self.here = range.clip(&self.span).unwrap_or_else(|| self.span.clone());
        scan_request(&self.here, self.options)
    }

    fn finish(&mut self, txn: &Txn, state: &mut State, range_id: u64, found: Response) {
        let spans = [&self.span, &self.here];
        *self.page = txn.page(state, range_id, spans, self.options, found.rows, found.resume);
    }
}

impl Txn {
    /// Reads keys, in one batch for each range (or few, if they are many).
    ///
    /// # Errors
    /// As for [`Txn::get`].
    pub async fn get_many(
        &self,
        keys: &[Bytes],
        options: impl Into<ReadOptions>,
    ) -> KvResult<Vec<Option<Bytes>>> {
        let options = options.into();
        let mut values = vec![None; keys.len()];
        let mut missing = Vec::with_capacity(keys.len());
        for (key, value) in keys.iter().zip(&mut values) {
            let full = self.client.tenant().prefixed(key);
            match self.written(&full, options)? {
                Some(written) => *value = written,
                None => missing.push(ReadKey { key: full, value, options }),
            }
        }
        self.read_groups(missing, options, 0).await?;
        Ok(values)
    }

    /// Reads the first page of several spans, in one batch for each range. The target of bytes holds for all of
    /// them together; pages that found no room are empty, with the whole span left.
    ///
    /// # Errors
    /// As for [`Txn::get`].
    pub async fn scan_many(&self, spans: &[Span], options: ScanOptions) -> KvResult<Vec<ScanPage>> {
        let mut pages = vec![ScanPage::default(); spans.len()];
        let wanted = spans
            .iter()
            .map(|span| self.client.full_span(span))
            .zip(&mut pages)
            .filter(|(span, _)| span.start < span.end)
            .map(|(span, page)| ReadSpan { here: span.clone(), span, page, options: &options })
            .collect();
        self.state.lock().check_open()?;
        self.read_groups(wanted, options.read, options.target_bytes).await?;
        Ok(pages)
    }

    async fn read_groups<R: Read>(
        &self,
        mut reads: Vec<R>,
        options: ReadOptions,
        target_bytes: u64,
    ) -> KvResult<()> {
        for _ in 0..MAX_SPLITS {
            if reads.is_empty() {
                return Ok(());
            }
            let mut groups = self.group(reads).await?.into_iter();
            let target = target_bytes.div_ceil(groups.len().max(1) as u64);
            reads = Vec::new();
            if self.read_timestamp().is_none()
                && let Some(first) = groups.next()
            {
                reads = self.read_group(first, options, target).await?;
            }
            let left = groups.map(|group| self.read_group(group, options, target)).collect();
            let left = try_all(left).await?;
            reads.extend(left.into_iter().flatten());
        }
        if reads.is_empty() { Ok(()) } else { Err(split_without_end()) }
    }

    /// Shares reads out among the ranges.
    async fn group<R: Read>(&self, reads: Vec<R>) -> KvResult<Vec<Group<R>>> {
        if let Some(range_id) = self.common_range(&reads) {
            return Ok(vec![Group { range_id, reads }]);
        }
        let mut groups: Vec<Group<R>> = Vec::new();
        for read in reads {
            let (key, before) = read.begin();
            let range_id = self.locate(key, before).await?;
            // Reads come in the order of keys as a rule.
            match groups.iter_mut().rev().find(|group| group.range_id == range_id) {
                Some(group) => group.reads.push(read),
                None => groups.push(Group { range_id, reads: vec![read] }),
            }
        }
        Ok(groups)
    }

    /// The range that all reads are for, if it is known and only one.
    fn common_range<R: Read>(&self, reads: &[R]) -> Option<u64> {
        let state = self.state.lock();
        let range_of = |read: &R| {
            let (key, before) = read.begin();
            state.parts.locate(key, before)
        };
        let first = range_of(reads.first()?)?;
        let part = state.parts.get(first)?;
        let same = |read: &R| match read.begin() {
            (key, true) => part.at.holds_before(key),
            (key, false) => part.at.holds(key),
        };
        reads.iter().all(same).then_some(first)
    }

    /// Reads a group; returns what must be shared out anew.
    async fn read_group<R: Read>(
        &self,
        group: Group<R>,
        options: ReadOptions,
        target_bytes: u64,
    ) -> KvResult<Vec<R>> {
        let Group { range_id, mut reads } = group;
        let mut done = 0;
        while done < reads.len() {
            let end = reads.len().min(done + MAX_READS);
            let chunk = reads.get_mut(done..end).unwrap_or_default();
            let Some(at) = self.state.lock().parts.get(range_id).map(|part| part.at.clone()) else { break };
            let requests = chunk.iter_mut().map(|read| read.request(&at)).collect();
            let sent = self.read(range_id, requests, options, target_bytes, |state, response| {
                for (read, response) in chunk.iter_mut().zip(response.responses) {
                    read.finish(self, state, range_id, response);
                }
            });
            match sent.await {
                Ok(()) => done = end,
                Err(SendError::Split) => {
                    self.forget_range(range_id)?;
                    break;
                }
                Err(error) => return Err(aborted_if_lost(error)),
            }
        }
        reads.drain(..done);
        Ok(reads)
    }
}
