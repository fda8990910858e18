//! Operations that failed.

use pg_client::Kind;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// An operation that failed.
#[derive(Debug)]
pub enum Failure {
    /// It certainly had no effect.
    Undone(Error),
    /// The connection ended while the commit was under way: nobody knows.
    Ambiguous(Error),
}

impl Failure {
    /// What a failed COMMIT means: an error the server reported undid the transaction, unless it says
    /// itself that it does not know.
    pub fn of_commit(error: Error) -> Self {
        let unknown = error.code() == Some(&SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN);
        if unknown || Kind::of(&error) == Kind::Lost { Self::Ambiguous(error) } else { Self::Undone(error) }
    }

    /// The error.
    pub fn error(&self) -> &Error {
        let (Self::Undone(error) | Self::Ambiguous(error)) = self;
        error
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Undone(error)
    }
}
