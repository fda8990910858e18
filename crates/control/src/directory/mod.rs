//! The directory of tenants: who exists.
//!
//! Records live in the system tenant's keyspace ([`KvStore`]); a bounded number of those used last is
//! remembered here, so that waking a tenant costs one read at most. This process is the only writer, so
//! what is remembered is true until it is changed here.
//!
//! Records come and go in transactions: a restart at any moment finds a tenant wholly there or not at all.
//! What cannot be part of a transaction has a note while it lasts:
//!
//! * Creating: the number is noted as being created; its range is made; the record replaces the note. A
//!   creation that fails is given up: what it left is removed like the data of a dropped tenant.
//! * Dropping: the tenant leaves the directory and enters the list of the dropped in one transaction; then
//!   its range and data are removed, and it leaves the list.
//!
//! [`Directory::unfinished_drops`] tells a restarted control what is left to do. Where the ranges of a
//! tenant are to be is told to the KV layer first and recorded afterwards: what is recorded holds, and a
//! change that failed between the two is completed when it is tried again.

mod kv;
#[cfg(test)]
pub(crate) mod memory;

pub use kv::KvStore;

use crate::name::{NameError, TenantName};
use crate::password;
use crate::placement::{Placement, PlacementError};
use crate::record::{CATALOG_VERSION, OWNER_ROLE, SettingsChange, TenantRecord, TenantSettings};
use async_trait::async_trait;
use lru::LruCache;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

/// How long the store may take for one answer. Who waits for a tenant is told then.
const PATIENCE: Duration = Duration::from_secs(10);
/// Records remembered: well under a megabyte.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// Why the directory could not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryError {
    /// The name is not one. Fault of the caller.
    #[error("{0}")]
    Name(#[from] NameError),
    /// The ranges cannot be kept so. Fault of the caller.
    #[error("{0}")]
    Placement(#[from] PlacementError),
    /// The KV layer will not keep the ranges so. Fault of the caller; nothing was changed.
    #[error("the KV layer refuses: {0}")]
    Refused(String),
    /// There is a tenant of this name.
    #[error("tenant \"{0}\" already exists")]
    Exists(String),
    /// There is no tenant of this name.
    #[error("tenant \"{0}\" does not exist")]
    Unknown(String),
    /// The store does not answer now; it may later.
    #[error("the tenant directory cannot be reached: {0}")]
    Unavailable(String),
    /// The store has no room. Nothing was changed.
    #[error("the tenant directory cannot be written: {0}")]
    Full(String),
    /// The store holds what it should not, or failed in another way.
    #[error("the tenant directory failed: {0}")]
    Failed(String),
}

/// Where records are kept. Methods fail with `Unavailable`, `Full` or `Failed`.
#[async_trait]
pub trait TenantStore: Send + Sync {
    /// A number that no tenant has had.
    async fn next_id(&self) -> Result<u64, DirectoryError>;
    /// Notes that a tenant is being created, and makes its range. May be asked twice.
    async fn create_range(&self, id: u64) -> Result<(), DirectoryError>;
    /// Adds the record of a tenant whose range was made; `false` if its name is taken.
    async fn insert(&self, record: &TenantRecord) -> Result<bool, DirectoryError>;
    /// Changes the settings of a tenant; `None` if there is none of this name.
    async fn update(
        &self,
        name: &str,
        settings: TenantSettings,
    ) -> Result<Option<TenantRecord>, DirectoryError>;
    /// Takes a tenant out and notes that its data is to be removed; `None` if there is none.
    async fn remove(&self, name: &str) -> Result<Option<TenantRecord>, DirectoryError>;
    /// The record of a name.
    async fn by_name(&self, name: &str) -> Result<Option<TenantRecord>, DirectoryError>;
    /// The record of a number.
    async fn by_id(&self, id: u64) -> Result<Option<TenantRecord>, DirectoryError>;
    /// At most `limit` records in the order of their names, beginning after the name `after`.
    async fn list(&self, after: &str, limit: usize) -> Result<Vec<TenantRecord>, DirectoryError>;
    /// Names of the tenants with the numbers `first` to `last`, at most `limit` of them.
    async fn names(
        &self,
        first: u64,
        last: u64,
        limit: usize,
    ) -> Result<BTreeMap<u64, String>, DirectoryError>;
    /// Numbers of the tenants that are being created, or whose data is still to be removed.
    async fn unfinished(&self) -> Result<Vec<u64>, DirectoryError>;
    /// Removes what there is of a tenant that was dropped, or whose creation is given up with this. Does
    /// nothing to others.
    async fn remove_data(&self, id: u64) -> Result<(), DirectoryError>;
    /// Sets how the ranges of a tenant are kept. May fail with `Refused`, too.
    async fn configure(&self, id: u64, placement: &Placement) -> Result<(), DirectoryError>;
}

/// Waits for the store, but not for ever. What it was asked may still happen after that.
async fn bounded<T>(answer: impl Future<Output = Result<T, DirectoryError>>) -> Result<T, DirectoryError> {
    let unavailable = |_| DirectoryError::Unavailable("the KV node does not answer in time".into());
    tokio::time::timeout(PATIENCE, answer).await.map_err(unavailable)?
}

/// A tenant that was just created, with the only copy of its password.
pub struct Created {
    /// What is kept.
    pub record: Arc<TenantRecord>,
    /// The owner's password.
    pub password: String,
}

/// Why a tenant was not created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct CreateError {
    /// Why.
    pub error: DirectoryError,
    /// The number it was given, if it came so far: [`Directory::remove_data`] removes what was made of it.
    pub begun: Option<u64>,
}

