//! What a SQL node is told at its start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// What a SQL node is told at its start.
pub struct Config {
    /// Its name, unique within the cluster.
    pub node: String,
    /// Address of control.
    pub control: SocketAddr,
    /// TLS towards control, with the identity `dormouse://warm`.
    pub control_tls: Arc<rustls::ClientConfig>,
    /// The Unix socket to listen on, for the proxy of this machine.
    pub socket: PathBuf,
    /// An address to listen on for others, with TLS.
    pub listen: Option<(SocketAddr, Arc<rustls::ServerConfig>)>,
    /// Certificate authorities that sign KV nodes, in PEM.
    pub ca_pem: String,
    /// Most connections at a time; beyond it 53300.
    pub max_connections: usize,
}

impl Config {
    /// The directory of temporary files, beside the socket.
    pub fn spill_directory(&self) -> PathBuf {
        self.socket.with_extension("spill")
    }
}

/// Connections a SQL node accepts unless told otherwise.
pub const DEFAULT_MAX_CONNECTIONS: usize = 2_000;
