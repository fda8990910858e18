//! A range for each tenant.
//!
//! Lists of ranges may be a moment old, so tests wait for what they must show in the end.

use crate::client::{config, connect};
use crate::cluster::{Cluster, send, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

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

/// An unsigned integer as it stands in keys.
fn encoded(number: u64) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    let size = bytes.len() - bytes.iter().take_while(|byte| **byte == 0).count().min(bytes.len() - 1);
    let mut encoded = vec![0x80 + u8::try_from(size).unwrap()];
    encoded.extend(&bytes[bytes.len() - size..]);
    encoded
}

/// The first key of an index of a table, in hexadecimal digits.
fn index_key(tenant: u64, table: u64, index: u64) -> String {
    let key = [&[0x10][..], &tenant.to_be_bytes(), &encoded(table), &encoded(index)].concat();
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A table with two more indexes, each in a range of its own.
async fn make_divided_table(cluster: &Cluster, tenant: &str, url: &str) {
    let client = connect(cluster, &config(cluster, url)).await.unwrap();
    let make = "CREATE TABLE t (id int PRIMARY KEY, one int NOT NULL, two int NOT NULL);
                CREATE INDEX ON t (one); CREATE INDEX ON t (two)";
    client.batch_execute(make).await.unwrap();
    let table: i64 = client.query_one("SELECT 't'::regclass::oid::bigint", &[]).await.unwrap().get(0);
    let tenant_id = cluster.json(&["tenant", "show", tenant])["id"].as_u64().unwrap();
    for index in 1..=3 {
        cluster.json(&["debug", "split", &index_key(tenant_id, u64::try_from(table).unwrap(), index)]);
    }
    let parts = || ranges(cluster, &["--tenant", tenant]).len();
    wait_until("the table is divided", || parts() == 4);
}

/// What becomes of rows that are inserted one by one.
#[derive(Default)]
struct Inserting {
    stop: AtomicBool,
    acknowledged: Mutex<Vec<i32>>,
}

impl Inserting {
    fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// Inserts rows until it is told to stop.
    async fn run(&self, cluster: &Cluster, url: &str) {
        let mut client = None;
        for number in 1_i32.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            if client.is_none() {
                client = connect(cluster, &config(cluster, url)).await.ok();
            }
            let Some(open) = &client else { continue };
            match open.execute("INSERT INTO t VALUES ($1, $1, -$1)", &[&number]).await {
                Ok(_) => self.acknowledged.lock().unwrap().push(number),
                Err(error) if error.is_closed() => client = None,
                // What is to be tried again, and what nobody knows.
                Err(_) => {}
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_merged_while_they_are_written_and_a_node_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Arc::new(Cluster::start_with(directory.path(), &["--nodes", "3"]));
    let url = cluster.create("app");
    make_divided_table(&cluster, "app", &url).await;
    let inserting = Arc::new(Inserting::default());
    let writer = {
        let (cluster, url, inserting) = (cluster.clone(), url.clone(), inserting.clone());
        tokio::spawn(async move { inserting.run(&cluster, &url).await })
    };
    let more_rows = || {
        let before = inserting.count();
        wait_until("rows are written", || inserting.count() >= before + 5);
    };
    more_rows();
    let listed = || ranges(&cluster, &["--tenant", "app"]);
    let merge_to = |wanted: usize| {
        // It is refused while transactions are open in one of the two, or a node is away.
        wait_until("ranges are merged", || {
            let listed = listed();
            if listed.len() <= wanted {
                return true;
            }
            cluster.run(&["debug", "merge", &listed[0]["id"].to_string()]);
            false
        });
    };
    merge_to(3);
    more_rows();
    send(cluster.process("kv"), "KILL");
    merge_to(1);
    more_rows();
    inserting.stop.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    let client = connect(&cluster, &config(&cluster, &url)).await.unwrap();
    let rows = client.query("SELECT id, one, two FROM t ORDER BY id", &[]).await.unwrap();
    let rows: Vec<[i32; 3]> = rows.iter().map(|row| [row.get(0), row.get(1), row.get(2)]).collect();
    assert!(rows.iter().all(|[id, one, two]| id == one && *id == -two));
    let found: BTreeSet<i32> = rows.iter().map(|[id, ..]| *id).collect();
    let acknowledged: BTreeSet<i32> = inserting.acknowledged.lock().unwrap().iter().copied().collect();
    let lost: Vec<_> = acknowledged.difference(&found).collect();
    assert!(lost.is_empty(), "{lost:?}");
    for order in ["one", "two DESC"] {
        let query = format!("SELECT id, one, two FROM t WHERE one > 0 AND two < 0 ORDER BY {order}");
        let by_index = client.query(&query, &[]).await.unwrap();
        let by_index: Vec<[i32; 3]> =
            by_index.iter().map(|row| [row.get(0), row.get(1), row.get(2)]).collect();
        assert_eq!(by_index, rows, "by {order}");
    }
    let said = cluster.failure(&["debug", "merge", &listed()[0]["id"].to_string()]);
    assert!(said.contains("last range"), "{said}");
    wait_until("every replica answers and agrees", || {
        let checked = cluster.json(&["debug", "check-replicas", "--tenant", "app"]);
        assert_eq!(checked["disagree"], json!(0), "{checked}");
        checked["agree"] == json!(1)
    });
    Arc::into_inner(cluster).expect("nobody else has it").stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_that_nobody_uses_are_merged_by_themselves() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(directory.path(), &["--merge-after", "1s"]);
    let url = cluster.create("app");
    let client = connect(&cluster, &config(&cluster, &url)).await.unwrap();
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2)").await.unwrap();
    let table: i64 = client.query_one("SELECT 't'::regclass::oid::bigint", &[]).await.unwrap().get(0);
    let tenant_id = cluster.json(&["tenant", "show", "app"])["id"].as_u64().unwrap();
    let listed = || ranges(&cluster, &["--tenant", "app"]);
    let generation = |range: &Value| range["generation"].as_u64().unwrap();
    wait_until("the range is listed", || !listed().is_empty());
    let before = generation(&listed()[0]);
    cluster.json(&["debug", "split", &index_key(tenant_id, u64::try_from(table).unwrap(), 1)]);
    // The split is a generation of the range's descriptor, and so is the merge.
    wait_until("the two are one", || {
        let listed = listed();
        listed.len() == 1 && generation(&listed[0]) >= before + 2
    });
    let count: i64 = client.query_one("SELECT count(*) FROM t", &[]).await.unwrap().get(0);
    assert_eq!(count, 2);
    drop(client);
    cluster.stop();
}
