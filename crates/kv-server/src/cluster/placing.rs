//! Seeing to it that replicas and leases are where they should be.
//!
//! A look goes over some of the ranges whose leases are held here and makes the next step for each. Ranges
//! that sleep are gone over when something about the nodes has changed, often while replicas are unevenly spread,
//! and every ten minutes; those that need care are woken, a few at a time, by one of their members.

use super::message::Note;
use super::nodes::for_range;
use super::{Cluster, LOOK, NodeRecord};
use crate::directory;
use crate::node::Node;
use crate::pipeline::{Load, NodesStatus, ROOT, Standing};
use crate::placement::{self, NodeView, Placed, Step, next_step};
use crate::span_config;
use kv_api::KvError;
use prost::Message as _;
use replication::{MemberChange, NodeId, RangeDescriptor, RangeId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Most ranges looked at each time.
const MAX_LOOKED_AT: usize = 512;
/// Most sleeping replicas gone over each time.
const MAX_SURVEYED: usize = 1024;
/// Most sleeping ranges woken each time.
const MAX_WOKEN: usize = 32;
/// Most replicas on the move for balance at a time, of ranges whose leases are held here.
const MAX_MOVES: u64 = 16;
/// Looks for which a lease stays, once it is here, whatever the load.
const SETTLED_LOOKS: u64 = 60;
/// How often the replicas of a range in use are compared.
const CHECK_EVERY: Duration = Duration::from_secs(24 * 3600);
/// Looks between two comparisons, so that they do not all come at once.
const CHECK_LOOKS: u64 = 20;
/// Looks between leases moved for balance: loads must be seen to have changed before the next.
const LEASE_LOOKS: u64 = 20;
/// Looks between surveys for balance alone.
const SURVEY_LOOKS: u64 = 6;
/// Looks between surveys for no reason: ten minutes. Nothing that sleeps lacks something for longer.
const ROUTINE_LOOKS: u64 = 1200;

/// What is remembered from look to look.
#[derive(Default)]
pub(super) struct Progress {
    looks: u64,
    /// The last range looked at.
    after: RangeId,
    /// Batches per second of each range, smoothed.
    loads: BTreeMap<RangeId, u64>,
    load: u64,
    leads_root: bool,
    /// What this node last said of itself, and whose signs of life it last asked for.
    said: Option<Note>,
    watched: Vec<NodeId>,
    /// The nodes as they were when the sleeping ranges were gone over last.
    surveyed: Vec<(NodeId, bool, bool, bool, String)>,
    /// Where the survey goes on; absent when it is over.
    survey_after: Option<RangeId>,
    /// Whether the present survey has found anything to do.
    found: bool,
    /// The look at which a lease was moved for balance last.
    lease_moved: u64,
    /// The look at which each range held here was first seen to be.
    held_since: BTreeMap<RangeId, u64>,
    /// When the replicas of each range held here were compared last, or it was first seen to be held.
    compared: BTreeMap<RangeId, Instant>,
}

impl Progress {
    /// What this node says of itself.
    pub fn note(&self, nodes: &NodesStatus) -> Note {
        let (replicas, _, leases) = nodes.counts;
        Note {
            replicas: u64::try_from(replicas).unwrap_or(u64::MAX),
            leases: u64::try_from(leases).unwrap_or(u64::MAX),
            load: self.load,
            leads_root: self.leads_root,
        }
    }

    /// Notes that a range held here may be handed over for balance soon.
    pub fn is_settled(&mut self, range: RangeId) {
        self.held_since.insert(range, self.looks.saturating_sub(SETTLED_LOOKS - LEASE_LOOKS));
    }

    /// Batches per second in each range, smoothed.
    pub fn loads(&self) -> &BTreeMap<RangeId, u64> {
        &self.loads
    }

    /// Takes in what was done since the last look.
    fn weigh(&mut self, done: &hashbrown::HashMap<RangeId, Load>) {
        let per_second = 1000 / u64::try_from(LOOK.as_millis()).unwrap_or(1000).max(1);
        for (range, done) in done {
            let load = self.loads.entry(*range).or_default();
            // Half of it is what it was before.
            *load = (*load + done.batches * per_second) / 2;
        }
        self.loads.retain(|range, load| {
            if !done.contains_key(range) {
                *load /= 2;
            }
            *load > 0
        });
        self.load = self.loads.values().sum();
    }
}

fn placed(members: &replication::message::Members) -> Placed {
    Placed { voters: members.voters.clone(), learners: members.learners.clone() }
}

impl Cluster {
    /// Makes the next steps towards where replicas and leases should be.
    pub(super) async fn place(
        self: &Arc<Self>,
        node: &Arc<Node>,
        records: &[NodeRecord],
        nodes: &NodesStatus,
        held: &[RangeId],
    ) -> Result<(), KvError> {
        self.say(node, records, nodes);
        if records.iter().all(|record| record.id == self.myself.id) {
            return Ok(());
        }
        let views = self.views(records, nodes);
        self.compare_one(node, held);
        self.place_held(node, &views, held.to_vec()).await?;
        self.survey(node, &views).await
    }

    /// Takes note of what was done since the last look, and has the nodes told how this one is.
    fn say(&self, node: &Node, records: &[NodeRecord], nodes: &NodesStatus) {
        let mut progress = self.placing.lock();
        progress.looks += 1;
        let done = node.pipeline.take_loads();
        progress.weigh(&done);
        self.splits.note(&done);
        progress.leads_root = matches!(node.pipeline.standing(ROOT), Standing::Leaseholder(_));
        let note = progress.note(nodes);
        let known: Vec<NodeId> = records.iter().map(|record| record.id).collect();
        // The thread of the ranges need not wake to hear the same again.
        if progress.said.as_ref() != Some(&note) && node.pipeline.set_note(note.encode_to_vec().into()) {
            progress.said = Some(note);
        }
        let is_news = progress.watched != known && known.iter().any(|id| *id != self.myself.id);
        if is_news && node.pipeline.watch_nodes(known.clone()) {
            progress.watched = known;
        }
    }

    async fn place_held(
        &self,
        node: &Arc<Node>,
        views: &[NodeView],
        mut held: Vec<RangeId>,
    ) -> Result<(), KvError> {
        held.sort_unstable();
        let (looks, mut may_move_lease) = {
            let mut progress = self.placing.lock();
            let looks = progress.looks;
            progress.held_since.retain(|range, _| held.binary_search(range).is_ok());
            for range in &held {
                progress.held_since.entry(*range).or_insert(looks);
            }
            // Where the last look stopped, and around.
            let next = held.partition_point(|range| *range <= progress.after);
            held.rotate_left(next);
            held.truncate(MAX_LOOKED_AT);
            progress.after = held.last().copied().unwrap_or(0);
            (looks, looks >= progress.lease_moved + LEASE_LOOKS)
        };
        // Changed as steps are made, for what nodes say of themselves is a moment old.
        let mut views = views.to_vec();
        let statuses = node.pipeline.statuses(held).await?;
        let moving = statuses.iter().filter(|status| !status.group.members.learners.is_empty()).count();
        let mut moves = most_moves(&views).saturating_sub(u64::try_from(moving).unwrap_or(u64::MAX));
        for status in statuses {
            let Some(descriptor) = &status.descriptor else { continue };
            if status.group.members.is_joint() {
                continue;
            }
            let range = status.range;
            let (load, settled) = {
                let progress = self.placing.lock();
                let since = progress.held_since.get(&range).copied().unwrap_or(looks);
                (progress.loads.get(&range).copied().unwrap_or(0), looks >= since + SETTLED_LOOKS)
            };
            let placed = placed(&status.group.members);
            let config = span_config::kept(&descriptor.config, &descriptor.start);
            let step = next_step(self.myself.id, &placed, &for_range(&views, &status), &config, load);
            let result = match step {
                None => Ok(()),
                Some(Step::Change(change)) => {
                    tracing::info!(range, ?change, "changing the members of a range");
                    count_on(&mut views, &change);
                    node.pipeline.change_members(range, change).await
                }
                Some(Step::Transfer(to)) => {
                    tracing::info!(range, to, "handing a lease over");
                    node.pipeline.transfer_lease(range, to).await
                }
                Some(Step::Balance(change @ MemberChange::Replace { .. })) => {
                    tracing::debug!(range, ?change, "a replica has moved for balance");
                    count_on(&mut views, &change);
                    node.pipeline.change_members(range, change).await
                }
                Some(Step::Balance(change)) if moves > 0 => {
                    tracing::debug!(range, ?change, "moving a replica for balance");
                    moves -= 1;
                    count_on(&mut views, &change);
                    node.pipeline.change_members(range, change).await
                }
                Some(Step::BalanceLease(to)) if may_move_lease && settled => {
                    tracing::info!(range, to, load, "handing a lease over for balance");
                    may_move_lease = false;
                    self.placing.lock().lease_moved = looks;
                    node.pipeline.transfer_lease(range, to).await
                }
                Some(Step::Balance(_) | Step::BalanceLease(_)) => Ok(()),
            };
            if let Err(error) = result {
                // What is under way in one range must not keep the others waiting.
                tracing::debug!(range, "a step was not made: {error}");
            }
        }
        Ok(())
    }

    /// Compares the replicas of a range that is due.
    fn compare_one(self: &Arc<Self>, node: &Arc<Node>, held: &[RangeId]) {
        if !self.placing.lock().looks.is_multiple_of(CHECK_LOOKS) {
            return;
        }
        let due = {
            let mut progress = self.placing.lock();
            let now = Instant::now();
            progress.compared.retain(|range, _| held.contains(range));
            for range in held {
                progress.compared.entry(*range).or_insert(now);
            }
            let oldest = progress.compared.iter_mut().min_by_key(|(_, compared)| **compared);
            oldest.filter(|(_, compared)| now.duration_since(**compared) >= CHECK_EVERY).map(
                |(range, compared)| {
                    *compared = now;
                    *range
                },
            )
        };
        if let Some(range) = due {
            let (cluster, node) = (Arc::clone(self), Arc::clone(node));
            tokio::spawn(async move {
                // What it finds it says itself.
                if let Err(error) = crate::check::check(&node, &cluster, range).await {
                    tracing::debug!(range, "the replicas of a range were not compared: {error}");
                }
            });
        }
    }

    /// Goes over sleeping ranges and wakes those about which something is to be done.
    async fn survey(&self, node: &Arc<Node>, views: &[NodeView]) -> Result<(), KvError> {
        let state = |view: &NodeView| (view.id, view.live, view.dead, view.draining, view.locality.clone());
        let state: Vec<_> = views.iter().map(state).collect();
        let after = {
            let mut progress = self.placing.lock();
            if progress.surveyed != state {
                progress.surveyed = state;
                progress.survey_after = Some(0);
                progress.found = false;
            }
            match progress.survey_after {
                Some(after) => after,
                None => {
                    let often = if placement::is_uneven(views) { SURVEY_LOOKS } else { ROUTINE_LOOKS };
                    if !progress.looks.is_multiple_of(often) {
                        return Ok(());
                    }
                    0
                }
            }
        };
        let replicas = node.pipeline.survey(after, MAX_SURVEYED).await?;
        let complete = replicas.len() < MAX_SURVEYED;
        let mut last = after;
        let mut woken = 0;
        for replica in replicas {
            last = replica.range;
            let Some(descriptor) = &replica.descriptor else { continue };
            if node.pipeline.span(replica.range).is_some() {
                // It is awake: its leaseholder looks after it.
                continue;
            }
            let placed = placed(&replica.members);
            let config = span_config::kept(&descriptor.config, &descriptor.start);
            if placement::waker(replica.range, &placed, views) != Some(self.myself.id) {
                continue;
            }
            let cares = placement::needs_care(self.myself.id, &placed, views, &config)
                || self.is_unheard_of(node, descriptor)
                || replica.frozen;
            if !cares {
                continue;
            }
            let (node, range) = (Arc::clone(node), replica.range);
            tokio::spawn(async move {
                // If it comes to nothing, the next survey finds it again.
                let _ = node.ready(range).await;
            });
            woken += 1;
            if woken >= MAX_WOKEN {
                break;
            }
        }
        let mut progress = self.placing.lock();
        progress.found |= woken > 0;
        let over = complete && woken < MAX_WOKEN;
        // Once more, until nothing is found.
        progress.survey_after =
            if over { std::mem::take(&mut progress.found).then_some(0) } else { Some(last) };
        Ok(())
    }

    /// Whether the directory here, if there is one, has not heard that a range was split off another or has absorbed
    /// one: whoever wakes it reports it. It may be of a tenant that was dropped just then; that it is told, too.
    pub(super) fn is_unheard_of(&self, node: &Node, descriptor: &RangeDescriptor) -> bool {
        // Most are as the directory made them.
        let is_as_made = descriptor.origin == 0 && descriptor.generation <= 1;
        if is_as_made || node.pipeline.span(ROOT).is_none() {
            return false;
        }
        match directory::before(&*node.engine, &descriptor.start).ok().flatten() {
            Some(known) if known.range_id == descriptor.range_id => known.end != descriptor.end,
            _ => descriptor.origin != 0,
        }
    }
}

/// How many replicas may be on the move for balance by this node's doing: its share of what the fullest node
/// has too many, so that all together do not move more than that.
fn most_moves(views: &[NodeView]) -> u64 {
    let fit = || views.iter().filter(|view| view.live && !view.draining);
    let nodes = u64::try_from(fit().count()).unwrap_or(1).max(1);
    let mean = fit().map(|view| view.replicas).sum::<u64>() / nodes;
    let most = fit().map(|view| view.replicas).max().unwrap_or(0);
    (most.saturating_sub(mean) / nodes).clamp(1, MAX_MOVES)
}

/// Counts a change on as if it were done.
fn count_on(views: &mut [NodeView], change: &MemberChange) {
    let mut count = |id: &NodeId, by: i64| {
        if let Some(view) = views.iter_mut().find(|view| view.id == *id) {
            view.replicas = view.replicas.saturating_add_signed(by);
        }
    };
    match change {
        MemberChange::AddLearner(id) => count(id, 1),
        MemberChange::Replace { remove, .. } => remove.iter().for_each(|id| count(id, -1)),
    }
}
