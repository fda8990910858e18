//! Plans as DataFusion's physical plans.

use super::column_scan::ColumnScan;
use super::columns::{self, MOST_DIGITS};
use super::expr::{Translator, Typed, as_decimal, convert};
use super::source::Leaf;
use super::tap::{self, Passed, Tap};
use crate::exec::ExecContext;
use crate::exec::eval::EvalEnv;
use crate::plan::{AggregateCall, Expr, JoinKind, JoinMethod, Plan, PlanColumn, PlanKind};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::{AggregateUDF, Operator};
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::expressions::{BinaryExpr, Column, lit};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode, SortMergeJoinExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::streaming::StreamingTableExec;
use sql_types::{ColumnType, Type};
use std::sync::Arc;

/// Digits up to which a sum of decimals cannot wrap around.
const SAFE_DIGITS: u8 = 28;

/// A translated aggregate.
pub(super) struct Translated<'p> {
    pub plan: Arc<dyn ExecutionPlan>,
    /// How each column of the result is made of DataFusion's columns.
    pub outputs: Vec<Output>,
    /// The leaves and the plans that feed them.
    pub leaves: Vec<LeafPlan<'p>>,
    /// Whether there are joins among it.
    pub has_joins: bool,
    /// What joins will look for in columns of leaves.
    pub narrowings: Vec<Narrowing>,
    /// By column that groups are made by: the leaf and its column that it is, if it is one.
    pub groups: Vec<Option<(usize, usize)>>,
}

/// What a join will look for in a column of a leaf, once it has its table.
pub(super) struct Narrowing {
    pub leaf: usize,
    pub column: usize,
    pub passed: Passed,
}

/// Expressions of both sides of a join that are equal.
type KeyPair = (Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>);

/// How joins are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joins {
    /// By a hash table of one side, which must fit into memory.
    Hash,
    /// By sorting and merging both sides.
    Merge,
}

/// A leaf and what feeds it.
pub(super) struct LeafPlan<'p> {
    pub leaf: Leaf,
    pub feed: Feed<'p>,
}

/// What feeds a leaf.
pub(super) enum Feed<'p> {
    /// Rows of the row engine.
    Rows(&'p Plan),
    /// Rows of a scan without its filter, which was translated.
    Unfiltered(&'p Plan),
    /// Columns from the KV nodes.
    Columns(ColumnScan),
}

/// A column of the result.
#[derive(Clone, Copy, Debug)]
pub(super) enum Output {
    /// A column as it is.
    Column(usize, ColumnType),
    /// A sum and the smallest value, largest value and count that tell whether it may have wrapped.
    CheckedSum { sum: usize, low: usize, high: usize, count: usize },
    /// The same of values with unlike numbers of decimals, of which the result has as many as any of them has.
    MixedSum { sum: usize, low: usize, high: usize, count: usize, scale: usize },
    /// A sum divided by a count.
    Average { sum: usize, count: usize },
    /// The same with the check of `CheckedSum`.
    CheckedAverage { sum: usize, low: usize, high: usize, count: usize },
}

/// Translates an aggregate and what lies below it; `None` if that cannot be.
pub(super) fn aggregate<'p>(
    plan: &'p Plan,
    joins: Joins,
    env: EvalEnv<'_>,
    cx: &ExecContext<'_>,
) -> Option<Translated<'p>> {
    let PlanKind::Aggregate { input, groups, sets, aggregates } = &plan.kind else { return None };
    if sets.len() != 1 || sets[0].len() != groups.len() {
        return None;
    }
    let mut builder = Builder {
        env,
        cx,
        joins,
        has_joins: false,
        leaves: Vec::new(),
        scans: Vec::new(),
        narrowings: Vec::new(),
    };
    let input_columns = &input.columns;
    let input = builder.plan(input)?;
    let translator = builder.over(&input);
    let mut calls = Calls {
        translator: &translator,
        input: input_columns,
        first: groups.len(),
        exprs: Vec::new(),
        filters: Vec::new(),
    };
    let mut outputs = Vec::with_capacity(groups.len() + aggregates.len());
    let mut keys = Vec::with_capacity(groups.len());
    for (position, group) in groups.iter().enumerate() {
        keys.push((translator.translate(group)?.expr, format!("g{position}")));
        outputs.push(Output::Column(position, column_type(group, input_columns)?));
    }
    for call in aggregates {
        outputs.push(calls.add(call)?);
    }
    let Calls { exprs, filters, .. } = calls;
    let origin =
        |(key, _): &(Arc<dyn PhysicalExpr>, String)| tap::origin(&input, tap::column(key)?, &builder.scans);
    let origins = keys.iter().map(origin).collect();
    let schema = input.schema();
    let keys = PhysicalGroupBy::new_single(keys);
    let plan = AggregateExec::try_new(AggregateMode::Single, keys, exprs, filters, input, schema).ok()?;
    let Builder { leaves, has_joins, narrowings, .. } = builder;
    Some(Translated { plan: Arc::new(plan), outputs, leaves, has_joins, narrowings, groups: origins })
}

