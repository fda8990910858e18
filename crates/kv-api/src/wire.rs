//! Frames: how batches travel between a SQL node and a KV node.
//!
//! A frame is a 32-bit big-endian length followed by that many bytes of one protobuf message. The
//! first frame in each direction is a [`Hello`]; after it the client sends [`ClientFrame`]s and the
//! server answers each with a [`ServerFrame`] of the same `id`, in any order. Many requests are under
//! way on one connection at once, and both sides write all frames that are ready with one system
//! call, which is where the cost per request goes down as load goes up.
//!
//! Missing on purpose: compression, fragmentation, and priorities.

use crate::batch::{BatchRequest, BatchResponse};
use crate::error::KvError;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

/// Version of the frames and of every message in them.
pub const PROTOCOL_VERSION: u32 = 8;
/// Largest frame accepted, in bytes of payload.
pub const MAX_FRAME_LEN: usize = 80 << 20;

/// First message in each direction.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the sender.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// The server's cluster id; from a client, the one it expects, or empty.
    #[prost(string, tag = "2")]
    pub cluster_id: String,
    /// Set by a server that refuses the connection.
    #[prost(message, optional, tag = "3")]
    pub refused: Option<KvError>,
    /// From a server: addresses (`host:port`) of the cluster's KV nodes as it knows them, so that clients
    /// learn of nodes that joined later. Empty if it knows none.
    #[prost(string, repeated, tag = "4")]
    pub addresses: Vec<String>,
}

/// A request on its way.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClientFrame {
    /// Chosen by the client, unique among its requests under way.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// What is asked.
    #[prost(message, required, tag = "2")]
    pub batch: BatchRequest,
}

/// An answer on its way.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ServerFrame {
    /// The `id` of the request.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The answer, if the batch succeeded.
    #[prost(message, optional, tag = "2")]
    pub response: Option<BatchResponse>,
    /// The error, if it did not.
    #[prost(message, optional, tag = "3")]
    pub error: Option<KvError>,
}

/// Why bytes are not a frame. The connection cannot go on after it.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The length field exceeds [`MAX_FRAME_LEN`].
    #[error("frame of {0} bytes exceeds the limit of {MAX_FRAME_LEN}")]
    TooLong(usize),
    /// The payload is not the message expected.
    #[error("malformed frame: {0}")]
    Malformed(#[from] prost::DecodeError),
}

/// Appends a frame with `message` to `out`.
pub fn encode_frame(message: &impl Message, out: &mut BytesMut) {
    let len = message.encoded_len();
    out.reserve(4 + len);
    out.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
    // BytesMut grows, so encoding into it cannot run out of room.
    let _ = message.encode(out);
}

/// Takes one frame off the front of `input`; `Ok(None)` if it is not complete yet.
///
/// # Errors
/// [`FrameError`] if the bytes can never become a frame.
pub fn decode_frame<M: Message + Default>(input: &mut BytesMut) -> Result<Option<M>, FrameError> {
    let Some(header) = input.first_chunk::<4>() else { return Ok(None) };
    let len = u32::from_be_bytes(*header) as usize;
    if len > MAX_FRAME_LEN {
        return Err(FrameError::TooLong(len));
    }
    if input.len() < 4 + len {
        return Ok(None);
    }
    input.advance(4);
    let payload: Bytes = input.split_to(len).freeze();
    Ok(Some(M::decode(payload)?))
}
