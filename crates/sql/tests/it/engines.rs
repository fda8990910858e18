//! The row engine and the analytical engine give the same results.

use crate::database::Database;

/// Queries over the tables of [`filled`]; ordered where the order shows.
const QUERIES: &[&str] = &[
    "select count(*) from sales",
    "select count(*), count(note), count(distinct item), min(day), max(day) from sales",
    "select item, sum(pieces), avg(pieces), min(pieces), max(pieces) from sales group by item",
    "select item, sum(big), avg(big), max(big) from sales group by item",
    "select item, sum(price), avg(price), min(price), max(price) from sales group by item",
    "select sum(price * pieces), sum(price * (1 - discount)), avg(price * (1 + discount)) from sales",
    "select sum(pieces + 1), sum(pieces * 2 - item) from sales where day >= date '2020-06-01'",
    "select note, count(*) from sales where note <> 'b' or note is null group by note",
    "select count(*) from sales where item in (1, 3) and not (pieces < 5)",
    "select day, count(*) filter (where pieces > 4), sum(pieces) filter (where note = 'a') from sales group by day",
    "select sum(case when note = 'a' then 1 else 0 end), sum(case when note = 'a' then price end) from sales",
    "select item % 2, count(*) from sales group by item % 2",
    "select name, sum(pieces) from sales join items on items.id = sales.item group by name",
    "select name, count(sales.id) from items left join sales on items.id = sales.item group by name",
    "select count(*) from sales left join items on items.id = sales.item and name <> 'one'",
    "select count(*) from items where exists (select 1 from sales where item = items.id)",
    "select count(*) from items where not exists (select 1 from sales where item = items.id)",
    "select sum(pieces) from sales where false",
    "select item, sum(pieces) from sales where false group by item",
    "select bool_and(pieces > 0), string_agg(note, ',' order by id) from sales",
    "select sum(weight), avg(weight), max(weight) from sales",
    "select happened, count(*) from sales group by happened",
    "select sum(s) from (select item, sum(pieces) s from sales group by item) t where s > 10",
    "select count(*) from (select distinct item, note from sales) t",
    "select max(note), min(note), count(distinct note) from sales",
    "select min(big - pieces), max(-pieces) from sales",
    "select sum(loose), avg(loose) from sales",
    "select flag, count(*), min(flag), max(flag) from sales group by flag",
    "select count(*) from sales where flag = 'b'",
    "select count(*) from sales where flag in ('a', 'b  ') and flag <> 'a '",
    "select count(*) from sales where flag not in ('a', 'x')",
    "select count(*) from sales where flag::text like '%b'",
    "select count(*), sum(price) from sales where note like 'b%' and note not like '%a'",
    "select count(*) from sales where price between 10.00 and 20.50 and discount < 0.055",
    "select count(*) from sales where day < happened and day >= date '2020-02-01' + interval '1 month'",
    "select count(*) from sales where pieces < item",
    "select count(*) from sales where 3 > pieces and big = 1000000007",
    "select count(*) from sales where pieces = 3::bigint or item = 2",
    "select count(*), min(id) from sales where id > 100 and id < 200",
    "select count(*), max(id) from sales where item = 3 and pieces > 2",
    "select extract(year from day), extract(month from day), count(*) from sales group by 1, 2",
    "select extract(hour from happened), count(*) from sales group by 1",
    "select substring(name from 1 for 2), count(*) from sales join items on items.id = item group by 1",
    "select left(flag, 1), abs(pieces - 5), count(*) from sales group by 1, 2",
    "select count(*) from sales a where exists
        (select 1 from sales b where b.day = a.day and b.id <> a.id and b.pieces > a.pieces)",
    "select count(*) from sales a where not exists (select 1 from sales b where b.day = a.day and b.id <> a.id)",
    "select sum(b.pieces) from sales a left join sales b on b.day = a.day and b.pieces < a.pieces",
    "select sum(pieces) from sales, items where (items.id = item and pieces > 3 and name = 'one')
        or (items.id = item and pieces > 3 and name = 'two' and note = 'a')",
    "select id % 2, sum(added), count(*) from sales group by 1",
];

