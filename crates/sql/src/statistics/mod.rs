//! Statistics of tables: what ANALYZE finds out, and what the optimizer estimates with.
//!
//! # How they are made
//!
//! [`gather`] reads all rows of a table once and shows them to a [`Collector`]. Rows, bytes, NULLs and
//! widths are counted. How many distinct values a column has, or an index's leading columns together, is
//! estimated by a [`Sketch`] of every row, with a standard error of 1.6 percent. The most common values and
//! the histogram come from a uniform sample of [`SAMPLE_ROWS`] rows ([`Reservoir`]): the share of rows that
//! satisfy a condition is off by less than 0.6 percentage points with a probability of 95 percent. Memory is
//! bounded whatever the table's size: the sample shrinks where rows are wide ([`SAMPLE_BYTES`]).
//!
//! # How they are kept
//!
//! One record per table ([`record`]) beside its descriptor, written in the transaction of ANALYZE. They are
//! not part of the schema: writing them changes neither the catalog's version nor the descriptor. On the node
//! they hang on the descriptor in a [`StatisticsCell`], undecoded until the first plan asks for them; a look-up
//! by a whole unique key never does. Their version moves with every ANALYZE, and a cached plan that was made
//! with other versions is made anew when it is next used. So it is when much is written to the table, or no longer ([`writes`]): then
//! the cell's revision moves, and the version stays.
//!
//! # When they are made
//!
//! By ANALYZE, and by the node itself once enough rows have changed ([`auto`]).
//!
//! # What is missing
//!
//! Statistics of expressions (of indexes on them), of array elements, of the correlation with the key's order,
//! and those that CREATE STATISTICS asks for. A second SQL node of the tenant sees new statistics when it
//! reads the catalog anew.

pub mod auto;
mod cell;
mod collect;
pub mod gather;
mod histogram;
pub mod record;
mod sample;
mod sketch;
pub mod writes;

pub use cell::StatisticsCell;
pub use collect::Collector;
pub use histogram::UNSEEN;
pub use sample::Reservoir;
pub use sketch::Sketch;

use crate::catalog::descriptor::{ColumnId, TableDescriptor};
use sql_types::{Datum, Type};

/// Values of a column that are kept as its most common ones, and intervals of its histogram, at most.
pub const TARGET: usize = 100;
/// Rows of the sample at most: what equi-depth histograms of [`TARGET`] intervals need so that no interval is
/// off by more than half its size (Chaudhuri, Motwani and Narasayya, SIGMOD 1998), and what PostgreSQL takes.
pub const SAMPLE_ROWS: usize = 300 * TARGET;
/// Estimated bytes of the sample at most.
pub const SAMPLE_BYTES: usize = 24 << 20;
/// Wider values are counted but not kept, in bytes.
pub const WIDEST_VALUE: usize = 128;

/// What is known of a table's contents.
#[derive(Clone, Debug, Default)]
pub struct TableStatistics {
    /// Counts the times they were made.
    pub version: u64,
    /// Rows.
    pub rows: f64,
    /// Bytes of the rows, keys included.
    pub bytes: f64,
    /// When ANALYZE last made them, in microseconds since 2000-01-01 UTC.
    pub analyzed: Option<i64>,
    /// When the node last made them by itself.
    pub auto_analyzed: Option<i64>,
    /// How often ANALYZE made them.
    pub analyze_count: u64,
    /// How often the node made them by itself.
    pub auto_analyze_count: u64,
    /// Of columns, by id, ascending.
    pub columns: Vec<ColumnStatistics>,
    /// How many distinct combinations of values columns have, two or more each.
    pub groups: Vec<(Vec<ColumnId>, f64)>,
}

/// What is known of a column's contents.
#[derive(Clone, Debug)]
pub struct ColumnStatistics {
    /// The column.
    pub column: ColumnId,
    /// Its type when they were made.
    pub ty: Type,
    /// Share of rows where it is NULL.
    pub null_fraction: f64,
    /// How many distinct values it has beside NULL.
    pub distinct: f64,
    /// Average bytes of a value that is not NULL.
    pub width: f64,
    /// The most common values with their shares of all rows, the most common first.
    pub most_common: Vec<(Datum, f64)>,
    /// Bounds of intervals with equally many of the remaining values, ascending: at least two, or none.
    pub histogram: Vec<Datum>,
}

impl TableStatistics {
    /// What is known of a column as it is now.
    pub fn column(&self, table: &TableDescriptor, id: ColumnId) -> Option<&ColumnStatistics> {
        let ty = table.column(id)?.ty.ty;
        let at = self.columns.binary_search_by_key(&id, |column| column.column).ok()?;
        self.columns.get(at).filter(|column| column.ty == ty)
    }

    /// How many distinct combinations of values some columns have, in whichever order they are given.
    pub fn group(&self, columns: &[ColumnId]) -> Option<f64> {
        let same = |known: &[ColumnId]| {
            known.len() == columns.len() && columns.iter().all(|column| known.contains(column))
        };
        self.groups.iter().find(|(known, _)| same(known)).map(|(_, distinct)| *distinct)
    }

    /// How many pages of 8 kB the rows would fill, as `pg_class.relpages` has it.
    pub fn pages(&self) -> i64 {
        (self.bytes / 8192.0).ceil() as i64
    }

    /// Takes over what is newer of some columns: rows and bytes, and everything about them.
    pub fn update(&mut self, newer: TableStatistics) {
        self.rows = newer.rows;
        self.bytes = newer.bytes;
        self.columns.retain(|old| newer.columns.iter().all(|new| new.column != old.column));
        self.columns.extend(newer.columns);
        self.columns.sort_by_key(|column| column.column);
        self.groups.retain(|(old, _)| newer.groups.iter().all(|(new, _)| new != old));
        self.groups.extend(newer.groups);
    }
}

#[cfg(test)]
mod tests;
