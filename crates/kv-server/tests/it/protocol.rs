//! What each request means.

use crate::support::*;
use bytes::Bytes;
use kv_api::batch::*;
use kv_api::{KvErrorKind, LockStrength, Span, TenantId, Timestamp};
use kv_server::Limits;
use kv_server::authorize::Caller;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use storage::{Bounds, MemoryEngine, Reader, Space, StorageError};

/// Polls once; `None` if the future waits.
async fn poll_once<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> Option<T> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Checks that a future waits, however often it is given the chance to go on.
async fn assert_waits<T: std::fmt::Debug>(future: &mut Pin<Box<impl Future<Output = T>>>) {
    for _ in 0..50 {
        let outcome = poll_once(future).await;
        assert!(outcome.is_none(), "did not wait: {outcome:?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn batches_of_their_own_write_and_read() {
    let test = TestNode::start();
    let client = test.client();
    assert_eq!(client.get("a").await, None);
    let written =
        client.send(vec![put("a", "1", 1), put("b", "2", 2), put("a", "3", 3)]).await.expect("write");
    let commit = written.commit_timestamp.expect("a timestamp");
    let read = client.send(vec![get("a"), get("b"), get("c")]).await.expect("read");
    assert!(read.read_timestamp >= Some(commit), "what is acknowledged is seen");
    let values: Vec<_> = read.responses.iter().map(|response| response.value.as_deref().map(text)).collect();
    assert_eq!(values, [Some("3".to_owned()), Some("2".to_owned()), None]);
    let mixed =
        client.send(vec![get("a"), put("a", "4", 1), get("a"), delete("b", 2), scan("", "z", 0)]).await;
    let mixed = mixed.expect("mixed");
    assert_eq!(value_of(&mixed).as_deref(), Some("3"));
    assert_eq!(mixed.responses[2].value.as_deref(), Some(&b"4"[..]));
    assert_eq!(rows_of(&mixed.responses[4]), [("a".to_owned(), "4".to_owned())]);
    test.settled().await;
}

#[tokio::test]
async fn snapshots_stay_as_they_were() {
    let test = TestNode::start();
    let client = test.client();
    client.put("a", "1").await;
    let mut txn = client.begin();
    assert_eq!(txn.get("a").await.expect("read").as_deref(), Some("1"));
    client.put("a", "2").await;
    client.put("b", "2").await;
    assert_eq!(txn.get("a").await.expect("read").as_deref(), Some("1"));
    assert_eq!(txn.get("b").await.expect("read"), None);
    let commit = txn.commit(vec![]).await.expect("a transaction that only read commits at its snapshot");
    assert_eq!(Some(commit), txn.header.read_timestamp);
    let future = Header { read_timestamp: Some(Timestamp::MAX), ..Header::default() };
    assert_eq!(kind(client.ask(batch(future, vec![get("a")])).await), KvErrorKind::InvalidRequest);
}

#[tokio::test]
async fn scans_page_in_both_directions() {
    let test = TestNode::start();
    let client = test.client();
    let names: Vec<String> = (0..25).map(|index| format!("k{index:02}")).collect();
    client.send(names.iter().map(|name| put(name, name, 1)).collect()).await.expect("write");
    for reverse in [false, true] {
        let (mut start, mut end) = (key("k"), key("l"));
        let mut found = Vec::new();
        for page in 0.. {
            assert!(page < 10, "does not end");
            let request =
                Scan { start: start.clone(), end: end.clone(), reverse, limit: 4, ..Scan::default() };
            let response = client.send(vec![RequestKind::Scan(request)]).await.expect("scan");
            found.extend(rows_of(&response.responses[0]).into_iter().map(|row| row.0));
            match &response.responses[0].resume {
                Some(resume) => (start, end) = (resume.start.clone(), resume.end.clone()),
                None => break,
            }
        }
        if reverse {
            found.reverse();
        }
        assert_eq!(found, names);
    }
    let small = Header { target_bytes: 30, ..Header::default() };
    let response = client.ask(batch(small, vec![scan("k", "l", 0), scan("k", "l", 0)])).await.expect("scan");
    assert_eq!(response.responses[0].rows.len(), 2, "fifteen bytes each");
    assert_eq!(
        response.responses[0].resume,
        Some(Span::new(Bytes::from([&key("k01")[..], b"\0"].concat()), key("l")))
    );
    assert_eq!((response.responses[1].rows.len(), response.responses[1].resume.is_some()), (0, true));
    let whole = client.send(vec![scan("k", "l", 25)]).await.expect("scan");
    assert_eq!((whole.responses[0].rows.len(), &whole.responses[0].resume), (25, &None));
}

#[tokio::test]
async fn a_commit_fails_if_what_was_read_has_changed() {
    let test = TestNode::start();
    let client = test.client();
    client.put("a", "1").await;
    let mut stale = client.begin();
    stale.get("a").await.expect("read");
    client.put("a", "2").await;
    let error = stale.commit(vec![put("b", "x", 1)]).await.expect_err("changed");
    assert_eq!(error.kind(), KvErrorKind::Retry);
    assert_eq!(error.span, Some(Span::point(key("a"))));
    assert_eq!(client.get("b").await, None, "nothing took effect");

    let mut phantom = client.begin();
    phantom.send(vec![scan("p", "q", 0)]).await.expect("read");
    client.put("pp", "new").await;
    assert_eq!(kind(phantom.commit(vec![put("b", "x", 1)]).await), KvErrorKind::Retry);

    let mut blind = client.begin();
    blind.get("a").await.expect("read");
    client.put("b", "other").await;
    blind.commit(vec![put("b", "x", 1)]).await.expect("a blind write replaces what it never read");
    assert_eq!(client.get("b").await.as_deref(), Some("x"));
}

#[tokio::test]
async fn refresh_moves_the_snapshot_or_says_why_not() {
    let test = TestNode::start();
    let client = test.client();
    client.put("a", "1").await;
    let mut txn = client.begin();
    txn.get("a").await.expect("read");
    let first = txn.header.read_timestamp;
    client.put("b", "2").await;
    txn.send(vec![RequestKind::Refresh(Refresh::default())]).await.expect("refresh");
    assert!(txn.header.read_timestamp > first);
    assert_eq!(txn.get("b").await.expect("read").as_deref(), Some("2"));
    client.put("a", "2").await;
    assert_eq!(kind(txn.send(vec![RequestKind::Refresh(Refresh::default())]).await), KvErrorKind::Retry);
}

#[tokio::test]
async fn conditional_puts_say_what_they_found() {
    let test = TestNode::start();
    let client = test.client();
    client.send(vec![insert("a", "1", 1)]).await.expect("insert");
    let error = client.send(vec![put("b", "x", 1), insert("a", "2", 2)]).await.expect_err("exists");
    assert_eq!(error.kind(), KvErrorKind::ConditionFailed);
    assert_eq!((error.key, error.actual), (Some(key("a")), Some(Bytes::from_static(b"1"))));
    assert_eq!(client.get("b").await, None);
    let replace = |expected: &'static [u8], value: &'static [u8]| {
        let (expected, value) = (Some(Bytes::from_static(expected)), Bytes::from_static(value));
        RequestKind::ConditionalPut(ConditionalPut { key: key("a"), value, expected, sequence: 1 })
    };
    assert_eq!(kind(client.send(vec![replace(b"9", b"2")]).await), KvErrorKind::ConditionFailed);
    client.send(vec![replace(b"1", b"2")]).await.expect("matches");
    client.send(vec![delete("a", 1), insert("a", "3", 2)]).await.expect("sees the batch's own deletion");
    assert_eq!(client.get("a").await.as_deref(), Some("3"));
    let mut txn = client.begin();
    let error = txn.commit(vec![insert("c", "1", 1), insert("c", "2", 2)]).await.expect_err("its own insert");
    assert_eq!(error.actual, Some(Bytes::from_static(b"1")));
}

#[tokio::test]
async fn counters_add_up_and_do_not_overflow() {
    let test = TestNode::start();
    let increment = |by| RequestKind::Increment(Increment { key: key("n"), by });
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let client = test.client();
            tokio::spawn(async move {
                let mut seen = Vec::new();
                for _ in 0..25 {
                    seen.push(client.send(vec![increment(1)]).await.expect("increment").responses[0].counter);
                }
                seen
            })
        })
        .collect();
    let mut seen = Vec::new();
    for task in tasks {
        seen.extend(task.await.expect("task"));
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=200).collect::<Vec<_>>());
    let client = test.client();
    assert_eq!(kind(client.send(vec![increment(i64::MAX)]).await), KvErrorKind::CounterOverflow);
    let sum = client.send(vec![increment(-300), increment(50)]).await.expect("two in a batch");
    assert_eq!(sum.responses.iter().map(|response| response.counter).collect::<Vec<_>>(), [-100, -50]);
    client.put("n", "text").await;
    assert_eq!(kind(client.send(vec![increment(1)]).await), KvErrorKind::InvalidRequest);
}

