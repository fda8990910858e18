//! [`CopyDecoder`]: bytes to rows.

use super::text::{self, Field, LineScanner};
use super::{CopyColumn, CopyFormat, CopyHeader, CopyOptions, binary};
use sql_types::functions::EvalContext;
use sql_types::{Datum, Row, SqlError, SqlResult, SqlState, Type, cast};
use std::sync::Arc;

/// Longest line or binary row, in bytes.
const LARGEST_LINE: usize = 64 << 20;
/// Longest piece of data shown in an error's context, in characters.
const SHOWN_CHARACTERS: usize = 100;

/// Turns the data of a COPY FROM into rows. Chunks may be split anywhere.
#[derive(Debug)]
pub struct CopyDecoder {
    relation: Arc<str>,
    columns: Vec<CopyColumn>,
    options: CopyOptions,
    /// The unfinished line.
    rest: Vec<u8>,
    scanner: LineScanner,
    /// Lines (or binary rows) begun so far.
    line: u64,
    header_seen: bool,
    ended: bool,
}

impl CopyDecoder {
    /// A decoder for rows of these columns of a relation.
    pub fn new(relation: impl Into<Arc<str>>, columns: Vec<CopyColumn>, options: CopyOptions) -> Self {
        let header_seen = options.format != CopyFormat::Binary && options.header == CopyHeader::None;
        CopyDecoder {
            relation: relation.into(),
            columns,
            options,
            rest: Vec::new(),
            scanner: LineScanner::default(),
            line: 0,
            header_seen,
            ended: false,
        }
    }

    /// Decodes a chunk and appends the rows that ended in it.
    pub fn decode(&mut self, chunk: &[u8], cx: &EvalContext<'_>, rows: &mut Vec<Row>) -> SqlResult<()> {
        if self.ended {
            return Ok(());
        }
        if self.rest.is_empty() {
            let used = self.consume(chunk, cx, rows)?;
            self.rest.extend_from_slice(&chunk[used..]);
        } else {
            let mut data = std::mem::take(&mut self.rest);
            data.extend_from_slice(chunk);
            let used = self.consume(&data, cx, rows)?;
            data.drain(..used);
            self.rest = data;
        }
        if self.rest.len() > LARGEST_LINE {
            let message = format!("a line of COPY data is longer than {LARGEST_LINE} bytes");
            return Err(self.at_line(SqlError::new(SqlState::PROGRAM_LIMIT, message), None));
        }
        Ok(())
    }

    /// Takes note that no more data comes, and appends the last row if its line did not end.
    pub fn finish(&mut self, cx: &EvalContext<'_>, rows: &mut Vec<Row>) -> SqlResult<()> {
        let mut rest = std::mem::take(&mut self.rest);
        if self.ended {
            return Ok(());
        }
        if self.options.format == CopyFormat::Binary {
            // The trailer may be left out between two rows, as pgx does.
            if self.header_seen && rest.is_empty() {
                return Ok(());
            }
            let message = if self.header_seen {
                "unexpected EOF in COPY data"
            } else {
                "COPY file signature not recognized"
            };
            return Err(self.at_line(binary::bad(message), None));
        }
        if !rest.is_empty() {
            rest.push(b'\n');
            if self.consume(&rest, cx, rows)? < rest.len() && !self.ended {
                self.line += 1;
                let error = SqlError::new(SqlState::BAD_COPY, "unterminated CSV quoted field");
                return Err(self.at_line(error, Some(&String::from_utf8_lossy(&rest[..rest.len() - 1]))));
            }
        }
        self.ended = true;
        Ok(())
    }

    /// Number of the line last read.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Adds to an error of storing the rows which line it is about.
    pub fn with_context(&self, error: SqlError) -> SqlError {
        self.at_line(error, None)
    }

    fn consume(&mut self, data: &[u8], cx: &EvalContext<'_>, rows: &mut Vec<Row>) -> SqlResult<usize> {
        if self.options.format == CopyFormat::Binary {
            return self.consume_binary(data, cx, rows);
        }
        let mut fields: Vec<Field<'_>> = Vec::with_capacity(self.columns.len());
        let mut used = 0;
        while let Some((len, whole)) = self.scanner.line(&data[used..], &self.options) {
            let line = &data[used..used + len];
            used += whole;
            self.line += 1;
            if line == b"\\." {
                self.ended = true;
                return Ok(data.len());
            }
            let line = match std::str::from_utf8(line) {
                Ok(line) if memchr::memchr(0, line.as_bytes()).is_none() => line,
                Ok(_) => return Err(self.at_line(text::invalid_utf8(&[0]), None)),
                Err(_) => return Err(self.at_line(text::invalid_utf8(line), None)),
            };
            self.split(line, &mut fields)?;
            if !self.header_seen {
                self.header_seen = true;
                self.check_header(&fields, line)?;
                continue;
            }
            rows.push(self.row(&fields, line, cx)?);
        }
        Ok(used)
    }

