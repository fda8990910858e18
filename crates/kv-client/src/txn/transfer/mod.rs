//! A transaction that changes its process: [`Txn::export`] here, [`KvClient::import`] there.
//!
//! # How it goes
//!
//! ```text
//!   exporter                        nodes                              importer
//!   DetachTxn to every part ──────► they belong to nobody,
//!                                   under hop number h + 1
//!   the bytes, signed ──────────────────────────────────────────────► verified
//!                                   the claim is given, once ◄──────── AdoptTxn to the range of the claim
//!                                   the others follow ◄─────────────── AdoptTxn to the other parts
//! ```
//!
//! The state is carried as it is (`encode`), signed (`token`). All that it rests on at the nodes, locks, intents, what
//! was noted of reads there, stays there. What keeps two processes from going on with one transaction is there, too:
//! a part that waits is given to one of all who ask, and none but who comes with the number under which it was left.
//! A transaction that nothing is known of yet, because it has only read or its writes are all buffered, would have no
//! such part; so one is made at one range, the *claim*. It is taken over before anything else, and where nothing but
//! the claim is there, it ends with that, and the transaction is again one that no node knows.
//!
//! # What goes wrong
//!
//! | what | what becomes of it |
//! |---|---|
//! | the transaction has ended, its commit is under way or in doubt | export fails with `Aborted` |
//! | requests of it are under way | export fails with `InvalidRequest`, and the transaction stays as it is |
//! | what is to be carried is too large | the same with `Overloaded`; buffered writes are flushed first where they are many |
//! | a range refuses, or its answer is lost | export fails, and the transaction is rolled back |
//! | export is dropped half way | it is rolled back |
//! | nobody imports it | the nodes abort it after [half a minute](#bounds) |
//! | bytes that were changed, cut, signed with another key, or are of another version | import fails with `InvalidRequest` |
//! | another tenant's, or another cluster's | import fails with `Unauthorized`, or `InvalidRequest` |
//! | imported already, exported again since, ended, too late, or the range of the claim changed its leaseholder | import fails with `Aborted`; whoever has the transaction notices nothing |
//! | the range of the claim is not to be reached | import fails with `Unavailable`; to try again is safe |
//! | the connection is lost under the claim | import fails with `Aborted` |
//! | another range lost its part with its lease | goes on without its locks if nothing rests on them, like any transaction whose lease moved; or else import fails with `Aborted`, and the transaction is rolled back |
//! | import is dropped half way | it is rolled back if the claim was had |
//! | a range was split in between | parts and claim stay with the left half, which keeps its name; locks in the right half are gone, as always |
//!
//! `Aborted` is SQLSTATE 40001, `InvalidRequest` 22023, `Unauthorized` 42501: see [`KvErrorKind`].
//!
//! Requests whose futures were dropped may still be with a node when the transaction leaves. The node ends their waits
//! for locks, and refuses them, for they are under the old number; a lock that one got before stays the transaction's.
//! One that was dropped while it flushed leaves a transaction that cannot go on, and so is not exported.
//!
//! A part that waits for its importer holds its locks; others wait for those as for any, and cycles are found when the
//! importer waits for something itself.
//!
//! Savepoints are sequence numbers, and stay valid ([`Savepoint::number`](super::Savepoint::number)). Under READ
//! COMMITTED a statement that goes on reads the snapshot that it had.
//!
//! # Bounds
//!
//! The bytes are at most [`MAX_BYTES`]. A part waits for 30 seconds, give or take some, and at most 1024 of one tenant
//! wait at a node (`kv_server::Limits`).

mod encode;
#[cfg(test)]
mod tests;
mod token;

pub use token::TransferKey;

use super::end::Farewell;
use super::state::{State, Status, ended};
use super::{Isolation, Txn, aborted_if_lost, lost, moved, split_without_end};
use crate::client::KvClient;
use crate::join::try_all;
use crate::metrics::metrics;
use crate::router::{Place, SendError, Sending};
use bytes::Bytes;
use encode::{Claim, Exported};
use kv_api::batch::{AdoptTxn, BatchRequest, DetachTxn, RequestKind};
use kv_api::{Header, KvError, KvErrorKind, KvResult, TxnMeta};

