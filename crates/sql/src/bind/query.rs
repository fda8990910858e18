//! Queries: WITH, the body, ORDER BY, LIMIT, row locks.

use super::aggregate::sort_key;
use super::context::{Clause, ExprContext};
use super::expr::span_of;
use super::names::ident_name;
use super::operator::{constant_number, strip};
use super::rows::Rows;
use super::scope::Scope;
use super::select::{OutputItem, project};
use super::{Binder, Env};
use crate::optimize::fold::fold_expr;
use crate::parse::markers::WITH_TIES;
use crate::plan::expr::{FrameBound, FrameExclusion, FrameUnits, WindowFrame, WindowKind};
use crate::plan::{Expr, JoinKind, JoinMethod, Plan, PlanColumn, PlanKind, SortKey, SubPlan, WindowCall};
use sql_types::cast::CastKind;
use sql_types::functions;
use sql_types::{Datum, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast::{self, LimitClause, OrderByKind, SetExpr};
use std::sync::Arc;

/// What the surroundings of a query ask of it.
#[derive(Clone, Copy)]
pub(crate) struct QueryOptions {
    /// Whether untyped columns become text; otherwise whoever reads the query types them.
    pub settle_types: bool,
}

/// LIMIT and OFFSET, and the subqueries in them as an [`ExprContext`] has them.
type Counts = ([Option<Expr>; 2], Vec<(SubPlan, bool)>);

impl Default for QueryOptions {
    fn default() -> Self {
        QueryOptions { settle_types: true }
    }
}

impl Binder<'_> {
    pub(crate) fn bind_query(&self, query: &ast::Query, env: Env<'_>) -> SqlResult<Plan> {
        self.bind_query_with(query, env, QueryOptions::default())
    }

    pub(crate) fn bind_query_with(
        &self,
        query: &ast::Query,
        env: Env<'_>,
        options: QueryOptions,
    ) -> SqlResult<Plan> {
        self.deeper(|| {
            refuse_foreign(query)?;
            match &query.with {
                None => self.bind_body(query, env, options),
                Some(with) => self.bind_with(with, query, env, options),
            }
        })
    }

    /// The query without its WITH clause.
    pub(crate) fn bind_body(
        &self,
        query: &ast::Query,
        env: Env<'_>,
        options: QueryOptions,
    ) -> SqlResult<Plan> {
        let tail = Tail::of(query)?;
        match query.body.as_ref() {
            SetExpr::Select(select) => self.bind_select(select, &tail, env, options),
            SetExpr::Query(inner) if tail.is_empty() => self.bind_query_with(inner, env, options),
            body => {
                if !tail.locks.is_empty() && !matches!(body, SetExpr::Query(_)) {
                    return Err(SqlError::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        "FOR UPDATE is not allowed with UNION/INTERSECT/EXCEPT",
                    ));
                }
                let plan = self.bind_set_expr(body, env, options)?;
                let plan = self.order_output(plan, &tail, env)?;
                self.bind_limit(plan, &tail, env)
            }
        }
    }

    pub(crate) fn bind_set_expr(
        &self,
        body: &SetExpr,
        env: Env<'_>,
        options: QueryOptions,
    ) -> SqlResult<Plan> {
        self.deeper(|| match body {
            SetExpr::Select(select) => self.bind_select(select, &Tail::default(), env, options),
            SetExpr::Query(query) => self.bind_query_with(query, env, options),
            SetExpr::SetOperation { .. } => self.bind_set_operation(body, env),
            SetExpr::Values(values) => self.bind_values(values, env, options),
            SetExpr::Insert(statement)
            | SetExpr::Update(statement)
            | SetExpr::Delete(statement)
            | SetExpr::Merge(statement) => self.bind_dml(statement, env),
            SetExpr::Table(table) => self.bind_table_command(table, env),
        })
    }

    /// ORDER BY over the output columns of a query that is no plain SELECT.
    fn order_output(&self, plan: Plan, tail: &Tail<'_>, env: Env<'_>) -> SqlResult<Plan> {
        if tail.order.is_empty() {
            return Ok(plan);
        }
        let scope = Scope::of_columns(&plan.columns, env.outer);
        let mut keys = Vec::with_capacity(tail.order.len());
        for item in tail.order {
            let expr = match self.output_position(&item.expr, &plan)? {
                Some(position) => Expr::Column(position, plan.columns[position].ty.ty),
                None => {
                    let mut context = ExprContext::new(&scope, env.ctes, Clause::OrderBy);
                    let expr = self.bind_expr(&item.expr, &mut context)?;
                    if context.aggregates.len() + context.windows.len() + context.subplans.len() > 0
                        || !matches!(expr, Expr::Column(..))
                    {
                        let error = SqlError::new(
                            SqlState::FEATURE_NOT_SUPPORTED,
                            "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
                        )
                        .with_detail("Only result column names can be used, not expressions or functions.");
                        return Err(self.at(error, span_of(&item.expr)));
                    }
                    expr
                }
            };
            keys.push(sort_key(expr, &item.options));
        }
        let plan = sorted(plan, keys.clone());
        if tail.ties { self.with_ties(plan, keys, tail, env) } else { Ok(plan) }
    }

    /// `FETCH FIRST n ROWS WITH TIES`: of sorted rows those that have fewer than n before them, beyond the offset.
    pub(crate) fn with_ties(
        &self,
        plan: Plan,
        keys: Vec<SortKey>,
        tail: &Tail<'_>,
        env: Env<'_>,
    ) -> SqlResult<Plan> {
        let ([limit, offset], subplans) = self.bind_counts(tail, env)?;
        if !subplans.is_empty() {
            return Err(SqlError::unsupported("a subquery as the count of FETCH … WITH TIES"));
        }
        let columns = plan.columns.clone();
        let ranked = self.ranked(plan, keys.clone())?;
        let rank = Expr::Column(columns.len(), Type::INT8);
        let mut limit = limit.unwrap_or(Expr::Const(Datum::Null, Type::INT8));
        fold_expr(&mut limit);
        let refused = match &limit {
            Expr::Const(Datum::Null, _) => "row count cannot be null in FETCH FIRST ... WITH TIES clause",
            Expr::Const(Datum::Int8(..0), _) => "LIMIT must not be negative",
            _ => "",
        };
        if !refused.is_empty() {
            return Err(SqlError::new(SqlState::INVALID_LIMIT, refused));
        }
        let zero = Expr::Const(Datum::Int8(0), Type::INT8);
        let skipped = Expr::Coalesce(vec![offset.clone().unwrap_or(zero.clone()), zero.clone()], Type::INT8);
        let behind = self.operator("-", Some(rank), skipped)?;
        let predicate = Expr::Or(vec![
            Expr::IsNull(Box::new(limit.clone()), false),
            Expr::And(vec![
                self.operator(">", Some(limit.clone()), zero)?,
                self.operator("<=", Some(behind), limit.clone())?,
            ]),
        ]);
        let with_rank = ranked.columns.clone();
        let kept = Plan::new(PlanKind::Filter { input: Box::new(ranked), predicate }, with_rank);
        let exprs = columns.iter().enumerate().map(|(index, column)| Expr::Column(index, column.ty.ty));
        let exprs = exprs.collect();
        let kept = Plan::new(PlanKind::Project { input: Box::new(kept), exprs }, columns.clone());
        let sorted = sorted(kept, keys);
        Ok(Plan::new(PlanKind::Limit { input: Box::new(sorted), limit: None, offset }, columns))
    }

    /// Rows with their rank in an order behind them.
    fn ranked(&self, plan: Plan, order: Vec<SortKey>) -> SqlResult<Plan> {
        let rank = functions::resolve_window("rank", &[])?;
        let frame = Arc::new(WindowFrame {
            units: FrameUnits::Range,
            start: FrameBound::UnboundedPreceding,
            end: FrameBound::CurrentRow,
            exclusion: FrameExclusion::None,
        });
        let kind = WindowKind::Function(rank.function, Vec::new());
        let call = WindowCall { kind, partition: Vec::new(), order, frame, ty: rank.returns };
        let mut columns = plan.columns.clone();
        columns.push(PlanColumn::new("rank", rank.returns));
        Ok(Plan::new(PlanKind::Window { input: Box::new(plan), calls: vec![call] }, columns))
    }

    /// The output column an ORDER BY item names by number or by name.
    fn output_position(&self, item: &ast::Expr, plan: &Plan) -> SqlResult<Option<usize>> {
        if let Some(ordinal) = self.ordinal(item, "ORDER BY")? {
            return self.checked_ordinal(ordinal, plan.columns.len(), "ORDER BY", item).map(Some);
        }
        let ast::Expr::Identifier(ident) = item else { return Ok(None) };
        let name = ident_name(ident);
        Ok(plan.columns.iter().position(|column| *column.name == *name))
    }

    /// The number that an item is, if it is a constant; other constants name no column.
    pub(crate) fn ordinal(&self, item: &ast::Expr, clause: &str) -> SqlResult<Option<i64>> {
        if let Some(number) = constant_number(item) {
            if let Ok(number) = number.parse() {
                return Ok(Some(number));
            }
        } else {
            match strip(item) {
                // A parameter is a value like any other.
                ast::Expr::Value(value) if !matches!(value.value, ast::Value::Placeholder(_)) => {}
                _ => return Ok(None),
            }
        }
        let message = format!("non-integer constant in {clause}");
        Err(self.at(SqlError::new(SqlState::SYNTAX_ERROR, message), span_of(item)))
    }

    /// A position in the select list, from 0.
    pub(crate) fn checked_ordinal(
        &self,
        ordinal: i64,
        count: usize,
        clause: &str,
        item: &ast::Expr,
    ) -> SqlResult<usize> {
        usize::try_from(ordinal)
            .ok()
            .filter(|ordinal| (1..=count).contains(ordinal))
            .map(|ordinal| ordinal - 1)
            .ok_or_else(|| {
                let error = SqlError::new(
                    SqlState::INVALID_COLUMN_REFERENCE,
                    format!("{clause} position {ordinal} is not in select list"),
                );
                self.at(error, span_of(item))
            })
    }

    /// LIMIT and OFFSET on top of a plan.
    pub(crate) fn bind_limit(&self, plan: Plan, tail: &Tail<'_>, env: Env<'_>) -> SqlResult<Plan> {
        // With ties, the order has brought the limit with it.
        if tail.ties || (tail.limit.is_none() && tail.offset.is_none()) {
            return Ok(plan);
        }
        let ([limit, offset], subplans) = self.bind_counts(tail, env)?;
        if !subplans.is_empty() {
            return limit_by_row(plan, [limit, offset], subplans);
        }
        let columns = plan.columns.clone();
        Ok(Plan::new(PlanKind::Limit { input: Box::new(plan), limit, offset }, columns))
    }

    /// LIMIT and OFFSET, and the subqueries in them.
    fn bind_counts(&self, tail: &Tail<'_>, env: Env<'_>) -> SqlResult<Counts> {
        let scope = Scope { parent: env.outer, ..Scope::default() };
        let mut context = ExprContext::new(&scope, env.ctes, Clause::Limit);
        let mut bind = |expr, clause| self.bind_count(expr, clause, &mut context);
        let limit = tail.limit.map(|limit| bind(limit, "LIMIT")).transpose()?;
        let offset = tail.offset.map(|offset| bind(offset, "OFFSET")).transpose()?;
        Ok(([limit, offset], context.subplans))
    }

    fn bind_count(&self, expr: &ast::Expr, clause: &str, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        let bound = self.bind_expr(expr, context)?;
        self.coerce(bound, Type::INT8, CastKind::Assignment).map_err(|error| {
            let error = if error.code == SqlState::DATATYPE_MISMATCH {
                SqlError::new(
                    SqlState::DATATYPE_MISMATCH,
                    format!("argument of {clause} must be type bigint"),
                )
            } else {
                error
            };
            self.at(error, span_of(expr))
        })
    }

    /// `TABLE name`.
    fn bind_table_command(&self, table: &ast::Table, env: Env<'_>) -> SqlResult<Plan> {
        let mut parts: Vec<ast::Ident> = Vec::new();
        parts.extend(table.schema_name.as_deref().map(ast::Ident::new));
        parts.extend(table.table_name.as_deref().map(ast::Ident::new));
        let item = self.bind_named_relation(&ast::ObjectName::from(parts), None, env, &[])?;
        let mut rows = Rows::new(item.plan);
        let output = item.scope.columns.iter().filter(|column| !column.hidden && column.visible);
        let items = output.map(super::select::OutputItem::of_column).collect();
        super::select::project(&mut rows, items)?;
        Ok(rows.into_plan())
    }
}

