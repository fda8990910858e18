//! How a command fails: one line, and a hint where there is something to do about it.

use std::fmt;
use std::io;
use std::path::Path;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
    /// What control calls it.
    code: Option<String>,
    exit_code: u8,
}

/// The exit code of a KV node that has stopped itself because its wall clock is wrong.
pub(crate) const WRONG_CLOCK: u8 = 3;

/// Result of a command.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure with one line of explanation.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, code: None, exit_code: 1 }
    }

    /// The command was called wrongly.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { exit_code: 2, ..Self::new(message) }
    }

    /// The wall clock of this machine is wrong.
    pub fn wrong_clock(message: impl Into<String>) -> Self {
        Self { exit_code: WRONG_CLOCK, ..Self::new(message) }
    }

    /// Adds what can be done about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds what control calls it.
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Whether control calls it so.
    pub fn is(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }

    /// A file or directory could not be used. `doing` as in "create".
    pub fn io(doing: &str, path: &Path, error: &io::Error) -> Self {
        let failure = Self::new(format!("cannot {doing} {}: {error}", path.display()));
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                failure.hint("Choose another directory with --data-dir, or change its permissions.")
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                failure.hint("The disk is full: make room, or choose another with --data-dir.")
            }
            io::ErrorKind::NotADirectory | io::ErrorKind::NotFound => failure.hint("Check the path."),
            _ => failure,
        }
    }

    /// 2 for wrong usage, [`WRONG_CLOCK`], 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }

    /// The explanation.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What can be done about it.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A line stays a line, whatever is in a path or came over the network.
        write!(f, "error: {}", self.message.replace(['\n', '\r'], " "))?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {}", hint.replace(['\n', '\r'], " ")),
            None => Ok(()),
        }
    }
}
