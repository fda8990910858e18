//! The data directory: where everything of a one-machine system is.
//!
//! ```text
//!  VERSION           form of this directory
//!  LOCK              locked by the running system; holds its supervisor's process number
//!  addresses.json    where it listens
//!  admin.token       bearer token of the HTTP API, for the owner alone
//!  certs/            the cluster's authority and a certificate per role
//!  kv/               the first KV node's data; kv-2/, kv-3/ …: the others'
//!  run/              sockets, process notes, addresses children announce
//!  logs/             one log per process
//! ```
//!
//! A directory belongs to one running system: the lock is taken before anything is written. It is
//! inherited by every process of the system, so that it is free only when the last of them has ended,
//! however the first one ended.

mod kv_nodes;
mod secrets;

use crate::error::{Failure, Outcome};
use rustix::fs::{FlockOperation, flock};
use rustix::io::FdFlags;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) use kv_nodes::{KvNode, NODE_COUNTS, name as kv_name};
pub(crate) use secrets::{create_certificates, create_role_certificates};

/// Form of the directory this program reads and writes.
const FORMAT_VERSION: &str = "1";
/// Environment variable with the directory.
pub(crate) const DATA_DIR_VARIABLE: &str = "DORMOUSE_DATA_DIR";
/// Longest path of a Unix socket the kernel takes is 107 bytes; this much is left for our own part.
const LONGEST_PATH: usize = 107 - "/run/sql-1234567890.sock".len();
/// How long the processes of a system whose supervisor was killed may take to end.
const REMAINS_PATIENCE: Duration = Duration::from_secs(10);

/// Which data directory a command means.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DataDirArgs {
    /// Data directory of the running system [default: that of `dormouse demo`]
    #[arg(long, global = true, env = DATA_DIR_VARIABLE, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

impl DataDirArgs {
    /// The directory meant.
    pub fn paths(&self) -> Paths {
        Paths::new(self.data_dir.clone().unwrap_or_else(demo_directory))
    }
}

/// The directory `dormouse demo` uses: the same for every demo of a user.
pub(crate) fn demo_directory() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("dormouse-demo-{user}"))
}

/// The paths within a data directory.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    root: PathBuf,
}

impl Paths {
    /// Paths below `root`.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Something in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Certificates.
    pub fn certs(&self) -> PathBuf {
        self.join("certs")
    }

    /// Sockets and notes.
    pub fn run(&self) -> PathBuf {
        self.join("run")
    }

    /// Logs.
    pub fn logs(&self) -> PathBuf {
        self.join("logs")
    }

    /// The token's file.
    pub fn token(&self) -> PathBuf {
        self.join("admin.token")
    }

    /// Where the system listens.
    pub fn addresses(&self) -> PathBuf {
        self.join("addresses.json")
    }

    /// What [`Addresses`] holds, as the running system wrote it.
    pub fn read_addresses(&self) -> Outcome<Addresses> {
        let path = self.addresses();
        let bytes = fs::read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => not_running(&self.root),
            _ => Failure::io("read", &path, &error),
        })?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Failure::new(format!("{} is damaged: {error}", path.display())))
    }
}

/// Nothing runs on a data directory.
pub(crate) fn not_running(root: &Path) -> Failure {
    let failure = Failure::new(format!("no Dormouse is running with the data directory {}", root.display()));
    if root == demo_directory() {
        failure.hint("Start one with \"dormouse demo\", or name another with --data-dir.")
    } else {
        failure.hint(format!("Start it with \"dormouse start --data-dir {}\".", root.display()))
    }
}

/// Where a system listens: `addresses.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Addresses {
    /// The proxy: PostgreSQL clients.
    pub sql: SocketAddr,
    /// The HTTP API and status page.
    pub http: SocketAddr,
    /// The first KV node.
    pub kv: SocketAddr,
    /// All KV nodes.
    pub kv_nodes: Vec<SocketAddr>,
    /// Control's internal listener.
    pub control: SocketAddr,
    /// Metrics of each process.
    pub metrics: BTreeMap<String, SocketAddr>,
    /// The supervisor's process.
    pub pid: u32,
}

