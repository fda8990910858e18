//! `dormouse kv`, `control` and `proxy`: one process of the system each.
//!
//! `dormouse start` starts them; they are commands of their own so that each can be run, restarted and
//! watched by itself.

use crate::announce::AnnounceArgs;
use crate::caches::CacheArgs;
use crate::duration::{self, IdleTimeout};
use crate::error::{Failure, Outcome};
use crate::locality::{self, Locality};
use process::lifeline::Lifeline;
use process::tls::{self, CertificatePem};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

/// What logs say unless `DORMOUSE_LOG` says otherwise.
const LOG_FILTER: &str = "info";
/// How long it is waited for threads of a process that ends.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Flags of every process.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ProcessArgs {
    /// Directory of certificates (see `dormouse cert`)
    #[arg(long, value_name = "DIR")]
    pub certs: PathBuf,
    /// Address for Prometheus metrics; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// Inherited descriptor whose end of file ends this process
    #[arg(long, value_name = "FD", hide = true)]
    pub lifeline_fd: Option<RawFd>,
}

impl ProcessArgs {
    /// Ties this process to its supervisor. The lifeline is to be kept.
    pub fn hold_lifeline(&self) -> Outcome<Option<Lifeline>> {
        let failed = |error: io::Error| Failure::new(format!("--lifeline-fd cannot be used: {error}"));
        let Some(fd) = self.lifeline_fd else { return Ok(None) };
        let lifeline = Lifeline::from_fd(fd).map_err(failed)?;
        lifeline.end_process_with_it().map_err(failed)?;
        Ok(Some(lifeline))
    }

    /// Serves metrics if an address was given.
    pub async fn serve_metrics(&self) -> Outcome<Option<SocketAddr>> {
        let Some(address) = self.metrics else { return Ok(None) };
        let bound = process::metrics::serve(address).await;
        bound.map(Some).map_err(|error| listen_failure(address, &error, "--metrics"))
    }

    fn certificate(&self, role: &str) -> Outcome<CertificatePem> {
        Ok(CertificatePem::load(&self.certs, role)?)
    }

    fn ca(&self) -> Outcome<String> {
        Ok(tls::read(&self.certs.join("ca.pem"))?)
    }
}

/// An address cannot be listened on.
fn listen_failure(address: SocketAddr, error: &io::Error, flag: &str) -> Failure {
    let failure = Failure::new(format!("cannot listen on {address}: {error}"));
    match error.kind() {
        io::ErrorKind::AddrInUse => failure
            .hint(format!("Stop what listens there, or choose another address with {flag}; port 0 is free.")),
        io::ErrorKind::PermissionDenied | io::ErrorKind::AddrNotAvailable => {
            failure.hint(format!("Choose another address with {flag}."))
        }
        _ => failure,
    }
}

/// Runs a process; how it fails is announced, logged and returned.
fn run_process<F: Future<Output = Outcome>>(
    process: &ProcessArgs,
    announce: &AnnounceArgs,
    runtime: io::Result<tokio::runtime::Runtime>,
    body: impl FnOnce() -> F,
) -> Outcome {
    process::logging::start(LOG_FILTER);
    let result = process.hold_lifeline().and_then(|lifeline| {
        let runtime = runtime.map_err(|error| Failure::new(format!("cannot start a runtime: {error}")))?;
        let result = runtime.block_on(body());
        // Nobody may be using the store any more when the process takes down what its libraries keep for all of its
        // life. What does not end must not delay the end for ever.
        runtime.shutdown_timeout(END_PATIENCE);
        drop(lifeline);
        result
    });
    result.map_err(|failure| {
        tracing::error!(error = failure.message(), "cannot run");
        announce.failed(failure)
    })
}

fn one_thread() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Resolves when the process is asked to end.
async fn asked_to_end() {
    if let Err(error) = process::signals::asked_to_end().await {
        tracing::error!(%error, "signals cannot be watched");
        std::future::pending().await
    }
}

