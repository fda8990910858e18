//! The commit of a transaction with writes in several ranges (`cockroachdb-2020`, section 3.1).
//!
//! ```text
//!  refresh what was read ──► prepare all ──┬─ all at T, keys named ─────────────────────► committed at T
//!  elsewhere, up to T                      ├─ all at T ──────────────► record: commit ──► committed at T
//!                                          ├─ some at T' > T ─► refresh all up to T',
//!                                          │                     record: commit ────────► committed at T'
//!                                          └─ one fails ─────────────────► abort all ───► the error
//! ```
//!
//! Where a range was asked again because it had not answered, a failure says less: the parts may all have been prepared
//! the first time, and whoever met one may have taken the transaction for committed and settled it. What fails
//! then fails because of the transaction's own writes. So the anchor is asked first to see to it that it never commits, which
//! it refuses if it has.
//!
//! It runs in a task of its own, so that a caller who leaves changes nothing: once anything is prepared, it takes
//! somebody to finish it. The caller is told as soon as the outcome is known. Where that takes too long, because a
//! range that may have prepared its part does not answer, the caller is told that it is not known; the task goes on
//! asking for as long as a part can be prepared.

use super::super::end::Farewell;
use super::super::options::CommitInfo;
use super::super::state::{State, Status};
use super::super::{Txn, lost, split_without_end};
use super::prepare::{Answer, Outcome, Shown, prepare};
use super::refresh::refresh;
use super::settle::{self, Settled};
use super::share::Share;
use super::verdict::{Decision, decide};
use super::{Shares, ambiguous};
use crate::client::KvClient;
use crate::deadline::CommitDeadline;
use crate::faults::Bug;
use crate::metrics::metrics;
use crate::router::{SendError, Sending};
use crate::walk::Pauses;
use bytes::Bytes;
use kv_api::{KvError, KvErrorKind, KvResult, Timestamp, TxnMeta};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Most keys, and bytes of them, that a record names.
const MAX_STAGED: usize = 256;
const MAX_STAGED_BYTES: usize = 64 << 10;
/// How long a range is asked that does not answer: KV nodes refuse what was to commit this long ago.
const GIVE_UP: Duration = Duration::from_secs(300);
/// Times that parts are shared out anew.
const MAX_SPLITS: usize = 256;

/// What all ranges are told.
pub struct Order {
    /// The key whose range decides.
    pub anchor: Bytes,
    /// Where the transaction is to commit.
    pub at: Timestamp,
    /// All keys written, if its record is to name them.
    pub staged: Vec<Bytes>,
    /// Where it has read.
    pub snapshot: Option<Timestamp>,
    /// Longest wait for a lock in milliseconds.
    pub lock_timeout_ms: u32,
    /// When ranges are asked no more.
    pub give_up: Instant,
    /// The latest timestamp at which it may commit.
    pub deadline: Option<Arc<CommitDeadline>>,
}

/// Tells who waits for the commit, once.
pub struct Teller(Mutex<Option<oneshot::Sender<KvResult<Timestamp>>>>);

impl Teller {
    fn tell(&self, outcome: KvResult<Timestamp>) {
        if let Some(waiting) = self.0.lock().take() {
            // The caller may have left.
            let _ = waiting.send(outcome);
        }
    }

    /// Nobody knows yet whether it has committed.
    pub fn outcome_unknown(&self) {
        if let Some(waiting) = self.0.lock().take() {
            metrics().ambiguous.inc();
            let _ = waiting.send(Err(ambiguous()));
        }
    }
}

/// How a transaction did not commit.
enum Failure {
    /// It did not and will not; who knows it is to be told.
    Aborted(KvError),
    /// It will not if its record can be made to say so: a part may still be prepared.
    Unless(KvError),
    /// Nobody knows. What is prepared is left to those who meet it.
    Unknown,
}

struct Wide {
    client: KvClient,
    order: Arc<Order>,
    meta: TxnMeta,
    writers: Vec<Share>,
    readers: Vec<Share>,
    /// Who else knows the transaction.
    others: Vec<Farewell>,
    teller: Arc<Teller>,
    /// What the clock of a range showed where commits are waited out, if there is any.
    shown: Option<Shown>,
    /// Whether a range was asked to prepare its part and did not answer.
    unanswered: bool,
}

