//! Indexes that are built while sessions write.

use super::check::indexes_match;
use super::load::{Load, TABLE};
use super::{start, until, until_batches};
use crate::database::Database;

/// Builds an index while sessions write, with a stop in the middle, and checks the table and the index.
async fn build(text: &str, query: &str) {
    let mut db = Database::open().await;
    db.execute(TABLE).await;
    let load = Load::start(&db.engine);
    load.goes_on(20).await;
    db.engine.backfill_pace().stop_after(2);
    let building = start(&db.engine, text).await;
    until_batches(&mut db, 2).await;
    // While the build stands still everybody else goes on.
    load.goes_on(200).await;
    let state = "SELECT indisvalid, indisready, indislive FROM pg_index WHERE indexrelid = 'i'::regclass";
    assert_eq!(db.rows(state).await, ["f|t|t"]);
    assert!(!db.rows(&format!("EXPLAIN {query}")).await.iter().any(|line| line.contains("using i ")));
    db.engine.backfill_pace().go_on();
    building.task.await.expect("a task").expect("an index");
    load.goes_on(20).await;
    assert_eq!(db.rows(state).await, ["t|t|t"]);
    load.end(&mut db).await;
    indexes_match(&mut db, "t").await;
    assert!(db.rows("SELECT * FROM pg_stat_progress_create_index").await.is_empty());
    db.execute("ANALYZE t").await;
    let plan = db.rows(&format!("EXPLAIN {query}")).await;
    assert!(plan.iter().any(|line| line.contains("using i ")), "{plan:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_is_complete_after_a_build_among_writers() {
    build("CREATE INDEX CONCURRENTLY i ON t (k)", "SELECT id FROM t WHERE k = 7").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_is_one_of_a_large_table_that_nobody_wanted_concurrently() {
    build("CREATE INDEX i ON t (s, k DESC)", "SELECT id FROM t WHERE s = 'S7' AND k = 7").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_is_a_unique_one() {
    build("CREATE UNIQUE INDEX CONCURRENTLY i ON t (u)", "SELECT id FROM t WHERE u = 7").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_is_a_partial_one() {
    build(
        "CREATE UNIQUE INDEX CONCURRENTLY i ON t (u) WHERE k < 50",
        "SELECT id FROM t WHERE u = 7 AND k < 50",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_is_one_of_expressions() {
    build("CREATE INDEX CONCURRENTLY i ON t (lower(s), (k + 1))", "SELECT id FROM t WHERE lower(s) = 's7'")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_is_an_inverted_one() {
    build("CREATE INDEX CONCURRENTLY i ON t USING gin (j)", "SELECT id FROM t WHERE j @> '{\"a\": [7]}'")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_is_dropped_among_readers_and_writers() {
    let mut db = Database::open().await;
    db.execute(TABLE).await;
    db.execute("CREATE UNIQUE INDEX CONCURRENTLY i ON t (u)").await;
    let before = super::check::keys(&mut db, "t").await;
    assert_eq!(before, 12_000);
    let load = Load::start(&db.engine);
    let mut reader =
        Database { engine: db.engine.clone(), session: crate::database::session(&db.engine).await };
    reader.execute("BEGIN; SELECT id FROM t WHERE u = 7").await;
    let dropping = start(&db.engine, "DROP INDEX CONCURRENTLY i").await;
    until(
        &mut db,
        "SELECT phase FROM pg_stat_progress_create_index",
        "waiting for readers before marking dead",
    )
    .await;
    load.goes_on(100).await;
    assert_eq!(
        db.rows("SELECT indisvalid, indisready FROM pg_index WHERE indexrelid = 'i'::regclass").await,
        ["f|t"]
    );
    reader.execute("SELECT id FROM t WHERE u = 8; COMMIT").await;
    dropping.task.await.expect("a task").expect("no index");
    load.goes_on(20).await;
    load.end(&mut db).await;
    assert!(db.rows("SELECT 1 FROM pg_class WHERE relname = 'i'").await.is_empty());
    let rows: usize = db.rows("SELECT count(*) FROM t").await[0].parse().expect("a number");
    while super::check::keys(&mut db, "t").await != rows {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn whatever_writes_keeps_the_entries() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE TABLE p (id int PRIMARY KEY); INSERT INTO p SELECT generate_series(1, 3000);
         CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE, n int);
         INSERT INTO c SELECT n, n, n % 10 FROM generate_series(1, 3000) n;
         CREATE FUNCTION add_c(q int) RETURNS void LANGUAGE plpgsql AS
             'BEGIN INSERT INTO c VALUES (q + 10000, q, 1); UPDATE c SET n = 2 WHERE p = q; END'",
    )
    .await;
    db.engine.backfill_pace().stop_after(1);
    let building = start(&db.engine, "CREATE INDEX CONCURRENTLY i ON c (p, n)").await;
    until_batches(&mut db, 1).await;
    for text in [
        "DELETE FROM p WHERE id IN (5, 2500)",
        "UPDATE p SET id = id + 20000 WHERE id IN (6, 2501)",
        "SELECT add_c(id) FROM p WHERE id IN (7, 2502)",
        "INSERT INTO c SELECT id + 5000, id, 3 FROM p WHERE id BETWEEN 2900 AND 3000",
        "INSERT INTO c VALUES (8, 8, 8), (2503, 2503, 8) ON CONFLICT (id) DO UPDATE SET n = -1",
        "WITH moved AS (DELETE FROM c WHERE id IN (9, 2504) RETURNING *) INSERT INTO c SELECT id + 30000, p, n FROM moved",
        "UPDATE c SET id = -id WHERE id IN (10, 2505)",
        "CREATE TABLE other (a int)",
        "BEGIN; SAVEPOINT a; DELETE FROM c WHERE id < 2000; ROLLBACK TO a; DELETE FROM c WHERE id = 2506; COMMIT",
    ] {
        db.execute(text).await;
    }
    let copied = db.copy("COPY c FROM STDIN", b"40001\t11\t4\n40002\t2507\t4\n", 5).await.expect("a copy");
    assert_eq!(copied, "COPY 2");
    assert_eq!(db.rows("SELECT indisvalid FROM pg_index WHERE indexrelid = 'i'::regclass").await, ["f"]);
    db.engine.backfill_pace().go_on();
    building.task.await.expect("a task").expect("an index");
    indexes_match(&mut db, "c").await;
    assert_eq!(db.rows("SELECT count(*) FROM c WHERE p = 2502 AND n = 2").await, ["2"]);
}
