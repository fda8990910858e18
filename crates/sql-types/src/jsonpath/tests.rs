use super::{Call, exists, matches, parse, query};
use crate::json;
use serde_json::Value;

fn shown(text: &str) -> String {
    match parse(text) {
        Ok(path) => path.to_string(),
        Err(error) => error.code.0.to_string(),
    }
}

#[test]
fn paths_are_shown_as_postgresql_shows_them() {
    let cases = [
        ("$.a[*] ? (@ > 1)", "$.\"a\"[*]?(@ > 1)"),
        ("strict $", "strict $"),
        ("$.a + 1", "($.\"a\" + 1)"),
        ("($.a + 1) * 2", "(($.\"a\" + 1) * 2)"),
        ("$.a + 1 * 2", "($.\"a\" + 1 * 2)"),
        ("-$.a", "(-$.\"a\")"),
        ("-1", "-1"),
        ("$ ? (@.a == 1 && (@.b > 2 || !(@.c < 3)))", "$?(@.\"a\" == 1 && (@.\"b\" > 2 || !(@.\"c\" < 3)))"),
        ("$.**{2 to last}.b", "$.**{2 to last}.\"b\""),
        ("$.**", "$.**"),
        ("$[0, 1 to last]", "$[0,1 to last]"),
        ("$.a.size()", "$.\"a\".size()"),
        ("exists($.b)", "exists ($.\"b\")"),
        ("$ ? (@ like_regex \"^a\" flag \"i\")", "$?(@ like_regex \"^a\" flag \"i\")"),
        ("$ ? ((@ == 1) is unknown)", "$?((@ == 1) is unknown)"),
        ("$.a starts with \"x\"", "($.\"a\" starts with \"x\")"),
        ("$foo", "$\"foo\""),
        ("", "22P02"),
        ("$.a[", "42601"),
        ("@", "42601"),
        ("last", "42601"),
        ("1 + (2 > 1)", "42601"),
        ("$ ? (@)", "42601"),
        ("1a", "42601"),
        ("$ ? (@ like_regex \"(\")", "2201B"),
    ];
    for (text, expected) in cases {
        assert_eq!(shown(text), expected, "{text}");
    }
}

#[test]
fn nesting_is_bounded() {
    for text in [format!("{}1{}", "(".repeat(10_000), ")".repeat(10_000)), "-".repeat(100_000) + "1"] {
        assert_eq!(shown(&text), "54001");
    }
}

#[test]
fn steps_are_bounded() {
    let target = json::parse(&("[".repeat(40) + &"]".repeat(40))).unwrap();
    let path = parse(&("$".to_string() + &".**".repeat(40))).unwrap();
    let vars = Value::Object(Default::default());
    let call = Call { path: &path, target: &target, vars: &vars, silent: true };
    assert_eq!(exists(&call).unwrap(), Some(true));
    assert_eq!(query(&call).unwrap_err().code.0, "54000");
}

#[test]
fn items_are_found() {
    let target = json::parse(r#"{"a": [1, {"b": 2}], "c": "2024-02-29"}"#).unwrap();
    let vars = Value::Object(Default::default());
    let run = |text: &str| {
        let path = parse(text).unwrap();
        let call = Call { path: &path, target: &target, vars: &vars, silent: false };
        match query(&call) {
            Ok(values) => values.iter().map(Value::to_string).collect::<Vec<_>>().join(" "),
            Err(error) => error.code.0.to_string(),
        }
    };
    assert_eq!(run("$.a.b"), "2");
    assert_eq!(run("strict $.a.b"), "2203A");
    assert_eq!(run("$.a[last].b + 1"), "3");
    assert_eq!(run("$.c.datetime() > \"2023-01-01\".datetime()"), "true");
    assert_eq!(run("$.c.datetime().type()"), "\"date\"");
    assert_eq!(run("$.**.b"), "2 2");
    let path = parse("$.a[0] == 1").unwrap();
    let call = Call { path: &path, target: &target, vars: &vars, silent: false };
    assert_eq!(matches(&call).unwrap(), Some(true));
}
