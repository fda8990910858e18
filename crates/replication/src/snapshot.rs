//! Snapshots: the contents of a range on their way to a replica that cannot be helped with the log.
//!
//! The sender reads a chunk at a time, always from where it stopped, and sends the next when the last is
//! acknowledged: that is the back-pressure, and nothing is held open in between. So the chunks show the
//! range at different times, all at or after the snapshot's index. Commands hold effects, the puts and
//! deletes themselves; the receiver applies those after the index in their order, including the ones it
//! has seen parts of, and then every key holds what the last command that touched it left, as everywhere. Until
//! it has applied as much as the sender had when it read the last chunk, what it holds is of no one instant
//! ([`RangeState::whole_at`]): good enough to go on from, not to be read.
//!
//! The receiver's old contents are gone with the first chunk. It marks itself incomplete in the same batch,
//! and stays so, across restarts, until the last chunk is durable.

use crate::Millis;
use crate::message::{Envelope, NodeId, Payload, RaftMessage, RangeId, SnapshotChunk};
use crate::state::{RangeDescriptor, RangeState};
use bytes::Bytes;
use prost::Message;
use storage::{Bounds, Reader, Space, StorageResult, WriteBatch, range_spans};

/// After how long a chunk that was not acknowledged is sent again.
const RESEND_MS: Millis = 1000;
/// After how long the transfer is given up.
const GIVE_UP_MS: Millis = 10_000;

/// A snapshot being sent.
pub struct Transfer {
    range: RangeId,
    id: u64,
    to: NodeId,
    announcement: RaftMessage,
    /// The state at the snapshot's index.
    state: RangeState,
    /// What is still to be read, last first.
    rest: Vec<(Space, Bytes, Bytes)>,
    /// The chunk under way.
    chunk: SnapshotChunk,
    sent_at: Millis,
    heard_at: Millis,
}

/// What is to be done about a transfer.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing now.
    Wait,
    /// Send the chunk.
    Send,
    /// It is complete, as far as the sender is concerned.
    Finished,
    /// It failed.
    Failed,
}

impl Transfer {
    /// Begins a transfer.
    ///
    /// # Errors
    /// I/O errors and damage met while reading.
    pub fn begin(
        id: u64,
        to: NodeId,
        announcement: RaftMessage,
        state: RangeState,
        descriptor: &RangeDescriptor,
        now: Millis,
    ) -> Self {
        let mut rest = range_spans(&descriptor.start, &descriptor.end);
        rest.reverse();
        Transfer {
            range: descriptor.range_id,
            id,
            to,
            announcement,
            state,
            rest,
            chunk: SnapshotChunk::default(),
            sent_at: now,
            heard_at: now,
        }
    }

    /// The index of the snapshot; the log after it must stay until the transfer has ended.
    pub fn index(&self) -> u64 {
        self.state.applied
    }

    /// Reads the next chunk from contents in which the entries up to `applied` are applied.
    ///
    /// # Errors
    /// I/O errors and damage.
    pub fn read(
        &mut self,
        reader: &(impl Reader + ?Sized),
        sequence: u64,
        applied: u64,
        chunk_bytes: usize,
    ) -> StorageResult<()> {
        let mut puts = WriteBatch::new();
        while puts.byte_len() < chunk_bytes
            && let Some((space, start, end)) = self.rest.pop()
        {
            let mut cursor = reader.cursor(space, Bounds::new(&start, &end));
            cursor.seek_to_first();
            while let Some((key, value)) = cursor.item() {
                if puts.byte_len() >= chunk_bytes {
                    self.rest.push((space, Bytes::copy_from_slice(key), end.clone()));
                    break;
                }
                puts.put(space, key, value);
                cursor.next();
            }
            cursor.status()?;
        }
        let last = self.rest.is_empty();
        self.state.whole_at = applied;
        let announced = sequence == 0 || last;
        self.chunk = SnapshotChunk {
            range_id: self.range,
            transfer: self.id,
            sequence,
            puts: puts.encode(),
            announcement: announced.then(|| self.announcement.clone()),
            last,
            state: if announced { self.state.encode_to_vec().into() } else { Bytes::new() },
        };
        Ok(())
    }

    /// The chunk under way, to be sent now.
    pub fn envelope(&mut self, now: Millis) -> Envelope {
        self.sent_at = now;
        Envelope {
            to: self.to,
            payload: Some(Payload::SnapshotChunk(self.chunk.clone())),
            ..Envelope::default()
        }
    }

    /// A chunk was acknowledged, or refused. `Send` asks for the next to be read.
    pub fn acknowledged(&mut self, transfer: u64, sequence: u64, refused: bool, now: Millis) -> Progress {
        if transfer != self.id || sequence != self.chunk.sequence {
            return Progress::Wait;
        }
        self.heard_at = now;
        match (refused, self.chunk.last) {
            (true, _) => Progress::Failed,
            (false, true) => Progress::Finished,
            (false, false) => Progress::Send,
        }
    }

    /// The sequence number of the chunk under way.
    pub fn sequence(&self) -> u64 {
        self.chunk.sequence
    }

    /// Whether to send the chunk again.
    pub fn tick(&self, now: Millis) -> Progress {
        if now.saturating_sub(self.heard_at) >= GIVE_UP_MS {
            Progress::Failed
        } else if now.saturating_sub(self.sent_at) >= RESEND_MS {
            Progress::Send
        } else {
            Progress::Wait
        }
    }
}

/// A snapshot being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// Who sends it.
    pub from: NodeId,
    /// Its process.
    pub epoch: u64,
    /// The transfer.
    pub transfer: u64,
    /// The chunk that comes next.
    pub next: u64,
    /// When the last one came.
    pub heard_at: Millis,
}

impl Receiver {
    /// Whether this is the transfer.
    pub fn is(&self, from: NodeId, epoch: u64, transfer: u64) -> bool {
        (self.from, self.epoch, self.transfer) == (from, epoch, transfer)
    }

    /// Whether more is to be expected.
    pub fn is_active(&self, now: Millis) -> bool {
        now.saturating_sub(self.heard_at) < 3 * RESEND_MS
    }
}

/// Adds the removal of everything in a range to a batch.
pub fn clear(batch: &mut WriteBatch, start: &[u8], end: &[u8]) {
    for (space, start, end) in range_spans(start, end) {
        batch.delete_range(space, &start, &end);
    }
}
