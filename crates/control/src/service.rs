//! Control at work: carries out what the [`Fleet`] decides.
//!
//! Every event goes through [`Control::with_fleet`]: under one lock the fleet is told, and its effects
//! are carried out in their order. None of them waits: messages go into bounded queues, processes are
//! started on another thread, answers are handed over. Slow things (the directory) happen before.

use crate::directory::{CreateError, Created, Directory, DirectoryError};
use crate::fleet::{
    Effect, Fleet, Limits, Moment, NodeName, NodeView, RegisterError, Registration, Route, SuspendStart,
    TenantStatus, WakeError,
};
use crate::metrics::Metrics;
use crate::orchestrator::Orchestrator;
use crate::record::{SettingsChange, TenantRecord, TenantSettings};
use lru::LruCache;
use parking_lot::Mutex;
use process::control_messages::{Assignment, ToNode, ToProxy};
use process::identity::Identity;
use process::tls::{Authority, CertificatePem};
use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;

/// Certificates of tenants that are kept for their next wake-up: about two megabytes.
const KEPT_CERTIFICATES: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// The clock is looked at this often at most.
const TICK: Duration = Duration::from_millis(20);
/// Nodes that were there before control was restarted have this long to come back: they try each
/// second, and reading their tenant's record may have to wait for the KV node.
const EXPECTED_BACK: Duration = Duration::from_secs(30);
/// How long a tenant that is to sleep may stay busy: a client that has just left is counted a moment
/// longer.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
/// Between two attempts to put it to sleep.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// Pause before the data of a dropped tenant is tried to be removed once more.
const DROP_PAUSE: Duration = Duration::from_secs(5);

/// Who waits for a tenant.
type Waiter = oneshot::Sender<Result<Route, WakeError>>;

/// Why a tenant cannot be used, suspended or dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The directory's answer.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The fleet's answer.
    #[error(transparent)]
    Wake(#[from] WakeError),
    /// Clients are connected to a tenant that is to be suspended.
    #[error("tenant \"{name}\" has {connections} connection(s)")]
    Busy {
        /// The tenant.
        name: String,
        /// Clients connected.
        connections: u64,
    },
    /// Control is ending.
    #[error("control is shutting down")]
    Ending,
}

/// What control needs from outside.
pub(crate) struct Parts {
    pub directory: Directory,
    pub orchestrator: Box<dyn Orchestrator>,
    pub authority: Authority,
    /// KV nodes known, the one that served last in front.
    pub kv_addresses: watch::Receiver<Vec<String>>,
    pub limits: Limits,
    pub first_number: u64,
    pub metrics: Metrics,
}

/// Control.
pub struct Control {
    directory: Directory,
    orchestrator: Box<dyn Orchestrator>,
    authority: Authority,
    kv_addresses: watch::Receiver<Vec<String>>,
    started: Instant,
    fleet: Mutex<Fleet<Waiter>>,
    nodes: Mutex<HashMap<NodeName, mpsc::Sender<ToNode>>>,
    proxies: Mutex<HashMap<u64, mpsc::Sender<ToProxy>>>,
    next_proxy: AtomicU64,
    certificates: Mutex<LruCache<u64, CertificatePem>>,
    /// The clock has to be looked at again.
    wake_clock: Notify,
    /// Counts changes of the fleet.
    changes: watch::Sender<u64>,
    /// What control counts.
    pub metrics: Metrics,
}

