//! How much memory a KV node gives to its caches.

/// The caches of a KV node take a part of the machine's memory like this each, if nothing else is asked for.
const CACHE_SHARE: u64 = 16;

/// Flags of whatever starts KV nodes.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct CacheArgs {
    /// Bytes of blocks of the store's files that a KV node keeps in memory [default: a sixteenth of the
    /// memory, shared by the KV nodes of this command, at least 256 MiB each]
    #[arg(long, value_name = "BYTES")]
    block_cache: Option<usize>,
    /// Bytes of columns that a KV node keeps in memory for analytical queries; 0 for none [default: a
    /// sixteenth of the memory, shared by the KV nodes of this command]
    #[arg(long, value_name = "BYTES")]
    column_cache: Option<usize>,
}

/// Bytes of the caches of one KV node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheSizes {
    /// Blocks of the store's files.
    pub blocks: usize,
    /// Columns of rows.
    pub columns: usize,
}

impl CacheArgs {
    /// What each of `nodes` KV nodes on this machine gets.
    pub fn sizes(self, nodes: usize) -> CacheSizes {
        self.sizes_of(process::memory::available_bytes(), nodes)
    }

    /// [`sizes`](Self::sizes) on a machine with `memory` bytes, if that is known.
    fn sizes_of(self, memory: Option<u64>, nodes: usize) -> CacheSizes {
        let share = memory.and_then(|memory| usize::try_from(memory / CACHE_SHARE).ok());
        let share = share.map(|share| share / nodes.max(1));
        let least_blocks = kv_server::EngineConfig::default().block_cache_bytes;
        let columns = kv_server::ColumnCacheConfig::default().bytes;
        CacheSizes {
            blocks: self.block_cache.unwrap_or(share.unwrap_or(0).max(least_blocks)),
            columns: self.column_cache.or(share).unwrap_or(columns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_machine_share_what_is_not_asked_for() {
        let default = CacheArgs { block_cache: None, column_cache: None };
        let memory = Some(64 << 30);
        assert_eq!(default.sizes_of(memory, 1), CacheSizes { blocks: 4 << 30, columns: 4 << 30 });
        assert_eq!(default.sizes_of(memory, 4), CacheSizes { blocks: 1 << 30, columns: 1 << 30 });
        let asked = CacheArgs { block_cache: Some(7), column_cache: Some(0) };
        assert_eq!(asked.sizes_of(memory, 4), CacheSizes { blocks: 7, columns: 0 });
        let least = kv_server::EngineConfig::default().block_cache_bytes;
        assert_eq!(default.sizes_of(Some(1 << 20), 1).blocks, least);
    }
}
