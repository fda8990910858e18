//! How a node did not serve a batch.

use crate::pending::Outcome;
use kv_api::{BatchResponse, KvError, KvErrorKind, KvResult};
use tokio::sync::oneshot::error::RecvError;

/// How a node did not serve a batch. Only after [`Miss::Lost`] it may have been carried out.
#[derive(Debug)]
pub enum Miss {
    /// An error that another node would not cure.
    Error(KvError),
    /// It does not hold the lease; the error may say who does.
    NotLeaseholder(KvError),
    /// It does not have the range.
    RangeNotFound(KvError),
    /// It may serve later.
    Unavailable(KvError),
    /// The batch did not get there.
    Unsent,
    /// The connection was lost after the batch was written.
    Lost,
}

impl Miss {
    /// What an error means that a node answered with.
    pub fn of(error: KvError) -> Self {
        match error.kind() {
            KvErrorKind::NotLeaseholder => Miss::NotLeaseholder(error),
            KvErrorKind::RangeNotFound => Miss::RangeNotFound(error),
            // It says so before it does anything.
            KvErrorKind::Unavailable => Miss::Unavailable(error),
            _ => Miss::Error(error),
        }
    }

    /// Whether the node has nothing of the batch's transaction that it did not have before.
    pub fn leaves_nothing(&self) -> bool {
        matches!(self, Miss::NotLeaseholder(_) | Miss::RangeNotFound(_) | Miss::Unsent)
    }

    /// What the node said, if it said something.
    pub fn into_error(self) -> Option<KvError> {
        match self {
            Miss::Error(error)
            | Miss::NotLeaseholder(error)
            | Miss::RangeNotFound(error)
            | Miss::Unavailable(error) => Some(error),
            Miss::Unsent | Miss::Lost => None,
        }
    }
}

/// What became of a batch that was submitted.
pub fn judge(outcome: Result<Outcome, RecvError>) -> Result<BatchResponse, Miss> {
    match outcome {
        Ok(Outcome::Answered(Ok(response))) => Ok(response),
        Ok(Outcome::Answered(Err(error))) => Err(Miss::of(error)),
        Ok(Outcome::Unsent) => Err(Miss::Unsent),
        Ok(Outcome::Lost) | Err(_) => Err(Miss::Lost),
    }
}

/// What a caller who has waited in vain is told.
pub fn unavailable(last: Option<KvError>) -> KvError {
    let message = last.map_or_else(|| "no KV node answers".to_owned(), |error| error.message);
    KvError::new(KvErrorKind::Unavailable, message)
}

/// The range that a lookup found.
pub fn range_found(response: BatchResponse) -> KvResult<kv_api::batch::RangeInfo> {
    let found = response.responses.into_iter().next().and_then(|response| response.ranges.into_iter().next());
    found.ok_or_else(|| KvError::new(KvErrorKind::RangeNotFound, "no range holds the keys"))
}
