//! Settling intents: of transactions too large to be settled in the command that ends them, and of
//! those that died with an earlier leaseholder.
//!
//! The intents of a committed transaction become versions at its commit timestamp, those of an aborted
//! one are removed; a few thousand at a time, each time under write latches, so that no writer evaluates
//! against half of it. The transaction record goes last.

use crate::environment::Environment;
use crate::faults::Bug;
use crate::latch::Access;
use crate::node::Node;
use crate::pipeline::Standing;
use crate::shard::{Decided, PartKey, key_after};
use bytes::Bytes;
use kv_api::{KvError, Span};
use std::sync::{Arc, Weak};
use std::time::Duration;
use storage::intent::{CommittedTxn, Intent, TxnId};
use storage::mvcc::put_version;
use storage::txn_record::{self, RecordStatus, TxnRecord};
use storage::{Bounds, Engine, FirstKey, Reader, Space, StorageError, StorageResult, WriteBatch};
use tokio::sync::mpsc;

/// Most intents settled at a time.
const BATCH_LEN: usize = 4096;
/// Most bytes of intents settled at a time, by which large values are bounded.
const BATCH_BYTES: usize = 1 << 20;

/// Pause before it is tried again, where the lease could not be used for the moment.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// A part of a transaction whose intents are to be settled.
#[derive(Debug)]
pub struct ResolveJob {
    /// Which.
    pub part: PartKey,
    /// Absent for an aborted transaction.
    pub committed: Option<CommittedTxn>,
    /// Where its intents lie.
    pub spans: Vec<Span>,
    /// What becomes of its record, last of all.
    record: RecordFate,
}

/// What becomes of the record of a part that is settled.
#[derive(Debug, PartialEq)]
enum RecordFate {
    Stays,
    Goes,
    /// It says where the transaction committed, and nothing else any more.
    Shrinks(TxnRecord),
}

impl ResolveJob {
    /// The intents of a transaction that committed within its range.
    pub fn committed(part: PartKey, committed: CommittedTxn, spans: Vec<Span>) -> Self {
        ResolveJob { part, committed: Some(committed), spans, record: RecordFate::Goes }
    }

    /// The intents of a prepared part that committed, as is on record at the anchor. With `keeps`, its record stays
    /// and says so.
    pub fn decided(part: PartKey, decided: &Decided, keeps: bool) -> Self {
        let ignored = decided.record.ignored.clone();
        let committed = CommittedTxn { id: part.txn.id, timestamp: decided.committed, ignored };
        let mut job = Self::committed(part, committed, decided.record.spans.clone());
        if keeps {
            let record = TxnRecord {
                status: RecordStatus::Committed,
                timestamp: decided.committed,
                staged: None,
                spans: Vec::new(),
                ignored: Vec::new(),
                ..decided.record.clone()
            };
            job.record = RecordFate::Shrinks(record);
        }
        job
    }

    /// The intents of a part that was aborted, and its record if it has one.
    pub fn aborted(part: PartKey, spans: Vec<Span>, record: bool) -> Self {
        let record = if record { RecordFate::Goes } else { RecordFate::Stays };
        ResolveJob { part, committed: None, spans, record }
    }

    /// The same, but the record stays: it says what must not be forgotten.
    pub fn keeping_record(self) -> Self {
        ResolveJob { record: RecordFate::Stays, ..self }
    }

    /// Adds to a batch what becomes of the record, which lies under the first key of its range.
    pub fn end_record(&self, range_start: &[u8], raw: &mut WriteBatch) {
        match &self.record {
            RecordFate::Stays => {}
            RecordFate::Goes => txn_record::delete(raw, range_start, &self.part.txn.id),
            RecordFate::Shrinks(record) => txn_record::put(raw, range_start, record),
        }
    }
}

