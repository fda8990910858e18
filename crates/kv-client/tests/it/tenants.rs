//! Whose keys a client sees, and who is refused.

use crate::support::{Cluster, bytes};
use bytes::Bytes;
use kv_api::batch::{RangeConfig, RangeInfo};
use kv_api::{KvErrorKind, LockStrength, Span, TenantId};
use kv_client::{Config, KvClient, ScanOptions, TxnOptions};
use process::identity::Identity;
use std::time::Duration;

async fn keys(client: &KvClient) -> Vec<(String, String)> {
    let txn = client.begin(TxnOptions { read_only: true, ..TxnOptions::default() });
    let page = txn.scan(&Span::default(), ScanOptions::default()).await.unwrap();
    assert_eq!(page.resume, None);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    page.rows.iter().map(|(key, value)| (text(key), text(value))).collect()
}

async fn put(client: &KvClient, key: &str, value: &str) {
    let txn = client.begin(TxnOptions::default());
    txn.put(key.as_bytes(), bytes(value)).unwrap();
    txn.commit().await.unwrap();
}

#[tokio::test]
async fn tenants_use_the_same_keys_without_meeting() {
    let cluster = Cluster::start().await;
    let (one, two) = (cluster.client(2).await, cluster.client(3).await);
    put(&one, "k", "one").await;
    put(&two, "k", "two").await;
    put(&two, "l", "two").await;
    assert_eq!(keys(&one).await, [("k".into(), "one".into())]);
    assert_eq!(keys(&two).await.len(), 2);
    assert_eq!(one.increment(b"n", 3).await.unwrap(), 3);
    assert_eq!(two.increment(b"n", 4).await.unwrap(), 4);
    assert_eq!(one.drop_tenant(TenantId(3)).await.unwrap_err().kind(), KvErrorKind::Unauthorized);
    let control = cluster.control();
    control.drop_tenant(TenantId(3)).await.unwrap();
    put(&control, "own", "catalog").await;
    assert_eq!(keys(&control).await.len(), 1);
    assert_eq!(keys(&one).await.len(), 2);
    one.clear_range(Span::default()).await.unwrap();
    assert_eq!(keys(&one).await, []);
}

#[tokio::test]
async fn tenants_have_ranges_of_their_own() {
    let cluster = Cluster::start().await;
    let control = cluster.control();
    for tenant in [3, 2, 2] {
        control.create_tenant(TenantId(tenant)).await.unwrap();
    }
    let ranges = control.ranges(Bytes::new(), 0).await.unwrap();
    let of_tenant = |range: &&RangeInfo| TenantId::of_key(&range.start);
    assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
    assert_eq!(
        ranges.iter().filter_map(|range| of_tenant(&range)).map(|id| id.0).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    let second = ranges.iter().find(|range| of_tenant(range) == Some(TenantId(2))).unwrap();
    let after: Vec<_> = control.ranges(second.start.clone(), 1).await.unwrap();
    assert_eq!(after.iter().map(|range| &range.start[..]).collect::<Vec<_>>(), [TenantId(3).prefix()]);
    let config = RangeConfig { gc_ttl_s: 7, ..RangeConfig::default() };
    control.configure_tenant(TenantId(2), config.clone()).await.unwrap();
    let ranges = control.ranges(Bytes::new(), 0).await.unwrap();
    let second = ranges.iter().find(|range| of_tenant(range) == Some(TenantId(2))).unwrap();
    assert_eq!(second.config, Some(config));
    let checks = control.check_replicas(second).await.unwrap();
    assert!(checks.len() == 1 && checks[0].agrees && checks[0].range_id == second.range_id);
}

#[tokio::test]
async fn a_tenant_that_was_dropped_or_never_made_has_nobody_to_answer() {
    let cluster = Cluster::start().await;
    cluster.client(2).await.ready().await.unwrap();
    cluster.control().drop_tenant(TenantId(2)).await.unwrap();
    for tenant in [2, 3] {
        let config = cluster.config(Identity::Tenant(tenant), tenant);
        let client = KvClient::connect(Config { connect_timeout: Duration::from_millis(100), ..config });
        assert_eq!(client.ready().await.unwrap_err().kind(), KvErrorKind::Unavailable);
    }
}

#[tokio::test]
async fn reads_that_any_replica_may_answer_see_what_was_acknowledged() {
    let cluster = Cluster::start().await;
    let client = cluster.client(2).await;
    for number in 0..20 {
        put(&client, "k", &number.to_string()).await;
        let options = TxnOptions { read_only: true, follower_reads: true, ..TxnOptions::default() };
        let txn = client.begin(options);
        let value = txn.get(b"k", LockStrength::None).await.unwrap();
        put(&client, "k", "later").await;
        assert_eq!(value, Some(bytes(&number.to_string())));
        assert_eq!(txn.get(b"k", LockStrength::None).await.unwrap(), value, "one snapshot");
    }
}

#[tokio::test]
async fn a_client_that_lies_about_its_tenant_is_refused() {
    let cluster = Cluster::start().await;
    let liar = KvClient::connect(cluster.config(Identity::Tenant(2), 3));
    let txn = liar.begin(TxnOptions::default());
    let error = txn.get(b"k", LockStrength::None).await.unwrap_err();
    assert_eq!(error.kind(), KvErrorKind::Unauthorized);
    let txn = liar.begin(TxnOptions::default());
    txn.put(b"k", bytes("v")).unwrap();
    assert_eq!(txn.commit().await.unwrap_err().kind(), KvErrorKind::Unauthorized);
}

#[tokio::test]
async fn identities_without_business_here_are_told_so() {
    let cluster = Cluster::start().await;
    for identity in [Identity::Warm, Identity::Proxy] {
        let client = KvClient::connect(cluster.config(identity, 2));
        let error = client.begin(TxnOptions::default()).get(b"k", LockStrength::None).await.unwrap_err();
        assert_eq!(error.kind(), KvErrorKind::Unauthorized);
    }
}

#[tokio::test]
async fn another_cluster_is_refused() {
    let cluster = Cluster::start().await;
    let mut config = cluster.config(Identity::Tenant(2), 2);
    cluster.client(2).await;
    config.cluster_id = cluster.id();
    put(&KvClient::connect(config.clone()), "k", "v").await;
    config.cluster_id = "another".into();
    let client = KvClient::connect(config);
    let error = client.begin(TxnOptions::default()).get(b"k", LockStrength::None).await.unwrap_err();
    assert_eq!(error.kind(), KvErrorKind::InvalidRequest);
}
