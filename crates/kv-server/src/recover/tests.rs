//! What is answered to those who recover a transaction.

use super::*;
use crate::authorize::Caller;
use crate::config::Limits;
use crate::node::Answer;
use kv_api::batch::{CreateTenant, DecideTxn, EndTxn, Get, Prepare, Put, RequestKind};
use kv_api::{BatchRequest, BatchResponse, Header, TenantId, TxnMeta};
use storage::MemoryEngine;

const TENANT: TenantId = TenantId(7);

async fn ask(node: &Arc<Node>, caller: Caller, header: Header, requests: Vec<RequestKind>) -> BatchResponse {
    let batch = BatchRequest { header, requests: requests.into_iter().map(Into::into).collect() };
    let connection = node.open_connection(TENANT);
    let answer = match node.handle(caller, connection, batch) {
        Answer::Ready(answer) => answer,
        Answer::Later(answer) | Answer::Heavy(answer) | Answer::LargeRead(answer) => answer.await,
    };
    answer.expect("answered")
}

async fn start() -> Arc<Node> {
    let node = Node::start(Arc::new(MemoryEngine::new()), Limits::default()).expect("start");
    let create = RequestKind::CreateTenant(CreateTenant { tenant_id: TENANT.0 });
    ask(&node, Caller::Control, Header::default(), vec![create]).await;
    node
}

/// A coordinator that has not heard of a merge had one of two parts prepared that are one by now, and is gone.
#[tokio::test]
async fn a_key_that_was_not_written_is_not_taken_for_prepared() {
    let node = start().await;
    let [written, other] = [b"a", b"b"].map(|name| TENANT.prefixed(name));
    let id = Bytes::from_static(&[3; 16]);
    let header = Header { txn: Some(TxnMeta { id: id.clone(), ..TxnMeta::default() }), ..Header::default() };
    let first = Put { key: TENANT.prefixed(b"c"), value: Bytes::from_static(b"1"), sequence: 1 };
    let lone = ask(&node, Caller::Tenant(TENANT), Header::default(), vec![RequestKind::Put(first)]).await;
    let timestamp = lone.commit_timestamp.expect("committed");
    let prepare = Prepare { anchor: TENANT.prefixed(b"z"), timestamp, staged: vec![] };
    let put = Put { key: written.clone(), value: Bytes::from_static(b"1"), sequence: 1 };
    let end = EndTxn { commit: true, prepare: Some(prepare), ..EndTxn::default() };
    let requests = vec![RequestKind::Put(put), RequestKind::EndTxn(end)];
    let prepared = ask(&node, Caller::Tenant(TENANT), header, requests).await.prepared_at;
    for (key, status) in [(written, OutcomeStatus::Prepared), (other, OutcomeStatus::Aborted)] {
        let question =
            AskOutcome { tenant: TENANT.0, txn: id.clone(), key, confirm: prepared, committed: None };
        assert_eq!(answer(&node, question).await.expect("an answer").status(), status);
    }
}

/// The lease was lost after somebody began to settle a part or to look what becomes of it, and what was known of it
/// is forgotten: nothing follows from that.
#[tokio::test]
async fn what_is_not_found_counts_only_under_the_lease_under_which_it_was_looked_for() {
    let node = start().await;
    let put = Put { key: TENANT.prefixed(b"a"), value: Bytes::from_static(b"1"), sequence: 1 };
    ask(&node, Caller::Tenant(TENANT), Header::default(), vec![RequestKind::Put(put)]).await;
    let range = node.pipeline.awake_for(&TENANT.span()).expect("awake");
    let (lease, other) = (node.pipeline.lease(range).expect("held"), u64::MAX);
    let of_range = (TENANT.0, range);
    assert_eq!(node.settle_jobs(of_range, lease, vec![]).await, Ok(()));
    let kind = |result: Result<(), KvError>| result.map_err(|error| error.kind());
    assert_eq!(kind(node.settle_jobs(of_range, other, vec![]).await), Err(KvErrorKind::Unavailable));

    let part = PartKey { range, txn: TxnKey { tenant: TENANT.0, id: [3; 16] } };
    let latches = Arc::new(node.latch(TENANT.0, vec![(record_latch(part), Access::Write)]).await);
    let span = node.pipeline.span(range).expect("there");
    let record = || txn_record::get(&*node.engine, &span.start, &part.txn.id).expect("read");
    let aborted = node.abort_record(part, &span.start, other, &latches).await;
    assert_eq!((kind(aborted), record()), (Err(KvErrorKind::Unavailable), None));
    assert_eq!(kind(node.abort_record(part, &span.start, lease, &latches).await), Ok(()));
    assert_eq!(record().map(|record| record.status), Some(RecordStatus::Aborted));
}

