//! Sums, averages, variances, regression.

use super::strict;
use crate::datetime;
use crate::datum::{Datum, Interval};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::args;
use crate::functions::{Accumulator, AggregateFunction, EvalContext};
use crate::numeric::Numeric;
use crate::types::Type as T;

/// A sum of integers, exact in 128 bits: 2^63 rows of `bigint` do not overflow it.
#[derive(Default)]
struct IntegerSum {
    count: i64,
    sum: i128,
    squares: Numeric,
}

fn integer(args: &[Datum]) -> SqlResult<i64> {
    match args.first() {
        Some(Datum::Int2(value)) => Ok(i64::from(*value)),
        Some(Datum::Int4(value)) => Ok(i64::from(*value)),
        _ => args::int8(args, 0),
    }
}

/// What an integer sum ends as.
struct Integers {
    state: IntegerSum,
    result: fn(&IntegerSum) -> SqlResult<Datum>,
    squares: bool,
}

impl Accumulator for Integers {
    fn add(&mut self, _: &EvalContext<'_>, args: &[Datum]) -> SqlResult<()> {
        let value = i128::from(integer(args)?);
        self.state.count += 1;
        self.state.sum += value;
        if self.squares {
            // A square fits 126 bits.
            self.state.squares = self.state.squares.add(&Numeric::new(value * value, 0))?;
        }
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        if self.state.count == 0 { Ok(Datum::Null) } else { (self.result)(&self.state) }
    }
}

fn sum_as_int8(state: &IntegerSum) -> SqlResult<Datum> {
    let sum =
        i64::try_from(state.sum).map_err(|_| SqlError::new(SqlState::OUT_OF_RANGE, "bigint out of range"))?;
    Ok(Datum::Int8(sum))
}

fn sum_as_numeric(state: &IntegerSum) -> SqlResult<Datum> {
    Ok(Datum::Numeric(Numeric::new(state.sum, 0)))
}

fn average_of_integers(state: &IntegerSum) -> SqlResult<Datum> {
    Ok(Datum::Numeric(Numeric::new(state.sum, 0).div(&Numeric::from(state.count))?))
}

/// A sum of numerics.
struct Decimals {
    count: i64,
    sum: Numeric,
    squares: Numeric,
    result: fn(&Decimals) -> SqlResult<Datum>,
    wants_squares: bool,
}

impl Accumulator for Decimals {
    fn add(&mut self, _: &EvalContext<'_>, args: &[Datum]) -> SqlResult<()> {
        let value = args::numeric(args, 0)?;
        self.count += 1;
        self.sum = self.sum.add(value)?;
        if self.wants_squares {
            self.squares = self.squares.add(&value.mul(value)?)?;
        }
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        if self.count == 0 { Ok(Datum::Null) } else { (self.result)(self) }
    }
    fn size(&self) -> usize {
        self.sum.heap_size() + self.squares.heap_size()
    }
}

fn decimals(result: fn(&Decimals) -> SqlResult<Datum>, wants_squares: bool) -> Box<dyn Accumulator> {
    Box::new(Decimals { count: 0, sum: Numeric::ZERO, squares: Numeric::ZERO, result, wants_squares })
}

fn integers(result: fn(&IntegerSum) -> SqlResult<Datum>, squares: bool) -> Box<dyn Accumulator> {
    Box::new(Integers { state: IntegerSum::default(), result, squares })
}

/// Variance or deviation of a population or sample, as PostgreSQL computes and scales it.
fn spread(count: i64, sum: &Numeric, squares: &Numeric, sample: bool, root: bool) -> SqlResult<Datum> {
    if sample && count <= 1 {
        return Ok(Datum::Null);
    }
    if !sum.is_finite() || !squares.is_finite() {
        return Ok(Datum::Numeric(Numeric::NAN));
    }
    let n = Numeric::from(count);
    let numerator = n.mul(squares)?.sub(&sum.mul(sum)?)?;
    if numerator.signum() <= 0 {
        return Ok(Datum::Numeric(Numeric::ZERO));
    }
    let denominator = if sample { n.mul(&Numeric::from(count - 1))? } else { n.mul(&n)? };
    let variance = numerator.div(&denominator)?;
    // A deviation has the scale of the variance, however large it is.
    Ok(Datum::Numeric(if root { variance.sqrt_with_scale(variance.scale())? } else { variance }))
}

macro_rules! spreads {
    ($($name:ident $sample:literal $root:literal;)*) => {
        $(mod $name {
            use super::*;
            pub fn of_integers(_: &[T]) -> Box<dyn Accumulator> {
                integers(|state| spread(state.count, &Numeric::new(state.sum, 0), &state.squares, $sample, $root), true)
            }
            pub fn of_numerics(_: &[T]) -> Box<dyn Accumulator> {
                decimals(|state| spread(state.count, &state.sum, &state.squares, $sample, $root), true)
            }
            pub fn of_floats(_: &[T]) -> Box<dyn Accumulator> {
                floats(|state| {
                    if $sample && state.count < 2.0 {
                        return Datum::Null;
                    }
                    let variance = state.sxx / (state.count - if $sample { 1.0 } else { 0.0 });
                    Datum::Float8(if $root { variance.sqrt() } else { variance })
                })
            }
        })*
    };
}

