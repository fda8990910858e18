//! Groups that leave memory and come back.
//!
//! A leader that nobody uses gives up its lease, and after the driver has heard of that tells the others and
//! goes; they go when they are told. A follower that missed it asks. The promise to help elect nobody else
//! ([`crate::group::Guard`]) is in memory only, so a replica stays there for as long as it is bound by one.

use super::{Event, Store, others};
use crate::Millis;
use crate::config::{ELECTION_TICKS, QUIET_TICKS, TICK_MS};
use crate::error::ReplicationResult;
use crate::faults::{Bug, Faults};
use crate::group::Group;
use crate::message::{LeaderAnswer, LeaderQuery, NodeId, Payload, RangeId};
use crate::state;
use raft::StateRole;

/// How often a replica campaigns at most because it is woken again and again.
const CAMPAIGN_MS: Millis = ELECTION_TICKS as Millis * TICK_MS;

impl<F: Faults> Store<F> {
    /// Somebody wants to use a range: loads its group if it sleeps, and campaigns if nobody is known to lead
    /// it. False if it has no replica here; an incomplete one is one, but cannot lead.
    ///
    /// # Errors
    /// I/O errors and damage.
    pub fn wake(&mut self, now: Millis, range: RangeId) -> ReplicationResult<bool> {
        self.clock = now;
        if !self.index.contains(range) {
            return Ok(false);
        }
        if !self.load(now, range)? {
            // It comes to be with a round that waits for space.
            return Ok(self.stalled.is_some());
        }
        self.touch(range);
        self.campaign(now, range);
        Ok(true)
    }

    /// Counts as use of a range, if it is awake. Cheap.
    pub fn touch(&mut self, range: RangeId) {
        let now = self.clock;
        if let Some(group) = self.groups.get_mut(&range) {
            group.idle.used(now);
        }
    }

    /// Whether the group of a range is in memory.
    pub fn is_awake(&self, range: RangeId) -> bool {
        self.groups.contains_key(&range)
    }

    /// Loads a group that sleeps. False if there is none.
    pub(super) fn load(&mut self, now: Millis, range: RangeId) -> ReplicationResult<bool> {
        if self.groups.contains_key(&range) {
            return Ok(true);
        }
        if self.stalled.is_some() || !self.index.contains(range) {
            return Ok(false);
        }
        let Some(mut state) = state::load_state(&*self.engine, range)? else { return Ok(false) };
        if self.faults.planted(Bug::IncompleteForgotten) {
            state.incomplete = false;
        }
        if self.faults.planted(Bug::FrozenForgotten) {
            state.frozen = None;
        }
        self.add_group(now, range, state)?;
        Ok(true)
    }

    /// The same for a message; an error is no reason to stop.
    pub(super) fn load_for_message(&mut self, now: Millis, range: RangeId) -> bool {
        self.load(now, range).unwrap_or_else(|error| {
            tracing::error!(range, "a replica cannot be woken: {error}");
            false
        })
    }

    /// Campaigns at once, if nobody leads.
    pub(super) fn campaign(&mut self, now: Millis, range: RangeId) {
        let in_grace = self.liveness.is_in_grace(now);
        let Some(group) = self.groups.get_mut(&range).filter(|_| self.stalled.is_none()) else { return };
        if group.is_drowsy() {
            // Its lease is given up already; another term brings another.
            let term = group.term();
            group.raft.raft.become_follower(term, 0);
            (group.drowsy, group.revoked) = (false, None);
            self.dirty.insert(range);
        }
        let alone = group.is_sole_voter();
        let able = group.is_voter() && !group.state.incomplete && group.state.descriptor.is_some();
        let lately = group.campaigned_at.is_some_and(|at| now.saturating_sub(at) < CAMPAIGN_MS);
        if !able || lately || group.removed || group.is_leader() || (in_grace && !alone) {
            return;
        }
        group.campaigned_at = Some(now);
        match group.guard.filter(|_| !alone && group.is_guarded(&self.liveness, now)) {
            Some(guard) => {
                // It may sleep, without having been heard to say so.
                let query = LeaderQuery { range_id: range, term: guard.term };
                self.send(guard.leader, 0, Payload::LeaderQuery(query));
            }
            None => {
                group.reset_election();
                // It does not, where a change of members is not applied yet; then ticks will try again.
                let _ = group.raft.campaign();
                self.dirty.insert(range);
            }
        }
    }

