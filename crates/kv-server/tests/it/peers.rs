//! The transport between KV nodes: two real TLS endpoints, and raw bytes.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use kv_api::wire::{MAX_FRAME_LEN, decode_frame, encode_frame};
use kv_server::peers::message::{FirstFrame, FirstFrameKind, PeerFrame, PeerHello};
use kv_server::peers::*;
use parking_lot::Mutex;
use process::identity::Identity;
use process::tls::{Authority, internal_client, internal_server, peer_identity};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use replication::message::{LeaderQuery, PEER_PROTOCOL_VERSION, Payload, SnapshotChunk};
use replication::{Envelope, NodeId};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

const CLUSTER: &str = "a-cluster";

/// Limits that a slow machine does not reach.
fn patient() -> PeerLimits {
    let long = Duration::from_secs(300);
    PeerLimits {
        handshake_timeout: long,
        write_timeout: long,
        frame_timeout: long,
        unacknowledged_timeout: long,
        join_timeout: long,
        ..PeerLimits::default()
    }
}

/// A cluster's certificates.
struct Certificates(Authority);

impl Certificates {
    fn new() -> Self {
        Certificates(Authority::create().expect("authority"))
    }

    fn client(&self) -> Arc<rustls::ClientConfig> {
        let own = self.0.issue(Identity::Kv).expect("certificate");
        internal_client(&self.0.pem().certificate, &own).expect("tls")
    }

    fn server(&self, identity: Identity) -> Arc<rustls::ServerConfig> {
        let own = self.0.issue(identity).expect("certificate");
        internal_server(&self.0.pem().certificate, &own).expect("tls")
    }

    fn peers(&self, node_id: NodeId) -> Arc<Peers> {
        self.peers_with(node_id, CLUSTER, patient())
    }

    fn peers_with(&self, node_id: NodeId, cluster_id: &str, limits: PeerLimits) -> Arc<Peers> {
        Peers::start(PeersConfig { node_id, cluster_id: cluster_id.to_owned(), tls: self.client(), limits })
    }
}

/// Answers requests to join as it was told to, and remembers them.
#[derive(Default)]
struct Answers {
    answers: Mutex<Vec<JoinResponse>>,
    requests: Mutex<Vec<JoinRequest>>,
}

#[async_trait]
impl JoinHandler for Answers {
    async fn join(&self, request: JoinRequest) -> JoinResponse {
        self.requests.lock().push(request);
        let mut answers = self.answers.lock();
        // The last one stands for ever.
        if answers.len() > 1 { answers.remove(0) } else { answers.first().cloned().unwrap_or_default() }
    }
}

type Server = (Arc<PeerServer>, mpsc::Receiver<Vec<Envelope>>, Arc<Answers>);

fn server(node_id: Option<NodeId>, room: usize) -> Server {
    server_with(node_id, room, patient())
}

fn server_with(node_id: Option<NodeId>, room: usize, limits: PeerLimits) -> Server {
    let (incoming, received) = mpsc::channel(room);
    let answers = Arc::new(Answers::default());
    let server = PeerServer::new(PeerServerConfig {
        node_id,
        cluster_id: CLUSTER.to_owned(),
        incoming,
        join: answers.clone(),
        limits,
    });
    (Arc::new(server), received, answers)
}

/// A KV node's listener. While it is down it closes what connects.
struct Endpoint {
    address: String,
    server: Arc<PeerServer>,
    received: mpsc::Receiver<Vec<Envelope>>,
    answers: Arc<Answers>,
    up: watch::Sender<bool>,
    /// Connections accepted so far.
    accepted: Arc<AtomicUsize>,
    _listener: Ending,
}

