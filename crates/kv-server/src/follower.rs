//! Reads from replicas that do not hold the lease.
//!
//! # How they are right
//!
//! The leaseholder's *promise* is a closed timestamp and an index of the log: everything committed at or
//! below the timestamp is applied with that entry, and nothing will be committed there any more, under no
//! lease. A replica that has applied the entry can answer at the timestamp as the leaseholder would.
//!
//! A read of the present must see everything acknowledged before it was sent. So it uses a promise that was
//! *asked for* after it arrived; whatever was acknowledged by then lies at or below the promised timestamp,
//! for a leaseholder promises no less than it would read at itself. One promise serves all reads that wait
//! at the moment it is asked for, and when there are many the next waits a moment for as many to gather: under
//! load the leaseholder hears one question per round, whatever the number of reads (design, section 6; the idea is that of `polardb-serverless-2024`).
//!
//! A read at a timestamp is answered with the last promise, if that reaches so far, or else with a new one; where that
//! does not reach so far either, the leaseholder answers.
//!
//! In a range that is read everywhere ([`crate::global`]) promises lie in the future and can be used for the present.
//! They are asked for in the background for as long as the range is read here.
//!
//! The engine is read through a snapshot, and what the snapshot shows of the replica's state says whether it
//! was there, complete, had applied the entry, and held every key that is read: a range that was split since the
//! client looked it up does not answer for what has left it.

use crate::bounds;
use crate::cluster::message::{GetPromise, Kind, Promise};
use crate::global::{IDLE, REFRESH, spans_read};
use crate::node::{Asker, BatchResult, Node};
use crate::pipeline::{Promised, Standing};
use crate::read::{Budget, get_value, scan_page};
use hashbrown::HashMap;
use kv_api::batch::RequestKind;
use kv_api::{BatchRequest, BatchResponse, KvError, KvErrorKind, Span, TenantId, Timestamp};
use parking_lot::Mutex;
use replication::state;
use replication::{Millis, RangeId, ReplicationError};
use std::sync::Arc;
use std::time::Duration;
use storage::intent::IntentView;
use storage::mvcc::{self, View};
use storage::{Reader, txn_record};
use tokio::sync::{Notify, oneshot};

/// How long a read waits for what it needs before the client is sent to the leaseholder.
const PATIENCE: Duration = Duration::from_secs(3);
/// Reads served by one promise from which on the next waits for as many, and how long at most.
const MANY: usize = 8;
const GATHER: Duration = Duration::from_millis(1);
/// [`IDLE`] in milliseconds.
const IDLE_MS: Millis = IDLE.as_millis() as Millis;
/// Most ranges of which the last promise is remembered.
const MAX_REMEMBERED: usize = 4096;

/// A promise that this replica can keep: it has applied the entry.
#[derive(Clone)]
struct Kept {
    timestamp: Timestamp,
    index: u64,
    /// The keys of which it is true.
    span: Span,
    /// See [`Promise`].
    waits: bool,
    present: bool,
    written: Timestamp,
    /// The intents of transactions that were committed by then.
    intents: Arc<IntentView>,
}

/// Promises, and who waits for them.
#[derive(Default)]
pub struct Promises {
    ranges: Mutex<HashMap<RangeId, Waiting>>,
}

#[derive(Default)]
struct Waiting {
    last: Option<Kept>,
    /// The last one that can be used for reads of the present.
    present: Option<Kept>,
    /// When the present was last read here, if that is kept up with.
    read_at: Option<Millis>,
    /// Whether a task asks for this range.
    asking: bool,
    next: Vec<oneshot::Sender<Result<Kept, KvError>>>,
    /// Told when there are as many in `next` as the last promise served.
    enough: Arc<Notify>,
    served: usize,
}

