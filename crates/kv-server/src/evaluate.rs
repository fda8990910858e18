//! Evaluation: from a batch to its effects.
//!
//! It runs without waiting, under the latches its batch took, and reads the engine as it stands. It
//! changes nothing but the in-memory state of its own transaction. What comes out is an answer,
//! a command's effects together with the answer, or the reason to stop: an error, a lock to wait for,
//! or to try again.
//!
//! # Rules
//!
//! * A transaction's plain reads see its snapshot, its intents and the batch's own earlier writes.
//! * Locking reads see the newest version. If that is above the snapshot, the snapshot moves up to the
//!   present, provided nothing that was read before has changed in between.
//! * Conditional puts and increments look at the newest version, which their latch holds still.
//! * A commit checks that nothing the transaction read changed since its snapshot. Together with the
//!   latches this makes its reads and writes happen at its commit timestamp, whatever locks there were.
//! * A writer never replaces another transaction's intent: it waits for an open transaction, makes a
//!   version of a committed intent, and removes one that was aborted, in the same command as its write.

use crate::command::{Effects, NewVersion, Order};
use crate::contention::{WaitKind, Watch};
use crate::faults::Bug;
use crate::guards::LockWait;
use crate::key_states::{KeyState, KeyStates};
use crate::lock_table::{Acquire, TxnKey};
use crate::metrics::metrics;
use crate::node::{Asker, Node};
use crate::read::{Budget, Unread, get_value, resume_after, scan_page};
use crate::shard::{IntentOwner, PartKey, Shard, TxnStatus, aborted};
use crate::vacancy::Vacancy;
use bytes::{Bytes, BytesMut};
use kv_api::batch::{
    ConditionalPut, DeleteRange, EndTxn, Get, Header, Increment, KeyValue, Request, RequestKind, Response,
    Scan, WaitPolicy,
};
use kv_api::contention::WaitEnd;
use kv_api::{BatchRequest, BatchResponse, KvError, KvErrorKind, LockStrength, Priority, Span, Timestamp};
use replication::Millis;
use std::sync::Arc;
use storage::intent::{CommittedTxn, Intent, IntentView, TxnId, is_ignored};
use storage::key::decode_data_value;
use storage::mvcc::{Overlay, View, clear_range, put_version};
use storage::txn_record::{RecordStatus, TxnRecord};
use storage::{Reader, Space, StorageError, WriteBatch};
use tokio::sync::oneshot;

/// Bytes of an intent beside the value of its first write.
const INTENT_HEAD: usize = 25;

/// How often a snapshot may move within one evaluation.
const MAX_MOVES: usize = 64;

/// What a batch that is evaluated comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// Reads of a transaction of which some take locks.
    Locking,
    /// Writes of a transaction that stays open: they become intents.
    Flush,
    /// The commit of a transaction, with its writes.
    Commit,
    /// What makes sure that the range's part of a transaction can commit: its writes become intents.
    Prepare,
    /// A batch that is a transaction of its own, or outside any.
    Lone,
}

impl WriteKind {
    /// Whether the batch belongs to a transaction that its header names.
    pub fn is_transactional(self) -> bool {
        self != WriteKind::Lone
    }
}

/// What an evaluation came to.
pub enum Outcome {
    /// Nothing is left to do.
    Answer(BatchResponse),
    /// Effects to apply; the answer is due when they are.
    Submit {
        /// The effects.
        effects: Effects,
        /// The answer, without the commit timestamp.
        response: BatchResponse,
        /// The timestamp that they want.
        order: Order,
        /// If the part's first intents are among them: the state of its set of intents with them.
        first_intents: Option<u64>,
    },
}

/// Why an evaluation stopped.
pub enum Stop {
    /// The batch fails.
    Failed(KvError),
    /// A lock must be waited for; then the batch is evaluated anew.
    Wait(Box<LockWait>),
    /// It must become known what becomes of this prepared transaction; then the batch is evaluated anew.
    Undecided(TxnId),
    /// The clock of the range must reach the timestamp and nothing at or below it be in flight; then the batch
    /// is evaluated anew.
    Unclosed(Timestamp),
    /// No transaction may have its first intent in the range for the moment; the batch is evaluated anew when this
    /// is told.
    Held(oneshot::Receiver<()>),
    /// The key is being written, and must be latched, too; then the batch is evaluated anew.
    Latch(Bytes),
    /// Something is about to be settled; the batch is evaluated anew.
    Again,
}

impl From<KvError> for Stop {
    fn from(error: KvError) -> Self {
        Stop::Failed(error)
    }
}

impl From<StorageError> for Stop {
    fn from(error: StorageError) -> Self {
        Unread::from(error).into()
    }
}

impl From<Unread> for Stop {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Failed(error) => Stop::Failed(error),
            Unread::Undecided(txn) => Stop::Undecided(txn),
            Unread::Unclosed(timestamp) => Stop::Unclosed(timestamp),
        }
    }
}

type Eval<T> = Result<T, Stop>;

/// What became of a lock request.
enum Locked {
    Yes,
    Skip,
}

