//! Messages to the client, appended to an output buffer.

use bytes::{BufMut, BytesMut};
use sql_types::SqlError;

/// How severe a message is: decides between ErrorResponse and what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The statement failed.
    Error,
    /// The session ends.
    Fatal,
}

impl Severity {
    fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
        }
    }
}

/// A column as RowDescription shows it.
pub struct ColumnDescription<'a> {
    /// Name.
    pub name: &'a str,
    /// OID of the table it comes from, or 0.
    pub table_oid: u32,
    /// Attribute number there, or 0.
    pub attnum: i16,
    /// OID of the type.
    pub type_oid: u32,
    /// Length of the type.
    pub type_len: i16,
    /// Type modifier.
    pub typmod: i32,
    /// 0 for text, 1 for binary.
    pub format: i16,
}

/// Appends one message: type byte, length, and what `body` writes.
fn message(out: &mut BytesMut, kind: u8, body: impl FnOnce(&mut BytesMut)) {
    out.put_u8(kind);
    let start = begin(out);
    body(out);
    finish(out, start);
}

/// Reserves a length field; returns where it is.
pub fn begin(out: &mut BytesMut) -> usize {
    let start = out.len();
    out.put_i32(0);
    start
}

/// Fills in the length field at `start`, which counts itself.
pub fn finish(out: &mut BytesMut, start: usize) {
    let len = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
}

/// A zero-terminated string; a zero byte inside would end it early and is left out.
fn put_cstr(out: &mut BytesMut, value: &str) {
    if value.as_bytes().contains(&0) {
        out.extend(value.bytes().filter(|byte| *byte != 0));
    } else {
        out.put_slice(value.as_bytes());
    }
    out.put_u8(0);
}

/// AuthenticationOk.
pub fn authentication_ok(out: &mut BytesMut) {
    message(out, b'R', |out| out.put_i32(0));
}

/// AuthenticationSASL offering SCRAM-SHA-256.
pub fn authentication_sasl(out: &mut BytesMut) {
    message(out, b'R', |out| {
        out.put_i32(10);
        out.put_slice(b"SCRAM-SHA-256\0\0");
    });
}

/// AuthenticationSASLContinue.
pub fn authentication_sasl_continue(out: &mut BytesMut, data: &[u8]) {
    message(out, b'R', |out| {
        out.put_i32(11);
        out.put_slice(data);
    });
}

/// AuthenticationSASLFinal.
pub fn authentication_sasl_final(out: &mut BytesMut, data: &[u8]) {
    message(out, b'R', |out| {
        out.put_i32(12);
        out.put_slice(data);
    });
}

/// NegotiateProtocolVersion: this server speaks 3.0 and knows none of `options`.
pub fn negotiate_protocol_version(out: &mut BytesMut, options: &[&str]) {
    message(out, b'v', |out| {
        out.put_i32(3 << 16);
        out.put_i32(options.len() as i32);
        options.iter().for_each(|option| put_cstr(out, option));
    });
}

/// ParameterStatus.
pub fn parameter_status(out: &mut BytesMut, name: &str, value: &str) {
    message(out, b'S', |out| {
        put_cstr(out, name);
        put_cstr(out, value);
    });
}

/// BackendKeyData.
pub fn backend_key_data(out: &mut BytesMut, process_id: i32, secret: i32) {
    message(out, b'K', |out| {
        out.put_i32(process_id);
        out.put_i32(secret);
    });
}

/// ReadyForQuery with the transaction status: `I`, `T` or `E`.
pub fn ready_for_query(out: &mut BytesMut, status: u8) {
    out.put_slice(&[b'Z', 0, 0, 0, 5, status]);
}

/// ParseComplete.
pub fn parse_complete(out: &mut BytesMut) {
    out.put_slice(&[b'1', 0, 0, 0, 4]);
}

/// BindComplete.
pub fn bind_complete(out: &mut BytesMut) {
    out.put_slice(&[b'2', 0, 0, 0, 4]);
}

/// CloseComplete.
pub fn close_complete(out: &mut BytesMut) {
    out.put_slice(&[b'3', 0, 0, 0, 4]);
}

/// NoData.
pub fn no_data(out: &mut BytesMut) {
    out.put_slice(&[b'n', 0, 0, 0, 4]);
}

