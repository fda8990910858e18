//! GROUP BY and aggregates, by hashing.

use super::accumulate::Accumulation;
use super::hash_key::{KEY_OVERHEAD, KeyTable};
use super::operator::{BATCH_ROWS, Batch, BoxOperator, Operator};
use super::partition::{KeyedInput, Partitions};
use super::relation::row_bytes;
use super::scope::Scope;
use super::sought::Sought;
use super::{ExecContext, Reservation};
use crate::plan::{AggregateCall, Expr, PlanColumn};
use async_trait::async_trait;
use sql_types::{Datum, Row, SqlResult, Type};
use std::sync::Arc;

/// Estimated bytes of one accumulator.
const ACCUMULATOR_BYTES: usize = 96;

/// Bytes that groups may take beyond the statement's memory once it is full: they are few, and what they take grows with
/// the rows that belong to them.
const MAX_OWED_BYTES: usize = 1 << 20;

/// The groups of one grouping set.
#[derive(Default)]
struct Groups {
    keys: KeyTable,
    states: Vec<Vec<Accumulation>>,
    /// Where the rows of other groups go, once memory is full.
    unknown: Option<Partitions>,
}

/// Rows whose groups are still to be computed.
struct Work<'p> {
    input: KeyedInput<'p>,
    /// Of which grouping sets.
    sets: std::ops::Range<usize>,
    /// How often the rows were divided.
    level: u32,
}

/// Groups, one after the other in memory. When that is full, rows of groups it does not know go to files by their groups,
/// and when all rows were read each file is taken by itself.
pub(crate) struct Aggregate<'p> {
    groups: &'p [Expr],
    sets: &'p [Vec<usize>],
    aggregates: &'p [AggregateCall],
    scope: Scope<'p>,
    /// Types of groups and rows.
    types: Arc<[Type]>,
    work: Vec<Work<'p>>,
    results: std::vec::IntoIter<Row>,
    memory: Reservation,
}

impl<'p> Aggregate<'p> {
    pub fn new(
        input: BoxOperator<'p>,
        columns: &[PlanColumn],
        groups: &'p [Expr],
        sets: &'p [Vec<usize>],
        aggregates: &'p [AggregateCall],
        scope: &Scope<'p>,
    ) -> Self {
        let columns = columns.iter().map(|column| column.ty.ty);
        let input = KeyedInput::Computed { input, keys: groups.iter().collect() };
        Aggregate {
            groups,
            sets,
            aggregates,
            scope: scope.clone(),
            types: groups.iter().map(Expr::ty).chain(columns).collect(),
            work: vec![Work { input, sets: 0..sets.len(), level: 0 }],
            results: Vec::new().into_iter(),
            memory: Reservation::default(),
        }
    }

    fn fresh(&self) -> Vec<Accumulation> {
        self.aggregates.iter().map(Accumulation::new).collect()
    }

    /// The key of a row within a set: the values of all group expressions, NULL outside of the set.
    fn key_in(&self, set: &[usize], values: &[Datum], key: &mut Row) {
        key.clear();
        key.resize(values.len(), Datum::Null);
        for position in set {
            if let (Some(slot), Some(value)) = (key.get_mut(*position), values.get(*position)) {
                *slot = value.clone();
            }
        }
    }

    /// Takes rows in; returns the bytes they take.
    fn add(
        &self,
        batch: Batch,
        work: &Work<'p>,
        tables: &mut [Groups],
        cx: &ExecContext<'_>,
    ) -> SqlResult<usize> {
        let env = self.scope.env(cx);
        let sets = &self.sets[work.sets.clone()];
        // What was written to a file is of one set, and the values of others are NULL there.
        let whole = work.level > 0 || sets.len() == 1 && sets[0].len() == self.groups.len();
        let (mut values, mut key) = (Row::new(), Row::new());
        let mut bytes = 0;
        for mut row in batch {
            work.input.split(&mut row, &mut values, &env)?;
            for (table, set) in tables.iter_mut().zip(sets) {
                let key = if whole {
                    &values
                } else {
                    self.key_in(set, &values, &mut key);
                    &key
                };
                let position = match &mut table.unknown {
                    None => {
                        let (position, new) = table.keys.insert(key, || key.clone());
                        if new {
                            table.states.push(self.fresh());
                            bytes +=
                                row_bytes(key) + KEY_OVERHEAD + ACCUMULATOR_BYTES * self.aggregates.len();
                        }
                        position
                    }
                    Some(unknown) => match table.keys.find(key) {
                        Some(position) => position,
                        None => {
                            unknown.add(key, key.iter().chain(&row))?;
                            continue;
                        }
                    },
                };
                for (state, call) in table.states[position].iter_mut().zip(self.aggregates) {
                    bytes += state.add(call, &row, &env)?;
                }
            }
        }
        Ok(bytes)
    }

