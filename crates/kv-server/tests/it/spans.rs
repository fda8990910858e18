//! Spans of a tenant's keys that are kept otherwise than the tenant.

use crate::nodes::Nodes;
use crate::support::*;
use kv_api::batch::*;
use kv_api::{BatchResponse, Header, KvError, KvErrorKind};
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

/// Reads a key at a node, whoever holds the lease.
async fn read_at(client: &Client, range_id: u64, name: &str) -> Result<BatchResponse, KvError> {
    let header = Header { range_id, any_replica: true, ..Header::default() };
    client.ask_once(batch(header, vec![get(name)])).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_replica_of_a_global_range_serves_the_present_without_asking() {
    let nodes = Nodes::start(3, Limits::default()).await;
    nodes.control(RequestKind::CreateTenant(CreateTenant { tenant_id: TENANT.0 })).await;
    nodes.put("k", "0").await.expect("put");
    let global = Some(RangeConfig { global_reads: true, ..RangeConfig::default() });
    configure(&nodes, Caller::Tenant(TENANT), ("g", "m"), global).await.expect("configured");
    let is_global = |range: &&RangeInfo| range.config.as_ref().is_some_and(|config| config.global_reads);
    let found = |ranges: &[RangeInfo]| {
        ranges.iter().find(is_global).map(|range| (range.range_id, range.replicas.len(), range.leaseholder))
    };
    nodes.wait_for(|ranges| found(ranges).is_some_and(|(_, replicas, _)| replicas == 3)).await;
    let clients = nodes.clients(Caller::Tenant(TENANT));
    for number in 1..=3 {
        let value = number.to_string();
        let begun = std::time::Instant::now();
        nodes.put("k", &value).await.expect("put");
        println!("a write took {} ms", begun.elapsed().as_millis());
        // What is acknowledged is seen everywhere. It is asked until somebody is there to say so.
        for (_, client) in &clients {
            let answer = loop {
                let (range_id, ..) = found(&nodes.ranges().await).expect("the range");
                match read_at(client, range_id, "k").await {
                    Ok(answer) => break answer,
                    Err(_) => tokio::task::yield_now().await,
                }
            };
            assert_eq!(value_of(&answer), Some(value.clone()));
        }
        // A little later followers answer by themselves: a hundred reads cost the leaseholder a few questions.
        loop {
            let (range_id, _, leaseholder) = found(&nodes.ranges().await).expect("the range");
            let asked = kv_server::metrics::metrics().promises.get();
            let mut served = 0;
            for _ in 0..50 {
                for (_, client) in clients.iter().filter(|(id, _)| *id != leaseholder) {
                    let Ok(answer) = read_at(client, range_id, "k").await else { continue };
                    assert_eq!(value_of(&answer), Some(value.clone()));
                    served += u64::from(answer.global_reads);
                }
            }
            let asked = kv_server::metrics::metrics().promises.get() - asked;
            if served == 100 && asked <= 10 {
                println!("{served} reads cost {asked} questions");
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    // No longer: nothing is waited out, and all is read as before.
    configure(&nodes, Caller::Tenant(TENANT), ("g", "m"), None).await.expect("removed");
    nodes.wait_for(|ranges| found(ranges).is_none()).await;
    nodes.put("k", "4").await.expect("put");
    assert_eq!(nodes.get("k").await.as_deref(), Some("4"));
    drop(clients);
    nodes.end_all().await;
}
