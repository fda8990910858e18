//! [`KvClient`]: requests outside transactions, and the way into them.

use crate::config::Config;
use crate::connection::{self, State};
use crate::metrics::metrics;
use crate::pending::{Outcome, Pending};
use crate::txn::{Txn, TxnOptions};
use bytes::Bytes;
use kv_api::batch::{
    BatchRequest, ClearRange, DrainNode, DropTenant, Increment, NodeInfo, NodesRequest, RequestKind,
};
use kv_api::key::TENANT_PREFIX_LEN;
use kv_api::wire::MAX_FRAME_LEN;
use kv_api::{BatchResponse, Header, KvError, KvErrorKind, KvResult, Span, TenantId};
use prost::Message;
use rand::Rng;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::Instant;

/// Times a harmless request is sent again after the connection was lost under it.
const RESENDS: usize = 5;
/// Attempts of [`KvClient::run`].
const RUN_ATTEMPTS: u32 = 20;
/// Pause before a KV node that said it is not available is asked again.
const UNAVAILABLE_PAUSE: Duration = Duration::from_millis(20);
/// What a frame needs besides its batch, in bytes.
const FRAME_OVERHEAD: usize = 64;

/// A tenant's way to its keys. Cheap to clone; the connection ends with the last clone.
#[derive(Clone)]
pub struct KvClient {
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    state: watch::Receiver<State>,
    addresses: watch::Receiver<Vec<String>>,
    in_flight: Semaphore,
}

/// How sending a batch failed.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The KV node answered with an error, or the request was never sent. Keys as the caller may see
    /// them.
    Kv(KvError),
    /// The connection was lost; whether the batch was carried out is not known.
    Lost,
    /// The connection that was required is gone; nothing was carried out.
    OtherConnection,
}

/// An answer and the number of the connection it came on.
pub(crate) struct Sent {
    pub response: BatchResponse,
    pub connection: u64,
}

/// How a batch is to be sent.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sending {
    /// The connection it must go on, and no other.
    pub connection: Option<u64>,
    /// Whether others may have to finish before it does.
    pub waits: bool,
}

impl KvClient {
    /// A client whose connection is made in the background, at once. Must be called within a runtime.
    pub fn connect(config: Config) -> Self {
        let (sender, state) = watch::channel(State::Connecting);
        let (known, addresses) = watch::channel(config.addresses.clone());
        tokio::spawn(connection::keep(config.clone(), sender, known));
        Self::with_state(config, state, addresses)
    }

    pub(crate) fn with_state(
        config: Config,
        state: watch::Receiver<State>,
        addresses: watch::Receiver<Vec<String>>,
    ) -> Self {
        let in_flight = Semaphore::new(config.max_in_flight);
        KvClient { shared: Arc::new(Shared { config, state, addresses, in_flight }) }
    }

    /// Addresses of the KV nodes known, those learned included. The one that served last comes first.
    pub fn addresses(&self) -> watch::Receiver<Vec<String>> {
        self.shared.addresses.clone()
    }

    /// The tenant whose keys this client speaks of.
    pub fn tenant(&self) -> TenantId {
        self.shared.config.tenant
    }

    /// Waits until the connection is there.
    ///
    /// # Errors
    /// `Unavailable` after [`Config::connect_timeout`], or what the KV node refuses the client with.
    pub async fn ready(&self) -> KvResult<()> {
        self.connected(self.deadline()).await.map(|_| ())
    }

    /// Starts a transaction. Nothing is sent until it needs the KV node.
    pub fn begin(&self, options: TxnOptions) -> Txn {
        Txn::new(self.clone(), options)
    }

    /// Runs `body` in serializable transactions until one commits: errors that another attempt may cure
    /// are retried with growing pauses, a bounded number of times.
    ///
    /// # Errors
    /// The last error.
    pub async fn run<T, F, Fut>(&self, mut body: F) -> KvResult<T>
    where
        F: FnMut(Arc<Txn>) -> Fut,
        Fut: Future<Output = KvResult<T>>,
    {
        let mut attempt = 0;
        loop {
            let txn = Arc::new(self.begin(TxnOptions::default()));
            let result = match body(txn.clone()).await {
                Ok(value) => txn.commit().await.map(|_| value),
                Err(error) => {
                    txn.rollback().await;
                    Err(error)
                }
            };
            attempt += 1;
            match result {
                Err(error) if crate::is_retryable(&error) && attempt < RUN_ATTEMPTS => {
                    tokio::time::sleep(pause(attempt)).await;
                }
                result => return result,
            }
        }
    }

