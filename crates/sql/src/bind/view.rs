//! Views: their query is bound where they are read.

use super::lookup::ViewRef;
use super::{BindContext, Binder, Bound, Env};
use crate::parse::{self, Ast, StatementKind};
use crate::plan::{Plan, PlanColumn};
use sql_types::cast::CastKind;
use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast;
use std::sync::Arc;

/// How deep views may read views.
const MAX_VIEWS: usize = 32;

/// Binds the query of a view by itself.
pub fn bind_view_query(view: &ViewRef, context: &BindContext<'_>) -> SqlResult<Bound> {
    let binder = Binder::new(context, None, 0);
    let plan = binder.bind_view(view)?;
    let columns = Some(plan.columns.clone());
    let reads = binder.reads.take();
    Ok(Bound { plan, param_types: Vec::new(), columns, kind: StatementKind::Query, reads })
}

impl Binder<'_> {
    pub(crate) fn bind_view(&self, view: &ViewRef) -> SqlResult<Plan> {
        let depth = self.views.get();
        if depth >= MAX_VIEWS {
            return Err(SqlError::new(SqlState::TOO_COMPLEX, "views are nested too deeply"));
        }
        let statement = parse::parse_one(&view.query)?;
        let Ast::Sql(ast) = &statement.ast else {
            return Err(SqlError::new(SqlState::DATA_CORRUPTED, "the definition of a view is not a query"));
        };
        let ast::Statement::Query(query) = ast.as_ref() else {
            return Err(SqlError::new(SqlState::DATA_CORRUPTED, "the definition of a view is not a query"));
        };
        let context = BindContext {
            search_path: &view.search_path,
            param_types: &[],
            variables: None,
            ..*self.context
        };
        self.reads(view.oid);
        let mut inner = self.within(&context);
        inner.views.set(depth + 1);
        inner.owner = Some(view.owner);
        let plan = inner.bind_query(query, Env::default())?;
        self.absorb(inner);
        self.as_declared(plan, view)
    }

    /// Gives the columns the names and types the view was created with.
    fn as_declared(&self, mut plan: Plan, view: &ViewRef) -> SqlResult<Plan> {
        if plan.columns.len() < view.columns.len() {
            return Err(SqlError::new(
                SqlState::DATA_CORRUPTED,
                "a view has fewer columns than it was created with",
            ));
        }
        if plan.columns.iter().zip(view.columns.iter()).any(|(have, want)| have.ty.ty != want.1.ty) {
            let columns: Vec<PlanColumn> =
                view.columns.iter().map(|(name, ty)| PlanColumn::new(name.as_str(), *ty)).collect();
            return self.project_output(plan, columns, |binder, index, expr| {
                binder.coerce(expr, view.columns[index].1.ty, CastKind::Explicit)
            });
        }
        for (column, (name, _)) in plan.columns.iter_mut().zip(view.columns.iter()) {
            column.name = Arc::from(name.as_str());
        }
        Ok(plan)
    }
}
