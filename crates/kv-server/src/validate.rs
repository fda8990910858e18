//! Whether a batch is well-formed and within limits, once it is known whose it is.

use crate::config::Limits;
use kv_api::batch::{EndTxn, RangeConfig, RequestKind, WaitPolicy};
use kv_api::key::{MAX_KEY_LEN, MAX_VALUE_LEN};
use kv_api::{BatchRequest, KvError, KvErrorKind, LockStrength};

/// Checks a batch.
///
/// # Errors
/// [`KvErrorKind::InvalidRequest`] that says what is wrong.
pub fn validate(batch: &BatchRequest, limits: &Limits) -> Result<(), KvError> {
    let header = &batch.header;
    if batch.requests.is_empty() {
        return Err(invalid("a batch holds at least one request"));
    }
    if batch.requests.len() > limits.max_requests_per_batch {
        return Err(invalid(format!("a batch holds at most {} requests", limits.max_requests_per_batch)));
    }
    if header.refresh_spans.len() > limits.max_refresh_spans {
        return Err(invalid(format!("a batch holds at most {} refresh spans", limits.max_refresh_spans)));
    }
    if let Some(txn) = &header.txn {
        if txn.id.len() != 16 {
            return Err(invalid("a transaction id has 16 bytes"));
        }
        if txn.ignored.iter().any(|range| range.from >= range.to) {
            return Err(invalid("an ignored range of sequence numbers is empty"));
        }
    }
    if header.any_replica && header.txn.is_some() {
        return Err(invalid("reads of a transaction that is known are for the leaseholder"));
    }
    if WaitPolicy::try_from(header.wait_policy).is_err() {
        return Err(invalid("unknown wait policy"));
    }
    for span in &header.refresh_spans {
        key(&span.start)?;
        if !span.is_point() {
            range(&span.start, &span.end)?;
        }
    }
    if !header.refresh_spans.is_empty() && header.read_timestamp.is_none() {
        return Err(invalid("refresh spans need a read timestamp"));
    }
    batch.requests.iter().try_for_each(|request| match &request.kind {
        Some(kind) => request_kind(kind),
        None => Err(invalid("a request of the batch has no kind this version knows")),
    })?;
    combination(batch)
}

fn request_kind(kind: &RequestKind) -> Result<(), KvError> {
    match kind {
        RequestKind::Get(request) => key(&request.key).and_then(|()| lock(request.lock)),
        RequestKind::Scan(request)
            if request.program.is_some() && request.lock != LockStrength::None as i32 =>
        {
            Err(invalid("a scan with a program takes no locks"))
        }
        RequestKind::Scan(request)
            if request.limit > 0 && request.program.as_ref().is_some_and(|one| one.aggregation.is_some()) =>
        {
            Err(invalid("a scan that aggregates has no limit of rows"))
        }
        RequestKind::Scan(request) => range(&request.start, &request.end).and_then(|()| lock(request.lock)),
        RequestKind::Put(request) => key(&request.key).and_then(|()| value(&request.value)),
        RequestKind::ConditionalPut(request) => key(&request.key).and_then(|()| value(&request.value)),
        RequestKind::Delete(request) => key(&request.key),
        RequestKind::DeleteRange(request) => range(&request.start, &request.end),
        RequestKind::Increment(request) => key(&request.key),
        RequestKind::ClearRange(request) => range(&request.start, &request.end),
        RequestKind::ListContention(request) => range(&request.start, &request.end),
        RequestKind::RangeLookup(request) => key(&request.key),
        RequestKind::ConfigureTenant(request) if request.config.global_reads => {
            Err(invalid("only spans are read everywhere"))
        }
        RequestKind::ConfigureTenant(request) => span_config(&request.config),
        RequestKind::ConfigureSpan(request) => {
            range(&request.start, &request.end)?;
            request.config.as_ref().map_or(Ok(()), span_config)
        }
        RequestKind::DecideTxn(request) if request.parts.len().max(request.settles.len()) > MAX_STAGED => {
            Err(invalid(format!("a transaction has at most {MAX_STAGED} parts")))
        }
        RequestKind::DecideTxn(request) => {
            request.parts.iter().chain([&request.anchor]).try_for_each(|part| key(part))
        }
        RequestKind::ResolveTxn(request) => key(&request.key),
        RequestKind::DetachTxn(request) => key(&request.key),
        RequestKind::AdoptTxn(request) => key(&request.key),
        RequestKind::SplitRange(request) => key(&request.key),
        RequestKind::MergeRange(request) => range(&request.start, &request.end),
        RequestKind::EndTxn(request) => end(request),
        RequestKind::Refresh(_)
        | RequestKind::DropTenant(_)
        | RequestKind::Nodes(_)
        | RequestKind::DrainNode(_)
        | RequestKind::CreateTenant(_)
        | RequestKind::Ranges(_)
        | RequestKind::CheckReplicas(_) => Ok(()),
    }
}

