//! Transactions of a session.
//!
//! ```text
//!   idle ── statement ──► implicit ── Sync, end of query, commit_after ──► idle
//!     │                      └─ BEGIN ──┐
//!     └── BEGIN ───────────────────────► open ── COMMIT, ROLLBACK ──► idle
//!                                        │ ▲
//!                                  error ▼ │ ROLLBACK TO
//!                                        failed ── COMMIT, ROLLBACK ──► idle
//! ```

use super::Session;
use super::analyze::Made;
use super::api::{Notice, Notification};
use super::as_of::Past;
use super::command::{IsolationLevel, Modes};
use super::view::{Times, now_micros};
use crate::catalog::temporary::Temporary;
use crate::catalog::{CatalogSnapshot, Garbage};
use crate::ddl::online::{self, Online};
use crate::dml::deferred::{Deferred, DeferredMark};
use crate::exec::kv_error;
use crate::instances::lease_ended;
use crate::routine::statements::SessionMark;
use kv_api::KvErrorKind;
use kv_client::{Isolation, Savepoint, Txn, TxnOptions};
use sql_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// Savepoints a transaction may hold.
const MOST_SAVEPOINTS: usize = 10_000;

/// A named savepoint.
pub(crate) struct SavepointEntry {
    pub name: String,
    pub kv: Savepoint,
    pub overlay: Option<Arc<CatalogSnapshot>>,
    pub temporary: Option<Arc<Temporary>>,
    pub settings: usize,
    pub notifications: usize,
    pub cursors: u64,
    pub to_clear: (usize, usize),
    pub deferred: DeferredMark,
    pub statistics: usize,
}

/// What a transaction's schema changes leave to do at its end.
#[derive(Default)]
pub(crate) struct SchemaChange {
    /// The version key is locked and written.
    pub locked: bool,
    /// Storage to clear if it commits (recorded as garbage).
    pub clear_on_commit: Vec<Garbage>,
    /// Storage to clear if it does not.
    pub clear_on_abort: Vec<Garbage>,
    /// Storage to clear in any case: a savepoint made it garbage.
    pub clear_at_end: Vec<Garbage>,
    /// What it has to do with changes in steps.
    pub online: Online,
}

/// A transaction under way.
pub(crate) struct Open {
    pub txn: Txn,
    pub explicit: bool,
    pub isolation: IsolationLevel,
    pub read_only: bool,
    /// Where it reads, unless that is the present.
    pub past: Option<Past>,
    pub failed: bool,
    /// The registration of the node under which it began.
    pub registration: u64,
    /// Whether a statement has run in it.
    pub used: bool,
    pub started: i64,
    /// The catalog its reads so far go with.
    pub catalog: Option<Arc<CatalogSnapshot>>,
    pub overlay: Option<Arc<CatalogSnapshot>>,
    /// The session's temporary objects, if the transaction has changed them.
    pub temporary: Option<Arc<Temporary>>,
    pub schema: SchemaChange,
    pub savepoints: Vec<SavepointEntry>,
    /// Constraints still to be checked.
    pub deferred: Deferred,
    /// Statistics made, to be known once it commits.
    pub statistics: Vec<Made>,
}

impl Open {
    /// Undoes what was written, made and put off since a point.
    pub(super) fn go_back(&mut self, kv: &Savepoint, deferred: &DeferredMark, mark: &SessionMark) {
        self.txn.rollback_to(*kv);
        self.deferred.rollback_to(deferred);
        self.statistics.truncate(mark.statistics);
        self.overlay = mark.overlay.clone();
        self.temporary = mark.temporary.clone();
        let schema = &mut self.schema;
        schema.clear_on_commit.truncate(mark.to_clear.0);
        let made_since = schema.clear_on_abort.split_off(mark.to_clear.1.min(schema.clear_on_abort.len()));
        schema.clear_at_end.extend(made_since);
        if self.overlay.is_none() {
            // The version is written anew by the next schema change.
            schema.locked = false;
        }
    }
}

impl Session {
    fn new_txn(&self, isolation: IsolationLevel, read_only: bool, past: Option<&Past>) -> Txn {
        let lock_timeout = self.view.derived.lock_timeout;
        let follower_reads =
            read_only && self.view.derived.follower_reads || past.is_some_and(|past| past.any_replica);
        let txn = self.shared.engine.kv.begin(TxnOptions {
            isolation: match isolation {
                IsolationLevel::ReadCommitted | IsolationLevel::ReadUncommitted => Isolation::ReadCommitted,
                IsolationLevel::RepeatableRead | IsolationLevel::Serializable => Isolation::Serializable,
            },
            lock_timeout_ms: lock_timeout
                .map_or(0, |limit| limit.as_millis().clamp(1, u128::from(u32::MAX)) as u32),
            // A transaction that may yet become one that writes keeps track of what it reads.
            read_only: follower_reads,
            follower_reads,
            as_of: past.map(|past| past.timestamp),
            priority: self.view.derived.priority,
            parallel_commits: self.view.derived.parallel_commits,
            ..TxnOptions::default()
        });
        self.shared.activity.began(txn.name());
        txn
    }

