//! The listener of a KV node, and its beginning and end.

use crate::authorize::Caller;
use crate::clock_check::TooFar;
use crate::cluster::{Cluster, Myself};
use crate::config::Limits;
use crate::connection;
use crate::found::open_or_found;
use crate::idle_flush;
use crate::metrics::metrics;
use crate::node::Node;
use crate::peers::{
    self, JoinError, JoinRequest, PeerLimits, PeerServer, PeerServerConfig, Peers, PeersConfig,
};
use crate::pipeline::Transport;
use process::identity::Identity as PeerIdentity;
use process::tls::peer_identity;
use replication::Envelope;
use rustls::ServerConfig;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use storage::ident::{self, Identity, STORE_FORMAT};
use storage::{Engine, RocksConfig, RocksEngine, StorageError};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// How long to wait before accepting again after an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a node asks to be taken into a cluster before it gives up.
const JOIN_TIMEOUT: Duration = Duration::from_secs(120);
/// Frames of other nodes that wait to be taken in.
const INCOMING: usize = 256;
/// How long a connection is silent before the peer is asked whether it is there, and how often.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// What a KV node is started with.
pub struct Config {
    /// Where the store is; made if it does not exist.
    pub data_dir: PathBuf,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The address others are told; absent: the one listened on.
    pub advertise: Option<SocketAddr>,
    /// Addresses (`host:port`) of nodes of the cluster to join; empty for the first node.
    pub join: Vec<String>,
    /// Where the node stands: `key=value` pairs, the widest first, separated by commas; may be empty.
    pub locality: String,
    /// Certificates; must ask clients for theirs.
    pub tls: Arc<ServerConfig>,
    /// Certificates with which this node speaks to other KV nodes.
    pub peer_tls: Arc<rustls::ClientConfig>,
    /// After how long a silent node's replicas are replaced.
    pub dead_after: Duration,
    /// Sizes of the engine.
    pub engine: RocksConfig,
    /// Bounds on what clients can make the node do.
    pub limits: Limits,
}

/// Why a KV node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The data directory cannot be used.
    #[error("cannot use the data directory {path}: {source}")]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The store cannot be opened.
    #[error("cannot open the store in {path}: {source}")]
    Store {
        /// Where.
        path: PathBuf,
        /// Why.
        source: StorageError,
    },
    /// The cluster does not take the node in.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// Why a node that has served cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The engine has failed in a way only a restart mends.
    Store,
    /// Its wall clock is wrong.
    Clock(TooFar),
}

/// A KV node that serves. Dropping it ends the listener but not the connections; use
/// [`Running::shutdown`].
pub struct Running {
    address: SocketAddr,
    node: Arc<Node>,
    engine: Arc<dyn Engine>,
    shutdown: watch::Sender<bool>,
    listener: JoinHandle<()>,
}