    /// Writes (`Some`) and deletes (`None`) keys in a transaction of their own, tried again like
    /// [`KvClient::run`].
    ///
    /// # Errors
    /// The last error.
    pub async fn write(&self, writes: &[(Bytes, Option<Bytes>)]) -> KvResult<()> {
        let mut attempt = 0;
        loop {
            let txn = self.begin(TxnOptions::default());
            for (key, value) in writes {
                match value {
                    Some(value) => txn.put(key, value.clone())?,
                    None => txn.delete(key)?,
                }
            }
            attempt += 1;
            match txn.commit().await {
                Err(error) if crate::is_retryable(&error) && attempt < RUN_ATTEMPTS => {
                    tokio::time::sleep(pause(attempt)).await;
                }
                result => return result.map(|_| ()),
            }
        }
    }

    /// Adds to the counter at `key`, outside any transaction, and returns the sum. After a lost
    /// connection it may have been added more than once.
    ///
    /// # Errors
    /// `CounterOverflow`, or what keeps the KV node from answering.
    pub async fn increment(&self, key: &[u8], by: i64) -> KvResult<i64> {
        let key = self.tenant().prefixed(key);
        let response = self.resend_one(RequestKind::Increment(Increment { key, by })).await?;
        Ok(response.responses.first().map_or(0, |response| response.counter))
    }

    /// Removes every version of every key of a span for good, outside any transaction. An empty end is
    /// the end of the tenant's keys.
    ///
    /// # Errors
    /// What keeps the KV node from answering.
    pub async fn clear_range(&self, span: Span) -> KvResult<()> {
        let Span { start, end } = self.full_span(&span);
        if start >= end {
            return Ok(());
        }
        self.resend_one(RequestKind::ClearRange(ClearRange { start, end })).await.map(|_| ())
    }

    /// Removes all keys of a tenant for good. Only the control plane may.
    ///
    /// # Errors
    /// `Unauthorized` for others, or what keeps the KV node from answering.
    pub async fn drop_tenant(&self, tenant: TenantId) -> KvResult<()> {
        self.resend_one(RequestKind::DropTenant(DropTenant { tenant_id: tenant.0 })).await.map(|_| ())
    }

    /// The KV nodes of the cluster. Only the control plane may ask.
    ///
    /// # Errors
    /// `Unauthorized` for others, or what keeps the KV layer from answering.
    pub async fn nodes(&self) -> KvResult<Vec<NodeInfo>> {
        let response = self.resend_one(RequestKind::Nodes(NodesRequest {})).await?;
        Ok(response.responses.into_iter().next().map_or_else(Vec::new, |response| response.nodes))
    }

    /// Makes a KV node give away its lease and replicas, or (`undo`) take some again. Only the control
    /// plane may.
    ///
    /// # Errors
    /// `InvalidRequest` for a node that does not exist or cannot be spared, `Unauthorized` for others, or
    /// what keeps the KV layer from answering.
    pub async fn drain_node(&self, node_id: u64, undo: bool) -> KvResult<()> {
        self.resend_one(RequestKind::DrainNode(DrainNode { node_id, undo })).await.map(|_| ())
    }

    /// Sends a request that may be carried out twice, outside any transaction.
    async fn resend_one(&self, request: RequestKind) -> KvResult<BatchResponse> {
        let mut batch = BatchRequest { header: Header::default(), requests: vec![request.into()] };
        self.resend(&mut batch, true).await
    }

    /// Sends a batch that may be carried out twice.
    pub(crate) async fn resend(&self, batch: &mut BatchRequest, waits: bool) -> KvResult<BatchResponse> {
        for _ in 0..RESENDS {
            match self.send(batch, Sending { connection: None, waits }).await {
                Ok(sent) => return Ok(sent.response),
                Err(SendError::Kv(error)) => return Err(error),
                Err(SendError::Lost | SendError::OtherConnection) => {}
            }
        }
        Err(KvError::new(KvErrorKind::Unavailable, "the connection to the KV node is lost again and again"))
    }

