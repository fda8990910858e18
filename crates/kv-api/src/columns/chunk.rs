//! [`Chunk`]: rows as columns over which programs are run.
//!
//! Conditions are tested column by column: each leaves fewer rows, which are known by their positions. What remains is copied
//! column by column too, or folded row by row. It comes to what [`super::Reader::take`] does with the same rows.

use super::condition::Tests;
use super::reader::Value;
use super::{ColumnData, Kind, Program};
use bytes::Bytes;

/// What a wanted column is, apart from the program that wants it: columns that were read for one program serve another that
/// wants the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    from_key: bool,
    number: u32,
    kind: i32,
    scale: u32,
    missing: Bytes,
    /// Where the key's columns begin and what they are up to this one; nothing for those of the value.
    key: (u32, Vec<i32>),
}

impl Program {
    /// What its columns are.
    pub fn origins(&self) -> Vec<Origin> {
        let key =
            |number: u32| (self.prefix_len, self.key.iter().take(number as usize + 1).copied().collect());
        let origin = |wanted: &super::Wanted| Origin {
            from_key: wanted.from_key,
            number: wanted.number,
            kind: wanted.kind,
            scale: wanted.scale,
            missing: wanted.missing.clone(),
            key: if wanted.from_key { key(wanted.number) } else { Default::default() },
        };
        self.columns.iter().map(origin).collect()
    }
}

/// Rows as columns, with all that a program wants to know of them, whether they satisfy its conditions or not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chunk {
    /// How many rows there are.
    pub rows: usize,
    /// The columns, in the program's order.
    pub columns: Vec<ColumnData>,
}

impl Chunk {
    /// Bytes of all columns.
    pub fn bytes(&self) -> usize {
        self.columns.iter().map(ColumnData::bytes).sum()
    }
}

/// The values of a column, by their width.
#[derive(Clone, Copy, Debug)]
pub(super) enum Values<'a> {
    One(&'a [u8]),
    Two(&'a [[u8; 2]]),
    Four(&'a [[u8; 4]]),
    Eight(&'a [[u8; 8]]),
    Sixteen(&'a [[u8; 16]]),
    Bytes { offsets: &'a [[u8; 4]], bytes: &'a [u8] },
}

/// A column of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column<'a> {
    pub values: Values<'a>,
    /// Empty if all rows have a value.
    pub validity: &'a [u8],
}

impl<'a> Column<'a> {
    /// A column of so many rows of a kind; none if it is not one.
    pub fn of(data: &'a ColumnData, kind: Kind, rows: usize) -> Option<Self> {
        let values = match kind {
            Kind::Bool => Values::One(&data.values),
            Kind::Int16 => Values::Two(whole(&data.values)?),
            Kind::Int32 => Values::Four(whole(&data.values)?),
            Kind::Int64 | Kind::Decimal => Values::Eight(whole(&data.values)?),
            Kind::WideDecimal => Values::Sixteen(whole(&data.values)?),
            Kind::Bytes | Kind::Trimmed => {
                Values::Bytes { offsets: whole(&data.offsets)?, bytes: &data.values }
            }
        };
        let length = match values {
            Values::One(values) => values.len(),
            Values::Two(values) => values.len(),
            Values::Four(values) => values.len(),
            Values::Eight(values) => values.len(),
            Values::Sixteen(values) => values.len(),
            Values::Bytes { offsets, .. } => offsets.len().checked_sub(1)?,
        };
        let validity = &data.validity[..];
        let fits = length == rows && (validity.is_empty() || validity.len() == rows.div_ceil(8));
        fits.then_some(Column { values, validity })
    }

    /// Whether a row has a value.
    #[inline]
    pub fn has_value(&self, row: usize) -> bool {
        self.validity.is_empty() || self.validity.get(row / 8).is_some_and(|bits| bits >> (row % 8) & 1 == 1)
    }

    /// The value of a row.
    #[inline]
    pub fn value(&self, row: usize) -> Value<'a> {
        if !self.has_value(row) {
            return Value::Null;
        }
        let value = match self.values {
            Values::One(values) => values.get(row).map(|value| Value::Integer(i64::from(*value))),
            Values::Two(values) => {
                values.get(row).map(|value| Value::Integer(i16::from_le_bytes(*value).into()))
            }
            Values::Four(values) => {
                values.get(row).map(|value| Value::Integer(i32::from_le_bytes(*value).into()))
            }
            Values::Eight(values) => values.get(row).map(|value| Value::Integer(i64::from_le_bytes(*value))),
            Values::Sixteen(values) => values.get(row).map(|value| Value::Wide(i128::from_le_bytes(*value))),
            Values::Bytes { .. } => Some(Value::Bytes(self.bytes(row))),
        };
        value.unwrap_or(Value::Null)
    }

    /// The bytes of a row; empty where there are none.
    #[inline]
    pub fn bytes(&self, row: usize) -> &'a [u8] {
        let Values::Bytes { offsets, bytes } = self.values else { return &[] };
        let at = |row: usize| offsets.get(row).map(|offset| u32::from_le_bytes(*offset) as usize);
        at(row).zip(at(row + 1)).and_then(|(start, end)| bytes.get(start..end)).unwrap_or_default()
    }

    /// Keeps those of the selected rows whose value is an integer that passes.
    #[inline]
    pub fn retain_integers(&self, selected: &mut Vec<u32>, passes: impl Fn(i64) -> bool) {
        match self.values {
            Values::One(values) => {
                self.retain(selected, |row| values.get(row).is_some_and(|v| passes((*v).into())))
            }
            Values::Two(values) => self.retain(selected, |row| {
                values.get(row).is_some_and(|value| passes(i16::from_le_bytes(*value).into()))
            }),
            Values::Four(values) => self.retain(selected, |row| {
                values.get(row).is_some_and(|value| passes(i32::from_le_bytes(*value).into()))
            }),
            Values::Eight(values) => self.retain(selected, |row| {
                values.get(row).is_some_and(|value| passes(i64::from_le_bytes(*value)))
            }),
            Values::Sixteen(_) | Values::Bytes { .. } => selected.clear(),
        }
    }

    /// Keeps those of the selected rows whose value passes.
    #[inline]
    pub fn retain(&self, selected: &mut Vec<u32>, passes: impl Fn(usize) -> bool) {
        if self.validity.is_empty() {
            selected.retain(|row| passes(*row as usize));
        } else {
            selected.retain(|row| self.has_value(*row as usize) && passes(*row as usize));
        }
    }
}

fn whole<const WIDTH: usize>(bytes: &[u8]) -> Option<&[[u8; WIDTH]]> {
    match bytes.as_chunks() {
        (values, []) => Some(values),
        _ => None,
    }
}

/// The rows of a chunk that satisfy conditions.
pub(super) fn select(tests: &Tests, columns: &[Column<'_>], rows: usize, selected: &mut Vec<u32>) {
    selected.clear();
    selected.extend(0..u32::try_from(rows).unwrap_or(u32::MAX));
    tests.retain(columns, selected);
}

#[cfg(test)]
mod tests;
