//! Parts of transactions between two coordinators.
//!
//! ```text
//!   of a connection, hop h ── detach ──► of nobody, hop h + 1 ── adopt ──► of another connection, hop h + 1
//!                                              └── the time is up, abort ──► gone
//! ```
//!
//! While it is of nobody a part keeps its locks, its intents and its snapshot, and no request of the transaction is
//! let in. It does not end with any connection. There are at most so many of a tenant, and each lasts for a bounded
//! time ([`crate::Limits::max_detached_per_tenant`], [`crate::Limits::detached_kept`]).

use super::{ConnectionId, PartKey, Shard, TxnEntry, TxnStatus, aborted, wake};
use hashbrown::HashMap;
use kv_api::{KvError, KvErrorKind, Span, Timestamp};
use replication::Millis;

/// The connection of a part that belongs to none.
const NOBODY: ConnectionId = 0;

/// Parts that wait for another coordinator.
#[derive(Debug, Default)]
pub(super) struct Detached {
    since: HashMap<PartKey, Millis>,
    per_tenant: HashMap<u64, usize>,
}

impl Detached {
    fn add(&mut self, part: PartKey, now: Millis) {
        if self.since.insert(part, now).is_none() {
            *self.per_tenant.entry(part.txn.tenant).or_default() += 1;
        }
    }

    /// Forgets a part, if it is one of them.
    pub(super) fn remove(&mut self, part: PartKey) {
        if self.since.remove(&part).is_none() {
            return;
        }
        if let Some(count) = self.per_tenant.get_mut(&part.txn.tenant) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.per_tenant.remove(&part.txn.tenant);
            }
        }
    }

    fn count(&self, tenant: u64) -> usize {
        self.per_tenant.get(&tenant).copied().unwrap_or(0)
    }
}

/// What a coordinator is told that speaks under another number than the transaction is known under.
pub(super) fn handed_over() -> KvError {
    aborted("the transaction was handed to another process")
}

impl Shard {
    /// Leaves a part to another coordinator; makes it if there is none. Call [`Shard::check`] before.
    ///
    /// # Errors
    /// [`KvErrorKind::Overloaded`] if too many parts of the tenant wait, or it was handed over too often.
    pub fn detach(
        &mut self,
        part: PartKey,
        connection: ConnectionId,
        hop: u32,
        snapshot: Option<Timestamp>,
        now: Millis,
        most: usize,
    ) -> Result<(), KvError> {
        let overloaded = |message| KvError::new(KvErrorKind::Overloaded, message);
        if self.detached.count(part.txn.tenant) >= most {
            return Err(overloaded("too many transactions wait to be imported"));
        }
        let Some(next) = hop.checked_add(1) else {
            return Err(overloaded("the transaction was exported too often"));
        };
        let entry = self.txn_mut(part, connection);
        (entry.hop, entry.connection) = (next, NOBODY);
        entry.snapshot = entry.snapshot.or(snapshot);
        if let Some(usage) = self.connections.get_mut(&connection) {
            usage.txns = usage.txns.saturating_sub(1);
        }
        // Of requests that their coordinator gave up: it has none under way.
        wake(self.locks.end_waits(part.txn));
        self.detached.add(part, now);
        Ok(())
    }

    /// Gives a part that was left to a connection. With `claim_only` it ends instead, and what it holds within the
    /// span of its range is given up.
    ///
    /// # Errors
    /// [`KvErrorKind::Aborted`] if there is no such part, it was taken over already, or the connection is gone, and
    /// [`KvErrorKind::Overloaded`] if the connection has no room.
    pub fn adopt(
        &mut self,
        part: PartKey,
        connection: ConnectionId,
        hop: u32,
        claim_only: Option<&Span>,
        max_txns: usize,
    ) -> Result<(), KvError> {
        let room = self.connections.get(&connection).map(|usage| usage.txns < max_txns);
        let Some(room) = room else { return Err(aborted("the connection is gone")) };
        let Some(entry) = self.txns.get(&part) else {
            return Err(aborted(
                "there is no transaction to import: it was imported already or has ended, was not imported in time, \
                 or the lease of its range moved",
            ));
        };
        if entry.hop != hop {
            return Err(handed_over());
        }
        if !self.is_detached(part) {
            return Err(aborted("the transaction was imported already"));
        }
        if let Some(span) = claim_only
            && entry.intents.is_empty()
        {
            self.forget_part(part);
            let known = self.is_known(part.txn);
            self.release_part(part, span, known);
            return Ok(());
        }
        if !room {
            let message = "too many open transactions on one connection";
            return Err(KvError::new(KvErrorKind::Overloaded, message));
        }
        self.detached.remove(part);
        if let Some(entry) = self.txns.get_mut(&part) {
            entry.connection = connection;
        }
        if let Some(usage) = self.connections.get_mut(&connection) {
            usage.txns += 1;
        }
        Ok(())
    }

    /// Whether a part waits for another coordinator.
    pub fn is_detached(&self, part: PartKey) -> bool {
        self.detached.since.contains_key(&part)
    }

    /// Checks that a pending part may be aborted by who asks: the coordinator it belongs to, or, if it waits for one,
    /// anybody who might take it over.
    ///
    /// # Errors
    /// [`KvErrorKind::Aborted`] if it may not.
    pub fn may_abort(&self, part: PartKey, connection: ConnectionId, hop: u32) -> Result<(), KvError> {
        match self.txns.get(&part) {
            Some(TxnEntry { status: TxnStatus::Pending, hop: known, .. }) if *known != hop => {
                Err(handed_over())
            }
            Some(TxnEntry { status: TxnStatus::Pending, connection: known, .. })
                if *known != connection && !self.is_detached(part) =>
            {
                Err(aborted("the transaction belongs to another connection"))
            }
            _ => Ok(()),
        }
    }

