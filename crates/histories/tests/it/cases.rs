//! Histories of every class, and good ones. `cases.txt` holds them: a name, what is to be found (with `strict`, what
//! is to be found with that option), and the transactions.

use crate::notation::history;
use histories::{Class, Options, check};

struct Case<'a> {
    name: &'a str,
    expected: Vec<&'a str>,
    strict: bool,
    lines: Vec<&'a str>,
}

fn cases() -> Vec<Case<'static>> {
    let blocks = include_str!("cases.txt").split("\n\n").map(str::trim).filter(|block| !block.is_empty());
    blocks.map(case).collect()
}

fn case(block: &'static str) -> Case<'static> {
    let mut lines = block.lines();
    let name = lines.next().unwrap().strip_prefix("# ").unwrap();
    let expected: Vec<&str> =
        lines.next().unwrap().strip_prefix("expect").unwrap().split_whitespace().collect();
    let strict = expected.contains(&"with-strict");
    let expected = expected.into_iter().filter(|word| *word != "with-strict").collect();
    Case { name, expected, strict, lines: lines.collect() }
}

#[test]
fn every_case_is_judged_right() {
    let mut wrong = Vec::new();
    for case in cases() {
        let history = history(case.lines.iter().copied());
        let found = check(&history, Options { strict: case.strict, ..Options::default() });
        let classes: Vec<&str> = found.iter().map(|anomaly| anomaly.class.name()).collect();
        if classes != case.expected {
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            wrong.push(format!("{}: expected {:?}, found\n{}", case.name, case.expected, found.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn there_is_a_case_of_every_class() {
    let expected: Vec<&str> = cases().into_iter().flat_map(|case| case.expected).collect();
    let missing: Vec<Class> =
        Class::ALL.into_iter().filter(|class| !expected.contains(&class.name())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn cycles_are_explained_edge_by_edge() {
    let history = history(["c 0-9 r1: a2:20", "c 0-9 r2: a1:10", "c 20-30 r1:10 r2:20"]);
    let found = check(&history, Options::default());
    let [anomaly] = &found[..] else { panic!("{found:?}") };
    assert_eq!(anomaly.txns, [1, 2]);
    assert_eq!(
        anomaly.to_string(),
        "G2-item: write skew: T1 → T2 → T1\n  \
         T1 read list 1 when it was empty, before T2 appended 10\n  \
         T2 read list 2 when it was empty, before T1 appended 20"
    );
}

#[test]
fn the_number_of_reports_is_bounded() {
    let lines: Vec<String> = (1..=30).map(|key| format!("c 0-9 r{key}:7")).collect();
    let history = history(lines.iter().map(String::as_str));
    assert_eq!(check(&history, Options { per_class: 4, ..Options::default() }).len(), 4);
}