    pub(super) fn start(&mut self, explicit: bool, modes: Modes, past: Option<Past>) {
        let derived = self.view.derived.clone();
        let isolation = modes.isolation.unwrap_or(derived.isolation);
        let read_only = past.is_some() || modes.read_only.unwrap_or(derived.read_only);
        self.transaction = Some(Box::new(Open {
            txn: self.new_txn(isolation, read_only, past.as_ref()),
            explicit,
            isolation,
            read_only,
            past,
            failed: false,
            registration: self.shared.engine.instances.registration(),
            used: false,
            started: now_micros(),
            catalog: None,
            overlay: None,
            temporary: None,
            schema: SchemaChange::default(),
            savepoints: Vec::new(),
            deferred: Deferred::default(),
            statistics: Vec::new(),
        }));
    }

    /// Starts the transaction anew, for another attempt of its first statement.
    pub(super) fn restart(&mut self) {
        self.shared.release_transaction_locks();
        self.shared.settings.lock().rollback_to(0);
        self.shared.outgoing.lock().clear();
        let Some(open) = &self.transaction else { return };
        let registration = self.shared.engine.instances.registration();
        let txn = self.new_txn(open.isolation, open.read_only, open.past.as_ref());
        if let Some(open) = &mut self.transaction {
            (open.txn, open.registration) = (txn, registration);
            open.overlay = None;
            open.temporary = None;
            open.catalog = None;
            open.deferred.forget();
            open.statistics.clear();
            let left = std::mem::take(&mut open.schema);
            self.shared.engine.clear_storage(left.clear_on_abort);
        }
    }

