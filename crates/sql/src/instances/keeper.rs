//! The task that keeps an instance's lease and reads what others ask.
//!
//! It runs while there is something to keep the lease for, and ends when nothing was done for half a lease.

use super::notes::remove_notes;
use super::record::{self, Instance, VERSION};
use super::section::Section;
use super::{InstanceId, Instances, MARGIN, Own, lease_ended};
use crate::catalog::store;
use crate::engine::Engine;
use crate::exec::kv_error;
use bytes::Bytes;
use kv_api::{KvResult, LockStrength};
use kv_client::{CommitDeadline, KvClient, TxnOptions};
use sql_types::{SqlError, SqlResult, SqlState};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Between two looks at what others ask, if there are others: while somebody waits for an answer, for a while after
/// something changed, and otherwise.
const WAITING: Duration = Duration::from_millis(3);
const BUSY: Duration = Duration::from_millis(10);
const QUIET: Duration = Duration::from_millis(50);
/// How long that while is.
const WHILE: Duration = Duration::from_secs(1);
/// After an error.
const PAUSE: Duration = Duration::from_millis(50);
/// How long statements go on after a look that found everything as it was, where nothing can be written.
const WHILE_FULL_MS: u64 = 1000;

/// Says that the task has ended, however it does.
struct Kept(Weak<Engine>);

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(engine) = self.0.upgrade() {
            engine.instances.kept.store(false, Ordering::SeqCst);
        }
    }
}

async fn run(engine: Weak<Engine>) {
    let kept = Kept(engine.clone());
    let mut changed_ms = 0;
    loop {
        let Some(engine) = engine.upgrade() else { return };
        let instances = &engine.instances;
        let pause = match instances.tick(&engine).await {
            Ok(changed) => {
                if changed {
                    changed_ms = instances.now_ms();
                }
                instances.pause(changed_ms)
            }
            Err(error) => {
                tracing::debug!(%error, "the lease of the SQL node could not be looked after");
                instances.failed(error);
                PAUSE
            }
        };
        if instances.rest(&engine).await {
            drop(kept);
            // A statement may have begun in between.
            if instances.was_used_lately() {
                instances.keep(&engine);
            }
            return;
        }
        let wake = instances.wake.clone();
        drop(engine);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = wake.notified() => {}
        }
    }
}

fn is_full(error: &SqlError) -> bool {
    error.code == SqlState::DISK_FULL
}

/// Removes an instance whose lease has ended, with all it has asked for; false if it has renewed it.
async fn remove_ended(kv: &KvClient, id: InstanceId) -> SqlResult<bool> {
    let txn = kv.begin(TxnOptions::default());
    let section = Section::read(&txn).await?;
    let Some(known) = section.instances.get(&id) else { return Ok(true) };
    if !known.has_ended(section.at) {
        return Ok(false);
    }
    let delete = || -> KvResult<()> {
        txn.delete(&record::instance_key(id))?;
        for (asker, number) in section.requests.keys().filter(|(asker, _)| *asker == id) {
            txn.delete(&record::request_key(*asker, *number))?;
        }
        for ((asker, number), answers) in &section.answers {
            for by in answers.keys().filter(|by| *asker == id || **by == id) {
                txn.delete(&record::answer_key(*asker, *number, *by))?;
            }
        }
        Ok(())
    };
    delete().map_err(kv_error)?;
    txn.commit().await.map_err(kv_error)?;
    tracing::info!(instance = id, "the lease of another SQL node has ended");
    remove_notes(kv, id).await;
    Ok(true)
}

impl Instances {
    /// Sees to it that the task runs.
    pub(crate) fn keep(&self, engine: &Engine) {
        if !self.kept.load(Ordering::SeqCst) && !self.kept.swap(true, Ordering::SeqCst) {
            tokio::spawn(run(engine.me()));
        }
    }

    pub(super) fn length_ms(&self) -> u64 {
        self.length.as_millis() as u64
    }

    fn was_used_lately(&self) -> bool {
        self.now_ms() - self.used.load(Ordering::SeqCst).min(self.now_ms()) < self.length_ms() / 2
    }

    /// How long the task may sleep.
    fn pause(&self, changed_ms: u64) -> Duration {
        let now = self.now_ms();
        if self.knows_others() {
            let busy = now.saturating_sub(changed_ms) < WHILE.as_millis() as u64;
            return match (self.waiting.load(Ordering::Acquire) > 0, busy) {
                (true, _) => WAITING,
                (_, true) => BUSY,
                _ => QUIET,
            };
        }
        let left = self.valid_until.load(Ordering::Acquire).saturating_sub(now);
        Duration::from_millis(left.saturating_sub(self.length_ms() / 2).max(1))
    }

