//! Writing down what happens.

use histories::{History, Isolation, Object, Op, Outcome, Txn};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The history so far, and the clock of all workers.
#[derive(Debug)]
pub struct Recorder {
    start: Instant,
    limit: u64,
    next_txn: AtomicU64,
    next_value: AtomicU64,
    txns: Mutex<Vec<Txn>>,
}

/// The keys of a history.
#[derive(Debug, Default)]
pub struct Used {
    /// Of lists.
    pub lists: BTreeSet<u64>,
    /// Of registers.
    pub registers: BTreeSet<u64>,
}

impl Recorder {
    /// An empty history that is full with so many transactions.
    pub fn new(limit: u64) -> Self {
        Self {
            start: Instant::now(),
            limit,
            next_txn: AtomicU64::new(1),
            next_value: AtomicU64::new(1),
            txns: Mutex::default(),
        }
    }

    /// Nanoseconds since the start.
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A value that nobody else has.
    pub fn value(&self) -> u64 {
        self.next_value.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether no more transactions should begin.
    pub fn is_full(&self) -> bool {
        self.next_txn.load(Ordering::Relaxed) > self.limit
    }

    /// Begins a transaction, which has not been sent yet.
    pub fn begin(self: &Arc<Self>, process: u32, isolation: Isolation) -> Record {
        let id = self.next_txn.fetch_add(1, Ordering::Relaxed);
        let (invoked, outcome, ops) = (self.now(), Outcome::Unknown, Vec::new());
        let txn = Txn { id, process, invoked, completed: None, outcome, isolation, ops };
        Record { recorder: Arc::clone(self), txn: Some(txn) }
    }

    fn push(&self, txn: Txn) {
        self.txns.lock().unwrap_or_else(PoisonError::into_inner).push(txn);
    }

    /// All keys that were read or written.
    pub fn keys(&self) -> Used {
        let mut used = Used::default();
        for txn in self.txns.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            for op in &txn.ops {
                match op.object() {
                    Object::List(key) => used.lists.insert(key),
                    Object::Register(key) => used.registers.insert(key),
                };
            }
        }
        used
    }

    /// Takes the history.
    pub fn take(&self) -> History {
        History { txns: std::mem::take(&mut self.txns.lock().unwrap_or_else(PoisonError::into_inner)) }
    }
}

/// A transaction under way. If it is dropped, its outcome is unknown.
#[derive(Debug)]
pub struct Record {
    recorder: Arc<Recorder>,
    txn: Option<Txn>,
}

impl Record {
    /// A value that nobody else has.
    pub fn value(&self) -> u64 {
        self.recorder.value()
    }

    /// Adds a write that is about to be sent, or a read that was answered.
    pub fn add(&mut self, op: Op) {
        if let Some(txn) = &mut self.txn {
            txn.ops.push(op);
        }
    }

    /// How much was done: for [`Record::undo`].
    pub fn mark(&self) -> usize {
        self.txn.as_ref().map_or(0, |txn| txn.ops.len())
    }

    /// What was done since is rolled back: it becomes an aborted transaction.
    pub fn undo(&mut self, mark: usize) {
        let Some(txn) = &mut self.txn else { return };
        let ops = txn.ops.split_off(mark.min(txn.ops.len()));
        let id = self.recorder.next_txn.fetch_add(1, Ordering::Relaxed);
        let (outcome, completed) = (Outcome::Aborted, Some(self.recorder.now()));
        let (process, invoked, isolation) = (txn.process, txn.invoked, txn.isolation);
        let undone = Txn { id, process, invoked, completed, outcome, isolation, ops };
        self.recorder.push(undone);
    }

    /// The end.
    pub fn end(mut self, outcome: Outcome) {
        let completed = self.recorder.now();
        let Some(mut txn) = self.txn.take() else { return };
        txn.outcome = outcome;
        txn.completed = (outcome != Outcome::Unknown).then_some(completed);
        if outcome == Outcome::Aborted {
            // Nobody judges what it read.
            txn.ops.retain(|op| op.written().is_some());
        }
        self.recorder.push(txn);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(txn) = self.txn.take() {
            self.recorder.push(txn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder() -> Arc<Recorder> {
        Arc::new(Recorder::new(3))
    }

    #[test]
    fn what_is_rolled_back_is_an_aborted_transaction() {
        let recorder = recorder();
        let mut record = recorder.begin(4, Isolation::Serializable);
        record.add(Op::Append { key: 1, value: 1 });
        let mark = record.mark();
        record.add(Op::Append { key: 1, value: 2 });
        record.undo(mark);
        record.add(Op::ReadList { key: 1, values: vec![1] });
        record.end(Outcome::Committed);
        let history = recorder.take();
        let [undone, rest] = &history.txns[..] else { panic!("{history:?}") };
        assert_eq!(
            (undone.outcome, &undone.ops[..]),
            (Outcome::Aborted, &[Op::Append { key: 1, value: 2 }][..])
        );
        assert_eq!((rest.outcome, rest.ops.len(), rest.process), (Outcome::Committed, 2, 4));
        assert_ne!(undone.id, rest.id);
        assert!(histories::check(&history, histories::Options::default()).is_empty());
    }

    #[test]
    fn a_transaction_that_is_dropped_is_unknown() {
        let recorder = recorder();
        let mut record = recorder.begin(1, Isolation::Serializable);
        record.add(Op::Write { key: 1, value: 1 });
        drop(record);
        let history = recorder.take();
        assert_eq!((history.txns[0].outcome, history.txns[0].completed), (Outcome::Unknown, None));
    }

    #[test]
    fn reads_of_the_aborted_are_forgotten_and_keys_are_known() {
        let recorder = recorder();
        let mut record = recorder.begin(1, Isolation::Serializable);
        record.add(Op::ReadList { key: 7, values: vec![1] });
        record.add(Op::Append { key: 8, value: 2 });
        record.add(Op::Write { key: 9, value: 3 });
        record.end(Outcome::Aborted);
        let used = recorder.keys();
        assert_eq!((used.lists, used.registers), (BTreeSet::from([8]), BTreeSet::from([9])));
    }

    #[test]
    fn it_is_full_in_the_end() {
        let recorder = recorder();
        for _ in 0..3 {
            assert!(!recorder.is_full());
            recorder.begin(1, Isolation::Serializable).end(Outcome::Committed);
        }
        assert!(recorder.is_full());
    }
}
