//! The rows of a Parquet file.

use super::leaf::{Cursor, Leaf};
use super::{TYPES_KEY, footer};
use crate::error::{Error, Result};
use crate::store::{Location, Store};
use parquet::basic::Compression;
use parquet::file::metadata::FileMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// Rows that are read of all columns before they are given out.
const ROWS_AT_ONCE: usize = 1024;
/// Largest number of row groups and of columns that a file may claim.
const MOST_GROUPS: usize = 1_000_000;
const MOST_COLUMNS: usize = 1_600;

/// The columns of a file.
pub struct Columns {
    leaves: Vec<Leaf>,
    noted: Option<Vec<String>>,
}

impl Columns {
    /// Reads what a file says of itself, which is at its end. To be called within [`super::guarded`].
    ///
    /// # Errors
    /// If it is malformed, or has columns without counterpart.
    pub fn read(store: &Store, location: &Location, size: u64) -> Result<Self> {
        let metadata = footer::read(&mut |offset| store.read_from(location, offset), size)?;
        Self::of(metadata.file_metadata())
    }

    fn of(metadata: &FileMetaData) -> Result<Self> {
        let leaves = Leaf::all(metadata.schema_descr())?;
        if leaves.is_empty() || leaves.len() > MOST_COLUMNS {
            return Err(Error::new(format!("the file has {} columns", leaves.len())));
        }
        let noted = noted_types(metadata).filter(|noted| noted.len() == leaves.len());
        Ok(Self { leaves, noted })
    }

    /// Their names.
    pub fn names(&self) -> Vec<String> {
        self.leaves.iter().map(|leaf| leaf.name.clone()).collect()
    }

    /// The types of PostgreSQL for them: those that an export noted, or else what the schema says.
    pub fn types(&self) -> Vec<String> {
        self.noted.clone().unwrap_or_else(|| self.leaves.iter().map(|leaf| leaf.sql_type.clone()).collect())
    }
}

/// The rows of a file, as lines of COPY's text format.
pub struct Rows {
    file: SerializedFileReader<File>,
    columns: Columns,
}

impl Rows {
    /// Reads what a file says of itself. To be called within [`super::guarded`].
    ///
    /// # Errors
    /// If it is malformed, or has columns without counterpart.
    pub fn open(file: File) -> Result<Self> {
        let failure = |error| Error::new(format!("cannot read: {error}"));
        let size = file.metadata().map_err(failure)?.len();
        let mut read_from = |offset| {
            let mut part = file.try_clone().map_err(failure)?;
            part.seek(SeekFrom::Start(offset)).map_err(failure)?;
            Ok(Box::new(part) as Box<dyn Read + Send>)
        };
        footer::read(&mut read_from, size)?;
        let file = SerializedFileReader::new(file)?;
        let metadata = file.metadata();
        if metadata.num_row_groups() > MOST_GROUPS {
            return Err(Error::new("malformed Parquet: too many row groups"));
        }
        let mut chunks = metadata.row_groups().iter().flat_map(|group| group.columns());
        if let Some(unknown) = chunks.find(|chunk| !is_known(chunk.compression())) {
            let codec = unknown.compression().to_string();
            let name = codec.split('(').next().unwrap_or_default();
            return Err(Error::new(format!("the file is compressed with {name}, which is not supported"))
                .hint("Write it with Snappy, Zstandard or no compression."));
        }
        let columns = Columns::of(metadata.file_metadata())?;
        Ok(Self { file, columns })
    }

    /// How many rows it says that it has.
    pub fn count(&self) -> u64 {
        u64::try_from(self.file.metadata().file_metadata().num_rows()).unwrap_or_default()
    }

    /// Its columns.
    #[cfg(test)]
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// Gives out all rows, one after the other: each is a line with its newline.
    ///
    /// # Errors
    /// What `take` says, or if the file is malformed.
    pub fn each(&self, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut line = Vec::new();
        for number in 0..self.file.metadata().num_row_groups() {
            let group = self.file.get_row_group(number)?;
            let mut left = usize::try_from(group.metadata().num_rows()).unwrap_or_default();
            let mut cursors = Vec::with_capacity(self.columns.leaves.len());
            for (position, leaf) in self.columns.leaves.iter().enumerate() {
                cursors.push(Cursor::new(leaf, group.get_column_reader(position)?));
            }
            while left > 0 {
                let wanted = left.min(ROWS_AT_ONCE);
                for (cursor, leaf) in cursors.iter_mut().zip(&self.columns.leaves) {
                    if cursor.read(wanted)? != wanted {
                        let message = "malformed Parquet: rows are missing";
                        return Err(Error::new(message).at(format_args!("column {}", leaf.name)));
                    }
                }
                for _ in 0..wanted {
                    line.clear();
                    push_line(&mut cursors, &mut line)?;
                    take(&line)?;
                }
                left -= wanted;
            }
        }
        Ok(())
    }
}

fn is_known(codec: Compression) -> bool {
    matches!(codec, Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_))
}

fn push_line(cursors: &mut [Cursor<'_>], line: &mut Vec<u8>) -> Result<()> {
    for (position, cursor) in cursors.iter_mut().enumerate() {
        if position > 0 {
            line.push(b'\t');
        }
        cursor.push_field(line)?;
    }
    line.push(b'\n');
    Ok(())
}

/// The types that an export noted. They become part of a statement, so nothing but names of types passes.
fn noted_types(metadata: &FileMetaData) -> Option<Vec<String>> {
    let pairs = metadata.key_value_metadata()?;
    let noted = pairs.iter().find(|pair| pair.key == TYPES_KEY)?.value.as_deref()?;
    let types: Vec<String> = serde_json::from_str(noted).ok()?;
    types.iter().all(|name| is_type(name)).then_some(types)
}

/// Whether a text can be nothing but the name of a type as `format_type` writes it, possibly with a
/// schema, a modifier in parentheses and brackets.
fn is_type(text: &str) -> bool {
    let bare = text.trim_end_matches("[]");
    let (before, modifier, after) = match bare.split_once('(') {
        None => (bare, "1", ""),
        Some((before, rest)) => match rest.split_once(')') {
            Some((modifier, after)) => (before, modifier, after),
            None => return false,
        },
    };
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, ',' | '-');
    let is_name =
        before.chars().all(is_word) && before.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_modifier = !modifier.is_empty() && !modifier.contains("--") && modifier.chars().all(is_number);
    (is_name || SEVERAL_WORDS.contains(&before)) && is_modifier && ["", ZONES[0], ZONES[1]].contains(&after)
}

/// What may follow the modifier of a type.
const ZONES: [&str; 2] = [" without time zone", " with time zone"];
/// Types of more than one word.
const SEVERAL_WORDS: [&str; 7] = [
    "double precision",
    "character varying",
    "bit varying",
    "timestamp without time zone",
    "timestamp with time zone",
    "time without time zone",
    "time with time zone",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_types_pass() {
        for name in [
            "integer",
            "numeric(10,2)",
            "timestamp(3) with time zone",
            "text[]",
            "public.mood",
            "numeric(3,-2)",
            "interval",
        ] {
            assert!(is_type(name), "{name}");
        }
        for name in [
            "",
            "int, b text",
            "int) ; drop",
            "int -- x",
            "\"x\"",
            "int default 'x'",
            "numeric(--)",
            "1",
            "char(3",
            "int default f(1)",
            "integer unique",
        ] {
            assert!(!is_type(name), "{name}");
        }
    }
}
