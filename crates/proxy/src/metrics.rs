//! What the proxy counts.

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
    exponential_buckets,
};

/// The proxy's metrics. None has a label that a client can choose.
#[derive(Debug)]
pub struct Metrics {
    /// Connections accepted.
    pub connections_total: IntCounter,
    /// Sessions open now.
    pub sessions: IntGauge,
    /// Connections whose startup packet is not complete.
    pub starting: IntGauge,
    /// Time from a complete startup packet to the first ReadyForQuery, of running tenants.
    pub startup_warm: Histogram,
    /// The same of tenants that had to be woken.
    pub startup_cold: Histogram,
    /// Bytes of running sessions.
    pub bytes_from_clients: IntCounter,
    /// Bytes of running sessions.
    pub bytes_to_clients: IntCounter,
    /// Errors the proxy gave clients, by SQLSTATE.
    pub errors: IntCounterVec,
    /// CancelRequests, by what became of them.
    pub cancels: IntCounterVec,
    /// Attempts to reach a SQL node that failed and were repeated.
    pub node_retries: IntCounter,
    /// Sessions that lost their SQL node.
    pub nodes_lost: IntCounter,
    /// Whether control is connected.
    pub control_connected: IntGauge,
}

impl Metrics {
    /// Makes the metrics and registers them.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let startup = HistogramVec::new(
            HistogramOpts::new(
                "dormouse_proxy_startup_seconds",
                "From a complete startup packet to the first ReadyForQuery. Cold: the tenant had to be woken.",
            )
            .buckets(exponential_buckets(0.000_5, 2.0, 17)?),
            &["start"],
        )?;
        let bytes = IntCounterVec::new(
            Opts::new("dormouse_proxy_bytes_total", "Bytes relayed, by where they came from."),
            &["from"],
        )?;
        registry.register(Box::new(startup.clone()))?;
        registry.register(Box::new(bytes.clone()))?;
        Ok(Self {
            connections_total: counter(registry, "connections_total", "Connections accepted.")?,
            sessions: gauge(registry, "sessions", "Sessions open.")?,
            starting: gauge(
                registry,
                "starting_connections",
                "Connections without a complete startup packet.",
            )?,
            startup_warm: startup.with_label_values(&["warm"]),
            startup_cold: startup.with_label_values(&["cold"]),
            bytes_from_clients: bytes.with_label_values(&["client"]),
            bytes_to_clients: bytes.with_label_values(&["node"]),
            errors: counters(registry, "errors_total", "Errors given to clients, by SQLSTATE.", "code")?,
            cancels: counters(registry, "cancels_total", "CancelRequests, by outcome.", "outcome")?,
            node_retries: counter(registry, "node_retries_total", "Failed attempts to reach a SQL node.")?,
            nodes_lost: counter(registry, "nodes_lost_total", "Sessions that lost their SQL node.")?,
            control_connected: gauge(registry, "control_connected", "Whether control is connected.")?,
        })
    }
}

fn name(suffix: &str) -> String {
    format!("dormouse_proxy_{suffix}")
}

fn counter(registry: &Registry, suffix: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
    let metric = IntCounter::new(name(suffix), help)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn counters(
    registry: &Registry,
    suffix: &str,
    help: &str,
    label: &str,
) -> Result<IntCounterVec, prometheus::Error> {
    let metric = IntCounterVec::new(Opts::new(name(suffix), help), &[label])?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn gauge(registry: &Registry, suffix: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
    let metric = IntGauge::new(name(suffix), help)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// Counts one more for as long as it lives.
#[derive(Debug)]
pub(crate) struct Held(IntGauge);

impl Held {
    pub fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.dec();
    }
}
