//! Numbers, and how they are printed.

use crate::driver::{Measured, Plan};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Longest latency told apart, in nanoseconds; longer ones count as this.
const LONGEST: u64 = 600_000_000_000;

/// How to print a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// For programs
    Json,
}

impl Output {
    /// Prints a result.
    pub fn print(self, result: &impl Printable) {
        match self {
            Self::Table => print!("{}", result.table()),
            Self::Json => println!("{}", result.json()),
        }
    }

    /// Says that something is done.
    pub(crate) fn done(self, workload: &str, what: &str) {
        match self {
            Self::Table => println!("{workload}: {what}"),
            Self::Json => println!("{}", json!({ "workload": workload, "state": what })),
        }
    }
}

/// What can be printed both ways.
pub trait Printable {
    /// For people.
    fn table(&self) -> String;
    /// For programs.
    fn json(&self) -> Value;
}

/// Latencies by kind of operation.
#[derive(Debug, Default)]
pub struct Latencies {
    by_kind: BTreeMap<&'static str, Histogram<u64>>,
}

impl Latencies {
    /// Adds one operation.
    pub fn record(&mut self, kind: &'static str, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.of(kind).saturating_record(nanoseconds.clamp(1, LONGEST));
    }

    /// Adds what others recorded.
    pub fn add(&mut self, others: &Self) {
        for (kind, histogram) in &others.by_kind {
            // All histograms have the same bounds, so nothing can be out of them.
            let _ = self.of(kind).add(histogram);
        }
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.by_kind.values_mut().for_each(Histogram::reset);
    }

    /// How many operations there were.
    pub fn count(&self) -> u64 {
        self.by_kind.values().map(Histogram::len).sum()
    }

    /// All kinds together.
    fn total(&self) -> Histogram<u64> {
        let mut total = histogram();
        for histogram in self.by_kind.values() {
            let _ = total.add(histogram);
        }
        total
    }

    fn of(&mut self, kind: &'static str) -> &mut Histogram<u64> {
        self.by_kind.entry(kind).or_insert_with(histogram)
    }
}

/// Three digits are exact from a microsecond to the longest latency.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, LONGEST, 3).expect("constant bounds that are valid")
}

/// Milliseconds at a quantile.
fn at(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    milliseconds(histogram.value_at_quantile(quantile))
}

fn milliseconds(nanoseconds: u64) -> f64 {
    (nanoseconds as f64 / 1_000.0).round() / 1_000.0
}

/// The line printed each second of a run.
pub(crate) fn progress_line(
    elapsed: Duration,
    interval: &Latencies,
    retries: u64,
    reconnects: u64,
) -> String {
    let total = interval.total();
    format!(
        "{:>5}s {:>8} ops/s  p50 {:>8.3} ms  p99 {:>8.3} ms  max {:>9.3} ms  retries {retries}  reconnects {reconnects}",
        elapsed.as_secs(),
        total.len(),
        at(&total, 0.5),
        at(&total, 0.99),
        milliseconds(total.max()),
    )
}

