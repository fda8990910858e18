//! KV nodes in a few lines: what the coordinator is tested against. They keep the protocol of `kv-api`
//! in the simplest way, one batch at a time, and never let anybody wait. There are two nodes with one store
//! behind them, and one range, until it is split; the lease of each is with the one or the other.

mod transfer;
mod wide;

pub use wide::Record;

use crate::client::KvClient;
use crate::config::Config;
use crate::connection::{Connection, ConnectionError, Listener};
use crate::pending::End;
use crate::router::Router;
use bytes::{Bytes, BytesMut};
use kv_api::batch::{
    BatchRequest, Header, IgnoredSequences, KeyValue, RangeInfo, ReplicaInfo, RequestKind, Response, Scan,
    WaitPolicy,
};
use kv_api::wire::{ClientFrame, ServerFrame, decode_frame};
use kv_api::{
    BatchResponse, KvError, KvErrorKind, KvResult, LockStrength, Span, TenantId, Timestamp, TxnMeta,
};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Weak};

/// The tenant of the tests.
pub const TENANT: TenantId = TenantId(7);
/// The nodes. The first holds the lease until it moves.
pub const NODES: [&str; 2] = ["a:1", "b:1"];
/// The first range.
pub const RANGE: u64 = 70;

/// What becomes of a batch that a node serves.
pub enum Play {
    Serve,
    Fail(KvError),
    /// The connection breaks before it is carried out.
    LoseBatch,
    /// The connection breaks after it was carried out.
    LoseAnswer,
}

type Script = Box<dyn FnMut(&BatchRequest) -> Play + Send>;

/// A range.
struct Range {
    id: u64,
    span: Span,
    /// Which node holds the lease.
    leaseholder: usize,
    lease: u64,
    clock: u64,
    ended: HashSet<Bytes>,
    prepared: BTreeMap<Bytes, wide::Prepared>,
    records: BTreeMap<Bytes, Record>,
    hops: BTreeMap<Bytes, transfer::Hop>,
}

impl Range {
    fn new(id: u64, span: Span) -> Self {
        let (ended, prepared, records, hops) = Default::default();
        Range { id, span, leaseholder: 0, lease: 5, clock: 0, ended, prepared, records, hops }
    }
}

type Versions = Vec<(u64, Option<Bytes>)>;
type Writes = Vec<(u32, Option<Bytes>)>;

/// What the node keeps.
pub struct Store {
    ranges: Vec<Range>,
    /// That of the range that is asked.
    clock: u64,
    /// The range that is asked.
    asked: usize,
    /// What becomes of batches.
    pub script: Option<Script>,
    versions: BTreeMap<Bytes, Versions>,
    intents: BTreeMap<Bytes, (Bytes, Writes)>,
    locks: BTreeMap<Bytes, Bytes>,
    /// Most rows of a page; 0 for no bound.
    pub page_rows: usize,
    /// Every batch received by a node that served it, and which node that was.
    pub received: Vec<BatchRequest>,
    pub served_by: Vec<&'static str>,
    /// Times the range was looked up.
    pub lookups: usize,
    /// Whether a node without the lease says who has it.
    pub silent_about_leases: bool,
    /// Whether answers are kept back.
    pub hold: bool,
    held: Vec<(Arc<Connection>, ServerFrame)>,
    /// Whether everything is refused as not available.
    pub unavailable: bool,
}

impl Default for Store {
    fn default() -> Self {
        Store {
            ranges: vec![Range::new(RANGE, TENANT.span())],
            clock: 0,
            asked: 0,
            script: None,
            versions: BTreeMap::new(),
            intents: BTreeMap::new(),
            locks: BTreeMap::new(),
            page_rows: 0,
            received: Vec::new(),
            served_by: Vec::new(),
            lookups: 0,
            silent_about_leases: false,
            hold: false,
            held: Vec::new(),
            unavailable: false,
        }
    }
}

/// Two nodes and their client.
pub struct Model {
    pub client: KvClient,
    pub store: Arc<Mutex<Store>>,
    link: Arc<Link>,
}

