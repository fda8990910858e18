//! Names that a statement inside a function has besides those of columns: arguments and variables.
//!
//! Each is a parameter of the statement. What has fields has a parameter for each of them.

use super::Binder;
use super::context::ExprContext;
use crate::plan::Expr;
use sql_types::{RecordField, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast;
use std::sync::Arc;

/// What a name stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum VariableKind {
    /// A value: its parameter, counted from 0.
    Value(usize, Type),
    /// Something with fields: the parameter of each.
    Row(Vec<(Arc<str>, usize, Type)>),
    /// A record that nothing was assigned to.
    Unassigned,
}

/// A name.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// The label of its block, or the name of its function.
    pub block: Option<Arc<str>>,
    /// Its name.
    pub name: Arc<str>,
    /// What it stands for.
    pub kind: VariableKind,
}

/// The names that a statement can use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variables {
    /// The innermost first.
    pub list: Vec<Variable>,
    /// Types of the parameters.
    pub types: Vec<Type>,
    /// Whether a column of the same name is meant (LANGUAGE sql) instead of being an error.
    pub columns_first: bool,
    /// Tells these names from others: equal keys, equal names.
    pub key: Arc<str>,
}

impl Variables {
    fn find(&self, name: &str) -> Option<&Variable> {
        self.list.iter().find(|variable| &*variable.name == name)
    }

    fn find_in(&self, block: &str, name: &str) -> Option<&Variable> {
        self.list.iter().find(|variable| variable.block.as_deref() == Some(block) && &*variable.name == name)
    }
}

impl Variable {
    fn unassigned(&self) -> SqlError {
        let message = format!("record \"{}\" is not assigned yet", self.name);
        SqlError::new(SqlState::OBJECT_STATE, message)
            .with_detail("The tuple structure of a not-yet-assigned record is indeterminate.")
    }

    fn expr(&self) -> SqlResult<Expr> {
        Ok(match &self.kind {
            VariableKind::Value(index, ty) => Expr::Param(*index, *ty),
            VariableKind::Row(fields) => {
                let values = fields.iter().map(|(_, index, ty)| Expr::Param(*index, *ty)).collect();
                let fields: Arc<[RecordField]> = fields
                    .iter()
                    .map(|(name, _, ty)| RecordField { name: name.to_string(), ty: *ty })
                    .collect();
                Expr::Record(values, Some(fields))
            }
            VariableKind::Unassigned => return Err(self.unassigned()),
        })
    }

    fn field(&self, name: &str) -> SqlResult<Expr> {
        match &self.kind {
            VariableKind::Row(fields) => {
                let found = fields.iter().find(|(known, ..)| &**known == name);
                found.map(|(_, index, ty)| Expr::Param(*index, *ty)).ok_or_else(|| {
                    let message = format!("record \"{}\" has no field \"{name}\"", self.name);
                    SqlError::new(SqlState::UNDEFINED_COLUMN, message)
                })
            }
            VariableKind::Unassigned => Err(self.unassigned()),
            VariableKind::Value(_, ty) => {
                let message =
                    format!("column notation .{name} applied to type {ty}, which is not a composite type");
                Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message))
            }
        }
    }
}

impl Binder<'_> {
    /// The variable a bare name stands for; `column` says whether there is a column of that name.
    pub(super) fn variable(&self, name: &str, column: bool) -> SqlResult<Option<Expr>> {
        let Some(variables) = self.context.variables else { return Ok(None) };
        let Some(found) = variables.find(name) else { return Ok(None) };
        if column {
            if variables.columns_first {
                return Ok(None);
            }
            let message = format!("column reference \"{name}\" is ambiguous");
            return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message)
                .with_detail("It could refer to either a PL/pgSQL variable or a table column."));
        }
        found.expr().map(Some)
    }

    /// VALUES with the fields of records in the place of `record.*`; `None` if there is nothing of the kind.
    pub(super) fn expand_values(&self, values: &ast::Values) -> SqlResult<Option<ast::Values>> {
        let is_star = |expr: &ast::Expr| matches!(expr, ast::Expr::QualifiedWildcard(..));
        let Some(variables) = self.context.variables else { return Ok(None) };
        if !values.rows.iter().any(|row| row.content.iter().any(is_star)) {
            return Ok(None);
        }
        let mut expanded = values.clone();
        for row in &mut expanded.rows {
            let mut exprs = Vec::with_capacity(row.content.len());
            for expr in std::mem::take(&mut row.content) {
                let name = match &expr {
                    ast::Expr::QualifiedWildcard(name, _) => super::names::qualified(name)?.name.into_owned(),
                    _ => String::new(),
                };
                match variables.find(&name).map(|variable| &variable.kind) {
                    Some(VariableKind::Row(fields)) => exprs.extend(fields.iter().map(|(field, ..)| {
                        let parts = [&*name, &**field].map(|part| ast::Ident::with_quote('"', part));
                        ast::Expr::CompoundIdentifier(parts.to_vec())
                    })),
                    _ => exprs.push(expr),
                }
            }
            row.content = exprs;
        }
        Ok(Some(expanded))
    }

    /// The variable, or the field of one, that a name of several parts stands for.
    pub(super) fn variable_member(
        &self,
        names: &[&str],
        context: &ExprContext<'_>,
    ) -> SqlResult<Option<Expr>> {
        let Some(variables) = self.context.variables else { return Ok(None) };
        if let [relation, column] = names
            && let Some((position, depth)) = context.scope.find_relation(None, relation)?
        {
            // The name of a relation hides that of a record, unless only the record has such a field.
            let scope = context.scope.ancestor(depth);
            if scope.is_some_and(|scope| scope.relation_column(position, column).is_some()) {
                return Ok(None);
            }
        }
        match names {
            [first, second] => {
                if let Some(row) = variables.find(first) {
                    return row.field(second).map(Some);
                }
                variables.find_in(first, second).map(Variable::expr).transpose()
            }
            [block, row, field] => variables.find_in(block, row).map(|row| row.field(field)).transpose(),
            _ => Ok(None),
        }
    }
}
