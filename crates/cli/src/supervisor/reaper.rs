//! Children of this process, orphans included: which there are, which have ended.

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use std::fs;

/// All children that have ended since the last call, and how.
pub(super) fn reap() -> Vec<(u32, String)> {
    let mut ended = Vec::new();
    // An error says that there are no children at all.
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if let Ok(pid) = u32::try_from(pid.as_raw_nonzero().get()) {
            ended.push((pid, describe(status)));
        }
    }
    ended
}

fn describe(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "for an unknown reason".into(),
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
