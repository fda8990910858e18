//! The KV node goes away and comes back.

use crate::support::{Cluster, bytes};
use kv_api::{KvErrorKind, LockStrength};
use kv_client::{KvClient, TxnOptions};
use process::identity::Identity;
use std::time::Duration;

#[tokio::test]
async fn a_restart_is_a_pause_for_who_holds_nothing_and_an_abort_for_who_does() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client(2).await;
    let plain = client.begin(TxnOptions::default());
    assert_eq!(plain.get(b"a", LockStrength::None).await.unwrap(), None);
    plain.put(b"a", bytes("1")).unwrap();
    let locked = client.begin(TxnOptions::default());
    locked.get(b"b", LockStrength::Exclusive).await.unwrap();
    let flushed = client.begin(TxnOptions::default());
    flushed.put(b"c", bytes("1")).unwrap();
    flushed.flush().await.unwrap();
    cluster.stop_node().await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.begin(TxnOptions::default()).get(b"a", LockStrength::Exclusive).await }
    });
    tokio::task::yield_now().await;
    cluster.start_node().await;
    assert_eq!(waiting.await.unwrap().unwrap(), None);
    plain.commit().await.unwrap();
    assert_eq!(locked.get(b"b", LockStrength::None).await.unwrap_err().kind(), KvErrorKind::Aborted);
    assert_eq!(flushed.commit().await.unwrap_err().kind(), KvErrorKind::Aborted);
    let check = client.begin(TxnOptions::default());
    assert_eq!(check.get(b"a", LockStrength::Exclusive).await.unwrap(), Some(bytes("1")));
    assert_eq!(check.get(b"c", LockStrength::Exclusive).await.unwrap(), None);
}

#[tokio::test]
async fn without_a_node_requests_fail_when_the_time_is_up() {
    let mut cluster = Cluster::start().await;
    cluster.client(2).await;
    cluster.stop_node().await;
    let mut config = cluster.config(Identity::Tenant(2), 2);
    config.connect_timeout = Duration::from_millis(50);
    let client = KvClient::connect(config);
    let txn = client.begin(TxnOptions::default());
    assert_eq!(txn.get(b"a", LockStrength::None).await.unwrap_err().kind(), KvErrorKind::Unavailable);
    txn.put(b"a", bytes("1")).unwrap();
    assert_eq!(txn.commit().await.unwrap_err().kind(), KvErrorKind::Unavailable);
    assert_eq!(client.increment(b"n", 1).await.unwrap_err().kind(), KvErrorKind::Unavailable);
    cluster.start_node().await;
    client.ready().await.ok();
    while client.increment(b"n", 1).await.is_err() {}
    assert_eq!(client.increment(b"n", 1).await.unwrap(), 2);
}

#[tokio::test]
async fn restarts_under_load_lose_no_acknowledged_commit() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client(2).await;
    let mut writers = Vec::new();
    for writer in 0..4u32 {
        let client = client.clone();
        writers.push(tokio::spawn(async move {
            let (mut acknowledged, mut unknown) = (Vec::new(), 0);
            for number in 0..150u32 {
                let key = [writer.to_be_bytes(), number.to_be_bytes()].concat();
                let txn = client.begin(TxnOptions::default());
                let written: kv_api::KvResult<()> = async {
                    txn.get(&key, LockStrength::Exclusive).await?;
                    txn.put(&key, bytes("v"))?;
                    txn.commit().await.map(|_| ())
                }
                .await;
                match written {
                    Ok(()) => acknowledged.push(key),
                    Err(error) => {
                        let expected = [KvErrorKind::Ambiguous, KvErrorKind::Aborted];
                        assert!(expected.contains(&error.kind()), "{error}");
                        unknown += 1;
                    }
                }
            }
            (acknowledged, unknown)
        }));
    }
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        cluster.stop_node().await;
        cluster.start_node().await;
    }
    let mut acknowledged = Vec::new();
    for writer in writers {
        let (keys, unknown) = writer.await.unwrap();
        assert_eq!(keys.len() + unknown, 150);
        acknowledged.extend(keys.into_iter().map(bytes::Bytes::from));
    }
    let values =
        client.begin(TxnOptions::default()).get_many(&acknowledged, LockStrength::None).await.unwrap();
    assert!(values.iter().all(Option::is_some));
}
