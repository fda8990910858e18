//! What the clients did and were told: the history that is checked in the end.

use crate::layout::{INITIAL, Register};
use crate::linear::{Access, History, NEVER, Stamp};
use crate::register::{Action, Answer, ClientId, OpId};

/// What is known of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It may have an effect, now or later.
    Open,
    /// A read that returned this, or a write that took effect.
    Done(u64),
    /// It has no effect.
    Void,
}

#[derive(Clone, Debug)]
struct Op {
    client: ClientId,
    register: Register,
    action: Action,
    began: Stamp,
    ended: Stamp,
    outcome: Outcome,
}

/// The history of a run.
#[derive(Debug, Default)]
pub struct Record {
    ops: Vec<Op>,
    stamp: Stamp,
}

impl Record {
    fn stamp(&mut self) -> Stamp {
        self.stamp += 1;
        self.stamp
    }

    /// A client begins an operation.
    pub fn begin(&mut self, client: ClientId, register: Register, action: Action) -> OpId {
        let began = self.stamp();
        self.ops.push(Op { client, register, action, began, ended: NEVER, outcome: Outcome::Open });
        self.ops.len() - 1
    }

    /// A client got an answer.
    ///
    /// # Errors
    /// A description if it contradicts what was known.
    pub fn answer(&mut self, op: OpId, answer: Answer) -> Result<(), String> {
        match answer {
            Answer::Read(_, value) => {
                let ended = self.stamp();
                if let Some(op) = self.ops.get_mut(op) {
                    (op.ended, op.outcome) = (ended, Outcome::Done(value));
                }
                Ok(())
            }
            Answer::Written => self.applied(op),
            Answer::NotLeaseholder(_) | Answer::NotHere | Answer::Failed => self.void(op),
            Answer::Unknown => Ok(()),
        }
    }

    /// A write took effect.
    ///
    /// # Errors
    /// A description if it was said to have none.
    pub fn applied(&mut self, id: OpId) -> Result<(), String> {
        let ended = self.stamp();
        let Some(op) = self.ops.get_mut(id) else { return Ok(()) };
        let Action::Write(value) = op.action else { return Ok(()) };
        match op.outcome {
            Outcome::Open => {
                (op.ended, op.outcome) = (ended, Outcome::Done(value));
                Ok(())
            }
            Outcome::Done(_) => Ok(()),
            Outcome::Void => Err(format!("operation {id} took effect after it was said not to: {op:?}")),
        }
    }

    /// An operation has no effect and will have none.
    ///
    /// # Errors
    /// A description if it was said to have one.
    pub fn void(&mut self, id: OpId) -> Result<(), String> {
        let Some(op) = self.ops.get_mut(id) else { return Ok(()) };
        if matches!((op.outcome, op.action), (Outcome::Done(_), Action::Write(_))) {
            return Err(format!("operation {id} was said to have no effect after it had one: {op:?}"));
        }
        op.outcome = Outcome::Void;
        Ok(())
    }

    /// The history of a register, but for reads of the past.
    pub fn history(&self, register: Register) -> History {
        let mut history = History { initial: INITIAL, ..History::default() };
        for (id, op) in self.ops.iter().enumerate().filter(|(_, op)| op.register == register) {
            let access = |value| Access { id, value, began: op.began, ended: op.ended };
            match (op.action, op.outcome) {
                (_, Outcome::Void) | (Action::Past, _) | (Action::Read | Action::Follow, Outcome::Open) => {}
                (Action::Read | Action::Follow, Outcome::Done(value)) => history.reads.push(access(value)),
                (Action::Write(value), _) => history.writes.push(access(value)),
            }
        }
        history
    }

    /// An operation in words.
    pub fn describe(&self, id: OpId) -> String {
        match self.ops.get(id) {
            Some(op) => format!(
                "operation {id} of client {} on k{}: {:?}, {:?}",
                op.client, op.register, op.action, op.outcome
            ),
            None => format!("operation {id}"),
        }
    }
}
