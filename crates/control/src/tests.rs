//! Control with its real listener and clock, and with SQL nodes that are played.

use crate::directory::Directory;
use crate::directory::memory::MemoryStore;
use crate::fleet::{Limits, NodeName};
use crate::listener;
use crate::metrics::Metrics;
use crate::orchestrator::Orchestrator;
use crate::record::TenantSettings;
use crate::service::{Control, ControlError, Parts};
use parking_lot::Mutex;
use process::control_messages::{
    FromNode, FromProxy, ResolveError, ToNode, ToProxy, read_message, write_message,
};
use process::identity::Identity;
use process::tls::{self, Authority};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Remembers what was asked of it.
#[derive(Default)]
struct Fake {
    tenants: Mutex<HashMap<NodeName, Option<u64>>>,
}

/// Every node has this process number.
const PID: u32 = 7;

struct Played {
    fake: Arc<Fake>,
    started: mpsc::UnboundedSender<NodeName>,
    killed: mpsc::UnboundedSender<NodeName>,
}

impl Orchestrator for Played {
    fn start(&self, node: &NodeName) -> io::Result<u32> {
        self.fake.tenants.lock().insert(Arc::clone(node), None);
        let _ = self.started.send(Arc::clone(node));
        Ok(PID)
    }

    fn kill(&self, node: &NodeName) {
        let _ = self.killed.send(Arc::clone(node));
    }

    fn note_tenant(&self, node: &NodeName, tenant: u64) {
        self.fake.tenants.lock().insert(Arc::clone(node), Some(tenant));
    }

    fn is_process_of(&self, node: &NodeName, pid: u32, tenant: Option<u64>) -> bool {
        pid == PID
            && self.fake.tenants.lock().get(node).is_some_and(|noted| tenant.is_none() || *noted == tenant)
    }
}

/// Control and what it asked of its surroundings.
struct World {
    control: Arc<Control>,
    authority: Authority,
    address: SocketAddr,
    fake: Arc<Fake>,
    started: mpsc::UnboundedReceiver<NodeName>,
    killed: mpsc::UnboundedReceiver<NodeName>,
}

/// One end of an internal connection.
struct Peer(BufReader<TlsStream<TcpStream>>);

