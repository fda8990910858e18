//! What a transaction has read and must find unchanged if its read timestamp moves
//! (`cockroachdb-2020`, section 3.4).

use bytes::Bytes;
use kv_api::Span;

/// Spans kept before neighbours are merged.
const MAX_SPANS: usize = 512;
/// Bytes of keys kept before neighbours are merged.
const MAX_BYTES: usize = 256 << 10;

/// The spans read so far. Merging only ever widens them, which can cause a needless retry but never
/// hides a change.
#[derive(Default)]
pub struct RefreshSpans {
    spans: Vec<Span>,
    bytes: usize,
}

impl RefreshSpans {
    /// Adds a span.
    pub fn add(&mut self, span: Span) {
        if self.spans.last().is_some_and(|last| covers(last, &span)) {
            return;
        }
        self.bytes += span.start.len() + span.end.len();
        self.spans.push(span);
        if self.spans.len() > MAX_SPANS || self.bytes > MAX_BYTES {
            self.condense();
        }
    }

    /// The spans, to send.
    pub fn to_vec(&self) -> Vec<Span> {
        self.spans.clone()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.bytes = 0;
    }

    /// Merges what overlaps, then neighbours pairwise until half of the budget is free.
    fn condense(&mut self) {
        self.spans.sort_unstable_by(|left, right| left.start.cmp(&right.start));
        let mut merged: Vec<Span> = Vec::with_capacity(self.spans.len());
        for span in self.spans.drain(..) {
            match merged.last_mut() {
                Some(last) if span.start < end_of(last) => *last = hull(last, &span),
                _ => merged.push(span),
            }
        }
        while merged.len() > 1 && (merged.len() > MAX_SPANS / 2 || size(&merged) > MAX_BYTES / 2) {
            merged = merged
                .chunks(2)
                .map(|pair| match pair {
                    [left, right] => hull(left, right),
                    rest => rest[0].clone(),
                })
                .collect();
        }
        self.bytes = size(&merged);
        self.spans = merged;
    }
}

fn size(spans: &[Span]) -> usize {
    spans.iter().map(|span| span.start.len() + span.end.len()).sum()
}

/// The first key after a span.
fn end_of(span: &Span) -> Bytes {
    if !span.is_point() {
        return span.end.clone();
    }
    let mut end = Vec::with_capacity(span.start.len() + 1);
    end.extend_from_slice(&span.start);
    end.push(0);
    end.into()
}

fn covers(outer: &Span, inner: &Span) -> bool {
    if outer == inner {
        return true;
    }
    !outer.is_point() && inner.start >= outer.start && end_of(inner) <= outer.end
}

/// The smallest span that holds both.
fn hull(left: &Span, right: &Span) -> Span {
    Span::new(left.start.clone().min(right.start.clone()), end_of(left).max(end_of(right)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};

    #[test]
    fn merging_never_loses_a_key() {
        let mut rng = rand::rngs::StdRng::seed_from_u64(1);
        let mut spans = RefreshSpans::default();
        let mut keys = Vec::new();
        for _ in 0..5_000 {
            let key = Bytes::from(format!("{:06}", rng.random_range(0..1_000_000)));
            let span = if rng.random_bool(0.3) {
                Span::new(key.clone(), Bytes::from([&key[..], b"9"].concat()))
            } else {
                Span::point(key.clone())
            };
            keys.push(key);
            spans.add(span);
            assert!(spans.spans.len() <= MAX_SPANS && spans.bytes <= MAX_BYTES);
        }
        for key in &keys {
            assert!(spans.spans.iter().any(|span| span.contains(key)), "{key:?} was lost");
        }
    }

    #[test]
    fn the_same_span_twice_counts_once() {
        let mut spans = RefreshSpans::default();
        (0..3).for_each(|_| spans.add(Span::point(Bytes::from_static(b"k"))));
        assert_eq!(spans.to_vec().len(), 1);
        spans.add(Span::new(Bytes::from_static(b"a"), Bytes::from_static(b"z")));
        spans.add(Span::point(Bytes::from_static(b"m")));
        assert_eq!(spans.to_vec().len(), 2);
    }
}
