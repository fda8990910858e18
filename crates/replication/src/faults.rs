//! Planted bugs: how the simulation proves that it would find them.
//!
//! A check that cannot fail is worth nothing. The few places where leaving something out would lose data
//! or break a promise ask [`Faults::planted`] first. A KV node runs with [`Sound`], for which the answer
//! is the constant `false` and the place compiles to what it would be without it.

/// Something left out on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// The log is not synced before it is acknowledged.
    NoSync,
    /// A command is applied whatever lease is in force.
    LeaseNotChecked,
    /// The contents a replica has are not removed before a snapshot arrives.
    SnapshotNotCleared,
    /// A vote is given although another leader is supported.
    SupportIgnoredInVote,
    /// Votes are given right after a restart, though promises made before it may stand.
    NoGraceAfterRestart,
    /// A leader counts the support of nodes that do not know it leads.
    UnknownLeaderSupported,
    /// A leader that hands over goes on serving.
    ServesWhileTransferring,
    /// A new leaseholder ignores the ceiling of the lease before.
    CeilingIgnored,
    /// A lease is taken for being in force before the leader has applied it.
    LeaseBeforeApplied,
    /// Support is counted from when the answer arrives, not from when it was asked for.
    SupportFromArrival,
    /// The term and vote are not written.
    VoteNotPersisted,
    /// The log is truncated beyond what has been applied.
    TruncatedBeyondApplied,
    /// An incomplete replica is forgotten to be incomplete at a restart.
    IncompleteForgotten,
    /// A replica leaves memory while it supports a leader, and forgets that it does.
    GuardForgottenAsleep,
    /// A leader says that it sleeps and keeps its lease.
    LeaseKeptAsleep,
    /// A range that comes to be may serve timestamps that were served in it when its keys were another's.
    NewRangeBelowFloor,
    /// A snapshot is taken whose keys another replica has.
    OverlapAccepted,
    /// A range that comes to be where messages have come for it before begins anew: term, vote and the leader
    /// it supports are forgotten.
    SplitVoteForgotten,
    /// The mark that a range was destroyed is ignored.
    DestroyedComesBack,
    /// A follower says that it has applied what waits for space on the disk.
    AppliedBeforeWritten,
    /// What is committed before a snapshot arrives is applied over it.
    AppliedOverSnapshot,
    /// A node votes although its replica was removed, and with it what it had acknowledged.
    RetiredVotes,
    /// A node does not vote where it never had a replica, although it should have one by now.
    EmptyNeverVotes,
    /// A range that absorbs another forgets what that one served: the next holder of its lease may go below it.
    AbsorbedBelowClock,
    /// That a range was frozen is forgotten when its replica is loaded.
    FrozenForgotten,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 25] = [
        Bug::NoSync,
        Bug::LeaseNotChecked,
        Bug::SnapshotNotCleared,
        Bug::SupportIgnoredInVote,
        Bug::NoGraceAfterRestart,
        Bug::UnknownLeaderSupported,
        Bug::ServesWhileTransferring,
        Bug::CeilingIgnored,
        Bug::LeaseBeforeApplied,
        Bug::SupportFromArrival,
        Bug::VoteNotPersisted,
        Bug::TruncatedBeyondApplied,
        Bug::IncompleteForgotten,
        Bug::GuardForgottenAsleep,
        Bug::LeaseKeptAsleep,
        Bug::NewRangeBelowFloor,
        Bug::OverlapAccepted,
        Bug::SplitVoteForgotten,
        Bug::DestroyedComesBack,
        Bug::AppliedBeforeWritten,
        Bug::AppliedOverSnapshot,
        Bug::RetiredVotes,
        Bug::EmptyNeverVotes,
        Bug::AbsorbedBelowClock,
        Bug::FrozenForgotten,
    ];
}

/// Says which bugs are planted.
pub trait Faults: Send + 'static {
    /// Whether a bug is.
    fn planted(&self, bug: Bug) -> bool;
}

/// No bugs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sound;

impl Faults for Sound {
    #[inline(always)]
    fn planted(&self, _: Bug) -> bool {
        false
    }
}

impl Faults for Bug {
    fn planted(&self, bug: Bug) -> bool {
        *self == bug
    }
}
