//! Finding out what becomes of transactions whose coordinators are gone (`cockroachdb-2020`, section 3.2), and of
//! such that wait for each other over several nodes.
//!
//! A prepared part is *abandoned* when the connection on which it was prepared has ended, when the lease has
//! changed hands since, or when nothing was heard for [`SILENCE_MS`]; one that is known to be committed when the rest
//! of what its coordinator should do does not come for [`UNSETTLED_MS`]. The leaseholder of its range then asks that of
//! the anchor, which decides: see [`decide_at_anchor`]. Who holds a lease is not known here; every node is asked, and
//! the one that does answers. This is rare, and clusters have few nodes.

use crate::cluster::message::{AskOutcome, AskWaits, Kind, OutcomeStatus, TxnOutcome, Wait, Waits};
use crate::cycles::{Waiting, victims};
use crate::distributed::covers;
use crate::faults::Bug;
use crate::latch::Access;
use crate::lock_table::TxnKey;
use crate::metrics::metrics;
use crate::node::{Node, record_latch};
use crate::shard::{PartKey, TxnStatus};
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use hashbrown::HashSet;
use kv_api::{KvError, KvErrorKind, Timestamp};
use replication::Millis;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;
use storage::WriteBatch;
use storage::intent::TxnId;
use storage::txn_record::{self, RecordStatus};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(200);
/// Between two looks for cycles, while transactions wait.
const PAUSE_WHILE_WAITING: Duration = Duration::from_millis(50);
/// How long a part waits for a coordinator that may come back on another connection.
const GRACE_MS: Millis = 1_000;
/// How long it waits for one whose connection stands.
const SILENCE_MS: Millis = 30_000;
/// How long a part that is committed waits to be settled.
const UNSETTLED_MS: Millis = 5_000;
/// Most parts recovered at a time, and how long at most.
const AT_A_TIME: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);
/// How long records of aborted transactions are kept, in nanoseconds.
const BURIED_NS: u64 = 2 * crate::distributed::MAX_PREPARE_AGE_NS;
/// Most waits taken into account when cycles are looked for.
const MAX_WAITS: usize = 10_000;

/// Recovers transactions until the node is gone.
pub async fn run(node: Weak<Node>) {
    loop {
        tokio::time::sleep(PAUSE).await;
        let Some(node) = node.upgrade() else { return };
        recover_all(&node).await;
        forget_aborted(&node).await;
    }
}

/// Looks for transactions that wait for each other until the node is gone.
pub async fn break_cycles(node: Weak<Node>) {
    let mut cycles = Cycles::default();
    loop {
        tokio::time::sleep(if cycles.waiting.is_empty() { PAUSE } else { PAUSE_WHILE_WAITING }).await;
        let Some(node) = node.upgrade() else { return };
        cycles.look(&node).await;
    }
}

/// Has forgotten what came to be known of transactions in ranges after their leases were lost: of a request that was
/// under way then. Nobody else would ever hear of it here.
fn forget_unheld(node: &Node) {
    let mut unheld = BTreeSet::new();
    for shard in &node.shards {
        unheld.extend(shard.lock().ranges_used());
    }
    unheld.retain(|range| !node.pipeline.has_lease(*range));
    if !unheld.is_empty() && !node.pipeline.forget_unheld(unheld.into_iter().collect()) {
        tracing::debug!(
            "too much is asked of the ranges of this node: what was lost with leases is forgotten later"
        );
    }
}

async fn recover_all(node: &Arc<Node>) {
    node.abort_overdue();
    forget_unheld(node);
    let now = node.pipeline.millis();
    let mut parts = Vec::new();
    for shard in &node.shards {
        parts.extend(shard.lock().abandoned(
            now.saturating_sub(GRACE_MS),
            now.saturating_sub(SILENCE_MS),
            now.saturating_sub(UNSETTLED_MS),
        ));
    }
    parts.truncate(AT_A_TIME);
    let recoveries = parts.into_iter().map(|part| async move {
        match tokio::time::timeout(PATIENCE, recover(node, part)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!("a transaction is recovered later: {error}"),
            Err(_) => tracing::debug!("a transaction is recovered later: nobody answered in time"),
        }
    });
    futures::future::join_all(recoveries).await;
}

