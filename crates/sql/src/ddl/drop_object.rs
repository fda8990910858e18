//! DROP, and what depends on what.

use super::DdlContext;
use super::index;
use super::statement::ObjectKind;
use super::tokens::Name;
use super::user_type;
use crate::catalog::descriptor::{IndexDescriptor, TableDescriptor};
use crate::catalog::oids;
use crate::catalog::{Reader, Relation};
use crate::session::locks::mode;
use sql_types::{Oid, SqlError, SqlResult, SqlState};

/// DROP
pub(super) async fn drop_all(
    cx: &mut DdlContext<'_>,
    kind: ObjectKind,
    names: &[Name],
    if_exists: bool,
    cascade: bool,
) -> SqlResult<()> {
    // Objects that are dropped together may depend on each other.
    let together: Vec<Oid> = match kind {
        ObjectKind::Type | ObjectKind::Domain => {
            names.iter().filter_map(|name| cx.find_type(name)).map(|ty| ty.oid).collect()
        }
        _ => names.iter().filter_map(|name| cx.find(name)).map(Relation::oid).collect(),
    };
    for name in names {
        drop_one(cx, kind, name, if_exists, cascade, &together).await?;
    }
    Ok(())
}

/// Refuses what PostgreSQL refuses of DROP INDEX CONCURRENTLY.
pub(super) fn check_concurrent(names: &[Name], cascade: bool) -> SqlResult<()> {
    let refused = |what: &str| {
        let message = format!("DROP INDEX CONCURRENTLY does not support {what}");
        Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
    };
    if names.len() > 1 {
        return refused("dropping multiple objects");
    }
    if cascade { refused("CASCADE") } else { Ok(()) }
}

fn missing(cx: &DdlContext<'_>, kind: ObjectKind, name: &Name, if_exists: bool) -> SqlResult<()> {
    if if_exists {
        cx.notice(format!("{} \"{}\" does not exist, skipping", kind.word(), name.name));
        return Ok(());
    }
    Err(match kind {
        ObjectKind::Table
        | ObjectKind::View
        | ObjectKind::MaterializedView
        | ObjectKind::Sequence
        | ObjectKind::Index => cx.undefined(kind.word(), name),
        ObjectKind::Schema => {
            SqlError::new(SqlState::INVALID_SCHEMA, format!("schema \"{}\" does not exist", name.name))
        }
        ObjectKind::Database => {
            SqlError::new(SqlState::INVALID_CATALOG, format!("database \"{}\" does not exist", name.name))
        }
        other => {
            let message = format!("{} \"{}\" does not exist", other.word(), name.name);
            SqlError::new(SqlState::UNDEFINED_OBJECT, message)
        }
    })
}

async fn drop_one(
    cx: &mut DdlContext<'_>,
    kind: ObjectKind,
    name: &Name,
    if_exists: bool,
    cascade: bool,
    together: &[Oid],
) -> SqlResult<()> {
    match kind {
        ObjectKind::Table
        | ObjectKind::View
        | ObjectKind::MaterializedView
        | ObjectKind::Sequence
        | ObjectKind::Index => {
            let Some(found) = cx.find(name) else {
                if crate::system::reference(name.schema.as_deref().unwrap_or("pg_catalog"), &name.name)
                    .is_some()
                {
                    let message = format!("permission denied: \"{}\" is a system catalog", name.name);
                    return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
                }
                return missing(cx, kind, name, if_exists);
            };
            if found.kind() != kind.word() {
                let article = if kind == ObjectKind::Index { "an" } else { "a" };
                let message = format!("\"{}\" is not {article} {}", name.name, kind.word());
                let hint = format!("Use DROP {} to remove a {}.", found.kind().to_uppercase(), found.kind());
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).with_hint(hint));
            }
            drop_relation(cx, found, cascade, together).await
        }
        ObjectKind::Type | ObjectKind::Domain => {
            user_type::drop(cx, kind, name, if_exists, cascade, together).await
        }
        ObjectKind::Schema => drop_schema(cx, name, if_exists, cascade).await,
        ObjectKind::Database => drop_database(cx, name, if_exists),
        ObjectKind::Role => super::role::drop(cx, name, if_exists),
        ObjectKind::Extension if name.name == "plpgsql" => Err(SqlError::new(
            SqlState::DEPENDENT_OBJECTS,
            "cannot drop extension plpgsql because it is required by the database system",
        )),
        other => missing(cx, other, name, if_exists),
    }
}

