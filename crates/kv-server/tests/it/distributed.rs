//! Transactions over two ranges of one node, batch by batch.

use crate::support::*;
use kv_api::batch::*;
use kv_api::{BatchResponse, Header, KvError, KvErrorKind, LockStrength, Span, Timestamp};
use kv_server::authorize::Caller;
use std::sync::Arc;

/// A node with two ranges of the usual tenant, which meet at `m`.
struct Two {
    node: TestNode,
    left: u64,
    right: u64,
}

impl Two {
    async fn start() -> Self {
        let node = TestNode::start();
        let client = node.client();
        for name in ["a", "x"] {
            client.put(name, "0").await;
        }
        let [left, right] = split_at_m(&client).await;
        Two { node, left, right }
    }

    /// The same after a restart: all leases are others.
    async fn restarted(self) -> Self {
        let engine = Arc::new(self.node.engine.after_crash());
        let Two { node, left, right } = self;
        drop(node);
        Two { node: TestNode::on(engine), left, right }
    }

    fn range_of(&self, name: &str) -> u64 {
        if name < "m" { self.left } else { self.right }
    }

    async fn get(&self, name: &str) -> Option<String> {
        let header = Header { range_id: self.range_of(name), ..Header::default() };
        value_of(&self.node.client().ask_once(batch(header, vec![get(name)])).await.expect("get"))
    }
}

async fn split_at_m(client: &Client) -> [u64; 2] {
    let control = Client { caller: Caller::Control, ..client.clone() };
    let listed = || async {
        let request = RequestKind::Ranges(RangesRequest::default());
        let answer = control.ask_once(batch(Header::default(), vec![request])).await.expect("a list");
        let of_tenant = |range: &&RangeInfo| TENANT.span().contains(&range.start);
        answer.responses[0].ranges.iter().filter(of_tenant).map(|range| range.range_id).collect::<Vec<_>>()
    };
    let header = Header { range_id: listed().await[0], ..Header::default() };
    let split = RequestKind::SplitRange(SplitRange { key: key("m") });
    control.ask_once(batch(header, vec![split])).await.expect("split");
    listed().await.try_into().expect("two ranges")
}

/// A coordinator that does what it is told.
#[derive(Clone)]
struct Coordinator {
    client: Client,
    txn: TxnMeta,
    read_timestamp: Option<Timestamp>,
}

impl Coordinator {
    fn begin(client: &Client) -> Self {
        let txn = client.begin().header.txn.expect("a transaction");
        Coordinator { client: client.clone(), txn, read_timestamp: None }
    }

    async fn ask(&self, two: &Two, name: &str, requests: Vec<RequestKind>) -> Result<BatchResponse, KvError> {
        self.ask_with(two, name, requests, vec![]).await
    }

    async fn ask_with(
        &self,
        two: &Two,
        name: &str,
        requests: Vec<RequestKind>,
        refresh_spans: Vec<Span>,
    ) -> Result<BatchResponse, KvError> {
        let header = Header {
            txn: Some(self.txn.clone()),
            range_id: two.range_of(name),
            read_timestamp: self.read_timestamp,
            refresh_spans,
            ..Header::default()
        };
        self.client.ask_once(batch(header, requests)).await
    }

    /// Prepares a write of `value` to each of the keys, which are all of the transaction; the first is the anchor.
    async fn prepare(
        &self,
        two: &Two,
        name: &str,
        value: &str,
        at: Timestamp,
        all: &[&str],
    ) -> Result<Timestamp, KvError> {
        let anchored = two.range_of(name) == two.range_of(all[0]);
        let staged = if anchored { all.iter().map(|name| key(name)).collect() } else { vec![] };
        let prepare = Prepare { anchor: key(all[0]), timestamp: at, staged };
        let end = RequestKind::EndTxn(EndTxn { commit: true, prepare: Some(prepare), ..EndTxn::default() });
        let response = self.ask(two, name, vec![put(name, value, 1), end]).await?;
        Ok(response.prepared_at.expect("prepared"))
    }

    async fn decide(&self, two: &Two, anchor: &str, at: Timestamp, parts: &[&str]) -> Result<(), KvError> {
        let parts = parts.iter().map(|name| key(name)).collect();
        let decide = RequestKind::DecideTxn(DecideTxn {
            anchor: key(anchor),
            timestamp: at,
            parts,
            ..DecideTxn::default()
        });
        self.ask(two, anchor, vec![decide]).await.map(drop)
    }

    async fn resolve(&self, two: &Two, name: &str, committed: Option<Timestamp>, recorded: bool) {
        let resolve = RequestKind::ResolveTxn(ResolveTxn { key: key(name), committed, recorded });
        self.ask(two, name, vec![resolve]).await.expect("resolve");
    }

