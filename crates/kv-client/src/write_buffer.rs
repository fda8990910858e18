//! The writes of a transaction that the KV node does not know yet.

use crate::located::Located;
use bytes::Bytes;
use kv_api::Request;
use kv_api::batch::{ConditionalPut, Delete, KeyValue, Put, RequestKind};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Bound;

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Sets the value.
    Put(Bytes),
    /// Sets the value; the key must not exist when the write reaches the KV node.
    Insert(Bytes),
    /// Removes the key.
    Delete,
}

impl Write {
    fn value(&self) -> Option<&Bytes> {
        match self {
            Write::Put(value) | Write::Insert(value) => Some(value),
            Write::Delete => None,
        }
    }
}

/// Buffered writes by full key, each with as much of its history as savepoints may bring back.
#[derive(Default)]
pub struct WriteBuffer {
    writes: BTreeMap<Bytes, History>,
    bytes: usize,
    len: usize,
    /// Writes below this sequence number may be returned to.
    protected: u32,
}

/// The writes of one key with their sequence numbers, ascending; never empty.
type History = SmallVec<[(u32, Write); 1]>;

/// A key and its writes.
type Contents<'b> = (&'b Bytes, &'b [(u32, Write)]);

/// Bookkeeping charged per write, in bytes.
const OVERHEAD: usize = 64;

fn charge(key_len: usize, write: &Write) -> usize {
    OVERHEAD + key_len + write.value().map_or(0, Bytes::len)
}

impl WriteBuffer {
    /// Below which sequence number writes may be returned to, and the keys in order, each with its writes.
    pub fn contents(&self) -> (u32, impl Iterator<Item = Contents<'_>>) {
        (self.protected, self.writes.iter().map(|(key, history)| (key, &history[..])))
    }

    /// A buffer with these contents. Sequence numbers of a key ascend.
    pub fn of_contents(protected: u32, writes: impl IntoIterator<Item = (Bytes, Vec<(u32, Write)>)>) -> Self {
        let mut buffer = WriteBuffer { protected, ..WriteBuffer::default() };
        for (key, history) in writes.into_iter().filter(|(_, history)| !history.is_empty()) {
            buffer.bytes += history.iter().map(|(_, write)| charge(key.len(), write)).sum::<usize>();
            buffer.len += history.len();
            buffer.writes.insert(key, history.into());
        }
        buffer
    }

    /// Bytes buffered.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes buffered.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is buffered.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Adds a write with its sequence number, which must exceed all before it. It replaces what no
    /// savepoint can bring back.
    pub fn push(&mut self, key: Bytes, sequence: u32, mut write: Write) {
        let key_len = key.len();
        let history = self.writes.entry(key).or_default();
        if let Some((_, last)) = history.last().filter(|(last, _)| *last >= self.protected) {
            let keeps = match (last, &mut write) {
                // The condition of the insert stays, whatever value it writes in the end.
                (Write::Insert(_), Write::Put(value)) => {
                    write = Write::Insert(std::mem::take(value));
                    false
                }
                (Write::Insert(_), Write::Delete) => true,
                _ => false,
            };
            if !keeps {
                self.bytes -= charge(key_len, last);
                self.len -= 1;
                history.pop();
            }
        }
        self.bytes += charge(key_len, &write);
        self.len += 1;
        history.push((sequence, write));
    }

    /// Keeps what was written below a sequence number, so that it can be returned to.
    pub fn protect(&mut self, sequence: u32) {
        self.protected = self.protected.max(sequence);
    }

