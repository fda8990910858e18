//! The coordinator against a model of the KV node.

mod commits;
mod ranges;

use super::model::{Model, NODES, Play, RANGE, Store};
use super::*;
use bytes::Bytes;
use kv_api::batch::{RequestKind, WaitPolicy};
use kv_api::{KvResult, LockStrength, Span};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn all() -> Span {
    Span::new(Bytes::new(), Bytes::new())
}

fn begin(model: &Model) -> Txn {
    model.client.begin(TxnOptions::default())
}

async fn put(model: &Model, key: &str, value: &str) {
    let txn = begin(model);
    txn.put(key.as_bytes(), bytes(value)).unwrap();
    txn.commit().await.unwrap();
}

fn kind<T: std::fmt::Debug>(result: Result<T, KvError>) -> KvErrorKind {
    result.unwrap_err().kind()
}

/// What the wall clock shows, in nanoseconds.
fn wall_ns() -> u64 {
    crate::environment::Environment::of_machine().physical_ns()
}

#[tokio::test]
async fn a_write_is_seen_by_its_transaction_at_once_and_by_others_after_the_commit() {
    let model = Model::start();
    let txn = begin(&model);
    assert!(txn.is_pristine());
    txn.put(b"a", bytes("1")).unwrap();
    assert_eq!(txn.get(b"a", LockStrength::None).await.unwrap(), Some(bytes("1")));
    assert_eq!(begin(&model).get(b"a", LockStrength::None).await.unwrap(), None);
    assert!(txn.has_writes() && txn.is_open());
    assert!(txn.commit().await.unwrap().timestamp.is_some());
    assert!(!txn.is_open());
    assert_eq!(begin(&model).get(b"a", LockStrength::None).await.unwrap(), Some(bytes("1")));
    assert_eq!(kind(txn.put(b"a", bytes("2"))), KvErrorKind::Aborted);
    assert_eq!(kind(txn.commit().await), KvErrorKind::Aborted);
}

#[tokio::test]
async fn a_commit_without_writes_costs_no_round_trip_and_releases_locks() {
    let model = Model::start();
    let txn = begin(&model);
    txn.get(b"a", LockStrength::None).await.unwrap();
    assert_eq!(txn.commit().await.unwrap().timestamp, None);
    assert_eq!(model.store.lock().received.len(), 1);
    let txn = begin(&model);
    txn.get(b"a", LockStrength::Exclusive).await.unwrap();
    assert!(!model.store.lock().is_clean());
    txn.commit().await.unwrap();
    model.received(3).await;
    assert!(model.store.lock().is_clean());
}

#[tokio::test]
async fn dropping_a_transaction_rolls_it_back() {
    let model = Model::start();
    let txn = begin(&model);
    txn.get(b"a", LockStrength::Exclusive).await.unwrap();
    txn.put(b"b", bytes("1")).unwrap();
    txn.flush().await.unwrap();
    assert_eq!(model.store.lock().intents(), 1);
    drop(txn);
    model.received(3).await;
    let store = model.store.lock();
    assert!(store.is_clean() && store.newest().is_empty());
}

#[tokio::test]
async fn what_was_read_must_not_change_before_the_commit() {
    let model = Model::start();
    put(&model, "a", "1").await;
    let txn = begin(&model);
    txn.get(b"a", LockStrength::None).await.unwrap();
    txn.put(b"b", bytes("1")).unwrap();
    put(&model, "a", "2").await;
    let error = txn.commit().await.unwrap_err();
    assert_eq!((error.kind(), error.key), (KvErrorKind::Retry, Some(bytes("a"))));
    assert_eq!(error.span, Some(Span::point(bytes("a"))), "without the tenant's prefix");
    assert!(!model.store.lock().newest().contains_key(&b"b"[..]));
    // A phantom counts too, also beyond the rows found.
    let txn = begin(&model);
    txn.scan(&Span::new(bytes("c"), bytes("f")), ScanOptions::default()).await.unwrap();
    txn.put(b"b", bytes("1")).unwrap();
    put(&model, "d", "2").await;
    assert_eq!(kind(txn.commit().await), KvErrorKind::Retry);
}

#[tokio::test]
async fn read_committed_reads_a_snapshot_per_statement_and_validates_nothing() {
    let model = Model::start();
    put(&model, "a", "1").await;
    let options = TxnOptions { isolation: Isolation::ReadCommitted, ..TxnOptions::default() };
    let txn = model.client.begin(options);
    txn.begin_statement();
    assert_eq!(txn.get(b"a", LockStrength::None).await.unwrap(), Some(bytes("1")));
    put(&model, "a", "2").await;
    assert_eq!(txn.get(b"a", LockStrength::None).await.unwrap(), Some(bytes("1")));
    txn.begin_statement();
    assert_eq!(txn.get(b"a", LockStrength::None).await.unwrap(), Some(bytes("2")));
    txn.put(b"b", bytes("1")).unwrap();
    put(&model, "a", "3").await;
    txn.commit().await.unwrap();
}

