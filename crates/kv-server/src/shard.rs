//! Shards: what the node keeps in memory about transactions, latches and locks.
//!
//! Each tenant belongs to one shard, and so does everything its transactions contend for; shards only
//! divide the contention for their mutex. A tenant without transactions takes no memory. A tenant has one
//! range; where it will have several, each has what a shard has.

use crate::latch::Latches;
use crate::lock_table::{LockTable, TxnKey};
use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use kv_api::{KvError, KvErrorKind, Span, Timestamp};
use replication::RangeId;
use std::collections::VecDeque;
use storage::intent::{CommittedTxn, IntentView, TxnId};
use tokio::sync::oneshot;

/// Names a connection within the node.
pub type ConnectionId = u64;

/// How many ended transactions a shard remembers, to refuse requests that come late.
const REMEMBERED: usize = 4096;
/// Most keys of flushed intents a transaction remembers one by one.
const EXACT_INTENT_KEYS: usize = 512;
/// Most spans it remembers beyond that.
const INTENT_SPANS: usize = 128;
/// Most spans a transaction remembers having read for range deletions.
const TRACKED_SPANS: usize = 1024;
/// Keys that agree in this many bytes, the tenant, table and index, share such a span.
const SPAN_PREFIX: usize = 13;

/// The keys a transaction flushed intents to.
#[derive(Clone, Debug, Default)]
pub struct IntentSet {
    /// Every key, as long as there are few.
    exact: HashSet<Bytes>,
    /// First and last keys by common prefix, once there are many.
    spans: Vec<(Bytes, Bytes)>,
    /// Grows with every change.
    generation: u64,
}

impl IntentSet {
    /// Whether nothing was flushed.
    pub fn is_empty(&self) -> bool {
        self.generation == 0
    }

    /// Tells two states of the set apart.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Notes a key.
    pub fn insert(&mut self, key: &Bytes) {
        self.generation += 1;
        if self.spans.is_empty() {
            if !self.exact.contains(key) {
                self.exact.insert(Bytes::copy_from_slice(key));
            }
            if self.exact.len() > EXACT_INTENT_KEYS {
                for key in std::mem::take(&mut self.exact) {
                    self.widen(&key);
                }
            }
        } else {
            self.widen(key);
        }
    }

    fn widen(&mut self, key: &[u8]) {
        let prefix = &key[..key.len().min(SPAN_PREFIX)];
        let full = self.spans.len() >= INTENT_SPANS;
        let place = self.spans.iter().position(|(first, _)| first.starts_with(prefix)).or(full.then_some(0));
        match place.and_then(|place| self.spans.get_mut(place)) {
            Some((first, last)) => {
                if key < &first[..] {
                    *first = Bytes::copy_from_slice(key);
                } else if key > &last[..] {
                    *last = Bytes::copy_from_slice(key);
                }
            }
            None => self.spans.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(key))),
        }
    }

    /// Every key, if they are few enough to be known.
    pub fn exact(&self) -> Option<Vec<Bytes>> {
        self.spans.is_empty().then(|| {
            let mut keys: Vec<_> = self.exact.iter().cloned().collect();
            keys.sort_unstable();
            keys
        })
    }

    /// Spans that hold every key.
    pub fn covering(&self) -> Vec<Span> {
        // In an order that a simulation can repeat.
        let points = self.exact().unwrap_or_default().into_iter().map(Span::point);
        let ranges = self.spans.iter().map(|(first, last)| Span::new(first.clone(), key_after(last)));
        points.chain(ranges).collect()
    }
}

/// The smallest key greater than `key`.
pub fn key_after(key: &[u8]) -> Bytes {
    let mut after = Vec::with_capacity(key.len() + 1);
    after.extend_from_slice(key);
    after.push(0);
    Bytes::from(after)
}

/// Where a transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnStatus {
    /// Open.
    Pending,
    /// Its commit is with the pipeline; nothing can stop it.
    Committing,
}

