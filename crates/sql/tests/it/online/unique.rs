//! Unique indexes while they are built: who is refused what.

use super::check::{indexes_match, keys};
use super::{start, until, until_batches};
use crate::database::{Database, run, session};
use sql_types::SqlState;

/// `t` with a stop after the first thousand of its 3000 rows, and a statement that builds a unique index over `u`.
async fn half_built() -> (Database, super::Running) {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (id int PRIMARY KEY, u int); INSERT INTO t SELECT n, n FROM generate_series(1, 3000) n")
        .await;
    db.engine.backfill_pace().stop_after(1);
    let building = start(&db.engine, "CREATE UNIQUE INDEX CONCURRENTLY i ON t (u)").await;
    until_batches(&mut db, 1).await;
    (db, building)
}

#[tokio::test]
async fn writers_are_held_to_it_before_it_can_be_read() {
    let (mut db, building) = half_built().await;
    // A value that has an entry, of a row or of another writer.
    for text in ["INSERT INTO t VALUES (5000, 7)", "UPDATE t SET u = 7 WHERE id = 2500"] {
        let error = db.error(text).await;
        assert_eq!(
            (error.code, error.message.contains("\"i\"")),
            (SqlState::UNIQUE_VIOLATION, true),
            "{text}"
        );
    }
    db.execute("INSERT INTO t VALUES (5001, 5001)").await;
    assert_eq!(db.error("INSERT INTO t VALUES (5002, 5001)").await.code, SqlState::UNIQUE_VIOLATION);
    // Nothing can be inferred from it yet.
    let arbiter = db.error("INSERT INTO t VALUES (5003, 9) ON CONFLICT (u) DO NOTHING").await;
    assert_eq!(arbiter.code.as_str(), "42P10");
    assert_eq!(db.execute("INSERT INTO t VALUES (5003, 9) ON CONFLICT DO NOTHING").await.tag, "INSERT 0 0");
    db.execute("BEGIN; SELECT 1").await;
    assert_eq!(db.error("ALTER TABLE t ADD UNIQUE USING INDEX i").await.code, SqlState::OBJECT_IN_USE);
    db.execute("ROLLBACK").await;
    db.engine.backfill_pace().go_on();
    building.task.await.unwrap().unwrap();
    indexes_match(&mut db, "t").await;
    db.execute("INSERT INTO t VALUES (5004, 10) ON CONFLICT (u) DO NOTHING").await;
    db.execute("ALTER TABLE t ADD UNIQUE USING INDEX i").await;
}

#[tokio::test]
async fn of_two_who_insert_the_same_value_one_is_refused() {
    let (mut db, building) = half_built().await;
    let mut first = session(&db.engine).await;
    run(&mut first, "BEGIN; INSERT INTO t VALUES (5001, 9999)", &[]).await.unwrap();
    let second = start(&db.engine, "INSERT INTO t VALUES (5002, 9999)").await;
    tokio::task::yield_now().await;
    run(&mut first, "COMMIT", &[]).await.unwrap();
    assert_eq!(second.task.await.unwrap().unwrap_err().code, SqlState::UNIQUE_VIOLATION);
    db.engine.backfill_pace().go_on();
    building.task.await.unwrap().unwrap();
    indexes_match(&mut db, "t").await;
}

/// A row that has no entry yet has the same value as one that has, until a statement takes its value away.
async fn value_moves_on(text: &str) {
    let (mut db, building) = half_built().await;
    // Row 2500 has no entry yet, so nobody can know.
    db.execute("INSERT INTO t VALUES (5001, 2500)").await;
    db.execute(text).await;
    assert_eq!(
        db.error("INSERT INTO t VALUES (5002, 2500)").await.code,
        SqlState::UNIQUE_VIOLATION,
        "{text}"
    );
    db.engine.backfill_pace().go_on();
    building.task.await.unwrap().unwrap();
    assert_eq!(db.rows("SELECT id FROM t WHERE u = 2500").await, ["5001"], "{text}");
    indexes_match(&mut db, "t").await;
}

#[tokio::test]
async fn the_entry_of_another_row_is_not_removed() {
    for text in [
        "DELETE FROM t WHERE id = 2500",
        "UPDATE t SET u = -1 WHERE id = 2500",
        "INSERT INTO t VALUES (2500, -1) ON CONFLICT (id) DO UPDATE SET u = excluded.u",
        "MERGE INTO t USING (VALUES (2500)) n (id) ON t.id = n.id WHEN MATCHED THEN DELETE",
        "WITH gone AS (DELETE FROM t WHERE id = 2500 RETURNING id) SELECT * FROM gone",
    ] {
        value_moves_on(text).await;
    }
}

#[tokio::test]
async fn a_row_that_moves_does_not_take_the_entry_of_another() {
    let (mut db, building) = half_built().await;
    db.execute("INSERT INTO t VALUES (5001, 2500)").await;
    assert_eq!(db.error("UPDATE t SET id = -1 WHERE id = 2500").await.code, SqlState::UNIQUE_VIOLATION);
    db.execute("UPDATE t SET id = -2 WHERE id = 2501; UPDATE t SET id = -3 WHERE id = 500; DELETE FROM t WHERE id = 5001")
        .await;
    db.engine.backfill_pace().go_on();
    building.task.await.unwrap().unwrap();
    indexes_match(&mut db, "t").await;
}

#[tokio::test]
async fn duplicates_end_the_build_and_nothing_is_left_of_it() {
    let duplicates: [&[&str]; 3] = [
        // Far from each other, beside each other, and made by a writer.
        &["UPDATE t SET u = 7 WHERE id = 2999"],
        &["UPDATE t SET u = 2001 WHERE id = 2002"],
        &["INSERT INTO t VALUES (5001, 2500)"],
    ];
    for (number, texts) in duplicates.into_iter().enumerate() {
        let (mut db, building) = if number == 2 {
            half_built().await
        } else {
            let mut db = Database::open().await;
            db.execute(
                "CREATE TABLE t (id int PRIMARY KEY, u int); INSERT INTO t SELECT n, n FROM generate_series(1, 3000) n",
            )
            .await;
            for text in texts {
                db.execute(text).await;
            }
            let building = start(&db.engine, "CREATE UNIQUE INDEX CONCURRENTLY i ON t (u)").await;
            (db, building)
        };
        if number == 2 {
            for text in texts {
                db.execute(text).await;
            }
            db.engine.backfill_pace().go_on();
        }
        let error = building.task.await.unwrap().unwrap_err();
        assert_eq!(
            (error.code, &error.message[..]),
            (SqlState::UNIQUE_VIOLATION, "could not create unique index \"i\"")
        );
        let detail = error.extra().and_then(|extra| extra.detail.clone()).unwrap_or_default();
        let value = ["7", "2001", "2500"][number];
        assert_eq!(detail, format!("Key (u)=({value}) is duplicated."));
        assert!(db.rows("SELECT 1 FROM pg_class WHERE relname = 'i'").await.is_empty());
        let rows: usize = db.rows("SELECT count(*) FROM t").await[0].parse().unwrap();
        while keys(&mut db, "t").await != rows {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        db.execute(&format!("DELETE FROM t WHERE u = {value}; CREATE UNIQUE INDEX i ON t (u)")).await;
        indexes_match(&mut db, "t").await;
        until(&mut db, "SELECT count(*) FROM pg_stat_progress_create_index", "0").await;
    }
}