/// What lies between the nodes and the client.
#[derive(Default)]
struct Link {
    up: Mutex<bool>,
    open: Mutex<Vec<Arc<Connection>>>,
    router: Mutex<Weak<Router>>,
}

fn retry(message: &str) -> KvError {
    KvError::new(KvErrorKind::Retry, message)
}

fn ignored(sequence: u32, ranges: &[IgnoredSequences]) -> bool {
    ranges.iter().any(|range| sequence >= range.from && sequence < range.to)
}

fn covers(span: &Span, key: &Bytes) -> bool {
    span.contains(key)
}

impl Model {
    /// Starts the nodes on the current runtime.
    pub fn start() -> Arc<Self> {
        Self::start_near("")
    }

    /// The same, with a node that reads from any replica prefer.
    pub fn start_near(near: &str) -> Arc<Self> {
        let tls = {
            let mut roots = rustls::RootCertStore::empty();
            roots.add_parsable_certificates(std::iter::empty::<CertificateDer<'static>>());
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth()
        };
        let mut config = Config::new(vec![NODES[0].to_owned()], Arc::new(tls), TENANT);
        config.connect_timeout = std::time::Duration::from_secs(30);
        config.near = near.to_owned();
        let (store, link) = (Arc::<Mutex<Store>>::default(), Arc::<Link>::default());
        let (nodes, dialed) = (store.clone(), link.clone());
        let router = Router::with_dial(
            Arc::new(config),
            Box::new(move |connection, router| {
                let (nodes, connection, router) = (nodes.clone(), connection.clone(), router.clone());
                if *dialed.up.lock() {
                    connection.pending.open();
                    dialed.open.lock().push(connection.clone());
                    tokio::spawn(serve(nodes, connection, router));
                } else {
                    tokio::spawn(async move {
                        router.ended(&connection, &broken());
                        connection.pending.close(End::Lost);
                    });
                }
                None
            }),
        );
        *link.router.lock() = Arc::downgrade(&router);
        let model = Arc::new(Model { client: KvClient::with_router(router), store, link });
        model.connect();
        model
    }

    /// Connections can be made.
    pub fn connect(&self) {
        *self.link.up.lock() = true;
    }

    /// Breaks the connections: the nodes forget locks and intents, answers kept back are lost.
    pub fn disconnect(&self) {
        *self.link.up.lock() = false;
        for connection in std::mem::take(&mut *self.link.open.lock()) {
            let router = self.link.router.lock().clone();
            router.ended(&connection, &broken());
            connection.pending.close(End::Lost);
        }
        let mut store = self.store.lock();
        let open: Vec<Bytes> =
            store.intents.values().map(|(id, _)| id.clone()).chain(store.locks.values().cloned()).collect();
        for range in 0..store.ranges.len() {
            store.asked = range;
            let ending: Vec<&Bytes> = open.iter().filter(|id| !store.waits_at(range, id)).collect();
            ending.into_iter().for_each(|id| store.end(id));
        }
        store.held.clear();
    }

    /// Gives the lease to the other node. Locks and intents go; the connections stand.
    pub fn move_lease(&self) {
        let mut store = self.store.lock();
        for range in &mut store.ranges {
            range.leaseholder = 1 - range.leaseholder;
            range.lease += 1;
            range.ended.clear();
            range.hops.clear();
        }
        store.locks.clear();
        store.intents.clear();
    }

    /// Lets go of the answers kept back, and of those to come.
    pub fn release(&self) {
        let held = {
            let mut store = self.store.lock();
            store.hold = false;
            std::mem::take(&mut store.held)
        };
        held.into_iter().for_each(|(connection, frame)| connection.pending.deliver(frame));
    }

    /// Waits until `count` batches were received.
    pub async fn received(&self, count: usize) {
        for _ in 0..5_000 {
            if self.store.lock().received.len() >= count {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_micros(100)).await;
        }
        panic!("{} batches were received, not {count}", self.store.lock().received.len());
    }
}

fn broken() -> ConnectionError {
    ConnectionError::Io(std::io::ErrorKind::ConnectionReset.into())
}

/// A node's end of a connection.
async fn serve(store: Arc<Mutex<Store>>, connection: Arc<Connection>, router: Weak<Router>) {
    let mut frames = BytesMut::new();
    loop {
        connection.pending.writable.notified().await;
        let mut taken = BytesMut::new();
        connection.pending.take_unwritten(&mut taken);
        frames.extend_from_slice(&taken);
        while let Some(frame) = decode_frame::<ClientFrame>(&mut frames).unwrap() {
            let mut store = store.lock();
            let node = NODES.iter().position(|node| **node == *connection.address).unwrap();
            let before = store.received.len();
            let Some(answer) = store.answer(node, frame) else {
                drop(store);
                router.ended(&connection, &broken());
                connection.pending.close(End::Lost);
                return;
            };
            if store.hold && store.received.len() > before {
                store.held.push((connection.clone(), answer));
            } else {
                connection.pending.deliver(answer);
            }
        }
    }
}

impl Store {
    /// The answer; none if the connection breaks.
    fn answer(&mut self, node: usize, frame: ClientFrame) -> Option<ServerFrame> {
        let (response, error) = match self.answer_batch(node, frame.batch)? {
            Ok(response) => (Some(response), None),
            Err(error) => (None, Some(error)),
        };
        Some(ServerFrame { id: frame.id, response, error })
    }

