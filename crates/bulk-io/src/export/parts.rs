//! The files of an export: written under temporary names, and named when all are complete.
//!
//! A file of this machine is written beside where it will be, so that naming it is one step. An object is written to a
//! temporary file and sent when it is complete: it appears as a whole. If the export fails the objects sent are removed.

use crate::error::{Error, Result};
use crate::store::{Location, Store, cannot};
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempPath};

/// Most files of one export: what five digits can number.
const MOST_PARTS: usize = 99_999;

/// A file that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its name.
    pub location: Location,
    /// Rows in it.
    pub rows: u64,
    /// Its size.
    pub bytes: u64,
}

/// The files of an export.
pub struct Parts {
    store: Store,
    destination: Location,
    /// Size that no file may exceed; there is one file if that does not matter.
    pub largest: Option<u64>,
    overwrite: bool,
    done: Vec<Part>,
    /// Files of this machine that are complete and not named yet.
    unnamed: Vec<(TempPath, PathBuf)>,
    /// Objects that are sent, while the export may still fail.
    sent: Vec<Location>,
    /// Files of an earlier export to the same destination.
    stale: Vec<Location>,
}

impl Parts {
    /// For a destination.
    ///
    /// # Errors
    /// If there are such files already, and they are not to be replaced.
    pub fn new(store: Store, destination: Location, largest: Option<u64>, overwrite: bool) -> Result<Self> {
        let stale = match largest {
            None if store.exists(&destination)? => vec![destination.clone()],
            None => Vec::new(),
            Some(_) => {
                let numbered = |location: &Location| number_of(&destination, location).is_some();
                let pattern = destination.renamed(|name| with_number(name, "*"));
                store.list(&pattern)?.into_iter().filter(numbered).collect()
            }
        };
        if let Some(found) = stale.first().filter(|_| !overwrite) {
            return Err(Error::new(format!("{found} exists")).hint("--overwrite replaces it."));
        }
        let (done, unnamed, sent) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { store, destination, largest, overwrite, done, unnamed, sent, stale })
    }

    /// Whether no file is complete yet.
    pub fn is_empty(&self) -> bool {
        self.done.is_empty()
    }

    /// A new file, under a temporary name.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn begin(&self) -> Result<NamedTempFile> {
        let mut builder = tempfile::Builder::new();
        // As files usually are: what the umask leaves of this.
        let builder = builder.prefix(".dormouse-export-").permissions(Permissions::from_mode(0o666));
        match &self.destination {
            Location::File(path) => {
                let directory = match path.parent() {
                    Some(parent) if !parent.as_os_str().is_empty() => parent,
                    _ => Path::new("."),
                };
                builder.tempfile_in(directory).map_err(|error| cannot("write to", directory, &error))
            }
            Location::Object { .. } => {
                builder.tempfile().map_err(|error| cannot("write to", &std::env::temp_dir(), &error))
            }
        }
    }

    /// A file is complete.
    ///
    /// # Errors
    /// If it cannot be stored.
    pub fn end(&mut self, file: NamedTempFile, rows: u64) -> Result<()> {
        let location = self.next_location()?;
        let (mut file, path) = file.into_parts();
        let failure = |error: std::io::Error| cannot("write", &path, &error);
        let bytes = file.metadata().map_err(failure)?.len();
        match &location {
            Location::File(wanted) => {
                file.sync_all().map_err(failure)?;
                self.unnamed.push((path, wanted.clone()));
            }
            Location::Object { bucket, key } => self.send(bucket, key, &mut file, bytes, &location)?,
        }
        self.done.push(Part { location, rows, bytes });
        Ok(())
    }

    fn send(
        &mut self,
        bucket: &str,
        key: &str,
        file: &mut File,
        bytes: u64,
        location: &Location,
    ) -> Result<()> {
        // Replaced objects cannot be brought back, so they do not go away either.
        if !self.stale.contains(location) {
            self.sent.push(location.clone());
        }
        self.store.objects()?.write(bucket, key, file, bytes)
    }

    fn next_location(&self) -> Result<Location> {
        let number = self.done.len() + 1;
        match self.largest {
            None => Ok(self.destination.clone()),
            Some(_) if number > MOST_PARTS => {
                Err(Error::new(format!("more than {MOST_PARTS} files"))
                    .hint("Let --max-file-bytes be larger."))
            }
            Some(_) => Ok(self.destination.renamed(|name| with_number(name, &format!("{number:05}")))),
        }
    }

    /// All files are complete: gives them their names, and removes what is left of an earlier export.
    ///
    /// # Errors
    /// If that fails. Some files may have their names then.
    pub fn finish(mut self) -> Result<Vec<Part>> {
        for (file, wanted) in self.unnamed.drain(..) {
            let named = if self.overwrite { file.persist(&wanted) } else { file.persist_noclobber(&wanted) };
            named.map_err(|error| cannot("write", &wanted, &error.error))?;
        }
        self.sent.clear();
        for location in self.stale.drain(..) {
            if !self.done.iter().any(|part| part.location == location) {
                self.store.remove(&location)?;
            }
        }
        Ok(std::mem::take(&mut self.done))
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        for location in self.sent.drain(..) {
            if let Err(error) = self.store.remove(&location) {
                eprintln!("warning: {location} is part of an export that failed: {error}");
            }
        }
    }
}