#[tokio::test]
async fn read_committed_validates_locks_beyond_those_the_node_keeps() {
    let model = Model::start();
    let options = TxnOptions { isolation: Isolation::ReadCommitted, ..TxnOptions::default() };
    let txn = model.client.begin(options);
    txn.state.lock().locked_keys = TRUSTED_LOCKS;
    txn.get(b"a", LockStrength::Exclusive).await.unwrap();
    let snapshot = txn.read_timestamp();
    txn.begin_statement();
    assert_eq!(txn.read_timestamp(), snapshot);
    // The node lost the lock.
    txn.put(b"a", bytes("1")).unwrap();
    model.store.lock().received.clear();
    txn.commit().await.unwrap();
    assert_eq!(model.store.lock().received[0].header.refresh_spans.len(), 1);
}

#[tokio::test]
async fn a_locking_read_moves_the_snapshot_if_nothing_read_changed() {
    let model = Model::start();
    put(&model, "a", "1").await;
    let txn = begin(&model);
    txn.get(b"x", LockStrength::None).await.unwrap();
    let first = txn.read_timestamp();
    put(&model, "a", "2").await;
    assert_eq!(txn.get(b"a", LockStrength::Exclusive).await.unwrap(), Some(bytes("2")));
    assert!(txn.read_timestamp() > first);
    put(&model, "x", "1").await;
    put(&model, "b", "1").await;
    assert_eq!(kind(txn.get(b"b", LockStrength::Exclusive).await), KvErrorKind::Retry);
    drop(txn);
    // A pinned snapshot does not move.
    let txn = begin(&model);
    txn.get(b"x", LockStrength::None).await.unwrap();
    txn.pin_snapshot();
    put(&model, "b", "2").await;
    assert_eq!(kind(txn.get(b"b", LockStrength::Exclusive).await), KvErrorKind::Retry);
}

#[tokio::test]
async fn inserts_are_checked_at_the_commit_or_the_flush() {
    let model = Model::start();
    put(&model, "a", "old").await;
    for flush in [false, true] {
        let txn = begin(&model);
        txn.put_if_absent(b"a", bytes("new")).unwrap();
        let error = if flush { txn.flush().await.unwrap_err() } else { txn.commit().await.unwrap_err() };
        assert_eq!(error.kind(), KvErrorKind::ConditionFailed);
        assert_eq!((error.key, error.actual), (Some(bytes("a")), Some(bytes("old"))));
    }
    let txn = begin(&model);
    txn.put_if_absent(b"b", bytes("1")).unwrap();
    let error = txn.put_if_absent(b"b", bytes("2")).unwrap_err();
    assert_eq!((error.kind(), error.key), (KvErrorKind::ConditionFailed, Some(bytes("b"))));
    txn.delete(b"b").unwrap();
    txn.put_if_absent(b"b", bytes("3")).unwrap();
    txn.flush().await.unwrap();
    // Of what was flushed, the node knows.
    txn.put_if_absent(b"b", bytes("4")).unwrap();
    assert_eq!(kind(txn.flush().await), KvErrorKind::ConditionFailed);
    // An insert that is deleted again must still not meet a row of another.
    let txn = begin(&model);
    txn.put_if_absent(b"a", bytes("new")).unwrap();
    txn.delete(b"a").unwrap();
    assert_eq!(kind(txn.commit().await), KvErrorKind::ConditionFailed);
    assert_eq!(model.store.lock().newest()[&b"a"[..]], bytes("old"));
}

#[tokio::test]
async fn a_failed_flush_can_be_undone_by_a_savepoint() {
    let model = Model::start();
    put(&model, "b", "old").await;
    let txn = begin(&model);
    txn.put(b"a", bytes("1")).unwrap();
    let savepoint = txn.savepoint();
    txn.put_if_absent(b"b", bytes("new")).unwrap();
    assert_eq!(kind(txn.flush().await), KvErrorKind::ConditionFailed);
    txn.rollback_to(savepoint);
    txn.flush().await.unwrap();
    txn.commit().await.unwrap();
    assert_eq!(
        model.store.lock().newest(),
        BTreeMap::from([(bytes("a"), bytes("1")), (bytes("b"), bytes("old"))])
    );
}

