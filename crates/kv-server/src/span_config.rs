//! How the ranges of a tenant and of its spans are kept.
//!
//! A range's descriptor says how it is kept, in an encoded [`RangeConfig`]. That of the tenant's first range is the
//! tenant's: it names besides the *spans* of keys that are kept otherwise ([`SpanConfig`]). What a span leaves open
//! is as for the tenant. A span is a piece of one tenant's keys; spans do not overlap, and there are few.
//!
//! ```text
//!  first range: replicas=3, spans: [c, f) constraints region=eu       ranges     [start, c)  [c, f)     [f, end)
//!                                                                     kept as    tenant      region=eu  tenant
//! ```
//!
//! Nothing but the first range's descriptor has to be changed when a span is set. The leaseholder of the root range
//! sees it in the directory, has ranges split that lie across the border of a span, and tells those that are kept
//! otherwise than their span ([`crate::cluster`], `configuring`). So for a moment after a change ranges are kept as
//! before. A range that is split off another takes over how that is kept, until it is told.
//!
//! The configuration of a range in a span names the first key of the span, so that two neighbours that are kept
//! alike and belong to different spans can be told apart: they must not become one.
//!
//! What is missing: spans within spans.

use bytes::Bytes;
use kv_api::batch::{MAX_SPANS, RangeConfig, SpanConfig};
use kv_api::{KvError, KvErrorKind, Span};
use prost::Message;

/// A configuration from a descriptor or record. What cannot be read is the default.
pub fn decode(config: &[u8]) -> RangeConfig {
    RangeConfig::decode(config).unwrap_or_default()
}

/// How a range is kept whose descriptor or record has this configuration and first key.
pub fn kept(config: &[u8], start: &[u8]) -> RangeConfig {
    wanted(&decode(config), start)
}

/// How a range that begins with a key is to be kept where a tenant's configuration is this.
pub fn wanted(tenant: &RangeConfig, start: &[u8]) -> RangeConfig {
    let span = tenant.spans.iter().find(|span| start >= &span.start[..] && start < &span.end[..]);
    let base = RangeConfig { spans: Vec::new(), ..tenant.clone() };
    let Some(SpanConfig { start, config, .. }) = span else { return base };
    let or = |own: &Vec<String>, base: Vec<String>| if own.is_empty() { base } else { own.clone() };
    RangeConfig {
        replicas: if config.replicas == 0 { base.replicas } else { config.replicas },
        constraints: or(&config.constraints, base.constraints),
        lease_preferences: or(&config.lease_preferences, base.lease_preferences),
        gc_ttl_s: if config.gc_ttl_s == 0 { base.gc_ttl_s } else { config.gc_ttl_s },
        global_reads: config.global_reads,
        spans: Vec::new(),
        span_start: start.clone(),
    }
}

/// What a range takes over that is split off one with this configuration and first key.
pub fn inherited(config: &Bytes, start: &[u8]) -> Bytes {
    if decode(config).spans.is_empty() { config.clone() } else { kept(config, start).encode_to_vec().into() }
}

/// Whether two neighbouring ranges with these configurations and first keys are kept alike and within the same span.
pub fn alike(left: (&[u8], &[u8]), right: (&[u8], &[u8])) -> bool {
    kept(left.0, left.1) == kept(right.0, right.1)
}

/// The borders of spans that lie within some keys and not at their ends.
pub fn borders<'a>(tenant: &'a RangeConfig, within: &'a Span) -> impl Iterator<Item = &'a Bytes> {
    let borders = tenant.spans.iter().flat_map(|span| [&span.start, &span.end]);
    borders.filter(|border| **border > within.start && **border < within.end)
}

