//! A node in memory, and batches for it.

use bytes::Bytes;
use kv_api::batch::*;
use kv_api::{BatchRequest, BatchResponse, KvError, KvErrorKind, LockStrength, Span, TenantId, Timestamp};
use kv_server::authorize::Caller;
use kv_server::node::{Answer, BatchResult};
use kv_server::{Limits, Node};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use storage::MemoryEngine;

pub const TENANT: TenantId = TenantId(7);

/// A node and the engine below it.
pub struct TestNode {
    pub engine: Arc<MemoryEngine>,
    pub node: Arc<Node>,
}

impl TestNode {
    pub fn start() -> Self {
        Self::on(Arc::new(MemoryEngine::new()))
    }

    pub fn on(engine: Arc<MemoryEngine>) -> Self {
        Self::with(engine, Limits::default())
    }

    pub fn with(engine: Arc<MemoryEngine>, limits: Limits) -> Self {
        let node = Node::start(engine.clone(), limits).expect("start");
        TestNode { engine, node }
    }

    /// Another client of the usual tenant, on a connection of its own.
    pub fn client(&self) -> Client {
        self.client_of(Caller::Tenant(TENANT))
    }

    pub fn client_of(&self, caller: Caller) -> Client {
        let connection = self.node.open_connection(caller.tenant());
        Client { node: self.node.clone(), caller, connection }
    }

    /// Waits until nothing is open or being settled.
    pub async fn settled(&self) {
        while !self.node.is_idle() {
            tokio::task::yield_now().await;
        }
    }
}

/// Makes the ranges of the tenants that tests use, where clients cannot.
pub async fn make_ranges(node: &Arc<Node>) {
    for tenant in [TENANT, TenantId(TENANT.0 + 1)] {
        let create = RequestKind::CreateTenant(CreateTenant { tenant_id: tenant.0 });
        let client = Client { node: node.clone(), caller: Caller::Control, connection: 0 };
        client.ask(batch(Header::default(), vec![create])).await.expect("a range");
    }
}

/// One connection to a node, without its bytes.
#[derive(Clone)]
pub struct Client {
    pub node: Arc<Node>,
    pub caller: Caller,
    pub connection: u64,
}

impl Client {
    /// Asks the node; makes the tenant's range first if there is none.
    pub async fn ask(&self, batch: BatchRequest) -> BatchResult {
        let result = self.ask_as(self.caller, batch.clone()).await;
        match result {
            Err(error) if error.kind() == KvErrorKind::RangeNotFound => {
                let create = CreateTenant { tenant_id: self.caller.tenant().0 };
                let create = self::batch(Header::default(), vec![RequestKind::CreateTenant(create)]);
                self.ask_as(Caller::Control, create).await?;
                self.ask_as(self.caller, batch).await
            }
            result => result,
        }
    }

    /// Asks the node, whatever the answer.
    pub async fn ask_once(&self, batch: BatchRequest) -> BatchResult {
        self.ask_as(self.caller, batch).await
    }

    /// Asks until the node holds the lease: it may lose it for a moment where the machine is busy.
    async fn ask_as(&self, caller: Caller, batch: BatchRequest) -> BatchResult {
        for _ in 0..200 {
            match self.ask_now(caller, batch.clone()).await {
                Err(error) if error.kind() == KvErrorKind::NotLeaseholder => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                result => return result,
            }
        }
        self.ask_now(caller, batch).await
    }

    async fn ask_now(&self, caller: Caller, batch: BatchRequest) -> BatchResult {
        match self.node.handle(caller, self.connection, batch) {
            Answer::Ready(result) => result,
            Answer::Later(batch) | Answer::Heavy(batch) | Answer::LargeRead(batch) => batch.await,
        }
    }

    /// Sends requests as a transaction of their own.
    pub async fn send(&self, requests: Vec<RequestKind>) -> BatchResult {
        self.ask(batch(Header::default(), requests)).await
    }

    pub async fn put(&self, key: &str, value: &str) {
        self.send(vec![put(key, value, 1)]).await.expect("put");
    }

    pub async fn get(&self, key: &str) -> Option<String> {
        value_of(&self.send(vec![get(key)]).await.expect("get"))
    }

    pub async fn scan_all(&self) -> Vec<(String, String)> {
        rows_of(&self.send(vec![scan("", "\x7f", 0)]).await.expect("scan").responses[0])
    }

    pub fn close(&self) {
        self.node.close_connection(self.caller.tenant(), self.connection);
    }

