//! Transaction records: what a range durably knows of a transaction besides its intents.
//!
//! A record exists
//! * from the moment a commit within the range is durable until the last intent has become a version, where
//!   there are too many intents for one command;
//! * from the moment the range's part of a transaction over several ranges is prepared until it is settled; the one at
//!   the anchor, which decides for all, until all are;
//! * for a while after a transaction was aborted that could otherwise still be prepared here
//!   (`cockroachdb-2020`, section 3.2).
//!
//! An intent without a record, under a new lease, is of a transaction that did not commit.
//!
//! A record lies under the first key of its range, encoded so that it sorts with the keys of the range.

use crate::engine::{Bounds, Op, Reader, Space, WriteBatch};
use crate::error::{StorageError, StorageResult};
use crate::intent::{CommittedTxn, TxnId};
use crate::key::{TIMESTAMP_LEN, history_prefix, timestamp_from};
use bytes::Bytes;
use kv_api::batch::IgnoredSequences;
use kv_api::key::TENANT_PREFIX_LEN;
use kv_api::{Span, Timestamp};
use prost::Message;

const PREFIX: &[u8] = b"txr/";
/// Where stores of versions 1 to 3 have their records, which are all of committed transactions: behind it the
/// tenant's prefix, as it is, and the id.
const OLD_PREFIX: &[u8] = b"txn/";
const OLD_PREFIX_END: &[u8] = b"txn0";
/// First byte of a record.
const FORMAT: u8 = 2;
const OLD_FORMAT: u8 = 1;

/// Where a transaction stands, as far as its range knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum RecordStatus {
    /// It can commit at the record's timestamp or above it; whether it does is decided elsewhere, or, at the
    /// anchor, by whether it is prepared wherever it is to be.
    Prepared = 0,
    /// It committed at the record's timestamp.
    Committed = 1,
    /// It did not commit and never will.
    Aborted = 2,
}

/// A record as it is stored, without the id, which is part of its key.
#[derive(Clone, PartialEq, prost::Message)]
struct Stored {
    #[prost(enumeration = "RecordStatus", tag = "1")]
    status: i32,
    #[prost(message, required, tag = "2")]
    timestamp: Timestamp,
    #[prost(message, repeated, tag = "3")]
    ignored: Vec<IgnoredSequences>,
    #[prost(bytes = "bytes", tag = "4")]
    anchor: Bytes,
    #[prost(message, optional, tag = "5")]
    staged_at: Option<Timestamp>,
    #[prost(bytes = "bytes", repeated, tag = "6")]
    staged: Vec<Bytes>,
    #[prost(message, repeated, tag = "7")]
    spans: Vec<Span>,
}

/// What a range durably knows of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct TxnRecord {
    /// Which.
    pub id: TxnId,
    /// Where it stands.
    pub status: RecordStatus,
    /// See [`RecordStatus`]; of an aborted one, when that was written.
    pub timestamp: Timestamp,
    /// Its undone sequence numbers.
    pub ignored: Vec<IgnoredSequences>,
    /// The key whose range decides; empty for a transaction within this range.
    pub anchor: Bytes,
    /// At the anchor: where it commits if all these keys, in whichever range, are prepared at or below that.
    pub staged: Option<(Timestamp, Vec<Bytes>)>,
    /// Where its intents of this range lie.
    pub spans: Vec<Span>,
}

impl TxnRecord {
    /// The record of a transaction that committed within its range.
    pub fn committed(txn: CommittedTxn) -> Self {
        TxnRecord {
            id: txn.id,
            status: RecordStatus::Committed,
            timestamp: txn.timestamp,
            ignored: txn.ignored,
            anchor: Bytes::new(),
            staged: None,
            spans: Vec::new(),
        }
    }

    /// What readers of its intents need to know, if it is committed.
    pub fn as_committed(&self) -> Option<CommittedTxn> {
        let committed =
            || CommittedTxn { id: self.id, timestamp: self.timestamp, ignored: self.ignored.clone() };
        (self.status == RecordStatus::Committed).then(committed)
    }
}

/// Where the record of a transaction lies in a range with this first key.
fn key(range_start: &[u8], id: &TxnId) -> Vec<u8> {
    [PREFIX, &history_prefix(range_start), id].concat()
}

/// The records that belong to the user keys from `start` to before `end`: where they lie, and where stores of
/// earlier versions have theirs.
pub(crate) fn spans(start: &[u8], end: &[u8]) -> [(Bytes, Bytes); 2] {
    let within = |prefix: &[u8], key: &[u8]| Bytes::from([prefix, key].concat());
    [
        (within(PREFIX, &history_prefix(start)), within(PREFIX, &history_prefix(end))),
        (within(OLD_PREFIX, start), within(OLD_PREFIX, end)),
    ]
}

