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
//!
//! Pure: `W` is whatever wakes a waiter.

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use kv_api::{LockStrength, Priority, Span};
use std::collections::VecDeque;
use storage::intent::TxnId;

/// Names a transaction within the node: its tenant and the id its coordinator chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TxnKey {
    /// The tenant whose transaction it is; ids of different tenants never meet.
    pub tenant: u64,
    /// Sixteen random bytes.
    pub id: [u8; 16],
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
}

/// A wait that ended because the lock was granted.
#[derive(Debug, PartialEq, Eq)]
pub struct Wakeup<W> {
    /// The transaction that holds the lock now.
    pub txn: TxnKey,
    /// What wakes it.
    pub waker: W,
}

struct Holder {
    txn: TxnKey,
    strength: LockStrength,
}

struct Waiter<W> {
    id: WaiterId,
    txn: TxnKey,
    strength: LockStrength,
    waker: W,
}

struct Lock<W> {
    holders: Vec<Holder>,
    queue: VecDeque<Waiter<W>>,
}

/// What is out of the ordinary about a transaction.
#[derive(Clone, Copy, Default)]
struct Standing {
    priority: Priority,
    firm: bool,
}

/// See [`Standing`]; those about whom there is nothing to say are not there.
type Standings = HashMap<TxnKey, Standing>;

/// Whether `by` takes locks from `holder`.
fn takes(standings: &Standings, by: TxnKey, holder: TxnKey) -> bool {
    let standing = |txn| standings.get(&txn).copied().unwrap_or_default();
    let held = standing(holder);
    standing(by).priority == Priority::High && held.priority == Priority::Low && !held.firm
}

/// The locks of one shard.
pub struct LockTable<W> {
    next_waiter: WaiterId,
    locks: HashMap<Bytes, Lock<W>>,
    /// The keys each transaction holds.
    held: HashMap<TxnKey, Vec<Bytes>>,
    /// Where each waiter waits.
    waiting: HashMap<WaiterId, (TxnKey, Bytes)>,
    /// The waits of each transaction.
    waits_of: HashMap<TxnKey, Vec<WaiterId>>,
    standings: Standings,
    /// From whom locks were taken.
    losers: Vec<TxnKey>,
}

impl<W> Default for LockTable<W> {
    fn default() -> Self {
        LockTable {
            next_waiter: 1,
            locks: HashMap::new(),
            held: HashMap::new(),
            waiting: HashMap::new(),
            waits_of: HashMap::new(),
            standings: HashMap::new(),
            losers: Vec::new(),
        }
    }
}

fn conflict(one: LockStrength, other: LockStrength) -> bool {
    use LockStrength::{Exclusive, Shared};
    matches!((one, other), (Exclusive, Exclusive | Shared) | (Shared, Exclusive))
}

impl<W> Lock<W> {
    fn held_by(&self, txn: TxnKey) -> Option<LockStrength> {
        self.holders.iter().find(|holder| holder.txn == txn).map(|holder| holder.strength)
    }

    /// Whether a transaction holds what it asks for, and no other does that conflicts: an intent may be found on a
    /// key that another has locked meanwhile ([`LockTable::hold_for_intent`]).
    fn is_held_alone(&self, txn: TxnKey, strength: LockStrength) -> bool {
        let conflicts = |holder: &Holder| holder.txn != txn && conflict(holder.strength, strength);
        self.held_by(txn).is_some_and(|held| held >= strength) && !self.holders.iter().any(conflicts)
    }

    /// Where in the queue a request would stand, and the transactions it would wait for.
    fn blockers(&self, standings: &Standings, txn: TxnKey, strength: LockStrength) -> (usize, Vec<TxnKey>) {
        let upgrade = self.held_by(txn).is_some();
        // Upgrades stand before everyone who holds nothing, behind earlier upgrades.
        let place = if upgrade {
            self.queue.iter().take_while(|waiter| self.held_by(waiter.txn).is_some()).count()
        } else {
            let passed =
                |waiter: &&Waiter<W>| takes(standings, txn, waiter.txn) && self.held_by(waiter.txn).is_none();
            self.queue.len() - self.queue.iter().rev().take_while(passed).count()
        };
        let holders = self.holders.iter().filter(|holder| !takes(standings, txn, holder.txn));
        let holders = holders.map(|holder| (holder.txn, holder.strength));
        let before = self.queue.iter().take(place).map(|waiter| (waiter.txn, waiter.strength));
        let blockers = holders
            .chain(before)
            .filter(|(other, held)| *other != txn && conflict(*held, strength))
            .map(|(other, _)| other)
            .collect();
        (place, blockers)
    }

