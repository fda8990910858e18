//! A store for tests.

use super::{DirectoryError, TenantStore};
use crate::placement::Placement;
use crate::record::{TenantRecord, TenantSettings};
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

#[derive(Default)]
struct Inner {
    last_id: u64,
    records: BTreeMap<String, TenantRecord>,
    creating: BTreeSet<u64>,
    dropped: BTreeSet<u64>,
    ranges: BTreeSet<u64>,
    configured: BTreeMap<u64, Placement>,
    fail_inserts: bool,
    refuse_placements: bool,
}

/// Keeps records in memory. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct MemoryStore(Arc<Mutex<Inner>>);

impl MemoryStore {
    /// Tenants that have a range.
    pub fn ranges(&self) -> Vec<u64> {
        self.0.lock().ranges.iter().copied().collect()
    }

    /// How the ranges of a tenant are kept, if anybody said.
    pub fn configured(&self, id: u64) -> Option<Placement> {
        self.0.lock().configured.get(&id).cloned()
    }

    /// Whether no record can be added from now on.
    pub fn fail_inserts(&self, fail: bool) {
        self.0.lock().fail_inserts = fail;
    }

    /// Whether no placement is accepted from now on.
    pub fn refuse_placements(&self, refuse: bool) {
        self.0.lock().refuse_placements = refuse;
    }
}

#[async_trait]
impl TenantStore for MemoryStore {
    async fn next_id(&self) -> Result<u64, DirectoryError> {
        let mut inner = self.0.lock();
        inner.last_id += 1;
        Ok(inner.last_id + 1)
    }

    async fn create_range(&self, id: u64) -> Result<(), DirectoryError> {
        let mut inner = self.0.lock();
        inner.creating.insert(id);
        inner.ranges.insert(id);
        Ok(())
    }

    async fn insert(&self, record: &TenantRecord) -> Result<bool, DirectoryError> {
        let mut inner = self.0.lock();
        if inner.fail_inserts {
            return Err(DirectoryError::Unavailable("as the test wishes".into()));
        }
        if inner.records.contains_key(&record.name) {
            return Ok(false);
        }
        assert!(inner.creating.remove(&record.id), "a record without a range");
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

    async fn names(
        &self,
        first: u64,
        last: u64,
        limit: usize,
    ) -> Result<BTreeMap<u64, String>, DirectoryError> {
        let inner = self.0.lock();
        let names: BTreeMap<u64, String> =
            inner.records.values().map(|record| (record.id, record.name.clone())).collect();
        Ok(names.range(first..=last).take(limit).map(|(id, name)| (*id, name.clone())).collect())
    }

    async fn unfinished(&self) -> Result<Vec<u64>, DirectoryError> {
        let inner = self.0.lock();
        Ok(inner.creating.iter().chain(&inner.dropped).copied().collect())
    }

    async fn remove_data(&self, id: u64) -> Result<(), DirectoryError> {
        let mut inner = self.0.lock();
        let given_up = inner.creating.remove(&id);
        if inner.dropped.remove(&id) || given_up {
            inner.ranges.remove(&id);
        }
        Ok(())
    }

    async fn configure(&self, id: u64, placement: &Placement) -> Result<(), DirectoryError> {
        let mut inner = self.0.lock();
        if inner.refuse_placements {
            return Err(DirectoryError::Refused("as the test wishes".into()));
        }
        inner.configured.insert(id, placement.clone());
        Ok(())
    }
}