impl From<DirectoryError> for CreateError {
    fn from(error: DirectoryError) -> Self {
        Self { error, begun: None }
    }
}

/// Records that were read or written here.
struct Remembered {
    records: LruCache<Box<str>, Arc<TenantRecord>>,
    /// Counts changes and removals: what was read from the store before one of them may be outdated.
    changes: u64,
}

/// The directory.
pub struct Directory {
    store: Box<dyn TenantStore>,
    remembered: Mutex<Remembered>,
    /// Tenants that are being created here.
    creating: Mutex<HashSet<u64>>,
    /// Held while a tenant is changed or taken out: what was read of it stays true until it is written.
    changing: tokio::sync::Mutex<()>,
}

/// A tenant is being created until this is dropped.
struct Creating<'a> {
    directory: &'a Directory,
    id: u64,
}

impl<'a> Creating<'a> {
    fn new(directory: &'a Directory, id: u64) -> Self {
        directory.creating.lock().insert(id);
        Self { directory, id }
    }
}

impl Drop for Creating<'_> {
    fn drop(&mut self) {
        self.directory.creating.lock().remove(&self.id);
    }
}

impl Directory {
    /// A directory that remembers nothing yet.
    pub fn new(store: Box<dyn TenantStore>) -> Self {
        Self {
            store,
            remembered: Mutex::new(Remembered { records: LruCache::new(REMEMBERED), changes: 0 }),
            creating: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        }
    }

    /// Creates a tenant.
    ///
    /// # Errors
    /// `Name`, `Exists`, or the store's; and what is left to remove.
    pub async fn create(
        &self,
        name: &str,
        settings: TenantSettings,
        created_unix_s: u64,
    ) -> Result<Created, CreateError> {
        let name = TenantName::parse_new(name).map_err(DirectoryError::from)?;
        // Asked first so that a failing `create` in a loop uses up no numbers.
        if bounded(self.store.by_name(name.as_str())).await?.is_some() {
            return Err(DirectoryError::Exists(name.to_string()).into());
        }
        let password = password::random_password();
        let record = TenantRecord {
            id: bounded(self.store.next_id()).await?,
            name: name.to_string(),
            created_unix_s,
            catalog_version: CATALOG_VERSION,
            owner_role: OWNER_ROLE.into(),
            owner_verifier: password::verifier(&password),
            settings,
        };
        let id = record.id;
        match self.make(record).await {
            Ok(record) => Ok(Created { record, password }),
            Err(error) => Err(CreateError { error, begun: Some(id) }),
        }
    }