#[tokio::test]
async fn ranges_are_deleted_and_cleared() {
    let test = TestNode::start();
    let client = test.client();
    client.send(["a", "b", "c", "d", "e"].map(|name| put(name, "v", 1)).to_vec()).await.expect("write");
    let before = client.send(vec![get("a")]).await.expect("read").read_timestamp;
    let range = |from, to, limit| {
        RequestKind::DeleteRange(DeleteRange { start: key(from), end: key(to), limit, sequence: 1 })
    };
    let deleted = client.send(vec![range("b", "e", 2)]).await.expect("delete");
    assert_eq!(deleted.responses[0].deleted, 2);
    let resume = deleted.responses[0].resume.clone().expect("d is left");
    assert!(resume.start > key("c") && resume.start <= key("d") && resume.end == key("e"));
    let old = Header { read_timestamp: before, ..Header::default() };
    let past = client.ask(batch(old.clone(), vec![scan("", "z", 0)])).await.expect("the past");
    assert_eq!(past.responses[0].rows.len(), 5);
    client
        .send(vec![RequestKind::ClearRange(ClearRange { start: key("a"), end: key("e") })])
        .await
        .expect("clear");
    let past = client.ask(batch(old, vec![scan("", "z", 0)])).await.expect("the past");
    assert_eq!(rows_of(&past.responses[0]), [("e".to_owned(), "v".to_owned())]);

    let mut txn = client.begin();
    txn.get("x").await.expect("read");
    client.put("f", "phantom").await;
    assert_eq!(
        kind(txn.commit(vec![range("e", "g", 0)]).await),
        KvErrorKind::Retry,
        "a range deletion is a read"
    );
    assert_eq!(client.scan_all().await.len(), 2);
}