/// EmptyQueryResponse.
pub fn empty_query(out: &mut BytesMut) {
    out.put_slice(&[b'I', 0, 0, 0, 4]);
}

/// PortalSuspended.
pub fn portal_suspended(out: &mut BytesMut) {
    out.put_slice(&[b's', 0, 0, 0, 4]);
}

/// CopyDone.
pub fn copy_done(out: &mut BytesMut) {
    out.put_slice(&[b'c', 0, 0, 0, 4]);
}

/// CopyData.
pub fn copy_data(out: &mut BytesMut, data: &[u8]) {
    message(out, b'd', |out| out.put_slice(data));
}

/// CopyInResponse (`in_direction`) or CopyOutResponse.
pub fn copy_response(out: &mut BytesMut, in_direction: bool, binary: bool, columns: usize) {
    message(out, if in_direction { b'G' } else { b'H' }, |out| {
        out.put_u8(u8::from(binary));
        out.put_i16(columns as i16);
        (0..columns).for_each(|_| out.put_i16(i16::from(binary)));
    });
}

/// CommandComplete.
pub fn command_complete(out: &mut BytesMut, tag: &str) {
    message(out, b'C', |out| put_cstr(out, tag));
}

/// ParameterDescription.
pub fn parameter_description(out: &mut BytesMut, types: impl ExactSizeIterator<Item = u32>) {
    message(out, b't', |out| {
        out.put_i16(types.len() as i16);
        types.for_each(|oid| out.put_u32(oid));
    });
}

/// RowDescription.
pub fn row_description<'a>(
    out: &mut BytesMut,
    columns: impl ExactSizeIterator<Item = ColumnDescription<'a>>,
) {
    message(out, b'T', |out| {
        out.put_i16(columns.len() as i16);
        for column in columns {
            put_cstr(out, column.name);
            out.put_u32(column.table_oid);
            out.put_i16(column.attnum);
            out.put_u32(column.type_oid);
            out.put_i16(column.type_len);
            out.put_i32(column.typmod);
            out.put_i16(column.format);
        }
    });
}

/// NotificationResponse.
pub fn notification(out: &mut BytesMut, process_id: i32, channel: &str, payload: &str) {
    message(out, b'A', |out| {
        out.put_i32(process_id);
        put_cstr(out, channel);
        put_cstr(out, payload);
    });
}

/// ErrorResponse.
pub fn error(out: &mut BytesMut, severity: Severity, error: &SqlError) {
    message(out, b'E', |out| fields(out, severity.as_str(), error));
}

/// NoticeResponse.
pub fn notice(out: &mut BytesMut, severity: &str, notice: &SqlError) {
    message(out, b'N', |out| fields(out, severity, notice));
}

fn fields(out: &mut BytesMut, severity: &str, error: &SqlError) {
    let mut field = |kind: u8, value: &str| {
        out.put_u8(kind);
        put_cstr(out, value);
    };
    field(b'S', severity);
    field(b'V', severity);
    field(b'C', error.code.as_str());
    field(b'M', &error.message);
    if let Some(extra) = error.extra() {
        let position = extra.position.map(|position| position.to_string());
        let optional = [
            (b'D', &extra.detail),
            (b'H', &extra.hint),
            (b'P', &position),
            (b'W', &extra.context),
            (b's', &extra.schema),
            (b't', &extra.table),
            (b'c', &extra.column),
            (b'd', &extra.data_type),
            (b'n', &extra.constraint),
        ];
        for (kind, value) in optional {
            if let Some(value) = value {
                field(kind, value);
            }
        }
    }
    out.put_u8(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql_types::SqlState;

    #[test]
    fn error_fields_are_terminated_and_free_of_zero_bytes() {
        let mut out = BytesMut::new();
        let cause = SqlError::new(SqlState::SYNTAX_ERROR, "a\0b").at(3);
        error(&mut out, Severity::Error, &cause);
        assert_eq!(
            &out[..],
            b"E\0\0\0\x26SERROR\0VERROR\0C42601\0Mab\0P3\0\0"
                .as_slice()
                .get(..)
                .map(|full| {
                    let mut full = full.to_vec();
                    let len = (full.len() - 1) as u32;
                    full[1..5].copy_from_slice(&len.to_be_bytes());
                    full
                })
                .unwrap()
                .as_slice()
        );
    }
}
