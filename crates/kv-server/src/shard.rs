//! Shards: what the node keeps in memory about transactions, latches and locks.
//!
//! Each tenant belongs to one shard, and so does everything its transactions contend for; shards only
//! divide the contention for their mutex. A tenant without transactions takes no memory.
//!
//! A transaction has a *part* in every range where it holds locks or intents. Its parts of one node share
//! its locks, so that cycles of waiting transactions within the node are seen as they close; all else is the
//! part's own, for a range's lease comes and goes by itself.
//!
//! ```text
//!   Pending ── commit ──► Committing ──► gone: its intents are versions, or settled in the background
//!      │                      └────────► Pending again, if the command was refused
//!      ├── prepare ─► Preparing ──► Prepared ── decided ──► gone, its intents are settled when the decision
//!      │                                                     is on record
//!      └── abort, end of the connection ──► gone, its intents are removed
//! ```
//!
//! A pending part may be left for another coordinator: it belongs to no connection then, until it is taken over or
//! the time is up ([`transfer`]).

mod transfer;

use crate::config::Limits;
use crate::contention::Events;
use crate::intent_set::IntentSet;
pub use crate::intent_set::key_after;
use crate::latch::Latches;
use crate::lock_table::{Acquire, LockTable, TxnKey, WaiterId, Wakeup};
use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use kv_api::{KvError, KvErrorKind, LockStrength, Priority, Span, TenantId, Timestamp};
use replication::{Millis, RangeId};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use storage::intent::{CommittedTxn, IntentView, TxnId};
use storage::txn_record::{RecordStatus, TxnRecord};
use tokio::sync::oneshot;
use transfer::Detached;

/// Names a connection within the node.
pub type ConnectionId = u64;

/// How many ended transactions a shard remembers, to refuse requests that come late.
const REMEMBERED: usize = 4096;
/// Most spans a transaction remembers having read for range deletions.
const TRACKED_SPANS: usize = 1024;

/// Where a transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnStatus {
    /// Open.
    Pending,
    /// Its commit is with the pipeline; nothing can stop it.
    Committing,
    /// What prepares it is with the pipeline.
    Preparing,
    /// It can commit at this timestamp or above it; what becomes of it is decided elsewhere.
    Prepared(Timestamp),
}

/// Names a part of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartKey {
    /// The range.
    pub range: RangeId,
    /// The transaction.
    pub txn: TxnKey,
}

/// What the node keeps about a part of an open transaction, with locks or intents in a range.
#[derive(Debug)]
pub struct TxnEntry {
    /// The connection it came on and dies with; 0 for one prepared under an earlier lease, and for one that waits
    /// for another coordinator.
    pub connection: ConnectionId,
    /// How often it was handed to another coordinator.
    pub hop: u32,
    /// Where it stands.
    pub status: TxnStatus,
    /// Where it read when it came to be known; the history it may still read or be checked against is
    /// kept.
    pub snapshot: Option<Timestamp>,
    /// Its flushed or prepared intents.
    pub intents: IntentSet,
    /// What its record says, once it is prepared.
    pub record: Option<TxnRecord>,
    /// Since when it is known, in milliseconds of the node's clock.
    pub opened: Option<Millis>,
    /// Whether it does not have all locks that it asked for: the range was split, one of high priority has taken them,
    /// or there was no room for them.
    pub lost_locks: bool,
    /// Since when it is prepared.
    pub since: Millis,
    /// Whether it is to be aborted as soon as the command under way is through.
    pub doomed: bool,
    /// Spans that flushed range deletions read.
    pub tracked: Vec<Span>,
}

impl TxnEntry {
    /// Notes spans that were read. Many become one that covers them all.
    pub fn track(&mut self, spans: impl Iterator<Item = Span>) {
        self.tracked.extend(spans);
        if self.tracked.len() > TRACKED_SPANS {
            let spans = std::mem::take(&mut self.tracked);
            let start = spans.iter().map(|span| &span.start).min().cloned();
            let end = spans.iter().map(|span| &span.end).max().cloned();
            self.tracked.extend(start.zip(end).map(|(start, end)| Span::new(start, end)));
        }
    }
}

/// A prepared part of which it is known what was decided, and which is not settled yet.
#[derive(Clone, Debug)]
pub struct Decided {
    /// What its record says.
    pub record: TxnRecord,
    /// Where it committed.
    pub committed: Timestamp,
    /// Since when that is known.
    pub since: Millis,
}

impl Decided {
    /// Whether the record says it, too. At the anchor that is what others may rely on.
    pub fn is_on_record(&self) -> bool {
        self.record.status == RecordStatus::Committed
    }

    /// The record that says it. It names the keys written, if it did before, or else `parts`: a key of each other part.
    pub fn on_record(&self, parts: &[Bytes]) -> TxnRecord {
        let staged = self.record.staged.as_ref();
        let keys = staged.map_or_else(|| parts.to_vec(), |(_, keys)| keys.clone());
        TxnRecord {
            status: RecordStatus::Committed,
            timestamp: self.committed,
            staged: Some((self.committed, keys)),
            ..self.record.clone()
        }
    }
}

/// What there is to know about the intents of one range.
#[derive(Debug, Default)]
pub struct RangeIntents {
    /// Transactions of which intents may be in the lock space. By name, so that what is heard late of a
    /// transaction of an earlier lease counts for nothing.
    pub live: HashSet<TxnId>,
    /// Those that are committed.
    pub committed: Vec<CommittedTxn>,
    /// Those that are prepared.
    pub prepared: Vec<(TxnId, Timestamp)>,
    /// Those of the committed ones that were prepared here.
    pub decided: HashMap<TxnId, Decided>,
}

