//! Who wrote what, and who committed.

use crate::anomaly::Class;
use crate::history::{History, Isolation, Object, Op, Outcome, Txn};
use crate::report::Report;
use std::collections::{HashMap, HashSet};

/// The write of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    /// The position of its transaction.
    pub(crate) txn: usize,
    /// Whether it is the last of its transaction to the object.
    pub(crate) is_last: bool,
    /// Where it stands among the operations of its transaction.
    pub(crate) place: usize,
}

/// A history that can be asked.
pub(crate) struct Index<'h> {
    history: &'h History,
    writes: HashMap<(Object, u64), Write>,
    committed: Vec<bool>,
}

impl<'h> Index<'h> {
    pub(crate) fn new(history: &'h History, report: &mut Report<'_>) -> Self {
        let mut index = Index { history, writes: HashMap::new(), committed: Vec::new() };
        index.check_ids(report);
        for (position, txn) in history.txns.iter().enumerate() {
            index.add_writes(position, txn, report);
        }
        index.committed = history.txns.iter().map(|txn| txn.outcome == Outcome::Committed).collect();
        index.resolve_unknown();
        index
    }

    fn check_ids(&self, report: &mut Report<'_>) {
        let mut ids = HashSet::new();
        for (position, txn) in self.history.txns.iter().enumerate() {
            if !ids.insert(txn.id) {
                let explain = || format!("two transactions have the id {}", txn.id);
                report.add(Class::Malformed, &[position], |_| explain());
            }
        }
    }

    fn add_writes(&mut self, position: usize, txn: &Txn, report: &mut Report<'_>) {
        let mut seen = HashSet::new();
        for (place, op) in txn.ops.iter().enumerate().rev() {
            let (object, Some(value)) = (op.object(), op.written()) else { continue };
            let write = Write { txn: position, is_last: seen.insert(object), place };
            if let Some(other) = self.writes.insert((object, value), write) {
                report.add(Class::Malformed, &[other.txn, position], |names| {
                    let (first, second) = (names.of(other.txn), names.of(position));
                    format!("{first} and {second} both wrote {value} to {object}")
                });
            }
        }
    }

    /// A transaction of unknown outcome committed if one that committed saw a write of it.
    fn resolve_unknown(&mut self) {
        let unknown = |txn: usize| self.history.txns[txn].outcome == Outcome::Unknown;
        let open: HashMap<(Object, u64), usize> = self
            .writes
            .iter()
            .filter(|(_, write)| unknown(write.txn))
            .map(|(at, write)| (*at, write.txn))
            .collect();
        let objects: HashSet<Object> = open.keys().map(|(object, _)| *object).collect();
        let mut readers: Vec<usize> = (0..self.committed.len()).filter(|txn| self.committed[*txn]).collect();
        while let Some(reader) = readers.pop() {
            for op in self.history.txns[reader].ops.iter().filter(|op| objects.contains(&op.object())) {
                for value in read_values(op) {
                    if let Some(writer) = open.get(&(op.object(), *value))
                        && !std::mem::replace(&mut self.committed[*writer], true)
                    {
                        readers.push(*writer);
                    }
                }
            }
        }
    }

    /// The transaction at a position.
    pub(crate) fn txn(&self, position: usize) -> &'h Txn {
        &self.history.txns[position]
    }

    /// Transactions that committed, as far as is known, with their positions.
    pub(crate) fn committed(&self) -> impl Iterator<Item = (usize, &'h Txn)> + '_ {
        self.history.txns.iter().enumerate().filter(|(position, _)| self.committed[*position])
    }

    /// Whether a transaction committed, as far as is known.
    pub(crate) fn is_committed(&self, position: usize) -> bool {
        self.committed[position]
    }

    /// Whether it was promised more than committed reads.
    pub(crate) fn is_serializable(&self, position: usize) -> bool {
        self.txn(position).isolation == Isolation::Serializable
    }

    /// Who wrote a value.
    pub(crate) fn writer(&self, object: Object, value: u64) -> Option<Write> {
        self.writes.get(&(object, value)).copied()
    }

    /// When the commit of a transaction was acknowledged.
    pub(crate) fn acknowledged(&self, position: usize) -> Option<u64> {
        let txn = self.txn(position);
        txn.completed.filter(|_| txn.outcome == Outcome::Committed)
    }
}

fn read_values(op: &Op) -> &[u64] {
    match op {
        Op::ReadList { values, .. } => values,
        Op::Read { value, .. } => value.as_slice(),
        Op::Append { .. } | Op::Write { .. } => &[],
    }
}
