//! The connection: made, kept, and made again.

use crate::config::Config;
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

/// First and longest pause between attempts.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_MOST: Duration = Duration::from_millis(500);
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
    /// The KV node refused this client for good.
    Refused(KvError),
}

/// Keeps a connection until nobody holds the client any more or the KV node refuses it.
pub async fn keep(config: Config, state: watch::Sender<State>) {
    let mut pause = RETRY_FIRST;
    let mut generation = 0;
    loop {
        let pending = Arc::new(Pending::default());
        generation += 1;
        let attempt = tokio::time::timeout(HANDSHAKE_TIMEOUT, connect(&config));
        let ended = tokio::select! {
            () = state.closed() => return,
            connected = attempt => match connected {
                Ok(Ok(stream)) => {
                    state.send_replace(State::Connected(generation, pending.clone()));
                    let ended = tokio::select! {
                        () = state.closed() => return,
                        ended = exchange(stream, &pending) => ended,
                    };
                    if ended.progress {
                        pause = RETRY_FIRST;
                    }
                    ended.error
                }
                Ok(Err(error)) => ConnectionError::Io(error),
                Err(_) => ConnectionError::Io(io::ErrorKind::TimedOut.into()),
            },
        };
        pending.close();
        match ended {
            ConnectionError::Refused(error) => {
                tracing::error!(%error, "the KV node refuses this client");
                state.send_replace(State::Refused(error));
                return;
            }
            ConnectionError::Io(error) => {
                tracing::warn!(%error, address = config.address, "no connection to the KV node");
                state.send_replace(State::Connecting);
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_MOST);
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
async fn exchange<S: AsyncRead + AsyncWrite>(stream: S, pending: &Pending) -> Ended {
    let (reader, writer) = tokio::io::split(stream);
    let mut progress = false;
    let error = tokio::select! {
        error = write_frames(writer, pending) => ConnectionError::Io(error),
        error = read_frames(reader, pending, &mut progress) => error,
    };
    Ended { error, progress }
}

async fn write_frames(mut writer: impl AsyncWrite + Unpin, pending: &Pending) -> io::Error {
    let mut hello = BytesMut::new();
    let message = Hello { version: wire::PROTOCOL_VERSION, cluster_id: String::new(), refused: None };
    wire::encode_frame(&message, &mut hello);
    if let Err(error) = writer.write_all(&hello).await {
        return error;
    }
    loop {
        let frames = pending.take_unwritten();
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
        buffer.reserve(READ_STEP);
        match reader.read_buf(&mut buffer).await {
            Ok(0) => return ConnectionError::Io(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) => return ConnectionError::Io(error),
        }
        if !*progress {
            match wire::decode_frame::<Hello>(&mut buffer) {
                Ok(None) => continue,
                Ok(Some(hello)) => match check_hello(hello) {
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

fn check_hello(hello: Hello) -> Result<(), KvError> {
    if let Some(error) = hello.refused {
        return Err(error);
    }
    if hello.version != wire::PROTOCOL_VERSION {
        let message = format!(
            "the KV node speaks version {} of the protocol, this SQL node version {}",
            hello.version,
            wire::PROTOCOL_VERSION
        );
        return Err(KvError::new(KvErrorKind::Unavailable, message));
    }
    Ok(())
}