impl Promises {
    /// The last promise that reaches a timestamp.
    fn reaching(&self, range: RangeId, timestamp: Timestamp) -> Option<Kept> {
        let ranges = self.ranges.lock();
        let waiting = ranges.get(&range)?;
        let reaches = |kept: &&Kept| kept.timestamp >= timestamp;
        waiting.last.as_ref().filter(reaches).or(waiting.present.as_ref().filter(reaches)).cloned()
    }

    /// The last promise that can be used for reads of the present, if it reaches a timestamp. Takes note that it was
    /// asked for.
    fn for_present(&self, range: RangeId, timestamp: Timestamp, now: Millis) -> Option<Kept> {
        let mut ranges = self.ranges.lock();
        let waiting = ranges.get_mut(&range)?;
        if waiting.read_at.is_some() {
            waiting.read_at = Some(now);
        }
        waiting.present.clone().filter(|kept| kept.timestamp >= timestamp)
    }
}

impl Waiting {
    fn keep(&mut self, kept: &Kept) {
        if kept.present && self.present.as_ref().is_none_or(|known| known.timestamp <= kept.timestamp) {
            self.present = Some(kept.clone());
        }
        self.last = Some(kept.clone());
    }
}

impl Node {
    /// Answers plain reads from the replica here, whoever holds the lease.
    pub(crate) async fn read_here(self: &Arc<Self>, asker: Asker, batch: BatchRequest) -> BatchResult {
        let reading = self.read_promised(asker, &batch);
        match tokio::time::timeout(PATIENCE, reading).await {
            Ok(result) => result,
            Err(_) => Err(self.leaseholder_of(asker.range)),
        }
    }

    /// A promise, if this node can give one: see [`crate::pipeline::Pipeline::promise`]. It cannot while
    /// transactions are prepared, for what they commit may lie below its clock.
    ///
    /// # Errors
    /// If it cannot.
    pub(crate) fn promise(&self, range: RangeId) -> Result<(Timestamp, u64), KvError> {
        self.promise_settled(range, || self.pipeline.promise(range)).map(|(promise, _)| promise)
    }

    /// The same for a follower; ahead of the present where the range is one for that.
    ///
    /// # Errors
    /// If it cannot.
    pub(crate) fn promise_ahead(&self, range: RangeId) -> Result<Promise, KvError> {
        let (promised, span) = self.promise_settled(range, || self.pipeline.promise_ahead(range))?;
        crate::metrics::metrics().promises.inc();
        let Promised { timestamp, index, waits, present, written } = promised;
        Ok(Promise { timestamp, index, waits, present, end: span.end, written })
    }

    fn promise_settled<T>(
        &self,
        range: RangeId,
        promise: impl Fn() -> Result<T, KvError>,
    ) -> Result<(T, Span), KvError> {
        let span = self.pipeline.span(range).ok_or_else(|| KvError::range_not_found(range))?;
        let tenant = TenantId::of_key(&span.start).map_or(0, |tenant| tenant.0);
        let unsettled = |node: &Node| node.shard(tenant).has_unsettled(range);
        // Twice: one that was in flight is seen by the second look if its timestamp was passed over.
        if unsettled(self) {
            return Err(self.leaseholder_of(range));
        }
        let promise = promise()?;
        if unsettled(self) { Err(self.leaseholder_of(range)) } else { Ok((promise, span)) }
    }

    fn leaseholder_of(&self, range: RangeId) -> KvError {
        let leader = match self.pipeline.standing(range) {
            Standing::Follower(leader) => leader,
            Standing::Leaseholder(_) => Some(self.node_id()),
        };
        KvError::not_leaseholder(leader.and_then(|id| self.address_of(id)))
    }

