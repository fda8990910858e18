//! `sqrt`, `exp`, `ln`, `log` and `power`.
//!
//! Values are computed in binary fixed point with guard bits and rounded once to the scale that
//! PostgreSQL selects for the result.

use super::arithmetic::divide_rounded;
use super::{
    MAX_DISPLAY_SCALE, MAX_INTEGER_DIGITS, MIN_SIGNIFICANT_DIGITS, Numeric, digits, overflow, pow10,
};
use crate::error::{SqlError, SqlResult, SqlState};
use num_bigint::BigInt;
use num_traits::{One, Signed, ToPrimitive, Zero};
use std::f64::consts::LOG10_E;

/// Beyond this, the exponent of `exp` is out of range or its result zero.
const MAX_EXPONENT: f64 = 6000.0;

/// Bits that hold a number of decimal digits.
fn bits_for(decimal_digits: i64) -> u64 {
    (decimal_digits.max(0) as u64) * 3_322 / 1_000 + 64
}

/// A finite number as a fraction.
fn fraction(value: &Numeric) -> Option<(BigInt, BigInt)> {
    let (coefficient, scale) = value.finite()?;
    Some((coefficient.into_owned(), pow10(u32::from(scale))))
}

/// `value / 2^bits` as a decimal with `scale` digits after the point.
fn to_decimal(value: &BigInt, bits: u64, scale: i64) -> SqlResult<Numeric> {
    let scaled = value * pow10(scale as u32);
    Numeric::from_big(divide_rounded(&scaled, &(BigInt::one() << bits)), scale as u16)
}

/// 2 * atanh(numerator / denominator) in fixed point, for a fraction well below 1.
fn twice_atanh(numerator: &BigInt, denominator: &BigInt, bits: u64) -> BigInt {
    let y = (numerator << bits) / denominator;
    let square = (&y * &y) >> bits;
    let mut power = y.clone();
    let mut sum = y;
    let mut divisor = 3u32;
    loop {
        power = (&power * &square) >> bits;
        let term = &power / divisor;
        if term.is_zero() {
            return sum << 1;
        }
        sum += term;
        divisor += 2;
    }
}

fn ln2(bits: u64) -> BigInt {
    twice_atanh(&BigInt::one(), &BigInt::from(3), bits)
}

/// Natural logarithm of a positive fraction in fixed point.
fn ln_fixed(numerator: &BigInt, denominator: &BigInt, bits: u64) -> BigInt {
    let work = bits + 64;
    // x = m * 2^shift with m in [1/2, 2).
    let shift = numerator.bits() as i64 - denominator.bits() as i64;
    let (numerator, denominator) = if shift >= 0 {
        (numerator.clone(), denominator << shift as u64)
    } else {
        (numerator << (-shift) as u64, denominator.clone())
    };
    // A few square roots bring m close to 1, where the series is quick; it stays quick without them
    // for the few digits usually wanted.
    let roots = if work > 512 { 6 } else { 0 };
    let ln_m = if roots == 0 {
        twice_atanh(&(&numerator - &denominator), &(&numerator + &denominator), work)
    } else {
        let mut m: BigInt = (numerator << work) / denominator;
        for _ in 0..roots {
            m = (m << work).sqrt();
        }
        let one = BigInt::one() << work;
        twice_atanh(&(&m - &one), &(&m + &one), work) << roots
    };
    (ln_m + ln2(work) * shift) >> 64
}

/// e to a fixed-point power, itself in fixed point.
fn exp_fixed(x: &BigInt, bits: u64) -> BigInt {
    let work = bits + 64;
    let x = x << 64;
    let ln2 = ln2(work);
    let k = divide_rounded(&x, &ln2).to_i64().unwrap_or(0);
    let halvings = 8u64;
    let r = (&x - &ln2 * k) >> halvings;
    let mut sum = BigInt::one() << work;
    let mut term = sum.clone();
    let mut n = 1u32;
    loop {
        term = (&term * &r) >> work;
        term /= n;
        // An arithmetic shift of a negative term stops at -1.
        if term.is_zero() || term == BigInt::from(-1) {
            break;
        }
        sum += &term;
        n += 1;
    }
    for _ in 0..halvings {
        sum = (&sum * &sum) >> work;
    }
    if k >= 0 { (sum << k as u64) >> 64 } else { sum >> (64 + k.unsigned_abs()) }
}

