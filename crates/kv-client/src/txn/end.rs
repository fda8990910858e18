//! The end of a transaction.

use super::options::{CommitInfo, ReadOptions};
use super::state::{State, Status, ended};
use super::write::{MAX_WRITE_BYTES, MAX_WRITES};
use super::{Txn, lost};
use crate::metrics::metrics;
use crate::router::{Place, SendError, Sending};
use kv_api::batch::{BatchRequest, EndTxn, RequestKind};
use kv_api::{BatchResponse, Header, KvError, KvErrorKind, KvResult};

impl Txn {
    /// Commits.
    ///
    /// # Errors
    /// `Retry` if something read has changed, `ConditionFailed` if an inserted key exists, `Ambiguous` if
    /// the connection was lost under the commit. The transaction has ended in any case.
    pub async fn commit(&self) -> KvResult<CommitInfo> {
        // Dropping this future, or an error, rolls back.
        let unfinished = Unfinished(self);
        if self.is_beyond_one_batch() {
            self.flush().await?;
        }
        let mut from = Status::Open;
        let response = loop {
            let Some((mut batch, place)) = self.begin_commit(from)? else {
                drop(unfinished);
                return Ok(CommitInfo { timestamp: None });
            };
            match self.send_commit(&mut batch, place.as_ref()).await? {
                Some(response) => break response,
                None => self.move_on()?,
            }
            from = Status::Committing;
        };
        let mut state = self.state.lock();
        state.status = Status::Ended;
        state.buffer.clear();
        Ok(CommitInfo { timestamp: response.commit_timestamp })
    }

    /// The batch that commits, and where it must go; `None` if there is nothing to commit.
    fn begin_commit(&self, from: Status) -> KvResult<Option<(BatchRequest, Option<Place>)>> {
        let mut state = self.state.lock();
        if state.status != from {
            return Err(ended());
        }
        state.check_settled()?;
        state.status = Status::Committing;
        let mut requests = state.buffer.outcome();
        if requests.is_empty() && !state.has_intents {
            return Ok(None);
        }
        requests.push(RequestKind::EndTxn(EndTxn { commit: true, ..EndTxn::default() }).into());
        let header = state.header(ReadOptions::default(), true, 0);
        let place = state.required_place();
        // A commit may come to hold locks before it fails.
        state.known = true;
        Ok(Some((BatchRequest { header, requests }, place)))
    }

    fn is_beyond_one_batch(&self) -> bool {
        let state = self.state.lock();
        state.buffer.len() > MAX_WRITES || state.buffer.bytes() > MAX_WRITE_BYTES && state.buffer.len() > 1
    }

    /// Sends a commit; `None` if the node that knows the transaction has lost the lease.
    async fn send_commit(
        &self,
        batch: &mut BatchRequest,
        place: Option<&Place>,
    ) -> KvResult<Option<BatchResponse>> {
        // Others may wait for this one, so it does not queue behind them.
        let error = match self.client.send(batch, Sending { place, ..Sending::default() }).await {
            Ok(sent) => return Ok(Some(sent.response)),
            Err(SendError::Moved) => return Ok(None),
            Err(SendError::Kv(error)) => error,
            Err(SendError::OtherConnection) => lost(),
            Err(SendError::Lost) => {
                let message = "the connection to the KV node was lost while the transaction committed";
                KvError::new(KvErrorKind::Ambiguous, message)
            }
        };
        if error.kind() == KvErrorKind::Ambiguous {
            metrics().ambiguous.inc();
        }
        Err(error)
    }

    /// Undoes everything. Does not wait for the KV node.
    pub async fn rollback(&self) {
        self.end_in_background();
    }

    /// Ends the transaction without effect, unless it has ended, and tells the KV node if it may know
    /// the transaction. What the node does not hear of it cleans up by itself when the connection ends;
    /// what it has committed it does not undo.
    fn end_in_background(&self) {
        let (header, place) = {
            let mut state = self.state.lock();
            if !state.end() {
                return;
            }
            (Header { txn: Some(state.meta()), ..Header::default() }, state.place.take())
        };
        let requests = vec![RequestKind::EndTxn(EndTxn::default()).into()];
        self.client.send_and_forget(BatchRequest { header, requests }, place);
    }
}

impl State {
    /// Ends; whether the node has to be told.
    fn end(&mut self) -> bool {
        let tell = self.status != Status::Ended && self.known;
        self.status = Status::Ended;
        self.buffer.clear();
        tell
    }
}

/// Rolls back when dropped, unless the transaction has ended by then.
struct Unfinished<'a>(&'a Txn);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.end_in_background();
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        self.end_in_background();
    }
}
