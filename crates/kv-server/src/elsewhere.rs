//! Work on a task of its own that ends with whoever waits for it.

use crate::node::BatchResult;
use kv_api::{KvError, KvErrorKind};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::task::JoinHandle;

/// A batch evaluated on a task of its own. If nobody waits for it any more, it is ended.
pub(crate) struct Elsewhere(JoinHandle<BatchResult>);

impl Elsewhere {
    /// Begins it.
    pub fn spawn(batch: impl Future<Output = BatchResult> + Send + 'static) -> Self {
        Elsewhere(tokio::spawn(batch))
    }
}

impl Future for Elsewhere {
    type Output = BatchResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<BatchResult> {
        Pin::new(&mut self.0).poll(context).map(|joined| {
            joined.unwrap_or_else(|error| {
                tracing::error!("the evaluation of a batch ended abnormally: {error}");
                Err(KvError::new(KvErrorKind::Internal, "the evaluation of the batch ended abnormally"))
            })
        })
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.0.abort();
    }
}
