//! Statements to plans: names, types, functions, subqueries.
//!
//! # How it works
//!
//! A [`Binder`] walks the AST once. A [`scope::Scope`] holds the columns that names may refer to; a
//! chain of scopes mirrors the rows that are visible at run time, so that the distance to the scope in
//! which a name is found is the depth of the [`Expr::Outer`] it becomes. While expressions are bound,
//! what they need beyond their own row (aggregates, window calls, subqueries, set-returning calls) is
//! collected in an [`context::ExprContext`] and stands in the expression as a *virtual column*
//! ([`context::Virtual`]). When the operators are stacked ([`select`]), the virtual columns get
//! their places.
//!
//! # Rules
//!
//! * Untyped literals and parameters are [`Type::UNKNOWN`] until a context gives them a type; what is
//!   left becomes text in a select list, and an error (42P18) for a parameter anywhere else.
//! * Recursion is bounded by [`MAX_DEPTH`] (54001).
//! * Errors carry PostgreSQL's SQLSTATE, words and position.
//!
//! # What is missing
//!
//! Aggregates that belong to an outer query; subqueries in ON CONFLICT and in VALUES of
//! set-returning kind; `TABLESAMPLE`.

mod aggregate;
mod assign;
mod call;
mod coerce;
mod context;
mod copy;
mod cte;
mod delete;
mod expr;
mod from;
mod group;
mod hypothetical;
mod insert;
mod join;
mod literal;
mod lookup;
mod merge;
mod names;
mod operator;
mod output_name;
mod params;
mod policy;
mod query;
mod routine;
mod row;
mod rows;
mod scope;
mod select;
mod set_op;
mod special;
mod spell;
mod subquery;
mod table_expr;
mod types;
mod update;
mod values;
mod variables;
mod view;
mod window;

#[cfg(test)]
pub(crate) mod tests;

pub use copy::{BoundCopy, bind_copy};
pub use lookup::{CatalogLookup, RelationRef, SystemRef, ViewRef};
pub use names::{ident_name, object_name};
pub(crate) use output_name::output_name;
pub use policy::{BoundPolicy, bind_policy};
pub use table_expr::{
    bind_argument, bind_check, bind_checks, bind_default, bind_domain_check, bind_generation,
    bind_index_expr, bind_index_predicate, bind_row_expr, bind_scalar, bind_trigger_condition, default_of,
};
pub use types::{column_type, declared_type};
pub use variables::{Variable, VariableKind, Variables};
pub use view::bind_view_query;

use crate::parse::{Ast, Source, Statement, StatementKind};
use crate::plan::{Expr, Needed, Plan, PlanColumn};
use params::Params;
use sql_types::functions::EvalContext;
use sql_types::{Oid, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast;
use sqlparser::tokenizer::{Location, Span};
use std::cell::{Cell, RefCell};

/// How deep expressions and subqueries may nest.
pub const MAX_DEPTH: usize = 160;

/// How many expressions of a statement are bound a second time.
const MOST_REBOUND: usize = 4096;

/// What binding depends on besides the statement.
#[derive(Clone, Copy)]
pub struct BindContext<'a> {
    /// The catalog.
    pub catalog: &'a dyn CatalogLookup,
    /// Schemas searched for unqualified names, in order (`pg_catalog` need not be named).
    pub search_path: &'a [String],
    /// Session values, for reading literals.
    pub eval: &'a EvalContext<'a>,
    /// Declared types of the parameters; [`Type::UNKNOWN`] or OID 0 where the context decides.
    pub param_types: &'a [Type],
    /// Names of some of the parameters, inside a function.
    pub variables: Option<&'a Variables>,
    /// The role whose rights the statement has.
    pub user: Oid,
    /// `row_security`: whether policies apply; if not, what they would affect is refused.
    pub row_security: bool,
}

/// A bound statement.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The plan, not optimized.
    pub plan: Plan,
    /// Types of the parameters.
    pub param_types: Vec<Type>,
    /// Columns of the result; `None` if the statement returns no rows.
    pub columns: Option<Vec<PlanColumn>>,
    /// Kind of the statement; for WITH … INSERT the kind of its body.
    pub kind: StatementKind,
    /// The privileges needed to read what it reads.
    pub reads: Vec<Needed>,
}

