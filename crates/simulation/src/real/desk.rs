//! A client's process: where its [`KvClient`] has time, chance and connections from.

use super::Planted;
use super::machine::{address, node_at};
use super::stream::{Breaker, connection};
use super::world::World;
use kv_client::environment::{Connecting, Stream, Surroundings};
use kv_client::faults::Bug;
use kv_client::{Config, Environment, KvClient, TenantId};
use kv_server::authorize::Caller;
use parking_lot::Mutex;
use rand::RngCore;
use rand::rngs::SmallRng;
use replication::NodeId;
use rustls::pki_types::CertificateDer;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A client's process.
pub struct Desk {
    own: std::sync::Weak<Desk>,
    world: Arc<World>,
    place: NodeId,
    caller: Caller,
    rng: Mutex<SmallRng>,
    alive: AtomicBool,
    streams: Mutex<Vec<Breaker>>,
}

impl Desk {
    /// A process at a place that is this caller.
    pub fn new(world: &Arc<World>, place: NodeId, caller: Caller) -> Arc<Self> {
        Arc::new_cyclic(|own| Desk {
            own: own.clone(),
            world: Arc::clone(world),
            place,
            caller,
            rng: Mutex::new(world.own_rng()),
            alive: AtomicBool::new(true),
            streams: Mutex::default(),
        })
    }

    /// Its client. Must be called within the runtime of the run.
    pub fn client(self: &Arc<Self>) -> KvClient {
        let tenant = match self.caller {
            Caller::Tenant(tenant) => tenant,
            Caller::Control => TenantId::SYSTEM,
        };
        let addresses = (1..=self.world.plan.nodes).map(address).collect();
        let mut config = Config::new(addresses, unused_tls(), tenant);
        config.environment = Environment::given(Arc::<Desk>::clone(self));
        KvClient::connect(config)
    }

    /// The process is gone: whatever still runs of it reaches nobody.
    pub fn crash(&self) {
        self.alive.store(false, Ordering::Relaxed);
        self.break_connections();
    }

    /// Whether it runs.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    /// Breaks its connections.
    pub fn break_connections(&self) {
        self.streams.lock().drain(..).for_each(|stream| stream.break_off());
    }

    async fn dial(self: Arc<Self>, to: Option<NodeId>) -> io::Result<Box<dyn Stream>> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let world = &self.world;
        let to = to.ok_or_else(refused)?;
        let link = (self.place, to);
        world.sleep(world.stream_delay(link)).await;
        if world.is_cut(link) || world.is_cut((to, self.place)) {
            // Nobody answers; the caller gives up.
            std::future::pending::<()>().await;
        }
        let serving = world.with_machine(to, |machine| {
            let process = machine.process.as_ref()?;
            Some((Arc::clone(&process.node), process.shutdown.clone()))
        });
        let (node, shutdown) = serving.flatten().ok_or_else(refused)?;
        if !self.alive.load(Ordering::Relaxed) {
            return Err(refused());
        }
        let (here, there, breaker) = connection(world, link);
        let caller = self.caller;
        let task = tokio::spawn(async move {
            // How it ended is of no interest.
            let _ = kv_server::connection::serve(node, caller, there, shutdown).await;
        });
        world.with_machine(to, |machine| {
            machine.streams.retain(Breaker::is_live);
            machine.streams.push(breaker.clone());
            if let Some(process) = &mut machine.process {
                process.tasks.retain(|task| !task.is_finished());
                process.tasks.push(task.abort_handle());
            }
        });
        let mut streams = self.streams.lock();
        streams.retain(Breaker::is_live);
        streams.push(breaker);
        Ok(Box::new(here))
    }
}

impl Surroundings for Desk {
    fn physical_ns(&self) -> u64 {
        self.world.with_clock(self.place, |clock, now| clock.wall_ns(now))
    }

    fn random(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.rng.lock().fill_bytes(&mut bytes);
        bytes
    }

    fn planted(&self, bug: Bug) -> bool {
        self.world.options.bug == Some(Planted::Client(bug))
    }

    fn connect(&self, address: &str) -> Connecting {
        let (desk, to) = (self.own.upgrade(), node_at(address));
        Box::pin(async move {
            match desk {
                Some(desk) => desk.dial(to).await,
                None => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }
}

/// Certificates that nobody looks at.
fn unused_tls() -> Arc<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(std::iter::empty::<CertificateDer<'static>>());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().expect("the provider's own versions");
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}
