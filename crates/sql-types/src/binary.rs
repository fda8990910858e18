//! PostgreSQL's binary wire format of every type.

use crate::datum::{ArrayValue, Datum, Interval};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::numeric::Numeric;
use crate::text;
use crate::types::{ColumnType, Type};
use crate::{array, context::TextContext, datetime, json};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::sync::Arc;

#[cold]
fn malformed(ty: Type) -> SqlError {
    SqlError::new(SqlState::INVALID_BINARY, format!("incorrect binary data format for type {ty}"))
}

fn exact<const N: usize>(ty: Type, bytes: &[u8]) -> SqlResult<[u8; N]> {
    bytes.try_into().map_err(|_| malformed(ty))
}

fn utf8(bytes: &[u8]) -> SqlResult<&str> {
    let bad = |what: String| {
        SqlError::new(
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
            format!("invalid byte sequence for encoding \"UTF8\": {what}"),
        )
    };
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        bad(bytes.get(at).map_or_else(String::new, |byte| format!("0x{byte:02x}")))
    })?;
    if text.as_bytes().contains(&0) { Err(bad("0x00".to_string())) } else { Ok(text) }
}

/// Reads a value of a type from its binary form.
pub fn decode(ty: Type, bytes: &[u8], context: &TextContext<'_>) -> SqlResult<Datum> {
    Ok(match ty {
        Type::BOOL => Datum::Bool(exact::<1>(ty, bytes)?[0] != 0),
        Type::INT2 => Datum::Int2(i16::from_be_bytes(exact(ty, bytes)?)),
        Type::INT4 => Datum::Int4(i32::from_be_bytes(exact(ty, bytes)?)),
        Type::INT8 => Datum::Int8(i64::from_be_bytes(exact(ty, bytes)?)),
        Type::FLOAT4 => Datum::Float4(f32::from_be_bytes(exact(ty, bytes)?)),
        Type::FLOAT8 => Datum::Float8(f64::from_be_bytes(exact(ty, bytes)?)),
        Type::NUMERIC => Datum::Numeric(Numeric::decode_binary(bytes)?),
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::UNKNOWN | Type::CSTRING | Type::PG_NODE_TREE => {
            Datum::text(utf8(bytes)?)
        }
        Type::NAME | Type::CHAR => text::parse(ColumnType::plain(ty), utf8(bytes)?, &TextContext::plain())?,
        Type::BYTEA => Datum::Bytea(Bytes::copy_from_slice(bytes)),
        Type::DATE => {
            let days = i32::from_be_bytes(exact(ty, bytes)?);
            if !datetime::is_infinite_date(days) {
                datetime::check_date(i64::from(days))?;
            }
            Datum::Date(days)
        }
        Type::TIME => {
            let micros = i64::from_be_bytes(exact(ty, bytes)?);
            if !(0..=datetime::DAY).contains(&micros) {
                return Err(datetime::out_of_range("time"));
            }
            Datum::Time(micros)
        }
        Type::TIMESTAMP => Datum::Timestamp(decode_timestamp(ty, bytes)?),
        Type::TIMESTAMPTZ => Datum::Timestamptz(decode_timestamp(ty, bytes)?),
        Type::INTERVAL => {
            let mut bytes = &exact::<16>(ty, bytes)?[..];
            let (micros, days, months) = (bytes.get_i64(), bytes.get_i32(), bytes.get_i32());
            Datum::Interval(Interval { months, days, micros })
        }
        Type::UUID => Datum::Uuid(exact(ty, bytes)?),
        Type::JSON => {
            let text = utf8(bytes)?;
            json::validate(text)?;
            Datum::Json(Arc::from(text))
        }
        Type::JSONB => match bytes.split_first() {
            Some((1, text)) => Datum::Jsonb(Arc::new(json::parse(utf8(text)?)?)),
            Some((version, _)) => {
                return Err(SqlError::internal(format!("unsupported jsonb version number {version}")));
            }
            None => return Err(malformed(ty)),
        },
        Type::OID | Type::XID | Type::CID => Datum::Oid(u32::from_be_bytes(exact(ty, bytes)?)),
        Type::XID8 | Type::PG_LSN => Datum::text(u64::from_be_bytes(exact(ty, bytes)?).to_string()),
        Type::JSONPATH => match bytes.split_first() {
            Some((1, text)) => Datum::text(crate::jsonpath::parse(utf8(text)?)?.to_string()),
            Some((version, _)) => {
                return Err(SqlError::internal(format!("unsupported jsonpath version number: {version}")));
            }
            None => return Err(malformed(ty)),
        },
        Type::INET => Datum::text(decode_inet(bytes).ok_or_else(|| malformed(ty))?),
        Type::VOID => Datum::text(""),
        reg if reg.is_reg() => Datum::Oid(u32::from_be_bytes(exact(ty, bytes)?)),
        other if other.element().is_some() => decode_array(other, bytes, context)?,
        other if other.is_enum() => Datum::Enum(text::parse_enum(other, utf8(bytes)?, context)?),
        other if other.info().is_none() => Datum::text(utf8(bytes)?),
        other => {
            return Err(SqlError::new(
                SqlState::UNDEFINED_FUNCTION,
                format!("no binary input function available for type {other}"),
            ));
        }
    })
}

