//! Transactions over several ranges: what a range does for its part.
//!
//! The protocol is written down in [`kv_api`]. A part is *prepared* by a command that writes its intents and its
//! record, at the timestamp that the coordinator wants or above it. From then on readers at or above that
//! timestamp who meet its intents wait for the decision ([`Node::await_decision`]), and writers wait for its locks.
//!
//! | what is heard | in memory | on record |
//! |---|---|---|
//! | [`DecideTxn`](kv_api::batch::DecideTxn), at the anchor | committed | committed |
//! | [`ResolveTxn`](kv_api::batch::ResolveTxn), not recorded | committed: readers and writers go on | as before |
//! | the same, recorded | gone | intents are versions, the record is gone |
//! | [`DecideTxn`](kv_api::batch::DecideTxn) that settles | committed at once, then gone | the same, in steps: [`crate::settle`] |
//! | abort | gone: its intents count for nothing | intents and record go in the background |
//!
//! Intents and record go only when the decision is on record at the anchor, and there last of all: until then
//! whoever recovers the transaction ([`crate::recover`]) must find every part prepared.
//!
//! Whatever looks at a record and then writes it holds the latch of the record meanwhile.

use crate::command::{Command, CommandError, Effects, Order};
use crate::contention::{WaitKind, Watch};
use crate::faults::Bug;
use crate::guards::{DecisionWait, LatchGuard};
use crate::intent_set::IntentSet;
use crate::latch::Access;
use crate::node::{Asker, BatchResult, Node, abort_job, part_key, record_latch};
use crate::patience::{Manner, Unevaluated, briefly_or_elsewhere};
use crate::pipeline::sequence_of;
use crate::read::Unread;
use crate::resolve::ResolveJob;
use crate::shard::{Decided, PartKey, Shard, TxnEntry, TxnStatus, aborted};
use bytes::Bytes;
use kv_api::batch::{RequestKind, Response};
use kv_api::contention::WaitEnd;
use kv_api::{
    BatchRequest, BatchResponse, Header, KvError, KvErrorKind, LockStrength, Span, TenantId, Timestamp,
};
use replication::RangeId;
use std::sync::Arc;
use storage::intent::{Intent, TxnId};
use storage::txn_record::{self, RecordStatus, TxnRecord};
use storage::{Reader, Space, StorageError, StorageResult, WriteBatch};
use tokio::sync::oneshot;

/// How far back the timestamp of a part that is prepared may lie, in nanoseconds: half of how long records of aborted
/// transactions are kept.
pub const MAX_PREPARE_AGE_NS: u64 = 300_000_000_000;

impl Node {
    /// What is answered to a part that is prepared already; `None` if it is not. The record's latch is held.
    ///
    /// # Errors
    /// [`KvErrorKind::Aborted`] if the transaction was aborted, [`KvErrorKind::Retry`] if it is too old to tell.
    pub(crate) fn prepared_before(
        &self,
        asker: Asker,
        part: PartKey,
        batch: &BatchRequest,
    ) -> Result<Option<BatchResponse>, KvError> {
        let prepared = {
            let shard = self.shard(asker.tenant);
            let entry = shard.txn(part);
            entry.and_then(|entry| match entry.status {
                TxnStatus::Prepared(at) => {
                    let spans = entry.record.as_ref().map(|record| &record.spans[..]).unwrap_or_default();
                    Some((at, writes_within(batch, spans)))
                }
                _ => None,
            })
        };
        if prepared.is_some_and(|(_, same)| !same) || !self.writes_what_is_staged(part.range, batch) {
            return Err(aborted("ranges of the transaction were merged while it committed"));
        }
        let prepared_at = prepared.map(|(at, _)| at);
        if prepared_at.is_none() {
            let span = self.pipeline.span(part.range).ok_or_else(|| KvError::range_not_found(part.range))?;
            match txn_record::get(&*self.engine, &span.start, &part.txn.id)?.map(|record| record.status) {
                Some(RecordStatus::Aborted) => return Err(aborted("the transaction was aborted")),
                // Decided meanwhile, by whoever recovered it.
                Some(_) => return Err(aborted("the transaction has ended")),
                None => {}
            }
            let wanted = batch.requests.last().and_then(|request| match &request.kind {
                Some(RequestKind::EndTxn(end)) => end.prepare.as_ref().map(|prepare| prepare.timestamp),
                _ => None,
            });
            let oldest = self.pipeline.clock(part.range)?.wall_ns.saturating_sub(MAX_PREPARE_AGE_NS);
            if wanted.is_some_and(|wanted| wanted.wall_ns < oldest) {
                return Err(KvError::new(KvErrorKind::Retry, "the transaction took too long to commit"));
            }
            return Ok(None);
        }
        Ok(Some(BatchResponse {
            responses: vec![Response::default(); batch.requests.len()],
            read_timestamp: batch.header.read_timestamp,
            prepared_at,
            ..BatchResponse::default()
        }))
    }

