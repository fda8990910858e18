//! The rows of a function that gives several: its value is an array of records, and [`ROWS`] makes rows of it.

use sql_types::functions::SetFunction;
use sql_types::{Datum, RecordValue, Row, SqlError, Type};
use std::sync::Arc;

/// Rows of what a call gives.
pub(crate) static ROWS: SetFunction = SetFunction {
    name: "function",
    args: &[Type::RECORD],
    variadic: false,
    columns: &[],
    dynamic_columns: true,
    strict: true,
    eval: |_, _, args| {
        let Some(Datum::Array(array)) = args.first().cloned() else {
            return Err(SqlError::internal("the rows of a function are no array"));
        };
        let count = array.values.len();
        Ok(Box::new((0..count).map(move |at| match array.values.get(at) {
            Some(Datum::Record(record)) => Ok(record.values.clone()),
            _ => Err(SqlError::internal("a row of a function is no record")),
        })))
    },
};

/// A row as one of those that a call gives.
pub(crate) fn row(values: Row) -> Datum {
    Datum::Record(Arc::new(RecordValue { fields: None, values }))
}

/// What a call gives for rows.
pub(crate) fn value(rows: Vec<Datum>) -> Datum {
    Datum::array(Type::RECORD, rows)
}
