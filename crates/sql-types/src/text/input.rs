//! Input functions: from text to values.

use super::{invalid_syntax, names};
use crate::cast::apply_typmod;
use crate::context::TextContext;
use crate::datum::{ArrayValue, Datum, EnumValue};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::numeric::Numeric;
use crate::types::{ColumnType, Type};
use crate::{array, datetime, json, jsonpath};
use bytes::Bytes;
use std::sync::Arc;

/// Reads a value of a type from its text form, fitting it to the type's modifier as assignment does.
pub fn parse(ty: ColumnType, text: &str, context: &TextContext<'_>) -> SqlResult<Datum> {
    let typmod = ty.typmod;
    Ok(match ty.ty {
        Type::INT4 => Datum::Int4(parse_int(text, "integer")?),
        Type::INT8 => Datum::Int8(parse_int(text, "bigint")?),
        Type::INT2 => Datum::Int2(parse_int(text, "smallint")?),
        Type::TEXT | Type::UNKNOWN | Type::CSTRING | Type::PG_NODE_TREE => {
            check_text(text)?;
            Datum::text(text)
        }
        Type::VARCHAR | Type::BPCHAR => {
            check_text(text)?;
            apply_typmod(Datum::text(text), ty, false)?
        }
        Type::NAME => {
            check_text(text)?;
            Datum::text(truncate_name(text))
        }
        Type::CHAR => Datum::text(first_char(text)),
        Type::BOOL => Datum::Bool(parse_bool(text).ok_or_else(|| invalid_syntax("boolean", text))?),
        Type::FLOAT8 => Datum::Float8(parse_float8(text)?),
        Type::FLOAT4 => Datum::Float4(parse_float4(text)?),
        Type::NUMERIC => apply_typmod(Datum::Numeric(Numeric::parse(text)?), ty, false)?,
        Type::BYTEA => Datum::Bytea(parse_bytea(text)?),
        Type::DATE => Datum::Date(datetime::parse_date(text, context)?),
        Type::TIME => Datum::Time(datetime::parse_time(text, typmod, context)?),
        Type::TIMESTAMP => Datum::Timestamp(datetime::parse_timestamp(text, typmod, context)?),
        Type::TIMESTAMPTZ => Datum::Timestamptz(datetime::parse_timestamptz(text, typmod, context)?),
        Type::INTERVAL => Datum::Interval(datetime::parse_interval(text, typmod)?),
        Type::UUID => Datum::Uuid(parse_uuid(text).ok_or_else(|| invalid_syntax("uuid", text))?),
        Type::JSON => {
            check_text(text)?;
            json::validate(text)?;
            Datum::Json(Arc::from(text))
        }
        Type::JSONB => Datum::Jsonb(Arc::new(json::parse(text)?)),
        Type::OID | Type::XID | Type::CID => Datum::Oid(parse_oid(text, ty.ty)?),
        Type::XID8 => Datum::text(parse_u64(text, "xid8")?.to_string()),
        Type::INT2VECTOR | Type::OIDVECTOR => parse_vector(ty.ty, text)?,
        Type::INET => Datum::text(parse_inet(text)?),
        Type::JSONPATH => Datum::text(jsonpath::parse(text)?.to_string()),
        Type::RECORD => {
            return Err(SqlError::unsupported("input of anonymous composite types"));
        }
        Type::VOID => Datum::text(""),
        reg if reg.is_reg() => Datum::Oid(names::parse(reg, text, context)?),
        other => match other.element() {
            Some(element) => {
                Datum::Array(Arc::new(array::parse(ColumnType { ty: element, typmod }, text, context)?))
            }
            None if other.is_enum() => Datum::Enum(parse_enum(other, text, context)?),
            None if other.info().is_none() => Datum::text(text),
            None if matches!(other, Type::TID | Type::PG_LSN | Type::ACLITEM) => Datum::text(text),
            None => {
                return Err(SqlError::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    format!("cannot accept a value of type {other}"),
                ));
            }
        },
    })
}

/// Reads a label of an enum type.
pub(crate) fn parse_enum(ty: Type, text: &str, context: &TextContext<'_>) -> SqlResult<EnumValue> {
    context.catalog.enum_value(ty, text).ok_or_else(|| {
        let name = context.catalog.type_name(ty).unwrap_or_else(|| ty.to_string());
        SqlError::new(SqlState::INVALID_TEXT, format!("invalid input value for enum {name}: \"{text}\""))
    })
}

