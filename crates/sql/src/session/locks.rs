//! Table locks and advisory locks, held in the SQL node's memory.
//!
//! Where several SQL nodes serve a tenant, those locks that may conflict with others' are taken in the memory of each
//! ([`crate::instances`]); what is held here for another node has an owner of its own. Table locks order
//! schema changes against the statements that use a table, with PostgreSQL's eight modes; rows are
//! locked in the KV node. A cycle of waiters is found when it closes (40P01). A cycle that runs
//! through a row lock as well is not seen here: a wait for a table lock ends after
//! [`LONGEST_WAIT`] in any case.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sql_types::{Oid, SqlError, SqlResult, SqlState};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::sync::oneshot;

/// The longest wait for a table lock when `lock_timeout` sets none.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// PostgreSQL's table lock modes, weakest first.
pub(crate) mod mode {
    pub(crate) const ACCESS_SHARE: u8 = 0;
    pub(crate) const ROW_SHARE: u8 = 1;
    pub(crate) const ROW_EXCLUSIVE: u8 = 2;
    pub(crate) const SHARE_UPDATE_EXCLUSIVE: u8 = 3;
    pub(crate) const SHARE: u8 = 4;
    pub(crate) const SHARE_ROW_EXCLUSIVE: u8 = 5;
    pub(crate) const EXCLUSIVE: u8 = 6;
    pub(crate) const ACCESS_EXCLUSIVE: u8 = 7;
    pub(crate) const NAMES: [&str; 8] = [
        "AccessShareLock",
        "RowShareLock",
        "RowExclusiveLock",
        "ShareUpdateExclusiveLock",
        "ShareLock",
        "ShareRowExclusiveLock",
        "ExclusiveLock",
        "AccessExclusiveLock",
    ];
}

impl LockKey {
    /// Whether a lock in a mode concerns the other SQL nodes of the tenant: it may conflict with what is held there.
    /// The table locks of queries and of INSERT, UPDATE and DELETE do not conflict with each other.
    pub(crate) fn is_strong(self, mode: u8) -> bool {
        !matches!(self, LockKey::Table(_)) || mode >= mode::SHARE_UPDATE_EXCLUSIVE
    }
}

/// By mode, the modes it conflicts with, as bits.
const CONFLICTS: [u8; 8] =
    [0b1000_0000, 0b1100_0000, 0b1111_0000, 0b1111_1000, 0b1110_1100, 0b1111_1100, 0b1111_1110, 0b1111_1111];

/// What is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum LockKey {
    /// The right to change the catalog.
    Catalog,
    /// A table.
    Table(Oid),
    /// An advisory lock with a key of one number or two, in a database.
    Advisory(Oid, i64, bool),
}

/// How long a lock is held unless it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Transaction,
    Session,
}

#[derive(Debug)]
struct Hold {
    /// Names it among all that the node has ever known.
    number: u64,
    owner: u64,
    scope: Scope,
    /// How often each mode is held.
    counts: [u16; 8],
}

impl Hold {
    fn modes(&self) -> u8 {
        (0..8).filter(|mode| self.counts[*mode] > 0).fold(0, |bits, mode| bits | 1 << mode)
    }
}

struct Waiter {
    owner: u64,
    mode: u8,
    scope: Scope,
    granted: oneshot::Sender<()>,
}

#[derive(Default)]
struct Entry {
    holds: Vec<Hold>,
    queue: VecDeque<Waiter>,
}

/// A wait for holds to be given back, which keeps nobody from getting new ones.
struct Drain {
    key: LockKey,
    /// The numbers of the holds, and whose they are.
    holds: Vec<(u64, u64)>,
    done: oneshot::Sender<()>,
}

#[derive(Default)]
struct State {
    entries: HashMap<LockKey, Entry>,
    waits: HashMap<u64, (LockKey, u8)>,
    /// By owner.
    drains: HashMap<u64, Drain>,
    /// The number of the next hold.
    next_hold: u64,
}

/// The locks of a node.
#[derive(Default)]
pub(crate) struct LockManager(Mutex<State>);

/// One lock, for `pg_locks`.
pub(crate) struct LockRow {
    pub key: LockKey,
    pub owner: u64,
    pub mode: u8,
    pub granted: bool,
}

