//! Who holds what and who waits for whom: the tables of `pg_dormouse`, and what `pg_locks`, `pg_stat_activity`
//! and `pg_blocking_pids` know of row locks.
//!
//! The KV nodes are asked each time ([`kv_client::KvClient::contention`]); they answer at once, whatever is locked.
//! A transaction is known to them by an id, and here by the session that runs it; those of other SQL nodes have no
//! session here and show by their ids alone. Each range is seen at another moment, and of each list no more than
//! [`kv_client::contention::MAX_LISTED`] entries are shown: what is contended first, and the latest events. Values of
//! keys are shown to who may read the table.

use super::row::{SystemContext, bool, int, optional, text};
use crate::catalog::descriptor::TableDescriptor;
use crate::dml::described_key;
use crate::exec::kv_error;
use crate::session::activity::Activity;
use crate::session::locks::mode;
use crate::session::view::{SessionView, now_micros};
use crate::table::codec::split_key;
use bytes::Bytes;
use kv_api::Span;
use kv_client::LockStrength;
use kv_client::contention::{Contention, ContentionEvent, LockInfo, TxnInfo, TxnPhase, WaitEnd, WaitInfo};
use sql_types::datetime::UNIX_EPOCH_OFFSET;
use sql_types::{Datum, Interval, Oid, Row, SqlResult, Type};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The schema of the tables that PostgreSQL does not have.
pub(crate) const SCHEMA: &str = "pg_dormouse";

/// The rows of a table of the schema.
pub(super) async fn rows(cx: &SystemContext<'_>) -> SqlResult<Vec<Row>> {
    let found = Found::read(cx.view).await?;
    Ok(match cx.table.name {
        "locks" => found.locks(cx),
        "transactions" => found.transactions(cx),
        "contention_events" => found.events(cx),
        _ => Vec::new(),
    })
}

/// What the KV nodes say, and the sessions that it is about.
pub(super) struct Found<'a> {
    view: &'a SessionView,
    contention: Contention,
    /// The sessions here by the ids of their transactions, the last ones of those that are idle.
    sessions: HashMap<Bytes, Arc<Activity>>,
    /// Tables by the number that their keys begin with.
    tables: HashMap<u64, Arc<TableDescriptor>>,
    now: i64,
}

/// What a key belongs to.
#[derive(Default)]
struct Place {
    table: Option<Arc<TableDescriptor>>,
    index: Option<String>,
    key: Option<String>,
}

impl<'a> Found<'a> {
    /// Asks the KV nodes.
    pub(super) async fn read(view: &'a SessionView) -> SqlResult<Self> {
        let all = Span::new(Bytes::new(), Bytes::new());
        let engine = &view.shared.engine;
        let contention = engine.kv.contention(&all, 0).await.map_err(kv_error)?;
        let sessions =
            engine.sessions.all().into_iter().filter_map(|session| Some((session.txn()?, session)));
        let tables = view.snapshot().tables.values().map(|table| (table.storage, table.clone()));
        Ok(Found {
            view,
            contention,
            sessions: sessions.collect(),
            tables: tables.collect(),
            now: now_micros(),
        })
    }

    /// The same for tables that are of use without it; `None` with a warning if the KV nodes do not answer.
    pub(super) async fn read_if_possible(view: &'a SessionView) -> Option<Self> {
        match Self::read(view).await {
            Ok(found) => Some(found),
            Err(error) => {
                let message = format!("row locks are not shown: {}", error.message);
                let notice = crate::session::Notice::warning(sql_types::SqlState::WARNING, message);
                view.shared.notice(notice);
                None
            }
        }
    }

    fn pid(&self, txn: &Bytes) -> Option<i32> {
        self.sessions.get(txn).map(|session| session.process_id)
    }

    fn pid_of(&self, txn: &Bytes) -> Datum {
        self.pid(txn).map_or(Datum::Null, Datum::Int4)
    }

