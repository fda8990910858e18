//! UNION ALL, INTERSECT and EXCEPT. UNION is the first, made distinct.

use super::hash_key::{KEY_OVERHEAD, KeyTable};
use super::operator::{BATCH_ROWS, Batch, BoxOperator, Operator};
use super::relation::row_bytes;
use super::{ExecContext, Reservation};
use async_trait::async_trait;
use sql_types::SqlResult;

/// UNION ALL: the rows of both sides.
pub(crate) struct Union<'p> {
    left: BoxOperator<'p>,
    right: BoxOperator<'p>,
    left_done: bool,
}

impl<'p> Union<'p> {
    pub fn new(left: BoxOperator<'p>, right: BoxOperator<'p>) -> Self {
        Union { left, right, left_done: false }
    }
}

#[async_trait]
impl Operator for Union<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        if !self.left_done {
            if let Some(batch) = self.left.next(cx, want).await? {
                return Ok(Some(batch));
            }
            self.left_done = true;
        }
        self.right.next(cx, want).await
    }
}

/// INTERSECT or EXCEPT: counts the rows of the right side first.
pub(crate) struct SetOp<'p> {
    /// EXCEPT.
    except: bool,
    all: bool,
    left: BoxOperator<'p>,
    right: BoxOperator<'p>,
    right_read: bool,
    /// Distinct rows of the right side.
    seen: KeyTable,
    /// How often each row of the right side may still match; with DISTINCT, 1 until it did.
    counts: Vec<u64>,
    /// EXCEPT: rows of the left side already returned.
    returned: KeyTable,
    memory: Reservation,
}

impl<'p> SetOp<'p> {
    pub fn new(except: bool, all: bool, left: BoxOperator<'p>, right: BoxOperator<'p>) -> Self {
        SetOp {
            except,
            all,
            left,
            right,
            right_read: false,
            seen: KeyTable::new(),
            counts: Vec::new(),
            returned: KeyTable::new(),
            memory: Reservation::default(),
        }
    }

    async fn read_right(&mut self, cx: &ExecContext<'_>) -> SqlResult<()> {
        while let Some(batch) = self.right.next(cx, BATCH_ROWS).await? {
            for row in batch {
                let (position, new) = self.seen.insert(&row, || row.clone());
                if new {
                    self.memory.grow(cx.memory, row_bytes(&row) + KEY_OVERHEAD)?;
                    self.counts.push(1);
                } else if self.all {
                    self.counts[position] += 1;
                }
            }
            cx.pause().await?;
        }
        self.right_read = true;
        Ok(())
    }

    /// Whether a row of the left side belongs to the result of INTERSECT.
    fn intersects(&mut self, row: &[sql_types::Datum]) -> bool {
        match self.seen.find(row) {
            Some(position) if self.counts[position] > 0 => {
                self.counts[position] -= 1;
                true
            }
            _ => false,
        }
    }

    /// Whether a row of the left side belongs to the result of EXCEPT.
    fn remains(&mut self, row: &sql_types::Row, cx: &ExecContext<'_>) -> SqlResult<bool> {
        if let Some(position) = self.seen.find(row) {
            if !self.all || self.counts[position] > 0 {
                self.counts[position] = self.counts[position].saturating_sub(1);
                return Ok(false);
            }
            return Ok(true);
        }
        if self.all {
            return Ok(true);
        }
        let new = self.returned.insert(row, || row.clone()).1;
        if new {
            self.memory.grow(cx.memory, row_bytes(row) + KEY_OVERHEAD)?;
        }
        Ok(new)
    }
}

#[async_trait]
impl Operator for SetOp<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, _want: usize) -> SqlResult<Option<Batch>> {
        if !self.right_read {
            self.read_right(cx).await?;
        }
        while let Some(batch) = self.left.next(cx, BATCH_ROWS).await? {
            let mut kept = Batch::new();
            for row in batch {
                let keep = if self.except { self.remains(&row, cx)? } else { self.intersects(&row) };
                if keep {
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
