//! Which ranges this node splits or merges of its own accord, and when.
//!
//! A tenant's range whose lease is held here is split when it holds too much ([`crate::split_size`]), or when it has
//! been busy for a while and there are other nodes that could take a part of the load ([`crate::split_load`]): a
//! transaction over two ranges costs more than one within a range, so a node that is alone gains nothing by it.
//! When it and its right neighbour hold little and have been idle for long, it absorbs that ([`crate::merge_idle`]).
//! One range at a time, so that whatever goes wrong with it goes wrong slowly.

use super::{Cluster, MergeLimits};
use crate::bounds;
use crate::merge_idle::{IdleRanges, LOAD_SHARE, SIZE_SHARE};
use crate::node::Node;
use crate::pipeline::{Load, Standing};
use crate::split_load::Finder;
use crate::split_size::{MIN_RANGE_BYTES, Measured, Measuring, Sizes};
use bytes::Bytes;
use kv_api::{BatchRequest, KvError, KvErrorKind, Span, TenantId};
use parking_lot::Mutex;
use replication::{RangeDescriptor, RangeId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// After how many times the time for which a range must be busy it is looked at anew where no key was found.
const WATCHED_AGAIN: u32 = 6;
/// Bytes of a range that are read at a time to measure it.
const PIECE_BYTES: u64 = 256 << 10;
/// How long nothing is split after something could not be.
const REST: Duration = Duration::from_secs(5);
/// Most busy ranges whose requests are looked at.
const MAX_WATCHED: usize = 16;

/// A busy range.
struct Watched {
    since: Instant,
    finder: Finder,
}

/// What is remembered about ranges that may be split.
#[derive(Default)]
pub(super) struct Splits {
    sizes: Mutex<Sizes>,
    watched: Mutex<BTreeMap<RangeId, Watched>>,
    /// Whether any is watched: looked at for every batch.
    watches: AtomicBool,
    /// Whether one is being split, or measured.
    at_work: AtomicBool,
    /// When one could not be split last.
    failed: Mutex<Option<Instant>>,
    /// Ranges that may absorb their right neighbours.
    idle: Mutex<IdleRanges>,
    /// Ranges that are frozen here.
    frozen: Mutex<BTreeMap<RangeId, Frozen>>,
}

/// What is remembered of a range that is frozen.
#[derive(Clone, Copy)]
struct Frozen {
    /// Since when.
    since: Instant,
    /// Whether whoever was to absorb it has given up.
    given_up: bool,
    /// Whether it is being found out what became of the merge.
    settling: bool,
}

/// One is being split, or measured, for as long as this is there.
struct AtWork(Arc<Cluster>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.splits.at_work.store(false, Ordering::Relaxed);
    }
}

impl Splits {
    /// Takes in what was done in ranges lately.
    pub fn note(&self, done: &hashbrown::HashMap<RangeId, Load>) {
        let mut sizes = self.sizes.lock();
        for (range, load) in done {
            sizes.wrote(*range, load.written);
        }
    }

    /// Takes in which ranges are busy. Returns one that has been for a while, and where to cut it.
    fn watch(
        &self,
        busy: &[RangeId],
        patience: Duration,
        now: Instant,
        span: impl Fn(RangeId) -> Option<Span>,
    ) -> Option<(RangeId, Bytes)> {
        let mut watched = self.watched.lock();
        watched.retain(|range, watched| {
            busy.contains(range) && now.duration_since(watched.since) < patience * WATCHED_AGAIN
        });
        for range in busy {
            if watched.len() < MAX_WATCHED && !watched.contains_key(range) {
                watched.insert(*range, Watched { since: now, finder: Finder::new(*range) });
            }
        }
        self.watches.store(!watched.is_empty(), Ordering::Relaxed);
        let ripe = watched.iter().filter(|(_, watched)| now.duration_since(watched.since) >= patience);
        let mut cuts =
            ripe.filter_map(|(range, watched)| Some((*range, watched.finder.cut(&span(*range)?)?)));
        cuts.next()
    }

    /// Notes that a range has come to hold so much more.
    pub fn grew(&self, range: RangeId, bytes: u64) {
        self.sizes.lock().wrote(range, bytes);
    }

    /// Notes that whoever was to absorb a range has given up.
    pub fn given_up(&self, range: RangeId) {
        let frozen = || Frozen { since: Instant::now(), given_up: true, settling: false };
        self.frozen.lock().entry(range).or_insert_with(frozen).given_up = true;
    }

