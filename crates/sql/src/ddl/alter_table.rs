//! ALTER TABLE and, for names and owners, ALTER INDEX, VIEW and SEQUENCE.

use super::DdlContext;
use super::constraint::column_position;
use super::create_table::add_rowid;
use super::drop_object;
use super::index::included_columns;
use super::naming::has_constraint;
use super::statement::{AlterAction, Constraint, ConstraintKind, ObjectKind};
use super::tokens::{Name, quote_ident};
use super::validate::mark_unvalidated;
use crate::catalog::descriptor::{IndexDescriptor, PRIMARY_INDEX, TableDescriptor};
use crate::catalog::{Reader, Relation, oids};
use crate::session::locks::mode;
use sql_types::{Datum, Oid, SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// ALTER TABLE
pub(super) async fn alter(
    cx: &mut DdlContext<'_>,
    name: &Name,
    if_exists: bool,
    kind: ObjectKind,
    actions: &[AlterAction],
) -> SqlResult<()> {
    let found = cx.find(name);
    match (found, kind) {
        (None, _) if if_exists => {
            cx.notice(format!("relation \"{}\" does not exist, skipping", name.name));
            Ok(())
        }
        (Some(Relation::Table(oid)), ObjectKind::Table) => {
            let table = cx.table_by_oid(oid)?;
            cx.check_owner("table", &table.name, table.owner)?;
            cx.lock(oid, actions.iter().map(lock_mode).max().unwrap_or(mode::ACCESS_EXCLUSIVE)).await?;
            cx.check_unused(&table, "ALTER TABLE")?;
            for action in actions {
                cx.alter_one(oid, action).await?;
            }
            Ok(())
        }
        (Some(relation), _) => {
            for action in actions {
                rename_other(cx, relation, action)?;
            }
            Ok(())
        }
        (None, _) => Err(cx.undefined("relation", name)),
    }
}

/// The lock that a change of a table needs, as in PostgreSQL.
fn lock_mode(action: &AlterAction) -> u8 {
    match action {
        AlterAction::ValidateConstraint(_) => mode::SHARE_UPDATE_EXCLUSIVE,
        AlterAction::AddConstraint(constraint) if matches!(constraint.kind, ConstraintKind::Foreign(..)) => {
            mode::SHARE_ROW_EXCLUSIVE
        }
        _ => mode::ACCESS_EXCLUSIVE,
    }
}

/// 0A000
fn is_read(what: &str, view: &Reader) -> SqlError {
    let kind = view.relation.kind();
    SqlError::unsupported(format!("to {what} while {kind} \"{}\" reads it", view.name))
        .with_hint("Drop the view, make the change, and create the view again.")
}

fn wrong(what: &str) -> SqlError {
    SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("this change is not possible for a {what}"))
}

