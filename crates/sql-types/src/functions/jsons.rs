//! Functions of json and jsonb.

use super::args::{self, imm, typed};
use super::json_path::{self, Put, Slices};
use super::strings::spread;
use super::{EvalContext, Function};
use crate::datetime;
use crate::datum::{ArrayValue, Datum, RecordValue};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::json;
use crate::text;
use crate::types::Type as T;
use serde_json::Value;
use std::sync::Arc;

/// Nesting of values that become JSON.
const MAX_DEPTH: usize = json::MAX_DEPTH;

/// A value as jsonb.
pub(super) fn to_jsonb(context: &EvalContext<'_>, ty: T, value: &Datum, depth: usize) -> SqlResult<Value> {
    if depth > MAX_DEPTH {
        return Err(SqlError::new(SqlState::TOO_COMPLEX, "stack depth limit exceeded"));
    }
    Ok(match value {
        Datum::Null => Value::Null,
        Datum::Bool(value) => Value::Bool(*value),
        Datum::Int2(value) => Value::from(*value),
        Datum::Int4(value) => Value::from(*value),
        Datum::Int8(value) => Value::from(*value),
        Datum::Float4(_) | Datum::Float8(_) | Datum::Numeric(_) => {
            json::numeric_value(&crate::numeric::Numeric::parse(&text::to_string(value, ty, context))?)?
        }
        Datum::Json(text) => json::parse(text)?,
        Datum::Jsonb(value) => Value::clone(value),
        Datum::Array(array) => {
            let mut values = array.values.iter();
            nest(context, array, 0, &mut values, depth)?
        }
        Datum::Record(record) => record_to_jsonb(context, record, depth)?,
        other => Value::String(json_text(context, ty, other)),
    })
}

fn record_to_jsonb(context: &EvalContext<'_>, record: &RecordValue, depth: usize) -> SqlResult<Value> {
    let pairs = record.values.iter().enumerate().map(|(index, value)| {
        Ok((record.field_name(index), to_jsonb(context, record.field_type(index), value, depth + 1)?))
    });
    Ok(json::object(pairs.collect::<SqlResult<Vec<_>>>()?))
}

fn nest<'a>(
    context: &EvalContext<'_>,
    array: &ArrayValue,
    level: usize,
    values: &mut impl Iterator<Item = &'a Datum>,
    depth: usize,
) -> SqlResult<Value> {
    let length = array.dimensions.get(level).map_or(0, |(length, _)| *length);
    let mut out = Vec::with_capacity(length);
    for _ in 0..length {
        out.push(if level + 1 < array.dimensions.len() {
            nest(context, array, level + 1, values, depth)?
        } else {
            to_jsonb(context, array.element, values.next().unwrap_or(&Datum::Null), depth + 1)?
        });
    }
    Ok(Value::Array(out))
}

/// The text of a value inside of JSON: dates and times in ISO 8601.
fn json_text(context: &EvalContext<'_>, ty: T, value: &Datum) -> String {
    let mut iso = context.text;
    iso.date_style = crate::context::DateStyle::Iso;
    let mut shown = text::to_string(value, ty, &iso);
    match value {
        Datum::Timestamp(_) => shown = shown.replacen(' ', "T", 1),
        Datum::Timestamptz(utc) if !datetime::is_infinite_timestamp(*utc) => {
            shown = shown.replacen(' ', "T", 1);
            // Minutes of the offset are always written.
            let sign = shown.rfind(['+', '-']).unwrap_or(0);
            if shown.len() - sign == 3 {
                shown.push_str(":00");
            }
        }
        _ => {}
    }
    shown
}

/// Appends a value as json text.
pub(super) fn write_json(
    context: &EvalContext<'_>,
    ty: T,
    value: &Datum,
    depth: usize,
    out: &mut String,
) -> SqlResult<()> {
    if depth > MAX_DEPTH {
        return Err(SqlError::new(SqlState::TOO_COMPLEX, "stack depth limit exceeded"));
    }
    match value {
        Datum::Null => out.push_str("null"),
        Datum::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Datum::Int2(_) | Datum::Int4(_) | Datum::Int8(_) => text::format(value, ty, context, out),
        Datum::Float4(_) | Datum::Float8(_) | Datum::Numeric(_) => {
            let shown = text::to_string(value, ty, context);
            if shown.ends_with(|c: char| c.is_ascii_digit()) {
                out.push_str(&shown);
            } else {
                json::escape(&shown, out);
            }
        }
        Datum::Json(text) => out.push_str(text),
        Datum::Jsonb(value) => json::format(value, out),
        Datum::Array(array) => write_array(context, array, 0, &mut array.values.iter(), depth, out)?,
        Datum::Record(record) => write_record(context, record, false, depth, out)?,
        other => json::escape(&json_text(context, ty, other), out),
    }
    Ok(())
}

