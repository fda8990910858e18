//! The transaction coordinator.

use crate::client::{KvClient, SendError};
use crate::refresh::RefreshSpans;
use crate::write_buffer::{Write, WriteBuffer};
use bytes::Bytes;
use kv_api::batch::{
    BatchRequest, EndTxn, Get, IgnoredSequences, KeyValue, Refresh, RequestKind, Scan, WaitPolicy,
};
use kv_api::key::{MAX_KEY_LEN, MAX_VALUE_LEN};
use kv_api::{
    BatchResponse, Header, KvError, KvErrorKind, KvResult, LockStrength, Request, Span, Timestamp, TxnMeta,
};
use parking_lot::Mutex;
use rand::RngCore;

/// Buffered writes of a transaction before it flushes them, in bytes, unless told otherwise.
const DEFAULT_BUFFER_BYTES: usize = 4 << 20;
/// Requests of one batch.
const MAX_BATCH: usize = 10_000;

/// Isolation levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// As if transactions ran one after the other.
    #[default]
    Serializable,
    /// A new snapshot for each statement; nothing read is validated at commit.
    ReadCommitted,
}

/// How a transaction runs.
#[derive(Debug, Clone, Copy)]
pub struct TxnOptions {
    /// Isolation level.
    pub isolation: Isolation,
    /// Longest wait for a lock in milliseconds; 0 for no limit.
    pub lock_timeout_ms: u32,
    /// Buffered writes before they are flushed, in bytes.
    pub buffer_bytes: usize,
}

impl Default for TxnOptions {
    fn default() -> Self {
        TxnOptions { isolation: Isolation::default(), lock_timeout_ms: 0, buffer_bytes: DEFAULT_BUFFER_BYTES }
    }
}

/// How keys are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOptions {
    /// Lock to take.
    pub lock: LockStrength,
    /// What to do when another holds it. With `Skip`, a key that is locked reads as absent.
    pub wait: WaitPolicy,
}

impl Default for ReadOptions {
    fn default() -> Self {
        LockStrength::None.into()
    }
}

impl From<LockStrength> for ReadOptions {
    fn from(lock: LockStrength) -> Self {
        ReadOptions { lock, wait: WaitPolicy::Block }
    }
}

/// How a span is read.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScanOptions {
    /// Descending.
    pub reverse: bool,
    /// Most keys wanted; 0 for no limit.
    pub limit: u64,
    /// Bytes after which a page ends; 0 for the KV node's limit.
    pub target_bytes: u64,
    /// Locks.
    pub read: ReadOptions,
}

/// A page of a scan. It may hold fewer rows than wanted and still not be the last.
#[derive(Debug, Default)]
pub struct ScanPage {
    /// Keys and values in the order asked.
    pub rows: Vec<(Bytes, Bytes)>,
    /// Where to go on; `None` at the end of the span.
    pub resume: Option<Span>,
}

/// A point in a transaction that can be returned to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint {
    sequence: u32,
}

/// What a commit returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitInfo {
    /// Where the transaction's writes are; `None` if it wrote nothing.
    pub timestamp: Option<Timestamp>,
}

/// A transaction. Usable through `&self`, from one task at a time for writes.
pub struct Txn {
    client: KvClient,
    options: TxnOptions,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Open,
    Ended,
}

struct State {
    id: Bytes,
    status: Status,
    read_timestamp: Option<Timestamp>,
    fixed: bool,
    sequence: u32,
    ignored: Vec<IgnoredSequences>,
    has_locks: bool,
    has_intents: bool,
    /// The connection that knows this transaction's locks and intents.
    connection: Option<u64>,
    buffer: WriteBuffer,
    refresh: RefreshSpans,
}

impl State {
    /// Whether the KV node holds anything for the transaction.
    fn known_to_node(&self) -> bool {
        self.has_locks || self.has_intents
    }

    fn meta(&self) -> TxnMeta {
        TxnMeta {
            id: self.id.clone(),
            sequence: self.sequence,
            ignored: self.ignored.clone(),
            has_intents: self.has_intents,
        }
    }
}