/// Text cannot hold a zero byte.
fn check_text(text: &str) -> SqlResult<()> {
    if text.as_bytes().contains(&0) {
        return Err(SqlError::new(
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
            "invalid byte sequence for encoding \"UTF8\": 0x00",
        ));
    }
    Ok(())
}

/// A name holds 63 bytes.
pub(crate) fn truncate_name(text: &str) -> &str {
    let mut end = text.len().min(63);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// "char" holds one byte; of a longer character it holds none.
pub(crate) fn first_char(text: &str) -> &str {
    text.get(..1).unwrap_or("")
}

fn is_blank(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\x0b'
}

/// Reads an integer; `ty` is for messages.
pub fn parse_int<T: TryFrom<i64>>(text: &str, ty: &str) -> SqlResult<T> {
    let body = text.trim_matches(is_blank);
    let digits = body.strip_prefix(['-', '+']).unwrap_or(body);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid_syntax(ty, text));
    }
    body.parse::<i64>().ok().and_then(|value| T::try_from(value).ok()).ok_or_else(|| out_of_range(text, ty))
}

#[cold]
fn out_of_range(text: &str, ty: &str) -> SqlError {
    SqlError::new(SqlState::OUT_OF_RANGE, format!("value \"{text}\" is out of range for type {ty}"))
}

fn parse_u64(text: &str, ty: &str) -> SqlResult<u64> {
    text.trim_matches(is_blank).parse().map_err(|_| invalid_syntax(ty, text))
}

pub(super) fn parse_oid(text: &str, ty: Type) -> SqlResult<u32> {
    let ty = ty.to_string();
    let body = text.trim_matches(is_blank);
    let digits = body.strip_prefix(['-', '+']).unwrap_or(body);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid_syntax(&ty, text));
    }
    let value: i64 = body.parse().map_err(|_| out_of_range(text, &ty))?;
    // Negative numbers wrap around, as they do in C.
    u32::try_from(value)
        .or_else(|_| i32::try_from(value).map(|value| value as u32))
        .map_err(|_| out_of_range(text, &ty))
}

/// `true`, `t`, `yes`, `on`, `1` and unique prefixes, and their opposites.
pub fn parse_bool(text: &str) -> Option<bool> {
    let word = text.trim_matches(is_blank).to_ascii_lowercase();
    if word.is_empty() {
        return None;
    }
    if "true".starts_with(&word) || "yes".starts_with(&word) || word == "on" || word == "1" {
        return Some(true);
    }
    let off = word.len() >= 2 && "off".starts_with(&word);
    ("false".starts_with(&word) || "no".starts_with(&word) || off || word == "0").then_some(false)
}

fn float_body(text: &str) -> Option<&str> {
    let body = text.trim_matches(is_blank);
    let unsigned = body.strip_prefix(['-', '+']).unwrap_or(body);
    if unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        // Rust reads neither hexadecimal nor anything else C's strtod adds.
        return Some(body);
    }
    ["inf", "infinity", "nan"].iter().any(|word| unsigned.eq_ignore_ascii_case(word)).then_some(body)
}

/// Whether decimal text is not zero: what rounds to zero is out of range.
fn has_nonzero_digit(text: &str) -> bool {
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    mantissa.bytes().any(|byte| (b'1'..=b'9').contains(&byte))
}

/// Reads a double.
pub fn parse_float8(text: &str) -> SqlResult<f64> {
    let invalid = || invalid_syntax("double precision", text);
    let body = float_body(text).ok_or_else(invalid)?;
    let value: f64 = body.parse().map_err(|_| invalid())?;
    let digits = body.bytes().any(|byte| byte.is_ascii_digit());
    if digits && (value.is_infinite() || (value == 0.0 && has_nonzero_digit(body))) {
        return Err(SqlError::new(
            SqlState::OUT_OF_RANGE,
            format!("\"{body}\" is out of range for type double precision"),
        ));
    }
    Ok(value)
}