fn end(request: &EndTxn) -> Result<(), KvError> {
    if request.commit && request.for_good {
        return Err(invalid("what is committed is not aborted for good"));
    }
    let Some(prepare) = &request.prepare else { return Ok(()) };
    if !request.commit || request.commit_at.is_some() {
        return Err(invalid("what is prepared is neither aborted nor committed by the same request"));
    }
    if prepare.staged.len() > MAX_STAGED {
        return Err(invalid(format!("a staging record holds at most {MAX_STAGED} keys")));
    }
    prepare.staged.iter().chain([&prepare.anchor]).try_for_each(|staged| key(staged))
}

/// Which kinds may stand together.
fn combination(batch: &BatchRequest) -> Result<(), KvError> {
    let kinds = || batch.requests.iter().filter_map(|request| request.kind.as_ref());
    let outside =
        kinds().filter(|kind| matches!(kind, RequestKind::Increment(_) | RequestKind::ClearRange(_))).count();
    if outside > 0 && outside < batch.requests.len() {
        return Err(invalid("requests outside transactions do not share a batch with others"));
    }
    if kinds().any(RequestKind::is_about_cluster) && (batch.requests.len() > 1 || batch.header.txn.is_some())
    {
        return Err(invalid("a request about the cluster stands alone and in no transaction"));
    }
    let lists = |kind: &RequestKind| matches!(kind, RequestKind::ListContention(_));
    if kinds().any(lists) && (batch.requests.len() > 1 || batch.header.txn.is_some()) {
        return Err(invalid("contention is listed alone and in no transaction"));
    }
    let decides = |kind: &RequestKind| matches!(kind, RequestKind::DecideTxn(_) | RequestKind::ResolveTxn(_));
    if kinds().any(decides) && (batch.requests.len() > 1 || batch.header.txn.is_none()) {
        return Err(invalid("what was decided of a transaction is said alone, and of which transaction"));
    }
    let transfers = |kind: &RequestKind| matches!(kind, RequestKind::DetachTxn(_) | RequestKind::AdoptTxn(_));
    if kinds().any(transfers) && (batch.requests.len() > 1 || batch.header.txn.is_none()) {
        return Err(invalid("a transaction is handed over by a request that stands alone and names it"));
    }
    let ends = kinds().filter(|kind| matches!(kind, RequestKind::EndTxn(_))).count();
    if ends > 0 {
        let last = matches!(kinds().last(), Some(RequestKind::EndTxn(_)));
        if ends > 1 || !last {
            return Err(invalid("the end of a transaction is the last request of its batch"));
        }
        if batch.header.txn.is_none() {
            return Err(invalid("the end of a transaction names the transaction"));
        }
    }
    if kinds().any(|kind| matches!(kind, RequestKind::Refresh(_)))
        && (batch.requests.len() > 1 || batch.header.read_timestamp.is_none())
    {
        return Err(invalid("a refresh stands alone and has a read timestamp"));
    }
    Ok(())
}

