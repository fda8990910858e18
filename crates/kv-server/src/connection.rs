//! One connection: frames in, frames out.
//!
//! One task serves a connection. It reads whatever bytes there are, takes in every complete frame,
//! answers at once what can be, and writes all answers that are ready with one call. Batches that wait
//! are futures the same task drives; those that may take the processor for long get tasks of their own.
//! There are at most [`Limits::max_waiting_per_connection`] of both; at the bound, and while the client
//! does not take its answers, the socket is not read, so that a client is slowed down rather than
//! buffered for.
//!
//! When the connection ends, for whatever reason, what waits is dropped and the connection's open
//! transactions are aborted.

use crate::authorize::Caller;
use crate::config::Limits;
use crate::elsewhere::Elsewhere;
use crate::metrics::metrics;
use crate::node::{Answer, BatchResult, Node};
use crate::shard::ConnectionId;
use bytes::BytesMut;
use futures::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use kv_api::wire::{
    ClientFrame, FrameError, Hello, PROTOCOL_VERSION, ServerFrame, decode_frame, encode_frame,
};
use kv_api::{BatchResponse, KvError, KvErrorKind};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

/// Bytes of answers after which they are written before more frames are taken in.
const OUTPUT_HIGH_WATER: usize = 1 << 20;
/// Buffers larger than this are given back when they are empty.
const BUFFER_KEPT: usize = 64 << 10;
/// Room made before reading.
const READ_SIZE: usize = 16 << 10;
/// How far the bounds on what waits are stretched when all of it waits for locks.
const LOCK_WAIT_FACTOR: usize = 4;
/// How often a connection at its bounds looks whether all it has waits for locks by now.
const FULL_RECHECK: Duration = Duration::from_millis(50);
/// How long answers under way may take when the node shuts down.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Why a connection ended other than by the client closing it.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The socket failed.
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    /// The client sent bytes that are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The connection was closed within a frame.
    #[error("the client closed the connection in the middle of a frame")]
    Truncated,
    /// The first frame did not come, or not in time.
    #[error("no hello within the time allowed")]
    NoHello,
    /// The client speaks another version or expects another cluster.
    #[error("{0}")]
    Mismatch(String),
    /// A frame did not arrive within the time allowed.
    #[error("the client took too long to send a frame")]
    SlowSender,
    /// The client did not take its answers within the time allowed.
    #[error("the client took too long to read its answers")]
    SlowReader,
}

type Waiting = Pin<Box<dyn Future<Output = Finished> + Send>>;

/// The answer to a batch that waited.
struct Finished {
    frame: ServerFrame,
    /// Size of the batch.
    bytes: usize,
    /// Kept until the answer is on its way: the rows it holds are what the permit bounds.
    _permit: Option<OwnedSemaphorePermit>,
}

/// Aborts a connection's transactions when it ends.
struct Registered {
    node: Arc<Node>,
    caller: Caller,
    id: ConnectionId,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.node.close_connection(self.caller.tenant(), self.id);
        metrics().connections.dec();
    }
}

/// Serves a connection until it ends, or until `shutdown` turns true.
///
/// # Errors
/// See [`ConnectionError`]; all of them are worth a line in the log and nothing else.
pub async fn serve<S>(
    node: Arc<Node>,
    caller: Caller,
    mut stream: S,
    shutdown: watch::Receiver<bool>,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut input = BytesMut::new();
    let greeting = greet(&node, &mut stream, &mut input);
    match tokio::time::timeout(node.limits.handshake_timeout, greeting).await {
        Ok(greeted) => greeted?,
        Err(_) => return Err(ConnectionError::NoHello),
    }
    metrics().connections.inc();
    let id = node.open_connection(caller.tenant());
    let node_limits = node.limits.clone();
    let connection = Connection {
        limits: node_limits.clone(),
        registered: Registered { node, caller, id },
        stream,
        input,
        output: BytesMut::new(),
        waiting: FuturesUnordered::new(),
        waiting_bytes: 0,
        large_reads: Arc::new(Semaphore::new(node_limits.max_large_reads_per_connection)),
        frame_started: None,
    };
    connection.run(shutdown).await
}

/// Tells a client that it is refused.
pub async fn refuse(stream: &mut (impl AsyncWrite + Unpin), error: KvError) -> io::Result<()> {
    let mut output = BytesMut::new();
    encode_frame(&Hello { version: PROTOCOL_VERSION, refused: Some(error), ..Hello::default() }, &mut output);
    stream.write_all(&output).await?;
    stream.shutdown().await
}

