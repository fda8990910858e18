//! What is known of ranges: where they are, and who leads them. Pure.
//!
//! Nothing here is ever certain. The range directory says what was true a moment ago; a replica's answer
//! ([`KvErrorKind::NotLeaseholder`](kv_api::KvErrorKind::NotLeaseholder),
//! [`RangeNotFound`](kv_api::KvErrorKind::RangeNotFound)) corrects it; the node that holds the lease has the
//! last word on everything.

use crate::addresses::is_address;
use crate::located::Located;
use bytes::Bytes;
use kv_api::batch::RangeInfo;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Most ranges remembered.
pub const MAX_RANGES: usize = 1024;
/// Most replicas remembered of a range.
const MAX_REPLICAS: usize = 16;
/// Nodes of which one is no further away than the other by this or by as much again, there and back, are equally near:
/// machines in one place answer that differently from one moment to the next.
const SAME_PLACE: Duration = Duration::from_millis(1);

/// A range.
#[derive(Debug)]
pub struct Range {
    /// Its name.
    pub id: u64,
    /// First key after it; empty if it is the last.
    end: Bytes,
    replicas: SmallVec<[Arc<str>; 3]>,
    /// The node that served it last, or was named since.
    leaseholder: Option<Arc<str>>,
    /// Whether every replica serves reads of the present.
    global: bool,
    /// Another one whenever the directory was asked.
    pub version: u64,
    /// Whether nobody has served it since the directory was asked.
    pub untried: bool,
}

impl Range {
    /// The node that probably holds the lease.
    pub fn leaseholder(&self) -> Option<&Arc<str>> {
        self.leaseholder.as_ref()
    }

    /// The nodes that may hold the lease, the likeliest first.
    pub fn candidates(&self) -> impl Iterator<Item = &Arc<str>> {
        self.leaseholder.iter().chain(&self.replicas)
    }

    /// The replica to read from: the one at `near`, or else another one with every `turn`, of those that are nearest
    /// or of which it is not known how far away they are. `round_trip` says that of an address.
    pub fn replica(
        &self,
        near: &str,
        turn: usize,
        round_trip: impl Fn(&str) -> Option<Duration>,
    ) -> Option<&Arc<str>> {
        if let Some(named) = self.replicas.iter().find(|address| ***address == *near) {
            return Some(named);
        }
        let trips: SmallVec<[_; 3]> = self.replicas.iter().map(|address| round_trip(address)).collect();
        let within = trips.iter().flatten().min().map(|least| (*least * 2).max(*least + SAME_PLACE));
        let is_near = |trip: &Option<Duration>| trip.zip(within).is_none_or(|(trip, within)| trip <= within);
        let nearest = || self.replicas.iter().zip(&trips).filter(|(_, trip)| is_near(trip));
        let (address, _) = nearest().nth(turn.checked_rem(nearest().count())?)?;
        Some(address)
    }

    /// Whether the node at an address has a replica, as far as is known.
    pub fn has_replica_at(&self, address: &str) -> bool {
        self.replicas.iter().any(|replica| **replica == *address)
    }

    fn contains(&self, key: &[u8]) -> bool {
        self.end.is_empty() || key < &self.end[..]
    }
}

/// The ranges known, by their first keys. They do not overlap.
#[derive(Debug, Default)]
pub struct Ranges {
    by_start: BTreeMap<Bytes, Range>,
    last_version: u64,
}

impl Ranges {
    /// The range that holds a key.
    pub fn find(&self, key: &[u8]) -> Option<&Range> {
        let up_to_key = (Bound::Unbounded, Bound::Included(key));
        let (_, range) = self.by_start.range::<[u8], _>(up_to_key).next_back()?;
        range.contains(key).then_some(range)
    }

    /// The same, with its keys.
    pub fn locate(&self, key: &[u8]) -> Option<Located> {
        self.located((Bound::Unbounded, Bound::Included(key))).filter(|range| range.holds(key))
    }

    /// The range that holds the keys right below `end`.
    pub fn locate_before(&self, end: &[u8]) -> Option<Located> {
        self.located((Bound::Unbounded, Bound::Excluded(end))).filter(|range| range.holds_before(end))
    }

