//! [`Reader`]: a program that is run.

use super::batch::Builder;
use super::chunk::{self, Chunk};
use super::condition::Tests;
use super::fold::Folder;
use super::{ColumnBatch, KeyKind, Kind, MAX_COLUMNS, MAX_GROUPS, Program, Wanted};
use crate::encoding::{decode_bytes, decode_i64};
use crate::row::{self, Columns, tag};
use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

/// The first byte of a key column that is NULL.
const KEY_NULL: u8 = 0xff;

/// A program that makes no sense.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a program with {0}")]
pub struct BadProgram(pub(super) &'static str);

/// A row that a program cannot read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a row that the program cannot read")]
pub struct Unfit;

/// What became of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It was appended, or aggregated.
    Kept,
    /// It does not satisfy the conditions.
    Dropped,
}

/// A value of a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    Null,
    Integer(i64),
    Wide(i128),
    Bytes(&'a [u8]),
}

/// The wanted columns of a row. Reading one of usual width allocates nothing.
pub(super) type RowValues<'a> = SmallVec<[Value<'a>; 16]>;

/// Runs a program over rows.
#[derive(Debug)]
pub struct Reader {
    layout: Layout,
    tests: Tests,
    builders: Vec<Builder>,
    /// What becomes of rows instead of being appended.
    folder: Option<Folder>,
    /// The columns of a chunk that is gathered, and how many rows it has.
    gathered: (Vec<Builder>, usize),
    /// Rows of a chunk that satisfy the conditions.
    selected: Vec<u32>,
    rows: u64,
    seen: u64,
    /// Bytes of key columns whose form in the key is another.
    unescaped: Vec<u8>,
}

/// Where the columns lie.
#[derive(Debug)]
struct Layout {
    prefix_len: usize,
    key: Vec<KeyStep>,
    columns: Vec<Column>,
    /// By number in the value: position among the columns, plus one; 0 where it is not wanted.
    by_number: Vec<u16>,
    from_value: usize,
}

#[derive(Debug)]
struct KeyStep {
    kind: KeyKind,
    /// Position among the columns.
    column: Option<usize>,
}

#[derive(Debug)]
struct Column {
    kind: Kind,
    scale: u32,
    missing: Bytes,
}

