//! A store for tests.

use super::{DirectoryError, TenantStore};
use crate::record::{TenantRecord, TenantSettings};
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

#[derive(Default)]
struct Inner {
    last_id: u64,
    records: BTreeMap<String, TenantRecord>,
    dropped: BTreeSet<u64>,
}

/// Keeps records in memory.
#[derive(Default)]
pub(crate) struct MemoryStore(Mutex<Inner>);

#[async_trait]
impl TenantStore for MemoryStore {
    async fn next_id(&self) -> Result<u64, DirectoryError> {
        let mut inner = self.0.lock();
        inner.last_id += 1;
        Ok(inner.last_id + 1)
    }

    async fn insert(&self, record: &TenantRecord) -> Result<bool, DirectoryError> {
        let mut inner = self.0.lock();
        if inner.records.contains_key(&record.name) {
            return Ok(false);
        }
        inner.records.insert(record.name.clone(), record.clone());
        Ok(true)
    }

    async fn update(
        &self,
        name: &str,
        settings: TenantSettings,
    ) -> Result<Option<TenantRecord>, DirectoryError> {
        let mut inner = self.0.lock();
        let Some(record) = inner.records.get_mut(name) else { return Ok(None) };
        record.settings = settings;
        Ok(Some(record.clone()))
    }

    async fn remove(&self, name: &str) -> Result<Option<TenantRecord>, DirectoryError> {
        let mut inner = self.0.lock();
        let removed = inner.records.remove(name);
        inner.dropped.extend(removed.as_ref().map(|record| record.id));
        Ok(removed)
    }

    async fn by_name(&self, name: &str) -> Result<Option<TenantRecord>, DirectoryError> {
        Ok(self.0.lock().records.get(name).cloned())
    }

    async fn by_id(&self, id: u64) -> Result<Option<TenantRecord>, DirectoryError> {
        Ok(self.0.lock().records.values().find(|record| record.id == id).cloned())
    }

    async fn list(&self, after: &str, limit: usize) -> Result<Vec<TenantRecord>, DirectoryError> {
        let inner = self.0.lock();
        let range = (Bound::Excluded(after), Bound::Unbounded);
        Ok(inner.records.range::<str, _>(range).take(limit).map(|(_, record)| record.clone()).collect())
    }

    async fn dropped(&self) -> Result<Vec<u64>, DirectoryError> {
        Ok(self.0.lock().dropped.iter().copied().collect())
    }

    async fn remove_data(&self, id: u64) -> Result<(), DirectoryError> {
        self.0.lock().dropped.remove(&id);
        Ok(())
    }
}
