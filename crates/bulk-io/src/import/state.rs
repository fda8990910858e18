//! What an import has done so far.

use super::batch::Batch;
use super::journal::Journal;
use super::source::Source;
use crate::error::Error;
use crate::progress::rate;
use crate::ranges::Ranges;
use indicatif::HumanCount;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is loaded, and what went wrong.
pub struct State(Mutex<Inner>);

struct Inner {
    journal: Journal,
    files: Vec<File>,
    failure: Option<Error>,
}

#[derive(Clone)]
struct File {
    name: String,
    /// Rows of the file that earlier imports loaded.
    before: Ranges,
    loaded: Ranges,
    /// Rows that the server counted, which triggers may make fewer.
    rows: u64,
    bytes: u64,
    /// Rows of which nobody knows whether they are in.
    unknown: Ranges,
}

impl State {
    /// Nothing is done but what the journal says.
    pub fn new(sources: &[Source], journal: Journal) -> Self {
        let files = sources.iter().map(|source| {
            let name = source.location.to_string();
            let before = journal.of(&name);
            let (loaded, unknown) = (Ranges::default(), Ranges::default());
            File { name, before, loaded, rows: 0, bytes: 0, unknown }
        });
        Self(Mutex::new(Inner { files: files.collect(), journal, failure: None }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows of a file that earlier imports loaded.
    pub fn done(&self, file: usize) -> Ranges {
        self.inner().files.get(file).map(|file| file.before.clone()).unwrap_or_default()
    }

    /// A batch is in; the server counted `rows`.
    pub fn loaded(&self, batch: &Batch, rows: u64) {
        let mut inner = self.inner();
        let Inner { journal, files, failure } = &mut *inner;
        let Some(file) = files.get_mut(batch.file) else { return };
        file.loaded.insert(batch.first, batch.last());
        file.rows += rows;
        file.bytes += batch.data.len() as u64;
        if let Err(error) = journal.note(&file.name, batch.first, batch.last()) {
            failure.get_or_insert(error);
        }
    }

    /// Nobody knows whether a batch is in.
    pub fn unknown(&self, batch: &Batch) {
        if let Some(file) = self.inner().files.get_mut(batch.file) {
            file.unknown.insert(batch.first, batch.last());
        }
    }

    /// Something went wrong: nothing more is begun. What went wrong first counts.
    pub fn fail(&self, error: Error) {
        self.inner().failure.get_or_insert(error);
    }

    /// Whether something went wrong.
    pub fn is_failed(&self) -> bool {
        self.inner().failure.is_some()
    }

    /// What went wrong.
    pub fn failure(&self) -> Option<Error> {
        self.inner().failure.clone()
    }

    /// What was loaded was undone.
    pub fn forget(&self) {
        for file in &mut self.inner().files {
            file.loaded = Ranges::default();
            (file.rows, file.bytes) = (0, 0);
        }
    }

    /// All of it, to be printed.
    pub fn summary(&self, table: &str, created: Option<&str>, elapsed: Duration) -> Summary {
        let inner = self.inner();
        Summary {
            table: table.to_owned(),
            created: created.map(str::to_owned),
            files: inner.files.clone(),
            failure: inner.failure.clone(),
            elapsed,
        }
    }
}

/// What an import did.
pub struct Summary {
    table: String,
    created: Option<String>,
    files: Vec<File>,
    failure: Option<Error>,
    elapsed: Duration,
}

impl Summary {
    fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows).sum()
    }

    /// For people.
    pub fn text(&self) -> String {
        let created = self.created.as_ref().map_or(String::new(), |statement| format!("{statement}\n"));
        let before: u64 = self.files.iter().map(|file| file.before.count()).sum();
        let before =
            if before == 0 { String::new() } else { format!(" ({} were there)", HumanCount(before)) };
        let rows = HumanCount(self.rows());
        let (count, plural) = (self.files.len(), if self.files.len() == 1 { "" } else { "s" });
        let (seconds, rate) = (self.elapsed.as_secs_f64(), HumanCount(rate(self.rows(), self.elapsed)));
        let table = &self.table;
        format!(
            "{created}{rows} rows of {count} file{plural} into {table}{before} in {seconds:.1} s, {rate} rows/s"
        )
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let ranges =
            |ranges: &Ranges| ranges.iter().map(|(first, last)| json!([first, last])).collect::<Vec<_>>();
        let files = self.files.iter().map(|file| {
            json!({
                "file": file.name,
                "rows": file.rows,
                "loaded": ranges(&file.loaded),
                "loaded_before": ranges(&file.before),
                "unknown": ranges(&file.unknown),
            })
        });
        let bytes: u64 = self.files.iter().map(|file| file.bytes).sum();
        json!({
            "table": self.table,
            "created": self.created,
            "rows": self.rows(),
            "bytes": bytes,
            "seconds": self.elapsed.as_secs_f64(),
            "rows_per_second": rate(self.rows(), self.elapsed),
            "files": files.collect::<Vec<_>>(),
            "error": self.failure.as_ref().map(|error| json!({
                "message": error.to_string(),
                "sqlstate": error.sqlstate(),
            })),
        })
    }

    /// What is in the table after a failure, and how to go on.
    pub fn what_stays(&self, journal: Option<&Path>) -> String {
        let named = |pick: fn(&File) -> &Ranges| {
            let files = self.files.iter().filter(|file| pick(file).count() > 0);
            files.map(|file| format!("{} rows {}", file.name, pick(file))).collect::<Vec<_>>().join("; ")
        };
        let mut text = match self.rows() {
            0 => "Nothing was loaded.".to_owned(),
            rows => format!("{} rows are loaded and stay: {}.", HumanCount(rows), named(|file| &file.loaded)),
        };
        let unknown = named(|file| &file.unknown);
        if !unknown.is_empty() {
            text.push_str(&format!(" Whether these are loaded is not known: {unknown}."));
        }
        if self.rows() == 0 && unknown.is_empty() {
            return text;
        }
        match journal {
            Some(path) => {
                text.push_str(&format!(" The same command goes on from there: {} has it.", path.display()))
            }
            None => text.push_str(" With --resume FILE an import can be gone on with."),
        }
        text
    }
}
