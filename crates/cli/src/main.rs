//! `dormouse`: the one binary.
//!
//! Every process of the system is a subcommand, and so is everything a person or a script does with it.
//! This crate parses arguments, supervises a one-machine system, and prints; what it starts is in the
//! other crates.
//!
//! Exit codes: 0, 1 for a failure (one line of explanation and, where there is something to do about it,
//! a hint), 2 for wrong usage.

mod allocator;
mod announce;
mod api;
mod caches;
mod cert;
mod check_replicas;
mod data_dir;
mod debug;
mod duration;
mod error;
mod kv_load;
mod locality;
mod node;
mod output;
mod ranges;
mod servers;
mod sql_node;
mod start;
mod supervisor;
mod tenant;

use clap::Parser;
use error::{Failure, Outcome};

use std::process::ExitCode;

/// A serverless SQL database that speaks PostgreSQL
#[derive(Debug, Parser)]
#[command(name = "dormouse", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run a whole system with temporary data, to try it
    Demo(start::DemoArgs),
    /// Run a whole system on this machine and keep its data
    Start(start::StartArgs),
    /// Create, list, show, suspend, resume, drop and change tenants
    Tenant(tenant::TenantArgs),
    /// List nodes, and drain them
    Node(node::NodeArgs),
    /// Load files of CSV or Parquet into a table
    Import(bulk_io::ImportArgs),
    /// Write a table, or the result of a query, to files of CSV or Parquet
    Export(bulk_io::ExportArgs),
    /// Put a tenant under load, and check what it did
    #[command(subcommand)]
    Workload(workload::Command),
    /// Make certificates
    Cert(cert::CertArgs),
    /// Look inside a running system
    Debug(debug::DebugArgs),
    /// Run a KV node
    Kv(servers::KvArgs),
    /// Run control
    Control(servers::ControlArgs),
    /// Run a proxy
    Proxy(servers::ProxyArgs),
    /// Run a SQL node
    Sql(sql_node::SqlArgs),
}

fn main() -> ExitCode {
    allocator::give_back_large_blocks();
    let outcome = if std::env::args_os().nth(1).is_some_and(|command| command == "sql") {
        sql_node::run_from(std::env::args_os().skip(1))
    } else {
        run(Cli::parse().command)
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::note(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Runs an import or an export: a thread reads or writes files while others talk to the database.
fn run_bulk(work: impl Future<Output = bulk_io::Result<()>>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("cannot start a runtime: {error}")))?;
    runtime.block_on(work).map_err(|error| match error.hint_text() {
        Some(hint) => Failure::new(error.to_string()).hint(hint),
        None => Failure::new(error.to_string()),
    })
}

fn run_workload(command: workload::Command) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("cannot start a runtime: {error}")))?;
    runtime.block_on(workload::execute(command)).map_err(|error| Failure::new(format!("{error:#}")))
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Demo(args) => start::demo(&args),
        Command::Start(args) => start::start(&args),
        Command::Tenant(args) => tenant::run(&args),
        Command::Node(args) => node::run(&args),
        Command::Import(args) => run_bulk(bulk_io::import(&args)),
        Command::Export(args) => run_bulk(bulk_io::export(&args)),
        Command::Workload(command) => run_workload(command),
        Command::Cert(args) => cert::run(&args),
        Command::Debug(args) => debug::run(&args),
        Command::Kv(args) => servers::kv(args),
        Command::Control(args) => servers::control(args),
        Command::Proxy(args) => servers::proxy(args),
        Command::Sql(args) => sql_node::run(args),
    }
}
