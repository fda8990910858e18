//! Aggregate calls.

use super::Binder;
use super::context::{ExprContext, Virtual};
use crate::plan::{AggregateCall, Expr, SortKey};
use sql_types::functions;
use sql_types::{Datum, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast::{
    self, DuplicateTreatment, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments,
};

impl Binder<'_> {
    /// An aggregate outside of windows: it becomes a virtual column.
    pub(crate) fn bind_aggregate(
        &self,
        name: &str,
        call: &ast::Function,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        check_place(context)?;
        let bound = self.aggregate_call(name, call, context)?;
        if belongs_outside(&bound) {
            return Err(SqlError::unsupported("an aggregate over columns of an outer query only"));
        }
        Ok(add_aggregate(bound, context))
    }

    /// Binds the parts of an aggregate call.
    pub(crate) fn aggregate_call(
        &self,
        name: &str,
        call: &ast::Function,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<AggregateCall> {
        let outer = std::mem::replace(&mut context.in_aggregate, true);
        let result = self.aggregate_parts(name, call, context);
        context.in_aggregate = outer;
        result
    }

    fn aggregate_parts(
        &self,
        name: &str,
        call: &ast::Function,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<AggregateCall> {
        let FunctionArguments::List(list) = &call.args else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("{name} needs arguments")));
        };
        let star = matches!(
            list.args[..],
            [FunctionArg::Unnamed(FunctionArgExpr::Wildcard | FunctionArgExpr::WildcardWithOptions(_))]
        );
        if list.args.is_empty() && name == "count" {
            return Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                "count(*) must be used to call a parameterless aggregate function",
            ));
        }
        let args = if star { Vec::new() } else { self.bind_args(name, call, context)?.values };
        let ordered_set = !call.within_group.is_empty();
        let mut order = Vec::new();
        let clauses = list.clauses.iter().filter_map(|clause| match clause {
            FunctionArgumentClause::OrderBy(keys) => Some(keys),
            _ => None,
        });
        for key in clauses.flatten().chain(&call.within_group) {
            order.push(self.bind_sort_key(key, context)?);
        }
        let filter = match &call.filter {
            Some(filter) => Some(self.bind_condition(filter, context, "FILTER")?),
            None => None,
        };
        let types: Vec<Type> = args
            .iter()
            .map(Expr::ty)
            .chain(order.iter().filter(|_| ordered_set).map(|key: &SortKey| key.expr.ty()))
            .collect();
        let resolved = functions::resolve_aggregate(name, &types)?;
        if resolved.function.ordered_set != ordered_set {
            return Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                if ordered_set {
                    format!("{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP")
                } else {
                    format!("WITHIN GROUP is required for ordered-set aggregate {name}")
                },
            ));
        }
        let count = args.len();
        let args = self.coerce_args(args, resolved.arg_types.get(..count).unwrap_or(&[]))?;
        if ordered_set {
            for (key, ty) in order.iter_mut().zip(resolved.arg_types.iter().skip(count)) {
                let value = std::mem::replace(&mut key.expr, Expr::Const(Datum::Null, Type::UNKNOWN));
                key.expr = self.coerce_args(vec![value], &[*ty])?.remove(0);
            }
        }
        let distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
        if distinct && order.iter().any(|key| !args.iter().any(|arg| arg.same(&key.expr))) && !ordered_set {
            return Err(SqlError::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list",
            ));
        }
        Ok(AggregateCall { function: resolved.function, args, distinct, order, filter, ty: resolved.returns })
    }

    /// An ORDER BY item inside a call or a window: always an expression over the input.
    pub(crate) fn bind_sort_key(
        &self,
        key: &ast::OrderByExpr,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<SortKey> {
        let bound = self.bind_expr(&key.expr, context)?;
        Ok(sort_key(self.resolve_unknown(bound)?, &key.options))
    }
}

/// 42803 where an aggregate cannot stand.
pub(super) fn check_place(context: &ExprContext<'_>) -> SqlResult<()> {
    if context.in_aggregate {
        return Err(SqlError::new(SqlState::GROUPING_ERROR, "aggregate function calls cannot be nested"));
    }
    if !context.clause.allows_aggregates() {
        return Err(SqlError::new(
            SqlState::GROUPING_ERROR,
            format!("aggregate functions are not allowed in {}", context.clause.name()),
        ));
    }
    Ok(())
}

/// The virtual column of an aggregate, which is computed once however often it is called.
pub(super) fn add_aggregate(bound: AggregateCall, context: &mut ExprContext<'_>) -> Expr {
    let ty = bound.ty;
    let known = context.aggregates.iter().position(|known| same_aggregate(known, &bound));
    let position = known.unwrap_or_else(|| {
        context.aggregates.push(bound);
        context.aggregates.len() - 1
    });
    Virtual::Aggregate(position).column(ty)
}

/// A sort key with PostgreSQL's default for NULLs.
pub(crate) fn sort_key(expr: Expr, options: &ast::OrderByOptions) -> SortKey {
    let descending = options.asc == Some(false);
    SortKey { expr, descending, nulls_first: options.nulls_first.unwrap_or(descending) }
}

/// Whether all columns that an aggregate names are those of an outer query: it is computed there, then.
fn belongs_outside(call: &AggregateCall) -> bool {
    let mut exprs = call.args.iter().chain(call.order.iter().map(|key| &key.expr)).chain(&call.filter);
    let outer = exprs.clone().any(|expr| expr.any(&mut |part| matches!(part, Expr::Outer { .. })));
    outer && !exprs.any(|expr| expr.any(&mut |part| matches!(part, Expr::Column(..))))
}

fn same_aggregate(a: &AggregateCall, b: &AggregateCall) -> bool {
    let exprs = |a: &[Expr], b: &[Expr]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same(b));
    let filter = match (&a.filter, &b.filter) {
        (None, None) => true,
        (Some(a), Some(b)) => a.same(b),
        _ => false,
    };
    std::ptr::eq(a.function, b.function)
        && a.distinct == b.distinct
        && filter
        && exprs(&a.args, &b.args)
        && a.order.len() == b.order.len()
        && a.order.iter().zip(&b.order).all(|(a, b)| {
            a.expr.same(&b.expr) && a.descending == b.descending && a.nulls_first == b.nulls_first
        })
}
