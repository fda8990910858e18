//! Reads: sent, checked against what happened meanwhile, overlaid with own writes.
//!
//! A read whose answer became stale while it was under way (see [`Seen::admit`]) is sent again. That
//! ends: each repetition is caused by a flush, a moved snapshot or another read of the same transaction
//! that made progress, and the number is bounded besides.

use super::options::{Isolation, ReadOptions, ScanOptions, ScanPage};
use super::state::{Seen, State};
use super::{TRUSTED_LOCKS, Txn, aborted_if_lost, lost, read_only};
use crate::router::{SendError, Sending};
use bytes::Bytes;
use kv_api::batch::{BatchRequest, Get, KeyValue, Refresh, RequestKind, Scan};
use kv_api::{BatchResponse, KvError, KvErrorKind, KvResult, Request, Span};

/// Most reads of one batch.
const MAX_READS: usize = 10_000;
/// Times a read is sent.
const MAX_ATTEMPTS: usize = 32;

impl Txn {
    /// Reads a key.
    ///
    /// # Errors
    /// What the KV node answers; see [`KvErrorKind`].
    pub async fn get(&self, key: &[u8], options: impl Into<ReadOptions>) -> KvResult<Option<Bytes>> {
        let full = self.client.tenant().prefixed(key);
        if let Some(written) = self.written(&full)? {
            return Ok(written);
        }
        let options = options.into();
        self.read(vec![get_request(&full, options)], options, 0, |state, response| {
            self.note_read(state, &Span::point(full.clone()), options, 1);
            let value = response.responses.into_iter().next().and_then(|response| response.value);
            // It may have been written while it was read.
            state.buffer.get(&full).unwrap_or(value)
        })
        .await
    }

