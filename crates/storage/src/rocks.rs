//! The RocksDB engine.
//!
//! Memory is bounded by [`RocksConfig`]: one block cache, which also holds index and filter blocks,
//! and a bound on all memtables together. The write-ahead log is recycled, so that a sync overwrites
//! blocks a file already has; that nearly halves its latency.
//!
//! When the disk is full RocksDB refuses writes, serves reads, and looks every few seconds whether
//! there is room for a memtable; writes then succeed again without anything being reopened.

use crate::engine::{Bounds, Cursor, Engine, FirstKey, Op, Pinned, Reader, Space, Stats, WriteBatch};
use crate::error::{StorageError, StorageResult};
use crate::garbage::GarbageFloors;
use bytes::Bytes;
use parking_lot::Mutex;
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, CompactionDecision,
    DB, DBCompressionType, DBRawIterator, DBRecoveryMode, DataBlockIndexType, LogLevel, Options, ReadOptions,
    WriteOptions,
};
use std::path::Path;
use std::sync::Arc;

/// What the cache is told of the size of blocks: it finds out, for blocks of indexes and filters differ.
const ANY_BLOCK_BYTES: usize = 0;

/// Size at which a memtable of intents is written out.
const LOCKS_MEMTABLE_BYTES: usize = 8 << 20;
/// A file with so many entries in a row of which half are deletions has too many of them.
const TOMBSTONE_WINDOW: usize = 4096;

/// Files of the history older than this are rewritten, which drops their garbage.
const HISTORY_REWRITE_SECONDS: u64 = 3600;

/// Removed entries that [`Reader::first_key`] passes by; to skip so many takes as long as some ten point reads.
const MAX_SKIPPED: u64 = 200;

/// Sizes of the RocksDB engine.
#[derive(Clone, Debug)]
pub struct RocksConfig {
    /// Block cache in bytes, index and filter blocks included.
    pub block_cache_bytes: usize,
    /// Size in bytes at which one memtable is written out; all together take at most twice this.
    pub memtable_bytes: usize,
    /// Most files held open.
    pub max_open_files: i32,
    /// Threads for flush and compaction.
    pub background_jobs: i32,
}

impl Default for RocksConfig {
    fn default() -> Self {
        RocksConfig {
            block_cache_bytes: 256 << 20,
            memtable_bytes: 32 << 20,
            max_open_files: 512,
            background_jobs: 2,
        }
    }
}

/// RocksDB behind the [`Engine`] trait.
pub struct RocksEngine {
    db: DB,
    cache: Cache,
    read_options: ReadOptions,
    synced: WriteOptions,
    unsynced: WriteOptions,
    garbage: Arc<Mutex<Arc<GarbageFloors>>>,
}

impl RocksEngine {
    /// Opens the store in `path`, which is made if it does not exist.
    ///
    /// # Errors
    /// [`StorageError::InUse`] if another process has it open, [`StorageError::Incompatible`] if it has
    /// spaces this program does not know, [`StorageError::Corruption`] if files are damaged or missing.
    pub fn open(path: &Path, config: &RocksConfig) -> StorageResult<Self> {
        // Nobody waits for a lock of it, and blocks of any size fit.
        let cache = Cache::new_hyper_clock_cache(config.block_cache_bytes, ANY_BLOCK_BYTES);
        let options = database_options(config);
        let garbage = Arc::default();
        let families = Space::ALL
            .iter()
            .map(|space| {
                let mut options = space_options(*space, config, &cache);
                drop_garbage(*space, &mut options, &garbage);
                ColumnFamilyDescriptor::new(space.name(), options)
            })
            .chain([ColumnFamilyDescriptor::new("default", unused_options())]);
        let db = DB::open_cf_descriptors(&options, path, families).map_err(open_error)?;
        for space in Space::ALL {
            family(&db, space)?;
        }
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        Ok(RocksEngine {
            db,
            cache,
            read_options: ReadOptions::default(),
            synced,
            unsynced: WriteOptions::default(),
            garbage,
        })
    }

    /// Rewrites all files, which drops deleted data and garbage at once. Blocks for as long as it takes.
    ///
    /// # Errors
    /// If a space is missing.
    pub fn compact(&self) -> StorageResult<()> {
        for space in Space::ALL {
            self.db.compact_range_cf(family(&self.db, space)?, None::<&[u8]>, None::<&[u8]>);
        }
        Ok(())
    }

