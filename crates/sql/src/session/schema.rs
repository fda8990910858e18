//! Schema changes within the session's transaction.

use super::Session;
use super::host::guarded;
use super::locks::{LockKey, mode};
use super::online::check_alone;
use super::portal::Portal;
use super::run::{is_transient, read_only};
use super::view::{Times, now_micros};
use crate::catalog::store;
use crate::ddl::online::Online;
use crate::ddl::{self, DdlContext, statement::Ddl};
use crate::exec::kv_error;
use bytes::Bytes;
use kv_api::LockStrength;
use sql_types::{SqlError, SqlResult};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often a schema change that lost against another transaction is tried.
const MOST_ATTEMPTS: u32 = 20;

impl Session {
    /// Runs a schema change and returns its tag.
    ///
    /// # Errors
    /// 25001 for one that is several transactions; what is wrong with it.
    pub(super) async fn run_schema_change(
        &mut self,
        ddl: &Ddl,
        portal: &Portal,
        deadline: Option<Instant>,
    ) -> SqlResult<String> {
        check_alone(ddl)?;
        self.change_schema(ddl, portal, deadline, false).await
    }

    /// Runs a schema change, or the first of its steps, and returns its tag.
    pub(super) async fn change_schema(
        &mut self,
        ddl: &Ddl,
        portal: &Portal,
        deadline: Option<Instant>,
        in_steps: bool,
    ) -> SqlResult<String> {
        let cancel = self.shared.cancel.clone();
        let first = self.transaction.as_ref().is_none_or(|open| !open.used);
        let mut attempt = 0;
        loop {
            self.ensure_transaction();
            if let Some(open) = &mut self.transaction {
                open.schema.online = Online { wanted: in_steps, ..Online::default() };
            }
            let result = guarded(&cancel, deadline, self.schema_change(ddl, portal)).await;
            let busy = self.transaction.as_mut().and_then(|open| open.schema.online.busy.take());
            match (result, busy) {
                (Err(_), Some((table, mode))) if first => {
                    // Whoever is at work on the table needs the catalog in the end: it is waited for without that.
                    self.restart();
                    let lock = self.shared.lock_in_the_end(LockKey::Table(table), mode);
                    guarded(&cancel, deadline, lock).await?;
                }
                (Err(error), _) if first && attempt < MOST_ATTEMPTS && is_transient(&error) => {
                    attempt += 1;
                    self.restart();
                    tokio::time::sleep(Duration::from_millis(1 << attempt.min(6))).await;
                }
                (result, _) => return result,
            }
        }
    }

    async fn schema_change(&mut self, ddl: &Ddl, portal: &Portal) -> SqlResult<String> {
        if self.transaction.as_ref().is_some_and(|open| open.read_only) {
            return Err(read_only(ddl.tag()));
        }
        if let Some(tag) = ddl.without_effect() {
            return Ok(tag.to_string());
        }
        self.refresh_view().await?;
        let apart = ddl::only_temporary(ddl, &self.view);
        if !apart {
            self.shared.lock(LockKey::Catalog, mode::ACCESS_EXCLUSIVE).await?;
            self.refresh_view().await?;
        }
        self.follow_catalog(None).await?;
        if !apart {
            self.lock_version().await?;
        }
        let view = self.view.clone();
        let Some(open) = self.transaction.as_deref_mut() else {
            return Err(SqlError::internal("no transaction"));
        };
        open.txn.begin_statement();
        let mut catalog = (**view.snapshot()).clone();
        catalog.version = catalog.version.max(1);
        if ddl::makes_temporary(ddl) {
            catalog.begin_temporary(self.shared.database, self.shared.session);
            catalog.finish();
        }
        let mut context = DdlContext {
            times: Times { transaction: open.started, statement: now_micros() },
            view,
            open,
            catalog,
            params: &portal.params,
            memory: &portal.memory,
        };
        let tag = ddl::run(ddl, &mut context).await?;
        let DdlContext { mut catalog, open, .. } = context;
        if let Some(temporary) = catalog.take_temporary(self.shared.database) {
            open.temporary = Some(Arc::new(temporary));
        }
        if !apart {
            catalog.finish();
            open.overlay = Some(Arc::new(catalog));
        }
        open.used = true;
        Ok(tag)
    }

    /// Locks the catalog's version and writes the next one, once per transaction.
    async fn lock_version(&mut self) -> SqlResult<()> {
        if self.transaction.as_ref().is_some_and(|open| open.schema.locked) {
            return Ok(());
        }
        let key = store::version_key();
        loop {
            let Some(open) = self.transaction.as_deref_mut() else {
                return Err(SqlError::internal("no transaction"));
            };
            let stored = open.txn.get(&key, LockStrength::Exclusive).await.map_err(kv_error)?;
            let stored = store::decode_version(stored.as_deref())?;
            if stored == self.view.base.version() || open.overlay.is_some() {
                let next = Bytes::copy_from_slice(&(stored + 1).to_be_bytes());
                open.txn.put(&key, next).map_err(kv_error)?;
                open.schema.locked = true;
                // What is built on this snapshot is the next version.
                let mut catalog = (*self.view.base).clone();
                catalog.version = stored + 1;
                catalog.finish();
                open.overlay = Some(Arc::new(catalog));
                break;
            }
            // Another node has changed the catalog.
            self.shared.engine.forget_catalog();
            self.shared.engine.plans.clear();
            self.shared.engine.catalog().await?;
            let before = self.view.base.version();
            self.refresh_view().await?;
            if self.view.base.version() == before {
                return Err(kv_error(kv_api::KvError::new(
                    kv_api::KvErrorKind::Retry,
                    "the catalog changed while the statement began",
                )));
            }
        }
        self.refresh_view().await
    }
}
