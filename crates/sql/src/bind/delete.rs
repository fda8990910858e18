//! DELETE.

use super::policy::Access;
use super::{Binder, Env};
use crate::plan::{Plan, PlanKind};
use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{self, FromTable};

impl Binder<'_> {
    pub(crate) fn bind_delete(&self, delete: &ast::Delete, env: Env<'_>) -> SqlResult<Plan> {
        let FromTable::WithFromKeyword(from) = &delete.from else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "DELETE needs FROM"));
        };
        let [target] = &from[..] else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \",\""));
        };
        if !delete.tables.is_empty() || !delete.order_by.is_empty() || delete.limit.is_some() {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error in DELETE"));
        }
        let using = delete.using.as_deref().unwrap_or(&[]);
        let reads = delete.selection.is_some() || delete.returning.is_some() || !using.is_empty();
        let access = Access::Delete { reads };
        let (table, item) = self.bind_target(target, using, env, "delete from", access)?;
        let scope = item.scope;
        let rows = self.filtered(item.plan, delete.selection.as_ref(), &scope, env)?;
        let input = Box::new(rows.into_plan());
        let plan = Plan::new(PlanKind::Delete { table, input, returning: None }, Vec::new());
        match &delete.returning {
            Some(returning) => self.bind_returning(plan, returning, &scope, env),
            None => Ok(plan),
        }
    }
}
