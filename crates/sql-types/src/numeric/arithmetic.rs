//! Addition to division, rounding, and integer functions.

use super::{
    MAX_DISPLAY_SCALE, MAX_INTEGER_DIGITS, MAX_SCALE, MIN_SIGNIFICANT_DIGITS, Numeric, POWERS_OF_TEN, Parts,
    digits, overflow, pow10,
};
use crate::error::{SqlError, SqlResult, SqlState};
use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{Signed, Zero};

#[cold]
fn division_by_zero() -> SqlError {
    SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

/// `numerator / denominator`, halves away from zero.
pub(super) fn divide_rounded(numerator: &BigInt, denominator: &BigInt) -> BigInt {
    let (quotient, remainder) = numerator.div_rem(denominator);
    if remainder.abs() * 2 >= denominator.abs() {
        if numerator.is_negative() == denominator.is_negative() { quotient + 1 } else { quotient - 1 }
    } else {
        quotient
    }
}

/// `coefficient` at one scale, brought to another with rounding.
pub(super) fn rescale(coefficient: &BigInt, from: i64, to: i64) -> BigInt {
    match to - from {
        0 => coefficient.clone(),
        up if up > 0 => coefficient * pow10(up as u32),
        down => {
            // Far below the last digit kept there is nothing to round.
            if -down > digits(coefficient) + 1 {
                return BigInt::zero();
            }
            divide_rounded(coefficient, &pow10(-down as u32))
        }
    }
}

impl Numeric {
    /// Weight of the first digit in groups of four digits, and the value of that first group.
    pub(super) fn weight_and_first_group(coefficient: &BigInt, scale: u16) -> (i64, i64) {
        let count = digits(coefficient);
        if count == 0 {
            return (0, 0);
        }
        let weight = (count - 1 - i64::from(scale)).div_euclid(4);
        // The group starts at 10^(4 * weight) of the value.
        let shift = 4 * weight + i64::from(scale);
        let group = if shift >= 0 {
            coefficient.abs() / pow10(shift as u32)
        } else {
            coefficient.abs() * pow10(-shift as u32)
        };
        (weight, num_traits::ToPrimitive::to_i64(&group).unwrap_or(0))
    }

    fn add_or_subtract(&self, other: &Numeric, negate: bool) -> SqlResult<Numeric> {
        match (self.parts(), other.parts()) {
            (Parts::Small(left, left_scale), Parts::Small(right, right_scale)) => {
                let right = if negate { right.checked_neg() } else { Some(right) };
                let scale = left_scale.max(right_scale);
                let raise = |value: i128, from: u16| {
                    let power = POWERS_OF_TEN.get(usize::from(scale - from))?;
                    value.checked_mul(*power)
                };
                let sum =
                    right.and_then(|right| raise(left, left_scale)?.checked_add(raise(right, right_scale)?));
                if let Some(sum) = sum {
                    return Ok(Numeric::new(sum, scale));
                }
            }
            (Parts::NaN, _) | (_, Parts::NaN) => return Ok(Numeric::NAN),
            (Parts::Infinity { negative: left }, Parts::Infinity { negative: right }) => {
                return Ok(if left == (right != negate) { self.clone() } else { Numeric::NAN });
            }
            (Parts::Infinity { .. }, _) => return Ok(self.clone()),
            (_, Parts::Infinity { .. }) => {
                return Ok(if negate { other.neg() } else { other.clone() });
            }
            _ => {}
        }
        let (Some((left, left_scale)), Some((right, right_scale))) = (self.finite(), other.finite()) else {
            return Ok(Numeric::NAN);
        };
        let scale = left_scale.max(right_scale);
        let left = rescale(&left, i64::from(left_scale), i64::from(scale));
        let right = rescale(&right, i64::from(right_scale), i64::from(scale));
        Numeric::from_big(if negate { left - right } else { left + right }, scale)
    }

    /// Sum.
    pub fn add(&self, other: &Numeric) -> SqlResult<Numeric> {
        self.add_or_subtract(other, false)
    }

    /// Difference.
    pub fn sub(&self, other: &Numeric) -> SqlResult<Numeric> {
        self.add_or_subtract(other, true)
    }

    /// Product; its scale is the sum of the scales.
    pub fn mul(&self, other: &Numeric) -> SqlResult<Numeric> {
        if let (Parts::Small(left, left_scale), Parts::Small(right, right_scale)) =
            (self.parts(), other.parts())
            && let Some(product) = left.checked_mul(right)
            && i64::from(left_scale) + i64::from(right_scale) <= MAX_SCALE
        {
            return Ok(Numeric::new(product, left_scale + right_scale));
        }
        if self.is_nan() || other.is_nan() {
            return Ok(Numeric::NAN);
        }
        if self.is_infinite() || other.is_infinite() {
            return Ok(match self.signum() * other.signum() {
                0 => Numeric::NAN,
                1 => Numeric::INFINITY,
                _ => Numeric::NEG_INFINITY,
            });
        }
        let (Some((left, left_scale)), Some((right, right_scale))) = (self.finite(), other.finite()) else {
            return Ok(Numeric::NAN);
        };
        let scale = i64::from(left_scale) + i64::from(right_scale);
        let product = left.as_ref() * right.as_ref();
        let kept = scale.min(MAX_SCALE);
        Numeric::from_big(rescale(&product, scale, kept), kept as u16)
    }

    /// Quotient, with the scale PostgreSQL selects: at least 16 significant digits.
    pub fn div(&self, other: &Numeric) -> SqlResult<Numeric> {
        if self.is_nan() || other.is_nan() {
            return Ok(Numeric::NAN);
        }
        if self.is_infinite() {
            if other.is_infinite() {
                return Ok(Numeric::NAN);
            }
            return match self.signum() * other.signum() {
                0 => Err(division_by_zero()),
                1 => Ok(Numeric::INFINITY),
                _ => Ok(Numeric::NEG_INFINITY),
            };
        }
        if other.is_infinite() {
            return Ok(Numeric::ZERO);
        }
        let (Some((left, left_scale)), Some((right, right_scale))) = (self.finite(), other.finite()) else {
            return Ok(Numeric::NAN);
        };
        if right.is_zero() {
            return Err(division_by_zero());
        }
        let (left_weight, left_group) = Self::weight_and_first_group(&left, left_scale);
        let (right_weight, right_group) = Self::weight_and_first_group(&right, right_scale);
        let mut quotient_weight = left_weight - right_weight;
        if left_group <= right_group {
            quotient_weight -= 1;
        }
        let scale = (MIN_SIGNIFICANT_DIGITS - quotient_weight * 4)
            .max(i64::from(left_scale))
            .max(i64::from(right_scale))
            .clamp(0, MAX_DISPLAY_SCALE);
        let shift = scale + i64::from(right_scale) - i64::from(left_scale);
        let quotient = if shift >= 0 {
            divide_rounded(&(left.as_ref() * pow10(shift as u32)), &right)
        } else {
            divide_rounded(&left, &(right.as_ref() * pow10(-shift as u32)))
        };
        Numeric::from_big(quotient, scale as u16)
    }

    /// Quotient cut to an integer (`div()`), and remainder with the sign of the dividend (`%`).
    fn div_rem(&self, other: &Numeric) -> SqlResult<(Numeric, Numeric)> {
        if self.is_nan() || other.is_nan() {
            return Ok((Numeric::NAN, Numeric::NAN));
        }
        if self.is_infinite() {
            if other.is_zero() {
                return Err(division_by_zero());
            }
            let quotient = if other.is_infinite() {
                Numeric::NAN
            } else if self.signum() == other.signum() {
                Numeric::INFINITY
            } else {
                Numeric::NEG_INFINITY
            };
            return Ok((quotient, Numeric::NAN));
        }
        if other.is_infinite() {
            return Ok((Numeric::ZERO, self.clone()));
        }
        let (Some((left, left_scale)), Some((right, right_scale))) = (self.finite(), other.finite()) else {
            return Ok((Numeric::NAN, Numeric::NAN));
        };
        if right.is_zero() {
            return Err(division_by_zero());
        }
        let scale = left_scale.max(right_scale);
        let left = rescale(&left, i64::from(left_scale), i64::from(scale));
        let right = rescale(&right, i64::from(right_scale), i64::from(scale));
        let (quotient, remainder) = left.div_rem(&right);
        Ok((Numeric::from_big(quotient, 0)?, Numeric::from_big(remainder, scale)?))
    }

    /// Quotient cut to an integer.
    pub fn div_trunc(&self, other: &Numeric) -> SqlResult<Numeric> {
        Ok(self.div_rem(other)?.0)
    }

    /// Remainder, with the sign of the dividend.
    pub fn rem(&self, other: &Numeric) -> SqlResult<Numeric> {
        Ok(self.div_rem(other)?.1)
    }

    /// Negation.
    pub fn neg(&self) -> Numeric {
        match self.parts() {
            Parts::Small(coefficient, scale) => match coefficient.checked_neg() {
                Some(negated) => Numeric::new(negated, scale),
                None => Numeric::from_big(-BigInt::from(coefficient), scale).unwrap_or(Numeric::NAN),
            },
            Parts::Big(coefficient, scale) => Numeric::from_big(-coefficient, scale).unwrap_or(Numeric::NAN),
            Parts::NaN => Numeric::NAN,
            Parts::Infinity { negative: true } => Numeric::INFINITY,
            Parts::Infinity { negative: false } => Numeric::NEG_INFINITY,
        }
    }

    /// Absolute value.
    pub fn abs(&self) -> Numeric {
        if self.signum() < 0 { self.neg() } else { self.clone() }
    }

    /// Rounded to a number of digits after the point (before it, if negative), halves away from zero.
    pub fn round(&self, places: i32) -> SqlResult<Numeric> {
        self.to_places(places, divide_rounded)
    }

    /// Cut to a number of digits after the point.
    pub fn trunc(&self, places: i32) -> SqlResult<Numeric> {
        self.to_places(places, |coefficient, power| coefficient / power)
    }

    fn to_places(&self, places: i32, divide: fn(&BigInt, &BigInt) -> BigInt) -> SqlResult<Numeric> {
        let Some((coefficient, scale)) = self.finite() else {
            return Ok(self.clone());
        };
        let places = i64::from(places).clamp(-MAX_INTEGER_DIGITS - 1, MAX_SCALE);
        let shift = i64::from(scale) - places;
        let shown = places.max(0) as u16;
        if shift <= 0 {
            return Numeric::from_big(coefficient.as_ref() * pow10(-shift as u32), shown);
        }
        if shift > digits(&coefficient) + 1 {
            return Ok(Numeric::new(0, shown));
        }
        let kept = divide(&coefficient, &pow10(shift as u32));
        let back = if places < 0 { kept * pow10(-places as u32) } else { kept };
        Numeric::from_big(back, shown)
    }

    /// The smallest integer not below.
    pub fn ceil(&self) -> SqlResult<Numeric> {
        let cut = self.trunc(0)?;
        if cut < *self { cut.add(&Numeric::ONE) } else { Ok(cut) }
    }

    /// The largest integer not above.
    pub fn floor(&self) -> SqlResult<Numeric> {
        let cut = self.trunc(0)?;
        if cut > *self { cut.sub(&Numeric::ONE) } else { Ok(cut) }
    }

    /// The least number of digits after the point that holds the value.
    pub fn min_scale(&self) -> u16 {
        self.trim_scale().scale()
    }

    /// The same value without trailing zeros after the point.
    pub fn trim_scale(&self) -> Numeric {
        match self.parts() {
            Parts::Small(0, _) => Numeric::ZERO,
            Parts::Small(mut coefficient, mut scale) => {
                while scale > 0 && coefficient % 10 == 0 {
                    coefficient /= 10;
                    scale -= 1;
                }
                Numeric::new(coefficient, scale)
            }
            Parts::Big(coefficient, scale) if scale > 0 => {
                let text = coefficient.magnitude().to_str_radix(10);
                let zeros = text.bytes().rev().take_while(|byte| *byte == b'0').count();
                let cut = zeros.min(usize::from(scale)) as u16;
                if cut == 0 {
                    return self.clone();
                }
                Numeric::from_big(coefficient / pow10(u32::from(cut)), scale - cut)
                    .unwrap_or_else(|_| self.clone())
            }
            _ => self.clone(),
        }
    }

    /// Greatest common divisor.
    pub fn gcd(&self, other: &Numeric) -> SqlResult<Numeric> {
        let (Some((left, left_scale)), Some((right, right_scale))) = (self.finite(), other.finite()) else {
            return Ok(Numeric::NAN);
        };
        let scale = left_scale.max(right_scale);
        let left = rescale(&left, i64::from(left_scale), i64::from(scale));
        let right = rescale(&right, i64::from(right_scale), i64::from(scale));
        Numeric::from_big(left.gcd(&right), scale)
    }

    /// Least common multiple.
    pub fn lcm(&self, other: &Numeric) -> SqlResult<Numeric> {
        if !self.is_finite() || !other.is_finite() {
            return Ok(Numeric::NAN);
        }
        let scale = self.scale().max(other.scale());
        if self.is_zero() || other.is_zero() {
            return Ok(Numeric::new(0, scale));
        }
        let divisor = self.gcd(other)?;
        Ok(self.div_trunc(&divisor)?.mul(other)?.abs())
    }

    /// `n!`
    pub fn factorial(n: i64) -> SqlResult<Numeric> {
        if n < 0 {
            return Err(SqlError::new(SqlState::OUT_OF_RANGE, "factorial of a negative number is undefined"));
        }
        // 32177! is the largest within the bounds of the type.
        if n > 32_177 {
            return Err(overflow());
        }
        let product = (2..=n).fold(BigInt::from(1), |product, factor| product * factor);
        Numeric::from_big(product, 0)
    }

    /// Fits the value to `numeric(precision, scale)`: rounds, then fails if it has too many digits.
    pub fn fit(&self, precision: i64, scale: i64) -> SqlResult<Numeric> {
        if self.is_nan() {
            return Ok(Numeric::NAN);
        }
        let too_large = |what: String| {
            SqlError::new(SqlState::OUT_OF_RANGE, "numeric field overflow")
                .with_detail(format!("A field with precision {precision}, scale {scale} {what}."))
        };
        if self.is_infinite() {
            return Err(too_large("cannot hold an infinite value".to_string()));
        }
        if let Some((coefficient, own)) = self.as_small()
            && i64::from(own) == scale
            && coefficient.unsigned_abs().checked_ilog10().is_none_or(|log| i64::from(log) < precision)
        {
            return Ok(self.clone());
        }
        let rounded = self.round(scale.clamp(-1000, 1000) as i32)?;
        let Some((coefficient, own_scale)) = rounded.finite() else {
            return Ok(rounded);
        };
        let whole = precision - scale;
        let used = digits(&coefficient) - i64::from(own_scale);
        if !coefficient.is_zero() && used > whole {
            let limit = match whole {
                0 => "1".to_string(),
                whole => format!("10^{whole}"),
            };
            return Err(too_large(format!("must round to an absolute value less than {limit}")));
        }
        Ok(rounded)
    }
}