    fn answer_batch(&mut self, node: usize, batch: BatchRequest) -> Option<KvResult<BatchResponse>> {
        if let Some(RequestKind::RangeLookup(lookup)) = &batch.requests[0].kind {
            self.lookups += 1;
            return Some(Ok(self.look_up(&lookup.key)));
        }
        let range_id = batch.header.range_id;
        let found = self.ranges.iter().position(|range| range.id == range_id);
        let Some(asked) = found.filter(|range| wide::is_within(&batch, &self.ranges[*range].span)) else {
            return Some(Err(KvError::range_not_found(range_id)));
        };
        let leaseholder = self.ranges[asked].leaseholder;
        if batch.header.any_replica {
            assert_eq!(batch.header.txn, None);
        } else if node != leaseholder {
            let hint = (!self.silent_about_leases).then(|| NODES[leaseholder].to_owned());
            return Some(Err(KvError::not_leaseholder(hint)));
        }
        self.received.push(batch.clone());
        self.served_by.push(NODES[node]);
        if self.unavailable {
            return Some(Err(KvError::new(KvErrorKind::Unavailable, "shutting down")));
        }
        let play = self.script.as_mut().map_or(Play::Serve, |script| script(&batch));
        match play {
            Play::Serve => Some(self.ask(asked, &batch)),
            Play::Fail(error) => Some(Err(error)),
            Play::LoseBatch => None,
            Play::LoseAnswer => {
                let _ = self.ask(asked, &batch);
                None
            }
        }
    }

    fn ask(&mut self, range: usize, batch: &BatchRequest) -> KvResult<BatchResponse> {
        (self.asked, self.clock) = (range, self.ranges[range].clock);
        let result = self.evaluate(batch);
        self.ranges[range].clock = self.clock;
        result.map(|mut response| {
            let concerns_others = batch.header.uncertainty_limit.is_some();
            response.clock = concerns_others.then_some(Timestamp::new(self.clock, 0));
            response
        })
    }

    fn look_up(&self, key: &[u8]) -> BatchResponse {
        let range = self.ranges.iter().find(|range| range.span.contains(key)).unwrap();
        let replicas =
            [1, 2].map(|node_id| ReplicaInfo { node_id, address: NODES[node_id as usize - 1].to_owned() });
        let info = RangeInfo {
            range_id: range.id,
            start: range.span.start.clone(),
            end: range.span.end.clone(),
            replicas: replicas.to_vec(),
            ..RangeInfo::default()
        };
        let response = Response { ranges: vec![info], ..Response::default() };
        BatchResponse { responses: vec![response], ..BatchResponse::default() }
    }

    fn end(&mut self, id: &Bytes) {
        let range = &mut self.ranges[self.asked];
        let stays = |key: &Bytes, owner: &Bytes| owner != id || !range.span.contains(key);
        self.intents.retain(|key, (owner, _)| stays(key, owner));
        self.locks.retain(|key, owner| stays(key, owner));
        range.ended.insert(id.clone());
        range.hops.remove(id);
        if range.prepared.remove(id).is_some() {
            range.records.remove(id);
        }
    }

