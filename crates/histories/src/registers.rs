//! Registers: what reads, writes after reads, and time say about the order of versions.
//!
//! Every value is one version. One version comes before another
//!
//! * if a transaction read the first and then wrote the second (Elle, section 5: traceable "writes follow reads");
//! * if time says so. All operations on a version make up its *zone*, between their earliest end and their
//!   latest beginning: if some operation on the first had ended before one on the second began, the first is
//!   older. This is how Gibbons and Korach check registers ("Testing shared memories", SIAM Journal on Computing
//!   26, 1997): if two versions are each older than the other, the register is not up to date.
//!
//! The empty version is the oldest. That gives part of the order; edges are made of neighbours in this part, so
//! other versions may lie between two neighbours. A path through them has the same meaning.

use crate::anomaly::Class;
use crate::graph::{Edge, Graph, Kind, Kinds};
use crate::history::{Object, Op};
use crate::index::Index;
use crate::report::Report;
use crate::time::{Interval, immediate};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How many `rw` edges are made of the reads of one version.
const EDGES_PER_VERSION: usize = 10_000;

pub(crate) fn check(index: &Index<'_>, graph: &mut Graph, report: &mut Report<'_>) {
    for (key, accesses) in accesses(index) {
        let mut register =
            Register { index, object: Object::Register(key), versions: vec![Version::default()] };
        register.add_versions(&accesses, report);
        let follows = register.writes_after_reads(&accesses);
        register.check_lost_updates(&follows, report);
        let is_timely = register.check_time(report);
        let order = register.order(follows.keys().copied().collect(), is_timely, report);
        register.add_edges(&order, &follows, graph);
    }
}

/// What committed transactions did to a register, in the order of each.
#[derive(Default)]
struct Accesses {
    /// Reads of what others wrote.
    reads: Vec<(usize, Option<u64>)>,
    /// The last write of each transaction.
    writes: Vec<(usize, u64)>,
}

fn accesses(index: &Index<'_>) -> BTreeMap<u64, Accesses> {
    let mut registers: BTreeMap<u64, Accesses> = BTreeMap::new();
    for (position, txn) in index.committed() {
        let mut written: BTreeMap<u64, u64> = BTreeMap::new();
        for op in &txn.ops {
            match op {
                Op::Write { key, value } => {
                    written.insert(*key, *value);
                }
                Op::Read { key, value } if !written.contains_key(key) => {
                    registers.entry(*key).or_default().reads.push((position, *value));
                }
                _ => {}
            }
        }
        for (key, value) in written {
            registers.entry(key).or_default().writes.push((position, value));
        }
    }
    registers
}

/// A version of a register. The first of each is the empty one.
#[derive(Default)]
struct Version {
    value: Option<u64>,
    writer: Option<usize>,
    readers: Vec<usize>,
}

struct Register<'i, 'h> {
    index: &'i Index<'h>,
    object: Object,
    versions: Vec<Version>,
}

/// Pairs of versions, the older first, with the transactions that say so.
type Follows = BTreeMap<(usize, usize), Vec<usize>>;

impl Register<'_, '_> {
    /// Sorts reads by what they saw, and judges each for itself.
    fn add_versions(&mut self, accesses: &Accesses, report: &mut Report<'_>) {
        let mut places = HashMap::from([(None, 0)]);
        for (txn, value) in &accesses.writes {
            places.insert(Some(*value), self.versions.len());
            self.versions.push(Version { value: Some(*value), writer: Some(*txn), readers: Vec::new() });
        }
        for (txn, value) in &accesses.reads {
            let version = places.get(value).map(|place| &mut self.versions[*place]);
            match (version.filter(|version| version.writer != Some(*txn)), value) {
                (Some(version), _) => version.readers.push(*txn),
                (None, Some(value)) => self.report_read(*txn, *value, report),
                (None, None) => {}
            }
        }
    }

    /// A read of what is no version.
    fn report_read(&self, reader: usize, value: u64, report: &mut Report<'_>) {
        let object = self.object;
        let Some(write) = self.index.writer(object, value) else {
            report.add(Class::Unwritten, &[reader], |names| {
                format!("{} read {value} in {object}, which nobody wrote", names.of(reader))
            });
            return;
        };
        if write.txn == reader {
            report.add(Class::Internal, &[reader], |names| {
                format!("{} read {value} and wrote it only later ({object})", names.of(reader))
            });
            return;
        }
        let is_undone = !self.index.is_committed(write.txn);
        let class = if is_undone { Class::G1a } else { Class::G1b };
        report.add(class, &[write.txn, reader], |names| {
            let (writer, reader) = (names.of(write.txn), names.of(reader));
            let end = if is_undone { "before it was undone" } else { "before it wrote something else" };
            format!("{reader} read {value} in {object}, which {writer} wrote {end}")
        });
    }