/// What came of asking for a lock.
struct Asked {
    outcome: Acquire,
    /// What is told when a wait is over.
    woken: Option<oneshot::Receiver<()>>,
    /// The first of those who are in the way.
    holder: Option<TxnKey>,
}

/// One evaluation of one batch.
pub struct Evaluation<'a> {
    node: &'a Arc<Node>,
    /// The engine, perhaps with some patience only.
    reader: &'a dyn Reader,
    asker: Asker,
    part: PartKey,
    txn: TxnKey,
    /// When it began, by the node's clock.
    now: Millis,
    header: &'a Header,
    requests: &'a [Request],
    kind: WriteKind,
    policy: WaitPolicy,
    /// The snapshot; moves up when locking reads ask for it.
    snapshot: Timestamp,
    intents: IntentView,
    /// Whether any transaction of the tenant has intents, so that the lock space must be looked at.
    any_intents: bool,
    /// Keys that are latched besides those that the requests name.
    latched: &'a [Bytes],
    /// Whether transactions other than this one have.
    foreign_intents: bool,
    /// The batch's writes so far, if it reads as well.
    overlay: Overlay,
    /// Whether requests of the batch read what lies under what it writes.
    reads: bool,
    keys: KeyStates,
    /// Where nothing lies.
    vacancy: Vacancy,
    raw: WriteBatch,
    /// Spans that range deletions read at the snapshot.
    read_spans: Vec<Span>,
    budget: Budget,
    responses: Vec<Response>,
}

impl<'a> Evaluation<'a> {
    /// Prepares an evaluation.
    ///
    /// # Errors
    /// If the transaction may not go on, or its snapshot cannot be read yet.
    pub fn new(
        node: &'a Arc<Node>,
        reader: &'a dyn Reader,
        asker: Asker,
        part: PartKey,
        batch: &'a BatchRequest,
        latched: &'a [Bytes],
        kind: WriteKind,
    ) -> Result<Self, Stop> {
        let header = &batch.header;
        let own = if kind.is_transactional() { node.check_txn(asker, header)? } else { None };
        let snapshot = match kind {
            // A batch of its own reads the newest versions, under latches.
            WriteKind::Lone => Timestamp::MAX,
            _ => node.snapshot_timestamp(asker.range, header.read_timestamp)?,
        };
        let (any_intents, foreign_intents) = {
            let shard = node.shard(asker.tenant);
            (shard.intent_txns(asker.range) > 0, shard.has_foreign_intents(part))
        };
        Ok(Evaluation {
            node,
            reader,
            asker,
            part,
            txn: part.txn,
            now: node.pipeline.millis(),
            header,
            requests: &batch.requests,
            kind,
            policy: WaitPolicy::try_from(header.wait_policy).unwrap_or(WaitPolicy::Block),
            snapshot,
            intents: node.intent_view(asker, own),
            any_intents,
            latched,
            foreign_intents,
            overlay: Overlay::new(),
            reads: batch.requests.iter().any(reads),
            keys: KeyStates::default(),
            vacancy: Vacancy::new(&batch.requests, node.limits.vacancy_patience),
            raw: WriteBatch::new(),
            read_spans: Vec::new(),
            budget: Budget::new(0, 0),
            responses: Vec::new(),
        })
    }

    /// Evaluates the batch. `generation` is the state of the transaction's intents that the latches
    /// were taken for.
    ///
    /// # Errors
    /// See [`Stop`].
    pub fn run(mut self, generation: u64) -> Eval<Outcome> {
        let mut moves = 0;
        let clock = match self.kind {
            WriteKind::Locking => self.node.check_certain(
                self.reader,
                self.asker,
                self.header,
                self.requests,
                self.snapshot,
                &self.intents,
            )?,
            _ => None,
        };
        while let Some(newer) = self.evaluate()? {
            moves += 1;
            if moves > MAX_MOVES {
                return Err(KvError::new(KvErrorKind::Retry, "the snapshot could not be settled").into());
            }
            self.move_snapshot(newer)?;
        }
        match self.kind {
            WriteKind::Locking => Ok(Outcome::Answer(BatchResponse { clock, ..self.response() })),
            WriteKind::Flush => self.flush(),
            WriteKind::Commit => self.commit(generation),
            WriteKind::Prepare => self.prepare(generation),
            WriteKind::Lone => self.lone(),
        }
    }

