//! Records in the system tenant's keyspace.
//!
//! | key | value |
//! |---|---|
//! | `directory/name/<name>` | the record |
//! | `directory/id/<id>` | the name |
//! | `directory/creating/<id>` | nothing: it may have a range, and has no record yet |
//! | `directory/dropped/<id>` | nothing: its data is to be removed |
//! | `directory/last-id` | counter of numbers given out |
//!
//! Numbers are eight bytes, big-endian. The record stands under the name because that is what a wake-up
//! knows: it takes one read.
//!
//! A tenant is created only from its note under `creating`, and given up by moving that note to `dropped`:
//! of a creation that was given up no record can appear later, whatever is still on its way.

use super::{DirectoryError, TenantStore};
use crate::placement::Placement;
use crate::record::{TenantRecord, TenantSettings};
use async_trait::async_trait;
use bytes::Bytes;
use kv_api::batch::LockStrength;
use kv_api::key::prefix_end;
use kv_api::{KvError, KvErrorKind, Span, TenantId};
use kv_client::{KvClient, ScanOptions, Txn, TxnOptions};
use std::collections::BTreeMap;
use std::time::Duration;

const NAME: &[u8] = b"directory/name/";
const ID: &[u8] = b"directory/id/";
const CREATING: &[u8] = b"directory/creating/";
const DROPPED: &[u8] = b"directory/dropped/";
const LAST_ID: &[u8] = b"directory/last-id";

/// Attempts of a transaction that lost against another, or whose end is not known.
const ATTEMPTS: u32 = 10;
/// First pause between attempts; doubled each time.
const PAUSE: Duration = Duration::from_millis(2);

/// The store of the running system.
pub struct KvStore {
    kv: KvClient,
}

/// What an attempt of a transaction came to.
enum Attempt<T> {
    /// It is done and gave this.
    Done(T),
    /// It is not known whether it was committed; this is what it would have given.
    Unsettled(T),
    /// Once more.
    Again(KvError),
}

impl KvStore {
    /// A store behind a client of the system tenant.
    pub fn new(kv: KvClient) -> Self {
        Self { kv }
    }

    fn begin(&self) -> Txn {
        self.kv.begin(TxnOptions::default())
    }

    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, DirectoryError> {
        self.begin().get(key, LockStrength::None).await.map_err(failed)
    }

    async fn try_note(&self, id: u64) -> Result<Attempt<()>, DirectoryError> {
        let txn = self.begin();
        put(&txn, &id_key(CREATING, id), Bytes::new())?;
        commit(&txn, ()).await
    }

    async fn try_insert(&self, record: &TenantRecord) -> Result<Attempt<bool>, DirectoryError> {
        let txn = self.begin();
        if let Some(found) =
            txn.get(&name_key(&record.name), LockStrength::Exclusive).await.map_err(failed)?
        {
            txn.rollback().await;
            // Its own, if an earlier attempt was committed after all.
            return Ok(Attempt::Done(decode(&found)?.id == record.id));
        }
        let note = id_key(CREATING, record.id);
        if txn.get(&note, LockStrength::Exclusive).await.map_err(failed)?.is_none() {
            txn.rollback().await;
            return Err(DirectoryError::Unavailable("the creation was given up meanwhile".into()));
        }
        txn.delete(&note).map_err(failed)?;
        put(&txn, &name_key(&record.name), record.encode().into())?;
        put(&txn, &id_key(ID, record.id), Bytes::copy_from_slice(record.name.as_bytes()))?;
        commit(&txn, true).await
    }

    async fn try_update(
        &self,
        name: &str,
        settings: &TenantSettings,
    ) -> Result<Attempt<Option<TenantRecord>>, DirectoryError> {
        let txn = self.begin();
        let Some(found) = txn.get(&name_key(name), LockStrength::Exclusive).await.map_err(failed)? else {
            return Ok(Attempt::Done(None));
        };
        let record = TenantRecord { settings: settings.clone(), ..decode(&found)? };
        put(&txn, &name_key(name), record.encode().into())?;
        commit(&txn, Some(record)).await
    }

    async fn try_remove(&self, name: &str) -> Result<Attempt<Option<TenantRecord>>, DirectoryError> {
        let txn = self.begin();
        let Some(found) = txn.get(&name_key(name), LockStrength::Exclusive).await.map_err(failed)? else {
            return Ok(Attempt::Done(None));
        };
        let record = decode(&found)?;
        txn.delete(&name_key(name)).map_err(failed)?;
        txn.delete(&id_key(ID, record.id)).map_err(failed)?;
        put(&txn, &id_key(DROPPED, record.id), Bytes::new())?;
        commit(&txn, Some(record)).await
    }

