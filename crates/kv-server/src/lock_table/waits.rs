//! Who waits for whom: the search for cycles, and the waits of a tenant as edges of a graph.
//!
//! A queue of many is a graph with the square of as many edges. None of this looks at each of them.

use super::lock::{Lock, Place, conflict};
use super::standing::Standings;
use super::{LockTable, TxnKey};
use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use kv_api::LockStrength;
use storage::intent::TxnId;

impl<W> LockTable<W> {
    /// Whether a request that is about to wait at `place` would wait for itself in the end.
    ///
    /// The search goes backwards, from the transactions that wait for this one. Mostly there is none: who is new to a
    /// queue, however long, is waited for by nobody.
    pub(super) fn closes_cycle(
        &self,
        txn: TxnKey,
        key: &Bytes,
        strength: LockStrength,
        place: Place,
    ) -> bool {
        let Some(lock) = self.locks.get(key) else { return false };
        let blocks = |other: TxnKey| {
            let holds = lock.held_by(other).is_some_and(|held| conflict(held, strength))
                && !self.standings.takes(txn, other);
            let is_before = |waiter: &u64| {
                let at = self.waiting.get(waiter).filter(|wait| wait.key == *key && wait.place < place);
                let waiter = at.and_then(|wait| lock.queue().get(&wait.place));
                waiter.is_some_and(|waiter| conflict(waiter.strength, strength))
            };
            holds || self.waits_of.get(&other).into_iter().flatten().any(is_before)
        };
        let mut search = Search::new(self, txn);
        search.explore(key, place, strength, None);
        search.dependents(txn);
        while let Some(other) = search.next.pop() {
            if blocks(other) {
                return true;
            }
            search.dependents(other);
        }
        false
    }

    /// Of those who wait in the cycle that a request would close, one with the lowest priority, if that is lower than
    /// its own.
    pub(super) fn least_of_cycle(
        &self,
        txn: TxnKey,
        key: &Bytes,
        strength: LockStrength,
        place: Place,
    ) -> Option<TxnKey> {
        if self.standings.is_empty() {
            return None;
        }
        let lock = self.locks.get(key)?;
        let mut search = Search::new(self, txn);
        search.explore(key, place, strength, None);
        search.dependents(txn);
        while let Some(other) = search.next.pop() {
            search.dependents(other);
        }
        // Those who wait for it, of whom it waits for in turn.
        let mut edges: HashMap<TxnId, Vec<TxnId>> = HashMap::new();
        for (from, to) in self.waits(txn.tenant) {
            edges.entry(from).or_default().push(to);
        }
        let blockers = lock.blockers(&self.standings, txn, strength, place);
        let mut next: Vec<TxnId> = blockers.map(|other| other.id).collect();
        let mut reached: HashSet<TxnId> = next.iter().copied().collect();
        while let Some(id) = next.pop() {
            let others = edges.get(&id).into_iter().flatten();
            next.extend(others.copied().filter(|other| reached.insert(*other)));
        }
        let own = self.priority(txn);
        let lower =
            |other: &TxnKey| *other != txn && self.priority(*other) < own && reached.contains(&other.id);
        let waiters = search.seen.into_iter().filter(lower);
        waiters.min_by_key(|other| (self.priority(*other), std::cmp::Reverse(*other)))
    }

    /// Who waits for whom in a tenant. Some waits that follow from others are left out: whoever waits behind a
    /// request for an exclusive lock waits for everybody before that by waiting for it. So there are about as many
    /// as there are waiters and holders, and whom one can reach by them is whom it waits for in the end.
    pub fn waits(&self, tenant: u64) -> Vec<(TxnId, TxnId)> {
        let mut waits = Vec::new();
        for key in &self.queued {
            let Some(lock) = self.locks.get(key) else { continue };
            // All keys that transactions of a tenant wait for are its own.
            if lock.queue().values().next().is_some_and(|waiter| waiter.txn.tenant == tenant) {
                add_edges(lock, &self.standings, &mut waits);
            }
        }
        // In an order that a simulation can repeat.
        waits.sort_unstable();
        waits
    }
}

