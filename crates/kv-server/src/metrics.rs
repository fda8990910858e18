//! Counters of a KV node, in the process's default Prometheus registry.

use crate::contention::WaitKind;
use kv_api::batch::RequestKind;
use kv_api::contention::WaitEnd;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts,
    core::Collector, exponential_buckets,
};
use std::sync::OnceLock;

/// Names of the request kinds, in the order of [`kind_index`].
pub const KINDS: [&str; 27] = [
    "get",
    "scan",
    "put",
    "conditional_put",
    "delete",
    "delete_range",
    "increment",
    "clear_range",
    "end_txn",
    "refresh",
    "drop_tenant",
    "nodes",
    "drain_node",
    "range_lookup",
    "create_tenant",
    "ranges",
    "configure_tenant",
    "check_replicas",
    "decide_txn",
    "resolve_txn",
    "split_range",
    "list_contention",
    "detach_txn",
    "adopt_txn",
    "configure_span",
    "merge_range",
    "none",
];

/// Where a request kind stands in [`KINDS`].
pub fn kind_index(kind: Option<&RequestKind>) -> usize {
    match kind {
        Some(RequestKind::Get(_)) => 0,
        Some(RequestKind::Scan(_)) => 1,
        Some(RequestKind::Put(_)) => 2,
        Some(RequestKind::ConditionalPut(_)) => 3,
        Some(RequestKind::Delete(_)) => 4,
        Some(RequestKind::DeleteRange(_)) => 5,
        Some(RequestKind::Increment(_)) => 6,
        Some(RequestKind::ClearRange(_)) => 7,
        Some(RequestKind::EndTxn(_)) => 8,
        Some(RequestKind::Refresh(_)) => 9,
        Some(RequestKind::DropTenant(_)) => 10,
        Some(RequestKind::Nodes(_)) => 11,
        Some(RequestKind::DrainNode(_)) => 12,
        Some(RequestKind::RangeLookup(_)) => 13,
        Some(RequestKind::CreateTenant(_)) => 14,
        Some(RequestKind::Ranges(_)) => 15,
        Some(RequestKind::ConfigureTenant(_)) => 16,
        Some(RequestKind::CheckReplicas(_)) => 17,
        Some(RequestKind::DecideTxn(_)) => 18,
        Some(RequestKind::ResolveTxn(_)) => 19,
        Some(RequestKind::SplitRange(_)) => 20,
        Some(RequestKind::ListContention(_)) => 21,
        Some(RequestKind::DetachTxn(_)) => 22,
        Some(RequestKind::AdoptTxn(_)) => 23,
        Some(RequestKind::ConfigureSpan(_)) => 24,
        Some(RequestKind::MergeRange(_)) => 25,
        None => 26,
    }
}

/// The counters.
pub struct Metrics {
    /// Requests by kind, as in [`KINDS`].
    pub requests: Vec<IntCounter>,
    /// Requests the authorizer refused, by kind.
    pub refused: Vec<IntCounter>,
    /// Connections refused for their identity.
    pub refused_connections: IntCounter,
    /// Batches that failed, by kind of error.
    pub errors: IntCounterVec,
    /// Seconds from a batch's arrival to its answer.
    pub latency: Histogram,
    /// Commands per group commit.
    pub group_commands: Histogram,
    /// Requests that waited for a lock.
    pub lock_waits: IntCounter,
    /// Requests that wait for a lock now.
    pub lock_waiters: IntGauge,
    /// Requests that would have waited for a lock, but too many did.
    pub lock_refusals: IntCounter,
    /// Seconds that requests waited, by what for and how it ended; see [`Metrics::wait`].
    waits: Vec<Histogram>,
    /// Ended waits that were forgotten to make room.
    pub events_dropped: IntCounter,
    /// Reads and writes that waited until it was known what became of a prepared transaction.
    pub decision_waits: IntCounter,
    /// Transactions over several ranges that were settled here as a whole, and in how many groups.
    pub settled_together: IntCounter,
    /// See [`Metrics::settled_together`].
    pub settle_groups: IntCounter,
    /// Prepared transactions whose coordinators were gone, and of which this node found out what became.
    pub recovered: IntCounter,
    /// Ranges that absorbed their right neighbours.
    pub merges: IntCounter,
    /// Merges that did not come about.
    pub merges_failed: IntCounter,
    /// Parts of transactions that were left for another coordinator and that nobody took over in time.
    pub detached_expired: IntCounter,
    /// Requests refused because waiting would close a cycle.
    pub deadlocks: IntCounter,
    /// Evaluations that ran out of patience and were begun anew on a task of their own.
    pub long_evaluations: IntCounter,
    /// Bytes of columns that are kept in memory.
    pub column_cache_bytes: IntGauge,
    /// Chunks of kept columns that scans used.
    pub column_chunks_used: IntCounter,
    /// Chunks of columns that were forgotten since one of their rows was written to.
    pub column_chunks_forgotten: IntCounter,
    /// Locks that transactions of high priority took from those of low priority.
    pub locks_taken: IntCounter,
    /// Batches answered by replicas without the lease.
    pub follower_reads: IntCounter,
    /// Promises given to replicas without the lease.
    pub promises: IntCounter,
    /// Comparisons that found replicas to differ.
    pub replicas_differ: IntCounter,
    /// Open connections.
    pub connections: IntGauge,
    /// Transactions known to the node.
    pub transactions: IntGauge,
    /// Messages written to other KV nodes.
    pub peer_sent: IntCounter,
    /// Messages read from other KV nodes.
    pub peer_received: IntCounter,
    /// Messages to and from other KV nodes that were dropped, by reason.
    pub peer_dropped: IntCounterVec,
    /// Bytes written to other KV nodes.
    pub peer_bytes_sent: IntCounter,
    /// Bytes read from other KV nodes.
    pub peer_bytes_received: IntCounter,
    /// How far the wall clocks of other KV nodes are ahead of this one's, in seconds.
    pub clock_offsets: GaugeVec,
    /// KV nodes that this one has a connection to.
    pub peers_connected: IntGauge,
}

