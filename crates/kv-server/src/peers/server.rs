//! The receiving side: what the listener does with a connection from a KV node.

use super::config::PeerLimits;
use super::error::{DropReason, PeerError};
use super::frames::Frames;
use super::hello::{LocalNode, check_hello, check_version};
use super::join::JoinHandler;
use super::message::{FirstFrame, FirstFrameKind, JoinRequest, JoinResponse, PeerFrame, PeerHello};
use super::partition::Partition;
use crate::metrics::metrics;
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use replication::message::PEER_PROTOCOL_VERSION;
use replication::{Envelope, NodeId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

/// Most nodes whose refusals are remembered, so as not to log them again.
const MAX_REFUSALS: usize = 1024;
/// Bounds on what a node that joins says of itself, in bytes.
const MAX_ADDRESS_LEN: usize = 300;
const MAX_LOCALITY_LEN: usize = 1024;
const MAX_STORE_ID_LEN: usize = 128;

/// Who receives, and where to.
pub struct PeerServerConfig {
    /// This node; `None` until it has joined ([`PeerServer::joined`]).
    pub node_id: Option<NodeId>,
    /// Its cluster; of no consequence until it has joined.
    pub cluster_id: String,
    /// Where messages go, one frame at a time. Connections wait for room in it.
    ///
    /// What an envelope holds as [`bytes::Bytes`] are slices of the buffer it was received in, with up to
    /// a MiB of neighbours: whoever keeps one for long should copy it.
    pub incoming: mpsc::Sender<Vec<Envelope>>,
    /// Answers requests to join.
    pub join: Arc<dyn JoinHandler>,
    /// Bounds.
    pub limits: PeerLimits,
}

/// What all connections from KV nodes have in common.
pub struct PeerServer {
    local: RwLock<LocalNode>,
    incoming: mpsc::Sender<Vec<Envelope>>,
    join: Arc<dyn JoinHandler>,
    limits: PeerLimits,
    partition: Partition,
    dropped: AtomicU64,
    /// By node, why it was refused last.
    refusals: Mutex<HashMap<NodeId, String>>,
    /// By node, what ends the connection from it. A node that makes another one has given up the first,
    /// which may not have noticed.
    connections: Mutex<HashMap<NodeId, Arc<Notify>>>,
}

/// A connection's place in [`PeerServer::connections`].
struct Connection<'a> {
    server: &'a PeerServer,
    from: NodeId,
    replaced: Arc<Notify>,
}

impl<'a> Connection<'a> {
    /// Ends the connection before this one.
    fn register(server: &'a PeerServer, from: NodeId) -> Self {
        let replaced = Arc::new(Notify::new());
        if let Some(earlier) = server.connections.lock().insert(from, Arc::clone(&replaced)) {
            earlier.notify_one();
        }
        Connection { server, from, replaced }
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        let mut connections = self.server.connections.lock();
        if connections.get(&self.from).is_some_and(|present| Arc::ptr_eq(present, &self.replaced)) {
            connections.remove(&self.from);
        }
    }
}

impl PeerServer {
    /// A receiver.
    pub fn new(config: PeerServerConfig) -> Self {
        PeerServer {
            local: RwLock::new(LocalNode { node_id: config.node_id, cluster_id: config.cluster_id }),
            incoming: config.incoming,
            join: config.join,
            limits: config.limits,
            partition: Partition::default(),
            dropped: AtomicU64::new(0),
            refusals: Mutex::default(),
            connections: Mutex::default(),
        }
    }

    /// Says which node of which cluster this process has become. Until then it refuses its peers.
    pub fn joined(&self, node_id: NodeId, cluster_id: String) {
        *self.local.write() = LocalNode { node_id: Some(node_id), cluster_id };
    }

    /// Messages received and dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Drops everything from a node from now on, as a cut in the network would. For tests and `dormouse
    /// debug`.
    pub fn block(&self, node: NodeId) {
        self.partition.block(node);
    }

    /// Takes [`PeerServer::block`] back.
    pub fn unblock(&self, node: NodeId) {
        self.partition.unblock(node);
    }

