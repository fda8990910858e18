//! What this instance asks of the others.

use super::record::{self, Ask, Request, VERSION};
use super::section::{Progress, Section};
use super::{InstanceId, Instances, lease_ended};
use crate::catalog::store;
use crate::engine::Engine;
use crate::exec::kv_error;
use crate::session::locks::{LockKey, Scope};
use kv_api::LockStrength;
use kv_client::{KvClient, ReadOptions, ScanOptions, Span, Timestamp, Txn, TxnOptions, WaitPolicy};
use sql_types::{Oid, SqlError, SqlResult, SqlState};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The longest wait for a lock of the other instances when `lock_timeout` sets none.
const LONGEST_WAIT: Duration = Duration::from_secs(120);
/// Between attempts to remove a request.
const PAUSE: Duration = Duration::from_millis(200);

/// Who else there was when a transaction first needed a strong lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    generation: u64,
    /// Whether there was nobody else.
    pub alone: bool,
}

/// A request that is to be removed when this is dropped: what the others did for it is undone then.
pub(crate) struct Asked {
    engine: Weak<Engine>,
    asker: InstanceId,
    number: u64,
    /// Snapshots above this have it.
    at: Timestamp,
}

impl Drop for Asked {
    fn drop(&mut self) {
        let Some(engine) = self.engine.upgrade() else { return };
        let (asker, number) = (self.asker, self.number);
        // Without a runtime the process is about to end, and its lease with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { engine.instances.remove(asker, number).await });
        }
    }
}

/// A local lock, given back unless the others have it, too.
struct Local<'a> {
    engine: &'a Engine,
    owner: u64,
    key: LockKey,
    mode: u8,
    scope: Scope,
    keep: bool,
}

impl Drop for Local<'_> {
    fn drop(&mut self) {
        if !self.keep {
            self.engine.locks.release(self.owner, self.key, self.mode, self.scope);
        }
    }
}

/// Counts who waits for answers, so that they are looked for often.
struct Waiting<'a>(&'a Instances);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

