//! The internal listener: SQL nodes and proxies, mutual TLS, JSON lines.
//!
//! Who speaks is told by the certificate, not by the message: a proxy may only ask where tenants are, a
//! SQL node may only speak about itself. A node that serves a tenant proves it with the tenant's
//! certificate; a node that came back after a restart of control with the warm certificate is believed
//! only if its name, process and tenant are what was noted of it (see
//! [`crate::orchestrator::LocalProcesses`]).
//!
//! Bounds: messages ([`process::control_messages::MAX_MESSAGE_LEN`]), the handshake and the first
//! message ([`HANDSHAKE`]), queues ([`QUEUE`]), questions of one proxy under way ([`QUESTIONS`]),
//! connections ([`CONNECTIONS`]).

use crate::directory::DirectoryError;
use crate::fleet::{NodeName, Registration, WakeError};
use crate::service::{Control, ControlError};
use process::control_messages::{
    FromNode, FromProxy, ResolveError, ToNode, ToProxy, read_message, write_message,
};
use process::identity::Identity;
use process::tls::peer_identity;
use serde::Serialize;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWrite, BufReader, ReadHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// For the TLS handshake and the first message.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// For writing one message.
const WRITE: Duration = Duration::from_secs(10);
/// Messages waiting to be written to one peer.
const QUEUE: usize = 1024;
/// Questions of one proxy that are being answered.
const QUESTIONS: usize = 4096;
/// Connections in all.
const CONNECTIONS: usize = 10_000;
/// Pause when the machine cannot give another socket.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

type Input = BufReader<ReadHalf<TlsStream<TcpStream>>>;

/// Accepts connections until control ends.
pub(crate) async fn serve(listener: TcpListener, tls: TlsAcceptor, control: Arc<Control>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!(%address, "too many internal connections");
            continue;
        };
        let (tls, control) = (tls.clone(), Arc::clone(&control));
        tokio::spawn(async move {
            let _place = place;
            if let Err(error) = serve_one(stream, tls, &control).await
                && !is_gone(&error)
            {
                control.metrics.refused.inc();
                tracing::warn!(%address, %error, "internal connection ended");
            }
        });
    }
}

/// Whether an error says no more than that the peer is gone, as processes that are killed are.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

fn refused(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, text.into())
}

async fn serve_one(stream: TcpStream, tls: TlsAcceptor, control: &Arc<Control>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let stream = timeout(HANDSHAKE, tls.accept(stream)).await??;
    let identity =
        peer_identity(stream.get_ref().1).ok_or_else(|| refused("a certificate without identity"))?;
    let (reader, writer) = tokio::io::split(stream);
    let reader = BufReader::new(reader);
    match identity {
        Identity::Proxy => serve_proxy(reader, writer, control).await,
        Identity::Warm | Identity::Tenant(_) => serve_node(reader, writer, identity, control).await,
        Identity::Control | Identity::Kv => Err(refused(format!("{identity} has no business here"))),
    }
}

/// Writes what is queued until the queue or the peer ends.
fn spawn_writer<M: Serialize + Send + Sync + 'static>(
    mut output: impl AsyncWrite + Unpin + Send + 'static,
    mut queue: mpsc::Receiver<M>,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        while let Some(message) = queue.recv().await {
            match timeout(WRITE, write_message(&mut output, &message)).await {
                Ok(Ok(())) => {}
                _ => return,
            }
        }
    })
}

