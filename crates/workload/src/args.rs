//! The command line of `dormouse workload`.

use crate::Workload;
use crate::append::{Append, AppendArgs};
use crate::bank::{Bank, BankArgs};
use crate::kv::{Kv, KvArgs};
use crate::orders::{Orders, OrdersArgs};
use crate::report::Output;
use crate::scale::Scale;
use crate::tpcc::{Tpcc, TpccArgs};
use crate::tpch::{Tpch, TpchArgs};
use crate::ycsb::{Ycsb, YcsbArgs};
use clap::{Args, Subcommand};
use pg_client::Target;
use std::path::PathBuf;
use std::time::Duration;

/// What to do with a workload.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Make and fill the tables of a workload, replacing earlier ones
    Init(Init),
    /// Run a workload and report throughput and latency
    Run(Run),
    /// Check that the data of a workload is what it must be
    Check(Check),
    /// Judge a history that `run append --history` recorded
    CheckHistory(CheckHistory),
}

/// `workload init`.
#[derive(Debug, Clone, Args)]
pub struct Init {
    /// Which workload
    #[command(subcommand)]
    pub workload: Workloads,
    /// What all commands take.
    #[command(flatten)]
    pub common: Common,
}

/// `workload run`.
#[derive(Debug, Clone, Args)]
pub struct Run {
    /// Which workload
    #[command(subcommand)]
    pub workload: Workloads,
    /// What all commands take.
    #[command(flatten)]
    pub common: Common,
    /// How long, e.g. 500ms, 30s, 5m, 1h; 30s if not given, but `tpch` goes on until it is through
    #[arg(long, global = true, value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// How many connections, each with one operation under way; 8 if not given, 1 for `tpch`
    #[arg(long, visible_alias = "clients", global = true, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: Option<u32>,
    /// No progress line each second
    #[arg(long, global = true)]
    pub quiet: bool,
}

/// `workload check`.
#[derive(Debug, Clone, Args)]
pub struct Check {
    /// Which workload
    #[command(subcommand)]
    pub workload: Workloads,
    /// What all commands take.
    #[command(flatten)]
    pub common: Common,
}

/// `workload check-history`.
#[derive(Debug, Clone, Args)]
pub struct CheckHistory {
    /// The history, a transaction on each line, as JSON
    pub file: PathBuf,
    /// Also look for what strict serializability forbids; it is listed and fails nothing
    #[arg(long)]
    pub strict: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// What all commands take.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// URL of the database, as `dormouse tenant create` prints it
    #[arg(long, global = true, env = "DATABASE_URL", hide_env_values = true)]
    pub url: Option<String>,
    /// Size of the data, in units of the workload
    #[arg(long, global = true, default_value = "1")]
    pub scale: Scale,
    /// Start of all random choices; a different one each time if not given
    #[arg(long, global = true)]
    pub seed: Option<u64>,
    /// How to print the result
    #[arg(long, global = true, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// File to which ids of acknowledged transfers are appended (run) and whose ids must be in the database
    /// (check); for `bank`
    #[arg(long, global = true, value_name = "FILE")]
    pub acknowledged: Option<PathBuf>,
}

impl Common {
    /// The database.
    ///
    /// # Errors
    /// If none was given, or its URL is malformed.
    pub fn target(&self) -> anyhow::Result<Target> {
        let message = "no database: give --url or set DATABASE_URL (`dormouse tenant create` prints a URL)";
        let url = self.url.as_deref().ok_or_else(|| anyhow::anyhow!(message))?;
        target(url)
    }
}

/// The database that a URL names.
///
/// # Errors
/// If the URL is malformed.
pub fn target(url: &str) -> anyhow::Result<Target> {
    Target::parse(url, "dormouse workload")
}

/// The workloads and what each takes.
#[derive(Debug, Clone, Subcommand)]
pub enum Workloads {
    /// Point reads and upserts by primary key; 10,000 rows per unit of scale
    Kv(KvArgs),
    /// Transfers between accounts in transactions; 1,000 accounts per unit of scale
    Bank(BankArgs),
    /// Transactions on lists and registers, whose history is recorded and judged; `run` empties its tables
    Append(AppendArgs),
    /// Orders and payments that contend for few rows, after TPC-C; warehouses are the unit of scale
    Orders(OrdersArgs),
    /// The core workloads A to F of YCSB; 10,000 rows per unit of scale
    Ycsb(YcsbArgs),
    /// The five transactions of TPC-C; warehouses are the unit of scale
    Tpcc(TpccArgs),
    /// The 22 queries of TPC-H; its scale factor is the scale
    Tpch(TpchArgs),
}

