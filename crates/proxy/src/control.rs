//! Asking control where a tenant is, over one connection that is kept.
//!
//! [`Control`] is what connections use: it looks into the [`RouteCache`] and otherwise joins the question
//! that is under way for the tenant, or asks it. [`ControlLink`] is the task that carries questions to
//! control and answers back; it reconnects for as long as it lives and then asks again what is still
//! waited for.
//!
//! ```text
//!   connections ── route(tenant) ──► cache hit ─────────────────────────────► route
//!                        │ miss
//!                        ▼
//!                  waiting[tenant] ──► ControlLink ── resolve ──► control
//!                        ▲                  │ resolved, error, gone
//!                        └──── answer ──────┘ (cache changed first, in the order control spoke)
//! ```
//!
//! Bounds: one question per tenant is under way however many clients wait, and who waits holds a permit of
//! [`Admission`](crate::admission::Admission). While control is away cached routes go on working; the cache
//! is emptied when control is back, because what it said meanwhile was missed.

use crate::config::{Config, Timeouts};
use crate::error::ClientError;
use crate::metrics::Metrics;
use crate::routes::{Route, RouteCache};
use crate::startup::tenant::TenantName;
use crate::stream::prepare_tcp;
use hashbrown::HashMap;
use parking_lot::Mutex;
use process::control_messages::{FromProxy, ResolveError, ToProxy, read_message, write_message};
use process::identity::Identity;
use process::tls::{internal_name, peer_identity};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, BufReader, split};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::TlsConnector;

/// Between two attempts to reach control, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Between two questions about a tenant that cannot be had right now, at first and at most.
const ASK_AGAIN_FIRST: Duration = Duration::from_millis(100);
const ASK_AGAIN_LAST: Duration = Duration::from_secs(1);
/// How long connecting to control may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// What control answered, for everybody who waits.
type Answer = Result<Found, Refused>;

/// A route and how it was found.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub route: Route,
    /// It was remembered, so it may be stale.
    pub cached: bool,
    /// The tenant had to be woken for it.
    pub woken: bool,
}

/// Control's refusal.
#[derive(Debug, Clone)]
struct Refused {
    code: ResolveError,
    message: String,
    hint: Option<String>,
}

impl Refused {
    /// Whether another answer may come soon. The client is held meanwhile.
    fn may_pass(&self) -> bool {
        matches!(self.code, ResolveError::Unavailable | ResolveError::Overloaded)
    }

    fn into_error(self) -> ClientError {
        let error = ClientError::new(self.code.sqlstate(), self.message);
        match self.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

/// Finds routes.
#[derive(Debug)]
pub(crate) struct Control {
    routes: Mutex<RouteCache>,
    waiting: Mutex<HashMap<TenantName, Vec<oneshot::Sender<Answer>>>>,
    /// Bounded by `waiting`: a tenant is in it once per question.
    questions: mpsc::UnboundedSender<TenantName>,
    connected: watch::Sender<bool>,
    timeouts: Timeouts,
}

impl Control {
    /// The two ends. Nothing is asked before the link runs.
    pub fn new(config: &Config, metrics: Arc<Metrics>) -> (Arc<Self>, ControlLink) {
        let (questions, asked) = mpsc::unbounded_channel();
        let control = Arc::new(Self {
            routes: Mutex::new(RouteCache::new(config.route_cache)),
            waiting: Mutex::default(),
            questions,
            connected: watch::Sender::new(false),
            timeouts: config.timeouts.clone(),
        });
        let link = ControlLink {
            control: Arc::clone(&control),
            asked,
            address: config.control_address.clone(),
            tls: Arc::clone(&config.internal_tls),
            metrics,
            next_id: 1,
        };
        (control, link)
    }

    /// The route of a tenant, woken if need be. Ends at the deadline at the latest.
    pub async fn route(&self, tenant: &TenantName, deadline: Instant) -> Result<Found, ClientError> {
        if let Some(route) = self.routes.lock().get(tenant) {
            return Ok(Found { route, cached: true, woken: false });
        }
        let mut pause = ASK_AGAIN_FIRST;
        loop {
            match self.ask(tenant, deadline).await? {
                Ok(found) => return Ok(found),
                Err(refused) if refused.may_pass() && Instant::now() + pause < deadline => sleep(pause).await,
                Err(refused) => return Err(refused.into_error()),
            }
            pause = (pause * 2).min(ASK_AGAIN_LAST);
        }
    }

    /// Forgets a route that did not work.
    pub fn forget(&self, tenant: &TenantName, failed: &Route) {
        self.routes.lock().forget(tenant, failed);
    }

    /// Asks, or joins who asked, and waits for the answer.
    async fn ask(&self, tenant: &TenantName, deadline: Instant) -> Result<Answer, ClientError> {
        let mut answer = self.join_question(tenant);
        let patience = deadline.min(Instant::now() + self.timeouts.control);
        if let Ok(answer) = timeout_at(patience, &mut answer).await {
            return answer.map_err(|_| unreachable_control());
        }
        if !*self.connected.borrow() {
            return Err(unreachable_control());
        }
        match timeout_at(deadline, answer).await {
            Ok(answer) => answer.map_err(|_| unreachable_control()),
            Err(_) => Err(slow_wake(tenant)),
        }
    }

    fn join_question(&self, tenant: &TenantName) -> oneshot::Receiver<Answer> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        let waiters = waiting.entry(tenant.clone()).or_default();
        // Nobody else waits any more: the answer may be lost, so the question is put again.
        waiters.retain(|waiter| !waiter.is_closed());
        if waiters.is_empty() {
            // Fails only when the link has ended, which the waiter learns by its timeout.
            let _ = self.questions.send(tenant.clone());
        }
        waiters.push(sender);
        receiver
    }

    fn answer(&self, tenant: &TenantName, answer: &Answer) {
        let waiters = self.waiting.lock().remove(tenant).unwrap_or_default();
        for waiter in waiters {
            // Who has stopped waiting does not mind.
            let _ = waiter.send(answer.clone());
        }
    }

    /// The tenants somebody still waits for.
    fn unanswered(&self) -> Vec<TenantName> {
        let mut waiting = self.waiting.lock();
        waiting.retain(|_, waiters| waiters.iter().any(|waiter| !waiter.is_closed()));
        waiting.keys().cloned().collect()
    }
}

fn unreachable_control() -> ClientError {
    ClientError::new("57P03", "the tenant cannot be looked up right now")
        .hint("The control process does not answer. Tenants in use are still served; try again.")
}

fn slow_wake(tenant: &TenantName) -> ClientError {
    ClientError::new("57P03", format!("waking tenant \"{tenant}\" takes too long")).hint("Try again.")
}

/// Carries questions to control and answers back.
#[derive(Debug)]
pub(crate) struct ControlLink {
    control: Arc<Control>,
    asked: mpsc::UnboundedReceiver<TenantName>,
    address: String,
    tls: Arc<rustls::ClientConfig>,
    metrics: Arc<Metrics>,
    next_id: u64,
}

/// What is under way on one connection.
type InFlight = Mutex<HashMap<u64, TenantName>>;

impl ControlLink {
    /// Connects and reconnects until dropped.
    pub async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.connect().await {
                Ok(stream) => {
                    pause = FIRST_PAUSE;
                    self.serve(stream).await
                }
                Err(error) => error,
            };
            tracing::warn!(address = %self.address, %error, "no connection to control");
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn connect(&self) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let connect = async {
            let socket = TcpStream::connect(&self.address).await?;
            prepare_tcp(&socket)?;
            TlsConnector::from(Arc::clone(&self.tls)).connect(internal_name(), socket).await
        };
        let stream = timeout(CONNECT_PATIENCE, connect).await??;
        match peer_identity(stream.get_ref().1) {
            Some(Identity::Control) => Ok(stream),
            _ => Err(io::Error::other("the peer does not identify itself as control")),
        }
    }

