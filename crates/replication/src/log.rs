//! The log of a group, as raft-rs reads it.
//!
//! The newest entries stay in memory, because followers are sent them and they are about to be applied, and
//! so does the term of every entry; older ones are read from the engine when a follower needs them. What
//! raft-rs is given here is always what was handed to the engine, for nothing reads in between.
//!
//! raft-rs takes it for impossible that a term or an entry to apply cannot be read, and ends the process. So
//! all of a log is read and checked when it is opened, and neither is read from the disk afterwards. If an
//! old entry cannot be read later, raft-rs is told that it was truncated, and sends a snapshot.

use crate::error::{ReplicationError, ReplicationResult};
use crate::message::{Entry, Members, RangeId};
use crate::state::{HardState, RangeState, load_hard_state, log_key};
use prost::Message;
use raft::eraftpb;
use raft::{GetEntriesContext, RaftState, Storage};
use std::collections::VecDeque;
use std::sync::Arc;
use storage::{Bounds, Engine, Space, StorageError, WriteBatch};

/// Bytes of applied entries kept in memory, at most.
const CACHE_BYTES: usize = 1 << 20;
/// What an entry costs besides its data.
const ENTRY_OVERHEAD: usize = 96;

/// A group's log and the state raft-rs begins with.
pub struct Log {
    range: RangeId,
    engine: Arc<dyn Engine>,
    hard_state: HardState,
    members: Members,
    truncated: (u64, u64),
    applied: u64,
    last: u64,
    /// The terms of the entries after the truncated one.
    terms: VecDeque<u64>,
    /// The entries up to `last` without a gap, as many as are in memory: at least those not applied.
    cache: VecDeque<eraftpb::Entry>,
    cache_bytes: usize,
    /// Bytes of entries in the log, in memory or not, since this process knows it.
    bytes: usize,
}

fn cost(entry: &eraftpb::Entry) -> usize {
    entry.data.len() + entry.context.len() + ENTRY_OVERHEAD
}

fn decode(range: RangeId, index: u64, bytes: Option<&[u8]>) -> ReplicationResult<eraftpb::Entry> {
    let entry = bytes.and_then(|bytes| Entry::decode(bytes).ok()).and_then(|entry| entry.to_raft());
    entry.filter(|entry| entry.index == index).ok_or_else(|| {
        let message = format!("entry {index} of the log of range {range} is missing or unreadable");
        StorageError::corruption(message).into()
    })
}

/// The entries after the truncated one.
fn load_entries(
    engine: &dyn Engine,
    range: RangeId,
    truncated: u64,
) -> ReplicationResult<Vec<eraftpb::Entry>> {
    let (low, high) = (log_key(range, truncated.saturating_add(1)), log_key(range, u64::MAX));
    let mut cursor = engine.cursor(Space::Raft, Bounds::new(&low, &high));
    let mut entries = Vec::new();
    cursor.seek_to_first();
    while let Some((_, value)) = cursor.item() {
        let index = truncated + 1 + entries.len() as u64;
        entries.push(decode(range, index, Some(value))?);
        cursor.next();
    }
    cursor.status()?;
    Ok(entries)
}

impl Log {
    /// The log of a replica on disk.
    ///
    /// # Errors
    /// I/O errors and damage: a gap, or an entry that cannot be read.
    pub fn load(engine: Arc<dyn Engine>, range: RangeId, state: &RangeState) -> ReplicationResult<Self> {
        let mut hard_state = load_hard_state(&*engine, range)?;
        let entries = load_entries(&*engine, range, state.truncated)?;
        let last = state.truncated + entries.len() as u64;
        if last < state.applied {
            let message =
                format!("the log of range {range} ends at {last}, before what is applied, {}", state.applied);
            return Err(StorageError::corruption(message).into());
        }
        // The commit index is written with the next thing that must be; what is applied was committed. An
        // incomplete replica has nothing to apply entries to.
        let most = if state.incomplete { state.applied } else { last };
        hard_state.commit = hard_state.commit.clamp(state.applied, most);
        let mut log = Log {
            range,
            engine,
            hard_state,
            members: state.members.clone(),
            truncated: (state.truncated, state.truncated_term),
            applied: state.applied,
            last,
            terms: VecDeque::new(),
            cache: VecDeque::new(),
            cache_bytes: 0,
            bytes: 0,
        };
        for entry in entries {
            log.bytes += cost(&entry);
            log.terms.push_back(entry.term);
            if entry.index > state.applied {
                log.cache_bytes += cost(&entry);
                log.cache.push_back(entry);
            }
        }
        Ok(log)
    }

