//! What the fleet consists of, what it asks for, and how it is bounded.

use crate::record::TenantRecord;
use std::sync::Arc;
use std::time::Duration;

/// Name of a SQL node.
pub type NodeName = Arc<str>;

/// A point in time: since an origin of the caller's choice, the same for all calls.
pub type Moment = Duration;

/// Bounds and times.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Warm nodes to keep.
    pub pool: usize,
    /// Most nodes starting at a time.
    pub max_starting: usize,
    /// Most nodes in all, warm ones included.
    pub max_nodes: usize,
    /// Most tenants waking at a time.
    pub max_waking: usize,
    /// Most clients of one tenant held at a time.
    pub max_waiters: usize,
    /// A tenant without connections is suspended after this time; `None` is never.
    pub idle_timeout: Option<Duration>,
    /// Longest time a client is held.
    pub wake_timeout: Duration,
    /// From a node's start to its registration.
    pub start_timeout: Duration,
    /// From an assignment to serving.
    pub assign_timeout: Duration,
    /// From asking a node to end to its end.
    pub suspend_timeout: Duration,
    /// How often one wake-up is tried.
    pub max_attempts: u32,
    /// How long the pool stays unfilled after a warm node was used: the newcomer would compete with
    /// the waking tenant for the processor.
    pub refill_delay: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pool: 2,
            max_starting: 4,
            max_nodes: 2_000,
            max_waking: 256,
            max_waiters: 5_000,
            idle_timeout: Some(Duration::from_secs(300)),
            wake_timeout: Duration::from_secs(10),
            start_timeout: Duration::from_secs(10),
            assign_timeout: Duration::from_secs(10),
            suspend_timeout: Duration::from_secs(10),
            max_attempts: 5,
            refill_delay: Duration::from_millis(30),
        }
    }
}

/// What has to be done outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect<W> {
    /// Start a process that registers under this name.
    Start(NodeName),
    /// Give a warm node its tenant.
    Assign {
        /// The node.
        node: NodeName,
        /// Its tenant.
        tenant: Arc<TenantRecord>,
    },
    /// Ask a node to end if nobody is connected.
    Suspend(NodeName),
    /// Tell a node to end, whoever is connected.
    Stop(NodeName),
    /// End a node's process at once.
    Kill(NodeName),
    /// Tell someone who asked where a tenant is.
    Answer(W, Result<Route, WakeError>),
    /// Tell all proxies to forget a node.
    Gone(NodeName),
    /// A tenant woke; how long it took.
    Woke(Duration),
    /// A tenant's wake-up was given up.
    NotWoken,
    /// A tenant was suspended, or its node died.
    Slept,
}

/// Where a tenant is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The tenant.
    pub tenant_id: u64,
    /// Name of the SQL node.
    pub node: NodeName,
    /// Its address for proxies.
    pub address: Arc<str>,
    /// Most connections the tenant may have, if it has a limit of its own.
    pub max_connections: Option<u32>,
    /// Whether it had to be woken.
    pub woken: bool,
}

/// Why a tenant cannot be used now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WakeError {
    /// No SQL node would start or serve the tenant.
    #[error("the tenant's SQL node would not start: {0}")]
    StartFailed(String),
    /// A bound was reached.
    #[error("{0}")]
    Overloaded(&'static str),
    /// It took too long.
    #[error("{0}")]
    Unavailable(String),
    /// The tenant was dropped meanwhile.
    #[error("the tenant was dropped")]
    Dropped,
}

/// What a node says about itself when it connects.
#[derive(Debug, Clone)]
pub struct Registration {
    /// Its name.
    pub node: NodeName,
    /// Its process.
    pub pid: u32,
    /// Its address for proxies.
    pub address: Arc<str>,
    /// The tenant it serves already: it outlived an earlier control process.
    pub tenant: Option<Arc<TenantRecord>>,
}

/// Why a registration is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Another connection has this name already.
    #[error("a node of this name is registered already")]
    Duplicate,
    /// The tenant has another node.
    #[error("the tenant is served by another node")]
    ServedElsewhere,
    /// Nobody started a node of this name.
    #[error("no node of this name was started here")]
    Unknown,
}

/// What became of the wish to suspend a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuspendStart {
    /// It sleeps already.
    Asleep,
    /// Its node was asked.
    Asked,
    /// It is waking; ask again when it is awake.
    Waking,
}

/// What a tenant is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TenantStatus {
    /// Nothing runs for it.
    Suspended,
    /// Clients are waiting for it.
    Waking,
    /// It is served.
    Running {
        /// By this node.
        node: NodeName,
        /// Clients connected.
        connections: u64,
    },
    /// Its node was asked to end.
    Suspending,
}

impl TenantStatus {
    /// The word for users. A tenant that is being suspended still runs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Suspended => "suspended",
            Self::Waking => "waking",
            Self::Running { .. } | Self::Suspending => "running",
        }
    }
}

/// A node as listed for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// Its name.
    pub name: NodeName,
    /// Its process, once known.
    pub pid: Option<u32>,
    /// `starting`, `warm`, `assigned`, `serving`, `suspending` or `ending`.
    pub state: &'static str,
    /// Its tenant.
    pub tenant_id: Option<u64>,
    /// Clients connected.
    pub connections: u64,
}
