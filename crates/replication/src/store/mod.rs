//! The store: all replicas of one node, and the way of messages and commands through them.
//!
//! * `receive`: what arrives from peers.
//! * `tick`: what time brings: heartbeats, elections, leases, truncation.
//! * `persist`: one batch and one sync for all groups, and applying.
//! * `members`: changes of members and of leaders.
//! * `change`: ranges that come to be, and ranges that are destroyed.
//! * `merge`: ranges that absorb their neighbours.
//! * `sleep`: groups that leave memory and come back.
//! * `local`: which replicas there are, awake or not.

mod change;
mod local;
mod members;
mod merge;
mod persist;
mod receive;
mod sleep;
mod tick;

pub use members::MemberChange;

use crate::Millis;
use crate::command::{Command, Lease, Origin, RangeChange};
use crate::config::StoreConfig;
use crate::error::{ReplicationError, ReplicationResult};
use crate::faults::{Bug, Faults};
use crate::group::{Group, Pending};
use crate::index::Index;
use crate::lease::LeaseView;
use crate::liveness::{Liveness, MAX_NOTE_BYTES};
use crate::logger::logger;
use crate::message::{App, Envelope, Members, NodeId, Payload, RaftMessage, RangeId};
use crate::state::{self, FORMAT, HardState, RangeDescriptor, RangeState};
use bytes::Bytes;
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
    /// Ranges that come to be with it, and what becomes of this one. Another node may serve the keys that are
    /// given up before this one has applied the command. So from before it is proposed until its fate is known
    /// the proposer evaluates nothing in these keys, not even a read, and has nothing under way there.
    pub change: Option<RangeChange>,
    /// No later command writes at or below this; [`Timestamp::MIN`] says nothing. It lies below the ceiling of the
    /// lease, so that the next holder keeps to it.
    pub closed: Timestamp,
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
        /// The entry that made them so.
        index: u64,
    },
    /// This node has the first replica of a range that came to be: on disk, and asleep.
    Created {
        /// The new range.
        range: RangeId,
        /// Its keys.
        descriptor: RangeDescriptor,
    },
    /// The descriptor of a range is another.
    DescriptorChanged {
        /// The range.
        range: RangeId,
        /// What it is now.
        descriptor: RangeDescriptor,
    },
    /// A range serves nothing any more, because its left neighbour is about to absorb it. That is durable here.
    Frozen {
        /// The range.
        range: RangeId,
    },
    /// A range serves again: the merge did not come about.
    Thawed {
        /// The range.
        range: RangeId,
    },
    /// A range has the keys and contents of its right neighbour, which is no more. The event that its descriptor
    /// changed follows.
    Absorbed {
        /// The range.
        range: RangeId,
        /// The neighbour.
        right: RangeId,
        /// The largest timestamp that was served there.
        served: Timestamp,
    },
    /// A group nobody used has left memory. If this node held its lease, [`Event::LeaseLost`] came before.
    Slept {
        /// The range.
        range: RangeId,
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
    /// The replicas that are awake, and empty ones.
    groups: BTreeMap<RangeId, Group>,
    /// All replicas, awake or not, but for empty ones.
    index: Index,
    /// The last time anybody told.
    clock: Millis,
    /// Goes with every heartbeat.
    note: Bytes,
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
    /// Empty replicas in memory that have a first replica on disk from now on.
    reborn: Vec<RangeId>,
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
    let members = Members { voters: voters.to_vec(), ..Members::default() };
    let range = descriptor.range_id;
    state::put_state(batch, range, &first_state(descriptor.clone(), members, floor));
    state::put_hard_state(batch, range, first_hard_state(HardState::default()));
}

fn first_state(descriptor: RangeDescriptor, members: Members, floor: Timestamp) -> RangeState {
    RangeState {
        format: FORMAT,
        descriptor: Some(descriptor),
        applied: FIRST_INDEX,
        applied_term: FIRST_TERM,
        truncated: FIRST_INDEX,
        truncated_term: FIRST_TERM,
        members,
        lease: Lease { ceiling: floor, ..Lease::default() },
        incomplete: false,
        arriving: None,
        whole_at: FIRST_INDEX,
        frozen: None,
    }
}