    /// The last entry.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The last entry removed from the front.
    pub fn truncated(&self) -> u64 {
        self.truncated.0
    }

    /// About how many bytes of entries were added since the last truncation.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The hard state.
    pub fn hard_state(&self) -> HardState {
        self.hard_state
    }

    /// Notes a hard state that is being written.
    pub fn set_hard_state(&mut self, state: HardState) {
        self.hard_state = state;
    }

    fn first_cached(&self) -> u64 {
        self.last + 1 - self.cache.len() as u64
    }

    /// Appends entries, in place of those from the first of them on.
    ///
    /// # Errors
    /// If they leave a gap, or would replace what was truncated.
    pub fn append(&mut self, entries: &[eraftpb::Entry], batch: &mut WriteBatch) -> ReplicationResult<()> {
        let Some(first) = entries.first().map(|entry| entry.index) else { return Ok(()) };
        if first > self.last + 1 || first <= self.truncated.0 {
            let message =
                format!("entry {first} does not fit a log from {} to {}", self.truncated.0, self.last);
            return Err(ReplicationError::Internal(message));
        }
        for index in first..=self.last {
            batch.delete(Space::Raft, &log_key(self.range, index));
        }
        while self.last >= first {
            self.last -= 1;
            self.terms.pop_back();
            if let Some(entry) = self.cache.pop_back() {
                self.cache_bytes -= cost(&entry);
            }
        }
        for entry in entries {
            batch.put(Space::Raft, &log_key(self.range, entry.index), &Entry::from(entry).encode_to_vec());
            self.cache_bytes += cost(entry);
            self.bytes += cost(entry);
            self.cache.push_back(entry.clone());
            self.terms.push_back(entry.term);
            self.last = entry.index;
        }
        Ok(())
    }

    /// Lets memory go of entries that are applied.
    pub fn trim(&mut self, applied: u64) {
        while self.cache_bytes > CACHE_BYTES
            && let Some(entry) = self.cache.front()
            && entry.index < applied
        {
            self.cache_bytes -= cost(entry);
            self.cache.pop_front();
        }
    }

    /// Removes the entries up to `index`.
    ///
    /// # Errors
    /// If the term of that entry cannot be read.
    pub fn truncate(&mut self, index: u64, batch: &mut WriteBatch) -> ReplicationResult<u64> {
        let missing =
            || ReplicationError::Internal(format!("there is no entry {index} to truncate the log at"));
        let term = self.known_term(index).ok_or_else(missing)?;
        let (from, to) = (log_key(self.range, self.truncated.0 + 1), log_key(self.range, index + 1));
        batch.delete_range(Space::Raft, &from, &to);
        let removed = usize::try_from(index.saturating_sub(self.truncated.0)).unwrap_or(usize::MAX);
        self.terms.drain(..removed.min(self.terms.len()));
        self.truncated = (index, term);
        self.bytes = 0;
        while self.cache.front().is_some_and(|entry| entry.index <= index) {
            if let Some(entry) = self.cache.pop_front() {
                self.cache_bytes -= cost(&entry);
            }
        }
        Ok(term)
    }

