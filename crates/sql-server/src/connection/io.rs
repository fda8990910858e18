//! Buffered input and output of a connection.

use crate::protocol::{ProtocolError, frontend, startup};
use bytes::BytesMut;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Room made before each read, in bytes; what an idle connection holds.
const READ_STEP: usize = 4 << 10;
/// An input or output buffer that grew beyond this is given back when it is empty.
const KEEP_CAPACITY: usize = 64 << 10;
/// Output is written out when it reaches this many bytes in the middle of a result.
pub const FLUSH_AT: usize = 32 << 10;
/// While a statement runs, input is read ahead (to notice a client that went away) up to this many
/// bytes; beyond it the client waits.
const READ_AHEAD: usize = 1 << 20;

/// Why a connection ends without its client having asked for it.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The socket failed, or the client went away.
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    /// The client broke the protocol.
    #[error("protocol violation: {0}")]
    Protocol(#[from] ProtocolError),
}

/// The reading half.
pub struct Input<R> {
    reader: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Input<R> {
    /// Reads from `reader`; `buffer` holds what was read already.
    pub fn new(reader: R, buffer: BytesMut) -> Self {
        Input { reader, buffer }
    }

    async fn fill(&mut self) -> io::Result<()> {
        self.buffer.reserve(READ_STEP);
        match self.reader.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// A message if one is there already.
    ///
    /// # Errors
    /// If the client broke the protocol.
    pub fn buffered(&mut self) -> Result<Option<frontend::Frontend>, ConnectionError> {
        Ok(frontend::decode(&mut self.buffer)?)
    }

    /// The next message; waits for it.
    ///
    /// # Errors
    /// If the client went away or broke the protocol.
    pub async fn message(&mut self) -> Result<frontend::Frontend, ConnectionError> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(message);
            }
            if self.buffer.is_empty() && self.buffer.capacity() > KEEP_CAPACITY {
                self.buffer = BytesMut::new();
            }
            self.fill().await?;
        }
    }

    /// The first packet of a connection; waits for it.
    ///
    /// # Errors
    /// If the client went away or broke the protocol.
    pub async fn first_packet(&mut self) -> Result<startup::FirstPacket, ConnectionError> {
        loop {
            if let Some(packet) = startup::decode(&mut self.buffer)? {
                return Ok(packet);
            }
            self.fill().await?;
        }
    }

    /// Whether the next message is a whole Sync.
    pub fn sync_follows(&self) -> bool {
        frontend::sync_follows(&self.buffer)
    }

    /// Whether nothing of a further message has arrived.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Reads ahead until the client goes away, and then says so. Never returns while the client stays.
    /// Safe to drop at any time: what was read is kept.
    pub async fn until_gone(&mut self) -> io::Error {
        loop {
            if self.buffer.len() >= READ_AHEAD {
                return std::future::pending().await;
            }
            if let Err(error) = self.fill().await {
                return error;
            }
        }
    }

    /// Gives the halves back, to put TLS between.
    pub fn into_parts(self) -> (R, BytesMut) {
        (self.reader, self.buffer)
    }
}

/// The writing half.
pub struct Output<W> {
    writer: W,
    /// What is to be written; messages are appended here.
    pub buffer: BytesMut,
}

impl<W: AsyncWrite + Unpin> Output<W> {
    /// Writes to `writer`.
    pub fn new(writer: W) -> Self {
        Output { writer, buffer: BytesMut::new() }
    }

    /// Writes out all that is buffered.
    ///
    /// # Errors
    /// If the client went away.
    pub async fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.writer.write_all(&self.buffer).await?;
        self.writer.flush().await?;
        if self.buffer.capacity() > KEEP_CAPACITY {
            self.buffer = BytesMut::new();
        } else {
            self.buffer.clear();
        }
        Ok(())
    }

    /// Writes out what is buffered if it is much.
    ///
    /// # Errors
    /// If the client went away.
    pub async fn flush_if_full(&mut self) -> io::Result<()> {
        if self.buffer.len() >= FLUSH_AT { self.flush().await } else { Ok(()) }
    }

    /// Gives the half back with what was not written yet.
    pub fn into_parts(self) -> (W, BytesMut) {
        (self.writer, self.buffer)
    }
}
