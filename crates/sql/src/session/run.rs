//! Running portals.

use super::Session;
use super::api::{RowSink, RunOptions, RunOutcome};
use super::command::{Command, Modes};
use super::host::{Host, guarded};
use super::locks::LockKey;
use super::portal::{Portal, Progress};
use super::prepared::{self, CachedPlan, Prepared};
use super::privileges;
use super::temporary::is_temporary;
use super::transaction::Open;
use super::view::{SessionView, Times, now_micros};
use crate::dml;
use crate::exec::context::PlanStats;
use crate::exec::relation::batch_bytes;
use crate::exec::{ExecContext, RowStream, execute, kv_error};
use crate::parse::StatementKind;
use kv_api::{KvError, KvErrorKind};
use sql_types::functions::EvalContext;
use sql_types::{Datum, Oid, Row, SqlError, SqlResult, SqlState};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often a statement that lost against another transaction is run again.
const MOST_ATTEMPTS: u32 = 30;
/// Rows of a statement that might have to be run again are kept back up to this many bytes.
const MOST_KEPT: usize = 8 << 20;

/// Where the rows of an attempt went.
enum Step {
    /// The statement ended; rows that were kept back, and the tag.
    Complete(Vec<Row>, String),
    /// The row limit was reached.
    Suspended,
}

/// What an execution needs besides its transaction and plan.
pub(super) struct Environment<'a> {
    pub view: &'a SessionView,
    pub times: Times,
    pub params: &'a [Datum],
    pub memory: &'a crate::exec::MemoryBudget,
    pub implicit_commit: bool,
    pub stats: Option<&'a PlanStats>,
}

impl<'a> Environment<'a> {
    /// Session values that functions depend on, and what the statement asks of its session.
    pub(super) fn parts(&self) -> (EvalContext<'a>, Host<'a>) {
        (self.view.eval(self.times), Host { view: self.view, times: self.times })
    }

    /// The execution's context.
    pub(super) fn context<'c>(
        &'c self,
        open: &'c Open,
        parts: &'c (EvalContext<'a>, Host<'a>),
    ) -> ExecContext<'c> {
        ExecContext {
            txn: &open.txn,
            before: None,
            eval: &parts.0,
            params: self.params,
            host: &parts.1,
            codecs: &self.view.shared.engine.codecs,
            memory: self.memory,
            cancel: &self.view.shared.cancel.0.flag,
            stats: self.stats,
            implicit_commit: self.implicit_commit,
            read_only: open.read_only,
            deferred: &open.deferred,
            engine: self.view.derived.engine,
            partial_aggregates: self.view.derived.partial_aggregates,
        }
    }
}

impl Session {
    /// Runs a portal for at most `max_rows` rows (0: all).
    ///
    /// # Errors
    /// What went wrong; [`Session::fail`] is to be called then.
    pub async fn run(
        &mut self,
        portal: &mut Portal,
        max_rows: usize,
        options: RunOptions,
        sink: &mut dyn RowSink,
    ) -> SqlResult<RunOutcome> {
        let Some(statement) = portal.prepared.statement.clone() else { return Ok(RunOutcome::Empty) };
        self.shared.cancel.0.flag.reset();
        self.sent = false;
        let now = now_micros();
        let started = self.transaction.as_ref().map_or(now, |open| open.started);
        self.shared.activity.running(&statement.text, now, started);
        let limit = self.shared.settings.lock().derived().statement_timeout;
        let deadline = limit.map(|limit| Instant::now() + limit);
        let repeated = matches!(portal.progress, Progress::Done);
        let began = std::time::Instant::now();
        let result = self.run_portal(portal, max_rows, options, sink, deadline).await;
        portal.took += began.elapsed();
        if let (Ok(RunOutcome::Complete { tag }), false) = (&result, repeated) {
            let rows = tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
            let statistics = &self.shared.engine.statement_statistics;
            statistics.count(&self.view, &portal.prepared, &statement, portal.took, rows);
        }
        let result = result.map_err(|error| self.told(error));
        if result.is_ok() {
            self.shared.activity.waiting(self.transaction_status(), now_micros());
        }
        result
    }