    /// Removes the holders from whom a transaction takes the lock, and returns them.
    fn take(&mut self, standings: &Standings, txn: TxnKey, strength: LockStrength) -> Vec<TxnKey> {
        let taken = |holder: &mut Holder| {
            holder.txn != txn && conflict(holder.strength, strength) && takes(standings, txn, holder.txn)
        };
        self.holders.extract_if(.., taken).map(|holder| holder.txn).collect()
    }

    fn grant(&mut self, txn: TxnKey, strength: LockStrength) -> bool {
        match self.holders.iter_mut().find(|holder| holder.txn == txn) {
            Some(holder) => {
                holder.strength = holder.strength.max(strength);
                false
            }
            None => {
                self.holders.push(Holder { txn, strength });
                true
            }
        }
    }
}

impl<W> LockTable<W> {
    /// The strength a transaction holds on a key.
    pub fn held(&self, txn: TxnKey, key: &[u8]) -> LockStrength {
        self.locks.get(key).and_then(|lock| lock.held_by(txn)).unwrap_or(LockStrength::None)
    }

    /// Whether a transaction could have a lock at once without taking it from anybody.
    pub fn is_free(&self, txn: TxnKey, key: &[u8], strength: LockStrength) -> bool {
        let free = |lock: &Lock<W>| lock.blockers(&Standings::new(), txn, strength).1.is_empty();
        self.locks.get(key).is_none_or(|lock| lock.is_held_alone(txn, strength) || free(lock))
    }

    /// Asks for a lock. `waker` is called if the request must wait; with `None` it does not wait.
    pub fn acquire<F: FnOnce() -> W>(
        &mut self,
        txn: TxnKey,
        priority: Priority,
        key: &[u8],
        strength: LockStrength,
        waker: Option<F>,
    ) -> Acquire {
        if priority != Priority::Normal {
            self.standings.entry(txn).or_default().priority = priority;
        }
        let Some(lock) = self.locks.get_mut(key) else {
            let key = Bytes::copy_from_slice(key);
            let holders = vec![Holder { txn, strength }];
            self.locks.insert(key.clone(), Lock { holders, queue: VecDeque::new() });
            self.held.entry(txn).or_default().push(key);
            return Acquire::Granted;
        };
        if lock.is_held_alone(txn, strength) {
            return Acquire::Granted;
        }
        let (place, blockers) = lock.blockers(&self.standings, txn, strength);
        if blockers.is_empty() {
            let losers = lock.take(&self.standings, txn, strength);
            forget_held(&mut self.held, &mut self.losers, key, losers);
            if lock.grant(txn, strength) {
                self.held.entry(txn).or_default().push(Bytes::copy_from_slice(key));
            }
            return Acquire::Granted;
        }
        let Some(waker) = waker else {
            self.forget_standing(txn);
            return Acquire::Conflict;
        };
        if self.reaches(blockers.clone(), txn) {
            let victim = self.least_of_cycle(blockers, txn);
            self.forget_standing(txn);
            return victim.map_or(Acquire::Deadlock, Acquire::DeadlockOf);
        }
        let id = self.next_waiter;
        self.next_waiter += 1;
        if let Some(lock) = self.locks.get_mut(key) {
            lock.queue.insert(place, Waiter { id, txn, strength, waker: waker() });
        }
        self.waiting.insert(id, (txn, Bytes::copy_from_slice(key)));
        self.waits_of.entry(txn).or_default().push(id);
        Acquire::Waiting(id)
    }

