//! Which ranges have grown too large, and where to cut them.
//!
//! Nobody keeps count of what a range holds: what is replaced, deleted and collected would have to be told. What is
//! written is counted, intents left out, and when a range may have become too large with it, it is measured: read from its first
//! key on until there is more than it may hold. So the reading costs a part of the writing, however large a range
//! is; one that is much too large gives up its first keys again and again until the rest fits.

use bytes::Bytes;
use kv_api::Span;
use replication::RangeId;
use std::collections::BTreeMap;
use storage::key::history_prefix;
use storage::{Bounds, Cursor, Reader, Space, StorageResult};

/// Least size of a range that is cut for its size.
pub const MIN_RANGE_BYTES: u64 = 1 << 20;
/// A range is measured again when this part of what it may hold was written since.
const AGAIN: u64 = 16;

/// What is known of a range's size.
#[derive(Clone, Copy, Debug, Default)]
struct Growth {
    /// When it was measured last; absent: never.
    measured: Option<u64>,
    /// Written since.
    written: u64,
}

/// How much was written in ranges since they were measured.
#[derive(Debug, Default)]
pub struct Sizes(BTreeMap<RangeId, Growth>);

impl Sizes {
    /// Notes that so many bytes were written in a range.
    pub fn wrote(&mut self, range: RangeId, bytes: u64) {
        if bytes > 0 {
            let growth = self.0.entry(range).or_default();
            growth.written = growth.written.saturating_add(bytes);
        }
    }

    /// Notes what a range holds. It counts as large as it is until more is written.
    pub fn measured(&mut self, range: RangeId, bytes: u64) {
        self.0.insert(range, Growth { measured: Some(bytes), written: 0 });
    }

    /// Forgets all ranges but those that `stays` names.
    pub fn retain(&mut self, stays: impl Fn(RangeId) -> bool) {
        self.0.retain(|range, _| stays(*range));
    }

    /// A range that may hold more than `max` bytes, the one in which most was written since it was measured.
    pub fn due(&self, max: u64) -> Option<RangeId> {
        let due = self.0.iter().filter(|(_, growth)| match growth.measured {
            None => true,
            Some(measured) => growth.written >= max / AGAIN && measured.saturating_add(growth.written) > max,
        });
        due.max_by_key(|(_, growth)| growth.written).map(|(range, _)| *range)
    }
}

/// What a range holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Bytes of keys and values of all versions, as far as it was read.
    pub bytes: u64,
    /// If that is more than the range may hold: where to cut it so that about half of what it may hold is on the
    /// left. Absent if there are not two keys.
    pub cut: Option<Bytes>,
}

/// A range that is being measured, a piece at a time.
#[derive(Clone, Debug)]
pub struct Measuring {
    span: Span,
    max: u64,
    /// Where to go on.
    next: Bytes,
    bytes: u64,
    cut: Option<Bytes>,
    /// Whether what lies before the cut is enough.
    is_cut: bool,
}

impl Measuring {
    /// A range with these keys that may hold `max` bytes.
    pub fn new(span: Span, max: u64) -> Self {
        let next = span.start.clone();
        Measuring { span, max, next, bytes: 0, cut: None, is_cut: false }
    }

    /// Reads at least `piece` bytes more, a key at a time. Returns what was found when that is known: when all is
    /// read, or more than the range may hold.
    ///
    /// # Errors
    /// I/O errors and damage.
    pub fn step(&mut self, reader: &(impl Reader + ?Sized), piece: u64) -> StorageResult<Option<Measured>> {
        let end = &self.span.end;
        let (first_version, after_versions) = (history_prefix(&self.next), history_prefix(end));
        let mut data = reader.cursor(Space::Data, Bounds::new(&self.next, end));
        let mut history = reader.cursor(Space::History, Bounds::new(&first_version, &after_versions));
        data.seek_to_first();
        history.seek_to_first();
        let stop = self.bytes.saturating_add(piece);
        let mut is_over = true;
        while let Some((key, value)) = data.item() {
            if self.bytes >= stop || (self.is_cut && self.bytes > self.max) {
                self.next = Bytes::copy_from_slice(key);
                is_over = self.bytes > self.max && self.is_cut;
                break;
            }
            // What lies before this key goes to the left.
            if self.bytes > 0 && key > &self.span.start[..] && !self.is_cut {
                self.cut = Some(Bytes::copy_from_slice(key));
                self.is_cut = self.bytes >= self.max / 2;
            }
            self.bytes += len(key) + len(value) + of_key(&mut *history, key);
            data.next();
        }
        data.status()?;
        history.status()?;
        let cut = || self.cut.clone().filter(|_| self.bytes > self.max);
        Ok(is_over.then(|| Measured { bytes: self.bytes, cut: cut() }))
    }
}

