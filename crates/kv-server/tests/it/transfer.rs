//! Transactions that change their coordinator.

use crate::support::*;
use kv_api::batch::*;
use kv_api::{BatchRequest, KvError, KvErrorKind, LockStrength};
use kv_server::Limits;
use std::sync::Arc;
use std::time::Duration;
use storage::MemoryEngine;

fn about(txn: &Txn, hop: u32, request: RequestKind) -> BatchRequest {
    let meta = txn.header.txn.clone().map(|meta| TxnMeta { hop, ..meta });
    batch(Header { txn: meta, ..txn.header.clone() }, vec![request])
}

async fn detach(txn: &Txn, hop: u32) -> Result<(), KvError> {
    let detach = RequestKind::DetachTxn(DetachTxn { key: key("a") });
    txn.client.ask(about(txn, hop, detach)).await.map(drop)
}

async fn adopt(txn: &mut Txn, client: &Client, hop: u32, claim_only: bool) -> Result<(), KvError> {
    let adopt = RequestKind::AdoptTxn(AdoptTxn { key: key("a"), claim_only });
    client.ask(about(txn, hop, adopt)).await?;
    txn.client = client.clone();
    txn.header.txn.iter_mut().for_each(|meta| meta.hop = hop);
    Ok(())
}

#[tokio::test]
async fn a_part_with_locks_and_intents_goes_to_another_connection() {
    let test = TestNode::start();
    let (first, second) = (test.client(), test.client());
    first.put("a", "0").await;
    let mut txn = first.begin();
    txn.lock("a", LockStrength::Exclusive).await.expect("lock");
    txn.send(vec![put("b", "1", 1)]).await.expect("flush");
    detach(&txn, 0).await.expect("detach");
    assert_eq!(kind(txn.get("a").await), KvErrorKind::Aborted);
    assert_eq!(kind(txn.abort().await), KvErrorKind::Aborted, "it is not its own any more");
    assert_eq!(kind(detach(&txn, 0).await), KvErrorKind::Aborted);
    first.close();
    let mut other = second.begin();
    other.header.wait_policy = WaitPolicy::Error as i32;
    let locked = other.lock("a", LockStrength::Exclusive).await;
    assert_eq!(kind(locked), KvErrorKind::LockNotAvailable, "it keeps its locks, whatever connection ends");
    assert_eq!(kind(adopt(&mut txn, &second, 0, false).await), KvErrorKind::Aborted, "a lower number");
    assert_eq!(kind(adopt(&mut txn, &second, 2, false).await), KvErrorKind::Aborted, "a higher number");
    adopt(&mut txn, &second, 1, false).await.expect("adopt");
    let third = test.client();
    let mut thief = Txn { client: third.clone(), header: txn.header.clone(), spans: Vec::new() };
    assert_eq!(kind(adopt(&mut thief, &third, 1, false).await), KvErrorKind::Aborted, "twice");
    assert_eq!(kind(thief.get("a").await), KvErrorKind::Aborted);
    assert_eq!(txn.get("b").await.expect("own intent").as_deref(), Some("1"));
    txn.commit(vec![put("a", "2", 2)]).await.expect("commit");
    assert_eq!(second.scan_all().await, [("a".into(), "2".into()), ("b".into(), "1".into())]);
    assert_eq!(kind(adopt(&mut thief, &third, 1, false).await), KvErrorKind::Aborted, "finished");
    other.abort().await.expect("abort");
    test.settled().await;
}

#[tokio::test]
async fn the_number_counts_on_one_connection_too() {
    let test = TestNode::start();
    let client = test.client();
    let mut txn = client.begin();
    txn.lock("a", LockStrength::Exclusive).await.expect("lock");
    let mut late = Txn { client: client.clone(), header: txn.header.clone(), spans: Vec::new() };
    detach(&txn, 0).await.expect("detach");
    adopt(&mut txn, &client, 1, false).await.expect("adopt");
    assert_eq!(kind(late.get("a").await), KvErrorKind::Aborted);
    assert_eq!(kind(late.abort().await), KvErrorKind::Aborted);
    assert_eq!(kind(late.commit(vec![put("a", "late", 1)]).await), KvErrorKind::Aborted);
    txn.commit(vec![put("a", "1", 1)]).await.expect("commit");
    test.settled().await;
}

