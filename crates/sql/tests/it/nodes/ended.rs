//! Nodes whose leases end.

use super::{LEASE, node};
use crate::support::{client_of, new_tenant};
use kv_api::{LockStrength, Span};
use kv_client::{ScanOptions, TxnOptions};
use sql_types::SqlState;
use tokio::runtime::Runtime;

/// A runtime that does nothing but while something is run on it: a node that can be made to stand still.
fn stalling() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn running() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

#[test]
fn a_node_that_stands_still_is_waited_for_until_its_lease_ends_and_commits_nothing_then() {
    let (slow, other) = (stalling(), running());
    let tenant = slow.block_on(async { new_tenant().tenant() });
    let (mut a, mut idle) = slow.block_on(async {
        let mut a = node(tenant).await;
        a.execute("CREATE TABLE t (id int PRIMARY KEY, k int)").await;
        a.execute("BEGIN; INSERT INTO t VALUES (1, 1)").await;
        let idle = super::beside(&a).await;
        (a, idle)
    });
    let mut b = other.block_on(async {
        let mut b = node(tenant).await;
        b.execute("INSERT INTO t VALUES (2, 2)").await;
        b.execute("ALTER TABLE t DROP COLUMN k").await;
        assert_eq!(b.rows("SELECT * FROM t").await, ["2"]);
        b
    });
    slow.block_on(async {
        let error = a.error("COMMIT").await;
        assert_eq!(error.code, SqlState::SERIALIZATION_FAILURE, "{error:?}");
        // It begins anew.
        assert_eq!(idle.rows("SELECT * FROM t").await, ["2"]);
        idle.execute("INSERT INTO t VALUES (3)").await;
    });
    other.block_on(async { assert_eq!(b.rows("SELECT * FROM t ORDER BY id").await, ["2", "3"]) });
}

#[test]
fn a_node_that_is_gone_holds_up_changes_for_no_longer_than_its_lease() {
    let (here, there) = (running(), running());
    let tenant = here.block_on(async { new_tenant().tenant() });
    let mut a = here.block_on(async {
        let mut a = node(tenant).await;
        a.execute("CREATE TABLE t (id int PRIMARY KEY)").await;
        a
    });
    there.block_on(async {
        let mut b = node(tenant).await;
        b.execute("BEGIN; LOCK TABLE t IN SHARE MODE; INSERT INTO t VALUES (1)").await;
        // Nobody says goodbye.
        std::mem::forget(b);
    });
    there.shutdown_background();
    here.block_on(async {
        let kv = client_of(tenant);
        let now = async || kv.begin(TxnOptions::default()).settle_snapshot().await.expect("a timestamp");
        let began = now().await;
        a.execute("ALTER TABLE t ADD COLUMN c int").await;
        let took = now().await.wall_ns - began.wall_ns;
        // By the clocks of the KV nodes, and with as much again for a machine that is busy.
        assert!(u128::from(took) < 3 * LEASE.as_nanos(), "{took} ns");
        assert!(a.rows("SELECT * FROM t").await.is_empty());
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_node_lets_its_lease_lapse_and_asks_for_nothing() {
    let tenant = new_tenant().tenant();
    let mut a = node(tenant).await;
    a.execute("CREATE TABLE t (id int PRIMARY KEY)").await;
    // The records of the nodes: section 2 of number 4.
    let mut prefix = bytes::BytesMut::new();
    [4u64, 2].into_iter().for_each(|number| kv_api::encoding::encode_u64(number, &mut prefix));
    let end = kv_api::key::prefix_end(&prefix).expect("an end");
    let span = Span::new(prefix.freeze(), end);
    let kv = client_of(tenant);
    let read = async || {
        let txn = kv.begin(TxnOptions::default());
        let rows = txn.scan(&span, ScanOptions::default()).await.expect("a scan").rows;
        let [(key, value)] = &rows[..] else { panic!("{} nodes", rows.len()) };
        let json: serde_json::Value = serde_json::from_slice(&value[1..]).expect("JSON");
        let expires_ns = json["expires_ns"].as_u64().expect("a time");
        (key.clone(), expires_ns, txn.read_timestamp().expect("a snapshot").wall_ns)
    };
    let id = loop {
        let (key, expires_ns, now_ns) = read().await;
        if now_ns > expires_ns {
            break key;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    // It is renewed as if it had never lapsed, also in the middle of a transaction.
    a.execute("BEGIN; INSERT INTO t VALUES (1); COMMIT").await;
    let (key, expires_ns, now_ns) = read().await;
    assert!(key == id && expires_ns > now_ns);
    a.engine.retire().await;
    let txn = kv.begin(TxnOptions::default());
    assert_eq!(txn.get(&id, LockStrength::None).await.expect("a read"), None);
    assert_eq!(a.rows("SELECT * FROM t").await, ["1"]);
}
