//! The life of one connection; the states are drawn in the crate's documentation.
//!
//! Everything up to the session is in one boxed future that is gone once the session runs, so that an idle
//! session holds two sockets, a few counters and, with TLS, the state of TLS.

use crate::admission::{SessionPermit, StartingPermit};
use crate::error::ClientError;
use crate::metrics::Held;
use crate::negotiate::{Failed, Negotiated, Negotiator, Request};
use crate::node::{self, InternalTls, OpenError, Opened};
use crate::routes::Route;
use crate::server::Shared;
use crate::session::{Parts, Session, SessionEnd};
use crate::startup::tenant::{TenantName, take_tenant};
use crate::startup::{CancelKey, Startup};
use crate::stream::Stream;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Most bytes kept of a client that goes on talking while it is held.
const MAX_EARLY: usize = 8 * 1024;
/// Between two attempts to reach a node, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Serves one connection to its end.
pub(crate) async fn serve(shared: Arc<Shared>, socket: TcpStream, peer: SocketAddr, permit: StartingPermit) {
    let Some(mut open) = Box::pin(begin(&shared, socket, peer, permit)).await else { return };
    let end = open.session.run(&shared.stop, shared.timeouts.half_closed).await;
    Box::pin(finish(&shared, open, end)).await;
}

/// A session that can take statements.
struct Open {
    session: Session,
    tenant: TenantName,
    _permit: SessionPermit,
    _held: Held,
}

/// Everything before that. `None`: the connection has ended, and whoever was to be told has been.
async fn begin(
    shared: &Arc<Shared>,
    socket: TcpStream,
    peer: SocketAddr,
    permit: StartingPermit,
) -> Option<Open> {
    let negotiated = tokio::select! {
        negotiated = negotiate(shared, socket) => negotiated,
        () = shared.stop.wait() => return None,
    };
    drop(permit);
    let Negotiated { mut stream, server_name, request } = match negotiated {
        Ok(negotiated) => negotiated,
        Err(Failed { stream, error }) => {
            if let (Some(mut stream), Some(error)) = (stream, error) {
                refuse(shared, &mut stream, peer, None, &error).await;
            }
            return None;
        }
    };
    match request {
        Request::Cancel(key) => {
            cancel(shared, key).await;
            None
        }
        Request::Session(startup) => {
            let client = Arriving { peer, server_name, startup };
            match client.open(shared, &mut stream).await {
                Ok(joining) => joining.authenticate(shared, stream).await,
                Err(Some((tenant, error))) => {
                    refuse(shared, &mut stream, peer, tenant.as_ref(), &error).await;
                    None
                }
                Err(None) => None,
            }
        }
    }
}

async fn negotiate(shared: &Shared, socket: TcpStream) -> Result<Negotiated, Failed> {
    let _held = Held::new(&shared.metrics.starting);
    let negotiator = Negotiator {
        tls: shared.client_tls.clone(),
        deadline: Instant::now() + shared.timeouts.startup,
        tls_timeout: shared.timeouts.tls,
    };
    negotiator.negotiate(socket).await
}

/// Tells a client why it cannot be served.
async fn refuse(
    shared: &Shared,
    stream: &mut Stream,
    peer: SocketAddr,
    tenant: Option<&TenantName>,
    error: &ClientError,
) {
    count_error(shared, error);
    let tenant = tenant.map(TenantName::as_str);
    tracing::info!(%peer, tenant, code = error.code(), message = error.message(), "connection refused");
    stream.close_with(&error.encode(), shared.timeouts.farewell).await;
}

fn count_error(shared: &Shared, error: &ClientError) {
    shared.metrics.errors.with_label_values(&[error.code()]).inc();
}

