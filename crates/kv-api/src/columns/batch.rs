//! [`ColumnBatch`]: rows as columns.

use super::Kind;
use super::chunk::{Column, Values};
use super::reader::Value;
use bytes::Bytes;

/// The values of one column. Numbers are little-endian.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ColumnData {
    /// Values of a fixed width one after the other, or the bytes of all of them.
    #[prost(bytes = "bytes", tag = "1")]
    pub values: Bytes,
    /// For bytes: where each begins in `values`, and where the last one ends, as integers of four bytes.
    #[prost(bytes = "bytes", tag = "2")]
    pub offsets: Bytes,
    /// A bit for each row, the lowest first: whether it has a value. Empty if all have.
    #[prost(bytes = "bytes", tag = "3")]
    pub validity: Bytes,
}

/// Rows as columns.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ColumnBatch {
    /// How many rows there are; with an aggregation, how many groups.
    #[prost(uint64, tag = "1")]
    pub rows: u64,
    /// The columns that the program wants, in its order; with an aggregation, those of the groups and the partial results.
    #[prost(message, repeated, tag = "2")]
    pub columns: Vec<ColumnData>,
    /// Whether it ends before a row that the program cannot read.
    #[prost(bool, tag = "3")]
    pub unfit: bool,
    /// How many rows the program was run over, those that do not satisfy its conditions included.
    #[prost(uint64, tag = "4")]
    pub seen: u64,
    /// With an aggregation, how many rows the groups were made of.
    #[prost(uint64, tag = "5")]
    pub aggregated: u64,
}

impl ColumnData {
    /// Bytes of the column.
    pub fn bytes(&self) -> usize {
        self.values.len() + self.offsets.len() + self.validity.len()
    }
}

impl ColumnBatch {
    /// Bytes of all columns.
    pub fn bytes(&self) -> usize {
        self.columns.iter().map(ColumnData::bytes).sum()
    }
}

/// A column that grows.
#[derive(Debug)]
pub(super) struct Builder {
    kind: Kind,
    values: Vec<u8>,
    offsets: Vec<u8>,
    validity: Vec<u8>,
    rows: usize,
}

impl Builder {
    pub fn new(kind: Kind) -> Self {
        let offsets = if matches!(kind, Kind::Bytes | Kind::Trimmed) { vec![0; 4] } else { Vec::new() };
        Builder { kind, values: Vec::new(), offsets, validity: Vec::new(), rows: 0 }
    }

    /// Appends a value of the column's kind.
    #[inline]
    pub fn push(&mut self, value: &Value<'_>) {
        let is_null = matches!(value, Value::Null);
        if is_null || !self.validity.is_empty() {
            self.mark(!is_null);
        }
        let integer = if let Value::Integer(value) = value { *value } else { 0 };
        match self.kind {
            Kind::Bool => self.values.push(integer as u8),
            Kind::Int16 => self.values.extend_from_slice(&(integer as i16).to_le_bytes()),
            Kind::Int32 => self.values.extend_from_slice(&(integer as i32).to_le_bytes()),
            Kind::Int64 | Kind::Decimal => self.values.extend_from_slice(&integer.to_le_bytes()),
            Kind::WideDecimal => {
                let wide = if let Value::Wide(value) = value { *value } else { 0 };
                self.values.extend_from_slice(&wide.to_le_bytes());
            }
            Kind::Bytes | Kind::Trimmed => {
                if let Value::Bytes(bytes) = value {
                    self.values.extend_from_slice(bytes);
                }
                self.offsets.extend_from_slice(&(self.values.len() as u32).to_le_bytes());
            }
        }
        self.rows += 1;
    }

    /// Appends the values of the selected rows of a column of its kind.
    pub fn extend(&mut self, column: &Column<'_>, selected: &[u32]) {
        if !column.validity.is_empty() || !self.validity.is_empty() {
            for row in selected {
                self.mark(column.has_value(*row as usize));
                self.rows += 1;
            }
        } else {
            self.rows += selected.len();
        }
        match column.values {
            Values::One(values) => copy(values.as_chunks::<1>().0, selected, &mut self.values),
            Values::Two(values) => copy(values, selected, &mut self.values),
            Values::Four(values) => copy(values, selected, &mut self.values),
            Values::Eight(values) => copy(values, selected, &mut self.values),
            Values::Sixteen(values) => copy(values, selected, &mut self.values),
            Values::Bytes { .. } => {
                self.offsets.reserve(selected.len() * 4);
                for row in selected {
                    self.values.extend_from_slice(column.bytes(*row as usize));
                    self.offsets.extend_from_slice(&(self.values.len() as u32).to_le_bytes());
                }
            }
        }
    }

    /// Notes whether the next row has a value.
    fn mark(&mut self, has_value: bool) {
        if self.validity.is_empty() {
            // All rows before had one.
            self.validity.resize(self.rows / 8, 0xff);
            if !self.rows.is_multiple_of(8) {
                self.validity.push((1 << (self.rows % 8)) - 1);
            }
        }
        if self.rows.is_multiple_of(8) {
            self.validity.push(0);
        }
        if let Some(last) = self.validity.last_mut() {
            *last |= u8::from(has_value) << (self.rows % 8);
        }
    }

    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        self.values.len() + self.offsets.len()
    }

    /// The column, in no more memory than it needs.
    pub fn finish_to_keep(mut self) -> ColumnData {
        self.values.shrink_to_fit();
        self.offsets.shrink_to_fit();
        self.validity.shrink_to_fit();
        self.finish()
    }

    pub fn finish(self) -> ColumnData {
        ColumnData {
            values: self.values.into(),
            offsets: self.offsets.into(),
            validity: self.validity.into(),
        }
    }
}

/// Appends the selected ones of values of a width.
fn copy<const WIDTH: usize>(values: &[[u8; WIDTH]], selected: &[u32], to: &mut Vec<u8>) {
    if selected.len() == values.len() {
        return to.extend_from_slice(values.as_flattened());
    }
    to.reserve(selected.len() * WIDTH);
    for row in selected {
        to.extend_from_slice(values.get(*row as usize).unwrap_or(&[0; WIDTH]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nulls_are_bits_from_the_first_one_on() {
        let mut builder = Builder::new(Kind::Int16);
        for row in 0..20i64 {
            builder.push(&if row == 10 || row == 16 { Value::Null } else { Value::Integer(row) });
        }
        let column = builder.finish();
        assert_eq!(&column.validity[..], [0xff, 0b1111_1011, 0b1110]);
        assert_eq!((column.values.len(), &column.values[38..]), (40, &[19u8, 0][..]));
        let mut first = Builder::new(Kind::Bytes);
        first.push(&Value::Null);
        first.push(&Value::Bytes(b"ab"));
        let column = first.finish();
        assert_eq!((&column.validity[..], &column.values[..]), (&[2u8][..], &b"ab"[..]));
        assert_eq!(&column.offsets[..], [0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
    }
}
