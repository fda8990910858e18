//! pg_catalog, information_schema and pg_dormouse: computed tables, and the functions that know the catalog.
//!
//! Which tables there are, with their OIDs and columns, stands in `data/tables.txt`, taken from
//! PostgreSQL 15; those of `pg_dormouse` are our own. Rows are made when a query reads a table ([`rows`]), from the catalog snapshot of
//! the statement and what the node knows of its sessions; a table of which nothing exists here
//! (publications, rules…) is empty. OIDs are the same in all tables: those of PostgreSQL for what is
//! built in, those of the descriptors for the user's objects.
//!
//! # What is missing
//!
//! Counters of accesses (`pg_stat_*`), `pg_statistic` (`pg_stats` has what it would), privileges of columns, casts
//! and conversions as rows;
//! `pg_proc` and `pg_operator` list what the function registry has, under OIDs of our own.

mod builtin;
mod columns;
mod contention;
mod deparse;
mod functions;
mod information;
mod pg_class;
mod pg_misc;
mod pg_policy;
mod pg_progress;
mod pg_schema;
mod pg_stat_statements;
mod pg_stats;
mod pretty;
mod registry;
mod routine;
mod row;
mod settings_rows;
mod tables;
mod user_types;

use crate::bind::SystemRef;
use crate::session::view::SessionView;
use sql_types::{Row, SqlResult};

pub(crate) use builtin::{is_column_name, is_reserved_word, is_type_name};
pub(crate) use contention::{SCHEMA as INTERNAL_SCHEMA, blocking_pids};

/// Whether a schema is one of computed tables, in which nobody makes any.
pub(crate) fn is_schema(name: &str) -> bool {
    matches!(name, "pg_catalog" | "information_schema" | INTERNAL_SCHEMA)
}

/// A computed table by schema and name.
pub(crate) fn reference(schema: &str, name: &str) -> Option<SystemRef> {
    tables::find(schema, name).map(|table| SystemRef {
        name: table.full_name,
        oid: table.oid,
        columns: table.columns(),
    })
}

/// The rows of a computed table.
pub(crate) async fn rows(name: &'static str, view: &SessionView) -> SqlResult<Vec<Row>> {
    let Some((schema, table)) =
        name.split_once('.').and_then(|(schema, name)| Some((schema, tables::find(schema, name)?)))
    else {
        return Ok(Vec::new());
    };
    let cx = row::SystemContext { view, table };
    let rows = match schema {
        "information_schema" => routine::rows(&cx).unwrap_or_else(|| information::rows(&cx)),
        INTERNAL_SCHEMA => contention::rows(&cx).await?,
        _ => {
            match routine::rows(&cx)
                .or_else(|| pg_class::rows(&cx))
                .or_else(|| pg_policy::rows(&cx))
                .or_else(|| pg_schema::rows(&cx))
                .or_else(|| settings_rows::rows(&cx))
            {
                Some(rows) => rows,
                None => pg_misc::rows(&cx).await?,
            }
        }
    };
    Ok(rows)
}

#[cfg(test)]
mod tests;
