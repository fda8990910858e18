//! How to reach the KV nodes.

use crate::environment::Environment;
use kv_api::TenantId;
use std::sync::Arc;
use std::time::Duration;

/// How to reach the KV nodes, and as whom.
#[derive(Clone)]
pub struct Config {
    /// `host:port` of KV nodes, the one to try first in front. Others are learned from them.
    pub addresses: Vec<String>,
    /// TLS with the tenant's certificate.
    pub tls: Arc<rustls::ClientConfig>,
    /// The tenant whose keys are spoken of.
    pub tenant: TenantId,
    /// The only cluster to talk to; empty for any.
    pub cluster_id: String,
    /// `host:port` of the KV node that reads from any replica prefer; empty for those that answer soonest.
    pub near: String,
    /// How long a request waits for a KV node that serves it.
    pub connect_timeout: Duration,
    /// How long a KV node may send nothing at all while requests are under way. It is asked something easy
    /// before it is given up.
    pub silence_timeout: Duration,
    /// Requests under way at a time that may wait for locks. Plain reads and the ends of transactions
    /// are not counted: others wait for them.
    pub max_in_flight: usize,
    /// Where time, chance and connections come from.
    pub environment: Environment,
}

impl Config {
    /// The usual bounds.
    pub fn new(addresses: Vec<String>, tls: Arc<rustls::ClientConfig>, tenant: TenantId) -> Self {
        Config {
            addresses,
            tls,
            tenant,
            cluster_id: String::new(),
            near: String::new(),
            connect_timeout: Duration::from_secs(10),
            silence_timeout: Duration::from_secs(3),
            // Above the KV node's own bound on what waits for locks on a connection, so that whoever holds them
            // need not stand behind those who wait; and below that on all that waits.
            max_in_flight: 3_900,
            environment: Environment::of_machine(),
        }
    }
}
