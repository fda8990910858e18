//! Output functions: from values to text.

use super::names;
use crate::context::{ByteaOutput, TextContext};
use crate::datum::{Datum, RecordValue};
use crate::types::Type;
use crate::{array, datetime, json};
use std::fmt::Write;

/// Appends the text form of a value that is not NULL (of NULL: nothing).
pub fn format(value: &Datum, ty: Type, context: &TextContext<'_>, out: &mut String) {
    let mut integer = itoa::Buffer::new();
    match value {
        Datum::Null => {}
        Datum::Bool(value) => out.push(if *value { 't' } else { 'f' }),
        Datum::Int2(value) => out.push_str(integer.format(*value)),
        Datum::Int4(value) => out.push_str(integer.format(*value)),
        Datum::Int8(value) => out.push_str(integer.format(*value)),
        Datum::Float4(value) => format_float4(*value, context.extra_float_digits, out),
        Datum::Float8(value) => format_float8(*value, context.extra_float_digits, out),
        Datum::Numeric(value) => {
            let _ = write!(out, "{value}");
        }
        Datum::Text(value) => out.push_str(value),
        Datum::Bytea(value) => format_bytea(value, context.bytea_output, out),
        Datum::Date(value) => datetime::format_date(*value, context, out),
        Datum::Time(value) => datetime::format_time(*value, out),
        Datum::Timestamp(value) => datetime::format_timestamp(*value, context, out),
        Datum::Timestamptz(value) => datetime::format_timestamptz(*value, context, out),
        Datum::Interval(value) => datetime::format_interval(*value, context.interval_style, out),
        Datum::Uuid(value) => {
            let mut buffer = uuid::Uuid::encode_buffer();
            out.push_str(uuid::Uuid::from_bytes(*value).hyphenated().encode_lower(&mut buffer));
        }
        Datum::Json(value) => out.push_str(value),
        Datum::Jsonb(value) => json::format(value, out),
        Datum::Oid(value) if ty.is_reg() => names::format(ty, *value, context, out),
        Datum::Oid(value) => out.push_str(integer.format(*value)),
        Datum::Enum(value) => context.catalog.enum_label(*value, out),
        Datum::Array(value) if matches!(ty, Type::INT2VECTOR | Type::OIDVECTOR) => {
            for (index, element) in value.values.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                format(element, value.element, context, out);
            }
        }
        Datum::Array(value) => array::format(value, context, out),
        Datum::Record(value) => format_record(value, context, out),
    }
}

/// The text form of a value as a string.
pub fn to_string(value: &Datum, ty: Type, context: &TextContext<'_>) -> String {
    let mut out = String::new();
    format(value, ty, context, &mut out);
    out
}

/// `(1,"a b",)`
fn format_record(record: &RecordValue, context: &TextContext<'_>, out: &mut String) {
    out.push('(');
    for (index, value) in record.values.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        if value.is_null() {
            continue;
        }
        let ty = record.field_type(index);
        let text = to_string(value, ty, context);
        let plain = !text.is_empty()
            && !text
                .bytes()
                .any(|b| matches!(b, b'"' | b'\\' | b'(' | b')' | b',') || b.is_ascii_whitespace());
        if plain {
            out.push_str(&text);
        } else {
            out.push('"');
            for c in text.chars() {
                if matches!(c, '"' | '\\') {
                    out.push(c);
                }
                out.push(c);
            }
            out.push('"');
        }
    }
    out.push(')');
}

/// Appends bytes.
pub fn format_bytea(bytes: &[u8], style: ByteaOutput, out: &mut String) {
    match style {
        ByteaOutput::Hex => {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            out.reserve(bytes.len() * 2 + 2);
            out.push_str("\\x");
            for byte in bytes {
                out.push(DIGITS[usize::from(byte >> 4)] as char);
                out.push(DIGITS[usize::from(byte & 15)] as char);
            }
        }
        ByteaOutput::Escape => {
            for byte in bytes {
                match byte {
                    b'\\' => out.push_str("\\\\"),
                    0x20..=0x7e => out.push(*byte as char),
                    _ => {
                        let _ = write!(out, "\\{byte:03o}");
                    }
                }
            }
        }
    }
}