impl Txn {
    pub(crate) fn new(client: KvClient, options: TxnOptions) -> Self {
        let mut id = [0; 16];
        rand::rng().fill_bytes(&mut id);
        let state = State {
            id: Bytes::copy_from_slice(&id),
            status: Status::Open,
            read_timestamp: None,
            fixed: false,
            sequence: 0,
            ignored: Vec::new(),
            has_locks: false,
            has_intents: false,
            connection: None,
            buffer: WriteBuffer::default(),
            refresh: RefreshSpans::default(),
        };
        Txn { client, options, state: Mutex::new(state) }
    }

    /// The isolation level.
    pub fn isolation(&self) -> Isolation {
        self.options.isolation
    }

    /// The snapshot, once something was read.
    pub fn read_timestamp(&self) -> Option<Timestamp> {
        self.state.lock().read_timestamp
    }

    /// Whether anything was written (and not undone).
    pub fn has_writes(&self) -> bool {
        let state = self.state.lock();
        state.has_intents || !state.buffer.is_empty()
    }

    /// Whether the transaction has read, locked or written anything that a retry would have to repeat.
    pub fn is_pristine(&self) -> bool {
        let state = self.state.lock();
        state.read_timestamp.is_none() && !state.known_to_node() && state.buffer.is_empty()
    }

    /// Starts a statement. Under READ COMMITTED it gets a snapshot of its own.
    pub fn begin_statement(&self) {
        if self.options.isolation == Isolation::ReadCommitted {
            let mut state = self.state.lock();
            state.read_timestamp = None;
            state.fixed = false;
            state.refresh.clear();
        }
    }

