//! [`Datum`]: one SQL value.

use crate::numeric::Numeric;
use crate::types::Type;
use std::sync::Arc;

/// The values of one row.
pub type Row = Vec<Datum>;

/// One SQL value. A datum does not carry its type: `Text` serves text, varchar, char(n), name and
/// unknown; `Int4` serves int4 alone; `Oid` serves oid and the reg* types.
#[derive(Clone, Debug, Default)]
pub enum Datum {
    /// NULL of any type.
    #[default]
    Null,
    /// bool
    Bool(bool),
    /// int2
    Int2(i16),
    /// int4
    Int4(i32),
    /// int8
    Int8(i64),
    /// float4
    Float4(f32),
    /// float8
    Float8(f64),
    /// numeric
    Numeric(Numeric),
    /// text, varchar, char(n) (padded with blanks), name, "char", unknown, inet
    Text(Arc<str>),
    /// bytea
    Bytea(bytes::Bytes),
    /// date: days since 2000-01-01; `i32::MIN` and `i32::MAX` are -infinity and infinity
    Date(i32),
    /// time: microseconds since midnight
    Time(i64),
    /// timestamp: microseconds since 2000-01-01 00:00; `i64::MIN` and `i64::MAX` are the infinities
    Timestamp(i64),
    /// timestamptz: microseconds since 2000-01-01 00:00 UTC; infinities as for timestamp
    Timestamptz(i64),
    /// interval
    Interval(Interval),
    /// uuid
    Uuid([u8; 16]),
    /// json: the text as it was given
    Json(Arc<str>),
    /// jsonb: the value, object keys sorted as PostgreSQL sorts them and unique
    Jsonb(Arc<serde_json::Value>),
    /// oid, xid and the reg* types
    Oid(u32),
    /// a value of an enum type
    Enum(EnumValue),
    /// an array
    Array(Arc<ArrayValue>),
    /// a composite value
    Record(Arc<RecordValue>),
}

/// A value of an enum type. Its label stands in the catalog; values of one type compare by rank, which no change
/// of the type ever changes, so that stored rows and keys stay as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EnumValue {
    /// The type.
    pub ty: Type,
    /// Where the label stands in the type's order.
    pub rank: i64,
}

/// A composite value. `fields` names and types the values where the binder knows them (a row of a
/// table); `ROW(…)` has none, and its fields are called `f1`, `f2` and so on.
#[derive(Clone, Debug)]
pub struct RecordValue {
    /// Names and types of the fields, as many as there are values.
    pub fields: Option<Arc<[RecordField]>>,
    /// The values.
    pub values: Vec<Datum>,
}

/// A field of a composite value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordField {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
}

impl std::ops::Deref for RecordValue {
    type Target = [Datum];
    fn deref(&self) -> &[Datum] {
        &self.values
    }
}

/// An array of one or more dimensions; no dimension at all for the empty array.
#[derive(Clone, Debug)]
pub struct ArrayValue {
    /// Type of the elements.
    pub element: Type,
    /// Length and lower bound of each dimension, outermost first.
    pub dimensions: Vec<(usize, i32)>,
    /// The elements in row-major order.
    pub values: Vec<Datum>,
}

impl ArrayValue {
    /// A one-dimensional array with lower bound 1 (no dimension if empty).
    pub fn one_dimension(element: Type, values: Vec<Datum>) -> Self {
        let dimensions = if values.is_empty() { Vec::new() } else { vec![(values.len(), 1)] };
        ArrayValue { element, dimensions, values }
    }
}

/// interval: months, days and microseconds, kept apart as PostgreSQL keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Interval {
    /// Months.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Microseconds.
    pub micros: i64,
}

impl Datum {
    /// A text value.
    pub fn text(value: impl Into<Arc<str>>) -> Datum {
        Datum::Text(value.into())
    }

    /// An anonymous composite value.
    pub fn record(values: Vec<Datum>) -> Datum {
        Datum::Record(Arc::new(RecordValue { fields: None, values }))
    }

    /// A one-dimensional array.
    pub fn array(element: Type, values: Vec<Datum>) -> Datum {
        Datum::Array(Arc::new(ArrayValue::one_dimension(element, values)))
    }

    /// Whether it is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Datum::Null)
    }
}
