//! Whose keys a client sees, and who is refused.

use crate::support::{Cluster, bytes};
use kv_api::{KvErrorKind, LockStrength, Span, TenantId};
use kv_client::{KvClient, ScanOptions, TxnOptions};
use process::identity::Identity;

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
    let (one, two) = (cluster.client(2), cluster.client(3));
    put(&one, "k", "one").await;
    put(&two, "k", "two").await;
    put(&two, "l", "two").await;
    assert_eq!(keys(&one).await, [("k".into(), "one".into())]);
    assert_eq!(keys(&two).await.len(), 2);
    assert_eq!(one.increment(b"n", 3).await.unwrap(), 3);
    assert_eq!(two.increment(b"n", 4).await.unwrap(), 4);
    assert_eq!(one.drop_tenant(TenantId(3)).await.unwrap_err().kind(), KvErrorKind::Unauthorized);
    let control = KvClient::connect(cluster.config(Identity::Control, 1));
    control.drop_tenant(TenantId(3)).await.unwrap();
    put(&control, "own", "catalog").await;
    assert_eq!(keys(&control).await.len(), 1);
    assert_eq!(keys(&two).await, []);
    assert_eq!(keys(&one).await.len(), 2);
    one.clear_range(Span::default()).await.unwrap();
    assert_eq!(keys(&one).await, []);
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
    config.cluster_id = cluster.id();
    put(&KvClient::connect(config.clone()), "k", "v").await;
    config.cluster_id = "another".into();
    let client = KvClient::connect(config);
    let error = client.begin(TxnOptions::default()).get(b"k", LockStrength::None).await.unwrap_err();
    assert_eq!(error.kind(), KvErrorKind::InvalidRequest);
}
