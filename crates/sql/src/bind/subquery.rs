//! Subqueries in expressions.

use super::Binder;
use super::context::{ExprContext, Virtual};
use super::expr::span_of;
use crate::plan::{Expr, Plan, SubPlan};
use sql_types::{SqlError, SqlResult, SqlState, Type};
use sqlparser::ast;
use std::sync::Arc;

impl Binder<'_> {
    pub(crate) fn bind_subquery(&self, expr: &ast::Expr, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        match expr {
            ast::Expr::Subquery(query) => self.bind_scalar_subquery(query, context),
            ast::Expr::Exists { subquery, negated } => {
                let (plan, cached) = self.inner_plan(subquery, context)?;
                let exists = context.add_subplan(SubPlan::Exists(Arc::new(plan)), cached, Type::BOOL);
                Ok(if *negated { Expr::Not(Box::new(exists)) } else { exists })
            }
            ast::Expr::InSubquery { expr, subquery, negated } => {
                let value = self.bind_expr(expr, context)?;
                let test = self
                    .bind_quantified(value, "=", subquery, true, context)
                    .map_err(|error| self.at(error, span_of(expr)))?;
                Ok(if *negated { Expr::Not(Box::new(test)) } else { test })
            }
            _ => Err(SqlError::internal("not a subquery")),
        }
    }

    /// Binds the query inside; says whether its result is the same for all rows.
    fn inner_plan(&self, query: &ast::Query, context: &ExprContext<'_>) -> SqlResult<(Plan, bool)> {
        if !context.clause.allows_subqueries() {
            return Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("cannot use subquery in {}", context.clause.name()),
            ));
        }
        let mut plan = self.bind_query(query, context.env())?;
        let cached = !plan.reads_outer(&mut |_, _| true) && !plan.is_volatile();
        Ok((plan, cached))
    }

    fn bind_scalar_subquery(&self, query: &ast::Query, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        let (plan, cached) = self.inner_plan(query, context)?;
        let [column] = &plan.columns[..] else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "subquery must return only one column"));
        };
        let ty = column.ty.ty;
        Ok(context.add_subplan(SubPlan::Scalar(Arc::new(plan)), cached, ty))
    }

    /// `ARRAY(SELECT …)`; other functions cannot be called like that.
    pub(crate) fn bind_call_of_subquery(
        &self,
        name: &str,
        query: &ast::Query,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        if name != "array" {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"SELECT\""));
        }
        let (plan, cached) = self.inner_plan(query, context)?;
        let [column] = &plan.columns[..] else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "subquery must return only one column"));
        };
        let element = column.ty.ty;
        let ty = element.array().ok_or_else(|| {
            SqlError::new(
                SqlState::UNDEFINED_OBJECT,
                format!("could not find array type for data type {element}"),
            )
        })?;
        Ok(context.add_subplan(SubPlan::Array(Arc::new(plan)), cached, ty))
    }

    /// `value op ANY (SELECT …)` or `ALL`; `value` may be a row.
    pub(crate) fn bind_quantified(
        &self,
        value: Expr,
        symbol: &str,
        query: &ast::Query,
        any: bool,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let (plan, cached) = self.inner_plan(query, context)?;
        let fields: Vec<Expr> = plan
            .columns
            .iter()
            .enumerate()
            .map(|(index, column)| Virtual::SubRow(index).column(column.ty.ty))
            .collect();
        let count = match &value {
            Expr::Record(values, _) => values.len(),
            _ => 1,
        };
        if fields.len() != count {
            let few = if fields.len() > count { "many" } else { "few" };
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("subquery has too {few} columns")));
        }
        let test = match value {
            Expr::Record(values, _) => self.row_operator(symbol, values, fields)?,
            value => {
                let field = fields.into_iter().next().unwrap_or_else(|| super::bool_const(false));
                self.operator(symbol, Some(value), field)?
            }
        };
        if test.ty() != Type::BOOL {
            return Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                "op ANY/ALL (subquery) requires operator to yield boolean",
            ));
        }
        let subplan = SubPlan::Quantified { plan: Arc::new(plan), test, any };
        Ok(context.add_subplan(subplan, cached, Type::BOOL))
    }

    /// `(a, b) op (SELECT c, d …)`: the subquery gives one row, or none.
    pub(crate) fn bind_row_subquery(
        &self,
        left: Expr,
        symbol: &str,
        query: &ast::Query,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let Expr::Record(values, _) = left else { return Err(SqlError::internal("not a row")) };
        let row = self.record_subquery(query, values.len(), context)?;
        let fields = row.into_iter().collect();
        self.row_operator(symbol, values, fields)
    }

    /// A subquery that yields one row of several columns: a record computed once, and its fields.
    pub(crate) fn record_subquery(
        &self,
        query: &ast::Query,
        count: usize,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Vec<Expr>> {
        let (plan, cached) = self.inner_plan(query, context)?;
        if plan.columns.len() != count {
            let few = if plan.columns.len() > count { "many" } else { "few" };
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("subquery has too {few} columns")));
        }
        let types: Vec<Type> = plan.columns.iter().map(|column| column.ty.ty).collect();
        let values = types.iter().enumerate().map(|(index, ty)| Expr::Column(index, *ty)).collect();
        let record = crate::plan::PlanColumn::new("row", Type::RECORD);
        let plan = Plan::new(
            crate::plan::PlanKind::Project { input: Box::new(plan), exprs: vec![Expr::Record(values, None)] },
            vec![record],
        );
        let row = context.add_subplan(SubPlan::Scalar(Arc::new(plan)), cached, Type::RECORD);
        Ok(types
            .into_iter()
            .enumerate()
            .map(|(index, ty)| Expr::Field(Box::new(row.clone()), index, ty))
            .collect())
    }
}
