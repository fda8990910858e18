//! Founding: what a store holds before it holds anything; and bringing stores of earlier versions up.

use crate::directory::{RangeRecord, counter_key, record_key, tenant_descriptor};
use crate::environment::Environment;
use crate::pipeline::ROOT;
use crate::resolve::settle_all;
use bytes::Bytes;
use kv_api::key::{CLUSTER_REGION, prefix_end};
use kv_api::{TenantId, Timestamp};
use prost::Message;
use replication::store::put_first_replica;
use replication::{NodeId, RangeDescriptor, ReplicationError, Sound, Store, StoreConfig};
use std::sync::Arc;
use storage::ident::{self, Identity, STORE_FORMAT};
use storage::{Bounds, Engine, Space, StorageError, StorageResult, WriteBatch, mvcc};

/// The node that founds a cluster.
const FIRST_NODE: NodeId = 1;
/// The first format with ranges. What later ones have besides, stores of it have not.
const FORMAT_OF_RANGES: u32 = 3;
/// Most rounds in which what a log holds is applied.
const MAX_ROUNDS: usize = 100_000;

/// The identity of a store. An empty one becomes the first of a new cluster; one of an earlier version
/// becomes one of this version, with all that is in it.
///
/// # Errors
/// If the store is of a later version or damaged, is one of several of an earlier version, or cannot be
/// written.
pub fn open_or_found(engine: &Arc<dyn Engine>) -> StorageResult<Identity> {
    open_or_found_in(engine, &Environment::of_machine())
}

/// The same with chance from an environment.
///
/// # Errors
/// As for [`open_or_found`].
pub fn open_or_found_in(engine: &Arc<dyn Engine>, environment: &Environment) -> StorageResult<Identity> {
    let found = ident::open(&**engine)?;
    let (identity, floor) = match found {
        Some(identity) if identity.format == STORE_FORMAT => return Ok(identity),
        // What it has is read as it is.
        Some(identity) if identity.format >= FORMAT_OF_RANGES => {
            let identity = Identity { format: STORE_FORMAT, ..identity };
            ident::write(&**engine, &identity)?;
            return Ok(identity);
        }
        Some(identity) if identity.format == 1 => {
            let store_id = environment.random();
            (Identity { store_id, ..identity }, ident::clock_floor(&**engine)?)
        }
        Some(identity) => {
            let floor = apply_log(engine, &identity)?;
            (identity, floor)
        }
        None => {
            let store_id = environment.random();
            let cluster_id = uuid::Uuid::from_bytes(environment.random()).to_string();
            (Identity { format: STORE_FORMAT, cluster_id, node_id: FIRST_NODE, store_id }, Timestamp::MIN)
        }
    };
    // Nothing is under way: what open transactions have left can be settled at once.
    while let Some(batch) = settle_all(&**engine)? {
        engine.write(&batch, true)?;
    }
    let mut batch = WriteBatch::new();
    batch.delete_range(Space::Raft, &[], &[0xff; 9]);
    put_ranges(&mut batch, &**engine, identity.node_id, floor)?;
    let identity = Identity { format: STORE_FORMAT, ..identity };
    ident::put(&mut batch, &identity);
    engine.write(&batch, true)?;
    Ok(identity)
}

/// The root range, that of the system tenant, and one for every tenant with keys; and their records.
fn put_ranges(
    batch: &mut WriteBatch,
    engine: &dyn Engine,
    node: NodeId,
    floor: Timestamp,
) -> StorageResult<()> {
    let root = Bytes::from_static(&[CLUSTER_REGION]);
    let root = RangeDescriptor {
        range_id: ROOT,
        end: prefix_end(&root).unwrap_or_default(),
        start: root,
        generation: 1,
        ..RangeDescriptor::default()
    };
    let mut descriptors = vec![root];
    let mut tenants = tenants(engine)?;
    if tenants.first() != Some(&TenantId::SYSTEM) {
        tenants.insert(0, TenantId::SYSTEM);
    }
    descriptors.extend((ROOT + 1..).zip(&tenants).map(|(id, tenant)| tenant_descriptor(id, *tenant)));
    // Above everything that was read or written before.
    let now = floor.next();
    let last = descriptors.last().map_or(ROOT, |descriptor| descriptor.range_id);
    mvcc::put_version(batch, &counter_key(), now, Some(&last.to_be_bytes()), None)?;
    for descriptor in &descriptors {
        let record = RangeRecord {
            range_id: descriptor.range_id,
            start: descriptor.start.clone(),
            end: descriptor.end.clone(),
            generation: descriptor.generation,
            voters: vec![node],
            leaseholder: node,
            ..RangeRecord::default()
        };
        let value = record.encode_to_vec();
        mvcc::put_version(batch, &record_key(&descriptor.start), now, Some(&value), None)?;
        put_first_replica(batch, descriptor, &[node], now);
    }
    Ok(())
}

/// The tenants with keys.
fn tenants(engine: &dyn Engine) -> StorageResult<Vec<TenantId>> {
    let first = TenantId(0).span().start;
    let mut cursor = engine.cursor(Space::Data, Bounds { lower: &first, upper: None });
    cursor.seek_to_first();
    let mut tenants = Vec::new();
    while let Some(tenant) = cursor.item().and_then(|(key, _)| TenantId::of_key(key)) {
        tenants.push(tenant);
        cursor.seek(&tenant.span().end);
    }
    cursor.status()?;
    Ok(tenants)
}

