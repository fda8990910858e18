//! Nested loops: plain, lateral or by index look-up.

use super::eval::is_true;
use super::lookup::{Found, Lookup};
use super::operator::{BATCH_ROWS, Batch, BoxOperator, Operator, build, drain};
use super::scope::Scope;
use super::sought::Sought;
use super::{ExecContext, Reservation};
use crate::plan::{Expr, JoinKind, Plan};
use async_trait::async_trait;
use kv_api::Span;
use sql_types::{Datum, Row, SqlResult};

pub(super) fn pair(left: &[Datum], right: &[Datum]) -> Row {
    let mut row = Row::with_capacity(left.len() + right.len());
    row.extend_from_slice(left);
    row.extend_from_slice(right);
    row
}

pub(super) fn padded_left(mut left: Row, right_width: usize) -> Row {
    left.resize(left.len() + right_width, Datum::Null);
    left
}

pub(super) fn padded_right(left_width: usize, right: &[Datum]) -> Row {
    let mut row = vec![Datum::Null; left_width];
    row.extend_from_slice(right);
    row
}

/// Whether a pair satisfies what else the join wants.
pub(super) fn accepts(
    on: Option<&Expr>,
    pair: &[Datum],
    scope: &Scope<'_>,
    cx: &ExecContext<'_>,
) -> SqlResult<bool> {
    match on {
        None => Ok(true),
        Some(on) => is_true(on, pair, &scope.env(cx)),
    }
}

/// Where a nested loop takes the right rows of a left row from.
enum Right<'p> {
    /// All rows, read once, and which of them found a partner (for RIGHT and FULL).
    Kept { rows: Vec<Row>, matched: Vec<bool> },
    /// Nothing read yet of what will be kept.
    Unread,
    /// Run anew for each left row.
    Lateral,
    /// An index scan, done for a batch of left rows at once.
    Lookup(Lookup<'p>),
}

/// The left row a nested loop is at.
struct Current<'p> {
    row: Row,
    matched: bool,
    rows: RightRows<'p>,
}

enum RightRows<'p> {
    /// Position in the kept rows.
    Kept(usize),
    Running(BoxOperator<'p>, std::vec::IntoIter<Row>),
    /// Looked up, and where there may be more.
    Fetched(std::vec::IntoIter<Row>, Vec<Span>),
}

/// For each left row, all right rows.
pub(crate) struct NestedLoop<'p> {
    kind: JoinKind,
    left: BoxOperator<'p>,
    right_plan: &'p Plan,
    right: Right<'p>,
    on: Option<&'p Expr>,
    scope: Scope<'p>,
    left_width: usize,
    pending: std::vec::IntoIter<Row>,
    /// Right rows of the pending left rows, for look-ups.
    fetched: std::vec::IntoIter<Found>,
    current: Option<Current<'p>>,
    left_done: bool,
    /// RIGHT and FULL: next right row to look at for want of a partner.
    leftover: usize,
    memory: Reservation,
}

impl<'p> NestedLoop<'p> {
    pub fn new(
        kind: JoinKind,
        lateral: bool,
        left: &'p Plan,
        right: &'p Plan,
        on: Option<&'p Expr>,
        scope: &Scope<'p>,
    ) -> SqlResult<Self> {
        let first_only = matches!(kind, JoinKind::Semi | JoinKind::Anti);
        let source = match (lateral, Lookup::of(right, first_only)) {
            (false, _) => Right::Unread,
            (true, Some(lookup)) => Right::Lookup(lookup),
            (true, None) => Right::Lateral,
        };
        Ok(NestedLoop {
            kind,
            left: build(left, scope)?,
            right_plan: right,
            right: source,
            on,
            scope: scope.clone(),
            left_width: left.columns.len(),
            pending: Vec::new().into_iter(),
            fetched: Vec::new().into_iter(),
            current: None,
            left_done: false,
            leftover: 0,
            memory: Reservation::default(),
        })
    }

    fn keeps_unmatched_right(&self) -> bool {
        matches!(self.kind, JoinKind::Right | JoinKind::Full)
    }

