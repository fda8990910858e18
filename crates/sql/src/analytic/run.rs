//! [`Analytic`]: the operator that runs a translated aggregate.

use super::ahead::Ahead;
use super::column_scan::ColumnScan;
use super::columns;
use super::memory::context;
use super::source::Leaf;
use super::translate::{self, Feed, Joins, LARGEST_TOTAL, LeafPlan, Narrowing, Output};
use crate::exec::ExecContext;
use crate::exec::operator::{BATCH_ROWS, Batch, BoxOperator, Operator, build, build_plain};
use crate::exec::scan::Scan;
use crate::exec::scope::Scope;
use crate::exec::sought::Sought;
use crate::plan::Plan;
use async_trait::async_trait;
use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::common::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use sql_types::numeric::Numeric;
use sql_types::{ColumnType, Datum, Row, SqlError, SqlResult, SqlState, Type};
use std::future::poll_fn;
use std::task::Poll;

/// An aggregate that DataFusion runs if it can, and the row engine otherwise.
pub(crate) struct Analytic<'p> {
    part: Part<'p>,
    state: State<'p>,
}

/// The part of a plan that is run.
struct Part<'p> {
    plan: &'p Plan,
    scope: Scope<'p>,
    /// What is looked for in columns of the result.
    sought: Vec<(usize, Sought)>,
}

enum State<'p> {
    NotStarted,
    Running(Running<'p>),
    /// The row engine has taken over.
    Row(BoxOperator<'p>),
}

struct Running<'p> {
    output: SendableRecordBatchStream,
    outputs: Vec<Output>,
    leaves: Vec<(Leaf, Source<'p>)>,
    joins: Joins,
    has_joins: bool,
    /// What leaves have not been told yet.
    narrowings: Vec<Narrowing>,
    rows: std::vec::IntoIter<Row>,
    returned: bool,
    /// Whether the host knows that it ran.
    counted: bool,
}

/// Where a leaf's batches come from.
enum Source<'p> {
    Rows(BoxOperator<'p>),
    Columns(ColumnScan),
}

impl Source<'_> {
    /// Tells the leaf of this number what is to be looked for, as far as it is known by now.
    fn narrow(&mut self, leaf: usize, narrowings: &mut Vec<Narrowing>) {
        narrowings.retain(|one| {
            let Some(sought) = (one.leaf == leaf).then(|| one.passed.take()).flatten() else { return true };
            self.leave_out(one.column, &sought);
            false
        });
    }

    /// Rows with other values in a column will not be used.
    fn leave_out(&mut self, column: usize, sought: &Sought) {
        match self {
            Source::Rows(operator) => operator.narrow(column, sought),
            Source::Columns(scan) => scan.narrow(column, sought),
        }
    }

    /// What was read ahead is gone.
    fn restart(&mut self) {
        if let Source::Columns(scan) = self {
            scan.restart();
        }
    }
}

/// Why the analytical engine stopped.
enum Stop {
    /// The statement fails.
    Fail(SqlError),
    /// The statement's memory does not suffice.
    Exhausted(SqlError),
    /// The row engine shall try.
    GiveUp,
}

impl From<SqlError> for Stop {
    fn from(error: SqlError) -> Self {
        Stop::Fail(error)
    }
}

impl From<DataFusionError> for Stop {
    fn from(error: DataFusionError) -> Self {
        match error.find_root() {
            DataFusionError::ResourcesExhausted(message) => {
                let error = SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory");
                Stop::Exhausted(error.with_detail(message.clone()))
            }
            _ => Stop::GiveUp,
        }
    }
}

impl<'p> Analytic<'p> {
    pub fn new(plan: &'p Plan, scope: &Scope<'p>) -> Self {
        let part = Part { plan, scope: scope.clone(), sought: Vec::new() };
        Analytic { part, state: State::NotStarted }
    }
}

impl<'p> Part<'p> {
    /// Starts it, or the row engine if it cannot be translated.
    async fn start(&self, joins: Joins, cx: &ExecContext<'_>) -> SqlResult<State<'p>> {
        match self.run(joins, cx).await? {
            Some(running) => Ok(State::Running(running)),
            None => self.by_row(),
        }
    }

    fn by_row(&self) -> SqlResult<State<'p>> {
        let mut operator = build_plain(self.plan, &self.scope)?;
        self.sought.iter().for_each(|(column, sought)| operator.narrow(*column, sought));
        Ok(State::Row(operator))
    }