/// Applies what the log of a store of version 2 holds, which had one range for all keys. Returns the ceiling
/// of its lease.
fn apply_log(engine: &Arc<dyn Engine>, identity: &Identity) -> StorageResult<Timestamp> {
    let storage_error = |error| match error {
        ReplicationError::Storage(error) => error,
        other => StorageError::Corruption(other.to_string()),
    };
    let config = StoreConfig::new(identity.node_id, 1, 1);
    let mut store = Store::open(Arc::clone(engine), config, Sound, 0).map_err(storage_error)?;
    let replicas = store.survey(0, 2).map_err(storage_error)?;
    let alone = replicas.iter().all(|(range, state)| {
        *range == ROOT && state.members.voters == [identity.node_id] && !state.members.is_joint()
    });
    if !alone {
        return Err(StorageError::Incompatible(
            "the store is of version 2 and one of several of its cluster. Drain the other nodes with the \
             version of dormouse that wrote it, then start this one alone; new nodes can join afterwards."
                .to_owned(),
        ));
    }
    store.wake(0, ROOT).map_err(storage_error)?;
    for _ in 0..MAX_ROUNDS {
        store.process(0).map_err(storage_error)?;
        if !store.has_work() {
            break;
        }
    }
    if store.is_stalled() {
        return Err(StorageError::DiskFull("the store cannot be brought up to this version".to_owned()));
    }
    Ok(store.status(ROOT).map_or(Timestamp::MIN, |status| status.lease.ceiling))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory;
    use storage::MemoryEngine;

    fn engine() -> (Arc<MemoryEngine>, Arc<dyn Engine>) {
        let engine = Arc::new(MemoryEngine::new());
        (Arc::clone(&engine), engine)
    }

    #[test]
    fn a_store_is_founded_once() {
        let (memory, engine) = engine();
        let identity = open_or_found(&engine).expect("found");
        memory.crash();
        assert_eq!(open_or_found(&engine), Ok(identity));
        let listed = directory::list(&*engine, &[], 9).expect("list");
        assert_eq!(listed.iter().map(|record| record.range_id).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(directory::last_range(&*engine), Ok(2));
    }

    fn some_tenants(engine: &dyn Engine) {
        let mut batch = WriteBatch::new();
        for tenant in [3, 5] {
            let key = TenantId(tenant).prefixed(b"k");
            mvcc::put_version(&mut batch, &key, Timestamp::new(50, 0), Some(b"v"), None).expect("version");
        }
        engine.write(&batch, true).expect("write");
    }

    fn check_upgraded(engine: &Arc<dyn Engine>, floor: Timestamp) {
        let listed = directory::list(&**engine, &[], 9).expect("list");
        assert_eq!(listed.iter().map(|record| record.range_id).collect::<Vec<_>>(), [1, 2, 3, 4]);
        let found = directory::lookup(&**engine, &TenantId(5).prefixed(b"k")).expect("lookup");
        assert_eq!(found.map(|record| record.range_id), Some(4));
        let store = Store::open(Arc::clone(engine), StoreConfig::new(1, 1, 1), Sound, 0).expect("open");
        let replicas = store.survey(0, 9).expect("survey");
        assert_eq!(replicas.len(), 4);
        assert!(replicas.iter().all(|(_, state)| state.lease.ceiling > floor), "time goes on above");
    }

    #[test]
    fn a_store_of_version_1_keeps_its_cluster_and_goes_on_above_its_clock() {
        let (_, engine) = engine();
        let mut batch = WriteBatch::new();
        batch.put(Space::Meta, b"ident", &[&[0, 0, 0, 1], &b"old"[..]].concat());
        ident::put_clock_floor(&mut batch, Timestamp::new(77, 0));
        engine.write(&batch, true).expect("write");
        some_tenants(&*engine);
        let identity = open_or_found(&engine).expect("upgrade");
        assert_eq!((&identity.cluster_id[..], identity.node_id), ("old", 1));
        check_upgraded(&engine, Timestamp::new(77, 0));
    }

    #[test]
    fn stores_of_versions_3_and_4_are_read_as_they_are() {
        for version in [FORMAT_OF_RANGES, 4] {
            let (_, engine) = engine();
            let founded = open_or_found(&engine).expect("found");
            let cluster = founded.cluster_id.as_bytes();
            let ident =
                [&version.to_be_bytes()[..], &1_u64.to_be_bytes(), &founded.store_id, cluster].concat();
            let mut batch = WriteBatch::new();
            batch.put(Space::Meta, b"ident", &ident);
            engine.write(&batch, true).expect("write");
            assert_eq!(open_or_found(&engine), Ok(founded));
            let stored = ident::open(&*engine).expect("open").expect("an identity");
            assert_eq!(stored.format, STORE_FORMAT);
        }
    }

    #[test]
    fn a_store_of_version_2_is_cut_into_ranges_if_it_is_alone() {
        for (voters, alone) in [(&[1][..], true), (&[1, 2, 3], false)] {
            let (_, engine) = engine();
            let mut batch = WriteBatch::new();
            let ident = [&[0, 0, 0, 2][..], &1_u64.to_be_bytes(), &[9; 16], b"old"].concat();
            batch.put(Space::Meta, b"ident", &ident);
            let all = RangeDescriptor {
                range_id: ROOT,
                start: Bytes::from_static(&[0]),
                end: Bytes::from_static(&[0xff]),
                generation: 1,
                ..RangeDescriptor::default()
            };
            put_first_replica(&mut batch, &all, voters, Timestamp::new(99, 0));
            engine.write(&batch, true).expect("write");
            some_tenants(&*engine);
            match open_or_found(&engine) {
                Ok(identity) if alone => {
                    assert_eq!(identity.store_id, [9; 16]);
                    check_upgraded(&engine, Timestamp::new(99, 0));
                }
                Err(StorageError::Incompatible(_)) if !alone => {}
                other => panic!("{other:?}"),
            }
        }
    }
}
