//! `dormouse debug check-replicas`: whether the replicas of every range hold the same.

use crate::api::Api;
use crate::error::{Failure, Outcome};
use crate::output::{Format, line, print_json, progress_bar, rows, table};
use crate::ranges;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Ranges that are compared at a time.
const AT_A_TIME: usize = 8;

/// Columns of the table of findings, and the fields they show.
const COLUMNS: [(&str, &str); 7] = [
    ("RANGE", "range_id"),
    ("TENANT", "tenant"),
    ("NODE", "node"),
    ("RESULT", "result"),
    ("KEYS", "keys"),
    ("DIGEST", "digest"),
    ("PROBLEM", "problem"),
];

/// Arguments of `dormouse debug check-replicas`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Only the ranges of this tenant; system is where control keeps its records
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
}

/// What came of comparing one range.
enum Checked {
    /// Control's answer.
    Answer(Value),
    /// The range is gone since it was listed.
    Gone,
    /// It was not compared, for this reason.
    Failed(String),
}

/// What came of comparing all ranges.
#[derive(Debug, Default, PartialEq)]
struct Summary {
    /// Ranges whose replicas agree.
    agree: usize,
    /// Ranges whose replicas disagree.
    disagree: usize,
    /// Ranges of which not every replica answered; those that did agree.
    incomplete: usize,
    /// Ranges that were not compared.
    failed: usize,
    /// Ranges that were dropped meanwhile.
    gone: usize,
    /// All replicas of ranges that disagree, others that did not answer, and ranges that were not compared.
    findings: Vec<Value>,
}

/// Runs the command.
pub(crate) fn run(api: &Api, args: &CheckArgs, format: Format) -> Outcome {
    let ranges = ranges::list(api, args.tenant.as_deref(), None)?;
    let summary = summarize(&ranges, check_all(api, &ranges));
    match format {
        Format::Json => print_json(&summary.json())?,
        Format::Table => summary.print()?,
    }
    summary.outcome()
}

/// Compares ranges, some at a time; the results in the order of the ranges.
fn check_all(api: &Api, ranges: &[Value]) -> Vec<Checked> {
    let bar = progress_bar("comparing", ranges.len());
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(ranges.len()));
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME.min(ranges.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(range) = ranges.get(index) else { return };
                    let checked = check(api, range);
                    results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((index, checked));
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut results = results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, checked)| checked).collect()
}

fn check(api: &Api, range: &Value) -> Checked {
    let path = format!("/ranges/{}/check", range["id"]);
    match api.post_and_wait(&path, &json!({ "start": range["start"] })) {
        Ok(answer) => Checked::Answer(answer),
        Err(failure) if failure.is("unknown_range") => Checked::Gone,
        Err(failure) => Checked::Failed(failure.message().to_owned()),
    }
}

fn summarize(ranges: &[Value], results: Vec<Checked>) -> Summary {
    let mut summary = Summary::default();
    for (range, checked) in ranges.iter().zip(results) {
        match checked {
            Checked::Gone => summary.gone += 1,
            Checked::Failed(problem) => {
                summary.failed += 1;
                summary.findings.push(finding(range, &json!({ "result": "failed", "problem": problem })));
            }
            Checked::Answer(answer) => {
                match answer["result"].as_str() {
                    Some("agree") => summary.agree += 1,
                    Some("disagree") => summary.disagree += 1,
                    _ => summary.incomplete += 1,
                }
                // Where replicas disagree, all are told of: who is in the minority need not be wrong.
                let disagree = answer["result"] == "disagree";
                let replicas = answer["replicas"].as_array().into_iter().flatten();
                let worth_telling = replicas.filter(|replica| disagree || replica["result"] != "agrees");
                summary.findings.extend(worth_telling.map(|replica| finding(range, replica)));
            }
        }
    }
    summary
}

fn finding(range: &Value, replica: &Value) -> Value {
    json!({
        "range_id": range["id"],
        "tenant_id": range["tenant_id"],
        "tenant": range["tenant"],
        "node": replica["node"],
        "result": replica["result"],
        "keys": if replica["digest"].is_null() { &Value::Null } else { &replica["keys"] },
        "digest": replica["digest"],
        "timestamp": replica["timestamp"],
        "problem": replica["problem"],
    })
}

