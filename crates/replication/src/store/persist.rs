//! One batch and one sync for all groups, and applying.
//!
//! A round takes from every group what it wants to persist and what it has committed, writes all of it
//! as one batch, and only then lets go of the messages and events that rest on it. If the disk is full
//! the round is kept and tried again by the next call; until then nothing else is taken from the groups.

use super::{Event, Store, others};
use crate::Millis;
use crate::apply::{Verdict, judge};
use crate::change::check;
use crate::command::{Command, Origin, RangeChange};
use crate::error::{ReplicationError, ReplicationResult};
use crate::faults::{Bug, Faults};
use crate::group::Group;
use crate::message::{Envelope, Members, NodeId, RangeId};
use crate::snapshot::clear;
use crate::state::{self, HardState, put_hard_state, put_state};
use crate::store::members::decode_change;
use bytes::Bytes;
use kv_api::Timestamp;
use raft::Ready;
use raft::eraftpb::{Entry, EntryType};
use storage::{StorageError, WriteBatch};

/// Most rounds of one call; what is left waits for the next.
const MAX_ROUNDS: usize = 64;

/// A round on its way to the disk.
pub(super) struct Prepared {
    batch: WriteBatch,
    sync: bool,
    readies: Vec<(RangeId, Ready)>,
    events: Vec<Event>,
}

impl<F: Faults> Store<F> {
    /// Persists and applies what there is, and returns what has come of it. Messages that may be sent are
    /// ready for [`Store::take_messages`].
    ///
    /// # Errors
    /// The engine failed, or damage was found: the store must be opened anew. A full disk is no error; see
    /// [`Store::is_stalled`].
    pub fn process(&mut self, now: Millis) -> ReplicationResult<Vec<Event>> {
        self.process_with(now, |_| {})
    }

    /// The same, and hands the messages that may leave before anything is persisted to `early`: a leader's
    /// followers write while it writes.
    ///
    /// # Errors
    /// As for [`Store::process`].
    pub fn process_with(
        &mut self,
        now: Millis,
        mut early: impl FnMut(&mut Vec<Envelope>),
    ) -> ReplicationResult<Vec<Event>> {
        self.clock = now;
        for _ in 0..MAX_ROUNDS {
            let round = match self.stalled.take() {
                Some(round) => round,
                None => match self.prepare(now)? {
                    Some(round) => round,
                    None => break,
                },
            };
            early(&mut self.outbox);
            if !self.write(now, round)? {
                break;
            }
        }
        self.tell_lost_leases();
        Ok(std::mem::take(&mut self.events))
    }

    /// Whether the next call of [`Store::process`] has something to do.
    pub fn has_work(&self) -> bool {
        let nothing = self.dirty.is_empty() && self.housekeeping.is_empty() && self.events.is_empty();
        self.stalled.is_none() && !nothing
    }

    fn prepare(&mut self, now: Millis) -> ReplicationResult<Option<Prepared>> {
        let mut round = Prepared {
            batch: std::mem::take(&mut self.housekeeping),
            sync: false,
            readies: Vec::new(),
            events: Vec::new(),
        };
        for range in std::mem::take(&mut self.dirty) {
            let Some(group) = self.groups.get_mut(&range) else { continue };
            if group.raft.has_ready() {
                let mut ready = group.raft.ready();
                let messages = ready.take_messages();
                self.take_ready(range, &mut ready, &mut round)?;
                self.send_raft(now, range, messages);
                round.readies.push((range, ready));
            }
            self.put_changed_state(range, &mut round.batch);
            let outstanding = round.readies.last().is_some_and(|(last, _)| *last == range);
            if !outstanding && self.groups.get(&range).is_some_and(|group| group.removed) {
                self.remove(range, &mut round);
            }
        }
        let nothing = round.batch.is_empty() && round.readies.is_empty();
        Ok((!nothing).then_some(round))
    }

