//! Keys and value headers on disk.

use crate::engine::Space;
use crate::error::{StorageError, StorageResult};
use bytes::BytesMut;
use kv_api::Timestamp;
use kv_api::encoding::encode_bytes;

/// Length in bytes of an encoded timestamp.
pub const TIMESTAMP_LEN: usize = 12;
/// Header of a value: format version 1 in the high nibble.
const VALUE: u8 = 0x10;
/// Header of a tombstone.
const TOMBSTONE: u8 = 0x11;

/// A timestamp so that later ones compare greater.
pub fn timestamp_bytes(timestamp: Timestamp) -> [u8; TIMESTAMP_LEN] {
    let mut bytes = [0; TIMESTAMP_LEN];
    bytes[..8].copy_from_slice(&timestamp.wall_ns.to_be_bytes());
    bytes[8..].copy_from_slice(&timestamp.logical.to_be_bytes());
    bytes
}

/// A timestamp so that later ones compare smaller.
pub fn inverted_timestamp_bytes(timestamp: Timestamp) -> [u8; TIMESTAMP_LEN] {
    timestamp_bytes(timestamp).map(|byte| !byte)
}

/// Reads what [`timestamp_bytes`] wrote.
pub fn timestamp_from(bytes: [u8; TIMESTAMP_LEN]) -> Timestamp {
    let [w0, w1, w2, w3, w4, w5, w6, w7, l0, l1, l2, l3] = bytes;
    Timestamp::new(u64::from_be_bytes([w0, w1, w2, w3, w4, w5, w6, w7]), u32::from_be_bytes([l0, l1, l2, l3]))
}

/// The prefix in the history of all versions of `key`. Prefixes order as the keys do, and none is a
/// prefix of another.
pub fn history_prefix(key: &[u8]) -> BytesMut {
    let mut prefix = BytesMut::with_capacity(key.len() + 2 + TIMESTAMP_LEN);
    encode_bytes(key, &mut prefix);
    prefix
}

/// A version of a key as stored in the data space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredVersion<'a> {
    /// When it was committed.
    pub timestamp: Timestamp,
    /// The value; `None` for a tombstone.
    pub value: Option<&'a [u8]>,
}

/// The header byte for a value or a tombstone.
pub fn header(is_value: bool) -> u8 {
    if is_value { VALUE } else { TOMBSTONE }
}

/// Reads a value of the data space.
///
/// # Errors
/// [`StorageError::Corruption`] if the bytes are none.
pub fn decode_data_value(bytes: &[u8]) -> StorageResult<StoredVersion<'_>> {
    let (&header, rest) = bytes.split_first().ok_or_else(damaged)?;
    let (timestamp, payload) = rest.split_first_chunk::<TIMESTAMP_LEN>().ok_or_else(damaged)?;
    Ok(StoredVersion { timestamp: timestamp_from(*timestamp), value: payload_of(header, payload)? })
}

/// Reads a key and value of the history space.
///
/// # Errors
/// [`StorageError::Corruption`] if the bytes are none.
pub fn decode_history_version<'a>(key: &[u8], value: &'a [u8]) -> StorageResult<StoredVersion<'a>> {
    let inverted = key.last_chunk::<TIMESTAMP_LEN>().ok_or_else(damaged)?;
    let (&header, rest) = value.split_first().ok_or_else(damaged)?;
    let (_, payload) = rest.split_first_chunk::<TIMESTAMP_LEN>().ok_or_else(damaged)?;
    let timestamp = timestamp_from(inverted.map(|byte| !byte));
    Ok(StoredVersion { timestamp, value: payload_of(header, payload)? })
}

/// When the version with this value in the history was replaced; nobody who reads at or above it needs
/// the version. `None` for bytes that are no such value.
pub fn replaced_at(value: &[u8]) -> Option<Timestamp> {
    value.get(1..)?.first_chunk::<TIMESTAMP_LEN>().map(|bytes| timestamp_from(*bytes))
}

/// Whether a value of a space can be dropped when nobody reads below `floor`: a version replaced at or
/// below it, or a tombstone below it.
pub fn is_garbage(space: Space, value: &[u8], floor: Timestamp) -> bool {
    match space {
        Space::History => replaced_at(value).is_some_and(|replaced| replaced <= floor),
        Space::Data => decode_data_value(value)
            .is_ok_and(|version| version.value.is_none() && version.timestamp <= floor),
        Space::Locks | Space::Meta | Space::Raft => false,
    }
}

fn payload_of(header: u8, payload: &[u8]) -> StorageResult<Option<&[u8]>> {
    match header {
        VALUE => Ok(Some(payload)),
        TOMBSTONE if payload.is_empty() => Ok(None),
        _ => Err(damaged()),
    }
}

fn damaged() -> StorageError {
    StorageError::corruption("a stored version has an unknown format")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_sorts_by_key_then_newest_first() {
        let full = |key: &[u8], wall, logical| {
            let mut bytes = history_prefix(key).to_vec();
            bytes.extend(inverted_timestamp_bytes(Timestamp::new(wall, logical)));
            bytes
        };
        let keys = [
            full(b"a", 9, 1),
            full(b"a", 9, 0),
            full(b"a", 1, 7),
            full(b"a\0", 9, 0),
            full(b"a\0b", 1, 0),
            full(b"ab", 5, 5),
            full(b"b", u64::MAX, 0),
        ];
        assert!(keys.is_sorted());
        assert!(keys[2] < history_prefix(b"a\0").to_vec());
    }

    #[test]
    fn unknown_headers_and_short_values_are_damage() {
        for bytes in [&b""[..], &[VALUE][..], &[VALUE; 12][..], &[0x20; 20][..], &[TOMBSTONE; 14][..]] {
            assert!(matches!(decode_data_value(bytes), Err(StorageError::Corruption(_))), "{bytes:?}");
        }
        assert!(decode_history_version(b"short", &[VALUE]).is_err());
        assert!(decode_history_version(&[0; 20], b"").is_err());
        assert!(decode_history_version(&[0; 20], &[VALUE; 12]).is_err());
        assert_eq!(replaced_at(&[VALUE; 12]), None);
        let tombstone: Vec<u8> =
            [TOMBSTONE].into_iter().chain(timestamp_bytes(Timestamp::new(3, 4))).collect();
        let decoded = decode_data_value(&tombstone).expect("well-formed");
        assert_eq!(decoded, StoredVersion { timestamp: Timestamp::new(3, 4), value: None });
    }
}
