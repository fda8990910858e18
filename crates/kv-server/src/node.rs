//! The node: one engine, its pipeline, its shards, and the way of a batch through them.
//!
//! # The way of a batch
//!
//! [`Node::handle`] authorizes and validates. Plain reads and aborts are answered at once. Everything
//! else takes its latches, is evaluated (see [`crate::evaluate`]) and either answers, or waits for
//! a lock and starts over, or hands a command to the pipeline and answers when that is applied. What
//! must happen when a command is applied, such as releasing latches and locks, happens in the command's
//! `done` and not in the task that waits for the answer, which may be gone by then.
//!
//! An evaluation that turns out to read much is begun anew on a task of its own ([`crate::patience`]).

use crate::admin;
use crate::authorize::{Caller, authorize};
use crate::bounds;
use crate::classify::{Class, aborts_for_good, classify, is_large, wanted_timestamp};
use crate::cluster::{CLUSTER, Cluster, Myself};
use crate::column_cache::{ColumnCache, Watched};
use crate::command::{Command, CommandError};
use crate::config::Limits;
use crate::environment::Environment;
use crate::evaluate::{Evaluation, Outcome, Stop, WriteKind};
use crate::faults::Bug;
use crate::follower::Promises;
use crate::guards::{LatchGuard, LoneTxn};
use crate::history::History;
use crate::latch::{Access, LatchId};
use crate::lock_table::TxnKey;
use crate::metrics::{kind_index, metrics};
use crate::patience::{Manner, Patience, Unevaluated, briefly_or_elsewhere};
use crate::pipeline::{self, Absent, Hook, Pipeline, Standing, Stepped, Transport, sequence_of};
use crate::read::Unread;
use crate::resolve::ResolveJob;
use crate::settle::{self, Settling};
use crate::shard::{ConnectionId, PartKey, Shard, TxnEntry, TxnStatus, Unresolved, aborted};
use crate::validate::validate;
use bytes::Bytes;
use hashbrown::HashSet;
use kv_api::batch::{Header, RequestKind, Response};
use kv_api::{BatchRequest, BatchResponse, KvError, KvErrorKind, LockStrength, Span, TenantId, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use prost::Message;
use replication::message::Payload;
use replication::{Envelope, Millis, NodeId, RangeId, ReplicationError, Sound, Store, StoreConfig};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use storage::ident::Identity;
use storage::intent::{IntentView, TxnId};
use storage::txn_record::{self, RecordStatus, TxnRecord};
use storage::{Engine, Reader, StorageError, StorageResult, WriteBatch};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Number of shards; a power of two.
const SHARDS: usize = 16;

/// Most batches that are being evaluated and may take long; others wait for their turn.
const MAX_HEAVY: usize = 8;
/// Most ranges that are being woken because their keys were looked for in others.
const MAX_WAKING: usize = 8;

/// Whose batch it is: the tenant it works on and the connection it came on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The tenant.
    pub tenant: u64,
    /// The connection.
    pub connection: ConnectionId,
    /// The range.
    pub range: RangeId,
}

/// Result of a batch.
pub type BatchResult = Result<BatchResponse, KvError>;

/// What [`Node::handle`] returns.
pub enum Answer {
    /// The answer.
    Ready(BatchResult),
    /// The answer will take latches, and perhaps locks or a commit.
    Later(Pending),
    /// The same, and it may take the processor for long, so it should not be computed where others wait.
    Heavy(Pending),
    /// The answer is a read that waits for nothing but returns much.
    LargeRead(Pending),
}

fn bounds_of(limits: &Limits) -> pipeline::Bounds {
    pipeline::Bounds { max_queued_bytes: limits.max_queued_bytes, max_clock_offset: limits.max_clock_offset }
}

/// An answer to come.
pub type Pending = Pin<Box<dyn Future<Output = BatchResult> + Send>>;

/// A KV node without its sockets.
pub struct Node {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) columns: Arc<ColumnCache>,
    pub(crate) pipeline: Pipeline,
    pub(crate) limits: Limits,
    node_id: NodeId,
    cluster_id: String,
    /// The node's part in the cluster, once it has one.
    cluster: OnceLock<Arc<Cluster>>,
    pub(crate) shards: Box<[Mutex<Shard>]>,
    /// Readers look at the lock space only when there are any, or when they have intents of their own.
    unresolved: Unresolved,
    next_connection: AtomicU64,
    pub(crate) history: History,
    resolver: mpsc::UnboundedSender<ResolveJob>,
    pub(crate) settler: mpsc::Sender<Settling>,
    pub(crate) promises: Promises,
    /// Ranges whose replicas here were found to differ from the others.
    distrusted: Mutex<HashSet<RangeId>>,
    /// Bounds ranges that are woken because their keys were looked for elsewhere.
    waking: Arc<Semaphore>,
    /// Bounds batches that are evaluated at a time and may take long.
    heavy: Semaphore,
}

impl Node {
    /// Starts a node on the store in `engine`, which is founded if it is empty, without others to speak to.
    /// If the store's node decides alone, it serves when this returns.
    ///
    /// # Errors
    /// As for [`Node::start_as`].
    pub fn start(engine: Arc<dyn Engine>, limits: Limits) -> StorageResult<Arc<Self>> {
        let identity = crate::found::open_or_found(&engine)?;
        let node = Self::start_as(engine, limits, &identity, Arc::new(Nobody))?;
        node.set_cluster(Cluster::new(&node, None, Myself::alone(node.node_id)));
        Ok(node)
    }

    /// Opens the replicas in `engine`, and starts the pipeline and, on the present tokio runtime, the
    /// resolver of intents.
    ///
    /// # Errors
    /// If the store is damaged or cannot be written.
    pub fn start_as(
        engine: Arc<dyn Engine>,
        limits: Limits,
        identity: &Identity,
        transport: Arc<dyn Transport>,
    ) -> StorageResult<Arc<Self>> {
        let environment = Environment::of_machine();
        let (engine, columns) = watched(engine, &limits, &environment);
        let open = opener(&engine, identity.node_id, &environment);
        let pipeline = Pipeline::start(Arc::clone(&engine), bounds_of(&limits), transport, open)?;
        Ok(Self::with_pipeline((engine, columns), limits, identity, pipeline))
    }