/// A task that ends with its owner.
struct Ending(JoinHandle<()>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Endpoint {
    async fn start(certificates: &Certificates, node_id: NodeId) -> Self {
        Self::start_with(certificates, Identity::Kv, Some(node_id), 100).await
    }

    async fn start_with(
        certificates: &Certificates,
        identity: Identity,
        node_id: Option<NodeId>,
        room: usize,
    ) -> Self {
        let (server, received, answers) = server(node_id, room);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
        let address = listener.local_addr().expect("address").to_string();
        let (up, watched) = watch::channel(true);
        let accepted = Arc::new(AtomicUsize::new(0));
        let tls = TlsAcceptor::from(certificates.server(identity));
        let accepting = accept(listener, tls, server.clone(), watched, accepted.clone());
        let _listener = Ending(tokio::spawn(accepting));
        Endpoint { address, server, received, answers, up, accepted, _listener }
    }

    /// Everything that arrives, up to this message.
    async fn receive_until(&mut self, term: u64) -> Vec<u64> {
        let mut terms = Vec::new();
        while terms.last() != Some(&term) {
            terms.extend(self.received.recv().await.expect("messages").iter().map(term_of));
        }
        terms
    }
}

async fn accept(
    listener: TcpListener,
    tls: TlsAcceptor,
    server: Arc<PeerServer>,
    up: watch::Receiver<bool>,
    accepted: Arc<AtomicUsize>,
) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("accept");
        accepted.fetch_add(1, Ordering::Relaxed);
        let (tls, server, mut up) = (tls.clone(), server.clone(), up.clone());
        connections.spawn(async move {
            let serving = async {
                let Ok(stream) = tls.accept(stream).await else { return };
                assert_eq!(peer_identity(stream.get_ref().1), Some(Identity::Kv));
                let _ = serve_peer(stream, &server).await;
            };
            tokio::select! {
                biased;
                _ = up.wait_for(|up| !*up) => {}
                () = serving => {}
            }
        });
    }
}

fn query(from: NodeId, to: NodeId, term: u64) -> Envelope {
    let payload = Some(Payload::LeaderQuery(LeaderQuery { range_id: 1, term }));
    Envelope { from, from_epoch: 1, to, support: 0, payload }
}

fn term_of(envelope: &Envelope) -> u64 {
    match &envelope.payload {
        Some(Payload::LeaderQuery(query)) => query.term,
        Some(Payload::SnapshotChunk(chunk)) => chunk.sequence,
        other => panic!("unexpected {other:?}"),
    }
}

fn chunk(from: NodeId, to: NodeId, sequence: u64, len: usize) -> Envelope {
    let chunk = SnapshotChunk { sequence, puts: Bytes::from(vec![7; len]), ..SnapshotChunk::default() };
    Envelope { from, from_epoch: 1, to, support: 0, payload: Some(Payload::SnapshotChunk(chunk)) }
}

