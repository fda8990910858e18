//! Counters of the client.

use prometheus::IntCounter;
use std::sync::OnceLock;

/// A counter, if it could be made.
pub struct Counter(Option<IntCounter>);

impl Counter {
    /// Counts one more.
    pub fn inc(&self) {
        if let Some(counter) = &self.0 {
            counter.inc();
        }
    }
}

/// The client's counters, shared by the process.
pub struct Metrics {
    /// Batches handed to a connection.
    pub batches: Counter,
    /// Connections made.
    pub connections: Counter,
    /// Batches sent to nodes that do not hold the lease.
    pub redirects: Counter,
    /// Ranges looked up.
    pub lookups: Counter,
    /// Batches whose connection was lost before the answer.
    pub lost: Counter,
    /// Commits whose outcome is not known.
    pub ambiguous: Counter,
    /// Batches of buffered writes sent as intents.
    pub flushes: Counter,
    /// Snapshots that had to move because something read may lie before the transaction's begin.
    pub uncertain: Counter,
    /// Commits of transactions with writes in several ranges.
    pub wide_commits: Counter,
    /// Those of them that took one round of consensus.
    pub parallel_commits: Counter,
    /// Transactions handed to another process.
    pub exports: Counter,
    /// Transactions taken over from another process.
    pub imports: Counter,
    /// Such that were not to be had.
    pub imports_refused: Counter,
}

/// The counters, registered at first use.
pub fn metrics() -> &'static Metrics {
    static METRICS: OnceLock<Metrics> = OnceLock::new();
    METRICS.get_or_init(|| Metrics {
        batches: counter("dormouse_kv_client_batches_total", "Batches sent to KV nodes."),
        connections: counter("dormouse_kv_client_connections_total", "Connections made to KV nodes."),
        redirects: counter(
            "dormouse_kv_client_redirects_total",
            "Batches sent to KV nodes that do not hold the lease.",
        ),
        lookups: counter("dormouse_kv_client_lookups_total", "Ranges looked up."),
        lost: counter("dormouse_kv_client_lost_total", "Batches whose connection was lost under them."),
        ambiguous: counter("dormouse_kv_client_ambiguous_total", "Commits whose outcome is not known."),
        flushes: counter("dormouse_kv_client_flushes_total", "Batches of writes sent as intents."),
        uncertain: counter(
            "dormouse_kv_client_uncertain_total",
            "Snapshots moved because of writes that may lie before the transaction's begin.",
        ),
        wide_commits: counter(
            "dormouse_kv_client_wide_commits_total",
            "Commits of transactions with writes in several ranges.",
        ),
        parallel_commits: counter(
            "dormouse_kv_client_parallel_commits_total",
            "Commits over several ranges that took one round.",
        ),
        exports: counter("dormouse_kv_client_exports_total", "Transactions handed to another process."),
        imports: counter("dormouse_kv_client_imports_total", "Transactions taken over from another process."),
        imports_refused: counter(
            "dormouse_kv_client_imports_refused_total",
            "Transactions that were to be taken over and could not be.",
        ),
    })
}

fn counter(name: &'static str, help: &'static str) -> Counter {
    let counter = IntCounter::new(name, help).ok();
    // One that is registered already is counted, but not shown.
    let _ = counter.clone().map(|counter| prometheus::register(Box::new(counter)));
    Counter(counter)
}
