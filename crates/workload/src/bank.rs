//! `bank`: transfers between accounts, each a transaction, and the proof that none was lost or half done.
//!
//! A transfer takes an amount from one account, gives it to another and writes a line into the history
//! under an id the client chose. So three things can be checked at any time, by anyone:
//!
//! 1. the sum of all balances is what it was in the beginning;
//! 2. every account's balance is its first balance plus what the history gave and took: no transfer happened
//!    by half, twice, or without its line;
//! 3. every id in the file of acknowledged transfers is in the history: what was acknowledged is durable.
//!
//! An id goes into that file only after COMMIT has returned. A commit whose answer was lost with its
//! connection is counted as ambiguous and not written down: it may or may not be in the history, and both
//! are right.

use crate::args::Common;
use crate::errors::Failure;
use crate::isolation::Level;
use crate::report::CheckReport;
use crate::{Worker, Workload};
use anyhow::Context;
use async_trait::async_trait;
use clap::{Args, ValueEnum};
use futures::TryStreamExt;
use indicatif::ProgressBar;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_postgres::{Client, Error, Statement, Transaction};
use uuid::Uuid;

/// Accounts per unit of scale.
const ACCOUNTS_PER_SCALE: u32 = 1_000;
/// What every account has at first.
const FIRST_BALANCE: i64 = 1_000;
/// The largest transfer.
const LARGEST_AMOUNT: i64 = 100;
/// Accounts of one INSERT.
const ACCOUNTS_PER_INSERT: usize = 500;

/// What `bank` takes.
#[derive(Debug, Clone, Args)]
pub struct BankArgs {
    /// How a transfer takes hold of its accounts
    #[arg(long, value_enum, default_value_t = Locking::Select)]
    pub locking: Locking,
    /// What transfers ask for, if not the database's default
    #[arg(long, value_enum)]
    pub isolation: Option<Level>,
}

/// How a transfer takes hold of its accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Locking {
    /// SELECT … FOR UPDATE first
    Select,
    /// By the UPDATEs themselves
    Update,
}

/// The workload.
#[derive(Debug)]
pub struct Bank {
    accounts: i64,
    locking: Locking,
    isolation: Option<Level>,
    seed: u64,
    acknowledged: Option<PathBuf>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    acknowledged: AtomicU64,
    declined: AtomicU64,
}

impl Bank {
    /// The workload with its arguments.
    pub fn new(arguments: &BankArgs, common: &Common) -> Self {
        Self {
            accounts: i64::from(common.scale.rows(ACCOUNTS_PER_SCALE)),
            locking: arguments.locking,
            isolation: arguments.isolation,
            seed: common.seed.unwrap_or_else(rand::random),
            acknowledged: common.acknowledged.clone(),
            counts: Arc::default(),
        }
    }
}

fn open_log(path: &PathBuf) -> anyhow::Result<File> {
    let file = File::options().create(true).append(true).open(path);
    file.with_context(|| format!("cannot open {}", path.display()))
}

#[async_trait]
impl Workload for Bank {
    fn name(&self) -> &'static str {
        "bank"
    }

    async fn init(&self, client: &mut Client, progress: &ProgressBar) -> anyhow::Result<()> {
        for statement in [
            "DROP TABLE IF EXISTS bank_history",
            "DROP TABLE IF EXISTS bank_accounts",
            "CREATE TABLE bank_accounts (id bigint PRIMARY KEY, balance bigint NOT NULL CHECK (balance >= 0))",
            "CREATE TABLE bank_history (id uuid PRIMARY KEY, source bigint NOT NULL, target bigint NOT NULL, \
             amount bigint NOT NULL, at timestamptz NOT NULL DEFAULT now())",
        ] {
            client.batch_execute(statement).await?;
        }
        progress.set_length(self.accounts.unsigned_abs());
        let ids: Vec<i64> = (0..self.accounts).collect();
        for chunk in ids.chunks(ACCOUNTS_PER_INSERT) {
            let rows: Vec<String> = chunk.iter().map(|id| format!("({id}, {FIRST_BALANCE})")).collect();
            let insert = format!("INSERT INTO bank_accounts (id, balance) VALUES {}", rows.join(", "));
            client.batch_execute(&insert).await?;
            progress.inc(chunk.len() as u64);
        }
        Ok(())
    }

    fn worker(&self, number: u32) -> anyhow::Result<Box<dyn Worker>> {
        Ok(Box::new(BankWorker {
            accounts: self.accounts,
            locking: self.locking,
            isolation: self.isolation,
            random: StdRng::seed_from_u64(self.seed.wrapping_add(u64::from(number))),
            statements: None,
            log: self.acknowledged.as_ref().map(open_log).transpose()?,
            counts: Arc::clone(&self.counts),
        }))
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("acknowledged", self.counts.acknowledged.load(Ordering::Relaxed)),
            ("declined", self.counts.declined.load(Ordering::Relaxed)),
        ]
    }

    async fn check(&self, client: &mut Client) -> anyhow::Result<CheckReport> {
        let mut report = CheckReport::new("bank");
        let mut missing = self.acknowledged_ids()?;
        let acknowledged = missing.len();
        // Both tables as of one moment, also where reading committed data is the default.
        client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let balances = balances(client).await?;
        let mut expected: HashMap<i64, i64> = (0..self.accounts).map(|id| (id, FIRST_BALANCE)).collect();
        let transfers = replay(client, &mut expected, &mut missing).await?;
        client.batch_execute("COMMIT").await?;

        compare(&balances, &expected, &mut report);
        for id in &missing {
            report.problem(format_args!("transfer {id} was acknowledged but is not in the history"));
        }
        report.fact("accounts", balances.len());
        report.fact("total", i64::try_from(total(&balances)).ok());
        report.fact("transfers", transfers);
        report.fact("acknowledged", acknowledged);
        report.fact("acknowledged_missing", missing.len());
        Ok(report)
    }
}

