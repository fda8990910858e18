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
//! A transaction is run by a *coordinator* (crate `kv-client`) against the *leaseholder* of the range that
//! holds the keys it touches (crate `kv-server`). A tenant has one range, so a transaction has one leaseholder.
//! The protocol keeps the concepts of `cockroachdb-2020`, sections 3.1 to 3.4, and uses that freedom:
//!
//! * **Snapshot.** The first read carries no read timestamp; the leaseholder picks the present time of
//!   the range's hybrid-logical clock and returns it in [`batch::BatchResponse::read_timestamp`]. Later reads
//!   of the transaction carry it. One clock hands out all timestamps of a range, so no uncertainty interval is
//!   needed until a transaction has several leaseholders.
//! * **Writes are buffered** in the coordinator and overlaid on what it reads. They reach the
//!   leaseholder together with [`batch::EndTxn`] as one batch: the one-phase commit of section 3.3.
//!   A transaction whose buffer outgrows its budget flushes: writes without `EndTxn` become durable
//!   *intents* in the lock space, found by readers and writers, finalized through the transaction
//!   record (section 3.2).
//! * **Locks.** A read may lock what it returns ([`batch::LockStrength`]). Such locks live in the
//!   leaseholder's memory with a fair wait queue per key; a cycle of waiters is found when it closes
//!   and the request that closed it fails with [`error::KvErrorKind::Deadlock`]. Locks are an
//!   optimization for contention, never what correctness rests on under SERIALIZABLE: they go with the lease
//!   under which they were taken ([`batch::TxnMeta::lease`]).
//! * **Refresh.** A locking read that finds a version newer than the read timestamp moves the read
//!   timestamp forward if none of the spans in [`batch::Header::refresh_spans`] changed in between
//!   (section 3.4), and otherwise fails with [`error::KvErrorKind::Retry`].
//! * **Commit.** The commit timestamp is taken from the leaseholder's clock, which is ahead of every
//!   timestamp it ever served a read at: that is what a timestamp cache would ensure. The refresh
//!   spans are validated up to the commit timestamp under latches; this makes every committed
//!   transaction appear at one instant, hence serializable.
//! * **Sequence numbers.** Every write carries one; a rolled-back savepoint is a range of ignored
//!   ones ([`batch::TxnMeta::ignored`]).
//!
//! # Ranges
//!
//! A batch names its range ([`batch::Header::range_id`]). A node that does not hold the range's lease answers
//! [`error::KvErrorKind::NotLeaseholder`], one without a replica [`error::KvErrorKind::RangeNotFound`]; nothing was
//! carried out then. [`batch::RangeLookup`] says which range holds a key and where it is.
//!
//! # Versions
//!
//! [`wire::PROTOCOL_VERSION`] is exchanged in the first frame of a connection; a mismatch closes it
//! with an error that names both versions.

pub mod batch;
pub mod encoding;
pub mod error;
pub mod key;
pub mod timestamp;
pub mod wire;

pub use batch::{BatchRequest, BatchResponse, Header, LockStrength, Request, Response, TxnMeta};
pub use error::{KvError, KvErrorKind, KvResult};
pub use key::{Span, TenantId};
pub use timestamp::Timestamp;
