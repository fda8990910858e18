//! Settling what has committed in several ranges: many transactions with one command.
//!
//! A coordinator whose parts all lie with one node tells it once that the transaction is committed
//! ([`DecideTxn::settles`](kv_api::batch::DecideTxn)). In memory all parts are committed at that moment, so readers and
//! writers go on. What has to be on record follows in three steps, each for all transactions that came meanwhile, with
//! one command for each range:
//!
//! 1. the records at the anchors say that the transactions are committed;
//! 2. the intents of the other parts become versions, and their records go;
//! 3. so do those at the anchors.
//!
//! This is the order that [`crate::distributed`] asks for. Until the first step is done the decision is in memory only:
//! if the lease is lost then, the next leaseholder finds every part prepared where the record says, and comes to the
//! same decision. Whoever asks the anchor before has the record written at once ([`Node::commit_record`]).
//!
//! What does not come to its end here, because a lease moved or a range does not answer, the coordinator does itself.

use crate::evaluate::settle_committed;
use crate::faults::Bug;
use crate::intent_set::IntentSet;
use crate::latch::Access;
use crate::lock_table::TxnKey;
use crate::metrics::metrics;
use crate::node::{Node, record_latch};
use crate::resolve::{self, ResolveJob};
use crate::shard::{Decided, PartKey, TxnStatus};
use bytes::Bytes;
use futures::future::join_all;
use hashbrown::HashSet;
use kv_api::{KvError, KvErrorKind, Span, Timestamp};
use replication::RangeId;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use storage::intent::Intent;
use storage::txn_record;
use storage::{Space, WriteBatch};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// How long is waited for more transactions to settle together.
const GATHER: Duration = Duration::from_millis(5);
/// Most transactions settled together.
const MAX_GROUP: usize = 128;
/// Most groups at a time: a range that does not get on holds up the others of its group only.
const MAX_GROUPS: usize = 8;
/// How long a group may take. Whatever is left of it then is for the coordinators.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most transactions that wait to be settled; those beyond are left to their coordinators.
pub(crate) const MAX_WAITING: usize = 4096;
/// Bytes of one command.
const COMMAND_BYTES: usize = 1 << 20;

/// A transaction that is committed and whose parts all lie here.
pub(crate) struct Settling {
    anchor: PartKey,
    others: Vec<PartKey>,
    /// Told when nothing of it is left.
    done: oneshot::Sender<()>,
}

/// Settles transactions as they come, until the node is gone.
pub(crate) async fn run(node: Weak<Node>, mut waiting: mpsc::Receiver<Settling>) {
    let turns = Arc::new(Semaphore::new(MAX_GROUPS));
    while let Some(first) = waiting.recv().await {
        tokio::time::sleep(GATHER).await;
        let Ok(turn) = Arc::clone(&turns).acquire_owned().await else { return };
        let mut group = vec![first];
        while group.len() < MAX_GROUP
            && let Ok(next) = waiting.try_recv()
        {
            group.push(next);
        }
        let Some(node) = node.upgrade() else { return };
        tokio::spawn(async move {
            if tokio::time::timeout(PATIENCE, settle_group(&node, group)).await.is_err() {
                tracing::debug!("transactions are left to be settled by their coordinators");
            }
            drop(turn);
        });
    }
}

async fn settle_group(node: &Arc<Node>, mut group: Vec<Settling>) {
    metrics().settle_groups.inc();
    let anchors: PartsOf = |group| by_range(group.iter().map(|settling| settling.anchor));
    let others: PartsOf = |group| by_range(group.iter().flat_map(|settling| settling.others.iter().copied()));

    let recording = anchors(&group).into_iter().map(|(range, parts)| node.record_all(range, parts));
    let recorded: HashSet<TxnKey> = join_all(recording).await.into_iter().flatten().flatten().collect();
    group.retain(|settling| recorded.contains(&settling.anchor.txn));
    for parts_of in [others, anchors] {
        // Of those that are left: with the record at an anchor goes what says that the other parts are committed.
        let settling = parts_of(&group).into_iter().map(|(range, parts)| async move {
            let txns: Vec<TxnKey> = parts.iter().map(|part| part.txn).collect();
            let settled = node.settle_all(range, parts).await;
            settled.err().map(|error| (error, txns))
        });
        for (error, txns) in join_all(settling).await.into_iter().flatten() {
            tracing::debug!("transactions are left to be settled by their coordinators: {error}");
            group.retain(|settling| !txns.contains(&settling.anchor.txn));
        }
    }
    metrics().settled_together.inc_by(group.len() as u64);
    for settling in group {
        // Who waits may be gone.
        let _ = settling.done.send(());
    }
}

