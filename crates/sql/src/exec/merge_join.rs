//! Merge joins: both inputs come ordered by the keys, and each is read once.
//!
//! The right rows of one key (a *group*) are kept while left rows of that key pass by. Keys that are NULL in part match
//! nothing, wherever they are in the order: such rows are passed over, or padded if the join keeps them. A group that
//! does not fit into the memory of the statement fails with 53200, as rows of one key do in a hash join that spills.

use super::eval::eval;
use super::join::{accepts, padded_left, padded_right, pair};
use super::operator::{BATCH_ROWS, Batch, BoxOperator, Operator, build};
use super::relation::row_bytes;
use super::scope::Scope;
use super::{ExecContext, Reservation};
use crate::plan::{Expr, JoinKind, MergeKey, Plan};
use async_trait::async_trait;
use sql_types::{Datum, Row, SqlResult, compare};
use std::cmp::Ordering;

/// One input.
struct Side<'p> {
    input: BoxOperator<'p>,
    keys: Vec<&'p Expr>,
    pending: std::vec::IntoIter<Row>,
    /// The next row.
    head: Option<Row>,
    /// Its key.
    key: Row,
    /// Rows that are asked for next: more each time, as one cannot know how many are passed over.
    ask: usize,
    done: bool,
}

impl<'p> Side<'p> {
    fn new(input: BoxOperator<'p>, keys: Vec<&'p Expr>) -> Self {
        let pending = Vec::new().into_iter();
        Side { input, keys, pending, head: None, key: Row::new(), ask: 1, done: false }
    }

    /// Reads the next row if there is none; false if there are no more.
    async fn has_next(&mut self, scope: &Scope<'p>, cx: &ExecContext<'_>, want: usize) -> SqlResult<bool> {
        while self.head.is_none() && !self.done {
            match self.pending.next() {
                Some(row) => {
                    let env = scope.env(cx);
                    self.key.clear();
                    for key in &self.keys {
                        self.key.push(eval(key, &row, &env)?);
                    }
                    self.head = Some(row);
                }
                None => {
                    self.ask = self.ask.max(want).min(BATCH_ROWS);
                    match self.input.next(cx, self.ask).await? {
                        Some(batch) => self.pending = batch.into_iter(),
                        None => self.done = true,
                    }
                    self.ask *= 2;
                    cx.pause().await?;
                }
            }
        }
        Ok(self.head.is_some())
    }
}

/// The right rows of one key.
#[derive(Default)]
struct Group {
    key: Row,
    rows: Vec<Row>,
    /// Which of them found a partner, for RIGHT and FULL.
    matched: Vec<bool>,
}

/// The left row a merge join is at.
struct Current {
    row: Row,
    matched: bool,
    /// The next row of the group to look at.
    candidate: usize,
}

/// Joins inputs that are ordered by the keys.
pub(crate) struct MergeJoin<'p> {
    kind: JoinKind,
    keys: &'p [MergeKey],
    left: Side<'p>,
    right: Side<'p>,
    on: Option<&'p Expr>,
    scope: Scope<'p>,
    widths: (usize, usize),
    group: Group,
    current: Option<Current>,
    /// Rounds since the last pause.
    rounds: usize,
    memory: Reservation,
}

impl<'p> MergeJoin<'p> {
    pub fn new(
        kind: JoinKind,
        keys: &'p [MergeKey],
        left: &'p Plan,
        right: &'p Plan,
        on: Option<&'p Expr>,
        scope: &Scope<'p>,
    ) -> SqlResult<Self> {
        Ok(MergeJoin {
            kind,
            keys,
            left: Side::new(build(left, scope)?, keys.iter().map(|key| &key.left).collect()),
            right: Side::new(build(right, scope)?, keys.iter().map(|key| &key.right).collect()),
            on,
            scope: scope.clone(),
            widths: (left.columns.len(), right.columns.len()),
            group: Group::default(),
            current: None,
            rounds: 0,
            memory: Reservation::default(),
        })
    }

    fn keeps_left(&self) -> bool {
        matches!(self.kind, JoinKind::Left | JoinKind::Full)
    }

    fn keeps_right(&self) -> bool {
        matches!(self.kind, JoinKind::Right | JoinKind::Full)
    }

    /// The order of two keys without NULLs.
    fn order(&self, a: &[Datum], b: &[Datum]) -> Ordering {
        for ((key, a), b) in self.keys.iter().zip(a).zip(b) {
            let order = compare::compare(a, b);
            if order.is_ne() {
                return if key.descending { order.reverse() } else { order };
            }
        }
        Ordering::Equal
    }

    /// Lets the group go; its rows without a partner are returned if the join keeps them.
    fn retire(&mut self, out: &mut Batch) {
        let group = &mut self.group;
        for (row, _) in group.rows.iter().zip(&group.matched).filter(|(_, matched)| !**matched) {
            out.push(padded_right(self.widths.0, row));
        }
        group.rows.clear();
        group.matched.clear();
        self.memory.release();
    }

    /// Takes the right row that comes next; it has no partner.
    fn pass_over(&mut self, out: &mut Batch) {
        if let Some(row) = self.right.head.take()
            && self.keeps_right()
        {
            out.push(padded_right(self.widths.0, &row));
        }
    }