    /// Whether a batch writes all keys of a range that the transaction's record is to name: or whoever recovers it
    /// would take them for prepared. A coordinator that does not know of a merge asks for two parts in one range.
    fn writes_what_is_staged(&self, range: RangeId, batch: &BatchRequest) -> bool {
        let Some(RequestKind::EndTxn(end)) = batch.requests.last().and_then(|request| request.kind.as_ref())
        else {
            return true;
        };
        let staged = end.prepare.as_ref().map(|prepare| &prepare.staged[..]).unwrap_or_default();
        if staged.is_empty() {
            return true;
        }
        let written: hashbrown::HashSet<&[u8]> = written_keys(batch).collect();
        self.pipeline
            .holds(range, |span| staged.iter().all(|key| !span.contains(key) || written.contains(&key[..])))
    }

    /// Called when the command that prepares a part was applied, or was not.
    pub(crate) fn prepare_done(&self, part: PartKey, result: &Result<Timestamp, CommandError>) {
        let job = {
            let mut shard = self.shard(part.txn.tenant);
            match result {
                Ok(_) => {
                    let doomed = shard.txn(part).is_some_and(|entry| entry.doomed);
                    if doomed { self.undo_prepared(&mut shard, part) } else { None }
                }
                Err(CommandError::Rejected | CommandError::NoSpace) => self.reopen(&mut shard, part),
                Err(_) => {
                    // Whether it is prepared is seen under the next lease.
                    shard.end(part);
                    None
                }
            }
        };
        job.into_iter().for_each(|job| self.resolve_later(job));
    }

    /// Aborts a prepared part, as its coordinator says. Answered when nobody can take it for prepared any more,
    /// also under another lease.
    pub(crate) async fn abort_prepared(self: Arc<Self>, part: PartKey) -> BatchResult {
        let tenant = part.txn.tenant;
        let lease = self.pipeline.lease(part.range)?;
        let record = self.shard(tenant).txn(part).and_then(|entry| entry.record.clone());
        let keys = record.as_ref().and_then(|record| IntentSet::of_spans(&record.spans).exact());
        let spans = keys.iter().flatten().map(|key| (Span::point(key.clone()), Access::Write));
        let latched = spans.chain([(record_latch(part), Access::Write)]).collect();
        let latches = Arc::new(self.latch(tenant, latched).await);
        let status = self.shard(tenant).txn(part).map(|entry| entry.status);
        if let (Some(record), Some(TxnStatus::Prepared(_))) = (record, status) {
            let span = self.pipeline.span(part.range).ok_or_else(|| KvError::range_not_found(part.range))?;
            let mut raw = WriteBatch::new();
            txn_record::delete(&mut raw, &span.start, &part.txn.id);
            for key in keys.iter().flatten() {
                let intent = self.engine.get(Space::Locks, key)?;
                if intent.is_some_and(|bytes| Intent::decode_txn(&bytes) == Ok(part.txn.id)) {
                    raw.delete(Space::Locks, key);
                }
            }
            self.submit_raw(part.range, lease, raw, Some(&latches)).await?;
            let undone = self.undo_prepared(&mut self.shard(tenant), part).is_some();
            match keys {
                Some(_) if undone => self.resolved(part),
                None if undone => self.resolve_later(ResolveJob::aborted(part, record.spans, false)),
                _ => {}
            }
        } else if self.shard(tenant).decision(part).is_some() {
            return Err(aborted("the transaction has committed"));
        }
        drop(latches);
        Ok(BatchResponse { responses: vec![Response::default()], ..BatchResponse::default() })
    }

