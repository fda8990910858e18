//! Expressions stored with tables: defaults and CHECK constraints.

use super::context::{Clause, ExprContext};
use super::scope::Scope;
use super::{BindContext, Binder, Env};
use crate::catalog::descriptor::{ColumnDescriptor, TableDescriptor};
use crate::parse;
use crate::plan::{Checks, Expr, SubPlan};
use sql_types::{Datum, SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// Binds the default of a column, cast to the column's type. A default that draws from a sequence
/// cannot be computed as an expression: it fails with 0A000 here.
pub fn bind_default(text: &str, column: &ColumnDescriptor, context: &BindContext<'_>) -> SqlResult<Expr> {
    let binder = Binder::new(context, None, 0);
    let (expr, subplans) = binder.default_expr(text, column)?;
    if subplans.is_empty() {
        Ok(expr)
    } else {
        Err(SqlError::unsupported("a default with side effects here"))
    }
}

/// Binds a condition over the full row of a table (in column order), as in CHECK.
pub fn bind_check(text: &str, table: &Arc<TableDescriptor>, context: &BindContext<'_>) -> SqlResult<Expr> {
    Binder::new(context, None, 0).check_expr(text, table)
}

/// Binds an expression over the full row of a table (in column order), as in `ALTER … TYPE … USING`.
pub fn bind_row_expr(text: &str, table: &Arc<TableDescriptor>, context: &BindContext<'_>) -> SqlResult<Expr> {
    let ast = parse::parse_expr(text)?;
    let binder = Binder::new(context, None, 0);
    let item = binder.bind_table(table.clone(), None, Env::default(), None)?;
    let mut expressions = ExprContext::new(&item.scope, None, Clause::Check);
    let bound = binder.bind_expr(&ast, &mut expressions)?;
    if expressions.subplans.is_empty() { Ok(bound) } else { Err(SqlError::unsupported("a subquery here")) }
}

/// Binds an expression without columns, such as the argument of EXECUTE or a setting.
pub fn bind_scalar(expr: &sqlparser::ast::Expr, context: &BindContext<'_>) -> SqlResult<Expr> {
    let binder = Binder::new(context, None, 0);
    let scope = Scope::default();
    let mut expressions = ExprContext::new(&scope, None, Clause::Default);
    let bound = binder.bind_expr(expr, &mut expressions)?;
    if expressions.subplans.is_empty() { Ok(bound) } else { Err(SqlError::unsupported("a subquery here")) }
}

impl Binder<'_> {
    /// The default of a column and the sub-plans it needs (`nextval`).
    pub(crate) fn default_expr(
        &self,
        text: &str,
        column: &ColumnDescriptor,
    ) -> SqlResult<(Expr, Vec<(SubPlan, bool)>)> {
        let ast = parse::parse_expr(text)?;
        let inner = self.nested();
        let scope = Scope::default();
        let mut context = ExprContext::new(&scope, None, Clause::Default);
        let bound = inner.bind_expr(&ast, &mut context)?;
        let bound = inner.coerce_for_column(bound, column.ty, &column.name)?;
        Ok((bound, context.subplans))
    }

    pub(crate) fn check_expr(&self, text: &str, table: &Arc<TableDescriptor>) -> SqlResult<Expr> {
        let ast = parse::parse_expr(text)?;
        let inner = self.nested();
        let item = inner.bind_table(table.clone(), None, Env::default(), None)?;
        let mut context = ExprContext::new(&item.scope, None, Clause::Check);
        let bound = inner.bind_condition(&ast, &mut context, "CHECK")?;
        if context.subplans.is_empty() {
            Ok(bound)
        } else {
            Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "cannot use this expression in check constraint",
            ))
        }
    }

    /// The CHECK constraints of a table over its full row.
    pub(crate) fn checks(&self, table: &Arc<TableDescriptor>) -> SqlResult<Checks> {
        let mut checks = Vec::with_capacity(table.checks.len());
        for check in &table.checks {
            let expr = match self.context.catalog.cached_expr(table.oid, &check.expr) {
                Some(expr) => expr,
                None => self.check_expr(&check.expr, table)?,
            };
            checks.push((Arc::from(check.name.as_str()), expr));
        }
        Ok(Arc::new(checks))
    }

    /// A binder with the same context but no parameters.
    fn nested(&self) -> Binder<'_> {
        Binder::new(self.context, None, 0)
    }
}

/// NULL for a column without default.
pub(crate) fn null_of(column: &ColumnDescriptor) -> Expr {
    Expr::Const(Datum::Null, column.ty.ty)
}