#[tokio::test]
async fn dropping_a_tenant_removes_its_keys_and_no_others() {
    let test = TestNode::start();
    let client = test.client();
    client.put("a", "1").await;
    let neighbour = test.client_of(Caller::Tenant(TenantId(8)));
    let foreign = RequestKind::Put(Put { key: TenantId(8).prefixed(b"a"), value: Bytes::new(), sequence: 1 });
    neighbour.send(vec![foreign]).await.expect("write");
    let drop = || vec![RequestKind::DropTenant(DropTenant { tenant_id: TENANT.0 })];
    assert_eq!(kind(neighbour.send(drop()).await), KvErrorKind::Unauthorized);
    let control = test.client_of(Caller::Control);
    control.send(drop()).await.expect("drop");
    assert_eq!(client.scan_all().await, []);
    let left = RequestKind::Get(Get { key: TenantId(8).prefixed(b"a"), lock: 0 });
    assert!(neighbour.send(vec![left]).await.expect("read").responses[0].value.is_some());
    test.settled().await;
}

#[tokio::test]
async fn exclusive_locks_are_waited_for_in_order() {
    let test = TestNode::start();
    let client = test.client();
    client.put("a", "0").await;
    let (mut one, mut two, mut three) = (client.begin(), client.begin(), client.begin());
    one.lock("a", LockStrength::Exclusive).await.expect("free");
    let mut second = Box::pin(two.lock("a", LockStrength::Exclusive));
    assert_waits(&mut second).await;
    let mut third = Box::pin(three.lock("a", LockStrength::Exclusive));
    assert_waits(&mut third).await;
    one.commit(vec![put("a", "1", 1)]).await.expect("commit");
    assert_eq!(second.await.expect("granted").as_deref(), Some("1"), "sees what it waited for");
    assert_waits(&mut third).await;
    two.commit(vec![put("a", "2", 1)]).await.expect("commit: its snapshot moved with the lock");
    assert_eq!(third.await.expect("granted").as_deref(), Some("2"));
    three.abort().await.expect("abort");
    test.settled().await;
}

