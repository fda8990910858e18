//! CREATE, ALTER and DROP TRIGGER.

use super::DdlContext;
use super::constraint::column_position;
use super::drop_object::dependents;
use super::statement::{CreateTrigger, RoutineName};
use super::tokens::{Cursor, Name};
use crate::bind;
use crate::catalog::descriptor::TableDescriptor;
use crate::catalog::routine::TriggerDescriptor;
use crate::session::locks::mode;
use crate::session::privileges::denied;
use sql_types::{SqlError, SqlResult, SqlState, Type};
use sqlparser::tokenizer::Token;
use std::sync::Arc;

fn undefined(name: &str, table: &str) -> SqlError {
    let message = format!("trigger \"{name}\" for table \"{table}\" does not exist");
    SqlError::new(SqlState::UNDEFINED_OBJECT, message)
}

/// CREATE TRIGGER
pub(super) async fn create(cx: &mut DdlContext<'_>, written: &CreateTrigger) -> SqlResult<()> {
    let table = cx.table(&written.table)?;
    if !cx.catalog.has_privilege(cx.user(), table.owner, table.oid, 't') {
        return Err(denied("table", &table.name));
    }
    if table.schema == crate::catalog::oids::PG_TEMP {
        return Err(SqlError::unsupported("a trigger of a temporary table"));
    }
    cx.lock(table.oid, mode::EXCLUSIVE).await?;
    let table = cx.table_by_oid(table.oid)?;
    let name = RoutineName { name: written.routine.clone(), arguments: Some(Vec::new()) };
    let routine = cx.find_routine(&name)?;
    if routine.returns != Type::TRIGGER {
        let message = format!("function {} must return type trigger", routine.name);
        return Err(SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message));
    }
    if !cx.catalog.may_execute(cx.user(), &routine) {
        return Err(denied("function", &routine.name));
    }
    let columns = written
        .columns
        .iter()
        .map(|column| {
            let position = column_position(&table, column)?;
            Ok(table.columns.get(position).map_or(0, |column| column.id))
        })
        .collect::<SqlResult<Vec<_>>>()?;
    let known = table.triggers.iter().find(|known| known.name == written.name);
    if known.is_some() && !written.or_replace {
        let message = format!("trigger \"{}\" for relation \"{}\" already exists", written.name, table.name);
        return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
    }
    let oid = match known {
        Some(known) => known.oid,
        None => cx.new_oid().await?,
    };
    let trigger = TriggerDescriptor {
        oid,
        name: written.name.clone(),
        routine: routine.oid,
        before: written.before,
        for_row: written.for_row,
        insert: written.insert,
        update: written.update,
        delete: written.delete,
        columns,
        when: match &written.when {
            Some(when) => Some(checked_when(cx, &table, written, when)?),
            None => None,
        },
        arguments: written.arguments.clone(),
        disabled: false,
    };
    let mut changed = (*table).clone();
    changed.triggers.retain(|known| known.name != written.name);
    changed.triggers.push(trigger);
    changed.triggers.sort_by(|a, b| a.name.cmp(&b.name));
    cx.put_table(changed).map(|_| ())
}

/// The condition of a trigger as it is stored, after checking that it can be computed.
fn checked_when(
    cx: &DdlContext<'_>,
    table: &Arc<TableDescriptor>,
    written: &CreateTrigger,
    when: &str,
) -> SqlResult<String> {
    let invalid = |message: &str| Err(SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message));
    let text = cx.stable_types(when)?;
    let (new, old) = (mentions(&text, "new")?, mentions(&text, "old")?);
    if !written.for_row && (new || old) {
        return invalid("statement trigger's WHEN condition cannot reference column values");
    }
    if written.delete && new {
        return invalid("DELETE trigger's WHEN condition cannot reference NEW values");
    }
    if written.insert && old {
        return invalid("INSERT trigger's WHEN condition cannot reference OLD values");
    }
    let view = cx.working_view()?;
    let eval = view.eval(cx.times);
    bind::bind_trigger_condition(&text, table, &view.bind_context(&eval, &[]))?;
    Ok(text)
}

fn mentions(text: &str, name: &str) -> SqlResult<bool> {
    let mut cursor = Cursor::new(text)?;
    while !cursor.is_end() {
        if cursor.at_words(name) {
            return Ok(true);
        }
        cursor.advance();
    }
    Ok(false)
}