    /// One pass over the requests. `Some` asks for a snapshot at or above a timestamp, and another pass.
    fn evaluate(&mut self) -> Eval<Option<Timestamp>> {
        self.overlay.clear();
        self.keys.clear();
        self.raw.clear(0);
        self.read_spans.clear();
        self.responses.clear();
        self.budget = Budget::new(self.header.target_bytes, self.node.limits.max_scan_bytes);
        for request in self.requests {
            let response = match &request.kind {
                Some(RequestKind::Get(get)) => match self.lock_strength(get.lock) {
                    None => {
                        self.note_read(Span::point(get.key.clone()));
                        let mut budget = self.budget;
                        let response = get_value(self.view(self.snapshot), get, &mut budget)?;
                        self.budget = budget;
                        response
                    }
                    Some(strength) => match self.locking_get(get, strength)? {
                        Ok(response) => response,
                        Err(newer) => return Ok(Some(newer)),
                    },
                },
                Some(RequestKind::Scan(scan)) => match self.lock_strength(scan.lock) {
                    None => {
                        self.note_read(Span::new(scan.start.clone(), scan.end.clone()));
                        self.page(scan)?
                    }
                    Some(strength) => match self.locking_scan(scan, strength)? {
                        Ok(response) => response,
                        Err(newer) => return Ok(Some(newer)),
                    },
                },
                Some(RequestKind::Put(put)) => {
                    self.write(&put.key, put.sequence, Some(put.value.clone()))?;
                    Response::default()
                }
                Some(RequestKind::ConditionalPut(put)) => self.conditional_put(put)?,
                Some(RequestKind::Delete(delete)) => {
                    self.write(&delete.key, delete.sequence, None)?;
                    Response::default()
                }
                Some(RequestKind::DeleteRange(range)) => self.delete_range(range)?,
                Some(RequestKind::Increment(increment)) => self.increment(increment)?,
                Some(RequestKind::ClearRange(range)) => {
                    clear_range(&mut self.raw, &range.start, &range.end);
                    Response::default()
                }
                // Those about the cluster are answered before anything is evaluated.
                _ => Response::default(),
            };
            self.responses.push(response);
        }
        Ok(None)
    }

    /// Under which number the transaction's coordinator knows it.
    fn hop(&self) -> u32 {
        self.header.txn.as_ref().map_or(0, |meta| meta.hop)
    }

    /// The lock a read takes; a batch of its own takes none, for nothing would hold it.
    fn lock_strength(&self, strength: i32) -> Option<LockStrength> {
        let strength = LockStrength::try_from(strength).unwrap_or(LockStrength::None);
        (strength != LockStrength::None && self.kind.is_transactional()).then_some(strength)
    }