impl Workloads {
    /// The workload with its arguments.
    pub fn build(&self, common: &Common) -> Box<dyn Workload> {
        match self {
            Self::Kv(arguments) => Box::new(Kv::new(arguments, common)),
            Self::Bank(arguments) => Box::new(Bank::new(arguments, common)),
            Self::Append(arguments) => Box::new(Append::new(arguments, common)),
            Self::Orders(arguments) => Box::new(Orders::new(arguments, common)),
            Self::Ycsb(arguments) => Box::new(Ycsb::new(arguments, common)),
            Self::Tpcc(arguments) => Box::new(Tpcc::new(arguments, common)),
            Self::Tpch(arguments) => Box::new(Tpch::new(arguments, common)),
        }
    }
}

/// Reads `500ms`, `30s`, `5m`, `1h`; a bare number is seconds.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| format!("\"{text}\" is not a duration"))?;
    let seconds = match unit.trim() {
        "ms" => number / 1000.0,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(format!("\"{unit}\" is not a unit of time; use ms, s, m or h")),
    };
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolation::Level;
    use crate::ycsb::choose::Mix;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(subcommand)]
        command: Command,
    }

    fn parse(line: &str) -> Result<Command, clap::Error> {
        Cli::try_parse_from(format!("workload {line}").split_whitespace()).map(|cli| cli.command)
    }

    #[test]
    fn options_may_stand_before_and_after_the_name() {
        for line in [
            "run kv --read-percent 95 --connections 4 --duration 2m --scale 3 --output json",
            "run --connections 4 --duration 2m --scale 3 --output json kv --read-percent 95",
        ] {
            let Command::Run(run) = parse(line).unwrap() else { panic!() };
            let duration = run.duration.unwrap().as_secs();
            assert_eq!((run.connections, duration, run.common.scale.factor()), (Some(4), 120, 3.0));
            assert_eq!(run.common.output, Output::Json);
            assert!(matches!(run.workload, Workloads::Kv(KvArgs { read_percent: 95, .. })));
        }
    }

    #[test]
    fn connections_are_clients_and_histories_are_files() {
        let line = "run append --clients 3 --keys 5 --isolation read-committed --history h.jsonl";
        let Command::Run(run) = parse(line).unwrap() else { panic!() };
        assert_eq!(run.connections, Some(3));
        let Workloads::Append(append) = run.workload else { panic!() };
        assert_eq!((append.keys, append.history), (5, Some(PathBuf::from("h.jsonl"))));
        let Command::CheckHistory(check) = parse("check-history h.jsonl --strict").unwrap() else { panic!() };
        assert!(check.strict && check.output == Output::Table);
    }

    #[test]
    fn workloads_of_ycsb_are_letters_and_levels_are_of_all_who_contend() {
        for (letter, mix) in [("A", Mix::A), ("d", Mix::D), ("F", Mix::F)] {
            let Command::Run(run) = parse(&format!("run ycsb --workload {letter}")).unwrap() else {
                panic!()
            };
            assert!(matches!(run.workload, Workloads::Ycsb(ycsb) if ycsb.workload == mix));
        }
        let Command::Run(run) = parse("run tpch --queries 1,22 --scale 0.01").unwrap() else { panic!() };
        assert_eq!(run.common.scale.factor(), 0.01);
        assert!(matches!(run.workload, Workloads::Tpch(tpch) if tpch.queries == [1, 22]));
        for name in ["orders", "bank"] {
            let line = format!("run {name} --isolation read-committed");
            let Command::Run(run) = parse(&line).unwrap() else { panic!() };
            let (Workloads::Orders(OrdersArgs { isolation }) | Workloads::Bank(BankArgs { isolation, .. })) =
                run.workload
            else {
                panic!()
            };
            assert_eq!(isolation, Some(Level::ReadCommitted));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "run",
            "run nothing",
            "run kv --connections 0",
            "run kv --read-percent 101",
            "run kv --duration x",
            "run append --keys 0",
            "run ycsb --workload g",
            "run bank --isolation mixed",
            "run kv --scale 0",
            "run tpcc --warehouses 0",
            "run tpch --queries 23",
            "check-history",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        assert!(parse_duration("5 parsecs").is_err());
        assert!(parse_duration("").is_err());
        assert!(parse_duration("1e999").is_err());
    }
}