impl Entry {
    fn conflicting(&self, owner: u64, mode: u8) -> impl Iterator<Item = u64> {
        let against = CONFLICTS[mode as usize];
        self.holds
            .iter()
            .filter(move |hold| hold.owner != owner && hold.modes() & against != 0)
            .map(|hold| hold.owner)
    }

    fn hold(&mut self, owner: u64, mode: u8, scope: Scope, next_hold: &mut u64) {
        let position = self.holds.iter().position(|hold| hold.owner == owner && hold.scope == scope);
        let position = position.unwrap_or_else(|| {
            *next_hold += 1;
            self.holds.push(Hold { number: *next_hold, owner, scope, counts: [0; 8] });
            self.holds.len() - 1
        });
        let count = &mut self.holds[position].counts[mode as usize];
        *count = count.saturating_add(1);
    }

    fn may_hold(&self, owner: u64, mode: u8) -> bool {
        if self.conflicting(owner, mode).next().is_some() {
            return false;
        }
        // Nobody overtakes who waits, except who is part of what is waited for.
        self.holds.iter().any(|hold| hold.owner == owner)
            || !self.queue.iter().any(|waiter| CONFLICTS[mode as usize] & (1 << waiter.mode) != 0)
    }
}

impl State {
    /// Whether `owner`, about to wait, waits for itself in the end.
    fn closes_cycle(&self, owner: u64, key: LockKey, mode: u8) -> bool {
        self.reaches(self.blockers(owner, key, mode), owner)
    }

    /// Whether `owner`, who waits, waits for itself in the end.
    fn waits_for_itself(&self, owner: u64) -> bool {
        self.reaches(self.blockers_of(owner), owner)
    }

    /// Whether one of these waits for `owner` in the end, or is it.
    fn reaches(&self, mut pending: Vec<u64>, owner: u64) -> bool {
        let mut seen = Vec::new();
        while let Some(blocker) = pending.pop() {
            if blocker == owner {
                return true;
            }
            if seen.contains(&blocker) {
                continue;
            }
            seen.push(blocker);
            pending.extend(self.blockers_of(blocker));
        }
        false
    }

    /// Whom an owner waits for.
    fn blockers_of(&self, owner: u64) -> Vec<u64> {
        let mut blockers = match self.waits.get(&owner) {
            Some((key, mode)) => self.blockers(owner, *key, *mode),
            None => Vec::new(),
        };
        let drained = self.drains.get(&owner).map(|drain| &drain.holds[..]).unwrap_or_default();
        blockers.extend(drained.iter().map(|(_, owner)| owner));
        blockers
    }

    fn blockers(&self, owner: u64, key: LockKey, mode: u8) -> Vec<u64> {
        let Some(entry) = self.entries.get(&key) else { return Vec::new() };
        let mut blockers: Vec<u64> = entry.conflicting(owner, mode).collect();
        let ahead = entry.queue.iter().take_while(|waiter| waiter.owner != owner);
        blockers.extend(ahead.filter(|w| CONFLICTS[mode as usize] & (1 << w.mode) != 0).map(|w| w.owner));
        blockers
    }

    /// Grants what can be granted and forgets an entry that nobody uses.
    fn settle(&mut self, key: LockKey) {
        self.settle_drains(key);
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let mut index = 0;
        let mut ahead = 0u8;
        while index < entry.queue.len() {
            let (owner, mode) = (entry.queue[index].owner, entry.queue[index].mode);
            let free =
                entry.conflicting(owner, mode).next().is_none() && CONFLICTS[mode as usize] & ahead == 0;
            if free && let Some(waiter) = entry.queue.remove(index) {
                entry.hold(owner, mode, waiter.scope, &mut self.next_hold);
                self.waits.remove(&owner);
                // Whoever stopped waiting gives the lock back.
                let _ = waiter.granted.send(());
            } else {
                ahead |= 1 << mode;
                index += 1;
            }
        }
        if entry.holds.is_empty() && entry.queue.is_empty() {
            self.entries.remove(&key);
        }
    }
}

