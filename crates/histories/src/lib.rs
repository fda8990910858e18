//! What transactions saw and did, and whether a database that keeps its promises can have answered so.
//!
//! # What it is for
//!
//! A program that uses a database writes down every transaction: when it was asked for, when it was answered,
//! what it read and what it wrote ([`History`]). [`check`] finds what serializable transactions could not have
//! seen and says why ([`Anomaly`]). It knows nothing of the database.
//!
//! # How
//!
//! The idea is that of Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental
//! Observations" (VLDB 2020). Every value is written once, so a read names the write that it saw. A list that
//! is only appended to tells its own history: whoever reads `[1, 2, 3]` knows that 1 came before 2 and 2 before
//! 3 (section 3). From that follow the dependencies of Adya, "Weak Consistency" (MIT, 1999, section 3.1):
//!
//! | edge | T1 → T2 because |
//! |---|---|
//! | `ww` | T2 wrote the version that follows one of T1 |
//! | `wr` | T2 read a version of T1 |
//! | `rw` | T2 wrote the version that follows one that T1 read |
//!
//! Serializable transactions have an order that agrees with all edges, so a cycle is an anomaly, named after
//! the edges it needs ([`Class`]). Cycles are looked for in strongly connected components (Tarjan, SIAM Journal
//! on Computing 1, 1972), the shortest by breadth-first search, and the weakest class first.
//!
//! Registers tell less. A transaction that reads a value and then writes another says that the second came
//! later, and so does time: see [`mod@registers`].
//!
//! # What is asked of whom
//!
//! * SERIALIZABLE transactions: everything. Besides, every object by itself is to be up to date: a transaction
//!   sees every write to it that was acknowledged before the transaction began.
//! * READ COMMITTED transactions: classes G0 and G1. No `rw` edge leaves them (Adya, section 5.5.3, "mixing").
//! * [`Options::strict`] asks for strict serializability as well, an order that agrees with time over all
//!   objects; what only that forbids has a class of its own.
//!
//! A transaction without a known outcome committed if somebody saw a write of it, and counts for nothing
//! otherwise. Reads of transactions that did not commit are not judged.
//!
//! # Missing
//!
//! Predicate reads. Anomalies among the unknown: a cycle that needs the order of two versions nobody read.
//! An absence of anomalies is no proof.
//!
//! # Cost
//!
//! O(n log n) in values read, and the search for cycles only where there are some; see [`mod@cycles`] for its
//! bound. A hundred thousand transactions take seconds.

mod anomaly;
mod cycles;
mod graph;
mod history;
mod index;
mod internal;
pub mod jsonl;
mod lists;
mod registers;
mod report;
mod time;

pub use anomaly::{Anomaly, Class};
pub use history::{History, Isolation, Object, Op, Outcome, Txn};

use graph::Graph;
use index::Index;
use report::Report;

/// What to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether to look for [`Class::Strict`] too.
    pub strict: bool,
    /// How many anomalies of one class are returned; others are dropped.
    pub per_class: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { strict: false, per_class: 10 }
    }
}

/// Finds anomalies, weakest class first. Any may follow from another: a lost append also makes reads stale.
pub fn check(history: &History, options: Options) -> Vec<Anomaly> {
    let mut report = Report::new(history, options.per_class);
    let index = Index::new(history, &mut report);
    let mut graph = Graph::default();
    internal::check(&index, &mut report);
    lists::check(&index, &mut graph, &mut report);
    registers::check(&index, &mut graph, &mut report);
    if options.strict {
        time::add_edges(&index, &mut graph);
    }
    cycles::find(&graph.finish(history.txns.len()), &mut report);
    report.finish()
}
