//! Runs jobs to their end.

use super::backfill::backfill;
use super::barrier::{Users, older_versions_gone};
use super::begin::Started;
use super::change::{Done, Step, change, may_go_on};
use super::job::{Job, JobLock};
use super::progress::Phase;
use super::record::{JobKind, JobRecord};
use crate::catalog::CatalogSnapshot;
use crate::catalog::descriptor::IndexState;
use crate::engine::Engine;
use crate::exec::kv_error;
use crate::instances::lease_ended;
use kv_api::LockStrength;
use kv_client::TxnOptions;
use sql_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;
use std::time::Duration;

/// The first pause before what could not be done is tried again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause before what could not be undone is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How often that is tried. Then it is left to the next node.
const ATTEMPTS: u32 = 20;

/// Runs a job whose first step is committed.
pub(crate) fn start(engine: &Arc<Engine>, started: Started) {
    let Started { job, lock, kind } = started;
    let running = tokio::spawn(run(engine.clone(), job.clone(), lock, kind));
    engine.online.add(&job, running.abort_handle());
    let engine = engine.clone();
    tokio::spawn(async move {
        if let Err(error) = running.await {
            // It is left to whoever takes it up; who waits is told.
            engine.online.remove(&job);
            job.end(Err(if error.is_cancelled() {
                lease_ended()
            } else {
                SqlError::internal(error.to_string())
            }));
        }
    });
}

/// Takes up what instances that are no more have left unfinished: all but `live` ones.
pub(crate) fn resume(engine: &Arc<Engine>, catalog: &CatalogSnapshot, live: &[u64]) {
    for record in catalog.jobs.iter().filter(|record| !live.contains(&record.instance)) {
        if engine.online.runs(record.index) {
            continue;
        }
        let owner = engine.next_session();
        let database = catalog.table(record.table).map_or(0, |table| table.database);
        let job = Arc::new(Job::new((database, record.table, record.index), owner, None, None));
        // Now, if it is free: nobody shall lock the table first.
        let lock = JobLock::free(&engine.locks, owner, record.table);
        let (engine, live, kind) = (engine.clone(), live.to_vec(), record.kind);
        tokio::spawn(async move {
            match take_up(&engine, &job, lock, &live).await {
                Ok(Some(lock)) => {
                    tracing::info!(table = job.table, index = job.index, "a schema change goes on");
                    start(&engine, Started { job, lock, kind });
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(table = job.table, index = job.index, %error, "a schema change is left for later");
                }
            }
        });
    }
}

/// Makes a job this instance's, unless it is a live one's by now, or gone.
async fn take_up(
    engine: &Arc<Engine>,
    job: &Job,
    lock: Option<JobLock>,
    live: &[u64],
) -> SqlResult<Option<JobLock>> {
    let lock = match lock {
        Some(lock) => lock,
        None => JobLock::wait(&engine.locks, job.owner, job.table).await?,
    };
    let mut pause = FIRST_PAUSE;
    for _ in 0..ATTEMPTS {
        match claim(engine, job, live).await {
            Ok(claimed) => return Ok(claimed.then_some(lock)),
            Err(error) if may_go_on(&error) => tokio::time::sleep(pause).await,
            Err(error) => return Err(error),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Err(lease_ended())
}

async fn claim(engine: &Engine, job: &Job, live: &[u64]) -> SqlResult<bool> {
    let txn = engine.kv.begin(TxnOptions::default());
    let key = JobRecord::key_of(job.table, job.index);
    let Some(stored) = txn.get(&key, LockStrength::Exclusive).await.map_err(kv_error)? else {
        return Ok(false);
    };
    let mut record = JobRecord::decode(&stored)?;
    let own = engine.instances.id();
    if own == 0 || record.instance != own && live.contains(&record.instance) {
        return Ok(false);
    }
    record.instance = own;
    txn.put(&key, record.encode()?).map_err(kv_error)?;
    txn.commit().await.map_err(kv_error)?;
    Ok(true)
}

async fn run(engine: Arc<Engine>, job: Arc<Job>, lock: JobLock, kind: JobKind) {
    let result = match kind {
        JobKind::Build => build(&engine, &job).await,
        JobKind::Drop => remove(&engine, &job).await,
    };
    let result = match result {
        // A drop that has begun is finished sooner or later, as it is if the node dies.
        Err(error) if kind == JobKind::Build => {
            undo(&engine, &job, lock, &error).await;
            Err(error)
        }
        result => {
            engine.online.remove(&job);
            drop(lock);
            result
        }
    };
    if let (Err(error), None) = (&result, job.process_id) {
        tracing::warn!(table = job.table, index = job.index, %error, "a schema change failed");
    }
    job.end(result);
}

fn gone() -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, "the index was dropped while it was built")
}

