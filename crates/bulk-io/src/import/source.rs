//! The files of an import: what they have, and their rows in batches.

use super::batch::{Batch, Batcher, Encoding};
use crate::args::{Common, Format, Types};
use crate::csv::infer::Guess;
use crate::csv::{Dialect, Records};
use crate::error::{Error, Result};
use crate::name;
use crate::parquet::{self, Rows, guarded};
use crate::ranges::Ranges;
use crate::store::{Location, Store};

/// Rows that are looked at to find types for the columns of a CSV file.
const SAMPLE_ROWS: usize = 10_000;

/// A file to import.
#[derive(Debug, Clone)]
pub struct Source {
    /// Which.
    pub location: Location,
    /// Size in bytes.
    pub bytes: u64,
    /// How its rows are sent.
    pub encoding: Encoding,
    /// Its columns, if anything says which these are: a header, a schema, or whoever asked.
    pub columns: Vec<String>,
}

/// Columns to make a table of: names and types.
pub type Columns = Vec<(String, String)>;

impl Source {
    /// Looks at a file.
    ///
    /// # Errors
    /// If it cannot be read, or its format is not known.
    pub fn open(store: &Store, location: Location, common: &Common, columns: &[String]) -> Result<Self> {
        let name = location.to_string();
        let format = common.format_of(&name)?;
        let bytes = store.size(&location)?;
        let encoding = match format {
            Format::Csv => Encoding::Csv(common.dialect(&name)?),
            Format::Parquet => Encoding::Text,
        };
        let mut source = Self { location, bytes, encoding, columns: columns.to_vec() };
        if source.columns.is_empty() {
            source.columns = source.own_columns(store).map_err(|error| error.at(&name))?;
        }
        Ok(source)
    }

    fn own_columns(&self, store: &Store) -> Result<Vec<String>> {
        match &self.encoding {
            Encoding::Csv(dialect) if dialect.header => {
                let mut records = Records::new(store.read(&self.location)?, dialect);
                header(&mut records, dialect)
            }
            Encoding::Csv(_) => Ok(Vec::new()),
            Encoding::Text => {
                let names = self.parquet_columns(store)?.names();
                name::check_columns(&names)?;
                Ok(names)
            }
        }
    }

    fn parquet_columns(&self, store: &Store) -> Result<parquet::Columns> {
        guarded(|| parquet::Columns::read(store, &self.location, self.bytes))
    }

    /// What a table for it would have to be.
    ///
    /// # Errors
    /// If it cannot be read, or has neither header nor schema.
    pub fn describe(&self, store: &Store, types: Types) -> Result<Columns> {
        let described = match &self.encoding {
            Encoding::Csv(dialect) => self.describe_csv(store, dialect, types),
            Encoding::Text => self.parquet_columns(store).map(|columns| columns.types()),
        };
        let types = described.map_err(|error| error.at(&self.location))?;
        let names = if self.columns.is_empty() {
            (1..=types.len()).map(|number| format!("column{number}")).collect()
        } else {
            self.columns.clone()
        };
        if names.len() != types.len() {
            let (names, columns) = (names.len(), types.len());
            return Err(Error::new(format!("{} has {columns} columns and not {names}", self.location)));
        }
        name::check_columns(&names)?;
        Ok(names.into_iter().zip(types).collect())
    }

    fn describe_csv(&self, store: &Store, dialect: &Dialect, types: Types) -> Result<Vec<String>> {
        let mut records = Records::new(store.read(&self.location)?, dialect);
        let mut guesses: Vec<Guess> = vec![Guess::default(); self.columns.len()];
        if dialect.header {
            records.next()?;
        }
        for _ in 0..SAMPLE_ROWS {
            let line = records.line();
            let Some(record) = records.next()? else { break };
            let fields = dialect.fields(record).map_err(|error| error.at(format_args!("line {line}")))?;
            if guesses.is_empty() {
                guesses = vec![Guess::default(); fields.len()];
            }
            guesses.iter_mut().zip(&fields).for_each(|(guess, field)| guess.see(field.as_deref()));
        }
        let name = |guess: &Guess| if types == Types::Text { "text" } else { guess.name() };
        Ok(guesses.iter().map(|guess| name(guess).to_owned()).collect())
    }