    /// Of those who wait in the cycle that `txn` would close by waiting for `blockers`, one with the lowest priority, if
    /// that is lower than its own.
    fn least_of_cycle(&self, blockers: Vec<TxnKey>, txn: TxnKey) -> Option<TxnKey> {
        let priority =
            |txn: TxnKey| self.standings.get(&txn).map_or(Priority::Normal, |found| found.priority);
        let lower = |other: &TxnKey| *other != txn && priority(*other) < priority(txn);
        let in_cycle = self.reached(blockers).into_iter().filter(lower);
        let in_cycle = in_cycle.filter(|other| self.reaches(vec![*other], txn));
        in_cycle.min_by_key(|other| (priority(*other), std::cmp::Reverse(*other)))
    }

    /// Whether `target` is among the transactions that `from` wait for, directly or not.
    fn reaches(&self, from: Vec<TxnKey>, target: TxnKey) -> bool {
        self.reached(from).contains(&target)
    }

    /// Transactions, those that they wait for, and so on.
    fn reached(&self, from: Vec<TxnKey>) -> HashSet<TxnKey> {
        let mut seen: HashSet<TxnKey> = from.iter().copied().collect();
        let mut next = from;
        while let Some(txn) = next.pop() {
            for waiter in self.waits_of.get(&txn).into_iter().flatten() {
                next.extend(self.waited_for(*waiter).into_iter().filter(|other| seen.insert(*other)));
            }
        }
        seen
    }

    /// The transactions a waiter waits for.
    fn waited_for(&self, waiter: WaiterId) -> Vec<TxnKey> {
        let Some(lock) = self.waiting.get(&waiter).and_then(|(_, key)| self.locks.get(key)) else {
            return Vec::new();
        };
        let Some(place) = lock.queue.iter().position(|entry| entry.id == waiter) else { return Vec::new() };
        let Some(own) = lock.queue.get(place) else { return Vec::new() };
        let holders = lock.holders.iter().filter(|holder| !takes(&self.standings, own.txn, holder.txn));
        let holders = holders.map(|holder| (holder.txn, holder.strength));
        let before = lock.queue.iter().take(place).map(|entry| (entry.txn, entry.strength));
        holders
            .chain(before)
            .filter(|(other, held)| *other != own.txn && conflict(*held, own.strength))
            .map(|(other, _)| other)
            .collect()
    }

    /// From now on nobody takes locks from a transaction.
    pub fn make_firm(&mut self, txn: TxnKey) {
        // Others are not in danger.
        if let Some(standing) = self.standings.get_mut(&txn) {
            standing.firm = true;
        }
    }

    /// Transactions from which locks were taken since this was asked last.
    pub fn take_losers(&mut self) -> Vec<TxnKey> {
        std::mem::take(&mut self.losers)
    }

    /// Forgets a transaction's standing if it neither holds nor waits for anything.
    fn forget_standing(&mut self, txn: TxnKey) {
        if !self.held.contains_key(&txn) && !self.waits_of.contains_key(&txn) {
            self.standings.remove(&txn);
        }
    }