/// Opens the store and serves it.
///
/// # Errors
/// See [`ServerError`].
pub async fn run(config: Config) -> Result<Running, ServerError> {
    let path = config.data_dir.clone();
    make_directory(&path).map_err(|source| ServerError::Directory { path: path.clone(), source })?;
    let store_error = |source| ServerError::Store { path: config.data_dir.clone(), source };
    // Bound first: a port in use should not cost the recovery of a store.
    let listen_error = |source| ServerError::Listen { address: config.listen, source };
    let listener = TcpListener::bind(config.listen).await.map_err(listen_error)?;
    let address = listener.local_addr().map_err(listen_error)?;
    let sizes = config.engine.clone();
    let opened = tokio::task::spawn_blocking(move || RocksEngine::open(&path, &sizes)).await;
    let engine: Arc<dyn Engine> = match opened {
        Ok(engine) => Arc::new(engine.map_err(store_error)?),
        Err(error) => return Err(store_error(StorageError::Io(error.to_string()))),
    };
    let advertised = config.advertise.unwrap_or(address).to_string();
    let empty = ident::open(&*engine).map_err(store_error)?.is_none();
    let identity = if empty && !config.join.is_empty() {
        let identity = join(&config, &advertised).await?;
        ident::write(&*engine, &identity).map_err(store_error)?;
        identity
    } else {
        open_or_found(&engine).map_err(store_error)?
    };
    let peers = Peers::start(PeersConfig {
        node_id: identity.node_id,
        cluster_id: identity.cluster_id.clone(),
        tls: Arc::clone(&config.peer_tls),
        limits: PeerLimits::default(),
    });
    let transport = Arc::new(ToPeers(Arc::clone(&peers)));
    let node =
        Node::start_as(Arc::clone(&engine), config.limits, &identity, transport).map_err(store_error)?;
    let myself = Myself {
        id: identity.node_id,
        address: advertised,
        locality: config.locality,
        store_id: hex(&identity.store_id),
        join: config.join,
        dead_after: config.dead_after,
    };
    let cluster = Cluster::new(&node, Some(peers), myself);
    node.set_cluster(Arc::clone(&cluster));
    let (sender, receiver) = mpsc::channel(INCOMING);
    let server = PeerServer::new(PeerServerConfig {
        node_id: Some(identity.node_id),
        cluster_id: identity.cluster_id.clone(),
        incoming: sender,
        join: Arc::<Cluster>::clone(&cluster),
        limits: PeerLimits::default(),
    });
    tokio::spawn(deliver(Arc::downgrade(&node), receiver));
    let announced = cluster.begin().await;
    tokio::spawn(cluster.run(announced));
    tokio::spawn(idle_flush::run(Arc::downgrade(&engine)));
    Ok(serve_with(node, engine, listener, address, config.tls, Some(Arc::new(server))))
}