/// Waits for something that happens in its own time.
async fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Why a node has no connection to another, once it is known.
async fn problem(peers: &Peers, node: NodeId) -> String {
    eventually(|| peers.status(node).and_then(|status| status.problem)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_exchange_messages() {
    let certificates = Certificates::new();
    let (mut one, mut two) =
        (Endpoint::start(&certificates, 1).await, Endpoint::start(&certificates, 2).await);
    let (from_one, from_two) = (certificates.peers(1), certificates.peers(2));
    from_one.set_address(2, two.address.clone());
    from_two.set_address(1, one.address.clone());
    from_one.set_address(1, "nowhere:1".to_owned());
    assert_eq!(from_one.addresses(), [(2, two.address.clone())]);
    for term in 0..5000 {
        from_one.send(query(1, 2, term));
        from_two.send(query(2, 1, 10_000 + term));
    }
    assert!(two.receive_until(4999).await.into_iter().eq(0..5000));
    assert!(one.receive_until(14_999).await.into_iter().eq(10_000..15_000));
    for (sequence, len) in [(0, 3 << 20), (1, 0), (2, 700 << 10), (3, 700 << 10), (4, 1)] {
        from_one.send(chunk(1, 2, sequence, len));
    }
    assert_eq!(two.receive_until(4).await, [0, 1, 2, 3, 4]);
    let status = eventually(|| from_one.status(2).filter(|status| status.sent == 5005)).await;
    let expected = PeerStatus {
        node_id: 2,
        address: two.address.clone(),
        connected: true,
        queued: 0,
        sent: 5005,
        dropped: 0,
        problem: None,
    };
    assert_eq!(status, expected);
    assert_eq!(from_one.statuses(), [expected]);
    assert_eq!((one.server.dropped(), two.server.dropped()), (0, 0));
    assert_eq!(two.accepted.load(Ordering::Relaxed), 1);
    from_one.send(query(1, 3, 0));
    assert_eq!(from_one.undeliverable(), 1);
    from_one.forget(2);
    from_one.send(query(1, 2, 0));
    assert_eq!((from_one.undeliverable(), from_one.status(2)), (2, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_is_made_again_after_the_peer_was_away_or_has_moved() {
    let certificates = Certificates::new();
    let mut two = Endpoint::start(&certificates, 2).await;
    let peers = certificates.peers(1);
    peers.set_address(2, two.address.clone());
    peers.send(query(1, 2, 1));
    two.receive_until(1).await;

    two.up.send_replace(false);
    eventually(|| peers.status(2).filter(|status| !status.connected)).await;
    let before = peers.status(2).expect("known").dropped;
    eventually(|| {
        peers.send(query(1, 2, 2));
        peers.status(2).filter(|status| status.dropped > before && status.problem.is_some())
    })
    .await;

    two.up.send_replace(true);
    let sending = Ending(tokio::spawn({
        let peers = peers.clone();
        async move {
            loop {
                peers.send(query(1, 2, 3));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }));
    two.receive_until(3).await;
    drop(sending);
    assert_eq!(eventually(|| peers.status(2).filter(|status| status.connected)).await.problem, None);

    let mut moved = Endpoint::start(&certificates, 2).await;
    peers.set_address(2, moved.address.clone());
    eventually(|| peers.status(2).filter(|status| !status.connected)).await;
    peers.send(query(1, 2, 4));
    moved.receive_until(4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_traffic_is_closed_and_made_again() {
    let certificates = Certificates::new();
    let mut two = Endpoint::start(&certificates, 2).await;
    let limits = PeerLimits { idle_timeout: Duration::from_millis(20), ..patient() };
    let peers = certificates.peers_with(1, CLUSTER, limits);
    peers.set_address(2, two.address.clone());
    for term in 0..3 {
        peers.send(query(1, 2, term));
        two.receive_until(term).await;
        let status = eventually(|| peers.status(2).filter(|status| !status.connected)).await;
        assert_eq!((status.problem, status.dropped), (None, 0));
    }
    assert_eq!(two.accepted.load(Ordering::Relaxed), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_do_not_fit_are_refused_with_advice() {
    let certificates = Certificates::new();
    let mut two = Endpoint::start(&certificates, 2).await;
    for (node_id, cluster_id, to, says) in [
        (1, "another", 2, "belongs to cluster \"another\""),
        (1, CLUSTER, 3, "node 1 looks for node 3 at the address of node 2"),
        (2, CLUSTER, 4, "two processes are node 2"),
    ] {
        let peers = certificates.peers_with(node_id, cluster_id, patient());
        peers.set_address(to, two.address.clone());
        peers.send(query(node_id, to, 1));
        let problem = problem(&peers, to).await;
        assert!(problem.contains(says), "{problem}");
        assert_eq!(eventually(|| peers.status(to).filter(|status| status.dropped > 0)).await.sent, 0);
    }
    assert!(two.received.try_recv().is_err(), "nothing was taken");

    // A tenant's SQL node is no peer, whatever it answers.
    let impostor = Endpoint::start_with(&certificates, Identity::Tenant(7), Some(2), 1).await;
    let peers = certificates.peers(1);
    peers.set_address(2, impostor.address.clone());
    peers.send(query(1, 2, 1));
    let problem = problem(&peers, 2).await;
    assert!(problem.contains("no certificate of a KV node"), "{problem}");

    // Who is still joining is asked again.
    let mut joining = Endpoint::start_with(&certificates, Identity::Kv, None, 10).await;
    peers.set_address(3, joining.address.clone());
    peers.send(query(1, 3, 1));
    let problem = self::problem(&peers, 3).await;
    assert!(problem.contains("still joining"), "{problem}");
    joining.server.joined(3, CLUSTER.to_owned());
    eventually(|| {
        peers.send(query(1, 3, 2));
        joining.received.try_recv().ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_drops_and_counts() {
    let certificates = Certificates::new();
    // Room for one frame, and nobody who takes it.
    let mut two = Endpoint::start_with(&certificates, Identity::Kv, Some(2), 1).await;
    let limits = PeerLimits { max_queued_messages: 10, max_queued_bytes: 8 << 20, ..patient() };
    let peers = certificates.peers_with(1, CLUSTER, limits);
    peers.set_address(2, two.address.clone());
    let mut sequence = 0;
    let dropped = eventually(|| {
        for _ in 0..4 {
            peers.send(chunk(1, 2, sequence, 1 << 20));
            sequence += 1;
        }
        let status = peers.status(2).expect("known");
        assert!(status.queued <= 10);
        (status.dropped > 0).then_some(status.dropped)
    })
    .await;
    assert!(dropped < sequence);
    let left = peers.status(2).expect("known").dropped;
    let arriving = sequence - left;
    let mut arrived = 0;
    while arrived < arriving {
        arrived += two.received.recv().await.expect("messages").len() as u64;
    }
    let status = eventually(|| peers.status(2).filter(|status| status.queued == 0)).await;
    assert_eq!(status.dropped, left, "what was taken in has arrived");
    peers.send(query(1, 2, sequence));
    two.receive_until(sequence).await;

    peers.send(chunk(1, 2, 0, MAX_FRAME_LEN));
    assert_eq!(peers.status(2).expect("known").dropped, left + 1, "too large for any frame");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_nodes_are_cut_off_in_either_direction() {
    let certificates = Certificates::new();
    let mut two = Endpoint::start(&certificates, 2).await;
    let peers = certificates.peers(1);
    peers.set_address(2, two.address.clone());
    peers.block(2);
    peers.send(query(1, 2, 1));
    assert_eq!(peers.status(2).expect("known").dropped, 1);
    peers.unblock(2);
    peers.send(query(1, 2, 2));
    assert_eq!(two.receive_until(2).await, [2]);
    two.server.block(1);
    peers.send(query(1, 2, 3));
    eventually(|| (two.server.dropped() == 1).then_some(())).await;
    two.server.unblock(1);
    peers.send(query(1, 2, 4));
    assert_eq!(two.receive_until(4).await, [4]);
}

/// The far end of a connection, which writes what it likes.
struct Raw {
    stream: DuplexStream,
    input: BytesMut,
    served: JoinHandle<Result<(), PeerError>>,
}

impl Raw {
    fn connect(server: &Arc<PeerServer>) -> Self {
        let (near, far) = tokio::io::duplex(64 << 10);
        let server = server.clone();
        let served = tokio::spawn(async move { serve_peer(far, &server).await });
        Raw { stream: near, input: BytesMut::new(), served }
    }

    async fn write(&mut self, bytes: &[u8]) {
        // The server may have heard enough.
        let _ = self.stream.write_all(bytes).await;
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

    async fn greet(&mut self, hello: PeerHello) -> PeerHello {
        self.write(&frame(&FirstFrame { kind: Some(FirstFrameKind::Hello(hello)) })).await;
        self.read().await.expect("a hello")
    }

    /// How the server sees the connection end when nothing more is written.
    async fn end(self) -> Result<(), PeerError> {
        drop(self.stream);
        self.served.await.expect("no panic")
    }
}

fn frame(message: &impl prost::Message) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode_frame(message, &mut out);
    out.to_vec()
}

fn hello(node_id: NodeId, to_node: NodeId) -> PeerHello {
    PeerHello {
        version: PEER_PROTOCOL_VERSION,
        cluster_id: CLUSTER.to_owned(),
        node_id,
        to_node,
        refused: None,
    }
}

#[tokio::test]
async fn another_version_is_told_so() {
    let (server, _received, _) = server(Some(2), 1);
    let mut raw = Raw::connect(&server);
    let answer = raw.greet(PeerHello { version: PEER_PROTOCOL_VERSION + 1, ..hello(1, 2) }).await;
    let refused = answer.refused.expect("refused");
    assert!(refused.contains("same release"), "{refused}");
    assert_eq!((answer.version, answer.node_id), (PEER_PROTOCOL_VERSION, 2));
    assert!(raw.read::<PeerHello>().await.is_none(), "closed");
    assert!(matches!(raw.end().await, Err(PeerError::Refused(message)) if message == refused));
}

#[tokio::test]
async fn envelopes_of_others_and_for_others_are_dropped() {
    let (server, mut received, _) = server(Some(2), 1);
    let mut raw = Raw::connect(&server);
    assert_eq!(raw.greet(hello(1, 2)).await, hello(2, 1));
    let mixed = vec![query(1, 2, 1), query(3, 2, 2), query(1, 3, 3), query(1, 2, 4), query(0, 0, 5)];
    raw.write(&frame(&PeerFrame { envelopes: mixed })).await;
    raw.write(&frame(&PeerFrame { envelopes: vec![query(3, 2, 6)] })).await;
    raw.write(&frame(&PeerFrame { envelopes: vec![query(1, 2, 7)] })).await;
    assert_eq!(received.recv().await, Some(vec![query(1, 2, 1), query(1, 2, 4)]));
    assert_eq!(received.recv().await, Some(vec![query(1, 2, 7)]), "nothing is delivered of nothing");
    assert_eq!(server.dropped(), 4);
    assert!(raw.end().await.is_ok(), "closing between frames is no error");
}

#[tokio::test]
async fn one_more_connection_ends_the_one_before() {
    let (server, mut received, _) = server(Some(2), 1);
    let mut first = Raw::connect(&server);
    first.greet(hello(1, 2)).await;
    // It hangs: there is room for one.
    for term in 0..3 {
        first.write(&frame(&PeerFrame { envelopes: vec![query(1, 2, term)] })).await;
    }
    let mut second = Raw::connect(&server);
    second.greet(hello(1, 2)).await;
    assert!(first.served.await.expect("no panic").is_ok());
    second.write(&frame(&PeerFrame { envelopes: vec![query(1, 2, 9)] })).await;
    while received.recv().await != Some(vec![query(1, 2, 9)]) {}
    let mut other = Raw::connect(&server);
    other.greet(hello(3, 2)).await;
    second.write(&frame(&PeerFrame { envelopes: vec![query(1, 2, 10)] })).await;
    assert_eq!(received.recv().await, Some(vec![query(1, 2, 10)]), "each node has one of its own");
}

#[tokio::test]
async fn truncated_and_hostile_bytes_end_the_connection() {
    let (server, mut received, _) = server(Some(2), 100);
    let whole = frame(&FirstFrame { kind: Some(FirstFrameKind::Hello(hello(1, 2))) });
    let messages = frame(&PeerFrame { envelopes: vec![query(1, 2, 1), chunk(1, 2, 2, 50)] });
    for cut in 0..whole.len() {
        let mut raw = Raw::connect(&server);
        raw.write(&whole[..cut]).await;
        let ended = raw.end().await;
        assert!(matches!(ended, Err(PeerError::Truncated | PeerError::Closed)), "{cut}: {ended:?}");
    }
    for cut in 1..messages.len() {
        let mut raw = Raw::connect(&server);
        raw.greet(hello(1, 2)).await;
        raw.write(&messages[..cut]).await;
        assert!(matches!(raw.end().await, Err(PeerError::Truncated)), "{cut}");
    }
    for (first, expected) in [
        (frame(&FirstFrame { kind: None }), "no known kind"),
        (vec![0, 0, 0, 3, 0xff, 0xff, 0xff], "malformed"),
        (vec![0xff; 4], "exceeds the limit"),
        (vec![0, 0x20, 0, 0], "exceeds the limit"),
    ] {
        let mut raw = Raw::connect(&server);
        raw.write(&first).await;
        let ended = raw.served.await.expect("no panic").expect_err("should end").to_string();
        assert!(ended.contains(expected), "{ended}");
    }
    let hasty = PeerLimits { handshake_timeout: Duration::from_millis(20), ..patient() };
    let (server_in_haste, _received, _) = server_with(Some(2), 1, hasty);
    let silent = Raw::connect(&server_in_haste);
    assert!(matches!(silent.served.await.expect("no panic"), Err(PeerError::Handshake)));

    let mut random = StdRng::seed_from_u64(1);
    for _ in 0..300 {
        let mut bytes = messages.clone();
        for _ in 0..random.random_range(1..8) {
            let place = random.random_range(0..bytes.len());
            bytes[place] = random.random();
        }
        let mut raw = Raw::connect(&server);
        raw.greet(hello(1, 2)).await;
        raw.write(&bytes).await;
        let _ = raw.end().await;
        while received.try_recv().is_ok() {}
    }
}

fn request() -> JoinRequest {
    JoinRequest {
        address: "127.0.0.1:1".to_owned(),
        locality: "region=here".to_owned(),
        store_id: "a-store".to_owned(),
        ..JoinRequest::default()
    }
}

fn welcome() -> JoinResponse {
    let nodes = [(1, "one:1"), (4, "four:4")];
    let node =
        |(id, address): (NodeId, &str)| PeerNode { id, address: address.to_owned(), ..PeerNode::default() };
    JoinResponse {
        cluster_id: CLUSTER.to_owned(),
        node_id: 4,
        nodes: nodes.map(node).to_vec(),
        ..JoinResponse::default()
    }
}

/// Long enough for any of the tests.
fn late() -> Instant {
    Instant::now() + Duration::from_secs(300)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_joins_by_way_of_another_that_knows_whom_to_ask() {
    let certificates = Certificates::new();
    let (one, two) = (Endpoint::start(&certificates, 1).await, Endpoint::start(&certificates, 2).await);
    let gone = Endpoint::start(&certificates, 3).await;
    gone.up.send_replace(false);
    one.answers.answers.lock().push(JoinResponse::redirect(two.address.clone()));
    // At first the other one cannot answer, and then it passes the request back once.
    two.answers.answers.lock().extend([
        JoinResponse::try_again("there is no leaseholder just now"),
        JoinResponse::redirect(one.address.clone()),
        welcome(),
    ]);
    let addresses = [gone.address.clone(), one.address.clone()];
    let joined = join(&addresses, &certificates.client(), request(), late()).await.expect("joined");
    assert_eq!(joined, welcome());
    let asked = two.answers.requests.lock().clone();
    let expected = JoinRequest { version: PEER_PROTOCOL_VERSION, ..request() };
    assert_eq!(asked, vec![expected; 3]);
}

/// Nobody is found in time, and in the end it is known why. A deadline that is too near says less.
async fn assert_unreachable(addresses: &[String], tls: &Arc<rustls::ClientConfig>, says: &str) {
    let mut time = Duration::from_millis(50);
    loop {
        match join(addresses, tls, request(), Instant::now() + time).await {
            Err(JoinError::Unreachable(message)) if message.contains(says) => return,
            Err(JoinError::Unreachable(_)) => time *= 2,
            other => panic!("{says}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_cannot_join_is_told_why() {
    let certificates = Certificates::new();
    let one = Endpoint::start(&certificates, 1).await;
    one.answers.answers.lock().push(JoinResponse::refused("its store belongs to node 3"));
    let tls = certificates.client();
    let addresses = [one.address.clone()];
    for (request, says) in [
        (request(), "belongs to node 3"),
        (JoinRequest { cluster_id: "another".to_owned(), ..request() }, "\"another\""),
        (JoinRequest { address: "here".to_owned(), ..request() }, "host:port"),
        (JoinRequest { address: "127.0.0.1:0".to_owned(), ..request() }, "host:port"),
        (JoinRequest { locality: "x".repeat(5000), ..request() }, "locality"),
        (JoinRequest { store_id: String::new(), ..request() }, "store id"),
    ] {
        match join(&addresses, &tls, request, late()).await {
            Err(JoinError::Refused(message)) => assert!(message.contains(says), "{message}"),
            other => panic!("{says}: {other:?}"),
        }
    }
    assert_eq!(one.answers.requests.lock().len(), 1, "the handler sees only what makes sense");

    *one.answers.answers.lock() = vec![JoinResponse::redirect(one.address.clone())];
    assert_unreachable(&addresses, &tls, "redirected").await;
    one.up.send_replace(false);
    assert_unreachable(&addresses, &tls, &one.address).await;
    assert_unreachable(&[], &tls, "no address").await;

    let joining = Endpoint::start_with(&certificates, Identity::Kv, None, 1).await;
    joining.answers.answers.lock().push(welcome());
    let addresses = [joining.address.clone()];
    assert_unreachable(&addresses, &tls, "has not joined").await;
    joining.server.joined(9, CLUSTER.to_owned());
    assert_eq!(join(&addresses, &tls, request(), late()).await.expect("joined").node_id, 4);
}

#[tokio::test]
async fn another_version_cannot_join() {
    let (server, _received, answers) = server(Some(2), 1);
    let mut raw = Raw::connect(&server);
    let request = JoinRequest { version: PEER_PROTOCOL_VERSION + 1, ..request() };
    raw.write(&frame(&FirstFrame { kind: Some(FirstFrameKind::Join(request)) })).await;
    let response: JoinResponse = raw.read().await.expect("an answer");
    assert!(response.error.expect("refused").contains("same release"));
    assert!(raw.end().await.is_ok());
    assert!(answers.requests.lock().is_empty());
}
