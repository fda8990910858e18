//! What a range holds, a piece at a time: for the neighbour that absorbs it.

use crate::cluster::message::Place;
use bytes::Bytes;
use replication::RangeDescriptor;
use storage::{Bounds, Reader, StorageResult, WriteBatch, range_spans};

/// Reads a piece of about `bytes` bytes from a place on. Returns where the next one begins, if there is more.
///
/// # Errors
/// I/O errors and damage.
pub fn piece(
    reader: &(impl Reader + ?Sized),
    range: &RangeDescriptor,
    from: Option<Place>,
    bytes: usize,
) -> StorageResult<(WriteBatch, Option<Place>)> {
    let mut batch = WriteBatch::new();
    let Place { part: first, key: from } = from.unwrap_or_default();
    for (part, (space, start, end)) in (0_u64..).zip(range_spans(&range.start, &range.end)) {
        if part < first {
            continue;
        }
        let start = if part == first && from > start { from.clone() } else { start };
        let mut cursor = reader.cursor(space, Bounds::new(&start, &end));
        cursor.seek_to_first();
        while let Some((key, value)) = cursor.item() {
            if batch.byte_len() >= bytes {
                return Ok((batch, Some(Place { part, key: Bytes::copy_from_slice(key) })));
            }
            batch.put(space, key, value);
            cursor.next();
        }
        cursor.status()?;
    }
    Ok((batch, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::key::history_prefix;
    use storage::{Engine, MemoryEngine, Op, Space};

    #[test]
    fn pieces_together_are_all_that_a_range_holds() {
        let engine = MemoryEngine::new();
        let mut all = WriteBatch::new();
        for name in ["a", "k", "k1", "kz", "l"] {
            let version = [&history_prefix(name.as_bytes())[..], &[7; 12]].concat();
            for (space, key) in
                [(Space::Data, name.as_bytes()), (Space::History, &version), (Space::Locks, name.as_bytes())]
            {
                all.put(space, key, b"value");
            }
        }
        engine.write(&all, false).expect("write");
        let range = RangeDescriptor { start: "k".into(), end: "l".into(), ..RangeDescriptor::default() };
        for bytes in [1, 30, usize::MAX] {
            let (mut found, mut next, mut pieces) = (Vec::new(), None, 0);
            loop {
                let (batch, more) = piece(&engine, &range, next.take(), bytes).expect("read");
                let puts = batch.iter().map(|op| match op {
                    Op::Put { space, key, .. } => (space, key.to_vec()),
                    other => panic!("{other:?}"),
                });
                found.extend(puts);
                pieces += 1;
                match more {
                    Some(more) => next = Some(more),
                    None => break,
                }
            }
            let keys: Vec<&[u8]> =
                found.iter().filter(|(space, _)| *space == Space::Data).map(|(_, key)| &key[..]).collect();
            assert_eq!(keys, [&b"k"[..], b"k1", b"kz"]);
            assert_eq!((found.len(), pieces > 1), (9, bytes < 1000), "{bytes}");
        }
    }
}
