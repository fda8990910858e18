//! Sessions: transactions, settings, prepared statements, cursors, locks, notifications.

use crate::database::{Database, run, session};
use sql_types::SqlState;
use std::time::Duration;

#[tokio::test]
async fn transactions_fail_as_a_whole_and_savepoints_save_parts() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a int PRIMARY KEY)").await;
    db.execute("BEGIN; INSERT INTO t VALUES (1)").await;
    assert_eq!(db.error("SELECT 1 / 0").await.code, SqlState::DIVISION_BY_ZERO);
    assert_eq!(db.session.transaction_status(), b'E');
    assert_eq!(db.error("SELECT 1").await.code, SqlState::IN_FAILED_TRANSACTION);
    assert_eq!(db.execute("COMMIT").await.tag, "ROLLBACK");
    assert_eq!(db.rows("SELECT count(*) FROM t").await, ["0"]);

    db.execute("BEGIN; INSERT INTO t VALUES (1); SAVEPOINT a; INSERT INTO t VALUES (2)").await;
    assert_eq!(db.error("INSERT INTO t VALUES (1)").await.code, SqlState::UNIQUE_VIOLATION);
    db.execute("ROLLBACK TO a; INSERT INTO t VALUES (3); COMMIT").await;
    assert_eq!(db.rows("SELECT a FROM t ORDER BY a").await, ["1", "3"]);
    assert_eq!(db.error("SAVEPOINT x").await.code, SqlState::NO_ACTIVE_TRANSACTION);
    db.execute("BEGIN").await;
    assert_eq!(db.error("ROLLBACK TO nope").await.code, SqlState::INVALID_SAVEPOINT);
    db.execute("ROLLBACK").await;
}

#[tokio::test]
async fn several_statements_of_a_query_are_one_transaction() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a int PRIMARY KEY)").await;
    db.error("INSERT INTO t VALUES (1); INSERT INTO t VALUES (1)").await;
    assert_eq!(db.rows("SELECT count(*) FROM t").await, ["0"]);
}

#[tokio::test]
async fn writes_sent_by_the_statement_are_as_good_as_those_sent_by_the_commit() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a int PRIMARY KEY, b int UNIQUE)").await;
    db.execute("SET kv_buffered_writes = off; SET kv_parallel_commits = off").await;
    db.execute("INSERT INTO t VALUES (1, 10), (2, 20)").await;
    for text in ["INSERT INTO t VALUES (3, 20)", "UPDATE t SET b = 10 WHERE a = 2"] {
        let error = db.error(text).await;
        assert_eq!(error.code, SqlState::UNIQUE_VIOLATION);
        assert!(error.message.contains("t_b_key"), "{}", error.message);
    }
    db.execute(
        "BEGIN; INSERT INTO t VALUES (3, 30); SAVEPOINT a; UPDATE t SET b = b + 1; DELETE FROM t WHERE a = 1",
    )
    .await;
    assert_eq!(db.rows("SELECT a, b FROM t ORDER BY a").await, ["2|21", "3|31"]);
    db.execute("ROLLBACK TO a; UPDATE t SET b = 33 WHERE a = 3; COMMIT").await;
    assert_eq!(db.rows("SELECT a, b FROM t ORDER BY b").await, ["1|10", "2|20", "3|33"]);
    db.execute("BEGIN; DELETE FROM t; ROLLBACK").await;
    assert_eq!(db.rows("SELECT count(*) FROM t").await, ["3"]);
}

#[tokio::test]
async fn read_only_transactions_change_nothing() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a int)").await;
    for text in ["INSERT INTO t VALUES (1)", "CREATE TABLE u (a int)"] {
        db.execute("BEGIN READ ONLY").await;
        assert_eq!(db.error(text).await.code, SqlState::READ_ONLY_TRANSACTION);
        db.execute("ROLLBACK").await;
    }
    db.execute("SET default_transaction_read_only = on").await;
    assert_eq!(db.error("INSERT INTO t VALUES (1)").await.code, SqlState::READ_ONLY_TRANSACTION);
    assert_eq!(db.rows("SHOW transaction_isolation").await, ["serializable"]);
}

#[tokio::test]
async fn warnings_go_with_misplaced_transaction_commands() {
    let mut db = Database::open().await;
    db.execute("COMMIT").await;
    let notices = db.session.take_notices();
    assert_eq!(notices[0].error.code, SqlState::NO_ACTIVE_TRANSACTION);
    db.execute("BEGIN; BEGIN").await;
    let notices = db.session.take_notices();
    assert_eq!((notices[0].severity, notices[0].error.code), ("WARNING", SqlState::ACTIVE_TRANSACTION));
    db.execute("ROLLBACK").await;
    let refused = db.error("PREPARE TRANSACTION 'x'").await;
    assert_eq!(refused.code, SqlState::FEATURE_NOT_SUPPORTED);
}

