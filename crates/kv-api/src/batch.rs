//! Batches: what a coordinator asks of a leaseholder.
//!
//! A batch is evaluated as a unit: either every request of it took effect or none did, and the
//! response holds one entry per request in the order asked.

use crate::columns::{ColumnBatch, Program};
use crate::contention::{Contention, ListContention};
use crate::{Span, Timestamp};
use bytes::Bytes;

/// How a read locks the keys it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum LockStrength {
    /// Takes no lock and waits for none.
    None = 0,
    /// Excludes exclusive locks of others (`FOR SHARE`).
    Shared = 1,
    /// Excludes all locks of others (`FOR UPDATE`, and the read half of UPDATE and DELETE).
    Exclusive = 2,
}

/// What a request does when another transaction holds a conflicting lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum WaitPolicy {
    /// Waits its turn, at most [`Header::lock_timeout_ms`].
    Block = 0,
    /// Fails with [`crate::KvErrorKind::LockNotAvailable`] (`NOWAIT`).
    Error = 1,
    /// Leaves the key out of the result (`SKIP LOCKED`).
    Skip = 2,
}

/// How important a transaction is among those it contends with for locks.
///
/// A request of a `High` one does not wait for a lock that a `Low` one holds, nor behind one that waits: it takes the
/// lock. Whoever loses a lock that way finds out at its commit: what it read is validated, and one of which nothing is
/// validated fails with [`crate::KvErrorKind::Aborted`]. Locks are not taken from a transaction that has flushed
/// intents, is prepared or is being committed. Of transactions that wait for each other one with the lowest priority
/// fails. Nothing else depends on it: neither the order of latches, of the log, nor of the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Priority {
    /// As transactions usually are.
    Normal = 0,
    /// For work in the background.
    Low = 1,
    /// For work that must not wait for that in the background.
    High = 2,
}

impl Priority {
    fn rank(self) -> u8 {
        match self {
            Priority::Low => 0,
            Priority::Normal => 1,
            Priority::High => 2,
        }
    }
}

impl PartialOrd for Priority {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The more important one is greater.
impl Ord for Priority {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

/// A half-open range `[from, to)` of sequence numbers whose writes a rolled-back savepoint undid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct IgnoredSequences {
    /// First ignored sequence number.
    #[prost(uint32, tag = "1")]
    pub from: u32,
    /// First sequence number after the ignored ones.
    #[prost(uint32, tag = "2")]
    pub to: u32,
}

/// Names a transaction to the leaseholder.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TxnMeta {
    /// Sixteen random bytes, chosen by the coordinator.
    #[prost(bytes = "bytes", tag = "1")]
    pub id: Bytes,
    /// Highest sequence number used so far.
    #[prost(uint32, tag = "2")]
    pub sequence: u32,
    /// Sequence numbers that savepoint rollbacks undid, sorted and disjoint.
    #[prost(message, repeated, tag = "3")]
    pub ignored: Vec<IgnoredSequences>,
    /// Whether the transaction has flushed intents.
    #[prost(bool, tag = "4")]
    pub has_intents: bool,
    /// The lease under which it took its first lock or wrote its first intent, as
    /// [`BatchResponse::lease`] said; 0 if there is none. Under another lease they are gone, and its batches
    /// fail with [`crate::KvErrorKind::Aborted`].
    #[prost(uint64, tag = "5")]
    pub lease: u64,
    /// How important it is. One that is not known counts as normal.
    #[prost(enumeration = "Priority", tag = "70")]
    pub priority: i32,
    /// How often the transaction was handed to another coordinator ([`DetachTxn`]). A part that is known under
    /// another number fails the batch with [`crate::KvErrorKind::Aborted`].
    #[prost(uint32, tag = "40")]
    pub hop: u32,
}

