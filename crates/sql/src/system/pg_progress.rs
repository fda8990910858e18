//! `pg_stat_progress_create_index`: indexes that are built or dropped in steps.

use super::row::{SystemContext, int, oid, optional, text};
use crate::ddl::online::{Job, Phase};
use sql_types::{Datum, Row};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The rows: one for each job of the database, as the node runs them.
pub(super) fn rows(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut jobs = cx.view.shared.engine.online.all();
    jobs.retain(|job| job.database == cx.database());
    jobs.sort_by_key(|job| job.index);
    jobs.iter().map(|job| row(cx, job)).collect()
}

fn row(cx: &SystemContext<'_>, job: &Arc<Job>) -> Row {
    let progress = &job.progress;
    let number = |number: &AtomicU64| int(i64::try_from(number.load(Relaxed)).unwrap_or(i64::MAX));
    let phase = progress.phase();
    let command = match phase {
        Phase::WaitingForReaders | Phase::WaitingToDrop => "DROP INDEX CONCURRENTLY",
        _ => "CREATE INDEX CONCURRENTLY",
    };
    let left = cx.view.shared.engine.locks.draining(job.owner) as u64;
    let lockers = progress.lockers.load(Relaxed).max(left);
    let database = cx.catalog().databases.get(&job.database).map(|database| database.name.as_str());
    cx.row(vec![
        // Nobody waits for one that a node has taken up.
        ("pid", job.process_id.map_or(Datum::Null, Datum::Int4)),
        ("datid", oid(job.database)),
        ("datname", optional(database)),
        ("relid", oid(job.table)),
        ("index_relid", oid(job.index)),
        ("command", text(command)),
        ("phase", text(phase.name())),
        ("lockers_total", int(lockers as i64)),
        ("lockers_done", int(lockers.saturating_sub(left) as i64)),
        ("current_locker_pid", int(0)),
        // Batches of rows here.
        ("blocks_total", int(0)),
        ("blocks_done", number(&progress.batches)),
        ("tuples_total", number(&progress.rows)),
        ("tuples_done", number(&progress.rows_done)),
        ("partitions_total", int(0)),
        ("partitions_done", int(0)),
    ])
}
