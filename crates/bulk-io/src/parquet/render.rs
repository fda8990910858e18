//! Values of a Parquet file as text that PostgreSQL reads.

use crate::calendar;
use crate::error::{Error, Result};
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as Physical};
use parquet::data_type::Int96;
use parquet::schema::types::ColumnDescriptor;
use std::io::Write;

/// A value as it is stored.
#[derive(Debug, Clone, Copy)]
pub enum Value<'v> {
    /// BOOLEAN.
    Bool(bool),
    /// INT32.
    I32(i32),
    /// INT64.
    I64(i64),
    /// INT96.
    I96(&'v Int96),
    /// FLOAT.
    F32(f32),
    /// DOUBLE.
    F64(f64),
    /// BYTE_ARRAY or FIXED_LEN_BYTE_ARRAY.
    Bytes(&'v [u8]),
}

/// What the stored values of a column mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// As stored: numbers, truth values.
    Plain,
    /// Integers without a sign.
    Unsigned,
    /// Text, of which JSON is one kind.
    Text(&'static str),
    /// Bytes.
    Binary,
    /// 16 bytes.
    Uuid,
    /// Days.
    Date,
    /// Time of day, in units of which there are so many in a second.
    Time(i64),
    /// A moment, likewise; whether it is in UTC.
    Timestamp(i64, bool),
    /// A whole number, to be divided by a power of ten.
    Decimal {
        /// Most digits.
        precision: i32,
        /// How many of them are behind the point.
        scale: i32,
    },
}

impl Meaning {
    /// What a column means.
    ///
    /// # Errors
    /// If that has no counterpart.
    pub fn of(column: &ColumnDescriptor) -> Result<Self> {
        let physical = column.physical_type();
        let meaning = match column.logical_type() {
            Some(logical) => of_logical(&logical),
            None => of_converted(column.converted_type(), column),
        };
        let meaning = meaning.ok_or_else(|| {
            let logical = column.logical_type().map(|logical| format!("{logical:?}"));
            let name = logical.unwrap_or_else(|| column.converted_type().to_string());
            Error::new(format!(
                "column {} has the type {name}, which is not supported",
                column.path().string()
            ))
        })?;
        // Without annotation bytes are bytes.
        Ok(match (meaning, physical) {
            (Self::Plain, Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY) => Self::Binary,
            (Self::Plain, Physical::INT96) => Self::Timestamp(1_000_000_000, false),
            (meaning, _) => meaning,
        })
    }

    /// The type of PostgreSQL for it.
    pub fn sql_type(&self, physical: Physical) -> String {
        match self {
            Self::Plain => match physical {
                Physical::BOOLEAN => "boolean",
                Physical::INT32 => "integer",
                Physical::FLOAT => "real",
                Physical::DOUBLE => "double precision",
                _ => "bigint",
            }
            .to_owned(),
            Self::Unsigned if physical == Physical::INT32 => "bigint".into(),
            Self::Unsigned => "numeric(20,0)".into(),
            Self::Text(name) => (*name).into(),
            Self::Binary => "bytea".into(),
            Self::Uuid => "uuid".into(),
            Self::Date => "date".into(),
            Self::Time(_) => "time".into(),
            Self::Timestamp(_, false) => "timestamp".into(),
            Self::Timestamp(_, true) => "timestamptz".into(),
            Self::Decimal { precision, scale } => format!("numeric({precision},{scale})"),
        }
    }

    /// Writes a value.
    ///
    /// # Errors
    /// If it is not of the kind that the column says.
    pub fn push(&self, value: Value<'_>, out: &mut Vec<u8>) -> Result<()> {
        let wrong = || Err(Error::new("malformed Parquet: a value is not what its column says"));
        match (self, value) {
            (Self::Plain, Value::Bool(value)) => out.push(if value { b't' } else { b'f' }),
            (Self::Plain, Value::F32(value)) => push_float(value.is_infinite(), value > 0.0, value, out),
            (Self::Plain, Value::F64(value)) => push_float(value.is_infinite(), value > 0.0, value, out),
            (Self::Plain, Value::I32(value)) => push(out, value),
            (Self::Plain, Value::I64(value)) => push(out, value),
            (Self::Unsigned, Value::I32(value)) => push(out, value.cast_unsigned()),
            (Self::Unsigned, Value::I64(value)) => push(out, value.cast_unsigned()),
            (Self::Text(_), Value::Bytes(bytes)) => out.extend_from_slice(bytes),
            (Self::Binary, Value::Bytes(bytes)) => push_hex(bytes, out),
            (Self::Uuid, Value::Bytes(bytes)) => match uuid::Uuid::from_slice(bytes) {
                Ok(uuid) => push(out, uuid.hyphenated()),
                Err(_) => return wrong(),
            },
            (Self::Date, Value::I32(days)) => calendar::push_date(days, out),
            (Self::Time(per_second), value) => match whole(value) {
                Some(units @ 0..) => calendar::push_time(units, *per_second, out),
                _ => return wrong(),
            },
            (Self::Timestamp(per_second, utc), value) => match whole(value) {
                Some(units) => calendar::push_timestamp(units, *per_second, *utc, out),
                None => return wrong(),
            },
            (Self::Decimal { scale, .. }, value) => match unscaled(value) {
                Some(unscaled) => push_decimal(unscaled, *scale, out),
                None => return wrong(),
            },
            _ => return wrong(),
        }
        Ok(())
    }
}

fn of_logical(logical: &LogicalType) -> Option<Meaning> {
    let per_second = |unit: &TimeUnit| match unit {
        TimeUnit::MILLIS(_) => 1_000,
        TimeUnit::MICROS(_) => 1_000_000,
        TimeUnit::NANOS(_) => 1_000_000_000,
    };
    Some(match logical {
        LogicalType::String | LogicalType::Enum => Meaning::Text("text"),
        LogicalType::Json => Meaning::Text("jsonb"),
        LogicalType::Bson => Meaning::Binary,
        LogicalType::Uuid => Meaning::Uuid,
        LogicalType::Date => Meaning::Date,
        LogicalType::Time { unit, .. } => Meaning::Time(per_second(unit)),
        LogicalType::Timestamp { is_adjusted_to_u_t_c, unit } => {
            Meaning::Timestamp(per_second(unit), *is_adjusted_to_u_t_c)
        }
        LogicalType::Decimal { scale, precision } => decimal(*precision, *scale)?,
        LogicalType::Integer { is_signed: true, .. } => Meaning::Plain,
        LogicalType::Integer { is_signed: false, .. } => Meaning::Unsigned,
        LogicalType::Unknown => Meaning::Plain,
        _ => return None,
    })
}

fn of_converted(converted: ConvertedType, column: &ColumnDescriptor) -> Option<Meaning> {
    use ConvertedType as C;
    Some(match converted {
        C::NONE | C::INT_8 | C::INT_16 | C::INT_32 | C::INT_64 => Meaning::Plain,
        C::UTF8 | C::ENUM => Meaning::Text("text"),
        C::JSON => Meaning::Text("jsonb"),
        C::BSON => Meaning::Binary,
        C::DATE => Meaning::Date,
        C::TIME_MILLIS => Meaning::Time(1_000),
        C::TIME_MICROS => Meaning::Time(1_000_000),
        C::TIMESTAMP_MILLIS => Meaning::Timestamp(1_000, true),
        C::TIMESTAMP_MICROS => Meaning::Timestamp(1_000_000, true),
        C::UINT_8 | C::UINT_16 | C::UINT_32 | C::UINT_64 => Meaning::Unsigned,
        C::DECIMAL => decimal(column.type_precision(), column.type_scale())?,
        _ => return None,
    })
}

/// Decimals of more digits than 38 would not fit into 128 bits.
fn decimal(precision: i32, scale: i32) -> Option<Meaning> {
    let possible = (1..=38).contains(&precision) && (0..=precision).contains(&scale);
    possible.then_some(Meaning::Decimal { precision, scale })
}

fn push(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    // Writing into memory does not fail.
    let _ = write!(out, "{value}");
}

fn push_float(infinite: bool, positive: bool, value: impl std::fmt::Display, out: &mut Vec<u8>) {
    match (infinite, positive) {
        (true, true) => out.extend_from_slice(b"Infinity"),
        (true, false) => out.extend_from_slice(b"-Infinity"),
        // The shortest digits that name this number; `NaN` is called so by both.
        (false, _) => push(out, value),
    }
}

fn push_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(b"\\x");
    for byte in bytes {
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

fn whole(value: Value<'_>) -> Option<i64> {
    match value {
        Value::I32(value) => Some(value.into()),
        Value::I64(value) => Some(value),
        Value::I96(value) => {
            let (seconds, nanos) = value.to_seconds_and_nanos();
            seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
        }
        _ => None,
    }
}

fn unscaled(value: Value<'_>) -> Option<i128> {
    match value {
        Value::Bytes(bytes) if bytes.len() <= 16 => {
            let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
            let mut wide = if negative { [0xff; 16] } else { [0; 16] };
            wide[16 - bytes.len()..].copy_from_slice(bytes);
            Some(i128::from_be_bytes(wide))
        }
        Value::I32(_) | Value::I64(_) => whole(value).map(i128::from),
        _ => None,
    }
}

fn push_decimal(unscaled: i128, scale: i32, out: &mut Vec<u8>) {
    let scale = usize::try_from(scale).unwrap_or_default();
    let digits = format!("{:0width$}", unscaled.unsigned_abs(), width = scale + 1);
    if unscaled < 0 {
        out.push(b'-');
    }
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    out.extend_from_slice(whole.as_bytes());
    if scale > 0 {
        out.push(b'.');
        out.extend_from_slice(fraction.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(meaning: Meaning, value: Value<'_>) -> String {
        let mut out = Vec::new();
        meaning.push(value, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values() {
        let decimal = |scale| Meaning::Decimal { precision: 38, scale };
        for (meaning, value, wanted) in [
            (Meaning::Plain, Value::F64(0.1), "0.1"),
            (Meaning::Plain, Value::F64(f64::NEG_INFINITY), "-Infinity"),
            (Meaning::Plain, Value::F32(f32::NAN), "NaN"),
            (Meaning::Unsigned, Value::I32(-1), "4294967295"),
            (Meaning::Unsigned, Value::I64(-1), "18446744073709551615"),
            (Meaning::Binary, Value::Bytes(&[0, 255]), "\\x00ff"),
            (Meaning::Uuid, Value::Bytes(&[1; 16]), "01010101-0101-0101-0101-010101010101"),
            (decimal(2), Value::I32(-5), "-0.05"),
            (decimal(0), Value::I64(7), "7"),
            (decimal(3), Value::Bytes(&[0xff, 0xfe]), "-0.002"),
            (decimal(1), Value::Bytes(&[]), "0.0"),
            (Meaning::Time(1_000_000), Value::I64(1), "00:00:00.000001"),
            (Meaning::Timestamp(1_000, true), Value::I64(0), "1970-01-01 00:00:00+00"),
        ] {
            assert_eq!(text(meaning, value), wanted);
        }
    }

    #[test]
    fn values_that_contradict_their_column_are_errors() {
        for (meaning, value) in [
            (Meaning::Uuid, Value::Bytes(&[1; 15])),
            (Meaning::Date, Value::I64(1)),
            (Meaning::Time(1_000), Value::I32(-1)),
            (Meaning::Plain, Value::Bytes(&[])),
            (Meaning::Decimal { precision: 38, scale: 0 }, Value::Bytes(&[0; 17])),
            (Meaning::Timestamp(1, true), Value::Bool(true)),
        ] {
            assert!(meaning.push(value, &mut Vec::new()).is_err());
        }
    }
}
