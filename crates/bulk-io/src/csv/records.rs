//! Where records end: at newlines outside of quotes.

use super::Dialect;
use crate::error::{Error, Result};
use memchr::{memchr_iter, memchr2};
use std::io::Read;

/// Longest record, in bytes: what Dormouse takes in one row of COPY.
pub const LARGEST_RECORD: usize = 64 << 20;
/// How much is read at a time.
const CHUNK: usize = 256 << 10;

/// Finds the ends of records in data that comes in pieces.
#[derive(Debug, Clone)]
pub struct Scanner {
    quote: u8,
    escape: u8,
    quoted: bool,
    /// The last byte was the escape, within quotes, and is not the quote itself.
    escaped: bool,
}

impl Scanner {
    /// A scanner at the start of a record.
    pub fn new(dialect: &Dialect) -> Self {
        Self { quote: dialect.quote, escape: dialect.escape, quoted: false, escaped: false }
    }

    /// How many of the next bytes belong to the record, its newline included; none if it goes on behind them.
    pub fn end(&mut self, data: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(rest) = data.get(at..).filter(|rest| !rest.is_empty()) {
            if std::mem::take(&mut self.escaped) && (rest[0] == self.quote || rest[0] == self.escape) {
                at += 1;
                continue;
            }
            let other = if self.quoted { self.escape } else { b'\n' };
            let found = memchr2(self.quote, other, rest)?;
            at += found + 1;
            match rest[found] {
                byte if byte == self.quote => self.quoted = !self.quoted,
                _ if self.quoted => self.escaped = true,
                _ => return Some(at),
            }
        }
        None
    }

    /// Whether it stands within quotes.
    pub fn is_quoted(&self) -> bool {
        self.quoted
    }
}

/// The records of a file, one after the other.
pub struct Records<R> {
    input: R,
    scanner: Scanner,
    buffer: Vec<u8>,
    /// The part of the buffer that is not handed out.
    start: usize,
    /// How much of that was looked at, from the start of the buffer.
    scanned: usize,
    ended: bool,
    /// Lines before the record that comes next.
    lines: u64,
    /// Bytes before it.
    offset: u64,
}

impl<R: Read> Records<R> {
    /// The records of a file in a dialect. A byte order mark is skipped.
    pub fn new(input: R, dialect: &Dialect) -> Self {
        let scanner = Scanner::new(dialect);
        Self { input, scanner, buffer: Vec::new(), start: 0, scanned: 0, ended: false, lines: 0, offset: 0 }
    }

    /// The number of the line on which the next record begins, from 1.
    pub fn line(&self) -> u64 {
        self.lines + 1
    }

    /// Bytes of the file before the next record.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next record with its newline, which the last one may lack.
    ///
    /// # Errors
    /// If the file cannot be read, the record is too long, or the file ends within quotes.
    pub fn next(&mut self) -> Result<Option<&[u8]>> {
        let end = loop {
            let fresh = self.buffer.get(self.scanned..).unwrap_or_default();
            if let Some(end) = self.scanner.end(fresh) {
                break self.scanned + end;
            }
            self.scanned = self.buffer.len();
            if self.ended {
                if self.scanner.is_quoted() {
                    return Err(self.failure("the file ends within quotes"));
                }
                break self.buffer.len();
            }
            if self.scanned - self.start > LARGEST_RECORD {
                let message =
                    format!("a record longer than {} MiB: is a quote missing?", LARGEST_RECORD >> 20);
                return Err(self.failure(&message));
            }
            self.fill()?;
        };
        if end == self.start {
            return Ok(None);
        }
        let record = self.buffer.get(self.start..end).unwrap_or_default();
        self.lines += memchr_iter(b'\n', record).count() as u64;
        self.offset += record.len() as u64;
        self.start = end;
        self.scanned = end;
        Ok(Some(record))
    }

