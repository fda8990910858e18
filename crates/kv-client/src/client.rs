//! [`KvClient`]: requests outside transactions, and the way into them.

use crate::config::Config;
use crate::connection::{self, State};
use crate::pending::Outcome;
use crate::txn::{Txn, TxnOptions};
use kv_api::batch::{BatchRequest, ClearRange, DropTenant, Increment, RequestKind};
use kv_api::{BatchResponse, Header, KvError, KvErrorKind, KvResult, Span, TenantId};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot, watch};

/// Times a harmless request is sent again after the connection was lost under it.
const RESENDS: usize = 5;
/// Attempts of [`KvClient::run`].
const RUN_ATTEMPTS: u32 = 20;

/// A tenant's way to its keys. Cheap to clone; the connection ends with the last clone.
#[derive(Clone)]
pub struct KvClient {
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    state: watch::Receiver<State>,
    in_flight: Semaphore,
}

/// How sending a batch failed.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The KV node answered with an error, or the request was never sent.
    Kv(KvError),
    /// The connection was lost; whether the batch was carried out is not known.
    Lost,
    /// The connection that was required is gone; nothing was sent.
    OtherConnection,
}

/// An answer and the number of the connection it came on.
pub(crate) struct Sent {
    pub response: BatchResponse,
    pub connection: u64,
}

impl KvClient {
    /// A client whose connection is made in the background, at once. Must be called within a runtime.
    pub fn connect(config: Config) -> Self {
        let (sender, state) = watch::channel(State::Connecting);
        tokio::spawn(connection::keep(config.clone(), sender));
        let in_flight = Semaphore::new(config.max_in_flight);
        KvClient { shared: Arc::new(Shared { config, state, in_flight }) }
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
        self.connected().await.map(|_| ())
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
    pub async fn run<T, F>(&self, mut body: F) -> KvResult<T>
    where
        F: AsyncFnMut(&Txn) -> KvResult<T>,
    {
        let mut attempt = 0;
        loop {
            let txn = self.begin(TxnOptions::default());
            let result = match body(&txn).await {
                Ok(value) => txn.commit().await.map(|_| value),
                Err(error) => {
                    txn.rollback().await;
                    Err(error)
                }
            };
            attempt += 1;
            match result {
                Err(error) if is_transient(&error) && attempt < RUN_ATTEMPTS => {
                    tokio::time::sleep(Duration::from_millis(1 << attempt.min(8))).await;
                }
                result => return result,
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
        let response = self.resend(RequestKind::Increment(Increment { key, by })).await?;
        Ok(response.responses.first().map_or(0, |response| response.counter))
    }

    /// Removes every version of every key of a span for good, outside any transaction.
    ///
    /// # Errors
    /// What keeps the KV node from answering.
    pub async fn clear_range(&self, span: Span) -> KvResult<()> {
        let (start, end) = (self.tenant().prefixed(&span.start), self.tenant().prefixed(&span.end));
        self.resend(RequestKind::ClearRange(ClearRange { start, end })).await.map(|_| ())
    }

    /// Removes all keys of a tenant for good. Only the control plane may.
    ///
    /// # Errors
    /// `Unauthorized` for others, or what keeps the KV node from answering.
    pub async fn drop_tenant(&self, tenant: TenantId) -> KvResult<()> {
        self.resend(RequestKind::DropTenant(DropTenant { tenant_id: tenant.0 })).await.map(|_| ())
    }

    /// Sends a request that may be carried out twice, outside any transaction.
    async fn resend(&self, request: RequestKind) -> KvResult<BatchResponse> {
        let batch = BatchRequest { header: Header::default(), requests: vec![request.into()] };
        self.resend_batch(batch).await.map(|sent| sent.response)
    }

    /// Sends a batch that may be carried out twice.
    pub(crate) async fn resend_batch(&self, batch: BatchRequest) -> KvResult<Sent> {
        for _ in 0..RESENDS {
            match self.send(batch.clone(), None).await {
                Ok(sent) => return Ok(sent),
                Err(SendError::Kv(error)) => return Err(self.strip(error)),
                Err(SendError::Lost | SendError::OtherConnection) => {}
            }
        }
        Err(KvError::new(KvErrorKind::Unavailable, "the connection to the KV node is lost again and again"))
    }

    /// Sends a batch once; on connection `required`, if given, and no other.
    pub(crate) async fn send(&self, batch: BatchRequest, required: Option<u64>) -> Result<Sent, SendError> {
        let _place = self.shared.in_flight.acquire().await;
        let (connection, answer) = self.submit(batch, required).await?;
        match answer.await {
            Ok(Outcome::Answered(Ok(response))) => Ok(Sent { response, connection }),
            Ok(Outcome::Answered(Err(error))) => Err(SendError::Kv(error)),
            Ok(Outcome::Lost) | Err(_) => Err(SendError::Lost),
        }
    }

    /// Sends a batch if there is a connection now, without waiting for the answer.
    pub(crate) fn send_and_forget(&self, batch: BatchRequest) {
        if let State::Connected(_, pending) = &*self.shared.state.borrow() {
            drop(pending.submit(&batch));
        }
    }

    /// Hands a batch to the connection, as soon as there is one.
    async fn submit(
        &self,
        batch: BatchRequest,
        required: Option<u64>,
    ) -> Result<(u64, oneshot::Receiver<Outcome>), SendError> {
        loop {
            let (connection, pending) = self.connected().await.map_err(SendError::Kv)?;
            if required.is_some_and(|required| required != connection) {
                return Err(SendError::OtherConnection);
            }
            // A connection that was just lost takes nothing; the next one will.
            if let Some(answer) = pending.submit(&batch) {
                return Ok((connection, answer));
            }
            tokio::task::yield_now().await;
        }
    }

    async fn connected(&self) -> KvResult<(u64, Arc<crate::pending::Pending>)> {
        if let State::Connected(connection, pending) = &*self.shared.state.borrow() {
            return Ok((*connection, pending.clone()));
        }
        let mut state = self.shared.state.clone();
        let settled = state.wait_for(|state| !matches!(state, State::Connecting));
        let unavailable = || KvError::new(KvErrorKind::Unavailable, "the KV node does not answer");
        match tokio::time::timeout(self.shared.config.connect_timeout, settled).await {
            Ok(Ok(state)) => match &*state {
                State::Connected(connection, pending) => Ok((*connection, pending.clone())),
                State::Refused(error) => Err(error.clone()),
                State::Connecting => Err(unavailable()),
            },
            Ok(Err(_)) | Err(_) => Err(unavailable()),
        }
    }

    /// An error as the caller may see it: its keys without the tenant's prefix.
    pub(crate) fn strip(&self, mut error: KvError) -> KvError {
        error.key = error.key.map(|key| self.strip_key(key));
        error.span = error.span.map(|span| Span {
            start: self.strip_key(span.start),
            end: if span.end.is_empty() { span.end } else { self.strip_key(span.end) },
        });
        error
    }

    /// A key without the tenant's prefix. The end of the tenant's last span has none and becomes empty.
    pub(crate) fn strip_key(&self, mut key: bytes::Bytes) -> bytes::Bytes {
        if key.starts_with(&self.tenant().prefix()) {
            key.split_off(kv_api::key::TENANT_PREFIX_LEN)
        } else {
            bytes::Bytes::new()
        }
    }
}

/// Whether another attempt of a whole transaction may succeed where this one failed.
fn is_transient(error: &KvError) -> bool {
    matches!(error.kind(), KvErrorKind::Retry | KvErrorKind::Aborted | KvErrorKind::Deadlock)
}
