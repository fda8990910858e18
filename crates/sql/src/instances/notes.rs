//! Notifications between instances.
//!
//! A transaction that sends notifications writes them, with its other writes, if the instance knows of others; these find
//! them when they look at what is asked of them. One commit of an instance that sends is under way at a time, so numbers
//! are in the order of commits. They are removed when every instance that lives must have read them, which is after two
//! leases: whoever renews its lease has read first. An instance begins with what is sent after it has registered; a session
//! that begins to listen waits until the others know of its instance.

use super::record::{self, Note, VERSION};
use super::section::Section;
use super::{InstanceId, Instances};
use crate::catalog::store;
use crate::engine::Engine;
use crate::exec::kv_error;
use crate::session::Notification;
use kv_client::{KvClient, ScanOptions, Txn};
use sql_types::{Oid, SqlResult};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::OwnedMutexGuard;

/// What an instance has read and sent.
#[derive(Default)]
pub(super) struct Notes {
    /// By sender, the first number not read.
    next: HashMap<InstanceId, u64>,
    /// Numbers sent, up to this one, and when, in milliseconds since the engine was opened.
    sent: VecDeque<(InstanceId, u64, u64)>,
}

impl Notes {
    /// Whether there are some still to be removed.
    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }
}

/// The first number of a sender that a transaction does not see.
async fn end_of(txn: &Txn, sender: InstanceId) -> SqlResult<u64> {
    let options = ScanOptions { reverse: true, limit: 1, ..ScanOptions::default() };
    let page = txn.scan(&record::notes_from(sender, 0), options).await.map_err(kv_error)?;
    let last = page.rows.first().and_then(|(key, _)| record::note_number(key));
    Ok(last.map_or(0, |last| last.saturating_add(1)))
}

/// Removes all that an instance has sent which is no more.
pub(super) async fn remove_notes(kv: &KvClient, sender: InstanceId) {
    if let Err(error) = kv.clear_range(record::notes_from(sender, 0)).await {
        tracing::debug!(%error, "notifications of another SQL node are left behind");
    }
}

impl Instances {
    /// Writes what a transaction sends, if there is another instance. Until what is returned is dropped no other
    /// transaction of the instance sends anything.
    ///
    /// # Errors
    /// What keeps it from being written.
    pub(crate) async fn post(
        &self,
        txn: &Txn,
        (database, process_id): (Oid, i32),
        outgoing: &[(Arc<str>, Arc<str>)],
    ) -> SqlResult<Option<OwnedMutexGuard<()>>> {
        let sender = self.id();
        if outgoing.is_empty() || sender == 0 || !self.knows_others() {
            return Ok(None);
        }
        let turn = self.sending.clone().lock_owned().await;
        let mut number = 0;
        for (channel, payload) in outgoing {
            number = self.next_note.fetch_add(1, Ordering::Relaxed);
            let (channel, payload) = (channel.to_string(), payload.to_string());
            let note = Note { version: VERSION, database, process_id, channel, payload };
            txn.put(&record::note_key(sender, number), store::encode(&note)?).map_err(kv_error)?;
        }
        self.notes.lock().sent.push_back((sender, number, self.now_ms()));
        Ok(Some(turn))
    }

    /// Begins to read where the others are now.
    pub(super) async fn begin_reading(&self, txn: &Txn, section: &Section) -> SqlResult<()> {
        let mut next = HashMap::new();
        for sender in section.instances.keys() {
            next.insert(*sender, end_of(txn, *sender).await?);
        }
        self.notes.lock().next = next;
        Ok(())
    }

    /// Hands what others have sent to those who listen.
    pub(super) async fn read_notes(&self, engine: &Engine, txn: &Txn, section: &Section) -> SqlResult<()> {
        for sender in section.others(self.id()) {
            let mut next = self.notes.lock().next.get(&sender).copied().unwrap_or(0);
            let mut span = Some(record::notes_from(sender, next));
            while let Some(rest) = span.take() {
                let page = txn.scan(&rest, ScanOptions::default()).await.map_err(kv_error)?;
                for (key, value) in &page.rows {
                    next = record::note_number(key).map_or(next, |number| number.saturating_add(1));
                    deliver(engine, value);
                }
                self.notes.lock().next.insert(sender, next);
                span = page.resume;
            }
        }
        self.notes.lock().next.retain(|sender, _| section.instances.contains_key(sender));
        Ok(())
    }

    /// Removes what all others have read by now.
    pub(super) async fn remove_read(&self) -> SqlResult<()> {
        let old_ms = self.now_ms().saturating_sub(2 * self.length_ms());
        let read = {
            let mut notes = self.notes.lock();
            let old = notes.sent.iter().take_while(|(.., sent_ms)| *sent_ms < old_ms).count();
            notes.sent.drain(..old).next_back()
        };
        let Some((sender, number, _)) = read else { return Ok(()) };
        let mut span = record::notes_from(sender, 0);
        span.end = record::note_key(sender, number.saturating_add(1));
        self.kv.clear_range(span).await.map_err(kv_error)
    }
}

fn deliver(engine: &Engine, value: &[u8]) {
    match store::decode::<Note>(value) {
        Ok(Note { database, process_id, channel, payload, .. }) => {
            let (channel, payload) = (channel.into(), payload.into());
            engine.notify.send(database, &Notification { process_id, channel, payload });
        }
        Err(error) => tracing::warn!(%error, "a notification of another SQL node cannot be read"),
    }
}
