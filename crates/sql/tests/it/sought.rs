//! Rows that a hash join would not find are left out where they are stored.

use crate::database::Database;

/// The rows that the scan of a table returned.
fn returned(lines: &[String], table: &str) -> u64 {
    let scan = format!("Scan on {table} ");
    let line = lines.iter().find(|line| line.contains(&scan)).unwrap_or_else(|| panic!("{lines:?}"));
    let rows = line.split("rows=").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    rows.unwrap_or_else(|| panic!("{line}"))
}

#[tokio::test]
async fn scans_return_little_else_than_what_joins_look_for() {
    let mut db = Database::open().await;
    db.execute(
        "create table facts (id int primary key, k int, s smallint);
         create table names (k bigint primary key, name text);
         insert into facts select i, i % 2000, i % 300 from generate_series(1, 20000) i;
         insert into names select i * 5, 'n' || i from generate_series(1, 200) i;
         analyze facts, names; set auto_analyze = off;
         set enable_nestloop = off; set enable_mergejoin = off",
    )
    .await;
    for (query, most) in [
        // Few keys are a list.
        ("select count(*) from facts f join names n on n.k = f.k where n.k < 100", 190),
        // Many are a filter, which lets others through.
        ("select count(*) from facts f join names n on n.k = f.k", 2_600),
        ("select count(*) from facts f where exists (select from names n where n.k = f.k)", 2_600),
        ("select count(*) from (select k as a from facts f) g join names n on n.k = g.a", 2_600),
        ("select count(*) from facts f join names n on n.k = f.s where n.k < 50", 700),
        // Groups that are not looked for, by whichever engine, and rows that are looked at once.
        (
            "select sum(c) from (select k, count(*) c from facts group by k) g join names n on n.k = g.k",
            2_600,
        ),
        (
            "select sum(c) from (select k, max(id) c from facts group by k) g join names n using (k) where k < 9",
            40,
        ),
        ("select count(*) from (select distinct k, s from facts) g join names n on n.k = g.k", 2_600),
        // Not by what is aggregated.
        (
            "select count(*) from (select s, max(k) k from facts group by s) g join names n on n.k = g.k",
            20_000,
        ),
        // All rows of an outer join's side count.
        ("select count(*) from facts f left join names n on n.k = f.k", 20_000),
        ("select count(*) from facts f where not exists (select from names n where n.k = f.k)", 20_000),
    ] {
        let lines = db.rows(&format!("explain (analyze, costs off, timing off) {query}")).await;
        let found = returned(&lines, "facts");
        let least = if most == 20_000 { most } else { 1 };
        assert!((least..=most).contains(&found), "{query}: {found}\n{}", lines.join("\n"));
    }
}
