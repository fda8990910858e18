//! The store: all replicas of one node, and the way of messages and commands through them.
//!
//! * `receive`: what arrives from peers.
//! * `tick`: what time brings: heartbeats, elections, leases, truncation.
//! * `persist`: one batch and one sync for all groups, and applying.
//! * `members`: changes of members and of leaders.

mod members;
mod persist;
mod receive;
mod tick;

pub use members::MemberChange;

use crate::Millis;
use crate::command::{Command, Lease, Origin};
use crate::config::StoreConfig;
use crate::error::{ReplicationError, ReplicationResult};
use crate::faults::{Bug, Faults};
use crate::group::Group;
use crate::lease::LeaseView;
use crate::liveness::Liveness;
use crate::logger::logger;
use crate::message::{Envelope, Members, NodeId, Payload, RaftMessage, RangeId};
use crate::state::{self, FORMAT, HardState, RangeDescriptor, RangeState};
use kv_api::Timestamp;
use persist::Prepared;
use raft::eraftpb::{Message as RawMessage, MessageType};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use storage::{Engine, StorageError, WriteBatch};

/// Index and term a new range begins with. They are above zero so that a replica without the first
/// contents can only be brought up by a snapshot.
const FIRST_INDEX: u64 = 10;
const FIRST_TERM: u64 = 5;

/// Most messages kept for the driver to carry away; more are dropped, which Raft puts up with.
const MAX_OUTBOX: usize = 1 << 16;

/// A command to be replicated.
#[derive(Debug)]
pub struct Proposal {
    /// Names it among the proposals of this process.
    pub id: u64,
    /// Its range.
    pub range: RangeId,
    /// The lease it was evaluated under.
    pub lease_sequence: u64,
    /// Its effects.
    pub batch: WriteBatch,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A proposal is committed and its effects can be read.
    Applied {
        /// The range.
        range: RangeId,
        /// The proposal.
        id: u64,
        /// Where in the log.
        index: u64,
    },
    /// A proposal has no effect and never will.
    Rejected {
        /// The range.
        range: RangeId,
        /// The proposal.
        id: u64,
    },
    /// This node holds the lease of a range. It serves nothing before the ceiling is raised.
    LeaseAcquired {
        /// The range.
        range: RangeId,
        /// The lease.
        sequence: u64,
        /// Nothing is served at or above this.
        ceiling: Timestamp,
        /// Nothing is served below this.
        floor: Timestamp,
    },
    /// The lease told of before is no longer held.
    LeaseLost {
        /// The range.
        range: RangeId,
    },
    /// The lease that this node holds has a higher ceiling.
    CeilingRaised {
        /// The range.
        range: RangeId,
        /// The ceiling.
        ceiling: Timestamp,
    },
    /// The members of a range are others.
    MembersChanged {
        /// The range.
        range: RangeId,
        /// Who they are.
        members: Members,
    },
    /// This node no longer has a replica of a range.
    Removed {
        /// The range.
        range: RangeId,
    },
}

/// How a group is doing, as this node sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupStatus {
    /// Who leads it.
    pub leader: Option<NodeId>,
    /// The present term.
    pub term: u64,
    /// Whether that is this node.
    pub is_leader: bool,
    /// The last entry applied here.
    pub applied: u64,
    /// The last entry known to be committed.
    pub committed: u64,
    /// The last entry of the log.
    pub last: u64,
    /// The last entry that was removed from the front of the log.
    pub truncated: u64,
    /// Who belongs to it.
    pub members: Members,
    /// The lease in force, as far as it is applied here.
    pub lease: Lease,
    /// Whether a snapshot has begun to arrive and not ended.
    pub incomplete: bool,
    /// Whether nothing is sent because nothing happens.
    pub quiet: bool,
    /// As leader: the other members and the last entry each is known to have.
    pub behind: Vec<(NodeId, u64)>,
}

/// All replicas of one node.
pub struct Store<F: Faults> {
    engine: Arc<dyn Engine>,
    config: StoreConfig,
    faults: F,
    rng: StdRng,
    logger: slog::Logger,
    liveness: Liveness,
    groups: BTreeMap<RangeId, Group>,
    /// Groups that may have something to persist or send.
    dirty: BTreeSet<RangeId>,
    outbox: Vec<Envelope>,
    events: Vec<Event>,
    next_transfer: u64,
    ticks: u64,
    /// A round that could not be written for want of space.
    stalled: Option<Prepared>,
    /// Writes that go with the next round.
    housekeeping: WriteBatch,
}

/// Writes the first replica of a new range into a store. To be called for each founding node.
///
/// # Errors
/// I/O errors; if there is a replica already.
pub fn bootstrap(
    engine: &dyn Engine,
    descriptor: &RangeDescriptor,
    voters: &[NodeId],
) -> ReplicationResult<()> {
    if state::load_state(engine, descriptor.range_id)?.is_some() {
        return Err(ReplicationError::Internal(format!("range {} exists already", descriptor.range_id)));
    }
    let mut batch = WriteBatch::new();
    put_first_replica(&mut batch, descriptor, voters, Timestamp::MIN);
    Ok(engine.write(&batch, true)?)
}