impl Txn {
    /// Commits in several ranges. Runs on by itself from here.
    pub(in super::super) async fn commit_wide(&self, shares: Shares) -> KvResult<CommitInfo> {
        if shares.writers.len() > settle::MAX_PARTS {
            let message = format!("a transaction writes in at most {} ranges", settle::MAX_PARTS);
            return Err(KvError::new(KvErrorKind::Overloaded, message));
        }
        let (tell, told) = oneshot::channel();
        let Some(wide) = self.hand_over(shares, tell) else {
            return Err(KvError::new(KvErrorKind::Internal, "a commit without writes"));
        };
        tokio::spawn(wide.run());
        let timestamp = told.await.unwrap_or_else(|_| Err(ambiguous()))?;
        Ok(CommitInfo { timestamp: Some(timestamp) })
    }

    /// Everything the commit needs; the transaction itself has ended then.
    fn hand_over(&self, shares: Shares, tell: oneshot::Sender<KvResult<Timestamp>>) -> Option<Wide> {
        let Shares { writers, readers } = shares;
        let anchor_share = writers.iter().find(|share| !share.writes.is_empty()).or(writers.first())?;
        let anchor = anchor_share.written()?.clone();
        let mut state = self.state.lock();
        let staged = if self.options.parallel_commits { state.staged_keys() } else { Vec::new() };
        let floor = state.commits_above().unwrap_or_default();
        let ranges = writers.iter().chain(&readers).map(|share| share.at.range_id);
        let order = Order {
            anchor,
            at: self.client.choose_timestamp(ranges, !readers.is_empty(), floor),
            staged,
            snapshot: state.read_timestamp,
            lock_timeout_ms: state.lock_timeout_ms,
            give_up: Instant::now() + GIVE_UP,
            deadline: self.deadline.clone(),
        };
        let others = state.farewells(|range_id| !writers.iter().any(|share| share.at.range_id == range_id));
        state.status = Status::Ended;
        state.buffer.clear();
        Some(Wide {
            client: self.client.clone(),
            order: Arc::new(order),
            meta: state.meta(None),
            writers,
            readers,
            others: others.into_vec(),
            teller: Arc::new(Teller(Mutex::new(Some(tell)))),
            shown: None,
            unanswered: false,
        })
    }
}

impl State {
    /// All keys written, if they are few and none of them is an intent already.
    fn staged_keys(&self) -> Vec<Bytes> {
        let few = self.buffer.key_count() <= MAX_STAGED && !self.has_intents();
        let keys = || self.buffer.keys();
        if few && keys().map(Bytes::len).sum::<usize>() <= MAX_STAGED_BYTES {
            keys().cloned().collect()
        } else {
            Vec::new()
        }
    }
}

impl Wide {
    async fn run(mut self) {
        let decided = self.decide().await;
        let others = self.strangers();
        match decided {
            Ok(settled) => {
                metrics().wide_commits.inc();
                self.tell_when_passed(settled.at);
                others.into_iter().for_each(|farewell| farewell.send(&self.client));
                settle::finish(&self.client, settled).await;
            }
            Err(Failure::Aborted(error)) => {
                self.teller.tell(Err(error));
                others.into_iter().for_each(|farewell| farewell.send(&self.client));
                settle::abort(&self.client, &self.writers).await;
            }
            Err(Failure::Unless(error)) => {
                let (client, anchor) = (&self.client, &self.order.anchor);
                others.into_iter().for_each(|farewell| farewell.send(client));
                if settle::abort_at_anchor(client, &self.meta, anchor).await {
                    self.teller.tell(Err(error));
                    settle::abort(client, &self.writers).await;
                } else {
                    self.teller.outcome_unknown();
                }
            }
            Err(Failure::Unknown) => self.teller.outcome_unknown(),
        }
    }

    /// Who else knows the transaction, and has no part of what was prepared. A range that was to be read in only has one if
    /// it has absorbed one that was to be written in: it must not be told that nothing comes of it.
    fn strangers(&mut self) -> Vec<Farewell> {
        let mut others = std::mem::take(&mut self.others);
        if !self.client.environment().planted(Bug::PreparedBidFarewell) {
            let prepares = |range_id| self.writers.iter().any(|share| share.at.range_id == range_id);
            others.retain(|farewell| !prepares(farewell.range_id));
        }
        others
    }

