//! Messages from the client after startup.

use super::ProtocolError;
use super::reader::Reader;
use bytes::{Buf, Bytes, BytesMut};

/// Largest message that may carry user data, in bytes. PostgreSQL allows 1 GiB; a SQL node is smaller.
pub const MAX_LARGE_MESSAGE: usize = 128 << 20;
/// Largest message of the other kinds, PostgreSQL's own bound.
pub const MAX_SMALL_MESSAGE: usize = 30_000;

/// A message from the client.
#[derive(Debug, Clone, PartialEq)]
pub enum Frontend {
    /// Simple query: the text, not yet checked to be UTF-8.
    Query(Bytes),
    /// Creates a prepared statement.
    Parse {
        /// Its name, empty for the unnamed one.
        name: String,
        /// The text, not yet checked to be UTF-8.
        query: Bytes,
        /// Types of the parameters, 0 where the server is to infer them.
        param_types: Vec<u32>,
    },
    /// Creates a portal from a prepared statement.
    Bind {
        /// Name of the portal, empty for the unnamed one.
        portal: String,
        /// Name of the statement.
        statement: String,
        /// Formats of the parameters: none, one for all, or one each.
        param_formats: Vec<i16>,
        /// The parameters; `None` for NULL.
        params: Vec<Option<Bytes>>,
        /// Formats of the result columns, likewise.
        result_formats: Vec<i16>,
    },
    /// Asks what a statement or portal returns.
    Describe(Target),
    /// Runs a portal, for at most `max_rows` rows if that is positive.
    Execute {
        /// Name of the portal.
        portal: String,
        /// Most rows to return; 0 or less for all.
        max_rows: i32,
    },
    /// Closes a statement or portal.
    Close(Target),
    /// Wants what is buffered.
    Flush,
    /// Ends a series of extended messages.
    Sync,
    /// Ends the session.
    Terminate,
    /// A piece of COPY data.
    CopyData(Bytes),
    /// The end of COPY data.
    CopyDone,
    /// The client gave COPY up, with its reason.
    CopyFail(String),
    /// An answer to an authentication request: password, SASL initial or SASL response.
    Authentication(Bytes),
    /// The obsolete function call, refused.
    FunctionCall,
}

/// What Describe and Close refer to.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// A prepared statement.
    Statement(String),
    /// A portal.
    Portal(String),
}

/// Takes one message off the front of `input`; `Ok(None)` if it is not complete yet.
///
/// # Errors
/// [`ProtocolError`] for an unknown type, an impossible length or a malformed body. The connection
/// cannot go on after an unknown type or length.
pub fn decode(input: &mut BytesMut) -> Result<Option<Frontend>, ProtocolError> {
    let Some(header) = input.first_chunk::<5>() else {
        return match input.first() {
            Some(kind) => max_len(*kind).map(|_| None),
            None => Ok(None),
        };
    };
    let kind = header[0];
    let len = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
    let max = max_len(kind)?;
    if len < 4 || len > max {
        return Err(ProtocolError::new("invalid message length"));
    }
    if input.len() < 1 + len {
        // Room for exactly the rest, so that one large message is not copied over and over; what the
        // client merely announces is not believed beyond a step of 1 MiB.
        input.reserve((1 + len - input.len()).min(1 << 20));
        return Ok(None);
    }
    input.advance(5);
    let body = input.split_to(len - 4).freeze();
    decode_body(kind, body).map(Some)
}

fn max_len(kind: u8) -> Result<usize, ProtocolError> {
    match kind {
        b'Q' | b'P' | b'B' | b'd' => Ok(MAX_LARGE_MESSAGE),
        b'D' | b'E' | b'C' | b'H' | b'S' | b'X' | b'c' | b'f' | b'p' | b'F' => Ok(MAX_SMALL_MESSAGE),
        other => Err(ProtocolError::new(format!("invalid frontend message type {other}"))),
    }
}

