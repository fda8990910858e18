//! Statements from text to stored rows: what only shows when all layers work together.

use crate::database::{Database, run, session};
use sql_types::Datum;

#[tokio::test]
async fn a_table_lives() {
    let mut db = Database::open().await;
    db.execute("create table t (id int primary key, name varchar(5) not null, n numeric(6,2) default 1.5)")
        .await;
    assert_eq!(db.execute("insert into t (id, name) values (1, 'a'), (2, 'b')").await.tag, "INSERT 0 2");
    assert_eq!(db.rows("insert into t values (3, 'c', 2) returning *").await, ["3|c|2.00"]);
    assert_eq!(db.execute("update t set n = n + id where id >= 2").await.tag, "UPDATE 2");
    assert_eq!(db.rows("select * from t order by id desc").await, ["3|c|5.00", "2|b|3.50", "1|a|1.50"]);
    assert_eq!(db.execute("delete from t where name = 'b'").await.tag, "DELETE 1");
    assert_eq!(db.rows("select count(*) from t").await, ["2"]);
    let long = db.error("insert into t values (4, 'abcdef')").await;
    assert_eq!(long.code.as_str(), "22001");
    let missing = db.error("insert into t values (4)").await;
    assert_eq!(missing.code.as_str(), "23502");
}

#[tokio::test]
async fn duplicates_are_named_however_the_transaction_runs() {
    let mut db = Database::open().await;
    db.execute("create table t (id int primary key, email text unique)").await;
    db.execute("insert into t values (1, 'a@x')").await;
    for (before, after) in [("", ""), ("begin;", "rollback")] {
        let error = db.error(&format!("{before} insert into t values (1, 'b@x')")).await;
        assert_eq!(error.message, "duplicate key value violates unique constraint \"t_pkey\"");
        assert_eq!(error.extra().unwrap().detail.as_deref(), Some("Key (id)=(1) already exists."));
        assert_eq!(error.extra().unwrap().constraint.as_deref(), Some("t_pkey"));
        if !after.is_empty() {
            db.execute(after).await;
        }
        let error = db.error(&format!("{before} insert into t values (2, 'a@x')")).await;
        assert_eq!(error.extra().unwrap().constraint.as_deref(), Some("t_email_key"));
        if !after.is_empty() {
            db.execute(after).await;
        }
    }
    assert_eq!(db.rows("select * from t").await, ["1|a@x"]);
    let upsert =
        "insert into t values (1, 'c@x') on conflict (id) do update set email = excluded.email returning *";
    assert_eq!(db.rows(upsert).await, ["1|c@x"]);
    assert_eq!(db.execute("insert into t values (1, 'z') on conflict do nothing").await.tag, "INSERT 0 0");
}

#[tokio::test]
async fn concurrent_increments_are_not_lost() {
    let mut db = Database::open().await;
    db.execute("create table counter (id int primary key, n int); insert into counter values (1, 0)").await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(session(&db.engine).await);
    }
    let work = sessions.into_iter().map(|mut session| async move {
        for _ in 0..25 {
            run(&mut session, "update counter set n = n + 1 where id = 1", &[]).await.expect("an update");
        }
    });
    futures::future::join_all(work).await;
    assert_eq!(db.rows("select n from counter").await, ["100"]);
}