fn decode_timestamp(ty: Type, bytes: &[u8]) -> SqlResult<i64> {
    let micros = i64::from_be_bytes(exact(ty, bytes)?);
    if datetime::is_infinite_timestamp(micros) { Ok(micros) } else { datetime::check_timestamp(micros) }
}

fn decode_array(ty: Type, mut bytes: &[u8], context: &TextContext<'_>) -> SqlResult<Datum> {
    let bad = || malformed(ty);
    let element = ty.element().ok_or_else(bad)?;
    if bytes.len() < 12 {
        return Err(bad());
    }
    let count = bytes.get_i32();
    let _has_nulls = bytes.get_i32();
    let sent_element = Type(bytes.get_u32());
    if !(0..=array::MAX_DIMENSIONS as i32).contains(&count) {
        return Err(SqlError::new(
            SqlState::PROGRAM_LIMIT,
            format!(
                "number of array dimensions ({count}) exceeds the maximum allowed ({})",
                array::MAX_DIMENSIONS
            ),
        ));
    }
    if sent_element != element {
        return Err(SqlError::new(
            SqlState::DATATYPE_MISMATCH,
            format!(
                "binary data has array element type {} instead of expected {}",
                sent_element.0, element.0
            ),
        ));
    }
    let mut dimensions = Vec::new();
    let mut total = 1usize;
    for _ in 0..count {
        if bytes.len() < 8 {
            return Err(bad());
        }
        let (length, low) = (bytes.get_i32(), bytes.get_i32());
        let length = usize::try_from(length).map_err(|_| bad())?;
        low.checked_add(length.min(i32::MAX as usize) as i32).ok_or_else(bad)?;
        total = total
            .checked_mul(length)
            .filter(|total| *total <= array::MAX_ELEMENTS)
            .ok_or_else(array::too_large)?;
        dimensions.push((length, low));
    }
    if count == 0 || total == 0 {
        return Ok(Datum::Array(Arc::new(ArrayValue {
            element,
            dimensions: Vec::new(),
            values: Vec::new(),
        })));
    }
    // Each element takes four bytes at least: a lying header reserves nothing.
    let mut values = Vec::with_capacity(total.min(bytes.len() / 4));
    for _ in 0..total {
        if bytes.len() < 4 {
            return Err(bad());
        }
        let length = bytes.get_i32();
        if length == -1 {
            values.push(Datum::Null);
            continue;
        }
        let length = usize::try_from(length).ok().filter(|length| *length <= bytes.len()).ok_or_else(bad)?;
        values.push(decode(element, &bytes[..length], context)?);
        bytes.advance(length);
    }
    if !bytes.is_empty() {
        return Err(bad());
    }
    Ok(Datum::Array(Arc::new(ArrayValue { element, dimensions, values })))
}

/// Family, prefix length, whether it is a cidr, length of the address, address.
fn decode_inet(bytes: &[u8]) -> Option<String> {
    let [_, bits, _, length, address @ ..] = bytes else { return None };
    let (address, full) = match (*length, address.len()) {
        (4, 4) => (std::net::IpAddr::from(<[u8; 4]>::try_from(address).ok()?), 32),
        (16, 16) => (std::net::IpAddr::from(<[u8; 16]>::try_from(address).ok()?), 128),
        _ => return None,
    };
    match bits {
        bits if *bits > full => None,
        bits if *bits == full => Some(address.to_string()),
        bits => Some(format!("{address}/{bits}")),
    }
}

fn encode_inet(text: &str, out: &mut BytesMut) -> Option<()> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (text, None),
    };
    match address.parse().ok()? {
        std::net::IpAddr::V4(address) => {
            out.put_slice(&[2, bits.unwrap_or(32), 0, 4]);
            out.put_slice(&address.octets());
        }
        std::net::IpAddr::V6(address) => {
            out.put_slice(&[3, bits.unwrap_or(128), 0, 16]);
            out.put_slice(&address.octets());
        }
    }
    Some(())
}

