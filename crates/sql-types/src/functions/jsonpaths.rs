//! The `jsonb_path_…` functions and the operators `@?` and `@@`.

use super::Function;
use super::args::{self, imm};
use crate::datum::Datum;
use crate::error::SqlResult;
use crate::jsonpath::{self, Call, cached};
use crate::types::Type as T;
use serde_json::Value;
use std::sync::Arc;

/// Runs a function over its arguments: the target, the path, and perhaps variables and `silent`.
pub(super) fn with_call<R>(
    args: &[Datum],
    silent: bool,
    run: impl FnOnce(&Call<'_>) -> SqlResult<R>,
) -> SqlResult<R> {
    let path = cached(args::text(args, 1)?)?;
    let none = Value::Object(serde_json::Map::new());
    let vars = if args.len() > 2 { args::jsonb(args, 2)? } else { &none };
    let silent = if args.len() > 3 { args::bool(args, 3)? } else { silent };
    run(&Call { path: &path, target: args::jsonb(args, 0)?, vars, silent })
}

fn bool_or_null(value: Option<bool>) -> Datum {
    value.map_or(Datum::Null, Datum::Bool)
}

fn exists(args: &[Datum], silent: bool) -> SqlResult<Datum> {
    with_call(args, silent, jsonpath::exists).map(bool_or_null)
}

fn matches(args: &[Datum], silent: bool) -> SqlResult<Datum> {
    with_call(args, silent, jsonpath::matches).map(bool_or_null)
}

fn array(args: &[Datum]) -> SqlResult<Datum> {
    with_call(args, false, |call| Ok(Datum::Jsonb(Arc::new(Value::Array(jsonpath::query(call)?)))))
}

fn first(args: &[Datum]) -> SqlResult<Datum> {
    with_call(args, false, |call| {
        Ok(jsonpath::first(call)?.map_or(Datum::Null, |value| Datum::Jsonb(Arc::new(value))))
    })
}

/// A function with and without variables and `silent`.
macro_rules! overloads {
    ($($name:literal $returns:ident $eval:expr, $stability:ident;)*) => {
        &[$(
            imm($name, &[T::JSONB, T::JSONPATH], T::$returns, |_, a| ($eval)(a)).$stability(),
            imm($name, &[T::JSONB, T::JSONPATH, T::JSONB], T::$returns, |_, a| ($eval)(a)).$stability(),
            imm($name, &[T::JSONB, T::JSONPATH, T::JSONB, T::BOOL], T::$returns, |_, a| ($eval)(a)).$stability(),
        )*]
    };
}

pub(super) static TABLE: &[Function] = overloads! {
    "jsonb_path_exists" BOOL |a: &[Datum]| exists(a, false), immutable;
    "jsonb_path_match" BOOL |a: &[Datum]| matches(a, false), immutable;
    "jsonb_path_query_array" JSONB array, immutable;
    "jsonb_path_query_first" JSONB first, immutable;
    "jsonb_path_exists_tz" BOOL |a: &[Datum]| exists(a, false), stable;
    "jsonb_path_match_tz" BOOL |a: &[Datum]| matches(a, false), stable;
    "jsonb_path_query_array_tz" JSONB array, stable;
    "jsonb_path_query_first_tz" JSONB first, stable;
};

pub(super) static OPERATORS: &[Function] = &[
    imm("@?", &[T::JSONB, T::JSONPATH], T::BOOL, |_, a| exists(a, true)),
    imm("@@", &[T::JSONB, T::JSONPATH], T::BOOL, |_, a| matches(a, true)),
];
