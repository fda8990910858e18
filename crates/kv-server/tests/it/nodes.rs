//! Several nodes of one cluster, on RocksDB, that speak to each other; and clients that find their way.

use crate::support::*;
use bytes::BytesMut;
use kv_api::batch::*;
use kv_api::wire::{ClientFrame, Hello, PROTOCOL_VERSION, ServerFrame, decode_frame, encode_frame};
use kv_api::{BatchRequest, BatchResponse, Header, KvError, KvErrorKind};
use kv_server::authorize::Caller;
use kv_server::{Config, Limits, Running, ServerError};
use parking_lot::Mutex;
use process::identity::Identity;
use process::tls::{Authority, internal_client, internal_server};
use std::sync::Arc;
use std::time::Duration;
use storage::StorageError;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::watch;

/// Pause before something is asked again.
const PAUSE: Duration = Duration::from_millis(20);

pub struct Nodes {
    authority: Authority,
    directory: tempfile::TempDir,
    limits: Limits,
    running: Mutex<Vec<Option<Running>>>,
    addresses: Mutex<Vec<String>>,
}

impl Nodes {
    /// A cluster of `count` nodes on which the ranges there are have `count` replicas.
    pub async fn start(count: usize, limits: Limits) -> Arc<Self> {
        let nodes = Nodes {
            authority: Authority::create().expect("authority"),
            directory: tempfile::tempdir().expect("temporary directory"),
            limits,
            running: Mutex::default(),
            addresses: Mutex::default(),
        };
        for place in 0..count {
            nodes.running.lock().push(None);
            nodes.addresses.lock().push("127.0.0.1:0".to_owned());
            nodes.begin(place).await;
        }
        let nodes = Arc::new(nodes);
        nodes.wait_for(|ranges| ranges.iter().all(|range| range.replicas.len() == count)).await;
        nodes
    }