/// Appends the binary form of a value that is not NULL.
pub fn encode(value: &Datum, ty: Type, context: &TextContext<'_>, out: &mut BytesMut) -> SqlResult<()> {
    match value {
        Datum::Null => {}
        Datum::Bool(value) => out.put_u8(u8::from(*value)),
        Datum::Int2(value) => out.put_i16(*value),
        Datum::Int4(value) => out.put_i32(*value),
        Datum::Int8(value) => out.put_i64(*value),
        Datum::Float4(value) => out.put_f32(*value),
        Datum::Float8(value) => out.put_f64(*value),
        Datum::Numeric(value) => value.encode_binary(out),
        Datum::Text(value) => match ty {
            Type::INET => encode_inet(value, out).ok_or_else(|| malformed(ty))?,
            Type::JSONPATH => {
                out.put_u8(1);
                out.put_slice(value.as_bytes());
            }
            Type::XID8 | Type::PG_LSN => out.put_u64(value.parse().map_err(|_| malformed(ty))?),
            _ => out.put_slice(value.as_bytes()),
        },
        Datum::Bytea(value) => out.put_slice(value),
        Datum::Date(value) => out.put_i32(*value),
        Datum::Time(value) | Datum::Timestamp(value) | Datum::Timestamptz(value) => out.put_i64(*value),
        Datum::Interval(value) => {
            out.put_i64(value.micros);
            out.put_i32(value.days);
            out.put_i32(value.months);
        }
        Datum::Uuid(value) => out.put_slice(value),
        Datum::Json(value) => out.put_slice(value.as_bytes()),
        Datum::Jsonb(value) => {
            let mut text = String::new();
            json::format(value, &mut text);
            out.put_u8(1);
            out.put_slice(text.as_bytes());
        }
        Datum::Oid(value) => out.put_u32(*value),
        Datum::Enum(_) => out.put_slice(text::to_string(value, ty, context).as_bytes()),
        Datum::Array(array) => {
            out.put_i32(array.dimensions.len() as i32);
            out.put_i32(i32::from(array.values.iter().any(Datum::is_null)));
            out.put_u32(array.element.0);
            for (length, low) in &array.dimensions {
                out.put_i32(*length as i32);
                out.put_i32(*low);
            }
            for value in &array.values {
                encode_field(value, array.element, context, out)?;
            }
        }
        Datum::Record(record) => {
            out.put_i32(record.values.len() as i32);
            for (index, value) in record.values.iter().enumerate() {
                let ty = record.field_type(index);
                out.put_u32(ty.0);
                encode_field(value, ty, context, out)?;
            }
        }
    }
    Ok(())
}

/// A value after its length; -1 for NULL.
fn encode_field(value: &Datum, ty: Type, context: &TextContext<'_>, out: &mut BytesMut) -> SqlResult<()> {
    if value.is_null() {
        out.put_i32(-1);
        return Ok(());
    }
    let start = out.len();
    out.put_i32(0);
    encode(value, ty, context, out)?;
    let length = (out.len() - start - 4) as i32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::BUILT_IN;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let encoded = |value: &Datum, ty| {
            let mut out = BytesMut::new();
            encode(value, ty, &TextContext::plain(), &mut out).unwrap();
            out.to_vec()
        };
        let array = Datum::array(Type::INT4, vec![Datum::Int4(1), Datum::Null]);
        assert_eq!(
            encoded(&array, Type::INT4_ARRAY),
            [
                0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 23, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1, 255,
                255, 255, 255
            ]
        );
        let numeric = Datum::Numeric(Numeric::parse("12345.67").unwrap());
        assert_eq!(encoded(&numeric, Type::NUMERIC), [0, 3, 0, 1, 0, 0, 0, 2, 0, 1, 9, 41, 26, 44]);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            for info in BUILT_IN.iter().filter(|info| info.ty.0 != 0) {
                if let Ok(value) = decode(info.ty, &bytes, &TextContext::plain()) {
                    let mut out = BytesMut::new();
                    encode(&value, info.ty, &TextContext::plain(), &mut out).unwrap();
                }
            }
        }

        #[test]
        fn arrays_round_trip(values in proptest::collection::vec(proptest::option::of(any::<i64>()), 0..8)) {
            let values = values.into_iter().map(|v| v.map_or(Datum::Null, Datum::Int8)).collect();
            let array = Datum::array(Type::INT8, values);
            let mut out = BytesMut::new();
            encode(&array, Type::INT8_ARRAY, &TextContext::plain(), &mut out).unwrap();
            prop_assert!(crate::compare::equal(&array, &decode(Type::INT8_ARRAY, &out, &TextContext::plain()).unwrap()));
        }
    }
}
