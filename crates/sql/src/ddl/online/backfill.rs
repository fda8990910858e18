//! Writes the entries of all rows there are.

use super::batch::{Effort, write_batch};
use super::change::may_go_on;
use super::job::Job;
use super::progress::Phase;
use super::record::JobRecord;
use crate::engine::Engine;
use crate::exec::kv_error;
use crate::table::TableCodec;
use kv_api::{LockStrength, Priority};
use kv_client::{ScanOptions, TxnOptions};
use sql_types::{SqlError, SqlResult};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Rows of a batch, unless it loses against writers.
const BATCH_ROWS: u64 = 1000;
/// Rows of a batch at least.
const FEWEST_ROWS: u64 = 16;
/// How often a batch loses before it locks its rows.
const LOSSES: u32 = 3;
/// The longest pause after a batch that lost.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// How the next batch is done, by how the last ones went: smaller and after longer pauses the more of them lost, and with
/// locks from some point on.
#[derive(Debug)]
struct Pushback {
    rows: u64,
    losses: u32,
}

impl Pushback {
    fn new() -> Self {
        Pushback { rows: BATCH_ROWS, losses: 0 }
    }

    fn effort(&self) -> Effort {
        Effort { rows: self.rows, locks: self.losses >= LOSSES }
    }

    fn won(&mut self) {
        self.losses = 0;
        self.rows = (self.rows * 2).min(BATCH_ROWS);
    }

    /// The pause until the next attempt.
    fn lost(&mut self) -> Duration {
        self.losses = self.losses.saturating_add(1);
        self.rows = (self.rows / 2).max(FEWEST_ROWS);
        Duration::from_millis(2 << self.losses.min(8)).min(LONGEST_PAUSE)
    }
}

/// Fixes which rows have to get entries: those there are. All writers know the index by now.
///
/// # Errors
/// What the KV nodes answer.
async fn begin(engine: &Engine, job: &Job, codec: &TableCodec) -> SqlResult<Option<JobRecord>> {
    let txn = engine.kv.begin(TxnOptions { priority: Priority::Low, ..TxnOptions::default() });
    let key = JobRecord::key_of(job.table, job.index);
    let Some(stored) = txn.get(&key, LockStrength::None).await.map_err(kv_error)? else { return Ok(None) };
    let mut record = JobRecord::decode(&stored)?;
    if record.rest()?.is_some() {
        return Ok(Some(record));
    }
    let span = codec.primary().span();
    // A transaction of its own: rows that are added behind the last one do not matter.
    let reader = engine.kv.begin(TxnOptions { read_only: true, ..TxnOptions::default() });
    let options = ScanOptions { reverse: true, limit: 1, ..ScanOptions::default() };
    let last = reader.scan(&span, options).await.map_err(kv_error)?.rows.pop();
    reader.rollback().await;
    let end = last.map_or_else(|| span.start.to_vec(), |(key, _)| [&key[..], &[0]].concat());
    record.set_rest(&span.start, &end);
    txn.put(&key, record.encode()?).map_err(kv_error)?;
    txn.commit().await.map_err(kv_error)?;
    Ok(Some(record))
}

/// Writes the entries of all rows that had none when it began, from where the job's record says. False if the
/// job is gone.
///
/// # Errors
/// 23505 if two rows have the same key; what computing an expression of the index fails with; what the
/// KV nodes answer, but for conflicts.
pub(super) async fn backfill(engine: &Engine, job: &Job) -> SqlResult<bool> {
    let catalog = engine.catalog().await?;
    let Some(table) = catalog.table(job.table) else { return Ok(false) };
    let Some(id) = table.indexes.iter().find(|index| index.oid == job.index).map(|index| index.id) else {
        return Ok(false);
    };
    let codec = TableCodec::new(Arc::clone(table))?;
    let index = codec.index(id)?;
    job.progress.set_phase(Phase::Building);
    let mut pushback = Pushback::new();
    let mut record = loop {
        match begin(engine, job, &codec).await {
            Ok(Some(record)) => break record,
            Ok(None) => return Ok(false),
            Err(error) if may_go_on(&error) => tokio::time::sleep(pushback.lost()).await,
            Err(error) => return Err(error),
        }
    };
    let known = table.statistics.rows().unwrap_or_default().max(0.0) as u64;
    job.progress.rows.store(known, Relaxed);
    loop {
        job.progress.batches.store(record.batches, Relaxed);
        job.progress.rows_done.store(record.rows, Relaxed);
        job.progress.rows.fetch_max(record.rows, Relaxed);
        let rest = record.rest()?.ok_or_else(|| SqlError::internal("a backfill without rows"))?;
        if rest.start >= rest.end {
            return Ok(true);
        }
        engine.online.pace.pass().await;
        record = loop {
            match write_batch(&engine.kv, &codec, index, &record, pushback.effort()).await {
                Ok(Some(record)) => break record,
                Ok(None) => return Ok(false),
                Err(error) if may_go_on(&error) => tokio::time::sleep(pushback.lost()).await,
                Err(error) => return Err(error),
            }
        };
        pushback.won();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_loses_does_less_and_locks_in_the_end() {
        let mut pushback = Pushback::new();
        assert_eq!(pushback.effort(), Effort { rows: BATCH_ROWS, locks: false });
        assert!(pushback.lost() < pushback.lost());
        assert_eq!(pushback.effort(), Effort { rows: BATCH_ROWS / 4, locks: false });
        for _ in 0..20 {
            assert!(pushback.lost() <= LONGEST_PAUSE);
        }
        assert_eq!(pushback.effort(), Effort { rows: FEWEST_ROWS, locks: true });
        pushback.won();
        assert_eq!(pushback.effort(), Effort { rows: 2 * FEWEST_ROWS, locks: false });
    }
}
