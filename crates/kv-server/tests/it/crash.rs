//! What survives a crash, and what must not.

use crate::support::*;
use bytes::Bytes;
use kv_api::batch::*;
use kv_api::{KvErrorKind, LockStrength};
use kv_server::Node;
use std::path::Path;
use std::sync::Arc;
use storage::{Engine, MemoryEngine, RocksConfig, RocksEngine};

/// The node after a crash: unsynced writes are lost, memory is empty.
fn restart(test: &TestNode) -> TestNode {
    TestNode::on(Arc::new(test.engine.after_crash()))
}

#[tokio::test]
async fn acknowledged_commits_survive_and_open_transactions_do_not() {
    let test = TestNode::start();
    let client = test.client();
    client.put("a", "1").await;
    let mut committed = client.begin();
    committed.lock("b", LockStrength::Exclusive).await.expect("free");
    let commit = committed.commit(vec![put("b", "1", 1)]).await.expect("commit");
    let mut open = client.begin();
    open.get("a").await.expect("read");
    open.send(vec![put("a", "lost", 1), put("c", "lost", 2)]).await.expect("flush");
    // Made durable by a later commit, as a log is.
    client.put("d", "1").await;

    let after = restart(&test);
    let names: Vec<_> = after.client().scan_all().await.into_iter().map(|row| row.0).collect();
    assert_eq!(names, ["a", "b", "d"]);
    assert_eq!(after.client().get("a").await.as_deref(), Some("1"));
    let read = after.client().send(vec![get("a")]).await.expect("read");
    assert!(read.read_timestamp > Some(commit), "time goes on");
    let mut again = Txn { client: after.client(), header: open.header.clone(), spans: open.spans.clone() };
    assert_eq!(kind(again.commit(vec![put("e", "x", 3)]).await), KvErrorKind::Aborted);
    assert_eq!(kind(again.send(vec![put("e", "x", 3)]).await), KvErrorKind::Aborted);
    assert_eq!(kind(again.get("a").await), KvErrorKind::Aborted);
    after.client().send(vec![insert("c", "free", 1)]).await.expect("no intent is in the way");
    after.settled().await;
}

#[tokio::test]
async fn a_large_commit_survives_whole_before_and_while_its_intents_are_settled() {
    for yields in [0, 1, 5, 20, 100] {
        let test = TestNode::start();
        let client = test.client();
        client.put("r0001", "old").await;
        let mut txn = client.begin();
        for chunk in (0..6000).collect::<Vec<_>>().chunks(500) {
            txn.send(chunk.iter().map(|row| put(&format!("r{row:04}"), "new", 1)).collect())
                .await
                .expect("flush");
        }
        txn.send(vec![put("r0001", "undone", 2), put("s", "undone", 3)]).await.expect("flush");
        if let Some(meta) = &mut txn.header.txn {
            meta.ignored = vec![IgnoredSequences { from: 2, to: 4 }];
        }
        txn.commit(vec![]).await.expect("commit");
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        let after = restart(&test);
        let rows = after.client().scan_all().await;
        assert_eq!(rows.len(), 6000);
        assert!(rows.iter().all(|(_, value)| value == "new"));
        let again = restart(&after);
        assert_eq!(again.client().scan_all().await.len(), 6000, "settled once and for all");
    }
}

#[tokio::test]
async fn locks_are_forgotten_but_a_stale_commit_is_not_let_through() {
    let test = TestNode::start();
    test.client().put("a", "1").await;
    let mut txn = test.client().begin();
    txn.lock("a", LockStrength::Exclusive).await.expect("free");
    let after = restart(&test);
    after.client().put("a", "2").await;
    let mut stale = Txn { client: after.client(), header: txn.header.clone(), spans: txn.spans.clone() };
    assert_eq!(kind(stale.commit(vec![put("a", "3", 1)]).await), KvErrorKind::Retry);
    let mut fine = test.client().begin();
    fine.client = after.client();
    fine.lock("a", LockStrength::Exclusive).await.expect("free");
    fine.commit(vec![put("a", "3", 1)]).await.expect("commit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_never_fall_behind_what_was_acknowledged() {
    let mut engine = Arc::new(MemoryEngine::new());
    let mut acknowledged = 0;
    for _ in 0..20 {
        let test = TestNode::on(engine.clone());
        let increment = || RequestKind::Increment(Increment { key: key("n"), by: 1 });
        let found = test.client().get_counter("n").await;
        assert!(found >= acknowledged, "{found} after {acknowledged} was acknowledged");
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let client = test.client();
                tokio::spawn(async move {
                    let mut last = 0;
                    for _ in 0..10 {
                        last = client.send(vec![increment()]).await.expect("increment").responses[0].counter;
                    }
                    last
                })
            })
            .collect();
        for task in tasks {
            acknowledged = acknowledged.max(task.await.expect("task"));
        }
        engine = Arc::new(engine.after_crash());
    }
    assert_eq!(acknowledged, 800);
}

