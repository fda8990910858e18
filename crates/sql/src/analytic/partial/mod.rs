//! Partial aggregates in KV nodes: an aggregate directly over the rows of one table, for both engines.
//!
//! # How it works
//!
//! A scan that carries a program ([`super::column_scan`]) carries an aggregation, too ([`kv_api::columns::Aggregation`]): KV
//! nodes fold the rows that satisfy the filter into groups and return these, page by page. [`Partial`] merges what the pages
//! bring and finishes it with our own numeric. So a few hundred bytes come for each page of rows, and nobody decodes them
//! twice. Which engine would run the aggregate otherwise makes no difference: [`super::wrap`] asks here first.
//!
//! # Same meaning
//!
//! [`translate`] takes an aggregate only where the result is exact and PostgreSQL's:
//!
//! * `count(*)`, `count(x)`, `sum`, `avg`, `min` and `max`, with FILTER, over columns that programs read (no floats: the sum
//!   depends on the order) and, for numbers, over `+ - *` of them and constants. Each result of a computation is checked
//!   against its type. Sums are exact in 128 bits, averages are a sum and a count and divided at the end.
//! * `numeric` has the number of decimals that its column declares, so that of every result is known beforehand.
//! * groups by columns. Texts are equal and ordered bytewise in both engines and in KV nodes.
//! * a filter of which programs can say everything. What policies ask of rows stands in it as well.
//!
//! Whatever goes wrong (a row that the program cannot read, a number that does not fit, groups that do not fit the
//! statement's memory) makes the engine run the aggregate that would have run it otherwise. Nothing was returned by then, and
//! it has the last word: the result, or PostgreSQL's error.
//!
//! # Transactions
//!
//! It is a scan like others: what was read is validated at commit, and where the transaction has written to what is read and
//! not sent it yet, `kv-client` reads rows, lays the writes over them and runs the same program itself.

mod merge;
mod translate;

use super::ahead::Ahead;
use super::columns::Misfit;
use crate::exec::context::OperatorStats;
use crate::exec::eval::EvalEnv;
use crate::exec::operator::{BATCH_ROWS, Batch, BoxOperator, Operator};
use crate::exec::scope::Scope;
use crate::exec::sought::Sought;
use crate::exec::{ExecContext, Reservation};
use crate::plan::Plan;
use crate::table::CodecCache;
use async_trait::async_trait;
use merge::Merge;
use sql_types::{Row, SqlResult};
use std::future::poll_fn;
use std::task::Poll;

/// Whether KV nodes aggregate (setting `partial_aggregates`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartialAggregates {
    /// Where many rows are estimated, and few groups of them.
    #[default]
    Auto,
    /// Wherever it can be.
    On,
    /// Nowhere.
    Off,
}

impl PartialAggregates {
    /// A value of the setting.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(PartialAggregates::Auto),
            "on" => Some(PartialAggregates::On),
            "off" => Some(PartialAggregates::Off),
            _ => None,
        }
    }

    /// Whether KV nodes may aggregate for a plan node, as far as its shape and the estimates say.
    fn wants(self, plan: &Plan) -> bool {
        let Some(shape) = translate::Shape::of(plan) else { return false };
        let entries = shape.scan.entries;
        match self {
            PartialAggregates::Off => false,
            PartialAggregates::On => true,
            PartialAggregates::Auto => entries >= WORTHWHILE_ROWS && plan.rows * ROWS_PER_GROUP <= entries,
        }
    }
}

/// Estimated rows read from which on it is worth while.
const WORTHWHILE_ROWS: f64 = 500.0;
/// Rows that a group is made of, at least, for it to be worth while.
const ROWS_PER_GROUP: f64 = 10.0;
/// Groups received before it is looked whether it is.
const ENOUGH_GROUPS: u64 = 10_000;

/// Whether KV nodes would aggregate for a plan node, for EXPLAIN.
pub(crate) fn applies(
    plan: &Plan,
    choice: PartialAggregates,
    codecs: &CodecCache,
    env: &EvalEnv<'_>,
) -> bool {
    choice.wants(plan) && translate::aggregate(plan, codecs, env).is_ok_and(|found| found.is_some())
}

/// The operator that has KV nodes aggregate, if a plan node and the setting are such that they may.
pub(super) fn wrap<'p>(plan: &'p Plan, scope: &Scope<'p>) -> Option<BoxOperator<'p>> {
    scope.partial_aggregates.wants(plan).then(|| {
        let scope = scope.clone();
        let (state, sought, memory) = (State::NotStarted, Vec::new(), Reservation::default());
        Box::new(Partial { plan, scope, state, sought, memory }) as _
    })
}

