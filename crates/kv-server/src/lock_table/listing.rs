//! What a listing shows of the table: in the order of the keys, and what is contended first if not all is shown.

use super::{AwaitedLock, HeldLock, LockTable, WaiterId};
use bytes::Bytes;
use kv_api::Span;

/// Most transactions named that one request waits for.
const MAX_BLOCKERS: usize = 8;

impl<W> LockTable<W> {
    /// The locks held on the keys of a span, at most `limit`: first those that somebody waits for. Says whether
    /// there are more.
    pub fn list_held(&self, span: &Span, limit: usize) -> (Vec<HeldLock>, bool) {
        let contended = self.queued_within(span);
        let others = self.locks.keys().filter(|key| span.contains(key) && !self.queued.contains(*key));
        let mut listed = Vec::new();
        for key in contended.into_iter().chain(others) {
            for holder in self.locks.get(key).into_iter().flat_map(|lock| lock.holders()) {
                if listed.len() >= limit {
                    return (sorted(listed), true);
                }
                let (txn, strength, since) = (holder.txn, holder.strength, holder.since);
                listed.push(HeldLock { key: key.clone(), txn, strength, since });
            }
        }
        (sorted(listed), false)
    }

    /// The requests that wait for keys of a span, each queue in its order, at most `limit`. Says whether there are
    /// more.
    pub fn list_awaited(&self, span: &Span, limit: usize) -> (Vec<AwaitedLock>, bool) {
        let mut listed = Vec::new();
        for key in self.queued_within(span) {
            let Some(lock) = self.locks.get(key) else { continue };
            for (place, waiter) in lock.queue() {
                if listed.len() >= limit {
                    return (listed, true);
                }
                let blockers = lock.blockers(&self.standings, waiter.txn, waiter.strength, *place);
                listed.push(AwaitedLock {
                    key: key.clone(),
                    txn: waiter.txn,
                    strength: waiter.strength,
                    since: waiter.since,
                    blockers: blockers.take(MAX_BLOCKERS).collect(),
                });
            }
        }
        (listed, false)
    }

    /// How many requests wait.
    pub fn waiters(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a wait is still one.
    pub fn is_waiting(&self, waiter: WaiterId) -> bool {
        self.waiting.contains_key(&waiter)
    }

    fn queued_within(&self, span: &Span) -> Vec<&Bytes> {
        let mut keys: Vec<_> = self.queued.iter().filter(|key| span.contains(key)).collect();
        keys.sort_unstable();
        keys
    }
}

fn sorted(mut locks: Vec<HeldLock>) -> Vec<HeldLock> {
    locks.sort_by(|one, other| (&one.key, one.txn).cmp(&(&other.key, other.txn)));
    locks
}
