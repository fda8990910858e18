//! Aggregates that collect their values: arrays, strings, JSON.

use super::{lenient, size_of};
use crate::array;
use crate::datum::{ArrayValue, Datum};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::args;
use crate::functions::jsons::{key_text, to_jsonb, write_json};
use crate::functions::{Accumulator, AggregateFunction, EvalContext};
use crate::json;
use crate::types::Type as T;
use serde_json::Value;
use std::sync::Arc;

/// Longest text collected, in bytes.
const MAX_LENGTH: usize = 1 << 29;

fn too_long() -> SqlError {
    SqlError::new(SqlState::PROGRAM_LIMIT, "result of aggregation is too long")
}

struct Collect {
    values: Vec<Datum>,
    any: bool,
    element: T,
    size: usize,
}

impl Accumulator for Collect {
    fn add(&mut self, _: &EvalContext<'_>, args: &[Datum]) -> SqlResult<()> {
        let value = args.first().cloned().unwrap_or_default();
        if self.values.len() >= array::MAX_ELEMENTS {
            return Err(array::too_large());
        }
        self.any = true;
        self.size += size_of(&value);
        self.values.push(value);
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        if !self.any {
            return Ok(Datum::Null);
        }
        if let Some(inner) = self.element.element() {
            if self.values.iter().any(Datum::is_null) {
                return Err(SqlError::new(SqlState::NULL_NOT_ALLOWED, "cannot accumulate null arrays"));
            }
            let nested = ArrayValue::nest(inner, &self.values).map_err(|_| {
                SqlError::new(
                    SqlState::ARRAY_SUBSCRIPT,
                    "cannot accumulate arrays of different dimensionality",
                )
            })?;
            if nested.values.is_empty() {
                return Err(SqlError::new(SqlState::ARRAY_SUBSCRIPT, "cannot accumulate empty arrays"));
            }
            return Ok(Datum::Array(Arc::new(nested)));
        }
        Ok(Datum::array(self.element, self.values.clone()))
    }
    fn size(&self) -> usize {
        self.size
    }
}

fn collect(types: &[T]) -> Box<dyn Accumulator> {
    let element = types.first().copied().unwrap_or(T::TEXT);
    Box::new(Collect { values: Vec::new(), any: false, element, size: 0 })
}

#[derive(Default)]
struct JoinText(Option<String>);

impl Accumulator for JoinText {
    fn add(&mut self, _: &EvalContext<'_>, args: &[Datum]) -> SqlResult<()> {
        let Some(value) = args::optional(args, 0, args::text)? else { return Ok(()) };
        match &mut self.0 {
            None => self.0 = Some(value.to_string()),
            Some(joined) => {
                joined.push_str(args::optional(args, 1, args::text)?.unwrap_or(""));
                joined.push_str(value);
                if joined.len() > MAX_LENGTH {
                    return Err(too_long());
                }
            }
        }
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        Ok(self.0.as_deref().map_or(Datum::Null, Datum::text))
    }
    fn size(&self) -> usize {
        self.0.as_ref().map_or(0, String::len)
    }
}

#[derive(Default)]
struct JoinBytes(Option<Vec<u8>>);

impl Accumulator for JoinBytes {
    fn add(&mut self, _: &EvalContext<'_>, args: &[Datum]) -> SqlResult<()> {
        let Some(value) = args::optional(args, 0, args::bytea)? else { return Ok(()) };
        match &mut self.0 {
            None => self.0 = Some(value.to_vec()),
            Some(joined) => {
                joined
                    .extend_from_slice(args::optional(args, 1, args::bytea)?.map_or(&[][..], |bytes| bytes));
                joined.extend_from_slice(value);
                if joined.len() > MAX_LENGTH {
                    return Err(too_long());
                }
            }
        }
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        Ok(self.0.clone().map_or(Datum::Null, |bytes| Datum::Bytea(bytes.into())))
    }
    fn size(&self) -> usize {
        self.0.as_ref().map_or(0, Vec::len)
    }
}

/// `json_agg` and `json_object_agg`: text, as it grows.
struct JsonText {
    types: Vec<T>,
    text: String,
    object: bool,
}