async fn filled() -> Database {
    let mut db = Database::open().await;
    db.execute(
        "create table items (id int primary key, name text not null);
         create table sales (id int primary key, item int, pieces int, big bigint, price numeric(12,2),
            discount numeric(4,2), note text, day date, happened timestamptz, weight float8, loose numeric,
            flag char(3));
         create index on sales (item, pieces)",
    )
    .await;
    db.execute("insert into items values (1, 'one'), (2, 'two'), (3, 'three'), (9, 'none')").await;
    db.execute(
        "insert into sales select n, n % 5, n % 11, n * 1000000007::bigint, (n * 37 % 10000) / 100.0, (n % 20) / 100.0,
            case when n % 7 = 0 then null when n % 2 = 0 then 'a' else 'b' end, date '2020-01-01' + n % 400,
            timestamptz '2020-01-01 00:00+00' + (n % 3) * interval '1 hour', n / 8.0, n / 3.0,
            case n % 3 when 0 then 'a' when 1 then 'b' end
         from generate_series(1, 2500) n",
    )
    .await;
    db.execute("alter table sales add column added int default 7").await;
    db.execute("update sales set added = null where id < 10").await;
    db
}

async fn assert_agreement(db: &mut Database, what: &str) {
    for query in QUERIES {
        let mut results = Vec::new();
        for (engine, partial) in [("row", "off"), ("analytic", "off"), ("auto", "auto"), ("row", "on")] {
            db.execute(&format!("set engine = '{engine}'; set partial_aggregates = '{partial}'")).await;
            let mut rows = db.rows(query).await;
            rows.sort();
            results.push(rows);
        }
        assert_eq!(results[0], results[1], "{what}: {query}");
        assert_eq!(results[0], results[2], "{what}: {query}");
        assert_eq!(results[0], results[3], "{what}, with partial aggregates: {query}");
    }
}

#[tokio::test]
async fn both_engines_agree() {
    let mut db = filled().await;
    assert_agreement(&mut db, "rows that are stored").await;
    db.execute("begin").await;
    db.execute(
        "delete from sales where id % 10 = 3; update sales set pieces = 4, flag = 'c' where id % 10 = 4",
    )
    .await;
    db.execute("insert into sales (id, item, pieces, price, day) values (5000, 1, 2, 3.25, '2020-01-01')")
        .await;
    assert_agreement(&mut db, "rows of the transaction itself").await;
    db.execute("rollback").await;
    // A value that columns of decimals cannot hold.
    db.execute("insert into sales (id, price) values (5000, 'NaN')").await;
    assert_agreement(&mut db, "rows that do not fit").await;
}

#[tokio::test]
async fn overflow_is_the_same_error() {
    let mut db = filled().await;
    db.execute("insert into sales (id, pieces, big) values (100000, 2147483647, 9223372036854775807)").await;
    for engine in ["row", "analytic"] {
        db.execute(&format!("set engine = '{engine}'")).await;
        assert_eq!(db.error("select sum(pieces * 2) from sales").await.code.as_str(), "22003");
        assert_eq!(db.error("select max(big + 1) from sales").await.code.as_str(), "22003");
        // A condition that is false elsewhere must not fail there.
        let guarded = "select sum(case when id < 100000 then pieces * 2 else 0 end) from sales";
        assert_eq!(db.rows(guarded).await.len(), 1);
        // Beyond bigint the sum is a numeric.
        let beyond = db.rows("select sum(big) from sales where id >= 2500").await;
        assert_eq!(beyond, ["9223374536854793307"]);
    }
}

#[tokio::test]
async fn the_memory_bound_holds_in_both() {
    let mut db = filled().await;
    for engine in ["row", "analytic"] {
        db.execute(&format!("set engine = '{engine}'")).await;
        let wide = "select repeat(a.note, 100000) || a.id || b.id, count(*) from sales a, sales b group by 1";
        assert_eq!(db.error(wide).await.code.as_str(), "53200", "{engine}");
    }
}
