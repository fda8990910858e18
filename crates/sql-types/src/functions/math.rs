//! Mathematical functions.

use super::Function;
use super::args::{self, imm};
use super::operators::{integer_out_of_range, power_float8};
use crate::compare::compare;
use crate::datum::Datum;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::numeric::Numeric;
use crate::types::Type as T;

fn float8(value: f64) -> SqlResult<Datum> {
    Ok(Datum::Float8(value))
}

fn input_out_of_range() -> SqlError {
    SqlError::new(SqlState::OUT_OF_RANGE, "input is out of range")
}

/// A function of doubles whose result is finite where its argument is.
fn finite(args: &[Datum], function: fn(f64) -> f64) -> SqlResult<Datum> {
    let value = args::float8(args, 0)?;
    let result = function(value);
    if result.is_infinite() && value.is_finite() {
        return Err(SqlError::new(SqlState::OUT_OF_RANGE, "value out of range: overflow"));
    }
    if result == 0.0 && function(1.0) != 0.0 && value != 0.0 && value.is_finite() {
        return Err(SqlError::new(SqlState::OUT_OF_RANGE, "value out of range: underflow"));
    }
    float8(result)
}

/// A function of doubles that is defined on part of them.
fn within(args: &[Datum], valid: fn(f64) -> bool, function: fn(f64) -> f64) -> SqlResult<Datum> {
    let value = args::float8(args, 0)?;
    if !value.is_nan() && !valid(value) {
        return Err(input_out_of_range());
    }
    float8(function(value))
}

fn logarithm(args: &[Datum], function: fn(f64) -> f64) -> SqlResult<Datum> {
    let value = args::float8(args, 0)?;
    if value == 0.0 {
        return Err(SqlError::new(SqlState::INVALID_LOGARITHM, "cannot take logarithm of zero"));
    }
    if value < 0.0 {
        return Err(SqlError::new(SqlState::INVALID_LOGARITHM, "cannot take logarithm of a negative number"));
    }
    float8(function(value))
}

fn round_even(value: f64) -> f64 {
    value.round_ties_even()
}

/// Sine of at most 30 degrees, scaled so that 30 degrees give exactly a half.
fn small_sine(degrees: f64) -> f64 {
    degrees.to_radians_exact().sin() / 30f64.to_radians_exact().sin() / 2.0
}

/// Cosine of at most 60 degrees, scaled so that 60 degrees give exactly a half.
fn small_cosine(degrees: f64) -> f64 {
    let part = (1.0 - degrees.to_radians_exact().cos()) / (1.0 - 60f64.to_radians_exact().cos());
    1.0 - part / 2.0
}

trait Degrees {
    fn to_radians_exact(self) -> f64;
}

impl Degrees for f64 {
    fn to_radians_exact(self) -> f64 {
        self * (std::f64::consts::PI / 180.0)
    }
}

/// An angle from 0 to 180 degrees, and the sign by which its sine and tangent are those of the angle given.
fn half_turn(degrees: f64) -> (f64, f64) {
    let mut degrees = degrees % 360.0;
    let mut sign = 1.0;
    if degrees < 0.0 {
        (degrees, sign) = (-degrees, -1.0);
    }
    if degrees > 180.0 {
        (degrees, sign) = (360.0 - degrees, -sign);
    }
    (degrees, sign)
}

fn sine_of_degrees(degrees: f64) -> f64 {
    let (mut degrees, sign) = half_turn(degrees);
    if degrees > 90.0 {
        degrees = 180.0 - degrees;
    }
    sign * if degrees <= 30.0 { small_sine(degrees) } else { small_cosine(90.0 - degrees) }
}

fn cosine_of_degrees(degrees: f64) -> f64 {
    let mut degrees = (degrees % 360.0).abs();
    let mut sign = 1.0;
    if degrees > 180.0 {
        degrees = 360.0 - degrees;
    }
    if degrees > 90.0 {
        (degrees, sign) = (180.0 - degrees, -1.0);
    }
    sign * if degrees <= 60.0 { small_cosine(degrees) } else { small_sine(90.0 - degrees) }
}

