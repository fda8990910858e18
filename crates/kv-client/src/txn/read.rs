//! Reads: sent, checked against what happened meanwhile, overlaid with own writes.
//!
//! A read whose answer became stale while it was under way (see [`Seen::admit`]) is sent again. That
//! ends: each repetition is caused by a flush, a moved snapshot or another read of the same transaction
//! that made progress, and the number is bounded besides.

use super::options::{Isolation, ReadOptions, ScanOptions, ScanPage};
use super::part::Part;
use super::state::{Seen, State};
use super::{TRUSTED_LOCKS, Txn, aborted_if_lost, lost, read_only, split_without_end};
use crate::client::given_up;
use crate::faults::Bug;
use crate::router::{SendError, Sending};
use bytes::Bytes;
use kv_api::batch::{BatchRequest, Get, KeyValue, RequestKind, Scan};
use kv_api::{BatchResponse, KvError, KvErrorKind, KvResult, Request, Span, Timestamp};

/// Times a read is sent.
pub(super) const MAX_ATTEMPTS: usize = 32;
/// Times the range of a read is looked up.
pub(super) const MAX_SPLITS: usize = 32;

impl Txn {
    /// Reads a key.
    ///
    /// # Errors
    /// What the KV node answers; see [`KvErrorKind`].
    pub async fn get(&self, key: &[u8], options: impl Into<ReadOptions>) -> KvResult<Option<Bytes>> {
        let full = self.client.tenant().prefixed(key);
        let options = options.into();
        for _ in 0..MAX_SPLITS {
            let known = {
                let state = self.state.lock();
                state.check_open()?;
                if let Some(written) = state.buffer.get_before(&full, options.unseen()) {
                    return Ok(written);
                }
                state.parts.locate(&full, false)
            };
            let range = match known {
                Some(range) => range,
                None => self.locate(&full, false).await?,
            };
            let read = self.read(range, vec![get_request(&full, options)], options, 0, |state, response| {
                self.note_read(state, range, &Span::point(full.clone()), options, 1);
                let value = response.responses.into_iter().next().and_then(|response| response.value);
                // It may have been written while it was read.
                state.buffer.get_before(&full, options.unseen()).unwrap_or(value)
            });
            match read.await {
                Err(SendError::Split) => self.forget_range(range)?,
                read => return read.map_err(aborted_if_lost),
            }
        }
        Err(split_without_end())
    }

    /// Reads a page of a span. An empty end is the end of the tenant's keys. A page ends where a range ends.
    ///
    /// # Errors
    /// As for [`Txn::get`].
    pub async fn scan(&self, span: &Span, options: ScanOptions) -> KvResult<ScanPage> {
        let full = self.client.full_span(span);
        self.state.lock().check_open()?;
        if full.start >= full.end {
            return Ok(ScanPage::default());
        }
        for _ in 0..MAX_SPLITS {
            let range = self.locate(scan_begin(&full, &options), options.reverse).await?;
            let Some(here) = self.state.lock().parts.get(range).and_then(|part| part.at.clip(&full)) else {
                continue;
            };
            let requests = vec![scan_request(&here, &options)];
            let read = self.read(range, requests, options.read, options.target_bytes, |state, response| {
                let found = response.responses.into_iter().next().unwrap_or_default();
                self.page(state, range, [&full, &here], &options, found.rows, found.resume)
            });
            match read.await {
                Err(SendError::Split) => self.forget_range(range)?,
                read => return read.map_err(aborted_if_lost),
            }
        }
        Err(split_without_end())
    }

    /// The snapshot, which stays where it is from now on, like with [`Txn::pin_snapshot`]. Where there is none yet, a
    /// read brings it.
    ///
    /// # Errors
    /// As for [`Txn::get`].
    pub async fn settle_snapshot(&self) -> KvResult<Timestamp> {
        for _ in 0..MAX_ATTEMPTS {
            let known = {
                let mut state = self.state.lock();
                state.fixed |= state.read_timestamp.is_some();
                state.read_timestamp
            };
            match known {
                Some(snapshot) => return Ok(snapshot),
                // No key is empty, so that nobody writes it.
                None => drop(self.get(b"", ReadOptions::default()).await?),
            }
        }
        Err(KvError::new(KvErrorKind::Retry, "statements of the transaction overlap without end"))
    }

    /// What the transaction itself wrote to a key and the KV node does not know.
    pub(super) fn written(&self, key: &[u8], options: ReadOptions) -> KvResult<Option<Option<Bytes>>> {
        let state = self.state.lock();
        state.check_open()?;
        Ok(state.buffer.get_before(key, options.unseen()))
    }

