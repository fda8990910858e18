//! The end of a transaction.

use super::commit::{Attempt, Plan};
use super::options::CommitInfo;
use super::part::Part;
use super::state::{State, Status, ended};
use super::write::{MAX_WRITE_BYTES, MAX_WRITES};
use super::{Txn, moved};
use crate::client::KvClient;
use crate::router::Place;
use bytes::Bytes;
use kv_api::batch::{BatchRequest, EndTxn, RequestKind};
use kv_api::{Header, KvResult, TxnMeta};
use smallvec::SmallVec;

/// Times a commit is begun. Before each time but the first a lease has moved or a range was split.
const MAX_ATTEMPTS: usize = 32;

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
        if !self.begin_commit()? {
            drop(unfinished);
            return Ok(CommitInfo { timestamp: None });
        }
        for _ in 0..MAX_ATTEMPTS {
            let (range_id, attempt) = match self.plan().await? {
                Plan::Here(range_id) => (range_id, self.commit_in(range_id, None).await?),
                Plan::Pinned { writer, readers } => (writer, self.commit_pinned(writer, &readers).await?),
                // That goes on also when this future is dropped.
                Plan::Wide(shares) => return self.commit_wide(shares).await,
            };
            let timestamp = match attempt {
                Attempt::Again | Attempt::Behind(_) => continue,
                Attempt::Committed(timestamp) => timestamp,
                Attempt::CommittedAt(timestamp) => Some(timestamp),
            };
            self.committed_in(range_id);
            return Ok(CommitInfo { timestamp });
        }
        Err(moved())
    }

    /// Begins to commit; whether there is anything to commit.
    fn begin_commit(&self) -> KvResult<bool> {
        let mut state = self.state.lock();
        if state.status != Status::Open {
            return Err(ended());
        }
        state.check_settled()?;
        state.status = Status::Committing;
        Ok(!state.buffer.is_empty() || state.has_intents())
    }

    fn is_beyond_one_batch(&self) -> bool {
        let state = self.state.lock();
        state.buffer.len() > MAX_WRITES || state.buffer.bytes() > MAX_WRITE_BYTES && state.buffer.len() > 1
    }

    /// Undoes everything. Does not wait for the KV node.
    pub async fn rollback(&self) {
        self.end_in_background();
    }

    /// The transaction has committed in a range, which knows that. Locks in others go.
    fn committed_in(&self, range_id: u64) {
        let farewells = {
            let mut state = self.state.lock();
            state.status = Status::Ended;
            state.buffer.clear();
            state.farewells(|other| other != range_id)
        };
        farewells.into_iter().for_each(|farewell| farewell.send(&self.client));
    }

    /// Ends the transaction without effect, unless it has ended, and tells the KV nodes that may know the
    /// transaction. What a node does not hear of it cleans up by itself when the connection ends; what it has
    /// committed it does not undo.
    fn end_in_background(&self) {
        let farewells = {
            let mut state = self.state.lock();
            if state.status == Status::Ended {
                return;
            }
            state.status = Status::Ended;
            state.buffer.clear();
            let farewells = state.farewells(|_| true);
            state.parts.iter_mut().for_each(|part| part.place = None);
            farewells
        };
        farewells.into_iter().for_each(|farewell| farewell.send(&self.client));
    }
}

/// What a node is told of a transaction that ends there without effect.
pub struct Farewell {
    pub meta: TxnMeta,
    pub place: Option<Place>,
    /// The range. Another one that has the key by now may have a part that goes on.
    pub range_id: u64,
    pub key: Bytes,
}

impl Farewell {
    /// The batch that says so.
    pub fn batch(&self) -> BatchRequest {
        let header = Header { txn: Some(self.meta.clone()), ..Header::default() };
        BatchRequest { header, requests: vec![RequestKind::EndTxn(EndTxn::default()).into()] }
    }

    /// Sends it without waiting for the answer.
    pub fn send(self, client: &KvClient) {
        client.send_and_forget(self.batch(), self.place, self.range_id, &self.key);
    }
}

impl State {
    /// What is to be said to the nodes that may know the transaction, of some of the ranges.
    pub(super) fn farewells(&self, of: impl Fn(u64) -> bool) -> SmallVec<[Farewell; 1]> {
        let told = self.parts.iter().filter(|part| part.known && of(part.at.range_id));
        let farewell = |part: &Part, place| Farewell {
            meta: self.meta(Some(part)),
            place,
            range_id: part.at.range_id,
            key: part.key.clone(),
        };
        told.flat_map(|part| part.farewell_places().into_iter().map(move |place| farewell(part, place)))
            .collect()
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
