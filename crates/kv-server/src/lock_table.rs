//! The lock table: which transaction holds which key, and who waits for it.
//!
//! Locks live in memory only and order contending transactions fairly; commits are validated whether
//! or not locks were taken, so nothing depends on them for correctness.
//!
//! # Rules
//!
//! * One queue per key, first come first served. A request waits behind a conflicting holder and
//!   behind every earlier conflicting waiter; a shared request does not overtake an exclusive one.
//! * A holder that wants more than it has (an upgrade) goes ahead of those who hold nothing.
//! * A transaction waits for the conflicting holders of a key and for the conflicting waiters before
//!   it. A request that would close a cycle of such waits is refused at once, unless another of the cycle has a lower
//!   priority: then that one is to give way.
//! * An intent holds its key whoever else does: a holder that finds one waits for it like everybody else.
//! * A request of high priority stands before waiters of low priority that hold nothing, and takes the lock from
//!   holders of low priority as soon as nobody else is in its way ([`LockTable::take_losers`]). Not from *firm* ones:
//!   those with intents, and those whose commit is under way.
//! * Releasing a transaction's locks grants the front of each queue as far as it is compatible.
//! * A queue is as long as [`LockTable::bound_queues`] lets it be; whoever comes then is told so and does not wait.
//!
//! No step takes longer in proportion to the length of a queue, or to how many hold a key, but for the search of
//! cycles, which grows with the number of transactions that wait for the one that asks, and but for requests of
//! high priority, which look at all holders.
//!
//! Pure: `W` is whatever wakes a waiter, and times are told.

mod listing;
mod lock;
mod standing;
mod waits;

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use kv_api::{LockStrength, Priority, Span};
use lock::{Lock, Place, Waiter};
use replication::Millis;
use standing::Standings;
use storage::intent::TxnId;

/// Names a transaction within the node: its tenant and the id its coordinator chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TxnKey {
    /// The tenant whose transaction it is; ids of different tenants never meet.
    pub tenant: u64,
    /// Sixteen random bytes.
    pub id: TxnId,
}

/// Names a wait.
pub type WaiterId = u64;

/// What became of a lock request.
#[derive(Debug, PartialEq, Eq)]
pub enum Acquire {
    /// The lock is held now.
    Granted,
    /// The request is in the queue under this name.
    Waiting(WaiterId),
    /// Waiting would close a cycle.
    Deadlock,
    /// It would close a cycle in which this transaction has a lower priority and waits.
    DeadlockOf(TxnKey),
    /// Another holds or awaits the lock, and the request would not wait.
    Conflict,
    /// As many as may wait for the lock already do.
    Full,
}

/// A wait that ended because the lock was granted.
#[derive(Debug, PartialEq, Eq)]
pub struct Wakeup<W> {
    /// The transaction that holds the lock now.
    pub txn: TxnKey,
    /// What wakes it.
    pub waker: W,
}

/// A lock that is held, for a listing.
#[derive(Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// The key.
    pub key: Bytes,
    /// Who holds it.
    pub txn: TxnKey,
    /// How.
    pub strength: LockStrength,
    /// Since when; absent if that was a moment ago.
    pub since: Option<Millis>,
}

/// A request in a queue, for a listing.
#[derive(Debug, PartialEq, Eq)]
pub struct AwaitedLock {
    /// The key.
    pub key: Bytes,
    /// Whose request it is.
    pub txn: TxnKey,
    /// What it wants.
    pub strength: LockStrength,
    /// Since when it waits.
    pub since: Millis,
    /// Whom it waits for: holders first, then who waits before it. Only some if there are many.
    pub blockers: Vec<TxnKey>,
}

/// Where a waiter waits.
struct Wait {
    txn: TxnKey,
    key: Bytes,
    place: Place,
}