    /// Gives up the creation of a tenant, if it was being created. Whether there is data to be removed.
    async fn try_give_up(&self, id: u64) -> Result<Attempt<bool>, DirectoryError> {
        let txn = self.begin();
        let (note, dropped) = (id_key(CREATING, id), id_key(DROPPED, id));
        if txn.get(&note, LockStrength::Exclusive).await.map_err(failed)?.is_none() {
            let listed = txn.get(&dropped, LockStrength::None).await.map_err(failed)?.is_some();
            txn.rollback().await;
            return Ok(Attempt::Done(listed));
        }
        txn.delete(&note).map_err(failed)?;
        put(&txn, &dropped, Bytes::new())?;
        commit(&txn, true).await
    }

    async fn try_forget(&self, id: u64) -> Result<Attempt<()>, DirectoryError> {
        let txn = self.begin();
        txn.delete(&id_key(DROPPED, id)).map_err(failed)?;
        commit(&txn, ()).await
    }

    async fn scan(&self, mut span: Span, limit: usize) -> Result<Vec<(Bytes, Bytes)>, DirectoryError> {
        let txn = self.begin();
        let mut rows = Vec::new();
        loop {
            let wanted = limit - rows.len();
            let options = ScanOptions { limit: wanted as u64, ..ScanOptions::default() };
            let page = txn.scan(&span, options).await.map_err(failed)?;
            rows.extend(page.rows.into_iter().take(wanted));
            match page.resume {
                Some(rest) if rows.len() < limit => span = rest,
                _ => return Ok(rows),
            }
        }
    }
}

#[async_trait]
impl TenantStore for KvStore {
    async fn next_id(&self) -> Result<u64, DirectoryError> {
        let number = self.kv.increment(LAST_ID, 1).await.map_err(failed)?;
        u64::try_from(number)
            .ok()
            .and_then(|number| number.checked_add(TenantId::FIRST_USER.0 - 1))
            .ok_or_else(|| DirectoryError::Failed("the counter of tenants is damaged".into()))
    }

    async fn create_range(&self, id: u64) -> Result<(), DirectoryError> {
        settle(|| self.try_note(id), |(), _| ()).await?;
        self.kv.create_tenant(TenantId(id)).await.map_err(failed)
    }

    async fn insert(&self, record: &TenantRecord) -> Result<bool, DirectoryError> {
        settle(|| self.try_insert(record), |now, _| now).await
    }

    async fn update(
        &self,
        name: &str,
        settings: TenantSettings,
    ) -> Result<Option<TenantRecord>, DirectoryError> {
        settle(|| self.try_update(name, &settings), |now, _| now).await
    }

    async fn remove(&self, name: &str) -> Result<Option<TenantRecord>, DirectoryError> {
        // Gone now, and it was there before: the attempt whose end was not known took it out.
        settle(|| self.try_remove(name), |now, unsettled| now.or(unsettled.flatten())).await
    }

    async fn by_name(&self, name: &str) -> Result<Option<TenantRecord>, DirectoryError> {
        self.get(&name_key(name)).await?.map(|bytes| decode(&bytes)).transpose()
    }

    async fn by_id(&self, id: u64) -> Result<Option<TenantRecord>, DirectoryError> {
        let Some(name) = self.get(&id_key(ID, id)).await? else { return Ok(None) };
        let name = String::from_utf8_lossy(&name);
        Ok(self.by_name(&name).await?.filter(|record| record.id == id))
    }

    async fn list(&self, after: &str, limit: usize) -> Result<Vec<TenantRecord>, DirectoryError> {
        let mut start = name_key(after);
        if !after.is_empty() {
            // The first key after `after` itself.
            start.push(0);
        }
        let rows = self.scan(Span::new(start.into(), end(NAME)), limit).await?;
        rows.iter().map(|(_, value)| decode(value)).collect()
    }

    async fn names(
        &self,
        first: u64,
        last: u64,
        limit: usize,
    ) -> Result<BTreeMap<u64, String>, DirectoryError> {
        let mut after = id_key(ID, last);
        after.push(0);
        let rows = self.scan(Span::new(id_key(ID, first).into(), after.into()), limit).await?;
        let name = |(key, name): &(Bytes, Bytes)| {
            Some((id_of(ID, key)?, String::from_utf8_lossy(name).into_owned()))
        };
        Ok(rows.iter().filter_map(name).collect())
    }

