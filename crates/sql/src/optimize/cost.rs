//! What operators cost.
//!
//! The unit is a microsecond of processor time, of the SQL node and the KV node together, as it was measured on one
//! machine (the test `costs_are_measured` prints costs beside what the statements take); what matters is how the numbers
//! relate. Everything that compares plans takes its numbers from here.

use kv_api::columns::MAX_SOUGHT;

/// A batch of requests to the KV node and back, alone on its way.
pub const REQUEST: f64 = 40.0;
/// An entry of an index, or a row, read in key order: found, sent and decoded.
pub const ENTRY: f64 = 0.6;
/// A byte of it.
pub const BYTE: f64 = 0.003;
/// What it takes to have columns read instead of entries, once.
const COLUMNS: f64 = 100.0;
/// An entry of which KV nodes read columns the first time.
const COLUMN_ENTRY: f64 = 0.3;
/// The same of those beyond [`KEPT_FROM`]. As a rule somebody has read the columns of a large table before, and they are kept
/// in memory; those of a small one may be written to all the time.
const KEPT_COLUMN_ENTRY: f64 = 0.01;
/// Entries that KV nodes keep together.
const KEPT_FROM: f64 = 4_096.0;
/// A column of it.
const COLUMN: f64 = 0.003;
/// Asking whether a join would find a row, where rows are stored.
const SOUGHT: f64 = 0.02;
/// A row that is handed on as columns.
const COLUMN_ROW: f64 = 0.02;
/// What a condition costs there, compared with the row engine.
const VECTORIZED: f64 = 0.05;
/// Rows up to which the row engine takes them.
const VECTORIZED_FROM: f64 = 20_000.0;
/// The share of rows that a filter lets through though nothing becomes of them.
const LET_THROUGH: f64 = 0.02;
/// What a row costs the analytical engine, compared with the row engine.
const VECTORIZED_SHARE: f64 = 0.3;
/// A key looked up in a batch with others.
pub const KEY: f64 = 7.0;
/// The beginning of a span read in a batch with others.
pub const SPAN: f64 = 14.0;
/// An operator or function computed for a row.
pub const EXPRESSION: f64 = 0.08;
/// A row handed from one operator to the next.
pub const ROW: f64 = 0.1;
/// A row put into a hash table.
pub const HASH_BUILD: f64 = 0.5;
/// A row looked up in a hash table.
pub const HASH_PROBE: f64 = 0.25;
/// A row that a merge join compares and passes.
pub const MERGE: f64 = 0.3;
/// A pair of rows tried by a nested loop.
pub const PAIR: f64 = 0.15;
/// A comparison of two rows while sorting.
pub const COMPARE: f64 = 0.05;
/// A row changed: checks, index entries, and its share of the commit.
pub const CHANGE: f64 = 10.0;

/// Left rows whose look-ups travel together.
pub const LOOKUP_ROWS: f64 = 512.0;
/// Bytes of a row of which nothing is known, beside eight for each column.
const ROW_HEADER_BYTES: f64 = 20.0;

/// Reading entries of some bytes each in key order, the first request included.
pub fn scan(entries: f64, bytes: f64) -> f64 {
    REQUEST + entries * entry(bytes)
}

/// One such entry.
fn entry(bytes: f64) -> f64 {
    ENTRY + bytes * BYTE
}

/// The same where all columns that are wanted lie in the entries, so that they can be read as columns: KV nodes test
/// conditions of so much cost per row of the row engine, and the rows that satisfy them are handed on. Of a table that much is
/// written to, nothing is kept.
pub fn column_scan(entries: f64, rows: f64, columns: usize, filter: f64, is_written_to: bool) -> f64 {
    let kept = if is_written_to { 0.0 } else { (entries - KEPT_FROM).max(0.0) };
    let each = columns as f64 * COLUMN + filter * VECTORIZED;
    let found = (entries - kept) * COLUMN_ENTRY + kept * KEPT_COLUMN_ENTRY;
    REQUEST + COLUMNS + found + entries * each + rows * COLUMN_ROW
}

/// Fetching the rows that entries of a secondary index lead to: a batch of look-ups per page of entries.
pub fn fetch(rows: f64, bytes: f64) -> f64 {
    if rows <= 0.0 { 0.0 } else { REQUEST + rows * (KEY + bytes * BYTE) }
}

/// Reading by each of many left rows in turn, of which one alone would cost `one`: the requests travel together.
pub fn look_up(left_rows: f64, one: f64, requests: f64, by_key: bool) -> f64 {
    let batches = (left_rows / LOOKUP_ROWS).max(1.0) * requests;
    let each = (one - requests * REQUEST).max(0.0) + if by_key { 0.0 } else { SPAN };
    batches * REQUEST + left_rows * each
}

/// As many rows of the row engine as cost what so many do if the analytical engine, which takes many, takes them.
fn vectorized(rows: f64) -> f64 {
    rows.min(VECTORIZED_FROM) + (rows - VECTORIZED_FROM).max(0.0) * VECTORIZED_SHARE
}

/// A hash join beyond its inputs: `build` rows are kept. Of the `probe` rows nothing becomes of more than `found`: if the table
/// is small others are left out where they are stored ([`crate::exec::sought`]), most of them. That they can be is
/// taken for granted of many rows.
pub fn hash_join(probe: f64, found: f64, build: f64, out: f64) -> f64 {
    let found = found.min(probe);
    let is_filter = build <= MAX_SOUGHT as f64 && probe > VECTORIZED_FROM && found < probe;
    let (probed, sought) = match is_filter {
        true => (found + (probe - found) * LET_THROUGH, probe * SOUGHT),
        false => (probe, 0.0),
    };
    vectorized(build) * HASH_BUILD + sought + vectorized(probed) * HASH_PROBE + vectorized(out) * ROW
}

/// A merge join beyond its inputs, which come in order.
pub fn merge_join(left: f64, right: f64, out: f64) -> f64 {
    vectorized(left + right) * MERGE + vectorized(out) * ROW
}

/// A nested loop over kept rows beyond its inputs.
pub fn nested_loop(left: f64, right: f64, out: f64) -> f64 {
    left * right * PAIR + out * ROW
}

/// Sorting, of which at most `wanted` rows are kept.
pub fn sort(rows: f64, wanted: f64) -> f64 {
    rows * wanted.min(rows).max(2.0).log2() * COMPARE + rows * ROW
}

/// Grouping by hash, with so many expressions for keys and aggregates.
pub fn group(rows: f64, groups: f64, expressions: usize) -> f64 {
    vectorized(rows) * (HASH_PROBE + expressions as f64 * EXPRESSION) + vectorized(groups) * HASH_BUILD
}

/// Bytes of a row of so many columns if nothing is known of it.
pub fn unknown_row_bytes(columns: usize) -> f64 {
    ROW_HEADER_BYTES + 8.0 * columns as f64
}
