//! Rows on the wire: RowDescription and DataRow.

use super::io::{FLUSH_AT, Output};
use crate::protocol::backend::{self, ColumnDescription};
use bytes::{BufMut, BytesMut};
use sql::plan::PlanColumn;
use sql::session::{RowSink, TextSettings};
use sql_types::{Datum, SqlError, SqlResult, SqlState, Type, binary, text};
use tokio::io::AsyncWrite;

/// Appends a RowDescription; `formats` as in Bind.
pub fn describe(out: &mut BytesMut, columns: &[PlanColumn], formats: &[i16]) {
    let described = columns.iter().enumerate().map(|(index, column)| ColumnDescription {
        name: &column.name,
        table_oid: column.table_oid,
        attnum: column.attnum,
        type_oid: column.ty.ty.0,
        type_len: column.ty.ty.info().map_or(if column.ty.ty.is_enum() { 4 } else { -1 }, |info| info.len),
        typmod: column.ty.typmod,
        format: format_of(formats, index),
    });
    backend::row_description(out, described);
}

/// The format of column `index`: none given is text, one is for all.
fn format_of(formats: &[i16], index: usize) -> i16 {
    match formats {
        [] => 0,
        [one] => *one,
        many => many.get(index).copied().unwrap_or(0),
    }
}

/// Encodes the rows of a statement as they come.
pub struct WireSink<'a, W> {
    output: &'a mut Output<W>,
    columns: Vec<(Type, bool)>,
    text: TextSettings,
    scratch: String,
}

impl<'a, W> WireSink<'a, W> {
    /// A sink for rows of `columns` in the formats of Bind.
    pub fn new(
        output: &'a mut Output<W>,
        columns: Option<&[PlanColumn]>,
        formats: &[i16],
        text: TextSettings,
    ) -> Self {
        let columns = columns
            .unwrap_or_default()
            .iter()
            .enumerate()
            .map(|(index, column)| (column.ty.ty, format_of(formats, index) == 1))
            .collect();
        WireSink { output, columns, text, scratch: String::new() }
    }

    fn encode(&mut self, row: &[Datum]) -> SqlResult<()> {
        let out = &mut self.output.buffer;
        out.put_u8(b'D');
        let start = backend::begin(out);
        out.put_i16(row.len() as i16);
        for (datum, (ty, as_binary)) in row.iter().zip(&self.columns) {
            if datum.is_null() {
                out.put_i32(-1);
                continue;
            }
            let field = out.len();
            out.put_i32(0);
            if *as_binary {
                binary::encode(datum, *ty, &self.text.context(), out)?;
            } else if let Datum::Text(value) = datum {
                out.put_slice(value.as_bytes());
            } else {
                self.scratch.clear();
                text::format(datum, *ty, &self.text.context(), &mut self.scratch);
                out.put_slice(self.scratch.as_bytes());
            }
            let len = (out.len() - field - 4) as u32;
            out[field..field + 4].copy_from_slice(&len.to_be_bytes());
        }
        backend::finish(out, start);
        Ok(())
    }
}

#[async_trait::async_trait]
impl<W: AsyncWrite + Unpin + Send> RowSink for WireSink<'_, W> {
    fn row(&mut self, row: &[Datum]) -> SqlResult<()> {
        let before = self.output.buffer.len();
        // A row that cannot be encoded leaves no trace in the output.
        self.encode(row).inspect_err(|_| self.output.buffer.truncate(before))
    }

    fn is_full(&self) -> bool {
        self.output.buffer.len() >= FLUSH_AT
    }

    fn copy_out_start(&mut self, columns: usize, as_binary: bool) {
        backend::copy_response(&mut self.output.buffer, false, as_binary, columns);
    }

    fn copy_data(&mut self, data: &[u8]) {
        backend::copy_data(&mut self.output.buffer, data);
    }

    fn copy_out_done(&mut self) {
        backend::copy_done(&mut self.output.buffer);
    }

    async fn flush(&mut self) -> SqlResult<()> {
        self.output.flush().await.map_err(|error| {
            SqlError::new(SqlState::CONNECTION_FAILURE, format!("could not send to client: {error}"))
        })
    }
}