/// What holds for all requests of a batch.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Header {
    /// The transaction; absent for a batch that is a transaction of its own.
    #[prost(message, optional, tag = "1")]
    pub txn: Option<TxnMeta>,
    /// Snapshot to read at; absent: the leaseholder picks the present and says which.
    #[prost(message, optional, tag = "2")]
    pub read_timestamp: Option<Timestamp>,
    /// What the transaction has read so far and must still find unchanged if its read timestamp
    /// moves. Sent with locking reads and with a commit.
    #[prost(message, repeated, tag = "3")]
    pub refresh_spans: Vec<Span>,
    /// Whether the read timestamp must stay (a snapshot already shown to the client depends on reads
    /// that are no longer tracked): a needed move is then a [`crate::KvErrorKind::Retry`].
    #[prost(bool, tag = "4")]
    pub fixed_read_timestamp: bool,
    /// What to do at a conflicting lock.
    #[prost(enumeration = "WaitPolicy", tag = "5")]
    pub wait_policy: i32,
    /// Longest wait for one lock in milliseconds; 0 waits without limit.
    #[prost(uint32, tag = "6")]
    pub lock_timeout_ms: u32,
    /// Scans of the batch stop after this many bytes of keys and values; 0 is the server's limit.
    #[prost(uint64, tag = "7")]
    pub target_bytes: u64,
    /// The range that holds every key of the batch, as the sender knows; 0 if it does not, which only
    /// requests about the cluster may leave so. A node without a replica of it, or with one that does not
    /// hold all keys, answers [`crate::KvErrorKind::RangeNotFound`].
    #[prost(uint64, tag = "8")]
    pub range_id: u64,
    /// Plain reads outside transactions: a replica that does not hold the lease may answer. Reads that name
    /// no timestamp are at the present time all the same: what was acknowledged before they were sent is
    /// seen.
    #[prost(bool, tag = "9")]
    pub any_replica: bool,
    /// The read timestamp comes from another range: what was committed above it, but above neither this nor what the
    /// clock of the range shows, may have been acknowledged before the transaction began. A read that meets such a
    /// version fails with [`crate::KvErrorKind::SnapshotBehind`]. The first time [`Timestamp::MAX`], and then what
    /// [`BatchResponse::clock`] said; absent where nothing is uncertain.
    #[prost(message, optional, tag = "10")]
    pub uncertainty_limit: Option<Timestamp>,
    /// Whether the transaction has read in other ranges what must stay unchanged: a snapshot that must move is
    /// then moved by the coordinator alone, which is told [`crate::KvErrorKind::SnapshotBehind`].
    #[prost(bool, tag = "11")]
    pub spans_elsewhere: bool,
}

/// Reads one key.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Get {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Lock to take. The key is locked also when it does not exist.
    #[prost(enumeration = "LockStrength", tag = "2")]
    pub lock: i32,
}

/// Reads the keys of a span in order, at most `limit` (0: no limit) of them.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Scan {
    /// First key.
    #[prost(bytes = "bytes", tag = "1")]
    pub start: Bytes,
    /// First key after the span.
    #[prost(bytes = "bytes", tag = "2")]
    pub end: Bytes,
    /// Descending order, from before `end` down to `start`.
    #[prost(bool, tag = "3")]
    pub reverse: bool,
    /// Most keys to return; 0 for no limit.
    #[prost(uint64, tag = "4")]
    pub limit: u64,
    /// Lock to take on each key returned.
    #[prost(enumeration = "LockStrength", tag = "5")]
    pub lock: i32,
    /// What is wanted of each row, and of which rows. Not together with a lock; with an aggregation, not together with a limit.
    #[prost(message, optional, boxed, tag = "6")]
    pub program: Option<Box<Program>>,
}

/// Writes a value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Put {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    /// Sequence number of the write within its transaction.
    #[prost(uint32, tag = "3")]
    pub sequence: u32,
}

/// Writes a value if the key holds `expected` (absent: if the key does not exist), and fails the batch
/// with [`crate::KvErrorKind::ConditionFailed`] otherwise.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ConditionalPut {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    /// What the key must hold.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub expected: Option<Bytes>,
    /// Sequence number of the write within its transaction.
    #[prost(uint32, tag = "4")]
    pub sequence: u32,
}