#[tokio::test]
async fn writers_without_locks_wait_for_locks() {
    let test = TestNode::start();
    let client = test.client();
    let mut holder = client.begin();
    assert_eq!(holder.lock("a", LockStrength::Shared).await.expect("a missing key is locked too"), None);
    let alone = client.clone();
    let mut lone = Box::pin(alone.send(vec![put("a", "lone", 1)]));
    assert_waits(&mut lone).await;
    let mut other = client.begin();
    let mut committing = Box::pin(other.commit(vec![put("a", "other", 1)]));
    assert_waits(&mut committing).await;
    holder.commit(vec![put("a", "holder", 1)]).await.expect("commit");
    lone.await.expect("its turn");
    committing.await.expect("its turn");
    assert_eq!(client.get("a").await.as_deref(), Some("other"));
    test.settled().await;
}

#[tokio::test]
async fn wait_policies_and_timeouts() {
    let test = TestNode::start();
    let client = test.client();
    client.send(["a", "b", "c"].map(|name| put(name, name, 1)).to_vec()).await.expect("write");
    let mut holder = client.begin();
    holder.lock("b", LockStrength::Exclusive).await.expect("free");
    let locking_scan = |limit| {
        let lock = LockStrength::Exclusive as i32;
        RequestKind::Scan(Scan { start: key("a"), end: key("z"), limit, lock, ..Scan::default() })
    };
    let mut nowait = client.begin();
    nowait.header.wait_policy = WaitPolicy::Error as i32;
    let error = nowait.lock("b", LockStrength::Shared).await.expect_err("held");
    assert_eq!((error.kind(), error.key), (KvErrorKind::LockNotAvailable, Some(key("b"))));
    let mut skip = client.begin();
    skip.header.wait_policy = WaitPolicy::Skip as i32;
    let rows = skip.send(vec![locking_scan(2)]).await.expect("skip");
    let names: Vec<_> = rows_of(&rows.responses[0]).into_iter().map(|row| row.0).collect();
    assert_eq!(names, ["a", "c"], "the limit counts rows returned");
    assert_eq!(skip.lock("b", LockStrength::Exclusive).await.expect("left out"), None);
    skip.abort().await.expect("abort");
    let mut patient = client.begin();
    patient.header.lock_timeout_ms = 1;
    let error = patient.send(vec![locking_scan(0)]).await.expect_err("times out");
    assert_eq!(error.kind(), KvErrorKind::LockNotAvailable);
    patient.abort().await.expect("abort");
    let lone = Header { lock_timeout_ms: 1, ..Header::default() };
    assert_eq!(kind(client.ask(batch(lone, vec![put("b", "x", 1)])).await), KvErrorKind::LockNotAvailable);
    holder.abort().await.expect("abort");
    nowait.abort().await.expect("abort");
    test.settled().await;
}

#[tokio::test]
async fn deadlocks_fail_the_request_that_closes_the_cycle() {
    let test = TestNode::start();
    let client = test.client();
    let (mut one, mut two) = (client.begin(), client.begin());
    one.lock("a", LockStrength::Exclusive).await.expect("free");
    two.lock("b", LockStrength::Exclusive).await.expect("free");
    {
        let mut waiting = Box::pin(one.lock("b", LockStrength::Exclusive));
        assert_waits(&mut waiting).await;
        assert_eq!(kind(two.lock("a", LockStrength::Shared).await), KvErrorKind::Deadlock);
        assert_waits(&mut waiting).await;
        two.abort().await.expect("abort");
        waiting.await.expect("granted");
    }
    one.abort().await.expect("abort");

    // Also between a commit that only writes and a transaction that flushed.
    let (mut one, mut two) = (client.begin(), client.begin());
    one.send(vec![put("a", "1", 1)]).await.expect("flush");
    two.lock("b", LockStrength::Exclusive).await.expect("free");
    {
        let mut waiting = Box::pin(two.commit(vec![put("a", "2", 1)]));
        assert_waits(&mut waiting).await;
        assert_eq!(kind(one.lock("b", LockStrength::Exclusive).await), KvErrorKind::Deadlock);
        one.abort().await.expect("abort");
        waiting.await.expect("commit");
    }
    test.settled().await;
    assert_eq!(client.scan_all().await, [("a".to_owned(), "2".to_owned())]);
}

