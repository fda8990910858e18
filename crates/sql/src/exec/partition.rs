//! Rows that do not fit into memory, divided among files by the hash of their keys.
//!
//! What belongs to one key comes into one file. So an operator that works by hashing does with each file what it would
//! have done with all rows, and divides those of a file that is still too large once more, by another hash
//! (K. Bratbergsengen, "Hashing methods and relational algebra operations", VLDB 1984). That ends after [`MAX_LEVEL`]
//! divisions: what is too large then is of very few keys.
//!
//! Values of keys are written with the rows and not computed again, for they may come out differently.

use super::ExecContext;
use super::eval::{EvalEnv, eval};
use super::operator::{BATCH_ROWS, Batch, BoxOperator};
use super::scope::Scope;
use super::sought::{Sought, same_integer};
use super::spill::{Run, RunReader, RunWriter, can_spill};
use crate::plan::Expr;
use sql_types::{Datum, Row, SqlError, SqlResult, Type, compare};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

/// Files that rows are divided among.
const FILES: usize = 16;
/// How often the same rows are divided.
const MAX_LEVEL: u32 = 5;
/// Bytes that gather for a file before they are written, and that are read of it at once.
const BUFFER_BYTES: usize = 32 << 10;

/// Files that are being written.
pub(crate) struct Partitions {
    writers: Vec<RunWriter>,
    level: u32,
}

impl Partitions {
    /// Begins to divide rows for the time after `level`; their values and those of their keys have these types.
    ///
    /// # Errors
    /// `full` if that cannot be: there is no directory for it, values of a type cannot be written, or it was done too
    /// often. 58030 if files cannot be made.
    pub fn begin(
        cx: &ExecContext<'_>,
        types: impl IntoIterator<Item = Type>,
        level: u32,
        full: SqlError,
    ) -> SqlResult<Self> {
        let Some(spill) = cx.memory.spill().filter(|_| level < MAX_LEVEL) else { return Err(full) };
        if !types.into_iter().all(can_spill) {
            return Err(full);
        }
        let writers = (0..FILES).map(|_| spill.begin(BUFFER_BYTES)).collect::<SqlResult<_>>()?;
        Ok(Partitions { writers, level })
    }

    /// Adds a row, led by the values of its key if these are to be read again.
    ///
    /// # Errors
    /// 53100 if there is no room, 58030 if the file cannot be written.
    pub fn add<'v>(&mut self, key: &[Datum], row: impl IntoIterator<Item = &'v Datum>) -> SqlResult<()> {
        // Another hash at each level, and not that of hash tables, or the rows of a file would go to one file again.
        let mut hasher = DefaultHasher::new();
        hasher.write_u32(self.level);
        key.iter().for_each(|value| compare::hash(value, &mut hasher));
        let file = (hasher.finish() % FILES as u64) as usize;
        match self.writers.get_mut(file) {
            Some(writer) => writer.push(row),
            None => Ok(()),
        }
    }

    /// The files, as many of each division.
    ///
    /// # Errors
    /// As for [`Partitions::add`].
    pub fn finish(self) -> SqlResult<Vec<Run>> {
        self.writers.into_iter().map(RunWriter::finish).collect()
    }
}

/// Where an operator that works by hashing has its rows from.
pub(crate) enum KeyedInput<'p> {
    /// Another operator; the keys are computed.
    Computed {
        /// It.
        input: BoxOperator<'p>,
        /// Keys of a row.
        keys: Vec<&'p Expr>,
    },
    /// A file, in which keys lead the rows.
    Spilled {
        /// Its rows.
        reader: RunReader,
        /// How many values are keys.
        keys: usize,
    },
}

impl<'p> KeyedInput<'p> {
    /// What was written with these types, the first so many of them of keys.
    pub fn spilled(run: Run, types: &Arc<[Type]>, keys: usize) -> Self {
        KeyedInput::Spilled { reader: RunReader::new(run, types.clone(), BUFFER_BYTES), keys }
    }

    /// The next rows; what is one's key says [`KeyedInput::split`].
    ///
    /// # Errors
    /// As for other operators, and 58030.
    pub async fn next(&mut self, cx: &ExecContext<'_>) -> SqlResult<Option<Batch>> {
        match self {
            KeyedInput::Computed { input, .. } => input.next(cx, BATCH_ROWS).await,
            KeyedInput::Spilled { reader, .. } => {
                let rows = std::iter::from_fn(|| reader.next().transpose()).take(BATCH_ROWS);
                let batch = rows.collect::<SqlResult<Batch>>()?;
                Ok((!batch.is_empty()).then_some(batch))
            }
        }
    }

    /// The column that is a key, if it is one.
    pub fn key_column(&self, key: usize) -> Option<usize> {
        match self {
            KeyedInput::Computed { keys, .. } => keys.get(key).and_then(|key| same_integer(key)),
            KeyedInput::Spilled { .. } => None,
        }
    }

    /// See [`Operator::narrow`](super::operator::Operator::narrow). Of no use to a file.
    pub fn narrow(&mut self, column: usize, sought: &Sought) {
        if let KeyedInput::Computed { input, .. } = self {
            input.narrow(column, sought);
        }
    }

    /// Puts the key of a row that came from here into `key`, and leaves the row without it.
    ///
    /// # Errors
    /// Of the expressions.
    pub fn split(&self, row: &mut Row, key: &mut Row, env: &EvalEnv<'_>) -> SqlResult<()> {
        key.clear();
        match self {
            KeyedInput::Computed { keys, .. } => {
                for expr in keys {
                    key.push(eval(expr, row, env)?);
                }
            }
            KeyedInput::Spilled { keys, .. } => key.extend(row.drain(..(*keys).min(row.len()))),
        }
        Ok(())
    }

    /// Divides all rows that are left, but for those that need not be kept.
    ///
    /// # Errors
    /// As for [`KeyedInput::next`] and [`Partitions::add`].
    pub async fn divide(
        &mut self,
        cx: &ExecContext<'_>,
        scope: &Scope<'p>,
        into: &mut Partitions,
        keeps: impl Fn(&[Datum]) -> bool,
    ) -> SqlResult<()> {
        let mut key = Row::new();
        while let Some(batch) = self.next(cx).await? {
            {
                let env = scope.env(cx);
                for mut row in batch {
                    self.split(&mut row, &mut key, &env)?;
                    if keeps(&key) {
                        into.add(&key, key.iter().chain(&row))?;
                    }
                }
            }
            cx.pause().await?;
        }
        Ok(())
    }
}
