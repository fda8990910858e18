//! Reaching a SQL node: by Unix socket, or by TCP with mutual TLS.
//!
//! A node may end between two connections, so opening one is not done before the node has said its first
//! word: until then nothing has reached the client and the proxy may look for another node.

use crate::startup::{CancelKey, ssl_request};
use crate::stream::{Stream, prepare_tcp};
use process::identity::Identity;
use process::tls::{internal_name, peer_identity};
use rustls::ClientConfig;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, TlsStream};

/// Longest error that is read to its end to learn its code.
const MAX_FIRST_ERROR: usize = 8 * 1024;
/// Read at once while waiting for the first word.
const FIRST_READ: usize = 1024;

/// How to prove who the proxy is and to know whose node answers.
#[derive(Debug)]
pub(crate) struct InternalTls<'a> {
    pub config: &'a Arc<ClientConfig>,
    /// The tenant the node has to be of.
    pub tenant_id: u64,
}

/// A node that answers, and what it said first.
#[derive(Debug)]
pub(crate) struct Opened {
    pub stream: Stream,
    pub answer: Vec<u8>,
}

/// A node that cannot be used. Nothing of this has reached the client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// Nobody listens there any more, or it hung up without a word.
    #[error("the SQL node is gone: {0}")]
    Gone(io::Error),
    /// Its queue of connections is full at this moment.
    #[error("the SQL node has too many connections waiting")]
    Busy,
    /// It answered that it is starting, suspending or not this tenant's.
    #[error("the SQL node does not serve")]
    NotServing(Vec<u8>),
}

/// Connects, sends the startup packet and waits for the first word.
pub(crate) async fn open(
    address: &str,
    packet: &[u8],
    tls: &InternalTls<'_>,
    patience: Duration,
) -> Result<Opened, OpenError> {
    let mut stream = connect(address, tls, patience).await?;
    stream.write_all(packet).await.map_err(OpenError::Gone)?;
    stream.flush().await.map_err(OpenError::Gone)?;
    let answer = first_answer(&mut stream).await.map_err(OpenError::Gone)?;
    if refuses_to_serve(&answer) { Err(OpenError::NotServing(answer)) } else { Ok(Opened { stream, answer }) }
}

/// Hands a CancelRequest to a node and waits until it has been taken.
pub(crate) async fn cancel(
    address: &str,
    key: CancelKey,
    tls: &InternalTls<'_>,
    patience: Duration,
) -> Result<(), OpenError> {
    let mut stream = connect(address, tls, patience).await?;
    stream.write_all(&key.cancel_request()).await.map_err(OpenError::Gone)?;
    stream.flush().await.map_err(OpenError::Gone)?;
    let mut nothing = [0; 1];
    stream.read(&mut nothing).await.map_err(OpenError::Gone)?;
    Ok(())
}

async fn connect(address: &str, tls: &InternalTls<'_>, patience: Duration) -> Result<Stream, OpenError> {
    let connected = match address.strip_prefix("unix:") {
        Some(path) => timeout(patience, async { UnixStream::connect(path).await.map(Stream::Unix) }).await,
        None => timeout(patience, connect_tls(address, tls)).await,
    };
    match connected {
        Ok(Ok(stream)) => Ok(stream),
        // What Linux says when the queue of a Unix socket is full.
        Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => Err(OpenError::Busy),
        Ok(Err(error)) => Err(OpenError::Gone(error)),
        Err(_) => Err(OpenError::Gone(io::ErrorKind::TimedOut.into())),
    }
}

async fn connect_tls(address: &str, tls: &InternalTls<'_>) -> io::Result<Stream> {
    let mut socket = TcpStream::connect(address).await?;
    prepare_tcp(&socket)?;
    socket.write_all(&ssl_request()).await?;
    let mut answer = [0; 1];
    socket.read_exact(&mut answer).await?;
    if answer != *b"S" {
        return Err(io::Error::other("the SQL node refuses TLS"));
    }
    let stream = TlsConnector::from(Arc::clone(tls.config)).connect(internal_name(), socket).await?;
    if peer_identity(stream.get_ref().1) != Some(Identity::Tenant(tls.tenant_id)) {
        return Err(io::Error::other("the address belongs to another tenant's SQL node by now"));
    }
    Ok(Stream::Tls(Box::new(TlsStream::Client(stream))))
}

/// What the node says first: some bytes, or all of a message if that is an error.
async fn first_answer(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut chunk = [0; FIRST_READ];
    loop {
        let length = stream.read(&mut chunk).await?;
        if length == 0 && answer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        answer.extend_from_slice(chunk.get(..length).unwrap_or_default());
        let complete = answer.first() != Some(&b'E') || first_message(&answer).is_some();
        if complete || length == 0 || answer.len() >= MAX_FIRST_ERROR {
            return Ok(answer);
        }
    }
}

/// The body of the first message, if all of it is there.
fn first_message(bytes: &[u8]) -> Option<&[u8]> {
    let ([_, length @ ..], rest) = bytes.split_first_chunk::<5>()?;
    let length = usize::try_from(u32::from_be_bytes(*length).checked_sub(4)?).ok()?;
    rest.get(..length)
}

/// Whether an answer is an error that another attempt may not meet: 57P03, cannot connect now, and 57P01,
/// shutting down.
fn refuses_to_serve(answer: &[u8]) -> bool {
    if answer.first() != Some(&b'E') {
        return false;
    }
    let code = first_message(answer)
        .and_then(|body| body.split(|b| *b == 0).find_map(|field| field.strip_prefix(b"C")))
        .unwrap_or_default();
    matches!(code, b"57P03" | b"57P01")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ClientError;

    #[test]
    fn only_passing_errors_are_worth_another_attempt() {
        assert!(refuses_to_serve(
            &ClientError::new("57P03", "the database system is shutting down").encode()
        ));
        assert!(refuses_to_serve(&ClientError::new("57P01", "C").encode()));
        assert!(!refuses_to_serve(&ClientError::new("28P01", "57P03").encode()));
        assert!(!refuses_to_serve(b"R\0\0\0\x08\0\0\0\x0a"));
        assert!(!refuses_to_serve(b"E\0\0\0\x01"));
        assert!(!refuses_to_serve(b"E"));
        assert!(!refuses_to_serve(b""));
    }
}