impl RangeIntents {
    fn is_empty(&self) -> bool {
        self.live.is_empty()
            && self.committed.is_empty()
            && self.prepared.is_empty()
            && self.decided.is_empty()
    }

    /// How many of its transactions readers have to take into account.
    fn unresolved(&self) -> usize {
        self.committed.len() + self.prepared.len()
    }

    fn add_committed(&mut self, txn: CommittedTxn) {
        self.committed.retain(|known| known.id != txn.id);
        self.committed.push(txn);
    }

    fn add_prepared(&mut self, id: TxnId, at: Timestamp) {
        self.remove_prepared(id);
        self.live.insert(id);
        self.prepared.push((id, at));
    }

    fn remove_prepared(&mut self, id: TxnId) {
        self.prepared.retain(|(known, _)| *known != id);
    }

    fn remove(&mut self, id: TxnId) {
        self.live.remove(&id);
        self.decided.remove(&id);
        self.committed.retain(|committed| committed.id != id);
        self.remove_prepared(id);
    }
}

/// How many transactions there are in the shards of a node that readers have to take into account. Counted where
/// they come and go, and nowhere else: where it is none nobody looks for any.
#[derive(Clone, Debug, Default)]
pub struct Unresolved(Arc<AtomicUsize>);

impl Unresolved {
    /// Whether there are any.
    pub fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    fn change(&self, before: usize, after: usize) {
        match after.checked_sub(before) {
            Some(more) => self.0.fetch_add(more, Ordering::SeqCst),
            None => self.0.fetch_sub(before - after, Ordering::SeqCst),
        };
    }
}

/// A request that waits until it is known what becomes of a prepared transaction.
#[derive(Debug)]
struct Awaiting {
    /// On whose behalf, if it is part of a transaction.
    txn: Option<TxnId>,
    /// Since when.
    since: Millis,
    waker: oneshot::Sender<()>,
}

impl Awaiting {
    fn wake(self) {
        // Who waited may be gone.
        let _ = self.waker.send(());
    }
}

/// A request that waits for what becomes of a prepared transaction, for a listing.
#[derive(Debug)]
pub struct WaitingReader {
    /// The transaction that it is part of.
    pub txn: Option<TxnId>,
    /// The one that is prepared.
    pub prepared: TxnId,
    /// Since when it waits.
    pub since: Millis,
}

/// A part of a transaction, for a listing.
#[derive(Debug)]
pub struct OpenPart {
    /// The transaction.
    pub txn: TxnKey,
    /// Where it stands.
    pub status: TxnStatus,
    /// Since when it is known.
    pub opened: Option<Millis>,
    /// Intents written.
    pub intents: u64,
}

/// What an intent found in the lock space belongs to.
#[derive(Clone, Debug, PartialEq)]
pub enum IntentOwner {
    /// The transaction that asks.
    Own,
    /// An open transaction.
    Pending,
    /// A committed one.
    Committed(CommittedTxn),
    /// An aborted one.
    Aborted,
}

/// What a connection makes the node keep.
#[derive(Debug, Default)]
struct Usage {
    /// Its open transactions known to the node.
    txns: usize,
    /// Its requests that wait for locks.
    lock_waits: usize,
}

/// One shard.
#[derive(Default)]
pub struct Shard {
    /// Who evaluates.
    pub latches: Latches<oneshot::Sender<()>>,
    /// Who holds and awaits locks.
    pub locks: LockTable<oneshot::Sender<()>>,
    /// Which waits have ended lately.
    pub events: Events,
    connections: HashMap<ConnectionId, Usage>,
    txns: HashMap<PartKey, TxnEntry>,
    /// Changed by [`Shard::change_intents`] only.
    intents: HashMap<RangeId, RangeIntents>,
    unresolved: Unresolved,
    awaiting: HashMap<PartKey, Vec<Awaiting>>,
    /// Transactions whose waits were ended because they were part of a cycle, until they notice.
    victims: HashSet<TxnKey>,
    /// Ranges in which no transaction may have its first intent for the moment, and who waits for that to end.
    held: HashMap<RangeId, Vec<oneshot::Sender<()>>>,
    /// Records of aborted transactions, and when they were written.
    buried: Vec<(PartKey, Timestamp)>,
    /// Parts that wait for another coordinator.
    detached: Detached,
    ended: HashSet<PartKey>,
    ended_order: VecDeque<PartKey>,
}

/// The error for a transaction that is not, or no longer, known.
pub fn aborted(message: &str) -> KvError {
    KvError::new(KvErrorKind::Aborted, message)
}

impl Shard {
    /// An empty shard whose tables are bounded, and which counts among these.
    pub fn bounded(limits: &Limits, unresolved: &Unresolved) -> Self {
        let mut shard = Shard { unresolved: unresolved.clone(), ..Shard::default() };
        shard.locks.bound_queues(limits.max_waits_per_lock);
        shard
    }

    /// Changes what there is to know of the intents of a range, and counts what readers have to take into account.
    fn change_intents(&mut self, range: RangeId, change: impl FnOnce(&mut RangeIntents)) {
        let intents = self.intents.entry(range).or_default();
        let before = intents.unresolved();
        change(intents);
        self.unresolved.change(before, intents.unresolved());
        if intents.is_empty() {
            self.intents.remove(&range);
        }
    }

