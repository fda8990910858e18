//! Constraints of a table: their descriptors, and the check that existing rows keep them.

use super::DdlContext;
use super::naming::{constraint_name, has_constraint};
use super::statement::{Constraint, ConstraintKind, ForeignKey};
use crate::bind;
use crate::catalog::descriptor::{
    CheckDescriptor, ColumnId, ForeignKeyDescriptor, IndexDescriptor, PRIMARY_INDEX, TableDescriptor, Timing,
    Validity,
};
use crate::catalog::oids;
use crate::session::locks::mode;
use sql_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// Position of a column by name; 42703 if there is none.
pub(super) fn column_position(table: &TableDescriptor, name: &str) -> SqlResult<usize> {
    table.columns.iter().position(|column| column.name == name && !column.hidden).ok_or_else(|| {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
        SqlError::new(SqlState::UNDEFINED_COLUMN, message)
    })
}

/// As [`column_position`], for a column named in a key.
pub(super) fn key_position(table: &TableDescriptor, name: &str) -> SqlResult<usize> {
    column_position(table, name).map_err(|_| {
        let message = format!("column \"{name}\" named in key does not exist");
        SqlError::new(SqlState::UNDEFINED_COLUMN, message)
    })
}

/// Fails if the values of a type have no order.
pub(super) fn check_ordered(ty: sql_types::Type) -> SqlResult<()> {
    if !matches!(ty, sql_types::Type::JSON | sql_types::Type::JSONPATH | sql_types::Type::RECORD) {
        return Ok(());
    }
    let message = format!("data type {ty} has no default operator class for access method \"btree\"");
    Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message))
}

/// The key columns of an index by name; duplicates and types without order are refused.
pub(super) fn key_columns(
    table: &TableDescriptor,
    names: &[(String, bool)],
) -> SqlResult<Vec<(ColumnId, bool)>> {
    let mut columns: Vec<(ColumnId, bool)> = Vec::with_capacity(names.len());
    if names.len() > 32 {
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT, "cannot use more than 32 columns in an index"));
    }
    for (name, descending) in names {
        let column = &table.columns[key_position(table, name)?];
        if columns.iter().any(|(id, _)| *id == column.id) {
            let message = format!("column \"{name}\" appears twice in a key");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        check_ordered(column.ty.ty)?;
        columns.push((column.id, *descending));
    }
    Ok(columns)
}

/// The middle of a constraint's name: its columns.
fn joined(names: &[(String, bool)]) -> String {
    names.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join("_")
}

/// Refuses a foreign key between a temporary table and one that is not.
fn check_persistence(table: &TableDescriptor, referenced: &TableDescriptor) -> SqlResult<()> {
    let kind = match (table.schema == oids::PG_TEMP, referenced.schema == oids::PG_TEMP) {
        (true, false) => "temporary",
        (false, true) => "permanent",
        _ => return Ok(()),
    };
    let message = format!("constraints on {kind} tables may reference only {kind} tables");
    Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message))
}

fn check_name(table: &TableDescriptor, name: &str) -> SqlResult<()> {
    if !has_constraint(table, name) {
        return Ok(());
    }
    let message = format!("constraint \"{name}\" for relation \"{}\" already exists", table.name);
    Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message))
}

