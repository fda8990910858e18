//! Merging the ranges of tenants: a range whose lease is held here absorbs its right neighbour.
//!
//! ```text
//!  left (here)                       root                     right, wherever its lease is
//!  ──────────────────────────────    ─────────────────────    ─────────────────────────────────────────────
//!  which is my neighbour?        ──► as I know both
//!  freeze                        ──────────────────────────►  frozen, and all members have that on disk
//!  what do you hold?             ──────────────────────────►  everything, a piece at a time
//!  absorb: one command of my log
//!  report                        ──► one range less      ──►  destroyed, on each of its members
//! ```
//!
//! What was not reported before whoever merged ended is reported by who next holds the left one's lease; it is woken for
//! that where a survey finds that the directory says something else, or when a client that the directory has sent to the
//! right one finds no such range.
//!
//! The root range's leaseholder lets only such ranges be merged as the directory knows as they are, both of them and
//! with their members. So where one is in the directory that was absorbed, the one that absorbed it has neither been
//! split nor merged since.
//!
//! Whoever merges may end at any moment. The leaseholder of a range that is frozen for long asks that of the left one
//! what became of it, which answers that it has absorbed it or, once its descriptor has another generation, that it has
//! not and never will. Then it asks whether its range is in the directory, and only if it is lets it be served again.
//! If the left range is no more, the directory alone is asked.
//!
//! Ranges are merged only while neither has intents or prepared transactions, and the right one has no locks. Both are
//! closed for a moment, the right one for a few round trips more. First the left one is closed alone until those that
//! have intents in it have ended, then it is let go for a moment: a transaction that waited there may have intents in
//! the right one, and both would wait for each other if both were closed at once.

use super::Cluster;
use super::configuring::members;
use super::message::{
    Contents, FreezeRange, Frozen, GetContents, GetListed, GetNeighbour, Gone, Kind, Listed, MergeSettled,
    Reached, SettleMerge,
};
use super::ranges::submit;
use crate::command::Effects;
use crate::contents;
use crate::directory::{RangeRecord, before, list, of_tenant};
use crate::guards::HeldIntents;
use crate::metrics::metrics;
use crate::node::Node;
use crate::pipeline::{Absorption, Change, FreezeFor, ROOT, Standing};
use crate::span_config;
use crate::split_size::Measuring;
use bytes::Bytes;
use kv_api::{KvError, KvErrorKind, Span, TenantId};
use replication::command::{Freeze, RangeChange};
use replication::{NodeId, RangeDescriptor, RangeId};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use storage::{WriteBatch, txn_record};
use tokio::time::Instant;

/// Most bytes that a range may hold that is absorbed: they travel with one command.
pub(super) const MAX_ABSORBED_BYTES: u64 = 8 << 20;
/// How far apart the oldest snapshots may be that can be read in two ranges. What an engine drops lies as far below.
const MAX_HISTORY_APART_NS: u64 = 60_000_000_000;
/// Bytes of what a range holds that are read at a time.
const PIECE_BYTES: usize = 1 << 20;
/// How long the leaseholder of the right range has to freeze it.
const FREEZE_PATIENCE: Duration = Duration::from_secs(5);
/// How long members have to say that they have applied an entry.
const REACHED_PATIENCE: Duration = Duration::from_secs(1);
/// How long transactions with intents have to end before a range is changed.
const INTENTS_PATIENCE: Duration = Duration::from_secs(1);
/// How long transactions that waited for others to end may go on before both ranges are closed.
const LET_GO: Duration = Duration::from_millis(20);
/// How long a range is frozen before its leaseholder asks what became of the merge.
const SETTLE_AFTER: Duration = Duration::from_secs(8);
/// How long it is waited for whoever may be merging to come to an end: longer than one who does so in vain takes.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// How long who asks what became of a merge waits.
const SETTLE_PATIENCE: Duration = Duration::from_secs(12);

/// What keeps two ranges from being merged.
#[derive(Clone, Copy, Debug)]
pub struct MergeLimits {
    /// Most bytes that the right one may hold.
    pub max_bytes: u64,
    /// Most batches per second that it may have.
    pub max_load: u64,
}

impl MergeLimits {
    /// Of a merge that somebody has asked for.
    pub const ASKED_FOR: MergeLimits = MergeLimits { max_bytes: MAX_ABSORBED_BYTES, max_load: u64::MAX };
}

