//! The parts of json and jsonb values as rows.

use super::{SetCall, SetRows, column, rows, set};
use crate::context::EvalContext;
use crate::datum::Datum;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::SetFunction;
use crate::functions::args;
use crate::functions::json_path::{self, Slices};
use crate::functions::jsonpaths::with_call;
use crate::functions::jsons::jsonb;
use crate::json;
use crate::jsonpath;
use crate::text;
use crate::types::{ColumnType, Type as T};
use serde_json::Value;

fn refuse(message: String) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, message)
}

fn object<'a>(args: &'a [Datum], function: &str) -> SqlResult<&'a serde_json::Map<String, Value>> {
    let value = args::jsonb(args, 0)?;
    value.as_object().ok_or_else(|| match value {
        Value::Array(_) if function == "jsonb_object_keys" => {
            refuse(format!("cannot call {function} on an array"))
        }
        _ if function == "jsonb_object_keys" => refuse(format!("cannot call {function} on a scalar")),
        _ => refuse(format!("cannot call {function} on a non-object")),
    })
}

fn elements(args: &[Datum]) -> SqlResult<&Vec<Value>> {
    let value = args::jsonb(args, 0)?;
    value.as_array().ok_or_else(|| {
        let kind = if value.is_object() { "an object" } else { "a scalar" };
        refuse(format!("cannot extract elements from {kind}"))
    })
}

/// Members of json text, which must be of a kind.
fn slices<'a>(args: &'a [Datum], open: char, function: &str) -> SqlResult<Vec<(Option<String>, &'a str)>> {
    let text = args::json(args, 0)?;
    if text.trim_start().starts_with(open) {
        return Ok(Slices::new(text).members());
    }
    let container = text.trim_start().starts_with(['{', '[']);
    Err(refuse(match (function, container) {
        ("json_array_elements", true) => format!("cannot call {function} on a non-array"),
        ("json_object_keys", true) => format!("cannot call {function} on an array"),
        ("json_array_elements" | "json_object_keys", false) => format!("cannot call {function} on a scalar"),
        (_, true) => "cannot deconstruct an array as an object".to_string(),
        (_, false) => "cannot deconstruct a scalar".to_string(),
    }))
}

fn each(args: &[Datum], as_text: bool) -> SqlResult<SetRows> {
    let function = if as_text { "jsonb_each_text" } else { "jsonb_each" };
    let pairs = object(args, function)?.iter().map(|(key, value)| {
        let shown = if as_text { json_path::text_or_null(Some(value)) } else { jsonb(value.clone()) };
        vec![Datum::text(key.as_str()), shown]
    });
    Ok(rows(pairs.collect()))
}

fn each_json(args: &[Datum], as_text: bool) -> SqlResult<SetRows> {
    let function = if as_text { "json_each_text" } else { "json_each" };
    let pairs = slices(args, '{', function)?.into_iter().map(|(key, text)| {
        Ok(vec![Datum::text(key.unwrap_or_default()), json_path::json_result(Some(text), as_text)?])
    });
    Ok(rows(pairs.collect::<SqlResult<Vec<_>>>()?))
}

fn elements_json(args: &[Datum], as_text: bool) -> SqlResult<SetRows> {
    let values = slices(args, '[', "json_array_elements")?
        .into_iter()
        .map(|(_, text)| json_path::json_result(Some(text), as_text));
    Ok(column(values.collect::<SqlResult<Vec<_>>>()?))
}

/// A JSON value as a value of a column's type.
fn to_column(context: &EvalContext<'_>, value: Option<&Value>, ty: T) -> SqlResult<Datum> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(Datum::Null) };
    match ty {
        T::JSONB => return Ok(jsonb(value.clone())),
        T::JSON => {
            let mut out = String::new();
            json::format(value, &mut out);
            return Ok(Datum::Json(out.into()));
        }
        _ => {}
    }
    if let (Some(element), Value::Array(values)) = (ty.element(), value) {
        let values = values.iter().map(|value| to_column(context, Some(value), element));
        return Ok(Datum::array(element, values.collect::<SqlResult<Vec<_>>>()?));
    }
    match json_path::text_or_null(Some(value)) {
        Datum::Text(shown) => text::parse(ColumnType::plain(ty), &shown, context),
        other => Ok(other),
    }
}

fn record(context: &EvalContext<'_>, call: SetCall<'_>, value: &Value) -> SqlResult<Vec<Datum>> {
    let map =
        value.as_object().ok_or_else(|| refuse("cannot call populate_composite on a scalar".to_string()))?;
    call.columns.iter().map(|(name, ty)| to_column(context, map.get(name), *ty)).collect()
}

fn value_of(args: &[Datum], index: usize) -> SqlResult<Value> {
    match args.get(index) {
        Some(Datum::Json(text)) => json::parse(text),
        _ => args::jsonb(args, index).cloned(),
    }
}

fn to_record(context: &EvalContext<'_>, call: SetCall<'_>, args: &[Datum]) -> SqlResult<SetRows> {
    Ok(rows(vec![record(context, call, &value_of(args, args.len() - 1)?)?]))
}