/// Drops a relation with what belongs to it.
pub(super) async fn drop_relation(
    cx: &mut DdlContext<'_>,
    relation: Relation,
    cascade: bool,
    together: &[Oid],
) -> SqlResult<()> {
    match relation {
        Relation::Table(oid) => drop_table(cx, oid, cascade, together).await,
        Relation::MaterializedView(oid) => cx.drop_materialized(oid, cascade, together).await,
        Relation::View(oid) => {
            let Some(view) = cx.catalog.views.get(&oid).cloned() else { return Ok(()) };
            cx.check_owner("view", &view.name, view.owner)?;
            release_readers(cx, oid, cascade, &format!("view {}", view.name), together)?;
            cx.remove_view(oid)
        }
        Relation::Sequence(oid) => {
            let Some(sequence) = cx.catalog.sequences.get(&oid).cloned() else { return Ok(()) };
            cx.check_owner("sequence", &sequence.name, sequence.owner)?;
            let default = cx.sequence_default(sequence.schema, &sequence.name);
            release_sequence(cx, oid, &sequence.name, &default, cascade)?;
            cx.remove_sequence(oid)
        }
        Relation::Index(_, table, _) => {
            let table = cx.table_by_oid(table)?;
            cx.check_owner("index", &table.name, table.owner)?;
            if let Relation::Index(oid, ..) = relation
                && let Some(index) =
                    table.indexes.iter().find(|index| index.oid == oid && index.unique && !index.constraint)
            {
                release_index(cx, &table, index, cascade)?;
            }
            index::drop(cx, relation).await
        }
    }
}

async fn drop_table(cx: &mut DdlContext<'_>, oid: Oid, cascade: bool, together: &[Oid]) -> SqlResult<()> {
    let Some(table) = cx.catalog.table(oid).cloned() else { return Ok(()) };
    cx.check_owner("table", &table.name, table.owner)?;
    cx.lock(oid, mode::ACCESS_EXCLUSIVE).await?;
    cx.check_unused(&table, "DROP TABLE")?;
    let referring: Vec<_> =
        cx.catalog.referencing(oid).into_iter().filter(|(other, _)| other.oid != oid).collect();
    for (other, position) in referring {
        let Some(key) = other.foreign_keys.get(position).cloned() else { continue };
        if !cascade && !together.contains(&other.oid) {
            let detail =
                format!("constraint {} on table {} depends on table {}", key.name, other.name, table.name);
            return Err(dependents(&format!("table {}", table.name), detail));
        }
        if cascade && !together.contains(&other.oid) {
            cx.notice(format!("drop cascades to constraint {} on table {}", key.name, other.name));
        }
        cx.lock(other.oid, mode::ACCESS_EXCLUSIVE).await?;
        let other = cx.table_by_oid(other.oid)?;
        let mut changed = (*other).clone();
        changed.foreign_keys.retain(|known| known.oid != key.oid);
        cx.put_table(changed)?;
    }
    release_readers(cx, oid, cascade, &format!("table {}", table.name), together)?;
    cx.garbage(table.storage, 0)?;
    for sequence in table.columns.iter().filter_map(|column| column.sequence) {
        if cx.catalog.sequences.contains_key(&sequence) {
            cx.remove_sequence(sequence)?;
        }
    }
    let owned: Vec<Oid> = cx
        .catalog
        .sequences
        .values()
        .filter(|sequence| sequence.owned_by.is_some_and(|(owner, _)| owner == oid))
        .map(|sequence| sequence.oid)
        .collect();
    for sequence in owned {
        cx.remove_sequence(sequence)?;
    }
    cx.remove_table(oid)
}

pub(super) fn dependents(what: &str, detail: String) -> SqlError {
    let message = format!("cannot drop {what} because other objects depend on it");
    SqlError::new(SqlState::DEPENDENT_OBJECTS, message)
        .with_detail(detail)
        .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
}

/// Drops the views that read a column of a table (`cascade`), or refuses.
pub(super) fn release_column_readers(
    cx: &mut DdlContext<'_>,
    table: &TableDescriptor,
    column: &str,
    cascade: bool,
    what: &str,
) -> SqlResult<()> {
    cx.release_policies(table.oid, cascade, what, &[])?;
    let readers = cx.readers_of_column(table.oid, column)?;
    release_each(cx, readers, cascade, what, &[])
}

