//! The listener of a KV node, and its beginning and end.

use crate::authorize::Caller;
use crate::config::Limits;
use crate::connection;
use crate::metrics::metrics;
use crate::node::Node;
use process::tls::peer_identity;
use rustls::ServerConfig;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use storage::{Engine, RocksConfig, RocksEngine, StorageError};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// How long to wait before accepting again after an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a connection is silent before the peer is asked whether it is there, and how often.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// What a KV node is started with.
pub struct Config {
    /// Where the store is; made if it does not exist.
    pub data_dir: PathBuf,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Certificates; must ask clients for theirs.
    pub tls: Arc<ServerConfig>,
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
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
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
    let opened = tokio::task::spawn_blocking(move || RocksEngine::open(&path, &config.engine)).await;
    let engine: Arc<dyn Engine> = match opened {
        Ok(engine) => Arc::new(engine.map_err(store_error)?),
        Err(error) => return Err(store_error(StorageError::Io(error.to_string()))),
    };
    let node = Node::start(Arc::clone(&engine), config.limits).map_err(store_error)?;
    Ok(serve(node, engine, listener, address, config.tls))
}

/// Serves a node on a listener.
pub fn serve(
    node: Arc<Node>,
    engine: Arc<dyn Engine>,
    listener: TcpListener,
    address: SocketAddr,
    tls: Arc<ServerConfig>,
) -> Running {
    let (shutdown, watched) = watch::channel(false);
    let accepting = accept(Arc::clone(&node), listener, TlsAcceptor::from(tls), watched);
    let listener = tokio::spawn(accepting);
    tracing::info!(%address, cluster_id = node.cluster_id(), "KV node serves");
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

    /// How the engine is doing.
    pub fn stats(&self) -> storage::Stats {
        self.engine.stats()
    }

    /// Returns when the engine has failed in a way only a restart of the process mends. What was
    /// acknowledged is safe.
    pub async fn failed(&self) {
        self.node.pipeline.broken().await;
    }

    /// Ends the listener and the connections, applies what is under way and flushes the store.
    ///
    /// # Errors
    /// If the store cannot be flushed; what was acknowledged is durable nevertheless.
    pub async fn shutdown(self) -> Result<(), StorageError> {
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

async fn accept(node: Arc<Node>, listener: TcpListener, tls: TlsAcceptor, shutdown: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    let mut ending = shutdown.clone();
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
                connections.spawn(connect(Arc::clone(&node), stream, peer, tls.clone(), shutdown.clone()));
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

async fn connect(
    node: Arc<Node>,
    stream: TcpStream,
    peer: SocketAddr,
    tls: TlsAcceptor,
    shutdown: watch::Receiver<bool>,
) {
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
    match Caller::from_identity(identity) {
        Ok(caller) => {
            tracing::debug!(%peer, ?caller, "connected");
            if let Err(error) = connection::serve(node, caller, stream, shutdown).await {
                tracing::warn!(%peer, ?caller, "connection closed: {error}");
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
