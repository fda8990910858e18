//! The in-memory engine: for tests and simulation.
//!
//! It keeps two states, what readers see and what is on the imaginary disk. A write without `sync`
//! changes the first; a write with `sync` makes all writes before it durable, as a write-ahead log
//! does. [`MemoryEngine::crash`] goes back to the durable state, [`MemoryEngine::crash_keeping`] to one a
//! little newer, and [`MemoryEngine::fail_writes`] and [`MemoryEngine::fail_writes_after`] make writes fail.

use crate::engine::{Bounds, Cursor, Engine, Op, Pinned, Reader, Space, Stats, WriteBatch};
use crate::error::{StorageError, StorageResult};
use crate::garbage::GarbageFloors;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

type Map = BTreeMap<Bytes, Bytes>;

/// One map per space, shared with the cursors and snapshots that still look at an older state.
#[derive(Clone, Default)]
struct Spaces([Arc<Map>; Space::ALL.len()]);

impl Spaces {
    fn map(&self, space: Space) -> &Arc<Map> {
        &self.0[space as usize]
    }

    fn apply(&mut self, batch: &WriteBatch) {
        for op in batch.iter() {
            match op {
                Op::Put { space, key, value } => {
                    self.map_mut(space).insert(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
                }
                Op::Delete { space, key } => {
                    self.map_mut(space).remove(key);
                }
                Op::DeleteRange { space, start, end } => {
                    let map = self.map_mut(space);
                    let mut tail = map.split_off(start);
                    let mut after = tail.split_off(end);
                    map.append(&mut after);
                }
            }
        }
    }

    fn map_mut(&mut self, space: Space) -> &mut Map {
        Arc::make_mut(&mut self.0[space as usize])
    }
}

#[derive(Default)]
struct State {
    visible: Spaces,
    durable: Spaces,
    unsynced: Vec<WriteBatch>,
    failure: Option<StorageError>,
    /// How many writes still succeed, and how those after them fail.
    fuse: Option<(u64, StorageError)>,
    syncs: u64,
}

/// An engine in memory that can crash.
#[derive(Default)]
pub struct MemoryEngine {
    state: Mutex<State>,
}

impl MemoryEngine {
    /// An empty engine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Loses every write that no later sync made durable.
    pub fn crash(&self) {
        let mut state = self.state.lock();
        state.unsynced.clear();
        state.visible = state.durable.clone();
    }

    /// Loses the writes that no later sync made durable, but for the first `writes` of them: what an
    /// operating system happened to write out before the power failed.
    pub fn crash_keeping(&self, writes: usize) {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.unsynced.drain(..).take(writes).for_each(|batch| state.durable.apply(&batch));
        state.visible = state.durable.clone();
    }

    /// What a crash would leave, as an engine of its own: whoever still writes to this one is of another
    /// world.
    pub fn after_crash(&self) -> MemoryEngine {
        let durable = self.state.lock().durable.clone();
        let state = State { visible: durable.clone(), durable, ..State::default() };
        MemoryEngine { state: Mutex::new(state) }
    }

    /// Makes every write fail with `error` until called with `None`.
    pub fn fail_writes(&self, error: Option<StorageError>) {
        self.state.lock().failure = error;
    }

    /// Makes writes fail with the error after so many have succeeded, until called with `None`.
    pub fn fail_writes_after(&self, fuse: Option<(u64, StorageError)>) {
        self.state.lock().fuse = fuse;
    }

    /// How many writes asked for durability so far.
    pub fn syncs(&self) -> u64 {
        self.state.lock().syncs
    }

    fn spaces(&self) -> Spaces {
        self.state.lock().visible.clone()
    }
}

impl Reader for MemoryEngine {
    fn get(&self, space: Space, key: &[u8]) -> StorageResult<Option<Pinned<'_>>> {
        Ok(self.state.lock().visible.map(space).get(key).cloned().map(Pinned::Shared))
    }

    fn cursor(&self, space: Space, bounds: Bounds<'_>) -> Box<dyn Cursor + '_> {
        Box::new(MemoryCursor::new(Arc::clone(self.state.lock().visible.map(space)), bounds))
    }
}

impl Engine for MemoryEngine {
    fn write(&self, batch: &WriteBatch, sync: bool) -> StorageResult<()> {
        let mut state = self.state.lock();
        if let Some(error) = &state.failure {
            return Err(error.clone());
        }
        if let Some((writes, error)) = &mut state.fuse {
            *writes = writes.checked_sub(1).ok_or_else(|| error.clone())?;
        }
        state.visible.apply(batch);
        state.unsynced.push(batch.clone());
        if sync {
            let state = &mut *state;
            state.syncs += 1;
            state.unsynced.drain(..).for_each(|batch| state.durable.apply(&batch));
        }
        Ok(())
    }

    fn snapshot(&self) -> Box<dyn Reader + '_> {
        Box::new(Snapshot { spaces: self.spaces() })
    }

    fn flush(&self) -> StorageResult<()> {
        self.write(&WriteBatch::new(), true)
    }

