//! Who waits for whom, as SQL shows it.

use crate::database::{Database, run};
use sql::engine::Engine;
use sql::session::{Session, SessionParams};
use sql_types::{SqlResult, SqlState};
use std::sync::Arc;
use tokio::task::JoinHandle;

/// A session with a process id of its own.
async fn session(engine: &Arc<Engine>, user: &str, process_id: i32) -> Session {
    let params = SessionParams {
        user: user.into(),
        database: "postgres".into(),
        process_id,
        ..SessionParams::default()
    };
    Session::open(engine.clone(), params).await.expect("a session")
}

/// Runs a statement that waits; returns the session with what came of it.
fn wait_with(mut session: Session, text: &'static str) -> JoinHandle<(Session, SqlResult<()>)> {
    tokio::spawn(async move {
        let result = run(&mut session, text, &[]).await.map(drop);
        (session, result)
    })
}

/// The rows of a query once it has some.
async fn rows_in_the_end(db: &mut Database, text: &str) -> Vec<String> {
    loop {
        let rows = db.rows(text).await;
        if !rows.is_empty() {
            return rows;
        }
        tokio::task::yield_now().await;
    }
}

const WAITING: &str = "SELECT pid, schema_name, table_name, index_name, key, mode, blocking_pids \
                       FROM pg_dormouse.locks WHERE NOT granted";

#[tokio::test]
async fn a_third_session_sees_who_waits_for_whom_and_then_who_did() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a int, b text, n int, PRIMARY KEY (a, b)); INSERT INTO t VALUES (1, 'x', 0)")
        .await;
    let mut first = session(&db.engine, "dormouse", 101).await;
    let second = session(&db.engine, "dormouse", 102).await;
    run(&mut first, "BEGIN; UPDATE t SET n = 1 WHERE a = 1 AND b = 'x'", &[]).await.unwrap();
    let waiting = wait_with(second, "UPDATE t SET n = n + 10 WHERE a = 1 AND b = 'x'");

    let seen = rows_in_the_end(&mut db, WAITING).await;
    assert_eq!(seen, ["102|public|t|t_pkey|(a, b)=(1, x)|Exclusive|{101}"]);
    let held = "SELECT pid, key, mode, duration >= '0'::interval, duration < '1 h' \
                FROM pg_dormouse.locks WHERE granted";
    assert_eq!(db.rows(held).await, ["101|(a, b)=(1, x)|Exclusive|t|t"]);
    assert_eq!(db.rows("SELECT pg_blocking_pids(102), pg_blocking_pids(101)").await, ["{101}|{}"]);
    let rows = "SELECT pid, relation::regclass, mode, granted, waitstart IS NULL FROM pg_locks \
                WHERE locktype = 'tuple' ORDER BY pid";
    assert_eq!(db.rows(rows).await, ["101|t|ExclusiveLock|t|t", "102|t|ExclusiveLock|f|f"]);
    let activity = "SELECT pid, state, wait_event_type, wait_event FROM pg_stat_activity \
                    WHERE pid > 100 ORDER BY pid";
    assert_eq!(
        db.rows(activity).await,
        ["101|idle in transaction|Client|ClientRead", "102|active|Lock|tuple"]
    );
    let open = "SELECT pid, user_name, state, ranges, locks, waiting, blocking_pids \
                FROM pg_dormouse.transactions ORDER BY pid";
    assert_eq!(db.rows(open).await, ["101|dormouse|open|1|1|f|{}", "102|dormouse|open|1|0|t|{101}"]);
    assert_eq!(db.rows("SHOW LOCKS").await.len(), 2);
    assert_eq!(db.rows("show transactions").await.len(), 2);
    assert!(db.rows("SELECT * FROM pg_dormouse.contention_events").await.is_empty());

    run(&mut first, "COMMIT", &[]).await.unwrap();
    waiting.await.unwrap().1.unwrap();
    assert_eq!(db.rows("SELECT n FROM t").await, ["11"]);
    let events = "SELECT outcome, table_name, key, mode, waiting_transaction_id <> blocking_transaction_id, \
                  duration > '0'::interval, ended <= clock_timestamp() \
                  FROM pg_dormouse.contention_events";
    assert_eq!(db.rows(events).await, ["granted|t|(a, b)=(1, x)|Exclusive|t|t|t"]);
    assert!(db.rows("SHOW LOCKS").await.is_empty());
}

