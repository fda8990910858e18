//! A KV node in this process, in memory, shared by the tests; each test gets a tenant of its own.

use kv_api::TenantId;
use kv_client::{Config, KvClient, Txn, TxnOptions};
use kv_server::{ColumnCacheConfig, Limits, Node};
use process::identity::Identity;
use process::tls::{Authority, internal_client, internal_server};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, mpsc};
use storage::MemoryEngine;
use tokio::net::TcpListener;

/// The node and what is needed to talk to it.
struct TestNode {
    address: String,
    node: Arc<Node>,
    /// The runtime the node runs on.
    runtime: tokio::runtime::Handle,
    authority: Authority,
    next_tenant: AtomicU64,
}

static NODE: LazyLock<TestNode> = LazyLock::new(start);

/// Chunks of columns that are so small that most scans keep and use some.
fn limits() -> Limits {
    let column_cache = ColumnCacheConfig { bytes: 32 << 20, chunk_rows: 7, least_rows: 1 };
    Limits { column_cache, inline_scan_bytes: 256, ..Limits::default() }
}

fn start() -> TestNode {
    let authority = Authority::create().expect("an authority");
    let own = authority.issue(Identity::Kv).expect("a certificate");
    let tls = internal_server(&authority.pem().certificate, &own).expect("a TLS configuration");
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let engine = Arc::new(MemoryEngine::new());
            let node = Node::start(engine.clone(), limits()).expect("a node");
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let _running = kv_server::server::serve(node.clone(), engine, listener, address, tls);
            let runtime = tokio::runtime::Handle::current();
            tell.send((address.to_string(), node, runtime)).expect("a listener");
            std::future::pending::<()>().await;
        });
    });
    let (address, node, runtime) = told.recv().expect("a node");
    TestNode { address, node, runtime, authority, next_tenant: AtomicU64::new(2) }
}

impl TestNode {
    /// Makes the range of a tenant.
    fn make_range(&self, tenant: TenantId) {
        let node = Arc::clone(&self.node);
        let (tell, told) = mpsc::channel();
        self.runtime.spawn(async move {
            let cluster = node.cluster().expect("a cluster");
            let _ = tell.send(cluster.create_tenant(&node, tenant).await);
        });
        told.recv().expect("an answer").expect("a range");
    }
}

/// A client for a tenant that nobody has used yet. To be called on a tokio runtime.
pub fn new_tenant() -> KvClient {
    let tenant = TenantId(NODE.next_tenant.fetch_add(1, Ordering::Relaxed));
    NODE.make_range(tenant);
    client_of(tenant)
}

/// Another client for a tenant. To be called on a tokio runtime.
pub fn client_of(tenant: TenantId) -> KvClient {
    let own = NODE.authority.issue(Identity::Tenant(tenant.0)).expect("a certificate");
    let tls = internal_client(&NODE.authority.pem().certificate, &own).expect("a TLS configuration");
    KvClient::connect(Config::new(vec![NODE.address.clone()], tls, tenant))
}

/// A transaction of a tenant that nobody has used yet.
pub fn idle_txn() -> Txn {
    new_tenant().begin(TxnOptions::default())
}
