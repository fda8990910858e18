//! Errors of the storage layer.

use crate::intent::TxnId;
use kv_api::{KvError, KvErrorKind};

/// Result of a storage operation.
pub type StorageResult<T> = Result<T, StorageError>;

/// What went wrong below the multi-version layer, or must be waited for. None of these is the fault of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// No space is left. Nothing of the batch took effect; the engine serves reads and takes writes
    /// again once there is space.
    #[error("the disk is full: {0}")]
    DiskFull(String),
    /// Bytes on disk are not what was written.
    #[error("damaged data: {0}")]
    Corruption(String),
    /// The operating system returned an error.
    #[error("storage I/O error: {0}")]
    Io(String),
    /// The store cannot be opened by this program as it is.
    #[error("{0}")]
    Incompatible(String),
    /// Another process has the store open.
    #[error("the store is in use by another process: {0}")]
    InUse(String),
    /// Not a failure: an intent is in the way of a transaction of which it is not known yet whether it commits.
    #[error("an intent of a transaction that is not decided yet is in the way")]
    Undecided(TxnId),
    /// Not a failure: the reader was to read so much only, and there is more.
    #[error("there is more to read than was allowed")]
    OutOfPatience,
}

impl StorageError {
    /// A corruption with a message.
    pub fn corruption(message: impl Into<String>) -> Self {
        StorageError::Corruption(message.into())
    }
}

impl From<StorageError> for KvError {
    fn from(error: StorageError) -> Self {
        let kind = match error {
            StorageError::DiskFull(_) => KvErrorKind::DiskFull,
            StorageError::Corruption(_) => KvErrorKind::Corrupted,
            StorageError::Undecided(_) | StorageError::OutOfPatience => KvErrorKind::Retry,
            StorageError::Io(_) | StorageError::Incompatible(_) | StorageError::InUse(_) => {
                KvErrorKind::Storage
            }
        };
        // File names stay in the server's log; they say nothing to a tenant.
        let message = match error {
            StorageError::DiskFull(_) => "the disk of the KV node is full",
            StorageError::Corruption(_) => "the KV node found damaged data on its disk",
            StorageError::Io(_) => "the disk of the KV node returned an error",
            StorageError::Undecided(_) => "a transaction that is not decided yet is in the way",
            StorageError::OutOfPatience => "there was more to read than was allowed",
            StorageError::Incompatible(_) | StorageError::InUse(_) => "the KV node cannot open its store",
        };
        KvError::new(kind, message)
    }
}
