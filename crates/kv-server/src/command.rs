//! Commands: what evaluation hands to the pipeline.
//!
//! A command carries effects, not requests: the engine writes that evaluation came to, and what to do
//! once they are applied. The writes, at the command's timestamp, are what an entry of the Raft log holds.

use bytes::Bytes;
use kv_api::Timestamp;
use replication::RangeId;
use replication::command::RangeChange;
use storage::txn_record::{self, TxnRecord};
use storage::{StorageError, StorageResult, WriteBatch, mvcc};
use tokio::sync::oneshot;

/// A version to write at the timestamp the command is given.
#[derive(Debug)]
pub struct NewVersion {
    /// The key.
    pub key: Bytes,
    /// Its value; `None` for a tombstone.
    pub value: Option<Bytes>,
    /// What the data space holds at the key now.
    pub replaced: Option<Bytes>,
}

/// What a command does to the engine.
#[derive(Debug, Default)]
pub struct Effects {
    /// Writes that do not depend on the command's timestamp. They come first.
    pub raw: WriteBatch,
    /// Versions at the command's timestamp.
    pub versions: Vec<NewVersion>,
    /// The first key of the range and the record of a transaction whose intents stay for now; it gets the
    /// command's timestamp.
    pub record: Option<Box<(Bytes, TxnRecord)>>,
}

impl Effects {
    /// Appends the engine writes at `timestamp` to a batch.
    ///
    /// # Errors
    /// Damage in a replaced version.
    pub fn encode(&self, timestamp: Timestamp, batch: &mut WriteBatch) -> StorageResult<()> {
        batch.extend(&self.raw);
        for version in &self.versions {
            let (value, replaced) = (version.value.as_deref(), version.replaced.as_deref());
            mvcc::put_version(batch, &version.key, timestamp, value, replaced)?;
        }
        if let Some((range_start, record)) = self.record.as_deref() {
            txn_record::put(batch, range_start, &TxnRecord { timestamp, ..record.clone() });
        }
        Ok(())
    }

    /// About how many bytes of memory the effects take.
    pub fn byte_len(&self) -> usize {
        let version = |version: &NewVersion| {
            let len = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
            64 + version.key.len() + len(&version.value) + len(&version.replaced)
        };
        self.raw.byte_len() + self.versions.iter().map(version).sum::<usize>()
    }
}

/// What runs when a command is applied and before any reader may rely on its effects.
pub type BeforeVisible = Box<dyn FnOnce(Timestamp) + Send>;
/// What runs when a command is applied, or could not be.
pub type Done = Box<dyn FnOnce(Result<Timestamp, CommandError>) + Send>;

/// Why a command was not applied, or not seen to be.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandError {
    /// The engine failed: whether it was applied is known when the node has restarted.
    Storage(StorageError),
    /// It has no effect and never will: the lease it was evaluated under is over.
    Rejected,
    /// It has no effect and never will: there is no space on the disk.
    NoSpace,
    /// The lease was lost while it was on its way: it may have an effect.
    Unknown,
}

/// Whether a command takes a place in the order of commits, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// None, and so no timestamp of its own: intents being flushed or resolved.
    None,
    /// The present.
    Present,
    /// This timestamp, or the present if that is later.
    From(Timestamp),
    /// This timestamp; if the present is later, the command is refused.
    Exactly(Timestamp),
    /// The present; if that is later than this timestamp, the command is refused.
    By(Timestamp),
}

impl Order {
    /// Whether there is one.
    pub fn is_some(self) -> bool {
        self != Order::None
    }
}

/// Effects on their way to the engine.
pub struct Command {
    /// The range whose contents they change.
    pub range: RangeId,
    /// The engine writes.
    pub effects: Effects,
    /// What becomes of the range itself, and which ranges come to be.
    pub change: Option<RangeChange>,
    /// The lease under which it was evaluated; under another it has no effect.
    pub lease: u64,
    /// The timestamp it wants.
    pub order: Order,
    /// See [`BeforeVisible`].
    pub before_visible: Option<BeforeVisible>,
    /// Told when the command has waited for long while the node could not reach a majority: it may be
    /// applied yet, but whoever waits should not any more.
    pub late: Option<oneshot::Sender<()>>,
    /// See [`Done`].
    pub done: Done,
}
