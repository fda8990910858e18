//! How the registers lie in the engine, and the commands that change them.
//!
//! The registers of the first range are `k0`, `k1` and so on; it can be split before any of them. A tenant
//! has two, `ta0` and `ta1` for the first one, and a range of its own.
//!
//! A register uses every space a range has, so that whatever is forgotten in one shows:
//!
//! * in [`Space::Data`] the newest version: its number, one more with each write, and its value;
//! * in [`Space::History`] the versions before, some of which are cut off now and then;
//! * in [`Space::Locks`] and among the transaction records of [`Space::Meta`] one key each that names the
//!   value; every write removes those of the write before.

use bytes::Bytes;
use kv_api::Timestamp;
use storage::key::{
    decode_data_value, decode_history_version, header, history_prefix, inverted_timestamp_bytes,
    timestamp_bytes,
};
use storage::{Bounds, Reader, Space, StorageError, StorageResult, WriteBatch, range_spans};

/// Names a register.
pub type Register = u8;
/// Names a tenant.
pub type Tenant = u8;

/// First key of the first range.
pub const START: &[u8] = b"k";
/// First key after it.
pub const END: &[u8] = b"l";
/// How many tenants a run may have.
pub const TENANTS: Tenant = 12;
/// How many registers a tenant has.
const PER_TENANT: Register = 2;
/// The first register of the first tenant.
const FIRST_OF_TENANTS: Register = 64;
/// What every register holds at first.
pub const INITIAL: u64 = 0;
/// With every so many versions the history is cut off.
const CUT_OFF: u64 = 16;

/// What the engine has of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// When it was written.
    pub timestamp: Timestamp,
    /// How many writes there were.
    pub version: u64,
    /// The value.
    pub value: u64,
}

/// The key of a register.
pub fn key(register: Register) -> Vec<u8> {
    match register.checked_sub(FIRST_OF_TENANTS) {
        None => vec![b'k', b'0' + register],
        Some(place) => vec![b't', b'a' + place / PER_TENANT, b'0' + place % PER_TENANT],
    }
}

/// The first key after everything that belongs to a register.
pub fn key_after(register: Register) -> Vec<u8> {
    let mut key = key(register);
    if let Some(last) = key.last_mut() {
        *last += 1;
    }
    key
}

/// The registers of a tenant.
pub fn registers_of(tenant: Tenant) -> impl Iterator<Item = Register> {
    let first = FIRST_OF_TENANTS + tenant * PER_TENANT;
    first..first + PER_TENANT
}

/// The keys of a tenant: the first, and the first after them.
pub fn span_of(tenant: Tenant) -> (Bytes, Bytes) {
    (vec![b't', b'a' + tenant].into(), vec![b't', b'a' + tenant + 1].into())
}

fn lock_key(register: Register, value: u64) -> Vec<u8> {
    [&key(register)[..], b"/", &value.to_be_bytes()].concat()
}

fn record_key(register: Register, value: u64) -> Vec<u8> {
    [b"txn/", &lock_key(register, value)[..]].concat()
}

/// Reads a register.
///
/// # Errors
/// Damage. A register whose parts do not belong together is damaged too.
pub fn read(reader: &impl Reader, register: Register) -> StorageResult<Stored> {
    let damaged = || StorageError::corruption(format!("register {register} is unreadable"));
    let stored = match reader.get(Space::Data, &key(register))? {
        None => Stored { timestamp: Timestamp::MIN, version: 0, value: INITIAL },
        Some(bytes) => {
            let version = decode_data_value(&bytes)?;
            let payload = version.value.ok_or_else(damaged)?;
            let (number, value) = payload.split_first_chunk::<8>().ok_or_else(damaged)?;
            let value: [u8; 8] = value.try_into().map_err(|_| damaged())?;
            let (version_number, value) = (u64::from_be_bytes(*number), u64::from_be_bytes(value));
            Stored { timestamp: version.timestamp, version: version_number, value }
        }
    };
    check_companions(reader, Space::Locks, &[], register, &stored)?;
    check_companions(reader, Space::Meta, b"txn/", register, &stored)?;
    Ok(stored)
}

/// Reads a register as it was at a timestamp: `None` if what it held then is cut off.
///
/// # Errors
/// As for [`read`].
pub fn read_at(reader: &impl Reader, register: Register, at: Timestamp) -> StorageResult<Option<u64>> {
    let newest = read(reader, register)?;
    if newest.timestamp <= at {
        return Ok(Some(newest.value));
    }
    let prefix = history_prefix(&key(register));
    let end = [&prefix[..], &[0xff; 13]].concat();
    let mut cursor = reader.cursor(Space::History, Bounds::new(&prefix, &end));
    cursor.seek_to_first();
    let mut older = 0;
    while let Some((key, bytes)) = cursor.item() {
        let version = decode_history_version(key, bytes)?;
        let value = version.value.and_then(|value| value.try_into().ok()).map(u64::from_be_bytes);
        let value = value.ok_or_else(|| StorageError::corruption("a version that is none"))?;
        if version.timestamp <= at {
            return Ok(Some(value));
        }
        older += 1;
        cursor.next();
    }
    cursor.status()?;
    // Unless some are cut off, there was nothing before the first.
    Ok((older + 1 == newest.version).then_some(INITIAL))
}

