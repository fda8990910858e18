//! What a store says about itself: format version, cluster, node, and how far the clock of an earlier
//! version may have gone.

use crate::engine::{Bounds, Engine, Space, WriteBatch};
use crate::error::{StorageError, StorageResult};
use crate::key::{TIMESTAMP_LEN, timestamp_bytes, timestamp_from};
use kv_api::Timestamp;

/// Version of everything this crate writes. Stores of earlier versions are read, and are of this version
/// once they have been brought up to it and [`write()`] has been called; stores of later ones are refused.
///
/// | version | what changed |
/// |---|---|
/// | 1 | one node, no replication |
/// | 2 | node and store id; [`Space::Raft`]; transaction records lie under their tenant's prefix |
/// | 3 | a range for each tenant in place of one for all keys; the range directory |
/// | 4 | several ranges for a tenant; transaction records of transactions over several ranges |
/// | 5 | ranges that are frozen, and absorbed by their neighbours |
pub const STORE_FORMAT: u32 = 5;

const IDENT: &[u8] = b"ident";
const CLOCK: &[u8] = b"clock";
/// Length of a store id.
const STORE_ID_LEN: usize = 16;

/// Whose a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The version it was written with.
    pub format: u32,
    /// The cluster.
    pub cluster_id: String,
    /// The node within the cluster.
    pub node_id: u64,
    /// Distinguishes this store from any other, also of the same node.
    pub store_id: [u8; STORE_ID_LEN],
}

/// Reads the identity of a store, after checking its version; `None` if it is empty.
///
/// # Errors
/// [`StorageError::Incompatible`] if the store has another version, or has contents but no identity.
pub fn open(engine: &dyn Engine) -> StorageResult<Option<Identity>> {
    if let Some(found) = engine.get(Space::Meta, IDENT)? {
        return decode(&found).map(Some);
    }
    if !is_empty(engine)? {
        return Err(StorageError::corruption("the store has contents but no identity"));
    }
    Ok(None)
}

/// Writes the identity of a store, in the present version.
///
/// # Errors
/// I/O errors.
pub fn write(engine: &dyn Engine, identity: &Identity) -> StorageResult<()> {
    let mut batch = WriteBatch::new();
    put(&mut batch, identity);
    engine.write(&batch, true)
}

/// Adds the identity of a store, in the present version, to a batch.
pub fn put(batch: &mut WriteBatch, identity: &Identity) {
    let version = STORE_FORMAT.to_be_bytes();
    let node = identity.node_id.to_be_bytes();
    let value = [&version[..], &node, &identity.store_id, identity.cluster_id.as_bytes()];
    batch.put_parts(Space::Meta, &[IDENT], &value);
}

fn decode(bytes: &[u8]) -> StorageResult<Identity> {
    let damaged = || StorageError::corruption("the identity of the store is unreadable");
    let (version, rest) = bytes.split_first_chunk::<4>().ok_or_else(damaged)?;
    let format = u32::from_be_bytes(*version);
    let (node_id, store_id, cluster_id) = match format {
        1 => (1, [0; STORE_ID_LEN], rest),
        2..=STORE_FORMAT => {
            let (node_id, rest) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
            let (store_id, rest) = rest.split_first_chunk::<STORE_ID_LEN>().ok_or_else(damaged)?;
            (u64::from_be_bytes(*node_id), *store_id, rest)
        }
        other => {
            return Err(StorageError::Incompatible(format!(
                "the store has format version {other}; this program reads versions 1 to {STORE_FORMAT}"
            )));
        }
    };
    let cluster_id = String::from_utf8(cluster_id.to_vec()).map_err(|_| damaged())?;
    Ok(Identity { format, cluster_id, node_id, store_id })
}

fn is_empty(engine: &dyn Engine) -> StorageResult<bool> {
    for space in Space::ALL {
        let mut cursor = engine.cursor(space, Bounds::all());
        cursor.seek_to_first();
        cursor.status()?;
        if cursor.item().is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The timestamp no run of a store of version 1 went beyond. Later versions have it in the lease of each
/// range.
///
/// # Errors
/// I/O errors and damage.
pub fn clock_floor(engine: &dyn Engine) -> StorageResult<Timestamp> {
    let Some(found) = engine.get(Space::Meta, CLOCK)? else { return Ok(Timestamp::MIN) };
    let bytes: [u8; TIMESTAMP_LEN] =
        (*found).try_into().map_err(|_| StorageError::corruption("the clock of the store is unreadable"))?;
    Ok(timestamp_from(bytes))
}

/// Adds a [`clock_floor`] to a batch, as version 1 did.
pub fn put_clock_floor(batch: &mut WriteBatch, floor: Timestamp) {
    batch.put(Space::Meta, CLOCK, &timestamp_bytes(floor));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryEngine;

    #[test]
    fn an_identity_is_written_once_and_read_again() {
        let engine = MemoryEngine::new();
        assert_eq!(open(&engine), Ok(None));
        let identity = Identity {
            format: STORE_FORMAT,
            cluster_id: "cluster".to_owned(),
            node_id: 3,
            store_id: [7; STORE_ID_LEN],
        };
        write(&engine, &identity).expect("write");
        engine.crash();
        assert_eq!(open(&engine), Ok(Some(identity)));
    }

    #[test]
    fn version_1_is_read_as_the_first_node() {
        let engine = MemoryEngine::new();
        let mut batch = WriteBatch::new();
        batch.put(Space::Meta, IDENT, &[&[0, 0, 0, 1], &b"old"[..]].concat());
        engine.write(&batch, true).expect("write");
        let identity = open(&engine).expect("open").expect("there");
        assert_eq!((identity.format, identity.node_id, &identity.cluster_id[..]), (1, 1, "old"));
        write(&engine, &identity).expect("upgrade");
        assert_eq!(open(&engine), Ok(Some(Identity { format: STORE_FORMAT, ..identity })));
    }

    #[test]
    fn another_version_or_a_foreign_store_is_refused() {
        let engine = MemoryEngine::new();
        let mut batch = WriteBatch::new();
        batch.put(Space::Meta, IDENT, &[0, 0, 0, 9, b'x']);
        engine.write(&batch, true).expect("write");
        let Err(StorageError::Incompatible(message)) = open(&engine) else { panic!("accepted") };
        assert!(message.contains("version 9") && message.contains("1 to 5"), "{message}");

        let foreign = MemoryEngine::new();
        batch.clear(0);
        batch.put(Space::Data, b"k", b"v");
        foreign.write(&batch, true).expect("write");
        assert!(matches!(open(&foreign), Err(StorageError::Corruption(_))));
    }

    #[test]
    fn the_clock_floor_survives() {
        let engine = MemoryEngine::new();
        assert_eq!(clock_floor(&engine), Ok(Timestamp::MIN));
        let mut batch = WriteBatch::new();
        put_clock_floor(&mut batch, Timestamp::new(77, 8));
        engine.write(&batch, true).expect("write");
        engine.crash();
        assert_eq!(clock_floor(&engine), Ok(Timestamp::new(77, 8)));
    }
}
