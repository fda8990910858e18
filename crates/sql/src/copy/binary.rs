//! The frame of the binary format.

use bytes::{Buf, BufMut, BytesMut};
use sql_types::context::TextContext;
use sql_types::{Datum, Row, SqlError, SqlResult, SqlState, binary};

use super::CopyColumn;

/// First bytes of a file.
pub(super) const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
/// Largest header extension skipped.
const LARGEST_EXTENSION: usize = 1 << 20;

pub(super) fn bad(message: &str) -> SqlError {
    SqlError::new(SqlState::BAD_COPY, message)
}

/// Takes the header off the front; false if it has not arrived whole.
pub(super) fn take_header(data: &mut &[u8]) -> SqlResult<bool> {
    let mut rest = *data;
    if rest.len() < SIGNATURE.len() + 8 {
        let common = rest.len().min(SIGNATURE.len());
        return if rest[..common] == SIGNATURE[..common] {
            Ok(false)
        } else {
            Err(bad("COPY file signature not recognized"))
        };
    }
    if !rest.starts_with(SIGNATURE) {
        return Err(bad("COPY file signature not recognized"));
    }
    rest.advance(SIGNATURE.len());
    let flags = rest.get_u32();
    if flags & 1 << 16 != 0 {
        return Err(bad("invalid COPY file header (WITH OIDS)"));
    }
    if flags >> 16 != 0 {
        return Err(bad("unrecognized critical flags in COPY file header"));
    }
    let extension = usize::try_from(rest.get_i32()).unwrap_or(usize::MAX);
    if extension > LARGEST_EXTENSION {
        return Err(bad("invalid COPY file header (wrong length)"));
    }
    if rest.len() < extension {
        return Ok(false);
    }
    *data = &rest[extension..];
    Ok(true)
}

/// What the next bytes are.
pub(super) enum Tuple {
    /// A row of this many bytes.
    Row(usize),
    /// The end of the data.
    End,
    /// Not there yet.
    Partial,
}

/// Looks at the front of the data.
pub(super) fn next_tuple(data: &[u8], columns: usize, largest: usize) -> SqlResult<Tuple> {
    let mut rest = data;
    if rest.len() < 2 {
        return Ok(Tuple::Partial);
    }
    let count = rest.get_i16();
    if count == -1 {
        return Ok(Tuple::End);
    }
    if usize::try_from(count) != Ok(columns) {
        return Err(bad(&format!("row field count is {count}, expected {columns}")));
    }
    for _ in 0..columns {
        if rest.len() < 4 {
            return Ok(Tuple::Partial);
        }
        let len = rest.get_i32();
        if len < -1 {
            return Err(bad("invalid field size"));
        }
        let len = usize::try_from(len).unwrap_or(0);
        if len > largest {
            return Err(bad("invalid field size"));
        }
        if rest.len() < len {
            return Ok(Tuple::Partial);
        }
        rest.advance(len);
    }
    Ok(Tuple::Row(data.len() - rest.len()))
}

/// The values of a whole tuple; `at` is told which column is being read.
pub(super) fn decode_tuple(
    mut data: &[u8],
    columns: &[CopyColumn],
    at: &mut usize,
    context: &TextContext<'_>,
) -> SqlResult<Row> {
    data.advance(2);
    let mut row = Row::with_capacity(columns.len());
    for (position, column) in columns.iter().enumerate() {
        *at = position;
        let len = data.get_i32();
        let Ok(len) = usize::try_from(len) else {
            row.push(Datum::Null);
            continue;
        };
        row.push(binary::decode(column.ty.ty, &data[..len], context)?);
        data.advance(len);
    }
    Ok(row)
}

/// Appends the header.
pub(super) fn put_header(out: &mut BytesMut) {
    out.put_slice(SIGNATURE);
    out.put_u32(0);
    out.put_u32(0);
}

/// Appends a row.
pub(super) fn put_row(
    row: &[Datum],
    columns: &[CopyColumn],
    context: &TextContext<'_>,
    out: &mut BytesMut,
) -> SqlResult<()> {
    out.put_i16(columns.len() as i16);
    for (value, column) in row.iter().zip(columns) {
        if value.is_null() {
            out.put_i32(-1);
            continue;
        }
        let start = out.len();
        out.put_i32(0);
        binary::encode(value, column.ty.ty, context, out)?;
        let len = (out.len() - start - 4) as i32;
        out[start..start + 4].copy_from_slice(&len.to_be_bytes());
    }
    Ok(())
}
