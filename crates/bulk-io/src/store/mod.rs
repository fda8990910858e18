//! Where files are: on this machine, or in object storage.

mod location;
mod object;

pub use location::{Location, matches};
pub use object::{ObjectStore, Settings};

use crate::error::{Error, Result};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Files of this machine, and objects if they are asked for.
pub struct Store {
    settings: Settings,
    objects: std::sync::OnceLock<ObjectStore>,
}

impl Store {
    /// A store; credentials for objects are not looked for before they are needed.
    pub fn new(settings: Settings) -> Self {
        Self { settings, objects: std::sync::OnceLock::new() }
    }

    /// The object storage.
    ///
    /// # Errors
    /// If the environment has no credentials, or an address is malformed.
    pub fn objects(&self) -> Result<&ObjectStore> {
        if let Some(objects) = self.objects.get() {
            return Ok(objects);
        }
        let objects = ObjectStore::from_environment(&self.settings)?;
        Ok(self.objects.get_or_init(|| objects))
    }

    /// The files that arguments name, `*` standing for any characters; those of one pattern are sorted by name.
    ///
    /// # Errors
    /// If a directory cannot be listed, or a pattern names nothing.
    pub fn expand(&self, arguments: &[String]) -> Result<Vec<Location>> {
        let mut found = Vec::new();
        for argument in arguments {
            let location = Location::parse(argument)?;
            // The shell has expanded what it could: a file whose name has a `*` is that file.
            if !argument.contains('*') || location.is_file() {
                found.push(location);
                continue;
            }
            let mut expanded = self.list(&location)?;
            if expanded.is_empty() {
                return Err(Error::new(format!("no file matches {argument}")));
            }
            expanded.sort();
            found.append(&mut expanded);
        }
        Ok(found)
    }

    /// The files that match a pattern.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn list(&self, pattern: &Location) -> Result<Vec<Location>> {
        match pattern {
            Location::File(path) => list_directory(path),
            Location::Object { bucket, key } => {
                let keys = self.objects()?.list(bucket, key)?;
                Ok(keys.into_iter().map(|key| Location::Object { bucket: bucket.clone(), key }).collect())
            }
        }
    }

    /// Size of a file, in bytes.
    ///
    /// # Errors
    /// If it is not there or cannot be looked at.
    pub fn size(&self, location: &Location) -> Result<u64> {
        match location {
            Location::File(path) => {
                let metadata = path.metadata().map_err(|error| cannot("read", path, &error))?;
                if metadata.is_dir() {
                    return Err(Error::new(format!("{} is a directory", path.display()))
                        .hint(format!("Name its files: '{}/*.csv'.", path.display())));
                }
                Ok(metadata.len())
            }
            Location::Object { bucket, key } => {
                let size = self.objects()?.size(bucket, key)?;
                size.ok_or_else(|| Error::new(format!("{location} does not exist")))
            }
        }
    }

    /// Whether there is such a file.
    ///
    /// # Errors
    /// If that cannot be found out.
    pub fn exists(&self, location: &Location) -> Result<bool> {
        match location {
            Location::File(path) => path.try_exists().map_err(|error| cannot("look for", path, &error)),
            Location::Object { bucket, key } => Ok(self.objects()?.size(bucket, key)?.is_some()),
        }
    }

    /// Reads a file from its start.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn read(&self, location: &Location) -> Result<Box<dyn Read + Send>> {
        self.read_from(location, 0)
    }

    /// Reads a file from a place on.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn read_from(&self, location: &Location, offset: u64) -> Result<Box<dyn Read + Send>> {
        match location {
            Location::File(path) => {
                let mut file = open(path)?;
                file.seek(SeekFrom::Start(offset)).map_err(|error| cannot("read", path, &error))?;
                Ok(Box::new(file))
            }
            Location::Object { bucket, key } => Ok(Box::new(self.objects()?.read(bucket, key, offset)?)),
        }
    }

    /// A file to read at any place. An object is copied to a temporary file first.
    ///
    /// # Errors
    /// If it cannot be opened or copied.
    pub fn open(&self, location: &Location) -> Result<File> {
        if let Location::File(path) = location {
            return open(path);
        }
        let mut object = self.read(location)?;
        let failure =
            |error: io::Error| Error::new(format!("cannot copy {location} to a temporary file: {error}"));
        let mut copy = tempfile::tempfile().map_err(failure)?;
        io::copy(&mut object, &mut copy).map_err(failure)?;
        copy.rewind().map_err(failure)?;
        Ok(copy)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(&self, location: &Location) -> Result<()> {
        match location {
            Location::File(path) => {
                std::fs::remove_file(path).map_err(|error| cannot("remove", path, &error))
            }
            Location::Object { bucket, key } => self.objects()?.remove(bucket, key),
        }
    }
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| cannot("read", path, &error))
}

/// A file or a directory could not be used; `doing` as in "read".
pub fn cannot(doing: &str, path: &Path, error: &io::Error) -> Error {
    let failure = Error::new(format!("cannot {doing} {}: {error}", path.display()));
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => failure.hint("The disk is full."),
        _ => failure,
    }
}

fn list_directory(pattern: &Path) -> Result<Vec<Location>> {
    let directory = match pattern.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let name = pattern.file_name().unwrap_or_default().to_string_lossy();
    if directory.to_string_lossy().contains('*') {
        return Err(Error::new(format!(
            "{}: `*` may stand in the name of a file, not of a directory",
            pattern.display()
        )));
    }
    let entries = std::fs::read_dir(&directory).map_err(|error| cannot("list", &directory, &error))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| cannot("list", &directory, &error))?;
        if matches(&name, &entry.file_name().to_string_lossy()) && !entry.path().is_dir() {
            let parent = pattern.parent().unwrap_or(Path::new(""));
            found.push(Location::File(parent.join(entry.file_name())));
        }
    }
    Ok(found)
}
