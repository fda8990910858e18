//! Changes of tables that are written all the time, other than of indexes: others wait for a moment at most.

use super::check::{indexes_match, storage};
use super::load::{Load, TABLE};
use super::{start, until};
use crate::database::{Database, run, session};
use sql_types::SqlState;

/// Runs changes while sessions write, and checks the table.
async fn among_writers(setup: &str, changes: &[&str]) -> Database {
    let mut db = Database::open().await;
    db.execute(TABLE).await;
    if !setup.is_empty() {
        db.execute(setup).await;
    }
    let load = Load::start(&db.engine);
    load.goes_on(20).await;
    for change in changes {
        db.execute(change).await;
        load.goes_on(20).await;
    }
    load.end(&mut db).await;
    indexes_match(&mut db, "t").await;
    db
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_come_go_and_are_renamed_among_writers() {
    let changes = [
        "ALTER TABLE t ADD COLUMN c int NOT NULL DEFAULT 7",
        "ALTER TABLE t ADD COLUMN d text",
        "ALTER TABLE t ADD COLUMN e int DEFAULT 1 + 1, DROP COLUMN d",
        "ALTER TABLE t ADD COLUMN computed int GENERATED ALWAYS AS (k * 2) STORED",
        "ALTER TABLE t RENAME COLUMN c TO c2",
        "ALTER TABLE t RENAME TO other; ALTER TABLE other RENAME TO t",
        "BEGIN; ALTER TABLE t ADD COLUMN f int; UPDATE t SET f = k WHERE id < 10; ALTER TABLE t DROP COLUMN f; COMMIT",
    ];
    let mut db = among_writers("", &changes).await;
    let wrong =
        "SELECT count(*) FROM t WHERE c2 <> 7 OR e <> 2 OR computed <> k * 2 OR c2 IS NULL OR e IS NULL";
    assert_eq!(db.rows(wrong).await, ["0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn types_are_changed_among_writers() {
    let setup = "CREATE TYPE mood AS ENUM ('sad', 'ok'); ALTER TABLE t ADD COLUMN m mood DEFAULT 'ok'; \
                 CREATE INDEX i ON t (k)";
    let changes = [
        "ALTER TYPE mood ADD VALUE 'happy'",
        "ALTER TABLE t ALTER COLUMN m SET DEFAULT 'happy'",
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
        "ALTER TABLE t ALTER COLUMN u TYPE bigint",
        "ALTER TABLE t ALTER COLUMN k TYPE bigint USING k::bigint",
    ];
    let mut db = among_writers(setup, &changes).await;
    assert_eq!(db.rows("SELECT count(*) FROM t WHERE m IS NULL OR m = 'blue'").await, ["0"]);
    assert_eq!(db.rows("SELECT pg_typeof(u), pg_typeof(k) FROM t LIMIT 1").await, ["bigint|bigint"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn constraints_are_added_and_validated_among_writers() {
    let setup = "CREATE TABLE p (k int PRIMARY KEY); INSERT INTO p SELECT generate_series(0, 99)";
    let changes = [
        "ALTER TABLE t ADD CONSTRAINT few CHECK (k < 100) NOT VALID",
        "ALTER TABLE t VALIDATE CONSTRAINT few",
        "ALTER TABLE t ADD CONSTRAINT has CHECK (k IS NOT NULL AND s IS NOT NULL) NOT VALID",
        "ALTER TABLE t VALIDATE CONSTRAINT has",
        "ALTER TABLE t ALTER COLUMN k SET NOT NULL",
        "ALTER TABLE t ADD CONSTRAINT fk FOREIGN KEY (k) REFERENCES p NOT VALID",
        "ALTER TABLE t VALIDATE CONSTRAINT fk",
        "CREATE UNIQUE INDEX CONCURRENTLY t_u ON t (u)",
        "ALTER TABLE t ADD CONSTRAINT t_u_key UNIQUE USING INDEX t_u",
        "ALTER TABLE t DROP CONSTRAINT few",
    ];
    let mut db = among_writers(setup, &changes).await;
    let rows =
        "SELECT conname, convalidated FROM pg_constraint WHERE conrelid = 't'::regclass ORDER BY conname";
    assert_eq!(db.rows(rows).await, ["fk|t", "has|t", "t_pkey|t", "t_u_key|t"]);
    assert_eq!(
        db.error("INSERT INTO t VALUES (-1, -1, 100, 'x')").await.code,
        SqlState::FOREIGN_KEY_VIOLATION
    );
    assert_eq!(db.error("INSERT INTO t VALUES (-1, -1, NULL, 'x')").await.code, SqlState::NOT_NULL_VIOLATION);
}

#[tokio::test]
async fn validation_waits_for_no_writer_and_keeps_none_waiting() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE TABLE p (k int PRIMARY KEY); INSERT INTO p VALUES (1), (2);
         CREATE TABLE t (id int PRIMARY KEY, k int); INSERT INTO t VALUES (1, 1), (2, 3), (3, NULL);
         ALTER TABLE t ADD CONSTRAINT fk FOREIGN KEY (k) REFERENCES p NOT VALID;
         ALTER TABLE t ADD CONSTRAINT ck CHECK (k < 3) NOT VALID",
    )
    .await;
    let defined = "SELECT conname, convalidated, pg_get_constraintdef(oid) FROM pg_constraint \
                   WHERE conrelid = 't'::regclass AND contype IN ('c', 'f') ORDER BY conname";
    assert_eq!(
        db.rows(defined).await,
        ["ck|f|CHECK ((k < 3)) NOT VALID", "fk|f|FOREIGN KEY (k) REFERENCES p(k) NOT VALID"]
    );
    let code = db.error("ALTER TABLE t VALIDATE CONSTRAINT ck").await.code;
    assert_eq!(code, SqlState::CHECK_VIOLATION);
    let code = db.error("ALTER TABLE t VALIDATE CONSTRAINT fk").await.code;
    assert_eq!(code, SqlState::FOREIGN_KEY_VIOLATION);
    assert_eq!(db.error("ALTER TABLE t VALIDATE CONSTRAINT nope").await.code, SqlState::UNDEFINED_OBJECT);
    db.execute("UPDATE t SET k = 2 WHERE id = 2").await;
    // A writer that is under way, and one that comes.
    let mut writer = session(&db.engine).await;
    run(&mut writer, "BEGIN; INSERT INTO t VALUES (4, 1); UPDATE t SET k = 1 WHERE id = 2", &[])
        .await
        .unwrap();
    db.execute("ALTER TABLE t VALIDATE CONSTRAINT fk").await;
    db.execute("BEGIN; ALTER TABLE t VALIDATE CONSTRAINT ck").await;
    run(&mut writer, "INSERT INTO t VALUES (5, 2); COMMIT", &[]).await.unwrap();
    db.execute("COMMIT").await;
    assert_eq!(db.rows(defined).await, ["ck|t|CHECK ((k < 3))", "fk|t|FOREIGN KEY (k) REFERENCES p(k)"]);
    db.execute("ALTER TABLE t VALIDATE CONSTRAINT ck").await;
}

#[tokio::test]
async fn what_a_check_says_of_nulls_counts_if_it_is_valid() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a int, b int); INSERT INTO t VALUES (1, NULL, 1);
         ALTER TABLE t ADD CONSTRAINT ck CHECK (a IS NOT NULL) NOT VALID;
         ALTER TABLE t ADD CHECK (b > 0 AND b IS NOT NULL)",
    )
    .await;
    assert_eq!(db.error("ALTER TABLE t ALTER a SET NOT NULL").await.code, SqlState::NOT_NULL_VIOLATION);
    db.execute("UPDATE t SET a = 1; ALTER TABLE t VALIDATE CONSTRAINT ck").await;
    db.execute("ALTER TABLE t ALTER a SET NOT NULL; ALTER TABLE t ALTER b SET NOT NULL").await;
    assert_eq!(db.error("INSERT INTO t VALUES (2, NULL, 1)").await.code, SqlState::NOT_NULL_VIOLATION);
}

#[tokio::test]
async fn a_column_with_a_constant_default_is_there_without_a_row_being_written() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 3000)").await;
    let before = storage(&mut db, "t").await;
    db.execute("ALTER TABLE t ADD COLUMN c int NOT NULL DEFAULT 7, ADD COLUMN at text DEFAULT 'x' || 'y'")
        .await;
    assert_eq!(storage(&mut db, "t").await, before);
    assert_eq!(db.rows("SELECT count(*) FROM t WHERE c = 7 AND at = 'xy'").await, ["3000"]);
}

#[tokio::test]
async fn adding_a_foreign_key_lets_others_read() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE p (k int PRIMARY KEY); CREATE TABLE t (id int PRIMARY KEY, k int)").await;
    db.execute("BEGIN; ALTER TABLE t ADD FOREIGN KEY (k) REFERENCES p").await;
    let mut other = session(&db.engine).await;
    for table in ["t", "p"] {
        run(&mut other, &format!("SELECT * FROM {table}"), &[]).await.unwrap();
    }
    let writing = start(&db.engine, "INSERT INTO t VALUES (1, 1)").await;
    until(&mut db, "SELECT count(*) FROM pg_locks WHERE NOT granted", "1").await;
    db.execute("COMMIT").await;
    assert_eq!(writing.task.await.unwrap().unwrap_err().code, SqlState::FOREIGN_KEY_VIOLATION);
}