/// Finds out what becomes of a part, and sees to it.
async fn recover(node: &Arc<Node>, part: PartKey) -> Result<(), KvError> {
    let record = {
        let shard = node.shard(part.txn.tenant);
        let prepared = shard.txn(part).and_then(|entry| entry.record.clone());
        prepared.or_else(|| shard.decision(part).map(|decided| decided.record.clone()))
    };
    let Some(record) = record else { return Ok(()) };
    let span = node.pipeline.span(part.range).ok_or_else(|| KvError::range_not_found(part.range))?;
    let is_anchor = span.contains(&record.anchor);
    let outcome = if is_anchor {
        decide_at_anchor(node, part, &record.anchor).await?
    } else {
        ask_about(node, part.txn, record.anchor.clone(), None).await?
    };
    match outcome.status() {
        OutcomeStatus::Committed => {
            metrics().recovered.inc();
            let committed = Some(outcome.timestamp);
            if is_anchor {
                let shard_record =
                    node.shard(part.txn.tenant).decision(part).map(|decided| decided.record.clone());
                let parts =
                    shard_record.and_then(|record| record.staged).map(|(_, keys)| keys).unwrap_or_default();
                for key in parts.into_iter().filter(|key| !span.contains(key)) {
                    tell(node, part.txn, key, outcome.timestamp).await?;
                }
            }
            node.learn_and_keep(part, committed, true, is_anchor).await
        }
        OutcomeStatus::Aborted => {
            metrics().recovered.inc();
            node.learn(part, None, true).await
        }
        OutcomeStatus::Pending | OutcomeStatus::Prepared => Ok(()),
    }
}

fn outcome(status: OutcomeStatus, timestamp: Timestamp) -> TxnOutcome {
    TxnOutcome { status: status as i32, timestamp }
}

/// Decides about a transaction at its anchor, whose lease is held here.
///
/// * If its record is committed or aborted, that is it.
/// * If its coordinator may be alive, nothing is decided yet.
/// * If there is no record, one is written that says *aborted*: none that says something else can come.
/// * A record that is prepared and not staging: the coordinator did not come to the decision, so it is *aborted*.
/// * A staging record: committed if every key that it names is prepared, at or below the timestamp it names. A
///   range where one is not writes that the transaction is aborted, so that it never will be.
async fn decide_at_anchor(node: &Arc<Node>, part: PartKey, anchor: &Bytes) -> Result<TxnOutcome, KvError> {
    let decided = look_at_anchor(node, part, anchor).await?;
    if decided.status() == OutcomeStatus::Committed {
        // It may be known in memory only. Who asks may settle its part next, and then nothing else says so.
        node.commit_record(part, decided.timestamp, &[]).await?;
    }
    Ok(decided)
}

async fn look_at_anchor(node: &Arc<Node>, part: PartKey, anchor: &Bytes) -> Result<TxnOutcome, KvError> {
    let tenant = part.txn.tenant;
    let now = node.pipeline.millis();
    let known = {
        let shard = node.shard(tenant);
        if let Some(decided) = shard.decision(part) {
            return Ok(outcome(OutcomeStatus::Committed, decided.committed));
        }
        let alive = |connection, since: Millis| {
            shard.has_connection(connection) && now.saturating_sub(since) < SILENCE_MS
        };
        match shard.txn(part) {
            Some(entry) if alive(entry.connection, entry.since) => {
                return Ok(outcome(OutcomeStatus::Pending, Timestamp::MIN));
            }
            Some(entry) if entry.status == TxnStatus::Preparing => {
                return Ok(outcome(OutcomeStatus::Pending, Timestamp::MIN));
            }
            Some(entry) => entry.record.clone(),
            None => None,
        }
    };
    let span = node.pipeline.span(part.range).ok_or_else(|| KvError::range_not_found(part.range))?;
    let staged =
        known.as_ref().and_then(|record| record.staged.clone().filter(|(at, _)| record.timestamp <= *at));
    let Some((at, keys)) = staged else {
        return abort_unless_decided(node, part, anchor, known.is_some()).await;
    };
    let trusted = node.pipeline.environment().planted(Bug::StagingTrusted);
    for key in keys.into_iter().filter(|key| !span.contains(key) && !trusted) {
        match ask_about(node, part.txn, key, Some(at)).await?.status() {
            OutcomeStatus::Prepared | OutcomeStatus::Committed => {}
            OutcomeStatus::Aborted => return abort_unless_decided(node, part, anchor, true).await,
            OutcomeStatus::Pending => return Ok(outcome(OutcomeStatus::Pending, Timestamp::MIN)),
        }
    }
    let committed = node.commit_record(part, at, &[]).await?;
    Ok(outcome(OutcomeStatus::Committed, committed))
}