async fn greet(
    node: &Node,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    input: &mut BytesMut,
) -> Result<(), ConnectionError> {
    let hello: Hello = loop {
        if let Some(hello) = decode_frame(input)? {
            break hello;
        }
        if stream.read_buf(input).await? == 0 {
            return Err(ConnectionError::NoHello);
        }
    };
    let mismatch = if hello.version != PROTOCOL_VERSION {
        Some(format!(
            "the client speaks protocol version {}, this KV node version {PROTOCOL_VERSION}",
            hello.version
        ))
    } else if !hello.cluster_id.is_empty() && hello.cluster_id != node.cluster_id() {
        Some("the client expects another cluster than the one this KV node belongs to".to_owned())
    } else {
        None
    };
    if let Some(message) = mismatch {
        refuse(stream, KvError::new(KvErrorKind::InvalidRequest, message.clone())).await?;
        return Err(ConnectionError::Mismatch(message));
    }
    let mut output = BytesMut::new();
    let hello = Hello {
        version: PROTOCOL_VERSION,
        cluster_id: node.cluster_id().to_owned(),
        addresses: node.addresses(),
        refused: None,
    };
    encode_frame(&hello, &mut output);
    stream.write_all(&output).await?;
    Ok(stream.flush().await?)
}

struct Connection<S> {
    limits: Limits,
    stream: S,
    input: BytesMut,
    output: BytesMut,
    /// Dropped before `registered`, so that nothing waits any more when transactions are aborted.
    waiting: FuturesUnordered<Waiting>,
    /// Size of the batches in `waiting`.
    waiting_bytes: usize,
    large_reads: Arc<Semaphore>,
    /// When the first byte of the frame in `input` arrived, if it is incomplete.
    frame_started: Option<Instant>,
    registered: Registered,
}

enum Event {
    Received(io::Result<usize>),
    Finished,
    Recheck,
    FrameTimeout,
    Shutdown,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn run(mut self, mut shutdown: watch::Receiver<bool>) -> Result<(), ConnectionError> {
        loop {
            let drained = self.take_frames().await?;
            self.collect_finished();
            self.write().await?;
            let full = self.is_full();
            if !drained && !full {
                continue;
            }
            match self.next_event(!full, &mut shutdown).await {
                Event::Received(received) => {
                    let received = match received {
                        // A client that dies says no goodbye on TLS.
                        Err(error) if is_end(&error) => 0,
                        received => received?,
                    };
                    if received == 0 {
                        return if self.input.is_empty() { Ok(()) } else { Err(ConnectionError::Truncated) };
                    }
                }
                Event::Finished | Event::Recheck => {}
                Event::FrameTimeout => return Err(ConnectionError::SlowSender),
                Event::Shutdown => return self.finish().await,
            }
        }
    }

    async fn next_event(&mut self, may_read: bool, shutdown: &mut watch::Receiver<bool>) -> Event {
        if may_read {
            self.input.reserve(READ_SIZE);
        }
        let deadline = self.frame_started.filter(|_| may_read).map(|started| started + self.frame_time());
        tokio::select! {
            biased;
            _ = shutdown.wait_for(|shutdown| *shutdown) => Event::Shutdown,
            received = self.stream.read_buf(&mut self.input), if may_read => Event::Received(received),
            finished = self.waiting.next(), if !self.waiting.is_empty() => {
                finished.into_iter().for_each(|finished| self.finished(finished));
                Event::Finished
            }
            () = tokio::time::sleep(FULL_RECHECK), if !may_read => Event::Recheck,
            () = until(deadline), if deadline.is_some() => Event::FrameTimeout,
        }
    }

    /// The time allowed for the frame in `input`: by its length, once that is known.
    fn frame_time(&self) -> Duration {
        let len = self.input.first_chunk::<4>().map_or(0, |header| u32::from_be_bytes(*header));
        self.limits.frame_timeout * (1 + (len >> 20))
    }

    /// Takes in complete frames. Says whether none is left; otherwise a bound was reached.
    async fn take_frames(&mut self) -> Result<bool, ConnectionError> {
        let received = Instant::now();
        while self.output.len() < OUTPUT_HIGH_WATER && !self.is_full() {
            let before = self.input.len();
            let Some(frame) = decode_frame::<ClientFrame>(&mut self.input)? else {
                self.frame_started =
                    if self.input.is_empty() { None } else { self.frame_started.or(Some(received)) };
                if self.input.is_empty() && self.input.capacity() > BUFFER_KEPT {
                    self.input = BytesMut::new();
                }
                return Ok(true);
            };
            self.frame_started = None;
            self.take(frame, received, before - self.input.len()).await;
        }
        Ok(false)
    }