/// A tenant's configuration once a span is kept as `config` says; absent: no longer otherwise than the tenant.
///
/// # Errors
/// [`KvErrorKind::InvalidRequest`] if the span overlaps another or there are too many.
pub fn with_span(
    tenant: RangeConfig,
    span: &Span,
    config: Option<RangeConfig>,
) -> Result<RangeConfig, KvError> {
    let invalid = |message: String| Err(KvError::new(KvErrorKind::InvalidRequest, message));
    let mut spans = tenant.spans;
    spans.retain(|other| other.start != span.start || other.end != span.end);
    if let Some(config) = config {
        if spans.iter().any(|other| other.start < span.end && span.start < other.end) {
            return invalid("the span overlaps another that is configured".to_owned());
        }
        if spans.len() >= MAX_SPANS {
            return invalid(format!("at most {MAX_SPANS} spans of a tenant can be configured"));
        }
        spans.push(SpanConfig { start: span.start.clone(), end: span.end.clone(), config });
        spans.sort_by(|one, other| one.start.cmp(&other.start));
    }
    Ok(RangeConfig { spans, ..tenant })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: &'static str, end: &'static str) -> Span {
        Span::new(Bytes::from_static(start.as_bytes()), Bytes::from_static(end.as_bytes()))
    }

    fn eu() -> RangeConfig {
        RangeConfig { constraints: vec!["region=eu".into()], ..RangeConfig::default() }
    }

    fn tenant() -> RangeConfig {
        let base = RangeConfig { replicas: 5, gc_ttl_s: 7, ..RangeConfig::default() };
        with_span(base, &span("c", "f"), Some(eu())).expect("set")
    }

    #[test]
    fn a_range_is_kept_as_its_span_and_otherwise_as_the_tenant() {
        let tenant = tenant();
        let inside = wanted(&tenant, b"d");
        assert_eq!((inside.replicas, inside.gc_ttl_s, &inside.constraints), (5, 7, &eu().constraints));
        assert_eq!((&inside.span_start[..], inside.spans.len()), (&b"c"[..], 0));
        let base = RangeConfig { replicas: 5, gc_ttl_s: 7, ..RangeConfig::default() };
        for outside in [&b"b"[..], b"f", b""] {
            assert_eq!(wanted(&tenant, outside), base);
        }
        let encoded: Bytes = tenant.encode_to_vec().into();
        assert_eq!(kept(&inherited(&encoded, b"a"), b"x"), base, "spans are the first range's alone");
        assert_eq!(kept(&inherited(&encoded, b"c"), b"x"), inside);
        let inner: Bytes = inside.encode_to_vec().into();
        assert_eq!(inherited(&inner, b"c"), inner);
    }

    #[test]
    fn spans_do_not_overlap_and_are_few() {
        let tenant = tenant();
        for overlapping in [span("a", "d"), span("d", "e"), span("e", "z"), span("c", "e"), span("a", "z")] {
            let error = with_span(tenant.clone(), &overlapping, Some(eu())).expect_err("overlaps");
            assert_eq!(error.kind(), KvErrorKind::InvalidRequest);
        }
        let more = with_span(tenant.clone(), &span("f", "h"), Some(eu())).expect("next to it");
        let more = with_span(more, &span("a", "b"), Some(eu())).expect("before it");
        let starts: Vec<&[u8]> = more.spans.iter().map(|span| &span.start[..]).collect();
        assert_eq!(starts, [b"a", b"c", b"f"]);
        let global = RangeConfig { global_reads: true, ..RangeConfig::default() };
        let changed = with_span(tenant.clone(), &span("c", "f"), Some(global)).expect("changed");
        assert!(wanted(&changed, b"c").global_reads && changed.spans.len() == 1);
        assert!(with_span(tenant.clone(), &span("c", "f"), None).expect("removed").spans.is_empty());
        assert_eq!(with_span(tenant.clone(), &span("x", "y"), None), Ok(tenant));
        let mut many = RangeConfig::default();
        for number in 0..MAX_SPANS {
            let key = |last: &str| Bytes::from(format!("{number:04}{last}"));
            many = with_span(many, &Span::new(key("a"), key("b")), Some(eu())).expect("set");
        }
        assert!(with_span(many, &span("x", "y"), Some(eu())).is_err());
    }

    #[test]
    fn borders_divide_what_lies_across_them() {
        let tenant = tenant();
        let found = |start, end| {
            let within = span(start, end);
            borders(&tenant, &within).map(|border| String::from_utf8_lossy(border).into()).collect()
        };
        let found: [Vec<String>; 4] = [found("a", "z"), found("c", "f"), found("d", "z"), found("a", "c")];
        assert_eq!(found, [vec!["c".to_owned(), "f".to_owned()], vec![], vec!["f".to_owned()], vec![]]);
        let neighbours = with_span(tenant, &span("f", "h"), Some(eu())).expect("set").encode_to_vec();
        let inside = |start: &[u8]| kept(&neighbours, start).encode_to_vec();
        assert!(!alike((&inside(b"c"), b"c"), (&inside(b"f"), b"f")), "kept alike, in different spans");
        assert!(alike((&neighbours, b"a"), (&inside(b"h"), b"h")) && alike((b"", b"a"), (b"", b"x")));
    }
}