/// Reads a float.
pub fn parse_float4(text: &str) -> SqlResult<f32> {
    let invalid = || invalid_syntax("real", text);
    let body = float_body(text).ok_or_else(invalid)?;
    let value: f32 = body.parse().map_err(|_| invalid())?;
    let digits = body.bytes().any(|byte| byte.is_ascii_digit());
    if digits && (value.is_infinite() || (value == 0.0 && has_nonzero_digit(body))) {
        return Err(SqlError::new(
            SqlState::OUT_OF_RANGE,
            format!("\"{body}\" is out of range for type real"),
        ));
    }
    Ok(value)
}

/// Reads bytes in hex (`\x0123`) or escape format.
pub fn parse_bytea(text: &str) -> SqlResult<Bytes> {
    if let Some(hex) = text.strip_prefix("\\x") {
        return decode_hex(hex);
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte != b'\\' {
            out.push(byte);
            at += 1;
            continue;
        }
        let octal = |offset: usize, max: u8| {
            bytes
                .get(at + offset)
                .filter(|byte| (b'0'..=max).contains(byte))
                .map(|byte| u32::from(byte - b'0'))
        };
        if bytes.get(at + 1) == Some(&b'\\') {
            out.push(b'\\');
            at += 2;
        } else if let (Some(high), Some(middle), Some(low)) = (octal(1, b'3'), octal(2, b'7'), octal(3, b'7'))
        {
            out.push((high * 64 + middle * 8 + low) as u8);
            at += 4;
        } else {
            return Err(SqlError::new(SqlState::INVALID_TEXT, "invalid input syntax for type bytea"));
        }
    }
    Ok(out.into())
}

/// Reads pairs of hexadecimal digits, with blanks between the pairs.
pub(crate) fn decode_hex(text: &str) -> SqlResult<Bytes> {
    let bad = |byte: char| {
        SqlError::new(SqlState::INVALID_PARAMETER, format!("invalid hexadecimal digit: \"{byte}\""))
    };
    let mut out = Vec::with_capacity(text.len() / 2);
    let mut chars = text.chars();
    while let Some(high) = chars.next() {
        if matches!(high, ' ' | '\n' | '\t' | '\r') {
            continue;
        }
        let high_digit = high.to_digit(16).ok_or_else(|| bad(high))?;
        let Some(low) = chars.next() else {
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER,
                "invalid hexadecimal data: odd number of digits",
            ));
        };
        let low_digit = low.to_digit(16).ok_or_else(|| bad(low))?;
        out.push((high_digit * 16 + low_digit) as u8);
    }
    Ok(out.into())
}

/// Reads a UUID: 32 hexadecimal digits, possibly in braces, with hyphens after any group of four.
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let body = match text.strip_prefix('{') {
        Some(inner) => inner.strip_suffix('}')?,
        None => text,
    };
    let bytes = body.as_bytes();
    let mut out = [0; 16];
    let mut at = 0;
    for (index, target) in out.iter_mut().enumerate() {
        let digit = |at: usize| bytes.get(at).and_then(|byte| (*byte as char).to_digit(16));
        *target = (digit(at)? * 16 + digit(at + 1)?) as u8;
        at += 2;
        if index % 2 == 1 && index < 15 && bytes.get(at) == Some(&b'-') {
            at += 1;
        }
    }
    (at == bytes.len()).then_some(out)
}

fn parse_vector(ty: Type, text: &str) -> SqlResult<Datum> {
    let oids = ty == Type::OIDVECTOR;
    let element = if oids { Type::OID } else { Type::INT2 };
    let values = text
        .split_ascii_whitespace()
        .map(|part| {
            Ok(if oids {
                Datum::Oid(parse_oid(part, Type::OID)?)
            } else {
                Datum::Int2(parse_int(part, "smallint")?)
            })
        })
        .collect::<SqlResult<Vec<_>>>()?;
    // These count from 0.
    let dimensions = if values.is_empty() { Vec::new() } else { vec![(values.len(), 0)] };
    Ok(Datum::Array(Arc::new(ArrayValue { element, dimensions, values })))
}

/// An address with an optional prefix length, in canonical form.
fn parse_inet(text: &str) -> SqlResult<String> {
    let bad = || invalid_syntax("inet", text);
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| bad())?)),
        None => (text, None),
    };
    let address: std::net::IpAddr = address.parse().map_err(|_| bad())?;
    let full = if address.is_ipv4() { 32 } else { 128 };
    match bits {
        Some(bits) if bits > full => Err(bad()),
        Some(bits) if bits < full => Ok(format!("{address}/{bits}")),
        _ => Ok(address.to_string()),
    }
}