/// Counts who waits, until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn among(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn unavailable(message: &str) -> KvError {
    KvError::new(KvErrorKind::Unavailable, message)
}

fn unexpected(answer: Option<Kind>) -> KvError {
    match answer {
        Some(Kind::Refused(refusal)) => KvError::new(KvErrorKind::Unavailable, refusal.reason),
        _ => unavailable("a node does not answer"),
    }
}

impl Cluster {
    /// Merges a tenant's range whose lease is held here, and which ends with `end` if that is said, with its right
    /// neighbour, whose name is returned.
    ///
    /// # Errors
    /// [`KvErrorKind::InvalidRequest`] if it is no tenant's range, ends elsewhere, or is the last one of its tenant;
    /// [`KvErrorKind::Unavailable`] if the two cannot be merged for the moment, or must not be;
    /// [`KvErrorKind::Ambiguous`] if it is not known what came of it.
    pub async fn merge(
        &self,
        node: &Arc<Node>,
        range: RangeId,
        end: Option<Bytes>,
        limits: MergeLimits,
    ) -> Result<RangeId, KvError> {
        let _one_at_a_time = self.turn_to_change().await?;
        node.ready(range).await?;
        let left = descriptor_of(node, range).await?;
        let tenant = TenantId::of_key(&left.start).map(|tenant| tenant.span());
        let invalid = |message: &str| KvError::new(KvErrorKind::InvalidRequest, message);
        let tenant = tenant.ok_or_else(|| invalid("only ranges of tenants are merged"))?;
        if end.is_some_and(|end| end != left.end) {
            return Err(invalid("the range ends elsewhere: it may have absorbed its neighbour before"));
        }
        if left.end >= tenant.end {
            return Err(invalid("it is the last range of its tenant"));
        }
        let asked = GetNeighbour { range_id: range, start: left.start.clone(), end: left.end.clone() };
        let right = match self.ask_root(node, Kind::GetNeighbour(asked)).await? {
            Kind::Neighbour(record) => record,
            other => return Err(unexpected(Some(other))),
        };
        let right_id = right.range_id;
        let merged = self.absorb(node, left, right, limits).await;
        match &merged {
            Ok(bytes) => {
                metrics().merges.inc();
                self.splits.grew(range, *bytes);
                self.described(range);
                let leads_root = matches!(node.pipeline.standing(ROOT), Standing::Leaseholder(_));
                // What cannot be reported now is reported at the next look.
                if let Err(error) = self.report(node, leads_root).await {
                    tracing::debug!(range, "a merge is not in the directory yet: {error}");
                }
            }
            Err(error) => {
                metrics().merges_failed.inc();
                tracing::debug!(range, right = right_id, "ranges were not merged: {error}");
            }
        }
        merged.map(|_| right_id)
    }

    /// Has a range absorb its right neighbour, as the directory knows that. Returns how much that held.
    async fn absorb(
        &self,
        node: &Arc<Node>,
        left: RangeDescriptor,
        right: RangeRecord,
        limits: MergeLimits,
    ) -> Result<u64, KvError> {
        let (range, right_id) = (left.range_id, right.range_id);
        let nodes = node.pipeline.nodes().await?;
        let views = self.views(&self.records(), &nodes);
        let mut live: Vec<NodeId> = views.iter().filter(|view| view.live).map(|view| view.id).collect();
        // A node that is alone need not have a record.
        live.push(self.myself.id);
        if !right.voters.iter().chain(&right.learners).all(|id| live.contains(id)) {
            return Err(unavailable("a node with a replica of the neighbour is not there"));
        }
        let tenant = TenantId::of_key(&left.start).map_or(0, |tenant| tenant.0);
        let open = || unavailable("transactions are open in the range");
        // Who keeps it from being merged for long does so before anything is frozen.
        let held = HeldIntents::await_none(node, tenant, range, INTENTS_PATIENCE).await;
        if !node.shard(tenant).is_divisible(range) {
            return Err(open());
        }
        drop(held);
        // Those who waited meanwhile, and may have intents in the neighbour, are let go on first.
        tokio::time::sleep(LET_GO).await;
        let candidates = members(&right, &live);
        let asked = FreezeRange {
            record: right,
            absorber: range,
            generation: left.generation,
            max_bytes: limits.max_bytes.min(MAX_ABSORBED_BYTES),
            max_load: limits.max_load,
        };
        // Both at the same time: a transaction over the two that finds only one of them closed waits there, and keeps the
        // other from coming to rest.
        let held = HeldIntents::await_none(node, tenant, range, INTENTS_PATIENCE);
        let (_held, frozen) = tokio::join!(held, self.freeze_neighbour(node, candidates, asked));
        let (member, frozen) = frozen?;
        if !node.shard(tenant).is_divisible(range) {
            self.give_up(member, right_id).await;
            return Err(open());
        }
        let absorbed = self.absorb_frozen(node, range, member, frozen).await;
        if absorbed.is_err() {
            self.give_up(member, right_id).await;
        }
        absorbed
    }