impl Accumulator for JsonText {
    fn add(&mut self, context: &EvalContext<'_>, args: &[Datum]) -> SqlResult<()> {
        let ty = |index: usize| self.types.get(index).copied().unwrap_or(T::TEXT);
        if self.object {
            let [key, value] = args else { return Ok(()) };
            if key.is_null() {
                return Err(SqlError::new(SqlState::INVALID_PARAMETER, "field name must not be null"));
            }
            self.text.push_str(if self.text.is_empty() { "{ " } else { ", " });
            json::escape(&key_text(context, ty(0), key, 1)?, &mut self.text);
            self.text.push_str(" : ");
            write_json(context, ty(1), value, 0, &mut self.text)?;
        } else {
            let Some(value) = args.first() else { return Ok(()) };
            // Rows and arrays stand on lines of their own.
            let lines = matches!(value, Datum::Record(_) | Datum::Array(_));
            self.text.push_str(match (self.text.is_empty(), lines) {
                (true, _) => "[",
                (false, true) => ", \n ",
                (false, false) => ", ",
            });
            write_json(context, self.types.first().copied().unwrap_or(T::TEXT), value, 0, &mut self.text)?;
        }
        if self.text.len() > MAX_LENGTH { Err(too_long()) } else { Ok(()) }
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        if self.text.is_empty() {
            return Ok(Datum::Null);
        }
        Ok(Datum::Json([self.text.as_str(), if self.object { " }" } else { "]" }].concat().into()))
    }
    fn size(&self) -> usize {
        self.text.len()
    }
}

/// `jsonb_agg` and `jsonb_object_agg`.
struct JsonbValues {
    types: Vec<T>,
    keys: Vec<String>,
    values: Vec<Value>,
    size: usize,
    object: bool,
}

impl Accumulator for JsonbValues {
    fn add(&mut self, context: &EvalContext<'_>, args: &[Datum]) -> SqlResult<()> {
        let index = usize::from(self.object);
        let Some(value) = args.get(index) else { return Ok(()) };
        if self.object {
            if args[0].is_null() {
                return Err(SqlError::new(SqlState::INVALID_PARAMETER, "field name must not be null"));
            }
            let ty = self.types.first().copied().unwrap_or(T::TEXT);
            let key = key_text(context, ty, &args[0], 1)?;
            self.size += key.len();
            self.keys.push(key);
        }
        self.size += size_of(value) + 32;
        let ty = self.types.get(index).copied().unwrap_or(T::TEXT);
        self.values.push(to_jsonb(context, ty, value, 0)?);
        if self.size > MAX_LENGTH { Err(too_long()) } else { Ok(()) }
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        if self.values.is_empty() {
            return Ok(Datum::Null);
        }
        Ok(Datum::Jsonb(Arc::new(if self.object {
            json::object(self.keys.iter().cloned().zip(self.values.iter().cloned()).collect())
        } else {
            Value::Array(self.values.clone())
        })))
    }
    fn size(&self) -> usize {
        self.size
    }
}

fn json_text(types: &[T], object: bool) -> Box<dyn Accumulator> {
    Box::new(JsonText { types: types.to_vec(), text: String::new(), object })
}

fn jsonb_values(types: &[T], object: bool) -> Box<dyn Accumulator> {
    Box::new(JsonbValues { types: types.to_vec(), keys: Vec::new(), values: Vec::new(), size: 0, object })
}

pub(super) static TABLE: &[AggregateFunction] = &[
    lenient("array_agg", &[T::ANYNONARRAY], T::ANYARRAY, collect),
    lenient("array_agg", &[T::ANYARRAY], T::ANYARRAY, collect),
    lenient("string_agg", &[T::TEXT, T::TEXT], T::TEXT, |_| Box::new(JoinText::default())),
    lenient("string_agg", &[T::BYTEA, T::BYTEA], T::BYTEA, |_| Box::new(JoinBytes::default())),
    lenient("json_agg", &[T::ANYELEMENT], T::JSON, |types| json_text(types, false)),
    lenient("jsonb_agg", &[T::ANYELEMENT], T::JSONB, |types| jsonb_values(types, false)),
    lenient("json_object_agg", &[T::ANY, T::ANY], T::JSON, |types| json_text(types, true)),
    lenient("jsonb_object_agg", &[T::ANY, T::ANY], T::JSONB, |types| jsonb_values(types, true)),
];
