//! The workloads without the rest of `dormouse`, for trying them against any PostgreSQL server:
//!
//! ```text
//! cargo run --release -p workload --example workload -- run bank --url postgresql://… --duration 10s
//! ```

use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: workload::Command,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    workload::execute(Cli::parse().command).await
}