fn decode_body(kind: u8, body: Bytes) -> Result<Frontend, ProtocolError> {
    let mut reader = Reader::new(body);
    let message = match kind {
        b'Q' => Frontend::Query(reader.c_bytes()?),
        b'P' => {
            let (name, query) = (reader.name()?, reader.c_bytes()?);
            let count = reader.count(4)?;
            let param_types =
                (0..count).map(|_| reader.i32().map(|oid| oid as u32)).collect::<Result<_, _>>()?;
            Frontend::Parse { name, query, param_types }
        }
        b'B' => {
            let (portal, statement) = (reader.name()?, reader.name()?);
            let param_formats = formats(&mut reader)?;
            let count = reader.count(4)?;
            let params = (0..count)
                .map(|_| match reader.i32()? {
                    -1 => Ok(None),
                    len => match usize::try_from(len) {
                        Ok(len) => reader.bytes(len).map(Some),
                        Err(_) => Err(ProtocolError::new("invalid parameter length in message")),
                    },
                })
                .collect::<Result<_, _>>()?;
            let result_formats = formats(&mut reader)?;
            Frontend::Bind { portal, statement, param_formats, params, result_formats }
        }
        b'D' => Frontend::Describe(target(&mut reader)?),
        b'C' => Frontend::Close(target(&mut reader)?),
        b'E' => Frontend::Execute { portal: reader.name()?, max_rows: reader.i32()? },
        b'H' => Frontend::Flush,
        b'S' => Frontend::Sync,
        b'X' => Frontend::Terminate,
        b'd' => Frontend::CopyData(reader.rest()),
        b'c' => Frontend::CopyDone,
        b'f' => Frontend::CopyFail(reader.name()?),
        b'p' => Frontend::Authentication(reader.rest()),
        b'F' => {
            reader.rest();
            Frontend::FunctionCall
        }
        other => return Err(ProtocolError::new(format!("invalid frontend message type {other}"))),
    };
    reader.end()?;
    Ok(message)
}

fn formats(reader: &mut Reader) -> Result<Vec<i16>, ProtocolError> {
    let count = reader.count(2)?;
    (0..count)
        .map(|_| match reader.i16()? {
            format @ (0 | 1) => Ok(format),
            other => Err(ProtocolError::new(format!("unsupported format code: {other}"))),
        })
        .collect()
}

fn target(reader: &mut Reader) -> Result<Target, ProtocolError> {
    match reader.u8()? {
        b'S' => reader.name().map(Target::Statement),
        b'P' => reader.name().map(Target::Portal),
        other => Err(ProtocolError::new(format!("invalid DESCRIBE or CLOSE message subtype {other}"))),
    }
}

/// Whether the next message in `input` is a whole Sync: the Execute before it may commit at once.
pub fn sync_follows(input: &BytesMut) -> bool {
    input.starts_with(&[b'S', 0, 0, 0, 4])
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BufMut;

    fn message(kind: u8, body: &[u8]) -> BytesMut {
        let mut out = BytesMut::new();
        out.put_u8(kind);
        out.put_u32(body.len() as u32 + 4);
        out.put_slice(body);
        out
    }

    #[test]
    fn bind_round_trip() {
        let mut body = BytesMut::new();
        body.put_slice(b"p\0s\0");
        body.put_slice(&[0, 1, 0, 1]);
        body.put_slice(&[0, 2, 0, 0, 0, 1, b'x', 0xff, 0xff, 0xff, 0xff]);
        body.put_slice(&[0, 0]);
        let decoded = decode(&mut message(b'B', &body)).unwrap().unwrap();
        assert_eq!(
            decoded,
            Frontend::Bind {
                portal: "p".into(),
                statement: "s".into(),
                param_formats: vec![1],
                params: vec![Some(Bytes::from_static(b"x")), None],
                result_formats: vec![],
            }
        );
    }

    #[test]
    fn incomplete_messages_wait_and_impossible_ones_fail() {
        assert_eq!(decode(&mut BytesMut::new()), Ok(None));
        assert_eq!(decode(&mut BytesMut::from(&b"Q\0\0"[..])), Ok(None));
        assert!(decode(&mut BytesMut::from(&b"~"[..])).is_err());
        assert!(decode(&mut BytesMut::from(&b"Q\0\0\0\x03"[..])).is_err());
        assert!(decode(&mut BytesMut::from(&b"Q\xff\xff\xff\xff"[..])).is_err());
        assert!(decode(&mut BytesMut::from(&b"S\0\x01\0\0"[..])).is_err());
        // A parameter that claims more bytes than the message has.
        assert!(decode(&mut message(b'B', &[0, 0, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff])).is_err());
        // A count of 65,535 parameter types in an empty body.
        assert!(decode(&mut message(b'P', &[0, 0, 0xff, 0xff])).is_err());
        // Bytes after the last field.
        assert!(decode(&mut message(b'E', &[0, 0, 0, 0, 0, 9])).is_err());
    }

    #[test]
    fn random_bytes_never_panic() {
        use rand::{Rng, SeedableRng};
        let mut rng = rand::rngs::StdRng::seed_from_u64(7);
        let kinds = b"QPBDECHSXdcfpF";
        for _ in 0..200_000 {
            let len = rng.random_range(0..40);
            let body: Vec<u8> = (0..len).map(|_| rng.random::<u8>() % 5).collect();
            let mut input = message(kinds[rng.random_range(0..kinds.len())], &body);
            if rng.random_bool(0.1) {
                input.truncate(rng.random_range(0..input.len()));
            }
            let _ = decode(&mut input);
        }
    }

    #[test]
    fn sync_is_recognized_ahead() {
        assert!(sync_follows(&message(b'S', b"")));
        assert!(!sync_follows(&message(b'H', b"")));
    }
}