    /// The same with time and chance given, and replicas that are driven by the caller.
    ///
    /// # Errors
    /// If the store is damaged or cannot be written.
    pub fn start_stepped(
        engine: Arc<dyn Engine>,
        limits: Limits,
        identity: &Identity,
        transport: Arc<dyn Transport>,
        environment: Environment,
    ) -> StorageResult<(Arc<Self>, Stepped)> {
        let (engine, columns) = watched(engine, &limits, &environment);
        let open = opener(&engine, identity.node_id, &environment);
        let (pipeline, stepped) =
            Pipeline::start_stepped(Arc::clone(&engine), bounds_of(&limits), transport, environment, open)?;
        Ok((Self::with_pipeline((engine, columns), limits, identity, pipeline), stepped))
    }

    fn with_pipeline(
        (engine, columns): (Arc<dyn Engine>, Arc<ColumnCache>),
        limits: Limits,
        identity: &Identity,
        pipeline: Pipeline,
    ) -> Arc<Self> {
        let node_id = identity.node_id;
        let cluster_id = identity.cluster_id.clone();
        let history = History::new(pipeline.history_clock(), limits.history_kept);
        let (resolver, jobs) = mpsc::unbounded_channel();
        let (settler, settling) = mpsc::channel(settle::MAX_WAITING);
        let unresolved = Unresolved::default();
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::bounded(&limits, &unresolved))).collect();
        let node = Arc::new(Node {
            engine,
            columns,
            pipeline,
            limits,
            node_id,
            cluster_id,
            cluster: OnceLock::new(),
            shards,
            unresolved,
            next_connection: AtomicU64::new(1),
            history,
            resolver,
            settler,
            promises: Promises::default(),
            distrusted: Mutex::default(),
            waking: Arc::new(Semaphore::new(MAX_WAKING)),
            heavy: Semaphore::new(MAX_HEAVY),
        });
        node.pipeline.set_hook(Arc::new(Listener(Arc::downgrade(&node))));
        tokio::spawn(crate::resolve::run(Arc::downgrade(&node), jobs));
        tokio::spawn(settle::run(Arc::downgrade(&node), settling));
        tokio::spawn(crate::history::run(Arc::downgrade(&node)));
        tokio::spawn(crate::recover::run(Arc::downgrade(&node)));
        tokio::spawn(crate::recover::break_cycles(Arc::downgrade(&node)));
        node
    }

    /// The cluster this store belongs to.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// This node within the cluster.
    pub fn node_id(&self) -> NodeId {
        self.node_id
    }

    /// The replicas of this node and the way to them.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Takes in messages from other nodes. What is not for the replicas does not bother who drives them.
    pub fn receive(&self, mut envelopes: Vec<Envelope>) {
        envelopes.retain(|envelope| match (&envelope.payload, self.cluster()) {
            (Some(Payload::App(app)), Some(cluster)) => {
                cluster.message(envelope.from, &app.bytes);
                false
            }
            _ => true,
        });
        if !envelopes.is_empty() {
            self.pipeline.receive(envelopes);
        }
    }

    /// Gives the node its part in the cluster. What was given first holds.
    pub fn set_cluster(&self, cluster: Arc<Cluster>) {
        let _ = self.cluster.set(cluster);
    }

    /// The node's part in the cluster.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.cluster.get()
    }

    /// Where a node of the cluster can be reached.
    pub fn address_of(&self, id: NodeId) -> Option<String> {
        self.cluster()?.address_of(id)
    }

    /// Where the nodes of the cluster can be reached, as far as this one knows.
    pub fn addresses(&self) -> Vec<String> {
        self.cluster().map_or_else(Vec::new, |cluster| cluster.addresses())
    }

    /// Carries out a batch of the node's own, on keys that no client may touch.
    pub(crate) async fn internal(self: &Arc<Self>, asker: Asker, batch: BatchRequest) -> BatchResult {
        Arc::clone(self).execute(asker, batch, WriteKind::Lone).await
    }

    /// Notes a new connection of a tenant and names it.
    pub fn open_connection(&self, tenant: TenantId) -> ConnectionId {
        let connection = self.next_connection.fetch_add(1, Ordering::Relaxed);
        self.shard(tenant.0).open_connection(connection);
        connection
    }

    pub(crate) fn shard(&self, tenant: u64) -> MutexGuard<'_, Shard> {
        // Tenant ids are dense, so their low bits spread them evenly.
        let index = tenant as usize % SHARDS;
        self.shards[index].lock()
    }

    /// Whether no shard holds anything: no transaction, latch, lock or intent.
    pub fn is_idle(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_idle())
    }

    /// Whether nobody could have to wait for a transaction: no shard holds a latch, lock or intent.
    pub fn keeps_nobody_waiting(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().keeps_nobody_waiting())
    }

    /// What it keeps of transactions, to be read by people; nothing if it [is idle](Self::is_idle).
    pub fn leftovers(&self) -> Vec<String> {
        self.shards.iter().flat_map(|shard| shard.lock().leftovers()).collect()
    }

    /// Takes a batch in.
    pub fn handle(self: &Arc<Self>, caller: Caller, connection: ConnectionId, batch: BatchRequest) -> Answer {
        if let Err(error) = authorize(caller, &batch) {
            refused(caller, &batch, &error);
            return Answer::Ready(Err(error));
        }
        if let Err(error) = validate(&batch, &self.limits) {
            return Answer::Ready(Err(error));
        }
        for request in &batch.requests {
            if let Some(counter) = metrics().requests.get(kind_index(request.kind.as_ref())) {
                counter.inc();
            }
        }
        if admin::is_about_cluster(&batch) {
            return Answer::Later(Box::pin(admin::answer(Arc::clone(self), batch)));
        }
        let mut asker = Asker { tenant: caller.tenant().0, connection, range: batch.header.range_id };
        if asker.range == 0 {
            asker.range = self.pipeline.awake_for(&caller.tenant().span()).unwrap_or(0);
        }
        let class = classify(&batch);
        if let Class::Abort = class
            && !aborts_for_good(&batch)
        {
            // What is to be forgotten is forgotten, whoever holds the lease.
            return self.abort(asker, batch);
        }
        let part = batch.header.txn.as_ref().and_then(|_| part_key(asker, &batch.header).ok());
        let answer = if self.pipeline.serves(asker.range, |span| bounds::within(&batch, asker.tenant, span)) {
            // Also what any replica might answer: here it costs least.
            self.take(asker, batch, class)
        } else {
            Answer::Later(Box::pin(Arc::clone(self).arrive(asker, batch, class)))
        };
        match part {
            Some(part) => self.letting_go(part, connection, answer),
            None => answer,
        }
    }

    /// Whoever is told that the lease is not here takes it that the locks of the transaction went with it, and goes on
    /// under another name. So they go, also where the lease was but in the middle of a split. A part that has come to be
    /// known and has nothing goes with whatever error: its coordinator may not come to know that this node was asked.
    fn letting_go(self: &Arc<Self>, part: PartKey, connection: ConnectionId, answer: Answer) -> Answer {
        let node = Arc::clone(self);
        let told = move |result: BatchResult| {
            let Err(error) = &result else { return result };
            let mut shard = node.shard(part.txn.tenant);
            if error.kind() != KvErrorKind::NotLeaseholder {
                shard.let_go_of_nothing(part);
            } else if !node.pipeline.environment().planted(Bug::LetGoSkipped)
                && let Some(span) = node.pipeline.span(part.range)
            {
                shard.let_go(part, connection, &span);
            }
            drop(shard);
            result
        };
        match answer {
            Answer::Ready(result) => Answer::Ready(told(result)),
            Answer::Later(later) => Answer::Later(Box::pin(async move { told(later.await) })),
            Answer::Heavy(later) => Answer::Heavy(Box::pin(async move { told(later.await) })),
            Answer::LargeRead(later) => Answer::LargeRead(Box::pin(async move { told(later.await) })),
        }
    }

    /// Takes a batch in that this node can serve.
    fn take(self: &Arc<Self>, asker: Asker, batch: BatchRequest, class: Class) -> Answer {
        match class {
            Class::Read => self.take_read(asker, batch),
            Class::Abort => self.abort(asker, batch),
            Class::List => {
                let node = Arc::clone(self);
                Answer::Heavy(Box::pin(async move { node.list(asker, &batch) }))
            }
            Class::Refresh => Answer::Later(Box::pin(Arc::clone(self).refresh(asker, batch))),
            Class::Decide => Answer::Later(Box::pin(Arc::clone(self).decide(asker, batch))),
            Class::Transfer => Answer::Ready(self.transfer(asker, &batch)),
            Class::Resolve => Answer::Later(Box::pin(Arc::clone(self).resolve(asker, batch))),
            Class::Evaluate(kind) => {
                let large = is_large(&batch);
                let answer = Box::pin(Arc::clone(self).execute(asker, batch, kind));
                if large { Answer::Heavy(answer) } else { Answer::Later(answer) }
            }
        }
    }

    /// Takes a batch in once its range is awake, if this node serves it then.
    async fn arrive(self: Arc<Self>, mut asker: Asker, batch: BatchRequest, class: Class) -> BatchResult {
        // Before anything is woken: nobody works on a range that has none of theirs. Of one that is awake no other thread
        // need be asked.
        if !self.pipeline.holds(asker.range, |span| bounds::within(&batch, asker.tenant, span)) {
            let key = bounds::first_key(&batch).unwrap_or_else(|| TenantId(asker.tenant).span().start);
            match self.pipeline.covering(key).await? {
                Some(found) if asker.range == 0 || asker.range == found => asker.range = found,
                Some(found) => {
                    self.wake_unreported(found);
                    return Err(self.keys_not_here(asker));
                }
                None => return Err(self.keys_not_here(asker)),
            }
        }
        if batch.header.any_replica && matches!(class, Class::Read) {
            return self.read_here(asker, batch).await;
        }
        self.ready(asker.range).await?;
        if !self.pipeline.serves(asker.range, |span| bounds::within(&batch, asker.tenant, span)) {
            self.pipeline.lease(asker.range)?;
            return Err(self.keys_not_here(asker));
        }
        match self.take(asker, batch, class) {
            Answer::Ready(result) => result,
            Answer::Later(answer) | Answer::Heavy(answer) | Answer::LargeRead(answer) => answer.await,
        }
    }

    /// Wakes a range whose keys somebody looked for in another, in the background. The directory may not know yet that it
    /// has come by them: whoever absorbed the other may have ended before it said so, and a range that sleeps says
    /// nothing. At most [`MAX_WAKING`] are woken at a time; who asks in vain asks again.
    fn wake_unreported(self: &Arc<Self>, range: RangeId) {
        let Ok(turn) = Arc::clone(&self.waking).try_acquire_owned() else { return };
        let node = Arc::clone(self);
        tokio::spawn(async move {
            let _turn = turn;
            // If it comes to nothing, the next who asks tries again.
            let _ = node.ready(range).await;
        });
    }

    /// The error for a range that has none of the keys asked for, or not all. If its lease is held here that is because it
    /// was split, which nobody need ask the directory to be sure of.
    pub(crate) fn keys_not_here(&self, asker: Asker) -> KvError {
        let mut error = KvError::range_not_found(asker.range);
        let own = |span: &Span| TenantId(asker.tenant).span().contains(&span.start);
        if self.pipeline.lease(asker.range).is_ok() {
            error.span = self.pipeline.span(asker.range).filter(own);
        }
        error
    }

    /// Waits until this node serves a range.
    ///
    /// # Errors
    /// If it does not come to that; the error says where to go, if that is known.
    pub(crate) async fn ready(&self, range: RangeId) -> Result<(), KvError> {
        let absent = match self.pipeline.ready(range, self.limits.election_patience).await {
            Ok(()) => return Ok(()),
            Err(absent) => absent,
        };
        Err(match absent {
            Absent::NoReplica => KvError::range_not_found(range),
            Absent::Elsewhere(leader) => {
                KvError::not_leaseholder(leader.and_then(|leader| self.address_of(leader)))
            }
            Absent::Damaged(error) => error.into(),
            Absent::Closing => KvError::new(KvErrorKind::Unavailable, "the KV node is shutting down"),
        })
    }

    /// Keeps the replica of a range from serving, until it is gone.
    pub(crate) fn distrust(&self, range: RangeId) {
        self.distrusted.lock().insert(range);
    }

    /// Whether the replica of a range must not serve.
    pub(crate) fn is_distrusted(&self, range: RangeId) -> bool {
        self.distrusted.lock().contains(&range)
    }

    /// Who serves a range, as far as this node knows.
    pub fn standing(&self, range: RangeId) -> Standing {
        self.pipeline.standing(range)
    }

    /// How many requests of a connection wait for locks.
    pub fn lock_waits(&self, tenant: TenantId, connection: ConnectionId) -> usize {
        self.shard(tenant.0).lock_waits(connection)
    }

    fn list(&self, asker: Asker, batch: &BatchRequest) -> BatchResult {
        match batch.requests.first().and_then(|request| request.kind.as_ref()) {
            Some(RequestKind::ListContention(request)) => self.list_contention(asker, request),
            _ => Err(KvError::new(KvErrorKind::Internal, "not a request for a listing")),
        }
    }

    /// Reads at once what is small, and starts over elsewhere with what turns out not to be, or has to wait.
    fn take_read(self: &Arc<Self>, asker: Asker, batch: BatchRequest) -> Answer {
        let bound = self.limits.inline_scan_bytes.min(self.limits.max_scan_bytes);
        let ahead = self.pipeline.is_ahead(asker.range);
        // What is kept of columns is no small read.
        if self.begins_with_kept_columns(&batch) {
            let node = Arc::clone(self);
            return Answer::LargeRead(Box::pin(async move { node.read_waiting(asker, &batch).await }));
        }
        match self.read(asker, &batch, bound, None) {
            Ok((response, false)) if ahead || self.pipeline.is_ahead(asker.range) => {
                let node = Arc::clone(self);
                Answer::Later(Box::pin(async move {
                    let upto = response.read_timestamp.unwrap_or(Timestamp::MAX);
                    node.wait_for_what_was_read(asker, &batch.requests, upto).await?;
                    Ok(response)
                }))
            }
            Ok((response, false)) => Answer::Ready(Ok(response)),
            Ok((_, true)) => {
                let node = Arc::clone(self);
                Answer::LargeRead(Box::pin(async move { node.read_waiting(asker, &batch).await }))
            }
            Err(Unread::Failed(error)) => Answer::Ready(Err(error)),
            Err(_) => {
                let node = Arc::clone(self);
                Answer::Later(Box::pin(async move { node.read_waiting(asker, &batch).await }))
            }
        }
    }

    /// Whether the first request of a batch is a scan whose first columns are kept.
    fn begins_with_kept_columns(&self, batch: &BatchRequest) -> bool {
        match batch.requests.first().and_then(|request| request.kind.as_ref()) {
            Some(RequestKind::Scan(scan)) if scan.program.is_some() => {
                self.columns.end_at(&scan.start).is_some()
            }
            _ => false,
        }
    }

    /// Aborts the open transactions of a connection that is gone.
    pub fn close_connection(&self, tenant: TenantId, connection: ConnectionId) {
        let mut jobs = Vec::new();
        {
            let mut shard = self.shard(tenant.0);
            for part in shard.close_connection(connection) {
                let entry = shard.end(part);
                jobs.extend(entry.and_then(|entry| abort_job(part, &entry)));
            }
        }
        jobs.into_iter().for_each(|job| self.resolve_later(job));
    }

    pub(crate) fn resolve_later(&self, job: ResolveJob) {
        if self.resolver.send(job).is_err() {
            tracing::debug!("the resolver has ended; intents are settled at the next start");
        }
    }

    fn abort(self: &Arc<Self>, asker: Asker, batch: BatchRequest) -> Answer {
        let part = match part_key(asker, &batch.header) {
            Ok(part) => part,
            Err(error) => return Answer::Ready(Err(error)),
        };
        if aborts_for_good(&batch) {
            return Answer::Later(Box::pin(Arc::clone(self).abort_for_good(part)));
        }
        let hop = batch.header.txn.as_ref().map_or(0, |meta| meta.hop);
        let job = {
            let mut shard = self.shard(asker.tenant);
            if let Err(error) = shard.may_abort(part, asker.connection, hop) {
                return Answer::Ready(Err(error));
            }
            match shard.txn(part).map(|entry| (entry.status, entry.connection)) {
                Some((TxnStatus::Committing, _)) => {
                    return Answer::Ready(Err(aborted("the transaction is ending")));
                }
                Some((TxnStatus::Preparing, connection)) => {
                    shard.txn_mut(part, connection).doomed = true;
                    return Answer::Ready(Err(aborted(
                        "the transaction is being prepared, and then aborted",
                    )));
                }
                // Its coordinator knows that it is not committed, whatever connection it speaks on.
                Some((TxnStatus::Prepared(_), _)) => {
                    return Answer::Later(Box::pin(Arc::clone(self).abort_prepared(part)));
                }
                _ => shard.end(part).and_then(|entry| abort_job(part, &entry)),
            }
        };
        job.into_iter().for_each(|job| self.resolve_later(job));
        Answer::Ready(Ok(BatchResponse {
            responses: vec![Response::default(); batch.requests.len()],
            ..BatchResponse::default()
        }))
    }

    /// Checks that the transaction of a request may go on, if there is one, and returns it if it has
    /// intents.
    pub(crate) fn check_txn<'a>(
        &self,
        asker: Asker,
        header: &'a Header,
    ) -> Result<Option<(TxnId, &'a Header)>, KvError> {
        let Some(meta) = &header.txn else { return Ok(None) };
        let part = part_key(asker, header)?;
        self.shard(asker.tenant).check(part, asker.connection, meta.hop, meta.has_intents)?;
        Ok(meta.has_intents.then_some((part.txn.id, header)))
    }

    /// The intents a reader of a range takes into account.
    pub(crate) fn intent_view(&self, asker: Asker, own: Option<(TxnId, &Header)>) -> IntentView {
        let mut view = IntentView::default();
        if self.unresolved.any() {
            view = self.shard(asker.tenant).intent_view(asker.range);
            if self.pipeline.environment().planted(Bug::PreparedUnseen) {
                view.prepared.clear();
            }
        }
        view.own = own.map(|(id, header)| {
            (id, header.txn.as_ref().map(|meta| meta.ignored.clone()).unwrap_or_default())
        });
        view
    }

    /// Spans the server noted for the transaction of a request.
    pub(crate) fn tracked_spans(&self, asker: Asker, header: &Header) -> Vec<Span> {
        let Ok(part) = part_key(asker, header) else { return Vec::new() };
        self.shard(asker.tenant).txn(part).map(|entry| entry.tracked.clone()).unwrap_or_default()
    }

    async fn execute(self: Arc<Self>, asker: Asker, batch: BatchRequest, kind: WriteKind) -> BatchResult {
        let batch = Arc::new(batch);
        let ahead = self.pipeline.is_ahead(asker.range);
        let stranger = self.stranger_that_ends(asker, &batch, kind);
        let evaluate = |manner| Arc::clone(&self).evaluate(asker, Arc::clone(&batch), kind, manner);
        // A large batch has a task of its own already.
        let result = match is_large(&batch) {
            true => evaluate(Manner::Whole).await.map_err(KvError::from),
            false => briefly_or_elsewhere(evaluate).await,
        };
        if let (Some(part), Err(_)) = (stranger, &result)
            && let Some(span) = self.pipeline.span(part.range)
        {
            self.shard(asker.tenant).let_go(part, asker.connection, &span);
        }
        if !ahead && !self.pipeline.is_ahead(asker.range) {
            return result;
        }
        // Commits were waited out. What else says something of what was committed waits here.
        let upto = match &result {
            Ok(response) if matches!(kind, WriteKind::Locking | WriteKind::Lone) => response.read_timestamp,
            Err(error) if error.kind() == KvErrorKind::ConditionFailed => {
                Some(self.pipeline.read_timestamp(asker.range).unwrap_or(Timestamp::MAX))
            }
            _ => None,
        };
        if let Some(upto) = upto {
            self.wait_for_what_was_read(asker, &batch.requests, upto).await?;
        }
        result
    }

    /// The part of a transaction that a batch ends and that is not known here. If that fails nothing must be kept of it:
    /// its coordinator may not come to know that this node was asked.
    fn stranger_that_ends(&self, asker: Asker, batch: &BatchRequest, kind: WriteKind) -> Option<PartKey> {
        if !matches!(kind, WriteKind::Commit | WriteKind::Prepare) {
            return None;
        }
        let part = part_key(asker, &batch.header).ok()?;
        self.shard(asker.tenant).txn(part).is_none().then_some(part)
    }

    async fn evaluate(
        self: Arc<Self>,
        asker: Asker,
        batch: Arc<BatchRequest>,
        kind: WriteKind,
        manner: Manner,
    ) -> Result<BatchResponse, Unevaluated> {
        let Asker { tenant, range, .. } = asker;
        let mut lone = None;
        let part = match &batch.header.txn {
            Some(_) if kind.is_transactional() => part_key(asker, &batch.header)?,
            _ => {
                let txn = TxnKey { tenant, id: self.pipeline.environment().random() };
                let part = PartKey { range, txn };
                lone = Some(LoneTxn { node: Arc::clone(&self), part });
                part
            }
        };
        // What is to be latched besides what the requests name.
        let mut latched: Vec<Bytes> = Vec::new();
        loop {
            // What is read from here on counts under this lease only; `submit` insists on it.
            let lease = self.pipeline.lease(range)?;
            if let Some(at) = wanted_timestamp(&batch) {
                self.pipeline.raise_above(range, at).await?;
            }
            let fits = |span: &Span| tenant == CLUSTER || bounds::within(&batch, tenant, span);
            if !self.pipeline.holds(range, fits) {
                return Err(self.keys_not_here(asker).into());
            }
            let clock = if kind == WriteKind::Prepare { Some(self.pipeline.clock(range)?) } else { None };
            let (mut spans, generation) = self.latch_spans(asker, part, &batch, kind)?;
            spans.extend(latched.iter().map(|key| (Span::point(key.clone()), Access::Read)));
            let latches = self.latch(tenant, spans).await;
            self.pipeline.environment().interleave().await;
            if kind == WriteKind::Prepare
                && let Some(response) = self.prepared_before(asker, part, &batch)?
            {
                let waits = self.pipeline.is_ahead(range);
                let wall_ns = if waits { self.wall_ns_to_wait_for() } else { 0 };
                return Ok(BatchResponse { clock, wall_ns, ..response });
            }
            check_lease(&batch.header, sequence_of(lease))?;
            if matches!(kind, WriteKind::Commit | WriteKind::Prepare) {
                self.check_locks(part, &batch.header)?;
            }
            let room = match kind {
                WriteKind::Locking => None,
                _ => Some(self.pipeline.reserve(batch.encoded_len() * 2).await?),
            };
            let evaluate = |reader: &dyn Reader| {
                Evaluation::new(&self, reader, asker, part, &batch, &latched, kind)
                    .and_then(|evaluation| evaluation.run(generation))
            };
            let Some(evaluated) = self.evaluated(manner, evaluate).await else {
                return Err(Unevaluated::TakesLong);
            };
            let outcome = match evaluated {
                Ok(outcome) => outcome,
                Err(Stop::Failed(error)) => return Err(error.into()),
                Err(Stop::Again) => {
                    drop(latches);
                    tokio::task::yield_now().await;
                    continue;
                }
                Err(Stop::Wait(wait)) => {
                    drop((latches, room));
                    if let Err(error) = wait.granted(batch.header.lock_timeout_ms).await {
                        // If the lease is gone, that is the reason, and nothing was carried out.
                        self.pipeline.lease(range)?;
                        return Err(error.into());
                    }
                    continue;
                }
                Err(Stop::Undecided(txn)) => {
                    drop((latches, room));
                    self.await_decision(asker, txn, &batch.header).await?;
                    continue;
                }
                Err(Stop::Latch(key)) => {
                    latched.push(key);
                    continue;
                }
                Err(Stop::Held(told)) => {
                    drop((latches, room));
                    // Whoever holds them lets go in any case.
                    let _ = told.await;
                    continue;
                }
                Err(Stop::Unclosed(timestamp)) => {
                    drop((latches, room));
                    self.pipeline.close_up_to(range, timestamp).await?;
                    continue;
                }
            };
            return match outcome {
                Outcome::Answer(mut response) => {
                    let lease = sequence_of(lease);
                    response.lease = if kind == WriteKind::Locking { lease } else { 0 };
                    Ok(response)
                }
                Outcome::Submit { effects, mut response, order, first_intents } => {
                    let (sender, receiver) = oneshot::channel();
                    let (late, is_late) = oneshot::channel();
                    let record = effects.record.as_ref().map(|record| record.1.clone());
                    let keeps_record = record.is_some();
                    let ordered = order.is_some();
                    let node = Arc::clone(&self);
                    let registers = record.map(|record| {
                        let node = Arc::clone(&node);
                        let connection = asker.connection;
                        Box::new(move |timestamp| {
                            let record = TxnRecord { timestamp, ..record };
                            let mut shard = node.shard(tenant);
                            match record.as_committed() {
                                Some(committed) => shard.add_committed(range, committed),
                                None => shard.prepared(part, connection, record, node.pipeline.millis()),
                            }
                        }) as crate::command::BeforeVisible
                    });
                    let command = Command {
                        range,
                        effects,
                        change: None,
                        lease,
                        order,
                        before_visible: registers,
                        late: Some(late),
                        done: {
                            let latches = latches.clone_id();
                            let node = Arc::clone(&node);
                            Box::new(move |result| {
                                node.take_back_refused(part, first_intents, &result);
                                match kind {
                                    WriteKind::Commit => node.commit_done(part, &result, keeps_record),
                                    WriteKind::Prepare => node.prepare_done(part, &result),
                                    _ => {}
                                }
                                drop((lone, room));
                                node.unlatch(tenant, latches);
                                let _ = sender.send(result);
                            })
                        },
                    };
                    // What is submitted under a lease is waited out as that says, whatever comes after it.
                    let waits = self.pipeline.is_ahead(range);
                    if let Err(error) = self.pipeline.submit(command) {
                        self.take_back_refused(part, first_intents, &Err(CommandError::Rejected));
                        match kind {
                            WriteKind::Commit => self.commit_done(part, &Err(CommandError::Rejected), false),
                            WriteKind::Prepare => self.prepare_done(part, &Err(CommandError::Rejected)),
                            _ => {}
                        }
                        return Err(error.into());
                    }
                    // From here on `done` gives the latches back.
                    latches.disarm_after_reads();
                    let outcome = tokio::select! {
                        biased;
                        outcome = receiver => outcome,
                        // The same holds for what waits for a majority.
                        Ok(()) = is_late => return Err(waits_for_majority().into()),
                        // The command keeps its latches and its place: it may be applied yet.
                        () = self.pipeline.disk_full_for(self.limits.disk_full_patience) => {
                            return Err(waits_for_space(ordered).into());
                        }
                    };
                    let timestamp = match outcome {
                        Ok(Ok(timestamp)) => timestamp,
                        Ok(Err(error)) => return Err(command_error(error, ordered).into()),
                        Err(_) => return Err(ambiguous().into()),
                    };
                    let lease = sequence_of(lease);
                    response.lease = if kind == WriteKind::Flush { lease } else { 0 };
                    let waits = waits || self.pipeline.is_ahead(range);
                    if waits && kind == WriteKind::Prepare {
                        response.wall_ns = self.wall_ns_to_wait_for();
                    } else if waits && ordered {
                        self.commit_wait(timestamp).await?;
                    }
                    if kind == WriteKind::Prepare {
                        response.prepared_at = Some(timestamp);
                        if self.pipeline.environment().planted(Bug::PushConcealed) {
                            response.prepared_at = wanted_timestamp(&batch);
                        }
                        response.clock = clock;
                    } else if ordered {
                        response.commit_timestamp = Some(timestamp);
                        if !kind.is_transactional() {
                            response.read_timestamp = Some(timestamp);
                        }
                    }
                    Ok(response)
                }
            };
        }
    }

    /// Evaluates something; nothing if it takes longer than its manner has patience for. As a whole, no one else waits for
    /// it who could be served by this thread, and [`MAX_HEAVY`] are under way at most.
    pub(crate) async fn evaluated<T, E>(
        &self,
        manner: Manner,
        evaluate: impl FnOnce(&dyn Reader) -> Result<T, E>,
    ) -> Option<Result<T, E>> {
        if manner == Manner::Brief {
            let patience = Patience::new(&*self.engine, self.limits.inline_reads);
            let result = evaluate(&patience);
            return (result.is_ok() || !patience.ran_out()).then_some(result);
        }
        // The semaphore is never closed.
        let _turn = self.heavy.acquire().await;
        Some(self.pipeline.environment().in_place(|| evaluate(&*self.engine)))
    }

    /// What a batch latches, and the state of the transaction's intents that this rests on.
    fn latch_spans(
        &self,
        asker: Asker,
        part: PartKey,
        batch: &BatchRequest,
        kind: WriteKind,
    ) -> Result<(Vec<(Span, Access)>, u64), KvError> {
        let mut spans = Vec::with_capacity(batch.requests.len() + batch.header.refresh_spans.len());
        let reads_latch = matches!(kind, WriteKind::Lone | WriteKind::Commit | WriteKind::Prepare);
        for request in &batch.requests {
            match &request.kind {
                Some(RequestKind::Get(get)) if reads_latch || get.lock != LockStrength::None as i32 => {
                    spans.push((Span::point(get.key.clone()), Access::Read));
                }
                Some(RequestKind::Scan(scan)) if reads_latch => {
                    spans.push((Span::new(scan.start.clone(), scan.end.clone()), Access::Read));
                }
                Some(RequestKind::Put(put)) => spans.push((Span::point(put.key.clone()), Access::Write)),
                Some(RequestKind::ConditionalPut(put)) => {
                    spans.push((Span::point(put.key.clone()), Access::Write))
                }
                Some(RequestKind::Delete(delete)) => {
                    spans.push((Span::point(delete.key.clone()), Access::Write))
                }
                Some(RequestKind::Increment(increment)) => {
                    spans.push((Span::point(increment.key.clone()), Access::Write));
                }
                Some(RequestKind::DeleteRange(range)) => {
                    spans.push((Span::new(range.start.clone(), range.end.clone()), Access::Write));
                }
                Some(RequestKind::ClearRange(range)) => {
                    spans.push((Span::new(range.start.clone(), range.end.clone()), Access::Write));
                }
                _ => {}
            }
        }
        let mut generation = 0;
        if kind == WriteKind::Prepare {
            spans.push((record_latch(part), Access::Write));
        }
        if matches!(kind, WriteKind::Commit | WriteKind::Prepare) {
            spans.extend(batch.header.refresh_spans.iter().map(|span| (span.clone(), Access::Read)));
            if let Some(entry) = self.shard(asker.tenant).txn(part) {
                generation = entry.intents.generation();
                spans.extend(entry.tracked.iter().map(|span| (span.clone(), Access::Read)));
                spans.extend(entry.intents.covering().into_iter().map(|span| (span, Access::Write)));
            }
        }
        Ok((spans, generation))
    }

    pub(crate) async fn latch(self: &Arc<Self>, tenant: u64, spans: Vec<(Span, Access)>) -> LatchGuard {
        let mut woken = None;
        let (id, ready) = self.shard(tenant).latches.acquire(spans, || {
            let (sender, receiver) = oneshot::channel();
            woken = Some(receiver);
            sender
        });
        let guard = LatchGuard::new(Arc::clone(self), tenant, id);
        if let (false, Some(woken)) = (ready, woken) {
            // The sender goes only when the latches do, and the guard holds them.
            let _ = woken.await;
        }
        guard
    }

    pub(crate) fn unlatch(&self, tenant: u64, id: LatchId) {
        let woken = self.shard(tenant).latches.release(id);
        for waker in woken {
            let _ = waker.send(());
        }
    }

    fn commit_done(&self, part: PartKey, result: &Result<Timestamp, CommandError>, record: bool) {
        let job = {
            let mut shard = self.shard(part.txn.tenant);
            match result {
                Ok(timestamp) => {
                    let entry = shard.end(part);
                    entry.and_then(|entry| {
                        if entry.intents.is_empty() {
                            None
                        } else if record {
                            let known = shard.committed(part.range);
                            let committed = known
                                .into_iter()
                                .find(|txn| txn.id == part.txn.id && txn.timestamp == *timestamp);
                            let spans = entry.intents.covering();
                            committed.map(|committed| ResolveJob::committed(part, committed, spans))
                        } else {
                            shard.remove_intent_txn(part);
                            None
                        }
                    })
                }
                Err(CommandError::Rejected | CommandError::NoSpace) => self.reopen(&mut shard, part),
                Err(_) => {
                    // The outcome is open until there is another lease; its intents must stay.
                    shard.end(part);
                    None
                }
            }
        };
        job.into_iter().for_each(|job| self.resolve_later(job));
    }

    /// What a command should have written was not, and if those were the first intents of the part, it has none.
    fn take_back_refused(
        &self,
        part: PartKey,
        first_intents: Option<u64>,
        result: &Result<Timestamp, CommandError>,
    ) {
        if let (Some(generation), Err(CommandError::Rejected | CommandError::NoSpace)) =
            (first_intents, result)
        {
            self.shard(part.txn.tenant).take_back_intents(part, generation);
        }
    }

    /// Nothing was written: the part is as it was before its commit, if anybody is there to go on.
    pub(crate) fn reopen(&self, shard: &mut Shard, part: PartKey) -> Option<ResolveJob> {
        let (connection, doomed) = shard.txn(part).map(|entry| (entry.connection, entry.doomed))?;
        if shard.has_connection(connection) && !doomed {
            shard.txn_mut(part, connection).status = TxnStatus::Pending;
            return None;
        }
        shard.end(part).and_then(|entry| abort_job(part, &entry))
    }

    /// Called when no intent of a part is left.
    pub(crate) fn resolved(&self, part: PartKey) {
        self.shard(part.txn.tenant).remove_intent_txn(part);
    }
}

