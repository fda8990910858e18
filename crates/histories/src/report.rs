//! What was found so far.

use crate::anomaly::{Anomaly, Class};
use crate::history::History;
use std::collections::BTreeMap;

/// Collects anomalies, a bounded number of each class.
pub(crate) struct Report<'h> {
    history: &'h History,
    per_class: usize,
    found: BTreeMap<Class, Vec<Anomaly>>,
}

impl<'h> Report<'h> {
    pub(crate) fn new(history: &'h History, per_class: usize) -> Self {
        Report { history, per_class, found: BTreeMap::new() }
    }

    /// Whether more of a class is of no use.
    pub(crate) fn is_full(&self, class: Class) -> bool {
        self.found.get(&class).map_or(0, Vec::len) >= self.per_class
    }

    /// Adds an anomaly. `txns` are positions in the history; the explanation is only made if there is room.
    pub(crate) fn add(&mut self, class: Class, txns: &[usize], explain: impl FnOnce(&Names<'_>) -> String) {
        if self.is_full(class) {
            return;
        }
        let names = Names(self.history);
        let anomaly = Anomaly {
            class,
            txns: txns.iter().map(|txn| names.id(*txn)).collect(),
            explanation: explain(&names),
        };
        self.found.entry(class).or_default().push(anomaly);
    }

    pub(crate) fn finish(self) -> Vec<Anomaly> {
        self.found.into_values().flatten().collect()
    }
}

/// The names of transactions.
pub(crate) struct Names<'h>(&'h History);

impl Names<'_> {
    fn id(&self, txn: usize) -> u64 {
        self.0.txns.get(txn).map_or(u64::MAX, |txn| txn.id)
    }

    /// What a report calls a transaction.
    pub(crate) fn of(&self, txn: usize) -> String {
        format!("T{}", self.id(txn))
    }
}

/// The values at and around a position, for a report: lists may be long.
pub(crate) fn excerpt(values: &[u64], at: usize) -> String {
    const AROUND: usize = 6;
    let from = at.saturating_sub(AROUND).min(values.len());
    let to = at.saturating_add(AROUND).min(values.len());
    let shown: Vec<String> = values.iter().take(to).skip(from).map(u64::to_string).collect();
    let (before, after) = (if from > 0 { "…, " } else { "" }, if to < values.len() { ", …" } else { "" });
    format!("[{before}{}{after}]", shown.join(", "))
}
