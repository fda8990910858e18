//! How the registers lie in the engine, and the commands that change them.
//!
//! A register uses every space a range has, so that whatever is forgotten in one shows:
//!
//! * in [`Space::Data`] the newest version: its number, one more with each write, and its value;
//! * in [`Space::History`] the versions before, some of which are cut off now and then;
//! * in [`Space::Locks`] and among the transaction records of [`Space::Meta`] one key each that names the
//!   value; every write removes those of the write before.

use bytes::Bytes;
use kv_api::Timestamp;
use storage::key::{decode_data_value, header, history_prefix, inverted_timestamp_bytes, timestamp_bytes};
use storage::{Bounds, Reader, Space, StorageError, StorageResult, WriteBatch, range_spans};

/// First key of the range.
pub const START: &[u8] = b"k";
/// First key after the range.
pub const END: &[u8] = b"l";
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
pub fn key(register: u8) -> Vec<u8> {
    vec![b'k', b'0' + register]
}

fn lock_key(register: u8, value: u64) -> Vec<u8> {
    [&key(register)[..], b"/", &value.to_be_bytes()].concat()
}

fn record_key(register: u8, value: u64) -> Vec<u8> {
    [b"txn/", &lock_key(register, value)[..]].concat()
}

/// Reads a register.
///
/// # Errors
/// Damage. A register whose parts do not belong together is damaged too.
pub fn read(reader: &impl Reader, register: u8) -> StorageResult<Stored> {
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

/// There is exactly one key that names the value, and none that names another.
fn check_companions(
    reader: &impl Reader,
    space: Space,
    prefix: &[u8],
    register: u8,
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
pub fn write(register: u8, stored: &Stored, timestamp: Timestamp, value: u64) -> WriteBatch {
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

/// Everything a replica has of the range.
///
/// # Errors
/// I/O errors and damage.
pub fn contents(reader: &impl Reader) -> StorageResult<Vec<(Space, Bytes, Bytes)>> {
    let mut contents = Vec::new();
    for (space, start, end) in range_spans(START, END) {
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
