//! Without a planted bug every run keeps every promise, and the runs meet everything they should.

use simulation::{Options, Wanted, operations, report, run_many};

#[test]
fn sound_clusters_keep_their_promises() {
    let options = Options::default();
    let summary = run_many(1..=200, &options, Wanted::FirstFailure, |_| {});
    if let Some(failure) = summary.failures.first() {
        panic!("{}", report(failure, &options, 60));
    }
    assert_eq!(summary.runs, 200);
    println!("{} runs, {} operations\n{}", summary.runs, operations(&summary.coverage), summary.coverage);
}

#[test]
fn a_hundred_runs_meet_everything() {
    let summary = run_many(1001..=1100, &Options::default(), Wanted::AllSeeds, |_| {});
    assert_eq!(summary.runs, 100);
    let missing: Vec<&str> = summary.coverage.missing().into_iter().map(|kind| kind.name()).collect();
    assert!(missing.is_empty(), "never happened: {missing:?}\n{}", summary.coverage);
}