    async fn read_promised(self: &Arc<Self>, asker: Asker, batch: &BatchRequest) -> BatchResult {
        let range = asker.range;
        if self.is_distrusted(range) {
            return Err(self.leaseholder_of(range));
        }
        if self.pipeline.span(range).is_none() && self.pipeline.keep_awake(range).await?.is_none() {
            return Err(KvError::range_not_found(range));
        }
        if self.pipeline.lease(range).is_ok() {
            return self.read_waiting(asker, batch).await;
        }
        let given = batch.header.read_timestamp;
        if given.is_some_and(|given| given < self.history.oldest(range)) {
            let message = "snapshot too old: what it sees is no longer kept";
            return Err(KvError::new(KvErrorKind::Retry, message));
        }
        let limit = batch.header.uncertainty_limit;
        let (kept, timestamp, limit) = if let Some(given) = given
            && limit.is_none()
        {
            let kept = match self.promises.reaching(range, given) {
                Some(kept) => kept,
                None => self.kept_promise(range).await?,
            };
            (kept, given, None)
        } else {
            let present = self.present_here();
            let reach = given.map_or(present, |given| given.max(present));
            let now = self.pipeline.millis();
            match self.promises.for_present(range, reach, now) {
                Some(kept) => (kept, given.unwrap_or(present), limit.map(|limit| limit.min(present))),
                // Only who serves the present knows up to where something is uncertain.
                None if limit.is_some() => {
                    self.keep_up_with(range).await;
                    return Err(self.leaseholder_of(range));
                }
                None => {
                    let kept = self.kept_promise(range).await?;
                    // Where not everything acknowledged was waited out, it may lie above that.
                    let timestamp = if kept.present { kept.timestamp.min(present) } else { kept.timestamp };
                    (kept, timestamp, None)
                }
            }
        };
        if timestamp > kept.timestamp {
            // Writes are in flight below it, or the leaseholder's clock is behind: it knows what to wait for.
            return Err(self.leaseholder_of(range));
        }
        if kept.present {
            self.keep_up(range);
        }
        crate::metrics::metrics().follower_reads.inc();
        let bound = self.limits.inline_scan_bytes.min(self.limits.max_scan_bytes);
        let (mut response, cut) = self.read_kept(asker, batch, (timestamp, limit), &kept, bound)?;
        if cut {
            let (node, batch, kept) = (Arc::clone(self), batch.clone(), kept.clone());
            let bound = self.limits.max_scan_bytes;
            let environment = self.pipeline.environment();
            let reading =
                environment.blocking(move || node.read_kept(asker, &batch, (timestamp, limit), &kept, bound));
            let ended = |_| KvError::new(KvErrorKind::Internal, "a read ended abnormally");
            (response, _) = reading.await.map_err(ended)??;
        }
        if kept.waits {
            let upto = (timestamp, kept.written);
            self.read_wait(|| {
                let snapshot = self.engine.snapshot();
                let shows = || shows(&*snapshot, range, kept.index, &batch.requests);
                self.has_read_ahead(&*snapshot, &batch.requests, &kept.intents, upto, shows)
            })
            .await?;
        }
        Ok(response)
    }

    /// Reads at or below a promised timestamp. Says whether scans were cut short of what the client asked
    /// for.
    fn read_kept(
        &self,
        Asker { tenant, range, .. }: Asker,
        batch: &BatchRequest,
        (timestamp, limit): (Timestamp, Option<Timestamp>),
        kept: &Kept,
        max_scan_bytes: u64,
    ) -> Result<(BatchResponse, bool), KvError> {
        if !bounds::within(batch, tenant, &kept.span) {
            // The range was split, and this replica knows of it.
            return Err(KvError::range_not_found(range));
        }
        let snapshot = self.engine.snapshot();
        if !shows(&*snapshot, range, kept.index, &batch.requests)? {
            return Err(self.leaseholder_of(range));
        }
        if let Some(limit) = limit {
            for span in spans_read(&batch.requests) {
                if mvcc::changed(&*snapshot, &span, timestamp, limit, &kept.intents)?.is_some() {
                    return Err(KvError::snapshot_behind(limit));
                }
            }
        }
        let view = View { reader: &*snapshot, timestamp, intents: &kept.intents, overlay: None };
        let target = batch.header.target_bytes;
        let mut budget = Budget::new(target, max_scan_bytes);
        let mut responses = Vec::with_capacity(batch.requests.len());
        for request in &batch.requests {
            responses.push(match &request.kind {
                Some(RequestKind::Get(get)) => get_value(view, get, &mut budget)?,
                Some(RequestKind::Scan(scan)) => scan_page(view, scan, None, &mut budget)?.response,
                _ => {
                    let message = "only plain reads are for any replica";
                    return Err(KvError::new(KvErrorKind::InvalidRequest, message));
                }
            });
        }
        let cut = budget.is_spent() && (target == 0 || target > max_scan_bytes);
        let read_timestamp = Some(timestamp);
        let global_reads = kept.waits;
        let response = BatchResponse {
            responses,
            read_timestamp,
            clock: limit,
            global_reads,
            ..BatchResponse::default()
        };
        Ok((response, cut))
    }

