//! What time brings.

use super::Store;
use crate::Millis;
use crate::command::{Command, Lease};
use crate::config::{HEARTBEAT_TICKS, QUIET_TICKS};
use crate::faults::{Bug, Faults};
use crate::group::Group;
use crate::message::{Heartbeat, LeaderQuery, NotMember, Payload, RangeId};
use crate::snapshot::Progress;
use raft::{SnapshotStatus, StateRole};

/// Ticks after which a leader that gave up serving, and still leads, steps down.
const HANDOVER_TICKS: usize = 10;

/// Entries, and bytes of them, that may stay in the log of a group that sleeps: it is to wake fast. If a member
/// that is not there needs more, more stay.
const ASLEEP_KEEP: u64 = 32;
const ASLEEP_KEEP_BYTES: usize = 64 << 10;

/// Ticks after which a replica that never got contents is removed.
const ORPHAN_TICKS: u32 = 50;

impl<F: Faults> Store<F> {
    /// Lets time pass. To be called every [`crate::config::TICK_MS`].
    pub fn tick(&mut self, now: Millis) {
        self.clock = now;
        self.ticks += 1;
        for peer in self.liveness.due(now) {
            self.send(peer, 0, Payload::Heartbeat(Heartbeat { sent_at: now, note: self.note.clone() }));
        }
        if self.stalled.is_some() {
            return;
        }
        let ranges: Vec<RangeId> = self.groups.keys().copied().collect();
        for range in ranges {
            let leads = self.groups.get(&range).is_some_and(Group::is_leader);
            if leads {
                self.tick_leader(now, range)
            } else {
                self.tick_follower(now, range)
            }
            self.truncate(now, range);
        }
    }

    fn tick_leader(&mut self, now: Millis, range: RangeId) {
        self.propose_lease(range);
        self.tick_transfers(now, range);
        let Some(group) = self.groups.get_mut(&range) else { return };
        group.forget_old_confirmations();
        if group.revoked == Some(group.term()) {
            group.revoked_ticks += 1;
            if group.revoked_ticks > HANDOVER_TICKS {
                // The one it was handed to has not taken over. A new term brings a new lease.
                let term = group.term();
                group.raft.raft.abort_leader_transfer();
                group.raft.raft.become_follower(term, 0);
                group.drowsy = false;
                self.dirty.insert(range);
                return;
            }
        }
        let liveness = &self.liveness;
        let last = group.raft.raft.raft_log.last_index();
        let settled = group.raft.raft.raft_log.committed == last
            && group.state.applied == last
            && group.transfers.is_empty()
            && group.raft.raft.prs().iter().all(|(node, progress)| {
                *node == self.config.node
                    || !liveness.is_live(now, *node)
                    || (progress.matched == last && group.is_confirmed(liveness, *node))
            });
        group.idle_ticks = if settled { group.idle_ticks.saturating_add(1) } else { 0 };
        if group.idle_ticks <= QUIET_TICKS && self.ticks.is_multiple_of(HEARTBEAT_TICKS as u64) {
            group.raft.ping();
            self.dirty.insert(range);
            let index = group.state.applied;
            for node in group.dismissed.clone() {
                self.send(node, 0, Payload::NotMember(NotMember { range_id: range, index }));
            }
        } else if group.idle_ticks > QUIET_TICKS {
            group.dismissed.clear();
        }
        self.leader_sleeps(now, range);
    }

    /// Asks for the lease once everything of earlier terms is applied: its number then is the next one.
    pub(super) fn propose_lease(&mut self, range: RangeId) {
        let Some(group) = self.groups.get_mut(&range) else { return };
        let term = group.term();
        let has_it = group.state.lease.term == term;
        let may = group.is_leader()
            && group.state.applied_term == term
            && !has_it
            && group.revoked != Some(term)
            && group.lease_proposed != term;
        if !may {
            return;
        }
        let sequence = group.state.lease.sequence + 1;
        let lease = Lease { sequence, holder: self.config.node, ..Lease::default() };
        if self.propose_command(range, &Command { lease: Some(lease), ..Command::default() }).is_ok()
            && let Some(group) = self.groups.get_mut(&range)
        {
            group.lease_proposed = term;
        }
    }