/// The result of a run.
#[derive(Debug)]
pub struct RunReport {
    workload: &'static str,
    connections: u32,
    measured: Measured,
    counts: Vec<(&'static str, u64)>,
    check: Option<CheckReport>,
}

impl RunReport {
    /// Puts together what a run measured and what its workload counted.
    pub fn new(
        workload: &'static str,
        plan: &Plan,
        measured: Measured,
        counts: Vec<(&'static str, u64)>,
    ) -> Self {
        Self { workload, connections: plan.connections, measured, counts, check: None }
    }

    /// Adds what was found in what the workers did.
    pub fn with_check(self, check: Option<CheckReport>) -> Self {
        Self { check, ..self }
    }

    fn per_second(&self, operations: u64) -> f64 {
        let seconds = self.measured.elapsed.as_secs_f64().max(f64::EPSILON);
        (operations as f64 / seconds * 10.0).round() / 10.0
    }

    /// Every kind, and all together where there are several.
    fn rows(&self) -> Vec<(&str, Histogram<u64>)> {
        let by_kind = &self.measured.latencies.by_kind;
        let mut rows: Vec<_> = by_kind.iter().map(|(kind, histogram)| (*kind, histogram.clone())).collect();
        if rows.len() != 1 {
            rows.push(("all", self.measured.latencies.total()));
        }
        rows
    }

    /// Attempts that were undone and repeated, for each operation that succeeded.
    fn retries_per_operation(&self) -> f64 {
        let operations = self.measured.latencies.count().max(1);
        (self.measured.retries as f64 / operations as f64 * 1e4).round() / 1e4
    }

    fn all_counts(&self) -> Vec<(&'static str, u64)> {
        let mut counts = vec![
            ("retries", self.measured.retries),
            ("reconnects", self.measured.reconnects),
            ("ambiguous_commits", self.measured.ambiguous),
        ];
        counts.extend_from_slice(&self.counts);
        counts
    }
}

impl Printable for RunReport {
    fn table(&self) -> String {
        let mut text = format!(
            "{}: {} connections, {:.1} s\n\n{:<12} {:>10} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10}\n",
            self.workload,
            self.connections,
            self.measured.elapsed.as_secs_f64(),
            "operation",
            "count",
            "per second",
            "mean ms",
            "p50 ms",
            "p95 ms",
            "p99 ms",
            "max ms",
        );
        for (kind, histogram) in self.rows() {
            text += &format!(
                "{kind:<12} {:>10} {:>12.1} {:>10.3} {:>10.3} {:>10.3} {:>10.3} {:>10.3}\n",
                histogram.len(),
                self.per_second(histogram.len()),
                histogram.mean() / 1e6,
                at(&histogram, 0.5),
                at(&histogram, 0.95),
                at(&histogram, 0.99),
                milliseconds(histogram.max()),
            );
        }
        text.push('\n');
        for (name, count) in self.all_counts() {
            text += &format!("{:<24} {count:>10}\n", name.replace('_', " "));
        }
        text += &format!("{:<24} {:>10.4}\n", "retries per operation", self.retries_per_operation());
        if let Some(check) = &self.check {
            text += &format!("\n{}", check.table());
        }
        text
    }

    fn json(&self) -> Value {
        let mut latency = Map::new();
        for (kind, histogram) in self.rows() {
            let figures = json!({
                "count": histogram.len(),
                "per_second": self.per_second(histogram.len()),
                "mean": (histogram.mean() / 1e3).round() / 1e3,
                "p50": at(&histogram, 0.5),
                "p95": at(&histogram, 0.95),
                "p99": at(&histogram, 0.99),
                "max": milliseconds(histogram.max()),
            });
            latency.insert(kind.to_owned(), figures);
        }
        let operations = self.measured.latencies.count();
        let mut result = json!({
            "workload": self.workload,
            "connections": self.connections,
            "seconds": self.measured.elapsed.as_secs_f64(),
            "operations": operations,
            "operations_per_second": self.per_second(operations),
            "latency_ms": latency,
            "retries_per_operation": self.retries_per_operation(),
        });
        if let Some(object) = result.as_object_mut() {
            object.extend(self.all_counts().into_iter().map(|(name, count)| (name.to_owned(), json!(count))));
            object.extend(self.check.iter().map(|check| ("check".to_owned(), check.json())));
        }
        result
    }
}

/// The result of a check.
#[derive(Debug, Default)]
pub struct CheckReport {
    workload: &'static str,
    facts: Vec<(&'static str, Value)>,
    problems: Vec<String>,
    more_problems: u64,
    notes: Vec<String>,
    conclusion: Option<String>,
}

/// Problems that are listed; the others are counted.
const LISTED_PROBLEMS: usize = 20;

impl CheckReport {
    /// Nothing looked at yet.
    pub fn new(workload: &'static str) -> Self {
        Self { workload, ..Self::default() }
    }

    /// Adds something that was found.
    pub fn fact(&mut self, name: &'static str, value: impl Into<Value>) {
        self.facts.push((name, value.into()));
    }

