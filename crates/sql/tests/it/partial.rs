//! Aggregates with which KV nodes help: when, what comes back, and that the result is the same.

use crate::database::{Database, session};

async fn filled() -> Database {
    let mut db = Database::open().await;
    db.execute(
        "create table sales (id int primary key, shop int, pieces int, price numeric(12,2), discount numeric(4,2),
            note text, day date, weight float8);
         insert into sales select n, n % 7, n % 11, (n * 37 % 10000) / 100.0, (n % 20) / 100.0,
            case when n % 5 > 0 then 'note ' || n % 3 end, date '2024-01-01' + n % 300, n / 8.0
         from generate_series(1, 12000) n;
         analyze sales; set auto_analyze = off",
    )
    .await;
    db
}

/// The numbers of bytes that came from KV nodes, and of requests; and whether they aggregated.
async fn explained(db: &mut Database, query: &str) -> (u64, u64, bool) {
    let lines = db.rows(&format!("explain (analyze, costs off, timing off) {query}")).await;
    let fact = |name: &str| {
        let found = lines.iter().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok());
        found.unwrap_or_else(|| panic!("{name}{lines:?}"))
    };
    let partial = lines.iter().any(|line| line.trim() == "Partial Aggregate: in KV nodes");
    (fact("KV Bytes Read: "), fact("KV Requests: "), partial)
}

#[tokio::test]
async fn fewer_bytes_cross_the_wire() {
    let mut db = filled().await;
    for query in [
        "select shop, note, sum(pieces), sum(price * (1 - discount)), avg(price), count(*) from sales
            where day <= '2024-09-01' group by shop, note order by shop, note",
        "select sum(price * discount) from sales where day >= '2024-02-01' and discount between 0.05 and 0.07",
        "select count(*), min(day), max(note) from sales",
    ] {
        for engine in ["row", "analytic", "auto"] {
            db.execute(&format!("set engine = '{engine}'; set partial_aggregates = off")).await;
            let plain = db.rows(query).await;
            let (bytes_without, _, partial) = explained(&mut db, query).await;
            assert!(!partial);
            for choice in ["auto", "on"] {
                db.execute(&format!("set partial_aggregates = '{choice}'")).await;
                let before = db.engine.partial_aggregates();
                assert_eq!(db.rows(query).await, plain, "{engine}, {choice}: {query}");
                assert_eq!(db.engine.partial_aggregates(), before + 1, "{engine}, {choice}: {query}");
                let (bytes, requests, partial) = explained(&mut db, query).await;
                assert!(partial && requests > 0);
                assert!(bytes * 10 < bytes_without, "{bytes} and {bytes_without} bytes: {query}");
            }
        }
    }
}

#[tokio::test]
async fn explain_says_where_aggregates_are_computed() {
    let mut db = filled().await;
    let line = "Partial Aggregate: in KV nodes";
    for (query, choice, wanted) in [
        ("select count(*) from sales", "auto", true),
        ("select count(*) from sales", "off", false),
        ("select shop, sum(price * 2) from sales where pieces > 3 group by shop", "auto", true),
        // Few rows are read, or there are hardly fewer groups than rows.
        ("select count(*) from sales where id < 10", "auto", false),
        ("select count(*) from sales where id < 10", "on", true),
        ("select id, sum(price) from sales group by id", "auto", false),
        ("select id, sum(price) from sales group by id", "on", true),
        // What KV nodes cannot do exactly as PostgreSQL.
        ("select sum(weight) from sales", "on", false),
        ("select count(distinct shop) from sales", "on", false),
        ("select string_agg(note, ',') from sales", "on", false),
        ("select sum(price / 2) from sales", "on", false),
        ("select count(*) from sales where price / 2 > 1", "on", false),
        ("select count(*) filter (where price / 2 > 1) from sales", "on", false),
        ("select pieces % 2, count(*) from sales group by 1", "on", false),
        ("select count(*) from sales where random() < 2", "on", false),
        ("select count(*) from (select * from sales limit 5) s", "on", false),
        ("select count(*) from sales a, sales b where a.id = b.id", "on", false),
        ("select shop, note, count(*) from sales group by rollup (shop, note)", "on", false),
    ] {
        db.execute(&format!("set partial_aggregates = '{choice}'")).await;
        let plan = db.rows(&format!("explain {query}")).await;
        assert_eq!(plan.iter().any(|text| text.trim() == line), wanted, "{choice}: {query}: {plan:?}");
    }
    db.execute("set partial_aggregates = on").await;
    let lines = db
        .rows("explain (analyze, costs off, timing off, summary off) select count(*) from sales where pieces > 8")
        .await;
    assert_eq!(lines[0], "Aggregate (actual rows=1 loops=1)");
    let scan = lines.iter().find(|line| line.contains("Seq Scan")).expect("a scan");
    assert!(scan.ends_with("(actual rows=2182 loops=1)"), "{lines:?}");
    assert!(lines.iter().any(|line| line.trim() == "Rows Removed by Filter: 9818"), "{lines:?}");
}

