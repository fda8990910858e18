//! Schemas, databases, extensions.

use super::DdlContext;
use crate::catalog::descriptor::{DatabaseDescriptor, SchemaDescriptor};
use sql_types::{SqlError, SqlResult, SqlState};

/// CREATE SCHEMA
pub(super) async fn create_schema(
    cx: &mut DdlContext<'_>,
    name: Option<&str>,
    if_not_exists: bool,
    owner: Option<&str>,
) -> SqlResult<()> {
    let owner = match owner {
        Some(owner) => cx.new_owner(owner)?,
        None => cx.role("current_user")?,
    };
    let name = name.unwrap_or(&owner.name).to_string();
    if name.starts_with("pg_") {
        let message = format!("unacceptable schema name \"{name}\"");
        return Err(SqlError::new(SqlState::RESERVED_NAME, message)
            .with_detail("The prefix \"pg_\" is reserved for system schemas."));
    }
    if cx.catalog.schema(cx.database(), &name).is_some() {
        if if_not_exists {
            cx.notice(format!("schema \"{name}\" already exists, skipping"));
            return Ok(());
        }
        return Err(SqlError::new(SqlState::DUPLICATE_SCHEMA, format!("schema \"{name}\" already exists")));
    }
    let database = cx.catalog.databases.get(&cx.database()).cloned();
    if let Some(database) = database
        && !cx.catalog.has_privilege(cx.user(), database.owner, database.oid, 'C')
    {
        return Err(crate::session::privileges::denied("database", &database.name));
    }
    let oid = cx.new_oid().await?;
    let database = cx.database();
    cx.put_schema(SchemaDescriptor { oid, database, name, owner: owner.oid, comment: None, dropped: false })
}

/// CREATE DATABASE
pub(super) async fn create_database(
    cx: &mut DdlContext<'_>,
    name: &str,
    owner: Option<&str>,
) -> SqlResult<()> {
    if cx.open.explicit {
        let message = "CREATE DATABASE cannot run inside a transaction block";
        return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message));
    }
    let user = cx.role("current_user")?;
    if !user.superuser && !user.create_db {
        return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied to create database"));
    }
    if cx.catalog.database(name).is_some() {
        return Err(SqlError::new(
            SqlState::DUPLICATE_DATABASE,
            format!("database \"{name}\" already exists"),
        ));
    }
    let owner = match owner {
        Some(owner) => cx.new_owner(owner)?.oid,
        None => user.oid,
    };
    let oid = cx.new_oid().await?;
    cx.put_database(DatabaseDescriptor {
        oid,
        name: name.to_string(),
        owner,
        settings: Vec::new(),
        comment: None,
        dropped: false,
    })
}

/// CREATE EXTENSION: what is built in under the name of an extension is there already.
pub(super) fn create_extension(cx: &DdlContext<'_>, name: &str, if_not_exists: bool) -> SqlResult<()> {
    match name {
        "plpgsql" | "pgcrypto" | "uuid-ossp" | "pg_stat_statements" => {
            if !if_not_exists && name == "plpgsql" {
                let message = format!("extension \"{name}\" already exists");
                return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
            }
            cx.notice(format!("extension \"{name}\" already exists, skipping"));
            Ok(())
        }
        other => Err(SqlError::unsupported(format!("extension \"{other}\""))),
    }
}

/// ALTER SCHEMA
pub(super) fn alter_schema(
    cx: &mut DdlContext<'_>,
    name: &str,
    rename: Option<&str>,
    owner: Option<&str>,
) -> SqlResult<()> {
    let Some(schema) = cx.catalog.schema(cx.database(), name).cloned() else {
        return Err(SqlError::new(SqlState::INVALID_SCHEMA, format!("schema \"{name}\" does not exist")));
    };
    cx.check_owner("schema", name, schema.owner)?;
    let mut changed = (*schema).clone();
    if let Some(to) = rename {
        if cx.catalog.schema(cx.database(), to).is_some() {
            return Err(SqlError::new(SqlState::DUPLICATE_SCHEMA, format!("schema \"{to}\" already exists")));
        }
        let in_use = cx.catalog.views.values().any(|view| view.search_path.iter().any(|path| path == name));
        if in_use {
            return Err(SqlError::unsupported(format!(
                "to rename schema \"{name}\" while a view was made with it"
            )));
        }
        changed.name = to.to_string();
    }
    if let Some(owner) = owner {
        changed.owner = cx.new_owner(owner)?.oid;
    }
    cx.put_schema(changed)?;
    // Defaults spell out the schema of the sequences they draw from.
    let sequences: Vec<_> =
        cx.catalog.sequences.values().filter(|sequence| sequence.schema == schema.oid).cloned().collect();
    cx.catalog.finish();
    for sequence in sequences {
        cx.renamed_sequence(sequence.oid, sequence.schema, &sequence.name)?;
    }
    Ok(())
}

/// ALTER DATABASE
pub(super) fn alter_database(
    cx: &mut DdlContext<'_>,
    name: &str,
    rename: Option<&str>,
    owner: Option<&str>,
) -> SqlResult<()> {
    let Some(database) = cx.catalog.database(name).cloned() else {
        return Err(SqlError::new(SqlState::INVALID_CATALOG, format!("database \"{name}\" does not exist")));
    };
    cx.check_owner("database", name, database.owner)?;
    let mut changed = (*database).clone();
    if let Some(to) = rename {
        if database.oid == cx.database() {
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "current database cannot be renamed"));
        }
        if cx.catalog.database(to).is_some() {
            return Err(SqlError::new(
                SqlState::DUPLICATE_DATABASE,
                format!("database \"{to}\" already exists"),
            ));
        }
        changed.name = to.to_string();
    }
    if let Some(owner) = owner {
        changed.owner = cx.new_owner(owner)?.oid;
    }
    cx.put_database(changed)
}
