//! Leaves: where DataFusion's operators get rows of the row engine from.

use super::columns;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::Stream;
use parking_lot::Mutex;
use sql_types::ColumnType;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// One leaf: a slot for a batch, filled when asked for.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    schema: SchemaRef,
    types: Arc<[ColumnType]>,
    slot: Arc<Mutex<Slot>>,
}

#[derive(Debug, Default)]
struct Slot {
    batch: Option<RecordBatch>,
    wanted: bool,
    ended: bool,
    /// Who waits for a batch.
    reader: Option<Waker>,
    /// Who fills the slot.
    feeder: Option<Waker>,
}

impl Leaf {
    /// For rows of these columns.
    pub fn new(types: impl Iterator<Item = ColumnType> + Clone) -> Self {
        Leaf { schema: columns::schema(types.clone()), types: types.collect(), slot: Arc::default() }
    }

    /// The columns.
    pub fn types(&self) -> impl Iterator<Item = ColumnType> {
        self.types.iter().copied()
    }

    /// Whether a batch is waited for; if not, the task is woken when one is.
    pub fn is_wanted(&self, task: &mut Context<'_>) -> bool {
        let mut slot = self.slot.lock();
        if !slot.wanted {
            slot.feeder = Some(task.waker().clone());
        }
        slot.wanted
    }

    /// Gives the batch that is waited for, or `None` for the end.
    pub fn feed(&self, batch: Option<RecordBatch>) {
        let mut slot = self.slot.lock();
        slot.wanted = false;
        slot.ended |= batch.is_none();
        slot.batch = batch;
        if let Some(reader) = slot.reader.take() {
            reader.wake();
        }
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

impl PartitionStream for Leaf {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let stream = LeafStream { slot: self.slot.clone() };
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream))
    }
}

struct LeafStream {
    slot: Arc<Mutex<Slot>>,
}

impl Stream for LeafStream {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut slot = self.slot.lock();
        if let Some(batch) = slot.batch.take() {
            return Poll::Ready(Some(Ok(batch)));
        }
        if slot.ended {
            return Poll::Ready(None);
        }
        slot.wanted = true;
        slot.reader = Some(task.waker().clone());
        if let Some(feeder) = slot.feeder.take() {
            feeder.wake();
        }
        Poll::Pending
    }
}
