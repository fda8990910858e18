//! The connection to one peer: made when there is something to send, kept, and made again.

use super::config::PeerLimits;
use super::dial::dial;
use super::error::{DropReason, PeerError};
use super::frames::Frames;
use super::hello::{LocalNode, check_answer};
use super::message::{FirstFrame, FirstFrameKind, PeerFrame, PeerHello};
use super::queue::Queue;
use crate::metrics::metrics;
use bytes::BytesMut;
use kv_api::wire::encode_frame;
use parking_lot::Mutex;
use replication::message::PEER_PROTOCOL_VERSION;
use replication::{Envelope, NodeId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_rustls::client::TlsStream;

/// A connection that lasted this long was not refused, so the next pause is short again.
const STABLE: Duration = Duration::from_secs(2);
/// A buffer that grew beyond this is given back when its frame is written.
const KEEP_CAPACITY: usize = 64 << 10;

/// What all connections to peers have in common.
pub(super) struct Common {
    pub(super) local: LocalNode,
    pub(super) tls: Arc<rustls::ClientConfig>,
    pub(super) limits: PeerLimits,
}

/// A peer as its sender sees it.
pub(super) struct Peer {
    pub(super) node: NodeId,
    pub(super) queue: Queue,
    pub(super) connected: AtomicBool,
    pub(super) sent: AtomicU64,
    pub(super) dropped: AtomicU64,
    /// Why the last attempt to connect came to nothing, for people.
    pub(super) problem: Mutex<Option<String>>,
}

impl Peer {
    pub(super) fn new(node: NodeId, limits: &PeerLimits) -> Self {
        Peer {
            node,
            queue: Queue::new(limits),
            connected: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            problem: Mutex::new(None),
        }
    }

    pub(super) fn drop_messages(&self, messages: usize, reason: DropReason) {
        self.dropped.fetch_add(messages as u64, Ordering::Relaxed);
        reason.count(messages);
    }
}

/// Sends what is queued for a peer to the address shown, until nobody can change that any more.
pub(super) async fn keep(peer: Arc<Peer>, common: Arc<Common>, mut address: watch::Receiver<String>) {
    let mut pause = common.limits.reconnect_first;
    let mut logged = Logged::default();
    loop {
        tokio::select! {
            () = peer.queue.ready() => {}
            changed = address.changed() => if changed.is_err() { break },
        }
        let target = address.borrow_and_update().clone();
        let started = Instant::now();
        let ended = tokio::select! {
            ended = connect_and_send(&peer, &common, &target, &mut logged) => ended,
            changed = address.changed() => {
                pause = common.limits.reconnect_first;
                if changed.is_err() { break } else { continue }
            }
        };
        if started.elapsed() > STABLE {
            pause = common.limits.reconnect_first;
        }
        let Err(error) = ended else { continue };
        logged.failed(peer.node, &target, &error);
        *peer.problem.lock() = Some(error.to_string());
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(common.limits.reconnect_most),
            changed = address.changed() => {
                pause = common.limits.reconnect_first;
                if changed.is_err() { break }
            }
        }
    }
    peer.drop_messages(peer.queue.clear(), DropReason::Unreachable);
}

/// What of the present outage is in the log: one line of each kind is enough.
#[derive(Default)]
struct Logged {
    unreachable: bool,
    refused: Option<String>,
}

impl Logged {
    fn failed(&mut self, node: NodeId, address: &str, error: &PeerError) {
        match error {
            PeerError::Refused(message) if self.refused.as_ref() != Some(message) => {
                tracing::error!(node, address, "no connection to the KV node: {message}");
                self.refused = Some(message.clone());
            }
            PeerError::Refused(_) => {}
            error if !self.unreachable => {
                tracing::warn!(node, address, "no connection to the KV node: {error}");
                self.unreachable = true;
            }
            _ => {}
        }
    }

    fn connected(&mut self, node: NodeId, address: &str) {
        tracing::info!(node, address, "connected to the KV node");
        *self = Logged::default();
    }
}

