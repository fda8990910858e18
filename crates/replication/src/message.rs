//! What KV nodes send each other.
//!
//! raft-rs has message types of its own; they are used in memory only. What travels, and what lies on
//! disk, are these types, decoded by `prost`, which checks what it reads.

use bytes::Bytes;
use raft::eraftpb;

/// Names a KV node within its cluster. 0 is no node.
pub type NodeId = u64;
/// Names a range. 0 is no range.
pub type RangeId = u64;

/// Version of every message between KV nodes.
pub const PEER_PROTOCOL_VERSION: u32 = 5;
/// Most entries accepted in one message.
const MAX_ENTRIES: usize = 1 << 16;

/// A message from one node to another. It may be lost, delayed, repeated and overtaken.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Envelope {
    /// The sender.
    #[prost(uint64, tag = "1")]
    pub from: NodeId,
    /// Distinguishes the sender's process from those of the same node before it.
    #[prost(uint64, tag = "2")]
    pub from_epoch: u64,
    /// The receiver.
    #[prost(uint64, tag = "3")]
    pub to: NodeId,
    /// Which time the sender supports the receiver's process ([`crate::liveness`]); 0 if it does not.
    #[prost(uint64, tag = "11")]
    pub support: u64,
    /// What it says.
    #[prost(oneof = "Payload", tags = "4, 5, 6, 7, 8, 9, 10, 12, 13")]
    pub payload: Option<Payload>,
}

/// What an [`Envelope`] says.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Payload {
    /// See [`RaftMessage`].
    #[prost(message, tag = "4")]
    Raft(RaftMessage),
    /// See [`Heartbeat`].
    #[prost(message, tag = "5")]
    Heartbeat(Heartbeat),
    /// See [`HeartbeatAck`].
    #[prost(message, tag = "6")]
    HeartbeatAck(HeartbeatAck),
    /// See [`SnapshotChunk`].
    #[prost(message, tag = "7")]
    SnapshotChunk(SnapshotChunk),
    /// See [`SnapshotAck`].
    #[prost(message, tag = "8")]
    SnapshotAck(SnapshotAck),
    /// See [`LeaderQuery`].
    #[prost(message, tag = "9")]
    LeaderQuery(LeaderQuery),
    /// See [`LeaderAnswer`].
    #[prost(message, tag = "10")]
    LeaderAnswer(LeaderAnswer),
    /// See [`NotMember`].
    #[prost(message, tag = "12")]
    NotMember(NotMember),
    /// See [`App`].
    #[prost(message, tag = "13")]
    App(App),
}

/// Asks the receiver to support the sender's node.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Heartbeat {
    /// When it was sent, by the sender's clock.
    #[prost(uint64, tag = "1")]
    pub sent_at: u64,
    /// What the sender's driver wants its peers to know of the node; means nothing to this crate.
    #[prost(bytes = "bytes", tag = "2")]
    pub note: Bytes,
}

/// Promises support for [`crate::liveness::SUPPORT_MS`] from when the heartbeat arrived.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct HeartbeatAck {
    /// [`Heartbeat::sent_at`] of the heartbeat answered.
    #[prost(uint64, tag = "1")]
    pub sent_at: u64,
    /// The epoch that is supported.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// What the wall clock of the sender's driver shows, in nanoseconds since the Unix epoch; means nothing to this
    /// crate. 0 if it does not say.
    #[prost(uint64, tag = "70")]
    pub wall_ns: u64,
}

/// Asks a node that is taken for the leader of a range whether it is.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct LeaderQuery {
    /// The range.
    #[prost(uint64, tag = "1")]
    pub range_id: RangeId,
    /// The term in which it is taken for the leader.
    #[prost(uint64, tag = "2")]
    pub term: u64,
}