/// Deletes a key; no error if it does not exist.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Delete {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Sequence number of the write within its transaction.
    #[prost(uint32, tag = "2")]
    pub sequence: u32,
}

/// Deletes every key of a span that is visible at the read timestamp, at most `limit` (0: no limit).
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteRange {
    /// First key.
    #[prost(bytes = "bytes", tag = "1")]
    pub start: Bytes,
    /// First key after the span.
    #[prost(bytes = "bytes", tag = "2")]
    pub end: Bytes,
    /// Most keys to delete; 0 for no limit.
    #[prost(uint64, tag = "3")]
    pub limit: u64,
    /// Sequence number of the write within its transaction.
    #[prost(uint32, tag = "4")]
    pub sequence: u32,
}

/// Adds to the 64-bit counter at a key (8 bytes big-endian, missing is 0) outside any transaction and
/// returns the sum. Fails with [`crate::KvErrorKind::CounterOverflow`] beyond `i64`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Increment {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// What to add.
    #[prost(sint64, tag = "2")]
    pub by: i64,
}

/// Removes every version of every key of a span for good, outside any transaction: for dropped
/// tables and truncated contents that no descriptor refers to any more.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClearRange {
    /// First key.
    #[prost(bytes = "bytes", tag = "1")]
    pub start: Bytes,
    /// First key after the span.
    #[prost(bytes = "bytes", tag = "2")]
    pub end: Bytes,
}

/// Ends the transaction. Together with writes in the same batch this is a one-phase commit.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EndTxn {
    /// Commit, or abort.
    #[prost(bool, tag = "1")]
    pub commit: bool,
    /// For a commit of a transaction with writes in several ranges: does not commit it, but makes sure that
    /// this range's part can be.
    #[prost(message, optional, tag = "2")]
    pub prepare: Option<Prepare>,
    /// For a one-phase commit of a transaction that has read in other ranges: where it commits, or not at all
    /// ([`crate::KvErrorKind::SnapshotBehind`]).
    #[prost(message, optional, tag = "3")]
    pub commit_at: Option<Timestamp>,
    /// For an abort, sent to the range of the anchor: answered when it is on record that the transaction did not and
    /// never will commit. Fails with [`crate::KvErrorKind::Aborted`] if it has committed.
    #[prost(bool, tag = "4")]
    pub for_good: bool,
    /// For a one-phase commit: the latest timestamp at which it may commit. Where that is over it does not, and
    /// fails with [`crate::KvErrorKind::Retry`]. Coordinators see to it themselves where they choose the timestamp.
    #[prost(message, optional, tag = "5")]
    pub deadline: Option<Timestamp>,
}

/// Prepares a range's part of a transaction with writes in several: the spans read there are validated, the
/// writes become intents, and a record of the transaction is kept there until it is settled. Preparing again
/// what is prepared changes nothing. The answer says in [`BatchResponse::prepared_at`] from when on the
/// transaction can commit.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Prepare {
    /// The key whose range decides: what its record says of the transaction holds for all.
    #[prost(bytes = "bytes", tag = "1")]
    pub anchor: Bytes,
    /// Where the transaction is to commit. Where that is too late already, the part is prepared above it.
    #[prost(message, required, tag = "2")]
    pub timestamp: Timestamp,
    /// To the range of the anchor alone: all keys written, in all ranges, if they are few. The transaction is
    /// committed at `timestamp` as soon as all of them are prepared at or below it: its record is *staging*
    /// (`cockroachdb-2020`, section 3.1). If it is empty, the transaction is committed by [`DecideTxn`].
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub staged: Vec<Bytes>,
}

