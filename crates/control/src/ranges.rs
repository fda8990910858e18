//! The ranges of the cluster: what the range directory says of them, and comparisons of their replicas.
//!
//! Nothing is remembered: lists are read page by page, and whoever asks for a range says where it begins, if
//! they know, so that it need not be searched for.

use bytes::Bytes;
use kv_api::batch::{RangeInfo, ReplicaCheck};
use kv_api::{KvError, KvErrorKind, KvResult, Span};
use kv_client::KvClient;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long the KV layer may take for a page.
const LIST_PATIENCE: Duration = Duration::from_secs(10);
/// How long a merge may take: besides, what the neighbour holds is carried over.
const MERGE_PATIENCE: Duration = Duration::from_secs(30);
/// How long a split may take: what is under way in the range comes to its end first.
const SPLIT_PATIENCE: Duration = Duration::from_secs(30);
/// How long a comparison may take: every replica reads all that it holds, in the background.
const CHECK_PATIENCE: Duration = Duration::from_secs(600);
/// Comparisons under way at a time.
const CHECKS: usize = 8;
/// Ranges asked for at a time, where few are expected.
const FEW: usize = 4;
/// Most ranges of a page.
pub(crate) const PAGE: usize = 1000;

/// Some ranges in the order of their keys.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Page {
    pub ranges: Vec<RangeInfo>,
    /// Whether there are more.
    pub more: bool,
}

/// Asks the KV layer about its ranges.
pub(crate) struct Ranges {
    kv: KvClient,
    checks: Semaphore,
}

impl Ranges {
    /// Asks through `kv`, which must be control's own.
    pub fn new(kv: KvClient) -> Self {
        Self { kv, checks: Semaphore::new(CHECKS) }
    }

    /// Ranges that begin after a key and, if a span is given, within it; 1 to [`PAGE`] of them.
    ///
    /// # Errors
    /// What keeps the KV layer from answering.
    pub async fn page(&self, after: Bytes, within: Option<&Span>, limit: usize) -> KvResult<Page> {
        let ask = |after, limit| self.kv.ranges(after, limit);
        in_time(LIST_PATIENCE, page(ask, after, within, limit.clamp(1, PAGE))).await
    }

    /// The range of a number, which begins at `start` if that is known; `None` if there is none.
    ///
    /// # Errors
    /// What keeps the KV layer from answering.
    pub async fn find(&self, id: u64, start: Option<&Bytes>) -> KvResult<Option<RangeInfo>> {
        let within = start.map(|start| Span::new(start.clone(), [start, &b"\0"[..]].concat().into()));
        let mut after = Bytes::new();
        loop {
            let page = self.page(after, within.as_ref(), PAGE).await?;
            let next = page.ranges.last().filter(|_| page.more).map(|range| range.start.clone());
            match (page.ranges.into_iter().find(|range| range.range_id == id), next) {
                (None, Some(next)) => after = next,
                (found, _) => return Ok(found),
            }
        }
    }

    /// Splits the range that holds a key, so that the key is the first of a new one.
    ///
    /// # Errors
    /// What keeps the leaseholder from it.
    pub async fn split(&self, key: &[u8]) -> KvResult<()> {
        in_time(SPLIT_PATIENCE, self.kv.split_range(key)).await
    }

    /// Has a range absorb its right neighbour.
    ///
    /// # Errors
    /// What keeps the leaseholder from it.
    pub async fn merge(&self, range: &RangeInfo) -> KvResult<()> {
        in_time(MERGE_PATIENCE, self.kv.merge_range(range)).await
    }

    /// Compares the replicas of a range. Waits its turn if many are being compared.
    ///
    /// # Errors
    /// What keeps the leaseholder from answering.
    pub async fn check(&self, range: &RangeInfo) -> KvResult<Vec<ReplicaCheck>> {
        // The semaphore is never closed; without a place the comparison goes on all the same.
        let _place = self.checks.acquire().await;
        in_time(CHECK_PATIENCE, self.kv.check_replicas(range)).await
    }
}

async fn in_time<T>(patience: Duration, answer: impl Future<Output = KvResult<T>>) -> KvResult<T> {
    let late = |_| KvError::new(KvErrorKind::Unavailable, "the KV layer does not answer in time");
    tokio::time::timeout(patience, answer).await.map_err(late)?
}

/// Collects a page. The KV layer may answer with fewer than it was asked for: only an empty answer, or one
/// that leaves the span, ends the list.
async fn page<F>(
    ask: impl Fn(Bytes, u64) -> F,
    after: Bytes,
    within: Option<&Span>,
    limit: usize,
) -> KvResult<Page>
where
    F: Future<Output = KvResult<Vec<RangeInfo>>>,
{
    let begins_before = |range: &RangeInfo| within.is_some_and(|span| range.start < span.start);
    let begins_behind = |range: &RangeInfo| within.is_some_and(|span| range.start >= span.end);
    let ends_behind = |range: &RangeInfo| within.is_some_and(|span| range.end >= span.end);
    let mut after = match within {
        Some(span) => after.max(before(&span.start)),
        None => after,
    };
    let mut ranges = Vec::new();
    loop {
        // One more than is wanted shows whether there are more.
        let missing = limit + 1 - ranges.len();
        let asked = if within.is_some() { missing.min(FEW) } else { missing };
        let answer = ask(after, asked as u64).await?;
        let Some(last) = answer.last() else { return Ok(Page { ranges, more: false }) };
        let complete = ends_behind(last);
        after = last.start.clone();
        ranges.extend(answer.into_iter().filter(|range| !begins_before(range) && !begins_behind(range)));
        if ranges.len() > limit {
            ranges.truncate(limit);
            return Ok(Page { ranges, more: true });
        }
        if complete {
            return Ok(Page { ranges, more: false });
        }
    }
}