    /// Forgets the parts of transactions in a range with these keys: they were of another lease. Who waits for their
    /// locks is told that they ended; latches stay with those who are evaluating, whose commands will be refused.
    pub fn forget(&mut self, range: RangeId, span: &Span) {
        let parts = self.parts_of(range);
        for part in &parts {
            self.forget_part(*part);
        }
        let known: HashSet<TxnKey> = self.txns.keys().map(|part| part.txn).collect();
        for part in parts {
            self.release_part(part, span, known.contains(&part.txn));
        }
        self.note_losers();
        self.buried.retain(|(part, _)| part.range != range);
        self.ended.retain(|part| part.range != range);
        self.ended_order.retain(|part| part.range != range);
        let mut waiting: Vec<_> = self.awaiting.extract_if(|part, _| part.range == range).collect();
        // In an order that a simulation can repeat.
        waiting.sort_unstable_by_key(|(part, _)| *part);
        waiting.into_iter().flat_map(|(_, waiting)| waiting).for_each(Awaiting::wake);
        self.change_intents(range, |intents| *intents = RangeIntents::default());
    }

    /// Forgets the part of a transaction whose coordinator takes it that the node has nothing of it any more. What is
    /// written stays, and so does what is on its way: of that the coordinator says what is to become.
    pub fn let_go(&mut self, part: PartKey, connection: ConnectionId, span: &Span) {
        let is_let_go = |entry: &TxnEntry| {
            entry.connection == connection
                && entry.status == TxnStatus::Pending
                && entry.intents.is_empty()
                && entry.record.is_none()
        };
        if self.txns.get(&part).is_some_and(is_let_go) {
            self.forget_part(part);
            let known = self.is_known(part.txn);
            self.release_part(part, span, known);
            self.note_losers();
        }
    }

    /// Whether there is a part of a transaction in any range.
    fn is_known(&self, txn: TxnKey) -> bool {
        self.txns.keys().any(|part| part.txn == txn)
    }

    /// Gives up the locks of a part that was forgotten: those on the keys of its range or, unless the transaction is known in others,
    /// all. The range may have been split since it took them, or be in the middle of that, and nobody would ever give up those
    /// beyond its new end.
    fn release_part(&mut self, part: PartKey, span: &Span, known_elsewhere: bool) {
        wake(match known_elsewhere {
            true => self.locks.release_within(part.txn, span),
            false => self.locks.release(part.txn),
        });
    }

    /// Forgets the part of a transaction that has nothing: no locks, no intents, and nothing on its way.
    pub fn let_go_of_nothing(&mut self, part: PartKey) {
        let has_nothing = |entry: &TxnEntry| {
            let TxnEntry { status, intents, record, hop, lost_locks, tracked, .. } = entry;
            *status == TxnStatus::Pending
                && (intents.is_empty() && record.is_none() && tracked.is_empty())
                && (*hop == 0 && !lost_locks)
        };
        if self.txns.get(&part).is_some_and(has_nothing) && !self.locks.knows(part.txn) {
            self.forget_part(part);
        }
    }

    fn parts_of(&self, range: RangeId) -> Vec<PartKey> {
        let mut parts: Vec<_> = self.txns.keys().filter(|part| part.range == range).copied().collect();
        // In an order that a simulation can repeat.
        parts.sort_unstable();
        parts
    }

    /// Asks for a lock; what tells that it is granted is returned if it must be waited for, which is done only with
    /// `waits`. Whoever has to give way because of that is told.
    pub fn acquire(
        &mut self,
        txn: TxnKey,
        priority: Priority,
        key: &[u8],
        strength: LockStrength,
        now: Millis,
        waits: bool,
    ) -> (Acquire, Option<oneshot::Receiver<()>>) {
        loop {
            let (sender, receiver) = oneshot::channel();
            let outcome = self.locks.acquire(txn, priority, key, strength, now, waits.then_some(|| sender));
            self.note_losers();
            match outcome {
                // It waits for nothing from then on, so there is an end to it.
                Acquire::DeadlockOf(victim) => self.break_waits(victim),
                Acquire::Waiting(_) => return (outcome, Some(receiver)),
                _ => return (outcome, None),
            }
        }
    }

    /// Gives up a wait for a lock.
    pub fn cancel_wait(&mut self, waiter: WaiterId) {
        wake(self.locks.cancel(waiter));
        self.note_losers();
    }

    /// Notes from whom locks were taken.
    fn note_losers(&mut self) {
        let losers = self.locks.take_losers();
        if losers.is_empty() {
            return;
        }
        crate::metrics::metrics().locks_taken.inc_by(losers.len() as u64);
        let lost = |part: &PartKey| losers.contains(&part.txn);
        self.txns.iter_mut().filter(|(part, _)| lost(part)).for_each(|(_, entry)| entry.lost_locks = true);
    }

    /// Notes that a connection is open.
    pub fn open_connection(&mut self, connection: ConnectionId) {
        self.connections.insert(connection, Usage::default());
    }

    /// Whether a connection is open.
    pub fn has_connection(&self, connection: ConnectionId) -> bool {
        self.connections.contains_key(&connection)
    }

    /// Notes that a connection is gone. From now on no transaction starts on it, also not by a request
    /// that is still being evaluated; those it left open are returned.
    pub fn close_connection(&mut self, connection: ConnectionId) -> Vec<PartKey> {
        self.connections.remove(&connection);
        let open = |entry: &TxnEntry| entry.connection == connection && entry.status == TxnStatus::Pending;
        let mut open: Vec<PartKey> =
            self.txns.iter().filter(|(_, entry)| open(entry)).map(|(part, _)| *part).collect();
        open.sort_unstable();
        open
    }

    /// Notes that a request of a connection begins or ends to wait for a lock or a decision.
    pub fn note_lock_wait(&mut self, connection: ConnectionId, begins: bool) {
        if let Some(usage) = self.connections.get_mut(&connection) {
            let waits = usage.lock_waits;
            usage.lock_waits = if begins { waits + 1 } else { waits.saturating_sub(1) };
        }
    }

