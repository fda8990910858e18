//! `append`: transactions of many kinds whose history is recorded and judged.
//!
//! Lists and registers are read and written by transactions of one to eight operations, in every way that SQL
//! has: by primary key and through an index, with UPDATE, upsert, or a read and a write; several statements or one
//! without BEGIN; with savepoints that are rolled back now and then, and transactions that are. Every transaction
//! is written down ([`recorder`]), and when the time is over everything is read once more and the history is judged
//! (crate [`histories`], which says what is looked for). So this finds what sums do not: write skew, transactions
//! of which another saw half, stale reads, lost and repeated writes.
//!
//! Errors are part of it: what the server undid is an aborted transaction, what nobody knows (`40003`, a
//! connection lost during COMMIT) is one of unknown outcome, and the next attempt is another transaction. Nodes may
//! die meanwhile.
//!
//! # Tables
//!
//! `append_lists` holds a list as text (`"5,6,"`) under a key and an *alias*, which spreads neighbouring keys
//! over an index that contains the list as well; `append_registers` has a unique index on what it holds. Nearly
//! every transaction writes to several of these, which may lie in different ranges.
//!
//! # Bounds
//!
//! A list is written to at most [`plan::WRITES_PER_KEY`] times; then its key is replaced by a new one. The history
//! is kept in memory, about half a kilobyte for each transaction; the run ends early when it has
//! `--max-transactions`.

pub mod plan;
pub mod recorder;
pub mod verdict;
mod worker;

use crate::args::Common;
use crate::report::CheckReport;
use crate::{Worker, Workload};
use anyhow::Context;
use async_trait::async_trait;
use clap::{Args, ValueEnum};
use histories::{History, Isolation, Op, Outcome};
use indicatif::ProgressBar;
use pg_client::{Kind, Target};
use plan::{Chooser, Keys};
use recorder::Recorder;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::{Client, IsolationLevel};
use worker::{AppendWorker, list_of, register_of};

/// How often reading everything at the end of a run is tried.
const LAST_READ_ATTEMPTS: u32 = 20;
/// Between two such attempts.
const LAST_READ_PAUSE: Duration = Duration::from_millis(500);

/// What `append` takes.
#[derive(Debug, Clone, Args)]
pub struct AppendArgs {
    /// How many lists and registers are in use at a time
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub keys: u32,
    /// What transactions are promised
    #[arg(long, value_enum, default_value_t = Level::Serializable)]
    pub isolation: Level,
    /// File to which the history is written, a transaction on each line, as JSON
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Also look for what strict serializability forbids; it is listed and fails nothing
    #[arg(long)]
    pub strict: bool,
    /// Let READ ONLY transactions read from any replica (Dormouse's `follower_reads`)
    #[arg(long)]
    pub follower_reads: bool,
    /// The run ends when it has this many transactions
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub max_transactions: u32,
}

/// What transactions are promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// SERIALIZABLE
    Serializable,
    /// READ COMMITTED
    ReadCommitted,
    /// Either; more than PostgreSQL promises, whose serializable transactions do not look at others
    Mixed,
}

/// The workload.
#[derive(Debug)]
pub struct Append {
    arguments: AppendArgs,
    seed: u64,
    keys: Arc<Keys>,
    recorder: Arc<Recorder>,
}

impl Append {
    /// The workload with its arguments.
    pub fn new(arguments: &AppendArgs, common: &Common) -> Self {
        Self {
            arguments: arguments.clone(),
            seed: common.seed.unwrap_or_else(rand::random),
            keys: Arc::new(Keys::new(u64::from(arguments.keys))),
            recorder: Arc::new(Recorder::new(u64::from(arguments.max_transactions))),
        }
    }

    /// Reads everything in one transaction and writes that down.
    async fn read_everything(&self, target: &Target, number: u32) -> anyhow::Result<()> {
        for attempt in 1.. {
            let (mut client, _connection) =
                target.reconnect().await.context("cannot connect for the last read")?;
            let mut record = self.recorder.begin(number, Isolation::Serializable);
            match everything(&mut client).await {
                Ok(read) => {
                    let keys = self.recorder.keys();
                    let values = |key: &u64| read.lists.get(key).cloned().unwrap_or_default();
                    keys.lists
                        .iter()
                        .for_each(|key| record.add(Op::ReadList { key: *key, values: values(key) }));
                    let value = |key: &u64| read.registers.get(key).copied();
                    keys.registers
                        .iter()
                        .for_each(|key| record.add(Op::Read { key: *key, value: value(key) }));
                    record.end(Outcome::Committed);
                    return Ok(());
                }
                Err(error) => {
                    record.end(Outcome::Aborted);
                    if attempt >= LAST_READ_ATTEMPTS || Kind::of(&error) == Kind::Fatal {
                        return Err(anyhow::Error::new(error).context("cannot read everything at the end"));
                    }
                    tokio::time::sleep(LAST_READ_PAUSE).await;
                }
            }
        }
        Ok(())
    }
}

