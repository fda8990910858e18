//! Tokens of values, and what conditions ask of them.

use super::OperatorClass::{ArrayOps, JsonbOps, JsonbPathOps};
use super::condition::{MOST_ALTERNATIVES, MOST_CLAUSES, Wanted, together, wanted};
use super::tokens::{LONGEST_TOKEN, Token, is_key, tokens};
use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sql_types::{Datum, Type, json};
use std::sync::Arc;

fn jsonb(text: &str) -> Datum {
    Datum::Jsonb(Arc::new(json::parse(text).unwrap()))
}

fn of(class: OperatorClass, text: &str) -> Vec<Token> {
    tokens(class, &jsonb(text)).unwrap()
}

fn texts(values: &[&str]) -> Datum {
    Datum::array(Type::TEXT, values.iter().map(|value| Datum::text(*value)).collect())
}

fn integers(values: &[Option<i32>]) -> Datum {
    let value = |value: &Option<i32>| value.map_or(Datum::Null, Datum::Int4);
    Datum::array(Type::INT4, values.iter().map(value).collect())
}

/// Values that have the same tokens in a class, and how many.
#[test]
fn values_have_the_tokens_of_their_parts() {
    let long = format!(r#"["{}"]"#, "x".repeat(1000));
    for (class, count, same) in [
        (JsonbOps, 0, &["{}", "[]", "[{}, [[]]]"][..]),
        (JsonbOps, 1, &["1", "1.00", "[1, 1.0]", "[[1e0]]"]),
        (JsonbOps, 1, &[r#""a""#, r#"["a"]"#, r#"{"a": {}}"#, r#"[{"a": []}]"#]),
        (JsonbOps, 2, &[r#"{"a": "b"}"#, r#"[{"a": "b"}, {"a": []}]"#]),
        (JsonbOps, 2, &[r#"{"a": ["b"]}"#, r#"["a", "b"]"#]),
        (JsonbOps, 2, &["[null, true]", "[true, null, null]"]),
        (JsonbOps, 6, &[r#"{"a": [1, "b"], "c": {"d": null}}"#]),
        (JsonbOps, 1, &[long.as_str()]),
        (JsonbPathOps, 0, &["{}", "[]", r#"{"a": {}}"#, r#"[{"a": [[]]}]"#]),
        (JsonbPathOps, 1, &["1", "1.00", "[1, 1.0]", "[[1e0]]"]),
        (JsonbPathOps, 1, &[r#"{"a": "b"}"#, r#"{"a": ["b"]}"#, r#"[{"a": [["b"], "b"]}]"#]),
        (JsonbPathOps, 1, &[r#"{"a": {"b": 1}}"#, r#"{"a": [{"b": 1.0}]}"#]),
        (JsonbPathOps, 3, &[r#"{"a": [1, "b"], "c": {"d": null}}"#]),
    ] {
        let first = of(class, same[0]);
        assert_eq!(first.len(), count, "{class:?}: {}", same[0]);
        for text in same {
            assert_eq!(of(class, text), first, "{class:?}: {text}");
        }
    }
    assert_eq!(tokens(ArrayOps, &integers(&[Some(1), None, Some(2), Some(1)])).unwrap().len(), 2);
    assert!(tokens(JsonbOps, &Datum::Null).unwrap().is_empty());
    assert!(tokens(JsonbOps, &Datum::Int4(1)).is_err());
}

#[test]
fn what_is_different_has_different_tokens() {
    let long = "k".repeat(100);
    for class in [JsonbOps, JsonbPathOps] {
        let mut all: Vec<Vec<Token>> = [
            "0",
            "1",
            "true",
            "false",
            "null",
            r#""""#,
            r#""1""#,
            r#""true""#,
            r#"{"a": "b"}"#,
            r#"{"a": 1}"#,
            r#"{"b": "a"}"#,
            r#"{"": null}"#,
            &format!(r#"{{"{long}": 1}}"#),
            &format!(r#"{{"{long}": 2}}"#),
            &format!(r#"{{"{long}k": 1}}"#),
        ]
        .iter()
        .map(|text| of(class, text))
        .collect();
        assert!(all.iter().flatten().all(|token| token.len() <= LONGEST_TOKEN));
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count, "{class:?}");
    }
    // Only the second class knows where a value stands.
    let (one, other) = (r#"{"a": 1, "b": 2}"#, r#"{"a": 2, "b": 1}"#);
    assert_eq!(of(JsonbOps, one), of(JsonbOps, other));
    assert_ne!(of(JsonbPathOps, one), of(JsonbPathOps, other));
}

fn random_value(random: &mut StdRng, depth: usize) -> String {
    let scalars = [
        "0",
        "1",
        "1.0",
        "-2.5",
        "true",
        "null",
        r#""a""#,
        r#""b""#,
        r#""a string that is longer than a token""#,
    ];
    let mut inner = |count: usize| -> Vec<String> {
        (0..random.random_range(0..count)).map(|_| random_value(random, depth + 1)).collect()
    };
    match depth {
        0..=2 => {
            let values = inner(4);
            match random.random_range(0..3) {
                0 => format!("[{}]", values.join(", ")),
                1 => {
                    let member = |value: &String| {
                        let key = ["a", "b", "c"][random.random_range(0..3)];
                        format!(r#""{key}": {value}"#)
                    };
                    format!("{{{}}}", values.iter().map(member).collect::<Vec<_>>().join(", "))
                }
                _ => scalars[random.random_range(0..scalars.len())].to_string(),
            }
        }
        _ => scalars[random.random_range(0..scalars.len())].to_string(),
    }
}

/// Without this, rows would be missed.
#[test]
fn what_contains_a_value_has_all_its_tokens() {
    let mut random = StdRng::seed_from_u64(5);
    let mut contained = 0;
    for _ in 0..50_000 {
        let (outer, inner) = (random_value(&mut random, 0), random_value(&mut random, 1));
        let (parsed, wanted) = (json::parse(&outer).unwrap(), json::parse(&inner).unwrap());
        if !json::contains(&parsed, &wanted) {
            continue;
        }
        contained += 1;
        for class in [JsonbOps, JsonbPathOps] {
            let (has, asks) = (of(class, &outer), of(class, &inner));
            assert!(asks.iter().all(|token| has.contains(token)), "{class:?}: {outer} @> {inner}");
        }
    }
    assert!(contained > 500, "{contained}");
}

fn clauses(wanted: Wanted) -> Vec<usize> {
    match wanted {
        Wanted::Clauses(clauses) => clauses.iter().map(Vec::len).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn conditions_ask_for_tokens() {
    use Strategy::*;
    let ask = |class, strategy, value: &Datum| wanted(class, strategy, value).unwrap();
    for (class, strategy, value) in [
        (JsonbOps, Contains, Datum::Null),
        (JsonbOps, HasAnyKey, texts(&[])),
        (ArrayOps, Overlaps, integers(&[])),
        (ArrayOps, Overlaps, integers(&[None])),
        (ArrayOps, Contains, integers(&[Some(1), None])),
        (ArrayOps, HasElement, Datum::Null),
    ] {
        assert_eq!(ask(class, strategy, &value), Wanted::Nothing, "{class:?} {strategy:?} {value:?}");
    }
    let many: Vec<Option<i32>> = (0..=MOST_ALTERNATIVES as i32).map(Some).collect();
    for (class, strategy, value) in [
        (JsonbOps, Contains, jsonb("{}")),
        (JsonbOps, Contains, jsonb("[[]]")),
        (JsonbPathOps, Contains, jsonb(r#"{"a": {}}"#)),
        (JsonbOps, HasAllKeys, texts(&[])),
        (ArrayOps, Contains, integers(&[])),
        (ArrayOps, Equals, integers(&[])),
        (ArrayOps, Equals, integers(&[None])),
        (ArrayOps, Overlaps, integers(&many)),
    ] {
        assert_eq!(ask(class, strategy, &value), Wanted::Anything, "{class:?} {strategy:?} {value:?}");
    }
    for (class, strategy, value, expected) in [
        (JsonbOps, Contains, jsonb(r#"{"a": 1}"#), vec![1, 1]),
        (JsonbOps, HasKey, Datum::text("a"), vec![1]),
        (JsonbOps, HasAnyKey, texts(&["a", "b", "a"]), vec![2]),
        (JsonbOps, HasAllKeys, texts(&["a", "b"]), vec![1, 1]),
        (ArrayOps, Overlaps, integers(&[Some(1), None, Some(2)]), vec![2]),
        (ArrayOps, Overlaps, integers(&many[1..]), vec![MOST_ALTERNATIVES]),
        (ArrayOps, HasElement, Datum::Int4(3), vec![1]),
    ] {
        assert_eq!(clauses(ask(class, strategy, &value)), expected, "{class:?} {strategy:?} {value:?}");
    }
}

#[test]
fn conditions_are_looked_for_together() {
    let key = wanted(JsonbOps, Strategy::HasKey, &Datum::text("a")).unwrap();
    let keys = wanted(JsonbOps, Strategy::HasAnyKey, &texts(&["b", "c"])).unwrap();
    let one = wanted(JsonbOps, Strategy::Contains, &jsonb("1")).unwrap();
    // Values before keys, what has few alternatives before what has more.
    let all = together([keys.clone(), Wanted::Anything, key.clone(), one]);
    let Wanted::Clauses(found) = &all else { panic!("{all:?}") };
    assert_eq!(
        found.iter().map(|clause| (clause.len(), is_key(&clause[0]))).collect::<Vec<_>>(),
        [(1, false), (1, true), (2, true)]
    );
    assert_eq!(together([key.clone(), Wanted::Nothing, keys]), Wanted::Nothing);
    assert_eq!(together([Wanted::Anything, Wanted::Anything]), Wanted::Anything);
    let numbers: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let many = wanted(JsonbOps, Strategy::Contains, &jsonb(&format!("[{}]", numbers.join(", ")))).unwrap();
    assert_eq!(clauses(together([many, key])).len(), MOST_CLAUSES);
}
