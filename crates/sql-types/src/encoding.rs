//! Keys whose bytes order as the values do, and compact values.
//!
//! # Keys
//!
//! [`encode_key`] writes a value so that encodings compare bytewise as [`crate::compare::compare`]
//! orders the values, and so that concatenated columns order as tuples. A NULL is the single byte
//! `ff`, after everything else; types whose encodings could begin with that byte carry a byte `01`
//! first. A descending column is the ascending encoding inverted, which puts NULLs first. Equal
//! values have equal keys: where equal values can look different ([`key_is_exact`]), the value must
//! be stored in the row as well.
//!
//! # Values
//!
//! [`encode_value`] writes a tag and a payload, as [`kv_api::row`] describes them: KV nodes read them, too. Integers take
//! as many bytes as they need. How a row is made of values is the table's business (crate `sql`).

use crate::datetime::interval_compare_key;
use crate::datum::{ArrayValue, Datum, EnumValue, Interval, RecordField, RecordValue};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::json;
use crate::numeric::Numeric;
use crate::types::Type;
use bytes::{BufMut, Bytes, BytesMut};
use kv_api::encoding as primitive;
use kv_api::row::{integer, tag, take_byte, take_length, take_payload, wide_integer};
use std::sync::Arc;

const KEY_NULL: u8 = 0xff;
const KEY_PRESENT: u8 = 0x01;
/// Before each element of an array in a key, and after the last.
const KEY_ELEMENT: u8 = 0x02;
const KEY_END: u8 = 0x00;

#[cold]
fn corrupt(what: &str) -> SqlError {
    SqlError::new(SqlState::DATA_CORRUPTED, format!("stored {what} cannot be read"))
}

/// Whether a key of this type holds the value wholly, so that [`decode_key`] gives it back as it was:
/// false where equal values can look different (numeric `1.0` and `1.00`, floats' `-0`, intervals).
pub fn key_is_exact(ty: Type) -> bool {
    match ty {
        Type::NUMERIC | Type::FLOAT4 | Type::FLOAT8 | Type::INTERVAL => false,
        ty => ty.element().is_none(),
    }
}

/// Whether values of this type can be key columns.
pub fn is_indexable(ty: Type) -> bool {
    match ty {
        Type::JSON | Type::JSONB | Type::RECORD | Type::VOID | Type::UNKNOWN => false,
        ty => ty.element().is_none_or(is_indexable),
    }
}

