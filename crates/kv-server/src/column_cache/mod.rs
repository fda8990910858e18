//! Columns of stored rows, kept in memory for the next scan that wants them.
//!
//! # What it is for
//!
//! A scan with a program ([`kv_api::columns`]) looks at every row of a table, key by key, and takes each apart: some 0.3 µs a row,
//! most of it in the engine. Analytical queries do that to the same rows again and again. So what was taken apart is kept, as
//! chunks of some thousand rows that lie next to each other, with those columns that somebody has wanted so far. The next
//! scan goes from chunk to chunk and touches neither keys nor rows.
//!
//! There are no copies to keep in step, no second format on disk and nothing to configure but how much memory it may take
//! (`Limits::column_cache`): a chunk is thrown away when one of its rows is written to, and made anew by the next scan
//! that comes by. Systems that keep columns beside rows for good (the column store index of Azure SQL Database, the replicas of
//! TiFlash: D. Huang et al., "TiDB: A Raft-based HTAP Database", VLDB 2020) apply every write to both.
//!
//! # What is kept
//!
//! A [`segment`](Segment) is a span of keys, the newest timestamp of all versions in the data space of that span, and columns of
//! the newest versions, deleted rows left out. It serves a reader
//!
//! * whose scan covers the whole span, forwards and without a limit of rows;
//! * whose timestamp is not below the newest one, so that what it sees are the newest versions;
//! * who meets no lock in the span: intents are not kept.
//!
//! Others read rows as ever. So a scan whose bounds cut segments reads at most two of them, at its ends, by rows.
//!
//! # Why it is never stale
//!
//! All writes of the node go through [`Watched`], an engine around the engine. Before a write reaches the data space,
//! the segments that hold its keys are forgotten, and while it is under way nobody begins to gather there. Whoever gathers
//! ([`Gathering`]) says so first; a write to its span that begins meanwhile spoils it, and what it has read is used once and
//! not kept. So at any moment a segment says what the data space holds at that moment, and to look at it is to read the data
//! space then. What [`storage::mvcc`] asks of readers, locks before data, holds if locks are looked at before the segment is.
//!
//! Compaction drops garbage behind the node's back: versions and tombstones that no reader sees. That changes no column, and leaves
//! the newest timestamp too high at worst.
//!
//! # Bounds
//!
//! Columns take at most the bytes that are allowed. When they do, one chunk in [`ADMIT_ONE_IN`] that are read still gets in,
//! and segments that nobody has used since the last look make room (the clock algorithm): a table larger than the cache
//! would otherwise push out in each scan what the next one begins with. Keys and bookkeeping come on top: a few hundred bytes
//! for each segment and each of its columns.
//!
//! # What is missing
//!
//! Followers read rows. Segments serve no scan backwards and none with a limit.

mod kept;
mod watch;

#[cfg(test)]
mod tests;

pub(crate) use watch::Watched;

use bytes::Bytes;
use kept::{Kept, Segment};
use kv_api::Timestamp;
use kv_api::columns::{Chunk, Origin};
use parking_lot::Mutex;

/// How many chunks are passed by for each that is kept once there is no room.
const ADMIT_ONE_IN: u32 = 16;

/// Sizes of the cache.
#[derive(Clone, Copy, Debug)]
pub struct ColumnCacheConfig {
    /// Bytes of columns at most; with 0 nothing is kept.
    pub bytes: usize,
    /// Rows of a chunk at most.
    pub chunk_rows: usize,
    /// Fewer rows are not kept.
    pub least_rows: usize,
}

impl Default for ColumnCacheConfig {
    fn default() -> Self {
        ColumnCacheConfig { bytes: 1 << 30, chunk_rows: 4096, least_rows: 256 }
    }
}

/// The columns that a node keeps.
pub(crate) struct ColumnCache {
    config: ColumnCacheConfig,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    kept: Kept,
    /// Who gathers, and writes that are under way. There are few of either.
    gathering: Vec<Under>,
    writing: Vec<Under>,
    next_id: u64,
    /// Chunks that did not get in since the last one that did.
    passed_by: u32,
}

