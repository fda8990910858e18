//! Control: which tenants exist, and which of them are awake on which SQL nodes.
//!
//! # What it is for
//!
//! It keeps the directory of tenants ([`directory`]), starts SQL nodes before they are needed and gives
//! them to tenants that somebody connects to, suspends tenants that nobody uses ([`fleet`]), answers the
//! proxies' only question ("where is this tenant?", [`mod@listener`]), and serves the HTTP API
//! ([`http`]). What it knows of KV nodes and ranges it asks the KV layer for ([`kv_nodes`], [`ranges`]).
//!
//! # What it promises
//!
//! * Running sessions never notice that control is gone: it is not between a client and its data.
//! * A restart loses nothing: tenants are records in the system tenant's keyspace, and SQL nodes outlive
//!   control and register again with the next one.
//! * A tenant's password is returned once, when the tenant is created. Only its verifier is kept.
//! * Waking a tenant takes one read of its record at most, no new process if the warm pool is not
//!   empty, and no timer. A sleeping tenant has no entry in memory.
//!
//! # How a wake-up flows through it
//!
//! ```text
//!  proxy ── resolve ──► listener ──► directory (remembered, or one KV read)
//!                                        │ record
//!                                        ▼
//!                       service ──► fleet: warm node? ── Assign ──► listener ──► SQL node
//!                          ▲              │ no: Start                               │
//!                          │              ▼                                         │
//!                          │       orchestrator ── process ── registers ──► …       │
//!                          └───────────────────────── serving ◄─────────────────────┘
//!                          └── resolved ──► proxy
//! ```
//!
//! # Where more will come
//!
//! More than one SQL node per tenant, autoscaling and other orchestrators change [`fleet`] and
//! [`orchestrator`]; several control processes would need a lease before they may decide.

pub mod config;
pub mod directory;
pub mod fleet;
mod http;
mod kv_nodes;
mod listener;
mod metrics;
pub mod name;
pub mod orchestrator;
mod password;
pub mod placement;
mod ranges;
pub mod record;
pub mod service;
#[cfg(test)]
mod tests;

pub use config::{Addresses, Config};
pub use fleet::Limits;

use directory::{Directory, KvStore};
use kv_api::TenantId;
use kv_client::KvClient;
use kv_nodes::KvNodes;
use metrics::Metrics;
use orchestrator::LocalProcesses;
use process::http::Bounds;
use process::tls::{self, Authority, CertificatePem, TlsError};
use ranges::Ranges;
use service::{Control, Parts};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

/// Why control cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// A certificate is missing or unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The token of the HTTP API cannot be read, or is empty.
    #[error("cannot read the token {path}: {error}")]
    Token {
        /// Its file.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// A metric's name is taken.
    #[error("cannot register metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Runs control until `stop` resolves. `ready` is called once it listens.
///
/// # Errors
/// If it cannot start.
pub async fn run(
    config: Config,
    ready: impl FnOnce(Addresses),
    stop: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let token = read_token(&config)?;
    let authority = Authority::from_pem(CertificatePem::load(&config.certs_dir, "ca")?)?;
    let own = CertificatePem::load(&config.certs_dir, "control")?;
    let ca = authority.pem().certificate.clone();
    let server_tls = TlsAcceptor::from(tls::internal_server(&ca, &own)?);
    let kv_tls = tls::internal_client(&ca, &own)?;
    let metrics = Metrics::register(prometheus::default_registry())?;
    let (internal, internal_address) = listen(config.listen).await?;
    let (web, web_address) = listen(config.http).await?;

    let (exits, mut exited) = mpsc::unbounded_channel();
    let processes = LocalProcesses::new(config.local(internal_address), exits);
    let survivors = processes.adopt();
    let kv = KvClient::connect(kv_client::Config::new(config.kv_addresses, kv_tls, TenantId::SYSTEM));
    let control = Control::new(Parts {
        directory: Directory::new(Box::new(KvStore::new(kv.clone()))),
        first_number: processes.first_number(),
        orchestrator: Box::new(processes),
        authority,
        kv_addresses: kv.addresses(),
        limits: config.limits,
        metrics,
    });
    control.expect_nodes(survivors);
    let api = http::router(Arc::new(http::Api {
        control: Arc::clone(&control),
        token,
        addresses_file: config.addresses_file,
        kv_nodes: KvNodes::new(kv.clone()),
        ranges: Ranges::new(kv),
    }));
    let background = [
        tokio::spawn(Arc::clone(&control).run_clock()),
        tokio::spawn(Arc::clone(&control).finish_drops()),
        tokio::spawn(listener::serve(internal, server_tls, Arc::clone(&control))),
        tokio::spawn(process::http::serve(web, api, Bounds::default())),
        tokio::spawn(async move {
            while let Some(exit) = exited.recv().await {
                control.node_exited(&exit.node, &exit.reason);
            }
        }),
    ];
    tracing::info!(control = %internal_address, http = %web_address, "listening");
    ready(Addresses { control: internal_address, http: web_address });
    stop.await;
    for task in background {
        task.abort();
    }
    Ok(())
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |error| StartError::Listen { address, error };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

fn read_token(config: &Config) -> Result<String, StartError> {
    let path = &config.token_file;
    let failed = |error| StartError::Token { path: path.display().to_string(), error };
    let token = std::fs::read_to_string(path).map_err(failed)?.trim().to_owned();
    if token.is_empty() {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, "it is empty")));
    }
    Ok(token)
}
