//! Values as Arrow arrays and back.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanBuilder, Decimal128Builder, Int16Builder, Int32Builder, Int64Builder,
    NullArray, RecordBatch, RecordBatchOptions, StringBuilder,
};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field, Int16Type, Int32Type, Int64Type, Schema, SchemaRef,
};
use datafusion::scalar::ScalarValue;
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
        Type::NUMERIC => decimal(ty.typmod)?,
        _ => return None,
    })
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

fn array(rows: &[Row], column: usize, ty: &DataType) -> Result<ArrayRef, Misfit> {
    Ok(match ty {
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

/// Rows as arrays.
pub(super) fn to_batch(rows: &[Row], schema: &SchemaRef) -> Result<RecordBatch, Misfit> {
    let arrays = schema
        .fields()
        .iter()
        .enumerate()
        .map(|(column, field)| array(rows, column, field.data_type()))
        .collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(schema.clone(), arrays, &options).map_err(|_| Misfit)
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
        Datum::Numeric(value) => {
            let (coefficient, scale) = value.as_small()?;
            let digits = coefficient.unsigned_abs().checked_ilog10().map_or(1, |log| log as u16 + 1);
            let precision = u8::try_from(digits.max(scale).max(1)).ok().filter(|p| *p <= MOST_DIGITS)?;
            ScalarValue::Decimal128(Some(coefficient), precision, scale as i8)
        }
        Datum::Null if ty != Type::NUMERIC => ScalarValue::try_from(&physical(ty.into())?).ok()?,
        _ => return None,
    })
}

/// The value at a position of an array, as a value of a type.
pub(super) fn value(array: &dyn Array, index: usize, ty: Type) -> Option<Datum> {
    if array.is_null(index) {
        return Some(Datum::Null);
    }
    Some(match (array.data_type(), ty) {
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
        let types: [ColumnType; 7] = [
            Type::BOOL.into(),
            Type::INT4.into(),
            Type::INT8.into(),
            Type::TEXT.into(),
            Type::DATE.into(),
            Type::TIMESTAMPTZ.into(),
            money,
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
            ],
            vec![Datum::Null; 7],
        ];
        let batch = to_batch(&rows, &schema(types.iter().copied())).unwrap();
        for (index, row) in rows.iter().enumerate() {
            let read: Row = types
                .iter()
                .zip(batch.columns())
                .map(|(ty, array)| value(array, index, ty.ty).unwrap())
                .collect();
            assert_eq!(format!("{read:?}"), format!("{row:?}"));
        }
    }

    #[test]
    fn a_number_of_another_scale_does_not_fit() {
        let money = ColumnType { ty: Type::NUMERIC, typmod: ((12 << 16) | 2) + 4 };
        let rows = vec![vec![Datum::Numeric(Numeric::new(1, 3))]];
        assert!(to_batch(&rows, &schema([money].into_iter())).is_err());
        assert!(to_batch(&[vec![Datum::Numeric(Numeric::NAN)]], &schema([money].into_iter())).is_err());
    }

    #[test]
    fn unbounded_numeric_and_floats_are_not_taken() {
        assert_eq!(physical(Type::NUMERIC.into()), None);
        assert_eq!(physical(Type::FLOAT8.into()), None);
    }
}