#[tokio::test]
async fn reads_before_a_savepoint_leave_later_writes_out() {
    let model = Model::start();
    put(&model, "a", "old").await;
    put(&model, "c", "old").await;
    let txn = begin(&model);
    txn.put(b"b", bytes("1")).unwrap();
    let point = txn.savepoint();
    let before = ReadOptions { before: Some(point), ..ReadOptions::default() };
    txn.put(b"a", bytes("new")).unwrap();
    txn.put(b"b", bytes("2")).unwrap();
    txn.delete(b"c").unwrap();
    txn.put(b"d", bytes("new")).unwrap();
    let all = Span::new(bytes("a"), bytes("z"));
    let entries = |entries: &[(&str, &str)]| -> Vec<(Bytes, Bytes)> {
        entries.iter().map(|(key, value)| (bytes(key), bytes(value))).collect()
    };
    // As buffered writes, and as intents.
    for flushed in [false, true] {
        if flushed {
            txn.flush().await.unwrap();
        }
        let keys = [bytes("a"), bytes("b"), bytes("c"), bytes("d")];
        assert_eq!(
            txn.get_many(&keys, before).await.unwrap(),
            [Some(bytes("old")), Some(bytes("1")), Some(bytes("old")), None],
            "flushed: {flushed}"
        );
        assert_eq!(txn.get(b"b", before).await.unwrap(), Some(bytes("1")));
        assert_eq!(txn.get(b"b", LockStrength::None).await.unwrap(), Some(bytes("2")));
        for reverse in [false, true] {
            let options = ScanOptions { reverse, ..ScanOptions::default() };
            let mut then = entries(&[("a", "old"), ("b", "1"), ("c", "old")]);
            let mut now = entries(&[("a", "new"), ("b", "2"), ("d", "new")]);
            if reverse {
                then.reverse();
                now.reverse();
            }
            assert_eq!(txn.scan(&all, ScanOptions { read: before, ..options }).await.unwrap().rows, then);
            assert_eq!(txn.scan(&all, options).await.unwrap().rows, now);
        }
    }
    txn.commit().await.unwrap();
    assert_eq!(model.store.lock().newest()[&b"b"[..]], bytes("2"));
}

#[tokio::test]
async fn limits_of_keys_values_and_buffer_hold() {
    let model = Model::start();
    let txn = model.client.begin(TxnOptions { buffer_bytes: 1000, ..TxnOptions::default() });
    assert_eq!(kind(txn.put(&[1; 20_000], Bytes::new())), KvErrorKind::InvalidRequest);
    assert_eq!(kind(txn.put(b"k", Bytes::from(vec![0; (64 << 20) + 1]))), KvErrorKind::InvalidRequest);
    assert!(!txn.wants_flush());
    txn.put(b"k", Bytes::from(vec![0; 2000])).unwrap();
    txn.flush_if_large().await.unwrap();
    assert!(!txn.wants_flush() && model.store.lock().intents() == 1);
    txn.put(b"k", Bytes::from(vec![0; 64 << 20])).unwrap();
    assert_eq!(kind(txn.put(b"l", Bytes::new())), KvErrorKind::Overloaded);
    let reader = model.client.begin(TxnOptions { read_only: true, ..TxnOptions::default() });
    assert_eq!(kind(reader.put(b"k", Bytes::new())), KvErrorKind::InvalidRequest);
    assert_eq!(kind(reader.get(b"k", LockStrength::Shared).await), KvErrorKind::InvalidRequest);
    reader.get(b"k", LockStrength::None).await.unwrap();
    assert!(reader.state.lock().refresh.is_empty());
}

#[tokio::test]
async fn many_writes_are_sent_in_several_batches() {
    let model = Model::start();
    let txn = begin(&model);
    for number in 0..40u32 {
        txn.put(&number.to_be_bytes(), Bytes::from(vec![0; 1 << 20])).unwrap();
    }
    txn.commit().await.unwrap();
    let store = model.store.lock();
    assert_eq!(store.newest().len(), 40);
    assert!(store.received.len() >= 5 && store.is_clean());
}

#[tokio::test]
async fn skipped_and_refused_locks() {
    let model = Model::start();
    put(&model, "a", "1").await;
    put(&model, "b", "1").await;
    let holder = begin(&model);
    holder.get(b"a", LockStrength::Exclusive).await.unwrap();
    let skip = ReadOptions { lock: LockStrength::Exclusive, wait: WaitPolicy::Skip, before: None };
    let txn = begin(&model);
    let page = txn.scan(&all(), ScanOptions { read: skip, ..ScanOptions::default() }).await.unwrap();
    assert_eq!(page.rows, [(bytes("b"), bytes("1"))]);
    assert_eq!(txn.get(b"a", skip).await.unwrap(), None);
    let nowait = ReadOptions { lock: LockStrength::Exclusive, wait: WaitPolicy::Error, before: None };
    let error = txn.get(b"a", nowait).await.unwrap_err();
    assert_eq!((error.kind(), error.key), (KvErrorKind::LockNotAvailable, Some(bytes("a"))));
}

#[tokio::test]
async fn overlapping_first_reads_come_from_one_snapshot() {
    let model = Model::start();
    put(&model, "a", "1").await;
    put(&model, "b", "1").await;
    model.store.lock().hold = true;
    let txn = begin(&model);
    let keys = [bytes("a"), bytes("b")];
    let (a, b, ()) =
        tokio::join!(txn.get(b"a", LockStrength::None), txn.get_many(&keys, LockStrength::None), async {
            model.received(4).await;
            model.release();
        });
    assert_eq!((a.unwrap(), b.unwrap()), (Some(bytes("1")), vec![Some(bytes("1")); 2]));
    let store = model.store.lock();
    assert_eq!(store.received.len(), 5, "one of the two was sent again, at the snapshot of the other");
    let read_at = txn.read_timestamp();
    assert_eq!(store.received[4].header.read_timestamp, read_at);
}

