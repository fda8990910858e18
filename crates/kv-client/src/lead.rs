//! When a transaction over several ranges is to commit: pure.
//!
//! A range whose clock is past the timestamp chosen prepares above it, which costs a second round. So the
//! timestamp lies ahead of this process's clock, by as much as the clocks of the ranges were seen to be ahead
//! when batches got there; the way there is part of it. Being too far ahead costs others: who reads there
//! meanwhile finds intents that are not decided, and waits.

use hashbrown::HashMap;
use kv_api::Timestamp;

/// Most ranges whose clocks are remembered. Beyond, all are forgotten: what is not known is learned again from
/// the next answer.
const MAX_RANGES: usize = 1024;
/// Most by which a timestamp lies ahead of this process's clock because of leads, in nanoseconds.
const MOST_NS: u64 = 6_000_000_000;
/// Added to what was seen, in nanoseconds; and a part of it.
const MARGIN_NS: u64 = 200_000;
const MARGIN_PART: u64 = 8;
/// How much of the way down a lead goes with each smaller one seen.
const DECAY: u64 = 8;

/// How far the clocks of ranges were ahead of this process's.
#[derive(Debug, Default)]
pub struct Leads(HashMap<u64, u64>);

impl Leads {
    /// Takes note of what the clock of a range showed when a batch sent at `sent_ns` was answered. A larger lead
    /// counts at once, a smaller one little by little.
    pub fn note(&mut self, range_id: u64, clock: Timestamp, sent_ns: u64) {
        let seen = clock.wall_ns.saturating_sub(sent_ns);
        if self.0.len() >= MAX_RANGES && !self.0.contains_key(&range_id) {
            self.0.clear();
        }
        let lead = self.0.entry(range_id).or_insert(seen);
        *lead = if seen >= *lead { seen } else { *lead - (*lead - seen).div_ceil(DECAY) };
    }

    /// The lead of a range in nanoseconds; 0 if nothing is known.
    pub fn of(&self, range_id: u64) -> u64 {
        self.0.get(&range_id).copied().unwrap_or(0)
    }
}

/// A timestamp above `floor` and, at `now_ns` on this process's clock, ahead of clocks with this lead.
pub fn choose(now_ns: u64, lead_ns: u64, floor: Timestamp) -> Timestamp {
    let lead = lead_ns.saturating_add(lead_ns / MARGIN_PART).saturating_add(MARGIN_NS).min(MOST_NS);
    Timestamp::new(now_ns.saturating_add(lead), 0).max(floor.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lead_grows_at_once_and_shrinks_slowly() {
        let mut leads = Leads::default();
        assert_eq!(leads.of(1), 0);
        let at = |wall_ns| Timestamp::new(wall_ns, 3);
        leads.note(1, at(1_800), 1_000);
        assert_eq!(leads.of(1), 800);
        leads.note(1, at(2_000), 2_000);
        assert_eq!(leads.of(1), 700);
        leads.note(1, at(2_000), 9_000);
        assert_eq!(leads.of(1), 612);
        leads.note(1, at(10_000), 9_000);
        assert_eq!(leads.of(1), 1_000);
        (0..200).for_each(|_| leads.note(1, at(0), 9_000));
        assert_eq!(leads.of(1), 0, "it gets there");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut leads = Leads::default();
        for range in 0..10_000 {
            leads.note(range, Timestamp::new(5, 0), 0);
            assert!(leads.0.len() <= MAX_RANGES && leads.of(range) == 5);
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