/// Names, schemas and owners of views, sequences and indexes.
fn rename_other(cx: &mut DdlContext<'_>, relation: Relation, action: &AlterAction) -> SqlResult<()> {
    match relation {
        Relation::View(oid) => {
            let Some(view) = cx.catalog.views.get(&oid).cloned() else { return Ok(()) };
            cx.check_owner("view", &view.name, view.owner)?;
            let mut view = (*view).clone();
            let (mut readers, mut what) = (Vec::new(), String::new());
            match action {
                AlterAction::Rename(to) => {
                    cx.check_free(view.schema, to)?;
                    what = format!("rename view \"{}\"", view.name);
                    readers = cx.with_relation_renamed(oid, &view.name, (view.schema, to), &what)?;
                    view.name = to.clone();
                }
                AlterAction::Owner(owner) => view.owner = cx.new_owner(owner)?.oid,
                AlterAction::SetSchema(schema) => {
                    what = format!("move view \"{}\"", view.name);
                    view.schema = target_schema(cx, view.schema, schema, &view.name)?;
                    readers = cx.with_relation_renamed(oid, &view.name, (view.schema, &view.name), &what)?;
                }
                AlterAction::RenameColumn { name, to } => {
                    what = format!("rename a column of view \"{}\"", view.name);
                    readers = cx.with_column_renamed(oid, name, to, &what)?;
                    if let Some(column) = view.columns.iter_mut().find(|column| column.0 == *name) {
                        column.0 = to.clone();
                    }
                }
                AlterAction::Nothing => {}
                _ => return Err(wrong("view")),
            }
            cx.put_view(view)?;
            cx.rewrite_views(readers, &what)
        }
        Relation::Sequence(oid) => {
            let Some(sequence) = cx.catalog.sequences.get(&oid).cloned() else { return Ok(()) };
            cx.check_owner("sequence", &sequence.name, sequence.owner)?;
            let mut sequence = (*sequence).clone();
            match action {
                AlterAction::Rename(to) => {
                    cx.check_free(sequence.schema, to)?;
                    sequence.name = to.clone();
                }
                AlterAction::Owner(owner) => sequence.owner = cx.new_owner(owner)?.oid,
                AlterAction::SetSchema(schema) => {
                    sequence.schema = target_schema(cx, sequence.schema, schema, &sequence.name)?
                }
                AlterAction::Nothing => {}
                _ => return Err(wrong("sequence")),
            }
            let (schema, name) = (sequence.schema, sequence.name.clone());
            cx.put_sequence(sequence)?;
            cx.renamed_sequence(oid, schema, &name)
        }
        Relation::Index(oid, table, _) => {
            let table = cx.table_by_oid(table)?;
            cx.check_owner("index", &table.name, table.owner)?;
            let mut changed = (*table).clone();
            match action {
                AlterAction::Rename(to) => {
                    cx.check_free(table.schema, to)?;
                    for index in changed.indexes.iter_mut().filter(|index| index.oid == oid) {
                        index.name = to.clone();
                    }
                }
                AlterAction::Nothing | AlterAction::Owner(_) => {}
                _ => return Err(wrong("index")),
            }
            cx.put_table(changed).map(|_| ())
        }
        Relation::MaterializedView(oid) => {
            let table = cx.table_by_oid(oid)?;
            cx.check_owner("materialized view", &table.name, table.owner)?;
            let what = format!("change materialized view \"{}\"", table.name);
            let mut changed = (*table).clone();
            let mut readers = Vec::new();
            match action {
                AlterAction::Rename(to) => {
                    cx.check_free(table.schema, to)?;
                    readers = cx.with_relation_renamed(oid, &table.name, (table.schema, to), &what)?;
                    changed.name = to.clone();
                }
                AlterAction::RenameColumn { name, to } => {
                    readers = cx.with_column_renamed(oid, name, to, &what)?;
                    let at = column_position(&table, name)?;
                    changed.columns[at].name = to.clone();
                }
                AlterAction::SetSchema(schema) => {
                    changed.schema = target_schema(cx, table.schema, schema, &table.name)?;
                    let moved = (changed.schema, table.name.as_str());
                    readers = cx.with_relation_renamed(oid, &table.name, moved, &what)?;
                }
                AlterAction::Owner(owner) => changed.owner = cx.new_owner(owner)?.oid,
                AlterAction::Nothing => {}
                _ => return Err(wrong("materialized view")),
            }
            cx.put_table(changed)?;
            cx.rewrite_views(readers, &what)
        }
        // ALTER VIEW and the like of a table: names and owners only.
        Relation::Table(oid) => {
            let table = cx.table_by_oid(oid)?;
            cx.check_owner("table", &table.name, table.owner)?;
            let mut changed = (*table).clone();
            match action {
                AlterAction::Rename(to) => {
                    cx.check_free(table.schema, to)?;
                    changed.name = to.clone();
                }
                AlterAction::Owner(owner) => changed.owner = cx.new_owner(owner)?.oid,
                _ => return Err(wrong("table")),
            }
            cx.put_table(changed).map(|_| ())
        }
    }
}