/// DROP TRIGGER
pub(super) async fn drop(
    cx: &mut DdlContext<'_>,
    name: &str,
    table: &Name,
    if_exists: bool,
) -> SqlResult<()> {
    if if_exists && cx.find(table).is_none() {
        cx.notice(format!("relation \"{}\" does not exist, skipping", table.name));
        return Ok(());
    }
    let table = cx.own_table(table)?;
    if !table.triggers.iter().any(|known| known.name == name) {
        let error = undefined(name, &table.name);
        if if_exists {
            cx.notice(format!("trigger \"{name}\" for relation \"{}\" does not exist, skipping", table.name));
            return Ok(());
        }
        return Err(error);
    }
    cx.lock(table.oid, mode::ACCESS_EXCLUSIVE).await?;
    let mut changed = (*cx.table_by_oid(table.oid)?).clone();
    changed.triggers.retain(|known| known.name != name);
    cx.put_table(changed).map(|_| ())
}

/// ALTER TRIGGER … RENAME TO
pub(super) async fn rename(cx: &mut DdlContext<'_>, name: &str, table: &Name, to: &str) -> SqlResult<()> {
    let table = cx.own_table(table)?;
    cx.lock(table.oid, mode::ACCESS_EXCLUSIVE).await?;
    let mut changed = (*cx.table_by_oid(table.oid)?).clone();
    if changed.triggers.iter().any(|known| known.name == to) {
        let message = format!("trigger \"{to}\" for relation \"{}\" already exists", table.name);
        return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
    }
    let Some(trigger) = changed.triggers.iter_mut().find(|known| known.name == name) else {
        return Err(undefined(name, &table.name));
    };
    trigger.name = to.to_string();
    changed.triggers.sort_by(|a, b| a.name.cmp(&b.name));
    cx.put_table(changed).map(|_| ())
}

/// ENABLE and DISABLE TRIGGER, one or (`None`) all.
pub(super) fn enable(table: &mut TableDescriptor, name: Option<&str>, enabled: bool) -> SqlResult<()> {
    let mut found = name.is_none();
    for trigger in &mut table.triggers {
        if name.is_none_or(|name| name == trigger.name) {
            trigger.disabled = !enabled;
            found = true;
        }
    }
    if found { Ok(()) } else { Err(undefined(name.unwrap_or_default(), &table.name)) }
}

/// Whether a condition names a column: behind a period, as a field of `new` or `old`.
fn names(when: &str, column: &str) -> bool {
    let Ok(mut cursor) = Cursor::new(when) else { return false };
    while !cursor.is_end() {
        if !cursor.take_token(&Token::Period) {
            cursor.advance();
        } else if cursor.ident().is_ok_and(|word| word == column) {
            return true;
        }
    }
    false
}

impl DdlContext<'_> {
    /// The triggers of a table that name one of its columns.
    fn triggers_of_column(&self, table: &TableDescriptor, column: &str) -> Vec<String> {
        let id = table.columns.iter().find(|known| known.name == column).map(|known| known.id);
        let concerned = |trigger: &&TriggerDescriptor| {
            id.is_some_and(|id| trigger.columns.contains(&id))
                || trigger.when.as_deref().is_some_and(|when| names(when, column))
        };
        table.triggers.iter().filter(concerned).map(|trigger| trigger.name.clone()).collect()
    }

    /// Before a column goes: triggers that name it go with it (`cascade`), or it is refused.
    pub(super) fn release_column_triggers(
        &mut self,
        table: &Arc<TableDescriptor>,
        column: &str,
        cascade: bool,
        what: &str,
    ) -> SqlResult<()> {
        let found = self.triggers_of_column(table, column);
        if found.is_empty() {
            return Ok(());
        }
        for name in &found {
            let described = format!("trigger {name} on table {}", table.name);
            if !cascade {
                return Err(dependents(what, format!("{described} depends on {what}")));
            }
            self.notice(format!("drop cascades to {described}"));
        }
        let mut changed = (*self.table_by_oid(table.oid)?).clone();
        changed.triggers.retain(|trigger| !found.contains(&trigger.name));
        self.put_table(changed).map(|_| ())
    }

    /// Refuses to give another type to a column that triggers name.
    pub(super) fn refuse_retyping_for_triggers(
        &self,
        table: &TableDescriptor,
        column: &str,
    ) -> SqlResult<()> {
        let Some(name) = self.triggers_of_column(table, column).into_iter().next() else { return Ok(()) };
        let message = "cannot alter type of a column used in a trigger definition";
        Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            .with_detail(format!("trigger {name} on table {} depends on column \"{column}\"", table.name)))
    }
}