impl Client {
    async fn get_counter(&self, name: &str) -> i64 {
        let response = self.send(vec![get(name)]).await.expect("read");
        response.responses[0]
            .value
            .as_ref()
            .map_or(0, |bytes| i64::from_be_bytes(bytes[..].try_into().expect("eight bytes")))
    }
}

/// Copies the files of a store as a crash would leave them; begins again when the engine changed which files
/// there are meanwhile, for the copy would be of no single moment.
fn crash_image(from: &Path, to: &Path) {
    let listed = || -> std::io::Result<Vec<(std::ffi::OsString, Option<u64>)>> {
        let mut files = Vec::new();
        for file in std::fs::read_dir(from)? {
            let file = file?;
            let name = file.file_name();
            // The manifest names the others. Logs may grow.
            let is_manifest = name.to_string_lossy().starts_with("MANIFEST");
            let len = if is_manifest { Some(file.metadata()?.len()) } else { None };
            files.push((name, len));
        }
        files.sort();
        Ok(files)
    };
    let copy = || -> std::io::Result<bool> {
        let before = listed()?;
        for (name, _) in before.iter().filter(|(name, _)| name != "LOCK") {
            std::fs::copy(from.join(name), to.join(name))?;
        }
        Ok(listed()? == before)
    };
    loop {
        match copy() {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}"),
        }
        for file in std::fs::read_dir(to).expect("list") {
            std::fs::remove_file(file.expect("entry").path()).expect("remove");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rocksdb_keeps_what_was_acknowledged_when_the_process_dies() {
    let open = |path: &Path| -> Arc<dyn Engine> {
        let config = RocksConfig { memtable_bytes: 1 << 20, ..RocksConfig::default() };
        Arc::new(RocksEngine::open(path, &config).expect("open"))
    };
    let client_of = |node: Arc<Node>| {
        let connection = node.open_connection(TENANT);
        Client { node, caller: kv_server::authorize::Caller::Tenant(TENANT), connection }
    };
    let mut directory = tempfile::tempdir().expect("temporary directory");
    let mut rows = 0;
    for round in 0..3 {
        let node = Node::start(open(directory.path()), kv_server::Limits::default()).expect("start");
        make_ranges(&node).await;
        let client = client_of(node.clone());
        assert_eq!(client.scan_all().await.len(), rows, "round {round}");
        for row in 0..20 {
            let value = Bytes::from(vec![b'v'; 1000]);
            let small = RequestKind::Put(Put { key: key(&format!("{round}/{row:03}")), value, sequence: 1 });
            client.send(vec![small]).await.expect("put");
        }
        let mut large = client.begin();
        for chunk in (0..5000).collect::<Vec<_>>().chunks(1000) {
            let requests =
                chunk.iter().map(|row| put(&format!("{round}/large{row:04}"), &"x".repeat(500), 1)).collect();
            large.send(requests).await.expect("flush");
        }
        large.commit(vec![]).await.expect("commit");
        let mut open_txn = client.begin();
        open_txn.send(vec![put(&format!("{round}/open"), "x", 1)]).await.expect("flush");
        rows += 5020;
        let image = tempfile::tempdir().expect("temporary directory");
        // Holds background work still while the files are copied.
        crash_image(directory.path(), image.path());
        drop((open_txn, large, client, node));
        directory = image;
    }
}