    /// Makes the range of a tenant, and then its record.
    async fn make(&self, record: TenantRecord) -> Result<Arc<TenantRecord>, DirectoryError> {
        let _creating = Creating::new(self, record.id);
        bounded(self.store.create_range(record.id)).await?;
        let seen = self.changes();
        if !bounded(self.store.insert(&record)).await? {
            return Err(DirectoryError::Exists(record.name));
        }
        let record = Arc::new(record);
        self.remember(&record, seen);
        Ok(record)
    }

    /// The tenant of a name.
    ///
    /// # Errors
    /// `Unknown`, or the store's.
    pub async fn get(&self, name: &str) -> Result<Arc<TenantRecord>, DirectoryError> {
        if let Some(record) = self.remembered.lock().records.get(name) {
            return Ok(Arc::clone(record));
        }
        let unknown = || DirectoryError::Unknown(name.to_owned());
        TenantName::parse(name).map_err(|_| unknown())?;
        loop {
            let seen = self.changes();
            let record = Arc::new(bounded(self.store.by_name(name)).await?.ok_or_else(unknown)?);
            // A tenant that was dropped while its record was on its way must not be woken.
            if self.remember(&record, seen) {
                return Ok(record);
            }
        }
    }

    /// The tenant of a number, if there is one.
    ///
    /// # Errors
    /// The store's.
    pub async fn by_id(&self, id: u64) -> Result<Option<Arc<TenantRecord>>, DirectoryError> {
        Ok(bounded(self.store.by_id(id)).await?.map(Arc::new))
    }

    /// Changes a tenant's settings.
    ///
    /// # Errors
    /// `Unknown`, `Placement`, `Refused`, or the store's.
    pub async fn set(&self, name: &str, change: SettingsChange) -> Result<Arc<TenantRecord>, DirectoryError> {
        let _turn = bounded(async { Ok(self.changing.lock().await) }).await?;
        let before = self.get(name).await?;
        let places = change.places();
        let settings = change.of(&before.settings);
        if places {
            settings.placement.check()?;
            bounded(self.store.configure(before.id, &settings.placement)).await?;
        }
        let updated = bounded(self.store.update(name, settings)).await;
        // Whether a failed change took effect may be unknown; the next reader asks.
        self.forget(name);
        let record = updated?.ok_or_else(|| DirectoryError::Unknown(name.to_owned()))?;
        Ok(Arc::new(record))
    }

    /// Takes a tenant out of the directory. Its data is still to be removed.
    ///
    /// # Errors
    /// `Unknown`, or the store's.
    pub async fn remove(&self, name: &str) -> Result<TenantRecord, DirectoryError> {
        let _turn = bounded(async { Ok(self.changing.lock().await) }).await?;
        let removed = bounded(self.store.remove(name)).await;
        self.forget(name);
        removed?.ok_or_else(|| DirectoryError::Unknown(name.to_owned()))
    }