#[tokio::test]
async fn a_read_that_overlaps_a_flush_sees_what_was_flushed() {
    let model = Model::start();
    let txn = begin(&model);
    txn.get(b"x", LockStrength::None).await.unwrap();
    txn.put(b"a", bytes("1")).unwrap();
    model.store.lock().hold = true;
    let all = all();
    let (page, flushed, ()) = tokio::join!(txn.scan(&all, ScanOptions::default()), txn.flush(), async {
        model.received(3).await;
        // The flush is answered first.
        {
            let mut store = model.store.lock();
            store.reverse_held();
        }
        model.release();
    });
    flushed.unwrap();
    assert_eq!(page.unwrap().rows, [(bytes("a"), bytes("1"))]);
}

#[tokio::test]
async fn a_flush_given_up_half_way_leaves_nothing_behind() {
    let model = Model::start();
    let txn = begin(&model);
    txn.put(b"a", bytes("1")).unwrap();
    model.store.lock().hold = true;
    tokio::select! {
        biased;
        _ = txn.flush() => panic!("it is held"),
        () = model.received(1) => {}
    }
    model.release();
    assert_eq!(kind(txn.flush().await), KvErrorKind::Aborted);
    assert_eq!(txn.get(b"a", LockStrength::None).await.unwrap(), Some(bytes("1")));
    assert_eq!(kind(txn.commit().await), KvErrorKind::Aborted);
    model.received(2).await;
    assert!(model.store.lock().is_clean());
}

#[tokio::test]
async fn a_commit_that_fails_or_is_given_up_is_rolled_back_at_the_node() {
    let model = Model::start();
    put(&model, "a", "1").await;
    let txn = begin(&model);
    txn.put_if_absent(b"a", bytes("2")).unwrap();
    txn.commit().await.unwrap_err();
    model.received(3).await;
    assert!(matches!(last_request(&model.store.lock()), RequestKind::EndTxn(end) if !end.commit));
    let txn = begin(&model);
    txn.put(b"a", bytes("2")).unwrap();
    model.store.lock().hold = true;
    tokio::select! {
        biased;
        _ = txn.commit() => panic!("it is held"),
        () = model.received(4) => {}
    }
    assert!(!txn.is_open());
    model.received(5).await;
    assert!(matches!(last_request(&model.store.lock()), RequestKind::EndTxn(end) if !end.commit));
}

fn last_request(store: &Store) -> RequestKind {
    store.received.last().unwrap().requests.last().unwrap().kind.clone().unwrap()
}

#[tokio::test]
async fn losing_the_connection_is_a_pause_for_what_may_be_sent_again() {
    let model = Model::start();
    put(&model, "a", "1").await;
    for lock in [LockStrength::None, LockStrength::Exclusive] {
        let txn = begin(&model);
        let count = model.store.lock().received.len();
        model.store.lock().hold = true;
        let (value, ()) = tokio::join!(txn.get(b"a", lock), async {
            model.received(count + 1).await;
            model.disconnect();
            model.store.lock().hold = false;
            tokio::task::yield_now().await;
            model.connect();
        });
        assert_eq!(value.unwrap(), Some(bytes("1")));
        txn.put(b"a", bytes("1")).unwrap();
        txn.commit().await.unwrap();
    }
    // While there is no connection, everything waits.
    model.disconnect();
    let txn = begin(&model);
    txn.put(b"b", bytes("1")).unwrap();
    let (committed, counter, ()) = tokio::join!(txn.commit(), model.client.increment(b"c", 5), async {
        tokio::task::yield_now().await;
        model.connect();
    });
    assert!(committed.unwrap().timestamp.is_some());
    assert_eq!(counter.unwrap(), 5);
}

#[tokio::test]
async fn losing_the_connection_aborts_who_held_locks_or_intents() {
    let model = Model::start();
    let locked = begin(&model);
    locked.get(b"a", LockStrength::Exclusive).await.unwrap();
    let flushed = begin(&model);
    flushed.put(b"b", bytes("1")).unwrap();
    flushed.flush().await.unwrap();
    let plain = begin(&model);
    plain.get(b"c", LockStrength::None).await.unwrap();
    plain.put(b"c", bytes("1")).unwrap();
    model.disconnect();
    model.connect();
    assert_eq!(kind(locked.get(b"b", LockStrength::None).await), KvErrorKind::Aborted);
    locked.put(b"a", bytes("1")).unwrap();
    assert_eq!(kind(locked.commit().await), KvErrorKind::Aborted);
    assert_eq!(kind(flushed.commit().await), KvErrorKind::Aborted);
    plain.commit().await.unwrap();
    assert_eq!(model.store.lock().newest().len(), 1);
}