    /// Sends reads to a range; fails with [`SendError::Split`] if it does not hold all of them any more.
    pub(super) async fn read<T>(
        &self,
        range_id: u64,
        requests: Vec<Request>,
        options: ReadOptions,
        target_bytes: u64,
        finish: impl FnOnce(&mut State, BatchResponse) -> T,
    ) -> Result<T, SendError> {
        if options.locks() && self.options.read_only {
            return Err(read_only().into());
        }
        self.send_read(range_id, requests, options, target_bytes, options.locks(), finish).await
    }

    /// Sends reads until the answer can be used, and then uses it without letting anything come between.
    /// With `validates`, the node may move the snapshot.
    pub(super) async fn send_read<T>(
        &self,
        range_id: u64,
        requests: Vec<Request>,
        options: ReadOptions,
        target_bytes: u64,
        validates: bool,
        finish: impl FnOnce(&mut State, BatchResponse) -> T,
    ) -> Result<T, SendError> {
        let mut batch = BatchRequest { requests, ..BatchRequest::default() };
        let _in_flight = ReadInFlight::of(self);
        for _ in 0..MAX_ATTEMPTS {
            let (seen, known, global) = {
                let state = self.state.lock();
                state.check_open()?;
                batch.header = state.header(range_id, options, validates, target_bytes);
                let part = state.parts.get(range_id);
                let global = part.is_some_and(|part| part.at.global);
                (Seen::of(&state, range_id), part.is_some_and(|part| part.known), global)
            };
            let bound = options.locks() || known;
            let sent = if bound {
                self.send_bound(range_id, &mut batch, options.locks()).await
            } else {
                if (global || self.may_read_anywhere(&batch)) && !validates {
                    // No replica but the leaseholder knows transactions.
                    (batch.header.txn, batch.header.any_replica) = (None, true);
                }
                let sending = Sending { again: true, range: Some(range_id), ..Sending::default() };
                self.send_timed(range_id, &mut batch, sending).await.map(|sent| sent.response)
            };
            let response = match sent {
                Ok(response) => response,
                Err(SendError::Split) => return Err(SendError::Split),
                Err(SendError::Kv(error)) if error.kind() == KvErrorKind::SnapshotBehind => {
                    self.catch_up(&seen, error).await?;
                    continue;
                }
                Err(error) if !bound => return Err(given_up(error).into()),
                Err(SendError::Lost) if !known => {
                    self.forget_lost_locks(range_id)?;
                    continue;
                }
                Err(SendError::Moved) => {
                    self.move_on(range_id)?;
                    continue;
                }
                Err(error) => return Err(aborted_if_lost(error).into()),
            };
            if global != response.global_reads && !validates {
                self.client.note_global(range_id, &batch, response.global_reads);
            }
            let mut state = self.state.lock();
            state.check_open()?;
            if let Some(part) = state.parts.get_mut(range_id)
                && !validates
            {
                part.at.global = response.global_reads;
            }
            if seen.admit(&mut state, &response) {
                return Ok(finish(&mut state, response));
            }
        }
        Err(KvError::new(KvErrorKind::Retry, "reads of the transaction overlap without end").into())
    }

    /// Whether any replica may answer a read, in whichever range. What is uncertain only the leaseholder knows, but where
    /// all replicas serve the present.
    fn may_read_anywhere(&self, batch: &BatchRequest) -> bool {
        self.options.read_only && self.options.follower_reads && batch.header.uncertainty_limit.is_none()
    }

    /// The connection was lost under the first locking read: the node has dropped whatever it locked,
    /// and nothing rests on it yet.
    fn forget_lost_locks(&self, range_id: u64) -> KvResult<()> {
        let mut state = self.state.lock();
        let rests = |part: &Part| part.bound_in_flight > 0 || part.place.is_some();
        if state.parts.get(range_id).is_some_and(rests) {
            return Err(lost());
        }
        state.become_unknown(range_id);
        Ok(())
    }

