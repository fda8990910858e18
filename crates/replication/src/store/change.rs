//! Ranges that come to be, and ranges that are destroyed.
//!
//! A range comes to be with a command of another range's log: every member of that range writes the first
//! replica when it applies the entry, with the same members and nothing in its log. Where it is made of keys
//! that the other gives up, they stay where they are and change hands with the entry. So a node on which the
//! entry is not applied yet has those keys in the old replica: it takes no snapshot of the new range until then
//! ([`Store::step`]), or one replica would be able to remove the keys of another.

use super::{Event, Store, first_hard_state, first_state, others};
use crate::change::{check, overlap};
use crate::command::RangeChange;
use crate::error::{ReplicationError, ReplicationResult};
use crate::faults::{Bug, Faults};
use crate::message::{LeaderAnswer, Members, NodeId, Payload, RangeId};
use crate::snapshot::clear;
use crate::state::{self, HardState, RangeDescriptor};
use kv_api::Timestamp;
use storage::{StorageError, WriteBatch};

impl<F: Faults> Store<F> {
    /// Whether a change may be proposed, as far as can be told here.
    pub(super) fn check_change(&self, range: RangeId, change: &RangeChange) -> ReplicationResult<()> {
        let refuse = |reason: &str| ReplicationError::Change { range, reason: reason.to_owned() };
        let group = self.groups.get(&range).ok_or(ReplicationError::NoReplica(range))?;
        let own = group.state.descriptor.as_ref().ok_or(ReplicationError::NoReplica(range))?;
        check(range, own, group.state.frozen.as_ref(), &group.state.members, change).map_err(refuse)?;
        if group.raft.raft.has_pending_conf() {
            return Err(refuse("its members are changing"));
        }
        for pending in group.pending.values().filter_map(|pending| pending.change.as_deref()) {
            let meets = |created: &RangeDescriptor| {
                let same =
                    |other: &RangeDescriptor| other.range_id == created.range_id || overlap(other, created);
                pending.created.iter().any(same)
            };
            let alone = |change: &RangeChange| {
                change.descriptor.is_some() || change.freeze.is_some() || change.thaw.is_some()
            };
            if alone(pending) || alone(change) || change.created.iter().any(meets) {
                return Err(refuse("another change is under way"));
            }
        }
        self.check_room(range, change).map_err(refuse)?;
        for created in &change.created {
            if self.index.contains(created.range_id) {
                return Err(refuse(&format!("range {} exists already", created.range_id)));
            }
            if state::is_destroyed(&*self.engine, created.range_id)? {
                return Err(refuse(&format!("range {} was destroyed", created.range_id)));
            }
            if let Some(other) = self.index.overlapping(range, &created.start, &created.end) {
                return Err(refuse(&format!("range {other} has keys of range {}", created.range_id)));
            }
        }
        Ok(())
    }

    /// Applies a change that fits the range; false if it cannot be applied here, and the replica goes.
    pub(super) fn apply_change(
        &mut self,
        range: RangeId,
        change: RangeChange,
        batch: &mut WriteBatch,
        events: &mut Vec<Event>,
    ) -> ReplicationResult<bool> {
        if change.absorbed.is_some() && !self.absorb(range, &change, batch, events)? {
            return Ok(false);
        }
        let Some(group) = self.groups.get_mut(&range) else { return Ok(true) };
        let Some(old) = group.state.descriptor.clone() else { return Ok(true) };
        if let Some(freeze) = change.freeze {
            group.state.frozen = Some(freeze);
            events.push(Event::Frozen { range });
        }
        if change.thaw.is_some() {
            group.state.frozen = None;
            events.push(Event::Thawed { range });
        }
        let lease = &group.state.lease;
        // Up to there this range has served the keys that it gives up. It has served nothing in them since
        // its leaseholder said so, which is the one whose lease is in force.
        let most = lease.ceiling.max(lease.floor);
        let floor = change.served.map_or(most, |served| served.min(most));
        let floor = if self.faults.planted(Bug::NewRangeBelowFloor) { Timestamp::MIN } else { floor };
        let members = group.state.members.clone();
        if let Some(descriptor) = change.descriptor {
            if (&descriptor.start, &descriptor.end) != (&old.start, &old.end) {
                // They would read on in keys that are another's.
                group.stop_transfers();
            }
            group.state.descriptor = Some(descriptor.clone());
            self.index.set(range, &group.state);
            events.push(Event::DescriptorChanged { range, descriptor });
        }
        for descriptor in change.created {
            self.create(&old, descriptor, &members, floor, batch, events)?;
        }
        Ok(true)
    }