    /// Has whoever of these leads the right neighbour freeze it; returns who that is.
    ///
    /// # Errors
    /// What the first said that was asked. Perhaps it was frozen all the same, and the answer got lost: then it is found
    /// out what came of the merge.
    async fn freeze_neighbour(
        &self,
        node: &Arc<Node>,
        candidates: Vec<NodeId>,
        asked: FreezeRange,
    ) -> Result<(NodeId, Frozen), KvError> {
        let mut refused = None;
        for member in candidates {
            let answer = if member == self.myself.id {
                Some(match self.freeze(node, asked.clone()).await {
                    Ok(frozen) => Kind::Frozen(frozen),
                    Err(error) => super::refusal(error),
                })
            } else {
                self.ask_for(member, Kind::FreezeRange(asked.clone()), FREEZE_PATIENCE).await
            };
            match answer {
                Some(Kind::Frozen(frozen)) => return Ok((member, frozen)),
                other => refused = refused.or_else(|| Some(unexpected(other))),
            }
        }
        Err(refused.unwrap_or_else(|| unavailable("nobody serves the neighbour")))
    }

    async fn absorb_frozen(
        &self,
        node: &Arc<Node>,
        range: RangeId,
        member: NodeId,
        frozen: Frozen,
    ) -> Result<u64, KvError> {
        let Frozen { descriptor: right, freeze, index, oldest } = frozen;
        if node.history.oldest(range).wall_ns.saturating_add(MAX_HISTORY_APART_NS) < oldest.wall_ns {
            return Err(unavailable("a transaction reads further back than the neighbour's history goes"));
        }
        let contents = self.read_contents(node, member, &right, index).await?;
        let bytes = u64::try_from(contents.byte_len()).unwrap_or(u64::MAX);
        let (contents, records) = txn_record::separate(&contents)?;
        let _room = node.pipeline.reserve(contents.byte_len()).await?;
        let absorption = Absorption { right, freeze, contents, records };
        node.pipeline.change(range, Change::Absorb(Box::new(absorption))).await?;
        Ok(bytes)
    }

    /// Tells the leaseholder of a range that was frozen that nothing comes of it.
    async fn give_up(&self, member: NodeId, range_id: RangeId) {
        if member == self.myself.id {
            self.splits.given_up(range_id);
        } else {
            // If it gets lost, the other finds out by itself.
            let _ = self.ask(member, Kind::MergeGivenUp(Gone { range_id })).await;
        }
    }

    async fn read_contents(
        &self,
        node: &Arc<Node>,
        member: NodeId,
        right: &RangeDescriptor,
        index: u64,
    ) -> Result<WriteBatch, KvError> {
        let (mut contents, mut from) = (WriteBatch::new(), None);
        loop {
            let asked = GetContents { range_id: right.range_id, index, from };
            let Contents { puts, next } = if member == self.myself.id {
                self.contents(node, asked).await?
            } else {
                match self.ask(member, Kind::GetContents(asked)).await {
                    Some(Kind::Contents(contents)) => contents,
                    other => return Err(unexpected(other)),
                }
            };
            contents.decode_into(&puts)?;
            if contents.byte_len() as u64 > 2 * MAX_ABSORBED_BYTES {
                return Err(unavailable("the neighbour holds too much"));
            }
            match next {
                Some(next) => from = Some(next),
                None => return Ok(contents),
            }
        }
    }

