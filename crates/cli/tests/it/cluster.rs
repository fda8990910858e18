//! A whole system of real processes, for tests.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Bounds how long a test waits for something that must happen; none passes or fails by being faster.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The program under test.
pub fn dormouse() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    command.env_remove("DORMOUSE_DATA_DIR").env_remove("DATABASE_URL").stdin(Stdio::null());
    command
}

/// A system that runs; everything of it ends when this is dropped.
pub struct Cluster {
    supervisor: Child,
    data_dir: PathBuf,
}

impl Cluster {
    /// Starts a system on free ports and waits until it is ready.
    pub fn start(data_dir: &Path) -> Cluster {
        Self::start_with(data_dir, &[])
    }

    /// The same with further flags.
    pub fn start_with(data_dir: &Path, flags: &[&str]) -> Cluster {
        let (cluster, lines) = Self::spawn(data_dir, flags, Stdio::inherit());
        assert!(is_ready(&lines), "the system ended while it was starting");
        cluster
    }

    /// The same where a refusal is an answer, too: what the system said before it ended with exit code 1.
    pub fn try_start(data_dir: &Path) -> Result<Cluster, String> {
        let (mut cluster, lines) = Self::spawn(data_dir, &[], Stdio::piped());
        let mut stderr = cluster.supervisor.stderr.take().unwrap();
        let said = std::thread::spawn(move || {
            let mut said = String::new();
            stderr.read_to_string(&mut said).unwrap();
            said
        });
        if is_ready(&lines) {
            return Ok(cluster);
        }
        assert_eq!(cluster.supervisor.wait().unwrap().code(), Some(1));
        Err(said.join().unwrap())
    }

    /// Starts a system; the lines it prints arrive one by one.
    fn spawn(data_dir: &Path, flags: &[&str], stderr: Stdio) -> (Cluster, Receiver<String>) {
        let mut supervisor = dormouse()
            .args(["start", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data-dir"])
            .arg(data_dir)
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let stdout = supervisor.stdout.take().unwrap();
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        (Cluster { supervisor, data_dir: data_dir.to_owned() }, lines)
    }

    /// Where everything of it is.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Process number of the supervisor.
    pub fn pid(&self) -> u32 {
        self.supervisor.id()
    }

    /// Where the system listens.
    pub fn addresses(&self) -> Value {
        serde_json::from_slice(&fs::read(self.data_dir.join("addresses.json")).unwrap()).unwrap()
    }

    /// Runs a command against this system. Clients know it by its URL alone.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut command = dormouse();
        command.args(arguments);
        if !matches!(arguments.first(), Some(&("workload" | "import" | "export"))) {
            command.arg("--data-dir").arg(&self.data_dir);
        }
        command.output().unwrap()
    }

    /// Runs a command that must succeed and prints JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--output", "json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Runs a command that must fail with exit code 1; what it said.
    pub fn failure(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// All processes of the system, with their roles.
    pub fn processes(&self) -> Vec<(String, u32)> {
        let list = self.json(&["debug", "processes"]);
        let pid = |process: &Value| u32::try_from(process["pid"].as_u64().unwrap()).unwrap();
        list.as_array().unwrap().iter().map(|p| (p["role"].as_str().unwrap().to_owned(), pid(p))).collect()
    }

    /// The process of a role of which there is one. One that has just ended is started again.
    pub fn process(&self, role: &str) -> u32 {
        let find = || self.processes().into_iter().find(|(name, _)| name == role);
        wait_until(&format!("a {role} runs"), || find().is_some());
        find().unwrap_or_else(|| panic!("no {role}")).1
    }

    /// The process of a role; of the SQL nodes the one that serves the tenant.
    pub fn serving_process(&self, role: &str) -> u32 {
        if role != "sql" {
            return self.process(role);
        }
        let nodes = self.json(&["node", "list", "--sql"]);
        let node = nodes.as_array().unwrap().iter().find(|node| node["state"] == "serving");
        u32::try_from(node.expect("the tenant is awake")["pid"].as_u64().unwrap()).unwrap()
    }

    /// Makes a tenant; the URL to connect with.
    pub fn create(&self, tenant: &str) -> String {
        self.json(&["tenant", "create", tenant])["url"].as_str().unwrap().to_owned()
    }

    /// State of a tenant.
    pub fn state(&self, tenant: &str) -> String {
        self.json(&["tenant", "show", tenant])["state"].as_str().unwrap().to_owned()
    }

    /// Asks the system to end and waits for it.
    pub fn stop(mut self) {
        let processes = self.processes();
        send(self.pid(), "TERM");
        assert!(self.supervisor.wait().unwrap().success());
        for (role, pid) in processes {
            assert!(!is_alive(pid), "{role} {pid} was left behind");
        }
        assert_no_panic(&self.data_dir);
    }

    /// Kills the supervisor and waits until everything else is gone, too.
    pub fn kill(mut self) {
        let processes = self.processes();
        assert!(processes.len() >= 4, "{processes:?}");
        self.supervisor.kill().unwrap();
        self.supervisor.wait().unwrap();
        for (role, pid) in processes {
            wait_until(&format!("{role} {pid} ends"), || !is_alive(pid));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The lifeline ends all others, and who starts on the directory again waits for that.
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
    }
}

/// Whether a system that is starting came to serve; false if it ended instead.
fn is_ready(lines: &Receiver<String>) -> bool {
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) if line == "ready" => return true,
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => panic!("the system neither serves nor ends"),
        }
    }
}

/// No process of a system, running or ended, has panicked.
pub fn assert_no_panic(data_dir: &Path) {
    for log in fs::read_dir(data_dir.join("logs")).unwrap() {
        let path = log.unwrap().path();
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        assert!(!text.contains("panicked at"), "{}: {text}", path.display());
    }
}

/// No process of a system that has ended, or was refused, is left.
pub fn assert_nothing_is_left(data_dir: &Path) {
    // The lock is held by every process of a system: it is free when all have ended.
    let lock = fs::File::open(data_dir.join("LOCK")).unwrap();
    lock.try_lock().expect("no process is left");
}

/// Sends a signal to one process.
pub fn send(pid: u32, signal: &str) {
    assert!(Command::new("kill").args(["-s", signal, &pid.to_string()]).status().unwrap().success());
}

/// Whether a process exists and is not a zombie that nobody has reaped.
pub fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Waits for something that must happen.
pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
