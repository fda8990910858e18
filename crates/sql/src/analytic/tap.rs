//! [`Tap`]: watches what a hash join builds its table of, so that the other side can leave out what will not be found
//! ([`crate::exec::sought`]).

use crate::exec::sought::{Gathered, Sought};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, RecordBatch};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Int16Type, Int32Type, Int64Type, SchemaRef,
};
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::JoinType;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
};
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The values of one column that passed a [`Tap`].
#[derive(Clone, Debug, Default)]
pub(super) struct Passed(Arc<Mutex<State>>);

#[derive(Debug, Default)]
enum State {
    #[default]
    NotStarted,
    Gathering(Gathered),
    Done(Option<Sought>),
}

impl Passed {
    /// What is to be looked for, once all rows have passed; what it says is said once.
    pub fn take(&self) -> Option<Sought> {
        match &mut *self.0.lock() {
            State::Done(sought) => sought.take(),
            _ => None,
        }
    }

    fn add(&self, column: &ArrayRef) {
        let mut state = self.0.lock();
        if matches!(*state, State::NotStarted) {
            *state = State::Gathering(Gathered::default());
        }
        let State::Gathering(gathered) = &mut *state else { return };
        match column.data_type() {
            _ if gathered.is_useless() => {}
            DataType::Int16 => add_all(gathered, column.as_primitive::<Int16Type>()),
            DataType::Int32 => add_all(gathered, column.as_primitive::<Int32Type>()),
            DataType::Int64 => add_all(gathered, column.as_primitive::<Int64Type>()),
            _ => gathered.give_up(),
        }
    }

    fn finish(&self) {
        let mut state = self.0.lock();
        let gathered = match std::mem::take(&mut *state) {
            State::NotStarted => Gathered::default(),
            State::Gathering(gathered) => gathered,
            done => {
                *state = done;
                return;
            }
        };
        *state = State::Done(gathered.finish());
    }
}

fn add_all<T: ArrowPrimitiveType<Native: Into<i64>>>(gathered: &mut Gathered, values: &PrimitiveArray<T>) {
    values.iter().flatten().for_each(|value| gathered.add(value.into()));
}

/// Passes rows on and notes the values of some columns.
#[derive(Clone, Debug)]
pub(super) struct Tap {
    input: Arc<dyn ExecutionPlan>,
    columns: Vec<(usize, Passed)>,
}

impl Tap {
    /// Watches these columns of an input.
    pub fn new(input: Arc<dyn ExecutionPlan>, columns: Vec<(usize, Passed)>) -> Self {
        Tap { input, columns }
    }
}

impl DisplayAs for Tap {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tap")
    }
}

