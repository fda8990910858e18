//! Plans: what the binder makes of a statement and what the engines run.
//!
//! A [`Plan`] is a tree of operators over rows. Expressions inside ([`Expr`]) are pure: everything
//! that needs the key-value store while a row is computed (a subquery, `nextval`) is an operator of
//! its own, [`PlanKind::Apply`], which appends its results to the row as further columns. Column
//! references are positions in the input row of the operator; joins see the left row followed by the
//! right one.
//!
//! # Outer rows
//!
//! Exactly two things make the row of an operator visible inside another plan, as [`Expr::Outer`]:
//! a sub-plan of [`PlanKind::Apply`] sees the input row of the `Apply`, and the right side of a join
//! by [`JoinMethod::Lateral`] sees the left row. Each such step inwards adds one to the depth of the
//! rows further out; every other operator leaves depths alone.
//!
//! Plans are immutable, hold no values of parameters, and are shared by all executions of a prepared
//! statement; they are valid for one catalog version.

pub mod expr;
pub mod policy;
mod walk;

pub use expr::{AggregateCall, Expr, SortKey, WindowCall};
pub use policy::{PolicyCheck, PolicyTest, RowPolicies, ScanFence};

use crate::catalog::descriptor::{ColumnId, IndexId, TableDescriptor};
use crate::catalog::routine::RoutineDescriptor;
use crate::inverted::InvertedCondition;
use sql_types::functions::{Function, SetFunction};
use sql_types::{ColumnType, Oid, RecordField, Type};
use std::sync::Arc;

/// One column of a plan's result.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanColumn {
    /// Its name in the result.
    pub name: Arc<str>,
    /// Its type.
    pub ty: ColumnType,
    /// OID of the table it comes from unchanged, 0 if none.
    pub table_oid: Oid,
    /// Its attribute number there, 0 if none.
    pub attnum: i16,
    /// Names and types of the fields, for a column of records, as far as they are known.
    pub fields: Option<Arc<[RecordField]>>,
}

impl PlanColumn {
    /// A column that is computed.
    pub fn new(name: impl Into<Arc<str>>, ty: impl Into<ColumnType>) -> Self {
        PlanColumn { name: name.into(), ty: ty.into(), table_oid: 0, attnum: 0, fields: None }
    }
}

/// An operator with what is known of its result.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The operator.
    pub kind: PlanKind,
    /// Columns of its rows.
    pub columns: Vec<PlanColumn>,
    /// Estimated number of rows.
    pub rows: f64,
    /// Estimated cost until the first row, in units of [`crate::optimize::cost`].
    pub startup: f64,
    /// Estimated cost of all rows.
    pub cost: f64,
    /// Of a scan, the estimated number of entries of its index that it reads.
    pub entries: f64,
}

impl Plan {
    /// A plan whose size is not estimated yet.
    pub fn new(kind: PlanKind, columns: Vec<PlanColumn>) -> Self {
        Plan { kind, columns, rows: 0.0, startup: 0.0, cost: 0.0, entries: 0.0 }
    }

    /// The plan below a projection. What is estimated of it is said of the projection.
    pub fn projected(self, exprs: Vec<Expr>, columns: Vec<PlanColumn>) -> Self {
        let (rows, startup, cost) = (self.rows, self.startup, self.cost);
        let kind = PlanKind::Project { input: Box::new(self), exprs };
        Plan { kind, columns, rows, startup, cost, entries: 0.0 }
    }

    /// One row without columns.
    pub fn one_row() -> Self {
        Plan::new(PlanKind::Values(vec![Vec::new()]), Vec::new())
    }
}

/// A privilege that a plan needs: the table or view and the letter it has in `aclitem`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needed {
    /// OID of the table or view.
    pub table: Oid,
    /// Letter of the privilege.
    pub letter: char,
    /// The role that needs it: the owner of a view for what the view reads; `None` is who runs the plan.
    pub user: Option<Oid>,
}

/// How a row lock is taken (`FOR UPDATE`, `FOR SHARE`, and the read half of UPDATE and DELETE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLock {
    /// Strength.
    pub strength: kv_api::LockStrength,
    /// What to do when the lock is held.
    pub wait: kv_api::batch::WaitPolicy,
}

/// One end of a range over the column after the equality prefix.
#[derive(Clone, Debug)]
pub struct ScanBound {
    /// The value; evaluated once per execution, may refer to parameters and outer rows only.
    pub value: Expr,
    /// Whether the value itself belongs to the range.
    pub inclusive: bool,
}

