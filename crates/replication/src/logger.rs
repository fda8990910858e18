//! raft-rs logs to `slog`; this passes it on to `tracing`.

use slog::{Drain, Level, Never, OwnedKVList, Record};

struct ToTracing;

impl Drain for ToTracing {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> Result<(), Never> {
        let message = record.msg();
        match record.level() {
            Level::Critical | Level::Error => tracing::error!(target: "raft", "{message}"),
            Level::Warning => tracing::warn!(target: "raft", "{message}"),
            // What raft-rs finds worth telling happens in every election of every group.
            Level::Info => tracing::debug!(target: "raft", "{message}"),
            Level::Debug | Level::Trace => tracing::trace!(target: "raft", "{message}"),
        }
        Ok(())
    }
}

/// A logger for raft-rs.
pub fn logger() -> slog::Logger {
    slog::Logger::root(ToTracing, slog::o!())
}
