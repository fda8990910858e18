//! Accepts connections and puts TLS in place.

use crate::connection::io::{ConnectionError, Input, Output};
use crate::connection::startup::{self, Opened, STARTUP_TIMEOUT};
use crate::metrics::METRICS;
use crate::node::Node;
use crate::protocol::backend::{self, Severity};
use sql_types::{SqlError, SqlState};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;

/// Pause after a failed accept (out of file descriptors, mostly), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections from proxies of this machine until the node ends.
pub async fn serve_unix(listener: UnixListener, node: Arc<Node>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let node = node.clone();
                tokio::spawn(async move {
                    let (reader, writer) = stream.into_split();
                    serve(reader, writer, None, node).await;
                });
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Accepts connections from elsewhere until the node ends.
pub async fn serve_tcp(listener: TcpListener, tls: Arc<rustls::ServerConfig>, node: Arc<Node>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (node, tls) = (node.clone(), TlsAcceptor::from(tls.clone()));
                tokio::spawn(async move {
                    let _ = stream.set_nodelay(true);
                    let (reader, writer) = stream.into_split();
                    serve(reader, writer, Some(tls), node).await;
                });
            }
            Err(error) => pause(&error).await,
        }
    }
}

async fn pause(error: &io::Error) {
    tracing::warn!(%error, "accept failed");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Serves one connection from its first byte to its last.
async fn serve<R, W>(reader: R, writer: W, tls: Option<TlsAcceptor>, node: Arc<Node>)
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let negotiated = async {
        match startup::first_packets(reader, writer, tls.is_some(), &node).await? {
            Opened::Tls(reader, writer) => {
                let stream = tokio::io::join(reader, writer);
                let Some(tls) = tls else { return Ok(None) };
                let (reader, writer) = tokio::io::split(tls.accept(stream).await?);
                match startup::first_packets(reader, writer, false, &node).await? {
                    Opened::Startup { input, output, parameters } => {
                        Ok(Some(Negotiated { input: boxed_in(input), output: boxed_out(output), parameters }))
                    }
                    _ => Ok(None),
                }
            }
            Opened::Startup { input, output, parameters } => {
                Ok(Some(Negotiated { input: boxed_in(input), output: boxed_out(output), parameters }))
            }
            Opened::Done => Ok::<_, ConnectionError>(None),
        }
    };
    match tokio::time::timeout(STARTUP_TIMEOUT, negotiated).await {
        Ok(Ok(Some(negotiated))) => serve_session(negotiated, &node).await,
        Ok(Ok(None)) => {}
        Ok(Err(error)) => tracing::info!(%error, "connection ended during startup"),
        Err(_) => tracing::info!("connection took too long to start"),
    }
}

type BoxRead = Box<dyn AsyncRead + Unpin + Send>;
type BoxWrite = Box<dyn AsyncWrite + Unpin + Send>;

/// A connection whose startup packet was read.
struct Negotiated {
    input: Input<BoxRead>,
    output: Output<BoxWrite>,
    parameters: Vec<(String, String)>,
}

fn boxed_in<R: AsyncRead + Unpin + Send + 'static>(input: Input<R>) -> Input<BoxRead> {
    let (reader, buffer) = input.into_parts();
    Input::new(Box::new(reader), buffer)
}

fn boxed_out<W: AsyncWrite + Unpin + Send + 'static>(output: Output<W>) -> Output<BoxWrite> {
    let (writer, buffer) = output.into_parts();
    let mut boxed = Output::new(Box::new(writer) as BoxWrite);
    boxed.buffer = buffer;
    boxed
}

async fn serve_session(negotiated: Negotiated, node: &Arc<Node>) {
    let Negotiated { input, mut output, parameters } = negotiated;
    let Some(_place) = node.admit() else {
        let error = SqlError::new(SqlState::TOO_MANY_CONNECTIONS, "sorry, too many clients already")
            .with_hint("Close connections that are no longer needed, or raise the tenant's limit.");
        backend::error(&mut output.buffer, Severity::Fatal, &error);
        let _ = output.flush().await;
        return;
    };
    let key = node.cancels.register();
    let opening = startup::open_session(input, output, parameters, &key, node);
    match tokio::time::timeout(STARTUP_TIMEOUT, opening).await {
        Ok(Ok(Some(connection))) => {
            METRICS.sessions.inc();
            METRICS.sessions_total.inc();
            connection.serve(node.shutdown()).await;
            METRICS.sessions.dec();
        }
        Ok(Ok(None)) => {}
        Ok(Err(error)) => tracing::info!(%error, "connection ended during startup"),
        Err(_) => tracing::info!("authentication took too long"),
    }
}
