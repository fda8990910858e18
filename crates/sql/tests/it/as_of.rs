//! AS OF SYSTEM TIME: queries and transactions of the past.

use crate::database::{Database, run, session};
use sql::session::RunOptions;
use sql_types::SqlError;

/// The snapshot of a transaction that begins now.
async fn now(db: &mut Database) -> String {
    db.rows("select cluster_logical_timestamp()").await.remove(0)
}

/// Two tables that were changed, and the time before.
async fn changed() -> (Database, String) {
    let mut db = Database::open().await;
    db.execute(
        "create table items (id int primary key, name text not null);
         create table sales (id int primary key, item int, pieces int)",
    )
    .await;
    db.execute("insert into items values (1, 'one'), (2, 'two')").await;
    db.execute("insert into sales select n, n % 2 + 1, n from generate_series(1, 100) n").await;
    let then = now(&mut db).await;
    db.execute("update items set name = 'new' where id = 1").await;
    db.execute("delete from sales where id > 50").await;
    db.execute("update sales set pieces = 0").await;
    db.execute("insert into items values (3, 'three')").await;
    (db, then)
}

fn code(error: &SqlError) -> &str {
    error.code.as_str()
}

fn position(error: &SqlError) -> Option<u32> {
    error.extra().and_then(|extra| extra.position)
}

#[tokio::test]
async fn a_query_reads_what_there_was() {
    let (mut db, then) = changed().await;
    let queries = [
        (
            "select id, name from items AS_OF order by id",
            vec!["1|one", "2|two"],
            vec!["1|new", "2|two", "3|three"],
        ),
        ("select name from items where id = 1 AS_OF", vec!["one"], vec!["new"]),
        ("select count(*), sum(pieces) from sales AS_OF", vec!["100|5050"], vec!["50|0"]),
        (
            "select i.name, sum(s.pieces) from sales s join items as i on i.id = s.item AS_OF where s.id > 90
             group by i.name order by 1",
            vec!["one|480", "two|475"],
            vec![],
        ),
        ("select count(*) from items, sales AS_OF", vec!["200"], vec!["150"]),
        ("with i as (select * from items) select count(*) from i AS_OF limit 1", vec!["2"], vec!["3"]),
        ("select count(*) from items AS_OF where id in (select id from sales)", vec!["2"], vec!["3"]),
        (
            "(select id from items AS_OF) union select id from items AS_OF order by 1",
            vec!["1", "2"],
            vec!["1", "2", "3"],
        ),
        (
            "select max(name) from items AS_OF where exists (select 1 from sales AS_OF where id = 60)",
            vec!["two"],
            vec!["NULL"],
        ),
    ];
    for engine in ["row", "analytic", "auto"] {
        db.execute(&format!("set engine = '{engine}'")).await;
        for (query, old, new) in &queries {
            let past = query.replace("AS_OF", &format!("AS OF SYSTEM TIME {then}"));
            assert_eq!(db.rows(&past).await, *old, "{engine}: {past}");
            let present = query.replace("AS_OF", "");
            assert_eq!(db.rows(&present).await, *new, "{engine}: {present}");
        }
    }
}

#[tokio::test]
async fn the_time_is_said_in_many_ways() {
    let (mut db, then) = changed().await;
    for time in
        [then.clone(), format!("'{then}'"), format!("{then}::numeric"), format!("with_min_timestamp({then})")]
    {
        let rows = db.rows(&format!("select count(*) from items as of system time {time}")).await;
        assert!(rows == ["2"] || time.starts_with("with_min"), "{time}: {rows:?}");
    }
    for time in
        ["follower_read_timestamp()", "with_max_staleness('10s')", "now() - interval '1 minute'", "'-1m'"]
    {
        db.execute(&format!("select count(*) from pg_class as of system time {time}")).await;
    }
    assert_eq!(db.rows("select count(*) from items as of system time with_max_staleness('0s')").await, ["3"]);
    let inside = format!("select cluster_logical_timestamp(), count(*) from items as of system time {then}");
    assert_eq!(db.rows(&inside).await, [format!("{then}|2")]);
}

