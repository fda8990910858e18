//! A join that is to be implemented, as the rules see it, and what they propose.

use super::order::{OrderId, Required};
use smallvec::SmallVec;

/// Two sides that are joined.
#[derive(Debug)]
pub struct Sides {
    /// Rows of the left side.
    pub left_rows: f64,
    /// Rows of the right side.
    pub right_rows: f64,
    /// Rows of the result.
    pub rows: f64,
    /// See [`crate::plan::JoinKind::hashes_left`].
    pub hashes_left: bool,
    /// Rows of the side that a hash table would be probed with of which something becomes.
    pub found: f64,
    /// What is equal, as ascending orders by it, of the left and of the right side.
    pub pairs: SmallVec<[(OrderId, OrderId); 4]>,
    /// Sequences of all pairs in which both sides may be to be joined, where no order is asked for.
    pub sequences: Vec<Sequence>,
    /// The order asked of the result as one of the left side, if it is; the result has the left side's rows in turn.
    pub left_order: Option<OrderId>,
    /// What it costs to look up the right side for the left rows that will be read, if an index serves that.
    pub look_up: Option<f64>,
}

/// Pairs by their numbers, each once, and whether descending.
pub type Sequence = Vec<(usize, bool)>;

/// How a join is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// Every left row with every right row, which are kept.
    NestedLoop,
    /// An index of the right side, which is a scan, is looked up for each left row.
    LookUp,
    /// A hash table of the right side.
    Hash,
    /// By so many first keys of the orders of both sides.
    Merge {
        /// The order of the left side.
        left: OrderId,
        /// The order of the right side.
        right: OrderId,
        /// How many keys.
        keys: usize,
    },
}

/// A way to do a join.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proposal {
    /// The method.
    pub method: Method,
    /// What is asked of the left side.
    pub left: Required,
    /// What is asked of the right side; nothing where the method reads it by itself.
    pub right: Option<Required>,
    /// What it costs beyond both.
    pub cost: f64,
}

/// What the rules propose.
pub type Proposals = SmallVec<[Proposal; 4]>;

#[cfg(test)]
impl Sides {
    /// An inner join without anything equal, for tests.
    pub fn plain(left_rows: f64, right_rows: f64) -> Self {
        Sides {
            left_rows,
            right_rows,
            rows: left_rows,
            hashes_left: false,
            found: left_rows,
            pairs: SmallVec::new(),
            sequences: Vec::new(),
            left_order: Some(super::order::ANY),
            look_up: None,
        }
    }
}
