//! Spans of a tenant's keys that are kept otherwise than the tenant.

use crate::nodes::Nodes;
use crate::support::*;
use kv_api::batch::*;
use kv_api::{BatchResponse, KvError, KvErrorKind};
use kv_server::Limits;
use kv_server::authorize::Caller;

/// Sets how a span of the usual tenant is kept.
async fn configure(
    nodes: &Nodes,
    caller: Caller,
    span: (&str, &str),
    config: Option<RangeConfig>,
) -> Result<BatchResponse, KvError> {
    let request = ConfigureSpan { tenant_id: TENANT.0, start: key(span.0), end: key(span.1), config };
    nodes.ask(caller, "", RequestKind::ConfigureSpan(request)).await
}

fn gc_ttl(gc_ttl_s: u64) -> Option<RangeConfig> {
    Some(RangeConfig { gc_ttl_s, ..RangeConfig::default() })
}

/// First keys of the usual tenant's ranges without the prefix, and how long versions are kept there.
fn kept(ranges: &[RangeInfo]) -> Vec<(String, u64)> {
    let of_tenant = ranges.iter().filter(|range| TENANT.span().contains(&range.start));
    let kept = |range: &RangeInfo| {
        let name = text(&range.start[kv_api::key::TENANT_PREFIX_LEN..]);
        (name, range.config.clone().unwrap_or_default().gc_ttl_s)
    };
    of_tenant.map(kept).collect()
}

async fn wait_until_kept(nodes: &Nodes, expected: &[(&str, u64)]) {
    let expected: Vec<(String, u64)> =
        expected.iter().map(|(name, ttl)| ((*name).to_owned(), *ttl)).collect();
    nodes.wait_for(|ranges| kept(ranges) == expected).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_are_cut_at_the_borders_of_spans_and_kept_as_the_span() {
    let nodes = Nodes::start(1, Limits::default()).await;
    nodes.control(RequestKind::CreateTenant(CreateTenant { tenant_id: TENANT.0 })).await;
    for name in ["a", "g", "m", "t"] {
        nodes.put(name, name).await.expect("put");
    }
    configure(&nodes, Caller::Control, ("g", "m"), gc_ttl(100)).await.expect("configured");
    wait_until_kept(&nodes, &[("", 0), ("g", 100), ("m", 0)]).await;
    // New ranges are kept as what they are split off, on both sides of a border.
    nodes.split("i").await.expect("split");
    nodes.split("t").await.expect("split");
    wait_until_kept(&nodes, &[("", 0), ("g", 100), ("i", 100), ("m", 0), ("t", 0)]).await;
    // What is said of the tenant holds where the span says nothing, and does not undo the span.
    let config = RangeConfig { gc_ttl_s: 70, ..RangeConfig::default() };
    let tenant = RequestKind::ConfigureTenant(ConfigureTenant { tenant_id: TENANT.0, config });
    nodes.ask(Caller::Control, "", tenant).await.expect("configured");
    wait_until_kept(&nodes, &[("", 70), ("g", 100), ("i", 100), ("m", 70), ("t", 70)]).await;
    // A second span, whose borders lie elsewhere; and a change of the first.
    configure(&nodes, Caller::Control, ("p", "r"), gc_ttl(200)).await.expect("configured");
    configure(&nodes, Caller::Control, ("g", "m"), gc_ttl(300)).await.expect("configured");
    let expected = [("", 70), ("g", 300), ("i", 300), ("m", 70), ("p", 200), ("r", 70), ("t", 70)];
    wait_until_kept(&nodes, &expected).await;
    let overlapping = configure(&nodes, Caller::Control, ("q", "s"), gc_ttl(1)).await.expect_err("refused");
    assert_eq!(overlapping.kind(), KvErrorKind::InvalidRequest);
    configure(&nodes, Caller::Tenant(TENANT), ("g", "m"), None).await.expect("removed");
    let expected = [("", 70), ("g", 70), ("i", 70), ("m", 70), ("p", 200), ("r", 70), ("t", 70)];
    wait_until_kept(&nodes, &expected).await;
    for name in ["a", "g", "m", "t"] {
        assert_eq!(nodes.get(name).await.as_deref(), Some(name));
    }
    nodes.end_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ranges_of_one_span_live_where_it_says_and_the_others_everywhere() {
    let nodes = Nodes::start(3, Limits::default()).await;
    nodes.control(RequestKind::CreateTenant(CreateTenant { tenant_id: TENANT.0 })).await;
    for name in ["a", "g", "h", "t"] {
        nodes.put(name, name).await.expect("put");
    }
    let only = |zone: &str| Some(RangeConfig { constraints: vec![zone.into()], ..RangeConfig::default() });
    let places = |ranges: &[RangeInfo]| -> Vec<Vec<u64>> {
        let of_tenant = ranges.iter().filter(|range| TENANT.span().contains(&range.start));
        let mut places: Vec<Vec<u64>> =
            of_tenant.map(|range| range.replicas.iter().map(|replica| replica.node_id).collect()).collect();
        places.iter_mut().for_each(|place| place.sort_unstable());
        places
    };
    for zone in [3, 1] {
        let span = only(&format!("zone=z{zone}"));
        configure(&nodes, Caller::Tenant(TENANT), ("g", "m"), span).await.expect("configured");
        let expected = [vec![1, 2, 3], vec![zone], vec![1, 2, 3]];
        nodes.wait_for(|ranges| places(ranges) == expected).await;
        for name in ["a", "g", "h", "t"] {
            assert_eq!(nodes.get(name).await.as_deref(), Some(name));
        }
    }
    configure(&nodes, Caller::Tenant(TENANT), ("g", "m"), None).await.expect("removed");
    nodes.wait_for(|ranges| places(ranges) == [vec![1, 2, 3], vec![1, 2, 3], vec![1, 2, 3]]).await;
    nodes.end_all().await;
}
