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
];

async fn filled() -> Database {
    let mut db = Database::open().await;
    db.execute(
        "create table items (id int primary key, name text not null);
         create table sales (id int primary key, item int, pieces int, big bigint, price numeric(12,2),
            discount numeric(4,2), note text, day date, happened timestamptz, weight float8, loose numeric)",
    )
    .await;
    db.execute("insert into items values (1, 'one'), (2, 'two'), (3, 'three'), (9, 'none')").await;
    db.execute(
        "insert into sales select n, n % 5, n % 11, n * 1000000007::bigint, (n * 37 % 10000) / 100.0, (n % 20) / 100.0,
            case when n % 7 = 0 then null when n % 2 = 0 then 'a' else 'b' end, date '2020-01-01' + n % 400,
            timestamptz '2020-01-01 00:00+00' + (n % 3) * interval '1 hour', n / 8.0, n / 3.0
         from generate_series(1, 2500) n",
    )
    .await;
    db
}

#[tokio::test]
async fn both_engines_agree() {
    let mut db = filled().await;
    for query in QUERIES {
        let mut results = Vec::new();
        for engine in ["row", "analytic", "auto"] {
            db.execute(&format!("set engine = '{engine}'")).await;
            let mut rows = db.rows(query).await;
            rows.sort();
            results.push(rows);
        }
        assert_eq!(results[0], results[1], "{query}");
        assert_eq!(results[0], results[2], "{query}");
    }
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