    /// Versions that transactions wrote after they had read others.
    fn writes_after_reads(&self, accesses: &Accesses) -> Follows {
        let written: HashMap<usize, usize> = self
            .versions
            .iter()
            .enumerate()
            .filter_map(|(place, version)| Some((version.writer?, place)))
            .collect();
        let mut follows = Follows::new();
        if accesses.writes.is_empty() {
            return follows;
        }
        for (before, version) in self.versions.iter().enumerate() {
            for reader in &version.readers {
                if let Some(after) = written.get(reader).filter(|after| **after != before) {
                    follows.entry((before, *after)).or_default().push(*reader);
                }
            }
        }
        follows
    }

    /// Two transactions that read one version and each wrote the next.
    fn check_lost_updates(&self, follows: &Follows, report: &mut Report<'_>) {
        let mut first: Option<(usize, usize)> = None;
        for ((before, _), by) in follows {
            let Some(txn) = by.first().copied().filter(|txn| self.index.is_serializable(*txn)) else {
                continue;
            };
            match first.filter(|(version, _)| version == before) {
                None => first = Some((*before, txn)),
                Some((_, other)) => report.add(Class::GSingle, &[other, txn], |names| {
                    let (first, second) = (names.of(other), names.of(txn));
                    let value = text(self.versions[*before].value);
                    format!(
                        "lost update: {first} and {second} both read {value} in {} and wrote to it",
                        self.object
                    )
                }),
            }
        }
    }

    /// When a transaction began and ended, counted from one: nothing but the empty version is as old as zero.
    fn times(&self, txn: usize) -> (u64, u64) {
        let ended = self.index.acknowledged(txn).unwrap_or(u64::MAX);
        (self.index.txn(txn).invoked.saturating_add(1), ended.saturating_add(1))
    }

    /// The zones of versions, of serializable transactions alone.
    fn zones(&self) -> Vec<Interval> {
        let mut zones = Vec::new();
        for (of, version) in self.versions.iter().enumerate() {
            // The empty version was there before anything began.
            let ended = if version.value.is_none() { 0 } else { u64::MAX };
            let mut zone = Interval { of, began: 0, ended };
            let writer = version.writer.iter().copied();
            for txn in
                writer.chain(version.readers.iter().copied()).filter(|txn| self.index.is_serializable(*txn))
            {
                let (began, ended) = self.times(txn);
                (zone.began, zone.ended) = (zone.began.max(began), zone.ended.min(ended));
            }
            zones.push(zone);
        }
        zones
    }

    /// Whether the register is up to date at any time.
    fn check_time(&self, report: &mut Report<'_>) -> bool {
        let is_early = self.report_early(report);
        let (mut forward, backward): (Vec<_>, Vec<_>) =
            self.zones().into_iter().partition(|zone| zone.ended < zone.began);
        forward.sort_by_key(|zone| zone.ended);
        let overlap = forward.windows(2).find_map(|pair| match pair {
            [first, second] if first.began > second.ended => Some((*first, *second)),
            _ => None,
        });
        let within = || {
            backward.iter().find_map(|inner| {
                let next = forward.partition_point(|outer| outer.ended < inner.began);
                let outer = forward.get(next.checked_sub(1)?)?;
                (outer.began > inner.ended).then_some((*outer, *inner))
            })
        };
        let Some((first, second)) = overlap.or_else(within) else { return !is_early };
        let txns: Vec<usize> = [first, second].iter().flat_map(|zone| self.witnesses(zone)).collect();
        report.add(Class::RealTime, &txns, |names| {
            let who: Vec<String> = txns.iter().map(|txn| names.of(*txn)).collect();
            let (a, b) = (text(self.versions[first.of].value), text(self.versions[second.of].value));
            format!("{} must have held {a} and {b} at once to answer {}", self.object, who.join(", "))
        });
        false
    }

    /// Reads that ended before what they saw was begun.
    fn report_early(&self, report: &mut Report<'_>) -> bool {
        let mut is_early = false;
        for version in &self.versions {
            let Some(writer) = version.writer.filter(|txn| self.index.is_serializable(*txn)) else {
                continue;
            };
            let began = self.index.txn(writer).invoked;
            for reader in &version.readers {
                let ended = self.index.acknowledged(*reader).unwrap_or(u64::MAX);
                if ended < began {
                    is_early = true;
                    report.add(Class::RealTime, &[*reader, writer], |names| {
                        let (reader, writer, value) = (names.of(*reader), names.of(writer), text(version.value));
                        format!("{reader} ended at {ended} and read {value} in {}, which {writer} wrote, which began at {began}", self.object)
                    });
                }
            }
        }
        is_early
    }

