//! One listing of contention out of those of several ranges: pure.

use bytes::Bytes;
use kv_api::contention::{Contention, ContentionEvent};

/// Adds what the next range lists.
pub fn add(found: &mut Contention, here: Contention, limit: usize) {
    found.locks.extend(here.locks);
    found.waits.extend(here.waits);
    found.txns.extend(here.txns);
    found.events.extend(here.events);
    found.truncated |= here.truncated;
    // One node leads many ranges, and says the same for each.
    found.events_dropped = found.events_dropped.max(here.events_dropped);
    // No more is kept than will be shown, and as much again, however many ranges there are.
    if found.events.len() > limit.saturating_mul(2) {
        keep_latest(&mut found.events, limit);
        found.truncated = true;
    }
    found.truncated |=
        shorten(&mut found.locks, limit) | shorten(&mut found.waits, limit) | shorten(&mut found.txns, limit);
}

/// Puts what was found in order, and its keys as the caller knows them.
pub fn finish(found: &mut Contention, limit: usize, strip: impl Fn(Bytes) -> Bytes) {
    found.truncated |= found.events.len() > limit;
    keep_latest(&mut found.events, limit);
    found.txns.sort_by(|one, other| (&one.txn, one.range_id).cmp(&(&other.txn, other.range_id)));
    let keys = found.locks.iter_mut().map(|lock| &mut lock.key);
    let keys = keys.chain(found.waits.iter_mut().map(|wait| &mut wait.key));
    for key in keys.chain(found.events.iter_mut().map(|event| &mut event.key)) {
        *key = strip(std::mem::take(key));
    }
}

fn keep_latest(events: &mut Vec<ContentionEvent>, limit: usize) {
    events.sort_by_key(|event| event.ended_ns);
    let more = events.len().saturating_sub(limit);
    events.drain(..more);
}

fn shorten<T>(list: &mut Vec<T>, limit: usize) -> bool {
    let more = list.len() > limit;
    list.truncate(limit);
    more
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv_api::contention::{LockInfo, TxnInfo};

    fn listing(lock: &'static str, event: u64) -> Contention {
        let key = Bytes::from_static(lock.as_bytes());
        Contention {
            locks: vec![LockInfo { key: key.clone(), ..LockInfo::default() }],
            txns: vec![TxnInfo { range_id: event, ..TxnInfo::default() }],
            events: vec![ContentionEvent { key, ended_ns: event, ..ContentionEvent::default() }],
            events_dropped: event,
            ..Contention::default()
        }
    }

    #[test]
    fn ranges_are_put_together_and_the_latest_events_kept() {
        let mut found = Contention::default();
        for (lock, event) in [("pa", 30), ("pb", 10), ("pc", 20)] {
            add(&mut found, listing(lock, event), 2);
        }
        finish(&mut found, 2, |key| key.slice(1..));
        assert!(found.truncated);
        assert_eq!(found.locks.iter().map(|lock| &lock.key[..]).collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(found.events.iter().map(|event| event.ended_ns).collect::<Vec<_>>(), [20, 30]);
        assert_eq!(found.events_dropped, 30);
        let mut whole = Contention::default();
        add(&mut whole, listing("pa", 30), 2);
        finish(&mut whole, 2, |key| key);
        assert!(!whole.truncated);
    }
}