    fn split<'l>(&self, line: &'l str, fields: &mut Vec<Field<'l>>) -> SqlResult<()> {
        let result = match self.options.format {
            CopyFormat::Csv => text::csv_fields(line, &self.options, fields),
            _ => text::text_fields(line, &self.options, fields),
        };
        result.map_err(|error| self.at_line(error, Some(line)))
    }

    fn check_header(&self, fields: &[Field<'_>], line: &str) -> SqlResult<()> {
        if self.options.header != CopyHeader::Match {
            return Ok(());
        }
        let bad = |message: String| Err(self.at_line(SqlError::new(SqlState::BAD_COPY, message), Some(line)));
        if fields.len() != self.columns.len() {
            let (got, wanted) = (fields.len(), self.columns.len());
            return bad(format!("wrong number of fields in header line: got {got}, expected {wanted}"));
        }
        for (position, (field, column)) in fields.iter().zip(&self.columns).enumerate() {
            let number = position + 1;
            let wanted = &column.name;
            match field {
                Some(name) if **name == **wanted => {}
                Some(name) => {
                    return bad(format!(
                        "column name mismatch in header line field {number}: got \"{name}\", expected \"{wanted}\""
                    ));
                }
                None => {
                    return bad(format!(
                        "column name mismatch in header line field {number}: got null value (\"{}\"), expected \"{wanted}\"",
                        self.options.null
                    ));
                }
            }
        }
        Ok(())
    }

    fn row(&self, fields: &[Field<'_>], line: &str, cx: &EvalContext<'_>) -> SqlResult<Row> {
        if let Some(column) = self.columns.get(fields.len()) {
            // A line of a table without columns is empty.
            let message = format!("missing data for column \"{}\"", column.name);
            return Err(self.at_line(SqlError::new(SqlState::BAD_COPY, message), Some(line)));
        }
        if fields.len() > self.columns.len() && !(self.columns.is_empty() && line.is_empty()) {
            let error = SqlError::new(SqlState::BAD_COPY, "extra data after last expected column");
            return Err(self.at_line(error, Some(line)));
        }
        let mut row = Row::with_capacity(self.columns.len());
        for (field, column) in fields.iter().zip(&self.columns) {
            row.push(match field {
                None => Datum::Null,
                Some(text) => parse(text, column, cx).map_err(|error| self.at_column(error, column, text))?,
            });
        }
        Ok(row)
    }

    fn consume_binary(&mut self, data: &[u8], cx: &EvalContext<'_>, rows: &mut Vec<Row>) -> SqlResult<usize> {
        let mut rest = data;
        if !self.header_seen {
            if !binary::take_header(&mut rest)? {
                return Ok(0);
            }
            self.header_seen = true;
        }
        loop {
            let next = binary::next_tuple(rest, self.columns.len(), LARGEST_LINE);
            match next.map_err(|error| self.at_line(error, None))? {
                binary::Tuple::Partial => return Ok(data.len() - rest.len()),
                binary::Tuple::End => {
                    self.ended = true;
                    return Ok(data.len());
                }
                binary::Tuple::Row(len) => {
                    self.line += 1;
                    rows.push(self.binary_row(&rest[..len], cx)?);
                    rest = &rest[len..];
                }
            }
        }
    }

    fn binary_row(&self, data: &[u8], cx: &EvalContext<'_>) -> SqlResult<Row> {
        let mut at = 0;
        let located = |error: SqlError, at: usize| match self.columns.get(at) {
            Some(column) => self.context(
                error,
                format!("COPY {}, line {}, column {}", self.relation, self.line, column.name),
            ),
            None => error,
        };
        let mut row = match binary::decode_tuple(data, &self.columns, &mut at, &cx.text) {
            Ok(row) => row,
            Err(error) => return Err(located(error, at)),
        };
        for (position, (value, column)) in row.iter_mut().zip(&self.columns).enumerate() {
            if column.ty.typmod != -1 {
                *value = cast::cast(value, column.ty.ty, column.ty, false, cx)
                    .map_err(|error| located(error, position))?;
            }
        }
        Ok(row)
    }

    fn at_line(&self, error: SqlError, line: Option<&str>) -> SqlError {
        let place = format!("COPY {}, line {}", self.relation, self.line.max(1));
        self.context(
            error,
            match line {
                Some(line) => format!("{place}: \"{}\"", shown(line)),
                None => place,
            },
        )
    }

    fn at_column(&self, error: SqlError, column: &CopyColumn, text: &str) -> SqlError {
        let (relation, line, name) = (&self.relation, self.line, &column.name);
        self.context(error, format!("COPY {relation}, line {line}, column {name}: \"{}\"", shown(text)))
    }

    fn context(&self, mut error: SqlError, context: String) -> SqlError {
        error.extra_mut().context.get_or_insert(context);
        error
    }
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}

/// A value from its text, with short ways for the commonest types.
fn parse(text: &str, column: &CopyColumn, cx: &EvalContext<'_>) -> SqlResult<Datum> {
    match column.ty.ty {
        Type::INT4 if is_plain_number(text) => Ok(Datum::Int4(text.parse().unwrap_or_default())),
        Type::INT8 if is_plain_number(text) => Ok(Datum::Int8(text.parse().unwrap_or_default())),
        Type::TEXT => Ok(Datum::text(text)),
        _ => sql_types::text::parse(column.ty, text, &cx.text),
    }
}

/// Whether a text is a short number that needs no further care.
fn is_plain_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}