    /// The snapshot may not move any more: rows read at it have left the server.
    pub fn pin_snapshot(&self) {
        self.state.lock().fixed = true;
    }

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
        let requests = vec![get_request(&full, options)];
        let response = self.read(requests, options, 0).await?;
        self.note_read(Span::point(full), options);
        Ok(response.responses.into_iter().next().and_then(|response| response.value))
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
        for (index, key) in keys.iter().enumerate() {
            let full = self.client.tenant().prefixed(key);
            match self.written(&full)? {
                Some(written) => values[index] = written,
                None => missing.push((index, full)),
            }
        }
        for chunk in missing.chunks(MAX_BATCH) {
            let requests = chunk.iter().map(|(_, key)| get_request(key, options)).collect();
            let response = self.read(requests, options, 0).await?;
            for ((index, key), response) in chunk.iter().zip(response.responses) {
                values[*index] = response.value;
                self.note_read(Span::point(key.clone()), options);
            }
        }
        Ok(values)
    }

    /// Reads a page of a span.
    ///
    /// # Errors
    /// As for [`Txn::get`].
    pub async fn scan(&self, span: &Span, options: ScanOptions) -> KvResult<ScanPage> {
        let full = self.full_span(span);
        if full.start >= full.end {
            return Ok(ScanPage::default());
        }
        let request = scan_request(&full, &options);
        let response = self.read(vec![request], options.read, options.target_bytes).await?;
        let response = response.responses.into_iter().next().unwrap_or_default();
        Ok(self.page(full, &options, response.rows, response.resume))
    }

    /// Reads the first page of several spans in one batch.
    ///
    /// # Errors
    /// As for [`Txn::get`].
    pub async fn scan_many(&self, spans: &[Span], options: ScanOptions) -> KvResult<Vec<ScanPage>> {
        let mut pages = Vec::with_capacity(spans.len());
        for chunk in spans.chunks(MAX_BATCH) {
            let full: Vec<Span> = chunk.iter().map(|span| self.full_span(span)).collect();
            let wanted: Vec<&Span> = full.iter().filter(|span| span.start < span.end).collect();
            let mut responses = Vec::new().into_iter();
            if !wanted.is_empty() {
                let requests = wanted.iter().map(|span| scan_request(span, &options)).collect();
                responses =
                    self.read(requests, options.read, options.target_bytes).await?.responses.into_iter();
            }
            for span in full {
                if span.start < span.end {
                    let response = responses.next().unwrap_or_default();
                    pages.push(self.page(span, &options, response.rows, response.resume));
                } else {
                    pages.push(ScanPage::default());
                }
            }
        }
        Ok(pages)
    }

    /// Writes a value.
    ///
    /// # Errors
    /// `InvalidRequest` if key or value are too large, `Aborted` if the transaction has ended.
    pub fn put(&self, key: &[u8], value: Bytes) -> KvResult<()> {
        self.write(key, Write::Put(value))
    }

    /// Writes a value to a key that must not exist. Checked when the write reaches the KV node, at the
    /// latest by the commit, which then fails with `ConditionFailed`.
    ///
    /// # Errors
    /// As for [`Txn::put`]; `ConditionFailed` if the transaction itself has written the key.
    pub fn put_if_absent(&self, key: &[u8], value: Bytes) -> KvResult<()> {
        let full = self.client.tenant().prefixed(key);
        match self.written(&full)? {
            None => self.write(key, Write::Insert(value)),
            Some(None) => self.write(key, Write::Put(value)),
            Some(Some(actual)) => {
                let mut error = KvError::new(KvErrorKind::ConditionFailed, "the key exists already")
                    .with_key(Bytes::copy_from_slice(key));
                error.actual = Some(actual);
                Err(error)
            }
        }
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// As for [`Txn::put`].
    pub fn delete(&self, key: &[u8]) -> KvResult<()> {
        self.write(key, Write::Delete)
    }

    /// Whether the buffered writes have outgrown their budget, so that [`Txn::flush`] is due.
    pub fn wants_flush(&self) -> bool {
        self.state.lock().buffer.bytes() >= self.options.buffer_bytes
    }

    /// Flushes the buffered writes if they have outgrown their budget. To be called between rows of a
    /// statement that writes many.
    ///
    /// # Errors
    /// As for [`Txn::flush`].
    pub async fn flush_if_large(&self) -> KvResult<()> {
        if self.wants_flush() { self.flush().await } else { Ok(()) }
    }

    /// Sends the buffered writes as durable intents.
    ///
    /// # Errors
    /// As for [`Txn::get`], and `ConditionFailed`.
    pub async fn flush(&self) -> KvResult<()> {
        let requests = {
            let state = self.state.lock();
            check_open(&state)?;
            state.buffer.requests(true)
        };
        if requests.is_empty() {
            return Ok(());
        }
        for chunk in requests.chunks(MAX_BATCH) {
            let header = self.header(ReadOptions::from(LockStrength::Exclusive), 0);
            let batch = BatchRequest { header, requests: chunk.to_vec() };
            let response = self.send_bound(batch).await?;
            let mut state = self.state.lock();
            state.has_intents = true;
            advance(&mut state, &response);
        }
        self.state.lock().buffer.clear();
        Ok(())
    }

    /// Moves the snapshot to the present, if nothing read so far has changed.
    ///
    /// # Errors
    /// `Retry` if something has.
    pub async fn refresh(&self) -> KvResult<()> {
        let header = self.header(ReadOptions::from(LockStrength::Exclusive), 0);
        let batch = BatchRequest { header, requests: vec![RequestKind::Refresh(Refresh {}).into()] };
        let response = self.send_bound(batch).await?;
        advance(&mut self.state.lock(), &response);
        Ok(())
    }

    /// Marks a point to return to.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint { sequence: self.state.lock().sequence + 1 }
    }

    /// Undoes everything written since the savepoint. Locks stay.
    pub fn rollback_to(&self, savepoint: Savepoint) {
        let mut state = self.state.lock();
        state.buffer.rollback(savepoint.sequence);
        let to = state.sequence + 1;
        if state.has_intents && savepoint.sequence < to {
            state.ignored.retain(|range| range.from < savepoint.sequence);
            match state.ignored.last_mut() {
                Some(last) if last.to >= savepoint.sequence => last.to = to,
                _ => state.ignored.push(IgnoredSequences { from: savepoint.sequence, to }),
            }
        }
        // Numbers are not used twice, or an intent could be taken for one that was undone.
        state.sequence = to;
    }

    /// Commits.
    ///
    /// # Errors
    /// `Retry` if something read has changed, `ConditionFailed` if an inserted key exists, `Ambiguous` if
    /// the connection was lost under the commit. The transaction has ended in any case.
    pub async fn commit(&self) -> KvResult<CommitInfo> {
        let (writes, plain) = {
            let state = self.state.lock();
            check_open(&state)?;
            (state.buffer.requests(state.has_intents), !state.has_intents)
        };
        if writes.is_empty() && plain {
            self.end_in_background();
            return Ok(CommitInfo { timestamp: None });
        }
        if writes.len() > MAX_BATCH {
            if let Err(error) = self.flush().await {
                self.end_in_background();
                return Err(error);
            }
            return Box::pin(self.commit()).await;
        }
        let mut requests = writes;
        requests.push(RequestKind::EndTxn(EndTxn { commit: true }).into());
        let header = self.header(ReadOptions::from(LockStrength::Exclusive), 0);
        let result = self.send_commit(BatchRequest { header, requests }).await;
        match result {
            Ok(response) => {
                let mut state = self.state.lock();
                state.status = Status::Ended;
                state.has_locks = false;
                state.has_intents = false;
                Ok(CommitInfo { timestamp: response.commit_timestamp })
            }
            Err(error) => {
                self.end_in_background();
                Err(error)
            }
        }
    }

    async fn send_commit(&self, batch: BatchRequest) -> KvResult<BatchResponse> {
        match self.client.send(batch, self.required_connection()).await {
            Ok(sent) => Ok(sent.response),
            Err(SendError::Kv(error)) => Err(self.client.strip(error)),
            Err(SendError::OtherConnection) => Err(lost_locks()),
            Err(SendError::Lost) => Err(KvError::new(
                KvErrorKind::Ambiguous,
                "the connection to the KV node was lost while the transaction committed",
            )),
        }
    }

    /// The connection that the transaction is bound to by its locks and intents: the KV node forgets
    /// them with it.
    fn required_connection(&self) -> Option<u64> {
        let state = self.state.lock();
        state.connection.filter(|_| state.known_to_node())
    }

    /// Undoes everything.
    pub async fn rollback(&self) {
        self.end_in_background();
    }

    /// Tells the KV node, if it knows the transaction, that it has ended without effect. What the KV node
    /// does not hear of it cleans up by itself when the connection ends.
    fn end_in_background(&self) {
        let header = {
            let mut state = self.state.lock();
            let known = state.status == Status::Open && state.known_to_node();
            state.status = Status::Ended;
            state.buffer.clear();
            if !known {
                return;
            }
            Header { txn: Some(state.meta()), ..Header::default() }
        };
        let requests = vec![RequestKind::EndTxn(EndTxn { commit: false }).into()];
        self.client.send_and_forget(BatchRequest { header, requests });
    }

    fn full_span(&self, span: &Span) -> Span {
        let tenant = self.client.tenant();
        // An empty end would be the end of the tenant's keys.
        let end = if span.end.is_empty() { tenant.span().end } else { tenant.prefixed(&span.end) };
        Span::new(tenant.prefixed(&span.start), end)
    }

    /// What the transaction itself wrote to a key and the KV node does not know.
    fn written(&self, key: &[u8]) -> KvResult<Option<Option<Bytes>>> {
        let state = self.state.lock();
        check_open(&state)?;
        Ok(state.buffer.get(key))
    }

    fn write(&self, key: &[u8], write: Write) -> KvResult<()> {
        let full = self.client.tenant().prefixed(key);
        let value_len = match &write {
            Write::Put(value) | Write::Insert(value) => value.len(),
            Write::Delete => 0,
        };
        if full.len() > MAX_KEY_LEN || value_len > MAX_VALUE_LEN {
            let message = format!("a key of {} bytes with a value of {value_len} is too large", full.len());
            return Err(KvError::new(KvErrorKind::InvalidRequest, message));
        }
        let mut state = self.state.lock();
        check_open(&state)?;
        state.sequence += 1;
        let sequence = state.sequence;
        state.buffer.push(full, sequence, write);
        Ok(())
    }

    fn note_read(&self, span: Span, options: ReadOptions) {
        let mut state = self.state.lock();
        state.has_locks |= options.lock != LockStrength::None;
        if self.options.isolation == Isolation::Serializable {
            state.refresh.add(span);
        }
    }

    fn header(&self, options: ReadOptions, target_bytes: u64) -> Header {
        let state = self.state.lock();
        let moves = options.lock != LockStrength::None;
        Header {
            txn: Some(state.meta()),
            read_timestamp: state.read_timestamp,
            refresh_spans: if moves { state.refresh.to_vec() } else { Vec::new() },
            fixed_read_timestamp: state.fixed,
            wait_policy: options.wait as i32,
            lock_timeout_ms: self.options.lock_timeout_ms,
            target_bytes,
        }
    }

    /// Sends reads.
    async fn read(
        &self,
        requests: Vec<Request>,
        options: ReadOptions,
        target_bytes: u64,
    ) -> KvResult<BatchResponse> {
        let batch = BatchRequest { header: self.header(options, target_bytes), requests };
        let bound = options.lock != LockStrength::None || self.state.lock().known_to_node();
        let response = if bound {
            // What the batch locks before it fails is held all the same.
            self.state.lock().has_locks |= options.lock != LockStrength::None;
            self.send_bound(batch).await?
        } else {
            self.client.resend_batch(batch).await?.response
        };
        advance(&mut self.state.lock(), &response);
        Ok(response)
    }

    /// Sends a batch of a transaction that the KV node knows, or will know by it. All of them must go on
    /// one connection.
    async fn send_bound(&self, batch: BatchRequest) -> KvResult<BatchResponse> {
        match self.client.send(batch, self.required_connection()).await {
            Ok(sent) => {
                self.state.lock().connection = Some(sent.connection);
                Ok(sent.response)
            }
            Err(SendError::Kv(error)) => Err(self.client.strip(error)),
            Err(SendError::Lost | SendError::OtherConnection) => Err(lost_locks()),
        }
    }

    /// Turns what the KV node returned for a span into a page: own writes laid over, cut to the limit,
    /// prefixes stripped.
    fn page(&self, span: Span, options: &ScanOptions, rows: Vec<KeyValue>, resume: Option<Span>) -> ScanPage {
        let mut covered = span.clone();
        match &resume {
            Some(rest) if options.reverse => covered.start = rest.end.clone(),
            Some(rest) => covered.end = rest.start.clone(),
            None => {}
        }
        let (rows, mut resume) = {
            let state = self.state.lock();
            let rows = if state.buffer.touches(&covered.start, &covered.end) {
                state.buffer.overlay(&covered.start, &covered.end, options.reverse, rows)
            } else {
                rows
            };
            (rows, resume)
        };
        if covered.start < covered.end {
            self.note_read(covered, options.read);
        }
        let limit = usize::try_from(options.limit).unwrap_or(usize::MAX);
        let mut rows = rows;
        if limit > 0 && rows.len() > limit {
            rows.truncate(limit);
            if let Some(last) = rows.last() {
                resume = Some(if options.reverse {
                    Span::new(span.start.clone(), last.key.clone())
                } else {
                    Span::new(Bytes::from([&last.key[..], &[0]].concat()), span.end.clone())
                });
            }
        }
        let strip = |key: Bytes| self.client.strip_key(key);
        let resume = resume
            .filter(|rest| rest.start < rest.end)
            .map(|rest| Span { start: strip(rest.start), end: strip(rest.end) });
        ScanPage { rows: rows.into_iter().map(|row| (strip(row.key), row.value)).collect(), resume }
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        self.end_in_background();
    }
}

fn lost_locks() -> KvError {
    KvError::new(KvErrorKind::Aborted, "the connection to the KV node was lost with the transaction's locks")
}

fn check_open(state: &State) -> KvResult<()> {
    match state.status {
        Status::Open => Ok(()),
        Status::Ended => Err(KvError::new(KvErrorKind::Aborted, "the transaction has ended")),
    }
}

/// Takes note of where the KV node read.
fn advance(state: &mut State, response: &BatchResponse) {
    if let Some(timestamp) = response.read_timestamp {
        state.read_timestamp = Some(timestamp);
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