/// Commits a transaction that is prepared everywhere: writes so into the record in the range of its anchor.
/// Stands alone in its batch. Fails with [`crate::KvErrorKind::Aborted`] if it was aborted meanwhile. Deciding
/// again what is decided changes nothing.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DecideTxn {
    /// The anchor.
    #[prost(bytes = "bytes", tag = "1")]
    pub anchor: Bytes,
    /// Where it commits: at or above all timestamps at which it was prepared.
    #[prost(message, required, tag = "2")]
    pub timestamp: Timestamp,
    /// A key of each other range with a prepared part: who is told if the coordinator does not come to it.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub parts: Vec<Bytes>,
    /// All other ranges with a prepared part, if the node is to settle all of it: the transaction is committed, by its
    /// record or because every part is prepared where the record says, and the coordinator knows that. See
    /// [`BatchResponse::settled`].
    #[prost(uint64, repeated, tag = "4")]
    pub settles: Vec<u64>,
}

/// Tells a range with a prepared part of a transaction what was decided. Stands alone in its batch. No error if
/// there is no such part.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResolveTxn {
    /// A key of the range.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Where it committed; absent if it was aborted.
    #[prost(message, optional, tag = "2")]
    pub committed: Option<Timestamp>,
    /// Whether the record at the anchor says so: the part is settled then and its record removed before this
    /// is answered. Otherwise readers and writers are told, and nothing else happens.
    #[prost(bool, tag = "3")]
    pub recorded: bool,
}

/// Checks that no span of [`Header::refresh_spans`] changed since the read timestamp, and moves the
/// read timestamp to the present, or to where it is told. Nothing will be written there in these spans at or
/// below the new read timestamp. Fails with [`crate::KvErrorKind::Aborted`] if [`TxnMeta::lease`] is not the
/// lease in force.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Refresh {
    /// Where to.
    #[prost(message, optional, tag = "1")]
    pub to: Option<Timestamp>,
}

/// Takes a transaction's part in the batch's range from its connection, for another coordinator to take over with
/// [`AdoptTxn`]. There is a part afterwards also where there was none. It keeps its locks and intents for a bounded
/// time, is known under the next number ([`TxnMeta::hop`]), and is aborted if nobody comes. Stands alone in its batch,
/// which names the transaction, its present number and its snapshot.
///
/// Fails with [`crate::KvErrorKind::Aborted`] if the transaction cannot go on there, and with
/// [`crate::KvErrorKind::Overloaded`] if too many parts of the tenant wait to be taken over; nothing was carried out
/// then. Must not be sent twice.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DetachTxn {
    /// A key of the range.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
}

/// Takes over a part that [`DetachTxn`] has left: it belongs to this connection then. Stands alone in its batch, which
/// names the transaction and its new number. Of all who ask one succeeds; the others fail with
/// [`crate::KvErrorKind::Aborted`], as does everybody when the part is gone.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AdoptTxn {
    /// A key of the range.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Whether the part ends with this: nothing but the claim to take over rested on it. The transaction may come to
    /// the range anew.
    #[prost(bool, tag = "2")]
    pub claim_only: bool,
}

/// Splits the range that holds a key, so that the key is the first of a new range. Stands alone in its batch,
/// which names the range. For the control plane alone. Fails with [`crate::KvErrorKind::InvalidRequest`] if the
/// range cannot be split there.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SplitRange {
    /// The key, with its tenant's prefix.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
}

/// Has a range absorb its right neighbour. Stands alone in its batch, which names the range. For the control plane alone.
/// Fails with [`crate::KvErrorKind::InvalidRequest`] if it is the last range of its tenant, or does not end where it is
/// thought to: then it may have absorbed its neighbour before.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MergeRange {
    /// Its first key, with its tenant's prefix.
    #[prost(bytes = "bytes", tag = "1")]
    pub start: Bytes,
    /// First key after it.
    #[prost(bytes = "bytes", tag = "2")]
    pub end: Bytes,
}

/// Removes all keys of a tenant for good. For the control plane alone.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DropTenant {
    /// The tenant.
    #[prost(uint64, tag = "1")]
    pub tenant_id: u64,
}