#[tokio::test]
async fn table_locks_and_lock_timeouts_show_too() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    let mut first = session(&db.engine, "dormouse", 201).await;
    let mut second = session(&db.engine, "dormouse", 202).await;
    run(&mut first, "BEGIN; SELECT a FROM t FOR SHARE", &[]).await.unwrap();
    run(&mut second, "SET lock_timeout = '5ms'", &[]).await.unwrap();
    let (mut second, result) = wait_with(second, "DELETE FROM t").await.unwrap();
    assert_eq!(result.unwrap_err().code, SqlState::LOCK_NOT_AVAILABLE);
    let events = "SELECT outcome, mode, duration >= '4 ms' FROM pg_dormouse.contention_events";
    assert_eq!(db.rows(events).await, ["timed out|Exclusive|t"]);
    run(&mut second, "SET lock_timeout = 0", &[]).await.unwrap();
    let altering = wait_with(second, "ALTER TABLE t ADD COLUMN b int");
    let seen = "SELECT wait_event_type, wait_event, pg_blocking_pids(pid) FROM pg_stat_activity \
                WHERE pid = 202 AND wait_event_type = 'Lock'";
    assert_eq!(rows_in_the_end(&mut db, seen).await, ["Lock|relation|{201}"]);
    run(&mut first, "COMMIT", &[]).await.unwrap();
    altering.await.unwrap().1.unwrap();
}

#[tokio::test]
async fn values_of_keys_are_for_who_may_read_the_table() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE ROLE eve LOGIN").await;
    db.execute("BEGIN; SELECT FROM t WHERE a = 1 FOR UPDATE").await;
    let mut eve = session(&db.engine, "eve", 301).await;
    let shown = "SELECT DISTINCT table_name, key FROM pg_dormouse.locks WHERE mode = 'Exclusive'";
    assert_eq!(run(&mut eve, shown, &[]).await.unwrap().rows, ["t|NULL"]);
    assert_eq!(db.rows(shown).await, ["t|(a)=(1)"]);
    db.execute("ROLLBACK").await;
}

#[tokio::test]
async fn the_schema_is_there_for_everybody_and_not_to_be_changed() {
    let mut db = Database::open().await;
    let tables = "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                  WHERE nspname = 'pg_dormouse' ORDER BY 1";
    assert_eq!(db.rows(tables).await, ["contention_events", "locks", "transactions"]);
    assert_eq!(db.rows("SELECT 'pg_dormouse.locks'::regclass").await, ["pg_dormouse.locks"]);
    for table in ["contention_events", "locks", "transactions"] {
        assert!(db.rows(&format!("SELECT * FROM pg_dormouse.{table}")).await.is_empty());
    }
    for (text, code) in [
        ("CREATE TABLE pg_dormouse.t (a int)", SqlState::INSUFFICIENT_PRIVILEGE),
        ("DROP SCHEMA pg_dormouse CASCADE", SqlState::DEPENDENT_OBJECTS),
        ("CREATE SCHEMA pg_dormouse", SqlState::RESERVED_NAME),
        ("SELECT * FROM pg_dormouse.nothing", SqlState::UNDEFINED_TABLE),
        ("SHOW LOCKS NOW", SqlState::SYNTAX_ERROR),
    ] {
        assert_eq!(db.error(text).await.code, code, "{text}");
    }
    db.execute("SET search_path = pg_dormouse").await;
    assert!(db.rows("SELECT * FROM locks").await.is_empty());
}