/// Arguments of `dormouse kv`.
#[derive(Debug, clap::Args)]
pub(crate) struct KvArgs {
    /// Directory of the data
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// Address for SQL nodes and control; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:26258")]
    listen: SocketAddr,
    /// Address others reach this node at [default: the one it listens on]
    #[arg(long, value_name = "ADDRESS")]
    advertise: Option<SocketAddr>,
    /// Addresses of nodes of the cluster to join; none: this is the first node
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    join: Vec<String>,
    /// Where this node stands, the widest first, as in region=eu-west,zone=b
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = locality::parse)]
    locality: Option<Locality>,
    /// After how long the replicas of a silent node are replaced, as in 5m
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    dead_after: Duration,
    /// Bytes a range of a tenant may hold before it is split; at least 1048576
    #[arg(long, value_name = "BYTES", default_value_t = kv_server::Limits::default().max_range_bytes)]
    max_range_bytes: u64,
    /// Ranges of a tenant that are small and idle for this long are merged with their neighbours, as in 10m; or never
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse_or_never)]
    merge_after: Duration,
    /// How far the wall clocks of KV nodes may be apart: a node that is further from most others stops
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = duration::parse_clock_offset)]
    max_clock_offset: Duration,
    #[command(flatten)]
    caches: CacheArgs,
    #[command(flatten)]
    process: ProcessArgs,
    #[command(flatten)]
    announce: AnnounceArgs,
}

/// Runs a KV node.
pub(crate) fn kv(args: KvArgs) -> Outcome {
    let (process, announce) = (args.process.clone(), args.announce.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    run_process(&process, &announce, runtime, || run_kv(args))
}

async fn run_kv(args: KvArgs) -> Outcome {
    let metrics = args.process.serve_metrics().await?;
    let caches = args.caches.sizes(1);
    let config = kv_server::Config {
        data_dir: args.store,
        listen: args.listen,
        advertise: args.advertise,
        join: args.join,
        locality: args.locality.unwrap_or_default().0,
        tls: tls::internal_server(&args.process.ca()?, &args.process.certificate("kv")?)?,
        peer_tls: tls::internal_client(&args.process.ca()?, &args.process.certificate("kv")?)?,
        dead_after: args.dead_after,
        engine: kv_server::EngineConfig {
            block_cache_bytes: caches.blocks,
            ..kv_server::EngineConfig::default()
        },
        limits: kv_server::Limits {
            max_range_bytes: args.max_range_bytes,
            merge_after: args.merge_after,
            max_clock_offset: args.max_clock_offset,
            column_cache: kv_server::ColumnCacheConfig {
                bytes: caches.columns,
                ..kv_server::ColumnCacheConfig::default()
            },
            ..kv_server::Limits::default()
        },
    };
    let node = kv_server::run(config).await.map_err(|error| match error {
        kv_server::ServerError::Listen { address, source } => listen_failure(address, &source, "--listen"),
        other => Failure::new(other.to_string()),
    })?;
    args.announce.serving(node.address(), None, metrics)?;
    tokio::select! {
        () = asked_to_end() => {}
        failed = node.failed() => return Err(failure(failed)),
    }
    node.shutdown().await.map_err(|error| Failure::new(format!("the store was not closed in order: {error}")))
}

fn failure(failed: kv_server::Failed) -> Failure {
    match failed {
        kv_server::Failed::Store => Failure::new("the store failed; what was acknowledged is safe")
            .hint("The log says what failed. A new start of the process recovers the store."),
        kv_server::Failed::Clock(too_far) => {
            Failure::wrong_clock(format!("the KV node has stopped: {too_far}"))
                .hint("Set the clock of this machine, have NTP keep it right, and start the node again.")
        }
    }
}

/// Arguments of `dormouse control`.
#[derive(Debug, clap::Args)]
pub(crate) struct ControlArgs {
    /// Address for SQL nodes and proxies; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:26259")]
    listen: SocketAddr,
    /// Address of the HTTP API and status page; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    http: SocketAddr,
    /// Addresses of KV nodes
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', required = true)]
    kv: Vec<String>,
    /// Directory for sockets of SQL nodes
    #[arg(long, value_name = "DIR")]
    run_dir: PathBuf,
    /// Directory for logs of SQL nodes
    #[arg(long, value_name = "DIR")]
    log_dir: PathBuf,
    /// File with the bearer token of the HTTP API
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// File whose field `sql` is the address that clients are told
    #[arg(long, value_name = "FILE")]
    addresses_file: PathBuf,
    /// Suspend tenants without connections after this time, or never
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration::parse_idle)]
    idle_timeout: IdleTimeout,
    /// Warm SQL nodes to keep
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    warm_pool: usize,
    /// Most SQL nodes at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 2000)]
    max_nodes: usize,
    #[command(flatten)]
    process: ProcessArgs,
    #[command(flatten)]
    announce: AnnounceArgs,
}