#[tokio::test]
async fn transactions_see_their_own_writes_and_their_snapshot() {
    let mut db = filled().await;
    let mut other = session(&db.engine).await;
    db.execute("set partial_aggregates = on").await;
    let query = "select count(*), sum(pieces), max(note) from sales where shop = 3";
    let before = db.rows(query).await;
    db.execute("begin isolation level repeatable read; select 1 from sales where id = 1").await;
    crate::database::run(&mut other, "update sales set shop = 3, pieces = 100 where id = 7", &[])
        .await
        .unwrap();
    assert_eq!(db.rows(query).await, before);
    db.execute("insert into sales (id, shop, pieces, note) values (20000, 3, 1000000, 'z')").await;
    let count = |rows: &[String]| rows[0].split('|').next().unwrap().parse::<i64>().unwrap();
    let with_own = db.rows(query).await;
    assert_eq!(count(&with_own), count(&before) + 1);
    assert!(with_own[0].ends_with('z'), "{with_own:?}");
    db.execute("rollback").await;
    assert_eq!(count(&db.rows(query).await), count(&before) + 1);
}

#[tokio::test]
async fn what_was_aggregated_is_validated_at_commit() {
    let mut db = filled().await;
    let mut other = session(&db.engine).await;
    db.execute("set partial_aggregates = on; create table totals (n bigint)").await;
    db.execute("begin isolation level serializable").await;
    let before = db.engine.partial_aggregates();
    db.execute("insert into totals select sum(pieces) from sales").await;
    assert_eq!(db.engine.partial_aggregates(), before + 1);
    // Whoever changes what was read, and is done first, wins.
    crate::database::run(&mut other, "update sales set pieces = 5000 where id = 11000", &[]).await.unwrap();
    crate::database::run(&mut other, "insert into totals select 0", &[]).await.unwrap();
    db.execute("select count(*) from totals").await;
    assert_eq!(db.error("commit").await.code.as_str(), "40001");
}

#[tokio::test]
async fn groups_that_do_not_fit_the_memory_go_to_an_engine() {
    let mut db = Database::open().await;
    db.execute(
        "create table wide (id int primary key, note text);
         insert into wide select n, repeat('x', 300) || n from generate_series(1, 10000) n;
         set partial_aggregates = on; set statement_memory = '1MB'; set engine = row",
    )
    .await;
    let before = db.engine.partial_aggregates();
    let error = db.error("select note, count(*) from wide group by note").await;
    assert_eq!(error.code.as_str(), "53200");
    assert_eq!(db.engine.partial_aggregates(), before);
    assert_eq!(db.rows("select count(*), min(note) from wide where id < 3").await.len(), 1);
}

#[tokio::test]
async fn policies_hide_rows_from_aggregates() {
    let mut db = filled().await;
    db.execute(
        "create role eve login; grant select on sales to eve; alter table sales enable row level security;
         create policy p on sales for select to eve using (shop = 3)",
    )
    .await;
    db.execute("set role eve; set partial_aggregates = on").await;
    let before = db.engine.partial_aggregates();
    assert_eq!(db.rows("select shop, count(*) from sales group by shop").await, ["3|1714"]);
    assert_eq!(db.engine.partial_aggregates(), before + 1);
    // A product that overflows for hidden rows only is none of eve's business.
    assert_eq!(db.rows("select count(*), max(2147483644 + shop) from sales").await, ["1714|2147483647"]);
}
