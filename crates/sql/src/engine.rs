//! [`Engine`]: what the sessions of one SQL node share.
//!
//! The catalog snapshot, plans, compiled table layouts, table and advisory locks, LISTEN/NOTIFY and
//! the list of sessions. Nothing here is durable; all of it can be built again from the keyspace.

use crate::catalog::{CatalogSnapshot, Garbage, store};
use crate::ddl::online::{self, BatchPace, Jobs};
use crate::ddl::placement;
use crate::exec::{MemoryBudget, NodeBudget, kv_error};
use crate::instances::{self, Instances};
use crate::session::activity::Registry;
use crate::session::locks::{LockKey, LockManager};
use crate::session::notify::NotifyHub;
use crate::session::plan_cache::PlanCache;
use crate::session::statement_statistics::StatementStatistics;
use crate::statistics::auto;
use crate::table::CodecCache;
use kv_client::{CommitDeadlines, KvClient, LockStrength, Timestamp, TxnOptions};
use parking_lot::{Mutex, RwLock};
use sql_types::{Oid, SqlError, SqlResult, SqlState};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// OIDs taken from the counter at a time; what is left of them is lost when the node ends.
const OID_BATCH: i64 = 16;

/// Between two looks whether an index is still being built at another SQL node.
const JOB_POLL: Duration = Duration::from_millis(20);

/// The tenant a node serves.
#[derive(Clone)]
pub struct TenantInfo {
    /// Its id.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// The role that exists from the beginning: a superuser.
    pub owner_role: String,
    /// Its password, as a SCRAM-SHA-256 verifier in the form of `pg_authid`.
    pub owner_verifier: String,
}

impl std::fmt::Debug for TenantInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TenantInfo").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

/// What logging in as a role needs.
#[derive(Clone)]
pub struct RoleLogin {
    /// SCRAM-SHA-256 verifier; `None` if the role has no password.
    pub verifier: Option<String>,
    /// LOGIN.
    pub can_login: bool,
    /// SUPERUSER.
    pub superuser: bool,
    /// CONNECTION LIMIT, -1 for none.
    pub connection_limit: i32,
}

/// What is known of the catalog's past, as seen from one catalog.
#[derive(Default)]
struct PastCatalogs {
    /// [`CatalogSnapshot::id`] of the catalog of the present.
    now: u64,
    /// It has been the catalog since this time at least.
    since: Option<Timestamp>,
    /// The catalog of a time before, the last one read.
    earlier: Option<Arc<CatalogSnapshot>>,
}

/// What the sessions of a node share.
pub struct Engine {
    /// The way to the tenant's keys; nothing is committed there without a lease.
    pub(crate) kv: Arc<KvClient>,
    /// The SQL nodes of the tenant, of which the engine is one.
    pub(crate) instances: Instances,
    tenant: TenantInfo,
    catalog: RwLock<Option<Arc<CatalogSnapshot>>>,
    /// What is known of the catalog's past.
    past: Mutex<PastCatalogs>,
    loading: tokio::sync::Mutex<()>,
    /// Whether the catalog has been read: what temporary objects there are is this process's own since.
    has_loaded: AtomicBool,
    /// What earlier processes left behind, to be cleared when no other serves the tenant.
    left_behind: Mutex<Vec<Garbage>>,
    oids: Mutex<Range<u64>>,
    pub(crate) plans: PlanCache,
    pub(crate) statement_statistics: StatementStatistics,
    pub(crate) codecs: CodecCache,
    pub(crate) locks: Arc<LockManager>,
    /// Changes of schemas that go on in steps.
    pub(crate) online: Jobs,
    /// The engine itself, for what goes on in the background.
    me: Weak<Engine>,
    pub(crate) notify: NotifyHub,
    pub(crate) sessions: Registry,
    /// The last values of sequences that this node knows of, by storage number.
    pub(crate) sequence_values: Mutex<std::collections::HashMap<u64, i64>>,
    /// Tables of which much has changed.
    pub(crate) auto_analyze: Mutex<auto::Queue>,
    /// When the engine was opened, in microseconds since 2000-01-01 UTC.
    pub(crate) started: i64,
    opened: Instant,
    /// The memory of all statements.
    memory: Arc<NodeBudget>,
    next_session: AtomicU64,
    analytic_parts: AtomicU64,
    partial_aggregates: AtomicU64,
}

impl Engine {
    /// Opens the tenant's database. The catalog is read when it is first needed.
    ///
    /// # Errors
    /// None today.
    pub async fn open(kv: Arc<KvClient>, tenant: TenantInfo) -> SqlResult<Arc<Engine>> {
        Self::open_within(kv, tenant, NodeBudget::new(NodeBudget::DEFAULT_BYTES, None)).await
    }