/// Drops the views that read a relation or name a type (`cascade`), or refuses.
pub(super) fn release_readers(
    cx: &mut DdlContext<'_>,
    oid: Oid,
    cascade: bool,
    what: &str,
    together: &[Oid],
) -> SqlResult<()> {
    cx.release_policies(oid, cascade, what, together)?;
    let readers = cx.catalog.readers(oid);
    release_each(cx, readers, cascade, what, together)
}

fn release_each(
    cx: &mut DdlContext<'_>,
    readers: Vec<Reader>,
    cascade: bool,
    what: &str,
    together: &[Oid],
) -> SqlResult<()> {
    for reader in readers {
        let (reading, named) = (reader.relation.oid(), format!("{} {}", reader.relation.kind(), reader.name));
        if !cascade && !together.contains(&reading) {
            return Err(dependents(what, format!("{named} depends on {what}")));
        }
        if !together.contains(&reading) {
            cx.notice(format!("drop cascades to {named}"));
        }
        release_readers(cx, reading, true, &named, together)?;
        match reader.relation {
            Relation::MaterializedView(_) => {
                let Some(table) = cx.catalog.table(reading).cloned() else { continue };
                cx.garbage(table.storage, 0)?;
                cx.remove_table(reading)?;
            }
            _ if cx.catalog.views.contains_key(&reading) => cx.remove_view(reading)?,
            _ => {}
        }
    }
    Ok(())
}

/// Drops the foreign keys that need a unique index (`cascade`), or refuses.
pub(super) fn release_index(
    cx: &mut DdlContext<'_>,
    table: &TableDescriptor,
    index: &IndexDescriptor,
    cascade: bool,
) -> SqlResult<()> {
    let columns: Vec<_> = index.columns.iter().map(|(id, _)| *id).collect();
    let same = |ids: &[u32]| ids.len() == columns.len() && ids.iter().all(|id| columns.contains(id));
    let other_serves = table.indexes.iter().any(|other| {
        let ids: Vec<_> = other.columns.iter().map(|(id, _)| *id).collect();
        other.is_key() && other.oid != index.oid && same(&ids)
    });
    if other_serves || !index.is_key() {
        return Ok(());
    }
    for (referring, position) in cx.catalog.referencing(table.oid) {
        let Some(key) = referring.foreign_keys.get(position).cloned() else { continue };
        if !same(&key.referenced_columns) {
            continue;
        }
        let what = format!("constraint {} on table {}", index.name, table.name);
        if !cascade {
            let detail = format!(
                "constraint {} on table {} depends on index {}",
                key.name, referring.name, index.name
            );
            return Err(dependents(&what, detail));
        }
        cx.notice(format!("drop cascades to constraint {} on table {}", key.name, referring.name));
        let referring = cx.table_by_oid(referring.oid)?;
        let mut changed = (*referring).clone();
        changed.foreign_keys.retain(|known| known.oid != key.oid);
        cx.put_table(changed)?;
    }
    Ok(())
}

/// Takes the defaults that draw from a sequence away (`cascade`), or refuses.
fn release_sequence(
    cx: &mut DdlContext<'_>,
    oid: Oid,
    name: &str,
    default: &str,
    cascade: bool,
) -> SqlResult<()> {
    let uses = |text: &Option<String>| text.as_ref().is_some_and(|text| text.contains(default));
    let tables: Vec<_> = cx
        .catalog
        .tables
        .values()
        .filter(|table| {
            table.columns.iter().any(|column| column.sequence == Some(oid) || uses(&column.default))
        })
        .cloned()
        .collect();
    for table in tables {
        if !cascade {
            let column =
                table.columns.iter().find(|column| column.sequence == Some(oid) || uses(&column.default));
            let column = column.map_or("", |column| column.name.as_str());
            let detail = format!(
                "default value for column {column} of table {} depends on sequence {name}",
                table.name
            );
            return Err(dependents(&format!("sequence {name}"), detail));
        }
        let mut changed = (*table).clone();
        for column in &mut changed.columns {
            if column.sequence == Some(oid) || uses(&column.default) {
                cx.notice(format!(
                    "drop cascades to default value for column {} of table {}",
                    column.name, table.name
                ));
                (column.default, column.sequence, column.identity) = (None, None, None);
            }
        }
        cx.put_table(changed)?;
    }
    Ok(())
}

