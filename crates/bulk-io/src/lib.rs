//! Bulk import and export: `dormouse import` and `dormouse export`.
//!
//! Rows travel as COPY between a server and files of CSV or Parquet, on this machine or in object storage. The
//! server is known only by PostgreSQL's protocol, so both work with PostgreSQL as well. Nothing is held whole: an
//! import has a few batches in memory, an export one row group.
//!
//! * [`import()`]: a thread reads the files into batches, several connections load them, each batch in a transaction
//!   of its own. A row that the server refuses is found by loading fewer and fewer rows of its batch, so that the error
//!   names its line.
//! * [`export()`]: one COPY in one transaction, so one snapshot. Files are written under temporary names and renamed when
//!   all are complete.
//!
//! # Missing
//!
//! Files that are compressed as a whole (`.csv.gz`), nested columns of Parquet other than lists, Parquet compressed
//! with anything but Snappy and Zstandard, uploads in several parts (an object has at most 5 GiB).

pub mod args;
mod calendar;
mod csv;
mod error;
mod export;
mod import;
mod name;
mod parquet;
mod progress;
mod ranges;
mod store;

pub use args::{ExportArgs, ImportArgs};
pub use error::{Error, Result};
pub use export::export;
pub use import::import;

use args::Common;
use pg_client::Target;
use store::{Settings, Store};

impl Common {
    /// The database.
    fn target(&self) -> Result<Target> {
        let url = self.url.as_deref().ok_or_else(|| {
            Error::new("no database: give --url or set DATABASE_URL")
                .hint("`dormouse tenant create` prints a URL.")
        })?;
        Target::parse(url, "dormouse").map_err(|error| Error::new(format!("{error:#}")))
    }

    /// Where files are.
    fn store(&self) -> Store {
        Store::new(Settings { endpoint_url: self.endpoint_url.clone(), region: self.region.clone() })
    }
}

/// Prints a summary. Nobody may be listening.
fn print(text: impl std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
