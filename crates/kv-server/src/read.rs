//! Reads that take no lock: evaluated at once, on the connection's own task.
//!
//! They read at a closed timestamp, so there is nothing to latch, and as a rule nothing to wait for: only an
//! intent of a prepared transaction that is not decided yet, and a timestamp that comes from another range and
//! that this one has not come to yet.

use crate::bounds;
use crate::column_cache::ColumnCache;
use crate::column_page::column_page;
use crate::faults::Bug;
use crate::node::{Asker, BatchResult, Node};
use crate::shard::key_after;
use bytes::BytesMut;
use kv_api::batch::{Get, KeyValue, Request, RequestKind, Response, Scan};
use kv_api::wire::MAX_FRAME_LEN;
use kv_api::{BatchRequest, BatchResponse, Header, KvError, KvErrorKind, Span, Timestamp};
use replication::RangeId;
use std::sync::Arc;
use storage::intent::{IntentView, TxnId};
use storage::mvcc::{self, View};
use storage::{Bounds, Lending, Reader, StorageError};

/// Room a frame needs besides values.
const FRAME_OVERHEAD: usize = 4 << 20;
/// Point reads done together; what they find stays in memory meanwhile.
const MOST_TOGETHER: usize = 256;
/// What a row costs in memory besides its bytes.
const ROW_OVERHEAD: u64 = 64;

/// Why something was not read.
#[derive(Debug)]
pub enum Unread {
    /// It cannot be.
    Failed(KvError),
    /// It must become known what becomes of this prepared transaction first.
    Undecided(TxnId),
    /// The clock of the range must reach the timestamp first, and nothing at or below it be in flight.
    Unclosed(Timestamp),
}

impl From<KvError> for Unread {
    fn from(error: KvError) -> Self {
        Unread::Failed(error)
    }
}

impl From<StorageError> for Unread {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Undecided(txn) => Unread::Undecided(txn),
            StorageError::OutOfPatience => Unread::Failed(error.into()),
            error => {
                tracing::error!("the store cannot be read: {error}");
                Unread::Failed(error.into())
            }
        }
    }
}

/// For whoever does not wait.
impl From<Unread> for KvError {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Failed(error) => error,
            Unread::Undecided(txn) => StorageError::Undecided(txn).into(),
            Unread::Unclosed(_) => {
                KvError::new(KvErrorKind::InvalidRequest, "the read timestamp lies in the future")
            }
        }
    }
}

/// Versions that may have been acknowledged before a transaction began although they are above its snapshot.
struct Uncertainty {
    /// What the clock of the range showed.
    clock: Timestamp,
    /// They are at or below this.
    limit: Timestamp,
}

/// A page of a scan.
pub struct Page {
    /// What was found.
    pub response: Response,
    /// Whether there may be versions above the timestamp among the keys that were read. False is certain.
    pub may_have_newer: bool,
}

impl Page {
    /// Nothing: there was no room for it.
    pub fn without_room(scan: &Scan) -> Self {
        let resume = Some(Span::new(scan.start.clone(), scan.end.clone()));
        Page { response: Response { resume, ..Response::default() }, may_have_newer: false }
    }

    /// The part of the scan's span that was read.
    fn covered(&self, scan: &Scan) -> Span {
        let mut covered = Span::new(scan.start.clone(), scan.end.clone());
        match &self.response.resume {
            Some(rest) if scan.reverse => covered.start = rest.end.clone(),
            Some(rest) => covered.end = rest.start.clone(),
            None => {}
        }
        covered
    }
}

/// What a batch may still return.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Bytes of keys and values scans may still return.
    scan_bytes: u64,
    /// Bytes the server spends on scans at most, with what rows cost besides.
    server_bytes: u64,
    /// Bytes that still fit into the frame of the answer.
    frame_bytes: usize,
}

impl Budget {
    /// The budget of a batch that asks for `target_bytes` (0: as much as the server allows).
    pub fn new(target_bytes: u64, max_scan_bytes: u64) -> Self {
        let scan_bytes = if target_bytes == 0 { max_scan_bytes } else { target_bytes.min(max_scan_bytes) };
        Budget { scan_bytes, server_bytes: max_scan_bytes * 2, frame_bytes: MAX_FRAME_LEN - FRAME_OVERHEAD }
    }

    /// Whether scans are to stop.
    pub fn is_spent(&self) -> bool {
        self.scan_bytes == 0 || self.server_bytes == 0
    }

