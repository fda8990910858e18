//! Hash joins.

use super::eval::eval;
use super::hash_key::{KEY_OVERHEAD, KeyTable};
use super::join::{accepts, padded_left, padded_right, pair};
use super::operator::{BATCH_ROWS, Batch, BoxOperator, Operator, build};
use super::relation::row_bytes;
use super::scope::Scope;
use super::{ExecContext, Reservation};
use crate::plan::{Expr, JoinKind, Plan};
use async_trait::async_trait;
use sql_types::{Datum, Row, SqlResult};

const NO_ROW: u32 = u32::MAX;

/// The rows of the right side of a hash join.
struct BuildSide {
    keys: KeyTable,
    /// By key: its first row.
    first: Vec<u32>,
    /// By row: the next row with the same key.
    next: Vec<u32>,
    rows: Vec<Row>,
    matched: Vec<bool>,
}

impl BuildSide {
    /// The first row with a key.
    fn find(&self, key: &[Datum]) -> u32 {
        if key.iter().any(Datum::is_null) {
            return NO_ROW;
        }
        self.keys.find(key).map_or(NO_ROW, |position| self.first[position])
    }
}

/// The left row a hash join is at.
struct Probe {
    row: Row,
    matched: bool,
    /// Next right row to look at.
    candidate: u32,
}

/// A hash table over the right side, probed by each left row.
pub(crate) struct HashJoin<'p> {
    kind: JoinKind,
    keys: &'p [(Expr, Expr)],
    left: BoxOperator<'p>,
    right: BoxOperator<'p>,
    on: Option<&'p Expr>,
    scope: Scope<'p>,
    widths: (usize, usize),
    table: Option<BuildSide>,
    pending: std::vec::IntoIter<Row>,
    current: Option<Probe>,
    left_done: bool,
    leftover: usize,
    memory: Reservation,
}

impl<'p> HashJoin<'p> {
    pub fn new(
        kind: JoinKind,
        keys: &'p [(Expr, Expr)],
        left: &'p Plan,
        right: &'p Plan,
        on: Option<&'p Expr>,
        scope: &Scope<'p>,
    ) -> SqlResult<Self> {
        Ok(HashJoin {
            kind,
            keys,
            left: build(left, scope)?,
            right: build(right, scope)?,
            on,
            scope: scope.clone(),
            widths: (left.columns.len(), right.columns.len()),
            table: None,
            pending: Vec::new().into_iter(),
            current: None,
            left_done: false,
            leftover: 0,
            memory: Reservation::default(),
        })
    }

    async fn read_right(&mut self, cx: &ExecContext<'_>) -> SqlResult<BuildSide> {
        let mut side = BuildSide {
            keys: KeyTable::new(),
            first: Vec::new(),
            next: Vec::new(),
            rows: Vec::new(),
            matched: Vec::new(),
        };
        let keeps_all = matches!(self.kind, JoinKind::Right | JoinKind::Full);
        let mut key = Row::new();
        while let Some(batch) = self.right.next(cx, BATCH_ROWS).await? {
            let mut bytes = 0;
            for row in batch {
                key.clear();
                {
                    let env = self.scope.env(cx);
                    for (_, right) in self.keys {
                        key.push(eval(right, &row, &env)?);
                    }
                }
                let null = key.iter().any(Datum::is_null);
                if null && !keeps_all {
                    continue;
                }
                let index = side.rows.len() as u32;
                bytes += row_bytes(&row) + 8;
                side.next.push(NO_ROW);
                if !null {
                    let (position, new) = side.keys.insert(&key, || key.clone());
                    if new {
                        bytes += row_bytes(&key) + KEY_OVERHEAD;
                        side.first.push(index);
                    } else {
                        side.next[index as usize] = std::mem::replace(&mut side.first[position], index);
                    }
                }
                side.rows.push(row);
            }
            self.memory.grow(cx.memory, bytes)?;
            cx.pause().await?;
        }
        if keeps_all {
            side.matched = vec![false; side.rows.len()];
        }
        Ok(side)
    }

    fn probe(&self, side: &BuildSide, row: Row, key: &mut Row, cx: &ExecContext<'_>) -> SqlResult<Probe> {
        key.clear();
        let env = self.scope.env(cx);
        for (left, _) in self.keys {
            key.push(eval(left, &row, &env)?);
        }
        Ok(Probe { row, matched: false, candidate: side.find(key) })
    }

    /// Adds the results of the current left row; false if `out` filled up before the row was done.
    fn step(
        &mut self,
        side: &mut BuildSide,
        cx: &ExecContext<'_>,
        want: usize,
        out: &mut Batch,
    ) -> SqlResult<bool> {
        let Some(current) = &mut self.current else { return Ok(true) };
        while current.candidate != NO_ROW {
            if out.len() >= want {
                return Ok(false);
            }
            let index = current.candidate as usize;
            current.candidate = side.next[index];
            let row_only = matches!(self.kind, JoinKind::Semi | JoinKind::Anti);
            let candidate = if row_only && self.on.is_none() {
                Row::new()
            } else {
                pair(&current.row, &side.rows[index])
            };
            if !accepts(self.on, &candidate, &self.scope, cx)? {
                continue;
            }
            current.matched = true;
            if let Some(matched) = side.matched.get_mut(index) {
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
            match self.kind {
                JoinKind::Anti => out.push(row),
                JoinKind::Left | JoinKind::Full => out.push(padded_left(row, self.widths.1)),
                _ => {}
            }
        }
        Ok(true)
    }

    fn unmatched_right(&mut self, side: &BuildSide, want: usize, out: &mut Batch) {
        while out.len() < want
            && let (Some(row), Some(matched)) =
                (side.rows.get(self.leftover), side.matched.get(self.leftover))
        {
            self.leftover += 1;
            if !matched {
                out.push(padded_right(self.widths.0, row));
            }
        }
    }

    async fn fill(&mut self, side: &mut BuildSide, cx: &ExecContext<'_>, want: usize) -> SqlResult<Batch> {
        let mut out = Batch::new();
        let mut key = Row::new();
        while out.len() < want {
            if self.current.is_some() {
                if !self.step(side, cx, want, &mut out)? {
                    break;
                }
                self.current = None;
            }
            if let Some(row) = self.pending.next() {
                self.current = Some(self.probe(side, row, &mut key, cx)?);
                continue;
            }
            if self.left_done {
                self.unmatched_right(side, want, &mut out);
                break;
            }
            if !out.is_empty() {
                break;
            }
            match self.left.next(cx, BATCH_ROWS).await? {
                Some(batch) => self.pending = batch.into_iter(),
                None => self.left_done = true,
            }
            cx.pause().await?;
        }
        Ok(out)
    }
}

#[async_trait]
impl Operator for HashJoin<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        let mut side = match self.table.take() {
            Some(side) => side,
            None => self.read_right(cx).await?,
        };
        let result = self.fill(&mut side, cx, want.clamp(1, BATCH_ROWS)).await;
        self.table = Some(side);
        result.map(|out| (!out.is_empty()).then_some(out))
    }
}