    /// What the transaction itself has written to a key: `None` if nothing, `Some(None)` if it deleted
    /// it.
    pub fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.get_before(key, u32::MAX)
    }

    /// The same for the writes below a sequence number, which must be protected.
    pub fn get_before(&self, key: &[u8], unseen: u32) -> Option<Option<Bytes>> {
        last_before(self.writes.get(key)?, unseen).map(|write| write.value().cloned())
    }

    /// Undoes all writes with sequence numbers from `from` on.
    pub fn rollback(&mut self, from: u32) {
        let (bytes, len) = (&mut self.bytes, &mut self.len);
        self.writes.retain(|key, history| {
            while let Some((_, write)) = history.last().filter(|(sequence, _)| *sequence >= from) {
                *bytes -= charge(key.len(), write);
                *len -= 1;
                history.pop();
            }
            !history.is_empty()
        });
    }

    /// The first key written that is not below `from`.
    pub fn first_key(&self, from: &[u8]) -> Option<&Bytes> {
        self.writes.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)).next().map(|(key, _)| key)
    }

    /// First and last key written.
    pub fn extent(&self) -> Option<(&Bytes, &Bytes)> {
        Some((self.writes.first_key_value()?.0, self.writes.last_key_value()?.0))
    }

    /// The keys written, in order.
    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.writes.keys()
    }

    /// Keys written.
    pub fn key_count(&self) -> usize {
        self.writes.len()
    }

    /// What a commit has to send to a range, in order of key: only what decides the outcome.
    pub fn outcome(&self, range: &Located) -> Vec<Request> {
        let mut requests = Vec::new();
        for (key, history) in self.writes.range::<[u8], _>(bounds(range)) {
            let (Some((first_sequence, first)), Some((sequence, last))) = (history.first(), history.last())
            else {
                continue;
            };
            match (first, last) {
                // The first write carries the condition that the key does not exist.
                (Write::Insert(_), Write::Put(value)) => {
                    requests.push(request(key, *sequence, &Write::Insert(value.clone())));
                }
                (Write::Insert(_), Write::Delete) => {
                    requests.push(request(key, *first_sequence, first));
                    requests.push(request(key, *sequence, last));
                }
                _ => requests.push(request(key, *sequence, last)),
            }
        }
        requests
    }

    /// Some of the writes in one range with all their history, in order of key and then of sequence number: at
    /// most `max_len` of them and, but for the first, `max_bytes`.
    pub fn chunk(&self, range: &Located, max_len: usize, max_bytes: usize) -> Vec<Request> {
        let mut requests = Vec::new();
        let mut bytes = 0;
        for (key, history) in self.writes.range::<[u8], _>(bounds(range)) {
            for (sequence, write) in history {
                bytes += charge(key.len(), write);
                if requests.len() >= max_len || (bytes > max_bytes && !requests.is_empty()) {
                    return requests;
                }
                requests.push(request(key, *sequence, write));
            }
        }
        requests
    }

    /// Forgets the writes of a chunk.
    pub fn remove(&mut self, chunk: &[Request]) {
        if self.is(chunk) {
            (self.bytes, self.len) = (0, 0);
            return self.writes.clear();
        }
        for request in chunk {
            let Some((key, upto)) = written(request) else { continue };
            let Some(history) = self.writes.get_mut(key) else { continue };
            history.retain(|(sequence, write)| {
                let stays = *sequence > upto;
                if !stays {
                    self.bytes -= charge(key.len(), write);
                    self.len -= 1;
                }
                stays
            });
            // What was checked need not hold again: the key exists now.
            if let (Some(RequestKind::ConditionalPut(_)), Some((_, first))) =
                (&request.kind, history.first_mut())
                && let Write::Insert(value) = first
            {
                *first = Write::Put(std::mem::take(value));
            }
            if history.is_empty() {
                self.writes.remove(key);
            }
        }
    }

    /// Whether a chunk is all that there is.
    fn is(&self, chunk: &[Request]) -> bool {
        let contents =
            self.writes.iter().flat_map(|(key, history)| history.iter().map(move |(at, _)| (key, *at)));
        self.len == chunk.len() && contents.map(Some).eq(chunk.iter().map(written))
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = WriteBuffer::default();
    }

    /// Whether anything in `[start, end)` is buffered.
    pub fn touches(&self, start: &[u8], end: &[u8]) -> bool {
        start < end && self.range(start, end, u32::MAX).next().is_some()
    }

    fn range<'a>(
        &'a self,
        start: &[u8],
        end: &[u8],
        unseen: u32,
    ) -> impl DoubleEndedIterator<Item = (&'a Bytes, &'a Write)> + use<'a> {
        self.writes
            .range::<[u8], _>((Bound::Included(start), Bound::Excluded(end)))
            .filter_map(move |(key, history)| last_before(history, unseen).map(|write| (key, write)))
    }

    /// Lays the writes of `[start, end)` below a sequence number over rows read from there, which are in key order,
    /// descending if `reverse`.
    pub fn overlay(
        &self,
        start: &[u8],
        end: &[u8],
        reverse: bool,
        unseen: u32,
        rows: Vec<KeyValue>,
    ) -> Vec<KeyValue> {
        let mut merged = Vec::with_capacity(rows.len());
        let own = self.range(start, end, unseen);
        let mut own: Box<dyn Iterator<Item = (&Bytes, &Write)>> =
            if reverse { Box::new(own.rev()) } else { Box::new(own) };
        let mut next_own = own.next();
        let comes_first = |own: &Bytes, row: &Bytes| if reverse { own > row } else { own < row };
        for row in rows {
            while let Some((key, write)) = next_own
                && comes_first(key, &row.key)
            {
                push_written(&mut merged, key, write);
                next_own = own.next();
            }
            match next_own {
                Some((key, write)) if *key == row.key => {
                    push_written(&mut merged, key, write);
                    next_own = own.next();
                }
                _ => merged.push(row),
            }
        }
        while let Some((key, write)) = next_own {
            push_written(&mut merged, key, write);
            next_own = own.next();
        }
        merged
    }
}