    /// Reads keys, in one batch (or few, if they are many).
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
            match self.written(&full)? {
                Some(written) => *value = written,
                None => missing.push((full, value)),
            }
        }
        for chunk in missing.chunks_mut(MAX_READS) {
            let requests = chunk.iter().map(|(key, _)| get_request(key, options)).collect();
            self.read(requests, options, 0, |state, response| {
                for ((key, value), response) in chunk.iter_mut().zip(response.responses) {
                    self.note_read(state, &Span::point(key.clone()), options, 1);
                    **value = state.buffer.get(key).unwrap_or(response.value);
                }
            })
            .await?;
        }
        Ok(values)
    }

    /// Reads a page of a span. An empty end is the end of the tenant's keys.
    ///
    /// # Errors
    /// As for [`Txn::get`].
    pub async fn scan(&self, span: &Span, options: ScanOptions) -> KvResult<ScanPage> {
        let full = self.client.full_span(span);
        self.state.lock().check_open()?;
        if full.start >= full.end {
            return Ok(ScanPage::default());
        }
        let request = scan_request(&full, &options);
        self.read(vec![request], options.read, options.target_bytes, |state, response| {
            let found = response.responses.into_iter().next().unwrap_or_default();
            self.page(state, &full, &options, found.rows, found.resume)
        })
        .await
    }

    /// Reads the first page of several spans in one batch. The target of bytes holds for all of them
    /// together; pages that found no room are empty, with the whole span left.
    ///
    /// # Errors
    /// As for [`Txn::get`].
    pub async fn scan_many(&self, spans: &[Span], options: ScanOptions) -> KvResult<Vec<ScanPage>> {
        let mut pages = vec![ScanPage::default(); spans.len()];
        let mut wanted: Vec<(Span, &mut ScanPage)> = spans
            .iter()
            .map(|span| self.client.full_span(span))
            .zip(&mut pages)
            .filter(|(span, _)| span.start < span.end)
            .collect();
        self.state.lock().check_open()?;
        for chunk in wanted.chunks_mut(MAX_READS) {
            let requests = chunk.iter().map(|(span, _)| scan_request(span, &options)).collect();
            self.read(requests, options.read, options.target_bytes, |state, response| {
                for ((span, page), found) in chunk.iter_mut().zip(response.responses) {
                    **page = self.page(state, span, &options, found.rows, found.resume);
                }
            })
            .await?;
        }
        Ok(pages)
    }

    /// Moves the snapshot to the present, if nothing read so far has changed.
    ///
    /// # Errors
    /// `Retry` if something has.
    pub async fn refresh(&self) -> KvResult<()> {
        if self.read_timestamp().is_none() {
            return self.state.lock().check_open();
        }
        let refresh = RequestKind::Refresh(Refresh::default()).into();
        self.send_read(vec![refresh], ReadOptions::default(), 0, true, |_, _| ()).await
    }

    /// What the transaction itself wrote to a key and the KV node does not know.
    pub(super) fn written(&self, key: &[u8]) -> KvResult<Option<Option<Bytes>>> {
        let state = self.state.lock();
        state.check_open()?;
        Ok(state.buffer.get(key))
    }

    async fn read<T>(
        &self,
        requests: Vec<Request>,
        options: ReadOptions,
        target_bytes: u64,
        finish: impl FnOnce(&mut State, BatchResponse) -> T,
    ) -> KvResult<T> {
        if options.locks() && self.options.read_only {
            return Err(read_only());
        }
        self.send_read(requests, options, target_bytes, options.locks(), finish).await
    }

    /// Sends reads until the answer can be used, and then uses it without letting anything come between.
    /// With `validates`, the node may move the snapshot.
    async fn send_read<T>(
        &self,
        requests: Vec<Request>,
        options: ReadOptions,
        target_bytes: u64,
        validates: bool,
        finish: impl FnOnce(&mut State, BatchResponse) -> T,
    ) -> KvResult<T> {
        let mut batch = BatchRequest { requests, ..BatchRequest::default() };
        for _ in 0..MAX_ATTEMPTS {
            let (seen, known) = {
                let state = self.state.lock();
                state.check_open()?;
                batch.header = state.header(options, validates, target_bytes);
                (Seen::of(&state), state.known)
            };
            let response = if options.locks() || known {
                match self.send_bound(&mut batch, options.locks()).await {
                    Ok(response) => response,
                    Err(SendError::Lost) if !known => {
                        self.forget_lost_locks()?;
                        continue;
                    }
                    Err(SendError::Moved) => {
                        self.move_on()?;
                        continue;
                    }
                    Err(error) => return Err(aborted_if_lost(error)),
                }
            } else {
                if self.options.read_only && self.options.follower_reads && !validates {
                    // No replica but the leaseholder knows transactions.
                    (batch.header.txn, batch.header.any_replica) = (None, true);
                }
                self.client.resend(&mut batch, Sending::default()).await?
            };
            let mut state = self.state.lock();
            state.check_open()?;
            if seen.admit(&mut state, &response) {
                return Ok(finish(&mut state, response));
            }
        }
        Err(KvError::new(KvErrorKind::Retry, "reads of the transaction overlap without end"))
    }

    /// The connection was lost under the first locking read: the node has dropped whatever it locked,
    /// and nothing rests on it yet.
    fn forget_lost_locks(&self) -> KvResult<()> {
        let mut state = self.state.lock();
        if state.bound_in_flight > 0 || state.place.is_some() {
            return Err(lost());
        }
        state.become_unknown();
        Ok(())
    }

    /// Tracks a span that was read, with the number of keys locked in it.
    fn note_read(&self, state: &mut State, span: &Span, options: ReadOptions, keys: usize) {
        if options.locks() {
            state.locked_keys = state.locked_keys.saturating_add(keys);
        }
        let tracked = match self.options.isolation {
            Isolation::Serializable => !self.options.read_only,
            Isolation::ReadCommitted => options.locks() && state.locked_keys > TRUSTED_LOCKS,
        };
        if tracked {
            state.refresh.add(span);
        }
    }

    /// Turns what the KV node returned for a span into a page: own writes laid over, cut to the limit,
    /// prefixes stripped.
    fn page(
        &self,
        state: &mut State,
        span: &Span,
        options: &ScanOptions,
        rows: Vec<KeyValue>,
        resume: Option<Span>,
    ) -> ScanPage {
        let mut covered = span.clone();
        match &resume {
            Some(rest) if options.reverse => covered.start = rest.end.clone(),
            Some(rest) => covered.end = rest.start.clone(),
            None => {}
        }
        if covered.start < covered.end {
            self.note_read(state, &covered, options.read, rows.len());
        }
        let mut rows = if state.buffer.touches(&covered.start, &covered.end) {
            state.buffer.overlay(&covered.start, &covered.end, options.reverse, rows)
        } else {
            rows
        };
        let mut resume = resume;
        let limit = usize::try_from(options.limit).unwrap_or(usize::MAX);
        if limit > 0 && rows.len() > limit {
            rows.truncate(limit);
            resume = rows.last().map(|last| rest_after(span, &last.key, options.reverse));
        }
        let strip = |key: Bytes| self.client.strip_key(key);
        let resume = resume
            .filter(|rest| rest.start < rest.end)
            .map(|rest| Span { start: strip(rest.start), end: strip(rest.end) });
        ScanPage { rows: rows.into_iter().map(|row| (strip(row.key), row.value)).collect(), resume }
    }
}

/// What is left of a span after a page that ended with `last`.
fn rest_after(span: &Span, last: &[u8], reverse: bool) -> Span {
    if reverse {
        Span::new(span.start.clone(), Bytes::copy_from_slice(last))
    } else {
        Span::new(Bytes::from([last, &[0]].concat()), span.end.clone())
    }
}

fn get_request(key: &Bytes, options: ReadOptions) -> Request {
    RequestKind::Get(Get { key: key.clone(), lock: options.lock as i32 }).into()
}

fn scan_request(span: &Span, options: &ScanOptions) -> Request {
    RequestKind::Scan(Scan {
        start: span.start.clone(),
        end: span.end.clone(),
        reverse: options.reverse,
        limit: options.limit,
        lock: options.read.lock as i32,
    })
    .into()
}
