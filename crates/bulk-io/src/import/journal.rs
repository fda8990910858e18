//! Which rows are loaded, kept in a file so that an import can be gone on with.
//!
//! The first line names the table, every further one rows of a file whose batch was committed. A line is written, and
//! synced, right after the commit: if the machine fails between the two, those rows are loaded again, which a primary
//! key refuses.

use crate::error::{Error, Result};
use crate::ranges::Ranges;
use crate::store::cannot;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    Table(String),
    Loaded { file: String, first: u64, last: u64 },
}

/// The rows that are loaded, by file.
#[derive(Debug, Default)]
pub struct Journal {
    loaded: HashMap<String, Ranges>,
    file: Option<(File, PathBuf)>,
}

impl Journal {
    /// Reads a journal, and begins it where there is none.
    ///
    /// # Errors
    /// If it cannot be read or written, or is of another table.
    pub fn open(path: &Path, table: &str) -> Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(cannot("read", path, &error)),
        };
        let mut journal = Self::read(&text, table).map_err(|error| error.at(path.display()))?;
        let file = OpenOptions::new().create(true).append(true).open(path);
        let mut file = file.map_err(|error| cannot("write", path, &error))?;
        // A line that a crash cut off is none.
        if !text.is_empty() && !text.ends_with('\n') {
            file.set_len(text.rfind('\n').map_or(0, |at| at as u64 + 1))
                .map_err(|error| cannot("write", path, &error))?;
        }
        if !text.contains('\n') {
            append(&mut file, &Line::Table(table.to_owned()))
                .map_err(|error| cannot("write", path, &error))?;
        }
        journal.file = Some((file, path.to_owned()));
        Ok(journal)
    }

    fn read(text: &str, table: &str) -> Result<Self> {
        let mut journal = Self::default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for (number, line) in (1..).zip(whole.lines()) {
            let line: Line = serde_json::from_str(line)
                .map_err(|_| Error::new("not a journal of an import").at(format_args!("line {number}")))?;
            match line {
                Line::Table(other) if other != table => {
                    return Err(Error::new(format!(
                        "the journal is of an import into {other} and not {table}"
                    )));
                }
                Line::Table(_) => {}
                Line::Loaded { file, first, last } => {
                    journal.loaded.entry(file).or_default().insert(first, last)
                }
            }
        }
        Ok(journal)
    }

    /// The rows of a file that are loaded.
    pub fn of(&self, file: &str) -> Ranges {
        self.loaded.get(file).cloned().unwrap_or_default()
    }

    /// Takes note that rows are loaded.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn note(&mut self, file: &str, first: u64, last: u64) -> Result<()> {
        self.loaded.entry(file.to_owned()).or_default().insert(first, last);
        let Some((out, path)) = &mut self.file else { return Ok(()) };
        let line = Line::Loaded { file: file.to_owned(), first, last };
        append(out, &line).map_err(|error| cannot("write", path, &error))
    }
}

fn append(file: &mut File, line: &Line) -> std::io::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_are_gone_on_with() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let mut journal = Journal::open(&path, "t").unwrap();
        journal.note("a.csv", 1, 10).unwrap();
        journal.note("a.csv", 21, 30).unwrap();
        // A crash while a line was written.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"loaded\":{\"fi").unwrap();
        let mut journal = Journal::open(&path, "t").unwrap();
        assert_eq!(journal.of("a.csv").to_string(), "1-10, 21-30");
        journal.note("a.csv", 11, 20).unwrap();
        assert_eq!(Journal::open(&path, "t").unwrap().of("a.csv").to_string(), "1-30");
        assert!(Journal::open(&path, "u").unwrap_err().to_string().contains("and not u"));
        std::fs::write(&path, "nonsense\n").unwrap();
        assert!(Journal::open(&path, "t").is_err());
    }
}
