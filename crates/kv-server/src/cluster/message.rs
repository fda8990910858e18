//! What the nodes of a cluster ask each other besides what their replicas do.
//!
//! Messages travel between the replicas' ([`replication::message::App`]) and may get lost like those: who asks
//! waits for a while and asks again if it matters. A receiver that does not know a kind does not answer.

use super::NodeRecord;
use bytes::Bytes;
use kv_api::Timestamp;
use replication::command::Freeze;
use replication::{NodeId, RangeDescriptor, RangeId};

/// A message.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    /// Names the question among those of the process that asks it; the answer has the same.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// What is asked or answered.
    #[prost(
        oneof = "Kind",
        tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 20, 21, 22, 23, 60, \
                                80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91"
    )]
    pub kind: Option<Kind>,
}

/// The kinds of message.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    /// Asks which nodes there are and who has the root range.
    #[prost(message, tag = "2")]
    GetBook(Empty),
    /// See [`Book`].
    #[prost(message, tag = "3")]
    Book(Book),
    /// See [`Report`]. Answered with `Done` once it is in the directory.
    #[prost(message, tag = "4")]
    Report(Report),
    /// The replica of a range that is no more is to be removed. Answered with `Done`.
    #[prost(message, tag = "5")]
    Gone(Gone),
    /// Done.
    #[prost(message, tag = "6")]
    Done(Empty),
    /// Asks the leaseholder of a range for a promise.
    #[prost(message, tag = "7")]
    GetPromise(GetPromise),
    /// See [`Promise`].
    #[prost(message, tag = "8")]
    Promise(Promise),
    /// The one asked cannot; see [`Refusal`].
    #[prost(message, tag = "9")]
    Refused(Refusal),
    /// See [`GetDigest`].
    #[prost(message, tag = "10")]
    GetDigest(GetDigest),
    /// See [`Digest`].
    #[prost(message, tag = "11")]
    Digest(Digest),
    /// The replica of a range holds something else than the others: it must not serve. Answered with `Done`.
    #[prost(message, tag = "12")]
    Distrust(Gone),
    /// Asks the leaseholder of the root range for the name of a range that is to be split off another.
    #[prost(message, tag = "13")]
    GetRangeId(GetRangeId),
    /// A name that no range has had.
    #[prost(message, tag = "14")]
    RangeId(Named),
    /// A range is to be kept otherwise: as the first one of its tenant says. Answered with `Done` by its leaseholder.
    #[prost(message, tag = "15")]
    Configure(Configure),
    /// See [`AskOutcome`]. Only the leaseholder of the key's range answers.
    #[prost(message, tag = "20")]
    AskOutcome(AskOutcome),
    /// See [`TxnOutcome`].
    #[prost(message, tag = "21")]
    TxnOutcome(TxnOutcome),
    /// Asks which transactions of a tenant wait for which.
    #[prost(message, tag = "22")]
    AskWaits(AskWaits),
    /// See [`Waits`].
    #[prost(message, tag = "23")]
    Waits(Waits),
    /// A range is to be split where a span begins or ends that is kept otherwise. Answered with `Done` by its
    /// leaseholder.
    #[prost(message, tag = "60")]
    Cut(Cut),
    /// See [`GetNeighbour`].
    #[prost(message, tag = "80")]
    GetNeighbour(GetNeighbour),
    /// The range that follows one, as the directory knows it.
    #[prost(message, tag = "81")]
    Neighbour(crate::directory::RangeRecord),
    /// See [`FreezeRange`].
    #[prost(message, tag = "82")]
    FreezeRange(FreezeRange),
    /// See [`Frozen`].
    #[prost(message, tag = "83")]
    Frozen(Frozen),
    /// See [`GetContents`].
    #[prost(message, tag = "84")]
    GetContents(GetContents),
    /// See [`Contents`].
    #[prost(message, tag = "85")]
    Contents(Contents),
    /// Asks whether a replica has applied an entry. Answered with `Done` once it has.
    #[prost(message, tag = "86")]
    Reached(Reached),
    /// See [`SettleMerge`].
    #[prost(message, tag = "87")]
    SettleMerge(SettleMerge),
    /// See [`MergeSettled`].
    #[prost(message, tag = "88")]
    MergeSettled(MergeSettled),
    /// See [`GetListed`].
    #[prost(message, tag = "89")]
    GetListed(GetListed),
    /// See [`Listed`].
    #[prost(message, tag = "90")]
    Listed(Listed),
    /// Whoever was to absorb a range has given up: its leaseholder is to see to it that it is served again. Answered
    /// with `Done`.
    #[prost(message, tag = "91")]
    MergeGivenUp(Gone),
}

/// Asks what becomes of a transaction over several ranges, or says it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AskOutcome {
    /// The tenant.
    #[prost(uint64, tag = "1")]
    pub tenant: u64,
    /// The transaction's id.
    #[prost(bytes = "bytes", tag = "2")]
    pub txn: Bytes,
    /// A key of the range that is asked: the anchor, if nothing else is said.
    #[prost(bytes = "bytes", tag = "3")]
    pub key: Bytes,
    /// Asks instead whether the key's range is prepared at or below this timestamp. If it is not, it never will be.
    #[prost(message, optional, tag = "4")]
    pub confirm: Option<Timestamp>,
    /// Says instead that the transaction committed here, as is on record at the anchor. Answered when the part is
    /// settled.
    #[prost(message, optional, tag = "5")]
    pub committed: Option<Timestamp>,
}