    /// A promise that is asked for from now on, once this replica can keep it.
    async fn kept_promise(self: &Arc<Self>, range: RangeId) -> Result<Kept, KvError> {
        let (sender, receiver) = oneshot::channel();
        let ask = {
            let mut ranges = self.promises.ranges.lock();
            if ranges.len() >= MAX_REMEMBERED {
                ranges.retain(|_, waiting| waiting.asking || waiting.read_at.is_some());
            }
            let waiting = ranges.entry(range).or_default();
            waiting.next.push(sender);
            if waiting.next.len() == waiting.served {
                waiting.enough.notify_one();
            }
            !std::mem::replace(&mut waiting.asking, true)
        };
        if ask {
            let node = Arc::clone(self);
            tokio::spawn(async move { node.ask_for_promises(range).await });
        }
        receiver.await.unwrap_or_else(|_| Err(self.leaseholder_of(range)))
    }

    /// Asks for a promise, for later reads, unless that is done already.
    async fn keep_up_with(self: &Arc<Self>, range: RangeId) {
        let knows = self.promises.ranges.lock().get(&range).is_some_and(|waiting| waiting.read_at.is_some());
        if !knows
            && let Ok(kept) = self.kept_promise(range).await
            && kept.present
        {
            self.keep_up(range);
        }
    }

