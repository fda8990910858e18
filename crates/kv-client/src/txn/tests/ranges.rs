//! Reads in several ranges.

use super::super::model::{Model, RANGE};
use super::{all, begin, bytes, kind, put};
use crate::{Isolation, ScanOptions, TxnOptions};
use bytes::Bytes;
use kv_api::batch::{BatchRequest, RequestKind};
use kv_api::{KvErrorKind, LockStrength, Span};
use std::sync::Arc;

const OTHER: u64 = RANGE + 1;

/// Two ranges that meet at `m`, each with some keys; the clock of the second is well ahead.
async fn two_ranges() -> Arc<Model> {
    let model = Model::start();
    assert_eq!(model.split("m", 1), OTHER);
    model.store.lock().set_clock(OTHER, 1_000);
    for key in ["a", "b", "n", "o"] {
        put(&model, key, "1").await;
    }
    model.store.lock().received.clear();
    model
}

fn keys(batch: &BatchRequest) -> String {
    let key = |kind: Option<&RequestKind>| match kind {
        Some(RequestKind::Get(get)) => String::from_utf8(get.key[9..].to_vec()).unwrap(),
        _ => "?".to_owned(),
    };
    batch.requests.iter().map(|request| key(request.kind.as_ref())).collect()
}

#[tokio::test]
async fn reads_of_one_call_are_grouped_by_range() {
    let model = two_ranges().await;
    let txn = begin(&model);
    let wanted = ["n", "a", "o", "b", "x"].map(bytes);
    let values = txn.get_many(&wanted, LockStrength::None).await.unwrap();
    assert_eq!(values, [Some(bytes("1")), Some(bytes("1")), Some(bytes("1")), Some(bytes("1")), None]);
    let store = model.store.lock();
    let sent: Vec<_> = store.received.iter().map(|batch| (batch.header.range_id, keys(batch))).collect();
    assert_eq!(sent, [(OTHER, "nox".to_owned()), (RANGE, "ab".to_owned())]);
    let [first, second] = &store.received[..] else { unreachable!() };
    assert_eq!((first.header.read_timestamp, first.header.uncertainty_limit), (None, None));
    assert_eq!(second.header.read_timestamp, txn.read_timestamp());
    assert!(second.header.uncertainty_limit > second.header.read_timestamp);
}

#[tokio::test]
async fn a_page_ends_where_a_range_ends() {
    let model = two_ranges().await;
    let rows = |keys: &[&str]| keys.iter().map(|key| (bytes(key), bytes("1"))).collect::<Vec<_>>();
    let txn = begin(&model);
    let page = txn.scan(&all(), ScanOptions::default()).await.unwrap();
    assert_eq!((page.rows, &page.resume), (rows(&["a", "b"]), &Some(Span::new(bytes("m"), Bytes::new()))));
    let page = txn.scan(&page.resume.unwrap(), ScanOptions::default()).await.unwrap();
    assert_eq!((page.rows, page.resume), (rows(&["n", "o"]), None));
    let reverse = ScanOptions { reverse: true, ..ScanOptions::default() };
    let txn = begin(&model);
    let page = txn.scan(&Span::new(bytes("b"), bytes("z")), reverse).await.unwrap();
    assert_eq!((page.rows, &page.resume), (rows(&["o", "n"]), &Some(Span::new(bytes("b"), bytes("m")))));
    let page = txn.scan(&page.resume.unwrap(), reverse).await.unwrap();
    assert_eq!((page.rows, page.resume), (rows(&["b"]), None));
    // What meets the border from below lies in one range.
    let page = txn.scan(&Span::new(bytes("b"), bytes("m")), reverse).await.unwrap();
    assert_eq!((page.rows, page.resume), (rows(&["b"]), None));
    let spans = [all(), Span::new(bytes("n"), bytes("o"))];
    let pages = begin(&model).scan_many(&spans, ScanOptions::default()).await.unwrap();
    assert_eq!((pages[0].rows.len(), pages[1].rows.len()), (2, 1));
    assert!(pages[0].resume.is_some() && pages[1].resume.is_none());
}

#[tokio::test]
async fn what_may_have_been_committed_before_moves_the_snapshot() {
    let model = two_ranges().await;
    let txn = begin(&model);
    txn.get(b"a", LockStrength::None).await.unwrap();
    let first = txn.read_timestamp();
    model.store.lock().received.clear();
    assert_eq!(txn.get(b"n", LockStrength::None).await.unwrap(), Some(bytes("1")), "the clock is ahead");
    assert!(txn.read_timestamp() > first);
    assert_eq!(model.store.lock().trace(), ["71 read", "70 refresh", "71 read"]);
    // In a transaction whose first range is ahead nothing is uncertain.
    let txn = begin(&model);
    txn.get(b"n", LockStrength::None).await.unwrap();
    let first = txn.read_timestamp();
    txn.get(b"a", LockStrength::None).await.unwrap();
    assert_eq!(txn.read_timestamp(), first);
}

#[tokio::test]
async fn a_snapshot_that_cannot_move_is_told_to_the_caller() {
    for obstacle in ["changed", "fixed"] {
        let model = two_ranges().await;
        let txn = begin(&model);
        txn.get(b"a", LockStrength::None).await.unwrap();
        match obstacle {
            "changed" => put(&model, "a", "2").await,
            _ => txn.pin_snapshot(),
        }
        assert_eq!(kind(txn.get(b"n", LockStrength::None).await), KvErrorKind::Retry, "{obstacle}");
    }
}

