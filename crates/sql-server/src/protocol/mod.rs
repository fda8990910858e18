//! PostgreSQL's frontend/backend protocol, version 3: bytes to messages and back, without I/O.
//!
//! Decoding never trusts a length or a count: every read is checked against the message's own bytes,
//! so that no input can make it panic or allocate more than was received. (The `pgwire` crate's
//! decoders read unchecked, which a malformed Bind turns into a panic; that is why this one exists.)

pub mod backend;
pub mod frontend;
pub mod reader;
pub mod startup;

/// A message that breaks the protocol; answered with SQLSTATE 08P01, after which the connection ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProtocolError(pub String);

impl ProtocolError {
    /// An error with a message.
    pub fn new(message: impl Into<String>) -> Self {
        ProtocolError(message.into())
    }
}
