//! Rows of a file in batches of bounded size.

use crate::csv::{Dialect, Scanner};
use crate::ranges::Ranges;
use bytes::Bytes;
use memchr::memchr_iter;

/// A batch ends when it has so many bytes.
pub const BATCH_BYTES: usize = 4 << 20;

/// How rows are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encoding {
    /// As in the file.
    Csv(Dialect),
    /// COPY's text format.
    Text,
}

/// Some rows that follow each other in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Which file.
    pub file: usize,
    /// Number of the first row in the file, from 1; a header does not count.
    pub first: u64,
    /// Line of the file on which it begins, of files that have lines.
    pub line: Option<u64>,
    /// How many rows.
    pub rows: u64,
    /// The rows, each with its newline.
    pub data: Bytes,
    /// How much of the file they stand for, in bytes.
    pub share: u64,
}

impl Batch {
    /// Number of the last row.
    pub fn last(&self) -> u64 {
        self.first + self.rows.saturating_sub(1)
    }

    /// The first `rows` rows.
    pub fn prefix(&self, rows: u64, encoding: &Encoding) -> Bytes {
        self.data.slice(..self.end_of(rows, encoding))
    }

    /// Where the row is that comes after `rows` others: "line 5" or "row 5".
    pub fn place(&self, rows: u64, encoding: &Encoding) -> String {
        match self.line {
            Some(line) => {
                let before = self.data.get(..self.end_of(rows, encoding)).unwrap_or_default();
                format!("line {}", line + memchr_iter(b'\n', before).count() as u64)
            }
            None => format!("row {}", self.first + rows),
        }
    }

    /// All of its rows: "rows 5 to 9".
    pub fn places(&self) -> String {
        format!("rows {} to {}", self.first, self.last())
    }

    fn end_of(&self, rows: u64, encoding: &Encoding) -> usize {
        let mut end = 0;
        for _ in 0..rows {
            let rest = self.data.get(end..).unwrap_or_default();
            let found = match encoding {
                Encoding::Csv(dialect) => Scanner::new(dialect).end(rest),
                Encoding::Text => memchr::memchr(b'\n', rest).map(|at| at + 1),
            };
            end += found.unwrap_or(rest.len());
        }
        end
    }
}

/// Puts rows together.
pub struct Batcher<'r> {
    file: usize,
    most_rows: u64,
    /// Rows that are left out.
    done: &'r Ranges,
    /// Rows seen so far.
    seen: u64,
    batch: Option<Batch>,
    data: Vec<u8>,
}

impl<'r> Batcher<'r> {
    /// For a file, from its first row on; `done` are rows to leave out.
    pub fn new(file: usize, most_rows: u32, done: &'r Ranges) -> Self {
        Self { file, most_rows: most_rows.into(), done, seen: 0, batch: None, data: Vec::new() }
    }

    /// How many rows it has seen.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Takes the next row, and gives out a batch when one is complete.
    pub fn push(&mut self, row: &[u8], line: Option<u64>, share: u64) -> Option<Batch> {
        self.seen += 1;
        if self.done.contains(self.seen) {
            return self.finish();
        }
        let (file, first) = (self.file, self.seen);
        let batch = self.batch.get_or_insert_with(|| Batch {
            file,
            first,
            line,
            rows: 0,
            data: Bytes::new(),
            share: 0,
        });
        batch.rows += 1;
        batch.share += share;
        self.data.extend_from_slice(row);
        let full = batch.rows >= self.most_rows || self.data.len() >= BATCH_BYTES;
        if full { self.finish() } else { None }
    }

    /// Gives out what is left.
    pub fn finish(&mut self) -> Option<Batch> {
        let data = Bytes::from(std::mem::take(&mut self.data));
        self.batch.take().map(|batch| Batch { data, ..batch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_bounded_and_leave_out_what_is_done() {
        let mut done = Ranges::default();
        done.insert(4, 5);
        let mut batcher = Batcher::new(7, 2, &done);
        let mut batches = Vec::new();
        for row in 1..=8u64 {
            batches.extend(batcher.push(format!("{row}\n").as_bytes(), Some(row + 1), 2));
        }
        batches.extend(batcher.finish());
        let found: Vec<_> = batches.iter().map(|batch| (batch.first, batch.last(), batch.line)).collect();
        assert_eq!(found, [(1, 2, Some(2)), (3, 3, Some(4)), (6, 7, Some(7)), (8, 8, Some(9))]);
        assert_eq!((batches[0].file, &batches[2].data[..], batches[2].share), (7, &b"6\n7\n"[..], 4));
        let done = Ranges::default();
        let mut batcher = Batcher::new(0, 100, &done);
        assert!(batcher.push(&vec![b'x'; BATCH_BYTES], None, 0).is_some());
    }

    #[test]
    fn rows_are_found_again() {
        let dialect = Dialect::new(b',', b'"', b'"', "", true).unwrap();
        let data = Bytes::from_static(b"1,\"a\nb\"\n2,x\n3,y");
        let batch = Batch { file: 0, first: 11, line: Some(20), rows: 3, data, share: 0 };
        let csv = Encoding::Csv(dialect);
        assert_eq!(&batch.prefix(1, &csv)[..], b"1,\"a\nb\"\n");
        assert_eq!(batch.prefix(3, &csv).len(), 15);
        assert_eq!([0, 1, 2].map(|rows| batch.place(rows, &csv)), ["line 20", "line 22", "line 23"]);
        let batch = Batch { line: None, ..batch };
        assert_eq!(batch.place(2, &Encoding::Text), "row 13");
    }
}