/// Buffered writes that are carried; more are flushed first.
const MAX_CARRIED_WRITES: usize = 16 << 20;
/// Most bytes of an exported transaction: the writes, which take less than the buffer charges for them, what was read,
/// and what is known of ranges.
const MAX_BYTES: usize = MAX_CARRIED_WRITES + (4 << 20);
/// Times that the claim is left anew because a lease has moved.
const MAX_ATTEMPTS: usize = 8;

/// What became of a part that was to be left.
enum Left {
    /// It waits.
    Waits,
    /// It is the claim, and nothing else is there any more.
    ClaimOnly,
    /// It went with its lease, and nothing rests on it.
    Gone,
}

impl Txn {
    /// Hands the transaction to another process: ends it here and returns bytes from which [`KvClient::import`] makes
    /// it again, once, within half a minute. Locks, intents and savepoints stay. To be called between two statements.
    ///
    /// # Errors
    /// `InvalidRequest` while requests of the transaction are under way, and `Overloaded` if it is too large to be
    /// carried: the transaction stays open then. `Aborted` if it has ended. Whatever else keeps the nodes from letting
    /// it go: it is rolled back then.
    pub async fn export(&self, key: &TransferKey) -> KvResult<Bytes> {
        if self.state.lock().buffer.bytes() > MAX_CARRIED_WRITES {
            self.flush().await?;
        }
        let claim = self.claim_range().await?;
        // Nobody moves the snapshot meanwhile.
        let Ok(_alone) = self.moving.try_lock() else { return Err(under_way()) };
        let (leaving, claim, ranges) = self.begin_to_leave(claim)?;
        let left = try_all(ranges.iter().map(|range| self.leave(*range, claim.range_id)).collect()).await?;
        let exported = leaving.finish(claim, left)?;
        metrics().exports.inc();
        Ok(token::seal(&exported, key))
    }

    /// The range whose part decides who takes the transaction over: one that has a part, or else one that it has to do
    /// with.
    async fn claim_range(&self) -> KvResult<u64> {
        let key = {
            let state = self.state.lock();
            state.check_open()?;
            state.check_settled()?;
            let known = || state.parts.iter().filter(|part| part.known);
            if let Some(part) = known().find(|part| part.has_intents).or_else(|| known().next()) {
                return Ok(part.at.range_id);
            }
            let written = state.buffer.first_key(b"").cloned();
            written.or_else(|| state.refresh.iter().next().map(|span| span.start.clone()))
        };
        let key = key.unwrap_or_else(|| self.client.tenant_span().start.clone());
        self.locate(&key, false).await
    }

    /// Lets nothing begin any more; returns the claim and the ranges with parts.
    fn begin_to_leave(&self, claim: u64) -> KvResult<(Leaving<'_>, Claim, Vec<u64>)> {
        let mut state = self.state.lock();
        state.check_open()?;
        state.check_settled()?;
        if state.reads_in_flight > 0 || state.parts.iter().any(|part| part.bound_in_flight > 0) {
            return Err(under_way());
        }
        let only = state.parts.get(claim).is_some_and(|part| !part.known);
        let claim = Claim { range_id: claim, only };
        if token::sealed_len(&self.exported(&state, claim)) > MAX_BYTES {
            let message = format!("the transaction is too large to be exported: more than {MAX_BYTES} bytes");
            return Err(KvError::new(KvErrorKind::Overloaded, message));
        }
        let Some(part) = state.parts.get_mut(claim.range_id) else { return Err(split_without_end()) };
        // The node comes to know it, and is to be told if nothing comes of this.
        part.known = true;
        let known = state.parts.iter().filter(|part| part.known);
        let ranges = known.map(|part| part.at.range_id).collect();
        state.status = Status::Leaving;
        Ok((Leaving(self), claim, ranges))
    }

    fn exported(&self, state: &State, claim: Claim) -> Exported {
        let cluster_id = self.client.cluster_id();
        Exported::of(
            cluster_id,
            self.client.tenant(),
            &self.options,
            state,
            claim,
            state.hop.saturating_add(1),
        )
    }

