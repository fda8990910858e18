//! How to reach the KV node.

use kv_api::TenantId;
use std::sync::Arc;
use std::time::Duration;

/// How to reach the KV node, and as whom.
#[derive(Clone)]
pub struct Config {
    /// `host:port` of the KV node.
    pub address: String,
    /// TLS with the tenant's certificate.
    pub tls: Arc<rustls::ClientConfig>,
    /// The tenant whose keys are spoken of.
    pub tenant: TenantId,
    /// How long a request waits for a connection.
    pub connect_timeout: Duration,
    /// Requests under way at a time.
    pub max_in_flight: usize,
}

impl Config {
    /// The usual bounds.
    pub fn new(address: String, tls: Arc<rustls::ClientConfig>, tenant: TenantId) -> Self {
        Config { address, tls, tenant, connect_timeout: Duration::from_secs(10), max_in_flight: 4096 }
    }
}