/// Runs control.
pub(crate) fn control(args: ControlArgs) -> Outcome {
    let (process, announce) = (args.process.clone(), args.announce.clone());
    run_process(&process, &announce, one_thread(), || run_control(args))
}

async fn run_control(args: ControlArgs) -> Outcome {
    let metrics = args.process.serve_metrics().await?;
    let limits = control::Limits {
        pool: args.warm_pool,
        max_nodes: args.max_nodes.max(1),
        idle_timeout: args.idle_timeout.0,
        ..control::Limits::default()
    };
    let config = control::Config {
        listen: args.listen,
        http: args.http,
        kv_addresses: args.kv,
        certs_dir: args.process.certs,
        run_dir: args.run_dir,
        log_dir: args.log_dir,
        token_file: args.token_file,
        addresses_file: args.addresses_file,
        program: "/proc/self/exe".into(),
        lifeline_fd: args.process.lifeline_fd,
        node_metrics: args.process.metrics.is_some(),
        limits,
    };
    let announce = args.announce;
    let mut announced = Ok(());
    let ready = |addresses: control::Addresses| {
        announced = announce.serving(addresses.control, Some(addresses.http), metrics);
    };
    let ran = control::run(config, ready, asked_to_end()).await;
    ran.map_err(|error| match error {
        control::StartError::Listen { address, error } if address == args.http => {
            listen_failure(address, &error, "--http")
        }
        control::StartError::Listen { address, error } => listen_failure(address, &error, "--listen"),
        other => Failure::new(other.to_string()),
    })?;
    announced
}

/// Arguments of `dormouse proxy`.
#[derive(Debug, clap::Args)]
pub(crate) struct ProxyArgs {
    /// Address for PostgreSQL clients; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:26257")]
    listen: SocketAddr,
    /// Address of control
    #[arg(long, value_name = "ADDRESS")]
    control: String,
    /// Host name of this proxy itself, which names no tenant when clients send it
    #[arg(long, value_name = "NAME")]
    server_name: Vec<String>,
    /// Refuse clients without TLS
    #[arg(long)]
    require_tls: bool,
    /// Threads that carry sessions [default: half the processors]
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide_default_value = true)]
    workers: usize,
    #[command(flatten)]
    process: ProcessArgs,
    #[command(flatten)]
    announce: AnnounceArgs,
}

/// Runs a proxy.
pub(crate) fn proxy(args: ProxyArgs) -> Outcome {
    let (process, announce) = (args.process.clone(), args.announce.clone());
    run_process(&process, &announce, one_thread(), || run_proxy(args))
}

async fn run_proxy(args: ProxyArgs) -> Outcome {
    let metrics = args.process.serve_metrics().await?;
    let own = args.process.certificate("proxy")?;
    let internal_tls = tls::internal_client(&args.process.ca()?, &own)?;
    let config = proxy::Config {
        client_tls: Some(tls::public_server(&args.process.certificate("server")?)?),
        require_tls: args.require_tls,
        server_names: args.server_name,
        workers: args.workers,
        ..proxy::Config::new(args.listen, args.control, internal_tls)
    };
    let failed = |error: proxy::ProxyError| match error {
        proxy::ProxyError::Listen { address, error } => listen_failure(address, &error, "--listen"),
        other => Failure::new(other.to_string()),
    };
    let proxy = proxy::Proxy::bind(config).map_err(failed)?;
    args.announce.serving(proxy.local_addr(), None, metrics)?;
    proxy.serve(asked_to_end()).await.map_err(failed)
}
