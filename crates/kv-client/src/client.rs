//! [`KvClient`]: requests outside transactions, and the way into them.

use crate::config::Config;
use crate::deadline::{CommitDeadline, CommitDeadlines};
use crate::environment::Environment;
use crate::lead::{self, Leads};
use crate::listing;
use crate::located::Located;
use crate::router::{Place, Router, SendError, Sending, Sent};
use crate::txn::{Txn, TxnOptions};
use bytes::Bytes;
use kv_api::batch::{
    BatchRequest, CheckReplicas, ClearRange, ConfigureSpan, ConfigureTenant, CreateTenant, DrainNode,
    DropTenant, Get, Increment, MergeRange, NodeInfo, NodesRequest, RangeConfig, RangeInfo, RangeLookup,
    RangesRequest, ReplicaCheck, RequestKind, SpanConfig, SplitRange,
};
use kv_api::contention::{Contention, ListContention, MAX_LISTED};
use kv_api::key::TENANT_PREFIX_LEN;
use kv_api::{
    BatchResponse, Header, KvError, KvErrorKind, KvResult, LockStrength, Span, TenantId, Timestamp,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// Splits of ranges that a request outside transactions takes note of.
const MAX_SPLITS: usize = 32;
/// Attempts of [`KvClient::run`].
const RUN_ATTEMPTS: u32 = 20;

/// A tenant's way to its keys. Cheap to clone; connections end with the last clone.
#[derive(Clone)]
pub struct KvClient {
    router: Arc<Router>,
    /// Until when its transactions may commit; for ever if there is none.
    deadlines: Option<Arc<CommitDeadlines>>,
}

impl KvClient {
    /// A client that begins to connect to the first address in the background, at once. Must be called
    /// within a runtime.
    pub fn connect(config: Config) -> Self {
        KvClient { router: Router::start(config), deadlines: None }
    }

    #[cfg(test)]
    pub(crate) fn with_router(router: Arc<Router>) -> Self {
        KvClient { router, deadlines: None }
    }

    /// The same client, whose transactions commit at the latest at the deadline that is current when they begin.
    pub fn with_deadlines(&self, deadlines: Arc<CommitDeadlines>) -> Self {
        KvClient { router: self.router.clone(), deadlines: Some(deadlines) }
    }

    /// The deadline of transactions that begin now.
    pub(crate) fn deadline(&self) -> Option<Arc<CommitDeadline>> {
        self.deadlines.as_ref().map(|deadlines| deadlines.current())
    }

    /// Where time, chance and connections come from.
    pub(crate) fn environment(&self) -> &Environment {
        &self.router.config().environment
    }

    /// Addresses of the KV nodes known, those learned included. The one that said hello last comes first.
    pub fn addresses(&self) -> watch::Receiver<Vec<String>> {
        self.router.addresses()
    }

    /// The tenant whose keys this client speaks of.
    pub fn tenant(&self) -> TenantId {
        self.router.config().tenant
    }

    /// Waits until the tenant's range serves.
    ///
    /// # Errors
    /// `Unavailable` after [`Config::connect_timeout`], or what the KV node refuses the client with.
    pub async fn ready(&self) -> KvResult<()> {
        let get = Get { key: self.tenant().prefixed(b""), lock: LockStrength::None as i32 };
        let mut batch = BatchRequest { requests: vec![RequestKind::Get(get).into()], ..Default::default() };
        self.resend(&mut batch, Sending::default()).await.map(|_| ())
    }

    /// Starts a transaction. Nothing is sent until it needs the KV node.
    pub fn begin(&self, options: TxnOptions) -> Txn {
        let now_ns = self.environment().physical_ns();
        Txn::new(self.clone(), options.settled(now_ns))
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
                    tokio::time::sleep(pause(attempt, self.environment().random_fraction())).await;
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
                    tokio::time::sleep(pause(attempt, self.environment().random_fraction())).await;
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
        let response = self.resend_one(RequestKind::Increment(Increment { key, by }), None).await?;
        Ok(response.responses.first().map_or(0, |response| response.counter))
    }

    /// Removes every version of every key of a span for good, outside any transaction. An empty end is
    /// the end of the tenant's keys.
    ///
    /// # Errors
    /// What keeps the KV node from answering.
    pub async fn clear_range(&self, span: Span) -> KvResult<()> {
        let mut left = self.full_span(&span);
        // One range after the other. A range that was split in between is looked up again.
        let mut splits = 0;
        while left.start < left.end {
            let at = self.locate(&left.start, false).await?;
            let Some(Span { start, end }) = at.clip(&left) else { break };
            let clear = RequestKind::ClearRange(ClearRange { start, end: end.clone() });
            let mut batch = BatchRequest { requests: vec![clear.into()], ..BatchRequest::default() };
            let sending =
                Sending { waits: true, again: true, range: Some(at.range_id), ..Sending::default() };
            match self.send(&mut batch, sending).await {
                Ok(_) => left.start = end,
                Err(SendError::Split) if splits < MAX_SPLITS => splits += 1,
                Err(error) => return Err(given_up(error)),
            }
        }
        Ok(())
    }

    /// Lists who holds what and who waits for whom in a span, and which waits have ended lately: at most `limit`
    /// entries of each kind (0: as many as the KV layer lists of a range at once). Each range is seen at another
    /// moment. Keys are without the tenant's prefix; an empty end is the end of the tenant's keys. Waits for nothing
    /// of what it lists.
    ///
    /// # Errors
    /// What keeps the KV node from answering.
    pub async fn contention(&self, span: &Span, limit: u64) -> KvResult<Contention> {
        let most = if limit == 0 { MAX_LISTED } else { limit };
        let mut found = Contention::default();
        let mut left = self.full_span(span);
        let mut splits = 0;
        while left.start < left.end {
            let at = self.locate(&left.start, false).await?;
            let Some(Span { start, end }) = at.clip(&left) else { break };
            let list = RequestKind::ListContention(ListContention { start, end: end.clone(), limit });
            let mut batch = BatchRequest { requests: vec![list.into()], ..BatchRequest::default() };
            let sending = Sending { again: true, range: Some(at.range_id), ..Sending::default() };
            match self.send(&mut batch, sending).await {
                Ok(sent) => {
                    let answer = sent.response.responses.into_iter().next();
                    if let Some(here) = answer.and_then(|response| response.contention) {
                        listing::add(&mut found, *here, most as usize);
                    }
                    left.start = end;
                }
                Err(SendError::Split) if splits < MAX_SPLITS => splits += 1,
                Err(error) => return Err(given_up(error)),
            }
        }
        listing::finish(&mut found, most as usize, |key| self.strip_key(key));
        Ok(found)
    }

    /// Removes all keys of a tenant for good. Only the control plane may.
    ///
    /// # Errors
    /// `Unauthorized` for others, or what keeps the KV node from answering.
    pub async fn drop_tenant(&self, tenant: TenantId) -> KvResult<()> {
        self.resend_one(RequestKind::DropTenant(DropTenant { tenant_id: tenant.0 }), None).await.map(|_| ())
    }

    /// The KV nodes of the cluster. Only the control plane may ask.
    ///
    /// # Errors
    /// `Unauthorized` for others, or what keeps the KV layer from answering.
    pub async fn nodes(&self) -> KvResult<Vec<NodeInfo>> {
        let response = self.resend_one(RequestKind::Nodes(NodesRequest {}), None).await?;
        Ok(response.responses.into_iter().next().map_or_else(Vec::new, |response| response.nodes))
    }

    /// Makes a KV node give away its lease and replicas, or (`undo`) take some again. Only the control
    /// plane may.
    ///
    /// # Errors
    /// `InvalidRequest` for a node that does not exist or cannot be spared, `Unauthorized` for others, or
    /// what keeps the KV layer from answering.
    pub async fn drain_node(&self, node_id: u64, undo: bool) -> KvResult<()> {
        self.resend_one(RequestKind::DrainNode(DrainNode { node_id, undo }), None).await.map(|_| ())
    }

    /// Makes the range of a new tenant; no error if there is one. Only the control plane may.
    ///
    /// # Errors
    /// `Unauthorized` for others, or what keeps the KV layer from answering.
    pub async fn create_tenant(&self, tenant: TenantId) -> KvResult<()> {
        self.resend_one(RequestKind::CreateTenant(CreateTenant { tenant_id: tenant.0 }), None)
            .await
            .map(|_| ())
    }

    /// Lists ranges that begin after a key, in the order of their keys, at most `limit` (0: as many as the KV
    /// layer lists at once). Keys are whole ones, with their prefix. Only the control plane may.
    ///
    /// # Errors
    /// `Unauthorized` for others, or what keeps the KV layer from answering.
    pub async fn ranges(&self, after: Bytes, limit: u64) -> KvResult<Vec<RangeInfo>> {
        let response = self.resend_one(RequestKind::Ranges(RangesRequest { after, limit }), None).await?;
        Ok(response.responses.into_iter().next().map_or_else(Vec::new, |response| response.ranges))
    }

    /// Sets how the range of a tenant is kept. Only the control plane may.
    ///
    /// # Errors
    /// `InvalidRequest` for what cannot be, `Unauthorized` for others, or what keeps the KV layer from
    /// answering.
    pub async fn configure_tenant(&self, tenant: TenantId, config: RangeConfig) -> KvResult<()> {
        let request = ConfigureTenant { tenant_id: tenant.0, config };
        let key = tenant.prefixed(b"");
        self.resend_one(RequestKind::ConfigureTenant(request), Some(&key)).await.map(|_| ())
    }

    /// Sets how the ranges of a span of this client's tenant are kept; `None`: as for the tenant. See
    /// [`kv_api::batch::ConfigureSpan`] for what may be set. An empty end is the end of the tenant's keys.
    ///
    /// # Errors
    /// `InvalidRequest` for what cannot be, such as a span that overlaps another, `Unauthorized` for what is not the
    /// caller's to set, or what keeps the KV layer from answering.
    pub async fn configure_span(&self, span: &Span, config: Option<RangeConfig>) -> KvResult<()> {
        let Span { start, end } = self.full_span(span);
        self.configure_span_of(self.tenant(), Span { start, end }, config).await
    }

    /// The same for a span of any tenant, with whole keys. Only the control plane may, for others than its own.
    ///
    /// # Errors
    /// As for [`KvClient::configure_span`].
    pub async fn configure_span_of(
        &self,
        tenant: TenantId,
        span: Span,
        config: Option<RangeConfig>,
    ) -> KvResult<()> {
        let request = ConfigureSpan { tenant_id: tenant.0, start: span.start, end: span.end, config };
        let key = tenant.prefixed(b"");
        self.resend_one(RequestKind::ConfigureSpan(request), Some(&key)).await.map(|_| ())
    }

    /// The spans of this client's tenant that are kept otherwise than the tenant, with whole keys.
    ///
    /// # Errors
    /// What keeps the KV layer from answering.
    pub async fn configured_spans(&self) -> KvResult<Vec<SpanConfig>> {
        let key = self.tenant().prefixed(b"");
        let request = RequestKind::RangeLookup(RangeLookup { key });
        let response = self.resend_one(request, None).await?;
        let first = response.responses.into_iter().next().and_then(|mut found| found.ranges.pop());
        Ok(first.and_then(|range| range.config).unwrap_or_default().spans)
    }

    /// Splits the range that holds a key, so that the key is the first of a new range. The key is a whole one, with
    /// its prefix. Only the control plane may.
    ///
    /// # Errors
    /// `InvalidRequest` if the range cannot be split there, also because it was already; `Unauthorized` for
    /// others, or what keeps the KV layer from answering.
    pub async fn split_range(&self, key: &[u8]) -> KvResult<()> {
        let key = Bytes::copy_from_slice(key);
        let request = RequestKind::SplitRange(SplitRange { key: key.clone() });
        self.resend_one(request, Some(&key)).await.map(|_| ())
    }

    /// Has a range absorb its right neighbour. Only the control plane may.
    ///
    /// # Errors
    /// `InvalidRequest` if it is the last range of its tenant, or does not end where `range` says; `Unavailable` if the
    /// two cannot be merged for the moment, or must not be; `Unauthorized` for others, or what keeps the KV layer from
    /// answering.
    pub async fn merge_range(&self, range: &RangeInfo) -> KvResult<()> {
        let (start, end) = (range.start.clone(), range.end.clone());
        let request = RequestKind::MergeRange(MergeRange { start, end });
        self.resend_one(request, Some(&range.start)).await.map(|_| ())
    }

    /// Compares the replicas of the range that holds the first key of `range`. Only the control plane may ask.
    ///
    /// # Errors
    /// `Unauthorized` for others, or what keeps the KV layer from answering.
    pub async fn check_replicas(&self, range: &RangeInfo) -> KvResult<Vec<ReplicaCheck>> {
        self.router.suppose(range);
        let request = RequestKind::CheckReplicas(CheckReplicas {});
        let response = self.resend_one(request, Some(&range.start)).await?;
        Ok(response.responses.into_iter().next().map_or_else(Vec::new, |response| response.checks))
    }

    /// Notes whether every replica of the range of a batch serves the present, as it said.
    pub(crate) fn note_global(&self, range_id: u64, batch: &BatchRequest, global: bool) {
        self.router.note_global(range_id, batch, global);
    }

    /// Sends a request that may be carried out twice, outside any transaction.
    async fn resend_one(&self, request: RequestKind, key: Option<&Bytes>) -> KvResult<BatchResponse> {
        let mut batch = BatchRequest { header: Header::default(), requests: vec![request.into()] };
        self.resend(&mut batch, Sending { key, waits: true, ..Sending::default() }).await
    }

    /// Sends a batch that may be carried out twice.
    pub(crate) async fn resend(
        &self,
        batch: &mut BatchRequest,
        sending: Sending<'_>,
    ) -> KvResult<BatchResponse> {
        let sent = self.send(batch, Sending { again: true, ..sending }).await;
        sent.map(|sent| sent.response).map_err(given_up)
    }

    /// Sends a batch: it is carried out at most once, unless it may be sent again. Batches that were certainly
    /// not carried out go on to other nodes, unless they need a particular one.
    pub(crate) async fn send(
        &self,
        batch: &mut BatchRequest,
        sending: Sending<'_>,
    ) -> Result<Sent, SendError> {
        self.router.send(batch, sending).await.map_err(|error| match error {
            SendError::Kv(error) => SendError::Kv(self.strip(error)),
            other => other,
        })
    }

    /// Sends a batch if there is a connection now, without waiting for the answer: to `place`, or to who leads the
    /// range of `key`.
    pub(crate) fn send_and_forget(
        &self,
        batch: BatchRequest,
        place: Option<Place>,
        range_id: u64,
        key: &[u8],
    ) {
        self.router.send_and_forget(batch, place, range_id, key);
    }

    /// The range that holds a key or, if `before`, the keys right below it.
    pub(crate) async fn locate(&self, key: &Bytes, before: bool) -> KvResult<Located> {
        self.router.locate(key, before).await.map_err(|error| self.strip(error))
    }

    /// What is known of the clocks of ranges.
    pub(crate) fn with_leads<T>(&self, with: impl FnOnce(&mut Leads) -> T) -> T {
        self.router.with_leads(with)
    }

    /// Where a transaction commits in some ranges, now: above `floor`. `refreshes` says whether a refresh comes first.
    pub(crate) fn choose_timestamp(
        &self,
        ranges: impl IntoIterator<Item = u64>,
        refreshes: bool,
        floor: Timestamp,
    ) -> Timestamp {
        let lead_ns = self.with_leads(|leads| {
            leads.of(ranges).saturating_add(if refreshes { leads.refresh_ns() } else { 0 })
        });
        lead::choose(self.environment().physical_ns(), lead_ns, floor)
    }

    /// The only cluster that is talked to; empty for any.
    pub(crate) fn cluster_id(&self) -> &str {
        &self.router.config().cluster_id
    }

    /// All keys of the tenant.
    pub(crate) fn tenant_span(&self) -> &Span {
        self.router.tenant_span()
    }

    /// How long a request waits for a KV node that serves it.
    pub(crate) fn patience(&self) -> Duration {
        self.router.config().connect_timeout
    }

    /// Bounds what is still to be said of transactions that have committed.
    pub(crate) fn finishing(&self) -> &Arc<Semaphore> {
        self.router.finishing()
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

/// What became of a batch that may be carried out twice.
pub(crate) fn given_up(error: SendError) -> KvError {
    let message = match error {
        SendError::Kv(error) => return error,
        SendError::Lost | SendError::OtherConnection | SendError::Moved => {
            "the connection to the KV node is lost again and again"
        }
        SendError::Split => "the range that holds the keys changes again and again",
    };
    KvError::new(KvErrorKind::Unavailable, message)
}

/// A pause that grows with the attempts, of random length so that rivals part: `random` is from 0 to 1.
fn pause(attempt: u32, random: f64) -> Duration {
    let most = 1000_u64 << attempt.min(8);
    Duration::from_micros(most).mul_f64(0.5 + random / 2.0)
}