#[tokio::test]
async fn a_transaction_with_locks_only_goes_on_when_the_lease_moves() {
    let model = Model::start();
    put(&model, "a", "1").await;
    let [reads, flushes, commits] = [(); 3].map(|()| begin(&model));
    for (txn, own) in [(&reads, b"r"), (&flushes, b"f"), (&commits, b"c")] {
        txn.get(own, LockStrength::Exclusive).await.unwrap();
        txn.get(b"a", LockStrength::None).await.unwrap();
    }
    model.move_lease();
    assert_eq!(reads.get(b"a", LockStrength::Exclusive).await.unwrap(), Some(bytes("1")));
    reads.commit().await.unwrap();
    flushes.put(b"b", bytes("1")).unwrap();
    flushes.flush().await.unwrap();
    flushes.commit().await.unwrap();
    commits.put(b"c", bytes("1")).unwrap();
    commits.commit().await.unwrap();
    assert_eq!(model.store.lock().newest().len(), 3);
    assert_eq!(model.store.lock().lookups, 1);
}

#[tokio::test]
async fn what_a_transaction_read_is_validated_also_when_its_locks_went_with_the_lease() {
    let model = Model::start();
    put(&model, "a", "1").await;
    let txn = begin(&model);
    txn.get(b"a", LockStrength::Exclusive).await.unwrap();
    model.move_lease();
    put(&model, "a", "2").await;
    txn.put(b"a", bytes("3")).unwrap();
    assert_eq!(kind(txn.commit().await), KvErrorKind::Retry);
    assert_eq!(model.store.lock().newest()[&b"a"[..]], "2");
}

#[tokio::test]
async fn a_transaction_that_rests_on_locks_or_intents_aborts_when_the_lease_moves() {
    let model = Model::start();
    put(&model, "a", "1").await;
    let options = TxnOptions { isolation: Isolation::ReadCommitted, ..TxnOptions::default() };
    let (locked, flushed) = (model.client.begin(options), begin(&model));
    locked.get(b"a", LockStrength::Exclusive).await.unwrap();
    flushed.put(b"b", bytes("1")).unwrap();
    flushed.flush().await.unwrap();
    model.move_lease();
    put(&model, "a", "2").await;
    locked.put(b"a", bytes("3")).unwrap();
    assert_eq!(kind(locked.commit().await), KvErrorKind::Aborted);
    assert_eq!(kind(flushed.get(b"c", LockStrength::None).await), KvErrorKind::Aborted);
    assert_eq!(kind(flushed.commit().await), KvErrorKind::Aborted);
    assert_eq!(model.store.lock().newest()[&b"a"[..]], "2");
    assert_eq!(model.store.lock().newest().len(), 1);
}

#[tokio::test]
async fn first_locking_reads_that_end_on_two_nodes_abort() {
    let model = Model::start();
    put(&model, "a", "1").await;
    let txn = begin(&model);
    model.store.lock().hold = true;
    let count = model.store.lock().received.len();
    let second = async {
        model.received(count + 1).await;
        model.move_lease();
        let second = txn.get(b"b", LockStrength::Exclusive);
        let (second, ()) = tokio::join!(second, async {
            model.received(count + 2).await;
            model.release();
        });
        second
    };
    let (first, second) = tokio::join!(txn.get(b"a", LockStrength::Exclusive), second);
    assert!(first.is_err() != second.is_err(), "{first:?} {second:?}");
    assert_eq!(kind(first.and(second)), KvErrorKind::Aborted);
}

#[tokio::test]
async fn a_first_locking_read_that_failed_is_called_off_where_it_was_sent() {
    let model = Model::start();
    put(&model, "a", "1").await;
    let txn = begin(&model);
    let refused = KvError::new(KvErrorKind::Retry, "what was read has changed");
    model.store.lock().script = Some(Box::new(move |_| Play::Fail(refused.clone())));
    assert_eq!(kind(txn.get(b"a", LockStrength::Exclusive).await), KvErrorKind::Retry);
    model.store.lock().script = None;
    // The client comes to take the other node for the leaseholder.
    model.move_lease();
    put(&model, "b", "1").await;
    model.move_lease();
    let count = model.store.lock().received.len();
    drop(txn);
    model.received(count + 1).await;
    let store = model.store.lock();
    assert!(matches!(last_request(&store), RequestKind::EndTxn(_)));
    assert_eq!(store.served_by.last(), Some(&NODES[0]));
}

/// Sends a first locking read and gives it up while the answer is on its way.
async fn read_in_vain(model: &Model, txn: &Txn) {
    let count = model.store.lock().received.len();
    model.store.lock().hold = true;
    tokio::select! {
        _ = txn.get(b"a", LockStrength::Exclusive) => panic!("no answer is let through"),
        () = model.received(count + 1) => {}
    }
    model.release();
}