/// `people.csv` and `00001` make `people-00001.csv`.
fn with_number(name: &str, number: &str) -> String {
    match name.rsplit_once('.') {
        Some((stem, extension)) => format!("{stem}-{number}.{extension}"),
        None => format!("{name}-{number}"),
    }
}

/// The number of a file of an export to a destination.
fn number_of(destination: &Location, location: &Location) -> Option<u32> {
    let mut number = None;
    let mut wanted = String::new();
    let _ = destination.renamed(|name| {
        wanted = name.to_owned();
        String::new()
    });
    let _ = location.renamed(|name| {
        let (before, after) = wanted
            .rsplit_once('.')
            .map_or((wanted.as_str(), String::new()), |(stem, extension)| (stem, format!(".{extension}")));
        let digits = name.strip_prefix(before).and_then(|rest| rest.strip_prefix('-'));
        let digits = digits.and_then(|rest| rest.strip_suffix(&after)).filter(|digits| digits.len() == 5);
        number = digits.and_then(|digits| digits.parse().ok());
        String::new()
    });
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Settings;
    use std::io::Write;

    fn parts(directory: &Path, largest: Option<u64>, overwrite: bool) -> Result<Parts> {
        let store = Store::new(Settings { endpoint_url: None, region: "r".into() });
        Parts::new(store, Location::File(directory.join("a.csv")), largest, overwrite)
    }

    fn add(parts: &mut Parts, text: &str) {
        let mut file = parts.begin().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        parts.end(file, 1).unwrap();
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_appear_when_all_are_complete() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let mut export = parts(path, Some(10), false).unwrap();
        add(&mut export, "one");
        add(&mut export, "two");
        assert!(names(path).iter().all(|name| name.starts_with(".dormouse-export-")));
        drop(export);
        assert_eq!(names(path), [""; 0]);
        let mut export = parts(path, Some(10), false).unwrap();
        for text in ["1", "2", "3"] {
            add(&mut export, text);
        }
        assert_eq!(export.finish().unwrap().len(), 3);
        assert_eq!(names(path), ["a-00001.csv", "a-00002.csv", "a-00003.csv"]);
        assert!(parts(path, Some(10), false).is_err_and(|error| error.to_string().contains("exists")));
        // Nothing of the earlier export is left among the files of the new one.
        std::fs::write(path.join("a-other.csv"), "").unwrap();
        let mut export = parts(path, Some(10), true).unwrap();
        add(&mut export, "new");
        export.finish().unwrap();
        assert_eq!(names(path), ["a-00001.csv", "a-other.csv"]);
        assert_eq!(std::fs::read_to_string(path.join("a-00001.csv")).unwrap(), "new");
    }

    #[test]
    fn numbers() {
        let file = |name: &str| Location::File(name.into());
        assert_eq!(number_of(&file("d/a.csv"), &file("d/a-00012.csv")), Some(12));
        for name in ["d/a-12.csv", "d/a-0001x.csv", "d/b-00001.csv", "d/a-00001.tsv"] {
            assert_eq!(number_of(&file("d/a.csv"), &file(name)), None);
        }
        assert_eq!(number_of(&file("a"), &file("a-00001")), Some(1));
    }
}
