//! Window functions.
//!
//! All rows are kept, then for each call sorted by its PARTITION BY and ORDER BY, cut into partitions
//! and given the call's value as a further column.

use super::accumulate::Accumulation;
use super::eval::{EvalEnv, eval};
use super::operator::{BATCH_ROWS, Batch, BoxOperator, Operator, drain};
use super::scope::Scope;
use super::sort::{compare_key, compare_keys, compare_values};
use super::window_frame::{Frame, FrameRows, Partition};
use super::{ExecContext, Reservation};
use crate::plan::expr::WindowKind;
use crate::plan::{AggregateCall, Expr, WindowCall};
use async_trait::async_trait;
use sql_types::functions::{WindowFunction, WindowRows};
use sql_types::{Datum, Row, SqlResult};
use std::ops::Range;

pub(crate) struct Window<'p> {
    input: BoxOperator<'p>,
    calls: &'p [WindowCall],
    scope: Scope<'p>,
    results: Option<std::vec::IntoIter<Row>>,
    memory: Reservation,
}

/// A row on its way: its PARTITION BY and ORDER BY values for the call at hand, and itself.
struct Keyed {
    partition: Row,
    order: Row,
    row: Row,
}

impl<'p> Window<'p> {
    pub fn new(input: BoxOperator<'p>, calls: &'p [WindowCall], scope: &Scope<'p>) -> Self {
        Window { input, calls, scope: scope.clone(), results: None, memory: Reservation::default() }
    }

    async fn compute(&mut self, cx: &ExecContext<'_>) -> SqlResult<Vec<Row>> {
        let mut rows = drain(&mut self.input, cx, &mut self.memory).await?;
        for call in self.calls {
            // Keys, the new column and the frames of one partition.
            self.memory.grow(cx.memory, rows.len() * (call.partition.len() + call.order.len() + 2) * 40)?;
            let keyed = self.sorted(call, rows, cx)?;
            cx.pause().await?;
            let mut values = Vec::with_capacity(keyed.len());
            let mut start = 0;
            while start < keyed.len() {
                let end = start
                    + keyed[start..].partition_point(|row| same(&row.partition, &keyed[start].partition));
                partition(call, &keyed[start..end], &mut values, &self.scope, cx).await?;
                start = end;
            }
            rows = keyed
                .into_iter()
                .zip(values)
                .map(|(mut keyed, value)| {
                    keyed.row.push(value);
                    keyed.row
                })
                .collect();
        }
        Ok(rows)
    }

    fn sorted(&self, call: &WindowCall, rows: Vec<Row>, cx: &ExecContext<'_>) -> SqlResult<Vec<Keyed>> {
        let env = self.scope.env(cx);
        let mut keyed = Vec::with_capacity(rows.len());
        for row in rows {
            let partition =
                call.partition.iter().map(|expr| eval(expr, &row, &env)).collect::<SqlResult<Row>>()?;
            let order =
                call.order.iter().map(|key| eval(&key.expr, &row, &env)).collect::<SqlResult<Row>>()?;
            keyed.push(Keyed { partition, order, row });
        }
        keyed.sort_by(|left, right| {
            compare_values(&left.partition, &right.partition)
                .then_with(|| compare_keys(&call.order, &left.order, &right.order))
        });
        Ok(keyed)
    }
}

/// Adds the call's values for the rows of one partition.
async fn partition(
    call: &WindowCall,
    rows: &[Keyed],
    values: &mut Vec<Datum>,
    scope: &Scope<'_>,
    cx: &ExecContext<'_>,
) -> SqlResult<()> {
    let partition = Partition::new(rows.len(), |left, right| {
        let keys = call.order.iter().zip(&rows[left].order).zip(&rows[right].order);
        keys.into_iter().all(|((key, left), right)| compare_key(key, left, right).is_eq())
    });
    let frame = {
        let orders: Vec<&Row> = rows.iter().map(|row| &row.order).collect();
        Frame::new(call, &partition, orders, &scope.env(cx))?
    };
    let mut running = Running::default();
    for index in 0..rows.len() {
        if index % BATCH_ROWS == BATCH_ROWS - 1 {
            cx.pause().await?;
        }
        let env = scope.env(cx);
        let frame = frame.rows(index, &partition, &env)?;
        values.push(match &call.kind {
            WindowKind::Function(function, args) => {
                function_value(function, args, index, rows, &partition, frame, &env)?
            }
            WindowKind::Aggregate(aggregate) => running.value(aggregate, rows, frame, &env)?,
        });
    }
    Ok(())
}

fn same(left: &[Datum], right: &[Datum]) -> bool {
    compare_values(left, right).is_eq()
}

/// An aggregate over frames that mostly grow.
#[derive(Default)]
struct Running {
    state: Option<Accumulation>,
    frame: FrameRows,
    result: Datum,
}

impl Running {
    fn value(
        &mut self,
        call: &AggregateCall,
        rows: &[Keyed],
        frame: FrameRows,
        env: &EvalEnv<'_>,
    ) -> SqlResult<Datum> {
        if self.state.is_some() && frame == self.frame {
            return Ok(self.result.clone());
        }
        let fresh = match frame.beyond(&self.frame) {
            // Ordered aggregates consume what they kept, so they start over.
            Some(fresh) if self.state.is_some() && call.order.is_empty() => fresh,
            _ => {
                self.state = None;
                frame.clone()
            }
        };
        let state = self.state.get_or_insert_with(|| Accumulation::new(call));
        for index in fresh.iter() {
            state.add(call, &rows[index].row, env)?;
        }
        self.result = state.finish(call, env)?;
        self.frame = frame;
        Ok(self.result.clone())
    }
}

/// What a window function sees.
struct View<'a> {
    index: usize,
    rows: &'a [Keyed],
    args: &'a [Expr],
    partition: &'a Partition,
    frame: FrameRows,
    env: &'a EvalEnv<'a>,
}

impl WindowRows for View<'_> {
    fn len(&self) -> usize {
        self.rows.len()
    }
    fn current(&self) -> usize {
        self.index
    }
    fn peers(&self) -> Range<usize> {
        self.partition.peers(self.index)
    }
    fn peer_group(&self) -> usize {
        self.partition.group(self.index)
    }
    fn frame_len(&self) -> usize {
        self.frame.len()
    }
    fn frame_row(&self, n: usize) -> Option<usize> {
        self.frame.nth(n)
    }
    fn arg(&self, row: usize, n: usize) -> SqlResult<Datum> {
        match (self.args.get(n), self.rows.get(row)) {
            (Some(arg), Some(row)) => eval(arg, &row.row, self.env),
            _ => Ok(Datum::Null),
        }
    }
    fn args(&self) -> usize {
        self.args.len()
    }
}

fn function_value(
    function: &WindowFunction,
    args: &[Expr],
    index: usize,
    rows: &[Keyed],
    partition: &Partition,
    frame: FrameRows,
    env: &EvalEnv<'_>,
) -> SqlResult<Datum> {
    (function.eval)(env.eval, &View { index, rows, args, partition, frame, env })
}

#[async_trait]
impl Operator for Window<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        if self.results.is_none() {
            self.results = Some(self.compute(cx).await?.into_iter());
        }
        let results = self.results.iter_mut().flatten();
        let batch: Batch = results.take(want.clamp(1, BATCH_ROWS)).collect();
        Ok((!batch.is_empty()).then_some(batch))
    }
}