    /// The same; its statements use memory within a budget.
    ///
    /// # Errors
    /// None today.
    pub async fn open_within(
        kv: Arc<KvClient>,
        tenant: TenantInfo,
        memory: Arc<NodeBudget>,
    ) -> SqlResult<Arc<Engine>> {
        Self::open_leased(kv, tenant, memory, instances::LEASE).await
    }

    /// The same, with leases of another length: of more than a second.
    ///
    /// # Errors
    /// None today.
    pub async fn open_leased(
        kv: Arc<KvClient>,
        tenant: TenantInfo,
        memory: Arc<NodeBudget>,
        lease: Duration,
    ) -> SqlResult<Arc<Engine>> {
        let deadlines = Arc::new(CommitDeadlines::default());
        let instances = Instances::new(&kv, deadlines.clone(), lease);
        let kv = Arc::new(kv.with_deadlines(deadlines));
        Ok(Arc::new_cyclic(|me| Engine {
            kv,
            instances,
            left_behind: Mutex::default(),
            tenant,
            catalog: RwLock::new(None),
            past: Mutex::default(),
            loading: tokio::sync::Mutex::new(()),
            has_loaded: AtomicBool::new(false),
            oids: Mutex::new(0..0),
            plans: PlanCache::default(),
            statement_statistics: StatementStatistics::default(),
            codecs: CodecCache::new(),
            locks: Arc::default(),
            online: Jobs::default(),
            me: me.clone(),
            notify: NotifyHub::default(),
            sessions: Registry::default(),
            sequence_values: Mutex::default(),
            auto_analyze: Mutex::default(),
            started: crate::session::view::now_micros(),
            opened: Instant::now(),
            memory,
            next_session: AtomicU64::new(1),
            analytic_parts: AtomicU64::new(0),
            partial_aggregates: AtomicU64::new(0),
        }))
    }

    /// The memory of a statement that may use so many bytes.
    pub(crate) fn statement_memory(&self, bytes: usize) -> MemoryBudget {
        MemoryBudget::within(bytes, &self.memory)
    }

    /// How many batches the backfills of indexes may do.
    pub fn backfill_pace(&self) -> &BatchPace {
        &self.online.pace
    }

    /// The tenant.
    pub fn tenant(&self) -> &TenantInfo {
        &self.tenant
    }

    /// The way to the tenant's keys.
    pub fn kv(&self) -> &Arc<KvClient> {
        &self.kv
    }

    /// What logging in as a role needs; `None` if there is no such role.
    ///
    /// # Errors
    /// What keeps the catalog from being read.
    pub async fn role_login(&self, user: &str) -> SqlResult<Option<RoleLogin>> {
        if self.has_loaded.load(Ordering::Relaxed) {
            // The catalog that is known is that of a node with a lease. What is read now is new in any case.
            self.instances.leased(self).await?;
        }
        let catalog = self.catalog().await?;
        Ok(catalog.role(user).map(|role| RoleLogin {
            verifier: role.verifier.clone(),
            can_login: role.login,
            superuser: role.superuser,
            connection_limit: role.connection_limit,
        }))
    }

    /// Whether there is such a database.
    ///
    /// # Errors
    /// What keeps the catalog from being read.
    pub async fn database_exists(&self, name: &str) -> SqlResult<bool> {
        Ok(self.catalog().await?.database(name).is_some())
    }

    /// The catalog if it has been read.
    pub(crate) fn cached_catalog(&self) -> Option<Arc<CatalogSnapshot>> {
        self.catalog.read().clone()
    }

    /// The catalog, read now if need be.
    pub(crate) async fn catalog(self: &Engine) -> SqlResult<Arc<CatalogSnapshot>> {
        if let Some(catalog) = self.cached_catalog() {
            return Ok(catalog);
        }
        let _one_at_a_time = self.loading.lock().await;
        if let Some(catalog) = self.cached_catalog() {
            return Ok(catalog);
        }
        let catalog = self.load().await?;
        self.instances.keep(self);
        Ok(catalog)
    }

    /// Reads the catalog and publishes it. To be called by one at a time.
    async fn load(&self) -> SqlResult<Arc<CatalogSnapshot>> {
        let catalog = Arc::new(store::load(&self.kv, &self.tenant).await?);
        if !self.has_loaded.swap(true, Ordering::Relaxed) {
            let left = catalog.left_behind.iter().chain(&catalog.garbage).copied();
            *self.left_behind.lock() = left.collect();
        }
        self.publish(catalog.clone());
        Ok(catalog)
    }

