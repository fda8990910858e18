//! `ycsb`: the core workloads A to F of the Yahoo Cloud Serving Benchmark (Cooper et al., SoCC 2010).
//!
//! A table of rows with a key and ten fields of 100 characters, each a column. Reads and scans return all fields, an
//! update replaces one. Which rows, and how often what is done, [`choose`] says. The transaction of workload F is one:
//! BEGIN, the read, the update, COMMIT; YCSB itself does the two by themselves.
//!
//! Every field can be checked by itself ([`record`]).

pub mod choose;
pub mod record;
mod worker;
pub mod zipf;

use crate::args::Common;
use crate::load::copy_rows;
use crate::report::CheckReport;
use crate::{Worker, Workload};
use anyhow::Context;
use async_trait::async_trait;
use choose::{Chooser, Distribution, Mix, Rows};
use clap::Args;
use futures::TryStreamExt;
use indicatif::ProgressBar;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use record::{FIELDS, field, is_field, key};
use std::collections::HashSet;
use std::sync::Arc;
use tokio_postgres::Client;
use worker::YcsbWorker;

/// Rows per unit of scale.
const ROWS_PER_SCALE: u32 = 10_000;

/// What `ycsb` takes.
#[derive(Debug, Clone, Args)]
pub struct YcsbArgs {
    /// Which of the core workloads; all have the same table
    #[arg(long, value_enum, default_value_t = Mix::A)]
    pub workload: Mix,
    /// How rows are chosen, if not as the workload says
    #[arg(long, value_enum)]
    pub distribution: Option<Distribution>,
}

/// The workload.
#[derive(Debug)]
pub struct Ycsb {
    mix: Mix,
    distribution: Distribution,
    loaded: u64,
    seed: u64,
    rows: Arc<Rows>,
}

impl Ycsb {
    /// The workload with its arguments.
    pub fn new(arguments: &YcsbArgs, common: &Common) -> Self {
        let seed = common.seed.unwrap_or_else(rand::random);
        let loaded = u64::from(common.scale.rows(ROWS_PER_SCALE));
        Self {
            mix: arguments.workload,
            distribution: arguments.distribution.unwrap_or(arguments.workload.distribution()),
            loaded,
            seed,
            // Also where the seed is the same: what was inserted once cannot be inserted again.
            rows: Arc::new(Rows::new(loaded, rand::random())),
        }
    }
}

/// A row as COPY takes it.
fn copy_line(key: &str, random: &mut StdRng) -> String {
    let fields = (0..FIELDS).map(|number| field(key, number, random.random()));
    std::iter::once(key.to_owned()).chain(fields).collect::<Vec<_>>().join("\t")
}

#[async_trait]
impl Workload for Ycsb {
    fn name(&self) -> &'static str {
        "ycsb"
    }

    async fn init(&self, client: &mut Client, progress: &ProgressBar) -> anyhow::Result<()> {
        let fields: Vec<String> = (0..FIELDS).map(|number| format!("field{number} text NOT NULL")).collect();
        client.batch_execute("DROP TABLE IF EXISTS usertable").await?;
        let create = format!("CREATE TABLE usertable (ycsb_key text PRIMARY KEY, {})", fields.join(", "));
        client.batch_execute(&create).await?;
        progress.set_length(self.loaded);
        let mut random = StdRng::seed_from_u64(self.seed);
        let rows = (0..self.loaded).map(|row| copy_line(&key(row), &mut random));
        copy_rows(client, "COPY usertable FROM STDIN", rows, progress).await.context("loading rows")?;
        Ok(())
    }

    fn worker(&self, number: u32) -> anyhow::Result<Box<dyn Worker>> {
        let random = StdRng::seed_from_u64(self.seed.wrapping_add(u64::from(number) + 1));
        let chooser = Chooser::new(self.mix, self.distribution, Arc::clone(&self.rows), random);
        Ok(Box::new(YcsbWorker::new(chooser, Arc::clone(&self.rows))))
    }

    async fn check(&self, client: &mut Client) -> anyhow::Result<CheckReport> {
        let mut report = CheckReport::new("ycsb");
        let mut missing: HashSet<String> = (0..self.loaded).map(key).collect();
        let none: [&str; 0] = [];
        let rows = client.query_raw("SELECT * FROM usertable", none).await?;
        let mut rows = std::pin::pin!(rows);
        let mut found = 0u64;
        while let Some(row) = rows.try_next().await? {
            let key: &str = row.try_get(0)?;
            missing.remove(key);
            for number in 0..FIELDS {
                if !is_field(key, number, row.try_get(number + 1)?) {
                    report.problem(format_args!("field {number} of {key} was never written"));
                }
            }
            found += 1;
        }
        for key in &missing {
            report.problem(format_args!("{key} is missing"));
        }
        report.fact("rows", found);
        report.fact("inserted_by_runs", found.saturating_sub(self.loaded - missing.len() as u64));
        Ok(report)
    }
}
