//! Statistics that the node makes by itself, when much of a table has changed.
//!
//! Statements count the rows they change, table by table ([`super::StatisticsCell::note_changes`]); whether they
//! commit is not waited for. What is counted is the node's own and is forgotten with it. A table of which enough has
//! changed comes into a [`Queue`], and one task reads one table after another, in half the time of a processor
//! and with low priority. The task ends with the queue: nothing runs in a node without work, and as it is no
//! connection, it keeps no tenant awake; a node that is ended in the middle of it loses nothing.
//!
//! Off for a session, or a database or role, by `SET auto_analyze = off`.

use super::gather::{Pace, gather};
use super::writes::WINDOW;
use super::{StatisticsCell, record};
use crate::catalog::descriptor::{ColumnId, TableDescriptor};
use crate::catalog::store::{Section, record_key};
use crate::engine::Engine;
use crate::exec::{CancelFlag, kv_error};
use crate::session::locks::{LockKey, Scope, mode};
use crate::session::view::now_micros;
use kv_client::{Priority, TxnOptions};
use rand::SeedableRng;
use rand::rngs::StdRng;
use sql_types::{Oid, SqlResult};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Changed rows that are not worth new statistics, as in PostgreSQL.
const THRESHOLD: u64 = 50;
/// And the share of the table's rows on top of them.
const SHARE: f64 = 0.1;
/// From the time when enough has changed to the reading: a table is often filled by many statements.
const DELAY: Duration = Duration::from_secs(1);
/// Between two readings of one table at least, as autovacuum's naptime in PostgreSQL.
const INTERVAL: Duration = Duration::from_secs(60);

/// Whether so many changed rows are worth new statistics.
pub fn is_much(changed: u64, rows: f64) -> bool {
    changed > THRESHOLD.saturating_add((rows * SHARE) as u64)
}

/// Which tables are to be read when. Times are since any fixed moment.
#[derive(Debug, Default)]
pub struct Queue {
    due: BTreeMap<Oid, Duration>,
    read: BTreeMap<Oid, Duration>,
    working: bool,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read this table.
    Read(Oid),
    /// Nothing until then.
    Wait(Duration),
    /// Nothing: the worker ends.
    End,
}

impl Queue {
    /// Puts a table into the queue. True if a worker is to be started.
    pub fn request(&mut self, table: Oid, now: Duration) -> bool {
        let earliest = self.read.get(&table).map_or(Duration::ZERO, |read| *read + INTERVAL);
        self.due.entry(table).or_insert_with(|| earliest.max(now + DELAY));
        !std::mem::replace(&mut self.working, true)
    }

    /// What the worker does next.
    pub fn next(&mut self, now: Duration) -> Next {
        self.read.retain(|_, read| *read + INTERVAL > now);
        let Some((table, due)) = self.due.iter().min_by_key(|(_, due)| **due) else {
            self.working = false;
            return Next::End;
        };
        let (table, due) = (*table, *due);
        if due > now {
            return Next::Wait(due);
        }
        self.due.remove(&table);
        self.read.insert(table, now);
        Next::Read(table)
    }
}

impl Engine {
    /// Takes note of rows that a statement changed.
    pub(crate) fn note_changes(self: &Arc<Self>, tables: &[Arc<TableDescriptor>], rows: u64) {
        for table in tables {
            if table.statistics.note_changes(rows) {
                self.request_statistics(table.oid);
            }
            if table.statistics.note_writes(rows) {
                tokio::spawn(watch_writes(table.statistics.clone()));
            }
        }
    }

    fn request_statistics(self: &Arc<Self>, table: Oid) {
        if self.auto_analyze.lock().request(table, self.uptime()) {
            tokio::spawn(work(self.clone()));
        }
    }

    /// Makes statistics known to the plans of the node. `changes`: the changed rows that they know of.
    pub(crate) fn publish_statistics(
        &self,
        table: Oid,
        statistics: Arc<super::TableStatistics>,
        changes: u64,
    ) {
        // A catalog that is not there is read with them.
        let Some(catalog) = self.cached_catalog() else { return };
        let Some(table) = catalog.table(table) else { return };
        table.statistics.set(statistics);
        table.statistics.forget_changes(changes);
    }
}

/// Notices when no longer much is written to a table. There is one for each table, and another if there are new statistics
/// meanwhile.
async fn watch_writes(statistics: StatisticsCell) {
    loop {
        tokio::time::sleep(WINDOW).await;
        if !statistics.end_window() {
            return;
        }
    }
}

async fn work(engine: Arc<Engine>) {
    loop {
        let now = engine.uptime();
        let next = engine.auto_analyze.lock().next(now);
        match next {
            Next::End => return,
            Next::Wait(until) => tokio::time::sleep(until.saturating_sub(now)).await,
            Next::Read(table) => match read(&engine, table).await {
                Ok(true) => {}
                Ok(false) => engine.request_statistics(table),
                Err(error) => {
                    tracing::debug!(table, %error, "could not make statistics; tried again later");
                    engine.request_statistics(table);
                }
            },
        }
    }
}

/// Makes statistics of a table if it is still time for them; false if it is to be tried again.
async fn read(engine: &Arc<Engine>, oid: Oid) -> SqlResult<bool> {
    let find = || engine.cached_catalog().and_then(|catalog| catalog.table(oid).cloned());
    let Some(table) = find().filter(|table| table.statistics.is_due()) else { return Ok(true) };
    let changes = table.statistics.changes();
    let columns = all_columns(&table);
    let txn =
        engine.kv.begin(TxnOptions { read_only: true, priority: Priority::Low, ..TxnOptions::default() });
    let mut random = StdRng::from_os_rng();
    let newer = gather(&txn, &table, &columns, Pace::Half, &CancelFlag::new(), &mut random).await;
    txn.rollback().await;
    let newer = newer?;
    // Whoever changes the table or makes statistics of it holds a lock that this one conflicts with.
    let (owner, key) = (engine.next_session(), LockKey::Table(oid));
    if !engine.locks.try_lock(owner, key, mode::SHARE_UPDATE_EXCLUSIVE, Scope::Transaction) {
        return Ok(false);
    }
    // It may have lapsed while the table was read.
    if let Err(error) = engine.instances.leased(engine).await {
        engine.locks.release(owner, key, mode::SHARE_UPDATE_EXCLUSIVE, Scope::Transaction);
        return Err(error);
    }
    let written = match find().filter(|now| now.storage == table.storage) {
        None => Ok(true),
        Some(now) => {
            let mut statistics = now.statistics.get().map_or_else(Default::default, |old| (*old).clone());
            statistics.update(newer);
            statistics.version = now.statistics.version() + 1;
            statistics.auto_analyzed = Some(now_micros());
            statistics.auto_analyze_count += 1;
            write(engine, oid, statistics, changes).await.map(|()| !now.statistics.is_due())
        }
    };
    engine.locks.release(owner, key, mode::SHARE_UPDATE_EXCLUSIVE, Scope::Transaction);
    written
}

async fn write(engine: &Engine, oid: Oid, statistics: super::TableStatistics, changes: u64) -> SqlResult<()> {
    let key = record_key(Section::Statistics, &[u64::from(oid)]);
    let value = record::encode(&statistics)?;
    engine.kv.write(&[(key, Some(value))]).await.map_err(kv_error)?;
    engine.publish_statistics(oid, Arc::new(statistics), changes);
    Ok(())
}

/// All columns of a table that a query can name.
pub(crate) fn all_columns(table: &TableDescriptor) -> Vec<ColumnId> {
    table.columns.iter().filter(|column| !column.hidden).map(|column| column.id).collect()
}
