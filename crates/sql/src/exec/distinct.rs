//! DISTINCT and DISTINCT ON.

use super::eval::eval;
use super::hash_key::{KEY_OVERHEAD, KeyTable, equal};
use super::operator::{BATCH_ROWS, Batch, BoxOperator, Operator};
use super::relation::row_bytes;
use super::scope::Scope;
use super::{ExecContext, Reservation};
use crate::plan::Expr;
use async_trait::async_trait;
use sql_types::{Row, SqlResult};

/// Removes duplicates: of whole rows with a hash table, of `DISTINCT ON` by comparing neighbours.
pub(crate) struct Distinct<'p> {
    input: BoxOperator<'p>,
    on: &'p [Expr],
    scope: Scope<'p>,
    seen: KeyTable,
    last: Option<Row>,
    memory: Reservation,
}

impl<'p> Distinct<'p> {
    pub fn new(input: BoxOperator<'p>, on: &'p [Expr], scope: &Scope<'p>) -> Self {
        Distinct {
            input,
            on,
            scope: scope.clone(),
            seen: KeyTable::new(),
            last: None,
            memory: Reservation::default(),
        }
    }

    fn is_new(&mut self, row: &Row, cx: &ExecContext<'_>) -> SqlResult<bool> {
        if self.on.is_empty() {
            let (_, new) = self.seen.insert(row, || row.clone());
            if new {
                self.memory.grow(cx.memory, row_bytes(row) + KEY_OVERHEAD)?;
            }
            return Ok(new);
        }
        let env = self.scope.env(cx);
        let key = self.on.iter().map(|expr| eval(expr, row, &env)).collect::<SqlResult<Row>>()?;
        let new = !self.last.as_ref().is_some_and(|last| equal(last, &key));
        if new {
            self.last = Some(key);
        }
        Ok(new)
    }
}

#[async_trait]
impl Operator for Distinct<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, _want: usize) -> SqlResult<Option<Batch>> {
        while let Some(batch) = self.input.next(cx, BATCH_ROWS).await? {
            let mut kept = Batch::new();
            for row in batch {
                if self.is_new(&row, cx)? {
                    kept.push(row);
                }
            }
            if !kept.is_empty() {
                return Ok(Some(kept));
            }
            cx.pause().await?;
        }
        Ok(None)
    }
}