fn register<C: Collector + Clone + 'static>(collector: C) -> C {
    // A second node in one process, as tests have, shares the first one's counters.
    if let Err(error) = prometheus::register(Box::new(collector.clone())) {
        tracing::debug!("a counter is not exported: {error}");
    }
    collector
}

fn by_kind(name: &str, help: &str) -> Result<Vec<IntCounter>, prometheus::Error> {
    let family = register(IntCounterVec::new(Opts::new(name, help), &["kind"])?);
    Ok(KINDS.iter().map(|kind| family.with_label_values(&[kind])).collect())
}

const WAIT_KINDS: [&str; 2] = ["lock", "decision"];
const WAIT_ENDS: [&str; 4] = ["granted", "cancelled", "timed_out", "deadlock"];

fn waits() -> Result<Vec<Histogram>, prometheus::Error> {
    let options = HistogramOpts::new("dormouse_kv_wait_seconds", "How long requests waited for others");
    let buckets = exponential_buckets(1e-4, 4.0, 12)?;
    let family = register(HistogramVec::new(options.buckets(buckets), &["for", "end"])?);
    let ends = |kind| WAIT_ENDS.map(|end| family.with_label_values(&[kind, end]));
    Ok(WAIT_KINDS.into_iter().flat_map(ends).collect())
}

impl Metrics {
    /// Seconds that requests waited for something, by how it ended.
    pub fn wait(&self, kind: WaitKind, end: WaitEnd) -> &Histogram {
        // One for each combination, in the order of the labels.
        &self.waits[kind as usize * WAIT_ENDS.len() + end as usize]
    }

