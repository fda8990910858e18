//! Schema changes: CREATE, ALTER, DROP, TRUNCATE, COMMENT, GRANT.
//!
//! # How a change is made
//!
//! Statements are read from their tokens ([`parse()`]) and run in the session's transaction, on a copy of
//! the catalog ([`DdlContext::catalog`]); each changed descriptor is written to the transaction. The
//! copy is what later statements of the transaction see, and becomes the node's catalog when it commits
//! (`session::schema`). Rollback, also to a savepoint, undoes both.
//!
//! A statement locks the tables it changes as PostgreSQL does: CREATE INDEX lets others read, most
//! changes exclude everybody else until the transaction ends. VALIDATE CONSTRAINT lets others write ([`validate`]).
//!
//! Indexes can be built and dropped in steps that let writes go on ([`online`]).
//!
//! # Writing many rows
//!
//! New indexes and rewritten tables get keys that nothing refers to before the commit ([`rewrite`]).
//! Few rows are written by the transaction itself, many in transactions of their own, batch by batch;
//! what an aborted change leaves behind is cleared afterwards. The transaction's snapshot then moves to
//! the present so that it sees them; if something else it has read changed meanwhile, it fails with
//! 40001.
//!
//! # What is missing
//!
//! Partitions, inheritance, deferrable primary keys, exclusion constraints,
//! composite and range types, procedures, rules: each fails with
//! 0A000 and its name. A crash of the node in the middle of a large rewrite leaves keys behind that nothing refers
//! to.

mod alter_column;
mod alter_routine;
mod alter_table;
mod comment;
mod constraint;
mod context;
mod create_table;
mod domain;
mod drop_object;
mod generated;
mod index;
mod materialized;
mod naming;
pub(crate) mod online;
mod parse;
mod parse_policy;
mod parse_routine;
mod parse_table;
mod parse_type;
pub(crate) mod placement;
mod policy;
mod renamed;
mod rewrite;
mod role;
mod routine;
mod schema_object;
mod scram;
mod sequence;
pub(crate) mod statement;
mod temporary;
pub(crate) mod tokens;
mod trigger;
mod truncate;
mod type_names;
mod user_type;
mod validate;
mod view;

pub(crate) use context::DdlContext;
pub(crate) use parse::{parse, parse_select_into};
pub(crate) use temporary::{makes_temporary, only_temporary};
pub(crate) use type_names::unmark;

use sql_types::{SqlError, SqlResult};
use statement::Ddl;

/// Runs a schema change and returns its tag.
pub(crate) async fn run(ddl: &Ddl, cx: &mut DdlContext<'_>) -> SqlResult<String> {
    match ddl {
        Ddl::CreateRoutine(written) => routine::create(cx, written).await?,
        Ddl::AlterRoutine { name, action } => alter_routine::alter(cx, name, action)?,
        Ddl::DropRoutine { names, if_exists, cascade } => {
            alter_routine::drop_all(cx, names, *if_exists, *cascade)?;
        }
        Ddl::CommentRoutine { name, text } => alter_routine::comment(cx, name, text.as_deref())?,
        Ddl::CreateTrigger(written) => trigger::create(cx, written).await?,
        Ddl::RenameTrigger { name, table, to } => trigger::rename(cx, name, table, to).await?,
        Ddl::DropTrigger { name, table, if_exists } => trigger::drop(cx, name, table, *if_exists).await?,
        Ddl::CreateTable(table) => create_table::create(cx, table).await?,
        Ddl::CreateTableAs { name, if_not_exists, columns, query, with_data, on_commit } => {
            let (if_not_exists, with_data) = (*if_not_exists, *with_data);
            return create_table::create_as(cx, name, if_not_exists, columns, query, with_data, *on_commit)
                .await;
        }
        Ddl::CreateIndex(index) => index::create(cx, index).await?,
        Ddl::CreateSchema { name, if_not_exists, owner } => {
            schema_object::create_schema(cx, name.as_deref(), *if_not_exists, owner.as_deref()).await?;
        }
        Ddl::CreateDatabase { name, owner } => {
            schema_object::create_database(cx, name, owner.as_deref()).await?
        }
        Ddl::CreateSequence { name, if_not_exists, options } => {
            sequence::create(cx, name, *if_not_exists, options).await?;
        }
        Ddl::CreateView { name, or_replace, columns, query } => {
            view::create(cx, name, *or_replace, columns, query).await?;
        }
        Ddl::CreateMaterializedView { name, if_not_exists, columns, query, with_data } => {
            return materialized::create(cx, name, *if_not_exists, columns, query, *with_data).await;
        }
        Ddl::Refresh { name, concurrently, with_data } => {
            materialized::refresh(cx, name, *concurrently, *with_data).await?;
        }
        Ddl::CreateEnum { name, labels } => user_type::create_enum(cx, name, labels).await?,
        Ddl::CreateDomain(written) => domain::create(cx, written).await?,
        Ddl::AlterType { name, domain, action } => user_type::alter(cx, name, *domain, action).await?,
        Ddl::Policy(written) => policy::change(cx, written).await?,
        Ddl::CreateRole { name, options } => role::create(cx, name, options).await?,
        Ddl::CreateExtension { name, if_not_exists } => {
            schema_object::create_extension(cx, name, *if_not_exists)?
        }
        Ddl::AlterTable { name, if_exists, kind, actions } => {
            alter_table::alter(cx, name, *if_exists, *kind, actions).await?;
        }
        Ddl::AlterSequence { name, if_exists, options } => {
            sequence::alter(cx, name, *if_exists, options).await?
        }
        Ddl::AlterRole { name, options } => role::alter(cx, name, options)?,
        Ddl::RenameRole { name, to } => role::rename(cx, name, to)?,
        Ddl::AlterSettings { role, database, name, value } => {
            role::settings(cx, role.as_deref(), database.as_deref(), name.as_deref(), value.as_deref())?;
        }
        Ddl::AlterSchema { name, rename, owner } => {
            schema_object::alter_schema(cx, name, rename.as_deref(), owner.as_deref())?;
        }
        Ddl::AlterDatabase { name, rename, owner } => {
            schema_object::alter_database(cx, name, rename.as_deref(), owner.as_deref())?;
        }
        Ddl::Drop { kind, names, if_exists, cascade, concurrently } => {
            if *concurrently {
                drop_object::check_concurrent(names, *cascade)?;
            }
            drop_object::drop_all(cx, *kind, names, *if_exists, *cascade).await?;
        }
        Ddl::Truncate { tables, restart, cascade } => {
            truncate::truncate(cx, tables, *restart, *cascade).await?
        }
        Ddl::Comment { kind, name, of, text } => {
            comment::comment(cx, *kind, name, of.as_deref(), text.as_deref())?
        }
        Ddl::Grant { grant, privileges, target, roles } => {
            role::grant(cx, *grant, privileges.as_deref(), target, roles)?;
        }
        Ddl::Reindex { .. } => {}
        Ddl::Nothing(tag) => return Ok((*tag).to_string()),
        Ddl::Unsupported(what) => return Err(SqlError::unsupported(what)),
    }
    Ok(ddl.tag().to_string())
}

#[cfg(test)]
mod tests;
