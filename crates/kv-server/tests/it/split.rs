//! Ranges that are split: one node in memory, and three that speak to each other.

use crate::nodes::Nodes;
use crate::support::*;
use bytes::Bytes;
use kv_api::batch::*;
use kv_api::{BatchResponse, Header, KvError, KvErrorKind};
use kv_server::Limits;
use kv_server::authorize::Caller;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub fn control(client: &Client) -> Client {
    Client { caller: Caller::Control, ..client.clone() }
}

pub fn at_range(range_id: u64) -> Header {
    Header { range_id, ..Header::default() }
}

/// Asks for a split at a key of the usual tenant.
pub async fn split(client: &Client, range_id: u64, name: &str) -> Result<(), KvError> {
    let split = RequestKind::SplitRange(SplitRange { key: key(name) });
    control(client).ask_once(batch(at_range(range_id), vec![split])).await.map(drop)
}

/// The usual tenant's ranges as the directory has them.
pub async fn ranges(client: &Client) -> Vec<RangeInfo> {
    let listed = RequestKind::Ranges(RangesRequest::default());
    let answer = control(client).ask_once(batch(Header::default(), vec![listed])).await.expect("a list");
    let span = TENANT.span();
    answer.responses[0].ranges.iter().filter(|range| span.contains(&range.start)).cloned().collect()
}

pub fn spans(ranges: &[RangeInfo]) -> Vec<(Bytes, Bytes)> {
    ranges.iter().map(|range| (range.start.clone(), range.end.clone())).collect()
}

pub async fn in_range(
    client: &Client,
    range_id: u64,
    request: RequestKind,
) -> Result<BatchResponse, KvError> {
    client.ask_once(batch(at_range(range_id), vec![request])).await
}

