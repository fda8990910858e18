//! What control is told at its start.

pub use crate::fleet::Limits;
use crate::orchestrator::LocalConfig;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// What control is told at its start.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where SQL nodes and proxies reach it, with mutual TLS; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where the HTTP API and the status page are served; port 0 takes a free one.
    pub http: SocketAddr,
    /// Addresses (`host:port`) of KV nodes; others are learned from them.
    pub kv_addresses: Vec<String>,
    /// Directory of certificates: `ca`, `control` and the authority's key.
    pub certs_dir: PathBuf,
    /// Directory for sockets of SQL nodes, for the owner alone.
    pub run_dir: PathBuf,
    /// Directory for logs of SQL nodes.
    pub log_dir: PathBuf,
    /// File with the bearer token of the HTTP API.
    pub token_file: PathBuf,
    /// `addresses.json`, whose `sql` is the address that clients are told.
    pub addresses_file: PathBuf,
    /// The program to start as SQL node.
    pub program: PathBuf,
    /// Passed on to SQL nodes.
    pub lifeline_fd: Option<RawFd>,
    /// Whether SQL nodes serve metrics on a port each.
    pub node_metrics: bool,
    /// Bounds and times.
    pub limits: Limits,
}

impl Config {
    /// How local SQL nodes are started, given where control listens.
    pub(crate) fn local(&self, control_address: SocketAddr) -> LocalConfig {
        LocalConfig {
            program: self.program.clone(),
            run_dir: self.run_dir.clone(),
            log_dir: self.log_dir.clone(),
            certs_dir: self.certs_dir.clone(),
            control_address: control_address.to_string(),
            lifeline_fd: self.lifeline_fd,
            metrics: self.node_metrics,
        }
    }
}

/// Where control listens.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// For SQL nodes and proxies.
    pub control: SocketAddr,
    /// For the HTTP API.
    pub http: SocketAddr,
}
