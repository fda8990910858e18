//! Order, equality and hashes of values of one type.
//!
//! Text compares bytewise (collation "C"). Floats have a total order in which NaN equals itself and is
//! largest, and -0 equals 0. Intervals compare by their length, months of 30 days. char(n) values are
//! compared as they are stored: both padded, or with [`compare_bpchar`] without their padding.

use crate::datetime::interval_compare_key;
use crate::datum::{ArrayValue, Datum};
use crate::json;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// Orders two values of one type as PostgreSQL's btree does; NULL comes last, and equals NULL.
/// Numbers of different types compare by value, so that a caller's missing cast does no harm.
pub fn compare(left: &Datum, right: &Datum) -> Ordering {
    match (left, right) {
        (Datum::Int4(left), Datum::Int4(right)) => left.cmp(right),
        (Datum::Int8(left), Datum::Int8(right)) => left.cmp(right),
        (Datum::Text(left), Datum::Text(right)) => left.as_bytes().cmp(right.as_bytes()),
        (Datum::Null, Datum::Null) => Ordering::Equal,
        (Datum::Null, _) => Ordering::Greater,
        (_, Datum::Null) => Ordering::Less,
        (Datum::Bool(left), Datum::Bool(right)) => left.cmp(right),
        (Datum::Int2(left), Datum::Int2(right)) => left.cmp(right),
        (Datum::Float4(left), Datum::Float4(right)) => compare_floats(f64::from(*left), f64::from(*right)),
        (Datum::Float8(left), Datum::Float8(right)) => compare_floats(*left, *right),
        (Datum::Numeric(left), Datum::Numeric(right)) => left.cmp(right),
        (Datum::Bytea(left), Datum::Bytea(right)) => left.cmp(right),
        (Datum::Date(left), Datum::Date(right)) => left.cmp(right),
        (Datum::Time(left), Datum::Time(right))
        | (Datum::Timestamp(left), Datum::Timestamp(right))
        | (Datum::Timestamptz(left), Datum::Timestamptz(right)) => left.cmp(right),
        (Datum::Interval(left), Datum::Interval(right)) => {
            interval_compare_key(*left).cmp(&interval_compare_key(*right))
        }
        (Datum::Uuid(left), Datum::Uuid(right)) => left.cmp(right),
        (Datum::Json(left), Datum::Json(right)) => left.cmp(right),
        (Datum::Jsonb(left), Datum::Jsonb(right)) => json::compare(left, right),
        (Datum::Oid(left), Datum::Oid(right)) => left.cmp(right),
        (Datum::Enum(left), Datum::Enum(right)) => left.rank.cmp(&right.rank),
        (Datum::Array(left), Datum::Array(right)) => compare_arrays(left, right),
        (Datum::Record(left), Datum::Record(right)) => {
            compare_lists(left, right).then_with(|| left.values.len().cmp(&right.values.len()))
        }
        _ => compare_mixed(left, right),
    }
}

/// Orders doubles: NaN is largest and equals itself.
pub fn compare_floats(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).unwrap_or_else(|| left.is_nan().cmp(&right.is_nan()))
}

/// Orders char(n) values: trailing blanks do not count.
pub fn compare_bpchar(left: &str, right: &str) -> Ordering {
    left.trim_end_matches(' ').as_bytes().cmp(right.trim_end_matches(' ').as_bytes())
}