    fn drop_messages(&self, messages: usize, reason: DropReason) {
        self.dropped.fetch_add(messages as u64, Ordering::Relaxed);
        reason.count(messages);
    }

    /// Logs a refusal unless it is the same as the last one of this node.
    fn log_refusal(&self, node: NodeId, message: &str) {
        if is_news(&mut self.refusals.lock(), node, message) {
            tracing::warn!(node, "a KV node is refused: {message}");
        }
    }
}

/// Remembers why a node was refused; says whether that is another reason than the last time.
fn is_news(refusals: &mut HashMap<NodeId, String>, node: NodeId, message: &str) -> bool {
    if refusals.get(&node).is_some_and(|last| last == message) {
        return false;
    }
    if refusals.len() >= MAX_REFUSALS {
        refusals.clear();
    }
    refusals.insert(node, message.to_owned());
    true
}

/// Serves a connection from a KV node, as proven by its certificate, until it ends. To end it from this
/// side, drop the future.
///
/// # Errors
/// See [`PeerError`]. It has been logged.
pub async fn serve_peer<S>(stream: S, server: &PeerServer) -> Result<(), PeerError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut frames = Frames::new(stream);
    let served = match timeout(server.limits.handshake_timeout, frames.first()).await {
        Err(_) => Err(PeerError::Handshake),
        Ok(Err(error)) => Err(error),
        Ok(Ok(FirstFrame { kind: None })) => Err(PeerError::UnknownKind),
        Ok(Ok(FirstFrame { kind: Some(FirstFrameKind::Hello(hello)) })) => {
            receive(&mut frames, hello, server).await
        }
        Ok(Ok(FirstFrame { kind: Some(FirstFrameKind::Join(request)) })) => {
            answer_join(&mut frames, request, server).await
        }
    };
    match &served {
        // Logged once, not for every attempt.
        Ok(()) | Err(PeerError::Refused(_)) => {}
        Err(error) => tracing::warn!("a connection from a KV node ended: {error}"),
    }
    served
}

async fn receive<S>(frames: &mut Frames<S>, hello: PeerHello, server: &PeerServer) -> Result<(), PeerError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let local = server.local.read().clone();
    let checked = check_hello(&hello, &local);
    let answer = PeerHello {
        version: PEER_PROTOCOL_VERSION,
        cluster_id: local.cluster_id,
        node_id: local.node_id.unwrap_or(0),
        to_node: hello.node_id,
        refused: checked.as_ref().err().cloned(),
    };
    let connection = match checked {
        Ok(from) => Connection::register(server, from),
        Err(message) => {
            server.log_refusal(hello.node_id, &message);
            let refusing = async {
                frames.write(&answer).await?;
                Ok::<_, PeerError>(frames.stream.shutdown().await?)
            };
            let _ = timeout(server.limits.write_timeout, refusing).await;
            return Err(PeerError::Refused(message));
        }
    };
    let answering = timeout(server.limits.write_timeout, frames.write(&answer)).await;
    answering.map_err(|_| PeerError::SlowReader)??;
    let from = connection.from;
    server.refusals.lock().remove(&from);
    tracing::info!(node = from, "a KV node has connected");
    let received = tokio::select! {
        received = receive_frames(frames, from, answer.node_id, server) => received,
        () = connection.replaced.notified() => Ok(()),
    };
    tracing::debug!(node = from, "a KV node has disconnected");
    received
}

async fn receive_frames<S>(
    frames: &mut Frames<S>,
    from: NodeId,
    to: NodeId,
    server: &PeerServer,
) -> Result<(), PeerError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some((PeerFrame { mut envelopes }, bytes)) = frames.next(server.limits.frame_timeout).await? {
        metrics().peer_received.inc_by(envelopes.len() as u64);
        metrics().peer_bytes_received.inc_by(bytes as u64);
        keep_addressed(&mut envelopes, from, to, server);
        if !envelopes.is_empty() && server.incoming.send(envelopes).await.is_err() {
            // This node is stopping.
            break;
        }
    }
    Ok(())
}