impl ExecutionPlan for Tap {
    fn name(&self) -> &str {
        "Tap"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.into_iter().next().unwrap_or_else(|| Arc::clone(&self.input));
        Ok(Arc::new(Tap { input, columns: self.columns.clone() }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.into_iter().next().unwrap_or_else(|| Arc::clone(&self.input));
        Ok(Arc::new(Tap { input, columns: self.columns.clone() }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        Ok(Box::pin(TapStream { input, columns: self.columns.clone() }))
    }
}

struct TapStream {
    input: SendableRecordBatchStream,
    columns: Vec<(usize, Passed)>,
}

impl Stream for TapStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.input.poll_next_unpin(task);
        match &polled {
            Poll::Ready(Some(Ok(batch))) => {
                for (column, passed) in &self.columns {
                    if let Some(values) = batch.columns().get(*column) {
                        passed.add(values);
                    }
                }
            }
            Poll::Ready(None) => self.columns.iter().for_each(|(_, passed)| passed.finish()),
            _ => {}
        }
        polled
    }
}

impl RecordBatchStream for TapStream {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
}

/// The column that an expression is.
pub(super) fn column(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    expr.downcast_ref::<Column>().map(Column::index)
}

/// The leaf and its column that a column of a plan is, if rows of that leaf can be left out whose value there is not
/// looked for.
pub(super) fn origin(
    plan: &Arc<dyn ExecutionPlan>,
    index: usize,
    leaves: &[Arc<dyn ExecutionPlan>],
) -> Option<(usize, usize)> {
    if let Some(leaf) = leaves.iter().position(|leaf| Arc::ptr_eq(leaf, plan)) {
        return Some((leaf, index));
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        return origin(projection.input(), column(&projection.expr().get(index)?.expr)?, leaves);
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        return origin(filter.input(), index, leaves);
    }
    if let Some(tap) = plan.downcast_ref::<Tap>() {
        return origin(&tap.input, index, leaves);
    }
    let join = plan.downcast_ref::<HashJoinExec>()?;
    let (left, right) = (join.left(), join.right());
    let in_right = index.checked_sub(left.schema().fields().len());
    match (join.join_type(), in_right) {
        (JoinType::Inner | JoinType::Left, None) | (JoinType::LeftSemi | JoinType::LeftAnti, _) => {
            origin(left, index, leaves)
        }
        (JoinType::Inner | JoinType::Right, Some(index)) => origin(right, index, leaves),
        (JoinType::RightSemi | JoinType::RightAnti, _) => origin(right, index, leaves),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analytic::columns::to_batch;
    use crate::analytic::source::Leaf;
    use datafusion::physical_plan::streaming::StreamingTableExec;
    use kv_api::columns::Comparison;
    use sql_types::{ColumnType, Datum, Type};

    fn leaf() -> (Leaf, Arc<dyn ExecutionPlan>) {
        let leaf = Leaf::new([Type::INT4, Type::TEXT].into_iter().map(ColumnType::from));
        let (schema, rows) = (leaf.schema().clone(), Arc::new(leaf.clone()));
        let scan = StreamingTableExec::try_new(schema, vec![rows], None, None, false, None).unwrap();
        (leaf, Arc::new(scan))
    }

    #[tokio::test]
    async fn what_has_passed_is_known_at_the_end() {
        let (leaf, scan) = leaf();
        let (numbers, texts) = (Passed::default(), Passed::default());
        let tap = Tap::new(scan, vec![(0, numbers.clone()), (1, texts.clone())]);
        let mut rows = tap.execute(0, Arc::default()).unwrap();
        for keys in [[Some(7), None], [Some(9), Some(7)]] {
            let row = |key: Option<i32>| vec![key.map_or(Datum::Null, Datum::Int4), Datum::text("x")];
            let batch = to_batch(&keys.map(row), leaf.types(), leaf.schema()).ok().unwrap();
            leaf.feed(Some(batch));
            assert_eq!(rows.next().await.unwrap().unwrap().num_rows(), 2);
            assert_eq!(numbers.take(), None);
        }
        leaf.feed(None);
        assert!(rows.next().await.is_none());
        let sought = numbers.take().unwrap().condition(0);
        let values: Vec<i64> = sought.constants.iter().map(|constant| constant.integer).collect();
        assert_eq!((sought.comparison(), &values[..]), (Comparison::In, &[7, 9][..]));
        assert_eq!((numbers.take(), texts.take()), (None, None));
    }

    #[test]
    fn columns_are_followed_to_their_leaf() {
        let (_, scan) = leaf();
        let leaves = [Arc::clone(&scan)];
        let turned = [1, 0].map(|index| {
            let expr: Arc<dyn PhysicalExpr> = Arc::new(Column::new(scan.schema().field(index).name(), index));
            (expr, format!("c{index}"))
        });
        let projection = ProjectionExec::try_new(turned.to_vec(), Arc::clone(&scan)).unwrap();
        let tapped: Arc<dyn ExecutionPlan> = Arc::new(Tap::new(Arc::new(projection), Vec::new()));
        assert_eq!(origin(&tapped, 1, &leaves), Some((0, 0)));
        assert_eq!(origin(&tapped, 0, &leaves), Some((0, 1)));
        assert_eq!(origin(&tapped, 2, &leaves), None);
        assert_eq!(origin(&tapped, 1, &[]), None);
    }
}
