//! Literals.

use super::Binder;
use crate::parse;
use crate::plan::Expr;
use sql_types::text;
use sql_types::{ColumnType, Datum, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast::{Value, ValueWithSpan};

impl Binder<'_> {
    pub(crate) fn bind_value(&self, value: &ValueWithSpan) -> SqlResult<Expr> {
        self.bind_plain_value(&value.value).map_err(|error| self.at(error, value.span))
    }

    fn bind_plain_value(&self, value: &Value) -> SqlResult<Expr> {
        Ok(match value {
            Value::Number(number, _) => return self.number(number),
            Value::SingleQuotedString(text)
            | Value::EscapedStringLiteral(text)
            | Value::UnicodeStringLiteral(text)
            | Value::NationalStringLiteral(text) => unknown(text),
            Value::DollarQuotedString(text) => unknown(&text.value),
            Value::Boolean(value) => Expr::Const(Datum::Bool(*value), Type::BOOL),
            Value::Null => Expr::Const(Datum::Null, Type::UNKNOWN),
            Value::Placeholder(name) => return self.param(parse::parameter_number(name)? - 1),
            Value::HexStringLiteral(_) | Value::SingleQuotedByteStringLiteral(_) => {
                return Err(SqlError::unsupported("type bit"));
            }
            other => {
                return Err(SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    format!("syntax error at or near \"{other}\""),
                ));
            }
        })
    }

    /// A number: integer, bigint or numeric, whichever holds it.
    pub(crate) fn number(&self, number: &str) -> SqlResult<Expr> {
        if let Ok(value) = number.parse::<i32>() {
            return Ok(Expr::Const(Datum::Int4(value), Type::INT4));
        }
        if let Ok(value) = number.parse::<i64>() {
            return Ok(Expr::Const(Datum::Int8(value), Type::INT8));
        }
        let value = text::parse(Type::NUMERIC.into(), number, &self.context.eval.text)?;
        Ok(Expr::Const(value, Type::NUMERIC))
    }

    /// A typed constant from its text, if that does not depend on when or in which time zone it is
    /// read; otherwise a cast.
    pub(crate) fn literal(&self, literal: &str, to: ColumnType) -> SqlResult<Expr> {
        let plain = ColumnType::plain(to.ty);
        if !is_fixed(to.ty, literal) {
            return Ok(Expr::Cast { expr: Box::new(unknown(literal)), to, explicit: true });
        }
        // The fields of an interval say what a lone number counts.
        let read_as = if to.ty == Type::INTERVAL { to } else { plain };
        let value = text::parse(read_as, literal, &self.context.eval.text)?;
        let constant = Expr::Const(value, to.ty);
        if to.typmod < 0 { Ok(constant) } else { self.length_cast(constant, to, true) }
    }
}

/// An untyped literal.
pub(crate) fn unknown(text: &str) -> Expr {
    Expr::Const(Datum::text(text), Type::UNKNOWN)
}

/// Whether reading this text as this type gives the same value in every session and at every time.
/// Names of catalog objects are fixed as long as the catalog is, and so is a plan.
fn is_fixed(ty: Type, literal: &str) -> bool {
    match ty.element().unwrap_or(ty) {
        Type::DATE | Type::TIMESTAMP => is_iso_date(literal),
        Type::TIMESTAMPTZ => is_iso_date(literal) && has_offset(literal),
        _ => true,
    }
}

fn is_iso_date(literal: &str) -> bool {
    let bytes = literal.trim().as_bytes();
    bytes.len() >= 10
        && bytes[..4].iter().all(u8::is_ascii_digit)
        && bytes[4] == b'-'
        && bytes[5..7].iter().all(u8::is_ascii_digit)
        && bytes[7] == b'-'
        && bytes[8..10].iter().all(u8::is_ascii_digit)
}

fn has_offset(literal: &str) -> bool {
    let time = literal.trim().get(10..).unwrap_or("");
    time.ends_with(['z', 'Z']) || time.contains('+') || time.contains('-')
}
