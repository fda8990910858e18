//! What the node knows of itself: sessions, locks, sequences' values. Everything else is empty.
//!
//! Row locks are the KV nodes', which are asked: by `pg_locks` always, by `pg_stat_activity` if a statement of
//! another session runs and does not wait for something here.

use super::contention::Found;
use super::row::{SystemContext, bool, int, oid, optional, text};
use crate::session::activity::Activity;
use crate::session::locks::{LockKey, mode};
use crate::session::sequences;
use crate::session::statements::NamedStatement;
use sql_types::{Datum, Row, SqlResult, Type};
use std::sync::Arc;

/// The rows of a table.
pub(super) async fn rows(cx: &SystemContext<'_>) -> SqlResult<Vec<Row>> {
    Ok(match cx.table.name {
        "pg_stat_activity" => activity(cx).await,
        "pg_locks" => locks(cx).await,
        "pg_prepared_statements" => statements(cx),
        "pg_cursors" => cursors(cx),
        "pg_sequences" => sequence_values(cx).await?,
        "pg_stat_database" => stat_database(cx),
        "pg_stat_user_tables" | "pg_stat_all_tables" => stat_tables(cx),
        "pg_stat_statements" => super::pg_stat_statements::rows(cx),
        "pg_stats" => super::pg_stats::rows(cx),
        "pg_stat_progress_create_index" => super::pg_progress::rows(cx),
        _ => Vec::new(),
    })
}

fn time(micros: i64) -> Datum {
    if micros == 0 { Datum::Null } else { Datum::Timestamptz(micros) }
}

async fn activity(cx: &SystemContext<'_>) -> Vec<Row> {
    let catalog = cx.catalog();
    let engine = &cx.view.shared.engine;
    let sessions = engine.sessions.all();
    let awaited = engine.locks.awaited();
    let may_wait = |session: &Arc<Activity>| {
        session.is_running()
            && session.session != cx.view.shared.session
            && !awaited.contains_key(&session.session)
    };
    let rows = if sessions.iter().any(may_wait) { Found::read_if_possible(cx.view).await } else { None };
    let wait_event = |session: &Arc<Activity>| {
        let table = awaited.get(&session.session).map(|key| match key {
            LockKey::Table(_) => "relation",
            LockKey::Catalog => "object",
            LockKey::Advisory(..) => "advisory",
        });
        let row = rows.as_ref().filter(|_| may_wait(session)).and_then(|found| found.wait_event(session));
        match table.or(row) {
            Some(lock) => (text("Lock"), text(lock)),
            None if session.is_running() => (Datum::Null, Datum::Null),
            None => (text("Client"), text("ClientRead")),
        }
    };
    sessions
        .iter()
        .map(|session| {
            let (transaction, query, changed) = session.times();
            let mine = cx.view.is_superuser() || session.user == cx.view.user;
            let shown = if mine { session.query() } else { "<insufficient privilege>".into() };
            let database = catalog.databases.get(&session.database).map(|database| database.name.as_str());
            let address = session.client_address.as_deref();
            let host = address.map(|address| address.rsplit_once(':').map_or(address, |(host, _)| host));
            let (wait_event_type, wait_event) = wait_event(session);
            cx.row(vec![
                ("wait_event_type", wait_event_type),
                ("wait_event", wait_event),
                ("datid", oid(session.database)),
                ("datname", optional(database)),
                ("pid", int(i64::from(session.process_id))),
                ("usesysid", oid(session.user)),
                ("usename", Datum::text(catalog.role_name(session.user))),
                ("application_name", Datum::Text(session.application.lock().clone())),
                ("client_addr", optional(host)),
                ("backend_start", Datum::Timestamptz(session.started)),
                ("xact_start", time(transaction)),
                ("query_start", time(query)),
                ("state_change", time(changed)),
                ("state", text(session.state())),
                ("query", Datum::Text(shown)),
                ("backend_type", text("client backend")),
            ])
        })
        .collect()
}

async fn locks(cx: &SystemContext<'_>) -> Vec<Row> {
    let mut rows = own_locks(cx);
    if let Some(found) = Found::read_if_possible(cx.view).await {
        rows.extend(found.pg_locks(cx));
    }
    rows
}