fn target_schema(cx: &DdlContext<'_>, current: Oid, schema: &str, name: &str) -> SqlResult<Oid> {
    let target =
        cx.schema_for(&Name { schema: Some(schema.to_string()), name: name.to_string(), position: None })?;
    if target == oids::PG_TEMP || current == oids::PG_TEMP {
        let message = "cannot move objects into or out of temporary schemas";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    cx.check_free(target, name)?;
    Ok(target)
}

impl DdlContext<'_> {
    /// Rewrites the defaults that name a sequence by its old name.
    pub(super) fn renamed_sequence(&mut self, oid: Oid, schema: Oid, name: &str) -> SqlResult<()> {
        let default = self.sequence_default(schema, name);
        let tables: Vec<Arc<TableDescriptor>> = self
            .catalog
            .tables
            .values()
            .filter(|table| table.columns.iter().any(|column| column.sequence == Some(oid)))
            .cloned()
            .collect();
        for table in tables {
            let mut changed = (*table).clone();
            for column in changed.columns.iter_mut().filter(|column| column.sequence == Some(oid)) {
                column.default = Some(default.clone());
            }
            self.put_table(changed)?;
        }
        Ok(())
    }

    /// A table's name as SQL text.
    pub(super) fn qualified(&self, table: &TableDescriptor) -> String {
        let schema = self.catalog.schema_name(table.database, table.schema).unwrap_or("public");
        format!("{}.{}", quote_ident(schema), quote_ident(&table.name))
    }

    /// One further action on a table.
    pub(super) async fn alter_again(&mut self, oid: Oid, action: &AlterAction) -> SqlResult<()> {
        self.alter_one(oid, action).await
    }

    async fn alter_one(&mut self, oid: Oid, action: &AlterAction) -> SqlResult<()> {
        let table = self.table_by_oid(oid)?;
        let mut changed = (*table).clone();
        // The views that are to follow, and what they follow.
        let mut views = (Vec::new(), String::new());
        match action {
            AlterAction::Nothing => return Ok(()),
            AlterAction::ValidateConstraint(name) => return self.validate_constraint(&table, name).await,
            AlterAction::AddColumn { column, constraints, if_not_exists } => {
                return self.add_column_to(&table, column, constraints, *if_not_exists).await;
            }
            AlterAction::DropColumn { name, if_exists, cascade } => {
                return self.drop_column(&table, name, *if_exists, *cascade).await;
            }
            AlterAction::SetDefault(..)
            | AlterAction::SetNotNull(..)
            | AlterAction::SetType { .. }
            | AlterAction::AddIdentity(..)
            | AlterAction::SetIdentity(..)
            | AlterAction::DropIdentity(..)
            | AlterAction::DropExpression(..) => return self.alter_column(&table, action).await,
            AlterAction::RenameColumn { name, to } => {
                let at = column_position(&table, name)?;
                if table.columns.iter().any(|column| column.name == *to) {
                    let message = format!("column \"{to}\" of relation \"{}\" already exists", table.name);
                    return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
                }
                let what = format!("rename a column of table \"{}\"", table.name);
                views = (self.with_column_renamed(table.oid, name, to, &what)?, what);
                self.rename_in_policies(&table, &mut changed, at, |text| rename_word(text, name, to))?;
                changed.columns[at].name = to.clone();
                for column in &mut changed.columns {
                    let expression = column.generated.take();
                    column.generated = expression.map(|text| rename_word(&text, name, to));
                }
                for trigger in &mut changed.triggers {
                    trigger.when = trigger.when.take().map(|when| rename_word(&when, name, to));
                }
                for check in &mut changed.checks {
                    check.expr = rename_word(&check.expr, name, to);
                }
                for index in &mut changed.indexes {
                    for expression in &mut index.expressions {
                        expression.text = rename_word(&expression.text, name, to);
                    }
                    index.predicate =
                        index.predicate.take().map(|predicate| rename_word(&predicate, name, to));
                }
            }
            AlterAction::RenameConstraint { name, to } => {
                if has_constraint(&table, to) {
                    let message =
                        format!("constraint \"{to}\" for relation \"{}\" already exists", table.name);
                    return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
                }
                let indexes =
                    changed.indexes.iter_mut().filter(|index| index.constraint).map(|index| &mut index.name);
                let checks = changed.checks.iter_mut().map(|check| &mut check.name);
                let keys = changed.foreign_keys.iter_mut().map(|key| &mut key.name);
                let Some(found) = indexes.chain(checks).chain(keys).find(|known| *known == name) else {
                    return Err(no_constraint(&table, name));
                };
                *found = to.clone();
            }
            AlterAction::Rename(to) => {
                self.check_free(table.schema, to)?;
                let what = format!("rename table \"{}\"", table.name);
                let renamed = (table.schema, to.as_str());
                views = (self.with_relation_renamed(table.oid, &table.name, renamed, &what)?, what);
                changed.name = to.clone();
                self.check_policies(&changed)?;
            }
            AlterAction::SetSchema(schema) => {
                changed.schema = target_schema(self, table.schema, schema, &table.name)?;
                let what = format!("move table \"{}\"", table.name);
                let moved = (changed.schema, table.name.as_str());
                views = (self.with_relation_renamed(table.oid, &table.name, moved, &what)?, what);
                self.check_policies(&changed)?;
                for column in &table.columns {
                    let sequence = column.sequence.and_then(|oid| self.catalog.sequences.get(&oid)).cloned();
                    if let Some(sequence) = sequence {
                        let mut moved = (*sequence).clone();
                        moved.schema = changed.schema;
                        self.put_sequence(moved)?;
                    }
                }
                for column in &mut changed.columns {
                    let sequence = column.sequence.and_then(|oid| self.catalog.sequences.get(&oid)).cloned();
                    if let Some(sequence) = sequence {
                        column.default = Some(self.sequence_default(sequence.schema, &sequence.name));
                    }
                }
            }
            AlterAction::Owner(owner) => {
                let owner = self.new_owner(owner)?.oid;
                changed.owner = owner;
                for column in &table.columns {
                    let sequence = column.sequence.and_then(|oid| self.catalog.sequences.get(&oid)).cloned();
                    if let Some(sequence) = sequence {
                        let mut owned = (*sequence).clone();
                        owned.owner = owner;
                        self.put_sequence(owned)?;
                    }
                }
            }
            AlterAction::EnableTrigger(name, enabled) => {
                super::trigger::enable(&mut changed, name.as_deref(), *enabled)?;
            }
            AlterAction::RowSecurity(enable) => changed.security.enabled = *enable,
            AlterAction::ForceRowSecurity(force) => changed.security.forced = *force,
            AlterAction::Place(changes) => return self.place(changed, changes),
            AlterAction::AlterConstraint(name, timing) => {
                if let Some(key) = changed.foreign_keys.iter_mut().find(|key| key.name == *name) {
                    key.timing = *timing;
                } else if has_constraint(&table, name) {
                    let message = format!(
                        "constraint \"{name}\" of relation \"{}\" is not a foreign key constraint",
                        table.name
                    );
                    return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
                } else {
                    return Err(no_constraint(&table, name));
                }
            }
            AlterAction::AddConstraint(constraint) => return self.add_constraint(&table, constraint).await,
            AlterAction::DropConstraint { name, if_exists, cascade } => {
                return self.drop_constraint(&table, name, *if_exists, *cascade).await;
            }
            AlterAction::Unsupported(what) => return Err(SqlError::unsupported(what)),
        }
        self.put_table(changed)?;
        let (views, what) = views;
        self.rewrite_views(views, &what)
    }

    /// Refuses a change of a column that views read.
    pub(super) fn refuse_column_readers(
        &self,
        table: &TableDescriptor,
        column: &str,
        what: &str,
    ) -> SqlResult<()> {
        let what = format!("{what} table \"{}\"", table.name);
        self.refuse_policies_of(table.oid, &what)?;
        self.readers_of_column(table.oid, column)?.first().map_or(Ok(()), |view| Err(is_read(&what, view)))
    }

    /// Views keep the text of their query, which names what would change; `what` says what is to be done, with its name.
    pub(super) fn refuse_views_of(&self, relation: Oid, what: &str) -> SqlResult<()> {
        self.refuse_policies_of(relation, what)?;
        match self.catalog.readers(relation).first() {
            None => Ok(()),
            Some(view) => Err(is_read(what, view)),
        }
    }

    async fn add_constraint(
        &mut self,
        table: &Arc<TableDescriptor>,
        constraint: &Constraint,
    ) -> SqlResult<()> {
        let mut changed = (**table).clone();
        let name = constraint.name.as_deref();
        match &constraint.kind {
            ConstraintKind::Primary(columns) => {
                let mut index = self.constraint_index(table, name, columns, true).await?;
                index.included = included_columns(table, &constraint.included)?;
                self.set_primary_key(table, index).await
            }
            ConstraintKind::Unique(columns) => {
                let mut index = self.constraint_index(table, name, columns, false).await?;
                index.nulls_not_distinct = constraint.nulls_not_distinct;
                index.included = included_columns(table, &constraint.included)?;
                let id = index.id;
                // The rows there are must be unique in any case, and are written as those of other indexes are.
                changed.indexes.push(index.clone());
                self.backfill(&changed, id).await?;
                if constraint.timing.deferrable {
                    self.garbage(changed.storage, u64::from(id))?;
                    index.id = self.new_oid().await?;
                    index.timing = constraint.timing;
                    let id = index.id;
                    changed.indexes.pop();
                    changed.indexes.push(index);
                    self.backfill(&changed, id).await?;
                }
                self.put_table(changed).map(|_| ())
            }
            ConstraintKind::UsingIndex(index, primary) => {
                let Some(found) =
                    changed.indexes.iter_mut().find(|known| known.name == *index && !known.constraint)
                else {
                    let message = format!("index \"{index}\" does not exist");
                    return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
                };
                if !found.is_public() {
                    let message = format!("index \"{index}\" is not valid");
                    return Err(SqlError::new(SqlState::OBJECT_STATE, message));
                }
                if !found.unique {
                    let message = format!("\"{index}\" is not a unique index");
                    return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
                }
                if !found.is_plain() {
                    let message = match found.expressions.is_empty() {
                        true => format!("\"{index}\" is a partial index"),
                        false => format!("index \"{index}\" contains expressions"),
                    };
                    return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).with_detail(
                        "Cannot create a primary key or unique constraint using such an index.",
                    ));
                }
                if *primary {
                    let mut index = found.clone();
                    let old = (u64::from(index.id), index.oid);
                    index.id = PRIMARY_INDEX;
                    index.constraint = true;
                    if let Some(name) = name {
                        index.name = name.to_string();
                    }
                    changed.indexes.retain(|known| known.oid != old.1);
                    let reduced = self.put_table(changed)?;
                    return self.set_primary_key(&reduced, index).await;
                }
                found.constraint = true;
                if let Some(name) = name {
                    found.name = name.to_string();
                }
                self.put_table(changed).map(|_| ())
            }
            ConstraintKind::Check(_) | ConstraintKind::Foreign(..) => {
                self.add_plain(&mut changed, constraint).await?;
                if constraint.not_valid {
                    mark_unvalidated(&mut changed, table);
                } else {
                    self.validate(table, &changed).await?;
                }
                self.put_table(changed).map(|_| ())
            }
        }
    }

    /// Writes a table anew with another primary key.
    async fn set_primary_key(
        &mut self,
        table: &Arc<TableDescriptor>,
        index: IndexDescriptor,
    ) -> SqlResult<()> {
        let hidden = table.columns.iter().position(|column| column.hidden);
        let Some(hidden) = hidden else {
            let message = format!("multiple primary keys for table \"{}\" are not allowed", table.name);
            return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
        };
        let mut changed = (**table).clone();
        changed.storage = u64::from(self.new_oid().await?);
        changed.columns.remove(hidden);
        let mut required = Vec::new();
        for (id, _) in &index.columns {
            if let Some(at) = changed.position(*id) {
                changed.columns[at].nullable = false;
                required.push((at, changed.columns[at].name.clone()));
            }
        }
        changed.indexes.retain(|known| known.id != PRIMARY_INDEX);
        changed.indexes.insert(0, index);
        forget_added_values(&mut changed);
        let name = table.name.clone();
        self.rewrite(table, &changed, &mut |mut row| {
            row.remove(hidden);
            match required.iter().find(|(at, _)| row[*at].is_null()) {
                Some((_, column)) => Err(contains_nulls(&name, column)),
                None => Ok(row),
            }
        })
        .await?;
        self.put_table(changed).map(|_| ())
    }

    /// Writes a table anew with a hidden key.
    pub(super) async fn drop_primary_key(&mut self, table: &Arc<TableDescriptor>) -> SqlResult<()> {
        let mut changed = (**table).clone();
        changed.storage = u64::from(self.new_oid().await?);
        changed.indexes.retain(|known| known.id != PRIMARY_INDEX);
        add_rowid(&mut changed);
        forget_added_values(&mut changed);
        self.rewrite(table, &changed, &mut |mut row| {
            row.push(Datum::Int8(crate::table::unique_rowid(crate::session::view::now_micros())));
            Ok(row)
        })
        .await?;
        self.put_table(changed).map(|_| ())
    }

    async fn drop_constraint(
        &mut self,
        table: &Arc<TableDescriptor>,
        name: &str,
        if_exists: bool,
        cascade: bool,
    ) -> SqlResult<()> {
        let mut changed = (**table).clone();
        if let Some(index) = table.indexes.iter().find(|index| index.constraint && index.name == name) {
            drop_object::release_index(self, table, index, cascade)?;
            // The table itself may have referred to the key.
            let table = self.table_by_oid(table.oid)?;
            if index.id == PRIMARY_INDEX {
                return self.drop_primary_key(&table).await;
            }
            let mut changed = (*table).clone();
            changed.indexes.retain(|known| known.oid != index.oid);
            self.garbage(table.storage, u64::from(index.id))?;
            return self.put_table(changed).map(|_| ());
        }
        let before = changed.checks.len() + changed.foreign_keys.len();
        changed.checks.retain(|check| check.name != name);
        changed.foreign_keys.retain(|key| key.name != name);
        if changed.checks.len() + changed.foreign_keys.len() == before {
            if if_exists {
                let message =
                    format!("constraint \"{name}\" of relation \"{}\" does not exist, skipping", table.name);
                self.notice(message);
                return Ok(());
            }
            return Err(no_constraint(table, name));
        }
        self.put_table(changed).map(|_| ())
    }
}