async fn serve_proxy(
    mut input: Input,
    output: impl AsyncWrite + Unpin + Send + 'static,
    control: &Arc<Control>,
) -> io::Result<()> {
    let (link, queue) = mpsc::channel(QUEUE);
    let answers = link.downgrade();
    let number = control.add_proxy(link);
    let mut writer = spawn_writer(output, queue);
    let questions = Arc::new(Semaphore::new(QUESTIONS));
    let result = loop {
        let message = tokio::select! {
            // The proxy was too slow, or is gone.
            _ = &mut writer => break Ok(()),
            message = read_message::<FromProxy>(&mut input) => message,
        };
        let FromProxy::Resolve { id, tenant } = match message {
            Ok(Some(message)) => message,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        // At the bound the proxy is not read any further.
        let Ok(place) = Arc::clone(&questions).acquire_owned().await else { break Ok(()) };
        let (control, answers) = (Arc::clone(control), answers.clone());
        tokio::spawn(async move {
            let _place = place;
            let answer = resolve(&control, id, &tenant).await;
            if let Some(answers) = answers.upgrade() {
                // Who does not listen any more needs no answer.
                let _ = answers.send(answer).await;
            }
        });
    };
    control.remove_proxy(number);
    writer.abort();
    result
}

/// Answers a proxy's question.
async fn resolve(control: &Arc<Control>, id: u64, tenant: &str) -> ToProxy {
    let resolved = control.resolve(tenant).await;
    let outcome = match &resolved {
        Ok(route) if route.woken => "woken",
        Ok(_) => "running",
        Err(_) => "error",
    };
    control.metrics.resolves.with_label_values(&[outcome]).inc();
    match resolved {
        Ok(route) => ToProxy::Resolved {
            id,
            tenant_id: route.tenant_id,
            address: route.address.to_string(),
            node: route.node.to_string(),
            max_connections: route.max_connections.map(u64::from),
            woken: route.woken,
        },
        Err(error) => {
            let (code, hint) = explain(&error);
            ToProxy::Error { id, code, message: error.to_string(), hint: Some(hint.to_owned()) }
        }
    }
}

/// What a client can do about an error.
fn explain(error: &ControlError) -> (ResolveError, &'static str) {
    match error {
        ControlError::Directory(
            DirectoryError::Unknown(_) | DirectoryError::Name(_) | DirectoryError::Exists(_),
        )
        | ControlError::Wake(WakeError::Dropped) => (
            ResolveError::UnknownTenant,
            "Check the spelling of the tenant's name, or create it with \"dormouse tenant create\".",
        ),
        ControlError::Directory(
            DirectoryError::Unavailable(_)
            | DirectoryError::Full(_)
            | DirectoryError::Failed(_)
            | DirectoryError::Placement(_)
            | DirectoryError::Refused(_),
        )
        | ControlError::Busy { .. }
        | ControlError::Ending => {
            (ResolveError::Unavailable, "Tenants that run are not affected. Try again in a moment.")
        }
        ControlError::Wake(WakeError::Unavailable(_)) => {
            (ResolveError::Unavailable, "Try again in a moment; the logs of control and SQL nodes say more.")
        }
        ControlError::Wake(WakeError::Overloaded(_)) => {
            (ResolveError::Overloaded, "Try again in a moment, with fewer connections at a time.")
        }
        ControlError::Wake(WakeError::StartFailed(_)) => {
            (ResolveError::StartFailed, "The logs of control and of the SQL nodes say why.")
        }
    }
}

async fn serve_node(
    mut input: Input,
    output: impl AsyncWrite + Unpin + Send + 'static,
    identity: Identity,
    control: &Arc<Control>,
) -> io::Result<()> {
    let first = timeout(HANDSHAKE, read_message::<FromNode>(&mut input)).await??;
    let Some(FromNode::Register { node, pid, address, tenant }) = first else {
        return Err(refused("the first message is not a registration"));
    };
    let registration = check_registration(control, identity, node, pid, address, tenant).await?;
    let node = Arc::clone(&registration.node);
    let (link, queue) = mpsc::channel::<ToNode>(QUEUE);
    control.register(registration, link).map_err(|error| refused(format!("{node}: {error}")))?;
    let mut writer = spawn_writer(output, queue);
    let result = tokio::select! {
        _ = &mut writer => Ok(()),
        result = follow_node(&mut input, &node, control) => result,
    };
    writer.abort();
    control.node_lost(&node);
    result
}

/// Whether this identity may register this node.
async fn check_registration(
    control: &Arc<Control>,
    identity: Identity,
    node: String,
    pid: u32,
    address: String,
    tenant: Option<u64>,
) -> io::Result<Registration> {
    let tenant = match (identity, tenant) {
        (Identity::Warm, None) => None,
        (Identity::Warm, Some(id)) => Some(id),
        (Identity::Tenant(own), Some(id)) if own == id => Some(id),
        (identity, tenant) => {
            return Err(refused(format!("{identity} may not register a node of tenant {tenant:?}")));
        }
    };
    let record = match tenant {
        None => None,
        Some(id) => match control.directory().by_id(id).await {
            Ok(Some(record)) => Some(record),
            Ok(None) => return Err(refused(format!("{node} serves tenant {id}, which does not exist"))),
            Err(error) => return Err(io::Error::other(error)),
        },
    };
    Ok(Registration { node: node.into(), pid, address: address.into(), tenant: record })
}

async fn follow_node(input: &mut Input, node: &NodeName, control: &Arc<Control>) -> io::Result<()> {
    while let Some(message) = read_message::<FromNode>(input).await? {
        match message {
            FromNode::Register { .. } => return Err(refused(format!("{node} registered twice"))),
            FromNode::Serving => control.node_serving(node),
            FromNode::Failed { message } => control.node_failed(node, &message),
            FromNode::Busy => control.node_busy(node),
            FromNode::Status { connections, cpu_ms: _ } => control.node_status(node, connections),
        }
    }
    Ok(())
}