fn len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Goes over the replaced versions of the keys up to this one.
fn of_key(history: &mut dyn Cursor, key: &[u8]) -> u64 {
    let mut bytes = 0;
    let mut prefix = None;
    while let Some((version, value)) = history.item() {
        let prefix = prefix.get_or_insert_with(|| history_prefix(key));
        if version > &prefix[..] && !version.starts_with(prefix) {
            break;
        }
        bytes += len(version) + len(value);
        history.next();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::{Engine, MemoryEngine, WriteBatch};

    fn span() -> Span {
        Span::new(Bytes::from_static(b"k"), Bytes::from_static(b"l"))
    }

    fn engine(rows: &[(&str, usize, usize)]) -> MemoryEngine {
        let engine = MemoryEngine::new();
        let mut batch = WriteBatch::new();
        for (key, value, replaced) in rows {
            batch.put(Space::Data, key.as_bytes(), &vec![1; value - key.len()]);
            let mut version = history_prefix(key.as_bytes()).to_vec();
            version.extend([7; 12]);
            if *replaced > 0 {
                batch.put(Space::History, &version, &vec![1; replaced - version.len()]);
            }
        }
        engine.write(&batch, false).expect("write");
        engine
    }

    fn measured(rows: &[(&str, usize, usize)], max: u64) -> (u64, Option<String>) {
        let engine = engine(rows);
        let found = [1, 150, u64::MAX].map(|piece| {
            let mut measuring = Measuring::new(span(), max);
            loop {
                if let Some(Measured { bytes, cut }) = measuring.step(&engine, piece).expect("measured") {
                    return (bytes, cut.map(|cut| String::from_utf8(cut.to_vec()).expect("text")));
                }
            }
        });
        let [one, two, three] = found;
        assert_eq!((&one, &two), (&three, &three), "whatever the pieces");
        one
    }

    #[test]
    fn half_of_what_a_range_may_hold_goes_to_the_left() {
        let rows = [("k1", 100, 0), ("k2", 100, 0), ("k3", 100, 0), ("k4", 100, 0), ("m", 500, 0)];
        assert_eq!(measured(&rows, 400), (400, None), "what lies behind it does not count");
        assert_eq!(measured(&rows, 399), (400, Some("k3".into())));
        assert_eq!(measured(&rows, 100), (200, Some("k2".into())), "the rest is not read");
        let replaced = [("k1", 100, 0), ("k2", 100, 600), ("k3", 100, 0), ("k4", 100, 0)];
        assert_eq!(measured(&replaced, 700), (900, Some("k3".into())), "replaced versions count");
        let late = [("k1", 100, 0), ("k2", 100, 0), ("k3", 900, 0)];
        assert_eq!(measured(&late, 1000), (1100, Some("k3".into())), "as near as there is a key");
    }

    #[test]
    fn a_single_key_is_not_cut() {
        assert_eq!(measured(&[("k1", 100, 900)], 500), (1000, None));
        assert_eq!(measured(&[("k", 100, 900)], 500), (1000, None));
        assert_eq!(measured(&[("k", 100, 900), ("k1", 100, 0)], 500), (1100, Some("k1".into())));
        assert_eq!(measured(&[], 500), (0, None));
    }

    #[test]
    fn ranges_are_measured_when_they_may_have_become_too_large() {
        let mut sizes = Sizes::default();
        assert_eq!(sizes.due(1600), None);
        sizes.wrote(3, 1);
        assert_eq!(sizes.due(1600), Some(3), "nobody knows how large it was before");
        sizes.measured(3, 1000);
        sizes.wrote(3, 600);
        assert_eq!(sizes.due(1600), None);
        sizes.wrote(3, 1);
        assert_eq!(sizes.due(1600), Some(3));
        sizes.measured(3, 1599);
        sizes.wrote(3, 99);
        assert_eq!(sizes.due(1600), None, "just measured");
        sizes.wrote(3, 1);
        assert_eq!(sizes.due(1600), Some(3));
        sizes.retain(|range| range != 3);
        assert_eq!(sizes.due(1600), None);
    }
}