fn begin_as(client: &Client, priority: Priority) -> Txn {
    let mut txn = client.begin();
    txn.header.txn.iter_mut().for_each(|meta| meta.set_priority(priority));
    txn
}

/// Locks a key, and from then on rests on the lease, as coordinators do.
async fn lock_and_rest(txn: &mut Txn, name: &str) {
    let locked = txn.send(vec![locking_get(name, LockStrength::Exclusive)]).await.expect("free");
    txn.header.txn.iter_mut().for_each(|meta| meta.lease = locked.lease);
}

#[tokio::test]
async fn high_priority_takes_locks_from_low_priority() {
    let test = TestNode::start();
    let client = test.client();
    client.put("a", "1").await;

    // Under READ COMMITTED nothing but locks says what a transaction rests on.
    let mut low = begin_as(&client, Priority::Low);
    lock_and_rest(&mut low, "a").await;
    low.spans.clear();
    let mut normal = client.begin();
    normal.header.wait_policy = WaitPolicy::Error as i32;
    let refused = normal.lock("a", LockStrength::Exclusive).await;
    assert_eq!(kind(refused), KvErrorKind::LockNotAvailable, "not everybody takes them");
    let mut high = begin_as(&client, Priority::High);
    assert_eq!(high.lock("a", LockStrength::Exclusive).await.expect("taken"), Some("1".to_owned()));
    assert_eq!(kind(low.commit(vec![put("b", "1", 1)]).await), KvErrorKind::Aborted);
    low.abort().await.expect("abort");
    high.abort().await.expect("abort");

    // Under SERIALIZABLE what was read is checked: it has not changed, and then it has.
    for (changes, expected) in [(false, None), (true, Some(KvErrorKind::Retry))] {
        let mut low = begin_as(&client, Priority::Low);
        lock_and_rest(&mut low, "a").await;
        let mut high = begin_as(&client, Priority::High);
        lock_and_rest(&mut high, "a").await;
        if changes {
            high.commit(vec![put("a", "2", 1)]).await.expect("commit");
        } else {
            high.abort().await.expect("abort");
        }
        let committed = low.commit(vec![put("b", "1", 1)]).await;
        assert_eq!(committed.err().map(|error| error.kind()), expected);
        low.abort().await.expect("abort");
    }

    // Writes without a lock wait for nobody of low priority either.
    let mut low = begin_as(&client, Priority::Low);
    lock_and_rest(&mut low, "a").await;
    begin_as(&client, Priority::High).commit(vec![put("a", "3", 1)]).await.expect("commit");
    low.abort().await.expect("abort");

    // Intents stay.
    let mut low = begin_as(&client, Priority::Low);
    low.send(vec![put("a", "4", 1)]).await.expect("flush");
    let mut high = begin_as(&client, Priority::High);
    {
        let mut waiting = Box::pin(high.lock("a", LockStrength::Exclusive));
        assert_waits(&mut waiting).await;
        low.commit(vec![]).await.expect("commit");
        assert_eq!(waiting.await.expect("granted"), Some("4".to_owned()));
    }
    high.abort().await.expect("abort");
    normal.abort().await.expect("abort");
    test.settled().await;
}

#[tokio::test]
async fn of_a_cycle_the_lowest_priority_gives_way() {
    let test = TestNode::start();
    let client = test.client();
    let (mut low, mut normal) = (begin_as(&client, Priority::Low), client.begin());
    low.lock("a", LockStrength::Exclusive).await.expect("free");
    normal.lock("b", LockStrength::Exclusive).await.expect("free");
    let mut waiting = Box::pin(low.lock("b", LockStrength::Exclusive));
    assert_waits(&mut waiting).await;
    {
        // It closes the cycle, and goes on all the same.
        let mut closing = Box::pin(normal.lock("a", LockStrength::Exclusive));
        assert_waits(&mut closing).await;
        assert_eq!(kind(waiting.await), KvErrorKind::Deadlock);
        low.abort().await.expect("abort");
        closing.await.expect("granted");
    }
    normal.abort().await.expect("abort");
    test.settled().await;
}