/// Which part of an index a scan reads. Expressions contain no columns of the scanned table.
#[derive(Clone, Debug, Default)]
pub struct IndexAccess {
    /// Values of the leading index columns, one each, of the columns' types; NULL yields no row.
    pub prefix: Vec<Expr>,
    /// Alternatives for the column after the prefix (`IN (…)`, `= ANY(array)`): scalars of the
    /// column's type and arrays of it, of which NULLs and duplicates are ignored. Empty for no such
    /// condition. The rows of the alternatives are returned in index order.
    pub in_list: Vec<Expr>,
    /// Lower bound, in index order, of the column after the prefix (and the alternatives). The filter
    /// repeats the condition, so that reading too much (NULLs) is harmless; a NULL bound yields no row.
    pub lower: Option<ScanBound>,
    /// Upper bound of the same column.
    pub upper: Option<ScanBound>,
    /// For an inverted index, and for no other: conditions on its column, all of which a row satisfies. The filter
    /// repeats them, so that reading too much is harmless.
    pub inverted: Vec<InvertedCondition>,
}

/// Kinds of join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// Matching pairs.
    Inner,
    /// All left rows.
    Left,
    /// All right rows.
    Right,
    /// All rows of both.
    Full,
    /// Left rows with a match; only left columns.
    Semi,
    /// Left rows without a match; only left columns.
    Anti,
}

impl JoinKind {
    /// Whether a hash join of two sides with so many rows makes its table of the left one and probes it with right rows, of
    /// which nothing is returned.
    pub fn hashes_left(self, left_rows: f64, right_rows: f64) -> bool {
        matches!(self, JoinKind::Semi | JoinKind::Anti) && left_rows < right_rows
    }

    /// Of how many rows of the side that the table is probed with something becomes, if so many pairs of rows match.
    pub fn found(self, left_rows: f64, right_rows: f64, matching: f64) -> f64 {
        match self {
            JoinKind::Semi | JoinKind::Anti if self.hashes_left(left_rows, right_rows) => {
                matching.min(right_rows)
            }
            JoinKind::Left | JoinKind::Full | JoinKind::Anti => left_rows,
            JoinKind::Inner | JoinKind::Right | JoinKind::Semi => matching.min(left_rows),
        }
    }
}

/// How a join is computed.
#[derive(Clone, Debug)]
pub enum JoinMethod {
    /// For each left row, all right rows. The right side does not depend on the left row: it may be
    /// read once and kept.
    NestedLoop,
    /// For each left row, the right side is run anew with the left row as [`Expr::Outer`] of depth 0.
    /// Only for inner, left, semi and anti joins.
    Lateral,
    /// A hash table over the right side, or that which [`JoinKind::hashes_left`] says, on equal keys: `(left expression, right expression)`, each
    /// over its own side's row.
    Hash(Vec<(Expr, Expr)>),
    /// Both sides come ordered by equal keys.
    Merge(Vec<MergeKey>),
}

/// What a merge join compares. NULLs come last on both sides, first where the order is descending.
#[derive(Clone, Debug)]
pub struct MergeKey {
    /// Over the left row.
    pub left: Expr,
    /// Over the right row, of the same type.
    pub right: Expr,
    /// Whether the rows come in descending order.
    pub descending: bool,
}

impl JoinMethod {
    /// What must be equal, on the left and on the right, where the method has keys.
    pub fn keys(&self) -> Vec<(&Expr, &Expr)> {
        match self {
            JoinMethod::NestedLoop | JoinMethod::Lateral => Vec::new(),
            JoinMethod::Hash(keys) => keys.iter().map(|(left, right)| (left, right)).collect(),
            JoinMethod::Merge(keys) => keys.iter().map(|key| (&key.left, &key.right)).collect(),
        }
    }

    /// Calls `f` on every key, to change it: what is over the left row, and what is over the right one.
    pub fn for_each_key_mut(&mut self, f: &mut dyn FnMut(&mut Expr, &mut Expr)) {
        match self {
            JoinMethod::NestedLoop | JoinMethod::Lateral => {}
            JoinMethod::Hash(keys) => keys.iter_mut().for_each(|(left, right)| f(left, right)),
            JoinMethod::Merge(keys) => keys.iter_mut().for_each(|key| f(&mut key.left, &mut key.right)),
        }
    }
}

