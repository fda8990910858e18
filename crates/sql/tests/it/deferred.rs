//! Deferrable constraints: checked when the transaction wants it, undone with savepoints.

use crate::database::{Database, run, session};
use sql_types::SqlState;

async fn family(db: &mut Database, timing: &str) {
    db.execute(&format!(
        "CREATE TABLE p (id int PRIMARY KEY, n int);
         CREATE TABLE c (id int PRIMARY KEY, p int CONSTRAINT c_p REFERENCES p {timing});
         INSERT INTO p VALUES (1, 1), (2, 2); INSERT INTO c VALUES (1, 1)"
    ))
    .await;
}

#[tokio::test]
async fn a_deferred_foreign_key_is_checked_by_the_commit() {
    let mut db = Database::open().await;
    family(&mut db, "DEFERRABLE INITIALLY DEFERRED").await;
    // Either side may come first, and what has gone again does not matter.
    db.execute("BEGIN; INSERT INTO c VALUES (2, 7); INSERT INTO p VALUES (7, 0); COMMIT").await;
    db.execute("BEGIN; DELETE FROM p WHERE id = 7; DELETE FROM c WHERE p = 7; COMMIT").await;
    db.execute("BEGIN; INSERT INTO c VALUES (3, 8); UPDATE c SET p = 1 WHERE id = 3; COMMIT").await;
    db.execute("BEGIN; UPDATE p SET id = 9 WHERE id = 1; INSERT INTO p VALUES (1, 1); COMMIT").await;
    db.execute("BEGIN; INSERT INTO c VALUES (4, 8), (5, NULL)").await;
    let error = db.error("COMMIT").await;
    assert_eq!(error.code, SqlState::FOREIGN_KEY_VIOLATION);
    assert_eq!(error.message, "insert or update on table \"c\" violates foreign key constraint \"c_p\"");
    assert_eq!(
        error.extra().and_then(|extra| extra.detail.clone()).as_deref(),
        Some("Key (p)=(8) is not present in table \"p\".")
    );
    db.execute("BEGIN; DELETE FROM p WHERE id = 1").await;
    let error = db.error("COMMIT").await;
    assert_eq!(
        error.message,
        "update or delete on table \"p\" violates foreign key constraint \"c_p\" on table \"c\""
    );
    // A statement that is a transaction of its own.
    assert_eq!(db.error("INSERT INTO c VALUES (6, 99)").await.code, SqlState::FOREIGN_KEY_VIOLATION);
    assert_eq!(db.rows("SELECT id FROM c ORDER BY id").await, ["1", "3"]);
    assert_eq!(db.rows("SELECT id FROM p ORDER BY id").await, ["1", "2", "9"]);
}

#[tokio::test]
async fn set_constraints_checks_at_once_and_savepoints_undo() {
    let mut db = Database::open().await;
    family(&mut db, "DEFERRABLE").await;
    assert_eq!(db.error("INSERT INTO c VALUES (2, 7)").await.code, SqlState::FOREIGN_KEY_VIOLATION);
    db.execute("BEGIN; SET CONSTRAINTS c_p DEFERRED; INSERT INTO c VALUES (2, 7); SAVEPOINT s").await;
    db.execute("INSERT INTO c VALUES (3, 8)").await;
    assert_eq!(db.error("SET CONSTRAINTS ALL IMMEDIATE").await.code, SqlState::FOREIGN_KEY_VIOLATION);
    db.execute("ROLLBACK TO s; INSERT INTO p VALUES (7, 7); SET CONSTRAINTS ALL IMMEDIATE").await;
    assert_eq!(db.error("INSERT INTO c VALUES (3, 8)").await.code, SqlState::FOREIGN_KEY_VIOLATION);
    db.execute("ROLLBACK TO s").await;
    // Once checked, the table may be changed; back at the savepoint it may not.
    db.execute("INSERT INTO p VALUES (7, 7); SET CONSTRAINTS ALL IMMEDIATE; ALTER TABLE c ADD COLUMN x int")
        .await;
    db.execute("ROLLBACK TO s").await;
    // Deferred again, as it was, and what was noted before is checked still.
    db.execute("INSERT INTO c VALUES (3, 2)").await;
    assert_eq!(db.error("COMMIT").await.code, SqlState::FOREIGN_KEY_VIOLATION);
    db.execute("BEGIN; SET CONSTRAINTS public.c_p DEFERRED; INSERT INTO c VALUES (2, 7); DELETE FROM c WHERE id = 2; COMMIT")
        .await;
    db.execute("BEGIN; SET CONSTRAINTS ALL DEFERRED; INSERT INTO c VALUES (2, 7)").await;
    assert_eq!(db.error("ALTER TABLE c ADD COLUMN x int").await.code, SqlState::OBJECT_IN_USE);
    db.execute("ROLLBACK").await;
    for (text, code) in [
        ("SET CONSTRAINTS nope DEFERRED", SqlState::UNDEFINED_OBJECT),
        ("SET CONSTRAINTS c_pkey DEFERRED", SqlState::WRONG_OBJECT_TYPE),
        ("SET CONSTRAINTS nowhere.c_p DEFERRED", SqlState::INVALID_SCHEMA),
        ("CREATE TABLE x (a int NOT NULL DEFERRABLE)", SqlState::SYNTAX_ERROR),
        ("CREATE TABLE x (a int UNIQUE NOT DEFERRABLE INITIALLY DEFERRED)", SqlState::SYNTAX_ERROR),
        ("CREATE TABLE x (a int CHECK (a > 1) DEFERRABLE)", SqlState::SYNTAX_ERROR),
        ("CREATE TABLE x (a int, CHECK (a > 1) DEFERRABLE)", SqlState::FEATURE_NOT_SUPPORTED),
        ("ALTER TABLE c ALTER CONSTRAINT c_pkey DEFERRABLE", SqlState::WRONG_OBJECT_TYPE),
        ("ALTER TABLE c ALTER CONSTRAINT nope DEFERRABLE", SqlState::UNDEFINED_OBJECT),
    ] {
        assert_eq!(db.error(text).await.code, code, "{text}");
    }
    let shown = "SELECT pg_get_constraintdef(oid), condeferrable, condeferred FROM pg_constraint WHERE conname = 'c_p'";
    db.execute("ALTER TABLE c ALTER CONSTRAINT c_p DEFERRABLE INITIALLY DEFERRED").await;
    assert_eq!(db.rows(shown).await, ["FOREIGN KEY (p) REFERENCES p(id) DEFERRABLE INITIALLY DEFERRED|t|t"]);
    db.execute("ALTER TABLE c ALTER CONSTRAINT c_p NOT DEFERRABLE").await;
    assert_eq!(db.rows(shown).await, ["FOREIGN KEY (p) REFERENCES p(id)|f|f"]);
}

