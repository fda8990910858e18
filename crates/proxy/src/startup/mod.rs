//! The first packets of a connection: decoding what a client sends before there is a session, and
//! writing the startup packet that goes on to the SQL node.
//!
//! Pure: bytes in, values out. Nothing here trusts a length or a string that came from a client, and the
//! work is linear in a packet that is at most [`MAX_PACKET`] bytes long. The proxy parses nothing else of
//! a client's traffic but message headers.
//!
//! Missing on purpose: protocol minor versions above 3.0 (clients are told by NegotiateProtocolVersion)
//! and replication connections (the SQL node refuses them).

pub mod options;
pub mod tenant;

use crate::error::{ClientError, message};

/// Longest first packet, as in PostgreSQL.
pub const MAX_PACKET: usize = 10_000;

/// Shortest first packet: its length and a code.
const MIN_PACKET: usize = 8;

const CANCEL_REQUEST: u32 = 80_877_102;
const SSL_REQUEST: u32 = 80_877_103;
const GSS_ENCRYPTION_REQUEST: u32 = 80_877_104;

/// Protocol 3.0, the version spoken with SQL nodes.
const PROTOCOL_3_0: u32 = 3 << 16;

/// Startup parameters that only the proxy may set begin like this.
pub const RESERVED_PREFIX: &[u8] = b"_dormouse.";

/// What names one session in a CancelRequest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CancelKey {
    /// The process id a client was told.
    pub process_id: u32,
    /// The secret that goes with it.
    pub secret: u32,
}

impl CancelKey {
    /// The body of a BackendKeyData message.
    pub fn to_bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.process_id.to_be_bytes());
        bytes[4..].copy_from_slice(&self.secret.to_be_bytes());
        bytes
    }

    /// The reverse of [`CancelKey::to_bytes`].
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self { process_id: u32::from_be_bytes([a, b, c, d]), secret: u32::from_be_bytes([e, f, g, h]) }
    }

    /// The CancelRequest packet for this key.
    pub fn cancel_request(self) -> [u8; 16] {
        let mut packet = [0; 16];
        packet[..4].copy_from_slice(&16u32.to_be_bytes());
        packet[4..8].copy_from_slice(&CANCEL_REQUEST.to_be_bytes());
        packet[8..].copy_from_slice(&self.to_bytes());
        packet
    }
}

/// The packet that asks a server for TLS.
pub fn ssl_request() -> [u8; 8] {
    let mut packet = [0; 8];
    packet[..4].copy_from_slice(&8u32.to_be_bytes());
    packet[4..].copy_from_slice(&SSL_REQUEST.to_be_bytes());
    packet
}

/// A first packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    /// The client would like TLS.
    SslRequest,
    /// The client would like GSSAPI encryption.
    GssEncryptionRequest,
    /// Somebody wants a session's running statement cancelled.
    Cancel(CancelKey),
    /// The start of a session.
    Startup(Startup),
}

/// A decoded StartupMessage. Names and values are bytes: their encoding is not known yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Startup {
    /// Minor version of protocol 3 the client asked for.
    pub minor_version: u16,
    /// Role to log in as; never empty.
    pub user: Vec<u8>,
    /// Database asked for, if any.
    pub database: Option<Vec<u8>>,
    /// Command-line options, if any.
    pub options: Option<Vec<u8>>,
    /// Everything else in the client's order.
    pub parameters: Vec<(Vec<u8>, Vec<u8>)>,
    /// Names of the protocol extensions asked for (`_pq_.…`), none of which is supported.
    pub extensions: Vec<Vec<u8>>,
}

/// How long the whole packet is, from its first four bytes.
pub fn packet_length(header: [u8; 4]) -> Result<usize, ClientError> {
    let length = usize::try_from(u32::from_be_bytes(header)).unwrap_or(usize::MAX);
    if (MIN_PACKET..=MAX_PACKET).contains(&length) {
        Ok(length)
    } else {
        Err(violation("invalid length of startup packet"))
    }
}

/// Decodes a packet without its four bytes of length.
pub fn decode(body: &[u8]) -> Result<Packet, ClientError> {
    let Some((code, rest)) = body.split_first_chunk::<4>() else {
        return Err(violation("incomplete startup packet"));
    };
    match u32::from_be_bytes(*code) {
        SSL_REQUEST => empty(rest, Packet::SslRequest),
        GSS_ENCRYPTION_REQUEST => empty(rest, Packet::GssEncryptionRequest),
        CANCEL_REQUEST => decode_cancel(rest),
        version if version >> 16 == 3 => decode_startup(version, rest).map(Packet::Startup),
        version => Err(ClientError::new(
            "0A000",
            format!(
                "unsupported frontend protocol {}.{}: server supports 3.0 to 3.0",
                version >> 16,
                version & 0xffff
            ),
        )),
    }
}

