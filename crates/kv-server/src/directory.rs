//! The range directory: which range holds which keys, and on which nodes it is.
//!
//! The directory is the second of two levels. Every node knows, or is told by any other, who has replicas of
//! the root range, which holds the cluster's own keys; there lies one record per range, under the range's
//! first key (`cockroachdb-2020`, section 2.1 has the same two levels). Records do not overlap. What they say may
//! be a moment old: a range's leaseholder reports after the fact that it was split, and where its replicas are.
//! Until then a record may claim keys that were split off; the nodes it names know better.
//!
//! | key, after [`CLUSTER_REGION`] | value |
//! |---|---|
//! | `range/`, first key of the range | [`RangeRecord`] |
//! | `gone/`, number of the range | [`GoneRecord`]: replicas that are still to be removed |
//! | `last-range` | the last number given to a range, eight bytes, big-endian |

use bytes::Bytes;
use kv_api::TenantId;
use kv_api::batch::{RangeConfig, RangeInfo, ReplicaInfo};
use kv_api::key::{CLUSTER_REGION, prefix_end};
use prost::Message;
use replication::{NodeId, RangeDescriptor, RangeId};
use storage::key::decode_data_value;
use storage::{Bounds, Reader, Space, StorageError, StorageResult};

/// A range, in the directory.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RangeRecord {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub range_id: RangeId,
    /// First key.
    #[prost(bytes = "bytes", tag = "2")]
    pub start: Bytes,
    /// First key after it.
    #[prost(bytes = "bytes", tag = "3")]
    pub end: Bytes,
    /// That of its descriptor.
    #[prost(uint64, tag = "4")]
    pub generation: u64,
    /// Who votes.
    #[prost(uint64, repeated, tag = "5")]
    pub voters: Vec<NodeId>,
    /// Who listens.
    #[prost(uint64, repeated, tag = "6")]
    pub learners: Vec<NodeId>,
    /// Who held the lease when this was reported, or should try first.
    #[prost(uint64, tag = "7")]
    pub leaseholder: NodeId,
    /// The entry of the range's log as of which this was reported: a report with a smaller one is older.
    #[prost(uint64, tag = "8")]
    pub index: u64,
    /// How it is kept: see [`crate::span_config`].
    #[prost(bytes = "bytes", tag = "9")]
    pub config: Bytes,
    /// That of its descriptor.
    #[prost(uint64, tag = "10")]
    pub origin: RangeId,
    /// That of its descriptor.
    #[prost(uint64, tag = "11")]
    pub merges: u64,
}

/// Replicas of a range that is no more.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GoneRecord {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub range_id: RangeId,
    /// Who may have one.
    #[prost(uint64, repeated, tag = "2")]
    pub members: Vec<NodeId>,
}

impl RangeRecord {
    /// What is known of a range by a replica of it that has applied entry `index` of its log.
    pub fn of(
        descriptor: RangeDescriptor,
        members: replication::message::Members,
        leaseholder: NodeId,
        index: u64,
    ) -> Self {
        RangeRecord {
            range_id: descriptor.range_id,
            start: descriptor.start,
            end: descriptor.end,
            generation: descriptor.generation,
            voters: members.voters,
            learners: members.learners,
            leaseholder,
            index,
            config: descriptor.config,
            origin: descriptor.origin,
            merges: descriptor.merges,
        }
    }

    /// See [`RangeDescriptor::family`].
    pub fn family(&self) -> RangeId {
        if self.origin == 0 { self.range_id } else { self.origin }
    }

    /// As clients see it; `address` says where nodes are.
    pub fn info(self, address: impl Fn(NodeId) -> Option<String>) -> RangeInfo {
        let replica =
            |node_id: NodeId| ReplicaInfo { node_id, address: address(node_id).unwrap_or_default() };
        let start = self.start;
        RangeInfo {
            range_id: self.range_id,
            start: start.clone(),
            end: self.end,
            generation: self.generation,
            replicas: self.voters.into_iter().chain(self.learners).map(replica).collect(),
            leaseholder: self.leaseholder,
            config: Some(shown_config(&self.config, &start)),
        }
    }
}

