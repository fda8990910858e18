//! One range's replica on this node, in memory.

use crate::Millis;
use crate::command::RangeChange;
use crate::config::{ELECTION_TICKS, StoreConfig};
use crate::error::ReplicationResult;
use crate::idle::Idle;
use crate::lease::{counted, quorum_until};
use crate::liveness::{Liveness, Support};
use crate::log::Log;
use crate::message::{NodeId, RangeId};
use crate::snapshot::{Receiver, Transfer};
use crate::state::RangeState;
use kv_api::Timestamp;
use raft::{RawNode, SnapshotStatus, StateRole};
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::Engine;

/// The leader a replica knows: it helps elect no other while it supports that leader's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Whom.
    pub leader: NodeId,
    /// Its process.
    pub epoch: u64,
    /// The term it leads in.
    pub term: u64,
    /// Which time it was supported when it was heard ([`crate::liveness`]). Support given again later is for
    /// a leader that has to be heard again.
    pub support: u64,
}

/// A proposal under way.
pub struct Pending {
    /// The lease it rests on.
    pub(crate) lease_sequence: u64,
    /// The ranges that come to be with it.
    pub(crate) change: Option<Box<RangeChange>>,
}

/// A replica.
pub struct Group {
    pub(crate) range: RangeId,
    pub(crate) raft: RawNode<Log>,
    pub(crate) state: RangeState,
    pub(crate) guard: Option<Guard>,
    /// As leader in the present term: the support under which each voter said that it knows the leader.
    pub(crate) confirmed: BTreeMap<NodeId, Support>,
    confirmed_term: u64,
    /// Proposals under way.
    pub(crate) pending: BTreeMap<u64, Pending>,
    /// The term in which a lease was proposed last.
    pub(crate) lease_proposed: u64,
    /// The term in which this node, as leader, gave up serving to hand over.
    pub(crate) revoked: Option<u64>,
    pub(crate) revoked_ticks: usize,
    /// The lease told of with `LeaseAcquired` and not yet with `LeaseLost`.
    pub(crate) holding: Option<u64>,
    pub(crate) transfers: BTreeMap<NodeId, Transfer>,
    pub(crate) receiver: Option<Receiver>,
    /// The state that comes with a snapshot that raft-rs is about to install.
    pub(crate) incoming: Option<RangeState>,
    pub(crate) idle_ticks: u32,
    /// As leader: nodes that were members until lately and may not know that they are not.
    pub(crate) dismissed: Vec<NodeId>,
    /// Ticks since anything was heard, of a replica that has no contents yet.
    pub(crate) orphan_ticks: u32,
    election_ticks: usize,
    election_timeout: usize,
    /// Whether the node is no longer a member and the replica is to be removed.
    pub(crate) removed: bool,
    /// Up to where everything that will ever be written is written, as far as this process has applied it.
    pub(crate) closed: Timestamp,
    pub(crate) idle: Idle,
    /// As leader: whether it has given up its lease and is about to leave memory.
    pub(crate) drowsy: bool,
    /// When it campaigned last because somebody wanted it to.
    pub(crate) campaigned_at: Option<Millis>,
    /// Whether the state on disk is older than the one here.
    pub(crate) state_changed: bool,
}

impl Group {
    /// The replica of a range as it is on disk.
    ///
    /// # Errors
    /// I/O errors and damage.
    pub fn load(
        engine: &Arc<dyn Engine>,
        config: &StoreConfig,
        range: RangeId,
        state: RangeState,
        rng: &mut StdRng,
        logger: &slog::Logger,
        now: Millis,
    ) -> ReplicationResult<Self> {
        let log = Log::load(Arc::clone(engine), range, &state)?;
        let mut raft = RawNode::new(&config.raft(state.applied), log, logger)?;
        raft.set_batch_append(true);
        let mut group = Group {
            range,
            raft,
            state,
            guard: None,
            confirmed: BTreeMap::new(),
            confirmed_term: 0,
            pending: BTreeMap::new(),
            lease_proposed: 0,
            revoked: None,
            revoked_ticks: 0,
            holding: None,
            transfers: BTreeMap::new(),
            receiver: None,
            incoming: None,
            idle_ticks: 0,
            dismissed: Vec::new(),
            orphan_ticks: 0,
            election_ticks: 0,
            election_timeout: ELECTION_TICKS,
            removed: false,
            closed: Timestamp::MIN,
            idle: Idle::new(config.sleep_after_ms, now),
            drowsy: false,
            campaigned_at: None,
            state_changed: false,
        };
        group.draw_timeout(rng);
        Ok(group)
    }