    /// Aborts a transaction at its anchor, so that it stays so whatever comes.
    pub(crate) async fn abort_for_good(self: Arc<Self>, part: PartKey) -> BatchResult {
        let latches = Arc::new(self.latch(part.txn.tenant, vec![(record_latch(part), Access::Write)]).await);
        let lease = self.pipeline.lease(part.range)?;
        let span = self.pipeline.span(part.range).ok_or_else(|| KvError::range_not_found(part.range))?;
        let decided = self.shard(part.txn.tenant).decision(part).is_some();
        let record = txn_record::get(&*self.engine, &span.start, &part.txn.id)?;
        if decided || record.as_ref().is_some_and(|record| record.status == RecordStatus::Committed) {
            return Err(aborted("the transaction has committed"));
        }
        if record.is_none_or(|record| record.status != RecordStatus::Aborted) {
            self.abort_record(part, &span.start, lease, &latches).await?;
        }
        Ok(BatchResponse { responses: vec![Response::default()], ..BatchResponse::default() })
    }

    /// Ends a prepared part that was aborted.
    pub(crate) fn undo_prepared(&self, shard: &mut Shard, part: PartKey) -> Option<ResolveJob> {
        let entry = shard.undo_prepared(part)?;
        abort_job(part, &entry)
    }

    /// Waits until it is known what becomes of a prepared transaction of a range.
    ///
    /// # Errors
    /// [`KvErrorKind::Deadlock`] if it waits for the one that asks, perhaps by way of others, or
    /// [`KvErrorKind::LockNotAvailable`] if that takes longer than the transaction wants to wait for locks.
    pub(crate) async fn await_decision(
        &self,
        asker: Asker,
        prepared: TxnId,
        header: &Header,
    ) -> Result<(), KvError> {
        let own = part_key(asker, header).ok().map(|part| part.txn);
        let part = PartKey {
            range: asker.range,
            txn: crate::lock_table::TxnKey { tenant: asker.tenant, id: prepared },
        };
        let now = self.pipeline.millis();
        let mut woken = self.shard(asker.tenant).await_decision(part, own.map(|own| own.id), now);
        if woken.try_recv().is_ok() {
            return Ok(());
        }
        let watch = Watch::new(WaitKind::Decision, Bytes::new(), LockStrength::None, own, Some(part.txn));
        let wait = DecisionWait::new(self, asker, watch);
        if woken.await.is_ok() {
            wait.ended(WaitEnd::Granted);
            return Ok(());
        }
        if let Some(own) = own
            && self.shard(asker.tenant).take_victim(own)
        {
            crate::metrics::metrics().deadlocks.inc();
            wait.ended(WaitEnd::Deadlock);
            return Err(KvError::new(KvErrorKind::Deadlock, "deadlock detected"));
        }
        Ok(())
    }

    /// Fails for a transaction that lost locks and of which nothing says what it rests on but those.
    pub(crate) fn check_locks(&self, part: PartKey, header: &Header) -> Result<(), KvError> {
        let shard = self.shard(part.txn.tenant);
        self.check_locks_of(shard.txn(part), header)
    }

    /// The same, of what is known of the part.
    pub(crate) fn check_locks_of(&self, entry: Option<&TxnEntry>, header: &Header) -> Result<(), KvError> {
        let rests_on_locks =
            header.refresh_spans.is_empty() && header.txn.as_ref().is_some_and(|txn| txn.lease != 0);
        let lost = entry.is_some_and(|entry| entry.lost_locks);
        if rests_on_locks && lost && !self.pipeline.environment().planted(Bug::LostLocksIgnored) {
            return Err(aborted(
                "the transaction does not have its locks: its range was split, one of high priority took them, or there \
                 were too many",
            ));
        }
        Ok(())
    }

    /// Answers a refresh.
    pub(crate) async fn refresh(self: Arc<Self>, asker: Asker, batch: BatchRequest) -> BatchResult {
        let batch = Arc::new(batch);
        briefly_or_elsewhere(|manner| Arc::clone(&self).refresh_in(manner, asker, Arc::clone(&batch))).await
    }

