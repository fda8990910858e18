//! Planted bugs: how the simulation proves that it would find them in the handling of transactions.
//!
//! A check that cannot fail is worth nothing. The few places where leaving something out would break what is
//! promised of transactions ask [`crate::environment::Environment::planted`] first, which a process answers with no.

/// Something left out on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// Reads at a timestamp that comes from another range do not move the clock of the range: something may be
    /// written below it afterwards.
    ClockNotMoved,
    /// What may have been acknowledged before a transaction began is not looked for above its snapshot.
    UncertaintyIgnored,
    /// What a transaction read is not checked when it is prepared.
    PreparedUnchecked,
    /// A refresh says that nothing has changed without looking.
    RefreshSkipped,
    /// Readers do not wait for transactions that are prepared and not decided.
    PreparedUnseen,
    /// A staging record is taken for committed without asking whether its writes are prepared.
    StagingTrusted,
    /// A part that is asked for and not prepared does not note that it must not be.
    NotPrevented,
    /// A part is settled at the timestamp at which it was prepared, not at that of the commit.
    SettledWherePrepared,
    /// A part is settled and forgotten before the decision is on record.
    SettledUnrecorded,
    /// A part that was forgotten with its lease is taken for one that somebody else has settled.
    ForgottenTakenForSettled,
    /// A new leaseholder removes what earlier ones have prepared.
    PreparedForgotten,
    /// A range is split while transactions are prepared in it.
    SplitWhilePrepared,
    /// Writes that a savepoint undid are settled with the others.
    UndoneSettled,
    /// A part that is to be prepared above what was asked for says that it is not.
    PushConcealed,
    /// A transaction whose locks were taken commits as if it had them.
    LostLocksIgnored,
    /// Who is told that a lease is not here may still have locks here.
    LetGoSkipped,
    /// A transaction that was handed over can be taken over again.
    ClaimTakenTwice,
    /// Under which hop number a transaction is known is not looked at.
    HopIgnored,
    /// Where every replica serves the present, commits are acknowledged before clocks have passed them.
    CommitWaitSkipped,
    /// There, reads are answered before clocks have passed what they have seen.
    ReadWaitSkipped,
    /// There, replicas read at the time of their own clock, as if others showed the same.
    SkewIgnored,
    /// A range that absorbs another forgets what that one served: what was read there can be written below.
    MergeForgetsClock,
    /// A range goes on being served while it is frozen.
    FrozenServes,
    /// Ranges are merged while transactions are prepared in the left one.
    MergedWhilePrepared,
    /// Columns are kept of rows that are written to.
    WrittenColumnsKept,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 25] = [
        Bug::ClockNotMoved,
        Bug::UncertaintyIgnored,
        Bug::PreparedUnchecked,
        Bug::RefreshSkipped,
        Bug::PreparedUnseen,
        Bug::StagingTrusted,
        Bug::NotPrevented,
        Bug::SettledWherePrepared,
        Bug::SettledUnrecorded,
        Bug::ForgottenTakenForSettled,
        Bug::PreparedForgotten,
        Bug::SplitWhilePrepared,
        Bug::UndoneSettled,
        Bug::PushConcealed,
        Bug::LostLocksIgnored,
        Bug::LetGoSkipped,
        Bug::ClaimTakenTwice,
        Bug::HopIgnored,
        Bug::CommitWaitSkipped,
        Bug::ReadWaitSkipped,
        Bug::SkewIgnored,
        Bug::MergeForgetsClock,
        Bug::FrozenServes,
        Bug::MergedWhilePrepared,
        Bug::WrittenColumnsKept,
    ];
}
