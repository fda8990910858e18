//! Three KV nodes with stores on disk, of which one comes to hold something else than the others.

use crate::support::bytes;
use kv_api::{KvErrorKind, KvResult, LockStrength, TenantId, Timestamp};
use kv_client::{Config, KvClient, RangeInfo, ReplicaCheck, TxnOptions};
use kv_server::server::Running;
use kv_server::{Limits, run};
use process::identity::Identity;
use process::tls::{Authority, internal_client, internal_server};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use storage::{Engine, Reader, RocksConfig, RocksEngine, Space, WriteBatch};
use tokio::time::Instant;

/// How long anything may take on a slow machine.
const PATIENCE: Duration = Duration::from_secs(90);
const TENANT: TenantId = TenantId(2);
const KEY: &[u8] = b"a";

/// A node that can be stopped and started again where it was.
struct Node {
    store: PathBuf,
    address: SocketAddr,
    running: Option<Running>,
}

struct Cluster {
    authority: Authority,
    nodes: Vec<Node>,
    directory: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::create().unwrap();
        let mut cluster = Cluster { authority, nodes: Vec::new(), directory };
        for number in 1..=3 {
            let store = cluster.directory.path().join(number.to_string());
            let listen = SocketAddr::from(([127, 0, 0, 1], 0));
            cluster.nodes.push(Node { store, address: listen, running: None });
            cluster.start_node(number - 1).await;
        }
        cluster
    }

    async fn start_node(&mut self, at: usize) {
        let ca = &self.authority.pem().certificate;
        let own = self.authority.issue(Identity::Kv).unwrap();
        let others = self.nodes.iter().take(at);
        let config = kv_server::Config {
            data_dir: self.nodes[at].store.clone(),
            listen: self.nodes[at].address,
            advertise: None,
            join: others.map(|node| node.address.to_string()).collect(),
            locality: String::new(),
            tls: internal_server(ca, &own).unwrap(),
            peer_tls: internal_client(ca, &own).unwrap(),
            dead_after: Duration::from_secs(300),
            engine: RocksConfig::default(),
            limits: Limits::default(),
        };
        let running = run(config).await.unwrap();
        self.nodes[at].address = running.address();
        self.nodes[at].running = Some(running);
    }

    async fn stop(&mut self) {
        for node in &mut self.nodes {
            if let Some(running) = node.running.take() {
                running.shutdown().await.unwrap();
            }
        }
    }

    fn client(&self, identity: Identity, tenant: TenantId) -> KvClient {
        let own = self.authority.issue(identity).unwrap();
        let tls = internal_client(&self.authority.pem().certificate, &own).unwrap();
        let addresses = self.nodes.iter().map(|node| node.address.to_string()).collect();
        KvClient::connect(Config::new(addresses, tls, tenant))
    }
}

async fn range(control: &KvClient) -> KvResult<Option<RangeInfo>> {
    let found = control.ranges(TenantId::SYSTEM.span().start, 1).await?;
    Ok(found.into_iter().next())
}

/// Compares the replicas until the findings are as wanted, and returns these.
async fn compared(
    control: &KvClient,
    what: &str,
    wanted: impl Fn(&[ReplicaCheck]) -> bool,
) -> Vec<ReplicaCheck> {
    let begun = Instant::now();
    loop {
        // Nobody may lead the range at the moment.
        if let Ok(Some(range)) = range(control).await
            && let Ok(checks) = control.check_replicas(&range).await
            && wanted(&checks)
        {
            return checks;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn whole(checks: &[ReplicaCheck]) -> bool {
    checks.len() == 3 && checks.iter().all(|check| check.agrees)
}

/// Changes a value behind the node's back.
fn alter(store: &Path) {
    let engine = RocksEngine::open(store, &RocksConfig::default()).unwrap();
    let key = TENANT.prefixed(KEY);
    let mut stored = engine.get(Space::Data, &key).unwrap().unwrap().to_vec();
    *stored.last_mut().unwrap() ^= 1;
    let mut batch = WriteBatch::new();
    batch.put(Space::Data, &key, &stored);
    engine.write(&batch, true).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_differs_is_found_and_replaced() {
    let mut cluster = Cluster::start().await;
    let control = cluster.client(Identity::Control, TenantId::SYSTEM);
    control.create_tenant(TENANT).await.unwrap();
    let client = cluster.client(Identity::Tenant(TENANT.0), TENANT);
    client.write(&[(bytes("a"), Some(bytes("one"))), (bytes("b"), Some(bytes("two")))]).await.unwrap();
    let checks = compared(&control, "three replicas that agree", whole).await;
    assert!(checks.iter().all(|check| check.keys == 2), "{checks:?}");
    drop((control, client));

    cluster.stop().await;
    alter(&cluster.nodes[2].store);
    for at in 0..3 {
        cluster.start_node(at).await;
    }
    let control = cluster.client(Identity::Control, TenantId::SYSTEM);
    let checks = compared(&control, "all replicas answer", |checks| {
        checks.len() == 3 && checks.iter().all(|check| check.problem.is_empty())
    })
    .await;
    let wrong: Vec<u64> = checks.iter().filter(|check| !check.agrees).map(|check| check.node_id).collect();
    assert_eq!(wrong, [3], "{checks:?}");
    compared(&control, "the wrong replica is replaced", whole).await;
    for follower_reads in [false, true] {
        let client = cluster.client(Identity::Tenant(TENANT.0), TENANT);
        for _ in 0..3 {
            let options = TxnOptions { read_only: true, follower_reads, ..TxnOptions::default() };
            let read = client.begin(options).get(KEY, LockStrength::None).await.unwrap();
            assert_eq!(read, Some(bytes("one")));
        }
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_replica_answers_for_the_past() {
    let mut cluster = Cluster::start().await;
    let control = cluster.client(Identity::Control, TenantId::SYSTEM);
    control.create_tenant(TENANT).await.unwrap();
    let client = cluster.client(Identity::Tenant(TENANT.0), TENANT);
    client.write(&[(bytes("a"), Some(bytes("one")))]).await.unwrap();
    compared(&control, "three replicas that agree", whole).await;
    // One that learns of all three.
    let client = cluster.client(Identity::Tenant(TENANT.0), TENANT);
    let then = client.begin(TxnOptions::default()).settle_snapshot().await.unwrap();
    client.write(&[(bytes("a"), Some(bytes("two")))]).await.unwrap();
    let read = async |as_of: Timestamp| {
        let options = TxnOptions { as_of: Some(as_of), follower_reads: true, ..TxnOptions::default() };
        client.begin(options).get(KEY, LockStrength::None).await.map_err(|error| error.kind())
    };
    // All replicas are asked in turn.
    for _ in 0..6 {
        assert_eq!(read(then).await, Ok(Some(bytes("one"))));
        let now = client.begin(TxnOptions::default()).settle_snapshot().await.unwrap();
        // A little ahead of what any replica knows, as the clocks of others are.
        let ahead = Timestamp::new(now.wall_ns + 50_000_000, 0);
        assert_eq!(read(ahead).await, Ok(Some(bytes("two"))));
        assert_eq!(read(Timestamp::new(1, 0)).await, Err(KvErrorKind::Retry), "no longer kept");
        let future = Timestamp::new(now.wall_ns + 3_600_000_000_000, 0);
        assert_eq!(read(future).await, Err(KvErrorKind::InvalidRequest));
    }
    cluster.stop().await;
}
