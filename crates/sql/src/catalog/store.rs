//! Where descriptors lie in the tenant's keyspace.
//!
//! | key | value |
//! |---|---|
//! | 1, 1 | catalog version: 8 bytes, big-endian |
//! | 1, section, ids… | a descriptor: format byte, JSON |
//! | 1, 9, storage, index | garbage: keys to be cleared, of one index or (0) of all; at once, or with the process |
//! | 2 | OID counter |
//! | 3, storage | counter of a sequence |
//! | 4, … | the SQL nodes that serve the tenant ([`crate::instances`]) |
//! | storage ≥ 16384, … | contents of tables |
//!
//! Numbers are written with [`kv_api::encoding::encode_u64`].

use super::descriptor::{
    AclDescriptor, DatabaseDescriptor, RoleDescriptor, SchemaDescriptor, SequenceDescriptor, TableDescriptor,
    ViewDescriptor,
};
use super::routine::RoutineDescriptor;
use super::snapshot::CatalogSnapshot;
use super::user_type::TypeDescriptor;
use crate::ddl::online;
use crate::engine::TenantInfo;
use crate::exec::kv_error;
use crate::statistics::StatisticsCell;
use bytes::{BufMut, Bytes, BytesMut};
use kv_api::Span;
use kv_client::{KvClient, ScanOptions, Txn, TxnOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sql_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// First byte of a descriptor.
const FORMAT: u8 = 1;
const CATALOG: u64 = 1;
const OID_COUNTER: u64 = 2;
const SEQUENCES: u64 = 3;
/// Records of SQL nodes (`crate::instances`).
pub(crate) const INSTANCES: u64 = 4;

/// Kinds of records under the catalog's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Section {
    /// The version.
    Version = 1,
    /// [`DatabaseDescriptor`]
    Database = 2,
    /// [`SchemaDescriptor`]
    Schema = 3,
    /// [`TableDescriptor`]
    Table = 4,
    /// [`SequenceDescriptor`]
    Sequence = 5,
    /// [`ViewDescriptor`]
    View = 6,
    /// [`RoleDescriptor`]
    Role = 7,
    /// [`AclDescriptor`]
    Acl = 8,
    /// Garbage.
    Garbage = 9,
    /// [`TypeDescriptor`]
    Type = 10,
    /// [`crate::statistics::TableStatistics`], by the table's OID.
    Statistics = 11,
    /// [`RoutineDescriptor`]
    Routine = 12,
    /// Changes in steps that are under way (`ddl::online`), by table and index.
    Job = 13,
}

fn key(numbers: &[u64]) -> Bytes {
    let mut key = BytesMut::with_capacity(6 * numbers.len());
    for number in numbers {
        kv_api::encoding::encode_u64(*number, &mut key);
    }
    key.freeze()
}

/// The key of a record.
pub fn record_key(section: Section, ids: &[u64]) -> Bytes {
    let mut numbers = vec![CATALOG, section as u64];
    numbers.extend(ids);
    key(&numbers)
}

/// The key of the catalog's version.
pub fn version_key() -> Bytes {
    record_key(Section::Version, &[])
}

/// The key of the OID counter.
pub fn oid_counter_key() -> Bytes {
    key(&[OID_COUNTER])
}

/// The key of a sequence's counter.
pub fn sequence_key(storage: u64) -> Bytes {
    key(&[SEQUENCES, storage])
}

/// A descriptor as it is stored.
///
/// # Errors
/// XX000 if it cannot be written as JSON.
pub fn encode<T: Serialize>(descriptor: &T) -> SqlResult<Bytes> {
    let mut out = BytesMut::with_capacity(512).writer();
    out.get_mut().put_u8(FORMAT);
    serde_json::to_writer(&mut out, descriptor).map_err(|error| SqlError::internal(error.to_string()))?;
    Ok(out.into_inner().freeze())
}

/// Marks contents that are garbage for any process but the one that wrote this.
const WITH_PROCESS: u8 = 2;

/// The record by which the contents of a temporary object are cleared however its session ends.
pub(crate) fn temporary_record(storage: u64) -> (Bytes, Bytes) {
    (record_key(Section::Garbage, &[storage, 0]), Bytes::from_static(&[WITH_PROCESS]))
}

fn damaged(what: impl std::fmt::Display) -> SqlError {
    SqlError::new(SqlState::DATA_CORRUPTED, format!("a catalog record is damaged: {what}"))
}

/// Reads a descriptor.
///
/// # Errors
/// XX001 if the format is unknown or the JSON is broken.
pub fn decode<T: DeserializeOwned>(value: &[u8]) -> SqlResult<T> {
    match value.split_first() {
        Some((&FORMAT, json)) => serde_json::from_slice(json).map_err(damaged),
        Some((format, _)) => Err(damaged(format_args!("unknown format {format}"))),
        None => Err(damaged("it is empty")),
    }
}