/// Settles transactions as they come, until the node is gone.
pub async fn run(node: Weak<Node>, mut jobs: mpsc::UnboundedReceiver<ResolveJob>) {
    while let Some(job) = jobs.recv().await {
        let Some(node) = node.upgrade() else { return };
        let error = match settle(&node, &job).await {
            Ok(true) => {
                node.resolved(job.part);
                continue;
            }
            Ok(false) => continue,
            Err(error) => error,
        };
        // Until it is settled it stays visible, or invisible, through the transaction's entry.
        if matches!(node.standing(job.part.range), Standing::Leaseholder(_)) {
            tracing::debug!("intents are settled later: {error}");
            let node = Arc::downgrade(&node);
            tokio::spawn(async move {
                tokio::time::sleep(RETRY_AFTER).await;
                if let Some(node) = node.upgrade() {
                    node.resolve_later(job);
                }
            });
        } else {
            tracing::debug!("intents are left to the next leaseholder: {error}");
        }
    }
}

/// Settles a transaction, however many intents it has. False if nothing is known of it under the present lease: it was
/// of an earlier one, and what became of it since is for whoever held the lease between to say.
///
/// # Errors
/// What keeps it from being settled to the end.
pub(crate) async fn settle(node: &Arc<Node>, job: &ResolveJob) -> Result<bool, KvError> {
    let PartKey { range, txn } = job.part;
    let lease = node.pipeline.lease(range)?;
    let is_known = |committed: &CommittedTxn| node.shard(txn.tenant).committed(range).contains(committed);
    if job.committed.as_ref().is_some_and(|committed| !is_known(committed)) {
        return Ok(false);
    }
    for span in &job.spans {
        let end = if span.is_point() { key_after(&span.start) } else { span.end.clone() };
        let mut start = span.start.clone();
        while let Some(page) = next_page(&*node.engine, &start, &end, txn.id)? {
            let latched = Span::new(page.first.clone(), key_after(&page.last));
            let latches = Arc::new(node.latch(txn.tenant, vec![(latched, Access::Write)]).await);
            let raw = settle_page(&*node.engine, &page.first, &page.last, txn.id, job.committed.as_ref())?;
            node.submit_raw(range, lease, raw, Some(&latches)).await?;
            drop(latches);
            start = key_after(&page.last);
        }
    }
    if job.record != RecordFate::Stays {
        let span = node.pipeline.span(range).ok_or_else(|| KvError::range_not_found(range))?;
        let mut raw = WriteBatch::new();
        job.end_record(&span.start, &mut raw);
        node.submit_raw(range, lease, raw, None).await?;
    }
    Ok(true)
}

struct Page {
    first: Bytes,
    last: Vec<u8>,
}

/// The next keys with intents of the transaction, as many as are settled at a time.
fn next_page(engine: &dyn Engine, start: &[u8], end: &[u8], id: TxnId) -> StorageResult<Option<Page>> {
    let mut cursor = engine.cursor(Space::Locks, Bounds::new(start, end));
    cursor.seek_to_first();
    let mut page: Option<Page> = None;
    let (mut count, mut bytes) = (0, 0);
    while let Some((key, value)) = cursor.item() {
        if Intent::decode_txn(value)? == id {
            bytes += key.len() + value.len();
            count += 1;
            let page =
                page.get_or_insert_with(|| Page { first: Bytes::copy_from_slice(key), last: Vec::new() });
            page.last.clear();
            page.last.extend_from_slice(key);
        }
        if count >= BATCH_LEN || bytes >= BATCH_BYTES {
            break;
        }
        cursor.next();
    }
    cursor.status()?;
    Ok(page)
}

/// The engine writes that settle the intents of `id` from `first` to `last`, under latches.
fn settle_page(
    engine: &dyn Engine,
    first: &[u8],
    last: &[u8],
    id: TxnId,
    committed: Option<&CommittedTxn>,
) -> StorageResult<WriteBatch> {
    let mut raw = WriteBatch::new();
    let end = key_after(last);
    // New rows replace nothing; of many it is found out at once.
    let bounds = Bounds::new(first, &end);
    let replaces = committed.is_some() && engine.first_key(Space::Data, bounds)? != FirstKey::Nothing;
    let mut cursor = engine.cursor(Space::Locks, bounds);
    cursor.seek_to_first();
    while let Some((key, value)) = cursor.item() {
        if Intent::decode_txn(value)? == id {
            settle_one(engine, key, value, (committed, replaces), &mut raw)?;
        }
        cursor.next();
    }
    cursor.status()?;
    Ok(raw)
}