/// Some parts of transactions, by tenant and range.
type PartsOf = fn(&[Settling]) -> BTreeMap<(u64, RangeId), Vec<PartKey>>;

fn by_range(parts: impl Iterator<Item = PartKey>) -> BTreeMap<(u64, RangeId), Vec<PartKey>> {
    let mut ranges: BTreeMap<_, Vec<PartKey>> = BTreeMap::new();
    for part in parts {
        ranges.entry((part.txn.tenant, part.range)).or_default().push(part);
    }
    ranges
}

impl Node {
    /// Settles a transaction that is committed, if the leases of all its ranges are held here: that of the anchor and
    /// these others. Says whether it did; if not, as much as before is left to do.
    pub(crate) async fn settle_here(
        &self,
        anchor: PartKey,
        committed: Timestamp,
        others: &[RangeId],
    ) -> bool {
        let others: Vec<PartKey> = others.iter().map(|range| PartKey { range: *range, ..anchor }).collect();
        let all = || others.iter().chain([&anchor]).copied();
        if others.contains(&anchor) || all().any(|part| self.pipeline.lease(part.range).is_err()) {
            return false;
        }
        // No version lies above the clock of its range.
        all().for_each(|part| self.pipeline.observe(part.range, committed));
        let now = self.pipeline.millis();
        {
            let mut shard = self.shard(anchor.txn.tenant);
            let is_known = |part| match shard.txn(part).map(|entry| entry.status) {
                Some(TxnStatus::Prepared(at)) => at <= committed,
                _ => shard.decision(part).is_some_and(|decided| decided.committed == committed),
            };
            if !all().all(is_known) {
                return false;
            }
            for part in all() {
                shard.decided(part, committed, now);
            }
        }
        let (done, settled) = oneshot::channel();
        self.settler.try_send(Settling { anchor, others, done }).is_ok() && settled.await.is_ok()
    }

    /// Writes into the records of transactions, at their anchors in a range, that they are committed, which is known in
    /// memory. Returns those of which it is on record then.
    async fn record_all(
        self: &Arc<Self>,
        (tenant, range): (u64, RangeId),
        parts: Vec<PartKey>,
    ) -> Result<Vec<TxnKey>, KvError> {
        let lease = self.pipeline.lease(range)?;
        let latched = parts.iter().map(|part| (record_latch(*part), Access::Write)).collect();
        let latches = Arc::new(self.latch(tenant, latched).await);
        let span = self.pipeline.span(range).ok_or_else(|| KvError::range_not_found(range))?;
        let (mut raw, mut records, mut recorded) = (WriteBatch::new(), Vec::new(), Vec::new());
        {
            let shard = self.shard(tenant);
            for part in parts {
                // If it is not there any more, another has seen to it, or the lease was another's meanwhile.
                let Some(decided) = shard.decision(part) else { continue };
                recorded.push(part.txn);
                if !decided.is_on_record() && !self.pipeline.environment().planted(Bug::SettledUnrecorded) {
                    let record = decided.on_record(&[]);
                    txn_record::put(&mut raw, &span.start, &record);
                    records.push((part, record));
                }
            }
        }
        if !raw.is_empty() {
            self.submit_raw(range, lease, raw, Some(&latches)).await?;
        }
        let mut shard = self.shard(tenant);
        records.into_iter().for_each(|(part, record)| shard.recorded(part, record));
        drop((shard, latches));
        Ok(recorded)
    }

    /// Fails unless a lease is held that was held before something was looked for in memory and not found. What is known of
    /// a range is forgotten after its lease is lost, and what is on record is known before the next one serves: so
    /// only if this is so there is nothing.
    ///
    /// # Errors
    /// If the lease was lost, whoever holds the next one.
    pub(crate) fn check_still_held(&self, range: RangeId, lease: u64) -> Result<(), KvError> {
        if self.pipeline.lease(range)? == lease
            || self.pipeline.environment().planted(Bug::ForgottenTakenForSettled)
        {
            return Ok(());
        }
        Err(KvError::new(KvErrorKind::Unavailable, "the lease was another's meanwhile"))
    }

