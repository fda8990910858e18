//! When a transaction over several ranges is to commit: pure.
//!
//! A range whose clock is past the timestamp chosen prepares above it, which costs a second round. So the
//! timestamp lies ahead of this process's clock, by as much as the clocks of the ranges were seen to be ahead
//! when batches got there; the way there is part of it, and so is the time that a refresh takes which comes first.
//! Being too far ahead costs others: who reads there meanwhile finds intents that are not decided, and waits.
//!
//! A commit moves the clocks of its ranges to its own timestamp. If others took that for a lead they would commit
//! further ahead, and drive each other on. So a clock counts only where it shows its node's wall clock, which is
//! when its logical part is zero; and the lead shrinks a little whenever it was enough. Nor does a clock count that
//! was read after a wait for somebody's lock: answers that took far longer than others are left out.

use crate::environment::Environment;
use hashbrown::HashMap;
use kv_api::Timestamp;

/// Most ranges whose clocks are remembered. Beyond, all are forgotten: what is not known is learned again from
/// the next answer.
const MAX_RANGES: usize = 1024;
/// Most by which a timestamp lies ahead of this process's clock because of leads, in nanoseconds.
const MOST_NS: u64 = kv_api::timestamp::MAX_CLOCK_OFFSET_NS;
/// Added to what was seen, in nanoseconds; and a part of it.
const MARGIN_NS: u64 = 200_000;
const MARGIN_PART: u64 = 8;
/// The part of the way down that a lead goes with each smaller one seen, and that it shrinks by when it was enough.
const DECAY: u64 = 8;
const PROBE: u64 = 128;
/// An answer has waited if it took so many times as long as quick ones, and so much longer in nanoseconds.
const SLOW: u64 = 4;
const SLOW_NS: u64 = 1_000_000;
/// The part by which answers may get slower each time.
const FORGET: u64 = 64;

/// How far the clocks of ranges were ahead of this process's, and how long refreshes took.
#[derive(Debug, Default)]
pub struct Leads {
    ranges: HashMap<u64, Lead>,
    refresh_ns: u64,
}

/// What is known of the clock of a range.
#[derive(Debug, Default)]
struct Lead {
    ns: u64,
    /// How long answers take that wait for nothing, by kind.
    quick_ns: [Option<u64>; 2],
}

/// What was asked when the clock was seen.
#[derive(Debug, Clone, Copy)]
pub enum Asked {
    /// To read.
    Read = 0,
    /// To write.
    Write = 1,
}

/// A batch that was answered.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
    pub asked: Asked,
    /// When it was sent, in nanoseconds on this process's clock.
    pub sent_ns: u64,
    /// When the answer came.
    pub received_ns: u64,
}

impl Answered {
    /// A batch sent at `sent_ns`, whose answer is there.
    pub fn now(asked: Asked, sent_ns: u64, environment: &Environment) -> Self {
        Answered { asked, sent_ns, received_ns: environment.physical_ns() }
    }
}

impl Leads {
    /// Takes note of what the clock of a range showed when a batch was answered. A larger lead counts at once, a
    /// smaller one little by little.
    pub fn note(&mut self, range_id: u64, clock: Timestamp, answered: Answered) {
        if self.ranges.len() >= MAX_RANGES && !self.ranges.contains_key(&range_id) {
            self.ranges.clear();
        }
        let lead = self.ranges.entry(range_id).or_default();
        let took_ns = answered.received_ns.saturating_sub(answered.sent_ns);
        let Some(quick) = lead.quick_ns.get_mut(answered.asked as usize) else { return };
        // It may take longer from now on: what was quick once is forgotten in time.
        let quick_ns = quick.map_or(took_ns, |quick| (quick + quick / FORGET + 1).min(took_ns));
        *quick = Some(quick_ns);
        if clock.logical == 0 && took_ns <= quick_ns.saturating_mul(SLOW).saturating_add(SLOW_NS) {
            approach(&mut lead.ns, clock.wall_ns.saturating_sub(answered.sent_ns));
        }
    }

    /// Takes note of a range that committed, or prepared, where it was to.
    pub fn note_met(&mut self, range_id: u64) {
        if let Some(lead) = self.ranges.get_mut(&range_id) {
            lead.ns -= lead.ns.div_ceil(PROBE);
        }
    }

    /// Takes note of how long a refresh took.
    pub fn note_refresh(&mut self, took_ns: u64) {
        approach(&mut self.refresh_ns, took_ns);
    }

    /// The largest lead of some ranges in nanoseconds; 0 if nothing is known.
    pub fn of(&self, ranges: impl IntoIterator<Item = u64>) -> u64 {
        let known = ranges.into_iter().filter_map(|range| self.ranges.get(&range));
        known.map(|lead| lead.ns).max().unwrap_or(0)
    }

