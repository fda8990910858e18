//! ANALYZE: what it finds out, where it shows, what it changes, and that the node does it by itself.

use crate::database::{Database, session};
use sql::engine::{Engine, TenantInfo};
use sql_types::SqlState;
use std::time::Duration;

/// A table with a column of two values, one of them rare, and one of a hundred.
async fn skewed(db: &mut Database) {
    db.execute(
        "SET auto_analyze = off;
         CREATE TABLE t (id int PRIMARY KEY, kind text, n int, note text);
         CREATE INDEX t_kind ON t (kind); CREATE INDEX t_n ON t (n, kind);
         INSERT INTO t SELECT i, CASE WHEN i % 500 = 0 THEN 'rare' ELSE 'usual' END, i % 100,
                              CASE WHEN i % 4 > 0 THEN 'x' || i END
                       FROM generate_series(1, 5000) i",
    )
    .await;
}

const STATS: &str = "SELECT attname, null_frac, avg_width, n_distinct, most_common_vals, most_common_freqs, \
                     histogram_bounds IS NOT NULL FROM pg_stats WHERE tablename = 't' ORDER BY attname";
const TABLE: &str = "SELECT reltuples, relpages > 0, last_analyze IS NOT NULL, last_autoanalyze IS NOT NULL, analyze_count \
                     FROM pg_class c JOIN pg_stat_user_tables s ON s.relid = c.oid WHERE c.relname = 't'";

#[tokio::test]
async fn what_analyze_finds_out_shows_in_the_catalog() {
    let mut db = Database::open().await;
    skewed(&mut db).await;
    assert_eq!(db.rows(TABLE).await, ["-1|f|f|f|0"]);
    assert!(db.rows(STATS).await.is_empty());
    assert_eq!(db.execute("ANALYZE t (kind)").await.tag, "ANALYZE");
    let kind = "kind|0|6|2|{usual,rare}|{0.998,0.002}|f";
    assert_eq!(db.rows(STATS).await, [kind]);
    assert_eq!(db.execute("VACUUM (ANALYZE) t").await.tag, "VACUUM");
    let stats = db.rows(STATS).await;
    assert_eq!(stats[0], "id|0|4|-1|NULL|NULL|t");
    assert_eq!(stats[1], kind);
    assert!(stats[2].starts_with("n|0|4|100|{") && stats[2].ends_with("|f"), "{}", stats[2]);
    assert!(stats[3].starts_with("note|0.25|6|-0.7"), "{}", stats[3]);
    assert_eq!(db.rows(TABLE).await, ["5000|t|t|f|2"]);
    // What the node knew is read again by the next one.
    let kv = db.engine.kv().clone();
    let tenant = TenantInfo {
        id: kv.tenant().0,
        name: "app".into(),
        owner_role: "dormouse".into(),
        owner_verifier: "SCRAM-SHA-256$4096:x$x:x".into(),
    };
    let engine = Engine::open(kv, tenant).await.expect("an engine");
    let mut next = Database { session: session(&engine).await, engine };
    assert_eq!(next.rows(STATS).await, stats);
    assert_eq!(next.rows(TABLE).await, ["5000|t|t|f|2"]);
    next.execute("TRUNCATE t").await;
    assert_eq!(next.rows(TABLE).await, ["-1|f|f|f|0"]);
    assert!(next.rows(STATS).await.is_empty());
}

#[tokio::test]
async fn analyze_is_part_of_its_transaction() {
    let mut db = Database::open().await;
    skewed(&mut db).await;
    db.execute("BEGIN; ANALYZE t; ROLLBACK").await;
    assert_eq!(db.rows(TABLE).await, ["-1|f|f|f|0"]);
    db.execute("BEGIN; SAVEPOINT a; ANALYZE t; ROLLBACK TO a; COMMIT").await;
    assert_eq!(db.rows(TABLE).await, ["-1|f|f|f|0"]);
    // It sees what the transaction has written.
    db.execute("BEGIN; DELETE FROM t WHERE id > 1000; ANALYZE t; COMMIT").await;
    assert_eq!(db.rows(TABLE).await, ["1000|t|t|f|1"]);
    db.execute(
        "BEGIN; CREATE TABLE new (id int PRIMARY KEY); INSERT INTO new VALUES (1), (2); ANALYZE new; COMMIT",
    )
    .await;
    assert_eq!(db.rows("SELECT reltuples FROM pg_class WHERE relname = 'new'").await, ["2"]);
    db.execute("BEGIN; ANALYZE new; TRUNCATE new; COMMIT").await;
    assert_eq!(db.rows("SELECT reltuples FROM pg_class WHERE relname = 'new'").await, ["-1"]);
    assert_eq!(db.error("BEGIN READ ONLY; ANALYZE t").await.code, SqlState::READ_ONLY_TRANSACTION);
}