    fn place(&self, key: &Bytes) -> Place {
        let table = split_key(key).and_then(|(storage, ..)| self.tables.get(&storage)).cloned();
        let may_read = |table: &TableDescriptor| {
            let (snapshot, user) = (self.view.snapshot(), self.view.user);
            snapshot.has_privilege(user, table.owner, table.oid, 'r') && !snapshot.secures(table, user)
        };
        let shown = table.as_ref().map_or_else(|| self.view.is_superuser(), |table| may_read(table));
        let codec = table.as_ref().and_then(|table| self.view.shared.engine.codecs.get(table).ok());
        let context = self.view.text(self.now);
        let described = codec.and_then(|codec| described_key(&codec, key, &context));
        let index = described.as_ref().map(|(index, _)| index.clone());
        let key = if key.is_empty() {
            None
        } else {
            Some(described.map_or_else(|| hex("\\x", key), |(_, key)| key)).filter(|_| shown)
        };
        Place { table, index, key }
    }

    fn place_columns(&self, key: &Bytes) -> Vec<(&'static str, Datum)> {
        let Place { table, index, key } = self.place(key);
        let snapshot = self.view.snapshot();
        let table = table.as_deref();
        let database = table.and_then(|table| snapshot.databases.get(&table.database));
        let schema = table.and_then(|table| snapshot.schema_name(table.database, table.schema));
        vec![
            ("database_name", optional(database.map(|database| database.name.as_str()))),
            ("schema_name", optional(schema)),
            ("table_name", optional(table.map(|table| table.name.as_str()))),
            ("index_name", optional(index.as_deref())),
            ("key", optional(key.as_deref())),
        ]
    }

