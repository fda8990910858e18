//! What an execution is given: transaction, parameters, session values, limits.

use super::MemoryBudget;
use crate::analytic::{EngineChoice, PartialAggregates};
use crate::catalog::descriptor::TableDescriptor;
use crate::catalog::routine::{RoutineDescriptor, TriggerDescriptor};
use crate::dml::deferred::Deferred;
use crate::plan::{Checks, Expr, Plan};
use crate::routine::trigger::TriggerCall;
use crate::table::CodecCache;
use async_trait::async_trait;
use kv_client::{Savepoint, Txn};
use parking_lot::Mutex;
use sql_types::functions::{EvalContext, Function};
use sql_types::{Datum, Oid, Row, SqlError, SqlResult, SqlState};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// Operators yield to the runtime and look for a cancellation after at most this many rows.
pub const YIELD_ROWS: usize = 1024;

/// Everything an execution needs that the plan does not hold. Cheap to make; one per pull.
#[derive(Clone, Copy)]
pub struct ExecContext<'a> {
    /// The transaction.
    pub txn: &'a Txn,
    /// Reads that take no lock do not see what the transaction has written since.
    pub before: Option<Savepoint>,
    /// Session values that functions depend on: time, time zone, user…
    pub eval: &'a EvalContext<'a>,
    /// Values of `$1…`.
    pub params: &'a [Datum],
    /// Catalog and sequences.
    pub host: &'a dyn ExecHost,
    /// Compiled row layouts, shared by the sessions of the node.
    pub codecs: &'a CodecCache,
    /// Memory the statement may use.
    pub memory: &'a MemoryBudget,
    /// Set when the statement shall end early.
    pub cancel: &'a CancelFlag,
    /// Where EXPLAIN ANALYZE collects what operators did.
    pub stats: Option<&'a PlanStats>,
    /// The statement is a transaction of its own: uniqueness may be checked by the commit (see
    /// [`crate::dml::commit_error`]).
    pub implicit_commit: bool,
    /// The transaction may not change anything.
    pub read_only: bool,
    /// Checks that the transaction puts off, or that are made at the end of the statement.
    pub deferred: &'a Deferred,
    /// Which engine runs what (setting `engine`).
    pub engine: EngineChoice,
    /// Whether KV nodes aggregate (setting `partial_aggregates`).
    pub partial_aggregates: PartialAggregates,
}

/// What the engine asks of the catalog and of sequences; implemented by the session.
#[async_trait]
pub trait ExecHost: Send + Sync {
    /// Rows of a computed catalog table, by `schema.name`.
    async fn system_rows(&self, name: &'static str) -> SqlResult<Vec<Row>>;
    /// Advances a sequence.
    async fn next_value(&self, sequence: Oid) -> SqlResult<i64>;
    /// Sets a sequence.
    async fn set_value(&self, sequence: Oid, value: i64, is_called: bool) -> SqlResult<i64>;
    /// Runs a function that waits or has effects ([`Function::external`]): `pg_sleep`,
    /// `pg_advisory_lock`. Strict ones are not called with NULL.
    async fn call_external(
        &self,
        function: &Function,
        args: &[Datum],
        eval: &EvalContext<'_>,
    ) -> SqlResult<Datum>;
    /// The analytical engine ran a part of the statement.
    fn count_analytic_part(&self) {}
    /// KV nodes aggregated for a part of the statement.
    fn count_partial_aggregate(&self) {}
    /// A table by OID, in the statement's catalog snapshot.
    fn table(&self, oid: Oid) -> Option<Arc<TableDescriptor>>;
    /// Whether policies hide rows of a table from the user.
    fn secures(&self, _table: &TableDescriptor) -> bool {
        false
    }
    /// The foreign keys of other tables (and of the table itself) that refer to a table: the referring
    /// table and the position of the key in its `foreign_keys`.
    fn referencing(&self, oid: Oid) -> Vec<(Arc<TableDescriptor>, usize)>;
    /// Runs a function of the user's own within the statement's transaction.
    async fn call_routine(
        &self,
        _routine: &Arc<RoutineDescriptor>,
        _args: Vec<Datum>,
        _cx: &ExecContext<'_>,
    ) -> SqlResult<Datum> {
        Err(SqlError::unsupported("a function of the user's own here"))
    }
    /// The condition of a trigger, over the values of `new` and `old` as parameters.
    fn trigger_condition(
        &self,
        _table: &Arc<TableDescriptor>,
        _trigger: &TriggerDescriptor,
    ) -> SqlResult<Option<Expr>> {
        Err(SqlError::unsupported("a trigger here"))
    }
    /// Runs the function of a trigger. The row it returns, with all columns of the table; `None` for NULL.
    async fn call_trigger(&self, _call: &TriggerCall<'_>, _cx: &ExecContext<'_>) -> SqlResult<Option<Row>> {
        Err(SqlError::unsupported("a trigger here"))
    }
    /// How many changes of rows functions and triggers have made in the session.
    fn changes_by_functions(&self) -> u64 {
        0
    }
    /// Name of a schema, for the fields of error messages.
    fn schema_name(&self, oid: Oid) -> Option<String>;
    /// The CHECK constraints of a table over its full row, for changes that foreign keys cascade.
    fn checks(&self, table: &Arc<TableDescriptor>) -> SqlResult<Checks>;
    /// The default of a column over an empty row (`NULL` if it has none), for `SET DEFAULT`.
    fn column_default(&self, table: &Arc<TableDescriptor>, column: u32) -> SqlResult<Expr>;
}

/// Ends a statement early. Shared between the session's task and whoever cancels it.
#[derive(Debug, Default)]
pub struct CancelFlag(AtomicU8);

impl CancelFlag {
    const NONE: u8 = 0;
    const REQUEST: u8 = 1;
    const TIMEOUT: u8 = 2;
    const SHUTDOWN: u8 = 3;