/// The locks of one shard.
pub struct LockTable<W> {
    next_waiter: WaiterId,
    max_queue: usize,
    locks: HashMap<Bytes, Lock<W>>,
    /// The keys each transaction holds.
    held: HashMap<TxnKey, Vec<Bytes>>,
    /// Where each waiter waits.
    waiting: HashMap<WaiterId, Wait>,
    /// The waits of each transaction.
    waits_of: HashMap<TxnKey, Vec<WaiterId>>,
    /// The keys that somebody waits for.
    queued: HashSet<Bytes>,
    standings: Standings,
    /// From whom locks were taken.
    losers: Vec<TxnKey>,
}

impl<W> Default for LockTable<W> {
    fn default() -> Self {
        LockTable {
            next_waiter: 1,
            max_queue: usize::MAX,
            locks: HashMap::new(),
            held: HashMap::new(),
            waiting: HashMap::new(),
            waits_of: HashMap::new(),
            queued: HashSet::new(),
            standings: Standings::default(),
            losers: Vec::new(),
        }
    }
}

impl<W> LockTable<W> {
    /// Sets how many may wait for one key.
    pub fn bound_queues(&mut self, max_queue: usize) {
        self.max_queue = max_queue;
    }

    /// The strength a transaction holds on a key.
    pub fn held(&self, txn: TxnKey, key: &[u8]) -> LockStrength {
        self.locks.get(key).and_then(|lock| lock.held_by(txn)).unwrap_or(LockStrength::None)
    }

    /// Whether a transaction could have a lock at once without taking it from anybody.
    pub fn is_free(&self, txn: TxnKey, key: &[u8], strength: LockStrength) -> bool {
        let nobody = Standings::default();
        let free =
            |lock: &Lock<W>| lock.is_held_alone(txn, strength) || !lock.must_wait(&nobody, txn, strength);
        self.locks.get(key).is_none_or(free)
    }

    /// Asks for a lock, now. `waker` is called if the request must wait; with `None` it does not wait.
    pub fn acquire<F: FnOnce() -> W>(
        &mut self,
        txn: TxnKey,
        priority: Priority,
        key: &[u8],
        strength: LockStrength,
        now: Millis,
        waker: Option<F>,
    ) -> Acquire {
        self.standings.note(txn, priority);
        let Some(lock) = self.locks.get_mut(key) else {
            let key = Bytes::copy_from_slice(key);
            self.locks.insert(key.clone(), Lock::new(txn, strength, now));
            self.held.entry(txn).or_default().push(key);
            return Acquire::Granted;
        };
        if lock.is_held_alone(txn, strength) {
            return Acquire::Granted;
        }
        if !lock.must_wait(&self.standings, txn, strength) {
            let losers = lock.take(&self.standings, txn, strength);
            forget_held(&mut self.held, &mut self.losers, key, losers);
            if lock.grant(txn, strength, Some(now)) {
                self.held.entry(txn).or_default().push(Bytes::copy_from_slice(key));
            }
            return Acquire::Granted;
        }
        let Some(waker) = waker else {
            self.forget_standing(txn);
            return Acquire::Conflict;
        };
        if lock.queue().len() >= self.max_queue {
            self.forget_standing(txn);
            return Acquire::Full;
        }
        let id = self.next_waiter;
        let place = lock.place(&self.standings, txn, id);
        let key = Bytes::copy_from_slice(key);
        if self.closes_cycle(txn, &key, strength, place) {
            let victim = self.least_of_cycle(txn, &key, strength, place);
            self.forget_standing(txn);
            return victim.map_or(Acquire::Deadlock, Acquire::DeadlockOf);
        }
        self.next_waiter += 1;
        if let Some(lock) = self.locks.get_mut(&key) {
            lock.enqueue(place, Waiter { txn, strength, since: now, waker: waker() });
        }
        self.queued.insert(key.clone());
        self.waiting.insert(id, Wait { txn, key, place });
        self.waits_of.entry(txn).or_default().push(id);
        Acquire::Waiting(id)
    }

