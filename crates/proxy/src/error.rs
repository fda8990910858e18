//! What a client is told when the proxy itself ends a connection.
//!
//! Every refusal has an SQLSTATE, a message and, where the user can do something, a hint. The codes are
//! PostgreSQL's own, so that drivers and poolers treat them as they would treat a server's:
//!
//! | code | when | what to do |
//! |---|---|---|
//! | `08P01` | the client sent something that is not the protocol | report a bug in the driver |
//! | `08004` | no tenant was named, or two different ones | name it once; the hint shows how |
//! | `0A000` | a protocol version the proxy does not speak | use protocol 3 |
//! | `28000` | no user name; TLS required but not used | give one; use `sslmode=require` |
//! | `3D000` | no such tenant | check its spelling; create it |
//! | `42602` | a name that cannot be a tenant's, a reserved parameter | rename it |
//! | `53300` | too many connections, or too many tenants waking at once | retry later, use fewer |
//! | `57014` | the client was too slow to start or to authenticate | look at the network between |
//! | `57P01` | the proxy stops, or the SQL node ended below a session | reconnect |
//! | `57P03` | the tenant cannot be woken right now | retry |

use std::borrow::Cow;

/// A fatal error as a PostgreSQL client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientError {
    code: Cow<'static, str>,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
}

impl ClientError {
    /// An error with one of the codes in the table above.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code: Cow::Borrowed(code), message: message.into(), detail: None, hint: None }
    }

    /// An error whose code another process chose. What is not an SQLSTATE becomes `XX000`.
    pub fn with_foreign_code(code: &str, message: impl Into<String>) -> Self {
        let valid = code.len() == 5 && code.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
        let code = if valid { Cow::Owned(code.to_owned()) } else { Cow::Borrowed("XX000") };
        Self { code, message: message.into(), detail: None, hint: None }
    }

    /// Adds what the user can do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds what exactly was found.
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// The SQLSTATE.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The primary message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The hint, if there is one.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The error as an ErrorResponse message of severity FATAL.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(128);
        field(&mut body, b'S', "FATAL");
        field(&mut body, b'V', "FATAL");
        field(&mut body, b'C', &self.code);
        field(&mut body, b'M', &self.message);
        if let Some(detail) = &self.detail {
            field(&mut body, b'D', detail);
        }
        if let Some(hint) = &self.hint {
            field(&mut body, b'H', hint);
        }
        body.push(0);
        message(b'E', &body)
    }
}

/// One message of the protocol: type, length, body.
pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len().saturating_add(4)).unwrap_or(u32::MAX);
    let mut out = Vec::with_capacity(body.len().saturating_add(5));
    out.push(kind);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(body);
    out
}

/// Most bytes of one field of an error. Names in messages come from clients, so they are cut.
const MAX_FIELD: usize = 1024;

fn field(out: &mut Vec<u8>, kind: u8, text: &str) {
    out.push(kind);
    out.extend(text.bytes().take(MAX_FIELD).filter(|b| *b != 0));
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_all_fields_with_right_length() {
        let bytes = ClientError::new("3D000", "no").detail("d\0d").hint("h").encode();
        assert_eq!(bytes[0], b'E');
        let length = u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize;
        assert_eq!(length + 1, bytes.len());
        assert_eq!(&bytes[5..], b"SFATAL\0VFATAL\0C3D000\0Mno\0Ddd\0Hh\0\0");
    }

    #[test]
    fn foreign_codes_are_checked() {
        assert_eq!(ClientError::with_foreign_code("57P03", "m").code(), "57P03");
        assert_eq!(ClientError::with_foreign_code("57p\0", "m").code(), "XX000");
        assert_eq!(ClientError::with_foreign_code("", "m").code(), "XX000");
    }
}
