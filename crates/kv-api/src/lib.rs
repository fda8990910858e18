//! The words SQL nodes and KV nodes share.
//!
//! # What it is for
//!
//! Every request that reaches the distributed keyspace is one of the types of this crate: keys and
//! tenant prefixes ([`key`]), hybrid-logical timestamps ([`timestamp`]), batches ([`batch`]), typed
//! errors ([`error`]) and the frames they travel in ([`wire`]). It does no I/O, reads no clock and
//! depends on neither side.
//!
//! # The transaction protocol
//!
//! A transaction is run by a *coordinator* (crate `kv-client`) against the *leaseholders* of the ranges that
//! hold the keys it touches (crate `kv-server`). The protocol keeps the concepts of `cockroachdb-2020`,
//! sections 3 and 4. A transaction within one range, which is the rule, needs little of it.
//!
//! * **Snapshot.** The first read carries no read timestamp; the leaseholder picks the present time of
//!   the range's hybrid-logical clock and returns it in [`batch::BatchResponse::read_timestamp`]. Later reads
//!   of the transaction carry it, in whichever range. A leaseholder that is asked to read at a timestamp moves
//!   the clock of its range there first and waits until nothing at or below it is in flight: what was read at a
//!   timestamp never changes.
//! * **Uncertainty.** One clock hands out all timestamps of a range, but two ranges have two. The first reads
//!   in each further range carry [`batch::Header::uncertainty_limit`]: a version above the read timestamp and at or
//!   below what the clock of that range shows may have been acknowledged before the transaction began. Such a read
//!   fails with [`error::KvErrorKind::SnapshotBehind`], and the coordinator moves the snapshot. What the clock showed is
//!   returned ([`batch::BatchResponse::clock`]) and limits what is uncertain to later reads there (`cockroachdb-2020`,
//!   section 4.2, with the clock of the range as the observed timestamp). Since every version lies at or below the
//!   clock of its range before it is acknowledged, the interval needs no other bound, and no read is stale
//!   however far the wall clocks of nodes are apart.
//! * **Writes are buffered** in the coordinator and overlaid on what it reads. They reach the
//!   leaseholder together with [`batch::EndTxn`] as one batch: the one-phase commit of section 3.3.
//!   A transaction whose buffer outgrows its budget flushes: writes without `EndTxn` become durable
//!   *intents* in the lock space, found by readers and writers, finalized through the transaction
//!   record (section 3.2).
//! * **Locks.** A read may lock what it returns ([`batch::LockStrength`]). Such locks live in the
//!   leaseholder's memory with a fair wait queue per key; a cycle of waiters within a range is found when it
//!   closes, one over several soon after, and one of its requests fails with
//!   [`error::KvErrorKind::Deadlock`]: one with the lowest [`batch::Priority`], and of those the one that closes the
//!   cycle. A transaction of high priority takes locks from those of low priority. Locks are an optimization for contention, never what correctness rests
//!   on under SERIALIZABLE: they go with the lease under which they were taken ([`batch::TxnMeta::lease`]).
//! * **Refresh.** A transaction whose read timestamp must move, because a locking read found a newer version
//!   or something is uncertain, moves it if nothing that it read changed in between (section 3.4). A
//!   leaseholder does that itself when all spans are in its range; otherwise the coordinator does, with a
//!   [`batch::Refresh`] per range.
//! * **Commit in one range.** The commit timestamp is taken from the range's clock, which is ahead of every
//!   timestamp it ever served a read at: that is what a timestamp cache would ensure. The refresh
//!   spans are validated up to the commit timestamp under latches; this makes every committed
//!   transaction appear at one instant, hence serializable.
//! * **Sequence numbers.** Every write carries one; a rolled-back savepoint is a range of ignored
//!   ones ([`batch::TxnMeta::ignored`]).
//!
//! # Commit over several ranges
//!
//! The coordinator chooses a commit timestamp `T`, a little ahead of the clocks of all ranges concerned by the
//! time its messages get there.
//!
//! 1. Spans that were read in ranges without writes are refreshed up to `T` ([`batch::Refresh::to`]). Each of
//!    these ranges moves its clock to `T`, so nothing can be written below it any more.
//! 2. With writes in one range only, that range commits at `T` exactly ([`batch::EndTxn::commit_at`]).
//! 3. With writes in several, each gets its writes and the spans read there with a [`batch::Prepare`], all at
//!    the same time. A range validates the spans up to `T`, turns the writes into intents and keeps a *record*
//!    of the transaction; readers at or above the timestamp at which it is prepared wait for the decision. A
//!    range whose clock is at or past `T` prepares above it.
//! 4. The record at the *anchor*, one of these ranges, is *staging*: it names all keys written. If all are prepared
//!    at `T`, the transaction is committed, and acknowledged: one round of consensus (*parallel commits*, section
//!    3.1). If some are prepared above `T`, all spans are refreshed to the largest of these timestamps and the
//!    anchor is told to commit there ([`batch::DecideTxn`]): a second round. So do transactions with too many
//!    keys to name, and those that flushed.
//! 5. After that, in the background: [`batch::DecideTxn`] makes the record explicit, all ranges are told
//!    ([`batch::ResolveTxn`]: at once, so that readers go on, and again when the record is explicit, so that
//!    intents become versions and records go), the anchor last. Where one node has prepared all parts, it is asked
//!    to see to all of that ([`batch::DecideTxn::settles`]), which it does for many transactions with one command.
//!
//! A prepared part whose coordinator is gone (its connection ended, or the lease changed hands) is *recovered*:
//! its leaseholder asks that of the anchor. A record that is committed or aborted decides. Where there is none, one
//! that says *aborted* is written, so that none can come. A staging record is decided by asking for every key
//! that it names whether it is prepared at or below `T`; a range where it is not writes that it is aborted, so
//! that it never will be (section 3.2). Records of aborted transactions stay for ten minutes, and a `Prepare`
//! whose timestamp lies further back than half of that is refused. So do those of committed ones that were
//! recovered: their coordinators may ask yet.
//!
//! A coordinator to which a range did not answer does not know whether it is prepared there, and so whether
//! somebody has recovered the transaction. It asks again; where it then hears an error, it makes sure at the anchor
//! ([`batch::EndTxn::for_good`]) before it says that the transaction has failed.
//!
//! # Contention
//!
//! Whoever waits for a lock, or for what becomes of a prepared transaction, can be seen, and so can what is waited
//! for: [`contention::ListContention`] asks a leaseholder for the locks held, the requests that wait and for whom,
//! the transactions that are open, and the waits that have ended lately. It is authorized like a scan of the span, and
//! waits for nothing of what it lists. A lock's queue is bounded, and so is the number of requests of a connection
//! that wait for locks: whoever comes then is told [`error::KvErrorKind::Overloaded`] at once.
//!
//! # Another coordinator
//!
//! A part of a transaction belongs to the connection of its coordinator, and dies with it. A coordinator that hands
//! the transaction to another one leaves its parts first ([`batch::DetachTxn`]): each is known under the next *hop*
//! number then ([`batch::TxnMeta::hop`]) and belongs to nobody, for a bounded time. The other one takes them over
//! ([`batch::AdoptTxn`]). There is a part at one range at least, made if need be: the *claim*. It is taken over first,
//! and by one coordinator only; what a lease change, a crash or the end of the time took from everybody nobody takes
//! over. So a transaction has one coordinator at a time, also one that has written nothing yet.
//!
//! # Ranges
//!
//! A batch names its range ([`batch::Header::range_id`]). A node that does not hold the range's lease answers
//! [`error::KvErrorKind::NotLeaseholder`], one without a replica [`error::KvErrorKind::RangeNotFound`]; nothing was
//! carried out then. [`batch::RangeLookup`] says which range holds a key and where it is.
//!
//! # Global reads
//!
//! In a range with [`batch::RangeConfig::global_reads`] every replica serves reads of the present, and tells so
//! ([`batch::BatchResponse::global_reads`]): plain reads of transactions that have neither locks nor intents there may
//! go to any ([`batch::Header::any_replica`]), with their uncertainty limit. There, what is uncertain is not bounded by
//! the clock of the range, which is ahead of the present, but by the replica's wall clock and how far others may be ahead
//! of it. Commits lie above what was promised, and are acknowledged when wall clocks have passed them: one range's by
//! its leaseholder, those over several by the coordinator, which is told what the wall clock of such a range shows when
//! it is prepared ([`batch::BatchResponse::wall_ns`]). Locks and intents go before that; who reads what has not
//! been passed is answered when it has. The rules and why they are right: `kv-server`, module `global`.
//!
//! # Columns instead of rows
//!
//! A scan that takes no locks may carry a program ([`columns::Program`]): which columns it wants of the rows, and which
//! conditions they must satisfy. It is answered with columns ([`batch::Response::columns`]). What was read, and so what must
//! not have changed at commit, is the span all the same. With an aggregation ([`columns::Aggregation`]) partial results
//! come instead of rows.
//!
//! # Versions
//!
//! [`wire::PROTOCOL_VERSION`] is exchanged in the first frame of a connection; a mismatch closes it
//! with an error that names both versions.

pub mod batch;
pub mod columns;
pub mod contention;
pub mod encoding;
pub mod error;
pub mod key;
pub mod row;
pub mod timestamp;
pub mod wire;

pub use batch::{BatchRequest, BatchResponse, Header, LockStrength, Priority, Request, Response, TxnMeta};
pub use error::{KvError, KvErrorKind, KvResult};
pub use key::{Span, TenantId};
pub use timestamp::Timestamp;