#[tokio::test]
async fn a_locking_read_moves_the_snapshot_unless_that_would_show() {
    let test = TestNode::start();
    let client = test.client();
    client.send(["a", "b"].map(|name| put(name, "1", 1)).to_vec()).await.expect("write");
    let mut moves = client.begin();
    moves.get("b").await.expect("read");
    let mut fixed = client.begin();
    fixed.header.fixed_read_timestamp = true;
    fixed.get("b").await.expect("read");
    let mut stuck = client.begin();
    stuck.get("a").await.expect("read");
    client.put("a", "2").await;
    assert_eq!(kind(fixed.lock("a", LockStrength::Exclusive).await), KvErrorKind::Retry);
    fixed.abort().await.expect("abort");
    let error = stuck.lock("a", LockStrength::Exclusive).await.expect_err("it read the old value");
    assert_eq!((error.kind(), error.span), (KvErrorKind::Retry, Some(Span::point(key("a")))));
    stuck.abort().await.expect("abort");
    let before = moves.header.read_timestamp;
    assert_eq!(moves.lock("a", LockStrength::Exclusive).await.expect("moves").as_deref(), Some("2"));
    assert!(moves.header.read_timestamp > before);
    moves.commit(vec![put("b", "3", 1)]).await.expect("commit");
    test.settled().await;
}

#[tokio::test]
async fn flushed_writes_are_seen_by_their_transaction_alone_until_it_commits() {
    for rows in [10, 3000] {
        let test = TestNode::start();
        let client = test.client();
        client.send(vec![put("r00000", "old", 1), put("keep", "old", 1)]).await.expect("write");
        let mut txn = client.begin();
        assert_eq!(txn.get("keep").await.expect("read").as_deref(), Some("old"));
        let names: Vec<_> = (0..rows).map(|row| format!("r{row:05}")).collect();
        for chunk in names.chunks(700) {
            txn.send(chunk.iter().map(|name| put(name, "new", 1)).collect()).await.expect("flush");
        }
        txn.send(vec![put("r00001", "undone", 5), delete("r00002", 6)]).await.expect("flush");
        if let Some(meta) = &mut txn.header.txn {
            meta.ignored = vec![IgnoredSequences { from: 5, to: 7 }];
        }
        let own = txn.send(vec![scan("r", "s", 0)]).await.expect("own");
        assert_eq!(own.responses[0].rows.len(), rows);
        assert!(own.responses[0].rows.iter().all(|row| &row.value[..] == b"new"));
        assert_eq!(client.scan_all().await.len(), 2);
        assert_eq!(client.get("r00000").await.as_deref(), Some("old"));
        let insert_same = Header { lock_timeout_ms: 1, ..Header::default() };
        let blocked = client.ask(batch(insert_same, vec![insert("r00003", "x", 1)])).await;
        assert_eq!(kind(blocked), KvErrorKind::LockNotAvailable, "writers wait for the intent");

        let mut reader = client.begin();
        assert_eq!(reader.get("r00000").await.expect("read").as_deref(), Some("old"));
        let commit = txn.commit(vec![put("r00000", "last", 8), put("more", "new", 9)]).await.expect("commit");
        let after = client.send(vec![scan("", "\x7f", 0)]).await.expect("scan");
        assert!(after.read_timestamp >= Some(commit));
        let after = rows_of(&after.responses[0]);
        assert_eq!(after.len(), rows + 2);
        assert!(after.iter().all(|(name, value)| match name.as_str() {
            "keep" => value == "old",
            "r00000" => value == "last",
            _ => value == "new",
        }));
        assert_eq!(reader.get("r00003").await.expect("read"), None, "the snapshot stays");
        let error = client.send(vec![insert("r00003", "x", 1)]).await.expect_err("exists now");
        assert_eq!(error.actual, Some(Bytes::from_static(b"new")));
        client.put("r00004", "newer").await;
        test.settled().await;
        assert_eq!(client.get("r00004").await.as_deref(), Some("newer"));
        assert_eq!(client.scan_all().await.len(), rows + 2);
        assert_eq!(reader.get("r00000").await.expect("read").as_deref(), Some("old"));
        assert_eq!(kind(reader.commit(vec![put("z", "z", 1)]).await), KvErrorKind::Retry);
    }
}

