//! The commit of a transaction: planned by how many ranges have a share in it.
//!
//! ```text
//!  writes in    what was read      what is sent
//!  ───────────  ─────────────────  ───────────────────────────────────────────────────────────────
//!  one range    in it, or nothing  its writes and what was read, with the end of the transaction
//!  one range    in others, too     a refresh of those up to T; then the same, to commit at T
//!  several      anywhere           a refresh of those without writes up to T; then `wide`
//! ```
//!
//! Under READ COMMITTED a range where nothing is written but locks are held counts as one that was read: it is asked
//! whether they are held still.

mod pinned;
mod prepare;
mod refresh;
mod settle;
mod share;
mod verdict;
mod wide;

pub use share::Share;

use super::options::ReadOptions;
use super::part::Part;
use super::state::State;
use super::{Isolation, Txn, lost, split_without_end};
use crate::faults::Bug;
use crate::lead::{Answered, Asked};
use crate::metrics::metrics;
use crate::router::{SendError, Sending};
use bytes::Bytes;
use kv_api::batch::{BatchRequest, EndTxn, RequestKind};
use kv_api::{KvError, KvErrorKind, KvResult, Timestamp};

/// Ranges looked up for a commit, splits included.
const MAX_LOOKUPS: usize = 1 << 16;

/// How a transaction commits.
pub enum Plan {
    /// Within this range.
    Here(u64),
    /// Within one range, at a timestamp up to which the others are refreshed.
    Pinned { writer: u64, readers: Vec<Share> },
    /// In several ranges.
    Wide(Shares),
}

impl Plan {
    /// That of a transaction which has to do with one range only.
    fn within(range_id: u64, state: &State) -> Self {
        match state.reads_reach_back() {
            false => Plan::Here(range_id),
            true => Plan::Pinned { writer: range_id, readers: Vec::new() },
        }
    }
}

/// What each range has to do with the commit of a transaction.
pub struct Shares {
    /// Ranges with writes.
    pub writers: Vec<Share>,
    /// Others where what was read, or locked, must be unchanged.
    pub readers: Vec<Share>,
}

/// What became of an attempt to commit within one range.
pub enum Attempt {
    /// It committed; the caller need not wait.
    Committed(Option<Timestamp>),
    /// It committed where it was told to.
    CommittedAt(Timestamp),
    /// It must commit at this timestamp or above it.
    Behind(Timestamp),
    /// Nothing was carried out, and there is a new plan to be made.
    Again,
}

impl Txn {
    /// Plans the commit. Which ranges have a share in it is looked up where it is not known.
    pub(super) async fn plan(&self) -> KvResult<Plan> {
        let trusts_locks = self.options.isolation == Isolation::ReadCommitted;
        for _ in 0..MAX_LOOKUPS {
            let missing = {
                let state = self.state.lock();
                if let Some(range_id) = state.sole_range(trusts_locks) {
                    return Ok(Plan::within(range_id, &state));
                }
                match state.unlocated() {
                    Some(key) => key,
                    None => return Ok(state.shares(trusts_locks).into_plan(&state)),
                }
            };
            self.locate(&missing, false).await?;
        }
        Err(split_without_end())
    }

    /// Commits within one range, at a timestamp if there is one.
    pub(super) async fn commit_in(&self, range_id: u64, at: Option<Timestamp>) -> KvResult<Attempt> {
        self.check_deadline(at.unwrap_or_default())?;
        let (mut batch, place, key) = {
            let mut state = self.state.lock();
            let mut header = state.header(range_id, ReadOptions::default(), true, 0);
            if state.refresh.is_empty() {
                // The range's clock comes to be above it. With spans, it would be where they were read.
                header.read_timestamp = state.commits_above();
            }
            let Some(part) = state.parts.get(range_id) else { return Ok(Attempt::Again) };
            let mut requests = state.buffer.outcome(&part.at);
            let (place, key) = (part.required_place(), requests.is_empty().then(|| part.key.clone()));
            let deadline = self.deadline();
            let end = EndTxn { commit: true, commit_at: at, deadline, ..EndTxn::default() };
            requests.push(RequestKind::EndTxn(end).into());
            // A commit may come to hold locks before it fails.
            state.parts.get_mut(range_id).into_iter().for_each(|part| part.known = true);
            (BatchRequest { header, requests }, place, key)
        };
        (batch.header.uncertainty_limit, batch.header.spans_elsewhere) = (None, false);
        let sent_ns = at.map(|_| self.client.environment().physical_ns());
        // Others may wait for this one, so it does not queue behind them.
        let sending =
            Sending { place: place.as_ref(), key: key.as_ref(), range: Some(range_id), ..Sending::default() };
        let error = match self.client.send(&mut batch, sending).await {
            Ok(sent) => {
                return Ok(match at {
                    Some(at) => {
                        self.client.with_leads(|leads| leads.note_met(range_id));
                        Attempt::CommittedAt(sent.response.commit_timestamp.unwrap_or(at))
                    }
                    None => Attempt::Committed(sent.response.commit_timestamp),
                });
            }
            Err(SendError::Moved) => {
                self.move_on(range_id)?;
                return Ok(Attempt::Again);
            }
            Err(SendError::Split) => {
                self.forget_range(range_id)?;
                return Ok(Attempt::Again);
            }
            Err(SendError::Kv(error)) => error,
            Err(SendError::OtherConnection) => lost(),
            Err(SendError::Lost) if self.client.environment().planted(Bug::SilenceTakenForNo) => lost(),
            Err(SendError::Lost) => ambiguous(),
        };
        if let (KvErrorKind::SnapshotBehind, Some(to), Some(sent_ns)) =
            (error.kind(), error.timestamp.as_deref().copied(), sent_ns)
        {
            let answered = Answered::now(Asked::Write, sent_ns, self.client.environment());
            self.client.with_leads(|leads| leads.note(range_id, to, answered));
            return Ok(Attempt::Behind(to));
        }
        if error.kind() == KvErrorKind::Ambiguous {
            metrics().ambiguous.inc();
        }
        Err(error)
    }
}

