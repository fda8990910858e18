//! [`CopyEncoder`]: rows to bytes.

use super::{CopyColumn, CopyFormat, CopyHeader, CopyOptions, binary};
use bytes::{BufMut, BytesMut};
use sql_types::context::TextContext;
use sql_types::{Datum, SqlResult};

/// Turns rows into the data of a COPY TO.
#[derive(Debug)]
pub struct CopyEncoder {
    columns: Vec<CopyColumn>,
    options: CopyOptions,
    scratch: String,
}

impl CopyEncoder {
    /// An encoder for rows of these columns.
    pub fn new(columns: Vec<CopyColumn>, options: CopyOptions) -> Self {
        CopyEncoder { columns, options, scratch: String::new() }
    }

    /// Appends what comes before the first row.
    pub fn start(&mut self, out: &mut BytesMut) {
        if self.options.format == CopyFormat::Binary {
            binary::put_header(out);
        } else if self.options.header != CopyHeader::None {
            for (position, column) in self.columns.iter().enumerate() {
                if position > 0 {
                    out.put_u8(self.options.delimiter);
                }
                match self.options.format {
                    CopyFormat::Csv => {
                        let alone = self.columns.len() == 1;
                        put_csv(&column.name, &self.options, false, alone, out);
                    }
                    _ => put_text(&column.name, self.options.delimiter, out),
                }
            }
            out.put_u8(b'\n');
        }
    }

    /// Appends a row.
    pub fn row(&mut self, row: &[Datum], context: &TextContext<'_>, out: &mut BytesMut) -> SqlResult<()> {
        if self.options.format == CopyFormat::Binary {
            return binary::put_row(row, &self.columns, context, out);
        }
        for (position, (value, column)) in row.iter().zip(&self.columns).enumerate() {
            if position > 0 {
                out.put_u8(self.options.delimiter);
            }
            if value.is_null() {
                out.put_slice(self.options.null.as_bytes());
                continue;
            }
            self.scratch.clear();
            sql_types::text::format(value, column.ty.ty, context, &mut self.scratch);
            match self.options.format {
                CopyFormat::Csv => {
                    let force = self.options.force_quote.contains(position);
                    put_csv(&self.scratch, &self.options, force, self.columns.len() == 1, out);
                }
                _ => put_text(&self.scratch, self.options.delimiter, out),
            }
        }
        out.put_u8(b'\n');
        Ok(())
    }

    /// Appends what comes after the last row.
    pub fn finish(&mut self, out: &mut BytesMut) {
        if self.options.format == CopyFormat::Binary {
            out.put_i16(-1);
        }
    }
}

/// Appends a value of the text format.
fn put_text(value: &str, delimiter: u8, out: &mut BytesMut) {
    let mut rest = value.as_bytes();
    let special = |byte: &u8| matches!(*byte, b'\\' | 8 | 9 | 10 | 11 | 12 | 13) || *byte == delimiter;
    while let Some(found) = rest.iter().position(special) {
        out.put_slice(&rest[..found]);
        let escape = match rest[found] {
            8 => b'b',
            9 => b't',
            10 => b'n',
            11 => b'v',
            12 => b'f',
            13 => b'r',
            other => other,
        };
        out.put_slice(&[b'\\', escape]);
        rest = &rest[found + 1..];
    }
    out.put_slice(rest);
}

/// Appends a value of the csv format. `alone`: it is the only one of its line.
fn put_csv(value: &str, options: &CopyOptions, force: bool, alone: bool, out: &mut BytesMut) {
    let special =
        |byte: u8| byte == options.delimiter || byte == options.quote || matches!(byte, b'\n' | b'\r');
    let quoted = force || value == options.null || (alone && value == "\\.") || value.bytes().any(special);
    if !quoted {
        out.put_slice(value.as_bytes());
        return;
    }
    out.put_u8(options.quote);
    for byte in value.bytes() {
        if byte == options.quote || byte == options.escape {
            out.put_u8(options.escape);
        }
        out.put_u8(byte);
    }
    out.put_u8(options.quote);
}