    /// Whether the node holds nothing of any transaction.
    pub fn is_clean(&self) -> bool {
        let clean = |range: &Range| range.prepared.is_empty() && range.records.is_empty();
        self.intents.is_empty()
            && self.locks.is_empty()
            && self.waiting() == 0
            && self.ranges.iter().all(clean)
    }

    /// Answers kept back will come in the opposite order.
    pub fn reverse_held(&mut self) {
        self.held.reverse();
    }

    /// Number of keys with intents.
    pub fn intents(&self) -> usize {
        self.intents.len()
    }

    /// Everything stored, newest versions only, keys without prefix.
    pub fn newest(&self) -> BTreeMap<Bytes, Bytes> {
        self.versions
            .iter()
            .filter_map(|(key, versions)| Some((key.slice(9..), versions.last()?.1.clone()?)))
            .collect()
    }

    fn at(&self, key: &Bytes, snapshot: u64) -> Option<&(u64, Option<Bytes>)> {
        self.versions.get(key)?.iter().rev().find(|(timestamp, _)| *timestamp <= snapshot)
    }

    fn visible(&self, key: &Bytes, snapshot: u64, header: &Header) -> Option<Bytes> {
        if let (Some(meta), Some((owner, writes))) = (&header.txn, self.intents.get(key))
            && *owner == meta.id
            && let Some((_, value)) = writes.iter().rev().find(|(s, _)| !ignored(*s, &meta.ignored))
        {
            return value.clone();
        }
        self.at(key, snapshot).and_then(|(_, value)| value.clone())
    }

    fn check_unchanged(&self, header: &Header, from: u64, upto: u64) -> KvResult<()> {
        for (key, versions) in &self.versions {
            if versions.iter().any(|(timestamp, _)| *timestamp > from && *timestamp <= upto)
                && let Some(span) = header.refresh_spans.iter().find(|span| covers(span, key))
            {
                return Err(KvError { span: Some(span.clone()), ..retry("changed").with_key(key.clone()) });
            }
        }
        Ok(())
    }

    fn lock(&mut self, key: &Bytes, lock: i32, header: &Header, snapshot: &mut u64) -> KvResult<bool> {
        if lock == LockStrength::None as i32 {
            return Ok(true);
        }
        let id = &header.txn.as_ref().unwrap().id;
        let intent = self.intents.get(key).is_some_and(|(owner, _)| owner != id);
        if intent || self.locks.get(key).is_some_and(|owner| owner != id) {
            return match header.wait_policy == WaitPolicy::Skip as i32 {
                true => Ok(false),
                false => Err(KvError::new(KvErrorKind::LockNotAvailable, "locked").with_key(key.clone())),
            };
        }
        self.locks.insert(key.clone(), id.clone());
        let newest = self.versions.get(key).and_then(|versions| versions.last()).map_or(0, |(at, _)| *at);
        if newest > *snapshot {
            if header.fixed_read_timestamp {
                return Err(retry("fixed"));
            }
            if header.spans_elsewhere {
                return Err(KvError::snapshot_behind(Timestamp::new(self.clock, 0)));
            }
            self.check_unchanged(header, *snapshot, u64::MAX)?;
            *snapshot = self.clock;
        }
        Ok(true)
    }

