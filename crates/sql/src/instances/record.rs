//! The records by which instances know of each other.
//!
//! | key | value |
//! |---|---|
//! | 4, 1 | the generation: 8 bytes, big-endian |
//! | 4, 2, instance | [`Instance`] |
//! | 4, 3, asker, number | [`Request`] |
//! | 4, 4, asker, number, instance | [`Answer`] |
//! | 4, 5, sender, number | [`Note`] |
//! | 4, 6, … | nothing: keys that are locked while an instance asks for a lock |

use super::InstanceId;
use crate::catalog::store;
use crate::session::locks::LockKey;
use bytes::{Bytes, BytesMut};
use kv_api::Span;
use serde::{Deserialize, Serialize};
use sql_types::Oid;

/// The version that is written.
pub const VERSION: u32 = 1;

const GENERATION: u64 = 1;
const INSTANCE: u64 = 2;
const REQUEST: u64 = 3;
const ANSWER: u64 = 4;
const NOTE: u64 = 5;
const ASKING: u64 = 6;

/// A SQL node that serves the tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    pub version: u32,
    /// When its lease ends: nanoseconds since the Unix epoch, as KV nodes' timestamps have them.
    pub expires_ns: u64,
}

/// What is asked of other instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// To hold a lock until the request is gone.
    Lock {
        /// What is locked.
        key: LockKey,
        /// Its mode.
        mode: u8,
        /// Whether to wait for it.
        waits: bool,
    },
    /// To wait for those who hold a lock now that conflicts with a mode.
    Drain {
        /// The table.
        table: Oid,
        /// The mode.
        mode: u8,
    },
    /// To know the catalog, and of the asker.
    Refresh,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub version: u32,
    /// Who wants it at the asker: an owner of locks.
    pub owner: u64,
    /// What.
    pub ask: Ask,
}

/// What became of a request at an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub version: u32,
    /// Why it was refused: an SQLSTATE and a message.
    pub refused: Option<(String, String)>,
}

/// A notification, written by the transaction that sends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub version: u32,
    /// Of whose sessions it is.
    pub database: Oid,
    /// The process of the session that sent it.
    pub process_id: i32,
    pub channel: String,
    pub payload: String,
}

/// What a key of the section is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Generation,
    Instance(InstanceId),
    /// Asker and number.
    Request(InstanceId, u64),
    /// Asker, number, and who answers.
    Answer(InstanceId, u64, InstanceId),
}

fn key(numbers: &[u64]) -> Bytes {
    let mut key = BytesMut::with_capacity(10 * numbers.len());
    for number in [store::INSTANCES].iter().chain(numbers) {
        kv_api::encoding::encode_u64(*number, &mut key);
    }
    key.freeze()
}

/// What a key is of; `None` if this version does not know.
pub fn kind_of(mut key: &[u8]) -> Option<Kind> {
    let mut numbers = Vec::with_capacity(5);
    while !key.is_empty() && numbers.len() < 6 {
        numbers.push(kv_api::encoding::decode_u64(&mut key)?);
    }
    match numbers[..] {
        [_, GENERATION] => Some(Kind::Generation),
        [_, INSTANCE, id] => Some(Kind::Instance(id)),
        [_, REQUEST, asker, number] => Some(Kind::Request(asker, number)),
        [_, ANSWER, asker, number, id] => Some(Kind::Answer(asker, number, id)),
        _ => None,
    }
}

/// All records that are read together.
pub fn span() -> Span {
    Span::new(key(&[GENERATION]), key(&[ANSWER + 1]))
}

pub fn generation_key() -> Bytes {
    key(&[GENERATION])
}

pub fn instance_key(id: InstanceId) -> Bytes {
    key(&[INSTANCE, id])
}

pub fn request_key(asker: InstanceId, number: u64) -> Bytes {
    key(&[REQUEST, asker, number])
}

pub fn answer_key(asker: InstanceId, number: u64, id: InstanceId) -> Bytes {
    key(&[ANSWER, asker, number, id])
}

pub fn note_key(sender: InstanceId, number: u64) -> Bytes {
    key(&[NOTE, sender, number])
}

/// The notifications of a sender from a number on.
pub fn notes_from(sender: InstanceId, number: u64) -> Span {
    let end = kv_api::key::prefix_end(&key(&[NOTE, sender])).unwrap_or_default();
    Span::new(note_key(sender, number), end)
}

/// The number in the key of a notification.
pub fn note_number(mut key: &[u8]) -> Option<u64> {
    let mut number = None;
    for _ in 0..4 {
        number = Some(kv_api::encoding::decode_u64(&mut key)?);
    }
    number
}

/// The key that is locked while an instance asks for a lock.
pub fn asking_key(lock: LockKey) -> Bytes {
    match lock {
        LockKey::Catalog => key(&[ASKING, 0]),
        LockKey::Table(oid) => key(&[ASKING, 1, u64::from(oid)]),
        LockKey::Advisory(database, number, two) => {
            key(&[ASKING, 2 + u64::from(two), u64::from(database), number as u64])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_say_what_they_are_of() {
        let id = u64::MAX;
        let keys = [
            (generation_key(), Kind::Generation),
            (instance_key(id), Kind::Instance(id)),
            (request_key(id, 7), Kind::Request(id, 7)),
            (answer_key(id, 7, 3), Kind::Answer(id, 7, 3)),
        ];
        for (key, kind) in keys {
            assert_eq!(kind_of(&key), Some(kind));
            assert!(span().start <= key && key < span().end);
        }
        for other in [asking_key(LockKey::Table(3)), asking_key(LockKey::Advisory(5, -1, true))] {
            assert_eq!(kind_of(&other), None);
            assert!(other >= span().end);
        }
        assert_eq!(note_number(&note_key(id, 300)), Some(300));
        let notes = notes_from(id, 7);
        assert!(notes.contains(&note_key(id, 7)) && notes.contains(&note_key(id, id)));
        assert!(!notes.contains(&note_key(id, 6)) && !notes.contains(&note_key(id - 1, 9)));
        assert_eq!(kind_of(b"\xff\xff\xff"), None);
        assert_eq!(kind_of(b""), None);
    }
}