/// A data directory this process has locked.
pub(crate) struct DataDir {
    paths: Paths,
    /// Held, and inherited by children, for as long as the system lives.
    _lock: File,
}

impl DataDir {
    /// Opens a directory, makes it if it is not there, and locks it.
    pub fn open(root: &Path) -> Outcome<Self> {
        let root = std::path::absolute(root).map_err(|error| Failure::io("use", root, &error))?;
        create(&root)?;
        check_content(&root)?;
        let lock = lock(&root)?;
        let data_dir = Self { paths: Paths::new(root), _lock: lock };
        data_dir.fill()?;
        Ok(data_dir)
    }

    /// Opens the demo's directory and empties it.
    pub fn open_demo() -> Outcome<Self> {
        let root = demo_directory();
        create(&root)?;
        check_owner(&root)?;
        let lock = lock(&root).map_err(|failure| {
            failure.hint(
                "Use the running demo, or keep data of your own with \"dormouse start --data-dir DIR\".",
            )
        })?;
        empty(&root)?;
        let data_dir = Self { paths: Paths::new(root), _lock: lock };
        data_dir.fill()?;
        Ok(data_dir)
    }

    /// The paths in it.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Makes what is missing.
    fn fill(&self) -> Outcome {
        let root = self.paths.root();
        if root.as_os_str().len() > LONGEST_PATH {
            return Err(Failure::new(format!("the path {} is too long for sockets in it", root.display()))
                .hint(format!("Choose a directory whose path has at most {LONGEST_PATH} bytes.")));
        }
        let version = root.join("VERSION");
        if !version.exists() {
            write_atomically(&version, format!("{FORMAT_VERSION}\n").as_bytes(), 0o644)?;
        }
        for directory in ["certs", "kv", "run", "logs"] {
            create(&root.join(directory))?;
        }
        // Nobody is left who uses what an earlier run left there, and what it announced is not true.
        empty(&self.paths.run())?;
        match fs::remove_file(self.paths.addresses()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Failure::io("remove", &self.paths.addresses(), &error));
            }
            _ => {}
        }
        secrets::create_all(&self.paths)
    }

    /// Publishes where the system listens.
    pub fn write_addresses(&self, addresses: &Addresses) -> Outcome {
        let text = serde_json::to_vec_pretty(addresses)
            .map_err(|error| Failure::new(format!("cannot write addresses: {error}")))?;
        write_atomically(&self.paths.addresses(), &text, 0o644)
    }

    /// Withdraws the addresses: the system ends.
    pub fn remove_addresses(&self) {
        // Whoever finds the old ones finds nobody there.
        let _ = fs::remove_file(self.paths.addresses());
    }
}

fn create(directory: &Path) -> Outcome {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| Failure::io("create", directory, &error))
}

/// A directory in a place where everybody may write must be ours, not a trap.
fn check_owner(root: &Path) -> Outcome {
    let metadata = fs::symlink_metadata(root).map_err(|error| Failure::io("use", root, &error))?;
    if !metadata.is_dir() || metadata.uid() != rustix::process::getuid().as_raw() {
        return Err(Failure::new(format!("{} is not a directory of yours", root.display()))
            .hint("Remove it, or choose a directory with \"dormouse start --data-dir DIR\"."));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(root, fs::Permissions::from_mode(0o700))
            .map_err(|error| Failure::io("protect", root, &error))?;
    }
    Ok(())
}

