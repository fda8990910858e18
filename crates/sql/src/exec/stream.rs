//! [`RowStream`]: a running statement.

use super::ExecContext;
use super::operator::{BATCH_ROWS, BoxOperator, build};
use super::scope::{Scope, SharedRows};
use crate::analytic::{EngineChoice, PartialAggregates};
use crate::plan::{Plan, PlanColumn};
use parking_lot::Mutex;
use sql_types::{Row, SqlResult};
use std::sync::Arc;

/// A running statement. It owns what it runs and may be kept between pulls.
pub struct RowStream {
    /// Borrows from `plan`. Fields are dropped in order, so this goes first.
    /// The lock is never contended: it makes a portal shareable between threads.
    root: Mutex<BoxOperator<'static>>,
    plan: Arc<Plan>,
    /// Rows pulled from the root and not yet asked for.
    rest: std::vec::IntoIter<Row>,
    finished: bool,
    returned: u64,
}

/// Starts a statement.
pub fn execute(plan: &Arc<Plan>, cx: &ExecContext<'_>) -> SqlResult<RowStream> {
    RowStream::new(plan.clone(), cx, None)
}

/// Starts a statement that reads `rows` wherever it scans common table expression `cte`; see
/// [`super::COPY_INPUT`].
pub fn execute_over(
    plan: &Arc<Plan>,
    cx: &ExecContext<'_>,
    cte: usize,
    rows: Vec<Row>,
) -> SqlResult<RowStream> {
    RowStream::new(plan.clone(), cx, Some((cte, rows)))
}

impl RowStream {
    fn new(plan: Arc<Plan>, cx: &ExecContext<'_>, input: Option<(usize, Vec<Row>)>) -> SqlResult<Self> {
        let mut scope = Scope::default();
        scope.instrument = cx.stats.is_some();
        scope.engine = cx.engine;
        scope.partial_aggregates = cx.partial_aggregates;
        if plan.reads_beside_changes() {
            scope.before = Some(cx.txn.savepoint());
            (scope.engine, scope.partial_aggregates) = (EngineChoice::Row, PartialAggregates::Off);
        }
        if let Some((cte, rows)) = input {
            scope = scope.with_cte(cte, None, Some(SharedRows::new(rows, Default::default())));
        }
        // SAFETY: the plan lies in an `Arc` that this stream keeps until after the operators that
        // borrow from it are dropped (by the order of the fields), plans are never changed through an `Arc`, and no
        // reference to the operators leaves this type with the extended lifetime.
        let extended: &'static Plan = unsafe { &*Arc::as_ptr(&plan) };
        let root = Mutex::new(build(extended, &scope)?);
        Ok(RowStream { root, plan, rest: Vec::new().into_iter(), finished: false, returned: 0 })
    }

    /// At most `max_rows` further rows (0: as many as come at once), `None` when there are no more. A
    /// statement that returns no rows runs to its end at the first call.
    pub async fn next_batch(&mut self, cx: &ExecContext<'_>, max_rows: usize) -> SqlResult<Option<Vec<Row>>> {
        if self.rest.len() == 0 {
            if self.finished {
                return Ok(None);
            }
            let want = if max_rows == 0 { BATCH_ROWS } else { max_rows };
            match self.root.get_mut().next(cx, want).await? {
                Some(batch) if max_rows == 0 || batch.len() <= max_rows => {
                    self.returned += batch.len() as u64;
                    return Ok(Some(batch));
                }
                Some(batch) => self.rest = batch.into_iter(),
                None => {
                    self.finished = true;
                    return Ok(None);
                }
            }
        }
        let count = if max_rows == 0 { usize::MAX } else { max_rows };
        let batch: Vec<Row> = self.rest.by_ref().take(count).collect();
        self.returned += batch.len() as u64;
        Ok(Some(batch))
    }

    /// Runs to the end, leaving out the rows, and returns the number of rows changed or returned.
    pub async fn finish(&mut self, cx: &ExecContext<'_>) -> SqlResult<u64> {
        while self.next_batch(cx, 0).await?.is_some() {}
        Ok(self.affected().unwrap_or(self.returned))
    }

    /// Rows changed by an INSERT, UPDATE or DELETE at the top of the statement; complete once a pull
    /// returned `None`. `None` for a query.
    pub fn affected(&self) -> Option<u64> {
        self.root.lock().affected()
    }

    /// Rows returned so far.
    pub fn returned(&self) -> u64 {
        self.returned
    }

    /// The columns of the rows; none for a change without RETURNING.
    pub fn columns(&self) -> &[PlanColumn] {
        &self.plan.columns
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Whether the statement changes rows at its top.
    pub fn is_change(&self) -> bool {
        self.plan.kind.changed_table().is_some()
    }
}