/// The last write of a key below a sequence number.
fn last_before(history: &History, unseen: u32) -> Option<&Write> {
    history.iter().rev().find(|(sequence, _)| *sequence < unseen).map(|(_, write)| write)
}

/// The key that a request of a flush or a commit writes, and the sequence number.
fn written(request: &Request) -> Option<(&Bytes, u32)> {
    match &request.kind {
        Some(RequestKind::Put(put)) => Some((&put.key, put.sequence)),
        Some(RequestKind::ConditionalPut(put)) => Some((&put.key, put.sequence)),
        Some(RequestKind::Delete(delete)) => Some((&delete.key, delete.sequence)),
        _ => None,
    }
}

/// The key that a request of a flush or a commit writes.
pub fn written_key(request: &Request) -> Option<&Bytes> {
    written(request).map(|(key, _)| key)
}

fn bounds(range: &Located) -> (Bound<&[u8]>, Bound<&[u8]>) {
    // The tree does not take bounds in the wrong order.
    match (&range.start[..], &range.end[..]) {
        (start, []) => (Bound::Included(start), Bound::Unbounded),
        (start, end) => (Bound::Included(start), Bound::Excluded(end.max(start))),
    }
}

fn push_written(rows: &mut Vec<KeyValue>, key: &Bytes, write: &Write) {
    if let Some(value) = write.value() {
        rows.push(KeyValue { key: key.clone(), value: value.clone() });
    }
}