/// The engine as everybody writes to it from now on, and the columns that are kept of what it holds.
fn watched(
    engine: Arc<dyn Engine>,
    limits: &Limits,
    environment: &Environment,
) -> (Arc<dyn Engine>, Arc<ColumnCache>) {
    let columns = Arc::new(ColumnCache::new(limits.column_cache));
    if environment.planted(Bug::WrittenColumnsKept) {
        return (engine, columns);
    }
    (Arc::new(Watched::new(engine, Arc::clone(&columns))), columns)
}

/// Opens the replicas of a node at a time of its driver's clock.
fn opener(
    engine: &Arc<dyn Engine>,
    node_id: NodeId,
    environment: &Environment,
) -> impl FnOnce(Millis) -> StorageResult<Store<Sound>> + use<> {
    let engine = Arc::clone(engine);
    let (epoch, seed) = environment.random_pair();
    move |now| {
        let config = StoreConfig::new(node_id, epoch, seed);
        Store::open(engine, config, Sound, now).map_err(|error| match error {
            ReplicationError::Storage(error) => error,
            other => StorageError::Corruption(other.to_string()),
        })
    }
}

/// For a node that is alone.
struct Nobody;

impl Transport for Nobody {
    fn send(&self, _: Envelope) {}
}

/// What the node does when its replicas tell it something.
struct Listener(std::sync::Weak<Node>);