    /// How many requests of a connection wait for locks or decisions.
    pub fn lock_waits(&self, connection: ConnectionId) -> usize {
        self.connections.get(&connection).map_or(0, |usage| usage.lock_waits)
    }

    /// Checks that a transaction may go on, on this connection and under this hop number.
    ///
    /// # Errors
    /// [`KvErrorKind::Aborted`] if it ended, is committing, was handed over, belongs to another connection, says it
    /// has intents that this incarnation of the node does not know, or if the connection is gone.
    pub fn check(
        &self,
        part: PartKey,
        connection: ConnectionId,
        hop: u32,
        has_intents: bool,
    ) -> Result<(), KvError> {
        match self.txns.get(&part) {
            _ if !self.connections.contains_key(&connection) => Err(aborted("the connection is gone")),
            // Whatever connection it was prepared on.
            Some(TxnEntry { status: TxnStatus::Prepared(_), .. }) => {
                Err(aborted("the transaction is prepared"))
            }
            Some(entry) if entry.hop != hop => Err(transfer::handed_over()),
            Some(entry) if entry.connection != connection => {
                Err(aborted("the transaction belongs to another connection"))
            }
            Some(entry) if entry.status != TxnStatus::Pending => Err(aborted("the transaction is ending")),
            Some(entry) if has_intents && entry.intents.is_empty() => Err(lost_intents()),
            Some(_) => Ok(()),
            None if self.ended.contains(&part) => Err(aborted("the transaction has ended")),
            None if has_intents => Err(lost_intents()),
            None => Ok(()),
        }
    }

    /// Checks that a connection has room for one more transaction, if this one is not known yet.
    ///
    /// # Errors
    /// [`KvErrorKind::Overloaded`] if it has not.
    pub fn check_room(
        &self,
        part: PartKey,
        connection: ConnectionId,
        max_txns: usize,
    ) -> Result<(), KvError> {
        let open = self.connections.get(&connection).map_or(0, |usage| usage.txns);
        if open < max_txns || self.txns.contains_key(&part) {
            return Ok(());
        }
        Err(KvError::new(KvErrorKind::Overloaded, "too many open transactions on one connection"))
    }

    /// The entry of a part.
    pub fn txn(&self, part: PartKey) -> Option<&TxnEntry> {
        self.txns.get(&part)
    }

    /// The entry of a part, made if there is none. Call [`Shard::check`] before.
    pub fn txn_mut(&mut self, part: PartKey, connection: ConnectionId) -> &mut TxnEntry {
        let connections = &mut self.connections;
        self.txns.entry(part).or_insert_with(|| {
            crate::metrics::metrics().transactions.inc();
            if let Some(usage) = connections.get_mut(&connection) {
                usage.txns += 1;
            }
            TxnEntry {
                connection,
                hop: 0,
                status: TxnStatus::Pending,
                snapshot: None,
                intents: IntentSet::default(),
                tracked: Vec::new(),
                record: None,
                opened: None,
                lost_locks: false,
                since: 0,
                doomed: false,
            }
        })
    }

    /// The same, and notes that the part is known since now if it is new.
    pub fn open_txn(&mut self, part: PartKey, connection: ConnectionId, now: Millis) -> &mut TxnEntry {
        let entry = self.txn_mut(part, connection);
        entry.opened.get_or_insert(now);
        entry
    }

    /// Counts a transaction that is about to have its first intent.
    pub fn add_intent_txn(&mut self, part: PartKey) {
        self.change_intents(part.range, |intents| {
            intents.live.insert(part.txn.id);
        });
    }

    /// Notes that the first intents of a part were not written after all, unless others have come to them since.
    pub fn take_back_intents(&mut self, part: PartKey, generation: u64) {
        if let Some(entry) = self.txns.get_mut(&part)
            && entry.intents.generation() == generation
        {
            entry.intents = IntentSet::default();
            self.remove_intent_txn(part);
        }
    }

    /// How many transactions have intents in a range.
    pub fn intent_txns(&self, range: RangeId) -> usize {
        self.intents.get(&range).map_or(0, |intents| intents.live.len())
    }

    /// Whether transactions other than that of a part have intents in its range.
    pub fn has_foreign_intents(&self, part: PartKey) -> bool {
        let foreign =
            |intents: &RangeIntents| intents.live.len() > usize::from(intents.live.contains(&part.txn.id));
        self.intents.get(&part.range).is_some_and(foreign)
    }

    /// Notes that a transaction committed while intents of it remain.
    pub fn add_committed(&mut self, range: RangeId, txn: CommittedTxn) {
        self.change_intents(range, |intents| intents.add_committed(txn));
    }

    /// Notes that a part is prepared, as its record says.
    pub fn prepared(&mut self, part: PartKey, connection: ConnectionId, record: TxnRecord, now: Millis) {
        let at = record.timestamp;
        self.change_intents(part.range, |intents| intents.add_prepared(part.txn.id, at));
        let entry = self.open_txn(part, connection, now);
        entry.status = TxnStatus::Prepared(at);
        entry.record = Some(record);
        entry.since = now;
    }

    /// Notes that the record of an aborted transaction is kept, and since when.
    pub fn buried(&mut self, part: PartKey, at: Timestamp) {
        self.buried.push((part, at));
    }

    /// The records of aborted transactions that were written before `before`: they are needed no more.
    pub fn take_buried(&mut self, before: Timestamp) -> Vec<PartKey> {
        self.buried.extract_if(.., |(_, at)| *at < before).map(|(part, _)| part).collect()
    }