spreads! {
    var_samp true false;
    var_pop false false;
    stddev_samp true true;
    stddev_pop false true;
}

/// Sums of floats; the deviations are kept by Youngs and Cramer's method.
struct Floats {
    count: f64,
    sum: f64,
    sxx: f64,
    result: fn(&Floats) -> Datum,
}

fn float(args: &[Datum], index: usize) -> SqlResult<f64> {
    match args.get(index) {
        Some(Datum::Float4(value)) => Ok(f64::from(*value)),
        _ => args::float8(args, index),
    }
}

impl Accumulator for Floats {
    fn add(&mut self, _: &EvalContext<'_>, args: &[Datum]) -> SqlResult<()> {
        let value = float(args, 0)?;
        let finite = self.sum.is_finite() && value.is_finite();
        self.count += 1.0;
        self.sum += value;
        if self.sum.is_infinite() && finite {
            return Err(SqlError::new(SqlState::OUT_OF_RANGE, "value out of range: overflow"));
        }
        if self.count > 1.0 {
            let deviation = value * self.count - self.sum;
            self.sxx += deviation * deviation / (self.count * (self.count - 1.0));
        } else if !value.is_finite() {
            self.sxx = f64::NAN;
        }
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        Ok(if self.count == 0.0 { Datum::Null } else { (self.result)(self) })
    }
}

fn floats(result: fn(&Floats) -> Datum) -> Box<dyn Accumulator> {
    Box::new(Floats { count: 0.0, sum: 0.0, sxx: 0.0, result })
}

/// A sum of floats in single precision, as PostgreSQL sums `real`.
struct Float4Sum(Option<f32>);

impl Accumulator for Float4Sum {
    fn add(&mut self, _: &EvalContext<'_>, args: &[Datum]) -> SqlResult<()> {
        let value = args::float4(args, 0)?;
        let sum = self.0.map_or(value, |sum| sum + value);
        if sum.is_infinite() && value.is_finite() && self.0.is_none_or(f32::is_finite) {
            return Err(SqlError::new(SqlState::OUT_OF_RANGE, "value out of range: overflow"));
        }
        self.0 = Some(sum);
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        Ok(self.0.map_or(Datum::Null, Datum::Float4))
    }
}

/// A sum or average of intervals.
struct Intervals {
    count: i64,
    sum: Interval,
    average: bool,
}

impl Accumulator for Intervals {
    fn add(&mut self, _: &EvalContext<'_>, args: &[Datum]) -> SqlResult<()> {
        let value = match args.first() {
            Some(Datum::Time(micros)) => Interval { months: 0, days: 0, micros: *micros },
            _ => args::interval(args, 0)?,
        };
        self.count += 1;
        self.sum = datetime::interval_sum(self.sum, value)?;
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        if self.count == 0 {
            return Ok(Datum::Null);
        }
        Ok(Datum::Interval(if self.average {
            datetime::interval_div(self.sum, self.count as f64)?
        } else {
            self.sum
        }))
    }
}

fn sum_integers(_: &[T]) -> Box<dyn Accumulator> {
    integers(sum_as_int8, false)
}
fn sum_bigints(_: &[T]) -> Box<dyn Accumulator> {
    integers(sum_as_numeric, false)
}
fn avg_integers(_: &[T]) -> Box<dyn Accumulator> {
    integers(average_of_integers, false)
}
fn sum_numerics(_: &[T]) -> Box<dyn Accumulator> {
    decimals(|state| Ok(Datum::Numeric(state.sum.clone())), false)
}
fn avg_numerics(_: &[T]) -> Box<dyn Accumulator> {
    decimals(|state| Ok(Datum::Numeric(state.sum.div(&Numeric::from(state.count))?)), false)
}
fn sum_doubles(_: &[T]) -> Box<dyn Accumulator> {
    floats(|state| Datum::Float8(state.sum))
}
fn avg_doubles(_: &[T]) -> Box<dyn Accumulator> {
    floats(|state| Datum::Float8(state.sum / state.count))
}
fn sum_reals(_: &[T]) -> Box<dyn Accumulator> {
    Box::new(Float4Sum(None))
}
fn sum_intervals(_: &[T]) -> Box<dyn Accumulator> {
    Box::new(Intervals { count: 0, sum: Interval::default(), average: false })
}
fn avg_intervals(_: &[T]) -> Box<dyn Accumulator> {
    Box::new(Intervals { count: 0, sum: Interval::default(), average: true })
}

macro_rules! table {
    (spreads { $($name:literal $module:ident;)* } $($rest:expr,)*) => {
        &[
            $(
                strict($name, &[T::INT2], T::NUMERIC, $module::of_integers),
                strict($name, &[T::INT4], T::NUMERIC, $module::of_integers),
                strict($name, &[T::INT8], T::NUMERIC, $module::of_integers),
                strict($name, &[T::NUMERIC], T::NUMERIC, $module::of_numerics),
                strict($name, &[T::FLOAT4], T::FLOAT8, $module::of_floats),
                strict($name, &[T::FLOAT8], T::FLOAT8, $module::of_floats),
            )*
            $($rest,)*
        ]
    };
}

