//! Type modifiers: `varchar(n)`, `char(n)`, `numeric(p,s)`, `timestamp(p)`.

use crate::datetime;
use crate::datum::{ArrayValue, Datum};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::{ColumnType, Type};
use std::sync::Arc;

/// Fits a value, already of the type, to the type's modifier. Text that is too long is cut if
/// `explicit`, else only if nothing but blanks is cut off.
pub fn apply_typmod(value: Datum, to: ColumnType, explicit: bool) -> SqlResult<Datum> {
    if to.typmod < 0 {
        return Ok(value);
    }
    Ok(match value {
        Datum::Text(text) if matches!(to.ty, Type::VARCHAR | Type::BPCHAR) => {
            Datum::Text(fit_text(text, to, explicit)?)
        }
        Datum::Numeric(number) if to.ty == Type::NUMERIC => {
            let (precision, scale) = numeric_modifier(to.typmod);
            Datum::Numeric(number.fit(precision, scale)?)
        }
        Datum::Time(micros) => Datum::Time(rounded(micros, to.typmod, "time")?),
        Datum::Timestamp(micros) => Datum::Timestamp(rounded(micros, to.typmod, "timestamp")?),
        Datum::Timestamptz(micros) => Datum::Timestamptz(rounded(micros, to.typmod, "timestamp")?),
        Datum::Interval(interval) => Datum::Interval(datetime::fit_interval(interval, to.typmod)?),
        Datum::Array(array) => {
            let element = ColumnType { ty: array.element, typmod: to.typmod };
            if !has_modifier(array.element) {
                return Ok(Datum::Array(array));
            }
            let values = array
                .values
                .iter()
                .map(|value| apply_typmod(value.clone(), element, explicit))
                .collect::<SqlResult<Vec<_>>>()?;
            Datum::Array(Arc::new(ArrayValue {
                element: array.element,
                dimensions: array.dimensions.clone(),
                values,
            }))
        }
        other => other,
    })
}

fn has_modifier(ty: Type) -> bool {
    matches!(
        ty,
        Type::VARCHAR
            | Type::BPCHAR
            | Type::NUMERIC
            | Type::TIME
            | Type::TIMESTAMP
            | Type::TIMESTAMPTZ
            | Type::INTERVAL
    )
}

/// Precision and scale of a numeric's modifier; the scale has 11 bits and a sign.
fn numeric_modifier(typmod: i32) -> (i64, i64) {
    let packed = i64::from(typmod) - 4;
    ((packed >> 16) & 0xffff, ((packed & 0x7ff) ^ 1024) - 1024)
}

fn rounded(micros: i64, digits: i32, what: &str) -> SqlResult<i64> {
    if datetime::is_infinite_timestamp(micros) {
        return Ok(micros);
    }
    datetime::round_micros(micros, digits)
        .ok_or_else(|| SqlError::new(SqlState::DATETIME_OVERFLOW, format!("{what} out of range")))
}

fn fit_text(text: Arc<str>, to: ColumnType, explicit: bool) -> SqlResult<Arc<str>> {
    let limit = (to.typmod - 4).max(0) as usize;
    let length = if text.is_ascii() { text.len() } else { text.chars().count() };
    if length > limit {
        let end = text.char_indices().nth(limit).map_or(text.len(), |(at, _)| at);
        if !explicit && text[end..].bytes().any(|byte| byte != b' ') {
            let name = if to.ty == Type::VARCHAR { "character varying" } else { "character" };
            return Err(SqlError::new(
                SqlState::STRING_TRUNCATION,
                format!("value too long for type {name}({limit})"),
            ));
        }
        return Ok(Arc::from(&text[..end]));
    }
    if to.ty == Type::BPCHAR && length < limit {
        let mut padded = String::with_capacity(text.len() + limit - length);
        padded.push_str(&text);
        padded.extend(std::iter::repeat_n(' ', limit - length));
        return Ok(padded.into());
    }
    Ok(text)
}