#[tokio::test]
async fn restrict_and_actions_are_not_put_off() {
    let mut db = Database::open().await;
    family(&mut db, "ON DELETE RESTRICT ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED").await;
    db.execute("BEGIN").await;
    assert_eq!(db.error("DELETE FROM p WHERE id = 1").await.code, SqlState::FOREIGN_KEY_VIOLATION);
    db.execute("ROLLBACK; BEGIN; UPDATE p SET id = 5 WHERE id = 1").await;
    assert_eq!(db.rows("SELECT p FROM c").await, ["5"]);
    db.execute("COMMIT").await;
}

#[tokio::test]
async fn deferrable_unique_constraints_hold_at_the_end() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE TABLE u (id int PRIMARY KEY, a int CONSTRAINT u_a UNIQUE DEFERRABLE INITIALLY DEFERRED, b int UNIQUE DEFERRABLE);
         INSERT INTO u VALUES (1, 1, 1), (2, 2, 2), (3, NULL, NULL), (4, NULL, NULL)",
    )
    .await;
    db.execute("BEGIN; UPDATE u SET a = 2 WHERE id = 1; UPDATE u SET a = 1 WHERE id = 2; COMMIT").await;
    db.execute("UPDATE u SET b = 3 - b").await;
    assert_eq!(db.rows("SELECT id, a, b FROM u WHERE a = 2").await, ["1|2|2"]);
    db.execute("BEGIN; INSERT INTO u VALUES (5, 1, 5)").await;
    assert_eq!(db.rows("SELECT id FROM u WHERE a = 1 ORDER BY id").await, ["2", "5"]);
    let error = db.error("COMMIT").await;
    assert_eq!(error.message, "duplicate key value violates unique constraint \"u_a\"");
    for text in [
        "INSERT INTO u VALUES (5, 1, 5)",
        "INSERT INTO u VALUES (5, 5, 1)",
        "BEGIN; INSERT INTO u VALUES (5, 5, 1)",
        "ROLLBACK; ALTER TABLE u ADD UNIQUE (id, b); CREATE TABLE w (x int); INSERT INTO w VALUES (1), (1);
         ALTER TABLE w ADD UNIQUE (x) DEFERRABLE",
    ] {
        assert_eq!(db.error(text).await.code, SqlState::UNIQUE_VIOLATION, "{text}");
    }
    for (text, code) in [
        ("CREATE TABLE r (a int REFERENCES u (a))", SqlState::OBJECT_STATE),
        ("INSERT INTO u VALUES (9, 9, 9) ON CONFLICT (a) DO NOTHING", SqlState::OBJECT_STATE),
        ("INSERT INTO u VALUES (9, 9, 9) ON CONFLICT ON CONSTRAINT u_a DO NOTHING", SqlState::OBJECT_STATE),
    ] {
        assert_eq!(db.error(text).await.code, code, "{text}");
    }
    assert_eq!(
        db.rows("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'u_a'").await,
        ["UNIQUE (a) DEFERRABLE INITIALLY DEFERRED"]
    );
}

#[tokio::test]
async fn two_transactions_that_defer_the_same_value_do_not_both_commit() {
    let mut db = Database::open().await;
    for level in ["READ COMMITTED", "SERIALIZABLE"] {
        db.execute("DROP TABLE IF EXISTS u; CREATE TABLE u (id int PRIMARY KEY, a int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
            .await;
        let mut other = session(&db.engine).await;
        for (id, session) in [(1, &mut db.session), (2, &mut other)] {
            for text in [format!("BEGIN ISOLATION LEVEL {level}"), format!("INSERT INTO u VALUES ({id}, 7)")]
            {
                run(session, &text, &[]).await.unwrap();
            }
        }
        let first = run(&mut db.session, "COMMIT", &[]).await;
        let second = run(&mut other, "COMMIT", &[]).await;
        assert!(first.is_ok() && second.is_err(), "{level}");
        assert_eq!(db.rows("SELECT id FROM u").await, ["1"]);
    }
}
