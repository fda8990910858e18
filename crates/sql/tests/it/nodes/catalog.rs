//! What one node changes of the catalog, the others know when the statement has returned.

use super::{beside, node, two};
use crate::database::{Database, run, session};
use crate::online::check::indexes_match;
use crate::support::new_tenant;
use sql_types::SqlState;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_node_makes_the_others_have() {
    let (mut a, mut b) = two().await;
    a.execute("CREATE TABLE t (id int PRIMARY KEY, k int); INSERT INTO t VALUES (1, 10)").await;
    assert_eq!(beside(&b).await.rows("SELECT k FROM t").await, ["10"]);
    assert_eq!(b.rows("SELECT * FROM t").await, ["1|10"]);
    b.execute("ALTER TABLE t ADD COLUMN c int DEFAULT 7").await;
    assert_eq!(a.rows("SELECT * FROM t").await, ["1|10|7"]);
    a.execute("ALTER TABLE t DROP COLUMN k; CREATE VIEW v AS SELECT c FROM t").await;
    assert_eq!(b.rows("SELECT * FROM t, v").await, ["1|7|7"]);
    b.execute("TRUNCATE t").await;
    assert!(a.rows("SELECT * FROM v").await.is_empty());
    b.execute("DROP TABLE t CASCADE").await;
    assert_eq!(a.error("INSERT INTO t VALUES (2, 2)").await.code, SqlState::UNDEFINED_TABLE);
    assert_eq!(a.error("SELECT * FROM v").await.code, SqlState::UNDEFINED_TABLE);
    a.execute("CREATE TABLE t (other text)").await;
    assert_eq!(b.execute("INSERT INTO t VALUES ('x')").await.tag, "INSERT 0 1");
    // Nothing of a change that was undone.
    a.execute("BEGIN; ALTER TABLE t ADD COLUMN d int; CREATE TABLE u (a int); ROLLBACK").await;
    assert_eq!(b.rows("SELECT * FROM t").await, ["x"]);
    b.execute("CREATE TABLE u (b int)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_statements_follow_the_changes_of_others() {
    let (mut a, mut b) = two().await;
    a.execute("CREATE TABLE t (id int PRIMARY KEY, k int); INSERT INTO t SELECT n, n FROM generate_series(1, 100) n").await;
    b.execute("PREPARE q AS SELECT id FROM t WHERE k = $1").await;
    assert_eq!(b.rows("EXECUTE q(7)").await, ["7"]);
    a.execute("CREATE INDEX i ON t (k); ALTER TABLE t ALTER COLUMN k TYPE bigint; UPDATE t SET k = k + 1")
        .await;
    assert_eq!(b.rows("EXECUTE q(7)").await, ["6"]);
    indexes_match(&mut b, "t").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_joins_knows_what_there_is_and_a_change_knows_of_it() {
    let tenant = new_tenant().tenant();
    let mut a = node(tenant).await;
    a.execute("CREATE TABLE t (id int PRIMARY KEY)").await;
    // Nothing that it reads is validated.
    a.execute("BEGIN ISOLATION LEVEL READ COMMITTED; ALTER TABLE t ADD COLUMN c int").await;
    // It knows nothing of the lock.
    let mut b = node(tenant).await;
    b.execute("INSERT INTO t VALUES (1)").await;
    let error = a.error("COMMIT").await;
    assert_eq!(error.code, SqlState::SERIALIZATION_FAILURE, "{error:?}");
    repeated(&mut a, "ALTER TABLE t ADD COLUMN c int").await;
    assert_eq!(b.rows("SELECT * FROM t").await, ["1|NULL"]);
    b.engine.retire().await;
    repeated(&mut a, "ALTER TABLE t DROP COLUMN c").await;
    assert_eq!(b.rows("SELECT * FROM t").await, ["1"]);
}

/// Runs a statement that may lose against a node that registers. On a busy machine leases end between two statements, and then
/// nodes register anew.
async fn repeated(db: &mut Database, text: &str) {
    for _ in 0..20 {
        match db.run(text).await {
            Ok(_) => return,
            Err(error) => assert_eq!(error.code, SqlState::SERIALIZATION_FAILURE, "{text}: {error:?}"),
        }
    }
    panic!("{text}: lost every time");
}

/// Both nodes change the table in turn while sessions of both read and write it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_works_by_a_shape_that_is_gone() {
    let (mut a, mut b) = two().await;
    a.execute("CREATE TABLE t (id bigint PRIMARY KEY, k int); CREATE INDEX ON t (k)").await;
    let (stop, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut workers = Vec::new();
    for engine in [&a.engine, &a.engine, &b.engine, &b.engine] {
        let mut session = session(engine).await;
        let (stop, next) = (stop.clone(), next.clone());
        workers.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let id = next.fetch_add(1, Ordering::Relaxed);
                let text = match id % 4 {
                    0..2 => format!("INSERT INTO t (id, k) VALUES ({id}, {})", id % 10),
                    2 => format!("UPDATE t SET k = k + 1 WHERE id = {}", id / 2),
                    _ => format!("DELETE FROM t WHERE id = {}", id / 3),
                };
                if let Err(error) = run(&mut session, &text, &[]).await {
                    assert_eq!(error.code, SqlState::SERIALIZATION_FAILURE, "{text}: {error:?}");
                }
                match run(&mut session, "SELECT * FROM t WHERE k = 3", &[]).await {
                    // All rows have one shape, and columns added have their default.
                    Ok(found) => {
                        let widths: Vec<_> = found.rows.iter().map(|row| row.split('|').count()).collect();
                        assert!(widths.iter().all(|width| *width == widths[0]), "{found:?}");
                        assert!(found.rows.iter().all(|row| !row.contains("NULL")), "{found:?}");
                    }
                    // It was described with another shape.
                    Err(error) if error.message == "cached plan must not change result type" => {}
                    Err(error) => assert_eq!(error.code, SqlState::SERIALIZATION_FAILURE, "{error:?}"),
                }
            }
        }));
    }
    for round in 0..6 {
        let db = if round % 2 == 0 { &mut a } else { &mut b };
        let before = next.load(Ordering::Relaxed);
        db.execute(&format!("ALTER TABLE t ADD COLUMN c{round} int NOT NULL DEFAULT {round}")).await;
        db.execute(&format!("CREATE INDEX i{round} ON t (k, c{round})")).await;
        if round > 1 {
            db.execute(&format!("ALTER TABLE t DROP COLUMN c{}", round - 2)).await;
        }
        while next.load(Ordering::Relaxed) < before + 20 {
            tokio::task::yield_now().await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.expect("a worker");
    }
    for db in [&mut a, &mut b] {
        indexes_match(db, "t").await;
        assert_eq!(db.rows("SELECT count(*) FROM t WHERE c4 <> 4 OR c5 <> 5").await, ["0"]);
    }
}