impl Hook for Listener {
    fn forget(&self, range: RangeId, span: &Span) {
        let Some(node) = self.0.upgrade() else { return };
        let tenant = TenantId::of_key(&span.start).map_or(0, |tenant| tenant.0);
        node.shard(tenant).forget(range, span);
    }

    fn adopt(&self, range: RangeId, span: &Span) -> StorageResult<()> {
        self.0.upgrade().map_or(Ok(()), |node| node.adopt(range, span))
    }

    fn is_used(&self, range: RangeId, span: &Span) -> bool {
        let Some(node) = self.0.upgrade() else { return false };
        let tenant = TenantId::of_key(&span.start).map_or(0, |tenant| tenant.0);
        node.shard(tenant).is_used(range)
    }

    fn can_split(&self, range: RangeId, span: &Span) -> bool {
        let Some(node) = self.0.upgrade() else { return false };
        let tenant = TenantId::of_key(&span.start).map_or(0, |tenant| tenant.0);
        node.shard(tenant).is_divisible(range) || node.pipeline.environment().planted(Bug::SplitWhilePrepared)
    }

    fn add_to_split(&self, span: &Span, key: &Bytes, batch: &mut WriteBatch) -> StorageResult<()> {
        let Some(node) = self.0.upgrade() else { return Ok(()) };
        // Both must know what was aborted; nothing else is on record while a range can be split.
        for (_, record) in txn_record::within(&*node.engine, &span.start, &span.end)? {
            txn_record::put(batch, key, &record);
        }
        Ok(())
    }

