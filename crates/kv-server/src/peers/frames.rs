//! Frames on a connection between KV nodes.

use super::error::PeerError;
use bytes::BytesMut;
use kv_api::wire::{MAX_FRAME_LEN, decode_frame, encode_frame};
use prost::Message;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

/// Longest first frame, and longest answer to one, in bytes.
pub(super) const MAX_FIRST_FRAME_LEN: usize = 1 << 20;
/// Least and most room made before each read. The most is not the length a frame claims to have: what
/// is not there yet takes no memory.
const READ_LEAST: usize = 16 << 10;
const READ_MOST: usize = 256 << 10;
/// A buffer that grew beyond this is given back when it is empty.
const KEEP_CAPACITY: usize = 256 << 10;

/// A connection on which frames are read.
pub(super) struct Frames<S> {
    pub(super) stream: S,
    input: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Frames<S> {
    pub(super) fn new(stream: S) -> Self {
        Frames { stream, input: BytesMut::new() }
    }

    /// Writes a frame.
    pub(super) async fn write(&mut self, message: &impl Message) -> Result<(), PeerError> {
        let mut output = BytesMut::new();
        encode_frame(message, &mut output);
        self.stream.write_all(&output).await?;
        Ok(self.stream.flush().await?)
    }

    /// Reads the first frame.
    pub(super) async fn first<M: Message + Default>(&mut self) -> Result<M, PeerError> {
        loop {
            match claimed_len(&self.input) {
                Some(len) if len > MAX_FIRST_FRAME_LEN => return Err(PeerError::FirstFrameTooLong(len)),
                _ => {}
            }
            if let Some(message) = decode_frame(&mut self.input)? {
                return Ok(message);
            }
            if self.read().await? == 0 {
                return Err(if self.input.is_empty() { PeerError::Closed } else { PeerError::Truncated });
            }
        }
    }

    /// Reads a frame; `None` if the connection was closed before one began. Also says how many bytes
    /// the frame took.
    pub(super) async fn next<M: Message + Default>(
        &mut self,
        frame_timeout: Duration,
    ) -> Result<Option<(M, usize)>, PeerError> {
        let mut started = None;
        loop {
            let before = self.input.len();
            if let Some(message) = decode_frame(&mut self.input)? {
                let len = before - self.input.len();
                if self.input.is_empty() && self.input.capacity() > KEEP_CAPACITY {
                    self.input = BytesMut::new();
                }
                return Ok(Some((message, len)));
            }
            let read = if self.input.is_empty() {
                self.read().await?
            } else {
                let megabytes = claimed_len(&self.input).unwrap_or(0) >> 20;
                let allowed = frame_timeout.saturating_mul(u32::try_from(1 + megabytes).unwrap_or(u32::MAX));
                let deadline = *started.get_or_insert_with(Instant::now) + allowed;
                timeout_at(deadline, self.read()).await.map_err(|_| PeerError::SlowSender)??
            };
            if read == 0 {
                return if self.input.is_empty() { Ok(None) } else { Err(PeerError::Truncated) };
            }
        }
    }

    /// Reads what there is; 0 at the end.
    async fn read(&mut self) -> Result<usize, PeerError> {
        let missing = claimed_len(&self.input).map_or(0, |len| (4 + len).saturating_sub(self.input.len()));
        self.input.reserve(missing.clamp(READ_LEAST, READ_MOST));
        match self.stream.read_buf(&mut self.input).await {
            // A peer that dies says no goodbye on TLS.
            Err(error) if PeerError::is_end(&error) => Ok(0),
            read => Ok(read?),
        }
    }
}

/// The length that the frame at the front claims to have, cut off where decoding refuses it.
fn claimed_len(input: &[u8]) -> Option<usize> {
    let header = input.first_chunk::<4>()?;
    Some((u32::from_be_bytes(*header) as usize).min(MAX_FRAME_LEN + 1))
}