    /// Takes in which ranges are frozen. Returns those of which it is to be found out what became of the merge, because
    /// they have been for long or nobody goes on with it.
    pub fn frozen_for_long<T>(
        &self,
        ranges: Vec<(RangeDescriptor, T)>,
        now: Instant,
        patience: Duration,
    ) -> Vec<(RangeDescriptor, T)> {
        let mut frozen = self.frozen.lock();
        frozen.retain(|range, _| ranges.iter().any(|(other, _)| other.range_id == *range));
        let mut is_due = |range: RangeId| {
            let new = || Frozen { since: now, given_up: false, settling: false };
            let frozen = frozen.entry(range).or_insert_with(new);
            let due = frozen.given_up || now.duration_since(frozen.since) >= patience;
            due && !std::mem::replace(&mut frozen.settling, true)
        };
        ranges.into_iter().filter(|(range, _)| is_due(range.range_id)).collect()
    }

    /// Notes that it was found out, or could not be.
    pub fn settled(&self, range: RangeId) {
        if let Some(frozen) = self.frozen.lock().get_mut(&range) {
            frozen.settling = false;
        }
    }

    /// Begins to look at a range anew.
    fn forget(&self, range: RangeId) {
        self.watched.lock().remove(&range);
    }

    /// Whether nothing else is at work or was in vain just now; then something is from now on.
    fn begin(&self) -> bool {
        let rests = self.failed.lock().is_some_and(|failed| failed.elapsed() < REST);
        !rests && !self.at_work.swap(true, Ordering::Relaxed)
    }
}

/// Whether ranges with these keys are split without being asked to.
fn is_users(span: &Span) -> bool {
    TenantId::of_key(&span.start).is_some_and(|tenant| tenant >= TenantId::FIRST_USER)
}

impl Cluster {
    /// Looks at a batch, if its range is a busy one.
    pub(crate) fn sample(&self, batch: &BatchRequest) {
        if !self.splits.watches.load(Ordering::Relaxed) {
            return;
        }
        // Who finds it taken is one request less that was seen.
        let Some(mut watched) = self.splits.watched.try_lock() else { return };
        let Some(watched) = watched.get_mut(&batch.header.range_id) else { return };
        if let Some(span) = bounds::some_keys(batch, watched.finder.turn()) {
            watched.finder.saw(&span);
        }
    }

    /// Splits a range, in the background, if one has become too large or too busy.
    pub(super) fn split_where_needed(self: &Arc<Self>, node: &Arc<Node>, has_others: bool) {
        let held = |range| matches!(node.pipeline.standing(range), Standing::Leaseholder(_));
        let span = |range| node.pipeline.span(range).filter(is_users);
        let least = node.limits.split_load;
        let busy: Vec<RangeId> = {
            let progress = self.placing.lock();
            let busy = progress.loads().iter().filter(|(_, load)| least > 0 && has_others && **load > least);
            busy.map(|(range, _)| *range).filter(|range| held(*range) && span(*range).is_some()).collect()
        };
        let cut = self.splits.watch(&busy, node.limits.split_load_for, Instant::now(), span);
        let max = node.limits.max_range_bytes.max(MIN_RANGE_BYTES);
        let large = {
            let mut sizes = self.splits.sizes.lock();
            sizes.retain(|range| held(range) && span(range).is_some());
            sizes.due(max)
        };
        if (cut.is_none() && large.is_none()) || !self.splits.begin() {
            return;
        }
        let (cluster, node) = (Arc::clone(self), Arc::clone(node));
        let at_work = AtWork(Arc::clone(self));
        tokio::spawn(async move {
            let _at_work = at_work;
            let result = match (large, cut) {
                (Some(range), _) => cluster.split_if_large(&node, range, max).await,
                (None, Some((range, key))) => cluster.split_busy(&node, range, key).await,
                (None, None) => Ok(()),
            };
            if let Err(error) = result {
                tracing::debug!("a range was not split: {error}");
                *cluster.splits.failed.lock() = Some(Instant::now());
            }
        });
    }

