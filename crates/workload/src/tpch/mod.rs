//! `tpch`: the tables and queries of TPC-H (revision 3), the benchmark of decision support.
//!
//! Rows are those of the specification's own generator, made by the crate `tpchgen`. `init` loads them by COPY, a few
//! thousand in each transaction, makes the indexes and has statistics collected. `run` has each connection run the
//! queries once, in their order (each connection begins with another one); the time of each is a line of the report.
//! `check` counts rows, and with `--against` compares all answers, digit by digit, with those of another server that has
//! the same data.
//!
//! `tpch` and `tpcc` both have tables `customer` and `orders`; they want databases of their own.
//!
//! It is not a TPC-H result: there are no refresh functions, and the metric `QphH` is not computed. Foreign keys are not
//! declared. Indexes beside those of the primary keys are on foreign keys only (clause 1.5.4 allows them).

pub mod answers;
pub mod queries;
pub mod tables;

use crate::args::Common;
use crate::errors::Failure;
use crate::report::CheckReport;
use crate::scale::Scale;
use crate::{Defaults, Worker, Workload};
use answers::Answer;
use anyhow::Context;
use async_trait::async_trait;
use clap::Args;
use indicatif::ProgressBar;
use queries::Query;
use std::collections::VecDeque;
use std::time::Duration;
use tables::TABLES;
use tokio_postgres::{Client, Error};

/// How long a run may take unless it is told otherwise: it ends by itself.
const LONGEST_RUN: Duration = Duration::from_secs(24 * 3600);

/// What `tpch` takes.
#[derive(Debug, Clone, Args)]
pub struct TpchArgs {
    /// Which queries, e.g. 1,6,14; all 22 if not given
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS", value_parser = clap::value_parser!(u8).range(1..=22))]
    pub queries: Vec<u8>,
    /// How often each connection runs them all
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,
    /// URL of a server with the same data, whose answers `check` compares with
    #[arg(long, value_name = "URL")]
    pub against: Option<String>,
}

/// The workload.
#[derive(Debug)]
pub struct Tpch {
    scale: Scale,
    queries: Vec<&'static Query>,
    rounds: usize,
    against: Option<String>,
}

impl Tpch {
    /// The workload with its arguments.
    pub fn new(arguments: &TpchArgs, common: &Common) -> Self {
        let all: Vec<u8> = (1..=22).collect();
        let numbers = if arguments.queries.is_empty() { &all } else { &arguments.queries };
        Self {
            scale: common.scale,
            queries: numbers.iter().filter_map(|number| Query::numbered(*number)).collect(),
            rounds: arguments.rounds as usize,
            against: arguments.against.clone(),
        }
    }

    async fn count_rows(&self, client: &Client, report: &mut CheckReport) -> Result<(), Error> {
        for table in TABLES {
            let count = format!("SELECT count(*) FROM {}", table.name);
            let found: i64 = client.query_one(&count, &[]).await?.try_get(0)?;
            let wanted = table.rows(self.scale);
            if table.is_exact() && found.unsigned_abs() != wanted {
                report.problem(format_args!("{} has {found} rows instead of {wanted}", table.name));
            }
            report.fact(table.name, found);
        }
        Ok(())
    }

    async fn compare(&self, client: &Client, other: &Client, report: &mut CheckReport) -> anyhow::Result<()> {
        for query in &self.queries {
            let text = query.text(self.scale);
            let answer = Answer::of(client, &text).await.with_context(|| query.name)?;
            let wanted = Answer::of(other, &text).await.with_context(|| format!("{} there", query.name))?;
            if let Some(difference) = answer.difference(&wanted, query.ordered_by) {
                report.problem(format_args!("{}: {difference}", query.name));
            }
        }
        report.fact("compared_queries", self.queries.len());
        Ok(())
    }
}

#[async_trait]
impl Workload for Tpch {
    fn name(&self) -> &'static str {
        "tpch"
    }

    fn defaults(&self) -> Defaults {
        Defaults { connections: 1, duration: LONGEST_RUN }
    }

    async fn init(&self, client: &mut Client, progress: &ProgressBar) -> anyhow::Result<()> {
        progress.set_length(TABLES.iter().map(|table| table.rows(self.scale)).sum());
        for table in TABLES {
            client.batch_execute(&format!("DROP TABLE IF EXISTS {}", table.name)).await?;
            client.batch_execute(&table.create()).await?;
        }
        for table in TABLES {
            progress.set_message(table.name);
            table
                .fill(client, self.scale, progress)
                .await
                .with_context(|| format!("filling {}", table.name))?;
        }
        for table in TABLES {
            progress.set_message(format!("{} indexes", table.name));
            for index in table.create_indexes() {
                client.batch_execute(&index).await?;
            }
            client.batch_execute(&format!("ANALYZE {}", table.name)).await?;
        }
        Ok(())
    }

    fn worker(&self, number: u32) -> anyhow::Result<Box<dyn Worker>> {
        let mut round: Vec<_> =
            self.queries.iter().map(|query| (query.name, query.text(self.scale))).collect();
        if !round.is_empty() {
            let first = number as usize % round.len();
            round.rotate_left(first);
        }
        let left = std::iter::repeat_n(round, self.rounds).flatten().collect();
        Ok(Box::new(TpchWorker { left }))
    }

    async fn check(&self, client: &mut Client) -> anyhow::Result<CheckReport> {
        let mut report = CheckReport::new("tpch");
        self.count_rows(client, &mut report).await?;
        if let Some(url) = &self.against {
            let (other, _connection) = crate::args::target(url)?
                .connect()
                .await
                .context("cannot connect to the server to compare with")?;
            self.compare(client, &other, &mut report).await?;
        }
        Ok(report)
    }
}

/// What one connection does.
struct TpchWorker {
    /// Names and texts of the queries that are still to be run.
    left: VecDeque<(&'static str, String)>,
}

#[async_trait]
impl Worker for TpchWorker {
    async fn prepare(&mut self, _: &Client) -> Result<(), Error> {
        Ok(())
    }

    async fn step(&mut self, client: &mut Client) -> Result<&'static str, Failure> {
        let Some((name, text)) = self.left.front() else { return Ok("none") };
        client.simple_query(text).await?;
        let name = *name;
        self.left.pop_front();
        Ok(name)
    }

    fn is_done(&self) -> bool {
        self.left.is_empty()
    }
}
