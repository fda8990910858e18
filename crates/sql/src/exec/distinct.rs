//! DISTINCT and DISTINCT ON.

use super::eval::eval;
use super::hash_key::{KEY_OVERHEAD, KeyTable, equal};
use super::operator::{BATCH_ROWS, Batch, BoxOperator, Operator};
use super::partition::{KeyedInput, Partitions};
use super::relation::row_bytes;
use super::scope::Scope;
use super::sought::{Sought, same_integer};
use super::spill::Run;
use super::{ExecContext, Reservation};
use crate::plan::{Expr, PlanColumn};
use async_trait::async_trait;
use sql_types::{Row, SqlResult, Type};
use std::sync::Arc;

/// Removes duplicates: of whole rows with a hash table, of `DISTINCT ON` by comparing neighbours. When memory is full, rows
/// that the table does not know go to files, each of which is taken by itself when all rows were read.
pub(crate) struct Distinct<'p> {
    input: KeyedInput<'p>,
    types: Arc<[Type]>,
    on: &'p [Expr],
    scope: Scope<'p>,
    seen: KeyTable,
    /// Where rows go that the table does not know, once memory is full.
    unknown: Option<Partitions>,
    /// How often the rows of the input were divided.
    level: u32,
    /// Files to come, and how often their rows were divided.
    files: Vec<(Run, u32)>,
    last: Option<Row>,
    memory: Reservation,
}

impl<'p> Distinct<'p> {
    pub fn new(input: BoxOperator<'p>, columns: &[PlanColumn], on: &'p [Expr], scope: &Scope<'p>) -> Self {
        Distinct {
            input: KeyedInput::Computed { input, keys: Vec::new() },
            types: columns.iter().map(|column| column.ty.ty).collect(),
            on,
            scope: scope.clone(),
            seen: KeyTable::new(),
            unknown: None,
            level: 0,
            files: Vec::new(),
            last: None,
            memory: Reservation::default(),
        }
    }

    /// Whether a row is to be returned now.
    fn is_new(&mut self, row: &Row, cx: &ExecContext<'_>) -> SqlResult<bool> {
        if !self.on.is_empty() {
            let env = self.scope.env(cx);
            let key = self.on.iter().map(|expr| eval(expr, row, &env)).collect::<SqlResult<Row>>()?;
            let new = !self.last.as_ref().is_some_and(|last| equal(last, &key));
            if new {
                self.last = Some(key);
            }
            return Ok(new);
        }
        if let Some(unknown) = &mut self.unknown {
            if self.seen.find(row).is_none() {
                unknown.add(row, row)?;
            }
            return Ok(false);
        }
        let (_, new) = self.seen.insert(row, || row.clone());
        if new && let Err(full) = self.memory.grow(cx.memory, row_bytes(row) + KEY_OVERHEAD) {
            self.unknown = Some(Partitions::begin(cx, self.types.iter().copied(), self.level, full)?);
        }
        Ok(new)
    }

    /// Goes on with a file; false if there is none.
    fn advance(&mut self) -> SqlResult<bool> {
        let files = self.unknown.take().map(Partitions::finish).transpose()?.unwrap_or_default();
        let files = files.into_iter().filter(|file| !file.is_empty());
        self.files.extend(files.map(|file| (file, self.level + 1)));
        let Some((file, level)) = self.files.pop() else { return Ok(false) };
        (self.input, self.level) = (KeyedInput::spilled(file, &self.types, 0), level);
        self.seen = KeyTable::new();
        self.memory.release();
        Ok(true)
    }
}

#[async_trait]
impl Operator for Distinct<'_> {
    async fn next(&mut self, cx: &ExecContext<'_>, _want: usize) -> SqlResult<Option<Batch>> {
        loop {
            let Some(batch) = self.input.next(cx).await? else {
                if self.advance()? {
                    continue;
                }
                return Ok(None);
            };
            let mut kept = Batch::with_capacity(batch.len().min(BATCH_ROWS));
            for row in batch {
                if self.is_new(&row, cx)? {
                    kept.push(row);
                }
            }
            if !kept.is_empty() {
                return Ok(Some(kept));
            }
            cx.pause().await?;
        }
    }

    /// Of rows that are alike in what is looked at all are looked for, or none.
    fn narrow(&mut self, column: usize, sought: &Sought) {
        if self.on.is_empty() || self.on.iter().any(|on| same_integer(on) == Some(column)) {
            self.input.narrow(column, sought);
        }
    }
}
