//! Settling intents: of transactions too large to be settled in the command that ends them, and of
//! those that died with an earlier leaseholder.
//!
//! The intents of a committed transaction become versions at its commit timestamp, those of an aborted
//! one are removed; a few hundred at a time, each time under write latches, so that no writer evaluates
//! against half of it. The transaction record goes last.

use crate::command::{Command, Effects};
use crate::evaluate::settle_committed;
use crate::latch::Access;
use crate::lock_table::TxnKey;
use crate::node::Node;
use crate::pipeline::Standing;
use crate::shard::{TxnEntry, key_after};
use bytes::Bytes;
use kv_api::{Span, TenantId, Timestamp};
use replication::RangeId;
use std::sync::{Arc, Weak};
use std::time::Duration;
use storage::intent::{CommittedTxn, Intent};
use storage::{Bounds, Engine, Reader, Space, StorageError, StorageResult, WriteBatch, txn_record};
use tokio::sync::{mpsc, oneshot};

/// Most intents settled at a time.
const BATCH_LEN: usize = 512;
/// Most bytes of intents settled at a time, by which large values are bounded.
const BATCH_BYTES: usize = 1 << 20;

/// Pause before it is tried again, where the lease could not be used for the moment.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// A transaction whose intents are to be settled.
#[derive(Debug)]
pub struct ResolveJob {
    range: RangeId,
    txn: TxnKey,
    /// Absent for an aborted transaction.
    committed: Option<Timestamp>,
    spans: Vec<Span>,
}

impl ResolveJob {
    /// The intents of a transaction that committed.
    pub fn committed(range: RangeId, txn: TxnKey, timestamp: Timestamp, entry: &TxnEntry) -> Self {
        ResolveJob { range, txn, committed: Some(timestamp), spans: entry.intents.covering() }
    }

    /// The intents of a transaction that aborted.
    pub fn aborted(range: RangeId, txn: TxnKey, entry: &TxnEntry) -> Self {
        ResolveJob { range, txn, committed: None, spans: entry.intents.covering() }
    }
}

