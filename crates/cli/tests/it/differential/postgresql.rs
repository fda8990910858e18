//! A PostgreSQL of its own, in a temporary directory, reached through a socket there.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

/// Where `scripts/install-deps` puts the programs of PostgreSQL.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// The user it runs as where we are root, which PostgreSQL refuses to be.
const USER: &str = "postgres";

/// A server that runs; it ends when this is dropped.
pub struct PostgreSql {
    server: Child,
    directory: TempDir,
}

impl PostgreSql {
    /// Makes a database cluster, starts a server on it and waits until it serves.
    pub fn start() -> PostgreSql {
        let directory = tempfile::tempdir().unwrap();
        let owner = other_user();
        if let Some((user, group)) = owner {
            chown(directory.path(), Some(user), Some(group)).unwrap();
        }
        let data = directory.path().join("data");
        let flags = ["-U", "dormouse", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "-D"];
        let made = program("initdb", owner).args(flags).arg(&data).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let server = program("postgres", owner)
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-D"])
            .arg(&data)
            .arg("-k")
            .arg(directory.path())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let started = PostgreSql { server, directory };
        let socket = started.socket();
        crate::cluster::wait_until("PostgreSQL serves", || {
            program("pg_isready", None).arg("-qh").arg(&socket).status().unwrap().success()
        });
        started
    }

    /// Connects.
    pub async fn connect(&self) -> Client {
        let parameters = format!("host={} user=dormouse dbname=postgres", self.socket().display());
        let (client, connection) = tokio_postgres::connect(&parameters, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Where its socket is.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().to_owned()
    }
}

impl Drop for PostgreSql {
    fn drop(&mut self) {
        // Its children end with it; nothing of its data is wanted any more.
        crate::cluster::send(self.server.id(), "INT");
        let _ = self.server.wait();
    }
}

fn program(name: &str, owner: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(Path::new(PROGRAMS).join(name));
    command.current_dir("/").env_clear().env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    if let Some((user, group)) = owner {
        command.uid(user).gid(group);
    }
    command
}

/// User and group to run as, if we are root.
fn other_user() -> Option<(u32, u32)> {
    let id = |flag, user: &[&str]| -> u32 {
        let output = Command::new("id").arg(flag).args(user).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    };
    (id("-u", &[]) == 0).then(|| (id("-u", &[USER]), id("-g", &[USER])))
}