    fn set_garbage_floors(&self, floors: GarbageFloors) {
        // Through the durable state as well: garbage does not come back.
        let mut state = self.state.lock();
        let state = &mut *state;
        for spaces in [&mut state.visible, &mut state.durable] {
            for space in [Space::Data, Space::History] {
                spaces.map_mut(space).retain(|key, value| !floors.drops(space, key, value));
            }
        }
    }

    fn stats(&self) -> Stats {
        let spaces = self.spaces();
        let bytes = |map: &Arc<Map>| map.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        Stats { memtable_bytes: spaces.0.iter().map(bytes).sum::<usize>() as u64, ..Stats::default() }
    }
}

struct Snapshot {
    spaces: Spaces,
}

impl Reader for Snapshot {
    fn get(&self, space: Space, key: &[u8]) -> StorageResult<Option<Pinned<'_>>> {
        Ok(self.spaces.map(space).get(key).cloned().map(Pinned::Shared))
    }

    fn cursor(&self, space: Space, bounds: Bounds<'_>) -> Box<dyn Cursor + '_> {
        Box::new(MemoryCursor::new(Arc::clone(self.spaces.map(space)), bounds))
    }
}

struct MemoryCursor {
    map: Arc<Map>,
    lower: Bytes,
    upper: Option<Bytes>,
    here: Option<(Bytes, Bytes)>,
}

impl MemoryCursor {
    fn new(map: Arc<Map>, bounds: Bounds<'_>) -> Self {
        MemoryCursor {
            map,
            lower: Bytes::copy_from_slice(bounds.lower),
            upper: bounds.upper.map(Bytes::copy_from_slice),
            here: None,
        }
    }

    fn first_from(&self, from: Bound<&[u8]>) -> Option<(Bytes, Bytes)> {
        let (key, value) = self.map.range::<[u8], _>((from, Bound::Unbounded)).next()?;
        let inside = self.upper.as_ref().is_none_or(|upper| key < upper);
        inside.then(|| (key.clone(), value.clone()))
    }

    fn last_to(&self, to: Bound<&[u8]>) -> Option<(Bytes, Bytes)> {
        let (key, value) = self.map.range::<[u8], _>((Bound::Unbounded, to)).next_back()?;
        (*key >= self.lower).then(|| (key.clone(), value.clone()))
    }
}

impl Cursor for MemoryCursor {
    fn seek(&mut self, key: &[u8]) {
        self.here = self.first_from(Bound::Included(key.max(&self.lower[..])));
    }

    fn seek_for_prev(&mut self, key: &[u8]) {
        self.here = match &self.upper {
            Some(upper) if key >= &upper[..] => self.last_to(Bound::Excluded(&upper[..])),
            _ => self.last_to(Bound::Included(key)),
        };
    }

    fn seek_to_first(&mut self) {
        self.here = self.first_from(Bound::Included(&self.lower[..]));
    }

    fn seek_to_last(&mut self) {
        self.here = match &self.upper {
            Some(upper) => self.last_to(Bound::Excluded(&upper[..])),
            None => self.last_to(Bound::Unbounded),
        };
    }

    fn next(&mut self) {
        if let Some((key, _)) = self.here.take() {
            self.here = self.first_from(Bound::Excluded(&key[..]));
        }
    }

    fn prev(&mut self) {
        if let Some((key, _)) = self.here.take() {
            self.here = self.last_to(Bound::Excluded(&key[..]));
        }
    }

    fn item(&self) -> Option<(&[u8], &[u8])> {
        self.here.as_ref().map(|(key, value)| (&key[..], &value[..]))
    }

    fn status(&self) -> StorageResult<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(engine: &MemoryEngine, key: &[u8], sync: bool) -> StorageResult<()> {
        let mut batch = WriteBatch::new();
        batch.put(Space::Data, key, b"v");
        engine.write(&batch, sync)
    }

    fn has(engine: &MemoryEngine, key: &[u8]) -> bool {
        engine.get(Space::Data, key).is_ok_and(|value| value.is_some())
    }

    #[test]
    fn a_crash_may_keep_the_first_of_what_was_not_synced() {
        let engine = MemoryEngine::new();
        for (key, sync) in [(b"a", true), (b"b", false), (b"c", false)] {
            assert_eq!(put(&engine, key, sync), Ok(()));
        }
        engine.crash_keeping(1);
        assert!(has(&engine, b"a") && has(&engine, b"b") && !has(&engine, b"c"));
        engine.crash();
        assert!(has(&engine, b"b"), "what was kept is on the disk");
    }

    #[test]
    fn writes_fail_after_so_many() {
        let engine = MemoryEngine::new();
        engine.fail_writes_after(Some((1, StorageError::Io("broken".to_owned()))));
        assert_eq!(put(&engine, b"a", true), Ok(()));
        assert!(put(&engine, b"b", true).is_err() && put(&engine, b"b", true).is_err());
        engine.fail_writes_after(None);
        assert_eq!(put(&engine, b"b", true), Ok(()));
    }
}
