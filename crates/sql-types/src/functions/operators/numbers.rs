//! Arithmetic and bits of numbers.

use crate::datum::Datum;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::Function;
use crate::functions::args::{self, imm};
use crate::types::Type;

#[cold]
fn division_by_zero() -> SqlError {
    SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

/// `integer out of range` and its kin.
#[cold]
pub(in crate::functions) fn integer_out_of_range(ty: Type) -> SqlError {
    SqlError::new(SqlState::OUT_OF_RANGE, format!("{ty} out of range"))
}

/// An integer argument of any width.
pub(super) fn integer(args: &[Datum], index: usize) -> SqlResult<i64> {
    match args.get(index) {
        Some(Datum::Int4(value)) => Ok(i64::from(*value)),
        Some(Datum::Int8(value)) => Ok(*value),
        Some(Datum::Int2(value)) => Ok(i64::from(*value)),
        _ => args::int8(args, index),
    }
}

fn float(args: &[Datum], index: usize) -> SqlResult<f64> {
    match args.get(index) {
        Some(Datum::Float4(value)) => Ok(f64::from(*value)),
        _ => args::float8(args, index),
    }
}

/// The result of integer arithmetic in a type, `None` standing for overflow.
fn fit(value: Option<i64>, ty: Type) -> SqlResult<Datum> {
    let fitted = value.and_then(|value| {
        Some(match ty {
            Type::INT4 => Datum::Int4(value.try_into().ok()?),
            Type::INT2 => Datum::Int2(value.try_into().ok()?),
            _ => Datum::Int8(value),
        })
    });
    fitted.ok_or_else(|| integer_out_of_range(ty))
}

fn divide(args: &[Datum], ty: Type) -> SqlResult<Datum> {
    let divisor = integer(args, 1)?;
    if divisor == 0 {
        return Err(division_by_zero());
    }
    fit(integer(args, 0)?.checked_div(divisor), ty)
}

fn remainder(args: &[Datum], ty: Type) -> SqlResult<Datum> {
    let divisor = integer(args, 1)?;
    if divisor == 0 {
        return Err(division_by_zero());
    }
    fit(Some(integer(args, 0)?.wrapping_rem(divisor)), ty)
}

/// Fails where finite operands gave an infinite result, or nonzero ones zero.
fn checked(result: f64, overflow_allowed: bool, zero_allowed: bool) -> SqlResult<f64> {
    if result.is_infinite() && !overflow_allowed {
        return Err(SqlError::new(SqlState::OUT_OF_RANGE, "value out of range: overflow"));
    }
    if result == 0.0 && !zero_allowed {
        return Err(SqlError::new(SqlState::OUT_OF_RANGE, "value out of range: underflow"));
    }
    Ok(result)
}

fn float_add(a: f64, b: f64) -> (f64, bool, bool) {
    (a + b, a.is_infinite() || b.is_infinite(), true)
}
fn float_sub(a: f64, b: f64) -> (f64, bool, bool) {
    (a - b, a.is_infinite() || b.is_infinite(), true)
}
fn float_mul(a: f64, b: f64) -> (f64, bool, bool) {
    (a * b, a.is_infinite() || b.is_infinite(), a == 0.0 || b == 0.0)
}
fn float_div(a: f64, b: f64) -> (f64, bool, bool) {
    (a / b, a.is_infinite(), a == 0.0 || b.is_infinite())
}

fn float_op(
    args: &[Datum],
    ty: Type,
    op: fn(f64, f64) -> (f64, bool, bool),
    divides: bool,
) -> SqlResult<Datum> {
    let (left, right) = (float(args, 0)?, float(args, 1)?);
    if divides && right == 0.0 && !left.is_nan() {
        return Err(division_by_zero());
    }
    let (result, infinite, zero) = op(left, right);
    if ty == Type::FLOAT4 {
        return Ok(Datum::Float4(checked(f64::from(result as f32), infinite, zero)? as f32));
    }
    Ok(Datum::Float8(checked(result, infinite, zero)?))
}

/// `float8 ^ float8`
pub(in crate::functions) fn power_float8(base: f64, exponent: f64) -> SqlResult<f64> {
    let domain = |message| Err(SqlError::new(SqlState::INVALID_POWER, message));
    if base == 0.0 && exponent < 0.0 {
        return domain("zero raised to a negative power is undefined");
    }
    if base < 0.0 && base.is_finite() && exponent.is_finite() && exponent.fract() != 0.0 {
        return domain("a negative number raised to a non-integer power yields a complex result");
    }
    let infinite = base.is_infinite() || exponent.is_infinite();
    checked(base.powf(exponent), infinite, infinite || base == 0.0)
}

fn shift(args: &[Datum], ty: Type, left: bool) -> SqlResult<Datum> {
    let amount = args::int4(args, 1)? as u32;
    Ok(match args.first() {
        Some(Datum::Int2(value)) => {
            // C shifts after widening to an int.
            let wide = i32::from(*value);
            Datum::Int2((if left { wide.wrapping_shl(amount) } else { wide.wrapping_shr(amount) }) as i16)
        }
        Some(Datum::Int4(value)) => {
            Datum::Int4(if left { value.wrapping_shl(amount) } else { value.wrapping_shr(amount) })
        }
        Some(Datum::Int8(value)) => {
            Datum::Int8(if left { value.wrapping_shl(amount) } else { value.wrapping_shr(amount) })
        }
        _ => return Err(integer_out_of_range(ty)),
    })
}

macro_rules! table {
    (ints { $($l:ident $r:ident $t:ident;)* } floats { $($fl:ident $fr:ident $ft:ident;)* } one { $($o:ident)* } $($rest:expr,)*) => {
        &[
            $(
                imm("+", &[Type::$l, Type::$r], Type::$t, |_, a| fit(integer(a, 0)?.checked_add(integer(a, 1)?), Type::$t)),
                imm("-", &[Type::$l, Type::$r], Type::$t, |_, a| fit(integer(a, 0)?.checked_sub(integer(a, 1)?), Type::$t)),
                imm("*", &[Type::$l, Type::$r], Type::$t, |_, a| fit(integer(a, 0)?.checked_mul(integer(a, 1)?), Type::$t)),
                imm("/", &[Type::$l, Type::$r], Type::$t, |_, a| divide(a, Type::$t)),
            )*
            $(
                imm("+", &[Type::$fl, Type::$fr], Type::$ft, |_, a| float_op(a, Type::$ft, float_add, false)),
                imm("-", &[Type::$fl, Type::$fr], Type::$ft, |_, a| float_op(a, Type::$ft, float_sub, false)),
                imm("*", &[Type::$fl, Type::$fr], Type::$ft, |_, a| float_op(a, Type::$ft, float_mul, false)),
                imm("/", &[Type::$fl, Type::$fr], Type::$ft, |_, a| float_op(a, Type::$ft, float_div, true)),
            )*
            $(
                imm("%", &[Type::$o, Type::$o], Type::$o, |_, a| remainder(a, Type::$o)),
                imm("&", &[Type::$o, Type::$o], Type::$o, |_, a| fit(Some(integer(a, 0)? & integer(a, 1)?), Type::$o)),
                imm("|", &[Type::$o, Type::$o], Type::$o, |_, a| fit(Some(integer(a, 0)? | integer(a, 1)?), Type::$o)),
                imm("#", &[Type::$o, Type::$o], Type::$o, |_, a| fit(Some(integer(a, 0)? ^ integer(a, 1)?), Type::$o)),
                imm("~", &[Type::$o], Type::$o, |_, a| fit(Some(!integer(a, 0)?), Type::$o)),
                imm("<<", &[Type::$o, Type::INT4], Type::$o, |_, a| shift(a, Type::$o, true)),
                imm(">>", &[Type::$o, Type::INT4], Type::$o, |_, a| shift(a, Type::$o, false)),
                imm("-", &[Type::$o], Type::$o, |_, a| fit(integer(a, 0)?.checked_neg(), Type::$o)),
                imm("@", &[Type::$o], Type::$o, |_, a| fit(integer(a, 0)?.checked_abs(), Type::$o)),
                imm("+", &[Type::$o], Type::$o, |_, a| Ok(a[0].clone())),
            )*
            $($rest,)*
        ]
    };
}

pub(super) static TABLE: &[Function] = table! {
    ints {
        INT2 INT2 INT2;
        INT4 INT4 INT4;
        INT8 INT8 INT8;
        INT2 INT4 INT4;
        INT4 INT2 INT4;
        INT2 INT8 INT8;
        INT8 INT2 INT8;
        INT4 INT8 INT8;
        INT8 INT4 INT8;
    }
    floats {
        FLOAT4 FLOAT4 FLOAT4;
        FLOAT8 FLOAT8 FLOAT8;
        FLOAT4 FLOAT8 FLOAT8;
        FLOAT8 FLOAT4 FLOAT8;
    }
    one { INT2 INT4 INT8 }
    imm("+", &[Type::NUMERIC, Type::NUMERIC], Type::NUMERIC, |_, a| {
        Ok(Datum::Numeric(args::numeric(a, 0)?.add(args::numeric(a, 1)?)?))
    }),
    imm("-", &[Type::NUMERIC, Type::NUMERIC], Type::NUMERIC, |_, a| {
        Ok(Datum::Numeric(args::numeric(a, 0)?.sub(args::numeric(a, 1)?)?))
    }),
    imm("*", &[Type::NUMERIC, Type::NUMERIC], Type::NUMERIC, |_, a| {
        Ok(Datum::Numeric(args::numeric(a, 0)?.mul(args::numeric(a, 1)?)?))
    }),
    imm("/", &[Type::NUMERIC, Type::NUMERIC], Type::NUMERIC, |_, a| {
        Ok(Datum::Numeric(args::numeric(a, 0)?.div(args::numeric(a, 1)?)?))
    }),
    imm("%", &[Type::NUMERIC, Type::NUMERIC], Type::NUMERIC, |_, a| {
        Ok(Datum::Numeric(args::numeric(a, 0)?.rem(args::numeric(a, 1)?)?))
    }),
    imm("^", &[Type::NUMERIC, Type::NUMERIC], Type::NUMERIC, |_, a| {
        Ok(Datum::Numeric(args::numeric(a, 0)?.power(args::numeric(a, 1)?)?))
    }),
    imm("^", &[Type::FLOAT8, Type::FLOAT8], Type::FLOAT8, |_, a| {
        Ok(Datum::Float8(power_float8(args::float8(a, 0)?, args::float8(a, 1)?)?))
    }),
    imm("-", &[Type::NUMERIC], Type::NUMERIC, |_, a| Ok(Datum::Numeric(args::numeric(a, 0)?.neg()))),
    imm("+", &[Type::NUMERIC], Type::NUMERIC, |_, a| Ok(a[0].clone())),
    imm("@", &[Type::NUMERIC], Type::NUMERIC, |_, a| Ok(Datum::Numeric(args::numeric(a, 0)?.abs()))),
    imm("-", &[Type::FLOAT8], Type::FLOAT8, |_, a| Ok(Datum::Float8(-args::float8(a, 0)?))),
    imm("-", &[Type::FLOAT4], Type::FLOAT4, |_, a| Ok(Datum::Float4(-args::float4(a, 0)?))),
    imm("+", &[Type::FLOAT8], Type::FLOAT8, |_, a| Ok(a[0].clone())),
    imm("+", &[Type::FLOAT4], Type::FLOAT4, |_, a| Ok(a[0].clone())),
    imm("@", &[Type::FLOAT8], Type::FLOAT8, |_, a| Ok(Datum::Float8(args::float8(a, 0)?.abs()))),
    imm("@", &[Type::FLOAT4], Type::FLOAT4, |_, a| Ok(Datum::Float4(args::float4(a, 0)?.abs()))),
    imm("|/", &[Type::FLOAT8], Type::FLOAT8, |_, a| {
        let value = args::float8(a, 0)?;
        if value < 0.0 {
            return Err(SqlError::new(SqlState::INVALID_POWER, "cannot take square root of a negative number"));
        }
        Ok(Datum::Float8(value.sqrt()))
    }),
    imm("||/", &[Type::FLOAT8], Type::FLOAT8, |_, a| Ok(Datum::Float8(args::float8(a, 0)?.cbrt()))),
};
