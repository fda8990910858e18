//! For how long replaced versions are kept, and which snapshots are too old to be read.
//!
//! There is one time for all ranges, and ranges may want others
//! ([`kv_api::batch::RangeConfig::gc_ttl_s`]). Once a minute the oldest snapshot that may be read moves up, and
//! the engine may drop what only those refused at the move before could see: so no batch under way loses what
//! it reads.

use crate::node::Node;
use crate::span_config;
use hashbrown::HashMap;
use kv_api::{Span, Timestamp};
use parking_lot::RwLock;
use replication::{RangeDescriptor, RangeId};
use std::sync::Weak;
use std::time::Duration;
use storage::GarbageFloors;

/// How often the oldest snapshot moves up.
const TICK: Duration = Duration::from_secs(60);

/// A range whose history is kept for a time of its own.
#[derive(Clone, Debug)]
pub struct Kept {
    range: RangeId,
    span: Span,
    history: Duration,
}

impl Kept {
    /// What a descriptor says; `None` if it says nothing.
    pub fn of(descriptor: RangeDescriptor) -> Option<Self> {
        let seconds = span_config::kept(&descriptor.config, &descriptor.start).gc_ttl_s;
        (seconds > 0).then(|| Kept {
            range: descriptor.range_id,
            span: Span::new(descriptor.start, descriptor.end),
            history: Duration::from_secs(seconds),
        })
    }
}

/// The oldest snapshots that may be read, as wall times.
pub struct History {
    oldest: RwLock<Oldest>,
}

struct Oldest {
    rest: u64,
    ranges: HashMap<RangeId, u64>,
}

fn before(now: Timestamp, kept: Duration) -> u64 {
    now.wall_ns.saturating_sub(u64::try_from(kept.as_nanos()).unwrap_or(u64::MAX))
}

impl History {
    /// The history of a process that starts at `now`: an earlier one may have dropped what lies before.
    pub fn new(now: Timestamp, kept: Duration) -> Self {
        History { oldest: RwLock::new(Oldest { rest: before(now, kept), ranges: HashMap::new() }) }
    }

    /// Snapshots of a range below this are refused.
    pub fn oldest(&self, range: RangeId) -> Timestamp {
        let oldest = self.oldest.read();
        Timestamp::new(oldest.ranges.get(&range).copied().unwrap_or(oldest.rest), 0)
    }

    /// Moves up to `now`, but not beyond `open`, the oldest snapshot of a transaction with locks or intents.
    /// History is kept for `usual`, and for what `kept` says. Returns what the engine may drop.
    pub fn advance(
        &self,
        now: Timestamp,
        open: Option<Timestamp>,
        usual: Duration,
        kept: &[Kept],
    ) -> GarbageFloors {
        let open = open.map_or(u64::MAX, |open| open.wall_ns);
        let reaches = |kept| before(now, kept).min(open);
        let mut oldest = self.oldest.write();
        let mut floors = GarbageFloors::everywhere(Timestamp::new(oldest.rest, 0));
        let mut ranges = HashMap::new();
        for kept in kept {
            let last = oldest.ranges.get(&kept.range).copied().unwrap_or(oldest.rest);
            floors = floors.except(&kept.span.start, &kept.span.end, Timestamp::new(last, 0));
            ranges.insert(kept.range, reaches(kept.history).max(last));
        }
        oldest.rest = oldest.rest.max(reaches(usual));
        // What a range no longer wants dropped so early is gone all the same.
        for (range, last) in &oldest.ranges {
            if *last > oldest.rest {
                ranges.entry(*range).or_insert(*last);
            }
        }
        oldest.ranges = ranges;
        floors
    }
}

impl Node {
    /// Refuses snapshots older than the history is kept, and lets the engine drop what was refused before.
    /// `kept`: which ranges here want a time of their own.
    pub fn forget_history(&self, kept: &[Kept]) {
        // A transaction that holds locks or intents keeps what it has read.
        let open = self.shards.iter().filter_map(|shard| shard.lock().oldest_snapshot()).min();
        let now = self.pipeline.history_clock();
        self.engine.set_garbage_floors(self.history.advance(now, open, self.limits.history_kept, kept));
    }
}

/// Lets the history go by, until the node is gone.
pub async fn run(node: Weak<Node>) {
    loop {
        {
            let Some(node) = node.upgrade() else { return };
            let configured = node.pipeline.configured().await.unwrap_or_default();
            let kept: Vec<Kept> = configured.into_iter().filter_map(Kept::of).collect();
            node.forget_history(&kept);
        }
        tokio::time::sleep(TICK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use storage::Space;

    fn at(second: u64) -> Timestamp {
        Timestamp::new(second * 1_000_000_000, 0)
    }

    fn kept(range: RangeId, key: &'static str, seconds: u64) -> Kept {
        let start = Bytes::from_static(key.as_bytes());
        let end = Bytes::from([key.as_bytes(), &[0xff]].concat());
        Kept { range, span: Span::new(start, end), history: Duration::from_secs(seconds) }
    }

    #[test]
    fn each_range_is_kept_as_long_as_it_wants_and_dropped_one_move_later() {
        let usual = Duration::from_secs(100);
        let history = History::new(at(1000), usual);
        assert_eq!(history.oldest(7), at(900), "an earlier process may have dropped the rest");
        let ranges = [kept(7, "a", 10), kept(8, "b", 500)];
        let advance = |now, open, kept: &[Kept]| history.advance(at(now), open, usual, kept);
        let first = advance(1100, None, &ranges);
        let floors =
            |floors: &GarbageFloors| [&b"a1"[..], b"b1", b"c"].map(|key| floors.of(Space::Data, key));
        assert_eq!(floors(&first), [at(900); 3]);
        assert_eq!([7, 8, 9].map(|range| history.oldest(range)), [at(1090), at(900), at(1000)]);
        let second = advance(2000, None, &ranges);
        assert_eq!(floors(&second), [at(1090), at(900), at(1000)], "what was refused at the move before");
        assert_eq!([7, 8, 9].map(|range| history.oldest(range)), [at(1990), at(1500), at(1900)]);
    }

    #[test]
    fn what_was_dropped_does_not_come_back() {
        let usual = Duration::from_secs(100);
        let history = History::new(at(1000), usual);
        let _ = history.advance(at(1100), None, usual, &[kept(7, "a", 10)]);
        let _ = history.advance(at(1110), None, usual, &[]);
        assert_eq!(
            [7, 9].map(|range| history.oldest(range)),
            [at(1090), at(1010)],
            "it no longer wants that"
        );
        let _ = history.advance(at(1200), None, usual, &[]);
        assert_eq!(history.oldest(7), at(1100), "and is like the others when they have come as far");
        let _ = history.advance(at(900), None, usual, &[]);
        assert_eq!(history.oldest(9), at(1100), "a clock that goes back changes nothing");
    }

    #[test]
    fn open_transactions_keep_what_they_have_read() {
        let usual = Duration::from_secs(100);
        let history = History::new(at(1000), usual);
        let _ = history.advance(at(2000), Some(at(950)), usual, &[kept(7, "a", 10)]);
        assert_eq!([7, 9].map(|range| history.oldest(range)), [at(950), at(950)]);
    }
}
