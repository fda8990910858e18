//! The transaction coordinator.
//!
//! `state` and `part` decide, and the other modules send: `read` reads, `group` shares the reads of a call out
//! among the ranges, `snapshot` moves the snapshot, `write` buffers and flushes, `end` and `commit` end, and
//! `transfer` hands the transaction to another process.

mod columns;
mod commit;
mod end;
mod flush_all;
mod group;
mod options;
mod part;
mod read;
mod snapshot;
mod state;
mod transfer;
mod write;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use options::{
    ColumnPage, CommitInfo, FOLLOWER_READ_AGE, Isolation, ReadOptions, Savepoint, ScanOptions, ScanPage,
    TxnOptions,
};
pub use transfer::TransferKey;

use crate::client::KvClient;
use crate::deadline::CommitDeadline;
use crate::faults::Bug;
use crate::lead::{Answered, Asked};
use crate::router::{Place, SendError, Sending, Sent, Tried};
use bytes::Bytes;
use end::Farewell;
use kv_api::batch::{BatchRequest, RequestKind};
use kv_api::{BatchResponse, KvError, KvErrorKind, KvResult, Timestamp};
use parking_lot::Mutex;
use state::{State, Status};
use std::sync::Arc;

/// Keys a READ COMMITTED transaction trusts the KV node to keep locked; the node's own bound is above.
const TRUSTED_LOCKS: usize = 32_000;

/// The name of a transaction as it shows in listings ([`KvClient::contention`]). It may change as long as nothing rests
/// on what nodes know of it.
#[derive(Clone, Debug)]
pub struct TxnName(Arc<Mutex<Bytes>>);

impl TxnName {
    fn new(id: Bytes) -> Self {
        TxnName(Arc::new(Mutex::new(id)))
    }

    /// Sixteen bytes.
    pub fn id(&self) -> Bytes {
        self.0.lock().clone()
    }

    fn replace(&self, id: Bytes) {
        *self.0.lock() = id;
    }
}

/// A transaction. Usable through `&self`: reads may overlap with each other and with writes; flushes,
/// savepoints and the end come one at a time. Dropping it rolls it back.
pub struct Txn {
    client: KvClient,
    options: TxnOptions,
    state: Mutex<State>,
    /// Held by who moves the snapshot over several ranges.
    moving: tokio::sync::Mutex<()>,
    /// The latest timestamp at which it may commit.
    deadline: Option<Arc<CommitDeadline>>,
}

impl Txn {
    pub(crate) fn new(client: KvClient, options: TxnOptions) -> Self {
        let mut state = State::new(options.lock_timeout_ms, options.priority, client.environment().clone());
        (state.read_timestamp, state.fixed) = (options.as_of, options.as_of.is_some());
        Self::resumed(client, options, state)
    }

    /// What the KV layer knows the transaction by, for as long as it is open.
    pub fn name(&self) -> TxnName {
        self.state.lock().name.clone()
    }

    /// One that goes on with what another coordinator did.
    fn resumed(client: KvClient, options: TxnOptions, state: State) -> Self {
        let deadline = client.deadline();
        Txn { client, options, state: Mutex::new(state), moving: Default::default(), deadline }
    }

    /// The latest timestamp at which it may commit, if there is one.
    fn deadline(&self) -> Option<Timestamp> {
        self.deadline.as_ref()?.timestamp()
    }

    /// Fails if it may not commit at a timestamp.
    fn check_deadline(&self, at: Timestamp) -> KvResult<()> {
        self.deadline.as_ref().map_or(Ok(()), |deadline| deadline.check(at))
    }

    /// The isolation level.
    pub fn isolation(&self) -> Isolation {
        self.options.isolation
    }

    /// Whether the transaction has neither committed nor failed nor been rolled back.
    pub fn is_open(&self) -> bool {
        self.state.lock().status == Status::Open
    }

    /// The snapshot, once something was read.
    pub fn read_timestamp(&self) -> Option<Timestamp> {
        self.state.lock().read_timestamp
    }

    /// Whether anything was written (and not undone while it was buffered).
    pub fn has_writes(&self) -> bool {
        let state = self.state.lock();
        !state.buffer.is_empty() || state.has_intents()
    }

    /// Whether the transaction has read, locked or written nothing that a retry would have to repeat.
    pub fn is_pristine(&self) -> bool {
        let state = self.state.lock();
        let known = state.parts.iter().any(|part| part.known);
        state.read_timestamp.is_none() && !known && state.buffer.is_empty()
    }

    /// Starts a statement. Under READ COMMITTED it gets a snapshot of its own.
    pub fn begin_statement(&self) {
        let planted = || self.client.environment().planted(Bug::SnapshotPerStatement);
        if self.options.isolation == Isolation::ReadCommitted || planted() {
            self.state.lock().new_snapshot();
        }
    }

    /// The snapshot may not move any more: rows read at it have left the server. Lasts as long as the
    /// snapshot.
    pub fn pin_snapshot(&self) {
        self.state.lock().fixed = true;
    }

    /// Marks a point to return to.
    pub fn savepoint(&self) -> Savepoint {
        let mut state = self.state.lock();
        let sequence = state.sequence + 1;
        state.buffer.protect(sequence);
        Savepoint { sequence }
    }

    /// Undoes everything written since the savepoint, which can be returned to again. Locks stay.
    pub fn rollback_to(&self, savepoint: Savepoint) {
        if !self.client.environment().planted(Bug::UndoneKept) {
            self.state.lock().undo(savepoint.sequence);
        }
    }