    /// At most `limit` tenants in the order of their names, beginning after the name `after`.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(&self, after: &str, limit: usize) -> Result<Vec<TenantRecord>, DirectoryError> {
        bounded(self.store.list(after, limit)).await
    }

    /// Names of the tenants with the numbers `first` to `last`, at most `limit` of them.
    ///
    /// # Errors
    /// The store's.
    pub async fn names(
        &self,
        first: u64,
        last: u64,
        limit: usize,
    ) -> Result<BTreeMap<u64, String>, DirectoryError> {
        bounded(self.store.names(first, last, limit)).await
    }

    /// Tenants that were dropped and whose data is still there, and those whose creation came to no end
    /// and goes on nowhere.
    ///
    /// # Errors
    /// The store's.
    pub async fn unfinished_drops(&self) -> Result<Vec<u64>, DirectoryError> {
        let mut ids = bounded(self.store.unfinished()).await?;
        // One that was completed since the list was read may be among them: nothing is removed of it.
        let creating = self.creating.lock();
        ids.retain(|id| !creating.contains(id));
        Ok(ids)
    }

    /// Removes the data of a dropped tenant, or of one whose creation failed. No process may serve it any
    /// more.
    ///
    /// # Errors
    /// The store's.
    pub async fn remove_data(&self, id: u64) -> Result<(), DirectoryError> {
        self.store.remove_data(id).await
    }

    fn changes(&self) -> u64 {
        self.remembered.lock().changes
    }

    /// Remembers a record unless something was changed since `seen`; whether it did.
    fn remember(&self, record: &Arc<TenantRecord>, seen: u64) -> bool {
        let mut remembered = self.remembered.lock();
        let current = remembered.changes == seen;
        if current {
            remembered.records.put(record.name.as_str().into(), Arc::clone(record));
        }
        current
    }

    fn forget(&self, name: &str) {
        let mut remembered = self.remembered.lock();
        remembered.changes += 1;
        remembered.records.pop(name);
    }
}

#[cfg(test)]
mod tests {
    use super::memory::MemoryStore;
    use super::*;

    fn directory() -> Directory {
        Directory::new(Box::new(MemoryStore::default()))
    }

    #[tokio::test]
    async fn a_tenant_is_created_once_and_found_by_name_and_number() {
        let directory = directory();
        let created = directory.create("app", TenantSettings::default(), 7).await.unwrap();
        assert_eq!(created.record.id, 2, "the first number for users");
        assert!(!created.record.owner_verifier.contains(&created.password));
        assert_eq!(directory.get("app").await.unwrap(), created.record);
        assert_eq!(directory.by_id(2).await.unwrap(), Some(created.record));
        let again = directory.create("app", TenantSettings::default(), 8).await;
        assert_eq!(again.err(), Some(DirectoryError::Exists("app".into()).into()));
        let bad = directory.create("App", TenantSettings::default(), 8).await;
        assert!(matches!(bad.err(), Some(CreateError { error: DirectoryError::Name(_), begun: None })));
    }

    #[tokio::test]
    async fn a_dropped_tenant_is_unknown_and_its_number_is_not_used_again() {
        let directory = directory();
        directory.create("app", TenantSettings::default(), 7).await.unwrap();
        assert_eq!(directory.remove("app").await.unwrap().id, 2);
        assert_eq!(directory.get("app").await, Err(DirectoryError::Unknown("app".into())));
        assert_eq!(directory.unfinished_drops().await.unwrap(), [2]);
        directory.remove_data(2).await.unwrap();
        assert!(directory.unfinished_drops().await.unwrap().is_empty());
        let again = directory.create("app", TenantSettings::default(), 8).await.unwrap();
        assert_eq!(again.record.id, 3);
    }

    #[tokio::test]
    async fn settings_change_for_the_next_reader() {
        let directory = directory();
        directory.create("app", TenantSettings::default(), 7).await.unwrap();
        let change = SettingsChange { max_connections: Some(Some(9)), ..SettingsChange::default() };
        directory.set("app", change.clone()).await.unwrap();
        let settings = TenantSettings { max_connections: Some(9), ..TenantSettings::default() };
        assert_eq!(directory.get("app").await.unwrap().settings, settings);
        let unknown = directory.set("other", change).await;
        assert_eq!(unknown, Err(DirectoryError::Unknown("other".into())));
    }