    /// Notes what was decided of a prepared part, ends it, and tells who waited for that. Says whether the part
    /// was there.
    pub fn decided(&mut self, part: PartKey, committed: Timestamp, now: Millis) -> bool {
        if !matches!(self.txns.get(&part), Some(TxnEntry { status: TxnStatus::Prepared(_), .. })) {
            return false;
        }
        // First, so that who is woken finds it.
        let record = self.txns.get(&part).and_then(|entry| entry.record.clone());
        if let Some(record) = record {
            let ignored = record.ignored.clone();
            self.change_intents(part.range, |intents| {
                intents.remove_prepared(part.txn.id);
                intents.add_committed(CommittedTxn { id: part.txn.id, timestamp: committed, ignored });
                intents.decided.insert(part.txn.id, Decided { record, committed, since: now });
            });
        }
        self.end(part);
        true
    }

    /// Notes that the record of a part that was decided says so now.
    pub fn recorded(&mut self, part: PartKey, record: TxnRecord) {
        let intents = self.intents.get_mut(&part.range);
        if let Some(decided) = intents.and_then(|intents| intents.decided.get_mut(&part.txn.id)) {
            decided.record = record;
        }
    }

    /// Ends a prepared part that was aborted: its intents count for nothing from now on. Returns what was known
    /// of it.
    pub fn undo_prepared(&mut self, part: PartKey) -> Option<TxnEntry> {
        self.change_intents(part.range, |intents| intents.remove_prepared(part.txn.id));
        self.end(part)
    }

    /// What is known of a prepared part that was decided and is not settled yet.
    pub fn decision(&self, part: PartKey) -> Option<&Decided> {
        self.intents.get(&part.range)?.decided.get(&part.txn.id)
    }

    /// Parts for which nobody seems to care any more: prepared before `gone` on a connection that has ended, or
    /// before `silent` on any, or known to be committed since before `unsettled`.
    pub fn abandoned(&self, gone: Millis, silent: Millis, unsettled: Millis) -> Vec<PartKey> {
        let prepared = self.txns.iter().filter(|(_, entry)| {
            let alive = self.connections.contains_key(&entry.connection);
            matches!(entry.status, TxnStatus::Prepared(_)) && entry.since < if alive { silent } else { gone }
        });
        let decided = self.intents.iter().flat_map(|(range, intents)| {
            let late = intents.decided.iter().filter(move |(_, decided)| decided.since < unsettled);
            late.map(|(id, decided)| (*range, *id, decided))
        });
        let decided = decided.map(|(range, id, decided)| {
            let tenant = TenantId::of_key(&decided.record.anchor).map_or(0, |tenant| tenant.0);
            PartKey { range, txn: TxnKey { tenant, id } }
        });
        let mut abandoned: Vec<_> = prepared.map(|(part, _)| *part).chain(decided).collect();
        abandoned.sort_unstable();
        abandoned
    }

    /// Whether prepared parts of a range are not settled yet: what is committed there may lie below its clock.
    pub fn has_unsettled(&self, range: RangeId) -> bool {
        let unsettled = |intents: &RangeIntents| !intents.prepared.is_empty() || !intents.decided.is_empty();
        self.intents.get(&range).is_some_and(unsettled)
    }

    /// Takes the keys of a span from a range: locks there are lost, and who waited for one is told.
    pub fn split(&mut self, range: RangeId, right: &Span) {
        for part in self.parts_of(range) {
            let before = self.locks.held_count(part.txn);
            wake(self.locks.release_within(part.txn, right));
            if self.locks.held_count(part.txn) < before
                && let Some(entry) = self.txns.get_mut(&part)
            {
                entry.lost_locks = true;
            }
        }
        self.note_losers();
    }

    /// Keeps transactions without intents in a range from having any, or no longer does.
    pub fn hold_intents(&mut self, range: RangeId, hold: bool) {
        if hold {
            self.held.entry(range).or_default();
        } else {
            for waiting in self.held.remove(&range).unwrap_or_default() {
                // Who waited may be gone.
                let _ = waiting.send(());
            }
        }
    }

    /// What tells when transactions may have intents in a range again, if they may not now.
    pub fn held_intents(&mut self, range: RangeId) -> Option<oneshot::Receiver<()>> {
        let waiting = self.held.get_mut(&range)?;
        if waiting.len() == waiting.capacity() {
            waiting.retain(|waiting| !waiting.is_closed());
        }
        let (sender, receiver) = oneshot::channel();
        waiting.push(sender);
        Some(receiver)
    }

    /// Whether the keys of a range can be divided: no transaction has intents there.
    pub fn is_divisible(&self, range: RangeId) -> bool {
        !self.intents.contains_key(&range)
    }

    /// Waits from now until it is known what becomes of a prepared part: told when it is, or at once.
    pub fn await_decision(
        &mut self,
        part: PartKey,
        txn: Option<TxnId>,
        now: Millis,
    ) -> oneshot::Receiver<()> {
        let (waker, woken) = oneshot::channel();
        let prepared =
            self.txns.get(&part).is_some_and(|entry| matches!(entry.status, TxnStatus::Prepared(_)));
        if prepared {
            let waiting = self.awaiting.entry(part).or_default();
            if waiting.len() == waiting.capacity() {
                // Those that gave up; not looked for every time, for there may be many.
                waiting.retain(|waiting| !waiting.waker.is_closed());
            }
            waiting.push(Awaiting { txn, since: now, waker });
        } else {
            // Who waits is there.
            let _ = waker.send(());
        }
        woken
    }

    /// Tenants of which transactions wait.
    pub fn waiting_tenants(&self) -> HashSet<u64> {
        self.awaiting.keys().map(|part| part.txn.tenant).chain(self.locks.waiting_tenants()).collect()
    }

    /// The priority of a transaction that waits.
    pub fn priority(&self, txn: TxnKey) -> Priority {
        self.locks.priority(txn)
    }