    /// Leaves the part in a range.
    async fn leave(&self, range_id: u64, claim: u64) -> KvResult<Left> {
        let mut left = Left::Waits;
        for _ in 0..MAX_ATTEMPTS {
            let (mut batch, place, key) = {
                let state = self.state.lock();
                let Some(part) = state.parts.get(range_id) else { return Err(split_without_end()) };
                let detach = DetachTxn { key: part.key.clone() };
                let batch = about(state.meta(Some(part)), &state, RequestKind::DetachTxn(detach));
                (batch, part.required_place(), part.key.clone())
            };
            let sending = Sending {
                place: place.as_ref(),
                key: Some(&key),
                range: Some(range_id),
                ..Sending::default()
            };
            match self.client.send(&mut batch, sending).await {
                Ok(_) => return Ok(left),
                Err(SendError::Moved) => left = self.moved_away(range_id, claim)?,
                Err(error) => return Err(aborted_if_lost(error)),
            }
            if matches!(left, Left::Gone) {
                return Ok(left);
            }
        }
        Err(moved())
    }

    /// The part that was to be left went with its lease.
    fn moved_away(&self, range_id: u64, claim: u64) -> KvResult<Left> {
        let mut state = self.state.lock();
        let validated = self.options.isolation == Isolation::Serializable;
        let Some(part) = state.parts.get_mut(range_id).filter(|part| validated && !part.has_intents) else {
            return Err(moved());
        };
        part.become_unknown();
        if range_id != claim {
            return Ok(Left::Gone);
        }
        // It is made anew under the next lease.
        part.known = true;
        Ok(Left::ClaimOnly)
    }

    /// Takes the parts over that wait besides the claim.
    async fn take_over(&self, claim: u64) -> KvResult<()> {
        let ranges: Vec<u64> = {
            let state = self.state.lock();
            let others = state.parts.iter().filter(|part| part.known && part.at.range_id != claim);
            others.map(|part| part.at.range_id).collect()
        };
        try_all(ranges.into_iter().map(|range_id| self.take_over_in(range_id)).collect()).await.map(drop)
    }

    async fn take_over_in(&self, range_id: u64) -> KvResult<()> {
        let (mut batch, key) = {
            let state = self.state.lock();
            adoption(&state, range_id, false)?
        };
        let adopted = send_adoption(&self.client, &mut batch, range_id, &key).await;
        let mut state = self.state.lock();
        state.check_open()?;
        match adopted {
            Ok(place) => {
                state.parts.get_mut(range_id).into_iter().for_each(|part| part.place = Some(place.clone()));
                Ok(())
            }
            Err(error) => {
                let validated = self.options.isolation == Isolation::Serializable;
                let rests = state.parts.get(range_id).is_some_and(|part| part.has_intents);
                if !validated || rests || error.kind() != KvErrorKind::Aborted {
                    return Err(error);
                }
                state.become_unknown(range_id);
                Ok(())
            }
        }
    }
}

impl KvClient {
    /// Goes on with a transaction that was exported with the same key, of the same tenant, perhaps in another process.
    ///
    /// # Errors
    /// `Aborted` if it cannot be had: it was imported already, was exported again since, has ended, waited too long,
    /// or went with a lease. `InvalidRequest` for bytes that no export returned, `Unauthorized` for a transaction of
    /// another tenant, `Unavailable` if the nodes cannot be reached.
    pub async fn import(&self, bytes: Bytes, key: &TransferKey) -> KvResult<Txn> {
        let imported = self.opened(bytes, key);
        let imported = match imported {
            // By itself: once the claim is had somebody must end the transaction, also if the caller leaves.
            Ok((exported, client)) => match tokio::spawn(take_over(client, exported)).await {
                Ok(imported) => imported,
                Err(_) => Err(KvError::new(KvErrorKind::Internal, "the import ended abnormally")),
            },
            Err(error) => Err(error),
        };
        match &imported {
            Ok(_) => metrics().imports.inc(),
            Err(_) => metrics().imports_refused.inc(),
        }
        imported
    }