/// Adds the first replica of a range to a batch. The range may have contents, and timestamps below
/// `floor` may have been served in it.
pub fn put_first_replica(
    batch: &mut WriteBatch,
    descriptor: &RangeDescriptor,
    voters: &[NodeId],
    floor: Timestamp,
) {
    let range = descriptor.range_id;
    let state = RangeState {
        format: FORMAT,
        descriptor: Some(descriptor.clone()),
        applied: FIRST_INDEX,
        applied_term: FIRST_TERM,
        truncated: FIRST_INDEX,
        truncated_term: FIRST_TERM,
        members: Members { voters: voters.to_vec(), ..Members::default() },
        lease: Lease { ceiling: floor, ..Lease::default() },
        incomplete: false,
    };
    state::put_state(batch, range, &state);
    state::put_hard_state(batch, range, HardState { term: FIRST_TERM, vote: 0, commit: FIRST_INDEX });
}

impl<F: Faults> Store<F> {
    /// Opens the replicas of a node.
    ///
    /// # Errors
    /// I/O errors, damage, replicas of another format.
    pub fn open(
        engine: Arc<dyn Engine>,
        config: StoreConfig,
        faults: F,
        now: Millis,
    ) -> ReplicationResult<Self> {
        let liveness = Liveness::new(now, &faults);
        let rng = StdRng::seed_from_u64(config.seed);
        let mut store = Store {
            engine,
            config,
            faults,
            rng,
            logger: logger(),
            liveness,
            groups: BTreeMap::new(),
            dirty: BTreeSet::new(),
            outbox: Vec::new(),
            events: Vec::new(),
            next_transfer: 1,
            ticks: 0,
            stalled: None,
            housekeeping: WriteBatch::new(),
        };
        for range in state::ranges(&*store.engine)? {
            if let Some(mut state) = state::load_state(&*store.engine, range)? {
                if store.faults.planted(Bug::IncompleteForgotten) {
                    state.incomplete = false;
                }
                store.add_group(range, state)?;
            }
        }
        Ok(store)
    }

    fn add_group(&mut self, range: RangeId, state: RangeState) -> ReplicationResult<()> {
        self.liveness.set_peers(others(&state.members, self.config.node));
        let mut group = Group::load(&self.engine, &self.config, range, state, &mut self.rng, &self.logger)?;
        if group.is_sole_voter() && !group.state.incomplete {
            // There is nobody to wait for.
            group.raft.campaign()?;
        }
        self.groups.insert(range, group);
        self.dirty.insert(range);
        Ok(())
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.config.node
    }

    /// The ranges with a replica here.
    pub fn ranges(&self) -> Vec<RangeId> {
        self.groups.keys().copied().collect()
    }

