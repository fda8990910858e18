//! Whether a batch lies within a range.

use bytes::Bytes;
use kv_api::batch::RequestKind;
use kv_api::{BatchRequest, Span, TenantId};

/// Whether every key and span of a batch lies within `range`. The batch is known to lie within the tenant.
pub fn within(batch: &BatchRequest, tenant: u64, range: &Span) -> bool {
    let all = TenantId(tenant).span();
    // Also for batches that name no key: nobody works on a range that has none of theirs.
    if range.end <= all.start || all.end <= range.start {
        return false;
    }
    if range.start <= all.start && all.end <= range.end {
        return true;
    }
    batch.header.refresh_spans.iter().all(|span| holds(range, span))
        && batch.requests.iter().all(|request| match &request.kind {
            Some(RequestKind::Get(request)) => range.contains(&request.key),
            Some(RequestKind::Put(request)) => range.contains(&request.key),
            Some(RequestKind::ConditionalPut(request)) => range.contains(&request.key),
            Some(RequestKind::Delete(request)) => range.contains(&request.key),
            Some(RequestKind::Increment(request)) => range.contains(&request.key),
            Some(RequestKind::DecideTxn(request)) => range.contains(&request.anchor),
            Some(RequestKind::ResolveTxn(request)) => range.contains(&request.key),
            Some(RequestKind::DetachTxn(request)) => range.contains(&request.key),
            Some(RequestKind::AdoptTxn(request)) => range.contains(&request.key),
            Some(RequestKind::Scan(request)) => reaches(range, &request.start, &request.end),
            Some(RequestKind::DeleteRange(request)) => reaches(range, &request.start, &request.end),
            Some(RequestKind::ClearRange(request)) => reaches(range, &request.start, &request.end),
            Some(RequestKind::ListContention(request)) => reaches(range, &request.start, &request.end),
            _ => true,
        })
}

/// Keys that a batch is about: those of one of its requests, chosen by `turn`.
pub fn some_keys(batch: &BatchRequest, turn: usize) -> Option<Span> {
    let of_request = |kind: &RequestKind| match kind {
        RequestKind::Get(request) => Some(Span::point(request.key.clone())),
        RequestKind::Put(request) => Some(Span::point(request.key.clone())),
        RequestKind::ConditionalPut(request) => Some(Span::point(request.key.clone())),
        RequestKind::Delete(request) => Some(Span::point(request.key.clone())),
        RequestKind::Increment(request) => Some(Span::point(request.key.clone())),
        RequestKind::Scan(request) => Some(Span::new(request.start.clone(), request.end.clone())),
        RequestKind::DeleteRange(request) => Some(Span::new(request.start.clone(), request.end.clone())),
        RequestKind::ClearRange(request) => Some(Span::new(request.start.clone(), request.end.clone())),
        _ => None,
    };
    let request = batch.requests.get(turn.checked_rem(batch.requests.len())?)?;
    request.kind.as_ref().and_then(of_request)
}

/// A key of a batch, if it names one.
pub fn first_key(batch: &BatchRequest) -> Option<Bytes> {
    let of_request = |kind: &RequestKind| match kind {
        RequestKind::Get(request) => Some(request.key.clone()),
        RequestKind::Put(request) => Some(request.key.clone()),
        RequestKind::ConditionalPut(request) => Some(request.key.clone()),
        RequestKind::Delete(request) => Some(request.key.clone()),
        RequestKind::Increment(request) => Some(request.key.clone()),
        RequestKind::DecideTxn(request) => Some(request.anchor.clone()),
        RequestKind::ResolveTxn(request) => Some(request.key.clone()),
        RequestKind::DetachTxn(request) => Some(request.key.clone()),
        RequestKind::AdoptTxn(request) => Some(request.key.clone()),
        RequestKind::Scan(request) => Some(request.start.clone()),
        RequestKind::DeleteRange(request) => Some(request.start.clone()),
        RequestKind::ClearRange(request) => Some(request.start.clone()),
        RequestKind::ListContention(request) => Some(request.start.clone()),
        _ => None,
    };
    let kinds = batch.requests.iter().filter_map(|request| request.kind.as_ref());
    kinds
        .filter_map(of_request)
        .next()
        .or_else(|| batch.header.refresh_spans.first().map(|span| span.start.clone()))
}

fn reaches(range: &Span, start: &[u8], end: &[u8]) -> bool {
    range.contains(start) && end <= &range.end[..]
}

/// Whether a span lies within a range.
pub fn holds(range: &Span, span: &Span) -> bool {
    if span.is_point() { range.contains(&span.start) } else { reaches(range, &span.start, &span.end) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use kv_api::Header;
    use kv_api::batch::{Get, Scan};

    fn key(name: &str) -> Bytes {
        TenantId(7).prefixed(name.as_bytes())
    }

    #[test]
    fn every_key_and_every_end_counts() {
        let get = |name| RequestKind::Get(Get { key: key(name), lock: 0 });
        let scan =
            |start, end| RequestKind::Scan(Scan { start: key(start), end: key(end), ..Scan::default() });
        let batch = |kinds: Vec<RequestKind>, spans: Vec<Span>| BatchRequest {
            header: Header { refresh_spans: spans, ..Header::default() },
            requests: kinds.into_iter().map(Into::into).collect(),
        };
        let part = Span::new(key("b"), key("d"));
        assert!(within(&batch(vec![get("z")], vec![]), 7, &TenantId(7).span()), "the whole tenant");
        assert!(within(&batch(vec![get("b"), scan("c", "d")], vec![Span::point(key("c"))]), 7, &part));
        for outside in [get("a"), get("d"), scan("a", "c"), scan("c", "e")] {
            assert!(!within(&batch(vec![get("b"), outside], vec![]), 7, &part));
        }
        assert!(!within(&batch(vec![get("b")], vec![Span::new(key("c"), key("e"))]), 7, &part));
        assert!(!within(&batch(vec![get("b")], vec![]), 7, &TenantId(8).span()));
        let end = RequestKind::EndTxn(kv_api::batch::EndTxn { commit: true, ..Default::default() });
        assert!(within(&batch(vec![end.clone()], vec![]), 7, &part));
        assert!(!within(&batch(vec![end], vec![]), 7, &TenantId(8).span()), "a range of another tenant");
    }
}