fn write_array<'a>(
    context: &EvalContext<'_>,
    array: &ArrayValue,
    level: usize,
    values: &mut impl Iterator<Item = &'a Datum>,
    depth: usize,
    out: &mut String,
) -> SqlResult<()> {
    out.push('[');
    for index in 0..array.dimensions.get(level).map_or(0, |(length, _)| *length) {
        if index > 0 {
            out.push(',');
        }
        if level + 1 < array.dimensions.len() {
            write_array(context, array, level + 1, values, depth, out)?;
        } else {
            write_json(context, array.element, values.next().unwrap_or(&Datum::Null), depth + 1, out)?;
        }
    }
    out.push(']');
    Ok(())
}

fn write_record(
    context: &EvalContext<'_>,
    record: &RecordValue,
    pretty: bool,
    depth: usize,
    out: &mut String,
) -> SqlResult<()> {
    out.push('{');
    for (index, value) in record.values.iter().enumerate() {
        if index > 0 {
            out.push_str(if pretty { ",\n " } else { "," });
        }
        json::escape(&record.field_name(index), out);
        out.push(':');
        write_json(context, record.field_type(index), value, depth + 1, out)?;
    }
    out.push('}');
    Ok(())
}

pub(super) fn jsonb(value: Value) -> Datum {
    Datum::Jsonb(Arc::new(value))
}

fn json_of(text: String) -> Datum {
    Datum::Json(text.into())
}

fn type_at(types: &[T], index: usize) -> T {
    types.get(index).copied().unwrap_or(T::TEXT)
}

/// The text of an object's key.
pub(super) fn key_text(
    context: &EvalContext<'_>,
    ty: T,
    value: &Datum,
    argument: usize,
) -> SqlResult<String> {
    match value {
        Datum::Null => Err(SqlError::new(
            SqlState::INVALID_PARAMETER,
            format!("argument {argument}: key must not be null"),
        )),
        Datum::Array(_) | Datum::Record(_) | Datum::Json(_) | Datum::Jsonb(_) => Err(SqlError::new(
            SqlState::INVALID_PARAMETER,
            "key value must be scalar, not array, composite, or json",
        )),
        Datum::Bool(value) => Ok(if *value { "true" } else { "false" }.to_string()),
        value => Ok(text::to_string(value, ty, context)),
    }
}

fn build_object(context: &EvalContext<'_>, types: &[T], args: &[Datum]) -> SqlResult<Datum> {
    even(args.len())?;
    let mut out = String::from("{");
    for (index, pair) in args.chunks_exact(2).enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        if pair[0].is_null() {
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER,
                format!("argument {} cannot be null", index * 2 + 1),
            )
            .with_hint("Object keys should be text."));
        }
        json::escape(&key_text(context, type_at(types, index * 2), &pair[0], index * 2 + 1)?, &mut out);
        out.push_str(" : ");
        write_json(context, type_at(types, index * 2 + 1), &pair[1], 0, &mut out)?;
    }
    out.push('}');
    Ok(json_of(out))
}

fn even(count: usize) -> SqlResult<()> {
    if !count.is_multiple_of(2) {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER,
            "argument list must have even number of elements",
        )
        .with_hint("The arguments of json_build_object() must consist of alternating keys and values."));
    }
    Ok(())
}

fn build_object_b(context: &EvalContext<'_>, types: &[T], args: &[Datum]) -> SqlResult<Datum> {
    even(args.len())?;
    let pairs = args.chunks_exact(2).enumerate().map(|(index, pair)| {
        let key = key_text(context, type_at(types, index * 2), &pair[0], index * 2 + 1)?;
        Ok((key, to_jsonb(context, type_at(types, index * 2 + 1), &pair[1], 0)?))
    });
    Ok(jsonb(json::object(pairs.collect::<SqlResult<Vec<_>>>()?)))
}

fn build_array(context: &EvalContext<'_>, types: &[T], args: &[Datum]) -> SqlResult<Datum> {
    let mut out = String::from("[");
    for (index, value) in args.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write_json(context, type_at(types, index), value, 0, &mut out)?;
    }
    out.push(']');
    Ok(json_of(out))
}

