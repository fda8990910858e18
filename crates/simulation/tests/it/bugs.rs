//! Every planted bug is found.

use replication::Bug;
use simulation::scenario::scenario;
use simulation::{Options, Wanted, report, run, run_many};

/// Seeds that are tried for a bug.
const SEEDS: u64 = 200;

/// Looks for a bug. What also fails without it does not count.
fn find(bug: Bug) {
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
    for bug in Bug::ALL.into_iter().filter(|bug| scenario(*bug).is_some()) {
        let options = Options { scenario: Some(bug), ..Options::default() };
        let summary = run_many(1..=40, &options, Wanted::FirstFailure, |_| {});
        if let Some(failure) = summary.failures.first() {
            panic!("{}", report(failure, &options, 60));
        }
    }
}

macro_rules! bugs {
    ($($name:ident $bug:ident,)*) => {
        $(
            #[test]
            fn $name() {
                find(Bug::$bug);
            }
        )*

        #[test]
        fn every_bug_has_a_test() {
            let tested = [$(Bug::$bug,)*];
            let missing: Vec<_> = Bug::ALL.iter().filter(|bug| !tested.contains(bug)).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
    };
}

bugs! {
    no_sync NoSync,
    lease_not_checked LeaseNotChecked,
    snapshot_not_cleared SnapshotNotCleared,
    support_ignored_in_vote SupportIgnoredInVote,
    no_grace_after_restart NoGraceAfterRestart,
    unknown_leader_supported UnknownLeaderSupported,
    serves_while_transferring ServesWhileTransferring,
    ceiling_ignored CeilingIgnored,
    lease_before_applied LeaseBeforeApplied,
    support_from_arrival SupportFromArrival,
    vote_not_persisted VoteNotPersisted,
    truncated_beyond_applied TruncatedBeyondApplied,
    incomplete_forgotten IncompleteForgotten,
}