    fn fill(&mut self) -> Result<()> {
        self.buffer.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        let old = self.buffer.len();
        self.buffer.resize(old + CHUNK, 0);
        let read = self.input.read(&mut self.buffer[old..]);
        let read = read.map_err(|error| self.failure(&format!("cannot read: {error}")))?;
        self.buffer.truncate(old + read);
        self.ended = read == 0;
        if self.offset == 0 && old == 0 && self.buffer.starts_with(b"\xef\xbb\xbf") {
            self.buffer.drain(..3);
            self.offset = 3;
        }
        Ok(())
    }

    fn failure(&self, message: &str) -> Error {
        Error::new(message).at(format_args!("line {}", self.line()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives out a few bytes at a time.
    struct Slow<'d>(&'d [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let len = self.0.len().min(self.1).min(out.len());
            out[..len].copy_from_slice(&self.0[..len]);
            self.0 = &self.0[len..];
            Ok(len)
        }
    }

    fn records(data: &[u8], dialect: &Dialect, step: usize) -> Result<Vec<(u64, Vec<u8>)>> {
        let mut records = Records::new(Slow(data, step), dialect);
        let mut found = Vec::new();
        loop {
            let line = records.line();
            match records.next()? {
                Some(record) => found.push((line, record.to_vec())),
                None => return Ok(found),
            }
        }
    }

    fn plain() -> Dialect {
        Dialect::new(b',', b'"', b'"', "", true).unwrap()
    }

    #[test]
    fn newlines_in_quotes_end_nothing() {
        let data = b"\xef\xbb\xbfa,b\n1,\"x\ny\"\r\n2,\"\"\"\n\"\n3,z";
        for step in 1..=data.len() {
            let found = records(data, &plain(), step).unwrap();
            // A mark that comes in pieces is data.
            let first: &[u8] = if step >= 3 { b"a,b\n" } else { b"\xef\xbb\xbfa,b\n" };
            let wanted: [(u64, &[u8]); 4] =
                [(1, first), (2, b"1,\"x\ny\"\r\n"), (4, b"2,\"\"\"\n\"\n"), (6, b"3,z")];
            assert_eq!(found.len(), 4, "{step}");
            for (found, wanted) in found.iter().zip(wanted) {
                assert_eq!((found.0, found.1.as_slice()), wanted);
            }
        }
    }

    #[test]
    fn escapes_other_than_the_quote() {
        let dialect = Dialect::new(b',', b'"', b'\\', "", true).unwrap();
        let data = b"\"a\\\"\n\",1\n\"b\\\\\"\n\\\"x\n\"\n";
        for step in 1..=data.len() {
            let found = records(data, &dialect, step).unwrap();
            assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 3, 4], "{step}");
        }
    }

    #[test]
    fn broken_files_are_errors_that_say_where() {
        let error = records(b"a\n\"b\nc", &plain(), 100).unwrap_err().to_string();
        assert_eq!(error, "line 2: the file ends within quotes");
        let huge = [b"a\n\"".to_vec(), vec![b'x'; LARGEST_RECORD + CHUNK]].concat();
        let error = records(&huge, &plain(), usize::MAX).unwrap_err().to_string();
        assert!(error.starts_with("line 2: a record longer than 64 MiB"), "{error}");
        assert_eq!(records(b"", &plain(), 1).unwrap(), []);
    }

    proptest! {
        #[test]
        fn records_are_the_file(data in "[a,\"\\\\\n]{0,60}", escape in prop::sample::select(vec![b'"', b'\\']), step in 1usize..9) {
            let dialect = Dialect::new(b',', b'"', escape, "", false).unwrap();
            if let Ok(found) = records(data.as_bytes(), &dialect, step) {
                let whole: Vec<u8> = found.iter().flat_map(|(_, record)| record.clone()).collect();
                prop_assert_eq!(whole, data.as_bytes());
                let at_once = records(data.as_bytes(), &dialect, usize::MAX).unwrap();
                prop_assert_eq!(found, at_once);
            }
        }
    }
}
