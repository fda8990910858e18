//! Sort, and top-k when few rows are wanted.
//!
//! Rows that do not fit into the statement's memory are sorted and written to a file (a *run*) as often as needed; the
//! runs are merged in the end.

use super::eval::{EvalEnv, eval};
use super::operator::{BATCH_ROWS, Batch, BoxOperator, Operator};
use super::project::row_count;
use super::relation::row_bytes;
use super::scope::Scope;
use super::spill::{RunReader, Spill, can_spill};
use super::{ExecContext, Reservation};
use crate::plan::{Expr, PlanColumn, SortKey};
use async_trait::async_trait;
use sql_types::{Datum, Row, SqlError, SqlResult, Type, compare};
use std::cmp::Ordering;
use std::sync::Arc;

/// Largest limit for which only the best rows are kept.
const TOP_LIMIT: i64 = 10_000;

/// Most runs that are merged: so many files are open, each with a buffer.
const MOST_RUNS: usize = 256;
/// Bytes that are read of a run at once.
const RUN_BUFFER: usize = 32 << 10;

/// A row with its keys.
pub(crate) type Keyed = (Row, Row);

/// The order of two rows of keys.
pub(crate) fn compare_keys(keys: &[SortKey], left: &[Datum], right: &[Datum]) -> Ordering {
    for ((key, left), right) in keys.iter().zip(left).zip(right) {
        let ordering = compare_key(key, left, right);
        if ordering.is_ne() {
            return ordering;
        }
    }
    Ordering::Equal
}

