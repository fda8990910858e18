//! Who waits for whom: the search for cycles, and the waits of a tenant as edges of a graph.
//!
//! A queue of many is a graph with the square of as many edges. None of this looks at each of them.

use super::lock::{Lock, Place, conflict};
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
            let holds = lock.held_by(other).is_some_and(|held| conflict(held, strength));
            let is_before = |waiter: &u64| {
                let at = self.waiting.get(waiter).filter(|wait| wait.key == *key && wait.place < place);
                let waiter = at.and_then(|wait| lock.queue().get(&wait.place));
                waiter.is_some_and(|waiter| conflict(waiter.strength, strength))
            };
            holds || self.waits_of.get(&other).into_iter().flatten().any(is_before)
        };
        let mut search =
            Search { table: self, seen: HashSet::new(), next: Vec::new(), explored: HashMap::new() };
        search.seen.insert(txn);
        search.explore(key, place, strength);
        search.dependents(txn);
        while let Some(other) = search.next.pop() {
            if blocks(other) {
                return true;
            }
            search.dependents(other);
        }
        false
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
                add_edges(lock, &mut waits);
            }
        }
        // In an order that a simulation can repeat.
        waits.sort_unstable();
        waits
    }
}

fn add_edges<W>(lock: &Lock<W>, waits: &mut Vec<(TxnId, TxnId)>) {
    // The last request for an exclusive lock so far, and those for shared ones since.
    let mut exclusive: Option<TxnKey> = None;
    let mut shared: Vec<TxnKey> = Vec::new();
    let mut add = |from: TxnKey, to: TxnKey| {
        if from != to {
            waits.push((from.id, to.id));
        }
    };
    for waiter in lock.queue().values() {
        let against = lock.holders().iter().filter(|holder| conflict(holder.strength, waiter.strength));
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
    /// Takes in the transactions that wait for one directly.
    fn dependents(&mut self, txn: TxnKey) {
        let table = self.table;
        for waiter in table.waits_of.get(&txn).into_iter().flatten() {
            let Some(wait) = table.waiting.get(waiter) else { continue };
            let own = table.locks.get(&wait.key).and_then(|lock| lock.queue().get(&wait.place));
            if let Some(own) = own {
                self.explore(&wait.key, wait.place, own.strength);
            }
        }
        let Some(held) = table.held.get(&txn) else { return };
        let mut of_holder = |key: &'a Bytes| {
            let held = table.locks.get(key).and_then(|lock| lock.held_by(txn));
            if let Some(strength) = held {
                self.explore(key, Place::FIRST, strength);
            }
        };
        // A transaction may hold very many keys, and very many may be waited for; seldom both.
        if held.len() <= table.queued.len() {
            held.iter().filter(|key| table.queued.contains(*key)).for_each(&mut of_holder);
        } else {
            table.queued.iter().for_each(&mut of_holder);
        }
    }

    /// Takes in the waiters behind `from` that conflict with a strength.
    fn explore(&mut self, key: &'a Bytes, from: Place, strength: LockStrength) {
        let Some(lock) = self.table.locks.get(key) else { return };
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
