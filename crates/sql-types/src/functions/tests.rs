//! Resolution, aggregates of several arguments, ordered sets, windows. Expected values are those of
//! PostgreSQL 15; the bulk of functions is checked by the golden files in `tests/it`.

use super::*;
use crate::datum::{RecordField, RecordValue};
use crate::error::SqlState;
use crate::text;
use std::sync::Arc;

fn shown(value: &Datum, ty: Type) -> String {
    text::to_string(value, ty, &EvalContext::plain())
}

fn aggregate(name: &str, types: &[Type], rows: &[Vec<Datum>]) -> String {
    let context = EvalContext::plain();
    let resolved = resolve_aggregate(name, types).unwrap();
    let mut accumulator = (resolved.function.accumulator)(&resolved.arg_types);
    for row in rows {
        accumulator.add(&context, row).unwrap();
    }
    shown(&accumulator.finish(&context).unwrap(), resolved.returns)
}

fn doubles(rows: &[[f64; 2]]) -> Vec<Vec<Datum>> {
    rows.iter().map(|row| row.iter().map(|value| Datum::Float8(*value)).collect()).collect()
}

#[test]
fn regression() {
    let rows = doubles(&[[1.0, 2.0], [2.0, 3.0], [4.0, 7.0], [8.0, 9.0]]);
    let expected = [
        ("corr", "0.953237883564118"),
        ("covar_pop", "7.3125"),
        ("covar_samp", "9.75"),
        ("regr_slope", "0.8931297709923665"),
        ("regr_intercept", "-0.9389312977099236"),
        ("regr_r2", "0.9086624626617988"),
        ("regr_count", "4"),
        ("regr_avgx", "5.25"),
        ("regr_sxx", "32.75"),
    ];
    for (name, value) in expected {
        assert_eq!(aggregate(name, &[Type::FLOAT8, Type::FLOAT8], &rows), value, "{name}");
    }
}

#[test]
fn ordered_sets() {
    let values = [1.0, 2.0, 2.0, 10.0];
    let rows: Vec<_> = values.iter().map(|value| vec![Datum::Float8(0.5), Datum::Float8(*value)]).collect();
    let types = [Type::FLOAT8, Type::FLOAT8];
    assert_eq!(aggregate("percentile_cont", &types, &rows), "2");
    assert_eq!(aggregate("percentile_disc", &types, &rows), "2");
    let quartiles = Datum::array(Type::FLOAT8, vec![Datum::Float8(0.25), Datum::Float8(0.75)]);
    let rows: Vec<_> = values.iter().map(|value| vec![quartiles.clone(), Datum::Float8(*value)]).collect();
    assert_eq!(aggregate("percentile_cont", &[Type::FLOAT8_ARRAY, Type::FLOAT8], &rows), "{1.75,4}");
    let rows: Vec<_> = values.iter().map(|value| vec![Datum::Float8(*value)]).collect();
    assert_eq!(aggregate("mode", &[Type::FLOAT8], &rows), "2");
}