    /// Waits for the node's lease. A transaction that began under another one has failed, unless it has done nothing yet.
    ///
    /// # Errors
    /// 08006 if there is no lease to be had; 57P01 if advisory locks of the session went with one; 40001.
    pub(super) async fn follow_lease(&mut self) -> SqlResult<()> {
        let engine = self.shared.engine.clone();
        engine.instances.leased(&engine).await?;
        let registration = engine.instances.registration();
        self.shared.check_advisory(registration)?;
        match &self.transaction {
            Some(open) if open.registration != registration && !open.failed && open.past.is_none() => {
                if open.used || !open.txn.is_pristine() {
                    return Err(lease_ended());
                }
                let txn = self.new_txn(open.isolation, open.read_only, None);
                if let Some(open) = &mut self.transaction {
                    (open.txn, open.registration) = (txn, registration);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Writes notifications for the other SQL nodes, as part of the transaction.
    async fn post_outgoing(&self) -> SqlResult<Option<tokio::sync::OwnedMutexGuard<()>>> {
        let outgoing = self.shared.outgoing.lock().clone();
        let Some(open) = self.transaction.as_ref().filter(|_| !outgoing.is_empty()) else { return Ok(None) };
        let sender = (self.shared.database, self.shared.process_id);
        self.shared.engine.instances.post(&open.txn, sender, &outgoing).await
    }

    /// Makes sure that all SQL nodes know of the transaction's strong locks until it has ended.
    async fn confirm_standing(&self) -> SqlResult<()> {
        let standing = self.shared.held.lock().standing;
        match (standing, &self.transaction) {
            (Some(standing), Some(open)) if open.schema.locked || open.txn.has_writes() => {
                self.shared.engine.instances.confirm(&open.txn, standing).await
            }
            _ => Ok(()),
        }
    }

    /// Fails in a failed transaction.
    pub(super) fn check_not_failed(&self) -> SqlResult<()> {
        match &self.transaction {
            Some(open) if open.failed => Err(SqlError::new(
                SqlState::IN_FAILED_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            )),
            _ => Ok(()),
        }
    }

    /// Whether the session is in a transaction block.
    pub(super) fn in_block(&self) -> bool {
        self.transaction.as_ref().is_some_and(|open| open.explicit)
    }

    pub(super) fn times(&self) -> Times {
        let now = now_micros();
        Times { transaction: self.transaction.as_ref().map_or(now, |open| open.started), statement: now }
    }

    /// BEGIN
    pub(super) fn begin(&mut self, modes: Modes, past: Option<Past>) -> SqlResult<()> {
        match &mut self.transaction {
            Some(open) if open.explicit => {
                self.shared.notice(Notice::warning(
                    SqlState::ACTIVE_TRANSACTION,
                    "there is already a transaction in progress",
                ));
                return Ok(());
            }
            // Statements before BEGIN in one message become part of the block.
            Some(open) if open.used => open.explicit = true,
            _ => self.start(true, modes, None),
        }
        let set = self.set_modes(modes, past);
        if set.is_err() && self.transaction.as_ref().is_some_and(|open| !open.used) {
            // There is no block that could be failed.
            self.abort();
        }
        set
    }

    /// SET TRANSACTION
    pub(super) fn set_modes(&mut self, modes: Modes, past: Option<Past>) -> SqlResult<()> {
        let follower_reads = self.view.derived.follower_reads;
        let Some(open) = &mut self.transaction else { return Ok(()) };
        let mut anew = None;
        if modes.read_only == Some(false) && (past.is_some() || open.past.is_some()) {
            let message = "AS OF SYSTEM TIME specified with READ WRITE mode";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        if past.is_some() {
            if open.used {
                return Err(SqlError::new(
                    SqlState::ACTIVE_TRANSACTION,
                    "SET TRANSACTION AS OF SYSTEM TIME must be called before any query",
                ));
            }
            open.read_only = true;
            open.past = past;
            anew = Some(open.isolation);
        }
        if let Some(read_only) = modes.read_only {
            if !read_only && open.read_only && open.used {
                return Err(SqlError::new(
                    SqlState::ACTIVE_TRANSACTION,
                    "transaction read-write mode must be set before any query",
                ));
            }
            if read_only != open.read_only && follower_reads && !open.used {
                anew = Some(open.isolation);
            }
            open.read_only = read_only;
        }
        if let Some(isolation) = modes.isolation.filter(|wanted| *wanted != open.isolation) {
            if open.used {
                return Err(SqlError::new(
                    SqlState::ACTIVE_TRANSACTION,
                    "SET TRANSACTION ISOLATION LEVEL must be called before any query",
                ));
            }
            open.isolation = isolation;
            anew = Some(isolation);
        }
        let (read_only, past) = (open.read_only, open.past.clone());
        if let Some(isolation) = anew {
            let txn = self.new_txn(isolation, read_only, past.as_ref());
            if let Some(open) = &mut self.transaction {
                open.txn = txn;
            }
        }
        Ok(())
    }

    /// Commits what is open. The session is idle afterwards in any case.
    pub(super) async fn commit(&mut self) -> SqlResult<()> {
        if let Err(error) = self.check_deferred(None, true).await {
            self.abort();
            return Err(error);
        }
        if let Err(error) = self.act_on_commit().await {
            self.abort();
            return Err(error);
        }
        if let Err(error) = self.confirm_standing().await {
            self.abort();
            return Err(error);
        }
        // Held until the commit has returned.
        let _turn = match self.post_outgoing().await {
            Ok(turn) => turn,
            Err(error) => {
                self.abort();
                return Err(error);
            }
        };
        let Some(open) = self.transaction.take() else {
            self.end_settings(true);
            return Ok(());
        };
        let (open, result) = if open.schema.locked {
            // Goes on if the client leaves: the node must learn of a new catalog.
            let engine = self.shared.engine.clone();
            let mut open = open;
            let (alone, asked) = {
                let mut held = self.shared.held.lock();
                (held.standing.is_none_or(|standing| standing.alone), std::mem::take(&mut held.asked))
            };
            let committing = tokio::spawn(async move {
                let result = open.txn.commit().await;
                match (&result, &open.overlay) {
                    (Ok(_), Some(overlay)) => {
                        let before = engine.known_catalog();
                        engine.publish(overlay.clone());
                        if let Some(started) = open.schema.online.started.take() {
                            online::start(&engine, started);
                        }
                        if !alone {
                            engine.instances.announce(&engine, asked).await;
                        }
                        engine.place_tables(before, overlay).await;
                    }
                    (Err(error), _) if error.kind() == KvErrorKind::Ambiguous => engine.forget_catalog(),
                    _ => {}
                }
                (open, result)
            });
            committing.await.map_err(|error| SqlError::internal(error.to_string()))?
        } else {
            let result = open.txn.commit().await;
            (open, result)
        };
        self.committed(
            *open,
            result.map(|_| ()).map_err(|error| {
                let ambiguous = error.kind() == KvErrorKind::Ambiguous;
                (kv_error(error), ambiguous)
            }),
        )
    }

    /// Takes note of how the commit of a transaction went.
    pub(super) fn committed(&mut self, open: Open, result: Result<(), (SqlError, bool)>) -> SqlResult<()> {
        let engine = self.shared.engine.clone();
        match result {
            Ok(()) => {
                if let Some(overlay) = open.overlay {
                    engine.publish(overlay);
                }
                if open.temporary.is_some() {
                    self.set_temporary(open.temporary.filter(|temporary| !temporary.is_empty()));
                }
                engine.clear_storage(open.schema.clear_on_commit);
                engine.clear_storage(open.schema.clear_at_end);
                for made in open.statistics {
                    engine.publish_statistics(made.table, made.statistics, made.changes);
                }
                let outgoing = std::mem::take(&mut *self.shared.outgoing.lock());
                for (channel, payload) in outgoing {
                    let sent = Notification { process_id: self.shared.process_id, channel, payload };
                    engine.notify.send(self.shared.database, &sent);
                }
                self.ended(true);
                Ok(())
            }
            Err((error, ambiguous)) => {
                if open.schema.locked && ambiguous {
                    // What became of the schema change is to be read from the keyspace.
                    engine.forget_catalog();
                } else {
                    engine.clear_storage(open.schema.clear_on_abort);
                    engine.clear_storage(open.schema.clear_at_end);
                }
                self.ended(false);
                Err(error)
            }
        }
    }

    /// Undoes what is open.
    pub(super) fn abort(&mut self) {
        if let Some(open) = self.transaction.take() {
            self.shared.engine.clear_storage(open.schema.clear_on_abort);
            self.shared.engine.clear_storage(open.schema.clear_at_end);
            // Dropping the coordinator tells the KV node.
            drop(open.txn);
        }
        self.ended(false);
    }

    fn ended(&mut self, committed: bool) {
        self.shared.outgoing.lock().clear();
        self.shared.release_transaction_locks();
        self.end_settings(committed);
        if !self.cursors.is_empty() {
            self.cursors.retain(|_, cursor| cursor.survives(committed));
            self.name_cursors();
        }
    }

    fn end_settings(&mut self, committed: bool) {
        self.shared.settings.lock().end_transaction(committed);
    }

    /// SAVEPOINT
    pub(super) fn savepoint(&mut self, name: &str) -> SqlResult<()> {
        let cursors = self.next_cursor;
        let settings = self.shared.settings.lock().mark();
        let notifications = self.shared.outgoing.lock().len();
        let open = self.block("SAVEPOINT")?;
        if open.savepoints.len() >= MOST_SAVEPOINTS {
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT, "too many savepoints in one transaction"));
        }
        let kv = open.txn.savepoint();
        let (name, overlay, temporary) = (name.to_string(), open.overlay.clone(), open.temporary.clone());
        let to_clear = (open.schema.clear_on_commit.len(), open.schema.clear_on_abort.len());
        let (deferred, statistics) = (open.deferred.mark(), open.statistics.len());
        open.savepoints.push(SavepointEntry {
            deferred,
            statistics,
            name,
            kv,
            overlay,
            temporary,
            settings,
            notifications,
            cursors,
            to_clear,
        });
        Ok(())
    }

    fn block(&mut self, what: &str) -> SqlResult<&mut Open> {
        match &mut self.transaction {
            Some(open) if open.explicit => Ok(open),
            _ => {
                let message = format!("{what} can only be used in transaction blocks");
                Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, message))
            }
        }
    }

    fn find_savepoint(open: &Open, name: &str) -> SqlResult<usize> {
        open.savepoints.iter().rposition(|savepoint| savepoint.name == name).ok_or_else(|| {
            SqlError::new(SqlState::INVALID_SAVEPOINT, format!("savepoint \"{name}\" does not exist"))
        })
    }

    /// RELEASE SAVEPOINT
    pub(super) fn release_savepoint(&mut self, name: &str) -> SqlResult<()> {
        let open = self.block("RELEASE SAVEPOINT")?;
        let position = Self::find_savepoint(open, name)?;
        open.savepoints.truncate(position);
        Ok(())
    }

    /// ROLLBACK TO SAVEPOINT
    pub(super) fn rollback_to_savepoint(&mut self, name: &str) -> SqlResult<()> {
        let open = self.block("ROLLBACK TO SAVEPOINT")?;
        let position = Self::find_savepoint(open, name)?;
        open.savepoints.truncate(position + 1);
        let Some(savepoint) = open.savepoints.last() else { return Ok(()) };
        let session = SessionMark {
            overlay: savepoint.overlay.clone(),
            temporary: savepoint.temporary.clone(),
            statistics: savepoint.statistics,
            to_clear: savepoint.to_clear,
        };
        let (kv, deferred) = (savepoint.kv, savepoint.deferred.clone());
        open.failed = false;
        let Some(savepoint) = open.savepoints.last() else { return Ok(()) };
        let (settings, notifications, cursors) =
            (savepoint.settings, savepoint.notifications, savepoint.cursors);
        open.go_back(&kv, &deferred, &session);
        self.shared.settings.lock().rollback_to(settings);
        self.shared.outgoing.lock().truncate(notifications);
        self.cursors.retain(|_, cursor| cursor.number < cursors || cursor.survives(false));
        self.name_cursors();
        Ok(())
    }
}