/// Writes that a transaction is aborted, unless it came to something else meanwhile. `expected` says whether a part
/// of it was here.
async fn abort_unless_decided(
    node: &Arc<Node>,
    part: PartKey,
    anchor: &Bytes,
    expected: bool,
) -> Result<TxnOutcome, KvError> {
    let tenant = part.txn.tenant;
    let latches = Arc::new(node.latch(tenant, vec![(record_latch(part), Access::Write)]).await);
    let lease = node.pipeline.lease(part.range)?;
    {
        let shard = node.shard(tenant);
        if let Some(decided) = shard.decision(part) {
            return Ok(outcome(OutcomeStatus::Committed, decided.committed));
        }
        let is_here = shard.txn(part).is_some_and(|entry| entry.record.is_some());
        if is_here != expected {
            return Ok(outcome(OutcomeStatus::Pending, Timestamp::MIN));
        }
    }
    let span = node.pipeline.span(part.range).ok_or_else(|| KvError::range_not_found(part.range))?;
    if !expected {
        match txn_record::get(&*node.engine, &span.start, &part.txn.id)? {
            Some(record) if record.status == RecordStatus::Committed => {
                return Ok(outcome(OutcomeStatus::Committed, record.timestamp));
            }
            Some(record) if record.status == RecordStatus::Aborted => {
                return Ok(outcome(OutcomeStatus::Aborted, record.timestamp));
            }
            _ => {}
        }
    }
    node.abort_record(part, anchor, lease, &latches).await?;
    Ok(outcome(OutcomeStatus::Aborted, Timestamp::MIN))
}

/// Says whether a key is prepared at or below a timestamp; if it is not, sees to it that it never will be.
async fn confirm(node: &Arc<Node>, part: PartKey, key: &Bytes, at: Timestamp) -> Result<TxnOutcome, KvError> {
    let tenant = part.txn.tenant;
    let latches = Arc::new(node.latch(tenant, vec![(record_latch(part), Access::Write)]).await);
    let lease = node.pipeline.lease(part.range)?;
    {
        let shard = node.shard(tenant);
        if let Some(decided) = shard.decision(part) {
            return Ok(outcome(OutcomeStatus::Committed, decided.committed));
        }
        if let Some(entry) = shard.txn(part)
            && let TxnStatus::Prepared(prepared) = entry.status
        {
            // Prepared above it, it never will be below; and where ranges were merged there may be a part without the
            // key, which keeps another one from being prepared. It stays as it is: its coordinator may be about to
            // commit it there, and whether it does or whoever asks aborts it is for the anchor alone to say.
            let wrote = entry.record.as_ref().is_some_and(|record| covers(&record.spans, key));
            let is_prepared = prepared <= at && wrote;
            let status = if is_prepared { OutcomeStatus::Prepared } else { OutcomeStatus::Aborted };
            return Ok(outcome(status, prepared));
        }
    }
    if !node.pipeline.environment().planted(Bug::NotPrevented) {
        node.abort_record(part, key, lease, &latches).await?;
    }
    Ok(outcome(OutcomeStatus::Aborted, Timestamp::MIN))
}

/// Answers a question about a transaction, if the lease of the range that holds the key is held here.
///
/// # Errors
/// If it is not, or what keeps the node from finding out.
pub(crate) async fn answer(node: &Arc<Node>, asked: AskOutcome) -> Result<TxnOutcome, KvError> {
    let invalid = || KvError::new(KvErrorKind::InvalidRequest, "a transaction id has 16 bytes");
    let id = TxnId::try_from(&asked.txn[..]).map_err(|_| invalid())?;
    let missing = || KvError::range_not_found(0);
    let range = node.pipeline.covering(asked.key.clone()).await?.ok_or_else(missing)?;
    node.ready(range).await?;
    if !node.pipeline.span(range).is_some_and(|span| span.contains(&asked.key)) {
        return Err(missing());
    }
    let part = PartKey { range, txn: TxnKey { tenant: asked.tenant, id } };
    if let Some(committed) = asked.committed {
        node.learn(part, Some(committed), true).await?;
        return Ok(outcome(OutcomeStatus::Committed, committed));
    }
    match asked.confirm {
        Some(at) => confirm(node, part, &asked.key, at).await,
        None => decide_at_anchor(node, part, &asked.key).await,
    }
}

async fn ask_about(
    node: &Arc<Node>,
    txn: TxnKey,
    key: Bytes,
    confirm: Option<Timestamp>,
) -> Result<TxnOutcome, KvError> {
    let id = Bytes::copy_from_slice(&txn.id);
    ask_all(node, AskOutcome { tenant: txn.tenant, txn: id, key, confirm, committed: None }).await
}

/// Tells the part of a transaction that holds a key that it committed, as is on record at the anchor.
async fn tell(node: &Arc<Node>, txn: TxnKey, key: Bytes, committed: Timestamp) -> Result<(), KvError> {
    let id = Bytes::copy_from_slice(&txn.id);
    let told = AskOutcome { tenant: txn.tenant, txn: id, key, confirm: None, committed: Some(committed) };
    ask_all(node, told).await.map(drop)
}