/// Adds a record to a batch, for the range with this first key.
pub fn put(batch: &mut WriteBatch, range_start: &[u8], record: &TxnRecord) {
    let (staged_at, staged) = record.staged.clone().unzip();
    let stored = Stored {
        status: record.status as i32,
        timestamp: record.timestamp,
        ignored: record.ignored.clone(),
        anchor: record.anchor.clone(),
        staged_at,
        staged: staged.unwrap_or_default(),
        spans: record.spans.clone(),
    };
    let mut value = vec![FORMAT];
    // A vector has room for all of it.
    let _ = stored.encode(&mut value);
    batch.put(Space::Meta, &key(range_start, &record.id), &value);
}

/// Removes a record.
pub fn delete(batch: &mut WriteBatch, range_start: &[u8], id: &TxnId) {
    batch.delete(Space::Meta, &key(range_start, id));
}

/// The record of a transaction in the range with this first key.
///
/// # Errors
/// I/O errors and damage.
pub fn get(
    reader: &(impl Reader + ?Sized),
    range_start: &[u8],
    id: &TxnId,
) -> StorageResult<Option<TxnRecord>> {
    let key = key(range_start, id);
    reader.get(Space::Meta, &key)?.map(|value| decode(&key, &value)).transpose()
}

/// All records of a store of an earlier version, with the keys in [`Space::Meta`] under which they lie.
///
/// # Errors
/// I/O errors and damage.
pub fn all_old(reader: &(impl Reader + ?Sized)) -> StorageResult<Vec<(Bytes, TxnRecord)>> {
    let mut records = Vec::new();
    list(reader, OLD_PREFIX, OLD_PREFIX_END, &mut records)?;
    Ok(records)
}

/// The records of ranges whose first keys lie from `start` to before `end`, with the keys in [`Space::Meta`]
/// under which they lie.
///
/// # Errors
/// I/O errors and damage.
pub fn within(
    reader: &(impl Reader + ?Sized),
    start: &[u8],
    end: &[u8],
) -> StorageResult<Vec<(Bytes, TxnRecord)>> {
    let mut records = Vec::new();
    for (first, after) in spans(start, end) {
        list(reader, &first, &after, &mut records)?;
    }
    Ok(records)
}

/// Divides what a range holds, given as puts, into records and all else.
///
/// # Errors
/// Damage.
pub fn separate(contents: &WriteBatch) -> StorageResult<(WriteBatch, Vec<TxnRecord>)> {
    let (mut rest, mut records) = (WriteBatch::new(), Vec::new());
    for op in contents.iter() {
        match op {
            Op::Put { space: Space::Meta, key, value } => records.push(decode(key, value)?),
            Op::Put { space, key, value } => rest.put(space, key, value),
            Op::Delete { .. } | Op::DeleteRange { .. } => {
                return Err(StorageError::corruption(
                    "what a range holds is given as something else than puts",
                ));
            }
        }
    }
    Ok((rest, records))
}

fn list(
    reader: &(impl Reader + ?Sized),
    first: &[u8],
    after: &[u8],
    records: &mut Vec<(Bytes, TxnRecord)>,
) -> StorageResult<()> {
    let mut cursor = reader.cursor(Space::Meta, Bounds::new(first, after));
    cursor.seek_to_first();
    while let Some((key, value)) = cursor.item() {
        records.push((Bytes::copy_from_slice(key), decode(key, value)?));
        cursor.next();
    }
    cursor.status()
}

fn damaged() -> StorageError {
    StorageError::corruption("a transaction record has an unknown format")
}

fn decode(key: &[u8], value: &[u8]) -> StorageResult<TxnRecord> {
    let (prefix, id) = key.split_last_chunk::<16>().ok_or_else(damaged)?;
    match value.split_first() {
        Some((&FORMAT, rest)) if prefix.starts_with(PREFIX) => {
            let stored = Stored::decode(rest).map_err(|_| damaged())?;
            // Every record has one; no version is ever written at the smallest.
            if stored.timestamp == Timestamp::MIN {
                return Err(damaged());
            }
            Ok(TxnRecord {
                id: *id,
                status: RecordStatus::try_from(stored.status).map_err(|_| damaged())?,
                timestamp: stored.timestamp,
                ignored: stored.ignored,
                anchor: stored.anchor,
                staged: stored.staged_at.map(|at| (at, stored.staged)),
                spans: stored.spans,
            })
        }
        Some((&OLD_FORMAT, rest)) if prefix.starts_with(OLD_PREFIX) => decode_old(prefix, *id, rest),
        _ => Err(damaged()),
    }
}

