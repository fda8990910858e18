//! COMMENT ON.

use super::DdlContext;
use super::constraint::column_position;
use super::statement::ObjectKind;
use super::tokens::Name;
use crate::catalog::Relation;
use sql_types::{Oid, SqlError, SqlResult, SqlState};

/// COMMENT ON
pub(super) fn comment(
    cx: &mut DdlContext<'_>,
    kind: ObjectKind,
    name: &Name,
    of: Option<&str>,
    text: Option<&str>,
) -> SqlResult<()> {
    let text = text.filter(|text| !text.is_empty()).map(str::to_string);
    match kind {
        ObjectKind::Table
        | ObjectKind::View
        | ObjectKind::MaterializedView
        | ObjectKind::Sequence
        | ObjectKind::Column => {
            let Some(found) = cx.find(name) else { return Err(cx.undefined("relation", name)) };
            comment_relation(cx, found, of, text)
        }
        ObjectKind::Schema => {
            let Some(schema) = cx.catalog.schema(cx.database(), &name.name).cloned() else {
                let message = format!("schema \"{}\" does not exist", name.name);
                return Err(SqlError::new(SqlState::INVALID_SCHEMA, message));
            };
            cx.check_owner("schema", &schema.name, schema.owner)?;
            let mut changed = (*schema).clone();
            changed.comment = text;
            cx.put_schema(changed)
        }
        ObjectKind::Database => {
            let Some(database) = cx.catalog.database(&name.name).cloned() else {
                let message = format!("database \"{}\" does not exist", name.name);
                return Err(SqlError::new(SqlState::INVALID_CATALOG, message));
            };
            cx.check_owner("database", &database.name, database.owner)?;
            let mut changed = (*database).clone();
            changed.comment = text;
            cx.put_database(changed)
        }
        ObjectKind::Role => {
            let mut changed = (*cx.role(&name.name)?).clone();
            changed.comment = text;
            cx.put_role(changed)
        }
        ObjectKind::Type | ObjectKind::Domain => super::user_type::comment(cx, name, text),
        ObjectKind::Extension => Ok(()),
        ObjectKind::Index => match cx.find(name) {
            Some(Relation::Index(oid, table, _)) => comment_index(cx, oid, table, text),
            Some(_) => {
                let message = format!("\"{}\" is not an index", name.name);
                Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message))
            }
            None => Err(cx.undefined("relation", name)),
        },
        ObjectKind::Constraint => comment_constraint(cx, name, of.unwrap_or_default(), text),
        ObjectKind::Other(what) => Err(SqlError::unsupported(format!("a comment on a {what}"))),
    }
}

fn comment_index(cx: &mut DdlContext<'_>, index: Oid, table: Oid, text: Option<String>) -> SqlResult<()> {
    let table = cx.table_by_oid(table)?;
    cx.check_owner("index", &table.name, table.owner)?;
    let mut changed = (*table).clone();
    if let Some(index) = changed.indexes.iter_mut().find(|known| known.oid == index) {
        index.comment = text;
    }
    cx.put_table(changed).map(|_| ())
}

fn comment_constraint(
    cx: &mut DdlContext<'_>,
    table: &Name,
    constraint: &str,
    text: Option<String>,
) -> SqlResult<()> {
    let Some(Relation::Table(oid)) = cx.find(table) else { return Err(cx.undefined("relation", table)) };
    let table = cx.table_by_oid(oid)?;
    cx.check_owner("table", &table.name, table.owner)?;
    let mut changed = (*table).clone();
    let indexes = changed.indexes.iter_mut().filter(|index| index.constraint);
    let indexes = indexes.map(|index| (&index.name, &mut index.constraint_comment));
    let checks = changed.checks.iter_mut().map(|check| (&check.name, &mut check.comment));
    let keys = changed.foreign_keys.iter_mut().map(|key| (&key.name, &mut key.comment));
    let Some((_, comment)) = indexes.chain(checks).chain(keys).find(|(name, _)| *name == constraint) else {
        let message = format!("constraint \"{constraint}\" for table \"{}\" does not exist", table.name);
        return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
    };
    *comment = text;
    cx.put_table(changed).map(|_| ())
}

fn comment_relation(
    cx: &mut DdlContext<'_>,
    relation: Relation,
    column: Option<&str>,
    text: Option<String>,
) -> SqlResult<()> {
    match relation {
        Relation::Table(oid) | Relation::MaterializedView(oid) => {
            let table = cx.table_by_oid(oid)?;
            cx.check_owner("table", &table.name, table.owner)?;
            let mut changed = (*table).clone();
            match column {
                Some(column) => {
                    let at = column_position(&table, column)?;
                    changed.columns[at].comment = text;
                }
                None => changed.comment = text,
            }
            cx.put_table(changed).map(|_| ())
        }
        Relation::View(oid) => {
            let Some(view) = cx.catalog.views.get(&oid).cloned() else { return Ok(()) };
            cx.check_owner("view", &view.name, view.owner)?;
            if column.is_some() {
                return Err(SqlError::unsupported("a comment on a column of a view"));
            }
            let mut changed = (*view).clone();
            changed.comment = text;
            cx.put_view(changed)
        }
        Relation::Sequence(oid) => {
            let Some(sequence) = cx.catalog.sequences.get(&oid).cloned() else { return Ok(()) };
            cx.check_owner("sequence", &sequence.name, sequence.owner)?;
            let mut changed = (*sequence).clone();
            changed.comment = text;
            cx.put_sequence(changed)
        }
        Relation::Index(oid, table, _) => comment_index(cx, oid, table, text),
    }
}
