//! Hybrid-logical timestamps (`cockroachdb-2020`, section 4.1).

use std::fmt;

/// How far the wall clocks of two nodes of a cluster may be apart, in nanoseconds (`cockroachdb-2020`, section
/// 4.1), unless the nodes are told otherwise. Nothing that is read is wrong if they are further apart, but transactions
/// over the ranges of both are refused; a node that is too far from most others stops itself.
pub const MAX_CLOCK_OFFSET_NS: u64 = 500_000_000;

/// A hybrid-logical timestamp: wall time in nanoseconds since the Unix epoch, then a logical counter
/// that orders events within one nanosecond. Ordered lexicographically.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Message)]
pub struct Timestamp {
    /// Nanoseconds since the Unix epoch.
    #[prost(uint64, tag = "1")]
    pub wall_ns: u64,
    /// Orders events of one nanosecond.
    #[prost(uint32, tag = "2")]
    pub logical: u32,
}

impl Timestamp {
    /// The smallest timestamp; no version is ever written at it.
    pub const MIN: Timestamp = Timestamp { wall_ns: 0, logical: 0 };
    /// The largest timestamp.
    pub const MAX: Timestamp = Timestamp { wall_ns: u64::MAX, logical: u32::MAX };

    /// A timestamp from its two parts.
    pub const fn new(wall_ns: u64, logical: u32) -> Self {
        Timestamp { wall_ns, logical }
    }

    /// The smallest timestamp greater than this one; saturates at [`Timestamp::MAX`].
    pub const fn next(self) -> Self {
        match self.logical.checked_add(1) {
            Some(logical) => Timestamp { wall_ns: self.wall_ns, logical },
            None => match self.wall_ns.checked_add(1) {
                Some(wall_ns) => Timestamp { wall_ns, logical: 0 },
                None => Timestamp::MAX,
            },
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09},{}", self.wall_ns / 1_000_000_000, self.wall_ns % 1_000_000_000, self.logical)
    }
}

/// A hybrid-logical clock. Pure: the physical time is an argument.
#[derive(Debug, Default)]
pub struct HybridClock {
    latest: Timestamp,
}

impl HybridClock {
    /// A clock that never returns a timestamp at or below `floor`, which is how a restarted node stays
    /// monotonic.
    pub fn starting_after(floor: Timestamp) -> Self {
        HybridClock { latest: floor }
    }

    /// A timestamp greater than every one returned or observed so far. `physical_ns` is the wall
    /// clock now; if it went backwards the logical part advances instead.
    pub fn now(&mut self, physical_ns: u64) -> Timestamp {
        self.latest = if physical_ns > self.latest.wall_ns {
            Timestamp::new(physical_ns, 0)
        } else {
            self.latest.next()
        };
        self.latest
    }

    /// Takes note of a timestamp that another clock produced.
    pub fn observe(&mut self, other: Timestamp) {
        self.latest = self.latest.max(other);
    }

    /// The largest timestamp returned or observed.
    pub fn latest(&self) -> Timestamp {
        self.latest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_strictly_monotonic_even_when_the_wall_clock_is_not() {
        let mut clock = HybridClock::default();
        let mut last = Timestamp::MIN;
        for physical in [5, 5, 4, 6, 0, 7] {
            let now = clock.now(physical);
            assert!(now > last);
            last = now;
        }
        clock.observe(Timestamp::new(100, 3));
        assert_eq!(clock.now(8), Timestamp::new(100, 4));
    }

    #[test]
    fn next_carries_into_the_wall_part() {
        assert_eq!(Timestamp::new(1, u32::MAX).next(), Timestamp::new(2, 0));
        assert_eq!(Timestamp::MAX.next(), Timestamp::MAX);
    }
}
