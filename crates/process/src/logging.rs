//! Structured logs: JSON lines on standard error, or plain text when that is a terminal.

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Environment variable with the filter, as in `info,kv_server=debug`.
pub const FILTER_VARIABLE: &str = "DORMOUSE_LOG";

/// Starts logging for this process, with this filter unless the environment names another. A second call
/// does nothing.
pub fn start(default_filter: &str) {
    let filter = EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| EnvFilter::new(default_filter));
    // A line that cannot be written, on a full disk say, is lost: complaining about it on the same file would
    // panic.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    // Fails only if logging was started before.
    let _ = if std::io::stderr().is_terminal() {
        builder.try_init()
    } else {
        builder.json().flatten_event(true).with_current_span(false).try_init()
    };
}