    /// Whether this node leads the group.
    pub fn is_leader(&self) -> bool {
        self.raft.raft.state == StateRole::Leader
    }

    /// The present term.
    pub fn term(&self) -> u64 {
        self.raft.raft.term
    }

    /// Whether this node alone decides.
    pub fn is_sole_voter(&self) -> bool {
        self.state.members.voters == [self.raft.raft.id] && !self.state.members.is_joint()
    }

    /// Whether this node leads and has given up its lease to go to sleep. A leader that was about to may have been
    /// followed by another, and lead again.
    pub fn is_drowsy(&self) -> bool {
        self.drowsy && self.is_leader() && self.revoked == Some(self.term())
    }

    /// Whether the contents are those of one instant.
    pub fn is_whole(&self) -> bool {
        let state = &self.state;
        state.descriptor.is_some() && !state.incomplete && state.applied >= state.whole_at
    }

    /// Whether this node votes.
    pub fn is_voter(&self) -> bool {
        let members = &self.state.members;
        let id = self.raft.raft.id;
        members.voters.contains(&id) || members.voters_outgoing.contains(&id)
    }

    /// Starts the count to the next election anew.
    pub fn reset_election(&mut self) {
        self.election_ticks = 0;
    }

    /// A tick without a leader; true when it is time to campaign.
    pub fn election_tick(&mut self, rng: &mut StdRng) -> bool {
        self.election_ticks += 1;
        if self.election_ticks < self.election_timeout {
            return false;
        }
        self.election_ticks = 0;
        self.draw_timeout(rng);
        true
    }

    fn draw_timeout(&mut self, rng: &mut StdRng) {
        self.election_timeout = rng.random_range(ELECTION_TICKS..=2 * ELECTION_TICKS);
    }

    /// Notes that a member said, in this term, that it knows this node for the leader.
    pub fn confirm(&mut self, from: NodeId, support: Support) {
        self.forget_old_confirmations();
        self.confirmed.insert(from, support);
    }

    /// What was confirmed in earlier terms does not count.
    pub fn forget_old_confirmations(&mut self) {
        if self.confirmed_term != self.term() {
            self.confirmed_term = self.term();
            self.confirmed.clear();
        }
    }

    /// Until when a majority supports this node as leader in the present term.
    pub fn supported_until(&self, liveness: &Liveness, ignore_confirmation: bool) -> Millis {
        let current = self.confirmed_term == self.term();
        quorum_until(self.raft.raft.id, &self.state.members, |node| {
            let given = liveness.support(node);
            if ignore_confirmation {
                return given.map_or(0, |(_, until)| until);
            }
            counted(self.confirmed.get(&node).copied().filter(|_| current), given)
        })
    }

    /// Whether the support of a member would count if it were needed.
    pub fn is_confirmed(&self, liveness: &Liveness, node: NodeId) -> bool {
        let current = self.confirmed_term == self.term();
        let given = liveness.support(node).map(|(support, _)| support);
        current && given.is_some() && self.confirmed.get(&node).copied() == given
    }

    /// Gives up all snapshots under way.
    pub fn stop_transfers(&mut self) {
        for (node, _) in std::mem::take(&mut self.transfers) {
            self.raft.report_snapshot(node, SnapshotStatus::Failure);
        }
    }

    /// Whether another leader must not be helped now.
    pub fn is_guarded(&self, liveness: &Liveness, now: Millis) -> bool {
        self.guard.is_some_and(|guard| {
            guard.support != 0 && liveness.promise(now, guard.leader, guard.epoch) == guard.support
        })
    }
}