impl Reader {
    /// Gets a program ready.
    ///
    /// # Errors
    /// If it makes no sense.
    pub fn new(program: &Program) -> Result<Self, BadProgram> {
        if program.columns.len() > MAX_COLUMNS || program.key.len() > MAX_COLUMNS {
            return Err(BadProgram("too many columns"));
        }
        let mut key = program
            .key
            .iter()
            .map(|kind| KeyKind::try_from(*kind).map(|kind| KeyStep { kind, column: None }))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| BadProgram("an unknown key column"))?;
        let (mut by_number, mut from_value) = (Vec::new(), 0);
        for (position, wanted) in program.columns.iter().enumerate() {
            let number = wanted.number as usize;
            if wanted.from_key {
                let step = key.get_mut(number).ok_or(BadProgram("a key column that it does not describe"))?;
                if step.column.replace(position).is_some() {
                    return Err(BadProgram("a key column twice"));
                }
                continue;
            }
            if number > usize::from(u16::MAX) {
                return Err(BadProgram("a column number that is too large"));
            }
            if by_number.len() <= number {
                by_number.resize(number + 1, 0);
            }
            if std::mem::replace(&mut by_number[number], position as u16 + 1) > 0 {
                return Err(BadProgram("a column twice"));
            }
            from_value += 1;
        }
        let column = |wanted: &Wanted| {
            let kind = Kind::try_from(wanted.kind).map_err(|_| BadProgram("an unknown kind"))?;
            Ok(Column { kind, scale: wanted.scale, missing: wanted.missing.clone() })
        };
        let columns = program.columns.iter().map(column).collect::<Result<Vec<_>, _>>()?;
        for column in &columns {
            column.missing_value().map_err(|Unfit| BadProgram("a missing value of another kind"))?;
        }
        let tests = Tests::new(&program.conditions, &program.choices, &program.columns)?;
        let aggregation = program.aggregation.as_ref();
        let folder = aggregation.map(|one| Folder::new(one, &program.columns)).transpose()?;
        let builders = match folder {
            Some(_) => Vec::new(),
            None => columns.iter().map(|column| Builder::new(column.kind)).collect(),
        };
        let prefix_len = program.prefix_len as usize;
        let layout = Layout { prefix_len, key, columns, by_number, from_value };
        Ok(Reader {
            layout,
            tests,
            builders,
            folder,
            gathered: Default::default(),
            selected: Vec::new(),
            rows: 0,
            seen: 0,
            unescaped: Vec::new(),
        })
    }

    /// Takes a row, given by its key behind the tenant's prefix and its value.
    ///
    /// # Errors
    /// If the program cannot read it. Nothing was appended then; with an aggregation, the batch will be empty.
    pub fn take(&mut self, key: &[u8], value: &[u8]) -> Result<Taken, Unfit> {
        let mut row = self.layout.read(key, value, &mut self.unescaped)?;
        self.seen += 1;
        if !self.tests.hold(&row) {
            return Ok(Taken::Dropped);
        }
        match &mut self.folder {
            Some(folder) => folder.take(&mut row)?,
            None => {
                for (builder, value) in self.builders.iter_mut().zip(&row) {
                    builder.push(value);
                }
            }
        }
        self.rows += 1;
        Ok(Taken::Kept)
    }

    /// Adds a row to a chunk that [`Reader::take_gathered`] returns. Nothing else becomes of it.
    ///
    /// # Errors
    /// If the program cannot read it. Nothing was added then.
    pub fn gather(&mut self, key: &[u8], value: &[u8]) -> Result<(), Unfit> {
        let row = self.layout.read(key, value, &mut self.unescaped)?;
        let (builders, rows) = &mut self.gathered;
        if builders.is_empty() {
            builders.extend(self.layout.columns.iter().map(|column| Builder::new(column.kind)));
        }
        builders.iter_mut().zip(&row).for_each(|(builder, value)| builder.push(value));
        *rows += 1;
        Ok(())
    }

    /// Rows and bytes of the chunk that is gathered.
    pub fn gathered(&self) -> (usize, usize) {
        (self.gathered.1, self.gathered.0.iter().map(Builder::bytes).sum())
    }

    /// The chunk that was gathered since the last one.
    pub fn take_gathered(&mut self) -> Chunk {
        let (builders, rows) = std::mem::take(&mut self.gathered);
        Chunk { rows, columns: builders.into_iter().map(Builder::finish_to_keep).collect() }
    }

    /// Takes all rows of a chunk, which has the columns that the program wants.
    ///
    /// # Errors
    /// If it has others, or if its rows cannot be aggregated; the batch will be empty then.
    pub fn take_chunk(&mut self, chunk: &Chunk) -> Result<(), Unfit> {
        if chunk.rows == 0 {
            return Ok(());
        }
        let columns = self.layout.columns.iter().zip(&chunk.columns);
        let columns: SmallVec<[chunk::Column<'_>; 16]> = columns
            .map(|(column, data)| chunk::Column::of(data, column.kind, chunk.rows).ok_or(Unfit))
            .collect::<Result<_, _>>()?;
        if columns.len() != self.layout.columns.len() {
            return Err(Unfit);
        }
        chunk::select(&self.tests, &columns, chunk.rows, &mut self.selected);
        self.seen += chunk.rows as u64;
        match &mut self.folder {
            Some(folder) => {
                for row in &self.selected {
                    let mut values: RowValues<'_> =
                        columns.iter().map(|column| column.value(*row as usize)).collect();
                    folder.take(&mut values)?;
                }
            }
            None => {
                for (builder, column) in self.builders.iter_mut().zip(&columns) {
                    builder.extend(column, &self.selected);
                }
            }
        }
        self.rows += self.selected.len() as u64;
        Ok(())
    }

    /// Rows kept so far, also if they were aggregated.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Rows taken so far, kept or dropped.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Bytes kept so far, about.
    pub fn bytes(&self) -> usize {
        match &self.folder {
            Some(folder) => folder.bytes(),
            None => self.builders.iter().map(Builder::bytes).sum(),
        }
    }

    /// Whether it has as many groups as a batch may have.
    pub fn is_full(&self) -> bool {
        self.folder.as_ref().is_some_and(Folder::is_full)
    }

    /// How many groups there may still be; none if there are no groups.
    pub fn groups_left(&self) -> Option<u64> {
        self.folder.as_ref().map(|folder| (MAX_GROUPS as u64).saturating_sub(folder.groups()))
    }

    /// What was kept. Of an aggregation that has met a row that the program cannot read, nothing.
    pub fn finish(self, unfit: bool) -> ColumnBatch {
        let (rows, columns, aggregated) = match self.folder {
            Some(_) if unfit => (0, Vec::new(), 0),
            Some(folder) => (folder.groups(), folder.finish(), self.rows),
            None => (self.rows, self.builders.into_iter().map(Builder::finish).collect(), 0),
        };
        ColumnBatch { rows, columns, unfit, seen: self.seen, aggregated }
    }
}

