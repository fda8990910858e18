//! Plans as DataFusion's physical plans.

use super::columns::{self, MOST_DIGITS};
use super::expr::{Translator, Typed, as_decimal, convert};
use super::source::Leaf;
use crate::exec::eval::EvalEnv;
use crate::plan::{AggregateCall, Expr, JoinKind, JoinMethod, Plan, PlanKind};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{JoinType, NullEquality};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::AggregateUDF;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::expressions::{Column, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::streaming::StreamingTableExec;
use sql_types::Type;
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
}

/// A leaf and what feeds it.
pub(super) struct LeafPlan<'p> {
    pub leaf: Leaf,
    pub plan: &'p Plan,
    /// A scan whose filter was translated: the row engine leaves it out.
    pub unfiltered: bool,
}

/// A column of the result.
#[derive(Clone, Copy, Debug)]
pub(super) enum Output {
    /// A column as it is.
    Column(usize, Type),
    /// A sum and the smallest value, largest value and count that tell whether it may have wrapped.
    CheckedSum { sum: usize, low: usize, high: usize, count: usize },
    /// A sum divided by a count.
    Average { sum: usize, count: usize },
    /// The same with the check of `CheckedSum`.
    CheckedAverage { sum: usize, low: usize, high: usize, count: usize },
}

/// Translates an aggregate and what lies below it; `None` if that cannot be.
pub(super) fn aggregate<'p>(plan: &'p Plan, env: EvalEnv<'_>) -> Option<Translated<'p>> {
    let PlanKind::Aggregate { input, groups, sets, aggregates } = &plan.kind else { return None };
    if sets.len() != 1 || sets[0].len() != groups.len() {
        return None;
    }
    let mut builder = Builder { env, leaves: Vec::new() };
    let input = builder.plan(input)?;
    let translator = builder.over(&input);
    let mut calls =
        Calls { translator: &translator, first: groups.len(), exprs: Vec::new(), filters: Vec::new() };
    let mut outputs = Vec::with_capacity(groups.len() + aggregates.len());
    let mut keys = Vec::with_capacity(groups.len());
    for (position, group) in groups.iter().enumerate() {
        keys.push((translator.translate(group)?.expr, format!("g{position}")));
        outputs.push(Output::Column(position, group.ty()));
    }
    for call in aggregates {
        outputs.push(calls.add(call)?);
    }
    let Calls { exprs, filters, .. } = calls;
    let schema = input.schema();
    let keys = PhysicalGroupBy::new_single(keys);
    let plan = AggregateExec::try_new(AggregateMode::Single, keys, exprs, filters, input, schema).ok()?;
    Some(Translated { plan: Arc::new(plan), outputs, leaves: builder.leaves })
}