fn empty(rest: &[u8], packet: Packet) -> Result<Packet, ClientError> {
    if rest.is_empty() { Ok(packet) } else { Err(violation("invalid length of startup packet")) }
}

fn decode_cancel(rest: &[u8]) -> Result<Packet, ClientError> {
    let key: [u8; 8] = rest.try_into().map_err(|_| violation("invalid length of cancel request"))?;
    Ok(Packet::Cancel(CancelKey::from_bytes(key)))
}

fn decode_startup(version: u32, mut rest: &[u8]) -> Result<Startup, ClientError> {
    let mut startup =
        Startup { minor_version: u16::try_from(version & 0xffff).unwrap_or(u16::MAX), ..Startup::default() };
    loop {
        let name = take_string(&mut rest)?;
        if name.is_empty() {
            break;
        }
        let value = take_string(&mut rest)?;
        startup.add(name, value)?;
    }
    if !rest.is_empty() {
        return Err(violation("invalid startup packet layout: expected terminator as last byte"));
    }
    if startup.user.is_empty() {
        return Err(ClientError::new("28000", "no PostgreSQL user name specified in startup packet"));
    }
    Ok(startup)
}

fn take_string<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], ClientError> {
    let all: &'a [u8] = rest;
    let end = all.iter().position(|b| *b == 0);
    let Some((text, after)) = end.and_then(|end| all.split_at_checked(end)) else {
        return Err(violation("invalid startup packet layout: expected terminator as last byte"));
    };
    *rest = after.get(1..).unwrap_or_default();
    Ok(text)
}

impl Startup {
    /// Files one parameter where it belongs. As in PostgreSQL the last of several wins.
    fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), ClientError> {
        match name {
            b"user" => self.user = value.to_vec(),
            b"database" => self.database = Some(value.to_vec()),
            b"options" => self.options = Some(value.to_vec()),
            _ if name.starts_with(b"_pq_.") => self.extensions.push(name.to_vec()),
            _ if is_reserved(name) => return Err(reserved(name)),
            _ => self.parameters.push((name.to_vec(), value.to_vec())),
        }
        Ok(())
    }

    /// The NegotiateProtocolVersion message to send, if the client asked for more than 3.0.
    pub fn negotiation(&self) -> Option<Vec<u8>> {
        if self.minor_version == 0 && self.extensions.is_empty() {
            return None;
        }
        let mut body = Vec::new();
        body.extend_from_slice(&PROTOCOL_3_0.to_be_bytes());
        body.extend_from_slice(&u32::try_from(self.extensions.len()).unwrap_or(0).to_be_bytes());
        for name in &self.extensions {
            body.extend_from_slice(name);
            body.push(0);
        }
        Some(message(b'v', &body))
    }

    /// The packet for the SQL node: what the client sent, in protocol 3.0, plus `additions`.
    pub fn encode(&self, additions: &[(&str, &str)]) -> Vec<u8> {
        let mut packet = vec![0; 4];
        packet.extend_from_slice(&PROTOCOL_3_0.to_be_bytes());
        put(&mut packet, b"user", &self.user);
        if let Some(database) = &self.database {
            put(&mut packet, b"database", database);
        }
        if let Some(options) = &self.options {
            put(&mut packet, b"options", options);
        }
        for (name, value) in &self.parameters {
            put(&mut packet, name, value);
        }
        for (name, value) in additions {
            put(&mut packet, name.as_bytes(), value.as_bytes());
        }
        packet.push(0);
        let length = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        packet[..4].copy_from_slice(&length.to_be_bytes());
        packet
    }
}

fn put(packet: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    packet.extend_from_slice(name);
    packet.push(0);
    packet.extend(value.iter().filter(|b| **b != 0));
    packet.push(0);
}

/// Whether a parameter's name is one only the proxy may use. Names know no case, and PostgreSQL reads a
/// dash in a name on the command line as an underscore.
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    let plain = |b: &u8| if *b == b'-' { b'_' } else { b.to_ascii_lowercase() };
    name.len() >= RESERVED_PREFIX.len()
        && name.iter().zip(RESERVED_PREFIX).all(|(byte, reserved)| plain(byte) == *reserved)
}

pub(crate) fn reserved(name: &[u8]) -> ClientError {
    ClientError::new(
        "42602",
        format!("parameter \"{}\" is reserved for the proxy", String::from_utf8_lossy(name)),
    )
}

fn violation(text: &str) -> ClientError {
    ClientError::new("08P01", text)
}

#[cfg(test)]
mod tests;
