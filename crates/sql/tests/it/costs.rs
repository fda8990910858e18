//! What planning and running take, beside what the optimizer thinks. Printed and not judged: run alone, with
//! `--nocapture`.

use crate::database::Database;
use rustix::time::{ClockId, clock_gettime};

/// Microseconds of processor time that this process has used: the SQL layer and the KV node are both in it.
fn cpu_micros() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

#[tokio::test]
async fn planning_is_measured() {
    let mut db = Database::open().await;
    db.execute(include_str!("tpch.sql")).await;
    let query = include_str!("tpch-8.sql");
    let plan = db.rows(&format!("EXPLAIN (SUMMARY ON) {query}")).await;
    let is_join =
        |line: &&String| ["Nested Loop", "Hash Join", "Merge Join"].iter().any(|title| line.contains(title));
    assert_eq!(plan.iter().filter(is_join).count(), 7, "{plan:#?}");
    println!("TPC-H Q8: {}", plan.last().expect("a summary"));
    let text = "SELECT c_name FROM customer WHERE c_custkey = $1";
    let rounds = 10_000;
    let start = cpu_micros();
    for _ in 0..rounds {
        let prepared = db.session.prepare_text(text, &[]).await.expect("a statement");
        assert_eq!(prepared.param_types().len(), 1);
    }
    println!("prepared point read, cached: {:.2} µs", (cpu_micros() - start) / f64::from(rounds));
}

const TABLES: &str = "
    SET engine = row; SET auto_analyze = off;
    CREATE TABLE narrow (id int PRIMARY KEY, k int, few int); CREATE INDEX ON narrow (k);
    CREATE TABLE wide (id int PRIMARY KEY, k int, pad text); CREATE INDEX ON wide (k);
    INSERT INTO narrow SELECT n, n * 7919 % 40000, n % 100 FROM generate_series(1, 40000) n;
    INSERT INTO wide SELECT n, n * 7919 % 40000, repeat('x', 400) FROM generate_series(1, 40000) n;
    ANALYZE narrow, wide";

const STATEMENTS: &[&str] = &[
    "SELECT k FROM narrow WHERE id = 77",
    "SELECT pad FROM wide WHERE k = 77",
    "SELECT id FROM wide WHERE id < 100",
    "SELECT k FROM narrow",
    "SELECT pad FROM wide",
    "SELECT k FROM wide WHERE k < 20000",
    "SELECT k FROM narrow WHERE few * 2 + 1 = 3",
    "SELECT pad FROM wide WHERE k < 200",
    "SELECT k FROM narrow ORDER BY few",
    "SELECT k FROM narrow ORDER BY few LIMIT 10",
    "SELECT k FROM narrow ORDER BY k",
    "SELECT k, few FROM narrow ORDER BY k LIMIT 10",
    "SELECT few, count(*) FROM narrow GROUP BY few",
    "SELECT k, count(*) FROM narrow GROUP BY k",
    "SELECT a.few FROM narrow a JOIN narrow b ON a.few = b.id",
    "SELECT a.few FROM narrow a JOIN narrow b ON a.id = b.k",
    "SELECT a.few FROM narrow a JOIN narrow b ON a.id = b.id",
    "SELECT pad FROM narrow a JOIN wide b ON a.k = b.id WHERE few = 5",
    "SELECT pad FROM narrow a JOIN wide b ON a.id = b.k WHERE few = 5",
    "SELECT count(*) FROM narrow a JOIN narrow b ON a.id < b.id WHERE a.few = 5 AND b.few = 6",
    "SELECT count(*) FROM narrow WHERE id IN (1, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000)",
];

#[tokio::test]
async fn costs_are_measured() {
    let mut db = Database::open().await;
    db.execute(TABLES).await;
    println!("{:>10} {:>10} {:>6}  statement", "estimated", "measured", "ratio");
    for sql in STATEMENTS {
        let plan = db.rows(&format!("EXPLAIN (FORMAT JSON) {sql}")).await.concat();
        let plan: serde_json::Value = serde_json::from_str(&plan).expect("JSON");
        let cost = plan[0]["Plan"]["Total Cost"].as_f64().expect("a cost");
        let mut least = f64::INFINITY;
        for _ in 0..5 {
            let start = cpu_micros();
            db.rows(sql).await;
            least = least.min(cpu_micros() - start);
        }
        println!(
            "{cost:>10.0} {least:>10.0} {:>6.2}  {sql}  [{}]",
            cost / least,
            plan[0]["Plan"]["Node Type"]
        );
    }
}