impl State {
    /// Ends the waits for holds of a key that have been given back.
    fn settle_drains(&mut self, key: LockKey) {
        if self.drains.is_empty() {
            return;
        }
        let holds = self.entries.get(&key).map(|entry| &entry.holds[..]).unwrap_or_default();
        let mut ended = Vec::new();
        for (owner, drain) in self.drains.iter_mut().filter(|(_, drain)| drain.key == key) {
            drain.holds.retain(|(number, _)| holds.iter().any(|hold| hold.number == *number));
            if drain.holds.is_empty() {
                ended.push(*owner);
            }
        }
        for owner in ended {
            if let Some(drain) = self.drains.remove(&owner) {
                // Whoever stopped waiting needs not be told.
                let _ = drain.done.send(());
            }
        }
    }
}

/// Forgets a wait for holds when it ends early.
struct DrainGuard<'a>(&'a LockManager, u64);

impl Drop for DrainGuard<'_> {
    fn drop(&mut self) {
        self.0.0.lock().drains.remove(&self.1);
    }
}

fn deadlock() -> SqlError {
    let detail = "Transactions wait for each other's table or advisory locks in a circle.";
    SqlError::new(SqlState::DEADLOCK, "deadlock detected").with_detail(detail)
}

fn timed_out() -> SqlError {
    SqlError::new(SqlState::LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout")
}

/// Takes a waiter out of its queue when its statement ends early.
struct WaitGuard<'a> {
    manager: &'a LockManager,
    owner: u64,
    key: LockKey,
    mode: u8,
    scope: Scope,
    done: bool,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut state = self.manager.0.lock();
        let still_waiting = state.waits.remove(&self.owner).is_some();
        if still_waiting {
            if let Some(entry) = state.entries.get_mut(&self.key) {
                entry.queue.retain(|waiter| waiter.owner != self.owner);
            }
            state.settle(self.key);
        } else {
            drop(state);
            self.manager.release(self.owner, self.key, self.mode, self.scope);
        }
    }
}

impl LockManager {
    /// Takes a lock if that needs no waiting.
    pub(crate) fn try_lock(&self, owner: u64, key: LockKey, mode: u8, scope: Scope) -> bool {
        let mut state = self.0.lock();
        let State { entries, next_hold, .. } = &mut *state;
        let entry = entries.entry(key).or_default();
        let free = entry.may_hold(owner, mode);
        if free {
            entry.hold(owner, mode, scope, next_hold);
        }
        free
    }

    /// Makes a lock that `from` holds in its transaction one of `to`, for as long as that keeps it. False if there is none.
    pub(crate) fn hand_over(&self, from: u64, to: u64, key: LockKey, mode: u8) -> bool {
        let mut state = self.0.lock();
        let State { entries, next_hold, .. } = &mut *state;
        let Some(entry) = entries.get_mut(&key) else { return false };
        let hold = entry.holds.iter_mut().find(|hold| hold.owner == from && hold.scope == Scope::Transaction);
        let Some(count) = hold.map(|hold| &mut hold.counts[mode as usize]).filter(|count| **count > 0) else {
            return false;
        };
        *count = 0;
        entry.holds.retain(|hold| hold.modes() != 0);
        entry.hold(to, mode, Scope::Session, next_hold);
        true
    }

    /// How many holds an owner that drains a lock still waits for.
    pub(crate) fn draining(&self, owner: u64) -> usize {
        self.0.lock().drains.get(&owner).map_or(0, |drain| drain.holds.len())
    }

    /// How many others hold a lock that conflicts with a mode.
    pub(crate) fn count_conflicting(&self, owner: u64, key: LockKey, mode: u8) -> usize {
        self.0.lock().entries.get(&key).map_or(0, |entry| entry.conflicting(owner, mode).count())
    }

    /// Waits until all who hold a lock that conflicts with a mode, now, have given back what they hold of it. Nobody
    /// has to wait because of that, as one would for a lock in this mode.
    ///
    /// # Errors
    /// 40P01 if one of them waits for `owner`; 55P03 after `timeout`.
    pub(crate) async fn drain(
        &self,
        owner: u64,
        key: LockKey,
        mode: u8,
        timeout: Option<Duration>,
    ) -> SqlResult<()> {
        let receiver = {
            let mut state = self.0.lock();
            let against = CONFLICTS[mode as usize];
            let holds: Vec<(u64, u64)> = state.entries.get(&key).map_or_else(Vec::new, |entry| {
                let others =
                    entry.holds.iter().filter(|hold| hold.owner != owner && hold.modes() & against != 0);
                others.map(|hold| (hold.number, hold.owner)).collect()
            });
            if holds.is_empty() {
                return Ok(());
            }
            let (done, receiver) = oneshot::channel();
            state.drains.insert(owner, Drain { key, holds, done });
            if state.waits_for_itself(owner) {
                state.drains.remove(&owner);
                return Err(deadlock());
            }
            receiver
        };
        let _guard = DrainGuard(self, owner);
        let ended = match timeout {
            None => receiver.await.is_ok(),
            Some(limit) => matches!(tokio::time::timeout(limit, receiver).await, Ok(Ok(()))),
        };
        if ended { Ok(()) } else { Err(timed_out()) }
    }

