//! What executors promise is what is found in their histories, and nothing else; what is made wrong is found.

use crate::executor::{Intents, KEYS, Mode, run};
use histories::{Class, History, Isolation, Op, Options, Outcome, Txn, check};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

fn transactions(most: usize) -> impl Strategy<Value = (Vec<Intents>, Vec<u8>, Vec<u8>)> {
    let intents = prop::collection::vec((0..KEYS, 0u8..4), 1..6);
    (
        prop::collection::vec(intents, 1..most),
        prop::collection::vec(any::<u8>(), 1..64),
        prop::collection::vec(any::<u8>(), most),
    )
}

fn found(history: &History) -> Vec<String> {
    check(history, Options::default()).iter().map(ToString::to_string).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn serial_histories_have_no_anomaly((intents, schedule, fates) in transactions(40)) {
        let history = run(Mode::Serial, &intents, &schedule, &fates);
        let anomalies = check(&history, Options { strict: true, ..Options::default() });
        prop_assert!(anomalies.is_empty(), "{anomalies:?}\n{history:?}");
    }

    #[test]
    fn histories_of_snapshots_have_write_skew_alone((intents, schedule, fates) in transactions(40)) {
        let history = run(Mode::Snapshot, &intents, &schedule, &fates);
        let anomalies = check(&history, Options::default());
        prop_assert!(anomalies.iter().all(|anomaly| anomaly.class == Class::G2Item), "{:?}\n{history:?}", found(&history));
    }

    /// Where everything was read in the end nothing is left open: there is an anomaly if and only if there is no order
    /// in which the transactions, one after the other, would have seen the same.
    #[test]
    fn what_no_serial_order_explains_has_an_anomaly_and_nothing_else((intents, schedule, _) in transactions(7)) {
        let lists_only = |intents: &Intents| intents.iter().map(|(key, what)| (key % 2, what % 2)).collect();
        let intents: Vec<Intents> = intents.iter().map(lists_only).collect();
        let history = run(Mode::Snapshot, &intents, &schedule, &[9; 7]);
        let txns: Vec<&Txn> = history.txns.iter().filter(|txn| txn.outcome == Outcome::Committed).collect();
        let is_explained = explains(&txns, &mut BTreeMap::new());
        prop_assert_eq!(found(&history).is_empty(), is_explained, "{:?}\n{:?}", found(&history), history);
    }

    #[test]
    fn committed_reads_are_enough_for_read_committed((intents, schedule, fates) in transactions(40)) {
        let history = run(Mode::ReadCommitted, &intents, &schedule, &fates);
        let anomalies = found(&history);
        prop_assert!(anomalies.is_empty(), "{anomalies:?}\n{history:?}");
    }

    #[test]
    fn what_is_made_wrong_is_found((intents, schedule, fates) in transactions(40), which in any::<usize>(), how in 0u8..5) {
        let mut history = run(Mode::Serial, &intents, &schedule, &fates);
        prop_assume!(spoil(&mut history, which, how));
        prop_assert!(!found(&history).is_empty(), "{history:?}");
    }
}

/// Whether some order of transactions explains what they read, from these lists on.
fn explains(txns: &[&Txn], lists: &mut BTreeMap<u64, Vec<u64>>) -> bool {
    txns.is_empty()
        || (0..txns.len()).any(|first| {
            let mut lists = lists.clone();
            let is_seen = txns[first].ops.iter().all(|op| match op {
                Op::Append { key, value } => {
                    lists.entry(*key).or_default().push(*value);
                    true
                }
                Op::ReadList { key, values } => lists.get(key).map_or(&[][..], Vec::as_slice) == values,
                Op::Write { .. } | Op::Read { .. } => true,
            });
            let others = txns.iter().enumerate().filter(|(other, _)| *other != first);
            is_seen && explains(&others.map(|(_, txn)| *txn).collect::<Vec<_>>(), &mut lists)
        })
}