/// A value computed per row by running something: see [`PlanKind::Apply`].
#[derive(Clone, Debug)]
pub enum SubPlan {
    /// `(SELECT …)`: the single value, NULL for no row, error 21000 for several.
    Scalar(Arc<Plan>),
    /// `EXISTS (…)`.
    Exists(Arc<Plan>),
    /// `expr op ANY/ALL (SELECT …)`, `IN`: `test` is evaluated over the input row followed by the
    /// subquery's row and folded by three-valued OR (`any`) or AND.
    Quantified {
        /// The subquery.
        plan: Arc<Plan>,
        /// The comparison.
        test: Expr,
        /// ANY, or ALL.
        any: bool,
    },
    /// `ARRAY(SELECT …)`.
    Array(Arc<Plan>),
    /// `nextval(…)`: the argument is a regclass.
    NextVal(Expr),
    /// `setval(sequence, value, is_called)`.
    SetVal(Expr, Expr, Expr),
    /// Any other function that waits or has effects (`Function::external`): `pg_sleep`,
    /// `pg_advisory_lock`…
    Call(&'static Function, Vec<Expr>),
    /// A function of the user's own, over arguments of its types.
    Routine(Arc<RoutineDescriptor>, Vec<Expr>),
}

impl SubPlan {
    /// The plan inside, if there is one.
    pub fn plan(&self) -> Option<&Arc<Plan>> {
        match self {
            SubPlan::Scalar(plan) | SubPlan::Exists(plan) | SubPlan::Array(plan) => Some(plan),
            SubPlan::Quantified { plan, .. } => Some(plan),
            SubPlan::NextVal(_) | SubPlan::SetVal(..) | SubPlan::Call(..) | SubPlan::Routine(..) => None,
        }
    }
}

/// Set operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOpKind {
    /// UNION
    Union,
    /// INTERSECT
    Intersect,
    /// EXCEPT
    Except,
}

/// What DO UPDATE makes of the row that is there.
#[derive(Clone, Debug)]
pub enum ConflictUpdate {
    /// Everything follows from the existing row followed by the excluded row.
    Row {
        /// New values.
        assignments: Vec<(ColumnId, Expr)>,
        /// WHERE
        condition: Option<Expr>,
    },
    /// There are subqueries in it.
    Query {
        /// Columns assigned.
        targets: Vec<ColumnId>,
        /// Gives their values as one row, or none if the condition is not true; sees the existing row followed by the
        /// excluded row as [`Expr::Outer`] of depth 0.
        row: Arc<Plan>,
    },
}

impl ConflictUpdate {
    /// The columns assigned.
    pub fn targets(&self) -> Vec<ColumnId> {
        match self {
            ConflictUpdate::Row { assignments, .. } => assignments.iter().map(|(id, _)| *id).collect(),
            ConflictUpdate::Query { targets, .. } => targets.clone(),
        }
    }
}

/// What the rows of a table must satisfy besides NOT NULL of its columns.
pub type Checks = Arc<Vec<RowCheck>>;

/// A CHECK constraint of a table over its full row, or a constraint of the domain of one of its columns.
#[derive(Clone, Debug)]
pub struct RowCheck {
    /// Name of the constraint.
    pub name: Arc<str>,
    /// Fails where this is false.
    pub expr: Expr,
    /// The domain it belongs to.
    pub domain: Option<DomainRule>,
}

/// A constraint of a domain.
#[derive(Clone, Debug)]
pub struct DomainRule {
    /// Name of the domain, as messages have it.
    pub domain: Arc<str>,
    /// Whether it is its NOT NULL.
    pub not_null: bool,
}

/// What `ON CONFLICT` does.
#[derive(Clone, Debug)]
pub struct OnConflict {
    /// The unique index that arbitrates; `None` for any (`DO NOTHING` without target).
    pub arbiter: Option<IndexId>,
    /// DO UPDATE; `None` for DO NOTHING.
    pub update: Option<ConflictUpdate>,
}