pub(super) static TABLE: &[AggregateFunction] = table! {
    spreads {
        "variance" var_samp;
        "var_samp" var_samp;
        "var_pop" var_pop;
        "stddev" stddev_samp;
        "stddev_samp" stddev_samp;
        "stddev_pop" stddev_pop;
    }
    strict("sum", &[T::INT2], T::INT8, sum_integers),
    strict("sum", &[T::INT4], T::INT8, sum_integers),
    strict("sum", &[T::INT8], T::NUMERIC, sum_bigints),
    strict("sum", &[T::NUMERIC], T::NUMERIC, sum_numerics),
    strict("sum", &[T::FLOAT4], T::FLOAT4, sum_reals),
    strict("sum", &[T::FLOAT8], T::FLOAT8, sum_doubles),
    strict("sum", &[T::INTERVAL], T::INTERVAL, sum_intervals),
    strict("avg", &[T::INT2], T::NUMERIC, avg_integers),
    strict("avg", &[T::INT4], T::NUMERIC, avg_integers),
    strict("avg", &[T::INT8], T::NUMERIC, avg_integers),
    strict("avg", &[T::NUMERIC], T::NUMERIC, avg_numerics),
    strict("avg", &[T::FLOAT4], T::FLOAT8, avg_doubles),
    strict("avg", &[T::FLOAT8], T::FLOAT8, avg_doubles),
    strict("avg", &[T::INTERVAL], T::INTERVAL, avg_intervals),
};

/// Sums over pairs `(y, x)`.
struct Regression {
    n: f64,
    sx: f64,
    sxx: f64,
    sy: f64,
    syy: f64,
    sxy: f64,
    result: fn(&Regression) -> Option<f64>,
}

impl Accumulator for Regression {
    fn add(&mut self, _: &EvalContext<'_>, args: &[Datum]) -> SqlResult<()> {
        let (y, x) = (float(args, 0)?, float(args, 1)?);
        self.n += 1.0;
        self.sx += x;
        self.sy += y;
        if self.n > 1.0 {
            let scale = 1.0 / (self.n * (self.n - 1.0));
            let (dx, dy) = (x * self.n - self.sx, y * self.n - self.sy);
            self.sxx += dx * dx * scale;
            self.syy += dy * dy * scale;
            self.sxy += dx * dy * scale;
        } else if !x.is_finite() || !y.is_finite() {
            (self.sxx, self.syy, self.sxy) = (f64::NAN, f64::NAN, f64::NAN);
        }
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        Ok((self.result)(self).map_or(Datum::Null, Datum::Float8))
    }
}

/// `regr_count` counts in integers.
struct PairCount(i64);

impl Accumulator for PairCount {
    fn add(&mut self, _: &EvalContext<'_>, _: &[Datum]) -> SqlResult<()> {
        self.0 += 1;
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> SqlResult<Datum> {
        Ok(Datum::Int8(self.0))
    }
}

fn regression(result: fn(&Regression) -> Option<f64>) -> Box<dyn Accumulator> {
    Box::new(Regression { n: 0.0, sx: 0.0, sxx: 0.0, sy: 0.0, syy: 0.0, sxy: 0.0, result })
}

macro_rules! regressions {
    ($($name:literal $result:expr;)*) => {
        &[
            strict("regr_count", &[T::FLOAT8, T::FLOAT8], T::INT8, |_| Box::new(PairCount(0))),
            $(strict($name, &[T::FLOAT8, T::FLOAT8], T::FLOAT8, |_| regression($result)),)*
        ]
    };
}

pub(super) static REGRESSION: &[AggregateFunction] = regressions! {
    "corr" |s| (s.n >= 1.0 && s.sxx != 0.0 && s.syy != 0.0).then(|| s.sxy / (s.sxx * s.syy).sqrt());
    "covar_pop" |s| (s.n >= 1.0).then(|| s.sxy / s.n);
    "covar_samp" |s| (s.n >= 2.0).then(|| s.sxy / (s.n - 1.0));
    "regr_avgx" |s| (s.n >= 1.0).then(|| s.sx / s.n);
    "regr_avgy" |s| (s.n >= 1.0).then(|| s.sy / s.n);
    "regr_sxx" |s| (s.n >= 1.0).then_some(s.sxx);
    "regr_syy" |s| (s.n >= 1.0).then_some(s.syy);
    "regr_sxy" |s| (s.n >= 1.0).then_some(s.sxy);
    "regr_slope" |s| (s.n >= 1.0 && s.sxx != 0.0).then(|| s.sxy / s.sxx);
    "regr_intercept" |s| (s.n >= 1.0 && s.sxx != 0.0).then(|| (s.sy - s.sx * s.sxy / s.sxx) / s.n);
    "regr_r2" |s| (s.n >= 1.0 && s.sxx != 0.0).then(|| if s.syy == 0.0 { 1.0 } else { s.sxy * s.sxy / (s.sxx * s.syy) });
};