    /// Adds something that must not be.
    pub fn problem(&mut self, text: impl fmt::Display) {
        if self.problems.len() < LISTED_PROBLEMS {
            self.problems.push(text.to_string());
        } else {
            self.more_problems += 1;
        }
    }

    /// Adds something that is worth knowing and may be.
    pub fn note(&mut self, text: impl fmt::Display) {
        if self.notes.len() < LISTED_PROBLEMS {
            self.notes.push(text.to_string());
        }
    }

    /// Says in a sentence what came out.
    pub fn conclude(&mut self, text: impl fmt::Display) {
        self.conclusion = Some(text.to_string());
    }

    /// Whether everything is as it must be.
    pub fn ok(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Printable for CheckReport {
    fn table(&self) -> String {
        let mut text = format!("{}: {}\n\n", self.workload, if self.ok() { "ok" } else { "FAILED" });
        for (name, value) in &self.facts {
            text += &format!("{:<24} {value:>14}\n", name.replace('_', " "));
        }
        for problem in &self.problems {
            text += &format!("problem: {problem}\n");
        }
        if self.more_problems > 0 {
            text += &format!("and {} problems more\n", self.more_problems);
        }
        for note in &self.notes {
            text += &format!("note: {note}\n");
        }
        if let Some(conclusion) = &self.conclusion {
            text += &format!("\n{conclusion}\n");
        }
        text
    }

    fn json(&self) -> Value {
        let mut result = json!({
            "workload": self.workload,
            "ok": self.ok(),
            "problems": self.problems,
            "more_problems": self.more_problems,
        });
        if let Some(object) = result.as_object_mut() {
            if !self.notes.is_empty() {
                object.insert("notes".to_owned(), json!(self.notes));
            }
            object.extend(self.conclusion.iter().map(|text| ("conclusion".to_owned(), json!(text))));
            object.extend(self.facts.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        let mut latencies = Latencies::default();
        for n in 1..=100 {
            latencies.record("read", Duration::from_millis(n));
        }
        latencies.record("write", Duration::from_secs(1000));
        Measured { latencies, elapsed: Duration::from_secs(10), retries: 3, ..Measured::default() }
    }

    fn report() -> RunReport {
        let plan = Plan { connections: 4, duration: Duration::from_secs(10), progress: false };
        RunReport::new("kv", &plan, measured(), vec![("declined", 7)])
    }

    #[test]
    fn figures() {
        let json = report().json();
        assert_eq!(json["operations"], 101);
        assert_eq!(json["operations_per_second"], 10.1);
        let read = &json["latency_ms"]["read"];
        assert!((read["p50"].as_f64().unwrap() - 50.0).abs() < 0.1);
        assert!((read["p99"].as_f64().unwrap() - 99.0).abs() < 0.1);
        // Beyond the longest latency.
        assert!((json["latency_ms"]["write"]["max"].as_f64().unwrap() - 600_000.0).abs() < 600.0);
        assert_eq!((&json["retries"], &json["declined"]), (&json!(3), &json!(7)));
        assert_eq!(json["retries_per_operation"], 0.0297);
    }

    #[test]
    fn the_table_has_every_kind_and_all() {
        let table = report().table();
        for word in ["read", "write", "all", "p99 ms", "declined", "retries per operation", "4 connections"] {
            assert!(table.contains(word), "{word}\n{table}");
        }
    }

    #[test]
    fn merged_latencies_are_the_sum() {
        let (mut all, mut interval) = (Latencies::default(), measured().latencies);
        all.add(&interval);
        interval.reset();
        all.add(&interval);
        assert_eq!(all.count(), 101);
        assert_eq!(progress_line(Duration::from_secs(1), &all, 0, 0).split_whitespace().nth(1), Some("101"));
    }

    #[test]
    fn a_problem_fails_a_check() {
        let mut report = CheckReport::new("bank");
        report.fact("accounts", 3);
        assert!(report.ok());
        for n in 0..25 {
            report.problem(n);
        }
        assert!(!report.ok());
        let json = report.json();
        assert_eq!(
            (&json["ok"], &json["more_problems"], &json["accounts"]),
            (&json!(false), &json!(5), &json!(3))
        );
    }
}