/// The operators.
#[derive(Clone, Debug)]
pub enum PlanKind {
    /// Literal rows.
    Values(Vec<Vec<Expr>>),
    /// Reads a table through one of its indexes. The result columns are `columns` in this order; the
    /// filter sees exactly those.
    Scan {
        /// The table.
        table: Arc<TableDescriptor>,
        /// The index read; a secondary index looks up the primary row when it lacks a column.
        index: IndexId,
        /// Which part of it.
        access: IndexAccess,
        /// Columns returned.
        columns: Vec<ColumnId>,
        /// What else a row must satisfy.
        filter: Option<Expr>,
        /// Descending in index order.
        reverse: bool,
        /// Row lock.
        lock: Option<RowLock>,
        /// A hint: no more than this many rows (bigint; NULL for no limit) that satisfy the filter
        /// will be asked for. Refers to parameters only.
        limit: Option<Expr>,
        /// Whether policies decide which rows there are.
        fence: ScanFence,
    },
    /// The rows that the policies of a table let through. Only as long as conditions are moved: none that could tell
    /// of a row moves below it (see [`policy`]).
    Fence {
        /// Rows in.
        input: Box<Plan>,
    },
    /// Rows of a catalog table or view that is computed (`pg_class`, `information_schema.tables`):
    /// all its columns.
    SystemScan {
        /// Which, as `schema.name`.
        name: &'static str,
    },
    /// Rows of a set-returning function (`generate_series`, `unnest`), optionally numbered
    /// (`WITH ORDINALITY`). Several functions stand side by side (`ROWS FROM`).
    FunctionScan {
        /// The functions with their arguments (over [`Expr::Outer`] and parameters).
        functions: Vec<SetInvocation>,
        /// Whether a bigint column with the row number follows.
        ordinality: bool,
    },
    /// Rows of a common table expression of an enclosing [`PlanKind::With`].
    CteScan {
        /// Unique within the statement.
        cte: usize,
    },
    /// Keeps rows for which the predicate is true.
    Filter {
        /// Rows in.
        input: Box<Plan>,
        /// The predicate.
        predicate: Expr,
    },
    /// Computes the columns of the result.
    Project {
        /// Rows in.
        input: Box<Plan>,
        /// One per result column.
        exprs: Vec<Expr>,
    },
    /// Like `Project`, where some expressions are set-returning: one row per element, shorter sets
    /// padded with NULL.
    ProjectSet {
        /// Rows in.
        input: Box<Plan>,
        /// One per result column: a plain expression or a set-returning call.
        exprs: Vec<ProjectSetItem>,
    },
    /// Appends one column per sub-plan to each row. Inside a sub-plan the input row is
    /// [`Expr::Outer`] with depth 0.
    Apply {
        /// Rows in.
        input: Box<Plan>,
        /// The sub-plans, and for each whether it may be computed once per execution: no
        /// [`Expr::Outer`] reference leaves it and nothing in it is volatile. A scalar, quantified or
        /// other sub-plan may be left uncomputed until its column is read.
        subplans: Vec<(SubPlan, bool)>,
    },
    /// A join.
    Join {
        /// Kind.
        kind: JoinKind,
        /// Method.
        method: JoinMethod,
        /// Left side.
        left: Box<Plan>,
        /// Right side.
        right: Box<Plan>,
        /// What else a pair must satisfy, over both rows.
        on: Option<Expr>,
    },
    /// Groups and aggregates. Result: the group expressions, then the aggregates, then (with several
    /// grouping sets) one int4 with the bit mask of `GROUPING` for all group expressions.
    Aggregate {
        /// Rows in.
        input: Box<Plan>,
        /// Group expressions.
        groups: Vec<Expr>,
        /// Grouping sets as positions in `groups`; a plain GROUP BY is one set of all.
        sets: Vec<Vec<usize>>,
        /// Aggregates.
        aggregates: Vec<AggregateCall>,
    },
    /// Appends one column per window call.
    Window {
        /// Rows in.
        input: Box<Plan>,
        /// The calls.
        calls: Vec<WindowCall>,
    },
    /// Sorts.
    Sort {
        /// Rows in.
        input: Box<Plan>,
        /// Keys, most significant first.
        keys: Vec<SortKey>,
        /// At most this many rows are wanted (bigint; NULL for all). Refers to parameters only.
        limit: Option<Expr>,
    },
    /// Skips and limits.
    Limit {
        /// Rows in.
        input: Box<Plan>,
        /// LIMIT; NULL for none.
        limit: Option<Expr>,
        /// OFFSET.
        offset: Option<Expr>,
    },
    /// Removes duplicates of all columns, or keeps the first row for each value of `on`
    /// (`DISTINCT ON`, input sorted accordingly).
    Distinct {
        /// Rows in.
        input: Box<Plan>,
        /// Expressions of `DISTINCT ON`; empty for all columns.
        on: Vec<Expr>,
    },
    /// A set operation over inputs with equal column types.
    SetOp {
        /// Which.
        kind: SetOpKind,
        /// ALL.
        all: bool,
        /// Left input.
        left: Box<Plan>,
        /// Right input.
        right: Box<Plan>,
    },
    /// Common table expressions and the query over them. Each is computed at most once, when first
    /// read, except modifying ones, which always run to completion.
    With {
        /// `(cte number, plan)`.
        ctes: Vec<(usize, Plan)>,
        /// The query.
        body: Box<Plan>,
    },
    /// `WITH RECURSIVE`: `step` reads the rows of the last round as `CteScan { cte }`.
    Recursive {
        /// Number of the working table.
        cte: usize,
        /// First rows.
        base: Box<Plan>,
        /// Further rows.
        step: Box<Plan>,
        /// UNION ALL, or UNION.
        all: bool,
    },
    /// Inserts rows.
    Insert {
        /// The table.
        table: Arc<TableDescriptor>,
        /// Rows to insert: one value per entry of `targets`.
        input: Box<Plan>,
        /// Columns given, in the order of the input.
        targets: Vec<ColumnId>,
        /// Values of columns not given, evaluated per row over an empty row (sequences arrive through
        /// `input`).
        defaults: Vec<(ColumnId, Expr)>,
        /// CHECK constraints over the full row in column order: name and expression.
        checks: Checks,
        /// ON CONFLICT.
        on_conflict: Option<OnConflict>,
        /// RETURNING, over the full new row in column order.
        returning: Option<Vec<Expr>>,
        /// What policies ask of the rows.
        policies: Option<Box<RowPolicies>>,
    },
    /// Updates rows. The input yields the full old row (all columns, in column order) and then
    /// whatever FROM adds; its scan of the table takes exclusive locks.
    Update {
        /// The table.
        table: Arc<TableDescriptor>,
        /// Rows to update.
        input: Box<Plan>,
        /// New values, over the input row.
        assignments: Vec<(ColumnId, Expr)>,
        /// CHECK constraints over the full new row.
        checks: Checks,
        /// RETURNING, over the full new row followed by what FROM adds.
        returning: Option<Vec<Expr>>,
        /// What policies ask of the rows.
        policies: Option<Box<RowPolicies>>,
    },
    /// Does for each row of the input what the first of the clauses says that applies. The input yields the full old row
    /// of the target, which is all NULL where the source's row matches none, and then the columns of the source.
    Merge {
        /// The target.
        table: Arc<TableDescriptor>,
        /// The target joined with the source; the scan of the target takes exclusive locks.
        input: Box<Plan>,
        /// The clauses.
        clauses: Vec<MergeClause>,
        /// What new rows must satisfy.
        checks: Checks,
        /// What policies ask of the rows.
        policies: Option<Box<RowPolicies>>,
    },
    /// Deletes rows. The input is as for `Update`.
    Delete {
        /// The table.
        table: Arc<TableDescriptor>,
        /// Rows to delete.
        input: Box<Plan>,
        /// RETURNING, over the full old row followed by what USING adds.
        returning: Option<Vec<Expr>>,
    },
}

