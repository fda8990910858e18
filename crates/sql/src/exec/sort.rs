//! Sort, and top-k when few rows are wanted.

use super::eval::{EvalEnv, eval};
use super::operator::{BATCH_ROWS, Batch, BoxOperator, Operator};
use super::project::row_count;
use super::relation::row_bytes;
use super::scope::Scope;
use super::{ExecContext, Reservation};
use crate::plan::{Expr, SortKey};
use async_trait::async_trait;
use sql_types::{Datum, Row, SqlResult, compare};
use std::cmp::Ordering;

/// Largest limit for which only the best rows are kept.
const TOP_LIMIT: i64 = 10_000;

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
    keys: &'p [SortKey],
    limit: Option<&'p Expr>,
    scope: Scope<'p>,
    sorted: Option<std::vec::IntoIter<Keyed>>,
    memory: Reservation,
}

impl<'p> Sort<'p> {
    pub fn new(
        input: BoxOperator<'p>,
        keys: &'p [SortKey],
        limit: Option<&'p Expr>,
        scope: &Scope<'p>,
    ) -> Self {
        Sort { input, keys, limit, scope: scope.clone(), sorted: None, memory: Reservation::default() }
    }

    async fn read(&mut self, cx: &ExecContext<'_>) -> SqlResult<Vec<Keyed>> {
        let mut rows: Vec<Keyed> = Vec::new();
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
            self.memory.grow(cx.memory, bytes)?;
            if let Some(keep) = keep
                && rows.len() >= 2 * keep + BATCH_ROWS
            {
                self.cut(&mut rows, keep, cx)?;
            }
            cx.pause().await?;
        }
        rows.sort_by(|left, right| compare_keys(self.keys, &left.0, &right.0));
        if let Some(keep) = keep {
            rows.truncate(keep);
        }
        Ok(rows)
    }

    /// Keeps the first rows in order. Stable: rows that arrived earlier win ties.
    fn cut(&mut self, rows: &mut Vec<Keyed>, keep: usize, cx: &ExecContext<'_>) -> SqlResult<()> {
        rows.sort_by(|left, right| compare_keys(self.keys, &left.0, &right.0));
        rows.truncate(keep);
        self.memory.release();
        let bytes = rows.iter().map(|(keys, row)| row_bytes(keys) + row_bytes(row)).sum();
        self.memory.grow(cx.memory, bytes)
    }
}

#[async_trait]
impl Operator for Sort<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        if self.sorted.is_none() {
            self.sorted = Some(self.read(cx).await?.into_iter());
        }
        let sorted = self.sorted.iter_mut().flatten();
        let batch: Batch = sorted.take(want.clamp(1, BATCH_ROWS)).map(|(_, row)| row).collect();
        Ok((!batch.is_empty()).then_some(batch))
    }
}
