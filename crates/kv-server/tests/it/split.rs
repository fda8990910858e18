//! Ranges that are split: one node in memory, and three that speak to each other.

use crate::support::*;
use bytes::Bytes;
use kv_api::batch::*;
use kv_api::{Header, KvError, KvErrorKind};
use kv_server::authorize::Caller;

fn control(client: &Client) -> Client {
    Client { caller: Caller::Control, ..client.clone() }
}

fn at_range(range_id: u64) -> Header {
    Header { range_id, ..Header::default() }
}

/// Asks for a split at a key of the usual tenant.
async fn split(client: &Client, range_id: u64, name: &str) -> Result<(), KvError> {
    let split = RequestKind::SplitRange(SplitRange { key: key(name) });
    control(client).ask_once(batch(at_range(range_id), vec![split])).await.map(drop)
}

/// The usual tenant's ranges as the directory has them.
async fn ranges(client: &Client) -> Vec<RangeInfo> {
    let listed = RequestKind::Ranges(RangesRequest::default());
    let answer = control(client).ask_once(batch(Header::default(), vec![listed])).await.expect("a list");
    let span = TENANT.span();
    answer.responses[0].ranges.iter().filter(|range| span.contains(&range.start)).cloned().collect()
}

fn spans(ranges: &[RangeInfo]) -> Vec<(Bytes, Bytes)> {
    ranges.iter().map(|range| (range.start.clone(), range.end.clone())).collect()
}

async fn in_range(client: &Client, range_id: u64, request: RequestKind) -> Result<BatchResponse, KvError> {
    client.ask_once(batch(at_range(range_id), vec![request])).await
}

use kv_api::BatchResponse;

async fn get_in(client: &Client, range_id: u64, name: &str) -> Option<String> {
    value_of(&in_range(client, range_id, get(name)).await.expect("get"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_parts_of_a_range_serve_their_keys_and_no_others() {
    let node = TestNode::start();
    let client = node.client();
    for name in ["a", "g", "m", "t"] {
        client.put(name, name).await;
    }
    let whole = ranges(&client).await;
    let left = whole[0].range_id;
    split(&client, left, "m").await.expect("split");
    let parts = ranges(&client).await;
    let (all, at) = (TENANT.span(), key("m"));
    assert_eq!(spans(&parts), [(all.start, at.clone()), (at, all.end)]);
    assert_eq!(parts[0].range_id, left);
    let right = parts[1].range_id;
    for (range, names) in [(left, ["a", "g"]), (right, ["m", "t"])] {
        for name in names {
            assert_eq!(get_in(&client, range, name).await.as_deref(), Some(name));
            in_range(&client, range, put(name, "new", 1)).await.expect("put");
            assert_eq!(get_in(&client, range, name).await.as_deref(), Some("new"));
        }
    }
    for (range, name) in [(left, "m"), (left, "t"), (right, "a"), (right, "lz")] {
        assert_eq!(kind(in_range(&client, range, get(name)).await), KvErrorKind::RangeNotFound);
        assert_eq!(kind(in_range(&client, range, put(name, "x", 1)).await), KvErrorKind::RangeNotFound);
        let across = in_range(&client, range, scan("a", "z", 0)).await;
        assert_eq!(kind(across), KvErrorKind::RangeNotFound);
    }
}
