//! Every planted bug is found.

use replication::Bug;
use simulation::planted::{Plant, ServiceBug};
use simulation::scenario::scenario;
use simulation::{Options, Wanted, report, run, run_many};

/// Seeds that are tried for a bug.
const SEEDS: u64 = 800;

/// Looks for a bug. What also fails without it does not count.
fn find(bug: Plant) {
    let options = Options::looking_for(bug);
    let without = Options { bug: None, ..options.clone() };
    let mut first = 1;
    while first <= SEEDS {
        let summary = run_many(first..=SEEDS, &options, Wanted::FirstFailure, |_| {});
        let Some(failure) = summary.failures.first() else { break };
        if let (Some(violation), None) = (&failure.violation, run(failure.seed, &without).violation) {
            println!("{bug:?}: found by seed {}, {}: {}", failure.seed, violation.check, violation.detail);
            return;
        }
        first = failure.seed + 1;
    }
    panic!("{bug:?} was not found in {SEEDS} runs");
}

/// What finds a bug must find nothing where there is none.
#[test]
fn scenarios_without_their_bugs_are_sound() {
    for bug in Plant::all().filter(|bug| scenario(*bug).is_some()) {
        let options = Options { scenario: Some(bug), ..Options::default() };
        let summary = run_many(1..=8, &options, Wanted::FirstFailure, |_| {});
        if let Some(failure) = summary.failures.first() {
            panic!("{}", report(failure, &options, 60));
        }
    }
}

macro_rules! bugs {
    ($($name:ident $kind:ident $of:ident $bug:ident,)*) => {
        $(
            #[test]
            fn $name() {
                find(Plant::$kind($of::$bug));
            }
        )*

        #[test]
        fn every_bug_has_a_test() {
            let tested = [$(Plant::$kind($of::$bug),)*];
            let missing: Vec<_> = Plant::all().filter(|bug| !tested.contains(bug)).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
    };
}

bugs! {
    no_sync Store Bug NoSync,
    lease_not_checked Store Bug LeaseNotChecked,
    snapshot_not_cleared Store Bug SnapshotNotCleared,
    support_ignored_in_vote Store Bug SupportIgnoredInVote,
    no_grace_after_restart Store Bug NoGraceAfterRestart,
    unknown_leader_supported Store Bug UnknownLeaderSupported,
    serves_while_transferring Store Bug ServesWhileTransferring,
    ceiling_ignored Store Bug CeilingIgnored,
    lease_before_applied Store Bug LeaseBeforeApplied,
    support_from_arrival Store Bug SupportFromArrival,
    vote_not_persisted Store Bug VoteNotPersisted,
    truncated_beyond_applied Store Bug TruncatedBeyondApplied,
    incomplete_forgotten Store Bug IncompleteForgotten,
    guard_forgotten_asleep Store Bug GuardForgottenAsleep,
    lease_kept_asleep Store Bug LeaseKeptAsleep,
    new_range_below_floor Store Bug NewRangeBelowFloor,
    overlap_accepted Store Bug OverlapAccepted,
    split_vote_forgotten Store Bug SplitVoteForgotten,
    destroyed_comes_back Store Bug DestroyedComesBack,
    applied_before_written Store Bug AppliedBeforeWritten,
    applied_over_snapshot Store Bug AppliedOverSnapshot,
    retired_votes Store Bug RetiredVotes,
    empty_never_votes Store Bug EmptyNeverVotes,
    absorbed_below_clock Store Bug AbsorbedBelowClock,
    frozen_forgotten Store Bug FrozenForgotten,
    follower_serves_without_waiting Service ServiceBug FollowerServesWithoutWaiting,
    promise_for_latecomers Service ServiceBug PromiseForLatecomers,
    promise_over_writes Service ServiceBug PromiseOverWrites,
    closed_over_writes Service ServiceBug ClosedOverWrites,
    closed_above_ceiling Service ServiceBug ClosedAboveCeiling,
    split_while_serving Service ServiceBug SplitWhileServing,
    frozen_while_serving Service ServiceBug FrozenWhileServing,
    frozen_serves Service ServiceBug FrozenServes,
    thawed_unsettled Service ServiceBug ThawedUnsettled,
}
