//! Histories.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What happened, in any order. Objects are empty at first; no value is written to one object twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The transactions.
    pub txns: Vec<Txn>,
}

/// A transaction, or the part of one that was rolled back to a savepoint: that is an aborted transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Txn {
    /// Names it in reports.
    pub id: u64,
    /// Who ran it. A process runs one transaction after the other.
    pub process: u32,
    /// When it was asked for, before its first message left; nanoseconds on a clock that all processes share.
    pub invoked: u64,
    /// When it was answered, by the same clock. None if it never was.
    pub completed: Option<u64>,
    /// What became of it.
    pub outcome: Outcome,
    /// What it was promised.
    pub isolation: Isolation,
    /// What it did, in order.
    pub ops: Vec<Op>,
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Its commit was acknowledged.
    Committed,
    /// It certainly had no effect.
    Aborted,
    /// Nobody knows.
    Unknown,
}

/// What a transaction was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// As if alone.
    Serializable,
    /// It reads what was committed.
    ReadCommitted,
}

/// What a transaction does to one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// Puts a value at the end of a list.
    Append {
        /// The list.
        key: u64,
        /// The value.
        value: u64,
    },
    /// Reads a whole list.
    ReadList {
        /// The list.
        key: u64,
        /// What it held.
        values: Vec<u64>,
    },
    /// Replaces what a register holds.
    Write {
        /// The register.
        key: u64,
        /// The value.
        value: u64,
    },
    /// Reads a register.
    Read {
        /// The register.
        key: u64,
        /// What it held; None at first.
        value: Option<u64>,
    },
}

/// A list or a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    /// A list of values.
    List(u64),
    /// One value.
    Register(u64),
}

impl Op {
    /// What it is done to.
    pub fn object(&self) -> Object {
        match self {
            Op::Append { key, .. } | Op::ReadList { key, .. } => Object::List(*key),
            Op::Write { key, .. } | Op::Read { key, .. } => Object::Register(*key),
        }
    }

    /// The value it writes.
    pub fn written(&self) -> Option<u64> {
        match self {
            Op::Append { value, .. } | Op::Write { value, .. } => Some(*value),
            Op::ReadList { .. } | Op::Read { .. } => None,
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Object::List(key) => write!(f, "list {key}"),
            Object::Register(key) => write!(f, "register {key}"),
        }
    }
}