impl Summary {
    fn json(&self) -> Value {
        json!({
            "agree": self.agree,
            "disagree": self.disagree,
            "incomplete": self.incomplete,
            "failed": self.failed,
            "gone": self.gone,
            "findings": self.findings,
        })
    }

    fn print(&self) -> Outcome {
        if !self.findings.is_empty() {
            let fields = COLUMNS.map(|(_, field)| field);
            table(&COLUMNS.map(|(heading, _)| heading), rows(&self.findings, &fields))?;
        }
        let Self { agree, disagree, incomplete, failed, gone, .. } = self;
        line(format_args!(
            "ranges: {agree} agree, {disagree} disagree, {incomplete} incomplete, {failed} not compared, \
             {gone} dropped meanwhile"
        ))
    }

    /// A replica that does not answer is not wrong: who asks for a comparison while a node is down is told of
    /// it, and no more.
    fn outcome(&self) -> Outcome {
        let failure = |count: usize, what: &str| {
            Failure::new(format!("{what} {count} range{}", if count == 1 { "" } else { "s" }))
        };
        match (self.disagree, self.failed) {
            (0, 0) => Ok(()),
            (0, failed) => Err(failure(failed, "could not compare the replicas of")
                .hint("Are most of the KV nodes running? Try again in a moment.")),
            (disagree, _) => Err(failure(disagree, "replicas disagree in").hint(
                "Copy the data directories of all KV nodes before anything else: it is not known which replica \
                 is right.",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(result: &str, replicas: &[(&str, u64)]) -> Checked {
        let replica = |(result, node): &(&str, u64)| {
            let digest = (*result != "unanswered").then_some("ab");
            json!({ "node": node, "result": result, "digest": digest, "keys": 3, "problem": null })
        };
        let replicas: Vec<Value> = replicas.iter().map(replica).collect();
        Checked::Answer(json!({ "id": 1, "result": result, "replicas": replicas }))
    }

    fn summary(results: Vec<Checked>) -> Summary {
        let ranges: Vec<Value> = (1..=results.len())
            .map(|id| json!({ "id": id, "tenant_id": null, "tenant": "cluster" }))
            .collect();
        summarize(&ranges, results)
    }

    #[test]
    fn findings_name_what_is_wrong() {
        let summary = summary(vec![
            answer("agree", &[("agrees", 1), ("agrees", 2)]),
            answer("disagree", &[("agrees", 1), ("disagrees", 2)]),
            answer("incomplete", &[("unanswered", 3), ("agrees", 1)]),
            Checked::Gone,
            Checked::Failed("nobody is there".into()),
        ]);
        let found: Vec<_> = summary
            .findings
            .iter()
            .map(|found| (found["range_id"].as_u64().unwrap(), found["node"].as_u64(), &found["keys"]))
            .collect();
        let (three, null) = (json!(3), Value::Null);
        let disagree = [(2, Some(1), &three), (2, Some(2), &three)];
        assert_eq!(found, [&disagree[..], &[(3, Some(3), &null), (5, None, &null)]].concat());
        let counts = (summary.agree, summary.disagree, summary.incomplete, summary.failed, summary.gone);
        assert_eq!(counts, (1, 1, 1, 1, 1));
    }

    #[test]
    fn only_what_disagrees_or_was_not_compared_is_a_failure() {
        let agree = || answer("agree", &[("agrees", 1)]);
        assert!(summary(vec![]).outcome().is_ok());
        assert!(summary(vec![agree(), Checked::Gone]).outcome().is_ok());
        assert!(summary(vec![agree(), answer("incomplete", &[("unanswered", 3)])]).outcome().is_ok());
        let failed = summary(vec![agree(), Checked::Failed("x".into())]).outcome().unwrap_err();
        assert_eq!(failed.message(), "could not compare the replicas of 1 range");
        let results = vec![answer("disagree", &[]), answer("disagree", &[]), Checked::Failed("x".into())];
        let disagree = summary(results).outcome().unwrap_err();
        assert_eq!((disagree.message(), disagree.exit_code()), ("replicas disagree in 2 ranges", 1));
    }
}