fn add_edges<W>(lock: &Lock<W>, standings: &Standings, waits: &mut Vec<(TxnId, TxnId)>) {
    // The last request for an exclusive lock so far, and those for shared ones since.
    let mut exclusive: Option<TxnKey> = None;
    let mut shared: Vec<TxnKey> = Vec::new();
    let mut add = |from: TxnKey, to: TxnKey| {
        if from != to {
            waits.push((from.id, to.id));
        }
    };
    for waiter in lock.queue().values() {
        let against = lock.holders().iter().filter(|holder| {
            conflict(holder.strength, waiter.strength) && !standings.takes(waiter.txn, holder.txn)
        });
        match waiter.strength {
            LockStrength::None => {}
            LockStrength::Shared => {
                match exclusive {
                    Some(before) => add(waiter.txn, before),
                    // Few: one, and those of intents found meanwhile.
                    None => against.for_each(|holder| add(waiter.txn, holder.txn)),
                }
                shared.push(waiter.txn);
            }
            LockStrength::Exclusive => {
                shared.iter().for_each(|before| add(waiter.txn, *before));
                match exclusive {
                    Some(before) => add(waiter.txn, before),
                    None => against.for_each(|holder| add(waiter.txn, holder.txn)),
                }
                exclusive = Some(waiter.txn);
                shared.clear();
            }
        }
    }
}

/// A search for the transactions that wait for one, directly or not.
struct Search<'a, W> {
    table: &'a LockTable<W>,
    seen: HashSet<TxnKey>,
    next: Vec<TxnKey>,
    /// By key, from where on all waiters have been seen, and all for exclusive locks.
    explored: HashMap<&'a [u8], (Option<Place>, Option<Place>)>,
}

impl<'a, W> Search<'a, W> {
    fn new(table: &'a LockTable<W>, txn: TxnKey) -> Self {
        let seen = HashSet::from_iter([txn]);
        Search { table, seen, next: Vec::new(), explored: HashMap::new() }
    }

    /// Takes in the transactions that wait for one directly.
    fn dependents(&mut self, txn: TxnKey) {
        let table = self.table;
        for waiter in table.waits_of.get(&txn).into_iter().flatten() {
            let Some(wait) = table.waiting.get(waiter) else { continue };
            let own = table.locks.get(&wait.key).and_then(|lock| lock.queue().get(&wait.place));
            if let Some(own) = own {
                self.explore(&wait.key, wait.place, own.strength, None);
            }
        }
        let Some(held) = table.held.get(&txn) else { return };
        let mut of_holder = |key: &'a Bytes| {
            let held = table.locks.get(key).and_then(|lock| lock.held_by(txn));
            if let Some(strength) = held {
                self.explore(key, Place::FIRST, strength, Some(txn));
            }
        };
        // A transaction may hold very many keys, and very many may be waited for; seldom both.
        if held.len() <= table.queued.len() {
            held.iter().filter(|key| table.queued.contains(*key)).for_each(&mut of_holder);
        } else {
            table.queued.iter().for_each(&mut of_holder);
        }
    }

    /// Takes in the waiters behind `from` that conflict with a strength. Those who take the lock from `holder`, if it
    /// is one, do not wait for it.
    fn explore(&mut self, key: &'a Bytes, from: Place, strength: LockStrength, holder: Option<TxnKey>) {
        let Some(lock) = self.table.locks.get(key) else { return };
        let standings = &self.table.standings;
        if let Some(holder) = holder.filter(|holder| standings.can_lose(*holder)) {
            for waiter in lock.queue().range(from..).map(|(_, waiter)| waiter) {
                let waits = conflict(waiter.strength, strength) && !standings.takes(waiter.txn, holder);
                if waits && self.seen.insert(waiter.txn) {
                    self.next.push(waiter.txn);
                }
            }
            return;
        }
        let (all, exclusive) = self.explored.entry(key).or_default();
        let until = match strength {
            LockStrength::None => return,
            LockStrength::Exclusive => *all,
            LockStrength::Shared => [*all, *exclusive].into_iter().flatten().min(),
        };
        if until.is_some_and(|until| until <= from) {
            return;
        }
        *(if strength == LockStrength::Exclusive { all } else { exclusive }) = Some(from);
        let behind = lock.queue().range(from..);
        let behind = behind.take_while(|(place, _)| until.is_none_or(|until| **place < until));
        for (_, waiter) in behind {
            if conflict(waiter.strength, strength) && self.seen.insert(waiter.txn) {
                self.next.push(waiter.txn);
            }
        }
    }
}
