//! What a proxy has to be told.

pub use crate::admission::ConnectionLimits;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Everything a proxy needs to know.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address for clients; port 0 takes a free one.
    pub listen: SocketAddr,
    /// TLS for clients. Without it a client that asks for TLS is told `N`.
    pub client_tls: Option<Arc<rustls::ServerConfig>>,
    /// Refuse sessions without TLS.
    pub require_tls: bool,
    /// Host names of the proxy itself: as a TLS server name they name no tenant.
    pub server_names: Vec<String>,
    /// Where control listens for proxies, `host:port`.
    pub control_address: String,
    /// Mutual TLS as `dormouse://proxy`, towards control and towards SQL nodes that are reached by TCP
    /// (`process::tls::internal_client`).
    pub internal_tls: Arc<rustls::ClientConfig>,
    /// How many there may be.
    pub limits: ConnectionLimits,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// How many tenants' routes are remembered.
    pub route_cache: usize,
    /// Threads that carry sessions; 0 takes half the processors, at least one.
    pub workers: usize,
    /// Where the proxy's metrics are registered.
    pub registry: prometheus::Registry,
}

/// How long things may take.
#[derive(Debug, Clone)]
pub struct Timeouts {
    /// From accepting a connection to its whole startup packet.
    pub startup: Duration,
    /// The TLS handshake within that.
    pub tls: Duration,
    /// How long a client is held while its tenant wakes.
    pub wake: Duration,
    /// How long a client is held while control cannot be reached.
    pub control: Duration,
    /// One attempt to connect to a SQL node.
    pub connect: Duration,
    /// From the SQL node's first word to the end of authentication.
    pub authentication: Duration,
    /// How long a session goes on without a byte after the client closed its half of it.
    pub half_closed: Duration,
    /// Forwarding a CancelRequest.
    pub cancel: Duration,
    /// Saying why a connection ends.
    pub farewell: Duration,
}

impl Config {
    /// Defaults for everything but addresses and identities. Metrics go to the process's registry.
    pub fn new(listen: SocketAddr, control_address: String, internal_tls: Arc<rustls::ClientConfig>) -> Self {
        Self {
            listen,
            client_tls: None,
            require_tls: false,
            server_names: Vec::new(),
            control_address,
            internal_tls,
            limits: ConnectionLimits::default(),
            timeouts: Timeouts::default(),
            route_cache: 10_000,
            workers: 0,
            registry: prometheus::default_registry().clone(),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            startup: Duration::from_secs(30),
            tls: Duration::from_secs(10),
            wake: Duration::from_secs(30),
            control: Duration::from_secs(10),
            connect: Duration::from_secs(5),
            authentication: Duration::from_secs(60),
            half_closed: Duration::from_secs(30),
            cancel: Duration::from_secs(5),
            farewell: Duration::from_secs(2),
        }
    }
}
