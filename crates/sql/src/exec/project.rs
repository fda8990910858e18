//! Filter, Project, ProjectSet and Limit.

use super::ExecContext;
use super::eval::{eval, is_true};
use super::operator::{BATCH_ROWS, Batch, BoxOperator, Operator};
use super::scope::Scope;
use super::sought::{Sought, same_integer};
use super::source::call_set;
use crate::plan::{Expr, ProjectSetItem};
use async_trait::async_trait;
use sql_types::functions::SetRows;
use sql_types::{Datum, Row, SqlError, SqlResult, SqlState};

/// Keeps rows for which a predicate is true.
pub(crate) struct Filter<'p> {
    input: BoxOperator<'p>,
    predicate: &'p Expr,
    scope: Scope<'p>,
}

impl<'p> Filter<'p> {
    pub fn new(input: BoxOperator<'p>, predicate: &'p Expr, scope: &Scope<'p>) -> Self {
        Filter { input, predicate, scope: scope.clone() }
    }
}

/// Removes rows for which a predicate is not true.
pub(crate) fn retain(
    batch: &mut Batch,
    predicate: &Expr,
    scope: &Scope<'_>,
    cx: &ExecContext<'_>,
) -> SqlResult<()> {
    let env = scope.env(cx);
    let mut failure = None;
    batch.retain(|row| {
        failure.is_none()
            && is_true(predicate, row, &env).unwrap_or_else(|error| {
                failure = Some(error);
                false
            })
    });
    failure.map_or(Ok(()), Err)
}

#[async_trait]
impl Operator for Filter<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, _want: usize) -> SqlResult<Option<Batch>> {
        while let Some(mut batch) = self.input.next(cx, BATCH_ROWS).await? {
            retain(&mut batch, self.predicate, &self.scope, cx)?;
            if !batch.is_empty() {
                return Ok(Some(batch));
            }
            cx.pause().await?;
        }
        Ok(None)
    }

    fn narrow(&mut self, column: usize, sought: &Sought) {
        self.input.narrow(column, sought);
    }
}

/// Computes columns.
pub(crate) struct Project<'p> {
    input: BoxOperator<'p>,
    exprs: &'p [Expr],
    scope: Scope<'p>,
    shape: Shape,
}

/// What a projection does, where that is simple.
enum Shape {
    /// The first columns of the input as they are.
    Prefix,
    /// Input columns, none of them twice: values can be moved.
    Move(Vec<usize>),
    Compute,
}

impl Shape {
    fn of(exprs: &[Expr]) -> Shape {
        let mut columns = Vec::with_capacity(exprs.len());
        for expr in exprs {
            match expr {
                Expr::Column(index, _) if !columns.contains(index) => columns.push(*index),
                _ => return Shape::Compute,
            }
        }
        if columns.iter().copied().eq(0..columns.len()) { Shape::Prefix } else { Shape::Move(columns) }
    }
}

impl<'p> Project<'p> {
    pub fn new(input: BoxOperator<'p>, exprs: &'p [Expr], scope: &Scope<'p>) -> Self {
        Project { input, exprs, scope: scope.clone(), shape: Shape::of(exprs) }
    }
}

fn move_columns(mut row: Row, columns: &[usize]) -> Row {
    columns.iter().map(|column| row.get_mut(*column).map(std::mem::take).unwrap_or_default()).collect()
}

#[async_trait]
impl Operator for Project<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        let Some(mut batch) = self.input.next(cx, want).await? else { return Ok(None) };
        match &self.shape {
            Shape::Prefix => batch.iter_mut().for_each(|row| row.truncate(self.exprs.len())),
            Shape::Move(columns) => {
                batch.iter_mut().for_each(|row| *row = move_columns(std::mem::take(row), columns));
            }
            Shape::Compute => {
                let env = self.scope.env(cx);
                for row in &mut batch {
                    *row = self.exprs.iter().map(|expr| eval(expr, row, &env)).collect::<SqlResult<Row>>()?;
                }
            }
        }
        Ok(Some(batch))
    }

    fn narrow(&mut self, column: usize, sought: &Sought) {
        if let Some(from) = self.exprs.get(column).and_then(same_integer) {
            self.input.narrow(from, sought);
        }
    }
}

/// Projection with set-returning functions.
pub(crate) struct ProjectSet<'p> {
    input: BoxOperator<'p>,
    exprs: &'p [ProjectSetItem],
    scope: Scope<'p>,
    pending: std::vec::IntoIter<Row>,
    current: Option<Expansion>,
}

/// One input row being multiplied.
struct Expansion {
    columns: Vec<Column>,
}

enum Column {
    Scalar(Datum),
    Set(SetRows),
}

impl<'p> ProjectSet<'p> {
    pub fn new(input: BoxOperator<'p>, exprs: &'p [ProjectSetItem], scope: &Scope<'p>) -> Self {
        ProjectSet { input, exprs, scope: scope.clone(), pending: Vec::new().into_iter(), current: None }
    }

