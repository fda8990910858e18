//! A machine with a disk, and the KV node that runs on it.
//!
//! A crash leaves the old process in a world of its own: its driver is dropped, its disk is another from then
//! on ([`MemoryEngine::after_crash`]), and nothing that it still says reaches anybody.

use super::Planted;
use super::stream::Breaker;
use super::world::World;
use crate::clock::{MILLI, Micros, SECOND};
use async_trait::async_trait;
use kv_server::Environment;
use kv_server::Node;
use kv_server::cluster::{Cluster, Myself};
use kv_server::environment::Surroundings;
use kv_server::faults::Bug;
use kv_server::found::open_or_found_in;
use kv_server::peers::{JoinError, JoinHandler, JoinRequest, JoinResponse, Links};
use kv_server::pipeline::{Due, Stepped, Transport};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore};
use replication::{Envelope, Millis, NodeId};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use storage::ident::{self, Identity, STORE_FORMAT};
use storage::{Engine, MemoryEngine};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Where a node can be reached.
pub fn address(id: NodeId) -> String {
    format!("n{id}:1")
}

/// The node at an address.
pub fn node_at(address: &str) -> Option<NodeId> {
    address.strip_prefix('n')?.strip_suffix(":1")?.parse().ok()
}

/// How long a node that joins asks around, and how long it pauses in between.
const JOIN_PATIENCE: Duration = Duration::from_secs(60);
const JOIN_PAUSE: Micros = 200 * MILLI;
/// Redirects followed.
const MAX_REDIRECTS: usize = 5;
/// Bytes of columns that a node keeps: some chunks, but not all.
const COLUMN_CACHE_BYTES: usize = 2 << 10;
/// Most turns of a driver without time going on.
const MAX_TURNS_AT_ONCE: u32 = 20_000;

/// A machine.
pub struct Machine {
    /// Its disk.
    pub engine: Arc<MemoryEngine>,
    /// What runs on it.
    pub process: Option<Process>,
    /// Connections of clients to it, some of which may be gone.
    pub streams: Vec<Breaker>,
    /// How many processes it has seen.
    pub starts: u64,
    /// How long a sync takes besides what is usual.
    pub slow_disk: Micros,
    /// Whether writes of the present process will fail.
    pub torn: bool,
}

/// A process that runs a node.
pub struct Process {
    /// The node.
    pub node: Arc<Node>,
    /// Its part in the cluster.
    pub cluster: Arc<Cluster>,
    /// Its tasks, as far as they are known.
    pub tasks: Vec<AbortHandle>,
    /// Of which start it is.
    pub start: u64,
    _shutdown: watch::Sender<bool>,
    /// Given to those who serve connections.
    pub shutdown: watch::Receiver<bool>,
}

