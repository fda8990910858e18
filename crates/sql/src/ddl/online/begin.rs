//! The first step of a change in steps, which the session's transaction takes.

use super::job::{Job, JobLock};
use super::record::{JobKind, JobRecord};
use crate::catalog::descriptor::{IndexId, IndexState, TableDescriptor};
use crate::catalog::oids;
use crate::ddl::DdlContext;
use crate::ddl::statement::{Ddl, ObjectKind};
use crate::exec::kv_error;
use crate::session::locks::mode;
use sql_types::{Oid, SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// What a statement wants to be done in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// It says CONCURRENTLY.
    Written(&'static str),
    /// It is done so if there is much to do.
    IfLarge,
}

impl Wanted {
    /// What a schema change wants; `None` if it cannot be done in steps.
    pub fn by(ddl: &Ddl) -> Option<Wanted> {
        match ddl {
            Ddl::CreateIndex(index) if index.concurrently => {
                Some(Wanted::Written("CREATE INDEX CONCURRENTLY"))
            }
            Ddl::CreateIndex(_) => Some(Wanted::IfLarge),
            Ddl::Reindex { concurrently: true } => Some(Wanted::Written("REINDEX CONCURRENTLY")),
            Ddl::Drop { kind: ObjectKind::Index, concurrently: true, .. } => {
                Some(Wanted::Written("DROP INDEX CONCURRENTLY"))
            }
            _ => None,
        }
    }
}

/// `25001` for a statement that is a transaction, or several, of its own.
pub(crate) fn not_in_a_block(what: &str) -> SqlError {
    let message = format!("{what} cannot run inside a transaction block");
    SqlError::new(SqlState::ACTIVE_TRANSACTION, message)
}

/// A job whose first step is part of a transaction.
pub(crate) struct Started {
    pub job: Arc<Job>,
    pub(super) lock: JobLock,
    pub(super) kind: JobKind,
}

/// What a transaction has to do with changes in steps.
#[derive(Default)]
pub(crate) struct Online {
    /// Whether its schema change is to be the first step.
    pub wanted: bool,
    /// The job that it begins.
    pub started: Option<Started>,
    /// A table that its schema change has to wait for, without a lock on the catalog, and the mode in which it wants it.
    pub busy: Option<(Oid, u8)>,
}

impl DdlContext<'_> {
    /// Whether the statement is to be the first step of a change of a table.
    pub(in crate::ddl) fn in_steps(&self, table: &TableDescriptor) -> bool {
        self.open.schema.online.wanted && table.schema != oids::PG_TEMP
    }

    /// Locks a table for a change in steps.
    pub(in crate::ddl) async fn lock_for_steps(&mut self, table: Oid) -> SqlResult<()> {
        self.lock(table, mode::SHARE_UPDATE_EXCLUSIVE).await
    }

    /// Begins the build of an index that `table` has got already.
    pub(in crate::ddl) fn begin_build(
        &mut self,
        mut table: TableDescriptor,
        index: IndexId,
    ) -> SqlResult<()> {
        self.begin(&mut table, index, JobKind::Build, IndexState::DeleteOnly)?;
        self.put_table(table).map(drop)
    }

    /// Begins to drop an index: nobody reads it from now on.
    pub(in crate::ddl) fn begin_drop(&mut self, mut table: TableDescriptor, index: IndexId) -> SqlResult<()> {
        self.begin(&mut table, index, JobKind::Drop, IndexState::WriteOnly)?;
        self.put_table(table).map(drop)
    }

    fn begin(
        &mut self,
        table: &mut TableDescriptor,
        index: IndexId,
        kind: JobKind,
        state: IndexState,
    ) -> SqlResult<()> {
        let (oid, database) = (table.oid, table.database);
        let Some(index) = table.indexes.iter_mut().find(|known| known.id == index) else {
            return Err(SqlError::internal("a change of no index"));
        };
        index.state = state;
        let shared = &self.view.shared;
        let record = JobRecord::new(kind, oid, index.oid, shared.engine.instances.id());
        self.open.txn.put(&record.key(), record.encode()?).map_err(kv_error)?;
        self.catalog.jobs.push(record);
        let owner = shared.engine.next_session();
        let lock = JobLock::handed_over(&shared.engine.locks, shared.session, owner, oid)
            .ok_or_else(|| SqlError::internal("a change in steps without a lock"))?;
        let timeout = self.view.derived.lock_timeout;
        let job = Job::new((database, oid, index.oid), owner, Some(shared.process_id), timeout);
        self.open.schema.online.started = Some(Started { job: Arc::new(job), lock, kind });
        Ok(())
    }
}
