//! One key's lock: who holds it and who waits, in order. Nothing here takes longer the more there are of either,
//! but for logarithms and the moving of memory, and but for requests of high priority, which look at whom they pass.

use super::standing::Standings;
use super::{TxnKey, WaiterId};
use kv_api::LockStrength;
use replication::Millis;
use std::collections::BTreeMap;

/// Whether two requests of different transactions exclude each other.
pub(super) fn conflict(one: LockStrength, other: LockStrength) -> bool {
    use LockStrength::{Exclusive, Shared};
    matches!((one, other), (Exclusive, Exclusive | Shared) | (Shared, Exclusive))
}

/// Where a waiter stands in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Whether its transaction held nothing when it came: upgrades stand before all others.
    holds_nothing: bool,
    /// Whose seat it is: its own, or that of the first of those it passes.
    seat: WaiterId,
    /// Whether it is its own: those who pass stand before whom they pass.
    own_seat: bool,
    /// Earlier ones stand first.
    pub(super) id: WaiterId,
}

impl Place {
    /// Before everybody.
    pub(super) const FIRST: Place = Place { holds_nothing: false, seat: 0, own_seat: false, id: 0 };
}

pub(super) struct Holder {
    pub(super) txn: TxnKey,
    pub(super) strength: LockStrength,
    /// When it was asked for or found; absent until whoever waited for it has noticed.
    pub(super) since: Option<Millis>,
}

pub(super) struct Waiter<W> {
    pub(super) txn: TxnKey,
    pub(super) strength: LockStrength,
    pub(super) since: Millis,
    pub(super) waker: W,
}

pub(super) struct Lock<W> {
    /// In the order of their names.
    holders: Vec<Holder>,
    /// How many of them hold it exclusively: one, and those of intents found meanwhile.
    exclusive: usize,
    queue: BTreeMap<Place, Waiter<W>>,
    /// How many of those who wait want it exclusively.
    exclusive_waiters: usize,
}

impl<W> Lock<W> {
    pub(super) fn new(txn: TxnKey, strength: LockStrength, now: Millis) -> Self {
        let exclusive = usize::from(strength == LockStrength::Exclusive);
        let holders = vec![Holder { txn, strength, since: Some(now) }];
        Lock { holders, exclusive, queue: BTreeMap::new(), exclusive_waiters: 0 }
    }

    fn position(&self, txn: TxnKey) -> Result<usize, usize> {
        self.holders.binary_search_by(|holder| holder.txn.cmp(&txn))
    }

    pub(super) fn holders(&self) -> &[Holder] {
        &self.holders
    }

    pub(super) fn holder_mut(&mut self, txn: TxnKey) -> Option<&mut Holder> {
        let at = self.position(txn).ok()?;
        self.holders.get_mut(at)
    }

    pub(super) fn held_by(&self, txn: TxnKey) -> Option<LockStrength> {
        let at = self.position(txn).ok()?;
        self.holders.get(at).map(|holder| holder.strength)
    }

    pub(super) fn queue(&self) -> &BTreeMap<Place, Waiter<W>> {
        &self.queue
    }