impl DdlContext<'_> {
    fn index_names(table: &TableDescriptor) -> Vec<String> {
        table.indexes.iter().map(|index| index.name.clone()).chain([table.name.clone()]).collect()
    }

    /// A new index for a UNIQUE constraint, or (`primary`) the primary index. Not yet in the table.
    pub(super) async fn constraint_index(
        &self,
        table: &TableDescriptor,
        name: Option<&str>,
        names: &[(String, bool)],
        primary: bool,
    ) -> SqlResult<IndexDescriptor> {
        let columns = key_columns(table, names)?;
        let name = match name {
            Some(name) => {
                check_name(table, name)?;
                self.check_free(table.schema, name)?;
                name.to_string()
            }
            None if primary => {
                self.relation_name(table.schema, (&table.name, "", "pkey"), &Self::index_names(table))
            }
            None => self.relation_name(
                table.schema,
                (&table.name, &joined(names), "key"),
                &Self::index_names(table),
            ),
        };
        let oid = self.new_oid().await?;
        Ok(IndexDescriptor {
            id: if primary { PRIMARY_INDEX } else { oid },
            oid,
            name,
            unique: true,
            constraint: true,
            columns,
            ..IndexDescriptor::default()
        })
    }

    /// Adds a CHECK constraint to a descriptor, after checking that it can be bound.
    pub(super) async fn add_check(
        &self,
        table: &mut TableDescriptor,
        name: Option<&str>,
        expr: &str,
    ) -> SqlResult<()> {
        let name = match name {
            Some(name) => {
                check_name(table, name)?;
                name.to_string()
            }
            None => {
                let ast = crate::parse::parse_expr(expr)?;
                let mentioned: Vec<&str> = table
                    .columns
                    .iter()
                    .filter(|column| !column.hidden && mentions(&ast, &column.name))
                    .map(|column| column.name.as_str())
                    .collect();
                let second = if let [one] = mentioned[..] { one } else { "" };
                constraint_name(table, second, "check")
            }
        };
        let expr = &self.stable_types(bare(expr)?)?;
        let view = self.working_view()?;
        let eval = view.eval(self.times);
        bind::bind_check(expr, &Arc::new(table.clone()), &view.bind_context(&eval, &[]))?;
        let oid = self.new_oid().await?;
        let validity = Validity::Valid;
        table.checks.push(CheckDescriptor { oid, name, expr: expr.to_string(), validity, comment: None });
        Ok(())
    }

    /// Adds a foreign key to a descriptor.
    pub(super) async fn add_foreign_key(
        &mut self,
        table: &mut TableDescriptor,
        name: Option<&str>,
        columns: &[String],
        key: &ForeignKey,
        timing: Timing,
    ) -> SqlResult<()> {
        let itself = key.table.name == table.name
            && self.find(&key.table).is_none_or(|found| found.oid() == table.oid);
        let referenced = if itself { Arc::new(table.clone()) } else { self.table(&key.table)? };
        if !itself {
            self.lock(referenced.oid, mode::SHARE_ROW_EXCLUSIVE).await?;
            check_persistence(table, &referenced)?;
            if !self.catalog.has_privilege(self.user(), referenced.owner, referenced.oid, 'x') {
                return Err(crate::session::privileges::denied("table", &referenced.name));
            }
        }
        let position = |name: &String| key_position(table, name);
        let positions = columns.iter().map(position).collect::<SqlResult<Vec<_>>>()?;
        super::generated::check_foreign_key(table, &positions, key)?;
        let referenced_ids: Vec<ColumnId> = if key.columns.is_empty() {
            let primary = referenced.primary();
            let hidden = primary
                .columns
                .iter()
                .any(|(id, _)| referenced.column(*id).is_none_or(|column| column.hidden));
            if hidden {
                let message = format!("there is no primary key for referenced table \"{}\"", referenced.name);
                return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
            }
            primary.columns.iter().map(|(id, _)| *id).collect()
        } else {
            let ids = key
                .columns
                .iter()
                .map(|name| key_position(&referenced, name).map(|at| referenced.columns[at].id));
            ids.collect::<SqlResult<_>>()?
        };
        if referenced_ids.len() != positions.len() {
            let message = "number of referencing and referenced columns for foreign key disagree";
            return Err(SqlError::new(SqlState::INVALID_FOREIGN_KEY, message));
        }
        let over = |index: &&IndexDescriptor| {
            index.unique
                && index.is_plain()
                && index.is_public()
                && index.columns.len() == referenced_ids.len()
                && index.columns.iter().all(|(id, _)| referenced_ids.contains(id))
        };
        let unique: Vec<_> = referenced.indexes.iter().filter(over).collect();
        if !unique.is_empty() && !unique.iter().any(|index| index.is_key()) {
            let message = format!(
                "cannot use a deferrable unique constraint for referenced table \"{}\"",
                referenced.name
            );
            return Err(SqlError::new(SqlState::OBJECT_STATE, message));
        }
        if unique.is_empty() {
            let message = format!(
                "there is no unique constraint matching given keys for referenced table \"{}\"",
                referenced.name
            );
            return Err(SqlError::new(SqlState::INVALID_FOREIGN_KEY, message));
        }
        let name = match name {
            Some(name) => {
                check_name(table, name)?;
                name.to_string()
            }
            None => constraint_name(table, &columns.join("_"), "fkey"),
        };
        for (at, id) in positions.iter().zip(&referenced_ids) {
            let (from, to) = (table.columns[*at].ty.ty, referenced.column(*id).map(|column| column.ty.ty));
            let comparable = to.is_some_and(|to| {
                from == to || sql_types::functions::resolve_operator("=", Some(from), to).is_ok()
            });
            if !comparable {
                let message = format!("foreign key constraint \"{name}\" cannot be implemented");
                return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message)
                    .with_detail("Key columns are of incompatible types."));
            }
        }
        let oid = self.new_oid().await?;
        table.foreign_keys.push(ForeignKeyDescriptor {
            comment: None,
            oid,
            name,
            columns: positions.iter().map(|at| table.columns[*at].id).collect(),
            referenced_table: referenced.oid,
            referenced_columns: referenced_ids,
            on_delete: key.on_delete,
            on_update: key.on_update,
            timing,
            validity: Validity::Valid,
        });
        Ok(())
    }

    /// Adds a constraint that needs no index to a descriptor.
    pub(super) async fn add_plain(
        &mut self,
        table: &mut TableDescriptor,
        constraint: &Constraint,
    ) -> SqlResult<()> {
        let name = constraint.name.as_deref();
        match &constraint.kind {
            ConstraintKind::Check(expr) => self.add_check(table, name, expr).await,
            ConstraintKind::Foreign(columns, key) => {
                self.add_foreign_key(table, name, columns, key, constraint.timing).await
            }
            _ => Err(SqlError::internal("a constraint with an index")),
        }
    }
}

/// An expression without parentheses around the whole of it: those who show it add their own.
pub(super) fn bare(mut expr: &str) -> SqlResult<&str> {
    while matches!(crate::parse::parse_expr(expr)?, sqlparser::ast::Expr::Nested(_)) {
        let within = expr.trim().strip_prefix('(').and_then(|expr| expr.strip_suffix(')'));
        let Some(within) = within else { break };
        expr = within.trim();
    }
    Ok(expr)
}

/// Whether an expression mentions a column.
fn mentions(expr: &sqlparser::ast::Expr, column: &str) -> bool {
    // Words of the text are enough to choose a name by.
    let text = expr.to_string();
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    words.into_iter().any(|word| word == column || word.eq_ignore_ascii_case(column))
}

/// The statement that finds rows which break a CHECK constraint, a foreign key or NOT NULL.
pub(super) fn violation_query(condition: &str, table: &str) -> String {
    format!("SELECT 1 FROM {table} WHERE {condition} LIMIT 1")
}