/// As clients see how a range is kept: with the spans of the tenant, if it is the first one.
fn shown_config(config: &[u8], start: &[u8]) -> RangeConfig {
    let spans = crate::span_config::decode(config).spans;
    RangeConfig { spans, ..crate::span_config::kept(config, start) }
}

/// The descriptor of a tenant's range.
pub fn tenant_descriptor(range_id: RangeId, tenant: TenantId) -> RangeDescriptor {
    let span = tenant.span();
    RangeDescriptor {
        range_id,
        start: span.start,
        end: span.end,
        generation: 1,
        ..RangeDescriptor::default()
    }
}

fn prefixed(name: &[u8], rest: &[u8]) -> Bytes {
    Bytes::from([&[CLUSTER_REGION], name, rest].concat())
}

/// Where the record of the range that begins with a key lies.
pub fn record_key(start: &[u8]) -> Bytes {
    prefixed(b"range/", start)
}

/// Where the record of a range that is no more lies.
pub fn gone_key(range_id: RangeId) -> Bytes {
    prefixed(b"gone/", &range_id.to_be_bytes())
}

/// Where the last number given out lies.
pub fn counter_key() -> Bytes {
    prefixed(b"last-range", &[])
}

/// The last number given to a range.
///
/// # Errors
/// I/O errors and damage.
pub fn last_range(reader: &(impl Reader + ?Sized)) -> StorageResult<RangeId> {
    let Some(stored) = reader.get(Space::Data, &counter_key())? else { return Ok(0) };
    let value = decode_data_value(&stored)?.value.unwrap_or_default();
    let bytes = value.first_chunk::<8>().ok_or_else(|| damaged("the last number of a range"))?;
    Ok(u64::from_be_bytes(*bytes))
}

fn damaged(what: &str) -> StorageError {
    StorageError::corruption(format!("{what} is unreadable"))
}

fn decode<M: Message + Default>(stored: &[u8]) -> StorageResult<Option<M>> {
    let value = decode_data_value(stored)?.value;
    value.map(|value| M::decode(value).map_err(|_| damaged("a record of the range directory"))).transpose()
}

/// The record of the range that holds a key, as this node's replica of the root range has it.
///
/// # Errors
/// I/O errors and damage.
pub fn lookup(reader: &(impl Reader + ?Sized), key: &[u8]) -> StorageResult<Option<RangeRecord>> {
    let found = before(reader, key)?;
    Ok(found.filter(|record| key >= &record.start[..] && key < &record.end[..]))
}

/// The last record of a range that begins at or before a key, whether or not it reaches so far.
///
/// # Errors
/// I/O errors and damage.
pub fn before(reader: &(impl Reader + ?Sized), key: &[u8]) -> StorageResult<Option<RangeRecord>> {
    let first = record_key(&[]);
    let mut cursor = reader.cursor(Space::Data, Bounds { lower: &first, upper: None });
    cursor.seek_for_prev(&record_key(key));
    while let Some((_, stored)) = cursor.item() {
        if let Some(record) = decode(stored)? {
            return Ok(Some(record));
        }
        cursor.prev();
    }
    cursor.status()?;
    Ok(None)
}

/// The records of the ranges that begin after a key, in the order of their keys, at most `limit`.
///
/// # Errors
/// I/O errors and damage.
pub fn list(reader: &(impl Reader + ?Sized), after: &[u8], limit: usize) -> StorageResult<Vec<RangeRecord>> {
    scan(reader, &record_key(&[]), &following(&record_key(after)), limit)
}

/// The records of the ranges that begin in a tenant, in the order of their keys.
///
/// # Errors
/// I/O errors and damage.
pub fn of_tenant(reader: &(impl Reader + ?Sized), tenant: TenantId) -> StorageResult<Vec<RangeRecord>> {
    let first = record_key(&tenant.span().start);
    scan(reader, &first, &first, usize::MAX)
}

/// The records of ranges that are no more, after one in the order of their numbers, at most `limit`.
///
/// # Errors
/// I/O errors and damage.
pub fn gone(reader: &(impl Reader + ?Sized), after: RangeId, limit: usize) -> StorageResult<Vec<GoneRecord>> {
    scan(reader, &prefixed(b"gone/", &[]), &following(&gone_key(after)), limit)
}

