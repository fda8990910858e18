//! A client among played KV nodes of which one serves.

use crate::{Config, KvClient};
use bytes::BytesMut;
use kv_api::batch::Response;
use kv_api::wire::{self, ClientFrame, Hello, ServerFrame};
use kv_api::{BatchResponse, KvError, KvErrorKind, LockStrength, TenantId};
use process::identity::Identity;
use process::tls::{Authority, internal_client, internal_server};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// What a played node does with its next connection.
enum Part {
    /// Serves until told to close.
    Serve(Vec<String>),
    /// Takes in a batch and then refuses the client, naming a leaseholder.
    Redirect(Option<String>),
    /// The same, naming other nodes, too.
    RedirectAmong(Vec<String>),
    /// Serves, but answers the first batch by not holding the lease any more.
    LoseLease,
    /// Closes at once.
    Close,
}

/// A played node: plays its parts one after the other, the last one for ever.
struct Played {
    address: String,
    /// Closes the connection that is served.
    close: mpsc::UnboundedSender<()>,
    /// Hears of every batch.
    batches: mpsc::UnboundedReceiver<()>,
}

struct Stage {
    authority: Authority,
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

    async fn greet(&mut self, refused: Option<KvError>, addresses: Vec<String>) {
        let cluster_id = "c".to_owned();
        self.write(&Hello { version: wire::PROTOCOL_VERSION, cluster_id, refused, addresses }).await;
    }
}

impl Stage {
    fn new() -> Self {
        Stage { authority: Authority::create().unwrap() }
    }

    async fn node(&self, parts: impl IntoIterator<Item = Part>) -> Played {
        self.node_at(TcpListener::bind("127.0.0.1:0").await.unwrap(), parts)
    }

    fn node_at(&self, listener: TcpListener, parts: impl IntoIterator<Item = Part>) -> Played {
        let own = self.authority.issue(Identity::Kv).unwrap();
        let tls = TlsAcceptor::from(internal_server(&self.authority.pem().certificate, &own).unwrap());
        let address = listener.local_addr().unwrap().to_string();
        let (close, mut closed) = mpsc::unbounded_channel();
        let (heard, batches) = mpsc::unbounded_channel();
        let mut parts: Vec<Part> = parts.into_iter().collect();
        parts.reverse();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let last = parts.len() == 1;
                if let Ok(stream) = tls.accept(stream).await {
                    let mut peer = Peer { stream, input: BytesMut::new() };
                    play(&mut peer, parts.last().unwrap(), &mut closed, &heard).await;
                }
                if !last {
                    parts.pop();
                }
            }
        });
        Played { address, close, batches }
    }

    fn client(&self, addresses: Vec<String>) -> KvClient {
        self.client_for(addresses, Duration::from_secs(60))
    }

    fn client_for(&self, addresses: Vec<String>, connect_timeout: Duration) -> KvClient {
        let own = self.authority.issue(Identity::Tenant(7)).unwrap();
        let tls = internal_client(&self.authority.pem().certificate, &own).unwrap();
        KvClient::connect(Config { connect_timeout, ..Config::new(addresses, tls, TenantId(7)) })
    }
}

async fn play(
    peer: &mut Peer,
    part: &Part,
    close: &mut mpsc::UnboundedReceiver<()>,
    heard: &mpsc::UnboundedSender<()>,
) {
    let Some(_) = peer.read::<Hello>().await else { return };
    let addresses = match part {
        Part::Close => return,
        Part::Serve(addresses) => addresses.clone(),
        Part::LoseLease => Vec::new(),
        Part::Redirect(_) | Part::RedirectAmong(_) => {
            // What the client sent ahead of any hello is not carried out.
            let Some(_) = peer.read::<ClientFrame>().await else { return };
            let _ = heard.send(());
            let (leaseholder, addresses) = match part {
                Part::Redirect(leaseholder) => (leaseholder.clone(), Vec::new()),
                Part::RedirectAmong(addresses) => (None, addresses.clone()),
                _ => unreachable!(),
            };
            peer.greet(Some(KvError::not_leaseholder(leaseholder)), addresses).await;
            return;
        }
    };
    peer.greet(None, addresses).await;
    loop {
        let frame = tokio::select! {
            frame = peer.read::<ClientFrame>() => frame,
            _ = close.recv() => return,
        };
        let Some(ClientFrame { id, batch }) = frame else { return };
        let _ = heard.send(());
        if matches!(part, Part::LoseLease) {
            let error = Some(KvError::not_leaseholder(None));
            peer.write(&ServerFrame { id, response: None, error }).await;
            return;
        }
        let response = BatchResponse {
            responses: batch
                .requests
                .iter()
                .map(|_| Response { counter: 5, ..Response::default() })
                .collect(),
            commit_timestamp: Some(kv_api::Timestamp::new(9, 0)),
            read_timestamp: Some(kv_api::Timestamp::new(8, 0)),
        };
        peer.write(&ServerFrame { id, response: Some(response), error: None }).await;
    }
}

/// An address where nobody listens.
async fn nobody() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

