//! Whether the wall clock of this node agrees with those of the others: pure.
//!
//! # How clocks are compared
//!
//! Every answer to a heartbeat says what the wall clock of its sender showed ([`replication::message::HeartbeatAck`]).
//! It did so at some moment between the heartbeat and the arrival of the answer, so the difference of the two clocks
//! is known up to the length of the round trip, as in NTP (RFC 5905, section 8). It is kept as an interval in which it
//! surely lies. A slow network makes intervals long, and a long one says little: a clock counts as wrong only where
//! the whole interval is out of bounds.
//!
//! What is kept is the difference between the *monotonic* clock here and the wall clock there, so that a jump of the
//! wall clock here shows at once.
//!
//! # What is decided
//!
//! `cockroachdb-2020`, section 4.3: a node that finds itself too far from the others stops itself. Here that
//! is so if a majority of the live nodes, this one counted among them, show times that this one's is too far
//! from, and that agree with each other: if the intervals have a point in common once they are widened by half of
//! what is allowed (Marzullo's algorithm, RFC 5905, section 11.2.1). So
//!
//! * a node that is alone never stops;
//! * of two neither stops, since nobody can say which of them is wrong; both warn;
//! * of three the one that is apart from the two others does;
//! * where no majority agrees on any time nobody stops.
//!
//! A node that has once found itself in agreement stops after [`PATIENCE_MS`]: clocks that are set one after the
//! other are apart for a moment. One that has not, because it has just started, stops at once.
//!
//! What is read and written rests on no clock ([`crate::pipeline`]); what wrong clocks cost is availability.

use replication::liveness::{RATE_MARGIN, SUPPORT_MS};
use replication::{Millis, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// How long a clock that once was right may be wrong.
pub const PATIENCE_MS: Millis = 1000;
/// How long a measurement counts.
const KEPT_MS: Millis = 3000;
/// Nanoseconds of a millisecond.
const MS: i64 = 1_000_000;

/// Both clocks of this node, read at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The monotonic one.
    pub millis: Millis,
    /// The wall clock, in nanoseconds since the Unix epoch.
    pub wall_ns: u64,
}

impl Moment {
    fn monotonic_ns(self) -> i64 {
        i64::try_from(self.millis).unwrap_or(i64::MAX).saturating_mul(MS)
    }

    /// How far the wall clock is ahead of the monotonic one.
    fn wall_over_monotonic(self) -> i64 {
        signed(self.wall_ns).saturating_sub(self.monotonic_ns())
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// How far another clock is ahead of one here, in nanoseconds: somewhere from `least` to `most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// At least so far.
    pub least: i64,
    /// At most so far.
    pub most: i64,
}

impl Offset {
    fn contains(self, other: Offset) -> bool {
        self.least <= other.least && other.most <= self.most
    }

    fn widened(self, by: i64) -> Offset {
        Offset { least: self.least.saturating_sub(by), most: self.most.saturating_add(by) }
    }

    fn minus(self, by: i64) -> Offset {
        Offset { least: self.least.saturating_sub(by), most: self.most.saturating_sub(by) }
    }

    /// The middle.
    pub fn middle(self) -> i64 {
        self.least.midpoint(self.most)
    }

    /// Whether it surely is more than `most`, one way or the other.
    fn exceeds(self, most: i64) -> bool {
        self.least > most || self.most < most.saturating_neg()
    }
}

/// The wall clock of this node is wrong, as far as the others can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFar {
    /// How far the others' clocks are ahead of this one, in nanoseconds.
    pub ahead_ns: i64,
    /// How many others agree on that.
    pub against: usize,
    /// How many others are live.
    pub others: usize,
    /// How far clocks may be apart, in nanoseconds.
    pub max_ns: i64,
}

impl fmt::Display for TooFar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.ahead_ns > 0 { "behind" } else { "ahead of" };
        write!(
            f,
            "the wall clock of this node is {} {side} those of {} of the {} other live nodes, which agree with each \
             other; clocks may be {} apart",
            milliseconds(self.ahead_ns),
            self.against,
            self.others,
            milliseconds(self.max_ns)
        )
    }
}

fn milliseconds(ns: i64) -> String {
    format!("{} ms", ns.unsigned_abs() / MS.unsigned_abs())
}

