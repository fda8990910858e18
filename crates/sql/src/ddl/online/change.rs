//! Short transactions over the catalog, by a job: the arrows between the states of an index.

use super::job::Job;
use super::record::JobRecord;
use crate::catalog::descriptor::IndexState;
use crate::catalog::store::{self, Section};
use crate::catalog::{CatalogSnapshot, Garbage};
use crate::engine::Engine;
use crate::exec::kv_error;
use crate::session::locks::{LockKey, Scope, mode};
use bytes::Bytes;
use kv_api::{KvErrorKind, LockStrength};
use kv_client::{Txn, TxnOptions};
use sql_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;
use std::time::Duration;

/// What is changed of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It goes into a state; into [`IndexState::Public`] with the job's record gone.
    To(IndexState),
    /// It is removed, with the job's record, and its keys are garbage.
    Remove,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// It is published.
    Changed,
    /// It is published; these keys are to be cleared.
    Garbage(Garbage),
    /// There is no such index, or no such job, any more.
    Gone,
}

/// Pauses between attempts.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Changes the index of a job, and publishes the new catalog.
///
/// Goes on until it has succeeded if it loses against other schema changes or has to wait for them. It runs to its end even
/// if this future is dropped.
///
/// # Errors
/// What the KV nodes answer, but for conflicts.
pub(super) async fn change(engine: &Arc<Engine>, job: &Arc<Job>, step: Step) -> SqlResult<Done> {
    let mut pause = PAUSE;
    loop {
        let (engine, job) = (engine.clone(), job.clone());
        let attempt = tokio::spawn(async move { attempt(&engine, &job, step).await });
        match attempt.await.map_err(|error| SqlError::internal(error.to_string()))? {
            Err(error) if may_go_on(&error) => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            result => return result,
        }
    }
}

/// Whether it was others, or the network: another attempt may succeed, or find out that this one has.
pub(super) fn may_go_on(error: &SqlError) -> bool {
    matches!(
        error.code,
        SqlState::SERIALIZATION_FAILURE
            | SqlState::DEADLOCK
            | SqlState::LOCK_NOT_AVAILABLE
            | SqlState::COMPLETION_UNKNOWN
    )
}

/// Gives the catalog's lock back.
struct CatalogLock<'a>(&'a Engine, u64);

impl Drop for CatalogLock<'_> {
    fn drop(&mut self) {
        self.0.locks.release(self.1, LockKey::Catalog, mode::ACCESS_EXCLUSIVE, Scope::Session);
    }
}

async fn attempt(engine: &Engine, job: &Job, step: Step) -> SqlResult<Done> {
    let (key, exclusive) = (LockKey::Catalog, mode::ACCESS_EXCLUSIVE);
    engine.locks.lock(job.owner, key, exclusive, Scope::Session, None).await?;
    let _lock = CatalogLock(engine, job.owner);
    let catalog = engine.catalog().await?;
    let txn = engine.kv.begin(TxnOptions::default());
    let stored = txn.get(&store::version_key(), LockStrength::Exclusive).await.map_err(kv_error)?;
    let stored = store::decode_version(stored.as_deref())?;
    if stored != catalog.version() {
        engine.forget_catalog();
        engine.plans.clear();
        let message = "the catalog changed while a schema change went on";
        return Err(SqlError::new(SqlState::SERIALIZATION_FAILURE, message));
    }
    let record = txn.get(&JobRecord::key_of(job.table, job.index), LockStrength::None).await;
    let is_job = record.map_err(kv_error)?.is_some();
    let mut changed = (*catalog).clone();
    changed.version = stored + 1;
    let done = apply(&txn, &mut changed, job, step, is_job)?;
    if done == Done::Gone {
        if is_job {
            txn.delete(&JobRecord::key_of(job.table, job.index)).map_err(kv_error)?;
            txn.commit().await.map_err(kv_error)?;
        }
        return Ok(done);
    }
    txn.put(&store::version_key(), Bytes::copy_from_slice(&changed.version.to_be_bytes()))
        .map_err(kv_error)?;
    changed.finish();
    match txn.commit().await {
        Ok(_) => {
            engine.publish(Arc::new(changed));
            engine.announce().await;
            Ok(done)
        }
        Err(error) => {
            if error.kind() == KvErrorKind::Ambiguous {
                // What became of it is to be read from the keyspace.
                engine.forget_catalog();
                engine.plans.clear();
            }
            Err(kv_error(error))
        }
    }
}

/// Writes what a step changes.
fn apply(txn: &Txn, catalog: &mut CatalogSnapshot, job: &Job, step: Step, is_job: bool) -> SqlResult<Done> {
    let Some(table) = catalog.table(job.table).cloned() else { return Ok(Done::Gone) };
    let Some(position) = table.indexes.iter().position(|index| index.oid == job.index) else {
        return Ok(Done::Gone);
    };
    if !is_job && step != Step::Remove {
        // An attempt whose outcome was unknown has succeeded.
        return Ok(Done::Gone);
    }
    if step == Step::Remove && table.indexes.get(position).is_some_and(|index| index.is_public()) {
        // It was cancelled too late.
        return Ok(Done::Gone);
    }
    let mut changed = (*table).clone();
    let key = JobRecord::key_of(job.table, job.index);
    if step == Step::Remove || step == Step::To(IndexState::Public) {
        catalog.jobs.retain(|known| (known.table, known.index) != (job.table, job.index));
    }
    let done = match step {
        Step::To(state) => {
            if let Some(index) = changed.indexes.get_mut(position) {
                index.state = state;
            }
            if state == IndexState::Public {
                txn.delete(&key).map_err(kv_error)?;
            }
            Done::Changed
        }
        Step::Remove => {
            let index = changed.indexes.remove(position);
            txn.delete(&key).map_err(kv_error)?;
            let garbage = (table.storage, u64::from(index.id));
            let record = store::record_key(Section::Garbage, &[garbage.0, garbage.1]);
            txn.put(&record, Bytes::from_static(&[1])).map_err(kv_error)?;
            Done::Garbage(garbage)
        }
    };
    changed.version += 1;
    let record = store::record_key(Section::Table, &[u64::from(changed.oid)]);
    txn.put(&record, store::encode(&changed)?).map_err(kv_error)?;
    catalog.tables.insert(changed.oid, Arc::new(changed));
    Ok(done)
}
