//! Lines and fields of the text and csv formats.

use super::{CopyFormat, CopyOptions};
use memchr::{memchr, memchr2};
use sql_types::{SqlError, SqlResult, SqlState};
use std::borrow::Cow;

/// Finds the ends of lines, remembering where it stopped in a line that has not ended.
#[derive(Debug, Default)]
pub(super) struct LineScanner {
    /// How much of the unfinished line was looked at.
    scanned: usize,
    /// csv: whether that ended inside quotes.
    quoted: bool,
}

impl LineScanner {
    /// The length of the line at the start of `data` without its end, and with it; `None` if it has
    /// not ended yet.
    pub fn line(&mut self, data: &[u8], options: &CopyOptions) -> Option<(usize, usize)> {
        let end = match options.format {
            CopyFormat::Csv => self.csv_end(data, options)?,
            _ => self.text_end(data)?,
        };
        *self = LineScanner::default();
        let len = if end > 0 && data[end - 1] == b'\r' { end - 1 } else { end };
        Some((len, end + 1))
    }

    /// Position of the newline that ends the line: one that no backslash escapes.
    fn text_end(&mut self, data: &[u8]) -> Option<usize> {
        loop {
            let Some(found) = memchr(b'\n', data.get(self.scanned..)?) else {
                self.scanned = data.len();
                return None;
            };
            let newline = self.scanned + found;
            let backslashes = data[..newline].iter().rev().take_while(|byte| **byte == b'\\').count();
            if backslashes % 2 == 0 {
                return Some(newline);
            }
            self.scanned = newline + 1;
        }
    }

    /// Position of the newline that ends the record: one outside of quotes.
    fn csv_end(&mut self, data: &[u8], options: &CopyOptions) -> Option<usize> {
        while let Some(rest) = data.get(self.scanned..).filter(|rest| !rest.is_empty()) {
            if !self.quoted {
                let found = memchr2(b'\n', options.quote, rest);
                let Some(found) = found else {
                    self.scanned = data.len();
                    return None;
                };
                self.scanned += found + 1;
                if rest[found] == b'\n' {
                    return Some(self.scanned - 1);
                }
                self.quoted = true;
                continue;
            }
            let Some(found) = memchr2(options.quote, options.escape, rest) else {
                self.scanned = data.len();
                return None;
            };
            if options.escape != options.quote && rest[found] == options.escape {
                // The next byte decides; if it has not arrived, look again when it has.
                let Some(next) = rest.get(found + 1) else {
                    self.scanned += found;
                    return None;
                };
                let escapes = *next == options.quote || *next == options.escape;
                self.scanned += found + if escapes { 2 } else { 1 };
                continue;
            }
            self.scanned += found + 1;
            self.quoted = false;
        }
        None
    }
}

/// A field: `None` for NULL.
pub(super) type Field<'l> = Option<Cow<'l, str>>;

/// Splits a line of the text format.
pub(super) fn text_fields<'l>(
    line: &'l str,
    options: &CopyOptions,
    fields: &mut Vec<Field<'l>>,
) -> SqlResult<()> {
    fields.clear();
    let bytes = line.as_bytes();
    if memchr(b'\\', bytes).is_none() {
        let mut start = 0;
        while let Some(found) = memchr(options.delimiter, &bytes[start..]) {
            fields.push(plain(slice(line, start, start + found)?, options));
            start += found + 1;
        }
        fields.push(plain(slice(line, start, bytes.len())?, options));
        return Ok(());
    }
    let mut start = 0;
    let mut position = 0;
    while position <= bytes.len() {
        if position == bytes.len() || bytes[position] == options.delimiter {
            let raw = slice(line, start, position)?;
            fields.push(if raw == options.null { None } else { Some(unescape(raw)?) });
            start = position + 1;
            position += 1;
        } else if bytes[position] == b'\\' {
            position = (position + 2).min(bytes.len().max(position + 1));
        } else {
            position += 1;
        }
    }
    Ok(())
}

fn plain<'l>(raw: &'l str, options: &CopyOptions) -> Field<'l> {
    if raw == options.null { None } else { Some(Cow::Borrowed(raw)) }
}

/// A part of a line. The delimiter is one byte, so it lies between characters unless the options name
/// a byte that UTF-8 uses inside of them.
fn slice(line: &str, start: usize, end: usize) -> SqlResult<&str> {
    line.get(start..end)
        .ok_or_else(|| SqlError::new(SqlState::BAD_COPY, "the delimiter stands inside a multibyte character"))
}

