//! Intents: writes of transactions that have not been moved to the versions yet.
//!
//! An intent lies in the lock space at its user key and names its transaction. It keeps every write
//! the transaction made to the key, by sequence number, because a savepoint rolled back later may undo
//! any of them.
//!
//! Format: one byte of format version, 16 bytes of transaction id, then per write a 32-bit sequence
//! number, a 32-bit length (`u32::MAX` for a tombstone) and the value, all big-endian.

use crate::error::{StorageError, StorageResult};
use bytes::Bytes;
use kv_api::Timestamp;
use kv_api::batch::IgnoredSequences;

/// Names a transaction: sixteen random bytes chosen by its coordinator.
pub type TxnId = [u8; 16];

const FORMAT: u8 = 1;
const TOMBSTONE_LEN: u32 = u32::MAX;

/// All that a transaction wrote to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Whose.
    pub txn: TxnId,
    /// Sequence number and value (`None`: tombstone) of each write, in the order made.
    pub writes: Vec<(u32, Option<Bytes>)>,
}

impl Intent {
    /// The last write that no rolled-back savepoint undid.
    pub fn last_write(&self, ignored: &[IgnoredSequences]) -> Option<&Option<Bytes>> {
        self.writes.iter().rev().find(|(sequence, _)| !is_ignored(*sequence, ignored)).map(|(_, value)| value)
    }

    /// The bytes stored.
    pub fn encode(&self) -> Vec<u8> {
        let payload: usize =
            self.writes.iter().map(|(_, value)| 8 + value.as_ref().map_or(0, Bytes::len)).sum();
        let mut out = Vec::with_capacity(17 + payload);
        Intent::encode_into(&mut out, self.txn, &self.writes);
        out
    }

    /// Appends the bytes that are stored for these writes of a transaction.
    pub fn encode_into<'w>(
        out: &mut Vec<u8>,
        txn: TxnId,
        writes: impl IntoIterator<Item = &'w (u32, Option<Bytes>)>,
    ) {
        out.push(FORMAT);
        out.extend_from_slice(&txn);
        for (sequence, value) in writes {
            out.extend_from_slice(&sequence.to_be_bytes());
            // Values are limited far below 4 GiB before they get here.
            let len = value.as_ref().map_or(TOMBSTONE_LEN, |value| value.len() as u32);
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(value.as_deref().unwrap_or_default());
        }
    }

    /// Reads what [`Intent::encode`] wrote.
    ///
    /// # Errors
    /// [`StorageError::Corruption`] if the bytes are none.
    pub fn decode(bytes: &[u8]) -> StorageResult<Self> {
        let txn = Intent::decode_txn(bytes)?;
        let mut writes = Vec::new();
        decode_writes(bytes, |sequence, value| writes.push((sequence, value.map(Bytes::copy_from_slice))))?;
        Ok(Intent { txn, writes })
    }

    /// Reads only the last write that no rolled-back savepoint undid; the inner `None` is a tombstone.
    ///
    /// # Errors
    /// [`StorageError::Corruption`] if the bytes are none.
    pub fn decode_last_write<'b>(
        bytes: &'b [u8],
        ignored: &[IgnoredSequences],
    ) -> StorageResult<Option<Option<&'b [u8]>>> {
        Intent::decode_txn(bytes)?;
        let mut last = None;
        decode_writes(bytes, |sequence, value| {
            if !is_ignored(sequence, ignored) {
                last = Some(value);
            }
        })?;
        Ok(last)
    }

    /// Reads only whose intent it is.
    ///
    /// # Errors
    /// [`StorageError::Corruption`] if the bytes are none.
    pub fn decode_txn(bytes: &[u8]) -> StorageResult<TxnId> {
        match bytes.split_first() {
            Some((&FORMAT, rest)) => rest.first_chunk::<16>().copied().ok_or_else(damaged),
            _ => Err(damaged()),
        }
    }
}

/// Gives the writes of an intent, of which it is known whose it is, one after another.
fn decode_writes<'b>(bytes: &'b [u8], mut each: impl FnMut(u32, Option<&'b [u8]>)) -> StorageResult<()> {
    let mut rest = bytes.get(17..).unwrap_or_default();
    while !rest.is_empty() {
        let (sequence, after) = rest.split_first_chunk::<4>().ok_or_else(damaged)?;
        let (len, after) = after.split_first_chunk::<4>().ok_or_else(damaged)?;
        let len = u32::from_be_bytes(*len);
        let value = if len == TOMBSTONE_LEN {
            rest = after;
            None
        } else {
            let (value, after) = after.split_at_checked(len as usize).ok_or_else(damaged)?;
            rest = after;
            Some(value)
        };
        each(u32::from_be_bytes(*sequence), value);
    }
    Ok(())
}

fn damaged() -> StorageError {
    StorageError::corruption("an intent has an unknown format")
}

/// Whether a rolled-back savepoint undid a sequence number.
pub fn is_ignored(sequence: u32, ignored: &[IgnoredSequences]) -> bool {
    ignored.iter().any(|range| (range.from..range.to).contains(&sequence))
}

/// A transaction whose commit is decided while some of its intents still lie in the lock space.
#[derive(Clone, Debug, PartialEq)]
pub struct CommittedTxn {
    /// Which.
    pub id: TxnId,
    /// When it committed.
    pub timestamp: Timestamp,
    /// Its undone sequence numbers.
    pub ignored: Vec<IgnoredSequences>,
}