async fn drop_schema(cx: &mut DdlContext<'_>, name: &Name, if_exists: bool, cascade: bool) -> SqlResult<()> {
    let Some(schema) = cx.catalog.schema(cx.database(), &name.name).cloned() else {
        return missing(cx, ObjectKind::Schema, name, if_exists);
    };
    if [oids::PG_CATALOG, oids::INFORMATION_SCHEMA, oids::DORMOUSE_INTERNAL, oids::PG_TEMP]
        .contains(&schema.oid)
    {
        let message =
            format!("cannot drop schema {} because it is required by the database system", schema.name);
        return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message));
    }
    cx.check_owner("schema", &schema.name, schema.owner)?;
    let mut inside: Vec<Relation> =
        cx.catalog.relations(schema.database, schema.oid).map(|(_, found)| found).collect();
    inside.retain(|relation| !matches!(relation, Relation::Index(..)));
    let types = user_type::types_in(cx, schema.database, schema.oid);
    if let (true, false, Some(ty)) = (inside.is_empty(), cascade, types.first()) {
        let detail = format!("type {} depends on schema {}", ty.name, schema.name);
        return Err(dependents(&format!("schema {}", schema.name), detail));
    }
    let routines = super::alter_routine::routines_in(cx, schema.database, schema.oid);
    if let (true, false, Some(routine)) = (inside.is_empty(), cascade, routines.first()) {
        let detail = format!("function {} depends on schema {}", cx.shown_routine(routine), schema.name);
        return Err(dependents(&format!("schema {}", schema.name), detail));
    }
    if !inside.is_empty() && !cascade {
        let first = cx
            .catalog
            .relations(schema.database, schema.oid)
            .next()
            .map(|(name, found)| (name.to_string(), found.kind()));
        let (object, kind) = first.unwrap_or_default();
        let detail = format!("{kind} {object} depends on schema {}", schema.name);
        return Err(dependents(&format!("schema {}", schema.name), detail));
    }
    let together: Vec<Oid> = inside.iter().map(|relation| relation.oid()).collect();
    for relation in inside {
        drop_relation(cx, relation, true, &together).await?;
    }
    for routine in super::alter_routine::routines_in(cx, schema.database, schema.oid) {
        if cx.catalog.routines.contains_key(&routine.oid) {
            super::alter_routine::drop_one(cx, &routine, true)?;
        }
    }
    for ty in types {
        if cx.catalog.user_type(ty.ty()).is_some() {
            user_type::drop_type(cx, &ty, true, &[]).await?;
        }
    }
    cx.drop_schema(&schema)
}

fn drop_database(cx: &mut DdlContext<'_>, name: &Name, if_exists: bool) -> SqlResult<()> {
    if cx.open.explicit {
        let message = "DROP DATABASE cannot run inside a transaction block";
        return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message));
    }
    let Some(database) = cx.catalog.database(&name.name).cloned() else {
        return missing(cx, ObjectKind::Database, name, if_exists);
    };
    cx.check_owner("database", &database.name, database.owner)?;
    if database.oid == cx.database() {
        return Err(SqlError::new(SqlState::OBJECT_IN_USE, "cannot drop the currently open database"));
    }
    let users = cx.engine().sessions.count_database(database.oid);
    if users > 0 {
        let message = format!("database \"{}\" is being accessed by other users", database.name);
        let detail = format!("There are {users} other sessions using the database.");
        return Err(SqlError::new(SqlState::OBJECT_IN_USE, message).with_detail(detail));
    }
    let tables: Vec<_> =
        cx.catalog.tables.values().filter(|table| table.database == database.oid).cloned().collect();
    for table in tables {
        cx.garbage(table.storage, 0)?;
        cx.remove_table(table.oid)?;
    }
    let sequences: Vec<Oid> =
        cx.catalog.sequences.values().filter(|s| s.database == database.oid).map(|s| s.oid).collect();
    for oid in sequences {
        cx.remove_sequence(oid)?;
    }
    let views: Vec<Oid> =
        cx.catalog.views.values().filter(|v| v.database == database.oid).map(|v| v.oid).collect();
    for oid in views {
        cx.remove_view(oid)?;
    }
    for routine in super::alter_routine::routines_in(cx, database.oid, 0) {
        cx.remove_routine(routine.oid)?;
    }
    for ty in user_type::types_in(cx, database.oid, 0) {
        cx.remove_type(ty.oid)?;
    }
    let schemas: Vec<_> =
        cx.catalog.schemas.values().filter(|s| s.database == database.oid).cloned().collect();
    for schema in schemas.iter().filter(|schema| schema.oid >= crate::catalog::descriptor::FIRST_USER_OID) {
        cx.drop_schema(schema)?;
    }
    cx.drop_database(&database)
}
