//! Listening, and handing connections to the threads that carry them.
//!
//! Each worker is a thread with a runtime of its own: a session lives and dies on one thread, so no message
//! is ever handed from one processor to another on its way. New connections go to the worker that has
//! fewest. Control's connection lives on the caller's runtime.

use crate::admission::{Admission, StartingPermit};
use crate::cancel::CancelRegistry;
use crate::config::{Config, Timeouts};
use crate::connection;
use crate::control::{Control, ControlLink};
use crate::metrics::Metrics;
use crate::negotiate::ALPN;
use crate::session::Stop;
use crate::stream::prepare_tcp;
use std::io;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Connections the kernel may hold before they are accepted.
const BACKLOG: u32 = 4096;
/// How long to wait when the machine cannot give another socket.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long sessions may take to end when the proxy stops.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Why a proxy cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The address for clients cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// A metric's name is taken.
    #[error("cannot register metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// A thread or its runtime cannot be started.
    #[error("cannot start a worker: {0}")]
    Worker(io::Error),
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub client_tls: Option<Arc<rustls::ServerConfig>>,
    pub require_tls: bool,
    pub server_names: Vec<String>,
    pub internal_tls: Arc<rustls::ClientConfig>,
    pub timeouts: Timeouts,
    pub admission: Arc<Admission>,
    pub cancels: Arc<CancelRegistry>,
    pub control: Arc<Control>,
    pub metrics: Arc<Metrics>,
    pub stop: Arc<Stop>,
}

/// A proxy that listens.
#[derive(Debug)]
pub struct Proxy {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    link: ControlLink,
    workers: usize,
}

impl Proxy {
    /// Starts to listen. Nothing is accepted before [`Proxy::serve`].
    pub fn bind(config: Config) -> Result<Self, ProxyError> {
        let address = config.listen;
        let listener = listen(address).map_err(|error| ProxyError::Listen { address, error })?;
        let address = listener.local_addr().map_err(|error| ProxyError::Listen { address, error })?;
        let metrics = Arc::new(Metrics::register(&config.registry)?);
        let (control, link) = Control::new(&config, Arc::clone(&metrics));
        let shared = Shared {
            client_tls: config.client_tls.map(as_postgresql),
            require_tls: config.require_tls,
            server_names: config.server_names.iter().map(|name| name.to_ascii_lowercase()).collect(),
            internal_tls: config.internal_tls,
            timeouts: config.timeouts,
            admission: Admission::new(config.limits),
            cancels: Arc::default(),
            control,
            metrics,
            stop: Stop::new(),
        };
        let workers = if config.workers == 0 { default_workers() } else { config.workers };
        Ok(Self { listener, address, shared: Arc::new(shared), link, workers })
    }

    /// The address clients connect to.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves clients until `stop` ends; then tells the sessions and returns when they have ended.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> Result<(), ProxyError> {
        raise_file_limit();
        let workers: Vec<Worker> =
            (0..self.workers).map(|n| Worker::start(n, &self.shared)).collect::<Result<_, _>>()?;
        let control = tokio::spawn(self.link.run());
        tracing::info!(address = %self.address, workers = workers.len(), "proxy listens");
        tokio::select! {
            () = accept_all(&self.listener, &self.shared, &workers) => {}
            () = stop => {}
        }
        drop(self.listener);
        self.shared.stop.stop();
        let joined = tokio::task::spawn_blocking(move || workers.into_iter().for_each(Worker::join)).await;
        control.abort();
        joined.map_err(|error| ProxyError::Worker(io::Error::other(error)))
    }
}