/// Says that the sender does not lead a range in a term and will not again.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct LeaderAnswer {
    /// The range.
    #[prost(uint64, tag = "1")]
    pub range_id: RangeId,
    /// The term asked about.
    #[prost(uint64, tag = "2")]
    pub term: u64,
    /// Whether the sender's replica is asleep because nobody uses the range: the receiver's may sleep too.
    #[prost(bool, tag = "3")]
    pub asleep: bool,
    /// If it is asleep: the last entry that no member needs any more, as far as the sender knows.
    #[prost(uint64, tag = "4")]
    pub truncated: u64,
}

/// What the drivers of two stores have to say to each other; means nothing to this crate.
#[derive(Clone, PartialEq, prost::Message)]
pub struct App {
    /// What it is.
    #[prost(bytes = "bytes", tag = "1")]
    pub bytes: Bytes,
}

/// Says that the receiver is no member of a range, as of an index of its log.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct NotMember {
    /// The range.
    #[prost(uint64, tag = "1")]
    pub range_id: RangeId,
    /// The last entry that the sender has applied.
    #[prost(uint64, tag = "2")]
    pub index: u64,
}

/// A piece of a range's contents on its way to a replica.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SnapshotChunk {
    /// The range.
    #[prost(uint64, tag = "1")]
    pub range_id: RangeId,
    /// Names the transfer.
    #[prost(uint64, tag = "2")]
    pub transfer: u64,
    /// 0 for the first chunk, then one more each time.
    #[prost(uint64, tag = "3")]
    pub sequence: u64,
    /// A [`storage::WriteBatch`] of puts.
    #[prost(bytes = "bytes", tag = "4")]
    pub puts: Bytes,
    /// The Raft message that announces the snapshot: with the first chunk and the last.
    #[prost(message, optional, tag = "5")]
    pub announcement: Option<RaftMessage>,
    /// Whether nothing follows.
    #[prost(bool, tag = "6")]
    pub last: bool,
    /// The state of the range at the snapshot's index: with the last chunk.
    #[prost(bytes = "bytes", tag = "7")]
    pub state: Bytes,
}

/// Says that a chunk was written, or that the transfer is refused.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct SnapshotAck {
    /// The range.
    #[prost(uint64, tag = "1")]
    pub range_id: RangeId,
    /// The transfer.
    #[prost(uint64, tag = "2")]
    pub transfer: u64,
    /// The chunk.
    #[prost(uint64, tag = "3")]
    pub sequence: u64,
    /// Whether the receiver does not want the rest.
    #[prost(bool, tag = "4")]
    pub refused: bool,
}

/// A message of a Raft group.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RaftMessage {
    /// The group.
    #[prost(uint64, tag = "1")]
    pub range_id: RangeId,
    /// One of raft-rs' message types.
    #[prost(int32, tag = "2")]
    pub kind: i32,
    /// The sender's term.
    #[prost(uint64, tag = "3")]
    pub term: u64,
    /// See raft-rs.
    #[prost(uint64, tag = "4")]
    pub log_term: u64,
    /// See raft-rs.
    #[prost(uint64, tag = "5")]
    pub index: u64,
    /// What to append.
    #[prost(message, repeated, tag = "6")]
    pub entries: Vec<Entry>,
    /// The sender's commit index.
    #[prost(uint64, tag = "7")]
    pub commit: u64,
    /// See raft-rs.
    #[prost(uint64, tag = "8")]
    pub commit_term: u64,
    /// What is known of a snapshot without its contents.
    #[prost(message, optional, tag = "9")]
    pub snapshot: Option<SnapshotMetadata>,
    /// See raft-rs.
    #[prost(uint64, tag = "10")]
    pub request_snapshot: u64,
    /// Whether the request is refused.
    #[prost(bool, tag = "11")]
    pub reject: bool,
    /// See raft-rs.
    #[prost(uint64, tag = "12")]
    pub reject_hint: u64,
    /// See raft-rs.
    #[prost(bytes = "bytes", tag = "13")]
    pub context: Bytes,
    /// See raft-rs.
    #[prost(sint64, tag = "14")]
    pub priority: i64,
    /// With a vote request: whether somebody uses the range at the sender and waits for a leader. Then it is
    /// in use at the receiver too.
    #[prost(bool, tag = "15")]
    pub wanted: bool,
}

