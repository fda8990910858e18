//! The SQL nodes that serve a tenant at the same time: who they are, and how they agree.
//!
//! A node caches the catalog and keeps table locks, advisory locks and listeners in its memory. That is right for all
//! sessions of a tenant as long as it is the only node. This module makes it right for several: each is an *instance*
//! with a lease, and what concerns the others is asked of them (F1, `Online, Asynchronous Schema Change in F1`, section
//! 4; `cockroachdb-2020`, section 5.4, with one lease for a node in place of one for each descriptor).
//!
//! # Leases
//!
//! ```text
//!   none ── register ──► held ── renew ──► held           record: this instance, until when
//!                         │ ▲
//!         nobody renews ──▼ │ renew: the record is there still
//!                       lapsed ── another has removed the record ──► lost ── register ──► held
//! ```
//!
//! An instance has a record in the tenant's keyspace with the timestamp at which its lease ends. Statements run while
//! the lease lasts only, and transactions that began under it commit at a timestamp at or below its end, or not
//! at all: the ranges see to that ([`kv_client::CommitDeadlines`]). So who reads above that timestamp that a
//! record has ended, and removes it, knows that this instance has committed all that it ever will, and need not ask it
//! for anything. A lease that has lapsed and was not removed is renewed as if it had never lapsed. Whoever finds its
//! record gone begins anew: transactions that it had open fail with 40001, the catalog is read again.
//!
//! Leases are renewed by a task that runs while there is something to renew them for ([`keeper`]): statements, locks,
//! listeners, temporary tables. An idle node sends nothing, its lease lapses, and its next statement renews it first.
//! A node that was killed is waited for until its lease has ended, by schema changes and strong locks, and by nothing else.
//!
//! Where the disks of the KV nodes are full no lease is renewed, and nothing else is written, by anybody. Statements go on as
//! long as a read, now and then, finds the record and the catalog as they were; the end of the lease holds for commits
//! all the same.
//!
//! # Requests
//!
//! Instances speak by records in the tenant's keyspace ([`record`]): an instance *asks* ([`ask`]), each other
//! instance reads the request, does it, and writes an acknowledgement ([`serve`]); when the asker removes the request,
//! what was done for it is undone. Who is alone polls nothing. As soon as an instance knows of another it polls: it learns
//! of it when it renews its lease, which is within half of a lease, or when it asks for something itself.
//!
//! | request | the others |
//! |---|---|
//! | lock | take the lock in their own lock manager for the asker's session, and hold it until the request is gone |
//! | drain | wait for those who hold conflicting locks now, under a catalog as new as the asker's |
//! | refresh | read the catalog, if theirs is older than the asker's |
//!
//! # Locks
//!
//! *Weak* table locks, which do not conflict with each other (those of queries and of INSERT, UPDATE, DELETE), are taken
//! in the node's memory and nowhere else. *Strong* ones are asked of all instances: it is PostgreSQL's fast-path locking
//! (`src/backend/storage/lmgr/README`) with nodes in place of backends. Before an instance asks it locks a key in the KV
//! layer, so that two never ask for the same lock at once. Cycles of waiters are found by each node among what waits
//! there, with the locks it holds for others; a cycle that closes only over several nodes ends after the longest wait
//! for a lock.
//!
//! A transaction that finds itself alone takes strong locks in memory only. It notes the *generation*, which each
//! registration raises; before it commits, it locks the generation's key and fails with 40001 if an instance has
//! registered since: that one knew nothing of its locks.
//!
//! Advisory locks are all strong, where others are known: who asks is told by each that nobody holds the lock there, and one
//! that took it before the asker registered is found so, too. A session whose node has lost its lease has lost its advisory
//! locks, and is told so (57P01).
//!
//! # The catalog
//!
//! A schema change holds the lock on the catalog's version in the KV layer. After its commit it has the others refresh
//! before its statement returns, and only then its locks go. An instance that sees a request gone sees, in the same
//! snapshot, the catalog's version after it, and refreshes before it gives back the lock. A registration is one transaction
//! with the reading of the catalog's version and of all requests, which it serves before its first statement.
//!
//! # Notifications
//!
//! They are records, too ([`notes`]): written by the transaction that sends them, read by the others in the order of the
//! sender's commits. None is lost while sender and receiver hold their leases.
//!
//! # Bounds
//!
//! A request waits for an acknowledgement or for the end of the other's lease; a lock as long as locks are waited for.
//! Records that belong to no instance are removed by whoever meets them.
//!
//! # What is missing
//!
//! Messages between nodes, in place of records that are polled. Cycles of waiters that close over several nodes only.
//! Statistics, `pg_stat_activity`, `pg_locks`, `pg_cancel_backend` and `pg_stat_statements` show, and work in, one node.

mod ask;
mod keeper;
mod notes;
mod record;
mod section;
mod serve;

pub(crate) use ask::{Asked, Standing};

use crate::engine::Engine;
use kv_client::{CommitDeadline, CommitDeadlines, KvClient};
use notes::Notes;
use parking_lot::Mutex;
use section::Section;
use serve::Serving;
use sql_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// How long a lease lasts unless the engine is told otherwise.
pub const LEASE: Duration = Duration::from_secs(5);
/// How much sooner than others an instance takes its own lease for ended: clocks of KV nodes may be moved.
const MARGIN: Duration = Duration::from_millis(500);
/// How long a statement waits for a lease that cannot be renewed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The number of an instance: random, another one each time it registers.
pub(crate) type InstanceId = u64;

