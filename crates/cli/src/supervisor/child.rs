//! One long-lived child: what it is, where it listens, when it is started again.

use super::reaper::Ended;
use crate::announce::{self, Started};
use crate::data_dir::{DataDir, kv_name};
use crate::error::{Failure, Outcome};
use std::fs::{self, OpenOptions};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// First pause before a child that ended is started again; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Pause before a KV node is started again that has stopped itself for its clock: somebody has to set it first.
const CLOCK_PAUSE: Duration = Duration::from_secs(60);
/// A child that lived this long may end without being suspected.
const HEALTHY: Duration = Duration::from_secs(10);
/// A log that has outgrown this is moved aside when its process starts.
const MAX_LOG: u64 = 64 << 20;

/// What a child is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The KV node of this number, from 1.
    Kv(u8),
    Control,
    Proxy,
}

impl Role {
    /// Its subcommand.
    pub fn command(self) -> &'static str {
        match self {
            Role::Kv(_) => "kv",
            Role::Control => "control",
            Role::Proxy => "proxy",
        }
    }

    /// The name of its log.
    pub fn name(self) -> String {
        match self {
            Role::Kv(number) => kv_name(number),
            other => other.command().into(),
        }
    }

    /// For people, in a system of so many KV nodes.
    fn title(self, kv_nodes: usize) -> String {
        match self {
            Role::Kv(_) if kv_nodes == 1 => "the KV node".into(),
            Role::Kv(number) => format!("KV node {number}"),
            Role::Control => "control".into(),
            Role::Proxy => "the proxy".into(),
        }
    }
}

/// A child and its history.
pub(super) struct Child {
    role: Role,
    title: String,
    address_file: PathBuf,
    log: PathBuf,
    pid: Option<u32>,
    started: Instant,
    failures: u32,
    due: Option<Instant>,
    address: Option<SocketAddr>,
    http: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
}

impl Child {
    /// A child that was not started yet, in a system of so many KV nodes.
    pub fn new(role: Role, kv_nodes: usize, data_dir: &DataDir) -> Self {
        let name = role.name();
        Self {
            role,
            title: role.title(kv_nodes),
            address_file: data_dir.paths().run().join(format!("{name}.address")),
            log: data_dir.paths().logs().join(format!("{name}.log")),
            pid: None,
            started: Instant::now(),
            failures: 0,
            due: None,
            address: None,
            http: None,
            metrics: None,
        }
    }

    /// What it is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// What it is, for people.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Its process, while it has one.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Its main address, once known.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Its HTTP address, if it has one.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Where its metrics are.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// When it is to be started.
    pub fn start_due(&self) -> Option<Instant> {
        self.due
    }

    /// Starts it.
    pub fn start(&mut self, arguments: &[String], lifeline: RawFd) -> Outcome {
        debug_assert!(lifeline >= 0, "the lifeline is inherited by its number");
        let _ = fs::remove_file(&self.address_file);
        if fs::metadata(&self.log).is_ok_and(|metadata| metadata.len() > MAX_LOG) {
            let _ = fs::rename(&self.log, self.log.with_extension("log.old"));
        }
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.log)
            .map_err(|error| Failure::io("write", &self.log, &error))?;
        // The program as it was started, even if its file has been replaced since.
        let child = Command::new("/proc/self/exe")
            .arg0("dormouse")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn()
            .map_err(|error| Failure::new(format!("cannot start {}: {error}", self.title)))?;
        self.pid = Some(child.id());
        self.started = Instant::now();
        self.due = None;
        Ok(())
    }

    /// Whether it serves. A child that said why it cannot is a failure.
    pub fn look_for_announcement(&mut self) -> Outcome<bool> {
        match self.pid.and_then(|pid| announce::read(&self.address_file, pid)) {
            None => Ok(false),
            Some(Started::Serving { address, http, metrics }) => {
                self.address = Some(address);
                self.http = http;
                self.metrics = metrics;
                Ok(true)
            }
            Some(Started::Failed { message, hint }) => {
                let failure = Failure::new(format!("{} cannot start: {message}", self.title));
                Err(match hint {
                    Some(hint) => failure.hint(hint),
                    None => self.see_log(failure),
                })
            }
        }
    }

    /// It ended before it served.
    pub fn end_as_failure(&self, status: &Ended) -> Failure {
        self.see_log(Failure::new(format!("{} ended while it was starting ({status})", self.title)))
    }

    fn see_log(&self, failure: Failure) -> Failure {
        failure.hint(format!("Its log is {}.", self.log.display()))
    }

    /// Its process is gone.
    pub fn has_ended(&mut self) {
        self.pid = None;
    }

    /// Plans its next start, and says how long that is; the more often it ended soon after its start, the later.
    pub fn plan_start(&mut self, now: Instant, wrong_clock: bool) -> Duration {
        self.failures = if now.duration_since(self.started) >= HEALTHY { 0 } else { self.failures + 1 };
        let pause = if wrong_clock { CLOCK_PAUSE } else { pause(self.failures) };
        self.due = Some(now + pause);
        pause
    }
}

fn pause(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        assert_eq!(pause(0), FIRST_PAUSE);
        assert_eq!(pause(1), FIRST_PAUSE);
        assert_eq!(pause(2), FIRST_PAUSE * 2);
        assert_eq!(pause(99), LONGEST_PAUSE);
    }
}