    fn blocked_by(&self, blockers: &[Bytes]) -> [(&'static str, Datum); 2] {
        let ids = blockers.iter().map(txn_id).collect();
        let pids = blockers.iter().filter_map(|txn| self.pid(txn)).map(Datum::Int4).collect();
        [("blocked_by", Datum::array(Type::TEXT, ids)), ("blocking_pids", Datum::array(Type::INT4, pids))]
    }

    fn since(&self, since_ns: u64) -> [(&'static str, Datum); 2] {
        let since = micros(since_ns);
        let lasted = self.now.saturating_sub(since).max(0);
        [("since", Datum::Timestamptz(since)), ("duration", interval(lasted))]
    }

    /// `pg_dormouse.locks`: locks that are held, and requests that wait behind them.
    fn locks(&self, cx: &SystemContext<'_>) -> Vec<Row> {
        let held = |lock: &LockInfo| {
            let mut values = self.place_columns(&lock.key);
            values.push(("mode", text(strength(lock.strength()))));
            values.push(("granted", bool(true)));
            values.push(("intent", bool(lock.intent)));
            values.push(("transaction_id", txn_id(&lock.txn)));
            values.push(("pid", self.pid_of(&lock.txn)));
            values.extend(self.since(lock.since_ns));
            cx.row(values)
        };
        let awaited = |wait: &WaitInfo| {
            let mut values = self.place_columns(&wait.key);
            let decision = wait.key.is_empty();
            values.push(("mode", text(if decision { "Decision" } else { strength(wait.strength()) })));
            values.push(("granted", bool(false)));
            values.push(("intent", bool(false)));
            values.push(("transaction_id", txn_id(&wait.txn)));
            values.push(("pid", self.pid_of(&wait.txn)));
            values.extend(self.since(wait.since_ns));
            values.extend(self.blocked_by(&wait.blockers));
            cx.row(values)
        };
        let waits = self.contention.waits.iter().map(awaited);
        self.contention.locks.iter().map(held).chain(waits).collect()
    }

    /// `pg_dormouse.transactions`: those that hold locks or intents, or wait for some.
    fn transactions(&self, cx: &SystemContext<'_>) -> Vec<Row> {
        let mut parts: BTreeMap<&Bytes, Vec<&TxnInfo>> = BTreeMap::new();
        for part in &self.contention.txns {
            parts.entry(&part.txn).or_default().push(part);
        }
        let mut locks: HashMap<&Bytes, i64> = HashMap::new();
        for lock in &self.contention.locks {
            *locks.entry(&lock.txn).or_default() += 1;
        }
        let row = |(txn, parts): (&Bytes, Vec<&TxnInfo>)| {
            let session = self.sessions.get(txn);
            let user = session.map(|session| self.view.snapshot().role_name(session.user));
            let since = parts.iter().map(|part| part.since_ns).min().unwrap_or_default();
            let phase = parts.iter().map(|part| part.phase()).max().unwrap_or(TxnPhase::Pending);
            let intents: u64 = parts.iter().map(|part| part.intents).sum();
            // Locks of one node are told for each of its ranges; those listed may not be all.
            let told = parts.iter().map(|part| part.locks).max().unwrap_or_default() as i64;
            let waits = self.contention.waits.iter().filter(|wait| wait.txn == *txn);
            let blockers: BTreeSet<&Bytes> = waits.clone().flat_map(|wait| &wait.blockers).collect();
            let blockers: Vec<Bytes> = blockers.into_iter().cloned().collect();
            let mut values = vec![
                ("transaction_id", txn_id(txn)),
                ("pid", self.pid_of(txn)),
                ("user_name", user.map_or(Datum::Null, Datum::text)),
                ("state", text(phase_name(phase))),
                ("ranges", int(parts.len() as i64)),
                ("locks", int(locks.get(txn).copied().unwrap_or_default().max(told))),
                ("intents", int(intents as i64)),
                ("waiting", bool(waits.clone().next().is_some())),
            ];
            values.extend(self.since(since));
            values.extend(self.blocked_by(&blockers));
            cx.row(values)
        };
        parts.into_iter().map(row).collect()
    }

    /// `pg_dormouse.contention_events`: waits that have ended, the latest last.
    fn events(&self, cx: &SystemContext<'_>) -> Vec<Row> {
        let row = |event: &ContentionEvent| {
            let mut values = self.place_columns(&event.key);
            let decision = event.key.is_empty();
            values.extend([
                ("mode", text(if decision { "Decision" } else { strength(event.strength()) })),
                ("ended", Datum::Timestamptz(micros(event.ended_ns))),
                ("duration", interval(i64::try_from(event.duration_us).unwrap_or(i64::MAX))),
                ("outcome", text(end_name(event.end()))),
                ("waiting_transaction_id", txn_id(&event.waiter)),
                ("waiting_pid", self.pid_of(&event.waiter)),
                ("blocking_transaction_id", txn_id(&event.holder)),
                ("blocking_pid", self.pid_of(&event.holder)),
            ]);
            cx.row(values)
        };
        self.contention.events.iter().map(row).collect()
    }

    /// What `pg_locks` shows of row locks.
    pub(super) fn pg_locks(&self, cx: &SystemContext<'_>) -> Vec<Row> {
        let row = |key: &Bytes, strength: LockStrength, txn: &Bytes, waits_since: Option<u64>| {
            let table = split_key(key).and_then(|(storage, ..)| self.tables.get(&storage));
            let mut values = vec![
                ("locktype", text(if key.is_empty() { "transactionid" } else { "tuple" })),
                ("virtualtransaction", txn_id(txn)),
                ("pid", self.pid_of(txn)),
                ("mode", text(mode_name(strength))),
                ("granted", bool(waits_since.is_none())),
                ("fastpath", bool(false)),
                ("waitstart", waits_since.map_or(Datum::Null, |since| Datum::Timestamptz(micros(since)))),
            ];
            if let Some(table) = table {
                values.push(("database", Datum::Oid(table.database)));
                values.push(("relation", Datum::Oid(table.oid)));
            }
            cx.row(values)
        };
        let held = self.contention.locks.iter().map(|lock| row(&lock.key, lock.strength(), &lock.txn, None));
        let waits = self.contention.waits.iter();
        held.chain(waits.map(|wait| row(&wait.key, wait.strength(), &wait.txn, Some(wait.since_ns))))
            .collect()
    }

    /// What a transaction waits for, in PostgreSQL's words.
    pub(super) fn wait_event(&self, session: &Activity) -> Option<&'static str> {
        let txn = session.txn()?;
        let wait = self.contention.waits.iter().find(|wait| wait.txn == txn)?;
        Some(if wait.key.is_empty() { "transactionid" } else { "tuple" })
    }
}

/// `pg_blocking_pids`: the sessions that one waits for; 0 stands for transactions that have no session here.
pub(crate) async fn blocking_pids(view: &SessionView, pid: i32) -> SqlResult<Datum> {
    let engine = &view.shared.engine;
    let mut pids = BTreeSet::new();
    if let Some(session) = engine.sessions.by_process(pid) {
        let owners = engine.locks.blocking(session.session);
        let others = engine.sessions.all();
        let blocking = others.iter().filter(|other| owners.contains(&other.session));
        pids.extend(blocking.map(|other| other.process_id));
        if session.is_running()
            && let Some(txn) = session.txn()
        {
            let found = Found::read(view).await?;
            let waits = found.contention.waits.iter().filter(|wait| wait.txn == txn);
            pids.extend(waits.flat_map(|wait| &wait.blockers).map(|other| found.pid(other).unwrap_or(0)));
        }
    }
    Ok(Datum::array(Type::INT4, pids.into_iter().map(Datum::Int4).collect()))
}

/// Microseconds since 2000 of nanoseconds since 1970.
fn micros(ns: u64) -> i64 {
    i64::try_from(ns / 1000).unwrap_or(i64::MAX).saturating_sub(UNIX_EPOCH_OFFSET)
}

fn interval(micros: i64) -> Datum {
    Datum::Interval(Interval { months: 0, days: 0, micros })
}

fn hex(prefix: &str, bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    std::iter::once(prefix.to_string()).chain(digits).collect()
}

/// The id of a transaction; NULL for a request that is part of none.
fn txn_id(txn: &Bytes) -> Datum {
    if txn.is_empty() { Datum::Null } else { Datum::text(hex("", txn)) }
}

fn strength(strength: LockStrength) -> &'static str {
    match strength {
        LockStrength::None => "None",
        LockStrength::Shared => "Shared",
        LockStrength::Exclusive => "Exclusive",
    }
}

