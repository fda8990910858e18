//! Hash joins.

use super::hash_key::{KEY_OVERHEAD, KeyTable};
use super::join::{accepts, padded_left, padded_right, pair};
use super::operator::{BATCH_ROWS, Batch, Operator, build};
use super::partition::{KeyedInput, Partitions};
use super::relation::row_bytes;
use super::scope::Scope;
use super::sought::{Gathered, Sought};
use super::spill::Run;
use super::{ExecContext, Reservation};
use crate::plan::{Expr, JoinKind, Plan};
use async_trait::async_trait;
use sql_types::{Datum, Row, SqlError, SqlResult, Type};
use std::sync::Arc;

const NO_ROW: u32 = u32::MAX;
/// In the place of the next row of one that was written to a file.
const DIVIDED: u32 = u32::MAX - 1;

/// The rows of the right side of a hash join.
///
/// In this file the right side is the one that the table is made of. Of a plan's semi- or anti-join that may be its left one
/// ([`JoinKind::hashes_left`]): then the rows of the table are returned, if a left row matches them or none does.
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
    /// Adds a row; returns the bytes that it takes.
    fn add(&mut self, key: &Row, row: Row) -> usize {
        let index = self.rows.len() as u32;
        let mut bytes = row_bytes(&row) + 8;
        self.next.push(NO_ROW);
        if !key.iter().any(Datum::is_null) {
            let (position, new) = self.keys.insert(key, || key.clone());
            if new {
                bytes += row_bytes(key) + KEY_OVERHEAD;
                self.first.push(index);
            } else {
                self.next[index as usize] = std::mem::replace(&mut self.first[position], index);
            }
        }
        self.rows.push(row);
        bytes
    }

    /// Writes the rows to files. Of keys that are NULL in part nothing is left: they find no one.
    fn divide(mut self, key_width: usize, into: &mut Partitions) -> SqlResult<()> {
        for (key, first) in self.keys.into_keys().iter().zip(self.first) {
            let mut index = first;
            while index != NO_ROW {
                let row = std::mem::take(&mut self.rows[index as usize]);
                into.add(key, key.iter().chain(&row))?;
                index = std::mem::replace(&mut self.next[index as usize], DIVIDED);
            }
        }
        let nulls = vec![Datum::Null; key_width];
        let without_key = self.rows.iter().zip(&self.next).filter(|(_, next)| **next != DIVIDED);
        without_key.into_iter().try_for_each(|(row, _)| into.add(&nulls, nulls.iter().chain(row)))
    }

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

/// What is joined how: the same for all rows, and for the pairs of files that they may be divided among.
#[derive(Clone)]
struct Shape<'p> {
    kind: JoinKind,
    /// The sides are turned: rows of the table are returned, and `on` has the columns of the right side first.
    turned: bool,
    /// Types of keys and rows, left and right.
    types: [Arc<[Type]>; 2],
    /// How many values a key has.
    key_width: usize,
    on: Option<&'p Expr>,
    scope: Scope<'p>,
    widths: (usize, usize),
}

impl Shape<'_> {
    fn keeps_all_right(&self) -> bool {
        match self.kind {
            JoinKind::Right | JoinKind::Full => true,
            kind => self.turned && kind == JoinKind::Anti,
        }
    }

    fn keeps_all_left(&self) -> bool {
        match self.kind {
            JoinKind::Left | JoinKind::Full => true,
            kind => !self.turned && kind == JoinKind::Anti,
        }
    }
}

/// A hash table over the right side, probed by each left row. If it does not fit into memory, both sides are divided among
/// files by their keys, and each pair of these is joined by itself.
pub(crate) struct HashJoin<'p> {
    shape: Shape<'p>,
    left: KeyedInput<'p>,
    right: KeyedInput<'p>,
    /// How often the rows were divided.
    level: u32,
    build: Option<Build<'p>>,
    pending: std::vec::IntoIter<Row>,
    current: Option<Probe>,
    left_done: bool,
    leftover: usize,
    memory: Reservation,
}

/// The right side, once it was read.
enum Build<'p> {
    Table(BuildSide),
    /// Files of both sides, and the join of a pair of them.
    Divided {
        pairs: std::vec::IntoIter<(Run, Run)>,
        current: Option<Box<HashJoin<'p>>>,
    },
}

