//! The writes of a transaction that the KV node does not know yet.

use bytes::Bytes;
use kv_api::Request;
use kv_api::batch::{ConditionalPut, Delete, KeyValue, Put, RequestKind};
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

/// Buffered writes by full key, each with its history so that savepoints can be undone.
#[derive(Default)]
pub struct WriteBuffer {
    writes: BTreeMap<Bytes, Vec<(u32, Write)>>,
    bytes: usize,
}

/// Bookkeeping charged per write, in bytes.
const OVERHEAD: usize = 64;

fn charge(key: &Bytes, write: &Write) -> usize {
    OVERHEAD + key.len() + write.value().map_or(0, Bytes::len)
}

impl WriteBuffer {
    /// Bytes buffered.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing is buffered.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Adds a write with its sequence number, which must exceed all before it.
    pub fn push(&mut self, key: Bytes, sequence: u32, write: Write) {
        self.bytes += charge(&key, &write);
        self.writes.entry(key).or_default().push((sequence, write));
    }

    /// What the transaction itself has written to a key: `None` if nothing, `Some(None)` if it deleted
    /// it.
    pub fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.writes.get(key)?.last().map(|(_, write)| write.value().cloned())
    }

    /// Undoes all writes with sequence numbers from `from` on.
    pub fn rollback(&mut self, from: u32) {
        let bytes = &mut self.bytes;
        self.writes.retain(|key, history| {
            while history.last().is_some_and(|(sequence, _)| *sequence >= from) {
                if let Some((_, write)) = history.pop() {
                    *bytes -= charge(key, &write);
                }
            }
            !history.is_empty()
        });
    }

    /// Takes everything out as requests, in order of key and then of sequence number. With `history`
    /// every write is included, for savepoints that may still be undone; without it only what decides
    /// the outcome.
    pub fn requests(&self, history: bool) -> Vec<Request> {
        let mut requests = Vec::with_capacity(self.writes.len());
        for (key, writes) in &self.writes {
            let last = writes.len() - 1;
            for (index, (sequence, write)) in writes.iter().enumerate() {
                // The first write may carry the condition that the key does not exist.
                let decides = index == last || (index == 0 && matches!(write, Write::Insert(_)));
                if history || decides {
                    requests.push(request(key.clone(), *sequence, write).into());
                }
            }
        }
        requests
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = WriteBuffer::default();
    }

    /// Whether anything in `[start, end)` is buffered.
    pub fn touches(&self, start: &[u8], end: &[u8]) -> bool {
        start < end && self.range(start, end).next().is_some()
    }

    fn range<'a>(
        &'a self,
        start: &[u8],
        end: &[u8],
    ) -> impl DoubleEndedIterator<Item = (&'a Bytes, &'a Write)> + use<'a> {
        self.writes
            .range::<[u8], _>((Bound::Included(start), Bound::Excluded(end)))
            .filter_map(|(key, history)| history.last().map(|(_, write)| (key, write)))
    }

    /// Lays the writes of `[start, end)` over rows read from there, which are in key order, descending
    /// if `reverse`.
    pub fn overlay(&self, start: &[u8], end: &[u8], reverse: bool, rows: Vec<KeyValue>) -> Vec<KeyValue> {
        let mut merged = Vec::with_capacity(rows.len());
        let mut own: Box<dyn Iterator<Item = (&Bytes, &Write)>> =
            if reverse { Box::new(self.range(start, end).rev()) } else { Box::new(self.range(start, end)) };
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

fn push_written(rows: &mut Vec<KeyValue>, key: &Bytes, write: &Write) {
    if let Some(value) = write.value() {
        rows.push(KeyValue { key: key.clone(), value: value.clone() });
    }
}

fn request(key: Bytes, sequence: u32, write: &Write) -> RequestKind {
    match write.clone() {
        Write::Put(value) => RequestKind::Put(Put { key, value, sequence }),
        Write::Insert(value) => {
            RequestKind::ConditionalPut(ConditionalPut { key, value, expected: None, sequence })
        }
        Write::Delete => RequestKind::Delete(Delete { key, sequence }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(number: u8) -> Bytes {
        Bytes::from(vec![b'k', number])
    }

    proptest! {
        /// Overlaying equals writing: the model is a plain map.
        #[test]
        fn overlay_equals_a_map(
            stored in prop::collection::btree_map(0u8..40, 0u8..255, 0..20),
            writes in prop::collection::vec((0u8..40, prop::option::of(0u8..255)), 0..40),
            undo_from in 0usize..41,
            (low, high) in (0u8..40, 0u8..41),
            reverse: bool,
        ) {
            let mut buffer = WriteBuffer::default();
            let mut model = stored.clone();
            for (sequence, (number, value)) in writes.iter().enumerate() {
                let write = value.map_or(Write::Delete, |value| Write::Put(Bytes::from(vec![value])));
                buffer.push(key(*number), sequence as u32, write);
            }
            buffer.rollback(undo_from as u32);
            for (number, value) in &writes[..undo_from.min(writes.len())] {
                match value {
                    Some(value) => model.insert(*number, *value),
                    None => model.remove(number),
                };
            }
            let row = |(number, value): (&u8, &u8)| KeyValue { key: key(*number), value: vec![*value].into() };
            let high = high.max(low);
            let mut rows: Vec<_> = stored.range(low..high).map(row).collect();
            let mut expected: Vec<_> = model.range(low..high).map(row).collect();
            if reverse {
                rows.reverse();
                expected.reverse();
            }
            prop_assert_eq!(buffer.overlay(&key(low), &key(high), reverse, rows), expected);
            for number in 0..40 {
                let seen = buffer.get(&key(number)).unwrap_or_else(|| stored.get(&number).map(|v| vec![*v].into()));
                prop_assert_eq!(seen, model.get(&number).map(|v| Bytes::from(vec![*v])));
            }
            buffer.rollback(0);
            prop_assert!(buffer.is_empty() && buffer.bytes() == 0);
        }
    }

    #[test]
    fn the_condition_of_an_insert_survives_later_writes() {
        let mut buffer = WriteBuffer::default();
        buffer.push(key(1), 1, Write::Insert(Bytes::from_static(b"a")));
        buffer.push(key(1), 2, Write::Put(Bytes::from_static(b"b")));
        buffer.push(key(1), 3, Write::Delete);
        let kinds: Vec<_> = buffer.requests(false).into_iter().filter_map(|request| request.kind).collect();
        assert!(matches!(&kinds[..], [RequestKind::ConditionalPut(_), RequestKind::Delete(_)]), "{kinds:?}");
        assert_eq!(buffer.requests(true).len(), 3);
    }
}
