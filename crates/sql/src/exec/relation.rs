//! What rows cost in memory.

use sql_types::{Datum, Row};

/// Estimated bytes of a row.
pub(crate) fn row_bytes(row: &[Datum]) -> usize {
    std::mem::size_of::<Row>() + row.iter().map(datum_bytes).sum::<usize>()
}

/// Estimated bytes of a value.
pub(crate) fn datum_bytes(value: &Datum) -> usize {
    std::mem::size_of::<Datum>()
        + match value {
            Datum::Text(text) | Datum::Json(text) => 16 + text.len(),
            Datum::Bytea(bytes) => 32 + bytes.len(),
            Datum::Array(array) => 64 + array.values.iter().map(datum_bytes).sum::<usize>(),
            Datum::Record(record) => 48 + record.values.iter().map(datum_bytes).sum::<usize>(),
            Datum::Jsonb(json) => 32 + json_bytes(json),
            Datum::Numeric(_) => 32,
            _ => 0,
        }
}

fn json_bytes(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    std::mem::size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(json_bytes).sum(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| 48 + name.len() + json_bytes(value)).sum()
            }
            _ => 16,
        }
}

/// Estimated bytes of some rows.
pub(crate) fn batch_bytes(rows: &[Row]) -> usize {
    rows.iter().map(|row| row_bytes(row)).sum()
}