/// Appends a key column. Bytes order as the values do; NULLs last ascending, first descending.
pub fn encode_key(value: &Datum, descending: bool, out: &mut BytesMut) -> SqlResult<()> {
    let start = out.len();
    encode_key_ascending(value, out)?;
    if descending {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    Ok(())
}

fn encode_key_ascending(value: &Datum, out: &mut BytesMut) -> SqlResult<()> {
    match value {
        Datum::Null => out.put_u8(KEY_NULL),
        Datum::Bool(value) => out.put_u8(1 + u8::from(*value)),
        Datum::Int2(value) => primitive::encode_i64(i64::from(*value), out),
        Datum::Int4(value) => primitive::encode_i64(i64::from(*value), out),
        Datum::Int8(value) => primitive::encode_i64(*value, out),
        Datum::Oid(value) => primitive::encode_i64(i64::from(*value), out),
        Datum::Enum(value) => primitive::encode_i64(value.rank, out),
        Datum::Date(value) => primitive::encode_i64(i64::from(*value), out),
        Datum::Time(value) | Datum::Timestamp(value) | Datum::Timestamptz(value) => {
            primitive::encode_i64(*value, out);
        }
        Datum::Float4(value) => encode_float(f64::from(*value), out),
        Datum::Float8(value) => encode_float(*value, out),
        Datum::Numeric(value) => value.encode_key(out),
        Datum::Text(value) => primitive::encode_bytes(value.as_bytes(), out),
        Datum::Bytea(value) => {
            out.put_u8(KEY_PRESENT);
            primitive::encode_bytes(value, out);
        }
        Datum::Uuid(value) => {
            out.put_u8(KEY_PRESENT);
            out.put_slice(value);
        }
        Datum::Interval(value) => {
            out.put_u8(KEY_PRESENT);
            // The sign bit inverted makes two's complement order as bytes.
            out.put_u128(interval_compare_key(*value) as u128 ^ (1 << 127));
        }
        Datum::Array(array) => {
            out.put_u8(KEY_PRESENT);
            for value in &array.values {
                out.put_u8(KEY_ELEMENT);
                encode_key_ascending(value, out)?;
            }
            out.put_u8(KEY_END);
            primitive::encode_u64(array.dimensions.len() as u64, out);
            for (length, low) in &array.dimensions {
                primitive::encode_u64(*length as u64, out);
                primitive::encode_i64(i64::from(*low), out);
            }
        }
        Datum::Json(_) | Datum::Jsonb(_) | Datum::Record(_) => {
            return Err(SqlError::unsupported("a key of type json, jsonb or record"));
        }
    }
    Ok(())
}

fn encode_float(value: f64, out: &mut BytesMut) {
    out.put_u8(KEY_PRESENT);
    primitive::encode_f64(value, out);
}

/// Takes a key column off the front of `input`.
pub fn decode_key(ty: Type, descending: bool, input: &mut &[u8]) -> SqlResult<Datum> {
    if !descending {
        return decode_key_ascending(ty, input).ok_or_else(|| corrupt("key"));
    }
    // Inverted in pieces that grow, as a column's length is known only by reading it.
    let mut length = input.len().min(32);
    loop {
        let plain: Vec<u8> = input[..length].iter().map(|byte| !byte).collect();
        let mut rest = plain.as_slice();
        match decode_key_ascending(ty, &mut rest) {
            Some(value) => {
                *input = &input[length - rest.len()..];
                return Ok(value);
            }
            None if length == input.len() => return Err(corrupt("key")),
            None => length = input.len().min(length * 4),
        }
    }
}

fn decode_key_ascending(ty: Type, input: &mut &[u8]) -> Option<Datum> {
    if input.first() == Some(&KEY_NULL) {
        *input = &input[1..];
        return Some(Datum::Null);
    }
    Some(match ty {
        Type::INT4 => Datum::Int4(primitive::decode_i64(input)?.try_into().ok()?),
        Type::INT8 => Datum::Int8(primitive::decode_i64(input)?),
        Type::INT2 => Datum::Int2(primitive::decode_i64(input)?.try_into().ok()?),
        Type::OID | Type::XID | Type::CID => Datum::Oid(primitive::decode_i64(input)?.try_into().ok()?),
        Type::DATE => Datum::Date(primitive::decode_i64(input)?.try_into().ok()?),
        Type::TIME => Datum::Time(primitive::decode_i64(input)?),
        Type::TIMESTAMP => Datum::Timestamp(primitive::decode_i64(input)?),
        Type::TIMESTAMPTZ => Datum::Timestamptz(primitive::decode_i64(input)?),
        Type::BOOL => match take_byte(input)? {
            1 => Datum::Bool(false),
            2 => Datum::Bool(true),
            _ => return None,
        },
        Type::NUMERIC => Datum::Numeric(Numeric::decode_key(input)?),
        Type::FLOAT4 => {
            present(input)?;
            Datum::Float4(primitive::decode_f64(input)? as f32)
        }
        Type::FLOAT8 => {
            present(input)?;
            Datum::Float8(primitive::decode_f64(input)?)
        }
        Type::BYTEA => {
            present(input)?;
            Datum::Bytea(primitive::decode_bytes(input)?.into())
        }
        Type::UUID => {
            present(input)?;
            let (bytes, rest) = input.split_first_chunk::<16>()?;
            *input = rest;
            Datum::Uuid(*bytes)
        }
        Type::INTERVAL => {
            present(input)?;
            let (bytes, rest) = input.split_first_chunk::<16>()?;
            *input = rest;
            let key = (u128::from_be_bytes(*bytes) ^ (1 << 127)) as i128;
            let day = i128::from(crate::datetime::DAY);
            let (days, micros) = (key.div_euclid(day), key.rem_euclid(day));
            // Some interval of that length; the row holds which.
            let (months, days) = (days / 30, days % 30);
            Datum::Interval(Interval {
                months: months.clamp(i128::from(i32::MIN), i128::from(i32::MAX)) as i32,
                days: days as i32,
                micros: micros as i64,
            })
        }
        reg if reg.is_reg() => Datum::Oid(primitive::decode_i64(input)?.try_into().ok()?),
        ty if ty.is_enum() => Datum::Enum(EnumValue { ty, rank: primitive::decode_i64(input)? }),
        array if array.element().is_some() => decode_key_array(array.element()?, input)?,
        _ => Datum::text(String::from_utf8(primitive::decode_bytes(input)?).ok()?),
    })
}

fn present(input: &mut &[u8]) -> Option<()> {
    (take_byte(input)? == KEY_PRESENT).then_some(())
}

fn decode_key_array(element: Type, input: &mut &[u8]) -> Option<Datum> {
    present(input)?;
    let mut values = Vec::new();
    loop {
        match take_byte(input)? {
            KEY_ELEMENT => values.push(decode_key_ascending(element, input)?),
            KEY_END => break,
            _ => return None,
        }
    }
    let count = primitive::decode_u64(input)?;
    if count > crate::array::MAX_DIMENSIONS as u64 {
        return None;
    }
    let mut dimensions = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let length = usize::try_from(primitive::decode_u64(input)?).ok()?;
        dimensions.push((length, primitive::decode_i64(input)?.try_into().ok()?));
    }
    Some(Datum::Array(Arc::new(ArrayValue { element, dimensions, values })))
}