/// An instance's own lease.
struct Own {
    id: InstanceId,
    deadline: Arc<CommitDeadline>,
}

/// What an engine knows of the instances of its tenant, itself included.
pub(crate) struct Instances {
    /// Without deadline: what is written here is how deadlines come to be.
    kv: KvClient,
    deadlines: Arc<CommitDeadlines>,
    length: Duration,
    opened: Instant,
    own: Mutex<Option<Own>>,
    /// Until when statements may run, in milliseconds since `opened`.
    valid_until: AtomicU64,
    /// How often it has registered.
    registration: AtomicU64,
    /// When it last did, in milliseconds since `opened`.
    registered: AtomicU64,
    /// When a statement last ran, in milliseconds since `opened`.
    used: AtomicU64,
    /// Whether the task runs that renews the lease.
    kept: AtomicBool,
    /// Wakes it.
    wake: Arc<Notify>,
    /// How many wait for acknowledgements.
    waiting: AtomicUsize,
    /// Sessions with temporary objects.
    pub temporary: AtomicUsize,
    /// What was read last.
    seen: watch::Sender<Arc<Section>>,
    /// Told when the lease is renewed, or could not be.
    renewed: watch::Sender<u64>,
    /// Why it could not be, and when, in milliseconds since `opened`.
    trouble: Mutex<Option<(u64, SqlError)>>,
    serving: Mutex<Serving>,
    notes: Mutex<Notes>,
    next_note: AtomicU64,
    /// Held by the transaction that is committing notifications.
    sending: Arc<tokio::sync::Mutex<()>>,
    next_request: AtomicU64,
    /// Whether what earlier processes left behind has been looked after.
    tidied: AtomicBool,
    /// It has registered, and not begun yet what follows from that.
    is_new: AtomicBool,
}

impl Instances {
    pub(crate) fn new(kv: &KvClient, deadlines: Arc<CommitDeadlines>, length: Duration) -> Self {
        Instances {
            kv: kv.clone(),
            deadlines,
            length,
            opened: Instant::now(),
            own: Mutex::new(None),
            valid_until: AtomicU64::new(0),
            registration: AtomicU64::new(0),
            registered: AtomicU64::new(0),
            used: AtomicU64::new(0),
            kept: AtomicBool::new(false),
            wake: Arc::default(),
            waiting: AtomicUsize::new(0),
            temporary: AtomicUsize::new(0),
            seen: watch::Sender::new(Arc::default()),
            renewed: watch::Sender::new(0),
            trouble: Mutex::default(),
            serving: Mutex::default(),
            notes: Mutex::default(),
            next_note: AtomicU64::new(1),
            sending: Arc::default(),
            next_request: AtomicU64::new(1),
            tidied: AtomicBool::new(false),
            is_new: AtomicBool::new(false),
        }
    }

    /// The way to the tenant's keys for what may be done without a lease.
    pub(crate) fn kv(&self) -> &KvClient {
        &self.kv
    }

    fn now_ms(&self) -> u64 {
        self.opened.elapsed().as_millis() as u64
    }

    /// How often this process has registered: what was begun under another registration than the present one has failed.
    pub(crate) fn registration(&self) -> u64 {
        self.registration.load(Ordering::Acquire)
    }

    /// The number of this instance; 0 before it has one.
    pub(crate) fn id(&self) -> InstanceId {
        self.own.lock().as_ref().map_or(0, |own| own.id)
    }

    /// Whether this instance knows of others.
    pub(crate) fn knows_others(&self) -> bool {
        self.seen.borrow().others(self.id()).next().is_some()
    }

    /// Waits until the instance holds a lease.
    ///
    /// # Errors
    /// What keeps it from being had: 08006 if no KV node answers.
    pub(crate) async fn leased(&self, engine: &Engine) -> SqlResult<()> {
        let now = self.now_ms();
        // Before the look at the lease, which is given up in the other order.
        self.used.store(now, Ordering::SeqCst);
        self.keep(engine);
        if now < self.valid_until.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut renewed = self.renewed.subscribe();
        self.wake.notify_one();
        let held = async {
            while self.now_ms() >= self.valid_until.load(Ordering::Acquire) {
                if let Some((at_ms, error)) = &*self.trouble.lock()
                    && *at_ms >= now
                {
                    return Err(error.clone());
                }
                if renewed.changed().await.is_err() {
                    break;
                }
            }
            Ok(())
        };
        if let Ok(result) = tokio::time::timeout(PATIENCE, held).await {
            return result;
        }
        let message = "no KV node answers: the SQL node cannot renew its lease";
        Err(SqlError::new(SqlState::CONNECTION_FAILURE, message))
    }
}

/// What a transaction is told that began before the instance registered anew.
pub(crate) fn lease_ended() -> SqlError {
    let message = "could not serialize access: the lease of the SQL node has ended";
    SqlError::new(SqlState::SERIALIZATION_FAILURE, message)
        .with_hint("The transaction might succeed if retried.")
}
