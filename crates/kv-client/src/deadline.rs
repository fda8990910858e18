//! Until when transactions may commit.
//!
//! A process that holds a lease on something its transactions rest on must not commit them after the lease has ended,
//! however late a batch arrives at its range. So the commit carries the lease's end, and the range refuses it where its
//! clock is past that ([`kv_api::batch::EndTxn::deadline`]); where the coordinator chooses the timestamp, it compares the
//! two itself. No wall clock of the process comes into it.

use kv_api::{KvError, KvErrorKind, KvResult, Timestamp};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The latest timestamp at which transactions may commit that began under one lease. It is extended when the lease is
/// renewed, and stays where it is once the lease is lost.
#[derive(Debug)]
pub struct CommitDeadline(AtomicU64);

impl CommitDeadline {
    /// None: any timestamp will do.
    pub fn none() -> Arc<Self> {
        Self::at(u64::MAX)
    }

    /// At a wall time in nanoseconds since the Unix epoch.
    pub fn at(wall_ns: u64) -> Arc<Self> {
        Arc::new(CommitDeadline(AtomicU64::new(wall_ns)))
    }

    /// Puts it off. It never comes earlier.
    pub fn extend(&self, wall_ns: u64) {
        self.0.fetch_max(wall_ns, Ordering::AcqRel);
    }

    /// The timestamp; none if any will do.
    pub fn timestamp(&self) -> Option<Timestamp> {
        let wall_ns = self.0.load(Ordering::Acquire);
        (wall_ns < u64::MAX).then(|| Timestamp::new(wall_ns, 0))
    }

    /// Whether a transaction may commit at a timestamp.
    ///
    /// # Errors
    /// `Retry` if that is later.
    pub fn check(&self, at: Timestamp) -> KvResult<()> {
        match self.timestamp() {
            Some(deadline) if at > deadline => {
                let message = "the lease that the transaction rests on has ended";
                Err(KvError::new(KvErrorKind::Retry, message))
            }
            _ => Ok(()),
        }
    }
}

/// The deadline of the transactions that begin now; shared by a client's clones and whoever holds the lease.
#[derive(Debug)]
pub struct CommitDeadlines(Mutex<Arc<CommitDeadline>>);

impl Default for CommitDeadlines {
    fn default() -> Self {
        CommitDeadlines(Mutex::new(CommitDeadline::none()))
    }
}

impl CommitDeadlines {
    /// The deadline of the transactions that begin now.
    pub fn current(&self) -> Arc<CommitDeadline> {
        self.0.lock().clone()
    }

    /// Gives transactions that begin from now on another deadline. Those that have begun keep theirs.
    pub fn replace(&self, deadline: Arc<CommitDeadline>) {
        *self.0.lock() = deadline;
    }
}