/// Asks which KV nodes the cluster has. Stands alone in its batch. For the control plane alone.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodesRequest {}

/// Makes a KV node give away its lease and its replicas, or (`undo`) lets it take some again. Answered
/// when that is decided, not when it is done: [`NodeInfo`] shows how far it is. Stands alone in its
/// batch. For the control plane alone. Fails with [`crate::KvErrorKind::InvalidRequest`] for a node that
/// does not exist or cannot be spared.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DrainNode {
    /// The node.
    #[prost(uint64, tag = "1")]
    pub node_id: u64,
    /// Ends the draining instead.
    #[prost(bool, tag = "2")]
    pub undo: bool,
}

/// Asks which range holds a key. Any node with a replica of the range directory answers, perhaps with what
/// was true a moment ago; others answer [`crate::KvErrorKind::NotLeaseholder`] and name one that can. Stands
/// alone in its batch. The answer has one range, or none if no range holds the key.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RangeLookup {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
}

/// Makes the range of a new tenant; no error if there is one. Stands alone in its batch. For the control
/// plane alone.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateTenant {
    /// The tenant.
    #[prost(uint64, tag = "1")]
    pub tenant_id: u64,
}

/// Lists ranges in the order of their keys. Stands alone in its batch. For the control plane alone.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RangesRequest {
    /// Only ranges that begin after this key.
    #[prost(bytes = "bytes", tag = "1")]
    pub after: Bytes,
    /// Most ranges to list; 0 is the server's limit.
    #[prost(uint64, tag = "2")]
    pub limit: u64,
}

/// How the ranges of a tenant are kept, or those of one of its spans ([`SpanConfig`]).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RangeConfig {
    /// Replicas to have; 0 is the default of three.
    #[prost(uint32, tag = "1")]
    pub replicas: u32,
    /// `key=value` pairs of which the locality of every node with a replica has all.
    #[prost(string, repeated, tag = "2")]
    pub constraints: Vec<String>,
    /// `key=value` pairs, the dearest first: the lease goes to a node whose locality has it.
    #[prost(string, repeated, tag = "3")]
    pub lease_preferences: Vec<String>,
    /// How long replaced versions are kept, in seconds; 0 is the default of the node.
    #[prost(uint64, tag = "4")]
    pub gc_ttl_s: u64,
    /// Whether every replica serves reads of the present without asking anybody, for which commits wait until
    /// clocks have passed them: for what is read everywhere and seldom written. Only for spans.
    #[prost(bool, tag = "60")]
    pub global_reads: bool,
    /// The spans of the tenant that are kept otherwise, in the order of their keys; they do not overlap. Only the
    /// tenant's first range has them.
    #[prost(message, repeated, tag = "61")]
    pub spans: Vec<SpanConfig>,
    /// First key of the span to which the range belongs; empty if it belongs to none. Ranges are neither made
    /// nor left to lie across the borders of spans.
    #[prost(bytes = "bytes", tag = "62")]
    pub span_start: Bytes,
}

/// How the ranges of one span of a tenant's keys are kept. What is zero or empty is as for the tenant.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SpanConfig {
    /// First key.
    #[prost(bytes = "bytes", tag = "1")]
    pub start: Bytes,
    /// First key after the span.
    #[prost(bytes = "bytes", tag = "2")]
    pub end: Bytes,
    /// How; without spans of its own.
    #[prost(message, required, tag = "3")]
    pub config: RangeConfig,
}

/// Sets how the ranges of a tenant are kept. Stands alone in its batch, which names the tenant's range. For
/// the control plane alone.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ConfigureTenant {
    /// The tenant.
    #[prost(uint64, tag = "1")]
    pub tenant_id: u64,
    /// How.
    #[prost(message, required, tag = "2")]
    pub config: RangeConfig,
}