    fn sum(&self, property: &rocksdb::properties::PropName) -> u64 {
        Space::ALL
            .iter()
            .filter_map(|space| {
                let family = self.db.cf_handle(space.name())?;
                self.db.property_int_value_cf(family, property).ok().flatten()
            })
            .sum()
    }
}

fn database_options(config: &RocksConfig) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_paranoid_checks(true);
    options.set_recycle_log_file_num(4);
    // The one mode that stops at the first damaged record and still allows recycled logs.
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    options.set_db_write_buffer_size(config.memtable_bytes * 2);
    // A space that is seldom written must not keep old logs alive.
    options.set_max_total_wal_size(config.memtable_bytes as u64 * 3);
    options.set_max_open_files(config.max_open_files);
    options.set_max_background_jobs(config.background_jobs);
    options.set_bytes_per_sync(1 << 20);
    options.set_log_level(LogLevel::Warn);
    options.set_keep_log_file_num(4);
    options.set_max_log_file_size(4 << 20);
    // An idle store does nothing at all.
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options
}

fn space_options(space: Space, config: &RocksConfig, cache: &Cache) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_cache_index_and_filter_blocks(true);
    table.set_cache_index_and_filter_blocks_with_high_priority(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_format_version(6);
    // Indexes and filters in pieces: those of a whole file are read anew whenever they were pushed out of the cache.
    table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_pin_top_level_index_and_filter(true);
    table.set_block_size(8 << 10);
    let mut options = Options::default();
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_max_write_buffer_number(3);
    match space {
        Space::Data | Space::Locks => {
            // Read by whole key: filters skip tables, a hash finds the key within its block.
            table.set_bloom_filter(10.0, false);
            table.set_partition_filters(true);
            table.set_optimize_filters_for_memory(true);
            table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
            options.set_memtable_whole_key_filtering(true);
            options.set_memtable_prefix_bloom_ratio(0.05);
            options.set_write_buffer_size(config.memtable_bytes);
            if space == Space::Locks {
                drop_tombstones(&mut options, config);
            }
        }
        Space::History => {
            options.set_write_buffer_size(config.memtable_bytes);
            options.set_periodic_compaction_seconds(HISTORY_REWRITE_SECONDS);
        }
        // Most of a log is truncated before its memtable is written out, and the rest soon after.
        Space::Raft => {
            options.set_write_buffer_size(config.memtable_bytes);
            options.set_compression_type(DBCompressionType::None);
        }
        Space::Meta => options.set_write_buffer_size(config.memtable_bytes.min(4 << 20)),
    }
    options.set_block_based_table_factory(&table);
    options
}

/// What lies among intents is soon deleted, and whoever looks through a span for the intents of one transaction steps over
/// what is left of all others: each of many large transactions would pay for those before it. So memtables of intents are
/// small, and a file that is mostly deletions is compacted at once.
fn drop_tombstones(options: &mut Options, config: &RocksConfig) {
    options.set_write_buffer_size(config.memtable_bytes.min(LOCKS_MEMTABLE_BYTES));
    options.add_compact_on_deletion_collector_factory(TOMBSTONE_WINDOW, TOMBSTONE_WINDOW / 2, 0.5);
}

/// For the space RocksDB insists on and nobody uses. After a full disk RocksDB wants room for the largest
/// memtable before it goes on.
fn unused_options() -> Options {
    let mut options = Options::default();
    options.set_write_buffer_size(64 << 10);
    options
}

/// Lets compaction drop what nobody can read any more.
fn drop_garbage(space: Space, options: &mut Options, floors: &Arc<Mutex<Arc<GarbageFloors>>>) {
    if !matches!(space, Space::Data | Space::History) {
        return;
    }
    let floors = Arc::clone(floors);
    options.set_compaction_filter("garbage", move |_level, key: &[u8], value: &[u8]| {
        // The lock is held for as long as it takes to count one more reference.
        let floors = Arc::clone(&floors.lock());
        if floors.drops(space, key, value) { CompactionDecision::Remove } else { CompactionDecision::Keep }
    });
}

fn family(db: &DB, space: Space) -> StorageResult<&ColumnFamily> {
    db.cf_handle(space.name())
        .ok_or_else(|| StorageError::Corruption(format!("column family {} is missing", space.name())))
}