#[test]
fn collections_of_pairs() {
    let rows = vec![vec![Datum::text("a"), Datum::Int4(1)], vec![Datum::text("b"), Datum::Int4(2)]];
    let types = [Type::TEXT, Type::INT4];
    assert_eq!(aggregate("json_object_agg", &types, &rows), r#"{ "a" : 1, "b" : 2 }"#);
    assert_eq!(aggregate("jsonb_object_agg", &types, &rows), r#"{"a": 1, "b": 2}"#);
    let rows: Vec<_> = ["a", "b"].iter().map(|value| vec![Datum::text(*value), Datum::text("-")]).collect();
    assert_eq!(aggregate("string_agg", &[Type::TEXT, Type::TEXT], &rows), "a-b");
}

#[test]
fn records_carry_their_names_into_json() {
    let fields: Arc<[RecordField]> =
        [("a", Type::INT4), ("b", Type::TEXT)].map(|(name, ty)| RecordField { name: name.into(), ty }).into();
    let record = |a: i32, b: Datum| {
        let values = vec![Datum::Int4(a), b];
        Datum::Record(Arc::new(RecordValue { fields: Some(fields.clone()), values }))
    };
    let rows = vec![vec![record(1, Datum::text("a"))], vec![record(2, Datum::Null)]];
    assert_eq!(
        aggregate("json_agg", &[Type::RECORD], &rows),
        "[{\"a\":1,\"b\":\"a\"}, \n {\"a\":2,\"b\":null}]"
    );
    assert_eq!(
        aggregate("jsonb_agg", &[Type::RECORD], &rows),
        r#"[{"a": 1, "b": "a"}, {"a": 2, "b": null}]"#
    );
    let anonymous = Datum::record(vec![Datum::Int4(1), Datum::text("a b"), Datum::Null, Datum::text("")]);
    assert_eq!(shown(&anonymous, Type::RECORD), r#"(1,"a b",,"")"#);
}

/// Rows of one integer column, ordered by it, with the default frame.
struct Ordered<'a> {
    values: &'a [i32],
    current: usize,
    /// Further arguments.
    constants: Vec<Datum>,
}

impl WindowRows for Ordered<'_> {
    fn len(&self) -> usize {
        self.values.len()
    }
    fn current(&self) -> usize {
        self.current
    }
    fn peers(&self) -> Range<usize> {
        let value = self.values[self.current];
        let start = self.values.partition_point(|other| *other < value);
        start..self.values.partition_point(|other| *other <= value)
    }
    fn peer_group(&self) -> usize {
        let mut before = self.values[..self.peers().start].to_vec();
        before.dedup();
        before.len()
    }
    fn frame_len(&self) -> usize {
        self.peers().end
    }
    fn frame_row(&self, n: usize) -> Option<usize> {
        (n < self.frame_len()).then_some(n)
    }
    fn arg(&self, row: usize, n: usize) -> SqlResult<Datum> {
        Ok(if n == 0 { Datum::Int4(self.values[row]) } else { self.constants[n - 1].clone() })
    }
    fn args(&self) -> usize {
        self.constants.len() + 1
    }
}

fn window(name: &str, types: &[Type], constants: &[i32]) -> Vec<String> {
    let resolved = resolve_window(name, types).unwrap();
    (0..5)
        .map(|current| {
            let constants = constants.iter().map(|value| Datum::Int4(*value)).collect();
            let rows = Ordered { values: &[1, 2, 2, 3, 4], current, constants };
            shown(&(resolved.function.eval)(&EvalContext::plain(), &rows).unwrap(), resolved.returns)
        })
        .collect()
}

#[test]
fn windows() {
    assert_eq!(window("row_number", &[], &[]), ["1", "2", "3", "4", "5"]);
    assert_eq!(window("rank", &[], &[]), ["1", "2", "2", "4", "5"]);
    assert_eq!(window("dense_rank", &[], &[]), ["1", "2", "2", "3", "4"]);
    assert_eq!(window("percent_rank", &[], &[]), ["0", "0.25", "0.25", "0.75", "1"]);
    assert_eq!(window("cume_dist", &[], &[]), ["0.2", "0.6", "0.6", "0.8", "1"]);
    assert_eq!(window("lag", &[Type::INT4], &[]), ["", "1", "2", "2", "3"]);
    assert_eq!(window("lead", &[Type::INT4, Type::INT4, Type::INT4], &[2, -1]), ["2", "3", "4", "-1", "-1"]);
    assert_eq!(window("first_value", &[Type::INT4], &[]), ["1"; 5]);
    assert_eq!(window("last_value", &[Type::INT4], &[]), ["1", "2", "2", "3", "4"]);
    assert_eq!(window("nth_value", &[Type::INT4, Type::INT4], &[2]), ["", "2", "2", "2", "2"]);
}

#[test]
fn resolution_follows_postgresql() {
    let operator = |symbol, left, right| resolve_operator(symbol, Some(left), right);
    assert_eq!(operator("=", Type::INT4, Type::UNKNOWN).unwrap().arg_types, [Type::INT4, Type::INT4]);
    assert_eq!(operator("=", Type::VARCHAR, Type::UNKNOWN).unwrap().arg_types, [Type::TEXT, Type::TEXT]);
    assert_eq!(operator("+", Type::INT2, Type::NUMERIC).unwrap().returns, Type::NUMERIC);
    assert_eq!(operator("||", Type::INT4_ARRAY, Type::INT4).unwrap().returns, Type::INT4_ARRAY);
    assert_eq!(operator("!=", Type::INT8, Type::INT4).unwrap().function.name, "<>");
    let missing = operator("=", Type::INT4, Type::TEXT).unwrap_err();
    assert_eq!(missing.code, SqlState::UNDEFINED_FUNCTION);
    assert_eq!(missing.message, "operator does not exist: integer = text");
    assert!(missing.extra().unwrap().hint.as_deref().unwrap().contains("explicit type casts"));
    assert_eq!(resolve("foo", &[Type::INT4]).unwrap_err().message, "function foo(integer) does not exist");
    assert_eq!(resolve_aggregate("sum", &[Type::INT4]).unwrap().returns, Type::INT8);
    assert_eq!(resolve_aggregate("min", &[Type::VARCHAR]).unwrap().returns, Type::TEXT);
    assert_eq!(resolve("greatest", &[Type::INT4, Type::NUMERIC]).unwrap().returns, Type::NUMERIC);
    assert_eq!(resolve("concat", &[Type::INT4, Type::TEXT, Type::BOOL]).unwrap().arg_types.len(), 3);
    assert_eq!(resolve_variadic("concat", &[Type::TEXT_ARRAY]).unwrap().returns, Type::TEXT);
    let set = resolve_set_function("unnest", &[Type::TEXT_ARRAY]).unwrap();
    assert_eq!(set.columns, [("unnest".to_string(), Type::TEXT)]);
}

#[test]
fn every_overload_is_found_by_its_own_signature() {
    for function in all_functions().iter().filter(|function| !function.spreads) {
        if !function.args.iter().any(|ty| ty.is_polymorphic() || *ty == Type::ANY) {
            let found = resolve(function.name, function.args).unwrap().function;
            assert_eq!(found.args, function.args, "{}", function.name);
        }
    }
    for operator in all_operators() {
        if operator.args.iter().any(|ty| ty.is_polymorphic()) {
            continue;
        }
        let found = match operator.args {
            [left, right] => resolve_operator(operator.name, Some(*left), *right),
            [right] => resolve_operator(operator.name, None, *right),
            _ => panic!("operator {operator:?}"),
        };
        assert_eq!(found.unwrap().function, *operator);
    }
}

#[test]
fn wrong_arguments_are_errors_and_never_panics() {
    let context = EvalContext::plain();
    let odd = [Datum::Null, Datum::Int4(-1), Datum::text(""), Datum::record(Vec::new())];
    let functions = all_functions().iter().chain(all_operators());
    // Those that go by position find at least as many arguments as they declare.
    for function in functions.filter(|function| !function.external) {
        for value in &odd {
            let args = vec![value.clone(); function.args.len()];
            let types = vec![value.natural_type(); args.len()];
            let _ = function.call(&context, &types, &args);
        }
    }
}

/// Values at the edges of a type.
fn edges(ty: Type) -> Vec<Datum> {
    let parsed = |texts: &[&str]| -> Vec<Datum> {
        let context = EvalContext::plain();
        texts.iter().filter_map(|text| text::parse(ty.into(), text, &context).ok()).collect()
    };
    match ty {
        Type::INT2 => [i16::MIN, -1, 0, 1, i16::MAX].map(Datum::Int2).into(),
        Type::INT4 => [i32::MIN, -1, 0, 1, 2, 7, 40, i32::MAX].map(Datum::Int4).into(),
        Type::INT8 => [i64::MIN, -1, 0, 1, 50, i64::MAX].map(Datum::Int8).into(),
        Type::FLOAT4 => [f32::MIN, -0.0, 0.5, f32::MAX, f32::NAN, f32::INFINITY].map(Datum::Float4).into(),
        Type::FLOAT8 => {
            [f64::MIN, -1.5, -0.0, 0.5, 3.0, f64::MAX, f64::MIN_POSITIVE, f64::NAN, f64::NEG_INFINITY]
                .map(Datum::Float8)
                .into()
        }
        Type::NUMERIC => parsed(&[
            "0",
            "-1",
            "0.5",
            "1e-300",
            "1e300",
            "-170141183460469231731687303715884105728",
            "NaN",
            "Infinity",
            "12345.6789",
        ]),
        Type::DATE => [i32::MIN, i32::MAX, 0, crate::datetime::MIN_DATE, crate::datetime::END_DATE - 1]
            .map(Datum::Date)
            .into(),
        Type::TIME => [0, 1, crate::datetime::DAY].map(Datum::Time).into(),
        Type::TIMESTAMP | Type::TIMESTAMPTZ => {
            let micros =
                [i64::MIN, i64::MAX, 0, crate::datetime::MIN_TIMESTAMP, crate::datetime::END_TIMESTAMP - 1];
            micros.map(if ty == Type::TIMESTAMP { Datum::Timestamp } else { Datum::Timestamptz }).into()
        }
        Type::INTERVAL => {
            let extreme = |months, days, micros| Datum::Interval(crate::Interval { months, days, micros });
            vec![
                extreme(0, 0, 0),
                extreme(i32::MIN, i32::MIN, i64::MIN),
                extreme(i32::MAX, i32::MAX, i64::MAX),
                extreme(-1, 40, -5),
                extreme(0, 0, i64::MIN),
            ]
        }
        Type::JSON | Type::JSONB => {
            parsed(&["null", "1", "\"x\"", "[]", "[1,{\"a\":[null]}]", "{\"a\":{\"b\":[1,2]},\"\":0}"])
        }
        Type::TEXT_ARRAY => parsed(&["{}", "{a,b,0,-1}", "{NULL}", "{{a,b},{c,d}}", "{\"\"}"]),
        Type::BYTEA => parsed(&["", "\\x00ff", "abc"]),
        Type::BOOL => vec![Datum::Bool(true), Datum::Bool(false)],
        Type::UUID => vec![Datum::Uuid([255; 16])],
        Type::INET => parsed(&["::1", "10.0.0.0/8"]),
        _ if ty.is_reg() || matches!(ty, Type::OID | Type::XID | Type::CID) => {
            [0, 23, u32::MAX].map(Datum::Oid).into()
        }
        _ if ty.element().is_some() => parsed(&["{}", "{1,2}", "{NULL}", "[-2147483648:-2147483647]={1,2}"]),
        _ => [
            "",
            "a",
            "ä%_\\",
            "(a|b)*[c-]{2,3}?",
            "year",
            "YYYY-MM-DD HH24:MI:SS.US AM TZ",
            "99,999.00MI",
            "FM9.9EEEE",
            "$1",
            "2020-01-01 10:00",
            "1.5",
            "%s %1$I %-5L",
            "a.b",
            "base64",
            "UTC",
            "\u{10ffff}",
            "\\",
            "[",
            "{",
            "RN",
            "g",
        ]
        .map(Datum::text)
        .into(),
    }
}

#[test]
fn edge_values_are_errors_or_values_and_never_panics() {
    let context = EvalContext::plain();
    // A fixed sequence of choices: the same on every run.
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut choose = |length: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % length
    };
    for function in all_functions().iter().chain(all_operators()).filter(|function| !function.external) {
        let concrete: Vec<Type> = function
            .args
            .iter()
            .map(|ty| match *ty {
                Type::ANYARRAY | Type::ANYCOMPATIBLEARRAY => Type::INT4_ARRAY,
                Type::ANY | Type::ANYELEMENT | Type::ANYCOMPATIBLE | Type::ANYNONARRAY => Type::INT4,
                other => other,
            })
            .collect();
        let values: Vec<Vec<Datum>> = concrete.iter().map(|ty| edges(*ty)).collect();
        if values.iter().any(Vec::is_empty) {
            continue;
        }
        for _ in 0..if concrete.is_empty() { 1 } else { 120 } {
            let args: Vec<Datum> = values.iter().map(|values| values[choose(values.len())].clone()).collect();
            if let Ok(value) = function.call(&context, &concrete, &args) {
                text::to_string(&value, function.returns, &context);
            }
        }
    }
}

#[test]
fn casts_of_edge_values_never_panic() {
    let context = EvalContext::plain();
    let types: Vec<Type> = crate::types::BUILT_IN.iter().map(|info| info.ty).filter(|ty| ty.0 != 0).collect();
    for from in &types {
        for value in edges(*from) {
            for to in types.iter().filter(|to| crate::cast::cast_kind(*from, **to).is_some()) {
                for typmod in [-1, 0, 4, 5, 6, 655_366] {
                    let to = crate::ColumnType { ty: *to, typmod };
                    if let Ok(value) = crate::cast::cast(&value, *from, to, true, &context) {
                        text::to_string(&value, to.ty, &context);
                    }
                }
            }
        }
    }
}
