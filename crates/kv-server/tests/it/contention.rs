//! What a listing of contention shows, and what happens when too many wait.

use crate::support::*;
use kv_api::batch::*;
use kv_api::contention::{Contention, ListContention, TxnPhase, WaitEnd};
use kv_api::{KvErrorKind, LockStrength, TenantId};
use kv_server::Limits;
use kv_server::authorize::Caller;
use std::sync::Arc;
use storage::MemoryEngine;

async fn list(client: &Client, limit: u64) -> Contention {
    let span = client.caller.tenant().span();
    let request = ListContention { start: span.start, end: span.end, limit };
    let response = client.send(vec![RequestKind::ListContention(request)]).await.expect("a listing");
    *response.responses.into_iter().next().and_then(|response| response.contention).expect("what is known")
}

/// Lists until something shows.
async fn list_until(client: &Client, shows: impl Fn(&Contention) -> bool) -> Contention {
    loop {
        let found = list(client, 0).await;
        if shows(&found) {
            return found;
        }
        tokio::task::yield_now().await;
    }
}

fn id(txn: &Txn) -> bytes::Bytes {
    txn.header.txn.as_ref().expect("a transaction").id.clone()
}

#[tokio::test]
async fn who_waits_for_whom_is_listed_and_remembered() {
    let test = TestNode::start();
    let client = test.client();
    let (mut one, mut two) = (client.begin(), client.begin());
    one.lock("a", LockStrength::Exclusive).await.expect("free");
    one.lock("b", LockStrength::Shared).await.expect("free");
    let (first, second) = (id(&one), id(&two));
    let waiting = tokio::spawn(async move {
        two.lock("a", LockStrength::Exclusive).await.expect("granted");
        two
    });
    let found = list_until(&client, |found| !found.waits.is_empty()).await;
    let locks: Vec<_> = found.locks.iter().map(|lock| (&lock.key, lock.strength(), &lock.txn)).collect();
    let (a, b) = (key("a"), key("b"));
    assert_eq!(locks, [(&a, LockStrength::Exclusive, &first), (&b, LockStrength::Shared, &first)]);
    assert!(found.locks.iter().all(|lock| lock.since_ns > 0 && !lock.intent));
    let wait = &found.waits[0];
    assert_eq!((&wait.key, wait.strength(), &wait.txn), (&a, LockStrength::Exclusive, &second));
    assert_eq!(wait.blockers, std::slice::from_ref(&first));
    let txns: Vec<_> = found.txns.iter().map(|txn| (&txn.txn, txn.phase(), txn.locks)).collect();
    assert_eq!(txns, [(&first, TxnPhase::Pending, 2), (&second, TxnPhase::Pending, 0)]);
    assert!(found.events.is_empty() && !found.truncated);

    one.commit(vec![]).await.expect("commit");
    let mut two = waiting.await.expect("the task");
    let found = list(&client, 0).await;
    assert!(found.waits.is_empty());
    assert_eq!(found.locks.iter().map(|lock| &lock.txn).collect::<Vec<_>>(), [&second]);
    let event = &found.events[0];
    assert_eq!((&event.key, &event.waiter, &event.holder), (&a, &second, &first));
    assert_eq!((event.end(), found.events.len()), (WaitEnd::Granted, 1));
    assert!(event.ended_ns >= wait.since_ns);
    two.abort().await.expect("abort");

    let other = test.client_of(Caller::Tenant(TenantId(TENANT.0 + 1)));
    assert_eq!(list(&other, 0).await, Contention::default(), "other tenants see nothing of it");
    test.settled().await;
}

#[tokio::test]
async fn waits_end_in_many_ways() {
    let test = TestNode::start();
    let client = test.client();
    let mut holder = client.begin();
    holder.lock("a", LockStrength::Exclusive).await.expect("free");
    let mut impatient = client.begin();
    impatient.header.lock_timeout_ms = 1;
    assert_eq!(
        kind(impatient.lock("a", LockStrength::Shared).await),
        KvErrorKind::LockNotAvailable,
        "it gives up"
    );
    let mut other = client.begin();
    other.lock("b", LockStrength::Exclusive).await.expect("free");
    let blocked = client.begin();
    let (blocked_header, waiting) = (blocked.header.clone(), client.clone());
    let waiting = tokio::spawn(async move {
        waiting.ask(batch(blocked_header, vec![locking_get("a", LockStrength::Exclusive)])).await
    });
    list_until(&client, |found| !found.waits.is_empty()).await;
    let mut blocked = blocked;
    blocked.abort().await.expect("abort");
    assert_eq!(kind(waiting.await.expect("the task")), KvErrorKind::Aborted);
    let other_id = id(&other);
    let waiting = tokio::spawn(async move {
        other.lock("a", LockStrength::Exclusive).await.expect("granted in the end");
        other
    });
    list_until(&client, |found| found.waits.iter().any(|wait| wait.txn == other_id)).await;
    assert_eq!(kind(holder.lock("b", LockStrength::Exclusive).await), KvErrorKind::Deadlock);
    holder.abort().await.expect("abort");
    waiting.await.expect("the task").abort().await.expect("abort");
    impatient.abort().await.expect("abort");
    let events = list(&client, 0).await.events;
    let ends: Vec<_> = events.iter().map(|event| event.end()).collect();
    assert_eq!(ends, [WaitEnd::TimedOut, WaitEnd::Cancelled, WaitEnd::Deadlock, WaitEnd::Granted]);
    assert_eq!((&events[2].waiter, &events[2].holder), (&id(&holder), &other_id));
    assert!(events[0].duration_us >= 1000);
    let latest = list(&client, 2).await;
    assert!(latest.truncated);
    assert_eq!(latest.events, events[2..], "the latest are shown");
    test.settled().await;
}