    /// Asks for promises from time to time for as long as the present is read here.
    fn keep_up(self: &Arc<Self>, range: RangeId) {
        let now = self.pipeline.millis();
        {
            let mut ranges = self.promises.ranges.lock();
            let Some(waiting) = ranges.get_mut(&range) else { return };
            if waiting.read_at.replace(now).is_some() {
                return;
            }
        }
        let node = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(REFRESH).await;
                let Some(node) = node.upgrade() else { return };
                {
                    let mut ranges = node.promises.ranges.lock();
                    let Some(waiting) = ranges.get_mut(&range) else { return };
                    let idle = waiting.read_at.map(|at| node.pipeline.millis().saturating_sub(at));
                    if idle.is_none_or(|idle| idle >= IDLE_MS) {
                        (waiting.read_at, waiting.present) = (None, None);
                        return;
                    }
                }
                // One that cannot be had now is asked for again; reads go to the leaseholder when the last is over.
                let asking = tokio::time::timeout(PATIENCE, node.ask_for_promise(range));
                if let Ok(Ok(kept)) = asking.await
                    && let Some(waiting) = node.promises.ranges.lock().get_mut(&range)
                {
                    waiting.keep(&kept);
                }
            }
        });
    }

    /// Asks for promises for as long as somebody waits for one.
    async fn ask_for_promises(self: Arc<Self>, range: RangeId) {
        loop {
            let gathering = {
                let mut ranges = self.promises.ranges.lock();
                let Some(found) = ranges.get_mut(&range) else { return };
                if found.next.is_empty() {
                    found.asking = false;
                    found.served = 0;
                    return;
                }
                let worth = found.served >= MANY && found.next.len() < found.served;
                worth.then(|| Arc::clone(&found.enough))
            };
            if let Some(enough) = gathering {
                // Those who were served together come again together: one question can be for all of them.
                let _ = tokio::time::timeout(GATHER, enough.notified()).await;
            }
            let waiting = {
                let mut ranges = self.promises.ranges.lock();
                let Some(found) = ranges.get_mut(&range) else { return };
                found.served = found.next.len();
                std::mem::take(&mut found.next)
            };
            // Whoever waits gives up by then, and the next must not wait behind.
            let asking = tokio::time::timeout(PATIENCE, self.ask_for_promise(range));
            let result = asking.await.unwrap_or_else(|_| Err(self.leaseholder_of(range)));
            if let (Ok(kept), Some(found)) = (&result, self.promises.ranges.lock().get_mut(&range)) {
                found.keep(kept);
            }
            for waiter in waiting {
                // Who waited may have given up.
                let _ = waiter.send(result.clone());
            }
        }
    }

    async fn ask_for_promise(&self, range: RangeId) -> Result<Kept, KvError> {
        let promise = match self.pipeline.standing(range) {
            Standing::Leaseholder(_) => self.promise_ahead(range)?,
            Standing::Follower(leader) => {
                let gone = || self.leaseholder_of(range);
                let (leader, cluster) = leader.zip(self.cluster()).ok_or_else(gone)?;
                let question = Kind::GetPromise(GetPromise { range_id: range });
                match cluster.ask(leader, question).await {
                    Some(Kind::Promise(promise)) => promise,
                    _ => return Err(gone()),
                }
            }
        };
        let Promise { timestamp, index, waits, present, end, written } = promise;
        let missing = || KvError::range_not_found(range);
        if !self.pipeline.has_reached(range, index) && !self.pipeline.reached(range, index).await? {
            return Err(missing());
        }
        let mut span = self.pipeline.span(range).ok_or_else(missing)?;
        if !end.is_empty() && end < span.end {
            span.end = end;
        }
        let snapshot = self.engine.snapshot();
        if state::whole(&*snapshot, range, index).map_err(storage_error)?.is_none() {
            return Err(missing());
        }
        // What is committed at or below the timestamp is applied in it, and so are the records of it.
        let intents = Arc::new(committed_intents(&*snapshot, &span)?);
        Ok(Kept { timestamp, index, span, waits, present, written, intents })
    }
}

/// Whether a snapshot shows what plain reads read in a replica that has applied an entry. Had the replica gone, or only
/// some of its keys with a range that was split off, what the snapshot shows might be half of it.
fn shows(
    snapshot: &dyn Reader,
    range: RangeId,
    index: u64,
    requests: &[kv_api::batch::Request],
) -> Result<bool, KvError> {
    let whole = state::whole(snapshot, range, index).map_err(storage_error)?;
    let span = whole.map(|descriptor| Span::new(descriptor.start, descriptor.end));
    Ok(span.is_some_and(|span| spans_read(requests).all(|read| bounds::holds(&span, &read))))
}

/// What of replication can fail while a replica's state is read.
pub(crate) fn storage_error(error: ReplicationError) -> KvError {
    match error {
        ReplicationError::Storage(error) => error.into(),
        other => KvError::new(KvErrorKind::Internal, other.to_string()),
    }
}

/// The intents of committed transactions in a span, as the transaction records say.
///
/// # Errors
/// I/O errors and damage.
pub fn committed_intents(reader: &(impl Reader + ?Sized), span: &Span) -> Result<IntentView, KvError> {
    let records = txn_record::within(reader, &span.start, &span.end)?;
    let committed = records.iter().filter_map(|(_, record)| record.as_committed()).collect();
    Ok(IntentView { committed, ..IntentView::default() })
}