/// ORDER BY, LIMIT and locks of a query.
#[derive(Default)]
pub(crate) struct Tail<'q> {
    pub order: &'q [ast::OrderByExpr],
    pub limit: Option<&'q ast::Expr>,
    pub offset: Option<&'q ast::Expr>,
    pub locks: &'q [ast::LockClause],
    /// Whether rows that are equal to the last one in order belong to the result.
    pub ties: bool,
}

impl<'q> Tail<'q> {
    fn of(query: &'q ast::Query) -> SqlResult<Self> {
        let mut tail = Tail { locks: &query.locks, ..Tail::default() };
        if let Some(order) = &query.order_by {
            match &order.kind {
                OrderByKind::Expressions(items) => tail.order = items,
                OrderByKind::All(_) => {
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"ALL\""));
                }
            }
        }
        match &query.limit_clause {
            None => {}
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
                tail.limit = limit.as_ref();
                if let Some(ast::Expr::Function(call)) = &tail.limit
                    && let Some(count) = only_argument(call, WITH_TIES)
                {
                    tail.limit = Some(count);
                    tail.ties = true;
                    tail.check_ties()?;
                }
                tail.offset = offset.as_ref().map(|offset| &offset.value);
            }
            Some(_) => {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "LIMIT #,# syntax is not supported")
                    .with_hint("Use separate LIMIT and OFFSET clauses."));
            }
        }
        if let Some(fetch) = &query.fetch {
            if fetch.percent {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"PERCENT\""));
            }
            tail.ties = fetch.with_ties;
            tail.check_ties()?;
            tail.limit = Some(fetch.quantity.as_ref().unwrap_or(one()));
        }
        Ok(tail)
    }

    fn check_ties(&self) -> SqlResult<()> {
        let message = if !self.ties {
            return Ok(());
        } else if self.order.is_empty() {
            "WITH TIES cannot be specified without ORDER BY clause"
        } else if self.locks.iter().any(|lock| lock.nonblock == Some(ast::NonBlock::SkipLocked)) {
            "SKIP LOCKED and WITH TIES options cannot be used together"
        } else {
            return Ok(());
        };
        Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
    }

    fn is_empty(&self) -> bool {
        self.order.is_empty() && self.limit.is_none() && self.offset.is_none() && self.locks.is_empty()
    }
}