#[tokio::test]
async fn intents_are_locks_whoever_asks_for_them() {
    let test = TestNode::start();
    let client = test.client();
    let mut writer = client.begin();
    writer.send(vec![put("a", "1", 1), put("b", "1", 2)]).await.expect("flush");
    let owner = id(&writer);
    let found = list(&client, 0).await;
    let locks: Vec<_> = found.locks.iter().map(|lock| (&lock.key, &lock.txn, lock.intent)).collect();
    assert_eq!(locks, [(&key("a"), &owner, true), (&key("b"), &owner, true)]);
    assert_eq!((found.txns[0].locks, found.txns[0].intents), (0, 2));
    let waiter = client.clone();
    let waiting = tokio::spawn(async move { waiter.send(vec![put("b", "2", 1)]).await });
    let found = list_until(&client, |found| !found.waits.is_empty()).await;
    assert_eq!((found.locks.len(), found.waits[0].blockers.clone()), (2, vec![owner.clone()]));
    let short = list(&client, 1).await;
    assert!(short.truncated);
    assert_eq!(short.locks[0].key, key("b"), "what is waited for is shown first");

    // A part that is prepared is a holder like any other, and readers that wait for it are shown.
    let now = client.send(vec![get("a")]).await.expect("read").read_timestamp.expect("a timestamp");
    let mut prepared = client.begin();
    let end = EndTxn {
        commit: true,
        prepare: Some(Prepare { anchor: key("c"), timestamp: now, staged: Vec::new() }),
        ..EndTxn::default()
    };
    prepared.send(vec![put("c", "1", 1), RequestKind::EndTxn(end)]).await.expect("prepared");
    let reader = client.clone();
    let reading = tokio::spawn(async move { reader.get("c").await });
    let found = list_until(&client, |found| found.waits.len() == 2).await;
    let wait = &found.waits[1];
    assert_eq!((wait.key.len(), &wait.txn[..], &wait.blockers), (0, &b""[..], &vec![id(&prepared)]));
    let part = found.txns.iter().find(|txn| txn.txn == id(&prepared)).expect("the part");
    assert_eq!(part.phase(), TxnPhase::Prepared);
    prepared.abort().await.expect("abort");
    assert_eq!(reading.await.expect("the task"), None);
    writer.abort().await.expect("abort");
    waiting.await.expect("the task").expect("its turn");
    let events = list(&client, 0).await.events;
    let waited = |event: &&kv_api::contention::ContentionEvent| event.holder == id(&prepared);
    assert_eq!(events.iter().filter(waited).count(), 1);
    test.settled().await;
}

#[tokio::test]
async fn a_listing_is_authorized_like_a_scan_and_stands_alone() {
    let test = TestNode::start();
    let client = test.client();
    client.put("a", "1").await;
    let ask = |start: bytes::Bytes, end: bytes::Bytes| {
        RequestKind::ListContention(ListContention { start, end, limit: 0 })
    };
    let other = TenantId(TENANT.0 + 1).span();
    for (start, end) in [(key(""), other.end.clone()), (other.start, other.end), (key("b"), key("a"))] {
        assert_eq!(kind(client.send(vec![ask(start, end)]).await), KvErrorKind::Unauthorized);
    }
    let span = TENANT.span();
    let list = || ask(span.start.clone(), span.end.clone());
    assert_eq!(kind(client.send(vec![list(), get("a")]).await), KvErrorKind::InvalidRequest);
    let in_txn = batch(client.begin().header, vec![list()]);
    assert_eq!(kind(client.ask(in_txn).await), KvErrorKind::InvalidRequest);
    test.settled().await;
}

#[tokio::test]
async fn who_comes_when_too_many_wait_is_told_so_at_once() {
    for limits in [
        Limits { max_waits_per_lock: 2, ..Limits::default() },
        Limits { max_lock_waits_per_connection: 2, ..Limits::default() },
    ] {
        let test = TestNode::with(Arc::new(MemoryEngine::new()), limits);
        let client = test.client();
        let mut holder = client.begin();
        holder.lock("a", LockStrength::Exclusive).await.expect("free");
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let mut txn = client.begin();
                tokio::spawn(async move {
                    txn.lock("a", LockStrength::Exclusive).await.expect("granted");
                    txn.abort().await.expect("abort");
                })
            })
            .collect();
        list_until(&client, |found| found.waits.len() == 2).await;
        let mut late = client.begin();
        let error = late.lock("a", LockStrength::Exclusive).await.expect_err("refused");
        assert_eq!((error.kind(), error.key), (KvErrorKind::Overloaded, Some(key("a"))));
        assert_eq!(kind(client.send(vec![put("a", "1", 1)]).await), KvErrorKind::Overloaded);
        late.lock("b", LockStrength::Exclusive).await.expect("what is free can be had");
        holder.lock("c", LockStrength::Exclusive).await.expect("who holds the lock can go on");
        late.abort().await.expect("abort");
        holder.commit(vec![put("a", "1", 1)]).await.expect("commit");
        for waiting in waiting {
            waiting.await.expect("the task");
        }
        test.settled().await;
    }
}