/// Reads the version.
///
/// # Errors
/// XX001 if it is not 8 bytes.
pub fn decode_version(value: Option<&[u8]>) -> SqlResult<u64> {
    match value {
        None => Ok(0),
        Some(bytes) => bytes.try_into().map(u64::from_be_bytes).map_err(|_| damaged("the version")),
    }
}

/// Reads the whole catalog.
///
/// # Errors
/// XX001 for damaged records; what the KV node answers.
pub async fn load(kv: &KvClient, tenant: &TenantInfo) -> SqlResult<CatalogSnapshot> {
    let txn = kv.begin(TxnOptions::default());
    let snapshot = read(&txn, tenant).await;
    txn.rollback().await;
    snapshot
}

/// Reads the whole catalog as a transaction sees it.
///
/// # Errors
/// As for [`load`].
pub async fn read(txn: &Txn, tenant: &TenantInfo) -> SqlResult<CatalogSnapshot> {
    let mut snapshot = CatalogSnapshot::implied(tenant);
    let prefix = key(&[CATALOG]);
    let end = kv_api::key::prefix_end(&prefix).ok_or_else(|| SqlError::internal("no end of the catalog"))?;
    let mut span = Some(Span::new(prefix, end));
    while let Some(rest) = span.take() {
        let page = txn.scan(&rest, ScanOptions::default()).await.map_err(kv_error)?;
        for (key, value) in &page.rows {
            add(&mut snapshot, key, value)?;
        }
        span = page.resume;
    }
    let gone: Vec<_> = snapshot
        .schemas
        .keys()
        .map(|key| key.0)
        .filter(|oid| !snapshot.databases.contains_key(oid))
        .collect();
    snapshot.schemas.retain(|key, _| !gone.contains(&key.0));
    snapshot.finish();
    Ok(snapshot)
}

fn add(snapshot: &mut CatalogSnapshot, mut key: &[u8], value: &[u8]) -> SqlResult<()> {
    let mut numbers = [0u64; 4];
    let mut count = 0;
    while !key.is_empty() {
        let number = kv_api::encoding::decode_u64(&mut key).ok_or_else(|| damaged("its key"))?;
        *numbers.get_mut(count).ok_or_else(|| damaged("its key"))? = number;
        count += 1;
    }
    match numbers[1] {
        1 => snapshot.version = decode_version(Some(value))?,
        2 => snapshot.put_database(Arc::new(decode::<DatabaseDescriptor>(value)?)),
        3 => snapshot.put_schema(Arc::new(decode::<SchemaDescriptor>(value)?)),
        4 => {
            let table: TableDescriptor = decode(value)?;
            if table.indexes.is_empty() {
                return Err(damaged(format_args!("table \"{}\" has no primary index", table.name)));
            }
            snapshot.tables.insert(table.oid, Arc::new(table));
        }
        5 => {
            let sequence: SequenceDescriptor = decode(value)?;
            snapshot.sequences.insert(sequence.oid, Arc::new(sequence));
        }
        6 => {
            let view: ViewDescriptor = decode(value)?;
            snapshot.views.insert(view.oid, Arc::new(view));
        }
        7 => {
            let role: RoleDescriptor = decode(value)?;
            snapshot.roles.insert(role.oid, Arc::new(role));
        }
        8 => {
            let oid = u32::try_from(numbers[2]).map_err(|_| damaged("its key"))?;
            snapshot.acls.insert(oid, Arc::new(decode::<AclDescriptor>(value)?));
        }
        9 if value == [WITH_PROCESS] => snapshot.left_behind.push((numbers[2], numbers[3])),
        9 => snapshot.garbage.push((numbers[2], numbers[3])),
        10 => {
            let ty: TypeDescriptor = decode(value)?;
            snapshot.types.insert(ty.oid, Arc::new(ty));
        }
        11 => {
            let oid = u32::try_from(numbers[2]).map_err(|_| damaged("its key"))?;
            // Sections are read in order: the table is there already, if it exists.
            if let Some(table) = snapshot.tables.get_mut(&oid) {
                Arc::make_mut(table).statistics = StatisticsCell::stored(Bytes::copy_from_slice(value));
            }
        }
        12 => {
            let routine: RoutineDescriptor = decode(value)?;
            snapshot.routines.insert(routine.oid, Arc::new(routine));
        }
        13 => snapshot.jobs.extend(online::read_record(value)),
        other => return Err(damaged(format_args!("unknown section {other}"))),
    }
    Ok(())
}
