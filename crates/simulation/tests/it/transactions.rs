//! Real nodes and clients: sound runs hold, and the same seed gives the same run.

use kv_client::faults::Bug as Client;
use kv_server::faults::Bug as Node;
use simulation::real::{Options, Planted, Tracing, report, run};

fn assert_sound(seeds: std::ops::RangeInclusive<u64>, options: Options) {
    let mut committed = 0;
    for seed in seeds {
        let outcome = run(seed, options);
        assert!(outcome.violation.is_none(), "{}", report(&outcome, options, 60));
        committed += outcome.counts.get("committed").copied().unwrap_or(0);
    }
    assert!(committed > 500, "only {committed} transactions committed");
}

#[test]
fn transactions_in_one_range_are_serializable() {
    assert_sound(1..=40, Options { whole_ranges: true, ..Options::default() });
}

#[test]
fn transactions_over_several_ranges_are_serializable() {
    assert_sound(1..=40, Options::default());
}

/// Also where hash tables have another order, as they have each time, and beside other tests.
#[test]
fn transactions_that_change_their_processes_are_not_aborted_because_of_that() {
    let options = Options { calm: true, ..Options::default() };
    let mut hops = 0;
    for seed in 1..=10 {
        let outcome = run(seed, options);
        assert!(outcome.violation.is_none(), "{}", report(&outcome, options, 60));
        hops += outcome.counts.get("hops").copied().unwrap_or(0);
    }
    assert!(hops > 1000, "only {hops} hops");
}

#[test]
fn what_every_replica_serves_is_up_to_date() {
    assert_sound(1..=40, Options { global: true, ..Options::default() });
}

#[test]
fn transactions_over_ranges_that_are_merged_are_serializable() {
    let options = Options { merges: true, ..Options::default() };
    assert_sound(1..=60, options);
    let merges = |seed| run(seed, options).counts.get("merges").copied().unwrap_or(0);
    assert!((1..=20).map(merges).sum::<u64>() > 20);
}

#[test]
fn bugs_in_merges_are_found() {
    let bugs = [Node::MergeForgetsClock, Node::FrozenServes].map(Planted::Node);
    for bug in bugs.into_iter().chain([Planted::Client(Client::PreparedBidFarewell)]) {
        let options = Options { bug: Some(bug), merges: true, ..Options::default() };
        // Ranges are frozen only once they are at rest: of 330 runs one meets `FrozenServes`.
        let found = (1..=2000).find(|seed| run(*seed, options).violation.is_some());
        assert!(found.is_some(), "{bug:?} is not found");
    }
}

#[test]
fn transactions_over_ranges_whose_leases_move_all_the_time_are_serializable() {
    let options = Options { transfers: true, ..Options::default() };
    assert_sound(1..=100, options);
    let moves = |seed| run(seed, options).counts.get("leases handed over").copied().unwrap_or(0);
    assert!((1..=10).map(moves).sum::<u64>() > 1000);
}

#[test]
fn bugs_in_what_is_settled_while_leases_move_are_found() {
    let bug = Some(Planted::Node(Node::ForgottenTakenForSettled));
    let options = Options { bug, transfers: true, ..Options::default() };
    // Of some 1,500 runs one meets it.
    assert!((1_201..=3_000).any(|seed| run(seed, options).violation.is_some()));
}

#[test]
fn with_clocks_further_apart_than_expected_transactions_are_serializable() {
    assert_sound(1..=20, Options { global: true, wrong_clocks: true, ..Options::default() });
}

#[test]
fn bugs_in_what_every_replica_serves_are_found() {
    for bug in [Node::CommitWaitSkipped, Node::ReadWaitSkipped, Node::SkewIgnored] {
        let options = Options { bug: Some(Planted::Node(bug)), global: true, ..Options::default() };
        let found = (1..=400).find(|seed| run(*seed, options).violation.is_some());
        assert!(found.is_some(), "{bug:?} is not found");
    }
}

#[test]
fn a_seed_gives_the_same_run_twice() {
    for (seed, whole_ranges) in (1..=4).flat_map(|seed| [(seed, true), (seed, false)]) {
        let options = Options { whole_ranges, tracing: Tracing::Kept, ..Options::default() };
        let (first, second) = (run(seed, options), run(seed, options));
        let differs = first.trace.iter().zip(&second.trace).position(|(one, two)| one != two);
        if let Some(line) = differs {
            panic!("seed {seed}, line {line}:\n{}\n{}", first.trace[line], second.trace[line]);
        }
        assert_eq!(first.trace.len(), second.trace.len(), "seed {seed}");
        assert_eq!(first.counts, second.counts, "seed {seed}");
        assert!(first.txns > 0, "seed {seed} does nothing");
    }
}

/// A node whose clock is hours off stops itself; that no other does is checked in every run.
#[test]
fn nodes_with_wrong_clocks_stop() {
    let stopped = |seed| run(seed, Options::default()).counts.get("stopped for the clock").copied();
    assert!((1..=40).any(|seed| stopped(seed).is_some()));
}

/// Every bug is found by the first of these seeds that meets it. Of the other ones `UndoneSettled`,
/// `SettledWherePrepared` and `StagingTrusted` are met by few seeds, and `SettledUnrecorded` and `SplitWhilePrepared` by
/// none that was tried: they need a coordinator to be gone at the one moment at which they matter. `NotPrevented` matters
/// only where clocks are further apart than a part waits for its coordinator: what comes later is prepared above what it
/// was asked for.
#[test]
fn planted_bugs_are_found() {
    let nodes = [
        Node::ClockNotMoved,
        Node::UncertaintyIgnored,
        Node::PreparedUnchecked,
        Node::RefreshSkipped,
        Node::PreparedUnseen,
        Node::PreparedForgotten,
        Node::PushConcealed,
        Node::LostLocksIgnored,
        Node::LetGoSkipped,
        Node::ClaimTakenTwice,
        Node::HopIgnored,
        Node::WrittenColumnsKept,
    ];
    let clients =
        [Client::SnapshotPerStatement, Client::UndoneKept, Client::MovedUnchecked, Client::SilenceTakenForNo];
    let bugs = nodes.into_iter().map(Planted::Node).chain(clients.into_iter().map(Planted::Client));
    for bug in bugs {
        let options = Options { bug: Some(bug), ..Options::default() };
        // Of 270 runs one meets `LetGoSkipped`; all others are met by one of the first few.
        let found = (1..=1200).find(|seed| run(*seed, options).violation.is_some());
        assert!(found.is_some(), "{bug:?} is not found");
    }
}