    /// Parts that wait since before a time.
    pub fn overdue(&self, before: Millis) -> Vec<PartKey> {
        let overdue = self.detached.since.iter().filter(|(_, since)| **since < before);
        let mut overdue: Vec<PartKey> = overdue.map(|(part, _)| *part).collect();
        // In an order that a simulation can repeat.
        overdue.sort_unstable();
        overdue
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_table::TxnKey;
    use bytes::Bytes;

    const MOST: usize = 2;

    fn part(byte: u8) -> PartKey {
        PartKey { range: 1, txn: TxnKey { tenant: 2, id: [byte; 16] } }
    }

    fn shard() -> Shard {
        let mut shard = Shard::default();
        shard.open_connection(1);
        shard.open_connection(2);
        shard
    }

    fn detach(shard: &mut Shard, byte: u8, hop: u32) -> Result<(), KvError> {
        shard.detach(part(byte), 1, hop, None, 10, MOST)
    }

    #[test]
    fn a_part_that_was_left_is_taken_over_once_and_under_its_number() {
        let mut shard = shard();
        shard.txn_mut(part(1), 1);
        detach(&mut shard, 1, 0).unwrap();
        assert!(shard.check(part(1), 1, 0, false).is_err(), "by who left it");
        assert!(shard.check(part(1), 1, 1, false).is_err(), "before it is taken over");
        assert!(shard.close_connection(1).is_empty(), "it does not end with the connection");
        assert!(shard.adopt(part(1), 2, 0, None, 9).is_err());
        assert!(shard.adopt(part(1), 2, 2, None, 9).is_err());
        assert!(shard.adopt(part(1), 3, 1, None, 9).is_err(), "no such connection");
        shard.adopt(part(1), 2, 1, None, 9).unwrap();
        assert!(shard.check(part(1), 2, 1, false).is_ok());
        assert!(shard.check(part(1), 2, 0, false).is_err(), "the number counts on the same connection, too");
        assert!(shard.adopt(part(1), 2, 1, None, 9).is_err(), "twice");
        assert_eq!(shard.close_connection(2), [part(1)]);
    }

    #[test]
    fn a_claim_is_taken_once_and_leaves_nothing() {
        let mut shard = shard();
        detach(&mut shard, 1, 4).unwrap();
        let span = Span::new(Bytes::from_static(b"a"), Bytes::from_static(b"b"));
        shard.adopt(part(1), 2, 5, Some(&span), 9).unwrap();
        assert!(shard.adopt(part(1), 2, 5, Some(&span), 9).is_err());
        assert!(shard.is_idle());
        assert!(shard.check(part(1), 2, 5, false).is_ok(), "the transaction may come again");
    }

    #[test]
    fn what_waits_is_bounded_and_counted_where_it_belongs() {
        let mut shard = shard();
        shard.txn_mut(part(1), 1);
        detach(&mut shard, 1, 0).unwrap();
        detach(&mut shard, 2, 0).unwrap();
        assert_eq!(detach(&mut shard, 3, 0).unwrap_err().kind(), KvErrorKind::Overloaded);
        assert!(shard.txn(part(3)).is_none());
        assert!(shard.check_room(part(3), 1, 1).is_ok(), "they are no longer of the connection");
        let error = shard.adopt(part(1), 2, 1, None, 0).unwrap_err();
        assert_eq!(error.kind(), KvErrorKind::Overloaded);
        shard.adopt(part(1), 2, 1, None, 1).unwrap();
        assert!(shard.check_room(part(3), 2, 1).is_err());
        detach(&mut shard, 3, u32::MAX).unwrap_err();
        detach(&mut shard, 3, 0).unwrap();
        for byte in 1..=3 {
            shard.end(part(byte));
        }
        assert!(shard.is_idle() && shard.detached.per_tenant.is_empty() && shard.detached.since.is_empty());
    }

    #[test]
    fn who_might_take_it_over_may_abort_it_and_others_may_not() {
        let mut shard = shard();
        shard.txn_mut(part(1), 1);
        assert!(shard.may_abort(part(1), 1, 0).is_ok() && shard.may_abort(part(1), 2, 0).is_err());
        detach(&mut shard, 1, 0).unwrap();
        assert!(shard.may_abort(part(1), 1, 0).is_err(), "who left it");
        assert!(shard.may_abort(part(1), 1, 1).is_ok() && shard.may_abort(part(1), 2, 1).is_ok());
        shard.adopt(part(1), 2, 1, None, 9).unwrap();
        assert!(shard.may_abort(part(1), 2, 1).is_ok() && shard.may_abort(part(1), 1, 1).is_err());
        assert!(shard.may_abort(part(9), 1, 0).is_ok(), "nobody knows it");
    }

    #[test]
    fn parts_are_overdue_when_their_time_is_up() {
        let mut shard = shard();
        detach(&mut shard, 1, 0).unwrap();
        assert!(shard.overdue(10).is_empty());
        assert_eq!(shard.overdue(11), [part(1)]);
        shard.end(part(1));
        assert!(shard.overdue(11).is_empty());
    }
}