#[tokio::test]
async fn all_nodes_are_remembered_where_a_locking_read_may_have_locked() {
    let model = Model::start();
    let (everywhere, second) = (begin(&model), begin(&model));
    let tried = |txn: &Txn| {
        let state = txn.state.lock();
        let tried = &state.parts.get(RANGE).expect("known").tried;
        tried.iter().map(|place| place.connection.address.to_string()).collect::<Vec<_>>()
    };
    read_in_vain(&model, &everywhere).await;
    assert_eq!(tried(&everywhere), [NODES[0]]);
    model.move_lease();
    read_in_vain(&model, &everywhere).await;
    assert_eq!(tried(&everywhere), NODES);
    put(&model, "b", "1").await;
    model.move_lease();
    read_in_vain(&model, &second).await;
    assert_eq!(tried(&second), [NODES[0]], "the other has said that it does not hold the lease");
    let farewells = everywhere.state.lock().farewells(|_| true).len();
    assert_eq!(farewells, 2);
}

#[tokio::test]
async fn the_leaseholder_is_found_also_when_nobody_says_who_it_is() {
    let model = Model::start();
    model.store.lock().silent_about_leases = true;
    for _ in 0..4 {
        put(&model, "a", "1").await;
        model.move_lease();
    }
    assert_eq!(model.store.lock().served_by, ["a:1", "b:1", "a:1", "b:1"]);
}

#[tokio::test]
async fn replicas_answer_reads_of_transactions_that_allow_it() {
    let model = Model::start_near("b:1");
    put(&model, "a", "1").await;
    let options = TxnOptions { read_only: true, follower_reads: true, ..TxnOptions::default() };
    let txn = model.client.begin(options);
    assert_eq!(txn.get(b"a", LockStrength::None).await.unwrap(), Some(bytes("1")));
    put(&model, "a", "2").await;
    assert_eq!(txn.get(b"a", LockStrength::None).await.unwrap(), Some(bytes("1")), "one snapshot");
    assert_eq!(kind(txn.get(b"a", LockStrength::Shared).await), KvErrorKind::InvalidRequest);
    assert_eq!(model.store.lock().served_by, ["a:1", "b:1", "a:1", "b:1"]);
}

#[tokio::test]
async fn a_transaction_of_the_past_reads_there_and_nothing_moves_it() {
    let model = Model::start();
    put(&model, "a", "1").await;
    let then = begin(&model).settle_snapshot().await.unwrap();
    put(&model, "a", "2").await;
    let options =
        TxnOptions { as_of: Some(then), isolation: Isolation::ReadCommitted, ..TxnOptions::default() };
    let txn = model.client.begin(options);
    for _ in 0..2 {
        txn.begin_statement();
        txn.refresh().await.unwrap();
        assert_eq!(txn.settle_snapshot().await.unwrap(), then);
        assert_eq!(txn.get(b"a", LockStrength::None).await.unwrap(), Some(bytes("1")));
    }
    assert_eq!(txn.scan(&all(), ScanOptions::default()).await.unwrap().rows, [(bytes("a"), bytes("1"))]);
    assert_eq!(kind(txn.get(b"a", LockStrength::Shared).await), KvErrorKind::InvalidRequest);
    assert_eq!(kind(txn.put(b"a", bytes("3"))), KvErrorKind::InvalidRequest);
    assert!(txn.state.lock().has_no_spans());
    // The model's clock counts from zero, so that this is long ago.
    assert!(model.store.lock().received.last().unwrap().header.any_replica);
}

#[test]
fn any_replica_is_asked_for_what_is_old_enough() {
    let at = Timestamp::new(1_000_000_000, 0);
    let wanted = |now_ns, follower_reads| {
        let options = TxnOptions { as_of: Some(at), follower_reads, ..TxnOptions::default() }.settled(now_ns);
        assert!(options.read_only);
        options.follower_reads
    };
    assert!(!wanted(0, false), "a snapshot ahead of this clock");
    assert!(!wanted(5_999_999_999, false));
    assert!(wanted(6_000_000_000, false));
    assert!(wanted(5_999_999_999, true), "or if any may be asked in any case");
    assert!(!TxnOptions::default().settled(u64::MAX).follower_reads);
}

#[tokio::test]
async fn a_settled_snapshot_is_the_one_that_is_read() {
    let model = Model::start();
    put(&model, "a", "1").await;
    let txn = begin(&model);
    txn.get(b"b", LockStrength::None).await.unwrap();
    let count = model.store.lock().received.len();
    let snapshot = txn.settle_snapshot().await.unwrap();
    assert_eq!(Some(snapshot), txn.read_timestamp());
    assert_eq!(model.store.lock().received.len(), count, "it is known");
    put(&model, "a", "2").await;
    let moving = txn.get(b"a", LockStrength::Exclusive).await;
    assert_eq!(kind(moving), KvErrorKind::Retry, "although nothing that was read has changed");
}