/// The order of two values under one key.
pub(crate) fn compare_key(key: &SortKey, left: &Datum, right: &Datum) -> Ordering {
    match (left.is_null(), right.is_null()) {
        (true, true) => Ordering::Equal,
        (true, false) => {
            if key.nulls_first {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        }
        (false, true) => {
            if key.nulls_first {
                Ordering::Greater
            } else {
                Ordering::Less
            }
        }
        (false, false) => {
            let ordering = compare::compare(left, right);
            if key.descending { ordering.reverse() } else { ordering }
        }
    }
}

/// The order of two rows of values, ascending with NULLs last.
pub(crate) fn compare_values(left: &[Datum], right: &[Datum]) -> Ordering {
    left.iter()
        .zip(right)
        .map(|(left, right)| compare::compare(left, right))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// The keys of a row.
pub(crate) fn keys_of(keys: &[SortKey], row: &[Datum], env: &EvalEnv<'_>) -> SqlResult<Row> {
    keys.iter().map(|key| eval(&key.expr, row, env)).collect()
}

/// ORDER BY.
pub(crate) struct Sort<'p> {
    input: BoxOperator<'p>,
    columns: &'p [PlanColumn],
    keys: &'p [SortKey],
    limit: Option<&'p Expr>,
    scope: Scope<'p>,
    sorted: Option<Sorted>,
    memory: Reservation,
}

/// Rows in order.
enum Sorted {
    Here(std::vec::IntoIter<Keyed>),
    Runs(Merge),
}

impl<'p> Sort<'p> {
    pub fn new(
        input: BoxOperator<'p>,
        columns: &'p [PlanColumn],
        keys: &'p [SortKey],
        limit: Option<&'p Expr>,
        scope: &Scope<'p>,
    ) -> Self {
        let memory = Reservation::default();
        Sort { input, columns, keys, limit, scope: scope.clone(), sorted: None, memory }
    }

    async fn read(&mut self, cx: &ExecContext<'_>) -> SqlResult<Sorted> {
        let (mut rows, mut runs): (Vec<Keyed>, Vec<RunReader>) = (Vec::new(), Vec::new());
        let keep = row_count(self.limit, &self.scope, cx)?.filter(|limit| (0..=TOP_LIMIT).contains(limit));
        let keep = keep.map(|limit| limit as usize);
        while let Some(batch) = self.input.next(cx, BATCH_ROWS).await? {
            let mut bytes = 0;
            {
                let env = self.scope.env(cx);
                for row in batch {
                    let keys = keys_of(self.keys, &row, &env)?;
                    bytes += row_bytes(&row) + row_bytes(&keys);
                    rows.push((keys, row));
                }
            }
            if let Err(full) = self.memory.grow(cx.memory, bytes) {
                let run = self.write_run(&mut rows, cx.memory.spill(), runs.len(), full)?;
                runs.push(run);
            }
            if let Some(keep) = keep
                && rows.len() >= 2 * keep + BATCH_ROWS
            {
                self.cut(&mut rows, keep, cx)?;
            }
            cx.pause().await?;
        }
        self.sort(&mut rows);
        if runs.is_empty() {
            if let Some(keep) = keep {
                rows.truncate(keep);
            }
            return Ok(Sorted::Here(rows.into_iter()));
        }
        Ok(Sorted::Runs(Merge::new(runs, rows)?))
    }

    fn sort(&self, rows: &mut [Keyed]) {
        rows.sort_by(|left, right| compare_keys(self.keys, &left.0, &right.0));
    }

    /// Writes the rows to a file, in order, and gives their memory back. `full` is the error if that cannot be.
    fn write_run(
        &mut self,
        rows: &mut Vec<Keyed>,
        spill: Option<&Spill>,
        runs: usize,
        full: SqlError,
    ) -> SqlResult<RunReader> {
        let types = self.keys.iter().map(|key| key.expr.ty()).chain(self.columns.iter().map(|one| one.ty.ty));
        let types: Arc<[Type]> = types.collect();
        let Some(spill) = spill.filter(|_| runs < MOST_RUNS && types.iter().copied().all(can_spill)) else {
            return Err(full);
        };
        self.sort(rows);
        let rows: Vec<Row> =
            rows.drain(..).map(|(keys, row)| keys.into_iter().chain(row).collect()).collect();
        let run = spill.write(rows.iter())?;
        self.memory.release();
        Ok(RunReader::new(run, types, RUN_BUFFER))
    }

    /// Keeps the first rows in order. Stable: rows that arrived earlier win ties.
    fn cut(&mut self, rows: &mut Vec<Keyed>, keep: usize, cx: &ExecContext<'_>) -> SqlResult<()> {
        self.sort(rows);
        rows.truncate(keep);
        self.memory.release();
        let bytes = rows.iter().map(|(keys, row)| row_bytes(keys) + row_bytes(row)).sum();
        self.memory.grow(cx.memory, bytes)
    }
}

/// Runs that are merged. Of equal rows those of an earlier run come first.
struct Merge {
    runs: Vec<RunReader>,
    /// The rest, which fits into memory.
    last: std::vec::IntoIter<Keyed>,
    /// The next row of each, the last one included; in reverse order, so that the first row is at the end.
    heads: Vec<(usize, Keyed)>,
    /// The run whose row was returned and that has none among the heads.
    taken: Vec<usize>,
}

impl Merge {
    fn new(runs: Vec<RunReader>, last: Vec<Keyed>) -> SqlResult<Self> {
        let taken = (0..=runs.len()).collect();
        Ok(Merge { runs, last: last.into_iter(), heads: Vec::new(), taken })
    }

    fn read(&mut self, run: usize, keys: usize) -> SqlResult<Option<Keyed>> {
        let Some(reader) = self.runs.get_mut(run) else { return Ok(self.last.next()) };
        let row = reader.next()?;
        Ok(row.map(|mut row| {
            let rest = row.split_off(keys.min(row.len()));
            (row, rest)
        }))
    }

    fn next(&mut self, keys: &[SortKey]) -> SqlResult<Option<Row>> {
        while let Some(run) = self.taken.pop() {
            let Some(head) = self.read(run, keys.len())? else { continue };
            let comes_later = |other: &(usize, Keyed)| {
                compare_keys(keys, &other.1.0, &head.0).then(other.0.cmp(&run)).is_gt()
            };
            let at = self.heads.partition_point(comes_later);
            self.heads.insert(at, (run, head));
        }
        Ok(self.heads.pop().map(|(run, (_, row))| {
            self.taken.push(run);
            row
        }))
    }
}

#[async_trait]
impl Operator for Sort<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        let mut sorted = match self.sorted.take() {
            Some(sorted) => sorted,
            None => self.read(cx).await?,
        };
        let want = want.clamp(1, BATCH_ROWS);
        let batch = match &mut sorted {
            Sorted::Here(rows) => rows.take(want).map(|(_, row)| row).collect(),
            Sorted::Runs(merge) => {
                cx.pause().await?;
                std::iter::from_fn(|| merge.next(self.keys).transpose())
                    .take(want)
                    .collect::<SqlResult<Batch>>()?
            }
        };
        self.sorted = Some(sorted);
        Ok((!batch.is_empty()).then_some(batch))
    }
}