    async fn refresh_in(
        self: Arc<Self>,
        manner: Manner,
        asker: Asker,
        batch: Arc<BatchRequest>,
    ) -> Result<BatchResponse, Unevaluated> {
        let header = &batch.header;
        let to = batch.requests.first().and_then(|request| match &request.kind {
            Some(RequestKind::Refresh(refresh)) => refresh.to,
            _ => None,
        });
        if to.is_none() && header.fixed_read_timestamp {
            return Err(
                KvError::new(KvErrorKind::Retry, "the snapshot of the transaction cannot move").into()
            );
        }
        loop {
            let clock = self.pipeline.clock(asker.range)?;
            if let Some(to) = to {
                self.pipeline.close_up_to(asker.range, to).await?;
            }
            let refreshed = self.evaluated(manner, |reader| self.refreshed(reader, asker, &batch, to)).await;
            match refreshed.ok_or(Unevaluated::TakesLong)? {
                Ok(read_timestamp) => {
                    return Ok(BatchResponse {
                        responses: vec![Response::default()],
                        read_timestamp: Some(read_timestamp),
                        clock: to.is_some().then_some(clock),
                        ..BatchResponse::default()
                    });
                }
                Err(unread) => self.wait_to_read(asker, header, unread).await?,
            }
        }
    }

    /// Checks the spans of a refresh, and says where the snapshot is then.
    fn refreshed(
        &self,
        reader: &dyn Reader,
        asker: Asker,
        batch: &BatchRequest,
        to: Option<Timestamp>,
    ) -> Result<Timestamp, Unread> {
        let header = &batch.header;
        let lease = sequence_of(self.pipeline.lease(asker.range)?);
        if header.txn.as_ref().is_some_and(|txn| txn.lease != 0 && txn.lease != lease) {
            return Err(aborted("the lease of the range moved, and the transaction's locks are gone").into());
        }
        let part = if header.txn.is_some() { Some(part_key(asker, header)?) } else { None };
        let status = part.and_then(|part| self.shard(asker.tenant).txn(part).map(|entry| entry.status));
        if !matches!(status, Some(TxnStatus::Prepared(_))) {
            self.check_txn(asker, header)?;
        }
        self.check_holds(asker, batch)?;
        if let Some(part) = part {
            self.check_locks(part, header)?;
        }
        let from = self.snapshot_timestamp(asker.range, header.read_timestamp)?;
        let to = match to {
            Some(to) => to,
            None => self.pipeline.present(asker.range)?,
        };
        let tracked = self.tracked_spans(asker, header);
        let own = part.map(|part| part.txn.id);
        if self.pipeline.environment().planted(Bug::RefreshSkipped) {
            return Ok(to);
        }
        self.check_unchanged(reader, asker, own, header.refresh_spans.iter().chain(&tracked), from, to)?;
        Ok(to)
    }

    /// Commits a transaction at its anchor.
    pub(crate) async fn decide(self: Arc<Self>, asker: Asker, batch: BatchRequest) -> BatchResult {
        let part = part_key(asker, &batch.header)?;
        let Some(RequestKind::DecideTxn(decide)) =
            batch.requests.into_iter().next().and_then(|request| request.kind)
        else {
            return Err(KvError::new(KvErrorKind::Internal, "nothing says what was decided"));
        };
        let settled =
            !decide.settles.is_empty() && self.settle_here(part, decide.timestamp, &decide.settles).await;
        let timestamp = match settled {
            true => decide.timestamp,
            false => self.commit_record(part, decide.timestamp, &decide.parts).await?,
        };
        Ok(BatchResponse {
            responses: vec![Response::default()],
            commit_timestamp: Some(timestamp),
            settled,
            ..BatchResponse::default()
        })
    }

    /// Writes into the record of a transaction, at its anchor, that it committed; returns where.
    ///
    /// # Errors
    /// [`KvErrorKind::Aborted`] if it did not, or what keeps the record from being written.
    pub(crate) async fn commit_record(
        self: &Arc<Self>,
        part: PartKey,
        timestamp: Timestamp,
        parts: &[bytes::Bytes],
    ) -> Result<Timestamp, KvError> {
        let tenant = part.txn.tenant;
        let lease = self.pipeline.lease(part.range)?;
        let latches = Arc::new(self.latch(tenant, vec![(record_latch(part), Access::Write)]).await);
        let span = self.pipeline.span(part.range).ok_or_else(|| KvError::range_not_found(part.range))?;
        let now = self.pipeline.millis();
        let decided = {
            let shard = self.shard(tenant);
            match shard.decision(part) {
                Some(decided) if decided.is_on_record() => return Ok(decided.committed),
                Some(decided) => Some(decided.clone()),
                None => shard.txn(part).and_then(|entry| entry.record.clone()).map(|record| Decided {
                    record,
                    committed: timestamp,
                    since: now,
                }),
            }
        };
        let Some(decided) = decided else {
            self.check_still_held(part.range, lease)?;
            return match txn_record::get(&*self.engine, &span.start, &part.txn.id)? {
                Some(TxnRecord { status: RecordStatus::Committed, timestamp, .. }) => Ok(timestamp),
                _ => Err(aborted("the transaction was aborted, because its coordinator seemed to be gone")),
            };
        };
        let timestamp = decided.committed;
        if timestamp < decided.record.timestamp {
            return Err(KvError::new(KvErrorKind::InvalidRequest, "a part is prepared above this timestamp"));
        }
        let record = decided.on_record(parts);
        let mut raw = WriteBatch::new();
        txn_record::put(&mut raw, &span.start, &record);
        self.submit_raw(part.range, lease, raw, Some(&latches)).await?;
        self.pipeline.observe(part.range, timestamp);
        let mut shard = self.shard(tenant);
        shard.decided(part, timestamp, now);
        shard.recorded(part, record);
        drop((shard, latches));
        Ok(timestamp)
    }