/// The aggregate expressions gathered so far.
struct Calls<'a> {
    translator: &'a Translator<'a>,
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
        let value = self.translator.translate(arg)?;
        match name {
            "count" => self.push(count_udaf(), value.expr, call.distinct, filter).map(int8),
            "min" if arg.ty() != Type::BOOL => {
                self.push(min_udaf(), value.expr, false, filter).map(|at| Output::Column(at, call.ty))
            }
            "max" if arg.ty() != Type::BOOL => {
                self.push(max_udaf(), value.expr, false, filter).map(|at| Output::Column(at, call.ty))
            }
            "sum" => self.sum(value, arg.ty(), call.ty, filter),
            "avg" => self.average(value, arg.ty(), filter),
            _ => None,
        }
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
                self.push(sum_udaf(), value.expr, false, filter).map(|at| Output::Column(at, ty))
            }
            Type::INT8 | Type::NUMERIC => {
                let value = as_decimal(value)?;
                if has_room(&value.data) {
                    return self.push(sum_udaf(), value.expr, false, filter).map(|at| Output::Column(at, ty));
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
    Output::Column(position, Type::INT8)
}

/// Whether sums of a decimal type have digits to spare.
fn has_room(data: &DataType) -> bool {
    matches!(data, DataType::Decimal128(precision, _) if *precision <= SAFE_DIGITS)
}

/// Translates what lies below the aggregate.
struct Builder<'a, 'p> {
    env: EvalEnv<'a>,
    leaves: Vec<LeafPlan<'p>>,
}

impl<'a, 'p> Builder<'a, 'p> {
    fn over(&self, input: &Arc<dyn ExecutionPlan>) -> Translator<'a> {
        Translator { schema: input.schema(), env: self.env }
    }

    fn plan(&mut self, plan: &'p Plan) -> Option<Arc<dyn ExecutionPlan>> {
        let leaves = self.leaves.len();
        if let Some(translated) = self.node(plan) {
            return Some(translated);
        }
        self.leaves.truncate(leaves);
        self.leaf(plan, false)
    }

    fn node(&mut self, plan: &'p Plan) -> Option<Arc<dyn ExecutionPlan>> {
        match &plan.kind {
            PlanKind::Scan { filter: Some(filter), lock: None, .. } => {
                let input = self.leaf(plan, true)?;
                let predicate = self.over(&input).condition(filter)?;
                Some(Arc::new(FilterExec::try_new(predicate, input).ok()?))
            }
            PlanKind::Filter { input, predicate } => {
                let input = self.plan(input)?;
                let predicate = self.over(&input).condition(predicate)?;
                Some(Arc::new(FilterExec::try_new(predicate, input).ok()?))
            }
            PlanKind::Project { input, exprs } => self.project(input, exprs),
            PlanKind::Join { kind, method: JoinMethod::Hash(keys), left, right, on } => {
                self.join(*kind, keys, left, right, on.as_ref())
            }
            _ => None,
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

    fn join(
        &mut self,
        kind: JoinKind,
        keys: &'p [(Expr, Expr)],
        left: &'p Plan,
        right: &'p Plan,
        on: Option<&'p Expr>,
    ) -> Option<Arc<dyn ExecutionPlan>> {
        if on.is_some() && kind != JoinKind::Inner {
            return None;
        }
        let (left, right) = (self.plan(left)?, self.plan(right)?);
        // DataFusion builds its table over the left side, plans here over the right one.
        let join_type = match kind {
            JoinKind::Inner => JoinType::Inner,
            JoinKind::Left => JoinType::Right,
            JoinKind::Right => JoinType::Left,
            JoinKind::Full => JoinType::Full,
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
            pairs.push((right.expr, left.expr));
        }
        let (left_width, right_width) = (left.schema().fields().len(), right.schema().fields().len());
        let nulls = NullEquality::NullEqualsNothing;
        let mode = PartitionMode::CollectLeft;
        let join =
            HashJoinExec::try_new(right, left, pairs, None, &join_type, None, mode, nulls, false).ok()?;
        let join: Arc<dyn ExecutionPlan> = Arc::new(join);
        if matches!(kind, JoinKind::Semi | JoinKind::Anti) {
            return Some(join);
        }
        let order = (right_width..right_width + left_width).chain(0..right_width);
        let joined = reorder(join, order)?;
        match on {
            None => Some(joined),
            Some(on) => {
                let predicate = self.over(&joined).condition(on)?;
                Some(Arc::new(FilterExec::try_new(predicate, joined).ok()?))
            }
        }
    }

    fn leaf(&mut self, plan: &'p Plan, unfiltered: bool) -> Option<Arc<dyn ExecutionPlan>> {
        let schema: SchemaRef = columns::schema(plan.columns.iter().map(|column| column.ty));
        let leaf = Leaf::new(schema.clone());
        let partition = Arc::new(leaf.clone());
        self.leaves.push(LeafPlan { leaf, plan, unfiltered });
        let scan = StreamingTableExec::try_new(schema, vec![partition], None, None, false, None).ok()?;
        Some(Arc::new(scan))
    }
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