fn request(key: &Bytes, sequence: u32, write: &Write) -> Request {
    let key = key.clone();
    let kind = match write.clone() {
        Write::Put(value) => RequestKind::Put(Put { key, value, sequence }),
        Write::Insert(value) => {
            RequestKind::ConditionalPut(ConditionalPut { key, value, expected: None, sequence })
        }
        Write::Delete => RequestKind::Delete(Delete { key, sequence }),
    };
    kind.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(number: u8) -> Bytes {
        Bytes::from(vec![b'k', number])
    }

    fn value(byte: u8) -> Bytes {
        Bytes::from(vec![byte])
    }

    fn everything() -> Located {
        Located::default()
    }

    fn kinds(requests: Vec<Request>) -> Vec<RequestKind> {
        requests.into_iter().filter_map(|request| request.kind).collect()
    }

    proptest! {
        /// Overlaying equals writing: the model is a plain map, with a copy for each savepoint.
        #[test]
        fn overlay_equals_a_map(
            stored in prop::collection::btree_map(0u8..40, 0u8..255, 0..20),
            writes in prop::collection::vec((0u8..40, prop::option::of(0u8..255), prop::bool::weighted(0.1)), 0..40),
            undo_to in prop::option::of(0usize..8),
            (low, high) in (0u8..40, 0u8..41),
            reverse: bool,
        ) {
            let mut buffer = WriteBuffer::default();
            let mut model = stored.clone();
            let mut savepoints = vec![(0, stored.clone())];
            for (sequence, (number, value_byte, savepoint)) in writes.iter().enumerate() {
                if *savepoint {
                    buffer.protect(sequence as u32);
                    savepoints.push((sequence as u32, model.clone()));
                }
                let write = value_byte.map_or(Write::Delete, |byte| Write::Put(value(byte)));
                buffer.push(key(*number), sequence as u32, write);
                match value_byte {
                    Some(byte) => model.insert(*number, *byte),
                    None => model.remove(number),
                };
            }
            if let Some((from, then)) = undo_to.and_then(|index| savepoints.get(index)) {
                buffer.rollback(*from);
                model = then.clone();
            }
            let row = |(number, byte): (&u8, &u8)| KeyValue { key: key(*number), value: value(*byte) };
            let high = high.max(low);
            let mut rows: Vec<_> = stored.range(low..high).map(row).collect();
            let mut expected: Vec<_> = model.range(low..high).map(row).collect();
            if reverse {
                rows.reverse();
                expected.reverse();
            }
            prop_assert_eq!(buffer.overlay(&key(low), &key(high), reverse, u32::MAX, rows), expected);
            for number in 0..40 {
                let seen = buffer.get(&key(number)).unwrap_or_else(|| stored.get(&number).map(|v| value(*v)));
                prop_assert_eq!(seen, model.get(&number).map(|byte| value(*byte)));
            }
            // What a commit sends, applied to what is stored, gives the same.
            let mut committed = stored.clone();
            for kind in kinds(buffer.outcome(&everything())) {
                match kind {
                    RequestKind::Put(put) => committed.insert(put.key[1], put.value[0]),
                    RequestKind::Delete(delete) => committed.remove(&delete.key[1]),
                    other => panic!("{other:?}"),
                };
            }
            prop_assert_eq!(&committed, &model);
            // So do chunks, and nothing is left of either.
            let mut flushed = stored;
            while !buffer.is_empty() {
                let chunk = buffer.chunk(&everything(), 3, 150);
                prop_assert!(!chunk.is_empty() && chunk.len() <= 3);
                buffer.remove(&chunk);
                for kind in kinds(chunk) {
                    match kind {
                        RequestKind::Put(put) => flushed.insert(put.key[1], put.value[0]),
                        RequestKind::Delete(delete) => flushed.remove(&delete.key[1]),
                        other => panic!("{other:?}"),
                    };
                }
            }
            prop_assert_eq!(&flushed, &model);
            prop_assert_eq!((buffer.bytes(), buffer.len()), (0, 0));
        }
    }

    #[test]
    fn the_condition_of_an_insert_survives_later_writes() {
        for protect in [false, true] {
            let mut buffer = WriteBuffer::default();
            buffer.push(key(1), 1, Write::Insert(value(1)));
            if protect {
                buffer.protect(2);
            }
            buffer.push(key(1), 2, Write::Put(value(2)));
            match &kinds(buffer.outcome(&everything()))[..] {
                [RequestKind::ConditionalPut(put)] => {
                    assert_eq!((&put.value, &put.expected), (&value(2), &None))
                }
                other => panic!("{other:?}"),
            }
            if protect {
                buffer.protect(3);
            }
            buffer.push(key(1), 3, Write::Delete);
            let decisive = kinds(buffer.outcome(&everything()));
            assert!(
                matches!(&decisive[..], [RequestKind::ConditionalPut(_), RequestKind::Delete(_)]),
                "{decisive:?}"
            );
            buffer.push(key(1), 4, Write::Put(value(4)));
            assert_eq!(buffer.len(), if protect { 3 } else { 2 });
            let chunk = kinds(buffer.chunk(&everything(), 10, 10_000));
            assert!(matches!(&chunk[0], RequestKind::ConditionalPut(put) if put.sequence <= 2), "{chunk:?}");
            buffer.rollback(0);
            assert_eq!((buffer.bytes(), buffer.len()), (0, 0));
        }
    }

    #[test]
    fn writing_a_key_again_and_again_takes_no_more_memory() {
        let mut buffer = WriteBuffer::default();
        for sequence in 1..1000 {
            buffer.push(key(1), sequence, Write::Put(value(1)));
        }
        assert_eq!((buffer.len(), buffer.bytes()), (1, OVERHEAD + 3));
    }

    #[test]
    fn a_write_made_while_a_chunk_was_sent_stays() {
        let mut buffer = WriteBuffer::default();
        buffer.push(key(1), 1, Write::Insert(value(1)));
        let chunk = buffer.chunk(&everything(), 10, 1000);
        buffer.push(key(1), 2, Write::Put(value(2)));
        buffer.push(key(2), 3, Write::Put(value(3)));
        buffer.remove(&chunk);
        assert_eq!(buffer.get(&key(1)), Some(Some(value(2))));
        assert_eq!(buffer.get(&key(2)), Some(Some(value(3))));
        let left = kinds(buffer.outcome(&everything()));
        assert!(matches!(&left[..], [RequestKind::Put(_), RequestKind::Put(_)]), "{left:?}");
    }

    #[test]
    fn writes_are_given_range_by_range() {
        let mut buffer = WriteBuffer::default();
        (1..9).for_each(|number| buffer.push(key(number), number.into(), Write::Put(value(number))));
        let range = |from, to| Located { range_id: 1, start: key(from), end: key(to), global: false };
        assert_eq!(buffer.outcome(&range(3, 6)), buffer.outcome(&everything())[2..5]);
        assert_eq!(buffer.chunk(&range(3, 6), 100, 100_000), buffer.outcome(&everything())[2..5]);
        assert!(buffer.outcome(&range(6, 6)).is_empty() && buffer.outcome(&range(6, 3)).is_empty());
        assert_eq!(buffer.first_key(&key(4)), Some(&key(4)));
        assert_eq!((buffer.first_key(&key(9)), buffer.extent()), (None, Some((&key(1), &key(8)))));
    }
}