    /// The range that holds a key or, if `before`, the keys right below it. What the transaction does not know the
    /// client does, or looks up.
    async fn locate(&self, key: &Bytes, before: bool) -> KvResult<u64> {
        if let Some(known) = self.state.lock().parts.locate(key, before) {
            return Ok(known);
        }
        let at = self.client.locate(key, before).await?;
        let range_id = at.range_id;
        self.state.lock().parts.learn(at);
        Ok(range_id)
    }

    /// A range does not hold the keys any more that it held: it was split. The next look finds out how. Locks on
    /// the keys it gave up went with them.
    fn forget_range(&self, range_id: u64) -> KvResult<()> {
        let mut state = self.state.lock();
        let rests = |part: &part::Part| part.known && self.options.isolation == Isolation::ReadCommitted;
        if state.parts.get(range_id).is_some_and(rests) {
            return Err(moved());
        }
        state.parts.mislay(range_id);
        Ok(())
    }

    /// Sends a batch to a range by which its node knows, or comes to know, the transaction. All of these go on one
    /// connection.
    async fn send_bound(
        &self,
        range_id: u64,
        batch: &mut BatchRequest,
        waits: bool,
    ) -> Result<BatchResponse, SendError> {
        let (place, key) = {
            let mut state = self.state.lock();
            let part = state.parts.get_mut(range_id).ok_or(SendError::Split)?;
            part.known = true;
            part.bound_in_flight += 1;
            (part.place.clone(), names_no_key(batch).then(|| part.key.clone()))
        };
        // Also when this future is dropped.
        let in_flight = BoundInFlight { txn: self, range_id, tried: Tried::default() };
        let (place, key, tried) = (place.as_ref(), key.as_ref(), Some(&in_flight.tried));
        let sending = Sending { place, key, waits, range: Some(range_id), tried, ..Sending::default() };
        let sent = self.send_timed(range_id, batch, sending).await?;
        let mut state = self.state.lock();
        let part = state.parts.get_mut(range_id).ok_or(SendError::Split)?;
        let elsewhere = |known: &Place| known.connection.number != sent.place.connection.number;
        if part.place.as_ref().is_some_and(elsewhere) {
            // The first two batches went out together, and the lease moved in between. Only the first place is
            // remembered, so the other one is told now that nothing comes of it.
            let (key, meta) = (part.key.clone(), state.meta(state.parts.get(range_id)));
            drop(state);
            Farewell { meta, place: Some(sent.place), range_id, key }.send(&self.client);
            return Err(SendError::OtherConnection);
        }
        part.place = Some(sent.place);
        if part.lease == 0 {
            part.lease = sent.response.lease;
        }
        Ok(sent.response)
    }

    /// Sends a batch, and takes note of what the clock of the range shows if the answer says so.
    async fn send_timed(
        &self,
        range_id: u64,
        batch: &mut BatchRequest,
        sending: Sending<'_>,
    ) -> Result<Sent, SendError> {
        if batch.header.uncertainty_limit.is_none() || sending.waits {
            return self.client.send(batch, sending).await;
        }
        let sent_ns = self.client.environment().physical_ns();
        let sent = self.client.send(batch, sending).await?;
        if let Some(clock) = sent.response.clock {
            let answered = Answered::now(Asked::Read, sent_ns, self.client.environment());
            self.client.with_leads(|leads| leads.note(range_id, clock, answered));
        }
        Ok(sent)
    }

    /// The node that knows the transaction in a range has lost the lease, and with it the transaction's locks. Goes
    /// on as one that the new leaseholder does not know, if nothing rests on them.
    fn move_on(&self, range_id: u64) -> KvResult<()> {
        let mut state = self.state.lock();
        let validated = self.options.isolation == Isolation::Serializable;
        let rests = |part: &part::Part| part.has_intents || part.bound_in_flight > 0;
        if !validated || state.flushing || state.parts.get(range_id).is_some_and(rests) {
            return Err(moved());
        }
        state.become_unknown(range_id);
        Ok(())
    }
}

/// Whether none of a batch's requests says which range it is for.
fn names_no_key(batch: &BatchRequest) -> bool {
    batch.header.refresh_spans.is_empty()
        && matches!(
            batch.requests.first().and_then(|request| request.kind.as_ref()),
            Some(RequestKind::EndTxn(_) | RequestKind::Refresh(_))
        )
}

/// Counts a batch while it is under way, and leaves behind where it went.
struct BoundInFlight<'a> {
    txn: &'a Txn,
    range_id: u64,
    tried: Tried,
}

impl Drop for BoundInFlight<'_> {
    fn drop(&mut self) {
        if let Some(part) = self.txn.state.lock().parts.get_mut(self.range_id) {
            part.bound_in_flight -= 1;
            part.note_tried(self.tried.get_mut().drain(..));
        }
    }
}

fn lost() -> KvError {
    KvError::new(KvErrorKind::Aborted, "the connection to the KV node was lost and the transaction with it")
}

fn read_only() -> KvError {
    KvError::new(KvErrorKind::InvalidRequest, "a read-only transaction neither writes nor locks")
}

fn moved() -> KvError {
    let message = "the lease moved to another KV node, and the locks of the transaction are lost";
    KvError::new(KvErrorKind::Aborted, message)
}

/// What a transaction is told whose ranges are split again and again.
fn split_without_end() -> KvError {
    KvError::new(KvErrorKind::Unavailable, "the range that holds the keys changes again and again")
}

/// An error of a batch that was not committed.
fn aborted_if_lost(error: SendError) -> KvError {
    match error {
        SendError::Kv(error) => error,
        SendError::Lost | SendError::OtherConnection => lost(),
        SendError::Moved => moved(),
        SendError::Split => split_without_end(),
    }
}
