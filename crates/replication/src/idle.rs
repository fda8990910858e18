//! Until when a replica stays in memory: pure.
//!
//! A range is *used* at a node whose driver wakes or touches it; that node's replica campaigns if nobody
//! leads, and its vote requests say that it is *wanted*. A replica that hears a leader or such a request is
//! wanted too, and may campaign, but its own requests do not say so. So replicas of a range without a
//! majority keep each other awake for as long as somebody uses it somewhere and no longer.

use crate::Millis;

/// How long a replica that nobody wants stays after a message, which may not be the last.
const STAY_MS: Millis = 2000;

/// What is known of the use of a replica.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// After how long without use it goes; 0 is never.
    after: Millis,
    used_until: Millis,
    wanted_until: Millis,
    heard_at: Millis,
    asked_at: Millis,
}

impl Idle {
    /// Of a replica that was loaded just now.
    pub fn new(after: Millis, now: Millis) -> Self {
        Idle { after, used_until: 0, wanted_until: 0, heard_at: now, asked_at: now }
    }

    /// Somebody uses the range here.
    pub fn used(&mut self, now: Millis) {
        self.used_until = now.saturating_add(self.after);
    }

    /// Somebody leads it, or uses it elsewhere.
    pub fn wanted(&mut self, now: Millis) {
        self.wanted_until = now.saturating_add(self.after);
    }

    /// A message arrived.
    pub fn heard(&mut self, now: Millis) {
        self.heard_at = now;
    }

    /// The leader said that nobody wants it.
    pub fn dismissed(&mut self) {
        (self.wanted_until, self.heard_at) = (0, 0);
    }

    /// Whether somebody uses the range here.
    pub fn is_used(&self, now: Millis) -> bool {
        now < self.used_until
    }

    /// Whether it is worth having a leader.
    pub fn is_wanted(&self, now: Millis) -> bool {
        self.after == 0 || now < self.used_until || now < self.wanted_until
    }

    /// Whether the replica may leave memory.
    pub fn may_go(&self, now: Millis) -> bool {
        !self.is_wanted(now) && now.saturating_sub(self.heard_at) >= STAY_MS.min(self.after)
    }

    /// Whether it is time for a follower to ask whether its leader, silent for so long, still leads. Says so
    /// once in a while.
    pub fn asks(&mut self, now: Millis) -> bool {
        let asks = self.after > 0 && now.saturating_sub(self.heard_at.max(self.asked_at)) >= self.after;
        if asks {
            self.asked_at = now;
        }
        asks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_keeps_awake() {
        let mut idle = Idle::new(60_000, 0);
        idle.used(1_000);
        assert!(idle.is_used(60_999) && idle.is_wanted(60_999) && !idle.may_go(60_999));
        assert!(!idle.is_used(61_000) && idle.may_go(61_000));
        idle.wanted(61_000);
        assert!(!idle.is_used(70_000) && idle.is_wanted(70_000) && !idle.may_go(70_000));
        idle.dismissed();
        assert!(idle.may_go(70_000));
    }

    #[test]
    fn a_message_alone_keeps_awake_for_a_moment() {
        let mut idle = Idle::new(60_000, 0);
        assert!(!idle.is_wanted(0) && !idle.may_go(STAY_MS - 1) && idle.may_go(STAY_MS));
        idle.heard(STAY_MS);
        assert!(!idle.may_go(STAY_MS));
    }

    #[test]
    fn some_never_sleep() {
        let mut idle = Idle::new(0, 0);
        assert!(idle.is_wanted(Millis::MAX) && !idle.may_go(Millis::MAX) && !idle.asks(Millis::MAX));
    }

    #[test]
    fn a_silent_leader_is_asked_now_and_then() {
        let mut idle = Idle::new(60_000, 0);
        assert!(!idle.asks(59_999) && idle.asks(60_000) && !idle.asks(60_001) && idle.asks(120_000));
        idle.heard(150_000);
        assert!(!idle.asks(200_000) && idle.asks(210_000));
    }
}