#[tokio::test]
async fn a_commit_that_was_not_written_yet_is_sent_on_the_next_connection() {
    let model = Model::start();
    put(&model, "b", "1").await;
    let txn = begin(&model);
    txn.put(b"a", bytes("1")).unwrap();
    // The model's task does not run between the two.
    let (committed, ()) = tokio::join!(txn.commit(), async {
        model.disconnect();
        model.connect();
    });
    assert!(committed.unwrap().timestamp.is_some());
    assert_eq!(model.store.lock().received.len(), 2);
}

#[tokio::test]
async fn a_commit_lost_on_its_way_is_ambiguous() {
    let model = Model::start();
    let txn = begin(&model);
    txn.put(b"a", bytes("1")).unwrap();
    model.store.lock().hold = true;
    let (committed, ()) = tokio::join!(txn.commit(), async {
        model.received(1).await;
        model.disconnect();
        model.connect();
    });
    assert_eq!(kind(committed), KvErrorKind::Ambiguous);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_available_is_asked_again_until_the_time_is_up() {
    let model = Model::start();
    model.store.lock().unavailable = true;
    let txn = begin(&model);
    txn.put(b"a", bytes("1")).unwrap();
    let (committed, ()) = tokio::join!(txn.commit(), async {
        model.received(3).await;
        model.store.lock().unavailable = false;
    });
    committed.unwrap();
    model.disconnect();
    assert_eq!(kind(begin(&model).get(b"a", LockStrength::None).await), KvErrorKind::Unavailable);
    assert_eq!(kind(model.client.ready().await), KvErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn run_tries_again_until_it_commits() {
    let model = Model::start();
    put(&model, "a", "0").await;
    let client = model.client.clone();
    let attempts = AtomicU32::new(0);
    let (model, counter) = (&model, &attempts);
    client
        .run(|txn| async move {
            let old = txn.get(b"a", LockStrength::None).await?.unwrap_or_default();
            if counter.fetch_add(1, Ordering::Relaxed) < 2 {
                put(model, "a", "changed").await;
            }
            txn.put(b"a", [&old[..], b"!"].concat().into())
        })
        .await
        .unwrap();
    assert_eq!(attempts.swap(0, Ordering::Relaxed), 3);
    assert_eq!(model.store.lock().newest()[&b"a"[..]], bytes("changed!"));
    // It gives up in the end, and at once where trying again is no use.
    for (error, most) in [(KvErrorKind::Retry, 20), (KvErrorKind::Ambiguous, 1)] {
        let hopeless = client.run(|_| async move {
            counter.fetch_add(1, Ordering::Relaxed);
            KvResult::<()>::Err(KvError::new(error, "no"))
        });
        assert_eq!(kind(hopeless.await), error);
        assert_eq!(attempts.swap(0, Ordering::Relaxed), most);
    }
    let writes = [(bytes("a"), None), (bytes("b"), Some(bytes("1")))];
    client.write(&writes).await.unwrap();
    assert_eq!(model.store.lock().newest(), BTreeMap::from([(bytes("b"), bytes("1"))]));
}

#[tokio::test]
async fn transactions_can_be_spawned() {
    let model = Model::start();
    let client = model.client.clone();
    let spawned = tokio::spawn(async move {
        let txn = Arc::new(client.begin(TxnOptions::default()));
        txn.scan_many(&[all(), Span::new(bytes("b"), bytes("a"))], ScanOptions::default()).await?;
        txn.put(b"k", bytes("v"))?;
        txn.flush_if_large().await?;
        txn.refresh().await?;
        txn.get_many(&[bytes("k")], LockStrength::Shared).await?;
        txn.commit().await?;
        txn.rollback().await;
        client.write(&[(bytes("l"), None)]).await?;
        client.run(|txn| async move { txn.get(b"k", LockStrength::None).await }).await?;
        client.clear_range(all()).await
    });
    spawned.await.unwrap().unwrap();
    assert!(model.store.lock().newest().is_empty());
}

/// What one transaction does, step by step.
#[derive(Debug, Clone)]
enum Step {
    Put(u8, u8),
    Insert(u8, u8),
    Delete(u8),
    Get(u8, bool),
    Scan { low: u8, high: u8, reverse: bool, limit: u64, lock: bool },
    Flush,
    Savepoint,
    RollbackTo(usize),
    Statement,
    Split(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0u8..12;
    prop_oneof![
        3 => (key.clone(), any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
        2 => (key.clone(), any::<u8>()).prop_map(|(key, value)| Step::Insert(key, value)),
        2 => key.clone().prop_map(Step::Delete),
        1 => (key.clone(), any::<bool>()).prop_map(|(key, lock)| Step::Get(key, lock)),
        4 => (key, 0u8..13, any::<bool>(), 0u64..5, prop::bool::weighted(0.2))
            .prop_map(|(low, high, reverse, limit, lock)| Step::Scan { low, high, reverse, limit, lock }),
        1 => Just(Step::Flush),
        1 => Just(Step::Savepoint),
        1 => (0usize..4).prop_map(Step::RollbackTo),
        1 => Just(Step::Statement),
        1 => (0u8..12).prop_map(Step::Split),
    ]
}

fn key(number: u8) -> Bytes {
    Bytes::from(vec![b'k', number])
}

async fn follow(
    steps: Vec<Step>,
    stored: BTreeMap<u8, u8>,
    splits: Vec<u8>,
    page_rows: usize,
    isolation: Isolation,
) {
    let model = Model::start();
    // Clocks of ranges are not far apart.
    model.store.lock().set_clock(RANGE, wall_ns());
    splits.into_iter().for_each(|number| split(&model, number));
    let setup = begin(&model);
    for (number, value) in &stored {
        setup.put(&key(*number), Bytes::from(vec![*value])).unwrap();
    }
    setup.commit().await.unwrap();
    model.settled().await;
    model.store.lock().page_rows = page_rows;
    let txn = model.client.begin(TxnOptions { isolation, ..TxnOptions::default() });
    let mut expected: BTreeMap<Bytes, Bytes> =
        stored.iter().map(|(number, value)| (key(*number), Bytes::from(vec![*value]))).collect();
    let mut savepoints = vec![(txn.savepoint(), expected.clone())];
    for step in steps {
        match step {
            Step::Put(number, value) => {
                txn.put(&key(number), Bytes::from(vec![value])).unwrap();
                expected.insert(key(number), Bytes::from(vec![value]));
            }
            Step::Insert(number, value) => {
                // Whether it exists is asked first: the model of the test has no failing commits.
                if txn.get(&key(number), LockStrength::None).await.unwrap().is_none() {
                    txn.put_if_absent(&key(number), Bytes::from(vec![value])).unwrap();
                    assert_eq!(expected.insert(key(number), Bytes::from(vec![value])), None);
                }
            }
            Step::Delete(number) => {
                txn.delete(&key(number)).unwrap();
                expected.remove(&key(number));
            }
            Step::Get(number, lock) => {
                let lock = if lock { LockStrength::Exclusive } else { LockStrength::None };
                assert_eq!(txn.get(&key(number), lock).await.unwrap().as_ref(), expected.get(&key(number)));
            }
            Step::Scan { low, high, reverse, limit, lock } => {
                let high = high.max(low);
                let mut wanted: Vec<_> = expected
                    .range(key(low)..key(high))
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect();
                if reverse {
                    wanted.reverse();
                }
                let lock = if lock { LockStrength::Shared } else { LockStrength::None };
                let options = ScanOptions { reverse, limit, read: lock.into(), ..ScanOptions::default() };
                let mut span = Span::new(key(low), key(high));
                let mut rows = Vec::new();
                loop {
                    let page = txn.scan(&span, options).await.unwrap();
                    assert!(limit == 0 || page.rows.len() as u64 <= limit);
                    rows.extend(page.rows);
                    match page.resume {
                        Some(rest) => {
                            assert!(if reverse { rest.end < span.end } else { rest.start > span.start });
                            span = rest;
                        }
                        None => break,
                    }
                }
                assert_eq!(rows, wanted);
            }
            Step::Flush => txn.flush().await.unwrap(),
            Step::Savepoint => savepoints.push((txn.savepoint(), expected.clone())),
            Step::RollbackTo(index) => {
                if index < savepoints.len() {
                    // Later ones are gone.
                    savepoints.truncate(index + 1);
                    let (savepoint, then) = savepoints[index].clone();
                    txn.rollback_to(savepoint);
                    expected = then;
                }
            }
            Step::Statement => txn.begin_statement(),
            // Ranges with intents are not split, and locks that count are lost.
            Step::Split(number) if isolation == Isolation::Serializable => {
                if model.store.lock().intents() == 0 {
                    split(&model, number);
                }
            }
            Step::Split(_) => {}
        }
    }
    txn.commit().await.unwrap();
    model.settled().await;
    assert_eq!(model.store.lock().newest(), expected);
}

fn split(model: &Model, number: u8) {
    let _ = model.split_at(&key(number), usize::from(number % 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    /// A transaction sees and commits what a plain map would hold, whatever is flushed, undone, or read
    /// in pages of whatever size and direction, in however many ranges the keys are.
    #[test]
    fn a_transaction_is_a_map(
        steps in prop::collection::vec(step(), 0..40),
        stored in prop::collection::btree_map(0u8..12, any::<u8>(), 0..8),
        splits in prop::collection::vec(0u8..12, 0..4),
        page_rows in 0usize..4,
        read_committed: bool,
    ) {
        let isolation = if read_committed { Isolation::ReadCommitted } else { Isolation::Serializable };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(follow(steps, stored, splits, page_rows, isolation));
    }
}
