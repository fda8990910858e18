//! The sessions of a node, as `pg_stat_activity` shows them.

use super::api::CancelHandle;
use bytes::Bytes;
use kv_client::TxnName;
use parking_lot::Mutex;
use sql_types::Oid;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

/// What a session is doing.
pub(crate) struct Activity {
    pub session: u64,
    pub process_id: i32,
    pub database: Oid,
    pub user: Oid,
    pub client_address: Option<String>,
    pub started: i64,
    pub cancel: CancelHandle,
    pub application: Mutex<Arc<str>>,
    query: Mutex<Arc<str>>,
    /// `I`, `T`, `E`, or `R` while a statement runs.
    state: AtomicU8,
    query_started: AtomicI64,
    state_changed: AtomicI64,
    transaction_started: AtomicI64,
    /// The transaction it began last.
    txn: Mutex<Option<TxnName>>,
}

impl Activity {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        session: u64,
        process_id: i32,
        database: Oid,
        user: Oid,
        client_address: Option<String>,
        started: i64,
        cancel: CancelHandle,
    ) -> Self {
        Activity {
            session,
            process_id,
            database,
            user,
            client_address,
            started,
            cancel,
            application: Mutex::new("".into()),
            query: Mutex::new("".into()),
            state: AtomicU8::new(b'I'),
            query_started: AtomicI64::new(0),
            state_changed: AtomicI64::new(started),
            transaction_started: AtomicI64::new(0),
            txn: Mutex::default(),
        }
    }

    /// A transaction begins.
    pub(crate) fn began(&self, txn: TxnName) {
        *self.txn.lock() = Some(txn);
    }

    /// What the KV nodes know the last transaction by.
    pub(crate) fn txn(&self) -> Option<Bytes> {
        self.txn.lock().as_ref().map(TxnName::id)
    }

    /// Whether a statement runs.
    pub(crate) fn is_running(&self) -> bool {
        self.state.load(Ordering::Relaxed) == b'R'
    }

    /// A statement starts.
    pub(crate) fn running(&self, query: &Arc<str>, now: i64, transaction: i64) {
        *self.query.lock() = query.clone();
        self.query_started.store(now, Ordering::Relaxed);
        self.state_changed.store(now, Ordering::Relaxed);
        self.transaction_started.store(transaction, Ordering::Relaxed);
        self.state.store(b'R', Ordering::Relaxed);
    }

    /// A statement ended, in this transaction state.
    pub(crate) fn waiting(&self, state: u8, now: i64) {
        self.state_changed.store(now, Ordering::Relaxed);
        if state == b'I' {
            self.transaction_started.store(0, Ordering::Relaxed);
        }
        self.state.store(state, Ordering::Relaxed);
    }

    pub(crate) fn state(&self) -> &'static str {
        match self.state.load(Ordering::Relaxed) {
            b'R' => "active",
            b'T' => "idle in transaction",
            b'E' => "idle in transaction (aborted)",
            _ => "idle",
        }
    }

    pub(crate) fn query(&self) -> Arc<str> {
        self.query.lock().clone()
    }

    pub(crate) fn times(&self) -> (i64, i64, i64) {
        let get = |time: &AtomicI64| time.load(Ordering::Relaxed);
        (get(&self.transaction_started), get(&self.query_started), get(&self.state_changed))
    }
}

/// The sessions of a node.
#[derive(Default)]
pub(crate) struct Registry(Mutex<BTreeMap<u64, Arc<Activity>>>);

impl Registry {
    /// Whether a statement runs, or a transaction is open.
    pub(crate) fn any_busy(&self) -> bool {
        self.0.lock().values().any(|activity| activity.state.load(Ordering::Relaxed) != b'I')
    }

    pub(crate) fn add(&self, activity: Arc<Activity>) {
        self.0.lock().insert(activity.session, activity);
    }

    pub(crate) fn remove(&self, session: u64) {
        self.0.lock().remove(&session);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Activity>> {
        self.0.lock().values().cloned().collect()
    }

    pub(crate) fn count_database(&self, database: Oid) -> usize {
        self.0.lock().values().filter(|activity| activity.database == database).count()
    }

    pub(crate) fn count_user(&self, user: Oid) -> usize {
        self.0.lock().values().filter(|activity| activity.user == user).count()
    }

    pub(crate) fn by_process(&self, process_id: i32) -> Option<Arc<Activity>> {
        self.0.lock().values().find(|activity| activity.process_id == process_id).cloned()
    }
}