/// There is exactly one key that names the value, and none that names another.
fn check_companions(
    reader: &impl Reader,
    space: Space,
    prefix: &[u8],
    register: Register,
    stored: &Stored,
) -> StorageResult<()> {
    let start = [prefix, &key(register), b"/"].concat();
    let end = [prefix, &key(register), b"0"].concat();
    let expected = [&start[..], &stored.value.to_be_bytes()].concat();
    let mut cursor = reader.cursor(space, Bounds::new(&start, &end));
    cursor.seek_to_first();
    let mut found = 0;
    while let Some((key, _)) = cursor.item() {
        if key != expected {
            let message = format!("register {register} holds {stored:?} but {} has {key:?}", space.name());
            return Err(StorageError::corruption(message));
        }
        found += 1;
        cursor.next();
    }
    if found != u64::from(stored.version > 0) {
        let message = format!("register {register} holds {stored:?} but {} lacks its key", space.name());
        return Err(StorageError::corruption(message));
    }
    cursor.status()
}

/// The command that writes `value` over what is stored.
pub fn write(register: Register, stored: &Stored, timestamp: Timestamp, value: u64) -> WriteBatch {
    let mut batch = WriteBatch::new();
    let key = key(register);
    let version = stored.version + 1;
    if version.is_multiple_of(CUT_OFF) {
        let start = history_prefix(&key);
        let end = [&start[..], &[0xff; 13]].concat();
        batch.delete_range(Space::History, &start, &end);
    }
    if stored.version > 0 {
        let mut old = history_prefix(&key).to_vec();
        old.extend_from_slice(&inverted_timestamp_bytes(stored.timestamp));
        let parts = [&[header(true)][..], &timestamp_bytes(timestamp), &stored.value.to_be_bytes()];
        batch.put_parts(Space::History, &[&old], &parts);
        batch.delete(Space::Locks, &lock_key(register, stored.value));
        batch.delete(Space::Meta, &record_key(register, stored.value));
    }
    batch.put(Space::Locks, &lock_key(register, value), b"lock");
    batch.put(Space::Meta, &record_key(register, value), b"record");
    let parts =
        [&[header(true)][..], &timestamp_bytes(timestamp), &version.to_be_bytes(), &value.to_be_bytes()];
    batch.put_parts(Space::Data, &[&key], &parts);
    batch
}

/// Everything a node has of the keys from `start` to before `end`.
///
/// # Errors
/// I/O errors and damage.
pub fn contents(reader: &impl Reader, start: &[u8], end: &[u8]) -> StorageResult<Vec<(Space, Bytes, Bytes)>> {
    let mut contents = Vec::new();
    for (space, start, end) in range_spans(start, end) {
        let mut cursor = reader.cursor(space, Bounds::new(&start, &end));
        cursor.seek_to_first();
        while let Some((key, value)) = cursor.item() {
            contents.push((space, Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
            cursor.next();
        }
        cursor.status()?;
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::{Engine, MemoryEngine};

    #[test]
    fn a_register_is_read_as_it_was() {
        let engine = MemoryEngine::new();
        let at = |version: u64| Timestamp::new(10 * version, 0);
        for version in 1..=40 {
            let stored = read(&engine, 3).expect("read");
            engine.write(&write(3, &stored, at(version), 100 + version), false).expect("write");
            assert_eq!(read_at(&engine, 3, at(version)).expect("read"), Some(100 + version));
            if version == 5 {
                assert_eq!(read_at(&engine, 3, Timestamp::new(9, 0)).expect("read"), Some(INITIAL));
                assert_eq!(read_at(&engine, 3, Timestamp::new(39, 0)).expect("read"), Some(103));
            }
        }
        assert_eq!(read_at(&engine, 3, Timestamp::new(9, 0)).expect("read"), None, "cut off");
        assert_eq!(read_at(&engine, 4, Timestamp::MAX).expect("read"), Some(INITIAL), "another register");
    }

    #[test]
    fn every_tenant_has_keys_of_its_own() {
        for tenant in 0..TENANTS {
            let (start, end) = span_of(tenant);
            for register in registers_of(tenant) {
                assert!(start < key(register) && key_after(register) <= end);
            }
        }
        assert!(span_of(0).1 <= span_of(1).0 && &key(9)[..] < END && END < &span_of(0).0[..]);
    }
}