fn decode_old(prefix: &[u8], id: TxnId, rest: &[u8]) -> StorageResult<TxnRecord> {
    if prefix.len() != OLD_PREFIX.len() && prefix.len() != OLD_PREFIX.len() + TENANT_PREFIX_LEN {
        return Err(damaged());
    }
    let (timestamp, mut rest) = rest.split_first_chunk::<TIMESTAMP_LEN>().ok_or_else(damaged)?;
    let mut ignored = Vec::new();
    while let Some((from, after)) = rest.split_first_chunk::<4>() {
        let (to, after) = after.split_first_chunk::<4>().ok_or_else(damaged)?;
        ignored.push(IgnoredSequences { from: u32::from_be_bytes(*from), to: u32::from_be_bytes(*to) });
        rest = after;
    }
    let txn = CommittedTxn { id, timestamp: timestamp_from(*timestamp), ignored };
    if rest.is_empty() { Ok(TxnRecord::committed(txn)) } else { Err(damaged()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::timestamp_bytes;
    use crate::{Engine, MemoryEngine};
    use kv_api::TenantId;

    fn record(byte: u8, ignored: &[(u32, u32)]) -> TxnRecord {
        TxnRecord::committed(CommittedTxn {
            id: [byte; 16],
            timestamp: Timestamp::new(u64::from(byte), 3),
            ignored: ignored.iter().map(|(from, to)| IgnoredSequences { from: *from, to: *to }).collect(),
        })
    }

    #[test]
    fn records_are_listed_until_deleted() {
        let engine = MemoryEngine::new();
        let start = TenantId(7).span().start;
        let staged = Some((Timestamp::new(9, 9), vec![Bytes::from_static(b"k"), Bytes::from_static(b"l")]));
        let one = record(0, &[]);
        let two = TxnRecord {
            status: RecordStatus::Prepared,
            anchor: Bytes::from_static(b"k"),
            staged,
            spans: vec![Span::point(Bytes::from_static(b"k"))],
            ..record(255, &[(1, 4), (9, 12)])
        };
        let mut batch = WriteBatch::new();
        put(&mut batch, &start, &one);
        put(&mut batch, &start, &two);
        engine.write(&batch, true).expect("write");
        let span = TenantId(7).span();
        let listed = |span: &Span| {
            let found = within(&engine, &span.start, &span.end).expect("list");
            found.into_iter().map(|(_, record)| record).collect::<Vec<_>>()
        };
        assert_eq!(listed(&span), [one.clone(), two.clone()]);
        assert_eq!(get(&engine, &start, &two.id), Ok(Some(two.clone())));
        assert!(listed(&TenantId(6).span()).is_empty() && listed(&TenantId(8).span()).is_empty());
        batch.clear(0);
        delete(&mut batch, &start, &one.id);
        engine.write(&batch, true).expect("write");
        assert_eq!(listed(&span), [two]);
        assert_eq!(get(&engine, &start, &one.id), Ok(None));
    }

    #[test]
    fn records_sort_with_their_range_however_short_that_is() {
        let engine = MemoryEngine::new();
        let mut batch = WriteBatch::new();
        for start in [&b"a"[..], b"a\0", b"a\0\0", b"a\xff"] {
            put(&mut batch, start, &record(0xff, &[]));
        }
        engine.write(&batch, true).expect("write");
        for (start, end) in
            [(&b"a"[..], &b"a\0"[..]), (b"a\0", b"a\0\0"), (b"a\0\0", b"a\xff"), (b"a\xff", b"b")]
        {
            assert_eq!(within(&engine, start, end).expect("list").len(), 1, "{start:?}");
        }
    }

    #[test]
    fn records_of_earlier_versions_are_read() {
        let engine = MemoryEngine::new();
        let mut batch = WriteBatch::new();
        let id = [3; 16];
        let value =
            [&[OLD_FORMAT][..], &timestamp_bytes(Timestamp::new(3, 3)), &[0, 0, 0, 1, 0, 0, 0, 4]].concat();
        batch.put(Space::Meta, &[OLD_PREFIX, &TenantId(7).prefix(), &id].concat(), &value);
        batch.put(Space::Meta, &[OLD_PREFIX, &id[..]].concat(), &value);
        engine.write(&batch, true).expect("write");
        let old = record(3, &[(1, 4)]);
        let found: Vec<_> = all_old(&engine).expect("list").into_iter().map(|(_, record)| record).collect();
        assert_eq!(found, [old.clone(), old.clone()]);
        let span = TenantId(7).span();
        assert_eq!(within(&engine, &span.start, &span.end).expect("list").len(), 1);
    }

    #[test]
    fn damage_is_found() {
        let old = [OLD_PREFIX, &TenantId(3).prefix(), &[1; 16]].concat();
        assert!(decode(b"txn/short", &[1; 13]).is_err());
        assert!(decode(&old, &[1; 13]).is_ok());
        assert!(decode(&old[1..], &[1; 13]).is_err());
        assert!(decode(&old, &[1; 12]).is_err());
        assert!(decode(&old, &[1; 15]).is_err());
        assert!(decode(&old, &[2; 13]).is_err());
        let new = key(b"k", &[1; 16]);
        assert!(decode(&new, &[2]).is_err());
        assert!(decode(&new, &[2, 0xff, 0xff]).is_err());
        assert!(decode(&new, &[]).is_err());
    }
}
