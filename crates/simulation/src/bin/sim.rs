//! `sim`: runs seeds of the simulation. `make sim SEEDS=1..500` builds and calls it.
//!
//! It takes what to do from the environment:
//!
//! * `SEEDS`: `7` or `1..500`, both ends included.
//! * `TRACE`: if set, the whole trace of every seed is printed.
//! * `ALL`: if set, it goes on after a failure and lists all of them.
//! * `BUG`: a bug to plant; some come with a scenario.
//! * `SCENARIO`: a bug whose scenario is played without it.
//!
//! With `--world transactions` it runs the real KV nodes and clients ([`simulation::real`]) instead of models of
//! them; `SEEDS`, `TRACE` and `ALL` are as above, and `TRACE=live` prints the trace of a run that comes to no end.
//! With `CALM` nothing goes wrong, and transactions change their processes often. With `WHOLE` ranges are not split;
//! with `MERGES` they are split and merged all the time, with `TRANSFERS` leases are handed over all the time, with
//! `GLOBAL` keys are served by every replica in every run, with `WRONG_CLOCKS` clocks are further apart than nodes
//! expect; `BUG` is one of kv-server's.
//!
//! Ends with 1 if a check failed and with 2 if it was called wrongly.

use simulation::planted::Plant;
use simulation::real::{Planted, Tracing};
use simulation::{Options, Wanted, operations, real, report, run, run_many, sweep};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::sync::Mutex;

/// Lines of the trace that are printed with a failure.
const LAST_LINES: usize = 60;

fn main() -> ExitCode {
    match world() {
        Ok(World::Models) => models(),
        Ok(World::Transactions) => transactions(),
        Err(message) => wrong(&message),
    }
}

fn wrong(message: &str) -> ExitCode {
    eprintln!("sim: {message}");
    ExitCode::from(2)
}

enum World {
    Models,
    Transactions,
}

fn world() -> Result<World, String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(World::Models),
        ["--world", "transactions"] => Ok(World::Transactions),
        _ => Err("the only argument is --world transactions".to_owned()),
    }
}

fn transactions() -> ExitCode {
    let seeds = match seeds() {
        Ok(seeds) => seeds,
        Err(message) => return wrong(&message),
    };
    let tracing = match set("TRACE").as_deref() {
        None => Tracing::Off,
        Some("live") => Tracing::Live,
        Some(_) => Tracing::Kept,
    };
    let bug = set("BUG").map(|name| {
        let bug = Planted::all().find(|bug| format!("{bug:?}") == name);
        let known = || Planted::all().collect::<Vec<_>>();
        bug.ok_or_else(|| format!("BUG is {name}, but should be one of {:?}", known()))
    });
    let bug = match bug.transpose() {
        Ok(bug) => bug,
        Err(message) => return wrong(&message),
    };
    let options = real::Options {
        bug,
        whole_ranges: set("WHOLE").is_some(),
        calm: set("CALM").is_some(),
        global: set("GLOBAL").is_some(),
        merges: set("MERGES").is_some(),
        transfers: set("TRANSFERS").is_some(),
        wrong_clocks: set("WRONG_CLOCKS").is_some(),
        tracing,
    };
    let all = set("ALL").is_some();
    let wanted = if all { Wanted::AllSeeds } else { Wanted::FirstFailure };
    let found = Mutex::new((Vec::new(), BTreeMap::<&str, u64>::new(), 0_u64));
    sweep(seeds, wanted, |seed| {
        let outcome = real::run(seed, options);
        let failed = outcome.violation.is_some();
        if let Ok(mut found) = found.lock() {
            outcome.trace.iter().for_each(|line| println!("{line}"));
            outcome.counts.iter().for_each(|(what, count)| *found.1.entry(what).or_default() += count);
            found.2 += 1;
            if failed {
                found.0.push(outcome);
            }
        }
        failed
    });
    let Ok((mut failures, counts, runs)) = found.into_inner() else { return ExitCode::FAILURE };
    let counts: Vec<String> = counts.iter().map(|(what, count)| format!("{what} {count}")).collect();
    println!("{runs} runs: {}", counts.join(", "));
    failures.sort_by_key(|failure| failure.seed);
    for failure in &failures {
        println!("{}", real::report(failure, options, if tracing == Tracing::Off { LAST_LINES } else { 0 }));
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn models() -> ExitCode {
    let (seeds, options) = match arguments() {
        Ok(arguments) => arguments,
        Err(message) => return wrong(&message),
    };
    if options.trace {
        return print_traces(seeds, &options);
    }
    let total = seeds.end() - seeds.start() + 1;
    let terminal = std::io::stderr().is_terminal();
    let progress = |done: u64| {
        if terminal && done.is_multiple_of(20) {
            // Progress that cannot be shown is no reason to stop.
            let _ = write!(std::io::stderr(), "\r{done} of {total} runs");
        }
    };
    let all = set("ALL").is_some();
    let wanted = if all { Wanted::AllSeeds } else { Wanted::FirstFailure };
    let summary = run_many(seeds, &options, wanted, progress);
    if terminal {
        eprintln!();
    }
    println!("{} runs, {} operations\n{}", summary.runs, operations(&summary.coverage), summary.coverage);
    let Some(first) = summary.failures.first() else { return ExitCode::SUCCESS };
    if all {
        for failure in &summary.failures {
            if let Some(violation) = &failure.violation {
                println!("seed {}: {}: {}", failure.seed, violation.check, violation.detail);
            }
        }
    } else {
        println!("{}", report(first, &options, LAST_LINES));
    }
    ExitCode::FAILURE
}

fn print_traces(seeds: RangeInclusive<u64>, options: &Options) -> ExitCode {
    let mut failed = false;
    for seed in seeds {
        let outcome = run(seed, options);
        outcome.trace.iter().for_each(|line| println!("{line}"));
        match &outcome.violation {
            None => println!("seed {seed}: sound"),
            Some(violation) => println!("seed {seed}: {}: {}", violation.check, violation.detail),
        }
        failed |= outcome.violation.is_some();
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn seeds() -> Result<RangeInclusive<u64>, String> {
    let seeds = set("SEEDS").unwrap_or_else(|| "1..500".to_owned());
    let (first, last) = seeds.split_once("..").unwrap_or((&seeds, &seeds));
    let number =
        |text: &str| text.trim_start_matches('=').parse::<u64>().ok().filter(|seed| *seed < u64::MAX);
    let range = number(first).zip(number(last)).filter(|(first, last)| first <= last);
    let (first, last) = range.ok_or_else(|| format!("SEEDS is {seeds}, but should look like 1..500 or 7"))?;
    Ok(first..=last)
}

fn arguments() -> Result<(RangeInclusive<u64>, Options), String> {
    let seeds = seeds()?;
    let bug = |name: &str| match set(name) {
        None => Ok(None),
        Some(value) => {
            let bug = Plant::all().find(|bug| format!("{bug:?}") == value);
            let known: Vec<Plant> = Plant::all().collect();
            bug.map(Some).ok_or_else(|| format!("{name} is {value}, but should be one of {known:?}"))
        }
    };
    let options = match (bug("BUG")?, bug("SCENARIO")?) {
        (Some(bug), _) => Options::looking_for(bug),
        (None, scenario) => Options { scenario, ..Options::default() },
    };
    Ok((seeds, Options { trace: set("TRACE").is_some(), ..options }))
}
