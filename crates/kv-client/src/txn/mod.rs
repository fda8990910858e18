//! The transaction coordinator.
//!
//! `state` decides, and the other modules send: `read` reads, `write` buffers and flushes, `end` commits
//! and rolls back.

mod end;
mod options;
mod read;
mod state;
mod write;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use options::{CommitInfo, Isolation, ReadOptions, Savepoint, ScanOptions, ScanPage, TxnOptions};

use crate::client::KvClient;
use crate::router::{Place, SendError, Sending};
use kv_api::batch::BatchRequest;
use kv_api::{BatchResponse, KvError, KvErrorKind, KvResult, Timestamp};
use parking_lot::Mutex;
use state::{State, Status};

/// Keys a READ COMMITTED transaction trusts the KV node to keep locked; the node's own bound is above.
const TRUSTED_LOCKS: usize = 32_000;

/// A transaction. Usable through `&self`: reads may overlap with each other and with writes; flushes,
/// savepoints and the end come one at a time. Dropping it rolls it back.
pub struct Txn {
    client: KvClient,
    options: TxnOptions,
    state: Mutex<State>,
}

impl Txn {
    pub(crate) fn new(client: KvClient, options: TxnOptions) -> Self {
        let state = State::new(options.lock_timeout_ms, client.environment().clone());
        Txn { client, options, state: Mutex::new(state) }
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
        state.has_intents || !state.buffer.is_empty()
    }

    /// Whether the transaction has read, locked or written nothing that a retry would have to repeat.
    pub fn is_pristine(&self) -> bool {
        let state = self.state.lock();
        state.read_timestamp.is_none() && !state.known && state.buffer.is_empty()
    }

    /// Starts a statement. Under READ COMMITTED it gets a snapshot of its own.
    pub fn begin_statement(&self) {
        if self.options.isolation == Isolation::ReadCommitted {
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
        self.state.lock().undo(savepoint.sequence);
    }

    /// Sends a batch by which the node knows, or comes to know, the transaction. All of these go on one
    /// connection.
    async fn send_bound(&self, batch: &mut BatchRequest, waits: bool) -> Result<BatchResponse, SendError> {
        let place = {
            let mut state = self.state.lock();
            state.known = true;
            state.bound_in_flight += 1;
            state.required_place()
        };
        // Also when this future is dropped.
        let _in_flight = BoundInFlight(self);
        let sent =
            self.client.send(batch, Sending { place: place.as_ref(), waits, ..Sending::default() }).await?;
        let mut state = self.state.lock();
        let elsewhere = |known: &Place| known.connection.number != sent.place.connection.number;
        if state.place.as_ref().is_some_and(elsewhere) {
            // The first two batches went out together, and the lease moved in between.
            return Err(SendError::OtherConnection);
        }
        state.place = Some(sent.place);
        if state.lease == 0 {
            state.lease = sent.response.lease;
        }
        Ok(sent.response)
    }

    /// The node that knows the transaction has lost the lease, and with it the transaction's locks. Goes on
    /// as one that the new leaseholder does not know, if nothing rests on them.
    fn move_on(&self) -> KvResult<()> {
        let mut state = self.state.lock();
        let validated = self.options.isolation == Isolation::Serializable;
        if !validated || state.has_intents || state.flushing || state.bound_in_flight > 0 {
            return Err(moved());
        }
        state.become_unknown();
        Ok(())
    }
}

struct BoundInFlight<'a>(&'a Txn);

impl Drop for BoundInFlight<'_> {
    fn drop(&mut self) {
        self.0.state.lock().bound_in_flight -= 1;
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

/// An error of a batch that was not committed.
fn aborted_if_lost(error: SendError) -> KvError {
    match error {
        SendError::Kv(error) => error,
        SendError::Lost | SendError::OtherConnection => lost(),
        SendError::Moved => moved(),
    }
}