/// A key before `key`, and close to it: few ranges, if any, begin between the two.
fn before(key: &[u8]) -> Bytes {
    match key.split_last() {
        None => Bytes::new(),
        Some((0, shorter)) => Bytes::copy_from_slice(shorter),
        Some((last, shorter)) => [shorter, &[last - 1], &[0xff; 16]].concat().into(),
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |value: u8| DIGITS[usize::from(value & 0xf)];
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// Reads hexadecimal digits; `None` for anything else.
pub(crate) fn unhex(text: &str) -> Option<Bytes> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let (pairs, rest) = digits.as_deref()?.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv_api::TenantId;
    use std::cell::Cell;

    /// The root, and the ranges of the tenants 1 to 9; that of tenant 5 is split in three.
    fn all() -> Vec<RangeInfo> {
        let tenants = (1..10).flat_map(|tenant| {
            let tenant = TenantId(tenant);
            let starts: &[&[u8]] = if tenant.0 == 5 { &[b"", b"a", b"b"] } else { &[b""] };
            starts.iter().map(move |key| tenant.prefixed(key))
        });
        let starts: Vec<Bytes> = [Bytes::from_static(b"\x02")].into_iter().chain(tenants).collect();
        let ends: Vec<Bytes> = starts.iter().skip(1).cloned().chain([TenantId(10).prefixed(b"")]).collect();
        let range = |(index, (start, end))| RangeInfo {
            range_id: index as u64 + 1,
            start,
            end,
            ..RangeInfo::default()
        };
        starts.into_iter().zip(ends).enumerate().map(range).collect()
    }

    /// Ids of the ranges of a page, whether there are more, and how many questions it took.
    async fn ids(most: u64, after: Bytes, within: Option<&Span>, limit: usize) -> (Vec<u64>, bool, u32) {
        let questions = Cell::new(0);
        let ask = |after: Bytes, limit: u64| {
            questions.set(questions.get() + 1);
            let found = all().into_iter().filter(move |range| range.start > after);
            let found: Vec<_> = found.take(usize::try_from(limit.min(most)).unwrap()).collect();
            async { Ok(found) }
        };
        let page = page(ask, after, within, limit).await.unwrap();
        (page.ranges.iter().map(|range| range.range_id).collect(), page.more, questions.get())
    }

    #[tokio::test]
    async fn pages_are_full_whatever_the_kv_layer_gives_at_once() {
        for most in [1, 3, 100] {
            let (found, more, _) = ids(most, Bytes::new(), None, 5).await;
            assert_eq!((found, more), ((1..=5).collect(), true));
            let (found, more, _) = ids(most, all()[4].start.clone(), None, 100).await;
            assert_eq!((found, more), ((6..=12).collect(), false));
            let (found, more, _) = ids(most, Bytes::new(), None, 12).await;
            assert_eq!((found, more), ((1..=12).collect(), false));
        }
    }

    #[tokio::test]
    async fn the_ranges_of_a_tenant_are_found_at_once() {
        let span = TenantId(5).span();
        assert_eq!(ids(100, Bytes::new(), Some(&span), 100).await, (vec![6, 7, 8], false, 1));
        assert_eq!(ids(1, Bytes::new(), Some(&span), 100).await, (vec![6, 7, 8], false, 3));
        let (found, more, _) = ids(100, Bytes::new(), Some(&span), 2).await;
        assert_eq!((found, more), (vec![6, 7], true));
        let (found, more, _) = ids(100, all()[6].start.clone(), Some(&span), 2).await;
        assert_eq!((found, more), (vec![8], false));
        let (found, more, _) = ids(100, Bytes::new(), Some(&TenantId(77).span()), 2).await;
        assert_eq!((found, more), (vec![], false));
    }

    #[test]
    fn a_key_before_another() {
        assert_eq!(before(b""), Bytes::new());
        assert_eq!(before(b"a\0"), "a");
        let prefix = TenantId(256).prefix();
        assert!(before(&prefix) < prefix[..] && before(&prefix) > TenantId(255).prefix()[..]);
        let prefix = TenantId(255).prefix();
        assert!(before(&prefix) < prefix[..] && before(&prefix) > TenantId(254).prefixed(b"\xff\xff"));
    }

    #[test]
    fn hexadecimal_digits() {
        assert_eq!(hex(b"\x02\xff\x10"), "02ff10");
        assert_eq!(unhex("02FF10").unwrap(), &b"\x02\xff\x10"[..]);
        assert_eq!(unhex("").unwrap(), Bytes::new());
        for bad in ["0", "0g", "+1", " 1", "éé"] {
            assert_eq!(unhex(bad), None, "{bad:?}");
        }
    }
}
