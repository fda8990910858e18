//! Columns of a row group that is being filled, from values in PostgreSQL's binary form.

use super::plan::{ColumnPlan, Stored, decimal_bytes};
use crate::calendar::{DAY_MICROS, EPOCH_DAYS, EPOCH_MICROS};
use crate::error::{Error, Result};
use bytes::Bytes;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, FloatType,
    Int32Type, Int64Type,
};
use parquet::file::writer::SerializedColumnWriter;

/// Values of a column.
#[derive(Debug)]
enum Values {
    Bool(Vec<bool>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    /// All bytes, and where each value ends.
    Bytes(Vec<u8>, Vec<usize>),
    /// Likewise, all of the same length.
    Fixed(Vec<u8>, usize),
}

/// A column that is being filled.
#[derive(Debug)]
pub struct Column {
    plan: ColumnPlan,
    values: Values,
    /// 1 for a value, 0 for NULL.
    levels: Vec<i16>,
}

impl Column {
    /// An empty column.
    pub fn new(plan: ColumnPlan) -> Self {
        let values = match plan.stored {
            Stored::Bool => Values::Bool(Vec::new()),
            Stored::Int2 | Stored::Int4 | Stored::Date => Values::I32(Vec::new()),
            Stored::Int8 | Stored::Time | Stored::Timestamp { .. } => Values::I64(Vec::new()),
            Stored::Float4 => Values::F32(Vec::new()),
            Stored::Float8 => Values::F64(Vec::new()),
            Stored::Uuid => Values::Fixed(Vec::new(), 16),
            Stored::Decimal { precision: ..=9, .. } => Values::I32(Vec::new()),
            Stored::Decimal { precision: ..=18, .. } => Values::I64(Vec::new()),
            Stored::Decimal { precision, .. } => Values::Fixed(Vec::new(), decimal_bytes(precision)),
            Stored::Text | Stored::Enum | Stored::Json | Stored::Jsonb | Stored::Bytes => {
                Values::Bytes(Vec::new(), Vec::new())
            }
        };
        Self { plan, values, levels: Vec::new() }
    }

    /// Adds a value, none for NULL, and says how many bytes that took.
    ///
    /// # Errors
    /// If Parquet has no such value, or the server sent something malformed.
    pub fn push(&mut self, value: Option<&[u8]>) -> Result<usize> {
        self.levels.push(i16::from(value.is_some()));
        match value {
            None => Ok(2),
            Some(value) => {
                self.push_value(value).map_err(|error| error.at(format_args!("column {}", self.plan.name)))
            }
        }
    }

    fn push_value(&mut self, value: &[u8]) -> Result<usize> {
        let stored = self.plan.stored;
        match &mut self.values {
            Values::Bool(values) => values.push(u8::from_be_bytes(fixed(value)?) != 0),
            Values::F32(values) => values.push(f32::from_be_bytes(fixed(value)?)),
            Values::F64(values) => values.push(f64::from_be_bytes(fixed(value)?)),
            Values::I32(values) => values.push(match stored {
                Stored::Int2 => i16::from_be_bytes(fixed(value)?).into(),
                Stored::Date => date(i32::from_be_bytes(fixed(value)?))?,
                Stored::Decimal { scale, .. } => narrow(unscaled(value, scale)?)?,
                _ => i32::from_be_bytes(fixed(value)?),
            }),
            Values::I64(values) => values.push(match stored {
                Stored::Timestamp { .. } => timestamp(i64::from_be_bytes(fixed(value)?))?,
                Stored::Time => time(i64::from_be_bytes(fixed(value)?))?,
                Stored::Decimal { scale, .. } => narrow(unscaled(value, scale)?)?,
                _ => i64::from_be_bytes(fixed(value)?),
            }),
            Values::Fixed(bytes, width) => match stored {
                Stored::Decimal { scale, .. } => {
                    let wide = unscaled(value, scale)?.to_be_bytes();
                    bytes.extend_from_slice(&wide[wide.len() - *width..]);
                }
                _ => bytes.extend_from_slice(&fixed::<16>(value)?),
            },
            Values::Bytes(bytes, ends) => {
                let value = match (stored, value) {
                    (Stored::Jsonb, [1, json @ ..]) => json,
                    (Stored::Jsonb, _) => return Err(malformed()),
                    (_, value) => value,
                };
                bytes.extend_from_slice(value);
                ends.push(bytes.len());
            }
        }
        Ok(value.len() + 10)
    }

