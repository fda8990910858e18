//! UNION, INTERSECT and EXCEPT.

use super::operator::check_equality;
use super::query::QueryOptions;
use super::{Binder, Env};
use crate::plan::{Expr, Plan, PlanColumn, PlanKind, SetOpKind};
use sql_types::cast::{self, CastKind};
use sql_types::{ColumnType, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast::{SetExpr, SetOperator, SetQuantifier};

/// Most operations in one chain: each makes the plan one level deeper.
const MAX_CHAIN: usize = 200;

impl Binder<'_> {
    pub(crate) fn bind_set_operation(&self, body: &SetExpr, env: Env<'_>) -> SqlResult<Plan> {
        // Chains lean left; they are walked in a loop to spare the stack.
        let mut spine = Vec::new();
        let mut first = body;
        while let SetExpr::SetOperation { left, op, set_quantifier, right } = first {
            spine.push((op, set_quantifier, right.as_ref()));
            first = left;
        }
        let untyped = QueryOptions { settle_types: false };
        let mut plan = self.bind_set_expr(first, env, untyped)?;
        if spine
            .iter()
            .all(|(op, quantifier, _)| **op == SetOperator::Union && **quantifier == SetQuantifier::All)
        {
            return self.bind_union_all(plan, spine, env);
        }
        if spine.len() > MAX_CHAIN {
            return Err(SqlError::new(SqlState::TOO_COMPLEX, "too many set operations in one query"));
        }
        while let Some((op, quantifier, right)) = spine.pop() {
            let right = self.bind_set_expr(right, env, untyped)?;
            let kind = match op {
                SetOperator::Union => SetOpKind::Union,
                SetOperator::Intersect => SetOpKind::Intersect,
                SetOperator::Except => SetOpKind::Except,
                SetOperator::Minus => {
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"MINUS\""));
                }
            };
            let all = match quantifier {
                SetQuantifier::All => true,
                SetQuantifier::None | SetQuantifier::Distinct => false,
                _ => return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"BY\"")),
            };
            plan = self.set_operation(kind, all, plan, right)?;
        }
        Ok(plan)
    }

    /// A chain of UNION ALL: the types are found for all inputs at once.
    fn bind_union_all(
        &self,
        first: Plan,
        mut spine: Vec<(&SetOperator, &SetQuantifier, &SetExpr)>,
        env: Env<'_>,
    ) -> SqlResult<Plan> {
        let mut plans = vec![first];
        while let Some((_, _, right)) = spine.pop() {
            plans.push(self.bind_set_expr(right, env, QueryOptions { settle_types: false })?);
        }
        let width = plans[0].columns.len();
        check_widths(&plans, "UNION")?;
        let mut columns = Vec::with_capacity(width);
        for index in 0..width {
            let types: Vec<ColumnType> = plans.iter().map(|plan| plan.columns[index].ty).collect();
            columns.push(common_column(&plans[0].columns[index], &types, "UNION")?);
        }
        let plans =
            plans.into_iter().map(|plan| self.cast_output(plan, &columns)).collect::<SqlResult<_>>()?;
        Ok(super::values::union_all(plans, &columns))
    }

    fn set_operation(&self, kind: SetOpKind, all: bool, left: Plan, right: Plan) -> SqlResult<Plan> {
        let name = match kind {
            SetOpKind::Union => "UNION",
            SetOpKind::Intersect => "INTERSECT",
            SetOpKind::Except => "EXCEPT",
        };
        let inputs = [left, right];
        check_widths(&inputs, name)?;
        let columns: Vec<PlanColumn> = (0..inputs[0].columns.len())
            .map(|index| {
                let types: Vec<ColumnType> = inputs.iter().map(|plan| plan.columns[index].ty).collect();
                common_column(&inputs[0].columns[index], &types, name)
            })
            .collect::<SqlResult<_>>()?;
        if kind != SetOpKind::Union || !all {
            columns.iter().try_for_each(|column| check_equality(column.ty.ty))?;
        }
        let [left, right] = inputs;
        let left = Box::new(self.cast_output(left, &columns)?);
        let right = Box::new(self.cast_output(right, &columns)?);
        Ok(Plan::new(PlanKind::SetOp { kind, all, left, right }, columns))
    }

    /// Casts the columns of a plan implicitly to those wanted.
    pub(crate) fn cast_output(&self, plan: Plan, columns: &[PlanColumn]) -> SqlResult<Plan> {
        if plan.columns.iter().zip(columns).all(|(have, want)| have.ty.ty == want.ty.ty) {
            return Ok(plan);
        }
        self.project_output(plan, columns.to_vec(), |binder, index, expr| {
            binder.coerce(expr, columns[index].ty.ty, CastKind::Implicit)
        })
    }

    /// Changes the expressions of a plan's columns: within its projection if it ends in one, so that
    /// untyped literals and parameters there get their type.
    pub(crate) fn project_output(
        &self,
        mut plan: Plan,
        columns: Vec<PlanColumn>,
        change: impl Fn(&Self, usize, Expr) -> SqlResult<Expr>,
    ) -> SqlResult<Plan> {
        match &mut plan.kind {
            PlanKind::Project { exprs, .. } => {
                for (index, expr) in exprs.iter_mut().enumerate() {
                    let old = std::mem::replace(expr, super::bool_const(false));
                    *expr = change(self, index, old)?;
                }
                plan.columns = columns;
                return Ok(plan);
            }
            PlanKind::Values(rows) => {
                for row in rows {
                    for (index, expr) in row.iter_mut().enumerate() {
                        let old = std::mem::replace(expr, super::bool_const(false));
                        *expr = change(self, index, old)?;
                    }
                }
                plan.columns = columns;
                return Ok(plan);
            }
            _ => {}
        }
        let exprs = plan
            .columns
            .iter()
            .enumerate()
            .map(|(index, column)| change(self, index, Expr::Column(index, column.ty.ty)))
            .collect::<SqlResult<_>>()?;
        Ok(Plan::new(PlanKind::Project { input: Box::new(plan), exprs }, columns))
    }
}

fn check_widths(plans: &[Plan], name: &str) -> SqlResult<()> {
    if plans.iter().any(|plan| plan.columns.len() != plans[0].columns.len()) {
        return Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            format!("each {name} query must have the same number of columns"),
        ));
    }
    Ok(())
}

/// The output column: named as on the left, of the common type.
fn common_column(left: &PlanColumn, types: &[ColumnType], name: &str) -> SqlResult<PlanColumn> {
    if types.iter().all(|ty| *ty == types[0]) && types[0].ty != Type::UNKNOWN {
        return Ok(PlanColumn {
            fields: left.fields.clone(),
            ..PlanColumn::new(left.name.clone(), types[0])
        });
    }
    let plain: Vec<Type> = types.iter().map(|ty| ty.ty).collect();
    let common = if plain.iter().all(|ty| *ty == plain[0]) && plain[0] != Type::UNKNOWN {
        plain[0]
    } else {
        cast::select_common_type(&plain, name)?
    };
    Ok(PlanColumn::new(left.name.clone(), common))
}