/// How it stands with a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum OutcomeStatus {
    /// Nobody can say yet.
    Pending = 0,
    /// The part asked about is prepared.
    Prepared = 1,
    /// It committed.
    Committed = 2,
    /// It did not commit and never will.
    Aborted = 3,
}

/// What becomes of a transaction.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct TxnOutcome {
    /// How it stands.
    #[prost(enumeration = "OutcomeStatus", tag = "1")]
    pub status: i32,
    /// Where it is prepared, or committed.
    #[prost(message, required, tag = "2")]
    pub timestamp: Timestamp,
}

/// See [`Kind::AskWaits`].
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct AskWaits {
    /// The tenant.
    #[prost(uint64, tag = "1")]
    pub tenant: u64,
}

/// A transaction that waits for another.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Wait {
    /// Id of the one that waits.
    #[prost(bytes = "bytes", tag = "1")]
    pub waiter: Bytes,
    /// Id of the one waited for.
    #[prost(bytes = "bytes", tag = "2")]
    pub holder: Bytes,
    /// How important the one that waits is.
    #[prost(enumeration = "kv_api::Priority", tag = "70")]
    pub priority: i32,
}

/// Who waits for whom on a node.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Waits {
    /// The waits.
    #[prost(message, repeated, tag = "1")]
    pub waits: Vec<Wait>,
}

/// Nothing more to say.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Empty {}

/// The nodes of the cluster.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Book {
    /// Their records.
    #[prost(message, repeated, tag = "1")]
    pub nodes: Vec<NodeRecord>,
    /// Who has replicas of the root range, the leaseholder first if it is known.
    #[prost(uint64, repeated, tag = "2")]
    pub root: Vec<NodeId>,
}

/// What leaseholders say of their ranges to the leaseholder of the root range: encoded
/// [`crate::directory::RangeRecord`]s.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Report {
    /// The records.
    #[prost(message, repeated, tag = "1")]
    pub records: Vec<crate::directory::RangeRecord>,
}

/// Names a range.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Gone {
    /// The range.
    #[prost(uint64, tag = "1")]
    pub range_id: RangeId,
}

/// See [`Kind::GetRangeId`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetRangeId {
    /// The range that is to be split.
    #[prost(uint64, tag = "1")]
    pub range_id: RangeId,
    /// Its first key.
    #[prost(bytes = "bytes", tag = "2")]
    pub start: Bytes,
    /// First key after it.
    #[prost(bytes = "bytes", tag = "3")]
    pub end: Bytes,
}

/// See [`Kind::Configure`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Configure {
    /// The range.
    #[prost(uint64, tag = "1")]
    pub range_id: RangeId,
    /// How it is to be kept: an encoded [`kv_api::batch::RangeConfig`].
    #[prost(bytes = "bytes", tag = "2")]
    pub config: Bytes,
}

/// See [`Kind::Cut`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Cut {
    /// The range.
    #[prost(uint64, tag = "1")]
    pub range_id: RangeId,
    /// First key of the new one.
    #[prost(bytes = "bytes", tag = "2")]
    pub key: Bytes,
}

/// Asks the leaseholder of the root range for the right neighbour of a range, which is to absorb it. Answered if the
/// directory knows the range as it is, and the two may be merged.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetNeighbour {
    /// The range.
    #[prost(uint64, tag = "1")]
    pub range_id: RangeId,
    /// Its first key.
    #[prost(bytes = "bytes", tag = "2")]
    pub start: Bytes,
    /// First key after it.
    #[prost(bytes = "bytes", tag = "3")]
    pub end: Bytes,
}

/// Asks the leaseholder of a range to freeze it, because its left neighbour is about to absorb it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FreezeRange {
    /// The range, as the directory knows it: so it must be, and have these members.
    #[prost(message, required, tag = "1")]
    pub record: crate::directory::RangeRecord,
    /// Its left neighbour.
    #[prost(uint64, tag = "2")]
    pub absorber: RangeId,
    /// The generation of that one's descriptor.
    #[prost(uint64, tag = "3")]
    pub generation: u64,
    /// Most bytes that it may hold.
    #[prost(uint64, tag = "4")]
    pub max_bytes: u64,
    /// Most batches per second that it may have.
    #[prost(uint64, tag = "5")]
    pub max_load: u64,
}

/// A range is frozen, and every member has that on its disk.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Frozen {
    /// Its descriptor.
    #[prost(message, required, tag = "1")]
    pub descriptor: RangeDescriptor,
    /// How it is frozen.
    #[prost(message, required, tag = "2")]
    pub freeze: Freeze,
    /// An entry of its log with which it was.
    #[prost(uint64, tag = "3")]
    pub index: u64,
    /// The oldest snapshot that could be read.
    #[prost(message, required, tag = "4")]
    pub oldest: Timestamp,
}