    /// The first transaction that a waiter waits for.
    pub fn blocker(&self, waiter: WaiterId) -> Option<TxnKey> {
        let wait = self.waiting.get(&waiter)?;
        let lock = self.locks.get(&wait.key)?;
        let own = lock.queue().get(&wait.place)?;
        lock.blockers(&self.standings, own.txn, own.strength, wait.place).next()
    }

    /// The first transaction that stands in the way of a request that does not wait.
    pub fn obstacle(&self, txn: TxnKey, key: &[u8], strength: LockStrength) -> Option<TxnKey> {
        let lock = self.locks.get(key)?;
        let place = lock.place(&self.standings, txn, WaiterId::MAX);
        lock.blockers(&self.standings, txn, strength, place).next()
    }

    /// From now on nobody takes locks from a transaction.
    pub fn make_firm(&mut self, txn: TxnKey) {
        self.standings.make_firm(txn);
    }

    /// Transactions from which locks were taken since this was asked last.
    pub fn take_losers(&mut self) -> Vec<TxnKey> {
        std::mem::take(&mut self.losers)
    }

    /// The priority of a transaction that holds or waits for locks.
    pub fn priority(&self, txn: TxnKey) -> Priority {
        self.standings.priority(txn)
    }

    /// Forgets a transaction's standing if it neither holds nor waits for anything.
    fn forget_standing(&mut self, txn: TxnKey) {
        if !self.knows(txn) {
            self.standings.remove(txn);
        }
    }

    /// Notes when a lock that was waited for was granted.
    pub fn note_granted(&mut self, txn: TxnKey, key: &[u8], now: Millis) {
        if let Some(holder) = self.locks.get_mut(key).and_then(|lock| lock.holder_mut(txn)) {
            holder.since.get_or_insert(now);
        }
    }

    /// Makes `txn` the holder of a key that its durable intent protects, ahead of everyone who waits.
    pub fn hold_for_intent(&mut self, txn: TxnKey, key: &[u8], now: Millis) {
        self.standings.make_firm(txn);
        let fresh = match self.locks.get_mut(key) {
            Some(lock) => lock.grant(txn, LockStrength::Exclusive, Some(now)),
            None => {
                let lock = Lock::new(txn, LockStrength::Exclusive, now);
                self.locks.insert(Bytes::copy_from_slice(key), lock);
                true
            }
        };
        if fresh {
            self.held.entry(txn).or_default().push(Bytes::copy_from_slice(key));
        }
    }

    /// Takes a waiter out of its queue; does nothing if it was granted before.
    #[must_use]
    pub fn cancel(&mut self, waiter: WaiterId) -> Vec<Wakeup<W>> {
        let mut woken = Vec::new();
        self.cancel_into(waiter, &mut woken);
        woken
    }

    fn cancel_into(&mut self, waiter: WaiterId, woken: &mut Vec<Wakeup<W>>) {
        let Some(Wait { txn, key, place }) = self.waiting.remove(&waiter) else { return };
        self.forget_wait(txn, waiter);
        if let Some(lock) = self.locks.get_mut(&key) {
            lock.dequeue(place);
        }
        self.grant_front(&key, woken);
        self.forget_standing(txn);
    }

    /// Gives up everything a transaction holds. Its own waits end; their wakers are dropped.
    #[must_use]
    pub fn release(&mut self, txn: TxnKey) -> Vec<Wakeup<W>> {
        let mut woken = self.end_waits(txn);
        for key in self.held.remove(&txn).unwrap_or_default() {
            self.release_key(txn, &key, &mut woken);
        }
        self.standings.remove(txn);
        woken
    }