/// After a rewrite every row has all columns.
pub(super) fn forget_added_values(table: &mut TableDescriptor) {
    for column in &mut table.columns {
        column.added_value = None;
    }
}

/// `23502` for existing rows.
pub(super) fn contains_nulls(table: &str, column: &str) -> SqlError {
    let message = format!("column \"{column}\" of relation \"{table}\" contains null values");
    let mut error = SqlError::new(SqlState::NOT_NULL_VIOLATION, message);
    error.extra_mut().table = Some(table.to_string());
    error.extra_mut().column = Some(column.to_string());
    error
}

pub(super) fn no_constraint(table: &TableDescriptor, name: &str) -> SqlError {
    let message = format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name);
    SqlError::new(SqlState::UNDEFINED_OBJECT, message)
}

/// Replaces a column's name in the text of an expression, leaving strings alone.
fn rename_word(text: &str, from: &str, to: &str) -> String {
    let to = quote_ident(to);
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = if first == '\'' {
            rest[1..].find('\'').map_or(rest.len(), |end| end + 2)
        } else if first == '"' {
            rest[1..].find('"').map_or(rest.len(), |end| end + 2)
        } else if first.is_alphabetic() || first == '_' {
            rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (word, after) = rest.split_at(len);
        let bare = word.trim_matches('"');
        let same = if word.starts_with('"') { bare == from } else { word.eq_ignore_ascii_case(from) };
        let is_name = !word.starts_with('\'') && same && !after.trim_start().starts_with('(');
        out.push_str(if is_name { &to } else { word });
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renaming_a_column_spares_strings_and_functions() {
        let renamed = rename_word("a > 0 AND \"a\" <> 'a' AND a(1) AND ab = A", "a", "select");
        assert_eq!(renamed, "\"select\" > 0 AND \"select\" <> 'a' AND a(1) AND ab = \"select\"");
    }
}
