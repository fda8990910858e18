//! Text input and output of every type.

pub use crate::context::{DateStyle, TextContext};
use crate::datum::Datum;
use crate::error::{SqlError, SqlResult};
use crate::types::{ColumnType, Type};

/// Reads a value of a type from its text form, fitting it to the type's modifier as assignment does.
pub fn parse(ty: ColumnType, text: &str, context: &TextContext<'_>) -> SqlResult<Datum> {
    let _ = (ty, context);
    Ok(Datum::text(text))
}

/// Appends the text form of a value that is not NULL (of NULL: nothing).
pub fn format(value: &Datum, ty: Type, context: &TextContext<'_>, out: &mut String) {
    let _ = (value, ty, context, out);
}

/// The text form of a value as a string.
pub fn to_string(value: &Datum, ty: Type, context: &TextContext<'_>) -> String {
    let mut out = String::new();
    format(value, ty, context, &mut out);
    out
}

fn _unused() -> SqlError { SqlError::internal("") }