    /// Makes `txn` the holder of a key that its durable intent protects, ahead of everyone who waits.
    pub fn hold_for_intent(&mut self, txn: TxnKey, key: &[u8]) {
        self.make_firm(txn);
        let fresh = match self.locks.get_mut(key) {
            Some(lock) => lock.grant(txn, LockStrength::Exclusive),
            None => {
                let holders = vec![Holder { txn, strength: LockStrength::Exclusive }];
                self.locks.insert(Bytes::copy_from_slice(key), Lock { holders, queue: VecDeque::new() });
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
        let Some((txn, key)) = self.waiting.remove(&waiter) else { return Vec::new() };
        self.forget_wait(txn, waiter);
        if let Some(lock) = self.locks.get_mut(&key) {
            lock.queue.retain(|entry| entry.id != waiter);
        }
        let mut woken = Vec::new();
        self.grant_front(&key, &mut woken);
        self.forget_standing(txn);
        woken
    }

    /// Gives up everything a transaction holds. Its own waits end; their wakers are dropped.
    #[must_use]
    pub fn release(&mut self, txn: TxnKey) -> Vec<Wakeup<W>> {
        let mut woken = Vec::new();
        for waiter in self.waits_of.remove(&txn).unwrap_or_default() {
            if let Some((_, key)) = self.waiting.remove(&waiter) {
                if let Some(lock) = self.locks.get_mut(&key) {
                    lock.queue.retain(|entry| entry.id != waiter);
                }
                self.grant_front(&key, &mut woken);
            }
        }
        for key in self.held.remove(&txn).unwrap_or_default() {
            if let Some(lock) = self.locks.get_mut(&key) {
                lock.holders.retain(|holder| holder.txn != txn);
            }
            self.grant_front(&key, &mut woken);
        }
        self.standings.remove(&txn);
        woken
    }

    /// Gives up what a transaction holds within a span, and its waits there.
    #[must_use]
    pub fn release_within(&mut self, txn: TxnKey, span: &Span) -> Vec<Wakeup<W>> {
        let mut woken = Vec::new();
        let within = |(waiter, key): (WaiterId, &Bytes)| span.contains(key).then_some(waiter);
        let waits = self.waits_of.get(&txn).into_iter().flatten();
        let waits: Vec<WaiterId> =
            waits.filter_map(|waiter| within((*waiter, &self.waiting.get(waiter)?.1))).collect();
        for waiter in waits {
            woken.extend(self.cancel(waiter));
        }
        let Some(held) = self.held.get_mut(&txn) else { return woken };
        let (gone, kept): (Vec<_>, Vec<_>) =
            std::mem::take(held).into_iter().partition(|key| span.contains(key));
        if kept.is_empty() {
            self.held.remove(&txn);
        } else {
            *held = kept;
        }
        for key in gone {
            if let Some(lock) = self.locks.get_mut(&key) {
                lock.holders.retain(|holder| holder.txn != txn);
            }
            self.grant_front(&key, &mut woken);
        }
        self.forget_standing(txn);
        woken
    }

    /// Ends all waits of a transaction; their wakers are dropped. What it holds it keeps.
    #[must_use]
    pub fn end_waits(&mut self, txn: TxnKey) -> Vec<Wakeup<W>> {
        let waits = self.waits_of.get(&txn).cloned().unwrap_or_default();
        waits.into_iter().flat_map(|waiter| self.cancel(waiter)).collect()
    }

    /// Tenants of which transactions wait.
    pub fn waiting_tenants(&self) -> impl Iterator<Item = u64> {
        self.waits_of.keys().map(|txn| txn.tenant)
    }

    /// The priority of a transaction that holds or waits for locks.
    pub fn priority(&self, txn: TxnKey) -> Priority {
        self.standings.get(&txn).map_or(Priority::Normal, |standing| standing.priority)
    }

    /// Who waits for whom in a tenant.
    pub fn waits(&self, tenant: u64) -> Vec<(TxnId, TxnId)> {
        let waiters = self.waits_of.iter().filter(|(txn, _)| txn.tenant == tenant);
        let waits = waiters.flat_map(|(txn, waits)| waits.iter().map(move |waiter| (txn, *waiter)));
        let mut waits: Vec<_> = waits
            .flat_map(|(txn, waiter)| {
                self.waited_for(waiter).into_iter().map(move |other| (txn.id, other.id))
            })
            .collect();
        // In an order that a simulation can repeat.
        waits.sort_unstable();
        waits
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
        while let Some(front) = lock.queue.front() {
            let (txn, strength) = (front.txn, front.strength);
            let blocked = lock.holders.iter().any(|holder| {
                holder.txn != txn
                    && conflict(holder.strength, strength)
                    && !takes(&self.standings, txn, holder.txn)
            });
            if blocked {
                break;
            }
            let Some(waiter) = lock.queue.pop_front() else { break };
            let losers = lock.take(&self.standings, txn, strength);
            forget_held(&mut self.held, &mut self.losers, key, losers);
            if lock.grant(txn, strength) {
                self.held.entry(txn).or_default().push(key.clone());
            }
            self.waiting.remove(&waiter.id);
            if let Some(waits) = self.waits_of.get_mut(&txn) {
                waits.retain(|id| *id != waiter.id);
                if waits.is_empty() {
                    self.waits_of.remove(&txn);
                }
            }
            woken.push(Wakeup { txn, waker: waiter.waker });
        }
        if lock.holders.is_empty() && lock.queue.is_empty() {
            self.locks.remove(key);
        }
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
