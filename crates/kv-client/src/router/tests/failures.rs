//! Nodes that are gone, refuse, or are silent.

use super::stage::{Reply, Stage, is_lookup, lead, nobody, range};
use crate::{Config, KvClient, TxnOptions};
use kv_api::{KvError, KvErrorKind, LockStrength};
use std::time::Duration;

#[tokio::test]
async fn without_a_hint_and_where_nobody_listens_the_next_node_is_asked() {
    let stage = Stage::new();
    let nodes = stage.nodes(3, 2).await;
    nodes[0].refuse(Some(KvError::not_leaseholder(None)));
    nodes[1].play(|_| Reply::Close);
    let mut config = stage.config(&[&nodes[0], &nodes[1], &nodes[2]]);
    config.addresses.insert(0, nobody().await);
    let client = KvClient::connect(config);
    let mut txn = client.begin(TxnOptions::default());
    assert_eq!(txn.get(b"k", LockStrength::None).await.unwrap(), None);
    assert_eq!(client.addresses().borrow()[0], nodes[2].address);
    // What was found stays.
    txn = client.begin(TxnOptions::default());
    assert_eq!(txn.get(b"k", LockStrength::None).await.unwrap(), None);
    assert_eq!(nodes[2].heard().len(), 2);
}

#[tokio::test]
async fn nodes_that_joined_later_are_learned_and_found_when_the_others_are_gone() {
    let stage = Stage::new();
    let nodes = stage.nodes(2, 0).await;
    let gone = nobody().await;
    nodes[0].name(vec![gone.clone(), nodes[1].address.clone(), "nonsense".to_owned()]);
    let client = stage.client(&[&nodes[0]]);
    client.increment(b"n", 1).await.unwrap();
    let [first, later] = [0, 1].map(|index| nodes[index].address.clone());
    assert_eq!(*client.addresses().borrow(), [first.clone(), gone.clone(), later.clone()]);
    nodes[0].refuse(Some(KvError::not_leaseholder(None)));
    nodes[0].close();
    nodes[0].connections(0).await;
    lead(&nodes, 1);
    assert_eq!(client.increment(b"n", 1).await.unwrap(), 5);
    assert_eq!(client.addresses().borrow()[0], later);
}

#[tokio::test]
async fn a_node_that_serves_nobody_names_others_to_ask() {
    let stage = Stage::new();
    let nodes = stage.nodes(2, 1).await;
    nodes[0].refuse(Some(KvError::not_leaseholder(None)));
    nodes[0].name(vec![nodes[1].address.clone()]);
    assert_eq!(stage.client(&[&nodes[0]]).increment(b"n", 1).await.unwrap(), 5);
}

#[tokio::test]
async fn a_client_that_a_node_refuses_is_told_why() {
    let stage = Stage::new();
    let nodes = stage.nodes(1, 0).await;
    nodes[0].refuse(Some(KvError::new(KvErrorKind::Unauthorized, "no")));
    let client = stage.client(&[&nodes[0]]);
    for _ in 0..3 {
        assert_eq!(client.increment(b"n", 1).await.unwrap_err().kind(), KvErrorKind::Unauthorized);
    }
    assert_eq!(client.ready().await.unwrap_err().kind(), KvErrorKind::Unauthorized);
}

#[tokio::test]
async fn another_cluster_is_not_talked_to() {
    let stage = Stage::new();
    let nodes = stage.nodes(2, 1).await;
    let config = Config {
        cluster_id: "another".into(),
        connect_timeout: Duration::from_millis(200),
        ..stage.config(&[&nodes[0], &nodes[1]])
    };
    let error = KvClient::connect(config).ready().await.unwrap_err();
    assert_eq!(error.kind(), KvErrorKind::Unavailable);
    assert!(error.message.contains("cluster"), "{error}");
}

