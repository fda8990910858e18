//! `tpcc`: the tables, transactions and consistency conditions of TPC-C (revision 5.11), the benchmark of online
//! transactions.
//!
//! The tables are full as the specification says: 100,000 items, and for each warehouse 10 districts, 30,000 customers,
//! 30,000 orders. Transactions come in their shares ([`plan`]), each of a terminal that belongs to a warehouse: every
//! hundredth New-Order names an item that there is not and is rolled back, customers are found by name three times in
//! five, and some lines and payments are of other warehouses. `check` looks whether the consistency conditions hold
//! ([`consistency`]).
//!
//! `tpcc` and `tpch` both have tables `customer` and `orders`; they want databases of their own.
//!
//! It is not a TPC-C result, and its figures are not `tpmC`. Terminals wait for nothing unless `--think` is given, so a
//! few of them keep a server busy whatever the number of warehouses. A delivery is done at once instead of being queued.
//! Foreign keys are not declared.

pub mod consistency;
pub mod plan;
mod random;
mod statements;
mod tables;
mod transactions;
mod worker;

use crate::args::Common;
use crate::isolation::Level;
use crate::report::CheckReport;
use crate::{Worker, Workload};
use anyhow::Context;
use async_trait::async_trait;
use clap::Args;
use indicatif::ProgressBar;
use plan::{Chooser, DISTRICTS};
use rand::SeedableRng;
use rand::rngs::StdRng;
use random::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_postgres::Client;
use worker::TpccWorker;

/// What `tpcc` takes.
#[derive(Debug, Clone, Args)]
pub struct TpccArgs {
    /// How many warehouses; --scale if not given
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..=100_000))]
    pub warehouses: Option<i32>,
    /// What transactions ask for, if not the database's default
    #[arg(long, value_enum)]
    pub isolation: Option<Level>,
    /// Let each terminal take the time that keys and thinking take
    #[arg(long)]
    pub think: bool,
}

/// The workload.
#[derive(Debug)]
pub struct Tpcc {
    warehouses: i32,
    isolation: Option<Level>,
    think: bool,
    seed: u64,
    counts: Arc<Counts>,
}

/// What the workers count.
#[derive(Debug, Default)]
struct Counts {
    rolled_back: AtomicU64,
    skipped_deliveries: AtomicU64,
}

impl Tpcc {
    /// The workload with its arguments.
    pub fn new(arguments: &TpccArgs, common: &Common) -> Self {
        let scale = i32::try_from(common.scale.rows(1)).unwrap_or(i32::MAX);
        Self {
            warehouses: arguments.warehouses.unwrap_or(scale),
            isolation: arguments.isolation,
            think: arguments.think,
            seed: common.seed.unwrap_or_else(rand::random),
            counts: Arc::default(),
        }
    }
}

#[async_trait]
impl Workload for Tpcc {
    fn name(&self) -> &'static str {
        "tpcc"
    }

    async fn init(&self, client: &mut Client, progress: &ProgressBar) -> anyhow::Result<()> {
        for (table, columns) in tables::TABLES {
            client.batch_execute(&format!("DROP TABLE IF EXISTS {table}")).await?;
            client.batch_execute(&format!("CREATE TABLE {table} ({columns})")).await?;
        }
        progress.set_length(tables::rows(self.warehouses));
        tables::fill(client, self.warehouses, self.seed, progress).await.context("filling the tables")?;
        progress.set_message("indexes");
        for index in tables::INDEXES {
            client.batch_execute(index).await.context("making indexes")?;
        }
        for (table, _) in tables::TABLES {
            client.batch_execute(&format!("ANALYZE {table}")).await?;
        }
        Ok(())
    }

    fn worker(&self, number: u32) -> anyhow::Result<Box<dyn Worker>> {
        let random = Random(StdRng::seed_from_u64(self.seed.wrapping_add(u64::from(number) + 1)));
        let chooser = Chooser::new(self.warehouses, number, random);
        Ok(Box::new(TpccWorker::new(chooser, self.isolation, self.think, Arc::clone(&self.counts))))
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("rolled_back", self.counts.rolled_back.load(Ordering::Relaxed)),
            ("skipped_deliveries", self.counts.skipped_deliveries.load(Ordering::Relaxed)),
        ]
    }

    async fn check(&self, client: &mut Client) -> anyhow::Result<CheckReport> {
        let mut report = CheckReport::new("tpcc");
        // All tables as of one moment, also where reading committed data is the default.
        client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let districts: i64 = client.query_one("SELECT count(*) FROM district", &[]).await?.try_get(0)?;
        let wanted = i64::from(self.warehouses) * i64::from(DISTRICTS);
        if districts != wanted {
            report.problem(format_args!(
                "{districts} districts instead of {wanted}; was --warehouses another?"
            ));
        }
        consistency::check(client, &mut report).await?;
        client.batch_execute("COMMIT").await?;
        Ok(report)
    }
}
