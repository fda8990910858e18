//! Typed errors of the KV layer.
//!
//! Each kind answers three questions: is the result deterministic, may a client see it, and whose
//! fault is it. Kinds travel on the wire as numbers; a number this version does not know reads as
//! [`KvErrorKind::Internal`].

use crate::{Span, Timestamp};
use bytes::Bytes;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum KvErrorKind {
    /// A defect of ours. SQLSTATE XX000.
    Internal = 0,
    /// The identity of the caller may not touch this key. SQLSTATE 42501. Never retried.
    Unauthorized = 1,
    /// The request is malformed: an invalid key, a missing field, a value too large. SQLSTATE 22023.
    InvalidRequest = 2,
    /// The transaction must start over; running it again will probably succeed. SQLSTATE 40001.
    Retry = 3,
    /// The transaction is no longer known: it was ended, or its leaseholder restarted. SQLSTATE 40001.
    Aborted = 4,
    /// A cycle of waiting transactions was closed by this request. SQLSTATE 40P01.
    Deadlock = 5,
    /// A lock is held by another and the caller would not, or no longer, wait. SQLSTATE 55P03.
    LockNotAvailable = 6,
    /// A conditional put found something else. `key` and `actual` say what. SQLSTATE 23505.
    ConditionFailed = 7,
    /// The counter left the range of 64 bits. SQLSTATE 2200H.
    CounterOverflow = 8,
    /// The outcome of a commit is not known: the connection broke under it. SQLSTATE 40003.
    Ambiguous = 9,
    /// No KV node answers. SQLSTATE 08006.
    Unavailable = 10,
    /// The KV node's disk is full; nothing was written. SQLSTATE 53100.
    DiskFull = 11,
    /// The KV node's disk returned an error. SQLSTATE 58030.
    Storage = 12,
    /// A bound of the KV node was reached (queue, batch size, locks). SQLSTATE 53000.
    Overloaded = 13,
    /// The KV node does not hold the lease; nothing was carried out. The error's `leaseholder` says where
    /// to go. Clients of the KV layer go there by themselves; whoever waited in vain for a leaseholder is
    /// told [`KvErrorKind::Unavailable`]. SQLSTATE 08006.
    NotLeaseholder = 14,
    /// The KV node found damaged data on its disk. SQLSTATE XX001.
    Corrupted = 15,
    /// The KV node has no replica of the range, or not one that holds all keys of the batch; nothing was
    /// carried out. Clients of the KV layer look the range up again; whoever looked in vain is told
    /// [`KvErrorKind::Unavailable`]. SQLSTATE 08006.
    RangeNotFound = 16,
    /// The transaction must read at, or commit at, the error's `timestamp` or above it. Coordinators see to it by
    /// themselves where what was read has not changed; otherwise clients are told [`KvErrorKind::Retry`].
    /// SQLSTATE 40001.
    SnapshotBehind = 17,
}

/// An error of the KV layer, as sent on the wire.
#[derive(Clone, PartialEq, prost::Message, thiserror::Error)]
#[error("{:?}: {message}", self.kind())]
pub struct KvError {
    /// What went wrong.
    #[prost(enumeration = "KvErrorKind", tag = "1")]
    pub kind: i32,
    /// One sentence for a person, without secrets or other tenants' keys.
    #[prost(string, tag = "2")]
    pub message: String,
    /// The key concerned, where there is one.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub key: Option<Bytes>,
    /// `ConditionFailed`: what the key holds.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub actual: Option<Bytes>,
    /// `Retry`: the span that changed. `RangeNotFound`: what the range holds, where the node that leads it says that it
    /// does not hold the keys, because it was split.
    #[prost(message, optional, tag = "5")]
    pub span: Option<Span>,
    /// `NotLeaseholder`: address (`host:port`) of the node that holds the lease, if it is known.
    #[prost(string, optional, tag = "6")]
    pub leaseholder: Option<String>,
    /// `SnapshotBehind`: where to.
    #[prost(message, optional, boxed, tag = "7")]
    pub timestamp: Option<Box<Timestamp>>,
}

impl KvError {
    /// An error of `kind` with a message.
    pub fn new(kind: KvErrorKind, message: impl Into<String>) -> Self {
        KvError { kind: kind as i32, message: message.into(), ..KvError::default() }
    }

    /// What a node without the lease answers. `leaseholder` is the address of the node that holds it, if
    /// it is known.
    pub fn not_leaseholder(leaseholder: Option<String>) -> Self {
        let message = match &leaseholder {
            Some(address) => format!("this KV node does not hold the lease; the one at {address} does"),
            None => "this KV node does not hold the lease and does not know who does".to_owned(),
        };
        KvError { leaseholder, ..KvError::new(KvErrorKind::NotLeaseholder, message) }
    }

    /// What a node without the range answers.
    pub fn range_not_found(range_id: u64) -> Self {
        let message = format!("this KV node has no replica of range {range_id} that holds the keys");
        KvError::new(KvErrorKind::RangeNotFound, message)
    }

    /// What a transaction is told whose snapshot or commit must move to `timestamp` at least.
    pub fn snapshot_behind(timestamp: Timestamp) -> Self {
        let message = "could not serialize access: the transaction must move to a later timestamp";
        KvError { timestamp: Some(Box::new(timestamp)), ..KvError::new(KvErrorKind::SnapshotBehind, message) }
    }

    /// The same error about a key.
    pub fn with_key(mut self, key: Bytes) -> Self {
        self.key = Some(key);
        self
    }
}

/// Result of a KV operation.
pub type KvResult<T> = Result<T, KvError>;

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    #[test]
    fn neighbouring_versions_understand_each_other() {
        // Kind 1, as a version that knew no leaseholders wrote it.
        let old = KvError::decode(&b"\x08\x01\x12\x02no"[..]).unwrap();
        assert_eq!(old, KvError::new(KvErrorKind::Unauthorized, "no"));
        assert_eq!(old.encode_to_vec(), b"\x08\x01\x12\x02no");
        let unknown = KvError { kind: 99, ..KvError::default() };
        assert_eq!(KvError::decode(&unknown.encode_to_vec()[..]).unwrap().kind(), KvErrorKind::Internal);
        let elsewhere = KvError::not_leaseholder(Some("10.0.0.2:26258".into()));
        let read = KvError::decode(&elsewhere.encode_to_vec()[..]).unwrap();
        assert_eq!(read, elsewhere);
        assert_eq!(read.kind(), KvErrorKind::NotLeaseholder);
    }
}