    /// Takes a lock, waiting for it if need be.
    pub(crate) async fn lock(
        &self,
        owner: u64,
        key: LockKey,
        mode: u8,
        scope: Scope,
        timeout: Option<Duration>,
    ) -> SqlResult<()> {
        let receiver = {
            let mut state = self.0.lock();
            let State { entries, next_hold, .. } = &mut *state;
            let entry = entries.entry(key).or_default();
            if entry.may_hold(owner, mode) {
                entry.hold(owner, mode, scope, next_hold);
                return Ok(());
            }
            if state.closes_cycle(owner, key, mode) {
                state.settle(key);
                return Err(deadlock());
            }
            let (granted, receiver) = oneshot::channel();
            state.waits.insert(owner, (key, mode));
            if let Some(entry) = state.entries.get_mut(&key) {
                entry.queue.push_back(Waiter { owner, mode, scope, granted });
            }
            receiver
        };
        let mut guard = WaitGuard { manager: self, owner, key, mode, scope, done: false };
        let limit = match key {
            LockKey::Advisory(..) => timeout,
            _ => Some(timeout.unwrap_or(LONGEST_WAIT)),
        };
        let granted = match limit {
            None => receiver.await.is_ok(),
            Some(limit) => matches!(tokio::time::timeout(limit, receiver).await, Ok(Ok(()))),
        };
        if granted {
            guard.done = true;
            return Ok(());
        }
        Err(timed_out())
    }

    /// Gives back one hold of a lock; false if there is none.
    pub(crate) fn release(&self, owner: u64, key: LockKey, mode: u8, scope: Scope) -> bool {
        let mut state = self.0.lock();
        let Some(entry) = state.entries.get_mut(&key) else { return false };
        let hold = entry.holds.iter_mut().find(|hold| hold.owner == owner && hold.scope == scope);
        let Some(count) = hold.map(|hold| &mut hold.counts[mode as usize]).filter(|count| **count > 0) else {
            return false;
        };
        *count -= 1;
        entry.holds.retain(|hold| hold.modes() != 0);
        state.settle(key);
        true
    }

    /// Gives back all holds of these locks in a scope.
    pub(crate) fn release_all(&self, owner: u64, keys: impl IntoIterator<Item = LockKey>, scope: Scope) {
        let mut state = self.0.lock();
        for key in keys {
            if let Some(entry) = state.entries.get_mut(&key) {
                entry.holds.retain(|hold| hold.owner != owner || hold.scope != scope);
                state.settle(key);
            }
        }
    }

    /// Whether an owner holds a lock in a mode, for however long.
    pub(crate) fn holds(&self, owner: u64, key: LockKey, mode: u8) -> bool {
        let state = self.0.lock();
        let holds = state.entries.get(&key).map(|entry| &entry.holds[..]).unwrap_or_default();
        holds.iter().any(|hold| hold.owner == owner && hold.modes() & (1 << mode) != 0)
    }