#[tokio::test]
async fn a_transaction_whose_connection_is_lost_is_aborted() {
    let stage = Stage::new();
    let nodes = stage.nodes(2, 0).await;
    let client = stage.client(&[&nodes[0]]);
    let txn = client.begin(TxnOptions::default());
    txn.get(b"k", LockStrength::Exclusive).await.unwrap();
    nodes[0].close();
    nodes[0].connections(0).await;
    lead(&nodes, 1);
    // Whoever asks is sent to the other node.
    assert_eq!(client.increment(b"n", 1).await.unwrap(), 5);
    assert_eq!(nodes[1].heard().len(), 1);
    assert_eq!(txn.get(b"k", LockStrength::None).await.unwrap_err().kind(), KvErrorKind::Aborted);
}

#[tokio::test]
async fn who_waits_in_vain_is_told_that_nobody_serves() {
    let stage = Stage::new();
    let nodes = stage.nodes(2, 0).await;
    let info = range(&[&nodes[0], &nodes[1]]);
    for (node, other) in [(&nodes[0], &nodes[1]), (&nodes[1], &nodes[0])] {
        let (info, other) = (info.clone(), other.address.clone());
        node.play(move |batch| match is_lookup(batch) {
            true => Reply::Ranges(vec![info.clone()]),
            false => Reply::Fail(KvError::not_leaseholder(Some(other.clone()))),
        });
    }
    let config =
        Config { connect_timeout: Duration::from_millis(300), ..stage.config(&[&nodes[0], &nodes[1]]) };
    let client = KvClient::connect(config);
    let error = client.increment(b"n", 1).await.unwrap_err();
    assert_eq!(error.kind(), KvErrorKind::Unavailable, "{error}");
    let heard = nodes[0].heard().len() + nodes[1].heard().len();
    assert!(heard < 200, "{heard} batches in {:?}", Duration::from_millis(300));
    let txn = client.begin(TxnOptions::default());
    txn.put(b"k", "v".into()).unwrap();
    assert_eq!(txn.commit().await.unwrap_err().kind(), KvErrorKind::Unavailable);
    assert_eq!(client.nodes().await.unwrap_err().kind(), KvErrorKind::Unavailable);
}

#[tokio::test]
async fn a_node_that_falls_silent_is_left() {
    let stage = Stage::new();
    let nodes = stage.nodes(2, 0).await;
    let config =
        Config { silence_timeout: Duration::from_millis(150), ..stage.config(&[&nodes[0], &nodes[1]]) };
    let client = KvClient::connect(config);
    client.ready().await.unwrap();
    lead(&nodes, 1);
    nodes[0].play(|_| Reply::Silence);
    let (reader, writer) = (client.begin(TxnOptions::default()), client.begin(TxnOptions::default()));
    writer.put(b"k", "v".into()).unwrap();
    let (read, committed) = tokio::join!(reader.get(b"k", LockStrength::None), writer.commit());
    assert_eq!(read.unwrap(), None);
    assert_eq!(committed.unwrap_err().kind(), KvErrorKind::Ambiguous);
    assert_eq!(nodes[1].heard().len(), 1);
}

#[tokio::test]
async fn a_node_on_which_everything_waits_for_locks_is_not_left() {
    let stage = Stage::new();
    let nodes = stage.nodes(1, 0).await;
    let config = Config { silence_timeout: Duration::from_millis(60), ..stage.config(&[&nodes[0]]) };
    let client = KvClient::connect(config);
    client.ready().await.unwrap();
    // The probe is a lookup; after ten of them, the lock is there.
    let info = range(&[&nodes[0]]);
    nodes[0].play(move |batch| match is_lookup(batch) {
        true => Reply::Ranges(vec![info.clone()]),
        false => Reply::After(10),
    });
    let txn = client.begin(TxnOptions::default());
    assert_eq!(txn.get(b"k", LockStrength::Exclusive).await.unwrap(), None);
    assert!(nodes[0].lookups() > 9);
}
