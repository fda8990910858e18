//! What a SQL node counts.

use prometheus::{
    Histogram, IntCounter, IntCounterVec, IntGauge, register_histogram, register_int_counter,
    register_int_counter_vec, register_int_gauge,
};
use std::sync::LazyLock;

/// The metrics of the SQL node, registered with the process's registry.
pub struct Metrics {
    /// Sessions open now.
    pub sessions: IntGauge,
    /// Sessions opened since the start.
    pub sessions_total: IntCounter,
    /// Statements executed.
    pub statements: IntCounter,
    /// Statements that failed, by class of SQLSTATE (its first two characters).
    pub errors: IntCounterVec,
    /// Failed authentications.
    pub authentication_failures: IntCounter,
    /// Seconds from a statement's start to its last row being buffered.
    pub statement_seconds: Histogram,
}

/// The metrics of this process. Registration can only fail if a name is used twice, which the first
/// start of any SQL node would show.
pub static METRICS: LazyLock<Metrics> = LazyLock::new(|| Metrics {
    sessions: register_int_gauge!("dormouse_sql_sessions", "Sessions open now").expect("unique name"),
    sessions_total: register_int_counter!("dormouse_sql_sessions_total", "Sessions opened")
        .expect("unique name"),
    statements: register_int_counter!("dormouse_sql_statements_total", "Statements executed")
        .expect("unique name"),
    errors: register_int_counter_vec!(
        "dormouse_sql_errors_total",
        "Failed statements by class of SQLSTATE",
        &["class"]
    )
    .expect("unique name"),
    authentication_failures: register_int_counter!(
        "dormouse_sql_authentication_failures_total",
        "Failed authentications"
    )
    .expect("unique name"),
    statement_seconds: register_histogram!(
        "dormouse_sql_statement_seconds",
        "Time to run a statement",
        vec![0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0]
    )
    .expect("unique name"),
});