#[tokio::test]
async fn times_that_cannot_be_are_errors() {
    let (mut db, then) = changed().await;
    for (query, wanted, at) in [
        ("select 1 from items as of system time '1h'", "22023", Some(39)),
        ("select 1 from items as of system time '2999-01-01'", "22023", Some(39)),
        ("select 1 from items as of system time 'yes'", "22023", Some(39)),
        ("select 1 from items as of system time true", "22023", Some(39)),
        ("select 1 from items as of system time null", "22023", Some(39)),
        ("select 1 from items as of system time with_max_staleness()", "22023", Some(39)),
        ("select 1 from items as of system time $1", "0A000", Some(39)),
        ("select 1 from items as of system time", "42601", Some(38)),
        ("select 1 from items as of system time '-1m' nonsense nonsense", "42601", None),
        ("select 1 from (select 1 from items as of system time '-1m') t", "42601", None),
        ("select 1 from items as of system time '-1m', sales as of system time '-2m'", "0A000", None),
        ("insert into items select 4, 'x' from items as of system time '-1m'", "0A000", Some(62)),
        ("create view v as select 1 from items as of system time '-1m'", "0A000", None),
        ("select 1 into t from items as of system time '-1m'", "0A000", None),
        ("copy (select 1 from items as of system time '-1m') to stdout", "0A000", None),
        ("set session characteristics as transaction as of system time '-1m'", "0A000", None),
        // The table did not exist.
        ("select 1 from items as of system time '-10m'", "42P01", None),
        // The node began when history is kept for a quarter of an hour.
        ("select 1 from items as of system time '-1h'", "72000", None),
        ("begin as of system time '-1h'", "72000", None),
        ("begin as of system time '1h'", "22023", None),
        ("begin read write as of system time '-1m'", "42601", None),
    ] {
        let error = db.error(query).await;
        assert_eq!(code(&error), wanted, "{query}: {error:?}");
        if at.is_some() {
            assert_eq!(position(&error), at, "{query}: {error:?}");
        }
        assert_eq!(db.session.transaction_status(), b'I', "{query}");
    }
    let old = db.error("select 1 from items as of system time '-1h'").await;
    assert!(
        old.extra().and_then(|extra| extra.hint.as_deref()).is_some_and(|hint| hint.contains("--gc-ttl"))
    );
    for query in ["update items set name = 'x'", "select 1 from items for update"] {
        let text = format!("begin as of system time {then}; {query}");
        assert_eq!(code(&db.error(&text).await), "25006", "{query}");
        db.execute("rollback").await;
    }
    let locking = format!("select 1 from items as of system time {then} for update");
    assert_eq!(code(&db.error(&locking).await), "25006");
}

#[tokio::test]
async fn a_transaction_reads_what_there_was() {
    let (mut db, then) = changed().await;
    for begin in [
        format!("begin as of system time {then}"),
        format!("begin transaction read only, as of system time '{then}'"),
        format!("start transaction isolation level read committed as of system time {then}"),
        format!("begin; set transaction as of system time {then}"),
    ] {
        db.execute(&begin).await;
        assert_eq!(db.rows("select name from items order by id").await, ["one", "two"], "{begin}");
        assert_eq!(now(&mut db).await, then);
        let other =
            run(&mut session(&db.engine).await, "update items set name = 'later' where id = 2", &[]).await;
        other.expect("nobody waits for one who reads the past");
        assert_eq!(db.rows("select count(*) from items").await, ["2"], "{begin}");
        let same = format!("select name from items as of system time {then} where id = 2");
        assert_eq!(db.rows(&same).await, ["two"], "the same time may be said again");
        db.execute("savepoint s").await;
        let other = db.error("select 1 from items as of system time '-1m'").await;
        assert_eq!(code(&other), "0A000");
        db.execute("rollback to s").await;
        assert_eq!(db.rows("show transaction_read_only").await, ["on"]);
        assert_eq!(code(&db.error("set transaction read write").await), "42601");
        db.execute("rollback to s").await;
        db.execute("commit and chain").await;
        assert_eq!(db.rows("select count(*) from items").await, ["2"], "the chained one reads there, too");
        db.execute("rollback").await;
        assert_eq!(db.rows("select count(*) from items").await, ["3"]);
    }
    db.execute("begin; select 1 from items").await;
    let late = db.error(&format!("set transaction as of system time {then}")).await;
    assert_eq!(code(&late), "25001");
    db.execute("rollback").await;
    db.execute("begin").await;
    let inside = db.error(&format!("select 1 from items as of system time {then}")).await;
    assert_eq!(code(&inside), "0A000");
    assert!(
        inside.extra().and_then(|extra| extra.hint.as_deref()).is_some_and(|hint| hint.contains("BEGIN"))
    );
    db.execute("rollback").await;
}

