//! What a transaction has read and must find unchanged if its read timestamp moves
//! (`cockroachdb-2020`, section 3.4).

use crate::located::Located;
use bytes::Bytes;
use kv_api::Span;

/// Spans kept before neighbours are merged.
pub const MAX_SPANS: usize = 512;
/// Bytes of keys kept before neighbours are merged.
pub const MAX_BYTES: usize = 256 << 10;

/// The spans read so far. Merging only ever widens them, which can cause a needless retry but never
/// hides a change.
#[derive(Default)]
pub struct RefreshSpans {
    spans: Vec<Span>,
    bytes: usize,
    version: u64,
}

impl RefreshSpans {
    /// Adds a span. It is copied, for it may be part of a large frame.
    pub fn add(&mut self, span: &Span) {
        if let Some(last) = self.spans.last_mut() {
            if covers(last, span) {
                return;
            }
            // The next page of a scan, in either direction.
            if !last.is_point() && !span.is_point() {
                if last.end == span.start {
                    self.bytes = self.bytes + span.end.len() - last.end.len();
                    last.end = Bytes::copy_from_slice(&span.end);
                    self.version += 1;
                    return;
                }
                if last.start == span.end {
                    self.bytes = self.bytes + span.start.len() - last.start.len();
                    last.start = Bytes::copy_from_slice(&span.start);
                    self.version += 1;
                    return;
                }
            }
        }
        self.version += 1;
        self.bytes += span.start.len() + span.end.len();
        self.spans.push(Span {
            start: Bytes::copy_from_slice(&span.start),
            end: Bytes::copy_from_slice(&span.end),
        });
        if self.spans.len() > MAX_SPANS || self.bytes > MAX_BYTES {
            self.condense();
        }
    }

    /// The same spans again, as [`RefreshSpans::iter`] gave them.
    pub fn of_spans(spans: Vec<Span>) -> Self {
        RefreshSpans { bytes: size(&spans), spans, version: 1 }
    }

    /// Whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Grows with every change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The spans.
    pub fn iter(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter()
    }

    /// The spans, copied.
    #[cfg(test)]
    pub fn to_vec(&self) -> Vec<Span> {
        self.spans.clone()
    }

    /// The spans in one range, to send, and whether there are others elsewhere.
    pub fn within(&self, range: &Located) -> (Vec<Span>, bool) {
        let mut elsewhere = false;
        let inside = self.spans.iter().filter_map(|span| {
            if range.holds_all(span) {
                return Some(span.clone());
            }
            elsewhere = true;
            range.clip(span)
        });
        (inside.collect(), elsewhere)
    }

    /// Whether all spans are in one range.
    pub fn is_within(&self, range: &Located) -> bool {
        self.spans.iter().all(|span| range.holds_all(span))
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = RefreshSpans { version: self.version + 1, ..RefreshSpans::default() };
    }

    /// Merges what overlaps, then neighbours pairwise until half of the budget is free.
    fn condense(&mut self) {
        self.spans.sort_unstable_by(|left, right| left.start.cmp(&right.start));
        let mut merged: Vec<Span> = Vec::with_capacity(self.spans.len());
        for span in self.spans.drain(..) {
            match merged.last_mut() {
                Some(last) if span.start <= end_of(last) => *last = hull(last, &span),
                _ => merged.push(span),
            }
        }
        while merged.len() > 1 && (merged.len() > MAX_SPANS / 2 || size(&merged) > MAX_BYTES / 2) {
            merged = merged
                .chunks(2)
                .map(|pair| match pair {
                    [first, rest @ ..] => rest.iter().fold(first.clone(), |hulled, span| hull(&hulled, span)),
                    [] => Span::default(),
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

    fn span(start: &'static str, end: &'static str) -> Span {
        Span::new(Bytes::from_static(start.as_bytes()), Bytes::from_static(end.as_bytes()))
    }

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
            spans.add(&span);
            assert!(spans.spans.len() <= MAX_SPANS && spans.bytes <= MAX_BYTES);
            assert_eq!(spans.bytes, size(&spans.spans));
        }
        for key in &keys {
            assert!(spans.spans.iter().any(|span| span.contains(key)), "{key:?} was lost");
        }
    }

    #[test]
    fn large_keys_are_bounded_by_bytes() {
        let mut spans = RefreshSpans::default();
        for number in 0..200u32 {
            spans.add(&Span::point(Bytes::from([&number.to_be_bytes()[..], &[7; 16_000]].concat())));
            assert!(spans.bytes <= MAX_BYTES);
        }
    }

    #[test]
    fn the_same_span_twice_counts_once() {
        let mut spans = RefreshSpans::default();
        (0..3).for_each(|_| spans.add(&Span::point(Bytes::from_static(b"k"))));
        assert_eq!((spans.to_vec().len(), spans.version()), (1, 1));
        spans.add(&span("a", "z"));
        spans.add(&Span::point(Bytes::from_static(b"m")));
        assert_eq!(spans.to_vec().len(), 2);
    }

    #[test]
    fn pages_of_a_scan_become_one_span() {
        let mut spans = RefreshSpans::default();
        for (start, end) in [("a", "c"), ("c", "f"), ("f", "zebra")] {
            spans.add(&span(start, end));
        }
        assert_eq!(spans.to_vec(), [span("a", "zebra")]);
        assert_eq!(spans.bytes, 6);
        let mut spans = RefreshSpans::default();
        for (start, end) in [("f", "z"), ("c", "f"), ("aardvark", "c")] {
            spans.add(&span(start, end));
        }
        assert_eq!(spans.to_vec(), [span("aardvark", "z")]);
        assert_eq!((spans.bytes, spans.version()), (9, 3));
    }
    #[test]
    fn spans_are_given_range_by_range() {
        let mut spans = RefreshSpans::default();
        for (start, end) in [("b", "d"), ("e", ""), ("k", "s"), ("x", "")] {
            spans.add(&span(start, end));
        }
        let range = |start: &'static str, end: &'static str| Located {
            range_id: 1,
            start: Bytes::from_static(start.as_bytes()),
            end: Bytes::from_static(end.as_bytes()),
            global: false,
        };
        assert_eq!(
            spans.within(&range("a", "m")),
            (vec![span("b", "d"), span("e", ""), span("k", "m")], true)
        );
        assert_eq!(spans.within(&range("m", "")), (vec![span("m", "s"), span("x", "")], true));
        assert_eq!(spans.within(&range("t", "u")), (vec![], true));
        assert_eq!(spans.within(&range("a", "")), (spans.to_vec(), false));
        assert!(spans.is_within(&range("a", "z")) && !spans.is_within(&range("a", "x")));
    }
}
