//! pgbench while processes are killed: what it was told is done is there, once, and the totals hold.

use crate::cluster::{Cluster, send, wait_until};
use std::process::{Command, Stdio};

/// Where `scripts/install-deps` puts the programs of PostgreSQL.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
const CLIENTS: u64 = 4;
/// Transactions of a run before a process is killed.
const UNDER_WAY: u64 = 20;

struct Bench {
    url: String,
}

/// What a run of pgbench came to.
struct Run {
    acknowledged: u64,
    text: String,
    undisturbed: bool,
}

impl Bench {
    fn new(cluster: &Cluster) -> Bench {
        let bench = Bench { url: cluster.create("app") };
        let made = bench.program("pgbench", &["-i", "-s", "1", "-q"]).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        bench
    }

    fn program(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(format!("{PROGRAMS}/{name}"));
        command.args(arguments).arg(&self.url);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The numbers of the one row of a query; none while the system does not serve.
    fn query(&self, query: &str) -> Option<Vec<i64>> {
        let output = self.program("psql", &["-XAtqc", query]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        output.status.success().then(|| text.trim().split('|').map(|n| n.parse().unwrap()).collect())
    }

    fn must_query(&self, query: &str) -> Vec<i64> {
        self.query(query).unwrap_or_else(|| panic!("{query} failed"))
    }

    /// How many transactions there are.
    fn transactions(&self) -> u64 {
        u64::try_from(self.must_query("SELECT count(*) FROM pgbench_history")[0]).unwrap()
    }

    /// Runs pgbench and kills the process of a role once transactions are under way.
    fn run_and_kill(&self, cluster: &Cluster, role: &str) -> Run {
        let before = self.transactions();
        let clients = CLIENTS.to_string();
        // A transaction that lost against another, or its locks with the KV node, is run again.
        let flags = ["-c", &clients, "-T", "5", "-n", "-M", "prepared", "--max-tries", "100"];
        let run = self.program("pgbench", &flags).spawn().unwrap();
        wait_until("transactions are made", || self.transactions() >= before + UNDER_WAY);
        send(cluster.serving_process(role), "KILL");
        let output = run.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        // 2: a client was aborted.
        assert!(matches!(output.status.code(), Some(0 | 2)), "{role}: {text}");
        let acknowledged = figure(&text, "number of transactions actually processed: ");
        let failed = figure(&text, "number of failed transactions: ");
        let undisturbed = output.status.success() && failed == 0 && !text.contains("aborted");
        Run { acknowledged, text, undisturbed }
    }

    /// Every transaction changed an account, a teller, a branch and the history, or nothing.
    fn assert_totals_agree(&self) {
        let totals = self.must_query(
            "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers),
                    (SELECT sum(bbalance) FROM pgbench_branches), (SELECT sum(delta) FROM pgbench_history)",
        );
        assert!(totals.iter().all(|total| *total == totals[0]), "{totals:?}");
    }
}

/// The number behind a label of pgbench's report.
fn figure(text: &str, label: &str) -> u64 {
    let (_, rest) = text.split_once(label).unwrap_or_else(|| panic!("no {label:?}: {text}"));
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().unwrap()
}

#[test]
fn pgbench_loses_and_repeats_nothing_when_processes_are_killed() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    let bench = Bench::new(&cluster);
    let (mut acknowledged, mut unknown) = (0, 0);
    for role in ["kv", "sql", "proxy", "control"] {
        let run = bench.run_and_kill(&cluster, role);
        wait_until("the system serves again", || bench.query("SELECT 1").is_some());
        assert!(role != "control" || run.undisturbed, "sessions do not need control: {}", run.text);
        bench.assert_totals_agree();
        acknowledged += run.acknowledged;
        // A client whose commit was not answered does not go on, so each has one of them at most.
        unknown += CLIENTS;
        let found = bench.transactions();
        assert!(
            (acknowledged..=acknowledged + unknown).contains(&found),
            "{role}: {found} transactions, {acknowledged} acknowledged: {}",
            run.text
        );
    }
    cluster.stop();
}
