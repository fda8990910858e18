//! Text form, binary wire format and key encoding of numerics.

use super::{MAX_INTEGER_DIGITS, MAX_SCALE, Numeric, POWERS_OF_TEN, Parts, overflow, pow10};
use crate::error::{SqlError, SqlResult, SqlState};
use bytes::{BufMut, BytesMut};
use num_bigint::{BigInt, Sign};
use std::fmt;

const SIGN_NEGATIVE: u16 = 0x4000;
const SIGN_NAN: u16 = 0xc000;
const SIGN_INFINITY: u16 = 0xd000;
const SIGN_NEG_INFINITY: u16 = 0xf000;

fn invalid(text: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_TEXT, format!("invalid input syntax for type numeric: \"{text}\""))
}

impl Numeric {
    /// Reads PostgreSQL's text form.
    pub fn parse(text: &str) -> SqlResult<Numeric> {
        let body = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
        let (negative, unsigned) = match body.as_bytes().first() {
            Some(b'-') => (true, &body[1..]),
            Some(b'+') => (false, &body[1..]),
            _ => (false, body),
        };
        if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return match unsigned.to_ascii_lowercase().as_str() {
                "nan" if unsigned.len() == body.len() => Ok(Numeric::NAN),
                "inf" | "infinity" if negative => Ok(Numeric::NEG_INFINITY),
                "inf" | "infinity" => Ok(Numeric::INFINITY),
                _ => Err(invalid(text)),
            };
        }
        Self::parse_finite(unsigned, negative).unwrap_or_else(|| Err(invalid(text)))
    }

    /// `None` if the syntax is wrong.
    fn parse_finite(unsigned: &str, negative: bool) -> Option<SqlResult<Numeric>> {
        let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
            Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
            None => (unsigned, None),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
            return None;
        }
        let exponent = match exponent {
            None => 0,
            Some(text) => {
                let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
                if digits.is_empty() || !all_digits(digits) {
                    return None;
                }
                let magnitude = digits.parse::<i64>().unwrap_or(i64::MAX).min(1 << 31);
                if text.starts_with('-') { -magnitude } else { magnitude }
            }
        };
        let scale = fraction.len() as i64 - exponent;
        let significant = whole.trim_start_matches('0');
        if scale > MAX_SCALE
            || (significant.len() as i64 + exponent > MAX_INTEGER_DIGITS && exponent < 0)
            || exponent > MAX_INTEGER_DIGITS + MAX_SCALE
            || significant.len() > 2 * MAX_INTEGER_DIGITS as usize
        {
            return Some(Err(overflow()));
        }
        let zeros = (-scale).max(0) as u32;
        let scale = scale.max(0) as u16;
        let length = significant.len() + fraction.len();
        if length + zeros as usize <= 38 {
            let digits = significant.bytes().chain(fraction.bytes()).map(|byte| byte - b'0');
            let mut value = if length <= 18 {
                i128::from(digits.fold(0, |value, digit| value * 10 + i64::from(digit)))
            } else {
                digits.fold(0, |value, digit| value * 10 + i128::from(digit))
            };
            value *= POWERS_OF_TEN[zeros as usize];
            return Some(Ok(Numeric::new(if negative { -value } else { value }, scale)));
        }
        let joined = [significant, fraction].concat();
        let value = BigInt::parse_bytes(joined.as_bytes(), 10)?;
        if num_traits::Zero::is_zero(&value) {
            return Some(Ok(Numeric::new(0, scale)));
        }
        let value = value * pow10(zeros);
        Some(Numeric::from_big(if negative { -value } else { value }, scale))
    }

    /// Appends the binary wire format.
    pub fn encode_binary(&self, out: &mut BytesMut) {
        let special = |sign: u16, out: &mut BytesMut| {
            out.put_slice(&[0, 0, 0, 0]);
            out.put_u16(sign);
            // The infinities show a bit of PostgreSQL's own layout here.
            out.put_u16(if sign == SIGN_NAN { 0 } else { 0x20 });
        };
        let (negative, scale, text) = match self.parts() {
            Parts::NaN => return special(SIGN_NAN, out),
            Parts::Infinity { negative: false } => return special(SIGN_INFINITY, out),
            Parts::Infinity { negative: true } => return special(SIGN_NEG_INFINITY, out),
            Parts::Small(value, scale) => (value < 0, scale, value.unsigned_abs().to_string()),
            Parts::Big(value, scale) => {
                (value.sign() == Sign::Minus, scale, value.magnitude().to_str_radix(10))
            }
        };
        let (mut groups, mut weight) = base_groups(&text, usize::from(scale), 4);
        let leading = groups.iter().take_while(|group| **group == 0).count();
        groups.drain(..leading);
        weight -= leading as i64;
        while groups.last() == Some(&0) {
            groups.pop();
        }
        if groups.is_empty() {
            weight = 0;
        }
        out.put_i16(groups.len() as i16);
        out.put_i16(weight as i16);
        out.put_u16(if negative && !groups.is_empty() { SIGN_NEGATIVE } else { 0 });
        out.put_u16(scale);
        for group in groups {
            out.put_u16(group);
        }
    }

    /// Reads the binary wire format.
    pub fn decode_binary(bytes: &[u8]) -> SqlResult<Numeric> {
        let bad = |what: &str| {
            SqlError::new(SqlState::INVALID_BINARY, format!("invalid {what} in external \"numeric\" value"))
        };
        let words: Vec<u16> =
            bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        let [count, weight, sign, scale, groups @ ..] = words.as_slice() else {
            return Err(bad("length"));
        };
        if !bytes.len().is_multiple_of(2) || groups.len() != usize::from(*count) {
            return Err(bad("length"));
        }
        match *sign {
            SIGN_NAN => return Ok(Numeric::NAN),
            SIGN_INFINITY => return Ok(Numeric::INFINITY),
            SIGN_NEG_INFINITY => return Ok(Numeric::NEG_INFINITY),
            0 | SIGN_NEGATIVE => {}
            _ => return Err(bad("sign")),
        }
        if i64::from(*scale) > MAX_SCALE {
            return Err(bad("scale"));
        }
        let mut text = String::with_capacity(groups.len() * 4);
        for group in groups {
            if *group > 9999 {
                return Err(bad("digit"));
            }
            text.push_str(&format!("{group:04}"));
        }
        if text.is_empty() {
            return Ok(Numeric::new(0, *scale));
        }
        // The digits end 4 * (count - 1 - weight) places after the point; those beyond the scale are cut.
        let weight = i64::from(*weight as i16);
        let places = 4 * (groups.len() as i64 - 1 - weight);
        let value = BigInt::parse_bytes(text.as_bytes(), 10).ok_or_else(|| bad("digit"))?;
        let shift = i64::from(*scale) - places;
        let value = if shift >= 0 { value * pow10(shift as u32) } else { value / pow10(-shift as u32) };
        let value = if *sign == SIGN_NEGATIVE { -value } else { value };
        Numeric::from_big(value, *scale)
    }

    /// Appends a key whose bytes order as the values do: a class, then for nonzero numbers the weight
    /// in groups of two digits and the groups plus one, ended by a zero; inverted for negative ones.
    /// Equal values have equal keys, so the display scale is not in them.
    pub fn encode_key(&self, out: &mut BytesMut) {
        let (negative, scale, text) = match self.parts() {
            Parts::Infinity { negative: true } => return out.put_u8(KEY_NEG_INFINITY),
            Parts::Small(0, _) => return out.put_u8(KEY_ZERO),
            Parts::Infinity { negative: false } => return out.put_u8(KEY_INFINITY),
            Parts::NaN => return out.put_u8(KEY_NAN),
            Parts::Small(value, scale) => (value < 0, scale, value.unsigned_abs().to_string()),
            Parts::Big(value, scale) => {
                (value.sign() == Sign::Minus, scale, value.magnitude().to_str_radix(10))
            }
        };
        let (groups, weight) = base_groups(&text, usize::from(scale), 2);
        let leading = groups.iter().take_while(|group| **group == 0).count();
        let end = groups.iter().rposition(|group| *group != 0).map_or(leading, |last| last + 1);
        out.put_u8(if negative { KEY_NEGATIVE } else { KEY_POSITIVE });
        let start = out.len();
        kv_api::encoding::encode_i64(weight - leading as i64, out);
        for group in &groups[leading..end] {
            out.put_u8(*group as u8 + 1);
        }
        out.put_u8(0);
        if negative {
            out[start..].iter_mut().for_each(|byte| *byte = !*byte);
        }
    }

    /// Takes a key off the front of `input`; `None` if it is none.
    pub fn decode_key(input: &mut &[u8]) -> Option<Numeric> {
        let (&class, rest) = input.split_first()?;
        *input = rest;
        let negative = match class {
            KEY_NEG_INFINITY => return Some(Numeric::NEG_INFINITY),
            KEY_ZERO => return Some(Numeric::ZERO),
            KEY_INFINITY => return Some(Numeric::INFINITY),
            KEY_NAN => return Some(Numeric::NAN),
            KEY_NEGATIVE => true,
            KEY_POSITIVE => false,
            _ => return None,
        };
        let mask = if negative { 0xff } else { 0 };
        // The weight takes nine bytes at most.
        let head: Vec<u8> = input.iter().take(9).map(|byte| byte ^ mask).collect();
        let mut cursor = head.as_slice();
        let weight = kv_api::encoding::decode_i64(&mut cursor)?;
        let used = head.len() - cursor.len();
        let digits = input.get(used..)?;
        let end = digits.iter().position(|byte| byte ^ mask == 0)?;
        let mut text = String::with_capacity(end * 2);
        for byte in &digits[..end] {
            let group = (byte ^ mask).checked_sub(1).filter(|group| *group < 100)?;
            text.push((b'0' + group / 10) as char);
            text.push((b'0' + group % 10) as char);
        }
        *input = &digits[end + 1..];
        if weight.abs() > MAX_INTEGER_DIGITS {
            return None;
        }
        let scale = 2 * (end as i64 - 1 - weight);
        let value = BigInt::parse_bytes(text.as_bytes(), 10)?;
        let value = if scale < 0 { value * pow10(-scale as u32) } else { value };
        let scale = u16::try_from(scale.max(0)).ok()?;
        let number = Numeric::from_big(if negative { -value } else { value }, scale).ok()?;
        Some(number.trim_scale())
    }
}

