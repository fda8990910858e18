//! What a transaction must see of its own doing.
//!
//! Both levels promise that a transaction sees what it wrote itself. SERIALIZABLE also promises that nothing
//! changes under its hands: what it read once and did not write it reads again.

use crate::anomaly::Class;
use crate::history::{Isolation, Object, Op, Txn};
use crate::index::Index;
use crate::report::{Report, excerpt};
use std::collections::HashMap;

pub(crate) fn check(index: &Index<'_>, report: &mut Report<'_>) {
    for (position, txn) in index.committed() {
        if let Some((object, problem)) = problem_of(txn) {
            report.add(Class::Internal, &[position], |names| {
                format!("{} {problem} ({object})", names.of(position))
            });
        }
    }
}

/// The first thing that is wrong within a transaction.
fn problem_of(txn: &Txn) -> Option<(Object, String)> {
    let mut lists: HashMap<u64, List> = HashMap::new();
    let mut registers = HashMap::new();
    for op in &txn.ops {
        if let Op::Append { key, value } = op {
            lists.entry(*key).or_default().later.push(*value);
        }
    }
    for op in &txn.ops {
        let problem = match op {
            Op::Append { key, value } => {
                lists.entry(*key).or_default().append(*value);
                None
            }
            Op::ReadList { key, values } => lists.entry(*key).or_default().read(values, txn.isolation),
            Op::Write { key, value } => {
                registers.insert(*key, Register { value: Some(*value), is_own: true });
                None
            }
            Op::Read { key, value } => {
                let held = registers.entry(*key).or_insert(Register { value: *value, is_own: false });
                held.read(*value, txn.isolation)
            }
        };
        if let Some(problem) = problem {
            return Some((op.object(), problem));
        }
    }
    None
}

/// What a transaction knows of a list.
#[derive(Default)]
struct List {
    /// What it appended so far.
    own: Vec<u64>,
    /// What it will append.
    later: Vec<u64>,
    /// All of the list, once it was read.
    whole: Option<Vec<u64>>,
}

impl List {
    fn append(&mut self, value: u64) {
        self.own.push(value);
        self.later.retain(|later| *later != value);
        if let Some(whole) = &mut self.whole {
            whole.push(value);
        }
    }

    fn read(&mut self, values: &[u64], isolation: Isolation) -> Option<String> {
        let read = || format!("read {}", excerpt(values, values.len()));
        if let Some(value) = values.iter().find(|value| self.later.contains(value)) {
            return Some(format!("{} and appended {value} only later", read()));
        }
        let others = values.len().checked_sub(self.own.len());
        let ends_with_own = others.is_some_and(|others| values[others..] == self.own);
        if !ends_with_own {
            return Some(format!("{} after it had appended {:?}", read(), self.own));
        }
        let problem =
            self.whole.as_ref().filter(|whole| isolation == Isolation::Serializable && *whole != values);
        let problem = problem.map(|whole| {
            let at = whole.iter().zip(values).take_while(|(known, read)| known == read).count();
            format!("read {} where it had to see {}", excerpt(values, at), excerpt(whole, at))
        });
        self.whole = Some(values.to_vec());
        problem
    }
}

/// What a transaction knows of a register.
#[derive(Clone, Copy)]
struct Register {
    value: Option<u64>,
    is_own: bool,
}

impl Register {
    fn read(&mut self, value: Option<u64>, isolation: Isolation) -> Option<String> {
        let known = self.value;
        if value == known {
            return None;
        }
        let (read, known) = (text(value), text(known));
        match (self.is_own, isolation) {
            (true, _) => Some(format!("read {read} after it had written {known}")),
            (false, Isolation::Serializable) => Some(format!("read {read} after it had read {known}")),
            (false, Isolation::ReadCommitted) => {
                self.value = value;
                None
            }
        }
    }
}

fn text(value: Option<u64>) -> String {
    value.map_or("nothing".to_owned(), |value| value.to_string())
}