#[tokio::test]
async fn what_cannot_be_analyzed_is_refused_or_skipped() {
    let mut db = Database::open().await;
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, j json); CREATE VIEW v AS SELECT 1; CREATE ROLE other LOGIN",
    )
    .await;
    assert_eq!(db.error("ANALYZE nothing").await.code, SqlState::UNDEFINED_TABLE);
    let error = db.error("ANALYZE t (nothing)").await;
    assert_eq!(
        (error.code, error.message.as_str()),
        (SqlState::UNDEFINED_COLUMN, "column \"nothing\" of relation \"t\" does not exist")
    );
    assert_eq!(db.error("ANALYZE t (id, id)").await.code, SqlState::DUPLICATE_COLUMN);
    db.session.take_notices();
    db.execute("ANALYZE v, pg_class, t").await;
    let skipped = "skipping \"v\" --- cannot analyze non-tables or special system tables";
    let notices: Vec<String> =
        db.session.take_notices().into_iter().map(|notice| notice.error.message).collect();
    assert_eq!(notices, [skipped]);
    db.execute("SET ROLE other; ANALYZE t; ANALYZE; RESET ROLE").await;
    let notices: Vec<String> =
        db.session.take_notices().into_iter().map(|notice| notice.error.message).collect();
    assert_eq!(notices, ["skipping \"t\" --- only table or database owner can analyze it"]);
}

#[tokio::test]
async fn plans_are_made_anew_when_there_are_new_statistics() {
    let mut db = Database::open().await;
    skewed(&mut db).await;
    db.execute("PREPARE by_kind AS SELECT count(n) FROM t WHERE kind = 'usual'; PREPARE by_key AS SELECT n FROM t WHERE id = $1").await;
    let scan = |lines: Vec<String>| lines.into_iter().rfind(|line| line.contains("Scan")).unwrap_or_default();
    let explained = "EXPLAIN (COSTS OFF) EXECUTE by_kind";
    assert!(scan(db.rows(explained).await).contains("using t_kind"), "an average value is looked up");
    assert_eq!(db.rows("EXECUTE by_kind").await, ["4990"]);
    db.execute("ANALYZE t").await;
    assert!(scan(db.rows(explained).await).ends_with("Seq Scan on t"), "one that most rows have is not");
    assert_eq!(db.rows("EXECUTE by_kind").await, ["4990"]);
    let rare = "EXPLAIN (COSTS OFF) SELECT count(n) FROM t WHERE kind = 'rare'";
    assert!(scan(db.rows(rare).await).contains("using t_kind"));
    assert_eq!(db.rows("EXECUTE by_key (5)").await, ["5"]);
}

#[tokio::test]
async fn the_node_analyzes_what_has_changed_much() {
    let mut db = Database::open().await;
    skewed(&mut db).await;
    let changed = "SELECT n_mod_since_analyze FROM pg_stat_user_tables WHERE relname = 't'";
    assert_eq!(db.rows(changed).await, ["0"], "it is off");
    db.execute("SET auto_analyze = on; UPDATE t SET n = n + 1 WHERE id <= 50").await;
    assert_eq!(db.rows(changed).await, ["50"], "that is not much");
    db.execute("DELETE FROM t WHERE id = 1").await;
    while db.rows(TABLE).await != ["4999|t|f|t|0"] {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(db.rows(changed).await, ["0"]);
    assert_eq!(db.rows(STATS).await.len(), 4);
}