/// Tangent of an angle in degrees: exact at multiples of 45 degrees.
fn tangent_of_degrees(degrees: f64) -> f64 {
    let (mut degrees, mut sign) = half_turn(degrees);
    if degrees > 90.0 {
        (degrees, sign) = (180.0 - degrees, -sign);
    }
    let unit = sine_of_degrees(45.0) / cosine_of_degrees(45.0);
    // Adding 0 turns -0 into 0.
    sign * (sine_of_degrees(degrees) / cosine_of_degrees(degrees) / unit) + 0.0
}

/// Arc sine in degrees: exact at 0, 30 and 90 degrees.
fn arc_sine_in_degrees(value: f64) -> f64 {
    if value < 0.0 {
        return -arc_sine_in_degrees(-value);
    }
    match value <= 0.5 {
        true => value.asin() / 0.5f64.asin() * 30.0,
        false => 90.0 - value.acos() / 0.5f64.acos() * 60.0,
    }
}

/// Arc cosine in degrees: exact at 0, 60, 90, 120 and 180 degrees.
fn arc_cosine_in_degrees(value: f64) -> f64 {
    if value < 0.0 {
        return 90.0 + arc_sine_in_degrees(-value);
    }
    match value <= 0.5 {
        true => 90.0 - value.asin() / 0.5f64.asin() * 30.0,
        false => value.acos() / 0.5f64.acos() * 60.0,
    }
}

/// Degrees of an arc tangent in radians: exact at multiples of 45 degrees.
fn arc_tangent_in_degrees(radians: f64) -> f64 {
    radians / 1f64.atan() * 45.0
}

fn gcd(a: i64, b: i64) -> Option<i64> {
    i64::try_from(num_integer::gcd(i128::from(a), i128::from(b))).ok()
}

fn lcm(a: i64, b: i64) -> Option<i64> {
    i64::try_from(num_integer::lcm(i128::from(a), i128::from(b)).abs()).ok()
}

fn int4_of(value: Option<i64>) -> SqlResult<Datum> {
    let value = value.and_then(|value| i32::try_from(value).ok());
    value.map(Datum::Int4).ok_or_else(|| integer_out_of_range(T::INT4))
}

fn int8_of(value: Option<i64>) -> SqlResult<Datum> {
    value.map(Datum::Int8).ok_or_else(|| integer_out_of_range(T::INT8))
}

/// The number of thresholds, which are sorted, that a value reaches.
fn width_bucket_of(args: &[Datum]) -> SqlResult<Datum> {
    let value = args.first().unwrap_or(&Datum::Null);
    let thresholds = args::array(args, 1)?;
    if thresholds.dimensions.len() > 1 {
        return Err(SqlError::new(SqlState::ARRAY_SUBSCRIPT, "thresholds must be one-dimensional array"));
    }
    if thresholds.values.iter().any(Datum::is_null) {
        return Err(SqlError::new(SqlState::NULL_NOT_ALLOWED, "thresholds array must not contain NULLs"));
    }
    let reached = thresholds.values.partition_point(|threshold| compare(threshold, value).is_le());
    int4_of(i64::try_from(reached).ok())
}

