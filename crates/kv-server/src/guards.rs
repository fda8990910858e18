//! What is given back when whoever holds it is dropped.

use crate::contention::Watch;
use crate::latch::LatchId;
use crate::lock_table::WaiterId;
use crate::metrics::metrics;
use crate::node::{Asker, Node};
use crate::shard::{PartKey, aborted};
use kv_api::contention::WaitEnd;
use kv_api::{KvError, KvErrorKind};
use replication::RangeId;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How often it is looked whether intents are still there.
const HELD_PAUSE: Duration = Duration::from_millis(5);

/// Latches, given back when dropped.
pub(crate) struct LatchGuard {
    node: Arc<Node>,
    tenant: u64,
    id: LatchId,
    armed: bool,
}

impl LatchGuard {
    pub(crate) fn new(node: Arc<Node>, tenant: u64, id: LatchId) -> Self {
        LatchGuard { node, tenant, id, armed: true }
    }

    /// The name under which the latches can be given back.
    pub(crate) fn clone_id(&self) -> LatchId {
        self.id
    }

    /// Gives back the read latches and leaves the write latches to whoever has the id.
    pub(crate) fn disarm_after_reads(mut self) {
        self.armed = false;
        let woken = self.node.shard(self.tenant).latches.release_reads(self.id);
        for waker in woken {
            let _ = waker.send(());
        }
    }
}

impl Drop for LatchGuard {
    fn drop(&mut self) {
        if self.armed {
            self.node.unlatch(self.tenant, self.id);
        }
    }
}

/// Keeps transactions from having their first intents in a range, until it is dropped.
pub(crate) struct HeldIntents {
    node: Arc<Node>,
    tenant: u64,
    range: RangeId,
}

impl HeldIntents {
    /// Waits until no transaction has intents in a range, at most for `patience`, and sees to it that it stays so as
    /// far as that goes by waiting. Reads, commits within the range and the settling of what is prepared go on.
    pub(crate) async fn await_none(
        node: &Arc<Node>,
        tenant: u64,
        range: RangeId,
        patience: Duration,
    ) -> Self {
        node.shard(tenant).hold_intents(range, true);
        let held = HeldIntents { node: Arc::clone(node), tenant, range };
        let deadline = tokio::time::Instant::now() + patience;
        while !node.shard(tenant).is_divisible(range) && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(HELD_PAUSE).await;
        }
        held
    }
}

impl Drop for HeldIntents {
    fn drop(&mut self) {
        self.node.shard(self.tenant).hold_intents(self.range, false);
    }
}

/// A batch that is a transaction of its own, for as long as it may hold locks.
pub(crate) struct LoneTxn {
    pub(crate) node: Arc<Node>,
    pub(crate) part: PartKey,
}

impl Drop for LoneTxn {
    fn drop(&mut self) {
        let mut shard = self.node.shard(self.part.txn.tenant);
        if shard.txn(self.part).is_some() {
            shard.end(self.part);
        }
    }
}

/// A place in the queue of a lock, given up when dropped.
pub struct LockWait {
    node: Arc<Node>,
    asker: Asker,
    part: PartKey,
    waiter: WaiterId,
    watch: Watch,
    woken: oneshot::Receiver<()>,
    /// How it ended, once it has.
    end: Option<WaitEnd>,
}

impl LockWait {
    pub(crate) fn new(
        node: Arc<Node>,
        asker: Asker,
        part: PartKey,
        waiter: WaiterId,
        watch: Watch,
        woken: oneshot::Receiver<()>,
    ) -> Self {
        metrics().lock_waits.inc();
        metrics().lock_waiters.inc();
        node.shard(asker.tenant).note_lock_wait(asker.connection, true);
        LockWait { node, asker, part, waiter, watch, woken, end: None }
    }

    pub(crate) async fn granted(mut self, timeout_ms: u32) -> Result<(), KvError> {
        let woken = &mut self.woken;
        let outcome = if timeout_ms == 0 {
            woken.await
        } else {
            match tokio::time::timeout(Duration::from_millis(u64::from(timeout_ms)), woken).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    self.end = Some(WaitEnd::TimedOut);
                    let message = "canceling statement due to lock timeout";
                    return Err(self.error(KvErrorKind::LockNotAvailable, message));
                }
            }
        };
        if outcome.is_ok() {
            self.end = Some(WaitEnd::Granted);
            return Ok(());
        }
        if self.node.shard(self.asker.tenant).take_victim(self.part.txn) {
            metrics().deadlocks.inc();
            self.end = Some(WaitEnd::Deadlock);
            return Err(self.error(KvErrorKind::Deadlock, "deadlock detected"));
        }
        Err(aborted("the transaction ended while it waited for a lock"))
    }

    fn error(&self, kind: KvErrorKind, message: &str) -> KvError {
        KvError::new(kind, message).with_key(self.watch.key.clone())
    }
}

impl Drop for LockWait {
    fn drop(&mut self) {
        metrics().lock_waiters.dec();
        let mut shard = self.node.shard(self.asker.tenant);
        shard.note_lock_wait(self.asker.connection, false);
        let end = self.end.unwrap_or(WaitEnd::Cancelled);
        if end == WaitEnd::Granted {
            shard.locks.note_granted(self.part.txn, &self.watch.key, self.node.pipeline.millis());
        }
        self.watch.note(&self.node, &mut shard, self.asker, end);
        shard.cancel_wait(self.waiter);
    }
}

/// A wait for what becomes of a prepared transaction.
pub(crate) struct DecisionWait<'a> {
    node: &'a Node,
    asker: Asker,
    watch: Watch,
    end: WaitEnd,
}

impl<'a> DecisionWait<'a> {
    pub(crate) fn new(node: &'a Node, asker: Asker, watch: Watch) -> Self {
        metrics().decision_waits.inc();
        node.shard(asker.tenant).note_lock_wait(asker.connection, true);
        DecisionWait { node, asker, watch, end: WaitEnd::Cancelled }
    }

    /// Notes how it ends.
    pub(crate) fn ended(mut self, end: WaitEnd) {
        self.end = end;
    }
}

impl Drop for DecisionWait<'_> {
    fn drop(&mut self) {
        let mut shard = self.node.shard(self.asker.tenant);
        shard.note_lock_wait(self.asker.connection, false);
        self.watch.note(self.node, &mut shard, self.asker, self.end);
    }
}
