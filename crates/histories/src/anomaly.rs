//! What can be wrong with a history.

use std::fmt;

/// A kind of anomaly. The order is that of reports, from what breaks the weakest promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// The history cannot be judged: one value was written twice, or two transactions have one id.
    Malformed,
    /// A read returned a value that nobody wrote.
    Unwritten,
    /// A value stands in a list twice.
    DuplicateAppend,
    /// Two reads of a list, neither of which is the beginning of the other.
    IncompatibleOrder,
    /// An acknowledged append is missing from a list that was read later.
    LostAppend,
    /// A committed append follows one that was rolled back.
    DirtyUpdate,
    /// A cycle of `ww` edges.
    G0,
    /// A committed transaction read what was rolled back.
    G1a,
    /// A transaction read what another wrote and then wrote over.
    G1b,
    /// A cycle of `ww` and `wr` edges.
    G1c,
    /// A transaction does not see its own writes, or not the same thing twice.
    Internal,
    /// A cycle with one `rw` edge: lost updates, read skew.
    GSingle,
    /// A cycle with several `rw` edges: write skew.
    G2Item,
    /// What is seen of one object contradicts time: a transaction began after a write to it was acknowledged
    /// and did not see it, or saw what was written only later.
    RealTime,
    /// A cycle that needs the order of two transactions in time, over several objects. Serializable
    /// transactions may do that; strictly serializable ones may not.
    Strict,
}

impl Class {
    /// All of them, in their order.
    pub const ALL: [Class; 15] = [
        Class::Malformed,
        Class::Unwritten,
        Class::DuplicateAppend,
        Class::IncompatibleOrder,
        Class::LostAppend,
        Class::DirtyUpdate,
        Class::G0,
        Class::G1a,
        Class::G1b,
        Class::G1c,
        Class::Internal,
        Class::GSingle,
        Class::G2Item,
        Class::RealTime,
        Class::Strict,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Class::Malformed => "malformed",
            Class::Unwritten => "unwritten",
            Class::DuplicateAppend => "duplicate-append",
            Class::IncompatibleOrder => "incompatible-order",
            Class::LostAppend => "lost-append",
            Class::DirtyUpdate => "dirty-update",
            Class::G0 => "G0",
            Class::G1a => "G1a",
            Class::G1b => "G1b",
            Class::G1c => "G1c",
            Class::Internal => "internal",
            Class::GSingle => "G-single",
            Class::G2Item => "G2-item",
            Class::RealTime => "real-time",
            Class::Strict => "strict",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// Its kind.
    pub class: Class,
    /// The ids of the transactions it takes; for a cycle, in its order.
    pub txns: Vec<u64>,
    /// What they did, in words; several lines for a cycle.
    pub explanation: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.explanation)
    }
}
