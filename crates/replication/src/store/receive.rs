//! What arrives from peers.

use super::Store;
use crate::Millis;
use crate::command::Lease;
use crate::faults::{Bug, Faults};
use crate::group::{Group, Guard};
use crate::liveness::Support;
use crate::message::{
    Envelope, LeaderAnswer, LeaderQuery, Members, NodeId, NotMember, Payload, RaftMessage, RangeId,
    SnapshotAck, SnapshotChunk,
};
use crate::snapshot::{Progress, Receiver, Transfer, clear};
use crate::state::{FORMAT, RangeState, is_destroyed, put_state};
use prost::Message;
use raft::SnapshotStatus;
use raft::eraftpb::{Message as RawMessage, MessageType};
use storage::WriteBatch;

/// What raft-rs puts into a vote request that the last leader has asked for.
const CAMPAIGN_TRANSFER: &[u8] = b"CampaignTransfer";

impl<F: Faults> Store<F> {
    /// Takes in a message from another node. What makes no sense is dropped.
    pub fn step(&mut self, now: Millis, envelope: Envelope) {
        let Envelope { from, from_epoch, to, support, payload } = envelope;
        if to != self.config.node || from == self.config.node || from == 0 {
            return;
        }
        self.clock = now;
        match payload {
            Some(Payload::Heartbeat(heartbeat)) => {
                let ack = self.liveness.heartbeat(now, from, from_epoch, heartbeat);
                let support = self.liveness.promise(now, from, from_epoch);
                self.send(from, support, Payload::HeartbeatAck(ack));
            }
            Some(Payload::HeartbeatAck(ack)) => {
                let given = Support { epoch: from_epoch, generation: support };
                if support != 0 && self.liveness.ack(now, from, given, ack, self.config.epoch, &self.faults) {
                    self.support_changed(from);
                }
            }
            Some(Payload::LeaderQuery(query)) => self.leader_query(from, query),
            Some(Payload::LeaderAnswer(answer)) => self.leader_answer(now, from, answer),
            Some(Payload::NotMember(answer)) => self.not_member(now, answer),
            // Between what raft-rs wanted to persist and having persisted it nothing may change.
            Some(Payload::Raft(_)) if self.stalled.is_some() => {}
            Some(Payload::Raft(message)) => self.raft_message(now, from, from_epoch, support, &message),
            Some(Payload::SnapshotChunk(chunk)) => self.chunk(now, from, from_epoch, chunk),
            Some(Payload::SnapshotAck(ack)) => self.chunk_ack(now, from, ack),
            Some(Payload::App(_)) | None => {}
        }
    }

    /// A peer gives support it did not give before: the groups led here ask it whether it knows.
    fn support_changed(&mut self, peer: NodeId) {
        if self.stalled.is_some() {
            // Then the groups are not quiet, and ask by themselves later.
            return;
        }
        for (range, group) in &mut self.groups {
            if group.is_leader() && group.state.members.contains(peer) {
                group.raft.ping();
                self.dirty.insert(*range);
            }
        }
    }

    fn leader_query(&mut self, from: NodeId, query: LeaderQuery) {
        let leads = self.groups.get(&query.range_id).is_some_and(|group| {
            group.is_leader() && group.term() == query.term && group.revoked != Some(query.term)
        });
        let LeaderQuery { range_id, term } = query;
        if self.knows_destroyed(range_id) {
            // Who asks is no member, then, whatever its log says.
            return self.send(from, 0, Payload::NotMember(NotMember { range_id, index: u64::MAX }));
        }
        let asleep = !self.groups.contains_key(&range_id) && self.index.contains(range_id);
        let mut truncated = 0;
        // What cannot be read cannot be told.
        if let Ok(Some(state)) = self.state_of(range_id) {
            truncated = if asleep { state.truncated } else { 0 };
            if state.descriptor.is_some() && !state.incomplete && !state.members.contains(from) {
                let index = state.applied;
                self.send(from, 0, Payload::NotMember(NotMember { range_id, index }));
            }
        }
        // A later term says as much as no leadership: an earlier one does not come back.
        if !leads {
            let answer = LeaderAnswer { range_id, term, asleep, truncated };
            self.send(from, 0, Payload::LeaderAnswer(answer));
        }
    }

