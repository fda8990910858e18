//! A client among played KV nodes.

mod failures;
mod replicas;
mod stage;

use crate::TxnOptions;
use kv_api::batch::{RangeConfig, RequestKind};
use kv_api::{KvError, LockStrength};
use stage::{RANGE, Reply, Stage, TENANT, is_lookup, lead, range};

#[tokio::test]
async fn a_commit_sent_to_a_node_without_the_lease_is_made_by_the_one_it_names() {
    let stage = Stage::new();
    let nodes = stage.nodes(2, 1).await;
    let client = stage.client(&[&nodes[0]]);
    let txn = client.begin(TxnOptions::default());
    txn.put(b"k", "v".into()).unwrap();
    assert!(txn.commit().await.unwrap().timestamp.is_some(), "not ambiguous: the first did nothing");
    assert_eq!((nodes[0].heard().len(), nodes[1].heard().len()), (1, 1));
    assert_eq!(nodes[1].heard()[0].header.range_id, RANGE);
    assert_eq!(*client.addresses().borrow(), [nodes[1].address.clone(), nodes[0].address.clone()]);
}

#[tokio::test]
async fn what_is_known_is_not_asked_again() {
    let stage = Stage::new();
    let nodes = stage.nodes(3, 2).await;
    let client = stage.client(&[&nodes[0]]);
    for _ in 0..10 {
        assert_eq!(client.increment(b"n", 1).await.unwrap(), 5);
    }
    let heard: Vec<usize> = nodes.iter().map(|node| node.heard().len()).collect();
    assert_eq!((heard, nodes[0].lookups()), (vec![1, 0, 10], 1));
}

#[tokio::test]
async fn many_that_need_a_range_at_once_look_it_up_once() {
    let stage = Stage::new();
    let nodes = stage.nodes(2, 1).await;
    let client = stage.client(&[&nodes[0]]);
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let client = client.clone();
        all.spawn(async move { client.increment(b"n", 1).await });
    }
    assert!(all.join_all().await.iter().all(|sum| *sum == Ok(5)));
    assert_eq!(nodes[0].lookups() + nodes[1].lookups(), 1);
    assert_eq!(nodes[1].heard().len(), 50);
}

#[tokio::test]
async fn an_idle_client_keeps_one_connection() {
    let stage = Stage::new();
    let nodes = stage.nodes(2, 1).await;
    // It knows the leaseholder.
    let mut info = range(&[&nodes[0], &nodes[1]]);
    info.leaseholder = 2;
    nodes[0]
        .play(move |batch| if is_lookup(batch) { Reply::Ranges(vec![info.clone()]) } else { Reply::Close });
    let client = stage.client(&[&nodes[0]]);
    client.ready().await.unwrap();
    nodes[0].connections(0).await;
    nodes[1].connections(1).await;
    drop(client);
    nodes[1].connections(0).await;
}

#[tokio::test]
async fn batches_follow_the_lease_from_node_to_node() {
    let stage = Stage::new();
    let nodes = stage.nodes(2, 0).await;
    let client = stage.client(&[&nodes[0], &nodes[1]]);
    for round in 1..10 {
        lead(&nodes, round % 2);
        assert_eq!(client.increment(b"n", 1).await.unwrap(), 5);
    }
    assert_eq!(nodes[0].lookups() + nodes[1].lookups(), 1, "the nodes said enough");
}

#[tokio::test]
async fn a_hint_that_is_out_of_date_does_not_hide_the_leaseholder() {
    let stage = Stage::new();
    let nodes = stage.nodes(3, 2).await;
    let [one, two, three] = [0, 1, 2].map(|index| nodes[index].address.clone());
    // The first two name each other, and somebody who is gone.
    let gone = stage::nobody().await;
    let info = range(&[&nodes[0], &nodes[1], &nodes[2]]);
    for (node, hints) in [(&nodes[0], [two, gone.clone()]), (&nodes[1], [one, gone])] {
        let info = info.clone();
        let mut turn = 0;
        node.play(move |batch| {
            turn += 1;
            match is_lookup(batch) {
                true => Reply::Ranges(vec![info.clone()]),
                false => Reply::Fail(KvError::not_leaseholder(Some(hints[turn % 2].clone()))),
            }
        });
    }
    let client = stage.client(&[&nodes[0]]);
    assert_eq!(client.increment(b"n", 1).await.unwrap(), 5);
    assert_eq!(client.addresses().borrow()[0], three);
}

