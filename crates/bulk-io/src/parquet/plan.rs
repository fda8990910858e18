//! What a column of PostgreSQL becomes in Parquet.

use crate::error::Result;
use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::format::MicroSeconds;
use parquet::schema::types::Type as Schema;
use std::sync::Arc;
use tokio_postgres::types::{Kind, Type};

/// Most digits of a decimal of 128 bits.
const MOST_DIGITS: i32 = 38;

/// What a column becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnPlan {
    /// Its name.
    pub name: String,
    /// How its values are stored.
    pub stored: Stored,
    /// Whether the server has to write the values as text first.
    pub as_text: bool,
}

/// How values are stored; they come in PostgreSQL's binary form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// `boolean`.
    Bool,
    /// `smallint`.
    Int2,
    /// `integer`.
    Int4,
    /// `bigint`.
    Int8,
    /// `real`.
    Float4,
    /// `double precision`.
    Float8,
    /// Text.
    Text,
    /// Text that is one of a few.
    Enum,
    /// `json`.
    Json,
    /// `jsonb`, whose binary form is text after a byte for its version.
    Jsonb,
    /// `bytea`.
    Bytes,
    /// `uuid`.
    Uuid,
    /// `date`.
    Date,
    /// `time`.
    Time,
    /// `timestamp`, or `timestamptz` if it is in UTC.
    Timestamp {
        /// Whether it is in UTC.
        utc: bool,
    },
    /// `numeric` of few digits.
    Decimal {
        /// Most digits.
        precision: i32,
        /// How many of them are behind the point.
        scale: i32,
    },
}

/// What a column of a type becomes. `modifier` is that of the row description: -1 for none.
pub fn plan(name: &str, ty: &Type, modifier: i32) -> ColumnPlan {
    let stored = match *ty {
        Type::BOOL => Stored::Bool,
        Type::INT2 => Stored::Int2,
        Type::INT4 => Stored::Int4,
        Type::INT8 => Stored::Int8,
        Type::FLOAT4 => Stored::Float4,
        Type::FLOAT8 => Stored::Float8,
        Type::JSON => Stored::Json,
        Type::JSONB => Stored::Jsonb,
        Type::BYTEA => Stored::Bytes,
        Type::UUID => Stored::Uuid,
        Type::DATE => Stored::Date,
        Type::TIME => Stored::Time,
        Type::TIMESTAMP => Stored::Timestamp { utc: false },
        Type::TIMESTAMPTZ => Stored::Timestamp { utc: true },
        Type::NUMERIC => decimal(modifier).unwrap_or(Stored::Text),
        _ if matches!(ty.kind(), Kind::Enum(_)) => Stored::Enum,
        _ => Stored::Text,
    };
    let is_text = matches!(*ty, Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME);
    ColumnPlan { name: name.to_owned(), stored, as_text: stored == Stored::Text && !is_text }
}

/// The decimal of a numeric's modifier, if it has one that Parquet has, too.
fn decimal(modifier: i32) -> Option<Stored> {
    let packed = modifier.checked_sub(4).filter(|packed| *packed >= 0)?;
    let precision = packed >> 16 & 0xffff;
    // Eleven bits with a sign.
    let scale = ((packed & 0x7ff) ^ 0x400) - 0x400;
    ((1..=MOST_DIGITS).contains(&precision) && (0..=precision).contains(&scale))
        .then_some(Stored::Decimal { precision, scale })
}

/// Bytes that a decimal of so many digits needs.
pub fn decimal_bytes(precision: i32) -> usize {
    let largest = 10u128.saturating_pow(precision.unsigned_abs());
    let bits = 128 - largest.leading_zeros() + 1;
    bits.div_ceil(8) as usize
}

impl ColumnPlan {
    /// The column in the schema of a file. All columns may be NULL: a query does not say which cannot.
    ///
    /// # Errors
    /// If the library takes it for impossible.
    pub fn schema(&self) -> Result<Arc<Schema>> {
        let micros = || TimeUnit::MICROS(MicroSeconds {});
        let integer = |bit_width| LogicalType::Integer { bit_width, is_signed: true };
        let (physical, logical) = match self.stored {
            Stored::Bool => (Physical::BOOLEAN, None),
            Stored::Int2 => (Physical::INT32, Some(integer(16))),
            Stored::Int4 => (Physical::INT32, Some(integer(32))),
            Stored::Int8 => (Physical::INT64, Some(integer(64))),
            Stored::Float4 => (Physical::FLOAT, None),
            Stored::Float8 => (Physical::DOUBLE, None),
            Stored::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Stored::Enum => (Physical::BYTE_ARRAY, Some(LogicalType::Enum)),
            Stored::Json | Stored::Jsonb => (Physical::BYTE_ARRAY, Some(LogicalType::Json)),
            Stored::Bytes => (Physical::BYTE_ARRAY, None),
            Stored::Uuid => (Physical::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Uuid)),
            Stored::Date => (Physical::INT32, Some(LogicalType::Date)),
            Stored::Time => {
                (Physical::INT64, Some(LogicalType::Time { is_adjusted_to_u_t_c: false, unit: micros() }))
            }
            Stored::Timestamp { utc } => {
                (Physical::INT64, Some(LogicalType::Timestamp { is_adjusted_to_u_t_c: utc, unit: micros() }))
            }
            Stored::Decimal { precision, scale } => {
                let physical = match precision {
                    1..=9 => Physical::INT32,
                    10..=18 => Physical::INT64,
                    _ => Physical::FIXED_LEN_BYTE_ARRAY,
                };
                (physical, Some(LogicalType::Decimal { scale, precision }))
            }
        };
        let builder = Schema::primitive_type_builder(&self.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical);
        let builder = match self.stored {
            Stored::Uuid => builder.with_length(16),
            Stored::Decimal { precision, scale } => builder
                .with_length(i32::try_from(decimal_bytes(precision)).unwrap_or(16))
                .with_precision(precision)
                .with_scale(scale),
            _ => builder,
        };
        Ok(Arc::new(builder.build()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numerics() {
        let modifier = |precision: i32, scale: i32| ((precision << 16) | (scale & 0x7ff)) + 4;
        assert_eq!(decimal(modifier(10, 2)), Some(Stored::Decimal { precision: 10, scale: 2 }));
        assert_eq!(decimal(modifier(38, 38)), Some(Stored::Decimal { precision: 38, scale: 38 }));
        for (precision, scale) in [(39, 0), (10, -2), (3, 5)] {
            assert_eq!(decimal(modifier(precision, scale)), None);
        }
        assert_eq!(decimal(-1), None);
        assert!(plan("n", &Type::NUMERIC, -1).as_text);
        assert_eq!([1, 19, 38].map(decimal_bytes), [1, 9, 16]);
    }

    #[test]
    fn every_plan_is_a_possible_schema() {
        for ty in [
            Type::BOOL,
            Type::INT2,
            Type::UUID,
            Type::TIMESTAMPTZ,
            Type::JSONB,
            Type::INTERVAL,
            Type::INT4_ARRAY,
        ] {
            plan("c", &ty, -1).schema().unwrap();
        }
        for precision in 1..=38 {
            let column = plan("c", &Type::NUMERIC, (precision << 16) + 4);
            assert_eq!(column.stored, Stored::Decimal { precision, scale: 0 });
            column.schema().unwrap();
        }
    }
}