/// The answer of whichever node holds the lease of the key's range.
fn ask_all(node: &Arc<Node>, question: AskOutcome) -> BoxFuture<'_, Result<TxnOutcome, KvError>> {
    // Boxed, for what is asked here may ask again.
    Box::pin(async move {
        if let Ok(outcome) = answer(node, question.clone()).await {
            return Ok(outcome);
        }
        let nobody =
            || KvError::new(KvErrorKind::Unavailable, "nobody holds the lease of a transaction's range");
        let cluster = node.cluster().ok_or_else(nobody)?;
        let ask = |id| cluster.ask_patiently(id, Kind::AskOutcome(question.clone()));
        let mut answers: FuturesUnordered<_> = cluster.others().into_iter().map(ask).collect();
        while let Some(answered) = answers.next().await {
            if let Some(Kind::TxnOutcome(outcome)) = answered {
                return Ok(outcome);
            }
        }
        Err(nobody())
    })
}

/// Removes records of aborted transactions that are needed no more.
async fn forget_aborted(node: &Arc<Node>) {
    let before = node.pipeline.history_clock().wall_ns.saturating_sub(BURIED_NS);
    let mut parts = Vec::new();
    for shard in &node.shards {
        parts.extend(shard.lock().take_buried(Timestamp::new(before, 0)));
    }
    for part in parts {
        let (Ok(lease), Some(span)) = (node.pipeline.lease(part.range), node.pipeline.span(part.range))
        else {
            // The next leaseholder finds it.
            continue;
        };
        let mut raw = WriteBatch::new();
        txn_record::delete(&mut raw, &span.start, &part.txn.id);
        if let Err(error) = node.submit_raw(part.range, lease, raw, None).await {
            tracing::debug!("the record of an aborted transaction stays: {error}");
        }
    }
}

/// Who waits for whom here, in a tenant.
pub(crate) fn waits(node: &Node, asked: AskWaits) -> Waits {
    let bytes = |id: TxnId| Bytes::copy_from_slice(&id);
    let waits = own_waits(node, asked.tenant).into_iter().take(MAX_WAITS);
    let wait = |wait: Waiting| Wait {
        waiter: bytes(wait.waiter),
        holder: bytes(wait.holder),
        priority: wait.priority as i32,
    };
    Waits { waits: waits.map(wait).collect() }
}

fn own_waits(node: &Node, tenant: u64) -> Vec<Waiting> {
    let shard = node.shard(tenant);
    let waits = shard.waits(tenant).into_iter();
    let priority = |id| shard.priority(TxnKey { tenant, id });
    waits.map(|(waiter, holder)| Waiting { waiter, holder, priority: priority(waiter) }).collect()
}

/// The search for transactions that wait for each other over several nodes. A cycle counts when it was seen twice:
/// the waits of different nodes are not of one moment.
#[derive(Default)]
struct Cycles {
    /// Tenants with waits at the last look.
    waiting: HashSet<u64>,
    suspects: HashSet<TxnKey>,
}

impl Cycles {
    async fn look(&mut self, node: &Arc<Node>) {
        let mut local: BTreeSet<u64> = BTreeSet::new();
        for shard in &node.shards {
            for tenant in shard.lock().waiting_tenants() {
                local.insert(tenant);
            }
        }
        let before = std::mem::replace(&mut self.waiting, local.iter().copied().collect());
        // Most waits are over before anybody looks twice.
        local.retain(|tenant| before.contains(tenant));
        let mut suspects = HashSet::new();
        for tenant in local {
            let own = own_waits(node, tenant);
            let mut all = own.clone();
            if let Some(cluster) = node.cluster() {
                let asked = AskWaits { tenant };
                let others = cluster.others().into_iter().map(|id| cluster.ask(id, Kind::AskWaits(asked)));
                for answer in futures::future::join_all(others).await {
                    let Some(Kind::Waits(Waits { waits })) = answer else { continue };
                    all.extend(waits.into_iter().take(MAX_WAITS).filter_map(|wait| {
                        Some(Waiting {
                            waiter: TxnId::try_from(&wait.waiter[..]).ok()?,
                            holder: TxnId::try_from(&wait.holder[..]).ok()?,
                            priority: wait.priority(),
                        })
                    }));
                }
            }
            for id in victims(&own, &all) {
                let txn = TxnKey { tenant, id };
                if self.suspects.contains(&txn) {
                    node.shard(tenant).break_waits(txn);
                } else {
                    suspects.insert(txn);
                }
            }
        }
        self.suspects = suspects;
    }
}

#[cfg(test)]
mod tests;