    /// Reads the catalog if the one that is known is older than a version.
    ///
    /// # Errors
    /// What keeps it from being read.
    pub(crate) async fn refresh_catalog(&self, version: u64) -> SqlResult<()> {
        let is_known = || self.cached_catalog().is_some_and(|known| known.version() >= version);
        if is_known() {
            return Ok(());
        }
        let _one_at_a_time = self.loading.lock().await;
        if !is_known() {
            self.load().await?;
        }
        Ok(())
    }

    /// Clears what earlier processes have left behind, in the background. To be called when no other serves the tenant.
    pub(crate) fn clear_left_behind(&self) {
        self.clear_storage(std::mem::take(&mut *self.left_behind.lock()));
    }

    /// Takes up changes in steps that are none of the live instances'.
    pub(crate) fn take_up_jobs(&self, live: &[u64]) {
        if let (Some(engine), Some(catalog)) = (self.me.upgrade(), self.cached_catalog()) {
            online::resume(&engine, &catalog, live);
        }
    }

    /// Waits until no index of a table is built or dropped in steps, as far as is known here.
    ///
    /// # Errors
    /// 55P03 if that takes until a moment.
    pub(crate) async fn end_of_jobs(&self, key: LockKey, ends: tokio::time::Instant) -> SqlResult<()> {
        let LockKey::Table(table) = key else { return Ok(()) };
        let is_busy = || {
            self.online.is_busy(table)
                || self.cached_catalog().is_some_and(|now| now.jobs.iter().any(|job| job.table == table))
        };
        while is_busy() {
            if tokio::time::Instant::now() >= ends {
                let message = "canceling statement due to lock timeout";
                return Err(SqlError::new(SqlState::LOCK_NOT_AVAILABLE, message));
            }
            self.instances.leased(self).await?;
            tokio::time::sleep(JOB_POLL).await;
        }
        Ok(())
    }

    /// Has the other SQL nodes know the catalog that was published.
    pub(crate) async fn announce(&self) {
        let Some(engine) = self.me.upgrade() else { return };
        match self.instances.standing(self).await {
            Ok(standing) if standing.alone => {}
            Ok(_) => self.instances.announce(&engine, Vec::new()).await,
            Err(error) => tracing::warn!(%error, "other SQL nodes may learn late of a schema change"),
        }
    }

    /// The same, so that the other SQL nodes know of this one.
    ///
    /// # Errors
    /// None today.
    pub(crate) async fn meet_others(&self) -> SqlResult<()> {
        self.announce().await;
        Ok(())
    }

    /// Waits, at the other SQL nodes, for those who hold a lock on a job's table that conflicts with a mode.
    ///
    /// # Errors
    /// 40P01, 55P03; 40001 if the lease has ended; what the KV nodes answer.
    pub(crate) async fn drain_elsewhere(&self, job: &online::Job, mode: u8) -> SqlResult<()> {
        let Some(engine) = self.me.upgrade() else { return Ok(()) };
        self.instances.drain_elsewhere(&engine, job.owner, (job.table, mode), job.lock_timeout).await
    }

    /// The engine itself, for what goes on in the background.
    pub(crate) fn me(&self) -> Weak<Engine> {
        self.me.clone()
    }

    /// Ends the engine's lease, so that other SQL nodes need not wait for its end. Statements that come later begin
    /// another.
    pub async fn retire(&self) {
        self.instances.retire(self).await;
    }

