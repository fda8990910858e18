//! UPDATE.

use super::assign::subscripts;
use super::context::{Clause, ExprContext};
use super::from::{FromItem, Laterals};
use super::policy::Access;
use super::rows::Rows;
use super::scope::Scope;
use super::{Binder, Env};
use crate::catalog::descriptor::TableDescriptor;
use crate::plan::{Plan, PlanKind, RowLock};
use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{self, TableFactor, UpdateTableFromKind};
use std::sync::Arc;

/// The lock that the read half of UPDATE and DELETE takes.
pub(super) const LOCK: RowLock =
    RowLock { strength: kv_api::LockStrength::Exclusive, wait: kv_api::batch::WaitPolicy::Block };

impl Binder<'_> {
    pub(crate) fn bind_update(&self, update: &ast::Update, env: Env<'_>) -> SqlResult<Plan> {
        if update.or.is_some() || !update.order_by.is_empty() || update.limit.is_some() {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error in UPDATE"));
        }
        let from = match &update.from {
            None => &[][..],
            Some(UpdateTableFromKind::AfterSet(from)) => &from[..],
            Some(UpdateTableFromKind::BeforeSet(_)) => {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"FROM\""));
            }
        };
        let reads = update.selection.is_some()
            || update.returning.is_some()
            || !from.is_empty()
            || !update.assignments.iter().all(|assignment| {
                is_constant(&assignment.value) && subscripts(&assignment.target).all(is_constant)
            });
        let access = Access::Update { reads };
        let (table, item) = self.bind_target(&update.table, from, env, "update", access)?;
        let scope = item.scope;
        let mut rows = self.filtered(item.plan, update.selection.as_ref(), &scope, env)?;
        let mut context = ExprContext::new(&scope, env.ctes, Clause::UpdateSet);
        let bound = self.bind_assignments(&update.assignments, &table, &mut context)?;
        rows.set_subplans(context.subplans);
        let mut assignments = Vec::with_capacity(bound.len());
        for (column, expr) in bound {
            assignments.push((column, rows.place(expr)?));
        }
        let checks = self.checks(&table)?;
        let input = Box::new(rows.into_plan());
        let policies = self.update_policies(&table, reads)?;
        let kind = PlanKind::Update { table, input, assignments, checks, returning: None, policies };
        let plan = Plan::new(kind, Vec::new());
        match &update.returning {
            Some(returning) => self.bind_returning(plan, returning, &scope, env),
            None => Ok(plan),
        }
    }

    /// The table changed, joined with what else the statement reads.
    pub(crate) fn bind_target<'s>(
        &self,
        target: &ast::TableWithJoins,
        others: &[ast::TableWithJoins],
        env: Env<'s>,
        action: &str,
        access: Access,
    ) -> SqlResult<(Arc<TableDescriptor>, FromItem<'s>)> {
        let TableFactor::Table { name, alias, args: None, .. } = &target.relation else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("{action} needs the name of a table")));
        };
        if !target.joins.is_empty() {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"JOIN\""));
        }
        let table = self.target_table(name, action)?;
        let mut item = self.bind_accessed_table(table.clone(), alias.as_ref(), env, Some(LOCK), access)?;
        let laterals = Laterals { env, scope: env.outer, levels: 0 };
        for other in others {
            item = self.cross_join(item, other, laterals, &[])?;
        }
        Ok((table, item))
    }

    /// The rows that satisfy the WHERE clause.
    pub(crate) fn filtered(
        &self,
        plan: Plan,
        selection: Option<&ast::Expr>,
        scope: &Scope<'_>,
        env: Env<'_>,
    ) -> SqlResult<Rows> {
        let mut rows = Rows::new(plan);
        if let Some(selection) = selection {
            let mut context = ExprContext::new(scope, env.ctes, Clause::Where);
            let predicate = self.bind_condition(selection, &mut context, "WHERE")?;
            rows.set_subplans(context.subplans);
            rows.filter(predicate)?;
        }
        Ok(rows)
    }
}

/// Whether a value is seen to read no column.
fn is_constant(value: &ast::Expr) -> bool {
    match value {
        ast::Expr::Value(_) => true,
        ast::Expr::Nested(inner) => is_constant(inner),
        ast::Expr::UnaryOp { expr, .. } | ast::Expr::Cast { expr, .. } => is_constant(expr),
        value => super::insert::is_default(value),
    }
}