/// What the node keeps about an open transaction that holds locks or intents.
#[derive(Debug)]
pub struct TxnEntry {
    /// The connection it came on and dies with.
    pub connection: ConnectionId,
    /// The range in which it has locks and intents.
    pub range: RangeId,
    /// Where it stands.
    pub status: TxnStatus,
    /// Where it read when it came to be known; the history it may still read or be checked against is
    /// kept.
    pub snapshot: Option<Timestamp>,
    /// Its flushed intents.
    pub intents: IntentSet,
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

/// What there is to know about the intents of one tenant.
#[derive(Debug, Default)]
pub struct TenantIntents {
    /// Transactions of which intents may be in the lock space. By name, so that what is heard late of a
    /// transaction of an earlier lease counts for nothing.
    pub live: HashSet<TxnId>,
    /// Those that are committed.
    pub committed: Vec<CommittedTxn>,
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
    connections: HashMap<ConnectionId, Usage>,
    txns: HashMap<TxnKey, TxnEntry>,
    intents: HashMap<u64, TenantIntents>,
    ended: HashSet<TxnKey>,
    ended_order: VecDeque<TxnKey>,
}

/// The error for a transaction that is not, or no longer, known.
pub fn aborted(message: &str) -> KvError {
    KvError::new(KvErrorKind::Aborted, message)
}

impl Shard {
    /// Forgets the transactions of a tenant: they were of another lease. Returns how many were committed
    /// with intents left. Who waits for their locks is told that they ended; latches stay with those who
    /// are evaluating, whose commands will be refused.
    pub fn forget(&mut self, tenant: u64) -> usize {
        let of_tenant = |txn: &&TxnKey| txn.tenant == tenant;
        let mut open: Vec<TxnKey> = self.txns.keys().filter(of_tenant).copied().collect();
        // In an order that a simulation can repeat.
        open.sort_unstable();
        for txn in open {
            self.end(txn);
        }
        self.ended.retain(|txn| txn.tenant != tenant);
        self.ended_order.retain(|txn| txn.tenant != tenant);
        self.intents.remove(&tenant).map_or(0, |intents| intents.committed.len())
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
    pub fn close_connection(&mut self, connection: ConnectionId) -> Vec<TxnKey> {
        self.connections.remove(&connection);
        let open = |entry: &TxnEntry| entry.connection == connection && entry.status == TxnStatus::Pending;
        let mut open: Vec<TxnKey> =
            self.txns.iter().filter(|(_, entry)| open(entry)).map(|(txn, _)| *txn).collect();
        open.sort_unstable();
        open
    }

    /// Notes that a request of a connection begins or ends to wait for a lock.
    pub fn note_lock_wait(&mut self, connection: ConnectionId, begins: bool) {
        if let Some(usage) = self.connections.get_mut(&connection) {
            let waits = usage.lock_waits;
            usage.lock_waits = if begins { waits + 1 } else { waits.saturating_sub(1) };
        }
    }

    /// How many requests of a connection wait for locks.
    pub fn lock_waits(&self, connection: ConnectionId) -> usize {
        self.connections.get(&connection).map_or(0, |usage| usage.lock_waits)
    }

    /// Checks that a transaction may go on, on this connection.
    ///
    /// # Errors
    /// [`KvErrorKind::Aborted`] if it ended, is committing, belongs to another connection, says it
    /// has intents that this incarnation of the node does not know, or if the connection is gone.
    pub fn check(&self, txn: TxnKey, connection: ConnectionId, has_intents: bool) -> Result<(), KvError> {
        match self.txns.get(&txn) {
            _ if !self.connections.contains_key(&connection) => Err(aborted("the connection is gone")),
            Some(entry) if entry.connection != connection => {
                Err(aborted("the transaction belongs to another connection"))
            }
            Some(entry) if entry.status == TxnStatus::Committing => Err(aborted("the transaction is ending")),
            Some(entry) if has_intents && entry.intents.is_empty() => Err(lost_intents()),
            Some(_) => Ok(()),
            None if self.ended.contains(&txn) => Err(aborted("the transaction has ended")),
            None if has_intents => Err(lost_intents()),
            None => Ok(()),
        }
    }

    /// Checks that a connection has room for one more transaction, if this one is not known yet.
    ///
    /// # Errors
    /// [`KvErrorKind::Overloaded`] if it has not.
    pub fn check_room(&self, txn: TxnKey, connection: ConnectionId, max_txns: usize) -> Result<(), KvError> {
        let open = self.connections.get(&connection).map_or(0, |usage| usage.txns);
        if open < max_txns || self.txns.contains_key(&txn) {
            return Ok(());
        }
        Err(KvError::new(KvErrorKind::Overloaded, "too many open transactions on one connection"))
    }

    /// The entry of an open transaction.
    pub fn txn(&self, txn: TxnKey) -> Option<&TxnEntry> {
        self.txns.get(&txn)
    }

    /// The entry of a transaction, made if there is none. Call [`Shard::check`] before.
    pub fn txn_mut(&mut self, txn: TxnKey, connection: ConnectionId, range: RangeId) -> &mut TxnEntry {
        let connections = &mut self.connections;
        self.txns.entry(txn).or_insert_with(|| {
            crate::metrics::metrics().transactions.inc();
            if let Some(usage) = connections.get_mut(&connection) {
                usage.txns += 1;
            }
            TxnEntry {
                connection,
                range,
                status: TxnStatus::Pending,
                snapshot: None,
                intents: IntentSet::default(),
                tracked: Vec::new(),
            }
        })
    }

    /// Counts a transaction that is about to have its first intent.
    pub fn add_intent_txn(&mut self, txn: TxnKey) {
        self.intents.entry(txn.tenant).or_default().live.insert(txn.id);
    }

    /// How many transactions of a tenant have intents.
    pub fn intent_txns(&self, tenant: u64) -> usize {
        self.intents.get(&tenant).map_or(0, |intents| intents.live.len())
    }

    /// Notes that a transaction committed while intents of it remain.
    pub fn add_committed(&mut self, tenant: u64, txn: CommittedTxn) {
        self.intents.entry(tenant).or_default().committed.push(txn);
    }

    /// Notes that no intent of a transaction remains. Says whether it was committed.
    pub fn remove_intent_txn(&mut self, txn: TxnKey) -> bool {
        let Some(intents) = self.intents.get_mut(&txn.tenant) else { return false };
        intents.live.remove(&txn.id);
        let before = intents.committed.len();
        intents.committed.retain(|committed| committed.id != txn.id);
        let was_committed = intents.committed.len() < before;
        if intents.live.is_empty() && intents.committed.is_empty() {
            self.intents.remove(&txn.tenant);
        }
        was_committed
    }

    /// The committed transactions of a tenant with intents left.
    pub fn committed(&self, tenant: u64) -> Vec<CommittedTxn> {
        self.intents.get(&tenant).map(|intents| intents.committed.clone()).unwrap_or_default()
    }

    /// What a reader takes into account.
    pub fn intent_view(&self, tenant: u64) -> IntentView {
        IntentView { own: None, committed: self.committed(tenant) }
    }

    /// Whose an intent is, seen by `asking`.
    pub fn owner(&self, tenant: u64, id: TxnId, asking: TxnId) -> IntentOwner {
        let committed =
            || self.intents.get(&tenant)?.committed.iter().find(|committed| committed.id == id).cloned();
        if id == asking {
            IntentOwner::Own
        } else if self.txns.contains_key(&TxnKey { tenant, id }) {
            IntentOwner::Pending
        } else {
            committed().map_or(IntentOwner::Aborted, IntentOwner::Committed)
        }
    }

    /// Ends a transaction: forgets it, gives up its locks and wakes who waited for them. Returns what
    /// was known of it.
    pub fn end(&mut self, txn: TxnKey) -> Option<TxnEntry> {
        if self.ended.insert(txn) {
            self.ended_order.push_back(txn);
            if self.ended_order.len() > REMEMBERED
                && let Some(oldest) = self.ended_order.pop_front()
            {
                self.ended.remove(&oldest);
            }
        }
        for wakeup in self.locks.release(txn) {
            // A waiter that is gone gives the lock up when its wait guard is dropped.
            let _ = wakeup.waker.send(());
        }
        let entry = self.txns.remove(&txn);
        if let Some(entry) = &entry {
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

    /// Whether transactions of a tenant are open, or their intents left.
    pub fn is_used(&self, tenant: u64) -> bool {
        self.intents.contains_key(&tenant) || self.txns.keys().any(|txn| txn.tenant == tenant)
    }

    /// Whether the shard keeps nothing but the memory of ended transactions.
    pub fn is_idle(&self) -> bool {
        self.latches.is_empty() && self.locks.is_empty() && self.txns.is_empty() && self.intents.is_empty()
    }
}

fn lost_intents() -> KvError {
    aborted("the KV node restarted and the transaction's writes are lost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn txn(byte: u8) -> TxnKey {
        TxnKey { tenant: 2, id: [byte; 16] }
    }

    #[test]
    fn ended_transactions_are_refused_and_strangers_too() {
        let mut shard = Shard::default();
        assert!(shard.check(txn(1), 1, false).is_err(), "no such connection");
        shard.open_connection(1);
        shard.open_connection(2);
        assert!(shard.check(txn(1), 1, false).is_ok());
        assert!(shard.check(txn(1), 1, true).is_err(), "intents of an earlier incarnation");
        shard.txn_mut(txn(1), 1, 1);
        assert!(shard.check(txn(1), 1, false).is_ok());
        assert!(shard.check(txn(1), 2, false).is_err(), "another connection");
        shard.txn_mut(txn(1), 1, 1).status = TxnStatus::Committing;
        assert!(shard.check(txn(1), 1, false).is_err());
        shard.txn_mut(txn(2), 1, 1);
        assert_eq!(shard.close_connection(1), [txn(2)], "what commits is not aborted");
        assert!(shard.end(txn(2)).is_some());
        assert!(shard.check(txn(3), 1, false).is_err(), "the connection is gone");
        assert!(shard.end(txn(1)).is_some());
        assert!(shard.check(txn(1), 1, false).is_err());
        assert!(shard.is_idle());
    }

    #[test]
    fn a_connection_has_room_for_so_many_transactions() {
        let mut shard = Shard::default();
        shard.open_connection(1);
        shard.txn_mut(txn(1), 1, 1);
        shard.txn_mut(txn(1), 1, 1);
        assert!(shard.check_room(txn(2), 1, 2).is_ok());
        shard.txn_mut(txn(2), 1, 1);
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
            shard.end(TxnKey { tenant: 2, id });
        }
        assert_eq!((shard.ended.len(), shard.ended_order.len()), (REMEMBERED, REMEMBERED));
    }

    #[test]
    fn intent_owners_are_told_apart() {
        let mut shard = Shard::default();
        shard.txn_mut(txn(1), 1, 1);
        shard.add_intent_txn(txn(1));
        shard.add_intent_txn(txn(2));
        let committed =
            CommittedTxn { id: [2; 16], timestamp: kv_api::Timestamp::new(5, 0), ignored: vec![] };
        shard.add_committed(2, committed.clone());
        assert_eq!(shard.owner(2, [1; 16], [1; 16]), IntentOwner::Own);
        assert_eq!(shard.owner(2, [1; 16], [9; 16]), IntentOwner::Pending);
        assert_eq!(shard.owner(2, [2; 16], [9; 16]), IntentOwner::Committed(committed));
        assert_eq!(shard.owner(2, [3; 16], [9; 16]), IntentOwner::Aborted);
        assert_eq!(shard.owner(3, [2; 16], [9; 16]), IntentOwner::Aborted, "another tenant");
        assert!(shard.remove_intent_txn(txn(2)));
        assert!(!shard.remove_intent_txn(txn(2)), "settled already");
        assert_eq!(shard.intent_txns(2), 1, "which says nothing of others");
        assert!(!shard.remove_intent_txn(txn(1)));
        shard.end(txn(1));
        assert!(shard.is_idle());
    }

    #[test]
    fn intent_sets_cover_every_key_with_bounded_memory() {
        let mut set = IntentSet::default();
        assert!(set.is_empty());
        let key = |table: u32, row: u32| {
            let mut key = vec![0x10; 12];
            key.extend(table.to_be_bytes());
            key.extend(row.to_be_bytes());
            Bytes::from(key)
        };
        for row in 0..10 {
            set.insert(&key(1, row));
            set.insert(&key(1, row));
        }
        assert_eq!(set.exact().map(|keys| keys.len()), Some(10));
        for table in 0..200 {
            for row in 0..20 {
                set.insert(&key(table, row * 7));
            }
        }
        assert_eq!(set.exact(), None);
        let spans = set.covering();
        assert!(spans.len() <= INTENT_SPANS);
        for table in 0..200 {
            for row in 0..20 {
                assert!(spans.iter().any(|span| span.contains(&key(table, row * 7))));
            }
        }
    }
}