    /// The catalog as it was at a time, for a transaction with these options that reads there
    /// ([`CatalogSnapshot::seen_from`]). Asks nobody where the catalog of the present is known to be that old.
    ///
    /// # Errors
    /// What keeps it from being read, as [`kv_error`] has it.
    pub(crate) async fn catalog_at(
        &self,
        time: Timestamp,
        options: TxnOptions,
    ) -> SqlResult<Arc<CatalogSnapshot>> {
        let now = self.catalog().await?;
        {
            let mut past = self.past.lock();
            if past.now != now.id() {
                *past = PastCatalogs { now: now.id(), ..PastCatalogs::default() };
            }
            if past.since.is_some_and(|since| since <= time) {
                return Ok(now);
            }
        }
        let txn = self.kv.begin(options);
        let version = txn.get(&store::version_key(), LockStrength::None).await.map_err(kv_error)?;
        let version = store::decode_version(version.as_deref())?;
        if version == now.version() {
            let mut past = self.past.lock();
            if past.now == now.id() {
                past.since = Some(past.since.map_or(time, |since| since.min(time)));
            }
            return Ok(now);
        }
        let known = {
            let past = self.past.lock();
            past.earlier.clone().filter(|earlier| past.now == now.id() && earlier.version() == version)
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let then = Arc::new(store::read(&txn, &self.tenant).await?.seen_from(&now));
        let mut past = self.past.lock();
        if past.now == now.id() {
            past.earlier = Some(then.clone());
        }
        Ok(then)
    }

    /// Makes what a schema change wrote, here or at another SQL node, the node's catalog, unless a newer one is.
    pub(crate) fn publish(&self, catalog: Arc<CatalogSnapshot>) {
        {
            let mut published = self.catalog.write();
            if published.as_ref().is_some_and(|published| published.version() > catalog.version()) {
                return;
            }
            *published = Some(catalog);
        }
        self.plans.clear();
    }

    /// The catalog as the node knew it last.
    pub(crate) fn known_catalog(&self) -> Option<Arc<CatalogSnapshot>> {
        self.catalog.read().clone()
    }

    /// Tells the KV layer where tables are to be kept, if a schema change may have changed that.
    pub(crate) async fn place_tables(&self, before: Option<Arc<CatalogSnapshot>>, after: &CatalogSnapshot) {
        if !before.is_none_or(|before| placement::matters(&before, after)) {
            return;
        }
        if let Err(error) = placement::tell(&self.kv, after).await {
            tracing::warn!(%error, "tables are not kept yet as they should be; it is tried after the next schema change");
        }
    }

    /// Forgets the catalog, so that it is read again.
    pub(crate) fn forget_catalog(&self) {
        *self.catalog.write() = None;
    }

    /// How long it has been open.
    pub(crate) fn uptime(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Parts of statements that the analytical engine has run since the engine was opened; what it gave up is not
    /// among them.
    pub fn analytic_parts(&self) -> u64 {
        self.analytic_parts.load(Ordering::Relaxed)
    }

    /// The analytical engine ran a part of a statement.
    pub(crate) fn count_analytic_part(&self) {
        self.analytic_parts.fetch_add(1, Ordering::Relaxed);
    }

    /// Aggregates for which KV nodes have aggregated since the engine was opened.
    pub fn partial_aggregates(&self) -> u64 {
        self.partial_aggregates.load(Ordering::Relaxed)
    }

    /// KV nodes aggregated for a part of a statement.
    pub(crate) fn count_partial_aggregate(&self) {
        self.partial_aggregates.fetch_add(1, Ordering::Relaxed);
    }

    /// A number for a new session.
    pub(crate) fn next_session(&self) -> u64 {
        self.next_session.fetch_add(1, Ordering::Relaxed)
    }

    /// A new OID.
    pub(crate) async fn new_oid(&self) -> SqlResult<Oid> {
        if let Some(oid) = self.oids.lock().next() {
            return as_oid(oid);
        }
        let end = self.kv.increment(&store::oid_counter_key(), OID_BATCH).await.map_err(kv_error)?;
        let end = crate::catalog::descriptor::FIRST_USER_OID as u64 + end.max(OID_BATCH) as u64;
        let mut oids = self.oids.lock();
        *oids = end - OID_BATCH as u64..end;
        let oid = oids.next().unwrap_or(end);
        as_oid(oid)
    }

    /// Clears storage that no descriptor refers to any more, in the background.
    pub(crate) fn clear_storage(&self, storages: Vec<Garbage>) {
        if !storages.is_empty() {
            // Needs no lease: nobody will ever write there again.
            tokio::spawn(collect_garbage(self.instances.kv().clone(), storages));
        }
    }
}

fn as_oid(number: u64) -> SqlResult<Oid> {
    Oid::try_from(number)
        .map_err(|_| SqlError::new(SqlState::PROGRAM_LIMIT, "this tenant has used all object identifiers"))
}

/// Clears the contents of storage numbers and then forgets that they were garbage. What fails is done
/// when a node next reads the catalog.
async fn collect_garbage(kv: KvClient, storages: Vec<Garbage>) {
    for garbage in storages {
        if let Err(error) = clear_one(&kv, garbage).await {
            tracing::warn!(storage = garbage.0, %error, "could not clear dropped data; it is done later");
        }
    }
}

async fn clear_one(kv: &KvClient, (storage, index): Garbage) -> kv_api::KvResult<()> {
    let span = if index == 0 {
        crate::table::codec::storage_span(storage)
    } else {
        let mut prefix = bytes::BytesMut::new();
        kv_api::encoding::encode_u64(storage, &mut prefix);
        kv_api::encoding::encode_u64(index, &mut prefix);
        let end = kv_api::key::prefix_end(&prefix).unwrap_or_default();
        kv_api::Span::new(prefix.freeze(), end)
    };
    kv.clear_range(span).await?;
    let counter = store::sequence_key(storage);
    let key = store::record_key(store::Section::Garbage, &[storage, index]);
    let mut done = vec![(key, None)];
    if index == 0 {
        done.push((counter, None));
    }
    kv.write(&done).await
}