/// Settles transactions as they come, until the node is gone.
pub async fn run(node: Weak<Node>, mut jobs: mpsc::UnboundedReceiver<ResolveJob>) {
    while let Some(job) = jobs.recv().await {
        let Some(node) = node.upgrade() else { return };
        let Err(error) = settle(&node, &job).await else {
            node.resolved(job.txn);
            continue;
        };
        // Until it is settled it stays visible, or invisible, through the transaction's entry.
        if matches!(node.standing(job.range), Standing::Leaseholder(_)) {
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

async fn settle(node: &Arc<Node>, job: &ResolveJob) -> Result<(), String> {
    let lease = node.pipeline.lease(job.range).map_err(|error| error.to_string())?;
    let committed = job.committed.and_then(|timestamp| {
        let shard = node.shard(job.txn.tenant);
        shard
            .committed(job.txn.tenant)
            .into_iter()
            .find(|txn| txn.id == job.txn.id && txn.timestamp == timestamp)
    });
    if job.committed.is_some() && committed.is_none() {
        // It was of an earlier lease, and whoever got the next has settled it before anything else.
        return Ok(());
    }
    for span in &job.spans {
        let end = if span.is_point() { key_after(&span.start) } else { span.end.clone() };
        let mut start = span.start.clone();
        while let Some(page) =
            next_page(&*node.engine, &start, &end, job).map_err(|error| error.to_string())?
        {
            let latched = Span::new(page.first.clone(), key_after(&page.last));
            let latches = node.latch(job.txn.tenant, vec![(latched, Access::Write)]).await;
            let raw = settle_page(&*node.engine, &page.first, &page.last, job.txn.id, committed.as_ref())
                .map_err(|error| error.to_string())?;
            submit(node, job.range, lease, raw).await?;
            drop(latches);
            start = key_after(&page.last);
        }
    }
    if job.committed.is_some() {
        let mut raw = WriteBatch::new();
        txn_record::delete(&mut raw, TenantId(job.txn.tenant), &job.txn.id);
        submit(node, job.range, lease, raw).await?;
    }
    Ok(())
}

async fn submit(node: &Arc<Node>, range: RangeId, lease: u64, raw: WriteBatch) -> Result<(), String> {
    let _room = node.pipeline.reserve(raw.byte_len()).await.map_err(|error| error.to_string())?;
    let (sender, receiver) = oneshot::channel();
    let command = Command {
        range,
        effects: Effects { raw, ..Effects::default() },
        change: None,
        lease,
        ordered: false,
        before_visible: None,
        late: None,
        done: Box::new(move |result| {
            let _ = sender.send(result);
        }),
    };
    node.pipeline.submit(command).map_err(|error| error.to_string())?;
    match receiver.await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("{error:?}")),
        Err(_) => Err("the pipeline ended".to_owned()),
    }
}

struct Page {
    first: Bytes,
    last: Bytes,
}

/// The next keys with intents of the transaction, as many as are settled at a time.
fn next_page(engine: &dyn Engine, start: &[u8], end: &[u8], job: &ResolveJob) -> StorageResult<Option<Page>> {
    let mut cursor = engine.cursor(Space::Locks, Bounds::new(start, end));
    cursor.seek_to_first();
    let mut page: Option<Page> = None;
    let (mut count, mut bytes) = (0, 0);
    while let Some((key, value)) = cursor.item() {
        if Intent::decode_txn(value)? == job.txn.id {
            let key = Bytes::copy_from_slice(key);
            bytes += key.len() + value.len();
            count += 1;
            match &mut page {
                Some(page) => page.last = key,
                None => page = Some(Page { first: key.clone(), last: key }),
            }
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
    id: storage::intent::TxnId,
    committed: Option<&CommittedTxn>,
) -> StorageResult<WriteBatch> {
    let mut raw = WriteBatch::new();
    let end = key_after(last);
    let mut cursor = engine.cursor(Space::Locks, Bounds::new(first, &end));
    cursor.seek_to_first();
    while let Some((key, value)) = cursor.item() {
        if Intent::decode_txn(value)? == id {
            settle_one(engine, &Bytes::copy_from_slice(key), value, committed, &mut raw)?;
        }
        cursor.next();
    }
    cursor.status()?;
    Ok(raw)
}

fn settle_one(
    engine: &(impl Reader + ?Sized),
    key: &Bytes,
    intent: &[u8],
    committed: Option<&CommittedTxn>,
    raw: &mut WriteBatch,
) -> Result<(), StorageError> {
    match committed {
        Some(committed) => {
            let intent = Intent::decode(intent)?;
            let mut replaced = engine.get(Space::Data, key)?.map(|bytes| Bytes::copy_from_slice(&bytes));
            settle_committed(raw, key, &intent, committed, &mut replaced)
        }
        None => {
            raw.delete(Space::Locks, key);
            Ok(())
        }
    }
}

/// The engine writes that settle the next intents of transactions that died with their leaseholder: those
/// with a record become versions, the others are removed. When no intent is left, those that remove the
/// records. `None` when nothing is left. Nothing else may be under way in the span.
///
/// # Errors
/// I/O errors and damage.
pub fn settle_left(reader: &(impl Reader + ?Sized), span: &Span) -> StorageResult<Option<WriteBatch>> {
    settle_records(reader, &txn_record::within(reader, &span.start, &span.end)?, span)
}

/// The same for everything in a store of an earlier version, where records may lie elsewhere.
///
/// # Errors
/// I/O errors and damage.
pub fn settle_all(reader: &(impl Reader + ?Sized)) -> StorageResult<Option<WriteBatch>> {
    let all = Span::new(Bytes::new(), Bytes::from_static(&[0xff]));
    settle_records(reader, &txn_record::all(reader)?, &all)
}

fn settle_records(
    reader: &(impl Reader + ?Sized),
    records: &[(Bytes, CommittedTxn)],
    span: &Span,
) -> StorageResult<Option<WriteBatch>> {
    let mut raw = WriteBatch::new();
    let (mut versions, mut removed) = (0_u64, 0_u64);
    let mut cursor = reader.cursor(Space::Locks, Bounds::new(&span.start, &span.end));
    cursor.seek_to_first();
    while let Some((key, value)) = cursor.item() {
        let id = Intent::decode_txn(value)?;
        let committed = records.iter().map(|(_, record)| record).find(|record| record.id == id);
        if committed.is_some() {
            versions += 1
        } else {
            removed += 1
        }
        settle_one(reader, &Bytes::copy_from_slice(key), value, committed, &mut raw)?;
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
    for (key, _) in records {
        raw.delete(Space::Meta, key);
    }
    Ok((!records.is_empty()).then_some(raw))
}