impl Layout {
    fn read<'a>(
        &'a self,
        key: &'a [u8],
        value: &'a [u8],
        unescaped: &'a mut Vec<u8>,
    ) -> Result<RowValues<'a>, Unfit> {
        let mut row: RowValues<'a> = smallvec![Value::Null; self.columns.len()];
        for (slot, column) in row.iter_mut().zip(&self.columns) {
            if !column.missing.is_empty() {
                *slot = column.missing_value()?;
            }
        }
        self.read_key(key, &mut row, unescaped)?;
        let mut left = self.from_value;
        if left == 0 {
            return Ok(row);
        }
        let mut columns = Columns::of(value).ok_or(Unfit)?;
        while left > 0
            && let Some((number, found)) = columns.next_column().ok_or(Unfit)?
        {
            let Some(position) = self.by_number.get(number).and_then(|at| usize::from(*at).checked_sub(1))
            else {
                continue;
            };
            left -= 1;
            if let (Some(slot), Some(column)) = (row.get_mut(position), self.columns.get(position)) {
                *slot = match found {
                    Some(mut bytes) => column.value(&mut bytes)?,
                    None => Value::Null,
                };
            }
        }
        Ok(row)
    }

    /// Reads the wanted columns of the key.
    fn read_key<'a>(
        &'a self,
        key: &'a [u8],
        row: &mut RowValues<'a>,
        unescaped: &'a mut Vec<u8>,
    ) -> Result<(), Unfit> {
        let mut rest = key.get(self.prefix_len..).ok_or(Unfit)?;
        unescaped.clear();
        let mut decoded: SmallVec<[(usize, usize, usize); 4]> = SmallVec::new();
        for step in &self.key {
            let found = take_key(step.kind, &mut rest).ok_or(Unfit)?;
            let Some(position) = step.column else { continue };
            let found = match found {
                KeyValue::Plain(value) => value,
                KeyValue::Escaped(mut bytes) => {
                    let start = unescaped.len();
                    unescaped.extend_from_slice(&decode_bytes(&mut bytes).ok_or(Unfit)?);
                    decoded.push((position, start, unescaped.len()));
                    continue;
                }
            };
            if let (Some(slot), Some(column)) = (row.get_mut(position), self.columns.get(position)) {
                *slot = column.fitting(found)?;
            }
        }
        let unescaped: &'a [u8] = unescaped;
        for (position, start, end) in decoded {
            let bytes = unescaped.get(start..end).ok_or(Unfit)?;
            if let (Some(slot), Some(column)) = (row.get_mut(position), self.columns.get(position)) {
                *slot = column.fitting(Value::Bytes(bytes))?;
            }
        }
        Ok(())
    }
}