    /// Who waits for whom in a tenant, in locks and for decisions.
    pub fn waits(&self, tenant: u64) -> Vec<(TxnId, TxnId)> {
        let of_tenant = |part: &PartKey| part.txn.tenant == tenant;
        let decisions =
            self.awaiting.iter().filter(|(part, _)| of_tenant(part)).flat_map(|(part, waiting)| {
                let waiting = waiting.iter().filter(|waiting| !waiting.waker.is_closed());
                waiting.filter_map(|waiting| Some((waiting.txn?, part.txn.id)))
            });
        decisions.chain(self.locks.waits(tenant)).collect()
    }

    /// The requests of a tenant that wait for what becomes of prepared transactions of a range, the first first.
    pub fn waiting_readers(&self, tenant: u64, range: RangeId) -> Vec<WaitingReader> {
        let here = |part: &PartKey| part.range == range && part.txn.tenant == tenant;
        let parts = self.awaiting.iter().filter(|(part, _)| here(part));
        let mut readers: Vec<_> = parts
            .flat_map(|(part, waiting)| waiting.iter().map(|waiting| (part.txn.id, waiting)))
            .filter(|(_, waiting)| !waiting.waker.is_closed())
            .map(|(prepared, Awaiting { txn, since, .. })| WaitingReader {
                txn: *txn,
                prepared,
                since: *since,
            })
            .collect();
        readers.sort_by_key(|reader| (reader.since, reader.txn, reader.prepared));
        readers
    }

    /// The parts of a tenant's transactions in a range that are not over, by name.
    pub fn open_parts(&self, tenant: u64, range: RangeId) -> Vec<OpenPart> {
        let here = |part: &PartKey| part.range == range && part.txn.tenant == tenant;
        let open = |(part, entry): (&PartKey, &TxnEntry)| OpenPart {
            txn: part.txn,
            status: entry.status,
            opened: entry.opened,
            intents: entry.intents.generation(),
        };
        let mut parts: Vec<_> = self.txns.iter().filter(|(part, _)| here(part)).map(open).collect();
        parts.sort_by_key(|part| part.txn);
        parts
    }

    /// The transactions that have intents in a range and are not over, and since when they are known there.
    pub fn writers(&self, range: RangeId) -> HashMap<TxnId, Millis> {
        let writes = |part: &PartKey, entry: &TxnEntry| part.range == range && !entry.intents.is_empty();
        let writers = self.txns.iter().filter(|(part, entry)| writes(part, entry));
        writers.map(|(part, entry)| (part.txn.id, entry.opened.unwrap_or_default())).collect()
    }

    /// Ends the waits of a transaction for locks and decisions: it is one of a cycle.
    pub fn break_waits(&mut self, txn: TxnKey) {
        self.victims.insert(txn);
        let mut waiting: Vec<_> = self.awaiting.iter_mut().collect();
        // In an order that a simulation can repeat.
        waiting.sort_unstable_by_key(|(part, _)| **part);
        waiting.into_iter().for_each(|(_, waiting)| waiting.retain(|waiting| waiting.txn != Some(txn.id)));
        wake(self.locks.end_waits(txn));
        self.note_losers();
    }

    /// Whether the waits of a transaction were ended because of a cycle. Said once.
    pub fn take_victim(&mut self, txn: TxnKey) -> bool {
        self.victims.remove(&txn)
    }

    /// Notes that no intent of a transaction remains in a range.
    pub fn remove_intent_txn(&mut self, part: PartKey) {
        self.change_intents(part.range, |intents| intents.remove(part.txn.id));
    }

    /// The committed transactions of a range with intents left.
    pub fn committed(&self, range: RangeId) -> Vec<CommittedTxn> {
        self.intents.get(&range).map(|intents| intents.committed.clone()).unwrap_or_default()
    }

    /// What a reader takes into account.
    pub fn intent_view(&self, range: RangeId) -> IntentView {
        match self.intents.get(&range) {
            Some(intents) => IntentView {
                own: None,
                committed: intents.committed.clone(),
                prepared: intents.prepared.clone(),
            },
            None => IntentView::default(),
        }
    }

    /// Whose an intent is, seen by `asking`.
    pub fn owner(&self, range: RangeId, txn: TxnKey, asking: TxnId) -> IntentOwner {
        let id = txn.id;
        let committed =
            || self.intents.get(&range)?.committed.iter().find(|committed| committed.id == id).cloned();
        if id == asking {
            IntentOwner::Own
        } else if self.txns.contains_key(&PartKey { range, txn }) {
            IntentOwner::Pending
        } else {
            committed().map_or(IntentOwner::Aborted, IntentOwner::Committed)
        }
    }

    /// Ends a part: forgets it, gives up the locks of its transaction and wakes who waited for them or for what
    /// becomes of it. Returns what was known of it.
    pub fn end(&mut self, part: PartKey) -> Option<TxnEntry> {
        if self.ended.insert(part) {
            self.ended_order.push_back(part);
            if self.ended_order.len() > REMEMBERED
                && let Some(oldest) = self.ended_order.pop_front()
            {
                self.ended.remove(&oldest);
            }
        }
        wake(self.locks.release(part.txn));
        self.note_losers();
        self.victims.remove(&part.txn);
        let entry = self.forget_part(part);
        self.awaiting.remove(&part).unwrap_or_default().into_iter().for_each(Awaiting::wake);
        entry
    }

    fn forget_part(&mut self, part: PartKey) -> Option<TxnEntry> {
        let entry = self.txns.remove(&part);
        if let Some(entry) = &entry {
            self.detached.remove(part);
            crate::metrics::metrics().transactions.dec();
            if let Some(usage) = self.connections.get_mut(&entry.connection) {
                usage.txns = usage.txns.saturating_sub(1);
            }
        }
        entry
    }