impl State {
    /// The range that has all writes and all that was read, if it is known and there is only one.
    fn sole_range(&self, trusts_locks: bool) -> Option<u64> {
        let part = match self.buffer.extent() {
            Some((first, last)) => {
                let part = self.parts.get(self.parts.locate(first, false)?)?;
                Some(part).filter(|part| part.at.holds(last))?
            }
            None => self.parts.iter().find(|part| part.has_intents)?,
        };
        let elsewhere =
            |other: &Part| other.at.range_id != part.at.range_id && rests_on_node(other, trusts_locks);
        let alone = !self.parts.iter().any(elsewhere) && self.refresh.is_within(&part.at);
        alone.then_some(part.at.range_id)
    }

    /// Whether what must be unchanged was read before something that earlier statements saw.
    fn reads_reach_back(&self) -> bool {
        !self.refresh.is_empty() && self.seen > self.read_timestamp
    }

    /// A key that was written or read in a range of which it is not known where it lies.
    fn unlocated(&self) -> Option<Bytes> {
        let end_of = |key: &[u8]| {
            let range_id = self.parts.locate(key, false)?;
            Some(&self.parts.get(range_id)?.at.end)
        };
        let mut written: &[u8] = b"";
        while let Some(key) = self.buffer.first_key(written) {
            match end_of(key) {
                None => return Some(key.clone()),
                Some(end) if end.is_empty() => break,
                Some(end) => written = end,
            }
        }
        if let Some(part) = self.parts.iter().find(|part| part.has_intents && part.at.is_nowhere()) {
            return Some(part.key.clone());
        }
        for span in self.refresh.iter() {
            let mut from = &span.start;
            loop {
                match end_of(from) {
                    None => return Some(from.clone()),
                    Some(end) if end.is_empty() || span.is_point() || *end >= span.end => break,
                    Some(end) => from = end,
                }
            }
        }
        None
    }

    fn shares(&self, trusts_locks: bool) -> Shares {
        let mut shares = Shares { writers: Vec::new(), readers: Vec::new() };
        for part in self.parts.iter() {
            let held = rests_on_node(part, trusts_locks);
            let mut meta = self.meta(Some(part));
            if !held {
                // It may be another lease by now.
                meta.lease = 0;
            }
            let share = Share {
                at: part.at.clone(),
                key: part.key.clone(),
                place: part.required_place(),
                meta,
                held,
                locked: trusts_locks && part.lease != 0,
                intent: part.intent.clone(),
                writes: self.buffer.outcome(&part.at),
                spans: self.refresh.within(&part.at).0,
            };
            if share.is_writer() {
                shares.writers.push(share);
            } else if share.held || !share.spans.is_empty() {
                shares.readers.push(share);
            }
        }
        shares
    }
}

impl Shares {
    fn into_plan(self, state: &State) -> Plan {
        match &self.writers[..] {
            [writer] if self.readers.is_empty() => Plan::within(writer.at.range_id, state),
            [writer] => Plan::Pinned { writer: writer.at.range_id, readers: self.readers },
            _ => Plan::Wide(self),
        }
    }
}

/// Whether the transaction rests on what the node of a range keeps under its lease: intents, or locks.
fn rests_on_node(part: &Part, trusts_locks: bool) -> bool {
    part.has_intents || (trusts_locks && part.known && part.lease != 0)
}

/// What who commits is told if that may or may not have happened.
fn ambiguous() -> KvError {
    let message = "the connection to the KV node was lost while the transaction committed";
    KvError::new(KvErrorKind::Ambiguous, message)
}

/// What who commits is told if clocks of ranges run ahead again and again.
fn out_of_step() -> KvError {
    KvError::new(KvErrorKind::Retry, "could not serialize access: ranges move on faster than the commit")
}
