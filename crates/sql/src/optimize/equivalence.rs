//! Queries return what PostgreSQL returns, as bound and as optimized. Rows are compared as sets: order
//! is checked by what LIMIT and DISTINCT ON let through.

use super::reference::{Around, Interpreter};
use super::{Options, Rule, optimize};
use crate::bind::tests::bind;
use crate::plan::Plan;
use sql_types::functions::TextContext;
use sql_types::{Datum, Row, Type, text};
use std::collections::HashMap;

/// Small numbers that repeat, with NULLs in between.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn datum(&mut self, below: u64, make: impl Fn(u64) -> Datum) -> Datum {
        if self.next(6) == 0 { Datum::Null } else { make(self.next(below)) }
    }
}

fn interpreter() -> Interpreter {
    let mut numbers = Numbers(7);
    let int4 = |value: u64| Datum::Int4(value as i32);
    let int8 = |value: u64| Datum::Int8(value as i64);
    let t: Vec<Row> = (0..60)
        .map(|id| {
            let b = Datum::text(format!("b{:02}", (id * 7) % 60));
            vec![
                int4(id),
                numbers.datum(8, int4),
                if id % 11 == 0 { Datum::Null } else { b },
                numbers.datum(10, int8),
                numbers.datum(5, |value| Datum::Timestamptz(value as i64 * 1_000_000)),
            ]
        })
        .collect();
    let u: Vec<Row> = (0..25)
        .map(|id| {
            let note = numbers.datum(3, |value| Datum::text(["x", "y", "z"][value as usize]));
            vec![int8(id), numbers.datum(70, int4), note, Datum::Null, Datum::Null]
        })
        .collect();
    let s: Vec<Row> = (0..10)
        .map(|id| {
            let made = Datum::Timestamptz(0);
            vec![int4(id), Datum::text(format!("s{}", id % 3)), numbers.datum(4, int4), made, int8(id)]
        })
        .collect();
    let h: Vec<Row> = (0..8).map(|id| vec![numbers.datum(3, int4), int8(id)]).collect();
    let tables = [("t", t), ("u", u), ("s", s), ("h", h)].map(|(name, rows)| (name.to_string(), rows));
    Interpreter { tables: HashMap::from(tables), params: Vec::new() }
}

/// The rows as psql prints them, sorted.
fn rows(interpreter: &Interpreter, plan: &Plan, sql: &str) -> Vec<String> {
    let rows = interpreter.run(plan, &Around::default()).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let value = |value: &Datum, ty: Type| match value {
        Datum::Null => String::new(),
        value => text::to_string(value, ty, &TextContext::plain()),
    };
    let mut lines: Vec<String> = rows
        .iter()
        .map(|row| {
            let values = row.iter().zip(&plan.columns).map(|(datum, column)| value(datum, column.ty.ty));
            values.collect::<Vec<_>>().join("|")
        })
        .collect();
    lines.sort();
    lines
}

/// Plans by cost, without each of the rules of the memo, and with the methods of joining one by one.
fn ways() -> Vec<(String, Options)> {
    let mut ways = vec![("by cost".to_string(), Options::default())];
    ways.extend(Rule::ALL.map(|rule| (format!("without {}", rule.name()), Options::default().without(rule))));
    let methods = [Rule::LookUp, Rule::HashJoin, Rule::MergeJoin, Rule::NestedLoop];
    ways.extend(methods.map(|only| {
        let others = methods.into_iter().filter(|rule| *rule != only);
        (format!("only {}", only.name()), others.fold(Options::default(), Options::without))
    }));
    ways
}

#[test]
fn queries_return_what_postgresql_returns() {
    let interpreter = interpreter();
    let mut failures = Vec::new();
    let text = include_str!("testdata/queries.txt");
    for block in text.strip_suffix('\n').unwrap_or(text).split("\n== ").skip(1) {
        let (sql, expected) = block.split_once('\n').unwrap_or((block, ""));
        let expected: Vec<&str> =
            if block.contains('\n') { expected.split('\n').collect() } else { Vec::new() };
        let bound = bind(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let plain = rows(&interpreter, &bound.plan, sql);
        if plain != expected {
            failures.push(format!("{sql}\n  expected  {expected:?}\n  as bound  {plain:?}"));
        }
        for (way, options) in ways() {
            let optimized = rows(&interpreter, &optimize(bound.plan.clone(), options), sql);
            if optimized != expected {
                failures.push(format!("{sql}\n  expected  {expected:?}\n  {way} {optimized:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
