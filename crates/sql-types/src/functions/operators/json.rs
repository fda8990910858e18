//! Operators of json and jsonb.

use crate::datum::{ArrayValue, Datum};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::Function;
use crate::functions::args::{self, imm};
use crate::functions::json_path as path;
use crate::json;
use crate::types::Type as T;
use serde_json::Value;
use std::sync::Arc;

fn has_key(value: &Value, key: &str) -> bool {
    match value {
        Value::Object(map) => map.contains_key(key),
        Value::Array(values) => values.iter().any(|value| value.as_str() == Some(key)),
        Value::String(text) => text == key,
        _ => false,
    }
}

fn keys(array: &ArrayValue) -> impl Iterator<Item = &str> {
    array.values.iter().filter_map(|value| match value {
        Datum::Text(text) => Some(&**text),
        _ => None,
    })
}

fn concat(left: &Value, right: &Value) -> Value {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let pairs = left.iter().chain(right).map(|(key, value)| (key.clone(), value.clone()));
            json::object(pairs.collect())
        }
        (Value::Array(left), Value::Array(right)) => {
            Value::Array(left.iter().chain(right).cloned().collect())
        }
        (Value::Array(left), right) => Value::Array(left.iter().chain([right]).cloned().collect()),
        (left, Value::Array(right)) => Value::Array(std::iter::once(left).chain(right).cloned().collect()),
        (left, right) => Value::Array(vec![left.clone(), right.clone()]),
    }
}

fn delete_keys(value: &Value, unwanted: impl Fn(&str) -> bool) -> SqlResult<Value> {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, _)| !unwanted(key));
            Ok(Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect()))
        }
        Value::Array(values) => {
            let kept = values.iter().filter(|value| !value.as_str().is_some_and(&unwanted));
            Ok(Value::Array(kept.cloned().collect()))
        }
        _ => Err(SqlError::new(SqlState::INVALID_PARAMETER, "cannot delete from scalar")),
    }
}

fn delete_index(value: &Value, index: i32) -> SqlResult<Value> {
    match value {
        Value::Array(values) => {
            let mut values = values.clone();
            if let Some(at) = path::position(values.len(), i64::from(index)) {
                values.remove(at);
            }
            Ok(Value::Array(values))
        }
        Value::Object(_) => {
            Err(SqlError::new(SqlState::INVALID_PARAMETER, "cannot delete from object using integer index"))
        }
        _ => Err(SqlError::new(SqlState::INVALID_PARAMETER, "cannot delete from scalar")),
    }
}

fn jsonb(value: Value) -> Datum {
    Datum::Jsonb(Arc::new(value))
}

pub(super) static TABLE: &[Function] = &[
    imm("->", &[T::JSONB, T::TEXT], T::JSONB, |_, a| {
        Ok(path::jsonb_or_null(path::field(args::jsonb(a, 0)?, args::text(a, 1)?)))
    }),
    imm("->", &[T::JSONB, T::INT4], T::JSONB, |_, a| {
        Ok(path::jsonb_or_null(path::element(args::jsonb(a, 0)?, i64::from(args::int4(a, 1)?))))
    }),
    imm("->>", &[T::JSONB, T::TEXT], T::TEXT, |_, a| {
        Ok(path::text_or_null(path::field(args::jsonb(a, 0)?, args::text(a, 1)?)))
    }),
    imm("->>", &[T::JSONB, T::INT4], T::TEXT, |_, a| {
        Ok(path::text_or_null(path::element(args::jsonb(a, 0)?, i64::from(args::int4(a, 1)?))))
    }),
    imm("#>", &[T::JSONB, T::TEXT_ARRAY], T::JSONB, |_, a| {
        Ok(path::jsonb_or_null(path::walk(args::jsonb(a, 0)?, args::array(a, 1)?)))
    }),
    imm("#>>", &[T::JSONB, T::TEXT_ARRAY], T::TEXT, |_, a| {
        Ok(path::text_or_null(path::walk(args::jsonb(a, 0)?, args::array(a, 1)?)))
    }),
    imm("->", &[T::JSON, T::TEXT], T::JSON, |_, a| {
        path::json_field(args::json(a, 0)?, &path::Step::Key(args::text(a, 1)?), false)
    }),
    imm("->", &[T::JSON, T::INT4], T::JSON, |_, a| {
        path::json_field(args::json(a, 0)?, &path::Step::Index(i64::from(args::int4(a, 1)?)), false)
    }),
    imm("->>", &[T::JSON, T::TEXT], T::TEXT, |_, a| {
        path::json_field(args::json(a, 0)?, &path::Step::Key(args::text(a, 1)?), true)
    }),
    imm("->>", &[T::JSON, T::INT4], T::TEXT, |_, a| {
        path::json_field(args::json(a, 0)?, &path::Step::Index(i64::from(args::int4(a, 1)?)), true)
    }),
    imm("#>", &[T::JSON, T::TEXT_ARRAY], T::JSON, |_, a| {
        path::json_walk(args::json(a, 0)?, args::array(a, 1)?, false)
    }),
    imm("#>>", &[T::JSON, T::TEXT_ARRAY], T::TEXT, |_, a| {
        path::json_walk(args::json(a, 0)?, args::array(a, 1)?, true)
    }),
    imm("@>", &[T::JSONB, T::JSONB], T::BOOL, |_, a| {
        Ok(Datum::Bool(json::contains(args::jsonb(a, 0)?, args::jsonb(a, 1)?)))
    }),
    imm("<@", &[T::JSONB, T::JSONB], T::BOOL, |_, a| {
        Ok(Datum::Bool(json::contains(args::jsonb(a, 1)?, args::jsonb(a, 0)?)))
    }),
    imm("?", &[T::JSONB, T::TEXT], T::BOOL, |_, a| {
        Ok(Datum::Bool(has_key(args::jsonb(a, 0)?, args::text(a, 1)?)))
    }),
    imm("?|", &[T::JSONB, T::TEXT_ARRAY], T::BOOL, |_, a| {
        let value = args::jsonb(a, 0)?;
        Ok(Datum::Bool(keys(args::array(a, 1)?).any(|key| has_key(value, key))))
    }),
    imm("?&", &[T::JSONB, T::TEXT_ARRAY], T::BOOL, |_, a| {
        let value = args::jsonb(a, 0)?;
        Ok(Datum::Bool(keys(args::array(a, 1)?).all(|key| has_key(value, key))))
    }),
    imm("||", &[T::JSONB, T::JSONB], T::JSONB, |_, a| {
        Ok(jsonb(concat(args::jsonb(a, 0)?, args::jsonb(a, 1)?)))
    }),
    imm("-", &[T::JSONB, T::TEXT], T::JSONB, |_, a| {
        let key = args::text(a, 1)?;
        Ok(jsonb(delete_keys(args::jsonb(a, 0)?, |candidate| candidate == key)?))
    }),
    imm("-", &[T::JSONB, T::TEXT_ARRAY], T::JSONB, |_, a| {
        let unwanted = args::array(a, 1)?;
        Ok(jsonb(delete_keys(args::jsonb(a, 0)?, |candidate| keys(unwanted).any(|key| key == candidate))?))
    }),
    imm("-", &[T::JSONB, T::INT4], T::JSONB, |_, a| {
        Ok(jsonb(delete_index(args::jsonb(a, 0)?, args::int4(a, 1)?)?))
    }),
    imm("#-", &[T::JSONB, T::TEXT_ARRAY], T::JSONB, |_, a| {
        Ok(jsonb(path::delete(args::jsonb(a, 0)?, args::array(a, 1)?)?))
    }),
];
