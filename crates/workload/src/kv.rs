//! `kv`: point reads and upserts by primary key.
//!
//! Every value can be checked by itself: it begins with its key and a seed, and the rest follows from
//! both. A value that was torn, mixed up or made up is found by `check`.

use crate::args::Common;
use crate::errors::Failure;
use crate::load::copy_rows;
use crate::report::CheckReport;
use crate::{Worker, Workload};
use anyhow::Context;
use async_trait::async_trait;
use clap::Args;
use futures::TryStreamExt;
use indicatif::ProgressBar;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::{Client, Error, Statement};

/// Rows per unit of scale.
const ROWS_PER_SCALE: u32 = 10_000;
/// Key and seed, at the front of every value.
const HEADER: usize = 16;

/// What `kv` takes.
#[derive(Debug, Clone, Args)]
pub struct KvArgs {
    /// Share of reads among all operations
    #[arg(long, default_value_t = 95, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub read_percent: u8,
    /// Bytes of a value
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=1_048_576))]
    pub value_size: u32,
}

/// The workload.
#[derive(Debug)]
pub struct Kv {
    rows: i64,
    read_percent: u8,
    value_size: usize,
    seed: u64,
}

impl Kv {
    /// The workload with its arguments.
    pub fn new(arguments: &KvArgs, common: &Common) -> Self {
        Self {
            rows: i64::from(common.scale.rows(ROWS_PER_SCALE)),
            read_percent: arguments.read_percent,
            value_size: arguments.value_size as usize,
            seed: common.seed.unwrap_or_else(rand::random),
        }
    }
}

#[async_trait]
impl Workload for Kv {
    fn name(&self) -> &'static str {
        "kv"
    }

    async fn init(&self, client: &mut Client, progress: &ProgressBar) -> anyhow::Result<()> {
        client.batch_execute("DROP TABLE IF EXISTS kv").await?;
        client.batch_execute("CREATE TABLE kv (k bigint PRIMARY KEY, v bytea NOT NULL)").await?;
        progress.set_length(self.rows.unsigned_abs());
        let mut random = StdRng::seed_from_u64(self.seed);
        let rows = (0..self.rows).map(|key| copy_line(key, &value(key, random.random(), self.value_size)));
        copy_rows(client, "COPY kv (k, v) FROM STDIN", rows, progress).await.context("loading rows")?;
        Ok(())
    }

    fn worker(&self, number: u32) -> anyhow::Result<Box<dyn Worker>> {
        Ok(Box::new(KvWorker {
            rows: self.rows,
            read_percent: self.read_percent,
            value_size: self.value_size,
            random: StdRng::seed_from_u64(self.seed.wrapping_add(u64::from(number) + 1)),
            statements: None,
        }))
    }

    async fn check(&self, client: &mut Client) -> anyhow::Result<CheckReport> {
        let mut report = CheckReport::new("kv");
        let none: [&str; 0] = [];
        let rows = client.query_raw("SELECT k, v FROM kv ORDER BY k", none).await?;
        let mut rows = std::pin::pin!(rows);
        let (mut expected, mut bytes) = (0i64, 0usize);
        while let Some(row) = rows.try_next().await? {
            let (key, stored): (i64, Vec<u8>) = (row.try_get(0)?, row.try_get(1)?);
            if key != expected {
                report.problem(format_args!("key {key} stands where {expected} is expected"));
            }
            if !is_value_of(key, &stored) {
                report.problem(format_args!("the value of key {key} was never written"));
            }
            expected = key.saturating_add(1);
            bytes += stored.len();
        }
        if expected != self.rows {
            let wanted = self.rows;
            report.problem(format_args!("{expected} keys instead of {wanted}; was --scale another?"));
        }
        report.fact("rows", expected);
        report.fact("value_bytes", bytes);
        Ok(report)
    }
}

/// A row as COPY takes it.
fn copy_line(key: i64, value: &[u8]) -> String {
    let mut line = format!("{key}\t\\\\x");
    value.iter().for_each(|byte| line += &format!("{byte:02x}"));
    line
}

/// The value of a key and a seed.
fn value(key: i64, seed: u64, size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size.max(HEADER) + 8);
    bytes.extend_from_slice(&key.to_be_bytes());
    bytes.extend_from_slice(&seed.to_be_bytes());
    let mut state = seed ^ key.unsigned_abs();
    while bytes.len() < size {
        state = split_mix(state);
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes.truncate(size.max(HEADER));
    bytes
}

/// Whether a value is one that [`value`] makes for this key.
fn is_value_of(key: i64, stored: &[u8]) -> bool {
    let seed = stored.get(8..HEADER).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
    seed.is_some_and(|seed| value(key, seed, stored.len()) == stored)
}

/// One step of SplitMix64.
fn split_mix(state: u64) -> u64 {
    let mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

struct KvWorker {
    rows: i64,
    read_percent: u8,
    value_size: usize,
    random: StdRng,
    statements: Option<(Statement, Statement)>,
}

#[async_trait]
impl Worker for KvWorker {
    async fn prepare(&mut self, client: &Client) -> Result<(), Error> {
        let read = client.prepare("SELECT v FROM kv WHERE k = $1").await?;
        let write = client
            .prepare("INSERT INTO kv (k, v) VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET v = excluded.v")
            .await?;
        self.statements = Some((read, write));
        Ok(())
    }

    async fn step(&mut self, client: &mut Client) -> Result<&'static str, Failure> {
        if self.statements.is_none() {
            self.prepare(client).await?;
        }
        let Some((read, write)) = &self.statements else { return Ok("read") };
        let key = self.random.random_range(0..self.rows);
        if self.random.random_range(0..100) < self.read_percent {
            client.query_opt(read, &[&key]).await?;
            return Ok("read");
        }
        let value = value(key, self.random.random(), self.value_size);
        client.execute(write, &[&key, &value]).await?;
        Ok("write")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_prove_themselves() {
        for size in [16, 17, 64, 1000] {
            let good = value(42, 7, size);
            assert_eq!(good.len(), size);
            assert!(is_value_of(42, &good));
            assert!(!is_value_of(43, &good));
            if size > HEADER {
                let mut torn = good.clone();
                torn[size - 1] ^= 1;
                assert!(!is_value_of(42, &torn));
            }
        }
        assert!(!is_value_of(42, b"short"));
    }
}