    /// The transactions that make a zone what it is.
    fn witnesses(&self, zone: &Interval) -> BTreeSet<usize> {
        let version = &self.versions[zone.of];
        let all = version.writer.iter().chain(&version.readers).copied();
        all.filter(|txn| self.index.is_serializable(*txn))
            .filter(|txn| {
                let (began, ended) = self.times(*txn);
                began == zone.began || ended == zone.ended
            })
            .collect()
    }

    /// Neighbouring versions, as far as is known. If what transactions read contradicts time, or itself, only what is
    /// certain is left.
    fn order(
        &self,
        follows: BTreeSet<(usize, usize)>,
        is_timely: bool,
        report: &mut Report<'_>,
    ) -> BTreeSet<(usize, usize)> {
        let mut order = follows;
        let by_reads = order.clone();
        let contradicts_itself = self.cycle(&order).is_some();
        if is_timely && !contradicts_itself {
            immediate(&self.zones(), |before, after| {
                order.insert((before, after));
            });
            if let Some(cycle) = self.cycle(&order) {
                let txns: Vec<usize> =
                    cycle.iter().filter_map(|version| self.versions[*version].writer).collect();
                report.add(Class::RealTime, &txns, |_| {
                    let values: Vec<_> =
                        cycle.iter().map(|version| text(self.versions[*version].value)).collect();
                    format!(
                        "the order in time of {} in {} contradicts what those who wrote them had read",
                        values.join(", "),
                        self.object
                    )
                });
                order = by_reads;
            }
        }
        if contradicts_itself {
            // The cycle is one of reads and writes, and will be found as such.
            return BTreeSet::new();
        }
        let with_older: BTreeSet<usize> = order.iter().map(|(_, after)| *after).collect();
        order.extend(
            (1..self.versions.len()).filter(|version| !with_older.contains(version)).map(|after| (0, after)),
        );
        order
    }

    /// Versions of which each would be older than the next, and the last than the first.
    fn cycle(&self, order: &BTreeSet<(usize, usize)>) -> Option<Vec<usize>> {
        let mut graph = Graph::default();
        for (from, to) in order {
            let (kind, object) = (Kind::Ww, Some(self.object));
            graph.add(Edge { from: *from, to: *to, kind, object, before: None, after: None });
        }
        graph.finish(self.versions.len()).components(Kinds::WRITES).0.into_iter().next()
    }

    fn add_edges(&self, order: &BTreeSet<(usize, usize)>, follows: &Follows, graph: &mut Graph) {
        let edge =
            |from, to, kind, before, after| Edge { from, to, kind, object: Some(self.object), before, after };
        for version in &self.versions {
            for (writer, reader) in
                version.writer.iter().flat_map(|writer| version.readers.iter().map(move |r| (*writer, *r)))
            {
                graph.add(edge(writer, reader, Kind::Wr, version.value, version.value));
            }
        }
        let mut room = vec![EDGES_PER_VERSION; self.versions.len()];
        for (before, after) in order {
            let (older, newer) = (&self.versions[*before], &self.versions[*after]);
            let Some(to) = newer.writer else { continue };
            if let Some(from) = older.writer {
                graph.add(edge(from, to, Kind::Ww, older.value, newer.value));
            }
            let contends = follows.contains_key(&(*before, *after));
            let readers = older.readers.iter().filter(|reader| self.index.is_serializable(**reader));
            for reader in readers.take(room[*before]) {
                // Two that read one version and wrote were reported as a lost update.
                let is_other = contends && self.wrote_after(*before, *reader, follows);
                if !is_other {
                    graph.add(edge(*reader, to, Kind::Rw, older.value, newer.value));
                }
            }
            room[*before] = room[*before].saturating_sub(older.readers.len());
        }
    }

    /// Whether a transaction that read a version also wrote one.
    fn wrote_after(&self, before: usize, reader: usize, follows: &Follows) -> bool {
        follows.range((before, 0)..=(before, usize::MAX)).any(|(_, by)| by.contains(&reader))
    }
}

fn text(value: Option<u64>) -> String {
    value.map_or("nothing".to_owned(), |value| value.to_string())
}
