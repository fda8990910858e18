//! What the directory makes of what it is told of a range: pure.
//!
//! # Which ranges live
//!
//! A range that is split off another carries the name of the one with which the tenant's keys came to be, its
//! *family* ([`replication::RangeDescriptor::family`]). A tenant is dropped by one command that takes all its
//! ranges out of the directory, and the next tenant with these keys is another family. So a range lives exactly
//! as long as the directory has a range of its family, whether or not it has the range itself: a report of a
//! range that the directory has never heard of is news of a split if there is such a one, and of a range that is
//! no more if there is none. Range ids alone could not tell the two apart.
//!
//! # Whose keys they are
//!
//! Ranges of a family become smaller at their ends, and otherwise only where they absorb their right neighbours; the
//! first key of a range is its own until it is absorbed. So where the directory knows of a first key, no range that
//! begins before it has it any more, and news of it can only be old: an end is cut off there, and never grows, unless
//! the range has merged more often than the directory knows. A range that is split off has merged as often as the one that
//! it is split off ([`replication::RangeDescriptor::merges`]), and one that absorbs another oftener than both. So
//! whoever has fewer merges, and a first key that a range has by any report of it, old or new, was absorbed; and
//! news of one of them, which comes late, is none. This keeps records from overlapping in whatever order reports arrive.
//! Between the reports of the two parts of a range there may be keys that no record has, and late news of who was absorbed
//! there counts until the other part is reported.
//!
//! A range is split and merged only while the directory knows it as it is ([`super::splitting`], [`super::merging`]), so
//! there is never more than one change of a range of which it has not heard.

use crate::directory::{RangeRecord, before, list};
use bytes::Bytes;
use kv_api::TenantId;
use std::collections::BTreeMap;
use std::ops::Bound;
use storage::{Reader, StorageResult};

/// What comes of a report.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// The directory knows as much already.
    Known,
    /// These are to be written.
    News(Vec<RangeRecord>),
    /// The range is no more: whoever reports it has not heard.
    Gone,
}

/// Judges a report by the last record of the tenant that begins at or before the range, and the first that
/// begins after its first key.
pub(super) fn judge(
    before: Option<&RangeRecord>,
    next: Option<&RangeRecord>,
    mut reported: RangeRecord,
) -> Verdict {
    let Some(before) = before.filter(|before| before.family() == reported.family()) else {
        return Verdict::Gone;
    };
    if before.range_id != reported.range_id && before.merges > reported.merges && before.end > reported.start
    {
        // It was absorbed since.
        return Verdict::Known;
    }
    if let Some(next) = next {
        reported.end = reported.end.min(next.start.clone());
    }
    if before.range_id == reported.range_id {
        if reported.index <= before.index || reported.start != before.start {
            return Verdict::Known;
        }
        if reported.merges == before.merges {
            // What was cut off it may have been split off and not be known itself.
            reported.end = reported.end.min(before.end.clone());
        }
        return Verdict::News(vec![reported]);
    }
    if before.start == reported.start {
        tracing::error!(
            known = before.range_id,
            reported = reported.range_id,
            "two ranges of a tenant begin with the same key"
        );
        return Verdict::Known;
    }
    let mut news = Vec::new();
    if before.end > reported.start {
        news.push(RangeRecord { end: reported.start.clone(), ..before.clone() });
    }
    news.push(reported);
    Verdict::News(news)
}

/// The directory with some records changed that are still to be written.
pub(super) struct Draft<'a, R: ?Sized> {
    directory: &'a R,
    changed: BTreeMap<Bytes, RangeRecord>,
    /// Ranges that were absorbed, by their first keys.
    absorbed: BTreeMap<Bytes, RangeRecord>,
}

impl<'a, R: Reader + ?Sized> Draft<'a, R> {
    pub fn new(directory: &'a R) -> Self {
        Draft { directory, changed: BTreeMap::new(), absorbed: BTreeMap::new() }
    }