fn to_recordset(context: &EvalContext<'_>, call: SetCall<'_>, args: &[Datum]) -> SqlResult<SetRows> {
    let value = value_of(args, args.len() - 1)?;
    let values = value.as_array().ok_or_else(|| {
        let kind = if value.is_object() { "an object" } else { "a scalar" };
        refuse(format!("cannot call jsonb_to_recordset on {kind}"))
    })?;
    let records = values.iter().map(|value| match value {
        Value::Object(_) => record(context, call, value),
        _ => Err(refuse("argument of jsonb_to_recordset must be an array of objects".to_string())),
    });
    Ok(rows(records.collect::<SqlResult<Vec<_>>>()?))
}

fn path_query(args: &[Datum]) -> SqlResult<SetRows> {
    let values = with_call(args, false, jsonpath::query)?;
    Ok(column(values.into_iter().map(jsonb).collect::<Vec<_>>()))
}

pub(super) static TABLE: &[SetFunction] = &[
    set("jsonb_each", &[T::JSONB], &[("key", T::TEXT), ("value", T::JSONB)], |_, _, a| each(a, false)),
    set("jsonb_each_text", &[T::JSONB], &[("key", T::TEXT), ("value", T::TEXT)], |_, _, a| each(a, true)),
    set("json_each", &[T::JSON], &[("key", T::TEXT), ("value", T::JSON)], |_, _, a| each_json(a, false)),
    set("json_each_text", &[T::JSON], &[("key", T::TEXT), ("value", T::TEXT)], |_, _, a| each_json(a, true)),
    set("jsonb_array_elements", &[T::JSONB], &[("value", T::JSONB)], |_, _, a| {
        Ok(column(elements(a)?.iter().cloned().map(jsonb).collect::<Vec<_>>()))
    }),
    set("jsonb_array_elements_text", &[T::JSONB], &[("value", T::TEXT)], |_, _, a| {
        Ok(column(elements(a)?.iter().map(|value| json_path::text_or_null(Some(value))).collect::<Vec<_>>()))
    }),
    set("json_array_elements", &[T::JSON], &[("value", T::JSON)], |_, _, a| elements_json(a, false)),
    set("json_array_elements_text", &[T::JSON], &[("value", T::TEXT)], |_, _, a| elements_json(a, true)),
    set("jsonb_object_keys", &[T::JSONB], &[("jsonb_object_keys", T::TEXT)], |_, _, a| {
        Ok(column(
            object(a, "jsonb_object_keys")?.keys().map(|key| Datum::text(key.as_str())).collect::<Vec<_>>(),
        ))
    }),
    set("json_object_keys", &[T::JSON], &[("json_object_keys", T::TEXT)], |_, _, a| {
        let keys = slices(a, '{', "json_object_keys")?
            .into_iter()
            .map(|(key, _)| Datum::text(key.unwrap_or_default()));
        Ok(column(keys.collect::<Vec<_>>()))
    }),
    set("jsonb_to_record", &[T::JSONB], &[], to_record).dynamic(),
    set("json_to_record", &[T::JSON], &[], to_record).dynamic(),
    set("jsonb_to_recordset", &[T::JSONB], &[], to_recordset).dynamic(),
    set("json_to_recordset", &[T::JSON], &[], to_recordset).dynamic(),
    set("jsonb_populate_record", &[T::ANYELEMENT, T::JSONB], &[], to_record).dynamic().nonstrict(),
    set("json_populate_record", &[T::ANYELEMENT, T::JSON], &[], to_record).dynamic().nonstrict(),
    set("jsonb_populate_recordset", &[T::ANYELEMENT, T::JSONB], &[], to_recordset).dynamic().nonstrict(),
    set("json_populate_recordset", &[T::ANYELEMENT, T::JSON], &[], to_recordset).dynamic().nonstrict(),
    set("jsonb_path_query", &[T::JSONB, T::JSONPATH], &[("jsonb_path_query", T::JSONB)], |_, _, a| {
        path_query(a)
    }),
    set(
        "jsonb_path_query",
        &[T::JSONB, T::JSONPATH, T::JSONB],
        &[("jsonb_path_query", T::JSONB)],
        |_, _, a| path_query(a),
    ),
    set(
        "jsonb_path_query",
        &[T::JSONB, T::JSONPATH, T::JSONB, T::BOOL],
        &[("jsonb_path_query", T::JSONB)],
        |_, _, a| path_query(a),
    ),
    set("jsonb_path_query_tz", &[T::JSONB, T::JSONPATH], &[("jsonb_path_query_tz", T::JSONB)], |_, _, a| {
        path_query(a)
    }),
    set(
        "jsonb_path_query_tz",
        &[T::JSONB, T::JSONPATH, T::JSONB],
        &[("jsonb_path_query_tz", T::JSONB)],
        |_, _, a| path_query(a),
    ),
    set(
        "jsonb_path_query_tz",
        &[T::JSONB, T::JSONPATH, T::JSONB, T::BOOL],
        &[("jsonb_path_query_tz", T::JSONB)],
        |_, _, a| path_query(a),
    ),
];