#[tokio::test]
async fn settings_change_for_session_and_transaction() {
    let mut db = Database::open().await;
    db.execute("SET TimeZone = 'Europe/Berlin'").await;
    assert_eq!(db.session.take_parameter_changes(), [("TimeZone".to_string(), "Europe/Berlin".to_string())]);
    assert_eq!(db.rows("SHOW timezone").await, ["Europe/Berlin"]);
    db.execute("BEGIN; SET LOCAL statement_timeout = '7s'; SET work_mem = '8MB'").await;
    assert_eq!(db.rows("SELECT current_setting('statement_timeout')").await, ["7s"]);
    db.execute("COMMIT").await;
    assert_eq!(
        db.rows("SELECT current_setting('statement_timeout'), current_setting('work_mem')").await,
        ["0|8MB"]
    );
    assert_eq!(db.rows("SELECT set_config('app.user', 'me', false)").await, ["me"]);
    assert_eq!(db.rows("SHOW app.user").await, ["me"]);
    assert_eq!(db.error("SET nonsense = 1").await.code, SqlState::UNDEFINED_OBJECT);
    assert_eq!(db.error("SET server_version = '1'").await.code, SqlState::CANT_CHANGE_PARAM);
    db.execute("DISCARD ALL").await;
    assert_eq!(db.rows("SHOW timezone").await, ["UTC"]);
    let statuses = db.session.parameter_statuses();
    assert_eq!(statuses.len(), 13);
    assert!(statuses.contains(&("is_superuser".to_string(), "on".to_string())));
}

#[tokio::test]
async fn statements_are_prepared_and_replanned() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a int PRIMARY KEY, b text); INSERT INTO t VALUES (1, 'x'), (2, 'y')").await;
    db.execute("PREPARE q (int) AS SELECT b FROM t WHERE a = $1").await;
    assert_eq!(db.rows("EXECUTE q(1 + 1)").await, ["y"]);
    assert_eq!(db.error("EXECUTE q").await.code, SqlState::SYNTAX_ERROR);
    let prepared = db.session.prepare_text("SELECT a FROM t WHERE b = $1", &[]).await.unwrap();
    assert_eq!(prepared.param_types(), [sql_types::Type::TEXT]);
    db.execute("CREATE INDEX ON t (b)").await;
    assert_eq!(db.rows("EXECUTE q(1)").await, ["x"]);
    db.execute("ALTER TABLE t DROP COLUMN b; ALTER TABLE t ADD COLUMN b int DEFAULT 4").await;
    assert_eq!(db.error("EXECUTE q(1)").await.code, SqlState::FEATURE_NOT_SUPPORTED);
    db.execute("DEALLOCATE q").await;
    assert_eq!(db.error("EXECUTE q(1)").await.code, SqlState::INVALID_STATEMENT_NAME);
    let several = db.session.prepare_text("SELECT 1; SELECT 2", &[]).await.err().unwrap();
    assert_eq!(several.code, SqlState::SYNTAX_ERROR);
}

#[tokio::test]
async fn cursors_fetch_forward_and_back() {
    let mut db = Database::open().await;
    db.execute("BEGIN; DECLARE c SCROLL CURSOR FOR SELECT * FROM generate_series(1, 5)").await;
    assert_eq!(db.rows("FETCH 2 FROM c").await, ["1", "2"]);
    assert_eq!(db.rows("FETCH PRIOR FROM c").await, ["1"]);
    assert_eq!(db.execute("MOVE ALL IN c").await.tag, "MOVE 4");
    db.execute("DECLARE d CURSOR FOR SELECT * FROM generate_series(1, 5)").await;
    assert_eq!(db.execute("FETCH FORWARD 3 FROM d").await.rows.len(), 3);
    db.execute("COMMIT").await;
    assert_eq!(db.error("FETCH c").await.code, SqlState::INVALID_CURSOR_NAME);
    db.execute("DECLARE h CURSOR WITH HOLD FOR SELECT * FROM generate_series(1, 3)").await;
    assert_eq!(db.rows("FETCH ALL FROM h").await, ["1", "2", "3"]);
    db.execute("CLOSE h").await;
    assert_eq!(db.error("DECLARE x CURSOR FOR SELECT 1").await.code, SqlState::NO_ACTIVE_TRANSACTION);
}

#[tokio::test]
async fn notifications_arrive_after_the_commit() {
    let mut db = Database::open().await;
    let mut listener = session(&db.engine).await;
    run(&mut listener, "LISTEN news", &[]).await.unwrap();
    db.execute("BEGIN; NOTIFY news, 'one'; NOTIFY news, 'one'; SELECT pg_notify('news', 'two')").await;
    assert!(listener.take_notifications().is_empty());
    db.execute("COMMIT").await;
    listener.notified().await;
    let got: Vec<String> = listener.take_notifications().iter().map(|n| n.payload.to_string()).collect();
    assert_eq!(got, ["one", "two"]);
    db.execute("BEGIN; NOTIFY news; ROLLBACK").await;
    run(&mut listener, "UNLISTEN *", &[]).await.unwrap();
    db.execute("NOTIFY news").await;
    assert!(listener.take_notifications().is_empty());
}

