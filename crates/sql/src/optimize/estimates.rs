//! Estimates and plans over tables with statistics. They are those of `bind::tests` with these contents:
//!
//! * `t`: 100,000 rows. `a` is NULL in a tenth of them, 7 in half of them, and one of 1,000 values in the others; `b`
//!   is unique; `c` has 1,000 values of which 100 rows each follow each other; `d` has 365 days.
//! * `u`: 20,000 rows, eight for each of 2,500 rows of `t`, `note` is `usual` but for one in a hundred.
//! * `s`: 10 rows; `h`: as without statistics.

use super::{Options, optimize};
use crate::bind::tests::{MemoryCatalog, bind_in};
use crate::explain::{ExplainOptions, Node, describe};
use crate::plan::Plan;
use crate::statistics::Collector;
use rand::SeedableRng;
use rand::rngs::StdRng;
use sql_types::{Datum, Row};
use std::sync::Arc;

const DAY_MICROS: i64 = 86_400_000_000;

fn fill(catalog: &MemoryCatalog, name: &str, rows: i32, row: impl Fn(i32) -> Row) {
    let table = catalog.table(name);
    let ids: Vec<u32> = table.columns.iter().map(|column| column.id).collect();
    let mut collector = Collector::new(&table, &ids);
    let mut random = StdRng::seed_from_u64(11);
    for number in 0..rows {
        collector.add(&row(number), 60, &mut random);
    }
    table.statistics.set(Arc::new(collector.finish()));
}

fn catalog() -> MemoryCatalog {
    let catalog = MemoryCatalog::new();
    fill(&catalog, "t", 100_000, |n| {
        let a = match n % 10 {
            0 => Datum::Null,
            1..=5 => Datum::Int4(7),
            _ => Datum::Int4(1000 + n / 10 % 1000),
        };
        let day = i64::from(n % 365) * DAY_MICROS;
        let c = Datum::Int8(i64::from(n / 100));
        vec![Datum::Int4(n), a, Datum::text(format!("b{n:06}")), c, Datum::Timestamptz(day)]
    });
    fill(&catalog, "u", 20_000, |n| {
        let note = if n % 100 == 0 { "rare" } else { "usual" };
        vec![Datum::Int8(n.into()), Datum::Int4(n / 8 * 40), Datum::text(note), Datum::Null, Datum::Null]
    });
    catalog
}

