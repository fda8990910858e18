//! Starts that are refused.

use crate::cluster::{Cluster, assert_nothing_is_left, dormouse};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

fn start(data_dir: &Path, flags: &[&str]) -> Output {
    let mut command = dormouse();
    command.args(["start", "--data-dir"]).arg(data_dir);
    let free = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    command.args(if flags.is_empty() { &free } else { flags }).output().unwrap()
}

/// The start fails with exit code 1 and says this, and what to do.
fn assert_refused(output: &Output, what: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.starts_with("error: ") && text.contains(what) && text.contains("\nhint: "), "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
}

#[test]
fn a_directory_of_another_version() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("VERSION"), "99\n").unwrap();
    assert_refused(&start(directory.path(), &[]), "format version \"99\"");
}

#[test]
fn a_directory_that_is_not_ours() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("thesis.tex"), "").unwrap();
    assert_refused(&start(directory.path(), &[]), "is not empty and not a data directory");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "it is left as it was");
}

#[test]
fn a_directory_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    assert_refused(&start(directory.path(), &[]), &format!("in use by process {}", cluster.pid()));
    cluster.stop();
}

#[test]
fn a_directory_that_cannot_be_written() {
    // For the superuser, too.
    assert_refused(&start(Path::new("/proc/dormouse"), &[]), "cannot create /proc/dormouse");
    let file = tempfile::NamedTempFile::new().unwrap();
    assert_refused(&start(&file.path().join("below"), &[]), "cannot create");
}

#[test]
fn a_port_in_use_and_nothing_is_left_behind() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for flags in
        [["--listen", &address, "--http", "127.0.0.1:0"], ["--listen", "127.0.0.1:0", "--http", &address]]
    {
        let directory = tempfile::tempdir().unwrap();
        assert_refused(&start(directory.path(), &flags), &format!("cannot listen on {address}"));
        assert_nothing_is_left(directory.path());
    }
}

#[test]
fn commands_without_a_system() {
    let directory = tempfile::tempdir().unwrap();
    for command in [["tenant", "list"], ["node", "list"], ["debug", "processes"]] {
        let output = dormouse().args(command).arg("--data-dir").arg(directory.path()).output().unwrap();
        assert_refused(&output, "no Dormouse is running");
    }
    assert_eq!(dormouse().arg("nonsense").output().unwrap().status.code(), Some(2));
}
