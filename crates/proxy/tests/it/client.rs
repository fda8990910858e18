//! A client that says exactly what a test wants.

use crate::world::soon;
use proxy::startup::CancelKey;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f];
pub const GSS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 0xd2, 0x16, 0x30];

pub trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Socket for T {}

pub struct Client {
    pub socket: Box<dyn Socket>,
}

/// A message from the server.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: u8,
    pub body: Vec<u8>,
}

impl Message {
    /// A field of an ErrorResponse.
    pub fn field(&self, field: u8) -> String {
        assert_eq!(self.kind, b'E', "not an error: {self:?}");
        let text = self.body.split(|b| *b == 0).find_map(|f| f.strip_prefix(&[field]));
        String::from_utf8(text.unwrap_or_default().to_vec()).unwrap()
    }
}

pub fn startup(version: u32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    for (name, value) in parameters {
        body.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
    }
    body.push(0);
    let length = u32::try_from(body.len() + 4).unwrap();
    [length.to_be_bytes().to_vec(), body].concat()
}

pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

impl Client {
    pub async fn plain(address: SocketAddr) -> Self {
        Self { socket: Box::new(TcpStream::connect(address).await.unwrap()) }
    }

    /// TLS after an SSLRequest.
    pub async fn tls(address: SocketAddr, server_name: &str) -> Self {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(&SSL_REQUEST).await.unwrap();
        let mut answer = [0; 1];
        soon(socket.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"S");
        Self::handshake(socket, server_name, &[]).await
    }

    /// TLS at once.
    pub async fn direct_tls(address: SocketAddr, server_name: &str, alpn: &[&[u8]]) -> Self {
        Self::handshake(TcpStream::connect(address).await.unwrap(), server_name, alpn).await
    }

    pub async fn handshake(socket: TcpStream, server_name: &str, alpn: &[&[u8]]) -> Self {
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer(ring::default_provider())))
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        let name = ServerName::try_from(server_name.to_owned()).unwrap();
        let stream = soon(TlsConnector::from(Arc::new(config)).connect(name, socket)).await.unwrap();
        Self { socket: Box::new(stream) }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        soon(self.socket.write_all(bytes)).await.unwrap();
        soon(self.socket.flush()).await.unwrap();
    }

    pub async fn start(&mut self, parameters: &[(&str, &str)]) {
        self.send(&startup(3 << 16, parameters)).await;
    }

    /// The next message, or `None` when the connection is closed.
    pub async fn next(&mut self) -> Option<Message> {
        let mut header = [0; 5];
        soon(self.socket.read_exact(&mut header)).await.ok()?;
        let length = u32::from_be_bytes(header[1..].try_into().unwrap()) as usize - 4;
        let mut body = vec![0; length];
        soon(self.socket.read_exact(&mut body)).await.ok()?;
        Some(Message { kind: header[0], body })
    }

    /// Reads until ReadyForQuery; the key the session got on the way.
    pub async fn ready(&mut self) -> Option<CancelKey> {
        let mut key = None;
        loop {
            let message = self.next().await.expect("closed before ReadyForQuery");
            match message.kind {
                b'K' => key = Some(CancelKey::from_bytes(message.body.try_into().unwrap())),
                b'Z' => return key,
                b'E' => panic!("{}: {}", message.field(b'C'), message.field(b'M')),
                _ => {}
            }
        }
    }

    pub async fn query(&mut self, text: &str) {
        self.send(&message(b'Q', &[text.as_bytes(), b"\0"].concat())).await;
    }

    /// Runs a statement to its ReadyForQuery.
    pub async fn run(&mut self, text: &str) -> Vec<Message> {
        self.query(text).await;
        let mut messages = Vec::new();
        loop {
            let message = self.next().await.expect("closed during a statement");
            if message.kind == b'Z' {
                return messages;
            }
            messages.push(message);
        }
    }

    /// The error that ends the connection, and that nothing comes after it.
    pub async fn refusal(&mut self) -> Message {
        let error = self.next().await.expect("closed without an error");
        assert_eq!(error.field(b'S'), "FATAL");
        assert_eq!(self.next().await, None);
        error
    }

    pub async fn closed(&mut self) {
        assert_eq!(self.next().await, None);
    }
}

/// Takes any certificate: these tests are about names, not about trust.
#[derive(Debug)]
struct AnyServer(CryptoProvider);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
