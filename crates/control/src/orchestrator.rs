//! Where processes of SQL nodes come from.
//!
//! [`Orchestrator`] is what control needs of its surroundings; [`LocalProcesses`] fulfils it with child
//! processes of this machine. Children outlive control: they are found again by what is written beside
//! their sockets (`<node>.pid`), watched through a pidfd, and can thus be ended without ever hitting a
//! stranger that got the same process number.

use crate::fleet::NodeName;
use parking_lot::Mutex;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

/// Logs of ended SQL nodes that are kept.
const KEPT_LOGS: usize = 100;

/// The process of a SQL node has ended.
#[derive(Debug)]
pub struct Exited {
    /// Which.
    pub node: NodeName,
    /// How, for people.
    pub reason: String,
}

/// Starts and ends the processes of SQL nodes. Ends are reported on the channel given at its creation.
pub trait Orchestrator: Send + Sync {
    /// Starts a process that registers under this name; returns its number.
    ///
    /// # Errors
    /// If it cannot be started. No end is reported then.
    fn start(&self, node: &NodeName) -> io::Result<u32>;
    /// Ends a process at once. One that has ended already is no error.
    fn kill(&self, node: &NodeName);
    /// Notes which tenant a node is about to get, for the control process after this one.
    fn note_tenant(&self, node: &NodeName, tenant: u64);
    /// Whether `pid` is the process of a node, and `tenant` the tenant that was noted for it.
    fn is_process_of(&self, node: &NodeName, pid: u32, tenant: Option<u64>) -> bool;
}

/// What local processes are started with.
#[derive(Debug, Clone)]
pub struct LocalConfig {
    /// The program; `dormouse` itself.
    pub program: PathBuf,
    /// Directory of sockets, for the owner alone.
    pub run_dir: PathBuf,
    /// Directory of logs.
    pub log_dir: PathBuf,
    /// Directory of certificates.
    pub certs_dir: PathBuf,
    /// Where control listens for nodes.
    pub control_address: String,
    /// Ends the nodes when the supervisor is gone.
    pub lifeline_fd: Option<RawFd>,
    /// Whether nodes serve metrics on a port each.
    pub metrics: bool,
}

/// SQL nodes as processes of this machine.
pub struct LocalProcesses {
    config: LocalConfig,
    processes: Arc<Mutex<HashMap<NodeName, Process>>>,
    exits: mpsc::UnboundedSender<Exited>,
    old_logs: Arc<Mutex<VecDeque<PathBuf>>>,
}

#[derive(Debug)]
struct Process {
    /// Unknown for the moment between being started and being entered here; the node may be quicker to
    /// register.
    running: Option<(u32, OwnedFd)>,
    tenant: Option<u64>,
}

/// What is written beside a node's socket: its process and, once it has one, its tenant.
fn note(run_dir: &Path, node: &str, pid: u32, tenant: Option<u64>) {
    let text = tenant.map_or_else(|| pid.to_string(), |tenant| format!("{pid} {tenant}"));
    // Without it the node is not found after a restart of control; it serves all the same.
    if let Err(error) = fs::write(run_dir.join(format!("{node}.pid")), text) {
        tracing::warn!(%error, node, "cannot note the process of a SQL node");
    }
}

fn read_note(path: &Path) -> Option<(u32, Option<u64>)> {
    let text = fs::read_to_string(path).ok()?;
    let mut words = text.split_whitespace();
    let pid = words.next()?.parse().ok()?;
    let tenant = words.next().map(str::parse).transpose().ok()?;
    Some((pid, tenant))
}

impl LocalProcesses {
    /// An orchestrator that knows no process yet.
    pub fn new(config: LocalConfig, exits: mpsc::UnboundedSender<Exited>) -> Self {
        let logs = Self::logs_by_age(&config.log_dir);
        Self { config, processes: Arc::default(), exits, old_logs: Arc::new(Mutex::new(logs)) }
    }

    fn logs_by_age(directory: &Path) -> VecDeque<PathBuf> {
        let mut logs: Vec<_> = entries(directory, ".log")
            .filter_map(|(_, path)| Some((fs::metadata(&path).ok()?.modified().ok()?, path)))
            .collect();
        logs.sort();
        logs.into_iter().map(|(_, path)| path).collect()
    }

    /// The lowest number that no node, socket or log has had.
    pub fn first_number(&self) -> u64 {
        let sockets = entries(&self.config.run_dir, ".sock").chain(entries(&self.config.run_dir, ".pid"));
        let names = sockets.chain(entries(&self.config.log_dir, ".log"));
        names.filter_map(|(name, _)| name.strip_prefix("sql-")?.parse::<u64>().ok()).max().unwrap_or(0) + 1
    }

    /// Takes over the nodes of an earlier control process, with the tenants noted for them. Remains of those that ended are removed.
    pub fn adopt(&self) -> Vec<(NodeName, Option<u64>)> {
        let mut adopted = Vec::new();
        for (name, path) in entries(&self.config.run_dir, ".pid") {
            let node: NodeName = name.into();
            match self.adopt_one(&node, &path) {
                Some(tenant) => adopted.push((node, tenant)),
                None => remove_remains(&self.config.run_dir, &node),
            }
        }
        adopted
    }

