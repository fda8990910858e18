//! SQL nodes that end in the middle of a build.

use super::check::{indexes_match, keys};
use super::{start, until, until_batches};
use crate::database::{Database, engine_of, run, session};
use crate::support::{client_of, new_tenant};
use sql::exec::NodeBudget;
use sql_types::SqlState;
use std::sync::Arc;
use tokio::runtime::Runtime;

fn node() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Lets a node die in the middle of something; then runs `after` on the next node, whose backfills do nothing yet.
fn dies(before: impl AsyncFnOnce(&mut Database), after: impl AsyncFnOnce(&mut Database)) {
    let first = node();
    let tenant = first.block_on(async {
        let memory = NodeBudget::new(NodeBudget::DEFAULT_BYTES, None);
        let mut db = Database::of(Arc::new(new_tenant()), memory).await;
        before(&mut db).await;
        let tenant = db.engine.kv().tenant();
        // Nobody says goodbye.
        std::mem::forget(db);
        tenant
    });
    first.shutdown_background();
    node().block_on(async {
        let memory = NodeBudget::new(NodeBudget::DEFAULT_BYTES, None);
        let engine = engine_of(Arc::new(client_of(tenant)), memory).await;
        engine.backfill_pace().stop_after(0);
        let session = session(&engine).await;
        after(&mut Database { engine, session }).await;
    });
}

/// Runs a build on a node that dies after two batches.
fn dies_building(setup: &'static str, build: &'static str, after: impl AsyncFnOnce(&mut Database)) {
    let before = async |db: &mut Database| {
        db.execute(setup).await;
        db.engine.backfill_pace().stop_after(2);
        let running = start(&db.engine, build).await;
        until_batches(db, 2).await;
        std::mem::forget(running);
    };
    dies(before, after);
}

const ROWS: &str =
    "CREATE TABLE t (id int PRIMARY KEY, k int); INSERT INTO t SELECT n, n FROM generate_series(1, 5500) n";
const VALID: &str = "SELECT indisvalid, indisready FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE relname = 'i'";

#[test]
fn the_next_node_goes_on_where_the_last_one_was() {
    dies_building(ROWS, "CREATE INDEX CONCURRENTLY i ON t (k)", async |db| {
        let progress = "SELECT pid, phase, blocks_done, tuples_done FROM pg_stat_progress_create_index";
        until(db, progress, "NULL|building index: scanning table|2|2000").await;
        assert_eq!(db.rows(VALID).await, ["f|t"]);
        db.execute("DELETE FROM t WHERE id IN (5, 2500); UPDATE t SET k = -1 WHERE id IN (6, 2501)").await;
        db.execute("INSERT INTO t VALUES (0, 0), (6000, 6000)").await;
        db.engine.backfill_pace().stop_after(1);
        until(db, progress, "NULL|building index: scanning table|3|3000").await;
        // From there it is three more batches, and from the beginning it would be six.
        db.engine.backfill_pace().stop_after(3);
        until(db, VALID, "t|t").await;
        indexes_match(db, "t").await;
        until(db, "SELECT count(*) FROM pg_stat_progress_create_index", "0").await;
        db.execute("ALTER TABLE t ADD COLUMN x int; DROP INDEX i").await;
    });
}

#[test]
fn and_finds_duplicates_that_nobody_waits_to_hear_of() {
    let setup = "CREATE TABLE t (id int PRIMARY KEY, k int); \
                 INSERT INTO t SELECT n, n FROM generate_series(1, 5500) n; UPDATE t SET k = 5000 WHERE id = 5001";
    dies_building(setup, "CREATE UNIQUE INDEX CONCURRENTLY i ON t (k)", async |db| {
        assert_eq!(db.error("INSERT INTO t VALUES (6000, 1)").await.code, SqlState::UNIQUE_VIOLATION);
        db.engine.backfill_pace().go_on();
        until(db, "SELECT count(*) FROM pg_class WHERE relname = 'i'", "0").await;
        db.execute("INSERT INTO t VALUES (6000, 1)").await;
        indexes_match(db, "t").await;
    });
}

#[test]
fn a_build_that_still_waited_for_writers_begins_and_ends() {
    let before = async |db: &mut Database| {
        db.execute(ROWS).await;
        let mut old = session(&db.engine).await;
        run(&mut old, "BEGIN; INSERT INTO t VALUES (0, 0)", &[]).await.unwrap();
        let running = start(&db.engine, "CREATE INDEX CONCURRENTLY i ON t (k)").await;
        until(db, VALID, "f|f").await;
        std::mem::forget((old, running));
    };
    dies(before, async |db| {
        until(db, VALID, "f|t").await;
        db.engine.backfill_pace().go_on();
        until(db, VALID, "t|t").await;
        assert_eq!(db.rows("SELECT count(*) FROM t").await, ["5500"]);
        indexes_match(db, "t").await;
    });
}

#[test]
fn a_drop_that_had_begun_is_finished() {
    let before = async |db: &mut Database| {
        db.execute(ROWS).await;
        db.execute("CREATE INDEX CONCURRENTLY i ON t (k)").await;
        let mut reader = session(&db.engine).await;
        run(&mut reader, "BEGIN; SELECT * FROM t WHERE k = 3", &[]).await.unwrap();
        let running = start(&db.engine, "DROP INDEX CONCURRENTLY i").await;
        until(db, VALID, "f|t").await;
        std::mem::forget((reader, running));
    };
    dies(before, async |db| {
        until(db, "SELECT count(*) FROM pg_class WHERE relname = 'i'", "0").await;
        while keys(db, "t").await != 5500 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
}
