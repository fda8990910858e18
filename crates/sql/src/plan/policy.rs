//! What the policies of a table (row security) put into plans.
//!
//! # The fence
//!
//! Rows that the policies hide must not be told of by anything a user writes: not by `1 / (balance - 5) = 0` or a cast
//! that fails for one of them. So conditions of the user must not see a row before the policies' conditions let it
//! through. The binder puts the table's rows behind a [`PlanKind::Fence`](super::PlanKind::Fence), below which are the
//! scan and the policies' conditions, those with subqueries included. When conditions are moved
//! ([`crate::optimize::pushdown`]), only those pass the fence that cannot tell of a row
//! ([`crate::optimize::leakproof`]): comparisons of columns with values or columns of the same type, and what AND, OR
//! and NOT make of them. The others stay above it, in a filter of its own.
//!
//! When conditions have moved, the fence has done its work. What is left of it is the mark of the scan,
//! [`ScanFence`]. The scan's own filter then has only the policies' conditions and such as tell nothing, in any order.
//! That is why what is made of that filter is safe in both engines:
//!
//! * An index is chosen by that filter alone, so its keys are compared before the policies' conditions are only with
//!   what cannot fail; values to compare with are computed once and from no row of the table.
//! * The conditions pushed to KV nodes with column programs are taken from that filter.
//! * DataFusion runs the filter of the scan and the one above it as two operators: the second sees only the rows that
//!   the first let through. Its logical optimizer, which could merge them, is not used.
//! * A join by look-ups puts its conditions into the filter of the right scan, so it is not chosen if one of them could
//!   tell of a row ([`crate::optimize::join_method`]).
//!
//! A rule that moves a condition into a scan has to ask for the mark. EXPLAIN ANALYZE leaves out the numbers that count
//! hidden rows. Error details that show keys or rows of such tables are left out, too. Time remains: how long a
//! statement takes depends on rows that it may not see.

use super::{Expr, Plan};
use std::sync::Arc;

/// Whether policies decide which rows of a scan there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScanFence {
    /// They do not.
    #[default]
    None,
    /// They do, with nothing but the scan's filter.
    Whole,
    /// They do, with operators above the scan as well.
    Part,
}

/// What policies ask of the rows that a statement writes.
#[derive(Clone, Debug, Default)]
pub struct RowPolicies {
    /// Of new rows that are inserted.
    pub inserted: Vec<PolicyCheck>,
    /// Of new rows that replace others.
    pub updated: Vec<PolicyCheck>,
    /// Of rows that are there and are to be replaced: those ON CONFLICT DO UPDATE meets, and the targets of MERGE.
    pub replaced: Vec<PolicyCheck>,
    /// Of rows that MERGE is to delete.
    pub deleted: Vec<PolicyCheck>,
}

impl RowPolicies {
    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &PolicyCheck> {
        self.inserted.iter().chain(&self.updated).chain(&self.replaced).chain(&self.deleted)
    }

    /// Their plans; each sees the row as its outer row.
    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.all().filter_map(|check| match &check.test {
            PolicyTest::Query(plan) => Some(&**plan),
            PolicyTest::Row(_) => None,
        })
    }

    /// Their plans, to change them.
    pub fn plans_mut(&mut self) -> impl Iterator<Item = &mut Plan> {
        let new = self.inserted.iter_mut().chain(&mut self.updated);
        let old = self.replaced.iter_mut().chain(&mut self.deleted);
        new.chain(old).filter_map(|check| match &mut check.test {
            PolicyTest::Query(plan) => Some(Arc::make_mut(plan)),
            PolicyTest::Row(_) => None,
        })
    }
}

/// A condition of policies on a row that is written. The row is refused unless it is true.
#[derive(Clone, Debug)]
pub struct PolicyCheck {
    /// The restrictive policy it is of; `None` for what the permissive ones allow together.
    pub policy: Option<Arc<str>>,
    /// The condition.
    pub test: PolicyTest,
}

/// How a condition of policies is evaluated.
#[derive(Clone, Debug)]
pub enum PolicyTest {
    /// Over the full row in column order.
    Row(Expr),
    /// By a plan of one row and one column, which sees the full row as [`Expr::Outer`] of depth 0.
    Query(Arc<Plan>),
}
