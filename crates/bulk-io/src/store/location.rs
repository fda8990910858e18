//! Names of files and objects.

use crate::error::{Error, Result};
use std::fmt;
use std::path::PathBuf;

/// A file of this machine, or an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Location {
    /// A path.
    File(PathBuf),
    /// `s3://bucket/key`.
    Object {
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
    },
}

impl Location {
    /// Reads a path or `s3://bucket/key`.
    ///
    /// # Errors
    /// If the name of an object lacks its bucket or key, or it is a URL of another kind.
    pub fn parse(text: &str) -> Result<Self> {
        let Some(rest) = text.strip_prefix("s3://") else {
            return match text.split_once("://") {
                Some((scheme, _)) => Err(Error::new(format!("{scheme}:// is not supported"))
                    .hint("Use a path or s3://BUCKET/KEY.")),
                None => Ok(Self::File(text.into())),
            };
        };
        match rest.split_once('/') {
            Some((bucket, key)) if !bucket.is_empty() && !key.is_empty() && !bucket.contains('*') => {
                Ok(Self::Object { bucket: bucket.to_owned(), key: key.to_owned() })
            }
            _ => {
                Err(Error::new(format!("{text} is not the name of an object")).hint("Write s3://BUCKET/KEY."))
            }
        }
    }

    /// Whether it is a file that exists on this machine.
    pub fn is_file(&self) -> bool {
        matches!(self, Self::File(path) if path.is_file())
    }

    /// The same with another last part of its name.
    pub fn renamed(&self, rename: impl FnOnce(&str) -> String) -> Self {
        match self {
            Self::File(path) => Self::File(
                path.with_file_name(rename(&path.file_name().unwrap_or_default().to_string_lossy())),
            ),
            Self::Object { bucket, key } => {
                let (folder, name) =
                    key.rsplit_once('/').map_or(("", key.as_str()), |(folder, name)| (folder, name));
                let renamed = rename(name);
                let key = if folder.is_empty() { renamed } else { format!("{folder}/{renamed}") };
                Self::Object { bucket: bucket.clone(), key }
            }
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Object { bucket, key } => write!(f, "s3://{bucket}/{key}"),
        }
    }
}

/// Whether a name matches a pattern in which `*` stands for any characters, even none.
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations() {
        let object = Location::parse("s3://b/folder/key.csv").unwrap();
        assert_eq!(object, Location::Object { bucket: "b".into(), key: "folder/key.csv".into() });
        assert_eq!(object.renamed(|name| format!("x-{name}")).to_string(), "s3://b/folder/x-key.csv");
        assert_eq!(Location::parse("dir/a.csv").unwrap().renamed(|_| "b".into()).to_string(), "dir/b");
        for text in ["s3://", "s3://b", "s3://b/", "s3:///k", "s3://*/k", "gs://b/k"] {
            assert!(Location::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn patterns() {
        for (pattern, name, wanted) in [
            ("a*.csv", "a1.csv", true),
            ("a*.csv", "a.csv", true),
            ("a*.csv", "b.csv", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXcYb", false),
            ("*", "", true),
            ("a*a", "a", false),
            ("a", "a", true),
            ("a", "ab", false),
            ("*.csv", ".csv", true),
        ] {
            assert_eq!(matches(pattern, name), wanted, "{pattern} {name}");
        }
    }
}