    async fn compute(&mut self, mut work: Work<'p>, cx: &ExecContext<'_>) -> SqlResult<Vec<Row>> {
        let mut tables: Vec<Groups> = work.sets.clone().map(|_| Groups::default()).collect();
        let mut owed = 0;
        while let Some(batch) = work.input.next(cx).await? {
            owed += self.add(batch, &work, &mut tables, cx)?;
            match self.memory.grow(cx.memory, owed) {
                Ok(()) => owed = 0,
                Err(full) if tables.iter().all(|table| table.unknown.is_none()) => {
                    for table in &mut tables {
                        let types = self.types.iter().copied();
                        table.unknown = Some(Partitions::begin(cx, types, work.level, full.clone())?);
                    }
                }
                // Groups that are known may still grow, though not without bound.
                Err(full) if owed > MAX_OWED_BYTES => return Err(full),
                Err(_) => {}
            }
            cx.pause().await?;
        }
        for (table, set) in tables.iter_mut().zip(&self.sets[work.sets.clone()]) {
            // A set without expressions is one group, even over no rows.
            if work.level == 0 && set.is_empty() && table.states.is_empty() {
                let key = vec![Datum::Null; self.groups.len()];
                table.keys.insert(&key, || key.clone());
                table.states.push(self.fresh());
            }
        }
        for (table, set) in tables.iter_mut().zip(work.sets.clone()) {
            let files = table.unknown.take().map(Partitions::finish).transpose()?.unwrap_or_default();
            let files = files.into_iter().filter(|file| !file.is_empty());
            self.work.extend(files.map(|file| Work {
                input: KeyedInput::spilled(file, &self.types, self.groups.len()),
                sets: set..set + 1,
                level: work.level + 1,
            }));
        }
        self.results(tables, &self.sets[work.sets], cx)
    }

    fn results(&self, tables: Vec<Groups>, sets: &[Vec<usize>], cx: &ExecContext<'_>) -> SqlResult<Vec<Row>> {
        let env = self.scope.env(cx);
        let mut rows = Vec::with_capacity(tables.iter().map(|table| table.states.len()).sum());
        for (table, set) in tables.into_iter().zip(sets) {
            let mask = (self.sets.len() > 1).then(|| grouping_mask(set, self.groups.len()));
            for (mut row, states) in table.keys.into_keys().into_iter().zip(table.states) {
                row.reserve(states.len() + 1);
                for (mut state, call) in states.into_iter().zip(self.aggregates) {
                    row.push(state.finish(call, &env)?);
                }
                row.extend(mask.clone());
                rows.push(row);
            }
        }
        Ok(rows)
    }
}

/// `GROUPING` of all group expressions: a bit is set for each that is not in the set, the last
/// expression's bit being the lowest.
fn grouping_mask(set: &[usize], groups: usize) -> Datum {
    let bits = (0..groups).fold(0, |mask, position| mask << 1 | i32::from(!set.contains(&position)));
    Datum::Int4(bits)
}

#[async_trait]
impl Operator for Aggregate<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, want: usize) -> SqlResult<Option<Batch>> {
        let want = want.clamp(1, BATCH_ROWS);
        loop {
            let batch: Batch = self.results.by_ref().take(want).collect();
            if !batch.is_empty() {
                return Ok(Some(batch));
            }
            let Some(work) = self.work.pop() else { return Ok(None) };
            self.memory.release();
            self.results = self.compute(work, cx).await?.into_iter();
        }
    }

    /// A group that is not looked for needs none of its rows.
    fn narrow(&mut self, column: usize, sought: &Sought) {
        let whole = self.sets.len() == 1 && self.sets[0].len() == self.groups.len();
        if let Some(work) = self.work.first_mut().filter(|_| whole)
            && let Some(from) = work.input.key_column(column)
        {
            work.input.narrow(from, sought);
        }
    }
}
