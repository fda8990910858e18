//! Temporary tables between sessions: who sees them, what they hold up, and what is left of them.

use crate::database::{Database, engine_of, run, session};
use crate::support::client_of;
use kv_api::Span;
use kv_client::{ScanOptions, TxnOptions};
use sql::catalog::store::{Section, record_key};
use sql::engine::Engine;
use sql::exec::NodeBudget;
use sql_types::SqlState;
use std::sync::Arc;
use std::time::Duration;

/// How many storage numbers are recorded as garbage.
async fn garbage(engine: &Engine) -> usize {
    let prefix = record_key(Section::Garbage, &[]);
    let end = kv_api::key::prefix_end(&prefix).expect("an end");
    let txn = engine.kv().begin(TxnOptions::default());
    let page = txn.scan(&Span::new(prefix, end), ScanOptions::default()).await.expect("a page");
    txn.rollback().await;
    page.rows.len()
}

/// Waits until all garbage is cleared, which happens in the background.
async fn until_cleared(engine: &Engine) {
    while garbage(engine).await > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn each_session_has_its_own_and_they_end_with_it() {
    let mut db = Database::open().await;
    let mut other = session(&db.engine).await;
    db.execute("CREATE TEMP TABLE t (a serial PRIMARY KEY, b int); INSERT INTO t (b) VALUES (1), (2)").await;
    assert_eq!(run(&mut other, "SELECT * FROM t", &[]).await.unwrap_err().code, SqlState::UNDEFINED_TABLE);
    let count = "SELECT count(*) FROM pg_class WHERE relname = 't'";
    assert_eq!(run(&mut other, count, &[]).await.unwrap().rows, ["0"]);
    run(&mut other, "CREATE TEMP TABLE t (x text); INSERT INTO t VALUES ('mine')", &[]).await.unwrap();
    assert_eq!(run(&mut other, "SELECT * FROM t", &[]).await.unwrap().rows, ["mine"]);
    assert_eq!(db.rows("SELECT * FROM t ORDER BY a").await, ["1|1", "2|2"]);
    // Two tables and a sequence.
    assert_eq!(garbage(&db.engine).await, 3);
    other.close().await;
    while garbage(&db.engine).await > 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(db.rows("SELECT count(*) FROM t").await, ["2"]);
    let Database { engine, session } = db;
    session.close().await;
    until_cleared(&engine).await;
}

#[tokio::test]
async fn a_transaction_with_temporary_tables_holds_nobody_up() {
    let mut db = Database::open().await;
    let mut other = session(&db.engine).await;
    db.execute("BEGIN; CREATE TEMP TABLE t (a int); INSERT INTO t VALUES (1)").await;
    run(&mut other, "CREATE TABLE p (a int); INSERT INTO p VALUES (5)", &[]).await.unwrap();
    run(&mut other, "CREATE TEMP TABLE t (a int)", &[]).await.unwrap();
    assert_eq!(db.rows("SELECT t.a + p.a FROM t, p").await, ["6"]);
    db.execute("CREATE INDEX ON t (a); COMMIT").await;
    assert_eq!(db.rows("SELECT * FROM t WHERE a = 1").await, ["1"]);
    // A schema change of the session's own leaves them where they are.
    db.execute("BEGIN; CREATE TABLE q AS SELECT a FROM t; ALTER TABLE t ADD b int DEFAULT 7; COMMIT").await;
    assert_eq!(db.rows("SELECT q.a, t.b FROM q JOIN t USING (a)").await, ["1|7"]);
    assert_eq!(run(&mut other, "SELECT count(*) FROM t", &[]).await.unwrap().rows, ["0"]);
    assert_eq!(run(&mut other, "SELECT a FROM q", &[]).await.unwrap().rows, ["1"]);
}

#[tokio::test]
async fn what_a_rollback_undoes_is_gone() {
    let mut db = Database::open().await;
    db.execute("CREATE TEMP TABLE kept (a int); INSERT INTO kept VALUES (1)").await;
    db.execute("BEGIN; DROP TABLE kept; CREATE TEMP TABLE kept (b text); ROLLBACK").await;
    assert_eq!(db.rows("SELECT a FROM kept").await, ["1"]);
    db.execute("BEGIN; TRUNCATE kept; SAVEPOINT s; DROP TABLE kept; ROLLBACK TO s; COMMIT").await;
    assert_eq!(db.rows("SELECT count(*) FROM kept").await, ["0"]);
    db.execute("DISCARD ALL").await;
    assert_eq!(db.error("SELECT * FROM kept").await.code, SqlState::UNDEFINED_TABLE);
    until_cleared(&db.engine).await;
}

#[test]
fn the_next_process_clears_what_one_left_behind() {
    let process = || tokio::runtime::Runtime::new().expect("a runtime");
    let (first, next) = (process(), process());
    let tenant = first.block_on(async {
        let mut db = Database::open().await;
        db.execute("CREATE TABLE p (a int); CREATE TEMP TABLE t AS SELECT n FROM generate_series(1, 100) n")
            .await;
        assert_eq!(garbage(&db.engine).await, 1);
        let tenant = db.engine.kv().tenant();
        // Its sessions stay open.
        std::mem::forget(db);
        tenant
    });
    let count = "SELECT count(*) FROM pg_class WHERE relname IN ('p', 't')";
    next.block_on(async {
        let mut other = crate::nodes::node(tenant).await;
        assert_eq!(other.rows(count).await, ["1"]);
        // Not while it may live.
        assert_eq!(garbage(&other.engine).await, 1);
        other.engine.retire().await;
    });
    first.shutdown_background();
    next.block_on(async {
        let memory = NodeBudget::new(NodeBudget::DEFAULT_BYTES, None);
        let engine = engine_of(Arc::new(client_of(tenant)), memory).await;
        let mut fresh = session(&engine).await;
        assert_eq!(run(&mut fresh, count, &[]).await.unwrap().rows, ["1"]);
        until_cleared(&engine).await;
    });
}
