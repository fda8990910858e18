//! Expressions stored with tables: defaults and CHECK constraints.

use super::context::{Clause, ExprContext};
use super::scope::Scope;
use super::{BindContext, Binder, Env, Variable, VariableKind, Variables};
use crate::catalog::descriptor::{ColumnDescriptor, TableDescriptor};
use crate::ddl::tokens::quote_ident;
use crate::exec::eval::{EvalEnv, eval};
use crate::parse;
use crate::plan::{Checks, DomainRule, Expr, RowCheck, SubPlan};
use sql_types::cast::CastKind;
use sql_types::functions::Volatility;
use sql_types::{ColumnType, Datum, SqlError, SqlResult, SqlState, Type};
use std::borrow::Cow;
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

/// All that rows of a table must satisfy besides NOT NULL of its columns.
pub fn bind_checks(table: &Arc<TableDescriptor>, context: &BindContext<'_>) -> SqlResult<Checks> {
    Binder::new(context, None, 0).checks(table)
}

/// Binds a CHECK constraint of a domain over a type: an expression over a row of the value alone.
pub fn bind_domain_check(text: &str, base: ColumnType, context: &BindContext<'_>) -> SqlResult<Expr> {
    bind_check(text, &value_table(base), context)
}

/// The default of a column as SQL text: its own, or that of its domain.
pub fn default_of<'a>(column: &'a ColumnDescriptor, context: &BindContext<'_>) -> Option<Cow<'a, str>> {
    if let Some(own) = &column.default {
        return Some(Cow::Borrowed(own));
    }
    let domains = context.catalog.domains(Type(column.domain?));
    domains.iter().find_map(|ty| ty.as_domain()?.default.clone()).map(Cow::Owned)
}

/// A table of one column `value`, of a domain's type.
fn value_table(base: ColumnType) -> Arc<TableDescriptor> {
    let value = ColumnDescriptor::plain(1, "value", base);
    Arc::new(TableDescriptor {
        oid: 0,
        database: 0,
        schema: 0,
        name: String::new(),
        owner: 0,
        version: 0,
        storage: 0,
        columns: vec![value],
        next_column: 2,
        indexes: Vec::new(),
        next_index: 1,
        checks: Vec::new(),
        foreign_keys: Vec::new(),
        comment: None,
        placement: Default::default(),
        view: None,
        triggers: Vec::new(),
        security: Default::default(),
        on_commit: Default::default(),
        bound: Default::default(),
        statistics: Default::default(),
    })
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

/// Binds the condition of a trigger. The values of `new` are its first parameters, those of `old` the next.
pub fn bind_trigger_condition(
    text: &str,
    table: &Arc<TableDescriptor>,
    context: &BindContext<'_>,
) -> SqlResult<Expr> {
    let columns = crate::routine::trigger::fields(table);
    let mut types: Vec<Type> = columns.iter().map(|(_, ty)| ty.ty).collect();
    let row = |name: &str, first: usize| Variable {
        block: None,
        name: name.into(),
        kind: VariableKind::Row(
            columns.iter().enumerate().map(|(at, (name, ty))| (name.clone(), first + at, ty.ty)).collect(),
        ),
    };
    let list = vec![row("new", 0), row("old", columns.len())];
    types.extend_from_within(..);
    let variables = Variables { list, types, ..Variables::default() };
    let context = BindContext { variables: Some(&variables), param_types: &variables.types, ..*context };
    let binder = Binder::new(&context, None, 0);
    let scope = Scope::default();
    let mut expressions = ExprContext::new(&scope, None, Clause::TriggerWhen);
    let bound = binder.bind_condition(&parse::parse_expr(text)?, &mut expressions, "WHEN")?;
    if expressions.subplans.is_empty() {
        Ok(bound)
    } else {
        Err(SqlError::unsupported("this condition of a trigger"))
    }
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
        Type::UNKNOWN => binder.coerce(bound, Type::TEXT, CastKind::Implicit)?,
        _ => bound,
    };
    pure(bound, &expressions, "functions in index expression must be marked IMMUTABLE", context)
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
    pure(bound, &expressions, "functions in index predicate must be marked IMMUTABLE", context)
}