fn open_error(error: rocksdb::Error) -> StorageError {
    let text = error.as_ref();
    if text.contains("While lock file") || text.contains("lock hold by current process") {
        StorageError::InUse(text.to_owned())
    } else if text.contains("Column families not opened") {
        StorageError::Incompatible(format!(
            "the store was written by another version of this program: {text}"
        ))
    } else {
        engine_error(error)
    }
}

fn engine_error(error: rocksdb::Error) -> StorageError {
    let kind = error.kind();
    let text = error.into_string();
    let no_space =
        ["No space left on device", "Disk quota exceeded"].iter().any(|cause| text.contains(cause));
    // A record that could not be appended to the log certainly has no effect. One that was appended
    // and could not be synced may come back after a restart: that is an I/O error like any other.
    let in_sync = text.split(": ").any(|part| part.starts_with("While") && part.contains("sync"));
    if no_space && !in_sync {
        StorageError::DiskFull(text)
    } else if kind == rocksdb::ErrorKind::Corruption {
        StorageError::Corruption(text)
    } else {
        StorageError::Io(text)
    }
}

impl Reader for RocksEngine {
    fn get(&self, space: Space, key: &[u8]) -> StorageResult<Option<Pinned<'_>>> {
        let family = family(&self.db, space)?;
        let found = self.db.get_pinned_cf_opt(family, key, &self.read_options).map_err(engine_error)?;
        Ok(found.map(Pinned::Rocks))
    }

    /// Sorted and looked up together: those that share parts of indexes and filters find them once.
    fn get_many(&self, space: Space, keys: &[&[u8]]) -> StorageResult<Vec<Option<Pinned<'_>>>> {
        if let [key] = keys {
            return Ok(vec![self.get(space, key)?]);
        }
        let family = family(&self.db, space)?;
        let sorted = keys.is_sorted();
        let found =
            self.db.batched_multi_get_cf_opt(family, keys.iter().copied(), sorted, &self.read_options);
        found.into_iter().map(|found| Ok(found.map_err(engine_error)?.map(Pinned::Rocks))).collect()
    }

    fn cursor(&self, space: Space, bounds: Bounds<'_>) -> Box<dyn Cursor + '_> {
        rocks_cursor(&self.db, space, bounds, |options, family| self.db.raw_iterator_cf_opt(family, options))
    }

    fn first_key(&self, space: Space, bounds: Bounds<'_>) -> StorageResult<FirstKey> {
        let mut options = within(bounds);
        options.set_max_skippable_internal_keys(MAX_SKIPPED);
        let mut cursor = self.db.raw_iterator_cf_opt(family(&self.db, space)?, options);
        cursor.seek_to_first();
        if let Some(key) = cursor.key() {
            return Ok(FirstKey::At(Bytes::copy_from_slice(key)));
        }
        match cursor.status() {
            Ok(()) => Ok(FirstKey::Nothing),
            Err(error) if error.kind() == rocksdb::ErrorKind::Incomplete => Ok(FirstKey::Unknown),
            Err(error) => Err(engine_error(error)),
        }
    }
}

impl Engine for RocksEngine {
    fn write(&self, batch: &WriteBatch, sync: bool) -> StorageResult<()> {
        let mut rocks = rocksdb::WriteBatch::with_capacity_bytes(batch.byte_len() + 16 * batch.len() + 64);
        let mut families = [None; Space::ALL.len()];
        for space in Space::ALL {
            families[space as usize] = Some(family(&self.db, space)?);
        }
        for op in batch.iter() {
            let (Op::Put { space, .. } | Op::Delete { space, .. } | Op::DeleteRange { space, .. }) = op;
            let Some(family) = families[space as usize] else { continue };
            match op {
                Op::Put { key, value, .. } => rocks.put_cf(family, key, value),
                Op::Delete { key, .. } => rocks.delete_cf(family, key),
                Op::DeleteRange { start, end, .. } => rocks.delete_range_cf(family, start, end),
            }
        }
        let options = if sync { &self.synced } else { &self.unsynced };
        self.db.write_opt(rocks, options).map_err(engine_error)
    }