    fn opened(&self, bytes: Bytes, key: &TransferKey) -> KvResult<(Exported, KvClient)> {
        let exported: Exported = token::open(bytes, key, MAX_BYTES)?;
        if exported.tenant_id != self.tenant().0 {
            let message = "the exported transaction is another tenant's";
            return Err(KvError::new(KvErrorKind::Unauthorized, message));
        }
        let (here, there) = (self.cluster_id(), &exported.cluster_id[..]);
        if !here.is_empty() && !there.is_empty() && here != there {
            return Err(token::invalid("the exported transaction is another cluster's"));
        }
        Ok((exported, self.clone()))
    }
}

/// Takes the claim and then the rest.
async fn take_over(client: KvClient, exported: Exported) -> KvResult<Txn> {
    let (options, mut state, claim) = exported.into_state(client.environment().clone())?;
    let (mut batch, key) = adoption(&state, claim.range_id, claim.only)?;
    // Until this is answered the transaction may be somebody else's: nobody is told that it ends.
    let place = send_adoption(&client, &mut batch, claim.range_id, &key).await?;
    if let Some(part) = state.parts.get_mut(claim.range_id).filter(|_| !claim.only) {
        part.place = Some(place);
    } else {
        state.become_unknown(claim.range_id);
    }
    let txn = Txn::resumed(client, options, state);
    txn.take_over(claim.range_id).await?;
    Ok(txn)
}

/// The batch that asks for the part in a range, and a key there.
fn adoption(state: &State, range_id: u64, claim_only: bool) -> KvResult<(BatchRequest, Bytes)> {
    let Some(part) = state.parts.get(range_id) else { return Err(split_without_end()) };
    let mut meta = state.meta(Some(part));
    if claim_only {
        meta.lease = 0;
    }
    let adopt = AdoptTxn { key: part.key.clone(), claim_only };
    Ok((about(meta, state, RequestKind::AdoptTxn(adopt)), part.key.clone()))
}

async fn send_adoption(
    client: &KvClient,
    batch: &mut BatchRequest,
    range_id: u64,
    key: &Bytes,
) -> KvResult<Place> {
    let sending = Sending { key: Some(key), range: Some(range_id), ..Sending::default() };
    match client.send(batch, sending).await {
        Ok(sent) => Ok(sent.place),
        Err(SendError::Split) => {
            Err(KvError::new(KvErrorKind::Aborted, "the range of the transaction is gone"))
        }
        Err(SendError::Lost) => Err(lost()),
        Err(error) => Err(aborted_if_lost(error)),
    }
}

/// A batch about the transaction itself.
fn about(meta: TxnMeta, state: &State, request: RequestKind) -> BatchRequest {
    let header = Header { txn: Some(meta), read_timestamp: state.read_timestamp, ..Header::default() };
    BatchRequest { header, requests: vec![request.into()] }
}

fn under_way() -> KvError {
    let message = "a transaction cannot be exported while requests of it are under way";
    KvError::new(KvErrorKind::InvalidRequest, message)
}

/// A transaction that leaves: it is rolled back when this is dropped, unless it has left.
struct Leaving<'a>(&'a Txn);

impl Leaving<'_> {
    /// All parts wait: the transaction has ended here.
    fn finish(self, mut claim: Claim, left: Vec<Left>) -> KvResult<Exported> {
        let mut state = self.0.state.lock();
        if state.status != Status::Leaving {
            return Err(ended());
        }
        claim.only |= left.iter().any(|left| matches!(left, Left::ClaimOnly));
        let exported = self.0.exported(&state, claim);
        state.status = Status::Ended;
        state.buffer.clear();
        state.parts.iter_mut().for_each(|part| part.place = None);
        Ok(exported)
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let farewells = {
            let mut state = self.0.state.lock();
            if state.status != Status::Leaving {
                return;
            }
            state.status = Status::Ended;
            state.buffer.clear();
            let farewells = state.farewells(|_| true);
            state.parts.iter_mut().for_each(|part| part.place = None);
            farewells
        };
        // Some of the parts may have been left already.
        for farewell in farewells {
            let mut meta = farewell.meta.clone();
            meta.hop = meta.hop.saturating_add(1);
            let left = Farewell {
                meta,
                place: farewell.place.clone(),
                range_id: farewell.range_id,
                key: farewell.key.clone(),
            };
            farewell.send(&self.0.client);
            left.send(&self.0.client);
        }
    }
}
