//! Ranges that are merged: one node in memory, and three that speak to each other.

use crate::nodes::Nodes;
use crate::split::{Counters, at_range, control, get_in, in_range, ranges, spans, split};
use crate::support::*;
use kv_api::batch::*;
use kv_api::{Header, KvError, KvErrorKind, LockStrength};
use kv_server::Limits;
use std::sync::Arc;
use std::time::Duration;
use storage::MemoryEngine;

/// Asks for a merge of a range with the one that follows it.
async fn merge(client: &Client, range: &RangeInfo) -> Result<(), KvError> {
    let merge = MergeRange { start: range.start.clone(), end: range.end.clone() };
    let batch = batch(at_range(range.range_id), vec![RequestKind::MergeRange(merge)]);
    control(client).ask_once(batch).await.map(drop)
}

/// A node with two ranges of the usual tenant, which meet at `m`.
async fn two(engine: &Arc<MemoryEngine>) -> (TestNode, Client, [RangeInfo; 2]) {
    let node = TestNode::on(engine.clone());
    let client = node.client();
    for name in ["a", "g", "m", "t"] {
        client.put(name, name).await;
        client.put(name, &format!("{name} again")).await;
    }
    split(&client, ranges(&client).await[0].range_id, "m").await.expect("split");
    let parts = ranges(&client).await.try_into().expect("two ranges");
    (node, client, parts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_ranges_become_one() {
    let engine = Arc::new(MemoryEngine::new());
    let (node, client, [left, right]) = two(&engine).await;
    in_range(&client, right.range_id, put("t", "last", 1)).await.expect("put");
    merge(&client, &left).await.expect("merged");
    let whole = ranges(&client).await;
    let all = TENANT.span();
    assert_eq!(spans(&whole), [(all.start, all.end)]);
    assert_eq!(whole[0].range_id, left.range_id);
    let expected = [("a", "a again"), ("g", "g again"), ("m", "m again"), ("t", "last")];
    for (name, value) in expected {
        assert_eq!(get_in(&client, left.range_id, name).await.as_deref(), Some(value));
    }
    assert_eq!(
        kind(in_range(&client, right.range_id, get("t")).await),
        KvErrorKind::RangeNotFound,
        "who comes late looks again"
    );
    let again = merge(&client, &left).await.expect_err("it was").kind();
    assert_eq!(again, KvErrorKind::InvalidRequest, "who asks twice merges once");
    assert_eq!(merge(&client, &whole[0]).await.expect_err("the last").kind(), KvErrorKind::InvalidRequest);
    in_range(&client, left.range_id, put("t", "new", 1)).await.expect("put");
    node.settled().await;
    drop((client, node));
    engine.crash();
    let node = TestNode::on(engine.clone());
    let client = node.client();
    assert_eq!(client.get("t").await.as_deref(), Some("new"));
    assert_eq!(client.scan_all().await.len(), 4);
    assert_eq!(ranges(&client).await.len(), 1);
    // And once more, where ranges were merged before.
    split(&client, left.range_id, "m").await.expect("split");
    let parts = ranges(&client).await;
    assert_eq!(parts.len(), 2);
    merge(&client, &parts[0]).await.expect("merged");
    assert_eq!(client.scan_all().await.len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_read_before_a_merge_is_not_written_below_after_it() {
    let engine = Arc::new(MemoryEngine::new());
    let (_node, client, [left, right]) = two(&engine).await;
    // The clock of the right range is ahead.
    let ahead =
        in_range(&client, right.range_id, get("t")).await.expect("get").read_timestamp.expect("where");
    let ahead = kv_api::Timestamp::new(ahead.wall_ns + 2_000_000_000, 0);
    let refresh = RequestKind::Refresh(Refresh { to: Some(ahead) });
    let header = Header { read_timestamp: Some(ahead), ..at_range(right.range_id) };
    client.ask_once(batch(header, vec![refresh])).await.expect("moved");
    merge(&client, &left).await.expect("merged");
    let written = in_range(&client, left.range_id, put("t", "new", 1)).await.expect("put");
    assert!(written.commit_timestamp.expect("when") > ahead);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_transactions_have_keeps_ranges_apart() {
    let engine = Arc::new(MemoryEngine::new());
    let (node, client, [left, right]) = two(&engine).await;
    let begin = |range: &RangeInfo| {
        let mut txn = client.begin();
        txn.header.range_id = range.range_id;
        txn
    };
    let mut locks = begin(&right);
    locks.lock("t", LockStrength::Exclusive).await.expect("locked");
    assert_eq!(merge(&client, &left).await.expect_err("a lock").kind(), KvErrorKind::Unavailable);
    assert_eq!(get_in(&client, right.range_id, "t").await.as_deref(), Some("t again"), "it is served");
    locks.abort().await.expect("aborted");
    let mut writes = begin(&left);
    writes.send(vec![put("a", "flushed", 1)]).await.expect("flushed");
    assert_eq!(merge(&client, &left).await.expect_err("an intent").kind(), KvErrorKind::Unavailable);
    writes.commit(vec![]).await.expect("committed");
    node.settled().await;
    // Its leaseholder finds out that nothing came of it.
    let merged = async {
        while merge(&client, &left).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), merged).await.expect("merged in the end");
    assert_eq!(get_in(&client, left.range_id, "a").await.as_deref(), Some("flushed"));
    assert_eq!(get_in(&client, left.range_id, "t").await.as_deref(), Some("t again"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_merge_ranges_that_are_written_and_lose_nothing() {
    let nodes = Nodes::start(3, Limits::default()).await;
    nodes.control(RequestKind::CreateTenant(CreateTenant { tenant_id: TENANT.0 })).await;
    for at in ["m", "e", "s", "c"] {
        nodes.split(at).await.expect("split");
    }
    nodes
        .wait_for(|ranges| ranges.iter().filter(|range| TENANT.span().contains(&range.start)).count() == 5)
        .await;
    let counters = Counters::start(&nodes);
    while let [first, _, ..] = &nodes.tenant_ranges().await[..] {
        nodes.merge(first).await;
    }
    counters.outlive_nodes(&nodes).await;
    // What was absorbed is gone everywhere.
    while nodes.replicas().await != [3, 3, 3] {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    nodes.end_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_absorbed_may_be_some_mebibytes() {
    let nodes = Nodes::start(3, Limits::default()).await;
    nodes.control(RequestKind::CreateTenant(CreateTenant { tenant_id: TENANT.0 })).await;
    let value = "v".repeat(500_000);
    let names: Vec<String> = (0..12).map(|number| format!("n{number:02}")).collect();
    for name in &names {
        nodes.put(name, &value).await.expect("put");
    }
    nodes.split("m").await.expect("split");
    nodes
        .wait_for(|ranges| ranges.iter().filter(|range| TENANT.span().contains(&range.start)).count() == 2)
        .await;
    nodes.merge(&nodes.tenant_ranges().await[0]).await;
    nodes.end(0).await;
    for name in &names {
        assert_eq!(nodes.get(name).await.as_ref(), Some(&value), "{name}");
    }
    nodes.end_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_holds_more_is_not_absorbed() {
    let engine = Arc::new(MemoryEngine::new());
    let (_node, client, [left, right]) = two(&engine).await;
    let value = "v".repeat(500_000);
    for number in 10..30 {
        let put = put(&format!("n{number}"), &value, 1);
        in_range(&client, right.range_id, put).await.expect("put");
    }
    let refused = merge(&client, &left).await.expect_err("10 MB");
    assert_eq!(refused.kind(), KvErrorKind::Unavailable);
    assert!(refused.message.contains("holds too much"), "{refused}");
    assert_eq!(get_in(&client, right.range_id, "n29").await, Some(value));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_ranges_that_nobody_uses_are_merged() {
    let limits = Limits { merge_after: Duration::from_millis(1), ..Limits::default() };
    let nodes = Nodes::start(1, limits).await;
    nodes.control(RequestKind::CreateTenant(CreateTenant { tenant_id: TENANT.0 })).await;
    for name in ["a", "m", "t"] {
        nodes.put(name, name).await.expect("put");
    }
    for at in ["m", "t"] {
        nodes.split(at).await.expect("split");
    }
    nodes
        .wait_for(|ranges| ranges.iter().filter(|range| TENANT.span().contains(&range.start)).count() == 1)
        .await;
    for name in ["a", "m", "t"] {
        assert_eq!(nodes.get(name).await.as_deref(), Some(name));
    }
    nodes.end_all().await;
}