    /// A member says that this node was none at some index of the log. Its replica goes, unless it knows
    /// better: has applied that entry and is a member, or has a log that goes on to other changes of members.
    fn not_member(&mut self, now: Millis, answer: NotMember) {
        self.load_for_message(now, answer.range_id);
        let Some(group) = self.groups.get_mut(&answer.range_id) else { return };
        let behind = group.state.applied < answer.index;
        if behind && !group.is_leader() && !group.raft.store().changes_members_after(answer.index) {
            group.removed = true;
            self.dirty.insert(answer.range_id);
        }
    }

    fn leader_answer(&mut self, now: Millis, from: NodeId, answer: LeaderAnswer) {
        let Some(group) = self.groups.get_mut(&answer.range_id) else { return };
        if group.guard.is_some_and(|guard| guard.leader == from && guard.term == answer.term) {
            group.guard = None;
            if answer.asleep {
                self.leader_is_asleep(now, from, answer);
            }
        }
    }

    fn raft_message(&mut self, now: Millis, from: NodeId, from_epoch: u64, support: u64, wire: &RaftMessage) {
        let Some(mut message) = wire.to_raft(from, self.config.node) else {
            tracing::warn!(from, range = wire.range_id, "a malformed Raft message was dropped");
            return;
        };
        let range = wire.range_id;
        if range == 0 || !self.make_replica(now, range, &message) {
            return;
        }
        if is_vote(&message) {
            self.note_wanted(now, range, wire.wanted);
            self.tell_outsider(range, from);
            if !self.may_help(now, range, &message) {
                return self.refuse_vote(range);
            }
        }
        let Some(group) = self.groups.get_mut(&range) else { return };
        if group.state.incomplete && message.get_msg_type() == MessageType::MsgAppend {
            // There is nothing here that a log could be applied to.
            return self.request_snapshot(now, range, &message);
        }
        if !sensible(group, &mut message) {
            return;
        }
        let kind = message.get_msg_type();
        let term = message.term;
        let log = &group.raft.raft.raft_log;
        let behind = is_vote(&message) && !log.is_up_to_date(message.index, message.log_term);
        // raft-rs has no use for what comes from nodes that are no members; the error says so.
        let _ = group.raft.step(message);
        group.idle_ticks = group.idle_ticks.min(crate::config::QUIET_TICKS);
        group.orphan_ticks = 0;
        group.idle.heard(now);
        if !matches!(kind, MessageType::MsgHeartbeat | MessageType::MsgHeartbeatResponse) {
            group.idle_ticks = 0;
        }
        let raft = &group.raft.raft;
        if from_leader(kind) && raft.term == term && raft.leader_id == from {
            let support = self.liveness.promise(now, from, from_epoch);
            group.guard = Some(Guard { leader: from, epoch: from_epoch, term, support });
            group.reset_election();
            group.idle.wanted(now);
        }
        let answers = matches!(kind, MessageType::MsgAppendResponse | MessageType::MsgHeartbeatResponse);
        if answers && group.is_leader() && group.term() == term && support != 0 {
            group.confirm(from, Support { epoch: from_epoch, generation: support });
        }
        self.dirty.insert(range);
        if behind && wire.wanted {
            // The candidate cannot lead; this replica perhaps can.
            self.campaign(now, range);
        }
    }

    /// Tells a candidate that is no member so, for nobody else may: it was removed while it was away.
    fn tell_outsider(&mut self, range: RangeId, from: NodeId) {
        let Some(state) = self.groups.get(&range).map(|group| &group.state) else { return };
        if state.descriptor.is_some() && !state.incomplete && !state.members.contains(from) {
            let index = state.applied;
            self.send(from, 0, Payload::NotMember(NotMember { range_id: range, index }));
        }
    }

