//! The barrier between two states of a descriptor.

use super::job::Job;
use super::progress::Phase;
use crate::engine::Engine;
use crate::session::locks::{LockKey, mode};
use sql_types::SqlResult;
use std::sync::atomic::Ordering::Relaxed;

/// Who has to be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Users {
    /// Transactions that may write by the descriptor.
    Writers,
    /// Those that may read by it as well.
    Readers,
}

/// Waits until no transaction uses the version before that which was last published of the job's table.
///
/// Statements read the catalog that is published, take their table locks, and then look whether it is still the one
/// that is published; locks are kept to the end of the transaction. So whoever takes a lock after this
/// function has begun knows the new version, and only those who hold one now have to be waited for. They are not
/// kept from anything: a transaction that goes on with its next statement knows the new version, too, but what it wrote
/// before is not committed yet.
///
/// The other SQL nodes of the tenant are asked to do the same ([`crate::instances`]), once they know the version that was
/// published last. One that registers later begins with that version. One that does not answer is waited for until its lease has
/// ended: nothing that it did under an earlier version is committed after that. So two versions at most are in use at a
/// time (F1, section 4).
///
/// # Errors
/// 40P01 if one of the transactions waits for the job; 55P03 after the job's lock timeout; 40001 if the node loses its
/// lease.
pub(super) async fn older_versions_gone(
    engine: &Engine,
    job: &Job,
    users: Users,
    phase: Phase,
) -> SqlResult<()> {
    let mode = match users {
        Users::Writers => mode::SHARE,
        Users::Readers => mode::ACCESS_EXCLUSIVE,
    };
    let key = LockKey::Table(job.table);
    job.progress.set_phase(phase);
    let lockers = engine.locks.count_conflicting(job.owner, key, mode) as u64;
    job.progress.lockers.store(lockers, Relaxed);
    let elsewhere = engine.drain_elsewhere(job, mode);
    tokio::try_join!(engine.locks.drain(job.owner, key, mode, job.lock_timeout), elsewhere)?;
    Ok(())
}