    /// Takes in a report; false if the range is no more.
    ///
    /// # Errors
    /// I/O errors and damage.
    pub fn take(&mut self, reported: RangeRecord) -> StorageResult<bool> {
        let tenant = TenantId::of_key(&reported.start);
        let kin = |record: &RangeRecord| TenantId::of_key(&record.start) == tenant;
        let known = self.before(&reported.start)?.filter(kin);
        // Whatever was split off the range reported, or off one of that, has merged as often at least.
        let was_absorbed = |next: &RangeRecord| {
            next.family() == reported.family() && next.start < reported.end && next.merges < reported.merges
        };
        let next = loop {
            let next = self.after(&reported.start)?.filter(kin);
            match next {
                Some(next) if was_absorbed(&next) => {
                    self.changed.remove(&next.start);
                    self.absorbed.insert(next.start.clone(), next);
                }
                next => break next,
            }
        };
        match judge(known.as_ref(), next.as_ref(), reported) {
            Verdict::Known => Ok(true),
            Verdict::News(news) => {
                self.changed.extend(news.into_iter().map(|record| (record.start.clone(), record)));
                Ok(true)
            }
            Verdict::Gone => Ok(false),
        }
    }

    /// The last record that begins at or before a key.
    fn before(&self, key: &Bytes) -> StorageResult<Option<RangeRecord>> {
        let drafted = self.changed.range(..=key.clone()).next_back().map(|(_, record)| record.clone());
        let known = before(self.directory, key)?;
        // What was absorbed is not there; what absorbed it is drafted, and begins before it.
        Ok(later(known.filter(|known| !self.absorbed.contains_key(&known.start)), drafted))
    }

    /// The first record that begins after a key.
    fn after(&self, key: &Bytes) -> StorageResult<Option<RangeRecord>> {
        let after = (Bound::Excluded(key.clone()), Bound::Unbounded);
        let drafted = self.changed.range::<Bytes, _>(after).next().map(|(_, record)| record.clone());
        let mut at = key.clone();
        let known = loop {
            match list(self.directory, &at, 1)?.pop() {
                Some(known) if self.absorbed.contains_key(&known.start) => at = known.start,
                known => break known,
            }
        };
        let both = [known, drafted].into_iter().flatten();
        // What is drafted, if both begin with the same key.
        Ok(both.reduce(|known, drafted| if known.start < drafted.start { known } else { drafted }))
    }

    /// The ranges that were absorbed, and what is to be written of others.
    pub fn finish(self) -> (Vec<RangeRecord>, Vec<RangeRecord>) {
        let absorbed = self.absorbed.into_values().collect();
        (absorbed, self.changed.into_values().collect())
    }
}

