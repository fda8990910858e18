//! Disks that fill up and files that are damaged, under a whole system.

use crate::client::{config, connect};
use crate::cluster::{Cluster, PATIENCE, assert_no_panic, assert_nothing_is_left};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use tempfile::TempDir;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error};

/// What the system can use at first.
const USABLE: usize = 48 << 20;
/// What is freed later: more than the 64 MiB that RocksDB wants before it goes on.
const BALLAST: usize = 112 << 20;
/// A page of the file system.
const PAGE: u64 = 4096;
/// Bytes of a row, so that the disk is full soon.
const ROW: usize = 64 << 10;

/// A file system in memory, gone when this is dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// None where mounting is not allowed.
    fn mount(size: usize) -> Option<SmallDisk> {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "dormouse-test"]).arg(directory.path());
        mount.status().is_ok_and(|status| status.success()).then(|| SmallDisk(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: in a test that fails processes may still be ending.
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

/// Rows that were written, and what became of them.
struct Rows {
    next: i32,
    acknowledged: BTreeSet<i32>,
    /// Neither acknowledged nor refused for want of space.
    unknown: BTreeSet<i32>,
}

impl Rows {
    async fn create(client: &Client) -> Rows {
        client.batch_execute("CREATE TABLE t (id int PRIMARY KEY, data bytea NOT NULL)").await.unwrap();
        Rows { next: 0, acknowledged: BTreeSet::new(), unknown: BTreeSet::new() }
    }

    /// Writes one row of bytes that cannot be compressed.
    async fn write(&mut self, client: &Client) -> Result<(), Error> {
        let id = self.next;
        self.next += 1;
        let mut data = vec![0_u8; ROW];
        StdRng::seed_from_u64(id.unsigned_abs().into()).fill_bytes(&mut data);
        let row: [&(dyn ToSql + Sync); 2] = [&id, &data];
        let written = client.execute("INSERT INTO t VALUES ($1, $2)", &row);
        let written = tokio::time::timeout(PATIENCE, written).await.expect("the server answers");
        match &written {
            Ok(_) => self.acknowledged.insert(id),
            Err(error) if is_full(error) => false,
            Err(_) => self.unknown.insert(id),
        };
        written.map(drop)
    }

    /// What was acknowledged is there, and what was refused is not.
    async fn check(&self, client: &Client) {
        let rows = client.query("SELECT id FROM t", &[]).await.unwrap();
        let found: BTreeSet<i32> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(found.len(), rows.len());
        let lost: Vec<_> = self.acknowledged.difference(&found).collect();
        assert!(lost.is_empty(), "acknowledged and not there: {lost:?}");
        let surplus: Vec<_> = found.difference(&self.acknowledged).collect();
        assert!(surplus.iter().all(|id| self.unknown.contains(id)), "refused and there: {surplus:?}");
    }
}

/// A refusal for want of space.
fn is_full(error: &Error) -> bool {
    error.code() == Some(&SqlState::DISK_FULL)
}

/// A commit of unknown outcome, for want of space and not for a failure that could be avoided.
fn is_unknown(error: &Error) -> bool {
    error.code() == Some(&SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN)
        && format!("{error:?}").contains("the disk of the KV node is full")
}

/// Lets every log end with a page, so that its next line needs space.
fn fill_last_pages(logs: &Path) {
    for log in fs::read_dir(logs).unwrap() {
        let path = log.unwrap().path();
        let missing = fs::metadata(&path).unwrap().len().wrapping_neg() % PAGE;
        let mut log = fs::OpenOptions::new().append(true).open(path).unwrap();
        std::io::Write::write_all(&mut log, &vec![b'\n'; usize::try_from(missing).unwrap()]).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_full_disk_refuses_writes_until_there_is_space() {
    let Some(disk) = SmallDisk::mount(USABLE + BALLAST) else {
        println!("not tested: a file system cannot be mounted here");
        return;
    };
    // Errors name files; what a directory is called says nothing about what failed.
    let (ballast, data_dir) = (disk.0.path().join("ballast"), disk.0.path().join("sync"));
    fs::write(&ballast, vec![0; BALLAST]).unwrap();
    let cluster = Cluster::start(&data_dir);
    let url = cluster.create("app");
    let client = connect(&cluster, &config(&cluster, &url)).await.unwrap();
    let mut rows = Rows::create(&client).await;
    let processes = ["kv", "control", "proxy", "sql"].map(|role| cluster.serving_process(role));
    fill_last_pages(&data_dir.join("logs"));

    let first = loop {
        match rows.write(&client).await {
            Ok(()) => assert!(rows.next < 10_000, "the disk never gets full"),
            Err(error) => break error,
        }
    };
    // What is on its way when the disk gets full may yet be written; whatever comes later is not.
    assert!(is_full(&first) || is_unknown(&first), "{first:?}");
    let second = rows.write(&client).await.unwrap_err();
    assert!(is_full(&second), "{second:?}");
    rows.check(&client).await;

    fs::remove_file(ballast).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = rows.write(&client).await {
        assert!(is_full(&error) || is_unknown(&error), "{error:?}");
        assert!(Instant::now() < deadline, "there is space, and rows are refused");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    rows.check(&client).await;
    let survivors = ["kv", "control", "proxy", "sql"].map(|role| cluster.serving_process(role));
    assert_eq!(survivors, processes, "nothing had to be started again");
    drop(client);
    cluster.stop();

    let cluster = Cluster::start(&data_dir);
    let client = connect(&cluster, &config(&cluster, &url)).await.unwrap();
    rows.check(&client).await;
    drop(client);
    cluster.stop();
}

/// Rows of the table that is damaged.
const DAMAGED_ROWS: i32 = 20_000;

/// What a row of it holds.
fn expected(id: i32) -> String {
    format!("{id} ").repeat(20)
}

/// Data files of the KV node.
fn data_files(data_dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data_dir.join("kv")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "sst")).collect();
    files.sort();
    assert!(!files.is_empty(), "a system that ended in order has written its data files");
    files
}

/// Overwrites a quarter of a file, in its middle.
fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let (middle, part) = (bytes.len() / 2, bytes.len() / 8);
    bytes[middle - part..middle + part].fill(0x5a);
    fs::write(path, bytes).unwrap();
}

/// Reads the table in one and by single rows. Every row that is returned is right, none is missing, and
/// the rest are errors: their codes.
async fn read_everything(cluster: &Cluster, url: &str) -> Vec<SqlState> {
    let code = |error: Error| error.code().unwrap_or_else(|| panic!("no SQLSTATE: {error:?}")).clone();
    let client = match connect(cluster, &config(cluster, url)).await {
        Ok(client) => client,
        Err(error) => return vec![code(error)],
    };
    let mut codes = Vec::new();
    match client.query("SELECT id, v FROM t ORDER BY id", &[]).await {
        Ok(rows) => {
            let found = rows.iter().map(|row| (row.get(0), row.get(1)));
            assert!(found.eq((1..=DAMAGED_ROWS).map(|id| (id, expected(id)))), "wrong rows");
        }
        Err(error) => codes.push(code(error)),
    }
    for id in (1..=DAMAGED_ROWS).step_by(500) {
        match client.query_opt("SELECT v FROM t WHERE id = $1", &[&id]).await {
            Ok(row) => assert_eq!(row.map(|row| row.get(0)), Some(expected(id))),
            Err(error) => codes.push(code(error)),
        }
    }
    codes
}

/// Where damage was noticed.
#[derive(Debug, PartialEq)]
enum Noticed {
    /// The start was refused.
    AtStart,
    /// Queries failed.
    InQueries,
    /// Nobody read what was damaged.
    Nowhere,
}

/// Starts on damaged files and reads everything.
async fn use_damaged(data_dir: &Path, url: &str) -> Noticed {
    let noticed = match Cluster::try_start(data_dir) {
        Ok(cluster) => {
            let reading = read_everything(&cluster, url);
            let codes = tokio::time::timeout(PATIENCE, reading).await.expect("the server answers");
            let damaged = [SqlState::DATA_CORRUPTED, SqlState::IO_ERROR];
            assert!(codes.iter().all(|code| damaged.contains(code)), "{codes:?}");
            cluster.stop();
            if codes.is_empty() { Noticed::Nowhere } else { Noticed::InQueries }
        }
        Err(said) => {
            assert!(said.starts_with("error: ") && said.contains("damaged data: "), "{said}");
            assert!(said.contains(".sst"), "the file is named: {said}");
            Noticed::AtStart
        }
    };
    assert_nothing_is_left(data_dir);
    assert_no_panic(data_dir);
    noticed
}

/// Copies a data directory nobody uses.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn damaged_files_give_errors_and_never_wrong_rows() {
    let directory = tempfile::tempdir().unwrap();
    let intact = directory.path().join("intact");
    let cluster = Cluster::start(&intact);
    let url = cluster.create("app");
    let client = connect(&cluster, &config(&cluster, &url)).await.unwrap();
    let fill = format!(
        "CREATE TABLE t (id int PRIMARY KEY, v text NOT NULL);
         INSERT INTO t SELECT id, repeat(id || ' ', 20) FROM generate_series(1, {DAMAGED_ROWS}) AS id"
    );
    client.batch_execute(&fill).await.unwrap();
    drop(client);
    cluster.stop();

    let files = data_files(&intact).len();
    let mut noticed = Vec::new();
    // Each file alone, then all.
    for number in 0..=files {
        let damaged = directory.path().join(number.to_string());
        copy(&intact, &damaged);
        for (at, path) in data_files(&damaged).iter().enumerate() {
            if at == number || number == files {
                damage(path);
            }
        }
        noticed.push(use_damaged(&damaged, &url).await);
    }
    assert!(noticed.contains(&Noticed::InQueries), "a start does not read all rows: {noticed:?}");
    assert_ne!(noticed[files], Noticed::Nowhere, "{noticed:?}");
}
