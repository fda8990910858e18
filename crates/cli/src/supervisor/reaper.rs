//! Children of this process, orphans included: which there are, which have ended.

use crate::error::WRONG_CLOCK;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use std::fmt;
use std::fs;

/// All children that have ended since the last call, and how.
pub(super) fn reap() -> Vec<(u32, Ended)> {
    let mut ended = Vec::new();
    // An error says that there are no children at all.
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if let Ok(pid) = u32::try_from(pid.as_raw_nonzero().get()) {
            ended.push((pid, Ended(status)));
        }
    }
    ended
}

/// How a child has ended.
pub(super) struct Ended(WaitStatus);

impl Ended {
    /// Whether it stopped itself because its clock is wrong.
    pub fn has_wrong_clock(&self) -> bool {
        self.0.exit_status() == Some(i32::from(WRONG_CLOCK))
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.exit_status(), self.0.terminating_signal()) {
            (Some(code), _) => write!(f, "exit code {code}"),
            (None, Some(signal)) => write!(f, "signal {signal}"),
            (None, None) => f.write_str("for an unknown reason"),
        }
    }
}

/// Sends a signal to a child that was not reaped yet, so its number is still its own.
pub(super) fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // One that has ended already needs no signal.
        let _ = kill_process(pid, signal);
    }
}

/// Whether a process is a child that was not reaped yet.
pub(super) fn is_child(pid: u32) -> bool {
    parent(pid) == Some(std::process::id())
}

/// All children of this process.
pub(super) fn children() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| is_child(*pid)).collect()
}

/// The parent of a process.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name is in parentheses and may hold anything; state and parent follow.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::parent_id;

    #[test]
    fn parents_are_known() {
        assert_eq!(parent(std::process::id()), Some(parent_id()));
        assert_eq!(parent(u32::MAX), None);
    }
}