    pub(super) fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }

    /// Whether others hold what a request of a transaction conflicts with.
    pub(super) fn is_held_against(&self, txn: TxnKey, strength: LockStrength) -> bool {
        let own = self.held_by(txn);
        match strength {
            LockStrength::None => false,
            LockStrength::Shared => self.exclusive > usize::from(own == Some(LockStrength::Exclusive)),
            LockStrength::Exclusive => self.holders.len() > usize::from(own.is_some()),
        }
    }

    /// Whether a transaction holds what it asks for, and no other does that conflicts: an intent may be found on a
    /// key that another has locked meanwhile ([`super::LockTable::hold_for_intent`]).
    pub(super) fn is_held_alone(&self, txn: TxnKey, strength: LockStrength) -> bool {
        self.held_by(txn).is_some_and(|held| held >= strength) && !self.is_held_against(txn, strength)
    }

    /// Whether holders are in the way of a request: others that conflict, unless it takes the lock from them.
    fn is_barred(&self, standings: &Standings, txn: TxnKey, strength: LockStrength) -> bool {
        if !standings.takes_any(txn) {
            return self.is_held_against(txn, strength);
        }
        self.barring(standings, txn, strength).next().is_some()
    }

    fn barring<'s>(
        &'s self,
        standings: &'s Standings,
        txn: TxnKey,
        strength: LockStrength,
    ) -> impl Iterator<Item = TxnKey> + 's {
        let against = move |holder: &&Holder| {
            holder.txn != txn && conflict(holder.strength, strength) && !standings.takes(txn, holder.txn)
        };
        self.holders.iter().filter(against).map(|holder| holder.txn)
    }

    /// Where in the queue a request would stand that gets this name: last, or before those at the end of it from whom
    /// it takes locks and who hold nothing.
    pub(super) fn place(&self, standings: &Standings, txn: TxnKey, id: WaiterId) -> Place {
        let holds_nothing = self.held_by(txn).is_none();
        let mut place = Place { holds_nothing, seat: id, own_seat: true, id };
        if holds_nothing && standings.takes_any(txn) {
            let passed = |(at, waiter): &(&Place, &Waiter<W>)| {
                at.holds_nothing && standings.takes(txn, waiter.txn) && self.held_by(waiter.txn).is_none()
            };
            if let Some((first, _)) = self.queue.iter().rev().take_while(passed).last() {
                (place.seat, place.own_seat) = (first.seat, false);
            }
        }
        place
    }

    /// Whether a request must wait.
    pub(super) fn must_wait(&self, standings: &Standings, txn: TxnKey, strength: LockStrength) -> bool {
        self.is_barred(standings, txn, strength)
            || self.waits_against(txn, strength, self.place(standings, txn, WaiterId::MAX)).next().is_some()
    }

    /// Whom before `place` a request waits for.
    fn waits_against(
        &self,
        txn: TxnKey,
        strength: LockStrength,
        place: Place,
    ) -> impl Iterator<Item = TxnKey> {
        let none =
            strength == LockStrength::None || strength == LockStrength::Shared && self.exclusive_waiters == 0;
        let before = if none { Place::FIRST } else { place };
        let before = self.queue.range(..before).map(|(_, waiter)| waiter);
        before
            .filter(move |other| other.txn != txn && conflict(other.strength, strength))
            .map(|other| other.txn)
    }

    /// The transactions that a request at `place` waits for: holders first, then those before it.
    pub(super) fn blockers<'s>(
        &'s self,
        standings: &'s Standings,
        txn: TxnKey,
        strength: LockStrength,
        place: Place,
    ) -> impl Iterator<Item = TxnKey> + 's {
        self.barring(standings, txn, strength).chain(self.waits_against(txn, strength, place))
    }

    /// Removes the holders from whom a transaction takes the lock, and returns them.
    pub(super) fn take(&mut self, standings: &Standings, txn: TxnKey, strength: LockStrength) -> Vec<TxnKey> {
        if !standings.takes_any(txn) {
            return Vec::new();
        }
        let taken = |holder: &&Holder| {
            holder.txn != txn && conflict(holder.strength, strength) && standings.can_lose(holder.txn)
        };
        let losers: Vec<TxnKey> = self.holders.iter().filter(taken).map(|holder| holder.txn).collect();
        losers.iter().for_each(|loser| self.release(*loser));
        losers
    }

    /// Makes a transaction a holder. Says whether it was none.
    pub(super) fn grant(&mut self, txn: TxnKey, strength: LockStrength, since: Option<Millis>) -> bool {
        match self.position(txn) {
            Ok(at) => {
                if let Some(holder) = self.holders.get_mut(at)
                    && holder.strength < strength
                {
                    self.exclusive += usize::from(strength == LockStrength::Exclusive);
                    holder.strength = strength;
                }
                false
            }
            Err(at) => {
                self.exclusive += usize::from(strength == LockStrength::Exclusive);
                self.holders.insert(at, Holder { txn, strength, since });
                true
            }
        }
    }

    /// Takes a holder out.
    pub(super) fn release(&mut self, txn: TxnKey) {
        if let Ok(at) = self.position(txn) {
            let holder = self.holders.remove(at);
            self.exclusive -= usize::from(holder.strength == LockStrength::Exclusive);
        }
    }

    pub(super) fn enqueue(&mut self, place: Place, waiter: Waiter<W>) {
        self.exclusive_waiters += usize::from(waiter.strength == LockStrength::Exclusive);
        self.queue.insert(place, waiter);
    }

    pub(super) fn dequeue(&mut self, place: Place) -> Option<Waiter<W>> {
        let waiter = self.queue.remove(&place)?;
        self.exclusive_waiters -= usize::from(waiter.strength == LockStrength::Exclusive);
        Some(waiter)
    }

    /// Takes the first waiter out if the holders let it be one of them.
    pub(super) fn next_granted(&mut self, standings: &Standings) -> Option<(Place, Waiter<W>)> {
        let (place, front) = self.queue.first_key_value()?;
        if self.is_barred(standings, front.txn, front.strength) {
            return None;
        }
        let place = *place;
        Some((place, self.dequeue(place)?))
    }
}