#[tokio::test]
async fn a_transaction_that_nobody_knows_has_one_claim() {
    let test = TestNode::start();
    let (first, second) = (test.client(), test.client());
    first.put("a", "0").await;
    let mut txn = first.begin();
    assert_eq!(txn.get("a").await.expect("read").as_deref(), Some("0"));
    detach(&txn, 0).await.expect("detach");
    adopt(&mut txn, &second, 1, true).await.expect("claim");
    assert!(test.node.is_idle(), "nothing is left of a claim");
    assert_eq!(kind(adopt(&mut txn, &second, 1, true).await), KvErrorKind::Aborted);
    txn.commit(vec![put("a", "1", 1)]).await.expect("commit");
    assert_eq!(first.get("a").await.as_deref(), Some("1"));
    test.settled().await;
}

#[tokio::test]
async fn a_part_with_locks_taken_as_a_claim_alone_gives_them_up() {
    let test = TestNode::start();
    let client = test.client();
    let mut txn = client.begin();
    txn.lock("a", LockStrength::Exclusive).await.expect("lock");
    detach(&txn, 0).await.expect("detach");
    adopt(&mut txn, &client, 1, true).await.expect("claim");
    assert!(test.node.is_idle());
}

#[tokio::test]
async fn what_waits_is_bounded_in_number_and_time() {
    let limits = Limits { max_detached_per_tenant: 1, detached_kept: Duration::ZERO, ..Limits::default() };
    let test = TestNode::with(Arc::new(MemoryEngine::new()), limits);
    let (client, other) = (test.client(), test.client());
    client.put("a", "0").await;
    let mut txn = client.begin();
    txn.lock("a", LockStrength::Exclusive).await.expect("lock");
    txn.send(vec![put("b", "1", 1)]).await.expect("flush");
    detach(&txn, 0).await.expect("detach");
    let mut second = client.begin();
    second.lock("c", LockStrength::Exclusive).await.expect("lock");
    assert_eq!(kind(detach(&second, 0).await), KvErrorKind::Overloaded);
    second.commit(vec![put("c", "1", 1)]).await.expect("it stays as it was");
    // Whoever waits for the lock gets it when the time is up.
    let mut waiting = other.begin();
    waiting.lock("a", LockStrength::Exclusive).await.expect("lock");
    waiting.abort().await.expect("abort");
    test.settled().await;
    assert_eq!(client.get("b").await, None);
    assert_eq!(kind(adopt(&mut txn, &other, 1, false).await), KvErrorKind::Aborted, "too late");
    assert_eq!(kind(txn.get("a").await), KvErrorKind::Aborted);
}

#[tokio::test]
async fn who_may_take_it_over_may_abort_it() {
    let test = TestNode::start();
    let (first, second) = (test.client(), test.client());
    let mut txn = first.begin();
    txn.send(vec![put("a", "1", 1)]).await.expect("flush");
    detach(&txn, 0).await.expect("detach");
    let adoptable = |hop| about(&txn, hop, RequestKind::EndTxn(EndTxn::default()));
    assert_eq!(kind(second.ask(adoptable(0)).await), KvErrorKind::Aborted);
    second.ask(adoptable(1)).await.expect("abort");
    test.settled().await;
    assert_eq!(first.get("a").await, None);
}

#[tokio::test]
async fn what_cannot_be_handed_over_is_refused() {
    let test = TestNode::start();
    let client = test.client();
    let mut txn = client.begin();
    txn.send(vec![put("a", "1", 1)]).await.expect("flush");
    let mut two = about(&txn, 0, RequestKind::DetachTxn(DetachTxn { key: key("a") }));
    two.requests.push(get("a").into());
    assert_eq!(kind(client.ask(two).await), KvErrorKind::InvalidRequest);
    let nameless = batch(Header::default(), vec![RequestKind::AdoptTxn(AdoptTxn::default())]);
    assert_eq!(kind(client.ask(nameless).await), KvErrorKind::Unauthorized, "no key of the tenant");
    let foreign = kv_api::TenantId(TENANT.0 + 1).prefixed(b"a");
    let foreign = about(&txn, 0, RequestKind::DetachTxn(DetachTxn { key: foreign }));
    assert_eq!(kind(client.ask(foreign).await), KvErrorKind::Unauthorized);
    txn.header.txn.iter_mut().for_each(|meta| meta.lease = 99);
    assert_eq!(kind(detach(&txn, 0).await), KvErrorKind::Aborted, "another lease");
    assert_eq!(kind(detach(&client.begin(), u32::MAX).await), KvErrorKind::Overloaded);
    client.close();
    test.settled().await;
    assert_eq!(kind(detach(&txn, 0).await), KvErrorKind::Aborted, "the connection is gone");
}
