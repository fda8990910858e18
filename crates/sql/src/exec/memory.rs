//! Memory that statements may use, counted in estimated bytes: each has a budget, and all of a node together have one.

use super::spill::Spill;
use sql_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the statements of a node may use together.
#[derive(Debug)]
pub struct NodeBudget {
    count: Count,
    spill: Option<Spill>,
}

impl NodeBudget {
    /// What a node's statements get together unless it is told otherwise.
    pub const DEFAULT_BYTES: usize = 1 << 30;

    /// A budget of `limit` bytes; without a place to spill to, statements that do not fit fail.
    pub fn new(limit: usize, spill: Option<Spill>) -> Arc<Self> {
        Arc::new(NodeBudget { count: Count::new(limit), spill })
    }

    /// Files that the row engine's operators have written since the node started.
    pub fn spilled_files(&self) -> u64 {
        self.spill.as_ref().map_or(0, Spill::files)
    }
}

/// Memory one statement may use. Clones share the count.
#[derive(Clone, Debug)]
pub struct MemoryBudget(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    own: Count,
    node: Option<Arc<NodeBudget>>,
}

#[derive(Debug)]
struct Count {
    limit: usize,
    used: AtomicUsize,
}

impl Count {
    fn new(limit: usize) -> Self {
        Count { limit, used: AtomicUsize::new(0) }
    }

    /// Takes bytes whether they are there or not; whether they were.
    fn take(&self, bytes: usize) -> bool {
        self.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= self.limit
    }

    fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl MemoryBudget {
    /// What a statement gets unless the session says otherwise.
    pub const DEFAULT_BYTES: usize = 256 << 20;

    /// A budget of `limit` bytes, on its own.
    pub fn new(limit: usize) -> Self {
        MemoryBudget(Arc::new(Counted { own: Count::new(limit), node: None }))
    }

    /// A budget of `limit` bytes among the statements of a node.
    pub fn within(limit: usize, node: &Arc<NodeBudget>) -> Self {
        MemoryBudget(Arc::new(Counted { own: Count::new(limit), node: Some(node.clone()) }))
    }

    /// Takes bytes, or fails with 53200. They are given back by [`MemoryBudget::give`].
    pub(crate) fn take(&self, bytes: usize) -> SqlResult<()> {
        let fits_node = self.0.node.as_ref().is_none_or(|node| node.count.take(bytes));
        let fits = self.0.own.take(bytes);
        if fits && fits_node {
            return Ok(());
        }
        self.give(bytes);
        Err(self.exhausted(bytes, fits))
    }

    /// Takes bytes whether they are there or not.
    pub(crate) fn force(&self, bytes: usize) {
        self.0.own.take(bytes);
        if let Some(node) = &self.0.node {
            node.count.take(bytes);
        }
    }

    /// Gives bytes back.
    pub(crate) fn give(&self, bytes: usize) {
        self.0.own.give(bytes);
        if let Some(node) = &self.0.node {
            node.count.give(bytes);
        }
    }

    #[cold]
    fn exhausted(&self, bytes: usize, fits_own: bool) -> SqlError {
        let error = SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory");
        if fits_own {
            return error
                .with_detail(format!(
                    "The statement needs {bytes} bytes, and others of this SQL node use the rest."
                ))
                .with_hint("Try again when fewer large statements are running.");
        }
        error
            .with_detail(format!("The statement needs {bytes} bytes beyond the {} it may use.", self.0.own.limit))
            .with_hint("Return or sort fewer rows, add an index that gives the order wanted, or raise statement_memory.")
    }

    /// Where what does not fit can go.
    pub(crate) fn spill(&self) -> Option<&Spill> {
        self.0.node.as_ref()?.spill.as_ref()
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.0.own.used.load(Ordering::Relaxed)
    }

    /// The limit.
    pub fn limit(&self) -> usize {
        self.0.own.limit
    }
}

impl Default for MemoryBudget {
    fn default() -> Self {
        MemoryBudget::new(Self::DEFAULT_BYTES)
    }
}

/// Bytes an operator holds of a budget; dropping it gives them back.
#[derive(Debug, Default)]
pub struct Reservation {
    budget: Option<MemoryBudget>,
    bytes: usize,
}

impl Reservation {
    /// Takes further bytes, or fails with 53200.
    pub fn grow(&mut self, budget: &MemoryBudget, bytes: usize) -> SqlResult<()> {
        self.budget.get_or_insert_with(|| budget.clone()).take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Holds this many bytes, or fails with 53200.
    pub fn resize(&mut self, budget: &MemoryBudget, bytes: usize) -> SqlResult<()> {
        if bytes > self.bytes {
            return self.grow(budget, bytes - self.bytes);
        }
        if let Some(budget) = &self.budget {
            budget.give(self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Gives everything back.
    pub fn release(&mut self) {
        if let Some(budget) = &self.budget {
            budget.give(self.bytes);
        }
        self.bytes = 0;
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_share_what_the_node_has() {
        let node = NodeBudget::new(100, None);
        let (first, second) = (MemoryBudget::within(80, &node), MemoryBudget::within(80, &node));
        let (mut one, mut two) = (Reservation::default(), Reservation::default());
        one.grow(&first, 70).unwrap();
        let detail = |error: SqlError| error.extra.and_then(|extra| extra.detail).unwrap();
        assert!(detail(one.grow(&first, 20).unwrap_err()).contains("beyond the 80"));
        assert!(detail(two.grow(&second, 40).unwrap_err()).contains("others"));
        two.grow(&second, 30).unwrap();
        drop(one);
        two.grow(&second, 50).unwrap();
        assert_eq!((first.used(), second.used()), (0, 80));
    }
}