    /// Whether there is something to keep the lease for.
    fn is_needed(&self, engine: &Engine) -> bool {
        // One that a predecessor may have left something to.
        let is_young =
            self.now_ms().saturating_sub(self.registered.load(Ordering::Acquire)) < 2 * self.length_ms();
        self.was_used_lately()
            || is_young && self.knows_others() && !self.tidied.load(Ordering::Acquire)
            || self.waiting.load(Ordering::Acquire) > 0
            || self.temporary.load(Ordering::Acquire) > 0
            || !self.notes.lock().is_empty()
            || !self.serving.lock().is_empty()
            || !engine.locks.is_empty()
            || !engine.notify.is_empty()
            || engine.sessions.any_busy()
    }

    /// Gives up the lease, if nobody needs it: others need not wait for its end then. One that is alone lets it lapse.
    async fn rest(&self, engine: &Engine) -> bool {
        if self.is_needed(engine) {
            return false;
        }
        if !self.knows_others() {
            return true;
        }
        let valid_until = self.valid_until.swap(0, Ordering::SeqCst);
        if self.is_needed(engine) {
            self.valid_until.store(valid_until, Ordering::SeqCst);
            self.renewed.send_modify(|count| *count += 1);
            return false;
        }
        self.retire(engine).await;
        true
    }

    /// Ends the lease: the instance does nothing any more, unless it registers anew.
    pub(crate) async fn retire(&self, engine: &Engine) {
        if !self.notes.lock().is_empty() {
            // What it has sent is to be read before it is gone.
            engine.announce().await;
        }
        let Some(id) = self.give_up(engine) else { return };
        if let Err(error) = self.kv.write(&[(record::instance_key(id), None)]).await {
            tracing::debug!(%error, "other SQL nodes will wait for the end of the lease");
        }
        let sent = std::mem::take(&mut *self.notes.lock());
        if !sent.is_empty() {
            remove_notes(&self.kv, id).await;
        }
    }

    /// Forgets the lease.
    fn give_up(&self, engine: &Engine) -> Option<InstanceId> {
        self.valid_until.store(0, Ordering::SeqCst);
        let own = self.own.lock().take()?;
        self.serve_nobody();
        engine.online.leave();
        self.seen.send_replace(Arc::default());
        Some(own.id)
    }

    /// Takes note of a section, unless a newer one is known.
    pub(super) fn note(&self, section: Section) {
        self.seen.send_if_modified(|seen| {
            let newer = section.at > seen.at;
            if newer {
                *seen = Arc::new(section);
            }
            newer
        });
    }

    /// Registers, renews the lease if it is time, and does what others ask. Returns whether anything was asked.
    async fn tick(&self, engine: &Arc<Engine>) -> SqlResult<bool> {
        let began_ms = self.now_ms();
        let own = self.own.lock().as_ref().map(|own| (own.id, own.deadline.clone()));
        let Some((id, deadline)) = own else { return self.register(engine, began_ms).await };
        let txn = self.kv.begin(TxnOptions { read_only: true, ..TxnOptions::default() });
        let section = Section::read(&txn).await?;
        if section.instances.contains_key(&id) {
            // As long as the lease lasts nothing is removed that was not read.
            self.read_notes(engine, &txn, &section).await?;
        } else {
            tracing::warn!(instance = id, "the lease of this SQL node has ended");
            self.give_up(engine);
            return self.register(engine, began_ms).await;
        }
        // First: with a lease statements run, by the catalog that there is.
        let changed = self.catch_up(engine, section).await?;
        let left = self.valid_until.load(Ordering::Acquire).saturating_sub(began_ms);
        if left <= self.length_ms() / 2 {
            let renewed = self.renew(id, &deadline, began_ms).await;
            self.go_on_if_full(&renewed);
            renewed?;
        }
        Ok(changed)
    }

    /// Makes its record, and begins where the records of the others are at that moment.
    async fn register(&self, engine: &Arc<Engine>, began_ms: u64) -> SqlResult<bool> {
        let txn = self.kv.begin(TxnOptions::default());
        let mut section = Section::read(&txn).await?;
        self.begin_reading(&txn, &section).await?;
        let id = rand::random::<u64>().max(1);
        let record = Instance { version: VERSION, expires_ns: self.expires(&section) };
        section.generation += 1;
        let generation = Bytes::copy_from_slice(&section.generation.to_be_bytes());
        txn.put(&record::generation_key(), generation).map_err(kv_error)?;
        txn.put(&record::instance_key(id), store::encode(&record)?).map_err(kv_error)?;
        let registered = txn.commit().await.map(drop).map_err(kv_error);
        if registered.as_ref().is_err_and(is_full) {
            engine.refresh_catalog(section.catalog).await?;
            // Nothing that begins now is ever committed.
            self.deadlines.replace(CommitDeadline::at(1));
            self.go_on_if_full(&registered);
        }
        registered?;
        let deadline = CommitDeadline::at(record.expires_ns);
        self.deadlines.replace(deadline.clone());
        *self.own.lock() = Some(Own { id, deadline });
        section.instances.insert(id, record);
        self.registered.store(began_ms, Ordering::Release);
        self.registration.fetch_add(1, Ordering::AcqRel);
        self.is_new.store(true, Ordering::Release);
        let changed = self.catch_up(engine, section).await?;
        self.valid(began_ms);
        Ok(changed)
    }

