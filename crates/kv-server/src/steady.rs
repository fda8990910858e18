//! The wall clock without its jumps: pure.
//!
//! The clocks of ranges never go back, so one that has once been pushed an hour ahead stays there for an hour, and
//! transactions over that range and others are refused for as long. So a wall clock that jumps is not followed at
//! once: time goes on with the monotonic clock until it is known what to make of the jump. If most other nodes
//! contradict it, the node stops itself meanwhile ([`crate::clock_check`]). Otherwise it is followed after
//! [`FOLLOWED_AFTER_MS`] if it is not disputed ([`crate::clock_check::ClockCheck::is_disputed`]): somebody has set the
//! clock. While it is disputed it is not followed at all, for hours if need be.

use crate::clock_check::Moment;
use replication::Millis;
use std::time::Duration;

/// How long a jump is not followed: long enough for a node that hears others to find that it must stop.
pub const FOLLOWED_AFTER_MS: Millis = 5000;

/// A wall clock whose jumps are ignored for a while.
pub struct SteadyClock {
    /// A jump is more than this, in nanoseconds.
    tolerated_ns: u64,
    last: Option<Moment>,
    jumped_at: Option<Millis>,
    disputed: bool,
}

impl SteadyClock {
    /// A clock that was not read yet; the first reading is taken as it is.
    pub fn new(tolerated: Duration) -> Self {
        let tolerated_ns = u64::try_from(tolerated.as_nanos()).unwrap_or(u64::MAX);
        SteadyClock { tolerated_ns, last: None, jumped_at: None, disputed: false }
    }

    /// Says whether jumps are not to be followed.
    pub fn set_disputed(&mut self, disputed: bool) {
        self.disputed = disputed;
    }

    /// The time, in nanoseconds since the Unix epoch. To be read at least every second.
    pub fn read(&mut self, now: Moment) -> u64 {
        let wall_ns = match self.last {
            None => now.wall_ns,
            Some(last) => {
                let elapsed_ms = now.millis.saturating_sub(last.millis);
                let expected = last.wall_ns.saturating_add(elapsed_ms.saturating_mul(1_000_000));
                if now.wall_ns.abs_diff(expected) <= self.tolerated_ns {
                    self.jumped_at = None;
                    now.wall_ns
                } else {
                    self.jumped(now, expected)
                }
            }
        };
        self.last = Some(Moment { millis: now.millis, wall_ns });
        wall_ns
    }

    fn jumped(&mut self, now: Moment, expected: u64) -> u64 {
        let by_ms = now.wall_ns.abs_diff(expected) / 1_000_000;
        let side = if now.wall_ns > expected { "ahead" } else { "back" };
        let since = self.jumped_at.unwrap_or_else(|| {
            tracing::warn!("the wall clock has jumped {side} by {by_ms} ms: it is not followed at once");
            now.millis
        });
        self.jumped_at = Some(since);
        if self.disputed || now.millis.saturating_sub(since) < FOLLOWED_AFTER_MS {
            return expected;
        }
        tracing::warn!("the wall clock is not disputed by other nodes: it is followed {side} by {by_ms} ms");
        self.jumped_at = None;
        now.wall_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const START: u64 = 1_700_000_000_000 * MS;

    fn read(clock: &mut SteadyClock, millis: Millis, wall_ms: u64) -> u64 {
        (clock.read(Moment { millis, wall_ns: START + wall_ms * MS }) - START) / MS
    }

    #[test]
    fn small_steps_are_followed() {
        let mut clock = SteadyClock::new(Duration::from_millis(500));
        assert_eq!(read(&mut clock, 7, 1000), 1000);
        assert_eq!(read(&mut clock, 17, 1400), 1400);
        assert_eq!(read(&mut clock, 17, 950), 950);
    }

    #[test]
    fn jumps_are_followed_after_a_while() {
        for jump in [3_600_000, -900] {
            let mut clock = SteadyClock::new(Duration::from_millis(500));
            let jumped = |wall: i64| u64::try_from(wall + jump).expect("positive");
            assert_eq!(read(&mut clock, 0, 1000), 1000);
            assert_eq!(read(&mut clock, 100, jumped(1100)), 1100);
            assert_eq!(read(&mut clock, 100 + FOLLOWED_AFTER_MS - 1, jumped(1099 + 5000)), 6099);
            assert_eq!(read(&mut clock, 100 + FOLLOWED_AFTER_MS, jumped(1100 + 5000)), jumped(6100));
            assert_eq!(read(&mut clock, 200 + FOLLOWED_AFTER_MS, jumped(6200)), jumped(6200));
        }
    }

    #[test]
    fn a_disputed_jump_is_not_followed() {
        let mut clock = SteadyClock::new(Duration::from_millis(500));
        clock.set_disputed(true);
        assert_eq!(read(&mut clock, 0, 1000), 1000);
        assert_eq!(read(&mut clock, 100, 90_000), 1100);
        assert_eq!(read(&mut clock, 100_000, 190_000), 101_000);
        clock.set_disputed(false);
        assert_eq!(read(&mut clock, 100_100, 190_100), 190_100);
    }

    #[test]
    fn a_jump_that_is_undone_never_was() {
        let mut clock = SteadyClock::new(Duration::from_millis(500));
        assert_eq!(read(&mut clock, 0, 1000), 1000);
        assert_eq!(read(&mut clock, 100, 90_000), 1100);
        assert_eq!(read(&mut clock, 4000, 5000), 5000);
        // The next one is waited for anew.
        assert_eq!(read(&mut clock, 6000, 90_000), 7000);
    }
}
