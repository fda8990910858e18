//! A range for each tenant.
//!
//! Lists of ranges may be a moment old, so tests wait for what they must show in the end.

use crate::client::{config, connect};
use crate::cluster::{Cluster, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The tenants of these tests.
const TENANTS: [&str; 3] = ["ash", "birch", "cedar"];

/// The ranges listed.
fn ranges(cluster: &Cluster, flags: &[&str]) -> Vec<Value> {
    let list = cluster.json(&[&["debug", "ranges"], flags].concat());
    list.as_array().unwrap().clone()
}

/// Names of the tenants of ranges, in the order of the ranges. One that is being dropped has none.
fn tenants(ranges: &[Value]) -> Vec<&str> {
    ranges.iter().map(|range| range["tenant"].as_str().unwrap_or_default()).collect()
}

/// Whether every range has a replica on each of three nodes.
fn all_have_three(ranges: &[Value]) -> bool {
    let nodes = |range: &Value| -> BTreeSet<u64> {
        range["replicas"].as_array().unwrap().iter().map(|node| node.as_u64().unwrap()).collect()
    };
    ranges.iter().all(|range| nodes(range) == BTreeSet::from([1, 2, 3]))
}

/// Writes rows as a tenant, and sees each at once also where any replica may answer.
async fn write(cluster: &Cluster, url: &str) {
    let writer = connect(cluster, &config(cluster, url)).await.unwrap();
    writer.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
    let reader = connect(cluster, &config(cluster, url)).await.unwrap();
    reader.batch_execute("SET follower_reads = on").await.unwrap();
    for written in 1..=20_i64 {
        writer.execute("INSERT INTO t SELECT count(*)::int FROM t", &[]).await.unwrap();
        reader.batch_execute("BEGIN READ ONLY").await.unwrap();
        let seen: i64 = reader.query_one("SELECT count(*) FROM t", &[]).await.unwrap().get(0);
        reader.batch_execute("COMMIT").await.unwrap();
        assert_eq!(seen, written);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_tenant_has_a_range_whose_replicas_agree() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(directory.path(), &["--nodes", "3"]);
    let urls = TENANTS.map(|tenant| cluster.create(tenant));
    let names = [&["cluster", "system"], &TENANTS[..]].concat();
    wait_until("every range is listed, with three replicas", || {
        let listed = ranges(&cluster, &[]);
        tenants(&listed) == names && all_have_three(&listed)
    });

    let listed = ranges(&cluster, &[]);
    let ids: BTreeSet<u64> = listed.iter().map(|range| range["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), listed.len(), "{listed:?}");
    assert_eq!((&listed[0]["id"], &listed[0]["tenant_id"]), (&json!(1), &Value::Null));
    assert_eq!((&listed[1]["id"], &listed[1]["tenant_id"]), (&json!(2), &json!(1)));
    assert_eq!(tenants(&ranges(&cluster, &["--limit", "2"])), names[..2]);
    for (tenant, range) in [("birch", &listed[3]), ("system", &listed[1])] {
        let found = ranges(&cluster, &["--tenant", tenant]);
        assert_eq!((found.len(), &found[0]["id"]), (1, &range["id"]));
    }
    assert!(cluster.failure(&["debug", "ranges", "--tenant", "oak"]).contains("does not exist"));

    for url in &urls {
        write(&cluster, url).await;
    }
    let checked = cluster.json(&["debug", "check-replicas"]);
    assert_eq!((&checked["disagree"], &checked["failed"]), (&json!(0), &json!(0)), "{checked}");
    wait_until("every replica answers and agrees", || {
        cluster.json(&["debug", "check-replicas"])["agree"] == listed.len()
    });
    let one = cluster.json(&["debug", "check-replicas", "--tenant", "cedar"]);
    assert_eq!((&one["agree"], &one["findings"]), (&json!(1), &json!([])), "{one}");

    cluster.json(&["tenant", "drop", "birch"]);
    wait_until("the range is gone", || {
        tenants(&ranges(&cluster, &[])) == ["cluster", "system", "ash", "cedar"]
    });
    cluster.stop();
}

#[test]
fn a_tenants_placement_is_set_shown_and_cleared() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(directory.path());
    cluster.create("app");
    let range = || ranges(&cluster, &["--tenant", "app"]).pop().unwrap_or_default();
    wait_until("the range is listed", || !range().is_null());
    let before = range();
    assert_eq!((&before["wanted_replicas"], &before["gc_ttl_s"]), (&Value::Null, &Value::Null));

    let flags = ["--replicas", "1", "--lease-preference", "zone=a", "--lease-preference", "zone=b"];
    let set = [&["tenant", "set", "app", "--gc-ttl", "1h"], &flags[..]].concat();
    let placed = cluster.json(&set);
    assert_eq!((&placed["replicas"], &placed["gc_ttl_s"]), (&json!(1), &json!(3600)));
    assert_eq!(placed["lease_preferences"], json!(["zone=a", "zone=b"]));
    assert_eq!(cluster.json(&["tenant", "show", "app"])["lease_preferences"], json!(["zone=a", "zone=b"]));
    wait_until("the range is kept so", || {
        let range = range();
        let generation = |range: &Value| range["generation"].as_u64().unwrap();
        let kept = (&range["wanted_replicas"], &range["gc_ttl_s"], &range["lease_preferences"]);
        kept == (&json!(1), &json!(3600), &json!(["zone=a", "zone=b"]))
            && generation(&range) > generation(&before)
    });

    let clear = ["--no-lease-preferences", "--replicas", "default", "--gc-ttl", "default"];
    let cleared = cluster.json(&[&["tenant", "set", "app"], &clear[..]].concat());
    assert_eq!((&cleared["replicas"], &cleared["gc_ttl_s"]), (&Value::Null, &Value::Null));
    wait_until("the range is kept as others", || range()["lease_preferences"] == json!([]));

    for bad in [
        ["--replicas", "8"],
        ["--replicas", "0"],
        ["--gc-ttl", "59s"],
        ["--gc-ttl", "31d"],
        ["--constraint", "zone"],
        ["--lease-preference", "zone=a b"],
    ] {
        let output = cluster.run(&[&["tenant", "set", "app"], &bad[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
    }
    let contradiction = ["tenant", "set", "app", "--constraint", "zone=a", "--constraint", "zone=b"];
    assert!(cluster.failure(&contradiction).contains("cannot both hold"));
    assert_eq!(cluster.json(&["tenant", "show", "app"])["constraints"], json!([]));
    cluster.stop();
}