    async fn run_portal(
        &mut self,
        portal: &mut Portal,
        max_rows: usize,
        options: RunOptions,
        sink: &mut dyn RowSink,
        deadline: Option<Instant>,
    ) -> SqlResult<RunOutcome> {
        let command = portal.prepared.command.clone();
        match (&mut portal.progress, &*command) {
            (Progress::Done, _) => Ok(RunOutcome::Complete { tag: done_tag(&command, portal) }),
            (Progress::Running(_), _) | (Progress::Ready, Command::Planned) => {
                self.run_planned(portal, max_rows, options, sink, deadline).await
            }
            (Progress::Rows(..), _) => give_rows(portal, max_rows, sink).await,
            (Progress::Inner(inner), _) => {
                Box::pin(self.run_portal(inner, max_rows, options, sink, deadline)).await
            }
            (Progress::CopyIn(_), _) => Err(SqlError::internal("COPY is under way")),
            (Progress::Ready, _) => {
                Box::pin(self.run_command(&command, portal, max_rows, options, sink, deadline)).await
            }
        }
    }

    /// Starts the implicit transaction if there is none.
    pub(super) fn ensure_transaction(&mut self) {
        if self.transaction.is_none() {
            self.start(false, Modes::default(), None);
        }
    }

    pub(super) async fn run_planned(
        &mut self,
        portal: &mut Portal,
        max_rows: usize,
        options: RunOptions,
        sink: &mut dyn RowSink,
        deadline: Option<Instant>,
    ) -> SqlResult<RunOutcome> {
        let cancel = self.shared.cancel.clone();
        let started = !matches!(portal.progress, Progress::Ready);
        let first = !started && self.transaction.as_ref().is_none_or(|open| !open.used);
        let mut attempt = 0;
        if !started {
            let clause = portal.prepared.statement.as_ref().and_then(|statement| statement.as_of.clone());
            if clause.is_some() || self.is_past() {
                guarded(&cancel, deadline, Box::pin(self.enter(clause.as_ref()))).await?;
            }
        }
        loop {
            self.ensure_transaction();
            let step = {
                // Large futures are pinned where they are made, and seldom ones are boxed: moving them costs
                // more than a point read.
                let running = std::pin::pin!(self.attempt(portal, max_rows, options, sink));
                guarded(&cancel, deadline, running).await
            };
            let result = match step {
                Ok(Step::Suspended) => return Ok(RunOutcome::Suspended),
                Ok(Step::Complete(rows, tag)) => match self.send_writes(portal).await {
                    Ok(()) => self.commit_statement(portal, options).await.map(|()| (rows, tag)),
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            match result {
                Ok((rows, tag)) => {
                    portal.progress = Progress::Done;
                    give(sink, &rows, &mut self.sent).await?;
                    return Ok(RunOutcome::Complete { tag });
                }
                Err(error)
                    if first
                        && !self.sent
                        && attempt < MOST_ATTEMPTS
                        && is_transient(&error)
                        && !self.is_past() =>
                {
                    attempt += 1;
                    portal.progress = Progress::Ready;
                    portal.returned = 0;
                    self.restart();
                    let pause = Duration::from_millis(1 << attempt.min(6)).mul_f64(rand::random::<f64>());
                    guarded(&cancel, deadline, async {
                        tokio::time::sleep(pause).await;
                        Ok(())
                    })
                    .await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The plan of a prepared statement, valid for what the session sees.
    pub(super) fn current_plan(&self, prepared: &Prepared) -> SqlResult<Arc<CachedPlan>> {
        let known = prepared.plan.lock().clone();
        if let Some(plan) = known.filter(|plan| plan.is_valid(&self.view)) {
            return Ok(plan);
        }
        let statement = prepared.statement.as_ref().ok_or_else(|| SqlError::internal("nothing to plan"))?;
        let plan = prepared::plan(&self.view, statement, &prepared.param_types, true)?;
        let same = match (&prepared.columns, &plan.columns) {
            (None, None) => true,
            (Some(old), Some(new)) => {
                old.len() == new.len() && old.iter().zip(new.iter()).all(|(a, b)| a.ty == b.ty)
            }
            _ => false,
        };
        if !same || plan.param_types != prepared.param_types {
            return Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "cached plan must not change result type",
            ));
        }
        *prepared.plan.lock() = Some(plan.clone());
        Ok(plan)
    }

    /// Takes the table locks of a plan; true if the catalog may be another since the view was made. A schema change that is
    /// published after these locks were taken waits for this transaction, or knows that it knows it.
    pub(super) async fn lock_tables(&self, plan: &CachedPlan) -> SqlResult<bool> {
        let mut waited = false;
        for (table, mode) in &plan.locks {
            let key = LockKey::Table(*table);
            if !self.shared.try_lock(key, *mode) {
                waited |= self.shared.lock(key, *mode).await?;
            }
        }
        Ok(waited || !self.is_current())
    }

    /// Whether the catalog that the view shows is the one that is published, unless it is the transaction's own.
    fn is_current(&self) -> bool {
        let own = self.transaction.as_ref().is_some_and(|open| open.overlay.is_some() || open.past.is_some());
        own || self.shared.engine.cached_catalog().is_some_and(|now| now.id() == self.view.base.id())
    }

    /// Takes the table locks of a plan that cannot be made anew.
    ///
    /// # Errors
    /// 40001 if it is not valid any more.
    pub(super) async fn lock_as_planned(&mut self, plan: &CachedPlan) -> SqlResult<()> {
        if self.lock_tables(plan).await? {
            self.refresh_view().await?;
            if !plan.is_valid(&self.view) {
                let message = "could not serialize access: a table changed while the statement began";
                return Err(SqlError::new(SqlState::SERIALIZATION_FAILURE, message));
            }
        }
        Ok(())
    }

    /// Moves the transaction's snapshot to the present if the catalog has changed since it began: data
    /// that a schema change wrote (an index) would be missing otherwise. Not if what it is about to use, as far as
    /// that is known, reads as it did then: others' schema changes are no reason to fail.
    pub(super) async fn follow_catalog(&mut self, tables: Option<&[(Oid, u8)]>) -> SqlResult<()> {
        let current = &self.view.base;
        let Some(open) = &mut self.transaction else { return Ok(()) };
        let known = open.catalog.as_ref();
        if open.overlay.is_some()
            || open.past.is_some()
            || known.is_some_and(|known| known.id() == current.id())
        {
            return Ok(());
        }
        if let Some(known) = known.filter(|_| !open.txn.is_pristine()) {
            let reads_like = |(oid, _): &(Oid, u8)| match (known.table(*oid), current.table(*oid)) {
                (Some(then), Some(now)) => now.reads_like(then),
                // One of the session's own.
                (None, None) => true,
                _ => false,
            };
            if tables.is_some_and(|tables| tables.iter().all(reads_like)) {
                return Ok(());
            }
            open.txn.refresh().await.map_err(kv_error)?;
        }
        open.catalog = Some(current.clone());
        Ok(())
    }

    /// Makes everything ready for a plan: its locks, privileges and modes.
    pub(super) async fn admit(&mut self, plan: &CachedPlan) -> SqlResult<()> {
        if !self.view.is_superuser() {
            privileges::check(self.view.snapshot(), self.view.user, &plan.needed)?;
        }
        let changes = plan.changed.iter().any(|table| !is_temporary(table));
        if changes && self.transaction.as_ref().is_some_and(|open| open.read_only) {
            return Err(read_only(kind_word(plan.kind)));
        }
        plan.check_populated()?;
        if self.is_past() {
            if plan.calls {
                return Err(SqlError::unsupported("a function of the user's own in a read of the past"));
            }
            Box::pin(self.check_kept(plan)).await?;
        }
        self.follow_catalog(Some(&plan.locks)).await?;
        if let Some(open) = &self.transaction {
            open.txn.begin_statement();
        }
        Ok(())
    }

    async fn attempt(
        &mut self,
        portal: &mut Portal,
        max_rows: usize,
        options: RunOptions,
        sink: &mut dyn RowSink,
    ) -> SqlResult<Step> {
        if matches!(portal.progress, Progress::Ready) {
            self.refresh_view().await?;
            let plan = loop {
                let plan = self.current_plan(&portal.prepared)?;
                if !self.lock_tables(&plan).await? {
                    break plan;
                }
                // The table may have changed while it was waited for.
                self.refresh_view().await?;
                if plan.is_valid(&self.view) {
                    break plan;
                }
            };
            self.admit(&plan).await?;
            portal.plan = Some(plan);
        }
        let Some(plan) = portal.plan.clone() else { return Err(SqlError::internal("a portal without plan")) };
        let view = self.view.clone();
        let Some(open) = self.transaction.as_deref_mut() else {
            return Err(SqlError::new(SqlState::INVALID_CURSOR_NAME, "the portal's transaction has ended"));
        };
        let times = Times { transaction: open.started, statement: now_micros() };
        let environment = Environment {
            view: &view,
            times,
            params: &portal.params,
            memory: &portal.memory,
            implicit_commit: !open.explicit && options.commit_after && !open.used && max_rows == 0,
            stats: None,
        };
        let (progress, returned, sent) = (&mut portal.progress, &mut portal.returned, &mut self.sent);
        let parts = environment.parts();
        let cx = environment.context(open, &parts);
        let step = pull(&cx, &plan, progress, returned, max_rows, sink, sent).await?;
        open.used = true;
        if let (Step::Complete(..), Progress::Running(stream)) = (&step, &portal.progress) {
            self.note_changes(&plan, stream.affected().unwrap_or(0));
        }
        Ok(step)
    }

    /// Takes note of rows that a statement changed, for statistics.
    pub(super) fn note_changes(&self, plan: &CachedPlan, rows: u64) {
        if rows > 0 && self.view.derived.auto_analyze {
            self.shared.engine.note_changes(&plan.changed, rows);
        }
    }

    /// Commits the implicit transaction of a statement, if that is asked for.
    async fn commit_statement(&mut self, portal: &mut Portal, options: RunOptions) -> SqlResult<()> {
        // What reads the past is a transaction of its own: what comes next does not.
        if !(options.commit_after || self.is_past()) || self.in_block() {
            return Ok(());
        }
        self.check_deferred(None, true).await?;
        if self.temporary().is_some() {
            Box::pin(self.act_on_commit()).await?;
        }
        if self.shared.held.lock().standing.is_some() || !self.shared.outgoing.lock().is_empty() {
            // A function has changed the schema, locked a table, or sent notifications.
            return Box::pin(self.commit()).await;
        }
        let Some(open) = self.transaction.take() else { return Ok(()) };
        let result = open.txn.commit().await.map(|_| ()).map_err(|error| {
            let ambiguous = error.kind() == KvErrorKind::Ambiguous;
            (self.write_error(error, portal, &open), ambiguous)
        });
        self.committed(*open, result)
    }

    /// Makes what a statement wrote durable, if the session does not keep it until the commit.
    async fn send_writes(&self, portal: &Portal) -> SqlResult<()> {
        if self.view.derived.buffered_writes {
            return Ok(());
        }
        let Some(open) = &self.transaction else { return Ok(()) };
        // A setting for measurement is no reason to make the futures of all statements larger.
        let sent = Box::pin(open.txn.flush_all()).await;
        sent.map_err(|error| self.write_error(error, portal, open))
    }

    /// What it means to the client that writes of a statement were refused.
    fn write_error(&self, error: KvError, portal: &Portal, open: &Open) -> SqlError {
        let view = &self.view;
        let times = Times { transaction: open.started, statement: open.started };
        let changed = portal.plan.as_ref().map(|plan| plan.changed.as_slice()).unwrap_or_default();
        dml::commit_error(error, changed, &Host { view, times }, &view.text(times.transaction))
    }
}

/// Pulls rows from a statement: reads give theirs away as they come, others keep theirs back as long
/// as the statement might have to be run again.
async fn pull(
    cx: &ExecContext<'_>,
    plan: &CachedPlan,
    progress: &mut Progress,
    returned: &mut u64,
    max_rows: usize,
    sink: &mut dyn RowSink,
    sent: &mut bool,
) -> SqlResult<Step> {
    if matches!(progress, Progress::Ready) {
        *progress = Progress::Running(Box::new(execute(&plan.plan, cx)?));
    }
    let Progress::Running(stream) = progress else {
        return Err(SqlError::internal("the portal is not running"));
    };
    let hold_back = !plan.is_read() && max_rows == 0;
    let mut kept: Vec<Row> = Vec::new();
    let mut kept_bytes = 0;
    let mut given = 0usize;
    loop {
        let want = if max_rows == 0 { 0 } else { max_rows - given };
        if max_rows > 0 && want == 0 {
            return Ok(Step::Suspended);
        }
        let Some(rows) = stream.next_batch(cx, want).await? else { break };
        given += rows.len();
        *returned += rows.len() as u64;
        if !hold_back || *sent {
            give(sink, &rows, sent).await?;
            continue;
        }
        kept_bytes += batch_bytes(&rows);
        kept.extend(rows);
        if kept_bytes > MOST_KEPT && plan.changed.is_empty() {
            give(sink, &kept, sent).await?;
            *sent = true;
            kept.clear();
        }
    }
    let tag = tag_of(plan.kind, stream, given as u64);
    Ok(Step::Complete(kept, tag))
}

/// Hands rows to the sink, sending when it is full.
pub(super) async fn give(sink: &mut dyn RowSink, rows: &[Row], sent: &mut bool) -> SqlResult<()> {
    for row in rows {
        sink.row(row)?;
        // What is in the sink cannot be taken back.
        *sent = true;
        if sink.is_full() {
            sink.flush().await?;
        }
    }
    Ok(())
}

async fn give_rows(portal: &mut Portal, max_rows: usize, sink: &mut dyn RowSink) -> SqlResult<RunOutcome> {
    let Progress::Rows(rows, tag) = &mut portal.progress else { return Err(SqlError::internal("no rows")) };
    let mut given = 0;
    while max_rows == 0 || given < max_rows {
        let Some(row) = rows.next() else {
            let tag = std::mem::take(tag);
            portal.progress = Progress::Done;
            return Ok(RunOutcome::Complete { tag });
        };
        sink.row(&row)?;
        given += 1;
        if sink.is_full() {
            sink.flush().await?;
        }
    }
    Ok(RunOutcome::Suspended)
}

impl Session {
    /// Gives the rows a command made.
    pub(super) async fn give_all(
        &mut self,
        portal: &mut Portal,
        rows: Vec<Row>,
        tag: String,
        max_rows: usize,
        sink: &mut dyn RowSink,
    ) -> SqlResult<RunOutcome> {
        portal.progress = Progress::Rows(rows.into_iter(), tag);
        give_rows(portal, max_rows, sink).await
    }
}

fn tag_of(kind: StatementKind, stream: &RowStream, given: u64) -> String {
    match kind {
        StatementKind::Insert => format!("INSERT 0 {}", stream.affected().unwrap_or(given)),
        StatementKind::Update => format!("UPDATE {}", stream.affected().unwrap_or(given)),
        StatementKind::Delete => format!("DELETE {}", stream.affected().unwrap_or(given)),
        StatementKind::Merge => format!("MERGE {}", stream.affected().unwrap_or(given)),
        _ => format!("SELECT {given}"),
    }
}

fn done_tag(command: &Command, portal: &Portal) -> String {
    match (command, &portal.plan) {
        (Command::Planned, Some(plan)) => match plan.kind {
            StatementKind::Insert => "INSERT 0 0".into(),
            StatementKind::Update => "UPDATE 0".into(),
            StatementKind::Delete => "DELETE 0".into(),
            StatementKind::Merge => "MERGE 0".into(),
            _ => "SELECT 0".into(),
        },
        _ => "SELECT 0".into(),
    }
}

fn kind_word(kind: StatementKind) -> &'static str {
    match kind {
        StatementKind::Insert => "INSERT",
        StatementKind::Update => "UPDATE",
        StatementKind::Delete => "DELETE",
        StatementKind::Merge => "MERGE",
        StatementKind::Copy => "COPY FROM",
        _ => "this statement",
    }
}

/// `25006`
pub(super) fn read_only(what: &str) -> SqlError {
    SqlError::new(
        SqlState::READ_ONLY_TRANSACTION,
        format!("cannot execute {what} in a read-only transaction"),
    )
}

/// Whether another attempt may succeed.
pub(super) fn is_transient(error: &SqlError) -> bool {
    error.code == SqlState::SERIALIZATION_FAILURE || error.code == SqlState::DEADLOCK
}
