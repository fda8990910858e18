//! A KV node that can be restarted, and clients of it.

use bytes::Bytes;
use kv_api::TenantId;
use kv_client::{Config, KvClient};
use kv_server::server::{Running, serve};
use kv_server::{Limits, Node};
use process::identity::Identity;
use process::tls::{Authority, internal_client, internal_server};
use std::net::SocketAddr;
use std::sync::Arc;
use storage::MemoryEngine;
use tokio::net::TcpListener;

/// A cluster of one node.
pub struct Cluster {
    authority: Authority,
    engine: Arc<MemoryEngine>,
    address: SocketAddr,
    running: Option<Running>,
}

impl Cluster {
    /// Starts a node with an empty store.
    pub async fn start() -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let authority = Authority::create().unwrap();
        let mut cluster = Cluster { authority, engine: Arc::default(), address, running: None };
        cluster.start_node().await;
        cluster
    }

    /// Starts the node, where it was before.
    pub async fn start_node(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.address = listener.local_addr().unwrap();
        let node = Node::start(self.engine.clone(), Limits::default()).unwrap();
        let certificate = self.authority.issue(Identity::Kv).unwrap();
        let tls = internal_server(&self.authority.pem().certificate, &certificate).unwrap();
        self.running = Some(serve(node, self.engine.clone(), listener, self.address, tls));
    }

    /// Stops the node.
    pub async fn stop_node(&mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown().await.unwrap();
        }
    }

    /// The cluster's id.
    pub fn id(&self) -> String {
        self.running.as_ref().unwrap().cluster_id().to_owned()
    }

    /// How `identity` reaches the keys of a tenant.
    pub fn config(&self, identity: Identity, tenant: u64) -> Config {
        let certificate = self.authority.issue(identity).unwrap();
        let tls = internal_client(&self.authority.pem().certificate, &certificate).unwrap();
        Config::new(vec![self.address.to_string()], tls, TenantId(tenant))
    }

    /// A client of a tenant, which is made if it does not exist.
    pub async fn client(&self, tenant: u64) -> KvClient {
        self.control().create_tenant(TenantId(tenant)).await.unwrap();
        KvClient::connect(self.config(Identity::Tenant(tenant), tenant))
    }

    /// The control plane's client.
    pub fn control(&self) -> KvClient {
        KvClient::connect(self.config(Identity::Control, TenantId::SYSTEM.0))
    }
}

pub fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}
