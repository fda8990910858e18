//! The temporary objects of a session: when they change, and when they end.

use super::Session;
use crate::catalog::temporary::{OnCommit, Temporary};
use crate::catalog::{oids, store};
use crate::exec::kv_error;
use crate::table::TableCodec;
use kv_client::ScanOptions;
use sql_types::SqlResult;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Session {
    /// The temporary objects that the next statement sees.
    pub(super) fn temporary(&self) -> Option<&Arc<Temporary>> {
        let changed = self.transaction.as_ref().and_then(|open| open.temporary.as_ref());
        changed.or(self.temporary.as_ref())
    }

    /// Empties and drops the tables that are to be at a commit, as part of the transaction.
    pub(super) async fn act_on_commit(&mut self) -> SqlResult<()> {
        let Some(temporary) = self.temporary().filter(|temporary| temporary.acts_on_commit()).cloned() else {
            return Ok(());
        };
        let mut changed = (*temporary).clone();
        let engine = self.shared.engine.clone();
        let Some(open) = self.transaction.as_deref_mut() else { return Ok(()) };
        for table in temporary.tables.values() {
            match table.on_commit {
                OnCommit::Preserve => continue,
                OnCommit::Delete => {
                    let codec = TableCodec::new(table.clone())?;
                    let options = ScanOptions { limit: 1, ..ScanOptions::default() };
                    let page = open.txn.scan(&codec.primary().span(), options).await.map_err(kv_error)?;
                    if page.rows.is_empty() {
                        continue;
                    }
                    let mut emptied = (**table).clone();
                    emptied.version += 1;
                    emptied.storage = u64::from(engine.new_oid().await?);
                    let (key, value) = store::temporary_record(emptied.storage);
                    open.txn.put(&key, value).map_err(kv_error)?;
                    changed.tables.insert(table.oid, Arc::new(emptied));
                }
                OnCommit::Drop => {
                    changed.tables.remove(&table.oid);
                    changed.views.retain(|_, view| !view.depends_on.contains(&table.oid));
                    let owned: Vec<_> = changed.sequences.values().cloned().collect();
                    for sequence in owned {
                        if sequence.owned_by.is_some_and(|(owner, _)| owner == table.oid) {
                            changed.sequences.remove(&sequence.oid);
                            open.schema.clear_on_commit.push((sequence.storage, 0));
                        }
                    }
                }
            }
            open.schema.clear_on_commit.push((table.storage, 0));
        }
        open.temporary = Some(Arc::new(changed));
        Ok(())
    }

    /// DISCARD TEMP: drops them all, with the transaction if there is one.
    pub(super) fn discard_temporary(&mut self) {
        let Some(temporary) = self.temporary().cloned() else { return };
        match self.transaction.as_deref_mut() {
            Some(open) => {
                open.schema.clear_on_commit.extend(temporary.storages().map(|storage| (storage, 0)));
                open.temporary = Some(Arc::default());
            }
            None => self.end_temporary(),
        }
    }

    /// Replaces the temporary objects. As long as there are any, the node keeps its lease: their contents are its own.
    pub(super) fn set_temporary(&mut self, temporary: Option<Arc<Temporary>>) {
        let sessions = &self.shared.engine.instances.temporary;
        match (self.temporary.is_some(), temporary.is_some()) {
            (false, true) => drop(sessions.fetch_add(1, Ordering::AcqRel)),
            (true, false) => drop(sessions.fetch_sub(1, Ordering::AcqRel)),
            _ => {}
        }
        self.temporary = temporary;
    }

    /// Clears what the temporary objects contain: the session ends, or wants them no more.
    pub(super) fn end_temporary(&mut self) {
        let temporary = self.temporary.clone();
        self.set_temporary(None);
        if let Some(temporary) = temporary {
            self.shared.engine.clear_storage(temporary.storages().map(|storage| (storage, 0)).collect());
        }
    }
}

/// Whether a table is a session's own.
pub(super) fn is_temporary(table: &crate::catalog::descriptor::TableDescriptor) -> bool {
    table.schema == oids::PG_TEMP
}
