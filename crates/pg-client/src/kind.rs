//! What an error means to a client that wants to go on.

use std::error::Error as _;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// What to do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The transaction was undone because of others: do it again.
    Retry,
    /// The connection is gone, or the server is not there right now: connect again.
    Lost,
    /// Nothing that time heals.
    Fatal,
}

impl Kind {
    /// What to do about an error.
    pub fn of(error: &Error) -> Self {
        if let Some(code) = error.code() {
            return Self::of_code(code);
        }
        let is_io = error.source().is_some_and(|source| source.is::<std::io::Error>());
        if error.is_closed() || is_io { Self::Lost } else { Self::Fatal }
    }

    fn of_code(code: &SqlState) -> Self {
        match code.code() {
            "40001" | "40P01" | "40003" => Self::Retry,
            "57P01" | "57P02" | "57P03" | "53300" => Self::Lost,
            code if code.starts_with("08") && code != "08004" => Self::Lost,
            _ => Self::Fatal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes() {
        for (code, kind) in [
            ("40001", Kind::Retry),
            ("40P01", Kind::Retry),
            ("57P01", Kind::Lost),
            ("08006", Kind::Lost),
            ("08004", Kind::Fatal),
            ("28P01", Kind::Fatal),
            ("23505", Kind::Fatal),
        ] {
            assert_eq!(Kind::of_code(&SqlState::from_code(code)), kind, "{code}");
        }
    }
}