    /// Moves on to the next left row; false if there is none.
    async fn advance(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<bool> {
        if self.pending.len() == 0 {
            if self.left_done {
                return Ok(false);
            }
            match self.left.next(cx, want).await? {
                Some(batch) => {
                    self.pending = batch.into_iter();
                }
                None => {
                    self.left_done = true;
                    return Ok(false);
                }
            }
        }
        if let Right::Lookup(lookup) = &mut self.right
            && self.fetched.len() == 0
        {
            let at_once = lookup.at_once();
            // Left rows that come by and by are gathered, unless few results are wanted.
            if self.pending.len() < at_once.min(want) && !self.left_done {
                let mut gathered: Batch = std::mem::take(&mut self.pending).collect();
                while gathered.len() < at_once.min(want) {
                    let Some(batch) = self.left.next(cx, want).await? else {
                        self.left_done = true;
                        break;
                    };
                    gathered.extend(batch);
                }
                self.pending = gathered.into_iter();
            }
            let coming = self.pending.as_slice();
            let coming = &coming[..coming.len().min(at_once)];
            self.fetched = lookup.fetch(coming, &self.scope, cx).await?.into_iter();
        }
        let Some(row) = self.pending.next() else { return Ok(false) };
        if matches!(self.right, Right::Unread) {
            let mut right = build(self.right_plan, &self.scope)?;
            let rows = drain(&mut right, cx, &mut self.memory).await?;
            let matched = if self.keeps_unmatched_right() { vec![false; rows.len()] } else { Vec::new() };
            self.right = Right::Kept { rows, matched };
        }
        let rows = match &self.right {
            Right::Lateral => {
                let operator = build(self.right_plan, &self.scope.with_row(row.clone()))?;
                RightRows::Running(operator, Vec::new().into_iter())
            }
            Right::Lookup(_) => {
                let Found { rows, rest } = self.fetched.next().unwrap_or_default();
                RightRows::Fetched(rows.into_iter(), rest)
            }
            Right::Kept { .. } | Right::Unread => RightRows::Kept(0),
        };
        self.current = Some(Current { row, matched: false, rows });
        Ok(true)
    }

    /// Adds the results of the current left row to `out` until the row is done (true) or enough are
    /// there (false).
    async fn step(&mut self, cx: &ExecContext<'_>, want: usize, out: &mut Batch) -> SqlResult<bool> {
        let Some(current) = &mut self.current else { return Ok(true) };
        let mut tested = 0_usize;
        while out.len() < want {
            tested += 1;
            if tested.is_multiple_of(BATCH_ROWS) {
                cx.pause().await?;
            }
            let (candidate, position) = match &mut current.rows {
                RightRows::Kept(position) => {
                    let Right::Kept { rows, .. } = &self.right else { return Ok(true) };
                    let Some(right) = rows.get(*position) else { break };
                    *position += 1;
                    (pair(&current.row, right), Some(*position - 1))
                }
                RightRows::Running(operator, rows) => match rows.next() {
                    Some(right) => (pair(&current.row, &right), None),
                    None => match operator.next(cx, want).await? {
                        Some(batch) => {
                            *rows = batch.into_iter();
                            continue;
                        }
                        None => break,
                    },
                },
                RightRows::Fetched(rows, rest) => match (rows.next(), &mut self.right) {
                    (Some(right), _) => (pair(&current.row, &right), None),
                    (None, Right::Lookup(lookup)) if !rest.is_empty() => {
                        *rows = lookup.more(&current.row, rest, &self.scope, cx).await?.into_iter();
                        continue;
                    }
                    (None, _) => break,
                },
            };
            if !accepts(self.on, &candidate, &self.scope, cx)? {
                continue;
            }
            current.matched = true;
            match self.kind {
                JoinKind::Semi => {
                    out.push(std::mem::take(&mut current.row));
                    return Ok(true);
                }
                JoinKind::Anti => return Ok(true),
                _ => out.push(candidate),
            }
            if let (Some(position), Right::Kept { matched, .. }) = (position, &mut self.right)
                && let Some(matched) = matched.get_mut(position)
            {
                *matched = true;
            }
        }
        if out.len() >= want {
            return Ok(false);
        }
        if !current.matched {
            let row = std::mem::take(&mut current.row);
            match self.kind {
                JoinKind::Anti => out.push(row),
                JoinKind::Left | JoinKind::Full => out.push(padded_left(row, self.right_plan.columns.len())),
                _ => {}
            }
        }
        Ok(true)
    }

    async fn unmatched_right(&mut self, cx: &ExecContext<'_>, want: usize, out: &mut Batch) -> SqlResult<()> {
        if matches!(self.right, Right::Unread) {
            // There was no left row at all.
            let mut right = build(self.right_plan, &self.scope)?;
            let rows = drain(&mut right, cx, &mut self.memory).await?;
            self.right = Right::Kept { matched: vec![false; rows.len()], rows };
        }
        let Right::Kept { rows, matched } = &self.right else { return Ok(()) };
        while out.len() < want
            && let (Some(row), Some(matched)) = (rows.get(self.leftover), matched.get(self.leftover))
        {
            self.leftover += 1;
            if !matched {
                out.push(padded_right(self.left_width, row));
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Operator for NestedLoop<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        let want = want.clamp(1, BATCH_ROWS);
        let mut out = Batch::new();
        let mut rounds = 0_usize;
        while out.len() < want {
            if self.current.is_some() {
                if !self.step(cx, want, &mut out).await? {
                    break;
                }
                self.current = None;
            }
            rounds += 1;
            if rounds.is_multiple_of(BATCH_ROWS) {
                cx.pause().await?;
            }
            // Rows already found are returned before waiting for more of the left side.
            if self.pending.len() == 0 && !out.is_empty() && !self.left_done {
                break;
            }
            if !self.advance(cx, want).await? {
                if self.keeps_unmatched_right() {
                    self.unmatched_right(cx, want, &mut out).await?;
                }
                break;
            }
        }
        Ok((!out.is_empty()).then_some(out))
    }

    fn narrow(&mut self, column: usize, sought: &Sought) {
        if column < self.left_width && !self.keeps_unmatched_right() {
            self.left.narrow(column, sought);
        }
    }
}