fn build_array_b(context: &EvalContext<'_>, types: &[T], args: &[Datum]) -> SqlResult<Datum> {
    let values =
        args.iter().enumerate().map(|(index, value)| to_jsonb(context, type_at(types, index), value, 0));
    Ok(jsonb(Value::Array(values.collect::<SqlResult<Vec<_>>>()?)))
}

/// `json_object(text[])` and `json_object(keys, values)`.
fn object_of_texts(args: &[Datum]) -> SqlResult<Vec<(String, Value)>> {
    let texts = |index: usize| -> SqlResult<Vec<Option<String>>> {
        let array = args::array(args, index)?;
        Ok(array
            .values
            .iter()
            .map(|value| match value {
                Datum::Text(text) => Some(text.to_string()),
                _ => None,
            })
            .collect())
    };
    let mut keys = Vec::new();
    let mut values = Vec::new();
    if args.len() == 1 {
        let all = texts(0)?;
        if all.len() % 2 != 0 {
            return Err(SqlError::new(SqlState::ARRAY_SUBSCRIPT, "array must have even number of elements"));
        }
        for pair in all.chunks_exact(2) {
            keys.push(pair[0].clone());
            values.push(pair[1].clone());
        }
    } else {
        keys = texts(0)?;
        values = texts(1)?;
        if keys.len() != values.len() {
            return Err(SqlError::new(SqlState::ARRAY_SUBSCRIPT, "mismatched array dimensions"));
        }
    }
    keys.into_iter()
        .zip(values)
        .map(|(key, value)| {
            let key = key.ok_or_else(|| {
                SqlError::new(SqlState::NULL_NOT_ALLOWED, "null value not allowed for object key")
            })?;
            Ok((key, value.map_or(Value::Null, Value::String)))
        })
        .collect()
}

fn object_of_texts_json(args: &[Datum]) -> SqlResult<Datum> {
    let mut out = String::from("{");
    for (index, (key, value)) in object_of_texts(args)?.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        json::escape(key, &mut out);
        out.push_str(" : ");
        json::format(value, &mut out);
    }
    out.push('}');
    Ok(json_of(out))
}

fn strip_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key.clone(), strip_nulls(value)))
                .collect(),
        ),
        Value::Array(values) => Value::Array(values.iter().map(strip_nulls).collect()),
        scalar => scalar.clone(),
    }
}

/// Json text without null members of objects: members keep their order and their text.
fn strip_nulls_json(text: &str, depth: usize, out: &mut String) {
    let trimmed = text.trim();
    let open = trimmed.chars().next().filter(|c| matches!(c, '{' | '['));
    let (Some(open), true) = (open, depth < MAX_DEPTH) else {
        // Strings are written anew, which resolves their escapes.
        return match json::parse(trimmed) {
            Ok(Value::String(text)) => json::escape(&text, out),
            _ => out.push_str(trimmed),
        };
    };
    out.push(open);
    let mut first = true;
    for (key, value) in Slices::new(trimmed).members() {
        if open == '{' && value == "null" {
            continue;
        }
        if !first {
            out.push(',');
        }
        first = false;
        if let Some(key) = key {
            json::escape(&key, out);
            out.push(':');
        }
        strip_nulls_json(value, depth + 1, out);
    }
    out.push(if open == '{' { '}' } else { ']' });
}

fn array_length(value: &Value) -> SqlResult<Datum> {
    let refuse = |message: &str| Err(SqlError::new(SqlState::INVALID_PARAMETER, message));
    match value {
        Value::Array(values) => Ok(Datum::Int4(values.len() as i32)),
        Value::Object(_) => refuse("cannot get array length of a non-array"),
        _ => refuse("cannot get array length of a scalar"),
    }
}

/// The path given as separate texts.
fn path_of(args: &[Datum]) -> ArrayValue {
    ArrayValue::one_dimension(T::TEXT, args[1..].to_vec())
}

fn set(args: &[Datum], how: Put) -> SqlResult<Datum> {
    Ok(jsonb(json_path::put(args::jsonb(args, 0)?, args::array(args, 1)?, args::jsonb(args, 2)?, how)?))
}