    fn expand(&self, row: &[Datum], cx: &ExecContext<'_>) -> SqlResult<Expansion> {
        let env = self.scope.env(cx);
        let mut columns = Vec::with_capacity(self.exprs.len());
        for item in self.exprs {
            columns.push(match item {
                ProjectSetItem::Scalar(expr) => Column::Scalar(eval(expr, row, &env)?),
                ProjectSetItem::Set(call) => Column::Set(call_set(call, row, &env)?),
            });
        }
        Ok(Expansion { columns })
    }
}

/// A row of a function as one value.
fn single(mut row: Row) -> Datum {
    if row.len() == 1 { row.pop().unwrap_or_default() } else { Datum::record(row) }
}

impl Expansion {
    /// The next row; `None` once every set has ended.
    fn next(&mut self) -> SqlResult<Option<Row>> {
        let mut any = false;
        let mut row = Row::with_capacity(self.columns.len());
        for column in &mut self.columns {
            row.push(match column {
                Column::Scalar(value) => value.clone(),
                Column::Set(rows) => match rows.next().transpose()? {
                    Some(values) => {
                        any = true;
                        single(values)
                    }
                    None => Datum::Null,
                },
            });
        }
        Ok(any.then_some(row))
    }
}

#[async_trait]
impl Operator for ProjectSet<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        let want = want.clamp(1, BATCH_ROWS);
        let mut batch = Vec::new();
        while batch.len() < want {
            if let Some(current) = &mut self.current {
                match current.next()? {
                    Some(row) => batch.push(row),
                    None => self.current = None,
                }
            } else if let Some(row) = self.pending.next() {
                self.current = Some(self.expand(&row, cx)?);
            } else if !batch.is_empty() {
                break;
            } else {
                match self.input.next(cx, want).await? {
                    Some(rows) => self.pending = rows.into_iter(),
                    None => return Ok(None),
                }
                cx.cancel.check()?;
            }
        }
        Ok(Some(batch))
    }
}

/// The value of an expression that counts rows; `None` for none or NULL.
pub(crate) fn row_count(
    expr: Option<&Expr>,
    scope: &Scope<'_>,
    cx: &ExecContext<'_>,
) -> SqlResult<Option<i64>> {
    let Some(expr) = expr else { return Ok(None) };
    match eval(expr, &[], &scope.env(cx))? {
        Datum::Null => Ok(None),
        Datum::Int8(count) => Ok(Some(count)),
        Datum::Int4(count) => Ok(Some(i64::from(count))),
        Datum::Int2(count) => Ok(Some(i64::from(count))),
        _ => Err(SqlError::internal("a row count is not an integer")),
    }
}

/// LIMIT and OFFSET.
pub(crate) struct Limit<'p> {
    input: BoxOperator<'p>,
    limit: Option<&'p Expr>,
    offset: Option<&'p Expr>,
    scope: Scope<'p>,
    /// Rows still to skip and to return, once known.
    left: Option<(u64, u64)>,
}

impl<'p> Limit<'p> {
    pub fn new(
        input: BoxOperator<'p>,
        limit: Option<&'p Expr>,
        offset: Option<&'p Expr>,
        scope: &Scope<'p>,
    ) -> Self {
        Limit { input, limit, offset, scope: scope.clone(), left: None }
    }

    fn count(
        &self,
        expr: Option<&Expr>,
        cx: &ExecContext<'_>,
        negative: (SqlState, &str),
    ) -> SqlResult<Option<u64>> {
        let count = row_count(expr, &self.scope, cx)?;
        count.map(|count| u64::try_from(count).map_err(|_| SqlError::new(negative.0, negative.1))).transpose()
    }
}

#[async_trait]
impl Operator for Limit<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        let (mut skip, mut left) = match self.left {
            Some(left) => left,
            None => {
                let limit =
                    self.count(self.limit, cx, (SqlState::INVALID_LIMIT, "LIMIT must not be negative"))?;
                let offset =
                    self.count(self.offset, cx, (SqlState::INVALID_OFFSET, "OFFSET must not be negative"))?;
                (offset.unwrap_or(0), limit.unwrap_or(u64::MAX))
            }
        };
        loop {
            self.left = Some((skip, left));
            if left == 0 {
                return Ok(None);
            }
            let useful = skip.saturating_add(left.min(want as u64)).min(BATCH_ROWS as u64) as usize;
            let Some(mut batch) = self.input.next(cx, useful).await? else {
                self.left = Some((0, 0));
                return Ok(None);
            };
            let skipped = skip.min(batch.len() as u64);
            skip -= skipped;
            if skipped > 0 {
                batch.drain(..skipped as usize);
            }
            batch.truncate(left.min(batch.len() as u64) as usize);
            left -= batch.len() as u64;
            if !batch.is_empty() {
                self.left = Some((skip, left));
                return Ok(Some(batch));
            }
            cx.cancel.check()?;
        }
    }
}
