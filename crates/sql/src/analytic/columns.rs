//! Values as Arrow arrays and back.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBuilder, Decimal128Array, Decimal128Builder, Int16Array,
    Int16Builder, Int32Array, Int32Builder, Int64Array, Int64Builder, NullArray, RecordBatch,
    RecordBatchOptions, StringArray, StringBuilder,
};
use datafusion::arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field, Int16Type, Int32Type, Int64Type, Schema, SchemaRef,
};
use datafusion::scalar::ScalarValue;
use kv_api::columns::{ColumnBatch, ColumnData};
use sql_types::numeric::Numeric;
use sql_types::{ColumnType, Datum, Row, Type};
use std::sync::Arc;

/// Most digits of a 128-bit decimal.
pub(super) const MOST_DIGITS: u8 = 38;

/// The array type for values of a column; `None` if the engine does not take them.
pub(super) fn physical(ty: ColumnType) -> Option<DataType> {
    Some(match ty.ty {
        Type::BOOL => DataType::Boolean,
        Type::INT2 => DataType::Int16,
        Type::INT4 | Type::DATE => DataType::Int32,
        Type::INT8 | Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::TIME => DataType::Int64,
        Type::TEXT | Type::VARCHAR | Type::NAME => DataType::Utf8,
        // Without the spaces at the end, which mean nothing and come back by the length.
        Type::BPCHAR if length(ty).is_some() => DataType::Utf8,
        Type::NUMERIC => decimal(ty.typmod)?,
        _ => return None,
    })
}

/// The characters of a `character(n)`.
fn length(ty: ColumnType) -> Option<usize> {
    usize::try_from(ty.typmod).ok()?.checked_sub(4).filter(|_| ty.ty == Type::BPCHAR)
}

/// The decimal type of `numeric(precision, scale)`.
fn decimal(typmod: i32) -> Option<DataType> {
    let packed = u32::try_from(typmod).ok()?.checked_sub(4)?;
    let (precision, scale) = ((packed >> 16) as u8, packed & 0x7ff);
    let fits = packed >> 16 <= u32::from(MOST_DIGITS) && scale <= packed >> 16;
    fits.then_some(DataType::Decimal128(precision, scale as i8))
}

/// The schema of rows of these columns; columns the engine does not take have no values.
pub(super) fn schema(types: impl Iterator<Item = ColumnType>) -> SchemaRef {
    let field = |(position, ty): (usize, ColumnType)| {
        Field::new(format!("c{position}"), physical(ty).unwrap_or(DataType::Null), true)
    };
    Arc::new(Schema::new(types.enumerate().map(field).collect::<Vec<_>>()))
}

/// A value that does not fit its array.
#[derive(Debug, thiserror::Error)]
#[error("a value does not fit its column")]
pub(super) struct Misfit;

macro_rules! build {
    ($builder:ident, $rows:expr, $column:expr, $($pattern:pat => $value:expr),+) => {{
        let mut builder = $builder::with_capacity($rows.len());
        for row in $rows {
            match row.get($column) {
                Some(Datum::Null) | None => builder.append_null(),
                $(Some($pattern) => builder.append_value($value),)+
                Some(_) => return Err(Misfit),
            }
        }
        Arc::new(builder.finish()) as ArrayRef
    }};
}

/// A column of rows as an array.
pub(super) fn array(rows: &[Row], column: usize, ty: ColumnType) -> Result<ArrayRef, Misfit> {
    Ok(match &physical(ty).unwrap_or(DataType::Null) {
        DataType::Boolean => build!(BooleanBuilder, rows, column, Datum::Bool(value) => *value),
        DataType::Int16 => build!(Int16Builder, rows, column, Datum::Int2(value) => *value),
        DataType::Int32 => {
            build!(Int32Builder, rows, column, Datum::Int4(value) | Datum::Date(value) => *value)
        }
        DataType::Int64 => build!(Int64Builder, rows, column,
            Datum::Int8(value) | Datum::Timestamp(value) | Datum::Timestamptz(value) | Datum::Time(value) => *value),
        DataType::Utf8 => {
            let mut builder = StringBuilder::with_capacity(rows.len(), rows.len() * 16);
            for row in rows {
                match row.get(column) {
                    Some(Datum::Text(text)) if ty.ty == Type::BPCHAR => {
                        builder.append_value(text.trim_end_matches(' '));
                    }
                    Some(Datum::Text(text)) => builder.append_value(text),
                    Some(Datum::Null) | None => builder.append_null(),
                    Some(_) => return Err(Misfit),
                }
            }
            Arc::new(builder.finish())
        }
        DataType::Decimal128(precision, scale) => {
            let mut builder = Decimal128Builder::with_capacity(rows.len());
            for row in rows {
                match row.get(column) {
                    Some(Datum::Numeric(value)) => builder.append_value(coefficient(value, *scale)?),
                    Some(Datum::Null) | None => builder.append_null(),
                    Some(_) => return Err(Misfit),
                }
            }
            Arc::new(builder.finish().with_precision_and_scale(*precision, *scale).map_err(|_| Misfit)?)
        }
        _ => Arc::new(NullArray::new(rows.len())),
    })
}

