//! [`Kept`]: segments by where they begin.

use crate::metrics::metrics;
use bytes::Bytes;
use kv_api::Timestamp;
use kv_api::columns::{Chunk, ColumnData, Origin};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Rows next to each other.
pub(super) struct Segment {
    /// They are all before this key.
    pub end: Bytes,
    /// No version of their keys is above this.
    pub newest: Timestamp,
    rows: usize,
    columns: BTreeMap<Origin, ColumnData>,
    bytes: usize,
    /// Whether somebody has used it since the hand of the clock was here.
    used: bool,
}

impl Segment {
    pub fn new(end: Bytes, newest: Timestamp, rows: usize, columns: BTreeMap<Origin, ColumnData>) -> Self {
        let bytes = columns.values().map(ColumnData::bytes).sum();
        Segment { end, newest, rows, columns, bytes, used: false }
    }

    /// Some of its columns, if it has them all.
    pub fn chunk(&mut self, columns: &[Origin]) -> Option<Chunk> {
        let found: Option<Vec<ColumnData>> =
            columns.iter().map(|origin| self.columns.get(origin).cloned()).collect();
        let chunk = Chunk { rows: self.rows, columns: found? };
        self.used = true;
        metrics().column_chunks_used.inc();
        Some(chunk)
    }
}

/// Segments. No two of them overlap.
#[derive(Default)]
pub(super) struct Kept {
    segments: BTreeMap<Bytes, Segment>,
    bytes: usize,
    /// The key at which the hand of the clock is.
    hand: Bytes,
}

impl Kept {
    /// Bytes of all columns.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The segment that begins at a key.
    pub fn get(&self, start: &[u8]) -> Option<&Segment> {
        self.segments.get(start)
    }

    /// The segment whose span holds a key, and where it begins.
    pub fn around(&mut self, at: &[u8]) -> Option<(&Bytes, &mut Segment)> {
        let before = (Bound::Unbounded, Bound::Included(at));
        self.segments.range_mut::<[u8], _>(before).next_back().filter(|(_, segment)| segment.end > at)
    }

    /// Where the first segment begins that does so above a key.
    pub fn next_start(&self, at: &[u8]) -> Option<Bytes> {
        let above = (Bound::Excluded(at), Bound::Unbounded);
        self.segments.range::<[u8], _>(above).next().map(|(start, _)| start.clone())
    }

    /// Adds a segment, or its columns to one with the same span. One that overlaps with others in another way came too
    /// late.
    pub fn add(&mut self, start: Bytes, segment: Segment) {
        let before = self.bytes;
        if let Some((found, present)) = self.around(&start) {
            if *found != start || (&present.end, present.rows) != (&segment.end, segment.rows) {
                return;
            }
            let mut added = 0;
            for (origin, column) in segment.columns {
                let bytes = column.bytes();
                if present.columns.insert(origin, column).is_none() {
                    added += bytes;
                }
            }
            present.bytes += added;
            self.bytes += added;
        } else if self.next_start(&start).is_none_or(|next| next >= segment.end) {
            self.bytes += segment.bytes;
            self.segments.insert(start, segment);
        }
        metrics().column_cache_bytes.add((self.bytes - before) as i64);
    }

    /// Forgets the segments that hold keys from `start` to before `end`.
    pub fn forget(&mut self, start: &[u8], end: &[u8]) {
        if self.segments.is_empty() || start >= end {
            return;
        }
        if let Some((first, _)) = self.around(start) {
            let first = first.clone();
            self.remove(&first);
            metrics().column_chunks_forgotten.inc();
        }
        while let Some((first, _)) =
            self.segments.range::<[u8], _>((Bound::Included(start), Bound::Excluded(end))).next()
        {
            let first = first.clone();
            self.remove(&first);
            metrics().column_chunks_forgotten.inc();
        }
    }

    /// Whether a segment holds a key from `start` to before `end`.
    pub fn has_any(&mut self, start: &[u8], end: &[u8]) -> bool {
        let within = (Bound::Included(start), Bound::Excluded(end));
        start < end
            && (self.around(start).is_some() || self.segments.range::<[u8], _>(within).next().is_some())
    }

    /// Removes segments until no more than so many bytes are left: those that nobody has used since the last time.
    pub fn make_room(&mut self, capacity: usize) {
        while self.bytes > capacity {
            let above = (Bound::Excluded(&self.hand[..]), Bound::Unbounded);
            match self.segments.range_mut::<[u8], _>(above).next() {
                Some((start, segment)) => {
                    self.hand = start.clone();
                    if std::mem::take(&mut segment.used) {
                        continue;
                    }
                    let start = start.clone();
                    self.remove(&start);
                }
                None if self.hand.is_empty() => return,
                None => self.hand = Bytes::new(),
            }
        }
    }

    fn remove(&mut self, start: &[u8]) {
        if let Some(segment) = self.segments.remove(start) {
            self.bytes -= segment.bytes;
            metrics().column_cache_bytes.sub(segment.bytes as i64);
        }
    }
}
