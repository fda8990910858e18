//! Clocks that are kept ahead of the present, for global reads ([`crate::global`]).

use super::{Pipeline, RangeState, before, not_leaseholder};
use crate::global::LEAD_NS;
use kv_api::timestamp::MAX_CLOCK_OFFSET_NS;
use kv_api::{KvError, KvErrorKind, Timestamp};
use replication::RangeId;
use std::time::Duration;

/// How long it may take until what was promised ahead lies in the past.
const PATIENCE: Duration = Duration::from_secs(8);

/// A range that is read everywhere, whose lease is held here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    /// What was acknowledged without a wait lies at or below it; absent until nothing of that kind is under way.
    since: Option<Timestamp>,
    /// It is about to be one like others: nothing more is promised ahead.
    pub ending: bool,
}

/// What the leaseholder of a range promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promised {
    /// Nothing will be committed any more at or below it.
    pub timestamp: Timestamp,
    /// Who has applied this entry has all that was.
    pub index: u64,
    /// Whether commits in the range are waited out, and reads of what is not.
    pub waits: bool,
    /// Whether all that is acknowledged was, so that it can be used for the present at any time.
    pub present: bool,
    /// Nothing was written above it.
    pub written: Timestamp,
}

impl Ahead {
    /// Whether the wall clock has passed everything that was acknowledged without a wait.
    fn has_passed(&self, wall_ns: u64) -> bool {
        self.since.is_some_and(|since| since.wall_ns < wall_ns)
    }
}

impl RangeState {
    /// Begins to be one that is read everywhere, or goes on, or ends.
    pub fn keep_ahead(&mut self, ahead: bool) {
        self.ahead = ahead.then(|| Ahead { ending: false, ..self.ahead.unwrap_or_default() });
    }
}

impl Pipeline {
    /// Whether a range whose lease is held here is read everywhere: commits must be waited out.
    pub fn is_ahead(&self, range: RangeId) -> bool {
        self.shared.state.lock().ranges.get(&range).is_some_and(|found| found.ahead.is_some())
    }

    /// The largest timestamp at which something may have been written in a range that is read everywhere; none for
    /// others.
    pub fn written_ahead(&self, range: RangeId) -> Option<Timestamp> {
        let state = self.shared.state.lock();
        state.ranges.get(&range).filter(|found| found.ahead.is_some()).map(|found| found.written)
    }

    /// Where reads of the present are to be: as [`Pipeline::read_timestamp`], but in a range that is read everywhere
    /// no further ahead than what was acknowledged anywhere can be, once all that was has been waited out.
    ///
    /// # Errors
    /// As for [`Pipeline::lease`].
    pub fn present(&self, range: RangeId) -> Result<Timestamp, KvError> {
        Ok(self.no_later(range, self.read_timestamp(range)?))
    }

    /// What the clock of a range shows, and the same holds.
    ///
    /// # Errors
    /// As for [`Pipeline::lease`].
    pub fn present_clock(&self, range: RangeId) -> Result<Timestamp, KvError> {
        Ok(self.no_later(range, self.clock(range)?))
    }

    fn no_later(&self, range: RangeId, timestamp: Timestamp) -> Timestamp {
        let mut state = self.shared.state.lock();
        let Some(ahead) = state.ranges.get(&range).and_then(|found| found.ahead) else { return timestamp };
        let wall_ns = self.shared.wall_ns(&mut state);
        if !ahead.has_passed(wall_ns) {
            return timestamp;
        }
        timestamp.min(Timestamp::new(wall_ns.saturating_add(MAX_CLOCK_OFFSET_NS), 0))
    }

    /// As [`Pipeline::promise`], ahead of the present where the range is read everywhere. There must have been no
    /// transaction that is prepared and not decided a moment ago.
    ///
    /// # Errors
    /// As for [`Pipeline::lease`].
    pub fn promise_ahead(&self, range: RangeId) -> Result<Promised, KvError> {
        let mut state = self.shared.state.lock();
        let now = self.shared.now(&mut state, range)?;
        let wall_ns = self.shared.wall_ns(&mut state);
        let (found, held) = self.shared.held(&mut state, range)?;
        let index = found.applied.ok_or_else(not_leaseholder)?;
        let mut present = false;
        let mut timestamp = now;
        if let Some(ahead) = &mut found.ahead {
            if ahead.since.is_none() && found.in_flight.is_empty() {
                ahead.since = Some(now);
            }
            present = !ahead.ending && ahead.has_passed(wall_ns);
            if present {
                let lead = Timestamp::new(wall_ns.saturating_add(LEAD_NS), 0);
                found.clock.observe(lead.min(before(held.ceiling)));
                timestamp = found.clock.latest();
            }
        }
        if let Some(oldest) = found.in_flight.first() {
            timestamp = before(*oldest);
        }
        let (waits, written) = (found.ahead.is_some(), found.written);
        Ok(Promised { timestamp, index, waits, present, written })
    }

    /// Promises nothing more ahead in a range, and waits until all that was promised lies in the past. Commits go on to
    /// be waited out until the range's descriptor says that it is like others, or [`Pipeline::go_on_ahead`].
    ///
    /// # Errors
    /// [`KvErrorKind::Unavailable`] if that takes too long, and as for [`Pipeline::lease`].
    pub async fn end_ahead(&self, range: RangeId) -> Result<(), KvError> {
        let promised = {
            let mut state = self.shared.state.lock();
            let (found, _) = self.shared.held(&mut state, range)?;
            let Some(ahead) = &mut found.ahead else { return Ok(()) };
            ahead.ending = true;
            found.clock.latest()
        };
        let begun = tokio::time::Instant::now();
        loop {
            let missing = promised.wall_ns.saturating_sub(self.wall_ns());
            if missing == 0 {
                return Ok(());
            }
            if begun.elapsed() >= PATIENCE {
                let message = "clocks have not passed what was promised of the range";
                return Err(KvError::new(KvErrorKind::Unavailable, message));
            }
            tokio::time::sleep(Duration::from_nanos(missing) + Duration::from_millis(1)).await;
        }
    }

    /// What was to end goes on after all, if it has not ended.
    pub fn go_on_ahead(&self, range: RangeId) {
        if let Some(found) = self.shared.state.lock().ranges.get_mut(&range)
            && let Some(ahead) = &mut found.ahead
        {
            ahead.ending = false;
        }
    }
}