/// Asks to become a node of a cluster.
async fn join(config: &Config, advertised: &str) -> Result<Identity, ServerError> {
    let store_id = *uuid::Uuid::new_v4().as_bytes();
    let request = JoinRequest {
        address: advertised.to_owned(),
        locality: config.locality.clone(),
        store_id: hex(&store_id),
        pid: u64::from(std::process::id()),
        ..JoinRequest::default()
    };
    let deadline = tokio::time::Instant::now() + JOIN_TIMEOUT;
    let response = peers::join(&config.join, &config.peer_tls, request, deadline).await?;
    tracing::info!(node_id = response.node_id, cluster_id = response.cluster_id, "joined the cluster");
    Ok(Identity {
        format: STORE_FORMAT,
        cluster_id: response.cluster_id,
        node_id: response.node_id,
        store_id,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The way out for the messages of the replicas.
struct ToPeers(Arc<Peers>);

impl Transport for ToPeers {
    fn send(&self, envelope: Envelope) {
        self.0.send(envelope);
    }
}

/// The way in.
async fn deliver(node: std::sync::Weak<Node>, mut incoming: mpsc::Receiver<Vec<Envelope>>) {
    while let Some(envelopes) = incoming.recv().await {
        let Some(node) = node.upgrade() else { return };
        node.receive(envelopes);
    }
}

/// Serves a node on a listener, without other nodes.
pub fn serve(
    node: Arc<Node>,
    engine: Arc<dyn Engine>,
    listener: TcpListener,
    address: SocketAddr,
    tls: Arc<ServerConfig>,
) -> Running {
    if let Some(cluster) = node.cluster() {
        cluster.is_at(address.to_string());
    }
    serve_with(node, engine, listener, address, tls, None)
}

fn serve_with(
    node: Arc<Node>,
    engine: Arc<dyn Engine>,
    listener: TcpListener,
    address: SocketAddr,
    tls: Arc<ServerConfig>,
    peers: Option<Arc<PeerServer>>,
) -> Running {
    let (shutdown, watched) = watch::channel(false);
    let acceptor = TlsAcceptor::from(tls);
    let accepting =
        accept(Serving { node: Arc::clone(&node), peers, tls: acceptor, shutdown: watched }, listener);
    let listener = tokio::spawn(accepting);
    tracing::info!(%address, node_id = node.node_id(), cluster_id = node.cluster_id(), "KV node serves");
    Running { address, node, engine, shutdown, listener }
}

fn make_directory(path: &std::path::Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

impl Running {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The cluster the store belongs to.
    pub fn cluster_id(&self) -> &str {
        self.node.cluster_id()
    }

    /// The node without its sockets.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// How the engine is doing.
    pub fn stats(&self) -> storage::Stats {
        self.engine.stats()
    }

    /// Returns when the node cannot go on in this process, and why. What was acknowledged is safe.
    pub async fn failed(&self) -> Failed {
        self.node.pipeline.broken().await;
        self.node.pipeline.too_far().map_or(Failed::Store, Failed::Clock)
    }

    /// Hands over the lease, ends the listener and the connections, applies what is under way and flushes the store.
    ///
    /// # Errors
    /// If the store cannot be flushed; what was acknowledged is durable nevertheless.
    pub async fn shutdown(self) -> Result<(), StorageError> {
        if let Some(cluster) = self.node.cluster() {
            cluster.hand_over().await;
        }
        self.shutdown.send_replace(true);
        if let Err(error) = self.listener.await {
            tracing::warn!("the listener ended abnormally: {error}");
        }
        let (node, engine) = (self.node, self.engine);
        let flushed = tokio::task::spawn_blocking(move || {
            node.pipeline.close();
            engine.flush()
        })
        .await;
        flushed.unwrap_or_else(|error| Err(StorageError::Io(error.to_string())))
    }
}

/// What every connection needs.
#[derive(Clone)]
struct Serving {
    node: Arc<Node>,
    peers: Option<Arc<PeerServer>>,
    tls: TlsAcceptor,
    shutdown: watch::Receiver<bool>,
}

async fn accept(serving: Serving, listener: TcpListener) {
    let mut connections = JoinSet::new();
    let mut ending = serving.shutdown.clone();
    let node = &serving.node;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            _ = ending.wait_for(|shutdown| *shutdown) => break,
        };
        match accepted {
            Ok((_, peer)) if connections.len() >= node.limits.max_connections => {
                tracing::warn!(%peer, "connection refused: too many connections");
                metrics().refused_connections.inc();
            }
            Ok((stream, peer)) => {
                connections.spawn(connect(serving.clone(), stream, peer));
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Small frames go out at once; a peer whose machine is gone is noticed, and its locks given up.
fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

async fn connect(serving: Serving, stream: TcpStream, peer: SocketAddr) {
    let Serving { node, peers, tls, mut shutdown } = serving;
    if let Err(error) = set_options(&stream) {
        tracing::debug!(%peer, "cannot set socket options: {error}");
    }
    let mut stream = match tokio::time::timeout(node.limits.handshake_timeout, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::warn!(%peer, "TLS handshake failed: {error}");
            return;
        }
        Err(_) => {
            tracing::warn!(%peer, "TLS handshake took too long");
            return;
        }
    };
    let identity = peer_identity(stream.get_ref().1);
    if let (Some(PeerIdentity::Kv), Some(server)) = (identity, &peers) {
        tokio::select! {
            // It has said what there is to say about how it ended.
            _ = peers::serve_peer(stream, server) => {}
            _ = shutdown.wait_for(|shutdown| *shutdown) => {}
        }
        return;
    }
    match Caller::from_identity(identity) {
        Ok(caller) => {
            tracing::debug!(%peer, ?caller, "connected");
            match connection::serve(node, caller, stream, shutdown).await {
                Ok(()) => {}
                Err(error) => tracing::warn!(%peer, ?caller, "connection closed: {error}"),
            }
        }
        Err(error) => {
            metrics().refused_connections.inc();
            tracing::warn!(%peer, ?identity, "connection refused: {}", error.message);
            let refusing = connection::refuse(&mut stream, error);
            let _ = tokio::time::timeout(node.limits.handshake_timeout, refusing).await;
        }
    }
}
