//! Bound expressions: pure functions of a row, the parameters and the session.

use sql_types::functions::{AggregateFunction, Function, WindowFunction};
use sql_types::{ColumnType, Datum, RecordField, Type};
use std::sync::Arc;

/// A typed expression.
#[derive(Clone, Debug)]
pub enum Expr {
    /// A constant.
    Const(Datum, Type),
    /// Parameter `$n`, counted from 0.
    Param(usize, Type),
    /// A column of the input row.
    Column(usize, Type),
    /// A column of an enclosing row: `depth` 0 is the row of the nearest enclosing `Apply` or lateral
    /// join, 1 the next one out.
    Outer {
        /// How many rows out.
        depth: usize,
        /// Column in that row.
        index: usize,
        /// Its type.
        ty: Type,
    },
    /// A function or operator of the registry over arguments already cast to its types.
    Call {
        /// The function.
        function: &'static Function,
        /// Its arguments.
        args: Vec<Expr>,
        /// The type of the result (resolved, for polymorphic functions).
        ty: Type,
    },
    /// A cast. `explicit` casts truncate where assignment casts fail.
    Cast {
        /// The value.
        expr: Box<Expr>,
        /// Its type after.
        to: ColumnType,
        /// Written by the user, or by assignment.
        explicit: bool,
    },
    /// Three-valued AND.
    And(Vec<Expr>),
    /// Three-valued OR.
    Or(Vec<Expr>),
    /// Three-valued NOT.
    Not(Box<Expr>),
    /// `IS NULL`, or `IS NOT NULL` if negated.
    IsNull(Box<Expr>, bool),
    /// `IS DISTINCT FROM`, or `IS NOT DISTINCT FROM` if negated.
    IsDistinct(Box<Expr>, Box<Expr>, bool),
    /// `CASE`: conditions are boolean; a simple CASE is bound to comparisons.
    Case {
        /// Conditions and results.
        branches: Vec<(Expr, Expr)>,
        /// ELSE.
        otherwise: Option<Box<Expr>>,
        /// Type of the result.
        ty: Type,
    },
    /// The first value that is not NULL.
    Coalesce(Vec<Expr>, Type),
    /// `expr IN (list)`; `negated` for NOT IN. All of one type.
    InList(Box<Expr>, Vec<Expr>, bool),
    /// `expr op ANY/ALL (array)`: the function is the operator over the element type.
    AnyArray {
        /// Left operand.
        expr: Box<Expr>,
        /// Boolean operator.
        function: &'static Function,
        /// The array.
        array: Box<Expr>,
        /// ANY, or ALL.
        any: bool,
    },
    /// `ARRAY[…]`; the type is the array type. Elements that are arrays make a further dimension.
    Array(Vec<Expr>, Type),
    /// `ROW(…)`, or a whole row of a table, whose fields have names.
    Record(Vec<Expr>, Option<Arc<[RecordField]>>),
    /// A field of a record by position.
    Field(Box<Expr>, usize, Type),
    /// A value as one of a domain: its constraints, over a row of the value alone, must hold.
    Domain(Box<Expr>, super::Checks),
    /// `array[subscripts]`; a slice where a subscript has two ends.
    Subscript(Box<Expr>, Vec<SubscriptRange>, Type),
    /// An array or jsonb value after `value[subscripts] = element`; what is assigned to a slice is an array. Subscripts of
    /// jsonb are integers and text.
    SubscriptAssign(Box<Expr>, Vec<SubscriptRange>, Box<Expr>, Type),
}

/// One subscript of an array.
#[derive(Clone, Debug)]
pub enum SubscriptRange {
    /// `[i]`
    Index(Expr),
    /// `[from:to]`
    Slice(Option<Expr>, Option<Expr>),
}

impl Expr {
    /// The type of the value.
    pub fn ty(&self) -> Type {
        match self {
            Expr::Const(_, ty)
            | Expr::Param(_, ty)
            | Expr::Column(_, ty)
            | Expr::Outer { ty, .. }
            | Expr::Call { ty, .. }
            | Expr::Case { ty, .. }
            | Expr::Coalesce(_, ty)
            | Expr::Array(_, ty)
            | Expr::Field(_, _, ty)
            | Expr::Subscript(_, _, ty)
            | Expr::SubscriptAssign(_, _, _, ty) => *ty,
            Expr::Cast { to, .. } => to.ty,
            Expr::Domain(value, _) => value.ty(),
            Expr::Record(..) => Type::RECORD,
            Expr::And(_)
            | Expr::Or(_)
            | Expr::Not(_)
            | Expr::IsNull(..)
            | Expr::IsDistinct(..)
            | Expr::InList(..)
            | Expr::AnyArray { .. } => Type::BOOL,
        }
    }
}

/// An aggregate over a group.
#[derive(Clone, Debug)]
pub struct AggregateCall {
    /// The aggregate.
    pub function: &'static AggregateFunction,
    /// Its arguments; none for `count(*)`.
    pub args: Vec<Expr>,
    /// DISTINCT.
    pub distinct: bool,
    /// ORDER BY inside the call; for ordered-set aggregates, WITHIN GROUP.
    pub order: Vec<SortKey>,
    /// FILTER.
    pub filter: Option<Expr>,
    /// Type of the result.
    pub ty: Type,
}

/// A key of an order.
#[derive(Clone, Debug)]
pub struct SortKey {
    /// What is compared.
    pub expr: Expr,
    /// Descending.
    pub descending: bool,
    /// NULLs first (PostgreSQL's default when descending).
    pub nulls_first: bool,
}

/// What a window call computes.
#[derive(Clone, Debug)]
pub enum WindowKind {
    /// A pure window function: `row_number`, `rank`, `lag`…
    Function(&'static WindowFunction, Vec<Expr>),
    /// An aggregate over the frame.
    Aggregate(AggregateCall),
}

/// A call with OVER.
#[derive(Clone, Debug)]
pub struct WindowCall {
    /// What.
    pub kind: WindowKind,
    /// PARTITION BY.
    pub partition: Vec<Expr>,
    /// ORDER BY.
    pub order: Vec<SortKey>,
    /// The frame.
    pub frame: Arc<WindowFrame>,
    /// Type of the result.
    pub ty: Type,
}

/// Units of a window frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameUnits {
    /// ROWS
    Rows,
    /// RANGE
    Range,
    /// GROUPS
    Groups,
}

/// An end of a window frame.
#[derive(Clone, Debug)]
pub enum FrameBound {
    /// UNBOUNDED PRECEDING
    UnboundedPreceding,
    /// n PRECEDING
    Preceding(Expr),
    /// CURRENT ROW
    CurrentRow,
    /// n FOLLOWING
    Following(Expr),
    /// UNBOUNDED FOLLOWING
    UnboundedFollowing,
}

/// What a frame leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameExclusion {
    /// EXCLUDE NO OTHERS
    None,
    /// EXCLUDE CURRENT ROW
    CurrentRow,
    /// EXCLUDE GROUP
    Group,
    /// EXCLUDE TIES
    Ties,
}

/// A window frame.
#[derive(Clone, Debug)]
pub struct WindowFrame {
    /// Units.
    pub units: FrameUnits,
    /// Where it starts.
    pub start: FrameBound,
    /// Where it ends.
    pub end: FrameBound,
    /// What it leaves out.
    pub exclusion: FrameExclusion,
}
