//! A proxy with everything around it.

use crate::client::Client;
use crate::control::FakeControl;
use crate::node::{FakeNode, Nodes};
use process::identity::Identity;
use process::tls::{Authority, internal_client, public_server};
use prometheus::Registry;
use proxy::{Config, Proxy, ProxyError};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// After this a test that waits has failed.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for something that must happen.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("did not happen in time")
}

/// A proxy, its control, its nodes.
pub struct World {
    pub authority: Arc<Authority>,
    pub control: FakeControl,
    pub nodes: Nodes,
    pub proxy: SocketAddr,
    pub registry: Registry,
    stop: Option<oneshot::Sender<()>>,
    served: Option<JoinHandle<Result<(), ProxyError>>>,
}

impl World {
    /// A world with one tenant, `app`, that has one node.
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// The same with another configuration.
    pub async fn with(configure: impl FnOnce(&mut Config)) -> Self {
        let authority = Arc::new(Authority::create().unwrap());
        let control = FakeControl::start(&authority).await;
        let ca = &authority.pem().certificate;
        let own = internal_client(ca, &authority.issue(Identity::Proxy).unwrap()).unwrap();
        let registry = Registry::new();
        let mut config = Config::new(SocketAddr::from(([127, 0, 0, 1], 0)), control.address(), own);
        let names = ["localhost", "app.dormouse.test", "proxy.dormouse.test"].map(str::to_owned).to_vec();
        config.client_tls = Some(public_server(&authority.issue_public(names).unwrap()).unwrap());
        config.registry = registry.clone();
        config.workers = 2;
        config.timeouts.farewell = std::time::Duration::from_millis(500);
        configure(&mut config);
        let proxy = Proxy::bind(config).unwrap();
        let address = proxy.local_addr();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(proxy.serve(async {
            let _ = stopped.await;
        }));
        let nodes = Nodes::default();
        let (stop, served) = (Some(stop), Some(served));
        Self { authority, control, nodes, proxy: address, registry, stop, served }
    }

    /// A node that serves `app` from now on.
    pub async fn app(&self) -> FakeNode {
        let node = self.nodes.start().await;
        self.control.serve("app", &node);
        node
    }

    /// A client of `app` whose session is running.
    pub async fn session(&self) -> Client {
        let mut client = Client::plain(self.proxy).await;
        client.start(&[("user", "u"), ("database", "app.postgres")]).await;
        client.ready().await;
        client
    }

    /// The value of a metric, summed over its labels.
    pub fn metric(&self, name: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name);
        let metrics = family.map(|family| family.get_metric()).unwrap_or_default();
        metrics.iter().map(|m| m.get_counter().get_value() + m.get_gauge().get_value()).sum()
    }

    /// Asks the proxy to stop.
    pub fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// Waits until it has stopped.
    pub async fn stopped(&mut self) {
        soon(self.served.take().unwrap()).await.unwrap().unwrap();
    }
}