/// The coefficient of a number that has exactly this scale.
fn coefficient(value: &Numeric, scale: i8) -> Result<i128, Misfit> {
    match value.as_small() {
        Some((coefficient, found)) if i16::from(scale) == found as i16 => Ok(coefficient),
        _ => Err(Misfit),
    }
}

/// Rows of these columns as arrays; the schema is that of [`schema`].
pub(super) fn to_batch(
    rows: &[Row],
    types: impl Iterator<Item = ColumnType>,
    schema: &SchemaRef,
) -> Result<RecordBatch, Misfit> {
    let arrays =
        types.enumerate().map(|(column, ty)| array(rows, column, ty)).collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(schema.clone(), arrays, &options).map_err(|_| Misfit)
}

/// Columns that a KV node returned as arrays. `slots` says which of them each field is; the engine does not take the
/// others. What does not fit together is refused: it comes from a socket.
pub(super) fn from_columns(
    batch: ColumnBatch,
    slots: &[Option<usize>],
    schema: &SchemaRef,
) -> Result<RecordBatch, Misfit> {
    let rows = usize::try_from(batch.rows).map_err(|_| Misfit)?;
    let array = |(field, slot): (&Arc<Field>, &Option<usize>)| match slot {
        Some(slot) => column_array(batch.columns.get(*slot).ok_or(Misfit)?, rows, field.data_type()),
        None => Ok(Arc::new(NullArray::new(rows)) as ArrayRef),
    };
    let arrays = schema.fields().iter().zip(slots).map(array).collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), arrays, &options).map_err(|_| Misfit)
}

/// Numbers of a fixed width, little-endian.
macro_rules! numbers {
    ($data:expr, $rows:expr, $number:ty, $array:ty) => {{
        let (chunks, rest) = $data.values.as_chunks::<{ size_of::<$number>() }>();
        if chunks.len() != $rows || !rest.is_empty() {
            return Err(Misfit);
        }
        chunks.iter().map(|bytes| <$number>::from_le_bytes(*bytes) as $array).collect::<Vec<$array>>()
    }};
}

fn column_array(data: &ColumnData, rows: usize, ty: &DataType) -> Result<ArrayRef, Misfit> {
    let nulls = validity(data, rows)?;
    Ok(match ty {
        DataType::Boolean => {
            let values = numbers!(data, rows, u8, u8);
            Arc::new(BooleanArray::new(values.iter().map(|value| *value != 0).collect(), nulls))
        }
        DataType::Int16 => Arc::new(Int16Array::new(numbers!(data, rows, i16, i16).into(), nulls)),
        DataType::Int32 => Arc::new(Int32Array::new(numbers!(data, rows, i32, i32).into(), nulls)),
        DataType::Int64 => Arc::new(Int64Array::new(numbers!(data, rows, i64, i64).into(), nulls)),
        DataType::Decimal128(precision, scale) => {
            let digits = match data.values.len() == rows * size_of::<i64>() {
                true => numbers!(data, rows, i64, i128),
                false => numbers!(data, rows, i128, i128),
            };
            let array = Decimal128Array::new(digits.into(), nulls);
            Arc::new(array.with_precision_and_scale(*precision, *scale).map_err(|_| Misfit)?)
        }
        DataType::Utf8 => {
            let (chunks, _) = data.offsets.as_chunks::<4>();
            let offsets: Vec<i32> = chunks.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect();
            let fits = offsets.len() == rows + 1
                && offsets.first() == Some(&0)
                && offsets.is_sorted()
                && offsets
                    .last()
                    .is_some_and(|end| usize::try_from(*end).is_ok_and(|end| end <= data.values.len()));
            if !fits {
                return Err(Misfit);
            }
            let text = Buffer::from(data.values.clone());
            Arc::new(
                StringArray::try_new(OffsetBuffer::new(offsets.into()), text, nulls).map_err(|_| Misfit)?,
            )
        }
        _ => return Err(Misfit),
    })
}

/// Which rows have a value; none if all have.
fn validity(data: &ColumnData, rows: usize) -> Result<Option<NullBuffer>, Misfit> {
    if data.validity.is_empty() {
        return Ok(None);
    }
    if data.validity.len() < rows.div_ceil(8) {
        return Err(Misfit);
    }
    Ok(Some(NullBuffer::new(BooleanBuffer::new(Buffer::from(data.validity.clone()), 0, rows))))
}