    fn add_to_absorbed(
        &self,
        start: &Bytes,
        records: &[TxnRecord],
        batch: &mut WriteBatch,
    ) -> StorageResult<()> {
        let Some(node) = self.0.upgrade() else { return Ok(()) };
        for record in records {
            // Where one says that the transaction committed, another can only say that it never was prepared there.
            let own = txn_record::get(&*node.engine, start, &record.id)?;
            if own.is_none_or(|own| own.status != RecordStatus::Committed) {
                txn_record::put(batch, start, record);
            }
        }
        Ok(())
    }

    fn split(&self, left: RangeId, right: &Span) {
        let Some(node) = self.0.upgrade() else { return };
        let tenant = TenantId::of_key(&right.start).map_or(0, |tenant| tenant.0);
        node.shard(tenant).split(left, right);
    }

    fn removed(&self, range: RangeId) {
        let Some(node) = self.0.upgrade() else { return };
        node.distrusted.lock().remove(&range);
        node.shards.iter().for_each(|shard| shard.lock().events.forget(range));
    }

    fn described(&self, range: RangeId) {
        let Some(node) = self.0.upgrade() else { return };
        if let Some(cluster) = node.cluster() {
            cluster.described(range);
        }
    }
}

/// Fails for a transaction whose locks and intents were of another lease.
pub(crate) fn check_lease(header: &Header, lease: u64) -> Result<(), KvError> {
    match &header.txn {
        Some(txn) if txn.lease != 0 && txn.lease != lease => {
            Err(aborted("the lease of the range moved, and the transaction's locks are gone"))
        }
        _ => Ok(()),
    }
}