const KEY_NEG_INFINITY: u8 = 0x10;
const KEY_NEGATIVE: u8 = 0x20;
const KEY_ZERO: u8 = 0x30;
const KEY_POSITIVE: u8 = 0x40;
const KEY_INFINITY: u8 = 0x50;
const KEY_NAN: u8 = 0x60;

/// Splits the digits of a coefficient into groups of `size` digits that are aligned to the point.
/// Returns them with the weight of the first: 0 for the group left of the point.
fn base_groups(text: &str, scale: usize, size: usize) -> (Vec<u16>, i64) {
    let bytes = text.as_bytes();
    let whole = bytes.len() as i64 - scale as i64;
    let first_weight = (whole - 1).div_euclid(size as i64);
    // Position of the first group's first digit, relative to the first digit there is.
    let mut at = whole - (first_weight + 1) * size as i64;
    let mut groups = Vec::with_capacity(bytes.len() / size + 2);
    while at < bytes.len() as i64 {
        let mut group = 0;
        for offset in 0..size as i64 {
            let index = at + offset;
            let digit = usize::try_from(index).ok().and_then(|index| bytes.get(index));
            group = group * 10 + digit.map_or(0, |digit| u16::from(digit - b'0'));
        }
        groups.push(group);
        at += size as i64;
    }
    (groups, first_weight)
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (negative, scale, text) = match self.parts() {
            Parts::NaN => return f.write_str("NaN"),
            Parts::Infinity { negative: false } => return f.write_str("Infinity"),
            Parts::Infinity { negative: true } => return f.write_str("-Infinity"),
            Parts::Small(value, 0) => return write!(f, "{value}"),
            Parts::Small(value, scale) => (value < 0, usize::from(scale), value.unsigned_abs().to_string()),
            Parts::Big(value, scale) => {
                (value.sign() == Sign::Minus, usize::from(scale), value.magnitude().to_str_radix(10))
            }
        };
        if negative {
            f.write_str("-")?;
        }
        if scale == 0 {
            return f.write_str(&text);
        }
        match text.len().checked_sub(scale) {
            Some(whole) if whole > 0 => write!(f, "{}.{}", &text[..whole], &text[whole..]),
            _ => write!(f, "0.{text:0>scale$}"),
        }
    }
}
