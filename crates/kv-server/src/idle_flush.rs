//! Writing out what is in memory while nobody writes.
//!
//! An engine writes a memtable out when it is full. On a node that has gone quiet it never is: what its tenants wrote
//! before they fell asleep, and what making them took, would stay in memory and in the write-ahead log until the node
//! ends. So a store to which nothing was written for [`QUIET`] is flushed, once, if that gives back at least
//! [`WORTH_BYTES`]. Flushing more often would leave many small files to be compacted.

use std::sync::{Arc, Weak};
use std::time::Duration;
use storage::Engine;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(10);
/// How long nothing must have been written.
const QUIET: Duration = Duration::from_secs(30);
/// What may be written meanwhile: signs of life, the clock of the cluster's own range.
const SLACK_BYTES: u64 = 256 << 10;
/// What must be in memory besides what memtables take that are empty.
const WORTH_BYTES: u64 = 1 << 20;

/// When a store is flushed: pure.
#[derive(Debug, Default)]
struct IdleFlush {
    /// Bytes of memtables when something was written last.
    since: u64,
    /// For how long nothing was written.
    quiet: Duration,
    /// Bytes of memtables that are empty, as far as is known; absent until something was flushed.
    empty: Option<u64>,
}

impl IdleFlush {
    /// Takes in how many bytes are in memtables, `after` the last time. Says whether they should be written out.
    fn look(&mut self, bytes: u64, after: Duration) -> bool {
        // Spaces are written out by themselves, too.
        self.empty = self.empty.map(|empty| empty.min(bytes));
        if bytes.abs_diff(self.since) > SLACK_BYTES {
            (self.since, self.quiet) = (bytes, Duration::ZERO);
            return false;
        }
        self.quiet = self.quiet.saturating_add(after);
        self.quiet >= QUIET && bytes - self.empty.unwrap_or(0) >= WORTH_BYTES
    }

    /// Takes in how many bytes are in memtables after they were written out.
    fn flushed(&mut self, bytes: u64) {
        *self = IdleFlush { since: bytes, quiet: Duration::ZERO, empty: Some(bytes) };
    }
}

/// Flushes a store whenever it has gone quiet, until it is closed.
pub(crate) async fn run(engine: Weak<dyn Engine>) {
    let mut idle = IdleFlush::default();
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(engine) = engine.upgrade() else { return };
        if idle.look(engine.stats().memtable_bytes, LOOK) {
            // What cannot be written now, because the disk is full, stays in memory and in the log.
            if let Err(error) = flush(Arc::clone(&engine)).await {
                tracing::debug!("the store was not flushed: {error}");
            }
            idle.flushed(engine.stats().memtable_bytes);
        }
    }
}

async fn flush(engine: Arc<dyn Engine>) -> storage::StorageResult<()> {
    let flushed = tokio::task::spawn_blocking(move || engine.flush()).await;
    flushed.unwrap_or_else(|error| Err(storage::StorageError::Io(error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// What comes of looking at these numbers of bytes, one after the other.
    fn looks(idle: &mut IdleFlush, bytes: &[u64]) -> Vec<bool> {
        bytes.iter().map(|bytes| idle.look(*bytes, LOOK)).collect()
    }

    #[test]
    fn a_store_is_flushed_when_it_has_been_quiet() {
        let mut idle = IdleFlush::default();
        assert_eq!(
            looks(&mut idle, &[4 * MIB, 8 * MIB, 12 * MIB, 16 * MIB, 20 * MIB]),
            [false; 5],
            "it is written to"
        );
        let slack = SLACK_BYTES;
        assert_eq!(looks(&mut idle, &[20 * MIB + slack, 20 * MIB, 20 * MIB]), [false, false, true]);
        idle.flushed(3 * MIB);
        assert_eq!(looks(&mut idle, &[3 * MIB; 9]), [false; 9], "nothing would be given back");
        assert_eq!(looks(&mut idle, &[4 * MIB; 4]), [false, false, false, true]);
    }

    #[test]
    fn what_an_empty_store_takes_is_not_flushed_again_and_again() {
        let mut idle = IdleFlush::default();
        assert_eq!(looks(&mut idle, &[5 * MIB; 4]), [false, false, false, true]);
        idle.flushed(5 * MIB);
        assert_eq!(looks(&mut idle, &[5 * MIB; 9]), [false; 9]);
        assert_eq!(looks(&mut idle, &[2 * MIB; 9]), [false; 9], "it takes less than was thought");
        assert_eq!(looks(&mut idle, &[3 * MIB; 4]), [false, false, false, true]);
    }
}