    /// How long a refresh takes, in nanoseconds; 0 if nothing is known.
    pub fn refresh_ns(&self) -> u64 {
        self.refresh_ns
    }
}

fn approach(value: &mut u64, seen: u64) {
    *value = if seen >= *value { seen } else { *value - (*value - seen).div_ceil(DECAY) };
}

/// A timestamp above `floor` and, at `now_ns` on this process's clock, ahead of clocks with this lead.
pub fn choose(now_ns: u64, lead_ns: u64, floor: Timestamp) -> Timestamp {
    let lead = lead_ns.saturating_add(lead_ns / MARGIN_PART).saturating_add(MARGIN_NS).min(MOST_NS);
    Timestamp::new(now_ns.saturating_add(lead), 0).max(floor.next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv_api::timestamp::HybridClock;

    fn read(sent_ns: u64) -> Answered {
        Answered { asked: Asked::Read, sent_ns, received_ns: sent_ns + 100 }
    }

    #[test]
    fn a_lead_grows_at_once_and_shrinks_slowly() {
        let mut leads = Leads::default();
        assert_eq!(leads.of([1]), 0);
        let at = |wall_ns| Timestamp::new(wall_ns, 0);
        leads.note(1, at(1_800), read(1_000));
        assert_eq!(leads.of([1]), 800);
        leads.note(1, at(2_000), read(2_000));
        assert_eq!(leads.of([1]), 700);
        leads.note(1, at(2_000), read(9_000));
        assert_eq!(leads.of([1]), 612);
        leads.note(1, at(10_000), read(9_000));
        assert_eq!(leads.of([1]), 1_000);
        (0..200).for_each(|_| leads.note(1, at(0), read(9_000)));
        assert_eq!(leads.of([1]), 0, "it gets there");
    }

    #[test]
    fn clocks_seen_after_a_wait_do_not_count() {
        let mut leads = Leads::default();
        let answered = |asked, took_ns: u64| Answered { asked, sent_ns: 1_000, received_ns: 1_000 + took_ns };
        let at = |wall_ns: u64| Timestamp::new(1_000 + wall_ns, 0);
        leads.note(1, at(300), answered(Asked::Read, 500));
        leads.note(1, at(70_000_000), answered(Asked::Read, 90_000_000));
        assert_eq!(leads.of([1]), 300);
        leads.note(1, at(400), answered(Asked::Write, 80_000));
        leads.note(1, at(900), answered(Asked::Write, 160_000));
        assert_eq!(leads.of([1]), 900, "writes take longer");
        leads.note_met(1);
        assert!(leads.of([1]) < 900);
        leads.note_refresh(700);
        assert_eq!(leads.refresh_ns(), 700);
    }

    #[test]
    fn commits_ahead_of_time_do_not_drive_each_other_on() {
        // Two clients commit in one range, one right after the other.
        let (mut clients, mut clock) = ([Leads::default(), Leads::default()], HybridClock::default());
        let skew = 3_000_000;
        for commit in 0..5_000u64 {
            let now = 1_000_000_000 + commit * 20_000;
            let leads = &mut clients[commit as usize % 2];
            let at = choose(now, leads.of([1]), Timestamp::MIN);
            assert!(at.wall_ns - now < 2 * skew, "{commit}: {}", at.wall_ns - now);
            if clock.latest() < at && now + skew < at.wall_ns {
                clock.observe(at);
                leads.note_met(1);
            } else {
                leads.note(1, clock.now(now + skew), read(now));
            }
        }
        assert!(clients.iter().all(|leads| leads.of([1]) > skew / 2));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut leads = Leads::default();
        for range in 0..10_000 {
            leads.note(range, Timestamp::new(5, 0), read(0));
            assert!(leads.ranges.len() <= MAX_RANGES && leads.of([3, range]) == 5);
        }
    }

    #[test]
    fn the_timestamp_is_ahead_of_all_clocks_and_above_the_floor() {
        let now = 1_000_000_000;
        assert_eq!(choose(now, 0, Timestamp::MIN), Timestamp::new(now + MARGIN_NS, 0));
        assert_eq!(choose(now, 8_000_000, Timestamp::MIN), Timestamp::new(now + 9_200_000, 0));
        assert_eq!(choose(now, u64::MAX, Timestamp::MIN), Timestamp::new(now + MOST_NS, 0));
        let floor = Timestamp::new(now + MOST_NS, 7);
        assert_eq!(choose(now, 0, floor), floor.next());
        assert_eq!(choose(u64::MAX, u64::MAX, Timestamp::MIN), Timestamp::new(u64::MAX, 0));
    }
}
