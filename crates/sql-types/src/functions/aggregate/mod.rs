//! Aggregate functions.
//!
//! * this file: counting, extremes, booleans, bits, collections;
//! * `numbers`: sums, averages, variances, regression;
//! * `ordered`: the ordered-set aggregates.

mod collect;
mod numbers;
mod ordered;

use super::{Accumulator, AggregateFunction, EvalContext};
use crate::compare;
use crate::datum::Datum;
use crate::error::SqlResult;
use crate::types::Type as T;

pub(super) static TABLES: &[&[AggregateFunction]] =
    &[TABLE, numbers::TABLE, numbers::REGRESSION, ordered::TABLE, collect::TABLE];

/// An aggregate that skips rows with a NULL argument.
const fn strict(
    name: &'static str,
    args: &'static [T],
    returns: T,
    accumulator: fn(&[T]) -> Box<dyn Accumulator>,
) -> AggregateFunction {
    AggregateFunction { name, args, returns, strict: true, ordered_set: false, direct_args: 0, accumulator }
}

/// An aggregate that sees NULLs.
const fn lenient(
    name: &'static str,
    args: &'static [T],
    returns: T,
    accumulator: fn(&[T]) -> Box<dyn Accumulator>,
) -> AggregateFunction {
    AggregateFunction { name, args, returns, strict: false, ordered_set: false, direct_args: 0, accumulator }
}

/// Bytes a value holds, roughly.
fn size_of(value: &Datum) -> usize {
    std::mem::size_of::<Datum>()
        + match value {
            Datum::Text(text) | Datum::Json(text) => text.len(),
            Datum::Bytea(bytes) => bytes.len(),
            Datum::Numeric(number) => number.heap_size(),
            Datum::Array(array) => array.values.iter().map(size_of).sum(),
            Datum::Record(record) => record.values.iter().map(size_of).sum(),
            Datum::Jsonb(_) => 64,
            _ => 0,
        }
}

#[derive(Default)]
struct Count(i64);

impl Accumulator for Count {
    fn add(&mut self, _: &EvalContext<'_>, _: &[Datum]) -> SqlResult<()> {
        self.0 += 1;
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        Ok(Datum::Int8(self.0))
    }
}

/// `min` and `max`. Of values that are equal but look different, as 1.0 and 1.00, the last one counts.
struct Extreme {
    best: Datum,
    greatest: bool,
}

impl Accumulator for Extreme {
    fn add(&mut self, _: &EvalContext<'_>, args: &[Datum]) -> SqlResult<()> {
        let Some(value) = args.first() else { return Ok(()) };
        let order = compare::compare(value, &self.best);
        if self.best.is_null() || (self.greatest && order.is_ge()) || (!self.greatest && order.is_le()) {
            self.best = value.clone();
        }
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        Ok(self.best.clone())
    }
    fn size(&self) -> usize {
        size_of(&self.best)
    }
}

struct Booleans {
    state: Option<bool>,
    and: bool,
}

impl Accumulator for Booleans {
    fn add(&mut self, _: &EvalContext<'_>, args: &[Datum]) -> SqlResult<()> {
        let value = super::args::bool(args, 0)?;
        self.state = Some(match self.state {
            None => value,
            Some(before) if self.and => before && value,
            Some(before) => before || value,
        });
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        Ok(self.state.map_or(Datum::Null, Datum::Bool))
    }
}

/// `bit_and`, `bit_or`, `bit_xor`.
struct Bits {
    state: Datum,
    combine: fn(i64, i64) -> i64,
}

impl Accumulator for Bits {
    fn add(&mut self, _: &EvalContext<'_>, args: &[Datum]) -> SqlResult<()> {
        let combine = self.combine;
        self.state = match (&self.state, args.first()) {
            (Datum::Int2(a), Some(Datum::Int2(b))) => {
                Datum::Int2(combine(i64::from(*a), i64::from(*b)) as i16)
            }
            (Datum::Int4(a), Some(Datum::Int4(b))) => {
                Datum::Int4(combine(i64::from(*a), i64::from(*b)) as i32)
            }
            (Datum::Int8(a), Some(Datum::Int8(b))) => Datum::Int8(combine(*a, *b)),
            (_, Some(value)) => value.clone(),
            (_, None) => Datum::Null,
        };
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        Ok(self.state.clone())
    }
}

fn count(_: &[T]) -> Box<dyn Accumulator> {
    Box::new(Count::default())
}
fn max(_: &[T]) -> Box<dyn Accumulator> {
    Box::new(Extreme { best: Datum::Null, greatest: true })
}
fn min(_: &[T]) -> Box<dyn Accumulator> {
    Box::new(Extreme { best: Datum::Null, greatest: false })
}
fn and(_: &[T]) -> Box<dyn Accumulator> {
    Box::new(Booleans { state: None, and: true })
}
fn or(_: &[T]) -> Box<dyn Accumulator> {
    Box::new(Booleans { state: None, and: false })
}
fn bit_and(_: &[T]) -> Box<dyn Accumulator> {
    Box::new(Bits { state: Datum::Null, combine: |a, b| a & b })
}
fn bit_or(_: &[T]) -> Box<dyn Accumulator> {
    Box::new(Bits { state: Datum::Null, combine: |a, b| a | b })
}
fn bit_xor(_: &[T]) -> Box<dyn Accumulator> {
    Box::new(Bits { state: Datum::Null, combine: |a, b| a ^ b })
}

macro_rules! table {
    (extremes { $($e:ident)* } bits { $($b:ident)* } $($rest:expr,)*) => {
        &[
            $(strict("min", &[T::$e], T::$e, min), strict("max", &[T::$e], T::$e, max),)*
            $(
                strict("bit_and", &[T::$b], T::$b, bit_and),
                strict("bit_or", &[T::$b], T::$b, bit_or),
                strict("bit_xor", &[T::$b], T::$b, bit_xor),
            )*
            $($rest,)*
        ]
    };
}

static TABLE: &[AggregateFunction] = table! {
    extremes {
        INT2 INT4 INT8 FLOAT4 FLOAT8 NUMERIC TEXT BPCHAR DATE TIME TIMESTAMP TIMESTAMPTZ INTERVAL OID INET
        ANYARRAY ANYENUM PG_LSN XID8
    }
    bits { INT2 INT4 INT8 }
    lenient("count", &[], T::INT8, count),
    strict("count", &[T::ANY], T::INT8, count),
    strict("bool_and", &[T::BOOL], T::BOOL, and),
    strict("every", &[T::BOOL], T::BOOL, and),
    strict("bool_or", &[T::BOOL], T::BOOL, or),
};
