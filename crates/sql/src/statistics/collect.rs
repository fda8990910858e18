//! [`Collector`]: makes statistics of the rows it is shown.

use super::{
    ColumnStatistics, Reservoir, SAMPLE_BYTES, SAMPLE_ROWS, Sketch, TARGET, TableStatistics, WIDEST_VALUE,
};
use crate::catalog::descriptor::{ColumnId, TableDescriptor};
use crate::exec::relation::{datum_bytes, row_bytes};
use rand::Rng;
use sql_types::{Datum, Type, compare, encoding};
use std::cmp::Ordering;

/// Values kept of all columns of a table together; it bounds the size of the record.
const MOST_VALUES: usize = 32 * TARGET;
/// Values kept of a column at least.
const LEAST_TARGET: usize = 8;
/// How much more common than the average a value must be to count as one of the most common.
const NOTABLE: f64 = 1.25;

/// A sample that has this share of the estimated distinct values has all of them: the estimate is no better.
const ALL_SEEN: f64 = 0.97;

/// What is counted of a column in every row.
struct Tally {
    column: ColumnId,
    ty: Type,
    nulls: u64,
    bytes: u64,
    /// `None` where values have no order.
    distinct: Option<Sketch>,
}

/// Columns that are looked at together, by position among the columns collected.
struct Group {
    columns: Vec<usize>,
    distinct: Sketch,
}

/// Makes statistics of the rows it is shown, in bounded memory.
pub struct Collector {
    tallies: Vec<Tally>,
    groups: Vec<Group>,
    sample: Reservoir<Box<[Datum]>>,
    sample_bytes: usize,
    rows: u64,
    bytes: u64,
}

impl Collector {
    /// Statistics of some columns of a table, and of the leading columns of its indexes as far as all of them are
    /// among those.
    pub fn new(table: &TableDescriptor, columns: &[ColumnId]) -> Self {
        let tally = |id: &ColumnId| {
            let ty = table.column(*id)?.ty.ty;
            let ordered = encoding::is_indexable(ty) || ty == Type::JSONB;
            Some(Tally { column: *id, ty, nulls: 0, bytes: 0, distinct: ordered.then(Sketch::default) })
        };
        let tallies: Vec<Tally> = columns.iter().filter_map(tally).collect();
        let mut groups: Vec<Group> = Vec::new();
        for index in table.indexes.iter().filter(|index| index.is_plain()) {
            for length in 2..=index.columns.len() {
                // All columns of a key are as many values as rows.
                if index.is_key() && length == index.columns.len() {
                    continue;
                }
                let wanted = index.columns.iter().take(length);
                let position =
                    |(id, _): &(ColumnId, bool)| tallies.iter().position(|tally| tally.column == *id);
                let Some(mut columns) = wanted.map(position).collect::<Option<Vec<usize>>>() else {
                    continue;
                };
                columns.sort_unstable();
                if groups.iter().all(|known| known.columns != columns) {
                    groups.push(Group { columns, distinct: Sketch::default() });
                }
            }
        }
        Collector { tallies, groups, sample: Reservoir::new(SAMPLE_ROWS), sample_bytes: 0, rows: 0, bytes: 0 }
    }

    /// Takes a row of the columns, which takes `bytes` where it is stored.
    pub fn add(&mut self, row: &[Datum], bytes: usize, random: &mut impl Rng) {
        self.rows += 1;
        self.bytes += bytes as u64;
        for (tally, value) in self.tallies.iter_mut().zip(row) {
            if value.is_null() {
                tally.nulls += 1;
                continue;
            }
            tally.bytes += width(value) as u64;
            if let Some(distinct) = &mut tally.distinct {
                distinct.add([value]);
            }
        }
        for group in &mut self.groups {
            group.distinct.add(group.columns.iter().filter_map(|at| row.get(*at)));
        }
        let mut taken = 0;
        let tallies = &self.tallies;
        let displaced = self.sample.offer(random, || {
            let kept: Box<[Datum]> =
                tallies.iter().zip(row).map(|(tally, value)| kept(value, tally.ty)).collect();
            taken = row_bytes(&kept);
            kept
        });
        self.sample_bytes += taken;
        self.sample_bytes -= displaced.map_or(0, |row| row_bytes(&row));
        while self.sample_bytes > SAMPLE_BYTES && self.sample.items().len() > 1 {
            let gone: usize = self.sample.halve(random).iter().map(|row| row_bytes(row)).sum();
            self.sample_bytes -= gone;
        }
    }

