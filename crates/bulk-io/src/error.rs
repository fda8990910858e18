//! Why an import or an export failed.

use std::fmt;
use tokio_postgres::error::DbError;

/// Why an import or an export failed: a message and, where there is one, the SQLSTATE and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    message: String,
    hint: Option<String>,
    sqlstate: Option<String>,
}

/// Result of what this crate does.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A failure with one line of explanation.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, sqlstate: None }
    }

    /// Adds what can be done about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint.get_or_insert(hint.into());
        self
    }

    /// Says first where or during what it happened.
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// What can be done about it.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// What PostgreSQL calls it, if a server said so.
    pub fn sqlstate(&self) -> Option<&str> {
        self.sqlstate.as_deref()
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(error) => of_server(error),
            None => Self::new(error.to_string()),
        }
    }
}

fn of_server(error: &DbError) -> Error {
    let mut message = error.message().to_owned();
    // A context such as `COPY t, line 3, column a: "x"` counts the lines of one batch: only the column helps.
    if let Some((_, column)) = error.where_().and_then(|context| context.split_once(", column ")) {
        message.push_str(&format!(" (column {column})"));
    }
    if let Some(detail) = error.detail() {
        message.push_str(&format!(": {detail}"));
    }
    message.push_str(&format!(" (SQLSTATE {})", error.code().code()));
    let hint = error.hint().map(str::to_owned);
    Error { message, hint, sqlstate: Some(error.code().code().to_owned()) }
}

impl From<::parquet::errors::ParquetError> for Error {
    fn from(error: ::parquet::errors::ParquetError) -> Self {
        Self::new(format!("malformed or unsupported Parquet: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_hint_counts_and_places_are_said_first() {
        let error = Error::new("no").hint("first").hint("second").at("row 3").at("a.csv");
        assert_eq!((error.to_string().as_str(), error.hint_text()), ("a.csv: row 3: no", Some("first")));
    }
}