fn set_lax(args: &[Datum]) -> SqlResult<Datum> {
    if args[0].is_null() || args[1].is_null() {
        return Ok(Datum::Null);
    }
    let create = args.len() < 4 || args::bool(args, 3)?;
    if !args[2].is_null() {
        return set(args, Put::Set { create });
    }
    let treatment = if args.len() > 4 { args::text(args, 4)? } else { "use_json_null" };
    match treatment {
        "raise_exception" => Err(SqlError::new(SqlState::NULL_NOT_ALLOWED, "JSON value must not be null")),
        "return_target" => Ok(args[0].clone()),
        "delete_key" => Ok(jsonb(json_path::delete(args::jsonb(args, 0)?, args::array(args, 1)?)?)),
        "use_json_null" => {
            let path = args::array(args, 1)?;
            Ok(jsonb(json_path::put(args::jsonb(args, 0)?, path, &Value::Null, Put::Set { create })?))
        }
        _ => Err(SqlError::new(
            SqlState::INVALID_PARAMETER,
            "null_value_treatment must be \"delete_key\", \"return_target\", \"use_json_null\", or \"raise_exception\"",
        )),
    }
}

fn to_json(context: &EvalContext<'_>, types: &[T], args: &[Datum]) -> SqlResult<Datum> {
    let mut out = String::new();
    write_json(context, type_at(types, 0), &args[0], 0, &mut out)?;
    Ok(json_of(out))
}