/// The mode that a lock on a tuple has in PostgreSQL.
fn mode_name(strength: LockStrength) -> &'static str {
    let number = match strength {
        LockStrength::Exclusive => mode::EXCLUSIVE,
        LockStrength::Shared => mode::ROW_SHARE,
        LockStrength::None => mode::SHARE,
    };
    mode::NAMES.get(usize::from(number)).copied().unwrap_or("")
}

fn phase_name(phase: TxnPhase) -> &'static str {
    match phase {
        TxnPhase::Pending => "open",
        TxnPhase::Committing => "committing",
        TxnPhase::Preparing => "preparing",
        TxnPhase::Prepared => "prepared",
    }
}

fn end_name(end: WaitEnd) -> &'static str {
    match end {
        WaitEnd::Granted => "granted",
        WaitEnd::Cancelled => "cancelled",
        WaitEnd::TimedOut => "timed out",
        WaitEnd::Deadlock => "deadlock",
    }
}

/// OID of a schema of computed tables.
pub(super) fn schema_oid(name: &str) -> Oid {
    use crate::catalog::oids;
    match name {
        "information_schema" => oids::INFORMATION_SCHEMA,
        SCHEMA => oids::DORMOUSE_INTERNAL,
        _ => oids::PG_CATALOG,
    }
}