    async fn take(&mut self, frame: ClientFrame, received: Instant, bytes: usize) {
        let id = frame.id;
        if let Some(cluster) = self.registered.node.cluster() {
            cluster.sample(&frame.batch);
        }
        let finished = move |result| Finished { frame: answer(id, result, received), bytes, _permit: None };
        let waiting: Waiting =
            match self.registered.node.handle(self.registered.caller, self.registered.id, frame.batch) {
                Answer::Ready(result) => {
                    return encode_frame(&answer(id, result, received), &mut self.output);
                }
                Answer::Later(mut batch) => {
                    // Most need not wait for anything but their commit, and many not even for that.
                    match std::future::poll_fn(|context| Poll::Ready(batch.as_mut().poll(context))).await {
                        Poll::Ready(result) => {
                            return encode_frame(&answer(id, result, received), &mut self.output);
                        }
                        Poll::Pending => Box::pin(batch.map(finished)),
                    }
                }
                Answer::Heavy(batch) => Box::pin(Elsewhere::spawn(batch).map(finished)),
                Answer::LargeRead(batch) => {
                    let permit = Arc::clone(&self.large_reads).acquire_owned();
                    Box::pin(async move {
                        // The semaphore is never closed.
                        let _permit = permit.await.ok();
                        Finished { _permit, ..finished(Elsewhere::spawn(batch).await) }
                    })
                }
            };
        self.waiting_bytes += bytes;
        self.waiting.push(waiting);
    }

    /// Whether no more batches are taken in for now. What waits for locks may wait for a batch that is
    /// still to come on this very connection, so it is not counted among the others.
    fn is_full(&self) -> bool {
        let (count, bytes) = (self.waiting.len(), self.waiting_bytes);
        let (max_count, max_bytes) =
            (self.limits.max_waiting_per_connection, self.limits.max_waiting_bytes_per_connection);
        if count < max_count && bytes < max_bytes {
            return false;
        }
        let Registered { node, caller, id } = &self.registered;
        let moving = count.saturating_sub(node.lock_waits(caller.tenant(), *id));
        moving >= max_count
            || bytes >= max_bytes && moving > 0
            || count >= max_count * LOCK_WAIT_FACTOR
            || bytes >= max_bytes * LOCK_WAIT_FACTOR
    }

    fn finished(&mut self, finished: Finished) {
        self.waiting_bytes = self.waiting_bytes.saturating_sub(finished.bytes);
        encode_frame(&finished.frame, &mut self.output);
    }

    fn collect_finished(&mut self) {
        while self.output.len() < OUTPUT_HIGH_WATER
            && let Some(Some(finished)) = self.waiting.next().now_or_never()
        {
            self.finished(finished);
        }
    }

    async fn write(&mut self) -> Result<(), ConnectionError> {
        if self.output.is_empty() {
            return Ok(());
        }
        let writing = async {
            self.stream.write_all(&self.output).await?;
            self.stream.flush().await
        };
        match tokio::time::timeout(self.limits.write_timeout, writing).await {
            Ok(written) => written?,
            Err(_) => return Err(ConnectionError::SlowReader),
        }
        if self.output.capacity() > BUFFER_KEPT {
            self.output = BytesMut::new();
        } else {
            self.output.clear();
        }
        Ok(())
    }

    /// Answers what is under way, as far as it comes to an end soon.
    async fn finish(mut self) -> Result<(), ConnectionError> {
        let rest = async {
            while let Some(finished) = self.waiting.next().await {
                self.finished(finished);
            }
        };
        // Requests that wait for locks may wait for ever; their clients see the connection close.
        let _ = tokio::time::timeout(SHUTDOWN_GRACE, rest).await;
        self.write().await?;
        Ok(self.stream.shutdown().await?)
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

async fn until(deadline: Option<Instant>) {
    if let Some(deadline) = deadline {
        tokio::time::sleep_until(deadline).await;
    }
}

fn answer(id: u64, result: BatchResult, received: Instant) -> ServerFrame {
    metrics().latency.observe(received.elapsed().as_secs_f64());
    let (response, error): (Option<BatchResponse>, Option<KvError>) = match result {
        Ok(response) => (Some(response), None),
        Err(error) => {
            metrics().errors.with_label_values(&[&format!("{:?}", error.kind())]).inc();
            (None, Some(error))
        }
    };
    ServerFrame { id, response, error }
}
