//! A connection to one KV node: made once, kept until it ends.

use crate::config::Config;
use crate::metrics::metrics;
use crate::pending::{End, Pending};
use crate::silence;
use bytes::{Bytes, BytesMut};
use kv_api::batch::{BatchRequest, Header, RangeLookup, RequestKind};
use kv_api::wire::{self, Hello, ServerFrame};
use kv_api::{KvError, KvErrorKind};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Bound on the TCP connect: the kernel of a machine that is there answers at once; a second is left for
/// one packet that is lost.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Bound on TCP connect and TLS handshake together, and on the wait for the KV node's hello.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);
/// Bound on reading what came before the connection broke. It is there already.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Room made before each read, in bytes.
const READ_STEP: usize = 16 << 10;
/// A buffer that grew beyond this is given back when it is empty.
const KEEP_CAPACITY: usize = 256 << 10;

/// A connection to a KV node, open or not.
pub struct Connection {
    /// No other connection of the client has this number.
    pub number: u64,
    /// `host:port` of the KV node.
    pub address: Arc<str>,
    /// The requests on it.
    pub pending: Pending,
    /// How many of them were lookups of ranges.
    lookups: AtomicU64,
    /// Shortest time that something took there and back, in nanoseconds; [`u64::MAX`] until something did.
    round_trip_ns: AtomicU64,
}

impl Connection {
    /// A connection that is yet to be made.
    pub fn new(number: u64, address: Arc<str>) -> Self {
        let (lookups, round_trip_ns) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Connection { number, address, pending: Pending::default(), lookups, round_trip_ns }
    }

    /// Takes note of how long something took there and back that the node need not think about.
    pub fn note_round_trip(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.round_trip_ns.fetch_min(took, Ordering::Relaxed);
    }

    /// How far away the node is, there and back; `None` before it has said anything.
    pub fn round_trip(&self) -> Option<Duration> {
        let shortest = self.round_trip_ns.load(Ordering::Relaxed);
        (shortest != u64::MAX).then(|| Duration::from_nanos(shortest))
    }

    /// Takes note of a lookup of a range.
    pub fn note_lookup(&self) {
        self.lookups.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it was used for nothing but to look ranges up.
    pub fn is_for_lookups(&self) -> bool {
        self.pending.submitted() == self.lookups.load(Ordering::Relaxed)
    }
}

/// Why a connection ended.
#[derive(Debug)]
pub enum ConnectionError {
    /// It could not be made, or broke.
    Io(io::Error),
    /// The KV node refused this client.
    Refused(KvError),
    /// The KV node did not answer, although requests were under way.
    Silent,
}

impl ConnectionError {
    /// Whether the KV node would serve nobody, rather than not this client.
    pub fn is_not_leaseholder(&self) -> bool {
        matches!(self, ConnectionError::Refused(error) if error.kind() == KvErrorKind::NotLeaseholder)
    }
}

/// Who hears what becomes of a connection.
pub trait Listener {
    /// The KV node said hello and named the nodes of the cluster.
    fn greeted(&self, connection: &Connection, addresses: &[String]);
    /// The KV node named nodes of the cluster, but would not serve.
    fn named(&self, addresses: &[String]);
    /// The connection is about to end.
    fn ended(&self, connection: &Connection, error: &ConnectionError);
}

/// Makes the connection and runs it until it ends.
pub async fn run(config: Arc<Config>, connection: Arc<Connection>, listener: impl Listener) {
    // Requests that nobody can wait for any more are let go also when the client itself is dropped.
    let open = CloseOnDrop(connection);
    let error = connect_and_exchange(&config, &open.0, &listener).await;
    listener.ended(&open.0, &error);
    if let ConnectionError::Refused(error) = &error {
        open.0.pending.close(End::Refused(error));
    }
}

struct CloseOnDrop(Arc<Connection>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.pending.close(End::Lost);
    }
}

async fn connect_and_exchange(
    config: &Config,
    connection: &Connection,
    listener: &impl Listener,
) -> ConnectionError {
    match config.environment.connect(&connection.address) {
        None => greet_and_exchange(connect(config, connection), config, connection, listener).await,
        Some(connecting) => greet_and_exchange(connecting, config, connection, listener).await,
    }
}

async fn greet_and_exchange<S: AsyncRead + AsyncWrite>(
    connecting: impl Future<Output = io::Result<S>>,
    config: &Config,
    connection: &Connection,
    listener: &impl Listener,
) -> ConnectionError {
    let attempt = tokio::time::timeout(HANDSHAKE_TIMEOUT, connecting);
    let stream = match attempt.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => stream,
        Err(error) => return ConnectionError::Io(error),
    };
    metrics().connections.inc();
    connection.pending.open();
    let began = Instant::now();
    let greeted = |mut hello: Hello| {
        connection.note_round_trip(began.elapsed());
        let addresses = std::mem::take(&mut hello.addresses);
        let checked = check_hello(hello, &config.cluster_id);
        match &checked {
            Ok(()) => listener.greeted(connection, &addresses),
            Err(error) if error.is_not_leaseholder() => listener.named(&addresses),
            Err(_) => {}
        }
        checked
    };
    exchange(stream, config, &connection.pending, greeted).await
}

