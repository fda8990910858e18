//! The first packet of a connection.

use super::ProtocolError;
use super::reader::Reader;
use bytes::{Buf, BytesMut};

/// Longest startup packet, PostgreSQL's own bound.
pub const MAX_STARTUP_LEN: usize = 10_000;

const CANCEL_CODE: i32 = 80_877_102;
const SSL_CODE: i32 = 80_877_103;
const GSS_CODE: i32 = 80_877_104;

/// The first packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstPacket {
    /// Asks for TLS; another first packet follows.
    SslRequest,
    /// Asks for GSSAPI encryption; another first packet follows.
    GssRequest,
    /// Asks to cancel what the session with this key is doing.
    Cancel {
        /// Process id of the session.
        process_id: i32,
        /// Secret of the session.
        secret: i32,
    },
    /// Opens a session.
    Startup {
        /// Minor version of protocol 3.
        minor: u16,
        /// Names and values.
        parameters: Vec<(String, String)>,
    },
}

/// Takes the first packet off `input`; `Ok(None)` if it is not complete yet.
///
/// # Errors
/// [`ProtocolError`] for impossible lengths, other protocol versions and malformed parameters.
pub fn decode(input: &mut BytesMut) -> Result<Option<FirstPacket>, ProtocolError> {
    let Some(header) = input.first_chunk::<4>() else { return Ok(None) };
    let len = u32::from_be_bytes(*header) as usize;
    if !(8..=MAX_STARTUP_LEN).contains(&len) {
        return Err(ProtocolError::new("invalid length of startup packet"));
    }
    if input.len() < len {
        return Ok(None);
    }
    input.advance(4);
    let mut reader = Reader::new(input.split_to(len - 4).freeze());
    let packet = match reader.i32()? {
        SSL_CODE => FirstPacket::SslRequest,
        GSS_CODE => FirstPacket::GssRequest,
        CANCEL_CODE => FirstPacket::Cancel { process_id: reader.i32()?, secret: reader.i32()? },
        version if version >> 16 == 3 => {
            let mut parameters = Vec::new();
            loop {
                let name = reader.name()?;
                if name.is_empty() {
                    break;
                }
                parameters.push((name, reader.name()?));
            }
            FirstPacket::Startup { minor: (version & 0xffff) as u16, parameters }
        }
        version => {
            return Err(ProtocolError::new(format!(
                "unsupported frontend protocol {}.{}: server supports 3.0",
                (version as u32) >> 16,
                version & 0xffff
            )));
        }
    };
    reader
        .end()
        .map_err(|_| ProtocolError::new("invalid startup packet layout: expected terminator as last byte"))?;
    Ok(Some(packet))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BufMut;

    #[test]
    fn startup_parameters_are_read() {
        let body = b"user\0a\0database\0b\0\0";
        let mut input = BytesMut::new();
        input.put_u32(8 + body.len() as u32);
        input.put_i32(3 << 16);
        input.put_slice(body);
        let expected = vec![("user".to_string(), "a".to_string()), ("database".to_string(), "b".to_string())];
        assert_eq!(decode(&mut input), Ok(Some(FirstPacket::Startup { minor: 0, parameters: expected })));
        assert!(input.is_empty());
    }

    #[test]
    fn impossible_packets_are_refused() {
        for bytes in
            [&b"\0\0\0\x07abcd"[..], b"\0\x01\0\0abcd", b"\0\0\0\x08\0\x02\0\0", b"\0\0\0\x09\0\x03\0\0u"]
        {
            assert!(decode(&mut BytesMut::from(bytes)).is_err(), "{bytes:?}");
        }
        assert_eq!(decode(&mut BytesMut::from(&b"\0\0"[..])), Ok(None));
    }
}
