//! Expressions and what PostgreSQL 15 makes of them: every line of `expressions.txt` is an
//! expression, the type of its value and its text, or the SQLSTATE it fails with.
//!
//! The file is made by running the expressions on PostgreSQL; the session's zone is Europe/Berlin.

mod expression;
mod formats;

use sql_types::cast::cast;
use sql_types::datetime::TimeZone;
use sql_types::functions::{EvalContext, SetCall, resolve_aggregate, resolve_set_function};
use sql_types::text;
use sql_types::{ColumnType, Datum, SqlResult, Type};

#[test]
fn expressions_are_those_of_postgresql() {
    let zone = TimeZone::find("Europe/Berlin").expect("a zone");
    let mut context = EvalContext::plain();
    context.text.time_zone = &zone;
    check(include_str!("expressions.txt"), |inputs, _| {
        let (value, ty) = expression::evaluate(inputs[0], &context)?;
        Ok(shown(&value, ty, &context))
    });
}

/// Checks lines of a golden file: `compute` gets the fields before those it gives, and the rest.
fn check(file: &str, compute: impl Fn(&[&str], &[&str]) -> SqlResult<Vec<String>>) {
    let mut failures = Vec::new();
    let mut count = 0;
    // The last field alone, or an SQLSTATE or type before it.
    let typed = file.lines().next().is_some_and(|comment| comment.ends_with("(or message)."));
    for line in file.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let (inputs, expected) = fields.split_at(fields.len() - if typed { 2 } else { 1 });
        count += 1;
        let actual = match compute(inputs, expected) {
            Ok(actual) => actual,
            Err(error) => vec![error.code.to_string(), error.message],
        };
        if actual != expected {
            failures.push(format!("{inputs:?}\n    expected {expected:?}\n    but got  {actual:?}"));
        }
    }
    assert!(count > 20, "only {count} lines");
    assert!(failures.is_empty(), "{} of {count} differ:\n{}", failures.len(), failures.join("\n"));
}

fn shown(value: &Datum, ty: Type, context: &EvalContext<'_>) -> Vec<String> {
    if value.is_null() {
        return vec!["null".to_string(), String::new()];
    }
    vec![ty.to_string(), text::to_string(value, ty, context).replace('\n', "\\n")]
}

fn aggregate(name: &str, ty: &str, values: &str, context: &EvalContext<'_>) -> SqlResult<Vec<String>> {
    let ty = Type::by_name(ty).expect("a type");
    let array = text::parse(ColumnType::plain(ty.array().expect("an array type")), values, context)?;
    let Datum::Array(array) = array else { panic!("not an array") };
    let resolved = resolve_aggregate(name, &[ty])?;
    let mut accumulator = (resolved.function.accumulator)(&resolved.arg_types);
    for value in &array.values {
        if value.is_null() && resolved.function.strict {
            continue;
        }
        let value = cast(value, ty, ColumnType::plain(resolved.arg_types[0]), false, context)?;
        accumulator.add(context, &[value])?;
        // The result so far may be asked for at any time.
        accumulator.finish(context)?;
    }
    Ok(shown(&accumulator.finish(context)?, resolved.returns, context))
}

#[test]
fn aggregates_are_those_of_postgresql() {
    let zone = TimeZone::find("Europe/Berlin").expect("a zone");
    let mut context = EvalContext::plain();
    context.text.time_zone = &zone;
    check(include_str!("aggregates.txt"), |inputs, _| {
        let [name, ty, values] = inputs else { panic!("malformed line") };
        aggregate(name, ty, values, &context)
    });
}

#[test]
fn sets_are_those_of_postgresql() {
    let zone = TimeZone::find("Europe/Berlin").expect("a zone");
    let mut context = EvalContext::plain();
    context.text.time_zone = &zone;
    check(include_str!("sets.txt"), |inputs, _| {
        let (name, args) = expression::arguments(inputs[0], &context)?;
        let types: Vec<Type> = args.iter().map(|(_, ty)| *ty).collect();
        let resolved = resolve_set_function(&name, &types)?;
        let values = args
            .iter()
            .zip(&resolved.arg_types)
            .map(|((value, from), to)| cast(value, *from, ColumnType::plain(*to), false, &context))
            .collect::<SqlResult<Vec<_>>>()?;
        let call = SetCall { arg_types: &resolved.arg_types, columns: &resolved.columns };
        let rows = resolved.function.call(&context, call, &values)?.collect::<SqlResult<Vec<_>>>()?;
        let shown = rows.into_iter().map(|row| text::to_string(&Datum::record(row), Type::RECORD, &context));
        Ok(vec!["ok".to_string(), shown.collect::<Vec<_>>().join(";")])
    });
}

#[test]
fn resolution_is_that_of_postgresql() {
    let context = EvalContext::plain();
    check(include_str!("resolution.txt"), |inputs, _| match expression::evaluate(inputs[0], &context) {
        Ok((_, ty)) => Ok(vec![ty.to_string()]),
        Err(error) => Ok(vec![error.code.to_string()]),
    });
}
