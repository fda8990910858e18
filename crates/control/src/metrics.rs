//! What control counts.

use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// The metrics of control.
#[derive(Debug)]
pub struct Metrics {
    /// Questions of proxies, by `outcome`.
    pub resolves: IntCounterVec,
    /// From the first question to the node serving.
    pub wake_seconds: Histogram,
    /// Wake-ups given up.
    pub wakes_failed: IntCounter,
    /// Nodes of tenants that ended, by suspension or by accident.
    pub slept: IntCounter,
    /// SQL nodes, by `state`.
    pub nodes: IntGaugeVec,
    /// Tenants that are awake, by `state`.
    pub tenants: IntGaugeVec,
    /// Requests refused at the internal listener.
    pub refused: IntCounter,
    /// Proxies connected.
    pub proxies: IntGauge,
    /// HTTP requests, by `status`.
    pub http: IntCounterVec,
}

impl Metrics {
    /// Registers all of them.
    ///
    /// # Errors
    /// If a name is taken.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let seconds = HistogramOpts::new("dormouse_control_wake_seconds", "Time to wake a tenant")
            .buckets(vec![0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]);
        let metrics = Self {
            resolves: by("dormouse_control_resolves_total", "Questions of proxies", "outcome")?,
            wake_seconds: Histogram::with_opts(seconds)?,
            wakes_failed: IntCounter::new("dormouse_control_wakes_failed_total", "Wake-ups given up")?,
            slept: IntCounter::new("dormouse_control_slept_total", "Tenants whose node ended")?,
            nodes: IntGaugeVec::new(Opts::new("dormouse_control_nodes", "SQL nodes"), &["state"])?,
            tenants: IntGaugeVec::new(Opts::new("dormouse_control_tenants", "Tenants awake"), &["state"])?,
            refused: IntCounter::new("dormouse_control_refused_total", "Refusals at the internal listener")?,
            proxies: IntGauge::new("dormouse_control_proxies", "Proxies connected")?,
            http: by("dormouse_control_http_requests_total", "HTTP requests", "status")?,
        };
        registry.register(Box::new(metrics.resolves.clone()))?;
        registry.register(Box::new(metrics.wake_seconds.clone()))?;
        registry.register(Box::new(metrics.wakes_failed.clone()))?;
        registry.register(Box::new(metrics.slept.clone()))?;
        registry.register(Box::new(metrics.nodes.clone()))?;
        registry.register(Box::new(metrics.tenants.clone()))?;
        registry.register(Box::new(metrics.refused.clone()))?;
        registry.register(Box::new(metrics.proxies.clone()))?;
        registry.register(Box::new(metrics.http.clone()))?;
        Ok(metrics)
    }
}

fn by(name: &str, help: &str, label: &str) -> Result<IntCounterVec, prometheus::Error> {
    IntCounterVec::new(Opts::new(name, help), &[label])
}