    fn adopt_one(&self, node: &NodeName, path: &Path) -> Option<Option<u64>> {
        let (pid, tenant) = read_note(path)?;
        let pidfd = open_pidfd(pid).ok()?;
        // The pidfd is opened first: from here on the number cannot go to another process unnoticed.
        if !is_node_process(pid, node) {
            return None;
        }
        // SAFETY: the descriptor is owned by the value that is registered, which always gives the same
        // number and closes it only when it is dropped, after it was taken out of the registry.
        let watched = unsafe { AsyncFd::register(pidfd.try_clone().ok()?) }.ok()?;
        self.processes.lock().insert(Arc::clone(node), Process { running: Some((pid, pidfd)), tenant });
        let ending = self.ending(node);
        tokio::spawn(async move {
            // Readable when the process has ended; an error would mean that it cannot be watched.
            let watched = watched.readable().await.map(drop);
            ending.report(watched.map_or_else(|error| error.to_string(), |()| "it ended".into()));
        });
        Some(tenant)
    }

    fn spawn(&self, node: &NodeName) -> io::Result<Child> {
        let config = &self.config;
        let log = fs::File::options().create(true).append(true).mode(0o600).open(self.log_path(node))?;
        let mut command = Command::new(&config.program);
        command
            .arg0("dormouse")
            .args(["sql", "--warm", "--node", node, "--control", &config.control_address])
            .arg("--certs")
            .arg(&config.certs_dir)
            .arg("--socket")
            .arg(config.run_dir.join(format!("{node}.sock")));
        if config.metrics {
            command.args(["--metrics", "127.0.0.1:0"]);
        }
        if let Some(fd) = config.lifeline_fd {
            command.args(["--lifeline-fd", &fd.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()
    }

    fn spawn_watched(&self, node: &NodeName) -> io::Result<(Child, u32, OwnedFd)> {
        let child = self.spawn(node)?;
        let pid = child.id().ok_or_else(|| io::Error::other("the process ended at once"))?;
        Ok((child, pid, open_pidfd(pid)?))
    }

    fn log_path(&self, node: &NodeName) -> PathBuf {
        self.config.log_dir.join(format!("{node}.log"))
    }

    fn ending(&self, node: &NodeName) -> Ending {
        Ending {
            node: Arc::clone(node),
            run_dir: self.config.run_dir.clone(),
            log: self.log_path(node),
            processes: Arc::clone(&self.processes),
            old_logs: Arc::clone(&self.old_logs),
            exits: self.exits.clone(),
        }
    }
}

impl Orchestrator for LocalProcesses {
    fn start(&self, node: &NodeName) -> io::Result<u32> {
        self.processes.lock().insert(Arc::clone(node), Process { running: None, tenant: None });
        let (mut child, pid, pidfd) = self.spawn_watched(node).inspect_err(|_| {
            self.processes.lock().remove(node);
        })?;
        if let Some(process) = self.processes.lock().get_mut(node) {
            process.running = Some((pid, pidfd));
            note(&self.config.run_dir, node, pid, process.tenant);
        }
        let ending = self.ending(node);
        tokio::spawn(async move {
            let reason =
                child.wait().await.map_or_else(|error| error.to_string(), |status| status.to_string());
            ending.report(reason);
        });
        Ok(pid)
    }

    fn kill(&self, node: &NodeName) {
        if let Some(Process { running: Some((_, pidfd)), .. }) = self.processes.lock().get(node)
            && let Err(error) = pidfd_send_signal(pidfd, Signal::KILL)
        {
            tracing::debug!(%error, node = &**node, "the SQL node has ended already");
        }
    }

    fn note_tenant(&self, node: &NodeName, tenant: u64) {
        if let Some(process) = self.processes.lock().get_mut(node) {
            process.tenant = Some(tenant);
            if let Some((pid, _)) = process.running {
                note(&self.config.run_dir, node, pid, Some(tenant));
            }
        }
    }

    fn is_process_of(&self, node: &NodeName, pid: u32, tenant: Option<u64>) -> bool {
        let processes = self.processes.lock();
        // A node that came back before it served the tenant it was given says that it has none.
        processes.get(node).is_some_and(|process| {
            let same = process.running.as_ref().is_none_or(|(running, _)| *running == pid);
            same && (tenant.is_none() || process.tenant == tenant)
        })
    }
}

/// What is left to do when a process has ended.
struct Ending {
    node: NodeName,
    run_dir: PathBuf,
    log: PathBuf,
    processes: Arc<Mutex<HashMap<NodeName, Process>>>,
    old_logs: Arc<Mutex<VecDeque<PathBuf>>>,
    exits: mpsc::UnboundedSender<Exited>,
}

impl Ending {
    fn report(self, reason: String) {
        self.processes.lock().remove(&self.node);
        remove_remains(&self.run_dir, &self.node);
        keep_log(&self.old_logs, self.log);
        // Nobody listens any more when control itself ends.
        let _ = self.exits.send(Exited { node: self.node, reason });
    }
}

/// Keeps the log of an ended node, in place of the oldest one. Empty ones tell nothing.
fn keep_log(old_logs: &Mutex<VecDeque<PathBuf>>, log: PathBuf) {
    if fs::metadata(&log).is_ok_and(|metadata| metadata.len() == 0) {
        let _ = fs::remove_file(&log);
        return;
    }
    let mut logs = old_logs.lock();
    logs.push_back(log);
    while logs.len() > KEPT_LOGS {
        if let Some(oldest) = logs.pop_front() {
            let _ = fs::remove_file(oldest);
        }
    }
}

fn remove_remains(run_dir: &Path, node: &str) {
    for suffix in ["pid", "sock"] {
        // Usually the node has removed its socket itself.
        let _ = fs::remove_file(run_dir.join(format!("{node}.{suffix}")));
    }
}

/// Files `sql-*<suffix>` of a directory: their names without the suffix, and their paths.
fn entries(directory: &Path, suffix: &'static str) -> impl Iterator<Item = (String, PathBuf)> {
    fs::read_dir(directory).into_iter().flatten().flatten().filter_map(move |entry| {
        let name = entry.file_name().into_string().ok()?;
        let stem = name.strip_suffix(suffix)?;
        stem.starts_with("sql-").then(|| (stem.to_owned(), entry.path()))
    })
}

fn open_pidfd(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    // Not inherited: rustix sets close-on-exec, as the kernel always does for a pidfd.
    Ok(pidfd_open(pid, PidfdFlags::NONBLOCK)?)
}

/// Whether a process is the SQL node of this name, by its command line.
fn is_node_process(pid: u32, node: &str) -> bool {
    let Ok(arguments) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let mut arguments = arguments.split(|byte| *byte == 0).skip_while(|argument| *argument != b"--node");
    arguments.nth(1) == Some(node.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A program that takes a node's arguments and lives until it is killed.
    fn config(directory: &Path, script: &str) -> LocalConfig {
        let program = directory.join("node");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        LocalConfig {
            program,
            run_dir: directory.into(),
            log_dir: directory.into(),
            certs_dir: directory.into(),
            control_address: "127.0.0.1:1".into(),
            lifeline_fd: None,
            metrics: false,
        }
    }

    #[tokio::test]
    async fn a_process_is_started_found_again_and_ended() {
        let directory = tempfile::tempdir().unwrap();
        let (exits, mut exited) = mpsc::unbounded_channel();
        let first =
            LocalProcesses::new(config(directory.path(), "mkfifo $0.fifo; read line < $0.fifo"), exits);
        let node: NodeName = "sql-4".into();
        let pid = first.start(&node).unwrap();
        assert!(first.is_process_of(&node, pid, None) && !first.is_process_of(&node, pid + 1, None));
        assert!(!first.is_process_of(&node, pid, Some(7)));
        first.note_tenant(&node, 7);
        assert_eq!(first.first_number(), 5);

        let (exits, mut exited_again) = mpsc::unbounded_channel();
        let second = LocalProcesses::new(first.config.clone(), exits);
        // A shell script's command line changes when it is executed: wait until it has been.
        while !is_node_process(pid, &node) {
            tokio::task::yield_now().await;
        }
        assert_eq!(second.adopt(), [(Arc::clone(&node), Some(7))]);
        assert!(second.is_process_of(&node, pid, Some(7)) && !second.is_process_of(&node, pid, Some(8)));
        second.kill(&node);
        assert_eq!(exited_again.recv().await.unwrap().node, node);
        let exit = exited.recv().await.unwrap();
        assert!(exit.reason.contains("signal: 9"), "{}", exit.reason);
        assert!(!directory.path().join("sql-4.pid").exists());
        assert!(LocalProcesses::new(second.config.clone(), second.exits.clone()).adopt().is_empty());
    }

    #[tokio::test]
    async fn a_number_that_went_to_another_process_is_not_adopted() {
        let directory = tempfile::tempdir().unwrap();
        let (exits, _exited) = mpsc::unbounded_channel();
        let processes = LocalProcesses::new(config(directory.path(), ""), exits);
        let path = directory.path().join("sql-1.pid");
        fs::write(&path, std::process::id().to_string()).unwrap();
        assert!(processes.adopt().is_empty());
        assert!(!path.exists());
    }

    #[test]
    fn only_some_logs_of_the_past_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let logs = Mutex::new(VecDeque::new());
        for number in 0..KEPT_LOGS + 3 {
            let log = directory.path().join(format!("sql-{number}.log"));
            fs::write(&log, if number == 50 { "" } else { "line" }).unwrap();
            keep_log(&logs, log);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), KEPT_LOGS);
        assert!(!directory.path().join("sql-0.log").exists());
        assert!(!directory.path().join("sql-50.log").exists(), "it was empty");
    }
}
