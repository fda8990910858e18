//! Text input and output of every type.
//!
//! * `input`: [`parse`], the input functions;
//! * `output`: [`fn@format`], the output functions;
//! * `names`: the reg* types.

mod input;
mod names;
mod output;
#[cfg(test)]
mod tests;

pub use crate::context::{DateStyle, TextContext};
pub(crate) use input::{decode_hex, parse_enum};
pub use input::{parse, parse_bool, parse_bytea, parse_float4, parse_float8, parse_int, parse_uuid};
pub use names::{built_in_type_by_name, name_types, quote_identifier};
pub use output::{format, format_bytea, format_float4, format_float8, to_string};

use crate::error::{SqlError, SqlState};

/// `invalid input syntax for type …`
#[cold]
pub(crate) fn invalid_syntax(ty: &str, text: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_TEXT, format!("invalid input syntax for type {ty}: \"{text}\""))
}