impl World {
    async fn new() -> Self {
        let authority = Authority::create().unwrap();
        let ca = authority.pem().certificate.clone();
        let server = tls::internal_server(&ca, &authority.issue(Identity::Control).unwrap()).unwrap();
        let (started_sender, started) = mpsc::unbounded_channel();
        let (killed_sender, killed) = mpsc::unbounded_channel();
        let fake = Arc::new(Fake::default());
        let control = Control::new(Parts {
            directory: Directory::new(Box::new(MemoryStore::default())),
            orchestrator: Box::new(Played {
                fake: Arc::clone(&fake),
                started: started_sender,
                killed: killed_sender,
            }),
            authority: Authority::from_pem(authority.pem().clone()).unwrap(),
            kv_addresses: watch::channel(vec!["127.0.0.1:1".into(), "127.0.0.1:2".into()]).1,
            limits: Limits { pool: 1, max_starting: 1, ..Limits::default() },
            first_number: 1,
            metrics: Metrics::register(&prometheus::Registry::new()).unwrap(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(listener::serve(listener, TlsAcceptor::from(server), Arc::clone(&control)));
        tokio::spawn(Arc::clone(&control).run_clock());
        World { control, authority, address, fake, started, killed }
    }

    async fn connect(&self, identity: Identity) -> Peer {
        let own = self.authority.issue(identity).unwrap();
        let config = tls::internal_client(&self.authority.pem().certificate, &own).unwrap();
        let stream = TcpStream::connect(self.address).await.unwrap();
        Peer(BufReader::new(TlsConnector::from(config).connect(tls::internal_name(), stream).await.unwrap()))
    }

    async fn register(&self, identity: Identity, node: &NodeName, tenant: Option<u64>) -> Peer {
        let mut peer = self.connect(identity).await;
        let address = format!("unix:/{node}");
        peer.say(&FromNode::Register { node: node.to_string(), pid: PID, address, tenant }).await;
        peer
    }

    async fn warm_node(&mut self) -> (NodeName, Peer) {
        let name = self.started.recv().await.unwrap();
        let peer = self.register(Identity::Warm, &name, None).await;
        (name, peer)
    }

    async fn tenant(&self, name: &str) -> u64 {
        self.control.directory().create(name, TenantSettings::default(), 0).await.unwrap().record.id
    }
}

impl Peer {
    async fn say(&mut self, message: &impl Serialize) {
        write_message(&mut self.0, message).await.unwrap();
    }

    async fn hear<M: DeserializeOwned>(&mut self) -> M {
        read_message(&mut self.0).await.unwrap().expect("a message")
    }

    /// Control closed the connection without a word.
    async fn was_refused(mut self) -> bool {
        !matches!(read_message::<serde_json::Value>(&mut self.0).await, Ok(Some(_)))
    }
}

fn resolve(id: u64, tenant: &str) -> FromProxy {
    FromProxy::Resolve { id, tenant: tenant.into() }
}

#[tokio::test]
async fn a_proxys_question_wakes_a_tenant_and_a_suspended_one_is_gone_for_the_proxy() {
    let mut world = World::new().await;
    let id = world.tenant("app").await;
    let (name, mut node) = world.warm_node().await;
    let mut proxy = world.connect(Identity::Proxy).await;
    proxy.say(&resolve(1, "app")).await;
    proxy.say(&resolve(2, "app")).await;
    let ToNode::Assign(assignment) = node.hear().await else { panic!("an assignment") };
    assert_eq!((assignment.tenant_id, assignment.tenant_name.as_str()), (id, "app"));
    assert!(assignment.owner_verifier.starts_with("SCRAM-SHA-256$4096:"));
    assert_eq!(assignment.kv_addresses, ["127.0.0.1:1", "127.0.0.1:2"]);
    node.say(&FromNode::Serving).await;
    let mut answered = [0, 0];
    for place in &mut answered {
        let ToProxy::Resolved { id: question, node, woken, .. } = proxy.hear().await else {
            panic!("a route")
        };
        assert_eq!((node.as_str(), woken), (&*name, true));
        *place = question;
    }
    answered.sort_unstable();
    assert_eq!(answered, [1, 2]);

    let control = Arc::clone(&world.control);
    let suspending = tokio::spawn(async move { control.suspend("app", false).await });
    assert_eq!(node.hear::<ToNode>().await, ToNode::Suspend);
    drop(node);
    world.control.node_exited(&name, "exit status: 0");
    suspending.await.unwrap().unwrap();
    assert_eq!(proxy.hear::<ToProxy>().await, ToProxy::Gone { node: name.to_string() });
}

#[tokio::test]
async fn a_tenant_with_connections_is_not_suspended_unless_forced() {
    let mut world = World::new().await;
    world.tenant("app").await;
    let (name, mut node) = world.warm_node().await;
    let control = Arc::clone(&world.control);
    let resumed = tokio::spawn(async move { control.resolve("app").await });
    let ToNode::Assign(_) = node.hear().await else { panic!("an assignment") };
    node.say(&FromNode::Serving).await;
    node.say(&FromNode::Status { connections: 3, cpu_ms: 1 }).await;
    resumed.await.unwrap().unwrap();
    let control = Arc::clone(&world.control);
    let mut suspending = tokio::spawn(async move { control.suspend("app", false).await });
    let refused = loop {
        tokio::select! {
            message = node.hear::<ToNode>() => {
                assert_eq!(message, ToNode::Suspend);
                node.say(&FromNode::Busy).await;
            }
            result = &mut suspending => break result.unwrap(),
        }
    };
    assert_eq!(refused.err(), Some(ControlError::Busy { name: "app".into(), connections: 3 }));
    let control = Arc::clone(&world.control);
    let suspending = tokio::spawn(async move { control.suspend("app", true).await });
    assert_eq!(node.hear::<ToNode>().await, ToNode::Stop);
    world.control.node_exited(&name, "exit status: 0");
    suspending.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_proxy_hears_what_is_wrong() {
    let world = World::new().await;
    let mut proxy = world.connect(Identity::Proxy).await;
    for name in ["nobody", "No Name"] {
        proxy.say(&resolve(5, name)).await;
        let ToProxy::Error { id, code, message, hint } = proxy.hear().await else { panic!("an error") };
        assert_eq!((id, code), (5, ResolveError::UnknownTenant));
        assert!(message.contains(name) && hint.is_some());
    }
}

#[tokio::test]
async fn identities_may_do_only_what_is_theirs() {
    let mut world = World::new().await;
    let id = world.tenant("app").await;
    let name = world.started.recv().await.unwrap();
    let unknown: NodeName = "sql-99".into();
    assert!(world.register(Identity::Warm, &unknown, None).await.was_refused().await, "nobody started it");
    assert!(world.register(Identity::Tenant(id + 1), &name, Some(id)).await.was_refused().await);
    assert!(world.register(Identity::Tenant(id), &name, None).await.was_refused().await);
    assert!(world.register(Identity::Proxy, &name, None).await.was_refused().await);
    assert!(world.register(Identity::Kv, &name, None).await.was_refused().await);
    assert!(world.register(Identity::Warm, &name, Some(id)).await.was_refused().await, "it was not noted");
    let mut node = world.connect(Identity::Warm).await;
    node.say(&resolve(1, "app")).await;
    assert!(node.was_refused().await, "a node asks nothing");
    assert_eq!(world.control.metrics.refused.get(), 7);
}

#[tokio::test]
async fn a_node_that_serves_already_is_adopted_with_its_tenant_only() {
    let world = World::new().await;
    let (app, other) = (world.tenant("app").await, world.tenant("other").await);
    let (one, two): (NodeName, NodeName) = ("sql-50".into(), "sql-51".into());
    world.fake.tenants.lock().extend([(Arc::clone(&one), Some(app)), (Arc::clone(&two), Some(app))]);
    world.control.expect_nodes(vec![(Arc::clone(&one), Some(app)), (Arc::clone(&two), Some(app))]);
    assert!(world.register(Identity::Warm, &two, Some(other)).await.was_refused().await, "another was noted");
    let _node = world.register(Identity::Tenant(app), &one, Some(app)).await;
    let route = world.control.resolve("app").await.unwrap();
    assert_eq!(route.node, one);
}

#[tokio::test]
async fn a_node_whose_connection_breaks_is_ended() {
    let mut world = World::new().await;
    world.tenant("app").await;
    let (name, mut node) = world.warm_node().await;
    let control = Arc::clone(&world.control);
    let resumed = tokio::spawn(async move { control.resolve("app").await });
    let ToNode::Assign(_) = node.hear().await else { panic!("an assignment") };
    node.say(&FromNode::Serving).await;
    resumed.await.unwrap().unwrap();
    node.say(&"nonsense").await;
    assert_eq!(world.killed.recv().await.unwrap(), name);
}

#[tokio::test]
async fn a_dropped_tenant_is_unknown_and_its_data_goes_when_its_node_has_gone() {
    let mut world = World::new().await;
    let id = world.tenant("app").await;
    let (name, mut node) = world.warm_node().await;
    let control = Arc::clone(&world.control);
    let resumed = tokio::spawn(async move { control.resolve("app").await });
    let ToNode::Assign(_) = node.hear().await else { panic!("an assignment") };
    node.say(&FromNode::Serving).await;
    resumed.await.unwrap().unwrap();
    let control = Arc::clone(&world.control);
    let dropping = tokio::spawn(async move { control.drop_tenant("app").await });
    assert_eq!(node.hear::<ToNode>().await, ToNode::Stop);
    assert_eq!(world.control.directory().unfinished_drops().await.unwrap(), [id]);
    assert!(world.control.resolve("app").await.is_err());
    world.control.node_exited(&name, "exit status: 0");
    dropping.await.unwrap().unwrap();
    assert!(world.control.directory().unfinished_drops().await.unwrap().is_empty());
}
