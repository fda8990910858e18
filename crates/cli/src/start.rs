//! `dormouse start` and `dormouse demo`: the whole system on this machine.

use crate::api::Api;
use crate::caches::CacheArgs;
use crate::data_dir::{DATA_DIR_VARIABLE, DataDir, NODE_COUNTS};
use crate::duration::{self, IdleTimeout};
use crate::error::{Failure, Outcome};
use crate::output::line;
use crate::supervisor::{Options, Supervisor};
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The tenant of a demo.
const DEMO_TENANT: &str = "app";

/// Flags of both commands.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SystemArgs {
    /// Address for PostgreSQL clients; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:26257")]
    listen: SocketAddr,
    /// Address of the HTTP API and status page; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    http: SocketAddr,
    /// Suspend tenants without connections after this time, or never
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration::parse_idle)]
    idle_timeout: IdleTimeout,
    /// KV nodes [default: as many as the data directory has, 1 at first]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(kv_node_counts()))]
    nodes: Option<u8>,
    /// SQL nodes to have ready for tenants that wake up
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    warm_pool: usize,
    /// Most SQL nodes at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 2000)]
    max_nodes: usize,
    /// How far the wall clocks of KV nodes may be apart: a node that is further from most others stops
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = duration::parse_clock_offset)]
    max_clock_offset: std::time::Duration,
    /// Bytes a range of a tenant may hold before it is split; at least 1048576
    #[arg(long, value_name = "BYTES", default_value_t = kv_server::Limits::default().max_range_bytes)]
    max_range_bytes: u64,
    /// Ranges of a tenant that are small and idle for this long are merged with their neighbours, as in 10m; or never
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse_or_never)]
    merge_after: std::time::Duration,
    #[command(flatten)]
    caches: CacheArgs,
}

fn kv_node_counts() -> std::ops::RangeInclusive<i64> {
    i64::from(*NODE_COUNTS.start())..=i64::from(*NODE_COUNTS.end())
}

impl SystemArgs {
    fn options(&self) -> Options {
        Options {
            listen: self.listen,
            http: self.http,
            idle_timeout: self.idle_timeout,
            warm_pool: self.warm_pool,
            max_nodes: self.max_nodes,
            kv_nodes: self.nodes,
            max_clock_offset: self.max_clock_offset,
            max_range_bytes: self.max_range_bytes,
            merge_after: self.merge_after,
            caches: self.caches,
        }
    }
}

/// Arguments of `dormouse start`.
#[derive(Debug, clap::Args)]
pub(crate) struct StartArgs {
    /// Directory that holds everything; made if it does not exist
    #[arg(long, env = DATA_DIR_VARIABLE, value_name = "DIR")]
    data_dir: PathBuf,
    #[command(flatten)]
    system: SystemArgs,
}

/// Arguments of `dormouse demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    system: SystemArgs,
}

fn runtime() -> Outcome<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::new(format!("cannot start a runtime: {error}")))
}

/// Runs `dormouse start`.
pub(crate) fn start(args: &StartArgs) -> Outcome {
    let data_dir = DataDir::open(&args.data_dir)?;
    runtime()?.block_on(async {
        let logs = data_dir.paths().logs();
        let supervisor = Supervisor::start(data_dir, args.system.options()).await?;
        let addresses = supervisor.addresses()?;
        line(format_args!("PostgreSQL  {}", addresses.sql))?;
        line(format_args!("console     http://{}/", addresses.http))?;
        line(format_args!("logs        {}", logs.display()))?;
        line("ready")?;
        supervisor.run().await
    })
}

/// Runs `dormouse demo`.
pub(crate) fn demo(args: &DemoArgs) -> Outcome {
    let data_dir = DataDir::open_demo()?;
    runtime()?.block_on(async {
        let paths = data_dir.paths().clone();
        let supervisor = Supervisor::start(data_dir, args.system.options()).await?;
        let addresses = supervisor.addresses()?;
        let token = std::fs::read_to_string(paths.token());
        let token = token.map_err(|error| Failure::io("read", &paths.token(), &error))?;
        // The supervisor's thread is free to block: nothing of the system runs on it.
        let created = Api::new(addresses.http, token.trim())
            .post("/tenants", &json!({ "name": DEMO_TENANT }))
            .map(|tenant| tenant["url"].as_str().unwrap_or_default().to_owned());
        let url = match created {
            Ok(url) => url,
            Err(failure) => {
                supervisor.end().await;
                return Err(failure);
            }
        };
        line("A serverless PostgreSQL is running; the tenant \"app\" was created in it.")?;
        line("")?;
        line(format_args!("  connect   psql '{url}'"))?;
        line(format_args!("  console   http://{}/", addresses.http))?;
        line(format_args!("  token     {}", token.trim()))?;
        line(format_args!("  logs      {}", paths.logs().display()))?;
        line("")?;
        line("In another terminal: \"dormouse tenant create NAME\", \"dormouse tenant list\".")?;
        line("Ctrl-C ends everything; the data is temporary.")?;
        line("ready")?;
        supervisor.run().await
    })
}