    /// The oldest snapshot of an open transaction known here.
    pub fn oldest_snapshot(&self) -> Option<Timestamp> {
        self.txns.values().filter_map(|entry| entry.snapshot).min()
    }

    /// Whether transactions are open in a range, or their intents left.
    pub fn is_used(&self, range: RangeId) -> bool {
        self.intents.contains_key(&range) || self.txns.keys().any(|part| part.range == range)
    }

    /// The ranges of which it keeps something of transactions.
    pub fn ranges_used(&self) -> impl Iterator<Item = RangeId> {
        self.intents.keys().copied().chain(self.txns.keys().map(|part| part.range))
    }

    /// What it keeps of transactions, to be read by people.
    pub fn leftovers(&self) -> Vec<String> {
        let mut left: Vec<String> = Vec::new();
        for (part, TxnEntry { connection, status, intents, .. }) in &self.txns {
            let (locks, written) = (self.locks.held_count(part.txn), !intents.is_empty());
            left.push(format!(
                "{part:?}: {status:?}, connection {connection}, {locks} locks, written: {written}"
            ));
        }
        left.extend(self.intents.iter().map(|(range, intents)| {
            let RangeIntents { live, committed, prepared, decided } = intents;
            let (live, committed) = (live.len(), committed.len());
            let (prepared, decided) = (prepared.len(), decided.len());
            format!(
                "intents in range {range}: of {live} transactions, {committed} committed, {prepared} prepared, {decided} \
                 decided"
            )
        }));
        left.extend(self.held.iter().map(|(range, waiting)| {
            format!("range {range} is to have no intents: {} wait for that", waiting.len())
        }));
        left.extend((!self.latches.is_empty()).then(|| "latches".to_owned()));
        left.extend(
            (!self.locks.is_empty()).then(|| format!("{} keys locked or waited for", self.locks.len())),
        );
        // In an order that a simulation can repeat.
        left.sort_unstable();
        left
    }

    /// Whether the shard keeps nothing but the memory of ended transactions.
    pub fn is_idle(&self) -> bool {
        self.keeps_nobody_waiting() && self.txns.is_empty()
    }

    /// Whether it has no latches, locks or intents.
    pub fn keeps_nobody_waiting(&self) -> bool {
        self.latches.is_empty() && self.locks.is_empty() && self.intents.is_empty()
    }
}

fn wake(woken: Vec<Wakeup<oneshot::Sender<()>>>) {
    for wakeup in woken {
        // A waiter that is gone gives the lock up when its wait guard is dropped.
        let _ = wakeup.waker.send(());
    }
}