pub(super) static TABLE: &[Function] = &[
    typed("to_json", &[T::ANYELEMENT], T::JSON, to_json).stable(),
    typed("to_jsonb", &[T::ANYELEMENT], T::JSONB, |c, t, a| Ok(jsonb(to_jsonb(c, type_at(t, 0), &a[0], 0)?)))
        .stable(),
    typed("row_to_json", &[T::RECORD], T::JSON, to_json).stable(),
    typed("row_to_json", &[T::RECORD, T::BOOL], T::JSON, |c, t, a| match (&a[0], &a[1]) {
        (Datum::Record(record), Datum::Bool(pretty)) => {
            let mut out = String::new();
            write_record(c, record, *pretty, 0, &mut out)?;
            Ok(json_of(out))
        }
        _ => to_json(c, t, a),
    })
    .stable(),
    typed("array_to_json", &[T::ANYARRAY], T::JSON, to_json).stable(),
    typed("json_build_object", &[], T::JSON, build_object).nonstrict().stable(),
    typed("json_build_object", &[T::ANY], T::JSON, build_object).variadic().nonstrict().stable(),
    typed("json_build_object", &[T::ANYARRAY], T::JSON, |c, t, a| spread(c, t, a, build_object))
        .spreading()
        .nonstrict()
        .stable(),
    typed("jsonb_build_object", &[], T::JSONB, build_object_b).nonstrict().stable(),
    typed("jsonb_build_object", &[T::ANY], T::JSONB, build_object_b).variadic().nonstrict().stable(),
    typed("jsonb_build_object", &[T::ANYARRAY], T::JSONB, |c, t, a| spread(c, t, a, build_object_b))
        .spreading()
        .nonstrict()
        .stable(),
    typed("json_build_array", &[], T::JSON, build_array).nonstrict().stable(),
    typed("json_build_array", &[T::ANY], T::JSON, build_array).variadic().nonstrict().stable(),
    typed("json_build_array", &[T::ANYARRAY], T::JSON, |c, t, a| spread(c, t, a, build_array))
        .spreading()
        .nonstrict()
        .stable(),
    typed("jsonb_build_array", &[], T::JSONB, build_array_b).nonstrict().stable(),
    typed("jsonb_build_array", &[T::ANY], T::JSONB, build_array_b).variadic().nonstrict().stable(),
    typed("jsonb_build_array", &[T::ANYARRAY], T::JSONB, |c, t, a| spread(c, t, a, build_array_b))
        .spreading()
        .nonstrict()
        .stable(),
    imm("json_object", &[T::TEXT_ARRAY], T::JSON, |_, a| object_of_texts_json(a)),
    imm("json_object", &[T::TEXT_ARRAY, T::TEXT_ARRAY], T::JSON, |_, a| object_of_texts_json(a)),
    imm("jsonb_object", &[T::TEXT_ARRAY], T::JSONB, |_, a| Ok(jsonb(json::object(object_of_texts(a)?)))),
    imm("jsonb_object", &[T::TEXT_ARRAY, T::TEXT_ARRAY], T::JSONB, |_, a| {
        Ok(jsonb(json::object(object_of_texts(a)?)))
    }),
    imm("json_typeof", &[T::JSON], T::TEXT, |_, a| {
        Ok(Datum::text(json::type_name(&json::parse(args::json(a, 0)?)?)))
    }),
    imm("jsonb_typeof", &[T::JSONB], T::TEXT, |_, a| Ok(Datum::text(json::type_name(args::jsonb(a, 0)?)))),
    imm("json_array_length", &[T::JSON], T::INT4, |_, a| array_length(&json::parse(args::json(a, 0)?)?)),
    imm("jsonb_array_length", &[T::JSONB], T::INT4, |_, a| array_length(args::jsonb(a, 0)?)),
    imm("json_extract_path", &[T::JSON, T::TEXT], T::JSON, |_, a| {
        json_path::json_walk(args::json(a, 0)?, &path_of(a), false)
    })
    .variadic(),
    imm("json_extract_path", &[T::JSON, T::TEXT_ARRAY], T::JSON, |_, a| {
        json_path::json_walk(args::json(a, 0)?, args::array(a, 1)?, false)
    })
    .spreading(),
    imm("json_extract_path_text", &[T::JSON, T::TEXT], T::TEXT, |_, a| {
        json_path::json_walk(args::json(a, 0)?, &path_of(a), true)
    })
    .variadic(),
    imm("json_extract_path_text", &[T::JSON, T::TEXT_ARRAY], T::TEXT, |_, a| {
        json_path::json_walk(args::json(a, 0)?, args::array(a, 1)?, true)
    })
    .spreading(),
    imm("jsonb_extract_path", &[T::JSONB, T::TEXT], T::JSONB, |_, a| {
        Ok(json_path::jsonb_or_null(json_path::walk(args::jsonb(a, 0)?, &path_of(a))))
    })
    .variadic(),
    imm("jsonb_extract_path", &[T::JSONB, T::TEXT_ARRAY], T::JSONB, |_, a| {
        Ok(json_path::jsonb_or_null(json_path::walk(args::jsonb(a, 0)?, args::array(a, 1)?)))
    })
    .spreading(),
    imm("jsonb_extract_path_text", &[T::JSONB, T::TEXT], T::TEXT, |_, a| {
        Ok(json_path::text_or_null(json_path::walk(args::jsonb(a, 0)?, &path_of(a))))
    })
    .variadic(),
    imm("jsonb_extract_path_text", &[T::JSONB, T::TEXT_ARRAY], T::TEXT, |_, a| {
        Ok(json_path::text_or_null(json_path::walk(args::jsonb(a, 0)?, args::array(a, 1)?)))
    })
    .spreading(),
    imm("jsonb_set", &[T::JSONB, T::TEXT_ARRAY, T::JSONB], T::JSONB, |_, a| {
        set(a, Put::Set { create: true })
    }),
    imm("jsonb_set", &[T::JSONB, T::TEXT_ARRAY, T::JSONB, T::BOOL], T::JSONB, |_, a| {
        set(a, Put::Set { create: args::bool(a, 3)? })
    }),
    imm("jsonb_set_lax", &[T::JSONB, T::TEXT_ARRAY, T::JSONB], T::JSONB, |_, a| set_lax(a)).nonstrict(),
    imm("jsonb_set_lax", &[T::JSONB, T::TEXT_ARRAY, T::JSONB, T::BOOL], T::JSONB, |_, a| set_lax(a))
        .nonstrict(),
    imm("jsonb_set_lax", &[T::JSONB, T::TEXT_ARRAY, T::JSONB, T::BOOL, T::TEXT], T::JSONB, |_, a| set_lax(a))
        .nonstrict(),
    imm("jsonb_insert", &[T::JSONB, T::TEXT_ARRAY, T::JSONB], T::JSONB, |_, a| {
        set(a, Put::Insert { after: false })
    }),
    imm("jsonb_insert", &[T::JSONB, T::TEXT_ARRAY, T::JSONB, T::BOOL], T::JSONB, |_, a| {
        set(a, Put::Insert { after: args::bool(a, 3)? })
    }),
    imm("jsonb_pretty", &[T::JSONB], T::TEXT, |_, a| {
        let mut out = String::new();
        json::format_pretty(args::jsonb(a, 0)?, 0, &mut out);
        Ok(Datum::text(out))
    }),
    imm("jsonb_strip_nulls", &[T::JSONB], T::JSONB, |_, a| Ok(jsonb(strip_nulls(args::jsonb(a, 0)?)))),
    imm("json_strip_nulls", &[T::JSON], T::JSON, |_, a| {
        let mut out = String::new();
        strip_nulls_json(args::json(a, 0)?, 0, &mut out);
        Ok(json_of(out))
    }),
    imm("jsonb_contains", &[T::JSONB, T::JSONB], T::BOOL, |_, a| {
        Ok(Datum::Bool(json::contains(args::jsonb(a, 0)?, args::jsonb(a, 1)?)))
    }),
];
