//! The KV nodes of the cluster: what the KV layer says of them, and what is known when it is silent.
//!
//! The list is wanted most when the KV layer does not answer. Then it is the last one heard, or the
//! addresses known, and every node is tried: `live` means no more than that it accepts connections.

use kv_api::batch::NodeInfo;
use kv_api::{KvError, KvErrorKind};
use kv_client::KvClient;
use parking_lot::Mutex;
use serde::Serialize;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// How long the KV layer may take to list its nodes.
const LIST_PATIENCE: Duration = Duration::from_secs(2);
/// How long it may take to begin a drain, which it has to agree on.
const DRAIN_PATIENCE: Duration = Duration::from_secs(10);
/// How long a node may take to accept a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);

/// A KV node as the HTTP API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct KvNodeView {
    /// Its number; none if only its address is known.
    pub id: Option<u64>,
    /// `host:port`.
    pub address: String,
    /// `key=value` pairs; may be empty.
    pub locality: String,
    /// `live`, `dead` or `draining`.
    pub state: &'static str,
    /// Whether it holds a lease.
    pub leaseholder: bool,
    /// Replicas it has.
    pub replicas: u64,
    /// Leases it holds.
    pub leases: u64,
    /// Its process, if it runs on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u64>,
}

/// Asks the KV layer about its nodes.
pub(crate) struct KvNodes {
    kv: KvClient,
    /// What the KV layer said last.
    last: Mutex<Vec<NodeInfo>>,
}

impl KvNodes {
    /// Asks through `kv`, which must be control's own.
    pub fn new(kv: KvClient) -> Self {
        Self { kv, last: Mutex::default() }
    }

    /// All KV nodes, in the order of their numbers.
    pub async fn list(&self) -> Vec<KvNodeView> {
        match tokio::time::timeout(LIST_PATIENCE, self.kv.nodes()).await {
            Ok(Ok(nodes)) => {
                self.last.lock().clone_from(&nodes);
                return nodes.into_iter().map(view).collect();
            }
            Ok(Err(error)) => tracing::debug!(%error, "the KV layer does not list its nodes"),
            Err(_) => tracing::debug!("the KV layer does not list its nodes in time"),
        }
        self.try_all().await
    }

    /// What is known of the nodes while the KV layer is silent.
    async fn try_all(&self) -> Vec<KvNodeView> {
        let mut nodes = self.last.lock().clone();
        if nodes.is_empty() {
            let only = |address: &String| NodeInfo { address: address.clone(), ..NodeInfo::default() };
            nodes = self.kv.addresses().borrow().iter().map(only).collect();
        }
        let mut tries = JoinSet::new();
        for (index, node) in nodes.into_iter().enumerate() {
            tries.spawn(async move {
                let connected =
                    tokio::time::timeout(CONNECT_PATIENCE, TcpStream::connect(&node.address)).await;
                let live = matches!(connected, Ok(Ok(_)));
                (index, view(NodeInfo { live, leaseholder: false, leases: 0, ..node }))
            });
        }
        let mut tried = tries.join_all().await;
        tried.sort_by_key(|(index, _)| *index);
        tried.into_iter().map(|(_, view)| view).collect()
    }

    /// Begins, or ends, the draining of a node.
    ///
    /// # Errors
    /// See [`KvClient::drain_node`].
    pub async fn drain(&self, id: u64, undo: bool) -> Result<(), KvError> {
        let late = |_| KvError::new(KvErrorKind::Unavailable, "the KV layer does not answer in time");
        tokio::time::timeout(DRAIN_PATIENCE, self.kv.drain_node(id, undo)).await.map_err(late)?
    }
}

fn view(node: NodeInfo) -> KvNodeView {
    let state = match (node.live, node.draining) {
        (false, _) => "dead",
        (true, true) => "draining",
        (true, false) => "live",
    };
    let pid = (node.live && node.pid != 0 && is_here(&node.address)).then_some(node.pid);
    KvNodeView {
        id: (node.id != 0).then_some(node.id),
        address: node.address,
        locality: node.locality,
        state,
        leaseholder: node.leaseholder,
        replicas: node.replicas,
        leases: node.leases,
        pid,
    }
}

/// Whether an address is one of this machine: only then can something be bound to it.
fn is_here(address: &str) -> bool {
    let Ok(address) = address.parse::<SocketAddr>() else { return false };
    let ip: IpAddr = address.ip();
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv_api::TenantId;
    use kv_client::Config;
    use process::identity::Identity;
    use process::tls::{Authority, internal_client};
    use tokio::net::TcpListener;

    fn info(id: u64) -> NodeInfo {
        let address = "127.0.0.1:26258".into();
        NodeInfo { id, address, live: true, replicas: 2, leases: 1, pid: 40, ..NodeInfo::default() }
    }

    #[test]
    fn states_and_processes_are_shown_as_they_are() {
        assert_eq!(view(info(1)).state, "live");
        assert_eq!(view(NodeInfo { draining: true, ..info(1) }).state, "draining");
        let dead = view(NodeInfo { live: false, draining: true, ..info(1) });
        assert_eq!((dead.state, dead.pid), ("dead", None));
        assert_eq!(view(info(1)).pid, Some(40));
        assert_eq!((view(info(1)).replicas, view(info(1)).leases), (2, 1));
        // An address set aside for documentation: no machine has it.
        let elsewhere = view(NodeInfo { address: "192.0.2.1:26258".into(), ..info(2) });
        assert_eq!((elsewhere.id, elsewhere.pid), (Some(2), None));
        assert_eq!(view(NodeInfo { address: "kv-2.example:1".into(), ..info(2) }).pid, None);
        assert_eq!(view(NodeInfo { pid: 0, ..info(0) }).pid, None);
    }

    #[tokio::test]
    async fn nodes_are_listed_while_the_kv_layer_is_silent() {
        let authority = Authority::create().unwrap();
        let own = authority.issue(Identity::Control).unwrap();
        let tls = internal_client(&authority.pem().certificate, &own).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = listener.local_addr().unwrap().to_string();
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
        let addresses = vec![there.clone(), gone.clone()];
        let nodes = KvNodes::new(KvClient::connect(Config::new(addresses, tls, TenantId::SYSTEM)));
        let states = |views: Vec<KvNodeView>| -> Vec<_> {
            views.into_iter().map(|view| (view.id, view.address, view.state)).collect()
        };
        let unknown = [(None, there.clone(), "live"), (None, gone.clone(), "dead")];
        assert_eq!(states(nodes.try_all().await), unknown);
        *nodes.last.lock() = vec![
            NodeInfo { address: gone.clone(), leaseholder: true, ..info(1) },
            NodeInfo { address: there.clone(), ..info(2) },
        ];
        let heard_before = nodes.try_all().await;
        assert!(
            heard_before.iter().all(|node| !node.leaseholder && node.leases == 0),
            "nobody answers for it"
        );
        assert_eq!(states(heard_before), [(Some(1), gone, "dead"), (Some(2), there, "live")]);
    }
}