/// What is left to do for an aborted transaction.
pub(crate) fn abort_job(part: PartKey, entry: &TxnEntry) -> Option<ResolveJob> {
    let record = entry.record.is_some();
    (record || !entry.intents.is_empty()).then(|| ResolveJob::aborted(part, entry.intents.covering(), record))
}

/// What is latched while the record of a transaction is looked at and written: no key of anybody's.
pub(crate) fn record_latch(part: PartKey) -> Span {
    Span::point([&[0xff][..], &part.range.to_be_bytes(), &part.txn.id].concat().into())
}

fn command_error(error: CommandError, ordered: bool) -> KvError {
    match error {
        CommandError::Storage(_) if ordered => ambiguous(),
        _ => error.into(),
    }
}

fn waits_for_majority() -> KvError {
    KvError::new(
        KvErrorKind::Ambiguous,
        "the KV node lost contact with the others while the transaction was committed; it may commit yet",
    )
}

fn waits_for_space(ordered: bool) -> KvError {
    if ordered {
        let message = "the disk of the KV node is full; the transaction commits when there is space, if ever";
        return KvError::new(KvErrorKind::Ambiguous, message);
    }
    StorageError::DiskFull("writes wait for space".to_owned()).into()
}

fn ambiguous() -> KvError {
    KvError::new(KvErrorKind::Ambiguous, "the disk failed while the transaction was committed")
}

fn refused(caller: Caller, batch: &BatchRequest, error: &KvError) {
    let first_bad = batch.requests.iter().find(|request| {
        let alone = BatchRequest { header: Header::default(), requests: vec![(*request).clone()] };
        authorize(caller, &alone).is_err()
    });
    let kind = kind_index(first_bad.or(batch.requests.first()).and_then(|request| request.kind.as_ref()));
    if let Some(counter) = metrics().refused.get(kind) {
        counter.inc();
    }
    tracing::warn!(?caller, request = crate::metrics::KINDS.get(kind), "request refused: {}", error.message);
}

/// The part of the transaction of a request in the range it is for.
pub(crate) fn part_key(asker: Asker, header: &Header) -> Result<PartKey, KvError> {
    let id = header.txn.as_ref().and_then(|meta| TxnId::try_from(&meta.id[..]).ok());
    match id {
        Some(id) => Ok(PartKey { range: asker.range, txn: TxnKey { tenant: asker.tenant, id } }),
        None => Err(KvError::new(KvErrorKind::InvalidRequest, "a transaction id has 16 bytes")),
    }
}
