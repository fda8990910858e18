//! The [`Engine`] trait: what the multi-version layer asks of an ordered key-value store.
//!
//! Every implementation passes the conformance suite in `tests/it`.

use crate::error::{StorageError, StorageResult};
use crate::garbage::GarbageFloors;
use bytes::Bytes;
use std::ops::Deref;

/// A separately ordered part of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Space {
    /// Newest versions.
    Data = 0,
    /// Older versions.
    History = 1,
    /// Durable intents.
    Locks = 2,
    /// Transaction records and the store's own keys.
    Meta = 3,
    /// Raft logs and what replicas keep besides their contents.
    Raft = 4,
}

impl Space {
    /// All spaces.
    pub const ALL: [Space; 5] = [Space::Data, Space::History, Space::Locks, Space::Meta, Space::Raft];

    /// The name of the column family.
    pub fn name(self) -> &'static str {
        match self {
            Space::Data => "data",
            Space::History => "history",
            Space::Locks => "locks",
            Space::Meta => "meta",
            Space::Raft => "raft",
        }
    }
}

/// A value that may still lie in the engine's own memory.
pub enum Pinned<'a> {
    /// In RocksDB's block cache or memtable.
    Rocks(rocksdb::DBPinnableSlice<'a>),
    /// Shared bytes.
    Shared(Bytes),
}

impl Deref for Pinned<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Pinned::Rocks(slice) => slice,
            Pinned::Shared(bytes) => bytes,
        }
    }
}

/// The keys a cursor may visit: from `lower` (included) to `upper` (excluded, if there is one).
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    /// First key.
    pub lower: &'a [u8],
    /// First key after the last.
    pub upper: Option<&'a [u8]>,
}

impl<'a> Bounds<'a> {
    /// From `lower` to before `upper`.
    pub fn new(lower: &'a [u8], upper: &'a [u8]) -> Self {
        Bounds { lower, upper: Some(upper) }
    }

    /// The whole space.
    pub fn all() -> Self {
        Bounds { lower: &[], upper: None }
    }
}

/// A position in an ordered space. It sees the space as it was when the cursor was made.
///
/// A cursor starts nowhere; after a `seek` it is at a key or, when [`Cursor::item`] is `None`, past
/// the end of its bounds or broken, which [`Cursor::status`] tells apart.
pub trait Cursor {
    /// Goes to the first key at or after `key`.
    fn seek(&mut self, key: &[u8]);
    /// Goes to the last key at or before `key`.
    fn seek_for_prev(&mut self, key: &[u8]);
    /// Goes to the first key of the bounds.
    fn seek_to_first(&mut self);
    /// Goes to the last key of the bounds.
    fn seek_to_last(&mut self);
    /// Goes one key forward. Does nothing when not at a key.
    fn next(&mut self);
    /// Goes one key back. Does nothing when not at a key.
    fn prev(&mut self);
    /// The key and value here.
    fn item(&self) -> Option<(&[u8], &[u8])>;
    /// The error that ended the iteration, if one did.
    ///
    /// # Errors
    /// What the engine met while it moved.
    fn status(&self) -> StorageResult<()>;
}

/// What lies first within bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstKey {
    /// This key.
    At(Bytes),
    /// Nothing does.
    Nothing,
    /// To find out would mean to pass by more of what was removed than is worth it.
    Unknown,
}

/// Point reads and cursors, on an engine or on a snapshot of it.
pub trait Reader {
    /// The value at a key.
    ///
    /// # Errors
    /// I/O errors and damage.
    fn get(&self, space: Space, key: &[u8]) -> StorageResult<Option<Pinned<'_>>>;

    /// The values at several keys, in their order. They are read one after the other or as of different moments.
    ///
    /// # Errors
    /// I/O errors and damage.
    fn get_many(&self, space: Space, keys: &[&[u8]]) -> StorageResult<Vec<Option<Pinned<'_>>>> {
        keys.iter().map(|key| self.get(space, key)).collect()
    }

    /// A cursor within `bounds`.
    fn cursor(&self, space: Space, bounds: Bounds<'_>) -> Box<dyn Cursor + '_>;

    /// The first key within `bounds`, at the cost of a few point reads at most.
    ///
    /// # Errors
    /// I/O errors and damage.
    fn first_key(&self, space: Space, bounds: Bounds<'_>) -> StorageResult<FirstKey> {
        let mut cursor = self.cursor(space, bounds);
        cursor.seek_to_first();
        let first = cursor.item().map(|(key, _)| FirstKey::At(Bytes::copy_from_slice(key)));
        cursor.status()?;
        Ok(first.unwrap_or(FirstKey::Nothing))
    }
}