impl Control {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self {
            directory: parts.directory,
            orchestrator: parts.orchestrator,
            authority: parts.authority,
            kv_addresses: parts.kv_addresses,
            started: Instant::now(),
            fleet: Mutex::new(Fleet::new(parts.limits, parts.first_number)),
            nodes: Mutex::default(),
            proxies: Mutex::default(),
            next_proxy: AtomicU64::new(0),
            certificates: Mutex::new(LruCache::new(KEPT_CERTIFICATES)),
            wake_clock: Notify::new(),
            changes: watch::Sender::new(0),
            metrics: parts.metrics,
        })
    }

    fn now(&self) -> Moment {
        self.started.elapsed()
    }

    /// Tells the fleet something and carries out what it decides.
    fn with_fleet<T>(self: &Arc<Self>, event: impl FnOnce(&mut Fleet<Waiter>, Moment) -> T) -> T {
        let mut fleet = self.fleet.lock();
        let result = event(&mut fleet, self.now());
        for effect in fleet.take_effects() {
            self.carry_out(effect);
        }
        drop(fleet);
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
        self.wake_clock.notify_one();
        result
    }

    fn carry_out(self: &Arc<Self>, effect: Effect<Waiter>) {
        match effect {
            Effect::Start(node) => self.start_node(node),
            Effect::Assign { node, tenant } => self.assign(&node, &tenant),
            Effect::Suspend(node) => self.tell_node(&node, ToNode::Suspend),
            Effect::Stop(node) => self.tell_node(&node, ToNode::Stop),
            Effect::Kill(node) => self.orchestrator.kill(&node),
            // Who waited may be gone.
            Effect::Answer(waiter, answer) => drop(waiter.send(answer)),
            Effect::Gone(node) => self.tell_proxies(&node),
            Effect::Woke(took) => self.metrics.wake_seconds.observe(took.as_secs_f64()),
            Effect::NotWoken => self.metrics.wakes_failed.inc(),
            Effect::Slept => self.metrics.slept.inc(),
        }
    }

    fn start_node(self: &Arc<Self>, node: NodeName) {
        let control = Arc::clone(self);
        // Starting a process blocks for about a millisecond.
        tokio::task::spawn_blocking(move || match control.orchestrator.start(&node) {
            Ok(pid) => control.fleet.lock().started(&node, pid),
            Err(error) => {
                tracing::error!(node = &*node, %error, "cannot start a SQL node");
                let message = format!("cannot start its process: {error}");
                control.with_fleet(|fleet, now| fleet.start_failed(&node, &message, now));
            }
        });
    }

    fn assign(self: &Arc<Self>, node: &NodeName, tenant: &TenantRecord) {
        let certificate = match self.certificate(tenant.id) {
            Ok(certificate) => certificate,
            Err(error) => {
                tracing::error!(tenant = tenant.id, %error, "cannot make a certificate");
                // The node is told nothing; its time to serve runs out and the wake-up fails.
                return;
            }
        };
        tracing::info!(tenant = tenant.id, name = tenant.name, node = &**node, "waking");
        self.orchestrator.note_tenant(node, tenant.id);
        let mut settings = BTreeMap::new();
        if let Some(most) = tenant.settings.max_connections {
            settings.insert("max_connections".to_owned(), most.to_string());
        }
        let assignment = Assignment {
            tenant_id: tenant.id,
            tenant_name: tenant.name.clone(),
            owner_role: tenant.owner_role.clone(),
            owner_verifier: tenant.owner_verifier.clone(),
            certificate_pem: certificate.certificate,
            key_pem: certificate.key,
            kv_addresses: self.kv_addresses.borrow().clone(),
            settings,
        };
        self.tell_node(node, ToNode::Assign(assignment));
    }

    fn certificate(&self, tenant: u64) -> Result<CertificatePem, process::tls::TlsError> {
        if let Some(certificate) = self.certificates.lock().get(&tenant) {
            return Ok(certificate.clone());
        }
        let certificate = self.authority.issue(Identity::Tenant(tenant))?;
        self.certificates.lock().put(tenant, certificate.clone());
        Ok(certificate)
    }

    fn tell_node(&self, node: &NodeName, message: ToNode) {
        // A node that cannot take a message is lost, which its connection will say.
        if let Some(link) = self.nodes.lock().get(node)
            && link.try_send(message).is_err()
        {
            tracing::warn!(node = &**node, "a SQL node does not take messages");
        }
    }

    fn tell_proxies(&self, node: &NodeName) {
        let message = ToProxy::Gone { node: node.to_string() };
        // A proxy that missed a message must not go on with what it remembers: its connection is closed
        // with its queue, and it forgets everything when it connects again.
        self.proxies.lock().retain(|_, proxy| proxy.try_send(message.clone()).is_ok());
    }

    /// Follows the clock until control ends.
    pub(crate) async fn run_clock(self: Arc<Self>) {
        loop {
            let next = {
                let mut fleet = self.fleet.lock();
                let now = self.now();
                fleet.tick(now);
                let effects = fleet.take_effects();
                let changed = !effects.is_empty();
                for effect in effects {
                    self.carry_out(effect);
                }
                let next = fleet.next_deadline(now).map(|next| self.started + next);
                drop(fleet);
                if changed {
                    self.changes.send_modify(|count| *count = count.wrapping_add(1));
                }
                next
            };
            // Events come in bursts; the clock is not looked at for each.
            tokio::time::sleep(TICK).await;
            match next {
                Some(next) => {
                    let _ = tokio::time::timeout_at(next, self.wake_clock.notified()).await;
                }
                None => self.wake_clock.notified().await,
            }
        }
    }

    /// Takes up what an earlier control process left behind.
    pub(crate) fn expect_nodes(self: &Arc<Self>, nodes: Vec<(NodeName, Option<u64>)>) {
        if !nodes.is_empty() {
            tracing::info!(nodes = nodes.len(), "waiting for SQL nodes of an earlier control process");
        }
        self.with_fleet(|fleet, now| fleet.expect(nodes, now + EXPECTED_BACK));
    }

    /// A node's process has ended.
    pub(crate) fn node_exited(self: &Arc<Self>, node: &NodeName, reason: &str) {
        tracing::info!(node = &**node, reason, "a SQL node ended");
        self.nodes.lock().remove(node);
        let message = format!("its process ended: {reason}");
        self.with_fleet(|fleet, now| fleet.exited(node, &message, now));
    }

    /// A node connected.
    pub(crate) fn register(
        self: &Arc<Self>,
        registration: Registration,
        link: mpsc::Sender<ToNode>,
    ) -> Result<(), RegisterError> {
        let node = Arc::clone(&registration.node);
        let tenant = registration.tenant.as_ref().map(|tenant| tenant.id);
        if !self.orchestrator.is_process_of(&node, registration.pid, tenant) {
            return Err(RegisterError::Unknown);
        }
        // In place before the fleet can want to say something.
        let before = self.nodes.lock().insert(Arc::clone(&node), link);
        let registered = self.with_fleet(|fleet, now| fleet.register(registration, now));
        match registered {
            Ok(()) => {}
            Err(RegisterError::Duplicate) => {
                if let Some(before) = before {
                    self.nodes.lock().insert(node, before);
                }
            }
            Err(RegisterError::ServedElsewhere | RegisterError::Unknown) => {
                self.nodes.lock().remove(&node);
                self.orchestrator.kill(&node);
            }
        }
        registered
    }

    /// A node's connection is gone.
    pub(crate) fn node_lost(self: &Arc<Self>, node: &NodeName) {
        self.nodes.lock().remove(node);
        self.with_fleet(|fleet, now| fleet.lost(node, now));
    }

    /// A node serves the tenant it was given.
    pub(crate) fn node_serving(self: &Arc<Self>, node: &NodeName) {
        self.with_fleet(|fleet, now| fleet.serving(node, now));
    }

    /// A node cannot serve the tenant it was given.
    pub(crate) fn node_failed(self: &Arc<Self>, node: &NodeName, message: &str) {
        tracing::error!(node = &**node, message, "a SQL node cannot serve its tenant");
        self.with_fleet(|fleet, now| fleet.failed(node, message, now));
    }

    /// A node has connections and will not end.
    pub(crate) fn node_busy(self: &Arc<Self>, node: &NodeName) {
        self.with_fleet(|fleet, now| fleet.busy(node, now));
    }

    /// A node says how many clients it has.
    pub(crate) fn node_status(self: &Arc<Self>, node: &NodeName, connections: u64) {
        self.with_fleet(|fleet, now| fleet.status(node, connections, now));
    }

    /// A proxy connected; the number takes it away again.
    pub(crate) fn add_proxy(&self, link: mpsc::Sender<ToProxy>) -> u64 {
        let number = self.next_proxy.fetch_add(1, Ordering::Relaxed);
        self.proxies.lock().insert(number, link);
        self.metrics.proxies.inc();
        number
    }

    /// A proxy is gone.
    pub(crate) fn remove_proxy(&self, number: u64) {
        self.proxies.lock().remove(&number);
        self.metrics.proxies.dec();
    }

    /// The tenants' directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Where a tenant is, awake.
    ///
    /// # Errors
    /// If there is none of this name, or it cannot be woken.
    pub async fn resolve(self: &Arc<Self>, name: &str) -> Result<Route, ControlError> {
        let record = self.directory.get(name).await?;
        let (waiter, answer) = oneshot::channel();
        self.with_fleet(|fleet, now| fleet.resolve(&record, waiter, now));
        Ok(answer.await.map_err(|_| ControlError::Ending)??)
    }

    /// Puts a tenant to sleep and waits until it sleeps. With `force`, clients are disconnected.
    ///
    /// # Errors
    /// If there is none of this name, or clients are connected.
    pub async fn suspend(
        self: &Arc<Self>,
        name: &str,
        force: bool,
    ) -> Result<Arc<TenantRecord>, ControlError> {
        let record = self.directory.get(name).await?;
        let patience = Instant::now() + BUSY_PATIENCE;
        loop {
            match self.with_fleet(|fleet, now| fleet.suspend(record.id, force, now)) {
                SuspendStart::Asleep => return Ok(record),
                SuspendStart::Waking | SuspendStart::Asked => {}
            }
            match self.settled(record.id).await {
                TenantStatus::Suspended => return Ok(record),
                TenantStatus::Running { connections, .. } if Instant::now() >= patience => {
                    return Err(ControlError::Busy { name: record.name.clone(), connections });
                }
                _ => tokio::time::sleep(BUSY_PAUSE).await,
            }
        }
    }

    /// Waits until a tenant is neither waking nor suspending. The fleet bounds both.
    async fn settled(&self, id: u64) -> TenantStatus {
        let mut changes = self.changes.subscribe();
        loop {
            let status = self.fleet.lock().tenant(id);
            match status {
                TenantStatus::Waking | TenantStatus::Suspending => {}
                status => return status,
            }
            // The sender lives in `self`.
            let _ = changes.changed().await;
        }
    }

    /// Creates a tenant. Goes on to the end even if nobody waits for it any more; what a failure leaves
    /// behind is removed.
    ///
    /// # Errors
    /// The directory's.
    pub async fn create(
        self: &Arc<Self>,
        name: &str,
        settings: TenantSettings,
        created_unix_s: u64,
    ) -> Result<Created, ControlError> {
        let (control, name) = (Arc::clone(self), name.to_owned());
        let creating = tokio::spawn(async move {
            let created = control.directory.create(&name, settings, created_unix_s).await;
            if let Err(CreateError { begun: Some(id), error }) = &created {
                tracing::warn!(tenant = id, name, %error, "not created");
                tokio::spawn(Arc::clone(&control).remove_data(*id));
            }
            created
        });
        let created = creating.await.map_err(|_| ControlError::Ending)?;
        created.map_err(|failed| failed.error.into())
    }

    /// Changes a tenant's settings.
    ///
    /// # Errors
    /// The directory's.
    pub async fn set(
        self: &Arc<Self>,
        name: &str,
        change: SettingsChange,
    ) -> Result<Arc<TenantRecord>, ControlError> {
        let record = self.directory.set(name, change).await?;
        self.with_fleet(|fleet, _| fleet.updated(&record));
        Ok(record)
    }

    /// Drops a tenant: it is gone when this returns, its data soon after.
    ///
    /// # Errors
    /// The directory's.
    pub async fn drop_tenant(self: &Arc<Self>, name: &str) -> Result<TenantRecord, ControlError> {
        let record = self.directory.remove(name).await?;
        tracing::info!(tenant = record.id, name = record.name, "dropped");
        self.certificates.lock().pop(&record.id);
        self.with_fleet(|fleet, now| fleet.dropped(record.id, now));
        let removing = tokio::spawn(Arc::clone(self).remove_data(record.id));
        // Usually this takes milliseconds, and then a listing of the disk's use is right at once.
        let _ = tokio::time::timeout(Duration::from_secs(10), removing).await;
        Ok(record)
    }

    /// Removes the data of a tenant that was dropped, or not wholly created, once no process of it is
    /// left. Tries until it succeeds; if control ends before, the next one goes on.
    async fn remove_data(self: Arc<Self>, id: u64) {
        let mut changes = self.changes.subscribe();
        while self.fleet.lock().has_node_of(id) {
            // The sender lives in `self`.
            let _ = changes.changed().await;
        }
        while let Err(error) = self.directory.remove_data(id).await {
            tracing::warn!(tenant = id, %error, "cannot remove the data of a tenant yet");
            tokio::time::sleep(DROP_PAUSE).await;
        }
    }

    /// Goes on with what an earlier control process could not finish.
    pub(crate) async fn finish_drops(self: Arc<Self>) {
        loop {
            match self.directory.unfinished_drops().await {
                Ok(dropped) => {
                    for id in dropped {
                        tokio::spawn(Arc::clone(&self).remove_data(id));
                    }
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot look for dropped tenants yet");
                    tokio::time::sleep(DROP_PAUSE).await;
                }
            }
        }
    }

    /// What a tenant is doing.
    pub fn status(&self, id: u64) -> TenantStatus {
        self.fleet.lock().tenant(id)
    }

    /// All SQL nodes.
    pub fn sql_nodes(&self) -> Vec<NodeView> {
        self.fleet.lock().nodes()
    }

    /// How many tenants are waking, and how many run.
    pub fn awake(&self) -> (usize, usize) {
        self.fleet.lock().awake()
    }

    /// Brings the gauges up to date.
    pub fn refresh_gauges(&self) {
        let (nodes, (waking, running)) = {
            let fleet = self.fleet.lock();
            (fleet.nodes(), fleet.awake())
        };
        for state in ["starting", "warm", "assigned", "serving", "suspending", "ending"] {
            let count = nodes.iter().filter(|node| node.state == state).count();
            self.metrics.nodes.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        for (state, count) in [("waking", waking), ("running", running)] {
            self.metrics.tenants.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