    fn evaluate(&mut self, batch: &BatchRequest) -> KvResult<BatchResponse> {
        let header = &batch.header;
        if let Some(meta) = &header.txn {
            if let Some(decided) = self.settle(meta, batch) {
                return decided;
            }
            let range = &self.ranges[self.asked];
            if meta.lease != 0 && meta.lease != range.lease {
                return Err(KvError::new(KvErrorKind::Aborted, "another lease"));
            }
            if range.ended.contains(&meta.id) {
                return Err(KvError::new(KvErrorKind::Aborted, "ended"));
            }
            if let Some(answer) = self.transfer(meta, batch) {
                return answer;
            }
            let range = &self.ranges[self.asked];
            let flushed = self.intents.values().any(|(owner, _)| *owner == meta.id);
            if meta.has_intents && !flushed && !range.prepared.contains_key(&meta.id) {
                return Err(KvError::new(KvErrorKind::Aborted, "intents are lost"));
            }
        }
        assert!(header.refresh_spans.is_empty() || header.read_timestamp.is_some());
        self.clock = self.clock.max(header.read_timestamp.map_or(0, |timestamp| timestamp.wall_ns)) + 1;
        let first = header.read_timestamp.map_or(self.clock, |timestamp| timestamp.wall_ns);
        let mut snapshot = first;
        let end = batch.requests.iter().find_map(|request| match &request.kind {
            Some(RequestKind::EndTxn(end)) => Some(end.clone()),
            _ => None,
        });
        let id = header.txn.as_ref().map(|meta| meta.id.clone()).unwrap_or_default();
        if end.as_ref().is_some_and(|end| !end.commit) {
            self.end(&id);
            return Ok(BatchResponse::default());
        }
        self.check_certain(batch, snapshot)?;
        // Locks first: they decide the snapshot.
        let mut skipped = HashSet::new();
        for request in &batch.requests {
            let (keys, lock) = match &request.kind {
                Some(RequestKind::Get(get)) => (vec![get.key.clone()], get.lock),
                Some(RequestKind::Scan(scan)) => (
                    self.scan(scan, snapshot, header, &skipped).0.into_iter().map(|row| row.key).collect(),
                    scan.lock,
                ),
                _ => continue,
            };
            for key in keys {
                if !self.lock(&key, lock, header, &mut snapshot)? {
                    skipped.insert(key);
                }
            }
        }
        let mut response =
            BatchResponse { read_timestamp: Some(Timestamp::new(snapshot, 0)), ..BatchResponse::default() };
        let mut writes: Vec<(Bytes, u32, Option<Bytes>)> = Vec::new();
        for request in &batch.requests {
            let mut answer = Response::default();
            match request.kind.as_ref().unwrap() {
                RequestKind::Get(get) if !skipped.contains(&get.key) => {
                    answer.value = self.visible(&get.key, snapshot, header);
                }
                RequestKind::Get(_) | RequestKind::EndTxn(_) => {}
                RequestKind::Scan(scan) => {
                    (answer.rows, answer.resume) = self.scan(scan, snapshot, header, &skipped)
                }
                RequestKind::Put(put) => {
                    writes.push((put.key.clone(), put.sequence, Some(put.value.clone())))
                }
                RequestKind::Delete(delete) => writes.push((delete.key.clone(), delete.sequence, None)),
                RequestKind::ConditionalPut(put) => {
                    let earlier = writes
                        .iter()
                        .rev()
                        .find(|(key, ..)| *key == put.key)
                        .map(|(.., value)| value.clone());
                    let actual = earlier.unwrap_or_else(|| self.visible(&put.key, u64::MAX, header));
                    if actual.is_some() {
                        let error =
                            KvError::new(KvErrorKind::ConditionFailed, "exists").with_key(put.key.clone());
                        return Err(KvError { actual, ..error });
                    }
                    writes.push((put.key.clone(), put.sequence, Some(put.value.clone())));
                }
                RequestKind::Increment(increment) => {
                    let old = self.visible(&increment.key, u64::MAX, header);
                    let sum = old.map_or(0, |bytes| i64::from_be_bytes(bytes[..].try_into().unwrap()))
                        + increment.by;
                    answer.counter = sum;
                    self.write(increment.key.clone(), Some(Bytes::copy_from_slice(&sum.to_be_bytes())));
                }
                RequestKind::ClearRange(clear) => {
                    let span = Span::new(clear.start.clone(), clear.end.clone());
                    self.versions.retain(|key, _| !covers(&span, key));
                }
                RequestKind::Refresh(refresh) => {
                    let to = refresh.to.map_or(self.clock, |to| to.wall_ns);
                    self.check_unchanged(header, snapshot, to)?;
                    self.clock = self.clock.max(to);
                    response.read_timestamp = Some(Timestamp::new(to, 0));
                }
                _ => panic!("not in the model"),
            }
            response.responses.push(answer);
        }
        for (key, ..) in &writes {
            let foreign = |owner: &Bytes| *owner != id;
            if self.intents.get(key).is_some_and(|(owner, _)| foreign(owner))
                || self.prepared_by_others(key, &id).is_some()
                || self.locks.get(key).is_some_and(foreign)
            {
                return Err(KvError::new(KvErrorKind::LockNotAvailable, "locked").with_key(key.clone()));
            }
        }
        if !writes.is_empty() || self.locks.values().any(|owner| *owner == id) {
            response.lease = self.ranges[self.asked].lease;
        }
        let Some(end) = end else {
            for (key, sequence, value) in writes {
                let (_, history) = self.intents.entry(key).or_insert_with(|| (id.clone(), Vec::new()));
                history.push((sequence, value));
            }
            return Ok(response);
        };
        let meta = header.txn.as_ref().unwrap();
        if let Some(prepare) = &end.prepare {
            response.prepared_at = Some(self.prepare(header, meta, writes, prepare, first)?);
            return Ok(response);
        }
        if let Some(deadline) = end.deadline.filter(|_| end.commit_at.is_none())
            && self.clock > deadline.wall_ns
        {
            return Err(KvError::new(KvErrorKind::Retry, "past the deadline"));
        }
        if let Some(at) = end.commit_at {
            if self.clock >= at.wall_ns {
                return Err(KvError::snapshot_behind(Timestamp::new(self.clock + 1, 0)));
            }
            self.clock = at.wall_ns;
        }
        self.check_unchanged(header, first, self.clock)?;
        let outcome = self.outcome(meta, writes);
        outcome.into_iter().for_each(|(key, value)| self.write(key, value));
        self.end(&id);
        response.commit_timestamp = Some(Timestamp::new(self.clock, 0));
        Ok(response)
    }