fn timed_out() -> SqlError {
    SqlError::new(SqlState::LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout")
}

/// Deletes a request and its answers, as part of a transaction.
async fn delete(txn: &Txn, asker: InstanceId, number: u64) -> kv_api::KvResult<()> {
    txn.delete(&record::request_key(asker, number))?;
    let span = Span::new(record::answer_key(asker, number, 0), record::answer_key(asker, number, u64::MAX));
    for (key, _) in txn.scan(&span, ScanOptions::default()).await?.rows {
        txn.delete(&key)?;
    }
    Ok(())
}

impl Instances {
    /// Who else there is, read now.
    ///
    /// # Errors
    /// What the KV nodes answer.
    pub(crate) async fn standing(&self, engine: &Engine) -> SqlResult<Standing> {
        let txn = self.kv.begin(TxnOptions { read_only: true, ..TxnOptions::default() });
        let section = Section::read(&txn).await?;
        let standing =
            Standing { generation: section.generation, alone: section.others(self.id()).next().is_none() };
        if !standing.alone {
            // From now on it polls.
            self.note(section);
            self.keep(engine);
            self.wake.notify_one();
        }
        Ok(standing)
    }

    /// Makes sure that nobody has registered since, nor will before the transaction has ended: its locks are known to all
    /// instances there are.
    ///
    /// # Errors
    /// 40001 if somebody has; what the KV nodes answer.
    pub(crate) async fn confirm(&self, txn: &Txn, standing: Standing) -> SqlResult<()> {
        let stored = txn.get(&record::generation_key(), LockStrength::Exclusive).await.map_err(kv_error)?;
        if store::decode_version(stored.as_deref())? == standing.generation {
            return Ok(());
        }
        let message = "could not serialize access: another SQL node has begun to serve the database";
        Err(SqlError::new(SqlState::SERIALIZATION_FAILURE, message)
            .with_hint("The transaction might succeed if retried."))
    }

    /// Asks all other instances for something.
    ///
    /// # Errors
    /// 40001 without a lease; what the KV nodes answer.
    pub(crate) async fn ask(&self, engine: &Arc<Engine>, owner: u64, ask: Ask) -> SqlResult<Asked> {
        self.ask_and_remove(engine, owner, ask, Vec::new()).await
    }

    async fn ask_and_remove(
        &self,
        engine: &Arc<Engine>,
        owner: u64,
        ask: Ask,
        mut done: Vec<Asked>,
    ) -> SqlResult<Asked> {
        let asker = self.id();
        if asker == 0 {
            return Err(lease_ended());
        }
        let number = self.next_request.fetch_add(1, Ordering::Relaxed);
        let value = store::encode(&Request { version: VERSION, owner, ask })?;
        // It is removed also if this is given up, or its outcome is not known.
        let mut asked = Asked { engine: Arc::downgrade(engine), asker, number, at: Timestamp::MAX };
        let txn = self.kv.begin(TxnOptions::default());
        txn.put(&record::request_key(asker, number), value).map_err(kv_error)?;
        for done in &done {
            delete(&txn, done.asker, done.number).await.map_err(kv_error)?;
        }
        asked.at = txn.commit().await.map_err(kv_error)?.timestamp.unwrap_or(Timestamp::MAX);
        for done in &mut done {
            done.engine = Weak::new();
        }
        Ok(asked)
    }

    /// Waits until all other instances have done what was asked, or are no more.
    ///
    /// # Errors
    /// Why one refused; 55P03 after `timeout`; 40001 if the own lease has ended.
    pub(crate) async fn settled(
        &self,
        engine: &Engine,
        asked: &Asked,
        timeout: Option<Duration>,
    ) -> SqlResult<()> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let _waiting = Waiting(self);
        let mut seen = self.seen.subscribe();
        self.keep(engine);
        self.wake.notify_one();
        let settled = async {
            loop {
                if self.id() != asked.asker {
                    return Err(lease_ended());
                }
                {
                    let section = seen.borrow_and_update();
                    let progress = match section.at > asked.at {
                        true => section.progress(asked.asker, asked.number),
                        false => Progress::Pending,
                    };
                    match progress {
                        Progress::Done => return Ok(()),
                        Progress::Refused(code, message) => {
                            let deadlock = code == SqlState::DEADLOCK.as_str();
                            let code =
                                if deadlock { SqlState::DEADLOCK } else { SqlState::LOCK_NOT_AVAILABLE };
                            return Err(SqlError::new(code, message));
                        }
                        Progress::Pending => {}
                    }
                }
                if seen.changed().await.is_err() {
                    return Err(lease_ended());
                }
            }
        };
        match timeout {
            None => settled.await,
            Some(limit) => tokio::time::timeout(limit, settled).await.unwrap_or_else(|_| Err(timed_out())),
        }
    }

    /// Takes a lock here and at all other instances.
    ///
    /// # Errors
    /// 40P01, 55P03; 40001 if the own lease has ended; what the KV nodes answer.
    pub(crate) async fn lock_everywhere(
        &self,
        engine: &Arc<Engine>,
        owner: u64,
        (key, mode): (LockKey, u8),
        scope: Scope,
        (waits, timeout): (bool, Option<Duration>),
    ) -> SqlResult<Asked> {
        let limit = match key {
            LockKey::Advisory(..) => timeout,
            _ => Some(timeout.unwrap_or(LONGEST_WAIT)),
        };
        // One instance asks for it at a time. It is not committed: the lock goes with it.
        let asking = self.kv.begin(TxnOptions {
            lock_timeout_ms: limit.map_or(0, |limit| limit.as_millis().clamp(1, u128::from(u32::MAX)) as u32),
            ..TxnOptions::default()
        });
        let wait = if waits { WaitPolicy::Block } else { WaitPolicy::Error };
        let exclusive = ReadOptions { wait, ..LockStrength::Exclusive.into() };
        asking.get(&record::asking_key(key), exclusive).await.map_err(kv_error)?;
        // Before the own lock: a cycle that closes here is found among all that wait for anything, anywhere.
        let asked = self.ask(engine, owner, Ask::Lock { key, mode, waits }).await?;
        match waits {
            true => engine.locks.lock(owner, key, mode, scope, timeout).await?,
            false if engine.locks.try_lock(owner, key, mode, scope) => {}
            false => return Err(timed_out()),
        }
        let mut local = Local { engine, owner, key, mode, scope, keep: false };
        self.settled(engine, &asked, limit).await?;
        local.keep = true;
        asking.rollback().await;
        Ok(asked)
    }

    /// Waits, at all other instances, for those who hold a lock on a table now that conflicts with a mode, and who may have
    /// taken it under an older catalog than the one that is published.
    ///
    /// # Errors
    /// As for [`Instances::settled`].
    pub(crate) async fn drain_elsewhere(
        &self,
        engine: &Arc<Engine>,
        owner: u64,
        (table, mode): (Oid, u8),
        timeout: Option<Duration>,
    ) -> SqlResult<()> {
        if self.standing(engine).await?.alone {
            return Ok(());
        }
        let asked = self.ask(engine, owner, Ask::Drain { table, mode }).await?;
        self.settled(engine, &asked, timeout).await
    }

    /// Has all other instances know the catalog that was committed, and gives back what they hold for it. What keeps them
    /// from it is the end of their leases, or of this one's: the change is committed in any case.
    pub(crate) async fn announce(&self, engine: &Arc<Engine>, done: Vec<Asked>) {
        match self.ask_and_remove(engine, 0, Ask::Refresh, done).await {
            Ok(asked) => {
                if let Err(error) = self.settled(engine, &asked, None).await {
                    tracing::warn!(%error, "another SQL node may learn late of a schema change");
                }
            }
            Err(error) => tracing::warn!(%error, "other SQL nodes may learn late of a schema change"),
        }
    }

    /// Removes a request, until it is gone or the lease is.
    async fn remove(&self, asker: InstanceId, number: u64) {
        while self.id() == asker {
            match remove_once(&self.kv, asker, number).await {
                Ok(()) => return,
                Err(error) => tracing::debug!(%error, "a request to other SQL nodes is not removed yet"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn remove_once(kv: &KvClient, asker: InstanceId, number: u64) -> kv_api::KvResult<()> {
    kv.run(|txn| async move { delete(&txn, asker, number).await }).await
}