/// Leaves the messages that come from whom they should and go where they should.
fn keep_addressed(envelopes: &mut Vec<Envelope>, from: NodeId, to: NodeId, server: &PeerServer) {
    let received = envelopes.len();
    envelopes.retain(|envelope| envelope.from == from && envelope.to == to);
    server.drop_messages(received - envelopes.len(), DropReason::Misaddressed);
    if server.partition.is_blocked(from) {
        server.drop_messages(envelopes.len(), DropReason::Blocked);
        envelopes.clear();
    }
}

async fn answer_join<S>(
    frames: &mut Frames<S>,
    request: JoinRequest,
    server: &PeerServer,
) -> Result<(), PeerError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let address = request.address.clone();
    let response = match timeout(server.limits.join_timeout, join_response(request, server)).await {
        Ok(response) => response,
        Err(_) => JoinResponse::try_again("the cluster did not take the new node in within the time allowed"),
    };
    if let Some(error) = &response.error {
        tracing::warn!(address, "a KV node cannot join: {error}");
    }
    let answering = async {
        frames.write(&response).await?;
        Ok(frames.stream.shutdown().await?)
    };
    timeout(server.limits.write_timeout, answering).await.unwrap_or(Err(PeerError::SlowReader))
}

async fn join_response(request: JoinRequest, server: &PeerServer) -> JoinResponse {
    if let Err(message) = check_version(request.version, request.node_id) {
        return JoinResponse::refused(message);
    }
    let local = server.local.read().clone();
    if local.node_id.is_none() {
        return JoinResponse::try_again("this node has not joined a cluster yet itself");
    }
    if !request.cluster_id.is_empty() && request.cluster_id != local.cluster_id {
        return JoinResponse::refused(format!(
            "the node belongs to cluster {:?}, this is cluster {:?}: correct the addresses it is started \
             with, or start it with an empty data directory to have it join this one",
            request.cluster_id, local.cluster_id
        ));
    }
    if let Err(message) = check_request(&request) {
        return JoinResponse::refused(message);
    }
    server.join.join(request).await
}

/// What a node says of itself ends up in the list of members, so it has a bound.
fn check_request(request: &JoinRequest) -> Result<(), String> {
    let JoinRequest { address, locality, store_id, .. } = request;
    let says_port = address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port != "0");
    if !says_port || address.len() > MAX_ADDRESS_LEN {
        return Err(format!(
            "{:?} is not an address that other nodes can reach: advertise one as host:port",
            address.chars().take(MAX_ADDRESS_LEN).collect::<String>()
        ));
    }
    if locality.len() > MAX_LOCALITY_LEN {
        return Err(format!("the locality is longer than {MAX_LOCALITY_LEN} bytes: shorten it"));
    }
    if store_id.is_empty() || store_id.len() > MAX_STORE_ID_LEN {
        return Err(format!("a store id has between 1 and {MAX_STORE_ID_LEN} bytes"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_news_once() {
        let mut refusals = HashMap::new();
        let told = [(1, "a"), (1, "a"), (2, "a"), (1, "b"), (1, "b"), (1, "a")];
        let news = told.map(|(node, message)| is_news(&mut refusals, node, message));
        assert_eq!(news, [true, false, true, true, false, true]);
        for node in 0..5 * MAX_REFUSALS as u64 {
            assert!(is_news(&mut refusals, 10 + node, "a"));
        }
        assert!(refusals.len() <= MAX_REFUSALS);
    }

    #[test]
    fn what_a_node_says_of_itself_has_bounds() {
        let request =
            JoinRequest { address: "[::1]:5".to_owned(), store_id: "s".to_owned(), ..JoinRequest::default() };
        assert_eq!(check_request(&request), Ok(()));
        for wrong in [
            JoinRequest { address: "host".to_owned(), ..request.clone() },
            JoinRequest { address: ":5".to_owned(), ..request.clone() },
            JoinRequest { address: "h".repeat(1000) + ":5", ..request.clone() },
            JoinRequest { locality: "l".repeat(2000), ..request.clone() },
            JoinRequest { store_id: String::new(), ..request.clone() },
        ] {
            assert!(check_request(&wrong).is_err(), "{wrong:?}");
        }
    }
}
