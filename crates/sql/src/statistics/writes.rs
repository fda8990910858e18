//! Whether so much of a table is written to that KV nodes keep little of its columns.
//!
//! KV nodes keep columns in chunks of some thousand rows and forget a chunk when one of its rows is written to, so what matters is
//! how many rows are changed between two scans. Nobody knows when scans come; what is counted is the rows that this node changes in a
//! [`WINDOW`]. One that has changed as many rows as the table has chunks has spoilt most of them if the rows lie anywhere.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long changes are counted, and how long a table counts as written to at least.
pub const WINDOW: Duration = Duration::from_secs(30);
/// Rows of a chunk, more or less.
const CHUNK_ROWS: f64 = 4_096.0;
/// Changed rows that spoil nothing worth mentioning.
const FEW: f64 = 16.0;

/// What is written to a table.
#[derive(Debug, Default)]
pub struct Writes {
    rows: AtomicU64,
    many: AtomicBool,
}

impl Writes {
    /// Whether there are so many that columns are not kept for long.
    pub fn are_many(&self) -> bool {
        self.many.load(Ordering::Relaxed)
    }

    /// Takes note of changed rows of a table with so many rows. True if there are many from now on: [`end_window`](Self::end_window)
    /// is to be called after each [`WINDOW`] then.
    pub fn note(&self, rows: u64, of: f64) -> bool {
        let changed = self.rows.fetch_add(rows, Ordering::Relaxed).saturating_add(rows);
        is_much(changed, of) && !self.many.swap(true, Ordering::Relaxed)
    }

    /// Ends a window. False if there are not many any more.
    pub fn end_window(&self, of: f64) -> bool {
        let many = is_much(self.rows.swap(0, Ordering::Relaxed), of) && self.are_many();
        self.many.store(many, Ordering::Relaxed);
        many
    }

    /// Forgets what was written.
    pub fn forget(&self) {
        self.rows.store(0, Ordering::Relaxed);
        self.many.store(false, Ordering::Relaxed);
    }
}

fn is_much(changed: u64, of: f64) -> bool {
    changed as f64 > FEW + of / CHUNK_ROWS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_many_from_the_first_that_is_too_much_to_a_window_without() {
        let writes = Writes::default();
        assert!(!writes.note(20, 40_960.0) && !writes.are_many());
        assert!(writes.note(7, 40_960.0) && writes.are_many(), "a row for each of ten chunks, and a few");
        assert!(!writes.note(7, 40_960.0), "it is said once");
        assert!(writes.end_window(40_960.0) && writes.are_many());
        assert!(!writes.note(26, 40_960.0));
        assert!(!writes.end_window(40_960.0) && !writes.are_many());
        assert!(writes.note(27, 40_960.0));
        writes.forget();
        assert!(!writes.are_many() && !writes.end_window(40_960.0));
    }
}