/// Table locks and advisory locks.
fn own_locks(cx: &SystemContext<'_>) -> Vec<Row> {
    let sessions = cx.view.shared.engine.sessions.all();
    let locks = cx.view.shared.engine.locks.rows();
    locks
        .into_iter()
        .map(|lock| {
            let holder = sessions.iter().find(|session| session.session == lock.owner);
            let mut values = vec![
                ("pid", holder.map_or(Datum::Null, |session| Datum::Int4(session.process_id))),
                ("mode", text(mode::NAMES.get(lock.mode as usize).copied().unwrap_or(""))),
                ("granted", bool(lock.granted)),
                ("fastpath", bool(false)),
            ];
            match lock.key {
                LockKey::Table(table) => {
                    values.push(("locktype", text("relation")));
                    values.push(("database", oid(holder.map_or(0, |session| session.database))));
                    values.push(("relation", oid(table)));
                }
                LockKey::Catalog => values.push(("locktype", text("object"))),
                LockKey::Advisory(database, key, two) => {
                    values.push(("locktype", text("advisory")));
                    values.push(("database", oid(database)));
                    values.push(("classid", oid((key >> 32) as u32)));
                    values.push(("objid", oid(key as u32)));
                    values.push(("objsubid", int(if two { 2 } else { 1 })));
                }
            }
            cx.row(values)
        })
        .collect()
}

fn statements(cx: &SystemContext<'_>) -> Vec<Row> {
    let named = cx.view.shared.named.lock();
    let row = |(name, statement): (&String, &NamedStatement)| {
        let prepared = &statement.prepared;
        let query = prepared.statement.as_ref().map_or_else(|| "".into(), |statement| statement.text.clone());
        let types = prepared.param_types().iter().map(|ty| Datum::Oid(ty.0)).collect();
        cx.row(vec![
            ("name", text(name)),
            ("statement", Datum::Text(query)),
            ("prepare_time", Datum::Timestamptz(statement.prepared_at)),
            ("parameter_types", Datum::array(Type::REGTYPE, types)),
            ("from_sql", bool(statement.from_sql)),
        ])
    };
    named.statements.iter().map(row).collect()
}

fn cursors(cx: &SystemContext<'_>) -> Vec<Row> {
    let named = cx.view.shared.named.lock();
    let row = |(name, query, created, hold): &(String, std::sync::Arc<str>, i64, bool)| {
        cx.row(vec![
            ("name", text(name)),
            ("statement", Datum::Text(query.clone())),
            ("is_holdable", Datum::Bool(*hold)),
            ("is_binary", Datum::Bool(false)),
            ("is_scrollable", Datum::Bool(*hold)),
            ("creation_time", Datum::Timestamptz(*created)),
        ])
    };
    named.cursors.iter().map(row).collect()
}

async fn sequence_values(cx: &SystemContext<'_>) -> SqlResult<Vec<Row>> {
    let mut rows = Vec::new();
    for sequence in cx.catalog().sequences.values().filter(|sequence| sequence.database == cx.database()) {
        let (last, called) = sequences::peek(&cx.view.shared, sequence).await?;
        rows.push(cx.row(vec![
            ("schemaname", text(cx.catalog().schema_name(sequence.database, sequence.schema).unwrap_or(""))),
            ("sequencename", text(&sequence.name)),
            ("sequenceowner", Datum::text(cx.catalog().role_name(sequence.owner))),
            ("data_type", oid(sequence.ty.0)),
            ("start_value", int(sequence.start)),
            ("min_value", int(sequence.min)),
            ("max_value", int(sequence.max)),
            ("increment_by", int(sequence.increment)),
            ("cycle", bool(sequence.cycle)),
            ("cache_size", int(sequence.cache)),
            ("last_value", if called { int(last) } else { Datum::Null }),
        ]));
    }
    Ok(rows)
}

fn stat_database(cx: &SystemContext<'_>) -> Vec<Row> {
    let databases = cx.catalog().databases.values();
    databases
        .map(|database| {
            let sessions = cx.view.shared.engine.sessions.count_database(database.oid);
            cx.row(vec![
                ("datid", oid(database.oid)),
                ("datname", text(&database.name)),
                ("numbackends", int(sessions as i64)),
            ])
        })
        .collect()
}

fn stat_tables(cx: &SystemContext<'_>) -> Vec<Row> {
    let tables = cx.catalog().tables.values().filter(|table| table.database == cx.database());
    tables
        .map(|table| {
            let statistics = table.statistics.get().unwrap_or_default();
            cx.row(vec![
                ("relid", oid(table.oid)),
                ("schemaname", text(cx.catalog().schema_name(table.database, table.schema).unwrap_or(""))),
                ("relname", text(&table.name)),
                ("seq_scan", int(0)),
                ("n_live_tup", int(table.statistics.rows().unwrap_or(0.0) as i64)),
                ("n_dead_tup", int(0)),
                ("n_mod_since_analyze", int(table.statistics.changes() as i64)),
                ("last_analyze", statistics.analyzed.map_or(Datum::Null, Datum::Timestamptz)),
                ("last_autoanalyze", statistics.auto_analyzed.map_or(Datum::Null, Datum::Timestamptz)),
                ("analyze_count", int(statistics.analyze_count as i64)),
                ("autoanalyze_count", int(statistics.auto_analyze_count as i64)),
            ])
        })
        .collect()
}