    /// Counts a row of a scan.
    ///
    /// # Errors
    /// See [`Budget::take_value`].
    pub fn take_row(&mut self, bytes: usize) -> Result<(), KvError> {
        self.scan_bytes = self.scan_bytes.saturating_sub(bytes as u64);
        self.server_bytes = self.server_bytes.saturating_sub(bytes as u64 + ROW_OVERHEAD);
        self.take_value(bytes)
    }

    /// Counts columns that lie in memory already, if they may still be returned as a whole; returns whether they may.
    pub fn take_columns(&mut self, bytes: usize) -> bool {
        let left = self.scan_bytes.min(self.server_bytes).min(self.frame_bytes as u64);
        if bytes as u64 > left {
            return false;
        }
        self.scan_bytes -= bytes as u64;
        self.server_bytes -= bytes as u64;
        self.frame_bytes -= bytes;
        true
    }

    /// Counts a value.
    ///
    /// # Errors
    /// [`KvErrorKind::Overloaded`] if the answer would not fit into a frame.
    pub fn take_value(&mut self, bytes: usize) -> Result<(), KvError> {
        match self.frame_bytes.checked_sub(bytes) {
            Some(left) => {
                self.frame_bytes = left;
                Ok(())
            }
            None => Err(KvError::new(
                KvErrorKind::Overloaded,
                "the answer to this batch is too large; ask for less",
            )),
        }
    }
}

impl Node {
    /// Answers a batch of plain reads. Scans return at most `max_scan_bytes`; says whether that cut them
    /// short of what the client asked for. Those that return columns use the cache, if there is one for them.
    ///
    /// # Errors
    /// See [`Unread`].
    pub(crate) fn read(
        &self,
        asker: Asker,
        batch: &BatchRequest,
        max_scan_bytes: u64,
        cache: Option<&ColumnCache>,
    ) -> Result<(BatchResponse, bool), Unread> {
        let header = &batch.header;
        let own = self.check_txn(asker, header)?;
        let timestamp = self.snapshot_timestamp(asker.range, header.read_timestamp)?;
        self.check_holds(asker, batch)?;
        let reader: &dyn Reader = &*self.engine;
        let intents = self.intent_view(asker, own);
        let uncertain = self.uncertainty(asker, header)?;
        // What is read was committed before: a cursor may serve all scans if there is no intent to be met.
        let envelope = if intents.is_empty() { envelope(&batch.requests) } else { None };
        let lending = envelope.map(|(start, end)| Lending::new(reader, Bounds::new(start, end)));
        let reader = lending.as_ref().map_or(reader, |lending| lending);
        let view = View { reader, timestamp, intents: &intents, overlay: None };
        let mut budget = Budget::new(header.target_bytes, max_scan_bytes);
        let mut responses = Vec::with_capacity(batch.requests.len());
        let mut to_check = Vec::new();
        for requests in batch.requests.chunk_by(|one, next| is_get(one) && is_get(next)) {
            if is_get(&requests[0]) {
                for keys in requests.chunks(MOST_TOGETHER) {
                    let gets: Vec<&Get> = keys.iter().filter_map(get_of).collect();
                    let newer = get_values(view, &gets, &mut budget, &mut responses)?;
                    if uncertain.is_some() {
                        to_check.extend(newer);
                    }
                }
                continue;
            }
            responses.push(match &requests[0].kind {
                Some(RequestKind::Scan(scan)) => {
                    let page = scan_page(view, scan, cache, &mut budget)?;
                    if uncertain.is_some() && page.may_have_newer {
                        to_check.push(page.covered(scan));
                    }
                    page.response
                }
                _ => return Err(KvError::new(KvErrorKind::Internal, "not a read").into()),
            });
        }
        if let Some(uncertain) = &uncertain {
            self.check_spans(reader, uncertain, &to_check, timestamp, &intents)?;
        }
        let clock = uncertain.map(|uncertain| uncertain.clock);
        let cut = budget.is_spent() && (header.target_bytes == 0 || header.target_bytes > max_scan_bytes);
        let read_timestamp = Some(timestamp);
        let global_reads = self.pipeline.is_ahead(asker.range);
        let response =
            BatchResponse { responses, read_timestamp, clock, global_reads, ..BatchResponse::default() };
        Ok((response, cut))
    }

    /// Fails if the keys of a batch are no longer those of its range. Where they still are after a timestamp was
    /// chosen, that is one for them: what was split off goes on above it.
    pub(crate) fn check_holds(&self, asker: Asker, batch: &BatchRequest) -> Result<(), KvError> {
        if self.pipeline.holds(asker.range, |span| bounds::within(batch, asker.tenant, span)) {
            return Ok(());
        }
        Err(self.keys_not_here(asker))
    }