fn width_bucket(args: &[Datum]) -> SqlResult<Datum> {
    let bad = |message: &str| Err(SqlError::new(SqlState("2201G"), message));
    let count = i64::from(args::int4(args, 3)?);
    if count <= 0 {
        return bad("count must be greater than zero");
    }
    let bucket = match args.first() {
        Some(Datum::Float8(value)) => {
            let (low, high) = (args::float8(args, 1)?, args::float8(args, 2)?);
            if value.is_nan() || low.is_nan() || high.is_nan() {
                return bad("operand, lower bound, and upper bound cannot be NaN");
            }
            if low.is_infinite() || high.is_infinite() {
                return bad("lower and upper bounds must be finite");
            }
            if low == high {
                return bad("lower bound cannot equal upper bound");
            }
            let (value, low, high) = if low < high { (*value, low, high) } else { (-value, -low, -high) };
            if value < low {
                0
            } else if value >= high {
                count + 1
            } else {
                (((value - low) / (high - low)) * count as f64) as i64 + 1
            }
        }
        _ => {
            let (value, low, high) =
                (args::numeric(args, 0)?, args::numeric(args, 1)?, args::numeric(args, 2)?);
            if value.is_nan() || low.is_nan() || high.is_nan() {
                return bad("operand, lower bound, and upper bound cannot be NaN");
            }
            if low.is_infinite() || high.is_infinite() {
                return bad("lower and upper bounds must be finite");
            }
            if low == high {
                return bad("lower bound cannot equal upper bound");
            }
            let flip = low > high;
            let side = |number: &Numeric| if flip { number.neg() } else { number.clone() };
            let (value, low, high) = (side(value), side(low), side(high));
            if value < low {
                0
            } else if value >= high {
                count + 1
            } else {
                let scaled = value.sub(&low)?.mul(&Numeric::from(count))?;
                scaled.div_trunc(&high.sub(&low)?)?.to_i64().unwrap_or(0) + 1
            }
        }
    };
    int4_of(Some(bucket))
}

fn numeric(value: Numeric) -> SqlResult<Datum> {
    Ok(Datum::Numeric(value))
}

/// `round(numeric, places)` keeps at most 2000 digits, as PostgreSQL does.
fn places(args: &[Datum]) -> SqlResult<i32> {
    Ok(args::int4(args, 1)?.clamp(-131_072, 2000))
}

