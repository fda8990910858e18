//! The row engine: pull-based operators over batches of rows.
//!
//! # How a statement runs
//!
//! [`execute`] builds one operator per node of a [`Plan`](crate::plan::Plan) and returns a [`RowStream`]. The caller
//! pulls batches with [`RowStream::next_batch`], passing an [`ExecContext`] each time: the stream
//! owns the plan and its own state but neither the transaction nor the parameters, so a portal can
//! keep it between two Execute messages. Dropping the stream at any moment is safe; a statement that
//! was dropped half-way must be undone by the caller through its savepoint or transaction.
//!
//! # Rules
//!
//! * Operators bound their memory through [`MemoryBudget`]; a statement that exceeds it fails with
//!   53200.
//! * Loops check [`CancelFlag`] and yield to the runtime at least every [`context::YIELD_ROWS`] rows.
//! * A statement that changes rows runs to completion at the first pull; RETURNING rows are kept.
//!
//! # What is missing
//!
//! Sorts, hash joins, aggregates, DISTINCT and UNION spill to disk (`sort`, `partition`); INTERSECT, EXCEPT, windows, the
//! inner side of a nested loop and the rows of one key of a merge join that do not fit fail with 53200.

mod accumulate;
mod aggregate;
mod apply;
pub mod context;
mod distinct;
pub mod eval;
mod hash_join;
pub(crate) mod hash_key;
mod inverted;
mod join;
pub(crate) mod kv;
mod kv_error;
mod lookup;
pub mod memory;
mod merge_join;
pub(crate) mod operator;
mod partition;
mod project;
mod recursive;
pub(crate) mod relation;
pub(crate) mod scan;
pub(crate) mod scan_keys;
pub(crate) mod scope;
mod setop;
mod sort;
pub(crate) mod sought;
mod source;
pub mod spill;
mod stream;
mod subscript;
mod window;
mod window_frame;

pub use context::{CancelFlag, ExecContext, ExecHost, PlanStats};
pub use kv_error::kv_error;
pub use memory::{MemoryBudget, NodeBudget, Reservation};
pub use operator::Batch;
pub use stream::{RowStream, execute, execute_over};

/// Number of the common table expression that a COPY FROM plan reads its rows from: an `Insert` over
/// `CteScan { cte: COPY_INPUT }` is run once per batch of decoded rows by [`execute_over`].
pub const COPY_INPUT: usize = usize::MAX;
