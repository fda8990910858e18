//! Answers [`ListContention`]: what there is of locks, waits and transactions in a range, and which waits have ended.
//!
//! Nothing is waited for: neither latches nor locks, and the shard is looked at for as long as it takes to copy what
//! is asked for. Intents are read from the engine; those that nobody asked for take no memory, and count as locks of
//! their transactions all the same.

use crate::contention::Event;
use crate::lock_table::{AwaitedLock, HeldLock};
use crate::node::{Asker, BatchResult, Node};
use crate::shard::{OpenPart, Shard, TxnStatus, WaitingReader};
use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use kv_api::batch::Response;
use kv_api::contention::{
    Contention, ContentionEvent, ListContention, LockInfo, MAX_LISTED, TxnInfo, TxnPhase, WaitInfo,
};
use kv_api::{BatchResponse, LockStrength, Span};
use replication::{Millis, RangeId};
use storage::intent::{Intent, TxnId};
use storage::{Bounds, Space, StorageResult};

/// Turns times of the node's monotonic clock into such of its wall clock.
#[derive(Clone, Copy)]
struct Clocks {
    millis: Millis,
    wall_ns: u64,
}

impl Clocks {
    fn wall(self, at: Millis) -> u64 {
        self.wall_ns.saturating_sub(self.millis.saturating_sub(at).saturating_mul(1_000_000))
    }
}

impl Node {
    /// Lists contention in a span of a range. The caller has seen to it that the span lies within the range and is
    /// the asker's own.
    pub(crate) fn list_contention(&self, asker: Asker, request: &ListContention) -> BatchResult {
        let limit = if request.limit == 0 { MAX_LISTED } else { request.limit.min(MAX_LISTED) } as usize;
        let span = Span::new(request.start.clone(), request.end.clone());
        let clocks =
            Clocks { millis: self.pipeline.millis(), wall_ns: self.pipeline.environment().physical_ns() };
        let (mut found, writers) = {
            let shard = self.shard(asker.tenant);
            let found = in_memory(&shard, asker, &span, limit, clocks);
            (found, shard.writers(asker.range))
        };
        if !writers.is_empty() {
            let writers = writers.into_iter().map(|(id, since)| (id, clocks.wall(since))).collect();
            self.add_intents(&span, limit, &writers, &mut found)?;
        }
        let response = Response { contention: Some(Box::new(found)), ..Response::default() };
        Ok(BatchResponse { responses: vec![response], ..BatchResponse::default() })
    }

    /// Adds the intents of open transactions, as locks.
    fn add_intents(
        &self,
        span: &Span,
        limit: usize,
        writers: &HashMap<TxnId, u64>,
        found: &mut Contention,
    ) -> StorageResult<()> {
        let listed: HashMap<(Bytes, Bytes), usize> =
            (0..).zip(&found.locks).map(|(at, lock)| ((lock.key.clone(), lock.txn.clone()), at)).collect();
        let mut cursor = self.engine.cursor(Space::Locks, Bounds::new(&span.start, &span.end));
        cursor.seek_to_first();
        let mut looked_at = 0;
        while let Some((key, value)) = cursor.item() {
            if looked_at >= limit {
                found.truncated = true;
                break;
            }
            looked_at += 1;
            let id = Intent::decode_txn(value)?;
            if let Some(since_ns) = writers.get(&id) {
                let (key, txn) = (Bytes::copy_from_slice(key), bytes(id));
                let known = listed.get(&(key.clone(), txn.clone()));
                match known.and_then(|at| found.locks.get_mut(*at)) {
                    Some(lock) => lock.intent = true,
                    None => found.locks.push(LockInfo {
                        key,
                        strength: LockStrength::Exclusive as i32,
                        txn,
                        since_ns: *since_ns,
                        intent: true,
                    }),
                }
            }
            cursor.next();
        }
        cursor.status()?;
        found.locks.sort_by(|one, other| (&one.key, &one.txn).cmp(&(&other.key, &other.txn)));
        if found.locks.len() > limit {
            found.truncated = true;
            keep_contended(found, limit);
        }
        Ok(())
    }
}

