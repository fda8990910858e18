//! Arbitrary-precision decimals as PostgreSQL's `numeric` defines them.
//!
//! A finite value is a coefficient and a display scale: `coefficient / 10^scale`. Coefficients that
//! fit 128 bits are stored in place and take a fast path through every operation; larger ones are big
//! integers behind an `Arc`. Equality, order and hash ignore the scale: `1.0 = 1.00`.
//!
//! Scales of results follow PostgreSQL digit for digit (`select_div_scale` and its kin), because
//! users see them. Bounds: 131072 digits before the point, 16383 after it, else `22003`.
//!
//! # The parts
//!
//! * this file: the representation, conversion from and to machine numbers, order and hash;
//! * `arithmetic`: `+ - * / %`, rounding, integer functions;
//! * `transcendental`: `sqrt`, `exp`, `ln`, `log`, `power`;
//! * `format`: text, binary wire format, key encoding.

mod arithmetic;
mod format;
#[cfg(test)]
mod tests;
mod transcendental;

use crate::error::{SqlError, SqlResult, SqlState};
use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Most digits before the decimal point.
pub const MAX_INTEGER_DIGITS: i64 = 131_072;
/// Most digits after the decimal point.
pub const MAX_SCALE: i64 = 16_383;
/// Most digits after the point of a computed (not exact) result.
pub(crate) const MAX_DISPLAY_SCALE: i64 = 1_000;
/// Significant digits a computed result has at least.
pub(crate) const MIN_SIGNIFICANT_DIGITS: i64 = 16;

/// A decimal number, NaN, or an infinity.
#[derive(Clone)]
pub struct Numeric(Repr);

#[derive(Clone)]
enum Repr {
    /// A 128-bit coefficient in two halves, so that the alignment stays at eight bytes.
    Small {
        high: i64,
        low: u64,
        scale: u16,
    },
    Big(Arc<Big>),
    NaN,
    Infinity,
    NegInfinity,
}

struct Big {
    coefficient: BigInt,
    scale: u16,
}

/// A finite value taken apart, or one of the others.
enum Parts<'a> {
    Small(i128, u16),
    Big(&'a BigInt, u16),
    NaN,
    Infinity { negative: bool },
}

/// `value overflows numeric format`.
#[cold]
pub(crate) fn overflow() -> SqlError {
    SqlError::new(SqlState::OUT_OF_RANGE, "value overflows numeric format")
}

/// 10 to a power, as a big integer.
pub(crate) fn pow10(exponent: u32) -> BigInt {
    match POWERS_OF_TEN.get(exponent as usize) {
        Some(power) => BigInt::from(*power),
        None => num_traits::pow(BigInt::from(10), exponent as usize),
    }
}

/// 10^0 to 10^38: those that fit an `i128`.
pub(crate) static POWERS_OF_TEN: [i128; 39] = {
    let mut table = [1i128; 39];
    let mut index = 1;
    while index < 39 {
        table[index] = table[index - 1] * 10;
        index += 1;
    }
    table
};

/// Number of decimal digits of `|value|`; 0 for zero.
pub(crate) fn digits(value: &BigInt) -> i64 {
    if let Some(small) = value.to_i128() {
        return small.unsigned_abs().checked_ilog10().map_or(0, |digits| i64::from(digits) + 1);
    }
    // bits * log10(2), rounded down, is the number of digits or one less.
    let estimate = ((value.bits() - 1) as u128 * 30_103 / 100_000) as i64;
    let mut count = estimate.max(1);
    let magnitude = value.abs();
    while magnitude >= pow10(count as u32) {
        count += 1;
    }
    count
}

impl Numeric {
    /// 0
    pub const ZERO: Numeric = Numeric(Repr::Small { high: 0, low: 0, scale: 0 });
    /// 1
    pub const ONE: Numeric = Numeric(Repr::Small { high: 0, low: 1, scale: 0 });
    /// NaN
    pub const NAN: Numeric = Numeric(Repr::NaN);
    /// Infinity
    pub const INFINITY: Numeric = Numeric(Repr::Infinity);
    /// -Infinity
    pub const NEG_INFINITY: Numeric = Numeric(Repr::NegInfinity);

    /// `coefficient / 10^scale`.
    pub fn new(coefficient: i128, scale: u16) -> Numeric {
        Numeric(Repr::Small { high: (coefficient >> 64) as i64, low: coefficient as u64, scale })
    }

