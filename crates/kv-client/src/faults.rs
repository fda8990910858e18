//! Planted bugs: how the simulation proves that it would find them in the coordinator of transactions.
//!
//! A check that cannot fail is worth nothing. The few places where leaving something out would break what is
//! promised of transactions ask [`crate::environment::Environment::planted`] first, which a process answers with no.

/// Something left out on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A SERIALIZABLE transaction gets a snapshot of its own for each statement, and nothing that it reads is checked, as
    /// under READ COMMITTED.
    SnapshotPerStatement,
    /// What was written since a savepoint stays in the buffer when the transaction returns to it.
    UndoneKept,
    /// The snapshot moves over several ranges without a look at what was read.
    MovedUnchecked,
    /// A commit that was sent and not answered is taken for one that did not happen.
    SilenceTakenForNo,
    /// When a transaction over several ranges has committed, all ranges that it locked something in are told that
    /// nothing comes of it, also such as have absorbed one with a part of it.
    PreparedBidFarewell,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 5] = [
        Bug::SnapshotPerStatement,
        Bug::UndoneKept,
        Bug::MovedUnchecked,
        Bug::SilenceTakenForNo,
        Bug::PreparedBidFarewell,
    ];
}