    fn take_ready(
        &mut self,
        range: RangeId,
        ready: &mut Ready,
        round: &mut Prepared,
    ) -> ReplicationResult<()> {
        let Some(group) = self.groups.get_mut(&range) else { return Ok(()) };
        if !ready.snapshot().is_empty() {
            let before = group.state.descriptor.clone();
            install(group, ready, &mut round.batch)?;
            self.index.set(range, &group.state);
            let changed = group.state.descriptor.clone().filter(|new| before.as_ref() != Some(new));
            round.events.extend(changed.map(|descriptor| Event::DescriptorChanged { range, descriptor }));
            self.liveness.set_peers(others(&group.state.members, self.config.node));
            round.sync = true;
        }
        if !ready.entries().is_empty() {
            group.raft.mut_store().append(ready.entries(), &mut round.batch)?;
            round.sync = true;
        }
        if let Some(hard_state) = ready.hs() {
            let written = group.raft.store().hard_state();
            let (term, vote, commit) = (hard_state.term, hard_state.vote, hard_state.commit);
            let new = HardState { term, vote, commit, ..written };
            group.raft.mut_store().set_hard_state(new);
            if !self.faults.planted(Bug::VoteNotPersisted) {
                put_hard_state(&mut round.batch, range, new);
                round.sync |= ready.must_sync();
            }
        }
        let committed = ready.take_committed_entries();
        round.sync |= self.apply(range, &committed, &mut round.batch, &mut round.events)?;
        Ok(())
    }

    fn put_changed_state(&mut self, range: RangeId, batch: &mut WriteBatch) {
        if let Some(group) = self.groups.get_mut(&range)
            && std::mem::take(&mut group.state_changed)
        {
            put_state(batch, range, &group.state);
        }
    }