#[tokio::test]
async fn joins_subqueries_and_windows() {
    let mut db = Database::open().await;
    db.execute(
        "create table a (id int primary key, x int); create table b (id int primary key, a_id int, y text);
         create index on b (a_id);
         insert into a values (1, 10), (2, 20), (3, 30);
         insert into b values (1, 1, 'p'), (2, 1, 'q'), (3, 2, 'r'), (4, null, 's')",
    )
    .await;
    let same = |rows: &[&str]| rows.iter().map(ToString::to_string).collect::<Vec<_>>();
    for (query, rows) in [
        ("select a.id, b.y from a join b on b.a_id = a.id order by 1, 2", same(&["1|p", "1|q", "2|r"])),
        (
            "select a.id, b.y from a left join b on b.a_id = a.id order by 1, 2",
            same(&["1|p", "1|q", "2|r", "3|NULL"]),
        ),
        (
            "select a.id, b.y from a full join b on b.a_id = a.id where a.id is null or b.id is null order by 1",
            same(&["3|NULL", "NULL|s"]),
        ),
        ("select id from a where id not in (select a_id from b where a_id is not null)", same(&["3"])),
        ("select id from a where id not in (select a_id from b)", same(&[])),
        (
            "select id, (select count(*) from b where a_id = a.id) from a order by id",
            same(&["1|2", "2|1", "3|0"]),
        ),
        (
            "select id, t.y from a, lateral (select y from b where a_id = a.id order by y desc limit 1) t order by id",
            same(&["1|q", "2|r"]),
        ),
        (
            "select id, rank() over (order by a_id), count(*) over (partition by a_id) from b order by id",
            same(&["1|1|2", "2|1|2", "3|3|1", "4|4|1"]),
        ),
        (
            "select sum(x) over (order by id rows between 1 preceding and current row) from a order by id",
            same(&["10", "30", "50"]),
        ),
        (
            "with recursive r(n) as (select 1 union all select n + 1 from r where n < 4) select sum(n) from r",
            same(&["10"]),
        ),
        ("with gone as (delete from b where id = 4 returning y) select * from gone", same(&["s"])),
        (
            "select x, count(*) from a group by rollup (x) order by x nulls last",
            same(&["10|1", "20|1", "30|1", "NULL|3"]),
        ),
        ("select array_agg(y order by y desc) from b", same(&["{r,q,p}"])),
        ("select unnest(array[1,2]), generate_series(1,3)", same(&["1|1", "2|2", "NULL|3"])),
        ("values (1, 'x') union select 2, 'y' except select 1, 'x'", same(&["2|y"])),
        ("select (array[[1,2],[3,4]])[2][1], (array[1,2,3])[2:3], (array[5])[7]", same(&["3|{2,3}|NULL"])),
        (
            "select 2 = any(array[1,2]), 2 = all(array[2,null]), null in (1), 1 in (1, null), row(null, null) is null",
            same(&["t|NULL|NULL|t|t"]),
        ),
    ] {
        assert_eq!(db.rows(query).await, rows, "{query}");
    }
    assert_eq!(db.error("select (select id from a)").await.code.as_str(), "21000");
}

#[tokio::test]
async fn foreign_keys_through_sql() {
    let mut db = Database::open().await;
    db.execute(
        "create table p (id int primary key);
         create table c (id int primary key, p_id int references p on delete cascade);
         create table d (id int primary key, c_id int references c on delete set null);
         insert into p values (1), (2); insert into c values (10, 1), (20, 2); insert into d values (100, 10), (200, 20)",
    )
    .await;
    let orphan = db.error("insert into c values (30, 9)").await;
    assert_eq!(orphan.extra().unwrap().constraint.as_deref(), Some("c_p_id_fkey"));
    db.execute("delete from p where id = 1").await;
    assert_eq!(db.rows("select * from c").await, ["20|2"]);
    assert_eq!(db.rows("select * from d order by id").await, ["100|NULL", "200|20"]);
}

#[tokio::test]
async fn savepoints_undo_statements() {
    let mut db = Database::open().await;
    db.execute("create table t (id int primary key, n int)").await;
    db.execute(
        "begin; insert into t values (1, 1); savepoint s; update t set n = 2; insert into t values (2, 2)",
    )
    .await;
    assert_eq!(db.rows("select * from t order by id").await, ["1|2", "2|2"]);
    db.execute("rollback to s").await;
    assert_eq!(db.rows("select * from t").await, ["1|1"]);
    db.execute("insert into t values (2, 5); commit").await;
    assert_eq!(db.rows("select * from t order by id").await, ["1|1", "2|5"]);
}

#[tokio::test]
async fn copy_in_and_out() {
    let mut db = Database::open().await;
    db.execute("create table t (id int primary key, name text, n numeric)").await;
    let data = b"1\tone\t1.50\n2\t\\N\t2\n3\tthr\\tee\t\\N\n";
    for chunk in [1, 7, 100] {
        db.execute("delete from t").await;
        assert_eq!(db.copy("copy t from stdin", data, chunk).await.unwrap(), "COPY 3");
        let output = db.execute("copy t to stdout").await;
        assert_eq!(output.copied, data);
        assert_eq!(output.tag, "COPY 3");
    }
    let csv = db
        .execute("copy (select id, name from t where id < 3 order by id) to stdout with (format csv, header)")
        .await;
    assert_eq!(String::from_utf8(csv.copied).unwrap(), "id,name\n1,one\n2,\n");
    let error = db.copy("copy t from stdin", b"4\tx\t1\nfive\ty\t2\n", 5).await.unwrap_err();
    assert_eq!(error.code.as_str(), "22P02");
    assert_eq!(error.extra().unwrap().context.as_deref(), Some("COPY t, line 2, column id: \"five\""));
    assert_eq!(db.rows("select count(*) from t").await, ["3"]);
    let error = db.copy("copy t from stdin", b"9\tx\t1\n9\ty\t2\n", 100).await.unwrap_err();
    assert_eq!(error.code.as_str(), "23505");
    assert_eq!(db.rows("select count(*) from t").await, ["3"]);
}

