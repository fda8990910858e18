//! Checked reading of message bodies.

use super::ProtocolError;
use bytes::{Buf, Bytes};

/// Reads the fields of one message body.
pub struct Reader {
    body: Bytes,
}

impl Reader {
    /// A reader over a message body (without type byte and length).
    pub fn new(body: Bytes) -> Self {
        Reader { body }
    }

    fn need(&self, len: usize) -> Result<(), ProtocolError> {
        if self.body.len() < len {
            return Err(ProtocolError::new("insufficient data left in message"));
        }
        Ok(())
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, ProtocolError> {
        self.need(1)?;
        Ok(self.body.get_u8())
    }

    /// A 16-bit signed integer.
    pub fn i16(&mut self) -> Result<i16, ProtocolError> {
        self.need(2)?;
        Ok(self.body.get_i16())
    }

    /// A 32-bit signed integer.
    pub fn i32(&mut self) -> Result<i32, ProtocolError> {
        self.need(4)?;
        Ok(self.body.get_i32())
    }

    /// A count of elements of at least `element_len` bytes each, which must fit into what is left.
    pub fn count(&mut self, element_len: usize) -> Result<usize, ProtocolError> {
        let count = usize::from(self.i16()? as u16);
        self.need(count * element_len)?;
        Ok(count)
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Result<Bytes, ProtocolError> {
        self.need(len)?;
        Ok(self.body.split_to(len))
    }

    /// A zero-terminated string, not necessarily UTF-8.
    pub fn c_bytes(&mut self) -> Result<Bytes, ProtocolError> {
        let Some(end) = self.body.iter().position(|byte| *byte == 0) else {
            return Err(ProtocolError::new("invalid string in message"));
        };
        let value = self.body.split_to(end);
        self.body.advance(1);
        Ok(value)
    }

    /// A zero-terminated string; bytes that are not UTF-8 are replaced, which can only make a name
    /// unknown.
    pub fn name(&mut self) -> Result<String, ProtocolError> {
        Ok(String::from_utf8_lossy(&self.c_bytes()?).into_owned())
    }

    /// All that is left.
    pub fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.body)
    }

    /// Checks that nothing is left.
    pub fn end(&self) -> Result<(), ProtocolError> {
        if self.body.is_empty() { Ok(()) } else { Err(ProtocolError::new("invalid message format")) }
    }
}