/// Whether a directory is one of ours, of this version, or empty.
fn check_content(root: &Path) -> Outcome {
    let path = root.join("VERSION");
    match fs::read_to_string(&path) {
        Ok(version) if version.trim() == FORMAT_VERSION => Ok(()),
        Ok(version) => {
            let version: String = version.trim().chars().take(20).collect();
            Err(Failure::new(format!(
                "{} has format version \"{version}\"; this program reads version \"{FORMAT_VERSION}\"",
                root.display()
            ))
            .hint("Start it with the version of Dormouse that wrote it, or choose an empty directory."))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => check_empty(root),
        Err(error) => Err(Failure::io("read", &path, &error)),
    }
}

fn check_empty(root: &Path) -> Outcome {
    let entries = fs::read_dir(root).map_err(|error| Failure::io("read", root, &error))?;
    // A first start that was interrupted leaves these.
    let ours = |name: &std::ffi::OsStr| name == "LOCK" || name == "VERSION.new";
    if entries.flatten().all(|entry| ours(&entry.file_name())) {
        return Ok(());
    }
    Err(Failure::new(format!("{} is not empty and not a data directory of Dormouse", root.display()))
        .hint("Choose an empty directory, or one that does not exist yet."))
}

/// Takes the lock. If the supervisor that had it was killed, waits for its last children to end.
fn lock(root: &Path) -> Outcome<File> {
    let path = root.join("LOCK");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|error| Failure::io("write", &path, &error))?;
    let patience = Instant::now() + REMAINS_PATIENCE;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(Failure::io("lock", &path, &error.into())),
        }
        let holder = holder(&mut file);
        let alive = holder.is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists());
        if alive || Instant::now() >= patience {
            let by = holder.map_or_else(String::new, |pid| format!(" by process {pid}"));
            return Err(Failure::new(format!("{} is in use{by}", root.display()))
                .hint("Stop it first (SIGTERM), or choose another directory with --data-dir."));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let written = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(std::process::id().to_string().as_bytes()))
        .and_then(|()| Ok(rustix::io::fcntl_setfd(&file, FdFlags::empty())?));
    written.map_err(|error| Failure::io("write", &path, &error))?;
    Ok(file)
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Removes everything but the lock.
fn empty(root: &Path) -> Outcome {
    let entries = fs::read_dir(root).map_err(|error| Failure::io("read", root, &error))?;
    for entry in entries.flatten().filter(|entry| entry.file_name() != "LOCK") {
        let path = entry.path();
        let directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(|error| Failure::io("remove", &path, &error))?;
    }
    Ok(())
}

/// Writes a file so that a reader finds all of it or none.
pub(crate) fn write_atomically(path: &Path, content: &[u8], mode: u32) -> Outcome {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&new)
        .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&new, path));
    written.map_err(|error| Failure::io("write", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_directory_is_filled_and_protected() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("a/b");
        let data_dir = DataDir::open(&root).unwrap();
        assert_eq!(fs::metadata(&root).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::read_to_string(root.join("VERSION")).unwrap(), "1\n");
        for file in ["admin.token", "certs/ca.key", "certs/kv.key", "certs/server.key"] {
            assert_eq!(fs::metadata(root.join(file)).unwrap().mode() & 0o777, 0o600, "{file}");
        }
        let token = fs::read_to_string(data_dir.paths().token()).unwrap();
        drop(data_dir);
        let again = DataDir::open(&root).unwrap();
        assert_eq!(fs::read_to_string(again.paths().token()).unwrap(), token);
    }

    #[test]
    fn a_directory_in_use_is_refused_with_the_process_that_uses_it() {
        let root = tempfile::tempdir().unwrap();
        let _data_dir = DataDir::open(root.path()).unwrap();
        let failure = DataDir::open(root.path()).err().unwrap().to_string();
        assert!(failure.contains(&format!("in use by process {}", std::process::id())), "{failure}");
    }

    #[test]
    fn other_versions_and_other_directories_are_refused_untouched() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("VERSION"), "99\n").unwrap();
        let failure = DataDir::open(root.path()).err().unwrap().to_string();
        assert!(failure.contains("format version \"99\"") && failure.contains("hint: "), "{failure}");
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("letter.txt"), "dear").unwrap();
        let failure = DataDir::open(root.path()).err().unwrap().to_string();
        assert!(failure.contains("not empty"), "{failure}");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_path_that_cannot_be_written_is_named() {
        for path in ["/proc/no/such", "/dev/null/x"] {
            let failure = DataDir::open(Path::new(path)).err().unwrap().to_string();
            assert!(failure.contains(path) && failure.contains("hint: "), "{failure}");
        }
    }

    #[test]
    fn emptying_keeps_the_lock() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("kv")).unwrap();
        fs::write(root.path().join("kv/x"), "").unwrap();
        fs::write(root.path().join("LOCK"), "").unwrap();
        empty(root.path()).unwrap();
        let left: Vec<_> = fs::read_dir(root.path()).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["LOCK"]);
    }
}
