//! Runs: one seed, one world, one verdict.

use crate::coverage::{Coverage, Kind};
use crate::plan::Plan;
use crate::planted::Plant;
use crate::scenario::scenario;
use crate::trace::Trace;
use crate::watch::Violation;
use crate::world::World;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The bug planted in every node.
    pub bug: Option<Plant>,
    /// The bug whose scenario is played; without one the plan is drawn from the seed.
    pub scenario: Option<Plant>,
    /// Whether to keep a trace.
    pub trace: bool,
}

impl Options {
    /// Runs that look for a bug: by its scenario if it has one, or by chance.
    pub fn looking_for(bug: Plant) -> Self {
        Options { bug: Some(bug), scenario: Some(bug), trace: false }
    }
}

/// How a run went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What was wrong.
    pub violation: Option<Violation>,
    /// What happened how often.
    pub coverage: Coverage,
    /// The trace, if it was asked for.
    pub trace: Vec<String>,
}

/// Runs a seed. The same seed and options give the same outcome.
pub fn run(seed: u64, options: &Options) -> Outcome {
    let mut rng = SmallRng::seed_from_u64(seed);
    let drawn = Plan::draw(&mut rng);
    let plan = options.scenario.and_then(scenario).unwrap_or(drawn);
    let mut world = World::new(plan, rng, options.bug, Trace::new(options.trace));
    // A node that panics is a finding like any other. The world is only read afterwards.
    let violation = match catch_unwind(AssertUnwindSafe(|| world.run())) {
        Ok(result) => result.err(),
        Err(panic) => Some(Violation::new("no panics", panic_message(&*panic))),
    };
    Outcome { seed, violation, coverage: world.coverage, trace: world.trace.into_lines() }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_owned()
}

/// What came of many runs.
#[derive(Debug, Default)]
pub struct Summary {
    /// How many there were.
    pub runs: u64,
    /// What happened in them.
    pub coverage: Coverage,
    /// Those that failed, by seed.
    pub failures: Vec<Outcome>,
}

/// Runs seeds on all processors, until one fails or, if all are `wanted`, to the last. `progress` is called
/// after every run with the number of runs so far.
pub fn run_many(
    seeds: RangeInclusive<u64>,
    options: &Options,
    wanted: Wanted,
    progress: impl Fn(u64) + Sync,
) -> Summary {
    let summary = Mutex::new(Summary::default());
    sweep(seeds, wanted, |seed| {
        let outcome = run(seed, options);
        let failed = outcome.violation.is_some();
        if let Ok(mut summary) = summary.lock() {
            summary.runs += 1;
            summary.coverage.add(&outcome.coverage);
            progress(summary.runs);
            if failed {
                summary.failures.push(outcome);
            }
        }
        failed
    });
    let mut summary = summary.into_inner().unwrap_or_default();
    summary.failures.sort_by_key(|failure| failure.seed);
    summary
}

/// Goes through seeds on all processors; `run` says whether its seed failed.
pub fn sweep(seeds: RangeInclusive<u64>, wanted: Wanted, run: impl Fn(u64) -> bool + Sync) {
    let next = AtomicU64::new(*seeds.start());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > *seeds.end() {
                break;
            }
            if run(seed) && wanted == Wanted::FirstFailure {
                next.store(seeds.end().saturating_add(1), Ordering::Relaxed);
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
}

/// When [`run_many`] ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// When a run fails.
    FirstFailure,
    /// When all seeds have been run.
    AllSeeds,
}

/// How many operations were answered.
pub fn operations(coverage: &Coverage) -> u64 {
    [Kind::Reads, Kind::Writes, Kind::NotLeaseholder, Kind::Unknown]
        .iter()
        .map(|kind| coverage.get(*kind))
        .sum()
}

/// A failure in words: the seed, how to see it again, the check, and the end of the trace. The seed is run
/// once more for that.
pub fn report(failure: &Outcome, options: &Options, lines: usize) -> String {
    let again = run(failure.seed, &Options { trace: true, ..options.clone() });
    let mut text = String::new();
    let skip = again.trace.len().saturating_sub(lines);
    for line in &again.trace[skip..] {
        text.push_str(line);
        text.push('\n');
    }
    if again.violation != failure.violation {
        text.push_str(&format!("A second run went differently: {:?}\n", again.violation));
    }
    let seed = failure.seed;
    let with = match (options.bug, options.scenario) {
        (Some(bug), _) => format!(" BUG={bug:?}"),
        (None, Some(bug)) => format!(" SCENARIO={bug:?}"),
        (None, None) => String::new(),
    };
    text.push_str(&format!(
        "seed {seed} failed; to see all of it: make sim SEEDS={seed}..{seed} TRACE=1{with}\n"
    ));
    if let Some(violation) = &failure.violation {
        text.push_str(&format!("check: {}\n{}\n", violation.check, violation.detail));
    }
    text
}