fn planned(catalog: &MemoryCatalog, sql: &str) -> Plan {
    let bound = bind_in(catalog, sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    optimize(bound.plan, Options::default())
}

/// By condition on `t`: the share of rows that it keeps, and by how much the estimate may be off, relatively.
const CONDITIONS: &[(&str, f64, f64)] = &[
    ("id = 5", 1e-5, 0.0),
    ("id = $1::int", 1e-5, 0.0),
    ("id <> 5", 1.0, 0.01),
    ("a = 7", 0.5, 0.05),
    ("a = 1005", 0.0004, 0.3),
    ("a = 7::bigint", 0.5, 0.05),
    ("a = 3000000000", 1e-5, 0.0),
    ("a IS NULL", 0.1, 0.01),
    ("a IS NOT NULL", 0.9, 0.01),
    ("id IS NULL", 1e-5, 0.0),
    ("a IN (7, 1005, 1006)", 0.5, 0.05),
    ("a NOT IN (7, 1005)", 0.4, 0.1),
    ("a = ANY ('{7,1005}'::int[])", 0.5, 0.05),
    ("a = 7 OR a IS NULL", 0.55, 0.1),
    ("a + 0 = 7", 0.5, 0.05),
    ("a % 2 = 1", 0.7, 0.1),
    ("NOT a = 7", 0.4, 0.1),
    ("a <> 7", 0.4, 0.1),
    ("id < 25000", 0.25, 0.05),
    ("25000 >= id", 0.25, 0.05),
    ("id >= 90000", 0.1, 0.1),
    ("id BETWEEN 20000 AND 30000", 0.1, 0.1),
    ("id > 20000 AND id < 30000 AND id < 99999", 0.1, 0.1),
    ("id BETWEEN 30000 AND 20000", 1e-5, 0.0),
    ("id < 0", 1e-5, 0.0),
    ("id < $1::int", 1.0 / 3.0, 0.0),
    ("id BETWEEN $1::int AND $2::int", 0.005, 0.0),
    ("id < 30000 AND id > $1::int", 0.1, 0.05),
    ("a < 1000", 0.5, 0.05),
    ("a > 7", 0.4, 0.1),
    ("c < 500", 0.5, 0.05),
    ("c = 77", 0.001, 0.1),
    ("c::numeric < 500.5", 0.5, 0.05),
    ("b LIKE 'b00%'", 0.1, 0.15),
    ("b LIKE 'b0123%'", 0.001, 0.5),
    ("b LIKE 'b000005'", 1e-5, 0.0),
    ("b LIKE '%7'", 0.1, 0.9),
    ("b NOT LIKE '%'", 0.005, 0.5),
    ("upper(b) < 'B05'", 0.5, 0.05),
    ("substr(b, 1, 3) = 'b05'", 0.1, 0.3),
    ("length(b) = 7", 1.0, 0.01),
    // Which moment that is depends on the session.
    ("d < '2000-07-01'", 1.0 / 3.0, 0.0),
    ("a = 7 AND c < 500", 0.25, 0.1),
    ("true", 1.0, 0.0),
    ("false", 1e-5, 0.0),
];

#[test]
fn conditions_keep_the_share_that_they_do() {
    let catalog = catalog();
    let mut wrong = Vec::new();
    for (condition, share, error) in CONDITIONS {
        let found = planned(&catalog, &format!("SELECT * FROM t WHERE {condition}")).rows / 100_000.0;
        if (found - share).abs() > share * error + 1e-9 {
            wrong.push(format!("{condition}: {found} instead of {share}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Rows of a query, and by how much the estimate may be off, relatively.
const QUERIES: &[(&str, f64, f64)] = &[
    ("SELECT * FROM t JOIN u ON u.t_id = t.id", 20_000.0, 0.02),
    ("SELECT * FROM t JOIN u ON u.t_id = t.id WHERE u.note = 'rare'", 200.0, 0.1),
    ("SELECT * FROM t JOIN u ON u.t_id = t.id WHERE t.id < 10000", 2_000.0, 0.1),
    ("SELECT * FROM u x JOIN u y ON x.t_id = y.t_id", 160_000.0, 0.05),
    ("SELECT * FROM t LEFT JOIN u ON u.t_id = t.id", 100_000.0, 0.0),
    ("SELECT * FROM t WHERE id IN (SELECT t_id FROM u)", 2_500.0, 0.1),
    ("SELECT * FROM t WHERE NOT EXISTS (SELECT FROM u WHERE t_id = t.id)", 97_500.0, 0.01),
    ("SELECT * FROM t x JOIN t y ON (x.a = 7 AND y.c = 3) OR (x.a = 1005 AND y.c = 5)", 5_004_000.0, 0.1),
    ("SELECT * FROM u WHERE EXISTS (SELECT FROM u v WHERE v.t_id = u.t_id AND v.id <> u.id)", 20_000.0, 0.15),
    ("SELECT t_id, count(*) FROM u GROUP BY t_id", 2_500.0, 0.05),
    ("SELECT note, count(*) FROM u GROUP BY note", 2.0, 0.0),
    ("SELECT a, c, count(*) FROM t GROUP BY a, c", 12_000.0, 0.1),
    ("SELECT t_id, note, count(*) FROM u WHERE id < 80 GROUP BY t_id, note", 80.0, 0.1),
    ("SELECT id % 7 = 0, count(*) FROM t GROUP BY 1", 2.0, 0.0),
    ("SELECT count(*) FROM t", 1.0, 0.0),
    ("SELECT DISTINCT note FROM u", 2.0, 0.0),
    ("SELECT * FROM t LIMIT 10", 10.0, 0.0),
    ("SELECT * FROM t UNION ALL SELECT * FROM t", 200_000.0, 0.0),
    ("SELECT * FROM generate_series(1, 50) g", 50.0, 0.0),
    (
        "WITH r AS MATERIALIZED (SELECT * FROM u WHERE note = 'rare') SELECT * FROM r JOIN r s ON true",
        40_000.0,
        0.2,
    ),
];

#[test]
fn queries_return_about_the_rows_that_are_estimated() {
    let catalog = catalog();
    let mut wrong = Vec::new();
    for (sql, rows, error) in QUERIES {
        let found = planned(&catalog, sql).rows;
        if (found - rows).abs() > rows * error + 1e-9 {
            wrong.push(format!("{sql}: {found} instead of {rows}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The shape of a plan, with the rows estimated.
fn shape(node: &Node, depth: usize, lines: &mut Vec<String>) {
    let conditions =
        node.details.iter().filter(|(name, _)| name.ends_with("Cond")).map(|(_, text)| text.as_str());
    let conditions: Vec<&str> = conditions.collect();
    lines.push(format!("{}{} [{:.0}] {}", "  ".repeat(depth), node.title, node.rows, conditions.join(" ")));
    for child in node.children.iter().chain(node.subplans.iter().map(|(_, subplan)| subplan)) {
        shape(child, depth + 1, lines);
    }
}

/// Plans with statistics are those in `testdata/plans.txt`; with `UPDATE_GOLDEN` set it is written anew.
#[test]
fn plans_follow_the_statistics() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/optimize/testdata/plans.txt");
    let expected = std::fs::read_to_string(path).unwrap();
    let catalog = catalog();
    let options = ExplainOptions::default();
    let mut found = String::new();
    for line in expected.lines() {
        if let Some(sql) = line.strip_prefix("== ") {
            let mut lines = Vec::new();
            shape(&describe(&planned(&catalog, sql), &options, &|_| None, &|_| false), 0, &mut lines);
            found += &format!(
                "{line}\n{}\n",
                lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
            );
        } else if line.starts_with("--") {
            found += &format!("{line}\n");
        }
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    assert_eq!(found, expected, "\n{found}");
}
