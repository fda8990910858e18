//! Transaction records: how a transaction with more intents than fit into one command commits.
//!
//! A record exists from the moment the commit is durable until the last intent has become a version.
//! An intent without a record, after a restart, is of a transaction that did not commit.

use crate::engine::{Bounds, Reader, Space, WriteBatch};
use crate::error::{StorageError, StorageResult};
use crate::intent::{CommittedTxn, TxnId};
use crate::key::{TIMESTAMP_LEN, timestamp_bytes, timestamp_from};
use bytes::Bytes;
use kv_api::TenantId;
use kv_api::batch::IgnoredSequences;
use kv_api::key::TENANT_PREFIX_LEN;

const PREFIX: &[u8] = b"txn/";
const PREFIX_END: &[u8] = b"txn0";
const FORMAT: u8 = 1;

/// Where the record of a transaction lies: under its tenant's prefix, so that it belongs to the range its
/// intents belong to.
fn key(tenant: TenantId, id: &TxnId) -> Vec<u8> {
    [PREFIX, &tenant.prefix(), id].concat()
}

/// The records that belong to the user keys from `start` to before `end`.
pub(crate) fn span(start: &[u8], end: &[u8]) -> (Bytes, Bytes) {
    (Bytes::from([PREFIX, start].concat()), Bytes::from([PREFIX, end].concat()))
}

/// Adds the record of a commit to a batch.
pub fn put(batch: &mut WriteBatch, tenant: TenantId, txn: &CommittedTxn) {
    let mut value = vec![FORMAT];
    value.extend_from_slice(&timestamp_bytes(txn.timestamp));
    for range in &txn.ignored {
        value.extend_from_slice(&range.from.to_be_bytes());
        value.extend_from_slice(&range.to.to_be_bytes());
    }
    batch.put(Space::Meta, &key(tenant, &txn.id), &value);
}

/// Removes a record, once no intent of the transaction is left.
pub fn delete(batch: &mut WriteBatch, tenant: TenantId, id: &TxnId) {
    batch.delete(Space::Meta, &key(tenant, id));
}

/// All records, with the keys in [`Space::Meta`] under which they lie: also those of stores of version 1,
/// where no tenant's prefix stands before the id.
///
/// # Errors
/// I/O errors and damage.
pub fn all(reader: &(impl Reader + ?Sized)) -> StorageResult<Vec<(Bytes, CommittedTxn)>> {
    list(reader, PREFIX, PREFIX_END)
}

/// The records of tenants whose keys lie from `start` to before `end`.
///
/// # Errors
/// I/O errors and damage.
pub fn within(
    reader: &(impl Reader + ?Sized),
    start: &[u8],
    end: &[u8],
) -> StorageResult<Vec<(Bytes, CommittedTxn)>> {
    let (first, after) = span(start, end);
    list(reader, &first, &after)
}

fn list(
    reader: &(impl Reader + ?Sized),
    first: &[u8],
    after: &[u8],
) -> StorageResult<Vec<(Bytes, CommittedTxn)>> {
    let mut cursor = reader.cursor(Space::Meta, Bounds::new(first, after));
    cursor.seek_to_first();
    let mut records = Vec::new();
    while let Some((key, value)) = cursor.item() {
        records.push((Bytes::copy_from_slice(key), decode(key, value)?));
        cursor.next();
    }
    cursor.status()?;
    Ok(records)
}

fn decode(key: &[u8], value: &[u8]) -> StorageResult<CommittedTxn> {
    let damaged = || StorageError::corruption("a transaction record has an unknown format");
    let (prefix, id) = key.split_last_chunk::<16>().ok_or_else(damaged)?;
    if prefix.len() != PREFIX.len() && prefix.len() != PREFIX.len() + TENANT_PREFIX_LEN {
        return Err(damaged());
    }
    let id: TxnId = *id;
    let rest = value.strip_prefix(&[FORMAT]).ok_or_else(damaged)?;
    let (timestamp, mut rest) = rest.split_first_chunk::<TIMESTAMP_LEN>().ok_or_else(damaged)?;
    let mut ignored = Vec::new();
    while let Some((from, after)) = rest.split_first_chunk::<4>() {
        let (to, after) = after.split_first_chunk::<4>().ok_or_else(damaged)?;
        ignored.push(IgnoredSequences { from: u32::from_be_bytes(*from), to: u32::from_be_bytes(*to) });
        rest = after;
    }
    if rest.is_empty() {
        Ok(CommittedTxn { id, timestamp: timestamp_from(*timestamp), ignored })
    } else {
        Err(damaged())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, MemoryEngine};
    use kv_api::Timestamp;

    #[test]
    fn records_are_listed_until_deleted() {
        let engine = MemoryEngine::new();
        let record = |byte, ignored: &[(u32, u32)]| CommittedTxn {
            id: [byte; 16],
            timestamp: Timestamp::new(u64::from(byte), 3),
            ignored: ignored.iter().map(|(from, to)| IgnoredSequences { from: *from, to: *to }).collect(),
        };
        let (one, two) = (record(0, &[]), record(255, &[(1, 4), (9, 12)]));
        let mut batch = WriteBatch::new();
        let tenant = TenantId(7);
        put(&mut batch, tenant, &one);
        put(&mut batch, tenant, &two);
        engine.write(&batch, true).expect("write");
        let listed = || all(&engine).map(|all| all.into_iter().map(|(_, txn)| txn).collect::<Vec<_>>());
        assert_eq!(listed(), Ok(vec![one.clone(), two.clone()]));
        batch.clear(0);
        delete(&mut batch, tenant, &one.id);
        engine.write(&batch, true).expect("write");
        assert_eq!(listed(), Ok(vec![two]));
    }

    #[test]
    fn damage_is_found() {
        assert!(decode(b"txn/short", &[1; 13]).is_err());
        let key = key(TenantId(3), &[1; 16]);
        assert!(decode(&key, &[1; 13]).is_ok());
        assert!(decode(&key[1..], &[1; 13]).is_err());
        assert!(decode(&key, &[1; 12]).is_err());
        assert!(decode(&key, &[1; 15]).is_err());
        assert!(decode(&key, &[2; 13]).is_err());
    }
}