impl Numeric {
    /// Decimal weight of ln(self), estimated as PostgreSQL does.
    fn ln_weight(&self) -> i64 {
        let Some((coefficient, scale)) = self.finite() else { return 0 };
        if coefficient.is_zero() {
            return 0;
        }
        let tenth = |n: i128| Numeric::new(n, 1);
        if *self >= tenth(9) && *self <= tenth(11) {
            let Ok(difference) = self.sub(&Numeric::ONE) else { return 0 };
            return match difference.finite() {
                Some((x, x_scale)) if !x.is_zero() => {
                    let (weight, group) = Numeric::weight_and_first_group(&x, x_scale);
                    weight * 4 + (group as f64).log10() as i64
                }
                _ => 0,
            };
        }
        let (weight, _) = Numeric::weight_and_first_group(&coefficient, scale);
        // The first two groups of four digits, as PostgreSQL looks at them.
        let shift = 4 * (weight - 1) + i64::from(scale);
        let leading = if shift >= 0 {
            coefficient.as_ref() / pow10(shift as u32)
        } else {
            coefficient.as_ref() * pow10(-shift as u32)
        };
        let ln = leading.to_f64().unwrap_or(1.0).ln() + (weight - 1) as f64 * 4.0 * std::f64::consts::LN_10;
        if ln == 0.0 { 0 } else { ln.abs().log10() as i64 }
    }

    /// Square root, with the scale PostgreSQL selects: at least 16 significant digits.
    pub fn sqrt(&self) -> SqlResult<Numeric> {
        let scale = self.finite().map_or(0, |(coefficient, own_scale)| {
            let (weight, _) = Self::weight_and_first_group(&coefficient, own_scale);
            (MIN_SIGNIFICANT_DIGITS - (weight * 2 + 1)).max(i64::from(own_scale)).clamp(0, MAX_DISPLAY_SCALE)
        });
        self.sqrt_with_scale(scale as u16)
    }

    /// Square root, rounded to so many digits after the point.
    pub fn sqrt_with_scale(&self, scale: u16) -> SqlResult<Numeric> {
        if self.is_nan() {
            return Ok(Numeric::NAN);
        }
        if self.signum() < 0 {
            return Err(SqlError::new(
                SqlState::INVALID_POWER,
                "cannot take square root of a negative number",
            ));
        }
        let Some((coefficient, own_scale)) = self.finite() else {
            return Ok(Numeric::INFINITY);
        };
        let scale = i64::from(scale);
        // One digit more than shown decides the rounding, as a root is never a half exactly
        // unless it has that digit.
        let shift = 2 * (scale + 1) - i64::from(own_scale);
        let scaled = if shift >= 0 {
            coefficient.as_ref() * pow10(shift as u32)
        } else {
            coefficient.as_ref() / pow10(-shift as u32)
        };
        Numeric::from_big(divide_rounded(&scaled.sqrt(), &BigInt::from(10)), scale as u16)
    }

    /// e to this power.
    pub fn exp(&self) -> SqlResult<Numeric> {
        if self.is_nan() {
            return Ok(Numeric::NAN);
        }
        if self.is_infinite() {
            return Ok(if self.signum() > 0 { Numeric::INFINITY } else { Numeric::ZERO });
        }
        let weight = (self.to_f64() * LOG10_E).clamp(-2000.0, 2000.0) as i64;
        let scale =
            (MIN_SIGNIFICANT_DIGITS - weight).max(i64::from(self.scale())).clamp(0, MAX_DISPLAY_SCALE);
        self.exp_to(scale)
    }

    fn exp_to(&self, scale: i64) -> SqlResult<Numeric> {
        let value = self.to_f64();
        if value.abs() >= MAX_EXPONENT {
            return if value > 0.0 { Err(overflow()) } else { Ok(Numeric::new(0, scale as u16)) };
        }
        let Some((numerator, denominator)) = fraction(self) else { return Ok(Numeric::NAN) };
        let bits = bits_for(scale + (value.max(0.0) * LOG10_E) as i64 + 8);
        let x = (numerator << bits) / denominator;
        to_decimal(&exp_fixed(&x, bits), bits, scale)
    }

    fn check_logarithm(&self) -> SqlResult<()> {
        match self.signum() {
            0 => Err(SqlError::new(SqlState::INVALID_LOGARITHM, "cannot take logarithm of zero")),
            -1 => {
                Err(SqlError::new(SqlState::INVALID_LOGARITHM, "cannot take logarithm of a negative number"))
            }
            _ => Ok(()),
        }
    }