    /// Whether nobody holds or waits for anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().entries.is_empty()
    }

    /// What is waited for, by who waits.
    pub(crate) fn awaited(&self) -> HashMap<u64, LockKey> {
        self.0.lock().waits.iter().map(|(owner, (key, _))| (*owner, *key)).collect()
    }

    /// Whom an owner waits for.
    pub(crate) fn blocking(&self, owner: u64) -> Vec<u64> {
        self.0.lock().blockers_of(owner)
    }

    /// The locks, held and waited for.
    pub(crate) fn rows(&self) -> Vec<LockRow> {
        let state = self.0.lock();
        let mut rows = Vec::new();
        for (key, entry) in &state.entries {
            for hold in &entry.holds {
                let modes = (0..8).filter(|mode| hold.counts[*mode as usize] > 0);
                rows.extend(modes.map(|mode| LockRow { key: *key, owner: hold.owner, mode, granted: true }));
            }
            let waiting = entry.queue.iter();
            rows.extend(waiting.map(|w| LockRow { key: *key, owner: w.owner, mode: w.mode, granted: false }));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: LockKey = LockKey::Table(1);
    const U: LockKey = LockKey::Table(2);

    #[test]
    fn modes_conflict_as_in_postgres() {
        for a in 0..8u8 {
            for b in 0..8u8 {
                let forward = CONFLICTS[a as usize] & (1 << b) != 0;
                assert_eq!(forward, CONFLICTS[b as usize] & (1 << a) != 0, "{a} {b}");
            }
        }
        let manager = LockManager::default();
        assert!(manager.try_lock(1, T, mode::ROW_EXCLUSIVE, Scope::Transaction));
        assert!(manager.try_lock(2, T, mode::ROW_EXCLUSIVE, Scope::Transaction));
        assert!(!manager.try_lock(3, T, mode::SHARE, Scope::Transaction));
        assert!(manager.try_lock(3, T, mode::ACCESS_SHARE, Scope::Transaction));
    }

    #[tokio::test]
    async fn a_cycle_is_found_when_it_closes() {
        let manager = std::sync::Arc::new(LockManager::default());
        let lock = |owner, key| {
            let manager = manager.clone();
            async move { manager.lock(owner, key, mode::ACCESS_EXCLUSIVE, Scope::Transaction, None).await }
        };
        lock(1, T).await.unwrap();
        lock(2, U).await.unwrap();
        let waiting = tokio::spawn(lock(1, U));
        while manager.rows().iter().all(|row| row.granted) {
            tokio::task::yield_now().await;
        }
        assert_eq!(lock(2, T).await.unwrap_err().code, SqlState::DEADLOCK);
        manager.release_all(2, [U], Scope::Transaction);
        waiting.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_drain_waits_for_those_who_hold_now_and_keeps_nobody_out() {
        let manager = std::sync::Arc::new(LockManager::default());
        let write = |owner| manager.try_lock(owner, T, mode::ROW_EXCLUSIVE, Scope::Transaction);
        assert!(manager.try_lock(1, T, mode::SHARE_UPDATE_EXCLUSIVE, Scope::Session));
        assert!(write(2) && manager.try_lock(3, T, mode::ACCESS_SHARE, Scope::Transaction));
        let drained = tokio::spawn({
            let manager = manager.clone();
            async move { manager.drain(1, T, mode::SHARE, None).await }
        });
        while manager.blocking(1) != [2] {
            tokio::task::yield_now().await;
        }
        assert!(write(4), "a drain is no lock");
        manager.release_all(2, [T], Scope::Transaction);
        assert!(write(2), "the same owner in another transaction");
        drained.await.unwrap().unwrap();
        assert!(manager.blocking(1).is_empty());
        // Who drains and is waited for by one of those is told.
        let wait = tokio::spawn({
            let manager = manager.clone();
            async move { manager.lock(2, T, mode::ACCESS_EXCLUSIVE, Scope::Transaction, None).await }
        });
        while manager.awaited().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(manager.drain(1, T, mode::SHARE, None).await.unwrap_err().code, SqlState::DEADLOCK);
        wait.abort();
        assert!(wait.await.is_err());
        let soon = Some(Duration::from_millis(1));
        let timed_out = manager.drain(1, T, mode::SHARE, soon).await.unwrap_err();
        assert_eq!(timed_out.code, SqlState::LOCK_NOT_AVAILABLE);
        assert!(manager.blocking(1).is_empty());
    }

    #[tokio::test]
    async fn whoever_stops_waiting_leaves_the_queue() {
        let manager = LockManager::default();
        assert!(manager.try_lock(1, T, mode::ACCESS_SHARE, Scope::Session));
        {
            let wait = manager.lock(2, T, mode::ACCESS_EXCLUSIVE, Scope::Transaction, None);
            tokio::select! { biased; _ = wait => panic!("granted"), () = std::future::ready(()) => {} }
        }
        assert!(manager.try_lock(3, T, mode::ACCESS_SHARE, Scope::Transaction));
        assert!(manager.release(1, T, mode::ACCESS_SHARE, Scope::Session));
        assert!(!manager.release(1, T, mode::ACCESS_SHARE, Scope::Session));
    }
}