/// The aggregate expressions gathered so far.
struct Calls<'a> {
    translator: &'a Translator<'a>,
    /// Columns of the rows that are aggregated.
    input: &'a [PlanColumn],
    first: usize,
    exprs: Vec<Arc<AggregateFunctionExpr>>,
    filters: Vec<Option<Arc<dyn PhysicalExpr>>>,
}

impl Calls<'_> {
    fn add(&mut self, call: &AggregateCall) -> Option<Output> {
        if !call.order.is_empty() || (call.distinct && call.function.name != "count") {
            return None;
        }
        let filter = match &call.filter {
            Some(filter) => Some(self.translator.condition(filter)?),
            None => None,
        };
        let name = call.function.name;
        let [arg] = call.args.as_slice() else {
            let everything = call.args.is_empty() && name == "count";
            return everything
                .then(|| self.push(count_udaf(), lit(1_i64), false, filter))
                .flatten()
                .map(int8);
        };
        if name == "sum"
            && let Some((value, scale)) = self.translator.mixed_case(arg)
        {
            let (sum, low, high, count) = self.checked(value, filter.clone())?;
            let scale = self.push(max_udaf(), scale, false, filter)?;
            return Some(Output::MixedSum { sum, low, high, count, scale });
        }
        let value = self.translator.translate(arg)?;
        match name {
            "count" => self.push(count_udaf(), value.expr, call.distinct, filter).map(int8),
            "min" if arg.ty() != Type::BOOL => {
                let ty = self.extreme_type(arg, call.ty)?;
                self.push(min_udaf(), value.expr, false, filter).map(|at| Output::Column(at, ty))
            }
            "max" if arg.ty() != Type::BOOL => {
                let ty = self.extreme_type(arg, call.ty)?;
                self.push(max_udaf(), value.expr, false, filter).map(|at| Output::Column(at, ty))
            }
            "sum" => self.sum(value, arg.ty(), call.ty, filter),
            "avg" => self.average(value, arg.ty(), filter),
            _ => None,
        }
    }

    /// The type of the smallest or largest value of an argument.
    fn extreme_type(&self, arg: &Expr, ty: Type) -> Option<ColumnType> {
        if ty == Type::BPCHAR { column_type(arg, self.input) } else { Some(ty.into()) }
    }

    fn push(
        &mut self,
        function: Arc<AggregateUDF>,
        arg: Arc<dyn PhysicalExpr>,
        distinct: bool,
        filter: Option<Arc<dyn PhysicalExpr>>,
    ) -> Option<usize> {
        let position = self.first + self.exprs.len();
        let expr = AggregateExprBuilder::new(function, vec![arg])
            .schema(self.translator.schema.clone())
            .alias(format!("a{position}"))
            .with_distinct(distinct)
            .build()
            .ok()?;
        self.exprs.push(Arc::new(expr));
        self.filters.push(filter);
        Some(position)
    }

    fn sum(
        &mut self,
        value: Typed,
        arg: Type,
        ty: Type,
        filter: Option<Arc<dyn PhysicalExpr>>,
    ) -> Option<Output> {
        match arg {
            Type::INT2 | Type::INT4 => {
                let value = convert(value, DataType::Int64);
                self.push(sum_udaf(), value.expr, false, filter).map(|at| Output::Column(at, ty.into()))
            }
            Type::INT8 | Type::NUMERIC => {
                let value = as_decimal(value)?;
                if has_room(&value.data) {
                    let sum = self.push(sum_udaf(), value.expr, false, filter);
                    return sum.map(|at| Output::Column(at, ty.into()));
                }
                let (sum, low, high, count) = self.checked(value, filter)?;
                Some(Output::CheckedSum { sum, low, high, count })
            }
            _ => None,
        }
    }

    fn average(&mut self, value: Typed, arg: Type, filter: Option<Arc<dyn PhysicalExpr>>) -> Option<Output> {
        if !matches!(arg, Type::INT2 | Type::INT4 | Type::INT8 | Type::NUMERIC) {
            return None;
        }
        let value = as_decimal(value)?;
        if has_room(&value.data) {
            let sum = self.push(sum_udaf(), value.expr.clone(), false, filter.clone())?;
            let count = self.push(count_udaf(), value.expr, false, filter)?;
            return Some(Output::Average { sum, count });
        }
        let (sum, low, high, count) = self.checked(value, filter)?;
        Some(Output::CheckedAverage { sum, low, high, count })
    }

    fn checked(
        &mut self,
        value: Typed,
        filter: Option<Arc<dyn PhysicalExpr>>,
    ) -> Option<(usize, usize, usize, usize)> {
        let mut push = |function| self.push(function, value.expr.clone(), false, filter.clone());
        Some((push(sum_udaf())?, push(min_udaf())?, push(max_udaf())?, push(count_udaf())?))
    }
}