/// A constant; `None` if the engine does not take it.
pub(super) fn scalar(value: &Datum, ty: Type) -> Option<ScalarValue> {
    Some(match value {
        Datum::Bool(value) => ScalarValue::Boolean(Some(*value)),
        Datum::Int2(value) => ScalarValue::Int16(Some(*value)),
        Datum::Int4(value) | Datum::Date(value) => ScalarValue::Int32(Some(*value)),
        Datum::Int8(value) | Datum::Timestamp(value) | Datum::Timestamptz(value) | Datum::Time(value) => {
            ScalarValue::Int64(Some(*value))
        }
        Datum::Text(value) if physical(ty.into()) == Some(DataType::Utf8) => {
            ScalarValue::Utf8(Some(value.to_string()))
        }
        Datum::Text(value) if ty == Type::BPCHAR => {
            ScalarValue::Utf8(Some(value.trim_end_matches(' ').to_owned()))
        }
        Datum::Numeric(value) => {
            let (coefficient, scale) = value.as_small()?;
            let digits = coefficient.unsigned_abs().checked_ilog10().map_or(1, |log| log as u16 + 1);
            let precision = u8::try_from(digits.max(scale).max(1)).ok().filter(|p| *p <= MOST_DIGITS)?;
            ScalarValue::Decimal128(Some(coefficient), precision, scale as i8)
        }
        Datum::Null if ty == Type::BPCHAR => ScalarValue::Utf8(None),
        Datum::Null if ty != Type::NUMERIC => ScalarValue::try_from(&physical(ty.into())?).ok()?,
        _ => return None,
    })
}

/// The value at a position of an array, as a value of a type.
pub(super) fn value(array: &dyn Array, index: usize, ty: ColumnType) -> Option<Datum> {
    if array.is_null(index) {
        return Some(Datum::Null);
    }
    Some(match (array.data_type(), ty.ty) {
        (DataType::Boolean, _) => Datum::Bool(array.as_boolean().value(index)),
        (DataType::Int16, _) => Datum::Int2(array.as_primitive::<Int16Type>().value(index)),
        (DataType::Int32, Type::DATE) => Datum::Date(array.as_primitive::<Int32Type>().value(index)),
        (DataType::Int32, Type::INT4) => Datum::Int4(array.as_primitive::<Int32Type>().value(index)),
        (DataType::Int64, ty) => {
            let value = array.as_primitive::<Int64Type>().value(index);
            match ty {
                Type::INT8 => Datum::Int8(value),
                Type::TIMESTAMP => Datum::Timestamp(value),
                Type::TIMESTAMPTZ => Datum::Timestamptz(value),
                Type::TIME => Datum::Time(value),
                Type::NUMERIC => Datum::Numeric(Numeric::new(i128::from(value), 0)),
                _ => return None,
            }
        }
        (DataType::Utf8, Type::BPCHAR) => {
            let text = array.as_string::<i32>().value(index);
            Datum::text(format!("{text:0$}", length(ty)?))
        }
        (DataType::Utf8, _) => Datum::text(array.as_string::<i32>().value(index)),
        (DataType::Decimal128(_, scale), Type::NUMERIC) => {
            let scale = u16::try_from(*scale).ok()?;
            Datum::Numeric(Numeric::new(array.as_primitive::<Decimal128Type>().value(index), scale))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_the_way_there_and_back() {
        let money = ColumnType { ty: Type::NUMERIC, typmod: ((12 << 16) | 2) + 4 };
        let flag = ColumnType { ty: Type::BPCHAR, typmod: 3 + 4 };
        let types: [ColumnType; 8] = [
            Type::BOOL.into(),
            Type::INT4.into(),
            Type::INT8.into(),
            Type::TEXT.into(),
            Type::DATE.into(),
            Type::TIMESTAMPTZ.into(),
            money,
            flag,
        ];
        let rows = vec![
            vec![
                Datum::Bool(true),
                Datum::Int4(-5),
                Datum::Int8(i64::MAX),
                Datum::text("ä"),
                Datum::Date(i32::MAX),
                Datum::Timestamptz(i64::MIN),
                Datum::Numeric(Numeric::new(-12345, 2)),
                Datum::text("ä  "),
            ],
            vec![Datum::Null; 8],
        ];
        let batch = to_batch(&rows, types.iter().copied(), &schema(types.iter().copied())).unwrap();
        for (index, row) in rows.iter().enumerate() {
            let read: Row = types
                .iter()
                .zip(batch.columns())
                .map(|(ty, array)| value(array, index, *ty).unwrap())
                .collect();
            assert_eq!(format!("{read:?}"), format!("{row:?}"));
        }
    }

    #[test]
    fn a_number_of_another_scale_does_not_fit() {
        let money = ColumnType { ty: Type::NUMERIC, typmod: ((12 << 16) | 2) + 4 };
        let rows = vec![vec![Datum::Numeric(Numeric::new(1, 3))]];
        let batch = |rows: &[Row]| to_batch(rows, [money].into_iter(), &schema([money].into_iter()));
        assert!(batch(&rows).is_err());
        assert!(batch(&[vec![Datum::Numeric(Numeric::NAN)]]).is_err());
    }

    #[test]
    fn unbounded_numeric_and_floats_are_not_taken() {
        assert_eq!(physical(Type::NUMERIC.into()), None);
        assert_eq!(physical(Type::FLOAT8.into()), None);
    }
}