impl Machine {
    /// A machine with an empty disk.
    pub fn new() -> Self {
        Machine {
            engine: Arc::new(MemoryEngine::new()),
            process: None,
            streams: Vec::new(),
            starts: 0,
            slow_disk: 0,
            torn: false,
        }
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

/// Time and chance of a node.
struct NodeWorld {
    world: Arc<World>,
    id: NodeId,
    rng: Mutex<SmallRng>,
}

impl Surroundings for NodeWorld {
    fn millis(&self) -> Millis {
        self.world.with_clock(self.id, |clock, now| clock.millis(now))
    }

    fn physical_ns(&self) -> u64 {
        self.world.with_clock(self.id, |clock, now| clock.wall_ns(now))
    }

    fn planted(&self, bug: Bug) -> bool {
        self.world.options.bug == Some(Planted::Node(bug))
    }

    fn random(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.rng.lock().fill_bytes(&mut bytes);
        bytes
    }
}

/// The ways of one process to the others.
struct Ways {
    world: Arc<World>,
    id: NodeId,
    start: u64,
}

impl Ways {
    fn is_alive(&self) -> bool {
        self.world.with_machine(self.id, |machine| machine.starts == self.start) == Some(true)
    }
}

impl Transport for Ways {
    fn send(&self, envelope: Envelope) {
        if self.is_alive() {
            self.world.send(envelope);
        }
    }
}

#[async_trait]
impl Links for Ways {
    fn set_address(&self, _: NodeId, _: String) {}

    fn send(&self, envelope: Envelope) {
        Transport::send(self, envelope);
    }

    async fn join(
        &self,
        addresses: &[String],
        request: JoinRequest,
        deadline: Instant,
    ) -> Result<JoinResponse, JoinError> {
        join(&self.world, self.id, addresses, request, deadline).await
    }
}

/// One question to join; `None` if there is no answer.
async fn ask_to_join(
    world: &World,
    from: NodeId,
    address: &str,
    request: JoinRequest,
) -> Option<JoinResponse> {
    let to = node_at(address)?;
    world.sleep(world.stream_delay((from, to))).await;
    if world.is_cut((from, to)) {
        return None;
    }
    let cluster =
        world.with_machine(to, |machine| Some(Arc::clone(&machine.process.as_ref()?.cluster)))??;
    let response = cluster.join(request).await;
    world.sleep(world.stream_delay((to, from))).await;
    (!world.is_cut((to, from))).then_some(response)
}

async fn join(
    world: &World,
    from: NodeId,
    addresses: &[String],
    request: JoinRequest,
    deadline: Instant,
) -> Result<JoinResponse, JoinError> {
    loop {
        for first in addresses {
            let mut address = first.clone();
            for _ in 0..MAX_REDIRECTS {
                let asked = ask_to_join(world, from, &address, request.clone());
                let Ok(Some(response)) = tokio::time::timeout(Duration::from_secs(5), asked).await else {
                    break;
                };
                match response {
                    JoinResponse { error: Some(error), try_again: false, .. } => {
                        return Err(JoinError::Refused(error));
                    }
                    JoinResponse { error: Some(_), .. } => break,
                    JoinResponse { redirect, .. } if !redirect.is_empty() => address = redirect,
                    response => return Ok(response),
                }
            }
        }
        if Instant::now() >= deadline {
            return Err(JoinError::Unreachable("nobody took the node in".to_owned()));
        }
        world.sleep(JOIN_PAUSE).await;
    }
}

/// The identity of a machine's store; a new one joins first.
async fn identity(
    world: &World,
    id: NodeId,
    engine: &Arc<MemoryEngine>,
    environment: &Environment,
) -> Result<Identity, String> {
    let shared: Arc<dyn Engine> = engine.clone();
    if let Some(identity) = ident::open(&*shared).map_err(|error| error.to_string())? {
        return Ok(identity);
    }
    if id == 1 {
        return open_or_found_in(&shared, environment).map_err(|error| error.to_string());
    }
    let store_id = [u8::try_from(id).unwrap_or(0xff); 16];
    let request = JoinRequest { address: address(id), store_id: hex(&store_id), ..JoinRequest::default() };
    let deadline = Instant::now() + JOIN_PATIENCE;
    let joined =
        join(world, id, &[address(1)], request, deadline).await.map_err(|error| error.to_string())?;
    if joined.node_id != id {
        return Err(format!("node {id} became node {}", joined.node_id));
    }
    let identity = Identity { format: STORE_FORMAT, cluster_id: joined.cluster_id, node_id: id, store_id };
    ident::write(&*shared, &identity).map_err(|error| error.to_string())?;
    Ok(identity)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Starts the node of a machine.
pub async fn start(world: &Arc<World>, id: NodeId) {
    let engine = world.with_machine(id, |machine| {
        machine.starts += 1;
        (Arc::clone(&machine.engine), machine.starts)
    });
    let Some((engine, start)) = engine else { return };
    world.note(|| format!("node {id}: starts"));
    // As NTP does when a machine boots.
    world.end_wrong_clock(id);
    if let Err(error) = start_on(world, id, engine, start).await {
        world.violate("nodes start", format!("node {id}: {error}"));
    }
}

/// A process's, but that nodes bear clocks that are meant to be further apart than a process would.
fn limits(world: &World, id: NodeId) -> kv_server::Limits {
    let merge_after = Duration::from_micros(world.plan.merge_after);
    // Batches are small.
    let column_cache =
        kv_server::ColumnCacheConfig { bytes: COLUMN_CACHE_BYTES, chunk_rows: 3, least_rows: 1 };
    let mut limits =
        kv_server::Limits { merge_after, vacancy_patience: 1, column_cache, ..kv_server::Limits::default() };
    // Every other node evaluates nearly everything anew.
    if id.is_multiple_of(2) {
        limits.inline_reads = 2;
    }
    let apart = Duration::from_micros(2 * world.plan.wall_error.unsigned_abs());
    if apart > limits.max_clock_offset {
        limits.max_clock_offset = 2 * apart;
    }
    limits
}

async fn start_on(
    world: &Arc<World>,
    id: NodeId,
    engine: Arc<MemoryEngine>,
    start: u64,
) -> Result<(), String> {
    let (origin, rng) = (world.draw(|rng| rng.random_range(0..1_000_000)), world.own_rng());
    world.with_clock(id, |clock, now| clock.restart(now, origin));
    let ways = || Arc::new(Ways { world: Arc::clone(world), id, start });
    let surroundings = NodeWorld { world: Arc::clone(world), id, rng: Mutex::new(rng) };
    let environment = Environment::given(Arc::new(surroundings));
    let identity = identity(world, id, &engine, &environment).await?;
    let started = Node::start_stepped(engine, limits(world, id), &identity, ways(), environment);
    let (node, stepped) = started.map_err(|error| error.to_string())?;
    let myself = Myself {
        id,
        address: address(id),
        locality: String::new(),
        store_id: hex(&identity.store_id),
        join: (1..=world.plan.nodes).filter(|other| *other != id).map(address).collect(),
        dead_after: Duration::from_secs(300),
    };
    let cluster = Cluster::new(&node, Some(ways()), myself);
    node.set_cluster(Arc::clone(&cluster));
    let (sender, shutdown) = watch::channel(false);
    let driver = tokio::spawn(drive(Arc::clone(world), id, start, stepped)).abort_handle();
    let process = Process {
        node,
        cluster: Arc::clone(&cluster),
        tasks: vec![driver],
        start,
        _shutdown: sender,
        shutdown,
    };
    // Those that fell silent with the last process are seen to be gone now.
    world.streams_of(id).iter().for_each(Breaker::break_off);
    world.with_machine(id, |machine| machine.process = Some(process));
    let announced = cluster.begin().await;
    let looking = tokio::spawn(cluster.run(announced)).abort_handle();
    world.with_machine(id, |machine| match &mut machine.process {
        Some(process) if process.start == start => process.tasks.push(looking),
        _ => looking.abort(),
    });
    Ok(())
}

/// Drives the replicas of a process, until it is gone.
async fn drive(world: Arc<World>, id: NodeId, start: u64, mut stepped: Stepped) {
    let (mut at, mut turns) = (0, 0);
    loop {
        if let Due::After(millis) = stepped.due() {
            let asked = stepped.asked();
            tokio::select! {
                biased;
                () = asked => {}
                () = world.sleep(millis * MILLI) => {}
            }
            // What is asked together is carried out together.
            tokio::task::yield_now().await;
            if let Due::After(_) = stepped.due() {
                continue;
            }
        }
        if !stepped.turn() {
            let torn = world.with_machine(id, |machine| machine.starts == start && machine.torn);
            let too_far = world
                .with_machine(id, |machine| machine.process.as_ref()?.node.pipeline().too_far())
                .flatten();
            match torn {
                _ if too_far.is_some() => stop_for_clock(&world, id),
                Some(true) => {
                    world.note(|| format!("node {id}: failed in the middle of a turn"));
                    drop(stepped);
                    crash(&world, id, Loss::Everything, Ending::Noticed);
                    let world = Arc::clone(&world);
                    tokio::spawn(async move {
                        world.sleep(world.draw(|rng| rng.random_range(10 * MILLI..2 * SECOND))).await;
                        begin_again(&world, id).await;
                    });
                }
                _ => world.violate("nodes run", format!("the replicas of node {id} ended")),
            }
            return;
        }
        let (from, to) = world.plan.sync;
        let slow = world.with_machine(id, |machine| machine.slow_disk).unwrap_or(0);
        let pause = world.draw(|rng| rng.random_range(from..=to)) + slow;
        if world.now() != at {
            (at, turns) = (world.now(), 0);
        }
        turns += 1;
        if turns > MAX_TURNS_AT_ONCE {
            return world.violate("nodes come to rest", format!("node {id} has turn after turn"));
        }
        if pause >= MILLI {
            world.sleep(pause).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
}

/// A node has stopped itself because its clock is wrong.
fn stop_for_clock(world: &Arc<World>, id: NodeId) {
    if !world.has_wrong_clock(id) {
        return world
            .violate("nodes with right clocks go on", format!("node {id} has stopped for its clock"));
    }
    world.note(|| format!("node {id}: has stopped, its clock is wrong"));
    world.count("stopped for the clock");
    crash(world, id, Loss::Everything, Ending::Noticed);
    let world = Arc::clone(world);
    tokio::spawn(async move {
        world.sleep(world.draw(|rng| rng.random_range(10 * MILLI..3 * SECOND))).await;
        begin_again(&world, id).await;
    });
}

/// What a crash loses of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All of it.
    Everything,
    /// All but the first few writes.
    Some,
}

/// How others notice a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Connections break: the process is gone.
    Noticed,
    /// Connections fall silent: the machine is gone.
    Silent,
}

/// Crashes the node of a machine; false if none runs.
pub fn crash(world: &World, id: NodeId, loss: Loss, ending: Ending) -> bool {
    let keep = world.draw(|rng| rng.random_range(1..8));
    let process = world.with_machine(id, |machine| {
        let process = machine.process.take()?;
        machine.starts += 1;
        machine.torn = false;
        if loss == Loss::Some {
            machine.engine.crash_keeping(keep);
        }
        machine.engine = Arc::new(machine.engine.after_crash());
        Some(process)
    });
    let Some(process) = process.flatten() else { return false };
    world.note(|| format!("node {id}: crashes, loses {loss:?}, {ending:?}"));
    world.count("node crashes");
    process.tasks.iter().for_each(AbortHandle::abort);
    for stream in world.streams_of(id) {
        match ending {
            Ending::Noticed => stream.break_off(),
            Ending::Silent => stream.silence(),
        }
    }
    true
}

/// Starts a crashed node, if nobody has.
pub fn begin_again(world: &Arc<World>, id: NodeId) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let world = Arc::clone(world);
    // A driver that fails starts its node again: the type would hold itself.
    Box::pin(async move {
        if world.with_machine(id, |machine| machine.process.is_none()) == Some(true) {
            start(&world, id).await;
        }
    })
}