    /// Tells a leader that sends a snapshot of what is here already how far it is here; or it would send another,
    /// and another.
    fn tell_progress(&mut self, range: RangeId, message: &RawMessage) {
        let Some(group) = self.groups.get(&range) else { return };
        let (log, metadata) = (&group.raft.raft.raft_log, message.get_snapshot().get_metadata());
        let committed = log.committed;
        let index = committed.max(metadata.index);
        let has_it = index == committed || log.term(index).is_ok_and(|term| term == metadata.term);
        if message.term != group.term() || !has_it || group.state.incomplete {
            return;
        }
        let answer = RaftMessage {
            range_id: range,
            kind: MessageType::MsgAppendResponse as i32,
            term: message.term,
            index,
            commit: committed,
            ..RaftMessage::default()
        };
        self.send(message.from, 0, Payload::Raft(answer));
    }

    /// Asks a leader for a snapshot in place of what it wants to append, unless one is on its way.
    fn request_snapshot(&mut self, now: Millis, range: RangeId, message: &RawMessage) {
        let Some(group) = self.groups.get(&range) else { return };
        if message.term < group.term() || group.receiver.is_some_and(|receiver| receiver.is_active(now)) {
            return;
        }
        let log = &group.raft.raft.raft_log;
        let refusal = RaftMessage {
            range_id: range,
            kind: MessageType::MsgAppendResponse as i32,
            term: message.term,
            index: message.index,
            reject: true,
            reject_hint: log.last_index(),
            log_term: log.last_term(),
            request_snapshot: log.committed.max(1),
            ..RaftMessage::default()
        };
        self.send(message.from, 0, Payload::Raft(refusal));
    }