/// Forwards a CancelRequest. As in PostgreSQL nobody is told whether it did anything.
async fn cancel(shared: &Shared, key: CancelKey) {
    let outcome = match shared.cancels.target(key) {
        None => "unknown_key",
        Some(target) => {
            let patience = shared.timeouts.cancel;
            let tls = InternalTls { config: &shared.internal_tls, tenant_id: target.tenant_id };
            let sent = node::cancel(&target.address, target.key, &tls, patience);
            match timeout(patience, sent).await {
                Ok(Ok(())) => "forwarded",
                Ok(Err(_)) | Err(_) => "node_unreachable",
            }
        }
    };
    shared.metrics.cancels.with_label_values(&[outcome]).inc();
    tracing::debug!(outcome, "cancel request");
}

/// A client whose startup packet is complete.
struct Arriving {
    peer: SocketAddr,
    server_name: Option<String>,
    startup: Startup,
}

/// What is told to a refused client, and which tenant it wanted. `None`: the client is gone.
type Refusal = Option<(Option<TenantName>, ClientError)>;

impl Arriving {
    /// Finds the tenant and a node of it that answers, while watching for the client going away.
    async fn open(mut self, shared: &Arc<Shared>, stream: &mut Stream) -> Result<Joining, Refusal> {
        if shared.require_tls && !stream.is_tls() {
            return Err(Some((None, tls_required())));
        }
        let tenant = take_tenant(&mut self.startup, self.server_name.as_deref(), &shared.server_names)
            .map_err(|error| Some((None, error)))?;
        let refusal = |error| Some((Some(tenant.clone()), error));
        let permit = shared.admission.session(tenant.clone()).map_err(refusal)?;
        let held = Held::new(&shared.metrics.sessions);
        let since = Instant::now();
        let is_tls = stream.is_tls();
        let mut early = Vec::new();
        let attached = tokio::select! {
            attached = self.attach(shared, &tenant, is_tls) => attached.map_err(refusal)?,
            () = until_gone(stream, &mut early) => return Err(None),
            () = shared.stop.wait() => return Err(refusal(stopped())),
        };
        if let Some(most) = attached.route.max_connections {
            permit.check(most).map_err(refusal)?;
        }
        let preface = self.startup.negotiation().unwrap_or_default();
        Ok(Joining {
            attached,
            peer: self.peer,
            user: self.startup.user,
            tenant,
            since,
            early,
            preface,
            permit,
            held,
        })
    }

