//! VALUES.

use super::context::{Clause, ExprContext};
use super::query::QueryOptions;
use super::rows::Rows;
use super::scope::Scope;
use super::{Binder, Env};
use crate::plan::{Expr, Plan, PlanColumn, PlanKind, SetOpKind, SubPlan};
use sql_types::cast::{self, CastKind};
use sql_types::{SqlError, SqlResult, SqlState, Type};
use sqlparser::ast;

/// A bound row and what it needs.
pub(crate) struct BoundRow {
    pub exprs: Vec<Expr>,
    pub subplans: Vec<(SubPlan, bool)>,
}

impl Binder<'_> {
    pub(crate) fn bind_values(
        &self,
        values: &ast::Values,
        env: Env<'_>,
        options: QueryOptions,
    ) -> SqlResult<Plan> {
        let scope = Scope { parent: env.outer, ..Scope::default() };
        let mut rows = Vec::with_capacity(values.rows.len());
        for row in &values.rows {
            let mut context = ExprContext::new(&scope, env.ctes, Clause::Values);
            let exprs = row
                .content
                .iter()
                .map(|expr| self.bind_expr(expr, &mut context))
                .collect::<SqlResult<Vec<_>>>()?;
            rows.push(BoundRow { exprs, subplans: context.subplans });
        }
        let width = rows.first().map_or(0, |row| row.exprs.len());
        if rows.iter().any(|row| row.exprs.len() != width) {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "VALUES lists must all be the same length"));
        }
        let mut columns = Vec::with_capacity(width);
        for index in 0..width {
            let ty = self.unify_column(&mut rows, index, options)?;
            columns.push(PlanColumn::new(format!("column{}", index + 1), ty));
        }
        values_plan(rows, columns)
    }

    fn unify_column(&self, rows: &mut [BoundRow], index: usize, options: QueryOptions) -> SqlResult<Type> {
        let types: Vec<Type> = rows.iter().map(|row| row.exprs[index].ty()).collect();
        if !options.settle_types && types.iter().all(|ty| *ty == Type::UNKNOWN) {
            return Ok(Type::UNKNOWN);
        }
        let common = match types.first() {
            Some(first) if *first != Type::UNKNOWN && types.iter().all(|ty| ty == first) => *first,
            _ => cast::select_common_type(&types, "VALUES")?,
        };
        for row in rows {
            let expr = std::mem::replace(&mut row.exprs[index], super::bool_const(false));
            row.exprs[index] = self.coerce(expr, common, CastKind::Implicit)?;
        }
        Ok(common)
    }
}

/// The plan of literal rows. Rows with sub-plans are computed one by one and put together.
pub(crate) fn values_plan(rows: Vec<BoundRow>, columns: Vec<PlanColumn>) -> SqlResult<Plan> {
    if rows.iter().all(|row| row.subplans.is_empty()) {
        let rows = rows.into_iter().map(|row| row.exprs).collect();
        return Ok(Plan::new(PlanKind::Values(rows), columns));
    }
    let plans = rows
        .into_iter()
        .map(|row| {
            let mut stack = Rows::new(Plan::one_row());
            stack.set_subplans(row.subplans);
            let exprs = row.exprs.into_iter().map(|expr| stack.place(expr)).collect::<SqlResult<Vec<_>>>()?;
            stack.stack(columns.clone(), |input| PlanKind::Project { input, exprs });
            Ok(stack.into_plan())
        })
        .collect::<SqlResult<Vec<_>>>()?;
    Ok(union_all(plans, &columns))
}

/// A balanced tree of UNION ALL, which keeps the order.
pub(crate) fn union_all(mut plans: Vec<Plan>, columns: &[PlanColumn]) -> Plan {
    if plans.len() <= 1 {
        return plans.pop().unwrap_or_else(Plan::one_row);
    }
    let right = plans.split_off(plans.len() / 2);
    let (left, right) = (Box::new(union_all(plans, columns)), Box::new(union_all(right, columns)));
    Plan::new(PlanKind::SetOp { kind: SetOpKind::Union, all: true, left, right }, columns.to_vec())
}