    async fn run(&self, joins: Joins, cx: &ExecContext<'_>) -> SqlResult<Option<Running<'p>>> {
        let (plan, scope) = (self.plan, &self.scope);
        let Some(translated) = translate::aggregate(plan, joins, scope.env(cx), cx) else {
            return Ok(None);
        };
        let mut leaves = Vec::with_capacity(translated.leaves.len());
        for LeafPlan { leaf, feed } in translated.leaves {
            let source = match feed {
                Feed::Rows(plan) => Source::Rows(build(plan, scope)?),
                Feed::Unfiltered(plan) => Source::Rows(Box::new(Scan::new(plan, scope)?.without_filter())),
                Feed::Columns(scan) => Source::Columns(scan),
            };
            leaves.push((leaf, source));
        }
        for (column, sought) in &self.sought {
            if let Some(Some((leaf, column))) = translated.groups.get(*column)
                && let Some((_, source)) = leaves.get_mut(*leaf)
            {
                source.leave_out(*column, sought);
            }
        }
        let Ok(context) = context(cx) else { return Ok(None) };
        let Ok(output) = translated.plan.execute(0, context) else { return Ok(None) };
        let mut running = Running {
            output,
            outputs: translated.outputs,
            leaves,
            joins,
            has_joins: translated.has_joins,
            narrowings: translated.narrowings,
            rows: Vec::new().into_iter(),
            returned: false,
            counted: false,
        };
        running.take_apart(cx).await?;
        Ok(Some(running))
    }
}

/// What the operator does next.
enum Step {
    Take(Option<Result<RecordBatch, DataFusionError>>),
    Feed(usize),
}

impl Running<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> Result<Option<Batch>, Stop> {
        let mut ahead: Vec<Ahead<'_>> = self.leaves.iter().map(|_| Ahead::default()).collect();
        self.leaves.iter_mut().for_each(|(_, source)| source.restart());
        loop {
            let batch: Batch = self.rows.by_ref().take(want.clamp(1, BATCH_ROWS)).collect();
            if !batch.is_empty() {
                self.returned = true;
                return Ok(Some(batch));
            }
            match self.step(&mut ahead, cx).await {
                Step::Take(None) => return Ok(None),
                Step::Take(Some(batch)) => self.rows = self.decode(&batch?)?.into_iter(),
                Step::Feed(leaf) => self.feed(leaf, &mut ahead, cx).await?,
            }
        }
    }

    /// Whether it may be run again with joins that need less memory.
    fn can_merge(&self) -> bool {
        self.joins == Joins::Hash && self.has_joins && !self.returned
    }

    /// Looks which parts of scans can be read side by side.
    async fn take_apart(&mut self, cx: &ExecContext<'_>) -> SqlResult<()> {
        for (_, source) in &mut self.leaves {
            if let Source::Columns(scan) = source {
                scan.take_apart(cx).await?;
            }
        }
        Ok(())
    }

    async fn step<'c>(&mut self, ahead: &mut [Ahead<'c>], cx: &'c ExecContext<'_>) -> Step {
        // Exclusively, for operators cannot be shared between threads.
        let (output, leaves, narrowings) = (&mut self.output, &mut self.leaves, &mut self.narrowings);
        poll_fn(move |task| {
            // Requests go out before the engine works.
            ahead.iter_mut().for_each(|ahead| _ = ahead.poll(task));
            if let Poll::Ready(batch) = output.poll_next_unpin(task) {
                return Poll::Ready(Step::Take(batch));
            }
            for (index, ((leaf, source), ahead)) in leaves.iter_mut().zip(&mut *ahead).enumerate() {
                if !leaf.is_wanted(task) {
                    continue;
                }
                source.narrow(index, narrowings);
                if let Source::Columns(scan) = source {
                    ahead.start(scan, cx);
                    if !ahead.poll(task) {
                        continue;
                    }
                }
                return Poll::Ready(Step::Feed(index));
            }
            Poll::Pending
        })
        .await
    }

    /// Gives a leaf the batch that it waits for.
    async fn feed<'c>(
        &mut self,
        index: usize,
        ahead: &mut [Ahead<'c>],
        cx: &'c ExecContext<'_>,
    ) -> Result<(), Stop> {
        let (Some((leaf, source)), Some(ahead)) = (self.leaves.get_mut(index), ahead.get_mut(index)) else {
            return Err(Stop::GiveUp);
        };
        let batch = match source {
            Source::Rows(operator) => {
                let rows = operator.next(cx, BATCH_ROWS).await?;
                rows.map(|rows| columns::to_batch(&rows, leaf.types(), leaf.schema())).transpose()
            }
            Source::Columns(scan) => {
                let page = ahead.take()?;
                let batch = page.map(|(number, page)| scan.take(number, page, leaf.schema())).transpose();
                ahead.start(scan, cx);
                batch
            }
        };
        leaf.feed(batch.map_err(|_| Stop::GiveUp)?);
        cx.pause().await?;
        Ok(())
    }

    fn decode(&self, batch: &RecordBatch) -> Result<Vec<Row>, Stop> {
        let mut rows = Vec::with_capacity(batch.num_rows());
        for index in 0..batch.num_rows() {
            let row = self.outputs.iter().map(|output| output_value(*output, batch, index));
            rows.push(row.collect::<Result<Row, Stop>>()?);
        }
        Ok(rows)
    }
}

fn column(batch: &RecordBatch, at: usize) -> Result<&dyn Array, Stop> {
    batch.columns().get(at).map(AsRef::as_ref).ok_or(Stop::GiveUp)
}