    /// Gives out all rows but those that are done, in batches.
    ///
    /// # Errors
    /// What `take` says, or what is wrong with the file and where.
    pub fn batches(
        &self,
        store: &Store,
        number: usize,
        most_rows: u32,
        done: &Ranges,
        take: &mut dyn FnMut(Batch) -> Result<()>,
    ) -> Result<()> {
        let mut batcher = Batcher::new(number, most_rows, done);
        let outcome = match &self.encoding {
            Encoding::Csv(dialect) => self.batch_records(store, dialect, &mut batcher, take),
            Encoding::Text => self.batch_rows(store, &mut batcher, take),
        };
        // What was read before a broken row is loaded all the same.
        let rest = batcher.finish().map_or(Ok(()), take);
        outcome.and(rest)
    }

    fn batch_records(
        &self,
        store: &Store,
        dialect: &Dialect,
        batcher: &mut Batcher<'_>,
        take: &mut dyn FnMut(Batch) -> Result<()>,
    ) -> Result<()> {
        let at = |error: Error| error.at(&self.location);
        let mut records = Records::new(store.read(&self.location)?, dialect);
        if dialect.header {
            records.next().map_err(at)?;
        }
        loop {
            let (line, offset) = (records.line(), records.offset());
            let Some(record) = records.next().map_err(at)? else { return Ok(()) };
            // To a server this would be the end of the data.
            if matches!(record.trim_ascii_end(), b"\\.") {
                return Err(at(Error::new("a record that is only \\. means the end of data to COPY")
                    .at(format_args!("line {line}"))
                    .hint("Quote it.")));
            }
            let share = record.len() as u64 + if batcher.seen() == 0 { offset } else { 0 };
            if let Some(batch) = batcher.push(record, Some(line), share) {
                take(batch)?;
            }
        }
    }

    fn batch_rows(
        &self,
        store: &Store,
        batcher: &mut Batcher<'_>,
        take: &mut dyn FnMut(Batch) -> Result<()>,
    ) -> Result<()> {
        // An error of whoever takes the batches says itself where it is.
        let mut theirs = false;
        let outcome = guarded(|| {
            let rows = Rows::open(store.open(&self.location)?)?;
            let share = self.bytes / rows.count().max(1);
            rows.each(&mut |row| {
                if row.len() > crate::csv::LARGEST_RECORD {
                    return Err(Error::new(format!(
                        "a row longer than {} MiB",
                        crate::csv::LARGEST_RECORD >> 20
                    )));
                }
                match batcher.push(row, None, share) {
                    Some(batch) => take(batch).inspect_err(|_| theirs = true),
                    None => Ok(()),
                }
            })
        });
        outcome.map_err(|error| match theirs {
            true => error,
            false => error.at(format_args!("row {}", batcher.seen() + 1)).at(&self.location),
        })
    }

    /// The statement that takes its rows.
    pub fn statement(&self, table: &str) -> String {
        let columns = match self.columns.as_slice() {
            [] => String::new(),
            columns => format!(" ({})", name::identifiers(columns)),
        };
        let options = match &self.encoding {
            Encoding::Csv(dialect) => dialect.copy_options(),
            Encoding::Text => "FORMAT text".to_owned(),
        };
        format!("COPY {table}{columns} FROM STDIN WITH ({options})")
    }
}

/// The names in the header.
fn header<R: std::io::Read>(records: &mut Records<R>, dialect: &Dialect) -> Result<Vec<String>> {
    let Some(record) = records.next()? else {
        return Err(Error::new("the file is empty")
            .hint("It should begin with the names of the columns, unless --no-header."));
    };
    let fields = dialect.fields(record).map_err(|error| error.at("line 1"))?;
    let names: Vec<String> =
        fields.into_iter().map(|field| field.unwrap_or_default().trim().to_owned()).collect();
    name::check_columns(&names).map_err(|error| {
        error.at("line 1").hint("--no-header if the first line is data; --columns names the columns.")
    })?;
    Ok(names)
}
