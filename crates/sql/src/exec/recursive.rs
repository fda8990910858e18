//! `WITH RECURSIVE`.

use super::hash_key::{KEY_OVERHEAD, KeyTable};
use super::operator::{BATCH_ROWS, Batch, BoxOperator, Operator, build};
use super::relation::row_bytes;
use super::scope::{Scope, SharedRows};
use super::{ExecContext, Reservation};
use crate::plan::Plan;
use async_trait::async_trait;
use sql_types::SqlResult;

/// Runs `base`, then `step` over the rows of the round before, until a round returns nothing. The rows
/// of one round and, for UNION, all distinct rows are kept in memory: a recursion that never ends
/// fails at the memory bound or runs until it is cancelled.
pub(crate) struct Recursive<'p> {
    cte: usize,
    step: &'p Plan,
    scope: Scope<'p>,
    current: BoxOperator<'p>,
    /// Rows of the round under way.
    round: Batch,
    round_memory: Reservation,
    seen: Option<KeyTable>,
    memory: Reservation,
}

impl<'p> Recursive<'p> {
    pub fn new(cte: usize, base: &'p Plan, step: &'p Plan, all: bool, scope: &Scope<'p>) -> SqlResult<Self> {
        Ok(Recursive {
            cte,
            step,
            scope: scope.clone(),
            current: build(base, scope)?,
            round: Batch::new(),
            round_memory: Reservation::default(),
            seen: (!all).then(KeyTable::new),
            memory: Reservation::default(),
        })
    }

    fn keep_new(&mut self, batch: &mut Batch, cx: &ExecContext<'_>) -> SqlResult<()> {
        let Some(seen) = &mut self.seen else { return Ok(()) };
        let mut fresh = 0;
        batch.retain(|row| {
            let new = seen.insert(row, || row.clone()).1;
            fresh += if new { row_bytes(row) + KEY_OVERHEAD } else { 0 };
            new
        });
        self.memory.grow(cx.memory, fresh)
    }
}

#[async_trait]
impl Operator for Recursive<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, _want: usize) -> SqlResult<Option<Batch>> {
        loop {
            match self.current.next(cx, BATCH_ROWS).await? {
                Some(mut batch) => {
                    self.keep_new(&mut batch, cx)?;
                    if !batch.is_empty() {
                        self.round_memory.grow(cx.memory, batch.iter().map(|row| row_bytes(row)).sum())?;
                        self.round.extend_from_slice(&batch);
                        return Ok(Some(batch));
                    }
                }
                None if self.round.is_empty() => return Ok(None),
                None => {
                    let rows = std::mem::take(&mut self.round);
                    let memory = std::mem::take(&mut self.round_memory);
                    let scope = self.scope.with_cte(self.cte, None, Some(SharedRows::new(rows, memory)));
                    self.current = build(self.step, &scope)?;
                }
            }
            cx.pause().await?;
        }
    }
}
