//! Rows that functions change while a statement that called them is about to write the same rows.
//!
//! A statement writes a row, and takes its entries out of indexes, by what it has read of it. A BEFORE trigger, or a
//! function in an expression, may have changed or deleted that row since. As in PostgreSQL the statement fails then.

use crate::exec::operator::BATCH_ROWS;
use crate::exec::{ExecContext, kv};
use crate::table::TableCodec;
use bytes::Bytes;
use sql_types::{Datum, SqlError, SqlResult, SqlState};

/// What functions had changed when a statement began to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Began(u64);

impl Began {
    /// Now.
    pub fn now(cx: &ExecContext<'_>) -> Began {
        Began(cx.host.changes_by_functions())
    }

    /// Whether functions have changed nothing since.
    pub fn is_fresh(self, cx: &ExecContext<'_>) -> bool {
        cx.host.changes_by_functions() == self.0
    }

    /// Fails with 27000 if a function has changed or deleted one of these rows since: their keys, and the full rows as
    /// the statement read them. `done` is what the statement is about to do: `updated`, `deleted`.
    pub async fn check(
        self,
        done: &str,
        codec: &TableCodec,
        rows: &[(&Bytes, &[Datum])],
        cx: &ExecContext<'_>,
    ) -> SqlResult<()> {
        if self.is_fresh(cx) {
            return Ok(());
        }
        for rows in rows.chunks(BATCH_ROWS) {
            let keys: Vec<Bytes> = rows.iter().map(|(key, _)| (*key).clone()).collect();
            let found = kv::get_many(cx, &keys, None).await?;
            for ((key, row), value) in rows.iter().zip(found) {
                let same = match value {
                    Some(value) => {
                        codec.row_value(&codec.decode_row(key, &value)?)? == codec.row_value(row)?
                    }
                    None => false,
                };
                if !same {
                    return Err(changed(done));
                }
            }
        }
        Ok(())
    }
}

fn changed(done: &str) -> SqlError {
    let message =
        format!("tuple to be {done} was already modified by an operation triggered by the current command");
    SqlError::new(SqlState("27000"), message).with_hint(
        "Consider using an AFTER trigger instead of a BEFORE trigger to propagate changes to other rows.",
    )
}