    /// Finds a node that answers. Nothing has been sent to the client, so a node that is gone only costs
    /// another look.
    async fn attach(&self, shared: &Shared, tenant: &TenantName, tls: bool) -> Result<Attached, ClientError> {
        let deadline = Instant::now() + shared.timeouts.wake;
        let mut pause = FIRST_PAUSE;
        let mut cold = false;
        loop {
            let found = shared.control.route(tenant, deadline).await?;
            cold |= found.woken;
            let route = found.route;
            let packet = self.packet(&route, tls);
            let identity = InternalTls { config: &shared.internal_tls, tenant_id: route.tenant_id };
            let opening = node::open(&route.address, &packet, &identity, shared.timeouts.connect);
            let error = match timeout_at(deadline, opening).await {
                Ok(Ok(opened)) => return Ok(Attached { opened, route, cold }),
                Ok(Err(error)) => error,
                Err(_) => return Err(silent_node(tenant)),
            };
            tracing::debug!(%tenant, node = %route.node, %error, "SQL node not reached");
            shared.metrics.node_retries.inc();
            if !matches!(error, OpenError::Busy) {
                shared.control.forget(tenant, &route);
            }
            if found.cached && matches!(error, OpenError::Gone(_)) {
                continue;
            }
            if Instant::now() + pause >= deadline {
                return Err(unreachable_node(tenant));
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn packet(&self, route: &Route, tls: bool) -> Vec<u8> {
        self.startup.encode(&[
            ("_dormouse.tenant_id", &route.tenant_id.to_string()),
            ("_dormouse.client_addr", &self.peer.to_string()),
            ("_dormouse.tls", if tls { "on" } else { "off" }),
        ])
    }
}

/// Ends when the client does. What it says meanwhile is kept, up to a bound.
async fn until_gone(stream: &mut Stream, early: &mut Vec<u8>) {
    let mut chunk = [0; 1024];
    while early.len() < MAX_EARLY {
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(length) => early.extend_from_slice(chunk.get(..length).unwrap_or_default()),
        }
    }
    std::future::pending().await
}

/// A node that has said its first word.
struct Attached {
    opened: Opened,
    route: Route,
    cold: bool,
}

/// A client and a node, to be joined.
struct Joining {
    attached: Attached,
    peer: SocketAddr,
    user: Vec<u8>,
    tenant: TenantName,
    since: Instant,
    early: Vec<u8>,
    preface: Vec<u8>,
    permit: SessionPermit,
    held: Held,
}

impl Joining {
    async fn authenticate(self, shared: &Arc<Shared>, client: Stream) -> Option<Open> {
        let Self { attached, peer, user, tenant, since, early, preface, permit, held } = self;
        let Attached { opened, route, cold } = attached;
        let tls = client.is_tls();
        let session = Session::new(Parts {
            client,
            node: opened.stream,
            early,
            answer: opened.answer,
            preface,
            key: shared.cancels.issue(),
            route,
            metrics: Arc::clone(&shared.metrics),
        });
        let mut open = Open { session, tenant, _permit: permit, _held: held };
        match timeout(shared.timeouts.authentication, open.session.authenticate(&shared.stop)).await {
            Ok(Ok(())) => {
                let startup = if cold { &shared.metrics.startup_cold } else { &shared.metrics.startup_warm };
                startup.observe(since.elapsed().as_secs_f64());
                let (user, node) = (String::from_utf8_lossy(&user), open.session.node_name());
                tracing::debug!(%peer, tenant = %open.tenant, %user, node, tls, cold, "session started");
                Some(open)
            }
            Ok(Err(end)) => {
                finish(shared, open, end).await;
                None
            }
            Err(_) => {
                let error = ClientError::new("57014", "canceling authentication due to timeout");
                count_error(shared, &error);
                open.session.close(Some(error), shared.timeouts.farewell).await;
                None
            }
        }
    }
}

/// Tells the client how its session ended where the node did not, and closes both.
async fn finish(shared: &Shared, open: Open, end: SessionEnd) {
    tracing::debug!(tenant = %open.tenant, ?end, "session ended");
    let error = match end {
        SessionEnd::Client => return open.session.abandon(),
        SessionEnd::Node => None,
        SessionEnd::NodeLost => {
            shared.metrics.nodes_lost.inc();
            Some(node_lost())
        }
        SessionEnd::NodeMalformed => {
            Some(ClientError::new("08P01", "the SQL node does not speak the protocol"))
        }
        SessionEnd::Stopped => Some(stopped()),
    };
    if let Some(error) = &error {
        count_error(shared, error);
    }
    open.session.close(error, shared.timeouts.farewell).await;
}

fn tls_required() -> ClientError {
    ClientError::new("28000", "connections without TLS are not allowed")
        .hint("Use sslmode=require or stricter.")
}

fn silent_node(tenant: &TenantName) -> ClientError {
    ClientError::new("57P03", format!("tenant \"{tenant}\" does not answer"))
        .hint("Its SQL node is there but silent. Try again; if it stays so, suspend the tenant to replace the node.")
}

fn unreachable_node(tenant: &TenantName) -> ClientError {
    ClientError::new("57P03", format!("tenant \"{tenant}\" cannot be reached"))
        .hint("Its SQL node keeps refusing connections. Try again.")
}

fn node_lost() -> ClientError {
    ClientError::new("57P01", "terminating connection because the SQL node ended unexpectedly").hint(
        "Reconnect; the tenant is served again. A transaction whose commit was not acknowledged \
         may or may not have been committed.",
    )
}

fn stopped() -> ClientError {
    ClientError::new("57P01", "terminating connection because the proxy is stopping").hint("Reconnect.")
}
