//! What is said of a history.

use crate::report::CheckReport;
use anyhow::Context;
use histories::{Class, History, Options, Outcome, check};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// How many anomalies of one class are counted.
const PER_CLASS: usize = 100;

/// Judges a history. What only strict serializability forbids is listed if asked for, and is no problem.
pub fn report(name: &'static str, history: &History, strict: bool) -> CheckReport {
    let mut report = CheckReport::new(name);
    let count = |outcome| history.txns.iter().filter(|txn| txn.outcome == outcome).count();
    report.fact("transactions", history.txns.len());
    report.fact("committed", count(Outcome::Committed));
    report.fact("aborted", count(Outcome::Aborted));
    report.fact("unknown", count(Outcome::Unknown));
    report.fact("history_operations", history.txns.iter().map(|txn| txn.ops.len()).sum::<usize>());
    let anomalies = check(history, Options { strict, per_class: PER_CLASS });
    for class in Class::ALL {
        let found = anomalies.iter().filter(|anomaly| anomaly.class == class).count();
        if found > 0 {
            report.fact(class.name(), found);
        }
    }
    let (notes, problems): (Vec<_>, Vec<_>) =
        anomalies.iter().partition(|anomaly| anomaly.class == Class::Strict);
    // A few are listed: the first of every class before the second of any.
    for round in 0..PER_CLASS {
        for class in Class::ALL {
            let of_class = problems.iter().filter(|problem| problem.class == class);
            of_class.skip(round).take(1).for_each(|problem| report.problem(problem));
        }
    }
    notes.iter().for_each(|note| report.note(note));
    if problems.is_empty() {
        report.conclude(format_args!("no anomaly in {} transactions", history.txns.len()));
    } else {
        report.conclude(format_args!("anomalies in {} transactions", history.txns.len()));
    }
    report
}

/// Judges a history in a file.
///
/// # Errors
/// If the file cannot be read.
pub fn of_file(path: &Path, strict: bool) -> anyhow::Result<CheckReport> {
    let name = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(name)?;
    let history = histories::jsonl::read(BufReader::new(file)).with_context(name)?;
    Ok(report("history", &history, strict))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Printable;
    use histories::{Isolation, Op, Txn};

    fn txn(id: u64, (invoked, completed): (u64, u64), ops: Vec<Op>) -> Txn {
        let (outcome, isolation) = (Outcome::Committed, Isolation::Serializable);
        Txn { id, process: 0, invoked, completed: Some(completed), outcome, isolation, ops }
    }

    #[test]
    fn a_good_history_has_no_anomaly() {
        let history = History { txns: vec![txn(1, (0, 1), vec![Op::Append { key: 1, value: 1 }])] };
        let report = report("append", &history, true);
        assert!(report.ok());
        assert!(report.table().contains("no anomaly in 1 transactions"), "{}", report.table());
    }

    #[test]
    fn anomalies_are_counted_and_listed_and_strict_ones_are_notes() {
        let read = |key, values: &[u64]| Op::ReadList { key, values: values.to_vec() };
        let mut txns = vec![
            txn(1, (0, 10), vec![Op::Append { key: 1, value: 1 }]),
            txn(2, (20, 30), vec![Op::Append { key: 2, value: 2 }]),
            txn(3, (5, 50), vec![read(1, &[]), read(2, &[2])]),
            txn(4, (60, 70), vec![read(1, &[1]), read(2, &[2])]),
        ];
        let strict = report("append", &History { txns: txns.clone() }, true);
        assert!(strict.ok() && strict.json()["strict"] == 1 && strict.table().contains("note: strict"));
        txns.push(txn(5, (80, 90), vec![read(1, &[])]));
        let stale = report("append", &History { txns }, false);
        assert!(!stale.ok() && stale.json()["real-time"] == 1, "{}", stale.table());
    }
}