/// Asks for a piece of what a frozen range holds.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetContents {
    /// The range.
    #[prost(uint64, tag = "1")]
    pub range_id: RangeId,
    /// The entry of its log with which it was frozen.
    #[prost(uint64, tag = "2")]
    pub index: u64,
    /// Where the piece begins, as the one before says; absent: at the beginning.
    #[prost(message, optional, tag = "3")]
    pub from: Option<Place>,
}

/// A place in what a range holds.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Place {
    /// The number of the part ([`storage::range_spans`]).
    #[prost(uint64, tag = "1")]
    pub part: u64,
    /// The key in it.
    #[prost(bytes = "bytes", tag = "2")]
    pub key: Bytes,
}

/// A piece of what a range holds.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Contents {
    /// An encoded [`storage::WriteBatch`] of puts.
    #[prost(bytes = "bytes", tag = "1")]
    pub puts: Bytes,
    /// Where the next piece begins; absent: this is the last.
    #[prost(message, optional, tag = "2")]
    pub next: Option<Place>,
}

/// See [`Kind::Reached`].
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Reached {
    /// The range.
    #[prost(uint64, tag = "1")]
    pub range_id: RangeId,
    /// The entry of its log.
    #[prost(uint64, tag = "2")]
    pub index: u64,
}

/// Asks the leaseholder of a range whether it has absorbed its right neighbour; if it has not, it never will, as of
/// this generation of its descriptor.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SettleMerge {
    /// The range.
    #[prost(uint64, tag = "1")]
    pub absorber: RangeId,
    /// The generation.
    #[prost(uint64, tag = "2")]
    pub generation: u64,
    /// First key of the neighbour.
    #[prost(bytes = "bytes", tag = "3")]
    pub start: Bytes,
}

/// What became of a merge.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct MergeSettled {
    /// Whether the one was absorbed. If not, that is true for ever only if it is in the directory afterwards.
    #[prost(bool, tag = "1")]
    pub absorbed: bool,
}

/// Asks the leaseholder of the root range whether two ranges of a tenant are in the directory.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetListed {
    /// A key of the tenant.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The one that is frozen.
    #[prost(uint64, tag = "2")]
    pub frozen: RangeId,
    /// The one that was to absorb it.
    #[prost(uint64, tag = "3")]
    pub absorber: RangeId,
}

/// Which of two ranges are in the directory.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Listed {
    /// Whether the one that is frozen is.
    #[prost(bool, tag = "1")]
    pub frozen: bool,
    /// Whether the one that was to absorb it is.
    #[prost(bool, tag = "2")]
    pub absorber: bool,
}

/// A name for a range.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Named {
    /// The name.
    #[prost(uint64, tag = "1")]
    pub range_id: RangeId,
}

/// See [`Kind::GetPromise`].
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct GetPromise {
    /// The range.
    #[prost(uint64, tag = "1")]
    pub range_id: RangeId,
}

/// Who has applied the entry sees everything committed at or below the timestamp, and nothing will ever be
/// committed there any more.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Promise {
    /// The timestamp.
    #[prost(message, required, tag = "1")]
    pub timestamp: Timestamp,
    /// The entry of the range's log.
    #[prost(uint64, tag = "2")]
    pub index: u64,
    /// Whether the range is one that is read everywhere ([`crate::global`]): what clocks have not passed yet is not
    /// shown to anybody.
    #[prost(bool, tag = "60")]
    pub waits: bool,
    /// Whether the promise can be used for reads of the present for as long as it reaches.
    #[prost(bool, tag = "61")]
    pub present: bool,
    /// First key after those of which it is true.
    #[prost(bytes = "bytes", tag = "62")]
    pub end: Bytes,
    /// Nothing was written above this.
    #[prost(message, required, tag = "63")]
    pub written: Timestamp,
}

/// Why a question is not answered.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Refusal {
    /// One sentence.
    #[prost(string, tag = "1")]
    pub reason: String,
}

/// Asks for a digest of what a replica holds at a timestamp, once it has applied an entry.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct GetDigest {
    /// The range.
    #[prost(uint64, tag = "1")]
    pub range_id: RangeId,
    /// The timestamp.
    #[prost(message, required, tag = "2")]
    pub timestamp: Timestamp,
    /// The entry.
    #[prost(uint64, tag = "3")]
    pub index: u64,
}

/// What a replica holds at a timestamp.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Digest {
    /// SHA-256 over keys and values, each behind its length.
    #[prost(bytes = "bytes", tag = "1")]
    pub digest: Bytes,
    /// Keys that are visible there.
    #[prost(uint64, tag = "2")]
    pub keys: u64,
}

/// What a node says of itself with every sign of life.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Note {
    /// Replicas it has.
    #[prost(uint64, tag = "1")]
    pub replicas: u64,
    /// Leases it holds.
    #[prost(uint64, tag = "2")]
    pub leases: u64,
    /// Batches it carries out, per second.
    #[prost(uint64, tag = "3")]
    pub load: u64,
    /// Whether it holds the lease of the root range.
    #[prost(bool, tag = "4")]
    pub leads_root: bool,
}
