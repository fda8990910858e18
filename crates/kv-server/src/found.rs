//! Founding: what a store holds before it holds anything.

use kv_api::Timestamp;
use replication::RangeDescriptor;
use replication::store::put_first_replica;
use storage::ident::{self, Identity, STORE_FORMAT};
use storage::{Engine, StorageResult, WriteBatch};

/// The node that founds a cluster.
const FIRST_NODE: u64 = 1;
/// First key of the range that holds all keys, and first key after it.
const ALL_KEYS: (&[u8], &[u8]) = (&[0], &[0xff]);

/// The identity of a store. An empty one becomes the first of a new cluster; one of version 1, which knew
/// neither nodes nor replicas, becomes the first of its cluster, with all that is in it.
///
/// # Errors
/// If the store is of another version or damaged, or cannot be written.
pub fn open_or_found(engine: &dyn Engine) -> StorageResult<Identity> {
    let found = ident::open(engine)?;
    let (cluster_id, floor) = match found {
        Some(identity) if identity.format == STORE_FORMAT => return Ok(identity),
        Some(identity) => (identity.cluster_id, ident::clock_floor(engine)?),
        None => (uuid::Uuid::new_v4().to_string(), Timestamp::MIN),
    };
    let store_id = *uuid::Uuid::new_v4().as_bytes();
    let identity = Identity { format: STORE_FORMAT, cluster_id, node_id: FIRST_NODE, store_id };
    let descriptor = RangeDescriptor {
        range_id: crate::pipeline::RANGE,
        start: ALL_KEYS.0.into(),
        end: ALL_KEYS.1.into(),
        generation: 1,
    };
    let mut batch = WriteBatch::new();
    ident::put(&mut batch, &identity);
    put_first_replica(&mut batch, &descriptor, &[FIRST_NODE], floor);
    engine.write(&batch, true)?;
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::{MemoryEngine, Space};

    #[test]
    fn a_store_is_founded_once() {
        let engine = MemoryEngine::new();
        let identity = open_or_found(&engine).expect("found");
        engine.crash();
        assert_eq!(open_or_found(&engine), Ok(identity));
    }

    #[test]
    fn a_store_of_version_1_keeps_its_cluster_and_goes_on_above_its_clock() {
        let engine = MemoryEngine::new();
        let mut batch = WriteBatch::new();
        batch.put(Space::Meta, b"ident", &[&[0, 0, 0, 1], &b"old"[..]].concat());
        ident::put_clock_floor(&mut batch, Timestamp::new(77, 0));
        engine.write(&batch, true).expect("write");
        let identity = open_or_found(&engine).expect("upgrade");
        assert_eq!((&identity.cluster_id[..], identity.node_id), ("old", 1));
        let config = replication::StoreConfig::new(1, 1, 1);
        let engine = std::sync::Arc::new(engine);
        let store = replication::Store::open(engine, config, replication::Sound, 0).expect("open");
        let status = store.status(crate::pipeline::RANGE).expect("a replica");
        assert_eq!(status.lease.ceiling, Timestamp::new(77, 0));
    }
}
