//! [`StatisticsCell`]: the statistics of a table as all holders of its descriptor share them.

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
    /// Rows changed on this node since they were made.
    changed: AtomicU64,
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
        self.0.version.store(version, Ordering::Release);
    }

    /// The rows of the table when they were made. Nothing is decoded for that.
    pub fn rows(&self) -> Option<f64> {
        (self.version() > 0).then(|| f64::from_bits(self.0.rows.load(Ordering::Relaxed)))
    }

    /// Moves whenever they are replaced; 0 if there are none.
    pub fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
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