/// Makes a serial history wrong. False if it has nothing to which that can be done.
fn spoil(history: &mut History, which: usize, how: u8) -> bool {
    let is_committed = |txn: &&mut Txn| txn.outcome == Outcome::Committed;
    if how == 0 {
        // What everybody saw was rolled back.
        let last = history.txns.last().cloned();
        let seen: Vec<u64> = last.iter().flat_map(|txn| txn.ops.iter().flat_map(list)).copied().collect();
        let mut writers = history
            .txns
            .iter_mut()
            .filter(is_committed)
            .filter(|txn| txn.ops.iter().filter_map(Op::written).any(|value| seen.contains(&value)));
        return writers.next().map(|txn| txn.outcome = Outcome::Aborted).is_some();
    }
    // What nobody acknowledged may be missing, and stand anywhere.
    let is_acknowledged: BTreeSet<u64> =
        history.txns.iter().filter(|txn| txn.outcome == Outcome::Committed).flat_map(written).collect();
    let txns = history.txns.iter_mut().filter(is_committed);
    let mut reads: Vec<&mut Vec<u64>> = txns.flat_map(|txn| &mut txn.ops).filter_map(list_mut).collect();
    reads.retain(|values| values.len() >= if how == 1 { 2 } else { 1 });
    match how {
        1 => reads.retain(|values| values[..2].iter().all(|value| is_acknowledged.contains(value))),
        2 => reads.retain(|values| values.last().is_some_and(|value| is_acknowledged.contains(value))),
        _ => {}
    }
    let count = reads.len().max(1);
    let Some(values) = reads.into_iter().nth(which % count) else { return false };
    match how {
        1 => values.swap(0, 1),
        2 => values.truncate(values.len() - 1),
        3 => values.push(values[0]),
        _ => values.push(1 << 40),
    }
    true
}

fn written(txn: &Txn) -> impl Iterator<Item = u64> {
    txn.ops.iter().filter_map(Op::written)
}

fn list(op: &Op) -> &[u64] {
    if let Op::ReadList { values, .. } = op { values } else { &[] }
}

fn list_mut(op: &mut Op) -> Option<&mut Vec<u64>> {
    if let Op::ReadList { values, .. } = op { Some(values) } else { None }
}

/// Snapshots do have write skew: the property above would hold for a checker that finds nothing.
#[test]
fn write_skew_is_found_in_histories_of_snapshots() {
    let skew: Intents = vec![(0, 0), (1, 0), (2, 2)];
    let (mut first, mut second) = (skew.clone(), skew);
    first.push((0, 1));
    second.push((1, 1));
    let history = run(Mode::Snapshot, &[first, second], &[0, 1], &[9, 9]);
    let classes: Vec<Class> =
        check(&history, Options::default()).iter().map(|anomaly| anomaly.class).collect();
    assert_eq!(classes, [Class::G2Item]);
}

/// A hundred thousand transactions over hot keys are a matter of seconds, with and without a cycle through all.
/// No time is asserted: run with `--nocapture` to see it.
#[test]
fn long_histories() {
    let mut history = History::default();
    let (mut lists, mut registers) = (vec![Vec::new(); 16], [None; 4]);
    for id in 0..100_000u64 {
        let (read, write) = ((id * 7 % 16) as usize, (id * 5 % 16) as usize);
        let generation = |key: usize| (id / 1600) * 16 + key as u64;
        if id % 1600 == 0 {
            lists.iter_mut().for_each(Vec::clear);
        }
        let ops = vec![
            Op::ReadList { key: generation(read), values: lists[read].clone() },
            Op::Append { key: generation(write), value: id },
            Op::Read { key: id % 4, value: registers[(id % 4) as usize] },
            Op::Write { key: id * 3 % 4, value: id },
        ];
        lists[write].push(id);
        registers[(id * 3 % 4) as usize] = Some(id);
        history.txns.push(Txn {
            id,
            process: (id % 8) as u32,
            invoked: id * 10,
            // Eight at a time.
            completed: Some(id * 10 + 75),
            outcome: Outcome::Committed,
            isolation: Isolation::Serializable,
            ops,
        });
    }
    let options = Options { strict: true, ..Options::default() };
    let start = Instant::now();
    assert_eq!(check(&history, options), []);
    println!("{} transactions: {:?}", history.txns.len(), start.elapsed());
    // Every sixteenth transaction did not see the last append: cycles everywhere, in large components.
    for txn in history.txns.iter_mut().step_by(16) {
        if let Some(Op::ReadList { values, .. }) = txn.ops.first_mut() {
            values.pop();
        }
    }
    let start = Instant::now();
    assert!(!check(&history, options).is_empty());
    println!("with anomalies: {:?}", start.elapsed());
}