/// The hard state of a first replica on a node that may have voted in the range before.
fn first_hard_state(known: HardState) -> HardState {
    let before = HardState { commit: FIRST_INDEX, ..known };
    if known.term >= FIRST_TERM { before } else { HardState { term: FIRST_TERM, vote: 0, ..before } }
}

impl<F: Faults> Store<F> {
    /// Opens the replicas of a node. They are asleep, whatever they were before.
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
            index: Index::default(),
            clock: now,
            note: Bytes::new(),
            dirty: BTreeSet::new(),
            outbox: Vec::new(),
            events: Vec::new(),
            next_transfer: 1,
            ticks: 0,
            stalled: None,
            housekeeping: WriteBatch::new(),
            reborn: Vec::new(),
        };
        for range in state::ranges(&*store.engine)? {
            let Some(state) = state::load_state(&*store.engine, range)? else { continue };
            store.liveness.set_peers(others(&state.members, store.config.node));
            store.index.set(range, &state);
            if state.descriptor.is_none() {
                // It goes unless a leader still wants it.
                store.load(now, range)?;
            }
        }
        Ok(store)
    }

    fn add_group(&mut self, now: Millis, range: RangeId, state: RangeState) -> ReplicationResult<()> {
        self.liveness.set_peers(others(&state.members, self.config.node));
        let (engine, config) = (&self.engine, &self.config);
        let mut group = Group::load(engine, config, range, state, &mut self.rng, &self.logger, now)?;
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

    /// Whether there is no other node to hear from.
    pub fn is_alone(&self) -> bool {
        self.liveness.is_alone()
    }

    /// Whether nothing happens in any group that is awake.
    pub fn is_quiet(&self) -> bool {
        self.groups.values().all(|group| group.idle_ticks > crate::config::QUIET_TICKS)
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

    /// Distinguishes this process from those of the node before it.
    pub fn epoch(&self) -> u64 {
        self.config.epoch
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
        self.clock = now;
        let range = proposal.range;
        let sequence = self.held_sequence(range, now)?;
        if sequence != proposal.lease_sequence && !self.faults.planted(Bug::LeaseNotChecked) {
            return Err(ReplicationError::LeaseChanged);
        }
        if let Some(change) = &proposal.change {
            self.check_change(range, change)?;
        }
        let command = Command {
            origin: Some(Origin { node: self.config.node, epoch: self.config.epoch, id: proposal.id }),
            lease_sequence: proposal.lease_sequence,
            batch: proposal.batch.encode(),
            lease: None,
            change: proposal.change,
            closed: (proposal.closed > Timestamp::MIN).then_some(proposal.closed),
        };
        self.propose_command(range, &command)?;
        if let Some(group) = self.groups.get_mut(&range) {
            group.idle.used(now);
            let pending =
                Pending { lease_sequence: proposal.lease_sequence, change: command.change.map(Box::new) };
            group.pending.insert(proposal.id, pending);
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
        let Some(group) = self.groups.get(&range) else {
            let asleep = self.index.contains(range);
            let elsewhere = ReplicationError::NotLeader { range, leader: None };
            return Err(if asleep { elsewhere } else { ReplicationError::NoReplica(range) });
        };
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

    // Sending.

    /// Sends another node something that means nothing to this crate: [`Store::step`] ignores it, so the
    /// driver looks for [`Payload::App`] first. It may be lost.
    pub fn send_app(&mut self, to: NodeId, bytes: Bytes) {
        self.send(to, 0, Payload::App(App { bytes }));
    }

    /// What goes with every heartbeat from now on. Notes of more than [`MAX_NOTE_BYTES`] are dropped.
    pub fn set_note(&mut self, note: Bytes) {
        if note.len() <= MAX_NOTE_BYTES {
            self.note = note;
        } else {
            tracing::warn!(bytes = note.len(), "a note is too long to go with heartbeats");
        }
    }

    /// The last note heard of each peer.
    pub fn notes(&self) -> impl Iterator<Item = (NodeId, &Bytes)> {
        self.liveness.notes()
    }

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
                    let mut wire = RaftMessage::from_raft(range, &message);
                    wire.wanted = self.groups.get(&range).is_some_and(|group| group.idle.is_used(now));
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