/// Who may still have a replica of a range that is no more.
///
/// # Errors
/// I/O errors and damage.
pub fn gone_members(reader: &(impl Reader + ?Sized), range_id: RangeId) -> StorageResult<Vec<NodeId>> {
    let Some(stored) = reader.get(Space::Data, &gone_key(range_id))? else { return Ok(Vec::new()) };
    Ok(decode::<GoneRecord>(&stored)?.map_or_else(Vec::new, |record| record.members))
}

/// The first key after another.
fn following(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// Live records under `prefix` from the key `from` on.
fn scan<M: Message + Default>(
    reader: &(impl Reader + ?Sized),
    prefix: &[u8],
    from: &[u8],
    limit: usize,
) -> StorageResult<Vec<M>> {
    let end = prefix_end(prefix).unwrap_or_default();
    let mut cursor = reader.cursor(Space::Data, Bounds::new(prefix, &end));
    cursor.seek(from);
    let mut records = Vec::new();
    while let Some((_, stored)) = cursor.item()
        && records.len() < limit
    {
        records.extend(decode::<M>(stored)?);
        cursor.next();
    }
    cursor.status()?;
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv_api::Timestamp;
    use storage::{Engine, MemoryEngine, WriteBatch, mvcc};

    fn put(engine: &MemoryEngine, key: &Bytes, value: Option<Vec<u8>>) {
        let old = engine.get(Space::Data, key).expect("get").map(|value| value.to_vec());
        let mut batch = WriteBatch::new();
        let at = Timestamp::new(1 + old.iter().count() as u64, 0);
        mvcc::put_version(&mut batch, key, at, value.as_deref(), old.as_deref()).expect("version");
        engine.write(&batch, false).expect("write");
    }

    #[test]
    fn ranges_are_found_by_any_of_their_keys() {
        let engine = MemoryEngine::new();
        for tenant in [2, 3, 9] {
            let span = TenantId(tenant).span();
            let record = RangeRecord {
                range_id: tenant + 1,
                start: span.start.clone(),
                end: span.end,
                ..RangeRecord::default()
            };
            put(&engine, &record_key(&span.start), Some(record.encode_to_vec()));
        }
        let found = |tenant: u64, key: &[u8]| {
            lookup(&engine, &TenantId(tenant).prefixed(key)).expect("lookup").map(|record| record.range_id)
        };
        assert_eq!(
            [found(2, b""), found(2, b"\xff\xff"), found(3, b"k"), found(9, b"k")].map(Option::unwrap),
            [3, 3, 4, 10]
        );
        assert_eq!([found(1, b"k"), found(4, b""), found(10, b"")], [None; 3], "between and around them");
        put(&engine, &record_key(&TenantId(3).span().start), None);
        assert_eq!([found(3, b"k"), found(2, b"k")], [None, Some(3)]);
        let listed = |after: &[u8], limit| -> Vec<RangeId> {
            list(&engine, after, limit).expect("list").into_iter().map(|record| record.range_id).collect()
        };
        assert_eq!(listed(b"", 9), [3, 10]);
        assert_eq!(listed(b"", 1), [3]);
        assert_eq!(listed(&TenantId(2).span().start, 9), [10]);
        assert_eq!(last_range(&engine), Ok(0));
    }

    #[test]
    fn ranges_that_are_no_more_are_listed_a_few_at_a_time() {
        let engine = MemoryEngine::new();
        for range_id in [3, 5, 300] {
            let record = GoneRecord { range_id, members: vec![1, range_id] };
            put(&engine, &gone_key(range_id), Some(record.encode_to_vec()));
        }
        let listed = |after, limit| -> Vec<RangeId> {
            gone(&engine, after, limit).expect("gone").into_iter().map(|record| record.range_id).collect()
        };
        assert_eq!(listed(0, 2), [3, 5]);
        assert_eq!(listed(5, 2), [300]);
        assert_eq!(gone_members(&engine, 5), Ok(vec![1, 5]));
        put(&engine, &gone_key(5), None);
        assert_eq!((listed(0, 9), gone_members(&engine, 5)), (vec![3, 300], Ok(vec![])));
    }
}
