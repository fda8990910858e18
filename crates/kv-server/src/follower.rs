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
//! at the moment it is asked for: under load the leaseholder hears one question per round trip, whatever the
//! number of reads (design, section 6; the idea is that of `polardb-serverless-2024`).
//!
//! A read at a timestamp is answered with the last promise, if that reaches so far.
//!
//! The engine is read through a snapshot, and it is checked afterwards that the replica was still there when
//! the snapshot was taken.

use crate::cluster::message::{GetPromise, Kind, Promise};
use crate::node::{Asker, BatchResult, Node};
use crate::pipeline::Standing;
use crate::read::{Budget, get_value, scan_page};
use hashbrown::HashMap;
use kv_api::batch::RequestKind;
use kv_api::{BatchRequest, BatchResponse, KvError, KvErrorKind, TenantId, Timestamp};
use parking_lot::Mutex;
use replication::RangeId;
use std::sync::Arc;
use std::time::Duration;
use storage::intent::IntentView;
use storage::mvcc::View;
use storage::{Reader, txn_record};
use tokio::sync::oneshot;

/// How long a read waits for what it needs before the client is sent to the leaseholder.
const PATIENCE: Duration = Duration::from_secs(3);
/// Most ranges of which the last promise is remembered.
const MAX_REMEMBERED: usize = 4096;

/// Promises, and who waits for them.
#[derive(Default)]
pub struct Promises {
    ranges: Mutex<HashMap<RangeId, Waiting>>,
}

#[derive(Default)]
struct Waiting {
    last: Option<Promise>,
    /// Whether a task asks for this range.
    asking: bool,
    next: Vec<oneshot::Sender<Result<Promise, KvError>>>,
}

impl Promises {
    /// The last promise that reaches a timestamp.
    fn reaching(&self, range: RangeId, timestamp: Timestamp) -> Option<Promise> {
        let ranges = self.ranges.lock();
        ranges.get(&range)?.last.filter(|promise| promise.timestamp >= timestamp)
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
        if self.pipeline.keep_awake(range).await?.is_none() {
            return Err(KvError::range_not_found(range));
        }
        if self.pipeline.lease(range).is_ok() {
            return self.read(asker, batch, self.limits.max_scan_bytes).map(|(response, _)| response);
        }
        let given = batch.header.read_timestamp;
        if given.is_some_and(|given| given < self.oldest_snapshot()) {
            let message = "snapshot too old: what it sees is no longer kept";
            return Err(KvError::new(KvErrorKind::Retry, message));
        }
        let known = given.and_then(|given| self.promises.reaching(range, given));
        let promise = match known {
            Some(promise) => promise,
            None => self.promise(range).await?,
        };
        let timestamp = given.unwrap_or(promise.timestamp);
        if timestamp > promise.timestamp {
            return Err(KvError::new(KvErrorKind::InvalidRequest, "the read timestamp lies in the future"));
        }
        if !self.pipeline.reached(range, promise.index).await? {
            return Err(KvError::range_not_found(range));
        }
        let node = Arc::clone(self);
        let requests = batch.clone();
        let response = tokio::task::spawn_blocking(move || node.read_at(asker, &requests, timestamp))
            .await
            .map_err(|_| KvError::new(KvErrorKind::Internal, "a read ended abnormally"))??;
        // Had the replica gone, what was read might be half of it.
        if !self.pipeline.reached(range, promise.index).await? {
            return Err(KvError::range_not_found(range));
        }
        crate::metrics::metrics().follower_reads.inc();
        Ok(response)
    }

    fn read_at(&self, asker: Asker, batch: &BatchRequest, timestamp: Timestamp) -> BatchResult {
        let snapshot = self.engine.snapshot();
        let intents = committed_intents(&*snapshot, TenantId(asker.tenant))?;
        let view = View { reader: &*snapshot, timestamp, intents: &intents, overlay: None };
        let mut budget = Budget::new(batch.header.target_bytes, self.limits.max_scan_bytes);
        let mut responses = Vec::with_capacity(batch.requests.len());
        for request in &batch.requests {
            responses.push(match &request.kind {
                Some(RequestKind::Get(get)) => get_value(view, get, &mut budget)?,
                Some(RequestKind::Scan(scan)) => scan_page(view, scan, &mut budget)?,
                _ => {
                    return Err(KvError::new(
                        KvErrorKind::InvalidRequest,
                        "only plain reads are for any replica",
                    ));
                }
            });
        }
        Ok(BatchResponse { responses, read_timestamp: Some(timestamp), ..BatchResponse::default() })
    }

    /// A promise that is asked for from now on.
    async fn promise(self: &Arc<Self>, range: RangeId) -> Result<Promise, KvError> {
        let (sender, receiver) = oneshot::channel();
        let ask = {
            let mut ranges = self.promises.ranges.lock();
            if ranges.len() >= MAX_REMEMBERED {
                ranges.retain(|_, waiting| waiting.asking);
            }
            let waiting = ranges.entry(range).or_default();
            waiting.next.push(sender);
            !std::mem::replace(&mut waiting.asking, true)
        };
        if ask {
            let node = Arc::clone(self);
            tokio::spawn(async move { node.ask_for_promises(range).await });
        }
        receiver.await.unwrap_or_else(|_| Err(self.leaseholder_of(range)))
    }

    /// Asks for promises for as long as somebody waits for one.
    async fn ask_for_promises(self: Arc<Self>, range: RangeId) {
        loop {
            let waiting = {
                let mut ranges = self.promises.ranges.lock();
                let Some(found) = ranges.get_mut(&range) else { return };
                if found.next.is_empty() {
                    found.asking = false;
                    return;
                }
                std::mem::take(&mut found.next)
            };
            let result = self.ask_for_promise(range).await;
            if let (Ok(promise), Some(found)) = (&result, self.promises.ranges.lock().get_mut(&range)) {
                found.last = Some(*promise);
            }
            for waiter in waiting {
                // Who waited may have given up.
                let _ = waiter.send(result.clone());
            }
        }
    }

    async fn ask_for_promise(&self, range: RangeId) -> Result<Promise, KvError> {
        let leader = match self.pipeline.standing(range) {
            Standing::Leaseholder(_) => {
                let (timestamp, index) = self.pipeline.promise(range).await?;
                return Ok(Promise { timestamp, index });
            }
            Standing::Follower(leader) => leader,
        };
        let (Some(leader), Some(cluster)) = (leader, self.cluster()) else {
            return Err(self.leaseholder_of(range));
        };
        match cluster.ask(leader, Kind::GetPromise(GetPromise { range_id: range })).await {
            Some(Kind::Promise(promise)) => Ok(promise),
            _ => Err(self.leaseholder_of(range)),
        }
    }
}

/// The intents of a tenant's committed transactions, as the transaction records say.
///
/// # Errors
/// I/O errors and damage.
pub fn committed_intents(reader: &dyn Reader, tenant: TenantId) -> Result<IntentView, KvError> {
    let span = tenant.span();
    let records = txn_record::within(reader, &span.start, &span.end)?;
    let committed = records.into_iter().map(|(_, record)| record).collect();
    Ok(IntentView { own: None, committed })
}
