//! INSERT, UPDATE and DELETE: constraints, secondary indexes, foreign keys, triggers.
//!
//! # When constraints are checked
//!
//! * NOT NULL and CHECK: before a row is written.
//! * Uniqueness: an INSERT that is a transaction of its own writes its keys on condition that they do
//!   not exist, and the commit finds out ([`commit_error`] then names the constraint). Inside a
//!   transaction block the keys are read and locked first, so that the statement itself fails; many
//!   rows at once are written on condition and flushed at the end of the statement instead of being
//!   locked one by one. An UPDATE of key columns takes the old keys away before it looks for the new
//!   ones, so rows may swap keys within a statement.
//! * Foreign keys: at the end of the statement. The referring side locks the key it refers to.
//! * Deferrable unique and foreign-key constraints: at the end of the statement, or of the transaction if it
//!   wants that ([`deferred`]). What a foreign key does about a change (CASCADE, SET NULL, RESTRICT) is never
//!   put off.
//!
//! # Where it differs from PostgreSQL
//!
//! * An UPDATE of key columns is checked as a whole: `SET id = id + 1` succeeds where PostgreSQL meets
//!   a neighbour that has not moved yet.
//! * A row that two parts of a statement change is changed by both: rows are locked, and so read as they are by then.
//!   What only reads beside a change sees the rows as they were when the statement began
//!   ([`crate::plan::Plan::reads_beside_changes`]).
//!
//! # What is read before it is written
//!
//! A transaction reads its own writes. Where a statement's input could meet the rows it writes, the
//! input is read to its end first; otherwise rows stream. So it is where the input calls functions, or where triggers
//! could change what it reads: functions do not see what the statement that calls them writes, but triggers do. What
//! functions and triggers have changed of the rows that a statement is about to write makes it fail ([`began`]).

mod began;
mod check;
mod conflict;
pub mod deferred;
mod delete;
mod foreign_key;
mod insert;
mod merge;
mod policy;
mod referential;
mod trigger;
mod update;
mod violation;
mod write;

pub(crate) use delete::Delete;
pub(crate) use insert::Insert;
pub(crate) use merge::Merge;
pub(crate) use update::Update;
pub(crate) use violation::described_key;
pub use violation::{changed_tables, commit_error};

use crate::exec::operator::{BATCH_ROWS, Batch, BoxOperator, Operator, drain};
use crate::exec::relation::batch_bytes;
use crate::exec::{ExecContext, Reservation};
use crate::plan::{Plan, PlanKind};
use async_trait::async_trait;
use sql_types::{Oid, Row, SqlResult};
use trigger::Triggers;

/// Whether a plan may read a table that a statement over it writes.
fn reads(plan: &Plan, table: Oid) -> bool {
    reads_one_of(plan, &|scanned| scanned == table)
}

fn reads_one_of(plan: &Plan, wanted: &dyn Fn(Oid) -> bool) -> bool {
    match &plan.kind {
        PlanKind::Scan { table: scanned, .. } => wanted(scanned.oid),
        kind if kind.changed_table().is_some() => true,
        PlanKind::CteScan { cte } => *cte != crate::exec::COPY_INPUT,
        _ => {
            let mut found = false;
            plan.for_each_child(&mut |child, _| found |= reads_one_of(child, wanted));
            found
        }
    }
}

/// Whether functions that run while a statement writes, its triggers among them, could change what its input has yet
/// to read, or be called by it.
fn meets_functions(input: &Plan, triggers: &Triggers) -> bool {
    input.calls_routines() || (!triggers.is_empty() && reads_one_of(input, &|_| true))
}

/// The rows a statement works on.
enum Source<'p> {
    /// As they come.
    Streaming(BoxOperator<'p>),
    /// Read to the end before the first is used.
    Whole(BoxOperator<'p>),
    /// What is left of rows read before.
    Kept(std::vec::IntoIter<Row>),
}

impl Source<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, memory: &mut Reservation) -> SqlResult<Option<Batch>> {
        if let Source::Whole(input) = self {
            let rows = drain(input, cx, memory).await?;
            *self = Source::Kept(rows.into_iter());
        }
        match self {
            Source::Streaming(input) => input.next(cx, BATCH_ROWS).await,
            Source::Kept(rows) => {
                let batch: Batch = rows.by_ref().take(BATCH_ROWS).collect();
                Ok((!batch.is_empty()).then_some(batch))
            }
            Source::Whole(_) => Ok(None),
        }
    }
}

/// A running statement that changes rows: it runs to its end, and then gives what RETURNING asked for.
trait Changing: Send {
    fn outcome(&self) -> &Outcome;

    fn outcome_mut(&mut self) -> &mut Outcome;

    /// Does it all.
    fn run(&mut self, cx: &ExecContext<'_>) -> impl Future<Output = SqlResult<()>> + Send;
}

#[async_trait]
impl<S: Changing> Operator for S {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        if !self.outcome().done {
            self.run(cx).await?;
            self.outcome_mut().done = true;
        }
        Ok(self.outcome_mut().take(want))
    }

    fn affected(&self) -> Option<u64> {
        Some(self.outcome().affected)
    }
}

/// What a statement that changes rows leaves behind once it ran.
#[derive(Default)]
struct Outcome {
    affected: u64,
    returned: Vec<Row>,
    memory: Reservation,
    done: bool,
}

impl Outcome {
    fn keep(&mut self, rows: Vec<Row>, cx: &ExecContext<'_>) -> SqlResult<()> {
        self.memory.grow(cx.memory, batch_bytes(&rows))?;
        self.returned.extend(rows);
        Ok(())
    }

    fn take(&mut self, want: usize) -> Option<Batch> {
        let count = self.returned.len().min(want.max(1));
        if count == self.returned.len() {
            return (count > 0).then(|| std::mem::take(&mut self.returned));
        }
        let rest = self.returned.split_off(count);
        Some(std::mem::replace(&mut self.returned, rest))
    }
}