/// Binds and serves in one; see [`Proxy`].
pub async fn run(config: Config, stop: impl Future<Output = ()>) -> Result<(), ProxyError> {
    Proxy::bind(config)?.serve(stop).await
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Half the processors: the other half has the SQL nodes' work to do.
fn default_workers() -> usize {
    std::thread::available_parallelism().map_or(1, |n| (n.get() / 2).max(1))
}

/// The configuration as PostgreSQL has it: with the protocol's name, which clients that start with TLS
/// insist on, and without session tickets, which no client uses.
fn as_postgresql(config: Arc<rustls::ServerConfig>) -> Arc<rustls::ServerConfig> {
    let mut config = Arc::unwrap_or_clone(config);
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    Arc::new(config)
}

/// A session takes two sockets; the usual soft limit of 1024 would be met at five hundred of them.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

async fn accept_all(listener: &TcpListener, shared: &Shared, workers: &[Worker]) {
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => accept(socket, peer, shared, workers),
            Err(error) => {
                // A connection that ended before it was accepted, or too few file descriptors.
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn accept(socket: TcpStream, peer: SocketAddr, shared: &Shared, workers: &[Worker]) {
    shared.metrics.connections_total.inc();
    let permit = match shared.admission.start(peer.ip()) {
        Ok(permit) => permit,
        Err(error) => {
            shared.metrics.errors.with_label_values(&[error.code()]).inc();
            // In a flood nobody waits for anybody: the words are sent if they fit.
            let _ = socket.try_write(&error.encode());
            return;
        }
    };
    let prepared = prepare_tcp(&socket).and_then(|()| socket.into_std());
    let idlest = workers.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed));
    match (prepared, idlest) {
        (Ok(socket), Some(worker)) => worker.hand(Accepted { socket, peer, permit }),
        (Err(error), _) => tracing::debug!(%error, "a connection ended while it was accepted"),
        (Ok(_), None) => {}
    }
}

/// A connection on its way to a worker.
#[derive(Debug)]
struct Accepted {
    socket: StdStream,
    peer: SocketAddr,
    permit: StartingPermit,
}

/// A thread that carries sessions.
#[derive(Debug)]
struct Worker {
    thread: std::thread::JoinHandle<()>,
    /// Bounded by the permits that travel in it.
    accepted: mpsc::UnboundedSender<Accepted>,
    connections: Arc<AtomicUsize>,
}

impl Worker {
    fn start(number: usize, shared: &Arc<Shared>) -> Result<Self, ProxyError> {
        let (accepted, queue) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ProxyError::Worker)?;
        let work = carry(queue, Arc::clone(shared), Arc::clone(&connections));
        let thread = std::thread::Builder::new()
            .name(format!("proxy-{number}"))
            .spawn(move || {
                runtime.block_on(work);
                runtime.shutdown_background();
            })
            .map_err(ProxyError::Worker)?;
        Ok(Self { thread, accepted, connections })
    }

    fn hand(&self, accepted: Accepted) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        // Fails only when the worker has stopped; the socket then closes with the message.
        let _ = self.accepted.send(accepted);
    }

    fn join(self) {
        drop(self.accepted);
        if self.thread.join().is_err() {
            tracing::error!("a worker of the proxy panicked");
        }
    }
}

/// What a worker does.
async fn carry(
    mut queue: mpsc::UnboundedReceiver<Accepted>,
    shared: Arc<Shared>,
    connections: Arc<AtomicUsize>,
) {
    let mut sessions = JoinSet::new();
    loop {
        tokio::select! {
            accepted = queue.recv() => match accepted {
                Some(accepted) => {
                    sessions.spawn(serve(Arc::clone(&shared), accepted, Counted(Arc::clone(&connections))));
                }
                None => break,
            },
            Some(done) = sessions.join_next() => report(done),
        }
    }
    let all = async {
        while let Some(done) = sessions.join_next().await {
            report(done);
        }
    };
    let _ = tokio::time::timeout(STOP_PATIENCE, all).await;
}

fn report(done: Result<(), tokio::task::JoinError>) {
    if let Err(error) = done {
        tracing::error!(%error, "a connection's task failed");
    }
}

async fn serve(shared: Arc<Shared>, accepted: Accepted, counted: Counted) {
    match TcpStream::from_std(accepted.socket) {
        Ok(socket) => connection::serve(shared, socket, accepted.peer, accepted.permit).await,
        Err(error) => tracing::warn!(%error, "a connection cannot be watched"),
    }
    drop(counted);
}

/// One of a worker's connections.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