    async fn unfinished(&self) -> Result<Vec<u64>, DirectoryError> {
        let mut ids = Vec::new();
        for kind in [CREATING, DROPPED] {
            let rows = self.scan(Span::new(Bytes::from_static(kind), end(kind)), usize::MAX).await?;
            ids.extend(rows.iter().filter_map(|(key, _)| id_of(kind, key)));
        }
        Ok(ids)
    }

    async fn remove_data(&self, id: u64) -> Result<(), DirectoryError> {
        // An attempt whose end is not known may have moved the note: the next finds it moved.
        if !settle(|| self.try_give_up(id), |now, _| now).await? {
            return Ok(());
        }
        self.kv.drop_tenant(TenantId(id)).await.map_err(failed)?;
        settle(|| self.try_forget(id), |(), _| ()).await
    }

    async fn configure(&self, id: u64, placement: &Placement) -> Result<(), DirectoryError> {
        let configured = self.kv.configure_tenant(TenantId(id), placement.range_config()).await;
        configured.map_err(|error| match error.kind() {
            KvErrorKind::InvalidRequest => DirectoryError::Refused(error.message),
            _ => failed(error),
        })
    }
}

/// Runs a transaction until its end is known. `merge` joins the result with what an attempt of unknown
/// end would have given.
async fn settle<T, F>(
    mut attempt: impl FnMut() -> F,
    merge: impl Fn(T, Option<T>) -> T,
) -> Result<T, DirectoryError>
where
    F: Future<Output = Result<Attempt<T>, DirectoryError>>,
{
    let mut unsettled = None;
    let mut last = KvError::new(KvErrorKind::Retry, "contention");
    for number in 0..ATTEMPTS {
        match attempt().await? {
            Attempt::Done(result) => return Ok(merge(result, unsettled)),
            Attempt::Unsettled(result) => {
                unsettled = Some(result);
                last = KvError::new(KvErrorKind::Unavailable, "the connection is lost again and again");
            }
            Attempt::Again(error) => last = error,
        }
        tokio::time::sleep(PAUSE * (1 << number.min(7))).await;
    }
    Err(failed(last))
}

async fn commit<T>(txn: &Txn, result: T) -> Result<Attempt<T>, DirectoryError> {
    match txn.commit().await {
        Ok(_) => Ok(Attempt::Done(result)),
        Err(error) => match error.kind() {
            KvErrorKind::Retry
            | KvErrorKind::Aborted
            | KvErrorKind::Deadlock
            | KvErrorKind::SnapshotBehind => Ok(Attempt::Again(error)),
            KvErrorKind::Ambiguous => Ok(Attempt::Unsettled(result)),
            _ => Err(failed(error)),
        },
    }
}

fn put(txn: &Txn, key: &[u8], value: Bytes) -> Result<(), DirectoryError> {
    txn.put(key, value).map_err(failed)
}

fn name_key(name: &str) -> Vec<u8> {
    [NAME, name.as_bytes()].concat()
}

fn id_key(kind: &[u8], id: u64) -> Vec<u8> {
    [kind, &id.to_be_bytes()].concat()
}

fn id_of(kind: &[u8], key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.strip_prefix(kind)?.try_into().ok()?))
}

/// The first key after all that begin with `kind`.
fn end(kind: &[u8]) -> Bytes {
    prefix_end(kind).unwrap_or_default()
}

fn decode(bytes: &[u8]) -> Result<TenantRecord, DirectoryError> {
    TenantRecord::decode(bytes).map_err(|error| DirectoryError::Failed(error.to_string()))
}

fn failed(error: KvError) -> DirectoryError {
    match error.kind() {
        KvErrorKind::Unavailable
        | KvErrorKind::Overloaded
        | KvErrorKind::Ambiguous
        | KvErrorKind::Retry
        | KvErrorKind::SnapshotBehind
        | KvErrorKind::Aborted
        | KvErrorKind::NotLeaseholder
        | KvErrorKind::RangeNotFound
        | KvErrorKind::LockNotAvailable
        | KvErrorKind::Deadlock => DirectoryError::Unavailable(error.message),
        KvErrorKind::DiskFull => DirectoryError::Full(error.message),
        _ => DirectoryError::Failed(error.message),
    }
}