    /// What a transaction has written in the range that is asked.
    fn outcome(
        &mut self,
        meta: &TxnMeta,
        writes: Vec<(Bytes, u32, Option<Bytes>)>,
    ) -> BTreeMap<Bytes, Option<Bytes>> {
        let span = self.ranges[self.asked].span.clone();
        let owned = |(key, (owner, _)): &(&Bytes, &(Bytes, Writes))| *owner == meta.id && span.contains(key);
        let own: Vec<Bytes> = self.intents.iter().filter(owned).map(|(key, _)| key.clone()).collect();
        let mut outcome = BTreeMap::new();
        for key in own {
            let (_, history) = self.intents.remove(&key).unwrap();
            if let Some((_, value)) = history.into_iter().rev().find(|(s, _)| !ignored(*s, &meta.ignored)) {
                outcome.insert(key, value);
            }
        }
        outcome.extend(writes.into_iter().map(|(key, _, value)| (key, value)));
        outcome
    }

    fn write(&mut self, key: Bytes, value: Option<Bytes>) {
        assert_eq!(TenantId::of_key(&key), Some(TENANT));
        self.versions.entry(key).or_default().push((self.clock, value));
    }

    fn scan(
        &self,
        scan: &Scan,
        snapshot: u64,
        header: &Header,
        skipped: &HashSet<Bytes>,
    ) -> (Vec<KeyValue>, Option<Span>) {
        let mut keys: Vec<&Bytes> = self.versions.keys().chain(self.intents.keys()).collect();
        keys.sort();
        keys.dedup();
        keys.retain(|key| ***key >= *scan.start && ***key < *scan.end && !skipped.contains(*key));
        if scan.reverse {
            keys.reverse();
        }
        let mut rows = Vec::new();
        for key in keys {
            let Some(value) = self.visible(key, snapshot, header) else { continue };
            let full = scan.limit > 0 && rows.len() as u64 >= scan.limit;
            if full || (self.page_rows > 0 && rows.len() >= self.page_rows) {
                let last: &KeyValue = rows.last().unwrap();
                let rest = if scan.reverse {
                    Span::new(scan.start.clone(), last.key.clone())
                } else {
                    Span::new([&last.key[..], &[0]].concat().into(), scan.end.clone())
                };
                return (rows, Some(rest));
            }
            rows.push(KeyValue { key: key.clone(), value });
        }
        (rows, None)
    }
}
