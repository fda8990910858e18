//! The value that rows written before a column was added have for it.

use sql_types::context::TextContext;
use sql_types::{ColumnType, Datum, SqlError, SqlResult};

/// Reads `added_value`: a string literal, a number, `true`, `false` or `NULL`, with an optional cast
/// after it that names the column's own type.
pub fn parse(text: &str, ty: ColumnType) -> SqlResult<Datum> {
    let text = text.trim();
    let text = text.strip_prefix('E').filter(|rest| rest.starts_with('\'')).unwrap_or(text);
    let Some(rest) = text.strip_prefix('\'') else {
        let bare = text.split("::").next().unwrap_or(text).trim();
        let bare = bare.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')).unwrap_or(bare);
        return match bare.eq_ignore_ascii_case("null") {
            true => Ok(Datum::Null),
            false => value(bare, ty),
        };
    };
    value(&quoted(rest)?, ty)
}

fn value(text: &str, ty: ColumnType) -> SqlResult<Datum> {
    sql_types::text::parse(ty, text, &TextContext::plain())
}

fn quoted(rest: &str) -> SqlResult<String> {
    let mut value = String::new();
    let mut chars = rest.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\'' {
            value.push(c);
        } else if chars.next_if_eq(&'\'').is_some() {
            value.push('\'');
        } else {
            return Ok(value);
        }
    }
    Err(SqlError::internal("unterminated literal in a column descriptor"))
}