    /// Writes a round and does what rests on it. False if the disk is full.
    fn write(&mut self, now: Millis, round: Prepared) -> ReplicationResult<bool> {
        if !round.batch.is_empty() {
            let sync = round.sync && !self.faults.planted(Bug::NoSync);
            match self.engine.write(&round.batch, sync) {
                Ok(()) => {}
                Err(StorageError::DiskFull(message)) => {
                    tracing::debug!("the disk is full: {message}");
                    self.stalled = Some(round);
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.events.extend(round.events);
        // What became committed by being written, which is everything where there is one replica.
        let mut next =
            Prepared { batch: WriteBatch::new(), sync: false, readies: Vec::new(), events: Vec::new() };
        for (range, mut ready) in round.readies {
            let messages = ready.take_persisted_messages();
            self.send_raft(now, range, messages);
            let Some(group) = self.groups.get_mut(&range) else { continue };
            let mut light = group.raft.advance_append(ready);
            if let Some(commit) = light.commit_index() {
                let hard_state = group.raft.store().hard_state();
                group.raft.mut_store().set_hard_state(HardState { commit, ..hard_state });
            }
            let (messages, committed) = (light.take_messages(), light.take_committed_entries());
            self.send_raft(now, range, messages);
            next.sync |= self.apply(range, &committed, &mut next.batch, &mut next.events)?;
            self.put_changed_state(range, &mut next.batch);
            if let Some(group) = self.groups.get_mut(&range) {
                let applied = group.state.applied;
                group.raft.advance_apply_to(applied);
                group.raft.mut_store().trim(applied);
                if group.raft.has_ready() {
                    self.dirty.insert(range);
                }
                if group.removed {
                    self.remove(range, &mut next);
                }
            }
            self.propose_lease(range);
        }
        if next.batch.is_empty() {
            self.events.append(&mut next.events);
            self.replace_empty()?;
            return Ok(true);
        }
        self.write(now, next)
    }

    /// Removes a replica and the keys of its own descriptor. They are nobody else's, though the replica may not
    /// have heard that it gave some up: until it has, no other is taken that has them.
    fn remove(&mut self, range: RangeId, round: &mut Prepared) {
        let Some(group) = self.groups.remove(&range) else { return };
        for descriptor in [&group.state.descriptor, &group.state.arriving].into_iter().flatten() {
            clear(&mut round.batch, &descriptor.start, &descriptor.end);
        }
        let hard_state = group.raft.store().hard_state();
        let retired = hard_state.retired || group.state.descriptor.is_some();
        state::remove(&mut round.batch, range, HardState { retired, ..hard_state });
        self.index.remove(range);
        if group.is_leader() {
            self.resign(range, group.term(), &group.state.members);
        }
        round.sync = true;
        if group.holding.is_some() {
            round.events.push(Event::LeaseLost { range });
        }
        round.events.push(Event::Removed { range });
        tracing::info!(range, "the replica was removed");
    }

    /// Applies committed entries to a batch. Says whether it is to be synced.
    fn apply(
        &mut self,
        range: RangeId,
        entries: &[Entry],
        batch: &mut WriteBatch,
        events: &mut Vec<Event>,
    ) -> ReplicationResult<bool> {
        let mut sync = false;
        for entry in entries {
            let Some(group) = self.groups.get_mut(&range) else { return Ok(sync) };
            if entry.index <= group.state.applied {
                continue;
            }
            if group.state.incomplete && !self.faults.planted(Bug::AppliedOverSnapshot) {
                let message = format!("range {range} is incomplete and has entries to apply");
                return Err(ReplicationError::Internal(message));
            }
            match entry.get_entry_type() {
                EntryType::EntryNormal if entry.data.is_empty() => {}
                EntryType::EntryNormal => {
                    let damaged = || {
                        let message = format!("entry {} of range {range} holds no command", entry.index);
                        ReplicationError::from(StorageError::corruption(message))
                    };
                    let command = Command::from_entry(&entry.data).ok_or_else(damaged)?;
                    let here = Here { node: self.config.node, epoch: self.config.epoch };
                    let place = events.len();
                    let applied = apply_command(group, entry, command, here, &self.faults, events);
                    if let Some((effects, change)) = applied {
                        if let Some(change) = change {
                            sync |= change.freeze.is_some();
                            // Before the event that the command is applied: who waits for it wants to use them.
                            let mut told = Vec::new();
                            let there = self.apply_change(range, change, batch, &mut told)?;
                            events.splice(place..place, told);
                            if !there {
                                return Ok(sync);
                            }
                        }
                        batch.decode_into(&effects)?;
                    }
                }
                EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => {
                    let change = decode_change(&entry.context).ok_or_else(|| {
                        let message =
                            format!("entry {} of range {range} holds no change of members", entry.index);
                        ReplicationError::from(StorageError::corruption(message))
                    })?;
                    let conf_state = group.raft.apply_conf_change(&change)?;
                    let members = Members::from(&conf_state);
                    if group.is_leader() {
                        // They hear no more of the log, and perhaps never of their dismissal.
                        let gone =
                            group.state.members.all().into_iter().filter(|node| !members.contains(*node));
                        group.dismissed.extend(gone);
                    }
                    group.dismissed.retain(|node| !members.contains(*node));
                    self.liveness.set_peers(others(&members, self.config.node));
                    group.state.members = members.clone();
                    group.removed = !members.contains(self.config.node);
                    group.idle_ticks = 0;
                    events.push(Event::MembersChanged { range, members, index: entry.index });
                }
            }
            let Some(group) = self.groups.get_mut(&range) else { return Ok(sync) };
            (group.state.applied, group.state.applied_term) = (entry.index, entry.term);
            group.state_changed = true;
        }
        let Some(group) = self.groups.get_mut(&range) else { return Ok(sync) };
        group.raft.mut_store().set_applied(group.state.applied, &group.state.members);
        Ok(sync)
    }

    /// Tells of leases that are over although no other is applied here.
    fn tell_lost_leases(&mut self) {
        for (range, group) in &mut self.groups {
            let over = |sequence: u64| {
                !group.raft.raft.state.eq(&raft::StateRole::Leader)
                    || group.state.lease.sequence != sequence
                    || group.state.lease.term != group.raft.raft.term
                    || group.revoked == Some(group.raft.raft.term)
            };
            if group.holding.is_some_and(over) {
                group.holding = None;
                self.events.push(Event::LeaseLost { range: *range });
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Here {
    node: NodeId,
    epoch: u64,
}

/// Applies a command but for its effects on keys and ranges, which it returns if it has any.
fn apply_command(
    group: &mut Group,
    entry: &Entry,
    command: Command,
    here: Here,
    faults: &impl Faults,
    events: &mut Vec<Event>,
) -> Option<(Bytes, Option<RangeChange>)> {
    let range = group.range;
    let own = |origin: &&Origin| origin.node == here.node && origin.epoch == here.epoch;
    let own = command.origin.as_ref().filter(own).map(|origin| origin.id);
    let own = own.filter(|id| group.pending.remove(id).is_some());
    let mut verdict = judge(&command, entry.term, &group.state.lease, faults);
    if verdict == Verdict::Apply
        && let Err(reason) = fits(group, command.change.as_ref())
    {
        tracing::warn!(range, reason, "a command has no effect");
        verdict = Verdict::Reject;
    }
    match verdict {
        Verdict::Apply => {
            if let Some(id) = own {
                events.push(Event::Applied { range, id, index: entry.index });
            }
            group.closed = group.closed.max(command.closed.unwrap_or(Timestamp::MIN));
            return Some((command.batch, command.change));
        }
        Verdict::Reject => events.extend(own.map(|id| Event::Rejected { range, id })),
        Verdict::Ceiling(ceiling) => {
            group.state.lease.ceiling = ceiling;
            if group.holding == Some(group.state.lease.sequence) {
                events.push(Event::CeilingRaised { range, ceiling });
            }
        }
        Verdict::NewLease(lease) => {
            group.state.lease = lease;
            // Whatever else of theirs is in the log comes after this and will be rejected there.
            let settled: Vec<u64> = group
                .pending
                .iter()
                .filter(|(_, pending)| pending.lease_sequence < lease.sequence)
                .map(|(id, _)| *id)
                .collect();
            for id in settled {
                if !faults.planted(Bug::LeaseNotChecked) {
                    group.pending.remove(&id);
                    events.push(Event::Rejected { range, id });
                }
            }
            if group.holding.take().is_some() {
                events.push(Event::LeaseLost { range });
            }
            if lease.holder == here.node && group.is_leader() && group.term() == lease.term {
                group.holding = Some(lease.sequence);
                let (sequence, ceiling, floor) = (lease.sequence, lease.ceiling, lease.floor);
                events.push(Event::LeaseAcquired { range, sequence, ceiling, floor });
            }
        }
    }
    None
}

/// Whether the range is one for which a command can be applied.
fn fits(group: &Group, change: Option<&RangeChange>) -> Result<(), &'static str> {
    let state = &group.state;
    match change {
        None if state.frozen.is_some() => Err("the range is frozen"),
        None => Ok(()),
        Some(change) => {
            let own = state.descriptor.as_ref().ok_or("it has no keys")?;
            check(group.range, own, state.frozen.as_ref(), &state.members, change)
        }
    }
}

/// Installs a snapshot whose contents have arrived before.
fn install(group: &mut Group, ready: &Ready, batch: &mut WriteBatch) -> ReplicationResult<()> {
    let metadata = ready.snapshot().get_metadata();
    let Some(incoming) = group.incoming.take().filter(|state| state.applied == metadata.index) else {
        return Err(ReplicationError::Internal("a snapshot without its contents".to_owned()));
    };
    group.state = state::RangeState {
        truncated: metadata.index,
        truncated_term: metadata.term,
        applied: metadata.index,
        applied_term: metadata.term,
        members: Members::from(metadata.get_conf_state()),
        incomplete: false,
        arriving: None,
        ..incoming
    };
    // What became of these lies in what arrived, and cannot be told from it.
    group.pending.clear();
    group.closed = Timestamp::MIN;
    group.raft.mut_store().restart(metadata.index, metadata.term, batch);
    group.raft.mut_store().set_applied(metadata.index, &group.state.members);
    group.state_changed = true;
    tracing::info!(range = group.range, index = metadata.index, "a snapshot was installed");
    Ok(())
}