/// Steps over a key column.
pub fn skip_key(ty: Type, descending: bool, input: &mut &[u8]) -> SqlResult<()> {
    decode_key(ty, descending, input).map(drop)
}

fn put_length(length: usize, out: &mut BytesMut) {
    let mut rest = length as u64;
    while rest >= 0x80 {
        out.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

fn put_integer(value: i64, out: &mut BytesMut) {
    // As many bytes as keep the sign; none for zero.
    let length = if value == 0 {
        0
    } else {
        let bits = 65 - if value < 0 { value.leading_ones() } else { value.leading_zeros() };
        bits.div_ceil(8) as usize
    };
    out.put_u8(tag::INTEGER | (length as u8) << 4);
    out.put_slice(&value.to_be_bytes()[8 - length..]);
}

fn put_bytes(bytes: &[u8], out: &mut BytesMut) {
    if bytes.len() < 15 {
        out.put_u8(tag::BYTES | (bytes.len() as u8) << 4);
    } else {
        out.put_u8(tag::BYTES | 0xf0);
        put_length(bytes.len(), out);
    }
    out.put_slice(bytes);
}

fn put_other(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut) -> SqlResult<()>) -> SqlResult<()> {
    let mut body = BytesMut::new();
    write(&mut body)?;
    out.put_u8(tag::OTHER);
    put_length(body.len(), out);
    out.put_slice(&body);
    Ok(())
}

/// Appends a tagged value. Values are self-delimiting.
pub fn encode_value(value: &Datum, out: &mut BytesMut) -> SqlResult<()> {
    match value {
        Datum::Null => out.put_u8(tag::NULL),
        Datum::Bool(value) => out.put_u8(if *value { tag::TRUE } else { tag::FALSE }),
        Datum::Int2(value) => put_integer(i64::from(*value), out),
        Datum::Int4(value) => put_integer(i64::from(*value), out),
        Datum::Int8(value) => put_integer(*value, out),
        Datum::Oid(value) => put_integer(i64::from(*value), out),
        Datum::Enum(value) => put_integer(value.rank, out),
        Datum::Date(value) => put_integer(i64::from(*value), out),
        Datum::Time(value) | Datum::Timestamp(value) | Datum::Timestamptz(value) => put_integer(*value, out),
        Datum::Float4(value) => {
            out.put_u8(tag::FLOAT4);
            out.put_f32(*value);
        }
        Datum::Float8(value) => {
            out.put_u8(tag::FLOAT8);
            out.put_f64(*value);
        }
        Datum::Numeric(value) => match value.as_small() {
            Some((coefficient, scale)) => {
                let bits = 129
                    - if coefficient < 0 { coefficient.leading_ones() } else { coefficient.leading_zeros() };
                let length = bits.div_ceil(8).clamp(1, 16) as usize;
                out.put_u8(tag::NUMERIC | (length as u8 - 1) << 4);
                out.put_u16(scale);
                out.put_slice(&coefficient.to_be_bytes()[16 - length..]);
            }
            None => {
                return put_other(out, |body| {
                    value.encode_binary(body);
                    Ok(())
                });
            }
        },
        Datum::Text(value) | Datum::Json(value) => put_bytes(value.as_bytes(), out),
        Datum::Bytea(value) => put_bytes(value, out),
        Datum::Uuid(value) => {
            out.put_u8(tag::UUID);
            out.put_slice(value);
        }
        Datum::Jsonb(value) => {
            let mut text = String::new();
            json::format(value, &mut text);
            put_bytes(text.as_bytes(), out);
        }
        Datum::Interval(value) => {
            return put_other(out, |body| {
                primitive::encode_i64(i64::from(value.months), body);
                primitive::encode_i64(i64::from(value.days), body);
                primitive::encode_i64(value.micros, body);
                Ok(())
            });
        }
        Datum::Array(array) => {
            return put_other(out, |body| {
                put_length(array.dimensions.len(), body);
                for (length, low) in &array.dimensions {
                    put_length(*length, body);
                    primitive::encode_i64(i64::from(*low), body);
                }
                array.values.iter().try_for_each(|value| encode_value(value, body))
            });
        }
        Datum::Record(record) => {
            return put_other(out, |body| {
                put_length(record.values.len(), body);
                for (index, value) in record.values.iter().enumerate() {
                    put_length(record.field_type(index).0 as usize, body);
                    put_bytes(record.field_name(index).as_bytes(), body);
                    encode_value(value, body)?;
                }
                Ok(())
            });
        }
    }
    Ok(())
}

/// Steps over a tagged value.
pub fn skip_value(input: &mut &[u8]) -> SqlResult<()> {
    take_payload(input).map(drop).ok_or_else(|| corrupt("value"))
}

/// Takes a tagged value of a type off the front of `input`.
pub fn decode_value(ty: Type, input: &mut &[u8]) -> SqlResult<Datum> {
    let (tag, payload) = take_payload(input).ok_or_else(|| corrupt("value"))?;
    decode_payload(ty, tag, payload, 0).ok_or_else(|| corrupt("value"))
}

fn decode_payload(ty: Type, tag: u8, payload: &[u8], depth: usize) -> Option<Datum> {
    if depth > 32 {
        return None;
    }
    Some(match tag {
        tag::NULL => Datum::Null,
        tag::FALSE => Datum::Bool(false),
        tag::TRUE => Datum::Bool(true),
        tag::INTEGER => {
            let value = integer(payload);
            match ty {
                Type::INT4 => Datum::Int4(value.try_into().ok()?),
                Type::INT8 => Datum::Int8(value),
                Type::INT2 => Datum::Int2(value.try_into().ok()?),
                Type::DATE => Datum::Date(value.try_into().ok()?),
                Type::TIME => Datum::Time(value),
                Type::TIMESTAMP => Datum::Timestamp(value),
                Type::TIMESTAMPTZ => Datum::Timestamptz(value),
                ty if ty.is_enum() => Datum::Enum(EnumValue { ty, rank: value }),
                _ => Datum::Oid(value.try_into().ok()?),
            }
        }
        tag::FLOAT4 => Datum::Float4(f32::from_be_bytes(payload.try_into().ok()?)),
        tag::FLOAT8 => Datum::Float8(f64::from_be_bytes(payload.try_into().ok()?)),
        tag::NUMERIC => {
            let (scale, coefficient) = payload.split_first_chunk::<2>()?;
            let scale = u16::from_be_bytes(*scale);
            if i64::from(scale) > crate::numeric::MAX_SCALE {
                return None;
            }
            Datum::Numeric(Numeric::new(wide_integer(coefficient), scale))
        }
        tag::BYTES => match ty {
            Type::BYTEA => Datum::Bytea(Bytes::copy_from_slice(payload)),
            Type::JSON => Datum::Json(std::str::from_utf8(payload).ok()?.into()),
            Type::JSONB => Datum::Jsonb(Arc::new(json::parse(std::str::from_utf8(payload).ok()?).ok()?)),
            _ => Datum::text(std::str::from_utf8(payload).ok()?),
        },
        tag::UUID => Datum::Uuid(payload.try_into().ok()?),
        tag::OTHER => decode_other(ty, payload, depth)?,
        _ => return None,
    })
}

fn decode_other(ty: Type, mut body: &[u8], depth: usize) -> Option<Datum> {
    let input = &mut body;
    match ty {
        Type::NUMERIC => Some(Datum::Numeric(Numeric::decode_binary(input).ok()?)),
        Type::INTERVAL => Some(Datum::Interval(Interval {
            months: primitive::decode_i64(input)?.try_into().ok()?,
            days: primitive::decode_i64(input)?.try_into().ok()?,
            micros: primitive::decode_i64(input)?,
        })),
        Type::RECORD => {
            let count = take_length(input)?;
            let (mut fields, mut values) = (Vec::new(), Vec::new());
            for _ in 0..count {
                let ty = Type(u32::try_from(take_length(input)?).ok()?);
                let (_, name) = take_payload(input)?;
                let (tag, payload) = take_payload(input)?;
                fields.push(RecordField { name: String::from_utf8(name.to_vec()).ok()?, ty });
                values.push(decode_payload(ty, tag, payload, depth + 1)?);
            }
            Some(Datum::Record(Arc::new(RecordValue { fields: Some(fields.into()), values })))
        }
        _ => {
            let element = ty.element()?;
            let count = take_length(input)?;
            if count > crate::array::MAX_DIMENSIONS {
                return None;
            }
            let (mut dimensions, mut total) = (Vec::new(), 1usize);
            for _ in 0..count {
                let length = take_length(input)?;
                total = total.checked_mul(length)?;
                dimensions.push((length, primitive::decode_i64(input)?.try_into().ok()?));
            }
            let total = if count == 0 { 0 } else { total };
            // Every element takes a byte at least.
            if total > input.len() {
                return None;
            }
            let mut values = Vec::with_capacity(total);
            for _ in 0..total {
                let (tag, payload) = take_payload(input)?;
                values.push(decode_payload(element, tag, payload, depth + 1)?);
            }
            Some(Datum::Array(Arc::new(ArrayValue { element, dimensions, values })))
        }
    }
}

#[cfg(test)]
#[path = "encoding_tests.rs"]
mod tests;