#[tokio::test]
async fn aborted_writes_leave_nothing() {
    let test = TestNode::start();
    let client = test.client();
    client.put("a", "old").await;
    let mut txn = client.begin();
    txn.send((0..5000).map(|row| put(&format!("r{row}"), "x", 1)).collect()).await.expect("flush");
    txn.send(vec![put("a", "x", 2)]).await.expect("flush");
    txn.abort().await.expect("abort");
    txn.abort().await.expect("twice is once");
    client.send(vec![insert("r7", "mine", 1)]).await.expect("does not wait for the cleaning");
    assert_eq!(kind(txn.get("a").await), KvErrorKind::Aborted);
    assert_eq!(kind(txn.send(vec![put("b", "late", 3)]).await), KvErrorKind::Aborted);
    assert_eq!(kind(txn.commit(vec![]).await), KvErrorKind::Aborted);
    test.settled().await;
    let expected = [("a".to_owned(), "old".to_owned()), ("r7".to_owned(), "mine".to_owned())];
    assert_eq!(client.scan_all().await, expected);
}

#[tokio::test]
async fn transactions_end_with_their_connection() {
    let test = TestNode::start();
    let (client, other) = (test.client(), test.client());
    let mut locks = client.begin();
    locks.lock("a", LockStrength::Exclusive).await.expect("free");
    let mut flushes = client.begin();
    flushes.send(vec![put("b", "x", 1)]).await.expect("flush");
    {
        let mut stranger = Txn { client: other.clone(), header: flushes.header.clone(), spans: vec![] };
        assert_eq!(
            kind(stranger.commit(vec![]).await),
            KvErrorKind::Aborted,
            "another connection's transaction"
        );
    }
    let mut waiting = Box::pin(other.send(vec![put("a", "1", 1), put("b", "1", 1)]));
    assert_waits(&mut waiting).await;
    client.close();
    waiting.await.expect("both free");
    assert_eq!(kind(flushes.commit(vec![]).await), KvErrorKind::Aborted);
    test.settled().await;
    assert_eq!(other.scan_all().await.len(), 2);
}

#[tokio::test]
async fn waiting_requests_of_a_transaction_that_ends_are_aborted() {
    let test = TestNode::start();
    let client = test.client();
    let (mut one, mut two) = (client.begin(), client.begin());
    one.lock("a", LockStrength::Exclusive).await.expect("free");
    let mut second = Txn { client: client.clone(), header: two.header.clone(), spans: vec![] };
    {
        let mut waiting = Box::pin(two.lock("a", LockStrength::Exclusive));
        assert_waits(&mut waiting).await;
        second.abort().await.expect("abort");
        assert_eq!(kind(waiting.await), KvErrorKind::Aborted);
    }
    one.abort().await.expect("abort");
    test.settled().await;
}

