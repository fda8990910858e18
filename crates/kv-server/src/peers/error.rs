//! Why connections end and messages are dropped.

use super::frames::MAX_FIRST_FRAME_LEN;
use kv_api::wire::FrameError;
use std::io;

/// Why a connection between KV nodes could not be made, or ended.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The network failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The peer sent bytes that are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The first frame is longer than one can be.
    #[error("a first frame of {0} bytes exceeds the limit of {MAX_FIRST_FRAME_LEN}")]
    FirstFrameTooLong(usize),
    /// The connection was closed within a frame, or before the first one.
    #[error("the peer closed the connection in the middle of a frame")]
    Truncated,
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    Closed,
    /// TCP, TLS or the first frame took too long.
    #[error("no connection within the time allowed")]
    Handshake,
    /// The first frame is neither a hello nor a request to join.
    #[error("the first frame is of no known kind")]
    UnknownKind,
    /// A frame did not arrive within the time allowed.
    #[error("the peer took too long to send a frame")]
    SlowSender,
    /// The peer did not take a frame within the time allowed.
    #[error("the peer took too long to read a frame")]
    SlowReader,
    /// The peer sent something where nothing is expected.
    #[error("the peer sent what a receiver of messages never sends")]
    Unexpected,
    /// One of the two sides does not want to talk to the other. The message says what to do.
    #[error("{0}")]
    Refused(String),
}

impl PeerError {
    /// Whether the peer is merely gone.
    pub(super) fn is_end(error: &io::Error) -> bool {
        matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
    }
}

/// Why a message was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Nobody has told where its receiver is.
    NoAddress,
    /// Too much waits for its receiver already.
    QueueFull,
    /// Its receiver could not be reached, or the connection ended while it was written.
    Unreachable,
    /// It is larger than a frame may be.
    TooLarge,
    /// Its sender or receiver is blocked.
    Blocked,
    /// It arrived from a node it does not name as its sender, or at one it does not name as its
    /// receiver.
    Misaddressed,
}

impl DropReason {
    /// As the counter of dropped messages has it.
    pub(super) fn label(self) -> &'static str {
        match self {
            DropReason::NoAddress => "no_address",
            DropReason::QueueFull => "queue_full",
            DropReason::Unreachable => "unreachable",
            DropReason::TooLarge => "too_large",
            DropReason::Blocked => "blocked",
            DropReason::Misaddressed => "misaddressed",
        }
    }

    /// Adds to the counter of dropped messages.
    pub(super) fn count(self, messages: usize) {
        if messages > 0 {
            let counter = crate::metrics::metrics().peer_dropped.with_label_values(&[self.label()]);
            counter.inc_by(messages as u64);
        }
    }
}
