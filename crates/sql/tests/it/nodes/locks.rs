//! Strong table locks hold at all nodes.

use super::{AWAITED, beside, two};
use crate::online::{start, start_in, until};
use sql_types::SqlState;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_waits_for_writers_of_another_node_and_they_for_it() {
    let (mut a, mut b) = two().await;
    a.execute("CREATE TABLE t (id int PRIMARY KEY)").await;
    a.execute("BEGIN; INSERT INTO t VALUES (1)").await;
    let altering = start(&b.engine, "ALTER TABLE t ADD COLUMN c int").await;
    let mut watcher = beside(&a).await;
    until(&mut watcher, AWAITED, "1").await;
    // Whoever comes later waits behind it, as at one node.
    let later = start(&a.engine, "INSERT INTO t (id) VALUES (2)").await;
    until(&mut watcher, AWAITED, "2").await;
    a.execute("INSERT INTO t VALUES (3); COMMIT").await;
    altering.task.await.expect("a task").expect("a column");
    later.task.await.expect("a task").expect("a row");
    assert_eq!(b.rows("SELECT * FROM t ORDER BY id").await, ["1|NULL", "2|NULL", "3|NULL"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_table_keeps_the_sessions_of_all_nodes_out() {
    let (mut a, mut b) = two().await;
    a.execute("CREATE TABLE t (id int PRIMARY KEY)").await;
    b.execute("BEGIN; LOCK TABLE t IN SHARE MODE").await;
    assert!(a.rows("SELECT * FROM t").await.is_empty());
    a.execute("BEGIN; LOCK TABLE t IN SHARE MODE; COMMIT").await;
    for text in ["LOCK TABLE t NOWAIT", "LOCK TABLE t IN EXCLUSIVE MODE NOWAIT"] {
        a.execute("BEGIN").await;
        assert_eq!(a.error(text).await.code, SqlState::LOCK_NOT_AVAILABLE);
        a.execute("ROLLBACK").await;
    }
    a.execute("SET lock_timeout = '10ms'").await;
    assert_eq!(a.error("INSERT INTO t VALUES (1)").await.code, SqlState::LOCK_NOT_AVAILABLE);
    let writing = start(&a.engine, "INSERT INTO t VALUES (2)").await;
    until(&mut beside(&a).await, AWAITED, "1").await;
    b.execute("INSERT INTO t VALUES (3); COMMIT").await;
    writing.task.await.expect("a task").expect("a row");
    assert_eq!(b.rows("SELECT * FROM t ORDER BY id").await, ["2", "3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cycle_through_two_nodes_is_found() {
    let (mut a, mut b) = two().await;
    a.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)").await;
    a.execute("BEGIN; SELECT * FROM t").await;
    b.execute("BEGIN; LOCK TABLE u").await;
    let mut watcher = beside(&a).await;
    let crate::database::Database { session, .. } = b;
    let locking = start_in(session, "LOCK TABLE t");
    until(&mut watcher, AWAITED, "1").await;
    // One of the two gives way, and the other goes on.
    let reading = a.run("SELECT * FROM u").await;
    match reading {
        Err(error) => {
            assert_eq!(error.code, SqlState::DEADLOCK);
            a.execute("ROLLBACK").await;
            locking.task.await.expect("a task").expect("a lock");
        }
        Ok(_) => {
            let error = locking.task.await.expect("a task").expect_err("a cycle");
            assert_eq!(error.code, SqlState::DEADLOCK);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_that_lock_the_same_tables_take_turns() {
    let (mut a, b) = two().await;
    a.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (0)").await;
    let mut workers = Vec::new();
    for engine in [&a.engine, &b.engine, &a.engine, &b.engine] {
        let mut session = crate::database::session(engine).await;
        workers.push(tokio::spawn(async move {
            for _ in 0..5 {
                // Read committed: nothing but the lock keeps updates from being lost.
                let text = "BEGIN ISOLATION LEVEL READ COMMITTED; LOCK TABLE t IN EXCLUSIVE MODE; \
                            INSERT INTO t SELECT max(id) + 1 FROM t; COMMIT";
                crate::database::run(&mut session, text, &[]).await.expect("a turn");
            }
        }));
    }
    for worker in workers {
        worker.await.expect("a worker");
    }
    assert_eq!(a.rows("SELECT count(*), max(id) FROM t").await, ["21|20"]);
}