/// Binds a query or a statement that changes rows.
pub fn bind_statement(statement: &Statement, context: &BindContext<'_>) -> SqlResult<Bound> {
    let Ast::Sql(ast) = &statement.ast else { return Err(not_planned()) };
    let mut binder = Binder::new(context, Some(&statement.source), statement.parameters);
    binder.overriding = statement.marks.overriding;
    binder.bind(ast)
}

/// Binds a statement found inside another one (`EXPLAIN`, `PREPARE`, `DECLARE`, `COPY`), whose positions
/// refer to `source`.
pub fn bind_ast(
    ast: &ast::Statement,
    source: Option<&Source>,
    parameters: usize,
    context: &BindContext<'_>,
) -> SqlResult<Bound> {
    Binder::new(context, source, parameters).bind(ast)
}

/// Binds a query found inside another statement.
pub fn bind_query(
    query: &ast::Query,
    source: Option<&Source>,
    parameters: usize,
    context: &BindContext<'_>,
) -> SqlResult<Bound> {
    let binder = Binder::new(context, source, parameters);
    binder.finish_query(query)
}

fn not_planned() -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, "only queries and statements that change rows can be used here")
}

/// Binds one statement.
pub(crate) struct Binder<'a> {
    context: &'a BindContext<'a>,
    /// Where positions refer to; `None` inside views and stored expressions.
    source: Option<&'a Source>,
    params: RefCell<Params>,
    depth: Cell<usize>,
    next_cte: Cell<usize>,
    views: Cell<usize>,
    overriding: Option<bool>,
    /// How often something was bound anew, differently: see [`Binder::again`].
    rebound: Cell<usize>,
    /// The owner of the view that is bound, whose rights count within it.
    owner: Option<Oid>,
    /// Tables whose policies are being bound.
    guarded: Vec<Oid>,
    reads: RefCell<Vec<Needed>>,
}

/// What a query can refer to.
#[derive(Clone, Copy, Default)]
pub(crate) struct Env<'s> {
    /// The rows around it.
    pub outer: Option<&'s scope::Scope<'s>>,
    /// The common table expressions around it.
    pub ctes: Option<&'s cte::CteFrame<'s>>,
}

impl<'a> Binder<'a> {
    pub(crate) fn new(context: &'a BindContext<'a>, source: Option<&'a Source>, parameters: usize) -> Self {
        Binder {
            context,
            source,
            params: RefCell::new(Params::new(context.param_types, parameters)),
            depth: Cell::new(0),
            next_cte: Cell::new(0),
            views: Cell::new(0),
            overriding: None,
            rebound: Cell::new(0),
            owner: None,
            guarded: Vec::new(),
            reads: RefCell::default(),
        }
    }

    /// Binds an expression that stands in the place of one already bound. What is bound twice on every level is bound
    /// very often where levels are many: 54001 then.
    pub(crate) fn again(&self, expr: &ast::Expr, context: &mut context::ExprContext<'_>) -> SqlResult<Expr> {
        self.rebound.set(self.rebound.get() + 1);
        if self.rebound.get() > MOST_REBOUND {
            return Err(SqlError::new(SqlState::TOO_COMPLEX, "statement is too complex")
                .with_detail("Its calls of functions are nested too deeply."));
        }
        self.bind_expr(expr, context)
    }

    /// A binder of a text that is kept: a view or a policy. What it finds out is to be given to [`Self::absorb`].
    pub(crate) fn within<'b>(&self, context: &'b BindContext<'b>) -> Binder<'b> {
        let mut inner = Binder::new(context, None, 0);
        inner.next_cte.set(self.next_cte.get());
        inner.depth.set(self.depth.get());
        inner.views.set(self.views.get());
        inner.rebound.set(self.rebound.get());
        inner.owner = self.owner;
        inner.guarded.clone_from(&self.guarded);
        inner
    }

    /// Takes over what a binder from [`Self::within`] found out.
    pub(crate) fn absorb(&self, inner: Binder<'_>) {
        self.next_cte.set(inner.next_cte.get());
        self.rebound.set(inner.rebound.get());
        for needed in inner.reads.into_inner() {
            self.need(needed);
        }
    }