/// What lies in a key.
enum KeyValue<'a> {
    Plain(Value<'a>),
    /// Bytes with zeros among them, as they are in the key.
    Escaped(&'a [u8]),
}

/// Takes a key column off the front of `input`.
#[inline]
fn take_key<'a>(kind: KeyKind, input: &mut &'a [u8]) -> Option<KeyValue<'a>> {
    if input.first() == Some(&KEY_NULL) {
        *input = &input[1..];
        return Some(KeyValue::Plain(Value::Null));
    }
    if kind == KeyKind::Integer {
        return decode_i64(input).map(|value| KeyValue::Plain(Value::Integer(value)));
    }
    // The end is the first zero byte that none follows as part of the value.
    let all = *input;
    let first_zero = all.iter().position(|byte| *byte == 0)?;
    let end = (first_zero..all.len()).find(|at| all[*at] == 0 && all.get(at + 1) == Some(&0x01))?;
    *input = &all[end + 2..];
    Some(match end == first_zero {
        true => KeyValue::Plain(Value::Bytes(&all[..end])),
        false => KeyValue::Escaped(&all[..end + 2]),
    })
}

impl Column {
    fn missing_value(&self) -> Result<Value<'_>, Unfit> {
        if self.missing.is_empty() { Ok(Value::Null) } else { self.value(&mut &self.missing[..]) }
    }

    /// Takes a value off the front of `input`.
    #[inline]
    fn value<'a>(&self, input: &mut &'a [u8]) -> Result<Value<'a>, Unfit> {
        let (tag, payload) = row::take_payload(input).ok_or(Unfit)?;
        self.fitting(match tag {
            tag::NULL => Value::Null,
            tag::FALSE => Value::Integer(0),
            tag::TRUE => Value::Integer(1),
            tag::INTEGER => Value::Integer(row::integer(payload)),
            tag::BYTES => Value::Bytes(payload),
            tag::NUMERIC => {
                let (scale, digits) = payload.split_first_chunk::<2>().ok_or(Unfit)?;
                if u32::from(u16::from_be_bytes(*scale)) != self.scale {
                    return Err(Unfit);
                }
                match self.kind {
                    Kind::Decimal if digits.len() <= 8 => return Ok(Value::Integer(row::integer(digits))),
                    Kind::WideDecimal => return Ok(Value::Wide(row::wide_integer(digits))),
                    _ => return Err(Unfit),
                }
            }
            _ => return Err(Unfit),
        })
    }

    /// A value, if it is one of the column's kind.
    #[inline]
    fn fitting<'a>(&self, value: Value<'a>) -> Result<Value<'a>, Unfit> {
        match (self.kind, value) {
            (_, Value::Null) => Ok(Value::Null),
            (Kind::Bool, Value::Integer(value @ 0..=1)) => Ok(Value::Integer(value)),
            (Kind::Int16, Value::Integer(value)) if i16::try_from(value).is_ok() => Ok(Value::Integer(value)),
            (Kind::Int32, Value::Integer(value)) if i32::try_from(value).is_ok() => Ok(Value::Integer(value)),
            (Kind::Int64, Value::Integer(value)) => Ok(Value::Integer(value)),
            (Kind::Bytes, Value::Bytes(bytes)) => Ok(Value::Bytes(bytes)),
            (Kind::Trimmed, Value::Bytes(bytes)) => Ok(Value::Bytes(trimmed(bytes))),
            _ => Err(Unfit),
        }
    }
}

fn trimmed(bytes: &[u8]) -> &[u8] {
    let kept = bytes.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    &bytes[..kept]
}

#[cfg(test)]
mod tests;