    /// Gives up what a transaction holds within a span, and its waits there.
    #[must_use]
    pub fn release_within(&mut self, txn: TxnKey, span: &Span) -> Vec<Wakeup<W>> {
        let mut woken = Vec::new();
        let within =
            |waiter: &WaiterId| self.waiting.get(waiter).is_some_and(|wait| span.contains(&wait.key));
        let waits = self.waits_of.get(&txn).into_iter().flatten();
        let waits: Vec<WaiterId> = waits.copied().filter(within).collect();
        waits.into_iter().for_each(|waiter| self.cancel_into(waiter, &mut woken));
        let Some(held) = self.held.get_mut(&txn) else {
            self.forget_standing(txn);
            return woken;
        };
        let (gone, kept): (Vec<_>, Vec<_>) =
            std::mem::take(held).into_iter().partition(|key| span.contains(key));
        if kept.is_empty() {
            self.held.remove(&txn);
        } else {
            *held = kept;
        }
        for key in gone {
            self.release_key(txn, &key, &mut woken);
        }
        self.forget_standing(txn);
        woken
    }

    fn release_key(&mut self, txn: TxnKey, key: &Bytes, woken: &mut Vec<Wakeup<W>>) {
        if let Some(lock) = self.locks.get_mut(key) {
            lock.release(txn);
        }
        self.grant_front(key, woken);
    }

    /// Ends all waits of a transaction; their wakers are dropped. What it holds it keeps.
    #[must_use]
    pub fn end_waits(&mut self, txn: TxnKey) -> Vec<Wakeup<W>> {
        let mut woken = Vec::new();
        let waits = self.waits_of.get(&txn).cloned().unwrap_or_default();
        waits.into_iter().for_each(|waiter| self.cancel_into(waiter, &mut woken));
        woken
    }

    /// Tenants of which transactions wait.
    pub fn waiting_tenants(&self) -> impl Iterator<Item = u64> {
        self.waits_of.keys().map(|txn| txn.tenant)
    }

    fn forget_wait(&mut self, txn: TxnKey, waiter: WaiterId) {
        if let Some(waits) = self.waits_of.get_mut(&txn) {
            waits.retain(|id| *id != waiter);
            if waits.is_empty() {
                self.waits_of.remove(&txn);
            }
        }
    }

    fn grant_front(&mut self, key: &Bytes, woken: &mut Vec<Wakeup<W>>) {
        let Some(lock) = self.locks.get_mut(key) else { return };
        let mut granted = Vec::new();
        while let Some((place, waiter)) = lock.next_granted(&self.standings) {
            let losers = lock.take(&self.standings, waiter.txn, waiter.strength);
            forget_held(&mut self.held, &mut self.losers, key, losers);
            // When that is, whoever is woken says.
            let fresh = lock.grant(waiter.txn, waiter.strength, None);
            granted.push((place.id, fresh, waiter));
        }
        if lock.queue().is_empty() {
            self.queued.remove(key);
        }
        if lock.is_unused() {
            self.locks.remove(key);
        }
        for (id, fresh, waiter) in granted {
            if fresh {
                self.held.entry(waiter.txn).or_default().push(key.clone());
            }
            self.waiting.remove(&id);
            self.forget_wait(waiter.txn, id);
            woken.push(Wakeup { txn: waiter.txn, waker: waiter.waker });
        }
    }

    /// Whether a transaction holds locks or waits for any.
    pub fn knows(&self, txn: TxnKey) -> bool {
        self.held.contains_key(&txn) || self.waits_of.contains_key(&txn)
    }

    /// How many keys a transaction holds.
    pub fn held_count(&self, txn: TxnKey) -> usize {
        self.held.get(&txn).map_or(0, Vec::len)
    }

    /// Number of keys locked or waited for.
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// Whether nothing is locked and nobody waits.
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
            && self.held.is_empty()
            && self.waiting.is_empty()
            && self.waits_of.is_empty()
            && self.standings.is_empty()
    }
}

/// Notes that transactions have lost the lock on a key.
fn forget_held(
    held: &mut HashMap<TxnKey, Vec<Bytes>>,
    losers: &mut Vec<TxnKey>,
    key: &[u8],
    taken: Vec<TxnKey>,
) {
    for txn in taken {
        if let Some(keys) = held.get_mut(&txn) {
            keys.retain(|other| other != key);
            if keys.is_empty() {
                held.remove(&txn);
            }
        }
        losers.push(txn);
    }
}

#[cfg(test)]
mod tests;