fn types<'k>(keys: impl Iterator<Item = &'k Expr>, plan: &Plan) -> Arc<[Type]> {
    keys.map(Expr::ty).chain(plan.columns.iter().map(|column| column.ty.ty)).collect()
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
        let [mut left_keys, mut right_keys] =
            [|(key, _): &'p (Expr, Expr)| key, |(_, key): &'p (Expr, Expr)| key];
        let (mut left, mut right) = (left, right);
        let turned = kind.hashes_left(left.rows, right.rows);
        if turned {
            std::mem::swap(&mut left, &mut right);
            std::mem::swap(&mut left_keys, &mut right_keys);
        }
        let input = |plan, keys| Ok(KeyedInput::Computed { input: build(plan, scope)?, keys });
        let shape = Shape {
            kind,
            turned,
            types: [types(keys.iter().map(left_keys), left), types(keys.iter().map(right_keys), right)],
            key_width: keys.len(),
            on,
            scope: scope.clone(),
            widths: (left.columns.len(), right.columns.len()),
        };
        let left = input(left, keys.iter().map(left_keys).collect())?;
        let right = input(right, keys.iter().map(right_keys).collect())?;
        Ok(Self::over(shape, left, right, 0))
    }

    /// The same of the rows in a pair of files.
    fn of_pair(&self, left: Run, right: Run) -> Self {
        let [left_types, right_types] = &self.shape.types;
        let left = KeyedInput::spilled(left, left_types, self.shape.key_width);
        let right = KeyedInput::spilled(right, right_types, self.shape.key_width);
        Self::over(self.shape.clone(), left, right, self.level + 1)
    }

    fn over(shape: Shape<'p>, left: KeyedInput<'p>, right: KeyedInput<'p>, level: u32) -> Self {
        HashJoin {
            shape,
            left,
            right,
            level,
            build: None,
            pending: Vec::new().into_iter(),
            current: None,
            left_done: false,
            leftover: 0,
            memory: Reservation::default(),
        }
    }

    async fn read_right(&mut self, cx: &ExecContext<'_>) -> SqlResult<Build<'p>> {
        let mut side = BuildSide {
            keys: KeyTable::new(),
            first: Vec::new(),
            next: Vec::new(),
            rows: Vec::new(),
            matched: Vec::new(),
        };
        let keeps_all = self.shape.keeps_all_right();
        let mut key = Row::new();
        while let Some(batch) = self.right.next(cx).await? {
            let mut bytes = 0;
            {
                let env = self.shape.scope.env(cx);
                for mut row in batch {
                    self.right.split(&mut row, &mut key, &env)?;
                    if keeps_all || !key.iter().any(Datum::is_null) {
                        bytes += side.add(&key, row);
                    }
                }
            }
            if let Err(full) = self.memory.grow(cx.memory, bytes) {
                return self.divide(side, cx, full).await;
            }
            cx.pause().await?;
        }
        if keeps_all || self.shape.turned {
            side.matched = vec![false; side.rows.len()];
        }
        Ok(Build::Table(side))
    }

    /// Tells the left side which keys there are, where rows without one of them are of no use.
    fn narrow_left(&mut self, side: &BuildSide) {
        if self.shape.keeps_all_left() {
            return;
        }
        for number in 0..self.shape.key_width {
            let Some(column) = self.left.key_column(number) else { continue };
            let mut values = Gathered::default();
            for key in side.keys.keys() {
                if values.is_useless() {
                    break;
                }
                values.add_datum(key.get(number).unwrap_or(&Datum::Null));
            }
            if let Some(sought) = values.finish() {
                self.left.narrow(column, &sought);
            }
        }
    }

    /// Divides what was read of the right side, the rest of it, and the left side.
    async fn divide(
        &mut self,
        side: BuildSide,
        cx: &ExecContext<'_>,
        full: SqlError,
    ) -> SqlResult<Build<'p>> {
        let [left_types, right_types] = &self.shape.types;
        let all_types = left_types.iter().chain(&**right_types).copied();
        let mut right = Partitions::begin(cx, all_types.clone(), self.level, full.clone())?;
        side.divide(self.shape.key_width, &mut right)?;
        self.memory.release();
        let finds = |key: &[Datum]| !key.iter().any(Datum::is_null);
        let keeps_all = self.shape.keeps_all_right();
        self.right.divide(cx, &self.shape.scope, &mut right, |key| keeps_all || finds(key)).await?;
        let right = right.finish()?;
        let mut left = Partitions::begin(cx, all_types, self.level, full)?;
        let keeps_all = self.shape.keeps_all_left();
        self.left.divide(cx, &self.shape.scope, &mut left, |key| keeps_all || finds(key)).await?;
        let pairs: Vec<_> = left.finish()?.into_iter().zip(right).collect();
        Ok(Build::Divided { pairs: pairs.into_iter(), current: None })
    }

    /// The next rows of pairs of files.
    async fn of_pairs(
        &mut self,
        pairs: &mut std::vec::IntoIter<(Run, Run)>,
        current: &mut Option<Box<HashJoin<'p>>>,
        cx: &ExecContext<'_>,
        want: usize,
    ) -> SqlResult<Option<Batch>> {
        loop {
            if let Some(join) = current
                && let Some(batch) = Operator::next(&mut **join, cx, want).await?
            {
                return Ok(Some(batch));
            }
            let Some((left, right)) = pairs.next() else { return Ok(None) };
            let nothing = left.is_empty() && (right.is_empty() || !self.shape.keeps_all_right());
            *current = (!nothing).then(|| Box::new(self.of_pair(left, right)));
            cx.pause().await?;
        }
    }

    fn probe(&self, side: &BuildSide, mut row: Row, key: &mut Row, cx: &ExecContext<'_>) -> SqlResult<Probe> {
        self.left.split(&mut row, key, &self.shape.scope.env(cx))?;
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
            if self.shape.turned && side.matched.get(index) == Some(&true) {
                continue;
            }
            let row_only = matches!(self.shape.kind, JoinKind::Semi | JoinKind::Anti);
            let candidate = if row_only && self.shape.on.is_none() {
                Row::new()
            } else if self.shape.turned {
                pair(&side.rows[index], &current.row)
            } else {
                pair(&current.row, &side.rows[index])
            };
            if !accepts(self.shape.on, &candidate, &self.shape.scope, cx)? {
                continue;
            }
            current.matched = true;
            if let Some(matched) = side.matched.get_mut(index) {
                *matched = true;
            }
            match self.shape.kind {
                // Nobody looks at it again, for it has matched.
                JoinKind::Semi if self.shape.turned => out.push(std::mem::take(&mut side.rows[index])),
                JoinKind::Anti if self.shape.turned => {}
                JoinKind::Semi => {
                    out.push(std::mem::take(&mut current.row));
                    return Ok(true);
                }
                JoinKind::Anti => return Ok(true),
                _ => out.push(candidate),
            }
        }
        if !current.matched && self.shape.keeps_all_left() {
            let row = std::mem::take(&mut current.row);
            match self.shape.kind {
                JoinKind::Anti => out.push(row),
                JoinKind::Left | JoinKind::Full => out.push(padded_left(row, self.shape.widths.1)),
                _ => {}
            }
        }
        Ok(true)
    }

    fn unmatched_right(&mut self, side: &BuildSide, want: usize, out: &mut Batch) {
        while self.shape.keeps_all_right()
            && out.len() < want
            && let (Some(row), Some(matched)) =
                (side.rows.get(self.leftover), side.matched.get(self.leftover))
        {
            self.leftover += 1;
            match (matched, self.shape.turned) {
                (true, _) => {}
                (false, true) => out.push(row.clone()),
                (false, false) => out.push(padded_right(self.shape.widths.0, row)),
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
            match self.left.next(cx).await? {
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
        let mut build = match self.build.take() {
            Some(build) => build,
            None => {
                let build = self.read_right(cx).await?;
                if let Build::Table(side) = &build {
                    self.narrow_left(side);
                }
                build
            }
        };
        let want = want.clamp(1, BATCH_ROWS);
        let result = match &mut build {
            Build::Table(side) => self.fill(side, cx, want).await.map(|out| (!out.is_empty()).then_some(out)),
            Build::Divided { pairs, current } => self.of_pairs(pairs, current, cx, want).await,
        };
        self.build = Some(build);
        result
    }

    fn narrow(&mut self, column: usize, sought: &Sought) {
        if self.shape.turned {
            return self.right.narrow(column, sought);
        }
        match (column.checked_sub(self.shape.widths.0), self.shape.kind) {
            (None, JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti) => {
                self.left.narrow(column, sought);
            }
            (Some(column), JoinKind::Inner) => self.right.narrow(column, sought),
            _ => {}
        }
    }
}