    /// Merges ranges, in the background, if one has been small and idle for long, and its right neighbour is, too.
    pub(super) fn merge_where_possible(self: &Arc<Self>, node: &Arc<Node>, held: Vec<RangeId>) {
        let (patience, split_load) = (node.limits.merge_after, node.limits.split_load);
        if patience.is_zero() {
            return;
        }
        let has_neighbour = |range: &RangeId| {
            let span = node.pipeline.span(*range).filter(is_users);
            let tenant = span.as_ref().and_then(|span| TenantId::of_key(&span.start));
            span.zip(tenant).is_some_and(|(span, tenant)| span.end < tenant.span().end)
        };
        let ranges: BTreeMap<RangeId, u64> = {
            let progress = self.placing.lock();
            let load = |range: RangeId| progress.loads().get(&range).copied().unwrap_or(0);
            held.into_iter().filter(has_neighbour).map(|range| (range, load(range))).collect()
        };
        let most = split_load / LOAD_SHARE;
        let looked = self.splits.idle.lock().look(&ranges, most, patience, Instant::now());
        node.pipeline.touch(&looked.waiting);
        node.pipeline.touch(looked.due.as_slice());
        let Some(range) = looked.due.filter(|_| self.splits.begin()) else { return };
        let (cluster, node) = (Arc::clone(self), Arc::clone(node));
        let at_work = AtWork(Arc::clone(self));
        tokio::spawn(async move {
            let _at_work = at_work;
            match cluster.merge_if_small(&node, range, most).await {
                Ok(right) => {
                    tracing::info!(range, right, "ranges were merged because they were small and idle");
                    cluster.splits.idle.lock().forget(range);
                }
                Err(error) => {
                    tracing::debug!(range, "ranges were not merged: {error}");
                    cluster.splits.idle.lock().tried(range, Instant::now());
                }
            }
        });
    }

    async fn merge_if_small(
        &self,
        node: &Arc<Node>,
        range: RangeId,
        max_load: u64,
    ) -> Result<RangeId, KvError> {
        let max_bytes = node.limits.max_range_bytes.max(MIN_RANGE_BYTES) / SIZE_SHARE;
        let span = node.pipeline.span(range).ok_or_else(|| KvError::range_not_found(range))?;
        if self.measure(node, span, max_bytes).await? > max_bytes {
            return Err(KvError::new(KvErrorKind::Unavailable, "the range holds too much"));
        }
        self.merge(node, range, None, MergeLimits { max_bytes, max_load }).await
    }

    async fn split_busy(&self, node: &Arc<Node>, range: RangeId, key: Bytes) -> Result<(), KvError> {
        self.splits.forget(range);
        let new = self.split(node, range, key).await?;
        tracing::info!(range, new, "a range was split because it was busy");
        // It need not settle for as long as one that has come from elsewhere.
        self.placing.lock().is_settled(new);
        Ok(())
    }

    async fn split_if_large(&self, node: &Arc<Node>, range: RangeId, max: u64) -> Result<(), KvError> {
        let span = node.pipeline.span(range).ok_or_else(|| KvError::range_not_found(range))?;
        let mut measuring = Measuring::new(span, max);
        let Measured { bytes, cut } = loop {
            if let Some(measured) = measuring.step(&*node.engine, PIECE_BYTES)? {
                break measured;
            }
            tokio::task::yield_now().await;
        };
        let Some(key) = cut else {
            self.splits.sizes.lock().measured(range, bytes);
            return Ok(());
        };
        let new = self.split(node, range, key).await?;
        tracing::info!(range, new, "a range was split because it was large");
        let mut sizes = self.splits.sizes.lock();
        sizes.measured(range, bytes / 2);
        // Nobody has measured it. It may be too large itself.
        sizes.wrote(new, 1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WATCHED: Duration = Duration::from_secs(10);

    #[test]
    fn a_range_is_cut_when_it_was_busy_for_a_while() {
        let splits = Splits::default();
        let all = Span::new(Bytes::from_static(b"a"), Bytes::from_static(b"z"));
        let span = |_| Some(all.clone());
        let start = Instant::now();
        let load = |splits: &Splits| {
            let mut watched = splits.watched.lock();
            for step in 0..2000_u32 {
                let key = Bytes::from(format!("k{:03}", step * 7 % 100));
                watched.get_mut(&5).expect("watched").finder.saw(&Span::point(key));
            }
        };
        assert!(!splits.watches.load(Ordering::Relaxed));
        assert_eq!(splits.watch(&[5], WATCHED, start, span), None);
        assert!(splits.watches.load(Ordering::Relaxed));
        load(&splits);
        assert_eq!(splits.watch(&[5], WATCHED, start + WATCHED / 2, span), None, "not for long enough");
        assert!(splits.watch(&[5], WATCHED, start + WATCHED, span).is_some_and(|(range, _)| range == 5));
        assert_eq!(splits.watch(&[], WATCHED, start + WATCHED, span), None);
        assert!(!splits.watches.load(Ordering::Relaxed), "nothing is looked at any more");
        assert_eq!(splits.watch(&[5], WATCHED, start + WATCHED, span), None, "it begins anew");
        assert_eq!(splits.watch(&[5], WATCHED, start + WATCHED * 2, span), None, "nothing was seen");
        let many: Vec<RangeId> = (10..100).collect();
        splits.watch(&many, WATCHED, start, span);
        assert_eq!(splits.watched.lock().len(), MAX_WATCHED);
    }
}