    fn need(&self, needed: Needed) {
        let mut reads = self.reads.borrow_mut();
        if !reads.contains(&needed) {
            reads.push(needed);
        }
    }

    /// Notes that a relation is read, with the rights that count here.
    pub(crate) fn reads(&self, relation: Oid) {
        self.need(Needed { table: relation, letter: 'r', user: self.owner });
    }

    fn bind(&self, ast: &ast::Statement) -> SqlResult<Bound> {
        match ast {
            ast::Statement::Query(query) => self.finish_query(query),
            ast::Statement::Insert(_) | ast::Statement::Update(_) | ast::Statement::Delete(_) => {
                let plan = self.bind_dml(ast, Env::default())?;
                self.finish(plan, dml_kind(ast))
            }
            ast::Statement::Merge(merge) => {
                let plan = self.bind_merge(merge, Env::default())?;
                self.finish(plan, StatementKind::Merge)
            }
            _ => Err(not_planned()),
        }
    }

    fn finish_query(&self, query: &ast::Query) -> SqlResult<Bound> {
        let plan = self.bind_query(query, Env::default())?;
        let kind = match query.body.as_ref() {
            ast::SetExpr::Insert(_) => StatementKind::Insert,
            ast::SetExpr::Update(_) => StatementKind::Update,
            ast::SetExpr::Delete(_) => StatementKind::Delete,
            ast::SetExpr::Merge(_) => StatementKind::Merge,
            _ => StatementKind::Query,
        };
        self.finish(plan, kind)
    }

    fn finish(&self, mut plan: Plan, kind: StatementKind) -> SqlResult<Bound> {
        let param_types = self.params.borrow_mut().finish()?;
        self.settle_params(&mut plan);
        let columns =
            (kind == StatementKind::Query || !plan.columns.is_empty()).then(|| plan.columns.clone());
        let reads = self.reads.take();
        Ok(Bound { plan, param_types, columns, kind, reads })
    }

    /// Binds INSERT, UPDATE or DELETE.
    pub(crate) fn bind_dml(&self, ast: &ast::Statement, env: Env<'_>) -> SqlResult<Plan> {
        match ast {
            ast::Statement::Insert(insert) => self.bind_insert(insert, env),
            ast::Statement::Update(update) => self.bind_update(update, env),
            ast::Statement::Delete(delete) => self.bind_delete(delete, env),
            ast::Statement::Merge(merge) => self.bind_merge(merge, env),
            _ => Err(not_planned()),
        }
    }

    /// Runs `f` one level deeper; 54001 if that is too deep.
    pub(crate) fn deeper<T>(&self, f: impl FnOnce() -> SqlResult<T>) -> SqlResult<T> {
        let depth = self.depth.get();
        if depth >= MAX_DEPTH {
            return Err(SqlError::new(SqlState::TOO_COMPLEX, "statement is too complex")
                .with_detail("Its expressions or subqueries are nested too deeply."));
        }
        self.depth.set(depth + 1);
        let result = f();
        self.depth.set(depth);
        result
    }

    /// Whether what is bound is the statement's own query, and not one within it.
    pub(crate) fn is_top_level(&self) -> bool {
        self.depth.get() <= 1
    }

    /// Adds a position to an error that has none.
    pub(crate) fn at(&self, error: SqlError, span: Span) -> SqlError {
        self.at_location(error, span.start)
    }

    fn at_location(&self, error: SqlError, location: Location) -> SqlError {
        if error.extra().is_some_and(|extra| extra.position.is_some()) {
            return error;
        }
        match self.source.and_then(|source| source.position(location)) {
            Some(position) => error.at(position),
            None => error,
        }
    }

    /// A number for a new common table expression.
    pub(crate) fn new_cte(&self) -> usize {
        let number = self.next_cte.get();
        self.next_cte.set(number + 1);
        number
    }
}

fn dml_kind(ast: &ast::Statement) -> StatementKind {
    match ast {
        ast::Statement::Insert(_) => StatementKind::Insert,
        ast::Statement::Update(_) => StatementKind::Update,
        _ => StatementKind::Delete,
    }
}

/// A boolean constant.
pub(crate) fn bool_const(value: bool) -> Expr {
    Expr::Const(sql_types::Datum::Bool(value), Type::BOOL)
}