    /// Serves one connection to its end.
    async fn serve(&mut self, stream: impl AsyncRead + AsyncWrite) -> io::Error {
        tracing::info!(address = %self.address, "connected to control");
        self.control.routes.lock().clear();
        self.control.connected.send_replace(true);
        self.metrics.control_connected.set(1);
        let in_flight = InFlight::default();
        let (reader, writer) = split(stream);
        let control = Arc::clone(&self.control);
        let ended = tokio::select! {
            ended = listen(&control, &in_flight, reader) => ended,
            ended = self.talk(&in_flight, writer) => ended,
        };
        self.control.connected.send_replace(false);
        self.metrics.control_connected.set(0);
        ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Sends questions: first those that are open, then new ones.
    async fn talk(&mut self, in_flight: &InFlight, writer: impl AsyncWrite) -> io::Result<()> {
        let mut writer = std::pin::pin!(writer);
        while self.asked.try_recv().is_ok() {}
        for tenant in self.control.unanswered() {
            self.put(in_flight, tenant, &mut writer).await?;
        }
        while let Some(tenant) = self.asked.recv().await {
            self.put(in_flight, tenant, &mut writer).await?;
        }
        Ok(())
    }

    async fn put(
        &mut self,
        in_flight: &InFlight,
        tenant: TenantName,
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let question = FromProxy::Resolve { id, tenant: tenant.as_str().to_owned() };
        in_flight.lock().insert(id, tenant);
        write_message(writer, &question).await
    }
}

/// Takes what control says.
async fn listen(control: &Control, in_flight: &InFlight, reader: impl AsyncRead) -> io::Result<()> {
    let mut reader = std::pin::pin!(BufReader::new(reader));
    while let Some(message) = read_message::<ToProxy>(&mut reader).await? {
        take(control, in_flight, message);
    }
    Ok(())
}

fn take(control: &Control, in_flight: &InFlight, message: ToProxy) {
    match message {
        ToProxy::Resolved { id, tenant_id, address, node, max_connections, woken } => {
            let Some(tenant) = in_flight.lock().remove(&id) else { return };
            let route = Route { tenant_id, address: address.into(), node: node.into(), max_connections };
            control.routes.lock().insert(tenant.clone(), route.clone());
            control.answer(&tenant, &Ok(Found { route, cached: false, woken }));
        }
        ToProxy::Error { id, code, message, hint } => {
            let Some(tenant) = in_flight.lock().remove(&id) else { return };
            control.answer(&tenant, &Err(Refused { code, message, hint }));
        }
        ToProxy::Gone { node } => control.routes.lock().node_gone(&node),
    }
}