    /// The statistics. Their version and when they were made is for the caller to say.
    pub fn finish(self) -> TableStatistics {
        let target = (MOST_VALUES / self.tallies.len().max(1)).clamp(LEAST_TARGET, TARGET);
        let sample = self.sample.items();
        let mut columns: Vec<ColumnStatistics> = Vec::with_capacity(self.tallies.len());
        for (at, tally) in self.tallies.iter().enumerate() {
            let present = self.rows - tally.nulls;
            let distinct = tally.distinct.as_ref().map_or(0.0, Sketch::distinct).round();
            let mut column = ColumnStatistics {
                column: tally.column,
                ty: tally.ty,
                null_fraction: share(tally.nulls as f64, self.rows as f64),
                distinct: distinct.min(present as f64),
                width: share(tally.bytes as f64, present as f64),
                most_common: Vec::new(),
                histogram: Vec::new(),
            };
            if tally.distinct.is_some() {
                let values = sample.iter().filter_map(|row| row.get(at));
                let values: Vec<&Datum> = values.filter(|value| !value.is_null()).collect();
                let whole = values.len() as u64 == present;
                describe(&mut column, values, sample.len(), target, whole);
            }
            columns.push(column);
        }
        columns.sort_by_key(|column| column.column);
        let groups = self.groups.iter().map(|group| {
            let ids = group.columns.iter().filter_map(|at| self.tallies.get(*at)).map(|tally| tally.column);
            (ids.collect(), group.distinct.distinct().round().min(self.rows as f64))
        });
        TableStatistics {
            rows: self.rows as f64,
            bytes: self.bytes as f64,
            columns,
            groups: groups.collect(),
            ..TableStatistics::default()
        }
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// What a sample keeps of a value: NULL for one that is too wide. char(n) is kept without its padding, as it compares.
fn kept(value: &Datum, ty: Type) -> Datum {
    match value {
        Datum::Text(text) if ty == Type::BPCHAR => Datum::text(text.trim_end_matches(' ')),
        value if width(value) > WIDEST_VALUE => Datum::Null,
        value => value.clone(),
    }
}

/// Bytes of a value as `pg_stats.avg_width` counts them.
fn width(value: &Datum) -> usize {
    match value {
        Datum::Null => 0,
        Datum::Bool(_) => 1,
        Datum::Int2(_) => 2,
        Datum::Int4(_) | Datum::Float4(_) | Datum::Date(_) | Datum::Oid(_) | Datum::Enum(_) => 4,
        Datum::Int8(_) | Datum::Float8(_) | Datum::Time(_) | Datum::Timestamp(_) | Datum::Timestamptz(_) => 8,
        Datum::Numeric(_) => 8,
        Datum::Interval(_) | Datum::Uuid(_) => 16,
        Datum::Text(text) | Datum::Json(text) => text.len() + 1,
        Datum::Bytea(bytes) => bytes.len() + 1,
        other => datum_bytes(other),
    }
}

/// Finds the most common values of a column among those of a sample, and the histogram of the others. `whole`: the
/// sample has all values there are.
fn describe(
    column: &mut ColumnStatistics,
    mut values: Vec<&Datum>,
    sampled: usize,
    target: usize,
    whole: bool,
) {
    values.sort_by(|a, b| compare::compare(a, b));
    // Runs of equal values: the first one's position and how many.
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (at, value) in values.iter().enumerate() {
        match runs.last_mut() {
            Some((first, count)) if compare::compare(values[*first], value) == Ordering::Equal => *count += 1,
            _ => runs.push((at, 1)),
        }
    }
    if whole {
        column.distinct = runs.len() as f64;
    }
    let complete = runs.len() <= target && runs.len() as f64 >= ALL_SEEN * column.distinct;
    if complete {
        column.distinct = runs.len() as f64;
    }
    let average = share(values.len() as f64, column.distinct.max(runs.len() as f64));
    let mut common: Vec<(usize, usize)> = if complete {
        runs.clone()
    } else {
        let notable = |count: usize| count > 1 && count as f64 > NOTABLE * average;
        runs.iter().copied().filter(|(_, count)| notable(*count)).collect()
    };
    common.sort_by_key(|(first, count)| (std::cmp::Reverse(*count), *first));
    common.truncate(target);
    column.most_common = common
        .iter()
        .map(|(first, count)| (values[*first].clone(), share(*count as f64, sampled as f64)))
        .collect();
    let is_common = |run: &&(usize, usize)| common.iter().any(|(first, _)| *first == run.0);
    let rest: Vec<(usize, usize)> = runs.iter().filter(|run| !is_common(run)).copied().collect();
    if rest.len() < 2 {
        return;
    }
    let others: Vec<&Datum> =
        rest.iter().flat_map(|(first, count)| values[*first..*first + *count].iter().copied()).collect();
    let intervals = target.min(rest.len() - 1);
    let bound = |number: usize| others.get(number * (others.len() - 1) / intervals);
    column.histogram = (0..=intervals).filter_map(bound).map(|value| (*value).clone()).collect();
}
