//! RAISE, and what handlers of errors learn.

use super::ast::Raise;
use super::conditions::{self, RAISE_EXCEPTION};
use super::machine::Machine;
use crate::session::Notice;
use sql_types::{SqlError, SqlResult, SqlState};

impl Machine<'_> {
    /// RAISE: the error, or `None` for what is only told.
    pub(super) async fn raise(&mut self, raise: &Raise) -> SqlResult<()> {
        let mut message = None;
        if let Some(parts) = &raise.message {
            let mut text = String::new();
            for (position, part) in parts.iter().enumerate() {
                text.push_str(part);
                if let Some(argument) = raise.arguments.get(position) {
                    let shown = self.text(argument).await?;
                    text.push_str(shown.as_deref().unwrap_or("<NULL>"));
                }
            }
            message = Some(text);
        }
        let mut error = SqlError::new(raise.code.unwrap_or(RAISE_EXCEPTION), "");
        let mut condition = raise.condition.clone();
        for (option, value) in &raise.using {
            let Some(value) = self.text(value).await? else {
                let message = "RAISE statement option cannot be null";
                return Err(SqlError::new(SqlState::NULL_NOT_ALLOWED, message));
            };
            let twice = || {
                let message = format!("RAISE option already specified: {}", option.to_uppercase());
                SqlError::new(SqlState::SYNTAX_ERROR, message)
            };
            match option.as_str() {
                "errcode" => {
                    if raise.code.is_some() {
                        return Err(twice());
                    }
                    let named = conditions::named(&value).into_iter().next();
                    let Some(code) = named.or_else(|| conditions::state(&value)) else {
                        let message = format!("unrecognized exception condition \"{value}\"");
                        return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
                    };
                    error.code = code;
                    condition = Some(value);
                }
                "message" if message.is_some() => return Err(twice()),
                "message" => message = Some(value),
                "detail" => error.extra_mut().detail = Some(value),
                "hint" => error.extra_mut().hint = Some(value),
                "column" => error.extra_mut().column = Some(value),
                "constraint" => error.extra_mut().constraint = Some(value),
                "datatype" => error.extra_mut().data_type = Some(value),
                "table" => error.extra_mut().table = Some(value),
                _ => error.extra_mut().schema = Some(value),
            }
        }
        error.message = message.or(condition).unwrap_or_else(|| error.code.0.to_string());
        let Some(severity) = raise.severity else { return Err(error) };
        if raise.code.is_none() && !raise.using.iter().any(|(option, _)| option == "errcode") {
            error.code = if severity == "WARNING" { SqlState::WARNING } else { SqlState::SUCCESS };
        }
        self.statements.notice(Notice { severity, error });
        Ok(())
    }

    /// An item of GET DIAGNOSTICS.
    pub(super) fn diagnostic(&self, item: &str) -> sql_types::Datum {
        use sql_types::Datum;
        if item == "row_count" {
            return Datum::Int8(i64::try_from(self.row_count).unwrap_or(i64::MAX));
        }
        let Some(error) = self.handled.last() else { return Datum::text("") };
        let extra = error.extra();
        let of = |field: Option<&String>| Datum::text(field.map_or("", String::as_str));
        match item {
            "returned_sqlstate" => Datum::text(error.code.0),
            "message_text" => Datum::text(error.message.as_str()),
            "pg_exception_detail" => of(extra.and_then(|extra| extra.detail.as_ref())),
            "pg_exception_hint" => of(extra.and_then(|extra| extra.hint.as_ref())),
            "pg_exception_context" => of(extra.and_then(|extra| extra.context.as_ref())),
            "column_name" => of(extra.and_then(|extra| extra.column.as_ref())),
            "constraint_name" => of(extra.and_then(|extra| extra.constraint.as_ref())),
            "pg_datatype_name" => of(extra.and_then(|extra| extra.data_type.as_ref())),
            "table_name" => of(extra.and_then(|extra| extra.table.as_ref())),
            _ => of(extra.and_then(|extra| extra.schema.as_ref())),
        }
    }
}