#[tokio::test]
async fn many_rows_are_copied() {
    let mut db = Database::open().await;
    db.execute("create table accounts (aid int, bid int, abalance int, filler char(84))").await;
    let mut data = String::new();
    for id in 1..=50_000 {
        data.push_str(&format!("{id}\t{}\t0\t\n", id / 100_000 + 1));
    }
    assert_eq!(
        db.copy("copy accounts from stdin with (freeze on)", data.as_bytes(), 65_536).await.unwrap(),
        "COPY 50000"
    );
    db.execute("alter table accounts add primary key (aid)").await;
    assert_eq!(
        db.rows("select count(*), sum(aid), min(aid), max(aid) from accounts").await,
        ["50000|1250025000|1|50000"]
    );
    assert_eq!(db.rows("select abalance from accounts where aid = 4711").await, ["0"]);
}

#[tokio::test]
async fn a_row_that_exists_is_found_among_many_that_are_copied() {
    let mut db = Database::open().await;
    db.execute("create table t (id int primary key, u int unique)").await;
    db.execute("insert into t select n, -n from generate_series(5000, 20000, 1000) n").await;
    db.execute("delete from t where id = 6000").await;
    let rows = |wanted: &dyn Fn(i32) -> bool| -> String {
        (0..20_000).filter(|id| wanted(*id)).map(|id| format!("{id}\t{id}\n")).collect()
    };
    let is_free = |id: i32| id < 5000 || id == 6000 || id % 1000 != 0;
    for taken in [5000, 7000, 19_000] {
        let data = rows(&|id| is_free(id) || id == taken);
        let error = db.copy("copy t from stdin", data.as_bytes(), 65_536).await.unwrap_err();
        assert_eq!(error.code.as_str(), "23505");
        let message = "duplicate key value violates unique constraint \"t_pkey\"";
        assert_eq!(error.message, message);
        let detail = format!("Key (id)=({taken}) already exists.");
        assert_eq!(error.extra().unwrap().detail, Some(detail));
        assert_eq!(db.rows("select count(*), max(u) from t").await, ["15|-5000"], "nothing is left");
    }
    let data = rows(&is_free);
    let free = data.lines().count();
    let copied = db.copy("copy t from stdin", data.as_bytes(), 65_536).await.unwrap();
    assert_eq!(copied, format!("COPY {free}"));
    let all = format!("{}|{}", free + 15, free + 15);
    assert_eq!(db.rows("select count(*), count(distinct u) from t").await, [all]);
    // In descending order, over rows some of which exist.
    db.execute("delete from t where id % 3 = 0").await;
    let data: String = rows(&|id| id % 3 == 0).lines().rev().map(|line| format!("{line}\n")).collect();
    assert!(db.copy("copy t from stdin", data.as_bytes(), 65_536).await.is_ok());
    let error = db.copy("copy t from stdin", data.as_bytes(), 65_536).await.unwrap_err();
    assert_eq!(error.code.as_str(), "23505");
}

#[tokio::test]
async fn parameters_are_bound() {
    let mut db = Database::open().await;
    db.execute(
        "create table t (id int primary key, name text); insert into t values (1, 'a'), (2, 'b'), (3, 'c')",
    )
    .await;
    let select = "select name from t where id = $1";
    for (id, name) in [(1, "a"), (3, "c")] {
        let output = run(&mut db.session, select, &[Datum::Int4(id)]).await.unwrap();
        assert_eq!(output.rows, [name]);
    }
    let array = Datum::array(sql_types::Type::INT4, vec![Datum::Int4(3), Datum::Int4(1)]);
    let many = run(&mut db.session, "select name from t where id = any($1::int[]) order by id", &[array])
        .await
        .unwrap();
    assert_eq!(many.rows, ["a", "c"]);
}
