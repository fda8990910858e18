//! COPY: the plan that takes the rows, or gives them.

use super::names::ident_name;
use super::scope::Scope;
use super::{BindContext, Binder, Env};
use crate::copy::CopyColumn;
use crate::exec::COPY_INPUT;
use crate::parse::{Source, StatementKind};
use crate::plan::{Needed, Plan, PlanColumn, PlanKind};
use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{self, CopySource, ObjectName};
use std::sync::Arc;

/// A bound COPY.
#[derive(Clone, Debug)]
pub struct BoundCopy {
    /// FROM: inserts the rows of `CteScan { cte: COPY_INPUT }`. TO: the rows to write.
    pub plan: Plan,
    /// The columns read or written.
    pub columns: Vec<CopyColumn>,
    /// Whether it is COPY FROM.
    pub from: bool,
    /// The privileges needed to read what it reads.
    pub reads: Vec<Needed>,
}

/// Binds the source or target of a COPY.
pub fn bind_copy(
    statement: &ast::Statement,
    source: Option<&Source>,
    context: &BindContext<'_>,
) -> SqlResult<BoundCopy> {
    let ast::Statement::Copy { source: copied, to, .. } = statement else {
        return Err(SqlError::internal("not a COPY"));
    };
    let binder = Binder::new(context, source, 0);
    match (copied, to) {
        (CopySource::Table { table_name, columns }, false) => binder.copy_from(table_name, columns),
        (CopySource::Table { table_name, columns }, true) => binder.copy_table(table_name, columns),
        (CopySource::Query(query), true) => {
            let bound = binder.finish_query(query)?;
            if bound.kind != StatementKind::Query && bound.columns.is_none() {
                return Err(SqlError::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    "COPY query must have a RETURNING clause",
                ));
            }
            Ok(outgoing(bound.plan, bound.reads))
        }
        (CopySource::Query(_), false) => {
            Err(SqlError::new(SqlState::SYNTAX_ERROR, "COPY FROM needs the name of a table"))
        }
    }
}

fn outgoing(plan: Plan, reads: Vec<Needed>) -> BoundCopy {
    let columns =
        plan.columns.iter().map(|column| CopyColumn { name: column.name.clone(), ty: column.ty }).collect();
    BoundCopy { plan, columns, from: false, reads }
}

/// 42P10: COPY leaves generated columns out.
fn generated_column(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, format!("column \"{name}\" is a generated column"))
        .with_detail("Generated columns cannot be used in COPY.")
}

/// Whether a column of a table alone in its scope is generated.
fn is_generated(scope: &Scope<'_>, position: usize) -> bool {
    let table = scope.relations.first().and_then(|relation| relation.table.as_ref());
    let column = table.and_then(|table| table.columns.get(position));
    column.is_some_and(|column| column.generated.is_some())
}

impl Binder<'_> {
    fn copy_from(&self, name: &ObjectName, columns: &[ast::Ident]) -> SqlResult<BoundCopy> {
        let table = self.target_table(name, "copy to")?;
        let mut targets = Vec::new();
        for column in columns {
            let name = ObjectName::from(vec![column.clone()]);
            let found = self.target_column(&name, &table, &targets)?;
            if found.generated.is_some() {
                return Err(generated_column(&found.name));
            }
            targets.push(found.id);
        }
        if targets.is_empty() {
            let given = table.columns.iter().filter(|column| !column.hidden && column.generated.is_none());
            targets = given.map(|column| column.id).collect();
        }
        let described: Vec<_> = targets.iter().filter_map(|id| table.column(*id)).collect();
        let outputs: Vec<PlanColumn> =
            described.iter().map(|column| PlanColumn::new(column.name.as_str(), column.ty)).collect();
        let columns = described
            .iter()
            .map(|column| CopyColumn { name: Arc::from(column.name.as_str()), ty: column.ty })
            .collect();
        let input = Plan::new(PlanKind::CteScan { cte: COPY_INPUT }, outputs);
        if self.is_secured(&table)? {
            let message = "COPY FROM not supported with row-level security";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("Use INSERT statements instead."));
        }
        let plan = self.insert_plan(table.clone(), input, targets, None, None)?;
        Ok(BoundCopy { plan, columns, from: true, reads: Vec::new() })
    }

    fn copy_table(&self, name: &ObjectName, columns: &[ast::Ident]) -> SqlResult<BoundCopy> {
        let item = self.bind_named_relation(name, None, Env::default(), &[])?;
        let mut items = Vec::new();
        if columns.is_empty() {
            let shown = item.scope.columns.iter().zip(0..);
            let shown = shown.filter(|(column, at)| !column.hidden && !is_generated(&item.scope, *at));
            let shown = shown.map(|(column, _)| column);
            items.extend(shown.map(super::select::OutputItem::of_column));
        }
        for column in columns {
            let wanted = ident_name(column);
            let found =
                item.scope.columns.iter().position(|known| *known.name == *wanted).ok_or_else(|| {
                    let error = SqlError::new(
                        SqlState::UNDEFINED_COLUMN,
                        format!("column \"{wanted}\" of relation \"{name}\" does not exist"),
                    );
                    self.at(error, column.span)
                })?;
            if is_generated(&item.scope, found) {
                return Err(generated_column(&wanted));
            }
            items.push(super::select::OutputItem::of_column(&item.scope.columns[found]));
        }
        let mut rows = super::rows::Rows::new(item.plan);
        super::select::project(&mut rows, items)?;
        Ok(outgoing(rows.into_plan(), self.reads.take()))
    }
}