/// An entry of a Raft log.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Entry {
    /// One of raft-rs' entry types.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    /// The term of the leader that made it.
    #[prost(uint64, tag = "2")]
    pub term: u64,
    /// Its place in the log.
    #[prost(uint64, tag = "3")]
    pub index: u64,
    /// A [`crate::command::Command`] or a change of members.
    #[prost(bytes = "bytes", tag = "4")]
    pub data: Bytes,
    /// See raft-rs.
    #[prost(bytes = "bytes", tag = "5")]
    pub context: Bytes,
}

/// The members of a group.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Members {
    /// Who votes.
    #[prost(uint64, repeated, tag = "1")]
    pub voters: Vec<NodeId>,
    /// Who only listens.
    #[prost(uint64, repeated, tag = "2")]
    pub learners: Vec<NodeId>,
    /// Who voted before a change that is under way, and still counts.
    #[prost(uint64, repeated, tag = "3")]
    pub voters_outgoing: Vec<NodeId>,
    /// Who becomes a learner when the change is complete.
    #[prost(uint64, repeated, tag = "4")]
    pub learners_next: Vec<NodeId>,
    /// Whether the change completes by itself.
    #[prost(bool, tag = "5")]
    pub auto_leave: bool,
}

impl Members {
    /// Whether a node belongs to the group in any way.
    pub fn contains(&self, node: NodeId) -> bool {
        [&self.voters, &self.learners, &self.voters_outgoing, &self.learners_next]
            .iter()
            .any(|nodes| nodes.contains(&node))
    }

    /// Whether a change of voters is half way.
    pub fn is_joint(&self) -> bool {
        !self.voters_outgoing.is_empty()
    }

