//! Expressions stored with tables: defaults and CHECK constraints.

use super::context::{Clause, ExprContext};
use super::scope::Scope;
use super::{BindContext, Binder, Env};
use crate::catalog::descriptor::{ColumnDescriptor, TableDescriptor};
use crate::exec::eval::{EvalEnv, eval};
use crate::parse;
use crate::plan::{Checks, Expr, SubPlan};
use sql_types::cast::CastKind;
use sql_types::functions::Volatility;
use sql_types::{Datum, SqlError, SqlResult, SqlState, Type};
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

/// Binds an expression of an index over the full row of a table (in column order).
pub fn bind_index_expr(
    text: &str,
    table: &Arc<TableDescriptor>,
    context: &BindContext<'_>,
) -> SqlResult<Expr> {
    let binder = Binder::new(context, None, 0);
    let item = binder.bind_table(table.clone(), None, Env::default(), None)?;
    let mut expressions = ExprContext::new(&item.scope, None, Clause::IndexExpression);
    let bound = binder.bind_expr(&parse::parse_expr(text)?, &mut expressions)?;
    let bound = match bound.ty() {
        Type::UNKNOWN => binder.coerce(bound, Type::TEXT.into(), CastKind::Implicit)?,
        _ => bound,
    };
    pure(bound, &expressions, "index expression", context)
}

/// Binds the predicate of an index over the full row of a table (in column order).
pub fn bind_index_predicate(
    text: &str,
    table: &Arc<TableDescriptor>,
    context: &BindContext<'_>,
) -> SqlResult<Expr> {
    let binder = Binder::new(context, None, 0);
    let item = binder.bind_table(table.clone(), None, Env::default(), None)?;
    let mut expressions = ExprContext::new(&item.scope, None, Clause::IndexPredicate);
    let bound = binder.bind_condition(&parse::parse_expr(text)?, &mut expressions, "WHERE")?;
    pure(bound, &expressions, "index predicate", context)
}

/// Fails if an expression of an index needs more than its row, or gives other values at other times. Literals that
/// depend on the session's settings are read once and for all.
fn pure(
    mut bound: Expr,
    expressions: &ExprContext<'_>,
    what: &str,
    context: &BindContext<'_>,
) -> SqlResult<Expr> {
    bound.replace(&mut |part| match part {
        Expr::Cast { expr, to, .. } if matches!(**expr, Expr::Const(_, Type::UNKNOWN)) => {
            let env = EvalEnv { eval: context.eval, params: &[], outer: None };
            eval(part, &[], &env).ok().map(|value| Expr::Const(value, to.ty))
        }
        _ => None,
    });
    if expressions.subplans.is_empty() && immutable(&bound) {
        return Ok(bound);
    }
    let message = format!("functions in {what} must be marked IMMUTABLE");
    Err(SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message))
}

/// Whether the value of an expression depends on the row alone: not on the time, nor on settings such as the
/// time zone or the date style, on which reading and showing dates and times depends.
fn immutable(expr: &Expr) -> bool {
    !expr.any(&mut |part| match part {
        Expr::Call { function, .. } => function.volatility != Volatility::Immutable || function.external,
        Expr::AnyArray { function, .. } => function.volatility != Volatility::Immutable,
        Expr::Cast { expr, to, .. } => !immutable_cast(expr.ty(), to.ty),
        _ => false,
    })
}

fn immutable_cast(from: Type, to: Type) -> bool {
    let (from, to) = (from.element().unwrap_or(from), to.element().unwrap_or(to));
    let is_text = |ty| matches!(ty, Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN);
    let dated = |ty| matches!(ty, Type::DATE | Type::TIMESTAMP | Type::TIMESTAMPTZ);
    let named = |ty: Type| ty.info().is_some_and(|info| info.name.starts_with("reg"));
    if from == to {
        return true;
    }
    if is_text(from) {
        return !dated(to) && !named(to) && !matches!(to, Type::TIME | Type::INTERVAL);
    }
    if is_text(to) {
        return !dated(from) && !named(from) && from != Type::RECORD;
    }
    from != Type::TIMESTAMPTZ && to != Type::TIMESTAMPTZ
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
