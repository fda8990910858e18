//! GROUP BY and aggregates, by hashing.

use super::accumulate::Accumulation;
use super::eval::eval;
use super::hash_key::{KEY_OVERHEAD, KeyTable};
use super::operator::{BATCH_ROWS, Batch, BoxOperator, Operator};
use super::relation::row_bytes;
use super::scope::Scope;
use super::{ExecContext, Reservation};
use crate::plan::{AggregateCall, Expr};
use async_trait::async_trait;
use sql_types::{Datum, Row, SqlResult};

/// Estimated bytes of one accumulator.
const ACCUMULATOR_BYTES: usize = 96;

/// The groups of one grouping set.
struct Groups {
    keys: KeyTable,
    states: Vec<Vec<Accumulation>>,
}

pub(crate) struct Aggregate<'p> {
    input: BoxOperator<'p>,
    groups: &'p [Expr],
    sets: &'p [Vec<usize>],
    aggregates: &'p [AggregateCall],
    scope: Scope<'p>,
    results: Option<std::vec::IntoIter<Row>>,
    memory: Reservation,
}

impl<'p> Aggregate<'p> {
    pub fn new(
        input: BoxOperator<'p>,
        groups: &'p [Expr],
        sets: &'p [Vec<usize>],
        aggregates: &'p [AggregateCall],
        scope: &Scope<'p>,
    ) -> Self {
        Aggregate {
            input,
            groups,
            sets,
            aggregates,
            scope: scope.clone(),
            results: None,
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

    fn add(&mut self, batch: Batch, tables: &mut [Groups], cx: &ExecContext<'_>) -> SqlResult<()> {
        let env = self.scope.env(cx);
        let whole = self.sets.len() == 1 && self.sets[0].len() == self.groups.len();
        let (mut values, mut key) = (Row::new(), Row::new());
        let mut bytes = 0;
        for row in batch {
            values.clear();
            for group in self.groups {
                values.push(eval(group, &row, &env)?);
            }
            for (table, set) in tables.iter_mut().zip(self.sets) {
                let key = if whole {
                    &values
                } else {
                    self.key_in(set, &values, &mut key);
                    &key
                };
                let (position, new) = table.keys.insert(key, || key.clone());
                if new {
                    table.states.push(self.fresh());
                    bytes += row_bytes(key) + KEY_OVERHEAD + ACCUMULATOR_BYTES * self.aggregates.len();
                }
                for (state, call) in table.states[position].iter_mut().zip(self.aggregates) {
                    bytes += state.add(call, &row, &env)?;
                }
            }
        }
        self.memory.grow(cx.memory, bytes)
    }

    async fn compute(&mut self, cx: &ExecContext<'_>) -> SqlResult<Vec<Row>> {
        let mut tables: Vec<Groups> =
            self.sets.iter().map(|_| Groups { keys: KeyTable::new(), states: Vec::new() }).collect();
        while let Some(batch) = self.input.next(cx, BATCH_ROWS).await? {
            self.add(batch, &mut tables, cx)?;
            cx.pause().await?;
        }
        for (table, set) in tables.iter_mut().zip(self.sets) {
            // A set without expressions is one group, even over no rows.
            if set.is_empty() && table.states.is_empty() {
                let key = vec![Datum::Null; self.groups.len()];
                table.keys.insert(&key, || key.clone());
                table.states.push(self.fresh());
            }
        }
        self.results(tables, cx)
    }

    fn results(&self, tables: Vec<Groups>, cx: &ExecContext<'_>) -> SqlResult<Vec<Row>> {
        let env = self.scope.env(cx);
        let mut rows = Vec::with_capacity(tables.iter().map(|table| table.states.len()).sum());
        for (table, set) in tables.into_iter().zip(self.sets) {
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
        if self.results.is_none() {
            self.results = Some(self.compute(cx).await?.into_iter());
        }
        let results = self.results.iter_mut().flatten();
        let batch: Batch = results.take(want.clamp(1, BATCH_ROWS)).collect();
        Ok((!batch.is_empty()).then_some(batch))
    }
}
