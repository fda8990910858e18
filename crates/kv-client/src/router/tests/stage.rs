//! Played KV nodes: each answers what a test tells it to.

use crate::{Config, KvClient};
use bytes::BytesMut;
use kv_api::batch::{NodeInfo, RangeInfo, ReplicaCheck, ReplicaInfo, RequestKind, Response};
use kv_api::wire::{self, ClientFrame, Hello, ServerFrame};
use kv_api::{BatchRequest, BatchResponse, KvError, TenantId, Timestamp};
use parking_lot::Mutex;
use process::identity::Identity;
use process::tls::{Authority, internal_client, internal_server};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub const TENANT: TenantId = TenantId(7);
/// The range of the tenant.
pub const RANGE: u64 = 70;

/// What a played node does about a batch.
pub enum Reply {
    /// Serves it.
    Serve,
    /// Names ranges.
    Ranges(Vec<RangeInfo>),
    Fail(KvError),
    /// Says nothing, now and to everything else.
    Silence,
    /// Serves it when so many batches came after it.
    After(usize),
    Close,
}

type Play = Box<dyn FnMut(&BatchRequest) -> Reply + Send>;

/// A played node.
pub struct Played {
    pub address: String,
    role: Arc<Role>,
}

struct Role {
    play: Mutex<Play>,
    refusal: Mutex<Option<KvError>>,
    names: Mutex<Vec<String>>,
    heard: Mutex<Vec<BatchRequest>>,
    /// Grows when all connections are to be closed.
    closings: watch::Sender<u64>,
    /// Connections open.
    open: watch::Sender<usize>,
}

pub struct Stage {
    authority: Authority,
}

impl Stage {
    pub fn new() -> Self {
        Stage { authority: Authority::create().unwrap() }
    }

    /// A node that serves everything and knows no range.
    pub async fn node(&self) -> Played {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = self.authority.issue(Identity::Kv).unwrap();
        let tls = TlsAcceptor::from(internal_server(&self.authority.pem().certificate, &own).unwrap());
        let address = listener.local_addr().unwrap().to_string();
        let role = Arc::new(Role {
            play: Mutex::new(Box::new(|_| Reply::Serve)),
            refusal: Mutex::default(),
            names: Mutex::default(),
            heard: Mutex::default(),
            closings: watch::channel(0).0,
            open: watch::channel(0).0,
        });
        tokio::spawn({
            let role = role.clone();
            async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    tokio::spawn(serve(tls.clone(), stream, role.clone()));
                }
            }
        });
        Played { address, role }
    }

    /// Nodes that know the tenant's range to be on all of them, of which the one at `leader` serves it and
    /// the others name it.
    pub async fn nodes(&self, count: usize, leader: usize) -> Vec<Played> {
        let mut nodes = Vec::new();
        for _ in 0..count {
            nodes.push(self.node().await);
        }
        lead(&nodes, leader);
        nodes
    }

    pub fn config(&self, addresses: &[&Played]) -> Config {
        let own = self.authority.issue(Identity::Tenant(TENANT.0)).unwrap();
        let tls = internal_client(&self.authority.pem().certificate, &own).unwrap();
        let addresses = addresses.iter().map(|node| node.address.clone()).collect();
        Config { connect_timeout: Duration::from_secs(60), ..Config::new(addresses, tls, TENANT) }
    }

    pub fn client(&self, addresses: &[&Played]) -> KvClient {
        KvClient::connect(self.config(addresses))
    }
}

/// Gives the lease to one of several nodes; the others name it.
pub fn lead(nodes: &[Played], leader: usize) {
    let all: Vec<&Played> = nodes.iter().collect();
    for (index, node) in nodes.iter().enumerate() {
        let info = range(&all);
        let hint = (index != leader).then(|| nodes[leader].address.clone());
        node.play(move |batch| match &hint {
            _ if is_lookup(batch) => Reply::Ranges(vec![info.clone()]),
            Some(hint) => Reply::Fail(KvError::not_leaseholder(Some(hint.clone()))),
            None => Reply::Serve,
        });
    }
}

/// The tenant's range with replicas on some nodes; the directory does not know the leaseholder.
pub fn range(nodes: &[&Played]) -> RangeInfo {
    let replica = |(index, node): (usize, &&Played)| ReplicaInfo {
        node_id: index as u64 + 1,
        address: node.address.clone(),
    };
    let replicas = nodes.iter().enumerate().map(replica).collect();
    let span = TENANT.span();
    RangeInfo { range_id: RANGE, start: span.start, end: span.end, replicas, ..RangeInfo::default() }
}

