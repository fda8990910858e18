//! What is collected while the expressions of a clause are bound.

use super::scope::Scope;
use super::{Env, cte};
use crate::plan::{AggregateCall, Expr, SetInvocation, SubPlan, WindowCall};
use sql_types::Type;
use sqlparser::ast;

/// Columns that have no place in a row yet, marked by a high bit of their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Virtual {
    /// An aggregate.
    Aggregate(usize),
    /// A window call.
    Window(usize),
    /// A sub-plan.
    Sub(usize),
    /// A set-returning call.
    Set(usize),
    /// A column of the subquery's row, in the test of a quantified sub-plan.
    SubRow(usize),
    /// A group expression.
    Group(usize),
    /// The bit mask of `GROUPING`.
    GroupingMask,
}

const SHIFT: u32 = 40;

impl Virtual {
    /// As a column reference.
    pub(crate) fn column(self, ty: Type) -> Expr {
        let (tag, number) = match self {
            Virtual::Aggregate(number) => (1, number),
            Virtual::Window(number) => (2, number),
            Virtual::Sub(number) => (3, number),
            Virtual::Set(number) => (4, number),
            Virtual::SubRow(number) => (5, number),
            Virtual::Group(number) => (6, number),
            Virtual::GroupingMask => (7, 0),
        };
        Expr::Column((tag << SHIFT) | number, ty)
    }

    /// The virtual column a reference stands for; `None` for a real column.
    pub(crate) fn of(index: usize) -> Option<Virtual> {
        let number = index & ((1 << SHIFT) - 1);
        Some(match index >> SHIFT {
            1 => Virtual::Aggregate(number),
            2 => Virtual::Window(number),
            3 => Virtual::Sub(number),
            4 => Virtual::Set(number),
            5 => Virtual::SubRow(number),
            6 => Virtual::Group(number),
            7 => Virtual::GroupingMask,
            _ => return None,
        })
    }
}

/// Where an expression stands, which decides what it may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clause {
    Select,
    Where,
    JoinOn,
    GroupBy,
    Having,
    OrderBy,
    Limit,
    Values,
    From,
    Returning,
    UpdateSet,
    Window,
    OnConflict,
    Default,
    Check,
    IndexExpression,
    IndexPredicate,
    Generation,
    MergeWhen,
    TriggerWhen,
    Policy,
}

impl Clause {
    /// Its name in error messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Clause::Select => "SELECT",
            Clause::Where => "WHERE",
            Clause::JoinOn => "JOIN conditions",
            Clause::GroupBy => "GROUP BY",
            Clause::Having => "HAVING",
            Clause::OrderBy => "ORDER BY",
            Clause::Limit => "LIMIT",
            Clause::Values => "VALUES",
            Clause::From => "functions in FROM",
            Clause::Returning => "RETURNING",
            Clause::UpdateSet => "UPDATE",
            Clause::Window => "window definitions",
            Clause::OnConflict => "ON CONFLICT",
            Clause::Default => "DEFAULT expressions",
            Clause::Check => "check constraints",
            Clause::IndexExpression => "index expressions",
            Clause::IndexPredicate => "index predicates",
            Clause::MergeWhen => "MERGE WHEN conditions",
            Clause::TriggerWhen => "trigger WHEN conditions",
            Clause::Generation => "column generation expressions",
            Clause::Policy => "policy expressions",
        }
    }

    pub(crate) fn allows_aggregates(self) -> bool {
        matches!(self, Clause::Select | Clause::Having | Clause::OrderBy | Clause::Window)
    }

    pub(crate) fn allows_windows(self) -> bool {
        matches!(self, Clause::Select | Clause::OrderBy)
    }

    pub(crate) fn allows_sets(self) -> bool {
        matches!(self, Clause::Select | Clause::OrderBy)
    }

    /// Whether functions of the user's own can be called.
    pub(crate) fn allows_routines(self) -> bool {
        self.allows_subqueries() || self == Clause::Default
    }

    pub(crate) fn allows_subqueries(self) -> bool {
        !matches!(
            self,
            Clause::Default
                | Clause::Check
                | Clause::IndexExpression
                | Clause::IndexPredicate
                | Clause::Generation
                | Clause::TriggerWhen
        )
    }
}

/// Collects what expressions need beyond their row.
pub(crate) struct ExprContext<'s> {
    /// The row.
    pub scope: &'s Scope<'s>,
    /// Common table expressions that subqueries can use.
    pub ctes: Option<&'s cte::CteFrame<'s>>,
    /// Definitions of the WINDOW clause.
    pub windows_by_name: &'s [ast::NamedWindowDefinition],
    /// The clause being bound.
    pub clause: Clause,
    /// Whether the arguments of an aggregate are being bound.
    pub in_aggregate: bool,
    pub aggregates: Vec<AggregateCall>,
    pub windows: Vec<WindowCall>,
    pub subplans: Vec<(SubPlan, bool)>,
    pub sets: Vec<SetInvocation>,
    /// Arguments of `GROUPING` calls: bound group expressions.
    pub uses_grouping: bool,
}

impl<'s> ExprContext<'s> {
    pub(crate) fn new(scope: &'s Scope<'s>, ctes: Option<&'s cte::CteFrame<'s>>, clause: Clause) -> Self {
        ExprContext {
            scope,
            ctes,
            windows_by_name: &[],
            clause,
            in_aggregate: false,
            aggregates: Vec::new(),
            windows: Vec::new(),
            subplans: Vec::new(),
            sets: Vec::new(),
            uses_grouping: false,
        }
    }

    /// What a subquery in one of the expressions can refer to.
    pub(crate) fn env(&self) -> Env<'s> {
        Env { outer: Some(self.scope), ctes: self.ctes }
    }

    /// Adds a sub-plan; the expression that stands for its value.
    pub(crate) fn add_subplan(&mut self, subplan: SubPlan, cached: bool, ty: Type) -> Expr {
        self.subplans.push((subplan, cached));
        Virtual::Sub(self.subplans.len() - 1).column(ty)
    }
}