#[tokio::test]
async fn advisory_locks_exclude_other_sessions() {
    let mut db = Database::open().await;
    let mut other = session(&db.engine).await;
    db.execute("SELECT pg_advisory_lock(1); BEGIN; SELECT pg_advisory_xact_lock(2)").await;
    let try_lock = async |other: &mut sql::session::Session, key: i32| {
        let text = format!("SELECT pg_try_advisory_lock({key})");
        run(other, &text, &[]).await.unwrap().rows[0].clone()
    };
    assert_eq!(try_lock(&mut other, 1).await, "f");
    assert_eq!(try_lock(&mut other, 2).await, "f");
    db.execute("COMMIT").await;
    assert_eq!(try_lock(&mut other, 2).await, "t");
    assert_eq!(db.rows("SELECT pg_advisory_unlock(1)").await, ["t"]);
    assert_eq!(db.rows("SELECT pg_advisory_unlock(1)").await, ["f"]);
    assert_eq!(try_lock(&mut other, 1).await, "t");
    other.close().await;
    assert_eq!(db.rows("SELECT pg_try_advisory_lock(1)").await, ["t"]);
}

#[tokio::test]
async fn a_schema_change_waits_for_who_uses_the_table() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a int); BEGIN; SELECT * FROM t").await;
    let mut other = session(&db.engine).await;
    run(&mut other, "SET lock_timeout = '50ms'", &[]).await.unwrap();
    let refused = run(&mut other, "ALTER TABLE t ADD COLUMN b int", &[]).await.unwrap_err();
    assert_eq!(refused.code, SqlState::LOCK_NOT_AVAILABLE);
    db.execute("COMMIT").await;
    run(&mut other, "ALTER TABLE t ADD COLUMN b int", &[]).await.unwrap();
    assert_eq!(db.rows("SELECT * FROM t").await.len(), 0);
}

#[tokio::test]
async fn a_transaction_finds_rows_by_an_index_made_after_it_began() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a int, b int); CREATE TABLE u (a int); INSERT INTO t SELECT n, n FROM generate_series(1, 3000) AS n").await;
    db.execute("BEGIN; SELECT * FROM u").await;
    let mut other = session(&db.engine).await;
    run(&mut other, "CREATE INDEX ON t (b)", &[]).await.unwrap();
    assert_eq!(db.rows("SELECT a FROM t WHERE b = 77").await, ["77"]);
    db.execute("COMMIT").await;
}

#[tokio::test]
async fn a_running_statement_is_cancelled_or_times_out() {
    let mut db = Database::open().await;
    db.execute("SET statement_timeout = '30ms'").await;
    let error = db.error("SELECT pg_sleep(60)").await;
    assert_eq!(error.code, SqlState::QUERY_CANCELED);
    assert!(error.message.contains("timeout"));
    db.execute("SET statement_timeout = 0").await;
    let handle = db.session.cancel_handle();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            handle.cancel();
        }
    });
    let error = db.error("SELECT pg_sleep(60)").await;
    assert_eq!(
        (error.code, error.message.as_str()),
        (SqlState::QUERY_CANCELED, "canceling statement due to user request")
    );
}

#[tokio::test]
async fn statements_that_lose_a_race_are_run_again() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)").await;
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let mut mine = session(&db.engine).await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..20 {
                run(&mut mine, "UPDATE t SET n = n + 1 WHERE a = 1", &[]).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(db.rows("SELECT n FROM t").await, ["120"]);
}

#[tokio::test]
async fn explain_shows_and_runs_plans() {
    let mut db = Database::open().await;
    db.execute("CREATE TABLE t (a int PRIMARY KEY)").await;
    let plan = db.rows("EXPLAIN SELECT * FROM t WHERE a = 1").await.join("\n");
    assert!(plan.contains("t_pkey"), "{plan}");
    let plan = db.rows("EXPLAIN ANALYZE INSERT INTO t VALUES (1)").await.join("\n");
    assert!(plan.contains("actual"), "{plan}");
    assert_eq!(db.rows("SELECT * FROM t").await, ["1"]);
    db.execute("INSERT INTO t SELECT n FROM generate_series(2, 300) n").await;
    let join = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT * FROM t x JOIN t y ON y.a = x.a + 1 WHERE x.a IN (1, 2, 3)";
    let plan = db.rows(join).await;
    // Look-ups of all left rows travel together, and are counted one by one.
    assert!(
        plan.iter().any(|line| line.contains("t_pkey") && line.ends_with("(actual rows=1 loops=3)")),
        "{plan:?}"
    );
    assert!(plan.contains(&"KV Requests: 2".to_string()), "{plan:?}");
    let bytes = plan.iter().find_map(|line| line.strip_prefix("KV Bytes Read: ")?.parse::<u64>().ok());
    assert!(bytes.is_some_and(|bytes| bytes > 0), "{plan:?}");
    let plan = db.rows("EXPLAIN ANALYZE SELECT count(*) FROM t").await.join("\n");
    assert!(plan.contains("SQL CPU Time: "), "{plan}");
    db.execute("PREPARE q AS SELECT * FROM t").await;
    assert!(db.rows("EXPLAIN (VERBOSE, FORMAT JSON) EXECUTE q").await[0].contains("Plan"));
}