/// Most keys of a staging record.
pub const MAX_STAGED: usize = 256;

/// Bounds on how a range can be kept: what replicas read at every look.
const MAX_REPLICAS: u32 = 7;
const MAX_PAIRS: usize = 16;
const MAX_PAIR_LEN: usize = 256;

fn config(config: &RangeConfig) -> Result<(), KvError> {
    let pairs = || config.constraints.iter().chain(&config.lease_preferences);
    if config.replicas > MAX_REPLICAS {
        return Err(invalid(format!("a range has at most {MAX_REPLICAS} replicas")));
    }
    if pairs().count() > MAX_PAIRS {
        return Err(invalid(format!("at most {MAX_PAIRS} constraints and preferences can be given")));
    }
    if pairs().any(|pair| !pair.contains('=') || pair.len() > MAX_PAIR_LEN) {
        return Err(invalid("constraints and preferences are pairs of key=value"));
    }
    Ok(())
}

/// How a span is kept, or a tenant besides its spans: these are set one by one.
fn span_config(asked: &RangeConfig) -> Result<(), KvError> {
    if !asked.spans.is_empty() || !asked.span_start.is_empty() {
        return Err(invalid("spans are configured one by one"));
    }
    config(asked)
}

fn key(key: &[u8]) -> Result<(), KvError> {
    match key.len() {
        0 => Err(invalid("a key is empty")),
        len if len > MAX_KEY_LEN => {
            Err(invalid(format!("a key of {len} bytes exceeds the limit of {MAX_KEY_LEN}")))
        }
        _ => Ok(()),
    }
}

fn value(value: &[u8]) -> Result<(), KvError> {
    if value.len() > MAX_VALUE_LEN {
        return Err(invalid(format!(
            "a value of {} bytes exceeds the limit of {MAX_VALUE_LEN}",
            value.len()
        )));
    }
    Ok(())
}

fn range(start: &[u8], end: &[u8]) -> Result<(), KvError> {
    key(start)?;
    key(end)?;
    if start >= end { Err(invalid("a span ends before it starts")) } else { Ok(()) }
}

fn lock(strength: i32) -> Result<(), KvError> {
    LockStrength::try_from(strength).map(drop).map_err(|_| invalid("unknown lock strength"))
}

