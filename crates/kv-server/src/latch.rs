//! Latches: who may evaluate on which keys at the moment.
//!
//! A request takes all its latches at once and in arrival order, waits for those before it that
//! conflict, and holds them while it is evaluated; write latches until its command is applied, so
//! that the next writer of a key evaluates against what this one did. Because latches are taken in one
//! step and never while waiting for a lock, they cannot form a cycle.
//!
//! Plain reads take none: they read at a timestamp below which nothing is in flight any more (see
//! [`crate::pipeline`]).
//!
//! Pure: `W` is whatever wakes a waiter.

use bytes::Bytes;
use hashbrown::HashMap;
use kv_api::Span;

/// What a latch excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Excludes writes.
    Read,
    /// Excludes reads and writes.
    Write,
}

/// Names a set of latches taken together. Later sets have larger ids.
pub type LatchId = u64;

struct LatchSet<W> {
    spans: Vec<(Span, Access)>,
    /// How many earlier sets this one still waits for.
    blockers: usize,
    waker: Option<W>,
    /// Later sets that wait for this one, and whether they wait for its writes (or only its reads).
    dependents: Vec<(LatchId, bool)>,
}

/// The latches of one shard.
pub struct Latches<W> {
    next_id: LatchId,
    sets: HashMap<LatchId, LatchSet<W>>,
    /// Sets by the single keys they cover.
    points: HashMap<Bytes, Vec<(LatchId, Access)>>,
    /// Sets that cover ranges.
    ranges: Vec<(LatchId, Span, Access)>,
}

impl<W> Default for Latches<W> {
    fn default() -> Self {
        Latches { next_id: 1, sets: HashMap::new(), points: HashMap::new(), ranges: Vec::new() }
    }
}

impl<W> Latches<W> {
    /// Takes latches behind all earlier ones. Returns the set's name and whether it may go ahead now;
    /// otherwise the waker made by `waker` comes back from a later release.
    pub fn acquire(&mut self, spans: Vec<(Span, Access)>, waker: impl FnOnce() -> W) -> (LatchId, bool) {
        let id = self.next_id;
        self.next_id += 1;
        let mut blockers: HashMap<LatchId, bool> = HashMap::new();
        for (span, access) in &spans {
            self.conflicts(span, *access, &mut blockers);
        }
        for (blocker, by_write) in &blockers {
            if let Some(set) = self.sets.get_mut(blocker) {
                set.dependents.push((id, *by_write));
            }
        }
        for (span, access) in &spans {
            if span.is_point() {
                self.points.entry(span.start.clone()).or_default().push((id, *access));
            } else {
                self.ranges.push((id, span.clone(), *access));
            }
        }
        let ready = blockers.is_empty();
        let waker = (!ready).then(waker);
        self.sets.insert(id, LatchSet { spans, blockers: blockers.len(), waker, dependents: Vec::new() });
        (id, ready)
    }

    fn conflicts(&self, span: &Span, access: Access, blockers: &mut HashMap<LatchId, bool>) {
        let mut note = |id: LatchId, other: Access| {
            if access == Access::Write || other == Access::Write {
                *blockers.entry(id).or_default() |= other == Access::Write;
            }
        };
        if span.is_point() {
            if let Some(held) = self.points.get(&span.start) {
                held.iter().for_each(|(id, other)| note(*id, *other));
            }
        } else {
            for (key, held) in &self.points {
                if span.contains(key) {
                    held.iter().for_each(|(id, other)| note(*id, *other));
                }
            }
        }
        for (id, other_span, other) in &self.ranges {
            if overlaps(span, other_span) {
                note(*id, *other);
            }
        }
    }

    /// Whether a key is being written, or waited for to be.
    pub fn is_written(&self, key: &[u8]) -> bool {
        self.points.get(key).is_some_and(|held| held.iter().any(|(_, access)| *access == Access::Write))
            || self.ranges.iter().any(|(_, span, access)| *access == Access::Write && span.contains(key))
    }

    /// Gives back the read latches of a set early; its write latches stay.
    #[must_use]
    pub fn release_reads(&mut self, id: LatchId) -> Vec<W> {
        let Some(set) = self.sets.get_mut(&id) else { return Vec::new() };
        let spans = std::mem::take(&mut set.spans);
        let (reads, writes): (Vec<_>, Vec<_>) =
            spans.into_iter().partition(|(_, access)| *access == Access::Read);
        set.spans = writes;
        let (stay, go): (Vec<_>, Vec<_>) = set.dependents.drain(..).partition(|(_, by_write)| *by_write);
        set.dependents = stay;
        self.forget(id, &reads);
        self.unblock(go)
    }

    /// Gives back all latches of a set, also of one that still waits. Returns the wakers of those that
    /// may go ahead now.
    #[must_use]
    pub fn release(&mut self, id: LatchId) -> Vec<W> {
        let Some(set) = self.sets.remove(&id) else { return Vec::new() };
        self.forget(id, &set.spans);
        self.unblock(set.dependents)
    }

