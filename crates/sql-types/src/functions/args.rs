//! Builders of registry entries, and typed access to arguments. An argument of another type than the
//! signature says is a defect of the caller: it is reported as `XX000`, never a panic.

use super::{Eval, Function, TypedEval, Volatility};
use crate::datum::{ArrayValue, Datum, Interval};
use crate::error::{SqlError, SqlResult};
use crate::numeric::Numeric;
use crate::types::Type;

/// A strict, immutable function.
pub(super) const fn imm(name: &'static str, args: &'static [Type], returns: Type, eval: Eval) -> Function {
    Function {
        name,
        args,
        variadic: false,
        spreads: false,
        returns,
        strict: true,
        volatility: Volatility::Immutable,
        external: false,
        eval,
        eval_typed: None,
    }
}

/// A strict, immutable function that looks at the types of its arguments.
pub(super) const fn typed(
    name: &'static str,
    args: &'static [Type],
    returns: Type,
    eval: TypedEval,
) -> Function {
    let mut function = imm(name, args, returns, untyped);
    function.eval_typed = Some(eval);
    function
}

fn untyped(_: &super::EvalContext<'_>, _: &[Datum]) -> SqlResult<Datum> {
    Err(SqlError::internal("this function must be called with the types of its arguments"))
}

impl Function {
    pub(super) const fn nonstrict(mut self) -> Self {
        self.strict = false;
        self
    }
    pub(super) const fn immutable(self) -> Self {
        self
    }
    pub(super) const fn stable(mut self) -> Self {
        self.volatility = Volatility::Stable;
        self
    }
    pub(super) const fn volatile(mut self) -> Self {
        self.volatility = Volatility::Volatile;
        self
    }
    pub(super) const fn variadic(mut self) -> Self {
        self.variadic = true;
        self
    }
    pub(super) const fn spreading(mut self) -> Self {
        self.spreads = true;
        self
    }
    pub(super) const fn external(mut self) -> Self {
        self.external = true;
        self.volatility = Volatility::Volatile;
        self
    }
}

#[cold]
fn mismatch(args: &[Datum], index: usize, wanted: &str) -> SqlError {
    SqlError::internal(format!("argument {} is {:?}, not {wanted}", index + 1, args.get(index)))
}

macro_rules! accessors {
    ($($name:ident $variant:ident $ty:ty;)*) => {
        $(pub(super) fn $name(args: &[Datum], index: usize) -> SqlResult<$ty> {
            match args.get(index) {
                Some(Datum::$variant(value)) => Ok(*value),
                _ => Err(mismatch(args, index, stringify!($variant))),
            }
        })*
    };
}

accessors! {
    bool Bool bool;
    int2 Int2 i16;
    int4 Int4 i32;
    int8 Int8 i64;
    float4 Float4 f32;
    float8 Float8 f64;
    date Date i32;
    time Time i64;
    timestamp Timestamp i64;
    timestamptz Timestamptz i64;
    interval Interval Interval;
    oid Oid u32;
}

macro_rules! reference_accessors {
    ($($name:ident $variant:ident $ty:ty;)*) => {
        $(pub(super) fn $name(args: &[Datum], index: usize) -> SqlResult<&$ty> {
            match args.get(index) {
                Some(Datum::$variant(value)) => Ok(value),
                _ => Err(mismatch(args, index, stringify!($variant))),
            }
        })*
    };
}

reference_accessors! {
    numeric Numeric Numeric;
    text Text str;
    bytea Bytea bytes::Bytes;
    json Json str;
    jsonb Jsonb serde_json::Value;
    array Array ArrayValue;
}

/// An argument that may be left out or NULL.
pub(super) fn optional<'a, T>(
    args: &'a [Datum],
    index: usize,
    get: impl FnOnce(&'a [Datum], usize) -> SqlResult<T>,
) -> SqlResult<Option<T>> {
    match args.get(index) {
        None | Some(Datum::Null) => Ok(None),
        Some(_) => get(args, index).map(Some),
    }
}