    /// Whose turn it is to split or merge ranges whose leases are held here. Who has to find out what became of a merge comes
    /// before: the range that is frozen for it may be what all others wait for.
    ///
    /// # Errors
    /// [`KvErrorKind::Unavailable`] if there is somebody who has to.
    pub(super) async fn turn_to_change(&self) -> Result<tokio::sync::MutexGuard<'_, ()>, KvError> {
        self.give_way()?;
        let turn = self.splitting.lock().await;
        self.give_way()?;
        Ok(turn)
    }

    /// Fails if somebody has to find out what became of a merge.
    pub(super) fn give_way(&self) -> Result<(), KvError> {
        match self.settling.load(Ordering::Relaxed) {
            0 => Ok(()),
            _ => Err(unavailable("it is being found out what became of a merge")),
        }
    }

    // The right range's part.

    /// Freezes a range whose lease is held here, and waits until all its members have that on their disks.
    pub(super) async fn freeze(&self, node: &Arc<Node>, asked: FreezeRange) -> Result<Frozen, KvError> {
        let FreezeRange { record, absorber, generation, max_bytes, max_load } = asked;
        let range = record.range_id;
        node.ready(range).await?;
        let status = node.pipeline.status(range).await?.ok_or_else(|| KvError::range_not_found(range))?;
        let descriptor = status.descriptor.ok_or_else(|| KvError::range_not_found(range))?;
        let members = status.group.members;
        let mut known: Vec<NodeId> = record.voters.iter().chain(&record.learners).copied().collect();
        known.sort_unstable();
        let same = (&descriptor.start, &descriptor.end) == (&record.start, &record.end)
            && (descriptor.merges, descriptor.family()) == (record.merges, record.family())
            && descriptor.config == record.config;
        if !same || members.is_joint() || members.all() != known {
            return Err(unavailable("the directory does not know the range as it is"));
        }
        if self.placing.lock().loads().get(&range).copied().unwrap_or(0) > max_load {
            return Err(unavailable("the range is busy"));
        }
        let span = Span::new(descriptor.start.clone(), descriptor.end.clone());
        if self.measure(node, span, max_bytes).await? > max_bytes {
            return Err(unavailable("the range holds too much"));
        }
        let tenant = TenantId::of_key(&descriptor.start).map_or(0, |tenant| tenant.0);
        let _held = HeldIntents::await_none(node, tenant, range, INTENTS_PATIENCE).await;
        if !node.shard(tenant).is_divisible(range) {
            return Err(unavailable("transactions are open in the neighbour"));
        }
        let wanted = FreezeFor { expected: descriptor.clone(), absorber, generation };
        node.pipeline.change(range, Change::Freeze(wanted)).await?;
        let status = node.pipeline.status(range).await?.ok_or_else(|| KvError::range_not_found(range))?;
        let index = status.group.applied;
        let freeze = status.frozen.ok_or_else(|| unavailable("the range was frozen and is not any more"))?;
        let reached = known.into_iter().map(|member| self.has_reached(node, member, range, index));
        if !futures::future::join_all(reached).await.into_iter().all(|reached| reached) {
            self.splits.given_up(range);
            return Err(unavailable("a member of the range is too slow"));
        }
        Ok(Frozen { descriptor, freeze, index, oldest: node.history.oldest(range) })
    }

    /// How much a range holds, as far as it is read: a little more than `max` if it is more.
    pub(super) async fn measure(&self, node: &Arc<Node>, span: Span, max: u64) -> Result<u64, KvError> {
        let mut measuring = Measuring::new(span, max);
        loop {
            if let Some(measured) = measuring.step(&*node.engine, PIECE_BYTES as u64 / 4)? {
                return Ok(measured.bytes);
            }
            tokio::task::yield_now().await;
        }
    }

    async fn has_reached(&self, node: &Arc<Node>, member: NodeId, range_id: RangeId, index: u64) -> bool {
        if member == self.myself.id {
            return matches!(node.pipeline.reached(range_id, index).await, Ok(true));
        }
        let question = Kind::Reached(Reached { range_id, index });
        matches!(self.ask_for(member, question, REACHED_PATIENCE).await, Some(Kind::Done(_)))
    }

    /// Says when a replica here has applied an entry.
    pub(super) async fn reached(&self, node: &Arc<Node>, asked: Reached) -> Result<(), KvError> {
        let reached = node.pipeline.reached(asked.range_id, asked.index).await?;
        if reached { Ok(()) } else { Err(KvError::range_not_found(asked.range_id)) }
    }

    /// A piece of what a frozen range holds.
    pub(super) async fn contents(&self, node: &Arc<Node>, asked: GetContents) -> Result<Contents, KvError> {
        let status = node.pipeline.status(asked.range_id).await?;
        let status = status.filter(|status| status.frozen.is_some()).and_then(|status| status.descriptor);
        let range = status.ok_or_else(|| unavailable("the range is not frozen"))?;
        if !node.pipeline.has_reached(asked.range_id, asked.index) {
            return Err(unavailable("the replica is behind"));
        }
        let (puts, next) = contents::piece(&*node.engine, &range, asked.from, PIECE_BYTES)?;
        Ok(Contents { puts: puts.encode(), next })
    }

    // What becomes of merges that nobody goes on with.

    /// Finds out, in the background, what became of the merges for which ranges are frozen here.
    pub(super) fn settle_merges(self: &Arc<Self>, node: &Arc<Node>, frozen: Vec<(RangeDescriptor, Freeze)>) {
        let now = Instant::now();
        for (descriptor, freeze) in self.splits.frozen_for_long(frozen, now, SETTLE_AFTER) {
            let (cluster, node) = (Arc::clone(self), Arc::clone(node));
            tokio::spawn(async move {
                let range = descriptor.range_id;
                match cluster.settle_merge(&node, descriptor, freeze).await {
                    Ok(true) => tracing::info!(range, "a range is served again, it is not absorbed"),
                    Ok(false) => {}
                    Err(error) => tracing::debug!(range, "it is not known what became of a merge: {error}"),
                }
                cluster.splits.settled(range);
            });
        }
    }

    /// Has a range that is frozen be served again if it was not absorbed and never will be; says whether.
    async fn settle_merge(
        &self,
        node: &Arc<Node>,
        range: RangeDescriptor,
        freeze: Freeze,
    ) -> Result<bool, KvError> {
        let asked = SettleMerge {
            absorber: freeze.absorber,
            generation: freeze.generation,
            start: range.start.clone(),
        };
        let mut settled = self.settle(node, asked.clone()).await.ok();
        let others = self.others();
        let questions =
            others.into_iter().map(|id| self.ask_for(id, Kind::SettleMerge(asked.clone()), SETTLE_PATIENCE));
        if settled.is_none() {
            let answers = futures::future::join_all(questions).await;
            settled = answers.into_iter().find_map(|answer| match answer {
                Some(Kind::MergeSettled(settled)) => Some(settled),
                _ => None,
            });
        }
        if settled.is_some_and(|settled| settled.absorbed) {
            return Ok(false);
        }
        // Only after that: see above.
        let asked = GetListed { key: range.start.clone(), frozen: range.range_id, absorber: freeze.absorber };
        let listed = match self.ask_root(node, Kind::GetListed(asked)).await? {
            Kind::Listed(listed) => listed,
            other => return Err(unexpected(Some(other))),
        };
        if !listed.frozen || (settled.is_none() && listed.absorber) {
            return Ok(false);
        }
        node.pipeline.change(range.range_id, Change::Thaw(freeze)).await?;
        Ok(true)
    }

    /// Says whether a range whose lease is held here has absorbed its right neighbour, and sees to it that it does not
    /// if it has not.
    pub(super) async fn settle(&self, node: &Arc<Node>, asked: SettleMerge) -> Result<MergeSettled, KvError> {
        let SettleMerge { absorber: range, generation, start } = asked;
        let waiting = Waiting::among(&self.settling);
        let turn = tokio::time::timeout(LOCK_PATIENCE, self.splitting.lock()).await;
        drop(waiting);
        let Ok(_one_at_a_time) = turn else {
            return Err(unavailable("the merge may be under way"));
        };
        node.ready(range).await?;
        let lease = node.pipeline.lease(range)?;
        let own = descriptor_of(node, range).await?;
        if own.start < start && start < own.end {
            self.described(range);
            return Ok(MergeSettled { absorbed: true });
        }
        if own.generation <= generation {
            let fenced = RangeDescriptor { generation: generation + 1, ..own };
            let change = RangeChange { descriptor: Some(fenced), ..RangeChange::default() };
            submit(node, range, lease, Effects::default(), Some(change)).await?;
        }
        Ok(MergeSettled { absorbed: false })
    }

    // The directory's part.

    async fn ask_root(&self, node: &Arc<Node>, question: Kind) -> Result<Kind, KvError> {
        if matches!(node.pipeline.standing(ROOT), Standing::Leaseholder(_)) {
            return match question {
                Kind::GetNeighbour(asked) => self.neighbour(node, asked).await.map(Kind::Neighbour),
                Kind::GetListed(asked) => self.listed(node, asked).await.map(Kind::Listed),
                _ => Err(KvError::new(KvErrorKind::Internal, "this is nothing to ask of the directory")),
            };
        }
        let nodes = node.pipeline.nodes().await?;
        let nobody = || unavailable("the leaseholder of the root range is not known");
        let leader = self.root_leader(&nodes).filter(|id| *id != self.myself.id).ok_or_else(nobody)?;
        self.ask(leader, question).await.ok_or_else(nobody)
    }

    /// The right neighbour of a range, if the directory knows that as it is and the two may be merged.
    pub(super) async fn neighbour(
        &self,
        node: &Arc<Node>,
        asked: GetNeighbour,
    ) -> Result<RangeRecord, KvError> {
        let _one_at_a_time = self.directory.lock().await;
        node.pipeline.lease(ROOT)?;
        let known = before(&*node.engine, &asked.start)?.filter(|known| {
            (known.range_id, &known.start, &known.end) == (asked.range_id, &asked.start, &asked.end)
        });
        let next = list(&*node.engine, &asked.start, 1)?.pop().filter(|next| next.start == asked.end);
        let (Some(known), Some(next)) = (known, next) else {
            return Err(unavailable("the directory has not heard yet of the last change there"));
        };
        let tenant = TenantId::of_key(&known.start).map(|tenant| tenant.span().start).unwrap_or_default();
        let first = before(&*node.engine, &tenant)?.filter(|first| first.start == tenant);
        let config = first.map(|first| span_config::decode(&first.config)).unwrap_or_default();
        may_merge(&config, &known, &next)?;
        Ok(next)
    }

    /// Whether two ranges are in the directory.
    pub(super) async fn listed(&self, node: &Arc<Node>, asked: GetListed) -> Result<Listed, KvError> {
        let _one_at_a_time = self.directory.lock().await;
        node.pipeline.lease(ROOT)?;
        let Some(tenant) = TenantId::of_key(&asked.key) else {
            return Ok(Listed { frozen: false, absorber: false });
        };
        let records = of_tenant(&*node.engine, tenant)?;
        let has = |range| {
            records
                .iter()
                .any(|record| record.range_id == range && TenantId::of_key(&record.start) == Some(tenant))
        };
        Ok(Listed { frozen: has(asked.frozen), absorber: has(asked.absorber) })
    }
}

/// Whether two neighbours may be merged where the configuration of their tenant is this.
///
/// # Errors
/// Why not.
fn may_merge(
    tenant: &kv_api::batch::RangeConfig,
    left: &RangeRecord,
    right: &RangeRecord,
) -> Result<(), KvError> {
    let whole = Span::new(left.start.clone(), right.end.clone());
    if left.family() != right.family() {
        return Err(unavailable("the ranges are of different tenants"));
    }
    if span_config::borders(tenant, &whole).next().is_some() {
        return Err(unavailable("a span that is kept otherwise begins or ends between the ranges"));
    }
    let (one, other) = ((&left.config[..], &left.start[..]), (&right.config[..], &right.start[..]));
    if !span_config::alike(one, other) {
        return Err(unavailable("the ranges are kept differently"));
    }
    if span_config::kept(&left.config, &left.start).global_reads {
        return Err(unavailable("ranges whose replicas all serve the present are not merged"));
    }
    Ok(())
}

async fn descriptor_of(node: &Arc<Node>, range: RangeId) -> Result<RangeDescriptor, KvError> {
    let status = node.pipeline.status(range).await?;
    status.and_then(|status| status.descriptor).ok_or_else(|| KvError::range_not_found(range))
}