/// Sets how the ranges of a span of a tenant's keys are kept, which is one that was set before or overlaps none of
/// those; at most [`MAX_SPANS`] can be set. Stands alone in its batch, which names the tenant's first range. A tenant
/// sets constraints, lease preferences and global reads for spans of its own, the control plane everything for all.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ConfigureSpan {
    /// The tenant.
    #[prost(uint64, tag = "1")]
    pub tenant_id: u64,
    /// First key.
    #[prost(bytes = "bytes", tag = "2")]
    pub start: Bytes,
    /// First key after the span.
    #[prost(bytes = "bytes", tag = "3")]
    pub end: Bytes,
    /// How; absent: as for the tenant, and the span is none any more. No error if it was none.
    #[prost(message, optional, tag = "4")]
    pub config: Option<RangeConfig>,
}

/// Most spans of a tenant that are kept otherwise than the tenant.
pub const MAX_SPANS: usize = 256;

/// Compares the replicas of the batch's range. Stands alone in its batch. For the control plane alone.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CheckReplicas {}

/// One request of a batch.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Request {
    /// Which.
    #[prost(
        oneof = "RequestKind",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 40, 41, 50, 60, 80"
    )]
    pub kind: Option<RequestKind>,
}

/// The kinds of request.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum RequestKind {
    /// See [`Get`].
    #[prost(message, tag = "1")]
    Get(Get),
    /// See [`Scan`].
    #[prost(message, tag = "2")]
    Scan(Scan),
    /// See [`Put`].
    #[prost(message, tag = "3")]
    Put(Put),
    /// See [`ConditionalPut`].
    #[prost(message, tag = "4")]
    ConditionalPut(ConditionalPut),
    /// See [`Delete`].
    #[prost(message, tag = "5")]
    Delete(Delete),
    /// See [`DeleteRange`].
    #[prost(message, tag = "6")]
    DeleteRange(DeleteRange),
    /// See [`Increment`].
    #[prost(message, tag = "7")]
    Increment(Increment),
    /// See [`ClearRange`].
    #[prost(message, tag = "8")]
    ClearRange(ClearRange),
    /// See [`EndTxn`].
    #[prost(message, tag = "9")]
    EndTxn(EndTxn),
    /// See [`Refresh`].
    #[prost(message, tag = "10")]
    Refresh(Refresh),
    /// See [`DropTenant`].
    #[prost(message, tag = "11")]
    DropTenant(DropTenant),
    /// See [`NodesRequest`].
    #[prost(message, tag = "12")]
    Nodes(NodesRequest),
    /// See [`DrainNode`].
    #[prost(message, tag = "13")]
    DrainNode(DrainNode),
    /// See [`RangeLookup`].
    #[prost(message, tag = "14")]
    RangeLookup(RangeLookup),
    /// See [`CreateTenant`].
    #[prost(message, tag = "15")]
    CreateTenant(CreateTenant),
    /// See [`RangesRequest`].
    #[prost(message, tag = "16")]
    Ranges(RangesRequest),
    /// See [`ConfigureTenant`].
    #[prost(message, tag = "17")]
    ConfigureTenant(ConfigureTenant),
    /// See [`CheckReplicas`].
    #[prost(message, tag = "18")]
    CheckReplicas(CheckReplicas),
    /// See [`DecideTxn`].
    #[prost(message, tag = "19")]
    DecideTxn(DecideTxn),
    /// See [`ResolveTxn`].
    #[prost(message, tag = "20")]
    ResolveTxn(ResolveTxn),
    /// See [`SplitRange`].
    #[prost(message, tag = "21")]
    SplitRange(SplitRange),
    /// See [`ListContention`].
    #[prost(message, tag = "50")]
    ListContention(ListContention),
    /// See [`DetachTxn`].
    #[prost(message, tag = "40")]
    DetachTxn(DetachTxn),
    /// See [`AdoptTxn`].
    #[prost(message, tag = "41")]
    AdoptTxn(AdoptTxn),
    /// See [`ConfigureSpan`].
    #[prost(message, tag = "60")]
    ConfigureSpan(ConfigureSpan),
    /// See [`MergeRange`].
    #[prost(message, tag = "80")]
    MergeRange(MergeRange),
}