    /// Makes an empty replica for a range that a leader wants to have one here, or in which a candidate wants
    /// this node's vote. False if there is none.
    fn make_replica(&mut self, now: Millis, range: RangeId, message: &RawMessage) -> bool {
        if self.groups.contains_key(&range) {
            return true;
        }
        let asks = from_leader(message.get_msg_type()) || is_vote(message);
        if self.index.contains(range) {
            // What a replica that sleeps has asked for it does not want to know any more.
            return asks && self.load_for_message(now, range);
        }
        if !asks || self.is_barred(range) {
            return false;
        }
        let state = RangeState {
            format: FORMAT,
            descriptor: None,
            members: Members::default(),
            lease: Lease::default(),
            ..RangeState::default()
        };
        match self.add_group(now, range, state) {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(range, "a replica cannot be made: {error}");
                false
            }
        }
    }

    /// Whether no message may make a replica of a range.
    fn is_barred(&self, range: RangeId) -> bool {
        // When in doubt it stays away.
        let destroyed = || is_destroyed(&*self.engine, range).unwrap_or(true);
        !self.faults.planted(Bug::DestroyedComesBack) && destroyed()
    }

    /// A candidate says whether somebody wants the range.
    fn note_wanted(&mut self, now: Millis, range: RangeId, wanted: bool) {
        if let Some(group) = self.groups.get_mut(&range) {
            group.idle.heard(now);
            if wanted {
                group.idle.wanted(now);
            }
        }
    }

    /// A candidate is not helped. If that is because this node leads, the candidate is to know.
    fn refuse_vote(&mut self, range: RangeId) {
        if let Some(group) = self.groups.get_mut(&range)
            && group.is_leader()
        {
            group.raft.ping();
            self.dirty.insert(range);
        }
    }

    /// Whether a candidate may be helped: not while another leader is supported, unless that leader has
    /// asked for it.
    fn may_help(&mut self, now: Millis, range: RangeId, message: &RawMessage) -> bool {
        // An empty replica may stand where one was removed: it does not know what that one acknowledged. Where
        // there never was one it votes, for it may be needed: the entry that a range came to be with may be
        // applied on less than a majority, and those who lack it get a snapshot from beyond it.
        let forgetful = |group: &Group| {
            let retired = group.raft.store().hard_state().retired;
            let may = if retired { Bug::RetiredVotes } else { Bug::EmptyNeverVotes };
            group.state.descriptor.is_none() && retired != self.faults.planted(may)
        };
        if self.groups.get(&range).is_none_or(forgetful) {
            return false;
        }
        if &message.context[..] == CAMPAIGN_TRANSFER || self.faults.planted(Bug::SupportIgnoredInVote) {
            return true;
        }
        if self.liveness.is_in_grace(now) {
            return false;
        }
        let Some(group) = self.groups.get(&range) else { return false };
        if self.held_until(group).is_some_and(|until| now < until) {
            return false;
        }
        match group.guard {
            Some(guard) if guard.leader != message.from && group.is_guarded(&self.liveness, now) => {
                // It may no longer lead, without having said so.
                let query = LeaderQuery { range_id: range, term: guard.term };
                self.send(guard.leader, 0, Payload::LeaderQuery(query));
                false
            }
            _ => true,
        }
    }

    // Snapshots.

    /// raft-rs wants a follower to have a snapshot.
    pub(super) fn begin_transfer(&mut self, now: Millis, range: RangeId, message: &RawMessage) {
        let id = self.next_transfer;
        self.next_transfer += 1;
        let Some(group) = self.groups.get_mut(&range) else { return };
        let wire = RaftMessage::from_raft(range, message);
        let fits = wire.snapshot.as_ref().is_some_and(|snapshot| snapshot.index == group.state.applied);
        let Some(descriptor) =
            group.state.descriptor.clone().filter(|_| fits && !group.transfers.contains_key(&message.to))
        else {
            group.raft.report_snapshot(message.to, SnapshotStatus::Failure);
            return;
        };
        let mut transfer = Transfer::begin(id, message.to, wire, group.state.clone(), &descriptor, now);
        match transfer.read(&*self.engine, 0, group.state.applied, self.config.chunk_bytes) {
            Ok(()) => {
                tracing::info!(range, to = message.to, index = transfer.index(), "sending a snapshot");
                let envelope = transfer.envelope(now);
                group.transfers.insert(message.to, transfer);
                if let Some(payload) = envelope.payload {
                    self.send(message.to, 0, payload);
                }
            }
            Err(error) => {
                tracing::error!(range, "a snapshot cannot be read: {error}");
                group.raft.report_snapshot(message.to, SnapshotStatus::Failure);
            }
        }
    }

    fn chunk_ack(&mut self, now: Millis, from: NodeId, ack: SnapshotAck) {
        let Some(group) = self.groups.get_mut(&ack.range_id) else { return };
        let Some(transfer) = group.transfers.get_mut(&from) else { return };
        let mut progress = transfer.acknowledged(ack.transfer, ack.sequence, ack.refused, now);
        let mut envelope = None;
        if progress == Progress::Send {
            match transfer.read(&*self.engine, ack.sequence + 1, group.state.applied, self.config.chunk_bytes)
            {
                Ok(()) => envelope = Some(transfer.envelope(now)),
                Err(error) => {
                    tracing::error!(range = ack.range_id, "a snapshot cannot be read: {error}");
                    progress = Progress::Failed;
                }
            }
        }
        match progress {
            Progress::Finished | Progress::Failed => {
                group.transfers.remove(&from);
                let finished = progress == Progress::Finished;
                let status = if finished { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
                group.raft.report_snapshot(from, status);
                self.dirty.insert(ack.range_id);
            }
            Progress::Send | Progress::Wait => {}
        }
        if let Some(payload) = envelope.and_then(|envelope| envelope.payload) {
            self.send(from, 0, payload);
        }
    }

    fn chunk(&mut self, now: Millis, from: NodeId, epoch: u64, chunk: SnapshotChunk) {
        let ack = SnapshotAck {
            range_id: chunk.range_id,
            transfer: chunk.transfer,
            sequence: chunk.sequence,
            refused: false,
        };
        let written = match self.take_chunk(now, from, epoch, chunk) {
            Ok(written) => written,
            Err(error) => {
                tracing::error!(range = ack.range_id, from, "a snapshot cannot be written: {error}");
                Some(false)
            }
        };
        if let Some(written) = written {
            self.send(from, 0, Payload::SnapshotAck(SnapshotAck { refused: !written, ..ack }));
        }
    }

    /// Whether another replica here has keys of a snapshot: one that has not heard that they are no longer its
    /// own. It is woken, so that it hears, and the snapshot is for later.
    fn is_occupied(&mut self, now: Millis, chunk: &SnapshotChunk) -> crate::ReplicationResult<bool> {
        let Some(descriptor) = sent_state(chunk).and_then(|state| state.descriptor) else { return Ok(false) };
        if let Some(absorber) = self.is_before_merge(&descriptor) {
            self.wake(now, absorber)?;
            return Ok(true);
        }
        self.destroy_superseded(&descriptor)?;
        let other = self.index.overlapping(chunk.range_id, &descriptor.start, &descriptor.end);
        let Some(other) = other.filter(|_| !self.faults.planted(Bug::OverlapAccepted)) else {
            return Ok(false);
        };
        self.wake(now, other)?;
        Ok(true)
    }

    /// Writes a chunk. `Some(false)` refuses the transfer, `None` says nothing about it.
    fn take_chunk(
        &mut self,
        now: Millis,
        from: NodeId,
        epoch: u64,
        chunk: SnapshotChunk,
    ) -> crate::ReplicationResult<Option<bool>> {
        let range = chunk.range_id;
        if self.stalled.is_some() {
            return Ok(None);
        }
        let announcement = chunk.announcement.as_ref().and_then(|wire| wire.to_raft(from, self.config.node));
        if chunk.sequence == 0 {
            let Some(message) = &announcement else { return Ok(Some(false)) };
            if range == 0 || !self.make_replica(now, range, message) {
                return Ok(Some(false));
            }
        }
        if chunk.sequence == 0 && self.is_occupied(now, &chunk)? {
            return Ok(Some(false));
        }
        let Some(group) = self.groups.get_mut(&range) else { return Ok(Some(false)) };
        let this = Receiver { from, epoch, transfer: chunk.transfer, next: chunk.sequence, heard_at: now };
        let known = group.receiver.filter(|receiver| receiver.is(from, epoch, chunk.transfer));
        match known {
            // It was written; the acknowledgement got lost.
            Some(receiver) if chunk.sequence < receiver.next => return Ok(Some(true)),
            Some(receiver) if chunk.sequence > receiver.next => return Ok(Some(false)),
            None if chunk.sequence > 0 => return Ok(Some(false)),
            _ => {}
        }
        let mut batch = WriteBatch::new();
        if chunk.sequence == 0 {
            let Some((message, state)) = announcement.as_ref().zip(sent_state(&chunk)) else {
                return Ok(Some(false));
            };
            if !wanted(group, message) {
                self.tell_progress(range, message);
                return Ok(Some(false));
            }
            let early = group.state.applied < group.raft.raft.raft_log.committed;
            if early && !self.faults.planted(Bug::AppliedOverSnapshot) {
                // What is committed and not applied yet would be applied over what arrives, which is newer. The
                // chunk comes again.
                return Ok(None);
            }
            let old =
                [group.state.descriptor.clone(), group.state.arriving.clone(), state.descriptor.clone()];
            group.state.incomplete = true;
            group.state.arriving = state.descriptor;
            put_state(&mut batch, range, &group.state);
            if !self.faults.planted(Bug::SnapshotNotCleared) {
                for descriptor in old.iter().flatten() {
                    clear(&mut batch, &descriptor.start, &descriptor.end);
                }
            }
        }
        batch.decode_into(&chunk.puts)?;
        // The first and the last are the borders of what a crash may leave behind.
        self.engine.write(&batch, chunk.sequence == 0 || chunk.last)?;
        if chunk.sequence == 0 {
            self.index.set(range, &group.state);
        }
        group.receiver = Some(Receiver { next: chunk.sequence + 1, ..this });
        if chunk.last {
            group.receiver = None;
            let Some((message, state)) = announcement.zip(sent_state(&chunk)) else { return Ok(Some(false)) };
            let term = message.term;
            // Without this raft-rs would be content with finding the snapshot's last entry in the log.
            group.raft.raft.pending_request_snapshot = message.get_snapshot().get_metadata().index;
            // What raft-rs makes of it is installed with the next round; see `persist`.
            group.raft.step(message)?;
            if group.raft.snap().is_none() {
                // Then the mark stays, and the replica asks for another.
                return Ok(Some(false));
            }
            group.incoming = Some(state);
            let support = self.liveness.promise(now, from, epoch);
            group.guard = Some(Guard { leader: from, epoch, term, support });
            self.dirty.insert(range);
        }
        Ok(Some(true))
    }
}

