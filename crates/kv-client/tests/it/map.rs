//! One transaction at a time, step by step, against a plain map.

use crate::support::Cluster;
use bytes::Bytes;
use kv_api::{KvErrorKind, LockStrength, Span};
use kv_client::{ScanOptions, TxnOptions};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

fn key(number: u32) -> Bytes {
    Bytes::from(format!("k{number:03}"))
}

#[tokio::test]
async fn transactions_see_and_commit_what_a_map_would_hold() {
    let cluster = Cluster::start().await;
    let client = cluster.client(2).await;
    let mut committed: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    for seed in 0..150 {
        let mut rng = StdRng::seed_from_u64(seed);
        let txn = client.begin(TxnOptions { buffer_bytes: 600, ..TxnOptions::default() });
        let mut expected = committed.clone();
        let mut savepoints = vec![(txn.savepoint(), expected.clone())];
        let mut failed = false;
        for _ in 0..rng.random_range(1..60) {
            let number = rng.random_range(0..40);
            let value = Bytes::from(rng.random::<u32>().to_string());
            match rng.random_range(0..12) {
                0..3 => {
                    txn.put(&key(number), value.clone()).unwrap();
                    expected.insert(key(number), value);
                }
                3..5 => {
                    txn.delete(&key(number)).unwrap();
                    expected.remove(&key(number));
                }
                5 => {
                    // An insert must fail, now or when it is sent, exactly if the key exists.
                    let savepoint = txn.savepoint();
                    let result = match txn.put_if_absent(&key(number), value.clone()) {
                        Ok(()) => txn.flush().await,
                        Err(error) => Err(error),
                    };
                    match result {
                        Ok(()) => assert_eq!(expected.insert(key(number), value), None),
                        Err(error) => {
                            assert_eq!(error.kind(), KvErrorKind::ConditionFailed);
                            assert_eq!(error.key, Some(key(number)));
                            assert_eq!(error.actual.as_ref(), expected.get(&key(number)));
                            assert!(error.actual.is_some());
                            txn.rollback_to(savepoint);
                        }
                    }
                }
                6 => {
                    let lock = if rng.random() { LockStrength::Exclusive } else { LockStrength::None };
                    assert_eq!(
                        txn.get(&key(number), lock).await.unwrap().as_ref(),
                        expected.get(&key(number))
                    );
                }
                7..9 => {
                    let options = ScanOptions {
                        reverse: rng.random(),
                        limit: rng.random_range(0..5),
                        target_bytes: rng.random_range(0..60),
                        read: if rng.random() { LockStrength::Shared } else { LockStrength::None }.into(),
                    };
                    let high = rng.random_range(number..=40);
                    let mut wanted: Vec<_> = expected.range(key(number)..key(high)).collect();
                    if options.reverse {
                        wanted.reverse();
                    }
                    let mut rest = Some(Span::new(key(number), key(high)));
                    let mut rows = Vec::new();
                    while let Some(span) = rest {
                        let page = txn.scan(&span, options).await.unwrap();
                        rows.extend(page.rows);
                        rest = page.resume;
                    }
                    assert_eq!(rows.iter().map(|(key, value)| (key, value)).collect::<Vec<_>>(), wanted);
                }
                9 => savepoints.push((txn.savepoint(), expected.clone())),
                10 => {
                    let (savepoint, then) = savepoints[rng.random_range(0..savepoints.len())].clone();
                    savepoints.retain(|(other, _)| *other == savepoint);
                    txn.rollback_to(savepoint);
                    expected = then;
                }
                _ => txn.flush_if_large().await.unwrap(),
            }
        }
        if rng.random_bool(0.2) {
            txn.rollback().await;
            failed = true;
        } else {
            txn.commit().await.unwrap();
        }
        if !failed {
            committed = expected;
        }
        let check = client.begin(TxnOptions::default());
        let all = check.scan(&Span::default(), ScanOptions::default()).await.unwrap();
        assert_eq!(all.rows.into_iter().collect::<BTreeMap<_, _>>(), committed, "seed {seed}");
    }
}
