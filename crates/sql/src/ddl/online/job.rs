//! The jobs of a node: those it runs, and how they are told to end.

use super::pace::BatchPace;
use super::progress::Progress;
use crate::session::locks::{LockKey, LockManager, Scope, mode};
use parking_lot::Mutex;
use sql_types::{Oid, SqlError, SqlResult, SqlState};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// A job that the node runs.
#[derive(Debug)]
pub(crate) struct Job {
    pub database: Oid,
    pub table: Oid,
    pub index: Oid,
    /// Who it is to the lock manager.
    pub owner: u64,
    /// The session that waits for it: its process.
    pub process_id: Option<i32>,
    /// The longest wait for a lock, as that session wants it.
    pub lock_timeout: Option<Duration>,
    pub progress: Progress,
    cancelled: watch::Sender<bool>,
    /// What came of it.
    outcome: watch::Sender<Option<SqlResult<()>>>,
}

impl Job {
    pub fn new(
        (database, table, index): (Oid, Oid, Oid),
        owner: u64,
        process_id: Option<i32>,
        lock_timeout: Option<Duration>,
    ) -> Self {
        Job {
            database,
            table,
            index,
            owner,
            process_id,
            lock_timeout,
            progress: Progress::default(),
            cancelled: watch::Sender::new(false),
            outcome: watch::Sender::new(None),
        }
    }

    /// Has it end soon, undone.
    pub fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    /// Runs a part of the job that may be given up anywhere.
    ///
    /// # Errors
    /// Its own; 57014 if the job is cancelled.
    pub async fn unless_cancelled<T>(&self, running: impl Future<Output = SqlResult<T>>) -> SqlResult<T> {
        let mut cancelled = self.cancelled.subscribe();
        tokio::select! {
            biased;
            _ = cancelled.wait_for(|cancelled| *cancelled) => {
                let message = "canceling statement due to user request";
                Err(SqlError::new(SqlState::QUERY_CANCELED, message))
            }
            result = running => result,
        }
    }

    pub(super) fn end(&self, outcome: SqlResult<()>) {
        self.outcome.send_replace(Some(outcome));
    }

    /// What comes of it in the end.
    pub async fn outcome(&self) -> SqlResult<()> {
        let mut outcome = self.outcome.subscribe();
        match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Ok(())),
            Err(_) => Err(SqlError::internal("a schema change has no end")),
        }
    }
}

/// The table lock of a job, given back when this is dropped.
pub(crate) struct JobLock {
    locks: Arc<LockManager>,
    owner: u64,
    table: Oid,
}

/// The lock that a job holds on its table.
pub(super) const MODE: u8 = mode::SHARE_UPDATE_EXCLUSIVE;

impl JobLock {
    /// Takes the lock that a session's transaction holds from it.
    pub fn handed_over(locks: &Arc<LockManager>, session: u64, owner: u64, table: Oid) -> Option<Self> {
        let taken = locks.hand_over(session, owner, LockKey::Table(table), MODE);
        taken.then(|| JobLock { locks: locks.clone(), owner, table })
    }

    /// Takes the lock if it is free.
    pub fn free(locks: &Arc<LockManager>, owner: u64, table: Oid) -> Option<Self> {
        let free = locks.try_lock(owner, LockKey::Table(table), MODE, Scope::Session);
        free.then(|| JobLock { locks: locks.clone(), owner, table })
    }

    /// Takes the lock when it is free.
    ///
    /// # Errors
    /// 40P01; 55P03 after the longest wait for a lock.
    pub async fn wait(locks: &Arc<LockManager>, owner: u64, table: Oid) -> SqlResult<Self> {
        locks.lock(owner, LockKey::Table(table), MODE, Scope::Session, None).await?;
        Ok(JobLock { locks: locks.clone(), owner, table })
    }
}

impl Drop for JobLock {
    fn drop(&mut self) {
        self.locks.release(self.owner, LockKey::Table(self.table), MODE, Scope::Session);
    }
}

/// The jobs of a node.
#[derive(Default)]
pub(crate) struct Jobs {
    /// By index.
    running: Mutex<HashMap<Oid, (Arc<Job>, AbortHandle)>>,
    pub pace: BatchPace,
}

impl Jobs {
    pub(super) fn add(&self, job: &Arc<Job>, running: AbortHandle) {
        self.running.lock().insert(job.index, (job.clone(), running));
    }

    pub(super) fn remove(&self, job: &Job) {
        // Somebody may have taken it up again.
        let mut running = self.running.lock();
        if running.get(&job.index).is_some_and(|(known, _)| known.owner == job.owner) {
            running.remove(&job.index);
        }
    }

    /// Leaves all jobs to whoever takes them up: the instance has lost its lease.
    pub fn leave(&self) {
        self.running.lock().drain().for_each(|(_, (_, running))| running.abort());
    }

    /// Whether a job of an index runs.
    pub fn runs(&self, index: Oid) -> bool {
        self.running.lock().contains_key(&index)
    }

    /// The jobs that run.
    pub fn all(&self) -> Vec<Arc<Job>> {
        self.running.lock().values().map(|(job, _)| job.clone()).collect()
    }

    /// Whether a job holds its lock on a table.
    pub fn is_busy(&self, table: Oid) -> bool {
        self.running.lock().values().any(|(job, _)| job.table == table)
    }
}