impl RequestKind {
    /// Whether the request is about the cluster, its nodes and ranges, and not about keys. Such a request
    /// stands alone in its batch and in no transaction.
    pub fn is_about_cluster(&self) -> bool {
        matches!(
            self,
            RequestKind::Nodes(_)
                | RequestKind::DrainNode(_)
                | RequestKind::RangeLookup(_)
                | RequestKind::CreateTenant(_)
                | RequestKind::DropTenant(_)
                | RequestKind::Ranges(_)
                | RequestKind::ConfigureTenant(_)
                | RequestKind::ConfigureSpan(_)
                | RequestKind::CheckReplicas(_)
                | RequestKind::SplitRange(_)
                | RequestKind::MergeRange(_)
        )
    }
}

impl From<RequestKind> for Request {
    fn from(kind: RequestKind) -> Self {
        Request { kind: Some(kind) }
    }
}

/// A batch of requests.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BatchRequest {
    /// What holds for all of them.
    #[prost(message, required, tag = "1")]
    pub header: Header,
    /// The requests.
    #[prost(message, repeated, tag = "2")]
    pub requests: Vec<Request>,
}

/// A key and its value.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeyValue {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// A KV node as the cluster knows it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeInfo {
    /// Number of the node, unique within the cluster, from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// `host:port` where clients and other nodes reach it.
    #[prost(string, tag = "2")]
    pub address: String,
    /// Where it stands: `key=value` pairs, the widest first, separated by commas; empty if nobody said.
    #[prost(string, tag = "3")]
    pub locality: String,
    /// Whether the others have heard of it lately.
    #[prost(bool, tag = "4")]
    pub live: bool,
    /// Whether it holds a lease.
    #[prost(bool, tag = "5")]
    pub leaseholder: bool,
    /// Replicas it has.
    #[prost(uint64, tag = "6")]
    pub replicas: u64,
    /// Whether it is giving away what it has.
    #[prost(bool, tag = "7")]
    pub draining: bool,
    /// Its process number on its own machine; 0 if it is not known.
    #[prost(uint64, tag = "8")]
    pub pid: u64,
    /// Leases it holds at the moment.
    #[prost(uint64, tag = "9")]
    pub leases: u64,
}

/// A node that has a replica.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReplicaInfo {
    /// The node.
    #[prost(uint64, tag = "1")]
    pub node_id: u64,
    /// Its `host:port`; empty if it is not known.
    #[prost(string, tag = "2")]
    pub address: String,
}

/// A range as the range directory has it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RangeInfo {
    /// Its name.
    #[prost(uint64, tag = "1")]
    pub range_id: u64,
    /// First key.
    #[prost(bytes = "bytes", tag = "2")]
    pub start: Bytes,
    /// First key after the range.
    #[prost(bytes = "bytes", tag = "3")]
    pub end: Bytes,
    /// Grows whenever keys or configuration change.
    #[prost(uint64, tag = "4")]
    pub generation: u64,
    /// Who has replicas, those that vote first; it may have changed since.
    #[prost(message, repeated, tag = "5")]
    pub replicas: Vec<ReplicaInfo>,
    /// The node that held the lease when it was last heard of; 0 if nobody knows.
    #[prost(uint64, tag = "6")]
    pub leaseholder: u64,
    /// How it is kept.
    #[prost(message, optional, tag = "7")]
    pub config: Option<RangeConfig>,
}