    /// Starts a node that does not run.
    pub async fn begin(&self, place: usize) {
        let ca = &self.authority.pem().certificate;
        let own = self.authority.issue(Identity::Kv).expect("certificate");
        let addresses = self.addresses.lock().clone();
        let join = if place == 0 { Vec::new() } else { vec![addresses[0].clone()] };
        let config = || Config {
            data_dir: self.directory.path().join(place.to_string()),
            listen: addresses[place].parse().expect("an address"),
            advertise: None,
            join: join.clone(),
            // Nobody prefers one place to another unless a range is kept so.
            locality: format!("zone=z{}", place + 1),
            tls: internal_server(ca, &own).expect("tls"),
            peer_tls: internal_client(ca, &own).expect("tls"),
            dead_after: Duration::from_secs(300),
            engine: Default::default(),
            limits: self.limits.clone(),
        };
        let mut attempts = 0;
        let running = loop {
            match kv_server::run(config()).await {
                // Nobody has the store, but whoever had it last is still closing it.
                Err(ServerError::Store { source: StorageError::InUse(_), .. }) if attempts < 1000 => {
                    attempts += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                result => break result.expect("start"),
            }
        };
        self.addresses.lock()[place] = running.address().to_string();
        self.running.lock()[place] = Some(running);
    }

    /// Ends a node; it hands its leases over. Returns when nobody has its store open any more: no client of it
    /// may be there.
    pub async fn end(&self, place: usize) {
        let running = self.running.lock()[place].take();
        if let Some(running) = running {
            let node = Arc::downgrade(running.node());
            running.shutdown().await.expect("shut down");
            // Who asked it something has it until there is an answer.
            while node.strong_count() > 0 {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    pub async fn end_all(&self) {
        let count = self.running.lock().len();
        for place in 0..count {
            self.end(place).await;
        }
    }

    /// A client of each node that runs, by the nodes' numbers.
    pub fn clients(&self, caller: Caller) -> Vec<(u64, Client)> {
        let running = self.running.lock();
        let client = |running: &Running| {
            let node = running.node().clone();
            (node.node_id(), Client { node, caller, connection: 0 })
        };
        running.iter().flatten().map(client).collect()
    }

    /// Asks the cluster's nodes until one answers.
    pub async fn control(&self, request: RequestKind) -> BatchResponse {
        loop {
            for (_, client) in self.clients(Caller::Control) {
                if let Ok(answer) = client.ask_once(batch(Header::default(), vec![request.clone()])).await {
                    return answer;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub async fn ranges(&self) -> Vec<RangeInfo> {
        let listed = self.control(RequestKind::Ranges(RangesRequest::default())).await;
        listed.responses[0].ranges.clone()
    }

    /// The usual tenant's ranges.
    pub async fn tenant_ranges(&self) -> Vec<RangeInfo> {
        let span = TENANT.span();
        self.ranges().await.into_iter().filter(|range| span.contains(&range.start)).collect()
    }

    pub async fn wait_for(&self, fits: impl Fn(&[RangeInfo]) -> bool) {
        while !fits(&self.ranges().await) {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Replicas of each node that runs, as they say.
    pub async fn replicas(&self) -> Vec<u64> {
        let nodes = self.control(RequestKind::Nodes(NodesRequest {})).await;
        nodes.responses[0].nodes.iter().map(|node| node.replicas).collect()
    }

    /// Asks whoever serves the range of a key; looks again for as long as nobody does.
    pub async fn ask(
        &self,
        caller: Caller,
        name: &str,
        request: RequestKind,
    ) -> Result<BatchResponse, KvError> {
        loop {
            for (id, client) in self.clients(Caller::Control) {
                let lookup = RequestKind::RangeLookup(RangeLookup { key: key(name) });
                let Ok(found) = client.ask_once(batch(Header::default(), vec![lookup])).await else {
                    continue;
                };
                let Some(range) = found.responses[0].ranges.first() else { continue };
                // Nearest to the truth first.
                let mut clients = self.clients(caller);
                clients.sort_by_key(|(other, _)| (*other != range.leaseholder, *other != id));
                let header = Header { range_id: range.range_id, ..Header::default() };
                for (_, client) in clients {
                    match client.ask_once(batch(header.clone(), vec![request.clone()])).await {
                        Err(error) if is_elsewhere(&error) => {}
                        result => return result,
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub async fn put(&self, name: &str, value: &str) -> Result<BatchResponse, KvError> {
        self.ask(Caller::Tenant(TENANT), name, put(name, value, 1)).await
    }

    pub async fn get(&self, name: &str) -> Option<String> {
        value_of(&self.ask(Caller::Tenant(TENANT), name, get(name)).await.expect("get"))
    }

    pub async fn split(&self, name: &str) -> Result<BatchResponse, KvError> {
        let split = RequestKind::SplitRange(SplitRange { key: key(name) });
        self.ask(Caller::Control, name, split).await
    }
}

impl Nodes {
    /// Asks whoever serves a range to merge it with the one that follows, until that has happened.
    pub async fn merge(&self, range: &RangeInfo) {
        let merge = MergeRange { start: range.start.clone(), end: range.end.clone() };
        let name = text(&range.start[kv_api::key::TENANT_PREFIX_LEN..]);
        // Refused, because it was merged before.
        let done = |error: &KvError| error.kind() == KvErrorKind::InvalidRequest;
        loop {
            match self.ask(Caller::Control, &name, RequestKind::MergeRange(merge.clone())).await {
                Ok(_) => return,
                Err(error) if done(&error) => return,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

/// Whether nothing was carried out, because the range is elsewhere or not to be used for the moment.
fn is_elsewhere(error: &KvError) -> bool {
    matches!(
        error.kind(),
        KvErrorKind::RangeNotFound | KvErrorKind::NotLeaseholder | KvErrorKind::Unavailable
    )
}

/// A connection to a node, and its bytes.
pub struct Wire {
    stream: DuplexStream,
    input: BytesMut,
    _shutdown: watch::Sender<bool>,
}

impl Wire {
    /// Sends batches at the same time and waits until all are answered, whatever the answers.
    pub async fn ask_all(&mut self, batches: Vec<BatchRequest>) {
        let count = batches.len();
        let mut out = BytesMut::new();
        for (id, batch) in (1..).zip(batches) {
            encode_frame(&ClientFrame { id, batch }, &mut out);
        }
        self.stream.write_all(&out).await.expect("write");
        for _ in 0..count {
            self.read::<ServerFrame>().await;
        }
    }

    async fn read<M: prost::Message + Default>(&mut self) -> M {
        loop {
            if let Some(frame) = decode_frame(&mut self.input).expect("well-formed") {
                return frame;
            }
            assert!(self.stream.read_buf(&mut self.input).await.expect("read") > 0, "closed");
        }
    }
}

impl Nodes {
    /// A connection of the usual tenant to a node.
    pub async fn connect(&self, id: u64) -> Wire {
        let (_, client) = self
            .clients(Caller::Tenant(TENANT))
            .into_iter()
            .find(|(other, _)| *other == id)
            .expect("a node that runs");
        let (stream, far) = tokio::io::duplex(64 << 10);
        let (shutdown, watched) = watch::channel(false);
        tokio::spawn(kv_server::connection::serve(client.node, client.caller, far, watched));
        let mut wire = Wire { stream, input: BytesMut::new(), _shutdown: shutdown };
        let mut hello = BytesMut::new();
        encode_frame(&Hello { version: PROTOCOL_VERSION, ..Hello::default() }, &mut hello);
        wire.stream.write_all(&hello).await.expect("write");
        wire.read::<Hello>().await;
        wire
    }
}
