//! One batch of a backfill: the entries of some rows.

use super::record::JobRecord;
use crate::ddl::rewrite::duplicate_key;
use crate::exec::kv_error;
use crate::table::TableCodec;
use crate::table::codec::{Entry, IndexCodec};
use bytes::Bytes;
use hashbrown::HashMap;
use kv_api::{LockStrength, Priority};
use kv_client::{Isolation, KvClient, ReadOptions, ScanOptions, Txn, TxnOptions};
use sql_types::{SqlError, SqlResult};

/// Bytes of rows after which a batch ends.
const BATCH_BYTES: u64 = 1 << 20;

/// How a batch is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Effort {
    /// Rows at most.
    pub rows: u64,
    /// Whether rows are locked when they are read, so that they cannot change before the commit.
    pub locks: bool,
}

/// What a batch did: the record as it is now, or that it is gone.
pub(super) type Written = Option<JobRecord>;

/// Writes the entries of the next rows that a job's record says are left.
///
/// # Errors
/// 40001 and 40P01 if it lost against others; 23505 if two rows have the same key; what computing an expression
/// of the index fails with; what the KV nodes answer.
pub(super) async fn write_batch(
    kv: &KvClient,
    codec: &TableCodec,
    index: &IndexCodec,
    job: &JobRecord,
    effort: Effort,
) -> SqlResult<Written> {
    let isolation = if effort.locks { Isolation::ReadCommitted } else { Isolation::Serializable };
    let txn = kv.begin(TxnOptions { isolation, priority: Priority::Low, ..TxnOptions::default() });
    let lock = |strength| if effort.locks { strength } else { LockStrength::None };
    let stored = txn.get(&job.key(), lock(LockStrength::Exclusive)).await.map_err(kv_error)?;
    let Some(stored) = stored else { return Ok(None) };
    let mut record = JobRecord::decode(&stored)?;
    let Some(rest) = record.rest()? else {
        return Err(SqlError::internal("a backfill that has not begun"));
    };
    if rest.start >= rest.end {
        return Ok(Some(record));
    }
    let read = ReadOptions::from(lock(LockStrength::Shared));
    let options =
        ScanOptions { limit: effort.rows, target_bytes: BATCH_BYTES, read, ..ScanOptions::default() };
    let page = txn.scan(&rest, options).await.map_err(kv_error)?;
    let (mut unique, mut others) = (Vec::new(), Vec::new());
    for (key, value) in &page.rows {
        let row = codec.decode_row(key, value)?;
        for entry in codec.index_entries(index, &row, key)? {
            if entry.unique { unique.push(entry) } else { others.push(entry) }
        }
    }
    if !unique.is_empty() {
        write_unique(&txn, codec, unique, lock(LockStrength::Exclusive)).await?;
    }
    for entry in others {
        txn.put(&entry.key, entry.value).map_err(kv_error)?;
        // Those of an inverted index are many more than rows.
        txn.flush_if_large().await.map_err(kv_error)?;
    }
    let start = page.resume.map_or_else(|| rest.end.clone(), |resume| resume.start);
    record.set_rest(&start, &rest.end);
    record.rows += page.rows.len() as u64;
    record.batches += 1;
    txn.put(&record.key(), record.encode()?).map_err(kv_error)?;
    txn.commit().await.map_err(kv_error)?;
    Ok(Some(record))
}

/// Writes entries whose keys only one row may have.
async fn write_unique(
    txn: &Txn,
    codec: &TableCodec,
    entries: Vec<Entry>,
    lock: LockStrength,
) -> SqlResult<()> {
    let mut own: HashMap<Bytes, Bytes> = HashMap::with_capacity(entries.len());
    let mut keys = Vec::with_capacity(entries.len());
    for entry in entries {
        if own.contains_key(&entry.key) {
            return Err(duplicate_key(codec, &entry.key));
        }
        keys.push(entry.key.clone());
        own.insert(entry.key, entry.value);
    }
    let found = txn.get_many(&keys, lock).await.map_err(kv_error)?;
    for (key, found) in keys.iter().zip(found) {
        let value = own.remove(key).unwrap_or_default();
        match found {
            None => txn.put(key, value).map_err(kv_error)?,
            // A writer was here before.
            Some(found) if found == value => {}
            Some(_) => return Err(duplicate_key(codec, key)),
        }
    }
    Ok(())
}
