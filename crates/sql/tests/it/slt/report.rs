//! What running the suites came to.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts, and what was not as expected.
#[derive(Default)]
pub struct Report {
    statements: AtomicUsize,
    queries: AtomicUsize,
    analytic: AtomicUsize,
    partial: AtomicUsize,
    failures: Mutex<Vec<String>>,
}

impl Report {
    /// A statement of a suite is run; those of other systems only are not.
    pub fn statement(&self) {
        self.statements.fetch_add(1, Ordering::Relaxed);
    }

    /// A query returned rows; `analytic` if the analytical engine ran at least a part of it, `partial` if KV nodes
    /// aggregated for it.
    pub fn query(&self, analytic: bool, partial: bool) {
        self.queries.fetch_add(1, Ordering::Relaxed);
        self.analytic.fetch_add(usize::from(analytic), Ordering::Relaxed);
        self.partial.fetch_add(usize::from(partial), Ordering::Relaxed);
    }

    /// A statement had another result than expected.
    pub fn failure(&self, what: String) {
        self.failures.lock().expect("nobody panics with it").push(what);
    }

    /// Statements that were run.
    pub fn statements(&self) -> usize {
        self.statements.load(Ordering::Relaxed)
    }

    /// Queries of which the analytical engine ran at least a part.
    pub fn analytic(&self) -> usize {
        self.analytic.load(Ordering::Relaxed)
    }

    /// Queries for which KV nodes aggregated.
    pub fn partial(&self) -> usize {
        self.partial.load(Ordering::Relaxed)
    }

    /// Prints the counts; panics with the failures if there are any.
    pub fn conclude(&self, who: &str) {
        let (statements, queries, analytic) =
            (self.statements(), self.queries.load(Ordering::Relaxed), self.analytic());
        println!("{who}: {statements} statements");
        if queries > 0 {
            println!("{who}: {queries} queries returned rows, {analytic} of them by the analytical engine");
            println!("{who}: for {} of them KV nodes aggregated", self.partial());
        }
        let failures = self.failures.lock().expect("nobody panics with it");
        assert!(failures.is_empty(), "{who}: {} failures\n\n{}", failures.len(), failures.join("\n\n"));
    }
}