    fn view(&self, timestamp: Timestamp) -> View<'_> {
        View { reader: self.reader, timestamp, intents: &self.intents, overlay: Some(&self.overlay) }
    }

    fn page(&mut self, scan: &Scan) -> Eval<Response> {
        let mut budget = self.budget;
        let page = scan_page(self.view(self.snapshot), scan, None, &mut budget)?;
        self.budget = budget;
        Ok(page.response)
    }

    /// What the batch of a commit reads is checked by the commit itself.
    fn note_read(&mut self, span: Span) {
        if matches!(self.kind, WriteKind::Commit | WriteKind::Prepare) {
            self.read_spans.push(span);
        }
    }

    fn ignored(&self) -> &'a [kv_api::batch::IgnoredSequences] {
        self.header.txn.as_ref().map(|meta| &meta.ignored[..]).unwrap_or_default()
    }

    /// Moves the snapshot to the present, which must be at or above `newer`.
    fn move_snapshot(&mut self, newer: Timestamp) -> Eval<()> {
        let first = self.header.read_timestamp;
        if self.header.fixed_read_timestamp && first.is_some() {
            return Err(KvError::new(
                KvErrorKind::Retry,
                "could not serialize access: a row to be locked was changed after the snapshot was taken",
            )
            .into());
        }
        let present = self.node.pipeline.read_timestamp(self.asker.range)?;
        if present < newer {
            // Seen in the engine an instant before the pipeline says so.
            return Err(Stop::Again);
        }
        if let Some(first) = first {
            if self.header.spans_elsewhere {
                return Err(KvError::snapshot_behind(present).into());
            }
            let tracked = self.node.tracked_spans(self.asker, self.header);
            let spans = self.header.refresh_spans.iter().chain(&tracked);
            self.node.check_unchanged(self.reader, self.asker, Some(self.txn.id), spans, first, present)?;
        }
        self.snapshot = present;
        let own = self.intents.own.take();
        self.intents = self.node.intent_view(self.asker, None);
        self.intents.own = own;
        Ok(())
    }

    // Locks.

    fn lock(&mut self, key: &Bytes, strength: LockStrength) -> Eval<Locked> {
        self.hold_open_intent(key)?;
        let wait = self.policy == WaitPolicy::Block;
        let asked = {
            let mut shard = self.node.shard(self.asker.tenant);
            let has_intents = self.header.txn.as_ref().is_some_and(|meta| meta.has_intents);
            shard.check(self.part, self.asker.connection, self.hop(), has_intents)?;
            let limits = &self.node.limits;
            shard.check_room(self.part, self.asker.connection, limits.max_txns_per_connection)?;
            let full = shard.locks.held_count(self.txn) >= limits.max_locks_per_txn
                || shard.locks.len() >= limits.max_locks_per_shard;
            if full && shard.locks.is_free(self.txn, key, strength) {
                // One of which nothing is validated must not rest on it.
                shard.open_txn(self.part, self.asker.connection, self.now).lost_locks = true;
                return Ok(Locked::Yes);
            }
            let entry = shard.open_txn(self.part, self.asker.connection, self.now);
            entry.hop = self.hop();
            entry.snapshot.get_or_insert(self.snapshot);
            self.ask(&mut shard, key, strength, wait)
        };
        self.locked(asked, key, strength)
    }

    /// Checks that a key to be written is not locked by another, and waits in its queue if it is. The
    /// latch protects the write, so no lock is taken when it is free.
    fn wait_until_free(&mut self, key: &Bytes) -> Eval<()> {
        self.hold_open_intent(key)?;
        self.wait_until_unlocked(key)
    }

    /// The same where no intent lies.
    fn wait_until_unlocked(&mut self, key: &Bytes) -> Eval<()> {
        let asked = {
            let mut shard = self.node.shard(self.asker.tenant);
            if shard.locks.is_free(self.txn, key, LockStrength::Exclusive) {
                return Ok(());
            }
            shard.open_txn(self.part, self.asker.connection, self.now).hop = self.hop();
            self.ask(&mut shard, key, LockStrength::Exclusive, self.policy != WaitPolicy::Error)
        };
        self.locked(asked, key, LockStrength::Exclusive).map(|_| ())
    }

    fn priority(&self) -> Priority {
        self.header.txn.as_ref().map(|meta| meta.priority()).unwrap_or_default()
    }

    /// Asks for a lock, and waits for it if `wait` and others have left room for that.
    fn ask(&self, shard: &mut Shard, key: &Bytes, strength: LockStrength, wait: bool) -> Asked {
        let most = self.node.limits.max_lock_waits_per_connection;
        let has_room = wait && shard.lock_waits(self.asker.connection) < most;
        let (outcome, woken) = shard.acquire(self.txn, self.priority(), key, strength, self.now, has_room);
        let outcome = match outcome {
            Acquire::Conflict if wait => Acquire::Full,
            outcome => outcome,
        };
        let holder = match outcome {
            Acquire::Waiting(waiter) => shard.locks.blocker(waiter),
            Acquire::Deadlock => shard.locks.obstacle(self.txn, key, strength),
            _ => None,
        };
        Asked { outcome, woken, holder }
    }

    fn locked(&self, asked: Asked, key: &Bytes, strength: LockStrength) -> Eval<Locked> {
        let Asked { outcome, woken, holder } = asked;
        let watch = || Watch::new(WaitKind::Lock, key.clone(), strength, Some(self.txn), holder);
        match (outcome, woken) {
            (Acquire::Granted, _) => Ok(Locked::Yes),
            (Acquire::Waiting(waiter), Some(woken)) => {
                let node = Arc::clone(self.node);
                let wait = LockWait::new(node, self.asker, self.part, waiter, watch(), woken);
                Err(Stop::Wait(Box::new(wait)))
            }
            (Acquire::Deadlock | Acquire::DeadlockOf(_), _) => {
                metrics().deadlocks.inc();
                let mut shard = self.node.shard(self.asker.tenant);
                watch().note(self.node, &mut shard, self.asker, WaitEnd::Deadlock);
                Err(KvError::new(KvErrorKind::Deadlock, "deadlock detected").with_key(key.clone()).into())
            }
            (Acquire::Full, _) => {
                metrics().lock_refusals.inc();
                let message = "too many requests wait for locks already";
                Err(KvError::new(KvErrorKind::Overloaded, message).with_key(key.clone()).into())
            }
            (Acquire::Conflict, _) if self.policy == WaitPolicy::Skip => Ok(Locked::Skip),
            (Acquire::Conflict | Acquire::Waiting(_), _) => {
                let message = "could not obtain lock on row";
                Err(KvError::new(KvErrorKind::LockNotAvailable, message).with_key(key.clone()).into())
            }
        }
    }

    /// If the key has an intent of another open transaction, lets that transaction hold its lock, so
    /// that it can be waited for. Only keys somebody asks for get one; a large transaction's others
    /// take no memory.
    fn hold_open_intent(&self, key: &[u8]) -> Eval<()> {
        if !self.foreign_intents {
            return Ok(());
        }
        let Some(bytes) = self.reader.get(Space::Locks, key)? else { return Ok(()) };
        let id = Intent::decode_txn(&bytes)?;
        let other = TxnKey { tenant: self.asker.tenant, id };
        let mut shard = self.node.shard(self.asker.tenant);
        if shard.owner(self.asker.range, other, self.txn.id) == IntentOwner::Pending {
            shard.locks.hold_for_intent(other, key, self.now);
        }
        Ok(())
    }

    // Locking reads. `Err` inside `Ok` asks for a newer snapshot.

    fn locking_get(&mut self, get: &Get, strength: LockStrength) -> Eval<Result<Response, Timestamp>> {
        if let Locked::Skip = self.lock(&get.key, strength)? {
            return Ok(Ok(Response::default()));
        }
        self.note_read(Span::point(get.key.clone()));
        let newest = self.view(Timestamp::MAX).get(&get.key)?;
        if let Some(version) = &newest
            && version.timestamp > self.snapshot
            && version.timestamp != Timestamp::MAX
        {
            return Ok(Err(version.timestamp));
        }
        let value = newest.and_then(|version| version.value);
        self.budget.take_value(value.as_ref().map_or(0, Bytes::len))?;
        Ok(Ok(Response { value, ..Response::default() }))
    }

    fn locking_scan(&mut self, scan: &Scan, strength: LockStrength) -> Eval<Result<Response, Timestamp>> {
        // The candidates are read first and locked afterwards, for locking needs the view let go.
        self.note_read(Span::new(scan.start.clone(), scan.end.clone()));
        let mut response = Response::default();
        let mut rest = Scan { lock: LockStrength::None as i32, ..scan.clone() };
        loop {
            rest.limit = if scan.limit == 0 { 0 } else { scan.limit - response.rows.len() as u64 };
            let page = self.page(&rest)?;
            for row in page.rows {
                match self.lock_row(row, strength)? {
                    Ok(Some(row)) => response.rows.push(row),
                    Ok(None) => {}
                    Err(newer) => return Ok(Err(newer)),
                }
            }
            let full = scan.limit > 0 && response.rows.len() as u64 >= scan.limit;
            match page.resume {
                Some(resume) if full || self.budget.is_spent() => {
                    response.resume = Some(resume);
                    return Ok(Ok(response));
                }
                // Rows were skipped: the limit is not reached yet.
                Some(resume) => (rest.start, rest.end) = (resume.start, resume.end),
                None => return Ok(Ok(response)),
            }
        }
    }

    fn lock_row(
        &mut self,
        row: KeyValue,
        strength: LockStrength,
    ) -> Eval<Result<Option<KeyValue>, Timestamp>> {
        // A write that is on its way has passed by the locks; whoever locks behind its back would not see it.
        if self.kind == WriteKind::Locking
            && !self.latched.contains(&row.key)
            && self.node.shard(self.asker.tenant).latches.is_written(&row.key)
        {
            return Err(Stop::Latch(Bytes::copy_from_slice(&row.key)));
        }
        // Long-lived state must not keep the page the row lies in.
        if let Locked::Skip = self.lock(&row.key, strength)? {
            return Ok(Ok(None));
        }
        let newest = self.view(Timestamp::MAX).get(&row.key)?;
        match newest {
            Some(version) if version.timestamp > self.snapshot && version.timestamp != Timestamp::MAX => {
                Ok(Err(version.timestamp))
            }
            _ => Ok(Ok(Some(row))),
        }
    }

    // Writes.

    /// Makes sure a key may be written and what is there is known.
    fn load(&mut self, key: &Bytes) -> Eval<()> {
        if self.keys.contains(key) {
            return Ok(());
        }
        if self.vacancy.covers(key) {
            self.wait_until_unlocked(key)?;
            self.keys.insert(key.clone(), KeyState::default());
            return Ok(());
        }
        self.wait_until_free(key)?;
        let replaced = self.reader.get(Space::Data, key)?.map(|bytes| Bytes::copy_from_slice(&bytes));
        if let Some(bytes) = &replaced {
            decode_data_value(bytes)?;
        }
        let mut state = KeyState { replaced, ..KeyState::default() };
        let mut is_vacant = state.replaced.is_none();
        if self.any_intents
            && let Some(bytes) = self.reader.get(Space::Locks, key)?
        {
            is_vacant = false;
            self.settle_intent(key, &bytes, &mut state)?;
        }
        self.vacancy.note(self.reader, key, is_vacant, self.any_intents)?;
        self.keys.insert(key.clone(), state);
        Ok(())
    }

    fn settle_intent(&mut self, key: &Bytes, bytes: &[u8], state: &mut KeyState) -> Eval<()> {
        let intent = Intent::decode(bytes)?;
        let tenant = self.asker.tenant;
        let other = TxnKey { tenant, id: intent.txn };
        let owner = self.node.shard(tenant).owner(self.asker.range, other, self.txn.id);
        match owner {
            IntentOwner::Own => state.own = Some(Box::new(intent)),
            // It was free an instant ago; wait for it properly.
            IntentOwner::Pending => return Err(Stop::Again),
            IntentOwner::Aborted => self.raw.delete(Space::Locks, key),
            IntentOwner::Committed(committed) => {
                settle_committed(&mut self.raw, key, &intent, &committed, &mut state.replaced)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, key: &Bytes, sequence: u32, value: Option<Bytes>) -> Eval<()> {
        self.load(key)?;
        if self.reads && !is_ignored(sequence, self.ignored()) {
            self.overlay.insert(key.clone(), value.clone());
        }
        if let Some(state) = self.keys.get_mut(key) {
            state.writes.push((sequence, value));
        }
        Ok(())
    }

    /// The newest value of a loaded key, the transaction's own writes included.
    fn newest(&self, key: &Bytes) -> Eval<Option<Bytes>> {
        let Some(state) = self.keys.get(key) else { return Ok(None) };
        let ignored = self.ignored();
        let written = state.writes.iter().rev().find(|(sequence, _)| !is_ignored(*sequence, ignored));
        let own = state.own.as_ref().and_then(|intent| intent.last_write(ignored));
        if let Some(value) = written.map(|(_, value)| value).or(own) {
            return Ok(value.clone());
        }
        match &state.replaced {
            Some(bytes) => {
                let value = decode_data_value(bytes)?.value;
                Ok(value.map(|value| bytes.slice_ref(value)))
            }
            None => Ok(None),
        }
    }

    fn conditional_put(&mut self, put: &ConditionalPut) -> Eval<Response> {
        self.load(&put.key)?;
        let actual = self.newest(&put.key)?;
        if actual != put.expected && !is_ignored(put.sequence, self.ignored()) {
            let mut error =
                KvError::new(KvErrorKind::ConditionFailed, "the key does not hold what was expected");
            error.key = Some(put.key.clone());
            error.actual = actual;
            return Err(error.into());
        }
        self.write(&put.key, put.sequence, Some(put.value.clone()))?;
        Ok(Response::default())
    }

    fn increment(&mut self, increment: &Increment) -> Eval<Response> {
        self.load(&increment.key)?;
        let current = match self.newest(&increment.key)? {
            None => 0,
            Some(bytes) => match <[u8; 8]>::try_from(&bytes[..]) {
                Ok(bytes) => i64::from_be_bytes(bytes),
                Err(_) => {
                    let message = "the key does not hold a counter";
                    return Err(KvError::new(KvErrorKind::InvalidRequest, message)
                        .with_key(increment.key.clone())
                        .into());
                }
            },
        };
        let Some(counter) = current.checked_add(increment.by) else {
            let message = "the counter would leave the range of 64 bits";
            return Err(KvError::new(KvErrorKind::CounterOverflow, message)
                .with_key(increment.key.clone())
                .into());
        };
        self.write(&increment.key, 0, Some(Bytes::copy_from_slice(&counter.to_be_bytes())))?;
        Ok(Response { counter, ..Response::default() })
    }

    fn delete_range(&mut self, range: &DeleteRange) -> Eval<Response> {
        let mut keys = Vec::new();
        let mut resume = None;
        {
            let mut scanner = self.view(self.snapshot).scan(&range.start, &range.end, false);
            let mut buffer = BytesMut::new();
            // What is deleted does not travel; only the bytes of keys count.
            let mut key_bytes = self.node.limits.max_scan_bytes as usize;
            while let Some(mark) = scanner.next(&mut buffer)? {
                let Some(key) = buffer.get(mark.start..mark.middle) else { break };
                keys.push(Bytes::copy_from_slice(key));
                key_bytes = key_bytes.saturating_sub(key.len() + 64);
                buffer.clear();
                if key_bytes == 0 || (range.limit > 0 && keys.len() as u64 >= range.limit) {
                    if !scanner.is_exhausted()? {
                        let whole =
                            Scan { start: range.start.clone(), end: range.end.clone(), ..Scan::default() };
                        resume = keys.last().and_then(|last| resume_after(&whole, last));
                    }
                    break;
                }
            }
        }
        for key in &keys {
            self.write(key, range.sequence, None)?;
        }
        let end = resume.as_ref().map_or(range.end.clone(), |resume| resume.start.clone());
        self.read_spans.push(Span::new(range.start.clone(), end));
        Ok(Response { deleted: keys.len() as u64, resume, ..Response::default() })
    }

    // Results.

    fn response(&mut self) -> BatchResponse {
        BatchResponse {
            responses: std::mem::take(&mut self.responses),
            read_timestamp: self.kind.is_transactional().then_some(self.snapshot),
            ..BatchResponse::default()
        }
    }

    /// Versions for the keys of this batch.
    fn versions(&mut self) -> Vec<NewVersion> {
        let ignored = self.ignored();
        let keys = std::mem::take(&mut self.keys).into_sorted();
        let mut versions = Vec::with_capacity(keys.len());
        for (key, state) in keys {
            let own = state.own.as_ref().map(|intent| intent.last_write(ignored).cloned());
            if own.is_some() {
                self.raw.delete(Space::Locks, &key);
            }
            let written =
                state.writes.into_iter().rev().find(|(sequence, _)| !is_ignored(*sequence, ignored));
            let value = match (written, own) {
                (Some((_, value)), _) | (None, Some(Some(value))) => value,
                (None, _) => continue,
            };
            // Deleting what does not exist leaves no trace.
            if value.is_none() && state.replaced.is_none() {
                continue;
            }
            versions.push(NewVersion { key, value, replaced: state.replaced });
        }
        versions
    }

    fn lone(mut self) -> Eval<Outcome> {
        let mut response = self.response();
        let versions = self.versions();
        let effects = Effects { raw: std::mem::take(&mut self.raw), versions, record: None };
        if effects.versions.is_empty() && effects.raw.is_empty() {
            let present = self.node.pipeline.read_timestamp(self.asker.range)?;
            response.read_timestamp = Some(present);
            response.commit_timestamp = Some(present);
            return Ok(Outcome::Answer(response));
        }
        Ok(Outcome::Submit { effects, response, order: Order::Present, first_intents: None })
    }

    fn flush(mut self) -> Eval<Outcome> {
        let first_intents = self.enter_intents()?;
        let response = self.response();
        self.write_intents();
        if self.raw.is_empty() {
            return Ok(Outcome::Answer(response));
        }
        let effects = Effects { raw: std::mem::take(&mut self.raw), ..Effects::default() };
        Ok(Outcome::Submit { effects, response, order: Order::None, first_intents })
    }

    /// Notes in the transaction's entry what the batch writes and reads. Returns the state of its intents then if these
    /// are the first.
    fn enter_intents(&mut self) -> Eval<Option<u64>> {
        let mut shard = self.node.shard(self.asker.tenant);
        let has_intents = self.header.txn.as_ref().is_some_and(|meta| meta.has_intents);
        shard.check(self.part, self.asker.connection, self.hop(), has_intents)?;
        shard.check_room(self.part, self.asker.connection, self.node.limits.max_txns_per_connection)?;
        let first =
            shard.txn(self.part).is_none_or(|entry| entry.intents.is_empty()) && !self.keys.is_empty();
        if first {
            if let Some(told) = shard.held_intents(self.asker.range) {
                return Err(Stop::Held(told));
            }
            if shard.intent_txns(self.asker.range) >= self.node.limits.max_intent_txns_per_tenant {
                let message = "too many transactions with intents at once";
                return Err(KvError::new(KvErrorKind::Overloaded, message).into());
            }
            shard.add_intent_txn(self.part);
        }
        let entry = shard.open_txn(self.part, self.asker.connection, self.now);
        entry.hop = self.hop();
        entry.snapshot.get_or_insert(self.snapshot);
        self.keys.keys().for_each(|key| entry.intents.insert(key));
        // Copied, for they outlive the request and must not keep its buffer.
        let copy = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        entry.track(self.read_spans.iter().map(|span| Span::new(copy(&span.start), copy(&span.end))));
        Ok(first.then(|| entry.intents.generation()))
    }

    /// Makes intents of the batch's writes.
    fn write_intents(&mut self) {
        let keys = std::mem::take(&mut self.keys).into_sorted();
        let written = |(_, value): &(u32, Option<Bytes>)| INTENT_HEAD + value.as_ref().map_or(0, Bytes::len);
        let len =
            |(key, state): &(Bytes, KeyState)| key.len() + state.writes.iter().map(written).sum::<usize>();
        self.raw.reserve(keys.len(), keys.iter().map(len).sum());
        let mut intent = Vec::new();
        for (key, state) in keys {
            let own = state.own.iter().flat_map(|own| &own.writes);
            intent.clear();
            Intent::encode_into(&mut intent, self.txn.id, own.chain(&state.writes));
            self.raw.put(Space::Locks, &key, &intent);
        }
    }

    /// Prepares the part: what it read is checked as by a commit, and its writes become intents.
    fn prepare(mut self, generation: u64) -> Eval<Outcome> {
        let end = self.requests.last().and_then(|request| match &request.kind {
            Some(RequestKind::EndTxn(end)) => end.prepare.as_ref(),
            _ => None,
        });
        let Some(prepare) = end else {
            return Err(KvError::new(KvErrorKind::Internal, "nothing says how to prepare").into());
        };
        let tracked = {
            let mut shard = self.node.shard(self.asker.tenant);
            let entry = shard.txn(self.part);
            if entry.map_or(0, |entry| entry.intents.generation()) != generation {
                return Err(Stop::Again);
            }
            // Perhaps since it was looked at first: from now on they stay.
            self.node.check_locks_of(entry, self.header)?;
            let tracked = entry.map(|entry| entry.tracked.clone()).unwrap_or_default();
            shard.locks.make_firm(self.txn);
            tracked
        };
        let spans = self.header.refresh_spans.iter().chain(&tracked).chain(&self.read_spans);
        if !self.node.pipeline.environment().planted(Bug::PreparedUnchecked) {
            self.node.check_unchanged(
                self.reader,
                self.asker,
                Some(self.txn.id),
                spans,
                self.snapshot,
                Timestamp::MAX,
            )?;
        }
        let first_intents = self.enter_intents()?;
        let response = self.response();
        self.write_intents();
        let spans = {
            let mut shard = self.node.shard(self.asker.tenant);
            let entry = shard.txn_mut(self.part, self.asker.connection);
            entry.status = TxnStatus::Preparing;
            entry.intents.covering()
        };
        let record = TxnRecord {
            id: self.txn.id,
            status: RecordStatus::Prepared,
            timestamp: Timestamp::MIN,
            ignored: self.ignored().to_vec(),
            anchor: Bytes::copy_from_slice(&prepare.anchor),
            staged: (!prepare.staged.is_empty()).then(|| (prepare.timestamp, prepare.staged.clone())),
            spans,
        };
        let effects = Effects {
            raw: std::mem::take(&mut self.raw),
            versions: Vec::new(),
            record: Some(Box::new((self.range_start()?, record))),
        };
        Ok(Outcome::Submit { effects, response, order: Order::From(prepare.timestamp), first_intents })
    }

    /// The first key of the range.
    fn range_start(&self) -> Eval<Bytes> {
        let span = self.node.pipeline.span(self.asker.range);
        let span = span.ok_or_else(|| KvError::range_not_found(self.asker.range))?;
        Ok(span.start)
    }

    fn commit(mut self, generation: u64) -> Eval<Outcome> {
        let (flushed, tracked) = {
            let shard = self.node.shard(self.asker.tenant);
            match shard.txn(self.part) {
                Some(entry) => (entry.intents.clone(), entry.tracked.clone()),
                None => Default::default(),
            }
        };
        if flushed.generation() != generation {
            return Err(Stop::Again);
        }
        let mut response = self.response();
        let mut record = None;
        let mut settled = Vec::new();
        if !flushed.is_empty() {
            match flushed.exact() {
                Some(keys) => settled = self.own_versions(&keys)?,
                None => {
                    let (id, ignored) = (self.txn.id, self.ignored().to_vec());
                    let txn = CommittedTxn { id, timestamp: Timestamp::MIN, ignored };
                    record = Some(Box::new((self.range_start()?, TxnRecord::committed(txn))));
                }
            }
        }
        let mut versions = self.versions();
        versions.append(&mut settled);
        let effects = Effects { raw: std::mem::take(&mut self.raw), versions, record };
        if effects.versions.is_empty() && effects.raw.is_empty() && effects.record.is_none() {
            return self.commit_nothing(response);
        }
        // Moving the snapshot checked what lies below it.
        let spans = self.header.refresh_spans.iter().chain(&tracked).chain(&self.read_spans);
        self.node.check_unchanged(
            self.reader,
            self.asker,
            Some(self.txn.id),
            spans,
            self.snapshot,
            Timestamp::MAX,
        )?;
        let mut shard = self.node.shard(self.asker.tenant);
        let has_intents = self.header.txn.as_ref().is_some_and(|meta| meta.has_intents);
        shard.check(self.part, self.asker.connection, self.hop(), has_intents)?;
        // Perhaps since it was looked at first: from now on they stay.
        self.node.check_locks_of(shard.txn(self.part), self.header)?;
        let entry = shard.open_txn(self.part, self.asker.connection, self.now);
        (entry.hop, entry.status) = (self.hop(), TxnStatus::Committing);
        shard.locks.make_firm(self.txn);
        response.read_timestamp = Some(self.snapshot);
        let order = match self.requests.last().and_then(|request| request.kind.as_ref()) {
            Some(RequestKind::EndTxn(EndTxn { commit_at: Some(at), .. })) => Order::Exactly(*at),
            Some(RequestKind::EndTxn(EndTxn { deadline: Some(deadline), .. })) => Order::By(*deadline),
            _ => Order::Present,
        };
        Ok(Outcome::Submit { effects, response, order, first_intents: None })
    }

    /// A transaction that wrote nothing happened at its snapshot.
    fn commit_nothing(self, mut response: BatchResponse) -> Eval<Outcome> {
        let mut shard = self.node.shard(self.asker.tenant);
        if shard.end(self.part).is_some_and(|entry| !entry.intents.is_empty()) {
            shard.remove_intent_txn(self.part);
        }
        drop(shard);
        response.commit_timestamp = Some(self.snapshot);
        Ok(Outcome::Answer(response))
    }

    /// Versions for the intents flushed before, except those of keys this batch writes, which
    /// [`Evaluation::versions`] takes care of.
    fn own_versions(&mut self, keys: &[Bytes]) -> Eval<Vec<NewVersion>> {
        let mut versions = Vec::with_capacity(keys.len());
        for key in keys {
            if self.keys.contains(key) {
                continue;
            }
            let Some(bytes) = self.reader.get(Space::Locks, key)? else { continue };
            let intent = Intent::decode(&bytes)?;
            if intent.txn != self.txn.id {
                return Err(aborted("an intent of the transaction is gone").into());
            }
            self.raw.delete(Space::Locks, key);
            if let Some(value) = intent.last_write(self.ignored()) {
                let replaced = self.reader.get(Space::Data, key)?.map(|bytes| Bytes::copy_from_slice(&bytes));
                if value.is_some() || replaced.is_some() {
                    versions.push(NewVersion { key: key.clone(), value: value.clone(), replaced });
                }
            }
        }
        Ok(versions)
    }
}

/// Whether a request reads the engine other than at a key that it writes.
fn reads(request: &Request) -> bool {
    use RequestKind::{DeleteRange, Get, Scan};
    matches!(&request.kind, Some(Get(_) | Scan(_) | DeleteRange(_)))
}

/// Makes a version of a committed intent, and `replaced` what the data space holds afterwards.
///
/// # Errors
/// Damage in `replaced`.
pub fn settle_committed(
    raw: &mut WriteBatch,
    key: &Bytes,
    intent: &Intent,
    committed: &CommittedTxn,
    replaced: &mut Option<Bytes>,
) -> Result<(), StorageError> {
    raw.delete(Space::Locks, key);
    let Some(value) = intent.last_write(&committed.ignored) else { return Ok(()) };
    put_version(raw, key, committed.timestamp, value.as_deref(), replaced.as_deref())?;
    let mut stored = Vec::with_capacity(13 + value.as_ref().map_or(0, Bytes::len));
    stored.push(storage::key::header(value.is_some()));
    stored.extend_from_slice(&storage::key::timestamp_bytes(committed.timestamp));
    stored.extend_from_slice(value.as_deref().unwrap_or_default());
    *replaced = Some(Bytes::from(stored));
    Ok(())
}