fn int8(position: usize) -> Output {
    Output::Column(position, Type::INT8.into())
}

/// The type of an expression, with the length of a `character(n)`; none if that is not known.
fn column_type(expr: &Expr, input: &[PlanColumn]) -> Option<ColumnType> {
    let ty = match expr {
        Expr::Column(index, _) => input.get(*index)?.ty,
        expr => expr.ty().into(),
    };
    (ty.ty != Type::BPCHAR || columns::physical(ty).is_some()).then_some(ty)
}

/// Whether sums of a decimal type have digits to spare.
fn has_room(data: &DataType) -> bool {
    matches!(data, DataType::Decimal128(precision, _) if *precision <= SAFE_DIGITS)
}

/// A plan without the sort above it.
fn unsorted(plan: &Plan) -> &Plan {
    match &plan.kind {
        PlanKind::Sort { input, limit: None, .. } => input,
        _ => plan,
    }
}

/// Translates what lies below the aggregate.
struct Builder<'a, 'p> {
    env: EvalEnv<'a>,
    cx: &'a ExecContext<'a>,
    joins: Joins,
    has_joins: bool,
    leaves: Vec<LeafPlan<'p>>,
    /// By leaf: what reads it.
    scans: Vec<Arc<dyn ExecutionPlan>>,
    narrowings: Vec<Narrowing>,
}