/// A coordinator is slow: somebody asks whether its part is prepared where it was meant to commit. It is not, but
/// above, and the coordinator may commit it there yet.
#[tokio::test]
async fn a_part_prepared_above_what_is_asked_for_can_be_committed_there() {
    let node = start().await;
    let tenant = Caller::Tenant(TENANT);
    let key = TENANT.prefixed(b"a");
    let put = || Put { key: key.clone(), value: Bytes::from_static(b"1"), sequence: 1 };
    let get = || vec![RequestKind::Get(Get { key: key.clone(), lock: 0 })];
    let late = ask(&node, tenant, Header::default(), vec![RequestKind::Put(put())]).await;
    let late = late.commit_timestamp.expect("committed");

    let id = Bytes::from_static(&[3; 16]);
    let txn = Some(TxnMeta { id: id.clone(), ..TxnMeta::default() });
    let header = || Header { txn: txn.clone(), ..Header::default() };
    let prepare = Prepare { anchor: key.clone(), timestamp: late, staged: vec![key.clone()] };
    let end = EndTxn { commit: true, prepare: Some(prepare), ..EndTxn::default() };
    let value = Bytes::from_static(b"2");
    let requests = vec![RequestKind::Put(Put { value: value.clone(), ..put() }), RequestKind::EndTxn(end)];
    let prepared = ask(&node, tenant, header(), requests).await.prepared_at.expect("prepared");
    assert!(prepared > late, "{late} was too late already");

    let question =
        AskOutcome { tenant: TENANT.0, txn: id, key: key.clone(), confirm: Some(late), committed: None };
    let answered = answer(&node, question.clone()).await.expect("an answer");
    assert_eq!(answered.status(), OutcomeStatus::Aborted, "it never will be prepared there");
    let question = AskOutcome { confirm: Some(prepared), ..question };
    let answered = answer(&node, question).await.expect("an answer");
    assert_eq!((answered.status(), answered.timestamp), (OutcomeStatus::Prepared, prepared));

    let decide = DecideTxn { anchor: key.clone(), timestamp: prepared, ..DecideTxn::default() };
    let decided = ask(&node, tenant, header(), vec![RequestKind::DecideTxn(decide)]).await;
    assert_eq!(decided.commit_timestamp, Some(prepared));
    let read = ask(&node, tenant, Header::default(), get()).await;
    assert_eq!(read.responses[0].value, Some(value));
}

/// A request was under way when the lease was lost: what came to be known of its transaction then is forgotten, though
/// not under a lease that is held.
#[tokio::test]
async fn what_came_after_a_lease_was_lost_is_forgotten() {
    let engine = Arc::new(MemoryEngine::new());
    let begin = || Node::start(engine.clone(), Limits::default()).expect("start");
    let node = begin();
    let create = RequestKind::CreateTenant(CreateTenant { tenant_id: TENANT.0 });
    ask(&node, Caller::Control, Header::default(), vec![create]).await;
    let put = Put { key: TENANT.prefixed(b"a"), value: Bytes::from_static(b"1"), sequence: 1 };
    ask(&node, Caller::Tenant(TENANT), Header::default(), vec![RequestKind::Put(put)]).await;
    let range = node.pipeline.awake_for(&TENANT.span()).expect("awake");
    drop(node);
    engine.crash();

    let node = begin();
    let part = PartKey { range, txn: TxnKey { tenant: TENANT.0, id: [3; 16] } };
    let is_known = || node.shard(TENANT.0).ranges_used().any(|used| used == range);
    for held in [false, true] {
        if held {
            node.ready(range).await.expect("served");
        }
        assert!(!is_known());
        let connection = node.open_connection(TENANT);
        node.shard(TENANT.0).open_txn(part, connection, node.pipeline.millis());
        recover_all(&node).await;
        // What was asked of the ranges before is done by then.
        node.pipeline.nodes().await.expect("an answer");
        assert_eq!(is_known(), held);
    }
}