impl PlanKind {
    /// The table that the operator itself changes.
    pub fn changed_table(&self) -> Option<&Arc<TableDescriptor>> {
        match self {
            PlanKind::Insert { table, .. }
            | PlanKind::Update { table, .. }
            | PlanKind::Delete { table, .. }
            | PlanKind::Merge { table, .. } => Some(table),
            _ => None,
        }
    }
}

/// A WHEN clause of MERGE. Expressions are over the input row.
#[derive(Clone, Debug)]
pub struct MergeClause {
    /// Whether it is for rows of the source that match a row of the target.
    pub matched: bool,
    /// AND: when it applies.
    pub condition: Option<Expr>,
    /// THEN
    pub action: MergeAction,
}

/// What a WHEN clause of MERGE does.
#[derive(Clone, Debug)]
pub enum MergeAction {
    /// DO NOTHING
    Nothing,
    /// DELETE
    Delete,
    /// UPDATE: new values.
    Update(Vec<(ColumnId, Expr)>),
    /// INSERT
    Insert {
        /// Columns given.
        targets: Vec<ColumnId>,
        /// Gives their values as one row; sees the input row as [`Expr::Outer`] of depth 0.
        row: Arc<Plan>,
    },
}

/// A column of [`PlanKind::ProjectSet`].
#[derive(Clone, Debug)]
pub enum ProjectSetItem {
    /// One value per input row, repeated.
    Scalar(Expr),
    /// A set of values per input row. A function with several columns yields records.
    Set(SetInvocation),
}

/// A call of a set-returning function.
#[derive(Clone, Debug)]
pub struct SetInvocation {
    /// The function.
    pub function: &'static SetFunction,
    /// Its arguments.
    pub args: Vec<Expr>,
    /// Names and types of its columns: resolved, or taken from the column definition list.
    pub columns: Vec<(String, Type)>,
}