fn state(engine: &Engine, job: &Job) -> Option<IndexState> {
    let catalog = engine.known_catalog()?;
    let table = catalog.table(job.table)?;
    table.indexes.iter().find(|index| index.oid == job.index).map(|index| index.state)
}

/// Brings an index from where it is to where it can be read.
async fn build(engine: &Arc<Engine>, job: &Arc<Job>) -> SqlResult<()> {
    engine.catalog().await?;
    let wait = async || {
        let waiting = older_versions_gone(engine, job, Users::Writers, Phase::WaitingForWriters);
        job.unless_cancelled(waiting).await
    };
    wait().await?;
    if state(engine, job) == Some(IndexState::DeleteOnly) {
        advance(engine, job, IndexState::WriteOnly).await?;
        wait().await?;
    }
    if !job.unless_cancelled(backfill(engine, job)).await? {
        return Err(gone());
    }
    advance(engine, job, IndexState::Public).await
}

async fn advance(engine: &Arc<Engine>, job: &Arc<Job>, to: IndexState) -> SqlResult<()> {
    match job.unless_cancelled(change(engine, job, Step::To(to))).await? {
        Done::Gone if state(engine, job) != Some(to) => Err(gone()),
        _ => Ok(()),
    }
}

/// Brings an index that is not read any more, by those who begin now, to its end.
async fn remove(engine: &Arc<Engine>, job: &Arc<Job>) -> SqlResult<()> {
    engine.catalog().await?;
    if state(engine, job) == Some(IndexState::WriteOnly) {
        older_versions_gone(engine, job, Users::Readers, Phase::WaitingForReaders).await?;
        change(engine, job, Step::To(IndexState::DeleteOnly)).await?;
    }
    older_versions_gone(engine, job, Users::Writers, Phase::WaitingToDrop).await?;
    if let Done::Garbage(garbage) = change(engine, job, Step::Remove).await? {
        older_versions_gone(engine, job, Users::Writers, Phase::WaitingToDrop).await?;
        engine.clear_storage(vec![garbage]);
    }
    Ok(())
}

/// Removes the index of a build that failed. Nobody has read it, so that is one step; its keys are cleared when those who
/// may still write some are gone.
async fn undo(engine: &Arc<Engine>, job: &Arc<Job>, lock: JobLock, why: &SqlError) {
    let mut pause = FIRST_PAUSE;
    for _ in 0..ATTEMPTS {
        match change(engine, job, Step::Remove).await {
            Ok(done) => {
                engine.online.remove(job);
                drop(lock);
                if let Done::Garbage(garbage) = done {
                    tokio::spawn(clear(engine.clone(), job.clone(), garbage));
                }
                return;
            }
            Err(error) => {
                tracing::warn!(index = job.index, %error, %why, "an index that failed could not be removed yet");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
    engine.online.remove(job);
}

async fn clear(engine: Arc<Engine>, job: Arc<Job>, garbage: crate::catalog::Garbage) {
    loop {
        match older_versions_gone(&engine, &job, Users::Writers, Phase::WaitingToDrop).await {
            Ok(()) => return engine.clear_storage(vec![garbage]),
            // It is garbage for the next node, too.
            Err(error) if !may_go_on(&error) => return,
            Err(_) => tokio::time::sleep(LONGEST_PAUSE).await,
        }
    }
}

/// The records of jobs, as the catalog is read.
pub(crate) fn read_record(value: &[u8]) -> Option<JobRecord> {
    JobRecord::decode(value)
        .inspect_err(|error| tracing::warn!(%error, "a schema change cannot be taken up"))
        .ok()
}