    /// Whether writes wait for space on the disk.
    pub fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }

    /// Asks further nodes for signs of life, although no group is shared with them.
    pub fn watch_nodes(&mut self, nodes: impl Iterator<Item = NodeId>) {
        let node = self.config.node;
        self.liveness.set_peers(nodes.filter(|other| *other != node));
    }

    /// How this node sees the others.
    pub fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    /// What has happened to the outside since the last call: messages to send.
    pub fn take_messages(&mut self) -> Vec<Envelope> {
        std::mem::take(&mut self.outbox)
    }

    /// What this node knows of the lease of a range.
    pub fn lease(&self, range: RangeId, now: Millis) -> LeaseView {
        let Some(group) = self.groups.get(&range) else { return LeaseView::Elsewhere { leader: None } };
        match self.held_until(group) {
            Some(until) if now < until => {
                let lease = &group.state.lease;
                LeaseView::Held { sequence: lease.sequence, ceiling: lease.ceiling, until }
            }
            _ => LeaseView::Elsewhere { leader: self.other_leader(group) },
        }
    }

    fn other_leader(&self, group: &Group) -> Option<NodeId> {
        let leader = group.raft.raft.leader_id;
        (leader != 0 && leader != self.config.node).then_some(leader)
    }

    /// Until when this node holds the lease of a group, if it is its lease at all.
    fn held_until(&self, group: &Group) -> Option<Millis> {
        let lease = &group.state.lease;
        let applied = lease.holder == self.config.node && lease.term == group.term();
        let early = self.faults.planted(Bug::LeaseBeforeApplied);
        let revoked =
            group.revoked == Some(group.term()) && !self.faults.planted(Bug::ServesWhileTransferring);
        if !group.is_leader() || !(applied || early) || revoked {
            return None;
        }
        let ignore = self.faults.planted(Bug::UnknownLeaderSupported);
        Some(group.supported_until(&self.liveness, ignore))
    }

    /// Replicates a command.
    ///
    /// # Errors
    /// Then it certainly has no effect, now or later.
    pub fn propose(&mut self, now: Millis, proposal: Proposal) -> ReplicationResult<()> {
        let range = proposal.range;
        let sequence = self.held_sequence(range, now)?;
        if sequence != proposal.lease_sequence && !self.faults.planted(Bug::LeaseNotChecked) {
            return Err(ReplicationError::LeaseChanged);
        }
        let command = Command {
            origin: Some(Origin { node: self.config.node, epoch: self.config.epoch, id: proposal.id }),
            lease_sequence: proposal.lease_sequence,
            batch: proposal.batch.encode(),
            lease: None,
        };
        self.propose_command(range, &command)?;
        if let Some(group) = self.groups.get_mut(&range) {
            group.pending.insert(proposal.id, proposal.lease_sequence);
        }
        Ok(())
    }

    /// Raises the ceiling of the lease that this node holds. [`Event::CeilingRaised`] says when it is.
    ///
    /// # Errors
    /// If it does not hold the lease.
    pub fn extend_ceiling(
        &mut self,
        now: Millis,
        range: RangeId,
        ceiling: Timestamp,
    ) -> ReplicationResult<()> {
        let sequence = self.held_sequence(range, now)?;
        let lease = Lease { sequence, holder: self.config.node, ceiling, ..Lease::default() };
        self.propose_command(range, &Command { lease: Some(lease), ..Command::default() })
    }

    fn held_sequence(&self, range: RangeId, now: Millis) -> ReplicationResult<u64> {
        if self.stalled.is_some() {
            return Err(StorageError::DiskFull("the replicas wait for space".to_owned()).into());
        }
        let group = self.groups.get(&range).ok_or(ReplicationError::NoReplica(range))?;
        match self.lease(range, now) {
            LeaseView::Held { sequence, .. } => Ok(sequence),
            LeaseView::Elsewhere { .. } => {
                Err(ReplicationError::NotLeader { range, leader: self.other_leader(group) })
            }
        }
    }

    fn propose_command(&mut self, range: RangeId, command: &Command) -> ReplicationResult<()> {
        let group = self.groups.get_mut(&range).ok_or(ReplicationError::NoReplica(range))?;
        match group.raft.propose(Vec::new(), command.to_entry()) {
            Ok(()) => {
                group.idle_ticks = 0;
                self.dirty.insert(range);
                Ok(())
            }
            Err(raft::Error::ProposalDropped) => Err(ReplicationError::Overloaded(range)),
            Err(error) => Err(error.into()),
        }
    }

    /// How a group is doing.
    pub fn status(&self, range: RangeId) -> Option<GroupStatus> {
        let group = self.groups.get(&range)?;
        let raft = &group.raft.raft;
        let is_leader = group.is_leader();
        let progress = raft.prs().iter().filter(|(node, _)| **node != self.config.node);
        let mut behind: Vec<_> = if is_leader {
            progress.map(|(node, progress)| (*node, progress.matched)).collect()
        } else {
            Vec::new()
        };
        behind.sort_unstable();
        Some(GroupStatus {
            leader: (raft.leader_id != 0).then_some(raft.leader_id),
            term: raft.term,
            is_leader,
            applied: group.state.applied,
            committed: raft.raft_log.committed,
            last: raft.raft_log.last_index(),
            truncated: group.raft.store().truncated(),
            members: group.state.members.clone(),
            lease: group.state.lease,
            incomplete: group.state.incomplete,
            quiet: group.idle_ticks > crate::config::QUIET_TICKS,
            behind,
        })
    }

    /// The keys of a range.
    pub fn descriptor(&self, range: RangeId) -> Option<&RangeDescriptor> {
        self.groups.get(&range)?.state.descriptor.as_ref()
    }

    // Sending.

    fn send(&mut self, to: NodeId, support: u64, payload: Payload) {
        if self.outbox.len() >= MAX_OUTBOX {
            return;
        }
        let (from, from_epoch) = (self.config.node, self.config.epoch);
        self.outbox.push(Envelope { from, from_epoch, to, support, payload: Some(payload) });
    }

    /// Sends what raft-rs wants sent.
    fn send_raft(&mut self, now: Millis, range: RangeId, messages: Vec<RawMessage>) {
        for message in messages {
            match message.get_msg_type() {
                MessageType::MsgSnapshot => self.begin_transfer(now, range, &message),
                _ => {
                    // The support says: at this very moment I know you for the leader of this term.
                    let support = self.confirmation(now, range, &message);
                    let wire = RaftMessage::from_raft(range, &message);
                    self.send(message.to, support, Payload::Raft(wire));
                }
            }
        }
    }

    fn confirmation(&self, now: Millis, range: RangeId, message: &RawMessage) -> u64 {
        let Some(group) = self.groups.get(&range) else { return 0 };
        let known = group.term() == message.term && group.raft.raft.leader_id == message.to;
        match group.guard {
            Some(guard) if known && guard.leader == message.to && guard.term == message.term => {
                let promise = self.liveness.promise(now, guard.leader, guard.epoch);
                if promise == guard.support { promise } else { 0 }
            }
            _ => 0,
        }
    }
}

fn others(members: &Members, node: NodeId) -> impl Iterator<Item = NodeId> {
    members.all().into_iter().filter(move |member| *member != node)
}