    /// Writes into a record, or makes one that says so, that a transaction did not and will not commit. The
    /// record's latch is held, and so was this lease before it was looked whether the part is prepared or decided.
    ///
    /// # Errors
    /// What keeps it from being written, the loss of that lease among it.
    pub(crate) async fn abort_record(
        self: &Arc<Self>,
        part: PartKey,
        anchor: &bytes::Bytes,
        lease: u64,
        latches: &Arc<LatchGuard>,
    ) -> Result<(), KvError> {
        self.check_still_held(part.range, lease)?;
        let span = self.pipeline.span(part.range).ok_or_else(|| KvError::range_not_found(part.range))?;
        let record = TxnRecord {
            id: part.txn.id,
            status: RecordStatus::Aborted,
            timestamp: self.pipeline.clock(part.range)?,
            ignored: Vec::new(),
            anchor: anchor.clone(),
            staged: None,
            spans: Vec::new(),
        };
        let mut raw = WriteBatch::new();
        txn_record::put(&mut raw, &span.start, &record);
        self.submit_raw(part.range, lease, raw, Some(latches)).await?;
        // Whatever there was counts for nothing now; its intents go in the background, its record stays.
        let job = {
            let mut shard = self.shard(part.txn.tenant);
            match shard.txn(part).map(|entry| entry.status) {
                Some(TxnStatus::Prepared(_)) => self.undo_prepared(&mut shard, part),
                Some(TxnStatus::Pending) => shard.end(part).and_then(|entry| abort_job(part, &entry)),
                _ => None,
            }
        };
        job.into_iter().for_each(|job| self.resolve_later(job.keeping_record()));
        self.shard(part.txn.tenant).buried(part, record.timestamp);
        Ok(())
    }

    /// Takes in what was decided of a prepared part.
    pub(crate) async fn resolve(self: Arc<Self>, asker: Asker, batch: BatchRequest) -> BatchResult {
        let part = part_key(asker, &batch.header)?;
        if let Some(RequestKind::ResolveTxn(resolve)) =
            batch.requests.into_iter().next().and_then(|request| request.kind)
        {
            self.learn(part, resolve.committed, resolve.recorded).await?;
        }
        Ok(BatchResponse { responses: vec![Response::default()], ..BatchResponse::default() })
    }

    /// Takes in what was decided of a prepared part, and settles it if that is on record at the anchor.
    ///
    /// # Errors
    /// What keeps it from being settled.
    pub(crate) async fn learn(
        self: &Arc<Self>,
        part: PartKey,
        committed: Option<Timestamp>,
        recorded: bool,
    ) -> Result<(), KvError> {
        self.learn_and_keep(part, committed, recorded, false).await
    }