fn compare_lists(left: &[Datum], right: &[Datum]) -> Ordering {
    left.iter().zip(right).map(|(l, r)| compare(l, r)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

fn compare_arrays(left: &ArrayValue, right: &ArrayValue) -> Ordering {
    compare_lists(&left.values, &right.values)
        .then_with(|| left.values.len().cmp(&right.values.len()))
        .then_with(|| left.dimensions.len().cmp(&right.dimensions.len()))
        .then_with(|| left.dimensions.cmp(&right.dimensions))
}

#[cold]
fn compare_mixed(left: &Datum, right: &Datum) -> Ordering {
    let integer = |value: &Datum| match value {
        Datum::Int2(value) => Some(i64::from(*value)),
        Datum::Int4(value) => Some(i64::from(*value)),
        Datum::Int8(value) => Some(*value),
        Datum::Oid(value) => Some(i64::from(*value)),
        _ => None,
    };
    let float = |value: &Datum| match value {
        Datum::Float4(value) => Some(f64::from(*value)),
        Datum::Float8(value) => Some(*value),
        Datum::Numeric(value) => Some(value.to_f64()),
        other => integer(other).map(|value| value as f64),
    };
    if let (Some(left), Some(right)) = (integer(left), integer(right)) {
        return left.cmp(&right);
    }
    if let (Some(left), Some(right)) = (float(left), float(right)) {
        return compare_floats(left, right);
    }
    kind(left).cmp(&kind(right))
}

/// A number for each kind of value: makes the order total even over values of different types.
fn kind(value: &Datum) -> u8 {
    match value {
        Datum::Null => 255,
        Datum::Bool(_) => 1,
        Datum::Int2(_) | Datum::Int4(_) | Datum::Int8(_) | Datum::Oid(_) => 2,
        Datum::Float4(_) | Datum::Float8(_) | Datum::Numeric(_) => 2,
        Datum::Text(_) => 3,
        Datum::Bytea(_) => 4,
        Datum::Date(_) => 5,
        Datum::Time(_) => 6,
        Datum::Timestamp(_) => 7,
        Datum::Timestamptz(_) => 8,
        Datum::Interval(_) => 9,
        Datum::Uuid(_) => 10,
        Datum::Json(_) => 11,
        Datum::Jsonb(_) => 12,
        Datum::Array(_) => 13,
        Datum::Record(_) => 14,
        Datum::Enum(_) => 15,
    }
}

/// Whether two values of one type are equal; NULL equals NULL.
pub fn equal(left: &Datum, right: &Datum) -> bool {
    compare(left, right) == Ordering::Equal
}

/// Feeds a value to a hasher; equal values of one type hash alike.
pub fn hash(value: &Datum, state: &mut impl Hasher) {
    let float = |value: f64| {
        if value == 0.0 {
            0
        } else if value.is_nan() {
            f64::NAN.to_bits()
        } else {
            value.to_bits()
        }
    };
    match value {
        Datum::Null => state.write_u8(255),
        Datum::Bool(value) => state.write_u8(u8::from(*value)),
        Datum::Int2(value) => state.write_i64(i64::from(*value)),
        Datum::Int4(value) => state.write_i64(i64::from(*value)),
        Datum::Int8(value) => state.write_i64(*value),
        Datum::Oid(value) => state.write_i64(i64::from(*value)),
        Datum::Enum(value) => state.write_i64(value.rank),
        Datum::Float4(value) => state.write_u64(float(f64::from(*value))),
        Datum::Float8(value) => state.write_u64(float(*value)),
        Datum::Numeric(value) => value.hash(state),
        Datum::Text(value) | Datum::Json(value) => {
            state.write(value.as_bytes());
            state.write_u8(255);
        }
        Datum::Bytea(value) => value.hash(state),
        Datum::Date(value) => state.write_i32(*value),
        Datum::Time(value) | Datum::Timestamp(value) | Datum::Timestamptz(value) => state.write_i64(*value),
        Datum::Interval(value) => state.write_i128(interval_compare_key(*value)),
        Datum::Uuid(value) => state.write(value),
        Datum::Jsonb(value) => hash_json(value, state),
        Datum::Array(array) => array.values.iter().for_each(|value| hash(value, state)),
        Datum::Record(record) => record.values.iter().for_each(|value| hash(value, state)),
    }
}

fn hash_json(value: &serde_json::Value, state: &mut impl Hasher) {
    use serde_json::Value;
    match value {
        Value::Null => state.write_u8(0),
        Value::Bool(value) => state.write_u8(1 + u8::from(*value)),
        Value::Number(_) => {
            if let Some(number) = json::as_numeric(value) {
                number.hash(state);
            }
        }
        Value::String(text) => text.hash(state),
        Value::Array(values) => values.iter().for_each(|value| hash_json(value, state)),
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            key.hash(state);
            hash_json(value, state);
        }),
    }
}