fn invalid(message: impl Into<String>) -> KvError {
    KvError::new(KvErrorKind::InvalidRequest, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use kv_api::batch::*;
    use kv_api::columns::{Aggregation, Program};
    use kv_api::{Span, Timestamp};

    fn batch(kinds: Vec<RequestKind>) -> BatchRequest {
        BatchRequest { header: Header::default(), requests: kinds.into_iter().map(Request::from).collect() }
    }

    fn check(batch: &BatchRequest) -> Result<(), String> {
        validate(batch, &Limits::default()).map_err(|error| {
            assert_eq!(error.kind(), KvErrorKind::InvalidRequest);
            error.message
        })
    }

    fn get(len: usize) -> RequestKind {
        RequestKind::Get(Get { key: Bytes::from(vec![1; len]), lock: 0 })
    }

    fn scan(start: &'static [u8], end: &'static [u8]) -> RequestKind {
        let (start, end) = (Bytes::from_static(start), Bytes::from_static(end));
        RequestKind::Scan(Scan { start, end, ..Scan::default() })
    }

    #[test]
    fn limits_hold() {
        assert!(check(&batch(vec![get(1), get(MAX_KEY_LEN), scan(b"a", b"b")])).is_ok());
        for bad in [
            vec![],
            vec![get(0)],
            vec![get(MAX_KEY_LEN + 1)],
            vec![scan(b"b", b"a")],
            vec![scan(b"a", b"a")],
            vec![scan(b"a", b"")],
            vec![scan(b"", b"a")],
        ] {
            assert!(check(&batch(bad)).is_err());
        }
        let value = Bytes::from(vec![0; MAX_VALUE_LEN + 1]);
        let put = RequestKind::Put(Put { key: Bytes::from_static(b"k"), value, sequence: 1 });
        assert!(check(&batch(vec![put])).is_err());
        let limits = Limits { max_requests_per_batch: 2, max_refresh_spans: 1, ..Limits::default() };
        assert!(validate(&batch(vec![get(1), get(1), get(1)]), &limits).is_err());
        let mut spans = batch(vec![get(1)]);
        spans.header.read_timestamp = Some(Timestamp::new(1, 0));
        spans.header.refresh_spans = vec![Span::point(Bytes::from_static(b"a")); 2];
        assert!(validate(&spans, &limits).is_err());
        spans.header.refresh_spans.pop();
        assert!(validate(&spans, &limits).is_ok());
        spans.header.read_timestamp = None;
        assert!(validate(&spans, &limits).is_err());
    }

    #[test]
    fn what_programs_cannot_go_with_is_refused() {
        let program = |aggregation| Program { aggregation, ..Program::default() };
        let with = |limit, lock: LockStrength, aggregation| {
            let (start, end) = (Bytes::from_static(b"a"), Bytes::from_static(b"b"));
            let program = Some(Box::new(program(aggregation)));
            let scan = Scan { start, end, limit, lock: lock as i32, program, ..Scan::default() };
            check(&batch(vec![RequestKind::Scan(scan)])).is_ok()
        };
        assert!(with(5, LockStrength::None, None));
        assert!(with(0, LockStrength::None, Some(Aggregation::default())));
        assert!(!with(0, LockStrength::Shared, None));
        assert!(!with(5, LockStrength::None, Some(Aggregation::default())));
    }

    #[test]
    fn unknown_numbers_are_refused() {
        let unknown = BatchRequest { header: Header::default(), requests: vec![Request { kind: None }] };
        assert!(check(&unknown).is_err());
        assert!(
            check(&batch(vec![RequestKind::Get(Get { key: Bytes::from_static(b"k"), lock: 9 })])).is_err()
        );
        let mut policy = batch(vec![get(1)]);
        policy.header.wait_policy = 17;
        assert!(check(&policy).is_err());
        let mut txn = batch(vec![get(1)]);
        txn.header.txn = Some(TxnMeta { id: Bytes::from_static(b"short"), ..TxnMeta::default() });
        assert!(check(&txn).is_err());
    }

    #[test]
    fn kinds_that_exclude_each_other_are_refused() {
        let end = || RequestKind::EndTxn(EndTxn { commit: true, ..EndTxn::default() });
        let increment = || RequestKind::Increment(Increment { key: Bytes::from_static(b"k"), by: 1 });
        assert!(check(&batch(vec![increment(), increment()])).is_ok());
        assert!(check(&batch(vec![increment(), get(1)])).is_err());
        assert!(check(&batch(vec![end()])).is_err(), "no transaction named");
        let mut commit = batch(vec![get(1), end()]);
        commit.header.txn = Some(TxnMeta { id: Bytes::from(vec![1; 16]), ..TxnMeta::default() });
        assert!(check(&commit).is_ok());
        commit.requests.reverse();
        assert!(check(&commit).is_err());
        assert!(check(&batch(vec![RequestKind::Refresh(Refresh::default())])).is_err(), "no read timestamp");
        let nodes = || RequestKind::Nodes(NodesRequest {});
        assert!(check(&batch(vec![nodes()])).is_ok());
        assert!(check(&batch(vec![nodes(), nodes()])).is_err());
        let drain = || RequestKind::DrainNode(DrainNode { node_id: 2, undo: false });
        assert!(check(&batch(vec![drain()])).is_ok());
        assert!(check(&batch(vec![drain(), get(1)])).is_err());
        commit.requests = vec![drain().into()];
        assert!(check(&commit).is_err(), "in a transaction");
    }
}