/// Binds the expression of a generated column over the full row of its table (in column order), cast to the column's
/// type.
pub fn bind_generation(
    text: &str,
    table: &Arc<TableDescriptor>,
    column: &ColumnDescriptor,
    context: &BindContext<'_>,
) -> SqlResult<Expr> {
    let binder = Binder::new(context, None, 0);
    let item = binder.bind_table(table.clone(), None, Env::default(), None)?;
    let mut expressions = ExprContext::new(&item.scope, None, Clause::Generation);
    let bound = binder.bind_expr(&parse::parse_expr(text)?, &mut expressions)?;
    let mut other = None;
    bound.columns(&mut |position| {
        let read = table.columns.get(position);
        other = other.or(read.filter(|read| read.generated.is_some() || read.id == column.id));
    });
    if let Some(other) = other {
        let message =
            format!("cannot use generated column \"{}\" in column generation expression", other.name);
        return Err(SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message)
            .with_detail("A generated column cannot reference another generated column."));
    }
    let bound = binder.coerce_for_column(bound, column.ty, &column.name)?;
    pure(bound, &expressions, "generation expression is not immutable", context)
}

/// Fails with `message` if an expression needs more than its row, or gives other values at other times. Literals that
/// depend on the session's settings are read once and for all.
fn pure(
    mut bound: Expr,
    expressions: &ExprContext<'_>,
    message: &str,
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
    Err(SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message))
}

/// Whether the value of an expression depends on the row alone: not on the time, nor on settings such as the
/// time zone or the date style, on which reading and showing dates and times depends.
fn immutable(expr: &Expr) -> bool {
    !expr.any(&mut |part| match part {
        // Text with anything else is as immutable as the other's text form.
        Expr::Call { function, args, .. } if function.name == "||" => {
            !args.iter().all(|arg| arg.ty() == function.returns || immutable_cast(arg.ty(), Type::TEXT))
                && function.volatility != Volatility::Immutable
        }
        Expr::Call { function, .. } => function.volatility != Volatility::Immutable || function.external,
        Expr::AnyArray { function, .. } => function.volatility != Volatility::Immutable,
        Expr::Cast { expr, to, .. } => !immutable_cast(expr.ty(), to.ty),
        // What a domain demands can be changed.
        Expr::Domain(..) => true,
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
    // Labels can be renamed.
    if from.is_enum() || to.is_enum() {
        return false;
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

/// An argument of EXECUTE, cast to the type of its parameter.
pub fn bind_argument(expr: &sqlparser::ast::Expr, ty: Type, context: &BindContext<'_>) -> SqlResult<Expr> {
    let bound = bind_scalar(expr, context)?;
    Binder::new(context, None, 0).coerce(bound, ty, CastKind::Assignment)
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
            checks.push(RowCheck { name: Arc::from(check.name.as_str()), expr, domain: None });
        }
        for (position, column) in table.columns.iter().enumerate() {
            let Some(domain) = column.domain else { continue };
            for check in self.domain_rules(Type(domain))?.iter() {
                let mut check = check.clone();
                check.expr.shift_columns(position as isize);
                checks.push(check);
            }
        }
        Ok(Arc::new(checks))
    }

    /// The constraints of a domain and of those it was made of, over a row of the value alone.
    pub(crate) fn domain_rules(&self, ty: Type) -> SqlResult<Checks> {
        let mut rules = Vec::new();
        let domains = self.context.catalog.domains(ty);
        let shown = self.context.eval.catalog.type_name(ty);
        let called = shown.or_else(|| domains.first().map(|ty| quote_ident(&ty.name))).unwrap_or_default();
        let called: Arc<str> = called.into();
        // Those of the inner domains come first.
        for found in domains.iter().rev() {
            let Some(domain) = found.as_domain() else { continue };
            if domain.not_null {
                let value = Expr::Column(0, domain.base.ty);
                rules.push(RowCheck {
                    name: Arc::from(""),
                    expr: Expr::IsNull(Box::new(value), true),
                    domain: Some(DomainRule { domain: called.clone(), not_null: true }),
                });
            }
            for check in &domain.checks {
                rules.push(RowCheck {
                    name: Arc::from(check.name.as_str()),
                    expr: self.check_expr(&check.expr, &value_table(domain.base))?,
                    domain: Some(DomainRule { domain: called.clone(), not_null: false }),
                });
            }
        }
        Ok(Arc::new(rules))
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