    /// Begins anew after a snapshot.
    pub fn restart(&mut self, index: u64, term: u64, batch: &mut WriteBatch) {
        batch.delete_range(Space::Raft, &log_key(self.range, 0), &log_key(self.range, u64::MAX));
        (self.truncated, self.last, self.applied) = ((index, term), index, index);
        self.terms.clear();
        self.cache.clear();
        (self.cache_bytes, self.bytes) = (0, 0);
    }

    fn read(&self, index: u64) -> ReplicationResult<eraftpb::Entry> {
        let first = self.first_cached();
        match index.checked_sub(first).and_then(|place| self.cache.get(usize::try_from(place).ok()?)) {
            Some(entry) => Ok(entry.clone()),
            None => self.read_stored(index),
        }
    }

    fn read_stored(&self, index: u64) -> ReplicationResult<eraftpb::Entry> {
        let bytes = self.engine.get(Space::Raft, &log_key(self.range, index))?;
        decode(self.range, index, bytes.as_deref())
    }

    fn known_term(&self, index: u64) -> Option<u64> {
        match index.checked_sub(self.truncated.0)? {
            0 => Some(self.truncated.1),
            place => self.terms.get(usize::try_from(place - 1).ok()?).copied(),
        }
    }

    /// Whether an entry after `index` changes the members.
    pub fn changes_members_after(&self, index: u64) -> bool {
        let changes = |entry: &eraftpb::Entry| entry.get_entry_type() != eraftpb::EntryType::EntryNormal;
        // What cannot be read may be a change.
        (index.max(self.truncated.0).saturating_add(1)..=self.last)
            .any(|index| self.read(index).map_or(true, |entry| changes(&entry)))
    }
}

impl Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let mut hard_state = eraftpb::HardState::default();
        hard_state.term = self.hard_state.term;
        hard_state.vote = self.hard_state.vote;
        hard_state.commit = self.hard_state.commit;
        Ok(RaftState { hard_state, conf_state: (&self.members).into() })
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<eraftpb::Entry>> {
        if low <= self.truncated.0 {
            return Err(raft::Error::Store(raft::StorageError::Compacted));
        }
        if high > self.last + 1 {
            return Err(raft::Error::Store(raft::StorageError::Unavailable));
        }
        let max_size = max_size.into().unwrap_or(u64::MAX);
        let mut size = 0_u64;
        let mut entries = Vec::new();
        for index in low..high {
            let entry = match self.read(index) {
                Ok(entry) => entry,
                Err(error) => {
                    tracing::error!(range = self.range, "an entry of the log is lost: {error}");
                    return Err(raft::Error::Store(raft::StorageError::Compacted));
                }
            };
            size = size.saturating_add(cost(&entry) as u64);
            if size > max_size && !entries.is_empty() {
                break;
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index < self.truncated.0 {
            return Err(raft::Error::Store(raft::StorageError::Compacted));
        }
        if index > self.last {
            return Err(raft::Error::Store(raft::StorageError::Unavailable));
        }
        self.known_term(index).ok_or(raft::Error::Store(raft::StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.truncated.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last)
    }

    fn snapshot(&self, request_index: u64, _: u64) -> raft::Result<eraftpb::Snapshot> {
        if self.applied < request_index || self.applied < self.truncated.0 {
            return Err(raft::Error::Store(raft::StorageError::SnapshotTemporarilyUnavailable));
        }
        // Only that there is one: what is in it is read while it is sent.
        let mut snapshot = eraftpb::Snapshot::default();
        let metadata = snapshot.mut_metadata();
        metadata.index = self.applied;
        metadata.term = Storage::term(self, metadata.index)?;
        metadata.set_conf_state((&self.members).into());
        Ok(snapshot)
    }
}

impl Log {
    /// Notes what is applied and who belongs to the group, for snapshots.
    pub fn set_applied(&mut self, applied: u64, members: &Members) {
        self.applied = applied;
        if self.members != *members {
            self.members.clone_from(members);
        }
    }
}