/// Something that is under way in a span.
struct Under {
    id: u64,
    start: Bytes,
    end: Bytes,
    /// No write has come between.
    undisturbed: bool,
}

impl Under {
    fn overlaps(&self, start: &[u8], end: &[u8]) -> bool {
        &self.start[..] < end && start < &self.end[..]
    }
}

/// How a scan goes on from a key.
pub(crate) enum Step<'a> {
    /// The rows before a key are kept.
    Kept(Chunk, Bytes),
    /// They may be gathered up to some key, and kept.
    Gather(Gathering<'a>),
    /// They are to be read up to a key.
    Read(Bytes),
}

impl ColumnCache {
    pub fn new(config: ColumnCacheConfig) -> Self {
        ColumnCache { config, state: Mutex::default() }
    }

    pub fn config(&self) -> &ColumnCacheConfig {
        &self.config
    }

    /// Where the segment ends that begins at a key, if one does.
    pub fn end_at(&self, at: &[u8]) -> Option<Bytes> {
        self.state.lock().kept.get(at).map(|segment| segment.end.clone())
    }

    /// How a scan that wants columns of the rows between two keys, as of a timestamp, goes on from the first.
    pub fn step(&self, at: &Bytes, end: &Bytes, columns: &[Origin], timestamp: Timestamp) -> Step<'_> {
        if self.config.bytes == 0 {
            return Step::Read(end.clone());
        }
        let mut state = self.state.lock();
        let mut until = state.kept.next_start(at).filter(|next| next < end).unwrap_or_else(|| end.clone());
        if let Some((start, segment)) = state.kept.around(at) {
            until = segment.end.clone().min(end.clone());
            if start != at || segment.end > *end || segment.newest > timestamp {
                return Step::Read(until);
            }
            if let Some(chunk) = segment.chunk(columns) {
                return Step::Kept(chunk, until);
            }
        } else if !state.admits(self.config.bytes) {
            return Step::Read(until);
        }
        if state.writing.iter().any(|write| write.overlaps(at, &until)) {
            return Step::Read(until);
        }
        let id = state.next_id;
        state.next_id += 1;
        state.gathering.push(Under { id, start: at.clone(), end: until.clone(), undisturbed: true });
        Step::Gather(Gathering { cache: self, id, start: at.clone(), until })
    }
}

impl State {
    /// Whether another chunk should be kept.
    fn admits(&mut self, capacity: usize) -> bool {
        if self.kept.bytes() < capacity {
            return true;
        }
        self.passed_by += 1;
        if self.passed_by < ADMIT_ONE_IN {
            return false;
        }
        self.passed_by = 0;
        true
    }

    /// Forgets what is known of the keys from `start` to before `end`.
    fn forget(&mut self, start: &[u8], end: &[u8]) {
        self.kept.forget(start, end);
        for gathering in &mut self.gathering {
            gathering.undisturbed &= !gathering.overlaps(start, end);
        }
    }
}

/// Rows that are being gathered. What was not kept by the time it is dropped is not kept.
pub(crate) struct Gathering<'a> {
    cache: &'a ColumnCache,
    id: u64,
    start: Bytes,
    until: Bytes,
}

impl Gathering<'_> {
    /// Where to stop.
    pub fn until(&self) -> &Bytes {
        &self.until
    }

    /// Keeps columns of all rows from where it began to before `end`, if none of them was written to meanwhile. They
    /// were read as of a timestamp at or above `newest`, and no version there is above that.
    pub fn keep(self, end: Bytes, newest: Timestamp, columns: Vec<Origin>, chunk: &Chunk) {
        let mut state = self.cache.state.lock();
        let undisturbed = state.gathering.iter().any(|one| one.id == self.id && one.undisturbed);
        if undisturbed && end <= self.until {
            let columns = columns.into_iter().zip(chunk.columns.iter().cloned()).collect();
            state.kept.add(self.start.clone(), Segment::new(end, newest, chunk.rows, columns));
            state.kept.make_room(self.cache.config.bytes);
        }
    }
}

impl Drop for Gathering<'_> {
    fn drop(&mut self) {
        self.cache.state.lock().gathering.retain(|one| one.id != self.id);
    }
}
