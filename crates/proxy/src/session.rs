//! A session from the moment its SQL node answers: authentication and what follows are relayed until one
//! side ends.
//!
//! While authenticating, the node's messages are followed so that its cancel key can be exchanged
//! ([`KeyFilter`]); afterwards both directions are copied and only message headers are looked at
//! ([`Frames`]), so that a node's sudden end can be told to the client at a point where it understands.

use crate::cancel::{Issued, Target};
use crate::error::ClientError;
use crate::flow::{Flow, FlowEnd};
use crate::frames::{Frames, KeyFilter};
use crate::metrics::Metrics;
use crate::routes::Route;
use crate::startup::CancelKey;
use crate::stream::Stream;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::sync::watch;

/// Type of the message with which a client takes its leave.
const TERMINATE: u8 = b'X';
/// Bytes that may go by before the counters are told.
const COUNT_EVERY: u64 = 64 * 1024;

/// Why a session ended.
#[derive(Debug)]
pub(crate) enum SessionEnd {
    /// The client is done or gone.
    Client,
    /// The node ended the session and said so.
    Node,
    /// The node fell silent: its process ended, or its socket failed.
    NodeLost,
    /// The node spoke something else than the protocol.
    NodeMalformed,
    /// The proxy is stopping.
    Stopped,
}

/// How far the node's side is.
#[derive(Debug)]
enum Following {
    Starting(Box<KeyFilter>),
    Running(Frames),
}

/// The wish that every session ends.
#[derive(Debug)]
pub(crate) struct Stop {
    flag: AtomicBool,
    channel: watch::Sender<bool>,
}

impl Stop {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { flag: AtomicBool::new(false), channel: watch::Sender::new(false) })
    }

    /// Asks every session to end.
    pub fn stop(&self) {
        self.flag.store(true, Ordering::Release);
        self.channel.send_replace(true);
    }

    fn is_set(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    /// Ends when the proxy is asked to stop.
    pub async fn wait(&self) {
        // The sender lives in `self`, so the wait cannot fail.
        let _ = self.channel.subscribe().wait_for(|stopped| *stopped).await;
    }
}

/// A client and its node.
#[derive(Debug)]
pub(crate) struct Session {
    client: Stream,
    node: Stream,
    /// Client to node.
    up: Flow,
    /// Node to client.
    down: Flow,
    /// The node takes no more bytes.
    up_closed: bool,
    /// What the node said first was malformed.
    refused: bool,
    client_frames: Frames,
    node_side: Following,
    key: Issued,
    route: Route,
    metrics: Arc<Metrics>,
}

impl Session {
    /// Joins a client and a node.
    pub fn new(parts: Parts) -> Self {
        let Parts { client, node, early, mut answer, preface, key, route, metrics } = parts;
        let mut client_frames = Frames::default();
        client_frames.advance(&early);
        let mut node_side = Following::Starting(Box::new(KeyFilter::new(key.key())));
        let refused = !node_side.follow(&mut answer, &key, &route);
        let mut first = preface;
        first.append(&mut answer);
        Self {
            client,
            node,
            up: Flow::starting_with(early),
            down: Flow::starting_with(first),
            up_closed: false,
            refused,
            client_frames,
            node_side,
            key,
            route,
            metrics,
        }
    }

    /// Name of the SQL node.
    pub fn node_name(&self) -> &str {
        &self.route.node
    }