    fn expires(&self, section: &Section) -> u64 {
        section.at.wall_ns.saturating_add(self.length.as_nanos() as u64)
    }

    /// Lets statements run for a moment if nothing can be written: neither can anybody else.
    fn go_on_if_full(&self, written: &SqlResult<()>) {
        if written.as_ref().is_err_and(is_full) {
            self.valid_until.fetch_max(self.now_ms() + WHILE_FULL_MS, Ordering::SeqCst);
        }
    }

    /// Tells who waits for the lease why it was not renewed, unless it is about to be.
    fn failed(&self, error: SqlError) {
        let soon = [SqlState::SERIALIZATION_FAILURE, SqlState::DEADLOCK, SqlState::COMPLETION_UNKNOWN]
            .contains(&error.code);
        if !soon {
            *self.trouble.lock() = Some((self.now_ms(), error));
        }
        self.renewed.send_modify(|count| *count += 1);
    }

    /// The lease has been renewed by what began at a time.
    fn valid(&self, began_ms: u64) {
        let until = began_ms + self.length_ms().saturating_sub(MARGIN.as_millis() as u64);
        self.valid_until.store(until, Ordering::SeqCst);
        self.renewed.send_modify(|count| *count += 1);
    }

    /// Renews the lease if its record is there still.
    async fn renew(&self, id: InstanceId, deadline: &CommitDeadline, began_ms: u64) -> SqlResult<()> {
        let txn = self.kv.begin(TxnOptions::default());
        let key = record::instance_key(id);
        if txn.get(&key, LockStrength::Exclusive).await.map_err(kv_error)?.is_none() {
            // The next look finds out.
            return Err(lease_ended());
        }
        let now_ns = txn.read_timestamp().unwrap_or_default().wall_ns;
        let expires_ns = now_ns.saturating_add(self.length.as_nanos() as u64);
        let record = Instance { version: VERSION, expires_ns };
        txn.put(&key, store::encode(&record)?).map_err(kv_error)?;
        txn.commit().await.map_err(kv_error)?;
        deadline.extend(expires_ns);
        self.valid(began_ms);
        Ok(())
    }

    /// Does what a section asks for.
    async fn catch_up(&self, engine: &Arc<Engine>, section: Section) -> SqlResult<bool> {
        let own = self.id();
        // Before locks are given back: who waits for them must see what they were for.
        engine.refresh_catalog(section.catalog).await?;
        let mut live: Vec<InstanceId> = section.instances.keys().copied().collect();
        if self.is_new.swap(false, Ordering::AcqRel) {
            // Before anybody can lock their tables.
            engine.take_up_jobs(&live);
        }
        self.serve(engine, &section);
        let ended: Vec<InstanceId> = section.ended(own).collect();
        for id in &ended {
            match remove_ended(&self.kv, *id).await {
                Ok(true) => {
                    live.retain(|other| other != id);
                    engine.take_up_jobs(&live);
                }
                Ok(false) => {}
                // Somebody else may be about to.
                Err(error) => tracing::debug!(%error, "a lease that has ended is not removed yet"),
            }
        }
        if let Err(error) = self.remove_read().await {
            tracing::debug!(%error, "notifications that were read are not removed yet");
        }
        if let Err(error) = self.tidy(&section).await {
            tracing::debug!(%error, "records of SQL nodes are not removed yet");
        }
        if section.others(own).next().is_none() && !self.tidied.swap(true, Ordering::AcqRel) {
            engine.clear_left_behind();
        }
        let changed = {
            let seen = self.seen.borrow();
            !seen.requests.keys().eq(section.requests.keys()) || !ended.is_empty()
        };
        self.note(section);
        Ok(changed)
    }

    /// Removes records that belong to nobody: requests of instances that are no more, and own answers to requests that are
    /// no more.
    async fn tidy(&self, section: &Section) -> SqlResult<()> {
        let own = self.id();
        let orphans = section.requests.keys().filter(|(asker, _)| !section.instances.contains_key(asker));
        let mut keys: Vec<(Bytes, Option<Bytes>)> =
            orphans.map(|(asker, number)| (record::request_key(*asker, *number), None)).collect();
        for (request, answers) in
            section.answers.iter().filter(|(key, _)| !section.requests.contains_key(key))
        {
            let gone = |by: &&InstanceId| **by == own || !section.instances.contains_key(by);
            let (asker, number) = *request;
            keys.extend(answers.keys().filter(gone).map(|by| (record::answer_key(asker, number, *by), None)));
        }
        if keys.is_empty() {
            return Ok(());
        }
        self.kv.write(&keys).await.map_err(kv_error)
    }
}
