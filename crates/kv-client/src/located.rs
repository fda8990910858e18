//! A range as a transaction sees it: a name and keys. Pure.

use bytes::Bytes;
use kv_api::Span;

/// A range and the keys it holds, or held when it was looked up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Located {
    /// Its name.
    pub range_id: u64,
    /// First key.
    pub start: Bytes,
    /// First key after it; empty if it is the last.
    pub end: Bytes,
    /// Whether every replica serves reads of the present, as was known then.
    pub global: bool,
}

impl Located {
    /// Whether it holds a key.
    pub fn holds(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && (self.end.is_empty() || key < &self.end[..])
    }

    /// Whether it holds the keys right below `end`.
    pub fn holds_before(&self, end: &[u8]) -> bool {
        end > &self.start[..] && (self.end.is_empty() || end <= &self.end[..])
    }

    /// Whether it holds all keys of a span.
    pub fn holds_all(&self, span: &Span) -> bool {
        self.holds(&span.start) && (span.is_point() || self.holds_before(&span.end))
    }

    /// Whether it holds all that another does.
    pub fn has_all_of(&self, other: &Located) -> bool {
        let reaches = self.end.is_empty() || (!other.end.is_empty() && other.end <= self.end);
        self.start <= other.start && reaches
    }

    /// What it holds of a span.
    pub fn clip(&self, span: &Span) -> Option<Span> {
        if span.is_point() {
            return self.holds(&span.start).then(|| span.clone());
        }
        let start = span.start.clone().max(self.start.clone());
        let end = if self.end.is_empty() { span.end.clone() } else { span.end.clone().min(self.end.clone()) };
        (start < end).then(|| Span::new(start, end))
    }

    /// Gives up what another range was found to hold.
    pub fn yield_to(&mut self, other: &Located) {
        let apart = |end: &Bytes, start: &Bytes| !end.is_empty() && end <= start;
        if apart(&self.end, &other.start) || apart(&other.end, &self.start) {
            return;
        }
        if self.start < other.start {
            self.end = other.start.clone();
        } else if !other.end.is_empty() && (self.end.is_empty() || other.end < self.end) {
            self.start = other.end.clone();
        } else {
            self.vanish();
        }
    }

    /// Whether it holds nothing, as far as is known.
    pub fn is_nowhere(&self) -> bool {
        !self.end.is_empty() && self.start >= self.end
    }

    /// Holds nothing any more, as far as is known.
    pub fn vanish(&mut self) {
        // An empty end would mean that there is none.
        (self.start, self.end) = (Bytes::from_static(&[0]), Bytes::from_static(&[0]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    fn range(start: &str, end: &str) -> Located {
        Located { range_id: 1, start: bytes(start), end: bytes(end), global: false }
    }

    fn span(start: &str, end: &str) -> Span {
        Span::new(bytes(start), bytes(end))
    }

    #[test]
    fn a_range_holds_its_first_key_and_not_its_last() {
        let range = range("c", "f");
        assert_eq!(["b", "c", "e", "f"].map(|key| range.holds(key.as_bytes())), [false, true, true, false]);
        let before = ["c", "cc", "f", "g"].map(|end| range.holds_before(end.as_bytes()));
        assert_eq!(before, [false, true, true, false]);
        assert!(range.holds_all(&span("c", "f")) && range.holds_all(&span("d", "")));
        assert!(!range.holds_all(&span("c", "g")) && !range.holds_all(&span("f", "")));
        assert!(self::range("c", "").holds_all(&span("d", "z")));
        let has = |start, end| range.has_all_of(&self::range(start, end));
        assert!(has("c", "f") && has("d", "e") && !has("b", "f") && !has("c", "g") && !has("d", ""));
    }

    #[test]
    fn spans_are_clipped_to_the_range() {
        let range = range("c", "f");
        assert_eq!(range.clip(&span("a", "d")), Some(span("c", "d")));
        assert_eq!(range.clip(&span("d", "z")), Some(span("d", "f")));
        assert_eq!(range.clip(&span("d", "")), Some(span("d", "")));
        assert_eq!(range.clip(&span("f", "")), None);
        assert_eq!(range.clip(&span("a", "c")), None);
        assert_eq!(self::range("c", "").clip(&span("a", "z")), Some(span("c", "z")));
    }

    #[test]
    fn what_another_range_holds_is_given_up() {
        let after = |start, end, other: &Located| {
            let mut range = range(start, end);
            range.yield_to(other);
            range
        };
        let other = range("m", "p");
        assert_eq!(after("a", "z", &other), range("a", "m"));
        assert_eq!(after("n", "z", &other), range("p", "z"));
        assert_eq!(after("a", "m", &other), range("a", "m"));
        assert_eq!(after("p", "", &other), range("p", ""));
        assert!(after("m", "p", &other).is_nowhere() && !range("m", "p").is_nowhere());
        assert_eq!(after("a", "", &range("m", "")), range("a", "m"));
        assert!(!after("n", "", &range("m", "")).holds(b"n"));
    }
}