    /// The same, and waits for what must be waited for.
    ///
    /// # Errors
    /// See [`KvErrorKind`].
    pub async fn read_waiting(self: &Arc<Self>, asker: Asker, batch: &BatchRequest) -> BatchResult {
        loop {
            let ahead = self.pipeline.is_ahead(asker.range);
            match self.read(asker, batch, self.limits.max_scan_bytes, Some(&self.columns)) {
                Ok((response, _)) if ahead || self.pipeline.is_ahead(asker.range) => {
                    let upto = response.read_timestamp.unwrap_or(Timestamp::MAX);
                    self.wait_for_what_was_read(asker, &batch.requests, upto).await?;
                    return Ok(response);
                }
                Ok((response, _)) => return Ok(response),
                Err(unread) => self.wait_to_read(asker, &batch.header, unread).await?,
            }
        }
    }

    /// Waits until it is worth while to try to read again.
    ///
    /// # Errors
    /// If it never will be.
    pub(crate) async fn wait_to_read(
        self: &Arc<Self>,
        asker: Asker,
        header: &Header,
        unread: Unread,
    ) -> Result<(), KvError> {
        match unread {
            Unread::Failed(error) => Err(error),
            Unread::Undecided(txn) => self.await_decision(asker, txn, header).await,
            Unread::Unclosed(timestamp) => self.pipeline.close_up_to(asker.range, timestamp).await,
        }
    }

    /// Checks that nothing which the batch reads was committed above its timestamp before its transaction may
    /// have begun (`cockroachdb-2020`, section 4.2). Returns what the clock of the range showed before that, if
    /// it was looked at.
    ///
    /// # Errors
    /// [`KvErrorKind::SnapshotBehind`] if something was, and see [`Unread`].
    pub(crate) fn check_certain(
        &self,
        reader: &dyn Reader,
        asker: Asker,
        header: &Header,
        requests: &[Request],
        timestamp: Timestamp,
        intents: &IntentView,
    ) -> Result<Option<Timestamp>, Unread> {
        let Some(uncertain) = self.uncertainty(asker, header)? else { return Ok(None) };
        let span = |request: &Request| match &request.kind {
            Some(RequestKind::Get(get)) => Some(Span::point(get.key.clone())),
            Some(RequestKind::Scan(scan)) => Some(Span::new(scan.start.clone(), scan.end.clone())),
            _ => None,
        };
        let spans: Vec<Span> = requests.iter().filter_map(span).collect();
        self.check_spans(reader, &uncertain, &spans, timestamp, intents)?;
        Ok(Some(uncertain.clock))
    }

    /// What is uncertain to a batch by its header; none if nothing is.
    fn uncertainty(&self, asker: Asker, header: &Header) -> Result<Option<Uncertainty>, KvError> {
        let Some(limit) = header.uncertainty_limit else { return Ok(None) };
        let clock = self.pipeline.present_clock(asker.range)?;
        Ok(Some(Uncertainty { clock, limit: limit.min(clock) }))
    }

    fn check_spans(
        &self,
        reader: &dyn Reader,
        uncertain: &Uncertainty,
        spans: &[Span],
        timestamp: Timestamp,
        intents: &IntentView,
    ) -> Result<(), Unread> {
        if self.pipeline.environment().planted(Bug::UncertaintyIgnored) {
            return Ok(());
        }
        // What is in flight at or below it is not acknowledged yet.
        for span in spans {
            if mvcc::changed(reader, span, timestamp, uncertain.limit, intents)?.is_some() {
                return Err(KvError::snapshot_behind(uncertain.clock).into());
            }
        }
        Ok(())
    }