    /// Writes the first replica of a range, unless there is one or must not be one.
    fn create(
        &mut self,
        old: &RangeDescriptor,
        descriptor: RangeDescriptor,
        members: &Members,
        floor: Timestamp,
        batch: &mut WriteBatch,
        events: &mut Vec<Event>,
    ) -> ReplicationResult<()> {
        let range = descriptor.range_id;
        if self.index.contains(range) {
            // A snapshot was faster.
            return Ok(());
        }
        let forgets = self.faults.planted(Bug::SplitVoteForgotten);
        let known = if forgets { HardState::default() } else { self.hard_state_of(range)? };
        let destroyed =
            !self.faults.planted(Bug::DestroyedComesBack) && state::is_destroyed(&*self.engine, range)?;
        let taken = self.index.overlapping(range, &descriptor.start, &descriptor.end).is_some();
        if taken || destroyed || known.retired {
            // It is here in smaller pieces, or gone, or only a snapshot can bring it.
            if overlap(old, &descriptor) && !taken {
                clear(batch, &descriptor.start, &descriptor.end);
            }
            return Ok(());
        }
        let state = first_state(descriptor.clone(), members.clone(), floor);
        state::put_state(batch, range, &state);
        state::put_hard_state(batch, range, first_hard_state(known));
        self.index.set(range, &state);
        if self.groups.contains_key(&range) {
            self.reborn.push(range);
        }
        tracing::debug!(range, "the range comes to be");
        events.push(Event::Created { range, descriptor });
        Ok(())
    }

    /// The hard state of a replica that may be empty or removed.
    fn hard_state_of(&self, range: RangeId) -> ReplicationResult<HardState> {
        let Some(group) = self.groups.get(&range) else {
            return state::load_hard_state(&*self.engine, range);
        };
        let (raft, written) = (&group.raft.raft, group.raft.store().hard_state());
        Ok(HardState { term: raft.term, vote: raft.vote, ..written })
    }

    /// Puts first replicas that are on disk now in the place of the empty ones that messages have made.
    pub(super) fn replace_empty(&mut self) -> ReplicationResult<()> {
        for range in std::mem::take(&mut self.reborn) {
            let Some(empty) = self.groups.remove(&range) else { continue };
            if !self.load(self.clock, range)? {
                continue;
            }
            if let Some(group) = self.groups.get_mut(&range) {
                group.idle = empty.idle;
                if !self.faults.planted(Bug::SplitVoteForgotten) {
                    // A leader may count on it already.
                    group.guard = empty.guard;
                }
            }
        }
        Ok(())
    }

    /// Removes a range's replica and its contents for good: whatever arrives, there never is one here again.
    ///
    /// # Errors
    /// I/O errors; where the disk is full, it is to be tried again.
    pub fn destroy(&mut self, range: RangeId) -> ReplicationResult<()> {
        if self.stalled.is_some() {
            return Err(StorageError::DiskFull("the replicas wait for space".to_owned()).into());
        }
        let mut batch = WriteBatch::new();
        self.put_destroyed(range, &mut batch)?;
        self.engine.write(&batch, true)?;
        let mut events = Vec::new();
        self.forget_destroyed(range, &mut events);
        self.events.append(&mut events);
        Ok(())
    }

    /// Adds to a batch that a range is no more here.
    pub(super) fn put_destroyed(&self, range: RangeId, batch: &mut WriteBatch) -> ReplicationResult<()> {
        if let Some(state) = self.state_of(range)? {
            for descriptor in [&state.descriptor, &state.arriving].into_iter().flatten() {
                clear(batch, &descriptor.start, &descriptor.end);
            }
        }
        state::destroy(batch, range);
        Ok(())
    }

    /// The same in memory.
    pub(super) fn forget_destroyed(&mut self, range: RangeId, events: &mut Vec<Event>) {
        let existed = self.index.contains(range);
        self.index.remove(range);
        self.dirty.remove(&range);
        if let Some(group) = self.groups.remove(&range) {
            if group.is_leader() {
                self.resign(range, group.term(), &group.state.members);
            }
            if group.holding.is_some() {
                events.push(Event::LeaseLost { range });
            }
        }
        if existed {
            events.push(Event::Removed { range });
            tracing::info!(range, "the replica was destroyed");
        }
    }

    /// Tells the members that this node no longer leads: those who know it for the leader would wait for as long
    /// as it lives.
    pub(super) fn resign(&mut self, range: RangeId, term: u64, members: &Members) {
        let answer = LeaderAnswer { range_id: range, term, ..LeaderAnswer::default() };
        for member in others(members, self.config.node).collect::<Vec<NodeId>>() {
            self.send(member, 0, Payload::LeaderAnswer(answer));
        }
    }
}