fn random_between_zero_and_one(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

pub(super) static TABLE: &[Function] = &[
    imm("abs", &[T::INT2], T::INT2, |_, a| {
        args::int2(a, 0)?.checked_abs().map(Datum::Int2).ok_or_else(|| integer_out_of_range(T::INT2))
    }),
    imm("abs", &[T::INT4], T::INT4, |_, a| int4_of(Some(i64::from(args::int4(a, 0)?).abs()))),
    imm("abs", &[T::INT8], T::INT8, |_, a| int8_of(args::int8(a, 0)?.checked_abs())),
    imm("abs", &[T::NUMERIC], T::NUMERIC, |_, a| numeric(args::numeric(a, 0)?.abs())),
    imm("abs", &[T::FLOAT8], T::FLOAT8, |_, a| float8(args::float8(a, 0)?.abs())),
    imm("abs", &[T::FLOAT4], T::FLOAT4, |_, a| Ok(Datum::Float4(args::float4(a, 0)?.abs()))),
    imm("ceil", &[T::NUMERIC], T::NUMERIC, |_, a| numeric(args::numeric(a, 0)?.ceil()?)),
    imm("ceil", &[T::FLOAT8], T::FLOAT8, |_, a| float8(args::float8(a, 0)?.ceil())),
    imm("ceiling", &[T::NUMERIC], T::NUMERIC, |_, a| numeric(args::numeric(a, 0)?.ceil()?)),
    imm("ceiling", &[T::FLOAT8], T::FLOAT8, |_, a| float8(args::float8(a, 0)?.ceil())),
    imm("floor", &[T::NUMERIC], T::NUMERIC, |_, a| numeric(args::numeric(a, 0)?.floor()?)),
    imm("floor", &[T::FLOAT8], T::FLOAT8, |_, a| float8(args::float8(a, 0)?.floor())),
    imm("round", &[T::NUMERIC], T::NUMERIC, |_, a| numeric(args::numeric(a, 0)?.round(0)?)),
    imm("round", &[T::FLOAT8], T::FLOAT8, |_, a| float8(round_even(args::float8(a, 0)?))),
    imm("round", &[T::NUMERIC, T::INT4], T::NUMERIC, |_, a| numeric(args::numeric(a, 0)?.round(places(a)?)?)),
    imm("trunc", &[T::NUMERIC], T::NUMERIC, |_, a| numeric(args::numeric(a, 0)?.trunc(0)?)),
    imm("trunc", &[T::FLOAT8], T::FLOAT8, |_, a| float8(args::float8(a, 0)?.trunc())),
    imm("trunc", &[T::NUMERIC, T::INT4], T::NUMERIC, |_, a| numeric(args::numeric(a, 0)?.trunc(places(a)?)?)),
    imm("sign", &[T::NUMERIC], T::NUMERIC, |_, a| {
        let value = args::numeric(a, 0)?;
        numeric(if value.is_nan() { Numeric::NAN } else { Numeric::from(value.signum()) })
    }),
    imm("sign", &[T::FLOAT8], T::FLOAT8, |_, a| {
        let value = args::float8(a, 0)?;
        float8(if value > 0.0 {
            1.0
        } else if value < 0.0 {
            -1.0
        } else {
            0.0
        })
    }),
    imm("sqrt", &[T::NUMERIC], T::NUMERIC, |_, a| numeric(args::numeric(a, 0)?.sqrt()?)),
    imm("sqrt", &[T::FLOAT8], T::FLOAT8, |_, a| {
        let value = args::float8(a, 0)?;
        if value < 0.0 {
            return Err(SqlError::new(
                SqlState::INVALID_POWER,
                "cannot take square root of a negative number",
            ));
        }
        float8(value.sqrt())
    }),
    imm("cbrt", &[T::FLOAT8], T::FLOAT8, |_, a| float8(args::float8(a, 0)?.cbrt())),
    imm("exp", &[T::NUMERIC], T::NUMERIC, |_, a| numeric(args::numeric(a, 0)?.exp()?)),
    imm("exp", &[T::FLOAT8], T::FLOAT8, |_, a| {
        let value = args::float8(a, 0)?;
        if value.is_finite() && value.exp() == 0.0 {
            return Err(SqlError::new(SqlState::OUT_OF_RANGE, "value out of range: underflow"));
        }
        finite(a, f64::exp)
    }),
    imm("ln", &[T::NUMERIC], T::NUMERIC, |_, a| numeric(args::numeric(a, 0)?.ln()?)),
    imm("ln", &[T::FLOAT8], T::FLOAT8, |_, a| logarithm(a, f64::ln)),
    imm("log", &[T::NUMERIC], T::NUMERIC, |_, a| numeric(args::numeric(a, 0)?.log(&Numeric::from(10))?)),
    imm("log", &[T::FLOAT8], T::FLOAT8, |_, a| logarithm(a, f64::log10)),
    imm("log", &[T::NUMERIC, T::NUMERIC], T::NUMERIC, |_, a| {
        numeric(args::numeric(a, 1)?.log(args::numeric(a, 0)?)?)
    }),
    imm("log10", &[T::NUMERIC], T::NUMERIC, |_, a| numeric(args::numeric(a, 0)?.log(&Numeric::from(10))?)),
    imm("log10", &[T::FLOAT8], T::FLOAT8, |_, a| logarithm(a, f64::log10)),
    imm("power", &[T::NUMERIC, T::NUMERIC], T::NUMERIC, |_, a| {
        numeric(args::numeric(a, 0)?.power(args::numeric(a, 1)?)?)
    }),
    imm("power", &[T::FLOAT8, T::FLOAT8], T::FLOAT8, |_, a| {
        float8(power_float8(args::float8(a, 0)?, args::float8(a, 1)?)?)
    }),
    imm("pow", &[T::NUMERIC, T::NUMERIC], T::NUMERIC, |_, a| {
        numeric(args::numeric(a, 0)?.power(args::numeric(a, 1)?)?)
    }),
    imm("pow", &[T::FLOAT8, T::FLOAT8], T::FLOAT8, |_, a| {
        float8(power_float8(args::float8(a, 0)?, args::float8(a, 1)?)?)
    }),
    imm("mod", &[T::INT2, T::INT2], T::INT2, |_, a| {
        let divisor = args::int2(a, 1)?;
        if divisor == 0 {
            return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        Ok(Datum::Int2(args::int2(a, 0)?.wrapping_rem(divisor)))
    }),
    imm("mod", &[T::INT4, T::INT4], T::INT4, |_, a| {
        let divisor = args::int4(a, 1)?;
        if divisor == 0 {
            return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        Ok(Datum::Int4(args::int4(a, 0)?.wrapping_rem(divisor)))
    }),
    imm("mod", &[T::INT8, T::INT8], T::INT8, |_, a| {
        let divisor = args::int8(a, 1)?;
        if divisor == 0 {
            return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        Ok(Datum::Int8(args::int8(a, 0)?.wrapping_rem(divisor)))
    }),
    imm("mod", &[T::NUMERIC, T::NUMERIC], T::NUMERIC, |_, a| {
        numeric(args::numeric(a, 0)?.rem(args::numeric(a, 1)?)?)
    }),
    imm("div", &[T::NUMERIC, T::NUMERIC], T::NUMERIC, |_, a| {
        numeric(args::numeric(a, 0)?.div_trunc(args::numeric(a, 1)?)?)
    }),
    imm("gcd", &[T::INT4, T::INT4], T::INT4, |_, a| {
        int4_of(gcd(i64::from(args::int4(a, 0)?), i64::from(args::int4(a, 1)?)))
    }),
    imm("gcd", &[T::INT8, T::INT8], T::INT8, |_, a| int8_of(gcd(args::int8(a, 0)?, args::int8(a, 1)?))),
    imm("gcd", &[T::NUMERIC, T::NUMERIC], T::NUMERIC, |_, a| {
        numeric(args::numeric(a, 0)?.gcd(args::numeric(a, 1)?)?)
    }),
    imm("lcm", &[T::INT4, T::INT4], T::INT4, |_, a| {
        int4_of(lcm(i64::from(args::int4(a, 0)?), i64::from(args::int4(a, 1)?)))
    }),
    imm("lcm", &[T::INT8, T::INT8], T::INT8, |_, a| int8_of(lcm(args::int8(a, 0)?, args::int8(a, 1)?))),
    imm("lcm", &[T::NUMERIC, T::NUMERIC], T::NUMERIC, |_, a| {
        numeric(args::numeric(a, 0)?.lcm(args::numeric(a, 1)?)?)
    }),
    imm("factorial", &[T::INT8], T::NUMERIC, |_, a| numeric(Numeric::factorial(args::int8(a, 0)?)?)),
    imm("scale", &[T::NUMERIC], T::INT4, |_, a| {
        let value = args::numeric(a, 0)?;
        Ok(if value.is_finite() { Datum::Int4(i32::from(value.scale())) } else { Datum::Null })
    }),
    imm("min_scale", &[T::NUMERIC], T::INT4, |_, a| {
        let value = args::numeric(a, 0)?;
        Ok(if value.is_finite() { Datum::Int4(i32::from(value.min_scale())) } else { Datum::Null })
    }),
    imm("trim_scale", &[T::NUMERIC], T::NUMERIC, |_, a| numeric(args::numeric(a, 0)?.trim_scale())),
    imm("width_bucket", &[T::ANYCOMPATIBLE, T::ANYCOMPATIBLEARRAY], T::INT4, |_, a| width_bucket_of(a)),
    imm("width_bucket", &[T::NUMERIC, T::NUMERIC, T::NUMERIC, T::INT4], T::INT4, |_, a| width_bucket(a)),
    imm("width_bucket", &[T::FLOAT8, T::FLOAT8, T::FLOAT8, T::INT4], T::INT4, |_, a| width_bucket(a)),
    imm("pi", &[], T::FLOAT8, |_, _| float8(std::f64::consts::PI)),
    imm("degrees", &[T::FLOAT8], T::FLOAT8, |_, a| finite(a, |value| value / (std::f64::consts::PI / 180.0))),
    imm("radians", &[T::FLOAT8], T::FLOAT8, |_, a| finite(a, |value| value * (std::f64::consts::PI / 180.0))),
    imm("sin", &[T::FLOAT8], T::FLOAT8, |_, a| within(a, f64::is_finite, f64::sin)),
    imm("cos", &[T::FLOAT8], T::FLOAT8, |_, a| within(a, f64::is_finite, f64::cos)),
    imm("tan", &[T::FLOAT8], T::FLOAT8, |_, a| within(a, f64::is_finite, f64::tan)),
    imm("cot", &[T::FLOAT8], T::FLOAT8, |_, a| within(a, f64::is_finite, |value| 1.0 / value.tan())),
    imm("asin", &[T::FLOAT8], T::FLOAT8, |_, a| within(a, |value| value.abs() <= 1.0, f64::asin)),
    imm("acos", &[T::FLOAT8], T::FLOAT8, |_, a| within(a, |value| value.abs() <= 1.0, f64::acos)),
    imm("atan", &[T::FLOAT8], T::FLOAT8, |_, a| float8(args::float8(a, 0)?.atan())),
    imm("atan2", &[T::FLOAT8, T::FLOAT8], T::FLOAT8, |_, a| {
        float8(args::float8(a, 0)?.atan2(args::float8(a, 1)?))
    }),
    imm("sind", &[T::FLOAT8], T::FLOAT8, |_, a| within(a, f64::is_finite, sine_of_degrees)),
    imm("cosd", &[T::FLOAT8], T::FLOAT8, |_, a| within(a, f64::is_finite, cosine_of_degrees)),
    imm("tand", &[T::FLOAT8], T::FLOAT8, |_, a| within(a, f64::is_finite, tangent_of_degrees)),
    imm("cotd", &[T::FLOAT8], T::FLOAT8, |_, a| {
        within(a, f64::is_finite, |degrees| 1.0 / tangent_of_degrees(degrees))
    }),
    imm("asind", &[T::FLOAT8], T::FLOAT8, |_, a| within(a, |value| value.abs() <= 1.0, arc_sine_in_degrees)),
    imm("acosd", &[T::FLOAT8], T::FLOAT8, |_, a| {
        within(a, |value| value.abs() <= 1.0, arc_cosine_in_degrees)
    }),
    imm("atand", &[T::FLOAT8], T::FLOAT8, |_, a| float8(arc_tangent_in_degrees(args::float8(a, 0)?.atan()))),
    imm("atan2d", &[T::FLOAT8, T::FLOAT8], T::FLOAT8, |_, a| {
        float8(arc_tangent_in_degrees(args::float8(a, 0)?.atan2(args::float8(a, 1)?)))
    }),
    imm("sinh", &[T::FLOAT8], T::FLOAT8, |_, a| float8(args::float8(a, 0)?.sinh())),
    imm("cosh", &[T::FLOAT8], T::FLOAT8, |_, a| float8(args::float8(a, 0)?.cosh())),
    imm("tanh", &[T::FLOAT8], T::FLOAT8, |_, a| float8(args::float8(a, 0)?.tanh())),
    imm("asinh", &[T::FLOAT8], T::FLOAT8, |_, a| float8(args::float8(a, 0)?.asinh())),
    imm("acosh", &[T::FLOAT8], T::FLOAT8, |_, a| within(a, |value| value >= 1.0, f64::acosh)),
    imm("atanh", &[T::FLOAT8], T::FLOAT8, |_, a| within(a, |value| value.abs() <= 1.0, f64::atanh)),
    imm("random", &[], T::FLOAT8, |c, _| float8(random_between_zero_and_one(c.random.next_u64()))).volatile(),
    imm("setseed", &[T::FLOAT8], T::VOID, |c, a| {
        let seed = args::float8(a, 0)?;
        if !(-1.0..=1.0).contains(&seed) {
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER,
                format!("setseed parameter {seed} is out of allowed range [-1,1]"),
            ));
        }
        c.random.seed(seed);
        Ok(Datum::text(""))
    })
    .volatile(),
];