#[tokio::test]
async fn a_full_disk_is_said_and_passes() {
    let limits = Limits { disk_full_patience: Duration::from_millis(20), ..Limits::default() };
    let test = TestNode::with(Arc::new(MemoryEngine::new()), limits);
    let client = test.client();
    client.put("a", "1").await;
    let mut txn = client.begin();
    txn.lock("a", LockStrength::Exclusive).await.expect("free");
    test.engine.fail_writes(Some(StorageError::DiskFull("test".into())));
    // The first is in the log by then, and is applied when it can be; the next are refused at once.
    assert_eq!(kind(client.send(vec![put("b", "x", 1)]).await), KvErrorKind::Ambiguous);
    assert_eq!(kind(txn.commit(vec![put("a", "2", 1)]).await), KvErrorKind::DiskFull);
    assert_eq!(client.get("a").await.as_deref(), Some("1"), "reads go on");
    test.engine.fail_writes(None);
    while client.get("b").await.is_none() {
        tokio::task::yield_now().await;
    }
    txn.commit(vec![put("a", "2", 1)]).await.expect("the transaction is still open");
    let rows = [("a", "2"), ("b", "x")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(client.scan_all().await, rows);
    test.engine.fail_writes(Some(StorageError::Io("test".into())));
    assert_eq!(kind(client.send(vec![put("b", "y", 1)]).await), KvErrorKind::Ambiguous);
    test.settled().await;
}

#[tokio::test]
async fn history_is_kept_for_a_time_and_older_snapshots_are_refused() {
    let limits = Limits { history_kept: Duration::ZERO, ..Limits::default() };
    let test = TestNode::with(Arc::new(MemoryEngine::new()), limits);
    let client = test.client();
    client.send(vec![put("a", "1", 1), put("b", "1", 2)]).await.expect("write");
    let mut old = client.begin();
    old.get("a").await.expect("read");
    client.send(vec![put("a", "2", 1), delete("b", 2)]).await.expect("write");
    assert_eq!(old.get("b").await.expect("still kept").as_deref(), Some("1"));
    let mut holds = client.begin();
    holds.header.read_timestamp = old.header.read_timestamp;
    holds.lock("z", LockStrength::Shared).await.expect("free");
    test.node.forget_history(&[]);
    assert_eq!(old.get("a").await.expect("kept for another").as_deref(), Some("1"));
    holds.abort().await.expect("abort");
    // The clock of a range begins above what any earlier lease may have served; the wall clock follows.
    let refused = loop {
        test.node.forget_history(&[]);
        match old.get("a").await {
            Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), KvErrorKind::Retry);
    // The first call refuses the snapshot, the second drops what it saw.
    test.node.forget_history(&[]);
    let mut fresh = client.begin();
    assert_eq!(fresh.get("a").await.expect("read").as_deref(), Some("2"));
    assert_eq!(fresh.get("b").await.expect("read"), None);
    let empty = |space| {
        let mut cursor = test.engine.cursor(space, Bounds::all());
        cursor.seek_to_first();
        cursor.item().is_none()
    };
    assert!(empty(Space::History));
    client.put("b", "3").await;
    assert_eq!(fresh.get("b").await.expect("its snapshot is the latest kept"), None);
}

#[tokio::test]
async fn bounds_on_locks_cost_waiting_not_correctness_and_transactions_are_bounded() {
    let limits = Limits { max_locks_per_txn: 2, max_txns_per_connection: 3, ..Limits::default() };
    let test = TestNode::with(Arc::new(MemoryEngine::new()), limits);
    let client = test.client();
    let (mut one, mut two) = (client.begin(), client.begin());
    for name in ["a", "b", "c"] {
        one.lock(name, LockStrength::Exclusive).await.expect("free");
    }
    two.lock("c", LockStrength::Exclusive).await.expect("the third lock was not kept");
    two.commit(vec![put("c", "two", 1)]).await.expect("commit");
    assert_eq!(kind(one.commit(vec![put("c", "one", 1)]).await), KvErrorKind::Retry, "found at the commit");
    // One that rests on its locks alone is told that it does not have them all.
    let mut resting = client.begin();
    for name in ["p", "q", "r"] {
        lock_and_rest(&mut resting, name).await;
    }
    resting.spans.clear();
    assert_eq!(kind(resting.commit(vec![put("r", "one", 1)]).await), KvErrorKind::Aborted);
    resting.abort().await.expect("abort");
    let (mut three, mut four, mut five) = (client.begin(), client.begin(), client.begin());
    three.lock("x", LockStrength::Shared).await.expect("second open transaction");
    four.send(vec![put("y", "1", 1)]).await.expect("third");
    assert_eq!(kind(five.lock("z", LockStrength::Shared).await), KvErrorKind::Overloaded);
    assert_eq!(kind(five.send(vec![put("z", "1", 1)]).await), KvErrorKind::Overloaded);
    five.commit(vec![put("z", "1", 1)]).await.expect("a commit keeps nothing");
    three.abort().await.expect("abort");
    let mut six = client.begin();
    six.lock("z", LockStrength::Shared).await.expect("room again");
}

#[tokio::test]
async fn so_many_transactions_may_have_intents_at_once() {
    let limits = Limits { max_intent_txns_per_tenant: 1, ..Limits::default() };
    let test = TestNode::with(Arc::new(MemoryEngine::new()), limits);
    let client = test.client();
    let (mut one, mut two) = (client.begin(), client.begin());
    one.send(vec![put("a", "1", 1)]).await.expect("flush");
    one.send(vec![put("b", "1", 2)]).await.expect("it has some already");
    assert_eq!(kind(two.send(vec![put("c", "1", 1)]).await), KvErrorKind::Overloaded);
    one.commit(vec![]).await.expect("commit");
    test.settled().await;
    two.send(vec![put("c", "1", 1)]).await.expect("room again");
    two.abort().await.expect("abort");
    test.settled().await;
}