fn datum(batch: &RecordBatch, at: usize, index: usize, ty: impl Into<ColumnType>) -> Result<Datum, Stop> {
    columns::value(column(batch, at)?, index, ty.into()).ok_or(Stop::GiveUp)
}

fn count(batch: &RecordBatch, at: usize, index: usize) -> Result<i64, Stop> {
    match datum(batch, at, index, Type::INT8)? {
        Datum::Int8(count) => Ok(count),
        _ => Err(Stop::GiveUp),
    }
}

fn output_value(output: Output, batch: &RecordBatch, index: usize) -> Result<Datum, Stop> {
    match output {
        Output::Column(at, ty) => datum(batch, at, index, ty),
        Output::CheckedSum { sum, low, high, count } => {
            check_total(batch, [low, high, count], index)?;
            datum(batch, sum, index, Type::NUMERIC)
        }
        Output::MixedSum { sum, low, high, count, scale } => {
            check_total(batch, [low, high, count], index)?;
            mixed_sum(batch, sum, scale, index)
        }
        Output::Average { sum, count } => average(batch, sum, count, index),
        Output::CheckedAverage { sum, low, high, count } => {
            check_total(batch, [low, high, count], index)?;
            average(batch, sum, count, index)
        }
    }
}

/// Gives up if so many values between the smallest and the largest one could add up to too much.
fn check_total(batch: &RecordBatch, [low, high, counted]: [usize; 3], index: usize) -> Result<(), Stop> {
    let magnitude = |at| match datum(batch, at, index, Type::NUMERIC)? {
        Datum::Numeric(value) => {
            let (coefficient, _) = value.as_small().ok_or(Stop::GiveUp)?;
            coefficient.checked_abs().ok_or(Stop::GiveUp)
        }
        _ => Ok(0),
    };
    let largest = magnitude(low)?.max(magnitude(high)?);
    let total = largest.checked_mul(i128::from(count(batch, counted, index)?));
    if total.is_some_and(|total| total <= LARGEST_TOTAL) { Ok(()) } else { Err(Stop::GiveUp) }
}

/// A sum with as many decimals as the value with the most.
fn mixed_sum(batch: &RecordBatch, sum: usize, scale: usize, index: usize) -> Result<Datum, Stop> {
    let (sum, scale) = (datum(batch, sum, index, Type::NUMERIC)?, datum(batch, scale, index, Type::INT4)?);
    let (Datum::Numeric(sum), Datum::Int4(scale)) = (sum, scale) else { return Ok(Datum::Null) };
    let scale = u16::try_from(scale).map_err(|_| Stop::GiveUp)?;
    let (coefficient, found) = sum.as_small().ok_or(Stop::GiveUp)?;
    let surplus = 10_i128.pow(u32::from(found.saturating_sub(scale)));
    if coefficient % surplus != 0 {
        return Err(Stop::GiveUp);
    }
    Ok(Datum::Numeric(Numeric::new(coefficient / surplus, scale)))
}

fn average(batch: &RecordBatch, sum: usize, counted: usize, index: usize) -> Result<Datum, Stop> {
    match datum(batch, sum, index, Type::NUMERIC)? {
        Datum::Numeric(sum) => {
            let count = Numeric::new(i128::from(count(batch, counted, index)?), 0);
            Ok(Datum::Numeric(sum.div(&count)?))
        }
        _ => Ok(Datum::Null),
    }
}

#[async_trait]
impl Operator for Analytic<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        if matches!(self.state, State::NotStarted) {
            self.state = self.part.start(Joins::Hash, cx).await?;
        }
        while let State::Running(running) = &mut self.state {
            match running.next(cx, want).await {
                Ok(batch) => {
                    if !std::mem::replace(&mut running.counted, true) {
                        cx.host.count_analytic_part();
                    }
                    return Ok(batch);
                }
                Err(Stop::Fail(error)) => return Err(error),
                // Joins that merge what was sorted need little memory, those by hash tables that of one side.
                Err(Stop::Exhausted(_)) if running.can_merge() && cx.memory.spill().is_some() => {
                    tracing::debug!("joins go by merging what is sorted, as memory does not suffice");
                    self.state = State::NotStarted;
                    self.state = self.part.start(Joins::Merge, cx).await?;
                }
                Err(Stop::Exhausted(error)) => return Err(error),
                Err(Stop::GiveUp) if running.returned => {
                    return Err(SqlError::internal("the analytical engine failed half-way"));
                }
                Err(Stop::GiveUp) => {
                    tracing::debug!("the row engine takes over from the analytical engine");
                    self.state = self.part.by_row()?;
                }
            }
        }
        match &mut self.state {
            State::Row(operator) => operator.next(cx, want).await,
            _ => Ok(None),
        }
    }

    fn narrow(&mut self, column: usize, sought: &Sought) {
        self.part.sought.push((column, sought.clone()));
    }
}