    /// A leader that nobody uses goes to sleep, in two steps: its driver must have heard that the lease is
    /// over before anybody else can.
    pub(super) fn leader_sleeps(&mut self, now: Millis, range: RangeId) {
        let Some(group) = self.groups.get_mut(&range) else { return };
        if group.is_drowsy() {
            if group.holding.is_none() && is_still(group, now) {
                self.tell_asleep(range);
                self.drop_group(range);
            }
            return;
        }
        let term = group.term();
        let has_lease = group.state.lease.term == term && group.state.lease.holder == self.config.node;
        let unsettled = group.idle_ticks <= QUIET_TICKS
            || group.revoked == Some(term)
            || !has_lease
            || group.state.members.is_joint()
            || group.raft.raft.has_pending_conf();
        if unsettled || !group.idle.may_go(now) || !is_still(group, now) {
            return;
        }
        if self.faults.planted(Bug::LeaseKeptAsleep) {
            group.idle.used(now);
            self.tell_asleep(range);
            return;
        }
        group.drowsy = true;
        (group.revoked, group.revoked_ticks) = (Some(term), 0);
        // It tells how far the log is committed, so that the others have all of it applied.
        group.raft.ping();
        self.dirty.insert(range);
    }

    fn tell_asleep(&mut self, range: RangeId) {
        let Some(group) = self.groups.get(&range) else { return };
        let (term, truncated) = (group.term(), group.state.truncated);
        let answer = LeaderAnswer { range_id: range, term, asleep: true, truncated };
        for member in others(&group.state.members, self.config.node).collect::<Vec<NodeId>>() {
            self.send(member, 0, Payload::LeaderAnswer(answer));
        }
    }

    /// A replica that does not lead, is bound by no promise and wanted by nobody leaves memory. True if it did.
    pub(super) fn follower_sleeps(&mut self, now: Millis, range: RangeId) -> bool {
        let Some(group) = self.groups.get(&range) else { return false };
        let bound = !group.is_sole_voter() && group.is_guarded(&self.liveness, now);
        let forgets = self.faults.planted(Bug::GuardForgottenAsleep);
        let goes = group.idle.may_go(now) && is_still(group, now) && (!bound || forgets);
        if goes {
            self.drop_group(range);
        }
        goes
    }

    fn drop_group(&mut self, range: RangeId) {
        self.groups.remove(&range);
        self.dirty.remove(&range);
        self.events.push(Event::Slept { range });
        tracing::debug!(range, "the replica sleeps");
    }

    /// The leader of a term says that its replica sleeps.
    pub(super) fn leader_is_asleep(&mut self, now: Millis, from: NodeId, answer: LeaderAnswer) {
        let awake = self.groups.get_mut(&answer.range_id);
        let Some(group) = awake.filter(|_| self.stalled.is_none()) else { return };
        let raft = &mut group.raft.raft;
        if raft.state == StateRole::Follower && raft.leader_id == from && raft.term == answer.term {
            raft.become_follower(answer.term, 0);
            self.dirty.insert(answer.range_id);
        }
        if group.state.applied == group.raft.raft.raft_log.last_index() {
            group.idle.dismissed();
            let applied = group.state.applied;
            self.cut(answer.range_id, answer.truncated.min(applied));
        } else {
            // Only a leader can tell whether the rest is committed.
            group.idle.wanted(now);
        }
        let group = self.groups.get_mut(&answer.range_id);
        if let Some(group) = group.filter(|group| group.idle.is_used(now)) {
            group.campaigned_at = None;
            self.campaign(now, answer.range_id);
        }
    }
}

/// Whether everything that would be lost by leaving memory is on disk, and nothing is under way.
fn is_still(group: &Group, now: Millis) -> bool {
    !group.raft.has_ready()
        && !group.state_changed
        && !group.removed
        && group.state.descriptor.is_some()
        && group.pending.is_empty()
        && group.transfers.is_empty()
        && group.dismissed.is_empty()
        && group.incoming.is_none()
        && group.raft.snap().is_none()
        && !group.receiver.is_some_and(|receiver| receiver.is_active(now))
}
