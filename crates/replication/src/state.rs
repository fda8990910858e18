//! What a replica keeps on disk besides the contents of its range.
//!
//! Everything lies in [`Space::Raft`] under the range's id:
//!
//! | key | value |
//! |---|---|
//! | id, `1` | [`RangeState`]: written in one batch with the effects it tells of |
//! | id, `2` | [`HardState`]: term, vote and commit index |
//! | id, `3`, index | [`crate::message::Entry`]: the log |
//! | id, `4` | nothing: the range was destroyed and never has a replica here again |

use crate::command::{Freeze, Lease};
use crate::error::{ReplicationError, ReplicationResult};
use crate::message::{Members, RangeId};
use bytes::Bytes;
use prost::Message;
use storage::{Bounds, Reader, Space, StorageError, WriteBatch};

/// Version of everything this crate writes.
pub const FORMAT: u32 = 1;

const STATE: u8 = 1;
const HARD_STATE: u8 = 2;
const LOG: u8 = 3;
const DESTROYED: u8 = 4;

/// The keys of a range.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RangeDescriptor {
    /// Its name.
    #[prost(uint64, tag = "1")]
    pub range_id: RangeId,
    /// First key.
    #[prost(bytes = "bytes", tag = "2")]
    pub start: Bytes,
    /// First key after the range.
    #[prost(bytes = "bytes", tag = "3")]
    pub end: Bytes,
    /// Grows whenever the keys or the configuration change.
    #[prost(uint64, tag = "4")]
    pub generation: u64,
    /// What the range's users want of it; means nothing to this crate.
    #[prost(bytes = "bytes", tag = "5")]
    pub config: Bytes,
    /// The range of which it was split off, or of which that one was, and so on; 0 if it was not split off
    /// another. All ranges with one origin came to be of the keys of that one.
    #[prost(uint64, tag = "6")]
    pub origin: RangeId,
    /// Grows whenever the range absorbs another; ranges that are split off take it over. Of two ranges that had a key
    /// one after the other, and of which the first was absorbed in between, the second has more.
    #[prost(uint64, tag = "7")]
    pub merges: u64,
    /// The range that absorbed another last to have these keys; 0 if none did.
    #[prost(uint64, tag = "8")]
    pub absorber: RangeId,
}

impl RangeDescriptor {
    /// The range of whose keys this one and its kin came to be: itself, if it was not split off another.
    pub fn family(&self) -> RangeId {
        if self.origin == 0 { self.range_id } else { self.origin }
    }
}

/// Where a replica stands.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RangeState {
    /// [`FORMAT`].
    #[prost(uint32, tag = "1")]
    pub format: u32,
    /// The keys; absent until the first snapshot has arrived.
    #[prost(message, optional, tag = "2")]
    pub descriptor: Option<RangeDescriptor>,
    /// The last entry that was applied.
    #[prost(uint64, tag = "3")]
    pub applied: u64,
    /// Its term.
    #[prost(uint64, tag = "4")]
    pub applied_term: u64,
    /// The last entry that was removed from the front of the log.
    #[prost(uint64, tag = "5")]
    pub truncated: u64,
    /// Its term.
    #[prost(uint64, tag = "6")]
    pub truncated_term: u64,
    /// Who belongs to the group.
    #[prost(message, required, tag = "7")]
    pub members: Members,
    /// The lease in force.
    #[prost(message, required, tag = "8")]
    pub lease: Lease,
    /// Whether a snapshot has begun to arrive and has not ended.
    #[prost(bool, tag = "9")]
    pub incomplete: bool,
    /// The keys of the snapshot that is arriving: they are occupied although they do not count yet.
    #[prost(message, optional, tag = "10")]
    pub arriving: Option<RangeDescriptor>,
    /// The contents are those of one instant only when this entry is applied: they came in a snapshot, which was
    /// read for that long.
    #[prost(uint64, tag = "11")]
    pub whole_at: u64,
    /// Whether it is frozen, and for which merge.
    #[prost(message, optional, tag = "12")]
    pub frozen: Option<Freeze>,
}

/// What Raft must not forget.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct HardState {
    /// The term.
    #[prost(uint64, tag = "1")]
    pub term: u64,
    /// Who got the vote in it.
    #[prost(uint64, tag = "2")]
    pub vote: u64,
    /// The commit index, perhaps not the newest.
    #[prost(uint64, tag = "3")]
    pub commit: u64,
    /// Whether a replica with contents was removed here. What it acknowledged is forgotten, so only a snapshot
    /// may make another.
    #[prost(bool, tag = "4")]
    pub retired: bool,
}

fn key(range: RangeId, kind: u8) -> [u8; 9] {
    let mut key = [kind; 9];
    key[..8].copy_from_slice(&range.to_be_bytes());
    key
}

