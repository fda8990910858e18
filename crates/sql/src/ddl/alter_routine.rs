//! ALTER, COMMENT ON and DROP FUNCTION, and what depends on functions.

use super::DdlContext;
use super::drop_object::{dependents, release_readers};
use super::statement::{RoutineAction, RoutineName};
use super::tokens::Cursor;
use crate::catalog::descriptor::TableDescriptor;
use crate::catalog::routine::RoutineDescriptor;
use sql_types::{Oid, SqlError, SqlResult, SqlState, Type};
use sqlparser::tokenizer::Token;
use std::sync::Arc;

/// ALTER FUNCTION
pub(super) fn alter(cx: &mut DdlContext<'_>, name: &RoutineName, action: &RoutineAction) -> SqlResult<()> {
    let found = cx.own_routine(name)?;
    let mut changed = (*found).clone();
    let types: Vec<Type> = found.argument_types().collect();
    match action {
        RoutineAction::Rename(to) => {
            cx.check_routine_free(found.schema, to, &types, found.oid)?;
            refuse_named(cx, &found, "rename")?;
            changed.name = to.clone();
        }
        RoutineAction::Owner(role) => changed.owner = cx.new_owner(role)?.oid,
        RoutineAction::SetSchema(schema) => {
            let name = super::tokens::Name {
                schema: Some(schema.clone()),
                name: found.name.clone(),
                position: None,
            };
            let schema = cx.schema_for(&name)?;
            cx.check_routine_free(schema, &found.name, &types, found.oid)?;
            refuse_named(cx, &found, "move")?;
            changed.schema = schema;
        }
        RoutineAction::Options(options) => {
            changed.volatility = options.volatility.unwrap_or(found.volatility);
            changed.strict = options.strict.unwrap_or(found.strict);
            changed.definer = options.definer.unwrap_or(found.definer);
            if let Some(path) = &options.search_path {
                changed.search_path.clone_from(path);
            }
            changed.parallel = options.parallel.unwrap_or(found.parallel);
            changed.cost = options.cost.or(found.cost);
        }
    }
    cx.put_routine(changed)
}

/// Refuses to give another name to a function that texts which are kept call by the one it has.
fn refuse_named(cx: &DdlContext<'_>, routine: &RoutineDescriptor, verb: &str) -> SqlResult<()> {
    let what = format!("{verb} function {}", cx.shown_routine(routine));
    cx.refuse_views_of(routine.oid, &what)?;
    for table in cx.catalog.tables.values() {
        let mut defaults =
            table.columns.iter().filter_map(|column| Some((column, column.default.as_deref()?)));
        if let Some((column, _)) = defaults.find(|(_, text)| calls(text, &routine.name)) {
            let user = format!("column {} of table {}", column.name, table.name);
            return Err(SqlError::unsupported(format!("to {what} while the default of {user} calls it"))
                .with_hint("Drop the default, make the change, and set the default again."));
        }
    }
    Ok(())
}

/// COMMENT ON FUNCTION
pub(super) fn comment(cx: &mut DdlContext<'_>, name: &RoutineName, text: Option<&str>) -> SqlResult<()> {
    let mut changed = (*cx.own_routine(name)?).clone();
    changed.comment = text.filter(|text| !text.is_empty()).map(str::to_string);
    cx.put_routine(changed)
}

/// DROP FUNCTION
pub(super) fn drop_all(
    cx: &mut DdlContext<'_>,
    names: &[RoutineName],
    if_exists: bool,
    cascade: bool,
) -> SqlResult<()> {
    for name in names {
        let found = match cx.find_routine(name) {
            Ok(found) => found,
            Err(error) if if_exists && error.code == SqlState::UNDEFINED_FUNCTION => {
                let message = match &name.arguments {
                    Some(_) => error.message,
                    None => format!("function {}() does not exist", name.name.written()),
                };
                cx.notice(format!("{message}, skipping"));
                continue;
            }
            Err(error) => return Err(error),
        };
        cx.check_owner("function", &found.name, found.owner)?;
        drop_one(cx, &found, cascade)?;
    }
    Ok(())
}

/// Drops a function with what depends on it (`cascade`), or refuses.
pub(super) fn drop_one(cx: &mut DdlContext<'_>, routine: &RoutineDescriptor, cascade: bool) -> SqlResult<()> {
    let what = format!("function {}", cx.shown_routine(routine));
    let tables: Vec<Arc<TableDescriptor>> = cx.catalog.tables.values().cloned().collect();
    for table in tables {
        let mut changed = (*table).clone();
        let mut users = Vec::new();
        for trigger in table.triggers.iter().filter(|trigger| trigger.routine == routine.oid) {
            users.push(format!("trigger {} on table {}", trigger.name, table.name));
        }
        changed.triggers.retain(|trigger| trigger.routine != routine.oid);
        for column in &mut changed.columns {
            if column.default.as_deref().is_some_and(|text| calls(text, &routine.name)) {
                users.push(format!("default value for column {} of table {}", column.name, table.name));
                column.default = None;
            }
        }
        if users.is_empty() {
            continue;
        }
        if !cascade {
            let details: Vec<String> = users.iter().map(|user| format!("{user} depends on {what}")).collect();
            return Err(dependents(&what, details.join("\n")));
        }
        for user in users {
            cx.notice(format!("drop cascades to {user}"));
        }
        cx.put_table(changed)?;
    }
    release_readers(cx, routine.oid, cascade, &what, &[])?;
    cx.remove_routine(routine.oid)
}

/// Whether an expression calls a function of a name.
fn calls(text: &str, name: &str) -> bool {
    let Ok(mut cursor) = Cursor::new(text) else { return false };
    while !cursor.is_end() {
        if let Some(Token::Word(_)) = cursor.peek()
            && cursor.column_ident().is_ok_and(|word| word == name)
        {
            if cursor.peek() == Some(&Token::LParen) {
                return true;
            }
            continue;
        }
        cursor.advance();
    }
    false
}

/// The functions of a schema, or with schema 0 of a database.
pub(super) fn routines_in(cx: &DdlContext<'_>, database: Oid, schema: Oid) -> Vec<Arc<RoutineDescriptor>> {
    let within = |routine: &&Arc<RoutineDescriptor>| {
        routine.database == database && (schema == 0 || routine.schema == schema)
    };
    cx.catalog.routines.values().filter(within).cloned().collect()
}

/// The functions that have a type among their arguments or as their value.
pub(super) fn routines_over(cx: &DdlContext<'_>, ty: Type) -> Vec<Arc<RoutineDescriptor>> {
    let is = |other: Type| other == ty || other.element() == Some(ty);
    let over = |routine: &&Arc<RoutineDescriptor>| {
        is(routine.returns)
            || routine.argument_types().any(is)
            || routine.outputs.iter().any(|output| is(output.ty))
    };
    cx.catalog.routines.values().filter(over).cloned().collect()
}