impl<'a, 'p> Builder<'a, 'p> {
    fn over(&self, input: &Arc<dyn ExecutionPlan>) -> Translator<'a> {
        Translator { schema: input.schema(), env: self.env }
    }

    fn plan(&mut self, plan: &'p Plan) -> Option<Arc<dyn ExecutionPlan>> {
        let (leaves, narrowings) = (self.leaves.len(), self.narrowings.len());
        if let Some(translated) = self.node(plan) {
            return Some(translated);
        }
        self.leaves.truncate(leaves);
        self.scans.truncate(leaves);
        self.narrowings.truncate(narrowings);
        self.leaf(plan, Feed::Rows(plan))
    }

    fn node(&mut self, plan: &'p Plan) -> Option<Arc<dyn ExecutionPlan>> {
        match &plan.kind {
            PlanKind::Scan { filter, lock: None, .. } => self.scan(plan, filter.as_ref()),
            PlanKind::Filter { input, predicate } => {
                let input = self.plan(input)?;
                let predicate = self.over(&input).condition(predicate)?;
                Some(Arc::new(FilterExec::try_new(predicate, input).ok()?))
            }
            PlanKind::Project { input, exprs } => self.project(input, exprs),
            PlanKind::Join { kind, method: method @ JoinMethod::Hash(_), left, right, on } => {
                let of_left = kind.hashes_left(left.rows, right.rows);
                let table = if of_left { JoinSide::Left } else { JoinSide::Right };
                self.join(*kind, &method.keys(), [left, right], on.as_ref(), table)
            }
            // Nobody above asks for its order: whoever does is a leaf. The table is of the smaller side.
            PlanKind::Join { kind, method: method @ JoinMethod::Merge(_), left, right, on } => {
                let table = if left.rows < right.rows { JoinSide::Left } else { JoinSide::Right };
                self.join(*kind, &method.keys(), [unsorted(left), unsorted(right)], on.as_ref(), table)
            }
            _ => None,
        }
    }

    fn scan(&mut self, plan: &'p Plan, filter: Option<&'p Expr>) -> Option<Arc<dyn ExecutionPlan>> {
        // What goes wrong here goes wrong in the row engine again, which says so.
        let (feed, left) = match ColumnScan::of(plan, self.cx.codecs, &self.env).ok()? {
            Some((scan, left)) => (Feed::Columns(scan), left),
            None => (Feed::Unfiltered(plan), filter.into_iter().collect()),
        };
        let input = self.leaf(plan, feed)?;
        let translator = self.over(&input);
        let conditions =
            left.into_iter().map(|part| translator.condition(part)).collect::<Option<Vec<_>>>()?;
        let and = |all, part| Arc::new(BinaryExpr::new(all, Operator::And, part)) as Arc<dyn PhysicalExpr>;
        match conditions.into_iter().reduce(and) {
            None => Some(input),
            Some(predicate) => Some(Arc::new(FilterExec::try_new(predicate, input).ok()?)),
        }
    }

    fn project(&mut self, input: &'p Plan, exprs: &'p [Expr]) -> Option<Arc<dyn ExecutionPlan>> {
        let input = self.plan(input)?;
        let translator = self.over(&input);
        let columns = exprs
            .iter()
            .enumerate()
            .map(|(position, expr)| Some((translator.translate(expr)?.expr, format!("c{position}"))))
            .collect::<Option<Vec<_>>>()?;
        if columns.is_empty() {
            return None;
        }
        Some(Arc::new(ProjectionExec::try_new(columns, input).ok()?))
    }

    /// A join with a hash table of one side.
    fn join(
        &mut self,
        kind: JoinKind,
        keys: &[(&Expr, &Expr)],
        [left, right]: [&'p Plan; 2],
        on: Option<&'p Expr>,
        table: JoinSide,
    ) -> Option<Arc<dyn ExecutionPlan>> {
        let (left, right) = (self.plan(left)?, self.plan(right)?);
        // DataFusion builds its table over its own left side.
        let straight = table == JoinSide::Left;
        let join_type = match kind {
            JoinKind::Inner => JoinType::Inner,
            JoinKind::Full => JoinType::Full,
            JoinKind::Left if straight => JoinType::Left,
            JoinKind::Right if straight => JoinType::Right,
            JoinKind::Semi if straight => JoinType::LeftSemi,
            JoinKind::Anti if straight => JoinType::LeftAnti,
            JoinKind::Left => JoinType::Right,
            JoinKind::Right => JoinType::Left,
            JoinKind::Semi => JoinType::RightSemi,
            JoinKind::Anti => JoinType::RightAnti,
        };
        let (over_left, over_right) = (self.over(&left), self.over(&right));
        let mut pairs = Vec::with_capacity(keys.len());
        for (left, right) in keys {
            let (left, right) = (over_left.translate(left)?, over_right.translate(right)?);
            if left.data != right.data {
                return None;
            }
            pairs.push(if straight { (left.expr, right.expr) } else { (right.expr, left.expr) });
        }
        let (left_width, right_width) = (left.schema().fields().len(), right.schema().fields().len());
        let nulls = NullEquality::NullEqualsNothing;
        let mode = PartitionMode::CollectLeft;
        // Of an inner join what else is wanted is a filter of what it returns.
        let filter = match on {
            Some(on) if kind != JoinKind::Inner => Some(self.join_filter(on, &left, &right, straight)?),
            _ => None,
        };
        let (one, other) = if straight { (left, right) } else { (right, left) };
        let one = match self.joins {
            Joins::Hash => self.tapped(one, &other, &pairs, join_type),
            Joins::Merge => one,
        };
        let join: Arc<dyn ExecutionPlan> = match self.joins {
            Joins::Hash => Arc::new(
                HashJoinExec::try_new(one, other, pairs, filter, &join_type, None, mode, nulls, false)
                    .ok()?,
            ),
            Joins::Merge => {
                let (one_keys, other_keys) = pairs.iter().cloned().unzip();
                let (one, other) = (sorted(one, one_keys)?, sorted(other, other_keys)?);
                let orders = vec![SortOptions::default(); pairs.len()];
                Arc::new(
                    SortMergeJoinExec::try_new(one, other, pairs, filter, join_type, orders, nulls).ok()?,
                )
            }
        };
        self.has_joins = true;
        if matches!(kind, JoinKind::Semi | JoinKind::Anti) {
            return Some(join);
        }
        let first = if straight { 0 } else { right_width };
        let width = left_width + right_width;
        let joined = reorder(join, (first..width).chain(0..first))?;
        match on.filter(|_| kind == JoinKind::Inner) {
            None => Some(joined),
            Some(on) => {
                let predicate = self.over(&joined).condition(on)?;
                Some(Arc::new(FilterExec::try_new(predicate, joined).ok()?))
            }
        }
    }

    /// What pairs of an outer, semi or anti join must satisfy besides their keys.
    fn join_filter(
        &self,
        on: &Expr,
        left: &Arc<dyn ExecutionPlan>,
        right: &Arc<dyn ExecutionPlan>,
        straight: bool,
    ) -> Option<JoinFilter> {
        let left_width = left.schema().fields().len();
        let mut used = Vec::new();
        on.columns(&mut |column| used.push(column));
        used.sort_unstable();
        used.dedup();
        let mut fields = Vec::with_capacity(used.len());
        let mut indices = Vec::with_capacity(used.len());
        for column in &used {
            let (schema, index, of_left) = match column.checked_sub(left_width) {
                None => (left.schema(), *column, true),
                Some(index) => (right.schema(), index, false),
            };
            // Turned DataFusion's left side is the right one of plans.
            let side = if of_left == straight { JoinSide::Left } else { JoinSide::Right };
            fields.push(Field::clone(schema.fields().get(index)?));
            indices.push(ColumnIndex { index, side });
        }
        let mut on = on.clone();
        on.replace(&mut |part| match part {
            Expr::Column(column, ty) => Some(Expr::Column(used.binary_search(column).ok()?, *ty)),
            _ => None,
        });
        let schema = Arc::new(Schema::new(fields));
        let predicate = Translator { schema: schema.clone(), env: self.env }.condition(&on)?;
        Some(JoinFilter::new(predicate, indices, schema))
    }

    /// The side that a table is made of, watched for what is to be looked for in columns of leaves of the other side.
    fn tapped(
        &mut self,
        one: Arc<dyn ExecutionPlan>,
        other: &Arc<dyn ExecutionPlan>,
        pairs: &[KeyPair],
        join_type: JoinType,
    ) -> Arc<dyn ExecutionPlan> {
        use JoinType::{Inner, Left, LeftAnti, LeftSemi, RightSemi};
        if !matches!(join_type, Inner | Left | LeftAnti | LeftSemi | RightSemi) {
            return one;
        }
        let mut columns = Vec::new();
        for (of_one, of_other) in pairs {
            let (Some(of_one), Some(of_other)) = (tap::column(of_one), tap::column(of_other)) else {
                continue;
            };
            let Some((leaf, column)) = tap::origin(other, of_other, &self.scans) else { continue };
            let passed = Passed::default();
            columns.push((of_one, passed.clone()));
            self.narrowings.push(Narrowing { leaf, column, passed });
        }
        if columns.is_empty() { one } else { Arc::new(Tap::new(one, columns)) }
    }

    fn leaf(&mut self, plan: &'p Plan, feed: Feed<'p>) -> Option<Arc<dyn ExecutionPlan>> {
        let leaf = Leaf::new(plan.columns.iter().map(|column| column.ty));
        let schema = leaf.schema().clone();
        let partition = Arc::new(leaf.clone());
        self.leaves.push(LeafPlan { leaf, feed });
        let scan = StreamingTableExec::try_new(schema, vec![partition], None, None, false, None).ok()?;
        let scan: Arc<dyn ExecutionPlan> = Arc::new(scan);
        self.scans.push(Arc::clone(&scan));
        Some(scan)
    }
}

/// The rows of a plan in the order of expressions.
fn sorted(input: Arc<dyn ExecutionPlan>, keys: Vec<Arc<dyn PhysicalExpr>>) -> Option<Arc<dyn ExecutionPlan>> {
    let order = LexOrdering::new(keys.into_iter().map(PhysicalSortExpr::new_default))?;
    Some(Arc::new(SortExec::new(order, input)))
}

/// The columns of a plan in another order, under their usual names.
fn reorder(
    input: Arc<dyn ExecutionPlan>,
    order: impl Iterator<Item = usize>,
) -> Option<Arc<dyn ExecutionPlan>> {
    let schema = input.schema();
    let columns = order.enumerate().map(|(to, from)| {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(schema.field(from).name(), from));
        (column, format!("c{to}"))
    });
    Some(Arc::new(ProjectionExec::try_new(columns.collect::<Vec<_>>(), input).ok()?))
}

/// The largest total that a decimal can hold.
pub(super) const LARGEST_TOTAL: i128 = 10_i128.pow(MOST_DIGITS as u32) - 1;
