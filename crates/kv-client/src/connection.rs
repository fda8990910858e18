//! The connection: made, kept, and made again, with whichever KV node serves.

use crate::config::Config;
use crate::metrics::metrics;
use crate::pending::{End, Pending};
use crate::route::{Route, Step};
use bytes::BytesMut;
use kv_api::wire::{self, Hello, ServerFrame};
use kv_api::{KvError, KvErrorKind};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// First and longest pause between rounds of attempts. A KV node that restarts, or that takes over, should
/// not be waited for longer than it takes.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_MOST: Duration = Duration::from_millis(200);
/// Pause after the KV node refused the connection.
const RETRY_REFUSED: Duration = Duration::from_secs(1);
/// Bound on the TCP connect: the kernel of a machine that is there answers at once; a second is left for
/// one packet that is lost.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Bound on TCP connect and TLS handshake together, and on the wait for the KV node's hello.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Bound on reading what came before the connection broke. It is there already.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Room made before each read, in bytes.
const READ_STEP: usize = 16 << 10;
/// A buffer that grew beyond this is given back when it is empty.
const KEEP_CAPACITY: usize = 256 << 10;

/// The present state of the connection, as requests see it.
#[derive(Clone)]
pub enum State {
    /// Not there; being made.
    Connecting,
    /// There. Each connection has a number of its own.
    Connected(u64, Arc<Pending>),
    /// The KV node refused this client. It is asked again now and then.
    Refused(KvError),
}

/// Keeps a connection until nobody holds the client any more. `known` hears which addresses there are.
pub async fn keep(config: Config, state: watch::Sender<State>, known: watch::Sender<Vec<String>>) {
    let mut route = Route::new(&config.addresses);
    let mut pause = RETRY_FIRST;
    let mut generation = 0;
    let mut quiet = false;
    loop {
        generation += 1;
        let ended = tokio::select! {
            () = state.closed() => return,
            ended = connect_and_exchange(&config, &mut route, &state, &known, generation) => ended,
        };
        if ended.progress {
            (pause, quiet) = (RETRY_FIRST, false);
        }
        // One line for each outage is enough.
        let step = match ended.error {
            ConnectionError::Refused(error) => {
                if !quiet {
                    tracing::error!(%error, address = route.current(), "the KV node refuses this client");
                }
                quiet = true;
                state.send_replace(State::Refused(error));
                pause = RETRY_REFUSED;
                route.failed();
                Step::AfterPause
            }
            ConnectionError::NotLeaseholder(leaseholder) => {
                metrics().redirects.inc();
                tracing::debug!(
                    address = route.current(),
                    ?leaseholder,
                    "the KV node does not hold the lease"
                );
                state.send_replace(State::Connecting);
                let step = route.refused(leaseholder);
                if step == Step::AfterPause && !quiet {
                    tracing::warn!("no KV node holds the lease");
                    quiet = true;
                }
                step
            }
            ConnectionError::Io(error) => {
                if !quiet {
                    tracing::warn!(%error, address = route.current(), "no connection to the KV node");
                }
                quiet = true;
                state.send_replace(State::Connecting);
                route.failed()
            }
        };
        if step == Step::AtOnce {
            continue;
        }
        tokio::select! {
            () = state.closed() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(RETRY_MOST);
    }
}

async fn connect_and_exchange(
    config: &Config,
    route: &mut Route,
    state: &watch::Sender<State>,
    known: &watch::Sender<Vec<String>>,
    generation: u64,
) -> Ended {
    let attempt = tokio::time::timeout(HANDSHAKE_TIMEOUT, connect(config, route.current()));
    let stream = match attempt.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => stream,
        Err(error) => return Ended { error: ConnectionError::Io(error), progress: false },
    };
    metrics().connections.inc();
    // Requests that nobody can wait for any more are let go also when the client itself is dropped.
    let open = Open(Arc::default());
    state.send_replace(State::Connected(generation, open.0.clone()));
    let mut progress = false;
    let greeted = |mut hello: Hello| {
        let addresses = std::mem::take(&mut hello.addresses);
        let checked = check_hello(hello, &config.cluster_id);
        match &checked {
            Ok(()) => {
                progress = true;
                route.connected(addresses);
                known.send_replace(route.known());
            }
            Err(ConnectionError::NotLeaseholder(_)) => route.learn(addresses),
            Err(_) => {}
        }
        checked
    };
    let error = exchange(stream, &open.0, &config.cluster_id, greeted).await;
    open.0.close(match &error {
        ConnectionError::Refused(error) => End::Refused(error),
        ConnectionError::NotLeaseholder(_) => End::NotServed,
        ConnectionError::Io(_) => End::Lost,
    });
    Ended { error, progress }
}

/// Closes what waits on a connection when the connection goes, however it goes.
struct Open(Arc<Pending>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.close(End::Lost);
    }
}

/// Why a connection ended.
#[derive(Debug)]
enum ConnectionError {
    Io(io::Error),
    Refused(KvError),
    /// The KV node serves no clients; perhaps it knows who does.
    NotLeaseholder(Option<String>),
}

struct Ended {
    error: ConnectionError,
    /// Whether the KV node ever said hello.
    progress: bool,
}

async fn connect(config: &Config, address: &str) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await??;
    stream.set_nodelay(true)?;
    tokio_rustls::TlsConnector::from(config.tls.clone()).connect(process::tls::internal_name(), stream).await
}

/// Runs the connection: requests go out behind the client's hello without waiting for the server's.
async fn exchange<S: AsyncRead + AsyncWrite>(
    stream: S,
    pending: &Pending,
    cluster_id: &str,
    greeted: impl FnOnce(Hello) -> Result<(), ConnectionError>,
) -> ConnectionError {
    let (reader, writer) = tokio::io::split(stream);
    let mut reading = std::pin::pin!(read_frames(reader, pending, greeted));
    let error = tokio::select! {
        biased;
        error = &mut reading => return error,
        error = write_frames(writer, pending, cluster_id) => error,
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
        } else if let Err(error) = writer.write_all(&frames).await {
            return error;
        }
    }
}

async fn read_frames(
    reader: impl AsyncRead + Unpin,
    pending: &Pending,
    greeted: impl FnOnce(Hello) -> Result<(), ConnectionError>,
) -> ConnectionError {
    let mut frames = Frames { reader, buffer: BytesMut::new() };
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
struct Frames<R> {
    reader: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Frames<R> {
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
        return Err(match error.kind() {
            KvErrorKind::NotLeaseholder => ConnectionError::NotLeaseholder(error.leaseholder),
            _ => ConnectionError::Refused(error),
        });
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

#[cfg(test)]
mod tests;