fn special(value: f64, out: &mut String) -> bool {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
    } else {
        return false;
    }
    true
}

/// Appends a double: the shortest text that reads back equal, or 15 digits plus (a negative)
/// `extra_float_digits`.
pub fn format_float8(value: f64, extra_digits: i32, out: &mut String) {
    if special(value, out) {
        return;
    }
    if extra_digits > 0 {
        shortest(&format!("{value:e}"), 15, out);
    } else {
        rounded(value, (15 + extra_digits).clamp(1, 17) as usize, out);
    }
}

/// Appends a float.
pub fn format_float4(value: f32, extra_digits: i32, out: &mut String) {
    if special(f64::from(value), out) {
        return;
    }
    if extra_digits > 0 {
        shortest(&format!("{value:e}"), 6, out);
    } else {
        rounded(f64::from(value), (6 + extra_digits).clamp(1, 9) as usize, out);
    }
}

/// Lays out the shortest digits: plain for exponents from -4 to below `limit`, else with an exponent of
/// two digits at least.
fn shortest(scientific: &str, limit: i32, out: &mut String) {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    lay_out(mantissa, exponent, limit, out);
}

fn rounded(value: f64, digits: usize, out: &mut String) {
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let mantissa =
        if mantissa.contains('.') { mantissa.trim_end_matches('0').trim_end_matches('.') } else { mantissa };
    lay_out(mantissa, exponent, digits as i32, out);
}

fn lay_out(mantissa: &str, exponent: i32, limit: i32, out: &mut String) {
    if exponent < -4 || exponent >= limit {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{mantissa}e{sign}{:02}", exponent.abs());
        return;
    }
    let (sign, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", mantissa),
    };
    let digits: String = digits.chars().filter(|c| *c != '.').collect();
    out.push_str(sign);
    if exponent < 0 {
        out.push_str("0.");
        out.extend(std::iter::repeat_n('0', (-exponent - 1) as usize));
        out.push_str(&digits);
        return;
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        out.push_str(&digits);
        out.extend(std::iter::repeat_n('0', whole - digits.len()));
    } else {
        out.push_str(&digits[..whole]);
        out.push('.');
        out.push_str(&digits[whole..]);
    }
}

impl RecordValue {
    /// Type of a field: as declared, or guessed from the value.
    pub fn field_type(&self, index: usize) -> Type {
        match self.fields.as_ref().and_then(|fields| fields.get(index)) {
            Some(field) => field.ty,
            None => self.values.get(index).map_or(Type::TEXT, Datum::natural_type),
        }
    }

    /// Name of a field: as declared, or `f1`, `f2`, ….
    pub fn field_name(&self, index: usize) -> String {
        match self.fields.as_ref().and_then(|fields| fields.get(index)) {
            Some(field) => field.name.clone(),
            None => format!("f{}", index + 1),
        }
    }
}

impl Datum {
    /// The type a value most likely has: exact but for text and OIDs, which serve several types.
    pub fn natural_type(&self) -> Type {
        match self {
            Datum::Null | Datum::Text(_) => Type::TEXT,
            Datum::Bool(_) => Type::BOOL,
            Datum::Int2(_) => Type::INT2,
            Datum::Int4(_) => Type::INT4,
            Datum::Int8(_) => Type::INT8,
            Datum::Float4(_) => Type::FLOAT4,
            Datum::Float8(_) => Type::FLOAT8,
            Datum::Numeric(_) => Type::NUMERIC,
            Datum::Bytea(_) => Type::BYTEA,
            Datum::Date(_) => Type::DATE,
            Datum::Time(_) => Type::TIME,
            Datum::Timestamp(_) => Type::TIMESTAMP,
            Datum::Timestamptz(_) => Type::TIMESTAMPTZ,
            Datum::Interval(_) => Type::INTERVAL,
            Datum::Uuid(_) => Type::UUID,
            Datum::Json(_) => Type::JSON,
            Datum::Jsonb(_) => Type::JSONB,
            Datum::Oid(_) => Type::OID,
            Datum::Enum(value) => value.ty,
            Datum::Array(array) => array.element.array().unwrap_or(Type::TEXT_ARRAY),
            Datum::Record(_) => Type::RECORD,
        }
    }
}