#[tokio::test]
async fn a_range_that_left_its_nodes_is_looked_up_again() {
    let stage = Stage::new();
    let nodes = stage.nodes(2, 0).await;
    let info = range(&[&nodes[0]]);
    nodes[0]
        .play(move |batch| if is_lookup(batch) { Reply::Ranges(vec![info.clone()]) } else { Reply::Serve });
    let client = stage.client(&[&nodes[0]]);
    client.increment(b"n", 1).await.unwrap();
    nodes[1].play(|_| Reply::Serve);
    // The directory is late: at first it still names the node that has no replica any more.
    let (old, new) = (range(&[&nodes[0]]), range(&[&nodes[1]]));
    let mut asked = 0;
    nodes[0].play(move |batch| {
        if is_lookup(batch) {
            asked += 1;
            return Reply::Ranges(vec![if asked < 3 { old.clone() } else { new.clone() }]);
        }
        Reply::Fail(KvError::range_not_found(RANGE))
    });
    assert_eq!(client.increment(b"n", 1).await.unwrap(), 5);
    assert_eq!((nodes[1].heard().len(), nodes[0].lookups()), (1, 4));
}

#[tokio::test]
async fn a_node_without_the_directory_names_one_that_has_it() {
    let stage = Stage::new();
    let nodes = stage.nodes(2, 1).await;
    let hint = nodes[1].address.clone();
    nodes[0].play(move |_| Reply::Fail(KvError::not_leaseholder(Some(hint.clone()))));
    let client = stage.client(&[&nodes[0]]);
    assert_eq!(client.increment(b"n", 1).await.unwrap(), 5);
    assert_eq!(nodes[0].lookups(), 1);
}

#[tokio::test]
async fn a_tenant_that_a_node_has_not_heard_of_yet_is_asked_for_again() {
    let stage = Stage::new();
    let nodes = stage.nodes(1, 0).await;
    let info = range(&[&nodes[0]]);
    let mut asked = 0;
    nodes[0].play(move |batch| {
        asked += usize::from(is_lookup(batch));
        match is_lookup(batch) {
            true if asked < 3 => Reply::Ranges(Vec::new()),
            true => Reply::Ranges(vec![info.clone()]),
            false => Reply::Serve,
        }
    });
    assert_eq!(stage.client(&[&nodes[0]]).increment(b"n", 1).await.unwrap(), 5);
    assert_eq!(nodes[0].lookups(), 3);
}

#[tokio::test]
async fn requests_about_the_cluster_go_to_who_leads_it() {
    let stage = Stage::new();
    let nodes = stage.nodes(2, 0).await;
    let leads = nodes[1].address.clone();
    nodes[0].play(move |_| Reply::Fail(KvError::not_leaseholder(Some(leads.clone()))));
    let client = stage.client(&[&nodes[0]]);
    nodes[1].play(|_| Reply::Serve);
    assert_eq!(client.nodes().await.unwrap().len(), 1);
    client.create_tenant(TENANT).await.unwrap();
    client.drop_tenant(TENANT).await.unwrap();
    client.drain_node(3, true).await.unwrap();
    assert!(client.ranges(bytes::Bytes::new(), 3).await.unwrap().is_empty());
    assert_eq!((nodes[0].heard().len(), nodes[1].heard().len()), (1, 5));
    assert!(nodes[1].heard().iter().all(|batch| batch.header.range_id == 0));
}

#[tokio::test]
async fn requests_about_a_range_go_to_who_leads_it() {
    let stage = Stage::new();
    let nodes = stage.nodes(2, 1).await;
    let client = stage.client(&[&nodes[0]]);
    client.configure_tenant(TENANT, RangeConfig { replicas: 5, ..RangeConfig::default() }).await.unwrap();
    let mut root = range(&[&nodes[0], &nodes[1]]);
    (root.range_id, root.start, root.end) = (1, "\x02".into(), "\x03".into());
    assert_eq!(client.check_replicas(&root).await.unwrap().len(), 1);
    let heard = nodes[1].heard();
    assert!(matches!(heard[0].requests[0].kind, Some(RequestKind::ConfigureTenant(_))));
    assert!(matches!(heard[1].requests[0].kind, Some(RequestKind::CheckReplicas(_))));
    assert_eq!(heard.iter().map(|batch| batch.header.range_id).collect::<Vec<_>>(), [RANGE, 1]);
    assert_eq!(nodes[0].lookups() + nodes[1].lookups(), 1, "the caller said where the other is");
}

#[tokio::test]
async fn a_transaction_stays_on_its_connection_and_in_its_range() {
    let stage = Stage::new();
    let nodes = stage.nodes(2, 1).await;
    let client = stage.client(&[&nodes[0]]);
    let txn = client.begin(TxnOptions::default());
    txn.get(b"k", LockStrength::Exclusive).await.unwrap();
    txn.put(b"k", "v".into()).unwrap();
    txn.flush().await.unwrap();
    txn.commit().await.unwrap();
    let heard = nodes[1].heard();
    assert_eq!(heard.iter().map(|batch| batch.header.range_id).collect::<Vec<_>>(), [RANGE; 3]);
}