    /// `coefficient / 10^scale`, within the type's bounds.
    pub fn from_big(coefficient: BigInt, scale: u16) -> SqlResult<Numeric> {
        if let Some(small) = coefficient.to_i128() {
            return Ok(Numeric::new(small, scale));
        }
        let bits = coefficient.bits() as i64;
        let limit = MAX_INTEGER_DIGITS + i64::from(scale);
        // A digit takes a little more than 3.32 bits: only close calls are counted exactly.
        if bits > limit * 33_219 / 10_000 && (bits > limit * 33_300 / 10_000 || digits(&coefficient) > limit)
        {
            return Err(overflow());
        }
        Ok(Numeric(Repr::Big(Arc::new(Big { coefficient, scale }))))
    }

    fn parts(&self) -> Parts<'_> {
        match &self.0 {
            Repr::Small { high, low, scale } => {
                Parts::Small((i128::from(*high) << 64) | i128::from(*low), *scale)
            }
            Repr::Big(big) => Parts::Big(&big.coefficient, big.scale),
            Repr::NaN => Parts::NaN,
            Repr::Infinity => Parts::Infinity { negative: false },
            Repr::NegInfinity => Parts::Infinity { negative: true },
        }
    }

    /// Coefficient and scale of a finite value.
    pub(crate) fn finite(&self) -> Option<(Cow<'_, BigInt>, u16)> {
        match self.parts() {
            Parts::Small(coefficient, scale) => Some((Cow::Owned(BigInt::from(coefficient)), scale)),
            Parts::Big(coefficient, scale) => Some((Cow::Borrowed(coefficient), scale)),
            _ => None,
        }
    }

    /// Coefficient and scale, if the value is finite and the coefficient fits 128 bits.
    pub fn as_small(&self) -> Option<(i128, u16)> {
        match self.parts() {
            Parts::Small(coefficient, scale) => Some((coefficient, scale)),
            _ => None,
        }
    }

    /// Number of digits after the point that are displayed; 0 for NaN and the infinities.
    pub fn scale(&self) -> u16 {
        match self.parts() {
            Parts::Small(_, scale) | Parts::Big(_, scale) => scale,
            _ => 0,
        }
    }

    /// Whether it is NaN.
    pub fn is_nan(&self) -> bool {
        matches!(self.0, Repr::NaN)
    }

    /// Whether it is one of the infinities.
    pub fn is_infinite(&self) -> bool {
        matches!(self.0, Repr::Infinity | Repr::NegInfinity)
    }

    /// Whether it is neither NaN nor infinite.
    pub fn is_finite(&self) -> bool {
        matches!(self.0, Repr::Small { .. } | Repr::Big(_))
    }

    /// Whether it is zero.
    pub fn is_zero(&self) -> bool {
        matches!(self.parts(), Parts::Small(0, _))
    }

    /// -1, 0 or 1; NaN counts as positive.
    pub fn signum(&self) -> i32 {
        match self.parts() {
            Parts::Small(coefficient, _) => coefficient.signum() as i32,
            Parts::Big(coefficient, _) => {
                if coefficient.is_negative() {
                    -1
                } else {
                    1
                }
            }
            Parts::NaN => 1,
            Parts::Infinity { negative } => {
                if negative {
                    -1
                } else {
                    1
                }
            }
        }
    }

    /// Bytes held beyond the value itself.
    pub fn heap_size(&self) -> usize {
        match self.parts() {
            Parts::Big(coefficient, _) => coefficient.bits() as usize / 8 + 48,
            _ => 0,
        }
    }

    /// The nearest integer (halves away from zero), if it fits an `i64`; `None` for NaN and infinities too.
    pub fn to_i64(&self) -> Option<i64> {
        self.to_i128().and_then(|value| i64::try_from(value).ok())
    }

    /// The nearest integer, if it fits an `i128`.
    pub fn to_i128(&self) -> Option<i128> {
        match self.parts() {
            Parts::Small(coefficient, 0) => Some(coefficient),
            Parts::NaN | Parts::Infinity { .. } => None,
            _ => self.round(0).ok()?.finite()?.0.to_i128(),
        }
    }

    /// The nearest double.
    pub fn to_f64(&self) -> f64 {
        match self.parts() {
            Parts::NaN => f64::NAN,
            Parts::Infinity { negative } => {
                if negative {
                    f64::NEG_INFINITY
                } else {
                    f64::INFINITY
                }
            }
            // Both exact in a double, so that one division rounds once.
            Parts::Small(coefficient, scale) if coefficient.unsigned_abs() < 1 << 53 && scale <= 22 => {
                coefficient as f64 / 10f64.powi(i32::from(scale))
            }
            _ => self.to_string().parse().unwrap_or(f64::NAN),
        }
    }

    /// The double with 15 significant digits, as PostgreSQL's cast gives.
    pub fn from_f64(value: f64) -> SqlResult<Numeric> {
        Self::from_float(value, 14)
    }

    /// The float with 6 significant digits, as PostgreSQL's cast gives.
    pub fn from_f32(value: f32) -> SqlResult<Numeric> {
        Self::from_float(f64::from(value), 5)
    }

    fn from_float(value: f64, fraction_digits: usize) -> SqlResult<Numeric> {
        if value.is_nan() {
            return Ok(Numeric::NAN);
        }
        if value.is_infinite() {
            return Ok(if value > 0.0 { Numeric::INFINITY } else { Numeric::NEG_INFINITY });
        }
        let number = Numeric::parse(&format!("{value:.fraction_digits$e}"))?;
        // `%g` drops trailing zeros.
        Ok(number.trim_scale())
    }

    /// The canonical form for hashing: no trailing zero after the point.
    fn canonical(&self) -> Numeric {
        self.trim_scale()
    }
}