/// An ordered key-value store with atomic batches.
pub trait Engine: Reader + Send + Sync + 'static {
    /// Applies a batch as a unit. With `sync` it and everything before it is durable on return.
    ///
    /// # Errors
    /// [`crate::StorageError::DiskFull`] if no space is left; then nothing took effect.
    fn write(&self, batch: &WriteBatch, sync: bool) -> StorageResult<()>;

    /// A view that later writes do not change.
    fn snapshot(&self) -> Box<dyn Reader + '_>;

    /// Makes everything durable and, where that exists, writes memory out to sorted files.
    ///
    /// # Errors
    /// I/O errors.
    fn flush(&self) -> StorageResult<()>;

    /// Promises that nobody reads below the floors any more: versions that only such readers could see may
    /// be dropped at the engine's leisure.
    fn set_garbage_floors(&self, floors: GarbageFloors);

    /// How the engine is doing.
    fn stats(&self) -> Stats;
}

/// What an engine tells about itself. Figures that do not exist are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of sorted files.
    pub disk_bytes: u64,
    /// Bytes of memtables.
    pub memtable_bytes: u64,
    /// Bytes in the block cache.
    pub cache_bytes: u64,
    /// Memory of open table readers outside the block cache.
    pub table_reader_bytes: u64,
    /// Bytes compaction has yet to rewrite.
    pub pending_compaction_bytes: u64,
    /// Files in level 0, all spaces.
    pub level0_files: u64,
    /// Errors met by background work so far.
    pub background_errors: u64,
}

/// What one operation of a batch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Sets a key.
    Put {
        /// Where.
        space: Space,
        /// The key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// Removes a key.
    Delete {
        /// Where.
        space: Space,
        /// The key.
        key: &'a [u8],
    },
    /// Removes the keys from `start` to before `end`.
    DeleteRange {
        /// Where.
        space: Space,
        /// First key.
        start: &'a [u8],
        /// First key after the last.
        end: &'a [u8],
    },
}

/// Version of encoded batches.
const BATCH_FORMAT: u8 = 1;
/// Bytes before the key of an encoded operation.
const OP_HEADER: usize = 10;

#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum OpKind {
    Put = 0,
    Delete = 1,
    DeleteRange = 2,
}

#[derive(Clone, Copy, Debug)]
struct OpMark {
    kind: OpKind,
    space: Space,
    /// Where the key begins in the buffer.
    start: usize,
    /// Where the key ends and the value begins.
    middle: usize,
    /// Where the value ends.
    end: usize,
}