/// What a comparison found of one replica.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReplicaCheck {
    /// The range.
    #[prost(uint64, tag = "1")]
    pub range_id: u64,
    /// Whose replica it is.
    #[prost(uint64, tag = "2")]
    pub node_id: u64,
    /// Digest of what the replica holds at the timestamp; empty if it did not answer.
    #[prost(bytes = "bytes", tag = "3")]
    pub digest: Bytes,
    /// Keys visible at the timestamp.
    #[prost(uint64, tag = "4")]
    pub keys: u64,
    /// Where it was read.
    #[prost(message, required, tag = "5")]
    pub timestamp: Timestamp,
    /// Whether it holds what the others do.
    #[prost(bool, tag = "6")]
    pub agrees: bool,
    /// Why there is no digest; empty if there is one.
    #[prost(string, tag = "7")]
    pub problem: String,
}

/// What one request returned. Fields that do not belong to the request's kind are empty.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Response {
    /// `Get`: the value, if the key exists.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub value: Option<Bytes>,
    /// `Scan`: what was found, in the order asked.
    #[prost(message, repeated, tag = "2")]
    pub rows: Vec<KeyValue>,
    /// `Scan`, `DeleteRange`: where to go on if a limit ended it early. For a reverse scan the
    /// remaining span ends where the scan stopped.
    #[prost(message, optional, tag = "3")]
    pub resume: Option<Span>,
    /// `Increment`: the sum.
    #[prost(sint64, tag = "4")]
    pub counter: i64,
    /// `DeleteRange`: how many keys were deleted.
    #[prost(uint64, tag = "5")]
    pub deleted: u64,
    /// `Nodes`: the cluster's KV nodes in the order of their numbers.
    #[prost(message, repeated, tag = "6")]
    pub nodes: Vec<NodeInfo>,
    /// `RangeLookup`, `Ranges`: what was found, in the order of the keys.
    #[prost(message, repeated, tag = "7")]
    pub ranges: Vec<RangeInfo>,
    /// `CheckReplicas`: one per replica.
    #[prost(message, repeated, tag = "8")]
    pub checks: Vec<ReplicaCheck>,
    /// `Scan` with a program: what it returned.
    #[prost(message, optional, boxed, tag = "9")]
    pub columns: Option<Box<ColumnBatch>>,
    /// `ListContention`: what is known.
    #[prost(message, optional, boxed, tag = "50")]
    pub contention: Option<Box<Contention>>,
}

/// What a batch returned.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BatchResponse {
    /// One per request.
    #[prost(message, repeated, tag = "1")]
    pub responses: Vec<Response>,
    /// The snapshot the batch read at, possibly moved forward.
    #[prost(message, optional, tag = "2")]
    pub read_timestamp: Option<Timestamp>,
    /// Where the transaction committed, if the batch committed one or was one of its own.
    #[prost(message, optional, tag = "3")]
    pub commit_timestamp: Option<Timestamp>,
    /// Sequence number of the lease under which locks were taken or intents written; 0 if none were.
    #[prost(uint64, tag = "4")]
    pub lease: u64,
    /// `EndTxn` with [`Prepare`]: the transaction can commit here at this timestamp or above it.
    #[prost(message, optional, tag = "5")]
    pub prepared_at: Option<Timestamp>,
    /// What the clock of the range showed when the batch was answered, if the batch is one of a transaction
    /// over several ranges: everything committed here before it was sent lies at or below it.
    #[prost(message, optional, tag = "6")]
    pub clock: Option<Timestamp>,
    /// `EndTxn` with [`Prepare`] in a range with [`RangeConfig::global_reads`]: what the node's wall clock showed, in
    /// nanoseconds since the Unix epoch; 0 elsewhere. The commit is acknowledged when it has passed the timestamp at
    /// which the transaction commits.
    #[prost(uint64, tag = "60")]
    pub wall_ns: u64,
    /// Plain reads: the range is one with [`RangeConfig::global_reads`], and the next may go to any replica.
    #[prost(bool, tag = "61")]
    pub global_reads: bool,
    /// [`DecideTxn::settles`]: every part is settled and nothing of the transaction is left. A node that does not hold
    /// the leases of all these ranges, or does not know how to, only writes the record.
    #[prost(bool, tag = "62")]
    pub settled: bool,
}
