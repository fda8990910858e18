//! Lists: what reads say about the order of appends.
//!
//! The longest read of a list is its *order*; every other must be a beginning of it. Appends that committed and
//! that nobody read come after all that was read.

use crate::anomaly::Class;
use crate::graph::{Edge, Graph, Kind};
use crate::history::{Object, Op};
use crate::index::Index;
use crate::report::{Report, excerpt};
use std::collections::{BTreeMap, HashMap, HashSet};

/// How many reads of one list that do not fit its order are looked at closely.
const STRANGE_READS: usize = 16;
/// How many edges are made of reads of the end of one list and appends to it that nobody read.
const UNSEEN_EDGES: usize = 10_000;

pub(crate) fn check(index: &Index<'_>, graph: &mut Graph, report: &mut Report<'_>) {
    for (key, accesses) in accesses(index) {
        let list = List::new(index, Object::List(key), accesses);
        list.check_values(report);
        list.check_reads(report);
        list.check_order_in_time(report);
        let lost = list.check_lost(report);
        list.check_stale(report);
        list.add_edges(&lost, graph);
    }
}

/// What committed transactions did to a list.
#[derive(Default)]
struct Accesses<'h> {
    reads: Vec<Read<'h>>,
    appends: Vec<Append>,
}

#[derive(Clone, Copy)]
struct Read<'h> {
    txn: usize,
    values: &'h [u64],
}

#[derive(Clone, Copy)]
struct Append {
    txn: usize,
    value: u64,
}

fn accesses<'h>(index: &Index<'h>) -> BTreeMap<u64, Accesses<'h>> {
    let mut lists: BTreeMap<u64, Accesses<'h>> = BTreeMap::new();
    for (position, txn) in index.committed() {
        for op in &txn.ops {
            match op {
                Op::Append { key, value } => {
                    lists.entry(*key).or_default().appends.push(Append { txn: position, value: *value });
                }
                Op::ReadList { key, values } => {
                    lists.entry(*key).or_default().reads.push(Read { txn: position, values });
                }
                Op::Write { .. } | Op::Read { .. } => {}
            }
        }
    }
    lists
}

/// A list, and the order of what was appended to it.
struct List<'i, 'h> {
    index: &'i Index<'h>,
    object: Object,
    accesses: Accesses<'h>,
    order: Read<'h>,
    /// Where each value of the order first stands.
    places: HashMap<u64, usize>,
    /// Who appended each value of the order; None if nobody did, or the transaction did not commit.
    writers: Vec<Option<usize>>,
}

impl<'i, 'h> List<'i, 'h> {
    fn new(index: &'i Index<'h>, object: Object, accesses: Accesses<'h>) -> Self {
        let empty = Read { txn: 0, values: &[] };
        let longer = |a: Read<'h>, b: &Read<'h>| if b.values.len() > a.values.len() { *b } else { a };
        let order = accesses.reads.iter().fold(empty, longer);
        let places = order.values.iter().enumerate().rev().map(|(place, value)| (*value, place)).collect();
        let committed = |txn: &usize| index.is_committed(*txn);
        let writer = |value: &u64| index.writer(object, *value).map(|write| write.txn).filter(committed);
        let writers = order.values.iter().map(writer).collect();
        List { index, object, accesses, order, places, writers }
    }

    fn fits(&self, read: &Read<'_>) -> bool {
        self.order.values.starts_with(read.values)
    }