    /// Writes what was added and forgets it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&mut self, mut column: SerializedColumnWriter<'_>) -> Result<()> {
        let levels = Some(self.levels.as_slice());
        match &mut self.values {
            Values::Bool(values) => {
                column.typed::<BoolType>().write_batch(values, levels, None)?;
                values.clear();
            }
            Values::I32(values) => {
                column.typed::<Int32Type>().write_batch(values, levels, None)?;
                values.clear();
            }
            Values::I64(values) => {
                column.typed::<Int64Type>().write_batch(values, levels, None)?;
                values.clear();
            }
            Values::F32(values) => {
                column.typed::<FloatType>().write_batch(values, levels, None)?;
                values.clear();
            }
            Values::F64(values) => {
                column.typed::<DoubleType>().write_batch(values, levels, None)?;
                values.clear();
            }
            Values::Bytes(bytes, ends) => {
                let bytes = Bytes::from(std::mem::take(bytes));
                let starts = std::iter::once(0).chain(ends.iter().copied());
                let values: Vec<ByteArray> =
                    starts.zip(ends.iter()).map(|(start, end)| bytes.slice(start..*end).into()).collect();
                column.typed::<ByteArrayType>().write_batch(&values, levels, None)?;
                ends.clear();
            }
            Values::Fixed(bytes, width) => {
                let bytes = Bytes::from(std::mem::take(bytes));
                let starts = (0..bytes.len()).step_by(*width);
                let values: Vec<FixedLenByteArray> =
                    starts.map(|start| ByteArray::from(bytes.slice(start..start + *width)).into()).collect();
                column.typed::<FixedLenByteArrayType>().write_batch(&values, levels, None)?;
            }
        }
        self.levels.clear();
        column.close()?;
        Ok(())
    }
}

fn malformed() -> Error {
    Error::new("the server sent a malformed value")
}

fn fixed<const N: usize>(value: &[u8]) -> Result<[u8; N]> {
    value.try_into().map_err(|_| malformed())
}

fn impossible(what: &str) -> Error {
    Error::new(format!("Parquet has no {what}"))
        .hint("Export the column as text: --query 'SELECT …, column::text FROM …'.")
}

fn date(days: i32) -> Result<i32> {
    if matches!(days, i32::MIN | i32::MAX) {
        return Err(impossible("infinite dates"));
    }
    days.checked_add(EPOCH_DAYS).ok_or_else(|| impossible("date so late"))
}

fn timestamp(micros: i64) -> Result<i64> {
    if matches!(micros, i64::MIN | i64::MAX) {
        return Err(impossible("infinite timestamps"));
    }
    micros.checked_add(EPOCH_MICROS).ok_or_else(|| impossible("timestamp so late"))
}

fn time(micros: i64) -> Result<i64> {
    if micros >= DAY_MICROS { Err(impossible("time of day 24:00")) } else { Ok(micros) }
}

fn narrow<T: TryFrom<i128>>(value: i128) -> Result<T> {
    T::try_from(value).map_err(|_| malformed())
}

/// A numeric, in PostgreSQL's digits to the base 10000, as a whole number of units of `10^-scale`.
fn unscaled(value: &[u8], scale: i32) -> Result<i128> {
    let word =
        |at: usize| value.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map(i16::from_be_bytes);
    let (Some(count), Some(weight), Some(sign)) = (word(0), word(2), word(4)) else {
        return Err(malformed());
    };
    let negative = match sign.cast_unsigned() {
        0 => false,
        0x4000 => true,
        _ => return Err(impossible("NaN or infinity among decimals")),
    };
    let mut sum = 0i128;
    for position in 0..usize::try_from(count).map_err(|_| malformed())? {
        let digit = i128::from(word(8 + 2 * position).ok_or_else(malformed)?);
        let position = i32::try_from(position).map_err(|_| malformed())?;
        let exponent = 4 * (i32::from(weight) - position) + scale;
        let power = 10i128.checked_pow(exponent.unsigned_abs()).ok_or_else(malformed)?;
        let part = if exponent >= 0 { digit.checked_mul(power) } else { Some(digit / power) };
        sum = part.and_then(|part| sum.checked_add(part)).ok_or_else(malformed)?;
    }
    Ok(if negative { -sum } else { sum })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numeric(digits: &[i16], weight: i16, sign: u16) -> Vec<u8> {
        let count = i16::try_from(digits.len()).unwrap();
        let head = [count.to_be_bytes(), weight.to_be_bytes(), sign.to_be_bytes(), [0, 0]];
        head.into_iter().chain(digits.iter().map(|digit| digit.to_be_bytes())).flatten().collect()
    }

    #[test]
    fn numerics() {
        assert_eq!(unscaled(&numeric(&[1, 5000], 0, 0), 1), Ok(15));
        assert_eq!(unscaled(&numeric(&[12, 3456, 7800], 1, 0x4000), 2), Ok(-12_345_678));
        assert_eq!(unscaled(&numeric(&[], 0, 0), 5), Ok(0));
        assert_eq!(unscaled(&numeric(&[100], -1, 0), 4), Ok(100));
        for bad in
            [&numeric(&[], 0, 0xc000)[..], &[0, 1], &numeric(&[1], 3000, 0)[..], &[0, 9, 0, 0, 0, 0, 0, 0]]
        {
            assert!(unscaled(bad, 2).is_err());
        }
    }

    #[test]
    fn what_parquet_cannot_say_is_an_error() {
        assert!(date(i32::MAX).is_err() && date(i32::MIN).is_err());
        assert_eq!(date(-EPOCH_DAYS), Ok(0));
        assert!(timestamp(i64::MAX).is_err() && timestamp(i64::MAX - 1).is_err());
        assert!(time(DAY_MICROS).is_err());
    }
}
