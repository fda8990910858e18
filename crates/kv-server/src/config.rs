//! Limits and settings of a KV node.

pub use crate::column_cache::ColumnCacheConfig;
use crate::patience::INLINE_READS;
use std::time::Duration;

/// Bounds on what clients can make the node do. Every queue, buffer and table has one.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most connections at once.
    pub max_connections: usize,
    /// Most requests of one connection that wait at once; at the bound its socket is not read.
    pub max_waiting_per_connection: usize,
    /// Most bytes of requests of one connection that wait at once.
    pub max_waiting_bytes_per_connection: usize,
    /// Most large reads of one connection at once; each may hold a page of rows.
    pub max_large_reads_per_connection: usize,
    /// Most open transactions of one connection that hold locks or intents.
    pub max_txns_per_connection: usize,
    /// Most requests in one batch.
    pub max_requests_per_batch: usize,
    /// Most refresh spans in one batch.
    pub max_refresh_spans: usize,
    /// Where scans end when the client sets no bound, and the largest bound accepted, in bytes.
    pub max_scan_bytes: u64,
    /// Most locks a transaction keeps in memory. Beyond it, it takes no more and relies on the
    /// validation at its commit; one of which nothing is validated fails there.
    pub max_locks_per_txn: usize,
    /// The same for all transactions of a shard together.
    pub max_locks_per_shard: usize,
    /// Most requests that wait for one lock. Whoever comes then is told [`kv_api::KvErrorKind::Overloaded`].
    pub max_waits_per_lock: usize,
    /// Most requests of one connection that wait for locks; the same holds then. What else is under way on the
    /// connection is not counted, so whoever holds the locks can go on.
    pub max_lock_waits_per_connection: usize,
    /// Most transactions with intents in a range of a tenant at once.
    pub max_intent_txns_per_tenant: usize,
    /// How far the wall clocks of nodes may be apart: a node that is further from most others stops itself
    /// ([`crate::clock_check`]).
    pub max_clock_offset: Duration,
    /// Most parts of transactions of a tenant that wait to be taken over by another coordinator.
    pub max_detached_per_tenant: usize,
    /// How long they wait before they are aborted.
    pub detached_kept: Duration,
    /// After so many keys in a row at which nothing lies, a batch that writes them asks where the next one is at which
    /// something does.
    pub vacancy_patience: usize,
    /// How many keys a batch reads before others no longer wait for its evaluation ([`crate::patience`]).
    pub inline_reads: u32,
    /// Bytes of rows that are read on a connection's own task; larger reads are begun anew on others.
    pub inline_scan_bytes: u64,
    /// Columns that are kept in memory.
    pub column_cache: ColumnCacheConfig,
    /// How far back snapshots can be read.
    pub history_kept: Duration,
    /// Most bytes of commands that wait to be applied.
    pub max_queued_bytes: usize,
    /// How long a write waits for space on a full disk before whoever sent it is told.
    pub disk_full_patience: Duration,
    /// How long a batch waits for an election to end before its client is sent on.
    pub election_patience: Duration,
    /// A tenant's range that holds more than this is split: bytes of keys and values of all versions. At least
    /// [`crate::split_size::MIN_RANGE_BYTES`].
    pub max_range_bytes: u64,
    /// A tenant's range with more batches per second than this for [`Limits::split_load_for`] is split, if there
    /// are other nodes to take a part; 0 is never.
    pub split_load: u64,
    /// See [`Limits::split_load`].
    pub split_load_for: Duration,
    /// Neighbouring ranges of a tenant that have been small and idle for this long are merged ([`crate::merge_idle`]);
    /// zero, the default, is never.
    pub merge_after: Duration,
    /// Most time for a TLS handshake and the first frame.
    pub handshake_timeout: Duration,
    /// Most time from the first byte of a frame to its last, for frames up to 1 MiB; larger ones get
    /// as much again for every further MiB.
    pub frame_timeout: Duration,
    /// Most time for the client to take what was written.
    pub write_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_connections: 10_000,
            max_waiting_per_connection: 1024,
            max_waiting_bytes_per_connection: 96 << 20,
            max_large_reads_per_connection: 8,
            max_txns_per_connection: 20_000,
            max_requests_per_batch: 200_000,
            max_refresh_spans: 100_000,
            max_scan_bytes: 8 << 20,
            max_locks_per_txn: 50_000,
            max_locks_per_shard: 250_000,
            max_waits_per_lock: 10_000,
            max_lock_waits_per_connection: 3_000,
            max_intent_txns_per_tenant: 4096,
            max_clock_offset: Duration::from_nanos(kv_api::timestamp::MAX_CLOCK_OFFSET_NS),
            max_detached_per_tenant: 1024,
            detached_kept: Duration::from_secs(30),
            vacancy_patience: 8,
            inline_reads: INLINE_READS,
            inline_scan_bytes: 128 << 10,
            column_cache: ColumnCacheConfig::default(),
            history_kept: Duration::from_secs(15 * 60),
            max_queued_bytes: 128 << 20,
            disk_full_patience: Duration::from_secs(3),
            election_patience: Duration::from_millis(500),
            max_range_bytes: 64 << 20,
            split_load: 2500,
            split_load_for: Duration::from_secs(10),
            merge_after: Duration::ZERO,
            handshake_timeout: Duration::from_secs(10),
            frame_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
        }
    }
}
