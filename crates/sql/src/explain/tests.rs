//! Options, text and JSON.

use super::*;
use crate::bind::tests::bind;
use crate::optimize::{Options, optimize};
use crate::parse::parse_one;

fn explained(sql: &str) -> ExplainOptions {
    let statement = parse_one(sql).unwrap();
    options(statement.sql().unwrap()).unwrap().0
}

#[test]
fn options_are_read() {
    assert_eq!(explained("EXPLAIN SELECT 1"), ExplainOptions::default());
    let analyze = explained("EXPLAIN ANALYZE SELECT 1");
    assert!(analyze.analyze && analyze.summary && analyze.timing);
    let listed =
        explained("EXPLAIN (ANALYZE, COSTS off, TIMING false, SUMMARY 0, FORMAT json, VERBOSE) SELECT 1");
    assert!(listed.analyze && listed.verbose && !listed.costs && !listed.timing && !listed.summary);
    assert_eq!(listed.format, ExplainFormat::Json);
    let statement = parse_one("EXPLAIN (NONSENSE) SELECT 1").unwrap();
    let error = options(statement.sql().unwrap()).unwrap_err();
    assert_eq!(error.message, "unrecognized EXPLAIN option \"nonsense\"");
}

#[test]
fn analyze_shows_what_happened() {
    let plan = optimize(bind("SELECT a FROM t WHERE c > 5 ORDER BY b").unwrap().plan, Options::default());
    let options = ExplainOptions { analyze: true, costs: false, summary: true, ..ExplainOptions::default() };
    let node = describe(
        &plan,
        &options,
        &|_| Some(Actual { rows: 6, loops: 2, time_ms: 3.0, removed: 4, memory: 0 }),
        &|_| false,
    );
    let summary = Summary {
        planning_ms: Some(0.5),
        execution_ms: Some(2.0),
        facts: vec![("KV Requests".to_string(), "7".to_string())],
    };
    assert_eq!(
        render(&node, &options, &summary),
        [
            "Sort (actual time=0.000..1.500 rows=3 loops=2)",
            "  Sort Key: b",
            "  ->  Seq Scan on t (actual time=0.000..1.500 rows=3 loops=2)",
            "        Filter: (c > 5)",
            "        Rows Removed by Filter: 4",
            "KV Requests: 7",
            "Planning Time: 0.500 ms",
            "Execution Time: 2.000 ms",
        ]
    );
}

#[test]
fn costs_are_shown_until_the_first_row_and_the_last() {
    let plan = optimize(bind("SELECT a FROM t ORDER BY b, a").unwrap().plan, Options::default());
    let options = ExplainOptions::default();
    let lines = render(&describe(&plan, &options, &|_| None, &|_| false), &options, &Summary::default());
    let costs = |line: &str| -> (f64, f64) {
        let (_, rest) = line.split_once("(cost=").unwrap();
        let (startup, rest) = rest.split_once("..").unwrap();
        (startup.parse().unwrap(), rest.split_once(' ').unwrap().0.parse().unwrap())
    };
    let (sort, scan) = (costs(&lines[0]), costs(&lines[2]));
    assert!(scan.0 == 0.0 && sort.0 > scan.1 && sort.1 > sort.0, "{lines:?}");
    assert!(lines[2].ends_with("rows=100000 width=36)"), "{lines:?}");
}

#[test]
fn json_is_one_document() {
    let plan = optimize(
        bind("SELECT * FROM t JOIN u ON u.t_id = t.id WHERE u.id = 3").unwrap().plan,
        Options::default(),
    );
    let options = ExplainOptions { format: ExplainFormat::Json, ..ExplainOptions::default() };
    let lines = render(&describe(&plan, &options, &|_| None, &|_| false), &options, &Summary::default());
    let [document] = &lines[..] else { panic!("{lines:?}") };
    let value: serde_json::Value = serde_json::from_str(document).unwrap();
    let plan = &value[0]["Plan"];
    assert_eq!(plan["Node Type"], "Nested Loop");
    assert_eq!(plan["Plans"][0]["Relation Name"], "u");
    assert!(plan["Total Cost"].is_number());
}