/// The intents a reader takes into account. All others are of transactions that are pending, which
/// commit above every timestamp read at so far, or aborted.
#[derive(Clone, Debug, Default)]
pub struct IntentView {
    /// The reader's own transaction, if it has intents, with its undone sequence numbers.
    pub own: Option<(TxnId, Vec<IgnoredSequences>)>,
    /// Committed transactions with intents left.
    pub committed: Vec<CommittedTxn>,
    /// Transactions of which it is not known yet whether they commit, and the timestamp at or above which they
    /// do if they do. Who meets their intents there cannot go on.
    pub prepared: Vec<(TxnId, Timestamp)>,
}

/// What an intent means to a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisibleIntent {
    /// When it committed; [`Timestamp::MAX`] for the reader's own.
    pub timestamp: Timestamp,
    /// The value; `None` for a tombstone.
    pub value: Option<Bytes>,
}

impl IntentView {
    /// Whether no intent matters, so that the lock space need not be read.
    pub fn is_empty(&self) -> bool {
        self.own.is_none() && self.committed.is_empty() && self.prepared.is_empty()
    }

    /// What the intent stored as `bytes` means to a reader at `timestamp`; `None` if it is not visible.
    ///
    /// # Errors
    /// [`StorageError::Corruption`] if the bytes are no intent, [`StorageError::Undecided`] if it is not known
    /// whether it is visible.
    pub fn visible(&self, bytes: &[u8], timestamp: Timestamp) -> StorageResult<Option<VisibleIntent>> {
        let txn = Intent::decode_txn(bytes)?;
        let (at, ignored) = match &self.own {
            Some((own, ignored)) if *own == txn => (Timestamp::MAX, ignored),
            _ => match self.committed.iter().find(|committed| committed.id == txn) {
                Some(committed) if committed.timestamp <= timestamp => {
                    (committed.timestamp, &committed.ignored)
                }
                Some(_) => return Ok(None),
                None => return self.undecided(txn, timestamp).map_or(Ok(None), Err),
            },
        };
        let intent = Intent::decode(bytes)?;
        Ok(intent.last_write(ignored).map(|value| VisibleIntent { timestamp: at, value: value.clone() }))
    }
}

impl IntentView {
    /// Whether intents of transactions other than the reader's own matter.
    pub fn has_others(&self) -> bool {
        !self.committed.is_empty() || !self.prepared.is_empty()
    }

    /// What keeps a reader at `timestamp` from going on past an intent of a transaction.
    fn undecided(&self, txn: TxnId, timestamp: Timestamp) -> Option<StorageError> {
        let prepared = self.prepared.iter().any(|(id, at)| *id == txn && *at <= timestamp);
        prepared.then_some(StorageError::Undecided(txn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intent() -> Intent {
        Intent {
            txn: [7; 16],
            writes: vec![(1, Some(Bytes::from_static(b"one"))), (4, None), (6, Some(Bytes::new()))],
        }
    }

    #[test]
    fn intents_survive_encoding_and_damage_is_found() {
        let bytes = intent().encode();
        assert_eq!(Intent::decode(&bytes), Ok(intent()));
        for cut in 1..bytes.len() {
            if let Ok(shorter) = Intent::decode(&bytes[..cut]) {
                assert!(shorter.writes.len() < 3, "cut at {cut}");
            }
        }
        assert!(Intent::decode(b"").is_err());
        assert!(Intent::decode(&[9; 40]).is_err());
    }

    #[test]
    fn the_last_write_that_was_not_undone_counts() {
        let value = |ignored: &[(u32, u32)]| {
            let ignored: Vec<_> =
                ignored.iter().map(|(from, to)| IgnoredSequences { from: *from, to: *to }).collect();
            intent().last_write(&ignored).cloned()
        };
        assert_eq!(value(&[]), Some(Some(Bytes::new())));
        assert_eq!(value(&[(5, 7)]), Some(None));
        assert_eq!(value(&[(2, 5), (6, 7)]), Some(Some(Bytes::from_static(b"one"))));
        assert_eq!(value(&[(0, 9)]), None);
    }

    #[test]
    fn readers_see_their_own_and_committed_intents_only() {
        let bytes = intent().encode();
        let committed = CommittedTxn { id: [7; 16], timestamp: Timestamp::new(5, 0), ignored: vec![] };
        let view = IntentView { committed: vec![committed], ..IntentView::default() };
        assert_eq!(view.visible(&bytes, Timestamp::new(4, 9)), Ok(None));
        let seen = view.visible(&bytes, Timestamp::new(5, 0)).expect("well-formed").expect("visible");
        assert_eq!(seen, VisibleIntent { timestamp: Timestamp::new(5, 0), value: Some(Bytes::new()) });
        assert_eq!(IntentView::default().visible(&bytes, Timestamp::MAX), Ok(None));
        let own = IntentView { own: Some(([7; 16], vec![])), ..IntentView::default() };
        assert!(own.visible(&bytes, Timestamp::MIN).expect("well-formed").is_some());
        let prepared = vec![([7; 16], Timestamp::new(5, 0))];
        let view = IntentView { prepared, ..IntentView::default() };
        assert_eq!(view.visible(&bytes, Timestamp::new(4, 9)), Ok(None));
        assert_eq!(view.visible(&bytes, Timestamp::new(5, 0)), Err(StorageError::Undecided([7; 16])));
    }
}