    /// Settles committed parts in a range, of which it is on record at their anchors.
    async fn settle_all(
        self: &Arc<Self>,
        (tenant, range): (u64, RangeId),
        parts: Vec<PartKey>,
    ) -> Result<(), KvError> {
        let lease = self.pipeline.lease(range)?;
        self.pipeline.environment().interleave_for_long().await;
        let mut jobs = Vec::with_capacity(parts.len());
        {
            let shard = self.shard(tenant);
            for part in parts {
                match shard.decision(part) {
                    Some(decided) => jobs.push(self.job(part, decided, false)),
                    None if shard.txn(part).is_none() => {}
                    None => {
                        let message = "the lease was another's meanwhile";
                        return Err(KvError::new(KvErrorKind::Unavailable, message));
                    }
                }
            }
        }
        self.settle_jobs((tenant, range), lease, jobs).await
    }

    /// What is to be done for a committed part. With `keeps`, its record stays.
    pub(crate) fn job(&self, part: PartKey, decided: &Decided, keeps: bool) -> ResolveJob {
        let mut job = ResolveJob::decided(part, decided, keeps);
        if let Some(committed) = &mut job.committed {
            if self.pipeline.environment().planted(Bug::SettledWherePrepared) {
                committed.timestamp = decided.record.timestamp;
            }
            if self.pipeline.environment().planted(Bug::UndoneSettled) {
                committed.ignored.clear();
            }
        }
        job
    }

    /// Settles committed parts of a range: with one command, but for those with many intents, which take their time.
    ///
    /// # Errors
    /// What keeps them from being settled. Some may be.
    pub(crate) async fn settle_jobs(
        self: &Arc<Self>,
        (tenant, range): (u64, RangeId),
        lease: u64,
        jobs: Vec<ResolveJob>,
    ) -> Result<(), KvError> {
        let (mut small, mut large) = (Vec::with_capacity(jobs.len()), Vec::new());
        for job in jobs {
            match IntentSet::of_spans(&job.spans).exact() {
                Some(keys) => small.push((job, keys)),
                None => large.push(job),
            }
        }
        self.settle_small((tenant, range), lease, small).await?;
        for job in large {
            // Answered only when it is done: with the record at the anchor goes what says that it is committed.
            if resolve::settle(self, &job).await? {
                self.resolved(job.part);
            }
        }
        // What was not there any more was settled by somebody else, unless it was forgotten with the lease.
        self.check_still_held(range, lease)
    }

    async fn settle_small(
        self: &Arc<Self>,
        (tenant, range): (u64, RangeId),
        lease: u64,
        mut jobs: Vec<(ResolveJob, Vec<Bytes>)>,
    ) -> Result<(), KvError> {
        let keys = jobs.iter().flat_map(|(_, keys)| keys.iter().map(|key| Span::point(key.clone())));
        let records = jobs.iter().map(|(job, _)| record_latch(job.part));
        let latched = keys.chain(records).map(|span| (span, Access::Write)).collect();
        let latches = Arc::new(self.latch(tenant, latched).await);
        self.pipeline.environment().interleave_for_long().await;
        {
            let shard = self.shard(tenant);
            jobs.retain(|(job, _)| shard.decision(job.part).is_some());
        }
        let span = self.pipeline.span(range).ok_or_else(|| KvError::range_not_found(range))?;
        let mut raw = WriteBatch::new();
        for (job, keys) in &jobs {
            self.settle_keys(job, keys, &mut raw)?;
            job.end_record(&span.start, &mut raw);
            if raw.byte_len() > COMMAND_BYTES {
                self.submit_raw(range, lease, std::mem::take(&mut raw), Some(&latches)).await?;
            }
        }
        if !raw.is_empty() {
            self.submit_raw(range, lease, raw, Some(&latches)).await?;
        }
        drop(latches);
        jobs.iter().for_each(|(job, _)| self.resolved(job.part));
        Ok(())
    }

    /// Adds to a batch what turns the intents of a committed part into versions. The keys are latched.
    fn settle_keys(&self, job: &ResolveJob, keys: &[Bytes], raw: &mut WriteBatch) -> Result<(), KvError> {
        let Some(committed) = &job.committed else { return Ok(()) };
        for key in keys {
            let Some(bytes) = self.engine.get(Space::Locks, key)? else { continue };
            if Intent::decode_txn(&bytes)? != job.part.txn.id {
                continue;
            }
            let intent = Intent::decode(&bytes)?;
            let mut replaced = self.engine.get(Space::Data, key)?.map(|bytes| Bytes::copy_from_slice(&bytes));
            settle_committed(raw, key, &intent, committed, &mut replaced)?;
        }
        Ok(())
    }
}