    /// Sends a batch: it is carried out at most once. Batches that were certainly not carried out wait
    /// for the next connection, unless they need a particular one.
    pub(crate) async fn send(&self, batch: &mut BatchRequest, sending: Sending) -> Result<Sent, SendError> {
        if batch.encoded_len() > MAX_FRAME_LEN - FRAME_OVERHEAD {
            let message = format!("a batch of more than {MAX_FRAME_LEN} bytes cannot be sent");
            return Err(SendError::Kv(KvError::new(KvErrorKind::InvalidRequest, message)));
        }
        // The semaphore is never closed.
        let _place = if sending.waits { self.shared.in_flight.acquire().await.ok() } else { None };
        let deadline = self.deadline();
        loop {
            let (connection, answer) = self.submit(batch, sending.connection, deadline).await?;
            metrics().batches.inc();
            match answer.await {
                Ok(Outcome::Answered(Ok(response))) => return Ok(Sent { response, connection }),
                // It says so before it does anything; a node that has lost the lease closes the connection.
                Ok(Outcome::Answered(Err(error))) if is_not_served(&error) => match sending.connection {
                    None if Instant::now() < deadline => tokio::time::sleep(UNAVAILABLE_PAUSE).await,
                    Some(_) if error.kind() == KvErrorKind::NotLeaseholder => {
                        return Err(SendError::OtherConnection);
                    }
                    _ => return Err(SendError::Kv(unavailable(error))),
                },
                Ok(Outcome::Answered(Err(error))) => return Err(SendError::Kv(self.strip(error))),
                Ok(Outcome::Unsent) if sending.connection.is_some() => {
                    return Err(SendError::OtherConnection);
                }
                Ok(Outcome::Unsent) => {}
                Ok(Outcome::Lost) | Err(_) => {
                    metrics().lost.inc();
                    return Err(SendError::Lost);
                }
            }
        }
    }

    /// Sends a batch if there is a connection now, without waiting for the answer.
    pub(crate) fn send_and_forget(&self, mut batch: BatchRequest) {
        if let State::Connected(_, pending) = &*self.shared.state.borrow() {
            drop(pending.submit(&mut batch));
        }
    }

    /// Hands a batch to the connection, as soon as there is one.
    async fn submit(
        &self,
        batch: &mut BatchRequest,
        required: Option<u64>,
        deadline: Instant,
    ) -> Result<(u64, oneshot::Receiver<Outcome>), SendError> {
        loop {
            let (connection, pending) = self.connected(deadline).await.map_err(SendError::Kv)?;
            if required.is_some_and(|required| required != connection) {
                return Err(SendError::OtherConnection);
            }
            // A connection that was just lost takes nothing; the next one will.
            if let Some(answer) = pending.submit(batch) {
                return Ok((connection, answer));
            }
            tokio::task::yield_now().await;
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.shared.config.connect_timeout
    }

    async fn connected(&self, deadline: Instant) -> KvResult<(u64, Arc<Pending>)> {
        if let State::Connected(connection, pending) = &*self.shared.state.borrow() {
            return Ok((*connection, pending.clone()));
        }
        let mut state = self.shared.state.clone();
        let settled = state.wait_for(|state| !matches!(state, State::Connecting));
        let unavailable = || KvError::new(KvErrorKind::Unavailable, "no KV node answers");
        match tokio::time::timeout_at(deadline, settled).await {
            Ok(Ok(state)) => match &*state {
                State::Connected(connection, pending) => Ok((*connection, pending.clone())),
                State::Refused(error) => Err(self.strip(error.clone())),
                State::Connecting => Err(unavailable()),
            },
            Ok(Err(_)) | Err(_) => Err(unavailable()),
        }
    }

    /// A span with the tenant's prefix. An empty end becomes the end of the tenant's keys.
    pub(crate) fn full_span(&self, span: &Span) -> Span {
        let tenant = self.tenant();
        let end = if span.end.is_empty() { tenant.span().end } else { tenant.prefixed(&span.end) };
        Span::new(tenant.prefixed(&span.start), end)
    }

    /// An error as the caller may see it: its keys without the tenant's prefix.
    fn strip(&self, mut error: KvError) -> KvError {
        error.key = error.key.map(|key| self.strip_key(key));
        error.span = error.span.map(|span| Span {
            start: self.strip_key(span.start),
            end: if span.end.is_empty() { span.end } else { self.strip_key(span.end) },
        });
        error
    }

    /// A key without the tenant's prefix. The end of the tenant's last span has none and becomes empty.
    pub(crate) fn strip_key(&self, mut key: Bytes) -> Bytes {
        if key.starts_with(&self.tenant().prefix()) { key.split_off(TENANT_PREFIX_LEN) } else { Bytes::new() }
    }
}

/// Whether a KV node says with this error that it did nothing but may do it later.
fn is_not_served(error: &KvError) -> bool {
    matches!(error.kind(), KvErrorKind::Unavailable | KvErrorKind::NotLeaseholder)
}

/// What a caller who has waited in vain is told.
fn unavailable(error: KvError) -> KvError {
    KvError::new(KvErrorKind::Unavailable, error.message)
}

/// A pause that grows with the attempts, of random length so that rivals part.
fn pause(attempt: u32) -> Duration {
    let most = 1000 << attempt.min(8);
    Duration::from_micros(rand::rng().random_range(most / 2..=most))
}