    /// Tells that the transaction has committed, once clocks have passed that where it must be waited out. It is settled
    /// meanwhile.
    fn tell_when_passed(&self, at: Timestamp) {
        let Some(passed) = self.shown.map(|shown| shown.passes(at)) else { return self.teller.tell(Ok(at)) };
        let teller = Arc::clone(&self.teller);
        tokio::spawn(async move {
            tokio::time::sleep_until(passed).await;
            teller.tell(Ok(at));
        });
    }

    /// Brings the transaction to where it is committed, or cannot be.
    async fn decide(&mut self) -> Result<Settled, Failure> {
        let Order { at, snapshot, .. } = *self.order;
        let deadline = self.order.deadline.clone();
        let check = |at| deadline.as_ref().map_or(Ok(()), |deadline| deadline.check(at));
        check(at).map_err(Failure::Aborted)?;
        refresh(&self.client, &self.readers, snapshot, at).await.map_err(Failure::Aborted)?;
        let prepared = self.prepare_all().await?;
        let staged = !self.order.staged.is_empty();
        let (at, recorded) = match decide(at, staged, prepared) {
            Decision::Committed(at) => {
                metrics().parallel_commits.inc();
                (at, false)
            }
            Decision::Record(at) => (at, true),
            Decision::Move(to) => {
                check(to).map_err(|error| self.failed(error))?;
                // Some are prepared above where the record says: nobody can take it for committed that has not yet.
                let prepared: Vec<Share> = self.writers.iter().map(Share::as_prepared).collect();
                let refreshed = tokio::join!(
                    refresh(&self.client, &self.readers, snapshot, to),
                    refresh(&self.client, &prepared, snapshot, to),
                );
                refreshed.0.and(refreshed.1).map_err(|error| self.failed(error))?;
                (to, true)
            }
        };
        let elsewhere = self.writers.iter().filter(|share| !share.at.holds(&self.order.anchor));
        let parts: Vec<Bytes> = elsewhere.map(|share| share.key.clone()).collect();
        let at = if recorded { self.record(at, &parts).await? } else { at };
        let (meta, anchor) = (self.meta.clone(), self.order.anchor.clone());
        Ok(Settled { at, recorded, meta, anchor, parts, together: self.together() })
    }

    /// The ranges of all parts but that of the anchor, if one node has prepared all of them; none otherwise.
    fn together(&self) -> Vec<u64> {
        let mut places = self.writers.iter().map(|share| share.place.as_ref().map(|place| &place.connection));
        let first = places.next().flatten().map(|connection| connection.number);
        if first.is_none() || places.any(|other| other.map(|connection| connection.number) != first) {
            return Vec::new();
        }
        let elsewhere = self.writers.iter().filter(|share| !share.at.holds(&self.order.anchor));
        elsewhere.map(|share| share.at.range_id).collect()
    }

    /// Has all ranges prepare their parts; returns at which timestamps.
    async fn prepare_all(&mut self) -> Result<Vec<Timestamp>, Failure> {
        let mut asking = Asking { running: JoinSet::new(), splits: 0, asked: Vec::new() };
        for share in std::mem::take(&mut self.writers) {
            asking.ask(self, share);
        }
        let (mut prepared, mut failure) = (Vec::new(), None);
        while let Some(joined) = asking.running.join_next().await {
            // A task that panicked has told nobody what it did.
            let (share, outcome, unanswered) = joined.map_or((None, Outcome::Unknown, true), |answer| {
                let Answer { share, outcome, unanswered } = answer;
                (Some(share), outcome, unanswered)
            });
            self.unanswered |= unanswered;
            let failed = match (outcome, share) {
                (Outcome::Prepared(at, shown), share) => {
                    prepared.push(at);
                    self.shown = shown.or(self.shown);
                    self.writers.extend(share);
                    None
                }
                (Outcome::Split, Some(share)) => {
                    asking.share_out(self, share).await.err().map(|error| self.failed(error))
                }
                (Outcome::Failed(error), share) => {
                    self.writers.extend(share);
                    Some(self.failed(error))
                }
                (Outcome::Unknown | Outcome::Split, share) => {
                    self.writers.extend(share);
                    Some(self.doubtful(Failure::Unknown))
                }
            };
            let Some(failed) = failed else { continue };
            if let (Failure::Aborted(error), None | Some(Failure::Unless(_) | Failure::Unknown)) =
                (&failed, &failure)
            {
                // Others may be waiting for locks.
                self.teller.tell(Err(error.clone()));
                std::mem::take(&mut asking.asked)
                    .into_iter()
                    .for_each(|farewell| farewell.send(&self.client));
            }
            failure = Some(failed.or_known(failure));
        }
        failure.map_or(Ok(prepared), Err)
    }