/// Operations to apply as a unit, in order. One buffer holds all keys and values, so a batch that is
/// cleared and filled again allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    ops: Vec<OpMark>,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key.
    pub fn put(&mut self, space: Space, key: &[u8], value: &[u8]) {
        self.put_parts(space, &[key], &[value]);
    }

    /// Sets a key; key and value are given in pieces, which saves the caller joining them.
    pub fn put_parts(&mut self, space: Space, key: &[&[u8]], value: &[&[u8]]) {
        self.push(OpKind::Put, space, key, value);
    }

    /// Removes a key.
    pub fn delete(&mut self, space: Space, key: &[u8]) {
        self.push(OpKind::Delete, space, &[key], &[]);
    }

    /// Removes the keys from `start` to before `end`; nothing if `start >= end`.
    pub fn delete_range(&mut self, space: Space, start: &[u8], end: &[u8]) {
        if start < end {
            self.push(OpKind::DeleteRange, space, &[start], &[end]);
        }
    }

    /// Makes room for so many more operations, with so many bytes of keys and values.
    pub fn reserve(&mut self, ops: usize, bytes: usize) {
        self.ops.reserve(ops);
        self.bytes.reserve(bytes);
    }

    fn push(&mut self, kind: OpKind, space: Space, key: &[&[u8]], value: &[&[u8]]) {
        let start = self.bytes.len();
        key.iter().for_each(|part| self.bytes.extend_from_slice(part));
        let middle = self.bytes.len();
        value.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.ops.push(OpMark { kind, space, start, middle, end: self.bytes.len() });
    }

    /// Appends the operations of another batch.
    pub fn extend(&mut self, other: &WriteBatch) {
        let shift = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ops.extend(other.ops.iter().map(|op| OpMark {
            start: op.start + shift,
            middle: op.middle + shift,
            end: op.end + shift,
            ..*op
        }));
    }

    /// The operations in order.
    pub fn iter(&self) -> impl Iterator<Item = Op<'_>> {
        self.ops.iter().map(|op| {
            let (key, value) = (&self.bytes[op.start..op.middle], &self.bytes[op.middle..op.end]);
            match op.kind {
                OpKind::Put => Op::Put { space: op.space, key, value },
                OpKind::Delete => Op::Delete { space: op.space, key },
                OpKind::DeleteRange => Op::DeleteRange { space: op.space, start: key, end: value },
            }
        })
    }

    /// The batch as bytes that [`WriteBatch::decode`] reads, for logs and messages.
    ///
    /// One byte of format version; then, for each operation, a byte for its kind, a byte for its space,
    /// the lengths of key and value as 32-bit big-endian numbers, key and value.
    pub fn encode(&self) -> Bytes {
        let mut encoded = Vec::with_capacity(1 + self.bytes.len() + self.ops.len() * OP_HEADER);
        encoded.push(BATCH_FORMAT);
        for op in &self.ops {
            let (key, value) = (&self.bytes[op.start..op.middle], &self.bytes[op.middle..op.end]);
            encoded.extend_from_slice(&[op.kind as u8, op.space as u8]);
            // Keys and values are bounded far below by `kv_api`.
            encoded.extend_from_slice(&u32::try_from(key.len()).unwrap_or(u32::MAX).to_be_bytes());
            encoded.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
            encoded.extend_from_slice(key);
            encoded.extend_from_slice(value);
        }
        Bytes::from(encoded)
    }

    /// Appends the operations of an encoded batch.
    ///
    /// # Errors
    /// Damage; then some of the operations may have been appended.
    pub fn decode_into(&mut self, encoded: &[u8]) -> StorageResult<()> {
        let damaged = || StorageError::corruption("a write batch is unreadable");
        let mut rest = encoded.strip_prefix(&[BATCH_FORMAT]).ok_or_else(damaged)?;
        self.bytes.reserve(rest.len());
        while !rest.is_empty() {
            let (header, after) = rest.split_first_chunk::<OP_HEADER>().ok_or_else(damaged)?;
            let [kind, space, k0, k1, k2, k3, v0, v1, v2, v3] = *header;
            let kind = [OpKind::Put, OpKind::Delete, OpKind::DeleteRange].get(usize::from(kind));
            let space = Space::ALL.get(usize::from(space));
            let (kind, space) = kind.copied().zip(space.copied()).ok_or_else(damaged)?;
            let key_len = u32::from_be_bytes([k0, k1, k2, k3]) as usize;
            let value_len = u32::from_be_bytes([v0, v1, v2, v3]) as usize;
            let (key, after) = after.split_at_checked(key_len).ok_or_else(damaged)?;
            let (value, after) = after.split_at_checked(value_len).ok_or_else(damaged)?;
            self.push(kind, space, &[key], &[value]);
            rest = after;
        }
        Ok(())
    }

    /// The batch that was encoded.
    ///
    /// # Errors
    /// Damage.
    pub fn decode(encoded: &[u8]) -> StorageResult<WriteBatch> {
        let mut batch = WriteBatch::new();
        batch.decode_into(encoded)?;
        Ok(batch)
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Bytes of keys and values of what is put into some spaces.
    pub fn bytes_put(&self, spaces: &[Space]) -> usize {
        let counts = |op: &&OpMark| matches!(op.kind, OpKind::Put) && spaces.contains(&op.space);
        self.ops.iter().filter(counts).map(|op| op.end - op.start).sum()
    }

    /// Bytes of keys and values.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Empties the batch; keeps its memory up to `keep` bytes.
    pub fn clear(&mut self, keep: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(keep);
        self.ops.clear();
        self.ops.shrink_to(keep / size_of::<OpMark>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_survive_encoding() {
        let mut batch = WriteBatch::new();
        batch.put(Space::Data, b"k", b"v");
        batch.delete(Space::Locks, b"");
        batch.delete_range(Space::Raft, b"a", b"b");
        let encoded = batch.encode();
        let decoded = WriteBatch::decode(&encoded).expect("decodes");
        assert!(batch.iter().eq(decoded.iter()));
        for len in 0..encoded.len() {
            // A prefix that ends between two operations is a shorter batch; any other is an error.
            let cut = WriteBatch::decode(&encoded[..len]);
            assert!(cut.is_err() || cut.is_ok_and(|cut| cut.len() < batch.len()));
        }
        assert!(WriteBatch::decode(&[2]).is_err(), "another version");
        assert!(WriteBatch::decode(&[1, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_err(), "unknown operation");
    }
}
