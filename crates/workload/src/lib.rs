//! Workloads: programs that use a database the way applications do, measure it and prove that it kept
//! its promises. `dormouse workload init|run|check NAME`.
//!
//! * [`kv`](mod@kv): point reads and upserts. `check`: every key is there and every value is one that was written.
//! * [`bank`]: transfers between accounts in transactions. `check`: no money came or went, every transfer
//!   in the history happened to both accounts, and every transfer whose commit was acknowledged is in the
//!   history.
//! * [`append`]: transactions of many kinds on lists and registers. `run` records what each saw and judges the
//!   history when the time is over: no anomaly that SERIALIZABLE, or READ COMMITTED, forbids.
//!   `check-history` judges one that was recorded.
//!
//! * [`orders`]: new orders and payments after TPC-C, which contend for a few rows. `check`: the books agree.
//! * [`ycsb`]: reads, updates, inserts and scans of popular rows, the workloads A to F of YCSB. `check`: every field is
//!   one that was written.
//! * [`tpcc`]: the tables, transactions and consistency conditions of TPC-C.
//! * [`tpch`]: the tables and queries of TPC-H. `check` compares the answers with those of another server.
//!
//! They speak only PostgreSQL's protocol, so they run against PostgreSQL itself just as well, which is how
//! ratios are measured.
//!
//! # How a run goes
//!
//! [`driver`] opens the connections and lets one [`Worker`] repeat its operation on each until the time is
//! over. An operation that met a serialization failure or a deadlock is repeated; a lost connection is made
//! anew; both are counted, and the time they take is part of the operation's latency. Every other error
//! ends the run. The load is closed: as many operations are under way as there are connections.
//!
//! # Adding one
//!
//! Implement [`Workload`] and [`Worker`] in a file of its own, add its arguments to [`args::Workloads`].
//!
//! # Missing
//!
//! A fixed arrival rate (open load).

pub mod append;
pub mod args;
pub mod bank;
pub mod driver;
mod errors;
pub mod isolation;
pub mod kv;
mod load;
pub mod orders;
pub mod report;
pub mod scale;
pub mod tpcc;
pub mod tpch;
pub mod ycsb;

pub use args::Command;
pub use errors::Failure;

use anyhow::Context;
use async_trait::async_trait;
use indicatif::{ProgressBar, ProgressStyle};
use pg_client::Target;
use report::{CheckReport, RunReport};
use std::time::Duration;
use tokio_postgres::Client;

/// A workload.
#[async_trait]
pub trait Workload: Send + Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Makes and fills its tables, replacing those of an earlier time.
    async fn init(&self, client: &mut Client, progress: &ProgressBar) -> anyhow::Result<()>;

    /// How it runs where the caller does not say.
    fn defaults(&self) -> Defaults {
        Defaults { connections: 8, duration: Duration::from_secs(30) }
    }

    /// What one connection does. Called once per connection.
    fn worker(&self, number: u32) -> anyhow::Result<Box<dyn Worker>>;

    /// Done on one connection before the workers begin.
    async fn before_run(&self, _client: &mut Client) -> anyhow::Result<()> {
        Ok(())
    }

    /// Looks at what `connections` workers did, after the last has ended, however the run ended. None: there is
    /// nothing to see.
    async fn after_run(&self, _target: &Target, _connections: u32) -> anyhow::Result<Option<CheckReport>> {
        Ok(None)
    }

    /// What its workers counted besides operations, after a run.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Looks whether everything is as it must be.
    async fn check(&self, client: &mut Client) -> anyhow::Result<CheckReport>;
}

/// How a workload runs where the caller does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defaults {
    /// How many connections.
    pub connections: u32,
    /// How long.
    pub duration: Duration,
}

/// What one connection does.
#[async_trait]
pub trait Worker: Send {
    /// Prepares its statements on a connection that is new.
    async fn prepare(&mut self, client: &Client) -> Result<(), tokio_postgres::Error>;

    /// Does one operation and says of which kind it was.
    async fn step(&mut self, client: &mut Client) -> Result<&'static str, Failure>;

    /// How long it waits before its next operation; not part of the operation's latency.
    fn pause(&mut self) -> Duration {
        Duration::ZERO
    }

    /// Whether it has done all it wants to, before the time is over.
    fn is_done(&self) -> bool {
        false
    }
}

/// Runs one command of `dormouse workload`. The result goes to standard output, progress to standard error.
///
/// # Errors
/// If the database cannot be used as asked, or a check found something wrong.
pub async fn execute(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Init(arguments) => init(&arguments).await,
        Command::Run(arguments) => run(&arguments).await,
        Command::Check(arguments) => check(&arguments).await,
        Command::CheckHistory(arguments) => check_history(&arguments),
    }
}

async fn init(arguments: &args::Init) -> anyhow::Result<()> {
    let workload = arguments.workload.build(&arguments.common);
    let target = arguments.common.target()?;
    let (mut client, _connection) = target.connect().await.context("cannot connect")?;
    let progress = ProgressBar::new(0).with_style(load_style()?);
    workload.init(&mut client, &progress).await?;
    progress.finish_and_clear();
    arguments.common.output.done(workload.name(), "initialized");
    Ok(())
}

/// The line that shows how far a load is.
fn load_style() -> anyhow::Result<ProgressStyle> {
    let line = "{msg:12} {wide_bar} {human_pos} of {human_len} rows, {per_sec}, {eta} left";
    Ok(ProgressStyle::with_template(line)?)
}

async fn run(arguments: &args::Run) -> anyhow::Result<()> {
    let workload = arguments.workload.build(&arguments.common);
    let target = arguments.common.target()?;
    let defaults = workload.defaults();
    let plan = driver::Plan {
        connections: arguments.connections.unwrap_or(defaults.connections),
        duration: arguments.duration.unwrap_or(defaults.duration),
        progress: !arguments.quiet,
    };
    before_run(workload.as_ref(), &target).await?;
    let measured = driver::run(workload.as_ref(), &target, &plan).await;
    // What was seen is of interest most of all when something ended the run.
    let seen = workload.after_run(&target, plan.connections).await?;
    let is_well = seen.as_ref().is_none_or(CheckReport::ok);
    match measured {
        Ok(measured) => {
            let report = RunReport::new(workload.name(), &plan, measured, workload.counts());
            arguments.common.output.print(&report.with_check(seen));
        }
        Err(error) => {
            seen.iter().for_each(|seen| arguments.common.output.print(seen));
            return Err(error);
        }
    }
    anyhow::ensure!(is_well, "the history of {} has anomalies", workload.name());
    Ok(())
}

async fn before_run(workload: &dyn Workload, target: &Target) -> anyhow::Result<()> {
    let (mut client, _connection) = target.reconnect().await.context("cannot connect")?;
    workload.before_run(&mut client).await
}

fn check_history(arguments: &args::CheckHistory) -> anyhow::Result<()> {
    let report = append::verdict::of_file(&arguments.file, arguments.strict)?;
    arguments.output.print(&report);
    anyhow::ensure!(report.ok(), "the history has anomalies");
    Ok(())
}

async fn check(arguments: &args::Check) -> anyhow::Result<()> {
    let workload = arguments.workload.build(&arguments.common);
    let target = arguments.common.target()?;
    let (mut client, _connection) = target.connect().await.context("cannot connect")?;
    let report = workload.check(&mut client).await?;
    arguments.common.output.print(&report);
    anyhow::ensure!(report.ok(), "the check of {} failed", workload.name());
    Ok(())
}