    /// Reads the right side up to the rows of a key, and those into the group. False if `out` filled up before.
    async fn advance(
        &mut self,
        key: &[Datum],
        cx: &ExecContext<'_>,
        want: usize,
        out: &mut Batch,
    ) -> SqlResult<bool> {
        // Of rows that only have to be there one is enough.
        let one = self.on.is_none() && matches!(self.kind, JoinKind::Semi | JoinKind::Anti);
        while self.right.has_next(&self.scope, cx, want).await? {
            let order = match has_null(&self.right.key) {
                true => Ordering::Less,
                false => self.order(&self.right.key, key),
            };
            match order {
                Ordering::Less => {
                    self.pass_over(out);
                    if out.len() >= want {
                        return Ok(false);
                    }
                }
                Ordering::Greater => break,
                Ordering::Equal => {
                    let Some(row) = self.right.head.take() else { break };
                    if self.group.rows.is_empty() {
                        self.group.key.clone_from(&self.right.key);
                    } else if one {
                        continue;
                    }
                    self.memory.grow(cx.memory, row_bytes(&row) + 1)?;
                    self.group.rows.push(row);
                    if self.keeps_right() {
                        self.group.matched.push(false);
                    }
                }
            }
            self.breathe(cx).await?;
        }
        Ok(true)
    }

    /// Lets others run from time to time.
    async fn breathe(&mut self, cx: &ExecContext<'_>) -> SqlResult<()> {
        self.rounds += 1;
        if self.rounds.is_multiple_of(BATCH_ROWS) {
            cx.pause().await?;
        }
        Ok(())
    }

    /// Moves on to the next left row; false if there is none, or `out` filled up.
    async fn next_left(&mut self, cx: &ExecContext<'_>, want: usize, out: &mut Batch) -> SqlResult<bool> {
        if !self.left.has_next(&self.scope, cx, want).await? {
            return Ok(false);
        }
        let mut candidate = usize::MAX;
        if !has_null(&self.left.key) {
            let key = std::mem::take(&mut self.left.key);
            let mut complete = true;
            if self.group.rows.is_empty() || self.order(&self.group.key, &key).is_ne() {
                self.retire(out);
                complete = self.advance(&key, cx, want, out).await?;
            }
            self.left.key = key;
            if !complete {
                return Ok(false);
            }
            if !self.group.rows.is_empty() {
                candidate = 0;
            }
        }
        let row = self.left.head.take();
        self.current = row.map(|row| Current { row, matched: false, candidate });
        Ok(true)
    }

    /// Adds the results of the current left row; false if `out` filled up before the row was done.
    async fn step(&mut self, cx: &ExecContext<'_>, want: usize, out: &mut Batch) -> SqlResult<bool> {
        let Some(current) = &mut self.current else { return Ok(true) };
        let mut tested = 0_usize;
        while let Some(right) = self.group.rows.get(current.candidate) {
            if out.len() >= want {
                return Ok(false);
            }
            tested += 1;
            if tested.is_multiple_of(BATCH_ROWS) {
                cx.pause().await?;
            }
            let at = current.candidate;
            current.candidate += 1;
            let row_only = matches!(self.kind, JoinKind::Semi | JoinKind::Anti);
            let candidate =
                if row_only && self.on.is_none() { Row::new() } else { pair(&current.row, right) };
            if !accepts(self.on, &candidate, &self.scope, cx)? {
                continue;
            }
            current.matched = true;
            if let Some(matched) = self.group.matched.get_mut(at) {
                *matched = true;
            }
            match self.kind {
                JoinKind::Semi => {
                    out.push(std::mem::take(&mut current.row));
                    return Ok(true);
                }
                JoinKind::Anti => return Ok(true),
                _ => out.push(candidate),
            }
        }
        if !current.matched {
            let row = std::mem::take(&mut current.row);
            if self.kind == JoinKind::Anti {
                out.push(row);
            } else if self.keeps_left() {
                out.push(padded_left(row, self.widths.1));
            }
        }
        Ok(true)
    }

    /// After the last left row: what is left of the right side.
    async fn rest_of_right(&mut self, cx: &ExecContext<'_>, want: usize, out: &mut Batch) -> SqlResult<()> {
        if !self.keeps_right() {
            return Ok(());
        }
        self.retire(out);
        while out.len() < want && self.right.has_next(&self.scope, cx, want).await? {
            self.pass_over(out);
            self.breathe(cx).await?;
        }
        Ok(())
    }
}

fn has_null(key: &[Datum]) -> bool {
    key.iter().any(Datum::is_null)
}

#[async_trait]
impl Operator for MergeJoin<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        let want = want.clamp(1, BATCH_ROWS);
        let mut out = Batch::new();
        while out.len() < want {
            if self.current.is_some() {
                if !self.step(cx, want, &mut out).await? {
                    break;
                }
                self.current = None;
            }
            self.breathe(cx).await?;
            if !self.next_left(cx, want, &mut out).await? {
                if self.left.done {
                    self.rest_of_right(cx, want, &mut out).await?;
                }
                break;
            }
        }
        Ok((!out.is_empty()).then_some(out))
    }
}
