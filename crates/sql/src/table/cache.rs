//! Compiled layouts by descriptor.

use super::TableCodec;
use crate::catalog::descriptor::TableDescriptor;
use parking_lot::Mutex;
use sql_types::SqlResult;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Layouts kept at most.
const CAPACITY: NonZeroUsize = NonZeroUsize::new(512).unwrap();

/// Layouts compiled so far, found by the identity of the descriptor. An entry keeps its descriptor
/// alive, so an address names one descriptor only.
pub struct CodecCache {
    codecs: Mutex<lru::LruCache<usize, Arc<TableCodec>>>,
}

impl CodecCache {
    /// An empty cache.
    pub fn new() -> Self {
        CodecCache { codecs: Mutex::new(lru::LruCache::unbounded()) }
    }

    /// The layout of a table, compiled now if need be.
    pub fn get(&self, table: &Arc<TableDescriptor>) -> SqlResult<Arc<TableCodec>> {
        let address = Arc::as_ptr(table) as usize;
        if let Some(codec) = self.codecs.lock().get(&address) {
            return Ok(codec.clone());
        }
        let codec = Arc::new(TableCodec::new(table.clone())?);
        let mut codecs = self.codecs.lock();
        codecs.put(address, codec.clone());
        if codecs.len() > CAPACITY.get() {
            codecs.pop_lru();
        }
        Ok(codec)
    }
}

impl Default for CodecCache {
    fn default() -> Self {
        CodecCache::new()
    }
}

impl std::fmt::Debug for CodecCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodecCache").field("len", &self.codecs.lock().len()).finish()
    }
}