impl Bank {
    /// The ids in the file of acknowledged transfers. A last line without its end was being written when the
    /// writer was killed and does not count.
    fn acknowledged_ids(&self) -> anyhow::Result<HashSet<Uuid>> {
        let Some(path) = &self.acknowledged else { return Ok(HashSet::new()) };
        let name = path.display();
        let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
        let (mut reader, mut ids, mut line) = (BufReader::new(file), HashSet::new(), String::new());
        while reader.read_line(&mut line).with_context(|| format!("cannot read {name}"))? > 0 {
            let Some(id) = line.strip_suffix('\n') else { break };
            ids.insert(id.parse().with_context(|| format!("\"{id}\" in {name} is not an id"))?);
            line.clear();
        }
        Ok(ids)
    }
}

async fn balances(client: &Client) -> anyhow::Result<HashMap<i64, i64>> {
    let rows = client.query("SELECT id, balance FROM bank_accounts", &[]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// Applies the history to the first balances, and takes what it finds out of `missing`.
async fn replay(
    client: &Client,
    expected: &mut HashMap<i64, i64>,
    missing: &mut HashSet<Uuid>,
) -> anyhow::Result<u64> {
    let none: [&str; 0] = [];
    let rows = client.query_raw("SELECT id, source, target, amount FROM bank_history", none).await?;
    let mut rows = std::pin::pin!(rows);
    let mut transfers = 0;
    while let Some(row) = rows.try_next().await? {
        let amount: i64 = row.try_get(3)?;
        let (source, target): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
        // Wrapping: a database that is wrong may hold any number, and is to be reported.
        let given = expected.entry(source).or_default();
        *given = given.wrapping_sub(amount);
        let taken = expected.entry(target).or_default();
        *taken = taken.wrapping_add(amount);
        missing.remove(&row.try_get(0)?);
        transfers += 1;
    }
    Ok(transfers)
}

fn total(balances: &HashMap<i64, i64>) -> i128 {
    balances.values().map(|balance| i128::from(*balance)).sum()
}

fn compare(balances: &HashMap<i64, i64>, expected: &HashMap<i64, i64>, report: &mut CheckReport) {
    let (held, right) = (total(balances), total(expected));
    if held != right {
        report.problem(format_args!("all accounts together hold {held} instead of {right}"));
    }
    for (id, expected) in expected {
        match balances.get(id) {
            None => report.problem(format_args!("account {id} does not exist")),
            Some(balance) if balance != expected => {
                report.problem(format_args!("account {id} holds {balance}; its history says {expected}"));
            }
            Some(_) => {}
        }
    }
    for id in balances.keys().filter(|id| !expected.contains_key(id)) {
        report.problem(format_args!("account {id} was never made"));
    }
}

struct Statements {
    lock: Statement,
    take: Statement,
    give: Statement,
    record: Statement,
}

struct BankWorker {
    accounts: i64,
    locking: Locking,
    isolation: Option<Level>,
    random: StdRng,
    statements: Option<Arc<Statements>>,
    /// Every worker has the file open for itself; appending a line is atomic.
    log: Option<File>,
    counts: Arc<Counts>,
}

/// A transfer to be made.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    id: Uuid,
    source: i64,
    target: i64,
    amount: i64,
}

#[async_trait]
impl Worker for BankWorker {
    async fn prepare(&mut self, client: &Client) -> Result<(), Error> {
        if let Some(isolation) = self.isolation {
            isolation.set(client).await?;
        }
        self.statements = Some(Arc::new(Statements {
            // In the order of ids, so that two transfers never wait for each other.
            lock: client
                .prepare(
                    "SELECT id, balance FROM bank_accounts WHERE id = $1 OR id = $2 ORDER BY id FOR UPDATE",
                )
                .await?,
            take: client
                .prepare("UPDATE bank_accounts SET balance = balance - $2 WHERE id = $1 AND balance >= $2")
                .await?,
            give: client.prepare("UPDATE bank_accounts SET balance = balance + $2 WHERE id = $1").await?,
            record: client
                .prepare("INSERT INTO bank_history (id, source, target, amount) VALUES ($1, $2, $3, $4)")
                .await?,
        }));
        Ok(())
    }

    async fn step(&mut self, client: &mut Client) -> Result<&'static str, Failure> {
        if self.statements.is_none() {
            self.prepare(client).await?;
        }
        let transfer = self.choose();
        let Some(statements) = self.statements.clone() else { return Ok("transfer") };
        let transaction = client.transaction().await?;
        if !self.apply(&transaction, &statements, transfer).await? {
            transaction.rollback().await?;
            self.counts.declined.fetch_add(1, Ordering::Relaxed);
            return Ok("declined");
        }
        transaction.commit().await.map_err(Failure::of_commit)?;
        self.acknowledge(transfer.id);
        Ok("transfer")
    }
}