    /// Relays until the session can take statements.
    pub async fn authenticate(&mut self, stop: &Stop) -> Result<(), SessionEnd> {
        let mut stopped = std::pin::pin!(stop.wait());
        poll_fn(|cx| {
            if stopped.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(SessionEnd::Stopped));
            }
            if self.refused {
                return Poll::Ready(Err(SessionEnd::NodeMalformed));
            }
            let end = self.poll_both(cx);
            if let Following::Starting(filter) = &self.node_side
                && filter.is_ready()
            {
                self.node_side = Following::Running(filter.frames().clone());
                return Poll::Ready(Ok(()));
            }
            end.map(Err)
        })
        .await
    }

    /// Relays until one side ends.
    pub async fn run(&mut self, stop: &Stop, half_closed_patience: Duration) -> SessionEnd {
        let end = self.run_until_half_closed(stop).await;
        match end {
            Some(end) => end,
            None => self.run_half_closed(stop, half_closed_patience).await,
        }
    }

    /// Relays until an end, or until the client has closed its half only (`None`).
    async fn run_until_half_closed(&mut self, stop: &Stop) -> Option<SessionEnd> {
        let mut stopped = std::pin::pin!(tokio::task::unconstrained(stop.wait()));
        let mut registered = false;
        poll_fn(|cx| {
            // The waiter is registered once for this task; polling it again for every message would
            // take its lock every time.
            if stop.is_set() || (!registered && stopped.as_mut().poll(cx).is_ready()) {
                return Poll::Ready(Some(SessionEnd::Stopped));
            }
            registered = true;
            match self.poll_both(cx) {
                Poll::Ready(end) => Poll::Ready(Some(end)),
                Poll::Pending if self.up.sender_ended() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// The client will send nothing more. Usually it is gone; as long as the node has something for it,
    /// it may be listening.
    async fn run_half_closed(&mut self, stop: &Stop, patience: Duration) -> SessionEnd {
        if self.client_frames.last_kind() == TERMINATE {
            return SessionEnd::Client;
        }
        let mut stopped = std::pin::pin!(stop.wait());
        loop {
            let before = self.down.total();
            let relay = poll_fn(|cx| {
                if stopped.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(SessionEnd::Stopped);
                }
                self.poll_both(cx)
            });
            match tokio::time::timeout(patience, relay).await {
                Ok(end) => return end,
                Err(_) if self.down.total() == before => return SessionEnd::Client,
                Err(_) => {}
            }
        }
    }

    fn poll_both(&mut self, cx: &mut Context<'_>) -> Poll<SessionEnd> {
        if !self.up_closed
            && let Poll::Ready(end) = self.poll_up(cx)
        {
            return Poll::Ready(end);
        }
        self.poll_down(cx)
    }

    fn poll_up(&mut self, cx: &mut Context<'_>) -> Poll<SessionEnd> {
        let frames = &mut self.client_frames;
        let end = self.up.poll(cx, &mut self.client, &mut self.node, |chunk| {
            frames.advance(chunk);
            true
        });
        if let Some(bytes) = self.up.take_uncounted(COUNT_EVERY) {
            self.metrics.bytes_from_clients.inc_by(bytes);
        }
        match end {
            Poll::Pending => Poll::Pending,
            Poll::Ready(FlowEnd::SenderFailed(error)) => {
                tracing::debug!(%error, "receiving from a client failed");
                Poll::Ready(SessionEnd::Client)
            }
            // What the node may still have to say is heard.
            Poll::Ready(FlowEnd::Finished) => {
                self.up_closed = Pin::new(&mut self.node).poll_shutdown(cx).is_ready();
                Poll::Pending
            }
            Poll::Ready(FlowEnd::ReceiverFailed(error)) => {
                tracing::debug!(%error, "sending to a SQL node failed");
                self.up_closed = true;
                Poll::Pending
            }
            Poll::Ready(FlowEnd::Refused) => Poll::Ready(SessionEnd::Client),
        }
    }

    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<SessionEnd> {
        let (side, key, route) = (&mut self.node_side, &self.key, &self.route);
        let end =
            self.down.poll(cx, &mut self.node, &mut self.client, |chunk| side.follow(chunk, key, route));
        if let Some(bytes) = self.down.take_uncounted(COUNT_EVERY) {
            self.metrics.bytes_to_clients.inc_by(bytes);
        }
        end.map(|end| match end {
            FlowEnd::Finished if self.said_everything() => SessionEnd::Node,
            FlowEnd::Finished => SessionEnd::NodeLost,
            FlowEnd::SenderFailed(error) => {
                tracing::debug!(%error, "receiving from a SQL node failed");
                SessionEnd::NodeLost
            }
            FlowEnd::ReceiverFailed(error) => {
                tracing::debug!(%error, "sending to a client failed");
                SessionEnd::Client
            }
            FlowEnd::Refused => SessionEnd::NodeMalformed,
        })
    }

    /// Whether a node that closed had no more to say.
    fn said_everything(&self) -> bool {
        self.node_frames().ended_fatally()
            || self.client_frames.last_kind() == TERMINATE
            || self.up.sender_ended()
    }

    fn node_frames(&self) -> &Frames {
        match &self.node_side {
            Following::Starting(filter) => filter.frames(),
            Following::Running(frames) => frames,
        }
    }

    /// Tells the client how its session ended, if it can still understand, and closes both sides.
    pub async fn close(mut self, last_words: Option<ClientError>, patience: Duration) {
        self.count();
        let understands = !self.down.has_pending() && self.node_frames().at_boundary();
        // Before the client hears of the end, so that nothing can be cancelled after it.
        drop((self.key, self.node));
        let words = last_words.filter(|_| understands).map(|error| error.encode());
        self.client.close_with(&words.unwrap_or_default(), patience).await;
    }

    /// Closes both sides of a session whose client is gone.
    pub fn abandon(mut self) {
        self.count();
    }

    /// Counts the bytes that are not counted yet.
    fn count(&mut self) {
        self.metrics.bytes_from_clients.inc_by(self.up.take_uncounted(0).unwrap_or(0));
        self.metrics.bytes_to_clients.inc_by(self.down.take_uncounted(0).unwrap_or(0));
    }
}

impl Following {
    /// Follows a chunk from the node. False if it may not go on.
    fn follow(&mut self, chunk: &mut [u8], key: &Issued, route: &Route) -> bool {
        match self {
            Self::Running(frames) => {
                frames.advance(chunk);
                true
            }
            Self::Starting(filter) => match filter.filter(chunk) {
                Ok(filtered) => {
                    attach(key, route, filtered.key);
                    true
                }
                Err(_) => false,
            },
        }
    }
}

fn attach(key: &Issued, route: &Route, node_key: Option<CancelKey>) {
    if let Some(node_key) = node_key {
        key.attach(Target { tenant_id: route.tenant_id, address: Arc::clone(&route.address), key: node_key });
    }
}

/// What a session is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub client: Stream,
    pub node: Stream,
    /// What the client sent beyond its startup packet.
    pub early: Vec<u8>,
    /// What the node said first.
    pub answer: Vec<u8>,
    /// What the client has to hear before that.
    pub preface: Vec<u8>,
    pub key: Issued,
    pub route: Route,
    pub metrics: Arc<Metrics>,
}