struct Measured {
    /// How far the other's wall clock is ahead of the monotonic clock here.
    offset: Offset,
    at: Millis,
}

impl Measured {
    /// What is still known of it: the clocks may go at different rates.
    fn aged(&self, now: Millis) -> Option<Offset> {
        let age = now.saturating_sub(self.at);
        let drift = signed(age * RATE_MARGIN / SUPPORT_MS).saturating_mul(MS);
        (age <= KEPT_MS).then(|| self.offset.widened(drift))
    }
}

/// What this node knows of the others' clocks. Has an entry per node that it ever heard of.
pub struct ClockCheck {
    max_ns: i64,
    measured: BTreeMap<NodeId, Measured>,
    /// Nodes whose clocks were found to be nearly too far away.
    warned: BTreeSet<NodeId>,
    /// Whether this clock was ever found to be right by a majority, this node counted.
    confirmed: bool,
    wrong_since: Option<Millis>,
}

impl ClockCheck {
    /// Nothing is known yet. Clocks may be `max` apart.
    pub fn new(max: Duration) -> Self {
        ClockCheck {
            max_ns: i64::try_from(max.as_nanos()).unwrap_or(i64::MAX),
            measured: BTreeMap::new(),
            warned: BTreeSet::new(),
            confirmed: false,
            wrong_since: None,
        }
    }

    /// A node's wall clock showed `wall_ns` at some moment between `sent_at` and `now`.
    pub fn measure(&mut self, node: NodeId, sent_at: Millis, wall_ns: u64, now: Moment) {
        let Some(elapsed) = now.millis.checked_sub(sent_at) else { return };
        // Milliseconds are cut off at both ends.
        let round_trip = signed(elapsed.saturating_add(1)).saturating_mul(MS);
        let least = signed(wall_ns).saturating_sub(now.monotonic_ns());
        let offset = Offset { least, most: least.saturating_add(round_trip) };
        let kept = self.measured.get(&node).and_then(|known| known.aged(now.millis));
        if kept.is_none_or(|kept| !offset.contains(kept)) {
            self.measured.insert(node, Measured { offset, at: now.millis });
        }
    }

    /// How far a node's wall clock is ahead of this one's, if that was measured lately.
    pub fn offset(&self, node: NodeId, now: Moment) -> Option<Offset> {
        Some(self.measured.get(&node)?.aged(now.millis)?.minus(now.wall_over_monotonic()))
    }

    /// Whether a node's clock has come to be at more than four fifths of what is allowed: true once, and again after
    /// it has been less.
    pub fn is_news(&mut self, node: NodeId, offset: Offset) -> bool {
        if offset.exceeds(self.max_ns / 5 * 4) {
            return self.warned.insert(node);
        }
        self.warned.remove(&node);
        false
    }

    /// Whether a jump of this node's clock should not be believed: more of the live nodes contradict what it shows than
    /// confirm it, or there are others, which is so unless it is `alone`, and none of them says anything.
    pub fn is_disputed(&self, alone: bool, live: &[NodeId], now: Moment) -> bool {
        let offsets = live.iter().filter_map(|node| self.offset(*node, now));
        let (apart, near): (Vec<Offset>, Vec<Offset>) =
            offsets.partition(|offset| offset.exceeds(self.max_ns));
        !alone && (near.is_empty() || apart.len() > near.len())
    }

    /// Compares this node's clock with those of the others that are live.
    pub fn check(&mut self, live: &[NodeId], now: Moment) -> Option<TooFar> {
        let offsets: Vec<Offset> = live.iter().filter_map(|node| self.offset(*node, now)).collect();
        let Some(too_far) = judge(self.max_ns, live.len(), &offsets) else {
            self.wrong_since = None;
            let near = offsets.iter().filter(|offset| !offset.exceeds(self.max_ns)).count();
            self.confirmed |= near + 1 >= majority(live.len());
            return None;
        };
        let since = *self.wrong_since.get_or_insert(now.millis);
        let over = !self.confirmed || now.millis.saturating_sub(since) >= PATIENCE_MS;
        over.then_some(too_far)
    }
}

/// How many are more than half of so many others and this node.
fn majority(others: usize) -> usize {
    others.div_ceil(2).saturating_add(1)
}

