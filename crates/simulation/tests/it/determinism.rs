//! The same seed gives the same run.

use simulation::{Options, run};

#[test]
fn a_seed_gives_the_same_run_twice() {
    let options = Options { trace: true, ..Options::default() };
    for seed in 1..=12 {
        let (first, second) = (run(seed, &options), run(seed, &options));
        let differs = first.trace.iter().zip(&second.trace).position(|(one, two)| one != two);
        if let Some(line) = differs {
            panic!("seed {seed}, line {line}:\n{}\n{}", first.trace[line], second.trace[line]);
        }
        assert_eq!(first.trace.len(), second.trace.len(), "seed {seed}");
        assert_eq!(first.coverage, second.coverage, "seed {seed}");
        assert!(first.trace.len() > 1000, "seed {seed} does next to nothing");
    }
}

#[test]
fn a_trace_changes_nothing() {
    let traced = Options { trace: true, ..Options::default() };
    for seed in 1..=12 {
        assert_eq!(run(seed, &Options::default()).coverage, run(seed, &traced).coverage, "seed {seed}");
    }
}