/// The record that begins later; what is drafted if both begin with the same key.
fn later(known: Option<RangeRecord>, drafted: Option<RangeRecord>) -> Option<RangeRecord> {
    match (known, drafted) {
        (Some(known), Some(drafted)) if known.start > drafted.start => Some(known),
        (known, drafted) => drafted.or(known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::record_key;
    use kv_api::Timestamp;
    use replication::RangeId;
    use storage::{Engine, MemoryEngine, Space, WriteBatch, mvcc};

    const TENANT: TenantId = TenantId(7);

    fn key(name: &str) -> Bytes {
        if name == "z" { TENANT.span().end } else { TENANT.prefixed(name.as_bytes()) }
    }

    /// The tenant's keys from `start` to before `end`, "z" being the end of all.
    fn range(range_id: RangeId, start: &str, end: &str, index: u64) -> RangeRecord {
        RangeRecord { range_id, start: key(start), end: key(end), index, ..RangeRecord::default() }
    }

    fn split_off(range_id: RangeId, start: &str, end: &str, index: u64) -> RangeRecord {
        RangeRecord { origin: 5, ..range(range_id, start, end, index) }
    }

    fn news(records: &[RangeRecord]) -> Verdict {
        Verdict::News(records.to_vec())
    }

    #[test]
    fn reports_of_the_two_parts_come_in_any_order() {
        let whole = range(5, "", "z", 10);
        let (left, right) = (range(5, "", "m", 12), split_off(9, "m", "z", 0));
        assert_eq!(judge(Some(&whole), None, left.clone()), news(std::slice::from_ref(&left)));
        assert_eq!(judge(Some(&left), None, right.clone()), news(std::slice::from_ref(&right)));
        let cut = RangeRecord { end: key("m"), ..whole.clone() };
        assert_eq!(judge(Some(&whole), None, right.clone()), news(&[cut.clone(), right.clone()]));
        assert_eq!(judge(Some(&cut), Some(&right), left.clone()), news(std::slice::from_ref(&left)));
        let old = range(5, "", "z", 11);
        let kept = RangeRecord { end: key("m"), ..old.clone() };
        assert_eq!(judge(Some(&cut), Some(&right), old.clone()), news(&[kept]), "before it was split");
        assert_eq!(judge(Some(&left), Some(&right), old.clone()), Verdict::Known, "older still");
        assert_eq!(
            judge(Some(&left), None, RangeRecord { index: 13, ..old }),
            news(&[RangeRecord { index: 13, ..left }]),
            "an end never grows"
        );
    }

    #[test]
    fn a_range_that_was_split_twice_gives_up_what_is_known_of() {
        let whole = range(5, "", "z", 10);
        let last = split_off(12, "t", "z", 0);
        let middle = split_off(9, "m", "z", 11);
        let cut = RangeRecord { end: key("t"), ..whole };
        let expected =
            [RangeRecord { end: key("m"), ..cut.clone() }, RangeRecord { end: key("t"), ..middle.clone() }];
        assert_eq!(judge(Some(&cut), Some(&last), middle), news(&expected));
    }

    #[test]
    fn ranges_live_as_long_as_their_family() {
        let right = split_off(9, "m", "z", 40);
        assert_eq!(judge(None, None, right.clone()), Verdict::Gone, "the tenant was dropped");
        let again = range(8, "", "z", 0);
        assert_eq!(
            judge(Some(&again), None, right.clone()),
            Verdict::Gone,
            "and made again, before the split"
        );
        let again = range(11, "", "z", 0);
        assert_eq!(judge(Some(&again), None, right), Verdict::Gone, "or after it");
        assert_eq!(judge(Some(&again), None, range(5, "", "z", 99)), Verdict::Gone);
        assert_eq!(judge(Some(&again), None, range(11, "", "z", 0)), Verdict::Known);
    }

    fn write(engine: &MemoryEngine, record: &RangeRecord) {
        let mut batch = WriteBatch::new();
        let (key, value) = (record_key(&record.start), prost::Message::encode_to_vec(record));
        mvcc::put_version(&mut batch, &key, Timestamp::new(1, 0), Some(&value), None).expect("version");
        engine.write(&batch, false).expect("write");
        assert!(engine.get(Space::Data, &key).expect("get").is_some());
    }

    #[test]
    fn one_report_tells_of_several_ranges() {
        let engine = MemoryEngine::new();
        write(&engine, &range(5, "", "z", 10));
        for tenant in [6, 8] {
            let span = TenantId(tenant).span();
            let (start, end) = (span.start, span.end);
            write(&engine, &RangeRecord { range_id: tenant, start, end, ..RangeRecord::default() });
        }
        let reported = [range(5, "", "g", 14), split_off(9, "m", "z", 0), split_off(13, "g", "m", 11)];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]] {
            let mut draft = Draft::new(&engine);
            for place in order {
                assert_eq!(draft.take(reported[place].clone()), Ok(true));
            }
            let spans: Vec<_> = draft
                .finish()
                .1
                .into_iter()
                .map(|record| (record.range_id, record.start, record.end))
                .collect();
            let expected =
                [(5, key(""), key("g")), (13, key("g"), key("m")), (9, key("m"), TENANT.span().end)];
            assert_eq!(spans, expected, "{order:?}");
        }
        let stranger = TenantId(9).span();
        let stranger = RangeRecord { range_id: 20, start: stranger.start, ..RangeRecord::default() };
        assert_eq!(Draft::new(&engine).take(stranger), Ok(false), "what is before it is of another tenant");
    }

    #[test]
    fn random_splits_and_reports_never_overlap_and_come_to_the_truth() {
        use rand::rngs::StdRng;
        use rand::{Rng, SeedableRng};
        for seed in 0..300 {
            let mut random = StdRng::seed_from_u64(seed);
            let engine = MemoryEngine::new();
            let mut truth = vec![range(5, "", "z", 1)];
            let mut directory: BTreeMap<Bytes, RangeRecord> = BTreeMap::new();
            directory.insert(key(""), truth[0].clone());
            let mut sent = Vec::new();
            for (step, id) in (6..18).enumerate() {
                let place = random.random_range(0..truth.len());
                let at = key(&format!("{:03}", random.random_range(1..999)));
                let left = &mut truth[place];
                if at > left.start && at < left.end {
                    let right = RangeRecord {
                        range_id: id,
                        start: at.clone(),
                        end: left.end.clone(),
                        origin: 5,
                        index: 0,
                        ..RangeRecord::default()
                    };
                    (left.end, left.index) = (at, left.index + 1 + step as u64);
                    truth.push(right);
                }
                sent.push(truth[random.random_range(0..truth.len())].clone());
            }
            // Late, twice and in any order; and then everything as it is.
            for _ in 0..sent.len() {
                let (one, other) = (random.random_range(0..sent.len()), random.random_range(0..sent.len()));
                sent.swap(one, other);
                let again = sent[one].clone();
                sent.push(again);
            }
            sent.extend(
                truth.iter().map(|record| RangeRecord { index: record.index + 100, ..record.clone() }),
            );
            for report in sent {
                let mut draft = Draft { changed: std::mem::take(&mut directory), ..Draft::new(&engine) };
                assert_eq!(draft.take(report), Ok(true), "a living range");
                directory = draft.changed;
                let records: Vec<_> = directory.values().collect();
                for pair in records.windows(2) {
                    assert!(pair[0].end <= pair[1].start, "seed {seed}: records overlap");
                }
            }
            truth.sort_by(|one, other| one.start.cmp(&other.start));
            let spans = |record: &RangeRecord| (record.range_id, record.start.clone(), record.end.clone());
            let known: Vec<_> = directory.values().map(spans).collect();
            assert_eq!(known, truth.iter().map(spans).collect::<Vec<_>>(), "seed {seed}");
        }
    }

    #[test]
    fn who_absorbs_has_the_keys_and_who_was_absorbed_is_no_more() {
        let engine = MemoryEngine::new();
        let (left, right) = (range(5, "", "g", 10), split_off(9, "g", "m", 30));
        let rest = split_off(12, "m", "z", 7);
        for record in [&left, &right, &rest] {
            write(&engine, record);
        }
        let merged = RangeRecord { merges: 1, ..range(5, "", "m", 20) };
        let spans = |records: Vec<RangeRecord>| -> Vec<_> {
            records.into_iter().map(|record| (record.range_id, record.start, record.end)).collect()
        };
        let late = RangeRecord { index: 99, ..right.clone() };
        for reports in [vec![merged.clone()], vec![late.clone(), merged.clone()], vec![merged.clone(), late]]
        {
            let mut draft = Draft::new(&engine);
            assert!(reports.into_iter().all(|report| draft.take(report) == Ok(true)));
            let (absorbed, news) = draft.finish();
            assert_eq!(spans(absorbed), [(9, key("g"), key("m"))]);
            assert_eq!(spans(news), [(5, key(""), key("m"))]);
        }
        // It was split again, before the right one of the two; who is heard of first has its keys.
        let cut = RangeRecord { merges: 1, ..range(5, "", "d", 22) };
        let other = RangeRecord { merges: 1, ..split_off(20, "d", "m", 1) };
        for reports in [[cut.clone(), other.clone()], [other, cut]] {
            let mut draft = Draft::new(&engine);
            assert!(reports.into_iter().all(|report| draft.take(report) == Ok(true)));
            let (absorbed, news) = draft.finish();
            assert_eq!(spans(absorbed), [(9, key("g"), key("m"))]);
            assert_eq!(spans(news), [(5, key(""), key("d")), (20, key("d"), key("m"))]);
        }
    }

    #[test]
    fn random_splits_and_merges_come_to_the_truth() {
        use rand::rngs::StdRng;
        use rand::{Rng, SeedableRng};
        let mut merged = 0;
        for seed in 0..300 {
            let mut random = StdRng::seed_from_u64(seed);
            let engine = MemoryEngine::new();
            let mut truth = vec![range(5, "", "z", 1)];
            let mut directory: BTreeMap<Bytes, RangeRecord> =
                truth.iter().cloned().map(|record| (record.start.clone(), record)).collect();
            let mut sent: Vec<RangeRecord> = Vec::new();
            for step in 0..60 {
                let place = random.random_range(0..truth.len());
                let is_known = |record: &RangeRecord| {
                    directory.get(&record.start).is_some_and(|known| {
                        (known.range_id, &known.end, known.merges)
                            == (record.range_id, &record.end, record.merges)
                    })
                };
                // As the leaseholder of the root range allows it.
                let next = truth.get(place + 1).filter(|next| is_known(next)).cloned();
                let known = is_known(&truth[place]);
                let left = &mut truth[place];
                left.index += 1;
                match (random.random_range(0..4), next) {
                    (0, Some(next)) if known => {
                        left.end = next.end;
                        left.merges = left.merges.max(next.merges) + 1;
                        truth.remove(place + 1);
                        merged += 1;
                    }
                    (1, next) if known && (next.is_some() || left.end == key("z")) => {
                        let at = key(&format!("{:03}", random.random_range(1..999)));
                        if at > left.start && at < left.end {
                            let end = std::mem::replace(&mut left.end, at.clone());
                            let right = RangeRecord {
                                range_id: 6 + step,
                                start: at,
                                end,
                                origin: 5,
                                index: 0,
                                merges: left.merges,
                                ..RangeRecord::default()
                            };
                            truth.insert(place + 1, right);
                        }
                    }
                    _ => {}
                }
                sent.push(truth[random.random_range(0..truth.len())].clone());
                // Any that was ever sent, also again.
                let report = sent[random.random_range(0..sent.len())].clone();
                let mut draft = Draft { changed: directory.clone(), ..Draft::new(&engine) };
                draft.take(report).expect("taken");
                directory = draft.changed;
                let records: Vec<_> = directory.values().collect();
                for pair in records.windows(2) {
                    assert!(pair[0].end <= pair[1].start, "seed {seed}: records overlap");
                }
            }
            for record in &truth {
                let report = RangeRecord { index: record.index + 100, ..record.clone() };
                let mut draft = Draft { changed: directory.clone(), ..Draft::new(&engine) };
                assert_eq!(draft.take(report), Ok(true), "a living range");
                directory = draft.changed;
            }
            let spans = |record: &RangeRecord| (record.range_id, record.start.clone(), record.end.clone());
            let known: Vec<_> = directory.values().map(spans).collect();
            assert_eq!(known, truth.iter().map(spans).collect::<Vec<_>>(), "seed {seed}");
        }
        assert!(merged > 300, "only {merged} merges");
    }
}
