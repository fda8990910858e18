//! The sending side: who the peers are, and a queue for each.

use super::config::PeerLimits;
use super::error::DropReason;
use super::hello::LocalNode;
use super::outgoing::{Common, Peer, keep};
use super::partition::Partition;
use hashbrown::HashMap;
use kv_api::wire::MAX_FRAME_LEN;
use parking_lot::RwLock;
use prost::Message;
use replication::{Envelope, NodeId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Room for what stands around a message in a frame.
const FRAME_MARGIN: usize = 64;

/// Who sends, and how.
pub struct PeersConfig {
    /// This node.
    pub node_id: NodeId,
    /// Its cluster.
    pub cluster_id: String,
    /// Certificates, with [`process::identity::Identity::Kv`] as this node's identity.
    pub tls: Arc<rustls::ClientConfig>,
    /// Bounds.
    pub limits: PeerLimits,
}

/// Sends envelopes to other KV nodes. When it is dropped, its connections end.
pub struct Peers {
    common: Arc<Common>,
    runtime: Handle,
    links: RwLock<HashMap<NodeId, Link>>,
    partition: Partition,
    /// Messages for peers that have no link.
    undeliverable: AtomicU64,
}

/// The handle on a peer's task, which ends when the address can change no more.
struct Link {
    peer: Arc<Peer>,
    address: watch::Sender<String>,
}

/// How it stands with a peer, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The peer.
    pub node_id: NodeId,
    /// Where it is believed to be.
    pub address: String,
    /// Whether there is a connection to it. There is none to a peer that nothing is sent to.
    pub connected: bool,
    /// Messages that wait.
    pub queued: usize,
    /// Messages written to a connection so far.
    pub sent: u64,
    /// Messages for this peer that were dropped so far.
    pub dropped: u64,
    /// Why there is no connection, if the last attempt failed.
    pub problem: Option<String>,
}

impl Peers {
    /// A sender that knows no peers yet.
    ///
    /// # Panics
    /// If it is not called on a tokio runtime. Nothing else here needs to be.
    pub fn start(config: PeersConfig) -> Arc<Self> {
        let local = LocalNode { node_id: Some(config.node_id), cluster_id: config.cluster_id };
        Arc::new(Peers {
            common: Arc::new(Common { local, tls: config.tls, limits: config.limits }),
            runtime: Handle::current(),
            links: RwLock::default(),
            partition: Partition::default(),
            undeliverable: AtomicU64::new(0),
        })
    }

    /// Says where a node is, as `host:port`. A connection to another address is given up. What is said
    /// of this node itself is ignored.
    pub fn set_address(&self, node: NodeId, address: String) {
        if self.common.local.node_id == Some(node) {
            return;
        }
        let mut links = self.links.write();
        if let Some(link) = links.get(&node) {
            link.address.send_if_modified(|known| {
                let modified = *known != address;
                *known = address;
                modified
            });
            return;
        }
        let peer = Arc::new(Peer::new(node, &self.common.limits));
        let (address, watched) = watch::channel(address);
        self.runtime.spawn(keep(Arc::clone(&peer), Arc::clone(&self.common), watched));
        links.insert(node, Link { peer, address });
    }

    /// Ends the connection to a node that is no member any more.
    pub fn forget(&self, node: NodeId) {
        self.links.write().remove(&node);
    }

    /// The addresses that were set, by node.
    pub fn addresses(&self) -> Vec<(NodeId, String)> {
        let mut addresses: Vec<_> =
            self.links.read().iter().map(|(node, link)| (*node, link.address.borrow().clone())).collect();
        addresses.sort_unstable();
        addresses
    }

    /// Sends a message, or drops it. Never waits.
    pub fn send(&self, envelope: Envelope) {
        let links = self.links.read();
        let Some(Link { peer, .. }) = links.get(&envelope.to) else {
            self.undeliverable.fetch_add(1, Ordering::Relaxed);
            return DropReason::NoAddress.count(1);
        };
        if self.partition.is_blocked(envelope.to) {
            return peer.drop_messages(1, DropReason::Blocked);
        }
        let len = envelope.encoded_len();
        if len > MAX_FRAME_LEN - FRAME_MARGIN {
            tracing::error!(node = envelope.to, len, "a message is too large to be sent to a KV node");
            return peer.drop_messages(1, DropReason::TooLarge);
        }
        match peer.queue.push(envelope, len) {
            0 => {}
            dropped => peer.drop_messages(dropped, DropReason::QueueFull),
        }
    }

    /// The certificates with which connections are made.
    pub(super) fn tls(&self) -> &Arc<rustls::ClientConfig> {
        &self.common.tls
    }

    /// How it stands with a peer; `None` if its address was never set.
    pub fn status(&self, node: NodeId) -> Option<PeerStatus> {
        self.links.read().get(&node).map(|link| link.status())
    }

    /// How it stands with every peer, by node.
    pub fn statuses(&self) -> Vec<PeerStatus> {
        let mut statuses: Vec<_> = self.links.read().values().map(Link::status).collect();
        statuses.sort_unstable_by_key(|status| status.node_id);
        statuses
    }

    /// Messages dropped so far because nobody had told where their receiver is.
    pub fn undeliverable(&self) -> u64 {
        self.undeliverable.load(Ordering::Relaxed)
    }

    /// Drops everything to a node from now on, as a cut in the network would; what waits for it too. For
    /// tests and `dormouse debug`.
    pub fn block(&self, node: NodeId) {
        self.partition.block(node);
        if let Some(link) = self.links.read().get(&node) {
            link.peer.drop_messages(link.peer.queue.clear(), DropReason::Blocked);
        }
    }

    /// Takes [`Peers::block`] back.
    pub fn unblock(&self, node: NodeId) {
        self.partition.unblock(node);
    }
}

impl Link {
    fn status(&self) -> PeerStatus {
        let peer = &self.peer;
        PeerStatus {
            node_id: peer.node,
            address: self.address.borrow().clone(),
            connected: peer.connected.load(Ordering::Relaxed),
            queued: peer.queue.len(),
            sent: peer.sent.load(Ordering::Relaxed),
            dropped: peer.dropped.load(Ordering::Relaxed),
            problem: peer.problem.lock().clone(),
        }
    }
}
