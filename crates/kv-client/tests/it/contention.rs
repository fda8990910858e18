//! Transactions that meet.

use crate::support::{Cluster, bytes};
use kv_api::{KvErrorKind, KvResult, LockStrength, Span, TenantId};
use kv_client::{
    CommitDeadline, CommitDeadlines, Isolation, KvClient, ReadOptions, ScanOptions, TxnOptions, WaitPolicy,
    is_retryable,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn amount(bytes: &[u8]) -> i64 {
    i64::from_be_bytes(bytes.try_into().unwrap())
}

fn account(number: usize) -> Vec<u8> {
    format!("account/{number}").into_bytes()
}

async fn transfer(client: &KvClient, step: usize, options: TxnOptions, lock: LockStrength) -> KvResult<()> {
    let (from, to) = (account(step % 5), account((step / 5 + step + 1) % 5));
    if from == to {
        return Ok(());
    }
    let txn = client.begin(options);
    txn.begin_statement();
    let old = amount(&txn.get(&from, lock).await?.unwrap());
    txn.put(&from, bytes::Bytes::copy_from_slice(&(old - 1).to_be_bytes()))?;
    if step.is_multiple_of(7) {
        txn.flush().await?;
    }
    txn.begin_statement();
    let old = amount(&txn.get(&to, lock).await?.unwrap());
    txn.put(&to, bytes::Bytes::copy_from_slice(&(old + 1).to_be_bytes()))?;
    txn.commit().await.map(|_| ())
}

async fn bank(options: TxnOptions, lock: LockStrength) {
    let cluster = Cluster::start().await;
    let client = cluster.client(2).await;
    client
        .run(|txn| async move {
            (0..5).try_for_each(|number| {
                txn.put(&account(number), bytes::Bytes::copy_from_slice(&100i64.to_be_bytes()))
            })
        })
        .await
        .unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let auditor = tokio::spawn({
        let (client, done) = (client.clone(), done.clone());
        async move {
            let mut audits = 0;
            while !done.load(Ordering::Relaxed) || audits == 0 {
                let txn = client.begin(TxnOptions::default());
                let span = Span::new(bytes("account/"), bytes("account0"));
                let page = txn.scan(&span, ScanOptions { limit: 2, ..ScanOptions::default() }).await.unwrap();
                let rest = txn.scan(&page.resume.unwrap(), ScanOptions::default()).await.unwrap();
                let sum: i64 = page.rows.iter().chain(&rest.rows).map(|(_, value)| amount(value)).sum();
                assert_eq!(sum, 500);
                audits += 1;
            }
        }
    });
    let mut workers = Vec::new();
    for worker in 0..4 {
        let client = client.clone();
        workers.push(tokio::spawn(async move {
            for step in 0..60 {
                while let Err(error) = transfer(&client, worker * 31 + step, options, lock).await {
                    assert!(is_retryable(&error), "{error}");
                }
            }
        }));
    }
    for worker in workers {
        worker.await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    auditor.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn money_is_neither_made_nor_lost_with_locks() {
    bank(TxnOptions::default(), LockStrength::Exclusive).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn money_is_neither_made_nor_lost_without_locks() {
    bank(TxnOptions::default(), LockStrength::None).await;
}

#[tokio::test]
async fn money_is_neither_made_nor_lost_under_read_committed_with_locks() {
    let options = TxnOptions { isolation: Isolation::ReadCommitted, ..TxnOptions::default() };
    bank(options, LockStrength::Exclusive).await;
}

#[tokio::test]
async fn of_two_transactions_that_skew_one_must_start_over() {
    let cluster = Cluster::start().await;
    let client = cluster.client(2).await;
    let (one, two) = (client.begin(TxnOptions::default()), client.begin(TxnOptions::default()));
    for txn in [&one, &two] {
        txn.get_many(&[bytes("a"), bytes("b")], LockStrength::None).await.unwrap();
    }
    one.put(b"a", bytes("1")).unwrap();
    two.put(b"b", bytes("1")).unwrap();
    one.commit().await.unwrap();
    let error = two.commit().await.unwrap_err();
    assert_eq!((error.kind(), error.key), (KvErrorKind::Retry, Some(bytes("a"))));
}

#[tokio::test]
async fn locks_queue_time_out_and_deadlock() {
    let cluster = Cluster::start().await;
    let client = cluster.client(2).await;
    let begin = || Arc::new(client.begin(TxnOptions::default()));
    let (one, two) = (begin(), begin());
    one.get(b"a", LockStrength::Exclusive).await.unwrap();
    two.get(b"b", LockStrength::Exclusive).await.unwrap();
    let impatient = client.begin(TxnOptions { lock_timeout_ms: 5, ..TxnOptions::default() });
    let error = impatient.get(b"a", LockStrength::Shared).await.unwrap_err();
    assert_eq!((error.kind(), error.key), (KvErrorKind::LockNotAvailable, Some(bytes("a"))));
    impatient.put(b"a", bytes("1")).unwrap();
    assert_eq!(impatient.commit().await.unwrap_err().kind(), KvErrorKind::LockNotAvailable);
    let nowait = ReadOptions { lock: LockStrength::Exclusive, wait: WaitPolicy::Error, before: None };
    assert_eq!(begin().get(b"a", nowait).await.unwrap_err().kind(), KvErrorKind::LockNotAvailable);
    let skip = ReadOptions { lock: LockStrength::Exclusive, wait: WaitPolicy::Skip, before: None };
    assert_eq!(begin().get(b"a", skip).await.unwrap(), None);
    // One waits for two; when two asks for what one has, the circle closes.
    let waiting = tokio::spawn({
        let one = one.clone();
        async move { one.get(b"b", LockStrength::Exclusive).await }
    });
    let closing = two.get(b"a", LockStrength::Exclusive);
    let (waited, closed) = tokio::join!(
        async {
            let result = waiting.await.unwrap();
            one.rollback().await;
            result
        },
        async {
            let result = closing.await;
            two.rollback().await;
            result
        }
    );
    let kinds = [waited.err(), closed.err()].map(|error| error.map(|error| error.kind()));
    assert_eq!(kinds.iter().filter(|kind| **kind == Some(KvErrorKind::Deadlock)).count(), 1, "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| kind.is_none()).count(), 1, "{kinds:?}");
}

#[tokio::test]
async fn a_wait_given_up_leaves_the_lock_to_others() {
    let cluster = Cluster::start().await;
    let client = cluster.client(2).await;
    let holder = client.begin(TxnOptions::default());
    holder.get(b"a", LockStrength::Exclusive).await.unwrap();
    let canceled = client.begin(TxnOptions::default());
    tokio::select! {
        biased;
        _ = canceled.get(b"a", LockStrength::Exclusive) => panic!("it is locked"),
        // The request is on its way when an answer to a later one has come.
        _ = client.increment(b"n", 1) => {}
    }
    canceled.rollback().await;
    holder.put(b"a", bytes("1")).unwrap();
    holder.commit().await.unwrap();
    let next = client.begin(TxnOptions::default());
    assert_eq!(next.get(b"a", LockStrength::Exclusive).await.unwrap(), Some(bytes("1")));
}

#[tokio::test]
async fn a_failed_commit_releases_what_it_came_to_hold() {
    let cluster = Cluster::start().await;
    let client = cluster.client(2).await;
    let holder = client.begin(TxnOptions::default());
    holder.get(b"a", LockStrength::Exclusive).await.unwrap();
    holder.put(b"a", bytes("1")).unwrap();
    let inserter = client.begin(TxnOptions::default());
    inserter.put_if_absent(b"a", bytes("2")).unwrap();
    let (inserted, held) = tokio::join!(inserter.commit(), async {
        client.increment(b"n", 1).await.unwrap();
        holder.commit().await
    });
    held.unwrap();
    assert_eq!(inserted.unwrap_err().kind(), KvErrorKind::ConditionFailed);
    let next = client.begin(TxnOptions { lock_timeout_ms: 5000, ..TxnOptions::default() });
    assert_eq!(next.get(b"a", LockStrength::Exclusive).await.unwrap(), Some(bytes("1")));
}

#[tokio::test]
async fn a_listing_covers_all_ranges_and_waits_for_nothing() {
    let cluster = Cluster::start().await;
    let client = cluster.client(2).await;
    let rows = ["a", "x"].map(|name| (bytes(name), Some(bytes("0"))));
    client.write(&rows).await.unwrap();
    cluster.control().split_range(&TenantId(2).prefixed(b"m")).await.unwrap();
    let holder = client.begin(TxnOptions::default());
    for name in ["a", "x"] {
        holder.get(name.as_bytes(), LockStrength::Exclusive).await.unwrap();
    }
    let waiter = Arc::new(client.begin(TxnOptions::default()));
    let waiting = tokio::spawn({
        let waiter = waiter.clone();
        async move { waiter.get(b"x", LockStrength::Shared).await.map(drop) }
    });
    let all = Span::new(bytes(""), bytes(""));
    let found = loop {
        let found = client.contention(&all, 0).await.unwrap();
        if !found.waits.is_empty() {
            break found;
        }
        tokio::task::yield_now().await;
    };
    let (holds, waits) = (holder.name().id(), waiter.name().id());
    let locks: Vec<_> = found.locks.iter().map(|lock| (&lock.key[..], &lock.txn)).collect();
    assert_eq!(locks, [(&b"a"[..], &holds), (b"x", &holds)]);
    assert_eq!((&found.waits[0].key[..], &found.waits[0].txn), (&b"x"[..], &waits));
    assert_eq!(found.waits[0].blockers, std::slice::from_ref(&holds));
    let parts = found.txns.iter().filter(|part| part.txn == holds).count();
    assert_eq!((parts, found.truncated), (2, false), "a part in each range");
    let right = client.contention(&Span::new(bytes("m"), bytes("")), 0).await.unwrap();
    assert_eq!(right.locks.iter().map(|lock| &lock.key[..]).collect::<Vec<_>>(), [b"x"]);
    let one = client.contention(&all, 1).await.unwrap();
    assert_eq!((one.locks.len(), one.truncated), (1, true));
    holder.commit().await.unwrap();
    waiting.await.unwrap().unwrap();
    waiter.rollback().await;
    let events = client.contention(&all, 0).await.unwrap().events;
    assert_eq!((events.len(), &events[0].waiter, &events[0].holder), (1, &waits, &holds));
}

/// More transactions wait for one key than a client sends other requests at a time; the one they wait for goes on.
#[tokio::test]
async fn very_many_wait_for_one_key_and_all_get_it() {
    let cluster = Cluster::start().await;
    let client = cluster.client(2).await;
    let holder = client.begin(TxnOptions::default());
    holder.get(b"k", LockStrength::Exclusive).await.unwrap();
    let many = 1_500;
    let waiting: Vec<_> = (0..many)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let txn = client.begin(TxnOptions::default());
                txn.get(b"k", LockStrength::Exclusive).await?;
                txn.commit().await.map(drop)
            })
        })
        .collect();
    let all = Span::new(bytes(""), bytes(""));
    while client.contention(&all, 0).await.unwrap().waits.len() < many {
        tokio::task::yield_now().await;
    }
    holder.get(b"another", LockStrength::Exclusive).await.unwrap();
    holder.commit().await.unwrap();
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
    assert_eq!(client.contention(&all, 0).await.unwrap().events.len(), 1_000, "the last ones");
}

#[tokio::test]
async fn a_range_commits_nothing_after_its_deadline() {
    let cluster = Cluster::start().await;
    let client = cluster.client(2).await;
    let txn = client.begin(TxnOptions::default());
    txn.put(b"a", bytes("1")).unwrap();
    let now = txn.settle_snapshot().await.unwrap();
    let deadlines = Arc::new(CommitDeadlines::default());
    deadlines.replace(CommitDeadline::at(now.wall_ns));
    let fenced = client.with_deadlines(deadlines).begin(TxnOptions::default());
    fenced.put(b"a", bytes("2")).unwrap();
    // The clock of the range goes past the deadline.
    txn.commit().await.unwrap();
    assert_eq!(fenced.commit().await.unwrap_err().kind(), KvErrorKind::Retry);
    let reader = client.begin(TxnOptions::default());
    assert_eq!(reader.get(b"a", LockStrength::Exclusive).await.unwrap(), Some(bytes("1")));
}
