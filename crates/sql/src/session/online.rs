//! Statements that change an index in steps (`ddl::online`).

use super::Session;
use super::api::RunOptions;
use super::host::guarded;
use super::portal::Portal;
use crate::catalog::Relation;
use crate::catalog::descriptor::TableDescriptor;
use crate::ddl;
use crate::ddl::online::{Job, Wanted, not_in_a_block};
use crate::ddl::statement::{CreateIndex, Ddl};
use crate::exec::kv_error;
use crate::table::TableCodec;
use kv_client::{ScanOptions, TxnOptions};
use sql_types::{SqlError, SqlResult};
use std::sync::Arc;
use tokio::time::Instant;

/// Rows from which on an index is built in steps although nobody has asked for that.
const MANY_ROWS: u64 = 5000;

/// Ends a job whose statement does not wait for it any more.
struct Waiting(Arc<Job>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Session {
    /// Runs a schema change in steps and returns its tag; `None` if it is not to be done so.
    ///
    /// The steps are transactions of their own. What they are not part of is any of the session: one that has done nothing
    /// yet is committed with the first of them.
    ///
    /// # Errors
    /// 25001 in a transaction that has done something; why the change failed, in which case nothing of it is left.
    pub(super) async fn run_in_steps(
        &mut self,
        ddl: &Ddl,
        portal: &Portal,
        options: RunOptions,
        deadline: Option<Instant>,
    ) -> SqlResult<Option<String>> {
        let Some(wanted) = Wanted::by(ddl) else { return Ok(None) };
        let is_used = self.transaction.as_ref().is_some_and(|open| open.used);
        let alone = !self.in_block() && !is_used && !self.is_past();
        match (wanted, ddl) {
            (Wanted::Written(what), _) if !alone => return Err(not_in_a_block(what)),
            (Wanted::Written(_), _) => {}
            (Wanted::IfLarge, Ddl::CreateIndex(index)) => {
                let may = alone && options.commit_after;
                let cancel = self.shared.cancel.clone();
                if !may || !guarded(&cancel, deadline, self.is_large(index)).await? {
                    return Ok(None);
                }
            }
            _ => return Ok(None),
        }
        self.refresh_view().await?;
        if ddl::only_temporary(ddl, &self.view) {
            let tag = self.change_schema(ddl, portal, deadline, false).await?;
            self.commit().await?;
            return Ok(Some(tag));
        }
        let tag = self.change_schema(ddl, portal, deadline, true).await?;
        let started = self.transaction.as_ref().and_then(|open| open.schema.online.started.as_ref());
        let waiting = started.map(|started| Waiting(started.job.clone()));
        self.commit().await?;
        let Some(waiting) = waiting else { return Ok(Some(tag)) };
        let cancel = self.shared.cancel.clone();
        match guarded(&cancel, deadline, async { Ok(waiting.0.outcome().await) }).await {
            Ok(outcome) => outcome.map(|()| Some(tag)),
            Err(error) => {
                waiting.0.cancel();
                self.undone(&waiting.0, ddl).await;
                Err(error)
            }
        }
    }

    /// Waits until a build that was cancelled has left nothing. An index that is dropped goes on being dropped.
    async fn undone(&self, job: &Job, ddl: &Ddl) {
        if matches!(ddl, Ddl::CreateIndex(_)) {
            // It fails because it was cancelled, or it was too late for that.
            let _ = job.outcome().await;
        }
    }

    /// Whether a table has so many rows that an index of it is built in steps.
    async fn is_large(&mut self, index: &CreateIndex) -> SqlResult<bool> {
        self.refresh_view().await?;
        let name = &index.table;
        let found = self.view.catalog.find(name.schema.as_deref(), &name.name, &self.view.path);
        let oid = match found {
            Some(Relation::Table(oid) | Relation::MaterializedView(oid)) => oid,
            // What is wrong is told by the statement itself.
            _ => return Ok(false),
        };
        let Some(table) = self.view.snapshot().table(oid).cloned() else { return Ok(false) };
        match table.statistics.rows() {
            Some(rows) if rows >= MANY_ROWS as f64 => Ok(true),
            _ => self.has_many_rows(&table).await,
        }
    }

    async fn has_many_rows(&self, table: &Arc<TableDescriptor>) -> SqlResult<bool> {
        let engine = &self.shared.engine;
        let txn = engine.kv.begin(TxnOptions { read_only: true, ..TxnOptions::default() });
        let mut span = Some(TableCodec::new(table.clone())?.primary().span());
        let mut rows = 0;
        while let Some(rest) = span.take().filter(|_| rows < MANY_ROWS) {
            let options =
                ScanOptions { limit: MANY_ROWS - rows, target_bytes: 1 << 20, ..ScanOptions::default() };
            let page = txn.scan(&rest, options).await.map_err(kv_error)?;
            rows += page.rows.len() as u64;
            span = page.resume;
        }
        txn.rollback().await;
        Ok(rows >= MANY_ROWS)
    }
}

/// Refuses a statement that does not get here by way of [`Session::run_in_steps`].
pub(super) fn check_alone(ddl: &Ddl) -> Result<(), SqlError> {
    match Wanted::by(ddl) {
        Some(Wanted::Written(what)) => Err(not_in_a_block(what)),
        _ => Ok(()),
    }
}
