//! Changes in steps while several nodes use the table.

use super::{node, two};
use crate::online::check::indexes_match;
use crate::online::load::{Load, TABLE};
use crate::online::{start, start_in, until, until_batches};
use crate::support::new_tenant;
use sql_types::SqlState;
use tokio::runtime::Runtime;

const STATE: &str = "SELECT indisvalid, indisready FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE relname = 'i'";

fn running() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

async fn built(text: &str) {
    let (mut a, mut b) = two().await;
    a.execute(TABLE).await;
    let load = Load::start_at(&[&a.engine, &b.engine]);
    load.goes_on(20).await;
    a.engine.backfill_pace().stop_after(2);
    let building = start(&a.engine, text).await;
    until_batches(&mut a, 2).await;
    load.goes_on(100).await;
    for db in [&mut a, &mut b] {
        assert_eq!(db.rows(STATE).await, ["f|t"]);
    }
    // The other node does not take it up, and changes nothing of the table meanwhile.
    assert!(b.rows("SELECT * FROM pg_stat_progress_create_index").await.is_empty());
    assert_eq!(
        b.error("BEGIN; SELECT 1; ALTER TABLE t ADD COLUMN c int").await.code,
        SqlState::OBJECT_IN_USE
    );
    b.execute("ROLLBACK").await;
    let altering = start(&b.engine, "ALTER TABLE t ALTER COLUMN k SET DEFAULT 0").await;
    load.goes_on(20).await;
    a.engine.backfill_pace().go_on();
    building.task.await.expect("a task").expect("an index");
    altering.task.await.expect("a task").expect("a default");
    for db in [&mut a, &mut b] {
        assert_eq!(db.rows(STATE).await, ["t|t"]);
    }
    load.goes_on(20).await;
    load.end(&mut b).await;
    indexes_match(&mut a, "t").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_is_complete_after_a_build_among_writers_of_two_nodes() {
    built("CREATE INDEX CONCURRENTLY i ON t (k)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_is_a_unique_one() {
    built("CREATE UNIQUE INDEX CONCURRENTLY i ON t (u)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_waits_for_the_writers_of_the_other_node() {
    let (mut a, mut b) = two().await;
    a.execute("CREATE TABLE t (id int PRIMARY KEY, k int)").await;
    b.execute("BEGIN; INSERT INTO t VALUES (1, 1)").await;
    let building = start(&a.engine, "CREATE INDEX CONCURRENTLY i ON t (k)").await;
    let phase = "SELECT phase FROM pg_stat_progress_create_index";
    until(&mut a, phase, "waiting for writers before build").await;
    // It knows the index by now, and keeps it from here on.
    until(&mut super::beside(&b).await, STATE, "f|f").await;
    b.execute("UPDATE t SET k = 2; INSERT INTO t VALUES (2, 2)").await;
    assert_eq!(a.rows(STATE).await, ["f|f"]);
    b.execute("COMMIT").await;
    building.task.await.expect("a task").expect("an index");
    indexes_match(&mut b, "t").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_is_dropped_among_readers_and_writers_of_two_nodes() {
    let (mut a, mut b) = two().await;
    a.execute(TABLE).await;
    a.execute("CREATE INDEX i ON t (k)").await;
    let load = Load::start_at(&[&a.engine, &b.engine]);
    b.execute("BEGIN; SELECT id FROM t WHERE k = 7").await;
    let dropping = start(&a.engine, "DROP INDEX CONCURRENTLY i").await;
    let phase = "SELECT phase FROM pg_stat_progress_create_index";
    until(&mut a, phase, "waiting for readers before marking dead").await;
    load.goes_on(20).await;
    b.execute("SELECT id FROM t WHERE k = 8; COMMIT").await;
    dropping.task.await.expect("a task").expect("no index");
    load.end(&mut b).await;
    assert!(b.rows(STATE).await.is_empty());
    indexes_match(&mut b, "t").await;
}

#[test]
fn the_death_of_another_node_holds_up_a_build_for_no_longer_than_its_lease() {
    let (here, there) = (running(), running());
    let tenant = here.block_on(async { new_tenant().tenant() });
    let mut a = here.block_on(async {
        let mut a = node(tenant).await;
        a.execute(TABLE).await;
        a
    });
    let building = here.block_on(async {
        let session = crate::database::session(&a.engine).await;
        a.engine.backfill_pace().stop_after(2);
        start_in(session, "CREATE UNIQUE INDEX CONCURRENTLY i ON t (u)")
    });
    there.block_on(async {
        let mut b = node(tenant).await;
        until(&mut b, STATE, "f|t").await;
        // It would hold up the step after the next, if it lived.
        b.execute("BEGIN; INSERT INTO t VALUES (-1, -1, 1, 'lost')").await;
        std::mem::forget(b);
    });
    there.shutdown_background();
    here.block_on(async {
        a.engine.backfill_pace().go_on();
        building.task.await.expect("a task").expect("an index");
        a.execute("DROP INDEX CONCURRENTLY i").await;
        a.execute("CREATE UNIQUE INDEX CONCURRENTLY i ON t (u)").await;
        indexes_match(&mut a, "t").await;
        assert_eq!(a.rows("SELECT count(*) FROM t").await, ["6000"]);
    });
}

#[test]
fn another_node_takes_up_the_build_of_one_that_died() {
    let (here, there) = (running(), running());
    let tenant = here.block_on(async { new_tenant().tenant() });
    let mut b = here.block_on(async {
        let mut b = node(tenant).await;
        b.execute(TABLE).await;
        b
    });
    there.block_on(async {
        let mut a = node(tenant).await;
        a.engine.backfill_pace().stop_after(2);
        let building = start(&a.engine, "CREATE INDEX CONCURRENTLY i ON t (k)").await;
        until_batches(&mut a, 2).await;
        std::mem::forget((a, building));
    });
    there.shutdown_background();
    here.block_on(async {
        b.execute("DELETE FROM t WHERE id IN (5, 2500); UPDATE t SET k = -1 WHERE id IN (6, 2501)").await;
        until(&mut b, STATE, "t|t").await;
        indexes_match(&mut b, "t").await;
    });
}
