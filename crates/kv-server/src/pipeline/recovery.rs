//! What a new leaseholder settles before it serves.
//!
//! Transactions live in the memory of the leaseholder and die with its lease. Their intents in the range
//! are settled by the next one: those with a record become versions, the others are removed, a piece at a
//! time through the log, so that every replica does the same.

use crate::environment::Environment;
use crate::resolve::settle_left;
use kv_api::Span;
use storage::{Reader, StorageResult, WriteBatch};

/// How far the settling has come.
#[derive(Default)]
pub(super) struct Recovery {
    /// The proposal under way.
    waiting_for: Option<u64>,
    complete: bool,
}

impl Recovery {
    /// The next piece, read from the engine as it stands after the last one; `None` if there is none.
    ///
    /// # Errors
    /// I/O errors and damage.
    pub fn next(
        &mut self,
        reader: &(impl Reader + ?Sized),
        span: &Span,
        environment: &Environment,
    ) -> StorageResult<Option<WriteBatch>> {
        self.waiting_for = None;
        let batch = settle_left(reader, span, environment)?;
        self.complete = batch.is_none();
        Ok(batch)
    }

    /// Notes that the piece is on its way.
    pub fn proposed(&mut self, id: u64) {
        self.waiting_for = Some(id);
    }

    /// Whether a proposal is the piece under way.
    pub fn is(&self, id: u64) -> bool {
        self.waiting_for == Some(id)
    }

    /// Whether a piece is to be proposed: none is under way, and something may be left.
    pub fn is_idle(&self) -> bool {
        self.waiting_for.is_none() && !self.complete
    }

    /// Whether nothing is left.
    pub fn is_complete(&self) -> bool {
        self.complete
    }
}