    /// What it means that something failed that the commit needs.
    fn failed(&self, error: KvError) -> Failure {
        if self.unanswered { self.doubtful(Failure::Unless(error)) } else { Failure::Aborted(error) }
    }

    /// What it means that a part may be prepared, or may yet be. Without a record that names the keys nothing
    /// commits unless it is told to.
    fn doubtful(&self, failure: Failure) -> Failure {
        match failure {
            failure if !self.order.staged.is_empty() => failure,
            Failure::Aborted(error) | Failure::Unless(error) => Failure::Aborted(error),
            Failure::Unknown => Failure::Aborted(lost()),
        }
    }

    /// Has the record say that the transaction has committed; returns where.
    async fn record(&self, at: Timestamp, parts: &[Bytes]) -> Result<Timestamp, Failure> {
        let (mut unanswered, mut pauses) = (false, Pauses::default());
        let doubt_at = Instant::now() + self.client.patience();
        loop {
            let mut batch = settle::record(&self.meta, &self.order.anchor, at, parts);
            match self.client.send(&mut batch, Sending::default()).await {
                // It may have been decided before, by whoever took this coordinator for gone.
                Ok(sent) => return Ok(sent.response.commit_timestamp.unwrap_or(at)),
                Err(SendError::Kv(error)) if error.kind() == KvErrorKind::Aborted => {
                    // If it was recorded before and settled since, nothing is left that says so.
                    return Err(if unanswered { Failure::Unknown } else { Failure::Aborted(error) });
                }
                Err(SendError::Lost) => unanswered = true,
                Err(SendError::Kv(error)) if error.kind() == KvErrorKind::Ambiguous => unanswered = true,
                Err(_) => {}
            }
            let now = Instant::now();
            if now >= doubt_at {
                self.teller.outcome_unknown();
            }
            if now >= self.order.give_up {
                return Err(Failure::Unknown);
            }
            tokio::time::sleep(pauses.next(self.client.environment().random_fraction())).await;
        }
    }
}

/// Ranges that are being asked.
struct Asking {
    running: JoinSet<Answer>,
    splits: usize,
    /// How to tell them that it was in vain.
    asked: Vec<Farewell>,
}

impl Asking {
    fn ask(&mut self, wide: &Wide, share: Share) {
        self.asked.push(share.farewell());
        let (client, order, teller) = (wide.client.clone(), wide.order.clone(), wide.teller.clone());
        self.running.spawn(prepare(client, share, order, teller));
    }

    /// Asks the ranges that a range was split into. What was read where nothing is written is checked first: once all
    /// keys written are prepared, the transaction is committed.
    async fn share_out(&mut self, wide: &mut Wide, share: Share) -> KvResult<()> {
        self.splits += 1;
        if self.splits > MAX_SPLITS {
            return Err(split_without_end());
        }
        let (writers, readers): (Vec<_>, Vec<_>) =
            share.split(&wide.client).await?.into_iter().partition(Share::is_writer);
        refresh(&wide.client, &readers, wide.order.snapshot, wide.order.at).await?;
        let known = readers.iter().filter(|share| share.place.is_some());
        wide.others.extend(known.map(Share::farewell));
        wide.readers.extend(readers);
        writers.into_iter().for_each(|share| self.ask(wide, share));
        Ok(())
    }
}

impl Failure {
    /// Of two failures, the one of which more is known.
    fn or_known(self, other: Option<Failure>) -> Failure {
        match (self, other) {
            (failure, None)
            | (failure @ Failure::Aborted(_), Some(Failure::Unless(_) | Failure::Unknown)) => failure,
            (_, Some(known @ Failure::Aborted(_))) => known,
            (failure @ Failure::Unless(_), Some(_)) => failure,
            (Failure::Unknown, Some(other)) => other,
        }
    }
}
