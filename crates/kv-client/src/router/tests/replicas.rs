//! Reads that any replica may answer.

use super::stage::{Played, Reply, Stage, is_lookup, range};
use crate::{Config, KvClient, ScanOptions, Txn, TxnOptions};
use kv_api::{KvError, KvErrorKind, LockStrength, Span};

/// Three replicas that serve such reads; the last one leads.
async fn replicas(stage: &Stage) -> Vec<Played> {
    let nodes = stage.nodes(3, 2).await;
    let leads = nodes[2].address.clone();
    for node in &nodes[..2] {
        let (info, leads) = (range(&[&nodes[0], &nodes[1], &nodes[2]]), leads.clone());
        node.play(move |batch| match batch.header.any_replica {
            _ if is_lookup(batch) => Reply::Ranges(vec![info.clone()]),
            true => Reply::Serve,
            false => Reply::Fail(KvError::not_leaseholder(Some(leads.clone()))),
        });
    }
    nodes
}

fn reader(client: &KvClient) -> Txn {
    client.begin(TxnOptions { read_only: true, follower_reads: true, ..TxnOptions::default() })
}

/// Nine reads and a scan of a transaction; whether all nodes had their share of them. A node that was slow to answer
/// something, as on a busy machine, is taken for one that is far away and has none; one that did not answer in time is
/// asked in vain.
async fn are_shared_out() -> bool {
    let stage = Stage::new();
    let nodes = replicas(&stage).await;
    let client = stage.client(&[&nodes[0]]);
    let txn = reader(&client);
    for _ in 0..9 {
        txn.get(b"k", LockStrength::None).await.unwrap();
    }
    txn.scan(&Span::default(), ScanOptions::default()).await.unwrap();
    txn.commit().await.unwrap();
    let heard: Vec<_> = nodes.iter().flat_map(Played::heard).collect();
    if heard.len() > 10 || nodes.iter().any(|node| node.heard().len() < 3) {
        return false;
    }
    assert!(heard.iter().all(|batch| batch.header.any_replica && batch.header.txn.is_none()));
    assert_eq!(heard.iter().filter(|batch| batch.header.read_timestamp.is_none()).count(), 1);
    true
}

#[tokio::test]
async fn reads_are_shared_out_and_come_from_one_snapshot() {
    for _ in 0..20 {
        if are_shared_out().await {
            return;
        }
    }
    panic!("not shared out in any of twenty attempts");
}

#[tokio::test]
async fn the_replica_near_by_is_preferred() {
    let stage = Stage::new();
    let nodes = replicas(&stage).await;
    let config = Config { near: nodes[1].address.clone(), ..stage.config(&[&nodes[0]]) };
    let client = KvClient::connect(config);
    for _ in 0..5 {
        reader(&client).get(b"k", LockStrength::None).await.unwrap();
    }
    assert_eq!(nodes.iter().map(|node| node.heard().len()).collect::<Vec<_>>(), [0, 5, 0]);
}

#[tokio::test]
async fn the_leaseholder_answers_what_a_replica_does_not() {
    let stage = Stage::new();
    let nodes = replicas(&stage).await;
    let leads = nodes[2].address.clone();
    let answers = [
        KvError::not_leaseholder(Some(leads)),
        KvError::not_leaseholder(None),
        KvError::range_not_found(70),
        KvError::new(KvErrorKind::Unavailable, "the leaseholder promises nothing"),
    ];
    let near = nodes[1].address.clone();
    let lookups = || nodes.iter().map(|node| node.lookups()).sum::<usize>();
    for answer in answers {
        let (before, gone) = (lookups(), answer.kind() == KvErrorKind::RangeNotFound);
        let client =
            KvClient::connect(Config { near: near.clone(), ..stage.config(&[&nodes[2], &nodes[0]]) });
        nodes[1].play(move |_| Reply::Fail(answer.clone()));
        for _ in 0..2 {
            assert_eq!(reader(&client).get(b"k", LockStrength::None).await.unwrap(), None);
        }
        // Once to begin with, and where the replica has gone once more, to find where.
        assert_eq!(lookups() - before, if gone { 2 } else { 1 });
    }
    nodes[1].play(|_| Reply::Close);
    let client = KvClient::connect(Config { near, ..stage.config(&[&nodes[0], &nodes[2]]) });
    assert_eq!(reader(&client).get(b"k", LockStrength::None).await.unwrap(), None);
}

#[tokio::test]
async fn what_is_not_read_only_goes_to_the_leaseholder() {
    let stage = Stage::new();
    let nodes = replicas(&stage).await;
    let client = stage.client(&[&nodes[0]]);
    let txn = client.begin(TxnOptions { follower_reads: true, ..TxnOptions::default() });
    for _ in 0..3 {
        txn.get(b"k", LockStrength::None).await.unwrap();
    }
    assert_eq!(nodes[2].heard().len(), 3);
    assert!(nodes[2].heard().iter().all(|batch| !batch.header.any_replica && batch.header.txn.is_some()));
}
