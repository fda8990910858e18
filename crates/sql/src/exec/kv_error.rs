//! What errors of the key-value layer are to a user.

use kv_api::{KvError, KvErrorKind};
use sql_types::{SqlError, SqlState};

/// The SQL error for an error of the key-value layer. A failed condition becomes a plain 23505; the
/// commit of a statement knows more, see [`crate::dml::commit_error`].
pub fn kv_error(error: KvError) -> SqlError {
    let (code, message) = match error.kind() {
        KvErrorKind::Internal => (SqlState::INTERNAL, error.message),
        KvErrorKind::Unauthorized => (SqlState::INSUFFICIENT_PRIVILEGE, error.message),
        KvErrorKind::InvalidRequest => (SqlState::INVALID_PARAMETER, error.message),
        KvErrorKind::Retry | KvErrorKind::Aborted | KvErrorKind::SnapshotBehind => {
            let text = "could not serialize access due to concurrent update";
            let retry = SqlError::new(SqlState::SERIALIZATION_FAILURE, text).with_detail(error.message);
            return retry.with_hint("The transaction might succeed if retried.");
        }
        KvErrorKind::Deadlock => {
            let detail = error.message;
            return SqlError::new(SqlState::DEADLOCK, "deadlock detected").with_detail(detail);
        }
        KvErrorKind::LockNotAvailable => (SqlState::LOCK_NOT_AVAILABLE, error.message),
        KvErrorKind::ConditionFailed => {
            (SqlState::UNIQUE_VIOLATION, "duplicate key value violates unique constraint".to_string())
        }
        KvErrorKind::CounterOverflow => (SqlState::SEQUENCE_LIMIT, error.message),
        KvErrorKind::Ambiguous => {
            let text = "the outcome of the transaction is unknown";
            let unknown = SqlError::new(SqlState::COMPLETION_UNKNOWN, text).with_detail(error.message);
            return unknown.with_hint("Check whether its changes are there before running it again.");
        }
        KvErrorKind::Unavailable | KvErrorKind::NotLeaseholder | KvErrorKind::RangeNotFound => {
            (SqlState::CONNECTION_FAILURE, error.message)
        }
        KvErrorKind::DiskFull => (SqlState::DISK_FULL, error.message),
        KvErrorKind::Storage => (SqlState::IO_ERROR, error.message),
        KvErrorKind::Corrupted => (SqlState::DATA_CORRUPTED, error.message),
        KvErrorKind::Overloaded => (SqlState::INSUFFICIENT_RESOURCES, error.message),
    };
    SqlError::new(code, message)
}
