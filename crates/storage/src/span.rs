//! Where the contents of a span of user keys lie.

use crate::engine::Space;
use crate::key::history_prefix;
use crate::txn_record;
use bytes::Bytes;

/// The parts of the store that belong to the user keys from `start` to before `end`: what a snapshot of
/// a range has to carry and the removal of a range to clear. Each is a space, its first key and the first
/// key after it.
pub fn range_spans(start: &[u8], end: &[u8]) -> Vec<(Space, Bytes, Bytes)> {
    let plain = |space| (space, Bytes::copy_from_slice(start), Bytes::copy_from_slice(end));
    let records = txn_record::spans(start, end).map(|(first, after)| (Space::Meta, first, after));
    let mut spans = vec![
        plain(Space::Data),
        (Space::History, history_prefix(start).freeze(), history_prefix(end).freeze()),
        plain(Space::Locks),
    ];
    spans.extend(records);
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Reader, WriteBatch};
    use crate::intent::CommittedTxn;
    use crate::txn_record::TxnRecord;
    use crate::{Bounds, Engine, MemoryEngine, mvcc};
    use kv_api::{TenantId, Timestamp};

    #[test]
    fn spans_hold_everything_of_a_tenant_and_nothing_of_its_neighbours() {
        let engine = MemoryEngine::new();
        let mut batch = WriteBatch::new();
        for tenant in [TenantId(4), TenantId(5), TenantId(6)] {
            let key = tenant.prefixed(b"\x00k\xff");
            mvcc::put_version(&mut batch, &key, Timestamp::new(1, 0), Some(b"a"), None).expect("first");
            engine.write(&batch, false).expect("write");
            batch.clear(0);
            let old = engine.get(Space::Data, &key).expect("get").map(|value| value.to_vec());
            mvcc::put_version(&mut batch, &key, Timestamp::new(2, 0), Some(b"b"), old.as_deref())
                .expect("second");
            batch.put(Space::Locks, &key, b"intent");
            batch.put(Space::Meta, &[b"txn/", &tenant.prefix()[..], b"of an earlier version"].concat(), b"");
            let id = [tenant.0 as u8; 16];
            txn_record::put(
                &mut batch,
                &tenant.span().start,
                &TxnRecord::committed(CommittedTxn { id, timestamp: Timestamp::MIN, ignored: vec![] }),
            );
        }
        engine.write(&batch, false).expect("write");
        let span = TenantId(5).span();
        for (space, start, end) in range_spans(&span.start, &span.end) {
            let mut cursor = engine.cursor(space, Bounds::new(&start, &end));
            cursor.seek_to_first();
            let mut found = 0;
            while cursor.item().is_some() {
                found += 1;
                cursor.next();
            }
            assert_eq!(found, 1, "{space:?}");
        }
    }
}
