//! [`StatisticsCell`]: the statistics of a table as all holders of its descriptor share them.

use super::writes::Writes;
use super::{TableStatistics, auto, record};
use bytes::Bytes;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
enum State {
    /// There are none.
    #[default]
    None,
    /// As they are stored.
    Stored(Bytes),
    Known(Arc<TableStatistics>),
}

#[derive(Default)]
struct Shared {
    state: RwLock<State>,
    /// Moves whenever they are replaced.
    version: AtomicU64,
    /// Rows that they count, if there are any: the bits of a double.
    rows: AtomicU64,
    /// Moves whenever plans are to be made anew.
    revision: AtomicU64,
    /// Rows changed on this node since they were made.
    changed: AtomicU64,
    writes: Writes,
}

/// The statistics of a table. Clones share them: a descriptor that a schema change derives from another has
/// the same; it gets a cell of its own where the contents are others.
#[derive(Clone, Default)]
pub struct StatisticsCell(Arc<Shared>);

impl StatisticsCell {
    /// Statistics that are known.
    pub fn of(statistics: TableStatistics) -> Self {
        let cell = StatisticsCell::default();
        cell.set(Arc::new(statistics));
        cell
    }

    /// Statistics as they are stored, decoded when they are first asked for.
    pub fn stored(value: Bytes) -> Self {
        let cell = StatisticsCell::default();
        cell.0.version.store(record::version(&value), Ordering::Release);
        cell.0.rows.store(record::rows(&value).to_bits(), Ordering::Relaxed);
        *cell.0.state.write() = State::Stored(value);
        cell
    }

    /// The statistics, if there are any. Those that cannot be read count as none.
    pub fn get(&self) -> Option<Arc<TableStatistics>> {
        let stored = match &*self.0.state.read() {
            State::None => return None,
            State::Known(statistics) => return Some(statistics.clone()),
            State::Stored(value) => value.clone(),
        };
        let decoded = record::decode(&stored).inspect_err(|error| {
            tracing::warn!(%error, "the statistics of a table cannot be read; ANALYZE makes new ones");
        });
        let decoded = decoded.ok().map(Arc::new);
        let mut state = self.0.state.write();
        if let State::Stored(_) = &*state {
            *state = decoded.clone().map_or(State::None, State::Known);
        }
        decoded
    }

    /// Replaces them.
    pub fn set(&self, statistics: Arc<TableStatistics>) {
        let mut state = self.0.state.write();
        let version = statistics.version.max(self.version() + 1);
        self.0.rows.store(statistics.rows.to_bits(), Ordering::Relaxed);
        *state = State::Known(statistics);
        self.0.writes.forget();
        self.0.version.store(version, Ordering::Release);
        self.move_revision();
    }

    /// The rows of the table when they were made. Nothing is decoded for that.
    pub fn rows(&self) -> Option<f64> {
        (self.version() > 0).then(|| f64::from_bits(self.0.rows.load(Ordering::Relaxed)))
    }

    /// Moves whenever they are replaced; 0 if there are none.
    pub fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    /// Moves whenever plans that were made with the statistics are to be made anew.
    pub fn revision(&self) -> u64 {
        self.0.revision.load(Ordering::Acquire)
    }

    fn move_revision(&self) {
        self.0.revision.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether so much is written to the table that KV nodes keep little of its columns; not known of other nodes' writes.
    pub fn is_written_to(&self) -> bool {
        self.0.writes.are_many()
    }

    /// Takes note of changed rows, of which some columns may have been kept. True if from now on much is written:
    /// [`end_window`](Self::end_window) is to be called after each [`super::writes::WINDOW`] until it says otherwise.
    pub fn note_writes(&self, rows: u64) -> bool {
        let many = self.rows().is_some_and(|of| self.0.writes.note(rows, of));
        if many {
            self.move_revision();
        }
        many
    }

    /// Whether there still is much written to the table.
    pub fn end_window(&self) -> bool {
        let were_many = self.0.writes.are_many();
        let many = self.0.writes.end_window(self.rows().unwrap_or(0.0));
        if were_many && !many {
            self.move_revision();
        }
        many
    }

    /// Takes note of changed rows. True if it was these that made it time for new statistics.
    pub fn note_changes(&self, rows: u64) -> bool {
        let before = self.0.changed.fetch_add(rows, Ordering::Relaxed);
        let counted = self.rows().unwrap_or(0.0);
        !auto::is_much(before, counted) && auto::is_much(before.saturating_add(rows), counted)
    }

    /// Rows changed since the statistics were made, as far as this node knows.
    pub fn changes(&self) -> u64 {
        self.0.changed.load(Ordering::Relaxed)
    }

    /// Takes back changes that the statistics now know of.
    pub fn forget_changes(&self, rows: u64) {
        let less = |changed: u64| Some(changed.saturating_sub(rows));
        let _ = self.0.changed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Whether it is time for new ones.
    pub fn is_due(&self) -> bool {
        auto::is_much(self.changes(), self.rows().unwrap_or(0.0))
    }
}

impl PartialEq for StatisticsCell {
    /// They are no part of what a descriptor says.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl std::fmt::Debug for StatisticsCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("StatisticsCell").field(&self.version()).finish()
    }
}