    #[tokio::test]
    async fn a_tenant_has_its_range_before_its_record() {
        let store = MemoryStore::default();
        let directory = Directory::new(Box::new(store.clone()));
        directory.create("app", TenantSettings::default(), 7).await.unwrap();
        assert_eq!(store.ranges(), [2]);
        assert!(directory.unfinished_drops().await.unwrap().is_empty());

        store.fail_inserts(true);
        let failed = directory.create("other", TenantSettings::default(), 7).await.err().unwrap();
        assert_eq!(failed.begun, Some(3));
        assert_eq!(store.ranges(), [2, 3]);
        assert_eq!(directory.unfinished_drops().await.unwrap(), [3]);
        directory.remove_data(3).await.unwrap();
        assert_eq!(store.ranges(), [2]);
        assert!(directory.unfinished_drops().await.unwrap().is_empty());

        store.fail_inserts(false);
        directory.remove_data(2).await.unwrap();
        assert_eq!(store.ranges(), [2], "nothing is removed of a tenant that is there");
        directory.remove("app").await.unwrap();
        directory.remove_data(2).await.unwrap();
        assert_eq!(store.ranges(), [0; 0]);
    }

    #[tokio::test]
    async fn a_creation_under_way_is_not_taken_for_one_that_failed() {
        let store = MemoryStore::default();
        let directory = Directory::new(Box::new(store.clone()));
        let creating = Creating::new(&directory, 5);
        store.create_range(5).await.unwrap();
        assert!(directory.unfinished_drops().await.unwrap().is_empty());
        drop(creating);
        assert_eq!(directory.unfinished_drops().await.unwrap(), [5]);
    }

    #[tokio::test]
    async fn a_placement_is_recorded_once_the_ranges_have_it() {
        let store = MemoryStore::default();
        let directory = Directory::new(Box::new(store.clone()));
        directory.create("app", TenantSettings::default(), 7).await.unwrap();
        let constrain = |pair: &str| SettingsChange {
            constraints: Some(vec![pair.to_owned()]),
            ..SettingsChange::default()
        };
        let placed = directory.set("app", constrain("zone=a")).await.unwrap().settings.placement.clone();
        assert_eq!(placed.constraints, ["zone=a"]);
        assert_eq!(store.configured(2), Some(placed.clone()));

        let bad = directory.set("app", constrain("zone")).await;
        assert!(matches!(bad, Err(DirectoryError::Placement(_))));
        store.refuse_placements(true);
        let refused = directory.set("app", constrain("zone=b")).await;
        assert!(matches!(refused, Err(DirectoryError::Refused(_))));
        assert_eq!(directory.get("app").await.unwrap().settings.placement, placed);
        assert_eq!(store.configured(2), Some(placed));

        let change = SettingsChange { max_connections: Some(Some(9)), ..SettingsChange::default() };
        let unplaced = directory.set("app", change).await.unwrap();
        assert_eq!(unplaced.settings.placement.constraints, ["zone=a"], "the KV layer was not asked");
    }

    #[tokio::test]
    async fn names_are_found_by_numbers() {
        let directory = directory();
        for name in ["c", "a", "b"] {
            directory.create(name, TenantSettings::default(), 7).await.unwrap();
        }
        let names = directory.names(3, 9, 10).await.unwrap();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), [(3, "a".into()), (4, "b".into())]);
        assert_eq!(directory.names(2, 9, 1).await.unwrap().into_keys().collect::<Vec<_>>(), [2]);
    }

    #[tokio::test]
    async fn what_was_read_before_a_removal_is_not_remembered_after_it() {
        let directory = directory();
        let created = directory.create("app", TenantSettings::default(), 7).await.unwrap();
        let seen = directory.changes();
        directory.remove("app").await.unwrap();
        assert!(!directory.remember(&created.record, seen));
        assert_eq!(directory.get("app").await, Err(DirectoryError::Unknown("app".into())));
    }

    #[tokio::test]
    async fn lists_are_pages_in_the_order_of_names() {
        let directory = directory();
        for name in ["c", "a", "b"] {
            directory.create(name, TenantSettings::default(), 7).await.unwrap();
        }
        let names = |page: Vec<TenantRecord>| page.into_iter().map(|r| r.name).collect::<Vec<_>>();
        assert_eq!(names(directory.list("", 2).await.unwrap()), ["a", "b"]);
        assert_eq!(names(directory.list("b", 2).await.unwrap()), ["c"]);
    }
}