#[tokio::test]
async fn statements_of_one_message_read_each_at_its_own_time() {
    let (mut db, then) = changed().await;
    let past = format!("select count(*) from items as of system time {then}");
    assert_eq!(db.rows(&format!("{past}; select count(*) from items")).await, ["3"]);
    assert_eq!(db.rows(&format!("{past}; {past}")).await, ["2"]);
    let after = db.error(&format!("insert into items values (7, 'x'); {past}")).await;
    assert_eq!(code(&after), "0A000");
    assert_eq!(db.rows("select count(*) from items").await, ["3"], "it was undone");
    // A portal that is not at its end keeps its transaction.
    let text = format!("select id from items as of system time {then}");
    let prepared = db.session.prepare_text(&text, &[]).await.unwrap();
    assert!(prepared.param_types().is_empty());
    let mut portal = db.session.bind(&prepared, Vec::new()).await.unwrap();
    let mut sink = crate::database::Rows::default();
    db.session.run(&mut portal, 1, RunOptions::default(), &mut sink).await.unwrap();
    assert_eq!(code(&db.error("select 1 from items").await), "0A000");
    assert_eq!(db.rows("select count(*) from items").await, ["3"]);
}

#[tokio::test]
async fn statements_are_prepared_explained_and_read_by_cursors() {
    let (mut db, then) = changed().await;
    db.execute(&format!("prepare p (int) as select name from items as of system time {then} where id = $1"))
        .await;
    for _ in 0..3 {
        assert_eq!(db.rows("execute p (1)").await, ["one"]);
    }
    for explained in
        ["execute p (1)".to_string(), format!("select * from sales as of system time {then} where id > 50")]
    {
        let lines =
            db.rows(&format!("explain (analyze, costs off, timing off) {explained}")).await.join("\n");
        assert!(lines.contains("actual rows=1 ") || lines.contains("actual rows=50 "), "{lines}");
        db.execute(&format!("explain {explained}")).await;
    }
    db.execute(&format!("declare c cursor with hold for select name from items as of system time {then}"))
        .await;
    assert_eq!(db.rows("fetch all from c").await, ["one", "two"]);
    db.execute(&format!("begin as of system time {then}; declare d cursor for select name from items")).await;
    assert_eq!(db.rows("fetch 1 from d; fetch 1 from d").await, ["two"]);
    db.execute("commit").await;
    db.execute(&format!("begin as of system time {then}")).await;
    assert_eq!(db.execute("copy items to stdout").await.copied, b"1\tone\n2\ttwo\n");
    db.execute("commit").await;
}

#[tokio::test]
async fn rows_are_read_with_the_schema_of_their_time() {
    let (mut db, then) = changed().await;
    let past = |query: &str| format!("{query} as of system time {then}");
    // An index made since knows nothing of what there was, and one dropped since does not either.
    db.execute("create index pieces on sales (pieces)").await;
    assert_eq!(db.rows(&past("select id from sales where pieces = 60")).await, ["60"]);
    let indexed = now(&mut db).await;
    db.execute("drop index pieces").await;
    let query = format!("select count(*) from sales where pieces = 0 as of system time {indexed}");
    assert_eq!(db.rows(&query).await, ["50"]);
    db.execute(
        "alter table items add column price int default 5; alter table items rename column name to title",
    )
    .await;
    assert_eq!(db.rows(&past("select * from items")).await, ["1|one", "2|two"]);
    assert_eq!(code(&db.error(&past("select title from items")).await), "42703");
    assert_eq!(db.rows("select title, price from items where id = 1").await, ["new|5"]);
    db.execute("alter table items rename to things").await;
    assert_eq!(db.rows(&past("select count(*) from items")).await, ["2"]);
    assert_eq!(code(&db.error(&past("select 1 from things")).await), "42P01");
    // What was cleared is not there any more, which is better said than shown as nothing.
    db.execute("truncate things").await;
    assert_eq!(code(&db.error(&past("select 1 from items")).await), "72000");
    db.execute("drop table sales").await;
    assert_eq!(code(&db.error(&past("select 1 from sales")).await), "72000");
    assert_eq!(code(&db.error("select 1 from sales").await), "42P01");
}

#[tokio::test]
async fn who_may_read_is_decided_today() {
    let (mut db, _) = changed().await;
    db.execute("create role ann; grant select on items to ann").await;
    let then = now(&mut db).await;
    let past = format!("select count(*) from items as of system time {then}");
    db.execute("set role ann").await;
    assert_eq!(db.rows(&past).await, ["3"]);
    db.execute("reset role; revoke select on items from ann; create role bob; grant select on items to bob")
        .await;
    db.execute("set role ann").await;
    assert_eq!(code(&db.error(&past).await), "42501");
    db.execute("set role bob").await;
    assert_eq!(db.rows(&past).await, ["3"]);
}