/// The argument of a call of a marker that has one.
fn only_argument<'e>(call: &'e ast::Function, marker: &str) -> Option<&'e ast::Expr> {
    let [ast::ObjectNamePart::Identifier(name)] = &call.name.0[..] else { return None };
    let ast::FunctionArguments::List(list) = &call.args else { return None };
    match &list.args[..] {
        [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr))] if name.value == marker => Some(expr),
        _ => None,
    }
}

/// `FETCH FIRST ROW ONLY` means one row.
fn one() -> &'static ast::Expr {
    static ONE: std::sync::OnceLock<ast::Expr> = std::sync::OnceLock::new();
    ONE.get_or_init(|| {
        ast::Expr::Value(ast::ValueWithSpan {
            value: ast::Value::Number("1".to_string(), false),
            span: sqlparser::tokenizer::Span::empty(),
        })
    })
}

fn refuse_foreign(query: &ast::Query) -> SqlResult<()> {
    if query.for_clause.is_some()
        || query.settings.is_some()
        || query.format_clause.is_some()
        || !query.pipe_operators.is_empty()
    {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error in query"));
    }
    Ok(())
}

/// LIMIT and OFFSET with subqueries: these are computed in one row, beside which the limited rows are a lateral side.
fn limit_by_row(
    mut plan: Plan,
    counts: [Option<Expr>; 2],
    subplans: Vec<(SubPlan, bool)>,
) -> SqlResult<Plan> {
    let mut row = Rows::new(Plan::one_row());
    row.set_subplans(subplans);
    let mut items = Vec::with_capacity(counts.len());
    let counts = counts.map(|count| {
        let expr = count?;
        items.push(OutputItem { expr, column: PlanColumn::new("count", Type::INT8) });
        Some(Expr::Outer { depth: 0, index: items.len() - 1, ty: Type::INT8 })
    });
    let width = items.len();
    project(&mut row, items)?;
    let row = row.into_plan();
    plan.shift_outer(0, 1);
    let [limit, offset] = counts;
    let columns = plan.columns.clone();
    let right = Plan::new(PlanKind::Limit { input: Box::new(plan), limit, offset }, columns.clone());
    let both = row.columns.iter().chain(&columns).cloned().collect();
    let kind = PlanKind::Join {
        kind: JoinKind::Inner,
        method: JoinMethod::Lateral,
        left: Box::new(row),
        right: Box::new(right),
        on: None,
    };
    let exprs = columns.iter().enumerate().map(|(index, column)| Expr::Column(width + index, column.ty.ty));
    let exprs = exprs.collect();
    Ok(Plan::new(PlanKind::Project { input: Box::new(Plan::new(kind, both)), exprs }, columns))
}

/// A sort on top of a plan.
pub(crate) fn sorted(plan: Plan, keys: Vec<SortKey>) -> Plan {
    let columns = plan.columns.clone();
    Plan::new(PlanKind::Sort { input: Box::new(plan), keys, limit: None }, columns)
}
