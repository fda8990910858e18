//! [`Watched`]: an engine whose writes are known to a cache before they are carried out.

use super::{ColumnCache, Under};
use bytes::Bytes;
use std::sync::Arc;
use storage::{
    Bounds, Cursor, Engine, FirstKey, GarbageFloors, Op, Pinned, Reader, Space, Stats, StorageResult,
    WriteBatch,
};

/// An engine with a cache of what it holds.
pub(crate) struct Watched {
    engine: Arc<dyn Engine>,
    cache: Arc<ColumnCache>,
}

impl Watched {
    /// Everybody who writes must from now on do so through it.
    pub fn new(engine: Arc<dyn Engine>, cache: Arc<ColumnCache>) -> Self {
        Watched { engine, cache }
    }
}

/// The keys of the data space that an operation writes to, from the first to before the last; the first one alone if there
/// is no last.
fn written<'a>(op: &Op<'a>) -> Option<(&'a [u8], Option<&'a [u8]>)> {
    match *op {
        Op::Put { space: Space::Data, key, .. } | Op::Delete { space: Space::Data, key } => Some((key, None)),
        Op::DeleteRange { space: Space::Data, start, end } => Some((start, Some(end))),
        Op::Put { .. } | Op::Delete { .. } | Op::DeleteRange { .. } => None,
    }
}

/// The key right behind another.
fn behind(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

/// A write to the data space that is under way.
pub(super) struct Writing<'a> {
    cache: &'a ColumnCache,
    id: u64,
}

impl ColumnCache {
    /// Forgets what a batch writes to. Until what this returns is dropped, nobody begins to gather there.
    pub(super) fn before_write(&self, batch: &WriteBatch) -> Option<Writing<'_>> {
        if self.config.bytes == 0 {
            return None;
        }
        let mut bounds: Option<(&[u8], &[u8], bool)> = None;
        for (start, end) in batch.iter().filter_map(|op| written(&op)) {
            let (last, is_open) = end.map_or((start, false), |end| (end, true));
            bounds = Some(match bounds {
                None => (start, last, is_open),
                Some((first, after, open)) if last > after || last == after && open => {
                    (first.min(start), last, is_open)
                }
                Some((first, after, open)) => (first.min(start), after, open),
            });
        }
        let (first, last, is_open) = bounds?;
        let (start, end) = (
            Bytes::copy_from_slice(first),
            if is_open { Bytes::copy_from_slice(last) } else { behind(last) },
        );
        let mut state = self.state.lock();
        let concerns = state.gathering.iter().any(|one| one.overlaps(&start, &end));
        if concerns || state.kept.has_any(&start, &end) {
            for (first, last) in batch.iter().filter_map(|op| written(&op)) {
                match last {
                    Some(last) => state.forget(first, last),
                    None => state.forget(first, &behind(first)),
                }
            }
        }
        let id = state.next_id;
        state.next_id += 1;
        state.writing.push(Under { id, start, end, undisturbed: true });
        Some(Writing { cache: self, id })
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.cache.state.lock().writing.retain(|one| one.id != self.id);
    }
}

impl Reader for Watched {
    fn get(&self, space: Space, key: &[u8]) -> StorageResult<Option<Pinned<'_>>> {
        self.engine.get(space, key)
    }

    fn get_many(&self, space: Space, keys: &[&[u8]]) -> StorageResult<Vec<Option<Pinned<'_>>>> {
        self.engine.get_many(space, keys)
    }

    fn cursor(&self, space: Space, bounds: Bounds<'_>) -> Box<dyn Cursor + '_> {
        self.engine.cursor(space, bounds)
    }

    fn first_key(&self, space: Space, bounds: Bounds<'_>) -> StorageResult<FirstKey> {
        self.engine.first_key(space, bounds)
    }
}

impl Engine for Watched {
    fn write(&self, batch: &WriteBatch, sync: bool) -> StorageResult<()> {
        let _writing = self.cache.before_write(batch);
        self.engine.write(batch, sync)
    }

    fn snapshot(&self) -> Box<dyn Reader + '_> {
        self.engine.snapshot()
    }

    fn flush(&self) -> StorageResult<()> {
        self.engine.flush()
    }

    fn set_garbage_floors(&self, floors: GarbageFloors) {
        self.engine.set_garbage_floors(floors);
    }

    fn stats(&self) -> Stats {
        self.engine.stats()
    }
}