/// Whether a majority of this node and `others` have clocks that agree with each other and are too far from this
/// node's. Those whose clocks were not measured say nothing.
pub fn judge(max_ns: i64, others: usize, offsets: &[Offset]) -> Option<TooFar> {
    let apart = offsets.iter().copied().filter(|offset| offset.exceeds(max_ns));
    let apart: Vec<Offset> = apart.map(|offset| offset.widened(max_ns / 2)).collect();
    // Where most intervals overlap, one begins.
    let (against, common) = apart
        .iter()
        .map(|first| {
            let there = |other: &&Offset| other.least <= first.least && first.least <= other.most;
            let overlapping: Vec<&Offset> = apart.iter().filter(there).collect();
            let most = overlapping.iter().map(|offset| offset.most).min().unwrap_or(first.most);
            (overlapping.len(), Offset { least: first.least, most })
        })
        .max_by_key(|(count, _)| *count)?;
    let ahead_ns = common.middle();
    (against >= majority(others)).then_some(TooFar { ahead_ns, against, others, max_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_millis(500);
    const SECOND: i64 = 1000 * MS;

    fn exact(ms: i64) -> Offset {
        Offset { least: ms * MS, most: ms * MS }
    }

    fn verdict(others: usize, offsets: &[Offset]) -> Option<(i64, usize)> {
        judge(500 * MS, others, offsets).map(|too_far| (too_far.ahead_ns / MS, too_far.against))
    }

    #[test]
    fn a_majority_is_needed() {
        assert_eq!(verdict(0, &[]), None, "alone");
        assert_eq!(verdict(1, &[exact(9000)]), None, "of two nobody knows which is wrong");
        assert_eq!(verdict(2, &[exact(9000), exact(9100)]), Some((9050, 2)));
        assert_eq!(verdict(2, &[exact(-9000), exact(-9100)]), Some((-9050, 2)));
        assert_eq!(verdict(2, &[exact(9000), exact(100)]), None, "the other one is wrong");
        assert_eq!(verdict(2, &[exact(9000)]), None, "one of three was not measured");
        assert_eq!(verdict(3, &[exact(900), exact(901), exact(0)]), None, "two of four are no majority");
        assert_eq!(verdict(3, &[exact(900), exact(901), exact(902)]).map(|found| found.1), Some(3));
        assert_eq!(verdict(4, &[exact(900), exact(901), exact(902), exact(0)]).map(|found| found.1), Some(3));
    }

    #[test]
    fn those_that_disagree_with_each_other_prove_nothing() {
        assert_eq!(verdict(2, &[exact(9000), exact(-9000)]), None);
        assert_eq!(verdict(2, &[exact(9000), exact(9600)]), None);
        assert_eq!(verdict(4, &[exact(9000), exact(-9000), exact(9300), exact(9200)]), Some((9150, 3)));
    }

    #[test]
    fn what_is_allowed_is_allowed() {
        assert_eq!(verdict(2, &[exact(500), exact(500)]), None);
        assert_eq!(verdict(2, &[exact(501), exact(501)]), Some((501, 2)));
        assert_eq!(verdict(2, &[exact(-501), exact(-501)]), Some((-501, 2)));
        let slow = Offset { least: 400 * MS, most: 90 * SECOND };
        assert_eq!(verdict(2, &[slow, slow]), None, "a slow network proves nothing");
    }

    /// The time of a node whose wall clock is right up to `off` milliseconds.
    fn at(millis: Millis, off: i64) -> Moment {
        let wall_ns = (1_700_000_000 * SECOND + i64::try_from(millis).expect("small") * MS + off * MS) as u64;
        Moment { millis, wall_ns }
    }

    /// Two others with right clocks answer at once.
    fn measured(check: &mut ClockCheck, now: Moment) {
        for node in [2, 3] {
            check.measure(node, now.millis.saturating_sub(3), at(now.millis - 1, 0).wall_ns, now);
        }
    }

    #[test]
    fn the_difference_lies_in_what_was_measured() {
        let mut check = ClockCheck::new(MAX);
        let now = at(1000, -200);
        // 40 ms there and back; the answer was written somewhere in between.
        check.measure(2, 960, at(985, 0).wall_ns, now);
        let offset = check.offset(2, now).expect("measured");
        assert!(offset.least <= 200 * MS && 200 * MS <= offset.most, "{offset:?}");
        assert!(offset.most - offset.least <= 41 * MS, "{offset:?}");
        let later = check.offset(2, at(1400, -200)).expect("measured");
        assert!(later.contains(offset), "what was measured long ago says less");
        assert_eq!(check.offset(2, at(1001 + KEPT_MS, -200)), None);
        assert_eq!(check.offset(4, now), None);
    }

    #[test]
    fn a_slower_answer_does_not_replace_what_is_known_better() {
        let mut check = ClockCheck::new(MAX);
        check.measure(2, 998, at(999, 0).wall_ns, at(1000, 0));
        check.measure(2, 1000, at(1200, 0).wall_ns, at(1300, 0));
        let offset = check.offset(2, at(1300, 0)).expect("measured");
        assert!(offset.most - offset.least < 50 * MS, "{offset:?}");
        // One that says something else does.
        check.measure(2, 1300, at(1500, 7000).wall_ns, at(1600, 0));
        assert!(check.offset(2, at(1600, 0)).expect("measured").least > 6000 * MS);
        check.measure(2, 1700, u64::MAX, at(1600, 0));
        assert!(
            check.offset(2, at(1600, 0)).expect("measured").most < 8000 * MS,
            "an answer from the future"
        );
        check.measure(2, 1600, u64::MAX, at(1601, 0));
        check.measure(3, 1600, 0, at(1601, 0));
        assert!(check.check(&[2, 3], at(1601, 0)).is_none(), "clocks that show nonsense agree with nobody");
    }

    #[test]
    fn a_clock_that_jumps_is_given_a_moment_and_one_that_starts_wrong_is_not() {
        let mut check = ClockCheck::new(MAX);
        measured(&mut check, at(1000, 0));
        assert_eq!(check.check(&[2, 3], at(1000, 0)), None);
        // The jump shows without another measurement.
        assert_eq!(check.check(&[2, 3], at(1100, 60_000)), None);
        measured(&mut check, at(1200, 0));
        assert_eq!(check.check(&[2, 3], at(1200, 0)), None, "it was set right again");
        assert_eq!(check.check(&[2, 3], at(1300, 60_000)), None);
        measured(&mut check, at(1300 + PATIENCE_MS, 60_000));
        let too_far = check.check(&[2, 3], at(1300 + PATIENCE_MS, 60_000)).expect("wrong for long");
        assert!((too_far.ahead_ns / MS + 60_000).abs() < 10, "{too_far:?}");
        let text = too_far.to_string();
        assert!(text.contains(" ms ahead of those of 2 of the 2 other live nodes"), "{text}");
        assert!(text.ends_with("may be 500 ms apart"), "{text}");

        let mut check = ClockCheck::new(MAX);
        measured(&mut check, at(1000, -700));
        assert!(check.check(&[2, 3], at(1000, -700)).is_some());
        assert!(check.check(&[2], at(1000, -700)).is_none(), "the other two do not hear each other");
    }

    #[test]
    fn a_jump_is_disputed_unless_somebody_confirms_it() {
        let mut check = ClockCheck::new(MAX);
        assert!(!check.is_disputed(true, &[], at(1000, 60_000)), "there is nobody else");
        assert!(check.is_disputed(false, &[], at(1000, 60_000)), "nobody was heard yet");
        measured(&mut check, at(1000, 0));
        assert!(check.is_disputed(false, &[2], at(1000, 60_000)));
        assert!(check.is_disputed(false, &[], at(1000, 60_000)), "nobody is heard");
        check.measure(3, 999, at(1000, 60_000).wall_ns, at(1000, 60_000));
        assert!(!check.is_disputed(false, &[2, 3], at(1000, 60_000)));
        assert!(!check.is_disputed(false, &[3], at(1000, 60_000)));
    }

    #[test]
    fn warnings_come_once() {
        let mut check = ClockCheck::new(MAX);
        assert!(!check.is_news(2, exact(399)));
        assert!(check.is_news(2, exact(-401)));
        assert!(!check.is_news(2, exact(-450)));
        assert!(!check.is_news(2, exact(10)) && check.is_news(2, exact(420)));
    }
}