pub async fn get_in(client: &Client, range_id: u64, name: &str) -> Option<String> {
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

/// Writes a key again and again, each value one larger than the last, until told to stop; gives the last value
/// that was acknowledged. A value that was read is never followed by a smaller one.
async fn count_up(nodes: Arc<Nodes>, name: String, stop: watch::Receiver<bool>) -> u64 {
    let mut last = 0;
    while !*stop.borrow() {
        match nodes.put(&name, &(last + 1).to_string()).await {
            Ok(_) => last += 1,
            // It may have been written, or be written yet; so what is read may be one larger.
            Err(error) => assert_eq!(error.kind(), KvErrorKind::Ambiguous, "{error:?}"),
        }
        let read = nodes.get(&name).await.map_or(0, |value| value.parse().expect("a number"));
        assert!(read == last || read == last + 1, "{name}: {read} after {last}");
        last = read;
    }
    last
}

/// Keys in which somebody counts up.
pub struct Counters {
    counters: Vec<(&'static str, JoinHandle<u64>)>,
    stop: watch::Sender<bool>,
}

impl Counters {
    pub fn start(nodes: &Arc<Nodes>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let names = ["a", "c", "e", "h", "m", "p", "s", "v"];
        let count = |name: &str| tokio::spawn(count_up(nodes.clone(), name.to_owned(), stopped.clone()));
        Counters { counters: names.map(|name| (name, count(name))).into(), stop }
    }

    /// Two nodes go one after the other, each for a while: all keys can be read without it. Then everybody stops, and has
    /// lost nothing.
    pub async fn outlive_nodes(self, nodes: &Arc<Nodes>) {
        for place in [0, 1] {
            nodes.end(place).await;
            for (name, _) in &self.counters {
                nodes.get(name).await;
            }
            nodes.begin(place).await;
        }
        self.stop.send_replace(true);
        for (name, counter) in self.counters {
            let last = counter.await.expect("counts");
            assert!(last > 0, "{name}");
            assert_eq!(nodes.get(name).await, Some(last.to_string()), "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_split_a_range_that_is_written_and_lose_nothing() {
    let nodes = Nodes::start(3, Limits::default()).await;
    nodes.control(RequestKind::CreateTenant(CreateTenant { tenant_id: TENANT.0 })).await;
    let counters = Counters::start(&nodes);
    for at in ["m", "e", "s", "c"] {
        nodes.split(at).await.expect("split");
        let known = |ranges: &[RangeInfo]| ranges.iter().any(|range| range.start == key(at));
        nodes.wait_for(known).await;
    }
    let parts = nodes.tenant_ranges().await;
    assert_eq!(parts.len(), 5);
    assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start), "{parts:?}");
    counters.outlive_nodes(&nodes).await;
    // All replicas of the ranges go with the tenant.
    nodes.control(RequestKind::DropTenant(DropTenant { tenant_id: TENANT.0 })).await;
    assert_eq!(nodes.tenant_ranges().await, []);
    while nodes.replicas().await != [2, 2, 2] {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    nodes.end_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_that_grows_is_split_until_every_part_fits() {
    let max_range_bytes = 1 << 20;
    let nodes = Nodes::start(1, Limits { max_range_bytes, ..Limits::default() }).await;
    nodes.control(RequestKind::CreateTenant(CreateTenant { tenant_id: TENANT.0 })).await;
    let value = "v".repeat(16 << 10);
    for number in 0..320 {
        nodes.put(&format!("k{number:04}"), &value).await.expect("put");
    }
    // Five mebibytes; a part is about half of what it may hold, but for the last.
    nodes
        .wait_for(|ranges| ranges.iter().filter(|range| TENANT.span().contains(&range.start)).count() >= 6)
        .await;
    let parts = nodes.tenant_ranges().await;
    assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start), "{parts:?}");
    for number in 0..320 {
        assert_eq!(nodes.get(&format!("k{number:04}")).await.map(|value| value.len()), Some(16 << 10));
    }
    nodes.end_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_range_is_split_where_its_requests_are() {
    let limits =
        Limits { split_load: 50, split_load_for: std::time::Duration::from_millis(500), ..Limits::default() };
    let nodes = Nodes::start(3, limits).await;
    nodes.control(RequestKind::CreateTenant(CreateTenant { tenant_id: TENANT.0 })).await;
    nodes.put("a", "quiet").await.expect("put");
    for number in 0..100 {
        nodes.put(&format!("k{number:02}"), "busy").await.expect("put");
    }
    let parts = loop {
        let parts = nodes.tenant_ranges().await;
        if parts.len() > 1 {
            break parts;
        }
        let mut wire = nodes.connect(parts[0].leaseholder).await;
        let ask = |number| batch(at_range(parts[0].range_id), vec![get(&format!("k{number:02}"))]);
        for _ in 0..20 {
            wire.ask_all((0..100).map(ask).collect()).await;
        }
    };
    let at = text(&parts[0].end[kv_api::key::TENANT_PREFIX_LEN..]);
    assert!(("k20".."k80").contains(&at.as_str()), "{at}");
    assert_eq!(nodes.get("k99").await.as_deref(), Some("busy"));
    assert_eq!(nodes.get("a").await.as_deref(), Some("quiet"));
    nodes.end_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_ranges_of_a_tenant_are_kept_as_the_first_one() {
    let nodes = Nodes::start(1, Limits::default()).await;
    nodes.control(RequestKind::CreateTenant(CreateTenant { tenant_id: TENANT.0 })).await;
    let gc_ttls = |ranges: &[RangeInfo]| -> Vec<u64> {
        let of_tenant = ranges.iter().filter(|range| TENANT.span().contains(&range.start));
        of_tenant.map(|range| range.config.clone().unwrap_or_default().gc_ttl_s).collect()
    };
    nodes.put("a", "v").await.expect("put");
    for (round, at) in [(1, "m"), (2, "g"), (3, "t")] {
        let config = RangeConfig { gc_ttl_s: 100 * round, ..RangeConfig::default() };
        let configure = RequestKind::ConfigureTenant(ConfigureTenant { tenant_id: TENANT.0, config });
        nodes.ask(Caller::Control, "", configure).await.expect("configured");
        nodes.split(at).await.expect("split");
        let expected = vec![100 * round; usize::try_from(round).expect("small") + 1];
        nodes.wait_for(|ranges| gc_ttls(ranges) == expected).await;
    }
    nodes.end_all().await;
}