    /// Natural logarithm.
    pub fn ln(&self) -> SqlResult<Numeric> {
        if self.is_nan() {
            return Ok(Numeric::NAN);
        }
        self.check_logarithm()?;
        let Some((numerator, denominator)) = fraction(self) else { return Ok(Numeric::INFINITY) };
        let scale = (MIN_SIGNIFICANT_DIGITS - self.ln_weight())
            .max(i64::from(self.scale()))
            .clamp(0, MAX_DISPLAY_SCALE);
        let bits = bits_for(scale + 8);
        to_decimal(&ln_fixed(&numerator, &denominator, bits), bits, scale)
    }

    /// Logarithm to a base: `log(base, self)`.
    pub fn log(&self, base: &Numeric) -> SqlResult<Numeric> {
        if self.is_nan() || base.is_nan() {
            return Ok(Numeric::NAN);
        }
        base.check_logarithm()?;
        self.check_logarithm()?;
        let (Some((numerator, denominator)), Some((base_numerator, base_denominator))) =
            (fraction(self), fraction(base))
        else {
            return Ok(match (self.is_infinite(), base.is_infinite()) {
                (true, true) => Numeric::NAN,
                (false, true) => Numeric::ZERO,
                _ => Numeric::INFINITY,
            });
        };
        let base_weight = base.ln_weight();
        let scale = (MIN_SIGNIFICANT_DIGITS - (self.ln_weight() - base_weight))
            .max(i64::from(self.scale()))
            .max(i64::from(base.scale()))
            .clamp(0, MAX_DISPLAY_SCALE);
        // A base close to 1 has a logarithm close to 0, which eats leading digits.
        let bits = bits_for(scale + 2 * base_weight.min(0).abs() + self.ln_weight().abs() + 16);
        let below = ln_fixed(&base_numerator, &base_denominator, bits);
        if below.is_zero() {
            return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        let above = ln_fixed(&numerator, &denominator, bits);
        Numeric::from_big(divide_rounded(&(above * pow10(scale as u32)), &below), scale as u16)
    }

    /// This number to a power.
    pub fn power(&self, exponent: &Numeric) -> SqlResult<Numeric> {
        if self.is_nan() || exponent.is_nan() {
            // 1 to anything is 1, anything to 0 is 1, even NaN.
            return Ok(if exponent.is_zero() || *self == Numeric::ONE { Numeric::ONE } else { Numeric::NAN });
        }
        let domain = |message: &str| Err(SqlError::new(SqlState::INVALID_POWER, message));
        let integral = exponent.trim_scale().scale() == 0;
        if self.is_zero() && exponent.signum() < 0 {
            return domain("zero raised to a negative power is undefined");
        }
        if self.signum() < 0 && exponent.is_finite() && !integral {
            return domain("a negative number raised to a non-integer power yields a complex result");
        }
        if self.is_infinite() || exponent.is_infinite() {
            return self.power_of_infinities(exponent);
        }
        if integral && let Some(power) = exponent.to_i64().and_then(|power| i32::try_from(power).ok()) {
            return self.power_integer(power, i64::from(exponent.scale()));
        }
        if self.is_zero() {
            return Ok(Numeric::new(0, MIN_SIGNIFICANT_DIGITS as u16));
        }
        self.power_by_logarithm(exponent)
    }

    fn power_of_infinities(&self, exponent: &Numeric) -> SqlResult<Numeric> {
        if *self == Numeric::ONE || exponent.is_zero() {
            return Ok(Numeric::ONE);
        }
        if exponent.is_infinite() {
            let magnitude = self.abs();
            if magnitude == Numeric::ONE {
                return Ok(Numeric::ONE);
            }
            let grows = (magnitude > Numeric::ONE) == (exponent.signum() > 0);
            return Ok(if grows { Numeric::INFINITY } else { Numeric::ZERO });
        }
        if exponent.signum() < 0 {
            return Ok(Numeric::ZERO);
        }
        let odd = !exponent.rem(&Numeric::from(2))?.is_zero();
        Ok(if self.signum() < 0 && odd { Numeric::NEG_INFINITY } else { Numeric::INFINITY })
    }

    fn power_integer(&self, power: i32, exponent_scale: i64) -> SqlResult<Numeric> {
        let Some((coefficient, own_scale)) = self.finite() else { return Ok(Numeric::NAN) };
        let count = digits(&coefficient);
        let log = if count == 0 {
            0.0
        } else {
            // Sixteen leading digits give the weight of the result well enough.
            let cut = (count - 16).max(0);
            let leading = (coefficient.abs() / pow10(cut as u32)).to_f64().unwrap_or(1.0);
            f64::from(power) * (leading.log10() + (cut - i64::from(own_scale)) as f64)
        };
        if log > (MAX_INTEGER_DIGITS + 4) as f64 {
            return Err(overflow());
        }
        if log + 1.0 < -(MAX_DISPLAY_SCALE as f64) {
            return Ok(Numeric::new(0, MAX_DISPLAY_SCALE as u16));
        }
        let scale =
            MIN_SIGNIFICANT_DIGITS.max(i64::from(own_scale)).max(exponent_scale).min(MAX_DISPLAY_SCALE);
        if power == 0 {
            return Numeric::ONE.round(scale as i32);
        }
        // A decimal floating-point power with enough significant digits to round once at the end.
        let kept = (log.max(0.0) as i64) + scale + 24;
        let (mut result, mut result_scale) = (BigInt::one(), 0i64);
        let (mut base, mut base_scale) = (coefficient.into_owned(), i64::from(own_scale));
        let mut rest = power.unsigned_abs();
        while rest > 0 {
            if rest & 1 == 1 {
                result = &result * &base;
                result_scale += base_scale;
                shorten(&mut result, &mut result_scale, kept);
            }
            rest >>= 1;
            if rest > 0 {
                base = &base * &base;
                base_scale += base_scale;
                shorten(&mut base, &mut base_scale, kept);
            }
        }
        let (numerator, denominator, shift) = if power > 0 {
            (result, BigInt::one(), scale - result_scale)
        } else {
            (BigInt::one(), result, scale + result_scale)
        };
        let value = if shift >= 0 {
            divide_rounded(&(numerator * pow10(shift as u32)), &denominator)
        } else {
            divide_rounded(&numerator, &(denominator * pow10(-shift as u32)))
        };
        Numeric::from_big(value, scale as u16)
    }

    fn power_by_logarithm(&self, exponent: &Numeric) -> SqlResult<Numeric> {
        let negative = self.signum() < 0 && !exponent.rem(&Numeric::from(2))?.is_zero();
        let magnitude = self.abs();
        let (Some((numerator, denominator)), Some((power, power_scale))) =
            (fraction(&magnitude), exponent.finite())
        else {
            return Ok(Numeric::NAN);
        };
        // Rounded to about eight digits as PostgreSQL does: its weight decides the scale.
        let rough_scale = (8 - magnitude.ln_weight()).clamp(0, MAX_DISPLAY_SCALE);
        let rough_bits = bits_for(rough_scale + 8);
        let rough_ln = to_decimal(&ln_fixed(&numerator, &denominator, rough_bits), rough_bits, rough_scale)?;
        let value = rough_ln.mul(exponent)?.round(rough_scale as i32)?.to_f64();
        if value.abs() > MAX_EXPONENT * 1.003 {
            return if value > 0.0 { Err(overflow()) } else { Ok(Numeric::new(0, MAX_DISPLAY_SCALE as u16)) };
        }
        let weight = (value * LOG10_E) as i64;
        let scale = (MIN_SIGNIFICANT_DIGITS - weight)
            .max(i64::from(self.scale()))
            .max(i64::from(exponent.scale()))
            .clamp(0, MAX_DISPLAY_SCALE);
        let bits = bits_for(scale + weight.max(0) + 8);
        let work = bits + power.bits() + 32;
        let x = (ln_fixed(&numerator, &denominator, work) * power.as_ref() / pow10(u32::from(power_scale)))
            >> (work - bits);
        let result = to_decimal(&exp_fixed(&x, bits), bits, scale)?;
        Ok(if negative { result.neg() } else { result })
    }
}

/// Drops digits of `value` beyond the `kept` most significant ones.
fn shorten(value: &mut BigInt, scale: &mut i64, kept: i64) {
    let excess = digits(value) - kept;
    if excess > 0 {
        *value = divide_rounded(value, &pow10(excess as u32));
        *scale -= excess;
    }
}