/// What is in the tables.
struct Everything {
    lists: BTreeMap<u64, Vec<u64>>,
    registers: BTreeMap<u64, u64>,
}

async fn everything(client: &mut Client) -> Result<Everything, tokio_postgres::Error> {
    let level = IsolationLevel::Serializable;
    let transaction = client.build_transaction().isolation_level(level).read_only(true).start().await?;
    let mut read = Everything { lists: BTreeMap::new(), registers: BTreeMap::new() };
    for row in transaction.query("SELECT k, vals FROM append_lists", &[]).await? {
        read.lists.insert(register_of(row.try_get(0)?), list_of(row.try_get(1)?));
    }
    for row in transaction.query("SELECT k, v FROM append_registers", &[]).await? {
        read.registers.insert(register_of(row.try_get(0)?), register_of(row.try_get(1)?));
    }
    transaction.commit().await?;
    Ok(read)
}

async fn create(client: &Client) -> anyhow::Result<()> {
    for statement in [
        "CREATE TABLE IF NOT EXISTS append_lists \
         (k bigint PRIMARY KEY, alias bigint NOT NULL, vals text NOT NULL)",
        "CREATE INDEX IF NOT EXISTS append_lists_alias ON append_lists (alias, vals)",
        "CREATE TABLE IF NOT EXISTS append_registers (k bigint PRIMARY KEY, v bigint NOT NULL UNIQUE)",
    ] {
        client.batch_execute(statement).await.context("cannot make the tables")?;
    }
    Ok(())
}

fn write_history(history: &History, path: &Path) -> anyhow::Result<()> {
    let name = || format!("cannot write {}", path.display());
    let file = File::create(path).with_context(name)?;
    histories::jsonl::write(history, BufWriter::new(file)).with_context(name)
}

#[async_trait]
impl Workload for Append {
    fn name(&self) -> &'static str {
        "append"
    }

    async fn init(&self, client: &mut Client, _: &ProgressBar) -> anyhow::Result<()> {
        client.batch_execute("DROP TABLE IF EXISTS append_lists").await?;
        client.batch_execute("DROP TABLE IF EXISTS append_registers").await?;
        create(client).await
    }

    /// Makes the tables if they are missing and empties them: a history begins with nothing.
    async fn before_run(&self, client: &mut Client) -> anyhow::Result<()> {
        create(client).await?;
        client.batch_execute("DELETE FROM append_lists").await.context("cannot empty the tables")?;
        client.batch_execute("DELETE FROM append_registers").await.context("cannot empty the tables")
    }

    fn worker(&self, number: u32) -> anyhow::Result<Box<dyn Worker>> {
        let seed = self.seed.wrapping_add(u64::from(number));
        let chooser = Chooser::new(seed, self.arguments.isolation, Arc::clone(&self.keys));
        let (recorder, follower_reads) = (Arc::clone(&self.recorder), self.arguments.follower_reads);
        Ok(Box::new(AppendWorker::new(number, chooser, recorder, follower_reads)))
    }

    async fn after_run(&self, target: &Target, connections: u32) -> anyhow::Result<Option<CheckReport>> {
        let last_read = self.read_everything(target, connections).await;
        let history = self.recorder.take();
        if let Some(path) = &self.arguments.history {
            write_history(&history, path)?;
        }
        let mut report = verdict::report("append", &history, self.arguments.strict);
        if let Err(error) = last_read {
            report.problem(format_args!("{error:#}"));
        }
        Ok(Some(report))
    }

    /// The tables by themselves: the index agrees with its table, and no value stands anywhere twice.
    async fn check(&self, client: &mut Client) -> anyhow::Result<CheckReport> {
        let mut report = CheckReport::new("append");
        client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let lists = client.query("SELECT k, alias, vals FROM append_lists ORDER BY k", &[]).await?;
        let by_alias = "SELECT k, vals FROM append_lists WHERE alias = $1";
        let by_alias = client.prepare(by_alias).await?;
        let mut seen = BTreeSet::new();
        for row in &lists {
            let (key, alias, text): (i64, i64, &str) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            let found = client.query(&by_alias, &[&alias]).await?;
            let agrees = match &found[..] {
                [other] => other.try_get::<_, i64>(0)? == key && other.try_get::<_, &str>(1)? == text,
                _ => false,
            };
            if !agrees {
                report.problem(format_args!("list {key} is another through its index"));
            }
            for value in list_of(text) {
                if !seen.insert(value) {
                    report.problem(format_args!("{value} was appended twice, the second time to list {key}"));
                }
            }
        }
        client.batch_execute("COMMIT").await?;
        report.fact("lists", lists.len());
        report.fact("values", seen.len());
        Ok(report)
    }
}
