//! What statements did, by what they have in common: `pg_stat_statements`.
//!
//! The counts are of one SQL node since it started, or since they were reset. A prepared statement holds on to its
//! entry, so that counting an execution takes a few atomic additions and no lock that sessions share; only the first
//! execution of each looks the entry up.

use super::prepared::Prepared;
use super::view::SessionView;
use crate::parse::Statement;
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use sql_types::Oid;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Statements that are kept. When there are more, the least used twentieth goes.
const MOST: usize = 5000;

/// Whose statement it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub user: Oid,
    pub database: Oid,
    pub query_id: i64,
}

/// What executions of a statement did. Times are in nanoseconds.
#[derive(Debug)]
pub(crate) struct Entry {
    pub key: Key,
    pub text: Arc<str>,
    calls: AtomicU64,
    rows: AtomicU64,
    total: AtomicU64,
    least: AtomicU64,
    most: AtomicU64,
    /// Sum of the squares of the times in milliseconds, as the bits of a float.
    squares: AtomicU64,
    /// No longer among the entries: whoever holds it has to look it up anew.
    gone: AtomicBool,
}

/// The same at one moment. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counts {
    pub calls: u64,
    pub rows: u64,
    pub total: f64,
    pub least: f64,
    pub most: f64,
    pub mean: f64,
    pub deviation: f64,
}

impl Entry {
    fn new(key: Key, text: Arc<str>) -> Self {
        Entry {
            key,
            text,
            calls: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            total: AtomicU64::new(0),
            least: AtomicU64::new(u64::MAX),
            most: AtomicU64::new(0),
            squares: AtomicU64::new(0),
            gone: AtomicBool::new(false),
        }
    }

    fn add(&self, took: Duration, rows: u64) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.total.fetch_add(nanos, Ordering::Relaxed);
        self.least.fetch_min(nanos, Ordering::Relaxed);
        self.most.fetch_max(nanos, Ordering::Relaxed);
        let square = (took.as_secs_f64() * 1e3).powi(2);
        let added = |bits: u64| Some((f64::from_bits(bits) + square).to_bits());
        let _ = self.squares.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
    }

    /// What was counted so far. Executions that end meanwhile may be in some of the numbers only.
    pub(crate) fn counts(&self) -> Counts {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let millis = |nanos: u64| nanos as f64 / 1e6;
        let calls = get(&self.calls);
        let total = millis(get(&self.total));
        let mean = if calls == 0 { 0.0 } else { total / calls as f64 };
        let squares = f64::from_bits(get(&self.squares));
        let variance = if calls == 0 { 0.0 } else { squares / calls as f64 - mean * mean };
        Counts {
            calls,
            rows: get(&self.rows),
            total,
            least: if calls == 0 { 0.0 } else { millis(get(&self.least)) },
            most: millis(get(&self.most)),
            mean,
            deviation: variance.max(0.0).sqrt(),
        }
    }
}

/// The entry that a prepared statement counted in last.
pub(crate) type Held = Mutex<Option<Arc<Entry>>>;

/// What the statements of a node did.
#[derive(Default)]
pub(crate) struct StatementStatistics(RwLock<HashMap<Key, Arc<Entry>>>);

impl StatementStatistics {
    /// Counts an execution.
    pub(crate) fn count(
        &self,
        view: &SessionView,
        prepared: &Prepared,
        statement: &Statement,
        took: Duration,
        rows: u64,
    ) {
        let mut held = prepared.statistics.lock();
        if let Some(entry) = &*held
            && entry.key.user == view.user
            && !entry.gone.load(Ordering::Relaxed)
        {
            return entry.add(took, rows);
        }
        let normalized = statement.normalized();
        let key = Key { user: view.user, database: view.shared.database, query_id: normalized.id };
        let entry = self.entry(key, &normalized.text);
        entry.add(took, rows);
        *held = Some(entry);
    }

    fn entry(&self, key: Key, text: &Arc<str>) -> Arc<Entry> {
        if let Some(entry) = self.0.read().get(&key) {
            return entry.clone();
        }
        let mut entries = self.0.write();
        if entries.len() >= MOST && !entries.contains_key(&key) {
            forget_least_used(&mut entries);
        }
        entries.entry(key).or_insert_with(|| Arc::new(Entry::new(key, text.clone()))).clone()
    }

    /// All entries.
    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        self.0.read().values().cloned().collect()
    }

    /// Forgets the entries of a user, a database and a statement; 0 stands for any.
    pub(crate) fn reset(&self, user: Oid, database: Oid, query_id: i64) {
        self.0.write().retain(|key, entry| {
            let meant = (user == 0 || key.user == user)
                && (database == 0 || key.database == database)
                && (query_id == 0 || key.query_id == query_id);
            entry.gone.fetch_or(meant, Ordering::Relaxed);
            !meant
        });
    }
}

fn forget_least_used(entries: &mut HashMap<Key, Arc<Entry>>) {
    let mut calls: Vec<u64> = entries.values().map(|entry| entry.calls.load(Ordering::Relaxed)).collect();
    let count = (MOST / 20).min(calls.len().saturating_sub(1));
    let (_, limit, _) = calls.select_nth_unstable(count);
    let limit = *limit;
    let mut left = count.max(1);
    entries.retain(|_, entry| {
        let goes = left > 0 && entry.calls.load(Ordering::Relaxed) <= limit;
        left -= usize::from(goes);
        entry.gone.fetch_or(goes, Ordering::Relaxed);
        !goes
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(query_id: i64) -> Key {
        Key { user: 10, database: 5, query_id }
    }

    #[test]
    fn counts_have_mean_and_deviation() {
        let entry = Entry::new(key(1), "select $1".into());
        assert_eq!(entry.counts().least, 0.0);
        for millis in [2, 4, 4, 4, 5, 5, 7, 9] {
            entry.add(Duration::from_millis(millis), 3);
        }
        let counts = entry.counts();
        assert_eq!((counts.calls, counts.rows, counts.total), (8, 24, 40.0));
        assert_eq!((counts.least, counts.most, counts.mean), (2.0, 9.0, 5.0));
        assert!((counts.deviation - 2.0).abs() < 1e-9, "{counts:?}");
    }

    #[test]
    fn the_least_used_go() {
        let statistics = StatementStatistics::default();
        let often = statistics.entry(key(0), &"select".into());
        often.add(Duration::from_millis(1), 1);
        for query_id in 1..=2 * MOST as i64 {
            statistics.entry(key(query_id), &"select".into());
            assert!(statistics.all().len() <= MOST);
        }
        assert!(!often.gone.load(Ordering::Relaxed));
        assert!(statistics.all().iter().any(|entry| entry.key == key(0)));
    }

    #[test]
    fn what_is_reset_is_looked_up_anew() {
        let statistics = StatementStatistics::default();
        let (one, other) = (statistics.entry(key(1), &"a".into()), statistics.entry(key(2), &"b".into()));
        statistics.reset(0, 5, 1);
        assert!(one.gone.load(Ordering::Relaxed) && !other.gone.load(Ordering::Relaxed));
        statistics.reset(11, 0, 0);
        assert_eq!(statistics.all().len(), 1);
        statistics.reset(0, 0, 0);
        assert!(statistics.all().is_empty());
    }
}
