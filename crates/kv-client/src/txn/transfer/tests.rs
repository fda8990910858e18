//! Hand-overs against the model of the KV nodes.

use super::super::model::{Model, Play, RANGE, TENANT};
use super::*;
use crate::{Isolation, LockStrength, TxnOptions};
use kv_api::Timestamp;
use std::sync::Arc;

fn key() -> TransferKey {
    TransferKey::new([9; 32])
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn begin(model: &Model) -> Txn {
    model.client.begin(TxnOptions::default())
}

async fn put(model: &Model, key: &str, value: &str) {
    let txn = begin(model);
    txn.put(key.as_bytes(), bytes(value)).unwrap();
    txn.commit().await.unwrap();
}

async fn get(txn: &Txn, key: &str) -> KvResult<Option<Bytes>> {
    txn.get(key.as_bytes(), LockStrength::None).await
}

/// The transaction in another process.
async fn hop(model: &Model, txn: Txn) -> Txn {
    let exported = txn.export(&key()).await.unwrap();
    model.client.import(exported, &key()).await.unwrap()
}

fn kind<T>(result: KvResult<T>) -> KvErrorKind {
    result.err().expect("an error").kind()
}

/// A model with two ranges that meet at `m`, on two nodes.
fn two_ranges() -> Arc<Model> {
    let model = Model::start();
    assert_eq!(model.split("m", 1), RANGE + 1);
    model
}

#[tokio::test]
async fn everything_goes_on_where_it_stopped() {
    let model = two_ranges();
    put(&model, "a", "old").await;
    let txn = begin(&model);
    assert_eq!(get(&txn, "a").await.unwrap(), Some(bytes("old")));
    txn.get(b"locked", LockStrength::Exclusive).await.unwrap();
    txn.get(b"z", LockStrength::Exclusive).await.unwrap();
    txn.put(b"flushed", bytes("1")).unwrap();
    txn.put(b"undone", bytes("1")).unwrap();
    txn.flush().await.unwrap();
    let savepoint = txn.savepoint();
    txn.put(b"undone", bytes("2")).unwrap();
    let snapshot = txn.read_timestamp();
    let txn = hop(&model, txn).await;
    assert_eq!(txn.read_timestamp(), snapshot);
    assert_eq!(get(&txn, "undone").await.unwrap(), Some(bytes("2")));
    txn.rollback_to(super::super::Savepoint::of_number(savepoint.number()));
    let txn = hop(&model, txn).await;
    assert_eq!(get(&txn, "undone").await.unwrap(), Some(bytes("1")));
    txn.put(b"buffered", bytes("3")).unwrap();
    let other = begin(&model);
    let locked = other.get(b"locked", LockStrength::Exclusive).await;
    assert_eq!(kind(locked), KvErrorKind::LockNotAvailable, "the lock stays");
    let txn = hop(&model, txn).await;
    txn.commit().await.unwrap();
    drop(other);
    model.settled().await;
    let newest = model.store.lock().newest();
    let expected = [("a", "old"), ("buffered", "3"), ("flushed", "1"), ("undone", "1")];
    assert_eq!(newest, expected.map(|(key, value)| (bytes(key), bytes(value))).into());
}

#[tokio::test]
async fn who_exports_cannot_use_the_transaction_any_more_and_leaves_it_alone() {
    let model = two_ranges();
    let txn = begin(&model);
    txn.put(b"a", bytes("1")).unwrap();
    txn.get(b"n", LockStrength::Exclusive).await.unwrap();
    let exported = txn.export(&key()).await.unwrap();
    assert!(!txn.is_open());
    assert_eq!(kind(txn.put(b"a", bytes("2"))), KvErrorKind::Aborted);
    assert_eq!(kind(get(&txn, "a").await), KvErrorKind::Aborted);
    assert_eq!(kind(txn.commit().await), KvErrorKind::Aborted);
    assert_eq!(kind(txn.export(&key()).await), KvErrorKind::Aborted);
    txn.rollback().await;
    drop(txn);
    let txn = model.client.import(exported, &key()).await.unwrap();
    txn.commit().await.unwrap();
    model.settled().await;
    assert_eq!(model.store.lock().newest(), [(bytes("a"), bytes("1"))].into());
}

#[tokio::test]
async fn it_is_taken_over_once_whatever_it_has_done() {
    let done: [fn(&Txn); 3] =
        [|_| {}, |txn| txn.put(b"a", bytes("1")).unwrap(), |txn| txn.delete(b"z").unwrap()];
    for reads in [false, true] {
        for locks in [false, true] {
            for done in done {
                let model = two_ranges();
                let txn = begin(&model);
                if reads {
                    get(&txn, "n").await.unwrap();
                }
                if locks {
                    txn.get(b"o", LockStrength::Exclusive).await.unwrap();
                }
                done(&txn);
                let exported = txn.export(&key()).await.unwrap();
                let signed = key();
                let import = || model.client.import(exported.clone(), &signed);
                let (first, second) = tokio::join!(import(), import());
                let (won, lost) = if first.is_ok() { (first, second) } else { (second, first) };
                assert_eq!(kind(lost), KvErrorKind::Aborted);
                assert_eq!(kind(import().await), KvErrorKind::Aborted);
                let exported_again = won.unwrap().export(&key()).await.unwrap();
                assert_eq!(kind(import().await), KvErrorKind::Aborted, "exported again since");
                let txn = model.client.import(exported_again.clone(), &key()).await.unwrap();
                txn.commit().await.unwrap();
                model.settled().await;
                assert_eq!(kind(import().await), KvErrorKind::Aborted, "finished");
                assert_eq!(kind(model.client.import(exported_again, &key()).await), KvErrorKind::Aborted);
            }
        }
    }
}

#[tokio::test]
async fn one_that_nobody_imports_in_time_is_gone() {
    let model = two_ranges();
    let txn = begin(&model);
    txn.get(b"a", LockStrength::Exclusive).await.unwrap();
    txn.get(b"n", LockStrength::Exclusive).await.unwrap();
    let exported = txn.export(&key()).await.unwrap();
    assert_eq!(model.store.lock().waiting(), 2);
    model.disconnect();
    model.connect();
    assert_eq!(model.store.lock().waiting(), 2, "it does not end with the connection");
    model.store.lock().expire();
    assert!(model.store.lock().is_clean());
    assert_eq!(kind(model.client.import(exported, &key()).await), KvErrorKind::Aborted);
}

#[tokio::test]
async fn bytes_that_are_not_its_own_are_refused_and_harm_nobody() {
    let model = Model::start();
    let txn = begin(&model);
    txn.put(b"a", bytes("1")).unwrap();
    let exported = txn.export(&key()).await.unwrap();
    let import = |bytes: Bytes, key| {
        let client = model.client.clone();
        async move { client.import(bytes, &key).await }
    };
    let other = TransferKey::new([8; 32]);
    assert_eq!(kind(import(exported.clone(), other).await), KvErrorKind::InvalidRequest);
    assert_eq!(kind(import(exported.slice(1..), key()).await), KvErrorKind::InvalidRequest);
    assert_eq!(kind(import(Bytes::new(), key()).await), KvErrorKind::InvalidRequest);
    let mut changed = exported.to_vec();
    changed[20] ^= 1;
    assert_eq!(kind(import(changed.into(), key()).await), KvErrorKind::InvalidRequest);
    let mut carried: Exported = token::open(exported.clone(), &key(), MAX_BYTES).unwrap();
    carried.tenant_id += 1;
    assert_eq!(kind(import(token::seal(&carried, &key()), key()).await), KvErrorKind::Unauthorized);
    (carried.tenant_id, carried.hop) = (TENANT.0, 0);
    assert_eq!(kind(import(token::seal(&carried, &key()), key()).await), KvErrorKind::InvalidRequest);
    import(exported, key()).await.unwrap().commit().await.unwrap();
}

#[tokio::test]
async fn it_does_not_leave_while_requests_are_under_way() {
    for lock in [LockStrength::None, LockStrength::Exclusive] {
        let model = Model::start();
        put(&model, "a", "1").await;
        let txn = Arc::new(begin(&model));
        model.store.lock().hold = true;
        let reader = txn.clone();
        let read = tokio::spawn(async move { reader.get(b"a", lock).await });
        model.received(2).await;
        assert_eq!(kind(txn.export(&key()).await), KvErrorKind::InvalidRequest);
        assert!(txn.is_open());
        model.release();
        assert_eq!(read.await.unwrap().unwrap(), Some(bytes("1")));
        let exported = txn.export(&key()).await.unwrap();
        let txn = model.client.import(exported, &key()).await.unwrap();
        txn.put(b"a", bytes("2")).unwrap();
        txn.commit().await.unwrap();
    }
}

#[tokio::test]
async fn an_export_that_fails_or_is_given_up_rolls_back() {
    for how in 0..4 {
        let model = two_ranges();
        let txn = Arc::new(begin(&model));
        txn.get(b"a", LockStrength::Exclusive).await.unwrap();
        txn.get(b"n", LockStrength::Exclusive).await.unwrap();
        let second = |batch: &BatchRequest| {
            let kind = batch.requests[0].kind.as_ref();
            matches!(kind, Some(RequestKind::DetachTxn(_))) && batch.header.range_id == RANGE + 1
        };
        if how == 3 {
            model.store.lock().hold = true;
            let leaving = txn.clone();
            let export = tokio::spawn(async move { leaving.export(&key()).await });
            while model.store.lock().waiting() < 2 {
                tokio::task::yield_now().await;
            }
            export.abort();
            let _ = export.await;
            model.release();
        } else {
            model.store.lock().script = Some(Box::new(move |batch| match how {
                0 if second(batch) => Play::Fail(KvError::new(KvErrorKind::Overloaded, "too many")),
                1 if second(batch) => Play::LoseBatch,
                2 if second(batch) => Play::LoseAnswer,
                _ => Play::Serve,
            }));
            let failed = kind(txn.export(&key()).await);
            assert_eq!(failed, if how == 0 { KvErrorKind::Overloaded } else { KvErrorKind::Aborted });
        }
        assert!(!txn.is_open());
        if how == 1 || how == 2 {
            // The model does not end a connection's locks with one of two connections.
            model.disconnect();
            model.store.lock().expire();
        }
        model.settled().await;
    }
}

#[tokio::test]
async fn locks_that_went_with_a_lease_do_not_keep_a_serializable_transaction() {
    for before_the_export in [false, true] {
        let model = two_ranges();
        let txn = begin(&model);
        txn.get(b"a", LockStrength::Exclusive).await.unwrap();
        txn.get(b"n", LockStrength::Exclusive).await.unwrap();
        txn.put(b"n", bytes("1")).unwrap();
        if before_the_export {
            // The nodes answer that they do not lead any more.
            model.move_lease();
        }
        let exported = txn.export(&key()).await.unwrap();
        if !before_the_export {
            model.lose_lease(RANGE + 1);
        }
        let txn = model.client.import(exported, &key()).await.unwrap();
        txn.commit().await.unwrap();
        model.settled().await;
        assert_eq!(model.store.lock().newest(), [(bytes("n"), bytes("1"))].into());
    }
}

#[tokio::test]
async fn what_rests_on_a_lease_is_lost_with_it() {
    let read_committed = TxnOptions { isolation: Isolation::ReadCommitted, ..TxnOptions::default() };
    for (options, flushes) in [(read_committed, false), (TxnOptions::default(), true)] {
        let model = two_ranges();
        let txn = model.client.begin(options);
        txn.begin_statement();
        if flushes {
            txn.put(b"n", bytes("1")).unwrap();
            txn.flush().await.unwrap();
        } else {
            txn.get(b"n", LockStrength::Exclusive).await.unwrap();
        }
        txn.get(b"a", LockStrength::Exclusive).await.unwrap();
        let exported = txn.export(&key()).await.unwrap();
        model.lose_lease(RANGE + 1);
        model.store.lock().script = None;
        assert_eq!(kind(model.client.import(exported, &key()).await), KvErrorKind::Aborted);
    }
}

#[tokio::test]
async fn a_claim_is_found_after_a_split_and_lost_with_its_lease() {
    for loses in [false, true] {
        let model = Model::start();
        let txn = begin(&model);
        txn.put(b"x", bytes("1")).unwrap();
        let exported = txn.export(&key()).await.unwrap();
        model.split("m", 1);
        if loses {
            model.lose_lease(RANGE);
        }
        let imported = model.client.import(exported, &key()).await;
        if loses {
            assert_eq!(kind(imported), KvErrorKind::Aborted);
            continue;
        }
        imported.unwrap().commit().await.unwrap();
        assert_eq!(model.store.lock().newest(), [(bytes("x"), bytes("1"))].into());
    }
}

#[tokio::test]
async fn an_import_that_is_given_up_leaves_nothing() {
    let model = two_ranges();
    let txn = begin(&model);
    txn.get(b"a", LockStrength::Exclusive).await.unwrap();
    txn.get(b"n", LockStrength::Exclusive).await.unwrap();
    let exported = txn.export(&key()).await.unwrap();
    model.store.lock().hold = true;
    let client = model.client.clone();
    let import = tokio::spawn(async move { client.import(exported, &key()).await });
    while model.store.lock().waiting() > 1 {
        tokio::task::yield_now().await;
    }
    import.abort();
    let _ = import.await;
    model.release();
    model.settled().await;
}

#[tokio::test]
async fn many_writes_are_flushed_before_they_are_carried() {
    let model = Model::start();
    let options = TxnOptions { buffer_bytes: 64 << 20, ..TxnOptions::default() };
    let txn = model.client.begin(options);
    for number in 0..3 {
        txn.put(&[number], Bytes::from(vec![number; 7 << 20])).unwrap();
    }
    let exported = txn.export(&key()).await.unwrap();
    assert!(exported.len() < 4096);
    assert_eq!(model.store.lock().intents(), 3);
    model.client.import(exported, &key()).await.unwrap().commit().await.unwrap();
    assert_eq!(model.store.lock().newest().len(), 3);
}

#[tokio::test]
async fn one_that_reads_the_past_goes_on_reading_it() {
    let model = Model::start();
    put(&model, "a", "1").await;
    let at = {
        let txn = begin(&model);
        get(&txn, "a").await.unwrap();
        txn.read_timestamp().unwrap()
    };
    put(&model, "a", "2").await;
    let as_of = TxnOptions { as_of: Some(Timestamp::new(at.wall_ns, 0)), ..TxnOptions::default() };
    let txn = hop(&model, model.client.begin(as_of)).await;
    assert_eq!(get(&txn, "a").await.unwrap(), Some(bytes("1")));
    assert_eq!(kind(txn.put(b"a", bytes("3"))), KvErrorKind::InvalidRequest);
    // Whichever replica that was.
    let read = model.store.lock().received.last().cloned().unwrap();
    assert_eq!(
        (read.header.any_replica, read.header.read_timestamp),
        (true, Some(Timestamp::new(at.wall_ns, 0)))
    );
}