/// An aggregate of what KV nodes have aggregated; or else of an engine.
struct Partial<'p> {
    plan: &'p Plan,
    scope: Scope<'p>,
    state: State<'p>,
    /// What is looked for in columns of the result.
    sought: Vec<(usize, Sought)>,
    memory: Reservation,
}

enum State<'p> {
    NotStarted,
    Rows(std::vec::IntoIter<Row>),
    /// It runs without KV nodes' help.
    Engine(BoxOperator<'p>),
}

impl<'p> Partial<'p> {
    /// All rows of the result; none if an engine has to compute it.
    async fn compute(&mut self, cx: &ExecContext<'_>) -> SqlResult<Option<Vec<Row>>> {
        let scope = self.scope.clone();
        let env = scope.env(cx);
        let Some(translate::Translated { mut scan, layout }) =
            translate::aggregate(self.plan, cx.codecs, &env)?
        else {
            return Ok(None);
        };
        if let Some(shape) = translate::Shape::of(self.plan) {
            for (column, sought) in &self.sought {
                if let Some(column) = shape.group_column(*column) {
                    scan.narrow(column, sought);
                }
            }
        }
        scan.take_apart(cx).await?;
        let mut merge = Merge::new(&layout);
        let (mut ahead, mut groups, mut did) = (Ahead::default(), 0, OperatorStats::default());
        loop {
            ahead.start(&mut scan, cx);
            poll_fn(|task| if ahead.poll(task) { Poll::Ready(()) } else { Poll::Pending }).await;
            let Some((number, page)) = ahead.take()? else { break };
            let Ok(page) = scan.take_groups(number, page) else { return Ok(None) };
            groups += page.rows;
            did.rows += page.aggregated;
            did.removed += page.seen.saturating_sub(page.aggregated);
            let Ok(bytes) = merge.add(page) else { return Ok(None) };
            if self.memory.grow(cx.memory, bytes).is_err() || self.is_in_vain(groups, did.rows) {
                return Ok(None);
            }
            cx.pause().await?;
        }
        let rows = match merge.finish() {
            Ok(rows) => rows,
            Err(merge::Stop::GiveUp) => return Ok(None),
            Err(merge::Stop::Fail(error)) => return Err(error),
        };
        self.tell(did, cx);
        Ok(Some(rows))
    }

    /// Whether groups have hardly fewer rows than the table.
    fn is_in_vain(&self, groups: u64, rows: u64) -> bool {
        let asked_for = self.scope.partial_aggregates == PartialAggregates::On;
        !asked_for && groups >= ENOUGH_GROUPS && groups as f64 * ROWS_PER_GROUP > rows as f64
    }

    /// Tells EXPLAIN ANALYZE what was done for the operators below.
    fn tell(&self, did: OperatorStats, cx: &ExecContext<'_>) {
        cx.host.count_partial_aggregate();
        let Some(stats) = cx.stats else { return };
        stats.update(self.plan, |stats| stats.partial = true);
        self.plan.for_each_child(&mut |below, _| {
            let told = OperatorStats { loops: 1, ..did };
            stats.update(below, |stats| stats.add(told));
            below.for_each_child(&mut |scan, _| stats.update(scan, |stats| stats.add(told)));
        });
    }
}

#[async_trait]
impl Operator for Partial<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        if matches!(self.state, State::NotStarted) {
            self.state = match self.compute(cx).await? {
                Some(rows) => State::Rows(rows.into_iter()),
                None => {
                    tracing::debug!("KV nodes do not aggregate");
                    self.memory.release();
                    let mut engine = super::build(self.plan, &self.scope)?;
                    self.sought.iter().for_each(|(column, sought)| engine.narrow(*column, sought));
                    State::Engine(engine)
                }
            };
        }
        match &mut self.state {
            State::NotStarted => Ok(None),
            State::Rows(rows) => {
                let batch: Batch = rows.take(want.clamp(1, BATCH_ROWS)).collect();
                Ok((!batch.is_empty()).then_some(batch))
            }
            State::Engine(operator) => operator.next(cx, want).await,
        }
    }

    fn narrow(&mut self, column: usize, sought: &Sought) {
        self.sought.push((column, sought.clone()));
    }
}
