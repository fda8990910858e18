//! One direction of a session: bytes read from one socket and written to the other.
//!
//! The hot path of the proxy. A chunk is read into a buffer that belongs to the thread and is written on
//! at once, so an idle connection holds no buffer and a busy one finds it in the processor's cache. Only
//! when the receiver does not take everything is the rest of that one chunk kept, and nothing more is
//! read until it is gone: that is the back pressure, and the bound.

use crate::stream::Stream;
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes read at once, and so the most that one direction of a session ever holds.
const CHUNK: usize = 32 * 1024;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK].into_boxed_slice());
}

/// How a direction came to its end.
#[derive(Debug)]
pub(crate) enum FlowEnd {
    /// The sender is done and all it sent has been delivered.
    Finished,
    /// The sender's socket failed.
    SenderFailed(io::Error),
    /// The receiver's socket failed; undelivered bytes are lost.
    ReceiverFailed(io::Error),
    /// What the sender sent may not be passed on.
    Refused,
}

/// The state of one direction.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Read but not taken by the receiver yet; without capacity most of the time.
    pending: Vec<u8>,
    /// How much of `pending` the receiver has taken.
    sent: usize,
    /// The sender is done.
    ended: bool,
    /// The receiver has bytes that a flush would push out.
    unflushed: bool,
    /// Bytes read in all.
    total: u64,
    /// Those of them that [`Flow::take_uncounted`] has handed out.
    counted: u64,
}

impl Flow {
    /// A direction that begins with bytes that were read earlier.
    pub fn starting_with(bytes: Vec<u8>) -> Self {
        Self { total: u64::try_from(bytes.len()).unwrap_or(0), pending: bytes, ..Self::default() }
    }

    /// Whether the sender is done.
    pub fn sender_ended(&self) -> bool {
        self.ended
    }

    /// Whether the receiver still has to take something.
    pub fn has_pending(&self) -> bool {
        self.sent < self.pending.len()
    }

    /// Bytes that went this way in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes not yet counted by anyone, if they are more than `least`.
    pub fn take_uncounted(&mut self, least: u64) -> Option<u64> {
        let bytes = self.total.wrapping_sub(self.counted);
        if bytes <= least {
            return None;
        }
        self.counted = self.total;
        Some(bytes)
    }

    /// Moves bytes until one of the sockets has to be waited for. `observe` sees, and may change, every
    /// chunk before it goes on; when it returns false the direction ends.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        sender: &mut Stream,
        receiver: &mut Stream,
        mut observe: impl FnMut(&mut [u8]) -> bool,
    ) -> Poll<FlowEnd> {
        loop {
            if let Err(error) = ready!(self.poll_pending(cx, receiver)) {
                return Poll::Ready(FlowEnd::ReceiverFailed(error));
            }
            if self.ended {
                return self.poll_flush(cx, receiver).map(|flushed| match flushed {
                    Ok(()) => FlowEnd::Finished,
                    Err(error) => FlowEnd::ReceiverFailed(error),
                });
            }
            let end = SCRATCH.with_borrow_mut(|scratch| {
                let mut buffer = ReadBuf::new(scratch);
                if let Err(error) = ready!(Pin::new(&mut *sender).poll_read(cx, &mut buffer)) {
                    return Poll::Ready(Some(FlowEnd::SenderFailed(error)));
                }
                let chunk = buffer.filled_mut();
                if chunk.is_empty() {
                    self.ended = true;
                    return Poll::Ready(None);
                }
                self.total = self.total.wrapping_add(u64::try_from(chunk.len()).unwrap_or(0));
                if !observe(chunk) {
                    return Poll::Ready(Some(FlowEnd::Refused));
                }
                Poll::Ready(self.pass_on(cx, receiver, chunk).map(FlowEnd::ReceiverFailed))
            });
            match end {
                Poll::Ready(None) => {}
                Poll::Ready(Some(end)) => return Poll::Ready(end),
                Poll::Pending => {
                    return match self.poll_flush(cx, receiver) {
                        Poll::Ready(Err(error)) => Poll::Ready(FlowEnd::ReceiverFailed(error)),
                        _ => Poll::Pending,
                    };
                }
            }
        }
    }

    /// Writes a fresh chunk and keeps what the receiver does not take.
    fn pass_on(&mut self, cx: &mut Context<'_>, receiver: &mut Stream, chunk: &[u8]) -> Option<io::Error> {
        let taken = match Pin::new(&mut *receiver).poll_write(cx, chunk) {
            Poll::Ready(Ok(taken)) => taken,
            Poll::Ready(Err(error)) => return Some(error),
            Poll::Pending => 0,
        };
        self.unflushed = receiver.is_tls();
        if let Some(rest) = chunk.get(taken..).filter(|rest| !rest.is_empty()) {
            self.pending = rest.to_vec();
            self.sent = 0;
        }
        None
    }

    /// Delivers what is pending and gives its memory back.
    fn poll_pending(&mut self, cx: &mut Context<'_>, receiver: &mut Stream) -> Poll<io::Result<()>> {
        while let Some(rest) = self.pending.get(self.sent..).filter(|rest| !rest.is_empty()) {
            let taken = ready!(Pin::new(&mut *receiver).poll_write(cx, rest))?;
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent = self.sent.saturating_add(taken);
            self.unflushed = receiver.is_tls();
        }
        if self.sent > 0 {
            self.pending = Vec::new();
            self.sent = 0;
        }
        Poll::Ready(Ok(()))
    }

    /// Pushes out what TLS still holds.
    fn poll_flush(&mut self, cx: &mut Context<'_>, receiver: &mut Stream) -> Poll<io::Result<()>> {
        if self.unflushed {
            ready!(Pin::new(receiver).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}