fn sent_state(chunk: &SnapshotChunk) -> Option<RangeState> {
    let state = RangeState::decode(chunk.state.clone()).ok()?;
    (state.format == FORMAT && state.descriptor.is_some()).then_some(state)
}

/// Whether raft-rs will take the snapshot when it is complete.
fn wanted(group: &Group, message: &RawMessage) -> bool {
    let metadata = message.get_snapshot().get_metadata();
    let log = &group.raft.raft.raft_log;
    let in_log = metadata.index <= log.last_index()
        && log
            .term(metadata.index)
            .is_ok_and(|term| term == metadata.term && metadata.index > group.state.truncated);
    message.term >= group.term()
        && metadata.index >= log.committed
        && (group.state.incomplete || !in_log)
        && metadata.index > group.state.applied.saturating_sub(u64::from(group.state.incomplete))
        && Members::from(metadata.get_conf_state()).contains(group.raft.raft.id)
}

fn is_vote(message: &RawMessage) -> bool {
    matches!(message.get_msg_type(), MessageType::MsgRequestVote | MessageType::MsgRequestPreVote)
}

fn from_leader(kind: MessageType) -> bool {
    matches!(
        kind,
        MessageType::MsgAppend
            | MessageType::MsgHeartbeat
            | MessageType::MsgSnapshot
            | MessageType::MsgTimeoutNow
    )
}

/// Sorts out what raft-rs takes for impossible and would end the process for.
fn sensible(group: &Group, message: &mut RawMessage) -> bool {
    let raft = &group.raft.raft;
    let last = raft.raft_log.last_index();
    let committed = raft.raft_log.committed;
    match message.get_msg_type() {
        // They come in chunks.
        MessageType::MsgSnapshot | MessageType::MsgTransferLeader => false,
        MessageType::MsgTimeoutNow => !group.state.incomplete,
        MessageType::MsgHeartbeat => {
            if group.state.incomplete {
                message.commit = message.commit.min(committed);
            }
            message.commit <= last
        }
        MessageType::MsgAppend => {
            let agrees = |index: u64, term: u64| {
                index > committed
                    || index < raft.raft_log.first_index()
                    || raft.raft_log.term(index).is_ok_and(|known| known == term)
            };
            let consistent = message.entries.iter().all(|entry| agrees(entry.index, entry.term));
            if !consistent {
                tracing::error!(
                    range = group.range,
                    from = message.from,
                    "a peer contradicts what is committed"
                );
            }
            consistent
        }
        MessageType::MsgAppendResponse => message.index <= last,
        _ => true,
    }
}