    fn tick_follower(&mut self, now: Millis, range: RangeId) {
        let Some(group) = self.groups.get_mut(&range) else { return };
        // What it began as leader is the next leader's business.
        group.dismissed.clear();
        group.transfers.clear();
        if group.state.descriptor.is_none() {
            group.orphan_ticks += 1;
            // It was made for a message that came late, or for a leader that has gone; the next one makes another.
            if group.orphan_ticks > ORPHAN_TICKS {
                match group.guard.filter(|_| group.is_guarded(&self.liveness, now)) {
                    Some(guard) => {
                        group.orphan_ticks = 0;
                        let query = LeaderQuery { range_id: range, term: guard.term };
                        self.send(guard.leader, 0, Payload::LeaderQuery(query));
                    }
                    None => {
                        group.removed = true;
                        self.dirty.insert(range);
                    }
                }
            }
            return;
        }
        let alone = group.is_sole_voter();
        if !alone && group.is_guarded(&self.liveness, now) {
            group.reset_election();
            let asks = group.idle.asks(now);
            if self.faults.planted(Bug::GuardForgottenAsleep) {
                self.follower_sleeps(now, range);
                return;
            }
            group.idle.wanted(now);
            if (group.raft.raft.leader_id == 0 || asks)
                && let Some(guard) = group.guard
            {
                let query = LeaderQuery { range_id: range, term: guard.term };
                self.send(guard.leader, 0, Payload::LeaderQuery(query));
            }
            return;
        }
        if self.follower_sleeps(now, range) {
            return;
        }
        let Some(group) = self.groups.get_mut(&range).filter(|group| group.idle.is_wanted(now)) else {
            return;
        };
        let campaigns = group.is_voter() && !group.state.incomplete && group.state.descriptor.is_some();
        if !alone && self.liveness.is_in_grace(now) {
            return;
        }
        if group.election_tick(&mut self.rng) {
            // Without a leader for so long: perhaps this node was removed and did not hear of it.
            let query = LeaderQuery { range_id: range, term: group.term() };
            for member in super::others(&group.state.members, self.config.node).collect::<Vec<_>>() {
                self.send(member, 0, Payload::LeaderQuery(query));
            }
            let Some(group) = self.groups.get_mut(&range).filter(|_| campaigns) else { return };
            let raft = &mut group.raft;
            if raft.raft.state != StateRole::Leader && raft.campaign().is_ok() {
                self.dirty.insert(range);
            }
        }
    }

    fn tick_transfers(&mut self, now: Millis, range: RangeId) {
        let Some(group) = self.groups.get_mut(&range) else { return };
        let mut again = Vec::new();
        let mut failed = Vec::new();
        for (node, transfer) in &mut group.transfers {
            match transfer.tick(now) {
                Progress::Send => again.push((*node, transfer.envelope(now))),
                Progress::Failed => failed.push(*node),
                Progress::Wait | Progress::Finished => {}
            }
        }
        for node in failed {
            tracing::warn!(range, node, "a snapshot was not taken and is given up");
            group.transfers.remove(&node);
            group.raft.report_snapshot(node, SnapshotStatus::Failure);
            self.dirty.insert(range);
        }
        for (node, envelope) in again {
            if let Some(payload) = envelope.payload {
                self.send(node, 0, payload);
            }
        }
    }

    /// Removes the part of a log that nobody is going to ask for.
    fn truncate(&mut self, now: Millis, range: RangeId) {
        let Some(group) = self.groups.get_mut(&range) else { return };
        let log = group.raft.store();
        let (mut keep, mut keep_bytes) = (self.config.log_keep.max(1), self.config.log_keep_bytes);
        let near_enough = keep.saturating_mul(4);
        let resting = group.is_drowsy();
        if resting {
            (keep, keep_bytes) = (keep.min(ASLEEP_KEEP), keep_bytes.min(ASLEEP_KEEP_BYTES));
        }
        let (truncated, large) = (log.truncated(), log.bytes() > keep_bytes);
        let applied = group.state.applied;
        if applied.saturating_sub(truncated) < keep.saturating_mul(2) && !(large && applied > truncated) {
            return;
        }
        if group.state.incomplete || group.raft.snap().is_some() {
            return;
        }
        let mut target = if self.faults.planted(Bug::TruncatedBeyondApplied) { log.last() } else { applied };
        if group.is_leader() {
            for (node, progress) in group.raft.raft.prs().iter() {
                // Who is far behind, or not there, gets a snapshot.
                let near = applied.saturating_sub(progress.matched) <= near_enough && (resting || !large);
                let waits = resting || self.liveness.is_live(now, *node);
                if *node != self.config.node && near && waits {
                    target = target.min(progress.matched);
                }
            }
        } else if !large {
            target = target.saturating_sub(keep);
        }
        for transfer in group.transfers.values() {
            target = target.min(transfer.index());
        }
        self.cut(range, target);
    }

    /// Removes the entries up to `target` from a log.
    pub(super) fn cut(&mut self, range: RangeId, target: u64) {
        let Some(group) = self.groups.get_mut(&range) else { return };
        if target <= group.raft.store().truncated() || group.state.incomplete || group.raft.snap().is_some() {
            return;
        }
        match group.raft.mut_store().truncate(target, &mut self.housekeeping) {
            Ok(term) => {
                (group.state.truncated, group.state.truncated_term) = (target, term);
                group.state_changed = true;
                self.dirty.insert(range);
            }
            Err(error) => tracing::error!(range, "the log cannot be truncated: {error}"),
        }
    }
}
