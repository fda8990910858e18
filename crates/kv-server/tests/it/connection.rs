//! Frames and sockets: the handshake, hostile bytes, slow and vanishing clients.

use crate::support::*;
use bytes::{Bytes, BytesMut};
use kv_api::batch::*;
use kv_api::wire::*;
use kv_api::{KvErrorKind, LockStrength, TenantId};
use kv_server::authorize::Caller;
use kv_server::connection::{ConnectionError, serve};
use kv_server::{Config, Limits, Node, Running};
use process::identity::Identity;
use process::tls::{Authority, internal_client, internal_name, internal_server};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::time::Duration;
use storage::MemoryEngine;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;

type Served = JoinHandle<Result<(), ConnectionError>>;

struct Remote<S> {
    stream: S,
    input: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Remote<S> {
    fn new(stream: S) -> Self {
        Remote { stream, input: BytesMut::new() }
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("write");
        self.stream.flush().await.expect("flush");
    }

    async fn read<M: prost::Message + Default>(&mut self) -> Option<M> {
        loop {
            if let Some(frame) = decode_frame(&mut self.input).expect("the server's frames are well-formed") {
                return Some(frame);
            }
            if self.stream.read_buf(&mut self.input).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    async fn greet(&mut self) -> Hello {
        self.write(&frame(&Hello { version: PROTOCOL_VERSION, ..Hello::default() })).await;
        self.read().await.expect("a hello")
    }

    async fn ask(&mut self, id: u64, requests: Vec<RequestKind>) -> ServerFrame {
        self.write(&request(id, requests)).await;
        self.read().await.expect("an answer")
    }
}

fn frame(message: &impl prost::Message) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode_frame(message, &mut out);
    out.to_vec()
}

fn request(id: u64, requests: Vec<RequestKind>) -> Vec<u8> {
    frame(&ClientFrame { id, batch: batch(Header::default(), requests) })
}

async fn node(limits: Limits) -> Arc<Node> {
    let node = Node::start(Arc::new(MemoryEngine::new()), limits).expect("start");
    make_ranges(&node).await;
    node
}

fn connect(node: &Arc<Node>) -> (Remote<DuplexStream>, Served, watch::Sender<bool>) {
    let (near, far) = tokio::io::duplex(64 << 10);
    let (shutdown, watched) = watch::channel(false);
    let served = tokio::spawn(serve(node.clone(), Caller::Tenant(TENANT), far, watched));
    (Remote::new(near), served, shutdown)
}

#[tokio::test]
async fn many_requests_are_under_way_at_once() {
    let node = node(Limits { max_waiting_per_connection: 4, ..Limits::default() }).await;
    let (mut remote, served, _shutdown) = connect(&node);
    assert_eq!(remote.greet().await.cluster_id, node.cluster_id());
    let mut bytes = Vec::new();
    for id in 0..200 {
        bytes.extend(request(id, vec![put(&format!("k{id:03}"), "v", 1)]));
        bytes.extend(request(1000 + id, vec![get("k000")]));
    }
    remote.write(&bytes).await;
    let mut seen = Vec::new();
    for _ in 0..400 {
        let answer: ServerFrame = remote.read().await.expect("an answer");
        assert!(answer.response.is_some(), "{answer:?}");
        seen.push(answer.id);
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq((0..200).chain(1000..1200)));
    let all = remote.ask(1, vec![scan("k", "l", 0)]).await;
    assert_eq!(all.response.expect("rows").responses[0].rows.len(), 200);
    drop(remote);
    served.await.expect("task").expect("a closed connection is no error");
}

#[tokio::test]
async fn large_answers_are_whole_and_do_not_hold_up_small_ones() {
    let node = node(Limits::default()).await;
    let (mut remote, _served, _shutdown) = connect(&node);
    remote.greet().await;
    let value = "x".repeat(1000);
    let names: Vec<_> = (0..3000).map(|index| format!("k{index:04}")).collect();
    for (id, chunk) in names.chunks(500).enumerate() {
        let written = remote.ask(id as u64, chunk.iter().map(|name| put(name, &value, 1)).collect()).await;
        assert!(written.response.is_some(), "{written:?}");
    }
    let mut bytes = request(100, vec![scan("k", "l", 0)]);
    bytes.extend(request(101, vec![get("k0001")]));
    remote.write(&bytes).await;
    let (first, second): (ServerFrame, ServerFrame) =
        (remote.read().await.expect("an answer"), remote.read().await.expect("an answer"));
    assert_eq!((first.id, second.id), (101, 100));
    let rows = second.response.expect("rows");
    assert_eq!((rows.responses[0].rows.len(), &rows.responses[0].resume), (3000, &None));
}

#[tokio::test]
async fn a_client_that_vanishes_gives_up_its_locks() {
    let node = node(Limits::default()).await;
    let (mut holder, served, _shutdown) = connect(&node);
    holder.greet().await;
    let header = Header {
        txn: Some(TxnMeta { id: Bytes::from(vec![1; 16]), ..TxnMeta::default() }),
        ..Header::default()
    };
    let locking = batch(header, vec![locking_get("a", LockStrength::Exclusive)]);
    holder.write(&frame(&ClientFrame { id: 1, batch: locking })).await;
    assert!(holder.read::<ServerFrame>().await.expect("an answer").response.is_some());
    let (mut other, _other_served, _other_shutdown) = connect(&node);
    other.greet().await;
    other.write(&request(1, vec![put("a", "v", 1)])).await;
    assert!(other.ask(2, vec![get("b")]).await.id == 2, "the connection goes on while a request waits");
    drop(holder);
    served.await.expect("task").expect("closed");
    assert_eq!(other.read::<ServerFrame>().await.expect("granted").id, 1);
}

#[tokio::test]
async fn a_connection_full_of_lock_waits_still_takes_the_commit_they_wait_for() {
    let node = node(Limits { max_waiting_per_connection: 4, ..Limits::default() }).await;
    let (mut remote, _served, _shutdown) = connect(&node);
    remote.greet().await;
    let header = Header {
        txn: Some(TxnMeta { id: Bytes::from(vec![1; 16]), ..TxnMeta::default() }),
        ..Header::default()
    };
    let locking = batch(header.clone(), vec![locking_get("a", LockStrength::Exclusive)]);
    remote.write(&frame(&ClientFrame { id: 0, batch: locking })).await;
    assert!(remote.read::<ServerFrame>().await.expect("an answer").response.is_some());
    for id in 1..=8 {
        remote.write(&request(id, vec![put("a", "v", 1)])).await;
    }
    let commit = batch(
        header,
        vec![put("a", "first", 1), RequestKind::EndTxn(EndTxn { commit: true, ..EndTxn::default() })],
    );
    remote.write(&frame(&ClientFrame { id: 9, batch: commit })).await;
    let mut seen = Vec::new();
    for _ in 0..9 {
        let answer: ServerFrame = remote.read().await.expect("an answer");
        assert!(answer.response.is_some(), "{answer:?}");
        seen.push(answer.id);
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(1..=9));
}

#[tokio::test]
async fn the_first_frame_must_be_a_fitting_hello() {
    let node = node(Limits { handshake_timeout: Duration::from_millis(50), ..Limits::default() }).await;
    for (hello, fits) in [
        (Hello { version: PROTOCOL_VERSION, ..Hello::default() }, true),
        (
            Hello { version: PROTOCOL_VERSION, cluster_id: node.cluster_id().to_owned(), ..Hello::default() },
            true,
        ),
        (Hello { version: PROTOCOL_VERSION + 1, ..Hello::default() }, false),
        (Hello { version: PROTOCOL_VERSION, cluster_id: "another".to_owned(), ..Hello::default() }, false),
    ] {
        let (mut remote, served, _shutdown) = connect(&node);
        remote.write(&frame(&hello)).await;
        let reply: Hello = remote.read().await.expect("a hello");
        assert_eq!(reply.refused.is_none(), fits, "{hello:?}");
        drop(remote);
        let ended = served.await.expect("task");
        assert_eq!(ended.is_ok(), fits);
        assert!(fits || matches!(ended, Err(ConnectionError::Mismatch(_))));
    }
    let (silent, served, _shutdown) = connect(&node);
    assert!(matches!(served.await.expect("task"), Err(ConnectionError::NoHello)));
    drop(silent);
}

#[tokio::test]
async fn a_slow_sender_and_a_slow_reader_are_cut_off() {
    let limits = Limits {
        frame_timeout: Duration::from_millis(50),
        write_timeout: Duration::from_millis(50),
        ..Limits::default()
    };
    let node = node(limits).await;
    let (mut remote, served, _shutdown) = connect(&node);
    remote.greet().await;
    remote.write(&request(1, vec![get("a")])[..7]).await;
    assert!(matches!(served.await.expect("task"), Err(ConnectionError::SlowSender)));

    let (mut remote, served, _shutdown) = connect(&node);
    remote.greet().await;
    let big = "x".repeat(1 << 20);
    assert!(remote.ask(1, vec![put("big", &big, 1)]).await.response.is_some());
    remote.write(&request(2, vec![get("big")])).await;
    assert!(matches!(served.await.expect("task"), Err(ConnectionError::SlowReader)));
}

#[tokio::test]
async fn a_shutdown_answers_what_is_under_way_and_closes() {
    let node = node(Limits::default()).await;
    let (mut remote, served, shutdown) = connect(&node);
    remote.greet().await;
    assert!(remote.ask(1, vec![put("a", "v", 1)]).await.response.is_some());
    shutdown.send_replace(true);
    served.await.expect("task").expect("orderly");
    assert!(remote.read::<ServerFrame>().await.is_none());
}

/// Serves one connection with `bytes` and says how it ended. A panic would fail the join.
async fn serve_bytes(node: &Arc<Node>, bytes: &[u8]) -> Result<(), ConnectionError> {
    let (near, far) = tokio::io::duplex(64 << 10);
    let (_shutdown, watched) = watch::channel(false);
    let served = tokio::spawn(serve(node.clone(), Caller::Tenant(TENANT), far, watched));
    let (mut reader, mut writer) = tokio::io::split(near);
    let drain = tokio::spawn(async move {
        let mut sink = Vec::new();
        let _ = reader.read_to_end(&mut sink).await;
    });
    let _ = writer.write_all(bytes).await;
    let _ = writer.shutdown().await;
    let ended = served.await.expect("the connection task does not panic");
    drop(writer);
    drain.await.expect("drain");
    ended
}

/// Frames of every kind, the seeds of mutation.
fn sample_frames() -> Vec<Vec<u8>> {
    let (start, end) = (key("a"), key("z"));
    let kinds = vec![
        get("a"),
        locking_get("a", LockStrength::Exclusive),
        scan("a", "z", 3),
        RequestKind::Scan(Scan {
            start: start.clone(),
            end: end.clone(),
            reverse: true,
            limit: 1,
            lock: 1,
            ..Scan::default()
        }),
        put("a", "v", 1),
        insert("b", "v", 2),
        delete("a", 3),
        RequestKind::DeleteRange(DeleteRange {
            start: start.clone(),
            end: end.clone(),
            limit: 0,
            sequence: 1,
        }),
        RequestKind::Increment(Increment { key: key("n"), by: 1 }),
        RequestKind::ClearRange(ClearRange { start, end }),
        RequestKind::Refresh(Refresh::default()),
        RequestKind::DropTenant(DropTenant { tenant_id: 9 }),
        RequestKind::EndTxn(EndTxn { commit: true, ..EndTxn::default() }),
        RequestKind::EndTxn(EndTxn::default()),
    ];
    let txn = TxnMeta { id: Bytes::from(vec![5; 16]), sequence: 9, ..TxnMeta::default() };
    let header = Header {
        txn: Some(txn),
        read_timestamp: Some(kv_api::Timestamp::new(1, 1)),
        refresh_spans: vec![kv_api::Span::point(key("q"))],
        lock_timeout_ms: 1,
        wait_policy: WaitPolicy::Error as i32,
        ..Header::default()
    };
    let alone = kinds
        .iter()
        .map(|kind| frame(&ClientFrame { id: 1, batch: batch(Header::default(), vec![kind.clone()]) }));
    let in_txn = kinds
        .iter()
        .map(|kind| frame(&ClientFrame { id: 2, batch: batch(header.clone(), vec![kind.clone()]) }));
    let together = frame(&ClientFrame { id: 3, batch: batch(header.clone(), kinds.clone()) });
    alone.chain(in_txn).chain([together]).collect()
}

#[tokio::test]
async fn hostile_bytes_end_the_connection_and_nothing_else() {
    let node = node(Limits { frame_timeout: Duration::from_millis(200), ..Limits::default() }).await;
    let hello = frame(&Hello { version: PROTOCOL_VERSION, ..Hello::default() });
    let samples = sample_frames();
    let mut random = StdRng::seed_from_u64(42);
    assert!(
        serve_bytes(&node, &[&hello[..], &[0xff; 64]].concat()).await.is_err(),
        "a length beyond the limit"
    );
    for round in 0..1500 {
        let mut bytes = if round % 10 == 0 { Vec::new() } else { hello.clone() };
        for _ in 0..random.random_range(1..4) {
            match random.random_range(0..4) {
                0 => bytes.extend((0..random.random_range(0..200)).map(|_| random.random::<u8>())),
                _ => bytes.extend(&samples[random.random_range(0..samples.len())]),
            }
        }
        for _ in 0..random.random_range(0..6) {
            let place = random.random_range(0..bytes.len());
            match random.random_range(0..3) {
                0 => bytes[place] = random.random(),
                1 => bytes[place] ^= 1 << random.random_range(0..8),
                _ => bytes.truncate(place.max(1)),
            }
        }
        let _ = serve_bytes(&node, &bytes).await;
    }
    for sample in &samples {
        let _ = serve_bytes(&node, &[&hello[..], sample].concat()).await;
    }
    let (mut remote, _served, _shutdown) = connect(&node);
    remote.greet().await;
    assert!(remote.ask(1, vec![put("alive", "yes", 1)]).await.response.is_some());
}

/// A node on RocksDB behind mutual TLS.
struct Cluster {
    authority: Authority,
    directory: tempfile::TempDir,
}

impl Cluster {
    fn new() -> Self {
        let authority = Authority::create().expect("authority");
        Cluster { authority, directory: tempfile::tempdir().expect("temporary directory") }
    }

    async fn start(&self) -> Running {
        let ca = &self.authority.pem().certificate;
        let own = self.authority.issue(Identity::Kv).expect("certificate");
        let config = Config {
            data_dir: self.directory.path().join("kv"),
            listen: "127.0.0.1:0".parse().expect("an address"),
            advertise: None,
            join: Vec::new(),
            locality: "zone=a".into(),
            tls: internal_server(ca, &own).expect("tls"),
            peer_tls: internal_client(ca, &own).expect("tls"),
            dead_after: Duration::from_secs(300),
            engine: Default::default(),
            limits: Limits::default(),
        };
        kv_server::run(config).await.expect("start")
    }

    async fn connect(&self, running: &Running, identity: Identity) -> Remote<TlsStream<TcpStream>> {
        let own = self.authority.issue(identity).expect("certificate");
        let config = internal_client(&self.authority.pem().certificate, &own).expect("tls");
        let stream = TcpStream::connect(running.address()).await.expect("connect");
        let stream = tokio_rustls::TlsConnector::from(config)
            .connect(internal_name(), stream)
            .await
            .expect("handshake");
        Remote::new(stream)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tls_identities_are_kept_apart_and_data_survives_a_restart() {
    let cluster = Cluster::new();
    let running = cluster.start().await;
    let cluster_id = running.cluster_id().to_owned();
    for identity in [Identity::Proxy, Identity::Warm] {
        let mut remote = cluster.connect(&running, identity).await;
        let refusal: Hello = remote.read().await.expect("a hello");
        assert_eq!(refusal.refused.map(|error| error.kind()), Some(KvErrorKind::Unauthorized));
        assert!(remote.read::<Hello>().await.is_none(), "closed");
    }
    let mut control = cluster.connect(&running, Identity::Control).await;
    control.greet().await;
    let create = RequestKind::CreateTenant(CreateTenant { tenant_id: TENANT.0 });
    assert!(control.ask(1, vec![create]).await.response.is_some());
    let mut tenant = cluster.connect(&running, Identity::Tenant(TENANT.0)).await;
    assert_eq!(tenant.greet().await.cluster_id, cluster_id);
    assert!(tenant.ask(1, vec![put("a", "v", 1)]).await.response.is_some());
    let mut hostile = cluster.connect(&running, Identity::Tenant(TENANT.0 + 1)).await;
    hostile.greet().await;
    for requests in [vec![get("a")], vec![put("a", "x", 1)], vec![scan("", "z", 0)]] {
        let refused = hostile.ask(1, requests).await;
        assert_eq!(refused.error.map(|error| error.kind()), Some(KvErrorKind::Unauthorized));
    }
    let own =
        RequestKind::Put(Put { key: TenantId::SYSTEM.prefixed(b"t"), value: Bytes::new(), sequence: 1 });
    assert!(control.ask(1, vec![own]).await.response.is_some());
    let nodes = control.ask(2, vec![RequestKind::Nodes(NodesRequest {})]).await.response.expect("nodes");
    let node = &nodes.responses[0].nodes[0];
    assert_eq!((node.id, node.address.clone()), (1, running.address().to_string()));
    assert_eq!((node.locality.as_str(), node.live, node.leaseholder), ("zone=a", true, true));
    let drain = RequestKind::DrainNode(DrainNode { node_id: 1, undo: false });
    let refused = control.ask(3, vec![drain]).await.error.map(|error| error.kind());
    assert_eq!(refused, Some(KvErrorKind::InvalidRequest));
    let own = cluster.authority.issue(Identity::Kv).expect("certificate");
    let ca = &cluster.authority.pem().certificate;
    let second = kv_server::run(Config {
        data_dir: cluster.directory.path().join("kv"),
        listen: "127.0.0.1:0".parse().expect("an address"),
        advertise: None,
        join: Vec::new(),
        locality: String::new(),
        tls: internal_server(ca, &own).expect("tls"),
        peer_tls: internal_client(ca, &own).expect("tls"),
        dead_after: Duration::from_secs(300),
        engine: Default::default(),
        limits: Limits::default(),
    })
    .await;
    assert!(second.is_err_and(|error| error.to_string().contains("in use")));
    running.shutdown().await.expect("orderly");
    assert!(tenant.read::<ServerFrame>().await.is_none(), "closed");

    let running = cluster.start().await;
    assert_eq!(running.cluster_id(), cluster_id);
    let mut tenant = cluster.connect(&running, Identity::Tenant(TENANT.0)).await;
    tenant.greet().await;
    let found = tenant.ask(1, vec![get("a")]).await.response.expect("an answer");
    assert_eq!(value_of(&found).as_deref(), Some("v"));
    running.shutdown().await.expect("orderly");
}
