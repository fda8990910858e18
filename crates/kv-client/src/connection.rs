//! The connection: made, kept, and made again.

use crate::config::Config;
use crate::metrics::metrics;
use crate::pending::Pending;
use bytes::BytesMut;
use kv_api::wire::{self, Hello, ServerFrame};
use kv_api::{KvError, KvErrorKind};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// First and longest pause between attempts. A KV node that restarts should not be waited for longer
/// than it takes.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_MOST: Duration = Duration::from_millis(200);
/// Pause after the KV node refused the connection.
const RETRY_REFUSED: Duration = Duration::from_secs(1);
/// Bound on TCP connect and TLS handshake together.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
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

/// Keeps a connection until nobody holds the client any more.
pub async fn keep(config: Config, state: watch::Sender<State>) {
    let mut pause = RETRY_FIRST;
    let mut generation = 0;
    let mut quiet = false;
    loop {
        generation += 1;
        let ended = tokio::select! {
            () = state.closed() => return,
            ended = connect_and_exchange(&config, &state, generation) => ended,
        };
        if ended.progress {
            (pause, quiet) = (RETRY_FIRST, false);
        }
        match ended.error {
            ConnectionError::Refused(error) => {
                if !quiet {
                    tracing::error!(%error, "the KV node refuses this client");
                }
                state.send_replace(State::Refused(error));
                pause = RETRY_REFUSED;
            }
            ConnectionError::Io(error) => {
                if !quiet {
                    tracing::warn!(%error, address = config.address, "no connection to the KV node");
                }
                state.send_replace(State::Connecting);
            }
        }
        // One line for each outage is enough.
        quiet = true;
        tokio::select! {
            () = state.closed() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(RETRY_MOST);
    }
}

async fn connect_and_exchange(config: &Config, state: &watch::Sender<State>, generation: u64) -> Ended {
    let attempt = tokio::time::timeout(HANDSHAKE_TIMEOUT, connect(config));
    let stream = match attempt.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => stream,
        Err(error) => return Ended { error: ConnectionError::Io(error), progress: false },
    };
    metrics().connections.inc();
    // Requests that nobody can wait for any more are let go also when the client itself is dropped.
    let open = Open(Arc::default());
    state.send_replace(State::Connected(generation, open.0.clone()));
    let ended = exchange(stream, &open.0, &config.cluster_id).await;
    match &ended.error {
        ConnectionError::Refused(error) => open.0.close(Some(error)),
        ConnectionError::Io(_) => open.0.close(None),
    }
    ended
}

/// Closes what waits on a connection when the connection goes, however it goes.
struct Open(Arc<Pending>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.close(None);
    }
}

/// Why a connection ended.
enum ConnectionError {
    Io(io::Error),
    Refused(KvError),
}

struct Ended {
    error: ConnectionError,
    /// Whether the KV node ever said hello.
    progress: bool,
}

async fn connect(config: &Config) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(&config.address).await?;
    stream.set_nodelay(true)?;
    tokio_rustls::TlsConnector::from(config.tls.clone()).connect(process::tls::internal_name(), stream).await
}

/// Runs the connection: requests go out behind the client's hello without waiting for the server's.
async fn exchange<S: AsyncRead + AsyncWrite>(stream: S, pending: &Pending, cluster_id: &str) -> Ended {
    let (reader, writer) = tokio::io::split(stream);
    let mut progress = false;
    let error = tokio::select! {
        // What the KV node says comes first: a refusal also breaks what is being written.
        biased;
        error = read_frames(reader, pending, cluster_id, &mut progress) => error,
        error = write_frames(writer, pending, cluster_id) => ConnectionError::Io(error),
    };
    Ended { error, progress }
}

async fn write_frames(mut writer: impl AsyncWrite + Unpin, pending: &Pending, cluster_id: &str) -> io::Error {
    let mut frames = BytesMut::new();
    let hello = Hello { version: wire::PROTOCOL_VERSION, cluster_id: cluster_id.to_owned(), refused: None };
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
    mut reader: impl AsyncRead + Unpin,
    pending: &Pending,
    cluster_id: &str,
    progress: &mut bool,
) -> ConnectionError {
    let malformed = |error: wire::FrameError| {
        ConnectionError::Io(io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
    };
    let mut buffer = BytesMut::new();
    loop {
        if buffer.is_empty() && buffer.capacity() > KEEP_CAPACITY {
            buffer = BytesMut::new();
        }
        buffer.reserve(missing_bytes(&buffer).max(READ_STEP));
        match reader.read_buf(&mut buffer).await {
            Ok(0) => return ConnectionError::Io(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) => return ConnectionError::Io(error),
        }
        if !*progress {
            match wire::decode_frame::<Hello>(&mut buffer) {
                Ok(None) => continue,
                Ok(Some(hello)) => match check_hello(hello, cluster_id) {
                    Ok(()) => *progress = true,
                    Err(error) => return ConnectionError::Refused(error),
                },
                Err(error) => return malformed(error),
            }
        }
        loop {
            match wire::decode_frame::<ServerFrame>(&mut buffer) {
                Ok(Some(frame)) => pending.deliver(frame),
                Ok(None) => break,
                Err(error) => return malformed(error),
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

fn check_hello(hello: Hello, cluster_id: &str) -> Result<(), KvError> {
    if let Some(error) = hello.refused {
        return Err(error);
    }
    if hello.version != wire::PROTOCOL_VERSION {
        let message = format!(
            "the KV node speaks version {} of the protocol, this process version {}",
            hello.version,
            wire::PROTOCOL_VERSION
        );
        return Err(KvError::new(KvErrorKind::Unavailable, message));
    }
    if !cluster_id.is_empty() && hello.cluster_id != cluster_id {
        let message = format!("the KV node is of cluster {}, not {cluster_id}", hello.cluster_id);
        return Err(KvError::new(KvErrorKind::Unavailable, message));
    }
    Ok(())
}