/// Resolves backslash escapes.
fn unescape(raw: &str) -> SqlResult<Cow<'_, str>> {
    let Some(first) = memchr(b'\\', raw.as_bytes()) else { return Ok(Cow::Borrowed(raw)) };
    let bytes = raw.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    out.extend_from_slice(&bytes[..first]);
    let mut rest = &bytes[first..];
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let Some((&escaped, after)) = rest.split_first() else {
            out.push(b'\\');
            break;
        };
        rest = after;
        match escaped {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'0'..=b'7' => {
                let more = rest.iter().take(2).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
                let digits = rest[..more].iter().map(|byte| u32::from(byte - b'0'));
                let value = digits.fold(u32::from(escaped - b'0'), |value, digit| value * 8 + digit);
                out.push(value as u8);
                rest = &rest[more..];
            }
            b'x' if rest.first().is_some_and(u8::is_ascii_hexdigit) => {
                let count = rest.iter().take(2).take_while(|byte| byte.is_ascii_hexdigit()).count();
                let digit = |byte: &u8| char::from(*byte).to_digit(16).unwrap_or(0);
                out.push(rest[..count].iter().fold(0, |value, byte| value * 16 + digit(byte)) as u8);
                rest = &rest[count..];
            }
            other => out.push(other),
        }
    }
    String::from_utf8(out).map(Cow::Owned).map_err(|error| invalid_utf8(error.as_bytes()))
}

/// Splits a record of the csv format.
pub(super) fn csv_fields<'l>(
    line: &'l str,
    options: &CopyOptions,
    fields: &mut Vec<Field<'l>>,
) -> SqlResult<()> {
    fields.clear();
    let bytes = line.as_bytes();
    let mut position = 0;
    loop {
        let simple_end = bytes[position..]
            .iter()
            .position(|byte| *byte == options.delimiter || *byte == options.quote)
            .map_or(bytes.len(), |found| position + found);
        let number = fields.len();
        if simple_end == bytes.len() || bytes[simple_end] == options.delimiter {
            let raw = slice(line, position, simple_end)?;
            let null = raw == options.null && !options.force_not_null.contains(number);
            fields.push(if null { None } else { Some(Cow::Borrowed(raw)) });
            position = simple_end;
        } else {
            let (value, end) = quoted_field(bytes, position, options)?;
            let null = options.force_null.contains(number)
                && !options.force_not_null.contains(number)
                && value == options.null;
            fields.push(if null { None } else { Some(Cow::Owned(value)) });
            position = end;
        }
        if position >= bytes.len() {
            return Ok(());
        }
        position += 1;
        if position == bytes.len() {
            // The line ends with a delimiter: one more, empty field.
            let null = options.null.is_empty() && !options.force_not_null.contains(fields.len());
            fields.push(if null { None } else { Some(Cow::Borrowed("")) });
            return Ok(());
        }
    }
}

/// A field with quotes somewhere, and where it ends.
fn quoted_field(bytes: &[u8], start: usize, options: &CopyOptions) -> SqlResult<(String, usize)> {
    let mut out = Vec::new();
    let mut quoted = false;
    let mut position = start;
    while let Some(&byte) = bytes.get(position) {
        if quoted {
            let next = bytes.get(position + 1).copied();
            if byte == options.escape
                && next.is_some_and(|next| next == options.quote || next == options.escape)
            {
                out.extend(next);
                position += 2;
                continue;
            }
            if byte == options.quote {
                quoted = false;
            } else {
                out.push(byte);
            }
        } else if byte == options.delimiter {
            break;
        } else if byte == options.quote {
            quoted = true;
        } else {
            out.push(byte);
        }
        position += 1;
    }
    if quoted {
        return Err(SqlError::new(SqlState::BAD_COPY, "unterminated CSV quoted field"));
    }
    let value = String::from_utf8(out).map_err(|error| invalid_utf8(error.as_bytes()))?;
    Ok((value, position))
}

/// 22021 for bytes that are not UTF-8.
pub(super) fn invalid_utf8(bytes: &[u8]) -> SqlError {
    let start = std::str::from_utf8(bytes).err().map_or(0, |error| error.valid_up_to());
    let shown: Vec<String> = bytes[start..].iter().take(4).map(|byte| format!("0x{byte:02x}")).collect();
    let message = format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" "));
    SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message)
}
