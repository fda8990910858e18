//! How far a job is, for `pg_stat_progress_create_index`.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// What a job is doing, with the words of PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    Initializing,
    WaitingForWriters,
    Building,
    WaitingForReaders,
    WaitingToDrop,
}

impl Phase {
    const ALL: [Phase; 5] = [
        Phase::Initializing,
        Phase::WaitingForWriters,
        Phase::Building,
        Phase::WaitingForReaders,
        Phase::WaitingToDrop,
    ];

    /// As PostgreSQL calls it.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Initializing => "initializing",
            Phase::WaitingForWriters => "waiting for writers before build",
            Phase::Building => "building index: scanning table",
            Phase::WaitingForReaders => "waiting for readers before marking dead",
            Phase::WaitingToDrop => "waiting for readers before dropping",
        }
    }
}

/// How far a job is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    phase: AtomicU8,
    /// Transactions that there were to wait for.
    pub lockers: AtomicU64,
    /// Rows there are, as far as it is known, and those that have entries.
    pub rows: AtomicU64,
    pub rows_done: AtomicU64,
    /// Batches that have been committed, those before a crash included.
    pub batches: AtomicU64,
}

impl Progress {
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
        self.lockers.store(0, Relaxed);
    }

    pub fn phase(&self) -> Phase {
        let phase = self.phase.load(Relaxed);
        Phase::ALL.into_iter().find(|known| *known as u8 == phase).unwrap_or(Phase::Initializing)
    }
}
