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
//! Ranges of a family only become smaller, and always at their ends; the first key of a range is its own for
//! ever. So where the directory knows of a first key, no range that begins before it has it any more, and news
//! of it can only be old: an end is cut off there, and never grows. This keeps records from overlapping in
//! whatever order reports arrive. Between the reports of the two parts of a range there may be keys that no
//! record has.

use crate::directory::{RangeRecord, before, list};
use bytes::Bytes;
use kv_api::TenantId;
use std::collections::BTreeMap;
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
    if let Some(next) = next {
        reported.end = reported.end.min(next.start.clone());
    }
    if before.range_id == reported.range_id {
        if reported.index <= before.index || reported.start != before.start {
            return Verdict::Known;
        }
        // What was cut off it may have been split off and not be known itself.
        reported.end = reported.end.min(before.end.clone());
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
}

impl<'a, R: Reader + ?Sized> Draft<'a, R> {
    pub fn new(directory: &'a R) -> Self {
        Draft { directory, changed: BTreeMap::new() }
    }

    /// Takes in a report; false if the range is no more.
    ///
    /// # Errors
    /// I/O errors and damage.
    pub fn take(&mut self, reported: RangeRecord) -> StorageResult<bool> {
        let tenant = TenantId::of_key(&reported.start);
        let kin = |record: &RangeRecord| TenantId::of_key(&record.start) == tenant;
        let known = before(self.directory, &reported.start)?;
        let drafted =
            self.changed.range(..=reported.start.clone()).next_back().map(|(_, record)| record.clone());
        let known = later(known, drafted).filter(kin);
        let next = list(self.directory, &reported.start, 1)?.pop();
        let after = (std::ops::Bound::Excluded(reported.start.clone()), std::ops::Bound::Unbounded);
        let drafted = self.changed.range::<Bytes, _>(after).next().map(|(_, record)| record.clone());
        let next = [next, drafted].into_iter().flatten().min_by(|one, other| one.start.cmp(&other.start));
        match judge(known.as_ref(), next.filter(kin).as_ref(), reported) {
            Verdict::Known => Ok(true),
            Verdict::News(news) => {
                self.changed.extend(news.into_iter().map(|record| (record.start.clone(), record)));
                Ok(true)
            }
            Verdict::Gone => Ok(false),
        }
    }

    /// What is to be written.
    pub fn news(self) -> impl Iterator<Item = RangeRecord> {
        self.changed.into_values()
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
        assert_eq!(judge(Some(&whole), None, left.clone()), news(&[left.clone()]));
        assert_eq!(judge(Some(&left), None, right.clone()), news(&[right.clone()]));
        let cut = RangeRecord { end: key("m"), ..whole.clone() };
        assert_eq!(judge(Some(&whole), None, right.clone()), news(&[cut.clone(), right.clone()]));
        assert_eq!(judge(Some(&cut), Some(&right), left.clone()), news(&[left.clone()]));
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
            let spans: Vec<_> =
                draft.news().map(|record| (record.range_id, record.start, record.end)).collect();
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
                let mut draft = Draft { directory: &engine, changed: std::mem::take(&mut directory) };
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
}