    fn forget(&mut self, id: LatchId, spans: &[(Span, Access)]) {
        for (span, access) in spans {
            if span.is_point() {
                if let Some(held) = self.points.get_mut(&span.start) {
                    held.retain(|entry| *entry != (id, *access));
                    if held.is_empty() {
                        self.points.remove(&span.start);
                    }
                }
            } else {
                self.ranges.retain(|entry| (entry.0, entry.2) != (id, *access) || entry.1 != *span);
            }
        }
    }

    fn unblock(&mut self, dependents: Vec<(LatchId, bool)>) -> Vec<W> {
        let mut ready = Vec::new();
        for (dependent, _) in dependents {
            if let Some(set) = self.sets.get_mut(&dependent) {
                set.blockers = set.blockers.saturating_sub(1);
                if set.blockers == 0 {
                    ready.extend(set.waker.take());
                }
            }
        }
        ready
    }

    /// Number of sets held or waiting.
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.points.is_empty() && self.ranges.is_empty()
    }
}

/// Whether two spans share a key.
pub fn overlaps(one: &Span, other: &Span) -> bool {
    match (one.is_point(), other.is_point()) {
        (true, _) => other.contains(&one.start),
        (false, true) => one.contains(&other.start),
        (false, false) => one.start < other.end && other.start < one.end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Access::{Read, Write};

    fn point(key: &'static str) -> Span {
        Span::point(Bytes::from_static(key.as_bytes()))
    }

    fn range(start: &'static str, end: &'static str) -> Span {
        Span::new(Bytes::from_static(start.as_bytes()), Bytes::from_static(end.as_bytes()))
    }

    fn take(latches: &mut Latches<u64>, name: u64, spans: &[(Span, Access)]) -> (LatchId, bool) {
        latches.acquire(spans.to_vec(), || name)
    }

    #[test]
    fn reads_share_and_writes_exclude() {
        let mut latches = Latches::default();
        let (one, ready) = take(&mut latches, 1, &[(point("a"), Read)]);
        assert!(ready);
        let (two, ready) = take(&mut latches, 2, &[(point("a"), Read)]);
        assert!(ready);
        let (three, ready) = take(&mut latches, 3, &[(point("a"), Write)]);
        assert!(!ready);
        assert!(!take(&mut latches, 4, &[(point("a"), Read)]).1, "behind the waiting writer");
        assert!(take(&mut latches, 5, &[(point("b"), Write)]).1);
        assert!(latches.release(one).is_empty());
        assert_eq!(latches.release(two), [3]);
        assert_eq!(latches.release(three), [4]);
    }

    #[test]
    fn ranges_conflict_with_what_they_contain() {
        let mut latches = Latches::default();
        let (one, _) = take(&mut latches, 1, &[(range("b", "d"), Write)]);
        assert!(take(&mut latches, 2, &[(point("d"), Write), (point("a"), Write)]).1);
        assert!(!take(&mut latches, 3, &[(point("b"), Read)]).1);
        assert!(!take(&mut latches, 4, &[(range("c", "z"), Read)]).1);
        let (five, ready) = take(&mut latches, 5, &[(range("b", "c"), Write)]);
        assert!(!ready);
        assert!(latches.release(five).is_empty(), "a waiter that gave up blocks nobody");
        let mut woken = latches.release(one);
        woken.sort_unstable();
        assert_eq!(woken, [3], "4 still waits for the write of d");
    }

    #[test]
    fn write_skew_is_ordered_rather_than_deadlocked() {
        let mut latches = Latches::default();
        let (one, ready) = take(&mut latches, 1, &[(point("x"), Read), (point("y"), Write)]);
        assert!(ready);
        assert!(!take(&mut latches, 2, &[(point("y"), Read), (point("x"), Write)]).1);
        assert!(latches.release_reads(one).is_empty(), "the write of y is still in the way");
        assert_eq!(latches.release(one), [2]);
    }

    #[test]
    fn read_latches_can_be_given_back_early() {
        let mut latches = Latches::default();
        let (one, _) =
            take(&mut latches, 1, &[(point("x"), Read), (point("y"), Write), (range("p", "q"), Read)]);
        let (two, ready) = take(&mut latches, 2, &[(point("x"), Write), (range("p", "pp"), Write)]);
        assert!(!ready);
        assert_eq!(latches.release_reads(one), [2]);
        assert!(!take(&mut latches, 3, &[(point("y"), Read)]).1);
        assert_eq!(latches.release(one), [3]);
        assert!(latches.release(two).is_empty());
    }

    #[test]
    fn nothing_is_left_behind() {
        let mut latches = Latches::default();
        let ids: Vec<_> = (0..50)
            .map(|name| {
                let access = if name % 3 == 0 { Write } else { Read };
                take(
                    &mut latches,
                    name,
                    &[(point("a"), access), (range("a", "c"), access), (point("b"), Read)],
                )
                .0
            })
            .collect();
        for id in ids {
            let _ = latches.release(id);
        }
        assert!(latches.is_empty());
    }
}