    /// A flag that is not set.
    pub const fn new() -> Self {
        CancelFlag(AtomicU8::new(Self::NONE))
    }

    /// The user asked for it.
    pub fn cancel(&self) {
        self.0.store(Self::REQUEST, Ordering::Relaxed);
    }

    /// `statement_timeout` passed.
    pub fn time_out(&self) {
        self.0.store(Self::TIMEOUT, Ordering::Relaxed);
    }

    /// The node is going away.
    pub fn shut_down(&self) {
        self.0.store(Self::SHUTDOWN, Ordering::Relaxed);
    }

    /// Makes the flag ready for the next statement.
    pub fn reset(&self) {
        self.0.store(Self::NONE, Ordering::Relaxed);
    }

    /// Whether the statement shall end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != Self::NONE
    }

    /// Fails if the statement shall end.
    pub fn check(&self) -> SqlResult<()> {
        match self.0.load(Ordering::Relaxed) {
            Self::NONE => Ok(()),
            reason => Err(Self::error(reason)),
        }
    }

    #[cold]
    fn error(reason: u8) -> SqlError {
        match reason {
            Self::TIMEOUT => {
                SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout")
            }
            Self::SHUTDOWN => {
                SqlError::new(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
            }
            _ => SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request"),
        }
    }
}

/// What one operator did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OperatorStats {
    /// Rows it returned.
    pub rows: u64,
    /// Times it was started (a sub-plan starts once per outer row).
    pub loops: u64,
    /// Time spent in it and below it.
    pub time: Duration,
    /// Rows that its own filter removed.
    pub removed: u64,
    /// Estimated bytes it kept at its peak.
    pub memory: u64,
    /// Whether KV nodes aggregated for it.
    pub partial: bool,
}

impl OperatorStats {
    /// Adds what it did in another run.
    pub(crate) fn add(&mut self, other: OperatorStats) {
        self.rows += other.rows;
        self.loops += other.loops;
        self.time += other.time;
        self.removed += other.removed;
        self.memory = self.memory.max(other.memory);
        self.partial |= other.partial;
    }
}

/// What the operators of a plan did, by the address of their plan node.
#[derive(Debug, Default)]
pub struct PlanStats {
    nodes: Mutex<HashMap<usize, OperatorStats>>,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl PlanStats {
    /// What the operator of a plan node did.
    pub fn of(&self, plan: &Plan) -> OperatorStats {
        self.nodes.lock().get(&Self::key(plan)).copied().unwrap_or_default()
    }

    pub(crate) fn update(&self, plan: &Plan, change: impl FnOnce(&mut OperatorStats)) {
        change(self.nodes.lock().entry(Self::key(plan)).or_default());
    }

    /// Batches of reads sent to the key-value store.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Bytes of keys and values that came back.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn note_read(&self, bytes: usize) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn key(plan: &Plan) -> usize {
        std::ptr::from_ref(plan) as usize
    }
}

impl ExecContext<'_> {
    /// Lets other tasks run and ends the statement if it was cancelled. Operators call it between
    /// batches of work that needed no waiting.
    pub async fn pause(&self) -> SqlResult<()> {
        self.cancel.check()?;
        tokio::task::yield_now().await;
        self.cancel.check()
    }
}