    fn new() -> Result<Self, prometheus::Error> {
        let histogram = |name, help, start, factor, count| {
            let buckets = exponential_buckets(start, factor, count)?;
            Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets)).map(register)
        };
        Ok(Metrics {
            requests: by_kind("dormouse_kv_requests_total", "Requests by kind")?,
            refused: by_kind(
                "dormouse_kv_refused_requests_total",
                "Requests the tenant authorizer refused, by kind",
            )?,
            refused_connections: register(IntCounter::new(
                "dormouse_kv_refused_connections_total",
                "Connections refused for their identity",
            )?),
            errors: register(IntCounterVec::new(
                Opts::new("dormouse_kv_errors_total", "Batches that failed, by error"),
                &["error"],
            )?),
            latency: histogram(
                "dormouse_kv_batch_seconds",
                "Time from a batch's arrival to its answer",
                5e-6,
                2.0,
                22,
            )?,
            group_commands: histogram(
                "dormouse_kv_group_commands",
                "Commands per group commit",
                1.0,
                2.0,
                11,
            )?,
            lock_waits: register(IntCounter::new(
                "dormouse_kv_lock_waits_total",
                "Requests that waited for a lock",
            )?),
            lock_waiters: register(IntGauge::new(
                "dormouse_kv_lock_waiters",
                "Requests that wait for a lock now",
            )?),
            lock_refusals: register(IntCounter::new(
                "dormouse_kv_lock_refusals_total",
                "Requests that were refused because too many waited for locks",
            )?),
            waits: waits()?,
            events_dropped: register(IntCounter::new(
                "dormouse_kv_contention_events_dropped_total",
                "Ended waits that were forgotten to make room for later ones",
            )?),
            decision_waits: register(IntCounter::new(
                "dormouse_kv_decision_waits_total",
                "Reads and writes that waited for what becomes of a prepared transaction",
            )?),
            settled_together: register(IntCounter::new(
                "dormouse_kv_settled_together_total",
                "Transactions over several ranges of this node that were settled as a whole",
            )?),
            settle_groups: register(IntCounter::new(
                "dormouse_kv_settle_groups_total",
                "Groups in which such transactions were settled",
            )?),
            recovered: register(IntCounter::new(
                "dormouse_kv_recovered_transactions_total",
                "Prepared transactions whose coordinators were gone",
            )?),
            merges: register(IntCounter::new(
                "dormouse_kv_merges_total",
                "Ranges that absorbed their right neighbours",
            )?),
            merges_failed: register(IntCounter::new(
                "dormouse_kv_merges_failed_total",
                "Merges of ranges that did not come about",
            )?),
            detached_expired: register(IntCounter::new(
                "dormouse_kv_detached_expired_total",
                "Parts of exported transactions that nobody imported in time",
            )?),
            deadlocks: register(IntCounter::new(
                "dormouse_kv_deadlocks_total",
                "Requests refused as a deadlock",
            )?),
            long_evaluations: register(IntCounter::new(
                "dormouse_kv_long_evaluations_total",
                "Evaluations that took long and were begun anew on a task of their own",
            )?),
            column_cache_bytes: register(IntGauge::new(
                "dormouse_kv_column_cache_bytes",
                "Bytes of columns that are kept in memory",
            )?),
            column_chunks_used: register(IntCounter::new(
                "dormouse_kv_column_chunks_used_total",
                "Chunks of kept columns that scans used instead of reading rows",
            )?),
            column_chunks_forgotten: register(IntCounter::new(
                "dormouse_kv_column_chunks_forgotten_total",
                "Chunks of kept columns that were forgotten since one of their rows was written to",
            )?),
            locks_taken: register(IntCounter::new(
                "dormouse_kv_locks_taken_total",
                "Locks that transactions of high priority took from those of low priority",
            )?),
            follower_reads: register(IntCounter::new(
                "dormouse_kv_follower_reads_total",
                "Batches answered by replicas without the lease",
            )?),
            promises: register(IntCounter::new(
                "dormouse_kv_promises_total",
                "Promises given to replicas without the lease",
            )?),
            replicas_differ: register(IntCounter::new(
                "dormouse_kv_replicas_differ_total",
                "Comparisons that found replicas of a range to differ",
            )?),
            connections: register(IntGauge::new("dormouse_kv_connections", "Open connections")?),
            transactions: register(IntGauge::new(
                "dormouse_kv_transactions",
                "Transactions the node keeps state for",
            )?),
            peer_sent: register(IntCounter::new(
                "dormouse_kv_peer_messages_sent_total",
                "Messages written to other KV nodes",
            )?),
            peer_received: register(IntCounter::new(
                "dormouse_kv_peer_messages_received_total",
                "Messages read from other KV nodes",
            )?),
            peer_dropped: register(IntCounterVec::new(
                Opts::new(
                    "dormouse_kv_peer_messages_dropped_total",
                    "Messages to and from other KV nodes that were dropped, by reason",
                ),
                &["reason"],
            )?),
            peer_bytes_sent: register(IntCounter::new(
                "dormouse_kv_peer_sent_bytes_total",
                "Bytes written to other KV nodes",
            )?),
            peer_bytes_received: register(IntCounter::new(
                "dormouse_kv_peer_received_bytes_total",
                "Bytes read from other KV nodes",
            )?),
            clock_offsets: register(GaugeVec::new(
                Opts::new(
                    "dormouse_kv_clock_offset_seconds",
                    "How far the wall clock of another KV node is ahead of this one's",
                ),
                &["node"],
            )?),
            peers_connected: register(IntGauge::new(
                "dormouse_kv_peers_connected",
                "KV nodes that this one has a connection to",
            )?),
        })
    }
}

/// The counters of this process.
///
/// # Panics
/// If a name above is not a valid Prometheus name, which the first test to run would show.
pub fn metrics() -> &'static Metrics {
    static METRICS: OnceLock<Metrics> = OnceLock::new();
    METRICS.get_or_init(|| Metrics::new().expect("names of metrics are valid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_exported() {
        metrics().requests[0].inc();
        metrics().group_commands.observe(3.0);
        let names: Vec<_> = prometheus::gather().iter().map(|family| family.name().to_owned()).collect();
        for name in
            ["dormouse_kv_requests_total", "dormouse_kv_group_commands", "dormouse_kv_refused_requests_total"]
        {
            assert!(names.iter().any(|found| found == name), "{name} not in {names:?}");
        }
    }
}
