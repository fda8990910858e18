//! Builds that wait, that end before their time, and what is refused meanwhile.

use super::check::{indexes_match, keys};
use super::{start, start_in, until, until_batches};
use crate::database::{Database, run, session, session_with};
use sql_types::SqlState;

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, k int); INSERT INTO t SELECT n, n % 10 FROM generate_series(1, 3000) n";
const BUILD: &str = "CREATE INDEX CONCURRENTLY i ON t (k)";

async fn half_built() -> (Database, super::Running) {
    let mut db = Database::open().await;
    db.execute(TABLE).await;
    db.engine.backfill_pace().stop_after(1);
    let building = start(&db.engine, BUILD).await;
    until_batches(&mut db, 1).await;
    (db, building)
}

/// Nothing is left of the index and its keys, and it can be built.
async fn is_undone(db: &mut Database) {
    assert!(db.rows("SELECT 1 FROM pg_class WHERE relname = 'i'").await.is_empty());
    while keys(db, "t").await != 3000 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    db.engine.backfill_pace().go_on();
    db.execute(BUILD).await;
    indexes_match(db, "t").await;
}

#[tokio::test]
async fn a_build_that_is_cancelled_leaves_nothing() {
    let (mut db, building) = half_built().await;
    building.cancel.cancel();
    assert_eq!(building.task.await.unwrap().unwrap_err().code, SqlState::QUERY_CANCELED);
    is_undone(&mut db).await;
}

#[tokio::test]
async fn nor_does_one_that_times_out_or_whose_client_leaves() {
    let mut db = Database::open().await;
    db.execute(TABLE).await;
    db.engine.backfill_pace().stop_after(1);
    let hasty = session_with(&db.engine, &[("statement_timeout", "300ms")]).await;
    let error = start_in(hasty, BUILD).task.await.unwrap().unwrap_err();
    assert_eq!(error.code, SqlState::QUERY_CANCELED);
    is_undone(&mut db).await;

    let (mut db, building) = half_built().await;
    building.task.abort();
    until(&mut db, "SELECT count(*) FROM pg_class WHERE relname = 'i'", "0").await;
    is_undone(&mut db).await;
}

#[tokio::test]
async fn an_expression_that_fails_leaves_nothing() {
    let mut db = Database::open().await;
    db.execute(TABLE).await;
    db.execute("UPDATE t SET k = 0 WHERE id = 2500; UPDATE t SET k = 1 WHERE k = 0 AND id <> 2500").await;
    let error = db.error("CREATE INDEX CONCURRENTLY i ON t ((1 / k))").await;
    assert_eq!(error.code, SqlState::DIVISION_BY_ZERO);
    is_undone(&mut db).await;
}

#[tokio::test]
async fn a_build_waits_for_transactions_that_began_before_and_nobody_waits_for_it() {
    let mut db = Database::open().await;
    db.execute(TABLE).await;
    let mut old = session(&db.engine).await;
    run(&mut old, "BEGIN; INSERT INTO t VALUES (5000, 1); DELETE FROM t WHERE id = 1", &[]).await.unwrap();
    let building = start(&db.engine, BUILD).await;
    let phase = "SELECT phase, lockers_total, lockers_done FROM pg_stat_progress_create_index";
    until(&mut db, phase, "waiting for writers before build|1|0").await;
    assert_eq!(
        db.rows("SELECT indisvalid, indisready FROM pg_index WHERE indexrelid = 'i'::regclass").await,
        ["f|f"]
    );
    db.execute(
        "INSERT INTO t VALUES (5001, 1); UPDATE t SET k = 11 WHERE id = 2; DELETE FROM t WHERE id = 3",
    )
    .await;
    // It is one of them that has not ended, and goes on with what it began.
    run(&mut old, "UPDATE t SET k = 12 WHERE id = 5001; DELETE FROM t WHERE id = 4; COMMIT", &[])
        .await
        .unwrap();
    building.task.await.unwrap().unwrap();
    indexes_match(&mut db, "t").await;
    assert_eq!(db.rows("SELECT id FROM t WHERE k > 10 ORDER BY id").await, ["2", "5001"]);
}

#[tokio::test]
async fn a_transaction_that_reads_on_is_not_disturbed() {
    let mut db = Database::open().await;
    db.execute(TABLE).await;
    let mut reader = session(&db.engine).await;
    let count = "SELECT count(*), sum(k) FROM t";
    run(&mut reader, "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY", &[]).await.unwrap();
    let before = run(&mut reader, count, &[]).await.unwrap().rows;
    db.engine.backfill_pace().stop_after(1);
    let building = start(&db.engine, BUILD).await;
    until_batches(&mut db, 1).await;
    db.execute("UPDATE t SET k = 100 WHERE id = 77").await;
    assert_eq!(run(&mut reader, count, &[]).await.unwrap().rows, before);
    db.engine.backfill_pace().go_on();
    building.task.await.unwrap().unwrap();
    run(&mut reader, "COMMIT", &[]).await.unwrap();
}

