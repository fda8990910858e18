//! From an accepted connection to its startup packet: TLS by SSLRequest or at once, GSSAPI refused,
//! CancelRequest told apart. Everything here waits for the client, so everything has a deadline.
//!
//! Packets are read to their last byte and no further. What a client sends between its SSLRequest and the
//! answer therefore goes into the TLS handshake and fails there; it can never be taken for a packet that
//! came through TLS.

use crate::error::ClientError;
use crate::startup::{self, CancelKey, Packet, Startup};
use crate::stream::Stream;
use rustls::ServerConfig;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::{TlsAcceptor, TlsStream};

/// The protocol's name in TLS, which a client that starts with TLS at once must offer.
pub(crate) const ALPN: &[u8] = b"postgresql";
/// First byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 0x16;

/// What a client wants, and how it is connected by now.
#[derive(Debug)]
pub(crate) struct Negotiated {
    pub stream: Stream,
    /// The server name of the TLS handshake.
    pub server_name: Option<String>,
    pub request: Request,
}

/// What a client wants.
#[derive(Debug)]
pub(crate) enum Request {
    Cancel(CancelKey),
    Session(Startup),
}

/// A connection that does not get further. Without a stream or an error there is nobody to tell.
#[derive(Debug)]
pub(crate) struct Failed {
    pub stream: Option<Stream>,
    pub error: Option<ClientError>,
}

impl Failed {
    /// The client went away, or spoke TLS that failed.
    fn gone() -> Self {
        Self { stream: None, error: None }
    }

    fn told(stream: Stream, error: ClientError) -> Self {
        Self { stream: Some(stream), error: Some(error) }
    }
}

/// Negotiates with one client.
#[derive(Debug)]
pub(crate) struct Negotiator {
    /// TLS for clients, if there is any.
    pub tls: Option<Arc<ServerConfig>>,
    /// When the startup packet must be complete.
    pub deadline: Instant,
    /// How long a TLS handshake may take within that.
    pub tls_timeout: Duration,
}

impl Negotiator {
    /// Reads packets until the client has said what it wants.
    pub async fn negotiate(&self, socket: TcpStream) -> Result<Negotiated, Failed> {
        let mut server_name = None;
        let mut stream = Stream::Tcp(socket);
        let (mut tls_asked, mut gss_asked) = (false, false);
        if self.begins_with_tls(&stream).await? {
            (stream, server_name) = self.direct_tls(stream).await?;
            tls_asked = true;
        }
        loop {
            let packet = match self.read_packet(&mut stream).await {
                Ok(packet) => packet,
                Err(Some(error)) => return Err(Failed::told(stream, error)),
                Err(None) => return Err(Failed::gone()),
            };
            match packet {
                Packet::SslRequest if !tls_asked => {
                    tls_asked = true;
                    (stream, server_name) = self.answer_ssl_request(stream).await?;
                }
                Packet::GssEncryptionRequest if !gss_asked => {
                    gss_asked = true;
                    self.answer(&mut stream, b"N").await?;
                }
                Packet::SslRequest | Packet::GssEncryptionRequest => {
                    let error = ClientError::new("08P01", "encryption was negotiated before");
                    return Err(Failed::told(stream, error));
                }
                Packet::Cancel(key) => {
                    return Ok(Negotiated { stream, server_name, request: Request::Cancel(key) });
                }
                Packet::Startup(startup) => {
                    return Ok(Negotiated { stream, server_name, request: Request::Session(startup) });
                }
            }
        }
    }

    async fn begins_with_tls(&self, stream: &Stream) -> Result<bool, Failed> {
        let Stream::Tcp(socket) = stream else { return Ok(false) };
        let mut first = [0; 1];
        match timeout_at(self.deadline, socket.peek(&mut first)).await {
            Ok(Ok(1)) => Ok(first == [TLS_HANDSHAKE]),
            _ => Err(Failed::gone()),
        }
    }

    async fn direct_tls(&self, stream: Stream) -> Result<(Stream, Option<String>), Failed> {
        let (Stream::Tcp(socket), Some(config)) = (stream, &self.tls) else { return Err(Failed::gone()) };
        let (stream, server_name) = self.handshake(socket, config).await?;
        let Stream::Tls(tls) = &stream else { return Err(Failed::gone()) };
        if tls.get_ref().1.alpn_protocol() == Some(ALPN) {
            return Ok((stream, server_name));
        }
        let text = "received direct SSL connection request without ALPN protocol negotiation extension";
        Err(Failed::told(stream, ClientError::new("08P01", text)))
    }

    async fn answer_ssl_request(&self, mut stream: Stream) -> Result<(Stream, Option<String>), Failed> {
        let answer = if self.tls.is_some() { b"S" } else { b"N" };
        self.answer(&mut stream, answer).await?;
        match (stream, &self.tls) {
            (Stream::Tcp(socket), Some(config)) => self.handshake(socket, config).await,
            (stream, _) => Ok((stream, None)),
        }
    }

    async fn answer(&self, stream: &mut Stream, answer: &[u8]) -> Result<(), Failed> {
        match timeout_at(self.deadline, stream.write_all(answer)).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Failed::gone()),
        }
    }

    async fn handshake(
        &self,
        socket: TcpStream,
        config: &Arc<ServerConfig>,
    ) -> Result<(Stream, Option<String>), Failed> {
        let deadline = self.deadline.min(Instant::now() + self.tls_timeout);
        let accept = TlsAcceptor::from(Arc::clone(config)).accept(socket);
        match timeout_at(deadline, accept).await {
            Ok(Ok(tls)) => {
                let server_name = tls.get_ref().1.server_name().map(str::to_owned);
                Ok((Stream::Tls(Box::new(TlsStream::Server(tls))), server_name))
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "TLS handshake with a client failed");
                Err(Failed::gone())
            }
            Err(_) => Err(Failed::gone()),
        }
    }

    /// Reads one packet. `Err(None)`: the client is gone.
    async fn read_packet(&self, stream: &mut Stream) -> Result<Packet, Option<ClientError>> {
        match timeout_at(self.deadline, read_packet(stream)).await {
            Ok(Ok(Ok(packet))) => Ok(packet),
            Ok(Ok(Err(error))) => Err(Some(error)),
            Ok(Err(_)) => Err(None),
            Err(_) => Err(Some(ClientError::new("57014", "canceling authentication due to timeout"))),
        }
    }
}

async fn read_packet(stream: &mut Stream) -> io::Result<Result<Packet, ClientError>> {
    let mut header = [0; 4];
    stream.read_exact(&mut header).await?;
    let length = match startup::packet_length(header) {
        Ok(length) => length,
        Err(error) => return Ok(Err(error)),
    };
    let mut body = vec![0; length.saturating_sub(header.len())];
    stream.read_exact(&mut body).await?;
    Ok(startup::decode(&body))
}
