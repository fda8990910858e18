//! Clocks: the simulation's own time, and what each node takes it for.

use replication::Millis;
use replication::liveness::{RATE_MARGIN, SUPPORT_MS};

/// Simulated true time in microseconds since the beginning of a run.
pub type Micros = u64;
/// A millisecond.
pub const MILLI: Micros = 1_000;
/// A second.
pub const SECOND: Micros = 1_000_000;

/// What the wall clocks show when a run begins, in nanoseconds since the Unix epoch.
const BEGINNING_NS: u64 = 1_700_000_000 * 1_000_000_000;

/// How far the rate of a node's clock may be from true time, in millionths. Two clocks that err by this
/// much in opposite directions still differ by less than what liveness allows for.
pub const MAX_RATE_PPM: i64 = (RATE_MARGIN * 1_000_000 / SUPPORT_MS / 2 - 1_000) as i64;

/// A node's clocks: a monotonic one with an arbitrary origin and a rate of its own, and a wall clock.
#[derive(Clone, Debug)]
pub struct NodeClock {
    set_at: Micros,
    shown: Micros,
    rate_ppm: i64,
    wall_offset: i64,
}

impl NodeClock {
    /// A clock that shows `origin` now, errs by `rate_ppm` millionths, and whose wall clock is
    /// `wall_offset` microseconds off.
    pub fn new(now: Micros, origin: Micros, rate_ppm: i64, wall_offset: i64) -> Self {
        NodeClock { set_at: now, shown: origin, rate_ppm, wall_offset }
    }

    fn monotonic(&self, now: Micros) -> Micros {
        let rate = 1_000_000_i64.saturating_add(self.rate_ppm).max(1) as u64;
        self.shown + now.saturating_sub(self.set_at) * rate / 1_000_000
    }

    /// The monotonic clock of the node's process.
    pub fn millis(&self, now: Micros) -> Millis {
        self.monotonic(now) / MILLI
    }

    /// The wall clock, in nanoseconds since the Unix epoch.
    pub fn wall_ns(&self, now: Micros) -> u64 {
        (BEGINNING_NS + now * 1_000).saturating_add_signed(self.wall_offset * 1_000)
    }

    /// Changes the rate from now on.
    pub fn set_rate(&mut self, now: Micros, rate_ppm: i64) {
        self.shown = self.monotonic(now);
        self.set_at = now;
        self.rate_ppm = rate_ppm;
    }

    /// Sets how far the wall clock is off, in microseconds.
    pub fn set_wall_offset(&mut self, offset: i64) {
        self.wall_offset = offset;
    }

    /// Gives a new process another origin.
    pub fn restart(&mut self, now: Micros, origin: Micros) {
        self.set_at = now;
        self.shown = origin;
    }
}
