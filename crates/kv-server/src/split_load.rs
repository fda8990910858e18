//! Where to cut a range that is busy: pure.
//!
//! The keys of requests are sampled with a reservoir, and for each sampled key it is counted how many later
//! requests lie on either side of it and how many across. A key with about as many on its left as on its right,
//! and few across, is where the range is cut. This is the load-based splitter of CockroachDB.
//!
//! A single busy key finds none: all requests lie on one side of whatever key is sampled.

use bytes::Bytes;
use kv_api::Span;

/// Keys in the reservoir.
const SAMPLES: usize = 20;
/// Requests after which a sampled key can be judged.
const MIN_REQUESTS: u64 = 200;

/// A key, and the requests around it since it was sampled.
#[derive(Clone, Debug)]
struct Sample {
    key: Bytes,
    left: u64,
    right: u64,
    across: u64,
}

impl Sample {
    /// How far from even the two sides are, in parts of a thousand; `None` if the range is not to be cut here.
    fn unevenness(&self) -> Option<u64> {
        let sides = self.left + self.right;
        let all = sides + self.across;
        let larger = self.left.max(self.right);
        // No more than three quarters on one side, and no more than a quarter across.
        let fits = all >= MIN_REQUESTS && larger * 4 <= sides * 3 && self.across * 4 <= all;
        fits.then(|| (self.left.abs_diff(self.right) + self.across) * 1000 / all)
    }
}

/// Looks for a key that divides the requests to a range.
#[derive(Clone, Debug)]
pub struct Finder {
    samples: Vec<Sample>,
    seen: u64,
    random: u64,
}

impl Finder {
    /// One that has seen nothing; `seed` decides which keys it samples.
    pub fn new(seed: u64) -> Self {
        Finder { samples: Vec::with_capacity(SAMPLES), seen: 0, random: seed | 1 }
    }

    /// Notes a request to these keys.
    pub fn saw(&mut self, span: &Span) {
        for sample in &mut self.samples {
            let across = !span.is_point() && span.start < sample.key && sample.key < span.end;
            let count = if across {
                &mut sample.across
            } else if span.start >= sample.key {
                &mut sample.right
            } else {
                &mut sample.left
            };
            *count += 1;
        }
        self.seen += 1;
        let sample = || Sample { key: span.start.clone(), left: 0, right: 0, across: 0 };
        if self.samples.len() < SAMPLES {
            return self.samples.push(sample());
        }
        let place = usize::try_from(self.next_random() % self.seen).unwrap_or(usize::MAX);
        if let Some(replaced) = self.samples.get_mut(place) {
            *replaced = sample();
        }
    }

    /// A number that chooses among the requests of the next batch.
    pub fn turn(&self) -> usize {
        usize::try_from(self.seen).unwrap_or(0)
    }

    /// A key of the range that divides the requests well, and is not its first.
    pub fn cut(&self, range: &Span) -> Option<Bytes> {
        let within = |sample: &&Sample| range.contains(&sample.key) && sample.key != range.start;
        let judged = self.samples.iter().filter(within);
        let best = judged.filter_map(|sample| Some((sample.unevenness()?, &sample.key))).min();
        best.map(|(_, key)| Bytes::copy_from_slice(key))
    }

    /// Marsaglia's xorshift.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Bytes {
        Bytes::from(format!("k{number:06}"))
    }

    fn range() -> Span {
        Span::new(Bytes::from_static(b"k"), Bytes::from_static(b"l"))
    }

    fn number(key: &Bytes) -> u64 {
        std::str::from_utf8(&key[1..]).expect("text").parse().expect("a number")
    }

    #[test]
    fn even_load_is_cut_near_its_middle() {
        for seed in 1..50 {
            let mut finder = Finder::new(seed);
            // 7919 and 10000 have no divisor in common: every key once in each round.
            (0..20_000).for_each(|step| finder.saw(&Span::point(key(step * 7919 % 10_000))));
            let cut = number(&finder.cut(&range()).expect("a key"));
            assert!((2500..7500).contains(&cut), "seed {seed}: {cut}");
        }
    }

    #[test]
    fn the_cut_follows_the_load_and_not_the_keys() {
        let mut finder = Finder::new(1);
        for step in 0..20_000 {
            let hot = 9_900 + step % 100;
            finder.saw(&Span::point(key(if step % 10 == 0 { step % 9_000 } else { hot })));
        }
        assert!(number(&finder.cut(&range()).expect("a key")) >= 9_900);
    }

    #[test]
    fn one_busy_key_is_not_cut_off() {
        let mut finder = Finder::new(1);
        (0..20_000).for_each(|_| finder.saw(&Span::point(key(5))));
        assert_eq!(finder.cut(&range()), None);
        let mut finder = Finder::new(1);
        (0..20_000).for_each(|step| finder.saw(&Span::point(key(if step % 10 == 0 { step } else { 5 }))));
        assert_eq!(finder.cut(&range()), None, "nine of ten would be on one side");
    }

    #[test]
    fn requests_over_all_keys_keep_a_range_whole() {
        let across = Span::new(key(0), key(999_999));
        let mut finder = Finder::new(1);
        (0..20_000).for_each(|step| match step % 2 {
            0 => finder.saw(&across),
            _ => finder.saw(&Span::point(key(step * 7919 % 10_000))),
        });
        assert_eq!(finder.cut(&range()), None);
    }

    #[test]
    fn the_first_key_and_keys_of_others_do_not_count() {
        let mut finder = Finder::new(1);
        for _ in 0..1000 {
            finder.saw(&Span::point(key(1)));
            finder.saw(&Span::point(key(2)));
        }
        assert_eq!(finder.cut(&range()), Some(key(2)));
        assert_eq!(finder.cut(&Span::new(key(2), key(9))), None);
        assert_eq!(Finder::new(1).cut(&range()), None);
    }
}