#[tokio::test]
async fn a_range_is_uncertain_up_to_its_first_clock() {
    let model = two_ranges().await;
    put(&model, "a", "2").await;
    let txn = begin(&model);
    model.store.lock().set_clock(RANGE, 500);
    txn.get(b"a", LockStrength::None).await.unwrap();
    // This key is not there: nothing is uncertain about it.
    txn.get(b"z", LockStrength::None).await.unwrap();
    let first = txn.read_timestamp();
    put(&model, "p", "late").await;
    assert_eq!(txn.get(b"p", LockStrength::None).await.unwrap(), None, "it came after the clock was read");
    assert_eq!(txn.read_timestamp(), first);
    assert_eq!(txn.get(b"o", LockStrength::None).await.unwrap(), Some(bytes("1")), "it was there before");
    assert!(txn.read_timestamp() > first);
}

#[tokio::test]
async fn each_statement_of_read_committed_reads_one_snapshot() {
    let model = two_ranges().await;
    let options = TxnOptions { isolation: Isolation::ReadCommitted, ..TxnOptions::default() };
    for change in [false, true] {
        let txn = model.client.begin(options);
        txn.begin_statement();
        txn.get(b"a", LockStrength::None).await.unwrap();
        if change {
            put(&model, "a", "2").await;
            model.store.lock().set_clock(OTHER, 5_000);
            put(&model, "n", "2").await;
            assert_eq!(kind(txn.get(b"n", LockStrength::None).await), KvErrorKind::Retry);
        } else {
            assert_eq!(txn.get(b"n", LockStrength::None).await.unwrap(), Some(bytes("1")));
        }
        txn.begin_statement();
        assert_eq!(txn.read_timestamp(), None);
        let read = txn.get(b"n", LockStrength::None).await.unwrap();
        assert_eq!(read, Some(bytes(if change { "2" } else { "1" })));
        txn.put(b"a", bytes("own")).unwrap();
        txn.commit().await.unwrap();
        model.settled().await;
    }
}

#[tokio::test]
async fn a_read_only_transaction_moves_its_snapshot_only_if_what_it_read_is_unchanged() {
    let model = two_ranges().await;
    let options = TxnOptions { read_only: true, ..TxnOptions::default() };
    for change in [false, true] {
        let txn = model.client.begin(options);
        txn.get(b"a", LockStrength::None).await.unwrap();
        if change {
            put(&model, "a", "2").await;
            put(&model, "n", "2").await;
        }
        let read = txn.get(b"n", LockStrength::None).await;
        assert_eq!(read.is_err(), change, "{read:?}");
    }
}

#[tokio::test]
async fn a_locking_read_that_needs_a_later_snapshot_leaves_it_to_the_coordinator() {
    let model = two_ranges().await;
    let txn = begin(&model);
    txn.get(b"n", LockStrength::None).await.unwrap();
    txn.get(b"a", LockStrength::None).await.unwrap();
    put(&model, "b", "2").await;
    model.store.lock().set_clock(RANGE, 5_000);
    put(&model, "b", "3").await;
    model.store.lock().received.clear();
    assert_eq!(txn.get(b"b", LockStrength::Exclusive).await.unwrap(), Some(bytes("3")));
    let mut trace = model.store.lock().trace();
    trace[1..3].sort();
    assert_eq!(trace, ["70 read", "70 refresh", "71 refresh", "70 read"]);
    assert!(model.store.lock().received[0].header.spans_elsewhere);
}

#[tokio::test]
async fn the_snapshot_moves_to_the_present_in_all_ranges() {
    let model = two_ranges().await;
    let txn = begin(&model);
    for key in [&b"n"[..], b"a"] {
        txn.get(key, LockStrength::None).await.unwrap();
    }
    put(&model, "o", "2").await;
    txn.refresh().await.unwrap();
    assert_eq!(txn.get(b"o", LockStrength::None).await.unwrap(), Some(bytes("2")));
    put(&model, "a", "2").await;
    assert_eq!(kind(txn.refresh().await), KvErrorKind::Retry);
}

#[tokio::test]
async fn reads_find_their_ranges_after_a_split() {
    let model = Model::start();
    for key in ["a", "n", "s", "x"] {
        put(&model, key, "1").await;
    }
    let txn = begin(&model);
    assert_eq!(txn.get(b"a", LockStrength::Exclusive).await.unwrap(), Some(bytes("1")));
    model.split("m", 1);
    model.split("r", 0);
    let wanted = ["x", "n", "a", "s"].map(bytes);
    let values = txn.get_many(&wanted, LockStrength::None).await.unwrap();
    assert_eq!(values, vec![Some(bytes("1")); 4]);
    let mut found = Vec::new();
    let mut left = Some(all());
    while let Some(span) = left.take() {
        let reverse = ScanOptions { reverse: true, ..ScanOptions::default() };
        let page = txn.scan(&span, reverse).await.unwrap();
        found.extend(page.rows.into_iter().map(|(key, _)| key));
        left = page.resume;
    }
    assert_eq!(found, ["x", "s", "n", "a"].map(bytes));
    txn.put(b"a", bytes("2")).unwrap();
    txn.commit().await.unwrap();
    model.client.clear_range(all()).await.unwrap();
    assert!(model.store.lock().newest().is_empty());
}

#[tokio::test]
async fn locks_on_keys_that_a_split_took_away_are_missed() {
    let model = two_ranges().await;
    let options = TxnOptions { isolation: Isolation::ReadCommitted, ..TxnOptions::default() };
    let txn = model.client.begin(options);
    txn.get(b"o", LockStrength::Exclusive).await.unwrap();
    model.split("o", 0);
    put(&model, "o", "2").await;
    txn.put(b"o", bytes("3")).unwrap();
    assert_eq!(kind(txn.commit().await), KvErrorKind::Aborted);
    assert_eq!(model.store.lock().newest()[&b"o"[..]], "2");
}
