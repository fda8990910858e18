//! Where a transaction has intents, in bounded memory.

use bytes::Bytes;
use hashbrown::HashSet;
use kv_api::Span;

/// Most keys of flushed intents a transaction remembers one by one. Looking for those of a span costs more, also for what
/// others have left there.
const EXACT_INTENT_KEYS: usize = 4096;
/// Most bytes of such keys.
const EXACT_INTENT_BYTES: usize = 256 << 10;
/// Most spans it remembers beyond that.
const INTENT_SPANS: usize = 128;
/// Keys that agree in this many bytes, the tenant, table and index, share such a span.
const SPAN_PREFIX: usize = 13;

/// The keys a transaction flushed intents to.
#[derive(Clone, Debug, Default)]
pub struct IntentSet {
    /// Every key, as long as there are few.
    exact: HashSet<Bytes>,
    /// Bytes of them.
    exact_bytes: usize,
    /// First and last keys by common prefix, once there are many.
    spans: Vec<(Bytes, Bytes)>,
    /// Grows with every change.
    generation: u64,
}

impl IntentSet {
    /// Whether nothing was flushed.
    pub fn is_empty(&self) -> bool {
        self.generation == 0
    }

    /// Tells two states of the set apart.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The set that a transaction record has: spans that hold every key.
    pub fn of_spans(spans: &[Span]) -> Self {
        let bytes: usize = spans.iter().map(|span| span.start.len()).sum();
        let few = spans.len() <= EXACT_INTENT_KEYS && bytes <= EXACT_INTENT_BYTES;
        let generation = u64::from(!spans.is_empty());
        if few && spans.iter().all(Span::is_point) {
            let exact = spans.iter().map(|span| span.start.clone()).collect();
            return IntentSet { exact, exact_bytes: bytes, generation, ..IntentSet::default() };
        }
        // The end of a span that is no point is no key of it; that it counts as one does no harm.
        let last = |span: &Span| if span.is_point() { span.start.clone() } else { span.end.clone() };
        let spans = spans.iter().map(|span| (span.start.clone(), last(span))).collect();
        IntentSet { spans, generation, ..IntentSet::default() }
    }

    /// Notes a key.
    pub fn insert(&mut self, key: &Bytes) {
        self.generation += 1;
        if self.spans.is_empty() {
            if !self.exact.contains(key) {
                self.exact_bytes += key.len();
                self.exact.insert(Bytes::copy_from_slice(key));
            }
            if self.exact.len() > EXACT_INTENT_KEYS || self.exact_bytes > EXACT_INTENT_BYTES {
                for key in std::mem::take(&mut self.exact) {
                    self.widen(&key);
                }
            }
        } else {
            self.widen(key);
        }
    }

    fn widen(&mut self, key: &[u8]) {
        let prefix = &key[..key.len().min(SPAN_PREFIX)];
        let full = self.spans.len() >= INTENT_SPANS;
        let place = self.spans.iter().position(|(first, _)| first.starts_with(prefix)).or(full.then_some(0));
        match place.and_then(|place| self.spans.get_mut(place)) {
            Some((first, last)) => {
                if key < &first[..] {
                    *first = Bytes::copy_from_slice(key);
                } else if key > &last[..] {
                    *last = Bytes::copy_from_slice(key);
                }
            }
            None => self.spans.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(key))),
        }
    }

    /// Every key, if they are few enough to be known.
    pub fn exact(&self) -> Option<Vec<Bytes>> {
        self.spans.is_empty().then(|| {
            let mut keys: Vec<_> = self.exact.iter().cloned().collect();
            keys.sort_unstable();
            keys
        })
    }

    /// Spans that hold every key.
    pub fn covering(&self) -> Vec<Span> {
        // In an order that a simulation can repeat.
        let points = self.exact().unwrap_or_default().into_iter().map(Span::point);
        let ranges = self.spans.iter().map(|(first, last)| Span::new(first.clone(), key_after(last)));
        points.chain(ranges).collect()
    }
}

/// The smallest key greater than `key`.
pub fn key_after(key: &[u8]) -> Bytes {
    let mut after = Vec::with_capacity(key.len() + 1);
    after.extend_from_slice(key);
    after.push(0);
    Bytes::from(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intent_sets_cover_every_key_with_bounded_memory() {
        let mut set = IntentSet::default();
        assert!(set.is_empty());
        let key = |table: u32, row: u32| {
            let mut key = vec![0x10; 12];
            key.extend(table.to_be_bytes());
            key.extend(row.to_be_bytes());
            Bytes::from(key)
        };
        for row in 0..10 {
            set.insert(&key(1, row));
            set.insert(&key(1, row));
        }
        assert_eq!(set.exact().map(|keys| keys.len()), Some(10));
        for table in 0..200 {
            for row in 0..30 {
                set.insert(&key(table, row * 7));
            }
        }
        assert_eq!(set.exact(), None);
        let spans = set.covering();
        assert!(spans.len() <= INTENT_SPANS);
        for table in 0..200 {
            for row in 0..30 {
                assert!(spans.iter().any(|span| span.contains(&key(table, row * 7))));
            }
        }
    }

    #[test]
    fn long_keys_are_remembered_one_by_one_as_long_as_they_are_few_bytes() {
        let mut set = IntentSet::default();
        let long = |number: u8| Bytes::from([&[number][..], &[0; 10_000]].concat());
        (0..26).for_each(|number| set.insert(&long(number)));
        let points: Vec<Span> = set.exact().unwrap().into_iter().map(Span::point).collect();
        assert!(IntentSet::of_spans(&points).exact().is_some());
        set.insert(&long(26));
        assert_eq!(set.exact(), None);
        assert!(IntentSet::of_spans(&[&points[..], &[Span::point(long(26))]].concat()).exact().is_none());
    }

    #[test]
    fn the_set_of_a_record_is_that_of_its_spans() {
        let point = |key: &'static str| Span::point(Bytes::from_static(key.as_bytes()));
        let points = vec![point("a"), point("c")];
        assert_eq!(IntentSet::of_spans(&points).covering().len(), 2);
        assert_eq!(IntentSet::of_spans(&points).exact().map(|keys| keys.len()), Some(2));
        let mixed = vec![point("a"), Span::new(Bytes::from_static(b"c"), Bytes::from_static(b"e"))];
        let set = IntentSet::of_spans(&mixed);
        assert!(set.exact().is_none() && set.covering().iter().any(|span| span.contains(b"d")));
        assert!(IntentSet::of_spans(&[]).is_empty());
    }
}
