//! Processes killed in the middle of transfers: what was acknowledged is there, and the totals hold.

use crate::cluster::{Cluster, dormouse, send};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Output, Stdio};

/// Long enough for the killed process to be started again and be used.
const DURATION: &str = "5s";

struct Bank {
    url: String,
    acknowledged: String,
}

impl Bank {
    fn new(cluster: &Cluster, directory: &Path) -> Bank {
        let bank = Bank {
            url: cluster.create("app"),
            acknowledged: directory.join("acknowledged").display().to_string(),
        };
        bank.must(&["init", "bank"]);
        bank
    }

    fn workload(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = dormouse();
        command.arg("workload").args(arguments).args(["--url", &self.url]);
        command
    }

    fn must(&self, arguments: &[&str]) {
        let output = self.workload(arguments).output().unwrap();
        assert_success(&output);
    }

    fn start(&self) -> Child {
        let mut command =
            self.workload(&["run", "bank", "--duration", DURATION, "--connections", "4", "--quiet"]);
        command.args(["--acknowledged", &self.acknowledged]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// How many transfers were acknowledged so far.
    fn transfers(&self) -> usize {
        std::fs::read_to_string(&self.acknowledged).map_or(0, |text| text.lines().count())
    }
}

fn assert_success(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// Kills a role's process once transfers are under way, and again a while later.
fn transfers_survive_the_end_of(role: &str) {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&directory.path().join("data"));
    let bank = Bank::new(&cluster, directory.path());
    let run = bank.start();
    for wanted in [50, 100] {
        crate::cluster::wait_until("transfers are made", || bank.transfers() >= wanted);
        send(cluster.serving_process(role), "KILL");
    }
    let before = bank.transfers();
    assert_success(&run.wait_with_output().unwrap());
    assert!(bank.transfers() > before, "transfers go on after the end of {role}");
    bank.must(&["check", "bank", "--acknowledged", &bank.acknowledged]);
    cluster.stop();
}

#[test]
fn transfers_survive_the_end_of_the_kv_node() {
    transfers_survive_the_end_of("kv");
}

#[test]
fn transfers_survive_the_end_of_their_sql_node() {
    transfers_survive_the_end_of("sql");
}

#[test]
fn transfers_survive_the_end_of_the_proxy() {
    transfers_survive_the_end_of("proxy");
}

#[test]
fn transfers_do_not_notice_the_end_of_control() {
    transfers_survive_the_end_of("control");
}

/// The process that holds the lease of the tenant's range.
fn leaseholder(cluster: &Cluster) -> Option<u32> {
    let ranges = cluster.json(&["debug", "ranges", "--tenant", "app"]);
    let holder = &ranges.as_array()?.first()?["leaseholder"];
    let nodes = cluster.json(&["node", "list"]);
    let node = nodes.as_array()?.iter().find(|node| node["id"] == *holder)?;
    u32::try_from(node["pid"].as_u64()?).ok()
}

/// Whether every KV node is alive and every range has three replicas.
fn is_replicated(cluster: &Cluster) -> bool {
    let (nodes, ranges) = (cluster.json(&["node", "list"]), cluster.json(&["debug", "ranges"]));
    let whole = |range: &serde_json::Value| range["replicas"].as_array().is_some_and(|on| on.len() == 3);
    nodes.as_array().is_some_and(|nodes| nodes.iter().all(|node| node["state"] == "live"))
        && ranges.as_array().is_some_and(|ranges| ranges.iter().all(whole))
}

#[test]
fn transfers_survive_the_end_of_one_leaseholder_after_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&directory.path().join("data"), &["--nodes", "3"]);
    crate::cluster::wait_until("three replicas", || is_replicated(&cluster));
    let bank = Bank::new(&cluster, directory.path());
    for _ in 0..3 {
        let run = bank.start();
        let wanted = bank.transfers() + 50;
        crate::cluster::wait_until("transfers are made", || bank.transfers() >= wanted);
        let killed = leaseholder(&cluster).unwrap();
        send(killed, "KILL");
        let before = bank.transfers();
        assert_success(&run.wait_with_output().unwrap());
        assert!(bank.transfers() > before, "transfers go on after the end of the leaseholder");
        crate::cluster::wait_until("three replicas again", || is_replicated(&cluster));
    }
    bank.must(&["check", "bank", "--acknowledged", &bank.acknowledged]);
    cluster.stop();
}

/// Cuts the tenant's keys between its tables and their indexes, whose numbers come first, so that transactions write in
/// several ranges.
fn cut_into_ranges(cluster: &Cluster, pieces: u64) {
    let ranges = || cluster.json(&["debug", "ranges", "--tenant", "app"]).as_array().unwrap().clone();
    let start = ranges()[0]["start"].as_str().unwrap().to_owned();
    for piece in 1..pieces {
        // Numbers of tables are two bytes behind what all rows begin with.
        let key = format!("{start}8240{piece:02x}");
        assert_success(&cluster.run(&["debug", "split", &key]));
    }
    crate::cluster::wait_until("the directory knows all ranges", || ranges().len() as u64 == pieces);
}

#[test]
fn what_transactions_see_has_no_anomaly_while_one_process_after_the_other_ends() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&directory.path().join("data"), &["--nodes", "3"]);
    crate::cluster::wait_until("three replicas", || is_replicated(&cluster));
    let url = cluster.create("app");
    let append =
        |arguments: &[&str]| dormouse().args(["workload", arguments[0], "append", "--url", &url]).output();
    assert_success(&append(&["init"]).unwrap());
    cut_into_ranges(&cluster, 12);
    let history = directory.path().join("history").display().to_string();
    let mut run = dormouse();
    run.args(["workload", "run", "append", "--url", &url, "--clients", "6", "--duration", "12s"]);
    run.args(["--isolation", "mixed", "--history", &history]);
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A line each second. It is read to its end, or the run would wait for that.
    let lines = BufReader::new(run.stderr.take().unwrap()).lines().map_while(Result::ok);
    for (second, line) in lines.enumerate() {
        match second {
            2 => send(cluster.serving_process("sql"), "KILL"),
            5 => send(cluster.serving_process("proxy"), "KILL"),
            8 => send(leaseholder(&cluster).unwrap(), "KILL"),
            _ => eprintln!("{line}"),
        }
    }
    assert_success(&run.wait_with_output().unwrap());
    let check =
        dormouse().args(["workload", "check-history", &history, "--output", "json"]).output().unwrap();
    assert_success(&check);
    let check: serde_json::Value = serde_json::from_slice(&check.stdout).unwrap();
    assert!(check["committed"].as_u64() > Some(100), "{check}");
    cluster.stop();
}