    /// The same. With `keeps`, the record stays for a while: its coordinator may not know yet.
    ///
    /// # Errors
    /// As for [`Node::learn`].
    pub(crate) async fn learn_and_keep(
        self: &Arc<Self>,
        part: PartKey,
        committed: Option<Timestamp>,
        recorded: bool,
        keeps: bool,
    ) -> Result<(), KvError> {
        let tenant = part.txn.tenant;
        let lease = self.pipeline.lease(part.range)?;
        let Some(committed) = committed else {
            let job = {
                let mut shard = self.shard(tenant);
                match shard.txn(part).map(|entry| entry.status) {
                    Some(TxnStatus::Prepared(_)) => self.undo_prepared(&mut shard, part),
                    _ => None,
                }
            };
            job.into_iter().for_each(|job| self.resolve_later(job));
            return Ok(());
        };
        let recorded = recorded || self.pipeline.environment().planted(Bug::SettledUnrecorded);
        let prepared = self.shard(tenant).txn(part).map(|entry| entry.status);
        if let Some(TxnStatus::Prepared(at)) = prepared
            && at > committed
        {
            // It was prepared again, by a coordinator that did not hear that it had been, after it was settled.
            return Arc::clone(self).abort_prepared(part).await.map(drop);
        }
        // No version lies above the clock of its range.
        self.pipeline.observe(part.range, committed);
        let now = self.pipeline.millis();
        let decided = {
            let mut shard = self.shard(tenant);
            shard.decided(part, committed, now);
            shard.decision(part).cloned()
        };
        // If it is not there any more, that is because it is settled.
        let Some(decided) = decided.filter(|_| recorded) else {
            return self.check_still_held(part.range, lease);
        };
        if keeps {
            self.shard(tenant).buried(part, committed);
        }
        let job = self.job(part, &decided, keeps);
        self.settle_jobs((tenant, part.range), lease, vec![job]).await
    }

    /// Applies writes that take no place in the order of commits. The latches under which they came to be are held until
    /// that has happened, or cannot, also if nobody waits for it any more.
    pub(crate) async fn submit_raw(
        &self,
        range: RangeId,
        lease: u64,
        raw: WriteBatch,
        latches: Option<&Arc<LatchGuard>>,
    ) -> Result<(), KvError> {
        let _room = self.pipeline.reserve(raw.byte_len()).await?;
        let (sender, receiver) = oneshot::channel();
        let latches = latches.cloned();
        let command = Command {
            range,
            effects: Effects { raw, ..Effects::default() },
            change: None,
            lease,
            order: Order::None,
            before_visible: None,
            late: None,
            done: Box::new(move |result| {
                drop(latches);
                // Who waits may be gone.
                let _ = sender.send(result);
            }),
        };
        self.pipeline.submit(command)?;
        match receiver.await {
            Ok(result) => result.map(|_| ()).map_err(KvError::from),
            Err(_) => Err(KvError::new(KvErrorKind::Unavailable, "the KV node is shutting down")),
        }
    }

    /// Takes note of what is on record of transactions in a range whose lease was just acquired, and of which
    /// nothing is left but what must stay.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn adopt(&self, range: RangeId, span: &Span) -> StorageResult<()> {
        let tenant = TenantId::of_key(&span.start).map_or(0, |tenant| tenant.0);
        let records = match txn_record::within(&*self.engine, &span.start, &span.end) {
            Ok(records) => records,
            Err(StorageError::Undecided(_)) => Vec::new(),
            Err(error) => return Err(error),
        };
        let now = self.pipeline.millis();
        let mut shard = self.shard(tenant);
        for (_, record) in records {
            let txn = crate::lock_table::TxnKey { tenant, id: record.id };
            let part = PartKey { range, txn };
            let intents = IntentSet::of_spans(&record.spans);
            match record.status {
                RecordStatus::Aborted => shard.buried(part, record.timestamp),
                RecordStatus::Prepared => {
                    shard.prepared(part, 0, record, now);
                    shard.txn_mut(part, 0).intents = intents;
                }
                RecordStatus::Committed if record.staged.is_none() => shard.buried(part, record.timestamp),
                RecordStatus::Committed => {
                    let committed = record.timestamp;
                    shard.prepared(part, 0, record, now);
                    shard.decided(part, committed, now);
                }
            }
        }
        Ok(())
    }
}

/// The keys that a batch writes, but for those of ranges that it deletes.
fn written_keys(batch: &BatchRequest) -> impl Iterator<Item = &[u8]> {
    batch.requests.iter().filter_map(|request| match &request.kind {
        Some(RequestKind::Put(put)) => Some(&put.key[..]),
        Some(RequestKind::ConditionalPut(put)) => Some(&put.key[..]),
        Some(RequestKind::Delete(delete)) => Some(&delete.key[..]),
        _ => None,
    })
}

/// Whether all that a batch writes lies within some spans.
fn writes_within(batch: &BatchRequest, spans: &[Span]) -> bool {
    written_keys(batch).all(|key| covers(spans, key))
}

/// Whether a key lies within some spans.
pub(crate) fn covers(spans: &[Span], key: &[u8]) -> bool {
    spans.iter().any(|span| span.contains(key) || &span.start[..] == key)
}