pub fn is_lookup(batch: &BatchRequest) -> bool {
    matches!(batch.requests[0].kind, Some(RequestKind::RangeLookup(_)))
}

impl Played {
    /// What the node does from now on.
    pub fn play(&self, play: impl FnMut(&BatchRequest) -> Reply + Send + 'static) {
        *self.role.play.lock() = Box::new(play);
    }

    /// Refuses clients in its hello.
    pub fn refuse(&self, error: Option<KvError>) {
        *self.role.refusal.lock() = error;
    }

    /// Names nodes in its hello.
    pub fn name(&self, addresses: Vec<String>) {
        *self.role.names.lock() = addresses;
    }

    /// Closes its connections.
    pub fn close(&self) {
        self.role.closings.send_modify(|closings| *closings += 1);
    }

    /// The batches it got, lookups left out.
    pub fn heard(&self) -> Vec<BatchRequest> {
        self.role.heard.lock().iter().filter(|batch| !is_lookup(batch)).cloned().collect()
    }

    /// How many lookups it got.
    pub fn lookups(&self) -> usize {
        self.role.heard.lock().iter().filter(|batch| is_lookup(batch)).count()
    }

    /// Waits until so many connections are open.
    pub async fn connections(&self, count: usize) {
        self.role.open.subscribe().wait_for(|open| *open == count).await.unwrap();
    }
}

struct Peer {
    stream: TlsStream<TcpStream>,
    input: BytesMut,
}

impl Peer {
    async fn read<M: prost::Message + Default>(&mut self) -> Option<M> {
        loop {
            if let Some(frame) = wire::decode_frame(&mut self.input).unwrap() {
                return Some(frame);
            }
            if !matches!(self.stream.read_buf(&mut self.input).await, Ok(read) if read > 0) {
                return None;
            }
        }
    }

    async fn write(&mut self, message: &impl prost::Message) {
        let mut out = BytesMut::new();
        wire::encode_frame(message, &mut out);
        // The client may be gone.
        let _ = self.stream.write_all(&out).await;
        let _ = self.stream.flush().await;
    }
}

async fn serve(tls: TlsAcceptor, stream: TcpStream, role: Arc<Role>) {
    let Ok(stream) = tls.accept(stream).await else { return };
    role.open.send_modify(|open| *open += 1);
    let mut closings = role.closings.subscribe();
    tokio::select! {
        () = converse(Peer { stream, input: BytesMut::new() }, &role) => {}
        _ = closings.changed() => {}
    }
    role.open.send_modify(|open| *open -= 1);
}

async fn converse(mut peer: Peer, role: &Role) {
    let Some(_) = peer.read::<Hello>().await else { return };
    let refused = role.refusal.lock().clone();
    let (cluster_id, addresses) = ("c".to_owned(), role.names.lock().clone());
    let refuses = refused.is_some();
    peer.write(&Hello { version: wire::PROTOCOL_VERSION, cluster_id, refused, addresses }).await;
    if refuses {
        return;
    }
    let mut later: Vec<(usize, ServerFrame)> = Vec::new();
    while let Some(ClientFrame { id, batch }) = peer.read().await {
        let heard = {
            let mut heard = role.heard.lock();
            heard.push(batch.clone());
            heard.len()
        };
        for (_, frame) in later.extract_if(.., |(due, _)| *due <= heard) {
            peer.write(&frame).await;
        }
        let reply = (role.play.lock())(&batch);
        let (response, error) = match reply {
            Reply::Serve => (Some(served(&batch)), None),
            Reply::Ranges(ranges) => {
                let responses = vec![Response { ranges, ..Response::default() }];
                (Some(BatchResponse { responses, ..BatchResponse::default() }), None)
            }
            Reply::Fail(error) => (None, Some(error)),
            Reply::After(count) => {
                let response = Some(served(&batch));
                later.push((heard + count, ServerFrame { id, response, error: None }));
                continue;
            }
            Reply::Silence => std::future::pending().await,
            Reply::Close => return,
        };
        peer.write(&ServerFrame { id, response, error }).await;
    }
}

fn served(batch: &BatchRequest) -> BatchResponse {
    let response = Response {
        counter: 5,
        nodes: vec![NodeInfo::default()],
        checks: vec![ReplicaCheck::default()],
        ..Response::default()
    };
    BatchResponse {
        responses: vec![response; batch.requests.len()],
        commit_timestamp: Some(Timestamp::new(9, 0)),
        read_timestamp: Some(Timestamp::new(8, 0)),
        ..BatchResponse::default()
    }
}

/// An address where nobody listens.
pub async fn nobody() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}
