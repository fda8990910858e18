//! `dormouse sql`: the SQL node.
//!
//! Thousands of these run side by side and one starts whenever a tenant wakes, so this command takes a
//! path of its own: no other command's arguments are built, and there is one thread.

use crate::error::{Failure, Outcome};
use crate::servers::ProcessArgs;
use clap::Parser;
use process::tls::{self, CertificatePem};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What logs say unless `DORMOUSE_LOG` says otherwise.
const LOG_FILTER: &str = "warn";

/// Runs a SQL node.
#[derive(Debug, Parser)]
#[command(name = "sql", bin_name = "dormouse sql")]
pub(crate) struct SqlArgs {
    /// Wait for control to name the tenant
    #[arg(long, required = true)]
    warm: bool,
    /// Name of the node, unique within the cluster
    #[arg(long)]
    node: String,
    /// Address of control
    #[arg(long, value_name = "ADDRESS")]
    control: SocketAddr,
    /// Unix socket to listen on, for the proxy of this machine
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Most connections at a time
    #[arg(long, value_name = "NUMBER", default_value_t = sql_server::config::DEFAULT_MAX_CONNECTIONS)]
    max_connections: usize,
    #[command(flatten)]
    process: ProcessArgs,
}

/// Runs the command from the arguments that follow `dormouse`; wrong ones end the process.
pub(crate) fn run_from(arguments: impl Iterator<Item = OsString>) -> Outcome {
    run(SqlArgs::parse_from(arguments))
}

/// Runs the command.
pub(crate) fn run(args: SqlArgs) -> Outcome {
    process::logging::start(LOG_FILTER);
    let result = start(args);
    if let Err(failure) = &result {
        tracing::error!(error = failure.message(), "cannot run");
    }
    result
}

fn start(args: SqlArgs) -> Outcome {
    let _lifeline = args.process.hold_lifeline()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("cannot start a runtime: {error}")))?;
    let result = runtime.block_on(serve(args));
    runtime.shutdown_background();
    result
}

async fn serve(args: SqlArgs) -> Outcome {
    debug_assert!(args.warm, "required by its definition");
    args.process.serve_metrics().await?;
    let ca_pem = tls::read(&args.process.certs.join("ca.pem"))?;
    let own = CertificatePem::load(&args.process.certs, "warm")?;
    let config = sql_server::Config {
        node: args.node,
        control: args.control,
        control_tls: tls::internal_client(&ca_pem, &own)?,
        socket: args.socket,
        listen: None,
        ca_pem,
        max_connections: args.max_connections,
    };
    let stop = async {
        if process::signals::asked_to_end().await.is_err() {
            std::future::pending().await
        }
    };
    sql_server::run(config, stop).await.map_err(|error| Failure::new(error.to_string()))
}