/// Settles an intent, which if the transaction committed perhaps `replaces` something.
fn settle_one(
    engine: &(impl Reader + ?Sized),
    key: &[u8],
    intent: &[u8],
    (committed, replaces): (Option<&CommittedTxn>, bool),
    raw: &mut WriteBatch,
) -> Result<(), StorageError> {
    raw.delete(Space::Locks, key);
    let Some(committed) = committed else { return Ok(()) };
    let Some(value) = Intent::decode_last_write(intent, &committed.ignored)? else { return Ok(()) };
    let replaced = if replaces { engine.get(Space::Data, key)? } else { None };
    put_version(raw, key, committed.timestamp, value, replaced.as_deref())
}

/// The engine writes that settle the next intents of transactions that died with their leaseholder: those
/// of committed transactions become versions, those of prepared ones stay, and the others are removed. When no
/// such intent is left, those that remove the records of transactions within the range. `None` when nothing is
/// left. Nothing else may be under way in the span.
///
/// # Errors
/// I/O errors and damage.
pub fn settle_left(
    reader: &(impl Reader + ?Sized),
    span: &Span,
    environment: &Environment,
) -> StorageResult<Option<WriteBatch>> {
    let mut records = txn_record::within(reader, &span.start, &span.end)?;
    if environment.planted(Bug::PreparedForgotten) {
        records.retain(|(_, record)| record.status != RecordStatus::Prepared);
    }
    settle_records(reader, &records, span)
}

/// The same for everything in a store of an earlier version, where records may lie elsewhere.
///
/// # Errors
/// I/O errors and damage.
pub fn settle_all(reader: &(impl Reader + ?Sized)) -> StorageResult<Option<WriteBatch>> {
    let all = Span::new(Bytes::new(), Bytes::from_static(&[0xff]));
    settle_records(reader, &txn_record::all_old(reader)?, &all)
}

fn settle_records(
    reader: &(impl Reader + ?Sized),
    records: &[(Bytes, TxnRecord)],
    span: &Span,
) -> StorageResult<Option<WriteBatch>> {
    let mut raw = WriteBatch::new();
    let (mut versions, mut removed) = (0_u64, 0_u64);
    let mut cursor = reader.cursor(Space::Locks, Bounds::new(&span.start, &span.end));
    cursor.seek_to_first();
    while let Some((key, value)) = cursor.item() {
        let id = Intent::decode_txn(value)?;
        let record = records.iter().map(|(_, record)| record).find(|record| record.id == id);
        if record.is_some_and(|record| record.status == RecordStatus::Prepared) {
            cursor.next();
            continue;
        }
        let committed = record.and_then(TxnRecord::as_committed);
        if committed.is_some() {
            versions += 1
        } else {
            removed += 1
        }
        settle_one(reader, key, value, (committed.as_ref(), true), &mut raw)?;
        if raw.byte_len() > BATCH_BYTES {
            break;
        }
        cursor.next();
    }
    cursor.status()?;
    if versions + removed > 0 {
        tracing::info!(versions, removed, "settling intents of earlier leaseholders");
        return Ok(Some(raw));
    }
    // The record of a transaction over several ranges says more than what becomes of its intents here.
    let finished = |record: &TxnRecord| record.status == RecordStatus::Committed && record.anchor.is_empty();
    for (key, _) in records.iter().filter(|(_, record)| finished(record)) {
        raw.delete(Space::Meta, key);
    }
    Ok((!raw.is_empty()).then_some(raw))
}