#[tokio::test]
async fn a_commit_sent_to_a_node_without_the_lease_is_made_by_the_one_it_names() {
    let stage = Stage::new();
    let mut two = stage.node([Part::Serve(Vec::new())]).await;
    let mut one = stage.node([Part::Redirect(Some(two.address.clone()))]).await;
    let client = stage.client(vec![one.address.clone()]);
    let txn = client.begin(crate::TxnOptions::default());
    txn.put(b"k", "v".into()).unwrap();
    assert!(txn.commit().await.unwrap().timestamp.is_some(), "not ambiguous: the first did nothing");
    assert!(one.batches.recv().await.is_some() && two.batches.recv().await.is_some());
    assert_eq!(*client.addresses().borrow(), [two.address, one.address]);
}

#[tokio::test]
async fn without_a_hint_and_where_nobody_listens_the_next_node_is_asked() {
    let stage = Stage::new();
    let four = stage.node([Part::Serve(Vec::new())]).await;
    let three = stage.node([Part::Close]).await;
    let two = stage.node([Part::Redirect(None)]).await;
    let addresses = vec![nobody().await, two.address, three.address, four.address.clone()];
    let client = stage.client(addresses);
    assert_eq!(client.increment(b"n", 1).await.unwrap(), 5);
    assert_eq!(client.addresses().borrow()[0], four.address);
}

#[tokio::test]
async fn nodes_that_joined_later_are_learned_and_found_when_the_others_are_gone() {
    let stage = Stage::new();
    let later = stage.node([Part::Serve(Vec::new())]).await;
    let gone = nobody().await;
    let named = vec![gone.clone(), later.address.clone(), "nonsense".to_owned()];
    let first = stage.node([Part::Serve(named), Part::Close]).await;
    let client = stage.client(vec![first.address.clone()]);
    client.increment(b"n", 1).await.unwrap();
    assert_eq!(*client.addresses().borrow(), [first.address.clone(), gone, later.address.clone()]);
    let mut addresses = client.addresses();
    addresses.mark_unchanged();
    first.close.send(()).unwrap();
    addresses.changed().await.unwrap();
    assert_eq!(addresses.borrow()[0], later.address);
    assert_eq!(client.increment(b"n", 1).await.unwrap(), 5);
}

#[tokio::test]
async fn a_refusing_node_names_others_to_ask() {
    let stage = Stage::new();
    let two = stage.node([Part::Serve(Vec::new())]).await;
    let one = stage.node([Part::RedirectAmong(vec![two.address.clone()])]).await;
    let client = stage.client(vec![one.address]);
    assert_eq!(client.increment(b"n", 1).await.unwrap(), 5);
}

#[tokio::test]
async fn a_node_that_loses_the_lease_is_left_for_the_one_that_takes_it() {
    let stage = Stage::new();
    let two = stage.node([Part::Serve(Vec::new())]).await;
    let one = stage.node([Part::LoseLease, Part::Redirect(Some(two.address.clone()))]).await;
    let client = stage.client(vec![one.address]);
    assert_eq!(client.increment(b"n", 1).await.unwrap(), 5);
    assert_eq!(client.addresses().borrow()[0], two.address);
}

#[tokio::test]
async fn a_transaction_on_the_node_that_lost_the_lease_is_aborted() {
    let stage = Stage::new();
    let two = stage.node([Part::Serve(Vec::new())]).await;
    let one = stage.node([Part::Serve(Vec::new()), Part::Redirect(Some(two.address.clone()))]).await;
    let client = stage.client(vec![one.address]);
    let txn = client.begin(crate::TxnOptions::default());
    txn.get(b"k", LockStrength::Exclusive).await.unwrap();
    let mut addresses = client.addresses();
    addresses.mark_unchanged();
    one.close.send(()).unwrap();
    // Whoever asks is sent to the other node.
    assert_eq!(client.increment(b"n", 1).await.unwrap(), 5);
    assert_eq!(addresses.borrow()[0], two.address);
    assert_eq!(txn.get(b"k", LockStrength::None).await.unwrap_err().kind(), KvErrorKind::Aborted);
}

#[tokio::test]
async fn who_waits_in_vain_is_told_that_nobody_serves() {
    let stage = Stage::new();
    let (left, right) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let name = |listener: &TcpListener| Some(listener.local_addr().unwrap().to_string());
    let (to_left, to_right) = (name(&left), name(&right));
    let mut left = stage.node_at(left, [Part::Redirect(to_right)]);
    let right = stage.node_at(right, [Part::Redirect(to_left)]);
    let client = stage.client_for(vec![left.address.clone(), right.address], Duration::from_millis(300));
    let error = client.increment(b"n", 1).await.unwrap_err();
    assert_eq!(error.kind(), KvErrorKind::Unavailable, "{error}");
    assert!(left.batches.recv().await.is_some());
    let txn = client.begin(crate::TxnOptions::default());
    txn.put(b"k", "v".into()).unwrap();
    assert_eq!(txn.commit().await.unwrap_err().kind(), KvErrorKind::Unavailable);
}
