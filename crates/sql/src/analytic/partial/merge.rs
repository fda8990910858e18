//! [`Merge`]: what pages of groups become.

use super::super::columns;
use super::Misfit;
use crate::exec::hash_key::{KEY_OVERHEAD, KeyTable};
use crate::exec::relation::row_bytes;
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, Int64Type, Schema, SchemaRef};
use kv_api::columns::{ColumnBatch, Fold};
use sql_types::numeric::Numeric;
use sql_types::{ColumnType, Datum, Row, SqlError, compare};
use std::cmp::Ordering;
use std::sync::Arc;

/// What groups hold.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// Types of the columns grouped by, and the arrays they come as.
    pub groups: Vec<(ColumnType, DataType)>,
    /// How the partial results are merged, their types, and the arrays they come as.
    pub partials: Vec<(Fold, ColumnType, DataType)>,
    /// What becomes of them.
    pub outputs: Vec<Output>,
}

/// A result, made of merged partial results.
#[derive(Clone, Copy, Debug)]
pub(super) enum Output {
    /// A count.
    Count(usize),
    /// A sum as a bigint.
    Integer(usize),
    /// A sum with so many decimals.
    Numeric(usize, u16),
    /// A sum divided by a count.
    Average { sum: usize, count: usize, scale: u16 },
    /// A smallest or largest value.
    Extreme(usize),
}

/// Why there is no result.
#[derive(Debug)]
pub(super) enum Stop {
    /// The statement fails.
    Fail(SqlError),
    /// An engine shall compute it.
    GiveUp,
}

/// A merged partial result.
#[derive(Clone, Debug)]
enum State {
    Count(i64),
    Sum(Option<i128>),
    /// The value, and which ones replace it.
    Extreme(Datum, Ordering),
}

/// Groups merged so far.
pub(super) struct Merge<'l> {
    layout: &'l Layout,
    schema: SchemaRef,
    slots: Vec<Option<usize>>,
    keys: KeyTable,
    /// Of all groups one after the other.
    states: Vec<State>,
}

impl<'l> Merge<'l> {
    pub fn new(layout: &'l Layout) -> Self {
        let groups = layout.groups.iter().map(|(_, array)| array);
        let arrays = groups.chain(layout.partials.iter().map(|(_, _, array)| array));
        let fields: Vec<Field> = arrays.map(|array| Field::new("", array.clone(), true)).collect();
        let slots = (0..fields.len()).map(Some).collect();
        let schema = Arc::new(Schema::new(fields));
        Merge { layout, schema, slots, keys: KeyTable::new(), states: Vec::new() }
    }

    /// Takes a page of groups; returns the bytes it now holds more.
    pub fn add(&mut self, page: ColumnBatch) -> Result<usize, Misfit> {
        let batch = columns::from_columns(page, &self.slots, &self.schema)?;
        let (width, mut bytes) = (self.layout.groups.len(), 0);
        let mut key = Row::with_capacity(width);
        for index in 0..batch.num_rows() {
            key.clear();
            for (array, (ty, _)) in batch.columns().iter().zip(&self.layout.groups) {
                key.push(columns::value(array, index, *ty).ok_or(Misfit)?);
            }
            let (position, new) = self.keys.insert(&key, || key.clone());
            if new {
                self.add_group();
                bytes += row_bytes(&key) + KEY_OVERHEAD + self.layout.partials.len() * size_of::<State>();
            }
            bytes += self.merge(position, &batch, index)?;
        }
        Ok(bytes)
    }

    fn add_group(&mut self) {
        self.states.extend(self.layout.partials.iter().map(|(fold, ..)| match fold {
            Fold::CountRows | Fold::Count => State::Count(0),
            Fold::Sum => State::Sum(None),
            Fold::Least => State::Extreme(Datum::Null, Ordering::Less),
            Fold::Greatest => State::Extreme(Datum::Null, Ordering::Greater),
        }));
    }

    /// Merges the partial results of a row of a batch into those of a group.
    fn merge(&mut self, group: usize, batch: &RecordBatch, index: usize) -> Result<usize, Misfit> {
        let layout = self.layout;
        let first = group * layout.partials.len();
        let states = self.states.get_mut(first..first + layout.partials.len()).ok_or(Misfit)?;
        let arrays = batch.columns().iter().skip(layout.groups.len());
        let mut bytes = 0;
        for ((state, array), (_, ty, _)) in states.iter_mut().zip(arrays).zip(&layout.partials) {
            if array.is_null(index) {
                continue;
            }
            match state {
                State::Count(count) => {
                    let more = array.as_primitive_opt::<Int64Type>().ok_or(Misfit)?.value(index);
                    *count = count.checked_add(more).ok_or(Misfit)?;
                }
                State::Sum(sum) => {
                    let more = array.as_primitive_opt::<Decimal128Type>().ok_or(Misfit)?.value(index);
                    *sum = Some(sum.unwrap_or_default().checked_add(more).ok_or(Misfit)?);
                }
                State::Extreme(extreme, wanted) => {
                    let value = columns::value(array, index, *ty).ok_or(Misfit)?;
                    if extreme.is_null() || compare::compare(&value, extreme) == *wanted {
                        bytes += row_bytes(std::slice::from_ref(&value));
                        *extreme = value;
                    }
                }
            }
        }
        Ok(bytes)
    }

    /// The rows of the result.
    pub fn finish(mut self) -> Result<Vec<Row>, Stop> {
        let mut keys = std::mem::replace(&mut self.keys, KeyTable::new()).into_keys();
        // Without columns to group by there is one group, even over no rows.
        if keys.is_empty() && self.layout.groups.is_empty() {
            keys.push(Row::new());
            self.add_group();
        }
        let width = self.layout.partials.len();
        for (group, row) in keys.iter_mut().enumerate() {
            let states = self.states.get(group * width..(group + 1) * width).ok_or(Stop::GiveUp)?;
            row.reserve(self.layout.outputs.len());
            for output in &self.layout.outputs {
                row.push(output.value(states)?);
            }
        }
        Ok(keys)
    }
}

impl Output {
    fn value(self, states: &[State]) -> Result<Datum, Stop> {
        let state = |at: usize| states.get(at).ok_or(Stop::GiveUp);
        let sum = |at| if let State::Sum(sum) = state(at)? { Ok(*sum) } else { Err(Stop::GiveUp) };
        let count = |at| if let State::Count(count) = state(at)? { Ok(*count) } else { Err(Stop::GiveUp) };
        Ok(match self {
            Output::Count(at) => Datum::Int8(count(at)?),
            Output::Integer(at) => match sum(at)? {
                Some(sum) => Datum::Int8(i64::try_from(sum).map_err(|_| Stop::GiveUp)?),
                None => Datum::Null,
            },
            Output::Numeric(at, scale) => {
                sum(at)?.map_or(Datum::Null, |sum| Datum::Numeric(Numeric::new(sum, scale)))
            }
            Output::Average { sum: at, count: counted, scale } => match sum(at)? {
                Some(sum) => {
                    let count = Numeric::from(count(counted)?);
                    Datum::Numeric(Numeric::new(sum, scale).div(&count).map_err(Stop::Fail)?)
                }
                None => Datum::Null,
            },
            Output::Extreme(at) => match state(at)? {
                State::Extreme(value, _) => value.clone(),
                _ => return Err(Stop::GiveUp),
            },
        })
    }
}