    fn located(&self, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Option<Located> {
        let (start, range) = self.by_start.range::<[u8], _>(bounds).next_back()?;
        Some(Located {
            range_id: range.id,
            start: start.clone(),
            end: range.end.clone(),
            global: range.global,
        })
    }

    fn find_mut(&mut self, key: &[u8]) -> Option<&mut Range> {
        let up_to_key = (Bound::Unbounded, Bound::Included(key));
        let (_, range) = self.by_start.range_mut::<[u8], _>(up_to_key).next_back()?;
        range.contains(key).then_some(range)
    }

    /// Notes what a range that holds a key said of itself.
    pub fn note_global(&mut self, key: &[u8], range_id: u64, global: bool) {
        if let Some(range) = self.find_mut(key).filter(|range| range.id == range_id) {
            range.global = global;
        }
    }

    /// Takes in what the directory says. It replaces what it contradicts; who was seen to lead the range
    /// stays.
    pub fn learn(&mut self, info: &RangeInfo) {
        if !info.end.is_empty() && info.start >= info.end {
            return;
        }
        let address_of = |node: u64| {
            let replica = info.replicas.iter().find(|replica| node != 0 && replica.node_id == node)?;
            is_address(&replica.address).then(|| replica.address.as_str().into())
        };
        let seen = self.find(&info.start).filter(|range| range.id == info.range_id);
        let seen = seen.and_then(|range| range.leaseholder.clone());
        self.make_room(&info.start, &info.end);
        self.last_version += 1;
        let addresses = info.replicas.iter().map(|replica| replica.address.as_str());
        let range = Range {
            id: info.range_id,
            end: info.end.clone(),
            replicas: addresses.filter(|text| is_address(text)).take(MAX_REPLICAS).map(Arc::from).collect(),
            leaseholder: seen.or_else(|| address_of(info.leaseholder)),
            global: info.config.as_ref().is_some_and(|config| config.global_reads),
            version: self.last_version,
            untried: true,
        };
        self.by_start.insert(info.start.clone(), range);
    }

    /// Removes what overlaps a span, and one more range if there are too many.
    fn make_room(&mut self, start: &Bytes, end: &Bytes) {
        let before: Bound<&[u8]> = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end) };
        // Ranges known do not overlap: those that do overlap the span are the last ones that begin before
        // its end.
        while let Some((first, range)) =
            self.by_start.range::<[u8], _>((Bound::Unbounded, before)).next_back()
            && (first >= start || range.contains(start))
        {
            let first = first.clone();
            self.by_start.remove(&first);
        }
        if self.by_start.len() >= MAX_RANGES {
            // Not the first: that is the control plane's own, which it uses all the time.
            self.by_start.pop_last();
        }
    }

    /// The directory says that no range holds the key.
    pub fn forget(&mut self, key: &[u8]) {
        let up_to_key = (Bound::Unbounded, Bound::Included(key));
        if let Some((start, range)) = self.by_start.range::<[u8], _>(up_to_key).next_back()
            && range.contains(key)
        {
            let start = start.clone();
            self.by_start.remove(&start);
        }
    }

    /// A node served the range of a key.
    pub fn served(&mut self, key: &[u8], id: u64, by: &Arc<str>) {
        if let Some(range) = self.find_mut(key).filter(|range| range.id == id) {
            range.leaseholder = Some(by.clone());
            range.untried = false;
        }
    }

    /// A node is about to be asked to serve the range: it counts as the leaseholder if none is known.
    pub fn supposed(&mut self, key: &[u8], id: u64, to: &Arc<str>) {
        if let Some(range) = self.find_mut(key).filter(|range| range.id == id) {
            range.leaseholder.get_or_insert_with(|| to.clone());
        }
    }

    /// A node cannot be reached, or did not serve the range.
    pub fn failed(&mut self, key: &[u8], id: u64, at: &str) {
        if let Some(range) = self.find_mut(key).filter(|range| range.id == id)
            && range.leaseholder.as_deref() == Some(at)
        {
            range.leaseholder = None;
        }
    }

    /// A node does not hold the lease of a range, and said who does, if it knew it. Returns whom to ask: if
    /// somebody else found out more since the node was chosen, that counts.
    pub fn redirected(&mut self, key: &[u8], id: u64, by: &str, hint: Option<Arc<str>>) -> Option<Arc<str>> {
        let Some(range) = self.find_mut(key).filter(|range| range.id == id) else { return hint };
        if range.leaseholder.as_deref().is_none_or(|known| known == by) {
            range.leaseholder = hint.filter(|hint| **hint != *by);
        }
        range.leaseholder.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv_api::batch::ReplicaInfo;

    fn key(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    fn to(name: &str) -> Arc<str> {
        format!("{name}:1").into()
    }

    /// A range with a replica on each node of `nodes`; node 1 is `a:1` and so on.
    fn info(range_id: u64, start: &str, end: &str, nodes: &str, leaseholder: u64) -> RangeInfo {
        let replica = |name: char| {
            let node_id = u64::from(name) - u64::from('a') + 1;
            ReplicaInfo { node_id, address: format!("{name}:1") }
        };
        let replicas = nodes.chars().map(replica).collect();
        RangeInfo {
            range_id,
            start: key(start),
            end: key(end),
            replicas,
            leaseholder,
            ..RangeInfo::default()
        }
    }

    fn known(ranges: &Ranges) -> String {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        let range =
            |(start, range): (&Bytes, &Range)| format!("{}:{}-{}", range.id, text(start), text(&range.end));
        ranges.by_start.iter().map(range).collect::<Vec<_>>().join(" ")
    }

    fn candidates(ranges: &Ranges, at: &str) -> String {
        let range = ranges.find(at.as_bytes()).unwrap();
        range.candidates().map(|address| &address[..1]).collect()
    }

    #[test]
    fn a_key_is_found_in_the_range_that_holds_it() {
        let mut ranges = Ranges::default();
        ranges.learn(&info(5, "c", "f", "abc", 2));
        ranges.learn(&info(7, "k", "", "abc", 0));
        let find = |at: &str| ranges.find(at.as_bytes()).map(|range| range.id);
        assert_eq!(
            ["b", "c", "ez", "f", "k", "zz"].map(find),
            [None, Some(5), Some(5), None, Some(7), Some(7)]
        );
        assert_eq!((candidates(&ranges, "c"), candidates(&ranges, "k")), ("babc".into(), "abc".into()));
    }

    #[test]
    fn a_range_is_found_from_both_sides() {
        let mut ranges = Ranges::default();
        ranges.learn(&info(5, "c", "f", "a", 0));
        ranges.learn(&info(6, "f", "k", "a", 0));
        let located = |start, end, range_id| {
            Some(Located { range_id, start: key(start), end: key(end), global: false })
        };
        assert_eq!(ranges.locate(b"f"), located("f", "k", 6));
        assert_eq!(ranges.locate_before(b"f"), located("c", "f", 5));
        assert_eq!(ranges.locate_before(b"fa"), located("f", "k", 6));
        assert_eq!((ranges.locate(b"k"), ranges.locate_before(b"kk")), (None, None));
        assert_eq!((ranges.locate(b"b"), ranges.locate_before(b"c")), (None, None));
    }

    #[test]
    fn what_the_directory_says_replaces_what_it_contradicts() {
        let mut ranges = Ranges::default();
        for (id, start, end) in [(1, "a", "c"), (2, "c", "e"), (3, "e", "g"), (4, "m", "p")] {
            ranges.learn(&info(id, start, end, "a", 0));
        }
        ranges.learn(&info(9, "b", "f", "a", 0));
        assert_eq!(known(&ranges), "9:b-f 4:m-p");
        ranges.learn(&info(10, "n", "o", "a", 0));
        assert_eq!(known(&ranges), "9:b-f 10:n-o");
        ranges.learn(&info(11, "p", "q", "a", 0));
        ranges.learn(&info(12, "z", "y", "a", 0));
        assert_eq!(known(&ranges), "9:b-f 10:n-o 11:p-q");
        ranges.learn(&info(13, "c", "", "a", 0));
        assert_eq!(known(&ranges), "13:c-");
        ranges.forget(b"b");
        assert_eq!(known(&ranges), "13:c-");
        ranges.forget(b"x");
        assert_eq!(known(&ranges), "");
    }

    #[test]
    fn the_leaseholder_follows_what_the_nodes_say() {
        let mut ranges = Ranges::default();
        ranges.learn(&info(5, "c", "f", "abc", 1));
        assert_eq!(ranges.redirected(b"d", 5, "a:1", Some(to("b"))), Some(to("b")));
        assert_eq!(candidates(&ranges, "d"), "babc");
        // Another request that was sent to the old one finds what is known by now.
        assert_eq!(ranges.redirected(b"d", 5, "a:1", None), Some(to("b")));
        assert_eq!(ranges.redirected(b"d", 5, "c:1", Some(to("a"))), Some(to("b")));
        ranges.failed(b"d", 5, "a:1");
        assert_eq!(candidates(&ranges, "d"), "babc");
        ranges.failed(b"d", 5, "b:1");
        assert_eq!(candidates(&ranges, "d"), "abc");
        ranges.served(b"d", 5, &to("c"));
        ranges.served(b"d", 6, &to("a"));
        assert_eq!(candidates(&ranges, "d"), "cabc");
        assert_eq!(ranges.redirected(b"d", 5, "c:1", Some(to("c"))), None, "it named itself");
        assert_eq!(candidates(&ranges, "d"), "abc");
    }

    #[test]
    fn who_was_seen_to_lead_stays_when_the_directory_is_asked_again() {
        let mut ranges = Ranges::default();
        ranges.learn(&info(5, "c", "f", "abc", 1));
        let version = ranges.find(b"c").unwrap().version;
        ranges.served(b"c", 5, &to("b"));
        ranges.learn(&info(5, "c", "f", "bcd", 1));
        assert_eq!(candidates(&ranges, "c"), "bbcd");
        assert_ne!(ranges.find(b"c").unwrap().version, version);
        ranges.failed(b"c", 5, "b:1");
        ranges.learn(&info(5, "c", "f", "abc", 3));
        assert_eq!(candidates(&ranges, "c"), "cabc");
        ranges.learn(&info(6, "c", "f", "abc", 0));
        assert_eq!(candidates(&ranges, "c"), "abc", "another range");
    }

    #[test]
    fn reads_prefer_replicas_near_by_and_share_out_otherwise() {
        let mut ranges = Ranges::default();
        ranges.learn(&info(5, "c", "f", "abc", 1));
        let range = ranges.find(b"c").unwrap();
        let turns = |near: &str, trips: [Option<u64>; 3]| -> String {
            let trip =
                |address: &str| trips[usize::from(address.as_bytes()[0] - b'a')].map(Duration::from_micros);
            (0..5).filter_map(|turn| range.replica(near, turn, trip)).map(|address| &address[..1]).collect()
        };
        assert_eq!(turns("b:1", [Some(100), Some(20_000), None]), "bbbbb");
        assert_eq!(turns("", [None; 3]), "abcab");
        assert_eq!(turns("", [Some(100), Some(900), Some(300)]), "abcab", "in one place");
        assert_eq!(turns("", [Some(20_000), Some(150), Some(20_000)]), "bbbbb");
        assert_eq!(turns("", [Some(30_000), Some(50_000), Some(80_000)]), "ababa", "as far as each other");
        assert_eq!(turns("", [Some(20_000), Some(150), None]), "bcbcb", "it may be nearer");
        ranges.learn(&info(6, "x", "y", "", 1));
        assert!(ranges.find(b"x").unwrap().replica("", 3, |_| None).is_none());
    }

    #[test]
    fn what_is_remembered_is_bounded_and_checked() {
        let mut ranges = Ranges::default();
        for number in 0..3 * MAX_RANGES as u64 {
            let start = format!("{number:08}");
            ranges.learn(&info(number + 1, &start, &format!("{start}x"), "a", 0));
        }
        assert_eq!(ranges.by_start.len(), MAX_RANGES);
        assert!(ranges.find(b"00000000").is_some(), "the first stays");
        let mut wide = info(1, "c", "f", "a", 2);
        wide.replicas =
            (1..100).map(|node_id| ReplicaInfo { node_id, address: format!("h{node_id}:1") }).collect();
        wide.replicas[1].address = "nonsense".into();
        ranges.learn(&wide);
        assert_eq!(ranges.find(b"c").unwrap().candidates().count(), MAX_REPLICAS);
    }
}