/// Counts a connection for as long as there is one.
struct Connected<'a>(&'a Peer);

impl<'a> Connected<'a> {
    fn new(peer: &'a Peer) -> Self {
        *peer.problem.lock() = None;
        peer.connected.store(true, Ordering::Relaxed);
        metrics().peers_connected.inc();
        Connected(peer)
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.connected.store(false, Ordering::Relaxed);
        metrics().peers_connected.dec();
    }
}

/// Returns without an error if the connection was closed because there was nothing to send.
async fn connect_and_send(
    peer: &Peer,
    common: &Common,
    address: &str,
    logged: &mut Logged,
) -> Result<(), PeerError> {
    let connecting = connect(peer.node, common, address);
    let connected = timeout(common.limits.handshake_timeout, connecting).await;
    let stream = match connected.unwrap_or(Err(PeerError::Handshake)) {
        Ok(stream) => stream,
        Err(error) => {
            // Old messages are of little use, and new ones will come.
            peer.drop_messages(peer.queue.clear(), DropReason::Unreachable);
            return Err(error);
        }
    };
    logged.connected(peer.node, address);
    let _connected = Connected::new(peer);
    send_queued(peer, &common.limits, stream).await
}

/// Connects and exchanges hellos.
async fn connect(node: NodeId, common: &Common, address: &str) -> Result<TlsStream<TcpStream>, PeerError> {
    let mut frames = Frames::new(dial(address, &common.tls, &common.limits).await?);
    let hello = PeerHello {
        version: PEER_PROTOCOL_VERSION,
        cluster_id: common.local.cluster_id.clone(),
        node_id: common.local.node_id.unwrap_or(0),
        to_node: node,
        refused: None,
    };
    frames.write(&FirstFrame { kind: Some(FirstFrameKind::Hello(hello)) }).await?;
    let answer: PeerHello = frames.first().await?;
    check_answer(&answer, &common.local, node).map_err(PeerError::Refused)?;
    // A receiver says nothing after its hello, so nothing can be left in the buffer.
    Ok(frames.stream)
}

/// Messages on their way; dropped ones unless they were written.
struct InFlight<'a> {
    peer: &'a Peer,
    messages: usize,
}

impl InFlight<'_> {
    fn written(mut self, bytes: usize) {
        let messages = std::mem::take(&mut self.messages) as u64;
        self.peer.sent.fetch_add(messages, Ordering::Relaxed);
        metrics().peer_sent.inc_by(messages);
        metrics().peer_bytes_sent.inc_by(bytes as u64);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.peer.drop_messages(self.messages, DropReason::Unreachable);
    }
}

async fn send_queued(
    peer: &Peer,
    limits: &PeerLimits,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) -> Result<(), PeerError> {
    let mut output = BytesMut::new();
    let mut nothing = [0; 1];
    loop {
        tokio::select! {
            biased;
            read = stream.read(&mut nothing) => return Err(match read {
                Ok(0) => PeerError::Closed,
                Ok(_) => PeerError::Unexpected,
                Err(error) => error.into(),
            }),
            () = peer.queue.ready() => {}
            () = tokio::time::sleep(limits.idle_timeout) => {
                tracing::debug!(node = peer.node, "nothing to send to the KV node; disconnecting");
                return match timeout(limits.write_timeout, stream.shutdown()).await {
                    Ok(closed) => Ok(closed?),
                    Err(_) => Err(PeerError::SlowReader),
                };
            }
        }
        let envelopes: Vec<Envelope> = peer.queue.take(limits.frame_bytes);
        let in_flight = InFlight { peer, messages: envelopes.len() };
        encode_frame(&PeerFrame { envelopes }, &mut output);
        let writing = async {
            stream.write_all(&output).await?;
            stream.flush().await
        };
        timeout(limits.write_timeout, writing).await.map_err(|_| PeerError::SlowReader)??;
        in_flight.written(output.len());
        if output.capacity() > KEEP_CAPACITY {
            output = BytesMut::new();
        } else {
            output.clear();
        }
    }
}