    /// Every member once, in no particular order.
    pub fn all(&self) -> Vec<NodeId> {
        let mut all: Vec<_> =
            self.voters.iter().chain(&self.learners).chain(&self.voters_outgoing).copied().collect();
        all.extend(&self.learners_next);
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl From<&eraftpb::ConfState> for Members {
    fn from(state: &eraftpb::ConfState) -> Self {
        Members {
            voters: state.voters.clone(),
            learners: state.learners.clone(),
            voters_outgoing: state.voters_outgoing.clone(),
            learners_next: state.learners_next.clone(),
            auto_leave: state.auto_leave,
        }
    }
}

impl From<&Members> for eraftpb::ConfState {
    fn from(members: &Members) -> Self {
        let mut state = eraftpb::ConfState::default();
        state.voters.clone_from(&members.voters);
        state.learners.clone_from(&members.learners);
        state.voters_outgoing.clone_from(&members.voters_outgoing);
        state.learners_next.clone_from(&members.learners_next);
        state.auto_leave = members.auto_leave;
        state
    }
}

/// What is known of a snapshot without its contents.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SnapshotMetadata {
    /// The members at its index.
    #[prost(message, required, tag = "1")]
    pub members: Members,
    /// The last entry it contains.
    #[prost(uint64, tag = "2")]
    pub index: u64,
    /// The term of that entry.
    #[prost(uint64, tag = "3")]
    pub term: u64,
}

impl From<&eraftpb::Entry> for Entry {
    fn from(entry: &eraftpb::Entry) -> Self {
        Entry {
            kind: entry.entry_type as i32,
            term: entry.term,
            index: entry.index,
            data: entry.data.clone(),
            context: entry.context.clone(),
        }
    }
}

impl Entry {
    /// As raft-rs has it; `None` if its kind is unknown.
    pub fn to_raft(&self) -> Option<eraftpb::Entry> {
        let entry_type = match self.kind {
            0 => eraftpb::EntryType::EntryNormal,
            1 => eraftpb::EntryType::EntryConfChange,
            2 => eraftpb::EntryType::EntryConfChangeV2,
            _ => return None,
        };
        Some(eraftpb::Entry {
            entry_type,
            term: self.term,
            index: self.index,
            // Logs keep entries for long; the buffer they came in is larger.
            data: Bytes::copy_from_slice(&self.data),
            context: Bytes::copy_from_slice(&self.context),
            ..eraftpb::Entry::default()
        })
    }
}

/// Kinds of messages that travel; the others are raft-rs' own business.
const KINDS: [eraftpb::MessageType; 11] = [
    eraftpb::MessageType::MsgAppend,
    eraftpb::MessageType::MsgAppendResponse,
    eraftpb::MessageType::MsgRequestVote,
    eraftpb::MessageType::MsgRequestVoteResponse,
    eraftpb::MessageType::MsgSnapshot,
    eraftpb::MessageType::MsgHeartbeat,
    eraftpb::MessageType::MsgHeartbeatResponse,
    eraftpb::MessageType::MsgTransferLeader,
    eraftpb::MessageType::MsgTimeoutNow,
    eraftpb::MessageType::MsgRequestPreVote,
    eraftpb::MessageType::MsgRequestPreVoteResponse,
];

impl RaftMessage {
    /// A message of raft-rs.
    pub fn from_raft(range_id: RangeId, message: &eraftpb::Message) -> Self {
        let snapshot = message.snapshot.as_ref().map(|snapshot| SnapshotMetadata {
            members: Members::from(snapshot.get_metadata().get_conf_state()),
            index: snapshot.get_metadata().index,
            term: snapshot.get_metadata().term,
        });
        RaftMessage {
            range_id,
            kind: message.msg_type as i32,
            term: message.term,
            log_term: message.log_term,
            index: message.index,
            entries: message.entries.iter().map(Entry::from).collect(),
            commit: message.commit,
            commit_term: message.commit_term,
            snapshot,
            request_snapshot: message.request_snapshot,
            reject: message.reject,
            reject_hint: message.reject_hint,
            context: message.context.clone(),
            priority: message.priority,
            wanted: false,
        }
    }

    /// The kind, if it is one that travels.
    pub fn message_type(&self) -> Option<eraftpb::MessageType> {
        KINDS.into_iter().find(|kind| *kind as i32 == self.kind)
    }

    /// As raft-rs has it; `None` if it cannot have come from a sound peer.
    pub fn to_raft(&self, from: NodeId, to: NodeId) -> Option<eraftpb::Message> {
        if self.entries.len() > MAX_ENTRIES {
            return None;
        }
        let mut message = eraftpb::Message {
            msg_type: self.message_type()?,
            from,
            to,
            term: self.term,
            log_term: self.log_term,
            index: self.index,
            commit: self.commit,
            commit_term: self.commit_term,
            request_snapshot: self.request_snapshot,
            reject: self.reject,
            reject_hint: self.reject_hint,
            context: self.context.clone(),
            priority: self.priority,
            ..eraftpb::Message::default()
        };
        // raft-rs takes it for granted that entries follow one another.
        for (place, entry) in self.entries.iter().enumerate() {
            let expected = self.index.checked_add(1 + place as u64)?;
            if entry.index != expected || entry.term > self.term {
                return None;
            }
            message.entries.push(entry.to_raft()?);
        }
        if let Some(metadata) = &self.snapshot {
            let snapshot = message.mut_snapshot().mut_metadata();
            snapshot.set_conf_state(eraftpb::ConfState::from(&metadata.members));
            snapshot.index = metadata.index;
            snapshot.term = metadata.term;
        } else if message.msg_type == eraftpb::MessageType::MsgSnapshot {
            return None;
        }
        Some(message)
    }
}
