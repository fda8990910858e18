//! How a child tells the supervisor where it listens, or why it does not: a file that appears whole.

use crate::data_dir::write_atomically;
use crate::error::{Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What a process says about itself once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Announcement {
    /// The process.
    pub pid: u32,
    /// What it serves, or why it cannot.
    #[serde(flatten)]
    pub state: Started,
}

/// The two ways a start ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Started {
    /// It listens.
    Serving {
        /// Its main address.
        address: SocketAddr,
        /// The HTTP API, where it has one.
        http: Option<SocketAddr>,
        /// Its metrics.
        metrics: Option<SocketAddr>,
    },
    /// It ends.
    Failed {
        /// Why.
        message: String,
        /// What can be done.
        hint: Option<String>,
    },
}

/// Flags of processes that announce themselves.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct AnnounceArgs {
    /// File to write the addresses to, once they are known
    #[arg(long, value_name = "FILE")]
    pub address_file: Option<PathBuf>,
}

impl AnnounceArgs {
    /// The process listens.
    pub fn serving(
        &self,
        address: SocketAddr,
        http: Option<SocketAddr>,
        metrics: Option<SocketAddr>,
    ) -> Outcome {
        self.write(Started::Serving { address, http, metrics })
    }

    /// The process cannot start. Returns the failure.
    pub fn failed(&self, failure: Failure) -> Failure {
        let (message, hint) = (failure.message().to_owned(), failure.hint_text().map(ToOwned::to_owned));
        // If even that cannot be written, the failure itself is what matters.
        let _ = self.write(Started::Failed { message, hint });
        failure
    }

    fn write(&self, state: Started) -> Outcome {
        let Some(path) = &self.address_file else { return Ok(()) };
        let announcement = Announcement { pid: std::process::id(), state };
        let text = serde_json::to_vec(&announcement).map_err(|error| Failure::new(error.to_string()))?;
        write_atomically(path, &text, 0o600)
    }
}

/// What process `pid` has announced, if it has.
pub(crate) fn read(path: &Path, pid: u32) -> Option<Started> {
    let announcement: Announcement = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    (announcement.pid == pid).then_some(announcement.state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_asked_for_is_believed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kv.address");
        let args = AnnounceArgs { address_file: Some(path.clone()) };
        args.serving("127.0.0.1:5".parse().unwrap(), None, None).unwrap();
        let own = std::process::id();
        let Some(Started::Serving { address, .. }) = read(&path, own) else { panic!("announced") };
        assert_eq!(address.port(), 5);
        assert!(read(&path, own + 1).is_none());
        let _ = args.failed(Failure::new("port in use").hint("another port"));
        let Some(Started::Failed { message, hint }) = read(&path, own) else { panic!("announced") };
        assert_eq!((message.as_str(), hint.as_deref()), ("port in use", Some("another port")));
    }
}
