//! Histories as lines of JSON, one transaction each.
//!
//! ```text
//! {"id":7,"process":1,"invoked":100,"completed":250,"outcome":"committed","isolation":"serializable",
//!  "ops":[{"read-list":{"key":1,"values":[5,6]}},{"append":{"key":1,"value":9}}]}
//! ```
//!
//! (on one line). A last line without its end was being written when the writer was killed, and does not count.

use crate::history::{History, Txn};
use std::io::{BufRead, Read, Write};

/// Longest line that is read, in bytes: a transaction that reads a million values.
pub const LONGEST_LINE: u64 = 64 << 20;

/// Why a history cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The source failed.
    #[error("cannot read the history")]
    Io(#[from] std::io::Error),
    /// A line is no transaction.
    #[error("line {line} is no transaction")]
    Malformed {
        /// Counted from one.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A line is longer than [`LONGEST_LINE`].
    #[error("line {line} is longer than {LONGEST_LINE} bytes")]
    TooLong {
        /// Counted from one.
        line: usize,
    },
}

/// Writes a history.
///
/// # Errors
/// If the sink fails.
pub fn write(history: &History, mut to: impl Write) -> std::io::Result<()> {
    for txn in &history.txns {
        serde_json::to_writer(&mut to, txn)?;
        to.write_all(b"\n")?;
    }
    to.flush()
}

/// Reads a history. Empty lines are skipped.
///
/// # Errors
/// If the source fails or a line is no transaction.
pub fn read(mut from: impl BufRead) -> Result<History, ReadError> {
    let (mut history, mut text) = (History::default(), Vec::new());
    for line in 1.. {
        text.clear();
        let length = from.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut text)?;
        let Some(text) = text.strip_suffix(b"\n") else {
            let is_too_long = u64::try_from(length).is_ok_and(|length| length == LONGEST_LINE);
            return if is_too_long { Err(ReadError::TooLong { line }) } else { Ok(history) };
        };
        if !text.trim_ascii().is_empty() {
            let txn: Txn =
                serde_json::from_slice(text).map_err(|source| ReadError::Malformed { line, source })?;
            history.txns.push(txn);
        }
    }
    Ok(history)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Isolation, Op, Outcome};

    fn history() -> History {
        let ops = vec![
            Op::ReadList { key: 1, values: vec![5, u64::MAX] },
            Op::Append { key: 1, value: 9 },
            Op::Read { key: 2, value: None },
            Op::Write { key: 2, value: 3 },
        ];
        let txn = |id, completed, outcome, isolation, ops| Txn {
            id,
            process: 4,
            invoked: 10,
            completed,
            outcome,
            isolation,
            ops,
        };
        History {
            txns: vec![
                txn(7, Some(20), Outcome::Committed, Isolation::Serializable, ops),
                txn(8, None, Outcome::Unknown, Isolation::ReadCommitted, vec![]),
            ],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = Vec::new();
        write(&history(), &mut bytes).unwrap();
        assert_eq!(read(&bytes[..]).unwrap(), history());
    }

    #[test]
    fn a_line_that_was_cut_off_does_not_count() {
        let mut bytes = Vec::new();
        write(&history(), &mut bytes).unwrap();
        bytes.truncate(bytes.len() - 3);
        assert_eq!(read(&bytes[..]).unwrap().txns, history().txns[..1]);
    }

    #[test]
    fn nonsense_is_named_by_its_line() {
        let error = read(&b"\n{\"id\":1}\n"[..]).unwrap_err();
        assert_eq!(error.to_string(), "line 2 is no transaction");
        assert!(read(&b""[..]).unwrap().txns.is_empty());
    }
}