/// Where an entry of the log lies.
pub(crate) fn log_key(range: RangeId, index: u64) -> [u8; 17] {
    let mut bytes = [0; 17];
    bytes[..9].copy_from_slice(&key(range, LOG));
    bytes[9..].copy_from_slice(&index.to_be_bytes());
    bytes
}

/// Adds the state of a replica to a batch.
pub(crate) fn put_state(batch: &mut WriteBatch, range: RangeId, state: &RangeState) {
    batch.put(Space::Raft, &key(range, STATE), &state.encode_to_vec());
}

/// Adds the hard state of a replica to a batch.
pub(crate) fn put_hard_state(batch: &mut WriteBatch, range: RangeId, state: HardState) {
    batch.put(Space::Raft, &key(range, HARD_STATE), &state.encode_to_vec());
}

/// Removes a replica but for its vote, which must not be given twice should the node become a member
/// again.
pub(crate) fn remove(batch: &mut WriteBatch, range: RangeId, hard_state: HardState) {
    batch.delete(Space::Raft, &key(range, STATE));
    batch.delete_range(Space::Raft, &key(range, LOG), &key(range, LOG + 1));
    put_hard_state(batch, range, HardState { commit: 0, ..hard_state });
}

/// Removes a replica for good: in its place lies a mark that no message makes another.
pub(crate) fn destroy(batch: &mut WriteBatch, range: RangeId) {
    batch.delete(Space::Raft, &key(range, STATE));
    batch.delete(Space::Raft, &key(range, HARD_STATE));
    batch.delete_range(Space::Raft, &key(range, LOG), &key(range, LOG + 1));
    batch.put(Space::Raft, &key(range, DESTROYED), &[]);
}

/// Whether a range was destroyed here.
pub(crate) fn is_destroyed(reader: &(impl Reader + ?Sized), range: RangeId) -> ReplicationResult<bool> {
    Ok(reader.get(Space::Raft, &key(range, DESTROYED))?.is_some())
}

fn damaged(range: RangeId, what: &str) -> ReplicationError {
    StorageError::corruption(format!("the {what} of range {range} is unreadable")).into()
}

/// The state of a replica, if there is one.
pub(crate) fn load_state(
    reader: &(impl Reader + ?Sized),
    range: RangeId,
) -> ReplicationResult<Option<RangeState>> {
    let Some(bytes) = reader.get(Space::Raft, &key(range, STATE))? else { return Ok(None) };
    let state = RangeState::decode(&*bytes).map_err(|_| damaged(range, "replica state"))?;
    if state.format != FORMAT {
        let message =
            format!("the replica of range {range} has format {}, this program reads {FORMAT}", state.format);
        return Err(StorageError::Incompatible(message).into());
    }
    Ok(Some(state))
}

/// The descriptor of a range of which a reader shows the whole state as of an entry at or after `index`: the replica
/// was there, complete, and had applied it. Effects and state are written in one batch, so this holds for all
/// of what a snapshot of the engine shows, within the descriptor's keys: others the range had at `index` may be
/// another's since, and no longer here.
///
/// # Errors
/// I/O errors and damage.
pub fn whole(
    reader: &(impl Reader + ?Sized),
    range: RangeId,
    index: u64,
) -> ReplicationResult<Option<RangeDescriptor>> {
    let state = load_state(reader, range)?;
    let complete = |state: &RangeState| !state.incomplete && state.applied >= state.whole_at.max(index);
    Ok(state.filter(complete).and_then(|state| state.descriptor))
}

/// The hard state of a replica.
pub(crate) fn load_hard_state(
    reader: &(impl Reader + ?Sized),
    range: RangeId,
) -> ReplicationResult<HardState> {
    match reader.get(Space::Raft, &key(range, HARD_STATE))? {
        Some(bytes) => HardState::decode(&*bytes).map_err(|_| damaged(range, "vote")),
        None => Ok(HardState::default()),
    }
}

/// The ranges with a replica in a store.
pub(crate) fn ranges(reader: &(impl Reader + ?Sized)) -> ReplicationResult<Vec<RangeId>> {
    let mut cursor = reader.cursor(Space::Raft, Bounds::all());
    let mut ranges = Vec::new();
    let mut next = 0;
    loop {
        cursor.seek(&key(next, 0));
        let Some((found, _)) = cursor.item() else { break };
        let Some((id, rest)) = found.split_first_chunk::<8>() else {
            return Err(StorageError::corruption("a key of the replication space is too short").into());
        };
        let id = u64::from_be_bytes(*id);
        if rest == [STATE] {
            ranges.push(id);
        }
        let Some(after) = id.checked_add(1) else { break };
        next = after;
    }
    cursor.status()?;
    Ok(ranges)
}
