//! Stack for calls that nest.
//!
//! A call of a function is polled within the statement that made it, and control structures of PL/pgSQL within each
//! other. How deep that goes is bounded, but not by what the stack of a thread holds.

use futures::FutureExt;
use futures::future::BoxFuture;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// What must be left of the stack for a statement to run.
const TO_RUN: usize = 1 << 20;
/// What must be left for a statement to be planned.
const TO_PLAN: usize = 2 << 20;
/// What is taken where that is not left.
const MORE: usize = 4 << 20;

/// A future that runs with enough stack, wherever it is polled.
pub(crate) struct Deep<'a, T>(BoxFuture<'a, T>);

impl<'a, T> Deep<'a, T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'a) -> Deep<'a, T> {
        Deep(future.boxed())
    }
}

impl<T> Future for Deep<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        stacker::maybe_grow(TO_RUN, MORE, || self.0.as_mut().poll(cx))
    }
}

/// Reads or plans a statement with enough stack.
pub(crate) fn planning<T>(plan: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(TO_PLAN, MORE, plan)
}