    /// Checks that nothing in `spans` was committed in `(from, to]`, by others than `own`.
    ///
    /// # Errors
    /// [`KvErrorKind::Retry`] with the span that changed, and see [`Unread`].
    pub fn check_unchanged<'a>(
        &self,
        reader: &dyn Reader,
        asker: Asker,
        own: Option<TxnId>,
        spans: impl Iterator<Item = &'a Span>,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<(), Unread> {
        let mut intents = self.intent_view(asker, None);
        intents.prepared.retain(|(id, _)| Some(*id) != own);
        for span in spans {
            if let Some(key) = mvcc::changed(reader, span, from, to, &intents)? {
                let mut error = KvError::new(
                    KvErrorKind::Retry,
                    "could not serialize access: data this transaction read was changed by another",
                );
                error.key = Some(key);
                error.span = Some(span.clone());
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// The timestamp to read at: the one given, or the present.
    ///
    /// # Errors
    /// [`KvErrorKind::Retry`] for one from too far back, [`Unread::Unclosed`] for one that the range has not
    /// come to yet.
    pub fn snapshot_timestamp(&self, range: RangeId, given: Option<Timestamp>) -> Result<Timestamp, Unread> {
        match given {
            None => Ok(self.pipeline.present(range)?),
            Some(given) if given < self.history.oldest(range) => {
                let message = "snapshot too old: what it sees is no longer kept";
                Err(KvError::new(KvErrorKind::Retry, message).into())
            }
            Some(given) if given <= self.pipeline.closed(range)? => Ok(given),
            Some(given) => Err(Unread::Unclosed(given)),
        }
    }
}

fn get_of(request: &Request) -> Option<&Get> {
    match &request.kind {
        Some(RequestKind::Get(get)) => Some(get),
        _ => None,
    }
}

fn is_get(request: &Request) -> bool {
    get_of(request).is_some()
}

/// From where to where all scans of a batch lie that return rows, if there are several.
fn envelope(requests: &[Request]) -> Option<(&[u8], &[u8])> {
    let mut scans = requests.iter().filter_map(|request| match &request.kind {
        Some(RequestKind::Scan(scan)) if scan.program.is_none() => Some((&scan.start[..], &scan.end[..])),
        _ => None,
    });
    let first = scans.next()?;
    let second = scans.next()?;
    let all = std::iter::once(second).chain(scans);
    Some(all.fold(first, |(start, end), scan| (scan.0.min(start), scan.1.max(end))))
}

/// Evaluates point reads together. Returns the keys that may have versions above the timestamp.
fn get_values(
    view: View<'_>,
    gets: &[&Get],
    budget: &mut Budget,
    responses: &mut Vec<Response>,
) -> Result<Vec<Span>, Unread> {
    let keys: Vec<&[u8]> = gets.iter().map(|get| &get.key[..]).collect();
    let mut newer = Vec::new();
    for (looked, get) in view.get_many(&keys)?.into_iter().zip(gets) {
        if looked.may_have_newer {
            newer.push(Span::point(get.key.clone()));
        }
        let value = looked.version.and_then(|version| version.value);
        budget.take_value(value.as_ref().map_or(0, |value| value.len()))?;
        responses.push(Response { value, ..Response::default() });
    }
    Ok(newer)
}

/// Evaluates a point read.
///
/// # Errors
/// Storage errors, and see [`Budget`].
pub fn get_value(view: View<'_>, get: &Get, budget: &mut Budget) -> Result<Response, Unread> {
    let value = view.get(&get.key)?.and_then(|version| version.value);
    budget.take_value(value.as_ref().map_or(0, |value| value.len()))?;
    Ok(Response { value, ..Response::default() })
}

/// Evaluates one page of a scan. If it returns columns, those that are kept are used, and others kept.
///
/// # Errors
/// Storage errors, and see [`Budget`].
pub(crate) fn scan_page(
    view: View<'_>,
    scan: &Scan,
    cache: Option<&ColumnCache>,
    budget: &mut Budget,
) -> Result<Page, Unread> {
    if let Some(program) = &scan.program {
        return column_page(view, scan, program, cache, budget);
    }
    if budget.is_spent() {
        return Ok(Page::without_room(scan));
    }
    let mut scanner = view.scan(&scan.start, &scan.end, scan.reverse);
    let mut buffer = BytesMut::new();
    let mut marks = Vec::new();
    let mut ended_early = false;
    while let Some(mark) = scanner.next(&mut buffer)? {
        marks.push(mark);
        budget.take_row(mark.end - mark.start)?;
        if budget.is_spent() || (scan.limit > 0 && marks.len() as u64 >= scan.limit) {
            ended_early = !scanner.is_exhausted()?;
            break;
        }
    }
    let buffer = buffer.freeze();
    let rows: Vec<KeyValue> = marks
        .iter()
        .map(|mark| KeyValue {
            key: buffer.slice(mark.start..mark.middle),
            value: buffer.slice(mark.middle..mark.end),
        })
        .collect();
    let resume = rows.last().filter(|_| ended_early).and_then(|last| resume_after(scan, &last.key));
    let may_have_newer = scanner.may_have_newer();
    Ok(Page { response: Response { rows, resume, ..Response::default() }, may_have_newer })
}

/// What is left of a scan that returned `last`.
pub fn resume_after(scan: &Scan, last: &[u8]) -> Option<Span> {
    let span = if scan.reverse {
        Span::new(scan.start.clone(), bytes::Bytes::copy_from_slice(last))
    } else {
        Span::new(key_after(last), scan.end.clone())
    };
    (span.start < span.end).then_some(span)
}
