//! The process: listens, waits for its tenant, serves, ends.

use crate::cancel::CancelRegistry;
use crate::config::Config;
use crate::{control_link, listener};
use rand::Rng;
use sql::engine::Engine;
use sql_types::{SqlError, SqlResult, SqlState};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// A connection to a node without a tenant waits this long for one.
const ASSIGNMENT_WAIT: Duration = Duration::from_secs(15);
/// Connections have this long to end after shutdown was asked for.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);

/// What the connections of a node share.
pub struct Node {
    /// Cancel keys of the sessions.
    pub cancels: CancelRegistry,
    /// Makes the salts of roles that do not exist.
    pub mock_secret: [u8; 32],
    engine: watch::Sender<Option<Arc<Engine>>>,
    connections: AtomicUsize,
    max_connections: usize,
    /// Wakes whoever reports the number of connections.
    pub(crate) changed: Notify,
    shutdown: watch::Sender<bool>,
}

/// A connection's place among [`Config::max_connections`].
pub struct Place<'a>(&'a Node);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
        self.0.changed.notify_one();
    }
}

impl Node {
    fn new(max_connections: usize) -> Self {
        Node {
            cancels: CancelRegistry::default(),
            mock_secret: rand::rng().random(),
            engine: watch::Sender::new(None),
            connections: AtomicUsize::new(0),
            max_connections,
            changed: Notify::new(),
            shutdown: watch::Sender::new(false),
        }
    }

    /// Takes a place for a connection; `None` if all are taken or the node is ending.
    pub fn admit(&self) -> Option<Place<'_>> {
        let taken = self.connections.fetch_add(1, Ordering::AcqRel);
        let place = Place(self);
        if taken >= self.max_connections || *self.shutdown.borrow() {
            return None;
        }
        self.changed.notify_one();
        Some(place)
    }

    /// Connections now.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    /// The engine, once the node has a tenant; waits for it.
    ///
    /// # Errors
    /// 57P03 if no tenant comes.
    pub async fn engine(&self) -> SqlResult<Arc<Engine>> {
        let mut engine = self.engine.subscribe();
        let assigned = tokio::time::timeout(ASSIGNMENT_WAIT, engine.wait_for(Option::is_some)).await;
        match assigned {
            Ok(Ok(engine)) => engine.clone().ok_or_else(|| SqlError::internal("no engine")),
            _ => Err(SqlError::new(SqlState::CANNOT_CONNECT_NOW, "this SQL node has no tenant yet")),
        }
    }

    /// Whether the node has a tenant, and which.
    pub fn tenant_id(&self) -> Option<u64> {
        self.engine.borrow().as_ref().map(|engine| engine.tenant().id)
    }

    pub(crate) fn assign(&self, engine: Arc<Engine>) {
        self.engine.send_replace(Some(engine));
    }

    /// Resolves when the node is to end.
    pub fn shutdown(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut shutdown = self.shutdown.subscribe();
        async move {
            // The sender lives as long as the node; an error means that it ends.
            let _ = shutdown.wait_for(|ends| *ends).await;
        }
    }

    /// Asks everything to end.
    pub(crate) fn end(&self) {
        self.shutdown.send_replace(true);
    }
}

/// Runs a SQL node until it is suspended, told to stop, or abandoned by its supervisor.
///
/// # Errors
/// If it cannot listen.
pub async fn run(config: Config, stop: impl Future<Output = ()>) -> io::Result<()> {
    // A socket left behind by a process that was killed.
    match std::fs::remove_file(&config.socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let unix = tokio::net::UnixListener::bind(&config.socket)?;
    std::fs::set_permissions(&config.socket, std::fs::Permissions::from_mode(0o600))?;
    let node = Arc::new(Node::new(config.max_connections));
    let unix = tokio::spawn(listener::serve_unix(unix, node.clone()));
    if let Some((address, tls)) = &config.listen {
        let tcp = tokio::net::TcpListener::bind(address).await?;
        tracing::info!(address = %tcp.local_addr()?, "listening");
        tokio::spawn(listener::serve_tcp(tcp, tls.clone(), node.clone()));
    }
    // Builds the function registry while nobody waits for it.
    let _ = sql_types::functions::resolve("now", &[]);
    tokio::select! {
        () = control_link::run(&config, &node) => {}
        () = stop => {}
    }
    // No new connection finds the socket; those that are open are told.
    unix.abort();
    let _ = std::fs::remove_file(&config.socket);
    let _ = std::fs::remove_dir_all(config.spill_directory());
    node.end();
    let ended = async {
        while node.connections() > 0 {
            node.changed.notified().await;
        }
    };
    let _ = tokio::time::timeout(SHUTDOWN_WAIT, ended).await;
    if let Some(engine) = node.engine.borrow().clone() {
        // Other SQL nodes of the tenant, and the next one, need not wait for the end of its lease then.
        let _ = tokio::time::timeout(SHUTDOWN_WAIT, engine.retire()).await;
    }
    Ok(())
}
