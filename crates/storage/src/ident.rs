//! What a store says about itself: format version, cluster id, and how far its clock may have gone.

use crate::engine::{Bounds, Engine, Space, WriteBatch};
use crate::error::{StorageError, StorageResult};
use crate::key::{TIMESTAMP_LEN, timestamp_bytes, timestamp_from};
use kv_api::Timestamp;

/// Version of everything this crate writes. A store of another version is refused.
pub const STORE_FORMAT: u32 = 1;

const IDENT: &[u8] = b"ident";
const CLOCK: &[u8] = b"clock";

/// Reads the cluster id of a store, after checking its version; writes both into an empty store.
///
/// # Errors
/// [`StorageError::Incompatible`] if the store has another version, or has contents but no identity.
pub fn open(engine: &dyn Engine, new_cluster_id: &str) -> StorageResult<String> {
    if let Some(found) = engine.get(Space::Meta, IDENT)? {
        return decode(&found);
    }
    if !is_empty(engine)? {
        return Err(StorageError::corruption("the store has contents but no identity"));
    }
    let mut batch = WriteBatch::new();
    batch.put_parts(Space::Meta, &[IDENT], &[&STORE_FORMAT.to_be_bytes(), new_cluster_id.as_bytes()]);
    engine.write(&batch, true)?;
    Ok(new_cluster_id.to_owned())
}

fn decode(bytes: &[u8]) -> StorageResult<String> {
    let damaged = || StorageError::corruption("the identity of the store is unreadable");
    let (version, cluster_id) = bytes.split_first_chunk::<4>().ok_or_else(damaged)?;
    let version = u32::from_be_bytes(*version);
    if version != STORE_FORMAT {
        return Err(StorageError::Incompatible(format!(
            "the store has format version {version}; this program reads version {STORE_FORMAT} only"
        )));
    }
    String::from_utf8(cluster_id.to_vec()).map_err(|_| damaged())
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

/// The timestamp no earlier run of this store went beyond.
///
/// # Errors
/// I/O errors and damage.
pub fn clock_floor(engine: &dyn Engine) -> StorageResult<Timestamp> {
    let Some(found) = engine.get(Space::Meta, CLOCK)? else { return Ok(Timestamp::MIN) };
    let bytes: [u8; TIMESTAMP_LEN] =
        (*found).try_into().map_err(|_| StorageError::corruption("the clock of the store is unreadable"))?;
    Ok(timestamp_from(bytes))
}

/// Adds a new [`clock_floor`] to a batch. It must be durable before a timestamp near it is used.
pub fn put_clock_floor(batch: &mut WriteBatch, floor: Timestamp) {
    batch.put(Space::Meta, CLOCK, &timestamp_bytes(floor));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryEngine;

    #[test]
    fn the_first_open_names_the_store_and_later_ones_read_it() {
        let engine = MemoryEngine::new();
        assert_eq!(open(&engine, "first").as_deref(), Ok("first"));
        engine.crash();
        assert_eq!(open(&engine, "second").as_deref(), Ok("first"));
    }

    #[test]
    fn another_version_or_a_foreign_store_is_refused() {
        let engine = MemoryEngine::new();
        let mut batch = WriteBatch::new();
        batch.put(Space::Meta, IDENT, &[0, 0, 0, 9, b'x']);
        engine.write(&batch, true).expect("write");
        let Err(StorageError::Incompatible(message)) = open(&engine, "id") else { panic!("accepted") };
        assert!(message.contains("version 9") && message.contains("version 1"), "{message}");

        let foreign = MemoryEngine::new();
        batch.clear(0);
        batch.put(Space::Data, b"k", b"v");
        foreign.write(&batch, true).expect("write");
        assert!(matches!(open(&foreign, "id"), Err(StorageError::Corruption(_))));
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