    pub fn begin(&self) -> Txn {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        let header = Header {
            txn: Some(TxnMeta { id: Bytes::copy_from_slice(&id), ..TxnMeta::default() }),
            ..Header::default()
        };
        Txn { client: self.clone(), header, spans: Vec::new() }
    }
}

/// A coordinator in miniature: keeps the read timestamp and the refresh spans.
pub struct Txn {
    pub client: Client,
    pub header: Header,
    pub spans: Vec<Span>,
}

impl Txn {
    pub async fn send(&mut self, requests: Vec<RequestKind>) -> BatchResult {
        let mut header = self.header.clone();
        if header.read_timestamp.is_some() {
            header.refresh_spans = self.spans.clone();
        }
        let flushes = requests.iter().any(|kind| {
            matches!(
                kind,
                RequestKind::Put(_)
                    | RequestKind::ConditionalPut(_)
                    | RequestKind::Delete(_)
                    | RequestKind::DeleteRange(_)
            )
        });
        let result = self.client.ask(batch(header, requests.clone())).await?;
        self.header.read_timestamp = result.read_timestamp.or(self.header.read_timestamp);
        for kind in requests {
            match kind {
                RequestKind::Get(get) => self.spans.push(Span::point(get.key)),
                RequestKind::Scan(scan) => self.spans.push(Span::new(scan.start, scan.end)),
                _ => {}
            }
        }
        if flushes && let Some(txn) = &mut self.header.txn {
            txn.has_intents = true;
        }
        Ok(result)
    }

    pub async fn get(&mut self, key: &str) -> Result<Option<String>, KvError> {
        self.send(vec![get(key)]).await.map(|response| value_of(&response))
    }

    pub async fn lock(&mut self, key: &str, strength: LockStrength) -> Result<Option<String>, KvError> {
        self.send(vec![locking_get(key, strength)]).await.map(|response| value_of(&response))
    }

    pub async fn commit(&mut self, mut writes: Vec<RequestKind>) -> Result<Timestamp, KvError> {
        writes.push(RequestKind::EndTxn(EndTxn { commit: true, ..EndTxn::default() }));
        let response = self.send(writes).await?;
        Ok(response.commit_timestamp.expect("a commit has a timestamp"))
    }

    pub async fn abort(&mut self) -> Result<(), KvError> {
        let (txn, range_id) = (self.header.txn.clone(), self.header.range_id);
        let header = Header { txn, range_id, ..Header::default() };
        self.client.ask(batch(header, vec![RequestKind::EndTxn(EndTxn::default())])).await.map(drop)
    }
}

pub fn key(name: &str) -> Bytes {
    TENANT.prefixed(name.as_bytes())
}

pub fn batch(header: Header, requests: Vec<RequestKind>) -> BatchRequest {
    BatchRequest { header, requests: requests.into_iter().map(Request::from).collect() }
}

pub fn get(name: &str) -> RequestKind {
    RequestKind::Get(Get { key: key(name), lock: 0 })
}

pub fn locking_get(name: &str, strength: LockStrength) -> RequestKind {
    RequestKind::Get(Get { key: key(name), lock: strength as i32 })
}

pub fn scan(from: &str, to: &str, limit: u64) -> RequestKind {
    RequestKind::Scan(Scan { start: key(from), end: key(to), limit, ..Scan::default() })
}

pub fn put(name: &str, value: &str, sequence: u32) -> RequestKind {
    RequestKind::Put(Put { key: key(name), value: Bytes::copy_from_slice(value.as_bytes()), sequence })
}

pub fn insert(name: &str, value: &str, sequence: u32) -> RequestKind {
    let value = Bytes::copy_from_slice(value.as_bytes());
    RequestKind::ConditionalPut(ConditionalPut { key: key(name), value, expected: None, sequence })
}

pub fn delete(name: &str, sequence: u32) -> RequestKind {
    RequestKind::Delete(Delete { key: key(name), sequence })
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

pub fn value_of(response: &BatchResponse) -> Option<String> {
    response.responses[0].value.as_ref().map(|value| text(value))
}

pub fn rows_of(response: &Response) -> Vec<(String, String)> {
    let row = |row: &KeyValue| (text(&row.key[kv_api::key::TENANT_PREFIX_LEN..]), text(&row.value));
    response.rows.iter().map(row).collect()
}

pub fn kind<T: std::fmt::Debug>(result: Result<T, KvError>) -> KvErrorKind {
    result.expect_err("should fail").kind()
}