/// Leaves out locks beyond the limit: first those that nobody waits for.
fn keep_contended(found: &mut Contention, limit: usize) {
    let awaited: HashSet<&Bytes> = found.waits.iter().map(|wait| &wait.key).collect();
    let mut room =
        limit.saturating_sub(found.locks.iter().filter(|lock| awaited.contains(&lock.key)).count());
    found.locks.retain(|lock| {
        awaited.contains(&lock.key) || {
            let kept = room > 0;
            room = room.saturating_sub(1);
            kept
        }
    });
    found.locks.truncate(limit);
}

fn in_memory(shard: &Shard, asker: Asker, span: &Span, limit: usize, clocks: Clocks) -> Contention {
    let Asker { tenant, range, .. } = asker;
    let (held, more_held) = shard.locks.list_held(span, limit);
    let (awaited, more_awaited) = shard.locks.list_awaited(span, limit);
    let mut readers = shard.waiting_readers(tenant, range);
    let mut parts = shard.open_parts(tenant, range);
    let concerned = |event: &&Event| {
        if event.key.is_empty() { event.range == range } else { span.contains(&event.key) }
    };
    let mut events: Vec<_> = shard.events.of_tenant(tenant).filter(concerned).rev().take(limit + 1).collect();
    let more = awaited.len() + readers.len() > limit || parts.len() > limit || events.len() > limit;
    readers.truncate(limit.saturating_sub(awaited.len()));
    parts.truncate(limit);
    events.truncate(limit);
    let waits = awaited.into_iter().map(|wait| wait_info(wait, clocks));
    Contention {
        locks: held.into_iter().map(|lock| lock_info(lock, clocks)).collect(),
        waits: waits.chain(readers.into_iter().map(|reader| reader_info(reader, clocks))).collect(),
        txns: parts.into_iter().map(|part| txn_info(shard, part, range, clocks)).collect(),
        events: events.into_iter().rev().map(event_info).collect(),
        truncated: more_held || more_awaited || more,
        events_dropped: shard.events.dropped(tenant),
    }
}

fn bytes(id: TxnId) -> Bytes {
    Bytes::copy_from_slice(&id)
}

fn lock_info(lock: HeldLock, clocks: Clocks) -> LockInfo {
    LockInfo {
        key: lock.key,
        strength: lock.strength as i32,
        txn: bytes(lock.txn.id),
        since_ns: lock.since.map_or(clocks.wall_ns, |since| clocks.wall(since)),
        intent: false,
    }
}

fn wait_info(wait: AwaitedLock, clocks: Clocks) -> WaitInfo {
    WaitInfo {
        key: wait.key,
        strength: wait.strength as i32,
        txn: bytes(wait.txn.id),
        since_ns: clocks.wall(wait.since),
        blockers: wait.blockers.into_iter().map(|txn| bytes(txn.id)).collect(),
    }
}

fn reader_info(reader: WaitingReader, clocks: Clocks) -> WaitInfo {
    WaitInfo {
        key: Bytes::new(),
        strength: LockStrength::None as i32,
        txn: reader.txn.map(bytes).unwrap_or_default(),
        since_ns: clocks.wall(reader.since),
        blockers: vec![bytes(reader.prepared)],
    }
}

fn txn_info(shard: &Shard, part: OpenPart, range: RangeId, clocks: Clocks) -> TxnInfo {
    let phase = match part.status {
        TxnStatus::Pending => TxnPhase::Pending,
        TxnStatus::Committing => TxnPhase::Committing,
        TxnStatus::Preparing => TxnPhase::Preparing,
        TxnStatus::Prepared(_) => TxnPhase::Prepared,
    };
    TxnInfo {
        txn: bytes(part.txn.id),
        range_id: range,
        phase: phase as i32,
        since_ns: part.opened.map_or(clocks.wall_ns, |opened| clocks.wall(opened)),
        locks: shard.locks.held_count(part.txn) as u64,
        intents: part.intents,
    }
}

fn event_info(event: &Event) -> ContentionEvent {
    ContentionEvent {
        key: event.key.clone(),
        strength: event.strength as i32,
        waiter: event.waiter.map(bytes).unwrap_or_default(),
        holder: event.holder.map(bytes).unwrap_or_default(),
        ended_ns: event.ended_ns,
        duration_us: event.duration_us,
        end: event.end as i32,
    }
}