async fn connect(
    config: &Config,
    connection: &Connection,
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(&*connection.address)).await??;
    stream.set_nodelay(true)?;
    // Something in between may have answered so far; this comes from the node.
    let began = Instant::now();
    let tls = tokio_rustls::TlsConnector::from(config.tls.clone());
    let stream = tls.connect(process::tls::internal_name(), stream).await?;
    connection.note_round_trip(began.elapsed());
    Ok(stream)
}

/// Runs the connection: requests go out behind the client's hello without waiting for the server's.
async fn exchange<S: AsyncRead + AsyncWrite>(
    stream: S,
    config: &Config,
    pending: &Pending,
    greeted: impl FnOnce(Hello) -> Result<(), ConnectionError>,
) -> ConnectionError {
    let (reader, writer) = tokio::io::split(stream);
    let mut reading = std::pin::pin!(read_frames(reader, pending, greeted));
    let error = tokio::select! {
        biased;
        error = &mut reading => return error,
        error = write_frames(writer, pending, &config.cluster_id) => error,
        () = silence::watch(pending, config.silence_timeout, || probe(config)) => return ConnectionError::Silent,
    };
    // What the KV node said comes first: a refusal also breaks what is being written.
    tokio::time::timeout(LAST_WORDS, reading).await.unwrap_or(ConnectionError::Io(error))
}

async fn write_frames(mut writer: impl AsyncWrite + Unpin, pending: &Pending, cluster_id: &str) -> io::Error {
    let mut frames = BytesMut::new();
    let hello =
        Hello { version: wire::PROTOCOL_VERSION, cluster_id: cluster_id.to_owned(), ..Hello::default() };
    wire::encode_frame(&hello, &mut frames);
    if let Err(error) = writer.write_all(&frames).await {
        return error;
    }
    loop {
        pending.take_unwritten(&mut frames);
        if frames.is_empty() {
            if let Err(error) = writer.flush().await {
                return error;
            }
            pending.writable.notified().await;
        } else if let Err(error) = write_all(&mut writer, &mut frames, pending).await {
            return error;
        }
    }
}

async fn write_all(
    writer: &mut (impl AsyncWrite + Unpin),
    frames: &mut BytesMut,
    pending: &Pending,
) -> io::Result<()> {
    loop {
        if writer.write_buf(frames).await? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        if frames.is_empty() {
            return Ok(());
        }
        // It was more than there was room for, and the peer makes room.
        pending.note_alive();
    }
}

/// What a silent KV node is asked: any node answers it from memory.
fn probe(config: &Config) -> BatchRequest {
    let key = Bytes::copy_from_slice(&config.tenant.prefix());
    BatchRequest {
        header: Header::default(),
        requests: vec![RequestKind::RangeLookup(RangeLookup { key }).into()],
    }
}

async fn read_frames(
    reader: impl AsyncRead + Unpin,
    pending: &Pending,
    greeted: impl FnOnce(Hello) -> Result<(), ConnectionError>,
) -> ConnectionError {
    let mut frames = Frames { reader, pending, buffer: BytesMut::new() };
    let hello = tokio::time::timeout(HANDSHAKE_TIMEOUT, frames.next::<Hello>());
    let hello = hello.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    if let Err(error) = hello.map_err(ConnectionError::Io).and_then(greeted) {
        return error;
    }
    loop {
        match frames.next::<ServerFrame>().await {
            Ok(frame) => pending.deliver(frame),
            Err(error) => return ConnectionError::Io(error),
        }
    }
}

/// Frames as they come from a socket.
struct Frames<'a, R> {
    reader: R,
    pending: &'a Pending,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Frames<'_, R> {
    /// The next frame. Many of them may come with one read.
    async fn next<M: prost::Message + Default>(&mut self) -> io::Result<M> {
        loop {
            let malformed =
                |error: wire::FrameError| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
            if let Some(frame) = wire::decode_frame(&mut self.buffer).map_err(malformed)? {
                return Ok(frame);
            }
            if self.buffer.is_empty() && self.buffer.capacity() > KEEP_CAPACITY {
                self.buffer = BytesMut::new();
            }
            self.buffer.reserve(missing_bytes(&self.buffer).max(READ_STEP));
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.pending.note_alive();
        }
    }
}

/// How much of the frame that begins in `buffer` is still to come, as far as it is known; what is too
/// long is left for decoding to refuse.
fn missing_bytes(buffer: &[u8]) -> usize {
    match buffer.first_chunk::<4>() {
        Some(header) => {
            let len = (u32::from_be_bytes(*header) as usize).min(wire::MAX_FRAME_LEN);
            (4 + len).saturating_sub(buffer.len())
        }
        None => 0,
    }
}

fn check_hello(hello: Hello, cluster_id: &str) -> Result<(), ConnectionError> {
    if let Some(error) = hello.refused {
        return Err(ConnectionError::Refused(error));
    }
    let refused = |message| Err(ConnectionError::Refused(KvError::new(KvErrorKind::Unavailable, message)));
    if hello.version != wire::PROTOCOL_VERSION {
        return refused(format!(
            "the KV node speaks version {} of the protocol, this process version {}",
            hello.version,
            wire::PROTOCOL_VERSION
        ));
    }
    if !cluster_id.is_empty() && hello.cluster_id != cluster_id {
        return refused(format!("the KV node is of cluster {}, not {cluster_id}", hello.cluster_id));
    }
    Ok(())
}