fn lost_intents() -> KvError {
    aborted("the KV node restarted and the transaction's writes are lost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn txn(byte: u8) -> PartKey {
        PartKey { range: 1, txn: TxnKey { tenant: 2, id: [byte; 16] } }
    }

    fn record(part: PartKey, at: u64) -> TxnRecord {
        TxnRecord {
            id: part.txn.id,
            status: RecordStatus::Prepared,
            timestamp: Timestamp::new(at, 0),
            ignored: Vec::new(),
            anchor: Bytes::from_static(b"a"),
            staged: None,
            spans: Vec::new(),
        }
    }

    /// One that is counted too few times is not seen by readers.
    #[test]
    fn what_readers_take_into_account_is_counted_whatever_happens_in_which_order() {
        let mut shard = Shard::default();
        shard.open_connection(1);
        let mut random = 1_u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let mut most = 0;
        for step in 0..20_000 {
            let part = PartKey { range: 1 + draw(2), ..txn(u8::try_from(draw(4)).expect("small")) };
            let at = Timestamp::new(step + 1, 0);
            match draw(8) {
                0 | 1 => shard.prepared(part, 1, record(part, step), step),
                2 => drop(shard.decided(part, at, step)),
                3 => drop(shard.undo_prepared(part)),
                4 => shard.remove_intent_txn(part),
                5 => {
                    let (id, ignored) = (part.txn.id, Vec::new());
                    shard.add_committed(part.range, CommittedTxn { id, timestamp: at, ignored });
                }
                6 => shard.add_intent_txn(part),
                _ if draw(10) == 0 => shard.forget(part.range, &Span::new("a".into(), "m".into())),
                _ => {}
            }
            let views = [shard.intent_view(1), shard.intent_view(2)];
            let seen: usize = views.iter().map(|view| view.committed.len() + view.prepared.len()).sum();
            assert_eq!(shard.unresolved.0.load(Ordering::SeqCst), seen, "step {step}");
            most = most.max(seen);
        }
        assert!(most >= 6, "{most}");
    }

    #[test]
    fn what_is_let_go_holds_nothing_and_may_come_again() {
        let mut shard = Shard::default();
        shard.open_connection(1);
        let (part, span) = (txn(1), Span::new("a".into(), "m".into()));
        let lock = |shard: &mut Shard, of: PartKey, key: &[u8]| {
            shard.txn_mut(of, 1);
            shard.acquire(of.txn, Priority::Normal, key, LockStrength::Exclusive, 0, false).0
        };
        assert_eq!(lock(&mut shard, part, b"b"), Acquire::Granted);
        shard.let_go_of_nothing(part);
        shard.let_go(part, 2, &span);
        assert!(shard.txn(part).is_some(), "it has a lock, and is of another connection");
        assert_eq!(lock(&mut shard, txn(2), b"b"), Acquire::Conflict);
        shard.let_go(part, 1, &span);
        assert!(shard.txn(part).is_none());
        assert_eq!(lock(&mut shard, txn(2), b"b"), Acquire::Granted);
        assert!(shard.check(part, 1, 0, false).is_ok(), "it has not ended");
        shard.txn_mut(txn(3), 1);
        shard.let_go_of_nothing(txn(3));
        assert!(shard.txn(txn(3)).is_none());
        shard.txn_mut(txn(2), 1).status = TxnStatus::Committing;
        shard.let_go(txn(2), 1, &span);
        assert!(shard.txn(txn(2)).is_some(), "what becomes of it is on its way");
    }

    #[test]
    fn what_is_let_go_while_its_range_is_split_leaves_no_locks() {
        let mut shard = Shard::default();
        shard.open_connection(1);
        let (left, right) = (Span::new("a".into(), "m".into()), Span::new("m".into(), "z".into()));
        let lock = |shard: &mut Shard, of: PartKey, key: &[u8]| {
            shard.txn_mut(of, 1);
            shard.acquire(of.txn, Priority::Normal, key, LockStrength::Exclusive, 0, false).0
        };
        for forgets in [false, true] {
            let part = txn(1);
            for key in [b"b", b"n"] {
                assert_eq!(lock(&mut shard, part, key), Acquire::Granted);
            }
            // The span of the range ends earlier already, and the locks behind it have not been given up yet.
            match forgets {
                true => shard.forget(part.range, &left),
                false => shard.let_go(part, 1, &left),
            }
            shard.split(part.range, &right);
            for key in [b"b", b"n"] {
                assert_eq!(lock(&mut shard, txn(2), key), Acquire::Granted);
            }
            shard.end(txn(2));
        }
        // Where the transaction is known in the range that was split off, too, its locks there are that part's.
        let (part, other) = (txn(3), PartKey { range: txn(3).range + 1, ..txn(3) });
        for (of, key) in [(part, b"b"), (other, b"n")] {
            assert_eq!(lock(&mut shard, of, key), Acquire::Granted);
        }
        shard.let_go(part, 1, &left);
        assert_eq!(lock(&mut shard, txn(4), b"b"), Acquire::Granted);
        assert_eq!(lock(&mut shard, txn(4), b"n"), Acquire::Conflict);
    }

    #[test]
    fn ended_transactions_are_refused_and_strangers_too() {
        let mut shard = Shard::default();
        assert!(shard.check(txn(1), 1, 0, false).is_err(), "no such connection");
        shard.open_connection(1);
        shard.open_connection(2);
        assert!(shard.check(txn(1), 1, 0, false).is_ok());
        assert!(shard.check(txn(1), 1, 0, true).is_err(), "intents of an earlier incarnation");
        shard.txn_mut(txn(1), 1);
        assert!(shard.check(txn(1), 1, 0, false).is_ok());
        assert!(shard.check(txn(1), 2, 0, false).is_err(), "another connection");
        shard.txn_mut(txn(1), 1).status = TxnStatus::Committing;
        assert!(shard.check(txn(1), 1, 0, false).is_err());
        shard.txn_mut(txn(2), 1);
        assert_eq!(shard.close_connection(1), [txn(2)], "what commits is not aborted");
        assert!(shard.end(txn(2)).is_some());
        assert!(shard.check(txn(3), 1, 0, false).is_err(), "the connection is gone");
        assert!(shard.end(txn(1)).is_some());
        assert!(shard.check(txn(1), 1, 0, false).is_err());
        assert!(shard.is_idle());
    }

    #[test]
    fn a_connection_has_room_for_so_many_transactions() {
        let mut shard = Shard::default();
        shard.open_connection(1);
        shard.txn_mut(txn(1), 1);
        shard.txn_mut(txn(1), 1);
        assert!(shard.check_room(txn(2), 1, 2).is_ok());
        shard.txn_mut(txn(2), 1);
        assert!(shard.check_room(txn(3), 1, 2).is_err());
        assert!(shard.check_room(txn(2), 1, 2).is_ok(), "known already");
        shard.end(txn(1));
        shard.end(txn(1));
        assert!(shard.check_room(txn(3), 1, 2).is_ok());
    }

    #[test]
    fn the_memory_of_ended_transactions_is_bounded() {
        let mut shard = Shard::default();
        for number in 0..(REMEMBERED as u32 + 100) {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&number.to_be_bytes());
            shard.end(PartKey { range: 1, txn: TxnKey { tenant: 2, id } });
        }
        assert_eq!((shard.ended.len(), shard.ended_order.len()), (REMEMBERED, REMEMBERED));
    }

    #[test]
    fn intent_owners_are_told_apart() {
        let mut shard = Shard::default();
        shard.txn_mut(txn(1), 1);
        shard.add_intent_txn(txn(1));
        shard.add_intent_txn(txn(2));
        let committed =
            CommittedTxn { id: [2; 16], timestamp: kv_api::Timestamp::new(5, 0), ignored: vec![] };
        shard.add_committed(1, committed.clone());
        assert_eq!(shard.owner(1, txn(1).txn, [1; 16]), IntentOwner::Own);
        assert_eq!(shard.owner(1, txn(1).txn, [9; 16]), IntentOwner::Pending);
        assert_eq!(shard.owner(1, txn(2).txn, [9; 16]), IntentOwner::Committed(committed));
        assert_eq!(shard.owner(1, txn(3).txn, [9; 16]), IntentOwner::Aborted);
        assert_eq!(shard.owner(3, txn(2).txn, [9; 16]), IntentOwner::Aborted, "another range");
        shard.remove_intent_txn(txn(2));
        shard.remove_intent_txn(txn(2));
        assert_eq!(shard.intent_txns(1), 1, "settled twice, which says nothing of others");
        shard.remove_intent_txn(txn(1));
        shard.end(txn(1));
        assert!(shard.is_idle());
    }
}