impl From<i64> for Numeric {
    fn from(value: i64) -> Self {
        Numeric::new(i128::from(value), 0)
    }
}

impl From<i32> for Numeric {
    fn from(value: i32) -> Self {
        Numeric::new(i128::from(value), 0)
    }
}

impl PartialEq for Numeric {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Numeric {}

impl PartialOrd for Numeric {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Numeric {
    /// NaN equals itself and is larger than everything.
    fn cmp(&self, other: &Self) -> Ordering {
        if let (Parts::Small(left, left_scale), Parts::Small(right, right_scale)) =
            (self.parts(), other.parts())
        {
            if left_scale == right_scale {
                return left.cmp(&right);
            }
            let difference = left_scale.abs_diff(right_scale) as usize;
            if let Some(&power) = POWERS_OF_TEN.get(difference) {
                if left_scale < right_scale {
                    if let Some(left) = left.checked_mul(power) {
                        return left.cmp(&right);
                    }
                } else if let Some(right) = right.checked_mul(power) {
                    return left.cmp(&right);
                }
            }
        }
        match (self.class(), other.class()) {
            (0, 0) => {}
            (left, right) => return left.cmp(&right),
        }
        match self.signum().cmp(&other.signum()) {
            Ordering::Equal => {}
            unequal => return unequal,
        }
        let (Some((left, left_scale)), Some((right, right_scale))) = (self.finite(), other.finite()) else {
            return Ordering::Equal;
        };
        let difference = u32::from(left_scale.abs_diff(right_scale));
        match left_scale.cmp(&right_scale) {
            Ordering::Equal => left.cmp(&right),
            Ordering::Less => (left.as_ref() * pow10(difference)).cmp(&right),
            Ordering::Greater => left.as_ref().cmp(&(right.as_ref() * pow10(difference))),
        }
    }
}

impl Numeric {
    /// Place in the order of -infinity, finite, infinity, NaN.
    fn class(&self) -> i8 {
        match self.0 {
            Repr::NegInfinity => -1,
            Repr::Small { .. } | Repr::Big(_) => 0,
            Repr::Infinity => 1,
            Repr::NaN => 2,
        }
    }
}

impl Hash for Numeric {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let canonical = self.canonical();
        state.write_i8(canonical.class());
        match canonical.parts() {
            Parts::Small(coefficient, scale) => {
                coefficient.hash(state);
                scale.hash(state);
            }
            Parts::Big(coefficient, scale) => {
                coefficient.hash(state);
                scale.hash(state);
            }
            _ => {}
        }
    }
}

impl Default for Numeric {
    fn default() -> Self {
        Numeric::ZERO
    }
}

impl std::fmt::Debug for Numeric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}