    /// Tracks a span of a range that was read, with the number of keys locked in it.
    pub(super) fn note_read(
        &self,
        state: &mut State,
        range_id: u64,
        span: &Span,
        options: ReadOptions,
        keys: usize,
    ) {
        if self.options.as_of.is_some() {
            return;
        }
        if options.locks() {
            state.locked_keys = state.locked_keys.saturating_add(keys);
        }
        let validated = match self.options.isolation {
            Isolation::Serializable => {
                !self.options.read_only && !self.client.environment().planted(Bug::SnapshotPerStatement)
            }
            Isolation::ReadCommitted => options.locks() && state.locked_keys > TRUSTED_LOCKS,
        };
        if validated {
            state.refresh.add(span);
        } else if !options.locks() {
            // Where all keys are in one range, nothing is ever uncertain.
            let alone = |part: &Part| part.at.holds_all(self.client.tenant_span());
            if state.parts.get(range_id).is_some_and(alone) {
                state.untracked = true;
            } else {
                state.loose.add(span);
            }
        }
    }

    /// Turns what the KV node returned for a span, or for the part of it that lies in its range (`here`), into a
    /// page: own writes laid over, cut to the limit, prefixes stripped.
    pub(super) fn page(
        &self,
        state: &mut State,
        range_id: u64,
        [span, here]: [&Span; 2],
        options: &ScanOptions,
        rows: Vec<KeyValue>,
        resume: Option<Span>,
    ) -> ScanPage {
        let (covered, mut left) = parts_of(span, here, &resume, options.reverse);
        if covered.start < covered.end {
            self.note_read(state, range_id, &covered, options.read, rows.len());
        }
        let mut rows = if state.buffer.touches(&covered.start, &covered.end) {
            state.buffer.overlay(&covered.start, &covered.end, options.reverse, options.read.unseen(), rows)
        } else {
            rows
        };
        let limit = usize::try_from(options.limit).unwrap_or(usize::MAX);
        if limit > 0 && rows.len() > limit {
            rows.truncate(limit);
            left = rows.last().map_or(left, |last| rest_after(span, &last.key, options.reverse));
        }
        let rows = rows.into_iter().map(|row| (self.client.strip_key(row.key), row.value)).collect();
        ScanPage { rows, resume: self.stripped(left) }
    }

    /// What is left of a span, without the tenant's prefix; none if it is empty.
    pub(super) fn stripped(&self, left: Span) -> Option<Span> {
        let strip = |key: Bytes| self.client.strip_key(key);
        (left.start < left.end).then(|| Span { start: strip(left.start), end: strip(left.end) })
    }
}

/// Counts a read while it is under way, also when its future is dropped.
struct ReadInFlight<'a>(&'a Txn);

impl<'a> ReadInFlight<'a> {
    fn of(txn: &'a Txn) -> Self {
        txn.state.lock().reads_in_flight += 1;
        ReadInFlight(txn)
    }
}

impl Drop for ReadInFlight<'_> {
    fn drop(&mut self) {
        self.0.state.lock().reads_in_flight -= 1;
    }
}

/// The part of a span that a page covers, and what is left of it. The page is of what lies in a range (`here`), up to
/// where it is to go on.
pub(super) fn parts_of(span: &Span, here: &Span, resume: &Option<Span>, reverse: bool) -> (Span, Span) {
    let (mut covered, mut left) = (here.clone(), span.clone());
    match (resume, reverse) {
        (Some(rest), true) => (covered.start, left.end) = (rest.end.clone(), rest.end.clone()),
        (Some(rest), false) => (covered.end, left.start) = (rest.start.clone(), rest.start.clone()),
        (None, true) => left.end = here.start.clone(),
        (None, false) => left.start = here.end.clone(),
    }
    (covered, left)
}

/// What is left of a span after a page that ended with `last`.
fn rest_after(span: &Span, last: &[u8], reverse: bool) -> Span {
    if reverse {
        Span::new(span.start.clone(), Bytes::copy_from_slice(last))
    } else {
        Span::new(Bytes::from([last, &[0]].concat()), span.end.clone())
    }
}

pub(super) fn get_request(key: &Bytes, options: ReadOptions) -> Request {
    RequestKind::Get(Get { key: key.clone(), lock: options.lock as i32 }).into()
}

/// Where a scan begins: at a key or, if it is reverse, right below one.
pub(super) fn scan_begin<'a>(span: &'a Span, options: &ScanOptions) -> &'a Bytes {
    if options.reverse { &span.end } else { &span.start }
}

pub(super) fn scan_request(span: &Span, options: &ScanOptions) -> Request {
    RequestKind::Scan(Scan {
        start: span.start.clone(),
        end: span.end.clone(),
        reverse: options.reverse,
        limit: options.limit,
        lock: options.read.lock as i32,
        program: None,
    })
    .into()
}
