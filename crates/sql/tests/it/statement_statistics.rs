//! `pg_stat_statements`.

use crate::database::Database;

const ENTRIES: &str = "select query, calls, rows, total_exec_time >= max_exec_time, min_exec_time > 0,
    abs(mean_exec_time * calls - total_exec_time) < 1e-3, plans
    from pg_stat_statements where query like '%from counted%' order by query";

#[tokio::test]
async fn statements_are_counted_by_what_they_have_in_common() {
    let mut db = Database::open().await;
    db.execute("create extension if not exists pg_stat_statements").await;
    db.execute("create table counted (id int primary key, note text); create role app").await;
    db.execute("grant all on counted to app").await;
    db.execute("insert into counted select n, 'x' from generate_series(1, 10) n").await;
    for limit in 1..=3 {
        db.execute(&format!("select * from counted where id <= {limit} and note = 'x'")).await;
    }
    db.execute("SELECT  * FROM counted WHERE id<=10 AND note='y' -- none").await;
    db.execute("prepare p as select id from counted where id = $1 and note = 'x'").await;
    db.execute("delete from counted where id > 8").await;
    db.error("select 1 / 0 from counted").await;
    assert_eq!(
        db.rows(ENTRIES).await,
        [
            "delete from counted where id > $1|1|2|t|t|t|0",
            "prepare p as select id from counted where id = $1 and note = $2|1|0|t|t|t|0",
            "select * from counted where id <= $1 and note = $2|4|6|t|t|t|0",
        ]
    );
    // Others have entries of their own, and see only those.
    db.execute("set role app; select * from counted where id <= 1 and note = 'x'").await;
    let hidden = "select count(*) from pg_stat_statements where query = '<insufficient privilege>'";
    assert_ne!(db.rows(hidden).await, ["0"]);
    let own = "select query, calls from pg_stat_statements where query like '%from counted%'";
    assert_eq!(db.rows(own).await, ["select * from counted where id <= $1 and note = $2|1"]);
    assert_eq!(db.error("select pg_stat_statements_reset()").await.code.as_str(), "42501");
    db.execute("reset role").await;
    assert_eq!(db.rows(hidden).await, ["0"]);
    db.execute("select pg_stat_statements_reset(userid, dbid, queryid) from pg_stat_statements where query like 'delete%'")
        .await;
    assert_eq!(db.rows(ENTRIES).await.len(), 3);
    db.execute("select pg_stat_statements_reset()").await;
    assert!(db.rows(ENTRIES).await.is_empty());
}

#[tokio::test]
async fn a_prepared_statement_counts_on_after_a_reset() {
    let mut db = Database::open().await;
    db.execute("create table counted (id int primary key)").await;
    let counted = "select calls from pg_stat_statements where query = 'execute p($1)'";
    db.execute("prepare p as select * from counted where id = $1").await;
    for calls in 1..=3 {
        db.execute("execute p(1)").await;
        assert_eq!(db.rows(counted).await, [calls.to_string()]);
    }
    db.execute("select pg_stat_statements_reset()").await;
    db.execute("execute p(2)").await;
    assert_eq!(db.rows(counted).await, ["1"]);
}
