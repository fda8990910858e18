//! What other instances ask of this one.
//!
//! Each request has a task. It does what is asked, says so, and holds the lock, if it is one, until it is dropped: when the
//! request is gone, or its asker, or this instance's own lease.

use super::record::{self, Answer, Ask, Request, VERSION};
use super::section::Section;
use super::{InstanceId, Instances};
use crate::catalog::store;
use crate::engine::Engine;
use crate::session::locks::{LockKey, LockManager, Scope};
use kv_client::KvClient;
use sql_types::{SqlError, SqlResult, SqlState};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;

/// Between attempts to say what was done.
const PAUSE: Duration = Duration::from_millis(100);

/// The requests of others that this instance serves.
#[derive(Default)]
pub(super) struct Serving {
    /// By asker and number.
    tasks: HashMap<(InstanceId, u64), Task>,
    /// Who the owners at other instances are to the lock manager: by instance and owner there. One and the same for all
    /// locks of a session, so that cycles are found.
    owners: HashMap<(InstanceId, u64), u64>,
}

impl Serving {
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}

struct Task {
    running: AbortHandle,
    owner: (InstanceId, u64),
}

impl Drop for Task {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// A lock held for another instance.
struct Held {
    locks: Arc<LockManager>,
    owner: u64,
    key: LockKey,
    mode: u8,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.locks.release(self.owner, self.key, self.mode, Scope::Session);
    }
}

impl Held {
    fn at_once(locks: &Arc<LockManager>, owner: u64, key: LockKey, mode: u8) -> Option<Held> {
        let free = locks.try_lock(owner, key, mode, Scope::Session);
        free.then(|| Held { locks: locks.clone(), owner, key, mode })
    }
}

/// A request, and how it is answered.
struct Served {
    kv: KvClient,
    locks: Arc<LockManager>,
    own: InstanceId,
    asker: InstanceId,
    number: u64,
    owner: u64,
}

impl Served {
    async fn answer(&self, result: SqlResult<()>) {
        let refused = result.err().map(|error| (error.code.as_str().to_string(), error.message));
        let Ok(value) = store::encode(&Answer { version: VERSION, refused }) else { return };
        let key = record::answer_key(self.asker, self.number, self.own);
        // Until the request is gone, and this task with it.
        while let Err(error) = self.kv.write(&[(key.clone(), Some(value.clone()))]).await {
            tracing::debug!(%error, "another SQL node is not answered yet");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Takes a lock and holds it until this is dropped.
    async fn lock(self, (key, mode): (LockKey, u8), waits: bool, held: Option<Held>) {
        let held = match held {
            Some(held) => Ok(held),
            None if !waits => Err(SqlError::new(SqlState::LOCK_NOT_AVAILABLE, "another holds the lock")),
            None => self.locks.lock(self.owner, key, mode, Scope::Session, None).await.map(|()| Held {
                locks: self.locks.clone(),
                owner: self.owner,
                key,
                mode,
            }),
        };
        match held {
            Err(error) => self.answer(Err(error)).await,
            Ok(_held) => {
                self.answer(Ok(())).await;
                std::future::pending::<()>().await;
            }
        }
    }

    async fn drain(self, key: LockKey, mode: u8) {
        let drained = self.locks.drain(self.owner, key, mode, None).await;
        self.answer(drained).await;
    }
}

impl Instances {
    /// Begins what is asked and ends what is not any more. The catalog is as new as the section.
    pub(super) fn serve(&self, engine: &Engine, section: &Section) {
        let own = self.id();
        let mut serving = self.serving.lock();
        let is_there = |asker: &InstanceId| section.instances.contains_key(asker);
        serving.tasks.retain(|key, _| section.requests.contains_key(key) && is_there(&key.0));
        for ((asker, number), request) in &section.requests {
            if *asker == own || !is_there(asker) || serving.tasks.contains_key(&(*asker, *number)) {
                continue;
            }
            let owner = (*asker, request.owner);
            let task = Task { running: self.begin(engine, &mut serving, (*asker, *number), request), owner };
            serving.tasks.insert((*asker, *number), task);
        }
        let Serving { tasks, owners } = &mut *serving;
        owners.retain(|owner, _| tasks.values().any(|task| task.owner == *owner));
    }

    fn begin(
        &self,
        engine: &Engine,
        serving: &mut Serving,
        (asker, number): (InstanceId, u64),
        request: &Request,
    ) -> AbortHandle {
        let owner = match request.ask {
            // An owner drains one lock at a time.
            Ask::Drain { .. } => engine.next_session(),
            _ => *serving.owners.entry((asker, request.owner)).or_insert_with(|| engine.next_session()),
        };
        let (kv, locks) = (self.kv.clone(), engine.locks.clone());
        let served = Served { kv, locks, own: self.id(), asker, number, owner };
        let running = match request.ask {
            Ask::Refresh => tokio::spawn(async move { served.answer(Ok(())).await }),
            Ask::Drain { table, mode } => tokio::spawn(served.drain(LockKey::Table(table), mode)),
            Ask::Lock { key, mode, waits } => {
                // What is free is held when this returns.
                let held = Held::at_once(&served.locks, owner, key, mode);
                tokio::spawn(served.lock((key, mode), waits, held))
            }
        };
        running.abort_handle()
    }

    /// Ends all that is done for others.
    pub(super) fn serve_nobody(&self) {
        *self.serving.lock() = Serving::default();
    }
}
