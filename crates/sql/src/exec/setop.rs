//! UNION, INTERSECT and EXCEPT.

use super::hash_key::{KEY_OVERHEAD, KeyTable};
use super::operator::{BATCH_ROWS, Batch, BoxOperator, Operator};
use super::relation::row_bytes;
use super::{ExecContext, Reservation};
use crate::plan::SetOpKind;
use async_trait::async_trait;
use sql_types::SqlResult;

/// A set operation. UNION ALL passes rows on; the others count the rows of the right side first
/// (INTERSECT, EXCEPT) or remember what was returned (UNION).
pub(crate) struct SetOp<'p> {
    kind: SetOpKind,
    all: bool,
    left: BoxOperator<'p>,
    right: BoxOperator<'p>,
    left_done: bool,
    right_read: bool,
    /// Distinct rows seen; for INTERSECT and EXCEPT those of the right side.
    seen: KeyTable,
    /// How often each row of the right side may still match; with DISTINCT, 1 until it did.
    counts: Vec<u64>,
    /// EXCEPT: rows of the left side already returned.
    returned: KeyTable,
    memory: Reservation,
}

impl<'p> SetOp<'p> {
    pub fn new(kind: SetOpKind, all: bool, left: BoxOperator<'p>, right: BoxOperator<'p>) -> Self {
        SetOp {
            kind,
            all,
            left,
            right,
            left_done: false,
            right_read: false,
            seen: KeyTable::new(),
            counts: Vec::new(),
            returned: KeyTable::new(),
            memory: Reservation::default(),
        }
    }

    async fn union(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        loop {
            let side = if self.left_done { &mut self.right } else { &mut self.left };
            let Some(mut batch) = side.next(cx, want).await? else {
                if std::mem::replace(&mut self.left_done, true) {
                    return Ok(None);
                }
                continue;
            };
            if !self.all {
                let (seen, mut fresh) = (&mut self.seen, 0);
                batch.retain(|row| {
                    let new = seen.insert(row, || row.clone()).1;
                    fresh += if new { row_bytes(row) + KEY_OVERHEAD } else { 0 };
                    new
                });
                self.memory.grow(cx.memory, fresh)?;
            }
            if !batch.is_empty() {
                return Ok(Some(batch));
            }
            cx.pause().await?;
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
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        if self.kind == SetOpKind::Union {
            return self.union(cx, want).await;
        }
        if !self.right_read {
            self.read_right(cx).await?;
        }
        while let Some(batch) = self.left.next(cx, BATCH_ROWS).await? {
            let mut kept = Batch::new();
            for row in batch {
                let keep = match self.kind {
                    SetOpKind::Intersect => self.intersects(&row),
                    _ => self.remains(&row, cx)?,
                };
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