#[tokio::test]
async fn other_schema_changes_wait_or_are_refused_by_name() {
    let (mut db, building) = half_built().await;
    let altering = start(&db.engine, "ALTER TABLE t ADD COLUMN x int DEFAULT 5").await;
    let waits = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted";
    until(&mut db, waits, "1").await;
    // It does not keep others from changing other tables.
    db.execute("CREATE TABLE other (a int)").await;
    db.execute("BEGIN; INSERT INTO other VALUES (1)").await;
    let refused = db.error("DROP INDEX i").await;
    assert_eq!(refused.code, SqlState::OBJECT_IN_USE);
    assert_eq!(refused.message, "cannot change table \"t\" because an index of it is being built or dropped");
    db.execute("ROLLBACK").await;
    db.engine.backfill_pace().go_on();
    building.task.await.unwrap().unwrap();
    altering.task.await.unwrap().unwrap();
    indexes_match(&mut db, "t").await;
    assert_eq!(db.rows("SELECT x FROM t WHERE id = 9").await, ["5"]);
}

#[tokio::test]
async fn builds_of_one_table_come_one_after_the_other() {
    let (mut db, building) = half_built().await;
    let second = start(&db.engine, "CREATE INDEX CONCURRENTLY i2 ON t (k, id)").await;
    let waits = "SELECT count(*) FROM pg_locks WHERE mode = 'ShareUpdateExclusiveLock' AND NOT granted";
    until(&mut db, waits, "1").await;
    db.engine.backfill_pace().go_on();
    building.task.await.unwrap().unwrap();
    second.task.await.unwrap().unwrap();
    indexes_match(&mut db, "t").await;
    db.execute("CREATE INDEX CONCURRENTLY IF NOT EXISTS i ON t (k)").await;
    let again = db.error(BUILD).await;
    assert_eq!(again.code, SqlState::DUPLICATE_TABLE);
}

#[tokio::test]
async fn what_is_several_transactions_is_not_part_of_one() {
    let mut db = Database::open().await;
    db.execute(TABLE).await;
    db.execute("CREATE INDEX i ON t (k)").await;
    for (text, what) in [
        ("CREATE INDEX CONCURRENTLY j ON t (k)", "CREATE INDEX CONCURRENTLY"),
        ("CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS j ON t (k)", "CREATE INDEX CONCURRENTLY"),
        ("DROP INDEX CONCURRENTLY i", "DROP INDEX CONCURRENTLY"),
        ("REINDEX TABLE CONCURRENTLY t", "REINDEX CONCURRENTLY"),
        ("REINDEX (CONCURRENTLY) INDEX i", "REINDEX CONCURRENTLY"),
    ] {
        db.execute("BEGIN").await;
        let error = db.error(text).await;
        assert_eq!(error.code.as_str(), "25001", "{text}");
        assert_eq!(error.message, format!("{what} cannot run inside a transaction block"));
        db.execute("ROLLBACK").await;
        let implicit = db.error(&format!("INSERT INTO t VALUES (-1, 0); {text}")).await;
        assert_eq!(implicit.code.as_str(), "25001", "{text}");
    }
    for text in ["DROP INDEX CONCURRENTLY i, t_pkey", "DROP INDEX CONCURRENTLY i CASCADE"] {
        assert_eq!(db.error(text).await.code, SqlState::FEATURE_NOT_SUPPORTED, "{text}");
    }
    assert_eq!(db.error("DROP INDEX CONCURRENTLY t_pkey").await.code, SqlState::DEPENDENT_OBJECTS);
    let inside = db.error("DO 'BEGIN CREATE INDEX CONCURRENTLY j ON t (k); END'").await;
    assert_eq!(inside.code.as_str(), "25001");
    db.execute("REINDEX TABLE CONCURRENTLY t").await;
    db.execute("BEGIN; CREATE INDEX j ON t (k); INSERT INTO t VALUES (-1, -1); ROLLBACK").await;
    assert!(db.rows("SELECT 1 FROM pg_class WHERE relname = 'j'").await.is_empty());
    db.execute("CREATE TEMP TABLE tmp (a int)").await;
    db.execute("CREATE INDEX CONCURRENTLY tmp_i ON tmp (a)").await;
    db.execute("DROP INDEX CONCURRENTLY tmp_i").await;
    db.execute("DROP INDEX CONCURRENTLY IF EXISTS nope").await;
}