    /// Reads that are no beginning of the order.
    fn strange(&self) -> impl Iterator<Item = &Read<'h>> {
        self.accesses.reads.iter().filter(|read| !self.fits(read)).take(STRANGE_READS)
    }

    /// What a read saw of others: transactions that append see their own values at the end.
    fn of_others(&self, read: &Read<'h>) -> &'h [u64] {
        let is_own =
            |value: &u64| self.index.writer(self.object, *value).is_some_and(|write| write.txn == read.txn);
        let own = read.values.iter().rev().take_while(|value| is_own(value)).count();
        read.values.get(..read.values.len() - own).unwrap_or_default()
    }

    /// The values themselves: each once, written by somebody, and by somebody who committed.
    fn check_values(&self, report: &mut Report<'_>) {
        let Some(longest) = self.accesses.reads.iter().find(|read| read.values == self.order.values) else {
            return;
        };
        self.check_values_of(longest, report);
        for read in self.strange() {
            let at = read.values.iter().zip(self.order.values).take_while(|(a, b)| a == b).count();
            report.add(Class::IncompatibleOrder, &[longest.txn, read.txn], |names| {
                let (first, second) = (names.of(longest.txn), names.of(read.txn));
                let (long, short) = (excerpt(self.order.values, at), excerpt(read.values, at));
                format!("{first} read {} as {long} and {second} as {short}", self.object)
            });
            self.check_values_of(read, report);
        }
    }

    fn check_values_of(&self, read: &Read<'h>, report: &mut Report<'_>) {
        let object = self.object;
        let mut seen = HashSet::new();
        let mut undone: Option<Append> = None;
        let mut last_of: HashMap<usize, (usize, u64)> = HashMap::new();
        for (place, value) in read.values.iter().enumerate() {
            if !seen.insert(*value) {
                report.add(Class::DuplicateAppend, &[read.txn], |names| {
                    let values = excerpt(read.values, place);
                    format!("{} read {object} with {value} in it twice: {values}", names.of(read.txn))
                });
            }
            let Some(write) = self.index.writer(object, *value) else {
                report.add(Class::Unwritten, &[read.txn], |names| {
                    format!("{} read {value} in {object}, which nobody wrote", names.of(read.txn))
                });
                continue;
            };
            let earlier = last_of.insert(write.txn, (write.place, *value));
            if let Some((_, earlier)) = earlier.filter(|(place, _)| *place > write.place) {
                report.add(Class::IncompatibleOrder, &[write.txn, read.txn], |names| {
                    let (writer, reader) = (names.of(write.txn), names.of(read.txn));
                    format!("{writer} appended {value} before {earlier} to {object}; {reader} read them the other way")
                });
            }
            if !self.index.is_committed(write.txn) {
                undone = Some(Append { txn: write.txn, value: *value });
                self.report_undone(write.txn, *value, read, report);
            } else if let Some(undone) = undone.take() {
                report.add(Class::DirtyUpdate, &[undone.txn, write.txn], |names| {
                    let (first, second, value) = (names.of(undone.txn), names.of(write.txn), *value);
                    format!(
                        "{second} appended {value} to {object} after {first} had appended {} and was undone",
                        undone.value
                    )
                });
            }
        }
    }

    /// Reports the first who read a value that was undone.
    fn report_undone(&self, writer: usize, value: u64, seen_by: &Read<'h>, report: &mut Report<'_>) {
        if report.is_full(Class::G1a) {
            return;
        }
        let reads = self.accesses.reads.iter().filter(|read| read.values.contains(&value));
        let reader = reads.map(|read| read.txn).next().unwrap_or(seen_by.txn);
        report.add(Class::G1a, &[writer, reader], |names| {
            let (writer, reader) = (names.of(writer), names.of(reader));
            format!("{reader} read {value} in {}, which {writer} appended before it was undone", self.object)
        });
    }

    /// Every read for itself: no values of half a transaction, none from the future.
    fn check_reads(&self, report: &mut Report<'_>) {
        let begins = self.latest_begins();
        for read in &self.accesses.reads {
            let others = self.of_others(read);
            let last =
                others.last().and_then(|value| Some((*value, self.index.writer(self.object, *value)?)));
            if let Some((value, write)) = last
                && write.txn != read.txn
                && !write.is_last
                && self.index.is_committed(write.txn)
            {
                report.add(Class::G1b, &[write.txn, read.txn], |names| {
                    let (writer, reader, object) = (names.of(write.txn), names.of(read.txn), self.object);
                    format!("{reader} read {object} up to {value} of {writer}, which appended more to it")
                });
            }
            let latest = others.len().checked_sub(1).and_then(|last| *begins.get(last)?);
            let ended = self.index.txn(read.txn).completed.unwrap_or(u64::MAX);
            if let Some((began, writer)) = latest.filter(|(began, _)| *began > ended && self.fits(read)) {
                report.add(Class::RealTime, &[read.txn, writer], |names| {
                    let (reader, writer, object) = (names.of(read.txn), names.of(writer), self.object);
                    format!("{reader} ended at {ended} and saw in {object} what {writer} appended, which began at {began}")
                });
            }
        }
    }

    /// For each place of the order the latest beginning up to there, and whose it is.
    fn latest_begins(&self) -> Vec<Option<(u64, usize)>> {
        let mut latest = None;
        let later = |writer: &Option<usize>| {
            let began = writer.filter(|txn| self.index.is_serializable(*txn));
            latest = latest.max(began.map(|txn| (self.index.txn(txn).invoked, txn)));
            latest
        };
        self.writers.iter().map(later).collect()
    }

    /// No append stands behind one that began after the first was acknowledged.
    fn check_order_in_time(&self, report: &mut Report<'_>) {
        let begins = self.latest_begins();
        for (writer, latest) in self.writers.iter().zip(begins) {
            let (Some(writer), Some((began, later))) = (*writer, latest) else { continue };
            let Some(ended) = self.index.acknowledged(writer) else { continue };
            if ended < began && self.index.is_serializable(writer) {
                report.add(Class::RealTime, &[writer, later], |names| {
                    let (first, second, object) = (names.of(writer), names.of(later), self.object);
                    format!("{first} was acknowledged at {ended}, before {second} began at {began}, but its append to {object} stands behind that of {second}")
                });
            }
        }
    }

    /// Appends that nobody saw, though somebody saw a later one of the same transaction; their values.
    fn lost_from_the_middle(&self, report: &mut Report<'_>) -> HashSet<u64> {
        let (mut lost, mut later) = (HashSet::new(), None::<Append>);
        for append in self.accesses.appends.iter().rev() {
            if self.places.contains_key(&append.value) {
                later = Some(*append);
            } else if let Some(later) = later.filter(|later| later.txn == append.txn) {
                lost.insert(append.value);
                report.add(Class::LostAppend, &[append.txn], |names| {
                    let (writer, object) = (names.of(append.txn), self.object);
                    format!(
                        "{writer} appended {} and {} to {object}; only the second was read",
                        append.value, later.value
                    )
                });
            }
        }
        lost
    }

    /// Acknowledged appends that are missing from what was read later; their values.
    fn check_lost(&self, report: &mut Report<'_>) -> HashSet<u64> {
        let serializable = self.accesses.reads.iter().filter(|read| self.index.is_serializable(read.txn));
        let latest = serializable.max_by_key(|read| self.index.txn(read.txn).invoked);
        let mut suspects: Vec<(Read<'h>, bool)> = latest.map(|latest| (*latest, true)).into_iter().collect();
        suspects.extend(
            self.strange().filter(|read| self.index.is_serializable(read.txn)).map(|read| (*read, false)),
        );
        let mut lost = self.lost_from_the_middle(report);
        for (read, is_latest) in suspects {
            let began = self.index.txn(read.txn).invoked;
            let strange: Option<HashSet<u64>> =
                (!self.fits(&read)).then(|| read.values.iter().copied().collect());
            for append in &self.accesses.appends {
                let is_missing = match &strange {
                    Some(values) => !values.contains(&append.value),
                    None => is_latest && !self.places.contains_key(&append.value),
                };
                let ended = self.index.acknowledged(append.txn).filter(|ended| *ended < began);
                if let Some(ended) = ended.filter(|_| is_missing)
                    && lost.insert(append.value)
                {
                    report.add(Class::LostAppend, &[append.txn, read.txn], |names| {
                        let (writer, reader, value) = (names.of(append.txn), names.of(read.txn), append.value);
                        format!(
                            "{writer} appended {value} to {} and was acknowledged at {ended}; {reader} began at {began} and read {}",
                            self.object,
                            excerpt(read.values, read.values.len())
                        )
                    });
                }
            }
        }
        lost
    }

    /// Reads that lack the end of what was acknowledged before they began.
    fn check_stale(&self, report: &mut Report<'_>) {
        let place = |append: &Append| {
            Some((self.index.acknowledged(append.txn)?, *self.places.get(&append.value)?, *append))
        };
        let mut acknowledged: Vec<_> = self.accesses.appends.iter().filter_map(place).collect();
        acknowledged.sort_by_key(|(ended, _, _)| *ended);
        let mut furthest: Option<(usize, Append)> = None;
        let furthest: Vec<(usize, Append)> = acknowledged
            .iter()
            .map(|(_, place, append)| {
                let before = furthest.filter(|(furthest, _)| furthest > place);
                *furthest.insert(before.unwrap_or((*place, *append)))
            })
            .collect();
        let fitting =
            self.accesses.reads.iter().filter(|read| self.index.is_serializable(read.txn) && self.fits(read));
        for read in fitting {
            let began = self.index.txn(read.txn).invoked;
            let count = acknowledged.partition_point(|(ended, _, _)| *ended < began);
            let Some((place, append)) = count.checked_sub(1).and_then(|last| furthest.get(last)) else {
                continue;
            };
            if *place >= read.values.len() {
                report.add(Class::RealTime, &[append.txn, read.txn], |names| {
                    let (writer, reader, value) = (names.of(append.txn), names.of(read.txn), append.value);
                    let values = excerpt(read.values, read.values.len());
                    format!("{writer} appended {value} to {} and was acknowledged before {reader} began, which read {values}", self.object)
                });
            }
        }
    }

    fn edge(&self, from: usize, to: usize, kind: Kind, before: Option<u64>, after: Option<u64>) -> Edge {
        Edge { from, to, kind, object: Some(self.object), before, after }
    }

    /// Values of the order whose transactions committed, with these and their places.
    fn versions(&self) -> Vec<(usize, u64, usize)> {
        let versions = self.order.values.iter().zip(&self.writers).enumerate();
        versions.filter_map(|(place, (value, writer))| Some((place, *value, (*writer)?))).collect()
    }

    fn add_edges(&self, lost: &HashSet<u64>, graph: &mut Graph) {
        let versions = self.versions();
        for pair in versions.windows(2) {
            if let [(_, before, from), (_, after, to)] = pair {
                graph.add(self.edge(*from, *to, Kind::Ww, Some(*before), Some(*after)));
            }
        }
        let is_unseen =
            |append: &&Append| !self.places.contains_key(&append.value) && !lost.contains(&append.value);
        let unseen: Vec<&Append> = self.accesses.appends.iter().filter(is_unseen).collect();
        if let Some((_, before, from)) = versions.last() {
            for append in &unseen {
                graph.add(self.edge(*from, append.txn, Kind::Ww, Some(*before), Some(append.value)));
            }
        }
        let mut room = UNSEEN_EDGES;
        for read in self.accesses.reads.iter().filter(|read| self.fits(read)) {
            let length = self.of_others(read).len();
            let next = versions.partition_point(|(place, _, _)| *place < length);
            let last = next.checked_sub(1).and_then(|last| versions.get(last));
            let before = last.map(|(_, value, _)| *value);
            if let Some((_, value, writer)) = last {
                graph.add(self.edge(*writer, read.txn, Kind::Wr, Some(*value), Some(*value)));
            }
            if !self.index.is_serializable(read.txn) {
                continue;
            }
            if let Some((_, after, writer)) = versions.get(next) {
                graph.add(self.edge(read.txn, *writer, Kind::Rw, before, Some(*after)));
                continue;
            }
            for append in unseen.iter().take(room) {
                graph.add(self.edge(read.txn, append.txn, Kind::Rw, before, Some(append.value)));
            }
            room = room.saturating_sub(unseen.len());
        }
    }
}
