//! Waits that have ended: which transaction waited for which on which key, how long, and how that ended.
//!
//! A wait is noted when it ends, however it ends ([`Watch`]); what is granted at once leaves no trace and costs
//! nothing. A shard keeps the last [`MAX_PER_TENANT`] of each of its tenants ([`Events`]), and no more than
//! [`MAX_PER_SHARD`] in all: then the tenant that has contended least lately loses its. Counters say how many were
//! dropped. Nothing of this is durable, or goes anywhere with a lease.

use crate::lock_table::TxnKey;
use crate::metrics::metrics;
use crate::node::{Asker, Node};
use crate::shard::Shard;
use bytes::Bytes;
use hashbrown::HashMap;
use kv_api::LockStrength;
use kv_api::contention::WaitEnd;
use replication::RangeId;
use std::collections::VecDeque;
use storage::intent::TxnId;
use tokio::time::Instant;

/// Most events kept of a tenant.
pub const MAX_PER_TENANT: usize = 1_000;
/// Most events kept by a shard.
pub const MAX_PER_SHARD: usize = 8_000;

/// A wait that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The range.
    pub range: RangeId,
    /// The key; empty if what became of a prepared transaction was waited for.
    pub key: Bytes,
    /// What was wanted.
    pub strength: LockStrength,
    /// Who waited, if the request was part of a transaction.
    pub waiter: Option<TxnId>,
    /// The first of those whom it waited for when it began to.
    pub holder: Option<TxnId>,
    /// When it ended, in nanoseconds since the Unix epoch.
    pub ended_ns: u64,
    /// How long it took, in microseconds.
    pub duration_us: u64,
    /// How it ended.
    pub end: WaitEnd,
}

/// The last events of the tenants of a shard.
#[derive(Debug, Default)]
pub struct Events {
    by_tenant: HashMap<u64, Kept>,
    /// How many there are of all tenants.
    len: usize,
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Event>,
    dropped: u64,
}

impl Events {
    /// Notes an event. Returns how many others had to go.
    pub fn note(&mut self, tenant: u64, event: Event) -> u64 {
        let mut gone = 0;
        if self.len >= MAX_PER_SHARD {
            gone += self.drop_quietest(tenant);
        }
        let kept = self.by_tenant.entry(tenant).or_default();
        kept.events.push_back(event);
        self.len += 1;
        if kept.events.len() > MAX_PER_TENANT {
            kept.events.pop_front();
            kept.dropped += 1;
            self.len -= 1;
            gone += 1;
        }
        gone
    }

    /// Drops what is kept of the tenant whose last event is the oldest, unless it is `but`.
    fn drop_quietest(&mut self, but: u64) -> u64 {
        let others = self.by_tenant.iter().filter(|(tenant, _)| **tenant != but);
        let last = |kept: &Kept| kept.events.back().map(|event| event.ended_ns);
        let quietest = others.min_by_key(|(tenant, kept)| (last(kept), **tenant)).map(|(tenant, _)| *tenant);
        let gone = quietest.and_then(|tenant| self.by_tenant.remove(&tenant));
        let gone = gone.map_or(0, |kept| kept.events.len());
        self.len -= gone;
        gone as u64
    }

    /// The events of a tenant, the latest last.
    pub fn of_tenant(&self, tenant: u64) -> impl DoubleEndedIterator<Item = &Event> {
        self.by_tenant.get(&tenant).into_iter().flat_map(|kept| &kept.events)
    }

    /// How many events of a tenant were dropped to make room for its own.
    pub fn dropped(&self, tenant: u64) -> u64 {
        self.by_tenant.get(&tenant).map_or(0, |kept| kept.dropped)
    }

    /// Forgets the events of a range.
    pub fn forget(&mut self, range: RangeId) {
        let mut len = 0;
        self.by_tenant.retain(|_, kept| {
            kept.events.retain(|event| event.range != range);
            len += kept.events.len();
            !kept.events.is_empty()
        });
        self.len = len;
    }
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// A lock.
    Lock,
    /// What becomes of a prepared transaction.
    Decision,
}

/// A wait under way, or one that was refused.
#[derive(Debug)]
pub struct Watch {
    /// What is waited for.
    pub kind: WaitKind,
    /// The key, if it is a lock.
    pub key: Bytes,
    /// How it is wanted.
    pub strength: LockStrength,
    /// Who waits, if it is a transaction.
    pub waiter: Option<TxnKey>,
    /// Whom for.
    pub holder: Option<TxnKey>,
    began: Instant,
}

impl Watch {
    /// A wait that begins now.
    pub fn new(
        kind: WaitKind,
        key: Bytes,
        strength: LockStrength,
        waiter: Option<TxnKey>,
        holder: Option<TxnKey>,
    ) -> Self {
        // Copied, for an event must not keep the buffer of a request.
        let key = Bytes::copy_from_slice(&key);
        Watch { kind, key, strength, waiter, holder, began: Instant::now() }
    }

    /// Notes that the wait has ended.
    pub(crate) fn note(&self, node: &Node, shard: &mut Shard, asker: Asker, end: WaitEnd) {
        let took = self.began.elapsed();
        metrics().wait(self.kind, end).observe(took.as_secs_f64());
        let event = Event {
            range: asker.range,
            key: self.key.clone(),
            strength: self.strength,
            waiter: self.waiter.map(|txn| txn.id),
            holder: self.holder.map(|txn| txn.id),
            ended_ns: node.pipeline.environment().physical_ns(),
            duration_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            end,
        };
        metrics().events_dropped.inc_by(shard.events.note(asker.tenant, event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(range: RangeId, at: u64) -> Event {
        Event {
            range,
            key: Bytes::from_static(b"k"),
            strength: LockStrength::Exclusive,
            waiter: Some([1; 16]),
            holder: Some([2; 16]),
            ended_ns: at,
            duration_us: 1,
            end: WaitEnd::Granted,
        }
    }

    #[test]
    fn the_last_events_of_a_tenant_are_kept() {
        let mut events = Events::default();
        for at in 0..MAX_PER_TENANT as u64 + 5 {
            assert_eq!(events.note(7, event(1, at)), u64::from(at >= MAX_PER_TENANT as u64));
        }
        assert_eq!(events.of_tenant(7).count(), MAX_PER_TENANT);
        assert_eq!(events.of_tenant(7).next().map(|event| event.ended_ns), Some(5));
        assert_eq!((events.dropped(7), events.dropped(8)), (5, 0));
        events.note(7, event(2, 9));
        events.forget(1);
        assert_eq!((events.of_tenant(7).count(), events.len), (1, 1));
        events.forget(2);
        assert!(events.by_tenant.is_empty());
    }

    #[test]
    fn the_quietest_tenant_makes_room() {
        let mut events = Events::default();
        let tenants = (MAX_PER_SHARD / MAX_PER_TENANT) as u64;
        for tenant in 0..tenants {
            (0..MAX_PER_TENANT as u64).for_each(|at| {
                events.note(tenant, event(1, tenant * 10_000 + at));
            });
        }
        assert_eq!(events.len, MAX_PER_SHARD);
        assert_eq!(events.note(99, event(1, 1)), MAX_PER_TENANT as u64, "all of the first tenant's");
        assert_eq!(events.of_tenant(0).count(), 0);
        assert_eq!(events.of_tenant(1).count(), MAX_PER_TENANT);
        assert_eq!(events.len, MAX_PER_SHARD - MAX_PER_TENANT + 1);
    }
}