impl BankWorker {
    fn choose(&mut self) -> Transfer {
        let source = self.random.random_range(0..self.accounts);
        // Any account but the source.
        let target = (source + self.random.random_range(1..self.accounts)) % self.accounts;
        Transfer { id: Uuid::new_v4(), source, target, amount: self.random.random_range(1..=LARGEST_AMOUNT) }
    }

    /// Does a transfer's statements. False if the source has too little.
    async fn apply(
        &self,
        transaction: &Transaction<'_>,
        statements: &Statements,
        transfer: Transfer,
    ) -> Result<bool, Error> {
        let Transfer { id, source, target, amount } = transfer;
        if self.locking == Locking::Select {
            let rows = transaction.query(&statements.lock, &[&source, &target]).await?;
            let enough = |row: &tokio_postgres::Row| {
                Ok::<bool, Error>(row.try_get::<_, i64>(0)? == source && row.try_get::<_, i64>(1)? >= amount)
            };
            let mut found = false;
            for row in &rows {
                found |= enough(row)?;
            }
            if !found {
                return Ok(false);
            }
        }
        if transaction.execute(&statements.take, &[&source, &amount]).await? == 0 {
            return Ok(false);
        }
        transaction.execute(&statements.give, &[&target, &amount]).await?;
        transaction.execute(&statements.record, &[&id, &source, &target, &amount]).await?;
        Ok(true)
    }

    /// Writes down that a transfer is durable. One write, so that killing this process leaves whole lines.
    fn acknowledge(&self, id: Uuid) {
        self.counts.acknowledged.fetch_add(1, Ordering::Relaxed);
        if let Some(mut log) = self.log.as_ref()
            && let Err(error) = log.write_all(format!("{id}\n").as_bytes())
        {
            eprintln!("cannot write down transfer {id}: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bank(acknowledged: Option<PathBuf>) -> Bank {
        let (locking, counts) = (Locking::Select, Arc::default());
        Bank { accounts: 3, locking, isolation: None, seed: 1, acknowledged, counts }
    }

    fn checked(balances: &[(i64, i64)], expected: &[(i64, i64)]) -> CheckReport {
        let mut report = CheckReport::new("bank");
        compare(&balances.iter().copied().collect(), &expected.iter().copied().collect(), &mut report);
        report
    }

    #[test]
    fn books_that_balance_are_fine_and_others_are_not() {
        assert!(checked(&[(0, 5), (1, 7)], &[(0, 5), (1, 7)]).ok());
        assert!(!checked(&[(0, 5), (1, 8)], &[(0, 5), (1, 7)]).ok());
        assert!(!checked(&[(0, 6), (1, 6)], &[(0, 5), (1, 7)]).ok(), "right in sum only");
        assert!(!checked(&[(0, 5)], &[(0, 5), (1, 0)]).ok());
        assert!(!checked(&[(0, 5), (1, 0)], &[(0, 5)]).ok());
    }

    #[test]
    fn a_line_that_was_cut_off_does_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ids");
        let id = Uuid::new_v4();
        std::fs::write(&path, format!("{id}\n{}", &id.to_string()[..10])).unwrap();
        assert_eq!(bank(Some(path.clone())).acknowledged_ids().unwrap(), HashSet::from([id]));
        std::fs::write(&path, "nonsense\n").unwrap();
        assert!(bank(Some(path)).acknowledged_ids().is_err());
        assert!(bank(None).acknowledged_ids().unwrap().is_empty());
    }

    #[test]
    fn transfers_are_between_two_accounts() {
        let mut worker = BankWorker {
            accounts: 3,
            locking: Locking::Update,
            isolation: None,
            random: StdRng::seed_from_u64(3),
            statements: None,
            log: None,
            counts: Arc::default(),
        };
        for _ in 0..200 {
            let transfer = worker.choose();
            assert_ne!(transfer.source, transfer.target);
            assert!((0..3).contains(&transfer.source) && (0..3).contains(&transfer.target));
            assert!((1..=LARGEST_AMOUNT).contains(&transfer.amount));
        }
    }
}