    fn snapshot(&self) -> Box<dyn Reader + '_> {
        Box::new(RocksSnapshot { db: &self.db, snapshot: self.db.snapshot() })
    }

    fn flush(&self) -> StorageResult<()> {
        self.db.flush_wal(true).map_err(engine_error)?;
        for space in Space::ALL {
            self.db.flush_cf(family(&self.db, space)?).map_err(engine_error)?;
        }
        Ok(())
    }

    fn set_garbage_floors(&self, floors: GarbageFloors) {
        let mut present = self.garbage.lock();
        *present = Arc::new(floors.not_below(&present));
    }

    fn stats(&self) -> Stats {
        use rocksdb::properties as property;
        let level0 = property::num_files_at_level(0);
        let files = Space::ALL.iter().filter_map(|space| {
            let family = self.db.cf_handle(space.name())?;
            self.db.property_value_cf(family, &level0).ok().flatten()?.parse::<u64>().ok()
        });
        Stats {
            disk_bytes: self.sum(property::TOTAL_SST_FILES_SIZE),
            memtable_bytes: self.sum(property::CUR_SIZE_ALL_MEM_TABLES),
            cache_bytes: self.cache.get_usage() as u64,
            table_reader_bytes: self.sum(property::ESTIMATE_TABLE_READERS_MEM),
            pending_compaction_bytes: self.sum(property::ESTIMATE_PENDING_COMPACTION_BYTES),
            level0_files: files.sum(),
            background_errors: self
                .db
                .property_int_value(property::BACKGROUND_ERRORS)
                .ok()
                .flatten()
                .unwrap_or(0),
        }
    }
}

struct RocksSnapshot<'a> {
    db: &'a DB,
    snapshot: rocksdb::Snapshot<'a>,
}

impl Reader for RocksSnapshot<'_> {
    fn get(&self, space: Space, key: &[u8]) -> StorageResult<Option<Pinned<'_>>> {
        let family = family(self.db, space)?;
        let found = self.snapshot.get_pinned_cf(family, key).map_err(engine_error)?;
        Ok(found.map(Pinned::Rocks))
    }

    fn cursor(&self, space: Space, bounds: Bounds<'_>) -> Box<dyn Cursor + '_> {
        rocks_cursor(self.db, space, bounds, |options, family| {
            self.snapshot.raw_iterator_cf_opt(family, options)
        })
    }
}

fn rocks_cursor<'a>(
    db: &'a DB,
    space: Space,
    bounds: Bounds<'_>,
    open: impl FnOnce(ReadOptions, &'a ColumnFamily) -> DBRawIterator<'a>,
) -> Box<dyn Cursor + 'a> {
    match family(db, space) {
        Ok(family) => Box::new(RocksCursor { inner: open(within(bounds), family) }),
        Err(error) => Box::new(BrokenCursor { error }),
    }
}

fn within(bounds: Bounds<'_>) -> ReadOptions {
    let mut options = ReadOptions::default();
    if !bounds.lower.is_empty() {
        options.set_iterate_lower_bound(bounds.lower);
    }
    if let Some(upper) = bounds.upper {
        options.set_iterate_upper_bound(upper);
    }
    options.set_auto_readahead_size(true);
    options
}

struct RocksCursor<'a> {
    inner: DBRawIterator<'a>,
}

impl Cursor for RocksCursor<'_> {
    fn seek(&mut self, key: &[u8]) {
        self.inner.seek(key);
    }

    fn seek_for_prev(&mut self, key: &[u8]) {
        self.inner.seek_for_prev(key);
    }

    fn seek_to_first(&mut self) {
        self.inner.seek_to_first();
    }

    fn seek_to_last(&mut self) {
        self.inner.seek_to_last();
    }

    fn next(&mut self) {
        if self.inner.valid() {
            self.inner.next();
        }
    }

    fn prev(&mut self) {
        if self.inner.valid() {
            self.inner.prev();
        }
    }

    fn item(&self) -> Option<(&[u8], &[u8])> {
        self.inner.item()
    }

    fn status(&self) -> StorageResult<()> {
        self.inner.status().map_err(engine_error)
    }
}

/// A cursor that could not be made.
struct BrokenCursor {
    error: StorageError,
}

impl Cursor for BrokenCursor {
    fn seek(&mut self, _: &[u8]) {}
    fn seek_for_prev(&mut self, _: &[u8]) {}
    fn seek_to_first(&mut self) {}
    fn seek_to_last(&mut self) {}
    fn next(&mut self) {}
    fn prev(&mut self) {}

    fn item(&self) -> Option<(&[u8], &[u8])> {
        None
    }

    fn status(&self) -> StorageResult<()> {
        Err(self.error.clone())
    }
}