    async fn abort(&self, two: &Two, name: &str) {
        self.ask(two, name, vec![RequestKind::EndTxn(EndTxn::default())]).await.expect("abort");
    }
}

/// A little ahead of the wall clock.
fn soon() -> Timestamp {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    Timestamp::new(u64::try_from(now.as_nanos()).expect("fits") + 50_000_000, 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_writes_are_seen_when_they_are_decided_and_only_then() {
    let two = Two::start().await;
    let txn = Coordinator::begin(&two.node.client());
    let at = soon();
    for name in ["a", "x"] {
        assert_eq!(txn.prepare(&two, name, "1", at, &["a", "x"]).await, Ok(at));
        assert_eq!(txn.prepare(&two, name, "1", at, &["a", "x"]).await, Ok(at), "again");
    }
    // Whoever reads above waits.
    let (left, right) = (two.range_of("a"), two.range_of("x"));
    let reader = two.node.client();
    let read = tokio::spawn(async move {
        let mut values = Vec::new();
        for (range_id, name) in [(left, "a"), (right, "x")] {
            let header = Header { range_id, ..Header::default() };
            values.push(value_of(&reader.ask_once(batch(header, vec![get(name)])).await.expect("get")));
        }
        values
    });
    tokio::task::yield_now().await;
    txn.resolve(&two, "x", Some(at), false).await;
    assert_eq!(two.get("x").await.as_deref(), Some("1"), "not on record, but decided");
    txn.decide(&two, "a", at, &["x"]).await.expect("decide");
    txn.decide(&two, "a", at, &["x"]).await.expect("decided already");
    txn.resolve(&two, "x", Some(at), true).await;
    txn.resolve(&two, "a", Some(at), true).await;
    assert_eq!(read.await.expect("task"), [Some("1".to_owned()), Some("1".to_owned())]);
    two.node.settled().await;
    let two = two.restarted().await;
    assert_eq!((two.get("a").await.as_deref(), two.get("x").await.as_deref()), (Some("1"), Some("1")));
}

/// A coordinator that has not heard of a merge asks for two parts in one range.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_parts_that_are_one_by_now_are_not_prepared() {
    let mut two = Two::start().await;
    let start = TENANT.span().start;
    let merge = RequestKind::MergeRange(MergeRange { start, end: key("m") });
    let control = Client { caller: Caller::Control, ..two.node.client() };
    let header = Header { range_id: two.left, ..Header::default() };
    control.ask_once(batch(header, vec![merge])).await.expect("merged");
    two.right = two.left;
    let begin = || Coordinator::begin(&two.node.client());
    // The record would name a key of the range that is not prepared with it.
    let staged = begin().prepare(&two, "a", "1", soon(), &["a", "x"]).await;
    assert_eq!(kind(staged), KvErrorKind::Aborted);
    // Without such a record, the second part is not taken for the first, asked for once more.
    let txn = begin();
    let prepare = |name| {
        let prepare = Prepare { anchor: key("a"), timestamp: soon(), staged: vec![] };
        let end = EndTxn { commit: true, prepare: Some(prepare), ..EndTxn::default() };
        txn.ask(&two, name, vec![put(name, "1", 1), RequestKind::EndTxn(end)])
    };
    prepare("a").await.expect("prepared");
    prepare("a").await.expect("again");
    assert_eq!(kind(prepare("x").await), KvErrorKind::Aborted);
    txn.abort(&two, "a").await;
    two.node.settled().await;
    assert_eq!(two.get("x").await.as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_below_do_not_wait_and_what_they_read_stays() {
    let two = Two::start().await;
    let mut reader = Coordinator::begin(&two.node.client());
    let response = reader.ask(&two, "a", vec![get("a")]).await.expect("get");
    reader.read_timestamp = response.read_timestamp;
    let txn = Coordinator::begin(&two.node.client());
    let at = soon();
    for name in ["a", "x"] {
        assert_eq!(txn.prepare(&two, name, "1", at, &["a", "x"]).await, Ok(at));
    }
    let below = reader.ask(&two, "x", vec![get("x")]).await.expect("get");
    assert_eq!((value_of(&below).as_deref(), below.read_timestamp), (Some("0"), reader.read_timestamp));
    // Above, on another range than the timestamp came from.
    let late = Coordinator { read_timestamp: Some(at.next()), ..reader.clone() };
    let pushed = txn.prepare(&two, "x", "1", at, &["a", "x"]).await;
    assert_eq!(pushed, Ok(at));
    txn.abort(&two, "a").await;
    txn.abort(&two, "x").await;
    let above = late.ask(&two, "x", vec![get("x")]).await.expect("get");
    assert_eq!(value_of(&above).as_deref(), Some("0"));
    // Now that somebody has read there, nothing is written below any more.
    let other = Coordinator::begin(&two.node.client());
    let at_last = other.prepare(&two, "x", "2", at, &["x"]).await.expect("prepared");
    assert!(at_last > at.next(), "{at_last} after a read at {at}");
    other.abort(&two, "x").await;
    two.node.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_read_must_still_hold_where_it_is_prepared_or_refreshed() {
    let two = Two::start().await;
    let mut txn = Coordinator::begin(&two.node.client());
    let response = txn.ask(&two, "a", vec![get("a")]).await.expect("get");
    txn.read_timestamp = response.read_timestamp;
    assert_eq!(value_of(&txn.ask(&two, "x", vec![get("x")]).await.expect("get")).as_deref(), Some("0"));
    two.node
        .client()
        .ask_once(batch(Header { range_id: two.right, ..Header::default() }, vec![put("x", "other", 1)]))
        .await
        .expect("put");
    let refresh = |to| vec![RequestKind::Refresh(Refresh { to: Some(to) })];
    let span = |name| vec![Span::point(key(name))];
    let changed = txn.ask_with(&two, "x", refresh(soon()), span("x")).await;
    assert_eq!(kind(changed), KvErrorKind::Retry);
    let to = soon();
    let unchanged = txn.ask_with(&two, "a", refresh(to), span("a")).await.expect("refresh");
    assert_eq!(unchanged.read_timestamp, Some(to));
    // What was refreshed up to a timestamp is not written below it any more.
    let header = Header { range_id: two.left, ..Header::default() };
    let written = two.node.client().ask_once(batch(header, vec![put("a", "later", 1)])).await.expect("put");
    assert!(written.commit_timestamp > Some(to));
    let prepare = Prepare { anchor: key("a"), timestamp: soon(), staged: vec![] };
    let end = RequestKind::EndTxn(EndTxn { commit: true, prepare: Some(prepare), ..EndTxn::default() });
    let stale = txn.ask_with(&two, "a", vec![put("a", "mine", 1), end], span("a")).await;
    assert_eq!(kind(stale), KvErrorKind::Retry);
    assert_eq!(two.get("a").await.as_deref(), Some("later"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_have_been_acknowledged_before_is_uncertain() {
    let two = Two::start().await;
    let mut txn = Coordinator::begin(&two.node.client());
    txn.read_timestamp = txn.ask(&two, "a", vec![get("a")]).await.expect("get").read_timestamp;
    let header = Header { range_id: two.right, ..Header::default() };
    two.node.client().ask_once(batch(header, vec![put("x", "new", 1)])).await.expect("put");
    let read = |uncertain: bool| {
        let read_timestamp = txn.read_timestamp.expect("read before");
        let header = Header {
            txn: Some(txn.txn.clone()),
            range_id: two.right,
            read_timestamp: Some(read_timestamp),
            uncertainty_limit: uncertain.then_some(Timestamp::MAX),
            ..Header::default()
        };
        let client = txn.client.clone();
        async move { client.ask_once(batch(header, vec![get("x")])).await }
    };
    let error = read(true).await.expect_err("uncertain");
    assert_eq!(error.kind(), KvErrorKind::SnapshotBehind);
    assert!(error.timestamp.as_deref().copied() > txn.read_timestamp);
    let certain = read(false).await.expect("certain");
    assert_eq!(value_of(&certain).as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_at_a_timestamp_is_there_or_nowhere() {
    let two = Two::start().await;
    let client = two.node.client();
    let commit = |at| {
        let txn = Coordinator::begin(&client);
        let end = RequestKind::EndTxn(EndTxn { commit: true, commit_at: Some(at), ..EndTxn::default() });
        let two = &two;
        async move { txn.ask(two, "a", vec![put("a", "1", 1), end]).await }
    };
    let at = soon();
    assert_eq!(commit(at).await.expect("commit").commit_timestamp, Some(at));
    let late = commit(at).await.expect_err("too late");
    assert_eq!(late.kind(), KvErrorKind::SnapshotBehind);
    assert!(late.timestamp.as_deref().copied() > Some(at));
    let far = Timestamp::new(soon().wall_ns + 3_600_000_000_000, 0);
    assert_eq!(kind(commit(far).await), KvErrorKind::InvalidRequest);
}

/// What becomes of a transaction whose coordinator is gone, with what was prepared and decided by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_without_coordinators_are_recovered() {
    struct Case {
        prepared: &'static [&'static str],
        staged: bool,
        decided: bool,
        restarts: bool,
        commits: bool,
    }
    let cases = [
        Case { prepared: &["a", "x"], staged: true, decided: false, restarts: false, commits: true },
        Case { prepared: &["a", "x"], staged: true, decided: false, restarts: true, commits: true },
        Case { prepared: &["a", "x"], staged: false, decided: false, restarts: false, commits: false },
        Case { prepared: &["a", "x"], staged: false, decided: true, restarts: true, commits: true },
        Case { prepared: &["a"], staged: true, decided: false, restarts: false, commits: false },
        Case { prepared: &["x"], staged: true, decided: false, restarts: true, commits: false },
        Case { prepared: &["a", "x"], staged: true, decided: true, restarts: false, commits: true },
    ];
    for (number, case) in cases.into_iter().enumerate() {
        let mut two = Two::start().await;
        let client = two.node.client();
        let txn = Coordinator::begin(&client);
        let at = soon();
        let all: &[&str] = &["a", "x"];
        for name in case.prepared {
            if case.staged {
                assert_eq!(txn.prepare(&two, name, "1", at, all).await, Ok(at));
            } else {
                let prepare = Prepare { anchor: key("a"), timestamp: at, staged: vec![] };
                let end =
                    RequestKind::EndTxn(EndTxn { commit: true, prepare: Some(prepare), ..EndTxn::default() });
                let response = txn.ask(&two, name, vec![put(name, "1", 1), end]).await.expect("prepare");
                assert_eq!(response.prepared_at, Some(at));
            }
        }
        if case.decided {
            txn.decide(&two, "a", at, &["x"]).await.expect("decide");
        }
        client.close();
        if case.restarts {
            two = two.restarted().await;
        }
        let expected = if case.commits { "1" } else { "0" };
        for name in all {
            // Who reads waits until it is known.
            assert_eq!(two.get(name).await.as_deref(), Some(expected), "case {number}: {name}");
        }
        if !case.commits {
            let late = Coordinator { client: two.node.client(), ..txn.clone() };
            for name in case.prepared {
                assert_eq!(kind(late.prepare(&two, name, "1", soon(), all).await), KvErrorKind::Aborted);
            }
            assert_eq!(kind(late.decide(&two, "a", soon(), &["x"]).await), KvErrorKind::Aborted);
        }
        two.node.settled().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_wait_for_prepared_transactions_and_go_on_from_what_they_wrote() {
    let two = Two::start().await;
    let txn = Coordinator::begin(&two.node.client());
    let at = soon();
    for name in ["a", "x"] {
        txn.prepare(&two, name, "1", at, &["a", "x"]).await.expect("prepare");
    }
    let (client, range_id) = (two.node.client(), two.left);
    let writer = tokio::spawn(async move {
        let mut txn = client.begin();
        txn.header.range_id = range_id;
        let found = txn.lock("a", LockStrength::Exclusive).await.expect("lock");
        txn.commit(vec![put("a", "2", 1)]).await.map(|at| (found, at))
    });
    tokio::task::yield_now().await;
    txn.decide(&two, "a", at, &["x"]).await.expect("decide");
    txn.resolve(&two, "x", Some(at), true).await;
    txn.resolve(&two, "a", Some(at), true).await;
    let (found, committed) = writer.await.expect("task").expect("commit");
    assert_eq!(found.as_deref(), Some("1"));
    assert!(committed > at);
    assert_eq!(two.get("a").await.as_deref(), Some("2"));
    two.node.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_transactions_that_wait_for_each_other_one_gives_way() {
    let two = Arc::new(Two::start().await);
    // One holds a lock and waits for what is prepared; the other has prepared that and waits for the lock.
    let reader = Coordinator::begin(&two.node.client());
    reader.ask(&two, "x", vec![locking_get("x", LockStrength::Exclusive)]).await.expect("lock");
    let writer = Coordinator::begin(&two.node.client());
    let at = soon();
    writer.prepare(&two, "a", "1", at, &["a", "x"]).await.expect("prepare");
    let late = Coordinator { read_timestamp: Some(at), ..reader.clone() };
    let there = Arc::clone(&two);
    let read = tokio::spawn(async move { late.ask(&there, "a", vec![get("a")]).await.map(drop) });
    let (there, second) = (Arc::clone(&two), writer.clone());
    let prepared =
        tokio::spawn(async move { second.prepare(&there, "x", "1", at, &["a", "x"]).await.map(drop) });
    tokio::select! {
        result = read => {
            assert_eq!(kind(result.expect("task")), KvErrorKind::Deadlock);
            reader.abort(&two, "x").await;
        }
        result = prepared => {
            assert_eq!(kind(result.expect("task")), KvErrorKind::Deadlock);
            writer.abort(&two, "a").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_with_a_prepared_transaction_is_not_split() {
    let two = Two::start().await;
    let txn = Coordinator::begin(&two.node.client());
    let at = soon();
    txn.prepare(&two, "a", "1", at, &["a"]).await.expect("prepare");
    let control = Client { caller: Caller::Control, ..two.node.client() };
    let split = || {
        let split = RequestKind::SplitRange(SplitRange { key: key("c") });
        control.ask_once(batch(Header { range_id: two.left, ..Header::default() }, vec![split]))
    };
    assert!(split().await.is_err());
    txn.abort(&two, "a").await;
    two.node.settled().await;
    split().await.expect("split");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_has_all_parts_settles_many_transactions_together() {
    let two = Two::start().await;
    let (together, groups) = (settled_together(), settle_groups());
    let txns: Vec<_> = (0..20).map(|_| Coordinator::begin(&two.node.client())).collect();
    let mut settling = tokio::task::JoinSet::new();
    for (number, txn) in txns.into_iter().enumerate() {
        let (left, right, at) = (format!("a{number}"), format!("x{number}"), soon());
        for name in [&left, &right] {
            txn.prepare(&two, name, "1", at, &[&left, &right]).await.expect("prepare");
        }
        let (range_id, settles) = (two.left, vec![two.right]);
        settling.spawn(async move {
            let parts = vec![key(&right)];
            let decide =
                RequestKind::DecideTxn(DecideTxn { anchor: key(&left), timestamp: at, parts, settles });
            let header = Header { txn: Some(txn.txn.clone()), range_id, ..Header::default() };
            let answer = txn.client.ask_once(batch(header, vec![decide])).await.expect("decide");
            assert_eq!((answer.settled, answer.commit_timestamp), (true, Some(at)));
        });
    }
    while let Some(done) = settling.join_next().await {
        done.expect("settled");
    }
    // What was answered is on record, whatever happens to the node.
    assert!(two.node.node.is_idle(), "{:?}", two.node.node.leftovers());
    assert_eq!(settled_together() - together, 20);
    assert!(settle_groups() - groups < 20, "some in one group");
    let two = two.restarted().await;
    for number in 0..20 {
        for name in [format!("a{number}"), format!("x{number}")] {
            assert_eq!(two.get(&name).await.as_deref(), Some("1"));
        }
    }
}

fn settled_together() -> u64 {
    kv_server::metrics::metrics().settled_together.get()
}

fn settle_groups() -> u64 {
    kv_server::metrics::metrics().settle_groups.get()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_with_parts_that_are_not_here_is_not_settled() {
    let two = Two::start().await;
    let txn = Coordinator::begin(&two.node.client());
    let at = soon();
    txn.prepare(&two, "a", "1", at, &["a", "x"]).await.expect("prepare");
    for settles in [vec![two.right], vec![two.left], vec![4_711]] {
        let parts = vec![key("x")];
        let decide = RequestKind::DecideTxn(DecideTxn { anchor: key("a"), timestamp: at, parts, settles });
        let answer = txn.ask(&two, "a", vec![decide]).await.expect("decide");
        assert_eq!((answer.settled, answer.commit_timestamp), (false, Some(at)));
    }
    txn.resolve(&two, "a", Some(at), true).await;
    assert_eq!(two.get("a").await.as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_part_is_settled_before_its_record_is_gone() {
    let two = Two::start().await;
    let txn = Coordinator::begin(&two.node.client());
    let at = soon();
    let names: Vec<String> = (0..5_000).map(|number| format!("x{number:04}")).collect();
    txn.prepare(&two, "a", "1", at, &["a"]).await.expect("prepare");
    let prepare = Prepare { anchor: key("a"), timestamp: at, staged: vec![] };
    let end = RequestKind::EndTxn(EndTxn { commit: true, prepare: Some(prepare), ..EndTxn::default() });
    let puts = names.iter().zip(1..).map(|(name, sequence)| put(name, "1", sequence));
    txn.ask(&two, "x", puts.chain([end]).collect()).await.expect("prepare");
    txn.decide(&two, "a", at, &["x0000"]).await.expect("decide");
    txn.resolve(&two, "x0000", Some(at), true).await;
    txn.resolve(&two, "a", Some(at), true).await;
    let two = two.restarted().await;
    for name in &names {
        assert_eq!(two.get(name).await.as_deref(), Some("1"));
    }
}
